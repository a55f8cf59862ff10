"""The network of the learned competition rule: a small transformer over the population, by its architecture.

The feature recipe's number and the architecture travel with the weights; a better recipe gets a new number, and old
weights keep working. This is the definition: `dispatch` computes the same function faster where it can, and is tested
against it.
"""

import dataclasses
import numbers

import jax
from jaxtyping import Array, Bool, Float, Key

from lqd.errors import InvalidInput
from lqd.rules.learned import recipe1, recipe2, recipe3
from lqd.rules.learned.layers import Params

RECIPES = (1, 2, 3)
OF_DISTANCES = (2, 3)  # those that take descriptors of any dimension


@dataclasses.dataclass(frozen=True)
class Architecture:
    """What the shape of the weights depends on, and how they are to be read."""

    descriptor_dim: int = 2
    num_layers: int = 4
    num_features: int = 16
    num_heads: int = 4
    num_hidden: int = 16
    recipe: int = 1

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
                raise InvalidInput(f"{field.name} must be a whole number of at least 1, got {value!r}.")
            object.__setattr__(self, field.name, int(value))
        if self.num_features % self.num_heads:
            raise InvalidInput(
                f"num_features must be a multiple of num_heads, got {self.num_features} features "
                f"for {self.num_heads} heads; {self.num_heads * -(-self.num_features // self.num_heads)} would do."
            )
        if self.recipe not in RECIPES:
            raise InvalidInput(f"recipe must be 1, 2 or 3, the feature recipes this version knows, got {self.recipe}.")
        if self.recipe in OF_DISTANCES and self.num_heads % recipe2.NUM_KINDS:
            raise InvalidInput(
                f"num_heads must be a multiple of {recipe2.NUM_KINDS} for recipe {self.recipe} (its heads come in "
                f"that many kinds), got {self.num_heads}."
            )


def init_params(key: Key[Array, ""], architecture: Architecture) -> Params:
    """Random weights."""
    num_layers, width, hidden = architecture.num_layers, architecture.num_features, architecture.num_hidden
    if architecture.recipe in OF_DISTANCES:
        recipe = recipe2 if architecture.recipe == 2 else recipe3
        return recipe.init_params(key, num_layers, width, architecture.num_heads, hidden)
    return recipe1.init_params(key, architecture.descriptor_dim, num_layers, width, hidden)


def features(fitness: Float[Array, " P"], descriptor: Float[Array, "P D"], recipe: int = 1) -> Float[Array, "P C"]:
    """What the network of that recipe reads of a population."""
    return {1: recipe1, 2: recipe2, 3: recipe3}[recipe].features(fitness, descriptor)


def on_gpu() -> bool:
    """Whether work goes to a GPU by default."""
    device = jax.config.jax_default_device  # type: ignore[attr-defined]  # JAX makes its settings' attributes later
    platform = device if isinstance(device, str) else getattr(device, "platform", jax.default_backend())
    return platform in ("gpu", "cuda", "rocm")


def fastest_attention():
    """The form for the device that work goes to by default; both compute the same."""
    return recipe1.attention_by_reduction if on_gpu() else recipe1.attention


def leads(params: Params) -> bool:
    """Whether these weights are of recipe 3, which has more outputs than a score."""
    return "breeding" in params


def forward(
    params: Params, num_heads: int, x: Float[Array, "P C"], filled: Bool[Array, " P"], attention=recipe1.attention
) -> Array:
    """Features in, one score per individual out (P,); of recipe 3 all outputs (P, O). The weights say which it is."""
    if leads(params):
        return recipe3.forward(params, num_heads, x, filled)
    if "sharpness" in params["layers"]:
        return recipe2.forward(params, num_heads, x, filled)
    return recipe1.forward(params, num_heads, x, filled, attention)


def scores(params: Params, num_heads: int, x: Float[Array, "P C"], filled: Bool[Array, " P"]) -> Float[Array, " P"]:
    """The score alone, whatever the recipe."""
    found = forward(params, num_heads, x, filled)
    return found[:, 0] if leads(params) else found
