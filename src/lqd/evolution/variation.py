"""Variation: how the children of a population are made.

A `Variation` sees the whole population of one task and returns a batch of children inside the bounds. It may give each
individual traits, numbers that its children can inherit (step sizes, say): the loop carries them along with whoever
survives. One without traits returns None for them, and nothing is carried.

An `Operator` is the simple case, `(key, x1 (n,), x2 (n,)) -> x (n,)` for one child of two parents; `Pairs` makes a
variation of it. Any such function can take the place of iso-line variation.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lqd.tasks.task import Box
from lqd.types import Population, pytree, static

ISO_SIGMA, LINE_SIGMA = 0.005, 0.05  # the paper's steps


@pytree
class Start:
    """Where a search begins: around `x0` if it is one point `(n,)`, at its points if there are several `(m, n)`.

    `init_sigma` is its scale, one number or one for each dimension.
    """

    x0: Float[Array, "*m n"] | None = None
    init_sigma: Float[Array, "*n"] | float = 1.0


ANYWHERE = Start()


class Children(NamedTuple):
    """A batch of new genotypes, with the traits of each where there are any."""

    x: Float[Array, "*batch B n"]
    traits: Float[Array, "*batch B T"] | None = None


@runtime_checkable
class Operator(Protocol):
    def __call__(self, key: Key[Array, ""], x1: Float[Array, " n"], x2: Float[Array, " n"]) -> Float[Array, " n"]: ...


@runtime_checkable
class Variation(Protocol):
    """A pytree; `children` is called with one population at a time, and the loop maps it over tasks."""

    def first(self, num: int) -> Float[Array, "num T"] | None:
        """The traits of individuals without parents."""
        ...

    def children(
        self, key: Key[Array, ""], population: Population, box: Box | None, start: Start, batch_size: int
    ) -> Children:
        """A batch inside the box. The filled slots are a prefix, never empty; `start` has the scale where there is no
        box."""
        ...


def as_variation(given: Operator | Variation) -> Variation:
    """An operator as a variation, which it may be already."""
    return given if isinstance(given, Variation) else Pairs(given)


def first_traits(given: Operator | Variation | None, num: int) -> Float[Array, "num T"] | None:
    """Of individuals without parents; none if that is not known, or there are none."""
    return None if given is None else as_variation(given).first(num)


def clip(x: Float[Array, "... n"], box: Box | None) -> Float[Array, "... n"]:
    return x if box is None else jnp.clip(x, *box)


def rounded(values: Float[Array, "..."]) -> Float[Array, "..."]:
    """The numbers as they would be stored; what is not finite is NaN.

    Compilers keep more digits of a product that they add to something at once (FMA), in one program and not in another.
    They do not look through a choice; an `optimization_barrier` is gone by then on a CPU.
    """
    return jnp.where(jnp.isfinite(values), values, jnp.nan)


def parents(key: Key[Array, ""], population: Population, batch_size: int) -> Int[Array, "2 B"]:
    """Two for each child, uniform over the filled slots."""
    num_filled = jnp.sum(population.filled, dtype=jnp.int32)
    # Filled slots are a prefix, so a uniform number below their count is a uniform parent.
    uniform = jax.random.uniform(key, (2, batch_size), jnp.float32)
    return jnp.minimum((uniform * num_filled.astype(uniform.dtype)).astype(jnp.int32), num_filled - 1)


@pytree
class Pairs:
    """An operator on two random parents for each child; what leaves the box is put on its edge."""

    operator: Any

    def first(self, num: int) -> None:
        return None

    def children(self, key, population, box, start, batch_size) -> Children:
        key_parents, key_variation, _ = jax.random.split(key, 3)  # the last one is the loop's, for fresh starts
        parent = parents(key_parents, population, batch_size)
        x1, x2 = population.x[parent[0]], population.x[parent[1]]
        return Children(clip(jax.vmap(self.operator)(jax.random.split(key_variation, batch_size), x1, x2), box))


@pytree
class IsoLine:
    """Isotropic noise, and a step along the line through both parents (Vassiliades & Mouret, 2018).

    Steps are in units of x; the isotropic one may be one number for each dimension.
    """

    iso_sigma: Float[Array, "*n"]
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


@pytree
class OwnVariation:
    """A variation of the user's that is no pytree; compiled once per object."""

    variation: Any = static()

    def first(self, num: int):
        return self.variation.first(num)

    def children(self, key, population, box, start, batch_size) -> Children:
        return self.variation.children(key, population, box, start, batch_size)


# The default


def units(box: Box | None, start: Start, dim: int) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Origin and width, by dimension, of the units that genotypes vary in: those of the box, or else of the start."""
    if box is not None:
        low, high = box
        return low, high - low
    origin = jnp.zeros(dim, jnp.float32) if start.x0 is None else jnp.atleast_2d(start.x0)[0]
    return origin, jnp.broadcast_to(jnp.asarray(start.init_sigma, jnp.float32), (dim,))


def reflected(z: Float[Array, "... n"]) -> Float[Array, "... n"]:
    """Folded into [0, 1]."""
    return 1.0 - jnp.abs(1.0 - (z - 2.0 * jnp.floor(0.5 * z)))


def spread_of(z: Float[Array, "N n"], filled) -> Float[Array, " n"]:
    """Standard deviation of the filled slots, by dimension.

    Added up by halves, and rounded at each step: in every program the same additions, so that a search on the host and
    a compiled one agree to the last bit.
    """
    num = jnp.maximum(jnp.sum(filled.astype(z.dtype)), 1.0)
    mean = rounded(_sum(rounded(jnp.where(filled[:, None], z, 0.0))) / num)
    square = rounded(jnp.where(filled[:, None], z - mean, 0.0) ** 2)
    return rounded(jnp.sqrt(_sum(square) / num))


def _sum(values: Float[Array, "N n"]) -> Float[Array, " n"]:
    while values.shape[0] > 1:
        half = values.shape[0] // 2
        values = jnp.concatenate([values[:half] + values[half : 2 * half], values[2 * half :]])
    return values[0]


@pytree
class Spread:
    """Iso-line variation whose steps follow the spread of the population: no scale has to be known.

    Genotypes are in units of their box (without one, of the start), dimension by dimension. Each child has its own two
    steps: drawn anew, log-uniform, or with probability `inherit` those of its first parent, a little changed. Their
    logarithms are its traits.
    """

    inherit: float = static(default=0.5)

    ISO, LINE = (0.03, 0.5), (0.1, 1.0)  # ranges of the steps: isotropic, in deviations; along the line
    CHANGE = 0.3  # of inherited steps, log-normal
    LEAST = 1e-6  # deviation, in units of the box

    @classmethod
    def _ranges(cls) -> Float[np.ndarray, "2 2"]:
        """Logarithms: of the lowest steps, of the highest."""
        return np.log(np.array([cls.ISO, cls.LINE])).astype(np.float32).T

    def first(self, num: int) -> Float[Array, "num 2"]:
        """The middle of the ranges."""
        return jnp.asarray(np.tile(self._ranges().mean(axis=0), (num, 1)))

    def children(self, key, population, box, start, batch_size) -> Children:
        key_parents, key_rest = jax.random.split(key)
        key_steps, key_inherit, key_change, key_normal, key_edge = jax.random.split(key_rest, 5)
        dim = population.x.shape[1]
        origin, width = units(box, start, dim)
        z = (population.x - origin) / width
        first, second = parents(key_parents, population, batch_size)

        low, high = self._ranges()
        drawn = low + jax.random.uniform(key_steps, (batch_size, 2), jnp.float32) * (high - low)
        change = self.CHANGE * jax.random.normal(key_change, (batch_size, 2), jnp.float32)
        inherited = jnp.clip(population.traits[first] + change, low, high)
        inherits = jax.random.uniform(key_inherit, (batch_size, 1), jnp.float32) < self.inherit
        traits = rounded(jnp.where(inherits, inherited, drawn))

        iso, line = jnp.split(jnp.exp(traits), 2, axis=1)
        normal = jax.random.normal(key_normal, (batch_size, dim + 1), jnp.float32)
        deviation = jnp.maximum(spread_of(z, population.filled), self.LEAST)
        child = z[first] + iso * deviation * normal[:, :-1] + line * normal[:, -1:] * (z[second] - z[first])
        if box is not None:
            reflects = jax.random.bernoulli(key_edge, 0.5, (batch_size, 1))
            child = jnp.where(reflects, reflected(child), jnp.clip(child, 0.0, 1.0))
        return Children(clip(origin + child * width, box), traits)
