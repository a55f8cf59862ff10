"""A function of one solution as one of a batch: for `optimize(..., batch=False)`."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lqd.errors import InvalidInput, shown


class OneByOne:
    """Calls the function for every row, and stacks the answers. Executors can send it to workers."""

    def __init__(self, function: Callable[[np.ndarray], Any]):
        self.function = function

    def __call__(self, x: np.ndarray):
        rows = [_row(self.function(one)) for one in x]
        names = [sorted(row[2]) for row in rows]
        different = next((one for one in names if one != names[0]), None)
        if different is not None:
            raise InvalidInput(f"evaluate must always return the same extras; got {names[0]}, then {different}.")
        fitness, descriptor = np.stack([row[0] for row in rows]), np.stack([row[1] for row in rows])
        return fitness, descriptor, {name: np.stack([row[2][name] for row in rows]) for name in names[0]}


def traced(function: Callable) -> Callable:
    """The same for a function that is traced; its answers are checked where their shapes are."""

    @functools.wraps(function)
    def one(x):
        returned = function(x)
        if not isinstance(returned, tuple | list) or len(returned) not in (2, 3):
            return returned
        fitness, descriptor = (jnp.asarray(part) for part in returned[:2])
        return fitness.reshape(()) if fitness.size == 1 else fitness, jnp.atleast_1d(descriptor), *returned[2:]

    return jax.vmap(one)


def _row(returned) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Fitness (), descriptor (D,) and extras of one solution."""
    contract = (
        "evaluate (batch=False) must return (fitness, descriptor) or (fitness, descriptor, extras) of one solution"
    )
    if not isinstance(returned, tuple | list) or len(returned) not in (2, 3):
        raise InvalidInput(f"{contract}, got {shown(returned)}.")
    fitness, descriptor = np.asarray(returned[0]), np.atleast_1d(np.asarray(returned[1]))
    if fitness.size != 1 or descriptor.ndim != 1:
        raise InvalidInput(
            f"{contract}: one number and a vector (D,), got shapes {fitness.shape} and {descriptor.shape}. "
            f"A function of a whole batch x (B, dim) needs no batch=False."
        )
    extras = returned[2] if len(returned) == 3 else {}
    if not isinstance(extras, dict):
        raise InvalidInput(f"evaluate: extras must be a dictionary by name, got {shown(extras)}.")
    return fitness.reshape(()), descriptor, {name: np.asarray(value) for name, value in extras.items()}
