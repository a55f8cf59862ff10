"""Slow tests: `make test-long`."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

import lqd

pytestmark = pytest.mark.long
ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.parametrize("rule", ["ga", "random", "ns", "dns", "me", "lqd-untrained"])
def test_a_population_of_8192_stays_below_two_gib(rule):
    command = [sys.executable, str(ROOT / "benchmarks" / "rules.py"), "--memory-of", rule]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    assert int(done.stdout.split()[1]) < 2048


@pytest.mark.parametrize("seed", range(20))
def test_host_and_compiled_give_the_same_bits_whatever_the_sizes(seed):
    generator = np.random.default_rng(seed)
    dim, descriptor_dim = int(generator.integers(1, 6)), int(generator.integers(1, 4))
    mixing = generator.normal(size=(dim, descriptor_dim)).astype(np.float32)
    settings = {
        "dim": dim,
        "bounds": (-1, 2),
        "rule": str(generator.choice(["ga", "random", "ns", "dns", "me"])),
        "population_size": int(generator.integers(1, 40)),
        "batch_size": int(generator.integers(1, 20)),
        "descriptor_bounds": (-5, 5),
        "archive_cells": int(generator.integers(1, 30)),
        "seed": seed,
    }
    budget = settings["population_size"] + 15 * settings["batch_size"]

    def evaluate(x):
        # One operation each, so that NumPy and a compiler have nothing to round differently.
        return x[:, 0] * np.float32(0.5), x[:, :1] * mixing[0]

    host, compiled = (
        lqd.optimize(evaluate, backend=backend, num_evaluations=budget, **settings) for backend in ("host", "jax")
    )
    for part in ("population", "best", "archive"):
        np.testing.assert_array_equal(getattr(host, part).x, getattr(compiled, part).x)
        np.testing.assert_array_equal(getattr(host, part).fitness, getattr(compiled, part).fitness)


def test_memory_stays_flat_over_100_000_generations_on_the_host():
    command = [sys.executable, str(ROOT / "benchmarks" / "memory.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000, check=True)
    assert float(done.stdout.split("grown by ")[1].split()[0]) < 100, done.stdout
