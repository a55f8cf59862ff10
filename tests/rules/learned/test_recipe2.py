"""Feature recipe 2: what it may not depend on, and an independent forward pass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy_network import numpy_forward

from lqd.rules import blocks
from lqd.rules.learned import network, recipe2
from lqd.rules.learned.network import Architecture
from lqd.rules.learned.rule import Learned

INF = np.inf
ARCHITECTURE = Architecture(num_layers=2, num_hidden=24, recipe=2)


@pytest.fixture(scope="module")
def rule():
    """Random weights everywhere, so that none of them can be forgotten unnoticed."""
    params = network.init_params(jax.random.key(0), ARCHITECTURE)
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    noisy = [leaf + 0.3 * jax.random.normal(key, leaf.shape) for leaf, key in zip(leaves, keys, strict=True)]
    return Learned(jax.tree.unflatten(structure, noisy), ARCHITECTURE)


def population(num=30, dim=2, seed=0):
    generator = np.random.default_rng(seed)
    fitness = generator.normal(size=num).astype(np.float32)
    fitness[[3, num - 1]] = -INF
    fitness[5:8] = fitness[4]  # equals, of which the tie-break says who counts as fitter
    fitness[10] = fitness[11]  # equal in everything: the first counts as fitter
    descriptor = generator.normal(size=(num, dim)).astype(np.float32)
    descriptor[10] = descriptor[11]
    descriptor[12] *= 30  # further than far
    return fitness, descriptor


@pytest.mark.parametrize("dim", [1, 2, 3, 8])
@pytest.mark.as_users
def test_equals_an_independent_forward_pass_for_any_number_of_descriptors(rule, dim):
    fitness, descriptor = population(dim=dim)
    found = rule(None, fitness, descriptor)
    np.testing.assert_allclose(found, numpy_forward(rule.params, 4, fitness, descriptor), rtol=1e-3, atol=1e-3)


def test_ranks_are_the_same_counted_or_sorted(monkeypatch):
    fitness, descriptor = map(jnp.asarray, population())
    counted = recipe2.features(fitness, descriptor)
    monkeypatch.setattr(recipe2, "COUNTED", 0)
    np.testing.assert_array_equal(recipe2.features(fitness, descriptor), counted)


def test_eight_heads():
    params = network.init_params(jax.random.key(2), Architecture(num_layers=1, num_heads=8, recipe=2))
    fitness, descriptor = population()
    found = Learned(params, Architecture(num_layers=1, num_heads=8, recipe=2))(None, fitness, descriptor)
    np.testing.assert_allclose(found, numpy_forward(params, 8, fitness, descriptor), rtol=1e-3, atol=1e-3)


def test_turning_moving_and_stretching_the_descriptor_changes_nothing(rule):
    fitness, descriptor = population(dim=3)
    fitness[6] += 1  # it and another of equal fitness are each other's nearest: a turn may change who counts as fitter
    turn, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))
    moved = (7 * descriptor @ turn + [1, -2, 3]).astype(np.float32)
    np.testing.assert_allclose(rule(None, fitness, moved), rule(None, fitness, descriptor), rtol=2e-2, atol=5e-3)


@pytest.mark.parametrize("dim", [1, 2, 8])
def test_moving_and_stretching_the_descriptor_changes_nothing_where_all_fitness_is_equal(rule, dim):
    _, descriptor = population(num=100, dim=dim)
    fitness, moved = np.zeros(100, np.float32), (1000 * descriptor + 1).astype(np.float32)
    np.testing.assert_allclose(rule(None, fitness, moved), rule(None, fitness, descriptor), rtol=2e-2, atol=5e-3)


@pytest.mark.parametrize("num_values", [1, 2, 5, 1000])
@pytest.mark.parametrize("dim", [1, 2, 8])
@pytest.mark.as_users
def test_scores_move_with_the_individuals(rule, dim, num_values):
    """Also where many are equal in fitness; 128 of 160 survive, and they are the same individuals."""
    _, descriptor = population(num=160, dim=dim)
    descriptor[10] += 0.1  # nobody is there twice
    if dim > 1:
        descriptor[20:40, 0] = np.round(descriptor[20:40, 0])  # equal in some of the coordinates
    fitness = (np.arange(160) * 7 % num_values).astype(np.float32)
    plain = np.asarray(rule(None, fitness, descriptor))
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(160)
        moved = np.asarray(rule(None, fitness[order], descriptor[order]))
        np.testing.assert_allclose(moved, plain[order], rtol=1e-3, atol=1e-3)
        assert set(order[np.argsort(-moved)[:128]]) == set(np.argsort(-plain)[:128])


def test_of_a_pair_neither_side_is_preferred():
    """Where the descriptor is higher, the second part of the tie-break is not; it is hardly ever the same."""
    descriptor = jnp.asarray(np.random.default_rng(0).random((4000, 3), np.float32))
    found = np.asarray(recipe2.tie_break(descriptor, jnp.ones(4000, bool)))[:, 1]
    assert len(np.unique(found)) > 3990
    assert np.isfinite(found).all()
    assert found.min() > 0
    above = (found > np.median(found)).astype(float)
    assert max(abs(np.corrcoef(above, descriptor[:, c])[0, 1]) for c in range(3)) < 0.06


def test_equals_in_everything_have_the_same_tie_break():
    descriptor = jnp.zeros((5, 2)).at[0].set(1.0)
    found = np.asarray(recipe2.tie_break(descriptor, jnp.asarray([True, True, True, True, False])))
    np.testing.assert_array_equal(found[1:3], found[2:4])
    assert (found[0] != found[1]).all()


def test_empty_slots_say_nothing(rule):
    fitness, descriptor = population()
    other = np.where((fitness > -INF)[:, None], descriptor, 1e9).astype(np.float32)
    np.testing.assert_array_equal(rule(None, fitness, other), rule(None, fitness, descriptor))


@pytest.mark.parametrize("num", [1, 2])
def test_a_population_of_hardly_anyone_has_finite_scores(rule, num):
    assert np.isfinite(rule(None, np.arange(num, dtype=np.float32), np.zeros((num, 2), np.float32))).all()


def test_an_empty_population_has_no_scores(rule):
    np.testing.assert_array_equal(rule(None, jnp.full(5, -INF), jnp.zeros((5, 2))), np.full(5, -INF))


def test_blocks_equal_the_whole(rule, monkeypatch):
    fitness, descriptor = map(jnp.asarray, population(num=23))
    x, filled = recipe2.features(fitness, descriptor), fitness > -INF
    whole = recipe2.forward(rule.params, 4, x, filled)
    monkeypatch.setattr(blocks, "MAX_TABLE", 4 * 23 * 5)  # blocks of five rows, the last one short
    np.testing.assert_allclose(recipe2.forward(rule.params, 4, x, filled), whole, rtol=1e-4, atol=1e-4)


def test_the_gradient_is_finite_for_equals_duplicates_and_the_fittest(rule):
    fitness, descriptor = map(jnp.asarray, population())
    x, filled = recipe2.features(fitness, descriptor), fitness > -INF

    def loss(params):
        return jnp.sum(jnp.where(filled, recipe2.forward(params, 4, x, filled), 0.0) ** 2)

    gradient = jax.jit(jax.grad(loss))(rule.params)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("sharpness", [-200.0, 200.0])
def test_any_sharpness_gives_finite_scores(rule, sharpness):
    params = rule.params | {"layers": rule.params["layers"] | {"sharpness": jnp.full((2, 4), sharpness)}}
    fitness, descriptor = population()
    scores = np.asarray(Learned(params, ARCHITECTURE)(None, fitness, descriptor))
    assert np.isfinite(scores[fitness > -INF]).all()


def test_heads_of_every_kind_are_needed():
    with pytest.raises(ValueError, match=r"num_heads must be a multiple of 4.*got 2"):
        Architecture(num_heads=2, recipe=2)
