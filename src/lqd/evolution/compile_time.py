"""How long, and how often, JAX compiled: for manifests, and for the tests that forbid needless compilation.

The names of JAX's events are not documented, and there is no documented way to ask. They are written here and nowhere
else; `tests/evolution/test_compile_time.py` fails when JAX renames them.
"""

import math
import threading
import time
from typing import Any

import jax.monitoring

_EVENTS = (
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)
_lock = threading.Lock()
_open: "list[Clock]" = []
_listening = False


def _listen(event: str, duration_secs: float, **kwargs: Any) -> None:
    if event not in _EVENTS:
        return
    now = time.perf_counter()
    with _lock:
        for clock in _open:
            clock.add(now - duration_secs, now)
            clock.num_programs += event == _EVENTS[-1]


class Clock:
    """`with Clock() as clock:` counts the programs compiled meanwhile, and the seconds spent tracing and compiling."""

    def __init__(self):
        self.num_programs = 0
        self._spans: list[tuple[float, float]] = []  # apart from each other, in order
        self._entered = -math.inf

    @property
    def seconds(self) -> float:
        return sum(end - begin for begin, end in self._spans)

    def add(self, begin: float, end: float) -> None:
        """Adds a span that just ended. Spans within it were added before, and count once.

        JAX measures by the time of day, which may jump, so a span is cut to begin after this clock was started.
        """
        begin = min(max(begin, self._entered), end)
        while self._spans and self._spans[-1][1] > begin:
            begin = min(begin, self._spans.pop()[0])
        self._spans.append((begin, end))

    def __enter__(self) -> "Clock":
        global _listening
        self._entered = time.perf_counter()
        with _lock:
            if not _listening:
                jax.monitoring.register_event_duration_secs_listener(_listen)
                _listening = True
            _open.append(self)
        return self

    def __exit__(self, *exception) -> None:
        with _lock:
            _open.remove(self)
