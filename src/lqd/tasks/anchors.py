"""What random search reaches: the anchors between which fitness is normalised.

`f_rand` is the median, over repeats, of the best noiseless fitness among as many uniform points as the algorithms
may evaluate; `f_worst` the lowest fitness seen meanwhile, the zero of the offset QD score.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from lqd.errors import InvalidInput
from lqd.tasks.task import Box, TaskBatch
from lqd.types import pytree

BLOCK = 1024


@pytree
class Anchors:
    f_rand: Float[Array, " K"]
    f_worst: Float[Array, " K"]


def random_search(key: Key[Array, ""], tasks: TaskBatch, num_evaluations: int, num_repeats: int = 15) -> Anchors:
    """Anchors of every task in a batch, at a budget of `num_evaluations`."""
    if tasks.bounds is None:
        raise InvalidInput("random search needs bounds, and these tasks have none.")
    return _random_search(key, tasks, tasks.bounds, num_evaluations, num_repeats)


@functools.partial(jax.jit, static_argnums=(3, 4))
def _random_search(key, tasks: TaskBatch, box: Box, num_evaluations: int, num_repeats: int) -> Anchors:
    low, high = box
    num_blocks = -(-num_evaluations // BLOCK)
    beyond = jnp.arange(num_blocks * BLOCK).reshape(num_blocks, BLOCK) >= num_evaluations

    def block(extremes, counted):
        number, beyond = counted
        uniform = jax.random.uniform(jax.random.fold_in(key, number), (tasks.num_tasks, BLOCK, tasks.dim), low.dtype)
        fitness = tasks.noiseless(low + uniform * (high - low))
        best = jnp.max(jnp.where(beyond, -jnp.inf, fitness), axis=1)
        return (jnp.maximum(extremes[0], best), jnp.minimum(extremes[1], jnp.min(fitness, axis=1))), None

    def repeat(number):
        start = (jnp.full(tasks.num_tasks, -jnp.inf, low.dtype), jnp.full(tasks.num_tasks, jnp.inf, low.dtype))
        return jax.lax.scan(block, start, (number * num_blocks + jnp.arange(num_blocks), beyond))[0]

    best, worst = jax.lax.map(repeat, jnp.arange(num_repeats))
    return Anchors(jnp.median(best, axis=0), jnp.min(worst, axis=0))
