"""The tests behind the claims: which rule is better, how sure, and by how much. NumPy in, plain numbers out.

Ranks and trimmed means are SciPy's. Ours are `mann_whitney`, as SciPy's exact test is not exact where values are tied;
`holm`, as SciPy has only false discovery rates; and the bootstraps, as published intervals came from these draws.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Real


def wins(ours: Float[np.ndarray, "..."], theirs: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """1 where ours is higher, one half in a tie; a run that left nothing to measure loses."""
    ours, theirs = (np.where(np.isnan(values), -np.inf, values) for values in (ours, theirs))
    return np.where(ours > theirs, 1.0, np.where(ours == theirs, 0.5, 0.0))


def seed_scores(
    ours: Float[np.ndarray, "S F"], theirs: Float[np.ndarray, "S F"]
) -> tuple[Int[np.ndarray, " S"], Int[np.ndarray, " S"]]:
    """One number per seed: the sum over functions of twice the rank among the runs of both on that function.

    Ranks, so that no function decides by the size of its values; doubled, so that means of tied ranks are whole
    numbers. Sums of whole numbers are exact: seeds that tie have equal scores, which means of fractions need not have.
    """
    from scipy.stats import rankdata

    both = np.concatenate([ours, theirs]).astype(np.float64)
    both = np.where(np.isnan(both), -np.inf, both)
    scores = np.rint(2 * rankdata(both, axis=0)).astype(int).sum(axis=1)
    return scores[: len(ours)], scores[len(ours) :]


def mann_whitney(ours: Real[np.ndarray, " n"], theirs: Real[np.ndarray, " m"]) -> tuple[float, float]:
    """Two-sided p-value, and Cliff's delta: the share of pairs in which ours is higher minus that of lower ones.

    Exact, also with ties: of all ways to deal out the ranks (means of ranks where tied), how many are as extreme. The
    usual normal approximation cannot say anything about p-values below 1e-6 from 20 against 20.
    """
    from scipy.stats import rankdata

    both = np.concatenate([np.asarray(ours, np.float64), np.asarray(theirs, np.float64)])
    doubled = np.rint(2 * rankdata(both)).astype(int)  # halves of ties become whole numbers
    num_ours, total = len(ours), int(doubled.sum())
    ways = np.zeros((num_ours + 1, total + 1))  # how many choices of so many ranks have this sum
    ways[0, 0] = 1
    for rank in doubled:
        ways[1:, rank:] += ways[:-1, : total + 1 - rank]
    found = int(doubled[:num_ours].sum())
    shares = ways[num_ours] / ways[num_ours].sum()
    p = min(1.0, 2 * min(float(shares[: found + 1].sum()), float(shares[found:].sum())))
    u = found / 2 - num_ours * (num_ours + 1) / 2
    return p, float(2 * u / (num_ours * len(theirs)) - 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm-Bonferroni: p-values that may be compared with one level for the whole family."""
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    scaled = np.minimum(1.0, p[order] * (len(p) - np.arange(len(p))))
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(scaled)
    return adjusted.tolist()


def ratio(ours: Float[np.ndarray, "S F"], theirs: Float[np.ndarray, "S F"]) -> tuple[float, float, float]:
    """Ours in units of theirs, with a 95 % interval by resampling seeds.

    Each function is divided by their mean on it first, so that all functions count alike; a function on which they
    have nothing is left out, and if there is no other, something is infinitely more.
    """
    unit = np.mean(theirs, axis=0)
    kept = unit > 0
    if not kept.any():
        return (float("inf"),) * 3 if np.any(ours > 0) else (1.0,) * 3
    first, second = (np.asarray((values[:, kept] / unit[kept]).mean(axis=1), np.float64) for values in (ours, theirs))
    return _interval(len(first), lambda seeds: first[seeds].mean(axis=-1) / second[seeds].mean(axis=-1))


def geometric_ratio(ours: Float[np.ndarray, "S F"], theirs: Float[np.ndarray, "S F"]) -> tuple[float, float, float]:
    """The same as the geometric mean of paired ratios of positive values, for those that differ by powers of ten."""
    logs = np.asarray(np.log(np.asarray(ours, np.float64) / theirs).mean(axis=1))
    return _interval(len(logs), lambda seeds: np.exp(logs[seeds].mean(axis=-1)))


def _interval(num_seeds: int, statistic, num_resamples: int = 4000) -> tuple[float, float, float]:
    """Of a function of the seeds that are taken: its value for all of them, and a bootstrap interval.

    Not SciPy's bootstrap: with other draws, the last digits of published intervals would change.
    """
    seeds = np.random.default_rng(0).integers(num_seeds, size=(num_resamples, num_seeds))
    with np.errstate(divide="ignore", invalid="ignore"):  # by chance, only seeds on which they have nothing
        low, high = np.nanquantile(statistic(seeds), [0.025, 0.975])
    return float(statistic(np.arange(num_seeds))), float(low), float(high)


class Finding(NamedTuple):
    """One rule against another in one measure: wins, how sure (p) and how large (Cliff's delta, the ratio) it is."""

    win_rate: float
    p: float
    delta: float
    ratio: float
    ratio_low: float
    ratio_high: float

    @property
    def is_better(self) -> bool:
        return self.delta > 0


def compare(ours: Float[np.ndarray, "S F"], theirs: Float[np.ndarray, "S F"], measure: str) -> Finding:
    """Seeds by functions of one rule against another's; the ratio of fitness is that of their regret to ours."""
    p, delta = mann_whitney(*seed_scores(ours, theirs))
    found = geometric_ratio(regret(theirs), regret(ours)) if measure == "fitness" else ratio(ours, theirs)
    return Finding(float(wins(ours, theirs).mean()), p, delta, *found)


# Against Random, and over many runs


def relative(values: Float[np.ndarray, "S F"], unit: Float[np.ndarray, "S F"], measure: str):
    """In units of what another rule, mostly Random, reaches on each function (the median of its seeds).

    For fitness, whose optimum is 0 here, the regret ratio (Random's over ours) with a floor of 1e-8, below which
    single precision cannot tell; otherwise the plain ratio. Where the unit is 0 the result is NaN.
    """
    if measure in ("fitness", "best"):
        return np.median(regret(unit), axis=0) / regret(values)
    median = np.median(unit, axis=0)
    return np.where(median > 0, values / np.where(median > 0, median, 1.0), np.nan)


def regret(fitness: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Distance to the optimum, which is at 0; with a floor, as float32 cannot tell below."""
    return np.maximum(-np.asarray(fitness, np.float64), 1e-8)


def interquartile_mean(values: Float[np.ndarray, "S F"]) -> tuple[float, float, float]:
    """The mean of the middle half of all runs, with a 95 % interval by resampling seeds within each function."""
    from scipy.stats import trim_mean

    def middle(sample):
        return trim_mean(sample.reshape(*sample.shape[:-2], -1), 0.25, axis=-1)

    rng = np.random.default_rng(0)
    num_seeds, num_functions = values.shape
    picks = rng.integers(num_seeds, size=(2000, num_seeds, num_functions))
    low, high = np.quantile(middle(np.take_along_axis(values[None], picks, axis=1)), [0.025, 0.975])
    return float(middle(values)), float(low), float(high)


def middle_of_logs(values: Float[np.ndarray, "S F"]) -> Float[np.ndarray, " S"]:
    """For each seed, the geometric mean over the middle half of the functions: no zero of a single one decides."""
    from scipy.stats import trim_mean

    with np.errstate(divide="ignore"):
        logs = np.log(values)
    return np.exp([trim_mean(row[~np.isnan(row)], 0.25) for row in logs])


def profile(values: Float[np.ndarray, "S F"], levels: Float[np.ndarray, " L"]) -> Float[np.ndarray, " L"]:
    """The share of runs that reach each level."""
    return (values.reshape(-1, 1) >= levels).mean(axis=0)


def quartiles(values: Float[np.ndarray, "S ..."]) -> Float[np.ndarray, "3 ..."]:
    """Lower quartile, median and upper quartile over the seeds."""
    return np.quantile(values, [0.25, 0.5, 0.75], axis=0)
