"""Benchmarks in pieces: a rule under a setting, all seeds of all functions in one program, one file each.

A finished piece is kept and not run again; a piece that belongs to other settings or other weights is. So a bench can
be interrupted anywhere, and one piece can be redone by deleting its file.
"""

import dataclasses
import functools
import hashlib
import json
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from lqd import catalogue, checks, manifest, tasks
from lqd.checkpoint import flatten, read_arrays, write_arrays, write_bytes
from lqd.errors import Unreadable
from lqd.evolution import cvt, metrics
from lqd.evolution.learned import Learned
from lqd.evolution.rules import Rule
from lqd.meta import generation
from lqd.meta.config import Config
from lqd.meta.distribution import Distribution
from lqd.meta.validation import SEED
from lqd.tasks import landscape
from lqd.tasks.anchors import random_search
from lqd.tasks.task import Repeated, TaskBatch

ARM = ("arm",)
TEST = 1000  # folded into the key of held-out tasks: neither training's nor validation's
MEASURES = ("fitness", "novelty", "novelty_rarefied", "qd", "num_filled")


@dataclasses.dataclass(frozen=True)
class Setting:
    """Fresh noiseless instances of some functions, one of each function per seed; or `ARM`."""

    functions: tuple[str, ...] = landscape.TRAINING
    num_seeds: int = 32
    num_generations: int = 256
    min_dim: int = 2
    max_dim: int = 12
    descriptor_dim: int = 2
    population_size: int = 128
    batch_size: int = 32

    def __post_init__(self):
        checks.whole("num_seeds", self.num_seeds, 2)
        checks.whole("num_generations", self.num_generations, 1)

    @property
    def num_evaluations(self) -> int:
        return self.population_size + self.num_generations * self.batch_size

    @property
    def config(self) -> Config:
        return Config(stages=(), population_size=self.population_size, batch_size=self.batch_size)


class Field(NamedTuple):
    """Tasks that share a descriptor box, what their descriptors were divided by for that, and their optima."""

    tasks: TaskBatch
    box: tuple[np.ndarray, np.ndarray]
    scale: Float[Array, " K"]
    f_opt: Float[Array, " K"]


def field(key: Key[Array, ""], setting: Setting) -> Field:
    """The tasks of a setting: all seeds of a function, then all of the next."""
    if setting.functions == ARM:
        arm = tasks.make("arm")
        assert arm.descriptor_bounds is not None
        assert arm.f_opt is not None
        low, high = map(np.asarray, arm.descriptor_bounds)
        f_opt = jnp.broadcast_to(arm.f_opt, (setting.num_seeds,))
        return Field(Repeated(arm, setting.num_seeds), (low, high), jnp.ones(setting.num_seeds), f_opt)
    distribution = Distribution(
        setting.functions, setting.min_dim, setting.max_dim, descriptor_dim=setting.descriptor_dim, noise=False
    )
    batch = distribution.sample(key, len(setting.functions) * setting.num_seeds)
    ones = np.ones(setting.descriptor_dim)
    return Field(batch.with_unit_descriptors(), (-ones, ones), batch.descriptor_half_width, batch.f_opt)


class Bench:
    """The tasks of one setting, what random search reaches there, and every rule's results, kept in a folder."""

    def __init__(self, setting: Setting, folder: pathlib.Path):
        self.setting, self.folder = setting, folder
        key = jax.random.fold_in(jax.random.key(np.uint32(SEED)), TEST)
        key_tasks, key_runs, self._key_anchors = jax.random.split(key, 3)
        self._field = field(key_tasks, setting)
        self._keys = jax.random.split(key_runs, self._field.tasks.num_tasks)

    def anchors(self):
        """What random search reaches on each task with the evaluations that a rule has."""

        def compute():
            found = random_search(self._key_anchors, self._field.tasks, self.setting.num_evaluations)
            return {"f_rand": np.asarray(found.f_rand)}

        return jnp.asarray(self._piece("random-search", {}, compute)["f_rand"])

    def measure(self, name: str) -> dict[str, np.ndarray]:
        """Final populations of a rule: one array (seeds, functions) per measure."""
        rule = self._rule(name)
        f_rand, num = self.anchors(), self._num_compared(name)

        def compute():
            found = _run(self.setting.config, rule, self._keys, self._field, f_rand, num, self.setting.num_generations)
            by_function = {
                measure: np.asarray(value).reshape(-1, self.setting.num_seeds) for measure, value in found.items()
            }
            return {measure: np.ascontiguousarray(value.T) for measure, value in by_function.items()}

        return self._piece(name, {"rule": _fingerprint(rule)}, compute)

    def _num_compared(self, name: str) -> Float[Array, " K"]:
        """Slots that MAP-Elites fills on each task: with so many individuals of each rule, novelty is compared."""
        if name == "me":
            return jnp.full(self._field.tasks.num_tasks, float(self.setting.population_size))
        return jnp.asarray(self.measure("me")["num_filled"].T.ravel())

    def _rule(self, name: str) -> Rule:
        if name != "me":
            return catalogue.rule(name)
        return catalogue.rule("me", centroids=cvt.centroids(self.setting.population_size, *self._field.box))

    def _description(self, about: dict[str, Any]) -> dict[str, Any]:
        return json.loads(json.dumps({"setting": dataclasses.asdict(self.setting)} | about))

    def _read(self, name: str, about: dict[str, Any]) -> dict[str, np.ndarray] | None:
        try:
            arrays, description = read_arrays(self.folder / f"{name}.safetensors", "piece")
        except Unreadable:
            return None
        made = description.pop("made", None)
        return arrays if made and description == self._description(about) else None

    def _piece(self, name: str, about: dict[str, Any], compute) -> dict[str, np.ndarray]:
        kept = self._read(name, about)
        if kept is not None:
            return kept
        begun = time.perf_counter()
        arrays = compute()
        made = manifest.environment() | {"seconds": round(time.perf_counter() - begun, 1), "at": manifest.now()}
        path = self.folder / f"{name}.safetensors"
        write_arrays(path, "piece", arrays, self._description(about) | {"made": made})
        return arrays


def _fingerprint(rule: Rule) -> str:
    """Changes with the weights of a learned rule."""
    if not isinstance(rule, Learned):
        return type(rule).__name__
    digest = hashlib.sha256()
    for name, array in sorted(flatten(rule.params).items()):
        digest.update(name.encode() + array.tobytes())
    return digest.hexdigest()[:16]


@functools.partial(jax.jit, static_argnums=0)
def _run(config: Config, rule: Rule, keys, field: Field, f_rand, num_compared, num_generations):
    fitness, descriptor = generation.final_populations(rule, keys, field.tasks, config, num_generations)
    found = jax.vmap(metrics.measure)(fitness, descriptor)
    rarefied = jax.vmap(metrics.rarefied_novelty)(fitness, descriptor, num_compared)
    qd = jax.vmap(metrics.qd_score)(found, f_rand.astype(fitness.dtype), field.f_opt.astype(fitness.dtype))
    return {
        "fitness": found["max_fitness"],
        "novelty": found["novelty"] * field.scale,
        "novelty_rarefied": rarefied * field.scale,
        "qd": qd * field.scale,
        "num_filled": found["num_filled"],
    }


# Several settings and rules

Table = dict[str, np.ndarray]  # measure -> (seeds, functions)
Progress = Callable[[str, int, int], None]  # what runs now, how many pieces are done, of how many


def measure_all(
    settings: dict[str, Setting], rules: Sequence[str], folder: pathlib.Path, progress: Progress
) -> dict[str, dict[str, Table]]:
    """Every rule under every setting: setting -> rule -> table."""
    total, done = len(settings) * len(rules), 0
    found: dict[str, dict[str, Table]] = {}
    for name, setting in settings.items():
        bench = Bench(setting, folder / name.replace(" ", "-"))
        found[name] = {}
        for rule in rules:
            progress(f"{name}: {rule}", done, total)
            found[name][rule] = bench.measure(rule)
            done += 1
    progress("done", done, total)
    return found


def write_csv(path: pathlib.Path, settings: dict[str, Setting], found: dict[str, dict[str, Table]]) -> None:
    """One row per run."""
    import pandas as pd

    rows = [
        {"setting": name, "rule": rule, "function": function, "seed": seed}
        | {measure: float(values[seed, f]) for measure, values in table.items()}
        for name, setting in settings.items()
        for rule, table in found[name].items()
        for f, function in enumerate(setting.functions)
        for seed in range(setting.num_seeds)
    ]
    write_bytes(path, pd.DataFrame(rows).to_csv(index=False, float_format="%.7g").encode())
