"""What the second generation is compared in, by hand; and the names of contestants."""

import numpy as np
import pytest

from lqd.bench import contestants, second_tables
from lqd.bench.second_tables import Found, Table
from lqd.bench.watched import Seen
from lqd.errors import InvalidInput
from lqd.evolution.led import Led
from lqd.evolution.variation import Spread

BOX = (-np.ones(2), np.ones(2))


def content_of(name: str, tables: dict) -> dict:
    table = Table("any", "bbob", ("lqd2-f+led",), tuple(one for one in tables if one != "lqd2-f+led"))
    return second_tables.content({name: table}, Found({"bbob": tables}, {}))["tables"][name]


def test_best_fitness_by_hand():
    """Regrets 1e-2 and 1e-4 against 1 and 1e-4; then 0 against 1e-9, which are level: both are below the floor."""
    ours = {"history.best": -np.array([[[9.0, 9.0]] * 2, [[1e-2, 1e-4], [1e-2, 0.0]]])}
    theirs = {"history.best": -np.array([[[9.0, 9.0]] * 2, [[1.0, 1e-4], [1.0, 1e-9]]])}
    found = content_of("fitness", {"lqd2-f+led": ours, "ga+led": theirs})
    values = {row["rule"]: row["value"] for row in found["rows"]}
    assert values["lqd2-f+led"] == pytest.approx((-2 - 4 - 2 - 8) / 4)
    assert values["ga+led"] == pytest.approx((0 - 4 + 0 - 8) / 4)
    (one,) = found["comparisons"]
    assert one["win_rate"] == (1 + 0.5 + 1 + 0.5) / 4
    assert one["ratio"] == pytest.approx(10.0)  # the geometric mean of 100, 1, 100, 1
    # Doubled ranks on the first task: ours 7, 7, theirs 3, 3. On the second: 1e-4 twice, 3, 3; the floor twice, 7, 7.
    # Sums by seed: ours 10, 14, theirs 6, 10. Of 6 ways to deal the ranks 1, 2.5, 2.5, 4, ours has 6.5: 2 are as high.
    assert one["p"] == pytest.approx(2 * 2 / 6)
    assert one["delta"] == (1 + 0.5 + 1 + 1) / 4 * 2 - 1
    assert one["paired_p"] == 0.5  # both seeds are one task ahead: of four ways to choose signs, two are as far
    header, rows = second_tables.shown("fitness", found)[1]
    assert header[:4] == ("rule", "against", "wins", "p")
    assert rows[0][2].startswith("75 % (")
    assert second_tables.shown("fitness", found)[0][1][0][1].startswith("-4.00 (")


def test_diversity_is_a_share_of_map_elites_at_its_slots():
    tables = {
        "lqd2-f+led": {"novelty_rarefied": np.array([[1.0, 3.0], [1.0, 3.0]]), "num_filled": np.full((2, 2), 128.0)},
        "me+led": {"novelty_rarefied": np.array([[2.0, 4.0], [2.0, 4.0]]), "num_filled": np.array([[70.0, 90.0]] * 2)},
    }
    ours, theirs = content_of("diversity", tables)["rows"]
    assert ours["value"] == (0.5 + 0.75) / 2
    assert (theirs["value"], theirs["num_filled"]) == (1.0, 80.0)
    assert second_tables.shown("diversity", content_of("diversity", tables))[0][1] == [
        ("lqd2-f+led", "62.5 (62.5 to 62.5)", "128"),
        ("me+led", "100.0 (100.0 to 100.0)", "80"),
    ]


def test_novelty_is_compared_by_logarithms():
    tables = {"lqd2-f+led": {"novelty": np.array([[8.0, 1.0]] * 2)}, "ns+led": {"novelty": np.array([[2.0, 1.0]] * 2)}}
    found = content_of("novelty", tables)
    assert found["comparisons"][0]["ratio"] == pytest.approx(2.0)
    assert found["comparisons"][0]["win_rate"] == 0.75
    assert found["rows"][0]["value"] == pytest.approx(np.log10(8) / 2)
    nothing = {"lqd2-f+led": {"novelty": np.zeros((2, 1))}, "ns+led": {"novelty": np.ones((2, 1))}}
    assert content_of("novelty", nothing)["rows"][0]["value"] == -12


def test_the_grid_is_compared_task_by_task():
    def seen(*scores):
        return Seen(np.array([8, 16]), np.array([[0.0, 0.0], scores]), np.array([[0.1, 0.1], [0.5, 0.7]]))

    table = Table("any", "grid", ("lqd2-fn+led",), ("dns+tuned",))
    on_tasks = {
        "arm-12": {"lqd2-fn+led": seen(6.0, 6.0), "dns+tuned": seen(1.0, 3.0)},
        "sphere-20": {"lqd2-fn+led": seen(1.0, 4.0), "dns+tuned": seen(2.0, 2.0)},
    }
    found = second_tables.content({"grid": table}, Found({}, {"grid": on_tasks}))["tables"]["grid"]
    assert [(row["task"], row["value"], row["coverage"]) for row in found["rows"]] == [
        ("arm-12", 6.0, pytest.approx(0.6)), ("arm-12", 2.0, pytest.approx(0.6)),
        ("sphere-20", 2.5, pytest.approx(0.6)), ("sphere-20", 2.0, pytest.approx(0.6)),
    ]  # fmt: skip
    arm, sphere = found["comparisons"]
    assert (arm["ratio"], arm["win_rate"], arm["delta"]) == (3.0, 1.0, 1.0)
    assert (sphere["ratio"], sphere["win_rate"], sphere["delta"]) == (1.25, 0.5, 0.0)
    assert arm["p"] == pytest.approx(2 * 2 / 6)  # Mann-Whitney's 2 / 6, times two by Holm
    assert second_tables.shown("grid", found)[0][1][0][:2] == ("arm, 12 joints", "lqd2-fn+led")


def test_names_of_contestants():
    assert contestants.parse("lqd-f") == ("lqd-f", None, "")
    assert contestants.parse("lqd-f@random") == ("lqd-f", None, "random")
    assert contestants.parse("lqd-fn+spread") == ("lqd-fn", "spread", "")
    for wrong in ("ga+", "ga+lead", "ga+led+led"):
        with pytest.raises(InvalidInput, match="unknown variation"):
            contestants.parse(wrong)
    with pytest.raises(InvalidInput, match="unknown rule 'lqd3'"):
        contestants.check(["ga+led", "lqd3+led"])
    contestants.check(["lqd3+led"], own=["lqd3"])


def test_variations_and_what_describes_them():
    tuned = {"dns": (0.1, 0.5)}
    assert isinstance(contestants.operator("led", BOX, {}, "ga"), Led)
    spread = contestants.operator("spread", BOX, {}, "ga")
    assert isinstance(spread, Spread)
    assert contestants.described(spread)["box"] == [[-1.0, -1.0], [1.0, 1.0]]
    steps = [contestants.described(contestants.operator(one, BOX, tuned, "dns"))["steps"] for one in ("paper", "tuned")]
    np.testing.assert_allclose(steps, [[0.005, 0.05], [0.1, 0.5]])
    with pytest.raises(InvalidInput, match="no steps were chosen for rule 'ga' here, only for dns"):
        contestants.operator("tuned", BOX, tuned, "ga")
    with pytest.raises(TypeError, match="no description of a function"):
        contestants.described(lambda key, x1, x2: x1)
