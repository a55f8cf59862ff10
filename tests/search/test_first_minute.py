"""What a new user tries first: a function of one solution, bounds as SciPy has them, a table, a folder of weights."""

import concurrent.futures
import pathlib
import re

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from rich.errors import LiveError

import lqd
from lqd import checks
from lqd.errors import InvalidInput
from lqd.evolution.driver import Rows
from lqd.io import terminal
from lqd.search import progress

SMALL = {"population_size": 8, "batch_size": 4, "num_evaluations": 24, "rule": "ga", "variation": "paper"}


def of_many(x):
    return -(x**2).sum(axis=1), x[:, :1], {"first": x[:, 0]}


def of_one(x):
    assert x.shape == (2,)
    return -float((x**2).sum()), x[:1], {"first": x[0]}


def assert_same(one, other):
    np.testing.assert_array_equal(one.x, other.x)
    np.testing.assert_allclose(one.fitness, other.fitness, rtol=1e-6)
    np.testing.assert_array_equal(one.extras["first"], other.extras["first"])


def test_a_function_of_one_solution():
    expected = lqd.optimize(of_many, dim=2, **SMALL)
    assert_same(lqd.optimize(of_one, dim=2, batch=False, **SMALL), expected)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert_same(lqd.optimize(of_one, dim=2, batch=False, executor=pool, **SMALL), expected)

    def traced(x):
        return -jnp.sum(x**2), x[:1], {"first": x[0]}

    assert_same(lqd.optimize(traced, dim=2, batch=False, backend="jax", **SMALL), expected)


@pytest.mark.parametrize("backend", ["host", "jax"])
@pytest.mark.parametrize(("function", "num"), [(lambda x: (x[0], x[1]), 1), (lambda x: (x[:1], [x[1], x[0]]), 2)])
def test_a_descriptor_that_is_one_number_or_a_list(backend, function, num):
    result = lqd.optimize(function, dim=2, batch=False, backend=backend, **SMALL)
    assert result.descriptor.shape == (8, num)
    np.testing.assert_array_equal(result.fitness, result.x[:, 0])


def test_what_a_traced_function_of_one_solution_must_not_return():
    with pytest.raises(InvalidInput, match=r"must return \(fitness, descriptor\)"):
        lqd.optimize(lambda x: x[0], dim=2, batch=False, backend="jax", **SMALL)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x[0], r"must return \(fitness, descriptor\)"),
        (lambda x: (x, x), r"one number and a vector \(D,\), got shapes \(2,\) and \(2,\)"),
        (lambda x: (x[0], np.zeros((2, 2))), r"got shapes \(\) and \(2, 2\)"),
        (lambda x: (x[0], x, [1]), "extras must be a dictionary"),
        (lambda x: (x[0], x, {"a" if x[0] > 0 else "b": 1}), "always return the same extras"),
    ],
)
def test_what_a_function_of_one_solution_must_not_return(function, message):
    with pytest.raises((InvalidInput, lqd.EvaluationFailed), match=message):
        lqd.optimize(function, dim=2, batch=False, **SMALL)


def test_batch_false_is_for_functions():
    with pytest.raises(InvalidInput, match="batch=False is for functions; the task 'arm'"):
        lqd.optimize(lqd.tasks.make("arm"), batch=False, num_evaluations=1000)


@pytest.mark.parametrize(
    "function", [lambda x: (-(x**2).sum(), x[0]), lambda x: (np.zeros(1), x), lambda x: (x[0], x[:2])]
)
def test_the_message_about_shapes_says_that_x_is_a_batch(function):
    with pytest.raises(
        InvalidInput, match=r"x is a batch, \(B, dim\); for a function of one solution give batch=False"
    ):
        lqd.optimize(function, dim=2, **SMALL)


PAIRS = {
    1: [(0, 1)],
    2: [(0, 1), (0, 5)],
    3: [(-1, 1), (0, 10), (2, 3)],
}


def _of_arrays(pairs):
    return [np.array(pair) for pair in pairs]


# Two vectors of NumPy are ends.
WAYS = [(outer, dim) for outer in (list, tuple, np.array) for dim in PAIRS] + [(_of_arrays, 1), (_of_arrays, 3)]


@pytest.mark.parametrize(("outer", "dim"), WAYS)
def test_bounds_in_pairs(outer, dim):
    low, high = checks.box("bounds", outer(PAIRS[dim]), dim)
    np.testing.assert_array_equal(np.stack([low, high], axis=1), np.float32(PAIRS[dim]))
    low, high = checks.box("descriptor_bounds", outer(PAIRS[dim]), None)
    np.testing.assert_array_equal(np.stack([low, high], axis=1), np.float32(PAIRS[dim]))


@pytest.mark.parametrize(
    "bounds",
    [([0, 0], [1, 1]), ([0, -1], [1, 5]), (np.array([-5, 0]), np.array([5, 10])), np.array([[-5, -1], [5, -0.5]])],
)
def test_ends_stay_ends(bounds):
    low, high = checks.box("bounds", bounds, 2)
    np.testing.assert_array_equal([low, high], np.float32(np.stack([*bounds])))


@pytest.mark.parametrize("outer", [list, tuple, np.array])
def test_what_can_be_both_is_refused(outer):
    with pytest.raises(InvalidInput, match=r"can be read as \(low, high\) or as one pair.*array\(\[-5, 5"):
        checks.box("bounds", outer([[-5, 0], [5, 10]]), 2)


def test_bounds_that_can_be_both_are_kept_as_they_were_meant(tmp_path):
    ends = (np.array([-5, 0]), np.array([5, 10]))
    search = lqd.AskTell(dim=2, bounds=ends, descriptor_bounds=ends, population_size=4, batch_size=4, rule="ga")
    search.tell(x := search.ask(), x[:, 0], x)
    again = lqd.AskTell.load(search.save(tmp_path / "state.safetensors"))
    np.testing.assert_array_equal(again.ask(), search.ask())


def test_a_table_of_the_population(tmp_path):
    result = lqd.optimize(of_many, dim=2, **SMALL)
    table = pd.read_csv(result.save(tmp_path / "found.csv"))
    pd.testing.assert_frame_equal(table, result.to_dataframe(), check_dtype=False, rtol=1e-6)
    for name in ("found.json", "found.csv.gz", "found.feather"):
        with pytest.raises(InvalidInput, match=rf"{name}.*\.safetensors \(everything\) or \.csv"):
            result.save(tmp_path / name)
        assert not (tmp_path / name).exists()


@pytest.mark.parametrize("kind", [str, pathlib.Path])
def test_the_folder_of_a_training_run_as_a_rule(tmp_path, kind):
    lqd.save_rule(tmp_path / "run" / "rule.safetensors", lqd.rule("lqd-f"))
    results = [lqd.optimize(of_many, dim=2, **SMALL | {"rule": rule}) for rule in (kind(tmp_path / "run"), "lqd-f")]
    assert_same(*results)
    assert results[0].info["rule"] == str(tmp_path / "run")


@pytest.mark.parametrize("name", ["dns", "lqd-fn"])
def test_a_training_run_does_not_hide_the_rule_of_its_name(tmp_path, monkeypatch, name):
    lqd.save_rule(tmp_path / name / "rule.safetensors", lqd.rule("lqd-f"))
    monkeypatch.chdir(tmp_path)
    named, folder = (lqd.optimize(of_many, dim=2, **SMALL | {"rule": rule}) for rule in (name, f"./{name}"))
    assert_same(folder, lqd.optimize(of_many, dim=2, **SMALL | {"rule": "lqd-f"}))
    assert not np.array_equal(named.x, folder.x)


@pytest.mark.parametrize("kind", [str, pathlib.Path])
def test_a_folder_without_a_rule(tmp_path, kind):
    with pytest.raises(lqd.Unreadable, match=r"there is no rule\.safetensors in this folder"):
        lqd.optimize(of_many, dim=2, **SMALL | {"rule": kind(tmp_path)})


def bars(capsys, monkeypatch, **how):
    """What is written to a terminal."""
    monkeypatch.setattr(terminal, "is_watched", lambda: True)
    result = lqd.optimize(of_many, dim=2, **SMALL | how)
    return result, capsys.readouterr().out


def test_a_progress_bar_where_somebody_sees_it(capsys, monkeypatch):
    result, said = bars(capsys, monkeypatch)
    assert "evaluations" in said
    assert "24/24" in said
    assert f"best {result.best_fitness:.4g}, 8 kept" in said
    archive = {"archive_cells": 4, "descriptor_bounds": (-9, 9), "qd_offset": -50.0, "minimize": True}
    said = bars(capsys, monkeypatch, **archive)[1]
    assert re.search(r"24/24 best [\d.e-]+, \d+% of cells, QD [\d.]+ ", said)
    assert not bars(capsys, monkeypatch, progress=False)[1]


MEASURES = {"best_fitness": -123_456.0, "num_filled": 512.0, "archive_coverage": 0.9876, "archive_qd_score": -98_765.0}


@pytest.mark.parametrize("has_archive", [False, True])
def test_the_progress_bar_fits_into_80_columns(capsys, monkeypatch, has_archive):
    monkeypatch.setenv("COLUMNS", "80")
    measures = {name: np.array([[value]]) for name, value in MEASURES.items() if has_archive or "archive" not in name}
    with progress.bar(True, 200_000, 1.0) as shown:
        shown.show(123_456, [Rows(np.array([1]), np.array([123_456]), np.array([1.0]), measures)])
    (said,) = capsys.readouterr().out.strip().split("\n")
    facts = "best -123,456, 99% of cells" if has_archive else "best -123,456, 512 kept"  # there is no room for more
    assert re.fullmatch(rf"evaluations .+ 123,456/200,000 {re.escape(facts)} +[\d:-]{{7}}", said.strip()), said
    assert len(said) <= 80


@pytest.mark.parametrize("backend", ["host", "jax"])
def test_a_progress_bar_that_is_asked_for_changes_nothing(capsys, backend):
    quiet = lqd.optimize(of_many, dim=2, backend=backend, **SMALL)
    assert not capsys.readouterr().out  # nobody watches
    assert_same(lqd.optimize(of_many, dim=2, backend=backend, progress=True, **SMALL), quiet)
    assert "24/24" in capsys.readouterr().out


def test_a_display_of_ones_own_stays(capsys, monkeypatch):
    def taken(self):
        raise LiveError

    monkeypatch.setattr("rich.progress.Progress.start", taken)
    assert_same(lqd.optimize(of_many, dim=2, progress=True, **SMALL), lqd.optimize(of_many, dim=2, **SMALL))


def test_progress_that_is_no_flag():
    with pytest.raises(InvalidInput, match="progress"):
        lqd.optimize(of_many, dim=2, progress="yes", **SMALL)
