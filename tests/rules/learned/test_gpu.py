"""The compiled kernel on a GPU against the definition."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rulesets

from lqd.rules.learned import dispatch, network

pytestmark = pytest.mark.skipif(jax.default_backend() != "gpu", reason="needs a GPU; the logic is in test_dispatch.py")

PAPER, DISTANCES = rulesets.PAPER, rulesets.DISTANCES
BOTH = pytest.mark.parametrize("architecture", [PAPER, DISTANCES], ids=["paper", "distances"])


@functools.partial(jax.jit, static_argnums=(0, 4))
def compiled(num_heads, params, x, filled, exact=False):
    return dispatch.forward(params, num_heads, x, filled, exact=exact)


@functools.partial(jax.jit, static_argnums=0)
def plain(num_heads, params, x, filled):
    return network.forward(params, num_heads, x, filled)


@BOTH
def test_it_is_chosen(monkeypatch, architecture):
    monkeypatch.delenv(dispatch.SETTING, raising=False)
    assert dispatch.fastest_forward(architecture).func is dispatch.forward


@pytest.mark.parametrize("name", rulesets.ARCHITECTURES)
def test_every_architecture(name):
    architecture = rulesets.ARCHITECTURES[name]
    params = rulesets.noisy(architecture)
    x, filled = rulesets.inputs(48, architecture)
    expected = plain(architecture.num_heads, params, x, filled)
    for exact, limit in enumerate(rulesets.LIMITS[architecture.recipe]):
        found = compiled(architecture.num_heads, params, x, filled, bool(exact))
        assert rulesets.relative_error(found, expected, filled) < limit, exact


@BOTH
@pytest.mark.parametrize("num", [1, 160, 200, 256, 300, 1024])
def test_every_kind_of_size(num, architecture):
    params = rulesets.noisy(architecture, sharpness=3.0)
    x, filled = rulesets.inputs(num, architecture)
    expected = plain(4, params, x, filled)
    limit = rulesets.LIMITS[architecture.recipe][0]
    assert rulesets.relative_error(compiled(4, params, x, filled), expected, filled) < limit


@pytest.mark.parametrize("num", [160, 256, 300])
def test_scores_move_with_the_individuals_where_fitness_is_equal(num):
    params, order = rulesets.noisy(DISTANCES), np.random.default_rng(0).permutation(num)
    found, moved = compiled(4, params, *rulesets.tied(num)), compiled(4, params, *rulesets.tied(num, order))
    assert rulesets.relative_error(moved, np.asarray(found)[order], np.ones(num, bool)) < rulesets.LIMITS[2][0]


@BOTH
def test_populations_of_runs_keep_their_survivors(architecture):
    x, filled = rulesets.of_runs(architecture.recipe)
    params = rulesets.noisy(architecture, sharpness=3.0)
    expected = jax.jit(jax.vmap(functools.partial(plain, 4, params)))(x, filled)
    found = jax.jit(jax.vmap(functools.partial(compiled, 4, params)))(x, filled)
    changed = rulesets.num_other_survivors(found, expected, filled)
    assert np.median(changed) == 0
    assert np.mean(changed) < 0.5


def test_weights_beyond_half_precision_run_the_plain_version():
    params = rulesets.noisy(PAPER)
    params["layers"]["query"]["weight"] *= jnp.float32(1e5)
    x, filled = rulesets.inputs(40, PAPER)
    found, expected = compiled(4, params, x, filled), plain(4, params, x, filled)
    assert rulesets.relative_error(found, expected, filled) < 1e-3


def test_the_number_of_populations_changes_no_bit():
    """With the same packed weights, as a run has them: programs of other shapes may pack with other last bits."""
    rules = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(rulesets.noisy(PAPER, seed) for seed in range(3)))
    packed = jax.jit(jax.vmap(lambda params: dispatch.pack(params, 4)))(rules)
    x, filled = jax.vmap(lambda _: rulesets.inputs(160, PAPER)[0])(jnp.arange(5)), rulesets.inputs(160, PAPER)[1]
    x = x * jnp.arange(1.0, 6.0)[:, None, None]

    def score(params, packed, x):
        return dispatch.forward(params, 4, x, filled, packed=packed)

    grid = jax.vmap(jax.vmap(score, in_axes=(None, None, 0)), in_axes=(0, 0, None))
    alone = jax.jit(score)(*jax.tree.map(lambda leaf: leaf[2], (rules, packed)), x[3])
    np.testing.assert_array_equal(jax.jit(grid)(rules, packed, x)[2, 3], alone)
