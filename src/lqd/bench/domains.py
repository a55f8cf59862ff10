"""The community's tasks for QD score, for NumPy and JAX alike, and the grid of 100 x 100 cells that measures them.

Sphere and Rastrigin with linear projection (Fontaine et al., 2020, as in pyribs's examples): unbounded, measured by the
sums of both halves of the coordinates, each coordinate x beyond 5.12 counting as 5.12 / x. The arm (Vassiliades &
Mouret, 2018, as in pyribs's tutorial): joints within [-pi, pi], links of length 1, measured by where the hand is.

The grid is passive: it sees every solution and decides nothing. No rule was trained on these tasks (a test says so).
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from lqd.tasks.function import FunctionTask

GRID = 100  # cells a side
START_SIGMA = 0.5  # of the first points, around the origin
CLIP, OPTIMUM = 5.12, 2.048  # where coordinates begin to count less; where the best solution is, in each coordinate


def _halves(x, xp):
    """Sums of the clipped halves."""
    inside = xp.abs(x) <= CLIP
    clipped = xp.where(inside, x, CLIP / xp.where(inside, 1.0, x))
    half = x.shape[-1] // 2
    return xp.stack([clipped[..., :half].sum(axis=-1), clipped[..., half:].sum(axis=-1)], axis=-1)


def sphere(x, xp=np):
    """100 at the best, at 2.048 everywhere, 0 where all are -5.12; the measures are sums of the clipped halves."""
    distance = xp.sum((x - OPTIMUM) ** 2, axis=-1)
    return 100 * (1 - distance / (x.shape[-1] * 7.168**2)), _halves(x, xp)


def rastrigin(x, xp=np):
    """Rastrigin's function instead of the distance: 100 at 2.048 everywhere, 0 where all are -5.12."""
    z, worst = x - OPTIMUM, 7.168**2 + 10 - 10 * math.cos(2 * math.pi * 7.168)
    value = xp.sum(z**2 + 10 - 10 * xp.cos(2 * math.pi * z), axis=-1)
    return 100 * (1 - value / (x.shape[-1] * worst)), _halves(x, xp)


def arm(x, xp=np):
    """1 where all joint angles are equal, 0 at their largest variance; the measures are where the hand is."""
    angle = xp.cumsum(x, axis=-1)
    measures = xp.stack([xp.cos(angle).sum(axis=-1), xp.sin(angle).sum(axis=-1)], axis=-1)
    return 1 - xp.var(x, axis=-1) / math.pi**2, measures


@dataclasses.dataclass(frozen=True)
class Domain:
    """A task: its function, the box of solutions (half its width; None: unbounded) and of measures."""

    function: Callable
    title: str
    dim: int
    bound: float | None
    half_width: float

    def task(self) -> FunctionTask:
        bounds = None if self.bound is None else (jnp.full(self.dim, -self.bound), jnp.full(self.dim, self.bound))
        return FunctionTask(bounds, jnp.float32(1), functools.partial(self.function, xp=jnp), self.dim, 2)

    @property
    def box(self) -> tuple[np.ndarray, np.ndarray]:
        """Of measures."""
        side = np.full(2, self.half_width)
        return -side, side


def _projected(function: Callable, dim: int) -> Domain:
    return Domain(function, f"{function.__name__}, {dim} dimensions", dim, None, CLIP * dim / 2)


def _arm(num_joints: int) -> Domain:
    return Domain(arm, f"arm, {num_joints} joints", num_joints, math.pi, float(num_joints))


DOMAINS = {
    "sphere-20": _projected(sphere, 20),
    "sphere-100": _projected(sphere, 100),
    "rastrigin-20": _projected(rastrigin, 20),
    "rastrigin-100": _projected(rastrigin, 100),
    "arm-12": _arm(12),
    "arm-100": _arm(100),
}

# Steps with the best mean QD score after 51,840 evaluations on four seeds of their own, by `benchmarks/community.py`:
# of iso-line variation (iso_sigma, line_sigma; six candidates) and of pyribs's emitters (sigma0: 0.1, 0.5, 1 and 2; not
# 2 on the arm of 100 joints, where emitters would draw again without end until all joints are within their bounds).
TUNED: dict[str, dict[str, tuple[float, ...]]] = {
    "sphere-20": {"dns": (0.1, 0.5), "cma-me": (0.5,), "cma-mae": (0.5,)},
    "sphere-100": {"dns": (0.5, 0.5), "cma-me": (1.0,), "cma-mae": (1.0,)},
    "rastrigin-20": {"dns": (0.5, 0.2), "cma-me": (1.0,), "cma-mae": (2.0,)},
    "rastrigin-100": {"dns": (0.5, 0.5), "cma-me": (1.0,), "cma-mae": (0.5,)},
    "arm-12": {"dns": (0.1, 0.2), "cma-me": (0.5,), "cma-mae": (2.0,)},
    "arm-100": {"dns": (0.1, 0.2), "cma-me": (0.1,), "cma-mae": (0.1,)},
}


def cell(measures, half_width: float, xp=np):
    """The cell of each point `(..., 2)`, row by row; what is outside belongs to the cell at the edge."""
    place = xp.clip((measures + half_width) * (GRID / (2 * half_width)), 0, GRID - 1).astype(np.int32)
    return place[..., 0] * GRID + place[..., 1]


def scores(best, xp=np):
    """QD score (what is negative counts as nothing) and coverage of the best objectives `(..., cells)`."""
    return xp.sum(xp.maximum(best, 0.0), axis=-1), xp.mean((best > -xp.inf).astype(best.dtype), axis=-1)


class Passive:
    """The best objective ever seen in each cell."""

    def __init__(self, half_width: float):
        self.half_width, self.best = half_width, np.full(GRID * GRID, -np.inf)

    def add(self, objective: np.ndarray, measures: np.ndarray) -> None:
        np.maximum.at(self.best, cell(measures, self.half_width), objective)
