"""Whole runs, watched: the archive against one kept by hand, and the run as it is when nobody looks."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lqd.evolution import loop
from lqd.meta import course, generation, inner_run, objective, presets
from lqd.meta.objective import Objective
from lqd.meta.tasks import Distribution
from lqd.rules import cvt
from lqd.rules.handmade import DominatedNoveltySearch

SIZES, NUM_CELLS, NUM_GENERATIONS = (8, 4), 25, 20


@pytest.fixture(scope="module")
def tasks():
    return Distribution(("sphere",), noise=True).sample(jax.random.key(1), 2)


@pytest.fixture(scope="module")
def watched(tasks, tiny):
    """The final population, and what was seen."""

    @jax.jit
    def run(keys, tasks, num_generations):
        f_worst = jnp.full(2, -100.0)
        return course.follow(
            DominatedNoveltySearch(), keys, tasks, tiny.operator, SIZES, num_generations, NUM_CELLS,
            tasks.descriptor_range, f_worst,
        )  # fmt: skip

    population, seen = run(jax.random.split(jax.random.key(2), 2), tasks, jnp.int32(NUM_GENERATIONS))
    return population, {name: np.asarray(value) for name, value in seen.items()}


@pytest.fixture(scope="module")
def everybody(tasks, tiny):
    """All that are evaluated in the same run, batch by batch, with noiseless fitness; and the final population."""
    step = jax.jit(
        lambda state: loop.step(state, tasks, DominatedNoveltySearch(), tiny.operator, SIZES[1])
    )  # fmt: skip
    propose = jax.jit(lambda state: loop.propose(state, tasks, tiny.operator, SIZES[1]))
    state = loop.begin(jax.random.split(jax.random.key(2), 2), tasks, DominatedNoveltySearch(), SIZES[0])
    noiseless = jax.jit(tasks.noiseless)
    batches = [(noiseless(state.population.x), state.population.descriptor)]
    for _ in range(NUM_GENERATIONS):
        bred, evaluation = propose(state)
        batches.append((noiseless(bred.x), evaluation.descriptor))
        state = step(state)
    return [tuple(map(np.asarray, batch)) for batch in batches], state.population


def test_looking_on_changes_nothing(watched, everybody):
    for name in ("x", "fitness", "descriptor"):
        np.testing.assert_array_equal(getattr(watched[0], name), getattr(everybody[1], name), err_msg=name)


def test_the_archive_and_its_curves_are_those_kept_by_hand(watched, everybody, tasks):
    _, seen = watched
    low, high = map(np.asarray, tasks.descriptor_range)
    until = NUM_GENERATIONS * np.arange(1, course.NUM_LOOKS + 1) // course.NUM_LOOKS
    for task in range(2):
        archive = np.full((5, 5), -np.inf)
        for number, (fitness, descriptor) in enumerate(everybody[0]):
            share = (descriptor[task] - low[task]) / (high[task] - low[task])
            for value, (row, column) in zip(fitness[task], np.clip((share * 5).astype(int), 0, 4), strict=True):
                archive[row, column] = max(archive[row, column], value)
            for look in np.flatnonzero(until == number):
                filled = archive[archive > -np.inf]
                assert seen["coverage_over_time"][task, look] == pytest.approx(filled.size / 25)
                expected = np.maximum(filled + 100, 0).sum()
                assert seen["qd_score_over_time"][task, look] == pytest.approx(expected, rel=1e-4)
                assert seen["best_over_time"][task, look] == pytest.approx(archive.max(), rel=1e-4)
        np.testing.assert_allclose(seen["archive"][task], archive.ravel(), rtol=1e-4)
        assert seen["regret"][task] == pytest.approx(-archive.max(), rel=1e-4)
    assert (np.diff(seen["coverage_over_time"]) > 0).any()


@pytest.mark.parametrize(
    ("num_dims", "num_cells", "num"), [(1, 7, 7), (2, 25, 25), (2, 24, 25), (3, 30, 30), (8, 9, 9)]
)
def test_cells_by_the_number_of_descriptors(num_dims, num_cells, num):
    assert course.count(num_cells, num_dims) == num
    share = np.random.default_rng(0).uniform(-0.2, 1.2, (400, num_dims)).astype(np.float32)
    cell = np.asarray(jax.jit(lambda share: course.place(num_cells, share))(share))
    if num_dims == 1:
        expected = np.clip(np.floor(share[:, 0] * 7), 0, 6)
    elif num_dims == 2:
        side = np.clip(np.floor(share * 5), 0, 4)
        expected = side[:, 0] * 5 + side[:, 1]
    else:
        centroids = np.asarray(cvt.centroids(num_cells, np.zeros(num_dims), np.ones(num_dims)))
        expected = np.argmin(((share[:, None] - centroids) ** 2).sum(axis=2), axis=1)
    np.testing.assert_array_equal(cell, expected)
    assert np.asarray(course.place(num_cells, jnp.full((1, num_dims), jnp.nan))).tolist() == [0]


def test_the_objective_archive_is_the_area_under_the_score(tasks, tiny):
    """And does not depend on the units in which descriptors are shown."""
    config = dataclasses.replace(tiny, objective=Objective("archive"), num_cells=NUM_CELLS)
    rule = generation.rule_from(jnp.ones(generation.num_params(config.architecture)), config.architecture)
    given = jax.random.split(jax.random.key(3), 2), tasks, config, jnp.int32(4), None, jnp.full(2, -100.0)
    measured = jax.jit(lambda: inner_run.run_rule(rule, *given))()
    _, seen = jax.jit(
        lambda: course.follow(
            rule, *given[:2], config.operator, (8, 4), given[3], NUM_CELLS, tasks.descriptor_range, given[5]
        )
    )()
    np.testing.assert_allclose(measured["archive"], seen["qd_score_over_time"].mean(axis=1), rtol=1e-5)
    assert measured.keys() == {"fitness", "novelty", "archive"}
    scaled = jax.jit(lambda: inner_run.run_scaled(rule, *given))()
    np.testing.assert_allclose(scaled["archive"], measured["archive"], rtol=0.02)


def test_a_function_is_given_what_it_asks_for(tasks, tiny):
    asked = {}

    def curious(best_over_time, archive, f_worst, f_rand, f_opt, regret, coverage_over_time):
        asked.update(best=best_over_time.shape, archive=archive.shape, coverage=coverage_over_time.shape)
        return regret + 0 * (f_worst + f_rand + f_opt)

    config = presets.override(tiny, {"objective": curious, "num_cells": NUM_CELLS})
    config.check()
    assert config.objective.needs_course
    assert config.objective.needs_anchors
    assert asked == {"best": (16,), "archive": (25,), "coverage": (16,)}
    rule = DominatedNoveltySearch()
    keys, f_rand, f_worst = jax.random.split(jax.random.key(3), 2), jnp.full(2, -5.0), jnp.full(2, -9.0)
    run = jax.jit(lambda: inner_run.run_scaled(rule, keys, tasks, config, jnp.int32(3), f_rand, f_worst))
    measured = run()
    assert (measured["own"] >= 0).all()
    assert (measured["own"] <= -measured["fitness"] + 1e-4).all()  # the best ever is no worse than the best left


def test_only_what_is_asked_for_is_paid_for():
    assert not any(Objective(name).needs_course for name in objective.NAMES)
    assert not Objective(own=lambda fitness, descriptor: 0.0).needs_course
    assert Objective(own=lambda fitness, coverage_over_time: 0.0).needs_course
    assert not Objective(own=lambda coverage_over_time: 0.0).needs_anchors
    assert Objective(own=lambda qd_score_over_time: 0.0).needs_f_worst


def test_the_old_form_is_given_both_in_order():
    old = [lambda f, d: f, lambda *both: both[0], lambda fitness, d: fitness, lambda f, d, scale=1.0: f * scale, np.add]
    assert [objective.parameters(function) for function in old] == [None] * len(old)
    assert objective.parameters(lambda fitness, descriptor: 0) == ("fitness", "descriptor")
    assert objective.parameters(lambda regret, weight=2: 0) == ("regret",)
    assert objective.parameters(lambda fitness, regret=None: 0) == ("fitness", "regret")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda archve: 0.0, "unknown parameter of the objective 'archve'. Did you mean 'archive'"),
        (lambda fitness, archve: 0.0, "unknown parameter of the objective 'archve'. Did you mean 'archive'"),
        (
            lambda fitness, descriptor, size: 0.0,
            "unknown parameter of the objective 'size'.*Choose from: fitness, ",
        ),
    ],
)
def test_a_parameter_that_is_not_known(tiny, function, message):
    with pytest.raises(Exception, match=message):
        presets.override(tiny, {"objective": function}).check()
