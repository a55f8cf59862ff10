"""Killed, interrupted, failing, out of room, twice at once: after each the resumed result is the undisturbed one, bit
for bit.

Five random moments in `make test-as-users`, fifty with `--long`; the seed is printed by a failure.
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from lqd.io.files import PART, read_arrays
from lqd.meta.log import read as read_log

pytestmark = pytest.mark.as_users  # processes that are started again and again: as users do it

PROGRAM = pathlib.Path(__file__).with_name("fault_programs.py")
SEARCHES = ("ask_tell", "optimize", "executor", "steady_state", "compiled")
NAMES = ("ask_tell", "optimize", "bench", "train")
SIGNALS = {"killed": (signal.SIGKILL, signal.SIGTERM), "interrupted": (signal.SIGINT,)}
KINDS = {"rule": "rule", "last": "rule", "state": "state", "validation": "validation"}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def start(cache):
    """Starts one of the programs; `limit` is the size that its files may have."""
    running = []

    def start(name, folder, limit=None, clock="", hiccups="0 0"):
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), name, str(folder), *([str(limit)] if limit else [])], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=os.environ | {"LQD_TEST_CACHE": cache, "LQD_TEST_CLOCK": clock, "LQD_TEST_HICCUPS": hiccups},
        )  # fmt: skip
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def undisturbed(start, tmp_path_factory):
    """Of each program: its folder, and the seconds until its first file and its end, with everything compiled."""
    found = {}

    def run(name):
        if name not in found:
            for folder in ("first", "second"):
                out = tmp_path_factory.mktemp(name) / folder
                out.mkdir()
                begun = time.perf_counter()
                process = start(name, out)
                while not any(path.suffix == ".safetensors" for path in out.rglob("[!.]*")):
                    assert process.poll() is None, process.communicate()
                    time.sleep(0.01)
                first = time.perf_counter() - begun
                errors = process.communicate(timeout=300)[1]
                assert process.returncode == 0, errors
                found[name] = out, (first, time.perf_counter() - begun)
        return found[name]

    return run


def content(name, folder):
    """Every number that a program leaves, without what the clock says."""
    if name in SEARCHES:
        arrays, description = read_arrays(folder / "state.safetensors", "state")
        description.pop("elapsed_s", None)
        return {n: v for n, v in arrays.items() if n != "rows.time_s"} | {"about": json.dumps(description)}
    if name == "bench":
        return {
            f"{file}.{column}": values.to_numpy()
            for file in ("results", "history")
            for column, values in pd.read_parquet(folder / f"{file}.parquet").items()
        }
    last = sorted(folder.glob("state-*"))[-1]
    log = read_log(folder / "log.csv").drop(columns=["time_s", "seconds"])
    found = {f"log.{column}": values.to_numpy() for column, values in log.items()}
    found |= read_arrays(last, "training")[0] | {"name": last.name}
    for rule in ("rule", "last"):
        found |= {f"{rule}.{n}": v for n, v in read_arrays(folder / f"{rule}.safetensors", "rule")[0].items()}
    return found


def assert_same(name, one, other):
    one, other = content(name, one), content(name, other)
    assert one.keys() == other.keys() != set()
    for key, value in one.items():
        np.testing.assert_array_equal(value, other[key], err_msg=key)


def assert_all_whole(folder):
    """No file under its final name is half of one."""
    for path in folder.rglob("*"):
        if path.name.startswith(".") or path.is_dir():
            continue
        if path.suffix == ".safetensors":
            kind = "piece" if "pieces" in path.parts else KINDS.get(path.stem, "training")
            read_arrays(path, kind)
        elif path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".parquet":
            pd.read_parquet(path)


@pytest.mark.parametrize("how", SIGNALS)
@pytest.mark.parametrize("name", dict.fromkeys([*SEARCHES, *NAMES]))
def test_stopped_at_random_moments(name, how, start, undisturbed, tmp_path, request):
    """And all the while the time of day jumps back and forth."""
    long = request.config.getoption("--long")
    if not long and (how, name) not in [*(("killed", name) for name in NAMES), ("interrupted", "optimize")]:
        pytest.skip("long suite: make test-long; in one process: tests/search/test_interrupted.py")
    expected, (first, end) = undisturbed(name)
    num, seed = (50, random.randrange(2**32)) if long else (5 if how == "killed" else 2, 1)
    rng = random.Random(seed)
    out, hits = tmp_path / "run", 0
    out.mkdir()
    while hits < num:
        process = start(name, out, clock="jumps")
        try:
            process.communicate(timeout=rng.uniform(0.9 * first, first + 2 * (end - first) / num))
        except subprocess.TimeoutExpired:
            process.send_signal(rng.choice(SIGNALS[how]))
            process.communicate(timeout=120)
            hits += 1
        else:
            assert process.returncode == 0, f"seed {seed}"
            assert_same(name, expected, out)
            for path in sorted(out.rglob("*"), reverse=True):  # it was finished: from the beginning
                path.rmdir() if path.is_dir() else path.unlink()
            first, end = 0.8 * first, 0.8 * end  # the machine may be faster than it was
        assert_all_whole(out)
    process = start(name, out)
    errors = process.communicate(timeout=300)[1]
    assert process.returncode == 0, f"seed {seed}: {errors}"
    assert_same(name, expected, out)
    if name != "ask_tell":  # whoever holds a folder clears up in it
        assert not [*out.rglob(f".*{PART}")]


@pytest.mark.parametrize("name", SEARCHES)
def test_exceptions_at_random_calls(name, start, undisturbed, tmp_path, request):
    """One after the other in the same run; each ends it, and it goes on from what it left."""
    long = request.config.getoption("--long")
    if not long and name != "optimize":
        pytest.skip("long suite: make test-long; in one process: tests/search/test_interrupted.py")
    expected, _ = undisturbed(name)
    num, seed = (50, random.randrange(2**32)) if long else (20, 1)
    process = start(name, tmp_path, hiccups=f"{num} {seed}")
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, f"seed {seed}: {errors}"
    assert output.split() == ["hiccups", "left:", "0"], f"seed {seed}"
    assert_same(name, expected, tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_no_room_left(name, start, undisturbed, tmp_path):
    """A limit on the size of files stands for a full disk; what was there before stays, and is gone on from."""
    expected, _ = undisturbed(name)
    size = max(path.stat().st_size for path in expected.rglob("*.safetensors"))
    out = tmp_path / "run"
    out.mkdir()
    process = start(name, out, limit=size // 2)
    errors = process.communicate(timeout=300)[1]
    assert process.returncode != 0
    assert "cannot be written (File too large)" in errors
    if name == "bench":  # a command says it in one line
        assert len(errors.strip().splitlines()) == 1
        assert process.returncode == 2
    assert_all_whole(out)
    assert not [*out.rglob(f".*{PART}")]
    process = start(name, out)
    errors = process.communicate(timeout=300)[1]
    assert process.returncode == 0, errors
    assert_same(name, expected, out)


@pytest.mark.parametrize("name", ["optimize", "bench", "train"])
def test_a_second_process_is_refused_and_a_dead_one_holds_nothing(name, start, undisturbed, tmp_path):
    expected, _ = undisturbed(name)
    out = tmp_path / "run"
    first = start(name, out)
    while not (out / ".lock").exists():
        assert first.poll() is None, first.communicate()
        time.sleep(0.01)
    os.kill(first.pid, signal.SIGSTOP)  # it holds the lock, however slow the second one is
    second = start(name, out)
    errors = second.communicate(timeout=120)[1]
    assert second.returncode != 0
    assert "in use by another process" in errors
    first.kill()
    first.communicate()
    third = start(name, out)
    errors = third.communicate(timeout=300)[1]
    assert third.returncode == 0, errors
    assert_same(name, expected, out)


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_that_cannot_be_written(name, start):
    """Under /proc nothing can be made, not even by the superuser."""
    process = start(name, pathlib.Path("/proc/lqd/run"))
    errors = process.communicate(timeout=120)[1]
    assert process.returncode != 0
    assert "cannot be written" in errors
