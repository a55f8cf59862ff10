"""The training tasks: every function equally often, dimensions and noise drawn anew, all from the key."""

import collections

import jax
import numpy as np
import pytest

from lqd.errors import InvalidInput
from lqd.meta.tasks import Distribution
from lqd.tasks.bbob import instances
from lqd.tasks.bbob.noise import KINDS

FEW = Distribution(functions=("sphere", "rastrigin"))


def field(tasks, name):
    return np.concatenate([np.asarray(getattr(instance, name)) for instance in tasks.instances])


def same(first, second):
    return all(
        np.array_equal(a, b) for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    )  # fmt: skip


@pytest.fixture(scope="module")
def tasks():
    return Distribution().sample(jax.random.key(0), 176)


def test_every_function_is_there_equally_often(tasks):
    assert tasks.num_tasks == 176
    count = collections.Counter(tasks.functions_of_tasks)
    assert set(count) == set(instances.TRAINING_SET)
    assert len(count) == 22
    assert set(count.values()) == {8}


def test_dimensions_fill_their_range(tasks):
    assert set(field(tasks, "num_dims").tolist()) == set(range(2, 13))
    assert tasks.dim == 12
    # Not the same ones for every function.
    assert len({tuple(instance.num_dims.tolist()) for instance in tasks.instances}) == 22


def test_noise_is_of_every_kind_and_strength(tasks):
    kinds = np.concatenate([instance.noise.kind for instance in tasks.instances])
    strength = np.concatenate([instance.noise.strength for instance in tasks.instances])
    assert set(kinds.tolist()) == set(range(len(KINDS)))
    assert np.bincount(kinds).min() > 176 / 4 / 2
    assert strength.min() < 0.1
    assert strength.max() > 0.9


def test_projections_and_optima_differ_between_tasks(tasks):
    assert tasks.descriptor_dim == 2
    assert len(np.unique(field(tasks, "projection")[:, 0, 0])) == 176
    assert len(np.unique(tasks.instances[0].x_opt[:, 0])) == 8


def test_a_function_of_the_key():
    one, again, other = (FEW.sample(jax.random.key(seed), 4) for seed in (0, 0, 1))
    assert same(one, again)
    for name in ("x_opt", "R", "projection"):
        a, b = field(one, name), field(other, name)
        assert (a != b).any(), name


def test_bounds_of_the_dimension():
    tasks = Distribution(("sphere", "rastrigin"), min_dim=3, max_dim=4, descriptor_dim=3).sample(jax.random.key(0), 16)
    assert set(field(tasks, "num_dims").tolist()) == {3, 4}
    assert (tasks.dim, tasks.descriptor_dim) == (4, 3)


def test_without_noise_and_rotation():
    plain = Distribution(("sphere", "rastrigin"), noise=False, rotate=False).sample(jax.random.key(0), 4)
    assert all(instance.noise is None for instance in plain.instances)
    assert (field(plain, "R") == np.eye(12)).all()
    rotated = FEW.sample(jax.random.key(0), 4)
    assert (field(rotated, "R") != np.eye(12)).any()
    assert all(instance.noise is not None for instance in rotated.instances)


def test_functions_by_number_are_the_same_distribution():
    assert Distribution((1, "f3")) == FEW
    assert hash(Distribution((1, "f3"))) == hash(FEW)


def test_a_number_of_tasks_that_does_not_divide_says_what_would():
    assert FEW.check_num_tasks("num_tasks", 6) == 6
    with pytest.raises(InvalidInput, match="num_tasks must be a multiple of the 2 functions, got 7; 6 or 8 would do"):
        FEW.check_num_tasks("num_tasks", 7)
    with pytest.raises(InvalidInput, match="got 1; 2 would do"):
        FEW.check_num_tasks("num_tasks", 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"functions": ()}, "functions must name at least one function"),
        ({"functions": ("nothing",)}, "unknown function"),
        ({"min_dim": 1}, "min_dim must be a whole number of at least 2, got 1"),
        ({"min_dim": 4, "max_dim": 3}, "max_dim must be at least min_dim = 4, got 3"),
        ({"descriptor_dim": 0}, "descriptor_dim must be a whole number of at least 1"),
        ({"rotate": 1}, "rotate must be True or False, got 1"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(InvalidInput, match=message):
        Distribution(**settings)
