"""Final populations in, meta-fitness out.

What a member of the meta-population is worth on one task is a measure of its final population, on noiseless fitness.
Tasks differ by orders of magnitude, so each task's values are normalised over the members before tasks are averaged.
"""

import dataclasses
import functools
from collections.abc import Callable, Hashable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lqd.checks import function_of_arrays, one_of, real
from lqd.errors import InvalidInput
from lqd.evolution import metrics

NAMES = ("fitness", "novelty", "qd")
OWN = "own"  # the name of an objective that is a function of the user's
Measures = dict[str, Float[Array, "*batch"]]


@dataclasses.dataclass(frozen=True)
class Objective:
    """What the meta-optimiser maximises.

    `qd` has two forms: `product` is the QD score (normalised max fitness times dominated novelty), `sum` the weighted
    sum of the standardised fitness and novelty that the authors' code uses. `own` is a function of the user's,
    `(fitness (N,), descriptor (N, D)) -> number`; of one that was saved, only what identifies it is known.
    """

    name: str = "fitness"
    qd_form: str = "product"
    fitness_weight: float = 0.5
    normalisation: str = "rank"
    aggregation: str = "mean"
    own: Callable | str | None = None

    def __post_init__(self):
        if self.own is None:
            one_of("objective", self.name, NAMES)
        elif not callable(self.own) and not isinstance(self.own, str):
            raise InvalidInput(f"objective must be a function or one of {', '.join(NAMES)}, got {self.own!r}.")
        one_of("qd_form", self.qd_form, ("product", "sum"))
        one_of("normalisation", self.normalisation, ("rank", "z-score"))
        one_of("aggregation", self.aggregation, ("mean", "median"))
        if real("fitness_weight", self.fitness_weight) > 1:
            raise InvalidInput(f"fitness_weight must be between 0 and 1, got {self.fitness_weight}.")

    @property
    def names(self) -> tuple[str, ...]:
        """What is measured of every final population."""
        return NAMES if self.own is None else (*NAMES, OWN)

    def identity(self, population_size: int, descriptor_dim: int) -> str | None:
        """What tells whether the user's function is still the same."""
        return identity(self.own, population_size, descriptor_dim) if callable(self.own) else self.own

    def check(self, population_size: int, descriptor_dim: int) -> None:
        """An error, before anything compiles, if there is a function of the user's and it cannot be called."""
        if self.own is None:
            return
        if not callable(self.own):
            raise InvalidInput(
                f"objective: that of this run is a function, {self.own!r}, which is not saved with it; give it again: "
                f"lqd.train(objective=..., ...)."
            )
        if not isinstance(self.own, Hashable):
            raise InvalidInput(f"objective: {self.own!r} cannot be hashed; give a plain function.")
        shapes = (population_size,), (population_size, descriptor_dim)
        contract = f"(fitness {shapes[0]}, descriptor {shapes[1]}) -> number"
        arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
        function_of_arrays("objective", self.own, contract, (), *arguments)

    @property
    def needs_anchors(self) -> bool:
        """Whether the score of a task needs to know what random search reaches there."""
        return self.name == "qd" and self.qd_form == "product"

    def meta_fitness(self, measures: dict[str, Float[Array, "M K"]]) -> Float[Array, " M"]:
        """One number per member, higher is better, always finite; a member that failed on a task is last there."""
        values, valid = self._values(measures)
        normalise = rank if self.normalisation == "rank" else z_score
        scores = normalise(values, valid)
        return jnp.mean(scores, axis=1) if self.aggregation == "mean" else jnp.median(scores, axis=1)

    def _values(self, measures) -> tuple[Float[Array, "M K"], Bool[Array, "M K"]]:
        valid = is_valid(measures)
        if self.name == "qd" and self.qd_form == "sum":
            weight = jnp.float32(self.fitness_weight)
            fitness, novelty = (z_score(measures[name], valid) for name in ("fitness", "novelty"))
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
    values = jnp.where(valid, values, -jnp.inf)
    mine, other = values[:, None, :], values[None, :, :]
    wins = jnp.sum((mine > other).astype(values.dtype) + 0.5 * (mine == other).astype(values.dtype), axis=1)
    return (wins - 0.5) / max(values.shape[0] - 1, 1) - 0.5


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


@functools.cache
def identity(function: Callable, population_size: int, descriptor_dim: int) -> str:
    """The name of a function and what it says of three made-up populations, the last of them half empty."""
    rng = np.random.default_rng(0)
    fitness = -rng.exponential(size=(3, population_size)).astype(np.float32)
    fitness[2, ::2] = -np.inf
    descriptor = rng.uniform(-1, 1, (3, population_size, descriptor_dim)).astype(np.float32)
    says = jax.jit(jax.vmap(function))(fitness, descriptor)
    name = getattr(function, "__qualname__", type(function).__name__)
    return f"{name} {' '.join(f'{value:.4g}' for value in says.tolist())}"


def measures(
    fitness: Float[Array, " N"], descriptor: Float[Array, "N D"], f_rand=None, f_opt=None, own: Callable | None = None
) -> Measures:
    """What objectives and validation look at: highest fitness, mean novelty, QD score where there are anchors.

    And what a function of the user's says.
    """
    row = metrics.measure(fitness, descriptor)
    found = {"fitness": row["max_fitness"], "novelty": row["novelty"]}
    if f_rand is not None:
        found["qd"] = metrics.qd_score(row, f_rand, f_opt)
    if own is not None:
        found[OWN] = jnp.asarray(own(fitness, descriptor)).astype(fitness.dtype)
    return found
