"""The cost model of training, checked on 1, 2 and 4 CPU devices: `python benchmarks/scaling.py`.

The same meta-generations run in a process of their own for each number of devices, every device with one thread, at
equal chunk size. Said of each: seconds per meta-generation and how they split, bytes gathered per device, and whether
the state of the meta-optimiser ended up with the same bits. A machine with C cores can speed up C times at most.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time


def child(num_meta_generations: int) -> None:
    """Runs in the process of its own; prints one line of JSON."""
    import jax
    import numpy as np

    from lqd.meta import generation, initial_weights, presets

    functions = ("sphere", "rastrigin")
    config = presets.override(
        presets.preset("smoke"), {"chunk_size": 4, "num_generations": 64, "functions": functions, "num_tasks": 22}
    )
    stage = config.stages[-1]
    program = generation.Generation(config, stage)
    state = generation.strategy_of(config, stage).init(initial_weights.weights(config))
    states = program.place({name: np.asarray(value) for name, value in state.items()})
    times = []
    for number in range(num_meta_generations):
        begun = time.perf_counter()
        states, _ = jax.block_until_ready(program(states, number))
        times.append(time.perf_counter() - begun)

    def clock(function, *arguments):
        jax.block_until_ready(function(*arguments))
        begun = time.perf_counter()
        for _ in range(5):
            jax.block_until_ready(function(*arguments))
        return (time.perf_counter() - begun) / 5

    arguments = (states[0], np.uint32(0), np.int32(0), np.int32(stage.num_generations))
    shared = program._prepare(*arguments)
    measured = program._run_chunk(shared, np.int32(0), np.int32(stage.num_generations))
    chunks = stage.meta_population_size // program._chunk
    gathered = sum(leaf.size * leaf.dtype.itemsize for leaf in measured.values()) * chunks
    digest = hashlib.sha256(b"".join(np.asarray(states[-1][name]).tobytes() for name in sorted(states[-1])))
    found = {
        "devices": jax.device_count(),
        "seconds": sorted(times[1:])[len(times[1:]) // 2],
        "prepare": clock(program._prepare, *arguments),
        "chunk": clock(program._run_chunk, shared, np.int32(0), np.int32(stage.num_generations)),
        "chunks_per_device": program._num_chunks,
        "bytes": gathered,
        "digest": digest.hexdigest()[:12],
    }
    print(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(description="Training on 1, 2 and 4 CPU devices.")
    parser.add_argument("--num-meta-generations", type=int, default=8)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.num_meta_generations)
        return
    print(f"{os.cpu_count()} cores; M=16 in chunks of 4, K=22, T=64, population 32, batch 16")
    print("devices  s/meta-generation  predicted  chunks each  bytes gathered  state")
    for devices in (1, 2, 4):
        flags = f"--xla_force_host_platform_device_count={devices} --xla_cpu_multi_thread_eigen=false"
        environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "NPROC": "1"}
        command = [sys.executable, __file__, "--child", "--num-meta-generations", str(arguments.num_meta_generations)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        row = json.loads(done.stdout.splitlines()[-1])
        at_once = min(devices, os.cpu_count() or 1)
        predicted = (row["prepare"] + row["chunk"] * row["chunks_per_device"]) * devices / at_once
        print(
            f"{devices:7}  {row['seconds']:17.3f}  {predicted:9.3f}  {row['chunks_per_device']:11}  "
            f"{row['bytes']:14}  {row['digest']}",
            flush=True,
        )


if __name__ == "__main__":
    main()
