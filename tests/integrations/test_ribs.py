"""Our rules as a pyribs archive: schedulers, emitters, rankers and plots of pyribs work with it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ribs.archives import CVTArchive, DNSArchive
from ribs.emitters import EvolutionStrategyEmitter, GaussianEmitter, GeneticAlgorithmEmitter, IsoLineEmitter
from ribs.schedulers import Scheduler

import lqd
from lqd.errors import InvalidInput
from lqd.evolution import contest, loop
from lqd.integrations.ribs import LQDArchive
from lqd.types import Evaluation, Population

SMALL = {"solution_dim": 4, "measure_dim": 2, "capacity": 16}
BOX = [(-1.0, 1.0), (-1.0, 1.0)]


def batch(num, seed=0):
    x = np.random.default_rng(seed).uniform(-1, 1, size=(num, 4))
    return x, -(x**2).sum(axis=1), x[:, :2]


@pytest.mark.parametrize("rule", ["lqd-f", "lqd-fn", "dns", "ns", "ga", "random"])
def test_it_fills_up_and_stays_full(rule):
    archive = LQDArchive(**SMALL, rule=rule, seed=1)
    assert archive.empty
    for seed in range(4):
        info = archive.add(*batch(10, seed))
        assert info["status"].shape == info["value"].shape == (10,)
        assert np.isfinite(info["value"]).all()
    assert len(archive) == 16
    assert archive.stats.num_elites == 16
    assert archive.stats.obj_max == max(batch(10, seed)[1].max() for seed in range(4))
    assert len(archive.data("solution")) == 16
    assert archive.sample_elites(5)["solution"].shape == (5, 4)


def test_who_stays_is_who_the_rule_says():
    archive = LQDArchive(**SMALL, rule="lqd-f")
    archive.add(*batch(16))
    before = archive.data()
    x, objective, measures = batch(8, seed=5)
    info = archive.add(x, objective, measures)
    fitness = np.concatenate([before["objective"], objective]).astype(np.float32)
    descriptor = np.concatenate([before["measures"], measures]).astype(np.float32)
    scores = np.asarray(lqd.load("lqd-f")(None, fitness, descriptor))
    expected = np.argsort(-scores, kind="stable")[:16]
    np.testing.assert_array_equal(
        np.sort(archive.data("objective")), np.sort(np.concatenate([before["objective"], objective])[expected])
    )
    np.testing.assert_array_equal(info["status"] == 2, np.isin(np.arange(16, 24), expected))
    assert (info["value"][info["status"] == 2] >= 0).all()
    assert (info["value"][info["status"] == 0] <= 0).all()


@pytest.mark.parametrize("rule", ["lqd-f", "lqd-n", "lqd-fn"])
def test_who_stays_is_who_our_loop_keeps_where_objectives_are_equal(rule):
    """The archive stores rows in another order than the loop, and is told them in another order here."""
    archive, learned = LQDArchive(**SMALL, rule=rule), lqd.load(rule)
    state = None
    for seed in range(4):
        x, _, measures = (value.astype(np.float32) for value in batch(16, seed))
        objective = (np.arange(16) % 2).astype(np.float32)
        archive.add(x[::-1], objective[::-1], measures[::-1])
        told, evaluation = jnp.asarray(x)[None], Evaluation(jnp.asarray(objective)[None], jnp.asarray(measures)[None])
        if state is None:
            start = Population(told, evaluation.fitness, evaluation.descriptor)
            state = loop.empty_state(jax.random.key(0)[None], learned, start, 16)
        state = loop.absorb(state, jnp.int32(seed - 1), learned, told, evaluation, competing=seed > 0)
        expected = np.asarray(state.population.x[0])
        found = archive.data("solution")
        np.testing.assert_array_equal(found[np.lexsort(found.T)], expected[np.lexsort(expected.T)])


def test_novelty_search_of_ours_and_dns_of_theirs():
    """pyribs compares with >=, which is the same where no two objectives are equal."""
    ours = LQDArchive(**SMALL, rule="dns")
    theirs = DNSArchive(solution_dim=4, measure_dim=2, capacity=16, k_neighbors=3)
    for seed in range(5):
        for archive in (ours, theirs):
            archive.add(*batch(12, seed))
    np.testing.assert_allclose(np.sort(ours.data("objective")), np.sort(theirs.data("objective")))


def test_map_elites_leaves_cells_empty_and_needs_ranges():
    archive = LQDArchive(**SMALL, rule="me", ranges=BOX)
    archive.add(*batch(64))
    assert 1 < len(archive) <= 16
    np.testing.assert_array_equal(archive.lower_bounds, [-1, -1])
    with pytest.raises(InvalidInput, match="descriptor_bounds"):
        LQDArchive(**SMALL, rule="me")
    with pytest.raises(AttributeError, match=r"give LQDArchive ranges"):
        LQDArchive(**SMALL).lower_bounds  # noqa: B018


def run(scheduler, num=4):
    for _ in range(num):
        x = scheduler.ask()
        scheduler.tell(-(x**2).sum(axis=1), x[:, :2])
    return scheduler.archive


@pytest.mark.parametrize("add_mode", ["batch", "single"])
@pytest.mark.parametrize("emitter", [GaussianEmitter, IsoLineEmitter, GeneticAlgorithmEmitter])
def test_emitters(emitter, add_mode):
    archive = LQDArchive(**SMALL, rule="dns", seed=0)
    settings = {
        GaussianEmitter: {"sigma": 0.1, "x0": np.zeros(4)},
        IsoLineEmitter: {"x0": np.zeros(4)},
        GeneticAlgorithmEmitter: {
            "operator": "isoline",
            "operator_kwargs": {"iso_sigma": 0.1, "line_sigma": 0.1},
            "x0": np.zeros(4),
        },
    }[emitter]
    passive = CVTArchive(solution_dim=4, centroids=20, ranges=BOX, seed=0) if add_mode == "batch" else None
    made = emitter(archive, batch_size=6, seed=0, **settings)
    archive = run(Scheduler(archive, [made], add_mode=add_mode, result_archive=passive))
    assert 0 < len(archive) <= 16
    assert passive is None or len(passive) > 0


@pytest.mark.parametrize("ranker", ["imp", "2imp", "obj", "2obj", "rd", "2rd", "nov"])
def test_evolution_strategies_with_every_ranker_that_makes_sense(ranker):
    archive = LQDArchive(**SMALL, rule="dns", ranges=BOX, seed=0)
    emitter = EvolutionStrategyEmitter(archive, x0=np.ones(4), sigma0=0.2, ranker=ranker, batch_size=8, seed=0)
    archive = run(Scheduler(archive, [emitter]), num=6)
    assert archive.stats.obj_max > -4.0  # better than where it began


@pytest.mark.parametrize("rule", ["ns", "lqd-fn"])
def test_ranges_are_the_units_and_what_counts(rule):
    """A measure multiplied with its range, or moved farther outside, changes nobody's score."""
    x, objective, measures = batch(12)
    measures = (measures * 1.5).astype(np.float32)
    beyond = np.where(np.abs(measures) > 1, measures * 1000, measures)
    unit = np.array([2.0**20, 2.0**-20])

    def score(measures, unit=(1.0, 1.0), **given):
        ranges = [(-end, end) for end in unit]
        return LQDArchive(**SMALL, rule=rule, ranges=ranges, **given).add(x, objective, measures * np.array(unit))[
            "score"
        ]

    plain = score(measures)
    np.testing.assert_array_equal(plain, score(measures, unit))
    np.testing.assert_array_equal(plain, score(beyond))
    assert not np.array_equal(score(measures, outside="free"), score(beyond, outside="free"))
    with pytest.raises(InvalidInput, match="outside must be one of 'edge', 'free', got 'there'"):
        score(measures, outside="there")


def test_extra_fields_are_kept():
    archive = LQDArchive(**SMALL, rule="ga", extra_fields={"name": ((), object), "length": ((2,), np.int32)})
    x, objective, measures = batch(20)
    archive.add(x, objective, measures, name=[f"s{i}" for i in range(20)], length=np.arange(40).reshape(20, 2))
    best = np.argsort(-objective)[:16]
    np.testing.assert_array_equal(archive.data("name"), [f"s{i}" for i in best])
    np.testing.assert_array_equal(archive.data("length"), np.arange(40).reshape(20, 2)[best])
    with pytest.raises(ValueError, match=r"fields must be length, measures, name"):
        archive.add(x, objective, measures)


def test_reading():
    archive = LQDArchive(**SMALL, rule="ga", qd_score_offset=-4.0)
    x, objective, measures = batch(10)
    archive.add(x, objective, measures)
    found, elites = archive.retrieve(measures + 1e-6)
    assert found.all()
    np.testing.assert_allclose(elites["measures"], measures)
    assert archive.retrieve_single(measures[3])[1]["objective"] == objective[3]
    frame = archive.data(return_type="pandas")
    assert list(frame.columns[:5]) == ["solution_0", "solution_1", "solution_2", "solution_3", "objective"]
    assert archive.stats.qd_score == pytest.approx(objective.sum() + 40)
    assert archive.best_elite["objective"] == objective.max()
    archive.clear()
    assert archive.empty
    assert archive.stats.obj_max is None


def test_the_best_ever_is_known_even_if_the_rule_drops_it():
    archive = LQDArchive(solution_dim=4, measure_dim=2, capacity=4, rule="ns")
    x, objective, measures = batch(40)
    archive.add(x, objective, measures)
    assert archive.stats.obj_max == objective.max()


def test_the_best_is_nobody_elses():
    archive = LQDArchive(solution_dim=2, measure_dim=1, capacity=4, rule="ga")
    solution, measures = np.ones((1, 2)), np.zeros((1, 1))
    archive.add(solution, [3.0], measures)
    solution *= 10
    measures += 1
    archive.best_elite["solution"][:] = 7
    assert archive.best_elite["solution"].tolist() == [1, 1]
    assert archive.best_elite["measures"].tolist() == [0]
    assert archive.best_elite["objective"] == 3


def test_bad_input_is_refused():
    archive = LQDArchive(**SMALL, rule="ga")
    x, objective, measures = batch(4)
    with pytest.raises(ValueError, match=r"measures must have shape \(4, 2\), got \(4, 1\)"):
        archive.add(x, objective, measures[:, :1])
    with pytest.raises(ValueError, match=r"objective must be finite"):
        archive.add(x, objective * np.nan, measures)
    with pytest.raises(InvalidInput, match=r"ranges must be 2 pairs"):
        LQDArchive(**SMALL, ranges=[(0, 1)])
    with pytest.raises(InvalidInput, match=r"rule.*'lqd-g'.*lqd-f"):
        LQDArchive(**SMALL, rule="lqd-g")
    with pytest.raises(InvalidInput, match=r"capacity must be"):
        LQDArchive(solution_dim=4, measure_dim=2, capacity=0)
    with pytest.raises(InvalidInput, match=r"extra_fields must not be named objective"):
        LQDArchive(**SMALL, extra_fields={"objective": ((), float)})
    with pytest.raises(InvalidInput, match=r"2 dimensions.*got 3.*'lqd-f'"):
        LQDArchive(solution_dim=4, measure_dim=3, capacity=8, rule="lqd-f-paper")


def test_it_compiles_once():
    archive = LQDArchive(solution_dim=4, measure_dim=2, capacity=19, rule="dns")
    archive.add(*batch(10))
    before = contest._compete._cache_size()
    for num in (1, 7, 32, 20):
        archive.add(*batch(num))
    assert contest._compete._cache_size() == before
    jax.clear_caches()
