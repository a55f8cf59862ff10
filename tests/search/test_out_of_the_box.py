"""Out of the box, on problems of nobody's benchmark: ties do not stall it, and units do not matter."""

import numpy as np
import pytest

import lqd

NUM = 2000
SIDE = 12  # cells a side
DIM = 6


def bent(x):
    """Two descriptors of a point of [0, 1]^6 that random points gather in the middle of."""
    return np.stack([x[:, :3].mean(axis=1) ** 2, np.sin(2 * x[:, 3:].mean(axis=1))], axis=1)


def constant(x):
    return np.zeros(len(x)), bent(x)


def zero_or_one(x):
    return (np.abs(x[:, 0] - x[:, 3]) < 0.5).astype(float), bent(x)


def cells(descriptor, low=0.0, high=1.0) -> set[tuple[int, ...]]:
    place = np.clip((np.asarray(descriptor) - low) / (np.asarray(high) - low), 0, 1)
    return set(map(tuple, np.minimum((place * SIDE).astype(int), SIDE - 1).tolist()))


class Seen:
    """A function that remembers what it was asked."""

    def __init__(self, function):
        self.function, self.fitness, self.descriptor = function, [], []

    def __call__(self, x):
        fitness, descriptor = self.function(x)
        self.fitness.extend(fitness)
        self.descriptor.extend(descriptor)
        return fitness, descriptor


@pytest.mark.parametrize("function", [constant, zero_or_one])
def test_with_ties_it_covers_what_ten_times_as_many_random_points_do(function):
    """At least 95 % of their cells; with 0 or 1, of the cells where they found a 1."""
    seen = Seen(function)
    lqd.optimize(seen, dim=DIM, bounds=(0, 1), descriptor_bounds=([0, 0], [1, 1]), num_evaluations=NUM, seed=0)
    fitness, descriptor = function(np.random.default_rng(0).uniform(size=(10 * NUM, DIM)))
    reachable = cells(descriptor[fitness == fitness.max()])
    found = cells(np.array(seen.descriptor)[np.array(seen.fitness) == fitness.max()])
    assert len(found & reachable) >= 0.95 * len(reachable)


def rugged(x):
    """Solutions in [0, 1]^6, two descriptors."""
    return -np.abs(x - 0.4).sum(axis=1) - 0.3 * np.cos(9 * x).sum(axis=1), bent(x)


def qd_score(seed: int, units=1.0, descriptor_units=1.0) -> float:
    """Of all that was evaluated, with the first three dimensions and the second descriptor in other units."""
    scale, out = np.r_[np.full(3, units), np.ones(3)], np.array([1.0, descriptor_units])
    best = np.full((SIDE, SIDE), -np.inf)

    def evaluate(x):
        fitness, descriptor = rugged(x / scale)
        place = np.minimum((np.clip(descriptor, 0, 1) * SIDE).astype(int), SIDE - 1)
        np.maximum.at(best, tuple(place.T), fitness)
        return fitness, descriptor * out

    lqd.optimize(
        evaluate,
        dim=DIM,
        bounds=(np.zeros(DIM), scale),
        descriptor_bounds=([0, 0], out),
        num_evaluations=600,
        seed=seed,
    )
    return float(np.maximum(best + 6, 0).sum())


SEEDS = range(4)


@pytest.fixture(scope="module")
def plain() -> np.ndarray:
    return np.array([qd_score(seed) for seed in SEEDS])


@pytest.mark.parametrize(("units", "descriptor_units"), [(1e6, 1e-6), (1e-6, 1e6)])
@pytest.mark.slow
def test_in_other_units_it_finds_as_much(plain, units, descriptor_units):
    """Powers of ten round, so bits differ; the QD score stays within the interval of the seeds."""
    other = np.mean([qd_score(seed, units, descriptor_units) for seed in SEEDS])
    assert abs(other - plain.mean()) < 3 * plain.std(ddof=1) * np.sqrt(2 / len(SEEDS))


@pytest.mark.parametrize("rule", ["lqd-fn", "ga"])
@pytest.mark.parametrize("seed", range(2))
def test_where_one_solution_in_fifty_is_allowed_it_spreads_from_the_first(rule, seed):
    """Not one, or a single one, of the start is allowed."""

    def strip(x):
        return np.where(x[:, 0] > 0.98, x[:, 1], -np.inf), x[:, :2]

    given = {"dim": 3, "bounds": (0, 1), "descriptor_bounds": (0, 1), "rule": rule, "seed": seed}
    result = lqd.optimize(strip, num_evaluations=800, **given)
    assert result.history["num_filled"][0] <= 1
    assert result.best_fitness > 0.95
