"""The transformer rule: its size, its features, and an independent NumPy forward pass."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lqd.rules import blocks
from lqd.rules.learned import layers, network, recipe1
from lqd.rules.learned.network import Architecture
from lqd.rules.learned.rule import Learned

INF = np.inf


@pytest.fixture(scope="module")
def rule():
    """Random weights everywhere, biases and norms included, so that none of them can be forgotten unnoticed."""
    params = network.init_params(jax.random.key(0), Architecture())
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    noisy = [leaf + 0.3 * jax.random.normal(key, leaf.shape) for leaf, key in zip(leaves, keys, strict=True)]
    return Learned(jax.tree.unflatten(structure, noisy))


def population(num=20, seed=0):
    generator = np.random.default_rng(seed)
    fitness = generator.normal(size=num).astype(np.float32)
    fitness[[3, num - 1]] = -INF
    return fitness, generator.normal(size=(num, 2)).astype(np.float32)


def numpy_forward(params, fitness, descriptor):
    """The definition of SPEC, in float64, on the filled slots alone."""
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    keep = fitness > -INF
    z = np.concatenate([fitness[keep, None], descriptor[keep]], axis=1).astype(np.float64)
    z = (z - z.mean(0)) / z.std(0)

    def norm(q, x):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6) * q["scale"] + q["bias"]

    x = z @ p["embed"]["weight"]
    for i in range(4):
        layer = jax.tree.map(lambda leaf, i=i: leaf[i], p["layers"])
        h = norm(layer["norm_attention"], x)
        q, k, v = (h @ layer[n]["weight"] + layer[n]["bias"] for n in ("query", "key", "value"))
        heads = []
        for head in range(4):
            part = slice(4 * head, 4 * head + 4)
            logits = q[:, part] @ k[:, part].T / np.sqrt(4)
            weights = np.exp(logits - logits.max(1, keepdims=True))
            heads.append(weights / weights.sum(1, keepdims=True) @ v[:, part])
        x = x + np.concatenate(heads, 1) @ layer["out"]["weight"] + layer["out"]["bias"]
        h = norm(layer["norm_mlp"], x) @ layer["up"]["weight"] + layer["up"]["bias"]
        h = 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
        x = x + h @ layer["down"]["weight"] + layer["down"]["bias"]
    scores = np.full(len(fitness), -INF)
    scores[keep] = (norm(p["norm"], x) @ p["score"]["weight"] + p["score"]["bias"])[:, 0]
    return scores


def test_number_of_parameters():
    def count(descriptor_dim):
        params = network.init_params(jax.random.key(0), Architecture(descriptor_dim=descriptor_dim))
        return sum(leaf.size for leaf in jax.tree.leaves(params))

    assert count(2) == 6881
    assert count(3) == 6881 + 16


def test_start_is_lecun_normal_with_zero_biases():
    params = network.init_params(jax.random.key(0), Architecture(num_features=64, num_hidden=64))
    assert abs(float(jnp.std(params["layers"]["query"]["weight"])) * 8 - 1) < 0.05
    assert float(jnp.max(jnp.abs(params["layers"]["up"]["bias"]))) == 0
    layers = params["layers"]["value"]["weight"]
    assert not np.array_equal(layers[0], layers[1])


def test_equals_an_independent_forward_pass(rule):
    fitness, descriptor = population()
    ours = rule(None, jnp.asarray(fitness), jnp.asarray(descriptor))
    np.testing.assert_allclose(ours, numpy_forward(rule.params, fitness, descriptor), rtol=2e-4, atol=2e-5)


def test_blocked_attention_equals_the_whole(rule, monkeypatch):
    fitness, descriptor = map(jnp.asarray, population(num=23))
    whole = rule(None, fitness, descriptor)
    monkeypatch.setattr(blocks, "MAX_TABLE", 4 * 23 * 5)  # blocks of five queries, the last one short
    np.testing.assert_allclose(rule(None, fitness, descriptor), whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num", [6, 20, 160])
def test_attention_for_gpus_equals_the_other(rule, num):
    fitness, descriptor = population(num)
    x, filled = network.features(jnp.asarray(fitness), jnp.asarray(descriptor)), jnp.asarray(fitness) > -INF
    expected = network.forward(rule.params, 4, x, filled)
    found = network.forward(rule.params, 4, x, filled, recipe1.attention_by_reduction)
    np.testing.assert_allclose(found[filled], expected[filled], rtol=2e-4, atol=2e-5)


def test_attention_follows_the_default_device():
    assert network.fastest_attention() is recipe1.attention
    with jax.default_device(jax.devices("cpu")[0]):
        assert network.fastest_attention() is recipe1.attention
    with jax.default_device("gpu"):
        assert network.fastest_attention() is recipe1.attention_by_reduction


def test_the_rule_is_blind_to_shift_and_scale_of_every_column(rule):
    fitness, descriptor = population()
    plain = rule(None, jnp.asarray(fitness), jnp.asarray(descriptor))
    moved = rule(None, jnp.asarray(8 * fitness + 3), jnp.asarray(descriptor * np.float32([0.25, 4]) - 1))
    np.testing.assert_allclose(moved, plain, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([5.0, 5.0, 5.0, 5.0], [0.0, 0.0, 0.0, 0.0]),  # constant
        ([1e8, 1e8 + 8, 1e8, 1e8 + 8], [-1.0, 1.0, -1.0, 1.0]),  # small differences on a large offset
        ([1e30, -1e30, 1e30, -1e30], [1.0, -1.0, 1.0, -1.0]),  # squares would overflow
        ([3e38, -3e38, 3e38, -3e38], [1.0, -1.0, 1.0, -1.0]),  # even the difference would
        ([1e-30, 3e-30, 1e-30, 3e-30], [-1.0, 1.0, -1.0, 1.0]),  # squares would vanish
    ],
)
def test_standardise(column, expected):
    padded = jnp.array([*column, 77.0], jnp.float32)
    filled = jnp.array([True] * 4 + [False])
    np.testing.assert_allclose(layers.standardise(padded, filled), [*expected, 0.0], atol=1e-6)


def test_another_descriptor_dimension_is_refused_by_name(rule):
    with pytest.raises(ValueError, match=r"2 dimensions.*got 3.*'dns'"):
        rule(None, jnp.zeros(4), jnp.zeros((4, 3)))


@pytest.mark.parametrize("change", [{"num_heads": 3}, {"num_layers": 0}, {"recipe": 4}, {"num_features": 2.5}])
def test_impossible_architectures_are_refused(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        dataclasses.replace(Architecture(), **change)
