"""Checks at the door: everything a user gives is checked here, before anything compiles."""

import importlib
import numbers
from collections.abc import Mapping, Set
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lqd.errors import InvalidInput, shown

LARGEST_SIZE = 2**24  # of anything that is kept in memory
LARGEST = float(np.finfo(np.float32).max)


def size(name: str, value) -> int:
    """A number of things to keep in memory."""
    if whole(name, value, 1) > LARGEST_SIZE:
        raise InvalidInput(f"{name} must be at most {LARGEST_SIZE:,}, got {shown(value)}.")
    return int(value)


def whole(name: str, value, least: int) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise InvalidInput(f"{name} must be a whole number of at least {least}, got {shown(value)}.")
    return int(value)


def seed(value, name: str = "seed") -> int:
    """A seed; larger ones would count from 0 again, and two of them give the same random numbers."""
    if whole(name, value, 0) >= 2**32:
        raise InvalidInput(f"{name} must be below 2**32, got {shown(value)}.")
    return int(value)


def installed(module: str, extra: str, what: str) -> Any:
    """An optional package, imported when it is needed; `what` needs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise InvalidInput(f"{what} needs {package} ({error}): pip install 'lqd[{extra}]'.") from error


def flag(name: str, value) -> bool:
    """True or False, and nothing merely truthy: the text 'no' counts as true."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidInput(f"{name} must be True or False, got {shown(value)}.")
    return bool(value)


def finite(name: str, value) -> float:
    """Any number that is finite in single precision."""
    if (number := _number(value)) is None:
        raise InvalidInput(f"{name} must be finite, got {shown(value)}.")
    return _single(name, number, value)


def _number(value) -> float | None:
    """A number that is not NaN as a float; None for anything else, also for one that is infinite."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    try:
        number = float(value)
    except OverflowError:
        return LARGEST * 2
    return number if np.isfinite(number) else None


def _single(name: str, number: float, value) -> float:
    if abs(number) > LARGEST:
        raise InvalidInput(f"{name} must be at most 3.4e38, the limit of single precision, got {shown(value)}.")
    return number


def float32(array: np.ndarray) -> np.ndarray:
    """As float32; what is beyond its range becomes infinite, for the caller to check."""
    with np.errstate(over="ignore"):
        return array.astype(np.float32)


def is_real(dtype) -> bool:
    """Whether entries of this type are real numbers: NumPy's, or JAX's small floats."""
    return np.dtype(dtype).kind in "biuf" or jnp.issubdtype(dtype, jnp.floating)


def real(name: str, value, *, positive: bool = False) -> float:
    """A finite number of at least 0, or above 0."""
    number = _number(value)
    if number is None or value < 0 or (positive and value == 0):
        least = "above" if positive else "of at least"
        raise InvalidInput(f"{name} must be a finite number {least} 0, got {shown(value)}.")
    return _single(name, number, value)


def steps(name: str, value, dim: int, *, positive: bool = False) -> float | np.ndarray:
    """A finite number of at least 0 (or above it), or `dim` of them, one for each dimension."""
    if not isinstance(value, list | tuple | np.ndarray) or np.ndim(value) == 0:
        return real(name, value, positive=positive)
    array = float32(numbers_array(name, value, name))
    if array.shape != (dim,):
        raise InvalidInput(f"{name} must be one number or {dim}, one for each dimension; got shape {array.shape}.")
    if not np.isfinite(array).all() or not (array > 0 if positive else array >= 0).all():
        least = "above" if positive else "of at least"
        raise InvalidInput(f"{name} must have finite numbers {least} 0, got {shown(value)}.")
    return array


def budget(value) -> int:
    """A number of evaluations; floats like 1e6 will do."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return whole("num_evaluations", value, 1)


def time_limit(value) -> float | None:
    """Seconds above 0, or None for no limit; the same rule wherever a run can be given one."""
    return None if value is None else real("time_limit_s", value, positive=True)


def one_of(name: str, value, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise InvalidInput(f"{name} must be one of {', '.join(map(repr, choices))}, got {shown(value)}.")
    return value


def box(name: str, bounds, dim: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Both ends of a box as float32 vectors; numbers are repeated `dim` times, where `dim` is known.

    One pair `(low, high)` per dimension, as SciPy has it, is read as well.
    """
    example = "(low, high) with numbers or vectors, e.g. (-5, 5) or ([0, 0], [1, 1]), or one pair per dimension"
    if hasattr(bounds, "columns"):  # which is what comes out of a table, one by one
        kind = type(bounds).__name__
        raise InvalidInput(
            f"{name} must be {example}, got a {kind}; take its columns: (low.to_numpy(), high.to_numpy())."
        )
    if isinstance(bounds, Mapping | Set | str | bytes):
        raise InvalidInput(f"{name} must be {example}, got {shown(bounds)}.")
    try:
        low, high = (_end(name, end) for end in _as_ends(name, bounds, dim))
    except InvalidInput:
        raise
    except Exception as error:  # whatever does not give two ends, or not of numbers
        raise InvalidInput(f"{name} must be {example}, got {shown(bounds)}.") from error
    if low.ndim > 1 or high.ndim > 1:
        raise InvalidInput(f"{name} must be {example}, got shapes {low.shape} and {high.shape}.")
    size = dim if dim is not None else max(low.size, high.size)
    for end, label in ((low, "lower"), (high, "upper")):
        if end.ndim == 1 and end.size != size:
            raise InvalidInput(f"{name}: the {label} end has {end.size} entries, expected {size}.")
    low, high = (np.array(np.broadcast_to(end, (size,))) for end in (low, high))
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise InvalidInput(f"{name} must be finite, got {shown(bounds)}; for an unbounded search give None.")
    if not (low < high).all():
        hint = " Like everything else, they are compared in float32." if (low == high).any() else ""
        raise InvalidInput(f"{name} must have each lower end below the upper one, got {shown(bounds)}.{hint}")
    if not np.isfinite(float32(high.astype(np.float64) - low)).all():
        raise InvalidInput(f"{name} must not be wider than float32 can represent (3.4e38), got {shown(bounds)}.")
    return low, high


def _end(name: str, end) -> np.ndarray:
    """One end of a box in float32; beyond it, infinite."""
    unmasked(name, end)
    array = np.asarray(end)
    if array.dtype != object and not is_real(array.dtype):
        raise TypeError(f"not numbers: {array.dtype}")
    return float32(array)


def _as_ends(name: str, bounds, dim: int | None):
    """`(low, high)`, where one pair per dimension was given. Two pairs are read as what they can be; an error where
    they can be both. Two vectors of NumPy, each by itself, are always ends."""
    if not isinstance(bounds, list | tuple | np.ndarray) or not len(bounds):
        return bounds
    if isinstance(bounds, np.ndarray) and bounds.shape == (2, 2) and not np.ma.isMaskedArray(bounds):
        bounds = bounds.tolist()  # which says as little of how to read it
    if not all(isinstance(one, list | tuple | np.ndarray) and np.shape(one) == (2,) for one in bounds):
        return bounds
    if dim not in (None, len(bounds)):
        if len(bounds) == 2:
            return bounds
        num = "1 pair" if len(bounds) == 1 else f"{len(bounds)} pairs"
        raise InvalidInput(f"{name}: {num} for {dim} dimensions; give one pair per dimension.")
    (first, second), ends = bounds[0], [list(end) for end in zip(*bounds, strict=True)]
    if len(bounds) != 2:
        return ends
    if any(isinstance(one, np.ndarray) for one in bounds):
        return bounds
    are_pairs = bool(first < second and bounds[1][0] < bounds[1][1])
    are_ends = bool(first < bounds[1][0] and second < bounds[1][1])
    if are_pairs and are_ends and list(bounds[0]) != ends[0]:
        raise InvalidInput(
            f"{name}={shown(bounds)} can be read as (low, high) or as one pair per dimension: give NumPy vectors, "
            f"(np.array({list(bounds[0])}), np.array({list(bounds[1])})) or (np.array({ends[0]}), np.array({ends[1]}))."
        )
    return ends if are_pairs and not are_ends else bounds


def function_of_arrays(name: str, function, contract: str, expected: tuple[int, ...], *arguments) -> None:
    """Checks a user's rule or operator by tracing alone; `expected` is the shape that it must return."""
    try:
        returned = jax.eval_shape(function, *arguments)
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise InvalidInput(f"{name} must be a JAX function {contract} ({type(error).__name__}: {reason}).") from error
    if getattr(returned, "shape", None) != expected or not is_real(returned.dtype):
        received = f"{returned.dtype}{list(returned.shape)}" if hasattr(returned, "shape") else repr(returned)
        raise InvalidInput(f"{name} must be a JAX function {contract}; it returned {received}, not {list(expected)}.")


def traits(name: str, first) -> None:
    """The traits that a user's variation begins with, checked by tracing alone."""
    contract = "first(num) -> traits (num, T) in float32, or None"
    try:
        returned = jax.eval_shape(lambda: first(3))
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise InvalidInput(f"variation {name}: {contract} ({type(error).__name__}: {reason}).") from error
    if returned is None:
        return
    shape, dtype = getattr(returned, "shape", None), getattr(returned, "dtype", None)
    if shape is None or len(shape) != 2 or shape[0] != 3 or dtype != jnp.float32:
        raise InvalidInput(f"variation {name}: {contract}; for three it returned {shown(returned)}.")


# What a user's function returned


def lost_differences(exact: np.ndarray, rounded: np.ndarray) -> str | None:
    """Warns if float32 makes at least half of the distinct fitness values equal to others."""
    finite, tiny = np.isfinite(rounded), np.finfo(np.float32).tiny
    seen = np.where(np.abs(rounded) < tiny, 0, rounded)[finite]  # so XLA compares them
    before, after = len(np.unique(exact[finite])), len(np.unique(seen))
    if before < 4 or 2 * after > before:
        return None
    near = float(np.median(np.abs(exact[finite])))
    steps = f"near {near:.3g} it has steps of {np.spacing(np.float32(near)):.2g}"
    return (
        f"fitness has {before} different values, of which single precision distinguishes only {after} "
        f"({steps if near >= tiny else f'below {tiny:.2g} everything becomes 0'}). Rules treat the others "
        f"as equal: subtract a constant, or rescale."
    )


GROWTH = 1000.0  # of descriptors since the start, beyond which it is worth a warning


def grown_descriptors(before: np.ndarray, now: np.ndarray) -> str | None:
    """Warns if the spread of a descriptor is far larger than at the start."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        growth = np.where((before > 0) & np.isfinite(now), now / before, 0.0)
    if not len(growth) or not growth.max() > GROWTH:
        return None
    which = int(growth.argmax())
    return (
        f"descriptor {which} now spreads over {now[which]:.3g}, at the start over {before[which]:.3g}: solutions "
        f"that are merely far away displace the others. Give descriptor_bounds=(low, high), the range that matters."
    )


def numbers_array(name: str, value, what: str) -> np.ndarray:
    """Anything array-like of real numbers."""
    unmasked(name, value, f"{what}: ")
    try:
        array = np.asarray(value)
    except Exception as error:  # ragged lists, tracers, tensors that must be detached first
        raise InvalidInput(f"{what}: {name} is not an array of numbers ({error}).") from error
    if not is_real(array.dtype):
        raise InvalidInput(f"{what}: {name} must hold real numbers, got dtype {array.dtype}.")
    return array


def unmasked(name: str, value, what: str = "") -> None:
    """An error where a mask hides something: as plain arrays they would show what is under it."""
    if any(map(np.ma.is_masked, (value, *(value if isinstance(value, tuple | list) else ())))):
        raise InvalidInput(f"{what}{name} has masked entries; fill them in first: array.filled(...).")


def evaluation(returned, num: int, descriptor_dim: int | None, what: str = "evaluate"):
    """Fitness (num,), descriptor (num, D) and extras from what a user's function returned for `num` genotypes."""
    if not isinstance(returned, tuple | list) or len(returned) not in (2, 3):
        received = f"{len(returned)} values" if isinstance(returned, tuple | list) else type(returned).__name__
        raise InvalidInput(
            f"{what} must return (fitness, descriptor) or (fitness, descriptor, extras), got {received}."
        )
    fitness = numbers_array("fitness", returned[0], what)
    descriptor = numbers_array("descriptor", returned[1], what)
    shapes(fitness.shape, descriptor.shape, num, descriptor_dim, what)
    extras = returned[2] if len(returned) == 3 else {}
    return fitness, descriptor, extras_of(extras, num, what)


def shapes(fitness, descriptor, num: int, descriptor_dim: int | None, what: str) -> None:
    """The shapes that an evaluation of `num` genotypes must have."""
    batch = ""
    if what == "evaluate" and fitness != (num,):
        batch = " x is a batch, (B, dim); for a function of one solution give batch=False."
    if fitness != (num,):
        raise InvalidInput(f"{what}: fitness must have shape ({num},), one number per genotype, got {fitness}.{batch}")
    if len(descriptor) != 2 or descriptor[0] != num or descriptor[1] < 1:
        hint = " Use descriptor[:, None] for one dimension." if descriptor == (num,) else batch
        raise InvalidInput(f"{what}: descriptor must have shape ({num}, D), got {descriptor}.{hint}")
    if descriptor_dim is not None and descriptor[1] != descriptor_dim:
        raise InvalidInput(f"{what}: descriptor has {descriptor[1]} dimensions, expected {descriptor_dim}.")


def extras_of(extras, num: int, what: str) -> dict[str, Any]:
    """Further arrays, one entry per genotype."""
    if not isinstance(extras, dict) or not all(isinstance(name, str) for name in extras):
        raise InvalidInput(f"{what}: extras must be a dictionary of arrays by name, got {type(extras).__name__}.")
    arrays = {}
    for name, value in extras.items():
        unmasked(f"extras[{name!r}]", value, f"{what}: ")
        try:
            array = np.asarray(value)
        except Exception as error:
            raise InvalidInput(f"{what}: extras[{name!r}] is not an array ({error}).") from error
        if array.ndim < 1 or array.shape[0] != num:
            raise InvalidInput(f"{what}: extras[{name!r}] must have {num} entries, got shape {array.shape}.")
        arrays[name] = array
    return arrays


def alike(expected, received) -> None:
    """An error where two evaluations have descriptors or extras of different shape or kind."""
    descriptor_dim = expected[1].shape[1]
    shapes(received[0].shape, received[1].shape, len(received[0]), descriptor_dim, "evaluate")
    if sorted(received[2]) != sorted(expected[2]):
        raise InvalidInput(
            f"evaluate must always return the same extras; got {sorted(expected[2])}, then {sorted(received[2])}."
        )
    for name, value in received[2].items():
        before, now = ((array.shape[1:], array.dtype.kind) for array in (expected[2][name], value))
        if before != now:
            raise InvalidInput(
                f"evaluate: extras[{name!r}] must have entries of shape {before[0]} and kind {before[1]!r} always, got "
                f"shape {now[0]} and kind {now[1]!r}; for entries of any length use an array of objects."
            )


def traced_evaluation(returned, num: int, descriptor_dim: int | None) -> int:
    """The same checks on the shapes and types of a traced function; returns D."""
    if not isinstance(returned, tuple | list) or len(returned) not in (2, 3):
        raise InvalidInput("evaluate must return (fitness, descriptor) or (fitness, descriptor, extras).")
    for name, value in zip(("fitness", "descriptor"), returned[:2], strict=True):
        if not hasattr(value, "dtype") or not is_real(value.dtype):
            raise InvalidInput(f"evaluate: {name} must hold real numbers, got {value}.")
    shapes(returned[0].shape, returned[1].shape, num, descriptor_dim, "evaluate")
    if len(returned) == 3:
        if not isinstance(returned[2], dict):
            raise InvalidInput(f"evaluate: extras must be a dictionary of arrays, got {type(returned[2]).__name__}.")
        for name, value in returned[2].items():
            if getattr(value, "shape", ())[:1] != (num,):
                received = f"shape {value.shape}" if hasattr(value, "shape") else type(value).__name__
                raise InvalidInput(f"evaluate: extras[{name!r}] must have {num} entries, got {received}.")
    return returned[1].shape[1]


def lost_genotypes(is_own: bool) -> InvalidInput:
    """The error for solutions that are not finite, from the user's operator or from ours."""
    if is_own:
        return InvalidInput("reproduction must return finite numbers; it returned NaN or infinity.")
    return InvalidInput(
        "solutions have left the range of single precision (3.4e38): give bounds, or a smaller init_sigma, iso_sigma "
        "or line_sigma."
    )


def infinite_fitness(num: int, x: np.ndarray, minimize: bool, rows: np.ndarray | None = None) -> InvalidInput:
    """The error for a solution that claims to be infinitely good."""
    best, worst = ("-inf", "+inf") if minimize else ("+inf", "-inf")
    return InvalidInput(
        f"fitness is {best}, or beyond float32, for {num} solutions{_rows(rows)}; the first: x = {_show(x)}. No "
        f"solution can be infinitely good: cap the value, or return {worst} where a solution is infeasible."
    )


def nan_fitness(num: int, x: np.ndarray, rows: np.ndarray | None = None) -> InvalidInput:
    """The error of on_nan='raise'."""
    return InvalidInput(
        f"fitness is NaN, or a descriptor is not finite, for {num} solutions{_rows(rows)}; the first: x = {_show(x)}. "
        f"on_nan='eliminate' drops such solutions and counts them."
    )


def _rows(rows: np.ndarray | None) -> str:
    return "" if rows is None else f" (rows {', '.join(map(str, rows[:8]))}{', ...' if len(rows) > 8 else ''})"


def _show(x: np.ndarray) -> str:
    return np.array2string(x, threshold=12, edgeitems=4, precision=6)
