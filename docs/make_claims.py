"""The tables of docs/claims.md, from the folders in results/: `python docs/make_claims.py`.

Whatever stands between `<!-- NAME -->` and `<!-- end -->` is replaced; a test compares the page with the results.
"""

import functools
import json
import pathlib

import numpy as np

from lqd.bench.results import Folder
from lqd.bench.suites import BLIND
from lqd.bench.verdicts import verdicts
from lqd.rules.catalogue import SHORT

ROOT = pathlib.Path(__file__).parents[1]
PAGE = ROOT / "docs" / "claims.md"


def table(titles, rows) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def claims(folder: str) -> str:
    """What `lqd report` says of the paper's claims."""
    titles = ["figure", "the paper's claim", "in the paper", "here", "p", "verdict"]
    rows = []
    for row in verdicts(Folder(ROOT / "results" / folder)):
        p = "" if row["p"] is None else f"{row['p']:.0e}" if row["p"] < 0.001 else f"{row['p']:.3f}"
        verdict = row["verdict"] if row["verdict"] == "holds" else f"**{row['verdict']}**"
        rows.append([row["figure"], row["claim"], row["paper"], row["ours"], p, verdict])
    return table(titles, rows)


def returns(name: str) -> str:
    """The best fitness of all evaluations on each robot: median and quartiles over seeds."""
    folder = Folder(ROOT / "results" / name)
    robots = [part for part in folder.parts if part != "arm"]
    rows = []
    for rule in folder.parts[robots[0]]["rules"]:
        found = [folder.history(robot, rule)["best"][-1, :, 0] for robot in robots]
        low, middle, high = (np.quantile(found, q, axis=1) for q in (0.25, 0.5, 0.75))
        rows.append(
            [
                (SHORT | {BLIND: "LQD (F), random descriptors"})[rule],
                *(f"{m:.0f} ({a:.0f} to {b:.0f})" for a, m, b in zip(low, middle, high, strict=True)),
            ]
        )
    return table(["rule", *robots], rows)


def trained() -> str:
    """The verdicts on the trained rules, one column for each length of the runs."""
    settings = json.loads((ROOT / "results" / "claims" / "claims.json").read_text())["settings"].values()
    lengths = [f"{found['setting']['num_evaluations']:,} evaluations" for found in settings]
    rows = [
        [same[0]["claim"], f"`{same[0]['rule']}`", same[0]["least"], same[0]["goal"], *(row["verdict"] for row in same)]
        for same in zip(*(found["claims"] for found in settings), strict=True)
    ]
    return table(["claim", "rule", "least", "goal", *lengths], rows)


def generalisation() -> str:
    """Lowest and highest over the settings other than the one of the training."""
    found = json.loads((ROOT / "results" / "generalisation" / "generalisation.json").read_text())["rows"]
    titles = {"fitter than GA": "fitter_than_ga", "than DNS": "fitter_than_dns", "than MAP-Elites": "fitter_than_me"}
    titles |= {"novelty / NS's": "novelty_of_ns", "/ MAP-Elites's": "novelty_of_me", "QD score / DNS's": "qd_of_dns"}
    rows = []
    for rule in dict.fromkeys(row["rule"] for row in found):
        far = [row for row in found if row["rule"] == rule and row["setting"] != "as trained"]
        rows.append([f"`{rule}`"])
        for name in titles.values():
            low, high = (of(row[name] for row in far) for of in (min, max))
            share = name.startswith("fitter")
            rows[-1].append(f"{100 * low:.0f} to {100 * high:.0f} %" if share else f"{low:.3g} to {high:.3g}")
    return table(["rule", *titles], rows)


TABLES = {
    "paper": functools.partial(claims, "paper"),
    "robots": functools.partial(claims, "robots"),
    "returns": functools.partial(returns, "robots"),
    "longer": functools.partial(returns, "robots-longer"),
    "trained": trained,
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
