"""Runs in, meta-fitness out.

What a member of the meta-population is worth on one task is a measure of its final population, or of its whole run
(`meta/course.py`), on noiseless fitness. Tasks differ by orders of magnitude, so each task's values are normalised
over the members before tasks are averaged.
"""

import dataclasses
import difflib
import functools
import inspect
from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lqd.checks import function_of_arrays, one_of, real
from lqd.errors import InvalidInput, unknown
from lqd.evolution import metrics
from lqd.meta import course

NAMES = ("fitness", "novelty", "qd")  # measured of every final population, and compared in the log
CHOICES = (*NAMES, "archive")
QD_FORMS = ("product", "sum", "ranks")
OWN = "own"  # the name of an objective that is a function of the user's
FINAL = ("fitness", "descriptor")
COURSE = ("archive", "qd_score_over_time", "coverage_over_time", "best_over_time", "regret")
ANCHORS = ("f_opt", "f_rand", "f_worst")
GIVEN = (*FINAL, *COURSE, *ANCHORS)  # to the user's function, by the names of its parameters
Measures = dict[str, Float[Array, "*batch"]]


@dataclasses.dataclass(frozen=True)
class Objective:
    """What the meta-optimiser maximises.

    `qd` has three forms: `product` is the QD score (normalised max fitness times dominated novelty), `sum` the weighted
    sum of the standardised fitness and novelty that the authors' code uses, `ranks` that of their ranks among the
    members, in which a task's few best do not count for more than its many others. `archive` is the QD score of a
    passive archive, its mean over the run. `own` is a function of the user's, `(fitness (N,), descriptor (N, D)) ->
    number` or one of any of `GIVEN`; of one that was saved, only what identifies it is known.
    """

    name: str = "fitness"
    qd_form: str = "product"
    fitness_weight: float = 0.5
    normalisation: str = "rank"
    aggregation: str = "mean"
    own: Callable | str | None = None

    def __post_init__(self):
        if self.own is None:
            one_of("objective", self.name, CHOICES)
        elif not callable(self.own) and not isinstance(self.own, str):
            raise InvalidInput(f"objective must be a function or one of {', '.join(CHOICES)}, got {self.own!r}.")
        one_of("qd_form", self.qd_form, QD_FORMS)
        one_of("normalisation", self.normalisation, ("rank", "z-score"))
        one_of("aggregation", self.aggregation, ("mean", "median"))
        if real("fitness_weight", self.fitness_weight) > 1:
            raise InvalidInput(f"fitness_weight must be between 0 and 1, got {self.fitness_weight}.")

    @property
    def names(self) -> tuple[str, ...]:
        """What is measured of every run."""
        extra = self.name if self.own is None else OWN
        return NAMES if extra in NAMES else (*NAMES, extra)

    @property
    def parameters(self) -> tuple[str, ...]:
        """What the user's function is given."""
        return (parameters(self.own) or FINAL) if callable(self.own) else ()

    def identity(self, population_size: int, descriptor_dim: int, num_cells: int) -> str | None:
        """What tells whether the user's function is still the same."""
        return identity(self.own, population_size, descriptor_dim, num_cells) if callable(self.own) else self.own

    def check(self, population_size: int, descriptor_dim: int, num_cells: int) -> None:
        """An error, before anything compiles, if there is a function of the user's and it cannot be called."""
        if self.own is None:
            return
        if not callable(self.own):
            raise InvalidInput(
                f"objective: that of this run is a function, {self.own!r}, which is not saved with it; give it again: "
                f"lqd.train(objective=..., ...) or --objective module:name."
            )
        if not isinstance(self.own, Hashable):
            raise InvalidInput(f"objective: {self.own!r} cannot be hashed; give a plain function.")
        names = self.parameters
        shapes = shapes_given(population_size, descriptor_dim, num_cells)
        contract = f"({', '.join(f'{name} {shapes[name]}' for name in names)}) -> number"
        arguments = [jax.ShapeDtypeStruct(shapes[name], jnp.float32) for name in names]
        function_of_arrays("objective", functools.partial(_say, self.own, names), contract, (), *arguments)

    @property
    def needs_course(self) -> bool:
        """Whether the whole run has to be watched."""
        return self.name == "archive" or not set(COURSE).isdisjoint(self.parameters)

    @property
    def needs_f_rand(self) -> bool:
        """Whether the score of a task needs to know what random search reaches there."""
        return (self.name == "qd" and self.qd_form == "product") or "f_rand" in self.parameters

    @property
    def needs_f_worst(self) -> bool:
        """Whether it needs to know the worst that random search meets."""
        return self.name == "archive" or not {"qd_score_over_time", "f_worst"}.isdisjoint(self.parameters)

    @property
    def needs_anchors(self) -> bool:
        return self.needs_f_rand or self.needs_f_worst

    @property
    def needs_f_opt(self) -> bool:
        """Whether it needs tasks whose best fitness is known."""
        return (self.name == "qd" and self.qd_form == "product") or not {"regret", "f_opt"}.isdisjoint(self.parameters)

    def meta_fitness(self, measures: dict[str, Float[Array, "M K"]]) -> Float[Array, " M"]:
        """One number per member, higher is better, always finite; a member that failed on a task is last there."""
        values, valid = self._values(measures)
        normalise = rank if self.normalisation == "rank" else z_score
        scores = normalise(values, valid)
        return jnp.mean(scores, axis=1) if self.aggregation == "mean" else jnp.median(scores, axis=1)

    def _values(self, measures) -> tuple[Float[Array, "M K"], Bool[Array, "M K"]]:
        valid = is_valid(measures)
        if self.name == "qd" and self.qd_form != "product":
            weight, normalise = jnp.float32(self.fitness_weight), z_score if self.qd_form == "sum" else _num_worse
            fitness, novelty = (normalise(measures[name], valid) for name in ("fitness", "novelty"))
            return weight * fitness + (1 - weight) * novelty, valid
        return measures[self.name], valid


def is_valid(measures: Measures) -> Bool[Array, "*batch"]:
    """Whether a run left a population that can be judged: somebody in it, and no NaN."""
    finite = [jnp.isfinite(value) for value in measures.values()]
    return jnp.all(jnp.stack(finite), axis=0)


def rank(values: Float[Array, "M K"], valid: Bool[Array, "M K"]) -> Float[Array, "M K"]:
    """Share of the other members that are worse on each task, ties counting half, minus one half.

    Counted pair by pair instead of sorted: exact with ties, and small beside the runs that made the values.
    """
    return _num_worse(values, valid) / max(values.shape[0] - 1, 1) - 0.5


def _num_worse(values: Float[Array, "M K"], valid: Bool[Array, "M K"]) -> Float[Array, "M K"]:
    """How many of the other members are worse, ties counting half: no rounding, so sums of two may be tied."""
    values = jnp.where(valid, values, -jnp.inf)
    mine, other = values[:, None, :], values[None, :, :]
    wins = jnp.sum((mine > other).astype(values.dtype) + 0.5 * (mine == other).astype(values.dtype), axis=1)
    return wins - 0.5


def z_score(values: Float[Array, "M K"], valid: Bool[Array, "M K"]) -> Float[Array, "M K"]:
    """Distance to the task's mean over the valid members in standard deviations; the failed are one below the worst.

    Scaled by the largest magnitude first, so that 1e30 does not overflow; a task on which all are equal gives 0.
    """
    values = jnp.where(valid, values, 0.0)
    largest = jnp.max(jnp.abs(values), axis=0)
    values = values / jnp.where(largest > 0, largest, 1.0)
    num = jnp.maximum(jnp.sum(valid.astype(values.dtype), axis=0), 1.0)
    centred = jnp.where(valid, values - jnp.sum(values, axis=0) / num, 0.0)
    deviation = jnp.sqrt(jnp.sum(centred**2, axis=0) / num)
    scores = jnp.where(deviation > 1e-6, centred / jnp.where(deviation > 1e-6, deviation, 1.0), 0.0)
    return jnp.where(valid, scores, jnp.min(scores, axis=0) - 1.0)


def parameters(function: Callable) -> tuple[str, ...] | None:
    """What a function asks for by name; None for one of the old form, which is given fitness and descriptor in order.

    A parameter with a default that is none of ours is left alone.
    """
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = tuple(p.name for p in found if p.kind in kinds and (p.default is p.empty or p.name in GIVEN))
    others = [name for name in names if name not in GIVEN]
    if names and not others and not any(p.kind is p.POSITIONAL_ONLY and p.default is p.empty for p in found):
        return names
    if near := [name for name in others if difflib.get_close_matches(name, (*COURSE, *ANCHORS), 1, 0.75)]:
        raise unknown("parameter of the objective", near[0], GIVEN)
    if len(names) != 2 and others:
        raise unknown("parameter of the objective", others[0], GIVEN)
    return None


def _say(function: Callable, names: tuple[str, ...], *values):
    """What a function says of these measures: in order, if it is of the old form."""
    if parameters(function) is None:
        return function(*values)
    return function(**dict(zip(names, values, strict=True)))


def shapes_given(population_size: int, descriptor_dim: int, num_cells: int) -> dict[str, tuple[int, ...]]:
    """The shape of everything that an objective can ask for, for one task."""
    num_cells = course.count(num_cells, descriptor_dim)
    looks = dict.fromkeys([name for name in COURSE if name.endswith("over_time")], (course.NUM_LOOKS,))
    sizes = {"fitness": (population_size,), "descriptor": (population_size, descriptor_dim), "archive": (num_cells,)}
    return dict.fromkeys(GIVEN, ()) | sizes | looks


@functools.cache
def identity(function: Callable, population_size: int, descriptor_dim: int, num_cells: int) -> str:
    """The name of a function and what it says of three made-up populations, the last of them half empty.

    And of made-up runs, if it asks for them.
    """
    names = parameters(function) or FINAL
    rng = np.random.default_rng(0)
    fitness = -rng.exponential(size=(3, population_size)).astype(np.float32)
    fitness[2, ::2] = -np.inf
    descriptor = rng.uniform(-1, 1, (3, population_size, descriptor_dim)).astype(np.float32)
    made_up = {"fitness": fitness, "descriptor": descriptor}
    shapes = shapes_given(population_size, descriptor_dim, num_cells)
    for other in (*COURSE, *ANCHORS):
        values = rng.uniform(size=(3, *shapes[other])).astype(np.float32)
        made_up[other] = np.sort(values, axis=-1) if other.endswith("over_time") else values
    made_up["archive"][:, ::2] = -np.inf
    says = jax.jit(jax.vmap(functools.partial(_say, function, names)))(*(made_up[name] for name in names))
    name = getattr(function, "__qualname__", type(function).__name__)
    return f"{name} {' '.join(f'{value:.4g}' for value in says.tolist())}"


def measures(
    fitness: Float[Array, " N"], descriptor: Float[Array, "N D"], f_rand=None, f_opt=None, aim: Objective | None = None,
    seen: Mapping[str, Array] = MappingProxyType({}),
) -> Measures:  # fmt: skip
    """What objectives and validation look at: highest fitness, mean novelty, QD score where there are anchors.

    And what the objective `aim` wants to know beyond that; `seen` is what it may ask for besides the final population.
    """
    row = metrics.measure(fitness, descriptor)
    found = {"fitness": row["max_fitness"], "novelty": row["novelty"]}
    if f_rand is not None:
        found["qd"] = metrics.qd_score(row, f_rand, f_opt)
    if aim is not None and aim.name == "archive":
        found["archive"] = jnp.mean(seen["qd_score_over_time"])
    if aim is not None and callable(aim.own):
        given = {**seen, "fitness": fitness, "descriptor": descriptor}
        says = _say(aim.own, aim.parameters, *(given[name] for name in aim.parameters))
        found[OWN] = jnp.asarray(says).astype(fitness.dtype)
    return found
