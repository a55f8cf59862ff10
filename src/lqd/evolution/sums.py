"""Arithmetic that is the same to the last bit in every program.

Compilers may keep more digits of a product that is added at once (FMA), or add in another order, in one program but not
in another. A search on the host and a compiled one are two programs, and must agree.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def rounded(values: Float[Array, "..."]) -> Float[Array, "..."]:
    """The numbers as they would be stored; what is not finite is NaN.

    Compilers do not look through a choice; an `optimization_barrier` is gone by then on a CPU.
    """
    return jnp.where(jnp.isfinite(values), values, jnp.nan)


def total(values: Float[Array, "N n"]) -> Float[Array, " n"]:
    """The sum over the first axis, by halves."""
    while values.shape[0] > 1:
        half = values.shape[0] // 2
        values = jnp.concatenate([values[:half] + values[half : 2 * half], values[2 * half :]])
    return values[0]


def product(a: Float[Array, "A K"], b: Float[Array, "K B"]) -> Float[Array, "A B"]:
    """The product of matrices, in full float32."""
    return rounded(jnp.matmul(a, b, precision="highest"))


def mean_of(values: Float[Array, "N n"], mask: Bool[Array, " N"]) -> Float[Array, " n"]:
    """The mean of those that count."""
    num = jnp.maximum(jnp.sum(mask.astype(values.dtype)), 1.0)
    return rounded(total(rounded(jnp.where(mask[:, None], values, 0.0))) / num)


def deviation(values: Float[Array, "N n"], mask: Bool[Array, " N"]) -> Float[Array, " n"]:
    """The standard deviation of those that count."""
    square = jnp.where(mask[:, None], values - mean_of(values, mask), 0.0) ** 2
    return rounded(jnp.sqrt(mean_of(square, mask)))
