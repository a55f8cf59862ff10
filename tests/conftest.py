"""Strict numerics for every test, and compiled programs kept between runs.

Strict dtype promotion turns an unintended float64 or int mix into an error; the compilation cache (ignored by git)
makes the second `make test` much faster than the first.
"""

import contextlib
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
    parser.addoption("--long", action="store_true", help="also run the tests marked `long`")


SLOWEST = (
    "test_faults.py",
    "test_train.py",
    "test_readme.py",
    "test_dispatch.py",
)  # first, so that none runs alone last


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: item.path.name not in SLOWEST)
    if config.getoption("--long"):
        return
    skip = pytest.mark.skip(reason="long suite: make test-long")
    for item in items:
        if "long" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="module")
def quick_compilation(request):
    """In the fast suite programs are compiled quickly, not well."""
    with contextlib.nullcontext() if request.config.getoption("--long") else quick.compilation():
        yield
