"""The suite of the second generation: what runs, on which random numbers, and that an interrupted bench continues."""

import dataclasses
import json
import math
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lqd import cli
from lqd.bench import domains, piece, runner, second, watched
from lqd.bench.runner import TEST, VALIDATION, Bench
from lqd.bench.second_tables import MAP_ELITES, TABLES
from lqd.bench.settings import ARM, Setting
from lqd.errors import InvalidInput
from lqd.meta import families
from lqd.meta.families import arms, clipped, wide
from lqd.rules import trained
from lqd.rules.learned.network import Architecture
from lqd.rules.learned.rule import Learned

TINY = second.Size(
    ("sphere",), num_seeds=2, num_grid_seeds=2, domains=("arm-12",),
    evaluations={"bbob": 192, "bbob-40": 192, "grid": 192, "million": 192},
)  # fmt: skip


def leading(seed: int = 0) -> Learned:
    return Learned.init(jax.random.key(seed), Architecture(2, 1, 4, 4, 4, recipe=3))


def test_every_opponent_that_was_asked_for_is_there():
    assert TABLES["fitness"].others == ("lqd-f+led", "lqd-f+paper", "ga+led", "me+led", "cma-es")
    assert TABLES["novelty"].others == ("ns+led", "lqd-n+led", "lqd-n+paper")
    full = second.PRESETS["full"]
    assert (len(full.functions), full.num_seeds, full.num_grid_seeds) == (22, 32, 16)
    assert full.setting("bbob").num_evaluations == 8_320
    forty = full.setting("bbob-40")
    assert (forty.min_dim, forty.max_dim, forty.num_evaluations) == (40, 40, 41_600)
    every = list(TABLES)
    assert [second.chosen("full", ()), second.chosen("full", ("million",))] == [every[:-1], ["million"]]
    assert second.chosen("quick", ()) == [name for name in every if name not in ("fitness-40", "million")]


def test_rules_that_are_not_there_are_left_out_and_said_so(monkeypatch):
    monkeypatch.setattr(second.cma_es, "is_installed", lambda: False)
    monkeypatch.setattr(second.watched, "has_ribs", lambda: False)
    monkeypatch.setattr(second.catalogue, "RULES", {k: v for k, v in second.catalogue.RULES.items() if "2" not in k})
    work = second.plan("full")
    assert work.left_out[0] == "Table `million` is not in preset `full`: `--only million` runs it."
    assert work.left_out[1] == "`lqd2-f` is not shipped yet: its rows are left out."
    assert "`cma-es` needs cma (pip install 'lqd[bench]'): its rows are left out." in work.left_out
    assert len(work.left_out) == 1 + 3 + 1 + 2
    assert work.tables["fitness"].ours == ()
    assert work.names["bbob"][0] == MAP_ELITES
    assert work.names["bbob"].count(MAP_ELITES) == 1
    assert set(work.names["grid"]) == {"lqd-fn+spread", "lqd-fn+led", "dns+spread", "dns+tuned"}


def test_candidates_stand_in_the_table_of_their_kind():
    own = {"lqd2-f": leading(), "lqd2-f.b": leading(1), "lqd2-fn.c": leading(2)}
    tables = second.plan("quick", ("fitness", "grid", "novelty"), own, without=("lqd-f+paper",)).tables
    assert tables["fitness"].ours == ("lqd2-f+led", "lqd2-f.b+led")
    assert "lqd2-fn.c+led" in tables["grid"].ours
    assert not any("." in name for name in tables["novelty"].ours)
    assert "lqd-f+paper" not in tables["fitness"].others


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"only": ("fitnes",)}, "unknown table 'fitnes'. Did you mean 'fitness'"),
        ({"without": ("gaa+led",)}, "unknown opponent 'gaa\\+led'. Did you mean 'ga\\+led'"),
        ({"own": {"lqd-f": leading()}}, "unknown rule to judge 'lqd-f'"),
        ({"preset": "huge"}, "unknown preset 'huge'"),
    ],
)
def test_wrong_names_are_refused_before_anything_runs(given, said, tmp_path, monkeypatch):
    monkeypatch.setattr(second, "_bbob", None)
    monkeypatch.setattr(second, "_grid", None)
    with pytest.raises(InvalidInput, match=said):
        second.run(**({"preset": "quick", "out": tmp_path} | given))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"num_seeds": 1}, "num_seeds"),
        ({"domains": ("arm-8",)}, "unknown task 'arm-8'"),
        ({"evaluations": {"bbob": 8_321}}, "bbob: 8,321 evaluations are not 128 and whole batches of 32"),
    ],
)
def test_wrong_sizes_are_refused(given, said):
    with pytest.raises(InvalidInput, match=said):
        dataclasses.replace(TINY, **given)


def test_the_command_line(tmp_path, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(second, "run", lambda *given, **named: asked.append((given[0], named)) or SHOWN)
    given = ["bench", "--suite", "second", "--out", str(tmp_path), "--quiet"]
    cli.main([*given, "--only", "diversity"])
    assert asked == [("quick", {"only": ("diversity",)})]
    printed = capsys.readouterr().out
    assert "62.5 (60.0 to 65.0)" in printed
    assert "lqd2-n is not shipped yet" in printed
    for wrong, said in ((["--only", "diversit"], "unknown table"), (["--time-limit-s", "9"], "--time-limit-s is for")):
        with pytest.raises(SystemExit):
            cli.main([*given, *wrong])
        assert said in capsys.readouterr().err


SHOWN = {
    "tables": {
        "diversity": {
            "title": "Diversity",
            "rows": [{"rule": "lqd2-f+led", "value": 0.625, "value_low": 0.6, "value_high": 0.65, "num_filled": 128.0}],
            "comparisons": [],
        }
    },
    "left_out": ["`lqd2-n` is not shipped yet: its rows are left out."],
}


def test_an_interrupted_bench_continues_to_the_same_bits(tmp_path, monkeypatch):
    class Stop(Exception):
        pass

    def run(folder, progress=lambda *_: None):
        return second.run(
            "tiny", folder, progress, ("diversity",), which=VALIDATION, own={"lqd2-f": leading()},
            without=("lqd-f+led",), size=TINY,
        )  # fmt: skip

    def stop(label, done, total):
        if done == 2:
            raise Stop

    with pytest.raises(Stop):
        run(tmp_path / "cut", stop)
    assert not (tmp_path / "cut" / "second.md").exists()
    ran = []
    original = runner._run
    monkeypatch.setattr(runner, "_run", lambda *given: ran.append(type(given[2]).__name__) or original(*given))
    content = run(tmp_path / "cut")
    assert ran == ["GeneticAlgorithm"]
    whole = run(tmp_path / "whole")
    assert content["tables"] == whole["tables"]
    assert [row["rule"] for row in content["tables"]["diversity"]["rows"]] == ["lqd2-f+led", "ga+led", "me+led"]
    text = (tmp_path / "cut" / "second.md").read_text()
    assert "`lqd bench --suite second --preset tiny --only diversity`" in text
    assert f"`lqd2-f` has the weights with the fingerprint {leading().fingerprint()}." in text
    assert "random numbers that choices are made on" in text
    assert json.loads((tmp_path / "cut" / "second.json").read_text())["key"] == "validation"
    for path in (tmp_path / "cut" / "pieces").rglob("*.safetensors"):
        other = tmp_path / "whole" / path.relative_to(tmp_path / "cut")
        first, again = (runner.read_arrays(one, "piece") for one in (path, other))
        assert {name: value.tobytes() for name, value in first[0].items()} == {
            name: value.tobytes() for name, value in again[0].items()
        }
        assert first[1]["key"] == VALIDATION
    bench = Bench(TINY.setting("bbob"), tmp_path / "cut/pieces/tiny/bbob", which=VALIDATION, slots_of=MAP_ELITES)
    assert bench.has("ga+led")
    for other in ({"which": TEST}, {"slots_of": "me"}):
        given = {"which": VALIDATION, "slots_of": MAP_ELITES} | other
        assert not Bench(bench.setting, bench.folder, **given).has("ga+led"), other
    changed = Bench(bench.setting, bench.folder, which=VALIDATION, slots_of=MAP_ELITES, rules={"lqd2-f": leading(1)})
    assert not changed.has("lqd2-f+led")


def test_the_papers_variation_by_name_is_what_a_plain_name_has(tmp_path):
    setting = Setting(functions=ARM, num_seeds=2, num_generations=2, population_size=8, batch_size=4)
    bench = Bench(setting, tmp_path)
    bench.measure("me")
    np.testing.assert_allclose(bench.measure("ga+paper")["fitness"], bench.measure("ga")["fitness"], rtol=1e-5)
    with pytest.raises(InvalidInput, match=r"side by side have the paper's variation, not that of ga\+led"):
        bench.measure_together(["me", "ga+led"])


@pytest.mark.parametrize("others", [(), pytest.param(("dns+spread", "dns+tuned"), marks=pytest.mark.slow)])
def test_the_grid_sees_every_solution_and_its_pieces_are_kept(others, tmp_path, monkeypatch):
    own = {"lqd2-fn": leading()}
    without = [name for name in TABLES["grid"].others if name not in others]
    content = second.run("tiny", tmp_path, only=("grid",), own=own, without=without, size=TINY)
    rows = {row["rule"]: row for row in content["tables"]["grid"]["rows"]}
    assert tuple(rows) == ("lqd2-fn+led", *others)
    for row in rows.values():
        assert row["num_evaluations"] == 192
        assert 0.005 < row["coverage"] <= 192 / 10_000
        assert 0 < row["value"] <= 10_000 * row["coverage"] + 1e-3
    monkeypatch.setattr(watched, "search", None)  # nothing is run again
    again = second.run("tiny", tmp_path, only=("grid",), own=own, without=without, size=TINY)
    assert again["tables"] == content["tables"]
    path = tmp_path / "pieces/tiny/grid/arm-12/lqd2-fn+led.safetensors"
    about = runner.read_arrays(path, "piece")[1]
    assert about["rule"] == own["lqd2-fn"].fingerprint()
    assert about["variation"]["name"] == "led"
    assert piece.read(path, {"another": 1}) is None


def test_tasks_and_keys_of_choices_are_not_those_of_quotes(tmp_path):
    setting = TINY.setting("bbob")
    keys, drawn = {}, {}
    for which in (VALIDATION, TEST):
        bench = Bench(setting, tmp_path, which=which)
        every = [*runner.held_out(which), *bench.keys]
        every += list(jax.random.split(jax.random.fold_in(runner.held_out(which).runs, second.STREAM), 16))
        keys[which] = {tuple(jax.random.key_data(key).ravel().tolist()) for key in every}
        drawn[which] = np.asarray(bench.field.tasks.instances[0].x_opt)
        assert len(keys[which]) == len(every)
    assert not keys[VALIDATION] & keys[TEST]
    shared = (drawn[VALIDATION][:, None] == drawn[TEST][None]) & (drawn[TEST][None] != 0)
    assert not shared.any()


def test_no_task_of_the_grid_is_trained_on():
    """Sphere and Rastrigin with sums of clipped halves, arms of 12 and of 100 joints."""
    assert {domain.function.__name__ for domain in domains.DOMAINS.values()} == {"sphere", "rastrigin", "arm"}
    assert not {"sphere", "rastrigin"} & set(clipped.FUNCTIONS)
    assert {"sphere", "rastrigin"} <= set(wide.NEVER_COORDINATES)
    for domain in domains.DOMAINS.values():
        if domain.function is domains.arm:
            with pytest.raises(InvalidInput, match="held out for benches"):
                arms.Arms(domain.dim, domain.dim)
            assert domain.dim in arms.HELD_OUT or domain.dim > arms.MOST
    for name in families.names():
        if name == "robots":
            continue
        family = families.make(name)
        family = getattr(family, "family", family)
        if isinstance(family, arms.Arms):
            lengths = range(family.min_joints, family.max_joints + 1)
            assert not {domain.dim for domain in domains.DOMAINS.values() if domain.function is domains.arm} & set(
                lengths
            )
        elif isinstance(family, clipped.Clipped):
            assert not {"sphere", "rastrigin"} & set(family.functions)


@pytest.mark.parametrize("xp", [np, jnp])
def test_rastrigin_at_known_points(xp):
    points = xp.asarray(np.array([np.full(20, 2.048), np.full(20, -5.12), np.full(20, 3.048)], np.float32))
    objective, measures = domains.rastrigin(points, xp)
    worst = 7.168**2 + 10 - 10 * math.cos(2 * math.pi * 7.168)
    np.testing.assert_allclose(objective, [100, 0, 100 * (1 - 1 / worst)], atol=2e-3)  # one period away: 1 a coordinate
    np.testing.assert_allclose(measures[:2], [[20.48, 20.48], [-51.2, -51.2]], rtol=1e-5)
    assert domains.DOMAINS["rastrigin-100"].half_width == 256.0
    assert domains.TUNED.keys() == domains.DOMAINS.keys()


@pytest.fixture
def validation(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(pathlib.Path(__file__).parents[2] / "benchmarks"), *sys.path])
    import second_validation

    return second_validation


def test_candidates_are_judged_on_the_random_numbers_of_choices(validation, tmp_path, monkeypatch, capsys):
    path = trained.save_rule(tmp_path / "rule.safetensors", leading())
    asked = []
    monkeypatch.setattr(second, "run", lambda *given, **named: asked.append((given, named)) or SHOWN)
    validation.main(["--rule", f"lqd2-f={path}", "--table", "diversity", "--seeds", "3", "--out", str(tmp_path)])
    ((given, named),) = asked
    assert given[3] == ["diversity"]
    assert named["which"] == VALIDATION
    assert named["command"].endswith("second_validation.py --preset full --table diversity --seeds 3")
    assert (named["size"].num_seeds, named["size"].num_grid_seeds) == (3, 3)
    assert named["own"]["lqd2-f"].fingerprint() == leading().fingerprint()
    assert "lqd2-f+led | 62.5 (60.0 to 65.0) | 128" in capsys.readouterr().out
    for wrong, said in ((["lqd2-f"], "NAME=FILE"), ([f"lqd2-f={path}"] * 2, "given twice"), (["a=b"], "no such file")):
        with pytest.raises(InvalidInput, match=said):
            validation.rules(wrong)
