"""Runs of a rule on tasks, for training and validation, and their measures on noiseless fitness."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from lqd.evolution import loop
from lqd.evolution.led import led_by
from lqd.meta import course, objective
from lqd.meta.config import Config
from lqd.meta.course import Box, Seen
from lqd.meta.family import TrainingTasks
from lqd.meta.objective import Measures
from lqd.rules.protocol import Rule, ready
from lqd.tasks.anchors import Anchors, random_search
from lqd.tasks.bbob.instances import LandscapeBatch
from lqd.types import Evaluation, pytree


def run_rule(
    rule: Rule,
    keys: Key[Array, " K"],
    tasks: TrainingTasks,
    config: Config,
    num_generations: Int[Array, ""],
    f_rand: Float[Array, " K"] | None,
    f_worst: Float[Array, " K"] | None = None,
    box: Box | None = None,
) -> Measures:
    """Runs one rule on every task and measures it. Cells are laid over the `box`, by default the tasks' own.

    Fitness is counted from the optimum, where that is known.
    """
    aim, f_opt = config.objective, getattr(tasks, "f_opt", None)
    seen: Seen = {}
    if aim.needs_course:
        box = tasks.descriptor_range if box is None else box
        rule, sizes = _held(rule, config), (config.population_size, config.batch_size)
        population, seen = course.follow(
            rule, keys, tasks, config.operator, sizes, num_generations, config.num_cells, box, f_worst
        )  # fmt: skip
        fitness, descriptor = _noiseless(population, tasks), population.descriptor
    else:
        fitness, descriptor = final_populations(rule, keys, tasks, config, num_generations)
    anchors = {"f_opt": f_opt, "f_rand": f_rand, "f_worst": f_worst}
    known = {name: value.astype(fitness.dtype) for name, value in anchors.items() if value is not None}
    ends = (known["f_rand"], known["f_opt"]) if known.keys() >= {"f_rand", "f_opt"} else (None, None)
    found = jax.vmap(functools.partial(objective.measures, aim=aim))(fitness, descriptor, *ends, seen=seen | known)
    return found | {"fitness": found["fitness"] - known["f_opt"]} if "f_opt" in known else found


def run_scaled(
    rule: Rule, keys, tasks: TrainingTasks, config: Config, num_generations, f_rand, f_worst=None
) -> Measures:
    """The same with descriptors scaled to [-1, 1]; but on BBOB novelties and QD scores are in the tasks' own units."""
    ones = jnp.ones((tasks.num_tasks, tasks.descriptor_dim), loop.DTYPE)
    about = config, num_generations, f_rand, f_worst, (-ones, ones)
    measured = run_rule(rule, keys, in_unit_box(tasks), *about)
    if not isinstance(tasks, LandscapeBatch):
        return measured
    return measured | {
        name: measured[name] * tasks.descriptor_half_width for name in ("novelty", "qd") if name in measured
    }


def in_unit_box(tasks: TrainingTasks) -> TrainingTasks:
    """The same tasks with the range of every descriptor [-1, 1]."""
    return tasks.with_unit_descriptors() if isinstance(tasks, LandscapeBatch) else InUnitBox(tasks)


def run_trained(rule: Rule, keys, tasks: TrainingTasks, config: Config, *about) -> Measures:
    """As in training: a rule sees scaled descriptors, as it does in use; only those of BBOB are left as they are."""
    as_they_are = isinstance(tasks, LandscapeBatch) and config.objective.own is None
    return (run_rule if as_they_are else run_scaled)(rule, keys, tasks, config, *about)


def final_populations(rule: Rule, keys: Key[Array, " K"], tasks, config: Config, num_generations: Int[Array, ""]):
    """Noiseless fitness (K, N) and descriptors (K, N, D) that one rule ends with on every task."""
    rule, operator = _held(rule, config), config.operator
    state = loop.begin(keys, tasks, rule, config.population_size, operator=operator)
    state, _ = loop.evolve(
        lambda state: loop.step(state, tasks, rule, operator, config.batch_size), state, num_generations[None]
    )
    return _noiseless(state.population, tasks), state.population.descriptor


def _held(rule: Rule, config: Config) -> Rule:
    """The rule as the loop holds it."""
    return led_by(ready(rule), config.operator)


def _noiseless(population, tasks: TrainingTasks) -> Float[Array, "K N"]:
    return jnp.where(population.filled, tasks.noiseless(population.x), -jnp.inf)


def anchors(key: Key[Array, ""], tasks: TrainingTasks, num_evaluations) -> Anchors:
    """What random search reaches on each task with as many evaluations as a run."""
    return random_search(key, tasks, num_evaluations)


@pytree
class InUnitBox:
    """The same tasks with the range of every descriptor [-1, 1], as one tessellation for all of them needs it."""

    tasks: TrainingTasks

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
    def bounds(self):
        return self.tasks.bounds

    @property
    def f_opt(self) -> Float[Array, " K"] | None:
        return self.tasks.f_opt

    @property
    def descriptor_range(self) -> Box:
        ones = jnp.ones((self.num_tasks, self.descriptor_dim), loop.DTYPE)
        return -ones, ones

    def evaluate(self, key: Key[Array, " K"], x: Float[Array, "K B n"]) -> Evaluation:
        evaluation = self.tasks.evaluate(key, x)
        low, high = (end.astype(loop.DTYPE)[:, None] for end in self.tasks.descriptor_range)
        share = (evaluation.descriptor.astype(loop.DTYPE) - low) / jnp.where(high > low, high - low, 1.0)
        return dataclasses.replace(evaluation, descriptor=2 * share - 1)

    def noiseless(self, x: Float[Array, "K B n"]) -> Float[Array, "K B"]:
        return self.tasks.noiseless(x)
