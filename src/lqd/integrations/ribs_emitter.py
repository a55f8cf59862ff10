"""The default variation as an emitter of pyribs, for any of its archives: no step size has to be known.

    emitter = LQDEmitter(archive, bounds=[(-5, 5)] * 20)

Steps follow the spread of the elites; of the children that are bred, only the most promising are asked for, by a model
of recent evaluations (`evolution/variation.py`). The model learns only from what is told.
"""

import functools
import math
import numbers
from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ribs.emitters import EmitterBase

from lqd import checks
from lqd.errors import InvalidInput, shown
from lqd.evolution.memory import Memory
from lqd.evolution.variation import Spread, Start
from lqd.integrations import emitting

Ends = tuple[np.ndarray, np.ndarray]


class LQDEmitter(EmitterBase):
    """Children of the archive's elites, with steps and a choice that need no tuning."""

    def __init__(
        self,
        archive: Any,
        *,
        x0: Any = None,
        init_sigma: Any = 1.0,
        bounds: Collection | None = None,
        lower_bounds: Any = None,
        upper_bounds: Any = None,
        batch_size: int = emitting.BATCH_SIZE,
        seed: int | None = None,
    ):
        """Creates an emitter with an empty memory.

        Args:
            archive: Any archive of pyribs, or `LQDArchive`. Where it has bounds of measures they are the range that
                counts, and the unit; else the spread of what was told is.
            x0: Where to begin while the archive is empty; default anywhere in the bounds, or around 0.
            init_sigma: How far around `x0` (or 0), one number or one for each dimension. Without bounds also the unit
                of steps too small to matter.
            bounds: One pair `(low, high)` for each dimension, as pyribs has it, or one for all of them.
            lower_bounds: In place of `bounds`, together with `upper_bounds`: one number for each dimension.
            upper_bounds: See `lower_bounds`.
            batch_size: How many solutions to ask for at once.
            seed: Seed of random draws; drawing elites from the archive uses the archive's own.
        """
        shape = _shape(archive)
        dim = math.prod(shape)
        box = _box(bounds, lower_bounds, upper_bounds, shape)
        given = None if x0 is None else _point(x0, shape, box)
        sigma = checks.steps("init_sigma", init_sigma, dim, positive=True)
        self._archive, self._solution_dim, self._shape = archive, archive.solution_dim, shape
        self._batch_size = checks.size("batch_size", batch_size)
        self._seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else checks.seed(seed)
        self._num_asked = 0
        dtype = archive.dtypes["solution"]
        low, high = (np.full(dim, -np.inf), np.full(dim, np.inf)) if box is None else box
        self._lower_bounds, self._upper_bounds = (end.reshape(shape).astype(dtype) for end in (low, high))
        self._box = None if box is None else tuple(jnp.asarray(checks.float32(end)) for end in box)
        self._start = Start(None if given is None else jnp.asarray(given), jnp.asarray(sigma, jnp.float32))
        self._variation = Spread(_measure_bounds(archive))
        self._memory = emitting.no_memory(dim, int(archive.measure_dim))

    # As properties of our own: what the base class takes is not the same in every version of pyribs.

    @property
    def archive(self) -> Any:
        return self._archive

    @property
    def solution_dim(self) -> Any:
        return self._solution_dim

    @property
    def lower_bounds(self) -> np.ndarray:
        return self._lower_bounds

    @property
    def upper_bounds(self) -> np.ndarray:
        return self._upper_bounds

    @property
    def batch_size(self) -> int:
        return self._batch_size

    @property
    def memory(self) -> Memory:
        """The solutions told most recently."""
        return self._memory

    def ask(self) -> np.ndarray:
        """A batch of children of the archive's elites; initial solutions while it has none."""
        num = min(len(self.archive), emitting.PARENTS)
        x = np.zeros((emitting.PARENTS, math.prod(self._shape)), np.float32)
        if num:
            elites = self.archive.sample_elites(num, replace=False)["solution"]
            x[:num] = checks.float32(np.asarray(elites)).reshape(num, -1)
        found = _children(
            np.uint32(self._seed), np.int32(self._num_asked), self._variation, x, np.int32(num), self._box,
            self._start, self._batch_size, self._memory,
        )  # fmt: skip
        self._num_asked += 1
        solutions = np.asarray(found).reshape(-1, *self._shape).astype(self._lower_bounds.dtype)
        if not np.isfinite(solutions).all():
            raise checks.lost_genotypes(is_own=False)
        return np.clip(solutions, self._lower_bounds, self._upper_bounds)

    def tell(self, solution: Any, objective: Any, measures: Any, add_info: Any = None, **fields: Any) -> None:
        """Takes evaluated solutions, in batches of any size; without objectives (None) all count as 0."""
        measures = checks.numbers_array("measures", measures, "tell")
        num = len(measures) if measures.ndim else 0
        values = {
            "solution": (solution, self._shape),
            "objective": (np.zeros(num) if objective is None else objective, ()),
            "measures": (measures, (self._memory.descriptor.shape[1],)),
        }
        told = []
        for name, (value, shape) in values.items():
            array = checks.numbers_array(name, value, "tell")
            if array.shape != (num, *shape):
                raise InvalidInput(f"tell: {name} must have shape {(num, *shape)}, got {array.shape}.")
            told.append(checks.float32(array).reshape(num, math.prod(shape)))
        for begin in range(0, num, self._batch_size):
            parts = [array[begin : begin + self._batch_size] for array in told]
            num_new = len(parts[0])
            x, fitness, descriptor = (np.pad(part, ((0, self._batch_size - num_new), (0, 0))) for part in parts)
            self._memory = _insert(self._memory, x, fitness[:, 0], descriptor, np.int32(num_new))


@functools.partial(jax.jit, static_argnames="batch_size")
def _children(seed, counter, variation: Spread, x, num, box, start: Start, batch_size: int, memory: Memory):
    key = jax.random.fold_in(jax.random.key(seed), counter)
    return emitting.children(key, variation, x, num, box, start, batch_size, memory)


_insert = jax.jit(emitting.insert)


# Checks


def _shape(archive: Any) -> tuple[int, ...]:
    """Of a solution."""
    missing = [
        name for name in ("solution_dim", "measure_dim", "dtypes", "sample_elites") if not hasattr(archive, name)
    ]
    if missing:
        raise InvalidInput(
            f"archive must be an archive of pyribs, e.g. GridArchive, or LQDArchive; got {shown(archive)}, "
            f"which has no {', '.join(missing)}."
        )
    dtype = np.dtype(archive.dtypes["solution"])
    if dtype.kind != "f":
        raise InvalidInput(f"archive must have solutions of real numbers, got {dtype}: give it dtype=np.float64.")
    dim = archive.solution_dim
    return (int(dim),) if isinstance(dim, numbers.Integral) else tuple(int(size) for size in dim)


def _measure_bounds(archive: Any):
    """Those of the archive, where it has some that can be counted in."""
    low, high = getattr(archive, "lower_bounds", None), getattr(archive, "upper_bounds", None)
    if low is None or high is None:
        return None
    low, high = (checks.float32(np.asarray(end)) for end in (low, high))
    if low.shape != (archive.measure_dim,) or not (np.isfinite(low) & np.isfinite(high) & (low < high)).all():
        return None
    return jnp.asarray(low), jnp.asarray(high)


def _box(bounds, lower, upper, shape: tuple[int, ...]) -> Ends | None:
    """Both ends in double precision, flat."""
    if bounds is None and lower is None and upper is None:
        return None
    dim = math.prod(shape)
    if bounds is not None and (lower is not None or upper is not None):
        raise InvalidInput("bounds says the same as lower_bounds and upper_bounds: give one or the other.")
    if bounds is None:
        if lower is None or upper is None:
            missing = "lower_bounds" if lower is None else "upper_bounds"
            raise InvalidInput(f"{missing} must be given, too: a dimension is bounded on both sides or not at all.")
        ends = []
        for name, end in (("lower_bounds", lower), ("upper_bounds", upper)):
            array = checks.numbers_array(name, end, name)
            if array.shape != shape:
                raise InvalidInput(f"{name} must have shape {shape}, like a solution; got {array.shape}.")
            ends.append(array.astype(np.float64).reshape(-1))
        name, (low, high) = "lower_bounds, upper_bounds", ends
    else:
        name, pairs = "bounds", _pairs(bounds, dim)
        low, high = pairs[:, 0], pairs[:, 1]
    checks.box(name, (low, high), dim)
    return low, high


def _pairs(bounds, dim: int) -> np.ndarray:
    what = f"bounds must be {dim} pairs (low, high), one for each dimension, or one for all, e.g. (-5, 5)"
    try:
        pairs = np.array(bounds, np.float64)  # None becomes NaN
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"{what}, got {shown(bounds)}; a dimension is bounded on both sides or not at all; for no bounds give None."
        ) from error
    if pairs.shape == (2,):
        pairs = np.tile(pairs, (dim, 1))
    if pairs.shape != (dim, 2):
        raise InvalidInput(f"{what}, got shape {pairs.shape}: {shown(bounds)}.")
    return pairs


def _point(x0, shape: tuple[int, ...], box: Ends | None) -> np.ndarray:
    point = checks.numbers_array("x0", x0, "x0")
    if point.shape != shape:
        raise InvalidInput(f"x0 must have shape {shape}, like a solution; got {point.shape}.")
    point = checks.float32(point).reshape(-1)
    if not np.isfinite(point).all():
        raise InvalidInput(f"x0 must be finite, got {shown(x0)}.")
    if box is not None:
        low, high = (checks.float32(end) for end in box)
        outside = np.flatnonzero((point < low) | (point > high))
        if len(outside):
            at = outside[0]
            raise InvalidInput(
                f"x0 must lie within the bounds, but x0[{at}] is {point[at]:g}, not between {low[at]:g} and "
                f"{high[at]:g}; clip it first: np.clip(x0, low, high)."
            )
    return point
