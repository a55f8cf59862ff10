"""Pictures of a run: what is drawn of one, two and many descriptors, what stands above, which descriptors there are."""

import io

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection, PolyCollection
from PIL import Image

from lqd.cli import seeds
from lqd.errors import InvalidInput
from lqd.report import run_figures
from lqd.search.result import Elites, Result


def elites(num: int, num_descriptors: int) -> Elites:
    rng = np.random.default_rng(num)
    descriptor = rng.uniform(-1, 1, (num, num_descriptors))
    return Elites(rng.normal(size=(num, 3)), -rng.uniform(1, 2, num), descriptor, {})


def outcome(num_descriptors: int, num_cells: int | None = None, **info) -> Result:
    archive = None if num_cells is None else elites(num_cells // 2, num_descriptors)
    columns = ("num_evaluations", "max_fitness", "mean_fitness", "novelty")
    history = pd.DataFrame({name: np.linspace(1, 2, 5) for name in columns})
    bounds = {"descriptor_bounds": [-1.0, 1.0], "archive_cells": num_cells, "rule": "lqd-fn"}
    population = elites(20, num_descriptors)
    return Result(population, population, history, archive, 100, 0, None, bounds | info)


def plots(figure):
    return [ax for ax in figure.axes if ax.get_visible() and ax.get_label() != "<colorbar>"]


def said(figure):
    return figure.get_suptitle()


def test_one_descriptor_has_a_histogram():
    above, below, *_ = plots(outcome(1, 40).plot())
    counts = [sum(bar.get_height() for bar in bars) for bars in above.containers]
    assert counts == [20, 20]  # half of 40 cells, and the population
    assert (below.get_xlabel(), below.get_ylabel()) == ("descriptor 0", "fitness")


@pytest.mark.parametrize(("num", "num_maps"), [(2, 1), (3, 3), (5, 10), (8, 10)])
def test_pairs_of_descriptors(num, num_maps):
    figure = outcome(num).plot()
    maps = [ax for ax in plots(figure) if any(isinstance(one, PathCollection) for one in ax.collections)]
    assert len(maps) == num_maps
    assert ("0, 1, 2, 3, 4 of 8" in figure.subfigs[0].get_suptitle()) == (num == 8)


def test_chosen_descriptors():
    result = outcome(4)
    ax = plots(result.plot(descriptors=(3, 1)))[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("descriptor 3", "descriptor 1")
    order = np.argsort(result.fitness)
    np.testing.assert_allclose(ax.collections[0].get_offsets(), result.descriptor[order][:, (3, 1)])
    assert plots(result.plot(2))[1].get_xlabel() == "descriptor 2"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((0, 4), "there is no descriptor 4, only 4 descriptors, 0 to 3"),
        (-1, "there is no descriptor -1"),
        ((1, 1), "descriptor 1 is given 2 times"),
        ((), "whole numbers"),
        ((0, 1.5), "whole numbers"),
        ((True, 0), "whole numbers"),
        ("01", "whole numbers"),
    ],
)
def test_descriptors_that_are_not_there(given, message):
    with pytest.raises(InvalidInput, match=rf"descriptors.*{message}"):
        outcome(4).plot(descriptors=given)


def test_too_many_descriptors_and_a_single_one():
    with pytest.raises(InvalidInput, match=r"at most 5 .* got 6"):
        outcome(8).plot(descriptors=range(6))
    with pytest.raises(InvalidInput, match=r"descriptor 1, only one descriptor, 0"):
        outcome(1).plot(descriptors=1)


def test_labels_stand_once_and_the_task_has_its_title():
    figure = outcome(2, task="bbob/linear_slope").plot()
    assert said(figure) == "Linear slope, rule LQD (F+N)"
    assert [ax.get_ylabel() for ax in figure.axes].count("fitness") == 1  # the colour bar
    assert said(run_figures.result(outcome(2), about="seed 7")) == "rule LQD (F+N), seed 7"


def test_saved_in_150_dpi():
    buffer = io.BytesIO()
    outcome(2).plot().savefig(buffer)
    with Image.open(buffer) as picture:
        assert picture.width == 1500


def test_cells_of_the_archive_hold_their_elites():
    result = outcome(2, 40)
    (paved,) = [one for one in plots(result.plot())[0].collections if isinstance(one, PolyCollection)]
    for path, descriptor in zip(paved.get_paths(), result.archive.descriptor, strict=True):
        assert path.contains_point(descriptor)
    np.testing.assert_allclose(paved.get_array(), result.archive.fitness)
    swapped = outcome(2, 40).plot(descriptors=(1, 0))
    (turned,) = [one for one in plots(swapped)[0].collections if isinstance(one, PolyCollection)]
    np.testing.assert_allclose(turned.get_paths()[0].vertices[:, ::-1], paved.get_paths()[0].vertices)


def scores(*values):
    zeros = dict.fromkeys(("max_fitness", "mean_fitness", "novelty", "num_filled"), 0.0)
    return [zeros | {"archive_coverage": value, "archive_qd_score": -value} for value in values]


def test_seeds_have_a_median_row(capsys):
    results = {f"seed {i}": outcome(2, population_size=20) for i in range(3)}
    found = scores(0.1, 0.4, 0.2)
    seeds.show_scores(results, found, seeds=True)
    (median,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("median")]
    assert "20.0%" in median
    seeds.show_scores(results, found)
    seeds.show_scores({"seed 0": results["seed 0"]}, found[:1], seeds=True)
    assert "median" not in capsys.readouterr().out


def test_the_middle_seed():
    assert seeds.middle(scores(0.1, 0.4, 0.2)) == (2, "archive QD score")
    found = [{"archive_coverage": value} for value in (0.4, 0.1, 0.3, 0.2)]
    assert seeds.middle(found) == (3, "archive coverage")
