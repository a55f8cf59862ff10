"""`lqd show RUN`: policies that a run on a robot found, to be watched in a browser.

The best, and those that differ most from the ones shown before (in descriptors, relative to their ranges). The viewer
is brax's: the pages hold the movements, and load the viewer itself from the network when they are opened.
"""

import html
import pathlib

import jax
import numpy as np

from lqd import figures, manifest, tasks
from lqd.checkpoint import understood, write_bytes
from lqd.checks import whole
from lqd.errors import InvalidInput
from lqd.result import Elites, Result
from lqd.tasks.brax import RobotTask, act, leniently


def write(run: pathlib.Path, seed: int | None = None, num: int = 4) -> pathlib.Path:
    """RUN/show/index.html, with a page for each policy beside it."""
    whole("num", num, 1)
    path = run / "manifest.json"
    content = manifest.read(path, "a run (lqd run --out)")
    with understood(path):
        config = content["config"]
        name, first, length = config["task"], whole("seed", config["seed"], 0), config.get("episode_length")
    if not str(name).startswith("brax/"):
        raise InvalidInput(f"{run} is a run on {name!r}, and there is nothing to watch; lqd show is for brax/...")
    settings = {} if length is None else {"episode_length": length}
    task = tasks.make(name, **settings)
    assert isinstance(task, RobotTask)
    result = Result.load(run / f"result_{first if seed is None else seed}.safetensors")
    if not len(result.population):
        raise InvalidInput(f"{run}: the population is empty.")
    chosen = different(result.population, task, num)
    folder = run / "show"
    for place, index in enumerate(chosen):
        write_bytes(folder / f"policy_{place + 1}.html", viewer(task, result.x[index]).encode())
    figures.save(_map(result, chosen, task), folder / "map.png")
    page = _page(result, chosen, f"{name}, rule {result.info.get('rule')}, {result.num_evaluations:,} evaluations")
    write_bytes(folder / "index.html", page.encode())
    return folder / "index.html"


def different(population: Elites, task: RobotTask, num: int) -> list[int]:
    """The best, and then always the one that is farthest from all chosen before."""
    low, high = map(np.asarray, task.descriptor_bounds)
    place = (population.descriptor - low) / (high - low)
    chosen = [int(np.argmax(population.fitness))]
    while len(chosen) < min(num, len(place)):
        distance = np.linalg.norm(place[:, None] - place[chosen], axis=-1).min(axis=1)
        if distance.max() == 0:
            break
        chosen.append(int(distance.argmax()))
    return chosen


def trajectory(task: RobotTask, x: np.ndarray) -> list:
    """The states of the simulator, up to the first `done`."""
    env = task.simulator

    def advance(state, _):
        state = env.step(state, act(jax.numpy.asarray(x), state.obs, env.action_size))
        return state, (state.pipeline_state, state.done)

    with leniently():
        state = jax.jit(env.reset)(jax.random.key(0))
        _, (states, done) = jax.jit(lambda s: jax.lax.scan(advance, s, None, task.episode_length))(state)
    num = int(np.argmax(done)) + 1 if np.any(done) else len(done)
    states = jax.device_get(states)
    return [state.pipeline_state, *(jax.tree.map(lambda leaf, i=i: leaf[i], states) for i in range(num))]


def viewer(task: RobotTask, x: np.ndarray) -> str:
    env = task.simulator
    with leniently():
        from brax.io import html as renderer
    return renderer.render(env.sys.tree_replace({"opt.timestep": env.dt}), trajectory(task, x), height=420, colab=False)


def _map(result: Result, chosen: list[int], task: RobotTask):
    figure = figures.Figure(figsize=(5, 4.2), layout="constrained")
    ax = figure.subplots()
    points = figures.descriptor_map(ax, result.population, box=[np.asarray(end) for end in task.descriptor_bounds])
    figure.colorbar(points, ax=ax, label="fitness")
    for place, index in enumerate(chosen):
        x, y = result.descriptor[index]
        ax.annotate(str(place + 1), (x, y), xytext=(5, 5), textcoords="offset points", fontsize=11, weight="bold")
        ax.scatter([x], [y], s=60, facecolors="none", edgecolors="#D55E00")
    first, second = task.descriptor_names
    ax.set(xlabel=first, ylabel=second)
    return figure


def _page(result: Result, chosen: list[int], title: str) -> str:
    policies = "".join(
        f"<section><h2>{place + 1}: fitness {result.fitness[index]:.4g}, "
        f"descriptor {', '.join(f'{value:.3g}' for value in result.descriptor[index])}</h2>"
        f'<iframe src="policy_{place + 1}.html" width="640" height="440"></iframe></section>'
        for place, index in enumerate(chosen)
    )
    style = "body{font:15px system-ui;margin:24px}section{display:inline-block;margin-right:20px}h2{font-size:15px}"
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{style}</style></head><body><h1>{html.escape(title)}</h1><p>The viewer is loaded from the network.</p>"
        f'<img src="map.png" width="560" alt="the population in descriptor space"><div>{policies}</div></body></html>'
    )
