"""The pictures of docs/concepts.md, drawn with the rules themselves: `python docs/make_pictures.py`.

One population of 96 individuals with two descriptors; 48 may stay. The first picture shows whom each rule keeps, the
second what a newcomer of median fitness would be worth at every place. A minute on two CPU cores.
"""

import io
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from PIL import Image
from scipy.spatial import Voronoi, voronoi_plot_2d

import lqd

IMAGES = pathlib.Path(__file__).parent / "images"
NUM, NUM_PLACES, RESOLUTION = 96, 48, 121
KEY = jax.random.key(0)  # none of these rules draws lots
CELLS = lqd.rule("me", descriptor_bounds=([0, 0], [1, 1]), num_cells=NUM_PLACES)
RULES = {
    "Genetic algorithm (ga)": lqd.rule("ga"),
    "Novelty Search (ns)": lqd.rule("ns"),
    "MAP-Elites (me)": CELLS,
    "Dominated NS (dns)": lqd.rule("dns"),
    "learned for fitness (lqd-f)": lqd.load("lqd-f"),
    "learned for novelty (lqd-n)": lqd.load("lqd-n"),
    "learned for both (lqd-fn)": lqd.load("lqd-fn"),
}


def population() -> tuple[np.ndarray, np.ndarray]:
    """Fitness (P,) and descriptors (P, 2): a crowd at a good place, others scattered; two hills of fitness."""
    rng = np.random.default_rng(3)
    crowd = rng.normal((0.7, 0.66), (0.08, 0.08), (NUM // 2, 2))
    descriptor = np.clip(np.concatenate([crowd, rng.uniform(0.03, 0.97, (NUM - len(crowd), 2))]), 0.0, 1.0)
    hills = [(0.72, 0.7, 1.0), (0.22, 0.3, 0.7)]
    fitness = sum(height * np.exp(-((descriptor - (a, b)) ** 2).sum(axis=1) / (2 * 0.16**2)) for a, b, height in hills)
    return (fitness + rng.normal(0.0, 0.06, NUM)).astype(np.float32), descriptor.astype(np.float32)


def panels(num: int):
    """A figure with so many squares in two rows."""
    figure = Figure(figsize=(12, 6.4), layout="constrained")
    axes = figure.subplots(2, (num + 1) // 2)
    for ax in axes.ravel():
        ax.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[], aspect="equal")
    axes[0, 0].set(xlabel="descriptor 1", ylabel="descriptor 2")
    return figure, axes.ravel()


def cells(ax, colour: str) -> None:
    far = np.array([[-9, -9], [-9, 9], [9, -9], [9, 9]])  # so that the cells at the border have an end
    diagram = Voronoi(np.concatenate([np.asarray(CELLS.centroids), far]))
    voronoi_plot_2d(diagram, ax=ax, show_points=False, show_vertices=False, line_colors=colour, line_width=0.6)
    ax.set(xlim=(0, 1), ylim=(0, 1))


def whom(fitness, descriptor) -> Figure:
    """Everybody, then whom each rule keeps."""
    figure, axes = panels(len(RULES) + 1)
    colours = {"cmap": "viridis", "vmin": fitness.min(), "vmax": fitness.max()}
    points = axes[0].scatter(*descriptor.T, c=fitness, s=26, **colours)
    axes[0].set_title(f"everybody: {NUM} individuals", fontsize=10)
    for ax, (name, rule) in zip(axes[1:], RULES.items(), strict=True):
        scores = np.asarray(rule(KEY, fitness, descriptor))
        kept = np.argsort(-scores, kind="stable")[:NUM_PLACES]
        kept = kept[scores[kept] > -np.inf]
        if rule is CELLS:
            cells(ax, "#dddddd")
        ax.scatter(*descriptor.T, s=9, color="#c8c8c8", marker="x", linewidths=0.8)
        ax.scatter(*descriptor[kept].T, c=fitness[kept], s=26, zorder=3, **colours)
        ax.set_title(f"{name}: {len(kept)} stay", fontsize=10)
    figure.colorbar(points, ax=axes, shrink=0.6, pad=0.01).set_label("fitness")
    return figure


@jax.jit
def shares(rule, fitness, descriptor, places):
    """Share of the population that a newcomer of median fitness outranks at each place."""

    def at(place):
        scores = rule(KEY, jnp.append(fitness, jnp.median(fitness)), jnp.concatenate([descriptor, place[None]]))
        return jnp.mean((scores[:-1] < scores[-1]).astype(jnp.float32))

    return jax.lax.map(at, places, batch_size=256)


def landscapes(fitness, descriptor) -> Figure:
    """Where a newcomer would survive, under each rule."""
    figure, axes = panels(len(RULES) + 1)
    axis = np.linspace(0, 1, RESOLUTION, dtype=np.float32)
    places = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    axes[0].scatter(*descriptor.T, c=fitness, s=26, cmap="magma", edgecolors="black", linewidths=0.5)
    axes[0].set_title("the population: brighter is fitter", fontsize=10)
    for ax, (name, rule) in zip(axes[1:], RULES.items(), strict=True):
        share = np.asarray(shares(rule, *map(jnp.asarray, (fitness, descriptor, places))))
        image = ax.imshow(
            share.reshape(RESOLUTION, RESOLUTION), origin="lower", extent=(0, 1, 0, 1), cmap="magma", vmin=0, vmax=1
        )
        ax.scatter(*descriptor.T, s=6, color="white", edgecolors="black", linewidths=0.4)
        ax.set_title(name, fontsize=10)
    bar = figure.colorbar(image, ax=axes, shrink=0.6, pad=0.01)
    bar.set_label("share of the population that a newcomer outranks")
    return figure


def save(figure: Figure, path: pathlib.Path) -> None:
    """With few colours, for a small file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=90)
    image = Image.open(buffer).convert("RGB").quantize(160, dither=Image.Dither.NONE)
    image.save(path, optimize=True)


def main() -> None:
    fitness, descriptor = population()
    for name, draw in {"rules-keep": whom, "rules-landscapes": landscapes}.items():
        save(draw(fitness, descriptor), IMAGES / f"{name}.png")
        print(f"Wrote {IMAGES / name}.png")


if __name__ == "__main__":
    main()
