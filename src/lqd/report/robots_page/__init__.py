"""`lqd show RUN`: policies that a run on a robot found, to be watched in a browser.

The best, and those that differ most from the ones shown before (in descriptors, relative to their ranges). The page
holds the movements and draws them itself, so it needs nothing else; beside it is a page for each policy with brax's own
viewer, which those load from the network when they are opened.
"""

import base64
import html
import importlib.resources
import io
import json
import pathlib
from typing import Any, NamedTuple, cast

import jax
import numpy as np
from matplotlib.figure import Figure

from lqd import tasks
from lqd.checks import whole
from lqd.errors import InvalidInput
from lqd.io import manifest
from lqd.io.files import understood, write_bytes
from lqd.report import run_figures, template
from lqd.search.result import Elites, Result
from lqd.tasks.brax import ROBOTS, RobotTask, act, contacts, leniently

TEMPLATE = importlib.resources.files("lqd") / "report" / "robots_page" / "page.html"
FRAMES_PER_S = 30
PLANE, SPHERE = 0, 2  # kinds of MuJoCo's shapes


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
    task = cast(RobotTask, tasks.make(name, **settings))  # by its name
    result = Result.load(run / f"result_{first if seed is None else seed}.safetensors")
    if not len(result.population):
        raise InvalidInput(f"{run}: the population is empty.")
    chosen = different(result.population, task, num)
    folder, movements = run / "show", []
    for place, (index, episode) in enumerate(zip(chosen, episodes(task, result.x[chosen]), strict=True)):
        write_bytes(folder / f"policy_{place + 1}.html", _viewer(task, episode).encode())
        described = zip(task.descriptor_names, result.descriptor[index], strict=True)
        about = [f"fitness {number(result.fitness[index])}", *(f"{name}: {value:.2f}" for name, value in described)]
        movements.append(movement(task, episode, ", ".join(about)))
    picture = io.BytesIO()
    _map(result, chosen, task).savefig(picture, format="png", dpi=160)
    title = f"{name}, rule {result.info.get('rule')}, {result.num_evaluations:,} evaluations"
    write_bytes(folder / "index.html", page(title, movements, picture.getvalue()).encode())
    return folder / "index.html"


def number(value: float) -> str:
    """-110, 12,300, 0.457: three digits, more only before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


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


class Episode(NamedTuple):
    """The simulator's states until the first `done`, and which links touch something then: (times, links)."""

    states: Any
    touching: np.ndarray
    fell: bool


def episodes(task: RobotTask, x: np.ndarray) -> list[Episode]:
    """What each policy does from the position that scores begin with."""
    env = task.simulator
    links = tuple(range(env.sys.num_links()))

    def look(state):
        return state.pipeline_state, jax.numpy.stack(contacts(state.pipeline_state.contact, links)), state.done

    @jax.jit
    def run(x):
        def advance(state, _):
            state = env.step(state, act(x, state.obs, env.action_size))
            return state, look(state)

        begin = env.reset(jax.random.key(0))
        _, rest = jax.lax.scan(advance, begin, None, task.episode_length)
        return jax.tree.map(lambda first, rest: jax.numpy.concatenate([first[None], rest]), look(begin), rest)

    def episode(x):
        states, touching, done = jax.device_get(run(jax.numpy.asarray(x)))
        fell = bool(np.any(done))
        num = int(np.argmax(done)) + 1 if fell else len(done)
        return Episode(jax.tree.map(lambda leaf: leaf[:num], states), touching[:num] > 0, fell)

    with leniently():
        return [episode(one) for one in x]


def movement(task: RobotTask, episode: Episode, title: str) -> dict[str, Any]:
    """What the page needs to draw it: where both ends of every capsule are, at most so many times a second."""
    env = task.simulator
    sys, step = env.sys, max(1, round(1 / (FRAMES_PER_S * float(env.dt))))
    num = len(episode.touching)
    times = np.unique([*range(0, num, step), num - 1])
    body = np.flatnonzero((np.asarray(sys.geom_type) != PLANE) & (np.asarray(sys.geom_bodyid) > 0))
    link, size = np.asarray(sys.geom_bodyid)[body] - 1, np.asarray(sys.geom_size)[body]
    half = np.where(np.asarray(sys.geom_type)[body] == SPHERE, 0.0, size[:, 1])
    axis = _rotated(np.asarray(sys.geom_quat)[body], np.asarray([0.0, 0.0, 1.0])) * half[:, None]
    ends = np.asarray(sys.geom_pos)[body][:, None] + np.stack([-axis, axis], axis=1)  # in the frame of the link
    pos, rot = (np.asarray(part)[times][:, link] for part in (episode.states.x.pos, episode.states.x.rot))
    points = pos[:, :, None] + _rotated(rot[:, :, None], ends)
    return {
        "title": title,
        "dt": float(env.dt),
        "times": times.tolist(),
        "fell": episode.fell,
        "planar": ROBOTS[task.robot].environment != "ant",
        "radius": [round(float(radius), 4) for radius in size[:, 0]],
        "part": [_branch(sys.link_parents, int(one)) for one in link],
        "points": packed(points - pos[:, :1, None]),
        "root": packed(pos[:, 0]),
        "touching": packed(episode.touching[times][:, link]),
    }


def _rotated(quaternion: np.ndarray, vector: np.ndarray) -> np.ndarray:
    w, u = quaternion[..., :1], quaternion[..., 1:]
    u = np.broadcast_to(u, np.broadcast_shapes(u.shape, vector.shape))
    turned = np.cross(u, vector)
    return vector + 2 * (w * turned + np.cross(u, turned))


def _branch(parents, link: int) -> int:
    """0 for the trunk, then a number for each leg."""
    legs = [one for one, parent in enumerate(parents) if parent == 0]
    while link != 0 and link not in legs:
        link = int(parents[link])
    return legs.index(link) + 1 if link in legs else 0


def packed(values: np.ndarray) -> str:
    """An array as the page reads it."""
    return base64.b64encode(values.astype("u1" if values.dtype == bool else "<f4").tobytes()).decode()


def _viewer(task: RobotTask, episode: Episode) -> str:
    env = task.simulator
    with leniently():
        from brax.io import html as renderer
    states = [jax.tree.map(lambda leaf, i=i: leaf[i], episode.states) for i in range(len(episode.touching))]
    return renderer.render(env.sys.tree_replace({"opt.timestep": env.dt}), states, height=420, colab=False)


def _map(result: Result, chosen: list[int], task: RobotTask):
    figure = Figure(figsize=(5, 4.2), layout="constrained")
    ax = figure.subplots()
    points = run_figures.descriptor_map(ax, result.population, box=[np.asarray(end) for end in task.descriptor_bounds])
    figure.colorbar(points, ax=ax, label="fitness")
    for place, index in enumerate(chosen):
        x, y = result.descriptor[index]
        ax.annotate(str(place + 1), (x, y), xytext=(5, 5), textcoords="offset points", fontsize=11, weight="bold")
        ax.scatter([x], [y], s=60, facecolors="none", edgecolors="#D55E00")
    first, second = task.descriptor_names
    ax.set(xlabel=first, ylabel=second)
    return figure


def page(title: str, movements: list[dict[str, Any]], picture: bytes) -> str:
    """One file that needs nothing else."""
    data = json.dumps(movements).replace("<", "\\u003c")  # no tag can end the script
    parts = {"title": html.escape(title), "map": base64.b64encode(picture).decode(), "movements": data}
    return template.fill(TEMPLATE.read_text(encoding="utf-8"), parts)
