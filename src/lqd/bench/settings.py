"""What a bench runs on: functions or one task, seeds, sizes; and the resulting tasks."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lqd import checks, tasks
from lqd.errors import InvalidInput
from lqd.evolution import loop
from lqd.evolution.loop import BATCH_SIZE, POPULATION_SIZE
from lqd.evolution.variation import IsoLine
from lqd.tasks.bbob import instances
from lqd.tasks.task import Repeated, TaskBatch, start_scale

ARM = ("arm",)


@dataclasses.dataclass(frozen=True)
class Setting:
    """Fresh noiseless instances of some functions, one of each function (and dimension, in `dims`) per seed.

    Or a single task, the arm or a robot (`brax/...`) with episodes of a given length; its seeds need not begin at 0.
    The state of the runs is recorded `num_rows` times, at ever longer intervals, the last time at the end. Where
    evaluations depend on luck, the results are evaluated again `num_resets` times.
    """

    functions: tuple[str, ...] = instances.TRAINING_SET
    num_seeds: int = 32
    num_generations: int = 256
    min_dim: int = 2
    max_dim: int = 12
    dims: tuple[int, ...] = ()
    descriptor_dim: int = 2
    population_size: int = POPULATION_SIZE
    batch_size: int = BATCH_SIZE
    rotate: bool = True
    num_rows: int = 1
    episode_length: int = 1000
    first_seed: int = 0
    num_resets: int = 0

    def __post_init__(self):
        checks.whole("num_seeds", self.num_seeds, 1 if self.first_seed else 2)
        if self.first_seed and not self.is_single:
            raise InvalidInput(f"first_seed={self.first_seed} is for one task; functions draw all their seeds at once.")
        checks.whole("num_generations", self.num_generations, 1)
        checks.whole("num_rows", self.num_rows, 1)
        checks.whole("num_resets", self.num_resets, 0)

    @property
    def is_single(self) -> bool:
        return self.functions == ARM or self.functions[0].startswith("brax/")

    @property
    def num_evaluations(self) -> int:
        return self.population_size + self.num_generations * self.batch_size

    @property
    def columns(self) -> list[tuple[str, int | None]]:
        """Function and dimension (None: drawn, or the task's own) of every column of a table."""
        drawn = self.is_single or self.min_dim < self.max_dim
        dims: tuple[int | None, ...] = self.dims or (None if drawn else self.min_dim,)
        return [(function, dim) for function in self.functions for dim in dims]

    @property
    def rows(self) -> np.ndarray:
        """The generations after which the state is recorded."""
        if self.num_rows == 1:
            return np.asarray([self.num_generations])
        return np.unique(np.rint(np.geomspace(1, self.num_generations, self.num_rows)).astype(int))

    @property
    def steps(self) -> Int[Array, " R"]:
        """Generations from one row to the next."""
        return jnp.asarray(np.diff(self.rows, prepend=0), jnp.int32)

    @property
    def sizes(self) -> tuple[int, int]:
        """What the shapes of a program depend on, besides the tasks: population and batch."""
        return self.population_size, self.batch_size

    @property
    def operator(self) -> IsoLine:
        """The paper's variation."""
        return IsoLine.with_steps()


class Field(NamedTuple):
    """Tasks that share a descriptor box, what their descriptors were divided by for that, optima, where to begin."""

    tasks: TaskBatch
    box: tuple[np.ndarray, np.ndarray]
    scale: Float[Array, " K"]
    f_opt: Float[Array, " K"] | None
    start: loop.Start = loop.ANYWHERE


def field(key: Key[Array, ""], setting: Setting) -> Field:
    """The tasks of a setting: all seeds of a function (dimension by dimension), then all of the next."""
    return _single(setting) if setting.is_single else _landscapes(key, setting)


def _single(setting: Setting) -> Field:
    name, num = setting.functions[0], setting.num_seeds
    task = tasks.make(name, **{} if setting.functions == ARM else {"episode_length": setting.episode_length})
    if task.descriptor_bounds is None:
        raise InvalidInput(f"task {name!r} has no descriptor_bounds, which MAP-Elites needs.")
    low, high = map(np.asarray, task.descriptor_bounds)
    f_opt = None if task.f_opt is None else jnp.broadcast_to(task.f_opt, (num,))
    start = loop.Start(None, jnp.float32(start_scale(task)))
    return Field(Repeated(task, num), (low, high), jnp.ones(num), f_opt, start)


def _landscapes(key: Key[Array, ""], setting: Setting) -> Field:
    batch = instances.sample_batch(
        key, setting.functions, setting.num_seeds * max(len(setting.dims), 1),
        width=max(setting.dims or (setting.max_dim,)), min_dim=setting.min_dim, max_dim=setting.max_dim,
        dims=np.repeat(setting.dims, setting.num_seeds).tolist() if setting.dims else None,
        descriptor_dim=setting.descriptor_dim, noise=False, rotate=setting.rotate,
    )  # fmt: skip
    ones = np.ones(setting.descriptor_dim)
    return Field(batch.with_unit_descriptors(), (-ones, ones), batch.descriptor_half_width, batch.f_opt)


NUM_POINTS = 1024
SHARE = 0.95  # chosen by benchmarks/fitted_box.py; docs/decisions.md has its table


def fitted(key: Key[Array, ""], field: Field, share: float = SHARE, times: float = 1.0) -> Field:
    """The same landscapes with squares that hold just this share of the coordinates that descriptors of random points
    have, or `times` as wide.

    Nothing but the task goes into it: each has points of its own, uniform in the box of genotypes.
    """
    if not isinstance(field.tasks, instances.LandscapeBatch):
        raise TypeError(f"boxes are fitted to landscapes, not to {type(field.tasks).__name__}")
    width = times * _reach(key, field.tasks, jnp.asarray(share, jnp.float32))
    return field._replace(tasks=field.tasks.with_divided_descriptors(width), scale=field.scale * width)


@jax.jit
def _reach(key, batch: instances.LandscapeBatch, share) -> Float[Array, " K"]:
    """How far the descriptors' coordinates reach from the middle."""
    low, high = batch.bounds
    keys = jax.vmap(lambda k: jax.random.fold_in(key, k))(jnp.arange(batch.num_tasks))
    uniform = jax.vmap(lambda key: jax.random.uniform(key, (NUM_POINTS, batch.dim), jnp.float32))(keys)
    descriptor = batch.evaluate(keys, low + uniform * (high - low)).descriptor
    return jnp.quantile(jnp.abs(descriptor).reshape(batch.num_tasks, -1), share, axis=1)
