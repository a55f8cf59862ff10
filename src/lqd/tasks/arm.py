"""A planar robot arm: reach every place with joints as equal as possible.

The genotype holds one number in [0, 1] per joint. Each joint turns by 2 pi x - pi relative to the link before it, the
links have length 1 / num_joints, and the base is in the middle of the unit square. Fitness is minus the standard
deviation of the genotype (ddof 0), the descriptor the end effector's position, scaled from [-1, 1]^2 to [0, 1]^2.
Both are exact: there is no noise.
"""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from lqd.errors import InvalidInput
from lqd.tasks.task import Box
from lqd.types import Evaluation, pytree, static


@pytree
class Arm:
    num_joints: int = static(default=8)

    def __post_init__(self):
        if not isinstance(self.num_joints, int) or self.num_joints < 1:
            raise InvalidInput(f"num_joints must be a whole number of at least 1, got {self.num_joints!r}.")

    @property
    def name(self) -> str:
        return "arm"

    @property
    def dim(self) -> int:
        return self.num_joints

    @property
    def descriptor_dim(self) -> int:
        return 2

    @property
    def bounds(self) -> Box:
        return jnp.zeros(self.dim), jnp.ones(self.dim)

    @property
    def descriptor_bounds(self) -> Box:
        return jnp.zeros(2), jnp.ones(2)

    @property
    def f_opt(self) -> Float[Array, ""]:
        return jnp.zeros(())

    def evaluate(self, key: Key[Array, ""], x: Float[Array, "B n"]) -> Evaluation:
        del key
        angle = jnp.cumsum(2 * math.pi * x - math.pi, axis=-1)
        position = jnp.stack([jnp.cos(angle).mean(axis=-1), jnp.sin(angle).mean(axis=-1)], axis=-1)
        return Evaluation(self.noiseless(x), (position + 1) / 2)

    def noiseless(self, x: Float[Array, "B n"]) -> Float[Array, " B"]:
        return -jnp.std(x, axis=-1)
