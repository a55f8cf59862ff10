"""What a run found, evaluated again: without the luck of single evaluations, on resets that the run never saw."""

import dataclasses
import importlib.util
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lqd import cli
from lqd.bench import again, runner, settings, side_by_side, suites
from lqd.bench.plan import Part
from lqd.bench.results import Folder
from lqd.errors import InvalidInput
from lqd.evolution import driver, loop
from lqd.io.files import read_arrays
from lqd.rules import catalogue
from lqd.tasks.task import Repeated
from lqd.types import Evaluation, Population, pytree

SETTING = settings.Setting(
    functions=settings.ARM, num_seeds=2, num_generations=5, num_rows=3, population_size=8, batch_size=4, num_resets=3
)
LUCK = 10.0


@pytree
class Lucky:
    """Fitness minus the square of x, and luck; so are descriptors. Beyond 100 every other episode fails."""

    name, dim, descriptor_dim, bounds, descriptor_bounds, f_opt = "lucky", 2, 2, None, None, None

    def evaluate(self, key, x):
        luck = jax.random.normal(key, (3, len(x)))
        fitness = -jnp.sum(x**2, axis=1) + LUCK * luck[0]
        fails = (x[:, 0] > 100) & (jax.random.uniform(jax.random.fold_in(key, 1), (len(x),)) < 0.5)
        return Evaluation(jnp.where(fails, jnp.nan, fitness), x + luck[1:].T)

    def noiseless(self, x):
        return -jnp.sum(x**2, axis=1)


def evolved(num_seeds=4, population_size=16, num_generations=30):
    tasks, keys = Repeated(Lucky(), num_seeds), jax.random.split(jax.random.key(0), num_seeds)
    rule, operator = catalogue.rule("ga"), settings.Setting().operator
    ran = driver.run(keys, tasks, (rule,), operator, num_generations=num_generations, population_size=population_size,
                     batch_size=8)  # fmt: skip
    return tasks, ran.states[0]


def test_luck_is_not_reported():
    tasks, state = evolved()
    found = again.measured(tasks, state, 256)
    truth = Lucky().noiseless(state.best.x[:, 0])
    assert (state.best.fitness[:, 0] > truth + LUCK).all()  # the luckiest of 256 evaluations
    np.testing.assert_allclose(found["best_again"], truth, atol=5 * LUCK / 16)
    np.testing.assert_allclose(found["again.best.descriptor"].T, state.best.x[:, 0], atol=5 / 16)
    np.testing.assert_array_equal(found["again.best.x"].T, state.best.x[:, 0])
    assert found["again.elites.fitness"].shape == (16, 4)  # fewer than 64 are there
    expected = np.sort(np.asarray(tasks.noiseless(state.population.x)), axis=1)
    np.testing.assert_allclose(np.sort(found["again.elites.fitness"].T, axis=1), expected, atol=5 * LUCK / 16)
    np.testing.assert_allclose(found["elites_again"], found["again.elites.fitness"].mean(axis=0), rtol=1e-5)
    assert (found["num_failed_again"] == 0).all()


def test_resets_are_fresh():
    """No key of a run is used again, and no two resets or individuals share one."""
    _, state = evolved(num_seeds=2, num_generations=1)
    used = [
        loop._keys(state.key, stream, jnp.int32(number))
        for stream in (loop.START, loop.REPRODUCTION, loop.EVALUATION, loop.COMPETITION)
        for number in range(-1, 200)
    ]
    fresh = [again._keys(state, number) for number in range(200)]
    words = np.concatenate([jax.random.key_data(keys) for keys in (*used, *fresh)])
    assert len(np.unique(words, axis=0)) == len(words)


def test_elites_are_drawn_from_the_filled_slots():
    num = 200
    fitness = jnp.where(jnp.arange(num) < 100, 1.0, -jnp.inf)
    population = Population(jnp.arange(num, dtype=jnp.float32)[:, None], fitness, jnp.zeros((num, 2)), {})
    draws = [again._drawn(jax.random.key(seed), population) for seed in range(20)]
    for x, is_there in draws:
        assert len(np.unique(x)) == again.NUM_ELITES == int(is_there.sum())
        assert (x < 100).all()
    assert len(np.unique(np.concatenate([x for x, _ in draws]))) == 100  # anybody
    few = dataclasses.replace(population, fitness=jnp.where(jnp.arange(num) < 5, 1.0, -jnp.inf))
    x, is_there = again._drawn(jax.random.key(0), few)
    assert set(np.asarray(x[is_there][:, 0])) == set(range(5))


def test_episodes_that_fail_are_left_out_and_counted():
    tasks, state = evolved(num_seeds=2, num_generations=1)
    x = state.population.x.at[0, :, 0].set(200.0)
    population = dataclasses.replace(state.population, x=x)
    found = again.measured(tasks, dataclasses.replace(state, population=population), 32)
    failed = np.asarray(found["num_failed_again"])
    assert 16 * 32 * 0.3 < failed[0] < 16 * 32 * 0.7
    assert failed[1] == 0
    np.testing.assert_allclose(found["again.elites.fitness"][:, 0], -40_000.0, rtol=0.05)


def test_a_bench_keeps_it_alone_and_together(tmp_path):
    """On the arm nothing is a matter of luck: the best is what it was."""
    names, joint = ("me", "ga", "dns@random"), runner.Bench(SETTING, tmp_path / "together")
    joint.measure_together(names)
    alone = runner.Bench(SETTING, tmp_path / "alone")
    for name in names:
        found, expected = joint.measure(name), alone.measure(name)
        assert found.keys() == expected.keys()
        for measure in expected:
            np.testing.assert_array_equal(found[measure], expected[measure], err_msg=f"{name} {measure}")
        np.testing.assert_allclose(found["best_again"], found["history.best"][-1], rtol=1e-6)
        assert found["again.best.x"].shape == (8, 2, 1)
        assert found["again.elites.descriptor"].shape == (2, 8, 2, 1)
    assert (joint.measure("dns@random")["novelty_again"] < 1).all()  # the arm's, not what the rule was shown
    arrays, description = read_arrays(tmp_path / "alone" / "ga.safetensors", "piece")
    assert description["setting"]["num_resets"] == 3
    assert arrays["again.best.x"].dtype == np.float32


def test_seeds_that_are_added_are_evaluated_again_too(tmp_path):
    few = dataclasses.replace(SETTING, num_seeds=2)
    many, names = dataclasses.replace(SETTING, num_seeds=3), ("me", "ga")
    runner.Bench(few, tmp_path / "grown").measure_together(names)
    whole, grown = runner.Bench(many, tmp_path / "whole"), runner.Bench(many, tmp_path / "grown")
    for bench in (whole, grown):
        bench.measure_together(names)
    for name in names:
        expected, found = whole.measure(name), grown.measure(name)
        assert found.keys() == expected.keys()
        for measure in expected:
            np.testing.assert_allclose(found[measure], expected[measure], rtol=1e-5, err_msg=f"{name} {measure}")


def test_what_was_not_evaluated_again_is_run_again(tmp_path):
    before = runner.Bench(dataclasses.replace(SETTING, num_resets=0), tmp_path)
    before.measure_together(("me", "ga"))
    assert "best_again" not in before.measure("ga")
    seen = []
    bench = runner.Bench(SETTING, tmp_path)
    bench.measure_together(("me", "ga"), seen.append)
    assert seen[-1] == SETTING.num_generations
    assert "best_again" in bench.measure("ga")


def test_cut_while_it_is_evaluated_again(tmp_path, monkeypatch):
    monkeypatch.setattr(again, "measured", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        runner.Bench(SETTING, tmp_path).measure_together(("me", "ga"))
    monkeypatch.undo()
    seen, bench = [], runner.Bench(SETTING, tmp_path)
    bench.measure_together(("me", "ga"), seen.append)
    assert seen == []  # the run itself was kept
    assert np.isfinite(bench.measure("ga")["best_again"]).all()


def test_a_time_limit_keeps_what_was_done(tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "SECONDS_PER_CALL", 0.0)  # a generation a call
    whole, bench = runner.Bench(SETTING, tmp_path / "whole"), runner.Bench(SETTING, tmp_path / "cut")
    whole.measure_together(("me", "ga"))
    seen = []
    for generation in range(1, SETTING.num_generations):
        with pytest.raises(side_by_side.OutOfTime, match=f"generation {generation} of 5 is kept"):
            bench.measure_together(("me", "ga"), seen.append, until=0.0)
    bench.measure_together(("me", "ga"), seen.append, until=0.0)  # a call always gets somewhere
    assert seen == [1, 2, 3, 4, 5]
    for measure, expected in whole.measure("ga").items():
        np.testing.assert_array_equal(bench.measure("ga")[measure], expected, err_msg=measure)


@pytest.fixture
def two_parts(monkeypatch):
    def plan(preset):
        return {name: Part(SETTING, ("me", "ga"), together=True) for name in ("hopper", "arm")}

    monkeypatch.setitem(suites.SUITES, "robots", plan)
    monkeypatch.setattr(suites, "has_brax", lambda: True)


def test_parts_are_run_one_by_one_and_put_together(tmp_path, two_parts, capsys, monkeypatch):
    pytest.importorskip("pyarrow")
    command = ["bench", "--suite", "robots", "--out", str(tmp_path), "--quiet"]
    cli.main([*command, "--only", "hopper"])
    assert "Kept the pieces of hopper" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "pieces" / "quick").iterdir()) == ["hopper"]
    assert not (tmp_path / "manifest.json").exists()
    cli.main([*command, "--only", "arm"])
    monkeypatch.setattr(runner, "_run", None)
    monkeypatch.setattr(side_by_side, "run", None)  # nothing runs any more
    suites.run("robots", "quick", tmp_path)
    folder = Folder(tmp_path)
    assert set(folder.parts) == {"hopper", "arm"}
    assert folder.num_resets("hopper") == 3
    kept = runner.Bench(SETTING, tmp_path / "pieces/quick/hopper").measure("ga")
    np.testing.assert_array_equal(folder.best("hopper", "ga"), kept["best_again"])


def test_parts_lock_their_own_folder_and_the_whole_waits_for_them(tmp_path, two_parts):
    from lqd.io.lock import locked

    command = ["bench", "--suite", "robots", "--out", str(tmp_path), "--quiet"]
    with locked(tmp_path / "pieces" / "quick" / "hopper", "--out"):
        for words in (["--only", "hopper"], []):
            with pytest.raises(SystemExit):
                cli.main([*command, *words])
        cli.main([*command, "--only", "arm"])


def test_out_of_time_is_told_with_a_status_of_its_own(tmp_path, two_parts, capsys):
    command = ["bench", "--suite", "robots", "--out", str(tmp_path), "--quiet", "--only", "hopper"]
    with pytest.raises(SystemExit) as stopped:
        cli.main([*command, "--time-limit-s", "0.0001"])
    assert stopped.value.code == 3
    assert "time is up: generation" in (said := capsys.readouterr().err)
    assert "the same command continues from there" in said
    cli.main(command)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "hoper"], r"unknown part of suite 'robots' 'hoper'.*'hopper'"),
        (["--time-limit-s", "0"], r"time_limit_s must be"),
        (["--suite", "claims", "--only", "train"], r"--only is for the paper's suites, not for 'claims'"),
        (["--suite", "claims", "--time-limit-s", "9"], r"--time-limit-s is for the paper's suites"),
    ],
)
def test_bad_parts_and_limits_are_said(tmp_path, two_parts, capsys, words, said):
    with pytest.raises(SystemExit):
        cli.main(["bench", "--suite", "robots", "--out", str(tmp_path), "--quiet", *words])

    assert re.search(said, capsys.readouterr().err)


def test_robots_need_brax(monkeypatch):
    monkeypatch.setattr(suites, "has_brax", lambda: False)
    with pytest.raises(InvalidInput, match=r"only 'hopper': robots need brax"):
        suites.parts("robots", suites.PRESETS["quick"], ("hopper",))


@pytest.mark.skipif(importlib.util.find_spec("brax") is None, reason="needs brax: pip install 'lqd[brax]'")
def test_a_robot_bench_from_a_part_with_a_time_limit_to_the_report(tmp_path, monkeypatch, capsys):
    """One robot at a time, cut, gone on with, put together; the best is worth what fresh resets say."""
    tiny = dataclasses.replace(
        suites.PRESETS["quick"], num_evaluations=160, num_rows=2,
        robots=suites.Robots(2, 24, 10, 8, names=("hopper",), num_resets=3),
    )  # fmt: skip
    monkeypatch.setitem(suites.PRESETS, "tiny", dataclasses.replace(tiny, num_seeds=2))
    monkeypatch.setattr(driver, "SECONDS_PER_CALL", 0.0)
    command = ["bench", "--suite", "robots", "--preset", "tiny", "--out", str(tmp_path), "--quiet"]
    with pytest.raises(SystemExit) as stopped:
        cli.main([*command, "--only", "hopper", "--time-limit-s", "0.001"])
    assert stopped.value.code == 3
    cli.main([*command, "--only", "hopper"])
    arrays, description = read_arrays(tmp_path / "pieces/tiny/hopper/lqd-f.safetensors", "piece")
    assert description["setting"]["num_resets"] == 3
    assert arrays["again.best.x"].shape == (243, 2, 1)
    task = settings.field(jax.random.key(0), suites.plan("robots", suites.PRESETS["tiny"])["hopper"].setting).tasks.task
    x = jnp.asarray(arrays["again.best.x"][:, :, 0].T)
    returns = [task.evaluate(jax.random.key(seed), x).fitness for seed in range(3)]
    assert np.ptp(returns, axis=0).min() > 0  # resets differ
    np.testing.assert_allclose(arrays["best_again"][:, 0], np.mean(returns, axis=0), rtol=0.5)
    cli.main(command)
    folder = Folder(tmp_path)
    assert set(folder.parts) == {"arm", "hopper"}
    for rule in folder.parts["hopper"]["rules"]:
        table = folder.table("hopper", rule)
        assert np.isfinite(table["novelty_again"]).all()
        assert (table["num_failed_again"] == 0).all()
        np.testing.assert_array_equal(folder.best("hopper", rule), table["best_again"])
