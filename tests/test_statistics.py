"""The statistics against hand-made examples, planted differences and planted nulls."""

import collections
import fractions
import itertools
import math

import numpy as np
import pytest

from lqd import statistics


def test_wins_count_ties_half_and_nothing_as_a_loss():
    found = statistics.wins(np.array([1.0, 2.0, 3.0, np.nan]), np.array([2.0, 2.0, 2.0, -1e9]))
    np.testing.assert_array_equal(found, [0.0, 0.5, 1.0, 0.0])


def test_complete_separation_has_the_smallest_p_there_is():
    p, delta = statistics.mann_whitney(np.arange(20) + 100.0, np.arange(20.0))
    assert p == pytest.approx(2 / math.comb(40, 20))
    assert delta == 1.0


def test_by_hand():
    """Of the 9 pairs 7 are in favour and 2 against; 8 of the 20 orders are as extreme, both sides counted."""
    p, delta = statistics.mann_whitney(np.array([1.0, 5.0, 6.0]), np.array([0.0, 2.0, 3.0]))
    assert delta == pytest.approx((7 - 2) / 9)
    assert p == pytest.approx(0.4)


def test_all_tied():
    assert statistics.mann_whitney(np.zeros(10), np.zeros(10)) == (1.0, 0.0)


def test_without_ties_it_is_scipys_exact_test():
    from scipy.stats import mannwhitneyu

    rng = np.random.default_rng(3)
    for shift in (0.0, 0.7, 2.0):
        ours, theirs = rng.normal(size=11) + shift, rng.normal(size=13)
        expected = mannwhitneyu(ours, theirs, method="exact")
        p, delta = statistics.mann_whitney(ours, theirs)
        assert p == pytest.approx(expected.pvalue)
        assert delta == pytest.approx(2 * expected.statistic / (11 * 13) - 1)


def test_with_ties_it_counts_all_ways_to_deal_the_ranks():
    from scipy.stats import rankdata

    ours, theirs = np.array([3.0, 2.0, 2.0, 5.0]), np.array([1.0, 2.0, 1.0, 0.0, 3.0])
    ranks = rankdata(np.concatenate([ours, theirs]))
    sums = [ranks[list(chosen)].sum() for chosen in itertools.combinations(range(9), 4)]
    found = ranks[:4].sum()
    expected = 2 * min(np.mean(np.array(sums) >= found), np.mean(np.array(sums) <= found))
    assert statistics.mann_whitney(ours, theirs)[0] == pytest.approx(expected)


def exact_mean_ranks(ours, theirs):
    """Seed scores in fractions, from comparisons alone: the mean over functions of the rank among all runs."""
    both = np.concatenate([ours, theirs])
    below, equal = ((compare(both[:, None], both).sum(axis=1)) for compare in (np.greater, np.equal))
    ranks = 2 * below + equal + 1  # doubled
    scores = [sum(map(fractions.Fraction, map(int, row)), fractions.Fraction()) / (2 * both.shape[1]) for row in ranks]
    return scores[: len(ours)], scores[len(ours) :]


def dealt(scores, num_ours):
    """Every sum of doubled ranks that so many of these scores can have, and how many choices have it."""
    doubled = [sum((one > other) - (one < other) for other in scores) for one in scores]  # ranks, doubled and centred
    ways = {(0, 0): 1}
    for rank in doubled:
        more = collections.Counter(ways)
        for (num, total), count in ways.items():
            if num < num_ours:
                more[num + 1, total + rank] += count
        ways = more
    return sum(doubled[:num_ours]), {total: count for (num, total), count in ways.items() if num == num_ours}


def made_up(seed, num_seeds):
    """Few values and few functions: many scores are the same in truth."""
    return np.random.default_rng(seed).integers(0, 3, size=(2, num_seeds, 7)).astype(float)


@pytest.mark.parametrize("seed", range(8))
def test_twenty_seeds_that_tie_stay_tied(seed):
    ours, theirs = exact_mean_ranks(*made_up(seed, 20))
    num_different = len(set(ours + theirs))
    assert num_different < 40
    found, ways = dealt(ours + theirs, 20)
    low, high = (sum(n for total, n in ways.items() if sign * (total - found) >= 0) for sign in (-1, 1))
    expected = min(1.0, 2 * min(low, high) / math.comb(40, 20))
    scores = statistics.seed_scores(*made_up(seed, 20))
    assert len(set(np.concatenate(scores).tolist())) == num_different
    assert statistics.mann_whitney(*scores)[0] == pytest.approx(expected, rel=1e-12)


def test_few_seeds_against_every_way_to_deal_them():
    for seed in range(20):
        ours, theirs = exact_mean_ranks(*made_up(seed, 5))
        both = ours + theirs

        def u(chosen, both=both):
            rest = [both[i] for i in range(10) if i not in chosen]
            return sum(int(both[i] > other) - int(both[i] < other) for i in chosen for other in rest)

        dealt_out = np.array([u(chosen) for chosen in itertools.combinations(range(10), 5)])
        found = u(range(5))
        expected = min(1.0, 2 * min(np.mean(dealt_out >= found), np.mean(dealt_out <= found)))
        p, delta = statistics.mann_whitney(*statistics.seed_scores(*made_up(seed, 5)))
        assert p == pytest.approx(expected)
        assert delta == pytest.approx(found / 25)


def test_sign_flips_against_every_choice_of_signs():
    rng = np.random.default_rng(5)
    for num in (1, 2, 5, 10):
        scores = rng.integers(-4, 6, size=num)
        sums = np.array([np.dot(signs, scores) for signs in itertools.product((-1, 1), repeat=num)])
        expected = np.mean(np.abs(sums) >= abs(scores.sum()))
        assert statistics.sign_flips(scores) == pytest.approx(expected)
        assert statistics.sign_flips(-scores) == pytest.approx(expected)
    assert statistics.sign_flips(np.zeros(4, int)) == 1.0
    assert statistics.sign_flips(np.full(32, 22)) == 2.0**-31  # all 32 seeds for it: the smallest there is


def test_sign_flips_are_scipys_where_it_counts_too():
    from scipy.stats import permutation_test

    scores = np.random.default_rng(6).integers(-22, 23, size=12)
    found = permutation_test((scores,), np.sum, permutation_type="samples", n_resamples=np.inf)
    assert statistics.sign_flips(scores) == pytest.approx(found.pvalue)


def test_the_paired_test_sees_through_what_the_instances_share():
    """Instances differ far more than rules: only pairs show it; and the order of seeds matters to nothing else."""
    rng = np.random.default_rng(7)
    instances = 10 * rng.normal(size=(16, 6))
    ours, theirs = instances + 0.3 + 0.1 * rng.normal(size=(16, 6)), instances
    paired, shuffled = (statistics.compare(ours, other) for other in (theirs, theirs[::-1]))
    assert paired.p == shuffled.p > 0.05
    assert paired.paired_p == 2.0**-15
    assert shuffled.paired_p > 0.05
    assert np.isnan(paired.ratio)
    assert np.isfinite(statistics.compare(ours, theirs, "fitness").ratio)


def test_the_interval_of_the_win_rate_covers_the_truth():
    rng = np.random.default_rng(8)
    found = [statistics.win_rate(rng.normal(size=(24, 5)) + 0.3, rng.normal(size=(24, 5))) for _ in range(300)]
    truth = 0.5 * math.erfc(-0.3 / 2)
    covered = np.mean([low <= truth <= high for _, low, high in found])
    assert 0.88 < covered < 0.99
    for rate, low, high in found[:5]:
        assert low < rate < high
    assert statistics.win_rate(np.array([[1.0, np.nan], [1.0, 2.0]]), np.array([[1.0, 0.0], [1.0, 2.0]]))[0] == 0.375


def finding(low, high, p=0.5, delta=0.0):
    return statistics.Finding((low + high) / 2, low, high, p, p, delta)


@pytest.mark.parametrize(
    ("found", "better", "not_worse", "not_better"),
    [
        (finding(0.6, 0.7, p=0.01, delta=0.4), True, True, False),
        (finding(0.52, 0.7, p=0.06, delta=0.3), None, True, None),  # nearly, which shows nothing
        (finding(0.46, 0.54), None, True, True),  # as good as equal
        (finding(0.3, 0.7), None, None, None),  # no evidence, so no verdict, however large p is
        (finding(0.3, 0.7, p=1.0), None, None, None),
        (finding(0.35, 0.48, p=0.2, delta=-0.2), False, None, True),
        (finding(0.44, 0.51, p=0.01, delta=-0.4), False, None, True),
        (finding(0.3, 0.4, p=1.0, delta=-0.6), False, False, True),
    ],
)
def test_questions_have_three_answers(found, better, not_worse, not_better):
    assert (found.is_better(), found.is_not_worse(), found.is_not_better()) == (better, not_worse, not_better)


def test_a_level_of_its_own_asks_for_more():
    found = finding(0.7, 0.8, p=1e-5, delta=0.6)
    assert found.is_better()
    assert found.is_better(1e-9) is None
    assert (found.wins_more_than(0.65), found.wins_more_than(0.75), found.wins_more_than(0.85)) == (True, None, False)
    assert found.is_more_than(0.95) is None  # it has no ratio


def test_answers_together():
    assert statistics.all_of(True, True) is True
    assert statistics.all_of(True, None) is None
    assert statistics.all_of(None, False) is False


def test_both_tests_are_adjusted_by_themselves():
    found = statistics.adjusted([finding(0.4, 0.6, p)._replace(paired_p=q) for p, q in ((0.01, 0.04), (0.04, 0.01))])
    assert [(one.p, one.paired_p) for one in found] == [(0.02, 0.04), (0.04, 0.02)]


def test_holm():
    assert statistics.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert statistics.holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert statistics.holm([]) == []


def test_a_seed_score_is_not_decided_by_the_scale_of_one_function():
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(size=(16, 8)), rng.normal(size=(16, 8))
    first = statistics.seed_scores(ours, theirs)
    scale = 10.0 ** np.arange(8)
    np.testing.assert_array_equal(statistics.seed_scores(ours * scale, theirs * scale), first)
    assert np.concatenate(first).sum() == 8 * 32 * 33  # on each function, twice the sum of 1 to 32


def test_a_planted_difference_is_found_and_nulls_keep_the_family_level():
    rng = np.random.default_rng(1)

    def p_values(shift):
        pairs = (statistics.seed_scores(rng.normal(size=(12, 4)) + shift, rng.normal(size=(12, 4))) for _ in range(5))
        return statistics.holm([statistics.mann_whitney(*pair)[0] for pair in pairs])

    assert max(p_values(1.5)) < 1e-3
    num_families = 1000
    false = sum(min(p_values(0.0)) < 0.05 for _ in range(num_families))
    assert false / num_families < 0.05 + 3 * math.sqrt(0.05 * 0.95 / num_families)


def test_ratios_know_their_value_and_bracket_it():
    rng = np.random.default_rng(2)
    theirs = rng.uniform(1, 2, size=(24, 6)) * [1, 10, 100, 1e3, 1e4, 1e5]
    ours = 1.5 * theirs * rng.uniform(0.9, 1.1, size=(24, 6))
    for ratio in (statistics.ratio, statistics.geometric_ratio):
        middle, low, high = ratio(ours, theirs)
        assert middle == pytest.approx(1.5, rel=0.03)
        assert low < middle < high
        assert high - low < 0.1


def test_a_function_on_which_the_other_has_nothing_is_left_out():
    theirs = np.array([[1.0, 0.0], [1.0, 0.0]])
    assert statistics.ratio(np.array([[2.0, 5.0], [2.0, 5.0]]), theirs)[0] == pytest.approx(2.0)
    assert statistics.ratio(np.ones((2, 2)), np.zeros((2, 2)))[0] == np.inf
    assert statistics.ratio(np.zeros((2, 2)), np.zeros((2, 2)))[0] == 1.0


def test_relative_to_random():
    random = np.array([[-8.0, -1.0], [-4.0, -1.0], [-2.0, -1.0]])
    ours = np.array([[-2.0, 0.0], [-8.0, -10.0]])
    found = statistics.relative(ours, random, "fitness")
    np.testing.assert_allclose(found, [[2.0, 1e8], [0.5, 0.1]])  # the optimum itself counts as 1e-8 from it
    found = statistics.relative(np.array([[3.0, 1.0]]), np.array([[1.0, 0.0], [2.0, 0.0]]), "novelty")
    np.testing.assert_allclose(found, [[2.0, np.nan]])


@pytest.mark.parametrize("shape", [(16, 5), (32, 22), (3, 1), (7, 13)])
def test_interquartile_mean_leaves_out_a_quarter_at_each_end_also_in_every_resample(shape):
    """As published: of the sorted values, with these draws."""

    def middle(sample):
        ordered = np.sort(sample, axis=None)
        cut = len(ordered) // 4
        return ordered[cut : len(ordered) - cut].mean()

    values = np.random.default_rng(4).normal(size=shape) + 3
    picks = np.random.default_rng(0).integers(shape[0], size=(2000, *shape))
    resampled = [middle(np.take_along_axis(values, pick, axis=0)) for pick in picks]
    expected = [middle(values), *np.quantile(resampled, [0.025, 0.975])]
    np.testing.assert_allclose(statistics.interquartile_mean(values), expected, rtol=1e-13)


def test_a_profile_counts_runs():
    values = np.array([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(statistics.profile(values, np.array([0.5, 2.0, 3.5, 5.0])), [1.0, 0.75, 0.25, 0.0])
    np.testing.assert_array_equal(statistics.quartiles(np.arange(5.0)[:, None])[:, 0], [1.0, 2.0, 3.0])


def test_a_single_collapse_does_not_decide_the_middle_of_logs():
    """Eight functions, of which the outer quarters do not count: a zero, a NaN beside them, a huge value."""
    values = np.array([[0.0, 0.1, 1.0, 10.0, 10.0, 1.0, 1e6, 1e9], [0.0, 1.0, 4.0, 4.0, 4.0, 4.0, 1e9, np.nan]])
    np.testing.assert_allclose(statistics.middle_of_logs(values), [np.sqrt(10), (1.0 * 4.0**4) ** 0.2])
    for num in (4, 7, 12, 22):
        logs = np.random.default_rng(0).normal(size=(3, num))
        expected = np.sort(logs, axis=1)[:, num // 4 : num - num // 4].mean(axis=1)
        np.testing.assert_allclose(np.log(statistics.middle_of_logs(np.exp(logs))), expected, rtol=1e-13, atol=1e-15)


# Learning curves


def curve(num=40, end=0.8, size=1.5, power=0.6, noise=0.01, seed=0):
    step = 32.0 * np.arange(1, num + 1)
    return step, end - size * step**-power + noise * np.random.default_rng(seed).normal(size=num)


def test_a_power_law_without_noise_is_found():
    fitted, _ = statistics.power_laws(*curve(noise=0.0), num_resamples=1)
    assert fitted(np.array([16_384.0])) == pytest.approx(0.8 - 1.5 * 16_384**-0.6, abs=2e-3)
    assert fitted.power == pytest.approx(0.6, rel=0.05)


def test_a_share_ends_at_most_at_one():
    step = 32.0 * np.arange(1, 13)
    fitted, others = statistics.power_laws(step, 0.2 + 0.15 * np.log10(step), num_resamples=20)
    assert all(one.end <= 1 for one in (fitted, *others))


def test_what_does_not_learn_stays():
    step = 32.0 * np.arange(1, 13)
    fitted, _ = statistics.power_laws(step, np.full(12, 0.4), num_resamples=1)
    assert fitted(np.array([16_384.0])) == pytest.approx(0.4, abs=1e-9)
    assert statistics.late_gain(step, np.full(12, 0.4)) == pytest.approx((0, 0, 0), abs=1e-12)


def test_the_interval_of_an_extrapolation_holds_the_truth_mostly():
    """Of 40 noisy curves with a power law behind them, at ten times as many steps."""
    held = 0
    for seed in range(40):
        _, others = statistics.power_laws(*curve(seed=seed), num_resamples=60)
        low, high = np.quantile([one(np.array(12_800.0)) for one in others], [0.025, 0.975])
        held += low - 1e-3 <= 0.8 - 1.5 * 12_800**-0.6 <= high + 1e-3
    assert held >= 32


def test_the_gain_of_the_last_half_is_that_of_a_line():
    step = np.arange(1.0, 101.0)
    noise = 0.01 * np.random.default_rng(0).normal(size=100)
    gain, low, high = statistics.late_gain(step, 0.002 * step + noise)
    assert low < 0.1 < high
    assert gain == pytest.approx(0.1, abs=0.02)
    assert statistics.late_gain(step, noise)[1] < 0


@pytest.mark.parametrize("function", [statistics.power_laws, statistics.late_gain])
def test_a_curve_of_a_few_points_is_refused(function):
    with pytest.raises(ValueError, match="needs 5 scores"):
        function(np.arange(1.0, 4.0), np.ones(3))


def test_intervals_of_means_are_students():
    from scipy import stats

    values = np.random.default_rng(0).normal(3, 2, (5, 8))
    mean, low, high = statistics.mean_interval(values)
    expected = stats.t.interval(0.95, 7, values.mean(axis=1), stats.sem(values, axis=1))
    np.testing.assert_allclose((low, high), expected)
    np.testing.assert_allclose(mean, values.mean(axis=1))
    assert np.isnan(statistics.mean_interval(values[:, :1])[1]).all()
