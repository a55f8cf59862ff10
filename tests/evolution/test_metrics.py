"""Measures, cells and the passive archive, by hand and against brute force."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lqd.evolution import archive, metrics
from lqd.evolution.archive import Archive
from lqd.rules import cvt
from lqd.types import Population

INF = np.inf


def test_measures_of_a_small_population():
    fitness = jnp.array([4.0, 3.0, 1.0, -INF])
    row = metrics.measure(fitness, jnp.array([[0.0], [1.0], [6.0], [99.0]]))
    assert float(row["max_fitness"]) == 4.0
    np.testing.assert_allclose(row["mean_fitness"], 8 / 3, rtol=1e-6)
    np.testing.assert_allclose(row["novelty"], ((1 + 6) / 2 + (1 + 5) / 2 + (5 + 6) / 2) / 3, rtol=1e-6)
    np.testing.assert_allclose(row["dominated_novelty"], (1 + (5 + 6) / 2) / 2, rtol=1e-6)  # the fittest is left out
    assert float(row["num_filled"]) == 3
    np.testing.assert_allclose(metrics.qd_score(row, 2.0, 6.0), 0.5 * 3.25, rtol=1e-6)


def test_nobody_dominated_and_nobody_at_all():
    row = metrics.measure(jnp.zeros(3), jnp.array([[0.0], [1.0], [2.0]]))
    assert float(row["dominated_novelty"]) == 0.0
    row = metrics.measure(jnp.full(3, -INF), jnp.zeros((3, 1)))
    assert [float(row[name]) for name in ("max_fitness", "novelty", "num_filled")] == [-INF, 0.0, 0.0]


@pytest.mark.parametrize(
    ("fitness", "expected"), [(1.0, 0.0), (2.0, 0.0), (5.0, 0.75), (6.0, 1.0), (7.0, 1.0), (-INF, 0.0)]
)
def test_normalised_fitness_is_clipped_between_its_anchors(fitness, expected):
    assert float(metrics.normalised_fitness(jnp.float32(fitness), 2.0, 6.0)) == expected


def test_anchors_of_no_width():
    assert float(metrics.normalised_fitness(jnp.float32(2.0), 2.0, 2.0)) == 1.0
    assert float(metrics.normalised_fitness(jnp.float32(1.0), 2.0, 2.0)) == 0.0


def test_centroids_fill_the_box_evenly_and_are_the_same_every_time():
    low, high = np.array([-1.0, 10.0]), np.array([1.0, 30.0])
    centroids = np.asarray(cvt.centroids(64, low, high))
    np.testing.assert_array_equal(centroids, cvt.centroids(64, low, high))
    assert ((centroids > low) & (centroids < high)).all()
    samples = low + np.random.default_rng(1).random((20_000, 2)) * (high - low)
    cells = np.asarray(cvt.nearest(jnp.asarray((samples - low) / (high - low), jnp.float32),
                                   jnp.asarray((centroids - low) / (high - low), jnp.float32)))  # fmt: skip
    share = np.bincount(cells, minlength=64) / len(cells)
    assert share.min() > 0.5 / 64
    assert share.max() < 1.6 / 64


def test_nearest_equals_brute_force():
    centroids = cvt.centroids(50, np.zeros(3), np.ones(3))
    points = jax.random.uniform(jax.random.key(0), (300, 3), minval=-0.5, maxval=1.5)
    distance = np.linalg.norm(np.asarray(points)[:, None] - np.asarray(centroids), axis=-1)
    np.testing.assert_array_equal(cvt.nearest(points, centroids), distance.argmin(axis=1))


def test_the_archive_keeps_the_best_ever_of_each_cell():
    centroids = jnp.array([[0.0], [1.0], [2.0]])
    like = Population(jnp.zeros((1, 1)), jnp.zeros(1), jnp.zeros((1, 1)), {"tag": jnp.zeros(1, jnp.int32)})
    kept = Archive.empty(centroids, like)

    def batch(fitness, descriptor, tags):
        column = jnp.array(descriptor, jnp.float32)[:, None]
        return Population(column * 10, jnp.array(fitness, jnp.float32), column, {"tag": jnp.array(tags, jnp.int32)})

    kept = kept.insert(batch([1.0, 2.0, -INF], [0.1, 0.2, 2.0], [1, 2, 3]))
    kept = kept.insert(batch([2.0, 5.0, 5.0], [0.0, 1.0, 1.1], [4, 5, 6]))  # a tie with the elite; a tie in the batch
    np.testing.assert_array_equal(kept.elites.fitness, [2.0, 5.0, -INF])
    np.testing.assert_array_equal(kept.elites.extras["tag"][:2], [2, 5])
    np.testing.assert_allclose(kept.elites.x[:2, 0], [2.0, 10.0])
    assert float(archive.coverage(kept.elites.fitness)) == pytest.approx(2 / 3)
    assert float(archive.offset_qd_score(kept.elites.fitness, 3.0)) == 2.0


def _population(num: int, filled: int):
    rng = np.random.default_rng(num)
    fitness = np.where(np.arange(num) < filled, rng.normal(size=num), -INF)
    rng.shuffle(fitness)
    return jnp.asarray(fitness, jnp.float32), jnp.asarray(rng.normal(size=(num, 2)), jnp.float32)


@pytest.mark.parametrize(("filled", "drawn"), [(7, 7), (7, 4), (7, 3), (7, 2), (3, 3), (6, 5)])
def test_rarefied_novelty_is_the_mean_over_all_subsets(filled, drawn):
    fitness, descriptor = _population(9, filled)
    there = np.flatnonzero(np.asarray(fitness) > -INF)
    every = [
        float(metrics.measure(fitness[np.array(subset)], descriptor[np.array(subset)])["novelty"])
        for subset in itertools.combinations(there, drawn)
    ]
    found = metrics.rarefied_novelty(fitness, descriptor, jnp.float32(drawn))
    np.testing.assert_allclose(found, np.mean(every), rtol=1e-5)


def test_rarefied_novelty_of_all_there_are_is_novelty():
    fitness, descriptor = _population(128, 90)
    expected = metrics.measure(fitness, descriptor)["novelty"]
    for num in (90, 128, 1000):
        found = metrics.rarefied_novelty(fitness, descriptor * 1e20, jnp.float32(num))
        np.testing.assert_allclose(found, expected * 1e20, rtol=1e-5)
    assert float(metrics.rarefied_novelty(fitness, descriptor, jnp.float32(30))) > 1.4 * float(expected)


def test_rarefied_novelty_of_one_and_of_none():
    for filled, num in ((1, 1), (1, 5), (0, 0), (5, 1), (5, 0)):
        fitness, descriptor = _population(6, filled)
        assert float(metrics.rarefied_novelty(fitness, descriptor, jnp.float32(num))) == 0.0
