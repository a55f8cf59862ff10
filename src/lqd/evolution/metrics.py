"""Measures of one population, over its filled slots. Callers `vmap` for many.

Scores use the fitness given: pass noiseless values where the task is noisy. A partly filled population inflates
novelty, so its number of filled slots is always reported beside it.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from lqd.rules import neighbours
from lqd.rules.rescaling import square_scale

Metrics = dict[str, Float[Array, ""]]


def _mean_where(values, where):
    # Divided before it is summed: the sum of values near the largest float would overflow.
    return jnp.sum(jnp.where(where, values / jnp.maximum(jnp.sum(where.astype(values.dtype)), 1.0), 0.0))


def normalised_fitness(fitness, f_rand, f_opt):
    """0 at the median best of random search, 1 at the optimum, clipped; an anchor pair of no width gives 0 or 1."""
    width = f_opt - f_rand
    return jnp.where(
        width > 0,
        jnp.clip((fitness - f_rand) / jnp.where(width > 0, width, 1.0), 0.0, 1.0),
        (fitness >= f_opt).astype(fitness.dtype),
    )


def measure(fitness: Float[Array, " N"], descriptor: Float[Array, "N D"], k: int = 3) -> Metrics:
    """Max and mean fitness, mean novelty, mean dominated novelty (of dominated individuals), filled slots."""
    filled = fitness > -jnp.inf
    novelty, _ = neighbours.novelty(fitness, descriptor, k)
    dominated, count = neighbours.dominated_novelty(fitness, descriptor, k)
    return {
        "max_fitness": jnp.max(fitness),
        "mean_fitness": jnp.where(jnp.any(filled), _mean_where(fitness, filled), -jnp.inf),
        "novelty": _mean_where(novelty, filled),
        "dominated_novelty": _mean_where(dominated, filled & (count > 0)),
        "num_filled": jnp.sum(filled.astype(fitness.dtype)),
    }


def qd_score(metrics: Metrics, f_rand, f_opt) -> Float[Array, ""]:
    """Normalised max fitness times mean dominated novelty."""
    return normalised_fitness(metrics["max_fitness"], f_rand, f_opt) * metrics["dominated_novelty"]


def rarefied_novelty(
    fitness: Float[Array, " N"], descriptor: Float[Array, "N D"], num: Float[Array, ""], k: int = 3
) -> Float[Array, ""]:
    """The mean novelty to be expected of `num` individuals drawn at random from the population (all, if it has fewer).

    Fewer points in the same region are farther apart: populations with different numbers of filled slots are compared
    fairly at the same number. Computed exactly: going from the nearest other individual outwards, how likely is each
    one to be drawn and to be among the k first drawn?
    """
    filled = fitness > -jnp.inf
    size = jnp.sum(filled.astype(descriptor.dtype))
    drawn = jnp.minimum(num, size) - 1  # besides the individual whose novelty it is
    distances = _sorted_distances(filled, descriptor)

    def outwards(odds, step):
        """`odds[r]`: r of the nearer ones were drawn. One that is the last left is drawn if anybody is still to be."""
        place, distance = step
        chance = jnp.clip((drawn - jnp.arange(k, dtype=odds.dtype)) / jnp.maximum(size - 1 - place, 1.0), 0.0, 1.0)
        taken = odds * chance
        share = jnp.where(place < size - 1, jnp.sum(taken), 0.0)
        return odds - taken + jnp.concatenate([jnp.zeros(1, taken.dtype), taken[:-1]]), share * distance

    begin = jnp.zeros(k, descriptor.dtype).at[0].set(1.0)
    steps = (jnp.arange(len(fitness), dtype=descriptor.dtype), jnp.where(jnp.isfinite(distances), distances, 0.0))
    _, parts = jax.lax.scan(outwards, begin, steps)
    return _mean_where(jnp.sum(parts, axis=0) / jnp.clip(drawn, 1.0, k), filled)


def _sorted_distances(filled, descriptor):
    """Place by individual: how far its nearest other filled one is, the next, and so on; infinite behind the last."""
    known = jnp.where(filled[:, None], descriptor, 0.0)
    scale = square_scale(known)
    known = known * scale
    square = sum((column[:, None] - column[None, :]) ** 2 for column in known.T)
    other = filled[:, None] & ~jnp.eye(len(filled), dtype=bool)
    return jnp.sqrt(jnp.sort(jnp.where(other, square, jnp.inf), axis=0)) / scale
