"""Out of the box, nobody tuned: `lqd.optimize` with its defaults against what people use, on strangers' problems.

    python benchmarks/defaults.py --half tuning --evaluations 2000 20000 --seeds 16 --out results/defaults
    python benchmarks/defaults.py --half quoted ...      # once, when the defaults are chosen
    python benchmarks/defaults_tables.py --half quoted > results/defaults/quoted.md

Every solution that a search evaluates goes into a passive archive that decides nothing; compared are its QD score (each
cell's best fitness, from 0 at the problem's floor to 1 at its ceiling, noise taken away), its coverage, and the best
fitness. Cells: 500 for one descriptor, 50 x 50 for two, 2,048 of a CVT for more; what lies outside the ranges counts at
the edge. Results are kept one file a problem, budget and algorithm, and not run again. `--choose` runs `lqd.optimize`
with other arguments under a name of its own: for the first half alone.

Opponents, with settings that were fixed before anything of ours was tuned. All search in units of the box (0 to 1,
clipped to it), or of the start's spread where there is none; all know the ranges and have the measuring archive's own
cells. Where a problem gives no number they are told a value one span below the floor.

- `cma-me`, `cma-mae`: pyribs, from the centre with a tenth of the width (0.5 of the spread); for budgets below 10,000
  three emitters of pyribs's own batch size, as its front page has it, else 15 of 36, as its examples do. CMA-MAE with
  learning rate 0.01 and the floor as its lowest threshold.
- `iso-line`: pyribs's IsoLineEmitter with its default steps (0.01, 0.2), batches of 64, the first one random.
- `qdax`: QDax's MAP-Elites with its tutorial's settings (iso-line 0.005 and 0.05, 100 a generation).
- `random`: uniform in the box, or normal around the start.
- `cma-es`: pycma with restarts, from the centre with 0.3 of the width; for the best fitness alone.

Needs `pip install ribs cma gymnasium qdax`.
"""

import argparse
import concurrent.futures
import functools
import json
import multiprocessing
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import defaults_tables as tables
import problems
from defaults_tables import path_of
from problems import Problem

MEASURES = ("qd_score", "coverage", "best")
GRID = {1: 500, 2: 50}  # cells a side
NUM_CELLS = 2048  # of a CVT, for more descriptors
SPAN_BELOW = 1.0


class Done(Exception):
    """The budget is spent."""


@functools.cache
def centroids(name: str) -> np.ndarray:
    from lqd.rules import cvt

    low, high = every_problem()[name].ranges
    return low + (high - low) * np.asarray(cvt.centroids(NUM_CELLS, np.zeros(len(low)), np.ones(len(low))))


def every_problem() -> dict[str, Problem]:
    return problems.TUNING | problems.QUOTED


class Measured:
    """A problem with a budget: what a search calls, and the passive archive of all that it evaluated."""

    def __init__(self, problem: Problem, budget: int, seed: int):
        self.problem, self.budget, self.num = problem, budget, 0
        self.noise = np.random.default_rng([seed, 77])
        side, dim = GRID.get(problem.descriptor_dim), problem.descriptor_dim
        self.side = side
        self.cells = np.full(side**dim if side else NUM_CELLS, -np.inf)
        self.best = -np.inf
        if not side:
            from scipy.spatial import cKDTree

            low, high = problem.ranges
            self.tree = cKDTree((centroids(problem.name) - low) / (high - low))

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Evaluates and remembers; a batch that would go beyond the budget is evaluated and not remembered there."""
        if self.num >= self.budget:
            raise Done
        fitness, descriptor = self.problem.function(np.asarray(x, float))
        left = min(len(x), self.budget - self.num)
        self.num += left
        self._remember(fitness[:left], descriptor[:left])
        return fitness + self.problem.noise * self.noise.normal(size=len(x)), descriptor

    def _remember(self, fitness, descriptor) -> None:
        good = np.isfinite(fitness) & np.isfinite(descriptor).all(axis=1)
        if not good.any():
            return
        fitness, descriptor = fitness[good], descriptor[good]
        self.best = max(self.best, fitness.max())
        low, high = self.problem.ranges
        place = np.clip((descriptor - low) / (high - low), 0, 1)
        if self.side:
            index = np.minimum((place * self.side).astype(int), self.side - 1)
            cell = np.ravel_multi_index(index.T, (self.side,) * index.shape[1])
        else:
            cell = self.tree.query(place)[1]
        np.maximum.at(self.cells, cell, fitness)

    def scores(self) -> dict[str, float]:
        filled = self.cells > -np.inf
        score = self.problem.worth(self.cells[filled]).sum()
        return {"qd_score": float(score), "coverage": float(filled.mean()), "best": float(self.best)}


# Opponents, each in units of its own


class Units:
    """From 0 to 1 in the box, and clipped to it; or in units of the spread."""

    def __init__(self, measured: Measured):
        self.measured, self.problem = measured, measured.problem
        self.bounded = self.problem.bounds is not None
        self.centre = np.full(self.problem.dim, 0.5 if self.bounded else 0.0)

    def __call__(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Fitness that is always a number, and descriptors."""
        problem = self.problem
        if problem.bounds is not None:
            low, high = problem.bounds
            x = low + np.clip(z, 0, 1) * (high - low)
        else:
            x = problem.start + problem.spread * np.asarray(z)
        fitness, descriptor = self.measured(x)
        worst = problem.floor - SPAN_BELOW * (problem.ceiling - problem.floor)
        return np.nan_to_num(fitness, nan=worst, posinf=worst, neginf=worst), descriptor

    def random(self, rng: np.random.Generator, num: int) -> np.ndarray:
        shape = (num, self.problem.dim)
        return rng.uniform(size=shape) if self.bounded else rng.normal(size=shape)


def random_search(measured: Measured, seed: int) -> None:
    units, rng = Units(measured), np.random.default_rng(seed)
    while True:
        units(units.random(rng, 500))


def _ribs_archive(problem: Problem, seed: int, **how):
    from ribs.archives import CVTArchive, GridArchive

    ranges = list(zip(*problem.ranges, strict=True))
    side = GRID.get(problem.descriptor_dim)
    if side:
        return GridArchive(solution_dim=problem.dim, dims=[side] * len(ranges), ranges=ranges, seed=seed, **how)
    # pyribs takes distances in the units it is given: they are made alike
    return CVTArchive(
        solution_dim=problem.dim, centroids=_unit_centroids(problem), ranges=[(0, 1)] * len(ranges), seed=seed, **how
    )


def _unit_centroids(problem: Problem) -> np.ndarray:
    low, high = problem.ranges
    return (centroids(problem.name) - low) / (high - low)


def _told(problem: Problem, descriptor: np.ndarray) -> np.ndarray:
    """Descriptors as pyribs's archive has them."""
    low, high = problem.ranges
    clipped = np.clip(np.nan_to_num(descriptor), low, high)
    return clipped if problem.descriptor_dim in GRID else (clipped - low) / (high - low)


def _ribs(measured: Measured, archive, emitters, **how) -> None:
    from ribs.schedulers import Scheduler

    units, scheduler = Units(measured), Scheduler(archive, emitters, **how)
    while True:
        fitness, descriptor = units(scheduler.ask())
        scheduler.tell(fitness, _told(measured.problem, descriptor))


def _emitters(archive, units: Units, seed: int, budget: int, ranker: str) -> list:
    from ribs.emitters import EvolutionStrategyEmitter

    num, batch_size = (3, None) if budget < 10_000 else (15, 36)
    sigma0 = 0.1 if units.bounded else 0.5
    return [
        EvolutionStrategyEmitter(
            archive, x0=units.centre, sigma0=sigma0, ranker=ranker, batch_size=batch_size, seed=seed * 100 + i
        )
        for i in range(num)
    ]


def cma_me(measured: Measured, seed: int) -> None:
    archive = _ribs_archive(measured.problem, seed)
    _ribs(measured, archive, _emitters(archive, Units(measured), seed, measured.budget, "2imp"))


def cma_mae(measured: Measured, seed: int) -> None:
    archive = _ribs_archive(measured.problem, seed, learning_rate=0.01, threshold_min=measured.problem.floor)
    _ribs(measured, archive, _emitters(archive, Units(measured), seed, measured.budget, "imp"))


def iso_line(measured: Measured, seed: int) -> None:
    from ribs.emitters import IsoLineEmitter

    archive, units = _ribs_archive(measured.problem, seed), Units(measured)
    first = units.random(np.random.default_rng(seed), 64)
    _ribs(measured, archive, [IsoLineEmitter(archive, batch_size=64, initial_solutions=first, seed=seed)])


def qdax(measured: Measured, seed: int) -> None:
    import jax
    import jax.numpy as jnp
    from qdax.core.emitters.mutation_operators import isoline_variation
    from qdax.core.emitters.standard_emitters import MixingEmitter
    from qdax.core.map_elites import MAPElites

    problem, units = measured.problem, Units(measured)
    limits = {"minval": 0.0, "maxval": 1.0} if units.bounded else {}
    variation = functools.partial(isoline_variation, iso_sigma=0.005, line_sigma=0.05, **limits)
    emitter = MixingEmitter(mutation_fn=None, variation_fn=variation, variation_percentage=1.0, batch_size=100)
    search = MAPElites(scoring_function=None, emitter=emitter, metrics_function=lambda repertoire: {})
    ask, tell = jax.jit(search.ask), jax.jit(search.tell)
    low, high = problem.ranges

    def scored(genotype):
        fitness, descriptor = units(np.asarray(genotype, float))
        place = np.clip((np.nan_to_num(descriptor) - low) / (high - low), 0, 1)
        return jnp.asarray(fitness, jnp.float32)[:, None], jnp.asarray(place, jnp.float32)

    if problem.descriptor_dim in GRID:
        axis = (np.arange(GRID[problem.descriptor_dim]) + 0.5) / GRID[problem.descriptor_dim]
        cells = np.stack(np.meshgrid(*[axis] * problem.descriptor_dim, indexing="ij"), axis=-1).reshape(
            -1, problem.descriptor_dim
        )
    else:
        cells = _unit_centroids(problem)
    key = jax.random.key(seed)
    first = jnp.asarray(units.random(np.random.default_rng(seed), 100), jnp.float32)
    repertoire, state, _ = search.init_ask_tell(first, *scored(first), jnp.asarray(cells, jnp.float32), key)
    while True:
        key, subkey = jax.random.split(key)
        genotype, extra = ask(repertoire, state, subkey)
        repertoire, state, _ = tell(genotype, *scored(genotype), repertoire, state, extra_scores={}, extra_info=extra)


def cma_es(measured: Measured, seed: int) -> None:
    import cma

    units, restart, popsize = Units(measured), 0, None
    while True:
        options = {"verbose": -9, "seed": seed * 1000 + restart + 1}
        if popsize:
            options["popsize"] = popsize
        if units.bounded:
            options["bounds"] = [0, 1]
        es = cma.CMAEvolutionStrategy(units.centre, 0.3 if units.bounded else 1.0, options)
        while not es.stop():
            z = es.ask()
            es.tell(z, (-units(np.asarray(z))[0]).tolist())
        popsize, restart = 2 * es.popsize, restart + 1


def ours(measured: Measured, seed: int, **arguments: Any) -> None:
    """What a new user writes."""
    import lqd

    problem = measured.problem
    given: dict[str, Any] = {"bounds": problem.bounds}
    if problem.bounds is None:
        given = {"x0": np.full(problem.dim, problem.start), "init_sigma": problem.spread}
    if problem.tells_ranges:
        given["descriptor_bounds"] = problem.ranges
    given |= arguments
    lqd.optimize(measured, dim=problem.dim, num_evaluations=measured.budget, seed=seed, backend="host", **given)


OPPONENTS: dict[str, Callable] = {
    "cma-me": cma_me,
    "cma-mae": cma_mae,
    "iso-line": iso_line,
    "qdax": qdax,
    "random": random_search,
}
FITNESS_ALONE: dict[str, Callable] = {"cma-es": cma_es}
EVERYBODY = {"lqd": ours} | OPPONENTS | FITNESS_ALONE


# Running


def one(name: str, algorithm: str, budget: int, seed: int, arguments: dict[str, Any]) -> dict[str, float]:
    """One run: what it found, and how long it took."""
    import warnings

    measured, begun = Measured(every_problem()[name], budget, seed), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if algorithm in EVERYBODY:
                EVERYBODY[algorithm](measured, seed)
            else:
                ours(measured, seed, **arguments)
        except Done:
            pass
    return measured.scores() | {"seconds": round(time.perf_counter() - begun, 2), "evaluations": measured.num}


def piece(out: pathlib.Path, name: str, algorithm: str, budget: int, seeds: int, arguments: dict[str, Any]) -> str:
    """All seeds of an algorithm on a problem, kept in a file; seeds that are there are not run again."""
    from lqd.io import manifest
    from lqd.io.files import write_bytes

    path = path_of(out, name, budget, algorithm)
    about = {"problem": name, "algorithm": algorithm, "evaluations": budget, "arguments": arguments}
    kept: list[dict[str, float]] = []
    if path.exists():
        found = json.loads(path.read_text())
        if {key: found[key] for key in about} == about:
            kept = found["runs"]
    if len(kept) < seeds:
        kept += [one(name, algorithm, budget, seed, arguments) for seed in range(len(kept), seeds)]
        content = about | {"commit": manifest.commit(), "made": manifest.now(), "runs": kept}
        write_bytes(path, (json.dumps(content, indent=1) + "\n").encode())
    return f"{name}, {budget:,}, {algorithm}: {np.mean([run['qd_score'] for run in kept]):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=["tuning", "quoted"], default="tuning")
    parser.add_argument("--evaluations", type=int, nargs="+", default=[2000, 20_000])
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--problems", nargs="*", help="only these")
    parser.add_argument(
        "--algorithms", nargs="*", default=list(EVERYBODY), help="only these; none, with --choose alone"
    )
    parser.add_argument("--choose", nargs=2, action="append", default=[], metavar=("NAME", "JSON"),
                        help="lqd.optimize with other arguments, under this name")  # fmt: skip
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("results/defaults"))
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    if given.half == "quoted" and given.choose:
        parser.error("--choose is for the first half: the second is what results are quoted on")
    half = problems.TUNING if given.half == "tuning" else problems.QUOTED
    names = given.problems or list(half)
    if strange := [name for name in names if name not in half]:
        parser.error(f"{strange[0]!r} is no problem of the {given.half} half, which has: {', '.join(half)}")
    chosen = {name: json.loads(text) for name, text in given.choose}
    work = [
        (given.out, name, algorithm, budget, given.seeds, chosen.get(algorithm, {}))
        for budget in sorted(given.evaluations)
        for name in names
        for algorithm in (*given.algorithms, *chosen)
    ]
    begun = time.perf_counter()
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(given.jobs, mp_context=context) as pool:
        futures = [pool.submit(piece, *each) for each in work]
        for done, future in enumerate(concurrent.futures.as_completed(futures), 1):
            print(f"{time.perf_counter() - begun:6.0f} s, {done} of {len(futures)}: {future.result()}", flush=True)
    for algorithm in (*(name for name in given.algorithms if name == "lqd"), *chosen):
        print(f"\n{tables.page(given.out, given.half, algorithm, sorted(given.evaluations))}")


if __name__ == "__main__":
    main()
