"""Signals and time limits set a reason, and change nothing else."""

import signal
import threading

import jax.numpy as jnp
import pytest

from lqd.meta.stopping import Stop


class Never:
    """A result that no device ever delivers."""

    def is_ready(self):
        signal.raise_signal(signal.SIGTERM)
        return False


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_is_a_reason_and_handlers_are_put_back(name):
    number = signal.Signals[name]
    before = signal.getsignal(number)
    with Stop(None) as stop:
        assert stop.reason is None
        signal.raise_signal(number)
        assert stop.reason == name
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_interrupts_at_once():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Stop(None) as stop:  # noqa: PT012
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert stop.reason == "SIGTERM"
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_step_that_would_end_too_late_is_not_begun():
    with Stop(1000) as stop:
        stop.after(1)
        assert stop.reason is None
        stop.after(2000)
        assert stop.reason == "time limit"
    with Stop(None) as stop:
        stop.after(1e9)
        assert stop.reason is None


def test_a_signal_outranks_the_time_limit():
    with Stop(1) as stop:
        signal.raise_signal(signal.SIGTERM)
        stop.after(1000)
        assert stop.reason == "SIGTERM"


def test_waiting_ends_with_the_results_or_with_a_signal():
    with Stop(None) as stop:
        stop.wait({"ready": jnp.arange(3) + 1})
        assert not stop.interrupted
        stop.wait([Never()])
        assert stop.interrupted
        assert stop.reason == "SIGTERM"


def test_in_another_thread_signals_are_left_alone():
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def run():
        with Stop(None):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [before]
