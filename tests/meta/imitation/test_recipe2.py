"""Imitation with the second recipe of features; by itself, because it compiles long."""

import jax
import pytest

from lqd.meta.imitation import fitting
from lqd.meta.imitation.settings import Imitation
from lqd.rules.learned import network
from lqd.rules.learned.network import Architecture


@pytest.mark.slow
def test_recipe_2_learns_too():
    key, architecture = jax.random.key(0), Architecture(num_layers=1, recipe=2)
    config = Imitation(
        num_synthetic_rounds=2, num_own_rounds=1, steps_per_round=60, num_populations=8, num_at_once=4,
        num_warmup_steps=10, synthetic_size=24, population_size=24, batch_size=8, num_generations=12, num_snapshots=4,
        num_per_function=2, functions=("sphere",), num_held_out=32,
    )  # fmt: skip
    held_out = fitting.held_out(jax.random.key(99), config, "dns", architecture)
    state, losses = fitting.init(fitting.prepared(network.init_params(key, architecture))), []
    for number in range(config.num_rounds):
        state, measured = fitting.run_round(key, state, number, config, "dns", architecture, held_out)
        losses.append(float(measured["loss"]))
    assert losses[-1] < losses[0]
    assert float(measured["spearman_synthetic"]) > 0.5
