"""Runs of several rules on the seeds of one slow task, side by side: what each would do alone, evaluated in one call.

A simulator takes hardly longer for the children of seven rules than for those of one, but long enough for a run to be
interrupted. So the host leads: a call per generation, and once a minute all states go into a file to resume from.
"""

import dataclasses
import functools
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from lqd.errors import Unreadable
from lqd.evolution import loop
from lqd.io.files import read_arrays, write_arrays
from lqd.meta.config import Config
from lqd.rules.protocol import Rule, ready
from lqd.search import saving
from lqd.tasks import without_descriptors
from lqd.tasks.task import Repeated, TaskBatch

KIND = "together"
KEEP_S, KEEP_RATIO = 60.0, 20.0  # from one state to the next: so long, and so many times as long as the writing takes

Rows = list[dict[str, np.ndarray]]  # for each rule: measure -> (rows so far, seeds)


class Progress(NamedTuple):
    """How far the runs have come."""

    states: list[loop.State]
    rows: Rows
    seconds: float


class Kept:
    """The file with the states of runs on their way; `about` says of which runs."""

    def __init__(self, path: pathlib.Path, about: dict[str, Any]):
        self.path, self.about = path, about

    def fits(self) -> bool:
        """Whether something is kept of just these runs."""
        try:
            description = read_arrays(self.path, KIND)[1]
        except Unreadable:
            return False
        return isinstance(description.pop("seconds", None), float) and description == self.about

    def read(self, like: list[loop.State]) -> Progress | None:
        """What is kept of just these runs."""
        if not self.fits():
            return None
        try:
            arrays, description = read_arrays(self.path, KIND)
            rows: Rows = [{} for _ in like]
            leaves: list[dict[str, np.ndarray]] = [{} for _ in like]
            for name, value in arrays.items():
                what, index, rest = name.split(".", 2)
                (rows if what == "rows" else leaves)[int(index)][rest] = value
            states = [saving.restored(one, mine, self.path) for one, mine in zip(like, leaves, strict=True)]
        except (Unreadable, ValueError, IndexError):  # not ours: begin anew
            return None
        return Progress(states, rows, description["seconds"])

    def write(self, progress: Progress) -> None:
        arrays = {
            f"states.{i}.{name}": np.asarray(leaf)
            for i, state in enumerate(progress.states)
            for name, leaf in saving.leaves(state).items()
        } | {f"rows.{i}.{name}": value for i, row in enumerate(progress.rows) for name, value in row.items()}
        write_arrays(self.path, KIND, arrays, self.about | {"seconds": progress.seconds})

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


class Runs:
    """The runs of some rules, each under descriptors of its kind (see `without_descriptors`; empty: as they are)."""

    def __init__(self, config: Config, kinds: Sequence[str], rules: Sequence[Rule], keys, field):
        assert isinstance(field.tasks, Repeated)
        self.config, self.kinds, self.rules = config, tuple(kinds), tuple(rules)
        self.keys, self.tasks, self.start = keys, field.tasks, field.start

    def run(self, rows: np.ndarray, measured: Callable, kept: Kept, look: Callable[[int], None]):
        """For each rule: its measures after the generations `rows`, and its last population; and how long it took."""
        begin = functools.partial(_begin, self.config, self.kinds, self.rules, self.keys, self.tasks, self.start)
        many = Repeated(self.tasks.task, len(self.rules) * len(self.keys))
        begun = time.perf_counter()
        like = [dataclasses.replace(state, key=self.keys) for state in jax.eval_shape(begin)]
        states, found, before = kept.read(like) or Progress(begin(), [{} for _ in self.rules], 0.0)
        generation, begun = int(states[0].generation), begun - before
        due = time.perf_counter() + KEEP_S
        while generation < rows[-1]:
            states = _step(self.config, self.kinds, self.rules, many, self.start, states)
            generation = int(states[0].generation)
            look(generation)
            if generation in rows:
                new = [jax.tree.map(np.asarray, measured(state)) for state in states]
                found = [_appended(old, row) for old, row in zip(found, new, strict=True)]
            if (now := time.perf_counter()) > due:
                kept.write(Progress(states, found, now - begun))
                due = time.perf_counter() + max(KEEP_S, KEEP_RATIO * (time.perf_counter() - now))
        last = [(row, s.population.fitness, s.population.descriptor) for row, s in zip(found, states, strict=True)]
        return last, time.perf_counter() - begun


def _appended(rows: dict[str, np.ndarray], row: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([rows.get(name, value[None][:0]), value[None]]) for name, value in row.items()}


def _alter(kinds: tuple[str, ...]) -> list[Callable | None]:
    return [functools.partial(without_descriptors.alter, kind) if kind else None for kind in kinds]


@functools.partial(jax.jit, static_argnums=(0, 1))
def _begin(config: Config, kinds, rules: tuple[Rule, ...], keys, tasks: TaskBatch, start) -> list[loop.State]:
    return loop.begin_together(keys, tasks, tuple(map(ready, rules)), config.population_size, start, _alter(kinds))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _step(config: Config, kinds, rules: tuple[Rule, ...], many: TaskBatch, start, states) -> list[loop.State]:
    rules = tuple(map(ready, rules))
    return loop.step_together(states, many, rules, config.reproduction, config.batch_size, start, _alter(kinds))
