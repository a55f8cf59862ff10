"""The kernel's steps on the CPU, one by one (Pallas's interpreter), against the definition; and when it is chosen."""

import dataclasses
import functools
import os
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rulesets

from lqd.errors import InvalidInput
from lqd.rules.learned import dispatch, network
from lqd.rules.learned.network import Architecture
from lqd.rules.learned.rule import Learned

PAPER, DISTANCES, LEADING = rulesets.PAPER, rulesets.DISTANCES, rulesets.LEADING
BOTH = pytest.mark.parametrize("architecture", [PAPER, DISTANCES], ids=["paper", "distances"])


@functools.partial(jax.jit, static_argnums=(0, 4))
def interpreted(num_heads, params, x, filled, exact=False):
    return dispatch.forward(params, num_heads, x, filled, exact=exact, interpret=True)


plain = jax.jit(network.forward, static_argnums=1)


SLOW = ("distances, padded", "distances, many dimensions", "leading, padded")
NAMES = [pytest.param(name, marks=pytest.mark.long) if name in SLOW else name for name in rulesets.ARCHITECTURES]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_every_architecture(name):
    architecture = rulesets.ARCHITECTURES[name]
    params = rulesets.noisy(architecture)
    x, filled = rulesets.inputs(48, architecture)
    expected = plain(params, architecture.num_heads, x, filled)
    for exact, limit in enumerate(rulesets.LIMITS[architecture.recipe]):
        found = interpreted(architecture.num_heads, params, x, filled, bool(exact))
        assert rulesets.relative_error(found, expected, filled) < limit, exact


@BOTH
@pytest.mark.parametrize("num", [1, 3, 160, 200, 300])
@pytest.mark.as_users
def test_every_kind_of_size(num, architecture):
    """One tile, the usual five, larger tiles, and the attention alone (of recipe 2, the plain version)."""
    params = rulesets.noisy(architecture, sharpness=3.0)
    x, filled = rulesets.inputs(num, architecture)
    expected = plain(params, 4, x, filled)
    limit = rulesets.LIMITS[architecture.recipe][0]
    assert rulesets.relative_error(interpreted(4, params, x, filled), expected, filled) < limit


def test_scores_move_with_the_individuals_where_fitness_is_equal():
    params, order = rulesets.noisy(DISTANCES), np.random.default_rng(0).permutation(48)
    found = interpreted(4, params, *rulesets.tied(48))
    moved = interpreted(4, params, *rulesets.tied(48, order))
    assert rulesets.relative_error(moved, np.asarray(found)[order], np.ones(48, bool)) < rulesets.LIMITS[2][0]


def test_a_descriptor_of_too_many_dimensions_runs_plain():
    params = rulesets.noisy(DISTANCES)
    x, filled = rulesets.inputs(12, Architecture(recipe=2, descriptor_dim=24))
    expected = plain(params, 4, x, filled)
    np.testing.assert_allclose(interpreted(4, params, x, filled), expected, rtol=1e-4, atol=1e-5)


@BOTH
def test_populations_of_runs_keep_their_survivors(architecture):
    x, filled = rulesets.of_runs(architecture.recipe)
    params = rulesets.noisy(architecture, sharpness=3.0)
    expected = jax.jit(jax.vmap(lambda x, filled: network.forward(params, 4, x, filled)))(x, filled)
    found = jax.jit(jax.vmap(lambda x, filled: dispatch.forward(params, 4, x, filled, interpret=True)))(x, filled)
    changed = rulesets.num_other_survivors(found, expected, filled)
    assert len(changed) >= 30
    assert np.median(changed) == 0
    assert np.mean(changed) < 0.5


@BOTH
def test_empty_slots_say_nothing(architecture):
    params = rulesets.noisy(architecture)
    x, filled = rulesets.inputs(40, architecture, num_empty=9)
    expected = interpreted(4, params, x, filled)
    other = interpreted(4, params, jnp.where(filled[:, None], x, 77.0), filled)
    np.testing.assert_array_equal(other[filled], expected[filled])
    alone = interpreted(4, params, x[9:], filled[9:])
    np.testing.assert_allclose(alone, expected[9:], rtol=1e-3, atol=1e-4)


@BOTH
def test_an_empty_population_has_no_scores(monkeypatch, architecture):
    monkeypatch.setenv(dispatch.SETTING, "interpret")
    scores = Learned(rulesets.noisy(architecture), architecture)(None, jnp.full(40, -jnp.inf), jnp.zeros((40, 2)))
    np.testing.assert_array_equal(scores, np.full(40, -np.inf))


HUGE = [(1, name) for name in ("query", "value", "up", "out", "down")] + [(2, name) for name in ("value", "up")]


@pytest.mark.parametrize(("recipe", "what"), HUGE)
def test_weights_beyond_half_precision_run_the_plain_version(recipe, what):
    architecture = Architecture(recipe=recipe)
    params = rulesets.noisy(architecture)
    params["layers"][what]["weight"] *= jnp.float32(1e5)
    x, filled = rulesets.inputs(40, architecture)
    expected = plain(params, 4, x, filled)
    np.testing.assert_allclose(interpreted(4, params, x, filled), expected, rtol=1e-4, atol=1e-4)


def test_one_rule_with_huge_weights_does_not_spoil_the_others():
    params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(rulesets.noisy(PAPER, seed) for seed in range(2)))
    params["layers"]["query"]["weight"] = params["layers"]["query"]["weight"].at[1].mul(1e6)
    x, filled = rulesets.inputs(40, PAPER)
    run = jax.vmap(lambda params: dispatch.forward(params, 4, x, filled, interpret=True))
    expected = jax.jit(jax.vmap(lambda params: network.forward(params, 4, x, filled)))(params)
    np.testing.assert_allclose(jax.jit(run)(params)[0], expected[0], rtol=1e-3, atol=1e-3)


def test_weights_that_are_no_numbers_give_no_scores():
    params = rulesets.noisy(PAPER)
    params["layers"]["up"]["weight"] = params["layers"]["up"]["weight"].at[0, 0, 0].set(jnp.nan)
    x, filled = rulesets.inputs(40, PAPER)
    assert np.isnan(interpreted(4, params, x, filled)).all()


@pytest.mark.parametrize("sharpness", [-200.0, 200.0])
def test_any_sharpness_gives_finite_scores(sharpness):
    params = rulesets.noisy(DISTANCES)
    params["layers"]["sharpness"] = jnp.full_like(params["layers"]["sharpness"], sharpness)
    x, filled = rulesets.inputs(40, DISTANCES)
    x = x.at[5, 2:].set(x[6, 2:])  # duplicates
    expected = plain(params, 4, x, filled)
    assert rulesets.relative_error(interpreted(4, params, x, filled), expected, filled) < 2e-2
    assert rulesets.relative_error(interpreted(4, params, x, filled, exact=True), expected, filled) < 1e-4


@pytest.mark.parametrize(("num", "recipe"), [(20, 1), (300, 1), (20, 2), (20, 3)])
@pytest.mark.slow
def test_mapping_in_any_nesting_changes_nothing(num, recipe):
    small = Architecture(num_layers=1, recipe=recipe)
    rules = [rulesets.noisy(small, seed) for seed in range(2)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rules)
    pairs = [rulesets.inputs(num, small, seed, num_empty=seed) for seed in range(3)]
    x, filled = (jnp.stack(part) for part in zip(*pairs, strict=True))

    def one(params, x, filled):
        return dispatch.forward(params, 4, x, filled, interpret=True)

    per_population = jax.vmap(one, in_axes=(None, 0, 0))
    single = jax.jit(one)
    expected = np.stack([[single(rule, *pair) for pair in pairs] for rule in rules])
    nestings = {
        "rules of populations": jax.vmap(per_population, in_axes=(0, None, None)),
        "populations of rules": lambda p, x, f: jnp.swapaxes(
            jax.vmap(jax.vmap(one, in_axes=(0, None, None)), in_axes=(None, 0, 0))(p, x, f), 0, 1
        ),
        "seeds of rules of populations": lambda p, x, f: jax.vmap(
            jax.vmap(per_population, in_axes=(0, None, None)), in_axes=(None, 0, 0)
        )(p, jnp.stack([x, x]), jnp.stack([f, f]))[1],
    }
    for name, nesting in nestings.items():
        found = jax.jit(nesting)(stacked, x, filled)
        if num <= dispatch.MAX_FUSED and jax.__version_info__ >= (0, 10):
            np.testing.assert_array_equal(found, expected, err_msg=name)
        else:  # all but the attention, and all of the interpreter in older JAX, is up to XLA
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=name)


@BOTH
def test_a_cpu_takes_few_populations_at_a_time_in_any_nesting(architecture):
    small = dataclasses.replace(architecture, num_layers=1)
    rules = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(rulesets.noisy(small, seed) for seed in range(3)))
    pairs = [rulesets.inputs(12, small, seed, num_empty=seed) for seed in range(6)]
    x, filled = (jnp.stack(part) for part in zip(*pairs, strict=True))

    def grid(forward):
        per_population = jax.vmap(lambda p, x, f: forward(p, 4, x, f), in_axes=(None, 0, 0))
        return jax.vmap(per_population, in_axes=(0, None, None))

    expected = jax.jit(grid(network.forward))(rules, x, filled)
    np.testing.assert_allclose(jax.jit(grid(dispatch.few_at_once))(rules, x, filled), expected, rtol=1e-4, atol=1e-5)
    largest = rulesets.largest_array(grid(dispatch.few_at_once), rules, x, filled)
    assert (
        largest <= dispatch.AT_ONCE * 4 * 12 * 12 * 2 < rulesets.largest_array(grid(network.forward), rules, x, filled)
    )


@BOTH
@pytest.mark.parametrize(("num", "exact"), [(160, False), (48, True), (300, False)])
def test_the_gpu_compiler_gets_a_program(num, exact, architecture):
    """Lowered for a GPU without having one: what Pallas cannot translate fails here."""
    if jax.__version_info__ >= (0, 11):
        pytest.skip("newer JAX compiles for the GPU while lowering, which needs its libraries")
    if num > dispatch.MAX_FUSED and architecture.recipe == 2:
        pytest.skip("runs plain")
    params = jax.eval_shape(lambda: network.init_params(jax.random.key(0), architecture))
    num_columns = {1: 3, 2: 6}[architecture.recipe]
    x, filled = jax.ShapeDtypeStruct((num, num_columns), jnp.float32), jax.ShapeDtypeStruct((num,), bool)
    run = jax.jit(lambda params, x, filled: dispatch.forward(params, 4, x, filled, exact=exact))
    text = run.trace(params, x, filled).lower(lowering_platforms=("cuda",)).as_text()
    assert "triton" in text


def test_where_the_plain_version_stands_in_it_takes_little_memory():
    """One rule with many populations: not all tables of pairs at once."""
    params = rulesets.noisy(Architecture(num_layers=1))
    x, filled = rulesets.inputs(32, PAPER)
    many = jax.vmap(lambda x: dispatch.forward(params, 4, x, filled))
    largest = rulesets.largest_array(many, jnp.broadcast_to(x, (4096, *x.shape)))
    assert largest <= 4096 * 32 * 4 + dispatch.STAND_IN_AT_ONCE * 32 * 32 * 4 * 5


def test_memory_above_the_limit_is_linear():
    params = rulesets.noisy(Architecture(num_layers=1))

    largest = {
        num: rulesets.largest_array(
            lambda x, filled: dispatch.forward(params, 4, x, filled), *rulesets.inputs(num, PAPER)
        )
        for num in (1024, 4096)
    }
    assert largest[4096] <= 4 * largest[1024]
    assert largest[4096] < 4096 * 100


# The choice


def test_the_rule_takes_the_kernel_that_is_asked_for(monkeypatch):
    rule = Learned(rulesets.noisy(PAPER))
    fitness = jnp.linspace(-1.0, 1.0, 20).at[3].set(-jnp.inf)
    descriptor = jax.random.normal(jax.random.key(0), (20, 2))
    monkeypatch.setenv(dispatch.SETTING, "off")
    usual = rule(None, fitness, descriptor)
    monkeypatch.setenv(dispatch.SETTING, "interpret")
    found = rule(None, fitness, descriptor)
    assert not np.array_equal(found, usual)
    np.testing.assert_allclose(found, usual, rtol=1e-3, atol=1e-3)
    assert found[3] == -np.inf


def test_without_a_gpu_it_is_not_chosen(monkeypatch):
    monkeypatch.delenv(dispatch.SETTING, raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dispatch.fastest_forward(PAPER).func is dispatch.few_at_once


def test_where_it_does_not_compile_one_warning_says_so(monkeypatch):
    monkeypatch.delenv(dispatch.SETTING, raising=False)
    monkeypatch.setattr(network, "on_gpu", lambda: True)  # this machine has none, so that compiling fails
    dispatch._compiles.cache_clear()
    try:
        with pytest.warns(UserWarning, match="LQD_KERNEL=off"):
            chosen = dispatch.fastest_forward(PAPER)
        assert chosen.func is network.forward
        assert (
            dispatch.fastest_forward(PAPER).func is network.forward
        )  # and does not warn again, which would be an error
    finally:
        dispatch._compiles.cache_clear()


def test_an_unknown_setting_lists_those_there_are(monkeypatch):
    monkeypatch.setenv(dispatch.SETTING, "fsat")
    with pytest.raises(InvalidInput, match=r"LQD_KERNEL.*'fast'.*'exact'.*'fsat'"):
        dispatch.fastest_forward(PAPER)


def test_a_network_that_is_too_wide_runs_plain_unless_asked_otherwise(monkeypatch):
    wide = Architecture(num_features=128, num_heads=8)
    monkeypatch.setattr(network, "on_gpu", lambda: True)
    monkeypatch.delenv(dispatch.SETTING, raising=False)
    assert dispatch.fastest_forward(wide).func is network.forward
    monkeypatch.setenv(dispatch.SETTING, "fast")
    with pytest.raises(InvalidInput, match="LQD_KERNEL=auto"):
        dispatch.fastest_forward(wide)


@pytest.mark.as_users
def test_the_tests_of_the_plain_rule_pass_with_the_kernel(request):
    """The same tests, in a process of its own, because compiled programs remember what they were made with."""
    files = ["tests/rules/learned/test_rule.py", "tests/rules/learned/test_recipe2.py"]
    if request.config.getoption("--long"):
        files.append("tests/rules/test_handmade.py")
    chosen = ["-k", "test_rule or test_handmade and learned or independent and 3"]
    if request.config.getoption("--as-users"):
        chosen.append("--as-users")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, *files]
    environment = os.environ | {dispatch.SETTING: "interpret"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
