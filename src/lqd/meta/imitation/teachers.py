"""The hand-made rules that can be imitated, and what is learned from them: ranks."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lqd.errors import unknown
from lqd.rules import cvt, handmade
from lqd.rules.learned import layers
from lqd.rules.protocol import Rule

TEACHERS = tuple(name for name in handmade.NAMES if name != "random")  # what is drawn cannot be learned
Teacher = Callable[..., Float[Array, " P"]]  # a rule that needs no random numbers


# --- The teacher, and what is learned from it ---


def teacher_rule(name: str, population_size: int, descriptor_dim: int) -> Rule:
    """The rule to imitate. MAP-Elites gets as many cells as the population has slots, in the box [-1, 1]^D."""
    if name not in TEACHERS:
        raise unknown("teacher", name, TEACHERS)
    high = np.ones(descriptor_dim)
    return handmade.by_name(name, cvt.centroids(population_size, -high, high))


def ranks(scores: Float[Array, " P"], filled: Bool[Array, " P"]) -> Float[Array, " P"]:
    """Ranks over the filled slots, the lowest 0, equals sharing their mean rank; 0 in empty slots."""

    def count(relation):
        return jnp.sum(relation & filled[:, None], axis=0, dtype=jnp.int32).astype(jnp.float32)

    below, not_above = count(scores[:, None] < scores), count(scores[:, None] <= scores)
    return jnp.where(filled, (below + not_above - 1) / 2, 0.0)


def targets(teacher: Teacher, fitness: Float[Array, " P"], descriptor: Float[Array, "P D"]) -> Float[Array, " P"]:
    """Ranks of the teacher's scores, standardised. Ranks, because survival depends on nothing else."""
    filled = fitness > -jnp.inf
    return layers.standardise(ranks(teacher(None, fitness, descriptor), filled), filled)


def mean_where(values: Float[Array, " P"], where: Bool[Array, " P"]) -> Float[Array, ""]:
    return jnp.sum(jnp.where(where, values, 0.0)) / jnp.maximum(jnp.sum(where.astype(values.dtype)), 1.0)
