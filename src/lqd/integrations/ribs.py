"""Any competition rule as an archive of pyribs: change one line, keep schedulers, emitters and plots.

    archive = LQDArchive(solution_dim=20, measure_dim=2, capacity=512, rule="lqd-fn")

The rule scores every solution in the archive and every newcomer, and the best `capacity` stay; a score of `-inf`
eliminates. There are no cells, and so nothing to tessellate: `ranges` are only needed by MAP-Elites (`rule="me"`), by
rankers that draw directions in measure space, and for the axes of plots. Where they are given, NS, DNS and learned
rules see measures in units of them, and they are the range that counts.

What an `add` tells emitters: `status` (2: it stayed, 0: it did not), `value` (its score above the lowest that stayed,
for the improvement rankers: how clearly a solution survives, not how much fitter it is), `score`, and `novelty` (mean
distance to the three nearest). There is no `density`.

Rules compute in single precision; what is stored keeps the dtypes asked for. The program is compiled once for a size of
batch, rounded up to a power of two.
"""

import copy
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from lqd import checks
from lqd.errors import InvalidInput, shown
from lqd.evolution.contest import Contest
from lqd.rules.protocol import Rule

try:
    from ribs.archives import ArchiveBase, ArchiveStats, ArrayStore

    from lqd.integrations.ribs_emitter import LQDEmitter
except ImportError as error:
    raise InvalidInput(f"LQDArchive needs pyribs ({error}): pip install 'lqd[ribs]'.") from error

__all__ = ["LQDArchive", "LQDEmitter"]

OWN_FIELDS = ("solution", "objective", "measures", "index")


class LQDArchive(ArchiveBase):
    """A population of fixed size in which a competition rule decides who stays."""

    def __init__(
        self,
        *,
        solution_dim: int | tuple[int, ...],
        measure_dim: int,
        capacity: int,
        rule: Any = "lqd-fn",
        ranges: Collection[tuple[float, float]] | None = None,
        outside: str = "edge",
        qd_score_offset: float = 0.0,
        seed: int | None = None,
        dtype: Any = np.float64,
        extra_fields: dict[str, tuple] | None = None,
    ):
        """Creates an empty archive.

        Args:
            solution_dim: Length of a solution, or its shape.
            measure_dim: Number of measures.
            capacity: How many solutions stay.
            rule: A name (`lqd rules`), a rule, a file of weights, or a function `(key, fitness, descriptor) -> scores`.
            ranges: Lower and upper bound of each measure.
            outside: How NS, DNS and learned rules see a solution outside `ranges`. `"edge"`: as if it were at the edge;
                `"free"`: as it is.
            qd_score_offset: Subtracted from objectives in the QD score.
            seed: Seed of random draws, by `sample_elites` and by rules.
            dtype: Type of solutions, objectives and measures.
            extra_fields: Further data to keep with each solution: name -> (shape, dtype).
        """
        super().__init__(
            solution_dim=solution_dim, objective_dim=(), measure_dim=checks.whole("measure_dim", measure_dim, 1)
        )
        self._capacity = checks.size("capacity", capacity)
        seed = None if seed is None else checks.seed(seed)
        extra_fields = dict(extra_fields or {})
        taken = sorted(set(OWN_FIELDS) & extra_fields.keys())
        if taken:
            raise InvalidInput(f"extra_fields must not be named {', '.join(taken)}: the archive has its own.")
        self._lower, self._upper = self._bounds(ranges)
        box = None if ranges is None else (self._lower.astype(np.float32), self._upper.astype(np.float32))
        checks.one_of("outside", outside, ("edge", "free"))
        self._contest = Contest(rule, self._capacity, measure_dim, box, outside, 0 if seed is None else seed)
        self._store: Any = ArrayStore(
            field_desc={"solution": (solution_dim, dtype), "objective": ((), dtype), "measures": (measure_dim, dtype)}
            | extra_fields,
            capacity=self._capacity,
        )
        self._offset = checks.finite("qd_score_offset", qd_score_offset)
        self._rng = np.random.default_rng(seed)
        self._best: dict[str, Any] | None = None

    def _bounds(self, ranges) -> tuple[np.ndarray, np.ndarray]:
        if ranges is None:
            return np.empty(0), np.empty(0)
        bounds = np.asarray(list(ranges), np.float64)
        if bounds.shape != (self.measure_dim, 2) or not (bounds[:, 0] < bounds[:, 1]).all():
            raise InvalidInput(
                f"ranges must be {self.measure_dim} pairs (low, high) with low < high, got {shown(ranges)}."
            )
        return bounds[:, 0], bounds[:, 1]

    # Properties

    @property
    def rule(self) -> Rule:
        return self._contest.rule

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def cells(self) -> int:
        """As many as solutions: pyribs divides by it in statistics and plots."""
        return self._capacity

    @property
    def field_list(self) -> list[str]:
        return self._store.field_list_with_index

    @property
    def dtypes(self) -> dict[str, np.dtype]:
        return self._store.dtypes_with_index

    @property
    def empty(self) -> bool:
        return len(self._store) == 0

    @property
    def qd_score_offset(self) -> float:
        return self._offset

    @property
    def best_elite(self) -> dict[str, Any] | None:
        """The best solution ever added, whether or not it stayed; None before the first."""
        return copy.deepcopy(self._best)

    def __getattr__(self, name: str):
        # As attributes, so that pyribs finds none where there are none, as in its own archives without bounds.
        if name in ("lower_bounds", "upper_bounds", "interval_size"):
            if not len(self.__dict__.get("_lower", ())):
                raise AttributeError(
                    f"{name}: this archive has no bounds of measures; give LQDArchive ranges=[(low, high), ...]."
                )
            return {
                "lower_bounds": self._lower,
                "upper_bounds": self._upper,
                "interval_size": self._upper - self._lower,
            }[name]
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    @property
    def stats(self) -> ArchiveStats:
        num = len(self._store)
        objective = self._store.data("objective")
        score = float(np.sum(objective) - num * self._offset)
        return ArchiveStats(
            num_elites=num,
            coverage=num / self._capacity,
            qd_score=score,
            norm_qd_score=score / self._capacity,
            obj_max=None if self._best is None else float(self._best["objective"]),
            obj_mean=float(np.mean(objective)) if num else None,
        )

    def __len__(self) -> int:
        return len(self._store)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._store)

    # Writing

    def add(self, solution, objective, measures, **fields) -> dict[str, np.ndarray]:
        """A batch joins, all are scored, and the best stay. Without objectives (None) all count as 0."""
        given = {"solution": solution, "objective": objective, "measures": measures} | fields
        data = self._checked(given)
        num, size = len(data["objective"]), len(self._store)
        if not num:
            empty = np.empty(0, self.dtypes["measures"])
            return {"status": np.empty(0, np.int32), "value": empty, "score": empty, "novelty": empty}
        kept = self._store.data(list(data))
        union = {name: np.concatenate([kept[name], data[name]]) for name in data}
        scores, novelty, stay = self._contest.hold(union["objective"], union["measures"], num)
        self._store.clear()
        self._store.add(np.arange(len(stay)), {name: values[stay] for name, values in union.items()})
        best = int(np.argmax(data["objective"]))
        if self._best is None or data["objective"][best] > self._best["objective"]:
            self._best = {name: values[[best]][0] for name, values in data.items()}  # a copy
        stayed = np.isin(np.arange(size, size + num), stay)
        return {
            "status": np.where(stayed, 2, 0).astype(np.int32),
            "value": self._values(scores[size:], scores[stay]),
            "score": scores[size:].astype(self.dtypes["objective"]),
            "novelty": novelty[size:].astype(self.dtypes["measures"]),
        }

    def add_single(self, solution, objective, measures, **fields) -> dict[str, Any]:
        given = {"solution": solution, "objective": objective, "measures": measures} | fields
        one = {name: None if value is None else np.asarray(value)[None] for name, value in given.items()}
        return {name: values[0] for name, values in self.add(**one).items()}

    def clear(self) -> None:
        self._store.clear()
        self._best = None

    def _checked(self, given: dict[str, Any]) -> dict[str, np.ndarray]:
        expected = {name for name in self.field_list if name != "index"}
        if given.keys() != expected:
            raise ValueError(f"fields must be {', '.join(sorted(expected))}, got {', '.join(sorted(given))}.")
        num = len(given["measures"])
        if given["objective"] is None:
            given["objective"] = np.zeros(num)
        data = {}
        for name, value in given.items():
            checks.unmasked(name, value)
            array = np.asarray(value, self._store.dtypes[name])
            shape = (num, *self._store.field_desc[name][0])
            if array.shape != shape:
                raise ValueError(f"{name} must have shape {shape}, got {array.shape}.")
            if name in ("objective", "measures") and not np.isfinite(array).all():
                raise ValueError(f"{name} must be finite, got NaN or infinite values.")
            if name in ("objective", "measures") and not np.isfinite(checks.float32(array)).all():
                raise InvalidInput(f"{name} must be within single precision (3.4e38), which rules compute in.")
            data[name] = array
        return data

    def _values(self, scores: np.ndarray, stayed: np.ndarray) -> np.ndarray:
        """How far above the lowest that stayed; finite, as rankers calculate with it."""
        finite = np.concatenate([scores, stayed])
        finite = finite[np.isfinite(finite)]
        low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
        margin = max(high - low, 1.0)
        clipped = np.clip(scores, low - margin, high + margin)
        floor = np.clip(stayed.min(), low - margin, high + margin) if len(stayed) else low
        return (clipped - floor).astype(self.dtypes["objective"])

    # Reading

    def index_of(self, measures) -> np.ndarray:
        """The place of the solution nearest to each point of measure space: there are no cells."""
        points = np.asarray(measures, np.float64)
        if points.ndim != 2 or points.shape[1] != self.measure_dim:
            raise ValueError(f"measures must have shape (batch, {self.measure_dim}), got {points.shape}.")
        if not np.isfinite(points).all():
            raise ValueError("measures must be finite, got NaN or infinite values.")
        if self.empty:
            raise RuntimeError("the archive is empty: no solution is nearest.")
        there = self._store.data("measures").astype(np.float64)
        return np.array([np.argmin(((there - point) ** 2).sum(axis=1)) for point in points], np.int32)

    def index_of_single(self, measures) -> int:
        return int(self.index_of(np.asarray(measures)[None])[0])

    def retrieve(self, measures) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The nearest solution to each point of measure space."""
        return self._store.retrieve(self.index_of(measures))

    def retrieve_single(self, measures) -> tuple[bool, dict[str, Any]]:
        found, data = self.retrieve(np.asarray(measures)[None])
        return bool(found[0]), {name: values[0] for name, values in data.items()}

    def data(self, fields=None, return_type=None):
        return self._store.data(fields, return_type)

    def sample_elites(self, n: int | np.integer, replace: bool = True) -> dict[str, np.ndarray]:
        if self.empty:
            raise IndexError("No elements in archive.")
        if not replace and n > len(self):
            raise ValueError(f"n must be at most {len(self)}, the number of elites, without replacement; got {n}.")
        return self._store.retrieve(self._rng.choice(len(self), size=int(n), replace=replace))[1]
