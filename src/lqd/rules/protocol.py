"""What a competition rule is. A rule says who survives; the loop does the rest.

A rule is a pytree called as `rule(key, fitness (P,), descriptor (P, D)) -> scores (P,)`. Its parameters are leaves
(so many rules can run in one program), its settings static. A score of `-inf` means eliminated; the loop keeps the top
N. Empty slots come in with fitness `-inf` and arbitrary descriptors, and must go out with `-inf`.

A rule for descriptors of one size only has a method `check(descriptor_dim)` that raises for others, before anything
compiles. Three more optional methods make a rule faster without changing what it is:

- `ready()` returns the same rule with what never changes computed once; the loop calls it before its generations.
- `annotate(descriptor (B, D))` returns arrays `(B, ...)` that depend on one individual alone (its cell, say). The
  loop calls it once, on newcomers, keeps the result beside each survivor and hands it to
- `score(key, fitness, descriptor, notes)`, which is `__call__` with those notes given.

A rule that also leads variation says so by a property `guides`, and has a method `guide(key, fitness, descriptor,
carried)`: scores, and advice on each individual's breeding (`evolution/led.py`).
"""

from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from lqd.types import pytree, static

Scores = Float[Array, " P"]


@runtime_checkable
class Rule(Protocol):
    def __call__(self, key: Key[Array, ""], fitness: Float[Array, " P"], descriptor: Float[Array, "P D"]) -> Scores: ...


def ready(rule: Rule) -> Rule:
    """The rule as a loop should hold it."""
    return rule.ready() if hasattr(rule, "ready") else rule


def annotate(rule: Rule, descriptor: Float[Array, "B D"]) -> Any:
    """The rule's notes on newcomers; none for a rule that makes none."""
    return rule.annotate(descriptor) if hasattr(rule, "annotate") else ()


def score(rule: Rule, key, fitness, descriptor, notes) -> Scores:
    """Competition fitness, with what the rule noted before."""
    return rule.score(key, fitness, descriptor, notes) if hasattr(rule, "score") else rule(key, fitness, descriptor)


def guides(rule: Rule) -> bool:
    """Whether the rule also leads variation."""
    return bool(getattr(rule, "guides", False))


def arrays(fitness, descriptor) -> tuple[Float[Array, " P"], Float[Array, "P D"]]:
    """What a rule was called with, as JAX arrays of floats: lists and NumPy arrays of any number type will do."""

    def floats(values):
        values = jnp.asarray(values)
        return values if jnp.issubdtype(values.dtype, jnp.floating) else values.astype(jnp.float32)

    return floats(fitness), floats(descriptor)


@pytree
class OwnRule:
    """A user's pytree rule, with its class in the structure, which JAX may leave out (see `types.pytree`)."""

    rule: Any
    kind: type = static()

    def check(self, descriptor_dim: int) -> None:
        if hasattr(self.rule, "check"):
            self.rule.check(descriptor_dim)

    def ready(self) -> "OwnRule":
        prepared = ready(self.rule)
        return OwnRule(prepared, type(prepared))

    def annotate(self, descriptor: Float[Array, "B D"]) -> Any:
        return annotate(self.rule, descriptor)

    def score(self, key, fitness, descriptor, notes) -> Scores:
        return score(self.rule, key, fitness, descriptor, notes)

    def __call__(self, key, fitness, descriptor) -> Scores:
        return self.rule(key, fitness, descriptor)


@pytree
class FunctionRule:
    """A plain function `(key, fitness, descriptor) -> scores` as a rule; compiled once per function object."""

    function: Any = static()

    def __call__(self, key, fitness, descriptor) -> Scores:
        return self.function(key, fitness, descriptor)
