"""Checks at the door: everything a user gives is looked at here, before anything compiles."""

from lqd.checks.evaluations import (
    evaluation,
    extras_of,
    infinite_fitness,
    lost_differences,
    nan_fitness,
    numbers_array,
    shapes,
    traced_evaluation,
)
from lqd.checks.values import (
    LARGEST_SIZE,
    box,
    finite,
    flag,
    float32,
    function_of_arrays,
    installed,
    is_real,
    one_of,
    real,
    size,
    whole,
)

__all__ = [
    "LARGEST_SIZE",
    "box",
    "evaluation",
    "extras_of",
    "finite",
    "flag",
    "float32",
    "function_of_arrays",
    "infinite_fitness",
    "installed",
    "is_real",
    "lost_differences",
    "nan_fitness",
    "numbers_array",
    "one_of",
    "real",
    "shapes",
    "size",
    "traced_evaluation",
    "whole",
]
