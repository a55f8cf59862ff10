"""Anything goes in, a right answer or one of our own errors comes out. Hundreds of cases, thousands with `--long`.

Three seeded fuzzers: files with damaged bytes and strange but well-formed content, arguments and answers of searches,
and flags on the command line. An exception of any other kind, or a NaN in a ranking, is a failure that names its seed.
"""

import datetime
import decimal
import fractions
import json
import pathlib
import random
import signal
import struct
import warnings
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import safetensors.numpy

import lqd
from lqd import cli
from lqd.bench import claims, generalisation, second, suites
from lqd.bench.results import Folder
from lqd.cli import bench, demo, figure, flags, imitate, report, rerun, run, seeds, show, train
from lqd.errors import InvalidInput
from lqd.io import files
from lqd.meta import trainer

pool = ThreadPoolExecutor(2)


class Reached(Exception):
    """All checks were passed: from here on it would run."""


@pytest.fixture(scope="module")
def num(request):
    """Cases of each fuzzer."""
    return 3000 if request.config.getoption("--long") else 120


# Files


def a_rule(path):
    return lqd.load(str(path))


def a_result(path):
    return lqd.Result.load(path).to_dataframe()


def a_state(path):
    search = lqd.AskTell.load(path)
    return search.ask()


GIVEN = {"dim": 2, "bounds": (0, 1), "population_size": 4, "batch_size": 2, "num_evaluations": 12, "rule": "dns"}


def on_host(x):
    return x[:, 0], x, {"e": x[:, 1]}


def a_kept_run(path, backend="host", function=on_host):
    (path.parent / "kept").mkdir(exist_ok=True)
    (path.parent / "kept" / "state.safetensors").write_bytes(path.read_bytes())
    return lqd.optimize(function, checkpoint=path.parent / "kept", resume=True, backend=backend, **GIVEN)


def a_kept_compiled_run(path):
    return a_kept_run(path, "jax", compiled)


@jax.jit
def compiled(x):
    return x[:, 0], x


def a_manifest(path):
    return Folder(path.parent)


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A whole file of each kind, and what reads it."""
    folder = tmp_path_factory.mktemp("originals")
    rule = lqd.rule("lqd-untrained", num_layers=1, num_features=4, num_heads=2)
    lqd.save_rule(folder / "rule.safetensors", rule, {"title": "x"})
    search = lqd.AskTell(dim=2, bounds=(0, 1), population_size=4, batch_size=2, rule="dns")
    for _ in range(4):
        x = search.ask()
        search.tell(x, x[:, 0], x, {"e": x[:, 1]})
    search.ask()  # on its way
    search.save(folder / "state.safetensors")
    search.result().save(folder / "result.safetensors")
    suites_manifest = {"suites": ["pareto"], "preset": "quick", "num_seeds": None, "made": {}, "parts": {}}
    (folder / "manifest.json").write_text(json.dumps(suites_manifest))
    for name, function in (("host", on_host), ("jax", compiled)):
        lqd.optimize(function, checkpoint=folder / name, backend=name, **GIVEN)
        (folder / name / "state.safetensors").rename(folder / f"{name}.safetensors")
    readers = {"rule": a_rule, "state": a_state, "result": a_result, "manifest": a_manifest}
    readers |= {"host": a_kept_run, "jax": a_kept_compiled_run}
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    return [(path.name, path.read_bytes(), readers[path.stem]) for path in paths]


def damaged(rng: random.Random, content: bytes) -> bytes:
    content = bytearray(content)
    how = rng.choice(["flip", "cut", "insert", "zero", "length", "swap"])
    place = rng.randrange(len(content))
    if how == "flip":
        for _ in range(rng.choice([1, 3, 50])):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    elif how == "cut":
        del content[place:]
    elif how == "insert":
        content[place:place] = rng.randbytes(rng.choice([1, 7, 4096]))
    elif how == "zero":
        content[place : place + 64] = bytes(64)[: len(content) - place]
    elif how == "length":
        content[:8] = struct.pack("<Q", rng.choice([0, 1, 2**20, 2**40, 2**63, len(content), rng.randrange(2**16)]))
    else:
        other = rng.randrange(len(content))
        content[place], content[other] = content[other], content[place]
    return bytes(content)


ODD = [None, True, 0, -1, 1, 2**31, 2**70, 1e308, float("nan"), float("inf"), "", "x", "../../etc/passwd", "</script>"]
ODD += [[], [[]], {}, {"a": 1}, [1, 2], "a" * 5000, "\x00", "dns", "me"]


def strange(rng: random.Random, value):
    """The same JSON with something in it that is not what it should be."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(sorted(value))
        what = rng.random()
        if what < 0.1:
            return {key: item for key, item in value.items() if key != name}
        if what < 0.15:
            return value | {f"{name}x": 1}
        return value | {name: strange(rng, value[name])}
    if isinstance(value, list) and value and rng.random() < 0.7:
        place = rng.randrange(len(value))
        return [*value[:place], strange(rng, value[place]), *value[place + 1 :]]
    return rng.choice(ODD)


def well_formed_but_strange(rng: random.Random, name: str, content: bytes) -> bytes:
    """Checksums and all: what somebody might make on purpose."""
    if name.endswith(".json"):
        return json.dumps(strange(rng, json.loads(content))).encode()
    size = struct.unpack("<Q", content[:8])[0]
    metadata = json.loads(content[8 : 8 + size])["__metadata__"]
    arrays = dict(safetensors.numpy.load(content))
    description = json.loads(metadata["description"])
    if rng.random() < 0.5:
        description = strange(rng, description)
    else:
        key = rng.choice(sorted(arrays))
        value = arrays[key]
        arrays[key] = rng.choice(
            [
                value.astype(np.float64),
                np.atleast_1d(value)[:0],
                value.ravel(),
                np.zeros(3, np.float32),
                value[None],
                value.astype(bool),
            ]
        )
        if rng.random() < 0.3:
            del arrays[key]
    text = json.dumps(description, sort_keys=True)
    metadata |= {"description": text, "sha256": files._digest(arrays, text)}
    return safetensors.numpy.save(arrays, metadata)


@pytest.mark.parametrize("kind", ["damaged", "strange"])
def test_files(originals, kind, num, tmp_path):
    num_refused = 0
    for seed in range(num):
        rng = random.Random(seed)
        name, content, read = originals[seed % len(originals)]
        content = damaged(rng, content) if kind == "damaged" else well_formed_but_strange(rng, name, content)
        (tmp_path / name).write_bytes(content)
        try:
            read(tmp_path / name)
        except InvalidInput:
            num_refused += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}: {name}") from error
    assert num_refused > 0.3 * num
    assert {path.name for path in tmp_path.iterdir()} <= {"kept", *(name for name, *_ in originals)}


# Searches

ARGUMENTS = {
    "dim": [1, 2, 3],
    "bounds": [None, (0, 1), (-1e-3, 1e6), ([0, 0], [1, 1])],
    "rule": ["ga", "random", "ns", "dns", "me"],
    "population_size": [1, 2, 8],
    "batch_size": [1, 4],
    "variation": ["spread", "spread", "led", "paper"],
    "outside": ["edge", "free"],
    "iso_sigma": [0.0, 0.1],
    "line_sigma": [0.0, 0.1],
    "x0": [None, [0.5], [[0.5, 0.5]], [0.5, 0.5, 0.5]],
    "init_sigma": [None, 0.1],
    "descriptor_bounds": [None, (0, 1), ([0, 0], [1, 1]), ([0], [1])],
    "minimize": [False, True],
    "on_nan": ["eliminate", "raise"],
    "archive_cells": [None, 3],
    "qd_offset": [None, 0.0],
    "seed": [0, 2**32 - 1],
}
NUMBERS = [0.0, -0.0, 1.0, 1e-45, 1e-38, 1e30, -1e30, 3e38, np.nan, -np.inf, 1e8, 1e8 + 1]
BEYOND = [1e39, 1e300, np.inf]  # as fitness: an error
DTYPES = [np.float32, np.float64, np.float16, np.int64, np.int8, bool, object, complex, "U3"]


def an_array(rng: random.Random, shape):
    choices = NUMBERS + (BEYOND if rng.random() < 0.05 else [])
    values = np.array([rng.choice(choices) if rng.random() < 0.3 else rng.gauss(0, 1) for _ in range(np.prod(shape))])
    values = values.reshape(shape)
    if rng.random() < 0.05:
        values = np.nan_to_num(values, posinf=9, neginf=-9).clip(-9, 9).astype(rng.choice(DTYPES))
    if rng.random() < 0.1:
        values = np.asfortranarray(values)
    return values[..., None] if rng.random() < 0.01 else values


@pytest.mark.filterwarnings("ignore:fitness has .* different values, of which single precision distinguishes")
@pytest.mark.filterwarnings("ignore:descriptor .* now spreads over")
def test_searches(num):
    num_ran, num = 0, num // 2  # these compile
    for seed in range(num):
        rng = random.Random(seed)
        given = {name: rng.choice(choices) for name, choices in ARGUMENTS.items() if rng.random() < 0.5}
        given = {"dim": 2, "population_size": 8, "batch_size": 4} | given
        if rng.random() < 0.3:
            given[rng.choice(sorted(ARGUMENTS))] = rng.choice([*ODD, np.array(2), np.nan, object()])
        try:
            with np.errstate(all="ignore"):
                search = lqd.AskTell(**given)
                descriptor_dim = rng.choice([1, 2, 8])
                for _ in range(6):
                    x = search.ask()
                    assert np.isfinite(x).all()
                    search.tell(x, an_array(rng, (len(x),)), an_array(rng, (len(x), descriptor_dim)))
                result = search.result()
            assert not np.isnan(result.fitness).any()
            assert np.isfinite(result.x).all()
            assert np.isfinite(result.descriptor).all()
            order = result.fitness if given.get("minimize") else -result.fitness
            assert (np.diff(order) >= 0).all()
            num_ran += 1
        except InvalidInput:
            pass
        except Exception as error:
            raise AssertionError(f"seed {seed}: {given}") from error
    assert num_ran > 0.1 * num


class Hostile:
    """Not what it says that it is."""

    def __init__(self, what):
        self.what = what

    def __repr__(self):
        raise RuntimeError("no words")

    def __float__(self):
        raise RuntimeError("no number")

    def __iter__(self):
        return iter((self, self))

    def __len__(self):
        return 2

    def __eq__(self, other):
        raise RuntimeError("not to be compared")

    __hash__ = None


def hostile(rng: random.Random):
    """Anything but what an argument should be, made anew each time."""
    number = rng.choice([0, 1, -1, 2, 2**24, 2**31, 2**32, 2**63, 10**400, 10**5000, 0.5, 1e39, 1e308, 5e-324])
    choices = [
        *ODD, number, -number, np.nan, -np.inf, 1j, np.float32("nan"), np.int64(3), np.bool_(True), b"x", object(),
        Hostile("x"), Hostile, lambda: 1, lambda *_: None, print, range(2), {1, 2}, {}, {"low": 0, "high": 1},
        (0, 1, 2), (1, 0), (0, 0), (None, None), ("0", "1"), ((0, 0), (1, 1)), ([0], [1]), ([0, 0], [1, np.nan]),
        (0, [1, 1]), ([[0, 1], [0, 1]]), (Hostile("low"), 1), np.zeros(0), np.zeros((2, 0)), np.zeros((2, 2, 2)),
        np.array(["0", "1"]), np.array([0, 1], object), np.array([None, None]), np.zeros((2, 2), "M8[s]"),
        np.ma.array([0.0, 1.0], mask=[0, 1]), np.ma.masked, pd.DataFrame([[0, 0], [1, 1]]), pd.Series([0, 1]),
        pd.Series([0, None]), pd.Timestamp(0), iter((0, 1)), (n for n in (0, 1)), jnp.arange(2.0), jax.random.key(0),
        jnp.zeros((2, 2), jnp.bfloat16), float, np.dtype("f4"), pathlib.Path("none.safetensors"), "ga", "lqd-f", "jax",
        "none.safetensors", lqd.rule("ga"), lqd.tasks.make("arm"), ValueError("x"), Ellipsis, NotImplemented,
        memoryview(b"01"),
        decimal.Decimal(1), fractions.Fraction(1, 3), datetime.timedelta(1), [[[]]], [1, [2, 3]], [np.ma.masked, 1],
    ]  # fmt: skip
    return rng.choice(choices)


def host_answer(rng: random.Random):
    """An evaluate that mostly answers as it should."""
    odd, what = rng.random() < 0.2, hostile(rng)

    def evaluate(x):
        fitness, descriptor, extras = -(x**2).sum(axis=1), x[:, :2], {"e": x[:, 0]}
        if odd:
            fitness, descriptor, extras = rng.choice([
                (what, descriptor, extras), (fitness, what, extras), (fitness, descriptor, what),
                (fitness, descriptor, {"e": what}), ([what] * len(x), descriptor, extras),
                (fitness, descriptor, {"e": [what] * len(x)}),
            ])  # fmt: skip
        return what if odd and rng.random() < 0.1 else (fitness, descriptor, extras)

    return evaluate


HOSTILE = [*ARGUMENTS, "num_evaluations", "callback", "backend", "reproduction", "time_limit_s", "executor"]
HOSTILE += ["steady_state", "checkpoint", "resume", "recheck", "evaluate"]
SECONDS = 60  # after which a case counts as one that hangs


def too_long(*_):
    raise AssertionError(f"it hangs: more than {SECONDS} s")


def hostile_case(seed: int, folder: pathlib.Path) -> bool:
    """Whether it ran; anything but a right result or an error of ours is an exception."""
    rng = random.Random(seed)
    given = {"evaluate": host_answer(rng), "dim": 2, "bounds": (-1, 2), "population_size": 4, "batch_size": 2}
    given |= {"num_evaluations": 10, "rule": "ga", "backend": "host", "time_limit_s": 1}  # a budget may be huge
    if rng.random() < 0.2:
        given |= {"checkpoint": folder / f"run-{seed % 50}", "resume": True}
    if rng.random() < 0.2:
        given["executor"] = pool
    elif rng.random() < 0.03:  # these compile
        given["backend"] = "jax"
    changed = rng.sample(HOSTILE, rng.choice([0, 1, 1, 1, 2, 3]))
    given |= {name: hostile(rng) for name in changed}
    try:
        result = lqd.optimize(**given)
    except (InvalidInput, lqd.EvaluationFailed) as error:
        if not 10 < len(str(error)) < 2000:
            raise AssertionError("nobody can read that") from error
        return False
    low, high = result.info["bounds"] or (-np.inf, np.inf)
    assert ((result.x >= low) & (result.x <= high)).all()
    assert np.isfinite(result.fitness).all()
    assert np.isfinite(result.descriptor).all()
    assert len(result.x) <= result.info["population_size"]
    if "bounds" not in changed and not isinstance(given["evaluate"], lqd.tasks.Task):
        np.testing.assert_array_equal([np.max(low), np.min(high)], [-1, 2])
    return True


def test_hostile_arguments_of_optimize(num, tmp_path, monkeypatch):
    """One or several arguments of a plain run are anything: a right answer, or an error of ours that can be shown."""
    monkeypatch.chdir(tmp_path)
    before, num_ran = signal.signal(signal.SIGALRM, too_long), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(num):
            signal.alarm(SECONDS)
            try:
                num_ran += hostile_case(seed, tmp_path)
            except Exception as error:
                raise AssertionError(f"seed {seed}") from error
            finally:
                signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    assert 0.1 * num < num_ran < 0.9 * num


# The command line

WORDS = [
    "",
    "0",
    "-1",
    "1",
    "3",
    "1e3",
    "nan",
    "inf",
    "x",
    "arm",
    "dns",
    "lqd-f",
    "bbob/sphere",
    "bbob/99",
    "/proc/x",
    "None",
]
WORDS += ["../x", "true", "9" * 30, "quick", "smoke", "pareto", "claims", "fitness", "é", "sphere", "rule.safetensors"]


def flags_of(command: str) -> list[str]:
    fields = {
        "run": run.Run,
        "train": train.Train,
        "imitate": imitate.Imitate,
        "bench": bench.Bench,
        "figure": figure.Figure,
    }
    fields |= {"report": report.Report, "rerun": rerun.Rerun, "show": show.Show, "demo": demo.Demo}
    names = [field.name.replace("_", "-") for _, field in flags.flat(fields[command])]
    return [f"--{name}" for name in names]


def test_the_command_line(num, tmp_path, monkeypatch, capsys):
    def reached(*_, **__):
        raise Reached

    monkeypatch.chdir(tmp_path)
    for module, name in ((seeds, "run_seeds"), (seeds, "anchors_of"), (trainer, "run"), (suites, "run")):
        monkeypatch.setattr(module, name, reached)
    for module in (claims, generalisation, second):
        monkeypatch.setattr(module, "run", reached)
    monkeypatch.setattr(rerun, "rerun", rerun.rerun)
    outcomes = {"ran": 0, "refused": 0}
    for seed in range(num):
        rng = random.Random(seed)
        command = rng.choice(["run", "train", "imitate", "bench", "figure", "report", "rerun", "show", "demo"])
        known = flags_of(command)
        given = rng.sample(known, min(rng.randrange(4), len(known)))
        words = [command, *(word for flag in given for word in (flag, rng.choice(WORDS)))]
        words += [rng.choice(WORDS) for _ in range(rng.choice([0, 0, 1, 2]))]
        status = None
        try:
            cli.main(words)
        except Reached:
            pass
        except SystemExit as end:
            status = end.code
        except Exception as error:
            raise AssertionError(f"seed {seed}: {words}") from error
        said = capsys.readouterr().err
        assert status in (None, 0, 1, 2), f"seed {seed}: {words}"
        assert "Traceback" not in said
        assert not status or said.strip(), f"seed {seed}: {words}"
        outcomes["refused" if status else "ran"] += 1
    assert min(outcomes.values()) > 0
