"""The examples run, small."""

import pathlib
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


@pytest.fixture(autouse=True)
def found(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])  # processes of a pool look there as well


def test_poles_are_balanced_in_processes_and_the_run_goes_on(tmp_path, capsys):
    pytest.importorskip("gymnasium")
    import gymnasium_cartpole

    given = ["--out", str(tmp_path / "run"), "--rule", "dns", "--num-processes", "1"]
    assert gymnasium_cartpole.main([*given, "--num-evaluations", "160"]).num_evaluations == 160
    result = gymnasium_cartpole.main([*given, "--num-evaluations", "192"])
    assert result.num_evaluations == 192
    assert result.best_fitness > 20
    assert (tmp_path / "run" / "policies.png").read_bytes().startswith(b"\x89PNG")
    assert "policies.png" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_tutorials_of_pyribs_with_an_archive_of_ours(tmp_path):
    pytest.importorskip("seaborn")
    import ribs_tutorials

    found = ribs_tutorials.main(["--num-iterations", "12", "--rule", "dns", "--out", str(tmp_path)])
    for name, (archive, seen) in found.items():
        assert len(archive) == ribs_tutorials.CAPACITY
        assert seen.stats.coverage > 0.02
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
