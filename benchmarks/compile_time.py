"""How long the programs of learned rules take to compile for an H200, on a machine that need not have one.

    pip install jax-cuda12-plugin jax-cuda12-pjrt nvidia-cuda-nvcc-cu12   # of jax's own version; no GPU, no driver
    python benchmarks/compile_time.py --recipes 1 2 3 --sizes 160 256
    python benchmarks/compile_time.py --tasks bbob-wide --recipes 3

The first line compiles the fused kernel alone, the second a training's runs on a family of tasks. JAX compiles ahead of
time for a described device; only what XLA finds out by trying (autotuning) is left out. Seconds on the clock and of the
processor: programs are compiled one after the other, each by several threads, so the first depend on the machine.
"""

import argparse
import functools
import shutil
import time
import warnings

import jax
import jax.numpy as jnp

from lqd.meta import families, generation, presets
from lqd.rules.learned import dispatch, network
from lqd.rules.learned.network import Architecture
from lqd.rules.learned.pallas import recipe1, recipe2

H200 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  shared_memory_per_block: 49152 shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000 l2_cache_size: 62914560 clock_rate_ghz: 1.98 device_memory_size: 150000000000
  cuda_compute_capability { major: 9 minor: 0 }
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 8 }
device_description_str: "NVIDIA H200"
"""
HAS_GPU = shutil.which("nvidia-smi") is not None
NUM_RULES, NUM_POPULATIONS = 64, 44


def target():
    """Where programs are compiled for: the GPU that there is, or one of which there is only the description."""
    if HAS_GPU:
        return jax.sharding.SingleDeviceSharding(jax.devices()[0])
    from jax.experimental import topologies

    described = topologies.get_topology_desc("h200", "cuda", topology="1x1x1", target_config=H200)
    return jax.sharding.SingleDeviceSharding(described.devices[0])


def without_driver() -> None:
    """Lets the plugin be loaded where it finds no driver: nothing is run."""
    jax.config.update("jax_platforms", "cpu")
    try:
        import jax_plugins.xla_cuda12 as plugin
    except ImportError:
        raise SystemExit("compile_time.py needs the packages of its first lines, of jax's own version.") from None
    plugin._check_cuda_versions = lambda *_, **__: None
    network.on_gpu = lambda: True
    dispatch._compiles = lambda recipe: True


def compiled(name: str, function, where, *arguments) -> None:
    program = jax.jit(function, in_shardings=where, out_shardings=where)
    begun = time.perf_counter()
    lowered = program.lower(*arguments)
    traced, worked = time.perf_counter(), time.process_time()
    lowered.compile()
    seconds, processor = time.perf_counter() - traced, time.process_time() - worked
    print(f"{name:44} traced {traced - begun:5.1f} s   compiled {seconds:5.1f} s, {processor:5.1f} s of the processor")


def kernel(recipe: int, size: int):
    """The fused kernel and its arguments."""
    architecture = Architecture(recipe=recipe)
    fused = recipe1.fused if recipe == 1 else recipe2.fused

    def run(params, x, filled):
        packed = jax.vmap(lambda params: dispatch.pack(params, architecture.num_heads)[0])(params)
        about = {"num_features": architecture.num_features, "num_heads": architecture.num_heads}
        return fused(packed, x, filled, **about, exact=False, interpret=False)

    init = jax.vmap(functools.partial(network.init_params, architecture=architecture))
    params = jax.eval_shape(lambda: init(jax.random.split(jax.random.key(0), NUM_RULES)))
    x = jax.eval_shape(lambda: network.features(jnp.zeros(size), jnp.zeros((size, 2)), recipe))
    shape = NUM_RULES, NUM_POPULATIONS
    filled = jax.ShapeDtypeStruct((*shape, size), bool)
    return run, params, jax.ShapeDtypeStruct((*shape, *x.shape), jnp.float32), filled


def runs(recipe: int, tasks: str):
    """A training's runs on a family of tasks, and their arguments."""
    config = presets.override(presets.preset("small"), {"recipe": recipe, "tasks": tasks})
    (family,), [stage] = config.families, config.stages
    flat = jax.ShapeDtypeStruct((stage.meta_population_size, generation.num_params(config.architecture)), jnp.float32)
    about = jnp.uint32(0), jnp.int32(0), jnp.int32(8320)
    prepared = jax.eval_shape(lambda flat: generation._with_tasks(config, stage, 0, family, flat, *about), flat)
    number = jax.ShapeDtypeStruct((), jnp.int32)
    return functools.partial(generation.run_chunk.__wrapped__, config, config.chunk_size), prepared, number, number


def main() -> None:
    parser = argparse.ArgumentParser(description="Seconds to compile for an H200.")
    parser.add_argument("--recipes", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--sizes", type=int, nargs="+", default=[160])
    parser.add_argument("--tasks", choices=families.names())
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if not HAS_GPU:
        without_driver()
    where = target()
    for recipe in given.recipes:
        if given.tasks:
            compiled(f"runs of recipe {recipe} on {given.tasks}", *_first(runs(recipe, given.tasks), where))
            continue
        for size in given.sizes:
            compiled(f"kernel of recipe {recipe}, {size} individuals", *_first(kernel(recipe, size), where))


def _first(call, where):
    function, *arguments = call
    return function, where, *arguments


if __name__ == "__main__":
    main()
