"""Pictures of results. They never compute results, and never touch pyplot's global state."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from lqd import catalogue

if TYPE_CHECKING:
    from lqd.result import Elites, Result


def _tidy(ax) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8)


def descriptor_map(ax, elites: "Elites", *, box=None, vmin=None, vmax=None, minimize: bool = False):
    """Solutions in descriptor space, coloured by fitness; returns what a colour bar needs."""
    order = np.argsort(-elites.fitness if minimize else elites.fitness)  # the best last, so that it is on top
    descriptor, fitness = elites.descriptor[order], elites.fitness[order]
    flat = descriptor.shape[1] == 1
    points = ax.scatter(
        descriptor[:, 0], fitness if flat else descriptor[:, 1], c=fitness, s=14, linewidths=0, vmin=vmin, vmax=vmax,
        cmap="viridis_r" if minimize else "viridis",
    )  # fmt: skip
    more = f" (of {descriptor.shape[1]})" if descriptor.shape[1] > 2 else ""
    ax.set(xlabel="descriptor 1", ylabel="fitness" if flat else f"descriptor 2{more}")
    if box is not None:
        limits = [(low - 0.03 * (high - low), high + 0.03 * (high - low)) for low, high in zip(*box, strict=True)]
        ax.set_xlim(limits[0])
        if not flat:
            ax.set_ylim(limits[1])
    _tidy(ax)
    return points


def _box(*outcomes: "Result"):
    """Both ends, as vectors, of the descriptor box if the runs had one, widened to hold all solutions."""
    bounds = outcomes[0].info.get("descriptor_bounds")
    if not bounds:
        return None
    found = [outcome.descriptor for outcome in outcomes if len(outcome.descriptor)]
    low, high = (np.broadcast_to(end, outcomes[0].descriptor.shape[1]) for end in bounds)
    low, high = np.concatenate([low[None], *found]).min(axis=0), np.concatenate([high[None], *found]).max(axis=0)
    return [low, high]


def result(outcome: "Result") -> Figure:
    """The final population, over the archive if one was kept, beside the history of fitness and novelty."""
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    minimize = bool(outcome.info.get("minimize"))
    title = f"population: {len(outcome.population)} solutions"
    if outcome.archive is not None:
        second = outcome.archive.descriptor[:, 1] if outcome.descriptor.shape[1] > 1 else outcome.archive.fitness
        left.scatter(outcome.archive.descriptor[:, 0], second, s=5, color="#d0d0d0", linewidths=0)
        title += f"\narchive (grey): {len(outcome.archive)}"
    if len(outcome.population):
        points = descriptor_map(left, outcome.population, box=_box(outcome), minimize=minimize)
        figure.colorbar(points, ax=left, label="fitness")
    left.set_title(title, fontsize=9)
    history = outcome.history
    best = "min_fitness" if minimize else "max_fitness"
    middle.plot(history["num_evaluations"], history[best], color="#0072B2", label="best in the population")
    middle.plot(history["num_evaluations"], history["mean_fitness"], color="#999999", label="mean")
    middle.set(xlabel="evaluations", ylabel="fitness")
    middle.legend(fontsize=8, frameon=False)
    right.plot(history["num_evaluations"], history["novelty"], color="#009E73")
    right.set(xlabel="evaluations", ylabel="mean novelty")
    for ax in (middle, right):
        _tidy(ax)
    middle.set_title(f"rule {outcome.info.get('rule')}", fontsize=9)
    return figure


def comparison(results: "dict[str, Result]", title: str) -> Figure:
    """The same task under several rules: each final population on the same axes and colours."""
    figure = Figure(figsize=(2.7 * len(results) + 0.8, 3.7), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(results), sharex=True, sharey=True))
    fitness = np.concatenate([outcome.fitness for outcome in results.values()])
    vmin, vmax = np.quantile(fitness, 0.02), fitness.max()
    box = _box(*results.values())
    for ax, (name, outcome) in zip(axes, results.items(), strict=True):
        points = descriptor_map(ax, outcome.population, box=box, vmin=vmin, vmax=vmax)
        novelty = outcome.history["novelty"].iloc[-1]
        rule = catalogue.RULES[name].title
        ax.set_title(f"{rule}\n{len(outcome.population)} solutions, novelty {novelty:.3f}", fontsize=9)
        ax.set_aspect("equal")
    for ax in axes[1:]:
        ax.set_ylabel("")
    figure.colorbar(points, ax=axes, label="fitness", shrink=0.8)
    figure.suptitle(title, fontsize=10)
    return figure


PANEL_COLOURS = {"ga": "#D55E00", "ns": "#009E73", "dns": "#CC79A7", "me": "#E69F00", "random": "#999999"}


def training(log) -> Figure:
    """The course of a training run from its log: validation, wins against each hand-made rule, the optimiser."""
    figure = Figure(figsize=(12.5, 3.7), layout="constrained")
    axes = figure.subplots(1, 4)
    validated = log[log["score"].notna()]
    _validation(axes[0], validated)
    for ax, measure in zip(axes[1:3], ("fitness", "novelty"), strict=True):
        for name, colour in PANEL_COLOURS.items():
            rule = catalogue.RULES[name].title
            ax.plot(validated["step"], validated[f"win_{measure}_{name}"], ".-", color=colour, lw=1.3, label=rule)
        ax.set(ylabel="held-out tasks won", title=f"{measure}, against", ylim=(-0.03, 1.03))
        ax.axhline(0.5, color="#cccccc", lw=1, zorder=0)
    handles, names = axes[1].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), fontsize=8, frameon=False)
    _internals(axes[3], log)
    imitated = (log["phase"] == "imitation").any()
    for ax in axes:
        ax.set_xlabel("rounds and meta-generations" if imitated else "meta-generations")
        ax.title.set_fontsize(9)
        _tidy(ax)
    return figure


def _validation(ax, validated) -> None:
    step = validated["step"]
    if len(validated):
        first = validated["score"].iloc[0]
        low, high = first + validated["gain_low"], first + validated["gain_high"]
        ax.fill_between(step, low, high, color="#0072B2", alpha=0.2, lw=0, label="95 % of the gain since the start")
    ax.plot(step, validated["score"], "o-", ms=3, color="#0072B2", label="mean of the search")
    ax.plot(step, validated["best_score"], color="#777777", lw=1, ls="--", drawstyle="steps-post", label="best so far")
    ax.axhline(0.5, color="#cccccc", lw=1, zorder=0)
    ax.set(ylabel="held-out tasks won", title="objective, against the panel", ylim=(-0.03, 1.03))
    ax.legend(fontsize=7, frameon=False)


def _internals(ax, log) -> None:
    """How far the imitation is, and the step size of the evolution."""
    imitated, evolved = log[log["spearman_runs"].notna()], log[log["sigma"].notna()]
    lines = []
    if len(imitated):
        for column, colour in (("synthetic", "#009E73"), ("runs", "#0072B2")):
            label = f"rank correlation, {column}"
            lines += ax.plot(imitated["step"], imitated[f"spearman_{column}"], color=colour, label=label)
        ax.set(ylabel="agreement with the teacher", title="imitation", ylim=(min(0, ax.get_ylim()[0]), 1.0))
    if len(evolved):
        other = ax.twinx() if len(imitated) else ax
        lines += other.plot(evolved["step"], evolved["sigma"], color="#D55E00", label="step size")
        other.set(ylabel="step size", ylim=(0, 1.25 * evolved["sigma"].max()))
        other.tick_params(labelsize=8)
        other.spines["top"].set_visible(False)
        ax.set_title("imitation and step size" if len(imitated) else "step size of the search")
    if len(lines) > 1:
        ax.legend(lines, [line.get_label() for line in lines], fontsize=7, frameon=False)


def save(figure: Figure, path) -> None:
    """Atomically, in the format of the path's ending."""
    import io
    import pathlib

    from lqd.checkpoint import write_bytes

    path = pathlib.Path(path)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.removeprefix("."), dpi=160)
    write_bytes(path, buffer.getvalue())
