"""The weights that an evolution begins with: random, from a file, or the result of an imitation."""

import dataclasses
import hashlib
import pathlib

import jax
import numpy as np
from jaxtyping import Float

from lqd.errors import InvalidInput
from lqd.meta import generation
from lqd.meta.config import Config
from lqd.meta.imitation.teachers import TEACHERS
from lqd.rules import trained
from lqd.rules.learned import recipe3
from lqd.rules.learned.rule import Learned


def random_rule(config: Config) -> Learned:
    """An untrained rule; its weights depend on the seed."""
    key = jax.random.fold_in(jax.random.key(np.uint32(config.seed)), generation.STARTING)
    return Learned.init(key, config.architecture)


def weights(config: Config) -> Float[np.ndarray, " n"]:
    """Where an imitation, or an evolution without one, begins."""
    if config.init in ("none", *TEACHERS):
        return np.asarray(generation.flat_from(random_rule(config)))
    rule, digest = read(config.init)
    if (config.architecture.recipe, rule.architecture.recipe) == (3, 2):
        rule = Learned(recipe3.from_recipe2(rule.params), dataclasses.replace(rule.architecture, recipe=3))
    if rule.architecture != config.architecture:
        raise InvalidInput(
            f"init {config.init}: its weights are of {rule.architecture}, this run is of {config.architecture}."
        )
    if config.init_sha256 not in (None, digest):
        raise InvalidInput(f"init {config.init} is not the file that this run began with; give --init the old one.")
    return np.asarray(generation.flat_from(rule))


def read(init: str) -> tuple[Learned, str]:
    """A rule that ships with lqd, from a file or from the folder of a run, and the checksum of its weights."""
    path = pathlib.Path(init)
    path = path / "rule.safetensors" if path.is_dir() else path
    if str(init) not in trained.NAMES and not path.is_file():
        choices = ", ".join(("none", *TEACHERS, *trained.NAMES))
        raise InvalidInput(f"init must be one of {choices}, or a file of weights or a run's folder; got {init!r}.")
    rule = trained.rule(str(init)) if str(init) in trained.NAMES else trained.read(path)
    return rule, hashlib.sha256(np.asarray(generation.flat_from(rule)).tobytes()).hexdigest()
