"""Progress bars. Whatever they say is text; one that cannot be written never ends the work that it is about."""

import contextlib
import functools
import importlib.util
import sys
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


class _Lenient:
    """A stream of which failing writes are ignored: the disk behind it is full, or nobody reads."""

    def __init__(self, stream: Any):
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except (OSError, ValueError):
            return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _console() -> "Console":
    from rich.console import Console

    return Console(file=cast(IO[str], _Lenient(sys.stdout)))


def is_watched() -> bool:
    """Whether somebody sees a bar move: on a terminal, or in a notebook that can show one."""
    console = _console()
    return console.is_terminal or (console.is_jupyter and importlib.util.find_spec("ipywidgets") is not None)


def progress(*columns: str) -> "Progress":
    """Bars with these columns: "bar", "narrow bar" (beside much text), "count", "left" (the time), or a format.

    Such as "{task.description}". Where the line is too long, the bar is what gets shorter.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    narrow = functools.partial(BarColumn, bar_width=12)
    kinds: dict[str, Callable[[], Any]] = {
        "bar": BarColumn,
        "narrow bar": narrow,
        "count": lambda: MofNCompleteColumn(table_column=Column(no_wrap=True)),
        "left": lambda: TimeRemainingColumn(table_column=Column(no_wrap=True)),
    }
    made = [kinds[column]() if column in kinds else TextColumn(column, markup=False) for column in columns]
    return Progress(*made, console=_console())
