"""Tasks without informative descriptors, for the ablation: does a rule use descriptors?"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from lqd.types import Evaluation

# Folded into the key of an evaluation. `fold_in(key, i)` is `split(key, n)[i]`, and robots split that key among the
# policies: no task has that many. Before, it was 1, the second policy's.
STREAM = 0xDE5C0002
MARKS = {"random": "+descriptors-2"}  # kept results of other random descriptors are not taken for these


def keys(key: Key[Array, " K"]) -> Key[Array, " K"]:
    """Where random descriptors come from, of the keys that tasks are evaluated with."""
    return jax.vmap(lambda one: jax.random.fold_in(one, STREAM))(key)


def random(key: Key[Array, " K"], evaluation: Evaluation) -> Evaluation:
    """Standard normal descriptors, others in each evaluation."""
    shape, dtype = evaluation.descriptor.shape[1:], evaluation.descriptor.dtype
    descriptor = jax.vmap(lambda one: jax.random.normal(one, shape, dtype))(keys(key))
    return Evaluation(evaluation.fitness, descriptor, evaluation.extras)


def zero(key: Key[Array, " K"], evaluation: Evaluation) -> Evaluation:
    """The same descriptor for all."""
    return Evaluation(evaluation.fitness, jnp.zeros_like(evaluation.descriptor), evaluation.extras)


KINDS = {"random": random, "zero": zero}
