"""A population of anything: who stays, what comes back, files, threads, and what is refused."""

import copy
import math
import threading

import jax.numpy as jnp
import numpy as np
import pytest

import lqd
from lqd.errors import InvalidInput, Unreadable
from lqd.evolution import contest
from lqd.io.files import read_arrays, write_arrays


def filled(num=40, capacity=8, **settings):
    """Texts, in random places, the later the fitter."""
    rng = np.random.default_rng(0)
    pool = lqd.Pool(capacity, **settings)
    for i in range(num):
        pool.add(f"text {i}", float(i), rng.uniform(size=2))
    return pool


def numbers(pool):
    return [member.number for member in pool]


def test_everybody_stays_until_it_is_full_and_then_the_rule_decides():
    pool = lqd.Pool(2, rule="ga")
    assert pool.add("a", 1.0, [0.0])
    assert pool.add("b", 2.0, [0.0])
    assert not pool.add("c", 0.5, [9.0])
    assert pool.add_many(["d", "e"], [3.0, 0.1], [[0.0], [1.0]]) == [True, False]
    assert [member.item for member in pool] == ["d", "b"]
    assert (len(pool), pool.num_added, pool.best.item) == (2, 5, "d")


def test_lower_is_better_where_asked():
    pool = lqd.Pool(1, rule="ga", minimize=True)
    assert pool.add("a", 1.0, [0.0])
    assert not pool.add("b", 2.0, [0.0])
    assert pool.add("c", -3.0, [0.0])
    assert (pool.best.item, pool.best.fitness) == ("c", -3.0)


@pytest.mark.parametrize("rule", ["dns", "lqd-fn"])
def test_those_who_are_different_stay(rule):
    """Of equals in fitness in two crowds and one alone, nobody in a crowd takes the place of who is alone."""
    pool = lqd.Pool(6, rule=rule, descriptor_bounds=([0, 0], [1, 1]))
    pool.add("alone", 0.0, [0.9, 0.1])
    rng = np.random.default_rng(1)
    for i in range(30):
        pool.add(i, 1.0 + 0.01 * i, rng.normal([0.2, 0.8], 0.01))
    assert "alone" in [member.item for member in pool]


def test_a_rule_sees_shares_of_the_bounds_or_of_the_spread():
    """Another unit of one descriptor changes nothing."""

    def survivors(unit, **settings):
        rng, pool = np.random.default_rng(2), lqd.Pool(8, rule="ns", **settings)
        for i in range(30):
            pool.add(i, 0.0, rng.uniform(size=2) * [1, unit])
        return numbers(pool)

    assert survivors(1) == survivors(2.0**20)
    bounded = survivors(1, descriptor_bounds=([0, 0], [1, 1]))
    assert bounded == survivors(2.0**20, descriptor_bounds=([0, 0], [1, 2.0**20]))


def test_failed_and_infeasible_ones_do_not_stay():
    pool = lqd.Pool(4)
    assert pool.add_many("abcd", [math.nan, -math.inf, 1.0, 2.0], [[0, 0], [1, 1], [math.nan, 0], [1, 0]]) == [
        False, False, False, True,
    ]  # fmt: skip
    assert not pool.add("e", None, [0, 0])
    assert (pool.num_added, pool.num_failed, len(pool), pool.best.item) == (5, 3, 1, "d")


def test_what_is_too_bad_for_single_precision_is_infeasible():
    pool = lqd.Pool(4)
    assert pool.add_many("ab", [-1e300, 1.0], [[0.0], [1.0]]) == [False, True]
    assert (pool.num_failed, len(pool)) == (0, 1)


def test_a_copy_goes_its_own_way():
    pool = filled()
    other = copy.deepcopy(pool)
    assert other.add("new", 99.0, [0.5, 0.5])
    assert (pool.num_added, other.num_added, pool.best.item) == (40, 41, "text 39")


def test_parents_are_drawn_evenly_and_nobody_twice():
    pool = filled()
    drawn = [member.number for _ in range(500) for member in pool.sample(2)]
    counts = np.unique(drawn, return_counts=True)[1]
    assert len(counts) == 8
    assert counts.min() > 80  # of 125, with a standard deviation of about 10
    assert len({member.number for member in pool.sample(8)}) == 8
    assert len(pool.sample(20)) == 20


def test_members_come_fittest_first_with_what_was_given():
    pool = filled()
    fitness = [member.fitness for member in pool]
    assert fitness == sorted(fitness, reverse=True)
    assert all(member.item == f"text {member.number}" and member.fitness == member.number for member in pool)
    places = np.random.default_rng(0).uniform(size=(40, 2))
    for member in pool:
        np.testing.assert_array_equal(member.descriptor, places[member.number])
    with pytest.raises(ValueError, match="read-only"):
        pool.best.descriptor[:] = 7.0  # the next competition goes by it


def test_the_best_is_known_when_it_is_gone():
    pool = lqd.Pool(2, rule="ns")
    pool.add("best", 9.0, [0.5])
    for i, place in enumerate((0.4, 0.0, 1.0)):
        pool.add(i, 0.0, [place])
    assert "best" not in [member.item for member in pool]
    assert pool.best.item == "best"


@pytest.mark.parametrize("rule", ["lqd-fn", "me", "random"])
def test_a_saved_pool_goes_on_as_if_nothing_had_happened(rule, tmp_path):
    pool = filled(rule=rule, descriptor_bounds=(0, 1), seed=3)
    pool.sample(3)
    other = lqd.Pool.load(pool.save(tmp_path / "pool.safetensors"))
    assert (repr(other), numbers(other), other.best.item) == (repr(pool), numbers(pool), pool.best.item)
    rng = np.random.default_rng(5)
    for i in range(20):
        place = rng.uniform(size=2)
        assert other.add(i, 0.0, place) == pool.add(i, 0.0, place)
        assert [one.number for one in other.sample(2)] == [one.number for one in pool.sample(2)]
    assert numbers(other) == numbers(pool)


def test_an_empty_pool_and_objects_of_any_kind_can_be_saved(tmp_path):
    pool = lqd.Pool.load(lqd.Pool(3).save(tmp_path / "empty.safetensors"))
    assert (len(pool), pool.best, pool.capacity) == (0, None, 3)
    pool.add(np.arange(3), 1.0, [0.0])
    with pytest.raises(InvalidInput, match=r"item cannot be written as JSON .*array\(\[0, 1, 2\]\).*encode="):
        pool.save(tmp_path / "arrays.safetensors")
    assert not (tmp_path / "arrays.safetensors").exists()
    path = pool.save(tmp_path / "arrays.safetensors", encode=np.ndarray.tolist)
    np.testing.assert_array_equal(lqd.Pool.load(path, decode=np.array).best.item, np.arange(3))


def test_an_own_rule_is_given_again(tmp_path):
    def left(key, fitness, descriptor):
        return jnp.where(fitness > -jnp.inf, -descriptor[:, 0], -jnp.inf)

    pool = filled(rule=left, capacity=4)
    path = pool.save(tmp_path / "pool.safetensors")
    with pytest.raises(InvalidInput, match=r"a rule of its own \(left\): give rule="):
        lqd.Pool.load(path)
    other = lqd.Pool.load(path, rule=left)
    assert other.add("far left", 0.0, [-1.0, 0.0])


def test_files_that_are_not_whole_pools_are_refused(tmp_path):
    path = filled().save(tmp_path / "pool.safetensors")
    arrays, description = read_arrays(path, "pool")
    for changed in (
        {"items": description["items"][:-1]},
        {"num_added": -1},
        {"settings": description["settings"] | {"capacity": 3}},
        {"random": {"bit_generator": "PCG64"}},
        {"descriptor_dim": "two"},
    ):
        write_arrays(path, "pool", arrays, description | changed)
        with pytest.raises((Unreadable, InvalidInput), match=r"pool\.safetensors"):
            lqd.Pool.load(path)
    with pytest.raises(Unreadable, match=r"there is no such file"):
        lqd.Pool.load(tmp_path / "none.safetensors")


def test_it_compiles_once_whatever_comes():
    pool = filled(capacity=9)
    before = contest._compete._cache_size()
    for num in (1, 7, 32):
        pool.add_many(range(num), np.zeros(num), np.ones((num, 2)))
    assert contest._compete._cache_size() == before


def test_threads_may_add_and_sample_at_once():
    pool, errors = filled(), []

    def work(name):
        try:
            for i in range(25):
                parents = pool.sample(2)
                pool.add(f"{name} {i}", parents[0].fitness, parents[1].descriptor + 0.01)
        except Exception as error:  # seen in the main thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert (pool.num_added, len(pool)) == (140, 8)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda pool: lqd.Pool(0), r"capacity must be a whole number of at least 1, got 0"),
        (lambda pool: lqd.Pool(4, rule="lqd"), r"unknown rule 'lqd'"),
        (lambda pool: lqd.Pool(4, rule="me"), r"give descriptor_bounds="),
        (lambda pool: lqd.Pool(4, outside="inside"), r"outside must be one of 'edge', 'free', got 'inside'"),
        (lambda pool: lqd.Pool(4).sample(), r"the pool is empty"),
        (lambda pool: lqd.Pool(4, descriptor_bounds=([0, 0, 0], [1, 1, 1])).add(1, 1.0, [0, 0]), r"3 dimensions.* 2"),
        (lambda pool: lqd.Pool(4, rule="lqd-f-paper").add(1, 1.0, [0, 0, 0]), r"2 dimensions.*got 3"),
        (lambda pool: pool.add("x", math.inf, [0, 0]), r"nothing can be infinitely good"),
        (lambda pool: pool.add("x", 1.0, [0, 0, 0]), r"descriptor has 3 dimensions, expected 2"),
        (lambda pool: pool.add("x", 1.0, 0.5), r"descriptor a list of numbers, got shapes \(\) and \(\)"),
        (lambda pool: pool.add("x", [1.0], [0, 0]), r"got shapes \(1,\) and \(2,\); .*add_many"),
        (lambda pool: pool.add("x", "good", [0, 0]), r"fitness must hold real numbers"),
        (lambda pool: pool.add_many("ab", [1.0], [[0, 0]]), r"fitness must have shape \(2,\)"),
        (lambda pool: pool.sample(0), r"num must be a whole number of at least 1"),
    ],
)
def test_wrong_input_is_refused_by_name_and_changes_nothing(wrong, message):
    pool = filled()
    before = repr(pool), numbers(pool)
    with pytest.raises(InvalidInput, match=message):
        wrong(pool)
    assert (repr(pool), numbers(pool)) == before
