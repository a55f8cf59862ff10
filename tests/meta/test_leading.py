"""Training of rules that lead variation: where it begins, that it goes on exactly, and what the panel varies by."""

import jax
import numpy as np
import pytest
from training_runs import TINY, assert_same_run, config_of, saved

import lqd
from lqd.errors import InvalidInput
from lqd.evolution.led import Led
from lqd.evolution.variation import IsoLine
from lqd.meta import generation, initial_weights, presets
from lqd.meta.train import train
from lqd.meta.validation import Validator
from lqd.rules.learned.network import Architecture

LED = TINY | {"recipe": 3, "num_heads": 4}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("led") / "run"
    train(out=out, quiet=True, **LED)
    return out


def config(**settings):
    return presets.override(presets.preset("smoke"), settings)


def test_breeding_is_evolved(whole):
    rule = lqd.load(whole / "last.safetensors")
    assert rule.guides
    for name, leaf in rule.params["breeding"].items():
        assert (leaf != 0).any(), name


def test_a_run_that_was_cut_is_the_same(whole, tmp_path):
    train(out=tmp_path / "cut", quiet=True, **LED | {"num_meta_generations": 2})
    train(out=tmp_path / "cut", quiet=True, resume=True, num_meta_generations=4)
    assert_same_run(tmp_path / "cut", whole)


def test_it_begins_with_the_scores_of_a_rule_in_the_box():
    begun = presets.begin_with(config(recipe=3), "lqd-f", initial_weights.read("lqd-f")[1], Architecture(recipe=2))
    rule = generation.rule_from(initial_weights.weights(begun), begun.architecture)
    rng = np.random.default_rng(0)
    fitness, descriptor = rng.standard_normal(50, np.float32), rng.standard_normal((50, 2), np.float32)
    expected = lqd.load("lqd-f")(None, fitness, descriptor)
    np.testing.assert_allclose(rule(None, fitness, descriptor), expected, rtol=1e-5, atol=1e-5)


def test_init_on_the_whole_way(settled, tmp_path):
    reached = settled(out=tmp_path, preset="smoke", init="lqd-f", recipe=3)
    assert (reached.architecture.recipe, reached.init) == (3, "lqd-f")
    assert settled(out=tmp_path, preset="smoke", init="lqd-f").architecture.recipe == 2


def test_who_leads_has_steps_of_its_own():
    assert isinstance(config(recipe=3).operator, Led)
    assert isinstance(config(recipe=2, iso_sigma=0.1).operator, IsoLine)
    with pytest.raises(InvalidInput, match=r"iso_sigma .*recipe 3.* 0\.1"):
        config(recipe=3, iso_sigma=0.1)


def test_the_panel_varies_as_the_rule_does(whole):
    """Its fitness is not that of iso-line variation with the same seeds."""
    led = Validator(saved(whole).config)
    other = Validator(config_of(LED | {"recipe": 2}))
    assert (led.panel["ga"]["fitness"] != other.panel["ga"]["fitness"]).any()
    np.testing.assert_array_equal(led.f_rand, other.f_rand)
    assert jax.tree.leaves(led.panel)[0].shape == (4,)
