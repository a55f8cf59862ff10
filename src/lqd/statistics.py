"""The tests behind the claims: which rule is better, how sure, and by how much. NumPy in, plain numbers out.

Ranks and trimmed means are SciPy's. Ours are `mann_whitney`, as SciPy's exact test is not exact where values are tied;
`sign_flips`, as SciPy's paired permutation test draws where this one counts; `holm`, as SciPy has only false discovery
rates; and the bootstraps, as published intervals came from these draws.

Questions have three answers: yes, no, and None where the data do not say.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Real

LEVEL = 0.05  # of tests
LEAST_WIN_RATE, MOST_WIN_RATE = 0.45, 0.55  # between them, no rule counts as better or worse
LEAST_RATIO = 0.95  # less is worse

Answer = bool | None


def above(limit: float, low: float, high: float) -> Answer:
    """Whether something is above a limit, from its interval."""
    return True if low > limit else False if high < limit else None


def below(limit: float, low: float, high: float) -> Answer:
    return above(-limit, -high, -low)


def all_of(*answers: Answer) -> Answer:
    """No if one is no, yes if all are yes."""
    return False if False in answers else None if None in answers else True


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
    ways = np.zeros((num_ours + 1, total + 1))  # how many choices of this many ranks have this sum
    ways[0, 0] = 1
    for rank in doubled:
        ways[1:, rank:] += ways[:-1, : total + 1 - rank]
    found = int(doubled[:num_ours].sum())
    shares = ways[num_ours] / ways[num_ours].sum()
    p = min(1.0, 2 * min(float(shares[: found + 1].sum()), float(shares[found:].sum())))
    u = found / 2 - num_ours * (num_ours + 1) / 2
    return p, float(2 * u / (num_ours * len(theirs)) - 1)


def sign_flips(scores: Int[np.ndarray, " S"]) -> float:
    """Two-sided p-value of whole numbers, one per seed, that are positive where ours is ahead: Fisher's paired test.

    If neither rule is better, a score is as likely as its negative. Of all 2^S ways to choose the signs, how many have
    a sum as far from 0 as the one found; counted, so exact for any number of seeds.
    """
    sizes = np.abs(scores)
    middle = int(sizes.sum())
    shares = np.zeros(2 * middle + 1)  # of each sum from -middle to middle
    shares[middle] = 1
    for size in sizes:
        shares = (np.roll(shares, size) + np.roll(shares, -size)) / 2  # what is rolled over the end is 0
    distance = np.abs(np.arange(-middle, middle + 1))
    return min(1.0, float(shares[distance >= abs(int(np.sum(scores)))].sum()))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm-Bonferroni: p-values that may be compared with one level for the whole family."""
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    scaled = np.minimum(1.0, p[order] * (len(p) - np.arange(len(p))))
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(scaled)
    return adjusted.tolist()


def win_rate(
    ours: Float[np.ndarray, "S F"], theirs: Float[np.ndarray, "S F"], confidence: float = 0.95
) -> tuple[float, float, float]:
    """The share of instances on which ours is higher, ties half, with an interval by resampling seeds."""
    won = wins(ours, theirs)
    return interval(len(won), lambda seeds: won.sum(axis=1)[seeds].sum(axis=-1) / won.size, confidence)


def ratio(
    ours: Float[np.ndarray, "S F"], theirs: Float[np.ndarray, "S F"], confidence: float = 0.95
) -> tuple[float, float, float]:
    """Ours in units of theirs, with an interval by resampling seeds.

    Each function is divided by their mean on it first, so that all functions count alike; a function on which they
    have nothing is left out, and if there is no other, something is infinitely more.
    """
    unit = np.mean(theirs, axis=0)
    kept = unit > 0
    if not kept.any():
        return (float("inf"),) * 3 if np.any(ours > 0) else (1.0,) * 3
    first, second = (np.asarray((values[:, kept] / unit[kept]).mean(axis=1), np.float64) for values in (ours, theirs))
    return interval(len(first), lambda seeds: first[seeds].mean(axis=-1) / second[seeds].mean(axis=-1), confidence)


def geometric_ratio(ours: Float[np.ndarray, "S F"], theirs: Float[np.ndarray, "S F"]) -> tuple[float, float, float]:
    """The same as the geometric mean of paired ratios of positive values, for those that differ by powers of ten."""
    logs = np.asarray(np.log(np.asarray(ours, np.float64) / theirs).mean(axis=1))
    return interval(len(logs), lambda seeds: np.exp(logs[seeds].mean(axis=-1)))


def interval(num_seeds: int, statistic, confidence: float = 0.95) -> tuple[float, float, float]:
    """Of a function of the seeds that are taken: its value for all of them, and a bootstrap interval.

    Not SciPy's bootstrap: with other draws, the last digits of published intervals would change.
    """
    seeds = np.random.default_rng(0).integers(num_seeds, size=(4000, num_seeds))
    with np.errstate(divide="ignore", invalid="ignore"):  # by chance, only seeds on which they have nothing
        low, high = np.nanquantile(statistic(seeds), [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(statistic(np.arange(num_seeds))), float(low), float(high)


def mean_interval(values: Float[np.ndarray, "... S"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means over the last axis, the seeds, and their 95 % t intervals; of a single seed there is none (NaN)."""
    from scipy.stats import t

    mean, num = values.mean(axis=-1), values.shape[-1]
    if num < 2:
        return mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan)
    half = float(t.ppf(0.975, num - 1)) * values.std(axis=-1, ddof=1) / np.sqrt(num)
    return mean, mean - half, mean + half


class Finding(NamedTuple):
    """One rule against another in one measure: how often it wins, how sure that is, and how large.

    `p` is Mann-Whitney's between the seed scores of both, `paired_p` that of sign flips of the instances won minus
    those lost by each seed, both rules having run on the same instances. `delta` is Cliff's. The ratio is not a number
    where there is none.
    """

    win_rate: float
    win_low: float
    win_high: float
    p: float
    paired_p: float
    delta: float
    ratio: float = float("nan")
    ratio_low: float = float("nan")
    ratio_high: float = float("nan")

    def is_better(self, level: float = LEVEL) -> Answer:
        """Yes if the test says so at the given level; no if it says the contrary or if the interval of wins does."""
        if self.delta > 0 and self.p < level:
            return True
        return False if (self.delta < 0 and self.p < LEVEL) or self.win_high < 0.5 else None

    def is_not_worse(self) -> Answer:
        """Whether it wins at least almost half; where the interval has that limit inside, nothing is shown."""
        return self.wins_more_than(LEAST_WIN_RATE)

    def is_not_better(self) -> Answer:
        """Whether it wins hardly more than half."""
        return below(MOST_WIN_RATE, self.win_low, self.win_high)

    def wins_more_than(self, share: float) -> Answer:
        return above(share, self.win_low, self.win_high)

    def is_more_than(self, times: float) -> Answer:
        return above(times, self.ratio_low, self.ratio_high)


def compare(ours: Float[np.ndarray, "S F"], theirs: Float[np.ndarray, "S F"], measure: str | None = None) -> Finding:
    """Seeds by functions of one rule against another's; no ratio if no measure is given.

    The ratio of fitness is that of their regret to ours.
    """
    p, delta = mann_whitney(*seed_scores(ours, theirs))
    paired_p = sign_flips(np.rint(2 * wins(ours, theirs) - 1).astype(int).sum(axis=1))
    found = Finding(*win_rate(ours, theirs), p, paired_p, delta)
    if measure is None:
        return found
    times = geometric_ratio(regret(theirs), regret(ours)) if measure == "fitness" else ratio(ours, theirs)
    return Finding(*found[:6], *times)


def adjusted(findings: Sequence[Finding]) -> list[Finding]:
    """The same with Holm's correction over all of them, of either test by itself."""
    both = zip(findings, holm([one.p for one in findings]), holm([one.paired_p for one in findings]), strict=True)
    return [one._replace(p=p, paired_p=paired_p) for one, p, paired_p in both]


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


# Learning curves


class PowerLaw(NamedTuple):
    """A learning curve, `end - size * step**-power`: where it ends, how far it begins from there, how fast it comes."""

    end: float
    size: float
    power: float

    def __call__(self, step: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        return self.end - self.size * np.asarray(step, np.float64) ** -self.power


LEAST_POINTS = 5  # a curve has three numbers, and its scatter has to be seen as well


def power_laws(
    step: Real[np.ndarray, " N"], score: Float[np.ndarray, " N"], num_resamples: int = 400
) -> tuple[PowerLaw, list[PowerLaw]]:
    """The curve that fits shares (scores in [0, 1]) best, and those of resampled residuals, which say how sure it is.

    It cannot know whether learning continues as before; the interval reflects only the scatter of the scores.
    """
    step, score = np.asarray(step, np.float64), np.asarray(score, np.float64)
    if len(step) < LEAST_POINTS or not np.all(step > 0):
        raise ValueError(f"a learning curve needs {LEAST_POINTS} scores at steps above 0, got {len(step)}")
    fitted = _fitted(step, score)
    residuals = score - fitted(step)
    residuals = (residuals - residuals.mean()) * np.sqrt(len(step) / (len(step) - len(fitted)))
    generator = np.random.default_rng(0)
    drawn = (fitted(step) + generator.choice(residuals, len(step)) for _ in range(num_resamples))
    return fitted, [_fitted(step, scores) for scores in drawn]


def _fitted(step: Float[np.ndarray, " N"], score: Float[np.ndarray, " N"]) -> PowerLaw:
    """By least squares. Given the power, the rest is linear; the power is the best of many."""
    best, least = PowerLaw(float(score.mean()), 0.0, 1.0), float(((score - score.mean()) ** 2).sum())
    for power in np.geomspace(0.05, 3.0, 60):
        falling = step**-power
        centred = falling - falling.mean()
        size = max(0.0, -float(centred @ score) / float(centred @ centred))
        end = float(score.mean()) + size * float(falling.mean())
        if end > 1:  # a share cannot be more: then the curve through 1 that fits best
            end, size = 1.0, max(0.0, float(falling @ (1 - score)) / float(falling @ falling))
        error = float(((end - size * falling - score) ** 2).sum())
        if error < least:
            best, least = PowerLaw(end, size, float(power)), error
    return best


def late_gain(step: Real[np.ndarray, " N"], score: Float[np.ndarray, " N"]) -> tuple[float, float, float]:
    """What the last half of the steps brought, by a straight line through its scores, with a 95 % interval."""
    from scipy.stats import linregress, t

    step, score = np.asarray(step, np.float64), np.asarray(score, np.float64)
    late = step >= step.max() / 2
    if late.sum() < LEAST_POINTS:
        raise ValueError(f"the last half needs {LEAST_POINTS} scores, got {late.sum()}")
    line = linregress(step[late], score[late])
    length = float(step.max() / 2)
    half = float(t.ppf(0.975, late.sum() - 2) * line.stderr)
    return line.slope * length, (line.slope - half) * length, (line.slope + half) * length
