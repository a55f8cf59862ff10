"""Memory over many generations on the host: `python benchmarks/memory.py [GENERATIONS]`.

A small search, as little work a generation as possible. Resident memory is printed ten times on the way, and at last
how much it grew since the first tenth, in MB and in kB a generation.
"""

import os
import pathlib
import sys

import numpy as np

import lqd


def resident_mb() -> float:
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main(num_generations: int) -> None:
    seen: list[float] = []
    population_size, batch_size, num_calls = 8, 4, 0

    def evaluate(x):
        nonlocal num_calls
        num_calls += 1
        if num_calls % (num_generations // 10) == 0:
            seen.append(resident_mb())
            print(f"{num_calls:>10,} generations {seen[-1]:>8.1f} MB", flush=True)
        return -np.sum(x**2, axis=1), x[:, :2]

    lqd.optimize(
        evaluate, dim=4, bounds=(-1, 1), rule="ga", population_size=population_size, batch_size=batch_size,
        num_evaluations=population_size + batch_size * num_generations,
    )  # fmt: skip
    grown = seen[-1] - seen[0]
    print(f"grown by {grown:.1f} MB, {1000 * grown / (0.9 * num_generations):.3f} kB a generation")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
