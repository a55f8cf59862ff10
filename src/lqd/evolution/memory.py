"""What was evaluated lately, for variations that learn from it: with it they guess what a child would be like."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from lqd.types import pytree

SIZE = 2048  # solutions whose fitness and descriptor are kept
KNOWN = 256  # of these, the last ones, whose genotypes are kept too


@pytree
class Memory:
    """The last solutions evaluated on one task; a new one takes the place of the oldest. Failed ones have `-inf`."""

    x: Float[Array, "*K n"]
    fitness: Float[Array, " M"]
    descriptor: Float[Array, "M D"]
    num: Int[Array, ""]  # ever put in

    @classmethod
    def empty(cls, dim: int, descriptor_dim: int, dtype) -> "Memory":
        return cls(
            jnp.zeros((KNOWN, dim), dtype),
            jnp.full(SIZE, -jnp.inf, dtype),
            jnp.zeros((SIZE, descriptor_dim), dtype),
            jnp.int32(0),
        )

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
