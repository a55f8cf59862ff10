"""Pytrees: their structure tells classes and settings apart, and survives a round trip."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import pytest

from lqd.rules import catalogue
from lqd.rules.handmade import DominatedNoveltySearch, GeneticAlgorithm, NoveltySearch, Random
from lqd.rules.protocol import OwnRule, ready
from lqd.types import Population, pytree, static


@pytree
class Pair:
    first: jax.Array
    size: int = static(default=2)


def test_equal_fields_of_other_classes_are_another_structure():
    """Else `jit` may run the program of one rule for another."""
    rules = [GeneticAlgorithm(), Random(), NoveltySearch(3), DominatedNoveltySearch(3), NoveltySearch(4)]
    for one, other in itertools.combinations(rules, 2):
        assert jax.tree.structure(one) != jax.tree.structure(other)
    assert jax.tree.structure(NoveltySearch(3)) == jax.tree.structure(NoveltySearch(3))
    assert hash(jax.tree.structure(NoveltySearch(3))) == hash(jax.tree.structure(NoveltySearch(3)))


def test_rules_registered_by_others_are_told_apart():
    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Up:
        weight: jax.Array

        def __call__(self, key, fitness, descriptor):
            return self.weight * fitness

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Down:
        weight: jax.Array

        def __call__(self, key, fitness, descriptor):
            return -self.weight * fitness

    up, down = (
        catalogue.resolve(rule(jnp.float32(1)), descriptor_bounds=None, population_size=4) for rule in (Up, Down)
    )
    assert isinstance(up, OwnRule)
    assert jax.tree.structure(up) != jax.tree.structure(down)
    score = jax.jit(lambda rule: rule(None, jnp.float32(2), None))
    assert (float(score(up)), float(score(down))) == (2.0, -2.0)


def test_a_rule_of_ones_own_is_prepared():
    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Slow:
        weight: jax.Array
        table: jax.Array | None = None

        def ready(self):
            return dataclasses.replace(self, table=jnp.cumsum(jnp.full(100, self.weight)))

        def __call__(self, key, fitness, descriptor):
            return fitness if self.table is None else fitness + self.table[-1]

    own = catalogue.resolve(Slow(jnp.float32(1)), population_size=4, descriptor_dim=2)
    prepared = ready(own)
    assert isinstance(prepared, OwnRule)
    assert prepared.kind is Slow
    assert float(prepared(None, jnp.float32(2), None)) == 102.0


def test_round_trip_and_names():
    pair = Pair(jnp.arange(3), 5)
    leaves, structure = jax.tree.flatten(pair)
    assert len(leaves) == 1
    assert jax.tree.unflatten(structure, leaves).size == 5
    ((path, _),) = jax.tree_util.tree_leaves_with_path(pair)
    assert jax.tree_util.keystr(path, simple=True) == "first"


def test_pytrees_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Pair(jnp.zeros(1)).first = 3


def test_filled_slots():
    population = Population(jnp.zeros((3, 1)), jnp.array([1.0, -jnp.inf, -2.0]), jnp.zeros((3, 1)))
    assert population.filled.tolist() == [True, False, True]
