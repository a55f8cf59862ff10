"""The course of a whole run, for objectives that look at more than its final population.

Beside the population a passive archive is kept: the best noiseless fitness ever seen in each of many cells, which are
laid over the range of each task's descriptors. For one or two descriptors it is a grid, for more a tessellation (CVT);
what is outside the range counts in the cell at the edge. At evenly spaced moments, the last one at the end, its QD
score and coverage are recorded, and the best fitness so far.

Watching changes no decision: the run is the same, to the last bit, as when it is not watched.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lqd.evolution import archive as passive
from lqd.evolution import loop
from lqd.meta.family import TrainingTasks
from lqd.rules import cvt
from lqd.rules.protocol import Rule
from lqd.types import Population, pytree

NUM_LOOKS = 16
Box = tuple[Float[Array, "K D"], Float[Array, "K D"]]
Seen = dict[str, Float[Array, "K ..."]]


@pytree
class Watched:
    """A run, and what is kept beside it."""

    run: loop.State
    archive: Float[Array, "K C"]
    best: Float[Array, " K"]


def follow(
    rule: Rule,
    keys: Key[Array, " K"],
    tasks: TrainingTasks,
    operator,
    sizes: tuple[int, int],
    num_generations: Int[Array, ""],
    num_cells: int,
    box: Box,
    f_worst: Float[Array, " K"] | None,
) -> tuple[Population, Seen]:
    """The final population of a run with these sizes (population, batch), and what was seen during it."""
    population_size, batch_size = sizes
    enter = functools.partial(_enter, tasks, num_cells, box)

    def step(watched: Watched) -> Watched:
        bred, evaluation = loop.propose(watched.run, tasks, operator, batch_size)
        run = loop.absorb(watched.run, watched.run.generation, rule, bred.x, evaluation, traits=bred.traits)
        return Watched(run, *enter(watched.archive, watched.best, bred.x, evaluation))

    def look(watched: Watched) -> Seen:
        row = {"coverage_over_time": jax.vmap(passive.coverage)(watched.archive), "best_over_time": watched.best}
        if f_worst is not None:
            row["qd_score_over_time"] = jax.vmap(passive.offset_qd_score)(watched.archive, f_worst)
        return row

    run = loop.begin(keys, tasks, rule, population_size, operator=operator)
    nothing = jnp.full((tasks.num_tasks, count(num_cells, tasks.descriptor_dim)), -jnp.inf, loop.DTYPE)
    state = Watched(run, *enter(nothing, nothing[:, 0], run.population.x, run.population))
    until = num_generations * jnp.arange(NUM_LOOKS + 1, dtype=jnp.int32) // NUM_LOOKS
    state, seen = loop.evolve(step, state, jnp.diff(until), look)
    found = {name: jnp.moveaxis(value, 0, 1) for name, value in seen.items()} | {"archive": state.archive}
    if tasks.f_opt is not None:
        found["regret"] = tasks.f_opt.astype(loop.DTYPE) - state.best
    return state.run.population, found


def _enter(tasks: TrainingTasks, num_cells: int, box: Box, archive, best, x: Float[Array, "K B n"], evaluated):
    """Adds individuals to the archive and the best fitness; one that failed counts nowhere."""
    fitness = tasks.noiseless(x).astype(loop.DTYPE)
    whole = jnp.isfinite(evaluated.fitness) & jnp.all(jnp.isfinite(evaluated.descriptor), axis=-1)
    fitness = jnp.where(whole & jnp.isfinite(fitness), fitness, -jnp.inf)
    low, high = (end.astype(loop.DTYPE)[:, None] for end in box)
    share = (evaluated.descriptor.astype(loop.DTYPE) - low) / jnp.where(high > low, high - low, 1.0)
    cell = jax.vmap(functools.partial(place, num_cells))(share)
    archive = jax.vmap(lambda fitness, cell, newcomers: fitness.at[cell].max(newcomers))(archive, cell, fitness)
    return archive, jnp.maximum(best, jnp.max(fitness, axis=1))


def count(num_cells: int, descriptor_dim: int) -> int:
    """How many cells there are: a grid has as many rows as columns."""
    return round(num_cells**0.5) ** 2 if descriptor_dim == 2 else num_cells


def place(num_cells: int, share: Float[Array, "B D"]) -> Int[Array, " B"]:
    """The cells of descriptors that are given as shares of their range."""
    num_dims = share.shape[-1]
    if num_dims > 2:
        with jax.ensure_compile_time_eval():
            centroids = np.asarray(cvt.centroids(num_cells, np.zeros(num_dims), np.ones(num_dims)))
        return cvt.nearest(share, jnp.asarray(centroids))
    side = num_cells if num_dims == 1 else round(num_cells**0.5)
    known = jnp.where(jnp.isfinite(share), share, 0.0)
    row = jnp.floor(jnp.clip(known, 0.0, 1.0) * side).astype(jnp.int32)
    row = jnp.minimum(row, side - 1)
    return row[:, 0] if num_dims == 1 else row[:, 0] * side + row[:, 1]
