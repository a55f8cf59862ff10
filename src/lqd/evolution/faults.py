"""Evaluations that gave no usable number: counted, and the first of each kind remembered."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from lqd.types import Evaluation, pytree


@pytree
class Faults:
    """What went wrong in evaluations: how often, and the first genotype for each kind."""

    num_nan: Int[Array, " K"]
    num_infinite: Int[Array, " K"]
    nan_x: Float[Array, "K n"]
    infinite_x: Float[Array, "K n"]


def recorded(faults: Faults, x, evaluation: Evaluation) -> tuple[Faults, Evaluation]:
    """NaN (in fitness or descriptor) and `+inf` become `-inf`, counted; the first genotype of each kind is kept."""
    infinite = evaluation.fitness == jnp.inf
    not_finite = jnp.any(~jnp.isfinite(evaluation.descriptor), axis=-1) & (evaluation.fitness != -jnp.inf)
    nan = jnp.isnan(evaluation.fitness) | (not_finite & ~infinite)

    def first(old_count, old_x, bad):
        index = jnp.argmax(bad, axis=-1)[:, None, None]
        found = jnp.take_along_axis(x, index, axis=1)[:, 0]
        return jnp.where((old_count == 0)[:, None] & jnp.any(bad, axis=-1)[:, None], found, old_x)

    def count(bad):
        return jnp.sum(bad, axis=-1, dtype=jnp.int32)

    faults = Faults(
        faults.num_nan + count(nan),
        faults.num_infinite + count(infinite),
        first(faults.num_nan, faults.nan_x, nan),
        first(faults.num_infinite, faults.infinite_x, infinite),
    )
    fitness = jnp.where(nan | infinite, -jnp.inf, evaluation.fitness)
    return faults, Evaluation(fitness, evaluation.descriptor, evaluation.extras)
