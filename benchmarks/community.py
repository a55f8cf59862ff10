"""QD score and coverage on pyribs's sphere and arm, hand-made and learned: `python benchmarks/community.py`.

Everybody gets the same number of evaluations from the same start, and a passive archive, a grid of 100 x 100 cells as
in pyribs's examples, sees every solution and decides nothing: its QD score and coverage are what is compared. The
search itself differs: MAP-Elites, DNS and the learned rules choose parents for iso-line variation in our loop; CMA-ME
and CMA-MAE are pyribs's, with the settings of its examples; `lqd-fn + CMA` is a learned rule as the archive of CMA-ME's
emitters. Step sizes are chosen for each algorithm and task from a few candidates, on seeds of their own.

Results are kept piece by piece, one file per algorithm and task, in `--out`: an interrupted run goes on, and a finished
piece is not run again unless its settings or weights changed. Needs `pip install 'lqd[ribs]'`.
"""

import argparse
import dataclasses
import json
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import lqd
from lqd import statistics
from lqd.bench import domains, watched
from lqd.bench.domains import GRID, Domain
from lqd.bench.watched import EMITTER_BATCH, NUM_EMITTERS
from lqd.evolution.variation import IsoLine
from lqd.io import manifest
from lqd.io.files import write_bytes
from lqd.report import style
from lqd.rules import cvt, protocol
from lqd.rules.catalogue import SHORT

MOST_START_POINTS = 1024  # an archive of 10,000 cells begins with these; smaller populations begin full
ISO_LINE = (
    (0.02, 0.2),
    (0.1, 0.2),
    (0.5, 0.2),
    (1.0, 0.2),
    (0.1, 0.5),
    (0.5, 0.5),
)  # candidates: iso_sigma, line_sigma
CMA_SIGMA = ((0.1,), (0.5,), (1.0,), (2.0,))  # candidates: sigma0
TUNING_SEEDS = range(1000, 1004)
DOMAINS = {"sphere": domains.DOMAINS["sphere-20"], "arm": domains.DOMAINS["arm-12"]}
FURTHER = {name: domain for name, domain in domains.DOMAINS.items() if domain not in DOMAINS.values()}
DOMAINS |= FURTHER  # chosen steps of these are in lqd.bench.domains as well


# Algorithms


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """A rule under iso-line variation, or pyribs's emitters; `tuned_as` says whose step sizes it takes."""

    title: str
    rule: str  # of ours; "cma-me", "cma-mae" are pyribs's
    population_size: int
    batch_size: int
    tuned_as: str
    emitters: bool = False

    @property
    def is_learned(self) -> bool:
        return self.rule.startswith("lqd-")

    @property
    def candidates(self) -> tuple:
        return CMA_SIGMA if self.emitters else ISO_LINE


def _rule(title: str, rule: str, tuned_size: int, sizes: dict[int, int]) -> dict[str, Algorithm]:
    """One rule in several sizes: population -> batch."""
    return {f"{rule}-{n}": Algorithm(title, rule, n, batch, f"{rule}-{tuned_size}") for n, batch in sizes.items()}


ITERATION = NUM_EMITTERS * EMITTER_BATCH
ALGORITHMS = {
    **_rule("CVT-MAP-Elites", "me", 1024, {128: 32, 1024: 128, 10_000: 128}),
    **_rule("DNS", "dns", 128, {128: 32, 1024: 128}),
    "cma-me": Algorithm("CMA-ME", "cma-me", GRID * GRID, ITERATION, "cma-me", emitters=True),
    "cma-mae": Algorithm("CMA-MAE", "cma-mae", GRID * GRID, ITERATION, "cma-mae", emitters=True),
    **_rule("lqd-f", "lqd-f", 128, {128: 32, 512: 128}),
    **_rule("lqd-n", "lqd-n", 128, {128: 32, 512: 128}),
    **_rule("lqd-fn", "lqd-fn", 128, {128: 32, 512: 128}),
    "lqd-fn-cma": Algorithm("lqd-fn + CMA", "lqd-fn", 512, ITERATION, "cma-me", emitters=True),
}


def make_rule(algorithm: Algorithm, domain: Domain) -> protocol.Rule:
    if algorithm.rule == "me":
        side = np.full(2, domain.half_width)
        return lqd.rule("me", centroids=cvt.centroids(algorithm.population_size, -side, side))
    return lqd.rule(algorithm.rule)


# Runs: evaluations (rows,), QD score (rows, seeds), coverage (rows, seeds)


def run_rule(domain: Domain, algorithm: Algorithm, step_sizes, seeds: Sequence[int], num_evaluations: int):
    """Our loop, all seeds in one program."""
    keys = jax.vmap(jax.random.key)(jnp.asarray(list(seeds)))
    num_start = min(algorithm.population_size, MOST_START_POINTS)
    return watched.search(
        domain, make_rule(algorithm, domain), IsoLine(*map(jnp.float32, step_sizes)), keys, num_evaluations,
        algorithm.population_size, algorithm.batch_size, num_start,
    )  # fmt: skip


def run_emitters(domain: Domain, algorithm: Algorithm, step_sizes, seed: int, num_evaluations: int):
    """pyribs, one seed: evaluations, QD score and coverage of each row."""
    from lqd.integrations.ribs import LQDArchive

    num_iterations, rest = divmod(num_evaluations, algorithm.batch_size)
    if rest or num_iterations < 1:
        raise ValueError(f"{num_evaluations} evaluations are not batches of {algorithm.batch_size}")
    archive: Any = None
    if algorithm.is_learned:
        ranges = [(-domain.half_width, domain.half_width)] * 2
        archive = LQDArchive(
            solution_dim=domain.dim, measure_dim=2, capacity=algorithm.population_size, rule=algorithm.rule, seed=seed,
            ranges=ranges,
        )  # fmt: skip
    how = "cma-me" if algorithm.is_learned else algorithm.rule
    return watched.emitters(
        domain, how, step_sizes[0], seed, num_iterations, archive, NUM_EMITTERS, EMITTER_BATCH
    )  # fmt: skip


def run(domain: Domain, algorithm: Algorithm, step_sizes, seeds: Sequence[int], num_evaluations: int):
    if not algorithm.emitters:
        return run_rule(domain, algorithm, step_sizes, seeds, num_evaluations)
    return watched.together([run_emitters(domain, algorithm, step_sizes, seed, num_evaluations) for seed in seeds])


# Pieces


@dataclasses.dataclass(frozen=True)
class Bench:
    """All runs of one size, kept in a folder."""

    folder: pathlib.Path
    num_evaluations: int
    num_seeds: int
    tuning_seeds: Sequence[int] = TUNING_SEEDS
    steps_from: pathlib.Path | None = None

    def piece(self, task: str, name: str) -> dict[str, Any]:
        """What is measured: fresh seeds, with the step sizes chosen before."""
        tuned_as = ALGORITHMS[name].tuned_as
        return self._piece(task, name, self.chosen(task, tuned_as), range(self.num_seeds), f"{task}-{name}")

    def chosen(self, task: str, name: str):
        """The candidate with the best mean QD score on the tuning seeds; or what was chosen in another folder."""
        if self.steps_from is not None:
            piece = json.loads((self.steps_from / f"{task}-{name}.json").read_text())
            return tuple(piece["about"]["step_sizes"])
        candidates = ALGORITHMS[name].candidates
        return candidates[int(np.argmax([self.tuning(task, name, one) for one in candidates]))]

    def tuning(self, task: str, name: str, step_sizes) -> float:
        label = "-".join(f"{size:g}" for size in step_sizes)
        kept = self._piece(task, name, step_sizes, self.tuning_seeds, f"tuning/{task}-{name}-{label}")
        return float(np.mean(kept["qd_score"][-1]))

    def _piece(self, task: str, name: str, step_sizes, seeds, file: str) -> dict[str, Any]:
        domain, algorithm = DOMAINS[task], ALGORITHMS[name]
        path = self.folder / f"{file}.json"
        about = {"task": task, "algorithm": dataclasses.asdict(algorithm), "step_sizes": list(step_sizes)}
        about |= {"seeds": list(seeds), "num_evaluations": self.num_evaluations}
        about["weights"] = lqd.load(algorithm.rule).fingerprint() if algorithm.is_learned else None
        try:
            kept = json.loads(path.read_text())
            if kept["about"] == about:
                return kept
        except (OSError, ValueError, KeyError):
            pass
        begun = time.perf_counter()
        evaluations, qd_score, coverage = run(domain, algorithm, step_sizes, seeds, self.num_evaluations)
        seconds = round(time.perf_counter() - begun, 1)
        print(
            f"{file}: QD score {qd_score[-1].mean():,.0f}, coverage {coverage[-1].mean():.3f}, {seconds} s", flush=True
        )
        made = manifest.environment() | {"seconds": seconds, "at": manifest.now()}
        tables = {"qd_score": _short(qd_score, 1), "coverage": _short(coverage, 5)}
        kept = {"about": about, "num_evaluations": evaluations.tolist()} | tables | {"made": made}
        write_bytes(path, (json.dumps(kept) + "\n").encode())
        return kept


def _short(values: np.ndarray, decimals: int) -> list:
    return np.round(np.asarray(values, np.float64), decimals).tolist()


# What is said of them

MEASURES = {"qd_score": "QD score", "coverage": "coverage"}
Found = dict[str, dict[str, dict[str, Any]]]  # task -> algorithm -> piece


def interval(values: np.ndarray, num_resamples: int = 4000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over the last axis, the seeds, and its 95 % bootstrap interval."""
    num = values.shape[-1]
    picks = np.random.default_rng(0).integers(num, size=(num_resamples, num))
    low, high = np.quantile(values[..., picks].mean(axis=-1), [0.025, 0.975], axis=-1)
    return values.mean(axis=-1), low, high


def final(piece: dict[str, Any], measure: str) -> np.ndarray:
    return np.asarray(piece[measure][-1])


def best_of(pieces: dict[str, dict[str, Any]], measure: str, wanted: Callable[[Algorithm], bool]) -> str:
    """The algorithm with the highest mean at the end."""
    names = [name for name in pieces if wanted(ALGORITHMS[name])]
    return max(names, key=lambda name: final(pieces[name], measure).mean())


RIVALS: dict[str, Callable[[Algorithm], bool]] = {
    "best hand-made": lambda algorithm: not algorithm.is_learned,
    "best hand-made with iso-line": lambda algorithm: not algorithm.is_learned and not algorithm.emitters,
}


def tests(found: Found) -> list[dict[str, Any]]:
    """Each learned row against the best hand-made one, one number per seed; Holm's correction over all of them."""
    rows = []
    for task, pieces in found.items():
        for measure in MEASURES:
            others: list[str] = []
            for rival, wanted in RIVALS.items():
                other = best_of(pieces, measure, wanted)
                if other in others:
                    continue  # the best of all has iso-line variation: one comparison, not two
                others.append(other)
                theirs = final(pieces[other], measure)
                for name in pieces:
                    if ALGORITHMS[name].is_learned:
                        ours = final(pieces[name], measure)
                        p, delta = statistics.mann_whitney(ours, theirs)
                        row = {"task": task, "measure": measure, "rival": rival, "name": name, "other": other}
                        rows.append(row | {"ratio": ours.mean() / theirs.mean(), "p": p, "delta": delta})
    for row, p in zip(rows, statistics.holm([row["p"] for row in rows]), strict=True):
        row["p"] = p
    return rows


def _label(name: str) -> str:
    algorithm = ALGORITHMS[name]
    return f"{algorithm.title}, {algorithm.population_size:,}"


def markdown(found: Found, bench: Bench) -> str:
    """The tables, best first."""
    lines = [f"{bench.num_evaluations:,} evaluations, {bench.num_seeds} seeds; mean and 95 % bootstrap interval."]
    lines += ["The number after a name is its population or the cells of its own archive. Learned rules in bold.", ""]
    for task, pieces in found.items():
        lines += [f"### {DOMAINS[task].title}", ""]
        lines += ["| algorithm | step sizes | QD score | coverage, % |", "| --- | --- | --- | --- |"]
        for name in sorted(pieces, key=lambda name: -final(pieces[name], "qd_score").mean()):
            label = f"**{_label(name)}**" if ALGORITHMS[name].is_learned else _label(name)
            qd, qd_low, qd_high = interval(final(pieces[name], "qd_score"))
            share, low, high = interval(100 * final(pieces[name], "coverage"))
            sizes = ", ".join(f"{size:g}" for size in pieces[name]["about"]["step_sizes"])
            lines.append(
                f"| {label} | {sizes} | {qd:,.0f} ({qd_low:,.0f} to {qd_high:,.0f}) "
                f"| {share:.1f} ({low:.1f} to {high:.1f}) |"
            )
        lines.append("")
    lines += ["### Tests", ""]
    lines += [
        "Ratio of the means; Mann-Whitney over seeds, p after Holm's correction over all rows; Cliff's delta.",
        "",
    ]
    lines += [
        "| task | measure | learned | against | ratio | p | delta |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in tests(found):
        against = f"{_label(row['other'])} ({row['rival']})"
        lines.append(
            f"| {row['task']} | {MEASURES[row['measure']]} | {_label(row['name'])} | {against} "
            f"| {row['ratio']:.2f} | {row['p']:.1g} | {row['delta']:+.2f} |"
        )
    return "\n".join(lines) + "\n"


def csv(found: Found) -> str:
    """One line per run."""
    lines = ["task,algorithm,seed,num_evaluations,qd_score,coverage"]
    for task, pieces in found.items():
        for name, piece in pieces.items():
            for seed, both in enumerate(zip(final(piece, "qd_score"), final(piece, "coverage"), strict=True)):
                lines.append(f"{task},{name},{seed},{piece['num_evaluations'][-1]},{both[0]:.1f},{both[1]:.5f}")
    return "\n".join(lines) + "\n"


def look(algorithm: Algorithm) -> str:
    """Whose colour, marker and line an algorithm has: those that its rule has in all figures."""
    return f"{algorithm.rule}-cma" if algorithm.emitters and algorithm.is_learned else algorithm.rule


NAMES = {"cma-me": "CMA-ME", "cma-mae": "CMA-MAE", "lqd-fn-cma": f"{SHORT['lqd-fn']} + CMA-ME"}


@style.sized
def figure(found: Found, width: style.Width = style.FULL) -> Figure:
    """QD score over evaluations, of each algorithm the size that is best at the end."""
    shape, height = ((len(found), 1), 2.1 * len(found) + 1.2) if width.is_column else ((1, len(found)), 3.4)
    picture = Figure(figsize=(width.inches, height), layout="constrained")
    axes = np.ravel(picture.subplots(*shape, squeeze=False))
    looks = [one for one in style.EVERY if any(look(ALGORITHMS[name]) == one for name in next(iter(found.values())))]
    num_seeds = 0
    for ax, (task, pieces) in zip(axes, found.items(), strict=True):
        for i, one in enumerate(looks):
            name = best_of(pieces, "qd_score", lambda algorithm, one=one: look(algorithm) == one)
            mean, low, high = interval(np.asarray(pieces[name]["qd_score"]))
            evaluations = np.asarray(pieces[name]["num_evaluations"]) / 1000
            num_seeds = len(final(pieces[name], "qd_score"))
            ax.fill_between(evaluations, low / 1000, high / 1000, color=style.COLOURS[one], alpha=0.18, lw=0)
            every = max(len(mean) // 6, 1)
            label = NAMES.get(one, SHORT.get(one))
            ax.plot(evaluations, mean / 1000, markevery=(i % every, every), label=label, **style.drawn(one, ms=4))
        ax.set(xlabel="evaluations, thousands", ylabel="QD score, thousands", ylim=(0, None), xlim=(0, None))
        ax.set_title(DOMAINS[task].title.capitalize())
        style.tidy(ax)
    handles, names = axes[0].get_legend_handles_labels()
    ncols = 2 if width.is_column else 4
    picture.legend(handles, names, loc="outside upper center", ncols=ncols, handlelength=3)
    about = f"{num_seeds} seeds; mean and 95 % bootstrap interval; of each algorithm the size that is best at the end"
    style.said(picture, about)
    return picture


def main(arguments=None) -> Found:
    parser = argparse.ArgumentParser(description="QD score and coverage on pyribs's sphere and arm.")
    parser.add_argument("--out", type=pathlib.Path, help="default: results/community; quick: runs/community-quick")
    parser.add_argument("--num-evaluations", type=int, default=51_840, help="of each run")
    parser.add_argument("--num-seeds", type=int, default=16)
    parser.add_argument("--tasks", nargs="*", choices=DOMAINS, default=["sphere", "arm"])
    parser.add_argument("--algorithms", nargs="*", choices=ALGORITHMS, default=list(ALGORITHMS))
    parser.add_argument("--figure", type=pathlib.Path, help="also draw it here, .png")
    parser.add_argument("--steps-from", type=pathlib.Path, help="take step sizes from a finished folder, tune nothing")
    parser.add_argument("--quick", action="store_true", help="4 seeds, a third of the evaluations, small populations")
    given = parser.parse_args(arguments)
    out, tuning_seeds = given.out or pathlib.Path("results/community"), TUNING_SEEDS
    if given.quick:
        out, tuning_seeds = given.out or pathlib.Path("runs/community-quick"), TUNING_SEEDS[:2]
        given.num_evaluations, given.num_seeds = 17_280, 4
        small = ("me-1024", "dns-128", "cma-me", "cma-mae", "lqd-f-128", "lqd-n-128", "lqd-fn-128")
        given.algorithms = [name for name in given.algorithms if name in small]
    bench = Bench(out, given.num_evaluations, given.num_seeds, tuning_seeds, given.steps_from)
    begun = time.perf_counter()
    found: Found = {task: {} for task in given.tasks}
    for name in given.algorithms:
        for task in given.tasks:
            found[task][name] = bench.piece(task, name)
    text = markdown(found, bench)
    write_bytes(out / "community.md", text.encode())
    write_bytes(out / "community.csv", csv(found).encode())
    if given.figure:
        style.save(figure(found), given.figure)
    print(f"\n{text}\n{time.perf_counter() - begun:.0f} s; wrote {out / 'community.md'}")
    return found


if __name__ == "__main__":
    main()
