"""Progress bars, and numbers for people. A bar that cannot be written never ends the work that it reports on."""

import contextlib
import importlib.util
import sys
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, Task
    from rich.table import Table


class _Lenient:
    """A stream that ignores failing writes: the disk may be full, or the reader gone."""

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
    """Whether somebody can see a bar move: on a terminal, or in a notebook that can show one."""
    console = _console()
    return console.is_terminal or (console.is_jupyter and importlib.util.find_spec("ipywidgets") is not None)


def number(value: float, digits: int = 3) -> str:
    """A number for people: -110 and 12,345, not -1.1e+02 and 1.23e+04."""
    rounded = f"{value:.{digits}g}"
    return f"{value:,.0f}" if 1000 <= abs(float(rounded)) < 1e9 else rounded


COMPILING = ("compiling",)  # what a bar says before anything has been evaluated


def progress() -> "Progress":
    """Progress bars that fit the terminal. A task has `facts`, of which the last ones are left out if there is no room.

    `add_task(label, total=..., facts=(...), unit="")`; the unit follows the count.
    """
    from rich.progress import Progress, ProgressColumn

    console = _console()

    class Line(ProgressColumn):
        def render(self, task):
            return _line(task, console.width - 1)

    return Progress(Line(), console=console)


LONGEST_BAR, SHORTEST_BAR = 40, 5


def _line(task: "Task", width: int) -> "Table":
    """One bar: its label, the bar, how many of how many, facts, the time left."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    label, facts, left = Text(task.description), list(task.fields["facts"]), task.time_remaining
    count = "" if task.total is None else f"{task.completed:,.0f}/{task.total:,.0f} {task.fields.get('unit', '')}"
    time_left = "-:--:--" if left is None else f"{int(left) // 3600}:{int(left) // 60 % 60:02}:{int(left) % 60:02}"
    texts = [label, Text(count.strip()), Text(", ".join(facts)), Text(time_left)]

    def room() -> int:
        """For the bar."""
        return width - sum(text.cell_len + 1 for text in texts if text)

    while len(facts) > 1 and room() < SHORTEST_BAR:
        facts.pop()
        texts[2] = Text(", ".join(facts))
    if room() < SHORTEST_BAR:
        texts[1] = Text(count.partition(" ")[0])
    for text, least in ((label, 12), (texts[2], 12), (label, 4), (texts[2], 0)):
        text.truncate(max(least, text.cell_len - max(0, SHORTEST_BAR - room())), overflow="ellipsis")
    bar = ProgressBar(
        total=task.total, completed=max(0, task.completed), width=min(max(room(), 1), LONGEST_BAR),
        pulse=task.total is None, animation_time=task.get_time(),
    )  # fmt: skip
    line = Table.grid(padding=(0, 1, 0, 0))
    before, after = ([text for text in part if text] for part in (texts[:1], texts[1:]))
    line.add_row(*before, bar, *after)
    return line
