"""The figures of the paper, and a few more, from the folder of a bench. They read results and never compute them.

The budget and the number of seeds stand under each figure, and `quick` where the results are not of the paper's size.
"""

import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lqd import statistics
from lqd.bench.results import Folder
from lqd.report.landscape_figures import landscape
from lqd.report.style import COLOURS, MARKERS, legend, literal, note, plain_numbers, tidy, title
from lqd.rules.catalogue import FITTED, SHORT
from lqd.tasks.brax import ROBOTS

MEASURES = {
    "fitness": "fitness\n(Random's regret / its own)",
    "novelty": "novelty\n(/ Random's)",
    "qd": "QD score\n(/ the best rule's)",
}
ROBOT_TASKS = ("arm", *ROBOTS)


def _rules(folder: "Folder", part: str, suite: str) -> list[str]:
    """Those of a part that have a colour: not the blinded ones of the ablation."""
    return [rule for rule in folder.part(part, suite)["rules"] if rule in COLOURS]


def _tasks(parts: Sequence[str]) -> str:
    return f"{len(parts)} tasks" if len(parts) > 1 else f"{parts[0]} alone"


def _wrapped(name: str) -> str:
    return textwrap.fill(name.replace("_", " "), 14)


def _relative(folder: "Folder", part: str, rule: str, measure: str) -> np.ndarray:
    """Fitness and novelty in units of Random's; QD scores in the best rule's: Random, no fitter than chance, has 0."""
    tables = {other: folder.table(part, other)[measure] for other in _rules(folder, part, part)}
    if measure != "qd":
        return statistics.relative(tables[rule], tables["random"], measure)
    best = np.max([np.median(values, axis=0) for values in tables.values()], axis=0)
    return statistics.relative(tables[rule], best[None], measure)


def pareto(folder: "Folder") -> Figure:
    """Fitness against novelty over all training functions, both in units of Random's."""
    rules = _rules(folder, "train", "pareto")
    figure = Figure(figsize=(5.6, 4.4), layout="constrained")
    ax = figure.subplots()
    places = {}
    for rule in rules:
        found = (_relative(folder, "train", rule, measure) for measure in ("novelty", "fitness"))
        x, y = (statistics.quartiles(statistics.middle_of_logs(values)) for values in found)
        places[rule] = x[1], y[1]
        ax.errorbar(
            x[1], y[1], xerr=[[x[1] - x[0]], [x[2] - x[1]]], yerr=[[y[1] - y[0]], [y[2] - y[1]]], color=COLOURS[rule],
            marker=MARKERS[rule], ms=8, lw=1, capsize=2,
        )  # fmt: skip
        offset = {"me": (8, -14), FITTED: (-70, 10), "dns": (-34, -14)}.get(rule, (8, 5))  # these three are often close
        ax.annotate(SHORT[rule], places[rule], xytext=offset, textcoords="offset points", fontsize=9)
    front = [
        place
        for place in sorted(places.values())
        if not any(other != place and other[0] >= place[0] and other[1] >= place[1] for other in places.values())
    ]
    ax.plot(*zip(*front, strict=True), color="#bbbbbb", lw=1, ls="--", zorder=0, label="not dominated")
    ax.set(xscale="log", yscale="log", xlabel="novelty / Random's", ylabel="Random's regret / its own")
    ax.legend(fontsize=8, frameon=False, loc="lower left")
    ax.margins(0.12)
    tidy(ax)
    plain_numbers(ax.xaxis)
    plain_numbers(ax.yaxis)
    said = "median and quartiles over seeds of the geometric mean over the middle half of the functions"
    filled = {rule: folder.table("train", rule)["num_filled"].mean() for rule in rules}
    fewer = [f"{SHORT[rule]} {num:.0f}" for rule, num in filled.items() if num < max(filled.values()) - 0.5]
    note(figure, folder, "train", said + (f"; filled slots: {', '.join(fewer)}, others all" if fewer else ""))
    return figure


def _bars(folder: "Folder", part: str, suite: str, per_row: int) -> Figure:
    rules = [rule for rule in _rules(folder, part, suite) if rule != "random"]
    names = [literal(function) for function, _ in folder.columns(part)]
    rows = [range(i, min(i + per_row, len(names))) for i in range(0, len(names), per_row)]
    figure = Figure(figsize=(11, 2.1 * len(MEASURES) * len(rows) + 0.7), layout="constrained")
    axes = figure.subplots(len(MEASURES) * len(rows), 1, squeeze=False)[:, 0]
    width = 0.86 / len(rules)
    for m, (measure, label) in enumerate(MEASURES.items()):
        for r, row in enumerate(rows):
            ax = axes[m * len(rows) + r]
            for i, rule in enumerate(rules):
                low, middle, high = statistics.quartiles(_relative(folder, part, rule, measure))[:, list(row)]
                x = np.arange(len(row)) + (i - (len(rules) - 1) / 2) * width
                begin = 0 if measure == "qd" else 1  # on a logarithmic axis bars begin at Random's 1
                ax.bar(x, middle - begin, width * 0.92, bottom=begin, color=COLOURS[rule])
                ax.errorbar(x, middle, yerr=[middle - low, high - middle], fmt="none", ecolor="#444444", lw=0.7)
            ax.axhline(1, color="#777777", lw=1, ls="--")
            ax.set(yscale="linear" if measure == "qd" else "log", ylabel=label)
            ax.set_xticks(range(len(row)), [_wrapped(names[i]) for i in row], fontsize=8)
            ax.set_xlim(-0.6, min(per_row, len(names)) - 0.4)
            ax.yaxis.label.set_fontsize(8)
            tidy(ax)
    legend(figure, rules)
    note(
        figure,
        folder,
        part,
        "dashed: Random (QD score: the best rule); bars are medians, whiskers quartiles over seeds",
    )
    return figure


def bars_train(folder: "Folder") -> Figure:
    """Fitness, novelty and QD score on every training function."""
    return _bars(folder, "train", "bars-train", 11)


def bars_ood(folder: "Folder") -> Figure:
    """Fitness, novelty and QD score on every function never trained on."""
    return _bars(folder, "ood", "bars-ood", 6)


def grid(folder: "Folder") -> Figure:
    """LQD (F) against MAP-Elites over population sizes and dimensions, function by function; a row for each box."""
    parts = {int(name.split()[1]): name for name in folder.parts if name.startswith("grid ")}
    first = folder.part(next(iter(parts.values()), "grid"), "grid")
    columns = folder.columns(next(iter(parts.values())))
    functions = list(dict.fromkeys(function for function, _ in columns))
    dims = list(dict.fromkeys(dim for _, dim in columns))
    others = [rule for rule in ("me", FITTED) if rule in first["rules"]]
    shape = len(others), len(functions), len(parts), len(dims)
    logs, wins = np.zeros(shape), np.zeros(shape)
    for n, name in enumerate(parts.values()):
        ours = folder.table(name, "lqd-f")["fitness"]
        for o, rule in enumerate(others):
            theirs = folder.table(name, rule)["fitness"]
            ratio = np.median(np.log10(statistics.regret(theirs) / statistics.regret(ours)), axis=0)
            logs[o, :, n] = ratio.reshape(len(functions), len(dims))
            wins[o, :, n] = statistics.wins(ours, theirs).mean(axis=0).reshape(len(functions), len(dims))
    figure = Figure(figsize=(3.1 * len(functions) + 0.9, 3.0 * len(others) + 0.6), layout="constrained")
    limit = max(np.quantile(np.abs(logs), 0.9), 1e-3)
    axes = figure.subplots(len(others), len(functions), sharey=True, squeeze=False)
    for o, i in np.ndindex(*axes.shape):
        ax: Any = axes[o, i]
        image = ax.imshow(logs[o, i], cmap="RdBu", vmin=-limit, vmax=limit, origin="lower", aspect="auto")
        for n, d in np.ndindex(len(parts), len(dims)):
            dark = abs(logs[o, i, n, d]) > 0.6 * limit
            ax.text(d, n, f"{100 * wins[o, i, n, d]:.0f}", ha="center", va="center", fontsize=8,
                    color="white" if dark else "black")  # fmt: skip
        ax.set_title(literal(functions[i].replace("_", " ")), fontsize=9)
        ax.set_xticks(range(len(dims)), dims)
        ax.set_yticks(range(len(parts)), list(parts))
        ax.set_xlabel("dimension")
        ax.tick_params(labelsize=8)
    for o, rule in enumerate(others):
        axes[o, 0].set_ylabel(f"{SHORT[rule]}\npopulation" if len(others) > 1 else "population", fontsize=9)
    bar = figure.colorbar(image, ax=figure.axes, shrink=0.9, extend="both")
    bar.set_label("log10 (MAP-Elites's regret / LQD's):\nblue LQD (F), red MAP-Elites", fontsize=8)
    note(figure, folder, next(iter(parts.values())), "median over seeds; numbers: % of runs that LQD (F) wins")
    return figure


def _curves(ax, folder: "Folder", part: str, rules, value: Callable[[dict, str], np.ndarray], colours=COLOURS) -> None:
    """Mean over the seeds with a 95 % interval; `value` makes one number per row and seed of a history."""
    for rule in rules:
        history = folder.history(part, rule)
        values = value(history, rule)
        mean = values.mean(axis=1)
        half = 1.96 * values.std(axis=1, ddof=1) / np.sqrt(values.shape[1])
        x = history["num_evaluations"]
        ax.plot(x, mean, color=colours[rule], marker=MARKERS.get(rule, "v"), ms=3, lw=1.3, markevery=4)
        ax.fill_between(x, mean - half, mean + half, color=colours[rule], alpha=0.2, lw=0)
    ax.set(xscale="log", xlabel="evaluations")
    tidy(ax)
    plain_numbers(ax.xaxis)


def _again(ax, folder: "Folder", part: str, rules, colours=COLOURS) -> None:
    """At the right of the curves: mean and 95 % interval of what the best solutions are worth on fresh resets."""
    if not folder.num_resets(part):
        return
    last = max(folder.history(part, rule)["num_evaluations"][-1] for rule in rules)
    for minor in (False, True):  # beyond the last evaluation the axis has no numbers
        ax.set_xticks([tick for tick in ax.xaxis.get_ticklocs(minor=minor) if tick <= last], minor=minor)
    ax.axvspan(1.07 * last, 1.23 * last * 1.12 ** len(rules), color="0.95", lw=0, zorder=0)
    for i, rule in enumerate(rules):
        values = folder.best(part, rule)[:, 0]
        x = last * 1.15 * 1.12**i
        half = 1.96 * values.std(ddof=1) / np.sqrt(len(values))
        ax.errorbar(x, values.mean(), half, color=colours[rule], marker=MARKERS.get(rule, "v"), ms=4, lw=1.3)


AGAIN = "curves: single evaluations, the highest so far; right of them: the best solutions on fresh resets"


def _said_again(folder: "Folder", parts) -> list[str]:
    return [AGAIN] if any(map(folder.num_resets, parts)) else []


def _panels(folder: "Folder", parts: Sequence[str], suite: str) -> tuple[Figure, dict[str, Any]]:
    """A figure with one plot for each part that was run, at most three in a row."""
    there = [part for part in parts if part in folder.parts] or [parts[0]]
    folder.part(there[0], suite)
    columns = min(3, len(there))
    rows = -(-len(there) // columns)
    figure = Figure(figsize=(max(4.0 * columns, 5.4), 3.2 * rows + 0.6), layout="constrained")
    axes = np.ravel(figure.subplots(rows, columns, squeeze=False))
    for ax in axes[len(there) :]:
        ax.set_visible(False)
    for ax, part in zip(axes, there, strict=False):
        ax.set_title(title(part), fontsize=9)
    return figure, dict(zip(there, axes, strict=False))


def robots(folder: "Folder") -> Figure:
    """Highest fitness over time on the robot tasks."""
    figure, axes = _panels(folder, ROBOT_TASKS, "robots")
    rules = _rules(folder, next(iter(axes)), "robots")
    for part, ax in axes.items():
        _curves(ax, folder, part, rules, lambda history, rule: history["best"][:, :, 0])
        _again(ax, folder, part, rules)
        ax.set_ylabel("best fitness so far", fontsize=8)
    legend(figure, rules)
    note(figure, folder, list(axes), "; ".join(["mean and 95 % interval", *_said_again(folder, axes)]))
    return figure


def robots_aggregate(folder: "Folder") -> Figure:
    """Final fitness over all robot tasks: 0 is Random's median on a task, 1 the best rule's."""
    parts = [part for part in ROBOT_TASKS if part in folder.parts] or ["arm"]
    rules = _rules(folder, parts[0], "robots-aggregate")
    figure = Figure(figsize=(5.6, 0.32 * len(rules) + 1.4), layout="constrained")
    ax = figure.subplots()
    num = min(len(folder.table(part, rules[0])["fitness"]) for part in parts)
    values = {rule: np.zeros((num, len(parts))) for rule in rules}
    for p, part in enumerate(parts):
        ends = {rule: folder.best(part, rule)[:num, 0] for rule in rules}
        low, high = np.median(ends["random"]), max(np.median(end) for end in ends.values())
        for rule in rules:
            values[rule][:, p] = (ends[rule] - low) / (high - low if high > low else 1.0)
    for i, rule in enumerate(rules):
        middle, low, high = statistics.interquartile_mean(values[rule])
        ax.barh(i, high - low, left=low, height=0.7, color=COLOURS[rule], alpha=0.45)
        ax.plot(middle, i, "|", ms=13, mew=2, color=COLOURS[rule])
    ax.set_yticks(range(len(rules)), [SHORT[rule] for rule in rules], fontsize=8)
    ax.invert_yaxis()
    ax.set_xlabel("best fitness: 0 is Random's, 1 the best rule's median", fontsize=8)
    tidy(ax)
    note(figure, folder, parts, f"{_tasks(parts)}; interquartile mean and 95 % bootstrap interval")
    return figure


def diversity(folder: "Folder") -> Figure:
    """Novelty over time of LQD (F) and GA, relative to MAP-Elites's at the end."""
    there = [part for part in ("train", *ROBOT_TASKS) if part in folder.parts]
    some = [part for part in there if folder.table(part, "me")["novelty"].any()]  # a single elite has none
    figure, axes = _panels(folder, some or ["train"], "diversity")
    known = {rule for part in axes for rule in folder.parts[part]["rules"]}
    rules = [rule for rule in ("lqd-f", "ga", "me", FITTED) if rule in known]
    for part, ax in axes.items():
        end = folder.table(part, "me")["novelty"].mean(axis=0)

        def value(history, rule, end=end):
            return (history["novelty"] / end).mean(axis=2)

        _curves(ax, folder, part, [rule for rule in rules if rule in folder.parts[part]["rules"]], value)
        ax.set_ylabel("novelty / MAP-Elites's at the end", fontsize=8)
        ax.set_ylim(0, None)
    legend(figure, rules)
    note(figure, folder, list(axes), "mean and 95 % interval; with slots empty, MAP-Elites is more novel")
    return figure


def ablation(folder: "Folder") -> Figure:
    """LQD (F) with the task's descriptors, with random ones, and GA."""
    figure, axes = _panels(folder, ("train", *ROBOT_TASKS[1:]), "ablation")
    colour = "#E69F00"
    for part, ax in axes.items():
        blind = next((rule for rule in folder.parts[part]["rules"] if rule.startswith("lqd-f@")), None)
        if blind is None:
            raise folder.missing("ablation")

        def value(history, rule, part=part):
            if part == "train":
                return np.log10(statistics.regret(history["best"])).mean(axis=2)
            return history["best"][:, :, 0]

        shown = ["lqd-f", "ga", blind], COLOURS | {blind: colour}
        _curves(ax, folder, part, shown[0], value, shown[1])
        _again(ax, folder, part, *shown)
        ax.set_ylabel("mean log10 regret of the best so far" if part == "train" else "best fitness so far", fontsize=8)
    labels = {COLOURS["lqd-f"]: "LQD (F), the task's descriptors", colour: "LQD (F), random descriptors"}
    labels[COLOURS["ga"]] = "GA"
    handles = [Line2D([], [], color=one, label=label) for one, label in labels.items()]
    figure.legend(handles=handles, ncols=3, fontsize=8, frameon=False, loc="outside upper center")
    note(figure, folder, list(axes), "; ".join(["mean and 95 % interval over seeds", *_said_again(folder, axes)]))
    return figure


TARGETS = np.logspace(2, -8, 51)


def ecdf(folder: "Folder") -> Figure:
    """Share of targets reached over time, as COCO shows it: all functions, seeds and 51 targets from 100 to 1e-8."""
    rules = _rules(folder, "train", "pareto")
    parts = [part for part in ("train", "ood") if part in folder.parts]
    figure = Figure(figsize=(4.6 * len(parts), 3.7), layout="constrained")
    for ax, part in zip(np.atleast_1d(figure.subplots(1, len(parts), sharey=True)), parts, strict=True):
        dim = folder.parts[part]["setting"]["max_dim"]
        for rule in rules:
            history = folder.history(part, rule)
            reached = (-history["best"][..., None] <= TARGETS).mean(axis=(1, 2, 3))
            x = history["num_evaluations"] / dim
            ax.plot(x, reached, color=COLOURS[rule], marker=MARKERS[rule], ms=3, lw=1.3, markevery=4)
        ax.set(xscale="log", xlabel="evaluations / dimension", title={"ood": "never trained on"}.get(part, "training"))
        ax.title.set_fontsize(9)
        tidy(ax)
    figure.axes[0].set_ylabel("share of function, seed, target reached")
    legend(figure, rules)
    note(figure, folder, "train", "51 targets from 100 to 1e-8")
    return figure


def aggregate(folder: "Folder") -> Figure:
    """The interquartile mean of all runs on the training functions, in each measure, with its interval."""
    rules = _rules(folder, "train", "pareto")
    figure = Figure(figsize=(10, 0.32 * len(rules) + 1.3), layout="constrained")
    for ax, (measure, label) in zip(figure.subplots(1, 3, sharey=True), MEASURES.items(), strict=True):
        for i, rule in enumerate(rules):
            values = np.nan_to_num(_relative(folder, "train", rule, measure))
            middle, low, high = statistics.interquartile_mean(values)
            ax.barh(i, high - low, left=low, height=0.7, color=COLOURS[rule], alpha=0.45)
            ax.plot(middle, i, "|", ms=13, mew=2, color=COLOURS[rule])
        ax.set(xscale="linear" if measure == "qd" else "log", xlabel=label.replace("\n", " "))
        ax.use_sticky_edges = False
        ax.grid(axis="x", color="#eeeeee")
        ax.set_axisbelow(True)
        ax.xaxis.label.set_fontsize(8)
        tidy(ax)
        ax.margins(x=0.08)
        if measure != "qd":
            plain_numbers(ax.xaxis)
    figure.axes[0].set_yticks(range(len(rules)), [SHORT[rule] for rule in rules], fontsize=8)
    figure.axes[0].invert_yaxis()
    note(figure, folder, "train", "interquartile mean over functions and seeds, 95 % bootstrap interval")
    return figure


def profiles(folder: "Folder") -> Figure:
    """Share of the runs that reach at least so much."""
    rules = _rules(folder, "train", "pareto")
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    for ax, (measure, label) in zip(figure.subplots(1, 3, sharey=True), MEASURES.items(), strict=True):
        values = {rule: np.nan_to_num(_relative(folder, "train", rule, measure)) for rule in rules}
        every = np.concatenate([v.ravel() for v in values.values()])
        low, high = np.quantile(every[every > 0], [0.01, 0.99]) if np.any(every > 0) else (0.1, 10.0)
        levels = np.linspace(0, high, 60)[1:] if measure == "qd" else np.geomspace(low, high, 60)
        for rule in rules:
            share = statistics.profile(values[rule], levels)
            ax.plot(levels, share, color=COLOURS[rule], marker=MARKERS[rule], ms=3, lw=1.3, markevery=10)
        ax.axvline(1, color="#cccccc", lw=1, zorder=0)
        ax.set(xscale="linear" if measure == "qd" else "log", xlabel=label.replace("\n", " "))
        ax.xaxis.label.set_fontsize(8)
        tidy(ax)
    figure.axes[0].set_ylabel("share of runs at least so good")
    legend(figure, rules)
    note(figure, folder, "train")
    return figure


FIGURES: dict[str, Callable[["Folder"], Figure]] = {
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
