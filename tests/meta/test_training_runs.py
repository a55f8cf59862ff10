"""The runs behind the rules in the box, in `training/`: each can be gone on from."""

import json
import pathlib

import jax
import numpy as np
import pytest

from lqd.meta import generation, train
from lqd.meta.store import Store
from lqd.rules import trained

TRAINING = pathlib.Path(__file__).parents[2] / "training"
RUNS = sorted(path.parent for path in TRAINING.glob("*/card.json"))


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_a_run_can_be_gone_on_from(folder):
    saved = Store(folder).load()
    card = json.loads((folder / "card.json").read_text())
    assert saved.num_meta_generations == card["num_meta_generations"]
    assert trained.read(folder / "rule.safetensors").architecture == saved.config.architecture
    longer = {"num_meta_generations": saved.num_meta_generations + 1} if saved.config.stages else {}
    config = train._continued(folder, saved, None, longer, ())
    if not config.stages:
        return
    strategy = generation.strategy_of(config, config.stage_at(saved.num_meta_generations)[1])
    state = {name.removeprefix("strategy."): v for name, v in saved.arrays.items() if name.startswith("strategy.")}
    members = jax.jit(strategy.ask)(jax.random.key(0), state)
    assert members.shape == (strategy.num_members, strategy.num_params)
    assert np.isfinite(members).all()
