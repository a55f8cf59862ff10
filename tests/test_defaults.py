"""Strangers' problems: the two halves share nothing, every problem is what it says, and the archive counts right."""

import json
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "benchmarks"))
import defaults
import defaults_tables as tables
import problems

from lqd.bench import domains

EVERY = defaults.every_problem()


def test_what_defaults_are_chosen_on_is_never_quoted():
    assert not problems.TUNING.keys() & problems.QUOTED.keys()
    functions = [{problem.function for problem in half.values()} for half in (problems.TUNING, problems.QUOTED)]
    assert not functions[0] & functions[1]
    assert [len(one) for one in functions] == [len(problems.TUNING), len(problems.QUOTED)]
    assert min(len(one) for one in functions) >= 10
    assert set(problems.LONG) <= EVERY.keys()


@pytest.mark.parametrize(("elsewhere", "half_width"), [(domains.sphere, 5.12), (domains.arm, np.pi)])
def test_what_is_judged_elsewhere_is_in_neither_half(elsewhere, half_width):
    """Nobody has the descriptors of pyribs's linear projection, or of its arm, in whatever units."""
    rng = np.random.default_rng(0)
    for problem in EVERY.values():
        if problem.function is problems.cart_pole or problem.descriptor_dim != 2 or problem.dim < 3:
            continue
        z = rng.uniform(-1, 1, size=(256, problem.dim))
        low, high = problem.bounds or (-1.0, 1.0)
        ours, theirs = problem.function(low + (z + 1) / 2 * (high - low))[1], elsewhere(half_width * z)[1]
        alike = [abs(np.corrcoef(one, other)[0, 1]) for one, other in zip(ours.T, theirs.T, strict=True)]
        assert min(alike) < 0.99, problem.name


def test_nothing_is_chosen_on_the_second_half(capsys, monkeypatch, tmp_path):
    words = ["defaults.py", "--half", "quoted", "--choose", "mine", "{}", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit):
        defaults.main()
    assert "--choose is for the first half" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("half", "name"), [("tuning", "eggholder"), ("quoted", "himmelblau"), ("tuning", "none")])
def test_a_problem_of_the_other_half_is_refused_by_name(capsys, monkeypatch, tmp_path, half, name):
    words = ["defaults.py", "--half", half, "--problems", name, "--algorithms", "random", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit):
        defaults.main()
    assert f"{name!r} is no problem of the {half} half" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", EVERY)
def test_a_problem_is_what_it_says(name):
    problem, rng = EVERY[name], np.random.default_rng(0)
    if problem.function is problems.cart_pole:
        pytest.importorskip("gymnasium")
    if problem.bounds is None:
        x = problem.start + problem.spread * rng.normal(size=(64, problem.dim))
    else:
        assert (problem.bounds[0] < problem.bounds[1]).all()
        x = rng.uniform(*problem.bounds, size=(64, problem.dim))
    given = x.copy()
    fitness, descriptor = problem.function(x)
    assert fitness.shape == (64,)
    assert descriptor.shape == (64, problem.descriptor_dim)
    assert np.isfinite(descriptor).all()
    assert np.isfinite(fitness).mean() > 0.2
    assert (problem.ranges[0] < problem.ranges[1]).all()
    np.testing.assert_array_equal(x, given)
    again = [part[:3] for part in problem.function(x[:3])]  # one by one as in a batch
    np.testing.assert_allclose(again[0], fitness[:3], rtol=1e-9)
    worth = problem.worth(fitness)
    assert ((worth >= 0) & (worth <= 1)).all()


def test_the_archive_counts_the_best_of_each_cell_within_the_budget():
    problem = problems.TUNING["himmelblau"]
    measured = defaults.Measured(problem, 5, seed=0)
    measured(np.array([[3.0, 2.0], [3.01, 2.01], [-9.0, 0.0]]))  # the optimum, its neighbour, and one at the edge
    measured(np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]))  # the last is beyond the budget
    assert measured.num == 5
    with pytest.raises(defaults.Done):
        measured(np.zeros((1, 2)))
    scores = measured.scores()
    assert scores["best"] == 0
    assert scores["coverage"] == 4 / 50**2
    worth = problem.worth(problem.function(np.array([[3.0, 2.0], [-9.0, 0.0], [0.0, 0.0], [1.0, 1.0]]))[0])
    assert scores["qd_score"] == pytest.approx(worth.sum())


def test_tables_compare_with_the_best_opponent(tmp_path):
    def write(algorithm, qd_score, best):
        runs = [{"qd_score": qd_score + i, "best": best} for i in (0, 1, 1, 2)]
        tables.path_of(tmp_path, "himmelblau", 2000, algorithm).write_text(json.dumps({"runs": runs}))

    for algorithm, given in {"lqd": (11, -1), "cma-me": (7, -2), "random": (5, -50), "cma-es": (900, 0)}.items():
        write(algorithm, *given)
    rows = tables.compared(tmp_path, ["himmelblau"], [2000, 20_000], "lqd", lambda run: run["qd_score"])
    assert [(row.problem, row.budget, row.num_seeds) for row in rows] == [("himmelblau", 2000, 4)]
    (row,) = rows
    assert (row.ratio, row.below, row.delta) == (12 / 8, 12 / 6, 1)  # CMA-ES is not among the opponents here
    assert row.p == pytest.approx(2 / 70)  # one of the 70 ways to deal out eight ranks, on either side
    assert "| himmelblau | 2,000 | 4 | 12.0 | **8.0** |  |  |  | 6.0 | 1.50 | 2.00 | +1.00 | 0.029 |" in tables.table(
        rows, "lqd"
    )
    assert "ahead of the best opponent on 100% of 1 (significantly on 1, significantly behind on 0)" in tables.summary(
        rows
    )
    fitness = tables.fitness_table(tmp_path, ["himmelblau"], [2000], "lqd")
    assert "fitter than that of (ties half): cma-me 100%, random 100%, cma-es 0%" in fitness


def test_the_tables_know_all_who_run():
    assert tuple(defaults.OPPONENTS) == tables.OPPONENTS
    assert tuple(defaults.FITNESS_ALONE) == tables.FITNESS_ALONE


def test_published_tables_are_what_the_pieces_say():
    folder = pathlib.Path(__file__).parents[1] / "results" / "defaults"
    for half in ("tuning", "quoted"):
        assert (folder / f"{half}.md").read_text() == tables.page(folder, half, "lqd") + "\n"
