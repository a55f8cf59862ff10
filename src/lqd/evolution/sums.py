"""Means and deviations that are the same to the last bit in every program.

They are added up by halves, and apart from what is around them: a compiler that fuses or reorders additions would give a
search on the host and a compiled one other last digits.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

_apart = jax.lax.optimization_barrier


def mean_of(values: Float[Array, "N n"], mask: Bool[Array, " N"]) -> Float[Array, " n"]:
    """Of those that count."""
    num = jnp.maximum(jnp.sum(mask.astype(values.dtype)), 1.0)
    return _apart(total(_apart(jnp.where(mask[:, None], values, 0.0))) / num)


def deviation(values: Float[Array, "N n"], mask: Bool[Array, " N"]) -> Float[Array, " n"]:
    """The standard deviation of those that count."""
    square = jnp.where(mask[:, None], values - mean_of(values, mask), 0.0) ** 2
    return _apart(jnp.sqrt(mean_of(_apart(square), mask)))


def total(values: Float[Array, "N n"]) -> Float[Array, " n"]:
    while values.shape[0] > 1:
        half = values.shape[0] // 2
        values = jnp.concatenate([values[:half] + values[half : 2 * half], values[2 * half :]])
    return values[0]
