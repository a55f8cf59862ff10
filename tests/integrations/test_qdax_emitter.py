"""The default variation as an emitter of QDax: any repertoire, trees of arrays, no steps to choose."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("qdax", reason="needs QDax: pip install 'lqd[qdax]'")

from qdax.core.containers.mapelites_repertoire import MapElitesRepertoire, compute_euclidean_centroids
from qdax.core.emitters.multi_emitter import MultiEmitter
from qdax.core.emitters.mutation_operators import isoline_variation
from qdax.core.emitters.standard_emitters import MixingEmitter
from qdax.core.map_elites import MAPElites
from qdax.utils.metrics import default_qd_metrics

from lqd.errors import InvalidInput
from lqd.integrations.qdax import LQDEmitter, LQDRepertoire
from lqd.tasks.brax import leniently

pytestmark = pytest.mark.usefixtures("theirs")

DIM, BATCH = 6, 8
WIDTH = np.float32([1.0, 1.0, 100.0, 100.0, 0.01, 0.01])  # dimensions of unequal scale
BOUNDS = (-2 * WIDTH, 2 * WIDTH)
LOW, HIGH = np.float32([-1, -2]), np.float32([1, 2])


@pytest.fixture
def theirs():
    """QDax mixes dtypes."""
    with leniently():
        yield


def folded(x, key=None):
    """Each dimension follows the one before it; both descriptors are curved, and share dimensions with the fitness."""
    z = x / WIDTH
    fitness = -jnp.sum(jnp.abs(z - 0.5 * jnp.sin(3 * jnp.roll(z, 1, axis=1))), axis=1)
    descriptor = jnp.stack([jnp.tanh(z[:, 0] + z[:, 1] * z[:, 2]), z[:, 3] * jnp.cos(2 * z[:, 4])], axis=1)
    return fitness, descriptor, {}


def flat(tree):
    return jnp.concatenate([leaf.reshape(len(leaf), -1).astype(jnp.float32) for leaf in jax.tree.leaves(tree)], axis=1)


def cells(size):
    return compute_euclidean_centroids((size, size), LOW.tolist(), HIGH.tolist())


def metrics(repertoire):
    cells = getattr(repertoire, "archive", None)
    return default_qd_metrics(repertoire if cells is None else cells, qd_offset=15.0)


def first(num=BATCH):
    return jnp.asarray(np.random.default_rng(0).uniform(*BOUNDS, (num, DIM)).astype(np.float32))


def begin(emitter, init=MapElitesRepertoire.init, size=6, genotypes=None, scoring=folded):
    algorithm = MAPElites(scoring, emitter, metrics, repertoire_init=init)
    genotypes = first() if genotypes is None else genotypes
    return algorithm, *algorithm.init(genotypes, cells(size), jax.random.key(0))[:2]


def run(emitter, num=4, seed=1, **given):
    algorithm, repertoire, state = begin(emitter, **given)
    scan = jax.jit(lambda carry: jax.lax.scan(algorithm.scan_update, carry, (), length=num))
    (repertoire, state, _), history = scan((repertoire, state, jax.random.key(seed)))
    return repertoire, state, history


def individuals(repertoire):
    return flat(repertoire.genotypes)[np.asarray(repertoire.fitnesses).reshape(-1) > -np.inf]


INITS = {
    "theirs": MapElitesRepertoire.init,
    "ours": LQDRepertoire.with_rule("dns", population_size=16, archive=True),
}


@pytest.mark.parametrize("init", INITS)
def test_any_repertoire_in_a_scan(init):
    repertoire, state, history = run(LQDEmitter(bounds=BOUNDS, batch_size=BATCH), init=INITS[init])
    x = individuals(repertoire)
    assert len(x) > BATCH // 2
    assert ((x >= BOUNDS[0]) & (x <= BOUNDS[1])).all()
    assert int(state.memory.num) == 5 * BATCH  # the start, too
    np.testing.assert_array_equal(state.memory.x[:BATCH], first())
    assert history["coverage"][-1] > history["coverage"][0]
    np.testing.assert_allclose(state.descriptor_bounds, [LOW, HIGH], rtol=1e-5)  # of the cells


def test_the_same_key_gives_the_same():
    emitter = LQDEmitter(bounds=BOUNDS, batch_size=BATCH)
    _, repertoire, state = begin(emitter)
    emit = jax.jit(lambda key: emitter.emit(repertoire, state, key)[0])
    np.testing.assert_array_equal(emit(jax.random.key(1)), emit(jax.random.key(1)))
    assert not np.array_equal(emit(jax.random.key(1)), emit(jax.random.key(2)))


def test_it_is_ahead_of_iso_line_with_steps_that_fit():
    variation = functools.partial(
        isoline_variation, iso_sigma=0.2 * WIDTH, line_sigma=0.2, minval=BOUNDS[0], maxval=BOUNDS[1]
    )
    theirs = MixingEmitter(None, variation, variation_percentage=1.0, batch_size=32)

    def qd_score(emitter):
        return run(emitter, num=62, size=20, genotypes=first(32))[2]["qd_score"][-1]

    assert qd_score(LQDEmitter(bounds=BOUNDS)) > 1.04 * qd_score(theirs)


def test_trees_keep_their_structure_and_dtypes():
    x = first()
    tree = {"a": x[:, :2].astype(jnp.float16), "b": (x[:, 2:].reshape(-1, 2, 2),)}
    emitter = LQDEmitter(bounds=BOUNDS, batch_size=BATCH)

    def score(tree, key):
        return folded(flat(tree))

    _, repertoire, state = begin(emitter, genotypes=tree, scoring=score)
    found, extra = emitter.emit(repertoire, state, jax.random.key(1))
    assert jax.tree.structure(found) == jax.tree.structure(tree)
    assert [leaf.dtype for leaf in jax.tree.leaves(found)] == [jnp.float16, jnp.float32]
    assert [leaf.shape for leaf in jax.tree.leaves(found)] == [(BATCH, 2), (BATCH, 2, 2)]
    assert extra == {}
    run(emitter, genotypes=tree, scoring=score, num=2)


def test_without_bounds_units_are_those_of_the_start():
    repertoire, state, _ = run(LQDEmitter(batch_size=BATCH), num=8)
    np.testing.assert_allclose(state.start.init_sigma, first().std(axis=0), rtol=1e-5)
    spread = individuals(repertoire).std(axis=0)
    assert ((spread > 0.2 * WIDTH) & (spread < 20 * WIDTH)).all()


def test_where_nobody_is_there_it_begins_anew():
    def failing(x, key):
        fitness, descriptor, extra = folded(x)
        return jnp.full_like(fitness, jnp.nan), descriptor, extra

    emitter = LQDEmitter(bounds=BOUNDS, batch_size=BATCH)
    _, repertoire, state = begin(emitter, init=INITS["ours"], scoring=failing)
    assert not (repertoire.fitnesses > -jnp.inf).any()
    assert np.isneginf(state.memory.fitness).all()
    x = np.asarray(emitter.emit(repertoire, state, jax.random.key(0))[0])
    assert (np.abs(x) <= 2 * WIDTH).all()
    assert (x.std(axis=0) > 0.5 * WIDTH).all()


def test_beside_other_emitters_it_learns_from_all():
    variation = functools.partial(isoline_variation, iso_sigma=0.1, line_sigma=0.1)
    other = MixingEmitter(None, variation, variation_percentage=1.0, batch_size=5)
    ours = LQDEmitter(bounds=BOUNDS, batch_size=BATCH)
    _, state, _ = run(MultiEmitter((other, ours)), num=3)
    assert int(state.emitter_states[1].memory.num) == BATCH + 3 * (BATCH + 5)


def test_descriptors_are_counted_in_bounds_or_by_spread():
    given = LQDEmitter(descriptor_bounds=(-3, 3))
    np.testing.assert_array_equal(begin(given)[2].descriptor_bounds, [[-3, -3], [3, 3]])
    no_cells = LQDRepertoire.with_rule("dns", population_size=16)
    assert begin(LQDEmitter(), init=no_cells)[2].descriptor_bounds is None


def test_bad_input():
    with pytest.raises(InvalidInput, match="batch_size must be a whole number of at least 1, got 0"):
        LQDEmitter(batch_size=0)
    with pytest.raises(InvalidInput, match="bounds must have each lower end below"):
        LQDEmitter(bounds=(1, 0))
    with pytest.raises(InvalidInput, match="descriptor_bounds must have 1 or 2 entries at each end, got 3"):
        begin(LQDEmitter(descriptor_bounds=(np.zeros(3), np.ones(3))))
    with pytest.raises(InvalidInput, match="bounds must have 1 or 6 entries at each end, got 3"):
        begin(LQDEmitter(bounds=(np.zeros(3), np.ones(3))))
    emitter = LQDEmitter(bounds=BOUNDS)
    with pytest.raises(InvalidInput, match=r"emitter_state must be what LQDEmitter\.init returned, got None"):
        emitter.emit(None, None, jax.random.key(0))
    x = first()
    fitness, descriptor, _ = folded(x)
    with pytest.raises(InvalidInput, match=r"descriptors must have shape \(batch, D\), got None"):
        emitter.init(jax.random.key(0), None, x, fitness, None)
    with pytest.raises(InvalidInput, match="genotypes must be real numbers, got int32"):
        emitter.init(jax.random.key(0), None, x.astype(jnp.int32), fitness, descriptor)
    with pytest.raises(InvalidInput, match=r"fitnesses must have shape \(8,\) or \(8, 1\), got \(8, 2\)"):
        emitter.init(jax.random.key(0), None, x, jnp.stack([fitness] * 2, axis=1), descriptor)
    with pytest.raises(InvalidInput, match=r"descriptors must have shape \(8, 2\), got \(5, 2\)"):
        emitter.init(jax.random.key(0), None, x, fitness, descriptor[:5])
