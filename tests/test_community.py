"""The community benchmark: tasks, the passive archive and pieces, tiny."""

import dataclasses
import json
import math
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lqd.bench import domains
from lqd.report import style

SMALL = {"population_size": 8, "batch_size": 4}


@pytest.fixture
def community(monkeypatch):
    pytest.importorskip("ribs")
    monkeypatch.setattr(sys, "path", [str(pathlib.Path(__file__).parents[1] / "benchmarks"), *sys.path])
    import community

    return community


@pytest.fixture
def small(community, monkeypatch):
    """Algorithms and candidates cut down to what runs in seconds."""
    rules = {name: dataclasses.replace(community.ALGORITHMS[name], tuned_as=name, **SMALL) for name in SIZES}
    emitters = {name: dataclasses.replace(community.ALGORITHMS[name], batch_size=4) for name in ("cma-me", "cma-mae")}
    monkeypatch.setattr(community, "ALGORITHMS", rules | emitters)
    monkeypatch.setattr(community, "ISO_LINE", ((0.1, 0.2), (0.5, 0.2)))
    monkeypatch.setattr(community, "CMA_SIGMA", ((0.5,),))
    monkeypatch.setattr(community, "NUM_EMITTERS", 1)
    monkeypatch.setattr(community, "EMITTER_BATCH", 4)
    return community


SIZES = ("dns-128", "lqd-fn-128")


@pytest.mark.parametrize("xp", [np, jnp])
def test_tasks_at_known_points(xp):
    points = xp.asarray(np.array([np.full(20, 2.048), np.full(20, -5.12), np.full(20, 10.24)], np.float32))
    objective, measures = domains.sphere(points, xp)
    np.testing.assert_allclose(objective, [100, 0, 100 * (1 - (8.192 / 7.168) ** 2)], atol=1e-4)
    np.testing.assert_allclose(measures, [[20.48, 20.48], [-51.2, -51.2], [5.0, 5.0]], rtol=1e-6)

    turned = np.zeros((4, 12), np.float32)
    turned[1, 0] = math.pi / 2
    turned[2] = np.tile([math.pi, -math.pi], 6)
    turned[3, 6] = math.pi  # folded in the middle
    objective, measures = domains.arm(xp.asarray(turned), xp)
    one = 11 / 12**2  # the variance of eleven zeros and a one
    np.testing.assert_allclose(objective, [1, 1 - one / 4, 0, 1 - one], atol=1e-6)
    np.testing.assert_allclose(measures, [[12, 0], [0, 12], [0, 0], [0, 0]], atol=1e-5)


def test_passive_archive_by_hand(community):
    passive = domains.Passive(12.0)
    points = np.array([[-12, -12], [-11.9, -11.9], [12, 12], [99, 99], [0.01, 0.01], [0.3, 0.01]])
    passive.add(np.array([1.0, 3.0, 2.0, 1.5, -4.0, 0.5]), points)
    passive.add(np.array([2.5]), points[:1])  # no better
    assert domains.cell(points, 12.0).tolist() == [0, 0, 9999, 9999, 5050, 5150]
    qd_score, coverage = domains.scores(passive.best)
    assert qd_score == 3.0 + 2.0 + 0.0 + 0.5
    assert coverage == 4 / 10_000


@pytest.mark.parametrize("task", ["sphere", "arm"])
def test_passive_archive_agrees_with_pyribs(community, task):
    from ribs.archives import GridArchive

    domain = community.DOMAINS[task]
    seen = GridArchive(solution_dim=domain.dim, dims=(100, 100), ranges=[(-domain.half_width, domain.half_width)] * 2)
    passive = domains.Passive(domain.half_width)
    rng = np.random.default_rng(0)
    for _ in range(3):
        x = rng.uniform(-3, 3, (400, domain.dim))
        objective, measures = domain.function(x)
        assert (objective > 0).all()  # pyribs lets what is negative count
        seen.add(x, objective, measures)
        passive.add(objective, measures)
    qd_score, coverage = domains.scores(passive.best)
    assert coverage == seen.stats.coverage > 0.01
    assert qd_score == pytest.approx(seen.stats.qd_score, rel=1e-12)


def test_compiled_archive_sees_every_solution(small):
    """What the function itself was asked for, counted again on the host."""
    asked = []

    def watched(x, xp):
        jax.debug.callback(lambda x: asked.append(np.array(x)), x)
        return domains.arm(x, xp)

    domain = dataclasses.replace(small.DOMAINS["arm"], function=watched)
    evaluations, qd_score, coverage = small.run_rule(domain, small.ALGORITHMS["dns-128"], (0.1, 0.2), [3], 28)
    jax.effects_barrier()
    assert evaluations.tolist() == [12, 16, 20, 24, 28]
    assert sum(map(len, asked)) == 28
    passive = domains.Passive(12.0)
    for x in asked:
        passive.add(*domains.arm(x))
    expected = domains.scores(passive.best)
    assert (qd_score[-1, 0], coverage[-1, 0]) == pytest.approx(expected, rel=1e-5)
    assert 10 <= 10_000 * coverage[-1, 0] <= 28
    assert coverage[0, 0] < coverage[-1, 0]


def test_budgets_that_do_not_divide_are_refused(small):
    with pytest.raises(ValueError, match="batches of 4"):
        small.run_rule(small.DOMAINS["arm"], small.ALGORITHMS["dns-128"], (0.1, 0.2), [0], 30)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_pieces_are_kept_and_read_again(small, tmp_path, monkeypatch):
    given = ["--num-evaluations", "48", "--num-seeds", "4", "--tasks", "arm", "--out", str(tmp_path)]
    given += ["--algorithms", *small.ALGORITHMS, "--figure", str(tmp_path / "figure.png")]
    found = small.main(given)
    assert set(found["arm"]) == set(small.ALGORITHMS)
    for piece in found["arm"].values():
        assert piece["num_evaluations"][-1] == 48
        assert (np.diff(piece["qd_score"], axis=0) >= 0).all()
        assert np.shape(piece["coverage"][-1]) == (4,)
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    table = (tmp_path / "community.md").read_text()
    assert "**lqd-fn, 8**" in table
    assert len((tmp_path / "community.csv").read_text().splitlines()) == 1 + 4 * len(small.ALGORITHMS)

    (tmp_path / "arm-dns-128.json").write_text("torn")
    ran = []
    monkeypatch.setattr(small, "run", lambda *a, run=small.run: ran.append(a[1].rule) or run(*a))
    again = small.main(given)
    assert again["arm"]["dns-128"] == json.loads((tmp_path / "arm-dns-128.json").read_text())
    for piece in (again["arm"]["dns-128"], found["arm"]["dns-128"]):
        del piece["made"]
    assert again == found
    assert ran == ["dns"]
    assert (tmp_path / "community.md").read_text() == table

    longer = small.Bench(tmp_path / "long", 48, 4, steps_from=tmp_path)
    assert longer.piece("arm", "dns-128")["about"]["step_sizes"] == again["arm"]["dns-128"]["about"]["step_sizes"]
    assert ran == ["dns", "dns"]  # nothing was tuned


def test_means_intervals_and_tests(community):
    values = np.arange(16.0)
    mean, low, high = community.interval(values)
    assert mean == 7.5
    assert low == pytest.approx(7.5 - 2.26, abs=0.15)  # 1.96 standard errors
    assert high == pytest.approx(7.5 + 2.26, abs=0.15)
    pieces = {name: {"qd_score": [values + shift], "coverage": [values]} for name, shift in
              (("me-1024", 0), ("cma-me", 100), ("lqd-fn-128", 50))}  # fmt: skip
    rows = community.tests({"arm": pieces})
    against = {(row["measure"], row["rival"]): (row["other"], row["delta"]) for row in rows}
    assert against["qd_score", "best hand-made"] == ("cma-me", -1.0)
    assert against["qd_score", "best hand-made with iso-line"] == ("me-1024", 1.0)
    assert against["coverage", "best hand-made"][1] == 0
    assert [row["p"] < 1e-6 for row in rows] == [True, True, False]  # on coverage both rivals are the same


def test_every_algorithm_has_the_look_of_its_rule(community):
    assert {community.look(one) for one in community.ALGORITHMS.values()} <= set(style.EVERY)
    assert community.look(community.ALGORITHMS["lqd-fn-cma"]) == "lqd-fn-cma"
