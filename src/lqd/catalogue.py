"""Rules by name: `lqd.rule("dns")`. Names, what they do, and which settings each takes."""

import dataclasses
import functools
import inspect
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lqd import checkpoint, shipped
from lqd.checks import box, float32, numbers_array, whole
from lqd.errors import InvalidInput, unknown
from lqd.evolution import cvt, rules
from lqd.evolution.learned import Learned
from lqd.evolution.network import Architecture
from lqd.evolution.rules import Rule


def _novelty_search(k: int = 3) -> Rule:
    return rules.NoveltySearch(whole("k", k, 1))


def _dominated_novelty_search(k: int = 3) -> Rule:
    return rules.DominatedNoveltySearch(whole("k", k, 1))


def _map_elites(centroids=None, descriptor_bounds=None, num_cells: int = 128, seed: int = 0) -> Rule:
    if centroids is not None:
        if descriptor_bounds is not None:
            raise InvalidInput("rule 'me' takes centroids or descriptor_bounds, not both.")
        try:
            centroids = float32(numbers_array("centroids", centroids, "rule 'me'"))
        except InvalidInput as error:
            raise InvalidInput(f"centroids must be a finite array (cells, D): {error}") from error
        if centroids.ndim != 2 or not len(centroids) or not np.isfinite(centroids).all():
            raise InvalidInput(f"centroids must be a finite array (cells, D), got shape {centroids.shape}.")
        return rules.MapElites(jnp.asarray(centroids))
    if descriptor_bounds is None:
        raise InvalidInput(
            "rule 'me' (MAP-Elites) divides the descriptor space into cells and needs to know where it ends: "
            "give descriptor_bounds=(low, high), e.g. ([0, 0], [1, 1]), or centroids=."
        )
    low, high = box("descriptor_bounds", descriptor_bounds, None)
    num_cells = whole("num_cells", num_cells, 1)
    if all(np.ndim(end) == 0 for end in descriptor_bounds):
        raise InvalidInput(
            f"descriptor_bounds={descriptor_bounds!r} does not say how many dimensions there are: give vectors, "
            f"e.g. ([{low[0]:g}, {low[0]:g}], [{high[0]:g}, {high[0]:g}]) for two."
        )
    return rules.MapElites(cvt.centroids(num_cells, low, high, seed))


def _untrained(seed: int = 0, descriptor_dim: int = 2, num_layers: int = 4, num_features: int = 16, num_heads: int = 4):
    architecture = Architecture(descriptor_dim, num_layers, num_features, num_heads, num_features)
    return Learned.init(jax.random.key(seed), architecture)


class Entry(NamedTuple):
    make: Callable[..., Rule]
    title: str
    summary: str


RULES: dict[str, Entry] = {
    "ga": Entry(rules.GeneticAlgorithm, "Genetic algorithm", "the fittest survive, wherever they are"),
    "random": Entry(rules.Random, "Random", "survival by lot: the baseline"),
    "ns": Entry(_novelty_search, "Novelty Search", "the most distant from the others survive"),
    "dns": Entry(_dominated_novelty_search, "Dominated Novelty Search", "the most distant from fitter ones survive"),
    "me": Entry(_map_elites, "MAP-Elites (CVT)", "the best of each cell survives; needs descriptor_bounds"),
    **{
        name: Entry(functools.partial(shipped.rule, name), *about)  # read when it is asked for
        for name, about in shipped.TITLES.items()
    },
    "lqd-untrained": Entry(_untrained, "Learned QD, untrained", "the transformer rule with random weights"),
}


LONG_NAMES = {
    "map-elites": "me",
    "map_elites": "me",
    "mapelites": "me",
    "cvt-map-elites": "me",
    "genetic-algorithm": "ga",
    "novelty-search": "ns",
    "dominated-novelty-search": "dns",
}


def rule(name: str, **settings) -> Rule:
    """A competition rule by name, e.g. `rule("dns", k=3)`; called as `rule(key, fitness, descriptor) -> scores`."""
    if not isinstance(name, str) or name not in RULES:
        raise unknown("rule", name, RULES, LONG_NAMES)
    accepted = list(inspect.signature(RULES[name].make).parameters)
    for setting in settings:
        if setting not in accepted:
            takes = f"it takes {', '.join(accepted)}" if accepted else "it takes none"
            raise InvalidInput(f"rule {name!r} has no setting {setting!r}; {takes}.")
    return RULES[name].make(**settings)


def is_file(given) -> bool:
    """Whether a rule is given as a file of weights."""
    return isinstance(given, pathlib.Path) or (isinstance(given, str) and given.endswith(".safetensors"))


def resolve(given, *, descriptor_bounds, population_size: int) -> Rule:
    """The rule behind what a user gave: a name, a rule, or a plain function.

    MAP-Elites by name gets as many cells as the population has slots.
    """
    if isinstance(given, str):
        if given == "me":
            return rule("me", descriptor_bounds=descriptor_bounds, num_cells=population_size)
        return rule(given)
    if isinstance(given, rules.MapElites) and len(given.centroids) > population_size:
        raise InvalidInput(
            f"rule 'me' has {len(given.centroids)} cells for a population of {population_size}: elites would be "
            f"lost. Use at most {population_size} cells, or population_size={len(given.centroids)}."
        )
    if not callable(given):
        raise InvalidInput(f"rule must be a name, a file of weights or a callable, got {given!r}.")
    if isinstance(given, Learned) or type(given).__module__ == rules.__name__:
        return given
    leaves = jax.tree.leaves(given)
    plain = len(leaves) == 1 and leaves[0] is given
    return rules.FunctionRule(given) if plain else rules.OwnRule(given, type(given))


_CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (rules.GeneticAlgorithm, rules.Random, rules.NoveltySearch, rules.DominatedNoveltySearch)
}


def encode(given) -> tuple[dict[str, np.ndarray], dict]:
    """A rule as arrays and plain values for a file; a rule that is the user's own code leaves only its name."""
    if isinstance(given, str) and given in shipped.NAMES:
        given = shipped.rule(given)  # the weights themselves: another version may have others under this name
    if isinstance(given, str):
        return {}, {"name": given}
    description: dict = {"class": getattr(given, "__name__", type(given).__name__)}
    if isinstance(given, Learned):
        return checkpoint.flatten(given.params), description | {"architecture": dataclasses.asdict(given.architecture)}
    if isinstance(given, rules.MapElites):
        return {"centroids": np.asarray(given.centroids)}, description
    if type(given) in _CLASSES.values():
        return {}, description | {"settings": dataclasses.asdict(given)}
    return {}, description


def decode(description: dict, arrays: dict[str, np.ndarray]):
    """What `encode` took apart; None for the user's own code."""
    if "name" in description:
        return description["name"]
    if "architecture" in description:
        return checkpoint.learned_from(arrays, description["architecture"], "rule")
    if description["class"] == "MapElites":
        return rules.MapElites(jnp.asarray(arrays["centroids"]))
    if description["class"] in _CLASSES and "settings" in description:
        return _CLASSES[description["class"]](**description["settings"])
    return None
