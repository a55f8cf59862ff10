"""Does slow things, like writing a file, from time to time: not too often, and for a small share of the time."""

import time
from collections.abc import Callable


class Throttle:
    """`throttle(write)` calls `write()` at most every `every_s` seconds, and for at most `share` of the time.

    The first call writes if it comes `at_once`, and else waits for its time.
    """

    def __init__(self, every_s: float, share: float = 0.05, at_once: bool = False):
        self._every_s, self._share = every_s, share
        self._due = 0.0 if at_once else time.perf_counter() + every_s

    def __call__(self, write: Callable[[], object], now: bool = False) -> bool:
        """Whether it wrote; `now` does not wait."""
        begun = time.perf_counter()
        if begun < self._due and not now:
            return False
        write()
        took = time.perf_counter() - begun
        self._due = begun + max(self._every_s, took / self._share)
        return True
