"""Rules that see each descriptor dimension in units of its own, so that none is lost beside a larger one.

For rules of distances, which mix dimensions and take no notes: NS, DNS and learned ones. All numbers are divided by
differences of the same kind, so that a descriptor multiplied by a power of two (with its bounds) changes not one bit.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from lqd.rules import protocol
from lqd.rules.handmade import DominatedNoveltySearch, NoveltySearch
from lqd.rules.learned.rule import Learned
from lqd.rules.protocol import Rule, Scores, arrays
from lqd.types import pytree, static

OF_DISTANCES = (NoveltySearch, DominatedNoveltySearch, Learned)
LOWEST, HIGHEST = 0.05, 0.95  # of those present, between which their spread is taken
FARTHEST = 1e18  # from the others, in units of their spread: squares stay finite


@pytree
class InBounds:
    """Descriptors as shares of their bounds; `at_edge`: one outside counts as at the edge."""

    rule: Any
    low: Float[Array, " D"]
    high: Float[Array, " D"]
    at_edge: bool = static(default=True)

    def check(self, descriptor_dim: int) -> None:
        _check(self.rule, descriptor_dim)

    def ready(self) -> "InBounds":
        return InBounds(protocol.ready(self.rule), self.low, self.high, self.at_edge)

    @property
    def guides(self) -> bool:
        return protocol.guides(self.rule)

    def __call__(self, key, fitness, descriptor) -> Scores:
        return self.rule(key, *self._seen(fitness, descriptor))

    def guide(self, key, fitness, descriptor, carried):
        return self.rule.guide(key, *self._seen(fitness, descriptor), carried)

    def _seen(self, fitness, descriptor):
        fitness, descriptor = arrays(fitness, descriptor)
        place = share(descriptor, self.low, self.high)
        return fitness, jnp.clip(place, 0.0, 1.0) if self.at_edge else place


@pytree
class BySpread:
    """Descriptors in units of the spread of the present population; nothing carries over to the next generation."""

    rule: Any

    def check(self, descriptor_dim: int) -> None:
        _check(self.rule, descriptor_dim)

    def ready(self) -> "BySpread":
        return BySpread(protocol.ready(self.rule))

    @property
    def guides(self) -> bool:
        return protocol.guides(self.rule)

    def __call__(self, key, fitness, descriptor) -> Scores:
        return self.rule(key, *self._seen(fitness, descriptor))

    def guide(self, key, fitness, descriptor, carried):
        return self.rule.guide(key, *self._seen(fitness, descriptor), carried)

    def _seen(self, fitness, descriptor):
        fitness, descriptor = arrays(fitness, descriptor)
        low, high = robust_range(descriptor, fitness > -jnp.inf)
        return fitness, share(descriptor, low, high)


def in_units(rule: Rule, bounds, outside: str) -> Rule:
    """A rule of distances with descriptors in units of their bounds, or of their spread where `bounds` is None.

    Other rules see descriptors as they are: MAP-Elites, GA, Random, and all of the user's own.
    """
    if not isinstance(rule, OF_DISTANCES):
        return rule
    if bounds is None:
        return BySpread(rule)
    low, high = (jnp.asarray(end, jnp.float32) for end in bounds)
    return InBounds(rule, low, high, outside == "edge")


def robust_range(
    descriptor: Float[Array, "P D"], present: Bool[Array, " P"]
) -> tuple[Float[Array, " D"], Float[Array, " D"]]:
    """Where most of those present begin and end, by dimension; where that is one place, where all of them do.

    Some of the values themselves, nothing in between.
    """
    inside = present & jnp.all(jnp.isfinite(descriptor), axis=1)
    last = jnp.maximum(jnp.sum(inside, dtype=jnp.int32) - 1, 0)
    values = jnp.sort(jnp.where(inside[:, None], descriptor, jnp.inf), axis=0)

    def at(share: float, toward):
        return values[jnp.clip(toward(share * last.astype(jnp.float32)).astype(jnp.int32), 0, last)]

    low, high = at(LOWEST, jnp.floor), at(HIGHEST, jnp.ceil)
    one_place = ~(high > low)
    return jnp.where(one_place, values[0], low), jnp.where(one_place, values[last], high)


def share(descriptor: Float[Array, "P D"], low: Float[Array, " D"], high: Float[Array, " D"]) -> Float[Array, "P D"]:
    """0 at `low`, 1 at `high`. In halves: the difference of two large numbers stays finite."""
    width = 0.5 * high - 0.5 * low
    usable = (width > 0) & jnp.isfinite(width)
    found = (0.5 * descriptor - 0.5 * low) / jnp.where(usable, width, 1.0)
    return jnp.where(usable, jnp.clip(found, -FARTHEST, FARTHEST), 0.0)


def _check(rule: Any, descriptor_dim: int) -> None:
    if hasattr(rule, "check"):
        rule.check(descriptor_dim)
