"""Bad input is refused at the door: an error of ours that names the argument and the value, before anything compiles.

And input that is only strange (ties, infinities, huge and tiny numbers) goes through, and never becomes a NaN.
"""

import warnings

import hypothesis
import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lqd
from lqd.evolution.compile_time import Clock
from lqd.evolution.variation import Spread

N, B = 16, 4
SMALL = {"dim": 2, "bounds": (-1, 1), "population_size": N, "batch_size": B}
BUDGET = {"num_evaluations": N + 4 * B}


def evaluate(x):
    return -abs(x[:, 0]), x


def refused(call, message):
    """The call ends in an error of ours with this message, and has compiled nothing."""
    with Clock() as clock, pytest.raises(lqd.InvalidInput, match=message) as caught:
        call()
    assert clock.num_programs == 0
    return caught.value


@pytest.fixture(scope="module", autouse=True)
def _start_points_are_compiled():
    """A function on the host has to be called before its answer can be looked at: that far is not an error."""
    lqd.AskTell(**SMALL).ask()


# --- arguments


class _Crooked:
    def first(self, num):
        return np.zeros((num, 1, 1), np.float32)

    def children(self, key, population, box, start, batch_size):
        raise NotImplementedError


def _mean(key, x1, x2):
    return 0.5 * (x1 + x2)


SETTINGS = {
    "dim 0": ({"dim": 0}, "dim must be a whole number of at least 1, got 0"),
    "dim negative": ({"dim": -2}, "dim must be a whole number of at least 1, got -2"),
    "dim bool": ({"dim": True}, "dim must be a whole number.*got True"),
    "dim float": ({"dim": 2.0}, "dim must be a whole number.*got 2.0"),
    "dim text": ({"dim": "2"}, "dim must be a whole number.*got '2'"),
    "dim array": ({"dim": np.array([2])}, r"dim must be a whole number.*got array\(\[2\]\)"),
    "population 0": ({"population_size": 0}, "population_size must be a whole number of at least 1, got 0"),
    "population float": ({"population_size": 16.0}, "population_size must be a whole number.*got 16.0"),
    "batch 0": ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
    "batch bool": ({"batch_size": False}, "batch_size must be a whole number.*got False"),
    "seed negative": ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
    "seed float": ({"seed": 0.5}, "seed must be a whole number.*got 0.5"),
    "seed none": ({"seed": None}, "seed must be a whole number.*got None"),
    "seed large": ({"seed": 2**32}, r"seed must be below 2\*\*32, got 4294967296"),
    "iso negative": ({"iso_sigma": -0.1}, "iso_sigma must be a finite number of at least 0, got -0.1"),
    "iso nan": ({"iso_sigma": np.nan}, "iso_sigma must be a finite number.*got nan"),
    "iso text": ({"iso_sigma": "0.1"}, "iso_sigma must be a finite number.*got '0.1'"),
    "iso too long": ({"iso_sigma": [0.1] * 3}, r"iso_sigma must be one number or 2, one for each.*got shape \(3,\)"),
    "iso negative in one": ({"iso_sigma": [0.1, -0.2]}, r"iso_sigma must have finite.*at least 0, got \[0.1, -0.2\]"),
    "iso words": ({"iso_sigma": ["a", "b"]}, "iso_sigma must hold real numbers, got dtype <U1"),
    "line vector": ({"line_sigma": [0.1, 0.2]}, r"line_sigma must be a finite number.*got \[0.1, 0.2\]"),
    "init too short": ({"init_sigma": [1.0]}, r"init_sigma must be one number or 2, one for each.*got shape \(1,\)"),
    "init 0 in one": ({"init_sigma": [1.0, 0.0]}, r"init_sigma must have finite numbers above 0, got \[1.0, 0.0\]"),
    "variation unknown": ({"variation": "papers"}, r"unknown variation 'papers'\. Did you mean 'paper'"),
    "variation number": ({"variation": 3}, r"variation must be one of 'spread', 'led', 'paper', or an object .*got 3"),
    "variation class": ({"variation": Spread}, r"variation must be one of .*got <class"),
    "own traits": ({"variation": _Crooked()}, r"variation _Crooked: first\(num\) -> traits \(num, T\) in float32"),
    "own steps": ({"variation": Spread(), "iso_sigma": 0.1}, "variation Spread has its own steps: leave iso_sigma out"),
    "reproduction and steps": (
        {"reproduction": _mean, "iso_sigma": 0.1, "line_sigma": 0.1},
        "reproduction takes the place of iso_sigma and line_sigma: leave one of them out",
    ),
    "reproduction and variation": (
        {"reproduction": _mean, "variation": Spread()},
        "reproduction takes the place of variation",
    ),
    "outside": ({"outside": "beyond"}, "outside must be one of 'edge', 'free', got 'beyond'"),
    "line negative": ({"line_sigma": -1}, "line_sigma must be a finite number of at least 0, got -1"),
    "line inf": ({"line_sigma": np.inf}, "line_sigma must be a finite number.*got inf"),
    "line bool": ({"line_sigma": True}, "line_sigma must be a finite number.*got True"),
    "init 0": ({"init_sigma": 0.0}, "init_sigma must be a finite number above 0, got 0.0"),
    "init negative": ({"init_sigma": -1.0}, "init_sigma must be a finite number above 0, got -1.0"),
    "on_nan": ({"on_nan": "ignore"}, "on_nan must be one of 'eliminate', 'raise', got 'ignore'"),
    "on_nan none": ({"on_nan": None}, "on_nan must be one of 'eliminate', 'raise', got None"),
    "qd_offset, no archive": ({"qd_offset": 1.0}, "give archive_cells= too"),
    "qd_offset nan": ({"qd_offset": np.nan}, "qd_offset must be finite, got nan"),
    "qd_offset inf": ({"qd_offset": -np.inf}, "qd_offset must be finite, got -inf"),
    "cells 0": ({"archive_cells": 0, "descriptor_bounds": (0, 1)}, "archive_cells must be a whole number.*got 0"),
    "cells float": ({"archive_cells": 8.0, "descriptor_bounds": (0, 1)}, "archive_cells must be.*got 8.0"),
    "cells, no bounds": ({"archive_cells": 8}, r"archive_cells needs descriptor_bounds=\(low, high\)"),
    # bounds
    "bounds reversed": ({"bounds": (1, -1)}, r"bounds must have each lower end below the upper one, got \(1, -1\)"),
    "bounds reversed in one": ({"bounds": ([0, 3], [1, 1])}, r"bounds must have each lower.*\(\[0, 3\], \[1, 1\]\)"),
    "bounds empty": ({"bounds": (1, 1)}, r"bounds must have each lower end below the upper one, got \(1, 1\)"),
    "bounds nan": (
        {"bounds": (np.nan, 1)},
        r"bounds must be finite, got \(nan, 1\); for an unbounded search give None",
    ),
    "bounds inf": ({"bounds": (-np.inf, np.inf)}, r"bounds must be finite, got \(-inf, inf\); for an unbounded search"),
    "bounds one number": ({"bounds": 5}, r"bounds must be \(low, high\).*got 5"),
    "bounds three": ({"bounds": (0, 1, 2)}, r"bounds must be \(low, high\).*got \(0, 1, 2\)"),
    "bounds nothing": ({"bounds": ()}, r"bounds must be \(low, high\).*got \(\)"),
    "bounds text": ({"bounds": "-1,1"}, r"bounds must be \(low, high\).*got '-1,1'"),
    "bounds words": ({"bounds": ("low", "high")}, r"bounds must be \(low, high\).*got \('low', 'high'\)"),
    "bounds ragged": ({"bounds": ([0, [1]], 2)}, r"bounds must be \(low, high\).*"),
    "bounds complex": ({"bounds": (0, 1j)}, r"bounds must be \(low, high\).*1j"),
    "bounds none inside": ({"bounds": (None, 1)}, r"bounds must be .*\(None, 1\)"),
    "bounds too long": ({"bounds": ([0, 0, 0], [1, 1, 1])}, "bounds: the lower end has 3 entries, expected 2"),
    "bounds half too long": ({"bounds": (0, [1, 1, 1])}, "bounds: the upper end has 3 entries, expected 2"),
    "bounds matrix": ({"bounds": np.zeros((2, 2, 2))}, r"bounds must be .*got shapes \(2, 2\) and \(2, 2\)"),
    "bounds that can be both": (
        {"bounds": [(0, 1), (2, 3)]},
        r"bounds=.* can be read as \(low, high\) or as one pair per dimension: .*array\(\[0, 2\]\), np",
    ),
    "bounds of three pairs": (
        {"bounds": [(0, 1)] * 3},
        "bounds: 3 pairs for 2 dimensions; give one pair per dimension",
    ),
    "bounds as wrong pairs": ({"bounds": [(1, 0), (0, 1)]}, r"bounds must have each lower end below"),
    # descriptor bounds
    "descriptor bounds reversed": ({"descriptor_bounds": (1, 0)}, r"descriptor_bounds must have.*got \(1, 0\)"),
    "descriptor bounds that can be both": (
        {"descriptor_bounds": [(-2, 3), (-1, 4)]},
        r"descriptor_bounds=.*be read as",
    ),
    "descriptor bounds of two lengths": (
        {"descriptor_bounds": ([0, 0], [1, 1, 1])},
        "descriptor_bounds: the lower end has 2 entries, expected 3",
    ),
    "descriptor bounds nan": ({"descriptor_bounds": ([0, np.nan], [1, 1])}, "descriptor_bounds must be finite"),
    "me without bounds": ({"rule": "me"}, r"rule 'me'.*descriptor_bounds=\(low, high\)"),
    # x0
    "x0 too short": ({"x0": [0.0]}, r"x0 must have shape \(2,\) or \(points, 2\), got \(1,\)"),
    "x0 number": ({"x0": 0.0}, r"x0 must have shape \(2,\) or \(points, 2\), got \(\)"),
    "x0 nothing": ({"x0": np.zeros((0, 2))}, r"x0 must have shape.*got \(0, 2\)"),
    "x0 deep": ({"x0": np.zeros((1, 1, 2))}, r"x0 must have shape.*got \(1, 1, 2\)"),
    "x0 nan": ({"x0": [0.0, np.nan]}, "x0 must be finite"),
    "x0 outside": ({"x0": [0.0, 1.5]}, r"x0 must lie within the bounds, but x0\[1\] is 1.5, not between -1 and 1"),
    "x0 text": ({"x0": ["a", "b"]}, "x0 must hold real numbers, got dtype <U1"),
    "x0 ragged": ({"x0": [[0, 0], [0]]}, "x0 is not an array of numbers"),
    # rule, operator
    "rule unknown": ({"rule": "dnss"}, r"unknown rule 'dnss'\. Did you mean '(dns|ns)'"),
    "rule unknown, all listed": ({"rule": "xyz"}, "unknown rule 'xyz'.*Choose from: ga, random, ns, dns, me"),
    "rule number": ({"rule": 3}, "rule must be a name, a file of weights or a callable, got 3"),
    "rule none": ({"rule": None}, "rule must be a name, a file of weights or a callable, got None"),
    "rule file missing": ({"rule": "nowhere.safetensors"}, r"nowhere\.safetensors: there is no such file"),
    "operator": ({"reproduction": "iso"}, r"reproduction must be a function \(key, x1, x2\) -> x, got 'iso'"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings(name):
    given, message = SETTINGS[name]
    refused(lambda: lqd.optimize(evaluate, **SMALL | BUDGET | given), message)
    refused(lambda: lqd.AskTell(**SMALL | given), message)
    refused(lambda: lqd.optimize(evaluate, backend="jax", **SMALL | BUDGET | given), message)


ARGUMENTS = {
    "budget 0": ({"num_evaluations": 0}, "num_evaluations must be a whole number of at least 1, got 0"),
    "budget negative": ({"num_evaluations": -5}, "num_evaluations must be a whole number.*got -5"),
    "budget float": ({"num_evaluations": 1e5 + 0.5}, "num_evaluations must be a whole number.*got 100000.5"),
    "budget of points": (
        {"x0": np.zeros((N + B + 1, 2)), "num_evaluations": N + B},
        f"num_evaluations={N + B} does not cover the {N + B + 1} points of x0.*give at least {N + 2 * B}, or fewer",
    ),
    "budget bool": ({"num_evaluations": True}, "num_evaluations must be a whole number.*got True"),
    "budget one short": (
        {"num_evaluations": N + B - 1},
        rf"num_evaluations={N + B - 1} is less than the initial population and one batch \({N} \+ {B}\)",
    ),
    "backend": ({"backend": "gpu"}, "backend must be one of 'auto', 'jax', 'host', got 'gpu'"),
    "backend none": ({"backend": None}, "backend must be one of.*got None"),
    "time 0": ({"time_limit_s": 0}, "time_limit_s must be a finite number above 0, got 0"),
    "time negative": ({"time_limit_s": -1.0}, "time_limit_s must be a finite number above 0, got -1.0"),
    "time nan": ({"time_limit_s": np.nan}, "time_limit_s must be a finite number above 0, got nan"),
    "time text": ({"time_limit_s": "10"}, "time_limit_s must be a finite number above 0, got '10'"),
    "callback": ({"callback": 3}, "callback must be a function, got 3"),
    "no dim": ({"dim": None}, "dim, the length of a solution, is missing"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_of_optimize(name):
    given, message = ARGUMENTS[name]
    refused(lambda: lqd.optimize(evaluate, **SMALL | BUDGET | given), message)


@pytest.mark.parametrize("given", [None, 3, "sphere", np.zeros(4)])
def test_what_is_not_a_function(given):
    refused(lambda: lqd.optimize(given, **SMALL, **BUDGET), "evaluate must be a function of a batch of solutions")


def test_a_typing_error_in_an_argument_is_an_error():
    with pytest.raises(TypeError, match="num_evals"):
        lqd.optimize(evaluate, **SMALL, num_evals=100)


@pytest.mark.parametrize(("given", "meant"), [("DNS", "dns"), ("GA", "ga")])
def test_the_nearest_rule_whatever_its_case(given, meant):
    refused(lambda: lqd.rule(given), f"Did you mean .*'{meant}'")


@pytest.mark.parametrize("given", ["3", [1.0, 2.0], 1j])
def test_a_qd_offset_that_is_no_number(given):
    refused(lambda: lqd.AskTell(**SMALL, qd_offset=given), "qd_offset must be")


@pytest.mark.parametrize("given", ["no", None, 2])
def test_a_direction_that_is_no_bool(given):
    refused(lambda: lqd.AskTell(**SMALL, minimize=given), "minimize must be")


@pytest.mark.parametrize(
    ("given", "name"),
    [({"bounds": (-1e300, 1e300)}, "bounds"), ({"bounds": None, "x0": [1e300, 0.0]}, "x0")],
)
def test_beyond_float32(given, name):
    refused(lambda: lqd.AskTell(**SMALL | given), f"{name} must be finite")


def test_a_box_wider_than_float32():
    try:
        x = lqd.AskTell(**SMALL | {"bounds": (-3e38, 3e38)}).ask()
    except lqd.InvalidInput as error:
        assert "bounds" in str(error)  # noqa: PT017
    else:
        assert np.isfinite(x).all()


# --- rules

RULES = {
    "unknown": (("nss", {}), "unknown rule 'nss'. Did you mean 'ns'"),
    "no name": ((None, {}), "unknown rule None"),
    "unknown setting": (("dns", {"neighbours": 3}), "rule 'dns' has no setting 'neighbours'; it takes k"),
    "setting of a rule without": (("ga", {"k": 3}), "rule 'ga' has no setting 'k'; it takes none"),
    "k 0": (("dns", {"k": 0}), "k must be a whole number of at least 1, got 0"),
    "k float": (("ns", {"k": 3.0}), "k must be a whole number.*got 3.0"),
    "me without": (("me", {}), r"rule 'me'.*descriptor_bounds=\(low, high\).*or centroids="),
    "me both": (("me", {"centroids": [[0, 0]], "descriptor_bounds": (0, 1)}), "not both"),
    "me flat centroids": (("me", {"centroids": [0, 1]}), r"centroids must be a finite array \(cells, D\).*\(2,\)"),
    "me no centroids": (("me", {"centroids": np.zeros((0, 2))}), r"centroids must be .*\(0, 2\)"),
    "me nan centroids": (("me", {"centroids": [[0, np.nan]]}), "centroids must be a finite array"),
    "me cells 0": (("me", {"descriptor_bounds": (0, 1), "num_cells": 0}), "num_cells must be a whole number.*got 0"),
    "me reversed": (("me", {"descriptor_bounds": (1, 0)}), "descriptor_bounds must have each lower end"),
    "heads": (("lqd-untrained", {"num_features": 10, "num_heads": 4}), "num_features must be a multiple of num_heads"),
    "dimension": (("lqd-untrained", {"descriptor_dim": 0}), "descriptor_dim must be a whole number.*got 0"),
}


@pytest.mark.parametrize("name", RULES)
def test_rule_settings(name):
    (rule, settings), message = RULES[name]
    refused(lambda: lqd.rule(rule, **settings), message)


@pytest.mark.parametrize("centroids", ["abc", [[1], [1, 2]], [[1j, 0]]])
def test_centroids_that_are_no_numbers(centroids):
    refused(lambda: lqd.rule("me", centroids=centroids), "centroids must be")


def test_numpy_integers_shape_a_learned_rule():
    assert lqd.rule("lqd-untrained", descriptor_dim=np.int64(2)).architecture.descriptor_dim == 2


def test_making_cells_compiles_nothing():
    """Cells are made at the door, before the other arguments are known to be good."""
    with Clock() as clock:
        lqd.rule("me", descriptor_bounds=([0, 0], [1, 1]), num_cells=23)
    assert clock.num_programs == 0


def test_more_cells_than_slots():
    rule = lqd.rule("me", centroids=np.random.default_rng(0).random((N + 1, 2)))
    refused(lambda: lqd.AskTell(**SMALL, rule=rule), rf"{N + 1} cells for a population of {N}.*population_size={N + 1}")


def _wide(x):
    """Three descriptors."""
    return -abs(x[:, 0]), jnp.concatenate([x, x[:, :1]], axis=1)


def _wide_on_host(x):
    return -abs(x[:, 0]), np.concatenate([x, x[:, :1]], axis=1)


@pytest.fixture(scope="module")
def learned():
    return lqd.rule("lqd-untrained", descriptor_dim=2)


@pytest.mark.parametrize(("function", "backend"), [(_wide, "jax"), (_wide_on_host, "host")])
def test_a_learned_rule_for_another_number_of_descriptors(learned, function, backend):
    refused(
        lambda: lqd.optimize(function, backend=backend, rule=learned, **SMALL, **BUDGET),
        "learned rule reads descriptors of 2 dimensions.*got 3",
    )


@pytest.mark.parametrize(("function", "backend"), [(_wide, "jax"), (_wide_on_host, "host")])
def test_centroids_of_another_number_of_descriptors(function, backend):
    rule = lqd.rule("me", centroids=np.random.default_rng(0).random((8, 2)))
    refused(lambda: lqd.optimize(function, backend=backend, rule=rule, **SMALL, **BUDGET), "centroids.* 2 .* 3")


@pytest.mark.parametrize(("function", "backend"), [(_wide, "jax"), (_wide_on_host, "host")])
def test_descriptor_bounds_of_another_number_of_descriptors(function, backend):
    lqd.rule("me", descriptor_bounds=([0, 0], [1, 1]), num_cells=N)
    refused(
        lambda: lqd.optimize(
            function, backend=backend, rule="me", descriptor_bounds=([0, 0], [1, 1]), **SMALL, **BUDGET
        ),
        "descriptor_bounds have 2 dimensions, the descriptors 3",
    )


OWN_RULES = {
    "too few arguments": lambda key, fitness: fitness,
    "one score for all": lambda key, fitness, descriptor: 1.0,
    "a column": lambda key, fitness, descriptor: fitness[:, None],
    "too few": lambda key, fitness, descriptor: fitness[:-1],
    "text": lambda key, fitness, descriptor: "fitness",
    "cannot be traced": lambda key, fitness, descriptor: np.asarray(fitness),
}


@pytest.mark.parametrize("name", OWN_RULES)
def test_own_rule(name):
    refused(lambda: lqd.optimize(evaluate, rule=OWN_RULES[name], **SMALL, **BUDGET), "rule")


OWN_OPERATORS = {
    "too few arguments": lambda key, x: x,
    "one number": lambda key, first, second: first[:1],
    "too many": lambda key, first, second: jnp.concatenate([first, second]),
    "text": lambda key, first, second: "x",
}


@pytest.mark.parametrize("name", OWN_OPERATORS)
def test_own_operator(name):
    refused(lambda: lqd.optimize(evaluate, reproduction=OWN_OPERATORS[name], **SMALL, **BUDGET), "reproduction")


# --- what a function returns

ANSWERS = {
    "nothing": (lambda x: None, "must return.*got NoneType"),
    "fitness alone": (lambda x: x[:, 0], "must return.*got ndarray"),
    "one value": (lambda x: (x[:, 0],), "must return.*got 1 values"),
    "four values": (lambda x: (x[:, 0], x, {}, {}), "must return.*got 4 values"),
    "fitness none": (lambda x: (None, x), "fitness must hold real numbers, got dtype object"),
    "fitness text": (lambda x: (["a"] * len(x), x), "fitness must hold real numbers, got dtype <U1"),
    "fitness complex": (lambda x: (x[:, 0] * 1j, x), "fitness must hold real numbers, got dtype complex64"),
    "fitness dates": (lambda x: (np.zeros(len(x), "M8[s]"), x), "fitness must hold real numbers, got dtype datetime"),
    "fitness a column": (lambda x: (x[:, :1], x), r"fitness must have shape \(4,\), one number .*got \(4, 1\)"),
    "fitness a row": (lambda x: (x[None, :, 0], x), r"fitness must have shape \(4,\).*got \(1, 4\)"),
    "fitness a number": (lambda x: (1.0, x), r"fitness must have shape \(4,\).*got \(\)"),
    "fitness too short": (lambda x: (x[1:, 0], x), r"fitness must have shape \(4,\).*got \(3,\)"),
    "fitness empty": (lambda x: ([], x), r"fitness must have shape \(4,\).*got \(0,\)"),
    "fitness ragged": (lambda x: ([[1], [1, 2], 3, 4], x), "fitness is not an array of numbers"),
    "fitness objects": (lambda x: ([object()] * len(x), x), "fitness must hold real numbers, got dtype object"),
    "descriptor none": (lambda x: (x[:, 0], None), "descriptor must hold real numbers, got dtype object"),
    "descriptor flat": (lambda x: (x[:, 0], x[:, 0]), r"descriptor must have shape \(4, D\).*descriptor\[:, None\]"),
    "descriptor turned": (lambda x: (x[:, 0], x.T), r"descriptor must have shape \(4, D\), got \(2, 4\)"),
    "descriptor without columns": (lambda x: (x[:, 0], x[:, :0]), r"descriptor must have shape \(4, D\), got \(4, 0\)"),
    "descriptor deep": (lambda x: (x[:, 0], x[:, :, None]), r"descriptor must have shape \(4, D\), got \(4, 2, 1\)"),
    "descriptor ragged": (lambda x: (x[:, 0], [[1], [1, 2], [3], [4]]), "descriptor is not an array of numbers"),
    "descriptor text": (lambda x: (x[:, 0], [["a", "b"]] * len(x)), "descriptor must hold real numbers.*<U1"),
    "extras a list": (lambda x: (x[:, 0], x, [1]), "extras must be a dictionary of arrays by name, got list"),
    "extras none": (lambda x: (x[:, 0], x, None), "extras must be a dictionary of arrays by name, got NoneType"),
    "extras by number": (lambda x: (x[:, 0], x, {1: x}), "extras must be a dictionary of arrays by name"),
    "extras too short": (lambda x: (x[:, 0], x, {"a": [1]}), r"extras\['a'\] must have 4 entries, got shape \(1,\)"),
    "extras a number": (lambda x: (x[:, 0], x, {"a": 1}), r"extras\['a'\] must have 4 entries, got shape \(\)"),
    "extras a dictionary": (lambda x: (x[:, 0], x, {"a": {"b": x}}), r"extras\['a'\] must have 4 entries"),
    "too large": (lambda x: (np.full(len(x), 1e300), x), r"fitness is \+inf, or beyond float32, for 4 solutions"),
    "infinite": (lambda x: ([1, np.inf, 2, np.inf], x), r"fitness is \+inf.*for 2 solutions \(rows 1, 3\)"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_on_the_host(name):
    function, message = ANSWERS[name]
    error = refused(lambda: lqd.optimize(function, **SMALL, **BUDGET), message)
    assert error.result is None


TRACED = {
    "nothing": (lambda x: None, r"must return \(fitness, descriptor\)"),
    "fitness alone": (lambda x: x[:, 0], r"must return \(fitness, descriptor\)"),
    "four values": (lambda x: (x[:, 0], x, {}, {}), r"must return \(fitness, descriptor\)"),
    "fitness none": (lambda x: (None, x), "fitness must hold real numbers, got None"),
    "fitness text": (lambda x: ("a", x), "cannot be traced|fitness must hold real numbers"),
    "fitness complex": (lambda x: (x[:, 0] + 1j, x), "fitness must hold real numbers.*complex64"),
    "fitness a column": (lambda x: (x[:, :1], x), r"fitness must have shape \((4|16),\).*got \((4|16), 1\)"),
    "fitness a number": (lambda x: (1.0, x), r"fitness must have shape \((4|16),\).*got \(\)"),
    "fitness of one length": (lambda x: (jnp.zeros(N), x), r"fitness must have shape \(4,\).*got \(16,\)"),
    "descriptor flat": (lambda x: (x[:, 0], x[:, 0]), r"descriptor must have shape \((4|16), D\).*\[:, None\]"),
    "descriptor none": (lambda x: (x[:, 0], None), "descriptor must hold real numbers, got None"),
    "descriptor of two widths": (lambda x: (x[:, 0], jnp.zeros((len(x), len(x)))), "descriptor has .* expected"),
    "extras a list": (lambda x: (x[:, 0], x, [x]), "extras must be a dictionary of arrays, got list"),
    "extras too short": (lambda x: (x[:, 0], x, {"a": x[:1]}), r"extras\['a'\] must have (4|16) entries"),
    "not for JAX": (
        lambda x: (np.asarray(x)[:, 0], x),
        r"cannot be traced by JAX \(TracerArrayConversionError.*'host'",
    ),
    "branches": (lambda x: (x[:, 0], x) if x.sum() > 0 else None, r"cannot be traced by JAX \(TracerBool.*'host'"),
    "raises": (lambda x: 1 / 0, r"cannot be traced by JAX \(ZeroDivisionError: division by zero\).*'host'"),
}


@pytest.mark.parametrize("name", TRACED)
def test_answers_of_a_traced_function(name):
    function, message = TRACED[name]
    with jax.numpy_dtype_promotion("standard"):
        refused(lambda: lqd.optimize(function, backend="jax", **SMALL, **BUDGET), message)


def test_nested_extras_of_a_traced_function():
    refused(
        lambda: lqd.optimize(lambda x: (x[:, 0], x, {"a": {"b": x}}), backend="jax", **SMALL, **BUDGET),
        r"extras\['a'\]",
    )


class _NeedsDetaching:
    """An array type that refuses to become a NumPy array, as tensors with gradients do."""

    def __array__(self, *args, **kwargs):
        raise RuntimeError("call detach() first")


def test_arrays_that_do_not_convert():
    error = refused(lambda: lqd.optimize(lambda x: (_NeedsDetaching(), x), **SMALL, **BUDGET), r"fitness.*detach\(\)")
    assert isinstance(error.__cause__, RuntimeError)


def test_ragged_extras():
    refused(
        lambda: lqd.optimize(lambda x: (x[:, 0], x, {"a": [[1], [1, 2], [3], [4]]}), **SMALL, **BUDGET),
        r"extras\['a'\]",
    )


@pytest.mark.parametrize("backend", ["host", "jax"])
def test_bfloat16_are_real_numbers(backend):
    with jax.numpy_dtype_promotion("standard"):
        result = lqd.optimize(lambda x: (jnp.asarray(x[:, 0], jnp.bfloat16), x), backend=backend, **SMALL, **BUDGET)
    assert len(result.x) == N


@pytest.mark.parametrize("on_nan", ["eliminate", "raise"])
def test_descriptors_beyond_float32(on_nan):
    def far(x):
        return -abs(x[:, 0]), np.where(x[:, :1] > 0, 1e300, x.astype(np.float64))

    arguments = SMALL | BUDGET | {"on_nan": on_nan}
    if on_nan == "raise":
        refused(lambda: lqd.optimize(far, **arguments), "a descriptor is not finite")
    else:
        assert lqd.optimize(far, **arguments).num_nan > 0


def _changing(later):
    """Good answers for the start, `later(x)` from then on."""
    calls = []

    def function(x):
        calls.append(len(x))
        return evaluate(x) if len(calls) <= N // B else later(x)

    return function


@pytest.mark.parametrize(
    ("later", "message"),
    [
        (lambda x: (x[:, 0], x[:, :1]), "descriptor has 1 dimensions, expected 2"),
        (lambda x: (x[:, :1], x), r"fitness must have shape \(4,\)"),
        (lambda x: (x[:, 0], x, {"new": x}), r"extras must be the same for every batch: expected \[\], got \['new'\]"),
        (lambda x: "done", "must return.*got str"),
        (lambda x: (np.full(len(x), np.inf), x), r"fitness is \+inf"),
    ],
)
def test_answers_that_change(later, message):
    with pytest.raises(lqd.InvalidInput, match=message) as caught:
        lqd.optimize(_changing(later), **SMALL, **BUDGET)
    result = caught.value.result
    assert (result.num_evaluations, len(result.x), result.stopped_by) == (N, N, "error")


# --- what is welcome


def test_numpy_scalars_are_numbers():
    given = {
        "dim": np.int64(2),
        "population_size": np.int32(N),
        "batch_size": np.uint8(B),
        "num_evaluations": np.int64(N + 4 * B),
        "seed": np.uint32(7),
        "iso_sigma": np.float32(0.5),
        "line_sigma": np.float64(0.25),
        "init_sigma": 1,
        "time_limit_s": np.float32(1e6),
    }
    strange = lqd.optimize(evaluate, bounds=np.array([[-1, -1], [1, 1]]), **given)
    plain = lqd.optimize(evaluate, **SMALL, **BUDGET, seed=7, iso_sigma=0.5, line_sigma=0.25)
    np.testing.assert_array_equal(strange.x, plain.x)


def test_the_largest_seed():
    assert not np.array_equal(lqd.AskTell(**SMALL, seed=2**32 - 1).ask(), lqd.AskTell(**SMALL, seed=2**31 - 1).ask())


def test_bounds_as_numbers_or_vectors():
    asked = [
        lqd.AskTell(**SMALL | {"bounds": bounds}).ask()
        for bounds in [(-1, 1), [-1.0, 1.0], ([-1, -1], [1, 1]), (-1, [1, 1]), np.array([[-1, -1], [1, 1]])]
    ]
    for x in asked:
        np.testing.assert_array_equal(x, asked[0])


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.uint8, np.int64, bool, np.longdouble])
@pytest.mark.parametrize("minimize", [False, True])
def test_fitness_of_any_real_type(dtype, minimize):
    search = lqd.AskTell(**SMALL, rule="ga", minimize=minimize)
    search.tell(np.zeros((3, 2)), np.array([0, 1, 0], dtype), np.zeros((3, 2), dtype))
    assert search.result().fitness.tolist() == ([0, 0, 1] if minimize else [1, 0, 0])
    assert search.result().best_fitness == (0 if minimize else 1)


# --- strange numbers

EXAMPLES = hypothesis.settings(max_examples=25, derandomize=True, deadline=None, database=None)
STRANGE = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 1.0, np.nan, -np.inf, 3e38, -3e38, 1e-37, -1e-37, 1e300 * -1, 7.0]),
    st.floats(-(2.0**127), 2.0**127, width=32, allow_subnormal=False),
)
# Always the same number of rows, told in one go: no example compiles anything.
ROWS = 26
FITNESSES = arrays.arrays(np.float64, ROWS, elements=STRANGE)
DESCRIPTORS = arrays.arrays(
    np.float32,
    (ROWS, 2),
    elements=st.one_of(
        st.sampled_from([0.0, 1.0, 1.0, -1.0, 3e38, -3e38, np.inf, np.nan, 1e-37]),
        st.floats(-10, 10, width=32, allow_subnormal=False),
    ),
)
STRANGE_RULES = {
    "ga": lambda: "ga",
    "random": lambda: "random",
    "ns": lambda: "ns",
    "dns": lambda: "dns",
    "me": lambda: "me",
    "learned": lambda: lqd.rule("lqd-untrained"),
}


def _told(rule, fitness, descriptor, minimize):
    search = lqd.AskTell(
        **SMALL, rule=rule, descriptor_bounds=(-2, 2), archive_cells=32, qd_offset=0.0, minimize=minimize
    )
    x = np.arange(2 * ROWS, dtype=np.float32).reshape(ROWS, 2)
    search.tell(x, -fitness if minimize else fitness, descriptor, {"number": np.arange(ROWS)})
    return search, x


@pytest.mark.parametrize("name", STRANGE_RULES)
def test_strange_numbers(name):
    rule = STRANGE_RULES[name]()

    @EXAMPLES
    @hypothesis.given(FITNESSES, DESCRIPTORS, st.booleans())
    def check(fitness, descriptor, minimize):
        search, x = _told(rule, fitness, descriptor, minimize)
        with np.errstate(over="ignore"):
            known = np.where(np.isfinite(descriptor).all(1), fitness, np.nan).astype(np.float32)
        living = np.isfinite(known)
        _state_is_sound(search._state)
        result = search.result()
        assert result.num_evaluations == ROWS
        lost = np.isnan(fitness) | (~np.isfinite(descriptor).all(1) & ~np.isneginf(fitness.astype(np.float32)))
        assert result.num_nan == lost.sum()
        assert len(result.population) <= min(N, living.sum())
        assert len(result.archive) <= min(32, living.sum())
        for elites in (result.population, result.archive, result.best):
            number = elites.extras["number"] if len(elites) else np.zeros(0, int)
            assert living[number].all()
            assert len(np.unique(number)) == len(number)
            np.testing.assert_array_equal(elites.x, x[number])
            np.testing.assert_array_equal(elites.fitness, known[number] * np.float32(-1 if minimize else 1))
            np.testing.assert_array_equal(elites.descriptor, descriptor[number])
        if living.any():
            assert result.best.extras["number"][0] == np.flatnonzero(known == known[living].max())[0]
        else:
            assert (len(result.x), result.best_x) == (0, None)
        if name == "ga":
            best = np.sort(known[living])[::-1][:N] * np.float32(-1 if minimize else 1)
            np.testing.assert_array_equal(result.fitness, best)
        measured = result.history.drop(columns=["mean_fitness"])  # its own test, below
        assert not measured.isna().to_numpy().any()
        child = search.ask() if living.any() else np.zeros(2)
        assert np.isfinite(child).all()

    with np.errstate(over="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        check()


def _state_is_sound(state):
    """Filled slots come first, and nobody has a NaN."""
    fitness = np.asarray(state.population.fitness[0])
    filled = fitness > -np.inf
    assert not np.isnan(fitness).any()
    assert filled[: filled.sum()].all()
    assert np.isfinite(np.asarray(state.population.descriptor[0])[filled]).all()


@pytest.mark.parametrize("fitness", [[3e38, 3e38], [3e38] * 8 + [-3e38] * 8])
def test_the_mean_of_huge_fitnesses(fitness):
    search = lqd.AskTell(**SMALL)
    search.tell(np.zeros((len(fitness), 2)), fitness, np.zeros((len(fitness), 2)))
    assert search.result().history["mean_fitness"].iloc[-1] == pytest.approx(np.mean(fitness), abs=1e32)


@EXAMPLES
@hypothesis.given(st.lists(st.sampled_from([0.0, 1.0, 2.0, -np.inf]), min_size=ROWS, max_size=ROWS))
def test_ties_go_to_the_one_told_first(fitness):
    search, _ = _told("ga", np.array(fitness), np.zeros((ROWS, 2), np.float32), False)
    order = [row for row in np.argsort(-np.array(fitness), kind="stable") if fitness[row] > -np.inf]
    result = search.result()
    if order:
        assert result.extras["number"].tolist() == order[:N]
        assert result.best.extras["number"].tolist() == order[:1]
        assert result.archive.extras["number"].tolist() == order[:1]  # all in one cell
    else:
        assert len(result.x) == 0


@EXAMPLES
@hypothesis.given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 3))
def test_any_cut_into_tells_keeps_the_fittest(sizes, seed):
    generator = np.random.default_rng(seed)
    fitness = generator.integers(0, 5, sum(sizes)).astype(np.float32)
    fitness[generator.random(len(fitness)) < 0.2] = np.nan
    x = generator.random((len(fitness), 2)).astype(np.float32)
    search = lqd.AskTell(**SMALL, rule="ga", descriptor_bounds=(-2, 2), archive_cells=32, qd_offset=0.0)
    for part in np.split(np.arange(len(x)), np.cumsum(sizes)[:-1]):
        search.tell(x[part], fitness[part], x[part], {"number": part})
        _state_is_sound(search._state)
    order = [row for row in np.argsort(-fitness, kind="stable") if not np.isnan(fitness[row])]
    result = search.result()
    assert result.num_nan == np.isnan(fitness).sum()
    np.testing.assert_array_equal(result.fitness, fitness[order[:N]])
    if order:
        assert result.extras["number"].tolist() == order[:N]


@pytest.mark.parametrize("name", ["dim", "population_size", "batch_size", "archive_cells"])
def test_sizes_that_no_memory_holds(name):
    given = {"dim": 2, "descriptor_bounds": ([0, 0], [1, 1]), name: 2**70}
    with pytest.raises(lqd.InvalidInput, match=f"{name} must be at most 16,777,216, got {2**70}"):
        lqd.AskTell(**given)
