"""Our rules as a QDax repertoire: `MAPElites`, its emitters and metrics work with it."""

import functools
import importlib.util
import pathlib
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("qdax", reason="needs QDax: pip install 'lqd[qdax]'")

from qdax.core.containers.mapelites_repertoire import MapElitesRepertoire, get_cells_indices
from qdax.core.emitters.cma_improvement_emitter import CMAImprovementEmitter
from qdax.core.emitters.cma_mega_emitter import CMAMEGAEmitter
from qdax.core.emitters.cma_opt_emitter import CMAOptimizingEmitter
from qdax.core.emitters.cma_pool_emitter import CMAPoolEmitter
from qdax.core.emitters.cma_rnd_emitter import CMARndEmitter
from qdax.core.emitters.multi_emitter import MultiEmitter
from qdax.core.emitters.mutation_operators import isoline_variation
from qdax.core.emitters.omg_mega_emitter import OMGMEGAEmitter
from qdax.core.emitters.standard_emitters import MixingEmitter
from qdax.core.map_elites import MAPElites
from qdax.utils.metrics import default_qd_metrics

import lqd
from lqd.errors import InvalidInput
from lqd.evolution import loop
from lqd.integrations import qdax as integration
from lqd.integrations.qdax import LQDRepertoire
from lqd.rules import catalogue
from lqd.tasks.brax import leniently
from lqd.types import Evaluation, Population

NUM, BATCH, DIM = 16, 8, 4
CENTROIDS = jnp.asarray(np.random.default_rng(7).uniform(-1, 1, (NUM, 2)), jnp.float32)


@pytest.fixture
def theirs():
    """For tests in which QDax computes: it mixes dtypes."""
    with leniently():
        yield


def batch(num=BATCH, seed=0):
    """Genotypes, descriptors, fitness: in the order of `add`."""
    x = np.random.default_rng(seed).uniform(-1, 1, (num, DIM)).astype(np.float32)
    return jnp.asarray(x), jnp.asarray(x[:, :2]), jnp.asarray(-(x**2).sum(axis=1))


def start(init, *given):
    """A repertoire with a first batch."""
    x, descriptor, fitness = given or batch(NUM)
    return init(x, fitness, descriptor, CENTROIDS, {})


def individuals(genotypes, filled):
    """In one order, whatever the slots."""
    x = np.asarray(genotypes)[np.asarray(filled)]
    return x[np.lexsort(x.T)]


def of(repertoire):
    return individuals(repertoire.genotypes, repertoire.fitnesses[:, 0] > -jnp.inf)


def score(x, key):
    return -jnp.sum(x**2, axis=1), x[:, :2], {}


def mixing(batch_size=BATCH):
    variation = functools.partial(isoline_variation, iso_sigma=0.1, line_sigma=0.1)
    return MixingEmitter(None, variation, variation_percentage=1.0, batch_size=batch_size)


def metrics(repertoire):
    return default_qd_metrics(repertoire, qd_offset=4.0)


def run(init, emitter, num=6, scoring=score, centroids=CENTROIDS):
    algorithm = MAPElites(scoring, emitter, metrics, repertoire_init=init)
    repertoire, emitter_state, _ = algorithm.init(batch()[0], centroids, jax.random.key(0))
    scan = jax.jit(lambda carry: jax.lax.scan(algorithm.scan_update, carry, (), length=num))
    (repertoire, *_), history = scan((repertoire, emitter_state, jax.random.key(1)))
    return repertoire, history


# Who stays


def upper_left(key, fitness, descriptor):
    return jnp.where(descriptor[:, 0] > 0.5, -jnp.inf, descriptor[:, 1])


@pytest.mark.parametrize("equal", [False, True], ids=["", "equal fitness"])
@pytest.mark.parametrize("rule", ["ga", "ns", "dns", "me", "lqd-f", upper_left])
def test_who_stays_is_who_our_loop_keeps(rule, equal):
    first, then = batch(NUM), batch(12, seed=5)
    if equal:
        first, then = ((x, descriptor, jnp.zeros_like(fitness)) for x, descriptor, fitness in (first, then))
    repertoire = start(LQDRepertoire.with_rule("ga"), *first)
    ours = lqd.rule("me", centroids=CENTROIDS) if rule == "me" else rule
    ours = catalogue.resolve(ours, descriptor_bounds=None, population_size=NUM)
    repertoire = repertoire.replace(rule=ours).add(*then)

    key = jax.random.key(0)[None]
    x, descriptor, fitness = (leaf[None] for leaf in first)
    state = loop.empty_state(key, ours, Population(x, fitness, descriptor), NUM)
    state = loop.absorb(state, jnp.int32(-1), ours, x, Evaluation(fitness, descriptor), competing=False)
    x, descriptor, fitness = (leaf[None] for leaf in then)
    state = loop.jit_absorb(state, jnp.int32(0), ours, x, Evaluation(fitness, descriptor))
    expected = individuals(state.population.x[0], state.population.filled[0])
    np.testing.assert_array_equal(of(repertoire), expected)
    assert len(expected) < NUM + 12


def test_lots_are_drawn_by_seed_and_anew_each_time():
    def drawn(seed):
        repertoire = start(LQDRepertoire.with_rule("random", seed=seed))
        key = jax.random.fold_in(jax.random.key(seed), 1)
        x = np.concatenate([repertoire.genotypes, batch(seed=3)[0]])
        kept = np.argsort(-np.asarray(jax.random.uniform(key, (NUM + BATCH,))))[:NUM]
        once = repertoire.add(*batch(seed=3))
        np.testing.assert_array_equal(of(once), x[kept][np.lexsort(x[kept].T)])
        return of(once), of(once.add(*batch(seed=3)))

    once, twice = drawn(1)
    assert not np.array_equal(once, twice)
    assert not np.array_equal(once, drawn(2)[0])


@pytest.mark.usefixtures("theirs")
def test_map_elites_of_ours_and_of_theirs():
    ours, other = start(LQDRepertoire.with_rule("me")), start(MapElitesRepertoire.init)
    for seed in range(4):
        ours, other = ours.add(*batch(12, seed)), other.add(*batch(12, seed))
        np.testing.assert_array_equal(of(ours), of(other))
    assert 1 < len(of(ours)) < NUM


@pytest.mark.parametrize("rule", ["lqd-f", "dns"])
def test_who_stays_keeps_its_slot_and_newcomers_find_the_nearest_before(rule):
    before = start(LQDRepertoire.with_rule(rule), *batch(12))
    x, descriptor, fitness = batch(seed=9)
    descriptor = descriptor.at[0].set(0.0)  # where empty slots would be
    after = before.add(x, descriptor, fitness)
    rows = {tuple(row) for row in np.asarray(after.genotypes)[np.asarray(after.fitnesses[:, 0]) > -np.inf]}
    assert len(rows) == NUM
    for old, new in zip(np.asarray(before.genotypes)[:12], np.asarray(after.genotypes)[:12], strict=True):
        assert (old == new).all() or tuple(old) not in rows
    found = get_cells_indices(descriptor, after.centroids)
    distance = np.linalg.norm(np.asarray(descriptor)[:, None] - np.asarray(before.descriptors)[:12], axis=-1)
    np.testing.assert_array_equal(found, distance.argmin(axis=1))


def test_who_cannot_be_used_is_nobody():
    x, descriptor, fitness = (np.array(leaf) for leaf in batch(6))
    fitness[:3] = np.nan, np.inf, -np.inf
    descriptor[3] = np.nan, 0.0
    descriptor[4, 1] = np.inf
    for rule in ("ga", "lqd-fn", lambda key, fitness, descriptor: jnp.where(fitness > -3, jnp.nan, 0.0)):
        repertoire = start(LQDRepertoire.with_rule(rule), x, descriptor, fitness)
        expected = 0 if callable(rule) else 1
        assert len(of(repertoire)) == expected
        assert np.isfinite(repertoire.descriptors).all()
        repertoire = repertoire.add(*batch(seed=1))
        assert len(of(repertoire)) > expected or callable(rule)
        np.testing.assert_array_equal(of(repertoire.add(x[:5], descriptor[:5], fitness[:5])), of(repertoire))


def test_genotypes_are_any_pytree_and_extra_scores_stay_with_them():
    x, descriptor, fitness = batch(24)
    number = jnp.arange(24)
    genotypes = {"layers": [x, (x[:, 0], number)], "bias": x.reshape(24, 2, 2)}
    extra_scores = {"energy": 2 * x[:, 0], "path": {"steps": x[:, :3], "number": number}, "large": jnp.zeros((24, 999))}
    init = LQDRepertoire.with_rule("dns", keys_extra_scores=("energy", "path"))
    repertoire = init(genotypes, fitness[:, None], descriptor, CENTROIDS, extra_scores)
    five = jax.tree.map(lambda leaf: leaf[:5], (genotypes, descriptor, fitness, extra_scores))
    repertoire = repertoire.add(*five)
    row = np.asarray(repertoire.genotypes["layers"][1][1])
    assert row.dtype == np.int32
    assert sorted(repertoire.extra_scores) == ["energy", "path"]
    np.testing.assert_array_equal(repertoire.genotypes["bias"].reshape(NUM, DIM), np.asarray(x)[row])
    np.testing.assert_array_equal(repertoire.fitnesses[:, 0], np.asarray(fitness)[row])
    np.testing.assert_array_equal(repertoire.descriptors, np.asarray(descriptor)[row])
    np.testing.assert_array_equal(repertoire.extra_scores["energy"], 2 * np.asarray(x)[row, 0])
    np.testing.assert_array_equal(repertoire.extra_scores["path"]["number"], row)


@pytest.mark.usefixtures("theirs")
def test_the_archive_is_theirs_and_sees_everybody():
    ours, other = start(LQDRepertoire.with_rule("ga", archive=True)), start(MapElitesRepertoire.init)
    for seed in range(3):
        ours, other = ours.add(*batch(12, seed)), other.add(*batch(12, seed))
    x, descriptor, fitness = batch()
    ours = ours.add(x, descriptor, jnp.full_like(fitness, jnp.inf)).add(x, jnp.nan * descriptor, fitness + 9)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), ours.archive, other))
    assert start(LQDRepertoire.with_rule("ga")).archive is None


# Inside QDax


@pytest.mark.usefixtures("theirs")
def test_one_line_is_changed_and_one_program_compiled():
    algorithm = MAPElites(score, mixing(), metrics, repertoire_init=LQDRepertoire.with_rule("lqd-f"))
    repertoire, emitter_state, first = algorithm.init(batch()[0], CENTROIDS, jax.random.key(0))
    assert first["coverage"] == 50
    scan = jax.jit(lambda carry: jax.lax.scan(algorithm.scan_update, carry, (), length=3))
    carry = (repertoire, emitter_state, jax.random.key(1))
    before = integration._compete._cache_size()
    for _ in range(3):
        carry, history = scan(carry)
    assert scan._cache_size() == 1
    assert integration._compete._cache_size() <= before + 1
    repertoire = carry[0]
    assert isinstance(repertoire, LQDRepertoire)
    assert history["coverage"][-1] == 100
    assert history["max_fitness"][-1] >= first["max_fitness"]
    chosen = repertoire.select(jax.random.key(2), 5)
    assert chosen.genotypes.shape == (5, DIM)


@pytest.mark.usefixtures("theirs")
def test_the_default_rule_init_under_jit_and_seeds_under_vmap():
    algorithm = MAPElites(score, mixing(), metrics, repertoire_init=LQDRepertoire.init)

    def search(key):
        repertoire, emitter_state, _ = algorithm.init(jax.random.uniform(key, (BATCH, DIM)), CENTROIDS, key)
        return jax.lax.scan(algorithm.scan_update, (repertoire, emitter_state, key), (), length=3)[0][0]

    together = jax.jit(jax.vmap(search))(jax.random.split(jax.random.key(0), 2))
    assert together.fitnesses.shape == (2, NUM, 1)
    assert not np.array_equal(together.genotypes[0], together.genotypes[1])
    assert all(np.asarray(leaf).dtype != object for leaf in jax.tree.leaves(together))


@pytest.mark.usefixtures("theirs")
def test_a_population_of_another_size_than_the_cells():
    repertoire, history = run(LQDRepertoire.with_rule("dns", population_size=5, archive=True), mixing())
    assert repertoire.fitnesses.shape == (5, 1)
    assert repertoire.archive.fitnesses.shape == (NUM, 1)
    assert history["coverage"][-1] == 100


CMA = {"batch_size": BATCH, "genotype_dim": DIM, "centroids": CENTROIDS, "sigma_g": 0.2, "min_count": 1}
EMITTERS = {
    "improvement": lambda: CMAImprovementEmitter(**CMA),
    "optimizing": lambda: CMAOptimizingEmitter(**CMA),
    "random direction": lambda: CMARndEmitter(**CMA),
    "pool": lambda: CMAPoolEmitter(num_states=2, emitter=CMAImprovementEmitter(**CMA)),
    "several": lambda: MultiEmitter((mixing(3), CMAImprovementEmitter(**CMA))),
}


@pytest.mark.usefixtures("theirs")
@pytest.mark.parametrize("name", EMITTERS)
def test_emitters(name):
    repertoire, history = run(LQDRepertoire.with_rule("dns"), EMITTERS[name](), num=12)
    assert len(of(repertoire)) == NUM
    assert np.isfinite(of(repertoire)).all()
    assert history["max_fitness"][-1] > history["max_fitness"][0]


def with_gradients(x, key):
    fitness, descriptor, _ = score(x, key)
    grads = jnp.stack([-2 * x, *(jnp.zeros_like(x).at[:, i].set(1.0) for i in range(2))], axis=-1)
    return fitness, descriptor, {"gradients": grads, "normalized_grads": grads}


@pytest.mark.usefixtures("theirs")
def test_emitters_with_gradients():
    settings = {"batch_size": BATCH, "learning_rate": 0.1, "num_descriptors": 2, "centroids": CENTROIDS, "sigma_g": 0.2}
    emitter = CMAMEGAEmitter(scoring_function=with_gradients, **settings)
    _, history = run(LQDRepertoire.with_rule("dns"), emitter, scoring=with_gradients)
    assert history["max_fitness"][-1] > history["max_fitness"][0]
    by_cell = OMGMEGAEmitter(batch_size=BATCH, sigma_g=0.2, num_descriptors=2, centroids=CENTROIDS)
    with pytest.raises(InvalidInput, match=r"OMGMEGAEmitter.*no cells.*MapElitesRepertoire"):
        run(LQDRepertoire.with_rule("dns"), by_cell, scoring=with_gradients)


def policy_gradients(monkeypatch):
    """PGA-ME. QDax 0.5 wants `brax.v1`, which brax has no more, for the name of a type."""
    try:
        return importlib.import_module("qdax.core.emitters.pga_me_emitter")
    except ImportError:
        for name in ("qdax.tasks.brax.v1", "qdax.tasks.brax.v1.envs", "qdax.tasks.brax.v1.envs.base_env"):
            stand_in = types.ModuleType(name)
            stand_in.__path__ = []
            stand_in.QDEnv = object
            monkeypatch.setitem(sys.modules, name, stand_in)
        return importlib.import_module("qdax.core.emitters.pga_me_emitter")


@pytest.mark.long
@pytest.mark.usefixtures("theirs")
def test_policy_gradients(monkeypatch):
    pga = policy_gradients(monkeypatch)
    from qdax.core.neuroevolution.buffers.buffer import QDTransition
    from qdax.core.neuroevolution.networks.networks import MLP

    policy = MLP(layer_sizes=(3, 1), kernel_init=jax.nn.initializers.lecun_uniform(), final_activation=jnp.tanh)

    def episode(params, key):
        def step(position, _):
            action = policy.apply(params, position)
            moved = position + 0.3 * action
            zero = jnp.float32(0)
            passed = QDTransition(position, moved, -jnp.sum(moved**2), zero, zero, action, moved, moved)
            return moved, passed

        return jax.lax.scan(step, jax.random.normal(key, (2,)), (), length=4)[1]

    def scoring(params, key):
        num = jax.tree.leaves(params)[0].shape[0]
        transitions = jax.vmap(episode)(params, jax.random.split(key, num))
        end = transitions.next_state_desc[:, -1]
        return transitions.rewards.sum(axis=1), end, {"transitions": transitions, "end": end}

    config = pga.PGAMEConfig(
        env_batch_size=BATCH,
        num_critic_training_steps=2,
        num_pg_training_steps=2,
        replay_buffer_size=100,
        critic_hidden_layer_size=(4,),
        batch_size=8,
    )
    env = types.SimpleNamespace(observation_size=2, action_size=1, state_descriptor_length=2)
    variation = functools.partial(isoline_variation, iso_sigma=0.1, line_sigma=0.1)
    emitter = pga.PGAMEEmitter(config, policy, env, variation)
    init = LQDRepertoire.with_rule("lqd-f", keys_extra_scores=("end",))
    algorithm = MAPElites(scoring, emitter, metrics, repertoire_init=init)
    params = jax.vmap(policy.init, in_axes=(0, None))(jax.random.split(jax.random.key(0), BATCH), jnp.zeros(2))
    repertoire, state, _ = algorithm.init(params, CENTROIDS, jax.random.key(1))
    scan = jax.jit(lambda carry: jax.lax.scan(algorithm.scan_update, carry, (), length=3))
    (repertoire, *_), history = scan((repertoire, state, jax.random.key(2)))
    assert history["coverage"][-1] == 100
    np.testing.assert_array_equal(repertoire.extra_scores["end"], repertoire.descriptors)


@pytest.mark.usefixtures("theirs")
def test_the_example_runs(capsys):
    path = pathlib.Path(__file__).parents[2] / "examples" / "qdax_arm.py"
    spec = importlib.util.spec_from_file_location("qdax_arm", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.NUM_CELLS = 32
    for name in ("DNS", "LQD (F)", "LQD (F+N)"):  # as the others, and to compile
        del example.CONTAINERS[name]
    example.main(["--num-generations", "2", "--num-seeds", "1"])
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row[:20].strip() for row in rows] == ["QDax's MAP-Elites", "LQD (F+N), 128"]
    assert all(0 < float(row[20:].split()[0]) <= 100 for row in rows)


# Bad input


def test_bad_settings_are_refused_at_the_door():
    with pytest.raises(InvalidInput, match=r"rule.*'lqd-g'.*lqd-f"):
        LQDRepertoire.with_rule("lqd-g")
    with pytest.raises(InvalidInput, match=r"rule must be a name.*got 3"):
        LQDRepertoire.with_rule(3)
    with pytest.raises(InvalidInput, match=r"population_size must be.*got 0"):
        LQDRepertoire.with_rule(population_size=0)
    with pytest.raises(InvalidInput, match=r"keys_extra_scores must be a tuple.*got 'energy'"):
        LQDRepertoire.with_rule(keys_extra_scores="energy")
    with pytest.raises(InvalidInput, match=r"archive must be True or False, got 64"):
        LQDRepertoire.with_rule(archive=64)
    with pytest.raises(InvalidInput, match=r"seed must be below"):
        LQDRepertoire.with_rule(seed=2**32)


def test_rules_that_do_not_fit_are_refused():
    x, _, fitness = batch()
    with pytest.raises(InvalidInput, match=r"2 dimensions.*got 3.*'lqd-f'"):
        LQDRepertoire.with_rule("lqd-f-paper")(x, fitness, x[:, :3], jnp.zeros((NUM, 3)), {})
    with pytest.raises(InvalidInput, match=r"16 cells for a population of 5.*population_size=16"):
        start(LQDRepertoire.with_rule("me", population_size=5))
    with pytest.raises(InvalidInput, match=r"32 cells for a population of 16"):
        start(LQDRepertoire.with_rule(lqd.rule("me", centroids=np.zeros((32, 2)))))
    with pytest.raises(InvalidInput, match=r"rule must be a JAX function .*returned float32\[16, 2\]"):
        start(LQDRepertoire.with_rule(lambda key, fitness, descriptor: descriptor))


def test_wrong_shapes_are_named():
    x, descriptor, fitness = batch()
    init = LQDRepertoire.with_rule("ga", keys_extra_scores=("a",))
    extra = {"a": x}
    good = init(x, fitness, descriptor, CENTROIDS, extra)
    with pytest.raises(InvalidInput, match=r"centroids must have shape \(cells, D\), got \(2,\)"):
        init(x, fitness, descriptor, jnp.zeros(2), extra)
    with pytest.raises(InvalidInput, match=r"descriptors must have shape \(batch, 2\).*got \(8, 4\)"):
        init(x, fitness, x, CENTROIDS, extra)
    with pytest.raises(InvalidInput, match=r"fitnesses must have shape \(8,\) or \(8, 1\).*got \(8, 2\)"):
        good.add(x, descriptor, descriptor, extra)
    with pytest.raises(InvalidInput, match=r"genotypes must have 8 entries.*got shape \(7, 4\)"):
        init(x[:7], fitness, descriptor, CENTROIDS, extra)
    with pytest.raises(InvalidInput, match=r"genotypes must have shape \(8, 4\), got \(8, 3\)"):
        good.add(x[:, :3], descriptor, fitness, extra)
    with pytest.raises(InvalidInput, match=r"genotypes must be structured like the first ones"):
        good.add({"x": x}, descriptor, fitness, extra)
    with pytest.raises(InvalidInput, match=r"genotypes must have at least one array"):
        init({}, fitness, descriptor, CENTROIDS, extra)
    with pytest.raises(InvalidInput, match=r"keys_extra_scores names 'a'.*received are: 'b'"):
        good.add(x, descriptor, fitness, {"b": x})
    with pytest.raises(InvalidInput, match=r"extra_scores must have 8 entries"):
        good.add(x, descriptor, fitness, {"a": x[:2]})


def test_numbers_of_any_kind():
    x, descriptor, fitness = batch()
    repertoire = LQDRepertoire.with_rule("ga")(
        x, jnp.arange(8), np.asarray(descriptor, np.float16), np.eye(2, dtype=int)
    )
    assert repertoire.fitnesses.dtype == repertoire.descriptors.dtype == jnp.float32
    repertoire = repertoire.add(x, descriptor, np.asarray(fitness, np.float64))
    np.testing.assert_array_equal(np.sort(repertoire.fitnesses[:, 0]), [6, 7])
