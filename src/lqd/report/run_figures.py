"""Pictures of one run, and of several rules side by side.

Descriptors are counted from 0, as columns of arrays and of tables are.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lqd import tasks
from lqd.errors import InvalidInput, shown
from lqd.report.style import COLOURS, literal, tidy
from lqd.rules import catalogue, cvt
from lqd.search.result import Elites, Result
from lqd.search.settings import ARCHIVE_SEED

DPI = 150
MOST_PAIRED = 5  # descriptors that are drawn against each other
MOST_CELLS = 20_000
SMALL = 9  # points


def descriptor_map(ax, elites: "Elites", *, axes: tuple[int, int] = (0, 1), box=None, vmin=None, vmax=None,
                   minimize: bool = False, **how):  # fmt: skip
    """Solutions over two of their descriptors (a single one: and fitness), coloured by fitness, the best on top;
    returns what a colour bar needs."""
    order = np.argsort(-elites.fitness if minimize else elites.fitness)
    descriptor, fitness = elites.descriptor[order], elites.fitness[order]
    flat, (i, j) = descriptor.shape[1] == 1, axes
    points = ax.scatter(
        descriptor[:, i], fitness if flat else descriptor[:, j], c=fitness, vmin=vmin, vmax=vmax,
        cmap=_colours(minimize), **({"s": 14, "linewidths": 0} | how),
    )  # fmt: skip
    ax.set(xlabel=f"descriptor {i}", ylabel="fitness" if flat else f"descriptor {j}")
    if box is not None:
        low, high = (np.asarray(end, np.float64) for end in box)
        margin = 0.03 * (high - low)
        ax.set_xlim(low[i] - margin[i], high[i] + margin[i])
        if not flat:
            ax.set_ylim(low[j] - margin[j], high[j] + margin[j])
    tidy(ax)
    return points


def _colours(minimize: bool) -> str:
    return "viridis_r" if minimize else "viridis"


def _box(*outcomes: "Result"):
    """Both ends, as vectors, of the descriptor box if the runs had one, widened to hold all solutions."""
    bounds = outcomes[0].info.get("descriptor_bounds")
    if not bounds:
        return None
    found = [outcome.descriptor for outcome in outcomes if len(outcome.descriptor)]
    low, high = (np.broadcast_to(end, outcomes[0].descriptor.shape[1]) for end in bounds)
    low, high = np.concatenate([low[None], *found]).min(axis=0), np.concatenate([high[None], *found]).max(axis=0)
    return [low, high]


def chosen(descriptors: Any, num: int) -> tuple[int, ...]:
    """Which descriptors a picture shows, checked; all, or the first few of many, if None are given."""
    if descriptors is None:
        return tuple(range(min(num, MOST_PAIRED)))
    given = tuple(descriptors) if isinstance(descriptors, Sequence | np.ndarray) else (descriptors,)
    there = "one descriptor, 0" if num == 1 else f"{num} descriptors, 0 to {num - 1}"
    if not given or not all(isinstance(i, int | np.integer) and not isinstance(i, bool) for i in given):
        raise InvalidInput(f"descriptors must be whole numbers, e.g. (0, 2), got {shown(descriptors)}.")
    for i in given:
        if not 0 <= i < num:
            raise InvalidInput(f"descriptors={shown(descriptors)}: there is no descriptor {i}, only {there}.")
        if given.count(i) > 1:
            raise InvalidInput(f"descriptors={shown(descriptors)}: descriptor {i} is given {given.count(i)} times.")
    if len(given) > MOST_PAIRED:
        raise InvalidInput(f"descriptors: at most {MOST_PAIRED} are drawn against each other, got {len(given)}.")
    return tuple(int(i) for i in given)


def result(outcome: "Result", descriptors: Any = None, about: str = "") -> Figure:
    """The final population, with the archive if one was kept, beside the history of fitness and novelty.

    One descriptor is drawn as a histogram and against fitness, two as a map, more as maps of all pairs.
    """
    wanted = chosen(descriptors, outcome.descriptor.shape[1])
    rows = max(1, len(wanted) - 1)
    figure = Figure(figsize=(10, 3.5) if rows == 1 else (2.1 * rows + 3.6, 1.9 * rows + 0.5), layout="constrained",
                    dpi=DPI)  # fmt: skip
    halves: Any = figure.subfigures(1, 2, width_ratios=(1, 1.8) if rows == 1 else (2.1 * rows, 3.2))
    left, right = halves
    if len(wanted) == 1:
        _histogram(left, outcome, wanted[0])
    else:
        _maps(left, outcome, wanted)
    left.suptitle(_contents(outcome, wanted), fontsize=SMALL)
    shape = (1, 2) if rows == 1 else (2, 1)
    _history(right.subplots(*shape), outcome)
    figure.suptitle(literal(_title(outcome, about)), fontsize=10)
    return figure


def _title(outcome: "Result", about: str) -> str:
    info = outcome.info
    task, rule = info.get("task"), str(info.get("rule"))
    parts = [tasks.title(str(task))] if task else []
    return ", ".join([*parts, f"rule {catalogue.SHORT.get(rule, rule)}", *([about] if about else [])])


def _contents(outcome: "Result", wanted: tuple[int, ...]) -> str:
    said = f"population: {len(outcome.population):,} solutions"
    if outcome.archive is not None:
        said += f"; archive: {len(outcome.archive):,} cells"
    num = outcome.descriptor.shape[1]
    if num > len(wanted):
        names = ", ".join(map(str, wanted))
        said += f"\ndescriptor{'s' * (len(wanted) > 1)} {names} of {num}; others: plot(descriptors=...)"
    return said


def _scale(outcome: "Result") -> dict[str, float]:
    """One scale of colours for population and archive."""
    parts = [outcome.fitness, *([] if outcome.archive is None else [outcome.archive.fitness])]
    fitness = np.concatenate(parts)
    return {"vmin": fitness.min(), "vmax": fitness.max()} if len(fitness) else {}


def _histogram(figure, outcome: "Result", i: int) -> None:
    """How many solutions there are where, and how good they are."""
    above, below = figure.subplots(2, 1, sharex=True)
    parts = {"population": (outcome.population, COLOURS["lqd-f"])}
    if outcome.archive is not None:
        parts = {"archive": (outcome.archive, "#c8c8c8")} | parts
    box = _box(outcome)
    every = np.concatenate([part.descriptor[:, i] for part, _ in parts.values()])
    low, high = (box[0][i], box[1][i]) if box is not None else (every.min(), every.max()) if len(every) else (0, 1)
    edges = np.linspace(low, high, 31) if low < high else 30
    for name, (part, colour) in parts.items():
        above.hist(part.descriptor[:, i], edges, color=colour, label=name)
        below.scatter(part.descriptor[:, i], part.fitness, s=9, color=colour, linewidths=0)
    above.set_ylabel("solutions")
    above.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    below.set(xlabel=f"descriptor {i}", ylabel="fitness")
    if len(parts) > 1:
        above.legend(fontsize=8, frameon=False)
    for ax in (above, below):
        tidy(ax)


def _maps(figure, outcome: "Result", wanted: tuple[int, ...]) -> None:
    """A map for each pair of descriptors: a staircase of plots, and one colour bar for all."""
    num, box, minimize = len(wanted) - 1, _box(outcome), bool(outcome.info.get("minimize"))
    axes = figure.subplots(num, num, squeeze=False, sharex="col", sharey="row")
    scale, image = _scale(outcome), None
    for row, column in itertools.product(range(num), repeat=2):
        ax = axes[row, column]
        if column > row:
            ax.set_visible(False)
            continue
        pair = wanted[column], wanted[row + 1]
        is_paved = outcome.archive is not None and _cells(ax, outcome, pair, scale)
        if outcome.archive is not None and not is_paved:
            ax.scatter(*outcome.archive.descriptor[:, pair].T, s=4, color="#d0d0d0", linewidths=0)
        how: dict[str, Any] = {"s": 11, "linewidths": 0.5, "edgecolors": "black"} if is_paved else {}
        how |= {"s": 7} if num > 1 else {}
        if len(outcome.population):
            image = descriptor_map(ax, outcome.population, axes=pair, box=box, minimize=minimize, **scale, **how)
        ax.label_outer()
    if image is not None:
        figure.colorbar(image, ax=axes, label="fitness", shrink=1.0 if num == 1 else 0.6)


def _cells(ax, outcome: "Result", pair: tuple[int, int], scale: dict[str, float]) -> bool:
    """The cells of the archive, coloured by their best; False where they cannot be drawn: in more than a plane."""
    archive, info = outcome.archive, outcome.info
    num, bounds = info.get("archive_cells"), info.get("descriptor_bounds")
    if archive is None or outcome.descriptor.shape[1] != 2 or not num or not bounds or num > MOST_CELLS:
        return False
    from scipy.spatial import Voronoi, cKDTree

    low, high = (np.broadcast_to(np.asarray(end, np.float64), 2) for end in bounds)
    centroids = np.asarray(cvt.centroids(num, low, high, ARCHIVE_SEED), np.float64)
    mirrored = [centroids]
    for axis, end in itertools.product((0, 1), (low, high)):  # cells then end at the border of the box
        mirror = centroids.copy()
        mirror[:, axis] = 2 * end[axis] - mirror[:, axis]
        mirrored.append(mirror)
    diagram = Voronoi(np.concatenate(mirrored))
    _, cell = cKDTree(centroids).query(archive.descriptor)
    polygons = [diagram.vertices[diagram.regions[diagram.point_region[i]]][:, pair] for i in cell]
    paved = PolyCollection(polygons, array=archive.fitness, cmap=_colours(bool(info.get("minimize"))), alpha=0.75,
                           linewidths=0)  # fmt: skip
    paved.set_clim(**scale)
    ax.add_collection(paved)
    return True


def _history(axes, outcome: "Result") -> None:
    left, right = axes
    history = outcome.history
    best = "min_fitness" if outcome.info.get("minimize") else "max_fitness"
    left.plot(history["num_evaluations"], history[best], color=COLOURS["lqd-f"], label="best in the population")
    left.plot(history["num_evaluations"], history["mean_fitness"], color="#999999", ls="--", label="mean")
    left.set_title("fitness", fontsize=SMALL)
    left.legend(fontsize=8, frameon=False)
    right.plot(history["num_evaluations"], history["novelty"], color=COLOURS["ns"])
    right.set_ylim(0, None)
    right.set_title("mean novelty", fontsize=SMALL)
    for ax in axes:
        ax.set_xlabel("evaluations")
        ax.xaxis.set_major_locator(MaxNLocator(5, steps=(1, 2, 5, 10)))
        tidy(ax)


def comparison(results: "dict[str, Result]", title: str, labels: tuple[str, str] | None = None) -> Figure:
    """The same task under several rules: each final population on the same axes and colours.

    Titles say how much of a passive archive each run filled, where there is one; else the population's novelty.
    """
    figure = Figure(figsize=(2.7 * len(results) + 0.8, 3.7), layout="constrained", dpi=DPI)
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
        ax.set_title(f"{catalogue.RULES[name].title}\n{fact}", fontsize=SMALL)
        ax.set_aspect("equal")
        ax.xaxis.set_major_locator(MaxNLocator(3))
        if labels is not None:
            ax.set(xlabel=labels[0], ylabel=labels[1])
    for ax in axes[1:]:
        ax.set_ylabel("")
    figure.colorbar(points, ax=axes, label="fitness", shrink=0.8, extend="min" if fitness.min() < vmin else "neither")
    figure.suptitle(title, fontsize=10)
    return figure
