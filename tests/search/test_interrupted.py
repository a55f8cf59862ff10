"""Interrupted by Ctrl-C or by an exception, and gone on with: the same run as without, whatever was on its way."""

import contextlib
import os
import signal
import threading
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import numpy as np
import pytest

import lqd
from lqd import interrupts

GIVEN = {"dim": 3, "bounds": (-1, 1), "population_size": 14, "batch_size": 4, "rule": "dns", "num_evaluations": 14 + 20}
SEARCH = {name: value for name, value in GIVEN.items() if name != "num_evaluations"}


def function(x):
    return -np.sum(x**2, axis=1), x[:, :2], {"sum": np.sum(x, axis=1)}


class Failing:
    """The function, but that some of its calls raise; it remembers where it was evaluated."""

    def __init__(self, calls=(), error=RuntimeError):
        self.calls, self.error, self.num, self.seen = calls, error, 0, []

    def __call__(self, x):
        self.num += 1
        if self.num in self.calls:
            raise self.error("the licence server went away")
        self.seen.append(x.copy())
        return function(x)


class OneByOne(Executor):
    """Evaluates when it is given something: the first is done first."""

    def submit(self, function, /, *args):
        future: Future = Future()
        future.set_result(function(*args))
        return future


def equal(one: lqd.Result, other: lqd.Result):
    for part in (one.population, one.best), (other.population, other.best):
        assert part[0].extras.keys() == {"sum"}
    np.testing.assert_array_equal(one.x, other.x)
    np.testing.assert_array_equal(one.fitness, other.fitness)
    np.testing.assert_array_equal(one.extras["sum"], other.extras["sum"])
    np.testing.assert_array_equal(one.best_x, other.best_x)
    columns = [name for name in one.history if name != "time_s"]
    np.testing.assert_array_equal(one.history[columns], other.history[columns])


WAYS = {
    "alone": {},
    "executor": {"executor": OneByOne()},
    "steady state": {"executor": OneByOne(), "steady_state": True},
}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("way", WAYS)
def test_what_was_on_its_way_is_evaluated_again(way, error, tmp_path):
    if error is SystemExit and way != "alone":
        pytest.skip("in an executor, a worker that exits has died")
    given = GIVEN | WAYS[way]
    undisturbed = lqd.optimize(function, **given)
    for calls in ((2,), (1, 3, 4), (5, 6), (2, 3, 4, 5)):
        evaluate = Failing(calls, error)
        given["checkpoint"] = tmp_path / str(calls)
        num_failed, result = 0, None
        while result is None:
            try:
                result = lqd.optimize(evaluate, resume=True, **given)
            except (lqd.EvaluationFailed, KeyboardInterrupt, SystemExit):
                num_failed += 1
        assert 1 <= num_failed <= len(calls)
        equal(result, undisturbed)
        num_told = lqd.AskTell.load(given["checkpoint"] / "state.safetensors").num_evaluations
        assert num_told == undisturbed.num_evaluations == GIVEN["num_evaluations"]


def test_no_point_is_lost_in_a_steady_state(tmp_path):
    """All start points are evaluated, however threads come and go."""
    given = GIVEN | {"population_size": 64, "batch_size": 16, "num_evaluations": 96, "checkpoint": tmp_path}
    evaluate = Failing((20, 41, 67))
    with ThreadPoolExecutor(3) as executor:
        result = None
        while result is None:
            with contextlib.suppress(lqd.EvaluationFailed):
                result = lqd.optimize(evaluate, resume=True, executor=executor, steady_state=True, **given)
        assert evaluate.num > 96
    assert result.num_evaluations == 96
    start = lqd.AskTell(**SEARCH | {"population_size": 64, "batch_size": 64}).ask()
    seen = {x.tobytes() for x in evaluate.seen}
    assert all(x[None].tobytes() in seen for x in start)


def test_who_goes_on_from_a_file_asks_for_the_same_again(tmp_path):
    """In the pieces in which it was asked for, whatever was told meanwhile."""
    search = lqd.AskTell(**SEARCH)
    asked = [search.ask(), search.ask(3), search.ask()]
    search.tell(asked[1][[2, 0]], *function(asked[1][[2, 0]]))
    search.save(tmp_path / "state")
    again = lqd.AskTell.load(tmp_path / "state")
    search.tell(asked[0], *function(asked[0]))  # the first search knows nothing of the second
    for expected in (asked[0], asked[1][[1]], asked[2]):
        x = again.ask()
        np.testing.assert_array_equal(x, expected)
        again.save(tmp_path / "state")  # and once more, as long as nothing was told
    twice = lqd.AskTell.load(tmp_path / "state")
    np.testing.assert_array_equal(np.concatenate([twice.ask(2), twice.ask(2)]), asked[0])
    np.testing.assert_array_equal(again.ask(), twice._points[11:14])
    again.tell(x := np.concatenate([asked[2], asked[0]]), *function(x))
    again.save(tmp_path / "state")
    left = lqd.AskTell.load(tmp_path / "state")
    np.testing.assert_array_equal(left.ask(), asked[1][[1]])
    np.testing.assert_array_equal(left.ask(), twice._points[11:14])


def test_results_that_come_after_loading_are_not_asked_for_again(tmp_path):
    search = lqd.AskTell(**SEARCH)
    x = search.ask()
    search.ask()
    search.save(tmp_path / "state")
    again = lqd.AskTell.load(tmp_path / "state")
    again.tell(x, *function(x))
    assert not (again.ask()[:, None] == x).all(axis=-1).any()


def test_who_tells_other_solutions_than_were_asked_for_goes_on_as_well(tmp_path):
    """Rounded ones, say: each counts for the oldest that is still out."""
    searches = lqd.AskTell(**SEARCH), lqd.AskTell(**SEARCH)
    for i in range(8):
        for search in searches:
            x = search.ask().round(1)
            search.tell(x, *function(x))
        if i % 3 == 1:
            searches[0].save(tmp_path / "state")
            searches = lqd.AskTell.load(tmp_path / "state"), searches[1]
    np.testing.assert_array_equal(searches[0].ask(), searches[1].ask())
    np.testing.assert_array_equal(searches[0].result().x, searches[1].result().x)


def test_ctrl_c_waits_until_what_must_not_be_torn_is_over():
    done = []

    def interrupted():
        with interrupts.waiting():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
            with interrupts.waiting():  # also inside another
                done.append(1)
            done.append(2)
        done.append(3)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == [1, 2]
    with interrupts.waiting():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    thread = threading.Thread(target=lambda: interrupts.waiting().__enter__() or done.append(4))
    thread.start()
    thread.join()
    assert done == [1, 2, 4]


@pytest.mark.parametrize("delay", [0.0, 0.0004, 0.0011, 0.0023])
def test_ctrl_c_at_any_moment_leaves_a_whole_search(delay, tmp_path):
    """A timer sends the signal again and again; what was told is told, what was not is asked for again."""
    expected = lqd.AskTell(**SEARCH)
    for _ in range(12):
        x = expected.ask()
        expected.tell(x, *function(x))
    search, num = lqd.AskTell(**SEARCH), 0
    while search.num_evaluations < expected.num_evaluations:
        signal.setitimer(signal.ITIMER_REAL, 0)
        previous = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.002 + delay)
            while search.num_evaluations < expected.num_evaluations:
                x = search.ask()
                search.tell(x, *function(x))
                time.sleep(0.001)
        except KeyboardInterrupt:
            num += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
        search.save(tmp_path / "state")
        search = lqd.AskTell.load(tmp_path / "state")
    assert num
    equal(search.result(), expected.result())
