"""How often something slow may happen."""

import pytest

from lqd.io import throttle
from lqd.io.throttle import Throttle


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets."""

    class Clock:
        now = 100.0

        def perf_counter(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(throttle, "time", clock)
    return clock


def test_not_more_often_than_asked_for(clock):
    sometimes, written = Throttle(10.0), []
    for clock.now in (100.0, 109.9, 110.0, 115.0, 119.9, 120.0):
        sometimes(lambda: written.append(clock.now))
    assert written == [110.0, 120.0]


def test_at_once_and_now_do_not_wait(clock):
    sometimes = Throttle(10.0, at_once=True)
    assert [sometimes(lambda: None), sometimes(lambda: None), sometimes(lambda: None, now=True)] == [True, False, True]


def test_what_takes_long_comes_rarely(clock):
    sometimes = Throttle(1.0, share=0.1, at_once=True)

    def write():
        clock.now += 5.0

    sometimes(write)
    clock.now = 149.9
    assert not sometimes(write)
    clock.now = 150.0
    assert sometimes(write)
