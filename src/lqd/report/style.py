"""One look for all figures: a colour and a marker per rule, tidy axes, plain numbers, what was run under each figure.

The colours are safe for the colour-blind, and readable in print. Figures never touch pyplot's global state.
"""

import io
import pathlib
import re
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogFormatterMathtext, LogLocator

from lqd.bench.results import Folder
from lqd.io.files import write_bytes
from lqd.rules.catalogue import SHORT


class Look(NamedTuple):
    """How a rule is drawn in every figure."""

    colour: str
    marker: str


LOOKS = {
    "ga": Look("#D55E00", "s"),
    "random": Look("#999999", "x"),
    "ns": Look("#009E73", "^"),
    "dns": Look("#CC79A7", "D"),
    "me": Look("#E69F00", "P"),
    "me-fitted": Look("#8C564B", "p"),
    "lqd-f": Look("#0072B2", "o"),
    "lqd-n": Look("#000000", "o"),
    "lqd-fn": Look("#56B4E9", "o"),
}
COLOURS = {rule: look.colour for rule, look in LOOKS.items()}
MARKERS = {rule: look.marker for rule, look in LOOKS.items()}


def tidy(ax) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8)


def literal(name: str) -> str:
    """A name that may be anybody's, to be drawn as it is: no formula, and no byte that is not text."""
    return name.encode("utf-8", "backslashreplace").decode().replace("$", r"\$")


def save(figure: Figure, path) -> None:
    """Atomically, in the format of the path's ending."""
    path = pathlib.Path(path)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.removeprefix("."), dpi=160)
    write_bytes(path, buffer.getvalue())


def legend(figure: Figure, rules: Sequence[str], **how) -> None:
    handles = [
        Line2D([], [], color=COLOURS[rule], marker=MARKERS[rule], ms=5, lw=1.5, label=SHORT[rule]) for rule in rules
    ]
    ncols = min(len(rules), int(figure.get_figwidth() / 0.95))
    figure.legend(handles=handles, ncols=ncols, fontsize=8, frameon=False, **{"loc": "outside upper center"} | how)


def _plain(value: float, _) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def plain_numbers(axis) -> None:
    """On a logarithmic axis: 0.1, 1, 10 and, where there is hardly a power of ten in view, some between.

    Where large numbers are in view, all are powers of ten.
    """
    low, high = axis.get_view_interval()
    axis.set_major_formatter(LogFormatterMathtext() if high >= 1e5 else _plain)
    axis.set_minor_formatter("")
    if high / low < 60:
        axis.set_minor_locator(LogLocator(subs=(2, 5)))
        axis.set_minor_formatter(_plain)
    axis.set_tick_params(which="minor", labelsize=7)


def footer(figure: Figure, folder: "Folder", text: str) -> None:
    lines = textwrap.wrap(literal(folder.caveat + text), int(figure.get_figwidth() * 19))
    figure.supxlabel("\n".join(lines), fontsize=7, color="#B22222" if folder.caveat else "#555555")


def note(figure: Figure, folder: "Folder", parts: str | Sequence[str], more: str = "") -> None:
    """Under the figure: what was run, part by part where they differ in size."""
    parts = [parts] if isinstance(parts, str) else parts
    by_size: dict[str, list[str]] = {}
    for part in parts:
        by_size.setdefault(_size(folder.parts[part]["setting"]), []).append(title(part))
    said = list(by_size) if len(by_size) == 1 else [f"{', '.join(names)}: {size}" for size, names in by_size.items()]
    footer(figure, folder, "; ".join([*said, more] if more else said))


def _size(setting: dict[str, Any]) -> str:
    evaluations = setting["population_size"] + setting["num_generations"] * setting["batch_size"]
    said = [f"{setting['num_seeds']} seeds", f"{evaluations:,} evaluations"]
    if setting["functions"][0].startswith("brax/"):
        said += [f"population {setting['population_size']}", f"episodes of {setting['episode_length']} steps"]
        said += [f"at the end {num} fresh resets" if (num := setting.get("num_resets", 0)) else "single evaluations"]
    elif setting["functions"] != ["arm"]:
        dims = setting["dims"] or [setting["max_dim"]]
        said += [f"dimension {', '.join(map(str, dims))}", "no noise, no rotation"]
    return ", ".join(said)


def title(part: str) -> str:
    names = {"train": "training functions", "ood": "never trained on"}
    return names.get(part) or literal(re.sub(r"-(\w+)$", r" (\1)", part))
