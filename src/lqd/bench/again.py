"""The best solution of a run and some of its last population, evaluated again, to see what they are worth without luck.

A simulator begins each episode with a random reset, and the highest of thousands of such returns is also the luckiest
one. Results on robots are therefore measured after the run, on resets that it never saw: the mean return and
the mean descriptor of the run's best solution and of `NUM_ELITES` individuals of its last population, drawn at random
from the filled slots (the fittest would be the luckiest again).

Descriptors are those of the task, also of a rule that was shown others.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from lqd.evolution import loop, metrics
from lqd.tasks.task import TaskBatch
from lqd.types import Population

NUM_ELITES = 64
STREAM = 4  # of a run's random numbers; the loop's are 0 to 3
MEASURES = ("best_again", "elites_again", "novelty_again", "num_failed_again")  # one number for each run


@functools.partial(jax.jit, static_argnums=2)
def measured(tasks: TaskBatch, state: loop.State, num_resets: int) -> dict[str, Float[Array, "*any K"]]:
    """Of every run: `MEASURES`, and `again.*`: the best's genotype and all means that these are made of.

    An episode that is not finite is left out and counted; an individual with no other, or an empty slot, has fitness
    `-inf`.
    """
    x, is_there = jax.vmap(_drawn)(_keys(state, 0), state.population)
    x = jnp.concatenate([state.best.x, x], axis=1)
    resets = jnp.stack([_keys(state, 1 + reset) for reset in range(num_resets)])
    found = jax.vmap(tasks.evaluate, in_axes=(0, None))(resets, x)
    good = jnp.isfinite(found.fitness) & jnp.all(jnp.isfinite(found.descriptor), axis=-1)
    num_good = jnp.sum(good.astype(loop.DTYPE), axis=0)

    def mean(values, good):
        total = jnp.sum(jnp.where(good, values.astype(loop.DTYPE), 0.0), axis=0)
        return total / jnp.maximum(num_good, 1.0).reshape(num_good.shape + (1,) * (total.ndim - num_good.ndim))

    is_there = jnp.concatenate([jnp.ones_like(is_there[:, :1]), is_there], axis=1)
    fitness = jnp.where(is_there & (num_good > 0), mean(found.fitness, good), -jnp.inf)
    descriptor = mean(found.descriptor, good[..., None])
    of_elites = jax.vmap(metrics.measure)(fitness[:, 1:], descriptor[:, 1:])
    failed = jnp.sum((~good & is_there).astype(loop.DTYPE), axis=(0, 2))
    return {
        "best_again": fitness[:, 0],
        "elites_again": of_elites["mean_fitness"],
        "novelty_again": of_elites["novelty"],
        "num_failed_again": failed,
        "again.best.x": state.best.x[:, 0].T,
        "again.best.descriptor": descriptor[:, 0].T,
        "again.elites.fitness": fitness[:, 1:].T,
        "again.elites.descriptor": descriptor[:, 1:].T,
    }


def _drawn(key, population: Population):
    """Genotypes of as many filled slots as there are, at most `NUM_ELITES`, and which of them are filled."""
    lots = jax.random.uniform(key, population.fitness.shape, loop.DTYPE)
    lot, slot = jax.lax.top_k(jnp.where(population.filled, lots, -1.0), min(NUM_ELITES, len(lots)))
    return population.x[slot], lot >= 0


def _keys(state: loop.State, number: int):
    return jax.vmap(lambda key: jax.random.fold_in(jax.random.fold_in(key, STREAM), number))(state.key)
