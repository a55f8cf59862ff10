"""Tasks whose descriptors were taken away, for the ablation: does a rule use what they say?"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from lqd.tasks.task import Box, TaskBatch
from lqd.types import Evaluation, pytree, static

KINDS = ("random", "zero")


def alter(kind: str, key: Key[Array, " K"], evaluation: Evaluation) -> Evaluation:
    """What was evaluated, with other descriptors."""
    shape, dtype = evaluation.descriptor.shape[1:], evaluation.descriptor.dtype
    if kind == "zero":
        descriptor = jnp.zeros_like(evaluation.descriptor)
    else:
        keys = jax.vmap(lambda one: jax.random.fold_in(one, 1))(key)  # not what noise is made from
        descriptor = jax.vmap(lambda one: jax.random.normal(one, shape, dtype))(keys)
    return Evaluation(evaluation.fitness, descriptor, evaluation.extras)


@pytree
class Altered:
    """The same tasks with descriptors that say nothing: `random` (standard normal in each evaluation) or `zero`."""

    tasks: TaskBatch
    kind: str = static()

    @property
    def num_tasks(self) -> int:
        return self.tasks.num_tasks

    @property
    def dim(self) -> int:
        return self.tasks.dim

    @property
    def descriptor_dim(self) -> int:
        return self.tasks.descriptor_dim

    @property
    def bounds(self) -> Box | None:
        return self.tasks.bounds

    def evaluate(self, key: Key[Array, " K"], x: Float[Array, "K B n"]) -> Evaluation:
        return alter(self.kind, key, self.tasks.evaluate(key, x))

    def noiseless(self, x: Float[Array, "K B n"]) -> Float[Array, "K B"]:
        return self.tasks.noiseless(x)
