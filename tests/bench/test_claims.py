"""The claims bench on tiny pieces: what is kept, what is run again, and verdicts on planted results."""

import dataclasses
import json

import numpy as np
import pytest

from lqd.bench import claims, runner
from lqd.bench.runner import Bench
from lqd.bench.settings import Setting
from lqd.errors import InvalidInput
from lqd.rules import catalogue

TINY = Setting(
    functions=("sphere", "rastrigin"), num_seeds=3, num_generations=3, max_dim=3, population_size=8, batch_size=4
)


@pytest.fixture
def counted(monkeypatch):
    """How often a rule really ran."""
    ran = []
    original = runner._run

    def run(*given):
        ran.append(type(given[2]).__name__)
        return original(*given)

    monkeypatch.setattr(runner, "_run", run)
    return ran


def test_a_piece_is_kept_until_something_it_depends_on_changes(tmp_path, counted, monkeypatch):
    with pytest.raises(InvalidInput, match=r"'ga' is compared at the slots that MAP-Elites fills.*measure 'me' first"):
        Bench(TINY, tmp_path).measure("ga")
    assert counted == []
    Bench(TINY, tmp_path).measure("me")
    first = Bench(TINY, tmp_path).measure("ga")
    shapes = dict.fromkeys(runner.MEASURES, (3, 2)) | {f"history.{name}": (1, 3, 2) for name in runner.HISTORY}
    assert {name: array.shape for name, array in first.items()} == shapes
    assert (first["fitness"] <= 0).all()
    assert (first["num_filled"] == 8).all()
    again = Bench(TINY, tmp_path).measure("ga")
    assert counted == ["MapElites", "GeneticAlgorithm"]
    for name, array in first.items():
        np.testing.assert_array_equal(again[name], array)
    Bench(dataclasses.replace(TINY, num_generations=4), tmp_path).measure("me")
    assert len(counted) == 3

    Bench(TINY, tmp_path).measure("me")
    Bench(TINY, tmp_path).measure("lqd-f")
    Bench(TINY, tmp_path).measure("lqd-f")
    assert counted[3:] == ["MapElites", "Learned"]
    weights = {"lqd-f": catalogue.rule("lqd-n"), "me": catalogue.rule("me", centroids=np.zeros((8, 2)))}
    monkeypatch.setattr(catalogue, "rule", lambda name, **settings: weights[name])
    Bench(TINY, tmp_path).measure("lqd-f")
    assert len(counted) == 6


def test_a_damaged_piece_is_run_again(tmp_path, counted):
    Bench(TINY, tmp_path).measure("me")
    path = tmp_path / "me.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    Bench(TINY, tmp_path).measure("me")
    assert len(counted) == 2


def test_the_whole_suite_writes_its_files(tmp_path, monkeypatch):
    monkeypatch.setitem(claims.PRESETS, "tiny", {"trained": TINY})
    content = claims.run("tiny", tmp_path)
    assert json.loads((tmp_path / "claims.json").read_text())["preset"] == "tiny"
    text = (tmp_path / "claims.md").read_text()
    for claim in claims.CLAIMS:
        assert claim.text in text
    assert "Filled slots" in text
    lines = (tmp_path / "results.csv").read_text().splitlines()
    assert len(lines) == 1 + len(claims.rules_needed()) * 2 * 3
    assert {row["verdict"] for row in content["settings"]["trained"]["claims"]} <= {
        "not reached", "inconclusive", "holds", "goal reached",
    }  # fmt: skip
    assert "| wins | p | paired p |" in text


DIVERSITY = ("novelty", "novelty_rarefied", "novelty_rarefied_fitted", "qd")


def planted(strong: dict[str, float]):
    """Tables in which a rule is better by so much, in every measure, than the others."""
    rng = np.random.default_rng(0)
    return {
        rule: {m: np.exp(0.1 * rng.normal(size=(20, 22)) + strong.get(rule, 0.0)) for m in DIVERSITY}
        | {"fitness": -np.exp(0.1 * rng.normal(size=(20, 22)) - strong.get(rule, 0.0))}
        | {"num_filled": np.full((20, 22), 128.0)}
        for rule in claims.rules_needed()
    }


def verdicts(tables):
    return {(row["rule"], row["claim"]): row["verdict"] for row in claims.judge(tables)}


def test_verdicts_follow_the_numbers():
    found = verdicts(planted({"lqd-f": 1.0, "lqd-n": -1.0}))
    assert found["lqd-f", "LQD (F) is fitter than GA"] == "goal reached"
    assert found["lqd-f", "LQD (F) keeps diversity"] == "goal reached"
    assert found["lqd-n", "LQD (N) is more novel than NS"] == "not reached"
    assert found["lqd-n", "evolution adds to imitation (novelty)"] == "not reached"
    assert found["lqd-fn", "LQD (F+N) against DNS (QD score)"] == "holds"


def test_equals_reach_nothing():
    """A win rate of 70 % is out of the question; that one is a little better is not."""
    found = verdicts(planted({}))
    assert found["lqd-f", "LQD (F) is fitter than GA"] == "not reached"
    assert found["lqd-f", "evolution adds to imitation (fitness)"] == "inconclusive"


def test_a_number_within_its_interval_is_not_reached_yet():
    """Wins of about 70 %, and a ratio of about 0.95: the points are above, the intervals are not."""
    tables = planted({"lqd-f": 0.075, "lqd-fn": -0.035})
    rows = {row["claim"]: row for row in claims.judge(tables)}
    fitter, close = rows["LQD (F) is fitter than GA"], rows["LQD (F+N) against DNS (QD score)"]
    assert fitter["findings"][0]["win_low"] < 0.7 <= fitter["findings"][0]["win_rate"]
    assert fitter["verdict"] == "inconclusive"
    assert close["findings"][0]["ratio_low"] < 0.95 < close["findings"][0]["ratio"]
    assert close["verdict"] == "inconclusive"


def test_both_p_values_are_corrected_over_all_comparisons():
    rows = claims.judge(planted({"lqd-f": 1.0, "lqd-n": 1.0, "lqd-fn": 1.0}))
    found = [finding for row in rows for finding in row["findings"]]
    smallest = min(finding["paired_p"] for finding in found)
    assert smallest == pytest.approx(len(found) * 2 / 2**20)  # all 20 seeds for it
    assert all(finding["paired_p"] <= 1 for finding in found)


def test_held_for_the_least_but_not_the_goal():
    found = verdicts(planted({"lqd-f": 1.0, "me": 2.0, "dns": 2.0}))
    assert found["lqd-f", "LQD (F) is fitter than GA"] == "holds"
    assert found["lqd-f", "LQD (F) keeps diversity"] == "holds"


def test_an_unknown_preset_or_too_few_seeds_are_said_at_once(tmp_path):
    with pytest.raises(InvalidInput, match=r"preset.*'fast'.*quick"):
        claims.run("fast", tmp_path)
    with pytest.raises(InvalidInput, match="num_seeds must be"):
        Setting(num_seeds=1)
