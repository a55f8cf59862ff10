"""A search whose function runs on the host: called with a batch, or solution by solution in an executor."""

import contextlib
import time
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from lqd import checks
from lqd.errors import EvaluationFailed
from lqd.evolution.driver import Rows
from lqd.search import same_task
from lqd.search.ask_tell import AskTell
from lqd.search.progress import Bar, Callback, failed, interrupted, told_to_stop
from lqd.search.result import Result
from lqd.search.same_task import LEAST, Answers, Row
from lqd.search.saving import CheckpointFolder
from lqd.search.settings import Settings
from lqd.search.workers import NUM_TRIES, Outcome, Workers
from lqd.tasks.task import Task

HOST_NOISE = 2**16  # a stream of random numbers that the loop does not use
HOPELESS = 5  # this many solutions in a row that kill their workers end the run, if none succeeded before


class Source(Protocol):
    """Asks for solutions, has them evaluated and tells the results: by batches, or as they finish."""

    def step(self, search: AskTell, num_left: int) -> list[Rows]: ...

    def answers(self, search: AskTell, x: np.ndarray) -> list[Row | None]:
        """The answers for the very first solutions, or some of them, evaluated again."""
        ...


def optimize(
    evaluate,
    settings: Settings,
    num_generations: int,
    *,
    callback: Callback | None = None,
    time_limit_s: float | None = None,
    folder: CheckpointFolder | None = None,
    executor: Any = None,
    steady_state: bool = False,
    recheck: bool = True,
    bar: Bar | None = None,
) -> Result:
    """See `lqd.optimize`."""
    total = settings.population_size + num_generations * settings.batch_size
    search = AskTell.of(settings)
    with contextlib.ExitStack() as stack:
        if folder is not None:
            stack.enter_context(folder.lock())
            saved = folder.saved(settings, "host", total, evaluate)
            search = search if saved is None else search.restored(saved)
        search.task = same_task.described(evaluate)
        source: Source = Direct(_host_function(evaluate, settings))
        if executor is not None:
            workers = Workers(evaluate, executor)
            stack.callback(workers.close)
            source = SteadyState(workers, settings) if steady_state else Generational(workers, settings)
        if folder is not None and recheck and search.first is not None and not same_task.says_all(evaluate):
            _check_same(folder.path, search, search.first, source)
        return _run(search, source, total, callback, time_limit_s, folder, bar)


def _check_same(path, search: AskTell, first: Answers, source: Source) -> None:
    """An error if the function is not the one of before; none of its answers are told."""
    try:
        same_task.check(path, first, lambda: source.answers(search, first.x))
    except KeyboardInterrupt as error:
        raise interrupted(_partial(search, "interrupt")) from error


def _run(
    search: AskTell, source: Source, total: int, callback, time_limit_s, folder: CheckpointFolder | None,
    bar: Bar | None,
) -> Result:  # fmt: skip
    begun = time.perf_counter()
    stopped_by = None
    try:
        while search.num_evaluations < total and stopped_by is None:
            new_rows = source.step(search, total - search.num_evaluations)
            if bar is not None:
                bar.show(search.num_evaluations, new_rows)
            if told_to_stop(callback, new_rows, search.sign):
                stopped_by = "callback"
            elif time_limit_s is not None and time.perf_counter() - begun > time_limit_s:
                stopped_by = "time limit" if search.num_evaluations < total else None
            if folder is not None:
                folder.keep(search.save)
        if folder is not None:
            folder.keep(search.save, now=True)
    except EvaluationFailed:
        _keep_at_last(search, folder)
        raise
    except KeyboardInterrupt as error:
        _keep_at_last(search, folder)
        raise interrupted(_partial(search, "interrupt")) from error
    except Exception as error:  # a value that cannot be used, or an error of the callback: it carries the result so far
        _keep_at_last(search, folder)
        error.result = _partial(search)  # type: ignore[attr-defined]
        raise
    except BaseException:  # sys.exit
        _keep_at_last(search, folder)
        raise
    return search.result(stopped_by)


def _keep_at_last(search: AskTell, folder: CheckpointFolder | None) -> None:
    """Another error is already being raised, and matters more than a failure to write."""
    if folder is not None and search.num_evaluations:
        with contextlib.suppress(Exception):
            folder.keep(search.save, now=True)


def _partial(search: AskTell, stopped_by: str = "error") -> Result | None:
    return search.result(stopped_by) if search.num_evaluations else None


def _host_function(evaluate, settings: Settings) -> Callable[[np.ndarray, int], Any]:
    """A function of x and of the number evaluated before, which determines the noise of a task."""
    if not isinstance(evaluate, Task):
        return lambda x, num_before: evaluate(x)
    stream = jax.random.fold_in(settings.key()[0], HOST_NOISE)

    def call(x, num_before):
        evaluation = evaluate.evaluate(jax.random.fold_in(stream, num_before), jnp.asarray(x))
        return evaluation.fitness, evaluation.descriptor, evaluation.extras

    return call


class Direct:
    """Calls the function with a whole batch."""

    def __init__(self, evaluate: Callable):
        self._evaluate = evaluate

    def step(self, search: AskTell, num_left: int) -> list[Rows]:
        x = search.ask()
        return search.tell_checked(x, *self._call(search, x, search.num_evaluations))

    def answers(self, search: AskTell, x: np.ndarray) -> list[Row | None]:
        """Evaluates them in the same batches as before."""
        size, found = search.batch_size, list[Row | None]()
        for first in range(0, len(x), size):
            fitness, descriptor, _ = self._call(search, x[first : first + size], first)
            found += zip(fitness.tolist(), descriptor, strict=True)
        return found

    def _call(self, search: AskTell, x: np.ndarray, num_before: int):
        try:
            returned = self._evaluate(x.copy(), num_before)
        except Exception as error:
            raise failed(error, _partial(search)) from error
        return checks.evaluation(returned, len(x), search.descriptor_dim)


class _InExecutor:
    """Tells solutions that killed their workers too often as infeasible, and counts them."""

    def __init__(self, workers: Workers, settings: Settings):
        self._workers, self._settings = workers, settings
        self._num_good = 0
        self._num_failed_in_a_row = 0
        self._like: Any = None  # the answers for one that did not fail
        self._held: list[Outcome] = []

    def _tell(self, search: AskTell, outcomes: list[Outcome]) -> list[Rows]:
        """Tells them in the order in which they were asked for; failed ones wait until the shapes of answers are
        known."""
        outcomes = sorted([*self._held, *outcomes], key=lambda outcome: outcome.number)
        checked = {
            outcome.number: checks.evaluation(outcome.returned, 1, search.descriptor_dim)
            for outcome in outcomes
            if outcome.failure is None
        }
        self._like = self._like or next(iter(checked.values()), None)
        self._held = outcomes if self._like is None else []
        if self._held:
            return []
        for row in checked.values():
            checks.alike(self._like, row)
        rows, names = [checked.get(outcome.number) or self._infeasible() for outcome in outcomes], sorted(self._like[2])
        x = np.stack([outcome.x for outcome in outcomes])
        fitness, descriptor = (np.concatenate([row[i] for row in rows]) for i in (0, 1))
        extras = {name: np.concatenate([row[2][name] for row in rows]) for name in names}
        num_failed = sum(outcome.failure is not None for outcome in outcomes)
        return search.tell_checked(x, fitness, descriptor, extras, num_failed)

    def answers(self, search: AskTell, x: np.ndarray) -> list[Row | None]:
        """Evaluates only a few, as each one is a call."""
        for one in x[:LEAST]:
            self._workers.submit(one)
        found = list[Row | None]()
        for outcome in sorted([self._next(search) for _ in x[:LEAST]], key=lambda outcome: outcome.number):
            if outcome.failure is not None:
                found.append(None)
                continue
            fitness, descriptor, _ = checks.evaluation(outcome.returned, 1, search.descriptor_dim)
            found.append((float(fitness[0]), descriptor[0]))
        return found

    def _infeasible(self):
        """Fitness, descriptor and extras of a failed solution; arbitrary, except that it is infeasible."""
        _, descriptor, extras = self._like
        return np.array([-self._settings.sign * np.inf]), np.zeros_like(descriptor), extras

    def _ask(self, search: AskTell, num: int, in_pieces: bool) -> None:
        """Sends out what one ask gives, or, `in_pieces`, as many as there are."""
        while num > 0 and search.can_ask:
            asked = search.ask(num)
            for x in asked:
                self._workers.submit(x)
            num = num - len(asked) if in_pieces else 0
        if not self._workers.num_open:
            raise EvaluationFailed(f"nothing could be evaluated ({self._held[0].failure}).", _partial(search))

    def _next(self, search: AskTell) -> Outcome:
        outcome = self._workers.next()
        if outcome.raised is not None:
            raise failed(outcome.raised, _partial(search)) from outcome.raised
        if outcome.failure is None:
            self._num_good, self._num_failed_in_a_row = self._num_good + 1, 0
            return outcome
        self._num_failed_in_a_row += 1
        enough = max(self._settings.batch_size, HOPELESS) if self._num_good else HOPELESS
        if self._num_failed_in_a_row >= enough:
            raise EvaluationFailed(
                f"the executor's workers died on each of {self._num_failed_in_a_row} solutions in a row, "
                f"{NUM_TRIES} times on each ({outcome.failure}). In a script, code that starts processes must be under "
                f"`if __name__ == '__main__':`.",
                _partial(search),
            )
        return outcome


class Generational(_InExecutor):
    """Tells a batch when all of it is done, so the result does not depend on the order of finishing."""

    def step(self, search: AskTell, num_left: int) -> list[Rows]:
        self._ask(search, self._settings.batch_size, in_pieces=False)
        outcomes = []
        while self._workers.num_open:
            outcomes.append(self._next(search))
        return self._tell(search, outcomes)


class SteadyState(_InExecutor):
    """Keeps a batch in evaluation at any time: a solution competes as soon as it is done, and a new one takes its
    place."""

    def step(self, search: AskTell, num_left: int) -> list[Rows]:
        num_open = self._workers.num_open + len(self._held)
        self._ask(search, min(self._settings.batch_size, num_left) - num_open, in_pieces=True)
        return self._tell(search, [self._next(search)])
