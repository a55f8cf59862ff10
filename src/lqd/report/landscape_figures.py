"""Competition landscapes, from the folder of a bench: as a figure and as an animation.

Scores of different rules have no common unit. Shown is the share of the population that a newcomer outranks: it means
the same for every rule and generation, and has one scale from 0 to 1.
"""

import io
from collections.abc import Iterable
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from lqd import statistics, tasks
from lqd.bench.results import Folder
from lqd.report.style import FULL, Width, footer, literal, plain_numbers, sized, tidy
from lqd.rules.catalogue import LEARNED, SHORT


def _heat(ax, found: dict, frame: int, norm: LogNorm, steps: int | None = None):
    """A landscape under its population; returns both for colour bars. Few steps make a small animation."""
    end = found["axis"][-1]
    colours = matplotlib.colormaps["magma"].resampled(steps or 256)
    image = ax.imshow(
        found["share"][frame],
        origin="lower",
        extent=(-end, end, -end, end),
        cmap=colours,
        vmin=0,
        vmax=1,
        interpolation="nearest" if steps else None,
    )
    fitness, descriptor = found["fitness"][frame], found["descriptor"][frame]
    filled = np.isfinite(fitness)
    order = np.argsort(fitness[filled])
    points = ax.scatter(*descriptor[filled][order].T, c=statistics.regret(fitness[filled][order]), s=7, norm=norm,
                        cmap="viridis_r", edgecolors="white", linewidths=0.3)  # fmt: skip
    ax.set_xticks([])
    ax.set_yticks([])
    return image, points


def _norm(found: Iterable[np.ndarray]) -> LogNorm:
    """One scale for the regret of all individuals in a figure; the worst few share its end."""
    every = np.concatenate([statistics.regret(fitness[np.isfinite(fitness)]) for fitness in found])
    return LogNorm(float(every.min()), float(np.quantile(every, 0.95)))


@sized
def landscape(folder: "Folder", width: Width = FULL) -> Figure:
    """How many a newcomer of median fitness would outrank at every point of descriptor space, at the end."""
    rules = [*LEARNED, "dns"]
    found = {rule: folder.landscape(rule) for rule in rules}
    norm = _norm([one["fitness"][-1] for one in found.values()])
    shape = (2, 2) if width.is_column else (1, len(rules))
    figure = Figure(figsize=(width.inches, 4.7 if width.is_column else 2.9), layout="constrained")
    image: Any = None
    points: Any = None
    for ax, rule in zip(np.ravel(figure.subplots(*shape)), rules, strict=True):
        image, points = _heat(ax, found[rule], -1, norm)
        ax.set_title(SHORT[rule])
    axes: list[Any] = list(figure.axes)
    for shown, label in ((points, "regret of the individuals"), (image, "share that a newcomer outranks")):
        bar = figure.colorbar(shown, ax=axes, location="bottom", shrink=0.8, aspect=50, pad=0.02)
        bar.set_label(label, fontsize=width.small)
        tidy(bar.ax)
    plain_numbers(figure.axes[len(rules)].xaxis)
    setting = folder.manifest["landscape"]["setting"]
    when = f"{tasks.title('rastrigin')}, dimension {setting['max_dim']}, generation {setting['num_generations']}"
    said = "a newcomer of median fitness at each place, and the share of the population that it outranks; dots: the "
    footer(figure, folder, f"{when}; {said}population; the same two scales in all plots")
    return figure


STEPS = 10  # of brightness in the animation


@sized
def animation(folder: "Folder", width: Width = FULL) -> bytes:
    """A GIF: the population moving over its competition landscape, generation by generation."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    found = {rule: folder.landscape(rule) for rule in LEARNED}
    norm = _norm([one["fitness"] for one in found.values()])
    frames: list[Any] = []
    for frame, generation in enumerate(next(iter(found.values()))["generation"]):
        figure = Figure(figsize=(width.inches, 0.3 * width.inches + 0.55), layout="constrained", dpi=88)
        canvas = FigureCanvasAgg(figure)
        for ax, (rule, one) in zip(figure.subplots(1, len(LEARNED)), found.items(), strict=True):
            image, _ = _heat(ax, one, frame, norm, STEPS)
            ax.set_title(SHORT[rule])
        figure.colorbar(image, ax=figure.axes[: len(LEARNED)], shrink=0.8).set_label("share outranked")
        said = f"{literal(folder.caveat)}{tasks.title('rastrigin')}, generation {generation}; "
        said += "bright: where a newcomer would survive; brighter dots are fitter"
        figure.supxlabel(said, fontsize=width.small, color="#B22222" if folder.caveat else "#555555")
        canvas.draw()
        picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
        palette = frames[0] if frames else None  # one for all: what does not move stays the same
        frames.append(picture.quantize(48, palette=palette, dither=Image.Dither.NONE))
    buffer = io.BytesIO()
    durations = [450] * (len(frames) - 1) + [2000]
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=True)
    return buffer.getvalue()
