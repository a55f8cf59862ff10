"""The folder that a bench wrote, read again: what figures, verdicts and the report are made from."""

import dataclasses
import functools
import pathlib
from typing import Any

import numpy as np

from lqd.bench.runner import HISTORY, MEASURES, OPTIONAL
from lqd.bench.settings import Setting
from lqd.checks import installed
from lqd.errors import InvalidInput, Unreadable
from lqd.io import manifest, records
from lqd.io.files import read_arrays, understood

LONGEST = 100  # characters of a name that is shown


class Folder:
    """Results by part and rule, as arrays (seeds, columns); histories as arrays (rows, seeds, columns)."""

    def __init__(self, path: pathlib.Path):
        self.path = pathlib.Path(path)
        installed("pyarrow", "bench", "a file of results (Parquet)")
        self.manifest = manifest.read(self.path / "manifest.json", "a bench (--out)")
        with understood(self.path / "manifest.json"):
            self._settings = _checked(self.manifest)

    @property
    def caveat(self) -> str:
        """The note on every figure of results that are not of the paper's size; empty if they are."""
        preset = self.manifest["preset"]
        return "" if preset == "paper" else f"{preset.upper()} PRESET, not the paper's size. "

    @property
    def parts(self) -> dict[str, dict[str, Any]]:
        return self.manifest["parts"]

    def part(self, name: str, figure: str) -> dict[str, Any]:
        """The description of a part; an error for a part that was not run."""
        if name not in self.parts:
            raise self.missing(figure)
        return self.parts[name]

    def missing(self, suite: str) -> InvalidInput:
        """The error to raise if the results of a suite are missing."""
        return InvalidInput(f"{self.path} has no results for {suite!r}: lqd bench --suite {suite} --out {self.path}")

    @functools.cached_property
    def _frames(self):
        import pandas as pd

        found = {}
        for name, measures in (("results", MEASURES), ("history", HISTORY)):
            path = self.path / f"{name}.parquet"
            try:
                frame = pd.read_parquet(path, engine="pyarrow", page_checksum_verification=True)
            except Exception as error:  # pyarrow has a dozen ways to say that a file is damaged
                raise Unreadable(f"{path}: cannot be read ({error}).") from error
            whole = ("dim", "seed", *(("num_evaluations",) if name == "history" else ()))
            numbers = (*whole, *measures, *(measure for measure in OPTIONAL if measure in frame))
            lacking = [column for column in ("part", "rule", "function", *numbers) if column not in frame]
            if lacking:
                raise Unreadable(f"{path}: it has no column {lacking[0]!r}.")
            for column in numbers:
                kind = pd.api.types.is_integer_dtype if column in whole else pd.api.types.is_float_dtype
                if not kind(frame[column].dtype):
                    raise Unreadable(f"{path}: its column {column!r} must hold numbers, not {frame[column].dtype}.")
            found[name] = frame
        return found

    def columns(self, part: str) -> list[tuple[str, int | None]]:
        """Function and dimension of each column."""
        return self._settings[part].columns

    def _by_key(self, name: str, part: str, rule: str, *by: str) -> tuple[Any, np.ndarray, list[np.ndarray]]:
        """The rows of a rule; where each belongs, by what it says of itself; and the axes: by..., seeds, columns."""
        import pandas as pd

        frame = self._frames[name]
        rows = frame[(frame["part"] == part) & (frame["rule"] == rule)]
        if not len(rows):
            raise InvalidInput(f"{self.path} has no results of rule {rule!r} in part {part!r}: run that suite again.")
        columns = pd.MultiIndex.from_tuples([(f, -1 if dim is None else dim) for f, dim in self.columns(part)])
        given = pd.MultiIndex.from_arrays([rows["function"], rows["dim"].fillna(-1).astype(np.int64)])
        axes = [np.unique(rows[one].to_numpy()) for one in by]
        axes += [np.arange(self._settings[part].num_seeds), np.arange(len(columns))]
        found = [*(rows[one].to_numpy(np.int64, na_value=-1) for one in (*by, "seed")), columns.get_indexer(given)]
        places = np.stack([pd.Index(axis).get_indexer(values) for axis, values in zip(axes, found, strict=True)])
        num = int(np.prod([len(axis) for axis in axes]))
        if (places < 0).any() or len(rows) != num or len(np.unique(places, axis=1).T) != num:
            wanted = " x ".join(
                f"{len(axis)} {what}" for axis, what in zip(axes, (*by, "seeds", "columns"), strict=True)
            )
            raise Unreadable(
                f"{self.path / name}.parquet: rule {rule!r} in part {part!r} should have {wanted}, each once; its "
                f"{len(rows)} rows are not those."
            )
        return rows, places, axes

    @functools.cache  # noqa: B019 - as long as the folder is used
    def table(self, part: str, rule: str) -> dict[str, np.ndarray]:
        rows, places, axes = self._by_key("results", part, rule)
        there = [*MEASURES, *(m for m in OPTIONAL if m in rows and not rows[m].isna().all())]
        return {m: _placed(rows[m], places, axes) for m in there}

    def num_resets(self, part: str) -> int:
        """On how many fresh resets of a simulator the results were evaluated again; 0: not at all."""
        return int(self.parts[part]["setting"].get("num_resets", 0))

    def best(self, part: str, rule: str) -> np.ndarray:
        """What the best solution of each run is worth (seeds, columns): on fresh resets, where there are resets."""
        return self.table(part, rule)["best_again"] if self.num_resets(part) else self.history(part, rule)["best"][-1]

    @functools.cache  # noqa: B019
    def history(self, part: str, rule: str) -> dict[str, np.ndarray]:
        """`num_evaluations` (rows,) and each measure (rows, seeds, columns)."""
        rows, places, axes = self._by_key("history", part, rule, "num_evaluations")
        return {m: _placed(rows[m], places, axes) for m in HISTORY} | {"num_evaluations": axes[0]}

    def landscape(self, rule: str) -> dict[str, np.ndarray]:
        """The frames of a rule's competition landscape."""
        path = self.path / "landscape" / f"{rule}.safetensors"
        if not path.exists():
            raise self.missing("landscape")
        arrays, _ = read_arrays(path, "piece")
        with understood(path):
            (num_frames, num), (side,) = arrays["fitness"].shape, arrays["axis"].shape
            square = (num_frames, side, side)
            shapes = {"generation": (num_frames,), "descriptor": (num_frames, num, 2), "score": square, "share": square}
            for name, shape in shapes.items():
                if arrays[name].shape != shape:
                    raise ValueError(f"{name} has shape {arrays[name].shape}, expected {shape}")
            if not min(num_frames, num, side) or any(arrays[name].dtype.kind not in "if" for name in arrays):
                raise ValueError("its arrays must hold numbers")
            if not (arrays["fitness"] > -np.inf).any(axis=1).all():
                raise ValueError("a population is empty")
        return arrays


def _placed(values, places: np.ndarray, axes: list[np.ndarray]) -> np.ndarray:
    """Numbers put where they belong."""
    found = np.empty([len(axis) for axis in axes])
    found[tuple(places)] = values.to_numpy(np.float64)
    return found


@dataclasses.dataclass(frozen=True)
class _Made:
    """How results were made, as far as it is shown."""

    devices: tuple[str, ...]
    versions: dict[str, str]
    seconds: float
    at: str
    commit: str | None = None


@dataclasses.dataclass(frozen=True)
class _Budget:
    asked: int
    made: int


@dataclasses.dataclass(frozen=True)
class _Part:
    setting: Setting
    rules: tuple[str, ...]
    pieces: dict[str, Any] = dataclasses.field(default_factory=dict)
    num_evaluations: _Budget | None = None


@dataclasses.dataclass(frozen=True)
class _Manifest:
    suites: tuple[str, ...]
    preset: str
    parts: dict[str, _Part]
    made: dict[str, Any] = dataclasses.field(default_factory=dict)
    num_seeds: int | None = None
    landscape: dict[str, Any] = dataclasses.field(default_factory=dict)


def _checked(content: dict[str, Any]) -> dict[str, Setting]:
    """The settings of a manifest's parts; an error if anything that is read from it later is not what it should be."""
    found = records.read(_Manifest, content)
    if found.made:
        shown = [field.name for field in dataclasses.fields(_Made)]
        records.read(_Made, {name: found.made[name] for name in shown if name in found.made})
    if found.landscape:
        for name in ("max_dim", "num_generations"):
            records.value_of(int, found.landscape["setting"][name], name)
    functions = [function for part in found.parts.values() for function in part.setting.functions]
    rules = [rule for part in found.parts.values() for rule in part.rules]
    for name in (found.preset, *found.suites, *found.parts, *functions, *rules):
        if not name or len(name) > LONGEST:
            raise ValueError(f"a name must have 1 to {LONGEST} characters, got {name!r:.80}")
    return {name: part.setting for name, part in found.parts.items()}
