"""Recent evaluations, for variations that predict from them what a child would be like."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from lqd.types import Population, pytree

SIZE = 2048  # solutions whose fitness and descriptor are kept
KNOWN = 256  # of these, the last ones, whose genotypes are kept too


@pytree
class Memory:
    """The last solutions evaluated on one task; a new one takes the place of the oldest. Failed ones have `-inf`."""

    x: Float[Array, "*K n"]
    fitness: Float[Array, " M"]
    descriptor: Float[Array, "M D"]
    num: Int[Array, ""]  # ever put in

    def insert(self, x, fitness, descriptor, num_new: Int[Array, ""]) -> "Memory":
        """The first `num_new` of these; the others fill up a batch."""
        row = jnp.arange(len(x), dtype=jnp.int32)

        def put(values, new):
            size = len(values)
            fits = (row < num_new) & (row >= num_new - size)
            return values.at[jnp.where(fits, (self.num + row) % size, size)].set(new, mode="drop")

        usable = (fitness > -jnp.inf)[:, None] & jnp.isfinite(descriptor)
        return Memory(
            put(self.x, x),
            put(self.fitness, fitness),
            put(self.descriptor, jnp.where(usable, descriptor, 0.0)),
            self.num + num_new,
        )

    @property
    def filled(self) -> Bool[Array, " M"]:
        """Evaluated, and not failed."""
        return self.fitness > -jnp.inf

    def known(self) -> tuple[Bool[Array, " K"], Int[Array, " K"]]:
        """Of each genotype that is kept: whether there is one, and where its fitness and descriptor are."""
        place = jnp.arange(KNOWN, dtype=jnp.int32)
        last = self.num - 1
        number = last - (last - place) % KNOWN  # the last one that was put in this place
        return number >= 0, number % SIZE


def empty(like: Population) -> Memory:
    """Of each task (K, ...), for such solutions."""
    num_tasks, dim, descriptor_dim = len(like.x), like.x.shape[-1], like.descriptor.shape[-1]
    return Memory(
        jnp.zeros((num_tasks, KNOWN, dim), like.x.dtype),
        jnp.full((num_tasks, SIZE), -jnp.inf, like.fitness.dtype),
        jnp.zeros((num_tasks, SIZE, descriptor_dim), like.descriptor.dtype),
        jnp.zeros(num_tasks, jnp.int32),
    )


def remembered(memory: Memory | None, newcomers: Population, num_new: Int[Array, ""] | None) -> Memory | None:
    """With the first `num_new` newcomers (by default all) of each task (K, B, ...), where there is a memory."""
    if memory is None:
        return None
    num_new = jnp.int32(newcomers.x.shape[1]) if num_new is None else num_new
    put_in = jax.vmap(Memory.insert, in_axes=(0, 0, 0, 0, None))
    return put_in(memory, newcomers.x, newcomers.fitness, newcomers.descriptor, num_new)
