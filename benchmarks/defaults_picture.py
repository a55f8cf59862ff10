"""The first picture of the README: `python benchmarks/defaults_picture.py`, a minute on two CPU cores.

Everything that four searches evaluated on one of the quoted problems of `benchmarks/defaults.py`, out of the box: in
each cell the best solution seen. Seed 0 of each; the tables in the docs have all seeds and problems.
"""

import contextlib
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import defaults
from matplotlib.figure import Figure
from problems import QUOTED

OUT = pathlib.Path(__file__).parents[1] / "docs" / "images" / "heat-sinks.png"
PROBLEM, BUDGET, SEED = "heat sink", 2000, 0
SEARCHES = {
    "random": "random sampling",
    "qdax": "MAP-Elites (QDax)",
    "cma-me": "CMA-ME (pyribs)",
    "lqd": "lqd.optimize",
}


def found(algorithm: str) -> defaults.Measured:
    measured = defaults.Measured(QUOTED[PROBLEM], BUDGET, SEED)
    with contextlib.suppress(defaults.Done):
        defaults.EVERYBODY[algorithm](measured, SEED)
    return measured


def main() -> None:
    figure = Figure(figsize=(12, 3.5), layout="constrained")
    axes = figure.subplots(1, len(SEARCHES), sharex=True, sharey=True)
    (low, high), image = QUOTED[PROBLEM].ranges, None
    searches = [found(algorithm) for algorithm in SEARCHES]
    values = np.concatenate([one.cells[np.isfinite(one.cells)] for one in searches])
    for ax, title, measured in zip(axes, SEARCHES.values(), searches, strict=True):
        cells = np.where(np.isfinite(measured.cells), measured.cells, np.nan).reshape(measured.side, measured.side)
        image = ax.imshow(
            cells.T, origin="lower", extent=(low[0], high[0], low[1], high[1]), aspect="auto",
            vmin=values.min(), vmax=values.max(), interpolation="nearest",
        )  # fmt: skip
        scores = measured.scores()
        ax.set_title(f"{title}\n{int(np.isfinite(cells).sum()):,} cells, QD score {scores['qd_score']:,.0f}")
        ax.set_xlabel("mass (kg)")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("width (m)")
    figure.colorbar(image, ax=axes, label="performance\n(-log10 of resistance)", pad=0.01)
    figure.savefig(OUT, dpi=150)
    print(f"Wrote {OUT}")


if __name__ == "__main__":
    main()
