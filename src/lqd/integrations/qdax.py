"""Any competition rule as the container of QDax's `MAPElites`: change one line, keep emitters, scoring and loops.

    algorithm = MAPElites(scoring, emitter, metrics, repertoire_init=LQDRepertoire.with_rule("lqd-fn"))

The rule scores every individual in the repertoire and every newcomer, and the best stay, as many as there are centroids
(or `population_size`); a score of `-inf` eliminates. NaN, an infinite fitness and a descriptor that is not finite count
as a fitness of `-inf`: an empty slot.

There are no cells. The centroids that `MAPElites.init` asks for are only counted, unless the rule is `"me"` or a
passive archive is kept beside the population (`archive=True`). Emitters that look up what was in a newcomer's cell
(CMA-ME) find the nearest individual instead: `centroids` are the descriptors before the last addition, and an
individual that stays keeps its slot. An emitter that looks for a newcomer in its cell after the addition
(`MEESEmitter`) does not find it.

Rules compute in single precision; what is stored keeps its dtype.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from lqd import checks
from lqd.errors import InvalidInput
from lqd.evolution.loop import survive
from lqd.rules import catalogue
from lqd.rules.handmade import MapElites
from lqd.rules.protocol import Rule, ready
from lqd.types import Population

try:
    from qdax.core.containers.mapelites_repertoire import MapElitesRepertoire
    from qdax.core.emitters.repertoire_selectors.selector import Selector

    from lqd.integrations.qdax_emitter import LQDEmitter
except ImportError as error:
    raise InvalidInput(f"LQDRepertoire needs QDax 0.5 or newer ({error}): pip install 'lqd[qdax]'.") from error

__all__ = ["LQDEmitter", "LQDRepertoire"]


class LQDRepertoire(MapElitesRepertoire):
    """A population of fixed size in which a competition rule decides who stays; an empty slot has fitness `-inf`."""

    rule: Rule
    seed: jax.Array  # for rules that are random: QDax gives `add` no key
    num_additions: jax.Array
    archive: MapElitesRepertoire | None

    @classmethod
    def with_rule(
        cls,
        rule: Any = "lqd-fn",
        *,
        population_size: int | None = None,
        keys_extra_scores: tuple[str, ...] = (),
        archive: bool = False,
        seed: int = 0,
    ) -> Callable[..., "LQDRepertoire"]:
        """What `MAPElites` takes as `repertoire_init`.

        Args:
            rule: A name (`lqd rules`), a rule, a file of weights, or a function `(key, fitness, descriptor) -> scores`.
                `"me"` takes the centroids given to `MAPElites.init` as its cells.
            population_size: How many stay; by default, as many as there are centroids.
            keys_extra_scores: Names of the extra scores to keep with each individual.
            archive: Also keep the best individual ever seen in each cell around the centroids, in `repertoire.archive`.
            seed: Seed of a rule's random draws.
        """
        return partial(
            cls.init,
            rule=_loaded(rule),
            population_size=None if population_size is None else checks.whole("population_size", population_size, 1),
            keys_extra_scores=_names(keys_extra_scores),
            archive=checks.flag("archive", archive),
            seed=checks.seed(seed),
        )

    @classmethod
    def init(
        cls,
        genotypes,
        fitnesses,
        descriptors,
        centroids,
        extra_scores=None,
        keys_extra_scores: tuple[str, ...] = (),
        *,
        rule: Any = "lqd-fn",
        population_size: int | None = None,
        archive: bool = False,
        seed: int = 0,
    ) -> "LQDRepertoire":
        """A repertoire with its first batch; the arguments of QDax's repertoires, then those of `with_rule`."""
        num = _batch_size(descriptors, fitnesses, _dim(centroids))
        chosen = _chosen(extra_scores, _names(keys_extra_scores))
        first = partial(jax.tree.map, lambda leaf: jnp.asarray(leaf)[0])
        empty = cls.init_default(
            first(_entries("genotypes", genotypes, num)),
            centroids,
            first(_entries("extra_scores", chosen, num)),
            keys_extra_scores,
            rule=rule,
            population_size=population_size,
            archive=archive,
            seed=seed,
            dtype=_floating(fitnesses),
        )
        return empty.add(genotypes, descriptors, fitnesses, extra_scores)

    @classmethod
    def init_default(
        cls,
        genotype,
        centroids,
        one_extra_score=None,
        keys_extra_scores: tuple[str, ...] = (),
        *,
        rule: Any = "lqd-fn",
        population_size: int | None = None,
        archive: bool = False,
        seed: int = 0,
        dtype: Any = jnp.float32,
    ) -> "LQDRepertoire":
        """An empty repertoire for genotypes like this one; `dtype` is that of fitness."""
        dim = _dim(centroids)
        centroids = jnp.asarray(centroids, _floating(centroids))
        num = len(centroids) if population_size is None else checks.whole("population_size", population_size, 1)
        keys_extra_scores = _names(keys_extra_scores)
        one_extra_score = _chosen(one_extra_score, keys_extra_scores)

        def slots(tree):
            return jax.tree.map(lambda leaf: jnp.zeros((num, *jnp.shape(leaf)), jnp.result_type(leaf)), tree)

        cells = None
        if checks.flag("archive", archive):
            cells = MapElitesRepertoire.init_default(genotype, centroids, one_extra_score, keys_extra_scores)
        return cls(
            genotypes=slots(genotype),
            fitnesses=jnp.full((num, 1), -jnp.inf, dtype),
            descriptors=jnp.zeros((num, dim), centroids.dtype),
            centroids=jnp.full((num, dim), jnp.inf, centroids.dtype),
            extra_scores=slots(one_extra_score),
            keys_extra_scores=keys_extra_scores,
            rule=_resolved(rule, centroids, num),
            seed=jnp.uint32(checks.seed(seed)),
            num_additions=jnp.int32(0),
            archive=cells,
        )

    def add(
        self, batch_of_genotypes, batch_of_descriptors, batch_of_fitnesses, batch_of_extra_scores=None
    ) -> "LQDRepertoire":
        """A batch joins, all are scored, and the best stay."""
        residents = Population(self.genotypes, self.fitnesses[:, 0], self.descriptors, self.extra_scores)
        newcomers = self._newcomers(batch_of_genotypes, batch_of_descriptors, batch_of_fitnesses, batch_of_extra_scores)
        key = jax.random.fold_in(jax.random.key(self.seed), self.num_additions)
        population = _compete(self.rule, key, residents, newcomers)
        archive = self.archive
        if archive is not None:
            archive = archive.add(newcomers.x, newcomers.descriptor, newcomers.fitness, newcomers.extras)
        return self.replace(
            genotypes=population.x,
            fitnesses=population.fitness[:, None],
            descriptors=population.descriptor,
            centroids=jnp.where(residents.filled[:, None], residents.descriptor, jnp.inf),
            extra_scores=population.extras,
            num_additions=self.num_additions + 1,
            archive=archive,
        )

    def select(self, key, num_samples: int, selector: Selector | None = None) -> MapElitesRepertoire:
        """Some of the individuals, as a plain repertoire: selectors expect nothing but individuals in it."""
        genotypes = self.genotypes
        if isinstance(genotypes, jax.Array) and genotypes.ndim == 1 and jnp.issubdtype(genotypes.dtype, jnp.integer):
            raise InvalidInput(
                "genotypes are single whole numbers, with which OMGMEGAEmitter selects rows. It keeps gradients "
                "per cell, and LQDRepertoire has no cells: use another emitter, or QDax's MapElitesRepertoire."
            )
        individuals = MapElitesRepertoire(
            genotypes=genotypes,
            fitnesses=self.fitnesses,
            descriptors=self.descriptors,
            centroids=self.centroids,
            extra_scores=self.extra_scores,
            keys_extra_scores=self.keys_extra_scores,
        )
        return individuals.select(key, num_samples, selector)

    def _newcomers(self, genotypes, descriptors, fitnesses, extra_scores) -> Population:
        """A batch in the shapes and dtypes of the population; an unusable individual has fitness `-inf`."""
        num = _batch_size(descriptors, fitnesses, self.descriptors.shape[1])
        extra_scores = _chosen(extra_scores, self.keys_extra_scores)
        fitness = jnp.asarray(fitnesses).reshape(num).astype(self.fitnesses.dtype)
        descriptor = jnp.asarray(descriptors).astype(self.descriptors.dtype)
        usable = jnp.isfinite(fitness.astype(jnp.float32))
        usable &= jnp.all(jnp.isfinite(descriptor.astype(jnp.float32)), axis=1)
        return Population(
            _like("genotypes", self.genotypes, genotypes, num),
            jnp.where(usable, fitness, -jnp.inf),
            jnp.where(usable[:, None], descriptor, 0.0),
            _like("extra_scores", self.extra_scores, extra_scores, num),
        )


@jax.jit
def _compete(rule: Rule, key, residents: Population, newcomers: Population) -> Population:
    """Which of both stay. A resident keeps its slot; newcomers take the free ones."""
    union = jax.tree.map(lambda old, new: jnp.concatenate([old, new]), residents, newcomers)
    scores = rule(key, union.fitness.astype(jnp.float32), union.descriptor.astype(jnp.float32))
    num = len(residents.fitness)
    row: Any
    survivors, row = survive(scores, union, jnp.arange(len(scores)), num)
    stays = survivors.filled & (row < num)
    free = jnp.ones(num, bool).at[jnp.where(stays, row, num)].set(False, mode="drop")
    places = jnp.nonzero(free, size=num)[0]
    slot = jnp.where(stays, row, places[jnp.cumsum(~stays) - 1])
    return jax.tree.map(lambda leaf: jnp.zeros_like(leaf).at[slot].set(leaf), survivors)


# The rule


def _loaded(rule: Any) -> Any:
    """A rule by name or from a file is read at once; MAP-Elites waits for its cells."""
    return rule if isinstance(rule, str) and rule == "me" else catalogue.resolve(rule)


def _resolved(rule: Any, centroids, population_size: int) -> Rule:
    """The rule, checked against what it will be given."""
    rule = _loaded(rule)
    if isinstance(rule, str):
        rule = MapElites(centroids.astype(jnp.float32))
    return ready(catalogue.resolve(rule, population_size=population_size, descriptor_dim=centroids.shape[1]))


# Checks, all of shapes and names alone: they say what is wrong while a program is traced


def _floating(values) -> Any:
    """The dtype of real numbers; whole ones are kept as float32."""
    dtype = jnp.result_type(values)
    return dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.float32


def _dim(centroids) -> int:
    if jnp.ndim(centroids) != 2 or 0 in jnp.shape(centroids):
        raise InvalidInput(f"centroids must have shape (cells, D), got {jnp.shape(centroids)}.")
    return jnp.shape(centroids)[1]


def _batch_size(descriptors, fitnesses, dim: int) -> int:
    shape, received = jnp.shape(descriptors), jnp.shape(fitnesses)
    if len(shape) != 2 or shape[1] != dim or not shape[0]:
        raise InvalidInput(f"descriptors must have shape (batch, {dim}), like the centroids; got {shape}.")
    if received not in ((shape[0],), (shape[0], 1)):
        raise InvalidInput(
            f"fitnesses must have shape ({shape[0]},) or ({shape[0]}, 1), one for each descriptor; got {received}."
        )
    return shape[0]


def _names(keys_extra_scores) -> tuple[str, ...]:
    named = isinstance(keys_extra_scores, tuple | list) and all(isinstance(name, str) for name in keys_extra_scores)
    if not named:
        raise InvalidInput(f"keys_extra_scores must be a tuple of names, e.g. ('energy',), got {keys_extra_scores!r}.")
    return tuple(keys_extra_scores)


def _chosen(extra_scores, names: tuple[str, ...]) -> dict[str, Any]:
    """The extra scores that are kept."""
    extra_scores = extra_scores or {}
    for name in names:
        if name not in extra_scores:
            there = ", ".join(map(repr, extra_scores)) or "none"
            raise InvalidInput(f"keys_extra_scores names {name!r}, but the extra scores received are: {there}.")
    return {name: extra_scores[name] for name in names}


def _entries(name: str, batch, num: int):
    """The batch, if all its arrays have `num` entries."""
    leaves = jax.tree.leaves(batch)
    if name == "genotypes" and not leaves:
        raise InvalidInput(f"genotypes must have at least one array, got {batch!r}.")
    for leaf in leaves:
        if jnp.shape(leaf)[:1] != (num,):
            raise InvalidInput(f"{name} must have {num} entries, like the descriptors; got shape {jnp.shape(leaf)}.")
    return batch


def _like(name: str, stored, batch, num: int):
    """The batch in the dtypes of what is stored, if it has the same structure and shapes."""
    expected: Any = jax.tree.structure(stored)
    received: Any = jax.tree.structure(_entries(name, batch, num))
    if expected != received:
        raise InvalidInput(f"{name} must be structured like the first ones, {expected}; got {received}.")

    def cast(old, new):
        if jnp.shape(new)[1:] != old.shape[1:]:
            raise InvalidInput(f"{name} must have shape {(num, *old.shape[1:])}, got {jnp.shape(new)}.")
        return jnp.asarray(new).astype(old.dtype)

    return jax.tree.map(cast, stored, batch)
