"""`lqd bench --suite claims`: does what we say of the trained rules hold? A table with a verdict for each claim.

On fresh instances of the 22 training functions (dimensions 2 to 12, no noise), never seen in training or validation.
A claim that one rule is better in a measure is tested as SPEC section 4 says: one number per seed (the sum over
functions of the rank among the runs of both), Mann-Whitney U between the seeds of both, Holm over all claims here; and
the win rate, paired by instance, ties half. A paired test stands beside it.

The rule of `lqd.bench.verdicts` decides: a number is reached if its 95 % interval is above it, and not reached if the
interval is below it or the test says the contrary; what is neither is inconclusive.

MAP-Elites leaves slots empty, and fewer individuals are farther apart: its novelty is also compared at equal slots,
that is with the novelty to be expected of as many individuals of the other rule, drawn at random. It runs twice: with
the paper's box (`me`), and with one that is fitted to each function and leaves fewer slots empty (`me-fitted`).
"""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from lqd import statistics
from lqd.bench.plan import OnPiece, Part, measure_all, write_csv
from lqd.bench.runner import AT_FITTED_SLOTS
from lqd.bench.settings import Setting
from lqd.errors import unknown
from lqd.io import manifest
from lqd.io.files import write_bytes
from lqd.rules import trained
from lqd.rules.catalogue import FITTED, HANDMADE
from lqd.statistics import Answer

MILLION_EVALUATIONS = (1_000_000 - 128) // 32  # as generations of 32 offspring after 128
PRESETS = {
    "quick": {"trained": Setting(num_seeds=20)},
    "full": {"trained": Setting(), "million": Setting(num_generations=MILLION_EVALUATIONS)},
}
LEFT_OUT = {"quick": ("lqd-f-paper",)}  # ten minutes are not enough for all

MEASURES = {
    "fitness": "fitness",
    "novelty": "novelty",
    "novelty_rarefied": "novelty at equal slots",
    AT_FITTED_SLOTS: "novelty at equal slots",
    "qd": "QD score",
}


@dataclasses.dataclass(frozen=True)
class Claim:
    """`least` and `goal` look at the findings of the pairs, in their order."""

    text: str
    rule: str
    pairs: tuple[tuple[str, str], ...]  # measure, other rule
    least: tuple[str, Callable[..., Answer]]
    goal: tuple[str, Callable[..., Answer]]


def _starts(rule: str, start: str, measure: str) -> Claim:
    said = ("better, p < 1e-3", lambda first: first.is_better(1e-3))
    return Claim(f"evolution adds to imitation ({measure})", rule, ((measure, start),), said, said)


def _of_f(title: str, rule: str) -> tuple[Claim, Claim]:
    """What is claimed of a rule trained for fitness."""
    return (
        Claim(
            f"{title} is fitter than GA",
            rule,
            (("fitness", "ga"), ("fitness", "dns"), ("fitness", "me"), ("fitness", FITTED)),
            (
                "win rate 70 %, p < 1e-9",
                lambda ga, dns, *_: statistics.all_of(ga.wins_more_than(0.7), ga.is_better(1e-9)),
            ),
            (
                "win rate 85 %, and 65 % against DNS",
                lambda ga, dns, *_: statistics.all_of(ga.wins_more_than(0.85), dns.wins_more_than(0.65)),
            ),
        ),
        Claim(
            f"{title} keeps diversity",
            rule,
            (
                ("novelty", "ga"),
                ("novelty", "me"),
                ("novelty", FITTED),
                ("novelty_rarefied", "me"),
                (AT_FITTED_SLOTS, FITTED),
            ),
            ("more novel than GA, p < 1e-3", lambda ga, *_: ga.is_better(1e-3)),
            (
                "40 % of MAP-Elites's novelty with either box",
                lambda ga, me, fitted, *_: statistics.all_of(me.is_more_than(0.4), fitted.is_more_than(0.4)),
            ),
        ),
    )


def _more_novel_than_map_elites(box: str, other: str, at_equal_slots: str) -> Claim:
    return Claim(
        f"LQD (F+N) is more novel than MAP-Elites ({box})",
        "lqd-fn",
        ((at_equal_slots, other), ("fitness", other), ("novelty", other)),
        ("better at equal slots, p < 1e-7", lambda novelty, fitness, _: novelty.is_better(1e-7)),
        ("also fitter, p < 1e-3", lambda novelty, fitness, _: fitness.is_better(1e-3)),
    )


CLAIMS = (
    *_of_f("LQD (F)", "lqd-f"),
    Claim(
        "LQD (N) is more novel than NS",
        "lqd-n",
        (("novelty", "ns"),),
        ("1.0 of NS's novelty", lambda ns: ns.is_more_than(1.0)),
        ("better, p < 1e-9", lambda ns: ns.is_better(1e-9)),
    ),
    _more_novel_than_map_elites("the paper's box", "me", "novelty_rarefied"),
    _more_novel_than_map_elites("fitted box", FITTED, AT_FITTED_SLOTS),
    Claim(
        "LQD (F+N) against DNS (QD score)",
        "lqd-fn",
        (("qd", "dns"),),
        ("lower 95 % bound of the ratio above 0.95", lambda dns: dns.is_more_than(statistics.LEAST_RATIO)),
        ("better, p < 1e-3", lambda dns: dns.is_better(1e-3)),
    ),
    _starts("lqd-f", "lqd-imitates-dns", "fitness"),
    _starts("lqd-n", "lqd-imitates-ns", "novelty"),
    _starts("lqd-fn", "lqd-imitates-dns", "qd"),
    *_of_f("LQD (F), the paper's recipe,", "lqd-f-paper"),
)


def rules_needed(preset: str = "full") -> list[str]:
    """Baselines, the trained rules, and what they began from."""
    claims = [claim for claim in CLAIMS if claim.rule not in LEFT_OUT.get(preset, ())]
    named = [claim.rule for claim in claims] + [other for claim in claims for _, other in claim.pairs]
    return list(dict.fromkeys([*HANDMADE, FITTED, *named]))


def run(preset: str, out: pathlib.Path, progress: OnPiece = lambda *_: None) -> dict[str, Any]:
    """Runs what is missing, judges, and writes claims.json, claims.md and results.csv."""
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    settings = PRESETS[preset]
    plan = {name: Part(setting, tuple(rules_needed(preset))) for name, setting in settings.items()}
    results = measure_all(plan, out / "pieces" / preset, progress)
    found = results.tables
    content = {
        "preset": preset,
        "made": results.facts(),
        "settings": {
            name: {
                "setting": dataclasses.asdict(setting) | {"num_evaluations": setting.num_evaluations},
                "claims": judge(found[name]),
                "scores": scores(found[name]),
            }
            for name, setting in settings.items()
        },
    }
    manifest.write(out / "claims.json", content)
    write_bytes(out / "claims.md", markdown(content).encode())
    write_csv(out / "results.csv", results)
    return content


def judge(tables: dict[str, dict[str, np.ndarray]]) -> list[dict[str, Any]]:
    """The claims about the rules that there are results of, with what was found and a verdict each."""
    claims = [claim for claim in CLAIMS if {claim.rule, *(other for _, other in claim.pairs)} <= tables.keys()]
    pairs = [(claim, measure, other) for claim in claims for measure, other in claim.pairs]
    tested = [statistics.compare(tables[c.rule][m], tables[o][m], m) for c, m, o in pairs]
    found = {
        (claim.rule, measure, other): finding
        for (claim, measure, other), finding in zip(pairs, statistics.adjusted(tested), strict=True)
    }
    return [_verdict(claim, found) for claim in claims]


def _verdict(claim: Claim, found: dict[tuple[str, str, str], statistics.Finding]) -> dict[str, Any]:
    row: dict[str, Any] = {"claim": claim.text, "rule": claim.rule, "least": claim.least[0], "goal": claim.goal[0]}
    findings = [found[claim.rule, measure, other] for measure, other in claim.pairs]
    reached = "goal reached" if claim.goal[1](*findings) else "holds"
    verdict = {True: reached, False: "not reached", None: "inconclusive"}[claim.least[1](*findings)]
    named = zip(claim.pairs, findings, strict=True)
    return row | {
        "verdict": verdict,
        "findings": [{"measure": m, "against": o} | finding._asdict() for (m, o), finding in named],
    }


def scores(tables: dict[str, dict[str, np.ndarray]]) -> dict[str, Any]:
    """For the cards: every trained rule against every baseline, and how many slots were filled."""
    return {
        rule: {
            "num_filled": float(np.mean(table["num_filled"])),
            "against": {
                other: {
                    "win_rate_fitness": float(statistics.wins(table["fitness"], tables[other]["fitness"]).mean()),
                    **{
                        f"ratio_{m}": statistics.ratio(table[m], tables[other][m])[0]
                        for m in ("novelty", AT_FITTED_SLOTS if other == FITTED else "novelty_rarefied", "qd")
                    },
                    "num_filled": float(np.mean(tables[other]["num_filled"])),
                }
                for other in (*HANDMADE, FITTED)
                if other in tables
            },
        }
        for rule, table in tables.items()
        if rule in trained.NAMES
    }


COLUMNS = ("measure", "against", "wins", "p", "paired p", "delta", "ratio")


def cells(finding: dict[str, Any]) -> tuple[str, ...]:
    """What was found, in words: a cell of each column."""

    def chance(p: float) -> str:
        return "< 1e-12" if p < 1e-12 else f"{p:.1g}"

    wins, low, high = (100 * finding[name] for name in ("win_rate", "win_low", "win_high"))
    ratio = f"{finding['ratio']:.3g} ({finding['ratio_low']:.3g} to {finding['ratio_high']:.3g})"
    return (
        MEASURES[finding["measure"]], finding["against"], f"{wins:.1f} % ({low:.1f} to {high:.1f})",
        chance(finding["p"]), chance(finding["paired_p"]), f"{finding['delta']:+.2f}",
        f"their regret is {ratio} times ours" if finding["measure"] == "fitness" else f"{ratio} times theirs",
    )  # fmt: skip


def markdown(content: dict[str, Any]) -> str:
    """The table of verdicts, for people."""
    made = content["made"]
    lines = [
        "# The claims about the trained rules",
        "",
        f"`lqd bench --suite claims --preset {content['preset']}`, {', '.join(made['devices'])}, "
        f"jax {made['versions']['jax']}, lqd {made['versions']['lqd']}, {made['at'][:10]}.",
        "",
        "Intervals are of 95 %, by resampling seeds. p: Mann-Whitney between the seeds of both rules; paired p: sign "
        "flips of each seed's wins minus losses on the same instances. Both are exact; each has Holm's correction over "
        "its column. No verdict depends on the paired one. A number is reached if its interval is above it, not "
        "reached if the interval is below it or the test says the contrary; what is neither is inconclusive.",
        "",
    ]
    for part in content["settings"].values():
        setting = part["setting"]
        lines += [
            f"## {setting['num_generations']:,} generations ({setting['num_evaluations']:,} evaluations)",
            "",
            f"{len(setting['functions'])} functions, dimensions {setting['min_dim']} to {setting['max_dim']}, "
            f"{setting['num_seeds']} seeds, population {setting['population_size']}, batch {setting['batch_size']}.",
            "",
            "| claim | rule | least | goal | verdict |",
            "| --- | --- | --- | --- | --- |",
        ]
        lines += [
            f"| {row['claim']} | `{row['rule']}` | {row['least']} | {row['goal']} | **{row['verdict']}** |"
            for row in part["claims"]
        ]
        lines += ["", f"| claim | {' | '.join(COLUMNS)} |", f"| --- |{' --- |' * len(COLUMNS)}"]
        lines += [
            f"| {row['claim']} | {' | '.join(cells(finding))} |"
            for row in part["claims"]
            for finding in row["findings"]
        ]
        filled = {rule: found["num_filled"] for rule, found in part["scores"].items()}
        others = next(iter(part["scores"].values()))["against"] if part["scores"] else {}
        filled |= {rule: found["num_filled"] for rule, found in others.items()}
        lines += ["", "Filled slots: " + ", ".join(f"`{rule}` {num:.0f}" for rule, num in filled.items()) + ".", ""]
    return "\n".join(lines)
