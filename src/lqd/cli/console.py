"""What commands show: progress bars and tables."""

import contextlib
import sys
from collections.abc import Sequence

from lqd.io import terminal


@contextlib.contextmanager
def pieces_bar(quiet: bool):
    """Yields a function to call with what is running, how many pieces are done, and of how many."""
    if quiet:
        yield lambda label, done, total: None
        return
    with terminal.progress() as progress:
        bar = progress.add_task("", total=None, facts=terminal.COMPILING)
        yield lambda label, done, total: progress.update(bar, facts=(label,), completed=done, total=total)


def table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Rows of text on the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(*header, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        made.add_row(*map(Text, row))
    Console(width=None if sys.stdout.isatty() else 200).print(made)


@contextlib.contextmanager
def generations_bar(label: str, num_generations: int, quiet: bool):
    """Yields a function to call with the generation reached; the bar shows the time left."""
    if quiet:
        yield lambda generation: None
        return
    with terminal.progress() as progress:
        bar = progress.add_task(label, total=num_generations, unit="generations", facts=terminal.COMPILING)
        yield lambda generation: progress.update(
            bar, completed=generation, facts=() if generation else terminal.COMPILING
        )
