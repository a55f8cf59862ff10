"""Training runs small enough for a test: how they are made, what they leave, and when two are the same."""

import csv
import json

import numpy as np

import lqd
from lqd.meta import generation, presets
from lqd.meta.store import Saved, Store

STAGE = {"num_meta_generations": 4, "meta_population_size": 4, "num_tasks": 2, "num_generations": 3}
COMMON = {
    "preset": "smoke",
    "functions": ("sphere", "rastrigin"),
    "population_size": 8,
    "batch_size": 4,
    "num_layers": 1,
    "num_features": 4,
    "num_heads": 2,
    "num_hidden": 4,
    "validation_tasks": 4,
    "validation_generations": 3,
}
TINY = COMMON | STAGE | {"chunk_size": 2, "validation_every": 2}


class Reached(Exception):
    """What would have been run."""


def saved(folder):
    return Store(folder).load()


def log_of(folder):
    """Rows without what the clock says."""
    with (folder / "log.csv").open(newline="") as file:
        return [
            {k: v for k, v in row.items() if k not in ("time_s", "seconds", "check")} for row in csv.DictReader(file)
        ]


def assert_same_arrays(one, other, only=""):
    one, other = ({n: v for n, v in saved(f).arrays.items() if n.startswith(only)} for f in (one, other))
    assert one.keys() == other.keys() != set()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


def assert_same_run(one, other):
    """To the last bit: what was evolved, what was logged, what was kept."""
    assert_same_arrays(one, other)
    assert log_of(one) == log_of(other)
    for name in ("rule.safetensors", "last.safetensors"):
        np.testing.assert_array_equal(weights(one / name), weights(other / name))
    cards = [json.loads((folder / "card.json").read_text()) for folder in (one, other)]
    for card in cards:
        del card["time_s"], card["sessions"]
    assert cards[0] == cards[1]


def weights(path):
    return np.asarray(generation.flat_from(lqd.load(path)))


def flags(settings):
    words = []
    for name, value in settings.items():
        name = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        else:
            words += [f"--{name}", *(map(str, value) if isinstance(value, tuple) else [str(value)])]
    return words


def finished(process):
    """Exit status and what was said on stderr."""
    _, errors = process.communicate(timeout=600)
    return process.returncode, errors


def begun(folder, config, num_done):
    """A folder in which a run was left after so many meta-generations."""
    folder.mkdir()
    Store(folder).save(Saved(config, 0, num_done, {"start": np.zeros(3)}, {"sessions": [], "time_s": 0.0}))
    return folder


def config_of(settings, *stages):
    config = presets.override(presets.preset("smoke"), {n: v for n, v in settings.items() if n != "preset"})
    for text in stages:
        config = presets.add_stage(config, text)
    return config
