"""Families made of another: its tasks with noise on the fitness that rules see, or with fitness 0 or 1."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from lqd.checks import real
from lqd.errors import InvalidInput, shown
from lqd.meta import own_family
from lqd.meta.families.clipped import Clipped
from lqd.tasks.task import Box
from lqd.types import Evaluation, pytree

NUM_POINTS = 512  # random points, by which a task's fitness is known


def _pair(name: str, ends) -> tuple[float, float]:
    if not isinstance(ends, tuple | list) or len(ends) != 2 or not real(name, ends[0]) <= real(name, ends[1]):
        raise InvalidInput(f"{name} must be a pair, the lowest and the highest, got {shown(ends)}.")
    return float(ends[0]), float(ends[1])


def _random_fitness(key: Key[Array, ""], tasks, what: str) -> Float[Array, "K num"]:
    """Noiseless fitness of random points of each task."""
    if tasks.bounds is None:
        raise InvalidInput(f"{what} needs tasks with bounds, and these have none.")
    low, high = tasks.bounds
    uniform = jax.random.uniform(key, (tasks.num_tasks, NUM_POINTS, tasks.dim))
    return tasks.noiseless(low + uniform * (high - low))


@dataclasses.dataclass(frozen=True)
class Noisy:
    """The tasks of a family with noise on the fitness that rules see; what counts, `noiseless`, stays.

    Half of the tasks have additive noise, normal, with a standard deviation of `strength` times that of the fitness of
    random points. The other half have multiplicative noise: fitness times exp(s n), n normal. Strength is drawn
    log-uniformly for each task.
    """

    family: Any = dataclasses.field(default_factory=Clipped)
    strength: tuple[float, float] = (0.01, 0.3)

    def __post_init__(self):
        object.__setattr__(self, "family", own_family.of(self.family))
        strength = _pair("strength", self.strength)
        real("strength", strength[0], positive=True)
        object.__setattr__(self, "strength", strength)

    @property
    def name(self) -> str:
        return f"noisy-{self.family.name}"

    @property
    def version(self) -> int:
        return 1

    @property
    def descriptor_dim(self) -> int:
        return self.family.descriptor_dim

    @property
    def multiple(self) -> int:
        return self.family.multiple

    def sample(self, key: Key[Array, ""], num_tasks: int) -> "NoisyTasks":
        key_tasks, key_points, key_strength, key_kind = jax.random.split(key, 4)
        tasks = self.family.sample(key_tasks, num_tasks)
        low, high = self.strength
        strength = low * jnp.power(high / low, jax.random.uniform(key_strength, (num_tasks,)))
        spread = jnp.std(_random_fitness(key_points, tasks, self.name), axis=1)
        spread = jnp.where(jnp.isfinite(spread), spread, 0.0)
        return NoisyTasks(tasks, jax.random.bernoulli(key_kind, shape=(num_tasks,)), strength, spread)


@dataclasses.dataclass(frozen=True)
class Sparse:
    """The tasks of a family with fitness 1 where it is above a threshold, else 0.

    The threshold is the noiseless fitness that a share of random points is below, drawn for each task: of 512 points.
    """

    family: Any = dataclasses.field(default_factory=Clipped)
    below: tuple[float, float] = (0.5, 0.99)

    def __post_init__(self):
        object.__setattr__(self, "family", own_family.of(self.family))
        below = _pair("below", self.below)
        if below[1] > 1:
            raise InvalidInput(f"below must be shares of at most 1, got {shown(self.below)}.")
        object.__setattr__(self, "below", below)

    @property
    def name(self) -> str:
        return f"sparse-{self.family.name}"

    @property
    def version(self) -> int:
        return 1

    @property
    def descriptor_dim(self) -> int:
        return self.family.descriptor_dim

    @property
    def multiple(self) -> int:
        return self.family.multiple

    def sample(self, key: Key[Array, ""], num_tasks: int) -> "SparseTasks":
        key_tasks, key_points, key_share = jax.random.split(key, 3)
        tasks = self.family.sample(key_tasks, num_tasks)
        low, high = self.below
        share = jax.random.uniform(key_share, (num_tasks,), minval=low, maxval=high)
        fitness = jnp.sort(_random_fitness(key_points, tasks, self.name), axis=1)
        place = jnp.clip((share * NUM_POINTS).astype(jnp.int32), 0, NUM_POINTS - 1)
        return SparseTasks(tasks, jnp.take_along_axis(fitness, place[:, None], axis=1)[:, 0])


@pytree
class _Altered:
    """Tasks with another fitness; everything else is unchanged."""

    tasks: Any

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

    @property
    def descriptor_range(self):
        return self.tasks.descriptor_range


@pytree
class NoisyTasks(_Altered):
    is_additive: Bool[Array, " K"]
    strength: Float[Array, " K"]
    spread: Float[Array, " K"]

    @property
    def f_opt(self) -> Float[Array, " K"] | None:
        return self.tasks.f_opt

    def evaluate(self, key: Key[Array, " K"], x: Float[Array, "K B n"]) -> Evaluation:
        key_tasks, key_noise = jnp.moveaxis(jax.vmap(jax.random.split)(key), 1, 0)
        found = self.tasks.evaluate(key_tasks, x)
        noise = jax.vmap(lambda key: jax.random.normal(key, x.shape[1:2]))(key_noise) * self.strength[:, None]
        added = found.fitness + self.spread[:, None] * noise
        fitness = jnp.where(self.is_additive[:, None], added, found.fitness * jnp.exp(noise))
        return dataclasses.replace(found, fitness=fitness)

    def noiseless(self, x: Float[Array, "K B n"]) -> Float[Array, "K B"]:
        return self.tasks.noiseless(x)


@pytree
class SparseTasks(_Altered):
    threshold: Float[Array, " K"]

    @property
    def f_opt(self) -> Float[Array, " K"]:
        return jnp.ones_like(self.threshold)

    def evaluate(self, key: Key[Array, " K"], x: Float[Array, "K B n"]) -> Evaluation:
        found = self.tasks.evaluate(key, x)
        return dataclasses.replace(found, fitness=self._reached(found.fitness))

    def noiseless(self, x: Float[Array, "K B n"]) -> Float[Array, "K B"]:
        return self._reached(self.tasks.noiseless(x))

    def _reached(self, fitness: Float[Array, "K B"]) -> Float[Array, "K B"]:
        reached = (fitness >= self.threshold[:, None]).astype(fitness.dtype)
        return jnp.where(jnp.isfinite(fitness), reached, fitness)  # what failed, or is infeasible, stays so
