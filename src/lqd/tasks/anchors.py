"""What random search reaches: the anchors between which fitness is normalised.

`f_rand` is the median, over repeats, of the best noiseless fitness among as many uniform points as the algorithms
may evaluate; `f_worst` the lowest fitness seen meanwhile, the zero of the offset QD score. What is infeasible (fitness
not finite) counts nowhere.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from lqd.errors import InvalidInput
from lqd.tasks.task import Box, TaskBatch
from lqd.types import pytree

BLOCK = 1024


@pytree
class Anchors:
    f_rand: Float[Array, " K"]
    f_worst: Float[Array, " K"]


def random_search(key: Key[Array, ""], tasks: TaskBatch, num_evaluations: int, num_repeats: int = 7) -> Anchors:
    """Anchors of every task in a batch, at a budget of `num_evaluations`; another budget compiles nothing new."""
    if tasks.bounds is None:
        raise InvalidInput("random search needs bounds, and these tasks have none.")
    return _random_search(key, tasks, tasks.bounds, jnp.int32(num_evaluations), num_repeats)


@functools.partial(jax.jit, static_argnums=4)
def _random_search(key, tasks: TaskBatch, box: Box, num_evaluations: Int[Array, ""], num_repeats: int) -> Anchors:
    low, high = box
    num_blocks = (num_evaluations + BLOCK - 1) // BLOCK

    def repeat(number):
        def block(i, extremes):
            best, worst = extremes
            key_block = jax.random.fold_in(jax.random.fold_in(key, number), i)
            uniform = jax.random.uniform(key_block, (tasks.num_tasks, BLOCK, tasks.dim), low.dtype)
            fitness = tasks.noiseless(low + uniform * (high - low))
            counts = (i * BLOCK + jnp.arange(BLOCK) < num_evaluations) & jnp.isfinite(fitness)
            best = jnp.maximum(best, jnp.max(jnp.where(counts, fitness, -jnp.inf), axis=1))
            return best, jnp.minimum(worst, jnp.min(jnp.where(counts, fitness, jnp.inf), axis=1))

        extreme = jnp.full(tasks.num_tasks, jnp.inf, low.dtype)
        return jax.lax.fori_loop(0, num_blocks, block, (-extreme, extreme))

    best, worst = jax.lax.map(repeat, jnp.arange(num_repeats))
    return Anchors(jnp.median(best, axis=0), jnp.min(worst, axis=0))
