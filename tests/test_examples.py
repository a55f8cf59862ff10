"""The examples run, small."""

import pathlib
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


@pytest.fixture(autouse=True)
def found(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])  # processes of a pool look there as well


@pytest.mark.slow
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


def test_programs_of_many_sizes_evolve():
    import evolve_programs

    pool = evolve_programs.evolve(num_evaluations=400, capacity=24)
    sizes = [member.descriptor[0] for member in pool]
    assert max(sizes) - min(sizes) >= 20
    assert pool.best.fitness > evolve_programs.evaluate("x")[0]


def test_a_part_of_a_program_is_replaced_where_it_stands():
    from evolve_programs import parts, with_part

    program = ["+", ["sin", "x"], "x"]
    assert parts(program) == [program, ["sin", "x"], "x", "x"]
    assert with_part(program, 3, 1.0) == ["+", ["sin", "x"], 1.0]
    assert with_part(program, 2, 1.0) == ["+", ["sin", 1.0], "x"]
    assert with_part(program, 0, 1.0) == 1.0
