"""Measures of one population, over its filled slots. Callers `vmap` for many.

Scores use the fitness given: pass noiseless values where the task is noisy. A partly filled population inflates
novelty, so its number of filled slots is always reported beside it.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from lqd.evolution import neighbours

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
    """Max and mean fitness, mean novelty, mean dominated novelty (over those somebody dominates), filled slots."""
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
