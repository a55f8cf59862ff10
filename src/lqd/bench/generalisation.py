"""`lqd bench --suite generalisation`: the trained rules far from what they were trained on, without any tuning.

Higher dimensions, other population sizes, descriptors of other dimensions, functions never trained on, the arm. Win
rates are paired by instance, ties half; novelty and QD score in units of the other rule's. Readers look for the
lowest and highest numbers of the table, a choice made after the fact: so the intervals are wide enough that those of
all settings hold together, with 95 % confidence.
"""

import dataclasses
import pathlib
from typing import Any

from lqd import statistics
from lqd.bench.plan import OnPiece, Part, measure_all, write_csv
from lqd.bench.runner import Table
from lqd.bench.settings import ARM, Setting
from lqd.errors import unknown
from lqd.io import manifest
from lqd.io.files import write_bytes
from lqd.io.terminal import number
from lqd.rules.catalogue import FITTED, HANDMADE
from lqd.tasks.bbob import instances

AS_TRAINED = Setting()
SETTINGS = {
    "as trained": AS_TRAINED,
    "dimension 16": dataclasses.replace(AS_TRAINED, min_dim=16, max_dim=16),
    "dimension 32": dataclasses.replace(AS_TRAINED, min_dim=32, max_dim=32),
    "population 64": dataclasses.replace(AS_TRAINED, population_size=64, batch_size=16),
    "population 512": dataclasses.replace(AS_TRAINED, population_size=512, batch_size=128),
    "population 1024": dataclasses.replace(AS_TRAINED, population_size=1024, batch_size=256),
    "1 descriptor": dataclasses.replace(AS_TRAINED, descriptor_dim=1),
    "3 descriptors": dataclasses.replace(AS_TRAINED, descriptor_dim=3),
    "8 descriptors": dataclasses.replace(AS_TRAINED, descriptor_dim=8, min_dim=8),
    "functions never seen": dataclasses.replace(AS_TRAINED, functions=instances.OOD),
    "arm": dataclasses.replace(AS_TRAINED, functions=ARM),
}
FEW = ("sphere", "rastrigin", "rosenbrock", "lunacek")


def _quick(setting: Setting) -> Setting:
    functions = setting.functions if setting.functions in (ARM, instances.OOD) else FEW
    return dataclasses.replace(setting, num_seeds=4, functions=functions)


PRESETS = {
    "quick": {name: _quick(setting) for name, setting in SETTINGS.items() if setting.population_size <= 128},
    "full": SETTINGS,
}
RULES = ("lqd-f", "lqd-n", "lqd-fn")  # those that accept any number of descriptors


def run(preset: str, out: pathlib.Path, progress: OnPiece = lambda *_: None) -> dict[str, Any]:
    """Runs what is missing and writes generalisation.json, generalisation.md and results.csv."""
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    settings = PRESETS[preset]
    plan = {
        name: Part(setting, (*HANDMADE, *(() if setting.is_single else (FITTED,)), *RULES))
        for name, setting in settings.items()
    }
    results = measure_all(plan, out / "pieces" / preset, progress)
    content = {
        "preset": preset,
        "made": results.facts(),
        "settings": {name: dataclasses.asdict(setting) for name, setting in settings.items()},
        "rows": [row for name in settings for row in rows(name, results.tables[name], len(settings))],
    }
    manifest.write(out / "generalisation.json", content)
    write_bytes(out / "generalisation.md", markdown(content).encode())
    write_csv(out / "results.csv", results)
    return content


def rows(setting: str, tables: dict[str, Table], num_settings: int) -> list[dict[str, Any]]:
    """One row per trained rule: against each hand-made one, each number with its interval.

    The arm's box is exactly what it can reach, so MAP-Elites is not run with another.
    """
    tables = {FITTED: tables["me"]} | tables
    confidence = 1 - 0.05 / num_settings  # Bonferroni's
    found = []
    for rule in RULES:
        row: dict[str, Any] = {"setting": setting, "rule": rule}
        row |= {f"num_filled_{other}": float(tables[other]["num_filled"].mean()) for other in ("me", FITTED)}
        for measure, name, of in (
            ("fitness", "fitter_than", statistics.win_rate),
            ("novelty", "novelty_of", statistics.ratio),
            ("qd", "qd_of", statistics.ratio),
        ):
            for other in (*HANDMADE, FITTED):
                value, *bounds = of(tables[rule][measure], tables[other][measure], confidence)
                row |= {f"{name}_{other}": value, f"{name}_{other}_interval": bounds}
        found.append(row)
    return found


COLUMNS = {
    "fitter than GA": "fitter_than_ga",
    "than DNS": "fitter_than_dns",
    "than MAP-Elites": "fitter_than_me",
    "(fitted box)": "fitter_than_me-fitted",
    "novelty / GA's": "novelty_of_ga",
    "/ NS's": "novelty_of_ns",
    "/ MAP-Elites's": "novelty_of_me",
    "/ its (fitted box)": "novelty_of_me-fitted",
    "QD score / DNS's": "qd_of_dns",
    "MAP-Elites's filled slots": "num_filled_me",
    "its (fitted box)": "num_filled_me-fitted",
}


def cell(row: dict[str, Any], name: str) -> str:
    value = row[name]
    if name.startswith("num"):
        return f"{value:.0f}"
    low, high = row[f"{name}_interval"]
    if name.startswith("fitter"):
        return f"{100 * value:.0f} % ({100 * low:.0f} to {100 * high:.0f})"
    return f"{number(value)} ({number(low)} to {number(high)})"


def markdown(content: dict[str, Any]) -> str:
    """The table as Markdown."""
    made = content["made"]
    num_seeds = max(setting["num_seeds"] for setting in content["settings"].values())
    functions = next(iter(content["settings"].values()))["functions"]
    lines = [
        "# The trained rules far from what they were trained on",
        "",
        f"`lqd bench --suite generalisation --preset {content['preset']}`, {', '.join(made['devices'])}, "
        f"jax {made['versions']['jax']}, lqd {made['versions']['lqd']}, {made['at'][:10]}; {num_seeds} seeds of "
        f"each of {len(functions)} functions where nothing else is said, 256 generations, a quarter of the population "
        "as offspring, no noise. Trained: 22 functions, dimensions 2 to 12, population 128, 2 descriptors. "
        "In brackets, intervals by resampling seeds, which with 95 % hold for all settings together.",
        "",
        f"| setting | rule | {' | '.join(COLUMNS)} |",
        f"| --- | --- |{' --- |' * len(COLUMNS)}",
    ]
    for row in content["rows"]:
        cells = (cell(row, name) for name in COLUMNS.values())
        lines.append(f"| {row['setting']} | `{row['rule']}` | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])
