"""Variation through both doors: traits come back with the told, resumed and compiled runs agree, no scale matters.

The functions here add and take absolute values only, so that NumPy and every compiled program agree to the last bit.
"""

import random
import warnings
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rulesets

import lqd
from lqd.evolution.variation import Children, Spread, parents
from lqd.io import files
from lqd.rules.learned.network import Architecture
from lqd.rules.learned.rule import Learned
from lqd.search import defaults, outstanding, saving
from lqd.search.saving import Saved
from lqd.search.settings import Settings
from lqd.types import pytree

N, B = 16, 4
SMALL = {"dim": 3, "bounds": (-1, 1), "population_size": N, "batch_size": B, "rule": "dns"}
BACKENDS = ("host", "jax")


def cone(x):
    """The descriptor is the genotype, turned."""
    module = np if isinstance(x, np.ndarray) else jnp
    turned = module.concatenate([x[:, :1] + x[:, 1:2], x[:, :1] - x[:, 1:2]], axis=1)
    return -(abs(x[:, 0] - 0.3) + abs(x[:, 1] + 0.2) + abs(x[:, 2])), turned


@pytree
class Marked:
    """Traits of a child are its genotype, so that one can see whether they are its own; of others they are 9."""

    def first(self, num):
        return jnp.full((num, 3), 9.0, jnp.float32)

    def children(self, key, population, box, start, batch_size):
        key_parents, key_step = jax.random.split(key)
        first, _ = parents(key_parents, population, batch_size)
        x = jnp.clip(population.x[first] + 0.1 * jax.random.normal(key_step, (batch_size, 3)), *box)
        return Children(x, x)


def same(first, second):
    for part in ("population", "best"):
        for name in ("x", "fitness", "descriptor"):
            np.testing.assert_array_equal(getattr(getattr(first, part), name), getattr(getattr(second, part), name))
    assert first.num_evaluations == second.num_evaluations


def go_on(search, num_batches):
    for _ in range(num_batches):
        x = search.ask()
        search.tell(x, *cone(x))
    return search


def kept(search):
    """Genotypes and traits of the population."""
    population = search._told.population
    return np.asarray(population.x[0]), np.asarray(population.traits[0])


def leading():
    """A rule with random weights that leads variation."""
    architecture = Architecture(num_layers=1, recipe=3)
    return Learned(rulesets.noisy(architecture), architecture)


# --- the same on both paths, in any units

CASES = {
    "box": {},
    "box, cells": {"descriptor_bounds": (-1, 1), "archive_cells": 8, "rule": "lqd-fn"},
    "descriptors free": {"descriptor_bounds": (-1, 1), "outside": "free"},
    "around a point": {"bounds": None, "x0": [0.1, -0.2, 0.3], "init_sigma": [0.5, 1.0, 2.0]},
    "unbounded": {"bounds": None, "rule": "ns"},
    "steps": {"iso_sigma": [0.1, 0.0, 0.2]},
    "one step": {"line_sigma": 0.5, "bounds": None, "init_sigma": 0.25},
    "own": {"variation": Marked()},
    "led": {"rule": leading()},
    "led, cells": {"rule": leading(), "descriptor_bounds": (-1, 1), "archive_cells": 8},
    "led by nobody": {"variation": "led", "rule": "dns"},
    "inherited steps": {"variation": Spread(inherit=0.9)},
    "steps, unbounded": {"iso_sigma": [0.1, 0.0, 0.2], "bounds": None, "init_sigma": [0.5, 1.0, 2.0]},
    "more points than slots": {
        "x0": np.random.default_rng(0).uniform(-1, 1, (N + B + 1, 3)),
        "init_sigma": 0.3,
        "bounds": None,
    },
}


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in CASES if name not in ("box", "led, cells", "own")]


@pytest.mark.parametrize("name", ["box", "led, cells", "own", *SLOW])
def test_host_and_compiled_agree_to_the_bit(name):
    arguments = SMALL | CASES[name] | {"num_evaluations": N + 20 * B}
    host, compiled = (lqd.optimize(cone, backend=backend, **arguments) for backend in BACKENDS)
    same(host, compiled)
    assert host.history["num_filled"].tolist() == compiled.history["num_filled"].tolist()


UNITS = ["box", "box, cells", "around a point", "unbounded", "steps", "steps, unbounded", "led", "led by nobody"]


@pytest.mark.parametrize("exponent", [20, -20])
@pytest.mark.parametrize("name", UNITS)
def test_other_units_give_the_same_bits(name, exponent):
    given = SMALL | {"num_evaluations": N + 10 * B} | CASES[name] | {"archive_cells": None}
    x_unit, descriptor_unit = np.float32([1, 2.0**exponent, 2.0**-exponent]), np.float32([2.0**exponent, 1])

    def elsewhere(x):
        fitness, descriptor = cone(x / x_unit)
        return fitness, descriptor * descriptor_unit

    other = dict(given)
    if given["bounds"] is None:
        other["init_sigma"] = np.asarray(given.get("init_sigma", 1.0)) * x_unit
        other["x0"] = None if given.get("x0") is None else given["x0"] * x_unit
    else:
        other["bounds"] = tuple(end * x_unit for end in given["bounds"])
    if given.get("descriptor_bounds") is not None:
        other["descriptor_bounds"] = tuple(end * descriptor_unit for end in given["descriptor_bounds"])
    plain, scaled = lqd.optimize(cone, **given), lqd.optimize(elsewhere, **other)
    np.testing.assert_array_equal(scaled.x, plain.x * x_unit)
    np.testing.assert_array_equal(scaled.fitness, plain.fitness)
    np.testing.assert_array_equal(scaled.descriptor, plain.descriptor * descriptor_unit)


def test_fixed_steps_are_relative_to_the_box_and_by_dimension():
    given = SMALL | {
        "bounds": ([0, 0, 0], [1, 1000, 1]),
        "rule": "random",
        "line_sigma": 0.0,
        "iso_sigma": [0, 0.01, 0],
    }
    search = go_on(lqd.AskTell(**given), N // B)
    start, x = search.result().x, search.ask()
    assert np.isin(x[:, ::2], start[:, ::2]).all()
    assert (np.abs(x[:, 1, None] - start[:, 1]).min(axis=1) < 50).all()
    assert not np.isin(x[:, 1], start[:, 1]).any()


def test_the_papers_steps_are_absolute_and_its_descriptors_as_they_are():
    given = SMALL | {"bounds": (-1000, 1000), "variation": "paper"}
    search = go_on(lqd.AskTell(**given, line_sigma=0.0), N // B)
    start, x = search.result().x, search.ask()
    assert np.abs(x[:, None] - start).max(axis=2).min(axis=1).max() < 0.05
    settings = Settings(**given)
    assert (settings.iso_sigma, settings.line_sigma) == (0.005, 0.05)
    assert settings.resolved_rule(2) == lqd.rule("dns")


def test_descriptors_outside_the_bounds_gain_nothing():
    """Novelty would else run away: the farther, the better."""

    def steep(x):
        return np.zeros(len(x)), x[:, :2] * 10.0**6

    given = SMALL | {"rule": "ns", "bounds": (-1e6, 1e6), "x0": [0, 0, 0], "init_sigma": 1e-3, "num_evaluations": 400}
    inside, free = (
        np.abs(lqd.optimize(steep, **given, descriptor_bounds=(-1e6, 1e6), outside=outside).descriptor)
        for outside in ("edge", "free")
    )
    assert np.median(inside) < 0.01 * np.median(free)


# --- traits of what is told


def test_traits_are_those_of_the_ask_in_any_order():
    search = go_on(lqd.AskTell(**SMALL | {"rule": "ga", "variation": Marked()}), N // B)
    assert (kept(search)[1] == 9).all()
    asked = np.concatenate([search.ask() for _ in range(6)])
    shuffled = np.random.default_rng(0).permutation(asked)
    for cut in np.split(shuffled, [1, 2, 9, 13]):
        search.tell(cut, cone(cut)[0] + 10, cone(cut)[1])  # all of them survive, or younger ones
    x, traits = kept(search)
    np.testing.assert_array_equal(x, traits)
    assert np.isin(x, asked).all()


def test_who_was_never_asked_for_begins_anew():
    search = go_on(lqd.AskTell(**SMALL | {"rule": "ga", "variation": Marked()}), N // B)
    asked, mine = search.ask(), np.float32([[0.5, 0.25, 0.125], [0.5, 0.5, 0.5]])
    told = np.concatenate([mine[:1], asked[2:], asked[2:3], mine[1:]])  # one of them a second time
    search.tell(told, cone(told)[0] + 10, cone(told)[1])
    found = {tuple(x): tuple(traits) for x, traits in zip(*kept(search), strict=True)}
    assert all(found[tuple(x)] == (9, 9, 9) for x in mine)
    assert found[tuple(asked[3])] == tuple(asked[3])
    rows = [traits for x, traits in zip(*kept(search), strict=True) if tuple(x) == tuple(asked[2])]
    assert sorted(row[0] for row in rows) == sorted([asked[2, 0], 9])


@pytest.mark.parametrize("steady_state", [False, True])
def test_traits_come_back_from_workers_that_die(tmp_path, steady_state):
    rng, died = random.Random(0), set()

    def exits_once(x):
        if rng.random() < 0.3 and x.tobytes() not in died:
            died.add(x.tobytes())
            raise SystemExit
        fitness, descriptor = cone(x)
        return fitness, descriptor

    given = SMALL | {"rule": "ga", "variation": Marked(), "num_evaluations": N + 20 * B, "steady_state": steady_state}
    with ThreadPoolExecutor(3) as pool:
        result = lqd.optimize(exits_once, executor=pool, checkpoint=tmp_path, **given)
    assert died
    assert result.num_failed == 0
    arrays = Saved(tmp_path / "state.safetensors").arrays
    x, traits = (arrays[f"state.population.{name}"][0] for name in ("x", "traits"))
    is_child = traits[:, 0] != 9
    np.testing.assert_array_equal(traits[is_child], x[is_child])
    assert is_child.sum() > N / 2


@pytest.mark.parametrize("num_batches", [1, N // B, N // B + 3])
def test_a_saved_search_goes_on_bit_for_bit(tmp_path, num_batches):
    """With what was out, and its traits."""
    search = go_on(lqd.AskTell(**SMALL), num_batches)
    first, second = search.ask(), search.ask() if num_batches > 1 else None
    loaded = lqd.AskTell.load(search.save(tmp_path / "search"))
    again = [loaded.ask(), loaded.ask()] if second is not None else [loaded.ask()]
    np.testing.assert_array_equal(np.concatenate(again), np.concatenate([first] if second is None else [first, second]))
    for one in (search, loaded):
        for x in reversed(again):
            one.tell(x, *cone(x))
        go_on(one, N // B + 2)
    same(search.result(), loaded.result())
    for one, other in zip(kept(search), kept(loaded), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_out_is_bounded():
    rows = np.arange(24, dtype=np.float32).reshape(12, 2)
    out = outstanding.Outstanding(np.float32([7.0]), limit=8)
    for i in range(3):
        out.add(rows[4 * i : 4 * i + 4], np.full((4, 1), i, np.float32))
    assert len(out.arrays()["outstanding.x"]) == 8
    assert out.settle(rows)[:, 0].tolist() == [7] * 4 + [1] * 4 + [2] * 4
    assert out.arrays() == {}


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1), [1, 4, 0, 5, 2, 3]])
@pytest.mark.parametrize("by", [1, 2, 3, 6])
def test_each_gets_its_own_traits_in_whatever_order_and_pieces_it_comes_back(order, by):
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    out = outstanding.Outstanding(np.float32([7.0]))
    out.add(rows[:3], rows[:3, :1])
    out.add(rows[3:], rows[3:, :1])
    told = rows[order]
    found = [out.settle(told[i : i + by]) for i in range(0, 6, by)]
    np.testing.assert_array_equal(np.concatenate(found), told[:, :1])
    assert out.arrays() == {}


def test_equal_pieces_are_told_apart_by_their_age():
    x, out = np.zeros((2, 2), np.float32), outstanding.Outstanding(np.float32([7.0]))
    for i in range(2):
        out.add(x, np.full((2, 1), i, np.float32))
    assert [out.settle(x)[:, 0].tolist() for _ in range(3)] == [[0, 0], [1, 1], [7, 7]]


def test_own_variation_has_to_be_given_again(tmp_path):
    search = go_on(lqd.AskTell(**SMALL | {"variation": Marked()}), N // B + 2)
    path = search.save(tmp_path / "search")
    with pytest.raises(lqd.InvalidInput, match="the run used the variation 'Marked': give variation="):
        lqd.AskTell.load(path)
    same(go_on(lqd.AskTell.load(path, variation=Marked()), 3).result(), go_on(search, 3).result())
    with pytest.raises(lqd.InvalidInput, match="made with variation='Marked', whose solutions have none of the traits"):
        lqd.AskTell.load(path, variation="spread")


def test_an_object_that_is_no_pytree_will_do():
    class Plain:
        first, children = Marked().first, Marked().children

    own, other = Plain(), Marked()
    runs = [lqd.optimize(cone, **SMALL | {"variation": how, "num_evaluations": N + 4 * B}) for how in (own, other)]
    same(*runs)
    assert runs[0].info["variation"] == "Plain"


def test_one_may_be_told_how_many_dimensions_there_are():
    class Wide:
        uses_dim = True
        children = Marked().children

        def first(self, num, dim):
            return jnp.full((num, dim), 9.0, jnp.float32)

    given = SMALL | {"num_evaluations": N + 4 * B}
    same(*(lqd.optimize(cone, **given, variation=how) for how in (Wide(), Marked())))
    search = lqd.AskTell(**SMALL, variation=Wide())
    assert kept(go_on(search, 5))[1].shape == (N, 3)


# --- files, checkpoints


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(saving, "EVERY_S", 0.0)
    monkeypatch.setattr(saving, "SHARE", 1e9)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("variation", ["spread", Spread(inherit=0.9)])
def test_interrupted_it_ends_the_same(tmp_path, backend, variation):
    given = SMALL | {"num_evaluations": N + 12 * B, "backend": backend, "variation": variation}
    for generation in (0, 5):
        stopped = lqd.optimize(
            cone, checkpoint=tmp_path, resume=True, callback=lambda p, g=generation: p.generation >= g, **given
        )
        assert stopped.stopped_by == "callback"
    same(lqd.optimize(cone, checkpoint=tmp_path, resume=True, **given), lqd.optimize(cone, **given))


def without_variation(path):
    """As a file was written before there was any."""
    arrays, description = files.read_arrays(path, "state")
    for name in ("variation", "outside"):
        del description["settings"][name]
    return files.write_arrays(path, "state", arrays, description)


def test_files_from_before_are_the_papers(tmp_path):
    given = SMALL | {"variation": "paper"}
    search = go_on(lqd.AskTell(**given), N // B + 2)
    loaded = lqd.AskTell.load(without_variation(search.save(tmp_path / "search")))
    same(go_on(loaded, 3).result(), go_on(search, 3).result())
    folder = tmp_path / "run"
    lqd.optimize(cone, checkpoint=folder, num_evaluations=N + 4 * B, **given)
    without_variation(folder / "state.safetensors")
    with pytest.raises(
        lqd.InvalidInput, match=r"was made with variation='paper'.*give variation='paper', or iso_sigma"
    ):
        lqd.optimize(cone, checkpoint=folder, resume=True, num_evaluations=N + 8 * B, **SMALL)
    longer = lqd.optimize(cone, checkpoint=folder, resume=True, num_evaluations=N + 8 * B, **given)
    same(longer, lqd.optimize(cone, num_evaluations=N + 8 * B, **given))


def test_an_old_search_with_an_operator_of_ones_own(tmp_path):
    search = go_on(lqd.AskTell(**SMALL | {"variation": "paper", "reproduction": _mean}), N // B + 2)
    path = search.save(tmp_path / "search")
    arrays, description = files.read_arrays(path, "state")
    description["settings"] |= {"iso_sigma": 0.005, "line_sigma": 0.05}  # which were written though never used
    files.write_arrays(path, "state", arrays, description)
    loaded = lqd.AskTell.load(without_variation(path), reproduction=_mean)
    same(go_on(loaded, 3).result(), go_on(search, 3).result())


def _mean(key, first, second):
    return 0.5 * (first + second)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_finished_run_goes_on_with_other_steps(tmp_path, backend):
    given = SMALL | {"checkpoint": tmp_path, "resume": True, "backend": backend}
    first = lqd.optimize(cone, num_evaluations=N + 4 * B, **given)
    wide = lqd.optimize(cone, num_evaluations=N + 8 * B, iso_sigma=0.2, **given)  # which has no traits
    assert wide.num_evaluations == N + 8 * B
    np.testing.assert_array_equal(wide.history["max_fitness"][:5], first.history["max_fitness"])
    still = lqd.optimize(cone, num_evaluations=N + 12 * B, iso_sigma=0.0, line_sigma=0.0, **given)
    assert np.isin(still.x, wide.x).all()
    other = lqd.optimize(cone, num_evaluations=N + 16 * B, variation="paper", **given)
    assert other.num_evaluations == N + 16 * B
    with pytest.raises(lqd.InvalidInput, match="none of the traits that 'spread' continues from"):
        lqd.optimize(cone, num_evaluations=N + 16 * B, **given)


def test_a_run_with_steps_of_its_own_goes_on_without(tmp_path):
    """Whoever has no traits yet begins with the first ones."""
    results = []
    for backend in BACKENDS:
        given = SMALL | {"checkpoint": tmp_path / backend, "resume": True, "backend": backend}
        lqd.optimize(cone, num_evaluations=N + 4 * B, iso_sigma=0.2, **given)
        results.append(lqd.optimize(cone, num_evaluations=N + 5 * B, **given))
        arrays = Saved(tmp_path / backend / "state.safetensors").arrays
        is_old = (arrays["state.population.traits"][0] == Spread().first(N)).all(axis=1)
        assert N - B <= is_old.sum() < N
    same(*results)


def test_steps_of_the_same_traits_can_change(tmp_path):
    given = SMALL | {"checkpoint": tmp_path, "resume": True}
    lqd.optimize(cone, num_evaluations=N + 4 * B, **given)
    result = lqd.optimize(cone, num_evaluations=N + 8 * B, variation=Spread(inherit=0.9), **given)
    assert (result.num_evaluations, result.info["variation"]) == (N + 8 * B, "Spread")


@pytree
class Forgetful(Spread):
    """The default without its memory."""

    uses_memory = False


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_without_a_memory_goes_on_with_an_empty_one(tmp_path, backend):
    given = SMALL | {"checkpoint": tmp_path, "backend": backend}
    lqd.optimize(cone, **given, variation=Forgetful(), num_evaluations=N + 2 * B)
    result = lqd.optimize(cone, **given, resume=True, num_evaluations=N + 4 * B)
    assert result.num_evaluations == N + 4 * B
    assert Saved(tmp_path / "state.safetensors").arrays["state.memory.num"].tolist() == [2 * B]


# --- sizes


def test_sizes_go_by_the_budget():
    assert sorted({defaults.sizes(10**i) for i in range(9)}) == sorted(sizes for _, sizes in defaults.BY_BUDGET)
    assert len(defaults.BY_BUDGET) <= 3
    result = lqd.optimize(cone, dim=3, bounds=(-1, 1), rule="ga", num_evaluations=300)
    assert (result.info["population_size"], result.info["batch_size"]) == defaults.sizes(300)


@pytest.mark.parametrize(("given", "expected"), [
    ({}, defaults.ASK_TELL), ({"population_size": 40}, (40, 10)), ({"batch_size": 5}, (20, 5)),
    ({"population_size": 2}, (2, 1)), ({"population_size": 8, "batch_size": 8}, (8, 8)),
    ({"variation": "paper"}, (128, 32)), ({"variation": "paper", "population_size": 40}, (40, 32)),
])  # fmt: skip
def test_one_size_follows_the_other(given, expected):
    settings = Settings(dim=3, **given)
    assert (settings.population_size, settings.batch_size) == expected


def test_a_checkpoint_goes_on_with_the_sizes_it_has(tmp_path):
    given = {"dim": 3, "bounds": (-1, 1), "rule": "ga", "checkpoint": tmp_path, "resume": True}
    lqd.optimize(cone, num_evaluations=60, population_size=20, **given)
    longer = lqd.optimize(cone, num_evaluations=10_000_000, callback=lambda p: p.num_evaluations > 80, **given)
    assert (longer.info["population_size"], longer.info["batch_size"]) == (20, 5)
    with pytest.raises(lqd.InvalidInput, match=r"it differs in population_size \(20, now 24\)"):
        lqd.optimize(cone, num_evaluations=100, population_size=24, **given)


# --- more points than the population has room for


def test_given_points_are_all_asked_for_and_the_rule_chooses():
    points = np.random.default_rng(1).uniform(-1, 1, (N + 2 * B + 1, 3)).astype(np.float32)
    search = lqd.AskTell(**SMALL | {"rule": "ga", "x0": points, "init_sigma": 0.01})
    asked = [search.ask() for _ in range(N // B + 3)]
    x = np.concatenate(asked)
    np.testing.assert_array_equal(x[: len(points)], points)
    np.testing.assert_allclose(x[len(points) :], points[: B - 1], atol=0.06)
    for one in asked:
        search.tell(one, *cone(one))
    assert search.generation == 3
    np.testing.assert_array_equal(search.result().fitness, np.sort(cone(x)[0])[::-1][:N])
    assert not np.isin(search.ask(), x).all()


def test_a_search_from_many_points_goes_on_bit_for_bit(tmp_path):
    given = SMALL | CASES["more points than slots"]
    search = go_on(lqd.AskTell(**given), N // B + 1)
    loaded = lqd.AskTell.load(search.save(tmp_path / "search"))
    same(go_on(loaded, 4).result(), go_on(search, 4).result())


# --- descriptors that grow without end


def _exploding(x):
    """Farther out by a factor in each generation, whatever the scale."""
    return x[:, 0] * 0, x[:, :2]


@pytest.mark.parametrize("backend", BACKENDS)
def test_descriptors_that_grow_are_warned_about_once(backend):
    given = SMALL | {"bounds": None, "rule": "ns", "line_sigma": 3.0, "num_evaluations": N + 140 * B}
    with pytest.warns(UserWarning, match=r"descriptor [01] now spreads over .*Give descriptor_bounds") as caught:
        lqd.optimize(_exploding, backend=backend, **given)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lqd.optimize(_exploding, backend=backend, **given | {"descriptor_bounds": (-1, 1)})
        lqd.optimize(_exploding, backend=backend, **given | {"rule": "ga"})
