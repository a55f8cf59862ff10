"""Variation: how the children of a population are made.

A `Variation` sees the whole population of one task and returns a batch of children inside the bounds. It may give each
individual traits, numbers that its children can inherit (step sizes, say): the loop carries them along with the
survivors. One without traits returns None for them, and nothing is carried.

An `Operator` is the simple case, `(key, x1 (n,), x2 (n,)) -> x (n,)` for one child of two parents; `Pairs` makes a
variation of it. Any such function can take the place of iso-line variation.
"""

import functools
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lqd.evolution import screening
from lqd.evolution.memory import Memory
from lqd.evolution.sums import deviation, rounded
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
        """The traits of individuals without parents. One with `uses_dim = True`, whose traits depend on how many
        dimensions there are, is also given `dim=`."""
        ...

    def children(
        self, key: Key[Array, ""], population: Population, box: Box | None, start: Start, batch_size: int
    ) -> Children:
        """A batch inside the box. The filled slots are a prefix, never empty; `start` has the scale where there is no
        box. One with `uses_memory = True` is also given `memory=`, what was evaluated lately."""
        ...


def as_variation(given: Operator | Variation) -> Variation:
    """The variation for an operator; a variation is returned as it is."""
    return given if isinstance(given, Variation) else Pairs(given)


def uses_memory(given: Operator | Variation | None) -> bool:
    """Whether the variation uses a memory of recent evaluations."""
    return bool(getattr(given, "uses_memory", False))


def uses_dim(given: Operator | Variation | None) -> bool:
    """Whether the variation is told how many dimensions there are."""
    return bool(getattr(given, "uses_dim", False))


def first_traits(given: Operator | Variation | None, num: int, dim: int) -> Float[Array, "num T"] | None:
    """Traits of individuals without parents; none if they are unknown, or there are none."""
    if given is None:
        return None
    return as_variation(given).first(num, **({"dim": dim} if uses_dim(given) else {}))


def clip(x: Float[Array, "... n"], box: Box | None) -> Float[Array, "... n"]:
    return x if box is None else jnp.clip(x, *box)


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
    """A user's variation that is not a pytree; compiled once per object."""

    variation: Any = static()

    def first(self, num: int, **dim):
        return self.variation.first(num, **dim)

    @property
    def uses_dim(self) -> bool:
        return uses_dim(self.variation)

    @property
    def uses_memory(self) -> bool:
        return uses_memory(self.variation)

    def children(self, key, population, box, start, batch_size, **memory) -> Children:
        return self.variation.children(key, population, box, start, batch_size, **memory)


# The default


def units(box: Box | None, start: Start, dim: int) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Origin and width, by dimension, of the units that genotypes vary in: those of the box, or else of the start."""
    if box is not None:
        low, high = box
        return low, high - low
    origin = jnp.zeros(dim, jnp.float32) if start.x0 is None else jnp.atleast_2d(start.x0)[0]
    return origin, jnp.broadcast_to(jnp.asarray(start.init_sigma, jnp.float32), (dim,))


LEAST_START = 1e-6  # deviation of a start population, in units of the box


def known_spread(z: Float[Array, "N n"], population: Population, box: Box | None, start: Start, least: float):
    """Deviation in each dimension (n,), in those units and at least `least`. While all that are left are in one place,
    as a single individual is, it is that of a start population."""
    spread = deviation(z, population.filled)
    at_start = jnp.maximum(_start_spread(box, start, z.shape[1]), LEAST_START)
    return jnp.where(jnp.any(spread > 0), jnp.maximum(spread, least), at_start)


def _start_spread(box: Box | None, start: Start, dim: int) -> Float[Array, " n"]:
    if box is None:
        return jnp.ones(dim, jnp.float32)
    _, width = units(box, start, dim)
    anywhere = jnp.full(dim, 12**-0.5, jnp.float32)
    if start.x0 is None or start.x0.ndim != 1:
        return anywhere
    return jnp.minimum(anywhere, jnp.asarray(start.init_sigma, jnp.float32) / width)


def reflected(z: Float[Array, "... n"]) -> Float[Array, "... n"]:
    """Folded into [0, 1]."""
    return 1.0 - jnp.abs(1.0 - (z - 2.0 * jnp.floor(0.5 * z)))


def at_bounds(key: Key[Array, ""], z: Float[Array, "B n"]) -> Float[Array, "B n"]:
    """Half of the values outside [0, 1] are reflected, half are put on its edge."""
    reflects = jax.random.bernoulli(key, 0.5, (len(z), 1))
    return jnp.where(reflects, reflected(z), jnp.clip(z, 0.0, 1.0))


@pytree
class Spread:
    """Iso-line variation whose steps follow the spread of the population, and of whose children only the most promising
    are evaluated (`evolution/screening.py`): no scale has to be known.

    Genotypes are in units of their box (without one, of the start), dimension by dimension. Each child has its own two
    steps: drawn anew, log-uniform, or with probability `inherit` those of its first parent, a little changed. Their
    logarithms are its traits. Descriptors count in units of their bounds, those beyond as at the edge if `at_edge`; of
    their spread where no bounds are given.
    """

    descriptor_bounds: tuple[Float[Array, "*D"], Float[Array, "*D"]] | None = None
    at_edge: bool = static(default=True)
    inherit: float = static(default=0.0)

    ISO, LINE = (0.03, 0.5), (0.1, 1.0)  # ranges of the steps: isotropic, in deviations; along the line
    CHANGE = 0.3  # of inherited steps, log-normal
    LEAST = 1e-6  # deviation, in units of the box
    uses_memory = True

    @classmethod
    def _ranges(cls) -> Float[np.ndarray, "2 2"]:
        """Logarithms: of the lowest steps, of the highest."""
        return np.log(np.array([cls.ISO, cls.LINE])).astype(np.float32).T

    def first(self, num: int) -> Float[Array, "num 2"]:
        """The middle of the ranges."""
        return jnp.asarray(np.tile(self._ranges().mean(axis=0), (num, 1)))

    def children(self, key, population, box, start, batch_size, memory: Memory | None = None) -> Children:
        """Without a memory, all that are bred."""
        origin, width = units(box, start, population.x.shape[1])
        z = (population.x - origin) / width
        key_bred, key_chosen = jax.random.split(key)
        spread = known_spread(z, population, box, start, self.LEAST)
        bred = functools.partial(self._bred, key_bred, z, population, spread, box is not None)
        if memory is None:
            child, traits = bred(batch_size)
        else:
            child, traits = bred(screening.TIMES * batch_size)
            known = (memory.x - origin) / width
            chosen = screening.choose(
                key_chosen, memory, known, child, self.descriptor_bounds, self.at_edge, batch_size
            )
            child, traits = child[chosen], traits[chosen]
        return Children(clip(origin + rounded(child * width), box), traits)

    def _bred(self, key, z, population: Population, spread, is_bounded: bool, num: int):
        """Breeds this many candidates, in units, with their traits."""
        key_parents, key_steps, key_inherit, key_change, key_normal, key_edge = jax.random.split(key, 6)
        first, second = parents(key_parents, population, num)
        low, high = self._ranges()
        drawn = low + jax.random.uniform(key_steps, (num, 2), jnp.float32) * (high - low)
        change = self.CHANGE * jax.random.normal(key_change, (num, 2), jnp.float32)
        carried = self.first(len(z)) if population.traits is None else population.traits
        inherited = jnp.clip(carried[first] + change, low, high)
        inherits = jax.random.uniform(key_inherit, (num, 1), jnp.float32) < self.inherit
        traits = rounded(jnp.where(inherits, inherited, drawn))

        iso, line = jnp.split(jnp.exp(traits), 2, axis=1)
        normal = jax.random.normal(key_normal, (num, z.shape[1] + 1), jnp.float32)
        steps = rounded(iso * spread * normal[:, :-1]), rounded(line * normal[:, -1:] * (z[second] - z[first]))
        child = z[first] + steps[0] + steps[1]
        return (at_bounds(key_edge, child) if is_bounded else child), traits
