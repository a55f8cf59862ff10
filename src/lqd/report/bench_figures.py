"""The figures of the paper, and a few more, from the folder of a bench. They read results and never compute them.

The budget and the number of seeds stand under each figure, what its numbers are divided by, and `quick` where the
results are not of the paper's size.
"""

import itertools
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from lqd import statistics, tasks
from lqd.bench.results import Folder
from lqd.report import labels
from lqd.report.curve_figures import ablation, diversity, ecdf, robots, robots_aggregate, rules_of
from lqd.report.landscape_figures import landscape
from lqd.report.style import (
    COLOURS,
    FULL,
    MARKERS,
    Width,
    drawn,
    filled,
    legend,
    literal,
    note,
    plain_numbers,
    sized,
    tidy,
)  # fmt: skip
from lqd.rules.catalogue import FITTED, SHORT

MEASURES = {
    "fitness": "fitness\n(Random's regret / its own)",
    "novelty": "novelty\n(/ Random's)",
    "qd": "QD score\n(/ the best rule's)",
}
FLOOR = "a regret below 1e-8 counts as 1e-8"
UNITS = f"regret and novelty in units of Random's median, QD score of the best rule's; {FLOOR}"


def _wrapped(name: str, width: int = 11) -> str:
    return "\n".join(textwrap.wrap(literal(tasks.title(name)), width))


def _relative(folder: "Folder", part: str, rule: str, measure: str) -> np.ndarray:
    """Fitness and novelty in units of Random's; QD scores in the best rule's: Random, no fitter than chance, has 0."""
    tables = {other: folder.table(part, other)[measure] for other in rules_of(folder, part, part)}
    if measure != "qd":
        return statistics.relative(tables[rule], tables["random"], measure)
    best = np.max([np.median(values, axis=0) for values in tables.values()], axis=0)
    return statistics.relative(tables[rule], best[None], measure)


def above_zero(values: Sequence[np.ndarray]) -> float:
    """Where zeros are drawn on a logarithmic axis: half the smallest positive number, or less than 1."""
    positive = [value[value > 0].min() for value in map(np.asarray, values) if np.any(value > 0)]
    return min([*positive, 1.0]) / 2


@sized
def pareto(folder: "Folder", width: Width = FULL) -> Figure:
    """Fitness against novelty over all training functions, both in units of Random's."""
    rules = rules_of(folder, "train", "pareto")
    inches = width.inches if width.is_column else 0.75 * width.inches
    figure = Figure(figsize=(inches, (0.95 if width.is_column else 0.8) * inches), layout="constrained")
    ax = figure.subplots()
    places = []
    for rule in rules:
        found = (_relative(folder, "train", rule, measure) for measure in ("novelty", "fitness"))
        x, y = (statistics.quartiles(statistics.middle_of_logs(values)) for values in found)
        places.append((x[1], y[1]))
        ax.errorbar(
            x[1], y[1], xerr=[[x[1] - x[0]], [x[2] - x[1]]], yerr=[[y[1] - y[0]], [y[2] - y[1]]], color=COLOURS[rule],
            marker=MARKERS[rule], ms=6, lw=1, capsize=2,
        )  # fmt: skip
    ax.set(xscale="log", yscale="log", xlabel="novelty / Random's", ylabel="Random's regret / its own")
    ax.margins(x=0.2, y=0.12)
    corners = _staircase(ax, places)
    tidy(ax)
    plain_numbers(ax.xaxis)
    plain_numbers(ax.yaxis)
    filled_slots = {rule: folder.table("train", rule)["num_filled"].mean() for rule in rules}
    most = max(filled_slots.values())
    fewer = [f"{SHORT[rule]} {num:.0f}" for rule, num in filled_slots.items() if num < most - 0.5]
    said = "up and right is better; geometric mean over the middle half of the functions, each in units of Random's "
    said += f"median on it, then median and quartiles over seeds; {FLOOR}; dashed: not dominated"
    note(figure, folder, "train", said + (f"; filled slots: {', '.join(fewer)}, others all" if fewer else ""))
    labels.place(ax, np.array(places), [SHORT[rule] for rule in rules], [corners])
    return figure


def _staircase(ax, places: Sequence[tuple[float, float]]) -> np.ndarray:
    """The border of what the points dominate, drawn as far as the plot goes; returns its corners."""
    front = [
        place
        for place in sorted(set(places))
        if not any(other != place and other[0] >= place[0] and other[1] >= place[1] for other in places)
    ]
    grey: dict[str, Any] = {"color": "#999999", "lw": 0.9, "ls": "--", "zorder": 0}
    (left, _), (bottom, _) = ax.get_xlim(), ax.get_ylim()
    ax.plot(*zip(*front, strict=True), drawstyle="steps-pre", label="not dominated", **grey)
    ax.plot([left, front[0][0]], [front[0][1]] * 2, **grey)
    ax.plot([front[-1][0]] * 2, [front[-1][1], bottom], **grey)
    ax.set(xlim=(left, None), ylim=(bottom, None))
    corners = [(left, front[0][1]), front[0]]
    for before, after in itertools.pairwise(front):
        corners += [(before[0], after[1]), after]
    return np.array([*corners, (front[-1][0], bottom)])


@sized
def bars_train(folder: "Folder", width: Width = FULL) -> Figure:
    """Fitness, novelty and QD score on every training function."""
    return _dots(folder, "train", "bars-train", width) if width.is_column else _bars(folder, "train", "bars-train", 11)


@sized
def bars_ood(folder: "Folder", width: Width = FULL) -> Figure:
    """Fitness, novelty and QD score on every function never trained on."""
    return _dots(folder, "ood", "bars-ood", width) if width.is_column else _bars(folder, "ood", "bars-ood", 6)


def _bars(folder: "Folder", part: str, suite: str, per_row: int) -> Figure:
    """Groups of bars, one for each function, with a row of plots for each measure."""
    rules = [rule for rule in rules_of(folder, part, suite) if rule != "random"]
    names = [function for function, _ in folder.columns(part)]
    rows = [range(i, min(i + per_row, len(names))) for i in range(0, len(names), per_row)]
    figure = Figure(figsize=(FULL.inches, 1.3 * len(MEASURES) * len(rows) + 0.7), layout="constrained")
    axes = figure.subplots(len(MEASURES) * len(rows), 1, squeeze=False)[:, 0]
    random = folder.table(part, "random")["fitness"]
    most = statistics.relative(np.zeros_like(random), random, "fitness")[0]  # what a regret at the floor is worth
    for m, (measure, label) in enumerate(MEASURES.items()):
        values = {rule: statistics.quartiles(_relative(folder, part, rule, measure)) for rule in rules}
        for r, row in enumerate(rows):
            ax = axes[m * len(rows) + r]
            shown = {rule: value[:, list(row)] for rule, value in values.items()}
            _bars_of(ax, shown, measure, most[list(row)] if measure == "fitness" else None)
            ax.set_ylabel(label.split("\n")[0])
            ax.set_xticks(range(len(row)), [_wrapped(names[i]) for i in row])
            ax.set_xlim(-0.6, min(per_row, len(names)) - 0.4)
            tidy(ax)
    legend(figure, rules, bars=True)
    said = f"bars: medians, whiskers: quartiles over seeds; {UNITS}; dashed: Random (QD score: the best rule)"
    note(
        figure,
        folder,
        part,
        f"{said}; bars begin at the dashed line (QD score: at 0); \N{GREATER-THAN OR EQUAL TO}: "
        "at the floor; 0: no novelty",
    )
    return figure


def _bars_of(ax, quartiles: dict[str, np.ndarray], measure: str, most: np.ndarray | None = None) -> None:
    """On a logarithmic axis bars begin at Random's 1; those that are 0 end at the bottom, with a 0, and those that
    can be no higher have a sign for it."""
    is_log, breadth = measure != "qd", 0.86 / len(quartiles)
    zero = above_zero(list(quartiles.values())) if is_log else 0.0
    for i, (rule, found) in enumerate(quartiles.items()):
        low, middle, high = np.maximum(found, zero)
        x = np.arange(len(middle)) + (i - (len(quartiles) - 1) / 2) * breadth
        ax.bar(x, middle - is_log, breadth * 0.94, bottom=int(is_log), **filled(rule))
        ax.errorbar(x, middle, yerr=[middle - low, high - middle], fmt="none", ecolor="#444444", lw=0.6)
        if is_log:
            for at in x[found[1] == 0]:
                ax.text(at, zero, "0", ha="center", va="bottom", fontsize=6)
            for at in np.flatnonzero(found[1] >= 0.999 * most) if most is not None else ():
                ax.text(x[at], middle[at], "\N{GREATER-THAN OR EQUAL TO}", ha="center", va="bottom", fontsize=6)
    ax.axhline(1, color="#777777", lw=0.8, ls="--")
    ax.set_yscale("log" if is_log else "linear")
    if is_log:
        ax.margins(y=0.08)
        plain_numbers(ax.yaxis)
    else:
        ax.set_ylim(0, None)


def _dots(folder: "Folder", part: str, suite: str, width: Width) -> Figure:
    """For a column: a row for each function, a plot for each measure, medians and quartiles of each rule in it."""
    rules = [rule for rule in rules_of(folder, part, suite) if rule != "random"]
    names = [function for function, _ in folder.columns(part)]
    figure = Figure(figsize=(width.inches, 0.33 * len(names) + 1.6), layout="constrained")
    for ax, measure in zip(figure.subplots(1, len(MEASURES), sharey=True), MEASURES, strict=True):
        found = {rule: statistics.quartiles(_relative(folder, part, rule, measure)) for rule in rules}
        zero = above_zero(list(found.values())) if measure != "qd" else 0.0
        for i, rule in enumerate(rules):
            low, middle, high = np.maximum(found[rule], zero)
            y = np.arange(len(names)) + (i - (len(rules) - 1) / 2) * 0.8 / len(rules)
            ax.errorbar(middle, y, xerr=[middle - low, high - middle], color=COLOURS[rule], marker=MARKERS[rule],
                        ms=2.2, lw=0.6, ls="none")  # fmt: skip
        ax.axvline(1, color="#777777", lw=0.7, ls="--", zorder=0)
        ax.set(xscale="linear" if measure == "qd" else "log", ylim=(len(names) - 0.5, -0.5))
        ax.set_title(MEASURES[measure].split("\n")[0], fontsize=width.text)
        for between in range(1, len(names)):
            ax.axhline(between - 0.5, color="#eeeeee", lw=0.5, zorder=0)
        tidy(ax)
    figure.axes[0].set_yticks(range(len(names)), [_wrapped(name, 13) for name in names])
    legend(figure, rules)
    said = f"medians and quartiles over seeds; right is better; {UNITS}; dashed: Random (QD score: the best rule)"
    note(figure, folder, part, f"{said}; what has no novelty is at the left end")
    return figure


def _against(folder: "Folder", parts: Sequence[str], others: Sequence[str], shape: tuple[int, int]):
    """Against others (O,) in each part (N,), by function and dimension: (O, F, N, D) log ratios of their regret to LQD
    (F)'s, shares of runs that it wins, and whether both are at the floor."""
    logs, wins, level = (np.zeros((len(others), shape[0], len(parts), shape[1])) for _ in range(3))
    for (n, part), (o, rule) in itertools.product(enumerate(parts), enumerate(others)):
        ours, theirs = (folder.table(part, one)["fitness"] for one in ("lqd-f", rule))
        both = np.stack([statistics.regret(theirs), statistics.regret(ours)])
        logs[o, :, n] = np.median(np.log10(both[0] / both[1]), axis=0).reshape(shape)
        wins[o, :, n] = statistics.wins(ours, theirs).mean(axis=0).reshape(shape)
        level[o, :, n] = (np.median(both, axis=1).max(axis=0) <= 1e-8).reshape(shape)
    return logs, wins, level


@sized
def grid(folder: "Folder", width: Width = FULL) -> Figure:
    """LQD (F) against MAP-Elites over population sizes and dimensions, function by function, for each of its boxes."""
    parts = {int(name.split()[1]): name for name in folder.parts if name.startswith("grid ")}
    first = folder.part(next(iter(parts.values()), "grid"), "grid")
    columns = folder.columns(next(iter(parts.values())))
    functions, dims = (list(dict.fromkeys(values)) for values in zip(*columns, strict=True))
    others = [rule for rule in ("me", FITTED) if rule in first["rules"]]
    logs, wins, level = _against(folder, list(parts.values()), others, (len(functions), len(dims)))
    shape = (len(functions), len(others)) if width.is_column else (len(others), len(functions))
    inches = 1.15 * shape[0] + 1.5 if width.is_column else 1.75 * shape[0] + 1.0
    figure = Figure(figsize=(width.inches, inches), layout="constrained")
    limit = max(np.quantile(np.abs(logs), 0.9), 1e-3)
    axes = figure.subplots(*shape, sharex=True, sharey=True, squeeze=False)
    for o, i in np.ndindex(len(others), len(functions)):
        ax: Any = axes[i, o] if width.is_column else axes[o, i]
        image = ax.imshow(logs[o, i], cmap="RdBu", vmin=-limit, vmax=limit, origin="lower", aspect="auto")
        for n, d in np.ndindex(len(parts), len(dims)):
            said = "=" if level[o, i, n, d] else f"{100 * wins[o, i, n, d]:.0f}"
            dark = abs(logs[o, i, n, d]) > 0.6 * limit
            ax.text(d, n, said, ha="center", va="center", fontsize=6, color="white" if dark else "black")
        name, against = _wrapped(functions[i], 40), f"against {SHORT[others[o]]}"
        if width.is_column:
            ax.set_title(f"{name}\n{against}", fontsize=width.small)
        elif o == 0:
            ax.set_title(name)
        ax.set_xticks(range(len(dims)), dims)
        ax.set_yticks(range(len(parts)), list(parts))
        tidy(ax)
    for ax in axes[-1]:
        ax.set_xlabel("dimension")
    for o, ax in enumerate(axes[:, 0]):
        ax.set_ylabel("population" if width.is_column else f"against {SHORT[others[o]]}\npopulation")
    where: dict[str, Any] = {"location": "bottom", "shrink": 0.8, "aspect": 35} if width.is_column else {"aspect": 30}
    bar = figure.colorbar(image, ax=figure.axes, extend="both", **where)
    bar.set_label("log10 (MAP-Elites's regret / LQD (F)'s)", fontsize=width.small)
    said = "colours: median over seeds, blue where LQD (F) is ahead, one scale for all; numbers: % of runs that it "
    note(figure, folder, next(iter(parts.values())), f"{said}wins; =: both reach the floor; {FLOOR}")
    return figure


@sized
def aggregate(folder: "Folder", width: Width = FULL) -> Figure:
    """The interquartile mean of all runs on the training functions, in each measure, with its interval."""
    rules = rules_of(folder, "train", "pareto")
    shape = (len(MEASURES), 1) if width.is_column else (1, len(MEASURES))
    height = (0.15 * len(rules) + 0.5) * len(MEASURES) + 0.7 if width.is_column else 0.22 * len(rules) + 1.0
    figure = Figure(figsize=(width.inches, height), layout="constrained")
    axes = np.ravel(figure.subplots(*shape, sharey=True))
    for ax, (measure, label) in zip(axes, MEASURES.items(), strict=True):
        found = {
            rule: statistics.interquartile_mean(np.nan_to_num(_relative(folder, "train", rule, measure)))
            for rule in rules
        }
        zero = above_zero([np.array(list(found.values()))]) if measure != "qd" else 0.0
        for i, (rule, values) in enumerate(found.items()):
            middle, low, high = np.maximum(values, zero)
            ax.barh(i, high - low, left=low, height=0.7, color=COLOURS[rule], alpha=0.45)
            ax.plot(middle, i, MARKERS[rule], ms=4, color=COLOURS[rule])
            if values[0] <= 0 < zero:
                ax.annotate("0", (middle, i), (5, 0), textcoords="offset points", va="center", fontsize=6)
        ax.set(xscale="linear" if measure == "qd" else "log", xlabel=label.replace("\n", " "))
        ax.use_sticky_edges = False
        ax.grid(axis="x", color="#eeeeee")
        ax.set_axisbelow(True)
        ax.xaxis.label.set_fontsize(width.small)
        tidy(ax)
        ax.margins(x=0.08)
        if measure != "qd":
            plain_numbers(ax.xaxis)
    for ax in axes if width.is_column else axes[:1]:
        ax.set_yticks(range(len(rules)), [SHORT[rule] for rule in rules])
    axes[0].invert_yaxis()
    note(figure, folder, "train", f"interquartile mean over functions and seeds, 95 % bootstrap interval; {UNITS}")
    return figure


@sized
def profiles(folder: "Folder", width: Width = FULL) -> Figure:
    """Share of the runs that reach at least so much."""
    rules = rules_of(folder, "train", "pareto")
    shape = (len(MEASURES), 1) if width.is_column else (1, len(MEASURES))
    height = 5.8 if width.is_column else 2.9
    figure = Figure(figsize=(width.inches, height), layout="constrained")
    axes = np.ravel(figure.subplots(*shape, sharey=True))
    for ax, (measure, label) in zip(axes, MEASURES.items(), strict=True):
        values = {rule: np.nan_to_num(_relative(folder, "train", rule, measure)) for rule in rules}
        every = np.concatenate([v.ravel() for v in values.values()])
        low, high = np.quantile(every[every > 0], [0.01, 0.99]) if np.any(every > 0) else (0.1, 10.0)
        levels = np.linspace(0, high, 60)[1:] if measure == "qd" else np.geomspace(low, high, 60)
        for i, rule in enumerate(rules):  # markers do not stand above each other
            ax.plot(levels, statistics.profile(values[rule], levels), markevery=(i, 10), **drawn(rule))
        ax.axvline(1, color="#cccccc", lw=1, zorder=0)
        ax.set(xscale="linear" if measure == "qd" else "log", xlabel=label.replace("\n", " "))
        tidy(ax)
        if measure != "qd":
            plain_numbers(ax.xaxis)
    for ax in axes if width.is_column else axes[:1]:
        ax.set(ylabel="share of runs", ylim=(0, None))
    legend(figure, rules)
    said = f"share of runs that are at least so good; {UNITS}; what has no novelty is left of all"
    note(figure, folder, "train", said)
    return figure


FIGURES: dict[str, Callable[..., Figure]] = {
    "pareto": pareto,
    "bars-train": bars_train,
    "bars-ood": bars_ood,
    "grid": grid,
    "robots": robots,
    "robots-aggregate": robots_aggregate,
    "diversity": diversity,
    "ablation": ablation,
    "landscape": landscape,
    "aggregate": aggregate,
    "ecdf": ecdf,
    "profiles": profiles,
}
