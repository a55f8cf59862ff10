"""The numbers of the presets, how settings replace them, and what makes two configs the same run."""

import dataclasses
import json

import pytest

from lqd.errors import InvalidInput
from lqd.meta import config as configs
from lqd.meta import families, presets
from lqd.meta.config import Config, Stage
from lqd.meta.mixture import Shape
from lqd.meta.presets import PRESETS
from lqd.meta.suite import Entry
from lqd.rules.learned.network import Architecture
from lqd.tasks.bbob import instances


def stages(*sizes):
    """A run whose stages have these lengths and numbers of members."""
    return dataclasses.replace(
        presets.preset("smoke"), chunk_size=4, stages=tuple(Stage(num, members, 22, 8) for num, members in sizes)
    )


# --- presets ---


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("small", Stage(512, meta_population_size=64, num_tasks=66, num_generations=256)),
        ("reference", Stage(1024, meta_population_size=128, num_tasks=132, num_generations=256)),
        ("paper", Stage(16384, meta_population_size=256, num_tasks=264, num_generations=256)),
    ],
)
def test_the_numbers_of_a_preset(name, stage):
    config = presets.preset(name)
    assert config.stages == (stage,)
    assert (config.strategy, config.sigma, config.init) == ("sep-cma-es", 0.1, "none")
    assert (config.population_size, config.batch_size, config.iso_sigma, config.line_sigma) == (128, 32, 0.005, 0.05)
    assert config.architecture == Architecture()
    assert config.distribution.functions == instances.TRAINING_SET
    assert config.distribution.noise
    assert config.distribution.rotate


def test_smoke_is_the_smallest_and_all_hold_every_function():
    assert list(PRESETS) == ["smoke", "small", "reference", "paper"]
    sizes = [(c.num_meta_generations, c.stages[0].meta_population_size) for c in PRESETS.values()]
    assert sizes == sorted(sizes)
    assert {stage.num_tasks % 22 for c in PRESETS.values() for stage in c.stages} == {0}


def test_an_unknown_preset_lists_those_there_are():
    with pytest.raises(InvalidInput, match=r"unknown preset 'smal'.*Choose from: smoke, small, reference, paper"):
        presets.preset("smal")


# --- settings ---


OVERRIDES = {
    "objective": ("novelty", lambda c: c.objective.name),
    "qd_form": ("sum", lambda c: c.objective.qd_form),
    "fitness_weight": (0.25, lambda c: c.objective.fitness_weight),
    "normalisation": ("z-score", lambda c: c.objective.normalisation),
    "aggregation": ("median", lambda c: c.objective.aggregation),
    "num_cells": (100, lambda c: c.num_cells),
    "num_layers": (3, lambda c: c.architecture.num_layers),
    "num_features": (32, lambda c: c.architecture.num_features),
    "num_heads": (8, lambda c: c.architecture.num_heads),
    "num_hidden": (5, lambda c: c.architecture.num_hidden),
    "recipe": (2, lambda c: c.architecture.recipe),
    "functions": ((1, "f3"), lambda c: c.distribution.functions),
    "min_dim": (3, lambda c: c.distribution.min_dim),
    "max_dim": (9, lambda c: c.distribution.max_dim),
    "descriptor_dim": (3, lambda c: c.architecture.descriptor_dim),
    "noise": (False, lambda c: c.distribution.noise),
    "rotate": (False, lambda c: c.distribution.rotate),
    "validation_every": (7, lambda c: c.validation.every),
    "validation_tasks": (44, lambda c: c.validation.num_tasks),
    "validation_on": ((Entry("long", families.make("arm-small"), 8, 9, 5),), lambda c: c.validation.on),
    "validation_aggregate": ("worst", lambda c: c.validation.aggregate),
    "validation_generations": (9, lambda c: c.validation.num_generations),
    "synthetic_rounds": (2, lambda c: c.imitation.num_synthetic_rounds),
    "own_rounds": (0, lambda c: c.imitation.num_own_rounds),
    "steps_per_round": (11, lambda c: c.imitation.steps_per_round),
    "imitation_batch": (8, lambda c: c.imitation.num_populations),
    "imitation_rate": (0.5, lambda c: c.imitation.learning_rate),
    "num_meta_generations": (17, lambda c: c.num_meta_generations),
    "meta_population_size": (24, lambda c: c.stages[-1].meta_population_size),
    "num_tasks": (66, lambda c: c.stages[-1].num_tasks),
    "num_generations": (5, lambda c: c.stages[-1].num_generations),
    "strategy": ("open-es", lambda c: c.strategy),
    "sigma": (0.02, lambda c: c.sigma),
    "learning_rate": (0.5, lambda c: c.learning_rate),
    "seed": (2**32 - 1, lambda c: c.seed),
    "init": ("ns", lambda c: c.init),
    "population_size": (10, lambda c: c.imitation.population_size),
    "batch_size": (6, lambda c: c.imitation.batch_size),
    "iso_sigma": (0.0, lambda c: c.iso_sigma),
    "line_sigma": (0.1, lambda c: c.line_sigma),
    "chunk_size": (2, lambda c: c.chunk_size),
    "tasks": ((("bbob", 2.0), ("arm-small", 1.0)), lambda c: tuple((p.family.name, p.share) for p in c.parts)),
    "shapes": ((Shape(num_generations=(3, 4)), Shape(9, 5)), lambda c: c.stages[-1].shapes),
}


@pytest.mark.parametrize("name", OVERRIDES)
def test_every_setting_replaces_its_number(name):
    value, look = OVERRIDES[name]
    before = presets.override(presets.preset("smoke"), {"num_tasks": 44})  # which two families can share
    after = presets.override(before, {name: value})
    expected = ("sphere", "rastrigin") if name == "functions" else value
    assert look(after) == expected != look(before)
    assert presets.override(before, {}) == before


def test_there_is_no_other_setting():
    assert set(OVERRIDES) == set(presets.SETTINGS)
    with pytest.raises(InvalidInput, match=r"unknown setting 'num_taks'. Did you mean 'num_tasks'"):
        presets.override(presets.preset("smoke"), {"num_taks": 22})


def test_settings_of_a_stage_replace_those_of_the_last_one():
    config = presets.override(stages((2, 4), (3, 8)), {"num_meta_generations": 9, "num_generations": 2})
    assert config.stages == (Stage(2, 4, 22, 8), Stage(9, 8, 22, 2))
    with pytest.raises(InvalidInput, match="num_tasks belongs to a stage, and this run has none"):
        presets.override(dataclasses.replace(config, stages=()), {"num_tasks": 22})


BAD = {
    "objective": (
        {"objective": "quality"},
        "objective must be one of 'fitness', 'novelty', 'qd', 'archive', got 'quality'",
    ),
    "strategy": (
        {"strategy": "cma"},
        "unknown strategy 'cma'.*Choose from: sep-cma-es, sep-cma-es-stock, snes, open-es",
    ),
    "tasks": ({"num_tasks": 70}, "num_tasks must be a multiple of the 22 functions, got 70; 66 or 88 would do"),
    "few tasks": ({"num_tasks": 5}, "num_tasks must be a multiple of the 22 functions, got 5; 22 would do"),
    "no tasks": ({"num_tasks": 0}, "num_tasks must be a whole number of at least 1, got 0"),
    "validation": ({"validation_tasks": 23}, "validation_tasks must be a multiple .* got 23; 22 or 44 would do"),
    "members": ({"meta_population_size": 3}, "meta_population_size must be a whole number of at least 4, got 3"),
    "odd": ({"strategy": "open-es", "meta_population_size": 15}, "must be even for open-es .* got 15"),
    "chunks": ({"meta_population_size": 20}, r"=20 in chunks of 8 does not divide; meta_population_size=24 or chunk_"),
    "sigma": ({"sigma": 0.0}, "sigma must be a finite number above 0, got 0.0"),
    "seed": ({"seed": 2**32}, r"seed must be below 2\*\*32"),
    "negative seed": ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
    "function": ({"functions": ("spere",)}, "unknown function .* 'spere'. Did you mean 'sphere'"),
    "twice": ({"functions": ("sphere", 1)}, "functions must name at least one function, each once"),
    "dims": ({"min_dim": 5, "max_dim": 4}, "max_dim must be at least min_dim = 5, got 4"),
    "heads": ({"num_heads": 3}, "num_features must be a multiple of num_heads"),
    "flag": ({"noise": "no"}, "noise must be True or False, got 'no'"),
    "every": ({"validation_every": -1}, "validation_every must be a whole number of at least 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_settings(case):
    settings, message = BAD[case]
    with pytest.raises(InvalidInput, match=message):
        presets.override(presets.preset("smoke"), settings)


# --- how members are divided ---


@pytest.mark.parametrize(
    ("members", "chunk", "devices", "expected"), [(64, 32, 1, 2), (64, 32, 2, 1), (8, 32, 1, 1), (48, 4, 3, 4)]
)
def test_chunks_of_each_device(members, chunk, devices, expected):
    assert configs.check_division(members, chunk, devices) == expected


@pytest.mark.parametrize(
    ("members", "chunk", "devices", "message"),
    [
        (12, 8, 1, "meta_population_size=16 or chunk_size=6 "),
        (64, 32, 4, "over 4 devices; meta_population_size=128 or chunk_size=16 "),
        (64, 32, 3, "over 3 devices; meta_population_size=96 would"),
        (10, 32, 4, "in chunks of 10 does not divide over 4 devices; meta_population_size=128 would"),
    ],
)
def test_a_bad_division_says_what_would_do(members, chunk, devices, message):
    with pytest.raises(InvalidInput, match=message) as error:
        configs.check_division(members, chunk, devices)
    text = str(error.value)
    better = int(text.partition("; meta_population_size=")[2].split()[0])
    assert configs.check_division(better, chunk, devices) >= 1
    if "chunk_size=" in text:
        smaller = int(text.partition("chunk_size=")[2].split()[0])
        assert configs.check_division(members, smaller, devices) >= 1


# --- stages ---


def test_the_stage_of_a_meta_generation():
    config = stages((2, 4), (0, 8), (3, 12))
    assert config.num_meta_generations == 5
    assert [config.stage_at(i)[0] for i in range(5)] == [0, 0, 2, 2, 2]
    assert config.stage_at(4)[1].meta_population_size == 12
    with pytest.raises(InvalidInput, match="the run has 5 meta-generations"):
        config.stage_at(5)


@pytest.mark.parametrize("text", ["num_meta_generations=1_000 num_tasks=44", "num-meta-generations=1000,num-tasks=44"])
def test_a_stage_from_words_is_else_like_the_one_before(text):
    config = presets.add_stage(stages((2, 4), (3, 8)), text)
    assert config.stages == (Stage(2, 4, 22, 8), Stage(3, 8, 22, 8), Stage(1000, 8, 44, 8))


def test_the_first_stage_after_an_imitation_is_that_of_small():
    config = presets.add_stage(presets.imitation_preset("small"), "num_meta_generations=3")
    assert config.stages == (dataclasses.replace(presets.SMALL, num_meta_generations=3),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num_meta_generations=2 sigma=1", "unknown field of a stage 'sigma'.*Choose from: num_meta_generations, "),
        ("num_meta_generations=many", "num_meta_generations must be a whole number, got 'many'"),
        ("num_meta_generations=1e3", "num_meta_generations must be a whole number, got '1e3'"),
        ("num_meta_generations", "num_meta_generations must be a whole number, got ''"),
        ("num_tasks=22", "add_stage must say num_meta_generations=..., got 'num_tasks=22'"),
        ("", "add_stage must say num_meta_generations=..., got ''"),
        ("num_meta_generations=2 num_tasks=23", "num_tasks must be a multiple of the 22 functions, got 23"),
        ("num_meta_generations=2 meta_population_size=6", "=6 in chunks of 4 does not divide"),
    ],
)
def test_bad_words_for_a_stage(text, message):
    with pytest.raises(InvalidInput, match=message):
        presets.add_stage(stages((2, 4)), text)


# --- to a file and back ---


@pytest.mark.parametrize("name", PRESETS)
def test_a_config_survives_json(name):
    config = presets.override(presets.preset(name), {"functions": ("f3", "sphere"), "init": "ns", "seed": 7})
    config = presets.add_stage(config, "num_meta_generations=3")
    again = configs.from_dict(json.loads(json.dumps(configs.to_dict(config))))
    assert again == config
    assert hash(again) == hash(config)


def test_weights_to_begin_with_bring_their_architecture():
    architecture = Architecture(descriptor_dim=3, num_layers=2)
    config = presets.begin_with(presets.preset("smoke"), "file", "digest", architecture)
    assert (config.init, config.init_sha256, config.architecture) == ("file", "digest", architecture)
    assert config.distribution.descriptor_dim == 3


# --- the same run ---


def test_a_longer_run_is_the_same_run():
    old = stages((4, 4))
    assert configs.differences(old, old, 4) == []
    assert configs.differences(old, stages((9, 4)), 4) == []
    assert configs.differences(old, stages((4, 4), (2, 8)), 4) == []
    assert configs.differences(old, stages((2, 4)), 2) == []  # shorter, but not than what is done
    assert configs.differences(stages((4, 4), (2, 8)), stages((2, 4), (2, 4), (2, 8)), 6) == []


def test_what_is_not_yet_done_may_change():
    assert configs.differences(stages((4, 4), (2, 8)), stages((4, 4), (2, 12)), 4) == []


@pytest.mark.parametrize(
    ("new", "done", "expected"),
    [
        (stages((3, 4)), 4, "num_meta_generations: 4 already done there, 3 here"),
        (stages((4, 8)), 1, "meta_population_size (meta-generation 0): 4 there, 8 here"),
        (stages((2, 4), (2, 8)), 4, "meta_population_size (meta-generation 2): 4 there, 8 here"),
        (dataclasses.replace(stages((4, 4)), sigma=0.2), 0, "sigma: 0.1 there, 0.2 here"),
        (presets.override(stages((4, 4)), {"num_layers": 1}), 0, "architecture.num_layers: 2 there, 1 here"),
        (presets.override(stages((4, 4)), {"objective": "qd"}), 0, "objective.name: 'fitness' there, 'qd' here"),
        (presets.override(stages((4, 4)), {"seed": 5}), 0, "seed: 0 there, 5 here"),
    ],
)
def test_another_run_is_told_by_its_fields(new, done, expected):
    assert configs.differences(stages((4, 4)), new, done) == [expected]


def test_all_differences_are_named():
    new = presets.override(stages((4, 4)), {"sigma": 0.5, "seed": 1, "num_generations": 9, "num_tasks": 44})
    found = " ".join(configs.differences(stages((4, 4)), new, 1))
    assert all(f"{name}" in found for name in ("sigma: ", "seed: ", "num_generations (", "num_tasks ("))


def test_a_config_needs_no_more_than_its_stages():
    assert Config(stages=()).num_meta_generations == 0
    assert Config(stages=(), init="ns").num_rounds == Config(stages=()).imitation.num_rounds
    assert Config(stages=()).num_rounds == 0
