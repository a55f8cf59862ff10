"""Screening: guesses, what is remembered, and who is chosen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lqd.evolution import memory, screening
from lqd.evolution.memory import KNOWN, SIZE, Memory
from lqd.types import Population

RNG = np.random.default_rng(0)
HOLE = np.array([[0.4, 0.4], [0.6, 0.4], [0.4, 0.6], [0.6, 0.6]])


def one_task(dim=2, descriptor_dim=2) -> Memory:
    like = Population(jnp.zeros((1, 1, dim)), jnp.zeros((1, 1)), jnp.zeros((1, 1, descriptor_dim)))
    return jax.tree.map(lambda leaf: leaf[0], memory.empty(like))


def test_the_newest_takes_the_place_of_the_oldest_and_filling_is_left_out():
    remembered, insert = one_task(), jax.jit(Memory.insert)
    batch = 100
    for first in range(0, SIZE + 300, batch - 1):
        number = first + np.arange(batch, dtype=np.float32)
        x = jnp.asarray(np.stack([number, -number], axis=1))
        remembered = insert(remembered, x, jnp.asarray(number), x, jnp.int32(batch - 1))
    last = int(remembered.num) - 1
    assert sorted(np.asarray(remembered.fitness)) == list(range(last - SIZE + 1, last + 1))
    is_known, at = remembered.known()
    assert np.asarray(is_known).all()
    np.testing.assert_array_equal(remembered.x[:, 0], remembered.fitness[at])
    assert sorted(np.asarray(remembered.x[:, 0])) == list(range(last - KNOWN + 1, last + 1))


def test_before_the_memory_is_full_what_is_not_there_is_not_known():
    x = jnp.ones((4, 2))
    remembered = one_task().insert(x, jnp.ones(4), x, jnp.int32(3))
    is_known, _ = remembered.known()
    assert int(is_known.sum()) == 3
    assert int(remembered.filled.sum()) == 3


def test_a_failure_is_remembered_without_its_descriptor():
    x = jnp.ones((2, 2))
    remembered = one_task().insert(x, jnp.array([-jnp.inf, 1.0]), jnp.array([[jnp.nan, 1.0], [2.0, 3.0]]), jnp.int32(2))
    assert int(remembered.num) == 2
    assert int(remembered.filled.sum()) == 1
    assert np.isfinite(remembered.descriptor).all()


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
def test_guesses_follow_a_smooth_function_in_any_units(scale):
    z = scale * RNG.uniform(-1, 1, size=(200, 3)).astype(np.float32)
    new = scale * RNG.uniform(-0.8, 0.8, size=(50, 3)).astype(np.float32)

    def smooth(z):
        return np.stack([np.sin(z[:, 0] / scale) + z[:, 1] / scale, z[:, 2] / scale], axis=1)

    (guessed,) = jax.jit(screening.guess)(
        jnp.asarray(z), jnp.asarray(new), (jnp.asarray(smooth(z)), jnp.ones(200, bool))
    )
    error = np.abs(np.asarray(guessed) - smooth(new)).mean()
    assert error < 0.2 * np.abs(smooth(new) - smooth(z).mean(axis=0)).mean()


def test_where_a_target_is_not_known_its_value_does_not_matter():
    z, new = (jnp.asarray(RNG.normal(size=(num, 2)), jnp.float32) for num in (40, 5))
    is_known = jnp.arange(40) % 3 > 0
    values = z[:, :1]
    found = [
        screening.guess(z, new, (z, jnp.ones(40, bool)), (jnp.where(is_known[:, None], values, other), is_known))[1]
        for other in (0.0, 1e6)
    ]
    np.testing.assert_array_equal(*found)


def test_nothing_known_gives_finite_guesses():
    z, new = jnp.zeros((KNOWN, 2)), jnp.ones((5, 2))
    for guessed in screening.guess(z, new, (jnp.zeros((KNOWN, 3)), jnp.zeros(KNOWN, bool))):
        assert np.isfinite(guessed).all()


def remembering(x, fitness) -> Memory:
    """Of a function whose descriptor is the genotype."""
    num = len(x)
    x, fitness = jnp.asarray(x, jnp.float32), jnp.asarray(fitness, jnp.float32)
    return one_task(x.shape[1], x.shape[1]).insert(x, fitness, x, jnp.int32(num))


def chosen(remembered, candidates, num, bounds=None, seed=0):
    at = screening.choose(jax.random.key(seed), remembered, remembered.x, candidates, bounds, True, num)
    return np.asarray(at)


def test_where_nobody_was_is_chosen_first_and_nobody_twice():
    places = RNG.uniform(0, 1, size=(400, 2))
    crowd = places[np.abs(places - 0.5).max(axis=1) > 0.25]  # around a hole
    candidates = jnp.asarray(np.concatenate([crowd[-60:] + 1e-3, HOLE]), jnp.float32)
    bounds = (jnp.zeros(2), jnp.ones(2))
    picks = chosen(remembering(crowd[:200], np.zeros(200)), candidates, 32, bounds)
    assert len(set(picks.tolist())) == 32
    assert {60, 61, 62, 63} <= set(picks[:8].tolist())


def test_of_equally_new_ones_the_fitter_are_preferred():
    """All points are there twice, mirrored, so that left and right are equally new."""
    bounds, shares = (-jnp.ones(2), jnp.ones(2)), []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        seen, new = (rng.uniform((0, -end), end, size=(num, 2)) for num, end in ((100, 1.0), (64, 0.9)))
        seen, new = (np.concatenate([half, half * [-1, 1]]).astype(np.float32) for half in (seen, new))
        for sign in (1, -1):  # of the side where the fitter ones are
            picks = [chosen(remembering(seen, sign * seen[:, 0]), jnp.asarray(new), 16, bounds, key) for key in (0, 1)]
            shares.append(np.mean(sign * new[np.concatenate(picks), 0] > 0))
    assert np.mean(shares) > 0.55


@pytest.mark.parametrize("bounds", [None, (0.0, 1.0)])
def test_units_of_descriptors_and_fitness_change_nothing(bounds):
    x = RNG.uniform(0, 1, size=(100, 2)).astype(np.float32)
    candidates = jnp.asarray(RNG.uniform(0, 1, size=(64, 2)), jnp.float32)
    picks = []
    for scale in (1.0, 2.0**20, 2.0**-20):
        remembered = one_task().insert(
            jnp.asarray(x), jnp.asarray(x[:, 0] * scale), jnp.asarray(x * np.float32([1, scale])), jnp.int32(100)
        )
        box = None if bounds is None else tuple(jnp.asarray([end, end * scale], jnp.float32) for end in bounds)
        picks.append(chosen(remembered, candidates, 16, box))
    np.testing.assert_array_equal(picks[0], picks[1])
    np.testing.assert_array_equal(picks[0], picks[2])


def test_ties_and_huge_fitness_are_no_trouble():
    x = RNG.uniform(0, 1, size=(50, 2))
    for fitness in (np.zeros(50), np.r_[np.full(25, -3e38), np.full(25, 3e38)], np.full(50, -np.inf)):
        picks = chosen(remembering(x, fitness), jnp.asarray(RNG.uniform(size=(32, 2)), jnp.float32), 32)
        assert sorted(picks.tolist()) == list(range(32))
