"""Do the paper's claims hold in our results? One row each: what the paper says, what we find, how sure, how large.

Tested as SPEC section 4 says: one number per seed (the mean over functions of the rank among the runs of both rules),
Mann-Whitney U between the seeds of both, Holm over all tests of the table. A claim that one rule is better holds if it
is, at the level of 5 %; the paper's p-value stands beside ours. Where a claim has no number ("close", "almost
everywhere"), the one that we ask for is part of its text.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from lqd import statistics
from lqd.bench.landscapes import RULES as LANDSCAPES
from lqd.bench.results import Folder
from lqd.bench.suites import BLIND
from lqd.rules.catalogue import SHORT
from lqd.tasks import ROBOTS

LEVEL = 0.05


@dataclasses.dataclass
class Verdict:
    """A claim of the paper and what became of it; `p` is Holm's once all are there, None where nothing is tested."""

    figure: str
    claim: str
    paper: str
    found: str
    holds: Callable[[float | None], bool]
    p: float | None = None
    effect: float | None = None

    def row(self) -> dict[str, Any]:
        said = {"figure": self.figure, "claim": self.claim, "paper": self.paper, "ours": self.found}
        return said | {
            "p": self.p,
            "effect": self.effect,
            "verdict": "holds" if self.holds(self.p) else "does not hold",
        }


def verdicts(folder: Folder) -> list[dict[str, Any]]:
    """All claims that the results in the folder can answer."""
    found = []
    if "train" in folder.parts:
        found += [*_pareto(folder), _diversity(folder, "train", "on the training functions")]
    if "ood" in folder.parts:
        found += _ood(folder)
    if any(name.startswith("grid ") for name in folder.parts):
        found.append(_grid(folder))
    for part, where in (("arm", "on the arm"), ("walker2d", "on Walker2d"), ("halfcheetah", "on Half-Cheetah")):
        if part in folder.parts:
            found.append(_diversity(folder, part, where))
    robots = [part for part in ("arm", *ROBOTS) if part in folder.parts]
    if len(robots) > 1:
        found += _robots(folder, robots)
    if BLIND in folder.parts.get("train", {}).get("rules", ()):
        found += _ablation(folder, "train", "on the training functions")
    for part in ("hopper", "walker2d", "halfcheetah"):
        if BLIND in folder.parts.get(part, {}).get("rules", ()):
            found += _ablation(folder, part, f"on {part}")
    if all((folder.path / "landscape" / f"{rule}.safetensors").exists() for rule in LANDSCAPES):
        found += _landscapes(folder)
    tested = [verdict for verdict in found if verdict.p is not None]
    for verdict, p in zip(
        tested, statistics.holm([verdict.p for verdict in tested if verdict.p is not None]), strict=True
    ):
        verdict.p = p
    return [verdict.row() for verdict in found]


def _is_better(delta: float) -> Callable[[float | None], bool]:
    return lambda p: p is not None and delta > 0 and p < LEVEL


def _is_not_worse(delta: float) -> Callable[[float | None], bool]:
    return lambda p: delta >= 0 or (p is not None and p > LEVEL)


def _compare(folder: Folder, part: str, ours: str, theirs: str, measure: str) -> tuple[statistics.Finding, str]:
    """What was found, and its words."""
    found = statistics.compare(folder.table(part, ours)[measure], folder.table(part, theirs)[measure], measure)
    of_regret = "the other's regret is " if measure == "fitness" else ""
    times = f"{found.ratio:.3g} times ({found.ratio_low:.3g} to {found.ratio_high:.3g})"
    return found, f"wins {100 * found.win_rate:.0f} %, {of_regret}{times}"


def _better(folder: Folder, part, figure, claim, paper, ours, theirs, measure) -> Verdict:
    found, words = _compare(folder, part, ours, theirs, measure)
    return Verdict(figure, claim, paper, words, _is_better(found.delta), found.p, found.delta)


def _pareto(folder: Folder) -> list[Verdict]:
    rows = [
        ("LQD (N) is more novel than NS", "lqd-n", "ns", "novelty", 1e-9),
        ("LQD (F) is fitter than GA", "lqd-f", "ga", "fitness", 1e-10),
        ("LQD (F+N) is more novel than MAP-Elites", "lqd-fn", "me", "novelty", 1e-7),
        ("the same with as many individuals as MAP-Elites keeps", "lqd-fn", "me", "novelty_rarefied", 1e-7),
    ]
    found = [
        _better(folder, "train", "pareto", claim, f"p < {wanted:.0e}", ours, theirs, measure)
        for claim, ours, theirs, measure, wanted in rows
    ]
    dns, words = _compare(folder, "train", "lqd-fn", "dns", "qd")
    return [*found, Verdict("pareto", "LQD (F+N) is close to DNS (QD score at least 0.95 of it)", "close, behind it",
                            words, lambda p: dns.ratio_low > 0.95, dns.p, dns.delta)]  # fmt: skip


def _ood(folder: Folder) -> list[Verdict]:
    rules = list(folder.parts["ood"]["rules"])
    names = [function for function, _ in folder.columns("ood")]
    medians = np.stack([np.median(folder.table("ood", rule)["novelty"], axis=0) for rule in rules])
    best = [name for name, i in zip(names, medians.argmax(axis=0), strict=True) if rules[i] == "lqd-n"]
    missed = sorted(set(names) - set(best))
    novelty = Verdict(
        "bars-ood", "LQD (N) has the best novelty on all unseen functions but Salomon", "5 of 6",
        f"{len(best)} of {len(names)}" + (f", not on {', '.join(missed)}" if missed else ""),
        lambda p: set(missed) <= {"salomon"},
    )  # fmt: skip
    others = [rule for rule in rules if rule != "lqd-f"]
    compared = {rule: _compare(folder, "ood", "lqd-f", rule, "fitness") for rule in others}
    worst = min(others, key=lambda rule: compared[rule][0].delta)
    (_, p, delta, *_), words = compared[worst]
    fitness = Verdict(
        "bars-ood", "LQD (F) is competitive in fitness on unseen functions", "competitive",
        f"no other rule is significantly fitter; the closest is {SHORT[worst]}: {words}" if delta > 0 or p > LEVEL
        else f"{SHORT[worst]} is fitter: {words}",
        _is_not_worse(delta), p, delta,
    )  # fmt: skip
    return [novelty, fitness]


def _grid(folder: Folder) -> Verdict:
    parts = [name for name in folder.parts if name.startswith("grid ")]
    tables = [[folder.table(part, rule)["fitness"] for rule in ("lqd-f", "me")] for part in parts]
    wins = np.concatenate([statistics.wins(*pair).mean(axis=0) for pair in tables])
    p, delta = statistics.mann_whitney(
        *statistics.seed_scores(*(np.concatenate(side, axis=1) for side in zip(*tables, strict=True)))
    )
    share, level = float((wins > 0.5).mean()), float((wins == 0.5).mean())
    return Verdict(
        "grid", "LQD (F) beats MAP-Elites almost everywhere (in 90 % of the cells)", "almost everywhere",
        f"wins in {100 * share:.0f} % of {wins.size} cells, level in {100 * level:.0f} %; {100 * wins.mean():.0f} % of "
        "all runs, ties half",
        lambda p: share >= 0.9, p, delta,
    )  # fmt: skip


def _diversity(folder: Folder, part: str, where: str) -> Verdict:
    ours, ga, me = (folder.table(part, rule)["novelty"] for rule in ("lqd-f", "ga", "me"))
    share, low, high = statistics.ratio(ours, me)
    other, _, _ = statistics.ratio(ga, me)
    p, delta = statistics.mann_whitney(*statistics.seed_scores(ours, ga))
    return Verdict(
        "diversity", f"LQD (F) keeps 40 % of MAP-Elites's novelty {where}, GA not even 10 %",
        "about 40 %, below 10 % (Walker2d)",
        f"{100 * share:.1f} % ({100 * low:.1f} to {100 * high:.1f}), GA {100 * other:.1f} %",
        lambda p: share >= 0.4 and other <= 0.1, p, delta,
    )  # fmt: skip


def _robots(folder: Folder, parts: list[str]) -> list[Verdict]:
    """LQD (F) against every other rule over all robot tasks; of the arm alone the paper claims nothing like it."""
    num = min(len(folder.table(part, "ga")["fitness"]) for part in parts)

    def best(rule):
        return np.column_stack([folder.history(part, rule)["best"][-1][:num, 0] for part in parts])

    found = []
    for rule in ("random", "ns", "me", "dns", "ga"):
        p, delta = statistics.mann_whitney(*statistics.seed_scores(best("lqd-f"), best(rule)))
        wins = 100 * statistics.wins(best("lqd-f"), best(rule)).mean()
        words = f"wins {wins:.0f} % on {len(parts)} tasks"
        if rule == "ga":
            claim, paper = "LQD (F) is at least as fit as GA on the robot tasks", "better, not significantly"
            holds = _is_not_worse(delta)
        else:
            claim, paper = f"LQD (F) is fitter than {SHORT[rule]} on the robot tasks", "p < 0.005"
            holds = _is_better(delta)
        found.append(Verdict("robots-aggregate", claim, paper, words, holds, p, delta))
    return found


def _ablation(folder: Folder, part: str, where: str) -> list[Verdict]:
    blind, ours, ga = (folder.history(part, rule)["best"][-1] for rule in (BLIND, "lqd-f", "ga"))

    def of(first, second):
        p, delta = statistics.mann_whitney(*statistics.seed_scores(first, second))
        return p, delta, f"wins {100 * statistics.wins(first, second).mean():.0f} %"

    p, delta, words = of(ours, blind)
    claim = f"LQD (F) is fitter with the task's descriptors than with random ones {where}"
    uses = Verdict("ablation", claim, "significantly", words, _is_better(delta), p, delta)
    p, delta, words = of(blind, ga)
    claim = f"LQD (F) with random descriptors is not better than GA {where}"
    return [uses, Verdict("ablation", claim, "similar to GA", words, _is_not_worse(-delta), p, delta)]


def _landscapes(folder: Folder) -> list[Verdict]:
    """Rank correlations over the square, at the end: of the score with what the paper says it rewards."""
    from scipy.stats import spearmanr

    def correlations(rule: str) -> tuple[float, float]:
        found = folder.landscape(rule)
        filled = np.isfinite(found["fitness"][-1])
        fitness, descriptor = found["fitness"][-1][filled], found["descriptor"][-1][filled]
        second, first = np.meshgrid(found["axis"], found["axis"], indexing="ij")
        distance = np.hypot(first.ravel()[:, None] - descriptor[:, 0], second.ravel()[:, None] - descriptor[:, 1])
        score = found["score"][-1].ravel()
        near = distance.min(axis=1) < np.median(distance.min(axis=1))  # where there are neighbours to speak of
        fit = spearmanr(score[near], fitness[distance.argmin(axis=1)][near]).statistic
        return float(spearmanr(score, distance.min(axis=1)).statistic), float(fit)

    distance, _ = correlations("lqd-n")
    fit_distance, fit = correlations("lqd-f")
    mixed_distance, _ = correlations("lqd-fn")
    return [
        Verdict("landscape", "LQD (N) rewards distance from the others", "seen in the figure",
                f"rank correlation of score and distance to the nearest {distance:+.2f}", lambda p: distance > 0.5,
                effect=distance),
        Verdict("landscape", "LQD (F) rewards neighbourhoods of the fit", "seen in the figure",
                f"rank correlation of score and the nearest's fitness {fit:+.2f} (of score and distance "
                f"{fit_distance:+.2f})", lambda p: fit > 0.2, effect=fit),
        Verdict("landscape", "LQD (F+N) mixes both", "seen in the figure",
                f"rank correlation of score and distance {mixed_distance:+.2f} (F {fit_distance:+.2f}, "
                f"N {distance:+.2f})",
                lambda p: fit_distance < mixed_distance < distance, effect=mixed_distance),
    ]  # fmt: skip
