"""Several processes and one folder: nobody touches what another one is writing."""

import pytest

from lqd import cli
from lqd.bench import claims, suites
from lqd.errors import InvalidInput
from lqd.io.files import PART
from lqd.io.lock import locked


class Reached(Exception):
    """All folders are locked: from here on it would run."""


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch):
    def reached(*_, **__):
        raise Reached

    monkeypatch.setattr(claims, "measure_all", reached)
    monkeypatch.setattr(suites, "measure_all", reached)


def bench(out, *words):
    cli.main(["bench", "--out", str(out), "--quiet", *words])


@pytest.mark.parametrize("suite", ["claims", "pareto"])
def test_what_others_write_below_stays_and_what_a_bench_left_goes(suite, tmp_path):
    part = {"claims": "trained", "pareto": "train"}[suite]
    ours = [tmp_path / name for name in (".", "landscape", "figures", f"pieces/quick/{part}")]
    others = [tmp_path / name for name in ("mine", "mine/deeper", "pieces", "pieces/scaled/train")]
    if suite == "claims":
        others, ours = [*others, *ours[1:3]], [ours[0], ours[3]]
    for folder in (*ours, *others):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f".state.safetensors.01234567{PART}").touch()
    with locked(tmp_path / "other", "--out"), pytest.raises(Reached):
        bench(tmp_path, "--suite", suite)
    assert not [folder for folder in ours if [*folder.glob(f".*{PART}")]]
    assert all([*folder.glob(f".*{PART}")] for folder in others)


def test_the_parts_of_a_folder_can_be_shared_but_whoever_writes_its_manifest_is_alone(tmp_path, capsys):
    words = ("--suite", "diversity", "--only")
    (tmp_path / "manifest.json").write_text('{"suites": ["pareto"], "preset": "scaled", "parts": {}}')
    with locked(tmp_path, "--out"), pytest.raises(SystemExit):  # who holds it may be about to write another manifest
        bench(tmp_path, *words, "train")
    assert "in use by another process" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        bench(tmp_path, *words, "train")
    assert "holds results of preset 'scaled'" in capsys.readouterr().err
    (tmp_path / "manifest.json").unlink()
    with locked(tmp_path, "--out", shared=True), locked(tmp_path / "pieces/quick/train", "--out"):  # as --only train
        with pytest.raises(Reached):
            bench(tmp_path, *words, "arm")
        for suite in (*words, "train"), ("--suite", "robots"):
            with pytest.raises(SystemExit):
                bench(tmp_path, *suite)
            assert "in use by another process" in capsys.readouterr().err


def test_a_folder_in_use_is_said_to_be_that_whatever_is_in_it(tmp_path):
    """What the other process has not written yet is not looked at."""
    from lqd.cli.run import Run

    (tmp_path / "population.csv").touch()
    with locked(tmp_path, "--out"), pytest.raises(InvalidInput, match="in use by another process"):
        Run(out=tmp_path, num_evaluations=1000).main()
