"""What our emitters for other libraries share: they make children of elites that the other library keeps.

Their archives carry no traits and are of any size. So a sample of the elites, at most `PARENTS`, is the population that
`Spread` varies, in slots of which the first ones are filled: one shape, and one program.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from lqd.evolution import loop, memory
from lqd.evolution.memory import Memory
from lqd.evolution.variation import Spread, Start
from lqd.tasks.task import Box
from lqd.types import Population

PARENTS = 128  # at most, for one batch
BATCH_SIZE = 32


def no_memory(dim: int, descriptor_dim: int) -> Memory:
    """An empty memory for solutions of this size."""
    x, fitness, descriptor = (jnp.zeros((1, 1, *shape), jnp.float32) for shape in ((dim,), (), (descriptor_dim,)))
    like = Population(x, fitness, descriptor)
    return jax.tree.map(lambda leaf: leaf[0], memory.empty(like))


def insert(
    known: Memory,
    x: Float[Array, "B n"],
    fitness: Float[Array, " B"],
    descriptor: Float[Array, "B D"],
    num_new: Int[Array, ""],
) -> Memory:
    """The memory with the first `num_new` of these; what is not finite counts as failed."""
    usable = jnp.isfinite(fitness) & jnp.all(jnp.isfinite(descriptor), axis=1)
    return known.insert(x, jnp.where(usable, fitness, -jnp.inf), descriptor, num_new)


def children(
    key: Key[Array, ""],
    variation: Spread,
    x: Float[Array, "P n"],
    num: Int[Array, ""],
    box: Box | None,
    start: Start,
    batch_size: int,
    known: Memory,
) -> Float[Array, "B n"]:
    """Children of the first `num` of `x`; initial solutions if there are none."""
    is_there = jnp.arange(len(x)) < num
    fitness = jnp.where(is_there, 0.0, -jnp.inf).astype(jnp.float32)
    elites = Population(x, fitness, jnp.zeros((len(x), known.descriptor.shape[1]), jnp.float32))
    return jax.lax.cond(
        num > 0,
        lambda: variation.children(key, elites, box, start, batch_size, memory=known).x,
        lambda: loop.start_points(key[None], batch_size, x.shape[1], box, start)[0],
    )
