"""The paper's suites: what they run, what they write, and that an interrupted one goes on."""

import dataclasses
import pathlib

import jax.numpy as jnp
import numpy as np
import planted
import pytest

from lqd import cli
from lqd.bench import landscapes, runner, settings, side_by_side, suites
from lqd.bench.plan import Part, measure_all
from lqd.bench.results import Folder
from lqd.errors import InvalidInput, Unreadable
from lqd.evolution import driver
from lqd.io.files import read_arrays, write_arrays
from lqd.rules import catalogue
from lqd.rules.learned import recipe2
from lqd.tasks.bbob import instances

TINY = dataclasses.replace(
    suites.PRESETS["quick"], functions=("sphere", "rastrigin"), num_seeds=2, num_evaluations=8 * 12, num_rows=3
)


def test_the_papers_sizes():
    plan = suites.plan("all", suites.PRESETS["paper"])
    train = plan["train"]
    assert train.setting.functions == instances.TRAINING_SET
    assert train.rules == (*suites.RULES, "lqd-f@random")
    assert (train.setting.num_seeds, train.setting.max_dim, train.setting.rotate) == (32, 16, False)
    assert 999_000 < train.setting.num_evaluations <= 1_000_000
    assert plan["ood"].setting.functions == instances.OOD
    grid = {name: part for name, part in plan.items() if name.startswith("grid")}
    assert [part.setting.population_size for part in grid.values()] == [64, 128, 256, 512, 1024]
    assert all(part.setting.dims == (2, 4, 8, 16, 32) for part in grid.values())
    assert {round(part.setting.num_evaluations, -3) for part in grid.values()} == {1_000_000}


def test_rows_are_ever_further_apart_and_end_at_the_end():
    rows = settings.Setting(num_generations=1000, num_rows=8).rows
    assert rows[0] == 1
    assert rows[-1] == 1000
    assert (np.diff(rows, n=2) > 0).all()
    np.testing.assert_array_equal(settings.Setting(num_generations=7).rows, [7])


@pytest.fixture(autouse=True)
def slow(monkeypatch):
    """As on a slow simulator: a generation a call."""
    monkeypatch.setattr(driver, "SECONDS_PER_CALL", 0.0)


@pytest.fixture
def small(monkeypatch):
    """The arm alone, with two rules."""

    def plan(preset):
        setting = preset.setting(8, functions=settings.ARM, num_rows=preset.num_rows)
        return {"arm": Part(setting, ("me", "random"))}

    monkeypatch.setitem(suites.SUITES, "robots", plan)
    monkeypatch.setitem(suites.PRESETS, "tiny", TINY)


def test_a_suite_writes_what_it_measured_and_goes_on_where_it_stopped(tmp_path, small, monkeypatch):
    class Stop(Exception):
        pass

    def stop_before_the_second(label, done, total):
        if done == 1:
            raise Stop

    with pytest.raises(Stop):
        suites.run("robots", "tiny", tmp_path, stop_before_the_second)
    assert not (tmp_path / "manifest.json").exists()
    ran = []
    original = runner._run
    monkeypatch.setattr(runner, "_run", lambda *given: ran.append(given[2]) or original(*given))
    suites.run("robots", "tiny", tmp_path)
    assert [type(rule).__name__ for rule in ran] == ["Random"]

    folder = Folder(tmp_path)
    assert folder.caveat.startswith("TINY PRESET")
    assert folder.columns("arm") == [("arm", None)]
    kept = runner.Bench(suites.plan("robots", TINY)["arm"].setting, tmp_path / "pieces/tiny/arm").measure("me")
    np.testing.assert_array_equal(folder.table("arm", "me")["novelty"], kept["novelty"])
    history = folder.history("arm", "me")
    np.testing.assert_array_equal(history["best"], kept["history.best"])
    np.testing.assert_array_equal(history["best"][-1], kept["history.best"][-1])
    assert (np.diff(history["best"], axis=0) >= 0).all()
    assert history["num_evaluations"][-1] == folder.parts["arm"]["setting"]["num_generations"] * 2 + 8
    assert folder.manifest["parts"]["arm"]["pieces"]["me"]["versions"]["jax"]


def test_a_bench_says_how_many_evaluations_were_asked_for_and_made(tmp_path, small, monkeypatch, capsys):
    monkeypatch.setattr("lqd.report.draw.make_all", lambda folder: {})
    monkeypatch.setattr("lqd.report.page.write", lambda out, figures: out)
    monkeypatch.setattr("lqd.bench.verdicts.verdicts", lambda folder: [])
    cli.main(["bench", "--suite", "robots", "--preset", "tiny", "--out", str(tmp_path), "--quiet"])
    part = Folder(tmp_path).parts["arm"]
    generations = part["setting"]["num_generations"]
    assert part["num_evaluations"] == {"asked": 96, "made": 8 + 2 * generations}
    said = f"96 evaluations asked for: population 8, {generations} generations of 2, {8 + 2 * generations} made."
    assert said in capsys.readouterr().out


def test_budgets_of_the_paper():
    paper = suites.PRESETS["paper"]
    found = [paper.setting(size) for size in (64, 128, 256, 512, 1024)]
    assert [(setting.num_generations, setting.num_evaluations) for setting in found[1::3]] == [
        (31_246, 1_000_000),
        (3_902, 999_936),
    ]
    parts = {
        str(setting.population_size): {
            "setting": dataclasses.asdict(setting),
            "num_evaluations": {"asked": 10**6, "made": setting.num_evaluations},
        }
        for setting in found
    }
    said = suites.budgets({"parts": parts})
    assert "population 128, 31,246 generations of 32, 1,000,000 made" in said
    assert "population 1,024, 3,902 generations of 256, 999,936 made" in said
    assert said.count("asked for") == 1
    docs = (pathlib.Path(__file__).parents[2] / "docs" / "claims.md").read_text()
    for setting in found:
        assert f"{setting.num_generations:,}" in docs
        assert f"{setting.num_evaluations:,}" in docs


def test_map_elites_comes_first_and_results_keep_the_plans_order(tmp_path):
    setting, seen = TINY.setting(8, functions=settings.ARM), []
    plan = {"arm": Part(setting, ("random", "me", "ga@random"))}
    results = measure_all(plan, tmp_path, lambda *given: seen.append(given))
    assert seen == [("arm: me", 0, 3), ("arm: random", 1, 3), ("arm: ga@random", 2, 3), ("done", 3, 3)]
    assert tuple(results.tables["arm"]) == plan["arm"].rules
    assert list(results.rows()["rule"].unique()) == ["random", "me", "ga@random"]


def test_a_part_without_map_elites_is_refused_before_anything_runs(tmp_path):
    setting = TINY.setting(8, functions=settings.ARM)
    plan = {"first": Part(setting, ("me",)), "second": Part(setting, ("ga", "ns"), together=True)}
    with pytest.raises(InvalidInput, match=r"part 'second' needs 'me' among its rules"):
        measure_all(plan, tmp_path / "out", lambda *_: None)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("size", ["quick", "scaled", "longer", "paper"])
def test_every_part_of_every_suite_has_map_elites(size, monkeypatch):
    monkeypatch.setattr(suites, "has_brax", lambda: True)
    for part in suites.plan("all", suites.PRESETS[size]).values():
        assert "me" in part.rules


def test_a_folder_holds_the_suites_that_were_run_into_it(tmp_path, small, monkeypatch):
    """A figure whose results are missing says which suite to run into the folder: the others must still be there."""

    def other(preset):
        return {"two": Part(preset.setting(8, functions=settings.ARM), ("me",))}

    monkeypatch.setitem(suites.SUITES, "grid", other)
    for suite in ("robots", "grid", "grid"):
        suites.run(suite, "tiny", tmp_path)
    folder = Folder(tmp_path)
    assert folder.manifest["suites"] == ["grid", "robots"]
    assert set(folder.parts) == {"two", "arm"}
    assert folder.table("arm", "random")["fitness"].shape == folder.table("two", "me")["fitness"].shape
    monkeypatch.setitem(suites.PRESETS, "other", TINY)
    with pytest.raises(InvalidInput, match=r"holds results of preset 'tiny'.*give another folder"):
        suites.run("grid", "other", tmp_path)
    suites.run("grid", "tiny", tmp_path, num_seeds=3)
    assert Folder(tmp_path).table("arm", "random")["fitness"].shape == (3, 1)
    with pytest.raises(InvalidInput, match=r"holds 'two' with 3 seeds, these would be 2; give --seeds 3 or more"):
        suites.run("grid", "tiny", tmp_path)


def test_robots_that_are_there_are_not_overwritten_without_brax(tmp_path, monkeypatch):
    folder = planted.write(tmp_path, {}, suite="robots")
    before = (folder / "manifest.json").read_bytes()
    monkeypatch.setattr(suites, "has_brax", lambda: False)
    with pytest.raises(InvalidInput, match=r"holds 'hopper', .*need brax: pip install 'lqd\[brax\]'"):
        suites.run("robots", "quick", folder)
    assert (folder / "manifest.json").read_bytes() == before


@pytest.mark.parametrize(("suite", "installed", "said"), [("robots", False, True), ("all", False, True),
                                                          ("grid", False, False), ("robots", True, False)])  # fmt: skip
def test_what_is_left_out_without_brax_is_told(tmp_path, monkeypatch, capsys, suite, installed, said):
    def stop(*_):
        raise InvalidInput("far enough")

    monkeypatch.setattr(suites, "run", stop)
    monkeypatch.setattr(suites, "has_brax", lambda: installed)
    with pytest.raises(SystemExit):
        cli.main(["bench", "--suite", suite, "--out", str(tmp_path / "out"), "--quiet"])
    assert ("pip install 'lqd[brax]'" in capsys.readouterr().err) == said


def test_together_is_as_alone(tmp_path):
    setting = settings.Setting(
        functions=settings.ARM, num_seeds=2, num_generations=5, num_rows=2, population_size=8, batch_size=4
    )
    names = ("me", "ga", "dns@random")
    joint, alone = runner.Bench(setting, tmp_path / "together"), runner.Bench(setting, tmp_path / "alone")
    joint.measure_together(names)
    assert set(joint.made) == {"random-search", *names}
    for name in names:
        found = joint.measure(name)
        for measure, expected in alone.measure(name).items():
            np.testing.assert_array_equal(found[measure], expected, err_msg=f"{name} {measure}")
    assert (alone.measure("dns@random")["novelty"] > 0.5).all()  # of standard normal descriptors, not the arm's


def test_together_needs_map_elites_before_anything_runs(tmp_path):
    setting = settings.Setting(functions=settings.ARM, num_seeds=2, num_generations=1, population_size=8, batch_size=4)
    seen = []
    with pytest.raises(InvalidInput, match="measure 'me' first"):
        runner.Bench(setting, tmp_path).measure_together(("ga", "ns"), seen.append)
    assert seen == []


def test_together_goes_on_where_it_was_cut(tmp_path, monkeypatch):
    setting = settings.Setting(
        functions=settings.ARM, num_seeds=2, num_generations=5, num_rows=3, population_size=8, batch_size=4
    )
    names, whole = ("me", "dns@random", "lqd-f"), runner.Bench(setting, tmp_path / "whole")
    whole.measure_together(names)
    assert not (tmp_path / "whole" / "together.safetensors").exists()

    monkeypatch.setattr(side_by_side, "KEEP_S", 0.0)
    monkeypatch.setattr(side_by_side, "KEEP_SHARE", np.inf)
    seen = []

    def cut(generation):
        seen.append(generation)
        if generation == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.Bench(setting, tmp_path / "cut").measure_together(names, cut)
    resumed = runner.Bench(setting, tmp_path / "cut")
    resumed.measure_together(names, seen.append)
    assert seen == [1, 2, 3, 4, 4, 5]
    assert not (tmp_path / "cut" / "together.safetensors").exists()
    for name in names:
        for measure, expected in whole.measure(name).items():
            np.testing.assert_array_equal(resumed.measure(name)[measure], expected, err_msg=f"{name} {measure}")


def test_more_seeds_are_added_to_those_there_are(tmp_path, monkeypatch):
    few = settings.Setting(
        functions=settings.ARM, num_seeds=2, num_generations=5, num_rows=3, population_size=8, batch_size=4
    )
    many, names = dataclasses.replace(few, num_seeds=5), ("me", "dns@random")
    whole, grown = (runner.Bench(many, tmp_path / name) for name in ("whole", "grown"))
    whole.measure_together(names)
    runner.Bench(few, tmp_path / "grown").measure_together(names)
    for name in names:  # marked, to see that they are taken
        path = tmp_path / "grown" / f"{name}.safetensors"
        arrays, description = read_arrays(path, "piece")
        write_arrays(path, "piece", arrays | {"fitness": arrays["fitness"] + 1}, description)

    write, cut = grown._write, []

    def cut_once(*given):
        if given[0] == "dns@random" and not cut:
            cut.append(given)
            raise KeyboardInterrupt
        write(*given)

    monkeypatch.setattr(grown, "_write", cut_once)
    ran = []
    with pytest.raises(KeyboardInterrupt):
        grown.measure_together(names, ran.append)
    assert ran == [1, 2, 3, 4, 5]
    grown.measure_together(names, ran.append)
    assert ran == [1, 2, 3, 4, 5]
    assert not (tmp_path / "grown" / "more-seeds").exists()
    for name in names:
        expected, found = whole.measure(name), grown.measure(name)
        assert found.keys() == expected.keys()
        for measure in expected:
            mark = np.where(np.arange(5) < 2, float(measure == "fitness"), 0.0)[:, None]
            np.testing.assert_allclose(found[measure] - mark, expected[measure], rtol=1e-6, err_msg=f"{name} {measure}")


@pytest.mark.slow
def test_seeds_are_added_where_map_elites_has_no_piece_yet(tmp_path):
    few = settings.Setting(functions=settings.ARM, num_seeds=2, num_generations=3, population_size=8, batch_size=4)
    whole, grown = (runner.Bench(dataclasses.replace(few, num_seeds=3), tmp_path / name) for name in ("all", "grown"))
    runner.Bench(few, tmp_path / "grown").measure_together(("me", "ga"))
    (tmp_path / "grown" / "me.safetensors").unlink()
    for bench in (whole, grown):
        bench.measure_together(("me", "ga"))
    for name in ("me", "ga"):
        found = grown.measure(name)
        for measure, expected in whole.measure(name).items():
            np.testing.assert_allclose(found[measure], expected, rtol=1e-6, err_msg=f"{name} {measure}")


@pytest.mark.parametrize("num_written", [0, 1, 3])
def test_together_cut_while_the_pieces_are_written(tmp_path, monkeypatch, num_written):
    """What is kept serves until all are there; then it goes."""
    setting = settings.Setting(functions=settings.ARM, num_seeds=2, num_generations=3, population_size=8, batch_size=4)
    monkeypatch.setattr(side_by_side, "KEEP_S", 0.0)
    monkeypatch.setattr(side_by_side, "KEEP_SHARE", np.inf)
    names, bench = ("ga", "me", "ns"), runner.Bench(setting, tmp_path)
    write, written = bench._write, []

    def cut(*given):
        if len(written) == num_written:
            raise KeyboardInterrupt
        written.append(given[0])
        write(*given)

    bench.anchors()
    monkeypatch.setattr(bench, "_write", cut)
    monkeypatch.setattr(side_by_side.Kept, "remove", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        bench.measure_together(names)
    assert (tmp_path / "together.safetensors").exists()
    monkeypatch.undo()
    seen = []
    runner.Bench(setting, tmp_path).measure_together(names, seen.append)
    assert seen == []  # nothing is run again
    for name in names:
        assert np.isfinite(runner.Bench(setting, tmp_path).measure(name)["fitness"]).all()
    assert not (tmp_path / "together.safetensors").exists()


@pytest.mark.parametrize("spoil", ["rules", "setting", "bytes", "arrays"])
def test_together_begins_anew_where_what_is_kept_does_not_fit(tmp_path, monkeypatch, spoil):
    setting = settings.Setting(functions=settings.ARM, num_seeds=2, num_generations=3, population_size=8, batch_size=4)
    monkeypatch.setattr(side_by_side, "KEEP_S", 0.0)

    def cut(generation):
        if generation == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.Bench(setting, tmp_path).measure_together(("me", "ga"), cut)
    path, names, seen = tmp_path / "together.safetensors", ("me", "ga"), []
    if spoil == "rules":
        names = ("me", "dns")
    elif spoil == "setting":
        setting = dataclasses.replace(setting, num_generations=2)
    elif spoil == "bytes":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        arrays, description = read_arrays(path, side_by_side.KIND)
        write_arrays(path, side_by_side.KIND, {"what": np.zeros(1)} | arrays, description)
    runner.Bench(setting, tmp_path).measure_together(names, seen.append)
    assert seen[0] == 1


def test_a_piece_from_before_a_field_was_there_is_still_good(tmp_path):
    setting = settings.Setting(functions=settings.ARM, num_seeds=2, num_generations=1, population_size=8, batch_size=4)
    bench = runner.Bench(setting, tmp_path)
    about = bench._description({})
    del about["setting"]["episode_length"]
    write_arrays(tmp_path / "old.safetensors", "piece", {"a": np.zeros(1)}, about | {"made": {"at": "then"}})
    assert bench._read("old", {}) is not None
    other = runner.Bench(dataclasses.replace(setting, episode_length=10), tmp_path)
    assert other._read("old", {}) is None


def test_a_piece_knows_the_weights_and_the_tie_break_it_was_made_with(monkeypatch):
    by_distance, paper = catalogue.rule("lqd-f"), catalogue.rule("lqd-f-paper")
    before = [rule.fingerprint() for rule in (by_distance, paper)]
    assert len({*before, catalogue.rule("lqd-n").fingerprint()}) == 3
    monkeypatch.setattr(recipe2, "TIE_BREAK", 3)
    after = [rule.fingerprint() for rule in (by_distance, paper)]
    assert after[0] != before[0]
    assert after[1] == before[1]  # the paper's features break no ties


def test_a_piece_with_random_descriptors_of_other_keys_is_run_again(tmp_path):
    setting = settings.Setting(functions=settings.ARM, num_seeds=2, num_generations=1, population_size=8, batch_size=4)
    bench = runner.Bench(setting, tmp_path)
    bench.measure("me")
    for name, is_taken in (("ga", True), ("ga@zero", True), ("ga@random", False)):
        path = tmp_path / f"{name}.safetensors"
        before = bench._description({"rule": "GeneticAlgorithm"}) | {"made": {"at": "then"}}
        write_arrays(path, "piece", {"old": np.zeros(1)}, before)
        assert ("old" in bench.measure(name)) == is_taken, name
        assert ("old" in runner.Bench(setting, tmp_path).measure(name)) == is_taken, name


def test_columns_are_functions_by_dimensions(tmp_path):
    setting = settings.Setting(
        functions=("sphere", "linear_slope"), num_seeds=2, num_generations=1, dims=(2, 3), population_size=8,
        batch_size=2, min_dim=2, max_dim=3,
    )  # fmt: skip
    bench = runner.Bench(setting, tmp_path)
    assert setting.columns == [("sphere", 2), ("sphere", 3), ("linear_slope", 2), ("linear_slope", 3)]
    dims = np.concatenate([np.asarray(instance.num_dims) for instance in bench.field.tasks.instances])
    expected = [[dim for _, dim in setting.columns]] * 2
    np.testing.assert_array_equal(bench._by_seed(dims), expected)


def test_a_newcomer_outranks_half_under_a_genetic_algorithm_and_more_the_farther_under_novelty_search():
    rng = np.random.default_rng(0)
    fitness = jnp.asarray(np.append(rng.normal(size=(2, 9)), [[-np.inf]] * 2, axis=1), jnp.float32)
    descriptor = jnp.asarray(rng.uniform(-1, 1, size=(2, 10, 2)), jnp.float32)
    axis = jnp.linspace(-3.0, 3.0, 5)
    score, share = landscapes._landscapes(catalogue.rule("ga"), fitness, descriptor, axis)
    np.testing.assert_allclose(share, 4 / 9)  # the median itself ties with the newcomer
    np.testing.assert_allclose(score, np.broadcast_to(np.median(fitness[:, :9], axis=1)[:, None, None], (2, 5, 5)))
    score, share = landscapes._landscapes(catalogue.rule("ns"), fitness, descriptor, axis)
    assert (np.asarray(score)[:, [0, 0, -1, -1], [0, -1, 0, -1]] > np.asarray(score)[:, 2, 2, None]).all()
    assert (np.asarray(share)[:, 0, 0] == 1).all()


def test_bad_input_is_said_at_once(tmp_path):
    for given, match in (
        (("bars", "quick"), r"suite.*'bars'.*bars-train"),
        (("pareto", "full"), r"preset.*'full'.*quick"),
    ):
        with pytest.raises(InvalidInput, match=match):
            suites.run(*given, tmp_path)
    with pytest.raises(InvalidInput, match=r"seeds must be.*at least 2"):
        suites.run("pareto", "quick", tmp_path, num_seeds=1)
    with pytest.raises(InvalidInput, match=r"kind of descriptors.*'none'.*random"):
        runner.Bench(dataclasses.replace(settings.Setting(), functions=settings.ARM), tmp_path).measure("ga@none")
    with pytest.raises(InvalidInput, match=r"no manifest.json"):
        Folder(tmp_path)
    pathlib.Path(tmp_path / "manifest.json").write_text("{")
    with pytest.raises(Unreadable, match=r"manifest.json: not readable as JSON"):
        Folder(tmp_path)
