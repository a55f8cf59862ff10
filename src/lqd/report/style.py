"""One look for all figures: a colour, a marker, a line and a hatch for each rule, tidy axes, what was run under each.

Rules that share a figure have colours that people with deuteranopia or protanopia tell apart; in grey they differ in
lightness, or else in marker and line (a test computes both). Figures are made in the size in which they are printed:
as wide as a page or as one of its two columns, with no text below 6 pt. They never touch pyplot's global state.
"""

import functools
import io
import itertools
import pathlib
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogFormatterMathtext, LogLocator

from lqd import tasks
from lqd.bench.results import Folder
from lqd.io.files import write_bytes
from lqd.rules.catalogue import BLIND, FITTED, SHORT

DPI = 200  # of saved PNGs


class Look(NamedTuple):
    """How a rule is drawn in every figure: dashes are lengths on and off, in line widths; none make a solid line."""

    colour: str
    marker: str
    line: tuple[float, ...] = ()
    hatch: str = ""

    @property
    def dashes(self) -> Any:
        """The line as matplotlib takes it."""
        return (0, self.line) if self.line else "-"


LOOKS = {  # learned rules have solid lines and plain bars
    "ga": Look("#DF4123", "s", (5, 1.5), "////"),
    "random": Look("#C2C2C2", "x", (1, 1.5), "...."),
    "ns": Look("#1C9A63", "^", (6, 1.5, 1, 1.5), "\\\\\\\\"),
    "dns": Look("#8B5579", "D", (3, 1), "xxxx"),
    "me": Look("#DCAF23", "P", (9, 2), "----"),
    FITTED: Look("#4E301E", "p", (9, 1.5, 1, 1.5, 1, 1.5), "++++"),
    "lqd-f": Look("#0072B2", "o"),
    "lqd-n": Look("#000000", "v"),
    "lqd-fn": Look("#56B4E9", "*"),
}
BESIDE = {  # what some figures show beside them
    BLIND: Look("#12A5A0", "d", (2, 1), "oo"),
    "cma-me": Look("#8A7F5C", "<", (4, 1, 1, 1, 1, 1), "||||"),
    "cma-mae": Look("#BDB9A8", ">", (1, 1), "**"),
    "lqd-fn-cma": Look("#1E3A70", "h", (12, 2), "OO"),
}
EVERY = LOOKS | BESIDE
COLOURS = {rule: look.colour for rule, look in EVERY.items()}
MARKERS = {rule: look.marker for rule, look in EVERY.items()}


def drawn(rule: str, **how) -> dict[str, Any]:
    """A rule's colour, marker and line as arguments of `plot`."""
    look = EVERY[rule]
    return {"color": look.colour, "marker": look.marker, "linestyle": look.dashes, "ms": 3, "lw": 1.2} | how


class Width(NamedTuple):
    """What a figure is made for: how wide it is there, and how large its text, in points."""

    inches: float
    text: float
    small: float

    @property
    def is_column(self) -> bool:
        return self.inches < 5


WIDTHS = {"full": Width(7.0, 8, 7), "column": Width(3.33, 7, 6)}
FULL = WIDTHS["full"]


def sized(make: Callable[..., Any]) -> Callable[..., Any]:
    """For functions `(data, width)` that make a figure: texts, lines and markers suit its width."""

    @functools.wraps(make)
    def made(data, width: Width = FULL):
        sizes: dict[Any, Any] = dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), width.small)
        sizes |= dict.fromkeys(("font.size", "axes.labelsize", "axes.titlesize"), width.text)
        with matplotlib.rc_context(sizes | {"legend.frameon": False, "hatch.linewidth": 0.4, "figure.dpi": DPI}):
            return make(data, width)

    return made


def tidy(ax) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(which="both", labelsize=matplotlib.rcParams["xtick.labelsize"])


def literal(name: str) -> str:
    """A name that may be anybody's, to be drawn as it is: no formula, and no byte that is not text."""
    return name.encode("utf-8", "backslashreplace").decode().replace("$", r"\$")


def save(figure: Figure, path) -> None:
    """Atomically, in the format of the path's ending; text in PDF stays text, in TrueType."""
    path = pathlib.Path(path)
    buffer = io.BytesIO()
    with matplotlib.rc_context({"pdf.fonttype": 42, "ps.fonttype": 42}):
        figure.savefig(buffer, format=path.suffix.removeprefix("."))
    write_bytes(path, buffer.getvalue())


def legend(figure: Figure, rules: Sequence[str], *, bars: bool = False) -> None:
    """Above all panels: lines with markers, or bars, in rows of about equal length."""
    handles: list[Any] = [Line2D([], [], **drawn(rule, ms=4.5), label=SHORT[rule]) for rule in rules]
    if bars:
        handles = [Patch(**filled(rule), label=SHORT[rule]) for rule in rules]
    names = [0.56 * matplotlib.rcParams["legend.fontsize"] * len(SHORT[rule]) + 36 for rule in rules]  # points
    fitting = [n for n in range(1, len(rules) + 1) if n == 1 or _wide(names, n) < 72 * figure.get_figwidth()]
    rows = -(-len(rules) // max(fitting))
    ncols = next(n for n in fitting if -(-len(rules) // n) == rows)  # the most even of as few rows
    figure.legend(handles=handles, ncols=ncols, loc="outside upper center", handlelength=2.6, columnspacing=1.0)


def _wide(entries: Sequence[float], ncols: int) -> float:
    """The width of a legend, which is filled column by column, each as wide as its longest entry."""
    rows, longer = divmod(len(entries), ncols)
    ends = np.cumsum([0, *[rows + (column < longer) for column in range(ncols)]])
    return sum(max(entries[start:end]) for start, end in itertools.pairwise(ends))


def filled(rule: str) -> dict[str, Any]:
    """A rule's colour and hatch as arguments of `bar`."""
    look = EVERY[rule]
    return {"facecolor": look.colour, "edgecolor": "white" if look.hatch else look.colour, "hatch": look.hatch, "lw": 0}


def _plain(value: float, _) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _short(value: float, _) -> str:
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


def plain_numbers(axis) -> None:
    """On a logarithmic axis: 0.1, 1, 10 and, where there is hardly a power of ten in view, some between (5k, 10k).

    Where large numbers are in view, all are powers of ten.
    """
    low, high = axis.get_view_interval()
    axis.set_major_formatter(LogFormatterMathtext() if high >= 1e5 else _plain)
    axis.set_minor_formatter("")
    if high / low < 60:
        axis.set_minor_locator(LogLocator(subs=(2, 5) if matplotlib.rcParams["font.size"] >= FULL.text else (3,)))
        for formatted in (axis.set_minor_formatter, axis.set_major_formatter):
            formatted(_short)
        axis.set_tick_params(which="minor", pad=5)  # ticks are shorter; numbers stand on one line


def footer(figure: Figure, folder: "Folder", text: str) -> None:
    said(figure, folder.caveat + text, "#B22222" if folder.caveat else "#555555")


def said(figure: Figure, text: str, colour: str = "#555555") -> None:
    """Under the figure, in lines as long as it is wide."""
    size = max(6.0, matplotlib.rcParams["legend.fontsize"] - 0.5)
    lines = textwrap.wrap(literal(text), int(figure.get_figwidth() * 128 / size), break_on_hyphens=False)
    figure.supxlabel("\n".join(lines), fontsize=size, color=colour)


def note(figure: Figure, folder: "Folder", parts: str | Sequence[str], more: str = "") -> None:
    """Under the figure: what was run, part by part where they differ in size."""
    parts = [parts] if isinstance(parts, str) else parts
    by_size: dict[str, list[str]] = {}
    for part in parts:
        by_size.setdefault(_size(folder.parts[part]["setting"]), []).append(title(part))
    sizes = list(by_size) if len(by_size) == 1 else [f"{', '.join(names)}: {size}" for size, names in by_size.items()]
    footer(figure, folder, "; ".join([*sizes, more] if more else sizes))


def _size(setting: dict[str, Any]) -> str:
    evaluations = setting["population_size"] + setting["num_generations"] * setting["batch_size"]
    parts = [f"{setting['num_seeds']} seeds", f"{evaluations:,} evaluations"]
    if setting["functions"][0].startswith("brax/"):
        parts += [f"population {setting['population_size']}", f"episodes of {setting['episode_length']} steps"]
        parts += [f"at the end {num} fresh resets" if (num := setting.get("num_resets", 0)) else "single evaluations"]
    elif setting["functions"] != ["arm"]:
        dims = setting["dims"] or [setting["max_dim"]]
        parts += [f"dimension {', '.join(map(str, dims))}", "no noise, no rotation"]
    return ", ".join(parts)


def title(part: str) -> str:
    """The name of a part of a bench, or of a task."""
    names = {"train": "Training functions", "ood": "Never trained on"}
    return names.get(part) or literal(tasks.title(part))
