"""Planar arms of many joints: `tasks.arm`, padded, so that one program serves arms of any length up to the widest.

Held out, by construction: arms of 10 to 14 joints (the community's has 12) and of more than 80 (its other one, 100).
Benches measure on those, and no rule may be trained or chosen on what it is measured by.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from lqd.checks import whole
from lqd.errors import InvalidInput
from lqd.tasks.task import Box
from lqd.types import Evaluation, pytree, static

HELD_OUT = range(10, 15)
MOST = 80


@dataclasses.dataclass(frozen=True)
class Arms:
    """The number of joints is drawn for each task."""

    min_joints: int = 4
    max_joints: int = 9

    def __post_init__(self):
        whole("min_joints", self.min_joints, 2)
        whole("max_joints", self.max_joints, 2)
        if self.max_joints < self.min_joints:
            raise InvalidInput(f"max_joints must be at least min_joints = {self.min_joints}, got {self.max_joints}.")
        if self.max_joints > MOST or (self.max_joints >= HELD_OUT.start and self.min_joints < HELD_OUT.stop):
            raise InvalidInput(
                f"arms of {HELD_OUT.start} to {HELD_OUT.stop - 1} joints and of more than {MOST} are held out for "
                f"benches: give a range outside of these, got {self.min_joints} to {self.max_joints}."
            )

    @property
    def name(self) -> str:
        return "arm-small" if self.max_joints < HELD_OUT.start else "arm-large"

    @property
    def version(self) -> int:
        return 1

    @property
    def descriptor_dim(self) -> int:
        return 2

    @property
    def multiple(self) -> int:
        return 1

    def sample(self, key: Key[Array, ""], num_tasks: int) -> "ArmBatch":
        num_joints = jax.random.randint(key, (num_tasks,), self.min_joints, self.max_joints + 1, jnp.int32)
        return ArmBatch(num_joints, self.max_joints)


@pytree
class ArmBatch:
    """Arms of `num_joints`; genes of joints that an arm does not have are padding."""

    num_joints: Int[Array, " K"]
    width: int = static()

    @property
    def num_tasks(self) -> int:
        return self.num_joints.shape[0]

    @property
    def dim(self) -> int:
        return self.width

    @property
    def descriptor_dim(self) -> int:
        return 2

    @property
    def bounds(self) -> Box:
        return jnp.zeros(self.dim), jnp.ones(self.dim)

    @property
    def f_opt(self) -> Float[Array, " K"]:
        return jnp.zeros(self.num_tasks)

    @property
    def descriptor_range(self):
        return jnp.zeros((self.num_tasks, 2)), jnp.ones((self.num_tasks, 2))

    def evaluate(self, key: Key[Array, " K"], x: Float[Array, "K B n"]) -> Evaluation:
        del key
        angle = jnp.cumsum(2 * math.pi * x - math.pi, axis=-1)  # including padding, which comes last
        position = jnp.stack([self._mean(jnp.cos(angle)), self._mean(jnp.sin(angle))], axis=-1)
        return Evaluation(self.noiseless(x), (position + 1) / 2)

    def noiseless(self, x: Float[Array, "K B n"]) -> Float[Array, "K B"]:
        return -jnp.sqrt(self._mean((x - self._mean(x)[..., None]) ** 2))

    def _mean(self, values: Float[Array, "K B n"]) -> Float[Array, "K B"]:
        """Over the joints that there are."""
        number = self.num_joints[:, None, None]
        live = jnp.arange(self.width, dtype=number.dtype) < number
        return jnp.sum(jnp.where(live, values, 0.0), axis=-1) / self.num_joints[:, None].astype(values.dtype)
