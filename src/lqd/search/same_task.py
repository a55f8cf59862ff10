"""Whether a run continues on the task that it began with.

Built-in tasks are recognised by their names and settings. A function, or a task with numbers of its own (the rotations
of an instance, say), is recognised by what it returned first: those answers are saved with the run, and when it
continues, the same solutions are evaluated again. One whose answers differ each time is noisy, and taken for the same.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from lqd.checks import float32
from lqd.errors import InvalidInput
from lqd.tasks.task import Task

LEAST = 4  # solutions kept if the first batch has fewer; this many are evaluated again in an executor
MOST = 64  # for a compiled run, whose first batch is its initial population
NUM_CALLS = 4  # answers that must agree with each other before a function counts as another one
RTOL, ATOL = 1e-3, 1e-5  # other devices and versions round differently; the second relative to the largest

Row = tuple[float, np.ndarray]  # fitness and descriptor of a solution


class Answers(NamedTuple):
    """The answers for the first solutions."""

    x: np.ndarray
    fitness: np.ndarray
    descriptor: np.ndarray

    def arrays(self) -> dict[str, np.ndarray]:
        return {f"first.{name}": value for name, value in self._asdict().items()}

    def followed_by(self, other: "Answers") -> "Answers":
        return Answers(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))

    @property
    def rows(self) -> list[Row]:
        return [*zip(self.fitness.tolist(), self.descriptor, strict=True)]


def answers(x: Any, fitness: Any, descriptor: Any) -> Answers:
    """As they are kept: copies, in float32."""
    return Answers(*(float32(np.array(part)) for part in (x, fitness, descriptor)))


def from_arrays(arrays: Mapping[str, np.ndarray], dim: int) -> Answers | None:
    """Puts together what `Answers.arrays` took apart; None for an older file, which has none."""
    if not arrays:
        return None
    found = Answers(*(arrays[name] for name in Answers._fields))
    is_plain = all(part.dtype == np.float32 and part.ndim == 2 - (part is found.fitness) for part in found)
    if not is_plain or len({len(part) for part in found}) != 1 or not len(found.x) or found.x.shape[1] != dim:
        raise ValueError("first answers of a strange shape")
    return found


def described(evaluate) -> dict[str, Any] | None:
    """Name and plain settings of a task; None for a function."""
    if not isinstance(evaluate, Task):
        return None
    fields: tuple = dataclasses.fields(evaluate) if dataclasses.is_dataclass(evaluate) else ()
    settings = {field.name: getattr(evaluate, field.name) for field in fields}
    plain = {name: value for name, value in settings.items() if isinstance(value, bool | int | float | str)}
    return {"name": evaluate.name} | plain


def says_all(evaluate) -> bool:
    """Whether a task is fully described by its name and settings."""
    return isinstance(evaluate, Task) and not jax.tree.leaves(evaluate)


def difference(before: dict[str, Any] | None, now: dict[str, Any] | None) -> str | None:
    """In words, between two descriptions."""
    if before is None or now is None:
        kinds = [("a function" if one is None else repr(one["name"])) for one in (before, now)]
        return None if before == now else f"task ({kinds[0]}, now {kinds[1]})"
    for name in now:
        if name in before and before[name] != now[name]:
            return f"task ({name}={before[name]!r}, now {now[name]!r})"
    return None


def check(path, kept: Answers, again: Callable[[], Sequence[Row | None]]) -> None:
    """An error if the function, called again for the same solutions, consistently gives other answers."""
    found = again()
    different = _difference(kept, found)
    if different is None:
        return
    for _ in range(NUM_CALLS - 1):
        if _difference(_as_answers(kept, found), again()) is not None:
            return  # it is noisy
    raise InvalidInput(
        f"checkpoint {path} holds a run on another function: {different}. Give another folder; or recheck=False, if "
        f"you know that it is the same."
    )


def _as_answers(kept: Answers, found: Sequence[Row | None]) -> Answers:
    rows = [before if now is None else now for before, now in zip(kept.rows, found, strict=False)]
    return Answers(kept.x, np.array([row[0] for row in rows]), np.array([row[1] for row in rows]))


def _difference(kept: Answers, found: Sequence[Row | None]) -> str | None:
    """The difference in words; solutions that were infeasible, or whose workers died, do not count."""
    finite = np.isfinite(kept.fitness)
    largest = np.max(np.abs(kept.fitness[finite]), initial=0.0)
    widest = np.max(np.abs(kept.descriptor[finite]), initial=0.0, where=np.isfinite(kept.descriptor[finite]))
    for number, (before, now) in enumerate(zip(kept.rows, found, strict=False)):
        if now is None or not finite[number]:
            continue
        for what, scale, i in (("fitness", largest, 0), ("descriptor", widest, 1)):
            one, other = np.asarray(before[i]), np.asarray(now[i])
            if one.shape != other.shape or not np.allclose(other, one, rtol=RTOL, atol=ATOL * scale, equal_nan=True):
                return f"for solution {number + 1} of the first batch it returned {what} {one}, now {other}"
    return None
