"""Exact rescaling, so that 1e30 neither overflows a square nor loses a digit; and big tables by blocks."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

# Entries of a table of pairs held at once: 4 MiB of float32 stay in a CPU's cache. Learned rule, 1,280 individuals:
# 14 ms by such blocks, 222 ms in one piece.
MAX_TABLE = 2**20


def unit_scale(values: Float[Array, "..."]) -> tuple[Float[Array, "..."], Int[Array, ""]]:
    """Values divided by the power of two that brings the largest magnitude below 1, and its exponent.

    A power of two, not the magnitude itself: the division is then exact and keeps every order and every tie.
    """
    _, exponent = jnp.frexp(jnp.max(jnp.abs(values)))
    return jnp.ldexp(values, -exponent), exponent


def square_scale(values: Float[Array, "..."]) -> Float[Array, ""]:
    """The power of two to multiply by, so that squares neither overflow nor vanish; mostly 1.

    No more than needed: scaled to one far outlier, the differences between all others would be lost.
    """
    _, exponent = jnp.frexp(jnp.max(jnp.abs(values)))
    return jnp.ldexp(jnp.ones((), values.dtype), jnp.clip(exponent, -40, 60) - exponent)


def by_blocks(function: Callable[[Any], Any], num: int, width: int) -> Any:
    """`function(rows)` for all `num` rows, by blocks small enough if each row needs `width` entries of a table.

    `rows` is an index array, or a slice if one block is enough; what comes back has the rows as leading axis.
    """
    num_blocks = -(-(num * width) // MAX_TABLE)
    if num_blocks <= 1:
        return function(slice(None))
    block = -(-num // num_blocks)
    num_blocks = -(-num // block)
    rows = jnp.minimum(jnp.arange(num_blocks * block), num - 1).reshape(num_blocks, block)  # the last one repeats
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:num], jax.lax.map(function, rows))
