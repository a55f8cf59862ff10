"""The form for a CPU against the definition, and when it is chosen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rulesets

from lqd.rules.learned import cpu, dispatch, network
from lqd.rules.learned.network import Architecture

DISTANCES, PAPER = rulesets.DISTANCES, rulesets.PAPER
BOTH = pytest.mark.parametrize("architecture", [DISTANCES, PAPER], ids=["distances", "paper"])
LIMIT = 1e-5

plain = jax.jit(network.forward, static_argnums=1)
on_cpu = jax.jit(cpu.forward, static_argnums=1)


def exactly(params, num_heads, x, filled):
    """The definition in double precision."""
    with jax.enable_x64(True):
        given = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), jnp.float64), (params, x))
        with jax.numpy_dtype_promotion("standard"):
            return np.asarray(network.forward(given[0], num_heads, given[1], jnp.asarray(np.asarray(filled))))


@pytest.mark.parametrize("exponents", [(-125.5, 0.0), (-10.0, 60.0), (-0.6, 0.0), (-3.0, -2.0)])
def test_powers_of_two(exponents):
    given = np.linspace(*exponents, 10001, dtype=np.float32)
    np.testing.assert_allclose(cpu.power_of_two(given), np.exp2(given.astype(np.float64)), rtol=3e-7)


def test_powers_of_two_where_nothing_is_left_and_at_zero():
    given = jnp.asarray([0.0, -0.0, -127.0, -1e4, -1e34, -jnp.inf], jnp.float32)
    np.testing.assert_array_equal(cpu.power_of_two(given), [1, 1, 0, 0, 0, 0])


@BOTH
@pytest.mark.parametrize("num", [1, 2, 3, 60, 161])
def test_every_kind_of_size(num, architecture, monkeypatch):
    """One group and several, the last one short."""
    monkeypatch.setattr(cpu, "GROUP", 40)
    monkeypatch.setattr(cpu, "TABLE", 4 * 40 * num)
    params = rulesets.noisy(architecture, sharpness=3.0)
    x, filled = rulesets.inputs(num, architecture)
    expected = plain(params, 4, x, filled)
    found = jax.jit(lambda: cpu.forward(params, 4, x, filled))()
    assert rulesets.relative_error(found, expected, filled) < LIMIT
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)  # also for empty slots, which nobody reads


@pytest.mark.parametrize("name", ["distances, padded", "distances, many dimensions", "padded", "wide"])
def test_every_architecture(name):
    architecture = rulesets.ARCHITECTURES[name]
    params = rulesets.noisy(architecture)
    x, filled = rulesets.inputs(50, architecture, num_empty=5)
    heads = architecture.num_heads
    found = on_cpu(params, heads, x, filled)
    assert rulesets.relative_error(found, plain(params, heads, x, filled), filled) < LIMIT


@BOTH
def test_it_is_as_exact_as_the_definition(architecture):
    params = rulesets.noisy(architecture, sharpness=3.0)
    x, filled = rulesets.inputs(160, architecture)
    expected = exactly(params, 4, x, filled)
    assert expected.dtype == np.float64
    for forward in (plain, on_cpu):
        assert rulesets.relative_error(forward(params, 4, x, filled), expected, filled) < LIMIT


@BOTH
def test_populations_of_runs_keep_their_survivors(architecture):
    x, filled = rulesets.of_runs(architecture.recipe)
    params = rulesets.noisy(architecture, sharpness=3.0)
    expected = jax.jit(jax.vmap(lambda x, filled: network.scores(params, 4, x, filled)))(x, filled)
    found = jax.jit(jax.vmap(lambda x, filled: dispatch.few_at_once(params, 4, x, filled)))(x, filled)
    changed = rulesets.num_other_survivors(found, expected, filled)
    assert len(changed) >= 30
    assert np.median(changed) == 0
    assert np.mean(changed) < 0.1
    assert rulesets.relative_error(found, expected, filled) < LIMIT


def test_equals_in_fitness():
    params = rulesets.noisy(DISTANCES)
    x, filled = rulesets.tied(100)
    x = x.at[7].set(x[8])  # equal in everything: the first counts as fitter
    x = x.at[20:24, 0].set(jnp.asarray([0.0, -0.0, 0.0, -0.0]))  # zeros are equal whatever their sign
    assert rulesets.relative_error(on_cpu(params, 4, x, filled), plain(params, 4, x, filled), filled) < LIMIT


@BOTH
def test_empty_slots_say_nothing(architecture):
    params = rulesets.noisy(architecture)
    x, filled = rulesets.inputs(40, architecture, num_empty=9)
    found = on_cpu(params, 4, x, filled)
    other = on_cpu(params, 4, jnp.where(filled[:, None], x, 77.0), filled)
    np.testing.assert_allclose(other[filled], found[filled], rtol=1e-5, atol=1e-6)


@BOTH
def test_nobody_is_there(architecture):
    params = rulesets.noisy(architecture)
    x, filled = rulesets.inputs(20, architecture)
    nobody = jnp.zeros_like(filled)
    np.testing.assert_allclose(on_cpu(params, 4, x, nobody), plain(params, 4, x, nobody), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sharpness", [-200.0, 200.0])
def test_any_sharpness(sharpness):
    params = rulesets.noisy(DISTANCES)
    params["layers"]["sharpness"] = jnp.full_like(params["layers"]["sharpness"], sharpness)
    x, filled = rulesets.inputs(40, DISTANCES)
    x = x.at[5, 2:].set(x[6, 2:])  # duplicates
    assert rulesets.relative_error(on_cpu(params, 4, x, filled), plain(params, 4, x, filled), filled) < LIMIT


@BOTH
@pytest.mark.parametrize("factor", [1e-12, 1e5])
def test_weights_of_any_size(factor, architecture):
    params = rulesets.noisy(architecture)
    for what in ("value", "up"):
        params["layers"][what]["weight"] *= jnp.float32(factor)
    x, filled = rulesets.inputs(40, architecture)
    assert rulesets.relative_error(on_cpu(params, 4, x, filled), plain(params, 4, x, filled), filled) < LIMIT


@pytest.mark.parametrize("factor", [0.0, 10.0, 20.0, 40.0, 1e4])
def test_products_of_any_size(factor):
    """From those that are all the same to those whose exponentials are too high or too low, or that are computed
    plain."""
    params = rulesets.noisy(PAPER)
    params["layers"]["query"]["weight"] *= jnp.float32(factor)
    params["layers"]["key"]["bias"] += 30.0  # changes no weight
    x, filled = rulesets.inputs(60, PAPER)
    expected = exactly(params, 4, x, filled)
    limit = max(LIMIT, 2 * rulesets.relative_error(plain(params, 4, x, filled), expected, filled))
    assert rulesets.relative_error(on_cpu(params, 4, x, filled), expected, filled) < limit


def test_weights_that_are_no_numbers_give_no_scores():
    params = rulesets.noisy(PAPER)
    params["layers"]["key"]["weight"] *= jnp.nan
    assert np.isnan(on_cpu(params, 4, *rulesets.inputs(20, PAPER))).all()
    for what, place in (("up", "weight"), ("value", "weight"), ("sharpness", None)):
        params = rulesets.noisy(DISTANCES)
        leaf = params["layers"][what] if place is None else params["layers"][what][place]
        broken = leaf.at[(0,) * leaf.ndim].set(jnp.nan)
        params["layers"][what] = broken if place is None else params["layers"][what] | {place: broken}
        assert np.isnan(on_cpu(params, 4, *rulesets.inputs(20, DISTANCES))).all()


@BOTH
@pytest.mark.as_users
def test_a_loop_and_a_call_give_the_same_bits(architecture):
    """Two programs, as a search on the host and a compiled one are."""
    params = rulesets.noisy(architecture, sharpness=3.0)
    x, filled = rulesets.inputs(48, architecture)
    rows = jnp.stack([jnp.roll(x, i, axis=0) for i in range(3)])
    called = [on_cpu(params, 4, row, filled) for row in rows]
    given = jax.jit(lambda params, rows: jax.lax.map(lambda x: cpu.forward(params, 4, x, filled), rows))
    np.testing.assert_array_equal(given(params, rows), called)
    closed_over = jax.jit(lambda rows: jax.lax.map(lambda x: cpu.forward(params, 4, x, filled), rows))
    np.testing.assert_array_equal(closed_over(rows), called)


# The choice


def _computed(monkeypatch, architecture, num):
    """Whether a rule of this architecture is computed here for so many individuals."""
    calls = []
    forward = cpu.forward
    monkeypatch.setattr(cpu, "forward", lambda *given: calls.append(1) or forward(*given))
    params = rulesets.noisy(architecture)
    num_columns = rulesets.inputs(8, architecture)[0].shape[1]
    given = jax.ShapeDtypeStruct((num, num_columns), jnp.float32), jax.ShapeDtypeStruct((num,), bool)
    jax.eval_shape(lambda params, x, filled: dispatch.few_at_once(params, 4, x, filled), params, *given)
    return bool(calls)


@pytest.mark.parametrize(("architecture", "num", "expected"), [
    (DISTANCES, 40, True), (DISTANCES, cpu.MOST + 1, False), (rulesets.LEADING, 40, False),
    (PAPER, cpu.LEAST, True), (PAPER, cpu.LEAST - 1, False), (PAPER, cpu.MOST + 1, False),
])  # fmt: skip
def test_when_it_is_chosen(monkeypatch, architecture, num, expected):
    assert _computed(monkeypatch, architecture, num) == expected


def test_tables_stay_small():
    architecture = Architecture(num_layers=1, recipe=2)
    params = rulesets.noisy(architecture)
    x, filled = jax.ShapeDtypeStruct((1280, 6), jnp.float32), jax.ShapeDtypeStruct((1280,), bool)
    assert rulesets.largest_array(lambda p, x, f: cpu.forward(p, 4, x, f), params, x, filled) <= 2 * 1280 * 128
