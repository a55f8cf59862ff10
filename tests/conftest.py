"""Strict numerics for every test, and compiled programs kept between runs.

Strict dtype promotion turns an unintended float64 or int mix into an error; the compilation cache (ignored by git)
makes the second `make test` much faster than the first.
"""

import gc
import os
import pathlib

import jax
import pytest
import quick

CACHE = pathlib.Path(os.environ.get("LQD_TEST_CACHE", pathlib.Path(__file__).parents[1] / ".cache" / "jax"))

gc.set_threshold(200_000, 20, 100)  # what JAX keeps is looked through less often
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def pytest_addoption(parser):
    parser.addoption("--as-users", action="store_true", help="compile as users do: slower to compile, faster to run")
    parser.addoption("--slow", action="store_true", help="run only the tests marked `slow`")
    parser.addoption("--long", action="store_true", help="compile as users do, and run also the tests marked `long`")


def compiles_as_users(config) -> bool:
    return config.getoption("--as-users") or config.getoption("--long")


def pytest_configure(config):
    if not compiles_as_users(config):
        quick.compile_quickly()


SLOWEST = (
    "test_faults.py",
    "test_train.py",
    "test_readme.py",
    "test_dispatch.py",
)  # first, so that none runs alone last


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: item.path.name not in SLOWEST)
    left_out = {}
    if config.getoption("--slow"):
        config.hook.pytest_deselected(items=[item for item in items if "slow" not in item.keywords])
        items[:] = [item for item in items if "slow" in item.keywords]
    elif not config.getoption("--long"):
        left_out["slow"] = "slow: make test-slow"
    if not config.getoption("--long"):
        left_out["long"] = "long suite: make test-long"
    if not compiles_as_users(config):
        left_out["as_users"] = "compiled as users do: make test-as-users"
    for item in items:
        for mark, reason in left_out.items():
            if mark in item.keywords:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module", autouse=True)
def nothing_compiled_before():
    """What a file compiles does not depend on the files before it in the same process."""
    jax.clear_caches()
