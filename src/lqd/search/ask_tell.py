"""Ask for solutions, evaluate them anywhere, tell the results. The loop is the same as everywhere else.

The first asks hand out the initial solutions, a batch at a time; nothing competes until a whole population has been
told. From then on, every batch told competes with the population. If more than a batch is told at once, it is split.
Asks may run ahead of tells, and solutions that were never asked for are welcome. What a child inherited besides its
genotype (its traits) waits here until the child is told, in any order.

Calls are atomic: several threads may ask and tell, and Ctrl-C waits for the end of a call.
"""

import contextlib
import pathlib
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from lqd import checks, interrupts
from lqd.errors import InvalidInput
from lqd.evolution import driver, loop
from lqd.evolution.driver import Rows
from lqd.evolution.loop import State
from lqd.evolution.variation import first_traits, uses_memory
from lqd.io import files
from lqd.rules.protocol import ready
from lqd.search import defaults, same_task, saving
from lqd.search.extras_table import ExtrasTable
from lqd.search.growth import Growth
from lqd.search.outstanding import LIMIT, Outstanding
from lqd.search.result import Result, make_result
from lqd.search.same_task import LEAST, Answers
from lqd.search.saving import Saved
from lqd.search.settings import VARIATIONS, Settings
from lqd.types import Evaluation, Population


class AskTell:
    """Quality-diversity search with the evaluation in your hands: `ask()`, evaluate, `tell(...)`, repeat."""

    def __init__(
        self,
        *,
        dim: int,
        bounds=None,
        rule=defaults.RULE,
        population_size: int | None = None,
        batch_size: int | None = None,
        variation=defaults.VARIATION,
        iso_sigma=None,
        line_sigma: float | None = None,
        x0=None,
        init_sigma=None,
        descriptor_bounds=None,
        outside: str = "edge",
        minimize: bool = False,
        on_nan: str = "eliminate",
        reproduction=None,
        archive_cells: int | None = None,
        qd_offset: float | None = None,
        seed: int = 0,
    ):
        self._settings = Settings(
            dim=dim, bounds=bounds, rule=rule, population_size=population_size, batch_size=batch_size,
            variation=variation, iso_sigma=iso_sigma, line_sigma=line_sigma, x0=x0, init_sigma=init_sigma,
            descriptor_bounds=descriptor_bounds, outside=outside, minimize=minimize, on_nan=on_nan,
            reproduction=reproduction, archive_cells=archive_cells, qd_offset=qd_offset, seed=seed,
        )  # fmt: skip
        self._reset()

    @classmethod
    def of(cls, settings: Settings) -> "AskTell":
        """A search from settings that have already been checked."""
        search = cls.__new__(cls)
        search._settings = settings
        search._reset()
        return search

    def _reset(self) -> None:
        s = self._settings
        self._lock = threading.RLock()
        self._box, self._variation = s.box(), s.resolved_variation()
        self._start, self._offset = s.start(), s.offset()
        num_points = s.population_size + s.num_given_batches * s.batch_size
        points = loop.jit_start_points(s.key(), num_points, s.dim, self._box, self._start)
        self._points = np.asarray(points[0])
        self._rule: Any = None
        self._state: State | None = None  # None until the first tell, which shows the shapes
        self._num_start_asked = 0  # initial solutions handed out
        self._num_asks = s.num_given_batches  # batches of offspring, as a compiled loop counts them
        self._num_told = 0
        self._generation = 0  # as in the state; reading it from there would wait for the device
        self.num_failed = 0  # how many of those told could not be evaluated
        self._rows: list[Rows] = []
        self._last: Rows | None = None  # measures of the present state, where they are known
        self._begun = time.perf_counter()
        self._extras = ExtrasTable()
        first = first_traits(self._variation, 1, s.dim)
        self._first_traits = None if first is None else np.asarray(first)[0]
        self._outstanding = Outstanding(self._first_traits, max(LIMIT, s.batch_size))
        self._growth = Growth()
        self._has_warned = False
        self.task: dict[str, Any] | None = None  # the task, where it is known
        self.first: Answers | None = None  # the first results told

    def __getstate__(self) -> dict[str, Any]:
        """For copies: a lock cannot be copied, so each has its own."""
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        with interrupts.waiting(), self._lock:
            yield

    @property
    def _told(self) -> State:
        if self._state is None:
            raise InvalidInput("nothing has been told yet.")
        return self._state

    @property
    def sign(self) -> float:
        """1 where fitness is maximised, -1 where it is minimised."""
        return self._settings.sign

    @property
    def batch_size(self) -> int:
        """The most solutions that one ask returns."""
        return self._settings.batch_size

    @property
    def num_evaluations(self) -> int:
        """Solutions told so far."""
        return self._num_told

    @property
    def descriptor_dim(self) -> int | None:
        """Length of a descriptor; None until the first tell."""
        return None if self._state is None else self._state.population.descriptor.shape[-1]

    @property
    def generation(self) -> int:
        """Batches that have competed so far."""
        return self._generation

    @property
    def can_ask(self) -> bool:
        """False while all initial solutions are handed out and none has come back."""
        has_new = self._num_start_asked < len(self._points) or self._state is not None
        return has_new or self._outstanding.can_ask_again()

    def ask(self, num: int | None = None) -> np.ndarray:
        """The next `num` solutions to evaluate, by default and at most `batch_size`.

        Fewer at the end of the initial solutions. A search from a file first asks again for what was outstanding.
        """
        num = self._settings.batch_size if num is None else checks.whole("num", num, 1)
        num = min(num, self._settings.batch_size)
        with self._alone():
            if self._outstanding.can_ask_again():
                return self._outstanding.ask_again(num)
            x, traits = self._new(num)
            self._outstanding.add(x, traits)
            return x

    def _new(self, num: int) -> tuple[np.ndarray, np.ndarray | None]:
        s = self._settings
        first = self._num_start_asked
        if first < len(self._points):
            end = s.population_size if first < s.population_size else len(self._points)
            self._num_start_asked = min(first + num, end)
            return self._finite(self._points[first : self._num_start_asked].copy()), None
        if self._state is None:
            raise InvalidInput(
                "ask: all initial solutions are handed out, and nothing has been told yet; tell some results first."
            )
        bred = loop.jit_children(
            self._told, np.int32(self._num_asks), self._variation, self._box, s.batch_size, self._start
        )
        x = self._finite(np.array(np.asarray(bred.x)[0, :num]))
        self._num_asks += 1
        return x, None if bred.traits is None else np.asarray(bred.traits)[0, :num]

    def _finite(self, x: np.ndarray) -> np.ndarray:
        if not np.isfinite(x).all():
            raise checks.lost_genotypes(self._settings.reproduction is not None)
        return x

    def tell(self, x, fitness, descriptor, extras: dict | None = None) -> list[Rows]:
        """Give the results of any solutions, asked for or not, inside the bounds or not.

        `extras` are arrays kept with each solution. Returns the history rows that this added. Each solution is matched
        with an equal one that was asked for, or else with the oldest.
        """
        x = checks.float32(checks.numbers_array("x", x, "tell"))
        if x.ndim != 2 or x.shape[1] != self._settings.dim or not len(x):
            raise InvalidInput(f"tell: x must have shape (solutions, {self._settings.dim}), got {x.shape}.")
        if not np.isfinite(x).all():
            raise InvalidInput("tell: x must be finite.")
        answer = (fitness, descriptor, {} if extras is None else extras)
        with self._alone():
            return self._take_in(x, *checks.evaluation(answer, len(x), self.descriptor_dim, "tell"))

    def tell_checked(
        self, x: np.ndarray, fitness: np.ndarray, descriptor: np.ndarray, extras: dict, num_failed: int = 0
    ) -> list[Rows]:
        """`tell` for solutions that were asked for, and results that `checks.evaluation` has looked at.

        `num_failed` of them could not be evaluated.
        """
        with self._alone():
            return self._take_in(x, fitness, descriptor, extras, num_failed)

    def _take_in(self, x, fitness, descriptor, extras: dict, num_failed: int = 0) -> list[Rows]:
        s, new = self._settings, []
        descriptor, given = checks.float32(descriptor), fitness
        fitness = self._checked_fitness(x, fitness, descriptor)
        self._extras.check(extras, first=self._num_told == 0)
        if self._state is None:
            self._prepare(descriptor.shape[1])
        if self._num_told == (0 if self.first is None else len(self.first.fitness)) < LEAST:
            told = same_task.answers(x, given, descriptor)
            self.first = told if self.first is None else self.first.followed_by(told)
        rows = self._extras.add(extras, len(x))
        parts = (x, fitness, descriptor, rows, self._outstanding.settle(x))
        for first in range(0, len(x), s.batch_size):
            new += self._absorb(*(part[first : first + s.batch_size] for part in parts))
        if self._extras.names:
            self._extras.keep(self._living())
        self.num_failed += num_failed
        self._growth.look(self._rule, self._told.population, self._generation, self.first)
        return new

    def _checked_fitness(self, x, fitness, descriptor) -> np.ndarray:
        """Fitness, maximised and in float32; what cannot be ranked is an error here, where the rows are known."""
        s = self._settings
        exact = s.sign * fitness.astype(np.float64)
        fitness = checks.float32(exact)
        infinite = np.flatnonzero(fitness == np.inf)
        if len(infinite):
            raise checks.infinite_fitness(len(infinite), x[infinite[0]], s.minimize, infinite)
        nan = np.flatnonzero(np.isnan(fitness) | (~np.isfinite(descriptor).all(axis=1) & (fitness != -np.inf)))
        if len(nan) and s.on_nan == "raise":
            raise checks.nan_fitness(len(nan), x[nan[0]], nan)
        if not self._has_warned and (warning := checks.lost_differences(exact, fitness)):
            self._has_warned = True
            warnings.warn(warning, stacklevel=4)
        return fitness

    def _prepare(self, descriptor_dim: int) -> None:
        s = self._settings
        self._rule = ready(s.resolved_rule(descriptor_dim))
        zeros = np.zeros((1, 1), np.float32)
        x, descriptor = (jnp.zeros((1, 1, size), jnp.float32) for size in (s.dim, descriptor_dim))
        traits = None if self._first_traits is None else jnp.asarray(self._first_traits)[None, None]
        like = Population(x, jnp.asarray(zeros), descriptor, {"row": jnp.asarray(zeros, jnp.int32)}, traits)
        self._state = loop.empty_state(
            s.key(), self._rule, like, s.population_size, s.centroids(descriptor_dim), uses_memory(self._variation)
        )

    def _absorb(self, x, fitness, descriptor, rows, traits) -> list[Rows]:
        s = self._settings
        missing = s.population_size - self._num_told
        # A batch that would overrun the initial population is cut there, so that exactly N start uncontested.
        if 0 < missing < len(x):
            told = (x, fitness, descriptor, rows, traits)
            cuts = (slice(0, missing), slice(missing, None))
            first, second = (self._absorb(*(part[cut] for part in told)) for cut in cuts)
            return first + second

        def padded(values, fill):
            """A copy: the caller's array may change before the program reads it."""
            full = np.full((1, s.batch_size, *values.shape[1:]), fill, values.dtype)
            full[0, : len(values)] = values
            return full

        evaluation = Evaluation(padded(fitness, -np.inf), padded(descriptor, 0.0), {"row": padded(rows, -1)})
        competing = self._num_told >= s.population_size
        counter = self._told.generation if competing else np.int32(-1)
        generation, is_start = self._generation + competing, self._num_told + len(x) < s.population_size
        is_row = not is_start and generation % driver.rows_every(s.population_size) == 0
        self._state, measured = loop.jit_absorb_and_measure(
            is_row or is_start, self._offset, self._told, counter, self._rule, padded(x, 0.0), evaluation, competing,
            None if self._first_traits is None else padded(traits, 0.0), np.int32(len(x)),
        )  # fmt: skip
        self._num_told, self._generation = self._num_told + len(x), generation
        self._last = row = self._row(measured) if is_row or is_start else None
        if row is None or is_start:
            return []
        driver.append(self._rows, row)
        return [row]

    def _row(self, measured) -> Rows:
        measures = {name: np.array(value)[None] for name, value in measured.items()}  # copies: JAX keeps much more
        now = time.perf_counter() - self._begun
        return Rows(np.array([self.generation]), np.array([self._num_told]), np.array([now]), measures)

    def _living(self) -> dict[str, np.ndarray]:
        """Row numbers of all extras that are still in use."""
        parts = {"population": self._told.population, "best": self._told.best}
        if self._told.archive is not None:
            parts["archive"] = self._told.archive.elites
        return {name: np.asarray(part.extras["row"])[0] for name, part in parts.items()}

    def result(self, stopped_by: str | None = None) -> Result:
        """The result so far."""
        with self._alone():
            return self._result(stopped_by)

    def _result(self, stopped_by: str | None) -> Result:
        s = self._settings
        rows = self._rows
        if not rows or rows[-1].generation[-1] != self.generation:
            rows = [*rows, self._last or self._row(loop.jit_measure(self._told, self._offset))]
        return make_result(
            self._told, Rows.join(rows), minimize=s.minimize, stopped_by=stopped_by, info=s.info(),
            extras={name: self._extras.of(numbers) for name, numbers in self._living().items()},
            num_failed=self.num_failed,
        )  # fmt: skip

    def save(self, path: files.PathLike) -> pathlib.Path:
        """Save everything needed to continue, in one file."""
        with self._alone():
            return self._save(path)

    def _save(self, path: files.PathLike) -> pathlib.Path:
        arrays = {} if self._state is None else self._extras.arrays()
        arrays |= self._outstanding.arrays()
        arrays |= {} if self.first is None else self.first.arrays()
        rows = Rows.join(self._rows) if self._rows else None
        description = {
            "backend": "host",
            "task": self.task,
            "num_start_asked": self._num_start_asked,
            "num_asks": self._num_asks,
            "num_told": self._num_told,
            "num_failed": self.num_failed,
            "extras": self._extras.names,
            "next_row": self._extras.next_row,
            "elapsed_s": time.perf_counter() - self._begun,
        }
        return saving.write(path, self._settings, self._state, rows, arrays, description)

    @classmethod
    def load(cls, path: files.PathLike, *, rule=None, reproduction=None, variation=None) -> "AskTell":
        """Continue from where `save` left off. A custom rule, operator or variation has to be given again."""
        saved = Saved(path)
        with files.understood(path):
            return cls._from(saved, path, rule, reproduction, variation)

    @classmethod
    def _from(cls, saved: Saved, path, rule, reproduction, variation) -> "AskTell":
        saved.check_random()
        settings = saved.settings
        saved.check_sizes()
        for name in ("bounds", "descriptor_bounds"):  # ends, and never pairs
            settings[name] = None if settings[name] is None else tuple(np.asarray(end) for end in settings[name])
        if rule is None:
            rule = saved.rule()
            if rule is None:
                raise InvalidInput(f"{path}: the run used a custom rule ({settings['rule']['class']}): give rule=.")
        if settings["reproduction"] is not None and reproduction is None:
            raise InvalidInput(f"{path}: the run used the operator {settings['reproduction']!r}: give reproduction=.")
        if variation is None and settings["variation"] not in VARIATIONS:
            raise InvalidInput(f"{path}: the run used the variation {settings['variation']!r}: give variation=.")
        settings |= {"rule": rule, "reproduction": reproduction}
        return cls(**settings | ({} if variation is None else {"variation": variation})).restored(saved)

    def restored(self, saved: Saved) -> "AskTell":
        """This search in the state of the saved one."""
        with files.understood(saved.path):
            self._restore(saved)
        return self

    def _restore(self, saved: Saved) -> None:
        saved.check_traits(self._settings)
        description = {"num_failed": 0} | saved.description
        counters = ("num_start_asked", "num_asks", "num_told", "num_failed", "next_row")
        start_asked, asks, told, failed, next_row = (checks.whole(name, description[name], 0) for name in counters)
        if max(start_asked, asks, told, failed, next_row) >= 2**31:
            raise ValueError("counters beyond 2**31")
        self._num_start_asked, self._num_asks, self._num_told, self.num_failed = start_asked, asks, told, failed
        self._begun = time.perf_counter() - checks.real("elapsed_s", description["elapsed_s"])
        self._outstanding.restore(saved.under("outstanding."), self._settings.dim)
        self.task, self.first = description.get("task"), saved.first
        if saved.under("state."):
            self._prepare(saved.arrays["state.population.descriptor"].shape[-1])
            self._extras.names = description["extras"]
            self._state = saved.state(self._told, self._first_traits)
            self._generation = int(self._state.generation)
            self._extras.restore(saved.under("extras."), next_row)
            rows = saved.rows(self._told, self._settings.offset())
            self._rows = [] if rows is None else [rows]
