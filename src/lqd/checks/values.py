"""Checks of single values that a user gives: numbers, flags, names, boxes, functions."""

import importlib
import numbers
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lqd.errors import InvalidInput

LARGEST_SIZE = 2**24  # of anything that is kept in memory


def size(name: str, value) -> int:
    """How many of something are kept in memory."""
    if whole(name, value, 1) > LARGEST_SIZE:
        raise InvalidInput(f"{name} must be at most {LARGEST_SIZE:,}, got {value}.")
    return int(value)


def whole(name: str, value, least: int) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise InvalidInput(f"{name} must be a whole number of at least {least}, got {value!r}.")
    return int(value)


def installed(module: str, extra: str, what: str) -> Any:
    """An optional package, imported when it is needed; `what` needs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise InvalidInput(f"{what} needs {package} ({error}): pip install 'lqd[{extra}]'.") from error


def flag(name: str, value) -> bool:
    """True or False, and nothing that merely counts as such: the text 'no' counts as true."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidInput(f"{name} must be True or False, got {value!r}.")
    return bool(value)


def finite(name: str, value) -> float:
    """Any finite number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not np.isfinite(float(value)):
        raise InvalidInput(f"{name} must be finite, got {value!r}.")
    return float(value)


def float32(array: np.ndarray) -> np.ndarray:
    """In float32; what is beyond its range becomes infinite, which the caller then sees."""
    with np.errstate(over="ignore"):
        return array.astype(np.float32)


def is_real(dtype) -> bool:
    """Whether entries of this type are real numbers: NumPy's, or JAX's small floats."""
    return np.dtype(dtype).kind in "biuf" or jnp.issubdtype(dtype, jnp.floating)


def real(name: str, value, *, positive: bool = False) -> float:
    """A finite number of at least 0, or above 0."""
    ok = isinstance(value, numbers.Real) and not isinstance(value, bool) and np.isfinite(float(value))
    if not ok or value < 0 or (positive and value == 0):
        raise InvalidInput(f"{name} must be a finite number {'above' if positive else 'of at least'} 0, got {value!r}.")
    return float(value)


def one_of(name: str, value, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise InvalidInput(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")
    return value


def box(name: str, bounds, dim: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Both ends of a box as float32 vectors; numbers are repeated `dim` times, where `dim` is known."""
    example = "(low, high) with numbers or vectors, e.g. (-5, 5) or ([0, 0], [1, 1])"
    try:
        with np.errstate(over="ignore"):
            low, high = (np.asarray(end, np.float32) for end in bounds)
    except (TypeError, ValueError) as error:
        pairs = " For one pair per dimension, transpose: tuple(zip(*bounds))." if _is_pairs(bounds) else ""
        raise InvalidInput(f"{name} must be {example}, got {bounds!r}.{pairs}") from error
    if low.ndim > 1 or high.ndim > 1:
        raise InvalidInput(f"{name} must be {example}, got shapes {low.shape} and {high.shape}.")
    size = dim if dim is not None else max(low.size, high.size)
    for end, label in ((low, "lower"), (high, "upper")):
        if end.ndim == 1 and end.size != size:
            raise InvalidInput(f"{name}: the {label} end has {end.size} entries, expected {size}.")
    low, high = (np.array(np.broadcast_to(end, (size,))) for end in (low, high))
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise InvalidInput(f"{name} must be finite, got {bounds!r}; for an unbounded search give None.")
    if not (low < high).all():
        hint = ""
        if low.size == 2 and low[0] < low[1] and high[0] < high[1]:
            hint = f" For one pair per dimension, transpose: ([{low[0]:g}, {high[0]:g}], [{low[1]:g}, {high[1]:g}])."
        elif (low == high).any():
            hint = " They are compared, like everything, in float32."
        raise InvalidInput(f"{name} must have each lower end below the upper one, got {bounds!r}.{hint}")
    if not np.isfinite(float32(high.astype(np.float64) - low)).all():
        raise InvalidInput(f"{name} must not be wider than float32 can say (3.4e38), got {bounds!r}.")
    return low, high


def _is_pairs(bounds) -> bool:
    try:
        return np.ndim(bounds) == 2 and np.shape(bounds)[1] == 2
    except (TypeError, ValueError):
        return False


def function_of_arrays(name: str, function, contract: str, expected: tuple[int, ...], *arguments) -> None:
    """A user's own rule or operator, looked at by tracing alone: `expected` is the shape that it must return."""
    try:
        returned = jax.eval_shape(function, *arguments)
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise InvalidInput(f"{name} must be a JAX function {contract} ({type(error).__name__}: {reason}).") from error
    if getattr(returned, "shape", None) != expected or not is_real(returned.dtype):
        received = f"{returned.dtype}{list(returned.shape)}" if hasattr(returned, "shape") else repr(returned)
        raise InvalidInput(f"{name} must be a JAX function {contract}; it returned {received}, not {list(expected)}.")
