"""The noise models against bbobax's (checked against COCO's), and by hand."""

import bbobax.noise as oracle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from lqd.tasks.bbob import noise
from lqd.tasks.bbob.noise import KINDS, Noise

NUM_DRAWS, NUM_DIMS = 4000, 5
VALUES = (1e-3, 1.0, 3e4)


def make(kind, strength=1.0):
    return Noise(jnp.asarray(KINDS.index(kind)), jnp.asarray(strength))


@jax.jit
def disturb(key, model, values):
    """(values, NUM_DRAWS)"""
    return noise.apply(key, model, jnp.repeat(values[:, None], NUM_DRAWS, axis=1), NUM_DIMS)


def draws(kind, strength=1.0, values=VALUES, seed=0):
    return np.asarray(disturb(jax.random.key(seed), make(kind, strength), jnp.asarray(values)), np.float64)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_same_distribution_as_the_oracle(kind):
    with jax.numpy_dtype_promotion("standard"):
        model = {"gaussian": oracle.Gaussian, "uniform": oracle.Uniform, "cauchy": oracle.Cauchy}[kind].moderate()
        params = model.sample(jax.random.key(1), NUM_DIMS)
        keys = jax.random.split(jax.random.key(2), (len(VALUES), NUM_DRAWS))
        one_value = jax.vmap(model.apply, in_axes=(0, None, None))
        expected = np.asarray(jax.vmap(one_value, in_axes=(0, 0, None))(keys, jnp.asarray(VALUES), params))
    for value, ours, theirs in zip(VALUES, draws(kind), expected, strict=True):
        if kind == "cauchy":  # nearly always the constant: compare how often it is not, and the outliers
            ours, theirs = (x[np.abs(x - value - 10) > 0.004] for x in (ours, theirs))
            assert abs(len(ours) - len(theirs)) < 5 * np.sqrt(2 * 0.05 * NUM_DRAWS)
            assert len(ours) > 0.5 * 0.05 * NUM_DRAWS
        assert scipy.stats.ks_2samp(ours, theirs).pvalue > 1e-4


@pytest.mark.parametrize("strength", [0.25, 1.0])
def test_gaussian_by_hand(strength):
    logs = np.log(draws("gaussian", strength)[1:] / np.asarray(VALUES[1:])[:, None])
    assert scipy.stats.kstest(logs.ravel() / (0.01 * strength), "norm").pvalue > 1e-4


@pytest.mark.parametrize("strength", [0.25, 1.0])
def test_uniform_by_hand(strength):
    """u^beta (1e9 / f)^(alpha v): -log u is exponential, the lift uniform, both small."""
    alpha, beta = 0.01 * strength * (0.49 + 1 / NUM_DIMS), 0.01 * strength
    logs = np.log(draws("uniform", strength) / np.asarray(VALUES)[:, None])
    highest = alpha * np.log(1e9 / np.asarray(VALUES))
    assert np.all(logs <= highest[:, None] + 2e-5)
    np.testing.assert_allclose(logs.mean(axis=1), highest / 2 - beta, atol=5 * 0.05 * strength / np.sqrt(NUM_DRAWS))


def test_uniform_never_lifts_above_a_billion():
    value = draws("uniform", values=(2e9,))
    assert value.max() <= 2e9
    assert value.min() < 2e9 * 0.999


def test_cauchy_by_hand():
    value = draws("cauchy", 0.5, values=(1.0,))[0]
    constant = np.float64(np.float32(1 + 5))
    share = np.mean(np.abs(value - constant) > 1e-6)
    assert 0.015 < share < 0.035  # p = 0.05 times the strength
    assert value.min() >= 1


def test_undisturbed_exactly():
    values = (0.0, 1e-9, 9.9e-9, 1.0, 12345.678)
    np.testing.assert_array_equal(draws("none", values=values), np.float32(values)[:, None] * np.ones(NUM_DRAWS))
    for kind in KINDS[1:]:
        np.testing.assert_array_equal(draws(kind, 0.0, values), draws("none", values=values))
        below, above = draws(kind, values=values)[:3], draws(kind, values=values)[3:]
        np.testing.assert_array_equal(below, draws("none", values=values)[:3])
        assert len(np.unique(above)) > 10


def test_values_are_disturbed_independently_and_by_key_alone():
    first = draws("gaussian", seed=3)
    assert abs(np.corrcoef(first[1], first[2])[0, 1]) < 0.1
    np.testing.assert_array_equal(first, draws("gaussian", seed=3))
    assert np.mean(first == draws("gaussian", seed=4)) < 0.01


def test_traced_kind_compiles_once():
    draws("gaussian")
    size = disturb._cache_size()
    for kind in KINDS:
        draws(kind, 0.3)
    assert disturb._cache_size() == size


def test_sample():
    drawn = jax.vmap(noise.sample)(jax.random.split(jax.random.key(5), NUM_DRAWS))
    counts = np.bincount(np.asarray(drawn.kind), minlength=4)
    assert counts.shape == (4,)
    assert scipy.stats.chisquare(counts).pvalue > 1e-4
    assert scipy.stats.kstest(np.asarray(drawn.strength), "uniform").pvalue > 1e-4
