"""The command line: what it writes, what it says, how it fails."""

import json
import os
import subprocess
import sys
import typing

import numpy as np
import pandas as pd
import pytest

import lqd
from lqd import cli
from lqd.cli import main

SMALL = ["--population-size", "16", "--batch-size", "8", "--num-evaluations", "200", "--archive-cells", "20"]


@pytest.fixture(scope="module", autouse=True)
def no_cache_of_ones_own():
    """The suite has set a compilation cache, which the command line must leave alone."""
    import jax

    before = jax.config.jax_compilation_cache_dir
    yield
    assert jax.config.jax_compilation_cache_dir == before


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "out"
    main(["run", "--task", "bbob/f3", "--dim", "3", "--noise", "--rule", "me", "--num-seeds", "2", *SMALL,
          "--out", str(out), "--quiet"])  # fmt: skip
    return out


def test_a_run_writes_everything(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["config"]["task"] == "bbob/f3"
    assert manifest["num_evaluations"] == [200, 200]
    assert set(manifest["scores"]) == {"0", "1"}
    assert manifest["timing"]["evaluations_per_s"] > 0
    assert {"python", "lqd", "jax"} <= set(manifest["versions"])
    assert manifest["anchors"]["f_worst"] < manifest["anchors"]["f_rand"] < manifest["anchors"]["f_opt"] == 0
    metrics = pd.read_csv(folder / "metrics.csv")
    assert metrics.groupby("seed")["num_evaluations"].max().tolist() == [200, 200]
    assert metrics.groupby("seed").size().tolist() == [24, 24]
    assert (folder / "picture.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_population_and_result_agree(folder):
    population = pd.read_csv(folder / "population.csv")
    for seed in (0, 1):
        result = lqd.Result.load(folder / f"result_{seed}.safetensors")
        mine = population[population["seed"] == seed]
        np.testing.assert_allclose(mine["fitness"], result.fitness, rtol=1e-6)
        np.testing.assert_allclose(mine[["x_0", "x_1", "x_2"]], result.x, rtol=1e-6)


def test_scores_are_noiseless(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    task = lqd.tasks.make("bbob/f3", dim=3, seed=0, noise=True)
    result = lqd.Result.load(folder / "result_1.safetensors")
    best = float(np.max(task.noiseless(result.x)))
    np.testing.assert_allclose(manifest["scores"]["1"]["max_fitness"], best, rtol=1e-5)
    anchors = manifest["anchors"]
    share = np.clip((best - anchors["f_rand"]) / (0 - anchors["f_rand"]), 0, 1)
    expected = share * manifest["scores"]["1"]["dominated_novelty"]
    np.testing.assert_allclose(manifest["scores"]["1"]["qd_score"], expected, rtol=1e-4, atol=1e-6)


def test_an_earlier_run_is_not_overwritten(folder, capsys):
    before = (folder / "manifest.json").read_bytes()
    with pytest.raises(SystemExit) as stop:
        main(["run", "--out", str(folder), *SMALL])
    assert stop.value.code == 2
    assert "--overwrite" in capsys.readouterr().err
    assert (folder / "manifest.json").read_bytes() == before


TINY = ["--population-size", "8", "--batch-size", "4", "--num-evaluations", "12", "--archive-cells", "4", "--quiet"]


@pytest.mark.slow
def test_nothing_of_an_earlier_run_stays_when_it_is_overwritten(tmp_path, monkeypatch):
    main(["run", "--num-seeds", "3", "--out", str(tmp_path), *TINY])
    theirs = {"notes.txt": b"mine", "result_9.safetensors": b"not ours", "result_x.safetensors": b"mine too"}
    for name, content in theirs.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "show").mkdir()
    for name in ("index.html", "policy_1.html", "notes.html"):  # as `lqd show` does, but for the last
        (tmp_path / "show" / name).touch()

    def names():
        return {path.name for path in tmp_path.iterdir()} - {".lock"}

    with monkeypatch.context() as patch:
        patch.setattr(cli.run.seeds, "run_seeds", lambda *_, **__: 1 / 0)  # ends on the way
        with pytest.raises(ZeroDivisionError):
            main(["run", "--overwrite", "--out", str(tmp_path), *TINY])
    assert names() == {*theirs, "show"}, "nothing that looks finished"
    assert [path.name for path in (tmp_path / "show").iterdir()] == ["notes.html"]
    main(["run", "--out", str(tmp_path), "--seed", "5", *TINY])
    main(["run", "--out", str(tmp_path), "--overwrite", "--num-seeds", "2", *TINY])
    made = {"manifest.json", "metrics.csv", "population.csv", "picture.png", "result_0.safetensors"}
    assert names() == {*theirs, "show", *made, "result_1.safetensors"}
    assert {name: (tmp_path / name).read_bytes() for name in theirs} == theirs


def test_bad_flags_and_what_is_not_ours_remove_nothing(tmp_path, capsys):
    main(["run", "--out", str(tmp_path / "run"), *TINY])
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    for flags in (["--num-seeds", "0"], ["--time-limit-s", "0"], ["--rule", "dn"]):
        with pytest.raises(SystemExit):
            main(["run", "--overwrite", "--out", str(tmp_path / "run"), *TINY, *flags])
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    for content in ('{"suites": ["pareto"]}', '{"name": "an app"}', "[]", "{"):
        (tmp_path / "manifest.json").write_text(content)
        with pytest.raises(SystemExit):
            main(["run", "--overwrite", "--out", str(tmp_path), *TINY])
        assert "manifest.json was not written by lqd run" in capsys.readouterr().err
        assert (tmp_path / "manifest.json").read_text() == content


def test_what_a_killed_run_left_is_not_mixed_with_another(tmp_path, capsys):
    main(["run", "--num-seeds", "2", "--out", str(tmp_path), *TINY])
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(SystemExit):
        main(["run", "--out", str(tmp_path), *TINY])
    assert "holds metrics.csv of an earlier run; give another folder, or --overwrite" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--time-limit-s", "0"], "time_limit_s must be a finite number above 0, got 0"),
        (["--time-limit-s", "-1"], "time_limit_s must be a finite number above 0, got -1"),
        (["--task", "bbob/rastigrin"], "Did you mean 'bbob/rastrigin'"),
        (["--task", "amr"], "Did you mean 'arm'"),
        (["--rule", "mapelites"], "unknown rule 'mapelites'"),
        (["--num-evaluations", "10"], "num_evaluations=10"),
        (["--variation", "papers"], "unknown variation 'papers'. Did you mean 'paper'"),
        (["--num-seeds", "0"], "num_seeds"),
        (["--task", "arm", "--dim", "4"], "--dim is for function tasks"),
        (["--task", "arm", "--rotate"], "--rotate is for function tasks"),  # also where it says what is the default
        (["--task", "arm", "--instance=0"], "--instance is for function tasks"),
        (["--task", "bbob/f3", "--dim", "1"], "at least 2"),
        (["--rule", "missing.safetensors"], "no such file"),
    ],
)
def test_bad_flags_end_in_one_line(flags, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["run", *flags, "--out", str(tmp_path / "out")])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not (tmp_path / "out").exists()


def test_ctrl_c_keeps_what_was_found(tmp_path, monkeypatch, capsys):
    from lqd.evolution import driver

    calls = []
    advance = driver._advance

    def interrupted(*args, **options):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return advance(*args, **options)

    monkeypatch.setattr(driver, "_advance", interrupted)
    with pytest.raises(SystemExit) as stop:
        main(["run", "--task", "bbob/f3", "--dim", "3", "--noise", "--rule", "me", "--num-seeds", "2", *SMALL,
              "--out", str(tmp_path), "--quiet"])  # fmt: skip
    assert stop.value.code == 130
    assert "interrupted" in capsys.readouterr().err
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["stopped_by"] == "interrupt"
    result = lqd.Result.load(tmp_path / "result_0.safetensors")
    assert 16 < result.num_evaluations == manifest["num_evaluations"][0] < 200


def test_help_stays_light():
    """And each command is in the module of its name."""
    heavy = ["pandas", "matplotlib", "rich.progress", "scipy.stats", "pyarrow", "lqd.report.style"]
    code = f"import sys, lqd.cli; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", done.stdout
    for command in typing.get_args(cli.Command):
        flags, about = typing.get_args(command)
        assert flags.__module__ == f"lqd.cli.{about.name}"


def test_lists(capsys):
    main(["rules"])
    assert {"ga", "random", "ns", "dns", "me"} <= set(capsys.readouterr().out.split())
    main(["tasks"])
    assert {"arm", *(f"bbob/{name}" for name in lqd.tasks.bbob.NAMES)} <= set(capsys.readouterr().out.split())


def test_demo_compares_rules_in_one_picture(tmp_path, capsys):
    main(["demo", "--out", str(tmp_path), "--num-evaluations", "1000", "--population-size", "64"])
    assert (tmp_path / "demo.png").stat().st_size > 10_000
    printed = capsys.readouterr().out
    assert all(rule in printed for rule in ("ga", "me", "dns", "lqd-f"))
    assert len(lqd.Result.load(tmp_path / "dns.safetensors").x) == 64


def test_python_dash_m_is_the_same():
    done = subprocess.run([sys.executable, "-m", "lqd", "rules"], capture_output=True, text=True, check=True)
    assert "Dominated Novelty Search" in done.stdout


def test_demo_names_a_rule_that_is_not_there(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--out", str(tmp_path), "--rules", "ga", "lqd-g"])
    assert ended.value.code == 2
    assert "lqd-g" in capsys.readouterr().err


def test_bench_names_a_suite_that_is_not_there(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["bench", "--suite", "claim"])
    assert ended.value.code == 2
    assert "claims" in capsys.readouterr().err


def test_a_reader_who_has_enough_is_no_error():
    """As in `lqd tasks | head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        command = [sys.executable, "-m", "lqd", "tasks"]
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode in (1, 141)  # a table's, or ours
    assert done.stderr == ""
