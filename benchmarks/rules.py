"""What one competition costs, rule by rule: `python benchmarks/rules.py`.

Milliseconds per pass, median of many, on random populations of 160 (128 + 32), 1,280 and 8,448 individuals, called one
by one; for 160 and 640 also in a loop inside one program, as in a run (there MAP-Elites finds the cells once, as
descriptors do not change); and the peak memory of a process that runs a few generations with a population of 8,192.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time

RULES = ("ga", "random", "ns", "dns", "me", "lqd-untrained", "lqd-fn")


def make_rule(name: str, population_size: int):
    import lqd

    settings = {"descriptor_bounds": ([0, 0], [1, 1]), "num_cells": population_size} if name == "me" else {}
    return lqd.rule(name, **settings)


def time_pass(name: str, num: int, num_repeats: int) -> float:
    import jax
    import jax.numpy as jnp

    rule = make_rule(name, num * 4 // 5 // 16 * 16)
    competition = jax.jit(lambda rule, key, fitness, descriptor: rule(key, fitness, descriptor))
    populations = []
    for i in range(8):
        key = jax.random.key(i)
        populations.append((key, jax.random.normal(key, (num,)), jax.random.uniform(key, (num, 2), jnp.float32)))
    jax.block_until_ready(populations)
    times = []
    for i in range(num_repeats + 3):
        begun = time.perf_counter()
        jax.block_until_ready(competition(rule, *populations[i % 8]))
        times.append(time.perf_counter() - begun)
    return statistics.median(times[3:]) * 1e3


def time_in_loop(name: str, num: int, num_repeats: int, num_passes: int = 50) -> float:
    """The same inside one program, as in a run: no call is dispatched between passes."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def passes(rule, key, fitness, descriptor):
        def one(i, fitness):
            scores = rule(jax.random.fold_in(key, i), fitness, descriptor)
            return jnp.where(jnp.isfinite(scores), fitness + 1e-6 * scores, fitness)  # the next depends on this one

        return jax.lax.fori_loop(0, num_passes, one, fitness)

    rule, key = make_rule(name, num * 4 // 5 // 16 * 16), jax.random.key(0)
    population = jax.random.normal(key, (num,)), jax.random.uniform(key, (num, 2), jnp.float32)
    times = []
    for _ in range(num_repeats + 1):
        begun = time.perf_counter()
        jax.block_until_ready(passes(rule, key, *population))
        times.append(time.perf_counter() - begun)
    return statistics.median(times[1:]) / num_passes * 1e3


def peak_memory(name: str) -> None:
    """Runs in a process of its own; prints the MiB that a population of 8,192 needs beyond the imports."""
    import lqd

    task = lqd.tasks.make("arm")
    options = {"num_evaluations": 8192 + 4 * 256, "batch_size": 256}
    lqd.optimize(task, rule="ga", population_size=64, num_evaluations=400)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = lqd.optimize(task, rule=make_rule(name, 8192), population_size=8192, **options)
    assert len(result.x) > 0
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{(after - before) / 1024:.0f} {after / 1024:.0f}")


def import_time(module: str) -> float:
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    runs = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout) for _ in range(7)
    ]
    return statistics.median(runs)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory of every rule.")
    parser.add_argument("--memory-of", choices=RULES, help=argparse.SUPPRESS)
    parser.add_argument("--num-repeats", type=int, default=200)
    arguments = parser.parse_args()
    if arguments.memory_of:
        return peak_memory(arguments.memory_of)

    print(f"import jax {import_time('jax'):.2f} s, import jax and lqd {import_time('jax, lqd'):.2f} s")
    sizes = (160, 1280, 8448)
    print(
        f"{'rule':15}{'160 in a loop':>15}{'640 in a loop':>15}"
        + "".join(f"{f'{size:,}':>12}" for size in sizes)
        + f"{'8,192: MiB more':>18}{'in all':>9}"
    )
    for name in RULES:
        repeats = [arguments.num_repeats, arguments.num_repeats // 4, 5]
        times = "".join(f"{time_pass(name, size, num):>9.2f} ms" for size, num in zip(sizes, repeats, strict=True))
        times = "".join(f"{time_in_loop(name, num, 20):>12.2f} ms" for num in (160, 640)) + times
        command = [sys.executable, __file__, "--memory-of", name]
        more, total = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        print(f"{name:15}{times}{more:>18}{total:>9}")


if __name__ == "__main__":
    main()
