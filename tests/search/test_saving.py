"""A run that was kept goes on as if nothing had happened."""

import dataclasses
import multiprocessing
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lqd
from lqd.evolution import driver
from lqd.search import saving
from lqd.tasks.bbob import instances

pytestmark = pytest.mark.as_users  # equal bits, and whole runs: as users compile them

GIVEN = {"dim": 3, "bounds": (-1, 1), "population_size": 16, "batch_size": 8, "archive_cells": 5}
GIVEN |= {"descriptor_bounds": ([-1, -1], [1, 1]), "rule": "dns", "iso_sigma": 0.3, "num_evaluations": 16 + 8 * 20}


def evaluate(x):
    return -jnp.sum(x**2, axis=1), x[:, :2], {"sum": jnp.sum(x, axis=1)}


def on_host(x):
    return -np.sum(x**2, axis=1), x[:, :2], {"sum": np.sum(x, axis=1), "count": np.arange(len(x))}


BACKENDS = {"jax": evaluate, "host": on_host}


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(saving, "EVERY_S", 0.0)
    monkeypatch.setattr(saving, "SHARE", 1e9)


@pytest.fixture(scope="module")
def undisturbed():
    return {name: lqd.optimize(function, backend=name, **GIVEN) for name, function in BACKENDS.items()}


def equal(one: lqd.Result, other: lqd.Result):
    for part in ("population", "best", "archive"):
        for name in ("x", "fitness", "descriptor"):
            np.testing.assert_array_equal(getattr(getattr(one, part), name), getattr(getattr(other, part), name))
        extras = getattr(one, part).extras
        assert extras
        for name, value in extras.items():
            np.testing.assert_array_equal(value, getattr(other, part).extras[name])
    columns = [name for name in one.history if name != "time_s"]
    np.testing.assert_array_equal(one.history[columns], other.history[columns])
    assert one.history["time_s"].is_monotonic_increasing
    assert one.num_evaluations == other.num_evaluations


@pytest.mark.parametrize("backend", BACKENDS)
def test_interrupted_anywhere_it_ends_the_same(backend, undisturbed, tmp_path):
    def stop_at(generation):
        def callback(progress):
            if progress.generation == generation:
                raise KeyboardInterrupt

        return callback

    given = GIVEN | {"checkpoint": tmp_path / "run", "resume": True, "backend": backend}
    for generation in (0, 7, 19):
        with pytest.raises(lqd.Interrupted):
            lqd.optimize(BACKENDS[backend], callback=stop_at(generation), **given)
    equal(undisturbed[backend], lqd.optimize(BACKENDS[backend], **given))
    equal(undisturbed[backend], lqd.optimize(BACKENDS[backend], **given))  # it is finished, and stays so


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_finished_run_can_be_lengthened(backend, undisturbed, tmp_path):
    given = GIVEN | {"checkpoint": tmp_path, "backend": backend}
    lqd.optimize(BACKENDS[backend], **given | {"num_evaluations": 16 + 8 * 6})
    equal(undisturbed[backend], lqd.optimize(BACKENDS[backend], resume=True, **given))
    with pytest.raises(lqd.InvalidInput, match="holds 176 evaluations, num_evaluations is 24"):
        lqd.optimize(BACKENDS[backend], resume=True, **given | {"num_evaluations": 24})


def test_with_an_executor(undisturbed, tmp_path):
    given = GIVEN | {"checkpoint": tmp_path, "resume": True, "executor": ThreadPoolExecutor(2)}

    def one_by_one(x):
        return -np.sum(x**2, axis=1), x[:, :2], {"sum": np.sum(x, axis=1), "count": np.arange(len(x))}

    stopped = lqd.optimize(one_by_one, callback=lambda progress: progress.generation == 3, **given)
    assert stopped.stopped_by == "callback"
    result = lqd.optimize(one_by_one, **given)
    np.testing.assert_array_equal(result.x, undisturbed["host"].x)
    stopped = lqd.optimize(
        one_by_one, steady_state=True, callback=lambda progress: progress.num_evaluations > 30,
        **given | {"checkpoint": tmp_path / "steady"},
    )  # fmt: skip
    assert stopped.num_evaluations == 31
    again = lqd.optimize(one_by_one, steady_state=True, **given | {"checkpoint": tmp_path / "steady"})
    assert again.num_evaluations == 176


def test_noise_on_the_host_goes_on_as_well(tmp_path):
    task = lqd.tasks.make("bbob/sphere", dim=2, noise=True)
    given = {"num_evaluations": 64, "population_size": 16, "batch_size": 8, "backend": "host"}
    whole = lqd.optimize(task, **given)
    lqd.optimize(task, checkpoint=tmp_path, **given | {"num_evaluations": 32})
    np.testing.assert_array_equal(lqd.optimize(task, checkpoint=tmp_path, resume=True, **given).x, whole.x)


@pytest.mark.long  # tests/test_faults.py does so at every change
def test_killed_at_any_moment(undisturbed, tmp_path):
    """A process that is killed without warning leaves a whole state, or none."""
    script = textwrap.dedent(f"""
        import os, sys, threading
        import numpy as np
        import lqd
        from lqd.search import saving
        saving.EVERY_S, saving.SHARE = 0.0, 1e9
        num = 0
        def evaluate(x):
            global num
            num += 1
            if num == int(sys.argv[1]):
                threading.Timer(float(sys.argv[2]), os._exit, [9]).start()
            return -np.sum(x**2, axis=1), x[:, :2], {{"sum": np.sum(x, axis=1), "count": np.arange(len(x))}}
        lqd.optimize(evaluate, checkpoint={str(tmp_path / "run")!r}, resume=True, **{GIVEN!r})
        os._exit(0)
    """)
    codes = []
    for call, delay in ((4, 0.0), (5, 0.003)):
        command = [sys.executable, "-c", script, str(call), str(delay)]
        codes.append(subprocess.run(command, check=False, timeout=120).returncode)
    assert codes[0] == 9
    result = lqd.optimize(on_host, checkpoint=tmp_path / "run", resume=True, **GIVEN)
    equal(undisturbed["host"], result)


def _hold(folder, ready, release):
    with saving.CheckpointFolder(folder, True).lock():
        ready.set()
        release.wait(60)


def test_a_folder_is_one_runs_alone(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(tmp_path, ready, release))
    process.start()
    assert ready.wait(60)
    with pytest.raises(lqd.InvalidInput, match="in use by another process"):
        lqd.optimize(on_host, checkpoint=tmp_path, **GIVEN)
    process.kill()  # the lock goes with its holder
    process.join()
    lqd.optimize(on_host, checkpoint=tmp_path, **GIVEN | {"num_evaluations": 24})


def test_bad_input(tmp_path):
    lqd.optimize(on_host, checkpoint=tmp_path, **GIVEN | {"num_evaluations": 24})
    for given, message in [
        ({}, "already holds a run: give resume=True"),
        ({"resume": True, "seed": 1}, r"differs in seed \(0, now 1\)"),
        ({"resume": True, "rule": "ga"}, "differs in rule"),
        ({"resume": True, "rule": lqd.rule("dns", k=5)}, "differs in rule"),
        ({"resume": True, "batch_size": 4}, r"differs in batch_size \(8, now 4\)"),
        ({"resume": "yes"}, "resume must be True or False"),
        ({"checkpoint": 3}, "checkpoint must be a folder, got 3"),
        ({"checkpoint": None, "resume": True}, "give its folder as checkpoint="),
    ]:
        with pytest.raises(lqd.InvalidInput, match=message):
            lqd.optimize(on_host, **GIVEN | {"checkpoint": tmp_path} | given)
    with pytest.raises(lqd.InvalidInput, match="backend 'host', this one has 'jax'"):
        lqd.optimize(evaluate, checkpoint=tmp_path, resume=True, backend="jax", **GIVEN)
    state = tmp_path / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-20])
    with pytest.raises(lqd.Unreadable, match="not a complete safetensors file"):
        lqd.optimize(on_host, checkpoint=tmp_path, resume=True, **GIVEN)
    (tmp_path / "file").touch()
    with pytest.raises(lqd.InvalidInput, match="cannot be written to"):
        lqd.optimize(on_host, checkpoint=tmp_path / "file", **GIVEN)


def test_other_weights_are_another_run(tmp_path):
    one, two = (lqd.rule("lqd-untrained", seed=seed) for seed in (0, 1))
    given = GIVEN | {"num_evaluations": 24, "checkpoint": tmp_path, "resume": True}
    lqd.optimize(on_host, **given | {"rule": one})
    lqd.optimize(on_host, **given | {"rule": one})
    with pytest.raises(lqd.InvalidInput, match="other weights"):
        lqd.optimize(on_host, **given | {"rule": two})


@pytest.mark.parametrize("backend", ["jax", "host"])
def test_another_instance_is_another_run(backend, tmp_path):
    """Also one that an earlier version drew under the same number, which a checkpoint does not say."""
    given = {"num_evaluations": 40, "population_size": 16, "batch_size": 8, "backend": backend}
    given |= {"checkpoint": tmp_path, "resume": True}
    for noise in (False, True):
        task = lqd.tasks.make("bbob/rastrigin", dim=3, seed=4, noise=noise)
        lqd.optimize(task, **given | {"checkpoint": tmp_path / str(noise)})
        before = dataclasses.replace(task, instance=instances.sample_batch(
            jax.random.key(4), ("rastrigin",), 1, width=3, min_dim=3, max_dim=3, noise=noise,
        ).task(0).instance)  # fmt: skip
        for other in (before, lqd.tasks.make("bbob/rastrigin", dim=3, seed=5, noise=noise)):
            with pytest.raises(lqd.InvalidInput, match="a run on another instance of 'bbob/rastrigin'"):
                lqd.optimize(other, **given | {"checkpoint": tmp_path / str(noise)})
        again = lqd.optimize(task, **given | {"checkpoint": tmp_path / str(noise), "num_evaluations": 64})
        assert again.num_evaluations == 64


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_of_a_lengthened_run_lie_where_those_of_a_whole_one_would(backend, tmp_path):
    """Every tenth generation has one here, and the last: of a run that goes on, that was not the last."""
    given = GIVEN | {"population_size": 320, "batch_size": 4, "checkpoint": tmp_path, "backend": backend}
    for num_generations in (25, 25, 37):
        lqd.optimize(BACKENDS[backend], resume=True, **given | {"num_evaluations": 320 + 4 * num_generations})
    result = lqd.optimize(BACKENDS[backend], resume=True, **given | {"num_evaluations": 320 + 4 * 44})
    whole = lqd.optimize(
        BACKENDS[backend], **given | {"checkpoint": tmp_path / "whole", "num_evaluations": 320 + 4 * 44}
    )
    assert whole.history["generation"].tolist() == [0, 10, 20, 30, 40, 44]
    equal(result, whole)


def test_a_compiled_run_that_fails_between_two_rows_goes_on_as_if_it_had_not(tmp_path):
    calls = []

    def sometimes_raises(x):
        calls.append(None)
        if len(calls) in (5, 9):
            raise RuntimeError("no licence")
        return np.asarray(x)[:, 0]

    def evaluate(x):
        first = jax.pure_callback(
            sometimes_raises, jax.ShapeDtypeStruct(x.shape[:1], x.dtype), x, vmap_method="sequential"
        )
        return -jnp.sum(x**2, axis=1) + 0 * first, x[:, :2], {"sum": jnp.sum(x, axis=1)}

    given = GIVEN | {"population_size": 320, "batch_size": 4, "num_evaluations": 320 + 4 * 44, "backend": "jax"}
    for _ in range(2):
        with pytest.raises(lqd.EvaluationFailed):
            lqd.optimize(evaluate, checkpoint=tmp_path, resume=True, **given)
    assert len(calls) == 9
    result = lqd.optimize(evaluate, checkpoint=tmp_path, resume=True, **given)
    equal(result, lqd.optimize(evaluate, **given))


def test_ctrl_c_between_a_state_and_its_rows(tmp_path, monkeypatch):
    """A signal that comes while history is written waits until that is done."""
    given = GIVEN | {"backend": "jax"}
    whole = lqd.optimize(evaluate, **given)
    make = driver.Rows.__new__
    at = [1, 9]

    def interrupted(cls, generation, *others):
        if at and sys._getframe(1).f_code.co_name == "note" and generation[-1] >= at[0]:
            del at[0]
            signal.raise_signal(signal.SIGINT)
        return make(cls, generation, *others)

    monkeypatch.setattr(driver.Rows, "__new__", interrupted)
    num_interrupted, result = 0, None
    while result is None:
        try:
            result = lqd.optimize(evaluate, checkpoint=tmp_path, resume=True, **given)
        except lqd.Interrupted:
            num_interrupted += 1
    monkeypatch.undo()
    assert num_interrupted == 2
    equal(result, whole)
