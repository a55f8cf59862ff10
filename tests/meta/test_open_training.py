"""Whole runs on families and shapes, validated on a suite: cut and resumed, refused, imitating; and their files."""

import csv
import dataclasses
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lqd
from lqd.errors import InvalidInput
from lqd.evolution import compile_time
from lqd.meta import config as configs
from lqd.meta import families, generation, log, presets, suite, train, validation
from lqd.meta.imitation import fitting, populations
from lqd.meta.store import Store
from lqd.meta.suite import Entry
from lqd.meta.trainer import Outcome
from lqd.meta.validation import PANEL, Suite, Validator, Verdict, gain
from lqd.report import training_figures

SIZES = {
    "num_meta_generations": 3, "meta_population_size": 4, "num_tasks": 2, "num_generations": 3, "population_size": 8,
    "batch_size": 4, "chunk_size": 4, "num_layers": 1, "num_features": 4, "num_heads": 2, "num_hidden": 4,
    "validation_every": 3, "validation_tasks": 2, "validation_generations": 2,
}  # fmt: skip
LONG = "name=long tasks=arm-small num_generations=4 num_tasks=3 population_size=6"
OPEN = SIZES | {
    "tasks": "arm-small,noisy-arm-small",
    "shapes": ("population_size=6 num_generations=2,4",),
    "validation_on": LONG,
    "validation_aggregate": "worst",
    "objective": "archive",
    "num_cells": 16,
}
NAMED = ("train", "train:arm-small", "train:noisy-arm-small", "long")  # what has a score of its own


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("open") / "run"
    lqd.train(out=out, preset="smoke", save_every_s=0, quiet=True, **OPEN)
    return out


def rows(folder):
    with (folder / "log.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_log_and_the_card_show_each_entry(whole):
    first, *_, last = rows(whole)
    for row in (first, last):
        scores = {name: float(row[f"score_{name}"]) for name in NAMED}
        assert scores["train"] == pytest.approx(np.mean([scores[name] for name in NAMED[1:3]]))  # one task of each
        assert float(row["score"]) == min(scores[name] for name in NAMED[1:])
    card = json.loads((whole / "card.json").read_text())
    best = max(rows(whole), key=lambda row: float(row["score"] or -1))
    assert card["validation"]["scores"] == {name: float(best[f"score_{name}"]) for name in NAMED}
    assert card["config"]["validation"]["aggregate"] == "worst"
    assert [part["family"]["name"] for part in card["config"]["tasks"]] == ["arm-small", "noisy-arm-small"]
    assert set(card["validation"]["against"]) == {"fitness", "novelty", "qd", "archive"}


def test_the_summary_says_which_score_counts_in_80_columns(whole, capsys):
    card = json.loads((whole / "card.json").read_text())
    train._say(Store(whole).load().config, Outcome(lqd.rule("dns"), pathlib.Path("runs/whole"), 3, None, card))
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) < 80
    assert "held-out tasks in archive (the worst of the scores below)." in " ".join(said.split())
    scores = ", ".join(f"{name} {card['validation']['scores'][name]:.1%}" for name in NAMED)
    assert f"Scores: {scores}." in " ".join(said.split())


def test_a_run_that_validates_elsewhere_is_the_same_run(whole, tmp_path, capsys):
    """Only that nobody knows which weights are best: the rule is that of the last meta-generation."""
    given = OPEN | {"validation_every": 0, "preset": "smoke", "save_every_s": 0}
    lqd.train(out=tmp_path, time_limit_s=1e-6, quiet=True, **given)
    lqd.train(out=tmp_path, resume=True)
    said = capsys.readouterr().out
    assert "Wrote" in said
    assert "Best rule" not in said
    names = {path.name for path in tmp_path.iterdir()}
    assert {"rule.safetensors", "last.safetensors", "curve.png"} < names
    assert not any(name.startswith("validation") for name in names)
    last = (lqd.load(folder / "last.safetensors").fingerprint() for folder in (whole, tmp_path))
    assert next(last) == next(last) == lqd.load(tmp_path / "rule.safetensors").fingerprint()
    assert json.loads((tmp_path / "card.json").read_text())["validation"] is None
    assert not any(row["score"] for row in rows(tmp_path))
    drawn = [ax.lines[0].get_xdata().tolist() for ax in training_figures.training(log.read(tmp_path / "log.csv")).axes]
    assert drawn == [[1, 2, 3]] * 3  # no panel of a validation that there was not


def test_programs_compiled_together_are_those_that_are_called():
    program = jax.jit(lambda scale, x: jnp.sin(x) * scale)
    calls = [(jnp.float32(2), jnp.arange(float(size))) for size in (3, 5)]
    generation.compile_together(program, calls)
    with compile_time.Clock() as clock:
        for scale, x in calls:
            program(scale, x)
    assert clock.num_programs == 0


def test_what_the_panel_reached_is_kept_for_each_entry(whole, monkeypatch):
    config = Store(whole).load().config

    def refuse(self, cache):
        raise AssertionError("the panel would have been run")

    monkeypatch.setattr(Validator, "_compute", refuse)
    training = Validator(config, whole / "validation.safetensors")
    long = Suite(training, config, whole)._validators["long"]
    assert (long.config.population_size, long.num_generations) == (6, 4)
    for name in PANEL:
        assert long.panel[name]["archive"].shape == (3,)
        assert training.panel[name]["archive"].shape == (2,)
    (other,) = suite.entries([{"name": "long", "tasks": "arm-small", "num_tasks": 4}])
    with pytest.raises(AssertionError, match="the panel would have been run"):
        Validator(config, whole / "validation-long.safetensors", other)


def test_a_cut_run_is_the_undisturbed_one(whole, tmp_path):
    for _ in range(2):
        lqd.train(out=tmp_path, preset="smoke", resume=True, time_limit_s=1e-9, quiet=True, **OPEN)
    lqd.train(out=tmp_path, resume=True, quiet=True)  # families in the box are saved with the run
    one, other = (Store(folder).load() for folder in (whole, tmp_path))
    assert one.config == other.config
    assert one.arrays.keys() == other.arrays.keys()
    for name, value in one.arrays.items():
        np.testing.assert_array_equal(value, other.arrays[name], err_msg=name)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tasks": "arm-small"}, r"tasks: arm-small \(share 1\), noisy-arm-small \(share 1\) there, arm-small \(sh"),
        ({"tasks": "arm-small=2,noisy-arm-small"}, r"\(share 1\) there, arm-small \(share 2\), noisy-arm-small"),
        ({"shapes": "batch_size=3"}, r"shapes \(meta-generation 0\): population_size=6 num_generations=2,4 there, bat"),
        ({"validation_on": LONG.replace("=4", "=5")}, "validation_on long: num_generations 4 there, 5 here"),
        ({"validation_on": ()}, "validation_on: long there, none here"),
        ({"validation_aggregate": "mean"}, "validation.aggregate: 'worst' there, 'mean' here"),
        ({"num_cells": 9}, "num_cells: 16 there, 9 here"),
    ],
)
def test_another_run_is_refused_by_what_differs(whole, changed, message):
    with pytest.raises(InvalidInput, match=message):
        lqd.train(out=whole, preset="smoke", resume=True, quiet=True, **OPEN | changed)


def wrong_values(key, num_tasks):
    return _tasks(lambda parameters, x: (0 * x[:, 0] * np.nan, x[:, :2]), key, num_tasks)


def wrong_shapes(key, num_tasks):
    return _tasks(lambda parameters, x: (x[:, :1], x[:, :2]), key, num_tasks)


def no_tasks(key, num_tasks):
    return _tasks(lambda parameters, x: (x[:, 0], x[:, :2]), key, 0)


def good(parameters, x):
    return x[:, 0], x[:, :2]


def _tasks(evaluate, key, num_tasks):
    """Past the checks of `task_family`."""
    family = lqd.task_family(good, jax.random.uniform, dim=2, bounds=(0, 1), descriptor_bounds=(0, 1))
    return dataclasses.replace(family, function=evaluate).sample(key, num_tasks)


@pytest.mark.parametrize(
    ("family", "message"),
    [
        (wrong_values, "family 'wrong_values': .* is NaN"),
        (wrong_shapes, "family 'wrong_shapes': fitness must have real numbers of shape"),
        (no_tasks, "family 'no_tasks': .* must return 3 tasks, got 0"),
    ],
)
def test_a_family_that_is_wrong_is_told_before_a_folder_is_made(tmp_path, family, message):
    with pytest.raises(InvalidInput, match=message):
        lqd.train(out=tmp_path / "run", preset="smoke", quiet=True, **SIZES | {"tasks": family})
    assert not (tmp_path / "run").exists()


def five(key, num_tasks):
    """Tasks kept in a list, which has no sixth."""
    return _tasks(good, key, min(num_tasks, 5))


def only_a_few(key, num_tasks):
    if num_tasks > 3:
        raise RuntimeError("so many")
    return _tasks(good, key, num_tasks)


def only_three(key, num_tasks):
    return _tasks(lambda parameters, x: (jnp.dot(x[:, 0], jnp.eye(3)), x[:, :2]), key, num_tasks)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tasks": five, "num_tasks": 6}, r"family 'five': sample\(key, 6\) must return 6 tasks, got 5"),
        ({"tasks": five, "validation_tasks": 7}, r"family 'five': sample\(key, 7\) must return 7 tasks, got 5"),
        ({"tasks": "arm-small", "validation_on": {"tasks": five, "num_tasks": 8}}, r"'five': .* 8 tasks, got 5"),
        ({"tasks": five, "init": "ns"}, r"family 'five': sample\(key, 22\) must return 22 tasks, got 5"),
        ({"tasks": only_a_few, "num_tasks": 4}, r"'only_a_few': sample\(key, 4\) must be .*RuntimeError: so many"),
        ({"tasks": only_three, "shapes": "population_size=9"}, "'only_three': its tasks cannot be evaluated on x of"),
    ],
)
def test_a_family_is_looked_at_in_every_size_of_the_run(tmp_path, settings, message):
    with pytest.raises(InvalidInput, match=message):
        lqd.train(out=tmp_path / "run", preset="smoke", quiet=True, **SIZES | {"recipe": 2, "num_heads": 4} | settings)
    assert not (tmp_path / "run").exists()


ON_ARMS = {"tasks": "arm-small", "recipe": 2, "num_heads": 4}


@pytest.mark.parametrize(
    "settings",
    [
        {"shapes": "population_size=9"},
        {"tasks": "bbob-wide", "num_tasks": 22, "validation_tasks": 22, "shapes": "descriptor_dim=3"},
        {"validation_on": "tasks=arm-small population_size=9"},
    ],
)
def test_an_objective_is_looked_at_in_every_size_of_the_run(tmp_path, settings):
    def of_eight(fitness, descriptor):
        return jnp.vdot(descriptor, jnp.ones((8, 2)))

    given = SIZES | ON_ARMS | {"objective": of_eight}
    presets.override(presets.preset("smoke"), given).check()
    with pytest.raises(InvalidInput, match=r"objective must be a JAX function .*TypeError"):
        lqd.train(out=tmp_path / "run", preset="smoke", quiet=True, **given | settings)
    assert not (tmp_path / "run").exists()


def test_an_objective_by_the_name_of_its_module(settled, tmp_path, monkeypatch):
    (tmp_path / "measures_of_mine.py").write_text("def area(qd_score_over_time): return qd_score_over_time.mean()")
    monkeypatch.chdir(tmp_path)
    config = settled(out=tmp_path / "run", preset="smoke", objective="measures_of_mine:area", **SIZES | ON_ARMS)
    assert config.objective.own.__name__ == "area"
    assert config.objective.parameters == ("qd_score_over_time",)
    for given, message in (("measures_of_mine:a", "objective: module .* has no 'a'"), ("area", "must be one of")):
        with pytest.raises(InvalidInput, match=message):
            lqd.train(out=tmp_path / "run", preset="smoke", objective=given, **SIZES)


# --- the suite ---


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("name=long", "validation_on must say tasks="),
        ("tasks=arm-small size=3", "unknown word of validation_on 'size'"),
        ("tasks=arm-small,clipped", "an entry has one family, got arm-small, clipped"),
        ("name=train tasks=arm-small", "a name must be letters, .* and not 'train'"),
        ("name=a/b tasks=arm-small", "a name must be letters"),
        ("tasks=bbob num_tasks=23", "validation_on bbob: num_tasks must be a multiple of 22"),
        (["tasks=arm-small", "tasks=arm-small num_tasks=3"], "must have each name once, got arm-small, arm-small"),
        (5, "validation_on must be a list of entries"),
    ],
)
def test_bad_entries(given, message):
    with pytest.raises(InvalidInput, match=message):
        suite.entries(given)


def test_entries_survive_json():
    settings = {"validation_on": [LONG, "tasks=bbob-wide"], "validation_aggregate": "worst"}
    config = presets.override(presets.preset("smoke"), settings)
    assert config.validation.on[1] == Entry("bbob-wide", families.make("bbob-wide"), 66)
    assert configs.from_dict(json.loads(json.dumps(configs.to_dict(config)))) == config
    assert configs.to_dict(presets.preset("smoke"))["validation"].keys() == {"every", "num_tasks", "num_generations"}


@pytest.mark.parametrize(("tasks", "is_kept"), [("arm-small", False), ("arm-small,clipped", True)])
def test_the_worst_of_the_families_of_a_run_counts_without_further_entries(tasks, is_kept):
    several, worst = {"tasks": tasks, "num_tasks": 12, "validation_tasks": 12}, {"validation_aggregate": "worst"}
    mean, config = (presets.override(presets.preset("smoke"), several | given) for given in ({}, worst))
    assert configs.to_dict(mean)["validation"].keys() == {"every", "num_tasks", "num_generations"}
    assert (configs.differences(mean, config, 0) != []) == is_kept
    again = configs.from_dict(json.loads(json.dumps(configs.to_dict(config))))
    assert (again == config) == is_kept
    if is_kept:
        wins = np.array([1.0] * 6 + [0.5] * 6)
        found = Suite(_judged(config, wins), config)(np.zeros(1))
        assert found.scores == {"train": 0.75, "train:arm-small": 1.0, "train:clipped": 0.5}
        assert (found.score, Suite(_judged(mean, wins), mean)(np.zeros(1)).score) == (0.5, 0.75)


def _judged(config, wins):
    """A validator that has looked."""
    parts = validation.scores_of_families(config, wins)
    return lambda flat: Verdict(float(wins.mean()), wins, {}, {}, parts)


def test_gain_over_entries_is_the_mean_of_theirs():
    now, before = np.array([1.0, 0.0, 0.5, 0.5, 1.0]), np.array([0.0, 0.0, 0.5, 0.25, 0.0])
    first, second = gain(now[:2], before[:2]), gain(now[2:], before[2:])
    middle, low, high = gain(now, before, (2, 3))
    assert middle == pytest.approx((first[0] + second[0]) / 2)
    width = np.hypot(first[2] - first[0], second[2] - second[0]) / 2
    assert (low, high) == pytest.approx((middle - width, middle + width))


# --- imitation ---


def test_families_take_turns_in_an_imitation():
    config = presets.override(presets.preset("smoke"), {"tasks": "arm-small=3,clipped", "num_tasks": 44}).imitation
    turns = [config.turn(number) for number in range(8)]
    assert [turns.count(0), turns.count(1)] == [6, 2]
    assert config.alone(1).tasks[0][0].name == "clipped"


@pytest.mark.parametrize("functions", [("sphere",), ("sphere", "rastrigin")])
def test_an_imitation_on_bbob_has_as_many_tasks_of_a_function_as_ever(functions):
    config = presets.override(presets.preset("smoke"), {"functions": functions, "num_tasks": 2, "validation_tasks": 2})
    ((family, _),) = config.imitation.tasks
    assert config.imitation.num_tasks(family) == config.imitation.num_per_function * len(functions)
    assert config.imitation.num_tasks(families.make("arm-small")) == config.imitation.num_per_function * 22


@pytest.fixture
def imitating():
    """Config, teacher and architecture of an imitation on two families."""
    settings = SIZES | {"tasks": "arm-small,noisy-arm-small", "iso_sigma": 0.5, "init": "ns", "own_rounds": 1}
    more = {"synthetic_rounds": 0, "steps_per_round": 2, "imitation_batch": 4}
    config = presets.override(presets.preset("smoke"), settings | more)
    imitation = dataclasses.replace(config.imitation, num_per_function=1, num_generations=3, num_held_out=4)
    return imitation, "ns", config.architecture


def test_an_imitation_has_the_run_s_families_and_steps(imitating, monkeypatch):
    steps, with_steps = [], populations.IsoLine.with_steps
    monkeypatch.setattr(populations.IsoLine, "with_steps", lambda *given: steps.append(given) or with_steps(*given))
    fitting.collect.clear_cache()
    held_out = fitting.held_out(jax.random.key(0), *imitating)
    assert list(held_out) == ["synthetic", "runs", "runs_1"]
    assert steps == [(0.5, imitating[0].line_sigma)] * 2
    for fitness, descriptor in held_out.values():
        assert np.abs(descriptor[fitness > -np.inf]).max() < 2  # shares of their range
    assert (held_out["runs"][1][0] != held_out["runs_1"][1][0]).any()


@pytest.mark.long
def test_a_round_of_imitation_on_several_families(imitating):
    held_out = fitting.held_out(jax.random.key(0), *imitating)
    state = fitting.init(fitting.network.init_params(jax.random.key(1), imitating[2]))
    _, measures = fitting.run_round(jax.random.key(2), state, 0, *imitating, held_out)
    assert measures.keys() == {"loss", "spearman_synthetic", "kept_synthetic", "spearman_runs", "kept_runs"}
