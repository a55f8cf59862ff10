"""Competition landscapes, from the folder of a bench: as a figure and as an animation."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from lqd.bench.results import Folder
from lqd.report.style import footer, literal
from lqd.rules.catalogue import LEARNED, SHORT


def _heat(ax, found: dict, frame: int, values: np.ndarray, vmin: float, vmax: float):
    """A landscape under its population; returns both for colour bars."""
    end = found["axis"][-1]
    image = ax.imshow(values, origin="lower", extent=(-end, end, -end, end), cmap="magma", vmin=vmin, vmax=vmax)
    fitness, descriptor = found["fitness"][frame], found["descriptor"][frame]
    filled = np.isfinite(fitness)
    order = np.argsort(fitness[filled])
    points = ax.scatter(*descriptor[filled][order].T, c=fitness[filled][order], s=12, cmap="viridis",
                        edgecolors="white", linewidths=0.3)  # fmt: skip
    ax.set_xticks([])
    ax.set_yticks([])
    return image, points


def landscape(folder: "Folder") -> Figure:
    """The score of a newcomer of median fitness at every point of descriptor space, after the last generation."""
    rules = [*LEARNED, "dns"]
    figure = Figure(figsize=(3.3 * len(rules), 4.1), layout="constrained")
    for ax, rule in zip(figure.subplots(1, len(rules)), rules, strict=True):
        found = folder.landscape(rule)
        values = found["score"][-1]
        finite = values[np.isfinite(values)]
        image, points = _heat(ax, found, -1, values, *np.quantile(finite, [0.01, 0.99]))
        ax.set_title(SHORT[rule], fontsize=10)
        figure.colorbar(image, ax=ax, location="bottom", shrink=0.8, pad=0.02).ax.tick_params(labelsize=7)
    bar = figure.colorbar(points, ax=figure.axes[: len(rules)], shrink=0.7, pad=0.01)
    bar.set_label("fitness of individuals", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    setting = folder.manifest["landscape"]["setting"]
    when = f"Rastrigin, dimension {setting['max_dim']}, generation {setting['num_generations']}"
    footer(figure, folder, f"{when}; bright: high competition fitness of a newcomer of median fitness")
    return figure


def animation(folder: "Folder", rules: Sequence[str] = LEARNED) -> bytes:
    """A GIF: the population moving over its competition landscape, generation by generation."""
    import io

    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    found = {rule: folder.landscape(rule) for rule in rules}
    fitness = np.concatenate([f["fitness"][np.isfinite(f["fitness"])] for f in found.values()])
    frames = []
    for frame, generation in enumerate(next(iter(found.values()))["generation"]):
        figure = Figure(figsize=(2.6 * len(rules) + 0.7, 3.1), layout="constrained", dpi=90)
        canvas = FigureCanvasAgg(figure)
        for ax, (rule, one) in zip(figure.subplots(1, len(rules)), found.items(), strict=True):
            image, points = _heat(ax, one, frame, one["share"][frame], 0.0, 1.0)
            points.set_clim(np.quantile(fitness, 0.05), fitness.max())
            ax.set_title(SHORT[rule], fontsize=9)
        figure.colorbar(image, ax=figure.axes[: len(rules)], shrink=0.8).set_label("share outranked", fontsize=8)
        said = f"{literal(folder.caveat)}Rastrigin, generation {generation}; bright: where a newcomer would survive"
        figure.supxlabel(said, fontsize=8, color="#B22222" if folder.caveat else "#555555")
        canvas.draw()
        frames.append(Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB").quantize(128))
    buffer = io.BytesIO()
    durations = [450] * (len(frames) - 1) + [2000]
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=True)
    return buffer.getvalue()
