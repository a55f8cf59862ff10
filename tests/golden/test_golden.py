"""Every door gives the numbers it gave, and old files are still read and gone on from.

Compiled with XLA's normal settings, as users do. On the machine that made them the numbers are equal to the last bit;
elsewhere (another processor, other versions) roundings differ, so they agree to a few digits: the runs are too short
for a rounding to decide who survives.
"""

import json
import pathlib
import shutil

import doors
import numpy as np
import pytest

import lqd

pytestmark = pytest.mark.as_users


# On another machine. Adam divides tiny gradients by their own size, which makes steps of roundings.
TOLERANCE = {"command_imitate": 5e-3}
IS_THE_MACHINE = doors.kept()[1] == doors.machine()


def assert_same(found, expected, name="", atol=2e-4):
    """To the last bit on the machine that made the numbers and files, to a few digits elsewhere."""
    if IS_THE_MACHINE:
        np.testing.assert_array_equal(found, expected, err_msg=name)
    else:
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=atol, err_msg=name)


@pytest.mark.parametrize("door", doors.DOORS)
def test_a_door_gives_the_numbers_it_gave(door):
    if (package := doors.missing(door)) is not None:
        pytest.skip(f"needs {package}")
    expected = {key.partition("/")[2]: value for key, value in doors.kept()[0].items() if key.startswith(f"{door}/")}
    found = {name: np.atleast_1d(value) for name, value in doors.DOORS[door]().items()}
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert (found[name].shape, found[name].dtype) == (value.shape, value.dtype), name
        assert_same(found[name], value, name, TOLERANCE.get(door, 2e-4))


@pytest.fixture
def old(tmp_path):
    """A copy of the old files, as some going on writes to them."""
    return pathlib.Path(shutil.copytree(doors.FILES, tmp_path / "files"))


def test_an_old_search_goes_on(old):
    search = lqd.AskTell.load(old / "state.safetensors")
    before = lqd.Result.load(old / "result.safetensors")
    assert search.num_evaluations == before.num_evaluations == 4 * doors.BATCH
    np.testing.assert_array_equal(search.result().x, before.x)
    np.testing.assert_array_equal(search.result().extras["sum"], before.extras["sum"])
    x = search.ask()
    search.tell(x, *doors.plain(x))
    assert search.generation == 3


@pytest.mark.parametrize(("folder", "given"), [
    ("checkpoint-host", {"evaluate": doors.plain, "rule": "dns"}),
    ("checkpoint-jax", {"evaluate": doors.traced, "rule": "lqd-f", "backend": "jax"}),
])  # fmt: skip
def test_an_old_checkpoint_goes_on_as_if_nothing_had_happened(old, folder, given):
    longer = given | doors.SMALL | {"num_evaluations": doors.NUM + 2 * doors.BATCH}
    resumed = doors.of_result(lqd.optimize(**longer, checkpoint=old / folder, resume=True))
    undisturbed = doors.of_result(lqd.optimize(**longer))
    for name, value in undisturbed.items():
        assert_same(resumed[name], value, name)


def test_old_weights_are_read(old):
    rule = lqd.load(old / "rule.safetensors")
    fitness, descriptor = np.arange(5.0), np.eye(5)[:, :2]
    assert_same(rule(None, fitness, descriptor), lqd.rule("lqd-untrained", num_layers=1)(None, fitness, descriptor))


@pytest.mark.parametrize("folder", ["training", "imitation"])
def test_an_old_training_run_is_done_and_says_what_it_was(old, folder):
    outcome = lqd.train(out=old / folder, resume=True, quiet=True)
    card = json.loads((doors.FILES / folder / "card.json").read_text())
    assert outcome.stopped_by is None
    assert json.loads(json.dumps(outcome.card["config"])) == card["config"]
    assert outcome.card["validation"] == card["validation"]
    for name, value in doors.of_arrays(doors.FILES / folder / "rule.safetensors").items():
        np.testing.assert_array_equal(doors.of_arrays(old / folder / "rule.safetensors")[name], value)


def test_an_old_training_run_goes_on(old):
    (old / "training" / "state-00000003.safetensors").unlink()
    lqd.train(out=old / "training", resume=True, quiet=True)
    again, expected = (
        doors.of_arrays(folder / "training" / "state-00000003.safetensors") for folder in (old, doors.FILES)
    )
    assert again.keys() == expected.keys()
    for name, value in expected.items():
        assert_same(again[name], value, name)


def test_the_folder_of_an_old_run_is_read(old):
    result = lqd.Result.load(old / "run" / "result_0.safetensors")
    scores = json.loads((old / "run" / "manifest.json").read_text())["scores"]["0"]
    assert result.fitness.max() == pytest.approx(scores["max_fitness"])


def test_an_old_bench_is_read_and_not_run_again(old, monkeypatch):
    from lqd.bench import runner, settings
    from lqd.bench.results import Folder

    folder = Folder(old / "bench")
    part = folder.parts["arm"]
    setting = settings.Setting(**{name: tuple(v) if isinstance(v, list) else v for name, v in part["setting"].items()})
    monkeypatch.setattr(runner, "_run", None)  # would run something
    bench = runner.Bench(setting, old / "bench" / "pieces" / "quick" / "arm")
    for rule in part["rules"]:
        # A learned rule of recipe 2 breaks ties otherwise since then: its piece would be run again.
        is_other = getattr(bench._rule(rule), "architecture", None) == lqd.load("lqd-f").architecture
        assert bench.has(rule) != is_other
        for measure, values in folder.table("arm", rule).items():
            if not is_other:
                np.testing.assert_allclose(bench.measure(rule)[measure], values, rtol=1e-6)
