"""The loop: selection, reproduction, faults, and independence of how it is cut into calls."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lqd.evolution import driver, loop
from lqd.evolution.compile_time import Clock
from lqd.evolution.loop import Start
from lqd.evolution.variation import IsoLine
from lqd.rules.handmade import DominatedNoveltySearch, GeneticAlgorithm, MapElites, NoveltySearch, Random
from lqd.rules.learned.rule import Learned
from lqd.tasks.task import Repeated
from lqd.types import Evaluation, Population, pytree, static

INF = np.inf
NUM, BATCH, DIM = 16, 4, 3
ISO = IsoLine(jnp.float32(0.05), jnp.float32(0.2))
RULES = {
    "ga": GeneticAlgorithm(),
    "random": Random(),
    "ns": NoveltySearch(),
    "dns": DominatedNoveltySearch(),
    "me": MapElites(jax.random.uniform(jax.random.key(5), (NUM, 2))),
    "learned": Learned.init(jax.random.key(1)),
}


@pytree
class Bowl:
    """Distance to a point, with the first two coordinates as the descriptor; below `cliff` nothing is feasible."""

    centre: jax.Array
    cliff: jax.Array
    dim: int = static(default=DIM)
    descriptor_dim: int = static(default=2)

    @property
    def bounds(self):
        return jnp.zeros(DIM), jnp.ones(DIM)

    def evaluate(self, key, x):
        fitness = jnp.where(x[:, 0] < self.cliff, -INF, -jnp.sum((x - self.centre) ** 2, axis=-1))
        return Evaluation(fitness, x[:, :2])


def bowl(centre=0.5, cliff=-1.0):
    return Repeated(Bowl(jnp.full(DIM, centre, jnp.float32), jnp.float32(cliff)), 2)


def keys(seed=0):
    return jax.random.split(jax.random.key(seed), 2)


def run(rule, *, tasks=None, seed=0, num_generations=20, **options):
    tasks = bowl() if tasks is None else tasks
    return driver.run(
        keys(seed),
        tasks,
        (rule,),
        ISO,
        num_generations=num_generations,
        population_size=NUM,
        batch_size=BATCH,
        **options,
    )


def population_of(fitness):
    num = len(fitness)
    x = jnp.arange(num, dtype=jnp.float32)[:, None]
    return Population(x, jnp.asarray(fitness, jnp.float32), x)


# Selection


def survivors(scores, fitness, num):
    population, _ = loop.survive(jnp.asarray(scores, jnp.float32), population_of(fitness), (), num)
    return np.asarray(population.x[:, 0])[np.asarray(population.filled)].astype(int).tolist()


def test_the_top_survive_and_ties_go_to_the_lower_index():
    assert survivors([1.0, 3.0, 1.0, 2.0, 1.0], np.zeros(5), 3) == [1, 3, 0]


def test_minus_zero_and_zero_are_a_tie():
    assert survivors([-0.0, -0.0, 0.0], np.zeros(3), 2) == [0, 1]


def test_nan_and_minus_infinity_are_eliminated_and_leave_empty_slots():
    assert survivors([np.nan, 3.0, -INF, 2.0, 1.0], np.zeros(5), 4) == [1, 3, 4]


def test_an_empty_slot_cannot_survive_whatever_its_score():
    assert survivors([9.0, 1.0, INF], [-INF, 0.0, 0.0], 2) == [2, 1]


def test_plus_infinity_is_the_best_score_there_is():
    assert survivors([1e38, INF, 0.0], np.zeros(3), 2) == [1, 0]


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_a_run_keeps_its_promises(rule):
    result = run(rule)
    population = jax.tree.map(np.asarray, result.states[0].population)
    filled = population.fitness > -INF
    assert (np.diff(filled.astype(int), axis=1) <= 0).all(), "filled slots are a prefix"
    assert filled.any(axis=1).all()
    assert (population.x >= 0).all()
    assert (population.x <= 1).all()
    # Survivors keep the value they were given, and the descriptor and genotype it belongs to.
    expected = bowl().evaluate(None, jnp.asarray(population.x))
    np.testing.assert_allclose(population.fitness[filled], np.asarray(expected.fitness)[filled], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(population.descriptor[filled], np.asarray(expected.descriptor)[filled])
    assert not np.array_equal(population.x[0], population.x[1]), "two keys, two runs"
    assert (result.rows.measures["best_fitness"][-1] >= population.fitness.max(axis=1)).all()
    assert (np.diff(result.rows.measures["best_fitness"], axis=0) >= 0).all()


def test_elitist_rules_never_lose_the_best():
    for name in ("ga", "dns", "me"):
        best = run(RULES[name]).rows.measures
        np.testing.assert_array_equal(best["max_fitness"], best["best_fitness"])


def test_how_a_run_is_cut_into_calls_does_not_matter(monkeypatch):
    whole = run(RULES["dns"])
    pieces = run(RULES["dns"], look=lambda states, history: None, look_every_row=True)
    for a, b in zip(
        jax.tree.leaves(whole.states[0].population), jax.tree.leaves(pieces.states[0].population), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(whole.rows.generation, np.arange(21))
    for name, values in whole.rows.measures.items():
        np.testing.assert_array_equal(values, pieces.rows.measures[name])


def test_a_large_population_has_a_row_every_few_generations_and_one_at_the_end():
    np.testing.assert_array_equal(driver.all_rows(20, 256), np.arange(1, 21))
    np.testing.assert_array_equal(driver.all_rows(40, 512), [16, 32, 40])
    np.testing.assert_array_equal(driver.all_rows(32, 512), [16, 32])


def test_rows_are_measured_where_they_are_asked_for():
    result = run(RULES["ga"], rows=[8, 16, 20])
    np.testing.assert_array_equal(result.rows.generation, [0, 8, 16, 20])
    every_row = run(RULES["ga"]).rows
    for name, values in result.rows.measures.items():
        np.testing.assert_array_equal(values, every_row.measures[name][[0, 8, 16, 20]])


@pytest.mark.parametrize("name", ["dns", "learned", "me"])
def test_another_seed_instance_budget_or_weights_compile_nothing(name):
    run(RULES[name])
    other = {
        "dns": RULES["dns"],
        "learned": Learned.init(jax.random.key(99)),
        "me": MapElites(jax.random.uniform(jax.random.key(6), (NUM, 2))),
    }[name]
    tasks, other_keys = bowl(centre=0.25), keys(7)
    with Clock() as clock:
        driver.run(other_keys, tasks, (other,), ISO, num_generations=33, population_size=NUM, batch_size=BATCH)
    assert clock.num_programs == 0


# Start and reproduction


def test_start_points_fill_the_box():
    box = (jnp.array([-2.0, 3.0]), jnp.array([-1.0, 7.0]))
    x = np.asarray(loop.start_points(keys(), 500, 2, box))
    assert x.shape == (2, 500, 2)
    np.testing.assert_allclose(x.min(axis=(0, 1)), [-2, 3], atol=0.05)
    np.testing.assert_allclose(x.max(axis=(0, 1)), [-1, 7], atol=0.05)


def test_start_points_around_and_at_x0():
    centre = jnp.array([10.0, -10.0])
    around = np.asarray(loop.start_points(keys(), 2000, 2, None, Start(centre, jnp.float32(0.5))))
    np.testing.assert_allclose(around.mean(axis=1), [[10, -10]] * 2, atol=0.06)
    np.testing.assert_allclose(around.std(axis=1), 0.5, atol=0.03)
    given = jnp.arange(6.0).reshape(3, 2)
    points = np.asarray(loop.start_points(keys(), 5, 2, None, Start(given, jnp.float32(0.01))))
    np.testing.assert_array_equal(points[:, :3], np.stack([given, given]))
    np.testing.assert_allclose(points[:, 3:], np.stack([given[:2]] * 2), atol=0.1)


def test_iso_line_is_what_the_paper_writes():
    x1, x2 = jnp.zeros(2), jnp.array([10.0, 0.0])
    offspring = IsoLine(jnp.float32(0.1), jnp.float32(0.3))
    children = np.asarray(jax.vmap(lambda key: offspring(key, x1, x2))(jax.random.split(jax.random.key(0), 20_000)))
    np.testing.assert_allclose(children.mean(axis=0), [0, 0], atol=0.08)
    # Along the line both terms add up in variance; across it only the isotropic one is left.
    np.testing.assert_allclose(children.std(axis=0), [np.hypot(0.1, 3.0), 0.1], rtol=0.02)


def test_parents_are_uniform_over_the_filled_slots():
    like = Population(jnp.zeros((1, 1, 1)), jnp.zeros((1, 1)), jnp.zeros((1, 1, 1)))
    state = loop.empty_state(jax.random.key(0)[None], RULES["ga"], like, 8)
    x = jnp.array([[[1.0], [2.0], [3.0]]])
    state = loop.absorb(state, jnp.int32(-1), RULES["ga"], x, Evaluation(jnp.zeros((1, 3)), x), competing=False)
    still = IsoLine(jnp.float32(0.0), jnp.float32(0.0))
    children = np.asarray(loop.offspring(state, jnp.int32(0), still, None, 3000))
    values, counts = np.unique(children, return_counts=True)
    assert values.tolist() == [1.0, 2.0, 3.0]
    assert counts.min() > 900


def test_a_run_whose_start_is_all_infeasible_keeps_trying():
    # One point in a hundred is feasible, none of the 16 first ones of the one run; bred from nothing it would stay so.
    result = run(RULES["ga"], tasks=bowl(cliff=0.99), seed=3, num_generations=200)
    assert (result.rows.measures["num_filled"][0] == 0).any()
    assert (result.rows.measures["num_filled"][-1] > 0).all()


# Faults


def test_faults_are_counted_and_named():
    like = Population(jnp.zeros((1, 1, 1)), jnp.zeros((1, 1)), jnp.zeros((1, 1, 1)))
    state = loop.empty_state(jax.random.key(0)[None], RULES["ga"], like, 8)
    x = jnp.arange(5.0)[None, :, None]
    evaluation = Evaluation(jnp.array([[0.0, np.nan, INF, -INF, 1.0]]), x.at[0, 0, 0].set(np.nan))
    state = loop.absorb(state, jnp.int32(-1), RULES["ga"], x, evaluation, competing=False)
    assert int(state.faults.num_nan[0]) == 2
    assert int(state.faults.num_infinite[0]) == 1
    assert float(state.faults.nan_x[0, 0]) == 0.0
    assert float(state.faults.infinite_x[0, 0]) == 2.0
    assert np.asarray(state.population.fitness[0]).tolist() == [1.0] + [-INF] * 7
    assert float(state.best.fitness[0, 0]) == 1.0


@pytest.mark.slow
def test_a_time_limit_stops_between_calls_and_says_so():
    result = run(RULES["ga"], num_generations=10_000_000, time_limit_s=0.2)
    assert result.stopped_by == "time limit"
    assert 0 < int(result.states[0].generation) < 10_000_000
    assert result.rows.generation[-1] == int(result.states[0].generation)


def test_a_slow_run_is_cut_between_its_rows(monkeypatch):
    """Rows far apart must not keep a host from saving and stopping."""
    monkeypatch.setattr(driver, "SECONDS_PER_CALL", 0.0)  # every call takes too long
    seen = []
    result = run(RULES["dns"], rows=[15, 20], look=lambda states, history: seen.append(int(states[0].generation)))
    assert seen == list(range(21))
    np.testing.assert_array_equal(result.rows.generation, [0, 15, 20])
    whole = run(RULES["dns"])
    np.testing.assert_array_equal(result.states[0].population.x, whole.states[0].population.x)
    for name, values in result.rows.measures.items():
        np.testing.assert_array_equal(values, whole.rows.measures[name][[0, 15, 20]])


def test_a_run_that_ends_between_two_rows_has_a_row_there():
    stopped = run(RULES["ga"], rows=[15, 20], look=lambda states, history: int(states[0].generation) >= 1)
    assert stopped.stopped_by == "callback"
    assert stopped.rows.generation.tolist() == [0, int(stopped.states[0].generation)]


def test_rules_side_by_side_do_what_each_does_alone():
    names = ("dns", "ns", "me")
    rules = tuple(RULES[name] for name in names)
    tasks = bowl()
    together = driver.run(
        keys(), tasks, rules, ISO, num_generations=5, population_size=NUM, batch_size=BATCH,
        together=Repeated(tasks.task, 6),
    )  # fmt: skip
    for i, rule in enumerate(rules):
        alone = run(rule, num_generations=5)
        np.testing.assert_array_equal(together.states[i].population.x, alone.states[0].population.x)
        for name, values in alone.rows.measures.items():
            np.testing.assert_array_equal(together.rows.measures[name][:, 2 * i : 2 * i + 2], values)
