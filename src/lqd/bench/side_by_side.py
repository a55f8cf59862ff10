"""Runs of several rules on the seeds of one slow task, side by side: each as it would be alone, evaluated in one call.

A simulator takes hardly longer for the children of seven rules than for those of one, but long enough for a run to be
interrupted: once a minute all states go into a file to resume from.
"""

import dataclasses
import functools
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from lqd.bench.settings import Field, Setting
from lqd.errors import Unreadable
from lqd.evolution import driver, loop
from lqd.evolution.driver import Rows
from lqd.io.files import read_arrays, write_arrays
from lqd.io.throttle import Throttle
from lqd.rules.protocol import Rule, ready
from lqd.search import saving
from lqd.tasks.task import Repeated

KIND = "together"
KEEP_S, KEEP_SHARE = 60.0, 0.05  # from one state to the next, and of the time for writing them


class OutOfTime(Exception):
    """The time limit was reached; finished work is kept."""


class Kept:
    """The file with the states of unfinished runs; `about` says which runs."""

    def __init__(self, path: pathlib.Path, about: dict[str, Any]):
        self.path, self.about = path, about

    def fits(self) -> bool:
        """Whether the kept states are those of exactly these runs."""
        try:
            return read_arrays(self.path, KIND)[1] == self.about
        except Unreadable:
            return False

    def read(self, like: list[loop.State]) -> tuple[list[loop.State], Rows] | None:
        """The kept states of exactly these runs."""
        if not self.fits():
            return None
        try:
            arrays, _ = read_arrays(self.path, KIND)
            states = [
                saving.restored(one, saving.under(f"states.{i}.", arrays), self.path) for i, one in enumerate(like)
            ]
            return states, saving.rows_from(arrays)
        except (Unreadable, KeyError):  # not of these runs: begin anew
            return None

    def write(self, states: list[loop.State], rows: Rows) -> None:
        arrays = {
            f"states.{i}.{name}": np.asarray(leaf)
            for i, state in enumerate(states)
            for name, leaf in saving.leaves(state).items()
        }
        write_arrays(self.path, KIND, arrays | saving.arrays_of(rows), self.about)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def run(
    setting: Setting,
    field: Field,
    keys,
    rules: Sequence[Rule],
    alter: driver.Alter,
    measure: driver.Measure,
    measured_with: Any,
    kept: Kept,
    look: Callable[[int], None],
    until: float | None = None,
) -> tuple[list[tuple[dict[str, np.ndarray], loop.State]], float]:
    """For each rule: its measures at the setting's rows, and its last state; and how many seconds all took.

    What each rule sees of the descriptors may be `alter`ed. When time is up (`until`, as `time.perf_counter` says it),
    the states are kept and `OutOfTime` is raised.
    """
    if not isinstance(field.tasks, Repeated):
        raise TypeError(f"one task under several seeds can be run side by side, not {type(field.tasks).__name__}")
    num = len(keys)
    begin = functools.partial(
        loop.begin_together, keys, field.tasks, tuple(map(ready, rules)), setting.population_size, field.start, alter
    )
    like = [dataclasses.replace(state, key=keys) for state in jax.eval_shape(begin)]
    sometimes = Throttle(KEEP_S, KEEP_SHARE)

    def seen(states: list[loop.State], history: list[Rows]) -> None:
        if generation := int(states[0].generation):
            look(generation)
        sometimes(lambda: kept.write(states, Rows.join(history)))

    ran = driver.run(
        keys, field.tasks, tuple(rules), setting.operator, num_generations=setting.num_generations,
        population_size=setting.population_size, batch_size=setting.batch_size, rows=setting.rows, measure=measure,
        measured_with=measured_with, start=field.start, together=Repeated(field.tasks.task, len(rules) * num),
        alter=alter, look=seen, before=kept.read(like),
        time_limit_s=None if until is None else max(until - time.perf_counter(), 0.0),
    )  # fmt: skip
    if ran.stopped_by == "time limit":
        kept.write(ran.states, ran.rows)
        raise OutOfTime(f"generation {int(ran.states[0].generation):,} of {setting.num_generations:,} is kept")
    if ran.stopped_by is not None:
        raise ran.failure or KeyboardInterrupt
    if setting.num_resets:  # there is more to do, which may be cut
        kept.write(ran.states, ran.rows)
    is_row = np.isin(ran.rows.generation, setting.rows)
    of_each = [slice(i * num, (i + 1) * num) for i in range(len(rules))]
    measured = [{name: value[is_row, mine] for name, value in ran.rows.measures.items()} for mine in of_each]
    return list(zip(measured, ran.states, strict=True)), float(ran.rows.time_s[-1])
