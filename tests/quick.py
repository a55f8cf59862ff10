"""How the fast suite compiles: without optimisations, and with those settings of XLA that make small programs fastest.

Half of the suite's time is the compiler's. The long suite compiles as users do.
"""

import contextlib
import os

import jax
import pytest

# Settings come and go with versions, and an unknown one is an error.
SETTINGS = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
if jax.__version_info__[:2] != (0, 10):
    SETTINGS = {}
FLAGS = " ".join(f"--{name}={str(value).lower()}" for name, value in SETTINGS.items())  # for processes of their own


@contextlib.contextmanager
def compilation():
    """Nothing compiled before is used, so that equal programs give equal bits."""
    from jax._src import compiler

    original = compiler.get_compile_options

    def options(*args, env_options_overrides=None, **given):
        return original(*args, env_options_overrides=SETTINGS | (env_options_overrides or {}), **given)

    jax.clear_caches()
    jax.config.update("jax_disable_most_optimizations", True)
    with pytest.MonkeyPatch.context() as patch:
        if SETTINGS:
            patch.setattr(compiler, "get_compile_options", options)
        yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()


def environment(is_long: bool, num_devices: int = 1) -> dict[str, str]:
    """Of a process on so many CPU devices, as strict as the suite and compiling as the suite does."""
    return os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={num_devices} {'' if is_long else FLAGS}",
        "JAX_NUMPY_DTYPE_PROMOTION": "strict",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": str(not is_long),
        "JAX_COMPILATION_CACHE_DIR": str(jax.config.jax_compilation_cache_dir),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
