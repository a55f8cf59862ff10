"""How long, and how often, JAX compiled: for manifests, and for the tests that forbid needless compilation."""

import threading
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
    with _lock:
        for clock in _open:
            clock.seconds += duration_secs
            clock.num_programs += event == _EVENTS[-1]


class Clock:
    """`with Clock() as clock:` counts the programs compiled meanwhile, and the seconds spent tracing and compiling."""

    def __init__(self):
        self.seconds = 0.0
        self.num_programs = 0

    def __enter__(self) -> "Clock":
        global _listening
        with _lock:
            if not _listening:
                jax.monitoring.register_event_duration_secs_listener(_listen)
                _listening = True
            _open.append(self)
        return self

    def __exit__(self, *exception) -> None:
        with _lock:
            _open.remove(self)
