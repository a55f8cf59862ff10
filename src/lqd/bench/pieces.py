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
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lqd import catalogue, checks, manifest
from lqd.checkpoint import flatten, read_arrays, write_arrays
from lqd.errors import Unreadable
from lqd.evolution import cvt, metrics
from lqd.evolution.learned import Learned
from lqd.evolution.rules import Rule
from lqd.meta import generation
from lqd.meta.config import Config
from lqd.meta.distribution import Distribution
from lqd.meta.validation import SEED
from lqd.tasks import landscape

TEST = 1000  # folded into the key of held-out tasks: neither training's nor validation's
MEASURES = ("fitness", "novelty", "qd", "num_filled")


@dataclasses.dataclass(frozen=True)
class Setting:
    """Fresh noiseless instances of some functions, one of each function per seed."""

    functions: tuple[str, ...] = landscape.TRAINING
    num_seeds: int = 32
    num_generations: int = 256
    min_dim: int = 2
    max_dim: int = 12
    population_size: int = 128
    batch_size: int = 32

    def __post_init__(self):
        checks.whole("num_seeds", self.num_seeds, 2)
        checks.whole("num_generations", self.num_generations, 1)

    @property
    def num_evaluations(self) -> int:
        return self.population_size + self.num_generations * self.batch_size

    @property
    def distribution(self) -> Distribution:
        return Distribution(self.functions, self.min_dim, self.max_dim, noise=False)

    @property
    def config(self) -> Config:
        return Config(
            stages=(),
            population_size=self.population_size,
            batch_size=self.batch_size,
            distribution=self.distribution,
        )


class Bench:
    """The tasks of one setting, what random search reaches there, and every rule's results, kept in a folder."""

    def __init__(self, setting: Setting, folder: pathlib.Path):
        self.setting, self.folder = setting, folder
        key = jax.random.fold_in(jax.random.key(np.uint32(SEED)), TEST)
        key_tasks, key_runs, self._key_anchors = jax.random.split(key, 3)
        num_tasks = len(setting.functions) * setting.num_seeds
        self._tasks = setting.distribution.sample(key_tasks, num_tasks)
        self._keys = jax.random.split(key_runs, num_tasks)

    def anchors(self):
        """What random search reaches on each task with the evaluations that a rule has."""

        def compute():
            num = jnp.int32(self.setting.num_generations)
            f_rand = generation.anchors(self._key_anchors, self._tasks, self.setting.config, num)
            return {"f_rand": np.asarray(f_rand)}

        return jnp.asarray(self._piece("random-search", {}, compute)["f_rand"])

    def measure(self, name: str) -> dict[str, np.ndarray]:
        """Final populations of a rule: one array (seeds, functions) per measure."""
        rule = self._rule(name)
        f_rand = self.anchors()

        def compute():
            found = _run(self.setting.config, rule, self._keys, self._tasks, f_rand, self.setting.num_generations)
            by_function = {
                measure: np.asarray(value).reshape(-1, self.setting.num_seeds) for measure, value in found.items()
            }
            return {measure: np.ascontiguousarray(value.T) for measure, value in by_function.items()}

        return self._piece(name, {"rule": _fingerprint(rule)}, compute)

    def is_done(self, name: str) -> bool:
        return self._read(name, {"rule": _fingerprint(self._rule(name))}) is not None

    def _rule(self, name: str) -> Rule:
        if name != "me":
            return catalogue.rule(name)
        size = self.setting.distribution.descriptor_dim
        return catalogue.rule(
            "me", centroids=cvt.centroids(self.setting.population_size, -np.ones(size), np.ones(size))
        )

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
def _run(config: Config, rule: Rule, keys, tasks, f_rand, num_generations):
    fitness, descriptor = generation.final_populations(
        rule, keys, tasks.with_unit_descriptors(), config, num_generations
    )
    found = jax.vmap(metrics.measure)(fitness, descriptor)
    qd = jax.vmap(metrics.qd_score)(found, f_rand.astype(fitness.dtype), tasks.f_opt.astype(fitness.dtype))
    scale = tasks.descriptor_half_width  # measured in a box of side 2, told in the task's own units
    return {
        "fitness": found["max_fitness"],
        "novelty": found["novelty"] * scale,
        "qd": qd * scale,
        "num_filled": found["num_filled"],
    }
