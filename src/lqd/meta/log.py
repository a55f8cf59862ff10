"""The training log: one CSV row at a time, and copies for TensorBoard and Weights & Biases where asked for.

Conventions:

- the first column counts (steps, meta-generations): it is the horizontal axis of TensorBoard and Weights & Biases;
- a row is one line, handed to the operating system before `write` returns, so a killed run loses at most the row it
  was writing; a line without an end is incomplete, and is dropped when the log is next opened;
- the last column is a checksum of the row and of all before it: a log that was altered, or lost a row, is refused.
  Logs of earlier versions do not have it; they get it when they are next written to;
- opening appends. With `resume_at=("step", 400)` what came after step 400 is dropped first, so a run that was killed
  and resumed from its checkpoint leaves the same rows as an undisturbed one; `("step", -1)` starts over.

Deliberately not here: which process writes (the trainer's first), and plots (`lqd.report`).
"""

import contextlib
import csv
import io
import pathlib
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lqd.checks import installed, is_real
from lqd.errors import InvalidInput, Unreadable, Unwritable, unknown
from lqd.io.files import PathLike, write_bytes

if TYPE_CHECKING:
    import pandas

Value = Any  # None, text, or one number of Python, NumPy or JAX
Rows = list[list[str]]
CHECK = "check"  # the column of checksums


class Log:
    """Rows with these columns, appended to `path`; `tensorboard` is a folder, `wandb` the name of a project."""

    def __init__(
        self,
        path: PathLike,
        columns: tuple[str, ...],
        *,
        tensorboard: PathLike | None = None,
        wandb: str | None = None,
        resume_at: tuple[str, int] | None = None,
    ):
        self.path, self.columns = pathlib.Path(path), _checked(columns)
        if resume_at is not None and resume_at[0] not in self.columns:
            raise unknown("column of resume_at", resume_at[0], self.columns)
        board = (
            None if tensorboard is None else installed("tensorboardX", "tensorboard", "tensorboard=...")
        )  # before any file changes
        service = None if wandb is None else installed("wandb", "wandb", "wandb=...")
        self._sum = _restore(self.path, self.columns, resume_at)
        self._tensorboard = self._wandb = None
        if board is not None:
            purge = resume_at[1] + 1 if resume_at is not None and resume_at[0] == self.columns[0] else None
            self._tensorboard = board.SummaryWriter(logdir=str(tensorboard), purge_step=purge)
        if service is not None:  # a resumed run is a run of its own there, under the same name
            folder = self.path.resolve().parent
            self._wandb = service.init(project=wandb, name=folder.name, dir=str(folder))
        self._file = self.path.open("a", encoding="utf-8", newline="")

    def write(self, row: Mapping[str, Value]) -> None:
        """One row; a column not given, or None, stays empty."""
        for name in row:
            if name not in self.columns:
                raise unknown("column", name, self.columns)
        plain = {name: _plain(name, value) for name, value in row.items() if value is not None}
        line, self._sum = _summed([str(plain.get(name, "")) for name in self.columns], self._sum)
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            raise Unwritable(self.path, error) from error
        self._publish({name: value.item() for name, value in plain.items() if not isinstance(value, str)})

    def _publish(self, numbers: dict[str, float]) -> None:
        counter = self.columns[0]
        step = int(numbers[counter]) if np.isfinite(numbers.get(counter, np.nan)) else None
        if self._tensorboard is not None:
            for name, value in numbers.items():
                if name != counter:
                    self._tensorboard.add_scalar(name, value, step)
            self._tensorboard.flush()
        if self._wandb is not None:
            self._wandb.log(numbers, step=step)

    def close(self) -> None:
        """Without it nothing is lost, except what Weights & Biases still has to send."""
        with contextlib.suppress(OSError):  # a row that could not be written was reported before
            self._file.close()
        if self._tensorboard is not None:
            self._tensorboard.close()
        if self._wandb is not None:
            self._wandb.finish()
        self._tensorboard = self._wandb = None

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def read(path: PathLike) -> "pandas.DataFrame":
    """The whole rows, also of a log that is being written; an empty cell is NaN."""
    import pandas as pd

    if not _whole_lines(pathlib.Path(path)):
        raise Unreadable(f"{path}: it has no header, so it is not a log.")
    text = "".join(map(_line, _rows(pathlib.Path(path))))
    return pd.read_csv(io.StringIO(text), keep_default_na=False, na_values=["", "nan"])


def _restore(path: pathlib.Path, columns: tuple[str, ...], resume_at: tuple[str, int] | None) -> int:
    """Gives the file these columns, and cuts it to complete rows up to `resume_at`; begins a new one if there is none.
    Returns the checksum of its content."""
    header, *rows = _rows(path) if path.exists() and path.stat().st_size else [list(columns)]
    if not set(header) & set(columns):
        raise Unreadable(f"{path}: not this run's log: its header is {header}, expected {list(columns)}. Move it away.")
    if resume_at is not None and rows:
        rows = _until(path, header, rows, *resume_at)
    place = {name: header.index(name) for name in columns if name in header}
    kept = [[row[place[name]] if name in place else "" for name in columns] for row in rows]
    text = _line([*columns, CHECK])
    sum_of_all = zlib.crc32(text.encode())
    for cells in kept:
        line, sum_of_all = _summed(cells, sum_of_all)
        text += line
    content = text.encode()
    if not path.exists() or path.read_bytes() != content:
        write_bytes(path, content)
    return sum_of_all


def _until(path: pathlib.Path, header: list[str], rows: Rows, counter: str, last: int) -> Rows:
    """The rows whose counter is at most `last`; a row without one belongs to the row before it."""
    if counter not in header:
        raise Unreadable(f"{path}: it has no column {counter!r} to resume at; its columns are {header}. Move it away.")
    place, count, kept = header.index(counter), -np.inf, []
    for number, row in enumerate(rows, 2):
        try:
            count = float(row[place]) if row[place] else count
        except ValueError as error:
            raise Unreadable(f"{path}: line {number}: {counter} must be a number, got {row[place]!r}.") from error
        if count <= last:
            kept.append(row)
    return kept


def _rows(path: pathlib.Path) -> Rows:
    """The header and every row, without checksums, which are checked; an empty header where no line is whole."""
    try:
        rows = list(csv.reader(io.StringIO(_whole_lines(path), newline=""))) or [[]]
    except csv.Error as error:
        raise Unreadable(f"{path}: not a table ({error}).") from error
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise Unreadable(
                f"{path}: line {number} has {len(row)} cells, the header {len(rows[0])}. Fix or remove it."
            )
    return _without_sums(path, rows) if rows[0] and rows[0][-1] == CHECK else rows


def _without_sums(path: pathlib.Path, rows: Rows) -> Rows:
    sum_of_all = zlib.crc32(_line(rows[0]).encode())
    for number, row in enumerate(rows[1:], 2):
        line, sum_of_all = _summed(row[:-1], sum_of_all)
        if line != _line(row):
            raise Unreadable(
                f"{path}: line {number} was altered, or a line before it is missing: its checksum does not "
                f"match. Restore a copy, or move the file away to begin a new log."
            )
    return [row[:-1] for row in rows]


def _whole_lines(path: pathlib.Path) -> str:
    """The content up to the last line break: the rest was being written when the run died."""
    try:
        lines, end, _ = path.read_bytes().rpartition(b"\n")
        return (lines + end).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"{path}: cannot be read as a log ({error}).") from error


def _checked(columns: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(columns)
    good = all(
        isinstance(name, str) and name not in ("", CHECK) and "\n" not in name and "\r" not in name for name in names
    )
    if isinstance(columns, str) or not names or not good or len({*names, CHECK}) != len(names) + 1:
        raise InvalidInput(f"columns must be one or more different names, none of them {CHECK!r}, got {columns!r}.")
    return names


def _plain(name: str, value: Value) -> Any:
    """Text of one line, or a NumPy scalar: its `str` is the shortest that reads back as the same number."""
    if isinstance(value, str):
        if "\n" in value or "\r" in value:
            raise InvalidInput(f"{name}: text in a log must be one line, got {value!r}.")
        return value
    array = np.asarray(value)
    if array.ndim or not is_real(array.dtype):
        raise InvalidInput(f"{name} must be one number, a text or None, got {value!r}.")
    return array[()]


def _summed(cells: list[str], sum_of_all: int) -> tuple[str, int]:
    """A row with its checksum, and the hash from which the next one continues."""
    sum_of_all = zlib.crc32(_line(cells).encode(), sum_of_all)
    return _line([*cells, f"{sum_of_all:08x}"]), sum_of_all


def _line(cells: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()
