"""Ask for solutions, evaluate them anywhere, tell what came out. The loop is the same as everywhere else.

The first asks hand out the start points, a batch at a time; nobody competes until a population's worth has been told.
From then on every told batch competes with the population. More than a batch told at once is taken in batches; asks
may run ahead of tells, and solutions that were never asked for are welcome.
"""

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lqd import catalogue, checkpoint, checks
from lqd.errors import InvalidInput, Unreadable
from lqd.evolution import cvt, driver, loop
from lqd.evolution.driver import Rows
from lqd.evolution.loop import State
from lqd.evolution.reproduction import FunctionReproduction, IsoLine, Reproduction
from lqd.result import Result, make_result, numeric
from lqd.types import Evaluation, Population


@dataclasses.dataclass(frozen=True)
class Settings:
    """What `optimize` and `AskTell` have in common, checked."""

    dim: int
    bounds: Any
    rule: Any
    population_size: int
    batch_size: int
    iso_sigma: float
    line_sigma: float
    x0: Any
    init_sigma: float
    descriptor_bounds: Any
    minimize: bool
    on_nan: str
    reproduction: Any
    archive_cells: int | None
    qd_offset: float | None
    seed: int

    def __post_init__(self):
        put = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731
        put("dim", checks.whole("dim", self.dim, 1))
        put("population_size", checks.whole("population_size", self.population_size, 1))
        put("batch_size", checks.whole("batch_size", self.batch_size, 1))
        if self.qd_offset is not None and not np.isfinite(self.qd_offset):
            raise InvalidInput(f"qd_offset must be finite, got {self.qd_offset!r}.")
        put("seed", checks.whole("seed", self.seed, 0))
        put("iso_sigma", checks.real("iso_sigma", self.iso_sigma))
        put("line_sigma", checks.real("line_sigma", self.line_sigma))
        put("init_sigma", checks.real("init_sigma", self.init_sigma, positive=True))
        checks.one_of("on_nan", self.on_nan, ("eliminate", "raise"))
        if self.seed >= 2**32:
            raise InvalidInput(f"seed must be below 2**32, got {self.seed}.")
        if self.bounds is not None:
            put("bounds", checks.box("bounds", self.bounds, self.dim))
        if self.descriptor_bounds is not None:
            put("descriptor_bounds", checks.box("descriptor_bounds", self.descriptor_bounds, None))
        if self.x0 is not None:
            put("x0", self._checked_x0())
        if self.archive_cells is not None:
            put("archive_cells", checks.whole("archive_cells", self.archive_cells, 1))
            if self.descriptor_bounds is None:
                raise InvalidInput("archive_cells needs descriptor_bounds=(low, high): the box that the cells divide.")
        if isinstance(self.rule, str) and self.rule == "me" and self.descriptor_bounds is None:
            catalogue.rule("me")  # says what is missing
        if self.reproduction is not None and not callable(self.reproduction):
            raise InvalidInput(f"reproduction must be a function (key, x1, x2) -> x, got {self.reproduction!r}.")
        self.resolved_rule(None)

    def _checked_x0(self) -> np.ndarray:
        x0 = checks.numbers_array("x0", self.x0, "x0").astype(np.float32)
        if x0.shape[-1:] != (self.dim,) or x0.ndim > 2 or not len(x0):
            raise InvalidInput(f"x0 must have shape ({self.dim},) or (points, {self.dim}), got {x0.shape}.")
        if not np.isfinite(x0).all():
            raise InvalidInput("x0 must be finite.")
        if self.bounds is not None and not ((x0 >= self.bounds[0]) & (x0 <= self.bounds[1])).all():
            raise InvalidInput("x0 must lie within the bounds; clip it first: np.clip(x0, low, high).")
        return x0

    def resolved_rule(self, descriptor_dim: int | None):
        """The rule; MAP-Elites with bounds given as two numbers waits for the number of dimensions."""
        bounds = self.descriptor_box(descriptor_dim)
        return catalogue.resolve(self.rule, descriptor_bounds=bounds, population_size=self.population_size)

    def descriptor_box(self, descriptor_dim: int | None):
        """Both ends of the descriptor box, repeated over all dimensions if given as numbers."""
        if self.descriptor_bounds is None:
            return None
        low, high = self.descriptor_bounds
        if descriptor_dim is not None and len(low) == 1 < descriptor_dim:
            return np.repeat(low, descriptor_dim), np.repeat(high, descriptor_dim)
        if descriptor_dim is not None and len(low) != descriptor_dim:
            raise InvalidInput(f"descriptor_bounds have {len(low)} dimensions, the descriptors {descriptor_dim}.")
        return low, high

    def centroids(self, descriptor_dim: int):
        """Cells of the passive archive, the same for every rule."""
        if self.archive_cells is None:
            return None
        return cvt.centroids(self.archive_cells, *self.descriptor_box(descriptor_dim))

    def operator(self) -> Reproduction:
        if self.reproduction is None:
            return IsoLine(jnp.float32(self.iso_sigma), jnp.float32(self.line_sigma))
        leaves = jax.tree.leaves(self.reproduction)
        plain = len(leaves) == 1 and leaves[0] is self.reproduction
        return FunctionReproduction(self.reproduction) if plain else self.reproduction

    @property
    def sign(self) -> float:
        """1 where fitness is maximised, -1 where it is minimised."""
        return -1.0 if self.minimize else 1.0

    def offset(self):
        """The archive's offset, maximised."""
        return None if self.qd_offset is None else jnp.float32(self.sign * self.qd_offset)

    def key(self):
        return jax.random.key(self.seed)[None]

    def box(self):
        return None if self.bounds is None else tuple(jnp.asarray(end) for end in self.bounds)

    def info(self) -> dict[str, Any]:
        """Settings as plain values, for results and files."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values["rule"] = self.rule if isinstance(self.rule, str) else type(self.rule).__name__
        values["reproduction"] = None if self.reproduction is None else _name(self.reproduction)
        for name in ("bounds", "descriptor_bounds"):
            values[name] = None if values[name] is None else [end.tolist() for end in values[name]]
        values["x0"] = None if self.x0 is None else self.x0.tolist()
        return values


def _name(function) -> str:
    return getattr(function, "__name__", type(function).__name__)


class AskTell:
    """Quality-diversity search with the evaluation in your hands: `ask()`, evaluate, `tell(...)`, repeat."""

    def __init__(
        self,
        *,
        dim: int,
        bounds=None,
        rule="dns",
        population_size: int = 128,
        batch_size: int = 32,
        iso_sigma: float = 0.005,
        line_sigma: float = 0.05,
        x0=None,
        init_sigma: float = 1.0,
        descriptor_bounds=None,
        minimize: bool = False,
        on_nan: str = "eliminate",
        reproduction=None,
        archive_cells: int | None = None,
        qd_offset: float | None = None,
        seed: int = 0,
    ):
        self._settings = Settings(
            dim, bounds, rule, population_size, batch_size, iso_sigma, line_sigma, x0, init_sigma, descriptor_bounds,
            minimize, on_nan, reproduction, archive_cells, qd_offset, seed,
        )  # fmt: skip
        self._reset()

    @classmethod
    def of(cls, settings: Settings) -> "AskTell":
        """A search with settings that were checked before."""
        search = cls.__new__(cls)
        search._settings = settings
        search._reset()
        return search

    def _reset(self) -> None:
        s = self._settings
        self._box, self._operator = s.box(), s.operator()
        x0 = None if s.x0 is None else jnp.asarray(s.x0)
        self._start = (x0, jnp.float32(s.init_sigma))
        points = loop.jit_start_points(s.key(), s.population_size, s.dim, self._box, *self._start)
        self._points = np.asarray(points[0])
        self._rule: Any = None
        self._state: State | None = None
        self._num_start_asked = 0  # start points handed out
        self._num_asks = 0  # batches of offspring handed out
        self._num_told = 0
        self._rows: list[Rows] = []
        self._begun = time.perf_counter()
        self._extras = _ExtrasStore()

    @property
    def num_evaluations(self) -> int:
        """Solutions told so far."""
        return self._num_told

    @property
    def generation(self) -> int:
        """Batches that have competed so far."""
        return 0 if self._state is None else int(self._state.generation)

    def ask(self) -> np.ndarray:
        """The next solutions to evaluate, `(batch_size, dim)`; fewer only at the end of the start points."""
        s = self._settings
        if self._num_start_asked < s.population_size:
            first = self._num_start_asked
            self._num_start_asked = min(first + s.batch_size, s.population_size)
            return self._points[first : self._num_start_asked].copy()
        if self._state is None:
            raise InvalidInput(
                "ask: all start points are handed out and nothing was told yet; tell some results first."
            )
        x = loop.jit_offspring(
            self._state, jnp.int32(self._num_asks), self._operator, self._box, s.batch_size, *self._start
        )
        self._num_asks += 1
        return np.array(x[0])

    def tell(self, x, fitness, descriptor, extras: dict | None = None) -> list[Rows]:
        """Results for any solutions, asked for or not; `extras` are arrays kept with each of them.

        Returns the history rows that this added.
        """
        s = self._settings
        num_rows = len(self._rows)
        x = checks.numbers_array("x", x, "tell").astype(np.float32)
        if x.ndim != 2 or x.shape[1] != s.dim or not len(x):
            raise InvalidInput(f"tell: x must have shape (solutions, {s.dim}), got {x.shape}.")
        if not np.isfinite(x).all():
            raise InvalidInput("tell: x must be finite.")
        known = None if self._state is None else self._state.population.descriptor.shape[-1]
        fitness, descriptor, extras = checks.evaluation((fitness, descriptor, extras or {}), len(x), known, "tell")
        fitness = self._checked_fitness(x, fitness, descriptor)
        if self._state is None:
            self._prepare(descriptor.shape[1], sorted(extras))
        rows = self._extras.add(extras, len(x))
        for first in range(0, len(x), s.batch_size):
            last = min(first + s.batch_size, len(x))
            self._absorb(x[first:last], fitness[first:last], descriptor[first:last], rows[first:last])
        self._extras.keep(self._living())
        return self._rows[num_rows:]

    def _checked_fitness(self, x, fitness, descriptor) -> np.ndarray:
        """Fitness, maximised and in float32; what cannot be ranked is an error here, where the rows are known."""
        s = self._settings
        if s.minimize:
            fitness = -fitness.astype(np.float64)
        with np.errstate(over="ignore"):
            fitness = fitness.astype(np.float32)
        infinite = np.flatnonzero(fitness == np.inf)
        if len(infinite):
            raise checks.infinite_fitness(len(infinite), x[infinite[0]], s.minimize, infinite)
        nan = np.flatnonzero(np.isnan(fitness) | (~np.isfinite(descriptor).all(axis=1) & (fitness != -np.inf)))
        if len(nan) and s.on_nan == "raise":
            raise checks.nan_fitness(len(nan), x[nan[0]], nan)
        return fitness

    def _prepare(self, descriptor_dim: int, extras: list[str]) -> None:
        s = self._settings
        self._rule = s.resolved_rule(descriptor_dim)
        shape = jax.ShapeDtypeStruct((1, 1, s.dim), jnp.float32)
        descriptor = jax.ShapeDtypeStruct((1, 1, descriptor_dim), jnp.float32)
        fitness, row = (jax.ShapeDtypeStruct((1, 1), dtype) for dtype in (jnp.float32, jnp.int32))
        like = Population(shape, fitness, descriptor, {"row": row})
        self._state = loop.empty_state(s.key(), self._rule, like, s.population_size, s.centroids(descriptor_dim))
        self._extras.names = extras

    def _absorb(self, x, fitness, descriptor, rows) -> None:
        s = self._settings
        missing = s.population_size - self._num_told
        # A batch that would run over the start population is cut there, so that exactly N start uncontested.
        if 0 < missing < len(x):
            for part in (slice(0, missing), slice(missing, None)):
                self._absorb(x[part], fitness[part], descriptor[part], rows[part])
            return

        def padded(values, fill):
            full = np.full((1, s.batch_size, *values.shape[1:]), fill, values.dtype)
            full[0, : len(values)] = values
            return jnp.asarray(full)

        evaluation = Evaluation(
            padded(fitness, -np.inf), padded(descriptor.astype(np.float32), 0.0), {"row": padded(rows, -1)}
        )
        competing = self._num_told >= s.population_size
        counter = self._state.generation if competing else jnp.int32(-1)
        self._state = loop.jit_absorb(
            self._state, counter, self._rule, padded(x, 0.0), evaluation, jnp.asarray(competing)
        )
        self._num_told += len(x)
        if self._num_told >= s.population_size:
            self._record()

    def _record(self) -> None:
        every = driver.rows_every(self._settings.population_size)
        if self.generation % every == 0:
            self._rows.append(self._row())

    def _row(self) -> Rows:
        measured = loop.jit_measure(self._state, self._settings.offset())
        measures = {name: np.asarray(value)[None] for name, value in measured.items()}
        now = time.perf_counter() - self._begun
        return Rows(np.array([self.generation]), np.array([self._num_told]), np.array([now]), measures)

    def _living(self) -> dict[str, np.ndarray]:
        """Row numbers of the extras of everybody who is still somewhere."""
        parts = {"population": self._state.population, "best": self._state.best}
        if self._state.archive is not None:
            parts["archive"] = self._state.archive.elites
        return {name: np.asarray(part.extras["row"])[0] for name, part in parts.items()}

    def result(self, stopped_by: str | None = None) -> Result:
        """What was found so far."""
        if self._state is None:
            raise InvalidInput("result: nothing was told yet.")
        s = self._settings
        rows = self._rows
        if not rows or rows[-1].generation[0] != self.generation:
            rows = [*rows, self._row()]
        return make_result(
            self._state, Rows.join(rows), minimize=s.minimize, stopped_by=stopped_by, info=s.info(),
            extras={name: self._extras.of(numbers) for name, numbers in self._living().items()},
        )  # fmt: skip

    def save(self, path: checkpoint.PathLike) -> None:
        """Everything needed to go on, in one file."""
        s = self._settings
        rule_arrays, rule_description = catalogue.encode(s.rule)
        arrays = {f"rule.{name}": value for name, value in rule_arrays.items()}
        if self._state is not None:
            arrays |= {f"state.{name}": np.asarray(leaf) for name, leaf in _leaves(self._state).items()}
            arrays |= self._extras.arrays()
            if self._rows:
                rows = Rows.join(self._rows)
                arrays |= {f"rows.{name}": getattr(rows, name) for name in ("generation", "num_evaluations", "time_s")}
                arrays |= {f"rows.measures.{name}": value for name, value in rows.measures.items()}
        description = {
            "settings": s.info() | {"rule": rule_description},
            "num_start_asked": self._num_start_asked,
            "num_asks": self._num_asks,
            "num_told": self._num_told,
            "extras": self._extras.names,
            "next_row": self._extras.next_row,
            "elapsed_s": time.perf_counter() - self._begun,
        }
        checkpoint.write_arrays(path, "state", arrays, description)

    @classmethod
    def load(cls, path: checkpoint.PathLike, *, rule=None, reproduction=None) -> "AskTell":
        """Goes on where `save` left off. A rule or operator that is your own code has to be given again."""
        arrays, description = checkpoint.read_arrays(path, "state")
        settings = dict(description["settings"])
        if rule is None:
            rule = catalogue.decode(settings["rule"], _under(arrays, "rule."))
            if rule is None:
                raise InvalidInput(f"{path}: the run used a rule of its own ({settings['rule']['class']}): give rule=.")
        if settings["reproduction"] is not None and reproduction is None:
            raise InvalidInput(f"{path}: the run used the operator {settings['reproduction']!r}: give reproduction=.")
        search = cls(**settings | {"rule": rule, "reproduction": reproduction})
        search._num_start_asked, search._num_asks = description["num_start_asked"], description["num_asks"]
        search._num_told = description["num_told"]
        search._begun = time.perf_counter() - description["elapsed_s"]
        saved = _under(arrays, "state.")
        if saved:
            search._prepare(saved["population.descriptor"].shape[-1], description["extras"])
            search._state = _with_leaves(search._state, saved, path)
            search._extras.restore(_under(arrays, "extras."), description["next_row"])
        if "rows.generation" in arrays:
            parts = (arrays[f"rows.{name}"] for name in ("generation", "num_evaluations", "time_s"))
            search._rows = [Rows(*parts, _under(arrays, "rows.measures."))]
        return search


def _under(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}


def _leaves(state: State) -> dict[str, jax.Array]:
    """The arrays of a state by dotted name, but for the key, which follows from the seed."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    named = {jax.tree_util.keystr(where, simple=True, separator="."): leaf for where, leaf in leaves}
    return {name: leaf for name, leaf in named.items() if name != "key"}


def _with_leaves(state: State, saved: dict[str, np.ndarray], path) -> State:
    expected = _leaves(state)
    if expected.keys() != saved.keys() or any(saved[name].shape != leaf.shape for name, leaf in expected.items()):
        raise Unreadable(f"{path}: its arrays do not fit its settings.")
    leaves, structure = jax.tree_util.tree_flatten_with_path(state)
    names = [jax.tree_util.keystr(where, simple=True, separator=".") for where, _ in leaves]
    return jax.tree.unflatten(
        structure,
        [leaf if name == "key" else jnp.asarray(saved[name]) for name, (_, leaf) in zip(names, leaves, strict=True)],
    )


class _ExtrasStore:
    """Extras of living solutions on the host, by row number: any dtype, unchanged; the device carries the number."""

    def __init__(self):
        self.names: list[str] = []
        self.next_row = 0
        self._rows: dict[int, tuple] = {}

    def add(self, extras: dict[str, np.ndarray], num: int) -> np.ndarray:
        if sorted(extras) != self.names:
            raise InvalidInput(f"extras must be the same for every batch: expected {self.names}, got {sorted(extras)}.")
        numbers = np.arange(self.next_row, self.next_row + num, dtype=np.int32)
        self.next_row += num
        if self.names:
            columns = [np.asarray(extras[name]) for name in self.names]
            self._rows.update(zip(numbers.tolist(), zip(*columns, strict=True), strict=True))
        return numbers

    def keep(self, living: dict[str, np.ndarray]) -> None:
        """Forgets the rows that nobody holds any more."""
        if self.names:
            numbers = np.unique(np.concatenate(list(living.values()))).tolist()
            self._rows = {number: self._rows[number] for number in numbers if number in self._rows}

    def of(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Each extra for these rows; a slot that holds nobody gets somebody's, and is dropped by the caller."""
        if not self._rows:
            return {}
        someone = next(iter(self._rows.values()))
        rows = [self._rows.get(number, someone) for number in numbers.tolist()]
        return {name: np.stack([row[i] for row in rows]) for i, name in enumerate(self.names)}

    def arrays(self) -> dict[str, np.ndarray]:
        numbers = np.array(sorted(self._rows), np.int32)
        values = {f"extras.value.{name}": numeric(name, value) for name, value in self.of(numbers).items()}
        return {"extras.number": numbers} | values

    def restore(self, arrays: dict[str, np.ndarray], next_row: int) -> None:
        self.next_row = next_row
        columns = [arrays[f"value.{name}"] for name in self.names if f"value.{name}" in arrays]
        if columns:
            self._rows = dict(zip(arrays["number"].tolist(), zip(*columns, strict=True), strict=True))
