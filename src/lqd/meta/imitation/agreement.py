"""How well a learned rule agrees with its teacher: on ranks, and on who survives."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from lqd.evolution import loop
from lqd.meta.imitation.teachers import Teacher, mean_where, ranks, targets
from lqd.rules.learned import layers
from lqd.rules.learned.layers import Params
from lqd.rules.learned.network import Architecture
from lqd.rules.learned.rule import Learned
from lqd.types import Population

Measures = dict[str, Float[Array, "..."]]

CHECKED_AT_ONCE = 64  # populations in memory while agreement is measured


# --- How good the imitation is ---


def _survivors(scores, fitness, descriptor, population_size: int) -> Bool[Array, " P"]:
    """Which individuals survive with these scores, by the loop's own function."""
    union = Population(descriptor, fitness, descriptor, {"index": jnp.arange(fitness.shape[0])})
    population, _ = loop.survive(scores, union, (), population_size)
    return jnp.zeros(fitness.shape, bool).at[population.extras["index"]].set(population.filled)


def _agreement_of_one(params, architecture, teacher, population_size: int, fitness, descriptor) -> Measures:
    filled = fitness > -jnp.inf
    scores = Learned(params, architecture)(None, fitness, descriptor)
    ours = layers.standardise(ranks(scores, filled), filled)
    correlation = mean_where(ours * targets(teacher, fitness, descriptor), filled)
    stays = _survivors(scores, fitness, descriptor, population_size)
    should = _survivors(teacher(None, fitness, descriptor), fitness, descriptor, population_size)
    return {"spearman": correlation, "kept": mean_where(stays.astype(jnp.float32), should)}


@partial(jax.jit, static_argnames=("architecture", "population_size"))
def agreement(
    params: Params,
    architecture: Architecture,
    teacher: Teacher,
    fitness: Float[Array, "num P"],
    descriptor: Float[Array, "num P D"],
    population_size: int,
) -> Measures:
    """Per population: Spearman's correlation with the teacher's scores, and the share of its survivors that survive."""
    one = partial(_agreement_of_one, params, architecture, teacher, population_size)
    return jax.lax.map(lambda pair: one(*pair), (fitness, descriptor), batch_size=CHECKED_AT_ONCE)
