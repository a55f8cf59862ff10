"""The clock of the compiler."""

import time

import jax
import jax.numpy as jnp
import pytest

from lqd.evolution.compile_time import Clock


def test_what_happens_within_something_else_counts_once():
    clock = Clock()
    for span in [(1.0, 2.0), (3.0, 4.0), (4.5, 5.0), (2.5, 6.0), (7.0, 7.5)]:  # the last but one holds two others
        clock.add(*span)
    assert clock.seconds == pytest.approx(1.0 + 3.5 + 0.5)
    clock.add(0.0, 8.0)
    assert clock.seconds == pytest.approx(8.0)


def test_spans_of_two_threads_that_overlap_count_once():
    clock = Clock()
    for span in [(1.0, 3.0), (2.0, 4.0), (3.5, 5.0)]:
        clock.add(*span)
    assert clock.seconds == pytest.approx(4.0)


def test_a_clock_that_jumps_makes_no_time():
    with Clock() as clock:
        clock.add(time.perf_counter() - 1e9, time.perf_counter())  # the time of day was set back while compiling
        clock.add(time.perf_counter() + 1e9, time.perf_counter())  # and forth
        assert 0 <= clock.seconds < 1


def test_nested_programs_take_no_longer_than_the_clock_on_the_wall():
    def nested(depth):
        @jax.jit
        def function(x):
            for _ in range(3):
                x = nested(depth - 1)(x) if depth else jnp.sin(x) + 1
            return x

        return function

    begun = time.perf_counter()
    with Clock() as clock:
        nested(5)(jnp.ones(3)).block_until_ready()
    assert clock.num_programs >= 1
    assert 0 < clock.seconds <= time.perf_counter() - begun
