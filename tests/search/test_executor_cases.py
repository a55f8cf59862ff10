"""Functions and executors that behave badly: none hangs, and no result is wrong without a word.

Sixty cases: each function in threads, and in an executor that finishes in an order of its own, waiting for batches or
not. With `--long` also in processes, and on Dask's workers in this process.
"""

import random
import sys
import threading
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import jax.numpy as jnp
import numpy as np
import pytest

import lqd
from lqd.search import workers

GIVEN = {"dim": 3, "bounds": (-1, 1), "population_size": 12, "batch_size": 6, "num_evaluations": 48, "rule": "dns"}
GIVEN |= {"iso_sigma": 0.3, "archive_cells": 6, "descriptor_bounds": (-1, 1)}
OFTEN_DEADLY = 0.55  # of the first coordinate


def truth(x):
    return -np.sum(x**2, axis=1), x[:, :2].copy(), {"sum": np.sum(x, axis=1)}


def plain(x):
    return truth(x)


def scales_in_place(x):
    answer = truth(x)
    x *= 10
    return answer


def views(x):
    """Parts of what it was given, which it then overwrites when it is called again."""
    _kept(x)
    return -np.sum(x**2, axis=1), x[:, :2], {"sum": np.sum(x, axis=1)}


_mine = threading.local()


def _kept(x):
    for old in getattr(_mine, "all", []):
        old.fill(0.5)
    _mine.all = [*getattr(_mine, "all", [])[-50:], x]


def reuses_buffers(x):
    if not hasattr(_mine, "buffers"):
        _mine.buffers = np.zeros(1, np.float32), np.zeros((1, 2), np.float32), np.zeros(1, np.float32)
    answer = truth(x)
    for buffer, value in zip(_mine.buffers, (*answer[:2], answer[2]["sum"]), strict=True):
        buffer[:] = value
    return _mine.buffers[0], _mine.buffers[1], {"sum": _mine.buffers[2]}


def reuses_lists(x):
    if not hasattr(_mine, "lists"):
        _mine.lists = [[0.0], [[0.0, 0.0]], {"sum": [0.0]}]
    fitness, descriptor, extras = truth(x)
    _mine.lists[0][0], _mine.lists[1][0][:] = float(fitness[0]), descriptor[0].tolist()
    _mine.lists[2]["sum"][0] = float(extras["sum"][0])
    return _mine.lists


def reuses_objects(x):
    if not hasattr(_mine, "object"):
        _mine.object = np.empty(1, object)
        _mine.object[0] = np.zeros(3, np.float32)
    _mine.object[0][:] = x[0]
    return *truth(x)[:2], {"sum": np.sum(x, axis=1), "object": _mine.object}


def odd_memory(x):
    fitness, descriptor, extras = truth(x)
    wide = np.asfortranarray(np.repeat(descriptor, 3, axis=0))[::-2, ::-1][:1, ::-1]
    wide.setflags(write=False)
    return np.broadcast_to(fitness, (1,)), wide, {"sum": np.lib.stride_tricks.as_strided(extras["sum"], (1,), (0,))}


def from_jax(x):
    fitness, descriptor, extras = truth(x)
    return jnp.asarray(fitness), jnp.asarray(descriptor), {"sum": jnp.asarray(extras["sum"])}


def late(x):
    time.sleep(random.Random(x.tobytes()).choice([0.0, 0.0, 0.004]))
    return truth(x)


def exits_sometimes(x):
    if x[0, 0] > OFTEN_DEADLY:
        sys.exit(0)
    return truth(x)


def always_exits(x):
    sys.exit(0)


def raises_what_is_no_exception(x):
    class Odd(BaseException):
        pass

    raise Odd("out of the ordinary")


def ragged_descriptors(x):
    fitness, descriptor, extras = truth(x)
    return fitness, descriptor[:, : 1 + int(x[0, 0] > 0)], extras


def ragged_extras(x):
    return *truth(x)[:2], {"sum": x[:, : 1 + int(x[0, 0] > 0)]}


def ragged_names(x):
    return *truth(x)[:2], {"sum" if x[0, 0] > 0 else "other": x[:, 0]}


RIGHT = (plain, scales_in_place, views, reuses_buffers, reuses_lists, reuses_objects, odd_memory, from_jax, late)
FAILING = (exits_sometimes,)
WRONG = {
    always_exits: (lqd.EvaluationFailed, "died on each of 5 solutions in a row.*SystemExit"),
    raises_what_is_no_exception: (lqd.EvaluationFailed, "Odd: out of the ordinary"),
    ragged_descriptors: (lqd.InvalidInput, None),
    ragged_extras: (lqd.InvalidInput, None),
    ragged_names: (lqd.InvalidInput, "extras must be the same|same extras"),
}


class Backwards(Executor):
    """Whoever came last is done first, and some only much later."""

    def __init__(self):
        self._waiting, self._wake = [], threading.Condition()
        threading.Thread(target=self._work, daemon=True).start()

    def submit(self, function, /, *args):
        future: Future = Future()
        with self._wake:
            self._waiting.append((future, function, args))
            self._wake.notify()
        return future

    def _work(self):
        draw = random.Random(0)
        while True:
            with self._wake:
                while not self._waiting:
                    self._wake.wait()
                at = -1 if draw.random() < 0.8 else draw.randrange(len(self._waiting))
                future, function, args = self._waiting.pop(at)
            if future.set_running_or_notify_cancel():
                future.set_result(function(*args))


EXECUTORS = {"threads": lambda: ThreadPoolExecutor(3), "backwards": Backwards}


def within_a_minute(function, *args, **given):
    """What it returns or raises; a hang is an error, and is left behind in its thread."""
    outcome: Future = Future()

    def call():
        try:
            outcome.set_result(function(*args, **given))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return outcome.result(timeout=60)


def check(result):
    """Each solution that was kept, with what is true of it."""
    for part in (result.population, result.best, result.archive):
        fitness, descriptor, extras = truth(part.x)
        assert np.abs(part.x).max() <= 1
        np.testing.assert_allclose(part.fitness, fitness, rtol=1e-5)
        np.testing.assert_allclose(part.descriptor, descriptor, rtol=1e-5)
        np.testing.assert_allclose(part.extras["sum"], extras["sum"], rtol=1e-4, atol=1e-5)
        for x, kept in zip(part.x, part.extras.get("object", part.x), strict=True):
            np.testing.assert_array_equal(x, kept)
    assert result.num_evaluations == 48


@pytest.fixture(scope="module")
def alone():
    return lqd.optimize(plain, **GIVEN)


@pytest.mark.parametrize("steady_state", [False, True], ids=["batches", "steady"])
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("function", [*RIGHT, *FAILING, *WRONG], ids=lambda function: function.__name__)
def test_no_hang_and_nothing_wrong(function, executor, steady_state, alone):
    run(function, EXECUTORS[executor], steady_state, alone)


def run(function, executor, steady_state, alone):
    given = GIVEN | {"executor": executor, "steady_state": steady_state}
    if function in WRONG:
        error, message = WRONG[function]
        with pytest.raises(error, match=message):
            within_a_minute(lqd.optimize, function, **given)
        return
    result = within_a_minute(lqd.optimize, function, **given)
    check(result)
    assert (result.num_failed > 0) == (function in FAILING)
    if function in FAILING:
        assert (result.x[:, 0] <= OFTEN_DEADLY).all()
    elif not steady_state:
        np.testing.assert_array_equal(result.x, alone.x)


@pytest.mark.long
@pytest.mark.parametrize("steady_state", [False, True], ids=["batches", "steady"])
@pytest.mark.parametrize("function", [*RIGHT, *FAILING, *WRONG], ids=lambda function: function.__name__)
def test_in_processes(function, steady_state, alone):
    run(function, lambda: workers.processes(2), steady_state, alone)


@pytest.mark.long
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("steady_state", [False, True], ids=["batches", "steady"])
@pytest.mark.parametrize("function", [*RIGHT, *FAILING, *WRONG], ids=lambda function: function.__name__)
def test_on_dask_in_this_process(function, steady_state, alone):
    distributed = pytest.importorskip("distributed")
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=3, dashboard_address=None) as client:
        run(function, client.get_executor, steady_state, alone)
