"""How good is a rule, on tasks that no training ever sees, against the rules made by hand.

The tasks come from a key of their own, the same for every run, so that runs can be compared; the hand-made rules run
once per setting and are kept in a file. Comparisons are paired: same task, same random numbers.

The one number that training is steered by, the `score`, is the mean over the hand-made rules of the share of tasks
won against each (ties half) in the objective: 0.5 is as good as the panel. With further entries (`meta/suite.py`), each
of which has a panel and a score of its own, it is the mean of all scores, or the worst of them and of the families that
the run is trained on.
"""

import functools
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lqd import statistics
from lqd.errors import Unreadable
from lqd.io.files import read_arrays, write_arrays
from lqd.meta import generation, inner_run, suite
from lqd.meta.config import VALIDATION_SEED, Config, to_dict
from lqd.meta.family import TrainingTasks
from lqd.meta.imitation.teachers import TEACHERS
from lqd.meta.objective import OWN, Measures
from lqd.meta.suite import Entry
from lqd.rules import cvt, handmade
from lqd.rules.learned.recipe3 import NUM_ADVICE
from lqd.rules.learned.rule import Learned
from lqd.tasks.anchors import Anchors
from lqd.types import pytree

PANEL = (*TEACHERS, "random")
SEED = VALIDATION_SEED
TRAINING, FURTHER = 1, 0xFB000000  # the streams of that seed; a training folds in small numbers
Table = dict[str, np.ndarray]  # measure -> one value per task


@pytree
class _Contender:
    """One of the panel, or behind them all the learned rule, chosen by a number: one program serves all of them."""

    index: Int[Array, ""]
    centroids: Float[Array, "C D"]
    learned: Learned

    @property
    def guides(self) -> bool:
        return self.learned.guides

    def __call__(self, key, fitness, descriptor) -> Float[Array, " P"]:
        # switch hashes what it is given
        branches = [lambda *given, rule=rule: rule(*given) for rule in (*self._panel(), self.learned)]
        return jax.lax.switch(self.index, branches, key, fitness, descriptor)

    def guide(self, key, fitness, descriptor, carried):
        """The panel has no advice: its steps adapt by survival alone."""
        silence = jnp.zeros((len(carried), NUM_ADVICE), carried.dtype)
        branches = [lambda *given, rule=rule: (rule(*given[:3]), silence) for rule in self._panel()]
        return jax.lax.switch(self.index, [*branches, self.learned.guide], key, fitness, descriptor, carried)

    def _panel(self):
        return [handmade.by_name(name, self.centroids) for name in PANEL]


class Comparison(NamedTuple):
    """A rule against one of the panel in one measure, over all tasks."""

    win_rate: float
    effect_size: float
    ratio: float | None


class Verdict(NamedTuple):
    """What one validation found; `wins` is the share of the panel that the rule beats on each task.

    With several families, `scores` are those of each. With further entries, those of each, too, and `wins` those on the
    tasks of one after the other.
    """

    score: float
    wins: np.ndarray
    comparisons: dict[tuple[str, str], Comparison]
    table: Table
    scores: dict[str, float] = {}  # noqa: RUF012  # never changed, though shared
    sizes: tuple[int, ...] = ()


class _Held(NamedTuple):
    """Held-out tasks of one family."""

    tasks: TrainingTasks
    keys: Key[Array, " K"]
    key_anchors: Key[Array, ""]
    centroids: Float[Array, "C D"]

    @property
    def knows_f_opt(self) -> bool:
        return self.tasks.f_opt is not None


def _settings(config: Config, entry: Entry | None) -> dict:
    content = to_dict(config)
    names = ["distribution", "population_size", "batch_size", "iso_sigma", "line_sigma"]
    sizes = {name: content["validation"][name] for name in ("num_tasks", "num_generations")}
    if "tasks" in content:
        names[0] = "tasks"
    more = {"own": content["objective"]["own"]} if content["objective"]["own"] else {}
    if config.objective.needs_course:
        more |= {"objective": config.objective.name, "num_cells": config.num_cells}
    settings = {name: content[name] for name in names} | sizes | {"seed": SEED} | more
    if entry is not None:
        del settings[names[0]]
        settings |= {"entry": suite.to_dicts([entry])[0]}
    return json.loads(json.dumps(settings))  # as a file gives it back


class Validator:
    """The held-out tasks of a config or of a further entry, the panel's results on them, and the comparison of a rule
    with those."""

    def __init__(self, config: Config, cache: pathlib.Path | None = None, entry: Entry | None = None):
        self.config = config if entry is None else config.at(entry.shape)
        self.entry = entry
        self._held = self._draw()
        self.f_rand, self.f_worst, self.panel = self._from(cache) or self._compute(cache)

    def _draw(self) -> list[_Held]:
        config, entry = self.config, self.entry
        if entry is None:
            counts = config.divided("validation_tasks", config.validation.num_tasks)
            families, stream = list(zip(config.families, counts, strict=True)), TRAINING
        else:
            families, stream = [(entry.family, entry.num_tasks)], FURTHER
        keys = jax.random.split(jax.random.fold_in(jax.random.key(np.uint32(SEED)), stream), 3)
        held = []
        for number, (family, num_tasks) in enumerate(families):
            key_tasks, key_runs, key_anchors = generation.keys_of_part(keys, number)
            ones = np.ones(family.descriptor_dim)
            centroids = cvt.centroids(config.population_size, -ones, ones)
            tasks = family.sample(key_tasks, num_tasks)
            held.append(_Held(tasks, jax.random.split(key_runs, num_tasks), key_anchors, centroids))
        return held

    @property
    def tasks(self) -> TrainingTasks:
        """Of the first family."""
        return self._held[0].tasks

    @property
    def _keys(self) -> Key[Array, " K"]:
        return self._held[0].keys

    @property
    def num_generations(self) -> int:
        return self.config.validation.num_generations if self.entry is None else self.entry.num_generations

    def _from(self, cache: pathlib.Path | None):
        """What an earlier run left, if it is whole and belongs to the same settings."""
        if cache is None or not cache.exists():
            return None
        try:
            arrays, description = read_arrays(cache, "validation")
        except Unreadable:
            return None
        if description != _settings(self.config, self.entry):
            return None
        panel = {rule: {name: arrays[f"{rule}.{name}"] for name in self.config.objective.names} for rule in PANEL}
        f_worst = jnp.asarray(arrays["f_worst"]) if self.config.objective.needs_f_worst else None
        return jnp.asarray(arrays["f_rand"]), f_worst, panel

    def _compute(self, cache: pathlib.Path | None):
        about = self.config, self.num_generations
        f_rand = jnp.concatenate([_anchors(*about, held.key_anchors, held.tasks) for held in self._held])
        f_worst = None
        if self.config.objective.needs_f_worst:
            f_worst = jnp.concatenate([_worst(*about, held.key_anchors, held.tasks) for held in self._held])
        anyone = Learned.init(jax.random.key(0), self.config.architecture)
        panel = {name: self._measure(i, anyone, f_rand, f_worst) for i, name in enumerate(PANEL)}
        if cache is not None:
            arrays = {f"{rule}.{name}": value for rule, table in panel.items() for name, value in table.items()}
            arrays |= {"f_rand": np.asarray(f_rand)} | ({} if f_worst is None else {"f_worst": np.asarray(f_worst)})
            write_arrays(cache, "validation", arrays, _settings(self.config, self.entry))
        return f_rand, f_worst, panel

    def _measure(self, index: int, learned: Learned, f_rand, f_worst=None) -> Table:
        """On the tasks of one family after the other; what one of them has no measure of is NaN there."""
        tables, first = [], 0
        for held in self._held:
            contender = _Contender(jnp.int32(index), held.centroids, learned)
            here = slice(first, first + held.tasks.num_tasks)
            anchors = f_rand[here], None if f_worst is None else f_worst[here]
            measured = _run(self.config, self.num_generations, contender, held.keys, held.tasks, *anchors)
            nothing = np.full(held.tasks.num_tasks, np.nan, np.float32)
            tables.append({name: np.asarray(measured.get(name, nothing)) for name in self.config.objective.names})
            first = here.stop
        return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}

    def __call__(self, flat: Float[np.ndarray, " n"]) -> Verdict:
        """The rule with these weights."""
        rule = generation.rule_from(jnp.asarray(flat), self.config.architecture)
        return self.judge(self._measure(len(PANEL), rule, self.f_rand, self.f_worst))

    def judge(self, table: Table) -> Verdict:
        """What was measured of some rule on the held-out tasks, against the panel."""
        known = np.concatenate([np.full(held.tasks.num_tasks, held.knows_f_opt) for held in self._held])
        comparisons = {
            (measure, name): _compare(table[measure], self.panel[name][measure], measure, known)
            for measure in self.config.objective.names
            for name in PANEL
        }
        objective = self.config.objective.name
        wins = np.mean([statistics.wins(table[objective], self.panel[name][objective]) for name in PANEL], axis=0)
        scores = {} if self.entry is not None else scores_of_families(self.config, wins)
        return Verdict(float(wins.mean()), wins, comparisons, table, scores)


def scores_of_families(config: Config, wins: np.ndarray) -> dict[str, float]:
    """The score on the tasks of each family that a run is trained on, if there are several."""
    names = suite.parts_of_training([family.name for family in config.families])
    ends = np.cumsum(config.divided("validation_tasks", config.validation.num_tasks))
    return {name: float(part.mean()) for name, part in zip(names, np.split(wins, ends[:-1]), strict=False)}


class Suite:
    """Several validators as one: that of the training's tasks, and one for each further entry."""

    def __init__(self, training: Callable[[Any], Verdict], config: Config, folder: pathlib.Path | None = None):
        self._is_worst = config.validation.aggregate == "worst"
        self._validators: dict[str, Callable[[Any], Verdict]] = {suite.TRAINING: training}
        for entry in config.validation.on:
            cache = None if folder is None else folder / f"validation-{entry.name}.safetensors"
            self._validators[entry.name] = Validator(config, cache, entry)

    def __call__(self, flat: Float[np.ndarray, " n"]) -> Verdict:
        verdicts = {name: validator(flat) for name, validator in self._validators.items()}
        wins = [verdict.wins for verdict in verdicts.values()]
        training = verdicts.pop(suite.TRAINING)
        further = {name: verdict.score for name, verdict in verdicts.items()}
        whole = {suite.TRAINING: training.score}
        each = (training.scores or whole) | further
        score = min(each.values()) if self._is_worst else float(np.mean(list((whole | further).values())))
        sizes = tuple(map(len, wins)) if further else ()
        scores = whole | training.scores | further
        return Verdict(score, np.concatenate(wins), training.comparisons, training.table, scores, sizes)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _anchors(config: Config, num_generations: int, key, tasks: TrainingTasks) -> Float[Array, " K"]:
    return _random_search(config, num_generations, key, tasks).f_rand


@functools.partial(jax.jit, static_argnums=(0, 1))
def _worst(config: Config, num_generations: int, key, tasks: TrainingTasks) -> Float[Array, " K"]:
    return _random_search(config, num_generations, key, tasks).f_worst


def _random_search(config: Config, num_generations: int, key, tasks: TrainingTasks) -> Anchors:
    return inner_run.anchors(key, tasks, config.population_size + num_generations * config.batch_size)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _run(config: Config, num_generations: int, rule: _Contender, keys, tasks, f_rand, f_worst) -> Measures:
    return inner_run.run_scaled(rule, keys, tasks, config, jnp.int32(num_generations), f_rand, f_worst)


def _compare(ours: np.ndarray, theirs: np.ndarray, measure: str, known: np.ndarray) -> Comparison:
    """The same on the tasks whose best fitness is `known`: without it there is no regret, and no QD score."""
    if measure not in ("fitness", "qd") or known.all():
        return compare(ours, theirs, measure)
    if not known.any():
        found = Comparison(float("nan"), float("nan"), float("nan"))
    else:
        found = compare(ours[known], theirs[known], measure)
    if measure == "fitness":
        found = found._replace(win_rate=float(statistics.wins(ours, theirs).mean()))
    return found


def compare(ours: np.ndarray, theirs: np.ndarray, measure: str) -> Comparison:
    """Paired over tasks.

    The ratio is a median, of novelties or QD scores, or for fitness (at most 0 on these tasks) of regrets, the other's
    over ours: above 1 is better. A mean would be decided by the tasks on which one population collapsed. The effect
    size is the matched-pairs rank-biserial correlation of the log ratios: the share of the rank sum of a Wilcoxon test
    in favour minus the share against (-1 to 1). What a function of the user's says may have any sign: of it there is no
    ratio, and the effect size is that of the differences.
    """
    if measure == OWN:
        differences = np.nan_to_num(ours, neginf=-1e30) - np.nan_to_num(theirs, neginf=-1e30)
        return Comparison(float(statistics.wins(ours, theirs).mean()), _rank_biserial(differences), None)
    floor, worst = (1e-8, -1e30) if measure == "fitness" else (1e-6, 0.0)
    first, second = (np.maximum(np.abs(np.nan_to_num(v, nan=worst, neginf=worst)), floor) for v in (ours, theirs))
    logs = np.log(second / first) if measure == "fitness" else np.log(first / second)
    return Comparison(float(statistics.wins(ours, theirs).mean()), _rank_biserial(logs), float(np.exp(np.median(logs))))


def _rank_biserial(differences: np.ndarray) -> float:
    from scipy.stats import rankdata

    kept = differences[differences != 0]
    if not kept.size:
        return 0.0
    ranks = rankdata(np.abs(kept))
    return float(np.sum(ranks * np.sign(kept)) / ranks.sum())


def gain(now: np.ndarray, before: np.ndarray, sizes: Sequence[int] = ()) -> tuple[float, float, float]:
    """How much better than before, with a 95 % interval: the paired difference over tasks and 1.96 standard errors.

    With several entries, of the given numbers of tasks, it is the mean of the gains on each.
    """
    if sizes:
        parts = [_gain(part) for part in np.split(now - before, np.cumsum(sizes)[:-1])]
        middle = float(np.mean([middle for middle, _ in parts]))
        half = 1.96 * float(np.sqrt(np.sum(np.square([error for _, error in parts])))) / len(parts)
        return middle, middle - half, middle + half
    middle, error = _gain(now - before)
    half = 1.96 * error
    return middle, middle - half, middle + half


def _gain(difference: np.ndarray) -> tuple[float, float]:
    error = float(difference.std(ddof=1) / np.sqrt(len(difference))) if len(difference) > 1 else float("inf")
    return float(difference.mean()), error
