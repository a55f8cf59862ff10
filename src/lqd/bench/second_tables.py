"""The tables of `lqd bench --suite second`: what is compared, the numbers, and their Markdown.

A comparison is `statistics.compare`'s, as in the other suites: the share of tasks won (ties half) with an interval by
resampling seeds, Mann-Whitney between the seeds of both rules (two-sided), a paired test by sign flips, Cliff's delta,
and a ratio that is paired by task. Both p-values have Holm's correction over the comparisons of their table.

Of best fitness, what counts is the regret of the best solution ever evaluated, at least 1e-8: single precision cannot
tell below, so two that are both there are level. Ratios of regret and of novelty are of means of logarithms, as no task
should decide by the size of its values. On the grid, each task is compared by itself.
"""

import itertools
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from lqd import statistics
from lqd.bench.domains import DOMAINS
from lqd.bench.watched import Seen
from lqd.io.terminal import number

MAP_ELITES = "me+led"
LEAST_NOVELTY = 1e-12  # its logarithm is finite


class Table(NamedTuple):
    """What is judged, against whom, on the runs of which part."""

    title: str
    part: str
    ours: tuple[str, ...]
    others: tuple[str, ...]


_FITNESS = ("lqd-f+led", "lqd-f+paper", "ga+led", MAP_ELITES, "cma-es")
_GRID = ("lqd-fn+spread", "lqd-fn+led", "dns+spread", "dns+tuned", "cma-me", "cma-mae")
TABLES = {
    "fitness": Table("Best fitness in 2 to 12 dimensions", "bbob", ("lqd2-f+led",), _FITNESS),
    "fitness-40": Table("Best fitness in 40 dimensions", "bbob-40", ("lqd2-f+led",), _FITNESS),
    "diversity": Table(
        "Diversity of what was trained for fitness", "bbob", ("lqd2-f+led",), ("lqd-f+led", "ga+led", MAP_ELITES)
    ),
    "novelty": Table("Novelty", "bbob", ("lqd2-n+led",), ("ns+led", "lqd-n+led", "lqd-n+paper")),
    "grid": Table("QD score on a grid", "grid", ("lqd2-fn+led",), _GRID),
    "million": Table("QD score on a grid, a million evaluations", "million", ("lqd2-fn+led",), _GRID),
}


class Found(NamedTuple):
    """Results: part -> name -> measures; and part -> task -> name -> what was seen."""

    bbob: dict[str, dict[str, dict[str, np.ndarray]]]
    grid: dict[str, dict[str, dict[str, Seen]]]


def content(tables: dict[str, Table], found: Found) -> dict[str, Any]:
    """Rows and comparisons of every table, in numbers."""
    return {"tables": {name: _content(name, table, found) for name, table in tables.items()}}


def _content(name: str, table: Table, found: Found) -> dict[str, Any]:
    if table.part in found.grid:
        rows, pairs = _on_grid(table, found.grid[table.part])
    elif name == "diversity":
        rows, pairs = _diversity(table, found.bbob[table.part]), []
    else:
        measured = {one: _measured(name, found.bbob[table.part][one]) for one in (*table.ours, *table.others)}
        rows = [{"rule": one} | _mean("value", values) for one, values in measured.items()]
        pairs = [
            ({"rule": ours, "against": other}, _compared(name, measured[ours], measured[other]))
            for ours, other in itertools.product(table.ours, table.others)
        ]
    corrected = statistics.adjusted([finding for _, finding in pairs])
    compared = [about | one._asdict() for (about, _), one in zip(pairs, corrected, strict=True)]
    return {"title": table.title, "rows": rows, "comparisons": compared}


def _measured(name: str, table: dict[str, np.ndarray]) -> Float[np.ndarray, "S F"]:
    """Logarithms to base 10 of regret, or of novelty."""
    if name.startswith("fitness"):
        return np.log10(statistics.regret(table["history.best"][-1]))
    return np.log10(np.maximum(np.asarray(table["novelty"], np.float64), LEAST_NOVELTY))


def _compared(name: str, ours: Float[np.ndarray, "S F"], theirs: Float[np.ndarray, "S F"]) -> statistics.Finding:
    """Of logarithms; a ratio above 1 speaks for ours."""
    sign = -1.0 if name.startswith("fitness") else 1.0
    found = statistics.compare(sign * ours, sign * theirs)
    times = statistics.geometric_ratio(10.0 ** (sign * ours), 10.0 ** (sign * theirs))
    return found._replace(ratio=times[0], ratio_low=times[1], ratio_high=times[2])


def _mean(name: str, values: Float[np.ndarray, "S ..."]) -> dict[str, float]:
    """The mean over everything, with an interval by resampling seeds."""
    by_seed = values.reshape(len(values), -1).mean(axis=1)
    mean, low, high = statistics.interval(len(by_seed), lambda seeds: by_seed[seeds].mean(axis=-1))
    return {name: mean, f"{name}_low": low, f"{name}_high": high}


def _diversity(table: Table, tables: dict[str, dict[str, np.ndarray]]) -> list[dict[str, Any]]:
    """Novelty at the slots that MAP-Elites fills, in units of MAP-Elites's own."""
    unit, rows = tables[MAP_ELITES]["novelty_rarefied"], []
    for one in dict.fromkeys((*table.ours, *table.others)):
        share, low, high = statistics.ratio(tables[one]["novelty_rarefied"], unit)
        slots = float(tables[one]["num_filled"].mean())
        rows.append({"rule": one, "value": share, "value_low": low, "value_high": high, "num_filled": slots})
    return rows


def _on_grid(table: Table, found: dict[str, dict[str, Seen]]):
    rows, pairs = [], []
    for task, by_name in found.items():
        for one in (*table.ours, *table.others):
            seen = by_name[one]
            row = {"task": task, "rule": one, "num_evaluations": int(seen.num_evaluations[-1])}
            row |= _mean("value", seen.qd_score[-1]) | _mean("coverage", seen.coverage[-1])
            rows.append(row)
        for ours, other in itertools.product(table.ours, table.others):
            first, second = (np.asarray(by_name[one].qd_score[-1], np.float64)[:, None] for one in (ours, other))
            about = {"task": task, "rule": ours, "against": other}
            pairs.append((about, statistics.compare(first, second, "qd")))
    return rows, pairs


# What is shown

Shown = tuple[tuple[str, ...], list[tuple[str, ...]]]  # header and rows
VALUES = {
    "fitness": "log10 of regret",
    "fitness-40": "log10 of regret",
    "diversity": "novelty at equal slots, % of MAP-Elites's",
    "novelty": "log10 of novelty",
    "grid": "QD score",
    "million": "QD score",
}
RATIOS = {"fitness": "their regret / ours", "fitness-40": "their regret / ours", "novelty": "novelty, ours / theirs"}
ABOUT = {
    "fitness": "Mean over all tasks of the regret's logarithm: lower is better.",
    "fitness-40": "Mean over all tasks of the regret's logarithm: lower is better.",
    "diversity": "MAP-Elites leaves slots empty, and fewer individuals are farther apart: so many of each rule are "
    "drawn, and the novelty to be expected of them is compared.",
    "novelty": "Of the whole last population.",
    "grid": "A grid of 100 x 100 cells sees every solution: the sum of the best objectives of its cells.",
    "million": "A grid of 100 x 100 cells sees every solution: the sum of the best objectives of its cells.",
}


def shown(name: str, table: dict[str, Any]) -> list[Shown]:
    """The rows of a table as text, and its comparisons, where there are some."""
    on_grid = "task" in table["rows"][0]
    first = ("task",) if on_grid else ()
    last = {"diversity": ("filled slots",), "grid": ("coverage, %",), "million": ("coverage, %",)}.get(name, ())
    found: list[Shown] = [((*first, "rule", VALUES[name], *last), [_row(name, row) for row in table["rows"]])]
    if table["comparisons"]:
        header = (
            *first,
            "rule",
            "against",
            "wins",
            "p",
            "paired p",
            "delta",
            RATIOS.get(name, "QD score, ours / theirs"),
        )
        found.append((header, [_comparison(row) for row in table["comparisons"]]))
    return found


def _row(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    first = (DOMAINS[row["task"]].title,) if "task" in row else ()
    value, low, high = (row[key] for key in ("value", "value_low", "value_high"))
    if name == "diversity":
        return (row["rule"], f"{100 * value:.1f} ({100 * low:.1f} to {100 * high:.1f})", f"{row['num_filled']:.0f}")
    if first:
        return (*first, row["rule"], f"{value:,.0f} ({low:,.0f} to {high:,.0f})", f"{100 * row['coverage']:.1f}")
    return (row["rule"], f"{value:+.2f} ({low:+.2f} to {high:+.2f})")


def _comparison(row: dict[str, Any]) -> tuple[str, ...]:
    first = (DOMAINS[row["task"]].title,) if "task" in row else ()
    wins, low, high = (100 * row[key] for key in ("win_rate", "win_low", "win_high"))
    p, paired = ("< 1e-12" if row[key] < 1e-12 else f"{row[key]:.1g}" for key in ("p", "paired_p"))
    ratio = f"{number(row['ratio'])} ({number(row['ratio_low'])} to {number(row['ratio_high'])})"
    about = (row["rule"], row["against"], f"{wins:.0f} % ({low:.0f} to {high:.0f})")
    return (*first, *about, p, paired, f"{row['delta']:+.2f}", ratio)


def markdown(content: dict[str, Any]) -> str:
    """All tables, with what they ran on and how."""
    made, size = content["made"], content["size"]
    evaluations = size["evaluations"]
    lines = [
        "# The second generation",
        "",
        f"`{content['command']}`, {', '.join(made['devices'])} ({made['platform']}), jax {made['versions']['jax']}, "
        f"lqd {made['versions']['lqd']}, {made['at'][:10]}; {made['seconds']:,.0f} s in all."
        + (" With the random numbers that choices are made on." if content["key"] == "validation" else ""),
        "",
        f"BBOB: {len(size['functions'])} functions, {size['num_seeds']} fresh instances each, no noise, population "
        f"128, batches of 32; {evaluations['bbob']:,} evaluations in 2 to 12 dimensions, {evaluations['bbob-40']:,} in "
        f"40. Grid: {size['num_grid_seeds']} seeds, {evaluations['grid']:,} evaluations.",
        "",
        "A name is a rule and how children are made: `led` (steps that individuals carry; rules of the second "
        "generation lead them, under others they adapt by survival alone), `spread` (the default of `lqd.optimize`), "
        "`paper` (iso-line with the paper's steps), `tuned` (iso-line with steps chosen for the task). `cma-es` is "
        "pycma's with restarts: 16 points a generation, a first step of a quarter of the box, twice the population "
        "after each restart. `cma-me` and `cma-mae` are pyribs's, with steps chosen for the task.",
        "",
        "Intervals are of 95 %, by resampling seeds. wins: the share of tasks on which the rule is ahead, ties half "
        "(on the grid, of seeds). p: Mann-Whitney between the seeds of both; paired p: sign flips of each seed's wins "
        "minus losses; each with Holm's correction over its table. delta is Cliff's. Of regret, 1e-8 is the least "
        "that counts.",
        "",
    ]
    lines += [f"{said}\n" for said in content["left_out"]]
    lines += [f"`{name}` has the weights with the fingerprint {known}.\n" for name, known in content["weights"].items()]
    for name, table in content["tables"].items():
        lines += [f"## {table['title']}", "", ABOUT[name], ""]
        for header, rows in shown(name, table):
            lines += [f"| {' | '.join(header)} |", f"|{' --- |' * len(header)}"]
            lines += [f"| {' | '.join(row)} |" for row in rows] + [""]
    return "\n".join(lines)
