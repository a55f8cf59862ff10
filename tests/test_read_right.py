"""Input that looks like something else than it is: read as it is meant, or refused by name; never read wrongly."""

from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import lqd
from lqd import checks, cli
from lqd.integrations.ribs import LQDArchive
from lqd.rules.catalogue import resolve

GIVEN = {"dim": 2, "bounds": (-5, 5), "population_size": 8, "batch_size": 4, "num_evaluations": 16, "rule": "ga"}


def evaluate(x):
    return -(x**2).sum(axis=1), x


def masked(values, mask):
    return np.ma.array(values, mask=mask)


BOUNDS = {
    "frame": (pd.DataFrame([[-5, -5], [5, 5]]), r"bounds must be \(low, high\).*got a DataFrame.*to_numpy"),
    "columns": (pd.DataFrame({"low": [-5, -5], "high": [5, 5]}), "got a DataFrame"),
    "dictionary": ({"low": -5, "high": 5}, "bounds must be"),
    "numbered": ({-5: "low", 5: "high"}, "bounds must be"),
    "set": ({-5, 5}, "bounds must be"),
    "text": ("05", "bounds must be"),
    "texts": (("0", "5"), "bounds must be"),
    "masked": (masked([[-5, -5], [5, 5]], [[0, 0], [0, 1]]), "bounds has masked entries"),
    "masked end": ((masked([-5, -5], [0, 1]), 5), "bounds has masked entries"),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds(name):
    given, message = BOUNDS[name]
    with pytest.raises(lqd.InvalidInput, match=message):
        lqd.optimize(evaluate, **GIVEN | {"bounds": given})
    with pytest.raises(lqd.InvalidInput, match=message.replace("bounds", "descriptor_bounds")):
        lqd.AskTell(dim=2, descriptor_bounds=given)


@pytest.mark.parametrize("given", [
    np.array([[-5, -5], [5, 5]]), [[-5, -5], [5, 5]], (pd.Series([-5, -5]), pd.Series([5, 5])), pd.Series([-5, 5]),
    masked([[-5, -5], [5, 5]], False), jnp.array([-5.0, 5.0]), (np.float16(-5), np.int8(5)), iter([-5, 5]),
])  # fmt: skip
def test_bounds_of_other_kinds_are_read(given):
    low, high = checks.box("bounds", given, 2)
    np.testing.assert_array_equal([low, high], [[-5, -5], [5, 5]])


def test_masks_are_not_lost():
    search = lqd.AskTell(dim=2, population_size=8, batch_size=4)
    x = search.ask()
    hidden = np.arange(4) == 2
    whole = {"fitness": x[:, 0], "descriptor": x, "extras": {"e": x[:, 0]}}
    for name, value, said in [
        ("fitness", masked(x[:, 0], hidden), "fitness"),
        ("descriptor", masked(x, np.stack([hidden] * 2, 1)), "descriptor"),
        ("extras", {"e": masked(x[:, 0], hidden)}, r"extras\['e'\]"),
    ]:
        with pytest.raises(lqd.InvalidInput, match=rf"tell: {said} has masked entries.*filled"):
            search.tell(x, **whole | {name: value})
    with pytest.raises(lqd.InvalidInput, match="x has masked entries"):
        search.tell(masked(x, np.stack([hidden] * 2, 1)), **whole)
    with pytest.raises(lqd.InvalidInput, match="x0 has masked entries"):
        lqd.AskTell(dim=2, x0=masked([0.0, 0.0], [0, 1]))
    search.tell(masked(x, False), **whole | {"fitness": masked(x[:, 0], False)})
    archive = LQDArchive(solution_dim=2, measure_dim=2, capacity=4, rule="ga")
    with pytest.raises(lqd.InvalidInput, match="objective has masked entries"):
        archive.add(x, masked(x[:, 0], hidden), x)


def changing(what):
    calls = []

    def function(x):
        calls.append(None)
        big = len(calls) % 2 == 0
        fitness, descriptor, extra = np.zeros(1), np.zeros((1, 2)), np.zeros((1, 3))
        if what == "descriptor" and big:
            descriptor = np.zeros((1, 3))
        if what == "shape" and big:
            extra = np.zeros((1, 4))
        if what == "kind" and big:
            extra = np.array([["a", "b", "c"]])
        if what == "ragged":
            extra = [[1.0, 2.0], [3.0]] if big else [[1.0]]
        return fitness, descriptor, {"path": extra}

    return function


@pytest.mark.parametrize("steady_state", [False, True])
@pytest.mark.parametrize(("what", "message"), [
    ("descriptor", "descriptor has . dimensions, expected"),
    ("shape", r"extras\['path'\] must.*shape.*for entries of any length use an array of objects"),
    ("kind", r"extras\['path'\] must.*kind"),
    ("ragged", r"extras\['path'\]"),
])  # fmt: skip
def test_answers_of_changing_shape_from_executors(what, message, steady_state):
    with pytest.raises(lqd.InvalidInput, match=message):
        lqd.optimize(changing(what), executor=ThreadPoolExecutor(1), steady_state=steady_state, **GIVEN)


def test_an_own_rule_of_the_wrong_shape_in_an_archive_of_pyribs():
    def fits_once(key, fitness, descriptor):
        return jnp.zeros(8 + 32)

    def right_once(key, fitness, descriptor):
        return fitness if len(fitness) == 8 + 32 else fitness[:1]

    solutions = np.random.default_rng(0).normal(size=(50, 2))
    for rule in (fits_once, right_once):
        archive = LQDArchive(solution_dim=2, measure_dim=2, capacity=8, rule=rule)
        archive.add(solutions[:32], solutions[:32, 0], solutions[:32])
        before = archive.data("objective")
        with pytest.raises(lqd.InvalidInput, match=r"rule must be a JAX function .*not \[72\]"):
            archive.add(solutions, solutions[:, 0], solutions)
        np.testing.assert_array_equal(archive.data("objective"), before)


@pytest.mark.parametrize("beyond", [1e39, -1e39])
def test_objectives_and_measures_beyond_single_precision_in_an_archive_of_pyribs(beyond):
    archive = LQDArchive(solution_dim=2, measure_dim=2, capacity=8, rule="ga")
    x = np.zeros((2, 2))
    with pytest.raises(lqd.InvalidInput, match=r"objective must be within single precision \(3.4e38\)"):
        archive.add(x, [beyond, 0.0], x)
    with pytest.raises(lqd.InvalidInput, match="measures must be within single precision"):
        archive.add(x, [0.0, 0.0], [[beyond, 0], [0, 0]])
    assert archive.empty


@pytest.mark.parametrize("seed", [2**32, 2**32 + 5, 2**64, -1, 1.5, "1", None])
def test_seeds_do_not_wrap(seed, capsys):
    for make in (
        lambda: lqd.AskTell(dim=2, seed=seed),
        lambda: lqd.tasks.make("bbob/sphere", seed=seed),
        lambda: lqd.rule("lqd-untrained", seed=seed),
        lambda: lqd.rule("me", descriptor_bounds=([0, 0], [1, 1]), seed=seed),
        *([lambda: LQDArchive(solution_dim=1, measure_dim=1, capacity=1, rule="ga", seed=seed)] * (seed is not None)),
    ):
        with pytest.raises(lqd.InvalidInput, match="seed must be "):
            make()


def test_nor_do_many_from_one(capsys, tmp_path):
    with pytest.raises(SystemExit):
        cli.main(["run", "--seed", "4294967295", "--num-seeds", "2", "--out", str(tmp_path)])
    assert "seed + num_seeds must be at most 2**32, got 4294967295 + 2" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["noise", "rotate"])
@pytest.mark.parametrize("value", ["no", 0, None, np.array([True])])
def test_switches_of_tasks(name, value):
    with pytest.raises(lqd.InvalidInput, match=f"{name} must be True or False"):
        lqd.tasks.make("bbob/sphere", **{name: value})


@pytest.mark.parametrize(
    "value",
    [10**400, -(10**400), 10**5000, 1e39, np.float64(1e300), np.array(1.0), "1", 1j],
    ids=["400", "-400", "5000", "39", "300", "array", "text", "complex"],
)
@pytest.mark.parametrize("name", ["iso_sigma", "line_sigma", "init_sigma", "qd_offset"])
def test_numbers_beyond_every_float(name, value):
    with pytest.raises(lqd.InvalidInput, match=f"{name} must be "):
        lqd.AskTell(dim=2, archive_cells=2, descriptor_bounds=(0, 1), **{name: value})
    with pytest.raises(lqd.InvalidInput, match="time_limit_s must be"):
        lqd.optimize(evaluate, time_limit_s=10**400, **GIVEN)


def first_lost(key, x1, x2):
    return jnp.where((jnp.arange(2) == 0) & (x2[0] > 0), jnp.nan, x1)


def test_genotypes_that_are_no_numbers_on_the_compiled_path():
    """As on the host, where they are found before they are evaluated."""

    def ignores_the_first(x):
        return abs(x[:, 1]).clip(0, 1e38), x[:, 1:]

    for backend in ("host", "jax"):
        with pytest.raises(lqd.InvalidInput, match="reproduction must return finite numbers") as error:
            lqd.optimize(ignores_the_first, backend=backend, reproduction=first_lost, **GIVEN)
        if backend == "jax":
            assert error.value.result.num_evaluations > 0
    wide = GIVEN | {"bounds": None, "num_evaluations": 80, "population_size": 32, "batch_size": 16}
    for backend in ("host", "jax"):
        for name in ("iso_sigma", "init_sigma"):
            with pytest.raises(lqd.InvalidInput, match="left the range of single precision"):
                lqd.optimize(ignores_the_first, backend=backend, **wide | {name: 3e38})


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_no_numbers(value, tmp_path):
    good = lqd.rule("lqd-untrained", num_layers=1, num_features=4, num_heads=2)
    leaves, structure = jax.tree.flatten(good)
    rule = jax.tree.unflatten(structure, [leaves[0] * value, *leaves[1:]])
    with pytest.raises(lqd.InvalidInput, match="weights that are not finite"):
        lqd.optimize(evaluate, **GIVEN | {"rule": rule})
    with pytest.raises(lqd.InvalidInput, match="weights that are not finite"):
        LQDArchive(solution_dim=1, measure_dim=2, capacity=4, rule=rule)
    lqd.save_rule(tmp_path / "good.safetensors", good)
    from lqd.io import files

    arrays, description = files.read_arrays(tmp_path / "good.safetensors", "rule")
    name = sorted(arrays)[0]
    files.write_arrays(tmp_path / "bad.safetensors", "rule", arrays | {name: arrays[name] * value}, description)
    with pytest.raises(lqd.Unreadable, match="weights that are not finite"):
        resolve(str(tmp_path / "bad.safetensors"))
