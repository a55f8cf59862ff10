"""The tables of `benchmarks/defaults.py`: what its pieces say, with tests, as Markdown.

    python benchmarks/defaults_tables.py --half quoted > results/defaults/quoted.md

Compared is the mean over seeds, always with the best of the opponents on that problem and budget, whichever it is. p is
of the Mann-Whitney test against that one (exact, two-sided), with Holm's correction over all rows; delta is Cliff's: 1
where each of our seeds is better than each of theirs, -1 where each is worse. The opponent is the best of five on the
same seeds, so both err on its side.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import problems

from lqd import statistics

OPPONENTS = ("cma-me", "cma-mae", "iso-line", "qdax", "random")
FITNESS_ALONE = ("cma-es",)
EVERY_PROBLEM = problems.TUNING | problems.QUOTED
BUDGETS = (2000, 20_000, 200_000)

Run = dict[str, Any]


def path_of(out: pathlib.Path, name: str, budget: int, algorithm: str) -> pathlib.Path:
    return out / f"{name.replace(' ', '-').replace(',', '')}-{budget}-{algorithm}.json"


def values(
    out: pathlib.Path, name: str, budget: int, algorithms: Iterable[str], of: Callable[[Run], float]
) -> dict[str, np.ndarray]:
    """Of each algorithm that was run: one number per seed."""
    found = {}
    for algorithm in algorithms:
        path = path_of(out, name, budget, algorithm)
        if path.exists():
            found[algorithm] = np.array([of(run) for run in json.loads(path.read_text())["runs"]])
    return found


class Row(NamedTuple):
    """Ours beside the opponents on one problem and budget; means over seeds."""

    problem: str
    budget: int
    num_seeds: int
    means: dict[str, float]
    ratio: float  # to the best opponent
    below: float  # to random sampling
    p: float
    delta: float


def compared(
    out: pathlib.Path, names: Iterable[str], budgets: Sequence[int], algorithm: str, of: Callable[[Run], float]
) -> list[Row]:
    rows = []
    for budget in budgets:
        for name in names:
            found = values(out, name, budget, (algorithm, *OPPONENTS), of)
            if algorithm not in found or len(found) < 3:
                continue
            means = {who: float(np.mean(one)) for who, one in found.items()}
            best = max((who for who in found if who != algorithm), key=means.__getitem__)
            p, delta = statistics.mann_whitney(found[algorithm], found[best])
            below = means[algorithm] / means["random"] if "random" in means else np.nan
            ratio = means[algorithm] / means[best]
            rows.append(Row(name, budget, len(found[algorithm]), means, ratio, below, p, delta))
    corrected = statistics.holm([row.p for row in rows])
    return [row._replace(p=p) for row, p in zip(rows, corrected, strict=True)]


def table(rows: Sequence[Row], algorithm: str, digits: int = 1) -> str:
    """One line a problem and budget, best opponent in bold."""
    titles = ("problem", "evaluations", "seeds", algorithm, *OPPONENTS, "ratio to the best", "to random", "delta", "p")
    lines = [f"| {' | '.join(titles)} |", "| --- " * len(titles) + "|"]
    for row in rows:
        best = max((who for who in row.means if who != algorithm), key=row.means.__getitem__)
        cells = [
            f"{'**' * (who == best)}{row.means[who]:.{digits}f}{'**' * (who == best)}" if who in row.means else ""
            for who in (algorithm, *OPPONENTS)
        ]
        facts = (f"{row.ratio:.2f}", f"{row.below:.2f}", f"{row.delta:+.2f}", number(row.p))
        lines.append(f"| {' | '.join((row.problem, f'{row.budget:,}', str(row.num_seeds), *cells, *facts))} |")
    return "\n".join(lines)


def number(p: float) -> str:
    return f"{p:.0e}".replace("e-0", "e-") if p < 0.001 else f"{p:.2g}"


def summary(rows: Sequence[Row]) -> str:
    """How often ahead, and by how much; the interval is by resampling problems."""
    if not rows:
        return "Nothing was run."
    ratios = np.array([row.ratio for row in rows])
    logs = np.log(ratios)
    middle, low, high = statistics.interval(len(logs), lambda which: np.exp(logs[which].mean(axis=-1)))
    ahead = sum(row.ratio > 1 and row.p < statistics.LEVEL for row in rows)
    behind = sum(row.ratio < 1 and row.p < statistics.LEVEL for row in rows)
    return (
        f"ahead of the best opponent on {np.mean(ratios > 1):.0%} of {len(rows)} (significantly on {ahead}, "
        f"significantly behind on {behind}), geometric mean of the ratios {middle:.3f} ({low:.3f} to {high:.3f}), "
        f"lowest {ratios.min():.2f}; lowest ratio to random {np.nanmin([row.below for row in rows]):.2f}."
    )


def summaries(rows: Sequence[Row]) -> str:
    """Of all, and of each budget."""
    budgets = sorted({row.budget for row in rows})
    lines = [f"- All: {summary(rows)}"]
    if len(budgets) > 1:
        lines += [f"- {budget:,} evaluations: {summary([r for r in rows if r.budget == budget])}" for budget in budgets]
    return "\n".join(lines)


def fitness_table(out: pathlib.Path, names: Iterable[str], budgets: Sequence[int], algorithm: str) -> str:
    """How far the best solution is from the floor (0) to the ceiling (1), also CMA-ES's."""
    everybody = (algorithm, *OPPONENTS, *FITNESS_ALONE)
    lines = ["| problem | evaluations | " + " | ".join(everybody) + " |", "| --- " * (len(everybody) + 2) + "|"]
    fitter: dict[str, list[float]] = {other: [] for other in everybody if other != algorithm}
    for budget in budgets:
        for name in names:
            worth = EVERY_PROBLEM[name].worth
            seeds = values(out, name, budget, everybody, lambda run, worth=worth: float(worth(np.array(run["best"]))))
            if algorithm not in seeds:
                continue
            found = {who: float(one.mean()) for who, one in seeds.items()}
            for other in found.keys() & fitter.keys():
                fitter[other].append(0.5 * (found[algorithm] > found[other]) + 0.5 * (found[algorithm] >= found[other]))
            cells = [f"{found[other]:.4f}" if other in found else "" for other in everybody]
            lines.append(f"| {name} | {budget:,} | " + " | ".join(cells) + " |")
    ahead = [f"{other} {np.mean(wins):.0%}" for other, wins in fitter.items() if wins]
    return "\n".join(
        [*lines, "", f"Best solution fitter than that of (ties half): {', '.join(ahead)}." if ahead else ""]
    )


def page(out: pathlib.Path, half: str, algorithm: str, budgets: Sequence[int] = BUDGETS) -> str:
    """Everything about one half."""
    names = list(problems.TUNING if half == "tuning" else problems.QUOTED)
    purpose = "choices were made on" if half == "tuning" else "results are quoted on"
    qd, covered = (
        compared(out, names, budgets, algorithm, lambda run, what=what: float(run[what]))
        for what in ("qd_score", "coverage")
    )
    return "\n\n".join(
        (
            f"# Out of the box: the problems that {purpose}",
            "`python benchmarks/defaults.py`; the best opponent of each row is in bold.",
            f"## QD score\n\n{summaries(qd)}\n\n{table(qd, algorithm)}",
            f"## Coverage\n\n{summaries(covered)}\n\n{table(covered, algorithm, 4)}",
            f"## Best fitness\n\n{fitness_table(out, names, budgets, algorithm)}",
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=["tuning", "quoted"], default="quoted")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("results/defaults"))
    given = parser.parse_args()
    print(page(given.out, given.half, "lqd"))


if __name__ == "__main__":
    main()
