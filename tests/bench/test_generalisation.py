"""The generalisation table on tiny settings: the arm, other descriptors, other functions."""

import dataclasses
import json

import numpy as np
import pytest

from lqd.bench import generalisation, runner, settings
from lqd.cli import main

TINY = dataclasses.replace(
    generalisation.AS_TRAINED, functions=("sphere",), num_seeds=2, num_generations=2, min_dim=3, max_dim=3,
    population_size=8, batch_size=4,
)  # fmt: skip
SETTINGS = {
    "3 descriptors": dataclasses.replace(TINY, descriptor_dim=3),
    "arm": dataclasses.replace(TINY, functions=settings.ARM),
}


def test_the_table_has_a_row_for_every_setting_and_rule(tmp_path, monkeypatch, capsys):
    settings = {"arm": SETTINGS["arm"]}
    monkeypatch.setitem(generalisation.PRESETS, "tiny", settings)
    monkeypatch.setattr(generalisation, "RULES", ("lqd-f",))
    main(["bench", "--suite", "generalisation", "--preset", "tiny", "--out", str(tmp_path), "--quiet"])
    printed = capsys.readouterr().out
    assert "arm" in printed
    assert "generalisation.md" in printed
    content = json.loads((tmp_path / "generalisation.json").read_text())
    names = [(row["setting"], row["rule"]) for row in content["rows"]]
    assert names == [(setting, rule) for setting in settings for rule in generalisation.RULES]
    text = (tmp_path / "generalisation.md").read_text()
    assert text.count("\n| arm |") == len(generalisation.RULES)


@pytest.mark.slow
def test_intervals_hold_for_all_settings_together():
    """Rules that are equal, in ten settings, twenty times: whoever picks the farthest interval is rarely misled."""
    rng = np.random.default_rng(0)
    rules = (*generalisation.HANDMADE, *generalisation.RULES)

    def table():
        found = []
        for _ in range(10):
            tables = {
                rule: {m: np.exp(0.1 * rng.normal(size=(16, 4))) for m in ("fitness", "novelty", "qd", "num_filled")}
                for rule in rules
            }
            found.append(generalisation.rows("any", tables, num_settings=10)[0])
        return found

    tables = [table() for _ in range(20)]
    misled = [
        any(not row[f"{name}_interval"][0] <= equal <= row[f"{name}_interval"][1] for row in rows)
        for rows in tables
        for name, equal in (("fitter_than_ga", 0.5), ("novelty_of_ns", 1.0))
    ]
    assert np.mean(misled) < 0.25
    row = tables[0][0]
    assert generalisation.cell(row, "fitter_than_ga").count(" to ") == 1
    row = {"qd_of_dns": 1.234, "qd_of_dns_interval": [0.5, 2.0]}
    assert generalisation.cell(row, "qd_of_dns") == "1.23 (0.5 to 2)"


def test_descriptors_of_another_dimension_are_measured(tmp_path):
    bench = runner.Bench(SETTINGS["3 descriptors"], tmp_path)
    bench.measure("me")
    table = bench.measure("lqd-f")
    assert table["novelty"].shape == (2, 1)
    assert (table["novelty"] > 0).all()


def test_the_arm_is_measured_in_its_own_units(tmp_path):
    """Positions in the unit square, fitness at most 0; every seed its own run."""
    table = runner.Bench(SETTINGS["arm"], tmp_path).measure("me")
    assert table["fitness"].shape == (2, 1)
    assert (table["fitness"] < 0).all()
    assert (table["novelty"] < 1).all()
    assert table["fitness"][0, 0] != table["fitness"][1, 0]


def test_the_full_table_goes_far_in_every_direction():
    full = generalisation.PRESETS["full"]
    assert {setting.population_size for setting in full.values()} >= {64, 512, 1024}
    assert {setting.max_dim for setting in full.values()} >= {16, 32}
    assert {setting.descriptor_dim for setting in full.values()} >= {1, 3, 8}
    assert all(setting.num_seeds == 32 for setting in full.values())
