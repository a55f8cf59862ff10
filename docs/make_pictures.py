"""The pictures in docs/images that the code can draw by itself: `python docs/make_pictures.py`, or some by name.

`first` is what the first example of README draws, run as it stands there. Those of results come from the folders in
results/, as `lqd figure` draws them. Those of docs/concepts.md show the rules themselves: one population of 96
individuals with two descriptors, of whom 48 may stay; whom each rule keeps, and what a newcomer of median fitness would
be worth at every place. Two minutes on two CPU cores.
"""

import contextlib
import functools
import io
import json
import os
import pathlib
import re
import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from PIL import Image
from scipy.spatial import Voronoi, voronoi_plot_2d

import lqd
from lqd.bench.results import Folder
from lqd.report import draw
from lqd.rules import catalogue

ROOT = pathlib.Path(__file__).parents[1]
IMAGES, RESULTS = ROOT / "docs" / "images", ROOT / "results"
NUM, NUM_PLACES, RESOLUTION = 96, 48, 121
KEY = jax.random.key(0)  # none of these rules draws lots
CELLS = lqd.rule("me", descriptor_bounds=([0, 0], [1, 1]), num_cells=NUM_PLACES)
RULES = {"ga": lqd.rule("ga"), "ns": lqd.rule("ns"), "me": CELLS, "dns": lqd.rule("dns")}
RULES |= {name: lqd.load(name) for name in ("lqd-f", "lqd-n", "lqd-fn")}


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
    figure = Figure(figsize=(10, 5.9), layout="constrained")
    axes = figure.subplots(2, (num + 1) // 2)
    for ax in axes.ravel():
        ax.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[], aspect="equal")
    axes[0, 0].set(xlabel="descriptor 0", ylabel="descriptor 1")
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
    axes[0].set_title(f"Everybody:\n{NUM} individuals", fontsize=10)
    for ax, (name, rule) in zip(axes[1:], RULES.items(), strict=True):
        scores = np.asarray(rule(KEY, fitness, descriptor))
        kept = np.argsort(-scores, kind="stable")[:NUM_PLACES]
        kept = kept[scores[kept] > -np.inf]
        if rule is CELLS:
            cells(ax, "#dddddd")
        ax.scatter(*descriptor.T, s=9, color="#c8c8c8", marker="x", linewidths=0.8)
        ax.scatter(*descriptor[kept].T, c=fitness[kept], s=26, zorder=3, **colours)
        ax.set_title(f"{catalogue.RULES[name].title}\n{name}: {len(kept)} stay", fontsize=10)
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
    axes[0].set_title("The population:\nbrighter is fitter", fontsize=10)
    for ax, (name, rule) in zip(axes[1:], RULES.items(), strict=True):
        share = np.asarray(shares(rule, *map(jnp.asarray, (fitness, descriptor, places))))
        image = ax.imshow(
            share.reshape(RESOLUTION, RESOLUTION), origin="lower", extent=(0, 1, 0, 1), cmap="magma", vmin=0, vmax=1
        )
        ax.scatter(*descriptor.T, s=6, color="white", edgecolors="black", linewidths=0.4)
        ax.set_title(f"{catalogue.RULES[name].title}\n{name}", fontsize=10)
    bar = figure.colorbar(image, ax=axes, shrink=0.6, pad=0.01)
    bar.set_label("share of the population that a newcomer outranks")
    return figure


def first() -> bytes:
    """The picture that the first example of README saves."""
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert code is not None
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        exec(compile(code[1], "README.md", "exec"), {})
        (picture,) = pathlib.Path(folder).glob("*.png")
        return picture.read_bytes()


def of_results(folder: str, name: str) -> Figure | bytes:
    return draw.make(name, Folder(RESULTS / folder))


def community() -> Figure:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import community as bench

    def piece(task: str, name: str):
        return json.loads((RESULTS / "community" / f"{task}-{name}.json").read_text())

    return bench.figure({task: {name: piece(task, name) for name in bench.ALGORITHMS} for task in bench.DOMAINS})


PICTURES = {
    "rules-keep.png": lambda: whom(*population()),
    "rules-landscapes.png": lambda: landscapes(*population()),
    "first.png": first,
    "pareto.png": functools.partial(of_results, "paper", "pareto"),
    "grid.png": functools.partial(of_results, "paper", "grid"),
    "landscape.gif": functools.partial(of_results, "paper", "animation"),
    "robots.png": functools.partial(of_results, "robots", "robots"),
    "robots-aggregate.png": functools.partial(of_results, "robots", "robots-aggregate"),
    "robots-longer.png": functools.partial(of_results, "robots-longer", "robots"),
    "community.png": community,
}


def save(picture: Figure | bytes, path: pathlib.Path) -> None:
    """With few colours, for a small file."""
    if path.suffix == ".gif":
        assert isinstance(picture, bytes)
        path.write_bytes(picture)
        return
    buffer = io.BytesIO(picture) if isinstance(picture, bytes) else io.BytesIO()
    if isinstance(picture, Figure):
        picture.savefig(buffer, dpi=max(picture.dpi, 120))
    image = Image.open(buffer).convert("RGB").quantize(160, dither=Image.Dither.NONE)
    image.save(path, optimize=True)


def main(names: list[str]) -> None:
    if strange := [name for name in names if name not in PICTURES]:
        raise SystemExit(f"No picture {strange[0]!r}; there are: {', '.join(PICTURES)}.")
    for name in names or PICTURES:
        save(PICTURES[name](), IMAGES / name)
        print(f"Wrote {os.path.relpath(IMAGES / name)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
