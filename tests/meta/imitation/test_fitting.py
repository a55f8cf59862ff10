"""Imitation: targets and agreement by hand and by scipy, populations, and training that learns and resumes."""

import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from lqd.errors import InvalidInput
from lqd.meta.imitation import agreement, fitting, populations, settings, teachers
from lqd.meta.imitation.settings import Imitation
from lqd.rules.learned import network
from lqd.rules.learned.network import Architecture
from lqd.rules.learned.rule import Learned

INF = np.inf
SMALL = Architecture(num_layers=2, num_features=8, num_heads=2, num_hidden=8)
CONFIG = Imitation(
    num_synthetic_rounds=3,
    num_own_rounds=2,
    steps_per_round=60,
    num_populations=8,
    num_at_once=4,
    num_warmup_steps=10,
    synthetic_size=24,
    population_size=24,
    batch_size=8,
    num_generations=12,
    num_snapshots=4,
    num_per_function=2,
    functions=("sphere", "linear_slope"),
    num_held_out=32,
)
KEY = jax.random.key(0)
START = fitting.prepared(network.init_params(KEY, SMALL))


def standardised(values):
    values = np.asarray(values, np.float64)
    return (values - values.mean()) / values.std()


@pytest.fixture(scope="module")
def held_out():
    return fitting.held_out(jax.random.key(99), CONFIG, "ns", SMALL)


@pytest.fixture(scope="module")
def rounds(held_out):
    """States and measures of all rounds, the start first."""
    states, measures = [fitting.init(START)], []
    for number in range(CONFIG.num_rounds):
        state, measured = fitting.run_round(KEY, states[-1], number, CONFIG, "ns", SMALL, held_out)
        states.append(state)
        measures.append({name: float(value) for name, value in measured.items()})
    return states, measures


def teacher(name, population_size=4):
    return teachers.teacher_rule(name, population_size, 2)


def test_ranks_share_ties_and_leave_out_empty_slots():
    scores = jnp.array([2.0, INF, 2.0, 5.0, -INF, 9.0], jnp.float32)
    filled = jnp.array([True, True, True, True, True, False])
    np.testing.assert_array_equal(teachers.ranks(scores, filled), [1.5, 4.0, 1.5, 3.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ga", [3, 1.5, 1.5, 0]),
        ("ns", [2, 0.5, 0.5, 3]),  # mean distances 11/3, 9/3, 9/3, 17/3
        ("dns", [3, 0, 1, 2]),  # nobody is fitter than the first; the others: 1, 3, 17/3
    ],
)
def test_targets_by_hand(name, expected):
    """On a line at 0, 1, 3 and 7, with an empty slot far away; the second and third are equally fit."""
    descriptor = jnp.array([[0.0, 0], [1.0, 0], [3.0, 0], [100.0, 0], [7.0, 0]], jnp.float32)
    fitness = jnp.array([4.0, 3.0, 3.0, -INF, 1.0], jnp.float32)
    target = np.asarray(teachers.targets(teacher(name), fitness, descriptor))
    np.testing.assert_allclose(target[[0, 1, 2, 4]], standardised(expected), atol=1e-6)
    assert target[3] == 0


def test_map_elites_ties_all_but_the_elites_at_the_bottom():
    cells = teacher("me").centroids
    assert cells.shape == (4, 2)
    descriptor = jnp.stack([cells[0], cells[0], cells[1], cells[2], cells[2]])
    fitness = jnp.array([1.0, 2.0, 0.5, 3.0, -INF], jnp.float32)
    target = np.asarray(teachers.targets(teacher("me"), fitness, descriptor))
    np.testing.assert_allclose(target[:4], standardised([0, 2, 1, 3]), atol=1e-6)
    everyone = jnp.stack([cells[0]] * 5)
    target = np.asarray(teachers.targets(teacher("me"), fitness, everyone))
    np.testing.assert_allclose(target[:4], standardised([1, 1, 1, 3]), atol=1e-6)


def test_all_equal_and_all_empty_give_targets_of_zero():
    for fitness in (jnp.ones(4, jnp.float32), jnp.full(4, -INF, jnp.float32)):
        np.testing.assert_array_equal(teachers.targets(teacher("ns"), fitness, jnp.ones((4, 2), jnp.float32)), 0)


@pytest.mark.parametrize("name", teachers.TEACHERS)
def test_agreement_equals_scipy_and_a_count_of_survivors(name):
    fitness, descriptor = populations.synthetic(jax.random.key(3), 40, 20, 2)
    descriptor = descriptor.at[:, 5].set(descriptor[:, 4])  # a tie
    student, rule = Learned(START, SMALL), teacher(name, 12)
    found = agreement.agreement(START, SMALL, rule, fitness, descriptor, 12)
    ours, theirs = (np.asarray(jax.vmap(rule, (None, 0, 0))(None, fitness, descriptor)) for rule in (student, rule))

    def best(scores):
        return {j for j in np.argsort(-scores, kind="stable")[:12] if scores[j] > -INF}

    for i, filled in enumerate(np.asarray(fitness) > -INF):
        expected = scipy.stats.spearmanr(ours[i, filled], theirs[i, filled]).statistic
        np.testing.assert_allclose(found["spearman"][i], expected, atol=2e-5)
        share = len(best(ours[i]) & best(theirs[i])) / len(best(theirs[i]))
        np.testing.assert_allclose(found["kept"][i], share, atol=1e-6)


def test_a_rule_agrees_with_itself():
    fitness, descriptor = populations.synthetic(jax.random.key(4), 20, 20, 2)
    rule = Learned(START, SMALL)
    found = agreement.agreement(rule.params, SMALL, rule, fitness, descriptor, 12)
    np.testing.assert_allclose(found["spearman"], 1, atol=1e-5)
    np.testing.assert_array_equal(found["kept"], 1)


@pytest.mark.parametrize("descriptor_dim", [1, 2, 5])
def test_synthetic_populations(descriptor_dim):
    fitness, descriptor = populations.synthetic(jax.random.key(1), 300, 40, descriptor_dim)
    again, _ = populations.synthetic(jax.random.key(1), 300, 40, descriptor_dim)
    np.testing.assert_array_equal(fitness, again)
    assert descriptor.shape == (300, 40, descriptor_dim)
    assert np.isfinite(descriptor).all()
    empty = np.asarray(fitness) == -INF
    assert not np.isnan(fitness).any()
    assert np.isfinite(np.asarray(fitness)[~empty]).all()
    assert 0.05 < np.mean(empty.any(axis=1)) < 0.17
    assert np.mean(np.abs(descriptor) <= 1) > 0.95
    # From clouds to tight clusters: the width of the middle half spans orders of magnitude.
    width = np.asarray(scipy.stats.iqr(descriptor[..., 0], axis=1))
    assert np.quantile(width, 0.05) < 0.02
    assert np.quantile(width, 0.9) > 0.2
    assert any(len(np.unique(one, axis=0)) < 40 for one in np.asarray(descriptor))


def test_fitness_of_synthetic_populations_depends_on_the_descriptor():
    fitness, descriptor = map(np.asarray, populations.synthetic(jax.random.key(2), 200, 60, 2))

    def neighbours_alike(f, d):
        keep = f > -INF
        f, d = scipy.stats.rankdata(f[keep]), d[keep]
        nearest = np.argmin(np.linalg.norm(d[:, None] - d, axis=-1) + 1e9 * np.eye(len(d)), axis=1)
        return np.corrcoef(f, f[nearest])[0, 1]

    alike = [neighbours_alike(f, d) for f, d in zip(fitness, descriptor, strict=True)]
    assert 0.2 < np.mean(alike) < 0.9


def test_snapshots_are_dense_at_the_start_and_end_with_the_last_generation():
    kept = populations.snapshots(256, 16)
    assert kept[0] == 0
    assert kept[-1] == 255
    assert list(kept) == sorted(set(kept))
    assert populations.snapshots(3, 16) == (0, 1, 2)


def test_runs_give_the_populations_that_competed(held_out):
    fitness, descriptor = map(np.asarray, held_out["runs"])
    assert fitness.shape == (4 * 4, 32)  # four snapshots of two tasks for each of two functions
    assert np.isfinite(descriptor).all()
    assert np.mean(np.abs(descriptor) <= 1) > 0.9
    scores = jax.vmap(teacher("ns"), (None, 0, 0))(None, *held_out["runs"])
    assert populations.snapshots(CONFIG.num_generations, CONFIG.num_snapshots)[:2] == (0, 1)
    for task in range(4):  # the best of the first generation are the incumbents of the second
        best = np.argsort(-np.asarray(scores[task]), kind="stable")[:24]
        np.testing.assert_array_equal(descriptor[4 + task, :24], descriptor[task, best])


def test_own_runs_follow_the_rule_that_decides():
    def descriptors(params, is_own):
        return fitting.collect(KEY, params, jnp.bool(is_own), CONFIG, "ns", SMALL)[1]

    one, other = START, fitting.prepared(network.init_params(jax.random.key(1), SMALL))
    np.testing.assert_array_equal(descriptors(one, False), descriptors(other, False))  # the teacher's
    own, differently = descriptors(one, True), descriptors(other, True)
    np.testing.assert_array_equal(own[:4], differently[:4])  # nobody has competed yet
    assert not np.array_equal(own[-4:], differently[-4:])


def test_training_raises_the_agreement_on_held_out_populations(rounds, held_out):
    states, measures = rounds
    rule, params = teacher("ns", CONFIG.population_size), fitting.params_of(states[0])
    before = agreement.agreement(params, SMALL, rule, *held_out["synthetic"], CONFIG.population_size)
    assert abs(np.mean(before["spearman"])) < 0.35
    assert measures[-1]["spearman_synthetic"] > np.mean(before["spearman"]) + 0.3
    assert measures[-1]["spearman_runs"] > 0.2
    assert measures[-1]["kept_synthetic"] > np.mean(before["kept"])
    assert measures[2]["loss"] < measures[0]["loss"]


def test_rounds_of_a_kind_are_one_program(rounds):
    before = fitting.fit._cache_size()
    for number in (1, 4):
        fitting.run_round(KEY, rounds[0][number], number, CONFIG, "ns", SMALL)
    assert fitting.fit._cache_size() == before


@pytest.mark.parametrize("number", [1, 4])  # one synthetic round, one own round
def test_a_round_resumed_from_saved_arrays_gives_the_same_bits(rounds, number):
    states, _ = rounds
    saved = jax.tree.map(np.asarray, states[number])
    resumed, _ = fitting.run_round(KEY, jax.tree.map(jnp.asarray, saved), number, CONFIG, "ns", SMALL)
    jax.tree.map(np.testing.assert_array_equal, resumed, states[number + 1])


def test_state_is_a_plain_dictionary_of_float32_and_int32(rounds):
    state = rounds[0][-1]
    leaves = jax.tree_util.tree_leaves_with_path(state)
    assert all(isinstance(key, jax.tree_util.DictKey) for path, _ in leaves for key in path)
    assert {str(leaf.dtype) for _, leaf in leaves} == {"float32", "int32"}
    assert int(state["step"]) == CONFIG.num_rounds * CONFIG.steps_per_round
    assert all(np.isfinite(leaf).all() for _, leaf in leaves)


gradients = jax.jit(jax.vmap(jax.grad(fitting.loss_of_one), (None, None, 0, 0, 0)), static_argnums=1)


@pytest.mark.parametrize("name", teachers.TEACHERS)
def test_gradients_are_finite_whatever_the_population(name):
    fitness, descriptor = populations.synthetic(jax.random.key(6), 6, 10, 2)
    fitness = fitness.at[0].set(-INF)  # nobody
    fitness = fitness.at[1, 1:].set(-INF)  # a lone one
    descriptor, fitness = descriptor.at[2].set(0.5), fitness.at[2].set(1.0)  # all alike
    fitness = fitness.at[3, :7].set(-INF)
    x = jax.vmap(network.features)(fitness, descriptor)
    target = jax.vmap(lambda f, d: teachers.targets(teacher(name), f, d))(fitness, descriptor)
    gradient = gradients(START, SMALL.num_heads, x, fitness > -INF, target)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_the_loss_sees_neither_shift_nor_scale_but_the_order(monkeypatch):
    target = teachers.targets(teacher("ga"), jnp.arange(10, dtype=jnp.float32), jnp.zeros((10, 2), jnp.float32))

    def loss(scores):
        monkeypatch.setattr(network, "forward", lambda *_: scores)
        return float(fitting.loss_of_one({}, 1, None, jnp.ones(10, bool), target))

    assert abs(loss(target)) < 1e-3
    assert abs(loss(target + 7) - loss(target)) < 1e-5
    assert loss(1.2 * target) < 0.01
    assert abs(loss(-target) - 2) < 1e-3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_populations": 0}, "num_populations"),
        ({"num_populations": 10, "num_at_once": 4}, "multiple of num_at_once"),
        ({"steps_per_round": 2.5}, "steps_per_round"),
        ({"learning_rate": 0}, "learning_rate"),
        ({"synthetic_share": 1.5}, "synthetic_share"),
        ({"num_synthetic_rounds": 0, "num_own_rounds": 0}, "both"),
        ({"functions": ("spheer",)}, "sphere"),
    ],
)
def test_bad_settings_are_refused(change, message):
    with pytest.raises(InvalidInput, match=message):
        dataclasses.replace(CONFIG, **change)


def test_an_unknown_teacher_is_refused_with_the_choices():
    with pytest.raises(InvalidInput, match="'dns'"):
        teachers.teacher_rule("dnss", 4, 2)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "recipe", "synthetic", "runs"),
    [("ns", 1, 0.9, 0.8), ("dns", 1, 0.85, 0.7), ("ns", 2, 0.95, 0.95), ("dns", 2, 0.95, 0.95)],
)
def test_minutes_on_a_cpu_reach_the_goal(name, recipe, synthetic, runs):
    config, architecture = settings.CPU, Architecture(recipe=recipe)
    held_out = fitting.held_out(jax.random.key(99), config, name, architecture)
    state, began = fitting.init(fitting.prepared(network.init_params(KEY, architecture))), time.perf_counter()
    for number in range(config.num_rounds):
        state, measured = fitting.run_round(KEY, state, number, config, name, architecture, held_out)
    jax.block_until_ready(state)
    measured = {key: round(float(value), 3) for key, value in measured.items()}
    print(f"{name}: {time.perf_counter() - began:.0f} s, {measured}")
    assert measured["spearman_synthetic"] >= synthetic
    assert measured["spearman_runs"] >= runs
