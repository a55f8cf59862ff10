"""The tables of docs/claims.md, from the folders in results/: `python docs/make_claims.py`.

Whatever stands between `<!-- NAME -->` and `<!-- end -->` is replaced; a test compares the page with the results.
"""

import functools
import itertools
import json
import operator
import pathlib

import numpy as np

from lqd.bench.again import NUM_ELITES
from lqd.bench.claims import MEASURES
from lqd.bench.generalisation import cell
from lqd.bench.results import Folder
from lqd.bench.verdicts import counts, verdicts
from lqd.report.page import number
from lqd.rules.catalogue import SHORT
from lqd.tasks import ROBOTS

ROOT = pathlib.Path(__file__).parents[1]
PAGE = ROOT / "docs" / "claims.md"


def table(titles, rows) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


EMPHASIS = {"holds": "", "does not hold": "**", "inconclusive": "*"}


def claims(folder: str) -> str:
    """What `lqd report` says of the paper's claims."""
    titles = ["figure", "the paper's claim", "the paper says", "here", "needed to hold", "p", "paired p", "verdict"]
    found = verdicts(Folder(ROOT / "results" / folder))
    rows = []
    for row in found:
        mark = EMPHASIS[row["verdict"]]
        said = [row[name] for name in ("cites", "claim", "paper", "ours", "needed")]
        rows.append([*said, number(row["p"]), number(row["paired_p"]), f"{mark}{row['verdict']}{mark}"])
    return f"{counts(found)}.\n\n{table(titles, rows)}"


def by_robot(name: str, values) -> str:
    """Of each rule on each robot, median and quartiles over seeds of what `values(folder, robot, rule)` gives."""
    folder = Folder(ROOT / "results" / name)
    robots = [part for part in folder.parts if part in ROBOTS]
    rows = []
    for rule in folder.parts[robots[0]]["rules"]:
        quartiles = [np.quantile(values(folder, robot, rule)[:, 0], (0.25, 0.5, 0.75)) for robot in robots]
        cells = [" to ".join(f"{end:.{3 if abs(m) < 10 else 0}f}" for end in (low, high)) for low, m, high in quartiles]
        middles = [f"{m:.{3 if abs(m) < 10 else 0}f}" for _, m, _ in quartiles]
        rows.append([SHORT[rule], *(f"{m} ({ends})" for m, ends in zip(middles, cells, strict=True))])
    return table(["rule", *robots], rows)


def num_resets(name: str) -> int:
    """On how many resets all robots of a folder were evaluated again."""
    folder = Folder(ROOT / "results" / name)
    return min(folder.num_resets(part) for part in folder.parts if part in ROBOTS)


def returns(name: str) -> str:
    """What the best solution of each run is worth."""
    num = num_resets(name)
    said = f"The mean return of the best solution of each run, on {num} resets that the run never saw."
    if not num:
        said = "The highest return of a single evaluation, which is partly luck: these runs are from before their best "
        said += "solutions were evaluated again."
    return f"{said}\n\n{by_robot(name, Folder.best)}"


def elites(name: str) -> str:
    """Mean return and novelty of individuals of the last populations, evaluated again."""
    num = num_resets(name)
    if not num:
        return "(These runs are from before elites were evaluated again.)"
    parts = [
        ("Mean return", "elites_again"),
        ("Novelty (mean distance of mean descriptors to the three nearest)", "novelty_again"),
    ]
    said = f"of {NUM_ELITES} individuals drawn at random from each last population, on {num} fresh resets:"
    tables = [
        f"{title} {said}\n\n{by_robot(name, lambda folder, part, rule, m=m: folder.table(part, rule)[m])}"
        for title, m in parts
    ]
    return "\n\n".join(tables)


def trained() -> str:
    """The verdicts on the trained rules, one column for each length of the runs."""
    settings = json.loads((ROOT / "results" / "claims" / "claims.json").read_text())["settings"].values()
    lengths = [f"{found['setting']['num_evaluations']:,} evaluations" for found in settings]
    rows = [
        [same[0]["claim"], f"`{same[0]['rule']}`", same[0]["least"], same[0]["goal"], *(row["verdict"] for row in same)]
        for same in zip(*(found["claims"] for found in settings), strict=True)
    ]
    return table(["claim", "rule", "least", "goal", *lengths], rows)


def tie_breaks() -> str:
    """The claims with the tie-break that there was before, beside those with today's: what both have."""
    before, after = (
        [
            {
                (row["rule"], found["measure"], found["against"]): found
                for row in part["claims"]
                for found in row["findings"]
            }
            for part in json.loads((ROOT / "results" / "claims" / f"{name}.json").read_text())["settings"].values()
        ]
        for name in ("tie-break-1", "claims")
    )

    def cells(found) -> list[str]:
        wins = f"{100 * found['win_rate']:.1f} % ({100 * found['win_low']:.1f} to {100 * found['win_high']:.1f})"
        return [wins, f"{found['ratio']:.3g} ({found['ratio_low']:.3g} to {found['ratio_high']:.3g})"]

    rows = [
        [
            f"{length}",
            f"`{rule}`",
            MEASURES[measure],
            other,
            *itertools.chain(*zip(cells(old), cells(new[key]), strict=True)),
        ]
        for length, olds, new in zip(("8,320", "a million"), before, after, strict=True)
        for key, old in olds.items()
        for rule, measure, other in [key]
        if rule != "lqd-f-paper"  # breaks no ties
    ]
    return table(["evaluations", "rule", "measure", "against", "wins, 1", "wins, 2", "ratio, 1", "ratio, 2"], rows)


def generalisation() -> str:
    """Lowest and highest over the settings other than the one of the training."""
    found = json.loads((ROOT / "results" / "generalisation" / "generalisation.json").read_text())["rows"]
    titles = {"fitter than GA": "fitter_than_ga", "than DNS": "fitter_than_dns", "than MAP-Elites": "fitter_than_me"}
    titles |= {"(fitted box)": "fitter_than_me-fitted"}
    titles |= {"novelty / NS's": "novelty_of_ns", "/ MAP-Elites's": "novelty_of_me"}
    titles |= {"/ its (fitted box)": "novelty_of_me-fitted", "QD score / DNS's": "qd_of_dns"}
    rows = []
    for rule in dict.fromkeys(row["rule"] for row in found):
        far = [row for row in found if row["rule"] == rule and row["setting"] != "as trained"]
        ends = [[of(far, key=operator.itemgetter(name)) for of in (min, max)] for name in titles.values()]
        cells = [" to ".join(cell(row, name) for row in pair) for name, pair in zip(titles.values(), ends, strict=True)]
        rows.append([f"`{rule}`", *cells])
    said = "In brackets, intervals by resampling seeds, which with 95 % hold for all settings together."
    return f"{table(['rule', *titles], rows)}\n\n{said}"


TABLES = {
    "paper": functools.partial(claims, "paper"),
    "robots": functools.partial(claims, "robots"),
    "returns": functools.partial(returns, "robots"),
    "elites": functools.partial(elites, "robots"),
    "longer": functools.partial(returns, "robots-longer"),
    "longer claims": functools.partial(claims, "robots-longer"),
    "trained": trained,
    "tie-breaks": tie_breaks,
    "generalisation": generalisation,
}


def updated(text: str) -> str:
    for name, make in TABLES.items():
        before, _, rest = text.partition(f"<!-- {name} -->")
        _, end, after = rest.partition("<!-- end -->")
        if not end:
            raise SystemExit(f"{PAGE} has no place for the table {name!r}: <!-- {name} --> and <!-- end -->.")
        text = f"{before}<!-- {name} -->\n\n{make()}\n\n{end}{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
    print(f"Wrote {PAGE}")
