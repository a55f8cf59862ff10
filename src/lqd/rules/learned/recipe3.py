"""Feature recipe 3: recipe 2, and what the same pass says of breeding.

Beside its score, the network says of each individual how likely it is to be a parent, how much it shapes the directions
that children are drawn in, and how far its own children go. It also reads what an individual carries: the logarithms of
the steps that it was made with, and its age in generations. `evolution/led.py` makes children of all that.

    output     0        1         2        3           4 ..
    what       score    parent    shape    change      one for each step
    unit       -        logit     logit    logarithm   logarithm

What is carried comes in as tokens, and goes straight to the outputs as well, together with the rank. All of it counts
from where an individual without parents begins, so one of whom nothing is known is described by zeros. Weights of
recipe 2 become weights of recipe 3 by zeros in the new places: the same scores, and nothing said of breeding.
"""

import functools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from lqd.rules.learned import layers, recipe2
from lqd.rules.learned.layers import Params

STEPS = ("iso", "line", "difference", "shape", "trail")  # in the order of their columns
NEUTRAL = np.log(np.array([0.02, 0.08, 0.08, 0.7, 0.45], np.float32))  # logarithms: the steps of the first individuals
NUM_CARRIED = len(STEPS) + 1  # the steps and the age
NUM_ADVICE = 3 + len(STEPS)  # parent, shape, change, and one for each step
NUM_OUTPUTS = 1 + NUM_ADVICE
GAIN = np.array([4, 4, *[1] * (NUM_ADVICE - 2)], np.float32)  # logits differ by more than logarithms of steps
UNIT, MOST = 2.0, 4.0  # of what is carried, as the network reads it; and the most that it reads


def init_params(key: Key[Array, ""], num_layers: int, width: int, num_heads: int, hidden: int) -> Params:
    """Recipe 2 with random weights."""
    return from_recipe2(recipe2.init_params(key, num_layers, width, num_heads, hidden))


def from_recipe2(params: Params) -> Params:
    """The same scores, and nothing said of breeding."""
    embed = params["embed"]["weight"]
    width = embed.shape[1]
    return params | {
        "embed": {"weight": jnp.concatenate([embed, jnp.zeros((NUM_CARRIED, width), embed.dtype)])},
        "breeding": {
            "weight": jnp.zeros((width, NUM_ADVICE), embed.dtype),
            "direct": jnp.zeros((1 + NUM_CARRIED, NUM_ADVICE), embed.dtype),
            "bias": jnp.zeros(NUM_ADVICE, embed.dtype),
        },
    }


def neutral(num: int) -> Float[Array, "P T"]:
    """What individuals carry that have no parents."""
    return jnp.tile(jnp.append(jnp.asarray(NEUTRAL), 0.0), (num, 1))


def features(
    fitness: Float[Array, " P"], descriptor: Float[Array, "P D"], carried: Float[Array, "P T"] | None = None
) -> Float[Array, "P C"]:
    """Those of recipe 2, with what is carried before the descriptor; without it, every individual counts as new."""
    x = recipe2.features(fitness, descriptor)
    if carried is None:
        said = jnp.zeros((len(x), NUM_CARRIED), x.dtype)
    else:
        steps = (carried[:, :-1] - NEUTRAL) / UNIT
        said = jnp.clip(jnp.column_stack([steps, jnp.log1p(carried[:, -1]) / UNIT]), -MOST, MOST)
        said = jnp.where((fitness > -jnp.inf)[:, None], said, 0.0)
    return jnp.concatenate([x[:, : recipe2.NUM_FIRST], said, x[:, recipe2.NUM_FIRST :]], axis=1)


def forward(params: Params, num_heads: int, x: Float[Array, "P C"], filled: Bool[Array, " P"]) -> Float[Array, "P O"]:
    """Features in, all outputs of each individual out."""
    return read_off(params, recipe2.hidden(params, num_heads, x, filled), x)


def read_off(params: Params, hidden: Float[Array, "P F"], x: Float[Array, "P C"]) -> Float[Array, "P O"]:
    """All outputs, given the last layer. What rank and what is carried say of breeding counts whatever the network
    makes of them."""
    normed = layers.layer_norm(params["norm"], hidden)
    score = sum_of_products(normed, params["score"]["weight"]) + params["score"]["bias"]
    advice = sum_of_products(normed, params["breeding"]["weight"])
    read = jnp.concatenate([x[:, 1:2], x[:, recipe2.NUM_FIRST : recipe2.NUM_FIRST + NUM_CARRIED]], axis=1)
    direct = sum_of_products(read, params["breeding"]["direct"]) + params["breeding"]["bias"]
    return jnp.concatenate([score, (advice + direct) * GAIN], axis=1)


def sum_of_products(x: Float[Array, "*batch P F"], matrix: Float[Array, "*batch F G"]) -> Float[Array, "*batch P G"]:
    """A product with a narrow matrix, term by term: the same bits however many populations there are."""
    terms = (x[..., i, None] * matrix[..., None, i, :] for i in range(matrix.shape[-2]))
    return functools.reduce(jnp.add, terms)
