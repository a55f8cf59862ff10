"""Rules in units of descriptors: bounds, spread, edges; and who sees them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lqd
from lqd.rules import scaled
from lqd.rules.scaled import BySpread, InBounds, in_units, robust_range

RNG = np.random.default_rng(0)
FITNESS = RNG.normal(size=24).astype(np.float32)
FITNESS[-4:] = -np.inf
DESCRIPTOR = RNG.normal(size=(24, 2)).astype(np.float32)
DESCRIPTOR[-2:] = np.nan
LOW, HIGH = np.float32([-1.0, -0.5]), np.float32([1.0, 1.5])
RULES = ("ns", "dns", "lqd-fn", "lqd-f-paper")
KEY = jax.random.key(0)


def scores(rule, descriptor=DESCRIPTOR):
    return np.asarray(jax.jit(lambda rule, descriptor: rule(KEY, FITNESS, descriptor))(rule, descriptor))


@pytest.mark.parametrize("name", ["ns", "dns", "lqd-fn"])
@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("outside", ["edge", "free"])
@pytest.mark.parametrize("scale", [[2.0**20, 1], [2.0**-20, 2.0**20]])
def test_a_descriptor_in_other_units_gives_the_same_bits(name, bounded, outside, scale):
    rule, scale = lqd.rule(name), np.float32(scale)
    plain, other = (
        scores(in_units(rule, (LOW * unit, HIGH * unit) if bounded else None, outside), DESCRIPTOR * unit)
        for unit in (np.float32(1), scale)
    )
    np.testing.assert_array_equal(plain, other)
    assert np.isneginf(plain[-4:]).all()
    assert not np.isnan(plain).any()


def test_outside_counts_as_at_the_edge_or_as_it_is():
    rule = lqd.rule("ns")
    shares = (DESCRIPTOR - LOW) / (HIGH - LOW)
    free = scores(InBounds(rule, jnp.asarray(LOW), jnp.asarray(HIGH), at_edge=False))
    np.testing.assert_allclose(free, scores(rule, shares), rtol=1e-5)
    edge = scores(InBounds(rule, jnp.asarray(LOW), jnp.asarray(HIGH)))
    np.testing.assert_allclose(edge, scores(rule, np.clip(shares, 0, 1)), rtol=1e-5)
    far = DESCRIPTOR.copy()
    far[far > 1.6] *= 1e6  # beyond, it is the same wherever
    np.testing.assert_array_equal(edge, scores(InBounds(rule, jnp.asarray(LOW), jnp.asarray(HIGH)), far))


def test_spread_is_of_those_present_and_robust():
    there = np.isfinite(FITNESS)
    low, high = map(np.asarray, robust_range(jnp.asarray(DESCRIPTOR), jnp.asarray(there)))
    ordered = np.sort(DESCRIPTOR[there], axis=0)
    np.testing.assert_array_equal(low, ordered[0])  # of 20, the outermost belong to it
    np.testing.assert_array_equal(high, ordered[-1])
    many = RNG.normal(size=(200, 1)).astype(np.float32)
    many[:5] = 1e30
    low, high = robust_range(jnp.asarray(many), jnp.ones(200, bool))
    assert 2 < float(high[0] - low[0]) < 5


@pytest.mark.parametrize("descriptor", [
    np.zeros((24, 2)), np.full((24, 2), 3e38), np.where(np.arange(48).reshape(24, 2) % 2, 3e38, -3e38),
    np.where(np.arange(24)[:, None] == 3, 1e38, 1e-30 * RNG.normal(size=(24, 2))),
    np.where(np.arange(24)[:, None] == 3, 1.0, np.zeros((24, 2))),
], ids=["zero", "large", "opposite", "one far away", "one apart"])  # fmt: skip
@pytest.mark.parametrize("name", RULES)
def test_strange_spreads_are_safe(name, descriptor):
    found = scores(BySpread(lqd.rule(name)), descriptor.astype(np.float32))
    assert not np.isnan(found).any()
    assert (found[:-4] > -np.inf).all()


def test_only_rules_of_distances_see_units():
    for name in RULES:
        assert isinstance(in_units(lqd.rule(name), None, "edge"), BySpread)
        assert isinstance(in_units(lqd.rule(name), (LOW, HIGH), "edge"), InBounds)
    own = lqd.rules.protocol.FunctionRule(lambda key, fitness, descriptor: fitness)
    for rule in (lqd.rule("ga"), lqd.rule("random"), lqd.rule("me", descriptor_bounds=([0, 0], [1, 1])), own):
        assert in_units(rule, (LOW, HIGH), "edge") is rule


def test_what_a_rule_offers_is_offered_on():
    for rule in (in_units(lqd.rule("lqd-f-paper"), bounds, "edge") for bounds in (None, (LOW, HIGH))):
        with pytest.raises(lqd.InvalidInput, match="reads descriptors of 2 dimensions"):
            rule.check(3)
        rule.check(2)
        np.testing.assert_array_equal(scores(scaled.protocol.ready(rule)), scores(rule))
    in_units(lqd.rule("ns"), None, "edge").check(7)
    assert in_units(lqd.rule("ns"), (LOW, HIGH), "free").ready().at_edge is False


@pytest.mark.parametrize("bounds", [None, (LOW, HIGH)])
def test_the_kernel_runs_inside(bounds, monkeypatch):
    """One launch for many populations, as without units."""
    rule = in_units(lqd.rule("lqd-fn"), bounds, "edge")
    plain = scores(rule)
    monkeypatch.setenv("LQD_KERNEL", "interpret")
    kernel = scaled.protocol.ready(rule)
    assert kernel.rule.packed is not None
    mapped = jax.jit(jax.vmap(lambda descriptor: kernel(KEY, FITNESS, descriptor)))(np.stack([DESCRIPTOR] * 2))
    np.testing.assert_allclose(mapped[0], plain, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(mapped[0], mapped[1])
