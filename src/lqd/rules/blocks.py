"""Tables of all pairs of individuals by blocks of rows, so that they stay in a cache and in memory."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

# Entries of a table of pairs held at once: 4 MiB of float32 stay in a CPU's cache. Learned rule, 1,280 individuals:
# 14 ms by such blocks, 222 ms in one piece.
MAX_TABLE = 2**20


def by_blocks(function: Callable[[Any], Any], num: int, width: int) -> Any:
    """`function(rows)` for all `num` rows, by blocks small enough if each row needs `width` entries of a table.

    `rows` is an index array, or a slice if one block is enough; results have the rows as leading axis.
    """
    num_blocks = -(-(num * width) // MAX_TABLE)
    if num_blocks <= 1:
        return function(slice(None))
    block = -(-num // num_blocks)
    num_blocks = -(-num // block)
    rows = jnp.minimum(jnp.arange(num_blocks * block), num - 1).reshape(num_blocks, block)  # the last one repeats
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:num], jax.lax.map(function, rows))
