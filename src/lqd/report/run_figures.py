"""Pictures of one run, and of several rules side by side."""

import numpy as np
from matplotlib.figure import Figure

from lqd.report.style import literal, tidy
from lqd.rules import catalogue
from lqd.search.result import Elites, Result


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
    tidy(ax)
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
        tidy(ax)
    middle.set_title(literal(f"rule {outcome.info.get('rule')}"), fontsize=9)
    return figure


def comparison(results: "dict[str, Result]", title: str, labels: tuple[str, str] | None = None) -> Figure:
    """The same task under several rules: each final population on the same axes and colours.

    Titles say how much of a passive archive each run filled, where there is one; else the population's novelty.
    """
    figure = Figure(figsize=(2.7 * len(results) + 0.8, 3.7), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(results), sharex=True, sharey=True))
    fitness = np.concatenate([outcome.fitness for outcome in results.values()])
    vmin, vmax = np.quantile(fitness, 0.02), fitness.max()
    box = _box(*results.values())
    for ax, (name, outcome) in zip(axes, results.items(), strict=True):
        points = descriptor_map(ax, outcome.population, box=box, vmin=vmin, vmax=vmax)
        last = outcome.history.iloc[-1]
        fact = f"covers {last.archive_coverage:.0%}" if "archive_coverage" in last else f"novelty {last.novelty:.3f}"
        if "archive_qd_score" in last:
            fact += f", QD score {last.archive_qd_score:,.0f}"
        ax.set_title(f"{catalogue.RULES[name].title}\n{fact}", fontsize=9)
        ax.set_aspect("equal")
        if labels is not None:
            ax.set(xlabel=labels[0], ylabel=labels[1])
    for ax in axes[1:]:
        ax.set_ylabel("")
    figure.colorbar(points, ax=axes, label="fitness", shrink=0.8)
    figure.suptitle(title, fontsize=10)
    return figure
