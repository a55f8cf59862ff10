"""Pictures of results. They never compute results, and never touch pyplot's global state."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from lqd.result import Elites, Result

# Okabe and Ito's colours: distinct for colour-blind readers and in grey print.
COLOURS = {
    "ga": "#D55E00",
    "random": "#999999",
    "ns": "#56B4E9",
    "dns": "#0072B2",
    "me": "#009E73",
    "lqd-f": "#CC79A7",
    "lqd-n": "#E69F00",
    "lqd-fn": "#000000",
    "lqd-untrained": "#F0E442",
}
TITLES = {"ga": "GA", "random": "Random", "ns": "Novelty Search", "dns": "Dominated Novelty Search", "me": "MAP-Elites"}


def _tidy(ax) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8)


def descriptor_map(ax, elites: "Elites", *, low=None, high=None, vmin=None, vmax=None, minimize: bool = False):
    """Solutions in descriptor space, coloured by fitness; returns what a colour bar needs."""
    descriptor, fitness = elites.descriptor, elites.fitness
    if descriptor.shape[1] == 1:
        points = ax.scatter(descriptor[:, 0], fitness, c=fitness, s=14, vmin=vmin, vmax=vmax, linewidths=0)
        ax.set(xlabel="descriptor", ylabel="fitness")
    else:
        # The best last, so that it is on top.
        order = np.argsort(-fitness if minimize else fitness)
        cmap = "viridis_r" if minimize else "viridis"
        points = ax.scatter(
            descriptor[order, 0], descriptor[order, 1], c=fitness[order], s=14, cmap=cmap, vmin=vmin, vmax=vmax,
            linewidths=0,
        )  # fmt: skip
        more = "" if descriptor.shape[1] == 2 else f" (of {descriptor.shape[1]})"
        ax.set(xlabel="descriptor 1", ylabel=f"descriptor 2{more}")
    if low is not None:
        margin = 0.03 * (np.asarray(high) - np.asarray(low))
        ax.set_xlim(low[0] - margin[0], high[0] + margin[0])
        if descriptor.shape[1] > 1:
            ax.set_ylim(low[1] - margin[1], high[1] + margin[1])
            ax.set_aspect("auto")
    _tidy(ax)
    return points


def result(outcome: "Result") -> Figure:
    """The final population (or the archive, if one was kept) beside the history of fitness and novelty."""
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    minimize = bool(outcome.info.get("minimize"))
    elites = outcome.population if outcome.archive is None else outcome.archive
    kind = "population" if outcome.archive is None else "archive"
    if len(elites):
        figure.colorbar(descriptor_map(left, elites, minimize=minimize), ax=left, label="fitness")
    left.set_title(f"{len(elites)} solutions ({kind})", fontsize=9)
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


def comparison(results: "dict[str, Result]", low, high, title: str) -> Figure:
    """The same task under several rules: each final population on the same axes and colours."""
    figure = Figure(figsize=(2.7 * len(results) + 0.8, 3.7), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(results), sharex=True, sharey=True))
    fitness = np.concatenate([outcome.fitness for outcome in results.values()])
    vmin, vmax = np.quantile(fitness, 0.02), fitness.max()
    for ax, (name, outcome) in zip(axes, results.items(), strict=True):
        points = descriptor_map(ax, outcome.population, low=low, high=high, vmin=vmin, vmax=vmax)
        last = outcome.history.iloc[-1]
        ax.set_title(
            f"{TITLES.get(name, name)}\n{len(outcome.population)} solutions, novelty {last['novelty']:.3f}", fontsize=9
        )
        ax.set_aspect("equal")
    for ax in axes[1:]:
        ax.set_ylabel("")
    figure.colorbar(points, ax=axes, label="fitness", shrink=0.8)
    figure.suptitle(title, fontsize=10)
    return figure


def save(figure: Figure, path) -> None:
    """Atomically, in the format of the path's ending."""
    import io
    import pathlib

    from lqd.checkpoint import write_bytes

    path = pathlib.Path(path)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.removeprefix("."), dpi=160)
    write_bytes(path, buffer.getvalue())
