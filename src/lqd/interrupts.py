"""Delays Ctrl-C until an operation that must not be cut in two is done."""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """Inside, Ctrl-C waits until the end. Only the main thread receives it; elsewhere there is nothing to do."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)
