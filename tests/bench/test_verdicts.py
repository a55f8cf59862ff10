"""Verdicts on the paper's claims follow planted results."""

import planted
import pytest

from lqd.bench.results import Folder
from lqd.bench.verdicts import verdicts

AS_CLAIMED = {"lqd-n": 2.0, "lqd-f": 2.0, "lqd-fn": 2.0, "me": 1.5, "dns": 1.0, "ns": 1.0, "ga": 0.2}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    def judged(strengths):
        folder = planted.write(tmp_path_factory.mktemp("bench"), strengths)
        return {row["claim"]: row for row in verdicts(Folder(folder))}

    return judged


def test_what_is_planted_is_confirmed(found):
    rows = found(AS_CLAIMED)
    assert len(rows) == 28
    for claim in (
        "LQD (N) is more novel than NS",
        "LQD (F) is fitter than GA",
        "LQD (F+N) is more novel than MAP-Elites",
        "LQD (F+N) is close to DNS (QD score at least 0.95 of it)",
        "LQD (F) is competitive in fitness on unseen functions",
        "LQD (F) beats MAP-Elites almost everywhere (in 90 % of the cells)",
        "LQD (F) is fitter with the task's descriptors than with random ones on the training functions",
        "LQD (N) rewards distance from the others",
    ):
        assert rows[claim]["verdict"] == "holds", rows[claim]
    for row in rows.values():
        assert row["p"] is None or 0 <= row["p"] <= 1
    tested = [row["p"] for row in rows.values() if row["p"] is not None]
    assert min(tested) == pytest.approx(2 / 12870 * len(tested))  # 8 seeds against 8: the smallest there is, times Holm


def test_what_is_not_there_is_not_confirmed(found):
    rows = found({"ns": 1.0, "ga": 1.0, "me": 1.0, "dns": 1.0})
    for claim in (
        "LQD (N) is more novel than NS",
        "LQD (F) is fitter than GA",
        "LQD (F+N) is more novel than MAP-Elites",
        "LQD (F+N) is close to DNS (QD score at least 0.95 of it)",
        "LQD (N) has the best novelty on all unseen functions but Salomon",
        "LQD (F) is competitive in fitness on unseen functions",
        "LQD (F) beats MAP-Elites almost everywhere (in 90 % of the cells)",
        "LQD (F) is fitter with the task's descriptors than with random ones on the training functions",
    ):
        assert rows[claim]["verdict"] == "does not hold", rows[claim]


def test_equals_are_not_better(found):
    rows = found({})
    assert rows["LQD (F) is fitter than GA"]["verdict"] == "does not hold"
    assert rows["LQD (F) with random descriptors is not better than GA on the training functions"]["verdict"] == "holds"


def test_both_at_the_optimum_are_level(tmp_path, monkeypatch):
    folder = Folder(planted.write(tmp_path, AS_CLAIMED, suite="grid"))
    tables = {rule: folder.table("grid 64", rule) for rule in ("lqd-f", "me")}
    tables["me"]["fitness"][:, 0] = tables["lqd-f"]["fitness"][:, 0]
    monkeypatch.setattr(folder, "table", lambda part, rule: tables[rule])
    (row,) = (row for row in verdicts(folder) if row["figure"] == "grid")
    num = tables["me"]["fitness"].shape[1]
    assert row["ours"].startswith(
        f"wins in {100 * (num - 1) / num:.0f} % of {2 * num} cells, level in {100 / num:.0f} %"
    )
