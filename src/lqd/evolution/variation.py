"""Variation operators: `(key, x1 (n,), x2 (n,)) -> x (n,)`, for one offspring; the loop maps them over the batch.

Any such function can take the place of iso-line variation.
"""

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from lqd.types import pytree, static

ISO_SIGMA, LINE_SIGMA = 0.005, 0.05  # the paper's steps; the defaults everywhere


@runtime_checkable
class Operator(Protocol):
    def __call__(self, key: Key[Array, ""], x1: Float[Array, " n"], x2: Float[Array, " n"]) -> Float[Array, " n"]: ...


@pytree
class IsoLine:
    """Isotropic noise, and a step along the line through both parents (Vassiliades & Mouret, 2018)."""

    iso_sigma: Float[Array, ""]
    line_sigma: Float[Array, ""]

    @classmethod
    def with_steps(cls, iso_sigma: float = ISO_SIGMA, line_sigma: float = LINE_SIGMA) -> "IsoLine":
        """From plain numbers."""
        return cls(jnp.float32(iso_sigma), jnp.float32(line_sigma))

    def __call__(self, key, x1, x2):
        # One draw for both terms: the last number is the step along the line.
        normal = jax.random.normal(key, (x1.shape[0] + 1,), x1.dtype)
        return x1 + self.iso_sigma * normal[:-1] + self.line_sigma * normal[-1] * (x2 - x1)


@pytree
class FunctionOperator:
    """A plain function as an operator; compiled once per function object."""

    function: Any = static()

    def __call__(self, key, x1, x2):
        return self.function(key, x1, x2)
