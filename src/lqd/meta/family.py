"""What rules are trained on: families of tasks. A key in, a batch of tasks out.

Another key gives other tasks, so tasks are held out by a key that no training run can have
(`meta.config.VALIDATION_SEED`). A family is static in compiled programs: frozen and hashable, and equal families
share their programs. What it draws is data: other tasks run in the same program.

Families of your own: `meta/own_family.py`. Those in the box: `meta/families`.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Protocol, cast, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from lqd import checks
from lqd.errors import InvalidInput, shown
from lqd.tasks.task import Box
from lqd.types import Evaluation

UNHASHABLE = "it cannot be hashed; make it a frozen dataclass whose settings are numbers, texts and tuples of them"
NUM_LOOKED_AT = 3  # tasks and solutions, where it is looked at what tasks say
NUM_TRIED = 64  # solutions of each of them, where it is looked at whether they are good for anything


@runtime_checkable
class TrainingTasks(Protocol):
    """What a `TaskBatch` has (`lqd.tasks.task`), and the best fitness of each task and the descriptors that count."""

    @property
    def num_tasks(self) -> int: ...

    @property
    def dim(self) -> int: ...

    @property
    def descriptor_dim(self) -> int: ...

    @property
    def bounds(self) -> Box | None: ...

    def evaluate(self, key: Key[Array, " K"], x: Float[Array, "K B n"]) -> Evaluation: ...

    def noiseless(self, x: Float[Array, "K B n"]) -> Float[Array, "K B"]: ...

    @property
    def f_opt(self) -> Float[Array, " K"] | None:
        """Best fitness, where it is known."""
        ...

    @property
    def descriptor_range(self) -> tuple[Float[Array, "K D"], Float[Array, "K D"]]:
        """Lowest and highest descriptor that counts: cells are laid here."""
        ...


@runtime_checkable
class Family(Protocol):
    """A frozen, hashable object (it is static in compiled programs): a key in, a batch of tasks out."""

    @property
    def name(self) -> str:
        """Short, and always the same: "bbob", "arm-small", yours."""
        ...

    @property
    def version(self) -> int:
        """Raised when the same key gives other tasks."""
        ...

    @property
    def descriptor_dim(self) -> int: ...

    @property
    def multiple(self) -> int:
        """Numbers of tasks are multiples of this: of 22 functions, say."""
        ...

    def sample(self, key: Key[Array, ""], num_tasks: int) -> TrainingTasks:
        """Traceable; another key, other tasks."""
        ...


# --- what tells one family from another ---


def identity(family: Family) -> dict[str, Any]:
    """Name, version and settings as JSON has them; of a family that settings do not describe, what its tasks say."""
    settings = {name: _plain(value) for name, value in _fields(family).items() if _is_plain(value)}
    found = {"name": family.name, "version": family.version, "settings": settings}
    return found if is_described(family) else found | {"says": says(cast(Any, family))}


def is_described(family: Family) -> bool:
    """Whether a family is one of ours, and so are those in it: name, version and settings say all there is to say."""
    ours = type(_source(family)).__module__.startswith("lqd.")
    return ours and all(map(_is_plain, _fields(family).values()))


def _source(family) -> Any:
    """The user's object, if it is wrapped."""
    return getattr(family, "given", family)


def _fields(family) -> dict[str, Any]:
    source = _source(family)
    if not dataclasses.is_dataclass(source):
        return {}
    return {field.name: getattr(source, field.name) for field in dataclasses.fields(source)}


def _is_plain(value) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float) or (_is_family(value) and is_described(value))


def _is_family(value) -> bool:
    return hasattr(value, "sample") and hasattr(value, "multiple")


def _plain(value) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return identity(value) if _is_family(value) else value


@functools.cache
def says(family: Family) -> str:
    """The answers of some tasks for some solutions, to four digits: another text means another family."""
    key_tasks, key_x, key_runs = jax.random.split(jax.random.key(0), 3)
    tasks = jax.jit(family.sample, static_argnums=1)(key_tasks, num_looked_at(family))
    fitness, descriptor, low, high = _look(tasks, key_x, key_runs, NUM_LOOKED_AT)[:4]
    every = max(1, len(fitness) // NUM_LOOKED_AT)  # of a long list of functions some are enough, and a change shows
    numbers = [fitness[::every].sum(axis=1), descriptor[::every].sum(axis=(1, 2)), low[::every, 0], high[::every, 0]]
    return " ".join(f"{value:.4g}" for value in np.concatenate(numbers).tolist())


def num_looked_at(family: Family) -> int:
    """The least number of tasks that there can be, or a few."""
    return family.multiple * -(-NUM_LOOKED_AT // family.multiple)


@functools.partial(jax.jit, static_argnums=3)
def _look(tasks: TrainingTasks, key_x, key_runs, num_points: int):
    """Of random solutions fitness, descriptor; the range of that; noiseless fitness."""
    shape = (tasks.num_tasks, num_points, tasks.dim)
    if tasks.bounds is None:
        x = jax.random.normal(key_x, shape)
    else:
        low, high = (jnp.asarray(end, jnp.float32) for end in tasks.bounds)
        x = low + jax.random.uniform(key_x, shape) * (high - low)
    found = tasks.evaluate(jax.random.split(key_runs, tasks.num_tasks), x)
    low, high = tasks.descriptor_range
    return found.fitness, found.descriptor, low, high, tasks.noiseless(x)


# --- checks, before anything long compiles ---


def check(family: Family) -> None:
    """An error with the family's name if rules cannot be trained on it; first by tracing alone, then on few tasks."""
    if not isinstance(family, Family):
        raise InvalidInput(
            f"{shown(family)} is not a family of tasks: it needs name, version, descriptor_dim, multiple and sample."
        )
    if not has_hash(family):
        raise wrong(family, UNHASHABLE)
    for name in ("version", "descriptor_dim", "multiple"):
        checks.whole(f"family {family.name!r}: {name}", getattr(family, name), 1)
    if is_described(family):
        return  # one of ours: the tests have looked
    num = num_looked_at(family)
    for num_points in (NUM_LOOKED_AT, NUM_TRIED):
        _check_shapes(family, num, num_points)
    _check_values(family, num)


def check_at(family: Family, num_tasks: int, num_points: int) -> None:
    """The same by tracing alone, in other sizes: who keeps five tasks in a list has no sixth."""
    if not is_described(family):
        _check_shapes(family, num_tasks, num_points)


def has_hash(family) -> bool:
    try:
        hash(family)
    except TypeError:  # a dataclass with a list in it, say
        return False
    return True


def wrong(family: Family, what: str, error: Exception | None = None) -> InvalidInput:
    reason = "" if error is None else f" ({type(error).__name__}: {str(error).strip().splitlines()[0]:.300})"
    return InvalidInput(f"family {family.name!r}: {what}{reason}.")


def _sampled(family: Family, num: int) -> Any:
    """The shapes of some tasks."""
    try:
        return jax.eval_shape(lambda key: family.sample(key, num), jax.random.key(0))
    except InvalidInput:
        raise
    except Exception as error:
        what = f"sample(key, {num}) must be a JAX function that returns a pytree"
        raise wrong(family, what, error) from error


def _check_shapes(family: Family, num: int, num_points: int) -> None:
    tasks = _sampled(family, num)
    found: dict[str, int] = {}

    def look(tasks):
        found.update(num_tasks=tasks.num_tasks, dim=tasks.dim, descriptor_dim=tasks.descriptor_dim)
        if tasks.num_tasks != num:
            return None
        looked = _look(tasks, jax.random.key(1), jax.random.key(2), num_points)
        return (*looked, tasks.f_opt, tasks.bounds)

    try:
        looked = jax.eval_shape(look, tasks)
    except InvalidInput:
        raise
    except Exception as error:
        raise wrong(
            family, f"its tasks cannot be evaluated on x of shape {_of_x(num, num_points, found)}", error
        ) from error
    if found["num_tasks"] != num:
        raise wrong(family, f"sample(key, {num}) must return {num} tasks, got {found['num_tasks']}")
    if found["descriptor_dim"] != family.descriptor_dim:
        raise wrong(family, f"descriptor_dim is {family.descriptor_dim}, that of its tasks {found['descriptor_dim']}")
    size = family.descriptor_dim
    of_tasks, of_points = (num, size), (num, num_points)
    expected = {
        "fitness": of_points, "descriptor": (*of_points, size), "the lower end of descriptor_range": of_tasks,
        "the upper end of descriptor_range": of_tasks, "noiseless fitness": of_points,
    }  # fmt: skip
    for (name, shape), array in zip(expected.items(), looked, strict=False):
        _check_shape(family, name, shape, array, f" for x of shape {_of_x(num, num_points, found)}")
    f_opt, bounds = looked[5:]
    if f_opt is not None:
        _check_shape(family, "f_opt", (num,), f_opt, "")
    for end in () if bounds is None else bounds:
        _check_shape(family, "each end of bounds", (found["dim"],), end, "")


def _of_x(num: int, num_points: int, found: dict[str, int]) -> tuple:
    return num, num_points, found.get("dim", "dim")


def _check_shape(family: Family, name: str, shape: tuple[int, ...], array, where: str) -> None:
    if getattr(array, "shape", None) != shape or not checks.is_real(array.dtype):
        received = f"{array.dtype}{list(array.shape)}" if hasattr(array, "shape") else shown(array)
        raise wrong(family, f"{name} must have real numbers of shape {list(shape)}{where}, got {received}")


def _check_values(family: Family, num: int) -> None:
    """What is wrong with some tasks, drawn and evaluated."""
    key_tasks, key_x, key_runs = jax.random.split(jax.random.key(0), 3)
    tasks = jax.jit(family.sample, static_argnums=1)(key_tasks, num)
    _check_bounds(family, tasks.bounds)
    try:
        fitness, descriptor, low, high, noiseless = map(np.asarray, _look(tasks, key_x, key_runs, NUM_TRIED))
    except Exception as error:  # whatever the user's code calls on the host
        raise wrong(family, "its tasks cannot be evaluated", error) from error
    for name, values in (("fitness", fitness), ("noiseless fitness", noiseless), ("the descriptor", descriptor)):
        if (bad := np.isnan(values).all(axis=1).reshape(num, -1).any(axis=1)).any():
            raise wrong(family, f"{name} is NaN for every solution that was tried, on {bad.sum()} of {num} tasks")
        if np.isposinf(values).any() and name != "the descriptor":
            raise wrong(family, f"{name} is infinite; fitness is maximised, and nothing can be infinitely good")
    if not (np.isfinite(fitness) & np.isfinite(noiseless) & np.isfinite(descriptor).all(axis=2)).any():
        raise wrong(family, f"of {fitness.size} solutions that were tried, none has finite fitness and descriptors")
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        task, place = np.argwhere(~(low < high) | ~np.isfinite(low) | ~np.isfinite(high))[0]
        ends = f"{low[task, place]:.4g} and {high[task, place]:.4g}"
        raise wrong(family, f"descriptor_range must have finite ends, the lower below the upper; got {ends}")
    if tasks.f_opt is not None:
        _check_best(family, np.asarray(tasks.f_opt), np.where(np.isnan(noiseless), -np.inf, noiseless).max(axis=1))


def _check_bounds(family: Family, bounds: Box | None) -> None:
    for low, high in () if bounds is None else zip(*map(np.ravel, bounds), strict=True):
        if not low < high:
            raise wrong(family, f"bounds must have each lower end below the upper one, got {shown(bounds)}")
        if not np.isfinite([low, high]).all():
            raise wrong(family, f"bounds must be finite, got {low:.4g} and {high:.4g}")


def _check_best(family: Family, f_opt: np.ndarray, found: np.ndarray) -> None:
    """Beyond rounding, nothing is fitter than the best fitness there is."""
    if not np.isfinite(f_opt).all():
        raise wrong(family, f"f_opt must be finite, the best fitness of each task, got {shown(f_opt)}")
    task = int(np.argmax(found - f_opt))
    if found[task] > f_opt[task] + 1e-3 * max(1.0, abs(float(f_opt[task]))):
        what = f"f_opt must be the best fitness of each task; one has {f_opt[task]:.4g}"
        raise wrong(family, f"{what}, and a solution of it {found[task]:.4g}")


# --- several families together ---


def divided(families: Sequence[tuple[Family, float]], num_tasks: int, name: str = "num_tasks") -> tuple[int, ...]:
    """How many of `num_tasks` each family gets: multiples of its own, at least one, as near to the shares as can be.

    Nearest by the sum of squared differences; of equally good ones, that with fewer tasks in the later families.
    """
    checks.whole(name, num_tasks, 1)
    multiples = [family.multiple for family, _ in families]
    counts = _nearest(multiples, [share for _, share in families], num_tasks)
    if counts is not None:
        return counts
    would = [near for step in (-1, 1) if (near := _next(multiples, num_tasks, step))]
    parts = " and ".join(f"{family.name!r} (a multiple of {family.multiple})" for family, _ in families)
    raise InvalidInput(f"{name}={num_tasks} cannot be divided among {parts}; {' or '.join(map(str, would))} would do.")


def _nearest(multiples: list[int], shares: list[float], num_tasks: int) -> tuple[int, ...] | None:
    """Family by family, the least cost of every total so far; then back from the total that is wanted."""
    ideal = [share / sum(shares) * num_tasks for share in shares]
    cost = np.where(np.arange(num_tasks + 1) == 0, 0.0, np.inf)
    taken = []
    for multiple, wish in zip(multiples, ideal, strict=True):
        best, choice = np.full(num_tasks + 1, np.inf), np.zeros(num_tasks + 1, int)
        for count in range(multiple, num_tasks + 1, multiple):
            found = np.concatenate([np.full(count, np.inf), cost[: num_tasks + 1 - count] + (count - wish) ** 2])
            is_better = found < best
            best, choice = np.where(is_better, found, best), np.where(is_better, count, choice)
        cost = best
        taken.append(choice)
    if not np.isfinite(cost[num_tasks]):
        return None
    counts, left = [], num_tasks
    for choice in reversed(taken):
        counts.append(int(choice[left]))
        left -= counts[-1]
    return tuple(reversed(counts))


def _next(multiples: list[int], num_tasks: int, step: int) -> int | None:
    """The nearest number below or above that can be divided."""
    furthest = num_tasks + sum(multiples) + max(multiples) ** 2
    for near in range(num_tasks + step, 0 if step < 0 else furthest, step):
        if _nearest(multiples, [1.0] * len(multiples), near) is not None:
            return near
    return None
