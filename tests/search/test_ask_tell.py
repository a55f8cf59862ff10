"""Ask and tell: the same search as `optimize`, in any order, over any number of sittings."""

import copy
import itertools
import pathlib
import pickle
import sys
import threading

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import lqd
from lqd.evolution import driver
from lqd.evolution.compile_time import Clock
from lqd.io import files

N, B, T = 16, 4, 6
SMALL = {
    "dim": 2,
    "bounds": (-1, 1),
    "population_size": N,
    "batch_size": B,
    "iso_sigma": 0.1,
    "line_sigma": 0.3,
    "descriptor_bounds": (-2, 2),
    "archive_cells": 32,
    "qd_offset": -3.0,
}

UNTUNED = {name: value for name, value in SMALL.items() if name not in ("iso_sigma", "line_sigma")}


def cone(x):
    """The best point is (0.3, -0.2); the descriptor is the genotype, turned."""
    return -(abs(x[:, 0] - 0.3) + abs(x[:, 1] + 0.2)), np.concatenate(
        [x[:, :1] + x[:, 1:], x[:, :1] - x[:, 1:]], axis=1
    )


def cone_and_extras(x):
    return *cone(x), {"third": x[:, 0].astype(np.float64) / 3, "pair": (x * 1000).astype(np.int64)}


def go_on(search, num_batches, evaluate=cone):
    for _ in range(num_batches):
        x = search.ask()
        search.tell(x, *evaluate(x))
    return search


def points(num, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (num, 2)).astype(np.float32)


def same_elites(first, second):
    for name in ("x", "fitness", "descriptor"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    assert first.extras.keys() == second.extras.keys()
    for name, value in first.extras.items():
        assert value.dtype == second.extras[name].dtype
        np.testing.assert_array_equal(value, second.extras[name])


def same_solutions(first, second):
    """Bit for bit, but for the history."""
    same_elites(first.population, second.population)
    same_elites(first.best, second.best)
    assert (first.archive is None) == (second.archive is None)
    if first.archive is not None:
        same_elites(first.archive, second.archive)
    assert (first.num_evaluations, first.num_nan) == (second.num_evaluations, second.num_nan)


def same_result(first, second):
    """Bit for bit, but for the clock."""
    same_solutions(first, second)
    histories = (result.history.drop(columns="time_s") for result in (first, second))
    pd.testing.assert_frame_equal(*histories, check_exact=True)


# --- the same search


@pytest.mark.parametrize("rule", ["ga", "random", "ns", "dns", "me"])
def test_ask_and_tell_is_optimize(rule):
    arguments = SMALL | {"rule": rule, "seed": 3, "minimize": True}
    search = go_on(lqd.AskTell(**arguments), N // B + T, cone_and_extras)
    whole = lqd.optimize(cone_and_extras, **arguments, num_evaluations=N + T * B)
    same_result(search.result(), whole)
    assert (search.num_evaluations, search.generation) == (N + T * B, T)


def test_the_first_asks_are_the_start_points():
    search = lqd.AskTell(**SMALL | {"population_size": 18, "x0": points(18)})
    asked = [search.ask() for _ in range(5)]
    assert [len(x) for x in asked] == [4, 4, 4, 4, 2]
    np.testing.assert_array_equal(np.concatenate(asked), points(18))


def test_asking_ahead():
    search = lqd.AskTell(**SMALL | {"rule": "ga"})
    start = [search.ask() for _ in range(N // B)]
    with pytest.raises(lqd.InvalidInput, match="all initial solutions are handed out, and nothing has been told"):
        search.ask()
    for x in reversed(start[2:]):
        search.tell(x, *cone(x))
    ahead = [search.ask() for _ in range(3)]  # children of those told, before the start is complete
    assert len(np.unique(np.concatenate([*start, *ahead]), axis=0)) == N + 3 * B
    told = [*start, *ahead]
    for x in [*start[:2], *reversed(ahead)]:
        search.tell(x, *cone(x))
    everyone = np.concatenate(told)
    np.testing.assert_array_equal(search.result().fitness, np.sort(cone(everyone)[0])[::-1][:N])
    assert search.num_evaluations == len(everyone)


def test_an_asked_batch_is_ones_own():
    search, other = lqd.AskTell(**SMALL), lqd.AskTell(**SMALL)
    for _ in range(N // B + 2):
        x, y = search.ask(), other.ask()
        results = cone(x)
        search.tell(x, *results)
        other.tell(y, *results)
        x[:] = np.nan
        results[1][:] = np.nan
    assert np.isfinite(search.ask()).all()
    assert np.isfinite(search.result().descriptor).all()


# --- told anything


def test_solutions_that_were_not_asked_for():
    search = lqd.AskTell(**SMALL | {"rule": "ga"})
    outside = np.float32([[0.3, -0.2], [5.0, 5.0]])  # the optimum, and a point beyond the bounds
    search.tell(outside, *cone(outside))
    result = search.result()
    assert (result.num_evaluations, result.best_fitness) == (2, 0.0)
    np.testing.assert_array_equal(result.x, outside)
    go_on(search, N // B)
    result = search.result()
    np.testing.assert_array_equal(result.best_x, outside[0])
    assert result.num_evaluations == N + 2


def test_lists_and_integers_are_welcome():
    search = lqd.AskTell(**SMALL)
    search.tell([[0, 1], [1, 0]], [3, 4], [[0, 0], [1, 1]])
    search.tell(jnp.ones((1, 2)), pd.Series([np.float64(2.5)]), [[True, False]])
    result = search.result()
    assert result.fitness.tolist() == [4.0, 3.0, 2.5]
    assert result.descriptor.tolist() == [[1, 1], [0, 0], [1, 0]]


@pytest.mark.parametrize("sizes", [[40], [1] * 20, [3, 1, 7, 20, 5], [N], [N + 1], [N - 1, 2, 9]])
def test_uneven_batches(sizes):
    """The fittest ever told survive, however they come."""
    search = lqd.AskTell(**SMALL | {"rule": "ga"})
    x = points(sum(sizes))
    fitness, descriptor = cone(x)
    rows = []
    for first, size in zip(np.cumsum([0, *sizes[:-1]]), sizes, strict=True):
        part = slice(first, first + size)
        rows += search.tell(x[part], fitness[part], descriptor[part], {"number": np.arange(len(x))[part]})
    result = search.result()
    order = np.argsort(-fitness, kind="stable")[:N]
    np.testing.assert_array_equal(result.extras["number"], order)
    np.testing.assert_array_equal(result.x, x[order])
    assert result.num_evaluations == search.num_evaluations == len(x)
    assert result.history["num_evaluations"].is_monotonic_increasing
    assert result.history["num_filled"].tolist() == [min(N, len(x))] * len(result.history)
    assert [int(row.num_evaluations[0]) for row in rows] == result.history["num_evaluations"].tolist()
    index = np.argmax(fitness)
    np.testing.assert_array_equal(result.best_x, x[index])


def test_uneven_batches_need_no_other_program():
    search = go_on(lqd.AskTell(**SMALL), N // B + 1)
    with Clock() as clock:
        for size in (1, 3, 5, 17):
            search.tell(points(size), *cone(points(size)))
    assert clock.num_programs == 0


def test_nobody_competes_before_the_start_is_complete():
    """MAP-Elites keeps one of each cell; of a start population all are kept until the next batch."""
    search = lqd.AskTell(**SMALL | {"rule": "me"})
    x = np.full((N, 2), 0.25, np.float32)
    search.tell(x, np.arange(N), np.zeros((N, 2)))
    assert len(search.result().x) == N
    search.tell(x[:1], [-1], np.zeros((1, 2)))
    assert search.result().fitness.tolist() == [N - 1]


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ((np.zeros((3, 3)), np.zeros(3), np.zeros((3, 2))), r"x must have shape \(solutions, 2\), got \(3, 3\)"),
        ((np.zeros(2), np.zeros(1), np.zeros((1, 2))), r"x must have shape \(solutions, 2\), got \(2,\)"),
        ((np.zeros((0, 2)), np.zeros(0), np.zeros((0, 2))), r"x must have shape \(solutions, 2\), got \(0, 2\)"),
        ((np.full((3, 2), np.nan), np.zeros(3), np.zeros((3, 2))), "x must be finite"),
        ((np.zeros((3, 2)), np.zeros(4), np.zeros((3, 2))), r"fitness must have shape \(3,\).*got \(4,\)"),
        ((np.zeros((3, 2)), np.zeros(3), np.zeros(3)), r"descriptor must have shape \(3, D\).*\[:, None\]"),
        ((np.zeros((3, 2)), np.zeros(3), np.zeros((3, 1))), "descriptor has 1 dimensions, expected 2"),
        ((np.zeros((3, 2)), ["a", "b", "c"], np.zeros((3, 2))), "fitness must hold real numbers, got dtype <U1"),
        ((np.zeros((3, 2)), [1, np.inf, 2], np.zeros((3, 2))), r"\+inf.*\(rows 1\)"),
        ((np.zeros((3, 2)), [1, np.nan, np.nan], np.zeros((3, 2))), r"NaN.*for 2 solutions \(rows 1, 2\)"),
        ((np.zeros((3, 2)), np.zeros(3), np.zeros((3, 2)), {"other": np.zeros(3)}), r"expected \['pair', 'third'\]"),
        ((np.zeros((3, 2)), np.zeros(3), np.zeros((3, 2))), r"expected \['pair', 'third'\], got \[\]"),
        ((np.zeros((3, 2)), np.zeros(3), np.zeros((3, 2)), {"pair": [1], "third": [1]}), "must have 3 entries"),
    ],
)
def test_a_refused_tell_changes_nothing(told, message):
    search, other = (go_on(lqd.AskTell(**SMALL, on_nan="raise"), N // B + 2, cone_and_extras) for _ in range(2))
    with pytest.raises(lqd.InvalidInput, match=message):
        search.tell(*told)
    same_result(go_on(search, 2, cone_and_extras).result(), go_on(other, 2, cone_and_extras).result())


def test_an_extra_of_another_shape_is_refused():
    search = go_on(lqd.AskTell(**SMALL), N // B, lambda x: (*cone(x), {"pair": x}))
    with pytest.raises(lqd.InvalidInput, match="pair"):
        search.tell(points(2), *cone(points(2)), {"pair": np.zeros((2, 3))})


def test_a_first_tell_that_fails_can_be_repeated():
    search = lqd.AskTell(**SMALL | {"descriptor_bounds": ([-2, -2], [2, 2])})
    with pytest.raises(lqd.InvalidInput, match="descriptor_bounds have 2 dimensions, the descriptors 3"):
        search.tell(points(2), np.zeros(2), np.zeros((2, 3)))
    search.tell(points(2), np.zeros(2), np.zeros((2, 2)))
    assert search.num_evaluations == 2


def test_no_result_before_the_first_tell():
    with pytest.raises(lqd.InvalidInput, match="nothing has been told yet"):
        lqd.AskTell(**SMALL).result()


# --- over several sittings


def _own_rule(key, fitness, descriptor):
    return jnp.where(fitness > -jnp.inf, descriptor[:, 0], -jnp.inf)


def _own_operator(key, first, second):
    return 0.5 * (first + second)


SETTINGS = {
    "plain": {"archive_cells": None, "qd_offset": None},
    "dns": {"rule": "dns"},
    "me by name": {"rule": "me", "minimize": True},
    "unbounded, around a point": {"bounds": None, "x0": [0.5, -0.5], "init_sigma": 0.3},
    "from given points": {"x0": points(5)},
}
RULE_OBJECTS = {
    "ns": lambda: lqd.rule("ns", k=2),
    "cells": lambda: lqd.rule("me", centroids=points(9) * 2),
    "learned": lambda: lqd.rule("lqd-untrained", seed=8),
}


@pytest.mark.parametrize("num_batches", [0, 2, N // B, N // B + 3])
@pytest.mark.parametrize("name", [*SETTINGS, *RULE_OBJECTS])
def test_a_saved_search_goes_on_bit_for_bit(tmp_path, name, num_batches):
    given = SETTINGS[name] if name in SETTINGS else {"rule": RULE_OBJECTS[name]()}
    search = go_on(lqd.AskTell(**SMALL | given, seed=6), num_batches, cone_and_extras)
    search.save(tmp_path / "search")
    loaded = lqd.AskTell.load(tmp_path / "search")
    assert (loaded.num_evaluations, loaded.generation) == (search.num_evaluations, search.generation)
    np.testing.assert_array_equal(loaded.ask(), search.ask())
    for one in (search, loaded):
        x = points(3, seed=9)
        one.tell(x, *cone_and_extras(x))
        go_on(one, N // B + 2, cone_and_extras)
    same_result(loaded.result(), search.result())
    with Clock() as clock:
        lqd.AskTell.load(tmp_path / "search").ask()
    assert clock.num_programs == 0


def test_a_loaded_search_has_the_same_solutions(tmp_path):
    search = go_on(lqd.AskTell(**SMALL), N // B + 3, cone_and_extras)
    search.save(tmp_path / "search")
    same_solutions(lqd.AskTell.load(tmp_path / "search").result(), search.result())


def test_a_loaded_search_has_the_same_history(tmp_path):
    search = go_on(lqd.AskTell(**SMALL), N // B + 3)
    search.save(tmp_path / "search")
    same_result(lqd.AskTell.load(tmp_path / "search").result(), search.result())


def test_saved_again_and_again(tmp_path):
    search = whole = None
    for _ in range(4):
        search = go_on(lqd.AskTell.load(tmp_path / "search") if search else lqd.AskTell(**SMALL), 3, cone_and_extras)
        search.save(tmp_path / "search")
    whole = go_on(lqd.AskTell(**SMALL), 12, cone_and_extras)
    same_result(search.result(), whole.result())
    assert [file.name for file in tmp_path.iterdir()] == ["search"]


def test_after_nan_and_nothing_feasible(tmp_path):
    search = lqd.AskTell(**SMALL)
    go_on(search, N // B + 1, lambda x: (np.full(len(x), np.nan), cone(x)[1] * np.nan))
    search.save(tmp_path / "search")
    loaded = lqd.AskTell.load(tmp_path / "search")
    assert loaded.result().num_nan == N + B
    same_solutions(go_on(loaded, 3).result(), go_on(search, 3).result())


def test_own_code_has_to_be_given_again(tmp_path):
    search = go_on(lqd.AskTell(**UNTUNED, rule=_own_rule, reproduction=_own_operator), N // B + 2)
    search.save(tmp_path / "search")
    with pytest.raises(lqd.InvalidInput, match=r"search: the run used a custom rule \(_own_rule\): give rule="):
        lqd.AskTell.load(tmp_path / "search")
    with pytest.raises(lqd.InvalidInput, match="search: the run used the operator '_own_operator': give reproduction="):
        lqd.AskTell.load(tmp_path / "search", rule=_own_rule)
    loaded = lqd.AskTell.load(tmp_path / "search", rule=_own_rule, reproduction=_own_operator)
    same_result(go_on(loaded, 3).result(), go_on(search, 3).result())


def test_weights_travel_with_the_search(tmp_path):
    rule = lqd.rule("lqd-untrained", seed=8)
    weights = lqd.save_rule(tmp_path / "weights.safetensors", rule)
    search = go_on(lqd.AskTell(**SMALL, rule=weights), N // B + 1)
    same_solutions(search.result(), go_on(lqd.AskTell(**SMALL, rule=rule), N // B + 1).result())
    search.save(tmp_path / "search")
    weights.unlink()
    same_result(go_on(lqd.AskTell.load(tmp_path / "search"), 2).result(), go_on(search, 2).result())


def test_a_save_that_fails_leaves_the_last_one(tmp_path):
    def labelled(x):
        return *cone(x), {"label": np.array([str(value) for value in x[:, 0]])}

    path = tmp_path / "search"
    go_on(lqd.AskTell(**SMALL), 2).save(path)
    before = path.read_bytes()
    with pytest.raises(lqd.InvalidInput, match=r"extras\['label'\] has dtype <U"):
        go_on(lqd.AskTell(**SMALL), 2, labelled).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


# --- files that are not what they should be


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    search = go_on(lqd.AskTell(**SMALL), N // B + 1, cone_and_extras)
    search.save(folder / "state")
    search.result().save(folder / "result")
    lqd.save_rule(folder / "rule", lqd.rule("lqd-untrained"), {"name": "test"})
    return folder


READERS = {"state": lqd.AskTell.load, "result": lqd.Result.load, "rule": lqd.load}


@pytest.mark.parametrize("given", [pathlib.Path, str])
def test_whole_files_are_read(written, given):
    state, result, rule = (READERS[kind](given(written / kind)) for kind in ("state", "result", "rule"))
    np.testing.assert_array_equal(state.result().x, result.x)
    assert len(result.x) == N
    np.testing.assert_array_equal(rule.params["score"]["weight"], lqd.rule("lqd-untrained").params["score"]["weight"])


@pytest.mark.parametrize("kind", READERS)
def test_truncated_files_are_refused(written, tmp_path, kind):
    content = (written / kind).read_bytes()
    for size in [0, 1, 7, 8, 9, 100, len(content) // 2, len(content) - 4, len(content) - 1]:
        path = tmp_path / f"cut at {size}"
        path.write_bytes(content[:size])
        with pytest.raises(lqd.Unreadable, match=f"cut at {size}: "):
            READERS[kind](path)


@pytest.mark.parametrize("kind", READERS)
def test_flipped_bits_are_noticed(written, tmp_path, kind):
    content = (written / kind).read_bytes()
    path = tmp_path / "flipped"
    positions = np.unique(np.concatenate([np.arange(40), np.linspace(0, len(content) - 1, 150).astype(int)]))
    for number, position in enumerate(positions):
        changed = bytearray(content)
        changed[position] ^= 1 << number % 8
        path.write_bytes(changed)
        with pytest.raises(lqd.Unreadable, match="flipped: "):
            READERS[kind](path)


@pytest.mark.parametrize("kind", READERS)
def test_something_appended_is_noticed(written, tmp_path, kind):
    path = tmp_path / "longer"
    path.write_bytes((written / kind).read_bytes() + b"\0" * 64)
    with pytest.raises(lqd.Unreadable, match="longer: "):
        READERS[kind](path)


@pytest.mark.parametrize(("kind", "other"), [*itertools.permutations(READERS, 2)])
def test_another_kind_is_refused(written, kind, other):
    with pytest.raises(lqd.Unreadable, match=f"{other}: expected a file of kind 'lqd-{kind}', found 'lqd-{other}'"):
        READERS[kind](written / other)


def _foreign(path: pathlib.Path, name: str):
    from safetensors.numpy import save_file

    if name == "folder":
        path.mkdir()
    elif name == "text":
        path.write_text("generation,fitness\n0,1.0\n" * 100)
    elif name == "npz":
        with path.open("wb") as file:
            np.savez(file, x=np.zeros((3, 2)))
    elif name == "pickle":
        path.write_bytes(b"\x80\x04\x95" + bytes(range(256)))
    elif name == "safetensors of others":
        save_file({"weight": np.zeros((3, 2), np.float32)}, path)
    elif name == "safetensors with their own description":
        save_file({"weight": np.zeros((3, 2), np.float32)}, path, {"format": "pt"})


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize(
    "name",
    ["missing", "folder", "text", "npz", "pickle", "safetensors of others", "safetensors with their own description"],
)
def test_foreign_files_are_refused(tmp_path, kind, name):
    path = tmp_path / "foreign"
    _foreign(path, name)
    with pytest.raises(lqd.Unreadable, match="foreign: "):
        READERS[kind](path)


@pytest.mark.parametrize("kind", READERS)
def test_a_later_format_is_refused(written, tmp_path, kind, monkeypatch):
    arrays, description = files.read_arrays(written / kind, kind)
    monkeypatch.setattr(files, "VERSION", "999")
    path = files.write_arrays(tmp_path / "later", kind, arrays, description)
    monkeypatch.undo()
    with pytest.raises(lqd.Unreadable, match="later: written in format '999'; this version reads '1'"):
        READERS[kind](path)


@pytest.mark.parametrize("change", ["missing", "extra", "shape", "dtype"])
def test_weights_that_do_not_fit_their_architecture(written, tmp_path, change):
    arrays, description = files.read_arrays(written / "rule", "rule")
    name = "score.weight"
    if change == "missing":
        del arrays[name]
    elif change == "extra":
        arrays["score.more"] = arrays[name]
    else:
        arrays[name] = arrays[name].T if change == "shape" else arrays[name].astype(np.float16)
    path = files.write_arrays(tmp_path / "odd", "rule", arrays, description)
    with pytest.raises(lqd.Unreadable, match=r"odd: .*score\.(weight|more)"):
        lqd.load(path)


def test_a_state_that_does_not_fit_its_settings(written, tmp_path):
    arrays, description = files.read_arrays(written / "state", "state")
    arrays["state.population.x"] = arrays["state.population.x"][:, :-1]
    path = files.write_arrays(tmp_path / "odd", "state", arrays, description)
    with pytest.raises(lqd.Unreadable, match="odd: its arrays do not fit its settings"):
        lqd.AskTell.load(path)


def test_history_needs_less_than_a_kilobyte_a_generation():
    """Nothing of JAX is kept with a row, and many rows become one table."""
    search = lqd.AskTell(dim=2, population_size=4, batch_size=2, rule="ga")
    told = []
    for _ in range(2 + 40):
        x = search.ask()
        told += search.tell(x, x[:, 0], x)
    for _ in range(1_000):
        driver.append(search._rows, told[-1])

    def size(value):
        if isinstance(value, np.ndarray):
            return sys.getsizeof(value) + (0 if value.base is None else size(value.base))
        assert isinstance(value, list | tuple | dict | str), type(value)
        parts = [*value.keys(), *value.values()] if isinstance(value, dict) else [] if isinstance(value, str) else value
        return sys.getsizeof(value) + sum(map(size, parts))

    rows = driver.Rows.join(search._rows)
    assert rows.generation.tolist() == [*range(41), *[40] * 1_000]
    assert rows.measures["best_fitness"][:41].tolist() == [row.measures["best_fitness"][0].tolist() for row in told]
    assert size(search._rows) < 1_000 * len(rows.generation)


def test_four_threads_ask_and_tell(tmp_path):
    """Nobody is asked for twice, nothing that is told is lost, and it can be saved and looked at all the while."""
    search = lqd.AskTell(dim=3, bounds=(-1, 1), population_size=16, batch_size=4, rule="dns", variation="paper")
    asked, ready = [], threading.Barrier(5)

    def work():
        ready.wait(60)
        for _ in range(60):
            if search.can_ask:
                x = search.ask()
                asked.append(x)
                search.tell(x, -np.sum(x**2, axis=1), x[:, :2], {"sum": x.sum(axis=1)})

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    ready.wait(60)
    while any(thread.is_alive() for thread in threads):
        saved = lqd.AskTell.load(search.save(tmp_path / "state"))
        if saved.num_evaluations:
            found = saved.result().population
            np.testing.assert_allclose(found.extras["sum"], found.x.sum(axis=1), rtol=1e-6)
    x = np.concatenate(asked)
    assert len(np.unique(x, axis=0)) == len(x) == search.num_evaluations
    assert search.generation == (len(x) - 16) / 4
    result = search.result()
    np.testing.assert_allclose(result.fitness, -np.sum(result.x**2, axis=1), rtol=1e-5)
    assert result.history["generation"].tolist() == list(range(search.generation + 1))


def test_copies_go_their_own_way():
    search = lqd.AskTell(dim=2, population_size=4, batch_size=4, rule="ga")
    x = search.ask()
    search.tell(x, x[:, 0], x)
    for other in (copy.deepcopy(search), pickle.loads(pickle.dumps(search))):
        y = other.ask()
        other.tell(y, y[:, 0], y)
        assert (search.num_evaluations, other.num_evaluations) == (4, 8)
    np.testing.assert_array_equal(search.ask(), y)
