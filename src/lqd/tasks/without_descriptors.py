"""Descriptors taken away, for the ablation: does a rule use what they say?"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from lqd.types import Evaluation


def random(key: Key[Array, " K"], evaluation: Evaluation) -> Evaluation:
    """Standard normal descriptors, others in each evaluation."""
    shape, dtype = evaluation.descriptor.shape[1:], evaluation.descriptor.dtype
    keys = jax.vmap(lambda one: jax.random.fold_in(one, 1))(key)  # not what noise is made from
    descriptor = jax.vmap(lambda one: jax.random.normal(one, shape, dtype))(keys)
    return Evaluation(evaluation.fitness, descriptor, evaluation.extras)


def zero(key: Key[Array, " K"], evaluation: Evaluation) -> Evaluation:
    """The same descriptor for everybody."""
    return Evaluation(evaluation.fitness, jnp.zeros_like(evaluation.descriptor), evaluation.extras)


KINDS = {"random": random, "zero": zero}
