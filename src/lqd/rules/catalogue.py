"""Rules by name: `lqd.rule("dns")`. Names, titles, settings, and the one look-up of whatever a user gives as a rule."""

import dataclasses
import functools
import hashlib
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lqd.checks import box, float32, function_of_arrays, numbers_array, whole
from lqd.checks import seed as checked_seed
from lqd.errors import InvalidInput, shown, unknown
from lqd.io import files
from lqd.rules import cvt, handmade, protocol, trained
from lqd.rules.learned.network import Architecture
from lqd.rules.learned.rule import Learned
from lqd.rules.protocol import Rule


def _novelty_search(k: int = 3) -> Rule:
    return handmade.NoveltySearch(whole("k", k, 1))


def _dominated_novelty_search(k: int = 3) -> Rule:
    return handmade.DominatedNoveltySearch(whole("k", k, 1))


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
        return handmade.MapElites(jnp.asarray(centroids))
    if descriptor_bounds is None:
        raise InvalidInput(
            "rule 'me' (MAP-Elites) divides the descriptor space into cells and needs to know where it ends: "
            "give descriptor_bounds=(low, high), e.g. ([0, 0], [1, 1]), or centroids=."
        )
    low, high = box("descriptor_bounds", descriptor_bounds, None)
    num_cells = whole("num_cells", num_cells, 1)
    if all(np.ndim(end) == 0 for end in descriptor_bounds):
        raise InvalidInput(
            f"descriptor_bounds={shown(descriptor_bounds)} does not say how many dimensions there are: give vectors, "
            f"e.g. ([{low[0]:g}, {low[0]:g}], [{high[0]:g}, {high[0]:g}]) for two."
        )
    return handmade.MapElites(cvt.centroids(num_cells, low, high, checked_seed(seed)))


def _untrained(seed: int = 0, descriptor_dim: int = 2, num_layers: int = 4, num_features: int = 16, num_heads: int = 4):
    architecture = Architecture(descriptor_dim, num_layers, num_features, num_heads, num_features)
    return Learned.init(jax.random.key(checked_seed(seed)), architecture)


class Entry(NamedTuple):
    """How a rule is made, its name in full and in figures, and who survives under it."""

    make: Callable[..., Rule]
    title: str
    short: str
    summary: str


_TRAINED = {
    "lqd-f": (
        "Learned QD (F)", "LQD (F)", "a learned rule, trained for the best solution; keeps more diversity than a GA",
    ),
    "lqd-n": ("Learned QD (N)", "LQD (N)", "a learned rule, trained for novelty"),
    "lqd-fn": ("Learned QD (F+N)", "LQD (F+N)", "a learned rule, trained for fitness and novelty together"),
    "lqd-f-paper": (
        "Learned QD (F), the paper's recipe", "LQD (F), paper", "as lqd-f, from random weights; needs 2 descriptors",
    ),
    "lqd-imitates-ns": ("Learned QD, imitating NS", "LQD as NS", "where the training of lqd-n began"),
    "lqd-imitates-dns": ("Learned QD, imitating DNS", "LQD as DNS", "where the training of lqd-f and lqd-fn began"),
}  # fmt: skip
RULES: dict[str, Entry] = {
    "ga": Entry(handmade.GeneticAlgorithm, "Genetic algorithm", "GA", "the fittest survive, wherever they are"),
    "random": Entry(handmade.Random, "Random", "Random", "survival by a random draw: the baseline"),
    "ns": Entry(_novelty_search, "Novelty Search", "NS", "the most distant from the others survive"),
    "dns": Entry(
        _dominated_novelty_search, "Dominated Novelty Search", "DNS", "the most distant from fitter ones survive"
    ),
    "me": Entry(
        _map_elites, "MAP-Elites (CVT)", "MAP-Elites", "the best of each cell survives; needs descriptor_bounds"
    ),
    **{  # read when they are asked for
        name: Entry(functools.partial(trained.rule, name), *about) for name, about in _TRAINED.items()
    },
    "lqd-untrained": Entry(_untrained, "Learned QD, untrained", "LQD, untrained", "the transformer, random weights"),
}  # fmt: skip
HANDMADE = handmade.NAMES
LEARNED = ("lqd-n", "lqd-f", "lqd-fn")  # one for each objective, those that figures and tables compare
FITTED = "me-fitted"  # in benches: MAP-Elites with a box that is fitted to each task, beside that of the paper
BLIND = "lqd-f@random"  # in benches: LQD (F) with descriptors that say nothing
SHORT = {name: entry.short for name, entry in RULES.items()} | {
    FITTED: "MAP-Elites, fitted box",
    BLIND: "LQD (F), random descriptors",
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


def guides(given: Any) -> bool:
    """Whether what a user gave as a rule also leads variation."""
    if trained.is_file(given):
        given = trained.read(given)
    elif isinstance(given, str) and given in trained.NAMES:
        return trained.card(given)["architecture"]["recipe"] == 3
    return protocol.guides(given)


def resolve(
    given: Any,
    *,
    population_size: int | None = None,
    batch_size: int = 0,
    descriptor_bounds: Any = None,
    descriptor_dim: int | None = None,
) -> Rule:
    """The rule behind what a user gave: a name, a file of weights, a rule, or a plain function.

    With `descriptor_dim` it is also checked against what it will be given, before anything compiles. MAP-Elites by name
    gets as many cells as the population has slots.
    """
    found = _found(given, population_size, descriptor_bounds)
    if descriptor_dim is None:
        return found
    if hasattr(found, "check"):
        found.check(descriptor_dim)
    if isinstance(found, protocol.FunctionRule | protocol.OwnRule):
        shapes = ((num := (population_size or 1) + batch_size,), (num, descriptor_dim))
        fitness, descriptor = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)
        key = jax.eval_shape(lambda: jax.random.key(0))
        contract = "(key, fitness (P,), descriptor (P, D)) -> scores (P,)"
        function_of_arrays("rule", found, contract, (num,), key, fitness, descriptor)
    return found


def is_file(given: Any) -> bool:
    """Whether a rule is given as a file of weights, or as the folder of a training run; a name hides a folder."""
    return not (isinstance(given, str) and given in RULES) and trained.is_file(given)


def _found(given: Any, population_size: int | None, descriptor_bounds: Any) -> Rule:
    if is_file(given):
        return trained.read(given)
    if isinstance(given, str):
        if given == "me" and population_size is not None:
            return rule("me", descriptor_bounds=descriptor_bounds, num_cells=population_size)
        return rule(given)
    num_cells = len(given.centroids) if isinstance(given, handmade.MapElites) else 0
    if population_size is not None and num_cells > population_size:
        raise InvalidInput(
            f"rule 'me' has {num_cells} cells for a population of {population_size}: elites would be "
            f"lost. Use at most {population_size} cells, or population_size={num_cells}."
        )
    if not callable(given):
        raise InvalidInput(f"rule must be a name, a file of weights or a callable, got {shown(given)}.")
    ours: tuple[type[Rule], ...] = (*handmade.CLASSES, Learned, protocol.FunctionRule, protocol.OwnRule)
    if isinstance(given, Learned) and not trained.is_finite(given.params):
        raise InvalidInput("rule has weights that are not finite (NaN or infinity): its scores would be meaningless.")
    if isinstance(given, ours):
        return given
    leaves = jax.tree.leaves(given)
    plain = len(leaves) == 1 and leaves[0] is given
    return protocol.FunctionRule(given) if plain else protocol.OwnRule(given, type(given))


OWN = "own."  # how names of fingerprints begin
_CLASSES: dict[str, type] = {cls.__name__: cls for cls in handmade.CLASSES if cls is not handmade.MapElites}


def encode(given) -> tuple[dict[str, np.ndarray], dict]:
    """A rule as arrays and plain values for a file; one that is the user's own code leaves its name, and fingerprints
    of its leaves."""
    if isinstance(given, str) and given in trained.NAMES:
        given = trained.rule(given)  # the weights themselves: another version may have others under this name
    if isinstance(given, str):
        return {}, {"name": given}
    description: dict = {"class": getattr(given, "__name__", type(given).__name__)}
    if isinstance(given, Learned):
        return files.flatten(given.params), description | {"architecture": dataclasses.asdict(given.architecture)}
    if isinstance(given, handmade.MapElites):
        return {"centroids": np.asarray(given.centroids)}, description
    if type(given) in _CLASSES.values():
        return {}, description | {"settings": dataclasses.asdict(given)}
    return _fingerprints(given), description


def _fingerprints(given) -> dict[str, np.ndarray]:
    """SHA-256 of each leaf of a user's own rule, by where it is; nothing of a plain function."""
    found = {}
    for where, leaf in jax.tree_util.tree_leaves_with_path(given):
        if leaf is given:
            return {}
        is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        values = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
        digest = hashlib.sha256(f"{values.dtype}|{values.shape}|".encode() + values.tobytes()).digest()
        found[OWN + jax.tree_util.keystr(where, simple=True, separator=".")] = np.frombuffer(digest, np.uint8)
    return found


def decode(description: dict, arrays: dict[str, np.ndarray]):
    """What `encode` took apart; None for the user's own code."""
    if "name" in description:
        return description["name"]
    if "architecture" in description:
        return trained.learned_from(arrays, description["architecture"], "rule")
    if description["class"] == "MapElites":
        return handmade.MapElites(jnp.asarray(arrays["centroids"]))
    if description["class"] in _CLASSES and "settings" in description:
        return _CLASSES[description["class"]](**description["settings"])
    return None
