"""The data that flows: evaluations and populations.

Conventions, for the whole package:

- fitness is maximised; an empty slot (or an infeasible, or a failed individual) has fitness `-inf`;
- genotypes are flat `float32` vectors, descriptors `float32` vectors;
- traced data is a frozen dataclass registered as a pytree; leading batch axes are allowed everywhere;
- in a population the filled slots come first: survival keeps it so, and parents are drawn from that prefix.

Deliberately not here: behaviour. Survival lives in `evolution/loop.py`, measures in `evolution/metrics.py`.
"""

import dataclasses
from typing import Any, dataclass_transform

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Extras = dict[str, Array]


@dataclass_transform(frozen_default=True)
def pytree(cls: type) -> type:
    """A frozen dataclass whose fields are pytree children, except those marked with `static()`.

    Not `jax.tree_util.register_dataclass`: structures registered so compare equal across classes with equal fields
    (seen in jax 0.10.2), and a compiled function is looked up by structure. `jit` then ran one rule's program for
    another, in one test run out of several: it compares structures only when their hashes fall together.
    """
    cls = dataclasses.dataclass(frozen=True)(cls)
    is_static = {field.name: field.metadata.get("static", False) for field in dataclasses.fields(cls)}
    children = [name for name, static in is_static.items() if not static]
    settings = [name for name, static in is_static.items() if static]

    def flatten(tree):
        return [getattr(tree, name) for name in children], tuple(getattr(tree, name) for name in settings)

    def flatten_with_keys(tree):
        values, aux = flatten(tree)
        return [(jax.tree_util.GetAttrKey(name), v) for name, v in zip(children, values, strict=True)], aux

    def unflatten(aux, values):
        tree: Any = object.__new__(cls)  # no checks: the children may be tracers, shapes, or anything
        for name, value in (*zip(settings, aux, strict=True), *zip(children, values, strict=True)):
            object.__setattr__(tree, name, value)
        return tree

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


def static(**kwargs):
    """A field that shapes the program: hashable, compared when looking up compiled code."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


@pytree
class Evaluation:
    """A task's answers for a batch of genotypes; `extras` are further arrays kept with each individual."""

    fitness: Float[Array, "*batch B"]
    descriptor: Float[Array, "*batch B D"]
    extras: Extras = dataclasses.field(default_factory=dict)


@pytree
class Population:
    """Individuals with everything known about them; an empty slot has fitness `-inf` and arbitrary other fields.

    `traits` are what children inherit besides the genotype, if the variation has any (`evolution/variation.py`).
    """

    x: Float[Array, "*batch N n"]
    fitness: Float[Array, "*batch N"]
    descriptor: Float[Array, "*batch N D"]
    extras: Extras = dataclasses.field(default_factory=dict)
    traits: Float[Array, "*batch N T"] | None = None

    @property
    def filled(self) -> Bool[Array, "*batch N"]:
        return self.fitness > -jnp.inf
