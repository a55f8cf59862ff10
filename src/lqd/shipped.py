"""The trained rules in the box: weights with a card each, read from the installed package, never from a network.

`weights/NAME.safetensors` holds the weights, `weights/NAME.json` the card: how they came about, what they were measured
to do, and the checksum of the file. A file that does not match its card is refused.
"""

import functools
import hashlib
import importlib.resources
import json
from typing import Any

from lqd import checkpoint
from lqd.errors import Unreadable, unknown
from lqd.evolution.learned import Learned

FOLDER = importlib.resources.files("lqd") / "weights"
TITLES = {
    "lqd-f": ("Learned QD (F)", "a learned rule, trained for the best solution; keeps more diversity than a GA"),
    "lqd-n": ("Learned QD (N)", "a learned rule, trained for novelty"),
    "lqd-fn": ("Learned QD (F+N)", "a learned rule, trained for fitness and novelty together (the QD score)"),
    "lqd-f-paper": ("Learned QD (F), the paper's recipe", "as lqd-f, from random weights; needs 2 descriptors"),
    "lqd-imitates-ns": ("Learned QD, imitating NS", "where the training of lqd-n began"),
    "lqd-imitates-dns": ("Learned QD, imitating DNS", "where the training of lqd-f and lqd-fn began"),
}
NAMES = tuple(TITLES)


def _check(name: Any) -> str:
    if not isinstance(name, str) or name not in NAMES:
        raise unknown("trained rule", name, NAMES)
    return name


@functools.cache
def _card(name: str) -> str:
    return (FOLDER / f"{name}.json").read_text(encoding="utf-8")


def card(name: str) -> dict[str, Any]:
    """All that is known about a trained rule: architecture, recipe, training, checksum, measured scores, limits."""
    return json.loads(_card(_check(name)))


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
        return checkpoint.load(path)


def load(given: checkpoint.PathLike) -> Learned:
    """A learned rule: one of those in the box by name, e.g. `load("lqd-f")`, or from a file that `save_rule` wrote."""
    return rule(given) if isinstance(given, str) and given in NAMES else checkpoint.load(given)
