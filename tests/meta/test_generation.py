"""A meta-generation against the same done member by member, and on several devices to the last bit."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lqd.evolution import compile_time
from lqd.meta import config as configs
from lqd.meta import generation, inner_run, presets
from lqd.meta.generation import EVOLVING, Generation
from lqd.rules.learned.network import Architecture
from lqd.rules.learned.rule import Learned


def begin(config):
    """The state that an evolution from random weights begins with."""
    flat = generation.flat_from(Learned.init(jax.random.key(0), config.architecture))
    state = generation.strategy_of(config, config.stages[0]).init(flat)
    return {name: np.asarray(value) for name, value in state.items()}


def on_host(states):
    return {name: np.asarray(value) for name, value in states[0].items()}


@pytest.fixture(scope="module")
def program(tiny):
    return Generation(tiny, tiny.stages[0])


@pytest.fixture(scope="module")
def first(program, tiny):
    """State and report after the first meta-generation."""
    states, report = program(program.place(begin(tiny)), 0)
    return on_host(states), {name: float(value) for name, value in report.items()}


@pytest.fixture(scope="module")
def by_hand(tiny):
    """The first meta-generation's members, what each measures when it runs alone, and the key for `tell`."""
    stage = tiny.stages[0]
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(np.uint32(tiny.seed)), EVOLVING), 0)
    key_ask, key_tasks, key_runs, _, key_tell = jax.random.split(key, 5)
    members = generation.strategy_of(tiny, stage).ask(key_ask, begin(tiny))
    tasks = tiny.distribution.sample(key_tasks, stage.num_tasks)
    keys = jax.random.split(key_runs, stage.num_tasks)

    @jax.jit
    def alone(member):
        rule = generation.rule_from(member, tiny.architecture)
        return inner_run.run_rule(rule, keys, tasks, tiny, jnp.int32(stage.num_generations), None)

    return members, alone, key_tell


def stacked(alone, members):
    measured = [alone(member) for member in members]
    return {name: jnp.stack([row[name] for row in measured]) for name in measured[0]}


def test_a_meta_generation_is_every_member_alone_on_the_same_tasks(first, by_hand, tiny):
    members, alone, key_tell = by_hand
    measured = stacked(alone, members)
    fitness = tiny.objective.meta_fitness(measured)
    assert np.unique(measured["fitness"][:, 0]).size > 1  # otherwise there would be nothing to tell apart
    strategy = generation.strategy_of(tiny, tiny.stages[0])
    expected = strategy.tell(key_tell, begin(tiny), members, fitness)
    state, report = first
    for name, value in expected.items():
        np.testing.assert_allclose(state[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
    assert report["meta_fitness_best"] == pytest.approx(float(fitness.max()), abs=1e-5)
    assert report["meta_fitness_spread"] == pytest.approx(float(fitness.std()), abs=1e-5)
    assert report["regret"] == pytest.approx(float(-np.median(measured["fitness"])), rel=1e-4)
    assert report["novelty"] == pytest.approx(float(np.median(measured["novelty"])), rel=1e-4)
    assert report["sigma"] == pytest.approx(float(strategy.sigma_of(expected)), rel=1e-4)
    assert report["mean_norm"] == pytest.approx(float(jnp.linalg.norm(expected["mean"])), rel=1e-4)
    assert report["num_failed"] == 0


def test_equal_members_tie(program, tiny):
    """Only the rule differs between members: tasks and random numbers are shared."""
    state = begin(tiny)
    _, report = program(program.place(state | {"std": np.zeros_like(state["std"])}), 0)
    assert float(report["meta_fitness_spread"]) == 0
    assert float(report["meta_fitness_best"]) == pytest.approx(0, abs=1e-6)
    assert float(report["num_failed"]) == 0


def test_other_meta_generations_have_other_tasks(program, tiny):
    state = begin(tiny)
    equal = state | {"std": np.zeros_like(state["std"])}
    regrets = {float(program(program.place(equal), number)[1]["regret"]) for number in range(3)}
    assert len(regrets) == 3


def test_the_seed_decides(program, first, tiny):
    again = on_host(program(program.place(begin(tiny)), 0)[0])
    other = on_host(Generation(dataclasses.replace(tiny, seed=1), tiny.stages[0])(program.place(begin(tiny)), 0)[0])
    np.testing.assert_array_equal(again["mean"], first[0]["mean"])
    assert (other["mean"] != first[0]["mean"]).any()


def test_the_chunk_size_bounds_memory_and_nothing_else(first, tiny):
    whole = dataclasses.replace(tiny, chunk_size=4)
    program = Generation(whole, whole.stages[0])
    state = on_host(program(program.place(begin(tiny)), 0)[0])
    for name, value in first[0].items():
        np.testing.assert_allclose(state[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_member_of_nan_loses_and_spoils_nothing(by_hand, tiny):
    members, alone, key_tell = by_hand
    spoiled = members.at[2].set(jnp.nan)
    measured = stacked(alone, spoiled)
    fitness = np.asarray(tiny.objective.meta_fitness(measured))
    assert np.isfinite(fitness).all()
    assert fitness[2] < np.delete(fitness, 2).min()
    healthy = stacked(alone, members)
    for name in measured:
        np.testing.assert_array_equal(np.delete(measured[name], 2, 0), np.delete(healthy[name], 2, 0))
    strategy = generation.strategy_of(tiny, tiny.stages[0])
    state = strategy.tell(key_tell, begin(tiny), members, fitness)
    assert all(np.isfinite(value).all() for value in state.values())


def test_members_that_fail_are_counted(program, tiny):
    state = begin(tiny)
    _, report = program(program.place(state | {"mean": np.full_like(state["mean"], np.nan)}), 0)
    assert float(report["num_failed"]) == tiny.stages[0].meta_population_size * tiny.stages[0].num_tasks
    assert float(report["meta_fitness_best"]) == pytest.approx(0, abs=1e-6)


def test_the_next_meta_generation_compiles_nothing(program, first, tiny):
    states, _ = program(program.place(first[0]), 1)
    with compile_time.Clock() as clock:
        for number in (2, 3):
            states, report = program(states, number)
            jax.block_until_ready((states, report))
    assert clock.num_programs == 0
    with compile_time.Clock() as clock:  # which does count
        jax.block_until_ready(jax.jit(functools.partial(jnp.add, 1))(jnp.arange(3)))
    assert clock.num_programs > 0


def test_weights_as_one_vector_and_back(tiny):
    architecture = Architecture(num_layers=2, num_features=4, num_heads=2, num_hidden=3)
    rule = Learned.init(jax.random.key(3), architecture)
    flat = generation.flat_from(rule)
    assert flat.shape == (generation.num_params(architecture),)
    again = generation.rule_from(flat, architecture)
    assert jax.tree.structure(again) == jax.tree.structure(rule)
    for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(rule), strict=True):
        np.testing.assert_array_equal(one, other)


DEVICES = """
import json, sys
import jax, numpy as np
from lqd.meta import config, generation
from lqd.rules.learned.rule import Learned
config = config.from_dict(json.loads(sys.argv[1]))
program = generation.Generation(config, config.stages[0])
flat = generation.flat_from(Learned.init(jax.random.key(0), config.architecture))
states = program.place(generation.strategy_of(config, config.stages[0]).init(flat))
for number in range(3):
    states, report = program(states, number)
assert len(states) == jax.device_count()
for state in states:
    for name in state:
        np.testing.assert_array_equal(state[name], states[0][name])
np.savez(sys.argv[2], **states[0], **{f"report.{name}": value for name, value in report.items()})
"""


@pytest.mark.slow
def test_four_devices_give_the_bits_of_one(tiny, tmp_path, start_python):
    # Plain tasks: what takes time here is that each device compiles the programs for itself.
    plain = {"functions": ("sphere",), "noise": False, "rotate": False}
    config = presets.override(tiny, plain | {"meta_population_size": 8})
    config = json.dumps(configs.to_dict(config))
    running = {num: start_python(DEVICES, config, tmp_path / f"{num}.npz", num_devices=num) for num in (1, 4)}
    for process in running.values():
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors
    one, four = (np.load(tmp_path / f"{num}.npz") for num in (1, 4))
    assert set(one) == set(four) >= {"mean", "std", "report.sigma"}
    for name in one:
        np.testing.assert_array_equal(one[name], four[name], err_msg=name)
