"""The one driver: whole runs on the accelerator, cut into calls between which a host can look, save, and stop.

The number of generations in a call follows the clock (about a quarter of a second each), which changes nothing but
when the host looks: random numbers depend on the generation alone, and every call runs the same compiled program.

Several runs that differ in the rule can be driven side by side; their children are evaluated in one call.
"""

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lqd import interrupts
from lqd.evolution import compile_time, loop
from lqd.evolution.loop import ANYWHERE, Start, State
from lqd.evolution.variation import Operator, Variation
from lqd.rules.protocol import Rule, ready
from lqd.tasks.task import TaskBatch

STEPS_PER_CALL = 64
LOOSE = 256  # parts of a history that are joined into one
SECONDS_PER_CALL = 0.25

Alter = tuple[Callable | None, ...]
Measure = Callable[[State, Any], dict[str, Float[Array, " K"]]]


class Rows(NamedTuple):
    """History: generation, evaluations and time of each row, and each measure as `(num_rows, K)`.

    Of several runs, the tasks of one come after those of the other: `(num_rows, runs * K)`.
    """

    generation: np.ndarray
    num_evaluations: np.ndarray
    time_s: np.ndarray
    measures: dict[str, np.ndarray]

    @classmethod
    def join(cls, parts: "list[Rows]") -> "Rows":
        return cls(
            np.concatenate([part.generation for part in parts]),
            np.concatenate([part.num_evaluations for part in parts]),
            np.concatenate([part.time_s for part in parts]),
            {name: np.concatenate([part.measures[name] for part in parts]) for name in parts[0].measures},
        )

    def at(self, generations: Int[np.ndarray, " G"]) -> "Rows":
        """The rows of these generations."""
        keep = np.isin(self.generation, generations)
        measures = {name: value[keep] for name, value in self.measures.items()}
        return Rows(self.generation[keep], self.num_evaluations[keep], self.time_s[keep], measures)


def append(history: list[Rows], rows: Rows) -> None:
    """Adds a part to a history. Many small parts are joined into one: a row by itself takes 20 times the memory."""
    history.append(rows)
    if len(history) > LOOSE and len(history[-LOOSE - 1].generation) < LOOSE:
        history[-LOOSE - 1 : -1] = [Rows.join(history[-LOOSE - 1 : -1])]


class Run(NamedTuple):
    """The outcome of runs: their last states, their history, seconds, and why they ended before their budget, if they
    did.

    `failure` is what an evaluation raised inside the compiled program; the states are the last complete ones.
    """

    states: list[State]
    rows: Rows
    compile_s: float
    run_s: float
    stopped_by: str | None
    failure: Exception | None = None


def rows_every(population_size: int) -> int:
    """Generations between history rows: 1 where measuring is cheap, more where it would dominate the cost."""
    return 1 if population_size <= 256 else population_size // 32


def all_rows(num_generations: int, population_size: int) -> Int[np.ndarray, " R"]:
    """The generations of a run that have a history row: at regular intervals, and the last."""
    every = rows_every(population_size)
    return np.unique(np.append(np.arange(every, num_generations, every), num_generations))


def run(
    key: Key[Array, " K"],
    tasks: TaskBatch,
    rules: tuple[Rule, ...],
    operator: Operator | Variation,
    *,
    num_generations: int,
    population_size: int,
    batch_size: int,
    rows: Int[np.ndarray, " R"] | None = None,
    measure: Measure = loop.measure,
    measured_with: Any = None,
    start: Start = ANYWHERE,
    centroids=None,
    together: TaskBatch | None = None,
    alter: Alter = (),
    look: Callable[[list[State], list[Rows]], bool | None] | None = None,
    look_every_row: bool = False,
    time_limit_s: float | None = None,
    before: tuple[list[State], Rows] | None = None,
) -> Run:
    """Runs K tasks under each of the rules, of which there is usually one.

    Between calls `look(states, history so far)` may return True to stop. After each of the generations `rows`,
    `measure(state, measured_with)` makes a row. With several rules, `together` is the batch of the tasks of all of
    them, and some see descriptors `alter`ed. With `before`, the states and the history of the same runs, it continues
    them.
    """
    advance = functools.partial(
        _advance, tasks=tasks if together is None else together, rules=rules, operator=operator, start=start,
        batch_size=batch_size, alter=alter, measure=measure, measured_with=measured_with,
    )  # fmt: skip
    rows = all_rows(num_generations, population_size) if rows is None else np.asarray(rows)
    begun, clock = time.perf_counter(), compile_time.Clock()
    # A run that was cut has a last row that an uncut one does not have.
    history: list[Rows] = [] if before is None else [before[1].at(np.append(0, rows))]
    elapsed_before = 0.0 if before is None else float(before[1].time_s[-1])
    stopped_by: str | None = None
    failure: Exception | None = None

    def note(generation: np.ndarray, measures) -> None:
        elapsed = np.full(len(generation), time.perf_counter() - begun + elapsed_before)
        found = {name: np.asarray(value)[: len(generation)].copy() for name, value in measures.items()}
        append(history, Rows(generation, population_size + batch_size * generation, elapsed, found))

    def note_now() -> None:
        measures = _measure_all(measure, states, measured_with)
        note(np.array([int(states[0].generation)]), {name: np.asarray(value)[None] for name, value in measures.items()})

    def is_stopped() -> bool:
        return look is not None and look(states, history) is True

    with clock:
        if before is None:
            states = _begin(key, tasks, rules, operator, population_size, start, centroids, alter)
            note_now()
            stopped_by = "callback" if is_stopped() else None
        else:
            states = before[0]
        done = int(states[0].generation)
        num = 1
        try:
            while done < num_generations and stopped_by is None:
                ends = _next_ends(rows, done, min(done + num, num_generations), look_every_row)
                called = time.perf_counter()
                # On a GPU a failure shows when the result is waited for: only then does it become the state.
                advanced, measures = jax.block_until_ready(advance(states, *_padded(np.diff(ends, prepend=done))))
                is_row = np.isin(ends, rows)
                with interrupts.waiting():  # a state and its rows belong together
                    states = advanced
                    took, made, done = time.perf_counter() - called, int(ends[-1]) - done, int(ends[-1])
                    if is_row.any():  # the last end may lie between two rows
                        note(ends[is_row], measures)
                if is_stopped():
                    stopped_by = "callback"
                elif time_limit_s is not None and time.perf_counter() - begun >= time_limit_s:
                    stopped_by = "time limit" if done < num_generations else None
                num = min(max(1, int(made * SECONDS_PER_CALL / max(took, 1e-6))), 8 * made)
        except Exception as error:  # a host callback in an evaluation may raise anything, under several names
            stopped_by, failure = "error", error
        except KeyboardInterrupt:
            stopped_by = "interrupt"
        if int(states[0].generation) != history[-1].generation[-1]:  # it ended between two rows
            note_now()
    elapsed = time.perf_counter() - begun
    return Run(states, Rows.join(history), clock.seconds, elapsed - clock.seconds, stopped_by, failure)


def _next_ends(rows: Int[np.ndarray, " R"], done: int, wanted: int, is_one_row: bool) -> Int[np.ndarray, " E"]:
    """Generations at which the steps of the next call end: the rows up to `wanted`, which is itself the last if a row
    is too far away."""
    ahead = rows[rows > done]
    if is_one_row:
        return ahead[:1]
    within = ahead[: np.searchsorted(ahead, wanted, side="right")][:STEPS_PER_CALL]
    return within if len(within) else np.array([wanted])


def _padded(steps: Int[np.ndarray, " E"]) -> tuple[Int[np.ndarray, " S"], np.int32]:
    """The steps of a call, padded to a fixed length so that it compiles once, and how many of them count."""
    padded = np.zeros(STEPS_PER_CALL, np.int32)
    padded[: len(steps)] = steps
    return padded, np.int32(len(steps))


@functools.partial(jax.jit, static_argnames=("population_size", "alter"))
def _begin(key, tasks: TaskBatch, rules, operator, population_size: int, start, centroids, alter) -> list[State]:
    rules = tuple(map(ready, rules))
    return loop.begin_together(key, tasks, rules, population_size, start, alter, centroids, operator)


@functools.partial(jax.jit, static_argnames=("batch_size", "alter", "measure"))
def _advance(states, steps, num_steps, *, tasks, rules, operator, start, batch_size, alter, measure, measured_with):
    rules = tuple(map(ready, rules))

    def step(states):
        return loop.step_together(states, tasks, rules, operator, batch_size, start, alter)

    return loop.evolve(step, states, steps, lambda states: _measures(measure, states, measured_with), num_steps)


def _measures(measure: Measure, states: list[State], measured_with) -> dict[str, Float[Array, " runs*K"]]:
    """Measures of all runs, one after the other."""
    found = [measure(state, measured_with) for state in states]
    return {name: jnp.concatenate([one[name] for one in found]) for name in found[0]}


_measure_all = jax.jit(_measures, static_argnums=0)
