"""The folder of a bench with planted results: nothing runs, and what the figures and verdicts should say is known."""

import dataclasses
from unittest import mock

import numpy as np

from lqd.bench import landscapes, suites
from lqd.bench.plan import Results
from lqd.bench.runner import AT_FITTED_SLOTS, HISTORY, MEASURES
from lqd.io import manifest
from lqd.io.files import write_arrays

SIZE = dataclasses.replace(
    suites.PRESETS["quick"],
    functions=("sphere", "rastrigin", "katsuura"),
    grid_dims=(2, 4),
    grid_populations=(64, 128),
    landscapes=landscapes.Size(num_generations=8, num_frames=3, resolution=7),
    num_rows=4,
)
NASTY = "</script><img src=x onerror=alert(1)>"  # the name of a function
MADE = manifest.environment() | {"seconds": 1.0, "at": "2026-01-02T03:04:05"}


def _of_its_own(part: str, rule: str):
    """Random numbers that do not depend on what else there is."""
    return np.random.default_rng([0, *f"{part} {rule}".encode()])


def table(rng, setting, strength: float):
    """Better in everything by a factor of e per unit of strength."""
    shape = (setting.num_seeds, len(setting.columns))
    measures = (*MEASURES, *(() if setting.is_single else (AT_FITTED_SLOTS,)))
    found = {m: np.exp(strength + 0.2 * rng.normal(size=shape)) for m in measures}
    found["fitness"] = -np.exp(-strength + 0.2 * rng.normal(size=shape))
    found["num_filled"] = np.full(shape, 60.0 if strength == 1.5 else 128.0)
    rows = len(setting.rows)
    for measure in HISTORY:
        end = found["fitness" if measure == "best" else measure]
        found[f"history.{measure}"] = np.linspace(2 if (end < 0).all() else 0.5, 1, rows)[:, None, None] * end
    if setting.num_resets:  # less than in the run, which was lucky
        found |= {"best_again": 1.5 * found["fitness"], "elites_again": 2 * found["fitness"]}
        found |= {"novelty_again": 2 * found["novelty"], "num_failed_again": np.zeros(shape)}
    return {name: value.astype(np.float32) for name, value in found.items()}


def landscape(rng, size):
    num, n = 10, size.resolution
    frames = len(np.unique(np.rint(np.geomspace(1, size.num_generations, size.num_frames))))
    descriptor = rng.uniform(-0.5, 0.5, size=(frames, num, 2))
    fitness = -rng.uniform(1, 2, size=(frames, num))
    fitness[:, -1] = -np.inf
    axis = np.linspace(-1, 1, n)
    second, first = np.meshgrid(axis, axis, indexing="ij")
    distance = np.hypot(first[..., None] - descriptor[-1, :-1, 0], second[..., None] - descriptor[-1, :-1, 1]).min(-1)
    arrays = {"fitness": fitness, "descriptor": descriptor, "axis": axis, "score": np.stack([distance] * frames)}
    arrays["share"] = np.clip(arrays["score"], 0, 1)
    generation = np.unique(np.rint(np.geomspace(1, size.num_generations, size.num_frames)).astype(np.int32))
    return {name: value.astype(np.float32) for name, value in arrays.items()} | {"generation": generation}


def write(folder, strengths: dict[str, float], size=SIZE, suite="all", names=None):
    """A folder as `lqd bench --suite all` leaves it."""
    rng = np.random.default_rng(0)
    with mock.patch.object(suites, "has_brax", return_value=True):  # nothing runs: it need not be there
        plan = suites.plan(suite, size)
    if names:
        plan = {
            part: given._replace(setting=dataclasses.replace(given.setting, functions=names))
            if given.setting.functions == size.functions
            else given
            for part, given in plan.items()
        }
    tables = {
        part: {rule: table(_of_its_own(part, rule), given.setting, strengths.get(rule, 0.0)) for rule in given.rules}
        for part, given in plan.items()
    }
    results = Results(plan, tables, {part: dict.fromkeys(given.rules, MADE) for part, given in plan.items()})
    folder.mkdir(parents=True, exist_ok=True)
    suites.write(results, folder)
    setting = {"max_dim": 16, "num_generations": size.landscapes.num_generations}
    manifest.write(
        folder / "manifest.json",
        suites.content([suite], "quick", results) | {"num_seeds": None, "landscape": {"setting": setting}},
    )
    for rule in landscapes.RULES:
        write_arrays(folder / "landscape" / f"{rule}.safetensors", "piece", landscape(rng, size.landscapes), {})
    return folder
