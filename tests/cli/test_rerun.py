"""Run again from a manifest, and compared."""

import json

import numpy as np
import planted
import pytest

import lqd
from lqd.bench import suites
from lqd.cli import main, rerun
from lqd.io.files import read_arrays, write_arrays

GIVEN = ["--rule", "dns", "--population-size", "8", "--batch-size", "4", "--num-evaluations", "40", "--quiet"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "arm"
    main(["run", "--task", "arm", "--num-seeds", "2", "--archive-cells", "5", "--out", str(out), *GIVEN])
    return out


def test_a_run_is_the_same_again(run, capsys):
    main(["rerun", str(run), "--quiet"])
    said = capsys.readouterr().out
    assert "arm-again: all the same." in said
    assert "changed since" not in said
    with pytest.raises(lqd.InvalidInput, match="arm-again is not empty"):
        rerun.rerun(run)


def test_a_run_from_before_there_was_another_variation_is_the_papers(run):
    content = json.loads((run / "manifest.json").read_text())
    del content["config"]["variation"]
    assert rerun._run_of(content, run, run, quiet=True).variation == "paper"


def test_differences_are_named(run, tmp_path, capsys):
    path = run / "result_1.safetensors"
    arrays, description = read_arrays(path, "result")
    arrays["population.x"] = arrays["population.x"] + np.float32(0.5)
    write_arrays(path, "result", arrays, description)
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | {"devices": ["TPU v9"], "float_bits": 64}))
    with pytest.raises(SystemExit) as end:
        main(["rerun", str(run / "manifest.json"), "--out", str(tmp_path / "again"), "--quiet"])
    assert end.value.code == 1
    said = capsys.readouterr().out
    assert "1 arrays differ" in said
    assert "result_1.safetensors: population.x: 64 numbers, by 0.5 at most" in said
    assert manifest["float_bits"] == 32
    assert "changed since: devices: TPU v9 then, cpu now" in said
    assert "changed since: float_bits: 64 then, 32 now" in said


def test_a_bench_is_compared_part_by_part(tmp_path, monkeypatch):
    """With planted results; running one is tested elsewhere."""
    before = planted.write(tmp_path / "bench", {"ga": 0.2}, suite="pareto")
    monkeypatch.setattr(suites, "run", lambda suite, preset, out, *_: planted.write(out, {"ga": 0.2}, suite="pareto"))
    assert not rerun.rerun(before, tmp_path / "same", quiet=True).differences
    monkeypatch.setattr(suites, "run", lambda suite, preset, out, *_: planted.write(out, {"ga": 0.3}, suite="pareto"))
    found = rerun.rerun(before, tmp_path / "other", quiet=True)
    assert {difference.where.split(":")[0] for difference in found.differences} == {"train"}
    assert "train: ga: fitness" in {difference.where for difference in found.differences}


@pytest.mark.slow
def test_a_training_run_is_the_same_again(tmp_path):
    small = {"population_size": 8, "batch_size": 4, "num_layers": 1, "num_features": 4, "num_heads": 2, "num_hidden": 4}
    small |= {"validation_tasks": 4, "validation_generations": 3, "meta_population_size": 4, "num_tasks": 2}
    small |= {"num_generations": 3, "chunk_size": 2, "validation_every": 1, "functions": ("sphere", "rastrigin")}
    lqd.train(out=tmp_path / "run", preset="smoke", num_meta_generations=2, quiet=True, **small)
    found = rerun.rerun(tmp_path / "run", quiet=True)
    assert found.num > 100
    assert not found.differences


def test_what_is_no_manifest(tmp_path):
    with pytest.raises(lqd.InvalidInput, match="there is no such file, and no folder"):
        rerun.rerun(tmp_path / "nothing")
    for text, message in (
        ("[]", "found a list"),
        ("{", "not readable as JSON"),
        ("{}", "neither a manifest of lqd run or lqd bench nor the card"),
    ):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(lqd.Unreadable, match=message):
            rerun.rerun(tmp_path)


def test_a_run_on_instances_as_they_were_drawn_before_is_not_run_on_others(tmp_path):
    flags = ["--task", "bbob/sphere", "--dim", "2", "--archive-cells", "5", *GIVEN]
    main(["run", *flags, "--out", str(tmp_path / "run")])
    assert not rerun.rerun(tmp_path / "run", quiet=True).differences
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    del manifest["instances"]  # as it was
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(manifest | {"commit": "abc"}))
    with pytest.raises(lqd.InvalidInput, match=r"instance 0 of 'bbob/sphere' in version 1 of the.*commit abc"):
        rerun.rerun(tmp_path / "run", tmp_path / "other", quiet=True)
    assert not (tmp_path / "other").exists()
