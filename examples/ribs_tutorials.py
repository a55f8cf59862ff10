"""pyribs's sphere and arm with a learned rule in place of its archive: `python examples/ribs_tutorials.py`.

Two problems from pyribs's tutorials: the sphere with a linear projection as measures, searched by CMA-ME's improvement
emitters, and the repertoire of a planar arm, searched by iso-line variation. Only the archive differs; the result
archive, a grid, sees every solution, so its numbers can be compared with other runs. Emitters, scheduler and plots are
pyribs's. Needs `pip install 'lqd[ribs]' 'ribs[visualize]'`; takes a minute on two CPU cores.
"""

import argparse
import pathlib

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
from ribs.archives import GridArchive
from ribs.emitters import EvolutionStrategyEmitter, IsoLineEmitter
from ribs.schedulers import Scheduler
from ribs.visualize import grid_archive_heatmap, parallel_axes_plot, proximity_archive_plot

from lqd.integrations.ribs import LQDArchive

CAPACITY = 256


def sphere(solutions):
    """100 at the optimum, which is 2.048 in every dimension; the measures are sums of clipped halves."""
    best, worst = 5.12 * 0.4, -5.12
    distance = np.sum((solutions - best) ** 2, axis=1)
    objective = 100 * (1 - distance / (solutions.shape[1] * (worst - best) ** 2))
    clipped = np.where(np.abs(solutions) <= 5.12, solutions, 5.12 / solutions)
    half = solutions.shape[1] // 2
    return objective, np.stack([clipped[:, :half].sum(axis=1), clipped[:, half:].sum(axis=1)], axis=1)


def arm(solutions):
    """Joint angles that vary little are good; the measures are where the hand is."""
    angles = np.cumsum(solutions, axis=1)
    return -np.var(solutions, axis=1), np.stack([np.cos(angles).sum(axis=1), np.sin(angles).sum(axis=1)], axis=1)


def run(evaluate, dim: int, half_width: float, worst: float, make_emitters, rule: str, num_iterations: int):
    """The archive, and the grid that saw everything."""
    ranges = [(-half_width, half_width)] * 2
    archive = LQDArchive(
        solution_dim=dim, measure_dim=2, capacity=CAPACITY, rule=rule, ranges=ranges, qd_score_offset=worst, seed=0
    )
    seen = GridArchive(solution_dim=dim, dims=(50, 50), ranges=ranges, qd_score_offset=worst, seed=0)
    scheduler = Scheduler(archive, make_emitters(archive), result_archive=seen)
    for _ in range(num_iterations):
        scheduler.tell(*evaluate(scheduler.ask()))
    return archive, seen


def cma_me(archive):
    dim = archive.solution_dim
    given = {"x0": np.zeros(dim), "sigma0": 0.5, "ranker": "2imp", "batch_size": 36, "bounds": [(-10.24, 10.24)] * dim}
    return [EvolutionStrategyEmitter(archive, seed=i, **given) for i in (0, 1)]


def iso_line(archive):
    given = {"x0": np.zeros(archive.solution_dim), "iso_sigma": 0.1, "line_sigma": 0.2, "batch_size": 36}
    return [IsoLineEmitter(archive, seed=i, **given) for i in (0, 1)]


TASKS = {
    "sphere": (sphere, 20, 10 * 5.12, 0.0, cma_me),
    "arm": (arm, 12, 12.0, -(np.pi**2), iso_line),
}


def main(arguments=None) -> dict:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rule", default="lqd-fn")
    parser.add_argument("--num-iterations", type=int, default=400)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("ribs-tutorials"))
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, task in TASKS.items():
        archive, seen = found[name] = run(*task, given.rule, given.num_iterations)
        print(
            f"{name}: {len(archive)} solutions; grid: coverage {100 * seen.stats.coverage:.1f} %, "
            f"QD score {seen.stats.norm_qd_score:.3g}, best {seen.stats.obj_max:.4g}"
        )
        figure, axes = plt.subplots(1, 3, figsize=(15, 4.2), layout="constrained")
        proximity_archive_plot(archive, ax=axes[0])
        grid_archive_heatmap(seen, ax=axes[1])
        parallel_axes_plot(archive, ax=axes[2])
        for ax, title in zip(axes, (f"archive of {given.rule}", "everything seen", "measures"), strict=True):
            ax.set_title(f"{name}: {title}")
        figure.savefig(given.out / f"{name}.png", dpi=80)
        plt.close(figure)
        print(f"Wrote {given.out / f'{name}.png'}")
    return found


if __name__ == "__main__":
    main()
