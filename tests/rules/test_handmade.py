"""Every rule: cases computed by hand, and the properties that hold for all of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lqd.rules import blocks, catalogue, cvt, handmade, neighbours
from lqd.rules.handmade import DominatedNoveltySearch, MapElites, NoveltySearch, Random
from lqd.rules.learned.network import Architecture
from lqd.rules.learned.rule import Learned
from lqd.rules.protocol import FunctionRule

INF = np.inf
KEY = jax.random.key(0)
CELLS = jnp.array([[0.25, 0.25], [0.25, 0.75], [0.75, 0.25], [0.75, 0.75]], jnp.float32)
RULES = {name: handmade.by_name(name, CELLS) for name in handmade.NAMES}
RULES["learned"] = Learned.init(jax.random.key(1))
RULES["by-distance"] = Learned.init(jax.random.key(1), Architecture(recipe=2))
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())


@jax.jit
def scores_of(rule, key, fitness, descriptor):
    return rule(key, fitness, descriptor)


def scores(rule, fitness, descriptor, key=KEY):
    return np.asarray(scores_of(rule, key, jnp.asarray(fitness, jnp.float32), jnp.asarray(descriptor, jnp.float32)))


def column(*values):
    return np.array(values, np.float32)[:, None]


def test_every_rule_has_a_title():
    assert set(handmade.NAMES) < set(catalogue.RULES)


# Hand-computed cases


def test_ga_scores_are_the_fitness():
    np.testing.assert_array_equal(scores(RULES["ga"], [3.0, -INF, -1.0], column(0, 0, 0)), [3.0, -INF, -1.0])


def test_random_is_uniform_and_follows_the_key_not_the_data():
    first = scores(RULES["random"], np.zeros(1000), np.zeros((1000, 2)))
    other_data = scores(RULES["random"], np.arange(1000.0), np.ones((1000, 2)))
    other_key = scores(RULES["random"], np.zeros(1000), np.zeros((1000, 2)), jax.random.key(1))
    np.testing.assert_array_equal(first, other_data)
    assert (first != other_key).mean() > 0.99
    assert 0 <= first.min() < 0.02 < 0.98 < first.max() < 1
    assert abs(first.mean() - 0.5) < 0.05


def test_novelty_is_the_mean_distance_to_the_three_nearest():
    # On a line at 0, 1, 3, 7, 15: for 3 the nearest are 1 (2), 0 (3), 7 (4).
    result = scores(RULES["ns"], np.zeros(5), column(0, 1, 3, 7, 15))
    np.testing.assert_allclose(
        result, [(1 + 3 + 7) / 3, (1 + 2 + 6) / 3, 3.0, (4 + 6 + 7) / 3, (8 + 12 + 14) / 3], 1e-6
    )


def test_each_neighbour_at_the_same_distance_counts_once():
    # At 0: two others at distance 0 and one at 5; all at one place: novelty 0.
    np.testing.assert_allclose(scores(RULES["ns"], np.zeros(4), column(0, 0, 0, 5)), [5 / 3] * 3 + [5.0], 1e-6)
    np.testing.assert_array_equal(scores(RULES["ns"], np.zeros(4), column(2, 2, 2, 2)), np.zeros(4))
    # Four at distance 1 but only three places.
    np.testing.assert_allclose(scores(RULES["ns"], np.zeros(5), column(0, 1, -1, 1, -1))[0], 1.0)


def test_fewer_than_k_others_and_a_lone_individual():
    np.testing.assert_allclose(scores(RULES["ns"], [0.0, 0.0, -INF], column(0, 4, 1)), [4.0, 4.0, -INF])
    np.testing.assert_array_equal(scores(RULES["ns"], [-INF, 5.0], column(0, 4)), [-INF, 0.0])


def test_dominated_novelty_looks_at_strictly_fitter_only():
    # Fitness 4, 3, 3, 1 at 0, 1, 2, 6: the two with 3 do not dominate each other.
    result = scores(RULES["dns"], [4.0, 3.0, 3.0, 1.0], column(0, 1, 2, 6))
    np.testing.assert_allclose(result, [INF, 1.0, 2.0, (4 + 5 + 6) / 3], 1e-6)


def test_all_who_share_the_best_fitness_are_undominated():
    np.testing.assert_array_equal(scores(RULES["dns"], [2.0, 2.0, 2.0], column(0, 1, 2)), [INF] * 3)


def test_map_elites_keeps_the_best_of_each_cell():
    descriptor = [[0.1, 0.1], [0.2, 0.2], [0.8, 0.9], [0.9, 0.1], [0.9, 0.2]]
    result = scores(RULES["me"], [1.0, 2.0, -5.0, 3.0, -INF], descriptor)
    np.testing.assert_array_equal(result, [-INF, 2.0, -5.0, 3.0, -INF])


def test_map_elites_gives_a_tie_to_the_lower_index():
    np.testing.assert_array_equal(scores(RULES["me"], [1.0, 1.0, 1.0], np.full((3, 2), 0.1)), [1.0, -INF, -INF])


def test_map_elites_gives_a_point_between_two_centroids_to_the_lower_one():
    assert int(cvt.nearest(jnp.array([[0.5, 0.25]]), RULES["me"].centroids)[0]) == 0


def test_a_plain_function_is_a_rule():
    rule = FunctionRule(lambda key, fitness, descriptor: -jnp.abs(descriptor[:, 0]))
    np.testing.assert_array_equal(scores(rule, [0.0, 0.0], column(1, -2)), [-1.0, -2.0])


# Properties of every rule


def random_population(seed, num=12, num_empty=3):
    generator = np.random.default_rng(seed)
    fitness = generator.normal(size=num).astype(np.float32)
    fitness[generator.permutation(num)[:num_empty]] = -INF
    return fitness, generator.random((num, 2)).astype(np.float32)


@every_rule
def test_jit_equals_eager(rule):
    fitness, descriptor = map(jnp.asarray, random_population(0))
    with jax.disable_jit():
        eager = rule(KEY, fitness, descriptor)
    np.testing.assert_allclose(scores(rule, fitness, descriptor), eager, rtol=2e-5, atol=2e-6)


@every_rule
def test_scores_move_with_the_individuals(rule):
    if isinstance(rule, Random):
        pytest.skip("survival by lot is by position")
    fitness, descriptor = random_population(1)
    order = np.random.default_rng(2).permutation(len(fitness))
    plain, permuted = scores(rule, fitness, descriptor), scores(rule, fitness[order], descriptor[order])
    np.testing.assert_allclose(permuted, plain[order], rtol=1e-4, atol=1e-5)


@every_rule
@pytest.mark.parametrize("values", [1, 2], ids=["all fitness equal", "fitness 0 or 1"])
def test_scores_move_with_the_individuals_where_fitness_is_equal(rule, values):
    if isinstance(rule, Random):
        pytest.skip("survival by lot is by position")
    fitness, descriptor = random_population(1, num=40)
    fitness[fitness > -INF] = np.arange(np.sum(fitness > -INF)) % values
    plain = scores(rule, fitness, descriptor)
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(len(fitness))
        moved = scores(rule, fitness[order], descriptor[order])
        if isinstance(rule, MapElites):  # of equals in a cell the first stays: the cell keeps one, whoever that is
            moved, plain = np.sort(moved), np.sort(plain)
            order = np.arange(len(order))
        np.testing.assert_allclose(moved, plain[order], rtol=1e-4, atol=1e-5)


@every_rule
def test_empty_slots_never_win_and_what_they_hold_does_not_matter(rule):
    fitness, descriptor = random_population(3)
    junk = descriptor.copy()
    junk[fitness == -INF] = [[np.nan, 1e38], [-1e38, INF], [0.0, -INF]]
    clean, dirty = scores(rule, fitness, descriptor), scores(rule, fitness, junk)
    assert (clean[fitness == -INF] == -INF).all()
    np.testing.assert_array_equal(clean, dirty)
    assert not np.isnan(clean).any()


@every_rule
def test_same_key_same_scores(rule):
    population = random_population(4)
    np.testing.assert_array_equal(scores(rule, *population), scores(rule, *population))


@every_rule
def test_equal_fitness_and_a_single_filled_slot_give_no_nan(rule):
    _, descriptor = random_population(5)
    assert not np.isnan(scores(rule, np.zeros(12), descriptor)).any()
    lone = np.full(12, -INF)
    lone[7] = 1.0
    result = scores(rule, lone, descriptor)
    assert np.flatnonzero(result > -INF).tolist() == [7]
    assert not np.isnan(scores(rule, np.full(12, -INF), descriptor)).any()


@every_rule
def test_huge_and_tiny_values_rank_like_moderate_ones(rule):
    if isinstance(rule, MapElites):
        pytest.skip("cells are absolute")
    fitness, descriptor = random_population(6)
    plain = scores(rule, fitness, descriptor)
    for scale in (2.0**100, 2.0**-100):
        scaled = scores(rule, fitness * np.float32(scale), descriptor * np.float32(scale))
        np.testing.assert_array_equal(np.argsort(scaled, kind="stable"), np.argsort(plain, kind="stable"))


def test_one_far_outlier_does_not_hide_the_others():
    descriptor = [[0.0], [1.0], [3.0], [7.0], [1e22]]
    result = scores(RULES["ns"], np.zeros(5), descriptor)
    np.testing.assert_allclose(result[:4], [(1 + 3 + 7) / 3, (1 + 2 + 6) / 3, 3.0, (4 + 6 + 7) / 3], rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-25, 1.0, 1e25])
def test_cells_of_any_size(scale):
    corners = np.float32(scale) * np.float32([[-1, -1], [-1, 1], [1, -1], [1, 1]])
    rule = MapElites(jnp.asarray(corners))
    assert (scores(rule, np.ones(4), corners * np.float32(0.9)) == 1).all()
    assert (scores(rule, np.ones(4), corners * np.float32(1e4)) == 1).all()


def test_map_elites_refuses_descriptors_of_another_size():
    with pytest.raises(ValueError, match="centroids have 2 dimensions, descriptors 3"):
        RULES["me"](KEY, jnp.zeros(2), jnp.zeros((2, 3)))


@every_rule
def test_lists_and_numpy_arrays_of_any_type_will_do(rule):
    fitness, descriptor = random_population(8)
    plain = rule(KEY, jnp.asarray(fitness), jnp.asarray(descriptor))
    np.testing.assert_array_equal(rule(KEY, fitness.astype(np.float64), descriptor.astype(np.float64)), plain)
    np.testing.assert_array_equal(rule(KEY, fitness.tolist(), descriptor.tolist()), plain)
    whole = rule(KEY, np.arange(4), np.arange(8).reshape(4, 2))
    assert whole.shape == (4,)


# Against an independent brute force, with many ties


def brute_force(fitness, descriptor, k, dominated):
    result = np.full(len(fitness), -INF)
    for i in np.flatnonzero(fitness > -INF):
        others = [
            j for j in np.flatnonzero(fitness > -INF) if j != i and (fitness[j] > fitness[i] if dominated else True)
        ]
        nearest = sorted(np.linalg.norm(descriptor[j] - descriptor[i]) for j in others)[:k]
        result[i] = np.mean(nearest) if nearest else (INF if dominated else 0.0)
    return result


small_grid = st.lists(
    st.tuples(st.sampled_from([-INF, -1.0, 0.0, 0.5, 3.0]), st.integers(0, 3), st.integers(0, 2)),
    min_size=9,
    max_size=9,
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(small_grid, st.sampled_from([1, 2, 3, 5]))
def test_novelty_equals_brute_force_on_a_grid_full_of_ties(rows, k):
    table = np.array(rows, np.float64)
    fitness, descriptor = table[:, 0], table[:, 1:]
    for rule, dominated in ((NoveltySearch(k), False), (DominatedNoveltySearch(k), True)):
        expected = brute_force(fitness, descriptor, k, dominated)
        np.testing.assert_allclose(scores(rule, fitness, descriptor), expected, rtol=1e-5, atol=1e-6)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(small_grid)
def test_map_elites_equals_brute_force(rows):
    table = np.array(rows, np.float64)
    fitness, descriptor = table[:, 0], table[:, 1:] / 3
    cells = np.argmin(((descriptor[:, None] - np.asarray(RULES["me"].centroids)) ** 2).sum(-1), axis=1)
    expected = np.full(len(fitness), -INF)
    for cell in set(cells):
        members = np.flatnonzero((cells == cell) & (fitness > -INF))
        if len(members):
            winner = members[np.argmax(fitness[members])]
            expected[winner] = fitness[winner]
    np.testing.assert_array_equal(scores(RULES["me"], fitness, descriptor), expected)


def test_blocks_change_nothing(monkeypatch):
    fitness, descriptor = map(jnp.asarray, random_population(7, num=50, num_empty=5))
    whole = neighbours.dominated_novelty(fitness, descriptor)
    monkeypatch.setattr(blocks, "MAX_TABLE", 700)  # blocks of 13, the last one short
    for expected, blocked in zip(whole, neighbours.dominated_novelty(fitness, descriptor), strict=True):
        np.testing.assert_allclose(blocked, expected, rtol=1e-6)
    monkeypatch.setattr(blocks, "MAX_TABLE", 30)  # blocks of seven points
    points = jnp.asarray(descriptor)
    np.testing.assert_array_equal(
        cvt.nearest(points, RULES["me"].centroids),
        ((np.asarray(points)[:, None] - np.asarray(RULES["me"].centroids)) ** 2).sum(-1).argmin(axis=1),
    )
