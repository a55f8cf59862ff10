"""Variation that a rule may lead: who breeds, in which directions, and how far.

Every individual carries the steps that it was made with, and passes them on, slightly changed. It also carries its
trail, which is how its ancestors and it moved, the latest counting most, in mean deviations of the population at the
time: one unit for all dimensions, as others would turn directions. A child begins at a parent `a`, and five terms are
added, each with a step of its own, in units of the box (without one, of the start):

    iso           noise in every dimension, in deviations of the population
    line          along the line to another, `b - a`
    difference    along the line between two others, `c - d`
    shape         a draw from the covariance of the population, in which each individual has a weight
    trail         a draw from the covariance of the trails with the same weights, in mean deviations of the population

Steps are relative to the population, so no scale has to be known. A rule that leads (feature recipe 3) is asked at
every competition. Its advice says of each individual how likely it is to be a parent, what it weighs in the covariance,
how strongly the steps that it hands on change, and what is added to their logarithms. Where no rule leads, parents and
weights are uniform, and steps adapt by survival alone.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lqd.evolution.sums import product, rounded, total
from lqd.evolution.variation import Children, at_bounds, clip, known_spread, parents, units
from lqd.rules import protocol
from lqd.rules.learned.recipe3 import NUM_ADVICE, NUM_CARRIED, STEPS, neutral
from lqd.rules.protocol import Rule, Scores
from lqd.types import Population, pytree

NUM_STEPS = len(STEPS)
WAY = NUM_CARRIED + NUM_ADVICE  # the first column of the trail
CHANGE = np.array([0.8, 0.03, 0.03, 0.03, 0.4], np.float32)  # deviation of the change of a step's logarithm in a child
RANGE = np.log(np.array([1e-5, 3.0], np.float32))  # of the logarithm of a step
LATEST, FARTHEST = 0.5, 1e6  # of a trail: how much the latest step counts, and the most it may come to
LEAST = 1e-9  # deviation, in units of the box
MOST = 30.0  # of a logit, either way: its exponential stays finite


@pytree
class Led:
    """See above. Traits are the steps, the age, what was advised last, and the trail."""

    uses_dim = True

    def first(self, num: int, dim: int = 0) -> Float[Array, "num T"]:
        return jnp.concatenate([neutral(num), jnp.zeros((num, NUM_ADVICE + dim), jnp.float32)], axis=1)

    def children(self, key, population: Population, box, start, batch_size: int) -> Children:
        origin, width = units(box, start, population.x.shape[1])
        z = rounded((population.x - origin) / width)
        filled = population.filled
        key_parent, key_others, key_pair, key_steps, *keys, key_edge = jax.random.split(key, 5 + NUM_STEPS)
        traits = self.first(*z.shape) if population.traits is None else population.traits
        parent_logit, shape_logit, change, advised = jnp.split(traits[:, NUM_CARRIED:WAY], (1, 2, 3), axis=1)

        luck = jax.random.gumbel(key_parent, (batch_size, len(z)), jnp.float32)
        logit = jnp.clip(parent_logit[:, 0], -MOST, MOST)
        first = jnp.argmax(jnp.where(filled, rounded(logit + luck), -jnp.inf), axis=1)
        other, _ = parents(key_others, population, batch_size)
        here, there = parents(key_pair, population, batch_size)

        strength = rounded(jnp.asarray(CHANGE) * jnp.exp(jnp.clip(change[first], -2.0, 2.0)))
        normal = jax.random.normal(key_steps, (batch_size, NUM_STEPS), jnp.float32)
        steps = rounded(traits[first, :NUM_STEPS] + advised[first]) + rounded(strength * normal)
        steps = jnp.clip(rounded(steps), *RANGE)
        iso, line, difference, shape, trail = jnp.split(rounded(jnp.exp(steps)), NUM_STEPS, axis=1)

        weight = jnp.where(filled, rounded(jnp.exp(jnp.clip(shape_logit[:, 0], -MOST, MOST))), 0.0)
        weight = rounded(weight / jnp.maximum(total(weight), LEAST))
        mean = total(rounded(weight[:, None] * z))
        spread = known_spread(z, population, box, start, LEAST)

        def drawn(number: int, num: int):
            return jax.random.normal(keys[number], (batch_size, num), jnp.float32)

        def of_covariance(number: int, vectors):
            return product(rounded(drawn(number, len(z)) * jnp.sqrt(weight)), jnp.where(filled[:, None], vectors, 0.0))

        way = traits[:, WAY:]
        unit = rounded(jnp.exp(total(rounded(jnp.log(spread))) / z.shape[1]))  # one for all dimensions
        terms = (
            iso * spread * drawn(0, z.shape[1]),
            line * drawn(1, 1) * (z[other] - z[first]),
            difference * drawn(2, 1) * (z[here] - z[there]),
            shape * of_covariance(3, z - mean),
            rounded(trail * unit) * of_covariance(4, way),
        )
        child = z[first]
        for term in terms:
            child = child + rounded(term)
        moved = rounded((child - z[first]) / unit)
        way = rounded((1.0 - LATEST) * way[first]) + rounded(np.sqrt(LATEST * (2.0 - LATEST), dtype=np.float32) * moved)
        way = jnp.clip(way, -FARTHEST, FARTHEST)
        if box is not None:
            child = at_bounds(key_edge, child)
        nothing = jnp.zeros((batch_size, WAY - NUM_STEPS), jnp.float32)  # newborn, and nothing is advised yet
        handed_on = jnp.concatenate([steps, nothing, way], axis=1)
        return Children(clip(origin + rounded(child * width), box), handed_on)


@pytree
class Leader:
    """A rule whose advice becomes part of the traits of all that compete."""

    rule: Any

    def check(self, descriptor_dim: int) -> None:
        if hasattr(self.rule, "check"):
            self.rule.check(descriptor_dim)

    def ready(self) -> "Leader":
        return Leader(protocol.ready(self.rule))

    def __call__(self, key, fitness, descriptor) -> Scores:
        return self.rule(key, fitness, descriptor)

    def lead(self, key, fitness, descriptor, traits: Float[Array, "P T"]) -> tuple[Scores, Float[Array, "P T"]]:
        """Scores, and the traits with new advice; every individual is a generation older."""
        carried = traits[:, :NUM_CARRIED]
        scores, advice = self.rule.guide(key, fitness, descriptor, carried)
        older = [carried[:, :-1], carried[:, -1:] + 1.0]
        return scores, jnp.concatenate([*older, rounded(advice), traits[:, WAY:]], axis=1)


def led_by(rule: Rule, operator: Any) -> Rule:
    """The rule as a loop with this variation should hold it."""
    return Leader(rule) if isinstance(operator, Led) and protocol.guides(rule) else rule
