"""When to stop: at a time limit, or on a signal (SIGINT, SIGTERM). Neither loses anything or changes a result."""

import signal
import threading
import time
from typing import Any

import jax

POLL_S = 0.002


class Stop:
    """`with Stop(limit) as stop:` turns signals into a `reason`; a second Ctrl-C interrupts at once.

    The time limit counts from the beginning, and is seen by looking ahead: a step that would not end in time, judged
    by the one before, is not begun. The first step is always made, so that a chain of short calls makes progress.
    """

    def __init__(self, time_limit_s: float | None):
        self.time_limit_s = time_limit_s
        self.reason: str | None = None
        self.interrupted = False
        self._begun = time.perf_counter()
        self._replaced: dict[int, Any] = {}

    def __enter__(self) -> "Stop":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._replaced[number] = signal.signal(number, self._signalled)
        return self

    def __exit__(self, *exception) -> None:
        for number, handler in self._replaced.items():
            signal.signal(number, handler)

    def _signalled(self, number: int, frame) -> None:
        if self.reason in ("SIGINT", "SIGTERM") and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.reason = signal.Signals(number).name

    def wait(self, results: Any) -> None:
        """Waits until the devices have these results, or, with one process, until a signal comes.

        Polls instead of blocking: Python sees no signal while it waits inside the runtime.
        """
        leaves = jax.tree.leaves(results)
        while not all(leaf.is_ready() for leaf in leaves):
            if self.reason in ("SIGINT", "SIGTERM") and jax.process_count() == 1:
                self.interrupted = True
                return
            time.sleep(POLL_S)
        jax.block_until_ready(leaves)  # raises what a device raised

    def after(self, seconds: float) -> None:
        """Notes how long a step took."""
        if self.time_limit_s is not None and self.reason is None:
            left = self.time_limit_s - (time.perf_counter() - self._begun)
            if left < seconds:
                self.reason = "time limit"
