"""Large, tiny and shifted numbers: the same survive as in float64; and what is said where they do not."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lqd
from lqd.evolution import loop
from lqd.rules.handmade import DominatedNoveltySearch, GeneticAlgorithm, MapElites, NoveltySearch
from lqd.types import Population

INF, NUM, NUM_SURVIVORS, NUM_CELLS = np.inf, 40, 20, 8
GENERATOR = np.random.default_rng(0)
RANKS, UNIT = GENERATOR.permutation(NUM), GENERATOR.random((NUM, 2))
FITNESS = {
    "on 1e8": 1e8 + 8.0 * RANKS,  # neighbours in float32
    "1e30": 1e30 * (RANKS - 20.0),
    "1e30 beside 1": np.where(RANKS % 2, 1e30, 1.0) * (RANKS - 20.0),
    "1e-37": 1e-37 * (RANKS - 20.0),
}
DESCRIPTOR = {"1": UNIT, "on 1e3": 1e3 + UNIT, "1e30": 1e30 * UNIT, "3e38": 3e38 * UNIT, "1e-30": 1e-30 * UNIT}


def novelty(fitness, descriptor, is_dominated: bool):
    distance = np.linalg.norm(descriptor[:, None] - descriptor[None], axis=-1)
    np.fill_diagonal(distance, INF)
    if is_dominated:
        distance = np.where(fitness[None] > fitness[:, None], distance, INF)
    nearest = np.ma.masked_invalid(np.sort(distance, axis=1)[:, :3])
    return nearest.mean(axis=1).filled(INF)


def best_of_cells(fitness, descriptor, centroids):
    cell = np.linalg.norm(descriptor[:, None] - centroids[None], axis=-1).argmin(axis=1)
    best = [max(np.flatnonzero(cell == one), key=lambda i: fitness[i]) for one in set(cell)]
    return np.where(np.isin(np.arange(NUM), best), fitness, -INF)


def in_float64(name, fitness, descriptor, centroids) -> set[int]:
    fitness, descriptor, centroids = (array.astype(np.float64) for array in (fitness, descriptor, centroids))
    if name == "ga":
        scores = fitness
    elif name == "me":
        scores = best_of_cells(fitness, descriptor, centroids)
    else:
        scores = novelty(fitness, descriptor, name == "dns")
    return {int(i) for i in np.argsort(-scores, kind="stable")[:NUM_SURVIVORS] if scores[i] > -INF}


@jax.jit
def _survivors(rule, fitness, descriptor):
    number = jnp.arange(NUM, dtype=jnp.float32)[:, None]
    scores = rule(jax.random.key(0), fitness, descriptor)
    return loop.survive(scores, Population(number, fitness, descriptor, {}), (), NUM_SURVIVORS)[0]


def survivors(name, fitness, descriptor, centroids) -> set[int]:
    rules = {"ga": GeneticAlgorithm(), "ns": NoveltySearch(), "dns": DominatedNoveltySearch()}
    rule = rules.get(name) or MapElites(jnp.asarray(centroids))
    kept = _survivors(rule, jnp.asarray(fitness), jnp.asarray(descriptor))
    return {int(i) for i in np.asarray(kept.x)[np.asarray(kept.filled), 0]}


@pytest.mark.parametrize("rule", ["ga", "ns", "dns", "me"])
@pytest.mark.parametrize("descriptor", DESCRIPTOR)
@pytest.mark.parametrize("fitness", FITNESS)
def test_the_same_survive_as_in_float64(rule, fitness, descriptor):
    given = FITNESS[fitness].astype(np.float32), DESCRIPTOR[descriptor].astype(np.float32)
    centroids = given[1][:NUM_CELLS]
    expected = in_float64(rule, *given, centroids)
    assert len(expected) == (NUM_CELLS if rule == "me" else NUM_SURVIVORS)
    assert survivors(rule, *given, centroids) == expected


@pytest.mark.parametrize("rule", ["ga", "ns", "dns", "me"])
def test_denormal_numbers_count_as_zero(rule):
    """As the documentation says: XLA takes what is below 1.2e-38 for 0, and equals are ranked by position."""
    tiny, zeros = (1e-40 * RANKS).astype(np.float32), np.zeros(NUM, np.float32)
    unit = UNIT.astype(np.float32)
    for given, same in (((tiny, unit), (zeros, unit)), ((RANKS, 1e-40 * unit), (RANKS, 0 * unit))):
        found, expected = ([np.asarray(array, np.float32) for array in pair] for pair in (given, same))
        assert survivors(rule, *found, found[1][:NUM_CELLS]) == in_float64(rule, *expected, expected[1][:NUM_CELLS])


def told(fitness, **given):
    search = lqd.AskTell(dim=2, population_size=8, batch_size=8, rule="ga", **given)
    x = search.ask()
    for _ in range(2):
        search.tell(x, fitness, x)


@pytest.mark.parametrize("minimize", [False, True])
@pytest.mark.parametrize(
    ("fitness", "number"), [(1e8 + np.arange(8), 2), (1 + 1e-9 * np.arange(8), 1), (1e-41 * np.arange(8), 1)]
)
def test_differences_that_single_precision_loses_are_said_once(fitness, number, minimize):
    with pytest.warns(
        UserWarning, match=rf"8 different values, of which single precision distinguishes only {number}"
    ) as seen:
        told(fitness, minimize=minimize)
    assert len(seen) == 1


@pytest.mark.parametrize("fitness", [1e8 + 8 * np.arange(8), np.arange(8), np.ones(8), [1.0, 1 + 1e-12, *range(2, 8)]])
def test_nothing_is_said_where_the_ranking_stays(fitness):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        told(fitness)
    assert not seen
