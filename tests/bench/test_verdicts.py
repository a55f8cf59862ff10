"""Verdicts on the paper's claims follow planted results."""

import dataclasses

import planted
import pytest

from lqd.bench.results import Folder
from lqd.bench.verdicts import _not_worse_than_any, counts, verdicts
from lqd.statistics import Finding
from lqd.tasks import ROBOTS, title
from lqd.tasks.bbob import instances

COMPETITIVE = "LQD (F) is competitive in fitness on unseen functions (wins at least 45 % against every rule)"
NOT_BETTER = "LQD (F) with random descriptors is not better than GA on the training functions"
BEST_NOVELTY = "LQD (N) has the best novelty on all unseen functions but Salomon"
AS_CLAIMED = {"lqd-n": 2.0, "lqd-f": 2.5, "lqd-fn": 2.0, "me": 1.5, "me-fitted": 1.5, "dns": 1.0, "ns": 1.0, "ga": 0.2}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    def judged(strengths, **given):
        folder = planted.write(tmp_path_factory.mktemp("bench"), strengths, **given)
        return {row["claim"]: row for row in verdicts(Folder(folder))}

    return judged


def test_what_is_planted_is_confirmed(found):
    rows = found(AS_CLAIMED)
    assert len(rows) == 48
    for claim in (
        "LQD (N) is more novel than NS",
        "LQD (F) is fitter than GA",
        "LQD (F+N) is more novel than MAP-Elites (the paper's box)",
        "LQD (F+N) is more novel than MAP-Elites (fitted box)",
        "LQD (F+N) is more novel than MAP-Elites (fitted box) with equally many individuals",
        "LQD (F+N) is close to DNS (QD score at least 0.95 of it)",
        COMPETITIVE,
        "LQD (F) beats MAP-Elites almost everywhere (in 90 % of the cells)",
        "LQD (F) beats MAP-Elites (fitted box) almost everywhere (in 90 % of the cells)",
        "LQD (F) is fitter with the task's descriptors than with random ones on the training functions",
        "LQD (N) rewards distance from the others",
    ):
        assert rows[claim]["verdict"] == "holds", rows[claim]
    tested = [row for row in rows.values() if row["p"] is not None]
    for row in tested:
        assert 0 <= row["p"] <= 1
        assert 0 <= row["paired_p"] <= 1
    num_tests = len(tested) + 7  # the claim of all unseen functions has eight, and shows one
    assert min(row["p"] for row in tested) == pytest.approx(2 / 12870 * num_tests)  # 8 seeds against 8: the smallest
    assert min(row["paired_p"] for row in tested) == pytest.approx(2 / 2**8 * num_tests)


def test_what_is_not_there_is_not_confirmed(found):
    rows = found(dict.fromkeys(("ns", "ga", "me", "me-fitted", "dns", "lqd-f@random"), 1.0))
    for claim in (
        "LQD (N) is more novel than NS",
        "LQD (F) is fitter than GA",
        "LQD (F+N) is more novel than MAP-Elites (the paper's box)",
        "LQD (F+N) is more novel than MAP-Elites (fitted box)",
        "LQD (F+N) is more novel than MAP-Elites (fitted box) with equally many individuals",
        "LQD (F+N) is close to DNS (QD score at least 0.95 of it)",
        BEST_NOVELTY,
        COMPETITIVE,
        "LQD (F) beats MAP-Elites almost everywhere (in 90 % of the cells)",
        "LQD (F) beats MAP-Elites (fitted box) almost everywhere (in 90 % of the cells)",
        "LQD (F) is fitter with the task's descriptors than with random ones on the training functions",
    ):
        assert rows[claim]["verdict"] == "does not hold", rows[claim]


def test_too_few_runs_of_equals_show_nothing(found):
    """However large p is: neither that a rule is better, nor that it is not."""
    rows = found({"dns": 0.1})
    for claim in (
        "LQD (F) is fitter than GA",
        "LQD (N) is more novel than NS",
        "LQD (F+N) is close to DNS (QD score at least 0.95 of it)",
        "LQD (F) is at least as fit as GA on the robot tasks",
        NOT_BETTER,
        COMPETITIVE,
    ):
        assert rows[claim]["verdict"] == "inconclusive", rows[claim]


def test_enough_runs_of_equals_show_that_none_is_better(found):
    size = dataclasses.replace(planted.SIZE, functions=instances.TRAINING_SET, num_seeds=32)
    rows = found({}, suite="ablation", size=size)
    assert rows[NOT_BETTER]["verdict"] == "holds", rows[NOT_BETTER]
    assert rows["LQD (F) is fitter than GA"]["verdict"] == "inconclusive"
    ahead = found({"lqd-f@random": 0.3}, suite="ablation", size=size)
    assert ahead[NOT_BETTER]["verdict"] == "does not hold", ahead[NOT_BETTER]


def test_the_best_median_is_not_taken_for_granted(found):
    verdicts = [found({"lqd-n": ahead, "lqd-fn": 0.0}, suite="bars-ood")[BEST_NOVELTY] for ahead in (1.0, 0.2, -1.0)]
    assert [row["verdict"] for row in verdicts] == ["holds", "inconclusive", "does not hold"], verdicts


def test_whoever_looks_worst_of_seven_was_chosen():
    """It is not enough that one interval of seven is below the limit; and every one has to be above it."""
    level, behind = (Finding(rate, rate - 0.02, rate + 0.02, 1.0, 1.0, 0.0) for rate in (0.5, 0.4))
    unclear = level._replace(win_low=0.4)
    assert _not_worse_than_any(*[level] * 7) is True
    assert _not_worse_than_any(unclear, *[level] * 6) is None
    assert _not_worse_than_any(behind._replace(delta=-0.5, p=0.06), *[level] * 6) is None
    assert _not_worse_than_any(behind._replace(delta=-0.5, p=0.04), *[level] * 6) is False


def test_counts():
    rows = [{"verdict": verdict} for verdict in ("holds", "inconclusive", "holds", "does not hold")]
    assert counts(rows) == "2 of 4 claims hold, 1 does not hold, 1 is inconclusive"
    rows[1]["too_small"] = "4 seeds"
    assert counts(rows[:2]) == (
        "1 of 2 claims holds, 0 do not hold, 1 is inconclusive (1 of them because these runs are too small to judge)"
    )


def test_every_row_stands_alone(found):
    """It names its rules, the figure of the paper, and what it takes to hold."""
    rows = found(AS_CLAIMED).values()
    folder_rows = [(row["claim"], row["cites"], row["needed"]) for row in rows]
    assert all(claim and needed for claim, _, needed in folder_rows)
    assert {cites for _, cites, _ in folder_rows} == {f"Figure {i}" for i in (1, 3, 4, 5, 7, 8, 9)}
    for claim, *_ in folder_rows:
        assert claim.startswith(("LQD", "GA")), claim
        assert not {"same", "above", "that", "both"} & set(claim.split()), claim
    needed = {row["claim"]: row["needed"] for row in rows}
    assert needed[NOT_BETTER] == "win rate below 55 %"
    assert needed["LQD (F) is fitter than GA"] == "ahead, p < 0.05"


def test_each_half_of_a_claim_has_a_verdict(found):
    """LQD (F) keeps enough, and GA does not: one of them may be true without the other."""
    keeps, loses = (f"{what} of MAP-Elites's novelty on the arm" for what in (
        "LQD (F) keeps at least 40 %", "GA keeps less than 10 %",
    ))  # fmt: skip
    for strengths, expected in (
        ({"lqd-f": 1.0, "ga": -4.0}, ("holds", "holds")),
        ({"lqd-f": 1.0, "ga": 0.0}, ("holds", "does not hold")),
        ({"lqd-f": -3.0, "ga": -4.0}, ("does not hold", "holds")),
    ):
        rows = found(strengths, suite="robots")
        assert (rows[keeps]["verdict"], rows[loses]["verdict"]) == expected
        assert (rows[keeps]["needed"], rows[loses]["needed"]) == ("above 40 %", "below 10 %")


WHERE = (*map(title, ROBOTS), "the robot tasks")


def test_runs_that_are_too_small_judge_nothing(found):
    """The robots of the preset quick: four seeds, and hardly a generation. Whatever they say, nothing is judged."""
    fitter = "LQD (F) is fitter than NS on the robot tasks"
    quick = found({"lqd-f": 9.0})
    small = {claim for claim, row in quick.items() if row["too_small"]}
    assert small == {claim for claim in quick if any(f"on {where}" in claim for where in WHERE)}
    assert quick[fitter]["verdict"] == "inconclusive"
    assert quick[fitter]["ours"].endswith("on 6 tasks; too small to judge: 4 seeds, 4 generations")
    robots = dataclasses.replace(planted.SIZE.robots, num_seeds=8, num_evaluations=4096)
    enough = found({"lqd-f": 9.0}, size=dataclasses.replace(planted.SIZE, robots=robots))
    assert not any(row["too_small"] for row in enough.values())
    assert enough[fitter]["verdict"] == "holds"


def test_a_manifest_without_what_has_a_default_is_judged(tmp_path):
    """As one of an earlier version may be."""
    folder = Folder(planted.write(tmp_path, AS_CLAIMED, suite="grid"))
    expected = verdicts(folder)
    for name in ("population_size", "batch_size", "num_generations"):
        for part in folder.parts.values():
            del part["setting"][name]
    assert [row["verdict"] for row in verdicts(folder)] == [row["verdict"] for row in expected]


def test_seeds_that_cannot_reach_the_level_are_too_few(found):
    """With Holm's correction over all claims, six seeds against six cannot be significant."""
    rows = found({"lqd-f": 9.0}, suite="all", size=dataclasses.replace(planted.SIZE, num_seeds=6))
    assert rows["LQD (F) is fitter than GA"]["too_small"] == "6 seeds cannot give p < 0.05"
    assert rows["LQD (F) is fitter than GA"]["verdict"] == "inconclusive"
    keeps = "LQD (F) keeps at least 40 % of MAP-Elites's novelty on the arm"
    assert (rows[keeps]["too_small"], rows[keeps]["verdict"]) == ("", "holds")


def test_both_at_the_optimum_are_level(tmp_path, monkeypatch):
    folder = Folder(planted.write(tmp_path, AS_CLAIMED, suite="grid"))
    tables = {rule: folder.table("grid 64", rule) for rule in ("lqd-f", "me", "me-fitted")}
    tables["me"]["fitness"][:, 0] = tables["lqd-f"]["fitness"][:, 0]
    monkeypatch.setattr(folder, "table", lambda part, rule: tables[rule])
    row, fitted = (row for row in verdicts(folder) if row["figure"] == "grid")
    assert "fitted box" in fitted["claim"]
    num = tables["me"]["fitness"].shape[1]
    assert row["ours"].startswith(
        f"wins in {100 * (num - 1) / num:.0f} % (88 to 88) of {2 * num} cells, level in {100 / num:.0f} %"
    )


def test_robots_count_by_what_they_are_worth_on_fresh_resets(tmp_path):
    """Both Ants too; and what was not evaluated again is marked."""
    folder = Folder(planted.write(tmp_path, {"lqd-f": 1.0}, suite="ablation"))
    lucky = {part: folder.table(part, "lqd-f@random") for part in folder.parts if part != "arm"}
    for part in ROBOTS:  # in the run itself the blind rule was ahead of everybody
        folder.history(part, "lqd-f@random")["best"][:] = 1e6
        assert (folder.best(part, "lqd-f@random") == lucky[part]["best_again"]).all()
    rows = {row["claim"]: row for row in verdicts(folder)}
    for part in ROBOTS:
        row = rows[f"LQD (F) is fitter with the task's descriptors than with random ones on {title(part)}"]
        assert row["ours"].startswith("wins 100 %")
        assert "single" not in row["ours"]
        for kept in ("LQD (F) keeps at least 40 %", "GA keeps less than 10 %"):
            row = rows[f"{kept} of MAP-Elites's novelty on {title(part)}"]
            assert "whole populations, as evaluated in the run" in row["ours"]
    before = Folder(tmp_path)
    for part in ROBOTS:
        del before.parts[part]["setting"]["num_resets"]
    marked = [row for row in verdicts(before) if "single evaluations" in row["ours"]]
    assert {row["figure"] for row in marked} == {"robots-aggregate", "ablation", "diversity"}
