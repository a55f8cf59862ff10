"""Every strategy climbs, is pure, and carries a state of plain arrays; Sep-CMA-ES has the rates of its paper."""

import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from lqd.errors import InvalidInput
from lqd.io import files
from lqd.meta.strategy import NAMES, Strategy

pytest.importorskip("evosax", reason="the extra lqd[train]")

x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
OPTIMUM = 1.0


def strategy(name, num_members=16, num_params=20, sigma=0.3, learning_rate=0.03):
    return Strategy(name, num_members, num_params, sigma, learning_rate)


def sphere(members):
    return -jnp.square(members - OPTIMUM).sum(axis=-1)


def generation(strategy, key, state, fitness_of=sphere):
    key_ask, key_tell = jax.random.split(key)
    members = strategy.ask(key_ask, state)
    return strategy.tell(key_tell, state, members, fitness_of(members))


@functools.partial(jax.jit, static_argnums=0)
def climb(strategy, num_generations, key, state, scale=1.0, spoiled=0.0):
    """On the sphere, times `scale` (0: all are equal), plus `spoiled` (NaN or -inf: of all or of some members)."""

    def step(index, state):
        return generation(strategy, jax.random.fold_in(key, index), state, lambda x: scale * sphere(x) + spoiled)

    return jax.lax.fori_loop(0, num_generations, step, state)


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.parametrize("name", NAMES)
def test_climbs_the_sphere(name):
    search = strategy(name)
    start = search.init(jnp.zeros(20))
    end = climb(search, 300, jax.random.key(0), start)
    assert float(sphere(search.mean(start))) == -20
    assert float(sphere(search.mean(end))) > -0.02


@pytest.mark.parametrize("name", NAMES)
def test_the_mean_moves_towards_the_fittest_member(name):
    search = strategy(name, num_members=2, num_params=4)
    state = search.init(jnp.zeros(4))
    members = jnp.full((2, 4), 0.3) * jnp.array([[1.0], [-1.0]])
    for fitness, sign in (([1.0, 0.0], 1), ([0.0, 1.0], -1)):
        after = search.tell(jax.random.key(0), state, members, jnp.array(fitness))
        assert (sign * np.asarray(search.mean(after)) > 0.01).all()


@pytest.mark.parametrize("name", NAMES)
def test_two_members_are_enough(name):
    search = strategy(name, num_members=2, num_params=4)
    end = climb(search, 500, jax.random.key(0), search.init(jnp.zeros(4)))
    assert float(sphere(search.mean(end))) > -0.4


@pytest.mark.parametrize("name", NAMES)
def test_the_state_is_a_dictionary_of_plain_arrays_before_and_after(name):
    search = strategy(name)
    start = search.init(jnp.ones(20))
    after = generation(search, jax.random.key(0), start)
    assert type(start) is type(after) is dict
    assert {k: (v.shape, v.dtype) for k, v in start.items()} == {k: (v.shape, v.dtype) for k, v in after.items()}
    for value in (*start.values(), *after.values()):
        assert isinstance(value, jax.Array)
        assert value.dtype in (jnp.float32, jnp.int32)
        assert not value.weak_type
        assert np.isfinite(value).all()
    assert int(after["generation_counter"]) == 1


@pytest.mark.parametrize("name", NAMES)
def test_goes_on_from_a_file(name, tmp_path):
    search = strategy(name)
    state = climb(search, 5, jax.random.key(0), search.init(jnp.zeros(20)))
    files.write_arrays(tmp_path / "s", "state", {k: np.asarray(v) for k, v in state.items()}, {})
    restored = {k: jnp.asarray(v) for k, v in files.read_arrays(tmp_path / "s", "state")[0].items()}
    again, undisturbed = (climb(search, 5, jax.random.key(1), s) for s in (restored, state))
    assert_same(again, undisturbed)


@pytest.mark.parametrize("name", NAMES)
def test_the_number_of_members_may_change(name):
    few, many = strategy(name), strategy(name, num_members=64)
    state = climb(few, 20, jax.random.key(0), few.init(jnp.zeros(20)))
    assert jax.eval_shape(many.ask, jax.random.key(1), state).shape == (64, 20)
    end = climb(many, 200, jax.random.key(2), state)
    assert float(sphere(many.mean(end))) > -0.02
    assert int(end["generation_counter"]) == 220


@pytest.mark.parametrize("name", NAMES)
def test_same_key_same_result_and_other_key_another(name):
    search = strategy(name)
    state = search.init(jnp.zeros(20))
    one, same, other = (generation(search, jax.random.key(seed), state) for seed in (3, 3, 4))
    assert_same(one, same)
    assert (np.asarray(one["mean"]) != np.asarray(other["mean"])).any()
    assert search == strategy(name)
    assert hash(search) == hash(strategy(name))


@pytest.mark.parametrize("name", NAMES)
def test_jit_and_shard_map_equal_eager(name):
    search = strategy(name)
    state, key = search.init(jnp.zeros(20)), jax.random.key(0)
    step = functools.partial(generation, search)
    mesh, everywhere = jax.make_mesh((1,), ("members",)), PartitionSpec()
    sharded = jax.shard_map(step, mesh=mesh, in_specs=(everywhere, everywhere), out_specs=everywhere)
    key_first = jax.random.fold_in(key, 0)
    eager = step(key_first, state)
    for compiled in (climb(search, 1, key, state), jax.jit(sharded)(key_first, state)):
        for field in eager:
            np.testing.assert_allclose(compiled[field], eager[field], rtol=1e-5, atol=1e-6, err_msg=field)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_leaks_when_first_used_while_tracing(name):
    search = strategy(name, sigma=0.123)  # which no other test builds
    with jax.checking_leaks():
        jax.eval_shape(lambda key: generation(search, key, search.init(jnp.zeros(20))), jax.random.key(0))
    assert float(search.sigma_of(search.init(jnp.zeros(20)))) == pytest.approx(0.123)
    again = jax.eval_shape(functools.partial(generation, search), jax.random.key(0), search.init(jnp.zeros(20)))
    assert again["mean"].shape == (20,)


@pytest.mark.parametrize("name", NAMES)
def test_the_state_is_float32_in_64_bit_mode(name):
    with x64(True):
        search = strategy(name, sigma=0.456)  # built in this mode
        state = search.init(np.zeros(20))
        after = jax.eval_shape(functools.partial(generation, search), jax.random.key(0), state)
        members = jax.eval_shape(search.ask, jax.random.key(0), state)
    assert {v.dtype for v in (*state.values(), *after.values())} == {jnp.dtype("float32"), jnp.dtype("int32")}
    assert members.dtype == jnp.float32


SOME = np.arange(16) % 3 == 0
POOR = {
    "all equal": (0.0, np.zeros(16)),
    "some failed": (1.0, np.where(SOME, np.nan, 0)),
    "some infeasible": (1.0, np.where(SOME, -np.inf, 0)),
    "all failed": (1.0, np.full(16, np.nan)),
    "all infeasible": (1.0, np.full(16, -np.inf)),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", POOR)
def test_poor_fitness_leaves_the_state_finite(name, case):
    scale, spoiled = POOR[case]
    search = strategy(name)
    end = climb(search, 50, jax.random.key(0), search.init(jnp.zeros(20)), scale, jnp.float32(spoiled))
    assert all(np.isfinite(value).all() for value in end.values())
    assert float(search.sigma_of(end)) > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_failed_member_counts_as_the_worst(name):
    search = strategy(name)
    state = search.init(jnp.zeros(20))
    members = search.ask(jax.random.key(0), state)
    fitness = jnp.arange(16.0).at[5]
    failed, worst = (search.tell(jax.random.key(0), state, members, fitness.set(value)) for value in (jnp.nan, -1.0))
    assert_same(failed, worst)


def test_step_size_by_hand():
    for name in NAMES:
        search = strategy(name, num_params=3)
        assert float(search.sigma_of(search.init(jnp.zeros(3)))) == pytest.approx(0.3)
    search = strategy("sep-cma-es", num_params=3)
    state = search.init(jnp.zeros(3)) | {"std": jnp.float32(2.0), "C": jnp.array([1.0, 4.0, 22.0])}
    assert float(search.sigma_of(state)) == pytest.approx(2 * 3)
    search = strategy("snes", num_params=3)
    assert float(search.sigma_of(search.init(jnp.zeros(3)) | {"std": jnp.array([1.0, 2.0, 6.0])})) == pytest.approx(3)


def test_members_have_the_spread_of_the_step_size():
    for name in NAMES:
        search = strategy(name)
        members = np.asarray(search.ask(jax.random.key(0), search.init(jnp.full(20, 7.0))))
        assert members.mean() == pytest.approx(7, abs=0.05)
        assert members.std() == pytest.approx(0.3, rel=0.15)


def test_members_of_open_es_come_in_pairs_around_the_mean():
    search = strategy("open-es")
    members = search.ask(jax.random.key(0), search.init(jnp.ones(20)))
    np.testing.assert_allclose(members[:8] + members[8:], 2, rtol=1e-5)


def test_the_stock_strategy_is_evosax_own_loop():
    from evosax.algorithms import Sep_CMA_ES

    search, keys = strategy("sep-cma-es-stock"), jax.random.split(jax.random.key(0), (10, 2))
    state = search.init(jnp.zeros(20))
    with jax.numpy_dtype_promotion("standard"):
        theirs = Sep_CMA_ES(16, jnp.zeros(20))
        params = theirs.default_params.replace(std_init=jnp.float32(0.3))
        reference = theirs.init(jax.random.key(0), jnp.zeros(20), params)
        for key_ask, key_tell in keys:
            members, reference = theirs.ask(key_ask, reference, params)
            reference, _ = theirs.tell(key_tell, members, -sphere(members), reference, params)
    for key_ask, key_tell in keys:
        members = search.ask(key_ask, state)
        state = search.tell(key_tell, state, members, sphere(members))
    for name in ("mean", "std", "C", "p_c", "p_std"):
        np.testing.assert_allclose(state[name], getattr(reference, name), rtol=1e-5, atol=1e-6, err_msg=name)


def test_the_corrected_rates_learn_a_badly_scaled_function():
    weights = 10 ** jnp.linspace(0.0, 6.0, 100)

    def ellipsoid(members):
        return -(weights * jnp.square(members)).sum(axis=-1)

    loss = {}
    for name in ("sep-cma-es", "sep-cma-es-stock"):
        search = strategy(name, num_members=32, num_params=100)

        def step(index, state, search=search):
            return generation(search, jax.random.key(index), state, ellipsoid)

        end = jax.jit(lambda state, step=step: jax.lax.fori_loop(0, 1500, step, state))(search.init(jnp.ones(100)))
        loss[name] = -float(ellipsoid(search.mean(end)))
    assert loss["sep-cma-es"] < 1e-6
    assert loss["sep-cma-es-stock"] > 1


def test_the_covariance_keeps_no_negative_share():
    search = strategy("sep-cma-es", num_members=64, num_params=2)  # few parameters, many members: the rates reach 1
    members = jnp.zeros((64, 2))  # no spread at all: only the old covariance's share remains
    after = search.tell(jax.random.key(0), search.init(jnp.zeros(2)), members, jnp.zeros(64))
    assert (np.asarray(after["C"]) >= 0).all()
    assert (np.asarray(after["C"]) < 1).all()


def test_another_state_key_and_equal_strategy_compile_nothing_new():
    state = climb(strategy("sep-cma-es"), 1, jax.random.key(0), strategy("sep-cma-es").init(jnp.zeros(20)))
    before = climb._cache_size()
    for seed in range(3):
        state = climb(strategy("sep-cma-es"), seed, jax.random.key(seed), state)
    assert climb._cache_size() == before


BAD = {
    "name": ({"name": "sep-cma"}, "unknown strategy 'sep-cma'. Did you mean 'sep-cma-es'"),
    "members": ({"num_members": 1}, r"meta_population_size \(num_members\) must be .* at least 2, got 1"),
    "odd": ({"name": "open-es", "num_members": 7}, "meta_population_size .* even for 'open-es'.* got 7; use 8"),
    "params": ({"num_params": 0}, "num_params must be .* at least 1"),
    "sigma": ({"sigma": 0.0}, "sigma must be a finite number above 0, got 0.0"),
    "rate": ({"learning_rate": float("nan")}, "learning_rate must be .* got nan"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_settings(case):
    settings, message = BAD[case]
    with pytest.raises(InvalidInput, match=message):
        strategy(**{"name": "snes"} | settings)


def test_bad_arrays():
    search = strategy("snes", num_members=4, num_params=3)
    state, members, key = search.init(jnp.zeros(3)), jnp.zeros((4, 3)), jax.random.key(0)
    with pytest.raises(InvalidInput, match=r"mean must have shape \(3,\), got \(2,\)"):
        search.init(jnp.zeros(2))
    with pytest.raises(InvalidInput, match=r"members must have shape \(4, 3\), got \(3, 3\)"):
        search.tell(key, state, members[:3], jnp.zeros(4))
    with pytest.raises(InvalidInput, match=r"fitness must have shape \(4,\), got \(4, 1\)"):
        search.tell(key, state, members, jnp.zeros((4, 1)))
    with pytest.raises(InvalidInput, match="the state belongs to another strategy"):
        search.ask(key, strategy("open-es", num_members=4, num_params=3).init(jnp.zeros(3)))
    with pytest.raises(InvalidInput, match="the state belongs to another strategy"):
        search.ask(key, strategy("snes", num_params=4).init(jnp.zeros(4)))


def test_a_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "evosax", None)
    monkeypatch.setitem(sys.modules, "evosax.algorithms", None)
    with pytest.raises(InvalidInput, match=r"needs evosax .*pip install 'lqd\[train\]'"):
        strategy("snes")
