"""Whole training runs, small ones: cut anywhere and resumed, lengthened, refused; and their files."""

import dataclasses
import json
import random
import re
import shutil
import signal
import time
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from training_runs import (
    COMMON,
    TINY,
    assert_same_arrays,
    assert_same_run,
    begun,
    config_of,
    finished,
    flags,
    log_of,
    saved,
    weights,
)

import lqd
from lqd import statistics
from lqd.cli import main, rerun
from lqd.errors import InvalidInput
from lqd.io import manifest
from lqd.io.files import read_arrays
from lqd.meta import config as configs
from lqd.meta import generation, initial_weights, presets, trainer
from lqd.meta.objective import NAMES
from lqd.meta.store import Store, read
from lqd.meta.train import imitate, train
from lqd.meta.validation import PANEL, Comparison, Validator, Verdict
from lqd.rules.learned.network import Architecture
from lqd.rules.learned.rule import Learned

LONGER = TINY | {"num_meta_generations": 120, "validation_every": 40}  # time enough for a signal to fall in
TAUGHT = {"init": "ns", "synthetic_rounds": 0, "own_rounds": 2, "steps_per_round": 3, "imitation_batch": 4}
LARGER = "num_meta_generations=2 meta_population_size=8 num_tasks=4 num_generations=5"


# --- how runs are made, and compared ---


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An undisturbed run of four meta-generations, with the states after the last three."""
    out = tmp_path_factory.mktemp("whole") / "run"
    outcome = train(out=out, save_every_s=0, quiet=True, **TINY)
    assert (outcome.stopped_by, outcome.num_meta_generations) == (None, 4)
    return out


@pytest.fixture(scope="module")
def longer(tmp_path_factory):
    out = tmp_path_factory.mktemp("longer") / "run"
    train(out=out, quiet=True, **LONGER)
    return out


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """An undisturbed imitation and evolution in one run."""
    out = tmp_path_factory.mktemp("taught") / "run"
    train(out=out, quiet=True, **TINY | TAUGHT | {"num_meta_generations": 2})
    return out


@pytest.fixture
def copy(whole, tmp_path):
    """The undisturbed run, to be gone on with."""
    shutil.copytree(whole, tmp_path / "copy")
    return tmp_path / "copy"


def send_after(process, number, folder, step):
    """A signal, once the log has come to this step; False if the process had ended before."""
    while process.poll() is None:
        text = (folder / "log.csv").read_text() if (folder / "log.csv").exists() else ""
        last = text.rpartition("\n")[0].rpartition("\n")[2].partition(",")[0]
        if last.isdigit() and int(last) >= step:
            process.send_signal(number)
            return True
        time.sleep(0.005)
    return False


class Scripted:
    """Stands for the validation, with scores given beforehand: nothing is run. `action` is told the number of each."""

    def __init__(self, scores=(), action=lambda number: None):
        self.scores, self.action, self.number = list(scores), action, 0

    def __call__(self, *given):
        """Made for a config and a file; then called with weights."""
        if len(given) == 2:
            return self
        self.number += 1
        self.action(self.number - 1)
        score = self.scores[self.number - 1] if self.scores else 0.5
        comparisons = {(measure, rule): Comparison(score, 0.0, 1.0) for measure in NAMES for rule in PANEL}
        return Verdict(score, np.full(4, score), comparisons, {})


@pytest.fixture
def scripted(monkeypatch):
    def script(*args, **settings):
        monkeypatch.setattr(trainer, "Validator", Scripted(*args, **settings))

    script()
    return script


# --- what a run leaves ---


def test_a_run_leaves_everything(whole):
    names = {path.name for path in whole.iterdir()}
    assert names == {".lock", "log.csv", "card.json", "curve.png", "rule.safetensors", "last.safetensors",
                     "validation.safetensors", *(f"state-{n:08d}.safetensors" for n in (2, 3, 4))}  # fmt: skip
    rows = log_of(whole)
    assert [row["step"] for row in rows] == ["0", "1", "2", "3", "4"]
    assert [row["phase"] for row in rows] == ["start"] + ["evolution"] * 4
    assert [bool(row["score"]) for row in rows] == [True, False, True, False, True]
    assert float(rows[0]["gain"]) == 0
    assert all(float(row["sigma"]) > 0 for row in rows[1:])
    assert (whole / "curve.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_the_card_says_how_the_rule_came_about(whole):
    card = json.loads((whole / "card.json").read_text())
    assert card["recipe"] == "evolution from random weights"
    assert card["warm_start"] is None
    assert card["objective"] == "fitness"
    assert card["num_meta_generations"] == 4
    assert configs.from_dict(card["config"]) == saved(whole).config
    scores = {int(row["step"]): float(row["score"]) for row in log_of(whole) if row["score"]}
    assert card["validation"]["score"] == max(scores.values())
    assert scores[card["best_meta_generation"]] == max(scores.values())
    assert card["last"]["score"] == scores[4]
    assert set(card["validation"]["against"]) == set(NAMES)
    assert set(card["validation"]["against"]["fitness"]) == set(PANEL)
    assert [session["last_step"] for session in card["sessions"]] == [4]


def test_the_rule_can_be_used(whole):
    rule = lqd.load(whole / "rule.safetensors")
    assert rule.architecture == saved(whole).config.architecture
    result = lqd.optimize(
        lambda x: (-(x**2).sum(axis=1), x[:, :2]), dim=3, bounds=(-1, 1), rule=rule, population_size=8, batch_size=4,
        num_evaluations=40,
    )  # fmt: skip
    assert len(result.x) == 8
    by_path = lqd.optimize(
        lambda x: (-(x**2).sum(axis=1), x[:, :2]), dim=3, bounds=(-1, 1), rule=whole / "rule.safetensors",
        population_size=8, batch_size=4, num_evaluations=40,
    )  # fmt: skip
    np.testing.assert_array_equal(by_path.x, result.x)


def test_the_best_is_kept_apart_from_the_last(tmp_path, scripted):
    scripted([0.2, 0.7, 0.4])
    outcome = train(out=tmp_path, save_every_s=0, quiet=True, **TINY)
    state = saved(tmp_path)
    second = read(tmp_path / "state-00000002.safetensors")
    np.testing.assert_array_equal(weights(tmp_path / "rule.safetensors"), second.arrays["strategy.mean"])
    np.testing.assert_array_equal(weights(tmp_path / "last.safetensors"), state.arrays["strategy.mean"])
    assert (second.arrays["strategy.mean"] != state.arrays["strategy.mean"]).any()
    np.testing.assert_array_equal(generation.flat_from(outcome.rule), weights(tmp_path / "rule.safetensors"))
    assert outcome.card["best_meta_generation"] == 2
    assert outcome.card["validation"]["score"] == 0.7
    assert outcome.card["last"]["score"] == 0.4
    assert outcome.card["last"]["gain"] == pytest.approx(0.2)


def test_other_seeds_are_other_runs_with_the_same_held_out_tasks(whole, tmp_path):
    train(out=tmp_path, quiet=True, **TINY | {"seed": 1, "num_meta_generations": 1})
    assert (saved(tmp_path).arrays["start"] != saved(whole).arrays["start"]).any()
    panels = [read_arrays(f / "validation.safetensors", "validation")[0] for f in (tmp_path, whole)]
    for name, value in panels[0].items():
        np.testing.assert_array_equal(value, panels[1][name])


# --- cut and resumed ---


def test_a_run_in_short_calls_is_the_undisturbed_run(whole, tmp_path):
    for done in (1, 2):  # the first call finds an empty folder, and begins
        outcome = train(out=tmp_path / "run", resume=True, time_limit_s=1e-9, quiet=True, **TINY)
        assert (outcome.stopped_by, outcome.num_meta_generations) == ("time limit", done)
    assert train(out=tmp_path / "run", resume=True, quiet=True).stopped_by is None  # the settings are the saved ones
    assert_same_run(tmp_path / "run", whole)
    sessions = json.loads((tmp_path / "run" / "card.json").read_text())["sessions"]
    steps = [(session["first_step"], session["last_step"]) for session in sessions]
    assert steps == [(0, 1), (1, 2), (2, 4)]


@pytest.mark.long  # tests/test_faults.py does so at every change, less often
def test_a_run_ended_by_signals_is_the_undisturbed_run(longer, tmp_path, lqd_train):
    """Killed without a warning: tests/test_faults.py."""
    out = tmp_path / "run"
    for number, step in ((signal.SIGTERM, 5), (signal.SIGINT, 60)):
        process = lqd_train(out, LONGER, "--resume", "--quiet", "--save-every-s", "1000")
        assert send_after(process, number, out, step)
        assert finished(process) == (128 + number, "")
        assert step <= saved(out).counter < 120
        assert json.loads((out / "card.json").read_text())["num_meta_generations"] == saved(out).counter
    train(out=out, resume=True, quiet=True, **LONGER)
    assert_same_run(out, longer)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_killed_ten_times_is_the_undisturbed_run(longer, tmp_path, lqd_train, seed):
    generator, hits = random.Random(seed), 0
    for step in [*sorted(generator.sample(range(-1, 100), 10)), None]:
        process = lqd_train(tmp_path / "run", LONGER, "--resume", "--quiet", "--save-every-s", "0")
        if step is None:
            assert finished(process) == (0, "")
        elif step < 0:  # before there is a log
            time.sleep(3 * generator.random())
            process.kill()
        else:
            time.sleep(generator.random() / 20)
            hits += send_after(process, signal.SIGKILL, tmp_path / "run", step)
        finished(process)
    assert hits > 5
    assert_same_run(tmp_path / "run", longer)


@pytest.mark.parametrize("left", [None, b"", b"not a rule", "last.safetensors"])
def test_a_lost_rule_is_written_again(whole, copy, left):
    best = copy / "rule.safetensors"
    before = weights(best)
    best.unlink()
    if left is not None:
        best.write_bytes((copy / left).read_bytes() if isinstance(left, str) else left)
    train(out=copy, resume=True)
    np.testing.assert_array_equal(weights(best), before)
    assert_same_run(whole, copy)


def test_damaged_states_cost_a_few_steps_and_nothing_else(whole, copy):
    for path in Store(copy).paths()[:2]:
        path.write_bytes(path.read_bytes()[:-7])
    with pytest.warns(UserWarning, match="state-00000004.*state-00000003.*last good state, .*state-00000002"):
        outcome = train(out=copy, resume=True, quiet=True, **TINY)
    assert outcome.num_meta_generations == 4
    assert_same_run(copy, whole)


def test_a_signal_while_validating_loses_nothing(tmp_path, scripted, whole):
    before = signal.getsignal(signal.SIGTERM)
    scripted(action=lambda number: number == 1 and signal.raise_signal(signal.SIGTERM))
    outcome = train(out=tmp_path, quiet=True, **TINY)
    assert (outcome.stopped_by, outcome.num_meta_generations) == ("SIGTERM", 2)
    assert signal.getsignal(signal.SIGTERM) is before
    scripted()
    train(out=tmp_path, resume=True, quiet=True, **TINY)
    assert_same_arrays(tmp_path, whole, only="strategy")
    assert [bool(row["score"]) for row in log_of(tmp_path)] == [True, False, True, False, True]


@pytest.mark.parametrize("init", ["none", "file"])
def test_a_signal_before_anything_was_done(tmp_path, scripted, whole, monkeypatch, init):
    settings = TINY | {"init": str(whole) if init == "file" else "none"}
    with monkeypatch.context() as patch:
        patch.setattr(manifest, "environment", lambda: signal.raise_signal(signal.SIGTERM) or {})
        outcome = train(out=tmp_path, quiet=True, **settings)
    assert (outcome.stopped_by, outcome.num_meta_generations) == ("SIGTERM", 0)
    assert log_of(tmp_path) == Store(tmp_path).paths() == []
    expected = weights(whole / "rule.safetensors") if init == "file" else saved(whole).arrays["start"]
    np.testing.assert_array_equal(weights(tmp_path / "last.safetensors"), expected)
    assert train(out=tmp_path, resume=True, quiet=True, **settings).num_meta_generations == 4
    np.testing.assert_array_equal(saved(tmp_path).arrays["start"], expected)


def test_a_second_ctrl_c_leaves_a_run_that_can_go_on(tmp_path, scripted, whole):
    scripted(action=lambda number: number == 1 and [signal.raise_signal(signal.SIGINT) for _ in "ab"])
    with pytest.raises(KeyboardInterrupt):
        train(out=tmp_path, save_every_s=0, quiet=True, **TINY)
    scripted()
    train(out=tmp_path, resume=True, quiet=True, **TINY)
    assert_same_arrays(tmp_path, whole, only="strategy")


# --- lengthened ---


def test_a_finished_run_goes_on_when_asked_for_more(copy, tmp_path, scripted):
    assert train(out=copy, resume=True, quiet=True, num_meta_generations=6).num_meta_generations == 6
    train(out=tmp_path / "long", quiet=True, **TINY | {"num_meta_generations": 6})
    assert_same_arrays(copy, tmp_path / "long", only="strategy")
    assert [row["step"] for row in log_of(copy)] == list("0123456")


def test_another_stage_may_have_other_sizes(copy, tmp_path, scripted):
    """Also when it is cut, and the same words are given again."""
    for done, stopped_by in ((5, "time limit"), (6, None)):
        limit = 1e-9 if stopped_by else None
        outcome = train(out=copy, resume=True, add_stage=[LARGER], time_limit_s=limit, quiet=True)
        assert (outcome.num_meta_generations, outcome.stopped_by) == (done, stopped_by)
    assert saved(copy).config.stages == (configs.Stage(4, 4, 2, 3), configs.Stage(2, 8, 4, 5))
    train(out=tmp_path / "long", add_stage=[LARGER], quiet=True, **TINY)
    assert_same_arrays(copy, tmp_path / "long", only="strategy")
    assert [row["stage"] for row in log_of(copy)] == ["", "0", "0", "0", "0", "1", "1"]


TWO = ("num_meta_generations=2 meta_population_size=8", "num_meta_generations=3 num_tasks=4")
SAME_COMMAND = {
    "what is saved": {},
    "all with the preset": TINY,
    "all but the preset": {name: value for name, value in TINY.items() if name != "preset"},
}


@pytest.mark.parametrize("case", SAME_COMMAND)
@pytest.mark.parametrize("stages", [TWO[:1], TWO[1:], TWO], ids=["members", "tasks", "both"])
@pytest.mark.parametrize("num_done", [4, 5])
def test_the_same_command_again_adds_no_stage_twice(tmp_path, settled, case, stages, num_done):
    expected = config_of(TINY, *stages)
    first = begun(tmp_path / "first", config_of(TINY), 4)
    assert settled(out=first, resume=True, add_stage=stages, **SAME_COMMAND[case]) == expected
    again = begun(tmp_path / "again", expected, num_done)
    assert settled(out=again, resume=True, add_stage=stages, **SAME_COMMAND[case]) == expected


def test_a_finished_stage_can_be_had_again(tmp_path, settled):
    out = begun(tmp_path / "run", config_of(TINY, LARGER), 6)
    assert settled(out=out, resume=True, add_stage=[LARGER]) == config_of(TINY, LARGER, LARGER)


def test_resuming_takes_the_settings_that_were_saved(tmp_path, settled):
    out = begun(tmp_path / "run", config_of(TINY), 2)
    assert settled(out=out, resume=True) == config_of(TINY)
    # 6 tasks divide among the 2 functions of this run, and 6 members into its chunks, if not into those of `small`.
    more = {"num_meta_generations": 9}
    assert settled(out=out, resume=True, **more) == config_of(TINY | more)
    stage = "num_meta_generations=1 num_tasks=6 meta_population_size=6"
    assert settled(out=out, resume=True, add_stage=[stage]) == config_of(TINY, stage)


def test_after_an_imitation_an_evolution_can_be_added(tmp_path, settled):
    settings = COMMON | TAUGHT
    config = dataclasses.replace(config_of(settings), stages=())
    out = begun(tmp_path / "run", config, 0)
    found = settled(out=out, resume=True, add_stage=[LARGER])
    assert found.stages == (configs.Stage(2, 8, 4, 5),)
    assert found.init == "ns"


# --- refused ---


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_with_another_run_is_refused_by_its_differences(whole, resume):
    before = sorted((path.name, path.read_bytes()) for path in whole.iterdir())
    message = r"holds another run; it differs in objective.name: 'fitness' there, 'qd' here; sigma: 0.1 there, 0.3 here"
    with pytest.raises(InvalidInput, match=message):
        train(out=whole, resume=resume, quiet=True, **TINY | {"sigma": 0.3, "objective": "qd"})
    with pytest.raises(InvalidInput, match="num_meta_generations: 4 already done there, 3 here"):
        train(out=whole, resume=resume, quiet=True, **TINY | {"num_meta_generations": 3})
    with pytest.raises(InvalidInput, match=r"meta_population_size \(meta-generation 0\): 4 there, 8 here"):
        train(out=whole, resume=resume, quiet=True, **TINY | {"meta_population_size": 8})
    assert sorted((path.name, path.read_bytes()) for path in whole.iterdir()) == before


def test_the_same_run_is_not_begun_anew_by_mistake(whole):
    with pytest.raises(InvalidInput, match="holds this run, 4 of 4 meta-generations done: give --resume to continue"):
        train(out=whole, quiet=True, **TINY)


def test_a_run_may_begin_with_a_rule_in_the_box(tmp_path, settled):
    config = settled(out=tmp_path / "run", preset="smoke", init="lqd-f")
    assert (config.init, config.architecture) == ("lqd-f", lqd.load("lqd-f").architecture)
    np.testing.assert_array_equal(initial_weights.weights(config), generation.flat_from(lqd.load("lqd-f")))
    with pytest.raises(InvalidInput, match=r"init must be one of none, .*, lqd-f, .* got 'lqd-g'"):
        train(out=tmp_path / "other", init="lqd-g")


def spread(fitness, descriptor):
    """An objective of the user's: how far the good ones reach."""
    reach = jnp.where((fitness > -jnp.inf)[:, None], descriptor, 0.0)
    return jnp.sum(jnp.max(reach, axis=0) - jnp.min(reach, axis=0))


def within(limit):
    return lambda fitness, descriptor: jnp.where(jnp.all(jnp.abs(descriptor) < limit), jnp.max(fitness), jnp.nan)


@dataclasses.dataclass
class Unhashable:
    def __call__(self, fitness, descriptor):
        return jnp.max(fitness)


def test_an_objective_sees_scaled_descriptors_in_training_too(tmp_path):
    """Raw ones reach far beyond 2; a rule of which the objective says NaN has failed."""
    train(out=tmp_path / "run", quiet=True, **TINY | {"objective": within(2.0), "num_meta_generations": 1})
    assert float(log_of(tmp_path / "run")[-1]["num_failed"]) == 0
    with pytest.raises(InvalidInput, match=r"differs in objective.own: .*<lambda>.* there, .*<lambda>.* here"):
        train(out=tmp_path / "run", resume=True, quiet=True, objective=within(0.5))  # the same text, another limit
    again = {"resume": True, "quiet": True, "objective": within(2.0), "num_meta_generations": 2}
    assert train(out=tmp_path / "run", **again).num_meta_generations == 2


def test_an_objective_of_ones_own(tmp_path, capsys):
    given = TINY | {"objective": spread, "quiet": True, "save_every_s": 0}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    outcome = train(out=whole, **given)
    assert outcome.card["objective"].startswith("spread ")
    judge = Validator(config_of(TINY | {"objective": spread}))
    verdict = judge(weights(whole / "rule.safetensors"))
    wins = [statistics.wins(verdict.table["own"], judge.panel[name]["own"]) for name in PANEL]
    assert verdict.score == pytest.approx(np.mean(wins))
    assert outcome.card["validation"]["score"] == pytest.approx(verdict.score)
    assert verdict.table["own"].std() > 0

    # The summary calls it by its name, against each of the panel, in lines that fit.
    train(out=whole, resume=True, objective=spread)
    lines = capsys.readouterr().out.splitlines()
    assert "held-out tasks in spread." in " ".join(lines)
    for rule in PANEL:
        (line,) = (line for line in lines if f"spread   against {rule:7} won" in line)
        row = outcome.card["validation"]["against"]["own"][rule]
        assert f"won {row['win_rate']:6.1%}   effect {row['effect_size']:+.2f}" in line
        assert row["ratio"] is None
    assert all(len(line) <= 80 for line in lines if not line.startswith("Wrote"))

    train(out=cut, **given | {"num_meta_generations": 2})
    with pytest.raises(InvalidInput, match=r"is a function, 'spread .*', which is not saved with it; give it again"):
        train(out=cut, resume=True, quiet=True)
    with pytest.raises(InvalidInput, match=r"holds another run; it differs in objective.own: 'spread .*' there"):
        train(out=cut, resume=True, quiet=True, objective=lambda fitness, descriptor: jnp.max(descriptor))
    with pytest.raises(InvalidInput, match=r"differs in objective.name: 'own' there, 'qd' here"):
        train(out=cut, resume=True, quiet=True, objective="qd")
    train(out=cut, resume=True, **given)
    assert_same_run(whole, cut)
    with pytest.raises(InvalidInput, match="which is not saved with it"):
        rerun.rerun(whole, tmp_path / "again", quiet=True)


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (lambda fitness, descriptor: descriptor[0], r"objective must be a JAX function .* it returned float32\[2\]"),
        (lambda f, d: f + d, r"\(fitness \(8,\), descriptor \(8, 2\)\) -> number \(ValueError"),
        (lambda speed: 0.0, r"unknown parameter of the objective 'speed'.*Choose from: fitness, descriptor, archive, "),
        (lambda fitness, descriptor: float(fitness[0]), r"objective must be a JAX function .* \(Concretization"),
        (lambda fitness, descriptor: None, r"it returned None"),
        (lambda fitness, descriptor: fitness[0].astype(jnp.complex64), r"it returned complex64\[\]"),
        (Unhashable(), r"cannot be hashed; give a plain function"),
        (7, r"objective must be one of 'fitness', 'novelty', 'qd', 'archive', got 7"),
        ("nov", r"objective must be one of"),
    ],
)
def test_an_objective_that_is_none(tmp_path, objective, message):
    with pytest.raises(InvalidInput, match=message):
        train(out=tmp_path / "run", quiet=True, **TINY | {"objective": objective})
    assert not (tmp_path / "run").exists()


def test_a_folder_in_use_is_refused(copy):
    with Store(copy).lock(), pytest.raises(InvalidInput, match=f"--out {copy} is in use by another process"):
        train(out=copy, resume=True, quiet=True, **TINY)


BAD = {
    "preset": ({"preset": "big"}, "unknown preset 'big'. Choose from: smoke, small, reference, paper"),
    "setting": ({"sigm": 1}, "unknown setting 'sigm'. Did you mean 'sigma'"),
    "objective": (
        {"objective": "speed"},
        "objective must be one of 'fitness', 'novelty', 'qd', 'archive', got 'speed'",
    ),
    "init": ({"init": "dnz"}, "^init must be one of none, ga, ns, dns, me, lqd-f, "),
    "time": ({"time_limit_s": 0}, "time_limit_s must be a finite number above 0, got 0"),
    "save": ({"save_every_s": -1}, "save_every_s must be a finite number of at least 0, got -1"),
    "stage": ({"add_stage": ["sigma=1"]}, "unknown field of a stage 'sigma'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_told_before_a_folder_is_made(tmp_path, case):
    settings, message = BAD[case]
    with pytest.raises(InvalidInput, match=message):
        train(out=tmp_path / "run", **TINY | settings)
    assert not (tmp_path / "run").exists()


def test_an_unknown_teacher_lists_those_there_are(tmp_path):
    with pytest.raises(InvalidInput, match=r"unknown rule to imitate 'random'.*Choose from: ga, ns, dns, me"):
        imitate("random", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# --- begun with weights ---


@pytest.mark.parametrize("name", ["", "last.safetensors"])
def test_a_run_from_given_weights(whole, tmp_path, scripted, name):
    init = str(whole / name)
    outcome = train(out=tmp_path, quiet=True, **TINY | {"init": init, "num_meta_generations": 1})
    expected = weights(whole / (name or "rule.safetensors"))
    np.testing.assert_array_equal(saved(tmp_path).arrays["start"], expected)
    assert outcome.card["recipe"] == f"evolution from the weights of {init}"
    assert outcome.card["warm_start"]["weights"] == init
    assert len(outcome.card["warm_start"]["sha256"]) == 64
    assert read_arrays(tmp_path / "rule.safetensors", "rule")[1]["card"]["warm_start"]["weights"] == init


def test_weights_bring_their_architecture(tmp_path, settled):
    architecture = Architecture(descriptor_dim=3, num_layers=2, num_features=8, num_heads=2, num_hidden=4)
    path = lqd.save_rule(tmp_path / "rule.safetensors", Learned.init(jax.random.key(0), architecture))
    config = settled(out=tmp_path / "run", init=path, preset="smoke")
    assert config.architecture == architecture
    assert config.distribution.descriptor_dim == 3
    assert config.init == str(path)


def test_other_weights_under_the_same_name_are_another_run(tmp_path, scripted, whole):
    path = shutil.copy(whole / "rule.safetensors", tmp_path / "mine.safetensors")
    settings = TINY | {"init": str(path), "num_meta_generations": 2}
    train(out=tmp_path / "run", time_limit_s=1e-9, quiet=True, **settings)
    lqd.save_rule(path, Learned.init(jax.random.key(9), saved(whole).config.architecture))
    with pytest.raises(InvalidInput, match="holds another run; it differs in init_sha256"):
        train(out=tmp_path / "run", resume=True, quiet=True, **settings)
    path.unlink()  # is not needed any more
    assert train(out=tmp_path / "run", resume=True, quiet=True).num_meta_generations == 2


# --- imitation ---


def test_an_imitation_is_followed_by_the_evolution(taught):
    rows = log_of(taught)
    assert [row["phase"] for row in rows] == ["imitation"] * 2 + ["evolution"] * 2
    assert [row["step"] for row in rows] == list("1234")
    assert [row["meta_generation"] for row in rows] == list("0012")
    assert all(row["loss"] and row["spearman_runs"] for row in rows[:2])
    assert [bool(row["score"]) for row in rows] == [False, True, False, True]
    card = json.loads((taught / "card.json").read_text())
    assert card["recipe"] == "imitation of the hand-made rule 'ns' by gradient descent, then evolution"
    assert card["warm_start"]["imitated"] == "ns"
    assert card["warm_start"]["loss"] == float(rows[1]["loss"])


def test_a_run_cut_during_its_imitation_is_the_undisturbed_run(taught, tmp_path):
    settings = TINY | TAUGHT | {"num_meta_generations": 2}
    outcome = train(out=tmp_path, resume=True, time_limit_s=1e-9, quiet=True, **settings)
    assert (outcome.stopped_by, outcome.num_meta_generations) == ("time limit", 0)
    assert saved(tmp_path).num_rounds == 1
    assert not (tmp_path / "rule.safetensors").exists()  # nothing was validated yet
    np.testing.assert_array_equal(weights(tmp_path / "last.safetensors"), generation.flat_from(outcome.rule))
    train(out=tmp_path, resume=True, quiet=True, **settings)
    assert_same_run(tmp_path, taught)


def test_an_imitation_alone_is_the_one_before_an_evolution(taught, tmp_path, scripted):
    settings = COMMON | TAUGHT | {"validation_every": 2, "chunk_size": 2}
    outcome = imitate(settings.pop("init"), out=tmp_path, quiet=True, **settings)
    assert outcome.num_meta_generations == 0
    np.testing.assert_array_equal(saved(tmp_path).arrays["start"], saved(taught).arrays["start"])
    np.testing.assert_array_equal(weights(tmp_path / "rule.safetensors"), saved(taught).arrays["start"])
    assert outcome.card["recipe"] == "imitation of the hand-made rule 'ns' by gradient descent"
    with pytest.raises(InvalidInput, match="init: 'ns' there, 'dns' here"):
        imitate("dns", out=tmp_path, resume=True, quiet=True, **settings)


# --- the command line ---


def test_the_commands(tmp_path, capsys, taught, scripted):
    out = tmp_path / "run"
    main(["train", "--out", str(out), *flags(TINY | {"num_meta_generations": 1})])
    printed = capsys.readouterr().out
    assert "evolving for fitness" in printed
    assert all(f"against {rule} " in printed for rule in PANEL)
    assert f"Wrote {out}/" in printed
    assert saved(out).num_meta_generations == 1
    main(["train", "--out", str(out), "--resume", "--num-meta-generations", "2", "--time-limit", "1000", "--quiet"])
    assert saved(out).num_meta_generations == 2
    assert capsys.readouterr().out == ""

    settings = COMMON | TAUGHT | {"out": tmp_path / "imitated"}
    main(["imitate", settings.pop("init"), "--quiet", *flags(settings)])
    np.testing.assert_array_equal(weights(tmp_path / "imitated/rule.safetensors"), saved(taught).arrays["start"])

    for folder in (out, tmp_path / "imitated"):
        (folder / "curve.png").unlink()
        main(["figure", "training", str(folder)])
        assert (folder / "curve.png").stat().st_size > 10_000
    main(["figure", "training", str(out), "--out", str(tmp_path / "curve.pdf")])
    assert (tmp_path / "curve.pdf").read_bytes()[:5] == b"%PDF-"
    assert f"Wrote {tmp_path / 'curve.pdf'}" in capsys.readouterr().out


def test_where_the_learning_leads(tmp_path, capsys):
    for name, end in (("first", 0.8), ("second", 0.6)):
        rows = [f"{step},{end - step**-0.5 if step else 0.1}" for step in range(0, 416, 32)]
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.csv").write_text("\n".join(["meta_generation,score", "7,", *rows, ""]))
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    main(["figure", "learning", first, "--beside", second, "--until", "10000"])
    said = capsys.readouterr().out
    assert (tmp_path / "first" / "learning.png").stat().st_size > 10_000
    assert "first: 0.749 after 384 meta-generations; its last half added +0.0" in said
    assert "second: 0.549 after 384" in said
    for name, leads_to in (("first", 0.79), ("second", 0.59)):
        line = next(line for line in said.splitlines() if line.startswith(name))
        assert float(line.split("leads to ")[1].split()[0]) == pytest.approx(leads_to, abs=0.003)
    (tmp_path / "second" / "log.csv").write_text("meta_generation,score\n32,0.5\n64,0.6\n")
    for words, message in (
        ([second], "second: a learning curve needs 5 scores.*got 2.*validation-every"),
        ([str(tmp_path)], "is not the folder of a training run"),
        ([first, "--until", "0"], "until must be .* at least 1"),
        ([first, "--out", "a.txt"], "must end in .png"),
    ):
        with pytest.raises(SystemExit):
            main(["figure", "learning", *words])
        assert re.search(message, capsys.readouterr().err.replace("\n", " "))


def test_a_flag_that_was_typed_was_given(tmp_path, monkeypatch):
    """Also where it says what is the default; and one that was not typed was not."""
    given = {}
    monkeypatch.setattr(
        "lqd.meta.train.train", lambda **settings: given.update(settings) or SimpleNamespace(stopped_by=None)
    )
    for words, expected in (
        ([], {}),
        (["--noise", "--rotate"], {"noise": True, "rotate": True}),
        (["--no-noise"], {"noise": False}),
        (["--no_rotate", "--noise"], {"rotate": False, "noise": True}),
        (["--seed", "0", "--resume"], {"seed": 0}),
    ):
        given.clear()
        main(["train", "--out", str(tmp_path), *words])
        compared = {name: given[name] for name in given if name in presets.SETTINGS}
        assert compared == expected, words


def test_a_resumed_run_is_compared_with_what_was_typed(tmp_path, capsys, scripted):
    train(out=tmp_path, quiet=True, **TINY | {"num_meta_generations": 1, "noise": False, "rotate": False})
    capsys.readouterr()
    for name in ("noise", "rotate"):
        with pytest.raises(SystemExit):
            main(["train", "--out", str(tmp_path), "--resume", f"--{name}", "--quiet"])
        assert f"distribution.{name}: False there, True here" in capsys.readouterr().err
    main(["train", "--out", str(tmp_path), "--resume", "--quiet"])
    main(["train", "--out", str(tmp_path), "--resume", "--no-noise", "--quiet"])


def test_an_imitation_goes_on_without_being_told_of_whom(tmp_path, scripted):
    settings = COMMON | TAUGHT | {"init": "dns"}
    imitate(settings.pop("init"), out=tmp_path, quiet=True, time_limit_s=1e-9, **settings)
    main(["imitate", "--out", str(tmp_path), "--resume", "--quiet"])
    assert saved(tmp_path).config.init == "dns"
    assert saved(tmp_path).num_rounds == 2
    with pytest.raises(SystemExit):
        main(["imitate", "ns", "--out", str(tmp_path), "--resume", "--quiet"])


BAD_COMMANDS = {
    "preset": (["train", "--preset", "smal"], "'small' or 'smoke'? Choose from: smoke, small, reference, paper"),
    "objective": (["train", "--objective", "qdscore"], "--objective must be one of 'fitness', 'novelty', 'qd'"),
    "strategy": (["train", "--strategy", "adam"], "Choose from: sep-cma-es, sep-cma-es-stock, snes, open-es"),
    "tasks": (["train", "--num-tasks", "64"], "--num-tasks must be a multiple of the 22 functions, got 64; 44 or 66"),
    "init": (["train", "--init", "missing.safetensors"], "--init must be one of none, ga, ns, dns, me, lqd-f, "),
    "process": (["train", "--process-id", "1"], "--process-id need --distributed"),
    "members": (
        ["train", "--meta-population-size", "2"],
        "--meta-population-size must be a whole number of at least 4",
    ),
    "chunks": (
        ["train", "--meta-population-size", "66"],
        "--meta-population-size=66 in chunks of 64 does not divide; ",
    ),
    "stage": (
        ["train", "--add-stage", "num_tasks=22"],
        "--add-stage must say num_meta_generations=..., got 'num_tasks",
    ),
    "shapes": (["train", "--shapes", "population_size=x"], "--shapes: population_size must be a whole number, got 'x'"),
    "size": (["train", "--shapes", "batch_size=0"], "--shapes: batch_size must be a whole number of at least 1"),
    "entry": (
        ["train", "--validation-on", "tasks=arm-small num_tasks=0"],
        "--validation-on arm-small: num_tasks must be a whole number of at least 1, got 0",
    ),
    "functions": (
        ["train", "--preset", "smoke", "--tasks", "arm-small", "--functions", "sphere"],
        "--functions must be given to the family: it is a setting of the BBOB tasks that a run has where none are",
    ),
    "family": (["train", "--tasks", "json:bowls"], "--tasks: module 'json' has no 'bowls'; give module:name."),
    "own": (["train", "--objective", "json:area"], "--objective: module 'json' has no 'area'; give module:name."),
    "validation": (["imitate", "ns", "--validation-tasks", "3"], "--validation-tasks must be a multiple of the 22"),
    "cluster": (["train", "--distributed"], "elsewhere give --coordinator-address HOST:PORT, --num-processes N and"),
    "address": (
        ["train", "--distributed", "--coordinator-address", "host0"],
        "--coordinator-address must be HOST:PORT",
    ),
    "number": (
        ["train", "--distributed", "--num-processes", "2", "--process-id", "2"],
        "--process-id must be from 0 to 1, as --num-",
    ),
    "teacher": (["imitate", "random"], "Choose from: ga, ns, dns, me"),
}


@pytest.mark.parametrize("case", BAD_COMMANDS)
def test_bad_commands_end_in_one_line(case, tmp_path, capsys):
    command, message = BAD_COMMANDS[case]
    with pytest.raises(SystemExit) as stop:
        main([*command, "--out", str(tmp_path / "run")])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_bad_figures_end_in_one_line(whole, tmp_path, capsys):
    for command, message in (
        (["curves", str(whole)], "unknown figure 'curves'."),
        (["training", str(tmp_path)], "is not the folder of a training run: it has no log.csv"),
        (["training", str(whole), "--out", str(tmp_path / "x.txt")], "--out must end in .png, .pdf or .svg"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["figure", *command])
        assert stop.value.code == 2
        assert message in capsys.readouterr().err
