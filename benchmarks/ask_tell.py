"""What one `ask` and `tell` costs beside the evaluation, side by side with pyribs: `python benchmarks/ask_tell.py`.

Population 128, batches of 32, 8 dimensions, 2 descriptors, a function that costs nothing. Ours and pyribs's take turns,
in pieces of 50 calls, so that whatever else the machine does hits all; medians over the pieces, compilation apart.
pyribs: `IsoLineEmitter` on a `CVTArchive` of 128 cells, with its k-d tree.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

import lqd

DIM, SIZE, BATCH, PIECE = 8, 128, 32, 50


def function(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return -(x**2).sum(axis=1), x[:, :2]


def ours(rule: str, variation: str) -> Callable[[], None]:
    search = lqd.AskTell(
        dim=DIM, bounds=(-1, 1), descriptor_bounds=(-1, 1), rule=rule, variation=variation, population_size=SIZE,
        batch_size=BATCH,
    )  # fmt: skip

    def step() -> None:
        x = search.ask()
        search.tell(x, *function(x))

    return step


def pyribs() -> Callable[[], None]:
    from ribs.archives import CVTArchive
    from ribs.emitters import IsoLineEmitter
    from ribs.schedulers import Scheduler

    archive = CVTArchive(solution_dim=DIM, centroids=SIZE, ranges=[(-1, 1)] * 2, samples=10_000, seed=0)
    emitter = IsoLineEmitter(archive, x0=np.zeros(DIM), iso_sigma=0.05, line_sigma=0.1, batch_size=BATCH, seed=0)
    scheduler = Scheduler(archive, [emitter])
    return lambda: scheduler.tell(*function(scheduler.ask()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pieces", type=int, default=15)
    pieces = parser.parse_args().pieces
    entries = {
        f"{rule}, variation={variation!r}": ours(rule, variation)
        for rule in ("dns", "lqd-fn")
        for variation in ("paper", "spread")
    } | {"pyribs, iso-line on a CVT archive": pyribs()}
    times: dict[str, list[float]] = {name: [] for name in entries}
    for piece in range(pieces + 1):
        for name, step in entries.items():
            begun = time.perf_counter()
            for _ in range(PIECE):
                step()
            if piece:  # the first one compiles
                times[name].append((time.perf_counter() - begun) / PIECE * 1e3)
    theirs = statistics.median(times[name := list(entries)[-1]])
    print(f"{'':38}{'ms':>8}{'to pyribs':>11}")
    for name, measured in times.items():
        median = statistics.median(measured)
        print(f"{name:38}{median:8.3f}{median / theirs:11.2f}   {min(measured):.3f} to {max(measured):.3f}")


if __name__ == "__main__":
    main()
