"""Benchmarks in pieces: a rule under a setting, all seeds of all functions in one program, one file each.

A finished piece is kept and not run again, unless it belongs to other settings or other weights. So a bench can be
interrupted anywhere, and one piece can be redone by deleting its file.
"""

import dataclasses
import functools
import json
import pathlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from lqd.bench import again, contestants, piece, side_by_side
from lqd.bench.settings import NUM_POINTS, SHARE, Field, Setting, field, fitted
from lqd.errors import InvalidInput, Unreadable, unknown
from lqd.evolution import loop, metrics
from lqd.evolution.led import led_by
from lqd.evolution.variation import IsoLine, Operator, Variation
from lqd.io.files import read_arrays
from lqd.meta.validation import SEED
from lqd.rules import catalogue, cvt
from lqd.rules.catalogue import FITTED
from lqd.rules.learned.rule import Learned
from lqd.rules.protocol import Rule, ready
from lqd.tasks import without_descriptors
from lqd.tasks.anchors import random_search
from lqd.tasks.task import Repeated

VALIDATION, TEST = 1, 1000  # folded into the key of held-out tasks: what choices are made on, and what is quoted
BOX = 0x626F78  # folded in where boxes are fitted: no other random numbers of a bench
MEASURES = ("fitness", "novelty", "novelty_rarefied", "qd", "num_filled")
AT_FITTED_SLOTS = "novelty_rarefied_fitted"  # of learned rules, and of MAP-Elites with a fitted box
OPTIONAL = (AT_FITTED_SLOTS, *again.MEASURES)  # some pieces have them
HISTORY = ("fitness", "best", "novelty", "qd")  # what is also kept from time to time: `history.fitness` and so on
MAP_ELITES = ("me", FITTED)
Table = dict[str, np.ndarray]  # measure -> (seeds, columns)


class Keys(NamedTuple):
    """Of held-out tasks, of the runs on them, of random search there, and of the points that boxes are fitted to."""

    tasks: Key[Array, ""]
    runs: Key[Array, ""]
    anchors: Key[Array, ""]
    box: Key[Array, ""]


def held_out(which: int) -> Keys:
    """All random numbers of `VALIDATION` or of `TEST`."""
    key = jax.random.fold_in(jax.random.key(np.uint32(SEED)), which)
    tasks, runs, anchors = jax.random.split(key, 3)
    return Keys(tasks, runs, anchors, jax.random.fold_in(key, BOX))


class Bench:
    """The tasks of one setting, what random search reaches there, and every rule's results, kept in a folder.

    With `compare_fitted`, learned rules are compared also at the slots that MAP-Elites fills with a fitted box.
    `slots_of` is the MAP-Elites whose slots the others are compared at; `rules` are one's own, by name. With `which =
    VALIDATION`, tasks and random numbers are those that choices are made on.
    """

    def __init__(
        self,
        setting: Setting,
        folder: pathlib.Path,
        compare_fitted: bool = False,
        which: int = TEST,
        slots_of: str = "me",
        rules: Mapping[str, Rule] | None = None,
    ):
        self.setting, self.folder, self.compare_fitted = setting, folder, compare_fitted
        self.which, self.slots_of, self.rules = which, slots_of, dict(rules or {})
        self.made: dict[str, dict[str, Any]] = {}  # piece -> when, on what, and how long it took
        keys = held_out(which)
        self._key_anchors, self._key_box = keys.anchors, keys.box
        self.field = field(keys.tasks, setting)
        first = setting.first_seed  # a key does not depend on how many there are
        self.keys = jax.random.split(keys.runs, first + self.field.tasks.num_tasks)[first:]

    def anchors(self):
        """What random search reaches on each task with the evaluations that a rule has; None without an optimum."""
        if self.field.f_opt is None:
            return None

        def compute():
            tasks, first = self.field.tasks, self.setting.first_seed
            if isinstance(tasks, Repeated):
                tasks = Repeated(tasks.task, first + tasks.num_tasks)
            found = random_search(self._key_anchors, tasks, self.setting.num_evaluations)
            return {"f_rand": np.asarray(found.f_rand[first:])}

        return jnp.asarray(self._piece("random-search", {}, compute)["f_rand"])

    def measure(self, name: str) -> Table:
        """Final populations of a rule: an array (seeds, columns) per measure; and (rows, seeds, columns) of histories.

        "me" comes first: the others are compared at the slots that it fills, and say so if its piece is not there.
        "me-fitted" is the same rule with a box fitted to each task; `RULE@random` (or `@zero`) is the rule with
        uninformative descriptors; `RULE+VARIATION` is the rule with children made in another way than the paper's.
        """
        alter, f_rand = _alter(name), self.anchors()

        def compute(rule):
            num, field = self._num_compared(name), self._field(name)
            operator = self._operator(name)
            rows, state = _run(self.setting.sizes, alter, rule, self.keys, field, f_rand, self.setting.steps, operator)
            return self._table(name, rows, state, num)

        return self.piece(name, {}, compute)

    def has(self, name: str) -> bool:
        """Whether what `measure` gives is kept."""
        return self._read(name, self._about(name)) is not None

    def measure_together(
        self, names: Sequence[str], look: Callable[[int], None] = lambda _: None, until: float | None = None
    ) -> None:
        """The rules that are missing, side by side: a simulator takes hardly longer for several than for one.

        Their state is kept from time to time, and when time is up (`until`, by `time.perf_counter`), which raises
        `OutOfTime`. `look` is told the generation. Of rules that ran with fewer seeds only the other seeds run.
        """
        if varied := [name for name in names if contestants.parse(name).variation]:
            raise InvalidInput(f"rules side by side have the paper's variation, not that of {', '.join(varied)}.")
        names = in_order(names)
        about = {name: self._about(name) for name in names}
        missing = [name for name in names if self._read(name, about[name]) is None]
        begun = {name: num for name in missing if (num := self._num_seeds_kept(name, about[name]))}
        if begun:
            self._add_seeds(min(begun.values()), {name: about[name] for name in begun}, look, until)
            missing = [name for name in missing if name not in begun]

        def kept_of(names):
            of = self._description({"rules": [[name, about[name]["rule"]] for name in names]})
            return side_by_side.Kept(self.folder / "together.safetensors", of)

        if missing and kept_of(names).fits():  # cut while the pieces were written
            missing = names
        kept = kept_of(missing)
        if not missing:
            kept.remove()
            return
        if "me" not in missing:
            self._num_compared(missing[0])  # says if MAP-Elites is missing, before anything runs
        rules = tuple(self._rule(name) for name in missing)
        alter, f_rand = tuple(map(_alter, missing)), self.anchors()
        ran, seconds = side_by_side.run(
            self.setting, self.field, self.keys, rules, alter, _measured, (self.field, f_rand), kept, look, until
        )
        begun_tables, tables = time.perf_counter(), dict[str, Table]()
        for name, (rows, state) in zip(missing, ran, strict=True):
            tables[name] = self._table(name, rows, state, self._num_compared(name, tables))
        seconds += time.perf_counter() - begun_tables
        for name in missing:
            self._write(name, about[name], tables[name], seconds / len(missing))
        kept.remove()

    def _add_seeds(self, num_kept: int, about: dict[str, dict[str, Any]], look: Callable[[int], None], until) -> None:
        """The seeds that are missing, as a bench of their own, with MAP-Elites in it; then the pieces grow by them."""
        first, num = self.setting.first_seed + num_kept, self.setting.num_seeds - num_kept
        rest = Bench(dataclasses.replace(self.setting, first_seed=first, num_seeds=num), self.folder / "more-seeds")
        rest.measure_together(list(dict.fromkeys(["me", *about])), look, until)
        rest.measure("me")
        for name in about:
            new, kept = rest.measure(name), self._kept(name)
            if kept is None:
                raise Unreadable(f"{self.folder / name}.safetensors: gone or damaged since this began.")
            grown = {key: np.concatenate([kept[0][key][..., :num_kept, :], new[key]], axis=-2) for key in new}
            self._write(name, about[name], grown, kept[2]["seconds"] + rest.made[name]["seconds"])
        shutil.rmtree(rest.folder)

    def _num_seeds_kept(self, name: str, about: dict[str, Any]) -> int:
        """How many seeds of a rule are kept, where it is to have more."""
        kept, wanted = self._kept(name), self._description(about)
        if kept is None:
            return 0
        num = kept[1]["setting"]["num_seeds"]
        fits = kept[1] == wanted | {"setting": wanted["setting"] | {"num_seeds": num}}
        return num if fits and isinstance(num, int) and 0 < num < self.setting.num_seeds else 0

    def _table(self, name: str, rows, state: loop.State, num: dict[str, Float[Array, " K"]]) -> Table:
        population, scale = state.population, self._field(name).scale
        found = {measure: rows[measure][-1] for measure in MEASURES if measure in rows}
        for measure, slots in num.items():
            found[measure] = _rarefied(population.fitness, population.descriptor, slots) * scale
        found |= {f"history.{measure}": rows[measure] for measure in HISTORY}
        if self.setting.num_resets:
            found |= again.measured(self.field.tasks, state, self.setting.num_resets)
        return {measure: self._by_seed(np.asarray(value)) for measure, value in found.items()}

    def piece(self, name: str, about: dict[str, Any], compute: Callable[[Rule], Table]) -> Table:
        """Something computed for a rule: read if it is kept, else computed anew."""
        return self._piece(name, about | self._about(name), lambda: compute(self._rule(name)))

    def _by_seed(self, values: np.ndarray) -> np.ndarray:
        """(..., tasks) as (..., seeds, columns)."""
        by_column = values.reshape(*values.shape[:-1], len(self.setting.columns), self.setting.num_seeds)
        return np.ascontiguousarray(np.swapaxes(by_column, -1, -2))

    def _num_compared(self, name: str, tables: Mapping[str, Table] | None = None) -> dict[str, Float[Array, " K"]]:
        """Slots that MAP-Elites fills on each task: novelty is compared at this number of individuals of each rule."""
        if contestants.parse(name).rule in MAP_ELITES or _alter(name):
            everybody = jnp.full(self.field.tasks.num_tasks, float(self.setting.population_size))
            return {AT_FITTED_SLOTS if contestants.parse(name).rule == FITTED else "novelty_rarefied": everybody}
        found = {}
        for measure, other in ({"novelty_rarefied": self.slots_of} | self._also_compared(name)).items():
            table = (tables or {}).get(other) or self._read(other, self._about(other))
            if table is None:
                raise InvalidInput(
                    f"{name!r} is compared at the slots that MAP-Elites fills, and {self.folder} has no piece of it: "
                    f"measure {other!r} first."
                )
            found[measure] = jnp.asarray(table["num_filled"].T.ravel())
        return found

    def _also_compared(self, name: str) -> dict[str, str]:
        """Measures that a rule has at the slots of others than the paper's MAP-Elites. Only learned rules are compared
        so: what is kept of the others stays good."""
        is_compared = self.compare_fitted and not _alter(name) and isinstance(self._rule(name), Learned)
        return {AT_FITTED_SLOTS: FITTED} if is_compared else {}

    def _about(self, name: str) -> dict[str, Any]:
        """What a piece depends on, besides the setting."""
        one = contestants.parse(name)
        mark = without_descriptors.MARKS.get(one.descriptors, "")
        rule = self._rule(name)
        known = rule.fingerprint() if isinstance(rule, Learned) else type(rule).__name__
        about: dict[str, Any] = {"rule": known + mark}
        if one.rule == FITTED:
            about["box"] = {"share": SHARE, "num_points": NUM_POINTS}
        if (operator := self._operator(name)) is not None:
            about["variation"] = contestants.described(operator)
        if self.slots_of != "me" and one.rule not in MAP_ELITES:
            about["slots_of"] = self.slots_of
        also = self._also_compared(name)
        return about | ({"compared": also} if also else {})

    def _field(self, name: str) -> Field:
        return self._fitted if contestants.parse(name).rule == FITTED else self.field

    @functools.cached_property
    def _fitted(self) -> Field:
        if self.setting.is_single:
            raise InvalidInput(f"rule {FITTED!r} is for functions, not for {self.setting.functions[0]!r}: use 'me'.")
        return fitted(self._key_box, self.field)

    def _rule(self, name: str) -> Rule:
        rule = contestants.parse(name).rule
        if rule in self.rules:
            return self.rules[rule]
        if rule not in MAP_ELITES:
            return catalogue.rule(rule)
        return catalogue.rule("me", centroids=cvt.centroids(self.setting.population_size, *self.field.box))

    def _operator(self, name: str) -> Operator | Variation | None:
        """How children are made; None is the paper's way, as a part of the program."""
        rule, variation, _ = contestants.parse(name)
        return None if variation is None else contestants.operator(variation, self.field.box, {}, rule)

    def _description(self, about: dict[str, Any]) -> dict[str, Any]:
        drawn = {} if self.which == TEST else {"key": self.which}
        return json.loads(json.dumps({"setting": dataclasses.asdict(self.setting)} | drawn | about))

    def _kept(self, name: str) -> tuple[dict[str, np.ndarray], dict[str, Any], dict[str, Any]] | None:
        """What is kept under a name: the arrays, what they belong to, and how they were made."""
        try:
            arrays, description = read_arrays(self.folder / f"{name}.safetensors", "piece")
        except Unreadable:
            return None
        made, setting = description.pop("made", None), description.get("setting")
        if not isinstance(setting, dict) or not isinstance(made, dict) or not made:
            return None
        # A field that is newer than the piece has its default there: new fields must not change old settings.
        defaults = {one.name: one.default for one in dataclasses.fields(Setting)}
        return arrays, description | {"setting": json.loads(json.dumps(defaults)) | setting}, made

    def _read(self, name: str, about: dict[str, Any]) -> dict[str, np.ndarray] | None:
        kept = self._kept(name)
        if kept is None or kept[1] != self._description(about):
            return None
        self.made[name] = kept[2]
        return kept[0]

    def _piece(self, name: str, about: dict[str, Any], compute) -> dict[str, np.ndarray]:
        kept = self._read(name, about)
        if kept is not None:
            return kept
        begun = time.perf_counter()
        arrays = compute()
        self._write(name, about, arrays, time.perf_counter() - begun)
        return arrays

    def _write(self, name: str, about: dict[str, Any], arrays: dict[str, np.ndarray], seconds: float) -> None:
        path = self.folder / f"{name}.safetensors"
        self.made[name] = piece.write(path, self._description(about), arrays, seconds)


def in_order(names: Sequence[str]) -> list[str]:
    """MAP-Elites first: its slots are what the others are compared at."""
    return sorted(names, key=lambda name: (*MAP_ELITES, rule := contestants.parse(name).rule).index(rule))


def _alter(name: str) -> Callable | None:
    """What is done to the descriptors: usually nothing."""
    kind = contestants.parse(name).descriptors
    if kind and kind not in without_descriptors.KINDS:
        raise unknown("kind of descriptors", kind, without_descriptors.KINDS)
    return without_descriptors.KINDS.get(kind)


def _measured(state: loop.State, measured_with: tuple[Field, Any]) -> dict[str, Float[Array, " K"]]:
    """The measures of a row, for every task, given the tasks and what random search reaches there."""
    (field, f_rand), population = measured_with, state.population
    found = jax.vmap(metrics.measure)(population.fitness, population.descriptor)
    qd = jnp.full_like(found["novelty"], jnp.nan)
    if field.f_opt is not None:
        qd = jax.vmap(metrics.qd_score)(found, f_rand.astype(loop.DTYPE), field.f_opt.astype(loop.DTYPE))
    return {
        "fitness": found["max_fitness"],
        "best": state.best.fitness[:, 0],
        "novelty": found["novelty"] * field.scale,
        "qd": qd * field.scale,
        "num_filled": found["num_filled"],
    }


def evolve(
    sizes: tuple[int, int], alter: Callable | None, rule: Rule, keys, field: Field, steps, look: Callable,
    operator: Operator | Variation | None = None,
):  # fmt: skip
    """Whole runs on all tasks: the state at the end, and what `look` sees after each of the steps.

    Without an operator, children are made as in the paper, with steps that are constants of the program.
    """
    operator = IsoLine.with_steps() if operator is None else operator
    rules, (population_size, batch_size) = (led_by(ready(rule), operator),), sizes

    def step(states):
        return loop.step_together(states, field.tasks, rules, operator, batch_size, field.start, (alter,))

    states = loop.begin_together(keys, field.tasks, rules, population_size, field.start, (alter,), operator=operator)
    (state,), seen = loop.evolve(step, states, steps, lambda states: look(states[0]))
    return state, seen


@functools.partial(jax.jit, static_argnums=(0, 1))
def _run(sizes: tuple[int, int], alter: Callable | None, rule: Rule, keys, field: Field, f_rand, steps, operator=None):
    """Rows of measures, and the states at the end."""

    def look(state):
        return _measured(state, (field, f_rand))

    state, rows = evolve(sizes, alter, rule, keys, field, steps, look, operator)
    return rows, state


_rarefied = jax.jit(jax.vmap(metrics.rarefied_novelty))
