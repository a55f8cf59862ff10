"""The runs behind the rules in the box, in `training/`: each can be gone on from."""

import importlib
import json
import pathlib

import jax
import numpy as np
import pytest

import lqd
from lqd.meta import generation, initial_weights, train
from lqd.meta.store import Store
from lqd.rules import trained
from lqd.rules.learned import recipe3

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


STARTS = sorted((TRAINING / "starts").glob("*.safetensors"))


@pytest.mark.parametrize("path", STARTS, ids=lambda path: path.stem)
def test_a_start_can_be_begun_with(path):
    rule, _ = initial_weights.read(str(path))
    assert rule.guides
    assert np.any(rule.params["breeding"]["direct"] != 0)


def test_breeding_by_hand(monkeypatch):
    """The fitter, the more likely a parent; and whose steps are too long hands on shorter ones."""
    monkeypatch.syspath_prepend(str(TRAINING))
    start = importlib.import_module("start")
    rule = start.started(lqd.load("lqd-f"), keep=0.0, rank=4.0)
    fitness, descriptor = np.arange(20, dtype=np.float32), np.random.default_rng(0).random((20, 2), np.float32)
    carried = np.array(recipe3.neutral(20))
    _, advice = rule.guide(None, fitness, descriptor, carried)
    assert (np.diff(advice[:, 0]) > 0).all()
    np.testing.assert_allclose(advice[:, 1:], 0.0, atol=1e-6)
    carried[:, recipe3.STEPS.index("shape")] += 1.0
    _, advice = rule.guide(None, fitness, descriptor, carried)
    expected = np.zeros(recipe3.NUM_ADVICE - 1)
    expected[2 + recipe3.STEPS.index("shape")] = -0.3
    np.testing.assert_allclose(advice[0, 1:], expected, atol=1e-6)
    scores = rule(None, fitness, descriptor)
    np.testing.assert_allclose(scores, lqd.load("lqd-f")(None, fitness, descriptor), rtol=1e-5, atol=1e-5)
