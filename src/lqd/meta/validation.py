"""How good is a rule, on tasks that no training ever sees, against the rules made by hand.

The tasks come from a key of their own, the same for every run, so that runs can be compared; the hand-made rules run
once per setting and are kept in a file. Comparisons are paired: same task, same random numbers.

The one number that training is steered by, the `score`, is the mean over the hand-made rules of the share of tasks
won against each (ties half) in the objective: 0.5 is as good as the panel.
"""

import functools
import json
import pathlib
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from lqd import statistics
from lqd.errors import Unreadable
from lqd.io.files import read_arrays, write_arrays
from lqd.meta import generation
from lqd.meta.config import VALIDATION_SEED, Config, to_dict
from lqd.meta.imitation.teachers import TEACHERS
from lqd.meta.objective import OWN, Measures
from lqd.rules import cvt, handmade
from lqd.rules.learned.rule import Learned
from lqd.tasks.bbob.instances import LandscapeBatch
from lqd.types import pytree

PANEL = (*TEACHERS, "random")
SEED = VALIDATION_SEED
Table = dict[str, np.ndarray]  # measure -> one value per task


@pytree
class _Contender:
    """One of the panel, or behind them all the learned rule, chosen by a number: one program serves all of them."""

    index: Int[Array, ""]
    centroids: Float[Array, "C D"]
    learned: Learned

    def __call__(self, key, fitness, descriptor) -> Float[Array, " P"]:
        choices = [*(handmade.by_name(name, self.centroids) for name in PANEL), self.learned]
        branches = [lambda *given, rule=rule: rule(*given) for rule in choices]  # switch hashes what it is given
        return jax.lax.switch(self.index, branches, key, fitness, descriptor)


class Comparison(NamedTuple):
    """A rule against one of the panel in one measure, over all tasks."""

    win_rate: float
    effect_size: float
    ratio: float | None


class Verdict(NamedTuple):
    """What one validation found; `wins` is the share of the panel that the rule beats on each task."""

    score: float
    wins: np.ndarray
    comparisons: dict[tuple[str, str], Comparison]
    table: Table


def _settings(config: Config) -> dict:
    content = to_dict(config)
    names = ("distribution", "population_size", "batch_size", "iso_sigma", "line_sigma")
    sizes = {name: content["validation"][name] for name in ("num_tasks", "num_generations")}
    own = {"own": content["objective"]["own"]} if content["objective"]["own"] else {}
    settings = {name: content[name] for name in names} | sizes | {"seed": SEED} | own
    return json.loads(json.dumps(settings))  # as a file gives it back


class Validator:
    """The held-out tasks of a config, the panel's results on them, and the comparison of a rule with those."""

    def __init__(self, config: Config, cache: pathlib.Path | None = None):
        self.config = config
        key = jax.random.fold_in(jax.random.key(np.uint32(SEED)), 1)
        key_tasks, key_runs, self._key_anchors = jax.random.split(key, 3)
        self.tasks = config.distribution.sample(key_tasks, config.validation.num_tasks)
        self._keys = jax.random.split(key_runs, config.validation.num_tasks)
        size = config.distribution.descriptor_dim
        self._centroids = cvt.centroids(config.population_size, -np.ones(size), np.ones(size))
        self.f_rand, self.panel = self._from(cache) or self._compute(cache)

    def _from(self, cache: pathlib.Path | None):
        """What an earlier run left, if it is whole and belongs to the same settings."""
        if cache is None or not cache.exists():
            return None
        try:
            arrays, description = read_arrays(cache, "validation")
        except Unreadable:
            return None
        if description != _settings(self.config):
            return None
        panel = {rule: {name: arrays[f"{rule}.{name}"] for name in self.config.objective.names} for rule in PANEL}
        return jnp.asarray(arrays["f_rand"]), panel

    def _compute(self, cache: pathlib.Path | None):
        f_rand = _anchors(self.config, self._key_anchors, self.tasks)
        anyone = Learned.init(jax.random.key(0), self.config.architecture)
        panel = {name: self._measure(i, anyone, f_rand) for i, name in enumerate(PANEL)}
        if cache is not None:
            arrays = {f"{rule}.{name}": value for rule, table in panel.items() for name, value in table.items()}
            write_arrays(cache, "validation", arrays | {"f_rand": np.asarray(f_rand)}, _settings(self.config))
        return f_rand, panel

    def _measure(self, index: int, learned: Learned, f_rand) -> Table:
        contender = _Contender(jnp.int32(index), self._centroids, learned)
        measured = _run(self.config, contender, self._keys, self.tasks, f_rand)
        return {name: np.asarray(value) for name, value in measured.items()}

    def __call__(self, flat: Float[np.ndarray, " n"]) -> Verdict:
        """The rule with these weights."""
        rule = generation.rule_from(jnp.asarray(flat), self.config.architecture)
        return self.judge(self._measure(len(PANEL), rule, self.f_rand))

    def judge(self, table: Table) -> Verdict:
        """What was measured of some rule on the held-out tasks, against the panel."""
        comparisons = {
            (measure, name): compare(table[measure], self.panel[name][measure], measure)
            for measure in self.config.objective.names
            for name in PANEL
        }
        objective = self.config.objective.name
        wins = np.mean([statistics.wins(table[objective], self.panel[name][objective]) for name in PANEL], axis=0)
        return Verdict(float(wins.mean()), wins, comparisons, table)


@functools.partial(jax.jit, static_argnums=0)
def _anchors(config: Config, key, tasks: LandscapeBatch) -> Float[Array, " K"]:
    return generation.anchors(key, tasks, config, config.validation.num_generations)


@functools.partial(jax.jit, static_argnums=0)
def _run(config: Config, rule: _Contender, keys, tasks: LandscapeBatch, f_rand) -> Measures:
    num_generations = jnp.int32(config.validation.num_generations)
    return generation.run_scaled(rule, keys, tasks, config, num_generations, f_rand)


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


def gain(now: np.ndarray, before: np.ndarray) -> tuple[float, float, float]:
    """How much better than before, with a 95 % interval: the paired difference over tasks and 1.96 standard errors."""
    difference = now - before
    middle = float(difference.mean())
    half = 1.96 * float(difference.std(ddof=1) / np.sqrt(len(difference))) if len(difference) > 1 else float("inf")
    return middle, middle - half, middle + half
