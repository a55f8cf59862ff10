"""Variation: traits go from parents to children with whoever survives, and no scale matters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lqd.evolution import driver, loop
from lqd.evolution.sums import deviation
from lqd.evolution.variation import Children, IsoLine, Pairs, Spread, Start, Variation, parents, reflected
from lqd.rules.handmade import GeneticAlgorithm
from lqd.tasks.task import Repeated
from lqd.types import Evaluation, Population, pytree, static

NUM, BATCH, DIM = 8, 4, 3
GA = GeneticAlgorithm()
BOX = (jnp.array([-1.0, 0.0, 5.0]), jnp.array([1.0, 4.0, 6.0]))


@pytree
class Slope:
    """The first coordinate is the fitness."""

    dim: int = static(default=DIM)
    descriptor_dim: int = static(default=1)
    bounds = None

    def evaluate(self, key, x):
        return Evaluation(x[:, 0], x[:, 1:2])


@pytree
class Counting:
    """A child is its parent and 1, and knows in its traits how many parents it goes back to, and who they were."""

    def first(self, num):
        return jnp.zeros((num, 2), jnp.float32)

    def children(self, key, population, box, start, batch_size):
        first, _ = parents(key, population, batch_size)
        traits = jnp.stack([population.traits[first, 0] + 1, population.x[first, 0]], axis=1)
        return Children(population.x[first].at[:, 0].add(1.0), traits)


def population_of(x, num_filled=None, traits=None):
    x = jnp.asarray(x, jnp.float32)
    filled = jnp.arange(len(x)) < (len(x) if num_filled is None else num_filled)
    return Population(x, jnp.where(filled, 0.0, -jnp.inf), x[:, :1], {}, traits)


def bred(population, box=BOX, start=loop.ANYWHERE, num=BATCH, seed=0, variation=None):
    variation = Spread() if variation is None else variation
    return variation.children(jax.random.key(seed), population, box, start, num)


def inside(num=NUM, seed=0):
    uniform = jax.random.uniform(jax.random.key(seed), (num, DIM))
    return BOX[0] + uniform * (BOX[1] - BOX[0])


def test_traits_go_with_whoever_survives():
    tasks = Repeated(Slope(), 2)
    run = driver.run(
        jax.random.split(jax.random.key(0), 2), tasks, (GA,), Counting(), num_generations=12, population_size=NUM,
        batch_size=BATCH,
    )  # fmt: skip
    (state,) = run.states
    population = jax.tree.map(np.asarray, state.population)
    assert population.traits.shape == (2, NUM, 2)
    assert population.traits[..., 0].max() > 2
    descends = population.traits[..., 0] > 0
    np.testing.assert_array_equal(population.x[descends][:, 0], population.traits[descends][:, 1] + 1)
    assert state.best.traits is None


def test_without_traits_nothing_is_carried():
    state = loop.begin(jax.random.key(0)[None], Repeated(Slope(), 1), GA, NUM, operator=IsoLine.with_steps())
    assert state.population.traits is None
    assert isinstance(Spread(), Variation)
    assert not isinstance(IsoLine.with_steps(), Variation)


def test_an_operator_is_a_variation_of_pairs():
    state = loop.begin(jax.random.key(0)[None], Repeated(Slope(), 1), GA, NUM)
    operator = IsoLine.with_steps(0.1, 0.2)
    one, other = (loop.offspring(state, jnp.int32(3), how, BOX, BATCH) for how in (operator, Pairs(operator)))
    np.testing.assert_array_equal(one, other)


def test_where_nobody_lives_children_start_anew():
    like = Population(jnp.zeros((1, 1, DIM)), jnp.zeros((1, 1)), jnp.zeros((1, 1, 1)), {}, jnp.zeros((1, 1, 2)))
    state = loop.empty_state(jax.random.key(0)[None], GA, like, NUM)
    children = loop.children(state, jnp.int32(0), Spread(), BOX, 64)
    np.testing.assert_array_equal(children.traits[0], Spread().first(64))
    x = np.asarray(children.x[0])
    assert ((x >= BOX[0]) & (x <= BOX[1])).all()
    assert (x.max(axis=0) - x.min(axis=0) > 0.8 * (BOX[1] - BOX[0])).all()


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("dimension", range(DIM))
@pytest.mark.parametrize("exponent", [20, -20])
def test_a_dimension_in_other_units_gives_the_same_bits(bounded, dimension, exponent):
    scale = jnp.ones(DIM).at[dimension].set(2.0**exponent)
    traits = Spread().first(NUM)
    start = Start(jnp.array([0.5, -1.0, 2.0]), jnp.array([1.0, 2.0, 0.5]))
    found = [
        bred(
            population_of(inside() * unit, traits=traits),
            tuple(end * unit for end in BOX) if bounded else None,
            Start(start.x0 * unit, start.init_sigma * unit),
            num=64,
        )
        for unit in (jnp.ones(DIM), scale)
    ]
    np.testing.assert_array_equal(found[0].x * scale, found[1].x)
    np.testing.assert_array_equal(found[0].traits, found[1].traits)


def test_children_stay_in_the_box_and_not_only_on_its_edge():
    edges = jnp.stack([BOX[0], BOX[1]] * 4)
    x = np.asarray(bred(population_of(edges, traits=Spread().first(8)), num=512).x)
    assert ((x >= BOX[0]) & (x <= BOX[1])).all()
    on_edge = (x == np.asarray(BOX[0])) | (x == np.asarray(BOX[1]))
    assert 0.1 < on_edge.mean() < 0.9


def test_steps_follow_the_spread_of_the_filled():
    """Empty slots hold anything, and count for nothing."""
    x = inside(16).at[8:].set(jnp.nan)
    narrow = x.at[:8, 1].set(1.0 + 1e-3 * x[:8, 1])
    children = {
        name: np.asarray(bred(population_of(x, 8, Spread().first(16)), num=256).x)
        for name, x in {"wide": x, "narrow": narrow}.items()
    }
    wide, thin = (children[name].std(axis=0) for name in ("wide", "narrow"))
    np.testing.assert_allclose(thin[1] / wide[1], 1e-3, rtol=0.5)  # the wide ones were clipped
    np.testing.assert_array_equal(children["wide"][:, 0], children["narrow"][:, 0])


def test_steps_are_drawn_or_inherited():
    low, high = Spread._ranges()
    traits = jnp.tile(jnp.asarray(high), (NUM, 1))
    parents_of = population_of(inside(), traits=traits)
    anew = np.asarray(bred(parents_of, num=512, variation=Spread(inherit=0.0)).traits)
    assert ((anew >= low) & (anew <= high)).all()
    np.testing.assert_allclose(anew.mean(axis=0), (low + high) / 2, atol=0.15)
    alike = np.asarray(bred(parents_of, num=512, variation=Spread(inherit=1.0)).traits)
    assert (alike <= high).all()
    assert 0.1 < (high - alike).mean() < 0.2  # half of a normal number with deviation 0.3
    np.testing.assert_array_equal(Spread().first(2), np.float32([(low + high) / 2] * 2))


def test_a_population_of_one_place_still_varies():
    one = population_of(jnp.tile(jnp.array([0.5, 2.0, 5.5]), (NUM, 1)), traits=Spread().first(NUM))
    x = np.asarray(bred(one, num=64).x)
    assert np.isfinite(x).all()
    assert len(np.unique(x[:, 0])) > 8


def test_reflection_and_spread():
    np.testing.assert_allclose(reflected(jnp.array([-0.25, 0.25, 1.25, 2.5, -1.5])), [0.25, 0.25, 0.75, 0.5, 0.5])
    z = np.random.default_rng(0).normal(size=(37, 2)).astype(np.float32)
    found = deviation(jnp.asarray(z), jnp.arange(37) < 21)
    np.testing.assert_allclose(found, z[:21].std(axis=0), rtol=1e-5)


def test_more_points_than_slots_come_in_batches_of_their_own():
    points = jax.random.normal(jax.random.key(1), (NUM + BATCH + 1, DIM))
    start = Start(points, jnp.float32(0.01))
    assert loop.num_given_batches(start, NUM, BATCH) == 2
    assert loop.num_given_batches(Start(points[:NUM]), NUM, BATCH) == loop.num_given_batches(Start(), NUM, BATCH) == 0
    state = loop.begin(jax.random.key(0)[None], Repeated(Slope(), 1), GA, NUM, start, operator=Spread())
    np.testing.assert_array_equal(state.population.x[0], points[:NUM])
    batches = [loop.children(state, jnp.int32(i), Spread(), None, BATCH, start) for i in range(3)]
    np.testing.assert_array_equal(batches[0].x[0], points[NUM : NUM + BATCH])
    np.testing.assert_array_equal(batches[1].x[0, 0], points[-1])
    np.testing.assert_array_equal(batches[1].traits[0], Spread().first(BATCH))
    np.testing.assert_allclose(batches[1].x[0, 1:], points[: BATCH - 1], atol=0.05)  # filled up around the points
    assert not np.isin(batches[2].x, points).any()


@pytest.mark.parametrize("num", [1, 4])
def test_where_all_are_in_one_place_steps_are_as_wide_as_a_start(num):
    """Else whoever is alone, as where most of the box is forbidden, hardly gets away."""
    x = jnp.zeros((NUM, DIM)).at[:num].set(jnp.array([0.25, 2.0, 5.5]))
    population = population_of(x, num, Spread().first(NUM))
    width = np.asarray(BOX[1] - BOX[0])
    near = Start(x[0], jnp.float32(1e-3))
    for box, start, expected in ((BOX, Start(), width * 12**-0.5), (None, Start(), 1.0), (BOX, near, 1e-3)):
        away = np.asarray(bred(population, box, start, num=512).x) - np.asarray(x[0])
        middle = np.median(np.abs(away), axis=0) / expected
        assert ((middle > 0.05) & (middle < 0.2)).all(), middle  # of steps from 0.03 to 0.5
