"""The data that flows: evaluations and populations.

Conventions, for the whole package:

- fitness is maximised; an empty slot (or an infeasible, or a failed individual) has fitness `-inf`;
- genotypes are flat `float32` vectors, descriptors `float32` vectors;
- traced data is a frozen dataclass registered as a pytree; leading batch axes are allowed everywhere;
- in a population the filled slots come first: survival keeps it so, and parents are drawn from that prefix.

Deliberately not here: behaviour. Survival lives in `evolution/loop.py`, measures in `evolution/metrics.py`.
"""

import dataclasses
from typing import dataclass_transform

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Extras = dict[str, Array]


@dataclass_transform(frozen_default=True)
def pytree(cls: type) -> type:
    """A frozen dataclass whose fields are pytree children, but for those marked with `static()`."""
    return jax.tree_util.register_dataclass(dataclasses.dataclass(frozen=True)(cls))


def static(**kwargs):
    """A field that shapes the program: hashable, compared when looking up compiled code."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


@pytree
class Evaluation:
    """What a task says about a batch of genotypes; `extras` are further arrays kept with each individual."""

    fitness: Float[Array, "*batch B"]
    descriptor: Float[Array, "*batch B D"]
    extras: Extras = dataclasses.field(default_factory=dict)


@pytree
class Population:
    """Individuals with what is known of them; an empty slot has fitness `-inf` and arbitrary other fields."""

    x: Float[Array, "*batch N n"]
    fitness: Float[Array, "*batch N"]
    descriptor: Float[Array, "*batch N D"]
    extras: Extras = dataclasses.field(default_factory=dict)

    @property
    def filled(self) -> Bool[Array, "*batch N"]:
        return self.fitness > -jnp.inf
