"""Variation that a rule may lead: each of its terms by itself, whom it takes for parents, and what is handed on."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rulesets

from lqd.evolution.led import RANGE, WAY, Leader, Led, led_by
from lqd.evolution.loop import ANYWHERE
from lqd.evolution.variation import Spread
from lqd.rules.handmade import DominatedNoveltySearch
from lqd.rules.learned.recipe3 import NUM_CARRIED, STEPS, neutral
from lqd.rules.learned.rule import Learned
from lqd.rules.scaled import BySpread
from lqd.types import Population

DIM, NUM = 3, 12
TRAIL = STEPS.index("trail")
BOX = (jnp.full(DIM, -100.0), jnp.full(DIM, 100.0))
CHANGE = NUM_CARRIED + 2
ADVICE = {"parent": NUM_CARRIED, "shape_weight": NUM_CARRIED + 1, "change": CHANGE}


def population(num_empty=0):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((NUM, DIM), np.float32) * np.float32([1, 3, 0.5])
    fitness = jnp.where(jnp.arange(NUM) < NUM - num_empty, 0.0, -jnp.inf)
    return Population(jnp.asarray(x), fitness, jnp.zeros((NUM, 2)), {}, Led().first(NUM, DIM))


def with_traits(people, **columns):
    """Columns by what they are; steps that are not named are as good as none, and nothing changes."""
    traits = np.array(people.traits)
    traits[:, : len(STEPS)] = np.log(1e-5)
    traits[:, CHANGE] = -100.0
    for name, value in columns.items():
        traits[:, STEPS.index(name) if name in STEPS else ADVICE[name]] = value
    return carrying(people, jnp.asarray(traits))


def carrying(people, traits):
    return dataclasses.replace(people, traits=traits)


def children(people, num=4000, box=BOX):
    return jax.jit(Led().children, static_argnums=4)(jax.random.key(1), people, box, ANYWHERE, num)


def nearest_parent(people, x):
    return np.argmin(((np.asarray(x)[:, None] - np.asarray(people.x)) ** 2).sum(-1), axis=1)


def test_without_advice_parents_are_uniform_over_filled_slots():
    people = with_traits(population(num_empty=4))
    counts = np.bincount(nearest_parent(people, children(people).x), minlength=NUM)
    np.testing.assert_array_equal(counts[8:], 0)
    assert abs(counts[:8] - 500).max() < 100  # a standard deviation is 21


def test_parents_are_drawn_as_their_logits_say():
    people = with_traits(population(), parent=np.log(np.arange(1, NUM + 1)))
    counts = np.bincount(nearest_parent(people, children(people).x), minlength=NUM)
    np.testing.assert_allclose(counts, 4000 * np.arange(1, NUM + 1) / 78, atol=90)


def only_parent(**columns):
    """Everybody is the child of the first."""
    return with_traits(population(), parent=np.where(np.arange(NUM) == 0, 30.0, -30.0), **columns)


def steps_of(people):
    return np.asarray(children(people, 20000).x - people.x[0])


def test_iso_steps_are_in_deviations_of_the_population():
    people = only_parent(iso=np.log(0.5))
    np.testing.assert_allclose(steps_of(people).std(axis=0), 0.5 * np.std(people.x, axis=0), rtol=0.05)


def test_line_steps_go_towards_or_away_from_others():
    people = only_parent(line=np.log(0.5))
    found, ways = steps_of(people), np.asarray(people.x[1:] - people.x[0])
    cosines = found @ ways.T / np.linalg.norm(found, axis=1)[:, None] / np.linalg.norm(ways, axis=1)
    moved = np.linalg.norm(found, axis=1) > 0.02  # the other steps are not quite zero
    assert (abs(cosines[moved]).max(axis=1) > 0.99).all()


def test_difference_steps_do_not_depend_on_the_parent():
    people = only_parent(difference=np.log(0.5))
    expected = 0.25 * 2 * np.cov(np.asarray(people.x).T, ddof=0)
    np.testing.assert_allclose(np.cov(steps_of(people).T), expected, atol=0.1 * np.trace(expected) / 3)


def test_shape_steps_have_the_covariance_of_those_who_count():
    weight = np.arange(NUM) ** 2 / np.sum(np.arange(NUM) ** 2)
    people = only_parent(shape=np.log(0.5), shape_weight=np.log(np.maximum(np.arange(NUM) ** 2, 1e-9)))
    centred = np.asarray(people.x) - weight @ np.asarray(people.x)
    expected = 0.25 * (centred * weight[:, None]).T @ centred
    np.testing.assert_allclose(np.cov(steps_of(people).T), expected, atol=0.05 * np.trace(expected) / 3)


def with_trails(people, trails):
    return carrying(people, jnp.asarray(people.traits).at[:, WAY:].set(trails))


def mean_deviation(people):
    return np.exp(np.log(np.std(people.x, axis=0)).mean())


def test_trail_steps_have_the_covariance_of_the_trails_of_those_who_count():
    trails = np.random.default_rng(1).standard_normal((NUM, DIM), np.float32) * np.float32([1, 0.1, 3])
    people = only_parent(trail=np.log(0.5), shape_weight=np.where(np.arange(NUM) < 6, 0.0, -30.0))
    expected = (0.5 * mean_deviation(people)) ** 2 * trails[:6].T @ trails[:6] / 6
    found = np.cov(steps_of(with_trails(people, trails)).T)
    np.testing.assert_allclose(found, expected, atol=0.05 * np.trace(expected) / 3)


def test_a_trail_is_half_forgotten_at_each_step():
    trails = np.tile(np.float32([4.0, 0.0, -2.0]), (NUM, 1))
    people = with_trails(only_parent(iso=np.log(0.5), trail=np.log(0.02)), trails)
    bred = children(people, 50, box=None)
    moved = (bred.x - people.x[0]) / mean_deviation(people)
    np.testing.assert_allclose(bred.traits[:, WAY:], 0.5 * trails[0] + 0.75**0.5 * moved, rtol=1e-3, atol=1e-3)


def test_trails_stay_finite():
    people = with_trails(only_parent(trail=np.log(3.0)), 1e6)
    for _ in range(50):
        people = carrying(people, children(people, NUM).traits.at[:, NUM_CARRIED:WAY].set(0.0))
    assert (abs(people.traits[:, WAY:]) <= 1e6).all()
    assert np.isfinite(children(people, NUM).x).all()


def test_whoever_is_of_the_start_has_no_trail():
    people = only_parent(trail=np.log(1.0))
    np.testing.assert_allclose(steps_of(people), 0.0, atol=0.02)


def test_steps_are_handed_on_with_what_was_advised_and_a_little_chance():
    people = with_traits(population(), iso=-3.0, trail=-3.0, change=0.0)
    people = carrying(people, people.traits.at[:, CHANGE + 1].set(0.7))
    traits = np.asarray(children(people).traits)
    assert abs(traits[:, 0].mean() - (-3.0 + 0.7)) < 0.02
    assert abs(traits[:, 0].std() - 0.8) < 0.03
    assert abs(traits[:, TRAIL].std() - 0.4) < 0.02
    np.testing.assert_array_equal(traits[:, len(STEPS) : WAY], 0.0)  # newborn, and nothing is advised yet


def test_steps_stay_in_their_range():
    for advised in (-50.0, 50.0):
        people = population()
        people = carrying(people, people.traits.at[:, CHANGE + 1 :].set(advised))
        steps = np.asarray(children(people).traits[:, : len(STEPS)])
        assert (steps >= RANGE[0]).all()
        assert (steps <= RANGE[1]).all()


@pytest.mark.parametrize("value", [-1e30, 1e30])
def test_any_advice_gives_children_inside_the_box(value):
    people = population()
    traits = people.traits.at[:, NUM_CARRIED:WAY].set(value)
    x = children(carrying(people, traits), 500).x
    assert np.isfinite(x).all()
    assert (abs(x) <= 100).all()


def test_who_is_alone_takes_steps_as_wide_as_a_start():
    people = with_traits(population(num_empty=NUM - 1), iso=np.log(0.1))
    moved = steps_of(people)
    np.testing.assert_allclose(moved.std(axis=0), 0.1 * 200 / 12**0.5, rtol=0.05)  # of a uniform start in this box


def test_a_leader_advises_and_everybody_grows_older():
    rule = Learned(rulesets.noisy(rulesets.LEADING), rulesets.LEADING)
    leader, traits = led_by(BySpread(rule), Led()), Led().first(20, DIM)
    rng = np.random.default_rng(0)
    fitness, descriptor = rng.standard_normal(20, np.float32), rng.standard_normal((20, 2), np.float32)
    scores, led = leader.lead(None, fitness, descriptor, traits)
    expected_scores, advice = BySpread(rule).guide(None, fitness, descriptor, neutral(20))
    np.testing.assert_array_equal(scores, expected_scores)
    np.testing.assert_array_equal(led[:, : len(STEPS)], traits[:, : len(STEPS)])
    np.testing.assert_array_equal(led[:, len(STEPS)], 1.0)
    np.testing.assert_allclose(led[:, NUM_CARRIED:WAY], advice)
    np.testing.assert_array_equal(led[:, WAY:], traits[:, WAY:])


def test_nobody_leads_another_variation_and_not_every_rule_leads():
    rule = Learned(rulesets.noisy(rulesets.LEADING), rulesets.LEADING)
    assert isinstance(led_by(rule, Led()), Leader)
    assert led_by(rule, Spread()) is rule
    dns = DominatedNoveltySearch()
    assert led_by(dns, Led()) is dns
