"""MAP-Elites with a box fitted to each task: what is fitted, to what, and what else stays as it was."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lqd.bench import runner, settings, suites
from lqd.bench.plan import Part, measure_all
from lqd.bench.runner import AT_FITTED_SLOTS, Bench
from lqd.errors import InvalidInput
from lqd.rules.catalogue import FITTED, SHORT
from lqd.types import Evaluation

TINY = settings.Setting(
    functions=("sphere", "rastrigin"), num_seeds=3, num_generations=8, max_dim=3, population_size=16, batch_size=4
)


def words(keys) -> set[bytes]:
    return {bytes(row) for row in np.atleast_2d(jax.random.key_data(keys))}


def test_the_box_was_chosen_on_other_tasks_than_those_quoted(tmp_path):
    """No key and no instance of what chose the share is in any bench; and they are those of validation."""
    chosen, quoted = runner.held_out(runner.VALIDATION), runner.held_out(runner.TEST)
    assert not set().union(*map(words, chosen)) & set().union(*map(words, quoted))
    assert len(set().union(*map(words, quoted))) == 4  # the points of the fit are no other random numbers of a bench
    for setting in (
        settings.Setting(num_seeds=2),
        *(part.setting for part in suites._ood(suites.PRESETS["quick"]).values()),
    ):
        (first, second) = (settings.field(keys.tasks, setting).tasks.instances for keys in (chosen, quoted))
        for one, other in zip(first, second, strict=True):
            optima = {row.tobytes() for row in np.asarray(one.projection)}
            assert not optima & {row.tobytes() for row in np.asarray(other.projection)}
    bench = Bench(TINY, tmp_path)
    quoted_tasks = settings.field(quoted.tasks, TINY).tasks.instances[0].projection
    np.testing.assert_array_equal(bench.field.tasks.instances[0].projection, quoted_tasks)


def test_it_holds_its_share_of_what_random_points_reach():
    keys = runner.held_out(runner.VALIDATION)
    field = settings.field(keys.tasks, TINY)
    fitted = settings.fitted(keys.box, field)
    x = jax.random.uniform(jax.random.key(7), (field.tasks.num_tasks, 4000, field.tasks.dim), minval=-5, maxval=5)
    descriptor = fitted.tasks.evaluate(jax.random.split(jax.random.key(0), len(x)), x).descriptor
    inside = jnp.mean((jnp.abs(descriptor) <= 1).astype(jnp.float32), axis=(1, 2))
    np.testing.assert_allclose(inside, settings.SHARE, atol=0.02)
    plain = field.tasks.evaluate(jax.random.split(jax.random.key(0), len(x)), x)
    np.testing.assert_allclose(
        descriptor * fitted.scale[:, None, None], plain.descriptor * field.scale[:, None, None], rtol=1e-4, atol=1e-5
    )
    twice = settings.fitted(keys.box, field, times=2.0)
    np.testing.assert_allclose(twice.scale, 2 * fitted.scale, rtol=1e-6)


def test_the_fit_sees_nothing_but_the_descriptors(monkeypatch):
    """Another function with the same projections has the same box: neither fitness nor any rule's results matter."""
    keys = runner.held_out(runner.VALIDATION)
    field = settings.field(keys.tasks, TINY)
    before = settings.fitted(keys.box, field).scale
    original = type(field.tasks).evaluate

    def other(self, key, x):
        found = original(self, key, x)
        return Evaluation(found.fitness * jnp.nan, found.descriptor)

    monkeypatch.setattr(type(field.tasks), "evaluate", other)
    jax.clear_caches()
    np.testing.assert_array_equal(settings.fitted(keys.box, field).scale, before)


def test_map_elites_fills_more_of_it_and_is_measured_in_the_same_units(tmp_path):
    setting = dataclasses.replace(TINY, num_generations=64)
    bench = Bench(setting, tmp_path)
    paper, fitted = bench.measure("me"), bench.measure(FITTED)
    assert (fitted["num_filled"] > paper["num_filled"]).mean() > 0.8
    assert "novelty_rarefied" not in fitted  # there is nothing to compare it with
    np.testing.assert_allclose(fitted[AT_FITTED_SLOTS], fitted["novelty"], rtol=1e-5)
    assert (fitted["novelty"] / paper["novelty"] < 2).all()
    assert (fitted["novelty"] / paper["novelty"] > 0.2).all()  # both in descriptors, not in boxes


@pytest.fixture
def counted(monkeypatch):
    """How often a rule really ran."""
    ran, original = [], runner._run

    def run(*given):
        ran.append(type(given[2]).__name__)
        return original(*given)

    monkeypatch.setattr(runner, "_run", run)
    return ran


def test_only_learned_rules_run_again_for_it(tmp_path, counted):
    """What is kept of the others from before stays good."""
    before = {"train": Part(TINY, ("me", "ga", "lqd-f", "lqd-f@random"))}
    measure_all(before, tmp_path, lambda *_: None)
    assert len(counted) == 4
    now = {"train": Part(TINY, ("ga", "lqd-f", "lqd-f@random", FITTED, "me"))}
    found = measure_all(now, tmp_path, lambda *_: None)
    assert counted[4:] == ["MapElites", "Learned"]
    assert list(found.tables["train"]) == list(now["train"].rules)
    measure_all(now, tmp_path, lambda *_: None)
    assert len(counted) == 6
    table, fitted = found.tables["train"]["lqd-f"], found.tables["train"][FITTED]
    fewer = fitted["num_filled"] < table["num_filled"]
    assert (table[AT_FITTED_SLOTS] >= table["novelty"] - 1e-6)[fewer].all()  # fewer are farther apart
    assert AT_FITTED_SLOTS not in found.tables["train"]["ga"]
    rows = found.rows()
    assert rows[rows["rule"] == "ga"][AT_FITTED_SLOTS].isna().all()
    assert rows[rows["rule"] == "lqd-f"][AT_FITTED_SLOTS].notna().all()


def test_it_comes_before_the_learned_rules_and_says_so(tmp_path):
    bench = Bench(TINY, tmp_path, compare_fitted=True)
    bench.measure("me")
    with pytest.raises(InvalidInput, match=f"measure '{FITTED}' first"):
        bench.measure("lqd-f")
    bench.measure("ga")  # is not compared with it
    assert runner.in_order(("ga", "lqd-f", FITTED, "me")) == ["me", FITTED, "ga", "lqd-f"]


def test_a_task_of_its_own_has_its_own_box(tmp_path):
    bench = Bench(dataclasses.replace(TINY, functions=settings.ARM), tmp_path)
    with pytest.raises(InvalidInput, match=r"'me-fitted' is for functions, not for 'arm': use 'me'"):
        bench.measure(FITTED)


def test_every_suite_with_functions_has_both(monkeypatch):
    monkeypatch.setattr(suites, "has_brax", lambda: True)
    for name, part in suites.plan("all", suites.PRESETS["paper"]).items():
        assert (FITTED in part.rules) == (not part.setting.is_single), name
    assert SHORT[FITTED] == "MAP-Elites, fitted box"
