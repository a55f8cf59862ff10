"""Random-search anchors against NumPy, and the catalogue of tasks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lqd
from lqd.evolution.compile_time import Clock
from lqd.tasks.anchors import random_search
from lqd.tasks.task import Repeated, Task, TaskBatch


def test_anchors_of_the_arm_are_what_random_search_finds():
    anchors = random_search(jax.random.key(0), Repeated(lqd.tasks.make("arm"), 2), 1500, num_repeats=31)
    generator = np.random.default_rng(0)
    best, worst = np.zeros(200), np.zeros(200)
    for i in range(200):
        fitness = -generator.random((1500, 8)).std(axis=1)
        best[i], worst[i] = fitness.max(), fitness.min()
    np.testing.assert_allclose(anchors.f_rand, np.median(best), atol=3 * best.std() / np.sqrt(31) * 1.25)
    assert (anchors.f_worst <= np.quantile(worst, 0.5)).all()
    assert anchors.f_rand[0] != anchors.f_rand[1], "each task has its own draws"


def test_another_budget_compiles_nothing():
    tasks = Repeated(lqd.tasks.make("arm"), 1)
    random_search(jax.random.key(0), tasks, 2000)
    with Clock() as clock:
        random_search(jax.random.key(1), tasks, 3000)
    assert clock.num_programs == 0


def test_a_larger_budget_finds_more():
    tasks = Repeated(lqd.tasks.make("arm"), 1)
    few, many = (random_search(jax.random.key(0), tasks, budget).f_rand[0] for budget in (10, 5000))
    assert few < many < 0


@pytest.mark.parametrize("nothing", [-np.inf, np.nan])
def test_what_is_infeasible_counts_nowhere(nothing):
    def half(centre, x):
        fitness = -jnp.sum((x - centre) ** 2, axis=1)
        return jnp.where(x[:, 0] < 0, nothing, fitness), x[:, :1]

    settings = {"dim": 2, "bounds": (-1, 1), "descriptor_bounds": (-1, 1)}
    tasks = lqd.task_family(half, lambda key: jax.random.uniform(key, (2,)), **settings).sample(jax.random.key(0), 3)
    anchors = random_search(jax.random.key(1), tasks, 500)
    assert np.isfinite(anchors.f_worst).all()
    assert (anchors.f_worst < anchors.f_rand).all()
    assert (np.abs(anchors.f_rand) < 0.05).all()


@pytest.mark.parametrize("name", ["arm", "bbob/sphere", "ood/levy"])
def test_tasks_by_name_keep_the_contract(name):
    task = lqd.tasks.make(name)
    assert isinstance(task, Task)
    assert isinstance(Repeated(task, 2), TaskBatch)
    assert task.name == name
    assert name in lqd.tasks.names()
    assert lqd.tasks.summary(name)
    x = jax.random.uniform(jax.random.key(0), (5, task.dim))
    evaluation = task.evaluate(jax.random.key(1), x)
    assert evaluation.fitness.shape == (5,)
    assert evaluation.descriptor.shape == (5, task.descriptor_dim)
    np.testing.assert_allclose(task.noiseless(x), evaluation.fitness, rtol=1e-6)


def test_names_by_number_and_settings_that_do_not_exist():
    assert lqd.tasks.make("bbob/f8", dim=2).name == lqd.tasks.make("bbob/8", dim=2).name == "bbob/rosenbrock"
    with pytest.raises(lqd.InvalidInput, match="has no setting 'dims'; it takes dim, seed"):
        lqd.tasks.make("bbob/f8", dims=2)
    with pytest.raises(lqd.InvalidInput, match="Did you mean 'ood/ackley'"):
        lqd.tasks.make("ood/ackely")
