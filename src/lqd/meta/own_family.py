"""Users' own families: functions, or objects with `sample`, completed with what they leave out.

The shortest way is `task_family`: how one task is drawn, and how it evaluates solutions. To evaluate a whole batch at
once, give `sample(key, num_tasks)`, a function or an object that has it, which returns tasks (a pytree)
with `dim`, `bounds`, `evaluate` and `descriptor_range` (K, D) or `descriptor_bounds` (D,); the rest is filled in.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from lqd import checks
from lqd.errors import InvalidInput, shown
from lqd.meta.family import UNHASHABLE, Family, has_hash, wrong
from lqd.tasks.task import Box
from lqd.types import Evaluation, pytree, static

Ends = tuple[tuple[float, ...], tuple[float, ...]]
NEEDED = ("dim", "bounds", "evaluate")


def of(given: Any) -> Family:
    """A family from anything that is one: ours as they are, others with what they leave out."""
    if type(given).__module__.startswith("lqd.") and isinstance(given, Family):
        return given
    if isinstance(given, type):
        raise InvalidInput(f"tasks: {given.__name__} is a class; give an object, {given.__name__}().")
    if not callable(getattr(given, "sample", given)):
        raise InvalidInput(
            f"tasks must be a function (key, num_tasks) -> tasks, or have it as `sample`, got {shown(given)}."
        )
    own = Own(given)
    if not has_hash(given):
        raise wrong(own, UNHASHABLE)
    return own


# --- one task at a time ---


def task_family(
    evaluate: Callable[[Any, Any], Any],
    draw: Callable[[Any], Any],
    *,
    dim: int,
    bounds,
    descriptor_bounds,
    name: str | None = None,
    version: int = 1,
    batch: bool = True,
    noiseless: Callable[[Any, Any], Any] | None = None,
    f_opt: Callable[[Any], Any] | float | None = None,
) -> Family:
    """A family of tasks to train on, from how one task is drawn and how it evaluates solutions.

    `draw(key)` returns whatever makes a task: arrays, in tuples or dictionaries. `evaluate(parameters, x)` returns
    fitness (B,), which is maximised, and descriptor (B, D) of solutions x (B, dim); with `batch=False`, for one
    solution (dim,), a number and (D,). Both must be JAX functions. `bounds` are those of the solutions (None: none),
    `descriptor_bounds` the descriptors that count: cells are laid there.

    `noiseless(parameters, x)` is the fitness that counts, if it is not what rules see; for noise there is
    `lqd.families.Noisy`. `f_opt` is the best fitness, a number or a function of the parameters. Raise `version` when
    the same key begins to give other tasks.
    """
    dim = checks.size("dim", dim)
    for argument, function in (("evaluate", evaluate), ("draw", draw), ("noiseless", noiseless or draw)):
        if not callable(function):
            raise InvalidInput(f"{argument} must be a function, got {shown(function)}.")
    if f_opt is not None and not callable(f_opt):
        checks.finite("f_opt", f_opt)
    checks.whole("version", version, 1)
    name = str(name or getattr(evaluate, "__name__", type(evaluate).__name__))
    size = _descriptor_dim(name, evaluate, draw, dim, checks.flag("batch", batch))
    return TaskFamily(
        evaluate, draw, dim, None if bounds is None else _ends("bounds", bounds, dim),
        _ends("descriptor_bounds", descriptor_bounds, size), size, name, version, batch, noiseless, f_opt,
    )  # fmt: skip


def _ends(name: str, bounds, dim: int) -> Ends:
    low, high = checks.box(name, bounds, dim)
    return tuple(low.tolist()), tuple(high.tolist())


def _descriptor_dim(name: str, evaluate, draw, dim: int, batch: bool) -> int:
    """How many descriptors there are; an error if the functions cannot be called."""
    try:
        parameters = jax.eval_shape(draw, jax.random.key(0))
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise InvalidInput(
            f"family {name!r}: draw must be a JAX function (key) -> arrays ({type(error).__name__}: {reason})."
        ) from error
    x, at = (jax.ShapeDtypeStruct((3, dim) if batch else (dim,), jnp.float32), "B, " if batch else "")
    contract = f"evaluate(parameters, x ({at}{dim})) -> (fitness ({at.strip(', ')}), descriptor ({at}D))"
    try:
        fitness, descriptor, *_ = jax.eval_shape(evaluate, parameters, x)
        shapes = fitness.shape, descriptor.shape[:-1]
        size = descriptor.shape[-1]
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise InvalidInput(f"family {name!r}: {contract} failed ({type(error).__name__}: {reason}).") from error
    if shapes != (x.shape[:-1], x.shape[:-1]) or not size:
        hint = "" if batch else " With batch=True, x is a batch."
        hint = " For a function of one solution give batch=False." if batch else hint
        raise InvalidInput(f"family {name!r}: {contract}; it returned {fitness.shape} and {descriptor.shape}.{hint}")
    return size


@dataclasses.dataclass(frozen=True)
class TaskFamily:
    """What `task_family` makes."""

    function: Callable
    draw: Callable
    dim: int
    bounds: Ends | None
    descriptor_bounds: Ends
    descriptor_dim: int
    name: str
    version: int
    batch: bool
    noiseless: Callable | None
    f_opt: Callable | float | None

    @property
    def multiple(self) -> int:
        return 1

    def sample(self, key: Key[Array, ""], num_tasks: int) -> "Drawn":
        return Drawn(jax.vmap(self.draw)(jax.random.split(key, num_tasks)), num_tasks, self)


@pytree
class Drawn:
    """Tasks of a `TaskFamily`: what was drawn for each of them."""

    parameters: Any
    num_tasks: int = static()
    family: TaskFamily = static()

    @property
    def dim(self) -> int:
        return self.family.dim

    @property
    def descriptor_dim(self) -> int:
        return self.family.descriptor_dim

    @property
    def bounds(self) -> Box | None:
        return None if self.family.bounds is None else _arrays(self.family.bounds)

    @property
    def f_opt(self) -> Float[Array, " K"] | None:
        best = self.family.f_opt
        if callable(best):
            return jax.vmap(best)(self.parameters)
        return None if best is None else jnp.full(self.num_tasks, best, jnp.float32)

    @property
    def descriptor_range(self):
        return _for_each(_arrays(self.family.descriptor_bounds), self.num_tasks)

    def evaluate(self, key: Key[Array, " K"], x: Float[Array, "K B n"]) -> Evaluation:
        del key
        return as_evaluation(self._mapped(self.family.function)(self.parameters, x))

    def noiseless(self, x: Float[Array, "K B n"]) -> Float[Array, "K B"]:
        if self.family.noiseless is not None:
            return self._mapped(self.family.noiseless)(self.parameters, x)
        return as_evaluation(self._mapped(self.family.function)(self.parameters, x)).fitness

    def _mapped(self, function: Callable) -> Callable:
        return jax.vmap(function if self.family.batch else jax.vmap(function, in_axes=(None, 0)))


def _arrays(ends: Ends) -> Box:
    low, high = (jnp.asarray(end, jnp.float32) for end in ends)
    return low, high


def _for_each(box: Box, num_tasks: int):
    """One box of each task, (K, D)."""
    low, high = (jnp.broadcast_to(jnp.asarray(end, jnp.float32), (num_tasks, jnp.shape(end)[-1])) for end in box)
    return low, high


def as_evaluation(returned) -> Evaluation:
    """An evaluation; a pair or a triple is one as well."""
    return returned if hasattr(returned, "fitness") else Evaluation(*returned)


# --- whole batches ---


@dataclasses.dataclass(frozen=True)
class Own:
    """A family of the user's, with what it leaves out."""

    given: Any

    @property
    def name(self) -> str:
        own = getattr(self.given, "name", None) or getattr(self.given, "__name__", None)
        return str(own or type(self.given).__name__)

    @property
    def version(self) -> int:
        return getattr(self.given, "version", 1)

    @property
    def multiple(self) -> int:
        return getattr(self.given, "multiple", 1)

    @property
    def descriptor_dim(self) -> int:
        if hasattr(self.given, "descriptor_dim"):
            return self.given.descriptor_dim
        return _descriptor_dim_of(self)

    def sample(self, key: Key[Array, ""], num_tasks: int) -> "OwnTasks":
        tasks = getattr(self.given, "sample", self.given)(key, num_tasks)
        if lacking := [name for name in NEEDED if not hasattr(tasks, name)]:
            raise InvalidInput(f"family {self.name!r}: its tasks ({type(tasks).__name__}) have no {lacking[0]!r}.")
        has_range = hasattr(tasks, "descriptor_range") or getattr(tasks, "descriptor_bounds", None) is not None
        if not has_range:
            raise InvalidInput(
                f"family {self.name!r}: its tasks have neither descriptor_range (low (K, D), high (K, D)) nor "
                f"descriptor_bounds (low (D,), high (D,)): say which range counts."
            )
        return OwnTasks(tasks, num_tasks)


@functools.cache
def _descriptor_dim_of(family: Own) -> int:
    found: list[int] = []

    def look(key):
        found.append(family.sample(key, family.multiple).descriptor_dim)

    try:
        jax.eval_shape(look, jax.random.key(0))
    except InvalidInput:
        raise
    except Exception as error:
        raise wrong(
            family, f"sample(key, {family.multiple}) must be a JAX function that returns tasks", error
        ) from error
    return found[0]


@pytree
class OwnTasks:
    """Tasks of a user's family, with the number asked for; they may state their own number."""

    tasks: Any
    num_asked: int = static()

    @property
    def num_tasks(self) -> int:
        if hasattr(self.tasks, "num_tasks"):
            return self.tasks.num_tasks
        own = getattr(self.tasks, "descriptor_range", None)
        return self.num_asked if own is None or own[0].ndim != 2 else own[0].shape[0]

    @property
    def dim(self) -> int:
        return self.tasks.dim

    @property
    def descriptor_dim(self) -> int:
        if hasattr(self.tasks, "descriptor_dim"):
            return self.tasks.descriptor_dim
        return self.descriptor_range[0].shape[-1]

    @property
    def bounds(self) -> Box | None:
        if self.tasks.bounds is None:
            return None
        low, high = (jnp.asarray(end, jnp.float32) for end in self.tasks.bounds)
        return low, high

    @property
    def f_opt(self) -> Float[Array, " K"] | None:
        return getattr(self.tasks, "f_opt", None)

    @property
    def descriptor_range(self):
        own = getattr(self.tasks, "descriptor_range", None)
        return own if own is not None else _for_each(self.tasks.descriptor_bounds, self.num_tasks)

    def evaluate(self, key: Key[Array, " K"], x: Float[Array, "K B n"]) -> Evaluation:
        return as_evaluation(self.tasks.evaluate(key, x))

    def noiseless(self, x: Float[Array, "K B n"]) -> Float[Array, "K B"]:
        """The tasks' own noiseless fitness or, without it, an evaluation with a fixed key."""
        if hasattr(self.tasks, "noiseless"):
            return self.tasks.noiseless(x)
        return self.evaluate(jax.random.split(jax.random.key(np.uint32(0)), self.num_tasks), x).fitness
