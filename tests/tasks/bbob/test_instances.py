"""Instances of all 28 functions: sampled as COCO does, padded without leaks, evaluated group by group."""

import pathlib
import subprocess
import sys

import bbobax.bbob
import bbobax.noise
import bbobax.problem
import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from lqd.errors import InvalidInput
from lqd.tasks.bbob import functions as bbob
from lqd.tasks.bbob import instances
from lqd.tasks.task import Task, TaskBatch

WIDTH, COUNT = 8, 4
SETTINGS = {"width": WIDTH, "min_dim": 2, "max_dim": 7}
x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64


@jax.jit
def noiseless(batch, x):
    return batch.noiseless(x)


@jax.jit
def evaluate(batch, keys, x):
    return batch.evaluate(keys, x)


def sample(seed, **settings):
    return instances.sample_batch(jax.random.key(seed), instances.FUNCTIONS, COUNT, **(SETTINGS | settings))


@pytest.fixture(scope="module")
def batch():
    """All 28 functions, with noise, float32."""
    return sample(0)


@pytest.fixture(scope="module")
def x():
    return jax.random.uniform(jax.random.key(1), (28 * COUNT, 5, WIDTH), minval=-5, maxval=5)


def stacked(batch, name):
    """One field of all tasks, (28, COUNT, ...)"""
    return np.stack([np.asarray(getattr(instance, name)) for instance in batch.instances])


def live(batch):
    return np.arange(WIDTH) < stacked(batch, "num_dims")[..., None]


def test_the_optimum_is_the_optimum(batch, x):
    """In mixed dimensions; other points are worse (step ellipsoidal and the slope have flat optima)."""
    x_opt = jnp.asarray(stacked(batch, "x_opt").reshape(-1, 1, WIDTH))
    np.testing.assert_array_equal(noiseless(batch, x_opt), 0)
    assert np.all(np.asarray(noiseless(batch, x)) < 0)
    steps = 1e-2 * jax.random.normal(jax.random.key(2), x.shape)
    assert np.all(np.asarray(noiseless(batch, x_opt + steps)) <= 0)


def test_the_optimum_in_float64():
    with x64(True):
        batch = sample(3, noise=False)
        x_opt = stacked(batch, "x_opt").reshape(-1, 1, WIDTH)
        assert x_opt.dtype == np.float64
        # The nearest float32: the value is small, not only where the optimum is exact.
        near = np.asarray(noiseless(batch, jnp.asarray(np.float64(np.float32(x_opt)))))
        value = np.asarray(noiseless(batch, jnp.asarray(x_opt)))
    assert np.abs(value).max() <= 1e-9
    assert np.all(near.reshape(28, -1).min(axis=1) > -2e-2)


def test_rotations_are_orthogonal_and_random(batch):
    for name in ("R", "Q"):
        rotation = stacked(batch, name)
        product = rotation @ rotation.swapaxes(-1, -2)
        np.testing.assert_allclose(product, np.broadcast_to(np.eye(WIDTH), product.shape), atol=2e-6)
        dead = ~live(batch)
        outside = dead[..., :, None] | dead[..., None, :]
        np.testing.assert_array_equal(np.where(outside, rotation - np.eye(WIDTH), 0), 0)
    assert np.abs(stacked(batch, "R") - stacked(batch, "Q")).max(axis=(2, 3)).min() > 0.05
    assert len(np.unique(stacked(batch, "R")[:, :, 0, 0])) == 28 * COUNT


def test_rotations_are_haar():
    """The first entry of a Haar rotation in dimension 3 is uniform in [-1, 1]; without the sign fix it is not."""
    (spheres,) = instances.sample_batch(jax.random.key(4), ["sphere"], 2000, width=3, min_dim=3, max_dim=3).instances
    for rotation in (spheres.R, spheres.Q):
        for i, j in ((0, 0), (1, 1), (2, 0)):
            entry = np.asarray(rotation[:, i, j])
            assert scipy.stats.kstest(entry, "uniform", args=(-1, 2)).pvalue > 1e-4


def test_padding_never_leaks(batch, x):
    mask = jnp.asarray(live(batch).reshape(-1, 1, WIDTH))
    keys = jax.random.split(jax.random.key(5), len(x))
    first = evaluate(batch, keys, x)
    second = evaluate(batch, keys, jnp.where(mask, x, 3.7))
    np.testing.assert_array_equal(first.fitness, second.fitness)
    np.testing.assert_array_equal(first.descriptor, second.descriptor)
    moved = evaluate(batch, keys, jnp.where(mask, x + 0.5, x))
    assert np.all(np.any(np.asarray(first.descriptor != moved.descriptor), axis=(1, 2)))
    for name in ("x_opt", "projection"):
        values = stacked(batch, name)
        dead = ~live(batch) if name == "x_opt" else ~live(batch)[:, :, None, :]
        np.testing.assert_array_equal(np.where(dead, values, 0), 0)
        assert np.all(np.where(dead, 1, values) != 0)


def test_dimensions_are_uniform():
    (spheres,) = instances.sample_batch(jax.random.key(4), ["sphere"], 2000, width=3, min_dim=2, max_dim=3).instances
    assert scipy.stats.binomtest(int((spheres.num_dims == 2).sum()), 2000).pvalue > 1e-4
    assert set(np.unique(spheres.num_dims)) == {2, 3}


def test_optima_are_drawn_as_coco_draws_them(batch):
    optimum = dict(zip(instances.FUNCTIONS, stacked(batch, "x_opt"), strict=True))
    mask = dict(zip(instances.FUNCTIONS, live(batch), strict=True))
    dims = dict(zip(instances.FUNCTIONS, stacked(batch, "num_dims"), strict=True))
    rotation = dict(zip(instances.FUNCTIONS, stacked(batch, "R"), strict=True))
    for name, magnitude in (("linear_slope", 5), ("schwefel", 4.2096874637 / 2), ("lunacek", 1.25)):
        np.testing.assert_allclose(np.abs(optimum[name]), magnitude * mask[name], rtol=1e-6)
        assert len(np.unique(np.sign(optimum[name][mask[name]]))) == 2
    assert np.all(optimum["bueche_rastrigin"][:, ::2] >= 0)
    assert np.any(optimum["bueche_rastrigin"][:, 1::2] < 0)
    assert np.abs(optimum["rosenbrock"]).max() <= 3
    for name in ("rosenbrock_rotated", "griewank_rosenbrock"):
        s = np.maximum(1, np.sqrt(dims[name]) / 8)[:, None]
        z = s * (rotation[name] @ optimum[name][..., None])[..., 0] + 0.5
        np.testing.assert_allclose(z[mask[name]], 1, atol=1e-6)
    others = np.concatenate([optimum[n][mask[n]] for n in ("sphere", "discus", "katsuura", "ackley", "levy")])
    assert scipy.stats.kstest(others, "uniform", args=(-4, 8)).pvalue > 1e-4


@pytest.mark.parametrize(("function", "reach", "first"), [("gallagher_101", 5.0, 1e3), ("gallagher_21", 4.9, 1e6)])
def test_peaks(batch, function, reach, first):
    """The structure of COCO's peaks, which the golden file holds too."""
    found = batch.instances[instances.FUNCTIONS.index(function)]
    centres, diagonals, heights = (np.asarray(array, np.float64) for array in found.peaks)
    num_peaks = bbob.GALLAGHER[bbob.index(function)]
    for i in range(COUNT):
        n = int(found.num_dims[i])
        y, c = centres[i][:, :n], diagonals[i][:, :n]
        assert y.shape == (num_peaks, n)
        np.testing.assert_array_equal(y[0], np.asarray(found.x_opt[i])[:n])
        assert np.abs(y[0]).max() <= 0.8 * reach
        assert 0.8 * reach < np.abs(y).max() <= reach
        np.testing.assert_allclose(heights[i], [10, *np.linspace(1.1, 9.1, num_peaks - 1)], rtol=1e-6)
        # c = alpha^(ramp / 2) / alpha^(1/4) in any order, so the largest over the smallest is sqrt(alpha).
        condition = (c.max(axis=1) / c.min(axis=1)) ** 2
        np.testing.assert_allclose(condition[0], first, rtol=1e-4)
        np.testing.assert_allclose(np.sort(condition[1:]), 1e6 ** np.linspace(0, 1, num_peaks - 1), rtol=1e-4)
        ramp = np.linspace(0, 0.5, n)
        np.testing.assert_allclose(np.sort(c, axis=1), condition[:, None] ** (ramp - 0.25), rtol=1e-4)
        assert len({tuple(row) for row in np.argsort(c[condition > 2], axis=1)}) > 1


def test_golden_peaks_have_that_structure():
    golden = np.load(pathlib.Path(__file__).parents[2] / "data" / "bbob_golden.npz")
    for f, first in ((21, 1e3), (22, 1e6)):
        c, alpha = golden[f"d10_f{f}_peak_c"], golden[f"d10_f{f}_peak_alpha"]
        np.testing.assert_allclose(alpha[:, 0], first)
        np.testing.assert_allclose(np.sort(c, axis=-1), alpha[..., None] ** (np.linspace(0, 0.5, 10) - 0.25))


def test_agrees_with_bbobax(batch, x):
    """Every function but Gallagher's, whose peaks bbobax takes from a key, on the live part of our instances."""
    names = [n for n in bbob.NAMES if not n.startswith("gallagher")][::3]
    ours = np.asarray(noiseless(batch, x)).reshape(28, COUNT, -1)
    theirs = {}
    with jax.numpy_dtype_promotion("standard"):
        for name in names:
            k = instances.FUNCTIONS.index(name)
            i = batch.instances[k]
            n = int(i.num_dims[0])
            params = bbobax.problem.BBOBParams(
                key=jax.random.key(0),
                x_opt=i.x_opt[0, :n],
                f_opt=jnp.zeros(()),
                r=i.R[0, :n, :n],
                q=i.Q[0, :n, :n],
                noise_model=bbobax.noise.NoiselessParams(),
            )
            problem = bbobax.bbob.BBOB_PROBLEMS[name](num_dims=n)
            evaluate_one = jax.jit(lambda x, problem=problem, params=params: sum(problem._value(x, params)))
            theirs[name] = np.asarray([evaluate_one(point[:n]) for point in x[k * COUNT]])
    for name, value in theirs.items():
        mine = -ours[instances.FUNCTIONS.index(name), 0]
        np.testing.assert_allclose(mine, value, rtol=5e-3 if name == "griewank_rosenbrock" else 5e-4, err_msg=name)


def test_batch_equals_single_tasks(batch, x):
    """Noise included: task k sees key k only."""
    keys = jax.random.split(jax.random.key(6), len(x))
    together = evaluate(batch, keys, x)
    for k in (0, 5, 4 * 20 + 1, 4 * 27 + 3):
        task = batch.task(k)
        assert task.function == batch.functions_of_tasks[k]
        alone = task.evaluate(keys[k], x[k])
        np.testing.assert_allclose(alone.fitness, together.fitness[k], rtol=2e-4)
        np.testing.assert_allclose(alone.descriptor, together.descriptor[k], rtol=1e-5, atol=1e-5)
        projected = np.asarray(x[k]) @ np.asarray(task.instance.projection).T
        np.testing.assert_allclose(alone.descriptor, projected, rtol=1e-5, atol=1e-5)


def test_noise_is_seen_by_evaluate_only(batch, x):
    exact = np.asarray(noiseless(batch, x))
    first = np.asarray(evaluate(batch, jax.random.split(jax.random.key(7), len(x)), x).fitness)
    other_key = np.asarray(evaluate(batch, jax.random.split(jax.random.key(8), len(x)), x).fitness)
    kind = np.concatenate([np.asarray(i.noise.kind) for i in batch.instances])
    assert set(kind) == {0, 1, 2, 3}
    np.testing.assert_array_equal(first[kind == 0], exact[kind == 0])
    # Not all: a weak disturbance of a large value may round to nothing.
    assert np.mean(first[kind > 0] != exact[kind > 0]) > 0.9
    multiplied = (kind == 1) | (kind == 2)
    assert np.mean(first[multiplied] != other_key[multiplied]) > 0.9


def test_same_key_same_instances_and_other_functions_do_not_matter(batch):
    again, other = sample(0), sample(9)
    for a, b in zip(jax.tree.leaves(batch), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.all(stacked(other, "projection")[..., 0] != stacked(batch, "projection")[..., 0])
    few = instances.sample_batch(jax.random.key(0), ("f21", "sphere"), COUNT, **SETTINGS)
    assert few.functions == ("gallagher_101", "sphere")
    for mine, theirs in zip(few.instances, (batch.instances[20], batch.instances[0]), strict=True):
        for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_another_key_compiles_nothing(batch, x):
    keys = jax.random.split(jax.random.key(10), len(x))
    evaluate(sample(0), keys, x)
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, duration, **_: compiled.append(event) if "backend_compile" in event else None
    )
    jax.jit(lambda x: x - 3.25)(1.5)
    assert compiled, "the listener hears compilations"
    compiled.clear()
    evaluate(sample(11), keys, x)
    assert compiled == []


def test_without_noise_and_rotation():
    batch = instances.sample_batch(jax.random.key(0), [1, 9, 19], 3, **SETTINGS, noise=False, rotate=False)
    assert all(instance.noise is None for instance in batch.instances)
    np.testing.assert_array_equal(batch.instances[1].R, np.broadcast_to(np.eye(WIDTH), (3, WIDTH, WIDTH)))
    n = np.asarray(batch.instances[1].num_dims)[:, None]
    np.testing.assert_allclose(batch.instances[1].x_opt, 0.5 * (np.arange(WIDTH) < n))
    x = jax.random.normal(jax.random.key(1), (9, 2, WIDTH))
    evaluation = jax.jit(batch.evaluate)(jax.random.split(jax.random.key(2), 9), x)
    np.testing.assert_allclose(evaluation.fitness, batch.noiseless(x), rtol=1e-4)


def test_contracts(batch):
    assert isinstance(batch, TaskBatch)
    assert (batch.num_tasks, batch.dim, batch.descriptor_dim) == (28 * COUNT, WIDTH, 2)
    np.testing.assert_array_equal(batch.bounds, [np.full(WIDTH, -5), np.full(WIDTH, 5)])
    np.testing.assert_array_equal(batch.f_opt, np.zeros(28 * COUNT))
    assert batch.functions_of_tasks[COUNT - 1 : COUNT + 1] == ("sphere", "ellipsoidal")

    task = instances.make("f3", dim=4, seed=1, descriptor_dim=3)
    assert isinstance(task, Task)
    assert (task.name, task.dim, task.descriptor_dim, float(task.f_opt)) == ("bbob/rastrigin", 4, 3, 0.0)
    np.testing.assert_array_equal(task.descriptor_bounds, [np.full(3, -20), np.full(3, 20)])
    x = jnp.ones((2, 4))
    np.testing.assert_array_equal(task.evaluate(jax.random.key(0), x).fitness, task.noiseless(x))
    other = instances.make("f3", dim=4, seed=2, descriptor_dim=3)
    assert np.all(other.instance.x_opt != task.instance.x_opt)
    assert batch.task(28 * COUNT - 1).name == "ood/levy"
    assert batch.task(20 * COUNT).name == "bbob/gallagher_101"
    assert set(instances.FUNCTIONS) - set(instances.TRAINING_SET) == set(instances.OOD)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: instances.make("sphere", dim=1), "dim must be a whole number of at least 2, got 1"),
        (lambda: instances.make("levi", dim=2), "unknown function.*'levi'. Did you mean 'levy'"),
        (lambda: instances.make(25, dim=2), "unknown function.* 25"),
        (
            lambda: instances.make("sphere", dim=2, descriptor_dim=0),
            "descriptor_dim must be a whole number of at least 1, got 0",
        ),
        (lambda: sample(0, max_dim=9), "min_dim <= max_dim <= width must hold, got 2, 9, 8"),
        (lambda: sample(0, min_dim=7, max_dim=6), "must hold, got 7, 6, 8"),
        (lambda: instances.sample_batch(jax.random.key(0), [1, "f1"], 1, **SETTINGS), "each once"),
        (lambda: instances.sample_batch(jax.random.key(0), [], 1, **SETTINGS), "at least one"),
        (lambda: instances.sample_batch(jax.random.key(0), [1], 0, **SETTINGS), "num_per_function must be"),
    ],
)
def test_errors_at_the_door(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_sampling_the_training_set_does_not_hang():
    """XLA on CPU can hang on several batched QR decompositions in one program; a hang must fail, not block."""
    program = (
        "import jax; from lqd.tasks.bbob import instances as i;"
        "b = i.sample_batch(jax.random.key(0), i.TRAINING_SET, 12, width=12, min_dim=2, max_dim=12);"
        "print(bool(abs(b.instances[-1].R[:, 0]).sum() > 0), b.num_tasks)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["True", "264"]


def test_dimensions_may_be_given_instance_by_instance():
    size = {"width": 6, "min_dim": 2, "max_dim": 6}
    batch = instances.sample_batch(jax.random.key(0), ("sphere", "rastrigin"), 3, **size, dims=(2, 4, 6))
    for instance in batch.instances:
        np.testing.assert_array_equal(instance.num_dims, [2, 4, 6])
        np.testing.assert_array_equal(np.count_nonzero(instance.x_opt, axis=1), [2, 4, 6])
    for dims in ((2, 4), (2, 4, 7), (1, 2, 3)):
        with pytest.raises(InvalidInput, match=r"dims must give 3 dimensions from 2 to 6"):
            instances.sample_batch(jax.random.key(0), ("sphere",), 3, **size, dims=dims)
