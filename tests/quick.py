"""How the fast suite compiles: without optimisations, and with those settings of XLA that make small programs fastest.

Half of the suite's time is the compiler's. Everything goes by the environment, so that the processes that tests start
compile alike. With `--as-users` or `--long` nothing is set.
"""

import os

import jax

# Settings come and go with versions, and an unknown one ends the process.
SETTINGS = ("--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1")
if jax.__version_info__[:2] != (0, 10):
    SETTINGS = ()


def compile_quickly() -> None:
    """From now on, if nothing has been compiled yet: XLA reads its settings once."""
    given = os.environ.get("XLA_FLAGS", "").split()
    os.environ["XLA_FLAGS"] = " ".join(dict.fromkeys((*given, *SETTINGS)))
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"
    jax.config.update("jax_disable_most_optimizations", True)


def environment(num_devices: int = 1) -> dict[str, str]:
    """Of a process on so many CPU devices, as strict as the suite and compiling as the suite does."""
    devices = f"--xla_force_host_platform_device_count={num_devices}"
    return os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {devices}",
        "JAX_NUMPY_DTYPE_PROMOTION": "strict",
        "JAX_COMPILATION_CACHE_DIR": str(jax.config.jax_compilation_cache_dir),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
