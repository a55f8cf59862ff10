"""Comparisons by hand, the panel against rules run on their own, and its file: used when it fits, else made anew."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from lqd.io.files import read_arrays
from lqd.meta import generation, inner_run, presets, validation
from lqd.meta.objective import NAMES
from lqd.meta.validation import PANEL, Validator, compare, gain
from lqd.rules import catalogue
from lqd.rules.learned.rule import Learned
from lqd.tasks.task import Repeated

NAN, INF = np.nan, np.inf


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("validation") / "validation.safetensors"


@pytest.fixture(scope="module")
def validator(tiny, cache):
    return Validator(tiny, cache)


# --- comparisons ---


def test_wins_with_ties():
    assert compare(np.array([1.0, 2, 3, 4]), np.array([1.0, 3, 2, 4]), "novelty").win_rate == 0.5
    assert compare(np.array([-1.0, -2, -3, -4]), np.array([-1.0, -3, -4, -5]), "fitness").win_rate == 0.875


def test_effect_size_by_hand():
    ours, theirs = np.array([2.0, 8.0, 1.0, 5.0]), np.array([1.0, 2.0, 8.0, 5.0])
    # Log ratios log 2, log 4, -log 8 and a tie, which is left out: ranks 1 and 2 for us, 3 against.
    found = compare(ours, theirs, "novelty")
    assert found.effect_size == 0
    assert found.ratio == pytest.approx(2**0.5)  # the median of 2, 4, 1/8 and 1, on a log scale
    assert compare(ours[:2], theirs[:2], "qd").effect_size == 1
    assert compare(theirs[:2], ours[:2], "qd").effect_size == -1
    assert compare(ours, ours, "qd") == (0.5, 0, 1)


def test_effect_size_of_equal_ranks_is_wilcoxon_s():
    generator = np.random.default_rng(0)
    ours, theirs = (2.0 ** generator.integers(-3, 4, 40) for _ in range(2))
    difference = np.log(ours / theirs)
    kept = difference[difference != 0]
    against = scipy.stats.wilcoxon(kept, alternative="greater", method="approx").statistic
    total = len(kept) * (len(kept) + 1) / 2
    found = compare(ours, theirs, "novelty").effect_size
    assert found == pytest.approx((against - (total - against)) / total)


def test_a_ratio_above_one_is_better():
    """Fitness counts down to 0 from below, novelty up."""
    close, far = np.array([-1.0, -4.0]), np.array([-2.0, -8.0])
    assert compare(close, far, "fitness").ratio == pytest.approx(2)
    assert compare(far, close, "fitness").ratio == pytest.approx(0.5)
    assert compare(-far, -close, "novelty").ratio == pytest.approx(2)
    assert compare(-close, -far, "qd").ratio == pytest.approx(0.5)


def test_what_a_users_function_says_may_have_any_sign():
    ours, theirs = np.array([1.0, -1.0, 3.0, -5.0]), np.array([-2.0, -2.0, 3.5, -9.0])
    found = compare(ours, theirs, "own")
    assert found.win_rate == 0.75
    assert found.effect_size == pytest.approx((3 + 2 + 4 - 1) / 10)  # differences 3, 1, -0.5, 4
    assert found.ratio is None
    assert compare(np.array([np.nan]), np.zeros(1), "own")[:2] == (0.0, 0.0)
    assert compare(np.array([-np.inf]), np.zeros(1), "own")[:2] == (0.0, -1.0)


def test_the_optimum_reached_is_no_infinite_ratio():
    assert compare(np.zeros(1), np.array([-1e-6]), "fitness").ratio == pytest.approx(100)
    assert compare(np.zeros(2), np.zeros(2), "fitness") == (0.5, 0, 1)
    assert compare(np.zeros(2), np.zeros(2), "qd") == (0.5, 0, 1)


@pytest.mark.parametrize("measure", NAMES)
def test_a_run_that_left_nothing_loses_by_every_number(measure):
    sign = -1.0 if measure == "fitness" else 1.0
    nothing = -INF if measure == "fitness" else 0.0
    for failed in (nothing, NAN):
        # Two of three: the ratio is a median, and one failure among many is for the other two numbers to show.
        ours, theirs = sign * np.array([1.0, failed * sign, failed * sign]), sign * np.array([1.0, 5.0, 5.0])
        found = compare(ours, theirs, measure)
        assert found.win_rate == pytest.approx(1 / 6)
        assert found.effect_size == -1
        assert 0 < found.ratio < 1
        assert compare(theirs, ours, measure).ratio > 1


def test_two_failures_tie():
    assert compare(np.array([NAN]), np.array([-INF]), "fitness") == (0.5, 0, 1)


def test_gain_by_hand():
    now, before = np.array([1.0, 0.5, 1.0, 0.5]), np.array([0.5, 0.5, 0.0, 0.0])
    middle, low, high = gain(now, before)
    error = np.std([0.5, 0, 1, 0.5], ddof=1) / 2
    assert middle == 0.5
    assert (low, high) == pytest.approx((0.5 - 1.96 * error, 0.5 + 1.96 * error))
    assert gain(now, now) == (0, 0, 0)
    assert gain(now[:1], before[:1]) == (0.5, -INF, INF)


# --- the panel ---


def test_the_panel_is_measured_on_every_task(validator, tiny):
    assert list(validator.panel) == list(PANEL)
    for table in validator.panel.values():
        assert table.keys() == set(NAMES)
        for value in table.values():
            assert value.shape == (tiny.validation.num_tasks,)
            assert np.isfinite(value).all()
    assert len({tuple(table["novelty"]) for table in validator.panel.values()}) == len(PANEL)  # the rules do differ


@pytest.mark.parametrize("name", PANEL)
@pytest.mark.parametrize("number", [0, 3])
def test_a_rule_of_the_panel_is_that_rule_on_its_own(validator, tiny, name, number):
    """Also MAP-Elites, whose cells the panel has in units of the task's box, and here in the task's own."""
    task = validator.tasks.task(number)
    settings = {"descriptor_bounds": task.descriptor_bounds, "num_cells": tiny.population_size} if name == "me" else {}
    rule = catalogue.rule(name, **settings)
    num_generations = jnp.int32(tiny.validation.num_generations)
    run = jax.jit(lambda keys: inner_run.run_rule(rule, keys, Repeated(task, 1), tiny, num_generations, None))
    for measure, value in run(validator._keys[number : number + 1]).items():
        np.testing.assert_allclose(validator.panel[name][measure][number], value[0], rtol=1e-4, err_msg=measure)


def test_a_learned_rule_is_judged_by_what_it_does(validator, tiny):
    learned = Learned.init(jax.random.key(1), tiny.architecture)
    verdict = validator(np.asarray(generation.flat_from(learned)))
    num_generations = jnp.int32(tiny.validation.num_generations)
    run = jax.jit(lambda *given: inner_run.run_rule(learned, *given[:2], tiny, num_generations, given[2]))
    for measure, value in run(validator._keys, validator.tasks, validator.f_rand).items():
        np.testing.assert_allclose(verdict.table[measure], value, rtol=1e-4, atol=1e-6, err_msg=measure)
    assert verdict.comparisons.keys() == {(measure, rule) for measure in NAMES for rule in PANEL}
    expected = np.mean([compare(verdict.table["fitness"], validator.panel[r]["fitness"], "fitness")[0] for r in PANEL])
    assert verdict.score == pytest.approx(expected)
    assert verdict.score == pytest.approx(verdict.wins.mean())
    assert verdict.wins.shape == (tiny.validation.num_tasks,)


@pytest.mark.parametrize("name", PANEL)
def test_a_rule_judged_against_itself_ties(validator, name):
    verdict = validator.judge(validator.panel[name])
    for measure in NAMES:
        assert verdict.comparisons[measure, name] == (0.5, 0, 1)


def test_the_score_is_that_of_the_objective(validator, tiny):
    table = {name: np.full(tiny.validation.num_tasks, 1e9 if name == "novelty" else -1e9) for name in NAMES}
    assert validator.judge(table).score == 0
    curious = object.__new__(Validator)
    curious.__dict__ = validator.__dict__ | {"config": presets.override(tiny, {"objective": "novelty"})}
    assert curious.judge(table).score == 1
    assert curious.judge(table).wins.tolist() == [1] * tiny.validation.num_tasks


# --- its file ---


class Computed(Exception):
    """The panel would have been run."""


@pytest.fixture
def no_runs(monkeypatch):
    def refuse(self, cache):
        raise Computed

    monkeypatch.setattr(Validator, "_compute", refuse)


def test_the_panel_is_read_from_its_file(validator, tiny, cache, no_runs):
    again = Validator(tiny, cache)
    for name in PANEL:
        for measure in NAMES:
            np.testing.assert_array_equal(again.panel[name][measure], validator.panel[name][measure])
    np.testing.assert_array_equal(again.f_rand, validator.f_rand)


@pytest.mark.parametrize(
    "same", [{"seed": 9}, {"num_meta_generations": 9}, {"sigma": 1.0}, {"objective": "qd"}, {"num_layers": 2}]
)
def test_the_file_serves_runs_with_the_same_tasks(validator, tiny, cache, no_runs, same):
    again = Validator(presets.override(tiny, same), cache)
    np.testing.assert_array_equal(again.panel["me"]["qd"], validator.panel["me"]["qd"])


@pytest.mark.parametrize(
    "other",
    [
        {"validation_generations": 4},
        {"population_size": 9},
        {"batch_size": 5},
        {"iso_sigma": 0.1},
        {"functions": ("rastrigin", "sphere")},
        {"noise": False},
    ],
)
def test_a_file_of_other_settings_is_not_used(validator, tiny, cache, no_runs, other):
    with pytest.raises(Computed):
        Validator(presets.override(tiny, other), cache)


@pytest.mark.parametrize("keep", [0, 100, -1])
def test_a_damaged_file_is_not_used(validator, tiny, cache, tmp_path, no_runs, keep):
    damaged = tmp_path / "validation.safetensors"
    damaged.write_bytes(cache.read_bytes()[:keep])
    with pytest.raises(Computed):
        Validator(tiny, damaged)
    with pytest.raises(Computed):
        Validator(tiny, tmp_path / "none")
    with pytest.raises(Computed):
        Validator(tiny)


def test_a_damaged_file_is_replaced(validator, tiny, cache, tmp_path, monkeypatch):
    path = tmp_path / "validation.safetensors"
    path.write_text("nothing")
    monkeypatch.setattr(validation, "_anchors", lambda *given: validator.f_rand)
    monkeypatch.setattr(Validator, "_measure", lambda self, index, *given: validator.panel[PANEL[index]])
    Validator(tiny, path)
    again, before = (read_arrays(file, "validation") for file in (path, cache))
    assert again[1] == before[1]
    assert again[0].keys() == before[0].keys()
    for name, value in before[0].items():
        np.testing.assert_array_equal(again[0][name], value)


def test_held_out_tasks_are_no_training_tasks(validator, tiny):
    """The same for every seed, and other ones than those of the first meta-generations."""
    other = dataclasses.replace(tiny, seed=5)
    sampled = []
    for number in range(4):
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(np.uint32(other.seed)), generation.EVOLVING), number)
        sampled.append(tiny.distribution.sample(jax.random.split(key, 5)[1], 2).instances[0].x_opt[:, 0])
    assert not np.isin(validator.tasks.instances[0].x_opt[:, 0], np.concatenate(sampled)).any()
