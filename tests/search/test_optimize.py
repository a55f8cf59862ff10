"""`optimize` from outside: what it evaluates, what it keeps, what it says when something goes wrong.

The functions here add and take absolute values only, so that NumPy and every compiled program agree to the last bit.
"""

import dataclasses
import inspect
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import lqd
from lqd.evolution.compile_time import Clock
from lqd.rules import cvt
from lqd.search.settings import ARCHIVE_SEED, Settings

RULES = ("ga", "random", "ns", "dns", "me")
BACKENDS = ("host", "jax")
N, B, T = 16, 4, 12
BUDGET = N + T * B
SMALL = {
    "dim": 2,
    "bounds": (-1, 1),
    "population_size": N,
    "batch_size": B,
    "iso_sigma": 0.1,
    "line_sigma": 0.3,
    "num_evaluations": BUDGET,
    "descriptor_bounds": (-2, 2),
    "archive_cells": 32,
    # wherever it does not matter too, so that the tests share their programs
    "qd_offset": -3.0,
}

UNTUNED = {name: value for name, value in SMALL.items() if name not in ("iso_sigma", "line_sigma")}


def cone(x):
    """The best point is (0.3, -0.2); the descriptor is the genotype, turned."""
    return -(abs(x[:, 0] - 0.3) + abs(x[:, 1] + 0.2)), _turned(x)


def _turned(x):
    module = _module(x)
    return module.concatenate([x[:, :1] + x[:, 1:], x[:, :1] - x[:, 1:]], axis=1)


def negative(x):
    fitness, descriptor = cone(x)
    return -fitness, descriptor


def with_extras(x):
    return *cone(x), {"sum": x[:, 0] + x[:, 1], "right": x[:, 0] > 0, "x": x}


def _module(x):
    return np if isinstance(x, np.ndarray) else jnp


def holed(value):
    """`cone` with `value` in place of the fitness on about a third of the box."""

    def evaluate(x):
        fitness, descriptor = cone(x)
        return _module(x).where(x[:, 0] > 0.35, np.float32(value), fitness), descriptor

    return evaluate


NAN_HOLE, INFEASIBLE_HOLE, INFINITE_HOLE = holed(np.nan), holed(-np.inf), holed(np.inf)


def holed_all_over(x):
    """NaN on the right, infeasible on the left, an endless descriptor at the top."""
    fitness, descriptor = NAN_HOLE(x)
    where = _module(x).where
    return where(x[:, 0] < -0.5, np.float32(-np.inf), fitness), where(x[:, 1:] > 0.5, np.float32(np.inf), descriptor)


class Recorder:
    """A function on the host that remembers all it was asked, and numbers its answers."""

    def __init__(self, function=cone, extras=False):
        self.function, self.extras = function, extras
        self.batches, self.fitnesses, self.descriptors = [], [], []

    def __call__(self, x):
        fitness, descriptor = self.function(x)
        first = self.num
        self.batches.append(x.copy())
        self.fitnesses.append(np.array(fitness))
        self.descriptors.append(np.array(descriptor))
        if not self.extras:
            return fitness, descriptor
        number = np.arange(first, first + len(x), dtype=np.int64) + 2**40
        return (
            fitness,
            descriptor,
            {
                "number": number,
                "third": number / 3,
                "label": np.array([f"solution {value}" for value in number]),
                "pair": np.stack([x[:, 0], x[:, 1]], axis=1).astype(np.float64) / 3,
            },
        )

    @property
    def num(self):
        return sum(len(batch) for batch in self.batches)

    @property
    def x(self):
        return np.concatenate(self.batches)

    @property
    def fitness(self):
        return np.concatenate(self.fitnesses)

    @property
    def descriptor(self):
        return np.concatenate(self.descriptors)


def same_elites(first, second, sign=1.0):
    np.testing.assert_array_equal(first.x, second.x)
    np.testing.assert_array_equal(first.fitness, sign * second.fitness)
    np.testing.assert_array_equal(first.descriptor, second.descriptor)
    assert first.extras.keys() == second.extras.keys()
    for name, value in first.extras.items():
        np.testing.assert_array_equal(value, second.extras[name])


def same_result(first, second):
    """Bit for bit, but for the clock."""
    same_elites(first.population, second.population)
    same_elites(first.best, second.best)
    assert (first.archive is None) == (second.archive is None)
    if first.archive is not None:
        same_elites(first.archive, second.archive)
    assert (first.num_evaluations, first.num_nan) == (second.num_evaluations, second.num_nan)
    pd.testing.assert_frame_equal(exact(first.history), exact(second.history), check_exact=True)
    averages = ["mean_fitness", "novelty", "dominated_novelty"]  # sums, in the order each program likes
    pd.testing.assert_frame_equal(first.history[averages], second.history[averages], rtol=1e-6)


def exact(history):
    return history.drop(columns=["time_s", "mean_fitness", "novelty", "dominated_novelty"])


# --- the two backends


@pytest.mark.parametrize("rule", RULES)
def test_backends_agree(rule):
    arguments = SMALL | {"rule": rule, "seed": 5}
    host = lqd.optimize(cone, backend="host", **arguments)
    same_result(host, lqd.optimize(cone, backend="jax", **arguments))
    assert len(host.x) == (N if rule != "me" else len(np.unique(_cells(host.descriptor, N, seed=0))))
    assert len(host.archive) > 1


def _cells(descriptor, num_cells, seed=ARCHIVE_SEED):
    """Cell of each descriptor, by brute force."""
    centroids = np.asarray(cvt.centroids(num_cells, np.full(2, -2.0), np.full(2, 2.0), seed), np.float64)
    return np.argmin(((descriptor[:, None].astype(np.float64) - centroids) ** 2).sum(-1), axis=1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_equal_seeds_equal_results(backend):
    first, again = (lqd.optimize(cone, backend=backend, **SMALL, seed=3) for _ in range(2))
    same_result(first, again)
    other = lqd.optimize(cone, backend=backend, **SMALL, seed=4)
    inside = np.abs(other.x) < 1
    assert not np.isin(other.x[inside], first.x).any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_another_seed_budget_or_scale_compiles_nothing(backend):
    lqd.optimize(cone, backend=backend, **SMALL)
    with Clock() as clock:
        lqd.optimize(cone, backend=backend, **SMALL | {"seed": 77, "num_evaluations": BUDGET + 3 * B})
        lqd.optimize(cone, backend=backend, **SMALL | {"iso_sigma": 0.2, "bounds": ([-1, 0], [0, 1]), "minimize": True})
    assert clock.num_programs == 0


def test_auto_calls_an_unmarked_function_as_it_is():
    seen = []

    def impure(x):
        seen.append(type(x))
        return cone(x)[0] - np.float32(len(seen)), cone(x)[1]

    result = lqd.optimize(impure, **SMALL | {"rule": "ga"})
    assert seen == [np.ndarray] * (N // B + T)
    assert result.best_fitness > -10


def test_auto_compiles_a_marked_function():
    seen = []

    @lqd.traceable
    def evaluate(x):
        seen.append(isinstance(x, jax.core.Tracer))
        return cone(x)

    result = lqd.optimize(evaluate, **SMALL)
    assert seen
    assert all(seen)
    same_result(result, lqd.optimize(cone, backend="jax", **SMALL))


def test_auto_traces_a_jitted_function():
    """On the host it would have to be compiled before its shapes are known."""
    with Clock() as clock, pytest.raises(lqd.InvalidInput, match=r"fitness must have shape \((4|16),\)"):
        lqd.optimize(jax.jit(lambda x: (x[:, :1], x)), **SMALL)
    assert clock.num_programs == 0


def test_a_function_that_cannot_be_traced_says_so():
    with pytest.raises(lqd.InvalidInput, match=r"cannot be traced.*backend='host'"):
        lqd.optimize(lambda x: (np.asarray(x)[:, 0], x), backend="jax", **SMALL)


def test_64_bit_answers_of_a_function():
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        result = lqd.optimize(
            lambda x: (x[:, 0].astype(jnp.float64), x.astype(jnp.float64), {"wide": x[:, 1].astype(jnp.float64)}),
            backend="jax",
            **SMALL | {"minimize": True},
        )
    assert (result.fitness.dtype, result.descriptor.dtype) == (np.float32, np.float32)
    np.testing.assert_array_equal(result.extras["wide"], result.x[:, 1].astype(np.float64))


def test_64_bit_mode_changes_nothing():
    """Also under strict promotion: nothing of ours is wider than it should be."""
    plain = lqd.optimize(cone, **SMALL | {"rule": "me"})
    with jax.enable_x64(True):
        wide = lqd.optimize(cone, **SMALL | {"rule": "me"})
    assert {wide.x.dtype, wide.fitness.dtype, wide.descriptor.dtype} == {np.dtype(np.float32)}
    same_result(wide, plain)


# --- what is evaluated


@pytest.mark.parametrize("budget", [N + B, BUDGET, BUDGET + B - 1])
def test_the_budget_is_kept(budget):
    recorder = Recorder()
    result = lqd.optimize(recorder, **SMALL | {"num_evaluations": budget})
    assert recorder.num == result.num_evaluations == N + (budget - N) // B * B
    assert max(len(batch) for batch in recorder.batches) == B
    assert result.stopped_by is None
    assert result.history["num_evaluations"].tolist() == list(range(N, budget + 1, B))
    assert result.history["generation"].tolist() == list(range((budget - N) // B + 1))


def test_a_batch_larger_than_the_population():
    recorder = Recorder()
    result = lqd.optimize(recorder, **SMALL | {"population_size": 4, "batch_size": 16, "num_evaluations": 4 + 3 * 16})
    assert [len(batch) for batch in recorder.batches] == [4, 16, 16, 16]
    assert len(result.x) == 4


def test_bounds_hold_for_everything_evaluated():
    low, high = np.float32([-0.5, 2.0]), np.float32([0.25, 7.0])
    recorder = Recorder()
    lqd.optimize(recorder, **SMALL | {"bounds": (low, high), "iso_sigma": 3.0})
    assert (recorder.x >= low).all()
    assert (recorder.x <= high).all()
    assert (recorder.x == low).any()  # clipped, not drawn again
    start = recorder.x[:N]
    assert (start.max(0) - start.min(0) > 0.6 * (high - low)).all()
    assert (np.abs(start.mean(0) - (low + high) / 2) < 0.25 * (high - low)).all()


def test_unbounded_search_starts_at_the_origin():
    plain = lqd.optimize(cone, **SMALL | {"bounds": None, "rule": "random"})
    scaled = lqd.optimize(cone, **SMALL | {"bounds": None, "rule": "random", "init_sigma": 1000.0})
    assert 0.2 < np.abs(plain.x).mean() < 3
    assert 200 < np.abs(scaled.x).mean() < 3000


def _start(**given):
    search = lqd.AskTell(**{name: value for name, value in SMALL.items() if name != "num_evaluations"} | given)
    return np.concatenate([search.ask() for _ in range(N // B)])


def test_x0_as_a_centre():
    start = _start(bounds=None, x0=[100, -50], init_sigma=0.5)
    assert np.abs(start - [100, -50]).max() < 3
    assert len(np.unique(start, axis=0)) == N


def test_x0_within_bounds_is_clipped_to_them():
    start = _start(x0=[1.0, 0.0], init_sigma=0.1)
    assert 2 < (start[:, 0] == 1).sum() < N - 2
    assert start.max() <= 1


@pytest.mark.parametrize("num", [3, N])
def test_x0_as_points(num):
    points = np.random.default_rng(0).uniform(-1, 1, (num, 2)).astype(np.float32)
    start = _start(x0=points, init_sigma=0.01)
    np.testing.assert_array_equal(start[:num], points)
    np.testing.assert_allclose(start, points[np.arange(N) % num], atol=0.06)


def _copy_of_second(key, first, second):
    return second


@pytest.mark.parametrize("backend", BACKENDS)
def test_own_reproduction(backend):
    """Children that are copies of a parent: nothing new after the start."""
    recorder = Recorder()
    lqd.optimize(recorder, **SMALL | {"num_evaluations": N + B})
    result = lqd.optimize(cone, backend=backend, **UNTUNED | {"reproduction": _copy_of_second, "rule": "random"})
    start = {tuple(row) for row in recorder.x[:N]}
    assert {tuple(row) for row in result.x} < start
    assert result.best_fitness == recorder.fitness[:N].max()
    assert result.info["reproduction"] == "_copy_of_second"


def test_own_reproduction_is_clipped():
    recorder = Recorder()
    lqd.optimize(recorder, **UNTUNED | {"reproduction": lambda key, first, second: first + 10.0})
    assert (recorder.x[N:] == 1).all()


# --- what is kept


@pytest.mark.parametrize("rule", RULES)
def test_best_is_the_best_ever_evaluated(rule):
    recorder = Recorder()
    result = lqd.optimize(recorder, **SMALL | {"rule": rule, "iso_sigma": 0.5, "seed": 11})
    index = np.argmax(recorder.fitness)
    assert result.best_fitness == recorder.fitness[index]
    np.testing.assert_array_equal(result.best_x, recorder.x[index])
    best_so_far = np.maximum.accumulate(recorder.fitness)[N - 1 :: B]
    np.testing.assert_array_equal(result.history["best_fitness"].to_numpy(np.float32), best_so_far)
    # The population: told solutions, the best first, no one twice.
    told = {tuple(x): (f, *d) for x, f, d in zip(recorder.x, recorder.fitness, recorder.descriptor, strict=True)}
    assert len({tuple(x) for x in result.x}) == len(result.x)
    for x, fitness, descriptor in zip(result.x, result.fitness, result.descriptor, strict=True):
        assert told[tuple(x)] == (fitness, *descriptor)
    assert (np.diff(result.fitness) <= 0).all()
    assert result.history["max_fitness"].iloc[-1] == result.fitness[0]


def test_genetic_algorithm_keeps_the_fittest_ever():
    recorder = Recorder()
    result = lqd.optimize(recorder, **SMALL | {"rule": "ga"})
    np.testing.assert_array_equal(result.fitness, np.sort(recorder.fitness)[::-1][:N])


@pytest.mark.parametrize("minimize", [False, True])
@pytest.mark.parametrize("rule", ["dns", "me", "random"])
def test_archive_holds_the_best_ever_of_each_cell(rule, minimize):
    recorder = Recorder()
    result = lqd.optimize(recorder, **SMALL | {"rule": rule, "iso_sigma": 0.5, "minimize": minimize, "qd_offset": -1})
    elites = {}
    for number, cell in enumerate(_cells(recorder.descriptor, 32)):
        sign = -1 if minimize else 1
        if cell not in elites or sign * recorder.fitness[number] > sign * recorder.fitness[elites[cell]]:
            elites[cell] = number
    numbers = sorted(elites.values())
    order = np.argsort([np.flatnonzero((recorder.x == x).all(1))[0] for x in result.archive.x])
    np.testing.assert_array_equal(result.archive.x[order], recorder.x[numbers])
    np.testing.assert_array_equal(result.archive.fitness[order], recorder.fitness[numbers])
    np.testing.assert_array_equal(result.archive.descriptor[order], recorder.descriptor[numbers])
    assert len(numbers) > 8
    last = result.history.iloc[-1]
    assert last["archive_coverage"] == pytest.approx(len(numbers) / 32)
    gains = (-1 if minimize else 1) * (recorder.fitness[numbers] + 1.0)
    assert last["archive_qd_score"] == pytest.approx(np.maximum(gains, 0).sum(), rel=1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_minimising_is_maximising_the_negative(rule):
    most = lqd.optimize(cone, **SMALL | {"rule": rule, "qd_offset": -2.0})
    least = lqd.optimize(negative, **SMALL | {"rule": rule, "qd_offset": 2.0, "minimize": True})
    for part in ("population", "best", "archive"):
        same_elites(getattr(least, part), getattr(most, part), sign=-1.0)
    assert least.best_fitness == -most.best_fitness
    np.testing.assert_array_equal(least.best_x, most.best_x)
    assert (np.diff(least.fitness) >= 0).all()
    turned = most.history.rename(columns={"max_fitness": "min_fitness"})
    turned[["min_fitness", "mean_fitness", "best_fitness"]] *= -1
    pd.testing.assert_frame_equal(least.history.drop(columns="time_s"), turned.drop(columns="time_s"))


@pytest.mark.parametrize("rule", RULES)
def test_minimising_is_alike_on_both_backends(rule):
    host, compiled = (lqd.optimize(cone, backend=name, **SMALL | {"rule": rule, "minimize": True}) for name in BACKENDS)
    same_result(host, compiled)
    assert host.best_fitness < -1.5


@pytest.mark.parametrize("minimize", [False, True])
def test_extras_stay_with_their_solution(minimize):
    recorder = Recorder(extras=True)
    result = lqd.optimize(recorder, **SMALL | {"minimize": minimize, "iso_sigma": 0.5})
    for elites in (result.population, result.best, result.archive):
        number = elites.extras["number"]
        assert (number.dtype, elites.extras["third"].dtype) == (np.int64, np.float64)
        row = number - 2**40
        assert len(elites) > 0
        np.testing.assert_array_equal(elites.x, recorder.x[row])
        np.testing.assert_array_equal(elites.fitness, recorder.fitness[row])
        np.testing.assert_array_equal(elites.extras["third"], number / 3)
        np.testing.assert_array_equal(elites.extras["pair"], elites.x.astype(np.float64) / 3)
        assert elites.extras["label"].tolist() == [f"solution {value}" for value in number]
    assert result.extras is result.population.extras


@pytest.mark.parametrize("backend", BACKENDS)
def test_extras_on_both_backends(backend):
    result = lqd.optimize(with_extras, backend=backend, **SMALL)
    for elites in (result.population, result.best, result.archive):
        np.testing.assert_array_equal(elites.extras["sum"], elites.x[:, 0] + elites.x[:, 1])
        np.testing.assert_array_equal(elites.extras["right"], elites.x[:, 0] > 0)
        np.testing.assert_array_equal(elites.extras["x"], elites.x)
        assert elites.extras["right"].dtype == bool
    assert list(result.to_dataframe()) == ["fitness", "descriptor_0", "descriptor_1", "x_0", "x_1", "right", "sum"]
    np.testing.assert_array_equal(result.to_dataframe()["sum"], result.extras["sum"])
    assert len(result.archive.to_dataframe()) == len(result.archive)


def test_extras_are_copied():
    """A function may fill the same array again and again."""
    buffer = np.zeros((B, 2))

    def evaluate(x):
        buffer[: len(x)] = x
        return *cone(x), {"x": buffer[: len(x)]}

    result = lqd.optimize(evaluate, **SMALL)
    np.testing.assert_array_equal(result.extras["x"], result.x)


def test_extras_of_any_length():
    def evaluate(x):
        steps = np.empty(len(x), object)
        steps[:] = [np.arange(int(abs(value) * 10)) for value in x[:, 0]]
        return *cone(x), {"steps": steps}

    result = lqd.optimize(evaluate, **SMALL)
    assert [len(steps) for steps in result.extras["steps"]] == [int(abs(value) * 10) for value in result.x[:, 0]]


def test_an_extra_does_not_replace_a_column():
    result = lqd.optimize(lambda x: (*cone(x), {"fitness": np.zeros(len(x))}), **SMALL)
    np.testing.assert_array_equal(result.to_dataframe()["fitness"], result.fitness)


# --- rules


def test_own_function_as_a_rule():
    own = lqd.optimize(cone, **SMALL | {"rule": lambda key, fitness, descriptor: fitness})
    same_result(own, lqd.optimize(cone, **SMALL | {"rule": "ga"}))


class _PytreeRule:
    """Fitness times a number, which is a leaf."""

    def __init__(self, weight):
        self.weight = weight

    def __call__(self, key, fitness, descriptor):
        return jnp.where(fitness > -jnp.inf, self.weight * fitness, -jnp.inf)


jax.tree_util.register_pytree_node(
    _PytreeRule, lambda rule: ((rule.weight,), None), lambda _, children: _PytreeRule(*children)
)


@pytest.mark.parametrize("backend", BACKENDS)
def test_own_class_as_a_rule(backend):
    best = lqd.optimize(cone, backend=backend, **SMALL | {"rule": _PytreeRule(jnp.float32(2.0))})
    same_result(best, lqd.optimize(cone, backend=backend, **SMALL | {"rule": "ga"}))
    with Clock() as clock:
        worst = lqd.optimize(cone, backend=backend, **SMALL | {"rule": _PytreeRule(jnp.float32(-1.0))})
    assert clock.num_programs == 0
    assert worst.fitness[0] < best.fitness[-1]
    assert worst.best_fitness > worst.fitness[0]


def test_a_rule_that_scores_nan_eliminates():
    def scores(key, fitness, descriptor):
        return jnp.where(descriptor[:, 0] > 0, fitness, jnp.nan)

    result = lqd.optimize(cone, **SMALL | {"rule": scores})
    assert len(result.x) > 0
    assert (result.descriptor[:, 0] > 0).all()


def test_learned_rule_object():
    arguments = SMALL | {"rule": lqd.rule("lqd-untrained", seed=4)}
    host = lqd.optimize(cone, backend="host", **arguments)
    with Clock() as clock:
        other = lqd.optimize(cone, backend="host", **arguments | {"rule": lqd.rule("lqd-untrained", seed=5)})
    assert clock.num_programs == 0
    assert len(host.x) == len(other.x) == N
    assert not np.array_equal(host.x, other.x)


# --- NaN, infeasible


@pytest.mark.parametrize("rule", RULES)
def test_nan_is_eliminated_and_counted(rule):
    recorder = Recorder(NAN_HOLE)
    result = lqd.optimize(recorder, **SMALL | {"rule": rule})
    bad = np.isnan(recorder.fitness)
    assert 0 < result.num_nan == bad.sum() < len(bad)
    assert result.history["num_nan"].iloc[-1] == result.num_nan
    for elites in (result.population, result.best, result.archive):
        assert np.isfinite(elites.fitness).all()
        assert (elites.x[:, 0] <= 0.35).all()
    assert result.best_fitness == np.nanmax(recorder.fitness)


def test_holes_are_alike_on_both_backends():
    recorder = Recorder(holed_all_over)
    host = lqd.optimize(recorder, **SMALL)
    x, feasible = recorder.x, ~(recorder.x[:, 0] < -0.5)
    assert host.num_nan == (feasible & ((x[:, 0] > 0.35) | (x[:, 1] > 0.5))).sum() > 0
    assert not feasible.all()
    for elites in (host.population, host.best, host.archive):
        assert ((elites.x[:, 0] <= 0.35) & (elites.x[:, 0] >= -0.5) & (elites.x[:, 1] <= 0.5)).all()
    same_result(host, lqd.optimize(holed_all_over, backend="jax", **SMALL))


def _named(error):
    """The solution in a message."""
    return [float(word) for word in str(error).split("x = [")[1].split("]")[0].split()]


@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_raises_on_request(backend):
    with pytest.raises(lqd.InvalidInput, match=r"fitness is NaN.* x = \[.*on_nan='eliminate'") as caught:
        lqd.optimize(holed_all_over, backend=backend, **SMALL | {"on_nan": "raise", "seed": 1})
    named = _named(caught.value)
    assert named[0] > 0.35 or named[1] > 0.5
    assert named[0] >= -0.5


def test_what_was_found_before_a_nan_is_kept():
    recorder = Recorder()

    def evaluate(x):
        fitness, descriptor = recorder(x)
        return np.where(recorder.num > BUDGET - B, np.float32(np.nan), fitness), descriptor

    with pytest.raises(lqd.InvalidInput, match=r"for 4 solutions \(rows 0, 1, 2, 3\)") as caught:
        lqd.optimize(evaluate, **SMALL | {"on_nan": "raise"})
    assert caught.value.result.num_evaluations == BUDGET - B
    same_elites(
        caught.value.result.population, lqd.optimize(cone, **SMALL | {"num_evaluations": BUDGET - B}).population
    )


def test_descriptors_that_are_not_finite_count_as_nan():
    def evaluate(x):
        fitness, descriptor = cone(x)
        return fitness, np.where(x[:, :1] > 0.35, np.float32(np.inf), descriptor)

    result = lqd.optimize(evaluate, **SMALL)
    assert result.num_nan > 0
    assert np.isfinite(result.descriptor).all()
    with pytest.raises(lqd.InvalidInput, match="a descriptor is not finite"):
        lqd.optimize(evaluate, **SMALL | {"on_nan": "raise"})


@pytest.mark.parametrize("rule", RULES)
def test_infeasible_solutions_never_survive(rule):
    recorder = Recorder(INFEASIBLE_HOLE)
    host = lqd.optimize(recorder, **SMALL | {"rule": rule, "on_nan": "raise"})
    assert np.isneginf(recorder.fitness).any()
    assert host.num_nan == 0
    assert (host.x[:, 0] <= 0.35).all()
    assert (host.archive.x[:, 0] <= 0.35).all()


def test_infeasible_when_minimising_is_plus_infinity():
    result = lqd.optimize(INFINITE_HOLE, **SMALL | {"minimize": True})
    assert (result.x[:, 0] <= 0.35).all()
    assert len(result.x) == N


def test_plus_infinity_is_an_error():
    with pytest.raises(lqd.InvalidInput, match=r"fitness is \+inf.* x = \[.*return -inf where") as caught:
        lqd.optimize(INFINITE_HOLE, **SMALL)
    assert _named(caught.value)[0] > 0.35


@pytest.mark.parametrize("backend", BACKENDS)
def test_minus_infinity_is_an_error_when_minimising(backend):
    with pytest.raises(lqd.InvalidInput, match=r"fitness is -inf.* x = \[.*return \+inf where") as caught:
        lqd.optimize(holed_all_over, backend=backend, **SMALL | {"minimize": True})
    assert _named(caught.value)[0] < -0.5


@pytest.mark.parametrize("rule", RULES)
def test_recovers_when_nothing_was_feasible_at_the_start(rule):
    recorder = Recorder()

    def evaluate(x):
        fitness, descriptor = recorder(x)
        return np.where(recorder.num <= N + 2 * B, np.float32(-np.inf), fitness), descriptor

    result = lqd.optimize(evaluate, **SMALL | {"rule": rule})
    assert result.history["num_filled"].tolist()[:4] == [
        0,
        0,
        0,
        B if rule != "me" else result.history["num_filled"][3],
    ]
    assert len(result.x) > B
    assert len(np.unique(recorder.x[: N + 3 * B], axis=0)) == N + 3 * B  # fresh points until somebody lives
    index = N + 2 * B + np.argmax(recorder.fitness[N + 2 * B :])
    np.testing.assert_array_equal(result.best_x, recorder.x[index])


def _near(x):
    """Feasible about 2.5 deviations from the centre that the test gives."""
    module = _module(x)
    fitness, descriptor = cone(x)
    return module.where(x[:, 0] > 0.525, fitness, module.float32(-np.inf)), descriptor


@pytest.mark.parametrize(
    "backend",
    [
        "host",
        "jax",
    ],
)
def test_fresh_points_are_drawn_around_x0(backend):
    arguments = SMALL | {"x0": [0.5, 0.5], "init_sigma": 0.01, "iso_sigma": 0.001, "num_evaluations": N + 100 * B}
    arguments |= {"rule": "ga"}  # who is far away is none the better for it
    result = lqd.optimize(_near, backend=backend, **arguments)
    assert result.history["num_filled"].iloc[0] == 0
    assert len(result.x) > 0
    assert np.abs(result.x - 0.5).max() < 0.1


def test_nothing_feasible_at_all():
    result = lqd.optimize(holed_everywhere, **SMALL)
    assert (len(result.x), len(result.archive), result.best_x, result.best_fitness) == (0, 0, None, None)
    assert result.x.shape == (0, 2)
    assert "none feasible" in repr(result)
    assert not result.history.isna().to_numpy().any()
    assert len(result.to_dataframe()) == 0


def holed_everywhere(x):
    return np.full(len(x), -np.inf), _turned(x)


# --- stopping


@pytest.mark.parametrize("backend", BACKENDS)
def test_callback_sees_every_row(backend):
    seen = []
    result = lqd.optimize(cone, backend=backend, callback=seen.append, **SMALL)
    assert [progress.row for progress in seen] == result.history.to_dict("records")
    assert [progress.generation for progress in seen] == list(range(T + 1))
    assert [progress.num_evaluations for progress in seen] == list(range(N, BUDGET + 1, B))
    assert all(type(progress.generation) is int for progress in seen)
    assert result.stopped_by is None
    same_result(result, lqd.optimize(cone, backend=backend, **SMALL))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("generation", [0, 5])
def test_callback_stops(backend, generation):
    result = lqd.optimize(cone, backend=backend, callback=lambda p: p.generation == generation, **SMALL)
    assert (result.stopped_by, result.num_evaluations) == ("callback", N + generation * B)
    if generation:
        same_result(result, lqd.optimize(cone, backend=backend, **SMALL | {"num_evaluations": result.num_evaluations}))
    assert "stopped by callback" in repr(result)


@pytest.mark.parametrize("backend", BACKENDS)
def test_callback_sees_the_users_sign(backend):
    rows = []
    lqd.optimize(cone, backend=backend, callback=lambda p: rows.append(p.row), **SMALL | {"minimize": True})
    assert len(rows) == T + 1
    assert all(-4 < row["best_fitness"] <= row["min_fitness"] < row["mean_fitness"] < 0 for row in rows)


@pytest.mark.parametrize("backend", BACKENDS)
def test_callback_stops_with_a_numpy_bool(backend):
    result = lqd.optimize(cone, backend=backend, callback=lambda p: np.bool_(p.generation == 2), **SMALL)
    assert result.stopped_by == "callback"


@pytest.mark.parametrize("backend", BACKENDS)
def test_time_limit(backend):
    short = lqd.optimize(cone, backend=backend, **SMALL, time_limit_s=1e-9)
    assert short.stopped_by == "time limit"
    assert 0 < short.num_evaluations < BUDGET
    assert 0 < len(short.x) <= short.num_evaluations
    same_result(
        lqd.optimize(cone, backend=backend, **SMALL, time_limit_s=1e6), lqd.optimize(cone, backend=backend, **SMALL)
    )


class _Stop(Exception):
    pass


@pytest.mark.parametrize("num_calls", [2, N // B + 3])
def test_an_exception_keeps_what_was_evaluated(num_calls):
    recorder = Recorder(extras=True)

    def evaluate(x):
        if len(recorder.batches) == num_calls:
            raise _Stop("no power")
        return recorder(x)

    with pytest.raises(lqd.EvaluationFailed, match=f"_Stop after {num_calls * B} evaluations: no power") as caught:
        lqd.optimize(evaluate, **SMALL)
    assert isinstance(caught.value.__cause__, _Stop)
    result = caught.value.result
    assert (result.num_evaluations, result.stopped_by) == (num_calls * B, "error")
    assert result.best_fitness == recorder.fitness.max()
    np.testing.assert_array_equal(result.extras["number"] - 2**40, [_row(recorder, x) for x in result.x])
    assert len(result.x) == min(N, num_calls * B)


def _row(recorder, x):
    return int(np.flatnonzero((recorder.x == x).all(1))[0])


def test_an_exception_at_once_has_no_result():
    with pytest.raises(lqd.EvaluationFailed, match="ZeroDivisionError after 0 evaluations") as caught:
        lqd.optimize(lambda x: 1 / 0, **SMALL)
    assert caught.value.result is None


def test_ctrl_c_in_the_function_keeps_what_was_evaluated():
    recorder = Recorder()

    def evaluate(x):
        if recorder.num == N + B:
            raise KeyboardInterrupt
        return recorder(x)

    with pytest.raises(lqd.Interrupted, match=f"after {N + B} evaluations") as caught:
        lqd.optimize(evaluate, **SMALL)
    same_result(caught.value.result, lqd.optimize(cone, **SMALL | {"num_evaluations": N + B}))
    assert caught.value.result.stopped_by == "interrupt"
    assert issubclass(lqd.Interrupted, KeyboardInterrupt)


@pytest.mark.parametrize(
    ("backend", "generation"),
    [
        ("host", 0),
        ("host", 3),
        ("jax", 3),
        ("jax", 0),
    ],
)
def test_ctrl_c_in_the_callback(backend, generation):
    def callback(progress):
        if progress.generation == generation:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        lqd.optimize(cone, backend=backend, callback=callback, **SMALL)
    assert caught.type is lqd.Interrupted
    result = caught.value.result
    assert (result.num_evaluations, result.stopped_by) == (N + generation * B, "interrupt")


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_exception_in_the_callback_keeps_what_was_evaluated(backend):
    def callback(progress):
        if progress.generation == 3:
            raise _Stop("no disk")

    with pytest.raises(Exception, match="no disk") as caught:
        lqd.optimize(cone, backend=backend, callback=callback, **SMALL)
    assert caught.value.result.num_evaluations == N + 3 * B


def test_an_exception_in_a_compiled_function_keeps_what_was_evaluated():
    calls = itertools.count()

    def on_host(x):
        if next(calls) == 6:
            raise _Stop("no power")
        return np.asarray(cone(np.asarray(x))[0])

    def evaluate(x):
        shape = jax.ShapeDtypeStruct(x.shape[:1], jnp.float32)
        return jax.pure_callback(on_host, shape, x, vmap_method="sequential"), _turned(x)

    with pytest.raises(lqd.EvaluationFailed) as caught:
        lqd.optimize(evaluate, backend="jax", callback=lambda progress: None, **SMALL)
    assert caught.value.result.num_evaluations == N + 5 * B


def test_both_doors_take_what_settings_hold():
    """Names and defaults are written down three times; they must not drift apart."""
    fields = {field.name: field.default for field in dataclasses.fields(Settings) if field.init}
    beyond = {"evaluate", "num_evaluations", "callback", "backend", "time_limit_s"}
    beyond |= {"executor", "steady_state", "checkpoint", "resume", "recheck", "batch", "progress"}
    for door, extra in ((lqd.AskTell, set()), (lqd.optimize, beyond)):
        parameters = inspect.signature(door).parameters
        assert set(parameters) - extra == set(fields)
        for name, default in fields.items():
            if name != "dim":
                assert parameters[name].default == default


def test_tasks_are_float32_in_64_bit_mode_too():
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        for task in (lqd.tasks.make("arm"), lqd.tasks.make("bbob/sphere", dim=3)):
            result = lqd.optimize(task, rule="dns", population_size=N, batch_size=B, num_evaluations=BUDGET)
            assert result.x.dtype == result.fitness.dtype == result.descriptor.dtype == np.float32


# --- results


@pytest.mark.parametrize("backend", BACKENDS)
def test_result_file(tmp_path, backend):
    result = lqd.optimize(with_extras, backend=backend, **SMALL | {"minimize": True})
    path = result.save(tmp_path / "deep" / "result.safetensors")
    loaded = lqd.Result.load(path)
    same_result(result, loaded)
    pd.testing.assert_frame_equal(result.history, loaded.history, check_exact=True)
    assert loaded.extras["right"].dtype == bool
    assert (loaded.info, loaded.stopped_by, repr(loaded)) == (result.info, result.stopped_by, repr(result))
    pd.testing.assert_frame_equal(result.to_dataframe(), loaded.to_dataframe())
    assert [file.name for file in path.parent.iterdir()] == ["result.safetensors"]


def test_a_result_with_nothing_in_it_can_be_saved(tmp_path):
    result = lqd.optimize(holed_everywhere, **SMALL)
    same_result(result, lqd.Result.load(result.save(tmp_path / "empty")))


def test_extras_that_are_not_numbers_cannot_be_saved(tmp_path):
    result = lqd.optimize(Recorder(extras=True), **SMALL)
    with pytest.raises(lqd.InvalidInput, match=r"extras\['label'\] has dtype <U"):
        result.save(tmp_path / "result")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", [{"qd_offset": np.float32(-3)}, {"minimize": np.bool_(True)}])
def test_settings_given_as_numpy_scalars_can_be_saved(tmp_path, given):
    result = lqd.optimize(cone, **SMALL | given)
    same_result(result, lqd.Result.load(result.save(tmp_path / "result")))


def test_history_columns():
    plain = lqd.optimize(cone, **SMALL | {"archive_cells": None, "qd_offset": None}).history
    columns = ["max_fitness", "mean_fitness", "best_fitness", "novelty", "dominated_novelty", "num_filled", "num_nan"]
    assert list(plain) == ["generation", "num_evaluations", *columns, "time_s"]
    archived = lqd.optimize(cone, **SMALL).history
    assert set(archived) - set(plain) == {"archive_coverage", "archive_qd_score"}
    rising = archived[["archive_coverage", "archive_qd_score", "best_fitness", "time_s"]].diff().dropna()
    assert (rising >= 0).all().all()
    assert archived.dtypes[["generation", "num_filled", "num_nan"]].tolist() == [np.int64] * 3
    np.testing.assert_array_equal(plain["max_fitness"], archived["max_fitness"])


def test_info_tells_how_to_run_it_again():
    first = lqd.optimize(cone, **SMALL | {"rule": "ns", "seed": 9})
    names = SMALL.keys() - {"num_evaluations", "bounds", "descriptor_bounds"} | {"rule", "seed"}
    again = {name: first.info[name] for name in names}
    bounds = {name: tuple(first.info[name]) for name in ("bounds", "descriptor_bounds")}
    bounds["descriptor_bounds"] = (bounds["descriptor_bounds"][0][0], bounds["descriptor_bounds"][1][0])
    same_result(first, lqd.optimize(cone, **again, **bounds, num_evaluations=first.num_evaluations))


# --- tasks


def test_a_task_knows_its_own():
    task = lqd.tasks.make("arm")
    arguments = {name: SMALL[name] for name in ("population_size", "batch_size", "num_evaluations")} | {"rule": "me"}
    result = lqd.optimize(task, backend="host", **arguments)
    assert result.x.shape[1] == task.dim
    np.testing.assert_allclose(result.fitness, task.noiseless(jnp.asarray(result.x)), atol=1e-5)
    with pytest.raises(lqd.InvalidInput, match=r"dim is 3, but the task 'arm.*' has 8"):
        lqd.optimize(task, dim=3, **arguments)
    with pytest.raises(lqd.InvalidInput, match="leave bounds and minimize out"):
        lqd.optimize(task, bounds=(0, 1), **arguments)
