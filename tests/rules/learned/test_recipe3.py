"""Feature recipe 3: what it says of breeding, against an independent forward pass, and what that may not depend on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rulesets
from numpy_network import numpy_last

import lqd
from lqd.rules.learned import recipe3
from lqd.rules.learned.network import Architecture
from lqd.rules.learned.recipe3 import GAIN, NEUTRAL, NUM_ADVICE
from lqd.rules.learned.rule import Learned
from lqd.rules.trained import save_rule

ARCHITECTURE = rulesets.LEADING


@pytest.fixture(scope="module")
def rule():
    """Random weights everywhere, so that none of them can be forgotten unnoticed."""
    return Learned(rulesets.noisy(ARCHITECTURE), ARCHITECTURE)


def population(num=30, dim=2, seed=0):
    """With empty slots, and some who are equal in fitness."""
    rng = np.random.default_rng(seed)
    fitness = np.round(2 * rng.standard_normal(num)).astype(np.float32)
    fitness[[3, num - 1]] = -np.inf
    return fitness, rng.standard_normal((num, dim), np.float32), np.array(rulesets.carried(num, seed))


@pytest.mark.parametrize("dim", [1, 3])
def test_equals_an_independent_forward_pass(rule, dim):
    fitness, descriptor, carried = population(dim=dim)
    carried[5, 0] = NEUTRAL[0] - 40.0  # further away than is read
    steps, age = (carried[:, :-1] - NEUTRAL) / 2, np.log1p(carried[:, -1:]) / 2
    further = np.clip(np.concatenate([steps, age], axis=1), -4, 4)
    last, tokens = numpy_last(rule.params, 4, fitness, descriptor, further)
    score, breeding = (jax.tree.map(np.asarray, rule.params[name]) for name in ("score", "breeding"))
    direct = np.column_stack([tokens[:, 1], further[fitness > -np.inf]]) @ breeding["direct"] + breeding["bias"]
    expected = (last @ breeding["weight"] + direct) * GAIN
    scores, advice = jax.jit(rule.guide)(None, fitness, descriptor, carried)
    filled = fitness > -np.inf
    np.testing.assert_allclose(scores[filled], (last @ score["weight"] + score["bias"])[:, 0], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(advice[filled], expected, rtol=2e-3, atol=2e-3)
    np.testing.assert_array_equal(scores[~filled], -np.inf)
    np.testing.assert_array_equal(advice[~filled], 0.0)


def test_by_itself_it_is_a_rule_that_takes_everybody_for_new(rule):
    fitness, descriptor, _ = population()
    scores, _ = rule.guide(None, fitness, descriptor, recipe3.neutral(len(fitness)))
    np.testing.assert_allclose(rule(None, fitness, descriptor), scores, rtol=1e-5, atol=1e-5)


def test_weights_of_recipe_2_give_the_same_scores_and_say_nothing_of_breeding():
    before = lqd.load("lqd-f")
    after = Learned(recipe3.from_recipe2(before.params), Architecture(recipe=3))
    fitness, descriptor, carried = population(num=100)
    scores, advice = after.guide(None, fitness, descriptor, carried)
    np.testing.assert_allclose(scores, before(None, fitness, descriptor), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(advice, np.zeros((100, NUM_ADVICE)))


@pytest.mark.parametrize("num_values", [1, 2, 1000])
def test_advice_moves_with_the_individuals(rule, num_values):
    """Also where many are equal in fitness."""
    _, descriptor, carried = population(num=96)
    fitness = (np.arange(96) * 7 % num_values).astype(np.float32)
    order = np.random.default_rng(1).permutation(96)
    plain = rule.guide(None, fitness, descriptor, carried)
    moved = rule.guide(None, fitness[order], descriptor[order], carried[order])
    for one, other in zip(plain, moved, strict=True):
        np.testing.assert_allclose(other, np.asarray(one)[order], rtol=1e-3, atol=2e-3)


def test_empty_slots_say_nothing(rule):
    fitness, descriptor, carried = population()
    empty = (fitness == -np.inf)[:, None]
    other = rule.guide(None, fitness, np.where(empty, 1e9, descriptor), np.where(empty, np.nan, carried))
    for one, two in zip(rule.guide(None, fitness, descriptor, carried), other, strict=True):
        np.testing.assert_array_equal(one, two)


def test_what_is_carried_counts(rule):
    fitness, descriptor, carried = population()
    _, advice = rule.guide(None, fitness, descriptor, carried)
    for column in range(carried.shape[1]):
        changed = carried.copy()
        changed[0, column] += 1.0
        _, other = rule.guide(None, fitness, descriptor, changed)
        assert np.abs(other[0] - advice[0]).max() > 1e-3


def test_weights_that_are_no_numbers_give_no_advice():
    params = rulesets.noisy(ARCHITECTURE)
    params["breeding"]["bias"] = params["breeding"]["bias"].at[0].set(jnp.nan)
    _, advice = Learned(params, ARCHITECTURE).guide(None, *population())
    assert np.isfinite(advice).all()


def test_it_comes_back_from_a_file(rule, tmp_path):
    save_rule(tmp_path / "led.safetensors", rule)
    back = lqd.load(tmp_path / "led.safetensors")
    assert back.architecture == ARCHITECTURE
    for one, other in zip(rule.guide(None, *population()), back.guide(None, *population()), strict=True):
        np.testing.assert_array_equal(one, other)
