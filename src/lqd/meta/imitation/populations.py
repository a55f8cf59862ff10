"""Populations to imitate on: synthetic ones, and those of real runs.

A batch of them is a pair `fitness (num, P), descriptor (num, P, D)`, with descriptors scaled such that the task's
descriptor box is [-1, 1]^D; an empty slot has fitness `-inf`.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from lqd.evolution import loop
from lqd.evolution.variation import IsoLine
from lqd.meta import inner_run
from lqd.meta.imitation.settings import Imitation
from lqd.meta.tasks import Distribution
from lqd.rules.protocol import Rule, ready

Populations = tuple[Float[Array, "num P"], Float[Array, "num P D"]]

MAX_DIM = 12  # of the search space behind synthetic populations: that of the paper's tasks, whatever the run's are
BOX = 5.0  # its half width


@partial(jax.jit, static_argnames=("num", "num_individuals", "descriptor_dim"))
def synthetic(key: Key[Array, ""], num: int, num_individuals: int, descriptor_dim: int) -> Populations:
    """Random populations like those met in real runs, from the uniform cloud of the start to the late tight cluster.

    They live in a search space of 2 to 12 dimensions and are described by a random projection, as BBOB tasks are: that
    gives descriptors the correlations, and the columns of unequal width, that real ones have.
    """
    make = partial(_synthetic_one, num_individuals=num_individuals, descriptor_dim=descriptor_dim)
    return jax.vmap(make)(jax.random.split(key, num))


class _Draws:
    """Pieces of one large draw, one after the other: each call of the generator would take a second to compile."""

    def __init__(self, numbers: Float[Array, " total"]):
        self.numbers, self.used = jax.lax.optimization_barrier(numbers), 0

    def __call__(self, *shape: int) -> Float[Array, "..."]:
        first, self.used = self.used, self.used + math.prod(shape)
        return self.numbers[first : self.used].reshape(shape)

    def between(self, low: float, high: float, *shape: int) -> Float[Array, "..."]:
        return low + (high - low) * self(*shape)

    def log_between(self, low: float, high: float, *shape: int) -> Float[Array, "..."]:
        return low * jnp.power(high / low, self(*shape))


def _synthetic_one(key, num_individuals: int, descriptor_dim: int):
    key_uniform, key_normal = jax.random.split(key)
    uniform = _Draws(jax.random.uniform(key_uniform, (20 * num_individuals + 400,)))
    normal = _Draws(jax.random.normal(key_normal, (27 * num_individuals + 12 * descriptor_dim + 200,)))
    num_dims = jnp.floor(uniform.between(2, MAX_DIM + 1))
    live = jnp.arange(MAX_DIM, dtype=jnp.float32) < num_dims
    x = jnp.where(live, _with_children(uniform, normal, _points(uniform, normal, num_individuals)), 0.0)
    projection = normal(MAX_DIM, descriptor_dim) / (2 * BOX * jnp.sqrt(num_dims))
    fitness = _synthetic_fitness(uniform, normal, x, live)
    empty = uniform(num_individuals) < jnp.where(uniform() < 0.1, 2 / 3 * uniform(), 0.0)
    return jnp.where(empty, -jnp.inf, fitness), jnp.matmul(x, projection)


def _points(uniform: _Draws, normal: _Draws, num: int) -> Float[Array, "num W"]:
    """Up to 8 clusters of unequal size, spread and shape, some heavy-tailed, with outliers; or a uniform cloud."""
    cloud = uniform.between(-BOX, BOX, num, MAX_DIM)
    centre = uniform.between(-BOX, BOX, 8, MAX_DIM)
    size = jnp.where(jnp.arange(8, dtype=jnp.float32) < uniform.between(1, 9), jnp.exp(1.5 * normal(8)), 0.0)
    member = jnp.searchsorted(jnp.cumsum(size)[:-1], uniform(num) * jnp.sum(size))
    spread = uniform.log_between(1e-3, BOX) * uniform.log_between(0.2, 5, 8, 1)
    spread = spread * uniform.log_between(0.3, 3, 8, MAX_DIM)
    tail = jnp.where(uniform() < 0.2, jax.lax.rsqrt(uniform(num, 1) + 1e-3), 1.0)
    clustered = jnp.clip(centre[member] + spread[member] * tail * normal(num, MAX_DIM), -BOX, BOX)
    outliers = jnp.where(uniform() < 0.3, 1.0, uniform.between(-0.1, 0.1))
    return jnp.where(uniform(num, 1) < outliers, cloud, clustered)


def _with_children(uniform: _Draws, normal: _Draws, x: Float[Array, "P W"]) -> Float[Array, "P W"]:
    """Some become children of others, by iso-line variation of any strength; at times, duplicates."""
    num = x.shape[0]
    # Some have many children: as time goes by, survivors of the same family gather.
    place = jnp.power(uniform(2, num), uniform.log_between(1, 4))
    parent = jnp.minimum(jnp.floor(place * num).astype(jnp.int32), num - 1)
    x1, x2 = x[parent[0]], x[parent[1]]
    iso_sigma, line_sigma = uniform.log_between(1e-4, 0.01), uniform.log_between(1e-3, 0.1)
    child = x1 + iso_sigma * normal(num, MAX_DIM) + line_sigma * normal(num, 1) * (x2 - x1)
    child = jnp.where(uniform() < 0.03, x1, jnp.clip(child, -BOX, BOX))
    return jnp.where(uniform(num, 1) < uniform.between(0, 0.7), child, x)


def _synthetic_fitness(uniform: _Draws, normal: _Draws, x: Float[Array, "P W"], live) -> Float[Array, " P"]:
    """Minus a power of a badly scaled quadratic, with ripples, and noise that may be as heavy-tailed as Cauchy's."""
    num = x.shape[0]
    optimum = jnp.where(uniform() < 0.5, x[0], uniform.between(-BOX, BOX, MAX_DIM))
    axes = jnp.where(uniform() < 0.5, jnp.eye(MAX_DIM), normal(MAX_DIM, MAX_DIM))
    z = jnp.matmul(jnp.where(live, x - optimum, 0.0), axes * uniform.log_between(0.1, 10, MAX_DIM))
    distance = jnp.sqrt(jnp.sum(z**2, axis=1))
    typical = jnp.mean(distance) + 1e-6
    ripples = jnp.sum(1 - jnp.cos(z / typical * uniform.log_between(4, 80)), axis=1)
    value = jnp.power(distance / typical + 1e-3, uniform.log_between(0.3, 3))
    value = value + jnp.where(uniform() < 0.3, ripples, 0.0)
    heaviness = jnp.where(uniform() < 0.2, 1.0, 0.0)
    noise = normal(num) / (1e-3 + jnp.power(jnp.abs(normal(num)), heaviness))
    strength = jnp.where(uniform() < 0.4, 0.0, uniform.log_between(1e-2, 10))
    return -(value + strength * jnp.std(value) * noise)


def snapshots(num_generations: int, num: int) -> tuple[int, ...]:
    """Generations to look at, dense at the start, where populations change fastest, and with the last one."""
    wanted = np.geomspace(1, num_generations, min(num, num_generations))
    return tuple(np.unique(np.round(wanted).astype(int) - 1).tolist())


def populations_of_runs(key, rule: Rule, config: "Imitation", descriptor_dim: int) -> Populations:
    """All competing individuals, as the rule saw them, in some generations of one run per fresh training task."""
    key_tasks, key_runs = jax.random.split(key)
    if config.tasks:
        ((family, _),) = config.tasks
    else:
        family = Distribution(config.functions, descriptor_dim=descriptor_dim)
    tasks = inner_run.in_unit_box(family.sample(key_tasks, config.num_tasks(family)))
    rule, operator = ready(rule), IsoLine.with_steps(config.iso_sigma, config.line_sigma)

    def everybody(state):
        """The individuals that compete next: the population, and the children that it is about to have."""
        _, evaluation = loop.propose(state, tasks, operator, config.batch_size)
        fitness = jnp.concatenate([state.population.fitness, evaluation.fitness], axis=1)
        fitness = jnp.where(jnp.isfinite(fitness), fitness, -jnp.inf)  # the loop does the same
        return fitness, jnp.concatenate([state.population.descriptor, evaluation.descriptor], axis=1)

    state = loop.begin(jax.random.split(key_runs, tasks.num_tasks), tasks, rule, config.population_size)
    generations = snapshots(config.num_generations, config.num_snapshots)
    _, pool = loop.evolve(
        lambda state: loop.step(state, tasks, rule, operator, config.batch_size), state,
        jnp.asarray(np.diff(generations, prepend=0), jnp.int32), everybody,
    )  # fmt: skip
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), pool)


def _reflected(key, descriptor: Float[Array, "P D"]) -> Float[Array, "P D"]:
    """Mirrored at a random hyperplane through the origin: distances stay, the columns change."""
    normal = jax.random.normal(key, descriptor.shape[-1:])
    normal = normal / jnp.maximum(jnp.linalg.norm(normal), 1e-6)
    return descriptor - 2 * jnp.sum(descriptor * normal, axis=-1, keepdims=True) * normal


def drawn(key, num: int, pool: Populations) -> Populations:
    """Some of the pool, each seen from a random side: a pool lasts longer so."""
    key_which, key_side = jax.random.split(key)
    which = jax.random.randint(key_which, (num,), 0, pool[0].shape[0])
    return pool[0][which], jax.vmap(_reflected)(jax.random.split(key_side, num), pool[1][which])
