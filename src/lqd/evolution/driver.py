"""A whole run on the accelerator, cut into calls between which a host can look, log, and stop.

The number of generations in a call follows the clock (about a quarter of a second each), which changes nothing but
when the host looks: random numbers depend on the generation alone, and every call runs the same compiled program.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from lqd.evolution import compile_time, loop
from lqd.evolution.loop import ANYWHERE, Start, State
from lqd.evolution.variation import Reproduction
from lqd.rules.protocol import Rule
from lqd.tasks.task import TaskBatch

ROWS_PER_CALL = 64
SECONDS_PER_CALL = 0.25


class Rows(NamedTuple):
    """History: generation, evaluations and time of each row, and each measure as `(num_rows, K)`."""

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


class Run(NamedTuple):
    """What a run left: the last state, its history, seconds, and why it ended before its budget (None: it did not).

    `failure` is what an evaluation raised inside the compiled program, after the last state that is whole.
    """

    state: State
    rows: Rows
    compile_s: float
    run_s: float
    stopped_by: str | None
    failure: Exception | None = None


def rows_every(population_size: int) -> int:
    """Generations between history rows: each one where measuring is cheap, fewer where it would cost more than that."""
    return 1 if population_size <= 256 else population_size // 32


def run(
    key: Key[Array, " K"],
    tasks: TaskBatch,
    rule: Rule,
    reproduction: Reproduction,
    *,
    num_generations: int,
    population_size: int,
    batch_size: int,
    every: int | None = None,
    start: Start = ANYWHERE,
    centroids=None,
    qd_offset=None,
    look: Callable[[State, Rows], bool | None] | None = None,
    look_every_row: bool = False,
    time_limit_s: float | None = None,
    before: tuple[State, Rows] | None = None,
) -> Run:
    """Runs K tasks for `num_generations`; `look(state, new rows)` comes between calls and may return True to stop.

    With `before`, a state of the same run and its history, it goes on from there.
    """
    every = every or rows_every(population_size)
    begun, clock = time.perf_counter(), compile_time.Clock()
    parts: list[Rows] = [] if before is None else [before[1]]
    elapsed_before = 0.0 if before is None else float(before[1].time_s[-1])
    stopped_by: str | None = None
    failure: Exception | None = None

    def note(state, generation, measures):
        elapsed = np.full(len(generation), time.perf_counter() - begun + elapsed_before)
        parts.append(Rows(generation, population_size + batch_size * generation, elapsed, measures))
        return look is not None and look(state, parts[-1]) is True

    with clock:
        if before is None:
            state = loop.jit_begin(key, tasks, rule, population_size, start, centroids)
            first = {name: np.asarray(value)[None] for name, value in loop.jit_measure(state, qd_offset).items()}
            if note(state, np.array([0]), first):
                stopped_by = "callback"
        else:
            state = before[0]
        done, num_rows = int(state.generation), 1
        try:
            while done < num_generations and stopped_by is None:
                num = min(num_rows * every, num_generations - done)
                called = time.perf_counter()
                # On a GPU a failure shows when the result is waited for: only then does it become the state.
                advanced, measures = loop.jit_advance(
                    state, tasks, rule, reproduction, jnp.int32(num), start, qd_offset,
                    batch_size=batch_size, every=every, capacity=ROWS_PER_CALL,
                )  # fmt: skip
                state = jax.block_until_ready(advanced)
                took = time.perf_counter() - called
                generation = np.minimum(np.arange(done + every, done + num + every, every), done + num)
                done += num
                if note(
                    state, generation, {name: np.asarray(value)[: len(generation)] for name, value in measures.items()}
                ):
                    stopped_by = "callback"
                elif time_limit_s is not None and time.perf_counter() - begun >= time_limit_s:
                    stopped_by = "time limit" if done < num_generations else None
                if not look_every_row:
                    faster = int(num_rows * SECONDS_PER_CALL / max(took, 1e-6))
                    num_rows = min(max(1, faster), 8 * num_rows, ROWS_PER_CALL)
        except Exception as error:  # a host callback in an evaluation may raise anything, under several names
            stopped_by, failure = "error", error
        except KeyboardInterrupt:
            stopped_by = "interrupt"
            if int(state.generation) != parts[-1].generation[-1]:  # it came between a call and its rows
                look = None
                measured = {name: np.asarray(value)[None] for name, value in loop.jit_measure(state, qd_offset).items()}
                note(state, np.array([int(state.generation)]), measured)
    elapsed = time.perf_counter() - begun
    return Run(state, Rows.join(parts), clock.seconds, elapsed - clock.seconds, stopped_by, failure)
