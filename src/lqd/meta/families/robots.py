"""Robots that walk for a short while, each with motors of different strength. Needs the extra `brax`.

A task is a robot of `tasks.brax` whose motors are weaker: the share of their strength that is left is drawn for each
motor of each task, and so is the reset by which it is judged (`noiseless`). Policies are small and have a box, which
the robots of benches do not: it is about as wide as their first weights.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from lqd.checks import whole
from lqd.errors import InvalidInput, shown
from lqd.tasks import brax
from lqd.tasks.brax import RobotTask
from lqd.tasks.task import Box
from lqd.types import Evaluation, pytree, static

BOX = 0.5  # uniform in it, weights have a standard deviation of 0.29; where there is no box, of 0.25


@dataclasses.dataclass(frozen=True)
class Robots:
    """One kind of robot; every motor keeps between `weakest` and all of its strength."""

    robot: str = "hopper"
    episode_length: int = 100
    num_hidden: int = 4
    weakest: float = 0.5
    backend: str = "spring"

    def __post_init__(self):
        whole("num_hidden", self.num_hidden, 1)
        if not isinstance(self.weakest, int | float) or not 0 < self.weakest <= 1:
            raise InvalidInput(f"weakest must be a share above 0 and of at most 1, got {shown(self.weakest)}.")
        _ = self.task  # says what does not fit, and what is missing

    @property
    def task(self) -> RobotTask:
        return RobotTask(self.robot, self.episode_length, self.backend)

    @property
    def name(self) -> str:
        return f"robots-{self.robot}"

    @property
    def version(self) -> int:
        return 1

    @property
    def descriptor_dim(self) -> int:
        return self.task.descriptor_dim

    @property
    def multiple(self) -> int:
        return 1

    def sample(self, key: Key[Array, ""], num_tasks: int) -> "RobotBatch":
        key_strength, key_start = jax.random.split(key)
        shape = (num_tasks, self.task.num_actions)
        strength = jax.random.uniform(key_strength, shape, minval=self.weakest, maxval=1.0)
        return RobotBatch(strength, jax.random.split(key_start, num_tasks), self)


@pytree
class RobotBatch:
    strength: Float[Array, "K a"]
    start: Key[Array, " K"]
    family: Robots = static()

    @property
    def num_tasks(self) -> int:
        return self.strength.shape[0]

    @property
    def dim(self) -> int:
        return self.family.task.num_weights(self.family.num_hidden)

    @property
    def descriptor_dim(self) -> int:
        return self.family.descriptor_dim

    @property
    def bounds(self) -> Box:
        return jnp.full(self.dim, -BOX), jnp.full(self.dim, BOX)

    @property
    def f_opt(self) -> None:
        return None

    @property
    def descriptor_range(self):
        low, high = self.family.task.descriptor_bounds
        shape = (self.num_tasks, self.descriptor_dim)
        return jnp.broadcast_to(low, shape), jnp.broadcast_to(high, shape)

    def evaluate(self, key: Key[Array, " K"], x: Float[Array, "K B n"]) -> Evaluation:
        return Evaluation(*self._walked(jax.vmap(lambda key: jax.random.split(key, x.shape[1]))(key), x))

    def noiseless(self, x: Float[Array, "K B n"]) -> Float[Array, "K B"]:
        return self._walked(jnp.broadcast_to(self.start[:, None], x.shape[:2]), x)[0]

    def _walked(self, keys: Key[Array, "K B"], x: Float[Array, "K B n"]):
        """Return and descriptor of an episode of each policy."""
        task = self.family.task

        def walk(strength, keys, x):
            env = Weakened(task.simulator, strength)
            return brax.rollout(env, task.describe, keys, x, task.episode_length)[:2]

        with brax.leniently():
            return jax.vmap(walk)(self.strength, keys, x)


@dataclasses.dataclass(frozen=True)
class Weakened:
    """A simulator in which motors have only a share of their strength."""

    env: Any
    strength: Float[Array, " a"]

    @property
    def action_size(self) -> int:
        return self.strength.shape[0]

    def reset(self, key):
        return self.env.reset(key)

    def step(self, state, action):
        return self.env.step(state, action * self.strength)
