"""The figures of a bench that show how runs went: robots, diversity, the ablation, targets reached."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from lqd import statistics
from lqd.bench.results import Folder
from lqd.report.style import (
    COLOURS,
    FULL,
    LOOKS,
    MARKERS,
    Width,
    drawn,
    legend,
    note,
    plain_numbers,
    sized,
    tidy,
    title,
)
from lqd.rules.catalogue import BLIND, FITTED, SHORT
from lqd.tasks.brax import ROBOTS

ROBOT_TASKS = ("arm", *ROBOTS)
INTERVAL = "mean and 95 % t interval over seeds"
AGAIN = "curves: single evaluations, the highest so far; right of them, shaded: the best solutions on fresh resets"
TARGETS = np.logspace(2, -8, 51)


def rules_of(folder: "Folder", part: str, suite: str) -> list[str]:
    """The rules of a part, without the blinded ones of the ablation."""
    return [rule for rule in folder.part(part, suite)["rules"] if rule in LOOKS]


def _curves(ax, folder: "Folder", part: str, rules, value: Callable[[dict, str], np.ndarray]) -> None:
    """Mean over the seeds with its interval; `value` makes one number per row and seed of a history."""
    for i, rule in enumerate(rules):
        history = folder.history(part, rule)
        mean, low, high = statistics.mean_interval(value(history, rule))
        x = history["num_evaluations"]
        ax.plot(x, mean, markevery=(i % 4, 4), **drawn(rule))
        ax.fill_between(x, low, high, color=COLOURS[rule], alpha=0.18, lw=0)
    ax.set(xscale="log", xlabel="evaluations")
    tidy(ax)
    plain_numbers(ax.xaxis)


def _again(ax, folder: "Folder", part: str, rules) -> None:
    """At the right of the curves: means of what the best solutions are worth on fresh resets, with intervals."""
    if not folder.num_resets(part):
        return
    last = max(folder.history(part, rule)["num_evaluations"][-1] for rule in rules)
    for minor in (False, True):  # beyond the last evaluation the axis has no numbers
        ax.set_xticks([tick for tick in ax.xaxis.get_ticklocs(minor=minor) if tick <= last], minor=minor)
    ax.axvspan(1.07 * last, 1.23 * last * 1.16 ** len(rules), color="0.95", lw=0, zorder=0)
    for i, rule in enumerate(rules):
        mean, low, high = statistics.mean_interval(folder.best(part, rule)[:, 0])
        ax.errorbar(
            last * 1.17 * 1.16**i, mean, [[mean - low], [high - mean]], color=COLOURS[rule], marker=MARKERS[rule],
            ms=3, lw=1,
        )  # fmt: skip


def _from_zero(ax) -> None:
    """A returned fitness with 0 in view, so that a small difference looks small."""
    low, high = ax.get_ylim()
    ax.set_ylim(min(low, 0), max(high, 0))
    ax.axhline(0, color="#cccccc", lw=0.8, zorder=0)


def _said_again(folder: "Folder", parts) -> list[str]:
    return [AGAIN] if any(map(folder.num_resets, parts)) else []


def _panels(folder: "Folder", parts: Sequence[str], suite: str, width: Width) -> tuple[Figure, dict[str, Any]]:
    """A figure with one plot for each part that was run, at most three in a row, two in a column."""
    there = [part for part in parts if part in folder.parts] or [parts[0]]
    folder.part(there[0], suite)
    columns = min(2 if width.is_column else 3, len(there))
    rows = -(-len(there) // columns)
    inches = width.inches if width.is_column or columns > 1 else 0.65 * width.inches
    height = (1.55 if width.is_column else 1.9) * rows + 0.9 + 0.4 * (columns == 1)
    figure = Figure(figsize=(inches, height), layout="constrained")
    axes = np.ravel(figure.subplots(rows, columns, squeeze=False))
    for ax in axes[len(there) :]:
        ax.set_visible(False)
    for ax, part in zip(axes, there, strict=False):
        ax.set_title(title(part))
    return figure, dict(zip(there, axes, strict=False))


@sized
def robots(folder: "Folder", width: Width = FULL) -> Figure:
    """Highest fitness over time on the robot tasks."""
    figure, axes = _panels(folder, ROBOT_TASKS, "robots", width)
    rules = rules_of(folder, next(iter(axes)), "robots")
    for part, ax in axes.items():
        _curves(ax, folder, part, rules, lambda history, rule: history["best"][:, :, 0])
        _again(ax, folder, part, rules)
        _from_zero(ax)
        if ax.get_subplotspec().is_first_col():
            ax.set_ylabel("best fitness so far")
    legend(figure, rules)
    note(figure, folder, list(axes), "; ".join([f"fitness as the task has it; {INTERVAL}", *_said_again(folder, axes)]))
    return figure


@sized
def robots_aggregate(folder: "Folder", width: Width = FULL) -> Figure:
    """Final fitness over all robot tasks: 0 is Random's median on a task, 1 the best rule's."""
    parts = [part for part in ROBOT_TASKS if part in folder.parts] or ["arm"]
    rules = rules_of(folder, parts[0], "robots-aggregate")
    inches = width.inches if width.is_column else 0.75 * width.inches
    figure = Figure(figsize=(inches, 0.24 * len(rules) + 1.1), layout="constrained")
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
        ax.plot(middle, i, MARKERS[rule], ms=5, color=COLOURS[rule])
    ax.set_yticks(range(len(rules)), [SHORT[rule] for rule in rules])
    ax.invert_yaxis()
    ax.set_xlabel("best fitness, scaled")
    tidy(ax)
    named = f"{len(parts)} tasks" if len(parts) > 1 else f"{title(parts[0])} alone"
    said = "fitness on each task scaled so that 0 is Random's median and 1 the best rule's"
    note(figure, folder, parts, f"{named}; {said}; interquartile mean and 95 % bootstrap interval")
    return figure


@sized
def diversity(folder: "Folder", width: Width = FULL) -> Figure:
    """Novelty over time of LQD (F) and GA, relative to MAP-Elites's at the end."""
    there = [part for part in ("train", *ROBOT_TASKS) if part in folder.parts]
    some = [part for part in there if folder.table(part, "me")["novelty"].any()]  # a single elite has none
    figure, axes = _panels(folder, some or ["train"], "diversity", width)
    known = {rule for part in axes for rule in folder.parts[part]["rules"]}
    rules = [rule for rule in ("lqd-f", "ga", "me", FITTED) if rule in known]
    for part, ax in axes.items():
        end = folder.table(part, "me")["novelty"].mean(axis=0)

        def value(history, rule, end=end):
            return (history["novelty"] / end).mean(axis=2)

        _curves(ax, folder, part, [rule for rule in rules if rule in folder.parts[part]["rules"]], value)
        ax.set_ylim(0, None)
        if ax.get_subplotspec().is_first_col():
            ax.set_ylabel("novelty / MAP-Elites's")
    legend(figure, rules)
    said = f"novelty in units of MAP-Elites's mean at the end; {INTERVAL}; with slots empty, MAP-Elites is more novel"
    note(figure, folder, list(axes), said)
    return figure


@sized
def ablation(folder: "Folder", width: Width = FULL) -> Figure:
    """LQD (F) with the task's descriptors, with random ones, and GA."""
    figure, axes = _panels(folder, ("train", *ROBOT_TASKS[1:]), "ablation", width)
    rules = ("lqd-f", "ga", BLIND)
    for part, ax in axes.items():
        if BLIND not in folder.parts[part]["rules"]:
            raise folder.missing("ablation")

        def value(history, rule, part=part):
            if part == "train":
                return np.log10(statistics.regret(history["best"])).mean(axis=2)
            return history["best"][:, :, 0]

        _curves(ax, folder, part, rules, value)
        _again(ax, folder, part, rules)
        if part != "train":
            _from_zero(ax)
        if ax.get_subplotspec().is_first_col() or part == "train":
            ax.set_ylabel("mean log10 regret of the best so far" if part == "train" else "best fitness so far")
    legend(figure, rules)
    said = ["LQD (F) sees the task's descriptors, or random ones", INTERVAL, *_said_again(folder, axes)]
    if "train" in axes:
        said.append("a regret below 1e-8 counts as 1e-8")
    note(figure, folder, list(axes), "; ".join(said))
    return figure


@sized
def ecdf(folder: "Folder", width: Width = FULL) -> Figure:
    """Share of targets reached over time, as COCO shows it: all functions, seeds and 51 targets from 100 to 1e-8."""
    rules = rules_of(folder, "train", "pareto")
    parts = [part for part in ("train", "ood") if part in folder.parts]
    shape = (len(parts), 1) if width.is_column else (1, len(parts))
    height = 2.0 * len(parts) + 1.1 if width.is_column else 3.2
    figure = Figure(figsize=(width.inches, height), layout="constrained")
    axes = np.ravel(figure.subplots(*shape, sharey=True, squeeze=False))
    for ax, part in zip(axes, parts, strict=True):
        dim = folder.parts[part]["setting"]["max_dim"]
        for i, rule in enumerate(rules):
            history = folder.history(part, rule)
            reached = (-history["best"][..., None] <= TARGETS).mean(axis=(1, 2, 3))
            ax.plot(history["num_evaluations"] / dim, reached, markevery=(i % 4, 4), **drawn(rule))
        ax.set(xscale="log", xlabel="evaluations / dimension", title=title(part))
        tidy(ax)
        plain_numbers(ax.xaxis)
    for ax in axes if width.is_column else axes[:1]:
        ax.set(ylabel="share of targets reached", ylim=(0, None))
    legend(figure, rules)
    note(figure, folder, "train", "51 targets of regret from 100 to 1e-8 on each function, of all seeds")
    return figure
