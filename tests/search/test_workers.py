"""Solutions evaluated in parallel: the same result as one after the other, and no worker's death ends a run."""

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor

import jax
import numpy as np
import pool_functions as functions
import pytest

import lqd
from lqd.io.lock import locked
from lqd.search import host, workers

GIVEN = {
    "dim": 3,
    "bounds": (-1, 1),
    "population_size": 12,
    "batch_size": 6,
    "num_evaluations": 36,
    "rule": "ga",
    "variation": "paper",
}


@pytest.fixture(scope="module")
def pool():
    with workers.processes(2) as pool:
        yield pool


def test_the_result_is_that_of_one_after_the_other(pool):
    alone = lqd.optimize(functions.slow_first, **GIVEN)
    for executor in (pool, ThreadPoolExecutor(3)):
        result = lqd.optimize(functions.slow_first, executor=executor, **GIVEN)
        np.testing.assert_array_equal(result.x, alone.x)
        np.testing.assert_array_equal(result.history["max_fitness"], alone.history["max_fitness"])
        assert result.num_failed == 0


def test_it_runs_elsewhere_and_extras_come_back(pool):
    result = lqd.optimize(functions.plain, executor=pool, **GIVEN | {"rule": "random"})
    assert result.extras["pid"].shape == result.fitness.shape
    assert os.getpid() not in result.extras["pid"]


def test_a_number_means_so_many_processes():
    result = lqd.optimize(functions.plain, executor=2, **GIVEN)
    assert result.num_evaluations == 36
    assert len(set(result.extras["pid"].tolist())) <= 2


@pytest.mark.parametrize(
    "steady_state", [pytest.param(False, marks=pytest.mark.slow), pytest.param(True, marks=pytest.mark.long)]
)
def test_who_kills_its_worker_fails_and_the_others_go_on(steady_state):
    # Wide steps, so that children die as well, not only the start points.
    given = GIVEN | {"batch_size": 4, "num_evaluations": 16, "line_sigma": 0.5}
    result = lqd.optimize(functions.deadly, executor=workers.processes(2), steady_state=steady_state, **given)
    assert result.num_evaluations == 16
    assert 1 <= result.num_failed <= 4
    assert (result.extras["first"] <= functions.DEADLY).all()
    start = lqd.AskTell(**{name: given[name] for name in ("dim", "bounds", "population_size", "batch_size")})
    x = np.concatenate([start.ask() for _ in range(3)])
    assert (x[:, 0] > functions.DEADLY).any(), "or this test shows nothing"
    if not steady_state:
        assert result.num_failed >= (x[:, 0] > functions.DEADLY).sum()


@pytest.mark.parametrize("steady_state", [False, True])
def test_who_exits_has_failed_and_its_pool_goes_on(pool, steady_state):
    given = GIVEN | {"batch_size": 4, "num_evaluations": 16, "line_sigma": 0.5}
    result = lqd.optimize(functions.exits, executor=pool, steady_state=steady_state, **given)
    assert result.num_evaluations == 16
    assert 1 <= result.num_failed <= 4
    assert (result.extras["first"] <= functions.DEADLY).all()


def test_who_dies_once_is_evaluated_after_all(tmp_path, monkeypatch):
    monkeypatch.setenv("LQD_TEST_MARK", str(tmp_path / "mark"))
    result = lqd.optimize(functions.dies_once, executor=1, **GIVEN | {"num_evaluations": 18})
    assert (tmp_path / "mark").exists()
    assert result.num_failed == 0
    assert result.num_evaluations == 18


@pytest.mark.long
def test_if_all_die_it_ends(monkeypatch):
    monkeypatch.setattr(host, "HOPELESS", 2)
    with pytest.raises(lqd.EvaluationFailed, match=r"died on each of 2 solutions in a row.*__main__") as error:
        lqd.optimize(functions.always_deadly, executor=1, **GIVEN)
    assert error.value.result is None


class Mortal(Executor):
    """Broken for good by the deadly number, as a pool of processes is, but without processes."""

    def __init__(self, deadly):
        self.deadly, self.waiting, self.is_broken = deadly, [], False

    def submit(self, function, evaluate, x, attempt):
        if self.is_broken:
            raise workers.BrokenExecutor("broken")
        future: Future = Future()
        if float(x[0, 0]) in self.deadly:
            self.is_broken = True
            for other in [*self.waiting, future]:
                other.set_exception(workers.BrokenExecutor("broken"))
        else:
            self.waiting.append(future)
            future.value = function(evaluate, x, attempt)
            if len(self.waiting) == 3:
                first = self.waiting.pop(0)
                first.set_result(first.value)
        return future

    def shutdown(self, wait=True, *, cancel_futures=False):
        pass

    def work(self):
        while self.waiting:
            first = self.waiting.pop(0)
            first.set_result(first.value)


@pytest.mark.parametrize("deadly", [(0,), (7,), (2, 3, 4), (0, 11), tuple(range(12))])
def test_only_the_guilty_are_blamed(deadly, monkeypatch):
    """Whoever else was in the pool that broke: all others are evaluated, and it ends."""
    pools = []

    def make():
        pools.append(Mortal(deadly))
        return pools[-1]

    def wait(futures, return_when):
        if not any(future.done() for future in futures):
            pools[-1].work()
        return {future for future in futures if future.done()}, set()

    monkeypatch.setattr(workers.concurrent.futures, "wait", wait)
    several = workers.Workers(lambda x: float(x[0, 0]), make)
    outcomes = []
    for i in range(12):
        several.submit(np.array([float(i)]))
        if i % 3 == 2:
            outcomes.append(several.next())
    while several.num_open:
        outcomes.append(several.next())
    assert sorted(int(outcome.x[0]) for outcome in outcomes) == list(range(12))
    assert sorted(int(outcome.x[0]) for outcome in outcomes if outcome.failure) == sorted(deadly)
    assert all(outcome.returned == outcome.x[0] for outcome in outcomes if outcome.failure is None)


def test_what_the_function_raises_is_not_tried_again(pool):
    with pytest.raises(lqd.EvaluationFailed, match="ValueError: the simulator has no licence") as error:
        lqd.optimize(functions.raises, executor=pool, **GIVEN)
    assert any("in raises" in note for note in error.value.__cause__.__notes__)


def test_a_pool_that_cannot_be_replaced_says_so():
    class Broken(Executor):
        def submit(self, *_):
            future: Future = Future()
            future.set_exception(workers.BrokenExecutor("a node went down"))
            return future

    with pytest.raises(lqd.InvalidInput, match=r"a node went down.*executor=lambda"):
        lqd.optimize(functions.plain, executor=Broken(), **GIVEN)
    with pytest.raises(lqd.EvaluationFailed, match="died on each of 5 solutions"):
        lqd.optimize(functions.plain, executor=Broken, **GIVEN)


def test_executors_that_take_fewer_arguments_are_shut_down_as_well():
    """As Dask's."""
    shut = []

    class Plain(ThreadPoolExecutor):
        def shutdown(self, wait=True):
            shut.append(wait)
            super().shutdown(wait)

    assert lqd.optimize(functions.plain, executor=lambda: Plain(2), **GIVEN).num_evaluations == 36
    assert shut == [False]


def test_a_worker_lost_without_its_pool_is_tried_again():
    """As on a cluster, where the scheduler goes on."""

    class Flaky(ThreadPoolExecutor):
        num = 0

        def submit(self, function, /, *args):
            Flaky.num += 1
            if Flaky.num % 4 == 0:
                future: Future = Future()
                future.set_exception(RuntimeError("worker lost"))
                return future
            return super().submit(function, *args)

    result = lqd.optimize(functions.plain, executor=Flaky(2), **GIVEN)
    np.testing.assert_array_equal(result.x, lqd.optimize(functions.plain, **GIVEN).x)
    assert result.num_failed == 0
    assert Flaky.num > 36


def test_steady_state_does_not_wait_for_the_slowest():
    """One of two workers hangs on the first solution: all others are evaluated meanwhile by the other worker."""
    release, others = threading.Event(), []

    def evaluate(x):
        if not release.is_set() and not others:
            others.append(None)
            assert release.wait(60)
        others.append(None)
        if len(others) == 36 - 1:
            release.set()
        return -np.sum(x**2, axis=1), x[:, :2]

    result = lqd.optimize(evaluate, executor=ThreadPoolExecutor(2), steady_state=True, **GIVEN)
    assert result.num_evaluations == 36
    assert result.history["num_evaluations"].is_monotonic_increasing


def test_steady_state_improves_and_keeps_its_budget():
    given = GIVEN | {"num_evaluations": 400, "population_size": 4, "batch_size": 8, "iso_sigma": 0.05}
    seen = []

    def evaluate(x):
        seen.append(x)
        return -np.sum(x**2, axis=1), x[:, :2]

    result = lqd.optimize(evaluate, executor=ThreadPoolExecutor(3), steady_state=True, **given)
    assert result.num_evaluations == len(seen) == 396
    assert all(x.shape == (1, 3) for x in seen)
    assert result.best_fitness > -0.02


def test_ctrl_c_gives_what_was_found():
    def evaluate(x):
        return -np.sum(x**2, axis=1), x[:, :2]

    def stop(progress):
        if progress.num_evaluations > 20:
            raise KeyboardInterrupt

    with pytest.raises(lqd.Interrupted) as error:
        lqd.optimize(evaluate, executor=ThreadPoolExecutor(2), callback=stop, **GIVEN)
    assert error.value.result.num_evaluations == 24


def test_time_limit_and_callback_stop_a_steady_state():
    def evaluate(x):
        time.sleep(0.005)
        return -np.sum(x**2, axis=1), x[:, :2]

    given = GIVEN | {"executor": ThreadPoolExecutor(2), "steady_state": True, "num_evaluations": 10_000_000}
    assert lqd.optimize(evaluate, time_limit_s=0.5, **given).stopped_by == "time limit"
    stopped = lqd.optimize(evaluate, callback=lambda progress: progress.num_evaluations >= 30, **given)
    assert stopped.stopped_by == "callback"
    assert stopped.num_evaluations == 30


def test_bad_input():
    jitted = jax.jit(lambda x: (x[:, 0], x[:, :2]))
    for given, message in [
        ({"executor": "four"}, "executor must be a number of processes"),
        ({"executor": 0}, "executor must be a whole number of at least 1"),
        ({"executor": lambda: 3}, "it made 3"),
        ({"executor": 2, "backend": "jax"}, "executor is for functions on the host"),
        ({"steady_state": True}, "give executor= as well"),
        ({"steady_state": "yes", "executor": 2}, "steady_state must be True or False"),
    ]:
        with pytest.raises(lqd.InvalidInput, match=message):
            lqd.optimize(jitted, **GIVEN | given)
    with pytest.raises(lqd.InvalidInput, match="the task 'arm' is compiled"):
        lqd.optimize(lqd.tasks.make("arm"), executor=2, num_evaluations=1000)
    with pytest.raises(lqd.InvalidInput, match="cannot be sent to a worker"):
        lqd.optimize(lambda x: (x[:, 0], x[:, :2]), executor=1, **GIVEN)
    with pytest.raises(lqd.InvalidInput, match="always return the same extras"):
        lqd.optimize(functions.odd_extras, executor=ThreadPoolExecutor(1), **GIVEN)
    with pytest.raises(lqd.InvalidInput, match=r"fitness must have shape \(1,\)"):
        lqd.optimize(lambda x: (0.0, x[:, :2]), executor=ThreadPoolExecutor(1), **GIVEN)


def test_what_cannot_be_sent_is_told_before_a_process_starts(monkeypatch):
    """Once a pool has failed to send something, it may wait for ever at the end of the program."""
    pool = ProcessPoolExecutor(1, mp_context=workers.multiprocessing.get_context("spawn"))
    monkeypatch.setattr(pool, "submit", pytest.fail)
    for executor in (pool, lambda: pool):
        with pytest.raises(lqd.InvalidInput, match="cannot be sent to a worker"):
            lqd.optimize(lambda x: (x[:, 0], x[:, :2]), executor=executor, **GIVEN)


def test_a_pool_is_replaced_by_one_like_it():
    pool = ProcessPoolExecutor(3, mp_context=workers.multiprocessing.get_context("spawn"), initializer=print)
    again = workers._like(pool)
    assert again is not pool
    for name in ("_max_workers", "_mp_context", "_initializer", "_initargs"):
        assert getattr(again, name) == getattr(pool, name)


SCRIPT = """
import sys
from concurrent.futures import ProcessPoolExecutor
import multiprocessing
import lqd
import pool_functions as functions

if __name__ == "__main__":
    executors = {"ours": 2, "forked": ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork"))}
    given = {"dim": 2, "bounds": (-1, 1), "population_size": 8, "batch_size": 4, "num_evaluations": 10**6}
    lqd.optimize(functions.says_who, executor=executors[sys.argv[1]], checkpoint=sys.argv[2], resume=True, **given)
"""


def is_there(pid):
    try:
        return (pathlib.Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not pathlib.Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("kind", ["ours", "forked"])
@pytest.mark.slow
def test_workers_of_a_killed_run_hold_nothing_and_ours_end_with_it(kind, tmp_path):
    """Forked ones may go on; the folder is free all the same."""
    (tmp_path / "script.py").write_text(SCRIPT)
    there = [pathlib.Path(functions.__file__).parent, pathlib.Path(lqd.__file__).parents[1]]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, there)), "LQD_TEST_MARK": str(tmp_path / "pids")}
    (tmp_path / "pids").mkdir()
    command = [sys.executable, "-W", "ignore", str(tmp_path / "script.py"), kind, str(tmp_path / "run")]
    with subprocess.Popen(command, env=env) as process:
        pids, deadline = set(), time.perf_counter() + 60
        try:
            while len(pids) < 2 and time.perf_counter() < deadline and process.poll() is None:
                pids = {int(path.name) for path in (tmp_path / "pids").iterdir()}
                time.sleep(0.05)
        finally:
            process.kill()
    try:
        assert len(pids) == 2
        with locked(tmp_path / "run", "checkpoint"):
            assert kind == "ours" or all(map(is_there, pids)), "or this test shows nothing"
        deadline = time.perf_counter() + 20
        while kind == "ours" and any(map(is_there, pids)):
            assert time.perf_counter() < deadline
            time.sleep(0.05)
    finally:
        for pid in filter(is_there, pids):
            os.kill(pid, signal.SIGKILL)
