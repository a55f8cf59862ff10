"""Families in the box: one table of properties that all of them have, then what each one says of itself."""

import dataclasses
import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lqd.errors import InvalidInput
from lqd.meta import families, family
from lqd.meta.families import Arms, Clipped, Distribution, Noisy, Robots, Sparse, Wide, clipped, wide
from lqd.meta.family import Family, TrainingTasks, identity
from lqd.tasks.arm import Arm
from lqd.types import Evaluation

SMALL = {
    "bbob": Distribution(("sphere", "rastrigin"), max_dim=5),
    "bbob-wide": Wide(("sphere", "step_ellipsoidal"), max_dim=6, descriptor_dim=3),
    "arm-small": Arms(),
    "arm-large": Arms(16, 64),
    "clipped": Clipped(max_dim=6),
    "noisy": Noisy(Arms(), strength=(0.1, 0.2)),
    "sparse": Sparse(Clipped(("largest",), max_dim=4, descriptor_dim=1)),
}  # of every name, something that compiles fast
OTHER = {
    "bbob": Distribution(("sphere", "rastrigin"), max_dim=6),
    "bbob-wide": Wide(("sphere", "step_ellipsoidal"), max_dim=6, descriptor_dim=3, descriptors=("norm",)),
    "arm-small": Arms(4, 8),
    "arm-large": Arms(17, 64),
    "clipped": Clipped(max_dim=7),
    "noisy": Noisy(Arms(4, 8), strength=(0.1, 0.2)),
    "sparse": Sparse(Clipped(("largest",), max_dim=4, descriptor_dim=1), below=(0.6, 0.7)),
}
NUM_TASKS, NUM_POINTS = 12, 64
has_brax = importlib.util.find_spec("brax") is not None


def seen(one, key):
    """Everything about the tasks of a key that a run can see."""
    key_tasks, key_x, key_runs = jax.random.split(key, 3)
    tasks = one.sample(key_tasks, NUM_TASKS)
    low, high = tasks.bounds
    x = low + jax.random.uniform(key_x, (NUM_TASKS, NUM_POINTS, tasks.dim)) * (high - low)
    found = tasks.evaluate(jax.random.split(key_runs, NUM_TASKS), x)
    return {
        "tasks": tasks, "x": x, "fitness": found.fitness, "descriptor": found.descriptor,
        "range": tasks.descriptor_range, "noiseless": tasks.noiseless(x), "f_opt": tasks.f_opt,
    }  # fmt: skip


compiled = jax.jit(seen, static_argnums=0)


@pytest.fixture(scope="module", params=SMALL)
def small(request):
    return request.param, SMALL[request.param], compiled(SMALL[request.param], jax.random.key(0))


def test_every_name_is_in_the_table():
    assert list(SMALL) == [name for name in families.names() if name != "robots"]
    for name, one in SMALL.items():
        assert type(families.make(name)) is type(one)
        assert families.make(name).name.startswith(name)


def test_the_protocol(small):
    _, one, found = small
    tasks = found["tasks"]
    assert isinstance(one, Family)
    assert isinstance(tasks, TrainingTasks)
    assert NUM_TASKS % one.multiple == 0
    assert (tasks.num_tasks, tasks.descriptor_dim) == (NUM_TASKS, one.descriptor_dim)
    assert found["fitness"].shape == found["noiseless"].shape == (NUM_TASKS, NUM_POINTS)
    assert found["descriptor"].shape == (NUM_TASKS, NUM_POINTS, one.descriptor_dim)
    assert [end.shape for end in tasks.bounds] == [(tasks.dim,)] * 2
    assert [end.shape for end in found["range"]] == [(NUM_TASKS, one.descriptor_dim)] * 2
    assert found["f_opt"].shape == (NUM_TASKS,)
    for field in ("fitness", "descriptor", "noiseless", "range", "f_opt"):
        assert all(np.isfinite(leaf).all() and leaf.dtype == np.float32 for leaf in jax.tree.leaves(found[field])), (
            field
        )


def test_nothing_is_fitter_than_the_best(small):
    _, _, found = small
    assert (found["noiseless"] <= found["f_opt"][:, None] + 1e-6).all()


def test_the_range_holds_nearly_all_and_is_not_too_wide(small):
    _, _, found = small
    low, high = (end[:, None] for end in found["range"])
    assert (low < high).all()
    within = (found["descriptor"] >= low) & (found["descriptor"] <= high)
    assert within.mean() > 0.98
    assert np.std(found["descriptor"] / (high - low), axis=1).mean() > 0.03


def test_the_key_decides(small):
    _, one, found = small
    again = compiled(one, jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, found["tasks"], again["tasks"])
    np.testing.assert_array_equal(found["fitness"], again["fitness"])
    other = one.sample(jax.random.key(1), NUM_TASKS)
    differ = [
        (np.asarray(a) != np.asarray(b)).any()
        for a, b in zip(jax.tree.leaves(found["tasks"]), jax.tree.leaves(other), strict=True)
    ]
    assert any(differ)
    # And no two of one batch are alike, but for arms, of which there are as many as numbers of joints.
    if not isinstance(one, Arms):
        assert len(np.unique(np.round(np.asarray(found["fitness"]), 6), axis=0)) > NUM_TASKS / 2


@pytest.mark.parametrize("name", ["bbob-wide", "clipped", "noisy", "sparse", "arm-small"])
def test_compiled_or_not_it_is_the_same(name):
    one = SMALL[name]
    plain, fast = seen(one, jax.random.key(5)), compiled(one, jax.random.key(5))
    for field in ("x", "descriptor", "range", "noiseless", "fitness"):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-4), plain[field], fast[field])


def padding(tasks):
    """Which coordinates do not count, by task."""
    while not hasattr(tasks, "num_joints") and not hasattr(tasks, "num_dims") and not hasattr(tasks, "instances"):
        tasks = getattr(tasks, "tasks", None) or tasks.landscapes
    if hasattr(tasks, "instances"):
        number = np.concatenate([instance.num_dims for instance in tasks.instances])
    else:
        number = getattr(tasks, "num_joints", getattr(tasks, "num_dims", None))
    return np.arange(tasks.dim) >= np.asarray(number)[:, None]


@jax.jit
def said(tasks, x):
    found = tasks.evaluate(jax.random.split(jax.random.key(0), NUM_TASKS), x)
    return found.fitness, found.descriptor, tasks.noiseless(x)


def test_padding_changes_nothing(small):
    _, _, found = small
    unused = padding(found["tasks"])
    assert unused.any()
    assert not unused.all(axis=1).any()
    x = jnp.where(unused[:, None], found["tasks"].bounds[0] * 0.3 + found["tasks"].bounds[1] * 0.7, found["x"])
    jax.tree.map(np.testing.assert_array_equal, said(found["tasks"], found["x"]), said(found["tasks"], x))


def test_settings_are_part_of_the_identity(small):
    name, one, _ = small
    assert identity(one) == identity(dataclasses.replace(one))
    assert identity(one) != identity(OTHER[name])
    assert hash(one) == hash(dataclasses.replace(one))
    assert families.restored(identity(one)) == one


# --- one by one ---


def test_what_rules_are_measured_on_is_in_no_family():
    """Sphere and Rastrigin with sums or coordinates; arms of 10 to 14 joints, or of more than 80."""
    shipped = [families.make(name) for name in families.names() if name != "robots"]
    for one in shipped:
        inner = getattr(one, "family", one)
        assert isinstance(inner, Distribution | Wide | Arms | Clipped)
    assert not {"sphere", "rastrigin"} & set(clipped.FUNCTIONS)
    with pytest.raises(InvalidInput, match="unknown function 'sphere'"):
        Clipped(("sphere",))
    for ends in ((4, 10), (9, 12), (12, 12), (4, 40), (14, 20), (16, 81), (100, 100)):
        with pytest.raises(InvalidInput, match=r"held out for benches: give a range outside of these, got \d+ to \d+"):
            Arms(*ends)
    for name in ("arm-small", "arm-large"):
        joints = np.asarray(families.make(name).sample(jax.random.key(0), 4000).num_joints)
        assert not ((joints >= 10) & (joints <= 14)).any()
        assert joints.max() <= 80


def test_sphere_and_rastrigin_never_have_coordinates():
    names = ("sphere", "rastrigin", "bueche_rastrigin", "rastrigin_rotated", "ellipsoidal")
    tasks = Wide(names, max_dim=3).sample(jax.random.key(0), 1000)
    kinds = np.asarray(tasks.kind).reshape(5, 200)
    assert set(kinds[4].tolist()) == set(range(5))
    assert not (kinds[:4] == wide.KINDS.index("coordinates")).any()
    only = Wide(names, max_dim=3, descriptors=("coordinates",)).sample(jax.random.key(0), 10)
    assert np.asarray(only.kind).tolist() == [0] * 8 + [1] * 2
    # Of BBOB itself, descriptors are random projections.
    projection = Distribution(("sphere", "rastrigin")).sample(jax.random.key(0), 20).instances[0].projection
    assert (np.count_nonzero(projection, axis=-1) > 1).all()
    assert len(np.unique(np.abs(projection[projection != 0]))) > 50


def test_every_kind_of_descriptor_by_hand():
    one = Wide(("ellipsoidal",), max_dim=5, descriptor_dim=2)
    tasks = one.sample(jax.random.key(3), 40)
    x = jax.random.uniform(jax.random.key(4), (40, 3, 5), minval=-5, maxval=5)
    got = np.asarray(tasks.evaluate(jax.random.split(jax.random.key(0), 40), x).descriptor)
    linear = np.einsum("kbw,kdw->kbd", x, tasks.weights)
    squares = np.einsum("kbw,kdw->kbd", x**2, tasks.weights)
    expected = {"projection": linear, "coordinates": linear, "tanh": np.tanh(linear), "sin": np.sin(linear)}
    with np.errstate(invalid="ignore"):
        expected |= {"norm": np.sqrt(squares)}
    for number, kind in enumerate(wide.KINDS):
        mine = np.asarray(tasks.kind) == number
        assert mine.any()
        np.testing.assert_allclose(got[mine], expected[kind][mine], rtol=1e-5, atol=1e-5)
    weights, num_dims = np.asarray(tasks.weights), np.asarray(tasks.landscapes.instances[0].num_dims)
    mine = np.asarray(tasks.kind) == wide.KINDS.index("coordinates")
    assert (np.sort(weights[mine], axis=-1)[..., -1] == 1).all()
    assert (np.count_nonzero(weights[mine], axis=-1) == 1).all()
    assert (weights[mine, 0] != weights[mine, 1]).any(axis=-1).all()  # no coordinate twice
    mine = np.asarray(tasks.kind) == wide.KINDS.index("norm")
    np.testing.assert_allclose(weights[mine].sum(axis=-1), 1, rtol=1e-6)
    assert (num_dims >= 2).all()


def test_more_descriptors_than_coordinates():
    one = Wide(("ellipsoidal",), max_dim=3, descriptor_dim=8, descriptors=("coordinates",))
    weights = np.asarray(one.sample(jax.random.key(0), 20).weights)
    num_dims = np.asarray(one.sample(jax.random.key(0), 20).landscapes.instances[0].num_dims)
    for rows, num in zip(weights, num_dims, strict=True):
        assert (np.sort(np.abs(rows[:num]), axis=-1)[:, -2:] == [0, 1]).all()
        assert (np.count_nonzero(rows[num:], axis=-1) == num).all()


def test_an_arm_that_fills_its_width_is_the_arm_of_the_package():
    tasks = Arms(7, 7).sample(jax.random.key(0), 3)
    x = jax.random.uniform(jax.random.key(1), (3, 50, 7))
    ours, theirs = (
        tasks.evaluate(jax.random.split(jax.random.key(0), 3), x),
        jax.vmap(Arm(7).evaluate, (None, 0))(None, x),
    )
    np.testing.assert_allclose(ours.fitness, theirs.fitness, rtol=1e-5)
    np.testing.assert_allclose(ours.descriptor, theirs.descriptor, atol=1e-6)


def test_a_padded_arm_is_a_shorter_one():
    tasks = Arms(16, 64).sample(jax.random.key(0), 4)
    x = jax.random.uniform(jax.random.key(1), (4, 20, 64))
    found = tasks.evaluate(jax.random.split(jax.random.key(0), 4), x)
    for i, num in enumerate(np.asarray(tasks.num_joints).tolist()):
        alone = Arm(num).evaluate(None, x[i, :, :num])
        np.testing.assert_allclose(found.fitness[i], alone.fitness, rtol=1e-5)
        np.testing.assert_allclose(found.descriptor[i], alone.descriptor, atol=1e-5)


def test_arms_of_every_length():
    assert set(np.asarray(Arms().sample(jax.random.key(0), 200).num_joints).tolist()) == set(range(4, 10))


def styblinski_tang(z):
    w = z - 2.903534027771177
    return np.sum(w**4 - 16 * w**2 + 5 * w) / 2 + 39.16616570377142 * len(z)


def test_the_other_functions_by_hand():
    tasks = Clipped(max_dim=6).sample(jax.random.key(0), 12)
    x = np.asarray(jax.random.uniform(jax.random.key(1), (12, 4, 6), minval=-10, maxval=10))
    got = -np.asarray(tasks.noiseless(jnp.asarray(x)))
    for k in range(12):
        n = int(tasks.num_dims[k])
        i = np.arange(1, n + 1)
        by_hand = {
            "ellipsoid": lambda z, i=i, n=n: np.sum(10 ** (4 * (i - 1) / (n - 1)) * z**2),
            "double_sum": lambda z: np.sum(np.cumsum(z) ** 2),
            "largest": lambda z: np.max(np.abs(z)),
            "styblinski_tang": styblinski_tang,
            "griewank": lambda z, i=i: np.sum((10 * z) ** 2) / 4000 - np.prod(np.cos(10 * z / np.sqrt(i))) + 1,
            "zakharov": lambda z, i=i, n=n: np.sum(z**2) + np.sum(i / n * z / 2) ** 2 + np.sum(i / n * z / 2) ** 4,
        }
        function = by_hand[tasks.functions[k // 2]]
        z = (x[k] - np.asarray(tasks.x_opt[k]))[:, :n].astype(np.float64)
        np.testing.assert_allclose(got[k], [function(one) for one in z], rtol=1e-3, atol=1e-4)
    at_best = tasks.noiseless(jnp.broadcast_to(tasks.x_opt[:, None], (12, 1, 6)))
    np.testing.assert_allclose(at_best, 0, atol=1e-6)


def test_clipped_sums_are_those_of_the_community():
    """With the parts in their places: the sums of both halves."""
    halves = jnp.asarray([[0, 0, 1, 1]])
    tasks = clipped.ClippedBatch(jnp.zeros((1, 4)), halves, jnp.asarray([4]), ("largest",), 2)
    x = jnp.asarray([[[1.0, -2.0, 5.12, 3.0], [10.24, 0.0, -10.24, -6.0]]])
    found = tasks.evaluate(jax.random.split(jax.random.key(0), 1), x).descriptor
    expected = [[-1.0, 8.12], [5.12**2 / 10.24, -(5.12**2) / 10.24 - 5.12**2 / 6]]
    np.testing.assert_allclose(found[0], expected, rtol=1e-6)
    np.testing.assert_allclose(tasks.descriptor_range[1], [[10.24, 10.24]])


def test_the_parts_of_a_clipped_task_are_of_equal_size():
    one = Clipped(("largest",), max_dim=9, descriptor_dim=4)
    tasks = one.sample(jax.random.key(0), 30)
    for part, num in zip(np.asarray(tasks.part), np.asarray(tasks.num_dims), strict=True):
        sizes = np.bincount(part[:num], minlength=4)
        assert num >= 4
        assert sizes.sum() == num
        assert sizes.max() - sizes.min() <= 1
        assert (part[num:] >= 4).all()


def test_noise_is_seen_and_does_not_count():
    inner = Clipped(("largest", "ellipsoid"), max_dim=4)
    one = Noisy(inner, strength=(0.2, 0.2))
    tasks = one.sample(jax.random.key(0), 40)
    x = jax.random.uniform(jax.random.key(1), (40, 500, 4), minval=-10, maxval=10)
    keys = jax.random.split(jax.random.key(2), 40)
    seen, true = np.asarray(tasks.evaluate(keys, x).fitness), np.asarray(tasks.noiseless(x))
    np.testing.assert_array_equal(true, tasks.tasks.noiseless(x))
    np.testing.assert_array_equal(seen, tasks.evaluate(keys, x).fitness)
    is_additive = np.asarray(tasks.is_additive)
    assert 0 < is_additive.sum() < 40
    added = (seen - true) / true.std(axis=1, keepdims=True)
    np.testing.assert_allclose(added[is_additive].std(axis=1), 0.2, rtol=0.25)
    np.testing.assert_allclose(np.log((seen / true)[~is_additive]).std(axis=1), 0.2, rtol=0.25)


def test_fitness_0_or_1():
    one = Sparse(Clipped(("largest",), max_dim=4), below=(0.9, 0.9))
    tasks = one.sample(jax.random.key(0), 20)
    x = jax.random.uniform(jax.random.key(1), (20, 2000, 4), minval=-clipped.BOX, maxval=clipped.BOX)
    keys = jax.random.split(jax.random.key(2), 20)
    fitness = np.asarray(tasks.evaluate(keys, x).fitness)
    assert set(np.unique(fitness)) == {0.0, 1.0}
    np.testing.assert_array_equal(fitness, tasks.noiseless(x))
    np.testing.assert_allclose(fitness.mean(axis=1), 0.1, atol=0.05)
    best = jnp.broadcast_to(tasks.tasks.x_opt[:, None], (20, 1, 4))
    assert (np.asarray(tasks.noiseless(best)) == 1).all()
    assert np.isnan(tasks.noiseless(jnp.full((20, 1, 4), jnp.nan))).all()
    assert np.isneginf(tasks._reached(jnp.full((20, 1), -jnp.inf))).all()


def test_families_of_families():
    one = families.make("noisy-arm-small", strength=(0.1, 0.1))
    assert (one, one.name) == (Noisy(Arms(), (0.1, 0.1)), "noisy-arm-small")
    twice = families.make("sparse-noisy-arm-large")
    assert (twice, twice.name) == (Sparse(Noisy(Arms(16, 64))), "sparse-noisy-arm-large")
    assert families.restored(identity(twice)) == twice
    assert twice.sample(jax.random.key(0), 2).evaluate(
        jax.random.split(jax.random.key(0), 2), jnp.zeros((2, 1, 64))
    ).fitness.shape == (2, 1)


BAD = {
    "joints": (lambda: Arms(5, 4), "max_joints must be at least min_joints = 5, got 4"),
    "one joint": (lambda: Arms(1, 4), "min_joints must be a whole number of at least 2"),
    "function": (lambda: Clipped(("rastrigin",)), "unknown function 'rastrigin'"),
    "twice": (lambda: Clipped(("largest", "largest")), "functions must name at least one function, each once"),
    "dims": (lambda: Clipped(max_dim=3, descriptor_dim=4), "max_dim must be at least 4"),
    "kind": (lambda: Wide(descriptors=("projections",)), "unknown kind of descriptor 'projections'.*'projection'"),
    "no kind": (lambda: Wide(descriptors=()), "descriptors must name at least one kind, each once"),
    "wide function": (lambda: Wide(("nothing",)), "unknown function"),
    "wide dims": (lambda: Wide(min_dim=7, max_dim=6), "max_dim must be at least min_dim = 7, got 6"),
    "descriptors": (lambda: Wide(descriptor_dim=0), "descriptor_dim must be a whole number of at least 1"),
    "strength": (lambda: Noisy(strength=(0.3, 0.1)), "strength must be a pair, the lowest and the highest"),
    "no strength": (lambda: Noisy(strength=(0.0, 0.1)), "strength must be a finite number above 0"),
    "below": (lambda: Sparse(below=(0.5, 1.5)), "below must be shares of at most 1"),
    "no family": (lambda: Noisy(3), "tasks must be a function .* got 3"),
    "class": (lambda: Noisy(Arms), "Arms is a class; give an object"),
    "name": (lambda: families.make("arm"), "unknown family of tasks 'arm'. Did you mean 'arm-small' or 'arm-large'"),
    "setting": (lambda: families.make("clipped", width=3), "family 'clipped' has no such settings"),
    "robot": (lambda: Robots("dog"), "unknown robot 'dog'"),
    "weakest": (lambda: Robots(weakest=0), "weakest must be a share above 0"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_settings(case):
    make, message = BAD[case]
    with pytest.raises(InvalidInput, match=message):
        make()


# --- robots ---


@pytest.mark.skipif(has_brax, reason="brax is here")
def test_without_brax_robots_say_what_is_missing():
    with pytest.raises(InvalidInput, match=r"robots need brax .* pip install 'lqd\[brax\]'"):
        families.make("robots")


@pytest.mark.skipif(not has_brax, reason="needs brax: pip install 'lqd[brax]'")
def test_robots_have_motors_of_their_own():
    one = Robots("hopper", episode_length=5, num_hidden=2)
    family.check(one)
    tasks = one.sample(jax.random.key(0), 3)
    assert isinstance(tasks, TrainingTasks)
    assert tasks.strength.shape == (3, 3)
    assert ((tasks.strength >= 0.5) & (tasks.strength <= 1)).all()
    x = jnp.broadcast_to(
        jax.random.uniform(jax.random.key(1), (1, 1, tasks.dim), minval=-0.5, maxval=0.5), (3, 2, tasks.dim)
    )
    same = dataclasses.replace(tasks, start=jnp.broadcast_to(jax.random.key(7), (3,)))
    noiseless = np.asarray(same.noiseless(x))
    np.testing.assert_array_equal(noiseless[:, 0], noiseless[:, 1])
    assert len(np.unique(noiseless[:, 0])) == 3  # from the same start
    found = tasks.evaluate(jax.random.split(jax.random.key(0), 3), x)
    assert isinstance(found, Evaluation)
    assert found.descriptor.shape == (3, 2, 2)
    assert np.isfinite(found.fitness).all()
    assert found.fitness[0, 0] != found.fitness[0, 1]  # another reset for each
    assert families.restored(identity(one)) == one
    whole = Robots("hopper", episode_length=5, num_hidden=16, weakest=1.0)
    strong = whole.sample(jax.random.key(0), 1)
    policy = jax.random.uniform(jax.random.key(1), (1, 1, strong.dim), minval=-0.5, maxval=0.5)
    keys = jax.random.split(jax.random.key(3), 1)
    alone = whole.task.evaluate(keys[0], policy[0])
    np.testing.assert_allclose(strong.evaluate(keys, policy).fitness[0], alone.fitness, rtol=1e-3)
