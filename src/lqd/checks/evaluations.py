"""Checks of what a user's function returned: shapes, types, numbers that cannot be ranked."""

from typing import Any

import numpy as np

from lqd.checks.values import is_real
from lqd.errors import InvalidInput


def lost_differences(exact: np.ndarray, rounded: np.ndarray) -> str | None:
    """A warning where float32 has made at least half of the different fitness values equal to others."""
    finite, tiny = np.isfinite(rounded), np.finfo(np.float32).tiny
    seen = np.where(np.abs(rounded) < tiny, 0, rounded)[finite]  # so XLA compares them
    before, after = len(np.unique(exact[finite])), len(np.unique(seen))
    if before < 4 or 2 * after > before:
        return None
    near = float(np.median(np.abs(exact[finite])))
    steps = f"near {near:.3g} it has steps of {np.spacing(np.float32(near)):.2g}"
    return (
        f"fitness has {before} different values, of which single precision tells {after} apart "
        f"({steps if near >= tiny else f'below {tiny:.2g} everything counts as 0'}). Equals are ranked by age: "
        f"subtract a constant, or scale."
    )


def numbers_array(name: str, value, what: str) -> np.ndarray:
    """Anything array-like of real numbers."""
    try:
        array = np.asarray(value)
    except Exception as error:  # ragged lists, tracers, tensors that must be detached first
        raise InvalidInput(f"{what}: {name} is not an array of numbers ({error}).") from error
    if not is_real(array.dtype):
        raise InvalidInput(f"{what}: {name} must hold real numbers, got dtype {array.dtype}.")
    return array


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
    if fitness != (num,):
        raise InvalidInput(f"{what}: fitness must have shape ({num},), one number per genotype, got {fitness}.")
    if len(descriptor) != 2 or descriptor[0] != num or descriptor[1] < 1:
        hint = " Use descriptor[:, None] for one dimension." if descriptor == (num,) else ""
        raise InvalidInput(f"{what}: descriptor must have shape ({num}, D), got {descriptor}.{hint}")
    if descriptor_dim is not None and descriptor[1] != descriptor_dim:
        raise InvalidInput(f"{what}: descriptor has {descriptor[1]} dimensions, expected {descriptor_dim}.")


def extras_of(extras, num: int, what: str) -> dict[str, Any]:
    """Further arrays, one entry per genotype."""
    if not isinstance(extras, dict) or not all(isinstance(name, str) for name in extras):
        raise InvalidInput(f"{what}: extras must be a dictionary of arrays by name, got {type(extras).__name__}.")
    arrays = {}
    for name, value in extras.items():
        try:
            array = np.asarray(value)
        except Exception as error:
            raise InvalidInput(f"{what}: extras[{name!r}] is not an array ({error}).") from error
        if array.ndim < 1 or array.shape[0] != num:
            raise InvalidInput(f"{what}: extras[{name!r}] must have {num} entries, got shape {array.shape}.")
        arrays[name] = array
    return arrays


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


def infinite_fitness(num: int, x: np.ndarray, minimize: bool, rows: np.ndarray | None = None) -> InvalidInput:
    """The error for a solution that claims to be infinitely good."""
    best, worst = ("-inf", "+inf") if minimize else ("+inf", "-inf")
    return InvalidInput(
        f"fitness is {best}, or beyond float32, for {num} solutions{_rows(rows)}; the first: x = {_show(x)}. Nothing "
        f"can be infinitely good: cap the value, or return {worst} where a solution is infeasible."
    )


def nan_fitness(num: int, x: np.ndarray, rows: np.ndarray | None = None) -> InvalidInput:
    """The error of on_nan='raise'."""
    return InvalidInput(
        f"fitness is NaN, or a descriptor not finite, for {num} solutions{_rows(rows)}; the first: x = {_show(x)}. "
        f"on_nan='eliminate' drops such solutions and counts them."
    )


def _rows(rows: np.ndarray | None) -> str:
    return "" if rows is None else f" (rows {', '.join(map(str, rows[:8]))}{', ...' if len(rows) > 8 else ''})"


def _show(x: np.ndarray) -> str:
    return np.array2string(x, threshold=12, edgeitems=4, precision=6)
