"""A run that goes on does so on the task it began with, or is told what differs."""

import json
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lqd
from lqd.io import files
from lqd.types import pytree

GIVEN = {
    "dim": 3,
    "bounds": (-1, 1),
    "population_size": 12,
    "batch_size": 6,
    "num_evaluations": 24,
    "rule": "ga",
    "variation": "paper",
}
LONGER = GIVEN | {"num_evaluations": 36}


def sphere(x):
    return -(x**2).sum(axis=1), x[:, :2]


def shifted(x):
    return -((x - 0.1) ** 2).sum(axis=1), x[:, :2]


def turned(x):
    """Other descriptors."""
    return -(x**2).sum(axis=1), x[:, 1:]


WAYS = {
    "host": {"backend": "host"},
    "jax": {"backend": "jax"},
    "executor": {"executor": ThreadPoolExecutor(2)},
    "steady": {"executor": ThreadPoolExecutor(2), "steady_state": True},
}


@pytest.mark.parametrize("way", WAYS)
def test_another_function_is_another_run(way, tmp_path):
    given = WAYS[way] | {"checkpoint": tmp_path, "resume": True}
    lqd.optimize(sphere, **given, **GIVEN)
    for other, what in ((shifted, "fitness"), (turned, "descriptor")):
        with pytest.raises(lqd.InvalidInput, match=rf"another function: .* returned {what} .*, now .*recheck=False"):
            lqd.optimize(other, **given, **LONGER)
    again = lqd.optimize(sphere, **given, **LONGER)
    if way != "steady":
        np.testing.assert_array_equal(again.x, lqd.optimize(sphere, **WAYS[way], **LONGER).x)
    lqd.optimize(shifted, recheck=False, **given, **LONGER | {"num_evaluations": 48})
    with pytest.raises(lqd.InvalidInput, match="another function"):  # the first answers stay those of the first
        lqd.optimize(shifted, **given, **LONGER | {"num_evaluations": 60})


def test_it_costs_one_batch_and_changes_nothing(tmp_path):
    seen = []

    def evaluate(x):
        seen.append(x.copy())
        return sphere(x)

    whole = lqd.optimize(evaluate, **LONGER)
    first, seen[:] = seen[0], []
    lqd.optimize(evaluate, checkpoint=tmp_path, **GIVEN)
    seen.clear()
    again = lqd.optimize(evaluate, checkpoint=tmp_path, resume=True, **LONGER)
    np.testing.assert_array_equal(seen[0], first)
    assert len(seen) == 3
    assert again.num_evaluations == 36
    np.testing.assert_array_equal(again.x, whole.x)
    seen.clear()
    lqd.optimize(evaluate, checkpoint=tmp_path, resume=True, recheck=False, **LONGER)
    assert not seen


@pytest.mark.parametrize("way", ["host", "executor", "steady"])
@pytest.mark.parametrize("kind", ["normal", "coins", "by place"])
def test_noise_is_no_reason(way, kind, tmp_path):
    """Drawn anew, or anew in each batch from the same seed, or of two values only."""
    rng = np.random.default_rng()

    def evaluate(x):
        if kind == "coins":
            return rng.integers(0, 2, len(x)).astype(float), x[:, :2]
        drawn = (rng if kind == "normal" else np.random.default_rng(0)).normal(size=len(x))
        return -(x**2).sum(axis=1) + drawn, x[:, :2]

    given = WAYS[way] | {"checkpoint": tmp_path, "resume": True}
    lqd.optimize(evaluate, **given, **GIVEN)
    assert lqd.optimize(evaluate, **given, **LONGER).num_evaluations == 36


def test_what_the_function_raises_then_is_said_as_always(tmp_path):
    def breaks(x):
        raise ValueError("no licence")

    given = {"checkpoint": tmp_path, "resume": True}
    lqd.optimize(sphere, **given, **GIVEN)
    for more in ({}, {"executor": ThreadPoolExecutor(1)}):
        with pytest.raises(lqd.EvaluationFailed, match=r"after 24 evaluations: .*no licence") as error:
            lqd.optimize(breaks, **given, **more, **LONGER)
        assert error.value.result.num_evaluations == 24
    with pytest.raises(lqd.InvalidInput, match="descriptor has 3 dimensions, expected 2"):
        lqd.optimize(lambda x: (x[:, 0], x), **given, **LONGER)
    assert lqd.optimize(sphere, **given, **LONGER).num_evaluations == 36


@pytest.mark.parametrize("backend", ["host", "jax"])
@pytest.mark.slow
def test_a_built_in_task_is_known_by_its_name_and_settings(backend, tmp_path):
    def task(name, **settings):
        return lqd.tasks.make(name, **{"dim": 3} | settings)

    given = {"population_size": 8, "batch_size": 4, "rule": "ga", "resume": True, "backend": backend}
    for noise in (False, True):
        folder, kept = tmp_path / str(noise), {"noise": noise, "seed": 3}
        lqd.optimize(task("bbob/sphere", **kept), checkpoint=folder, num_evaluations=16, **given)
        for other, message in [
            (task("bbob/rastrigin", **kept), r"differs in task \(name='bbob/sphere', now 'bbob/rastrigin'\)"),
            (task("bbob/sphere", noise=noise, seed=4), "another function|another instance"),
            (task("bbob/sphere", noise=not noise, seed=3), "another function"),
        ]:
            with pytest.raises(lqd.InvalidInput, match=message):
                lqd.optimize(other, checkpoint=folder, num_evaluations=24, **given)
        again = lqd.optimize(task("bbob/sphere", **kept), checkpoint=folder, num_evaluations=24, **given)
        whole = lqd.optimize(task("bbob/sphere", **kept), num_evaluations=24, **given | {"resume": False})
        np.testing.assert_array_equal(again.x, whole.x)


def test_a_task_is_no_function_and_one_without_numbers_of_its_own_is_not_evaluated_again(tmp_path, monkeypatch):
    arm = lqd.tasks.make("arm")
    given = {"checkpoint": tmp_path, "resume": True, "population_size": 8, "batch_size": 4, "rule": "ga"}
    given["descriptor_bounds"] = (0, 1)
    lqd.optimize(arm, num_evaluations=16, **given)

    def evaluate(x):
        return -jnp.std(x, axis=1), x[:, :2]

    with pytest.raises(lqd.InvalidInput, match=r"differs in task \('arm', now a function\)"):
        lqd.optimize(evaluate, dim=8, bounds=(0, 1), num_evaluations=16, backend="jax", **given)
    from lqd.search import same_task

    monkeypatch.setattr(same_task, "check", pytest.fail)
    lqd.optimize(arm, num_evaluations=20, **given)


@pytree
class Mine:
    weight: jax.Array
    bias: jax.Array

    def __call__(self, key, fitness, descriptor):
        return fitness + self.weight * descriptor[:, 0] + self.bias


def mine(weight):
    return Mine(jnp.float32(weight), jnp.float32(0))


def test_an_own_rule_with_other_leaves_is_another_run(tmp_path):
    given = GIVEN | {"checkpoint": tmp_path, "resume": True}
    lqd.optimize(sphere, **given | {"rule": mine(1)})
    with pytest.raises(lqd.InvalidInput, match=r"differs in rule \(other values: weight\)"):
        lqd.optimize(sphere, **given | {"rule": mine(2)})
    lqd.optimize(sphere, **given | {"rule": mine(1)})


def test_another_generator_of_random_numbers_is_another_run(tmp_path):
    given = {"checkpoint": tmp_path, "resume": True}
    lqd.optimize(sphere, **given, **GIVEN)
    with jax.default_prng_impl("rbg"):
        with pytest.raises(lqd.InvalidInput, match=r"random number generator of JAX \('threefry2x32', now 'rbg'\)"):
            lqd.optimize(sphere, **given, **LONGER)
        with pytest.raises(lqd.InvalidInput, match="random number generator of JAX"):
            lqd.AskTell.load(tmp_path / "state.safetensors")
    lqd.optimize(sphere, **given, **LONGER)


def without_fingerprints(path):
    """As files were before they had any."""
    arrays, description = files.read_arrays(path, "state")
    arrays = {name: value for name, value in arrays.items() if not name.startswith(("first.", "rule.own."))}
    description = {name: value for name, value in description.items() if name not in ("task", "random")}
    files.write_arrays(path, "state", arrays, description)
    return json.dumps(description)


@pytest.mark.parametrize("backend", ["host", "jax"])
def test_files_from_before_go_on_without(backend, tmp_path):
    given = {"backend": backend, "checkpoint": tmp_path, "resume": True, "rule": mine(1)}
    lqd.optimize(sphere, **GIVEN | given)
    without_fingerprints(tmp_path / "state.safetensors")
    again = lqd.optimize(sphere, **LONGER | given)
    whole = lqd.optimize(sphere, **LONGER | {"backend": backend, "rule": mine(1)})
    np.testing.assert_array_equal(again.x, whole.x)
    lqd.optimize(sphere, **LONGER | given)


def test_bad_input(tmp_path):
    with pytest.raises(lqd.InvalidInput, match="recheck must be True or False, got 'no'"):
        lqd.optimize(sphere, recheck="no", **GIVEN)
