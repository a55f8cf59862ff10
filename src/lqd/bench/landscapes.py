"""`lqd bench --suite landscape`: the score that a newcomer of median fitness would get, anywhere in descriptor space.

Populations evolve under each rule on Rastrigin (dimension 16, no noise, no rotation, as in the paper's figure); at
several generations a newcomer is put at every point of a square of descriptors, and the rule scores all. What is kept
is its score and the share of the population that it outranks, which means the same for every rule and generation.
"""

import dataclasses
import functools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lqd.bench import runner, settings
from lqd.bench.plan import OnPiece
from lqd.rules import protocol

RULES = ("lqd-n", "lqd-f", "lqd-fn", "dns", "me")
FUNCTION, DIM = "rastrigin", 16
REACH = 1.25  # the square, relative to the farthest individual


@dataclasses.dataclass(frozen=True)
class Size:
    """How long the populations evolve, how often they are looked at, and points along a side of the square."""

    num_generations: int
    num_frames: int
    resolution: int


def run(size: Size, folder: pathlib.Path, progress: OnPiece = lambda *_: None) -> dict[str, Any]:
    """Computes the missing RULE.safetensors files: `generation`, `fitness`, `descriptor`, `axis`, `score`, `share`."""
    setting = settings.Setting(
        functions=(FUNCTION,), num_seeds=2, num_generations=size.num_generations, min_dim=DIM, max_dim=DIM,
        rotate=False, num_rows=size.num_frames,
    )  # fmt: skip
    bench = runner.Bench(setting, folder)
    for i, name in enumerate(RULES):
        progress(f"landscape: {name}", i, len(RULES))
        bench.piece(name, {"resolution": size.resolution}, functools.partial(_compute, bench, size))
    progress("done", len(RULES), len(RULES))
    return {"setting": dataclasses.asdict(setting), "size": dataclasses.asdict(size), "pieces": bench.made}


def _compute(bench: runner.Bench, size: Size, rule: protocol.Rule) -> dict[str, np.ndarray]:
    fitness, descriptor = _frames(bench.setting.sizes, rule, bench.keys, bench.field, bench.setting.steps)
    fitness, descriptor = fitness[:, 0], descriptor[:, 0]  # the first seed
    known = np.asarray(descriptor)[np.asarray(fitness) > -np.inf]
    axis = jnp.linspace(-1, 1, size.resolution) * REACH * np.abs(known).max()
    score, share = _landscapes(rule, fitness, descriptor, axis)
    found = {"fitness": fitness, "descriptor": descriptor, "axis": axis, "score": score, "share": share}
    return {name: np.asarray(value) for name, value in found.items()} | {"generation": bench.setting.rows}


@functools.partial(jax.jit, static_argnums=0)
def _frames(sizes: tuple[int, int], rule: protocol.Rule, keys, field: settings.Field, steps):
    """Fitness (frames, tasks, N) and descriptors of the populations after each of the steps."""

    def look(state):
        return state.population.fitness, state.population.descriptor

    return runner.evolve(sizes, None, rule, keys, field, steps, look)[1]


@jax.jit
def _landscapes(rule: protocol.Rule, fitness: Float[Array, "T N"], descriptor: Float[Array, "T N 2"], axis):
    """Score of the newcomer and the share it outranks, (frames, R, R): rows are the second descriptor."""
    rule = protocol.ready(rule)
    key = jax.random.key(0)  # none of these rules is random

    def at(fitness, descriptor, place):
        filled = fitness > -jnp.inf
        median = jnp.nanmedian(jnp.where(filled, fitness, jnp.nan))
        union = jnp.append(fitness, median), jnp.concatenate([descriptor, place[None]])
        scores = rule(key, *union)
        beaten = filled & (scores[:-1] < scores[-1])
        return scores[-1], jnp.sum(beaten.astype(jnp.float32)) / jnp.sum(filled.astype(jnp.float32))

    second, first = jnp.meshgrid(axis, axis, indexing="ij")
    places = jnp.stack([first.ravel(), second.ravel()], axis=1)

    def frame(given):
        return jax.lax.map(lambda place: at(given[0], given[1], place), places, batch_size=256)

    score, share = jax.lax.map(frame, (fitness, descriptor))
    shape = (len(fitness), len(axis), len(axis))
    return score.reshape(shape), share.reshape(shape)
