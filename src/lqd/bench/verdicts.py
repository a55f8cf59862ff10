"""Do the paper's claims hold in our results? One row each: what the paper says, what we find, how sure, how large.

Tested as SPEC section 4 says: one number per seed (the sum over functions of the rank among the runs of both rules),
Mann-Whitney U between the seeds of both, Holm over all tests of the table. A paired test over the same instances stands
beside it; no verdict depends on that. Intervals are of 95 %, by resampling seeds.

A verdict needs evidence, either way; without any, the claim is inconclusive, and no p-value however large makes it hold
or fail. What is asked for, and what counts against it:

| the claim | holds | does not hold |
| --- | --- | --- |
| better | ahead, p < 0.05 | behind, p < 0.05; or the interval of the win rate is below 50 % |
| not worse | the interval of the win rate is above 45 %; of a ratio, above 0.95 | it is below that limit |
| not better | the interval of the win rate is below 55 % | it is above that limit |
| a number, such as 40 % | the interval is above it | it is below it |

A claim against several rules at once holds if it holds against each of them. It fails for one of them only if that one
is also ahead with p < 0.05: all these tests are among those that Holm corrects, as the one that looks worst was chosen
after looking. MAP-Elites is compared with the paper's box, and with one fitted to each function where that was run. Of
robots counts what their best solutions and elites are worth on fresh resets. What a claim needs to hold stands in its
row; where the paper has no number ("close", "almost everywhere"), the limit is ours. The landscapes are one run of each
rule: there are no seeds to resample, so limits of ours alone decide.

Runs can be too small to judge a claim: fewer than `LEAST_SEEDS` seeds, fewer than `LEAST_TURNOVER` offspring for each
place in the population, or so few seeds for so many tests that no outcome could reach p < 0.05. Whatever came out of
them, the verdict is inconclusive, and the row says why.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from lqd import statistics, tasks
from lqd.bench.landscapes import RULES as LANDSCAPES
from lqd.bench.results import Folder
from lqd.bench.runner import AT_FITTED_SLOTS
from lqd.bench.settings import Setting
from lqd.io import records
from lqd.rules.catalogue import BLIND, FITTED, SHORT
from lqd.statistics import Answer, Finding

WORDS = {True: "holds", False: "does not hold", None: "inconclusive"}
PAPER = {  # which figure of the paper each of ours corresponds to
    "robots-aggregate": "Figure 1", "pareto": "Figure 3", "bars-ood": "Figure 4", "grid": "Figure 5",
    "robots": "Figure 6", "diversity": "Figure 7", "landscape": "Figure 8", "ablation": "Figure 9",
    "bars-train": "Figure 10",
}  # fmt: skip
AHEAD = f"ahead, p < {statistics.LEVEL:g}"
OWN_BOX = "not tested: only its own box"
LEAST_SEEDS = 6  # if all of five seeds agree, a sign test says p = 2 / 2^5 > 0.05
LEAST_TURNOVER = 10  # offspring for each place in the population


@dataclasses.dataclass
class Verdict:
    """A claim of the paper and what became of it.

    `needed` is what the results must show for it to hold. `findings` are all tests behind it, the one that is shown
    first; `holds` is asked when Holm has corrected them. `parts` are those that it is judged by.
    """

    figure: str
    claim: str
    paper: str
    found: str
    needed: str
    holds: Callable[..., Answer]
    findings: tuple[Finding, ...] = ()
    parts: tuple[str, ...] = ()
    effect: float | None = None
    too_small: str = ""

    def row(self) -> dict[str, Any]:
        said = {name: getattr(self, name) for name in ("figure", "claim", "paper", "needed", "too_small")}
        why = f"; too small to judge: {self.too_small}" if self.too_small else ""
        said |= {"cites": PAPER[self.figure], "ours": self.found + why}
        tested = {"p": None, "paired_p": None, "effect": self.effect}
        if self.findings:
            shown = self.findings[0]
            tested = {"p": shown.p, "paired_p": shown.paired_p, "effect": shown.delta}
        answer = None if self.too_small else self.holds(*self.findings)
        return said | tested | {"verdict": WORDS[answer]}


def verdicts(folder: Folder) -> list[dict[str, Any]]:
    """All claims that the results in the folder can answer."""
    found = []
    robots = [part for part in ("arm", *tasks.ROBOTS) if part in folder.parts]
    if "train" in folder.parts:
        found += [*_pareto(folder), *_diversity(folder, "train", _where("train"))]
    if "ood" in folder.parts:
        found += [_ood_novelty(folder), _ood_fitness(folder)]
    grid = [name for name in folder.parts if name.startswith("grid ")]
    if grid:
        found += [_grid(folder, grid, rule) for rule in _boxes(folder, grid[0])]
    for part in robots:
        found += _diversity(folder, part, _where(part))
    if len(robots) > 1:
        found += _robots(folder, robots)
    for part in ("train", *tasks.ROBOTS):
        if BLIND in folder.parts.get(part, {}).get("rules", ()):
            found += _ablation(folder, part, _where(part))
    if all((folder.path / "landscape" / f"{rule}.safetensors").exists() for rule in LANDSCAPES):
        found += _landscapes(folder)
    corrected = iter(statistics.adjusted([finding for verdict in found for finding in verdict.findings]))
    smallest = iter(statistics.holm([_smallest_p(folder, verdict) for verdict in found for _ in verdict.findings]))
    for verdict in found:
        verdict.findings = tuple(next(corrected) for _ in verdict.findings)
        reachable = [next(smallest) for _ in verdict.findings]
        verdict.too_small = _too_small(folder, verdict, max(reachable, default=0.0))
    return [verdict.row() for verdict in found]


def _where(part: str) -> str:
    return {"train": "on the training functions", "arm": "on the arm"}.get(part) or f"on {tasks.title(part)}"


def _settings(folder: Folder, verdict: Verdict) -> list[Setting]:
    return [records.read(Setting, folder.parts[part]["setting"]) for part in verdict.parts]


def _num_seeds(folder: Folder, verdict: Verdict) -> int:
    return min(setting.num_seeds for setting in _settings(folder, verdict))


def _smallest_p(folder: Folder, verdict: Verdict) -> float:
    """Mann-Whitney's if every seed of one rule is ahead of every seed of the other."""
    num = _num_seeds(folder, verdict)
    return min(1.0, 2 / math.comb(2 * num, num))


def _too_small(folder: Folder, verdict: Verdict, smallest_p: float) -> str:
    """Why these runs cannot judge a claim, whatever comes out of them; empty if they can."""
    if not verdict.parts:
        return ""
    said, num_seeds = [], _num_seeds(folder, verdict)
    if num_seeds < LEAST_SEEDS:
        said.append(f"{num_seeds} seeds")
    elif verdict.holds is Finding.is_better and smallest_p >= statistics.LEVEL:
        said.append(f"{num_seeds} seeds cannot give p < {statistics.LEVEL:g}")
    short = [
        setting.num_generations
        for setting in _settings(folder, verdict)
        if setting.num_generations * setting.batch_size < LEAST_TURNOVER * setting.population_size
    ]
    if short:
        said.append(f"{min(short)} generations")
    return ", ".join(said)


def _boxes(folder: Folder, part: str) -> list[str]:
    """MAP-Elites with the paper's box, and with a fitted one where that was run."""
    return [rule for rule in ("me", FITTED) if rule in folder.parts[part]["rules"]]


def _luck(folder: Folder, parts: list[str]) -> str:
    """What to say of robots that were not evaluated again."""
    return "; single evaluations" if any(p in tasks.ROBOTS and not folder.num_resets(p) for p in parts) else ""


def counts(rows: list[dict[str, Any]]) -> str:
    """How many claims hold, how many do not, and of how many nothing can be said."""
    holds, fails, unclear = (sum(row["verdict"] == word for row in rows) for word in WORDS.values())
    small = sum(bool(row.get("too_small")) for row in rows)
    said = f"{holds} of {len(rows)} claims {'holds' if holds == 1 else 'hold'}, "
    said += (
        f"{fails} {'does' if fails == 1 else 'do'} not hold, {unclear} {'is' if unclear == 1 else 'are'} inconclusive"
    )
    return said + (f" ({small} of them because these runs are too small to judge)" if small else "")


def _wins(found: Finding) -> str:
    return f"wins {100 * found.win_rate:.0f} % ({100 * found.win_low:.0f} to {100 * found.win_high:.0f})"


def _compare(folder: Folder, part: str, ours: str, theirs: str, measure: str) -> tuple[Finding, str]:
    """What was found, and its words."""
    found = statistics.compare(folder.table(part, ours)[measure], folder.table(part, theirs)[measure], measure)
    times, interval = f"{found.ratio:.3g} times", f"({found.ratio_low:.3g} to {found.ratio_high:.3g})"
    if measure == "fitness":
        return found, f"{_wins(found)}, {SHORT[theirs]}'s regret is {times} as large {interval}"
    what = "QD score" if measure == "qd" else "novelty"
    return found, f"{_wins(found)}, {times} {_whose(theirs)} {what} {interval}"


def _pareto(folder: Folder) -> list[Verdict]:
    equal = "with equally many individuals"
    rows = [
        ("LQD (N) is more novel than NS", "lqd-n", "ns", "novelty", "p < 10⁻⁹"),
        ("LQD (F) is fitter than GA", "lqd-f", "ga", "fitness", "p < 10⁻¹⁰"),
        ("LQD (F) is more novel than GA", "lqd-f", "ga", "novelty", "substantially"),
        ("LQD (F+N) is more novel than MAP-Elites (the paper's box)", "lqd-fn", "me", "novelty", "p < 10⁻⁷"),
        (
            f"LQD (F+N) is more novel than MAP-Elites (the paper's box) {equal}", "lqd-fn", "me", "novelty_rarefied",
            "p < 10⁻⁷, as many as there are",
        ),
        ("LQD (F+N) is more novel than MAP-Elites (fitted box)", "lqd-fn", FITTED, "novelty", OWN_BOX),
        (
            f"LQD (F+N) is more novel than MAP-Elites (fitted box) {equal}", "lqd-fn", FITTED, AT_FITTED_SLOTS,
            OWN_BOX,
        ),
    ]  # fmt: skip
    found = []
    for claim, ours, theirs, measure, paper in rows:
        if theirs not in folder.parts["train"]["rules"]:
            continue
        finding, words = _compare(folder, "train", ours, theirs, measure)
        found.append(Verdict("pareto", claim, paper, words, AHEAD, Finding.is_better, (finding,), ("train",)))
    dns, words = _compare(folder, "train", "lqd-fn", "dns", "qd")
    return [
        *found,
        Verdict("pareto", "LQD (F+N) is close to DNS (QD score at least 0.95 of it)", "close, behind it", words,
                f"ratio above {statistics.LEAST_RATIO:g}", lambda dns: dns.is_more_than(statistics.LEAST_RATIO),
                (dns,), ("train",)),
    ]  # fmt: skip


def _ood_novelty(folder: Folder) -> Verdict:
    """Best by the median; the interval is of the number of functions but Salomon on which it is not."""
    rules = list(folder.parts["ood"]["rules"])
    names = np.array([function for function, _ in folder.columns("ood")])
    ours = folder.table("ood", "lqd-n")["novelty"]
    others = np.stack([folder.table("ood", rule)["novelty"] for rule in rules if rule != "lqd-n"])

    def missed(seeds):
        return ~(np.median(ours[seeds], axis=-2) > np.median(others[:, seeds], axis=-2).max(axis=0))

    now = missed(np.arange(len(ours)))
    counted = names != "salomon"
    _, low, high = statistics.interval(len(ours), lambda seeds: missed(seeds)[..., counted].sum(axis=-1))
    words = f"best on {(~now).sum()} of {len(names)}" + (
        f", not on {', '.join(sorted(map(tasks.title, names[now])))}" if now.any() else ""
    )
    return Verdict(
        "bars-ood", "LQD (N) has the best novelty on all unseen functions but Salomon", "5 of 6",
        f"{words}; without Salomon, not on {low:.0f} to {high:.0f} of {counted.sum()}", "best on each of the others",
        lambda: statistics.below(0.5, low, high), parts=("ood",),
    )  # fmt: skip


def _ood_fitness(folder: Folder) -> Verdict:
    others = [rule for rule in folder.parts["ood"]["rules"] if rule != "lqd-f"]
    compared = {rule: _compare(folder, "ood", "lqd-f", rule, "fitness") for rule in others}
    worst = min(others, key=lambda rule: compared[rule][0].win_rate)
    shown_first = [worst, *(rule for rule in others if rule != worst)]
    return Verdict(
        "bars-ood", "LQD (F) is competitive in fitness on unseen functions (wins at least 45 % against every rule)",
        "competitive", f"the lowest of {len(others)} win rates is that against {SHORT[worst]}: {compared[worst][1]}",
        f"every win rate above {100 * statistics.LEAST_WIN_RATE:.0f} %", _not_worse_than_any,
        tuple(compared[rule][0] for rule in shown_first), ("ood",),
    )  # fmt: skip


def _not_worse_than_any(*findings: Finding) -> Answer:
    """Each of them may fail by chance: one that does has to be significantly worse as well."""
    if any(one.is_not_worse() is False and one.delta < 0 and one.p < statistics.LEVEL for one in findings):
        return False
    return True if all(one.is_not_worse() for one in findings) else None


def _grid(folder: Folder, parts: list[str], other: str) -> Verdict:
    ours, theirs = (
        np.concatenate([folder.table(part, rule)["fitness"] for part in parts], axis=1) for rule in ("lqd-f", other)
    )
    wins = statistics.wins(ours, theirs)
    share, low, high = statistics.interval(len(wins), lambda seeds: (wins[seeds].mean(axis=-2) > 0.5).mean(axis=-1))
    level = (wins.mean(axis=0) == 0.5).mean()
    found = statistics.compare(ours, theirs)
    return Verdict(
        "grid", f"LQD (F) beats {_named(other)} almost everywhere (in 90 % of the cells)",
        "almost everywhere" if other == "me" else OWN_BOX,
        f"wins in {100 * share:.0f} % ({100 * low:.0f} to {100 * high:.0f}) of {wins.shape[1]} cells, level in "
        f"{100 * level:.0f} %; {100 * wins.mean():.0f} % of all runs, ties half",
        "ahead in more than 90 % of the cells", lambda _: statistics.above(0.9, low, high), (found,), tuple(parts),
    )  # fmt: skip


def _diversity(folder: Folder, part: str, where: str) -> list[Verdict]:
    """Of robots, the novelty of individuals on fresh resets, equally many of each rule; beside it that of the whole
    population by what it was given in the run."""
    measure, luck = "novelty_again" if folder.num_resets(part) else "novelty", _luck(folder, [part])
    found = []
    for box in _boxes(folder, part):
        theirs = folder.table(part, box)
        for rule, limit, paper in (("lqd-f", 0.4, "about 40 % (Walker2d)"), ("ga", 0.1, "below 10 % (Walker2d)")):
            table = folder.table(part, rule)
            share, *ends = statistics.ratio(table[measure], theirs[measure])
            words = f"{100 * share:.1f} % ({100 * ends[0]:.1f} to {100 * ends[1]:.1f}){luck}"
            if measure != "novelty":
                whole = statistics.ratio(table["novelty"], theirs["novelty"])[0]
                words += f"; whole populations, as evaluated in the run: {100 * whole:.1f} %"
            is_ours = rule == "lqd-f"
            keeps = "LQD (F) keeps at least 40 %" if is_ours else "GA keeps less than 10 %"
            holds = functools.partial(statistics.above if is_ours else statistics.below, limit, *ends)
            found.append(
                Verdict("diversity", f"{keeps} of {_whose(box)} novelty {where}", paper if box == "me" else OWN_BOX,
                        words, f"{'above' if is_ours else 'below'} {100 * limit:.0f} %", holds, parts=(part,))
            )  # fmt: skip
    return found


def _named(rule: str) -> str:
    return "MAP-Elites (fitted box)" if rule == FITTED else SHORT[rule]


def _whose(rule: str) -> str:
    return "MAP-Elites's (fitted box)" if rule == FITTED else f"{SHORT[rule]}'s"


def _robots(folder: Folder, parts: list[str]) -> list[Verdict]:
    """LQD (F) against every other rule over all robot tasks; of the arm alone the paper claims nothing like it."""
    num = min(len(folder.table(part, "ga")["fitness"]) for part in parts)

    def best(rule):
        return np.column_stack([folder.best(part, rule)[:num, 0] for part in parts])

    found = []
    for rule in ("random", "ns", "me", "dns", "ga"):
        finding = statistics.compare(best("lqd-f"), best(rule))
        if rule == "ga":
            claim, paper = "LQD (F) is at least as fit as GA on the robot tasks", "better, not significantly"
            holds, needed = Finding.is_not_worse, f"win rate above {100 * statistics.LEAST_WIN_RATE:.0f} %"
        else:
            claim, paper = f"LQD (F) is fitter than {SHORT[rule]} on the robot tasks", "p < 0.005"
            holds, needed = Finding.is_better, AHEAD
        words = f"{_wins(finding)} on {len(parts)} tasks{_luck(folder, parts)}"
        found.append(Verdict("robots-aggregate", claim, paper, words, needed, holds, (finding,), tuple(parts)))
    return found


def _ablation(folder: Folder, part: str, where: str) -> list[Verdict]:
    blind, ours, ga = (folder.best(part, rule) for rule in (BLIND, "lqd-f", "ga"))
    uses, falls_back, luck = statistics.compare(ours, blind), statistics.compare(blind, ga), _luck(folder, [part])
    return [
        Verdict("ablation", f"LQD (F) is fitter with the task's descriptors than with random ones {where}",
                "significantly", _wins(uses) + luck, AHEAD, Finding.is_better, (uses,), (part,)),
        Verdict("ablation", f"LQD (F) with random descriptors is not better than GA {where}",
                "similar to GA", _wins(falls_back) + luck, f"win rate below {100 * statistics.MOST_WIN_RATE:.0f} %",
                Finding.is_not_better, (falls_back,), (part,)),
    ]  # fmt: skip


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
                f"rank correlation of score and distance to the nearest {distance:+.2f}", "above 0.5",
                lambda: distance > 0.5, effect=distance),
        Verdict("landscape", "LQD (F) rewards neighbourhoods of the fit", "seen in the figure",
                f"rank correlation of score and the nearest's fitness {fit:+.2f} (of score and distance "
                f"{fit_distance:+.2f})", "above 0.2", lambda: fit > 0.2, effect=fit),
        Verdict("landscape", "LQD (F+N) mixes the rewards of LQD (F) and LQD (N)", "seen in the figure",
                f"rank correlation of score and distance {mixed_distance:+.2f} (F {fit_distance:+.2f}, "
                f"N {distance:+.2f})", "between those of F and N",
                lambda: fit_distance < mixed_distance < distance, effect=mixed_distance),
    ]  # fmt: skip
