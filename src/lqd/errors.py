"""Our own errors. Each message names the argument, the value received and the fix."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any


class InvalidInput(ValueError):
    """An argument, or what an evaluation returned, cannot be used; `result` holds the results so far, if any."""

    result: Any = None


class Unreadable(InvalidInput):
    """A file is not what it should be: truncated, altered, or of another kind."""


class Unwritable(InvalidInput):
    """A file cannot be written: no room, or no permission."""

    def __init__(self, path: object, error: OSError):
        super().__init__(f"{path}: cannot be written ({error.strerror or error}).")


class EvaluationFailed(RuntimeError):
    """The user's function raised; `result` holds everything evaluated before."""

    def __init__(self, message: str, result: Any):
        super().__init__(message)
        self.result = result


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run; `result` holds everything evaluated before."""

    def __init__(self, message: str, result: Any):
        super().__init__(message)
        self.result = result


def shown(value) -> str:
    """A short form of any value, for a message."""
    try:
        text = repr(value)
    except Exception:  # whole numbers of thousands of digits, say
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= 200 else f"{text[:200]}..."


def unknown(kind: str, name: object, choices: Iterable[str], aliases: Mapping[str, str] | None = None) -> InvalidInput:
    """The error for an unknown name, with the nearest known ones; `aliases` are other words for some of them."""
    choices = list(choices)
    lower = {choice.casefold(): choice for choice in choices} | dict(aliases or {})
    matches = difflib.get_close_matches(shown(name).strip("'").casefold(), lower, n=3, cutoff=0.4)
    near = list(dict.fromkeys(lower[match] for match in matches))
    hint = f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
    listed = f" Choose from: {', '.join(choices)}." if not near or len(choices) <= 12 else ""
    return InvalidInput(f"unknown {kind} {shown(name)}.{hint}{listed}")
