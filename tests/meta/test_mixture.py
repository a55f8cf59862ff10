"""Runs on several families and shapes: how tasks are shared out, what is drawn, what is compiled, who is the same."""

import collections
import dataclasses
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lqd
from lqd.errors import InvalidInput
from lqd.evolution import compile_time
from lqd.meta import config as configs
from lqd.meta import families, generation, inner_run, mixture, presets
from lqd.meta.generation import Generation
from lqd.meta.mixture import Shape
from lqd.meta.tasks import Distribution

SHAPES = ("population_size=6 num_generations=2,3", "descriptor_dim=3")
PLAIN = Distribution(("sphere",), max_dim=4, noise=False, rotate=False)


def quarter(parameters, x):
    return -jnp.sum((x - parameters) ** 2, axis=-1), x[:, :2]


def place(key):
    return jax.random.uniform(key, (3,))


def own(**changes):
    """A family that nobody has seen before."""
    about = {"dim": 3, "bounds": (0, 1), "descriptor_bounds": (0, 1), "name": "quarter"} | changes
    return lqd.task_family(quarter, place, **about)


@pytest.fixture(scope="module")
def mixed(tiny):
    settings = {"tasks": [PLAIN, (own(), 2)], "shapes": SHAPES, "num_tasks": 3, "recipe": 2, "num_heads": 4}
    config = presets.override(tiny, settings | {"validation_tasks": 3})
    config.check()
    return config


# --- what the user gives ---


def test_shapes_in_words_or_not():
    expected = (Shape(64, 16, (64, 256)), Shape(descriptor_dim=4))
    assert mixture.shapes(["population-size=64 batch_size=16 num_generations=64,2_56", "descriptor_dim=4"]) == expected
    named = [{"population_size": 64, "batch_size": 16, "num_generations": [64, 256]}, expected[1]]
    assert mixture.shapes(named) == expected
    assert mixture.shapes(list(map(str, expected))) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", "a shape says at least one of population_size"),
        ("size=3", "unknown word of shapes 'size'"),
        ({"size": 3}, "unknown field of a shape 'size'"),
        ("batch_size=two", "batch_size must be a whole number, got 'two'"),
        ("batch_size=2,3", "batch_size must be one number, got '2,3'; give several shapes"),
        ("batch_size=2 batch_size=3", "batch_size is given twice"),
        ("population_size=1", "population_size must be a whole number of at least 2"),
        ("num_generations=0", "num_generations must be a whole number of at least 1"),
        ("descriptor_dim=9", "descriptor_dim must be at most 8"),
        (["batch_size=2", "batch_size=2"], "must be different from each other"),
        (7, "shapes must be a list of shapes, got 7"),
    ],
)
def test_bad_shapes(given, message):
    with pytest.raises(InvalidInput, match=message):
        mixture.shapes(given)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tasks": "bbob,arm-small"}, "validation_tasks=4 cannot be divided"),
        (
            {"tasks": "arm-small", "functions": ("sphere",)},
            "functions must be given to the family: .* has arm-small",
        ),
        ({"shapes": "descriptor_dim=3"}, r"recipe 1 is tied to one number of descriptors, and these tasks have 2, 3"),
        ({"tasks": "arm-small", "shapes": "descriptor_dim=3", "recipe": 2, "num_heads": 4}, "arm-small is fixed"),
        ({"tasks": []}, "tasks must have at least one family"),
    ],
)
def test_what_does_not_fit(tiny, settings, message):
    with pytest.raises(InvalidInput, match=message):
        presets.override(tiny, settings)


def test_bbob_alone_is_the_run_it_always_was(tiny):
    other = dataclasses.replace(tiny, distribution=Distribution(("sphere", "ellipsoidal")))
    again = presets.override(other, {"tasks": tiny.distribution})
    assert again == tiny
    assert "tasks" not in configs.to_dict(again)
    assert set(configs.to_dict(again)["stages"][0]) == set(configs.STAGE_NUMBERS)


def test_an_objective_that_needs_the_optimum_is_refused_where_it_is_not_known(tiny):
    with pytest.raises(InvalidInput, match="'quarter': its tasks do not say their best fitness"):
        presets.override(tiny, {"tasks": own(), "objective": "qd"}).check()
    presets.override(tiny, {"tasks": own(), "objective": "archive"}).check()
    presets.override(tiny, {"tasks": own(f_opt=0.0), "objective": "qd"}).check()
    with pytest.raises(InvalidInput, match="'quarter': its tasks have no bounds"):
        presets.override(tiny, {"tasks": own(bounds=None)}).check()


# --- what is drawn ---


def test_shapes_and_horizons_are_drawn_by_the_number_and_the_seed():
    shapes = mixture.shapes(["batch_size=2 num_generations=4,5", "batch_size=3", "batch_size=4"])
    found = [mixture.drawn(shapes, 9, 7, number) for number in range(600)]
    assert found[:100] == [mixture.drawn(shapes, 9, 7, number) for number in range(100)]
    assert found != [mixture.drawn(shapes, 9, 8, number) for number in range(600)]
    count = collections.Counter((shape.batch_size, horizon) for shape, horizon in found)
    assert count.keys() == {(2, 4), (2, 5), (3, 9), (4, 9)}
    np.testing.assert_allclose(sorted(count.values()), [100, 100, 200, 200], atol=40)
    assert mixture.drawn((), 9, 7, 0) == (Shape(), 9)


def test_descriptors_are_as_many_as_the_shape_says_where_that_is_a_setting():
    shape = Shape(descriptor_dim=5)
    for name, expected in (("bbob", 5), ("bbob-wide", 5), ("noisy-bbob-wide", 5), ("arm-small", 2)):
        family = mixture.reshaped(families.make(name), shape)
        assert family.descriptor_dim == expected
        assert mixture.reshaped(families.make(name), Shape()) == families.make(name)
    assert mixture.reshaped(own(), shape).descriptor_dim == 2


def test_no_two_families_share_a_key():
    keys = generation._keys_of(np.uint32(3), np.int32(4))
    of_parts = [jax.random.key_data(generation.keys_of_part(keys, number)) for number in range(3)]
    np.testing.assert_array_equal(of_parts[0], jax.random.key_data(keys))
    folded = [jax.random.key_data(jax.vmap(lambda key, i=i: jax.random.fold_in(key, i))(keys)) for i in range(60)]
    found = np.concatenate([*of_parts, *folded])
    assert len(np.unique(found, axis=0)) == len(found)


# --- meta-generations ---


@pytest.fixture(scope="module")
def run(mixed):
    """Some meta-generations: how many programs each compiled, the shapes, the last state, the reports."""
    before = [part._cache_size() for part in (generation.prepare, generation.prepare_further, generation.run_chunk)]
    program = Generation(mixed, mixed.stages[0])
    flat = np.ones(generation.num_params(mixed.architecture), np.float32)
    state = generation.strategy_of(mixed, mixed.stages[0]).init(flat)
    states = program.place({name: np.asarray(value) for name, value in state.items()})
    compiled, shapes, reports = [], [], []
    for number in range(12):
        with compile_time.Clock() as clock:
            states, report = program(states, number)
            jax.block_until_ready((states, report))
        compiled.append(clock.num_programs)
        shapes.append(mixture.drawn(mixed.stages[0].shapes, 3, mixed.seed, number))
        reports.append({name: float(value) for name, value in report.items()})
    after = [part._cache_size() for part in (generation.prepare, generation.prepare_further, generation.run_chunk)]
    return compiled, shapes, np.subtract(after, before), reports


def test_each_family_and_shape_is_one_program(run):
    """Another horizon compiles nothing, and what prepares tasks depends on the family and its descriptors alone."""
    compiled, shapes, programs, _ = run
    assert len(set(shapes)) == 3  # two horizons of one shape, one of the other: all were met
    first = {shape for shape, _ in shapes}
    assert programs.tolist() == [2, 1, 4]
    new = [shape not in {s for s, _ in shapes[:number]} for number, (shape, _) in enumerate(shapes)]
    assert sum(new) == len(first) == 2
    assert [num > 0 for num in compiled] == new


def test_every_member_meets_tasks_of_all_families(run, mixed):
    assert all(report["num_failed"] == 0 for report in run[3])
    assert all(report["meta_fitness_spread"] > 0 for report in run[3])
    assert mixed.divided("num_tasks", 3) == (1, 2)


def test_descriptors_are_shown_as_shares_of_their_range():
    narrow = own().sample(jax.random.key(0), 2)
    shown = inner_run.InUnitBox(narrow)
    x = jax.random.uniform(jax.random.key(1), (2, 5, 3))
    keys = jax.random.split(jax.random.key(2), 2)
    np.testing.assert_allclose(shown.evaluate(keys, x).descriptor, 2 * x[:, :, :2] - 1, atol=1e-6)
    np.testing.assert_array_equal(shown.noiseless(x), narrow.noiseless(x))


def test_fitness_is_counted_from_the_optimum_where_it_is_known(tiny):
    high, known = (own(f_opt=value).sample(jax.random.key(0), 2) for value in (100.0, None))
    rule = lqd.rule("dns")
    keys = jax.random.split(jax.random.key(1), 2)
    run = jax.jit(lambda tasks: inner_run.run_scaled(rule, keys, tasks, tiny, jnp.int32(2), None)["fitness"])
    np.testing.assert_allclose(run(high), run(known) - 100, rtol=1e-5)


# --- to a file and back, and the same run ---


def test_a_mixed_config_survives_json_but_for_what_is_the_user_s_own(mixed):
    text = json.dumps(configs.to_dict(mixed), sort_keys=True)
    again = configs.from_dict(json.loads(text))
    assert again.families[0] == PLAIN
    assert again.stages == mixed.stages
    assert [part.share for part in again.tasks] == [1, 2]
    assert json.dumps(configs.to_dict(again), sort_keys=True) == text
    assert configs.differences(again, mixed, 0) == []
    with pytest.raises(InvalidInput, match=r"'quarter' of this run is your own, .* give it again: lqd.train\(tasks="):
        again.check()


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([PLAIN], r"tasks: bbob \(share 1\), quarter \(share 2\) there, bbob \(share 1\) here"),
        ([PLAIN, (own(version=2), 2)], r"tasks: quarter's version 1 there, 2 here"),
        ([dataclasses.replace(PLAIN, max_dim=5), (own(), 2)], r"tasks: bbob's settings.max_dim 4 there, 5 here"),
        ([PLAIN, own()], r"quarter \(share 2\) there, bbob \(share 1\), quarter \(share 1\) here"),
        ([PLAIN, (own(bounds=(0, 2)), 2)], r"tasks: quarter's says '.*' there, '.*' here"),
    ],
)
def test_another_mix_is_another_run(mixed, tasks, message):
    found = configs.differences(mixed, presets.override(mixed, {"tasks": tasks}), 1)
    assert re.search(message, "; ".join(found))
    assert all(line.startswith("tasks: ") for line in found)


def test_other_shapes_are_another_run_once_they_were_met(mixed):
    other = presets.override(mixed, {"shapes": "batch_size=3"})
    assert configs.differences(mixed, other, 0) == []
    (found,) = configs.differences(mixed, other, 1)
    assert found == (
        "shapes (meta-generation 0): population_size=6 num_generations=2,3; descriptor_dim=3 there, batch_size=3 here"
    )


@pytest.mark.parametrize("spoiled", [[7], [{"share": 1}], {"a": 1}, [{"family": {"name": "arm"}, "share": 1}]])
def test_what_is_not_a_mix_is_told(tiny, spoiled):
    with pytest.raises(ValueError, match=r"tasks|family"):
        configs.from_dict(json.loads(json.dumps(configs.to_dict(tiny) | {"tasks": spoiled})))
