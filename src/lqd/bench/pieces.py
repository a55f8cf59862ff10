"""Benchmarks in pieces: a rule under a setting, all seeds of all functions in one program, one file each.

A finished piece is kept and not run again; a piece that belongs to other settings or other weights is. So a bench can
be interrupted anywhere, and one piece can be redone by deleting its file.
"""

import dataclasses
import functools
import hashlib
import json
import pathlib
import shutil
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lqd import catalogue, checks, manifest, tasks
from lqd.bench import together
from lqd.checkpoint import flatten, read_arrays, write_arrays, write_bytes
from lqd.errors import Unreadable, unknown
from lqd.evolution import cvt, loop, metrics
from lqd.evolution.learned import Learned
from lqd.evolution.rules import Rule, ready
from lqd.meta.config import Config
from lqd.meta.validation import SEED
from lqd.tasks import altered, landscape
from lqd.tasks.anchors import random_search
from lqd.tasks.task import Repeated, TaskBatch, start_scale

ARM = ("arm",)
TEST = 1000  # folded into the key of held-out tasks: neither training's nor validation's
MEASURES = ("fitness", "novelty", "novelty_rarefied", "qd", "num_filled")
HISTORY = ("fitness", "best", "novelty", "qd")  # what is also kept from time to time: `history.fitness` and so on


@dataclasses.dataclass(frozen=True)
class Setting:
    """Fresh noiseless instances of some functions, one of each function (and dimension, in `dims`) per seed.

    Or one task of its own, the arm or a robot (`brax/...`), whose episodes have so many steps; its seeds may begin at
    another than 0. `num_rows` times, at ever longer intervals, the state of the runs is written down; the last is the
    end.
    """

    functions: tuple[str, ...] = landscape.TRAINING
    num_seeds: int = 32
    num_generations: int = 256
    min_dim: int = 2
    max_dim: int = 12
    dims: tuple[int, ...] = ()
    descriptor_dim: int = 2
    population_size: int = 128
    batch_size: int = 32
    rotate: bool = True
    num_rows: int = 1
    episode_length: int = 1000
    first_seed: int = 0

    def __post_init__(self):
        checks.whole("num_seeds", self.num_seeds, 1 if self.first_seed else 2)
        assert self.is_single or not self.first_seed
        checks.whole("num_generations", self.num_generations, 1)
        checks.whole("num_rows", self.num_rows, 1)

    @property
    def is_single(self) -> bool:
        return self.functions == ARM or self.functions[0].startswith("brax/")

    @property
    def num_evaluations(self) -> int:
        return self.population_size + self.num_generations * self.batch_size

    @property
    def columns(self) -> list[tuple[str, int | None]]:
        """Function and dimension (None: drawn, or the task's own) of every column of a table."""
        drawn = self.is_single or self.min_dim < self.max_dim
        dims: tuple[int | None, ...] = self.dims or (None if drawn else self.min_dim,)
        return [(function, dim) for function in self.functions for dim in dims]

    @property
    def rows(self) -> np.ndarray:
        """The generations after which the state is written down."""
        if self.num_rows == 1:
            return np.asarray([self.num_generations])
        return np.unique(np.rint(np.geomspace(1, self.num_generations, self.num_rows)).astype(int))

    @property
    def steps(self) -> Int[Array, " R"]:
        """Generations from one row to the next."""
        return jnp.asarray(np.diff(self.rows, prepend=0), jnp.int32)

    @property
    def config(self) -> Config:
        return Config(stages=(), population_size=self.population_size, batch_size=self.batch_size)


class Field(NamedTuple):
    """Tasks that share a descriptor box, what their descriptors were divided by for that, optima, where to begin."""

    tasks: TaskBatch
    box: tuple[np.ndarray, np.ndarray]
    scale: Float[Array, " K"]
    f_opt: Float[Array, " K"] | None
    start: loop.Start = loop.ANYWHERE


def field(key: Key[Array, ""], setting: Setting) -> Field:
    """The tasks of a setting: all seeds of a function (dimension by dimension), then all of the next."""
    return _single(setting) if setting.is_single else _landscapes(key, setting)


def _single(setting: Setting) -> Field:
    name, num = setting.functions[0], setting.num_seeds
    task = tasks.make(name, **{} if setting.functions == ARM else {"episode_length": setting.episode_length})
    assert task.descriptor_bounds is not None
    low, high = map(np.asarray, task.descriptor_bounds)
    f_opt = None if task.f_opt is None else jnp.broadcast_to(task.f_opt, (num,))
    start = loop.Start(None, jnp.float32(start_scale(task)))
    return Field(Repeated(task, num), (low, high), jnp.ones(num), f_opt, start)


def _landscapes(key: Key[Array, ""], setting: Setting) -> Field:
    batch = landscape.sample_batch(
        key, setting.functions, setting.num_seeds * max(len(setting.dims), 1),
        width=max(setting.dims or (setting.max_dim,)), min_dim=setting.min_dim, max_dim=setting.max_dim,
        dims=np.repeat(setting.dims, setting.num_seeds).tolist() if setting.dims else None,
        descriptor_dim=setting.descriptor_dim, noise=False, rotate=setting.rotate,
    )  # fmt: skip
    ones = np.ones(setting.descriptor_dim)
    return Field(batch.with_unit_descriptors(), (-ones, ones), batch.descriptor_half_width, batch.f_opt)


class Bench:
    """The tasks of one setting, what random search reaches there, and every rule's results, kept in a folder."""

    def __init__(self, setting: Setting, folder: pathlib.Path):
        self.setting, self.folder = setting, folder
        self.made: dict[str, dict[str, Any]] = {}  # piece -> when, on what, and how long it took
        key = jax.random.fold_in(jax.random.key(np.uint32(SEED)), TEST)
        key_tasks, key_runs, self._key_anchors = jax.random.split(key, 3)
        self.field = field(key_tasks, setting)
        first = setting.first_seed  # a key does not depend on how many there are
        self.keys = jax.random.split(key_runs, first + self.field.tasks.num_tasks)[first:]

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

    def measure(self, name: str) -> "Table":
        """Final populations of a rule: an array (seeds, columns) per measure; and (rows, seeds, columns) on the way.

        `RULE@random` (or `@zero`) is the rule with descriptors that say nothing.
        """
        f_rand, num = self.anchors(), self._num_compared(name)
        given = self.field._replace(tasks=_tasks_of(name, self.field.tasks))

        def compute(rule):
            return self._table(_run(self.setting.config, rule, self.keys, given, f_rand, self.setting.steps), num)

        return self.piece(name, {}, compute)

    def measure_together(self, names: Sequence[str], look: Callable[[int], None] = lambda _: None) -> None:
        """The rules that are missing, side by side: a simulator takes hardly longer for several than for one.

        Their state is kept on the way. `look` is told the generation. Of rules that ran with fewer seeds only the other
        seeds run.
        """
        names = sorted(names, key=lambda name: name != "me")  # first: its slots are what the others are compared at
        about = {name: {"rule": _fingerprint(self._rule(name))} for name in names}
        missing = [name for name in names if self._read(name, about[name]) is None]
        begun = {name: num for name in missing if (num := self._num_seeds_kept(name, about[name]))}
        if begun:
            self._add_seeds(min(begun.values()), {name: about[name] for name in begun}, look)
            missing = [name for name in missing if name not in begun]

        def kept_of(names):
            of = self._description({"rules": [[name, about[name]["rule"]] for name in names]})
            return together.Kept(self.folder / "together.safetensors", of)

        if missing and kept_of(names).fits():  # cut while the pieces were written
            missing = names
        kept = kept_of(missing)
        if len(missing) < 2:
            kept.remove()
            return
        rules = tuple(self._rule(name) for name in missing)
        kinds, f_rand = tuple(map(_kind_of, missing)), self.anchors()
        runs = together.Runs(self.setting.config, kinds, rules, self.keys, self.field)
        ran, seconds = runs.run(self.setting.rows, functools.partial(_jit_measured, self.field, f_rand), kept, look)
        tables: dict[str, Table] = {}
        for name, found in zip(missing, ran, strict=True):
            tables[name] = self._table(found, self._num_compared(name, tables.get("me")))
        for name in missing:
            self._write(name, about[name], tables[name], seconds / len(missing))
        kept.remove()

    def _add_seeds(self, num_kept: int, about: dict[str, dict[str, Any]], look: Callable[[int], None]) -> None:
        """The seeds that are missing, as a bench of their own; then the pieces grow by them."""
        first, num = self.setting.first_seed + num_kept, self.setting.num_seeds - num_kept
        rest = Bench(dataclasses.replace(self.setting, first_seed=first, num_seeds=num), self.folder / "more-seeds")
        rest.measure_together(list(about), look)
        for name in about:
            new, kept = rest.measure(name), self._kept(name)
            assert kept is not None
            grown = {key: np.concatenate([kept[0][key][..., :num_kept, :], new[key]], axis=-2) for key in new}
            self._write(name, about[name], grown, kept[2]["seconds"] + rest.made[name]["seconds"])
        shutil.rmtree(rest.folder)

    def _num_seeds_kept(self, name: str, about: dict[str, Any]) -> int:
        """How many seeds are kept of a rule that is to have more."""
        kept, wanted = self._kept(name), self._description(about)
        if kept is None:
            return 0
        num = kept[1]["setting"]["num_seeds"]
        fits = kept[1] == wanted | {"setting": wanted["setting"] | {"num_seeds": num}}
        return num if fits and isinstance(num, int) and 0 < num < self.setting.num_seeds else 0

    def _table(self, ran, num) -> "Table":
        rows, fitness, descriptor = ran
        found = {name: rows[name][-1] for name in MEASURES if name in rows}
        found["novelty_rarefied"] = _rarefied(fitness, descriptor, num) * self.field.scale
        found |= {f"history.{name}": rows[name] for name in HISTORY}
        return {name: self._by_seed(np.asarray(found[name])) for name in found}

    def piece(self, name: str, about: dict[str, Any], compute: Callable[[Rule], "Table"]) -> "Table":
        """Something computed of a rule, from what is kept or anew."""
        rule = self._rule(name)
        return self._piece(name, about | {"rule": _fingerprint(rule)}, lambda: compute(rule))

    def _by_seed(self, values: np.ndarray) -> np.ndarray:
        """(..., tasks) as (..., seeds, columns)."""
        by_column = values.reshape(*values.shape[:-1], len(self.setting.columns), self.setting.num_seeds)
        return np.ascontiguousarray(np.swapaxes(by_column, -1, -2))

    def _num_compared(self, name: str, of_map_elites: "Table | None" = None) -> Float[Array, " K"]:
        """Slots that MAP-Elites fills on each task: with so many individuals of each rule, novelty is compared."""
        if name == "me" or _kind_of(name):
            return jnp.full(self.field.tasks.num_tasks, float(self.setting.population_size))
        return jnp.asarray((of_map_elites or self.measure("me"))["num_filled"].T.ravel())

    def _rule(self, name: str) -> Rule:
        if name != "me":
            return catalogue.rule(name.split("@")[0])
        return catalogue.rule("me", centroids=cvt.centroids(self.setting.population_size, *self.field.box))

    def _description(self, about: dict[str, Any]) -> dict[str, Any]:
        return json.loads(json.dumps({"setting": dataclasses.asdict(self.setting)} | about))

    def _kept(self, name: str) -> tuple[dict[str, np.ndarray], dict[str, Any], dict[str, Any]] | None:
        """What is kept under a name: the arrays, of what they are, and how they were made."""
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
        self.made[name] = manifest.environment() | {"seconds": round(seconds, 1), "at": manifest.now()}
        description = self._description(about) | {"made": self.made[name]}
        write_arrays(self.folder / f"{name}.safetensors", "piece", arrays, description)


def _kind_of(name: str) -> str:
    """What is done to the descriptors: empty, `random` or `zero`."""
    kind = name.partition("@")[2]
    if kind and kind not in altered.KINDS:
        raise unknown("kind of descriptors", kind, altered.KINDS)
    return kind


def _tasks_of(name: str, tasks: TaskBatch) -> TaskBatch:
    return altered.Altered(tasks, _kind_of(name)) if _kind_of(name) else tasks


def _fingerprint(rule: Rule) -> str:
    """Changes with the weights of a learned rule."""
    if not isinstance(rule, Learned):
        return type(rule).__name__
    digest = hashlib.sha256()
    for name, array in sorted(flatten(rule.params).items()):
        digest.update(name.encode() + array.tobytes())
    return digest.hexdigest()[:16]


def _measured(field: Field, f_rand, state: loop.State):
    population = state.population
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


def evolve(config: Config, rule: Rule, keys, field: Field, steps, look: Callable[[loop.State], Any]):
    """All tasks: the state at the end, and what `look` sees after each of the steps (numbers of generations)."""
    rule, operator = ready(rule), config.reproduction

    def advance(state, num):
        def step(_, state):
            return loop.step(state, field.tasks, rule, operator, config.batch_size, field.start)

        state = jax.lax.fori_loop(0, num, step, state)
        return state, look(state)

    begin = loop.begin(keys, field.tasks, rule, config.population_size, field.start)
    return jax.lax.scan(advance, begin, steps)


@functools.partial(jax.jit, static_argnums=0)
def _run(config: Config, rule: Rule, keys, field: Field, f_rand, steps):
    """Rows of measures, and the populations at the end."""
    state, rows = evolve(config, rule, keys, field, steps, functools.partial(_measured, field, f_rand))
    return rows, state.population.fitness, state.population.descriptor


_jit_measured = jax.jit(_measured)
_rarefied = jax.jit(jax.vmap(metrics.rarefied_novelty))


# Several settings and rules

Table = dict[str, np.ndarray]  # measure -> (seeds, columns)
Progress = Callable[[str, int, int], None]  # what runs now, how many pieces are done, of how many


class Part(NamedTuple):
    """A setting and the rules that run under it; `together` where that is faster: on a simulator."""

    setting: Setting
    rules: tuple[str, ...]
    together: bool = False


Plan = dict[str, Part]


@dataclasses.dataclass(frozen=True)
class Results:
    """What the parts of a plan gave: part -> rule -> table; and how the pieces came about: part -> piece -> facts."""

    plan: Plan
    tables: dict[str, dict[str, Table]]
    made: dict[str, dict[str, dict[str, Any]]]

    def facts(self) -> dict[str, Any]:
        """On what and with which versions it ran, when the last piece was made, and how long all took."""
        pieces = [piece for part in self.made.values() for piece in part.values()]
        last = max(pieces, key=lambda piece: piece["at"])
        devices = sorted({device for piece in pieces for device in piece["devices"]})
        return last | {"devices": devices, "seconds": round(sum(piece["seconds"] for piece in pieces), 1)}

    def rows(self):
        """A data frame with one row per run."""
        import pandas as pd

        rows = [
            {"part": name, "rule": rule, "function": function, "dim": dim, "seed": seed}
            | {measure: float(table[measure][seed, column]) for measure in MEASURES}
            for name, part in self.plan.items()
            for rule, table in self.tables[name].items()
            for column, (function, dim) in enumerate(part.setting.columns)
            for seed in range(part.setting.num_seeds)
        ]
        return pd.DataFrame(rows).astype({"dim": "Int16"})

    def history(self):
        """A data frame with one row per run and time."""
        import pandas as pd

        parts = []
        for name, part in self.plan.items():
            evaluations = part.setting.population_size + part.setting.rows * part.setting.batch_size
            for rule, table in self.tables[name].items():
                shape = table["history.fitness"].shape
                index = np.meshgrid(evaluations, np.arange(shape[1]), np.arange(shape[2]), indexing="ij")
                functions, dims = zip(*part.setting.columns, strict=True)
                values = {measure: table[f"history.{measure}"].ravel() for measure in HISTORY}
                parts.append(
                    pd.DataFrame(
                        {"part": name, "rule": rule, "function": np.asarray(functions)[index[2].ravel()]}
                        | {"dim": pd.array(dims, "Int16")[index[2].ravel()], "seed": index[1].ravel().astype(np.int16)}
                        | {"num_evaluations": index[0].ravel().astype(np.int32)}
                        | values
                    )
                )
        return pd.concat(parts, ignore_index=True)


def measure_all(plan: Plan, folder: pathlib.Path, progress: Progress) -> Results:
    """Every rule of every part, from what is kept in the folder or anew."""
    total, done = sum(len(part.rules) for part in plan.values()), 0
    results = Results(plan, {}, {})
    for name, part in plan.items():
        bench = Bench(part.setting, folder / name.replace(" ", "-"))
        results.tables[name] = {}
        if part.together:
            num = part.setting.num_generations

            def look(generation: int, name=name, done=done, num=num) -> None:
                progress(f"{name}: all rules, generation {generation:,} of {num:,}", done, total)

            look(0)
            bench.measure_together(part.rules, look)
        for rule in part.rules:
            progress(f"{name}: {rule}", done, total)
            results.tables[name][rule] = bench.measure(rule)
            done += 1
        results.made[name] = bench.made
    progress("done", done, total)
    return results


def write_csv(path: pathlib.Path, results: Results) -> None:
    """One line per run."""
    write_bytes(path, results.rows().to_csv(index=False, float_format="%.7g").encode())
