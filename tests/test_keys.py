"""Random numbers: no two uses in one experiment draw from the same key.

In JAX `fold_in(key, i)` equals `split(key, n)[i]`, so two uses collide where one folds in a small number and the other
splits, or where both fold the same number into the same seed.
"""

import jax
import numpy as np
import pytest

import lqd
from lqd.bench import runner
from lqd.cli import seeds
from lqd.evolution import loop
from lqd.meta import generation, initial_weights, presets, trainer, validation
from lqd.meta.config import VALIDATION_SEED, Config
from lqd.meta.imitation import fitting
from lqd.meta.tasks import Distribution
from lqd.search import host
from lqd.tasks import without_descriptors
from lqd.tasks.bbob import instances

NUM_POLICIES = 300
LAST_SEED = 2**32 - 1


class _Drawn(Exception):
    """Thrown where a key is used, with the key."""


def _drawn(monkeypatch, where, name: str, call, place: int = 0):
    """The key that `call` hands to a function: its argument in this place."""

    def instead(*args, **given):
        raise _Drawn(args[place])

    with monkeypatch.context() as patch:
        patch.setattr(where, name, instead)
        with pytest.raises(_Drawn) as found:
            call()
    return found.value.args[0]


def _numbered(name: str, key, num: int) -> dict:
    return {f"{name} {i}": jax.random.fold_in(key, i) for i in range(num)}


def _of_instances(monkeypatch, seed: int) -> dict:
    """A key for each function and its peaks; from each the first instance is drawn."""
    key = _drawn(
        monkeypatch, instances, "sample_batch", lambda: lqd.tasks.make("bbob/sphere", dim=2, seed=seed)
    )  # fmt: skip
    functions = _numbered(f"instance {seed}, function", key, 2 * len(instances.FUNCTIONS))
    first = {f"{name}, first": jax.random.split(one, 1)[0] for name, one in functions.items()}
    return {f"instance {seed}": key} | functions | first


def _of_search(seed: int) -> dict:
    key = jax.random.key(seed)
    streams = {"start": loop.START, "parents": loop.REPRODUCTION, "evaluation": loop.EVALUATION}
    streams |= {"competition": loop.COMPETITION, "noise on the host": host.HOST_NOISE}
    found = {f"search {seed}": key}
    for name, stream in streams.items():
        found[name] = jax.random.fold_in(key, stream)
        found |= {f"{name}, generation {i}": loop._keys(key[None], stream, i)[0] for i in range(3)}
    return found


def _of_one_evaluation(key) -> dict:
    """A robot splits the key among the policies; random descriptors are drawn beside it."""
    policies = _numbered("reset of policy", key, NUM_POLICIES)
    return policies | {"random descriptors": without_descriptors.keys(key[None])[0]}


def _of_learning(monkeypatch, config: Config, folder) -> dict:
    """Of training, imitation, validation and bench, as they hand them on."""
    run = trainer._Trainer.__new__(trainer._Trainer)
    run.config, run.num_rounds, run.leads = config, 0, True
    monkeypatch.setattr(fitting, "init", lambda params: None)
    tasks, runs, anchors = jax.random.split(
        jax.random.fold_in(jax.random.key(np.uint32(validation.SEED)), 1), 3
    )  # fmt: skip
    drawn = _drawn(monkeypatch, Distribution, "sample", lambda: validation.Validator(config), place=1)
    assert (jax.random.key_data(drawn) == jax.random.key_data(tasks)).all()
    return {
        "imitation, held out": _drawn(monkeypatch, fitting, "held_out", run._imitate),
        "first weights": _drawn(
            monkeypatch, initial_weights.Learned, "init", lambda: initial_weights.random_rule(config)
        ),
        **_numbered("evolution", generation._keys_of(config.seed, 0)[0], 3),
        "validation, tasks": tasks,
        "validation, runs": runs,
        "validation, anchors": anchors,
        "bench, tasks": _drawn(monkeypatch, runner, "field", lambda: runner.Bench(runner.Setting(), folder)),
    }  # fmt: skip


def _no_two_are_equal(keys: dict) -> None:
    data = {name: tuple(jax.random.key_data(key).tolist()) for name, key in keys.items()}
    names: dict[tuple, list[str]] = {}
    for name, value in data.items():
        names.setdefault(value, []).append(name)
    assert [group for group in names.values() if len(group) > 1] == []


@pytest.mark.parametrize("seed", [0, 1, 2**31])
def test_no_two_uses_share_a_key(seed, monkeypatch, tmp_path):
    """Of a search on the instance of its own number, and of all that training, validation and benches draw.

    The training's seed is another number, as is validation's: a search and a training of one number share keys, but
    no experiment has both, and runs that exist must go on with the keys they have.
    """
    search = _of_search(seed)
    keys = search | _of_one_evaluation(search["evaluation, generation 1"]) | _of_instances(monkeypatch, seed)
    anchors = _drawn(
        monkeypatch, seeds, "random_search", lambda: seeds.anchors_of(lqd.tasks.make("bbob/sphere", dim=2), 9)
    )  # fmt: skip
    keys |= {"anchors of a run": anchors} | _numbered("anchors of a run", anchors, 5)
    config = presets.override(presets.imitation_preset("smoke"), {"init": "ns", "seed": 12})
    _no_two_are_equal(keys | _of_learning(monkeypatch, config, tmp_path))


@pytest.mark.parametrize("seed", [0, 1, LAST_SEED - 1])
def test_a_training_run_shares_no_key_with_validation_and_bench(seed, monkeypatch, tmp_path):
    config = presets.override(presets.imitation_preset("smoke"), {"init": "ns", "seed": seed})
    _no_two_are_equal(_of_learning(monkeypatch, config, tmp_path))


def test_the_seed_of_validation_is_refused_where_something_is_imitated(tmp_path):
    assert validation.SEED == VALIDATION_SEED == LAST_SEED
    message = "seed 4294967295 is the seed of the validation tasks"
    with pytest.raises(lqd.InvalidInput, match=message):
        lqd.imitate("ns", out=tmp_path / "a", preset="smoke", seed=LAST_SEED, quiet=True)
    with pytest.raises(lqd.InvalidInput, match=message):
        lqd.train(out=tmp_path / "b", preset="smoke", init="dns", seed=LAST_SEED, quiet=True)
    assert list(tmp_path.iterdir()) == []
    assert presets.override(presets.preset("smoke"), {"seed": LAST_SEED}).seed == LAST_SEED  # imitates nothing
