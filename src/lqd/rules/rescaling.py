"""Exact rescaling, so that 1e30 neither overflows a square nor loses a digit."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int


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
