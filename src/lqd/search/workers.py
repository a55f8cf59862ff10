"""Evaluates solutions one by one in an executor: processes on this machine, or the workers of a cluster.

Whatever a function raises is returned as a value, so an exception of a future always means that its worker died; a
worker that exits counts as dead, too. The broken pool is replaced, and the solutions that were in it are tried again
one at a time, which shows which of them is to blame. One that is to blame too often has failed, and the run goes on.
"""

import concurrent.futures
import contextlib
import multiprocessing
import os
import threading
import traceback
import uuid
from collections import deque
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import numpy as np

from lqd import checks
from lqd.errors import InvalidInput, shown

MOST_PROCESSES = 4096  # that a number may ask for
NUM_TRIES = 2  # alone, after it was lost among others


class WorkerError(RuntimeError):
    """What `evaluate` raised in a worker, with the traceback from there."""


class Outcome(NamedTuple):
    """The outcome of one solution: what `evaluate` returned, or why it returned nothing."""

    number: int
    x: np.ndarray
    returned: Any = None
    failure: str | None = None  # its workers died
    raised: WorkerError | None = None


class _Waiting(NamedTuple):
    number: int
    x: np.ndarray
    num_tries: int = 0


class _Raised(NamedTuple):
    kind: str
    summary: str
    details: str


def _call(evaluate, x, attempt):
    """Runs in a worker. Copies go in and out: within one process, the function could otherwise change our arrays.

    `attempt` is different each time: Dask treats equal calls as one, and returns the result it already has.
    """
    try:
        return _copied(evaluate(x.copy()))
    except BaseException as error:  # also sys.exit, which would end a worker, or hang it
        kind = next((kind.__name__ for kind in (SystemExit, KeyboardInterrupt) if isinstance(error, kind)), "")
        summary = f"{type(error).__name__}: {str(error).strip()}".split("\n")[0]
        return _Raised(kind, summary, traceback.format_exc())


def _copied(value):
    """A copy of its arrays; what is not an array is checked later."""
    if isinstance(value, tuple | list):
        return [_copied(one) for one in value]
    if isinstance(value, dict):
        return {name: _copied(one) for name, one in value.items()}
    if isinstance(value, np.ndarray):
        own = value.copy()
        if own.dtype == object:
            for where in np.ndindex(own.shape):
                own[where] = _copied(own[where])
        return own
    with contextlib.suppress(Exception):  # a tensor, a table
        return np.array(value) if hasattr(value, "__array__") else value
    return value


def processes(num: int) -> ProcessPoolExecutor:
    """A pool of this many spawned processes: forked ones may hang, since JAX has threads."""
    return ProcessPoolExecutor(num, mp_context=multiprocessing.get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """Runs in a worker, and ends it when its parent process is gone for any reason. A pool alone waits for ever."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Workers:
    """Hands solutions to an executor and returns their outcomes in the order in which they finish."""

    def __init__(self, evaluate: Callable, executor: Any):
        self._evaluate = evaluate
        self._make: Callable[[], Any] | None = None
        is_executor = callable(getattr(executor, "submit", None)) and not isinstance(executor, type)
        if isinstance(executor, int) and not isinstance(executor, bool):
            num = checks.whole("executor", executor, 1)
            if num > MOST_PROCESSES:
                raise InvalidInput(f"executor must be at most {MOST_PROCESSES:,} processes, got {shown(executor)}.")
            self._make = lambda: processes(num)
        elif not is_executor:
            if not callable(executor):
                raise InvalidInput(
                    f"executor must be a number of processes, an executor with a method `submit` (of "
                    f"concurrent.futures, Dask's client.get_executor(), ...) or a function that makes one, "
                    f"got {shown(executor)}."
                )
            self._make = executor
        elif isinstance(executor, ProcessPoolExecutor):
            self._make = lambda: _like(executor)
        self._own = not is_executor  # it is ours to shut down
        self._executor = self._make() if self._own and self._make else executor
        if not callable(getattr(self._executor, "submit", None)):
            raise InvalidInput(f"executor must make something with a method `submit`, it made {shown(self._executor)}.")
        if type(self._executor) is ProcessPoolExecutor:  # others may send in other ways
            _check_sendable(evaluate)  # a pool that fails to send something may never end
        self._queue: deque[_Waiting] = deque()
        self._suspects: deque[_Waiting] = deque()  # lost their worker: next, one at a time
        self._flying: dict[Future, _Waiting] = {}
        self._done: deque[Outcome] = deque()
        self._on_trial = False  # the only one being evaluated is a suspect
        self._number = self._num_sent = 0
        self._name = uuid.uuid4().hex

    @property
    def num_open(self) -> int:
        """Solutions that were submitted and have not come back."""
        return len(self._queue) + len(self._suspects) + len(self._flying) + len(self._done)

    def submit(self, x: np.ndarray) -> int:
        """Gives a solution (dim,) to a worker; returns its number."""
        self._number += 1
        self._queue.append(_Waiting(self._number, x))
        self._send()
        return self._number

    def next(self) -> Outcome:
        """Waits for the next one to finish."""
        while not self._done:
            self._send()
            finished, _ = concurrent.futures.wait(self._flying, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in sorted(finished, key=lambda future: self._flying[future].number):
                if future in self._flying:  # not lost with another one meanwhile
                    self._take(future)
        return self._done.popleft()

    def close(self) -> None:
        """Drops what has not begun; a user's executor stays open."""
        for future in self._flying:
            future.cancel()
        if self._own:
            _shut_down(self._executor)

    def _send(self) -> None:
        """Sends all that wait; but while there are suspects, only one of them, alone."""
        while (self._queue or self._suspects) and not self._on_trial:
            if self._suspects and self._flying:
                return
            self._on_trial = bool(self._suspects)
            waiting = (self._suspects or self._queue).popleft()
            try:
                self._num_sent += 1
                future = self._executor.submit(_call, self._evaluate, waiting.x[None], f"{self._name}-{self._num_sent}")
            except BrokenExecutor as error:
                if self._flying:  # their futures will say whose fault it was
                    self._suspects.append(waiting)
                    return
                self._replace(error)
                self._again(waiting, error, blamed=True)
                self._on_trial = False
                continue
            self._flying[future] = waiting

    def _take(self, future: Future) -> None:
        waiting = self._flying.pop(future)
        alone, self._on_trial = self._on_trial or not self._flying, False
        try:
            returned = future.result()
        except BrokenExecutor as error:
            others = list(self._flying.values())
            self._flying.clear()  # they are lost as well
            self._replace(error)
            self._again(waiting, error, blamed=alone)
            for other in others:
                self._again(other, error)
        except Exception as error:
            if "pickle" in f"{type(error).__name__} {error}".lower():
                raise _not_sendable(error) from error
            self._again(waiting, error, blamed=alone)
        else:
            self._judge(waiting, returned, alone)

    def _judge(self, waiting: _Waiting, returned: Any, alone: bool) -> None:
        raised = None
        if isinstance(returned, _Raised):
            raised = WorkerError(returned.summary)
            raised.add_note(returned.details)
            if returned.kind == "KeyboardInterrupt":
                raise KeyboardInterrupt(returned.summary)
            if returned.kind == "SystemExit":
                self._again(waiting, raised, blamed=True)
                return
        self._done.append(Outcome(waiting.number, waiting.x, returned, raised=raised))

    def _again(self, waiting: _Waiting, error: Exception, blamed: bool = False) -> None:
        waiting = waiting._replace(num_tries=waiting.num_tries + blamed)
        if waiting.num_tries < NUM_TRIES:
            self._suspects.append(waiting)
        else:
            why = f"{type(error).__name__}: {error}"
            self._done.append(Outcome(waiting.number, waiting.x, failure=why))

    def _replace(self, error: BrokenExecutor) -> None:
        if self._make is None:
            raise InvalidInput(
                f"executor: a worker died and {type(self._executor).__name__} cannot continue ({error}). Give a "
                f"function that makes the executor, executor=lambda: ..., so that a broken one can be replaced."
            ) from error
        _shut_down(self._executor)
        self._executor, self._own = self._make(), True


def _shut_down(executor: Any) -> None:
    """Shuts down without waiting. Dask's executor takes fewer arguments than those of concurrent.futures."""
    try:
        executor.shutdown(wait=False, cancel_futures=True)
    except TypeError:
        executor.shutdown(wait=False)


def _check_sendable(function: Callable) -> None:
    """Pickles it as a pool of processes would."""
    try:
        ForkingPickler.dumps(function)
    except Exception as error:
        raise _not_sendable(error) from error


def _not_sendable(error: Exception) -> InvalidInput:
    return InvalidInput(
        f"evaluate, or what it returns, cannot be sent to a worker ({error}). Define the function at the top level of "
        f"a module."
    )


def _like(pool: ProcessPoolExecutor) -> ProcessPoolExecutor:
    """A new pool with the settings of this one.

    A broken pool cannot be repaired, and only its private attributes say how it was made. They are read here and
    nowhere else; `tests/search/test_workers.py` fails when Python renames them.
    """
    given = {"max_workers": "_max_workers", "mp_context": "_mp_context", "initializer": "_initializer"}
    given |= {"initargs": "_initargs", "max_tasks_per_child": "_max_tasks_per_child"}
    return ProcessPoolExecutor(**{name: getattr(pool, kept) for name, kept in given.items() if hasattr(pool, kept)})
