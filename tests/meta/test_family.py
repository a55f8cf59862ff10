"""Families of the user's own: what is filled in, what is refused and how, what identifies them; and mixes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lqd
from lqd.errors import InvalidInput
from lqd.meta import families, family, own_family
from lqd.meta.families import Arms, Distribution
from lqd.meta.family import Family, TrainingTasks, divided, identity
from lqd.tasks.arm import Arm
from lqd.tasks.task import Repeated
from lqd.types import Evaluation, pytree, static

KEYS = jax.random.split(jax.random.key(3), 4)


def draw(key):
    return jax.random.uniform(key, (3,), minval=-1, maxval=1)


def bowl(centre, x):
    return -jnp.sum((x - centre) ** 2, axis=-1), x[..., :2]


def bowls(evaluate=bowl, draw=draw, **settings):
    return lqd.task_family(evaluate, draw, **{"dim": 3, "bounds": (-2, 2), "descriptor_bounds": (-2, 2)} | settings)


@pytree
class Tasks:
    """As a user writes them, with the least there must be; what is wrong with some is said by `fault`."""

    centre: jax.Array
    fault: str = static(default="")

    @property
    def dim(self):
        return 3

    @property
    def bounds(self):
        high = {"bounds": -2.0, "no bounds": jnp.inf}.get(self.fault, 2.0)
        return -jnp.full(3, high), jnp.full(3, high)

    @property
    def descriptor_range(self):
        ends = -jnp.ones((len(self.centre), 2)), jnp.ones((len(self.centre), 2))
        match self.fault:
            case "reversed":
                return ends[::-1]
            case "infinite":
                return ends[0], ends[1] * jnp.inf
            case "range shape":
                return ends[0][0], ends[1][0]
        return ends

    @property
    def f_opt(self):
        num = len(self.centre)
        best = {"f_opt": jnp.zeros(1), "nan f_opt": jnp.full(num, jnp.nan), "too good": jnp.full(num, -99.0)}
        return best.get(self.fault)

    def evaluate(self, key, x):
        fitness = -jnp.sum((x - self.centre[:, None]) ** 2, axis=-1)
        descriptor = x[..., :2]
        match self.fault:
            case "nan":
                fitness = fitness.at[0].set(jnp.nan)
            case "infinitely good":
                fitness = fitness.at[0, 0].set(jnp.inf)
            case "nan descriptor":
                descriptor = descriptor * jnp.nan
            case "one nan descriptor":
                descriptor = descriptor.at[..., 1].set(jnp.nan)
            case "infeasible":
                fitness = jnp.full_like(fitness, -jnp.inf)
            case "fitness shape":
                fitness = fitness[..., None]
            case "descriptor shape":
                descriptor = descriptor[:, 0]
            case "descriptors":
                descriptor = x
            case "raises":
                raise RuntimeError("no wind")
            case "host":
                fitness = fitness + float(x[0, 0, 0])
        return fitness, descriptor


@dataclasses.dataclass(frozen=True)
class Winds:
    """A family with a setting."""

    scale: float = 1.0
    fault: str = ""

    def sample(self, key, num_tasks):
        match self.fault:
            case "no tasks":
                return Tasks(jnp.zeros((0, 3)))
            case "too many":
                num_tasks += 1
            case "sample raises":
                raise RuntimeError("no wind")
            case "not a pytree":
                return dataclasses.make_dataclass("Plain", ["dim", "bounds", "evaluate", "descriptor_range"])(
                    3, *[None] * 3
                )
            case "nothing":
                return None
            case "one task":
                return Arm(3)
        return Tasks(self.scale * jax.random.normal(key, (num_tasks, 3)), self.fault)


# --- what is filled in ---


def test_a_family_in_ten_lines_has_the_whole_protocol():
    one = bowls(f_opt=0.0)
    family.check(one)
    tasks = jax.jit(one.sample, static_argnums=1)(jax.random.key(0), 4)
    assert isinstance(one, Family)
    assert isinstance(tasks, TrainingTasks)
    assert (one.name, one.version, one.multiple, one.descriptor_dim) == ("bowl", 1, 1, 2)
    x = jax.random.normal(jax.random.key(1), (4, 5, 3))
    found = tasks.evaluate(KEYS, x)
    assert isinstance(found, Evaluation)
    for k in range(4):
        np.testing.assert_allclose(found.fitness[k], -np.sum((x[k] - tasks.parameters[k]) ** 2, axis=1), rtol=1e-5)
    np.testing.assert_array_equal(found.descriptor, x[..., :2])
    np.testing.assert_array_equal(tasks.noiseless(x), found.fitness)
    np.testing.assert_array_equal(tasks.f_opt, np.zeros(4))
    np.testing.assert_array_equal(tasks.descriptor_range[1], np.full((4, 2), 2))
    assert not np.array_equal(tasks.parameters, one.sample(jax.random.key(1), 4).parameters)


def test_one_solution_at_a_time_is_the_same():
    x = jax.random.normal(jax.random.key(1), (2, 5, 3))
    many, single = (one.sample(jax.random.key(0), 2).evaluate(KEYS[:2], x) for one in (bowls(), bowls(batch=False)))
    np.testing.assert_allclose(many.fitness, single.fitness, rtol=1e-6)
    np.testing.assert_array_equal(many.descriptor, single.descriptor)


def test_a_best_fitness_and_a_fitness_that_counts_by_functions():
    one = bowls(
        lambda task, x: (task["height"] + jnp.sin(x[:, 0]), x[:, :1]),
        lambda key: {"height": jax.random.uniform(key)},
        noiseless=lambda task, x: task["height"] + 0 * x[:, 0], f_opt=lambda task: task["height"] + 1, bounds=None,
        name="waves", version=3,
    )  # fmt: skip
    family.check(one)
    tasks = one.sample(jax.random.key(0), 2)
    assert (one.name, one.version, one.descriptor_dim, tasks.bounds) == ("waves", 3, 1, None)
    np.testing.assert_array_equal(tasks.f_opt, tasks.parameters["height"] + 1)
    np.testing.assert_array_equal(tasks.noiseless(jnp.ones((2, 1, 3)))[:, 0], tasks.parameters["height"])


def test_an_object_with_sample_is_a_family():
    one = own_family.of(Winds(2.0))
    family.check(one)
    tasks = one.sample(jax.random.key(0), 4)
    assert isinstance(one, Family)
    assert isinstance(tasks, TrainingTasks)
    assert (one.name, one.version, one.multiple, one.descriptor_dim) == ("Winds", 1, 1, 2)
    assert (tasks.num_tasks, tasks.descriptor_dim, tasks.f_opt) == (4, 2, None)
    x = jnp.ones((4, 2, 3))
    np.testing.assert_array_equal(tasks.noiseless(x), tasks.evaluate(KEYS, x).fitness)
    assert own_family.of(Winds(2.0)) == one


def test_a_function_that_returns_a_batch_is_a_family():
    @pytree
    class Arms8(Repeated):
        @property
        def descriptor_bounds(self):
            return self.task.descriptor_bounds

    def arms(key, num_tasks):
        return Arms8(Arm(8), num_tasks)

    one = own_family.of(arms)
    family.check(one)
    assert (one.name, one.descriptor_dim) == ("arms", 2)
    low, high = one.sample(jax.random.key(0), 5).descriptor_range
    np.testing.assert_array_equal((low, high), (np.zeros((5, 2)), np.ones((5, 2))))


def test_what_a_family_says_of_itself_stands():
    class Named:
        name, version, multiple, descriptor_dim = "mine", 4, 3, 2

        def sample(self, key, num_tasks):
            return Tasks(jax.random.normal(key, (num_tasks, 3)))

    one = own_family.of(Named())
    family.check(one)
    assert (one.name, one.version, one.multiple, one.descriptor_dim) == ("mine", 4, 3, 2)
    assert family.num_looked_at(one) == 3


def test_our_own_are_families_as_they_are():
    assert own_family.of(Arms()) is not None
    assert own_family.of(one := bowls()) is one


# --- what identifies them ---


def test_ours_are_identified_by_their_settings():
    one = Distribution(("sphere", "rastrigin"))
    assert identity(one) == {
        "name": "bbob", "version": 1,
        "settings": {"functions": ["sphere", "rastrigin"], "min_dim": 2, "max_dim": 12, "descriptor_dim": 2,
                     "noise": True, "rotate": True},
    }  # fmt: skip


def test_a_changed_family_of_ones_own_is_another():
    def changed(centre, x):
        return -jnp.sum((x - centre) ** 2, axis=-1) / 2, x[..., :2]

    changed.__name__ = "bowl"
    first = identity(bowls())
    assert first["name"] == "bowl"
    assert first == identity(bowls())
    others = [
        bowls(changed), bowls(draw=lambda key: 2 * draw(key)), bowls(bounds=(-2, 3)), bowls(descriptor_bounds=(-2, 3)),
        bowls(evaluate=lambda centre, x: (bowl(centre, x)[0], x[:, 1:]), name="bowl"), bowls(version=2),
    ]  # fmt: skip
    for number, other in enumerate(others):
        assert identity(other)["name"] == "bowl"
        assert identity(other) != first, number
    assert all(identity(one)["says"] != first["says"] for one in others[:5])


def test_an_object_is_identified_by_its_settings_and_what_its_tasks_say():
    one, other = (identity(own_family.of(Winds(scale))) for scale in (1.0, 2.0))
    assert one["settings"] == {"scale": 1.0, "fault": ""}
    assert one["says"] != other["says"]
    inside = identity(families.Noisy(Winds(1.0)))
    assert "says" in inside
    assert inside["name"] == "noisy-Winds"
    assert inside != identity(families.Noisy(Winds(2.0)))
    with pytest.raises(InvalidInput, match="family 'Winds' of this run is your own, and is not saved with it"):
        families.restored(one)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "bobb"}, "by the name 'bobb' is not known"),
        ({"name": 3}, "must have a name"),
        ({"settings": {"max_dim": "9"}}, "family 'bbob': max_dim must be a whole number"),
        ({"settings": {"width": 9}}, "has no 'width'"),
        ({"settings": None}, "'bbob' is not known"),
        ({"version": 2}, "family 'bbob' has version 1 here and 2 there"),
    ],
)
def test_an_identity_that_may_be_anybodys(change, message):
    with pytest.raises(InvalidInput, match=message):
        families.restored(identity(Distribution()) | change)


# --- what is refused ---

FAULTS = {
    "no tasks": r"sample\(key, 3\) must return 3 tasks, got 0",
    "too many": r"sample\(key, 3\) must return 3 tasks, got 4",
    "sample raises": r"sample\(key, 1\) must be a JAX function that returns tasks \(RuntimeError: no wind\)",
    "not a pytree": r"its tasks \(Plain\) have no|must be a JAX function that returns",
    "nothing": r"its tasks \(NoneType\) have no 'dim'",
    "one task": r"f_opt must have real numbers of shape \[3\], got float32\[\]",
    "nan": "fitness is NaN for every solution that was tried, on 1 of 3 tasks",
    "nan descriptor": "the descriptor is NaN for every solution that was tried, on 3 of 3 tasks",
    "one nan descriptor": "the descriptor is NaN for every solution that was tried, on 3 of 3 tasks",
    "infeasible": "of 192 solutions that were tried, none has finite fitness and descriptors",
    "infinitely good": "fitness is infinite",
    "fitness shape": r"fitness must have real numbers of shape \[3, 3\] for x of .* got float32\[3, 3, 1\]",
    "descriptor shape": r"descriptor must have real numbers of shape \[3, 3, 2\]",
    "descriptors": r"descriptor must have real numbers of shape \[3, 3, 2\] .*got float32\[3, 3, 3\]",
    "raises": r"its tasks cannot be evaluated on x of shape \(3, 3, 3\) \(RuntimeError: no wind\)",
    "host": "its tasks cannot be evaluated on x of shape .*ConcretizationTypeError",
    "reversed": "descriptor_range must have finite ends, the lower below the upper; got 1 and -1",
    "infinite": "descriptor_range must have finite ends, .* got -1 and inf",
    "range shape": r"the lower end of descriptor_range must have real numbers of shape \[3, 2\]",
    "f_opt": r"f_opt must have real numbers of shape \[3\], got float32\[1\]",
    "nan f_opt": "f_opt must be finite, the best fitness of each task, got .*nan",
    "too good": "f_opt must be the best fitness of each task; one has -99, and a solution of it -",
    "bounds": "bounds must have each lower end below the upper one",
    "no bounds": "bounds must be finite, got -inf and inf",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_family_that_cannot_be_trained_on_is_refused_by_its_name(fault):
    with pytest.raises(InvalidInput, match=f"^family 'Winds': .*({FAULTS[fault]})"):
        families.load(Winds(fault=fault))


REFUSED = {
    "not hashable": (lambda: families.load(Winds([1.0])), "family 'Winds': it cannot be hashed; make it a frozen"),
    "a number": (lambda: families.load(3), r"tasks must be a function \(key, num_tasks\) -> tasks"),
    "a class": (lambda: families.load(Winds), r"Winds is a class; give an object, Winds\(\)"),
    "nothing": (lambda: families.load(""), "tasks must have at least one family"),
    "unknown": (lambda: families.load("bbob-wild"), "unknown family of tasks 'bbob-wild'. Did you mean 'bbob-wide'"),
    "share": (lambda: families.load("bbob=0"), "tasks: the share of 'bbob' must be a finite number above 0, got 0"),
    "word": (lambda: families.load("bbob=much"), "share in 'bbob=much' must be a number, got 'much'"),
    "twice": (lambda: families.load("arm-small,bbob,arm-small"), "tasks must have every name once"),
    "module": (lambda: families.load("nowhere:bowls"), "cannot import 'nowhere' .*give module:name"),
    "attribute": (lambda: families.load("json:bowls"), "module 'json' has no 'bowls'"),
    "pair": (lambda: families.load([("bbob", "2")]), "a pair is one family and its share"),
    "no function": (lambda: bowls(evaluate=3), "evaluate must be a function, got 3"),
    "noiseless": (lambda: bowls(noiseless=0.5), "noiseless must be a function, got 0.5"),
    "best": (lambda: bowls(f_opt="0"), "f_opt must be finite, got '0'"),
    "version": (lambda: bowls(version=0), "version must be a whole number of at least 1, got 0"),
    "draw": (lambda: bowls(draw=lambda: 3), r"family 'bowl': draw must be a JAX function \(key\) -> arrays"),
    "evaluate": (lambda: bowls(lambda x: x, name="f"), r"'f': evaluate\(parameters, x \(B, 3\)\) .* failed"),
    "shape": (lambda: bowls(lambda task, x: (x, x), name="f"), r"\(3, 3\) and \(3, 3\). For a function of one"),
    "bounds": (lambda: bowls(bounds=(1, -1)), "bounds must have each lower end below the upper one"),
    "range": (lambda: bowls(descriptor_bounds=([0] * 3, [1] * 3)), "descriptor_bounds: .* 3 entries, expected 2"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input(case):
    give, message = REFUSED[case]
    with pytest.raises(InvalidInput, match=message):
        give()


# --- mixes ---


def test_what_to_train_on_in_every_way_it_can_be_said(tmp_path, monkeypatch):
    (tmp_path / "my_winds.py").write_text(
        "import jax, lqd\n"
        "def evaluate(centre, x):\n    return -((x - centre) ** 2).sum(axis=1), x[:, :2]\n"
        "winds = lqd.task_family(evaluate, lambda key: jax.random.normal(key, (3,)), dim=3, bounds=(-1, 1),\n"
        "                        descriptor_bounds=(-1, 1), name='winds')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    arms = Arms(), 1.0
    assert families.load("arm-small") == families.load(Arms()) == families.load([Arms()]) == (arms,)
    mix = families.load("bbob=2, arm-small,my_winds:winds=0.5")
    assert [(one.name, share) for one, share in mix] == [("bbob", 2.0), ("arm-small", 1.0), ("winds", 0.5)]
    assert families.load(["bbob=2,arm-small", (mix[2][0], 0.5)]) == mix
    assert families.load([("bbob", 2), "arm-small", mix[2]]) == mix
    assert families.load(mix) == mix


@pytest.mark.parametrize(
    ("multiples_and_shares", "num_tasks", "expected"),
    [
        ([(22, 1)], 44, (44,)),
        ([(22, 2), (1, 1)], 33, (22, 11)),
        ([(22, 1), (1, 1)], 44, (22, 22)),
        ([(22, 1), (1, 1)], 45, (22, 23)),
        ([(22, 1), (1, 1)], 30, (22, 8)),  # as near as can be: there are no fewer of the first
        ([(6, 1), (4, 1), (1, 1)], 30, (12, 8, 10)),
        ([(6, 1), (4, 1)], 22, (6, 16)),
        ([(1, 1), (1, 1), (1, 1)], 5, (2, 2, 1)),
        ([(1, 1000), (1, 1)], 8, (7, 1)),  # nobody is left out
        ([(1, 0.5), (1, 0.25)], 6, (4, 2)),
    ],
)
def test_tasks_are_divided_by_shares_in_multiples(multiples_and_shares, num_tasks, expected):
    assert divided(mix_of(multiples_and_shares), num_tasks) == expected


def mix_of(multiples_and_shares):
    @dataclasses.dataclass(frozen=True)
    class Shaped:
        name: str
        multiple: int

    return [(Shaped(f"f{i}", multiple), share) for i, (multiple, share) in enumerate(multiples_and_shares)]


def test_divisions_are_the_nearest_there_are():
    """Against all there are."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        multiples, shares = [*rng.integers(1, 6, 2).tolist(), 1], rng.uniform(0.1, 3, 3)
        num_tasks = int(rng.integers(15, 40))
        wish = shares / shares.sum() * num_tasks
        every = [
            (a, b, num_tasks - a - b)
            for a in range(multiples[0], num_tasks, multiples[0])
            for b in range(multiples[1], num_tasks - a, multiples[1])
        ]
        least = min(((np.asarray(counts) - wish) ** 2).sum() for counts in every)
        found = divided(mix_of(list(zip(multiples, shares.tolist(), strict=True))), num_tasks)
        assert found in every
        assert ((np.asarray(found) - wish) ** 2).sum() == pytest.approx(least)


@pytest.mark.parametrize(
    ("multiples", "num_tasks", "message"),
    [
        ([22], 43, r"num_tasks=43 cannot be divided among 'f0' \(a multiple of 22\); 22 or 44 would do"),
        ([22], 21, r"num_tasks=21 .*; 22 would do"),
        ([22, 1], 22, r"among 'f0' \(a multiple of 22\) and 'f1' \(a multiple of 1\); 23 would do"),
        ([4, 6], 15, "; 14 or 16 would do"),
    ],
)
def test_a_number_that_cannot_be_divided_says_what_would(multiples, num_tasks, message):
    with pytest.raises(InvalidInput, match=message):
        divided(mix_of([(multiple, 1.0) for multiple in multiples]), num_tasks)
    with pytest.raises(InvalidInput, match=r"validation_tasks must be a whole number of at least 1, got 0"):
        divided(mix_of([(1, 1.0)]), 0, "validation_tasks")
