"""Variation that a rule may lead: who breeds, in which directions, and how far.

Every individual carries the steps that it was made with, and passes them on, slightly changed. A child begins at a
parent `a`, and five terms are added, each with a step of its own, in units of the box (without one, of the start):

    iso           noise in every dimension, in deviations of the population
    line          along the line to another, `b - a`
    difference    along the line between two others, `c - d`
    shape         a draw from the covariance of the population, in which each individual has a weight
    middle        a step towards the mean with the same weights

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
CHANGE = 0.3  # standard deviation by which the logarithm of a step changes from parent to child
RANGE = np.log(np.array([1e-5, 3.0], np.float32))  # of the logarithm of a step
LEAST = 1e-9  # deviation, in units of the box
MOST = 30.0  # of a logit, either way: its exponential stays finite


@pytree
class Led:
    """See above. Traits are the steps, the age, and what was advised last."""

    def first(self, num: int) -> Float[Array, "num T"]:
        return jnp.concatenate([neutral(num), jnp.zeros((num, NUM_ADVICE), jnp.float32)], axis=1)

    def children(self, key, population: Population, box, start, batch_size: int) -> Children:
        origin, width = units(box, start, population.x.shape[1])
        z = rounded((population.x - origin) / width)
        filled = population.filled
        key_parent, key_others, key_pair, key_steps, *keys, key_edge = jax.random.split(key, 5 + NUM_STEPS)
        traits = self.first(len(z)) if population.traits is None else population.traits
        parent_logit, shape_logit, change, advised = jnp.split(traits[:, NUM_CARRIED:], (1, 2, 3), axis=1)

        luck = jax.random.gumbel(key_parent, (batch_size, len(z)), jnp.float32)
        logit = jnp.clip(parent_logit[:, 0], -MOST, MOST)
        first = jnp.argmax(jnp.where(filled, rounded(logit + luck), -jnp.inf), axis=1)
        other, _ = parents(key_others, population, batch_size)
        here, there = parents(key_pair, population, batch_size)

        strength = rounded(CHANGE * jnp.exp(jnp.clip(change[first], -2.0, 2.0)))
        normal = jax.random.normal(key_steps, (batch_size, NUM_STEPS), jnp.float32)
        steps = rounded(traits[first, :NUM_STEPS] + advised[first]) + rounded(strength * normal)
        steps = jnp.clip(rounded(steps), *RANGE)
        iso, line, difference, shape, middle = jnp.split(rounded(jnp.exp(steps)), NUM_STEPS, axis=1)

        weight = jnp.where(filled, rounded(jnp.exp(jnp.clip(shape_logit[:, 0], -MOST, MOST))), 0.0)
        weight = rounded(weight / jnp.maximum(total(weight), LEAST))
        mean = total(rounded(weight[:, None] * z))
        spread = known_spread(z, population, box, start, LEAST)

        def drawn(number: int, num: int):
            return jax.random.normal(keys[number], (batch_size, num), jnp.float32)

        towards = product(rounded(drawn(3, len(z)) * jnp.sqrt(weight)), jnp.where(filled[:, None], z - mean, 0.0))
        terms = (
            iso * spread * drawn(0, z.shape[1]),
            line * drawn(1, 1) * (z[other] - z[first]),
            difference * drawn(2, 1) * (z[here] - z[there]),
            shape * towards,
            (1.0 - jnp.exp(-middle)) * (mean - z[first]),
        )
        child = z[first]
        for term in terms:
            child = child + rounded(term)
        if box is not None:
            child = at_bounds(key_edge, child)
        handed_on = jnp.concatenate([steps, self.first(batch_size)[:, NUM_STEPS:]], axis=1)
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
        return scores, jnp.concatenate([carried[:, :-1], carried[:, -1:] + 1.0, rounded(advice)], axis=1)


def led_by(rule: Rule, operator: Any) -> Rule:
    """The rule as a loop with this variation should hold it."""
    return Leader(rule) if isinstance(operator, Led) and protocol.guides(rule) else rule
