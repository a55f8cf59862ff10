"""Normalisation over the members, hand-computed and against SciPy and NumPy; failed members lose and disturb nobody."""

import dataclasses
import itertools

import hypothesis
import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from lqd.errors import InvalidInput
from lqd.meta import objective
from lqd.meta.objective import Objective

NAN, INF = np.nan, np.inf
MEMBERS, TASKS = 6, 4
OBJECTIVES = [
    Objective(name, form, normalisation=normalisation, aggregation=aggregation)
    for (name, form), normalisation, aggregation in itertools.product(
        [("fitness", "product"), ("novelty", "product"), ("qd", "product"), ("qd", "sum"), ("qd", "ranks")],
        ["rank", "z-score"],
        ["mean", "median"],
    )
]
EXAMPLES = hypothesis.settings(max_examples=25, derandomize=True, deadline=None, database=None)
# Of every magnitude, far enough apart that rounding cannot make a tie, and often equal.
LEVELS = [-3e38, -1e30, -1e3, -1.5, -1.0, 0.0, 1e-3, 2.0, 1e20]
SHAPE = (len(objective.NAMES), MEMBERS, TASKS)
GOOD = arrays.arrays(np.float32, SHAPE, elements=st.sampled_from(LEVELS).map(np.float32))
ANY = arrays.arrays(np.float32, SHAPE, elements=st.sampled_from([*LEVELS, NAN, INF, -INF]).map(np.float32))

rank, z_score = jax.jit(objective.rank), jax.jit(objective.z_score)
meta_fitness = jax.jit(Objective.meta_fitness, static_argnums=0)


def table(values):
    return dict(zip(objective.NAMES, jnp.asarray(values), strict=True))


def column(function, *values):
    """Scores on one task; what is not finite has failed."""
    values = np.array(values, np.float32)[:, None]
    return np.asarray(function(values, np.isfinite(values)))[:, 0]


# --- rank ---


def test_ranks_by_hand():
    np.testing.assert_allclose(column(rank, 1, 2, 3), [-0.5, 0, 0.5])
    np.testing.assert_allclose(column(rank, 2, 5, 2, NAN, 7), [-0.125, 0.25, -0.125, -0.5, 0.5])
    np.testing.assert_allclose(column(rank, 0, 0, 0), [0, 0, 0])


def test_the_failed_share_the_last_place():
    np.testing.assert_allclose(column(rank, -1e38, NAN, -INF), [0.5, -0.25, -0.25])
    np.testing.assert_allclose(column(rank, NAN, NAN), [0, 0])


@EXAMPLES
@hypothesis.given(GOOD)
def test_ranks_are_scipy_s(values):
    for task in values:
        expected = (scipy.stats.rankdata(task, axis=0) - 1) / (MEMBERS - 1) - 0.5
        np.testing.assert_allclose(rank(task, np.isfinite(task)), expected, atol=1e-6)


# --- z-score ---


def test_z_scores_are_numpy_s():
    values = np.random.default_rng(0).normal(3, 2, (MEMBERS, TASKS)).astype(np.float32)
    expected = (values - values.mean(0)) / values.std(0)
    np.testing.assert_allclose(z_score(values, np.isfinite(values)), expected, rtol=1e-4, atol=1e-5)


def test_z_scores_of_the_valid_ignore_the_failed_who_are_one_below_the_worst():
    found = column(z_score, 1, NAN, 2, 6, -INF)
    expected = scipy.stats.zscore([1, 2, 6])
    np.testing.assert_allclose(found[[0, 2, 3]], expected, rtol=1e-5)
    np.testing.assert_allclose(found[[1, 4]], min(expected) - 1, rtol=1e-5)


@pytest.mark.parametrize("scale", [1e30, 1e37, 1e-30])
def test_z_scores_do_not_depend_on_the_scale(scale):
    np.testing.assert_allclose(column(z_score, scale, -scale, 0), column(z_score, 1, -1, 0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("value", [0, -7.25, 1e30])
def test_z_scores_of_equals_are_zero(value):
    assert column(z_score, value, value, value).tolist() == [0, 0, 0]
    assert column(z_score, value, NAN, value).tolist() == [0, -1, 0]


def test_z_scores_of_the_all_failed_are_equal():
    assert column(z_score, NAN, -INF, NAN).tolist() == [-1, -1, -1]


# --- meta-fitness ---


def test_aggregation_by_hand():
    values = np.array([[1, 1, 9], [2, 2, 5], [3, 3, 5]], np.float32)  # ranks -.5 -.5 .5, 0 0 -.25, .5 .5 -.25
    measures = dict.fromkeys(objective.NAMES, jnp.asarray(values))
    np.testing.assert_allclose(Objective().meta_fitness(measures), [-1 / 6, -1 / 12, 1 / 4], rtol=1e-5)
    median = Objective(aggregation="median")
    np.testing.assert_allclose(median.meta_fitness(measures), [-0.5, 0, 0.5], atol=1e-7)


@pytest.mark.parametrize("name", objective.NAMES)
def test_each_name_looks_at_its_own_measure(name):
    measures = {other: jnp.zeros((3, 2)) for other in objective.NAMES}
    measures[name] = jnp.array([[1.0, 5.0], [2.0, 6.0], [3.0, 7.0]])
    np.testing.assert_allclose(Objective(name).meta_fitness(measures), [-0.5, 0, 0.5], atol=1e-7)


def test_the_sum_of_ranks_by_hand():
    """Whatever the distances between the values; the last one has failed."""
    fitness, novelty = np.array([-1e20, -2.0, -1.0, NAN], np.float32), np.array([9.0, 3.0, 1.0, 5.0], np.float32)
    measures = {name: jnp.asarray(value)[:, None] for name, value in {"fitness": fitness, "novelty": novelty}.items()}
    for weight, expected in ((1.0, [-1, 1, 3, -3]), (0.0, [3, 1, -1, -3]), (0.75, [0, 1, 2, -3])):
        aim = Objective("qd", "ranks", fitness_weight=weight)
        values = meta_fitness(aim, measures)
        assert np.argsort(values).tolist() == np.argsort(expected).tolist(), weight


def test_the_sum_form_by_hand():
    measures = {
        "fitness": jnp.array([[0.0], [0.0], [3.0]]),  # z: -0.707, -0.707, 1.414
        "novelty": jnp.array([[4.0], [0.0], [2.0]]),  # z: 1.225, -1.225, 0
    }
    half = np.sqrt(0.5)
    for weight in (0.0, 0.25, 1.0):
        form = Objective("qd", "sum", fitness_weight=weight, normalisation="z-score")
        total = weight * np.array([-half, -half, 2 * half]) + (1 - weight) * np.array([1, -1, 0]) * np.sqrt(1.5)
        np.testing.assert_allclose(form.meta_fitness(measures), scipy.stats.zscore(total), rtol=1e-4, atol=1e-5)


def test_only_the_product_needs_to_know_what_random_search_reaches():
    assert [o.name for o in OBJECTIVES if o.needs_anchors] == ["qd"] * 4
    assert not Objective("qd", "sum").needs_anchors


def test_a_member_that_failed_on_one_task_is_last_there_and_only_there():
    values = np.tile(np.float32([[1], [2], [3]]), (1, 2))
    novelty = values.copy()
    novelty[2, 0] = NAN  # in any measure
    measures = {"fitness": jnp.asarray(values), "novelty": jnp.asarray(novelty)}
    np.testing.assert_allclose(Objective().meta_fitness(measures), [-0.25, 0.25, 0], atol=1e-7)


@pytest.mark.parametrize("chosen", OBJECTIVES, ids=str)
@EXAMPLES
@hypothesis.given(ANY)
def test_meta_fitness_is_finite_whatever_is_measured(chosen, values):
    found = meta_fitness(chosen, table(values))
    assert found.shape == (MEMBERS,)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("chosen", OBJECTIVES, ids=str)
@EXAMPLES
@hypothesis.given(ANY, st.permutations(range(MEMBERS)))
def test_meta_fitness_moves_with_the_members(chosen, values, order):
    order = np.array(order)
    expected = np.asarray(meta_fitness(chosen, table(values)))[order]
    np.testing.assert_allclose(meta_fitness(chosen, table(values[:, order])), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("chosen", OBJECTIVES, ids=str)
@EXAMPLES
@hypothesis.given(st.integers(0, 2**32 - 1), st.integers(0, MEMBERS - 1))
def test_a_member_of_nan_is_last_and_leaves_the_order_of_the_others(chosen, seed, failed):
    generator = np.random.default_rng(seed)  # without ties, which rounding would break in the sum of two z-scores
    values = (generator.normal(size=SHAPE) * 10 ** generator.uniform(-3, 9, (3, 1, TASKS))).astype(np.float32)
    others = np.delete(np.arange(MEMBERS), failed)
    without = np.asarray(meta_fitness(chosen, table(values[:, others])))
    values[:, failed] = NAN
    found = np.asarray(meta_fitness(chosen, table(values)))
    assert found[failed] < found[others].min()
    if chosen.normalisation == "rank":  # everybody beats one more
        without = ((without + 0.5) * (MEMBERS - 2) + 1) / (MEMBERS - 1) - 0.5
    np.testing.assert_allclose(found[others], without, rtol=1e-3, atol=1e-4)


def test_measures_by_hand():
    fitness, descriptor = jnp.array([-1.0, -2.0, -4.0, -INF]), jnp.array([[0.0], [1.0], [3.0], [9.0]])
    found = objective.measures(fitness, descriptor, jnp.float32(-3), jnp.float32(0))
    # Novelty 2, 1.5 and 2.5; dominated novelty 1 and 2.5; two thirds of the way from -3 to 0.
    expected = {"fitness": -1, "novelty": 2, "qd": 2 / 3 * 1.75}
    assert {name: pytest.approx(float(value), rel=1e-5) for name, value in found.items()} == expected
    assert objective.measures(fitness, descriptor).keys() == {"fitness", "novelty"}


def test_nobody_left_is_not_valid():
    nobody = objective.measures(jnp.full(4, -INF), jnp.zeros((4, 2)))
    assert not objective.is_valid(nobody)
    assert objective.is_valid(objective.measures(jnp.zeros(4), jnp.zeros((4, 2))))


BAD = {
    "name": ({"name": "fit"}, "objective must be one of 'fitness', 'novelty', 'qd', 'archive', got 'fit'"),
    "form": ({"qd_form": "max"}, "qd_form must be one of 'product', 'sum', 'ranks', got 'max'"),
    "normalisation": ({"normalisation": "z"}, "normalisation must be one of 'rank', 'z-score', got 'z'"),
    "aggregation": ({"aggregation": "min"}, "aggregation must be one of 'mean', 'median', got 'min'"),
    "negative": ({"fitness_weight": -0.1}, "fitness_weight must be .* at least 0, got -0.1"),
    "large": ({"fitness_weight": 1.5}, "fitness_weight must be between 0 and 1, got 1.5"),
    "text": ({"fitness_weight": "1"}, "fitness_weight must be a finite number"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_settings_name_the_choices(case):
    settings, message = BAD[case]
    with pytest.raises(InvalidInput, match=message):
        dataclasses.replace(Objective(), **settings)
