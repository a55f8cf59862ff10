"""Learned rules in files: any that was saved, and the trained ones that ship with lqd, each with a card. Nothing is
downloaded.

`weights/NAME.safetensors` holds the weights, `weights/NAME.json` the card: how they were made, how they
perform, and the checksum of the file. A file that does not match its card is refused.
"""

import dataclasses
import functools
import hashlib
import importlib.resources
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from lqd.errors import Unreadable, unknown
from lqd.io.files import PathLike, flatten, read_arrays, understood, write_arrays
from lqd.rules.learned.network import Architecture, init_params
from lqd.rules.learned.rule import Learned

FOLDER = importlib.resources.files("lqd") / "rules" / "weights"
RULE = "rule.safetensors"  # in the folder of a training run: the best one
NAMES = ("lqd-f", "lqd-n", "lqd-fn", "lqd-f-paper", "lqd-imitates-ns", "lqd-imitates-dns")


def save_rule(path: PathLike, rule: Learned, card: Mapping[str, Any] | None = None) -> pathlib.Path:
    """A learned rule with its architecture, feature recipe and card."""
    description = {"architecture": dataclasses.asdict(rule.architecture), "card": dict(card or {})}
    return write_arrays(path, "rule", flatten(rule.params), description)


def is_file(given: Any) -> bool:
    """Whether a rule is given as a file of weights, or as the folder of a training run."""
    if isinstance(given, pathlib.Path):
        return True
    return isinstance(given, str) and (given.endswith(".safetensors") or _is_folder(given))


def _is_folder(given: PathLike) -> bool:
    try:
        return pathlib.Path(given).is_dir()
    except (OSError, ValueError):  # a name that can be no path
        return False


def read(path: PathLike) -> Learned:
    """A learned rule from a file that `save_rule` wrote, or the best one in the folder of a training run."""
    if _is_folder(path):
        folder, path = path, pathlib.Path(path) / RULE
        if not path.is_file():
            raise Unreadable(f"{folder}: there is no {RULE} in this folder; a training run keeps its best rule there.")
    arrays, description = read_arrays(path, "rule")
    with understood(path):
        return learned_from(arrays, description["architecture"], path)


def learned_from(arrays: Mapping[str, np.ndarray], architecture: Any, path: PathLike) -> Learned:
    """A learned rule from arrays by dotted name, which must be just those that its architecture has."""
    try:
        architecture = Architecture(**architecture)
    except (TypeError, ValueError) as error:
        raise Unreadable(f"{path}: its architecture cannot be read ({error}).") from error
    num_weights = sum(array.size for array in arrays.values())
    for name, size in dataclasses.asdict(architecture).items():
        if size > num_weights:  # told before shapes of that size are worked out
            raise Unreadable(f"{path}: {name} is {size}, and the file holds {num_weights} weights in all.")
    expected = jax.eval_shape(lambda: init_params(jax.random.key(0), architecture))
    leaves, structure = jax.tree_util.tree_flatten_with_path(expected)
    shapes = {".".join(entry.key for entry in where): leaf for where, leaf in leaves}
    if shapes.keys() != arrays.keys():
        raise Unreadable(f"{path}: its arrays do not fit its architecture: {sorted(shapes.keys() ^ arrays.keys())}.")
    for name, leaf in shapes.items():
        if arrays[name].shape != leaf.shape or arrays[name].dtype != leaf.dtype:
            raise Unreadable(
                f"{path}: {name} has shape {arrays[name].shape} and type {arrays[name].dtype}, "
                f"expected {leaf.shape} and {leaf.dtype}."
            )
    if not is_finite(arrays):
        raise Unreadable(f"{path}: it has weights that are not finite (NaN or infinity).")
    return Learned(jax.tree.unflatten(structure, [jax.device_put(arrays[name]) for name in shapes]), architecture)


def is_finite(weights: Any) -> bool:
    """Whether all weights are numbers to calculate with, as far as they are known while something is traced."""
    known = [leaf for leaf in jax.tree.leaves(weights) if not isinstance(leaf, jax.core.Tracer)]
    return all(bool(np.isfinite(leaf).all()) for leaf in known)


# Those that ship with lqd


@functools.cache
def _card(name: str) -> str:
    return (FOLDER / f"{name}.json").read_text(encoding="utf-8")


def card(name: str) -> dict[str, Any]:
    """All that is known about a trained rule: architecture, recipe, training, checksum, measured scores, limits."""
    if not isinstance(name, str) or name not in NAMES:
        raise unknown("trained rule", name, NAMES)
    return json.loads(_card(name))


def rule(name: str) -> Learned:
    """A trained rule by name."""
    expected = card(name)["sha256"]
    with importlib.resources.as_file(FOLDER / f"{name}.safetensors") as path:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != expected:
            raise Unreadable(
                f"{path}: its SHA-256 is {found[:16]}..., its card says {expected[:16]}...: the file was altered or is "
                f"incomplete. Reinstall lqd."
            )
        return read(path)


def load(given: PathLike) -> Learned:
    """Load a learned rule: one that ships with lqd by name, e.g. `load("lqd-fn")`, or from a file that `save_rule`
    wrote."""
    return rule(given) if isinstance(given, str) and given in NAMES else read(given)
