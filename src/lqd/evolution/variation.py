"""Reproduction operators: `(key, x1 (n,), x2 (n,)) -> x (n,)`, for one offspring; the loop maps them over the batch.

Any such function can take the place of iso-line variation.
"""

from typing import Any, Protocol, runtime_checkable

import jax
from jaxtyping import Array, Float, Key

from lqd.types import pytree, static


@runtime_checkable
class Reproduction(Protocol):
    def __call__(self, key: Key[Array, ""], x1: Float[Array, " n"], x2: Float[Array, " n"]) -> Float[Array, " n"]: ...


@pytree
class IsoLine:
    """Isotropic noise, and a step along the line through both parents (Vassiliades & Mouret, 2018)."""

    iso_sigma: Float[Array, ""]
    line_sigma: Float[Array, ""]

    def __call__(self, key, x1, x2):
        # One draw for both terms: the last number is the step along the line.
        normal = jax.random.normal(key, (x1.shape[0] + 1,), x1.dtype)
        return x1 + self.iso_sigma * normal[:-1] + self.line_sigma * normal[-1] * (x2 - x1)


@pytree
class FunctionReproduction:
    """A plain function as an operator; compiled once per function object."""

    function: Any = static()

    def __call__(self, key, x1, x2):
        return self.function(key, x1, x2)
