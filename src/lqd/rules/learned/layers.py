"""What the networks of both feature recipes are made of."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from lqd.rules.rescaling import unit_scale

Params = dict[str, Any]

LAYER_NORM_EPSILON = 1e-6
# Full float32 also where a GPU would take TF32: this is what faster versions are measured against.
PRECISION = jax.lax.Precision.HIGHEST


def layer_norm(norm: Params, x: Float[Array, "P F"]) -> Float[Array, "P F"]:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(centred**2, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + LAYER_NORM_EPSILON) * norm["scale"] + norm["bias"]


def linear(layer: Params, x: Float[Array, "P F"]) -> Float[Array, "P G"]:
    return jnp.matmul(x, layer["weight"], precision=PRECISION) + layer["bias"]


def perceptron(layer: Params, x: Float[Array, "P F"]) -> Float[Array, "P F"]:
    """Normed, through one hidden layer, and added."""
    hidden = jax.nn.gelu(linear(layer["up"], layer_norm(layer["norm_mlp"], x)), approximate=True)
    return x + linear(layer["down"], hidden)


def scored(params: Params, x: Float[Array, "P F"]) -> Float[Array, " P"]:
    return linear(params["score"], layer_norm(params["norm"], x))[:, 0]


def init_matrix(key: Key[Array, ""], fan_in: int, fan_out: int) -> Float[Array, "I O"]:
    return jax.nn.initializers.lecun_normal()(key, (fan_in, fan_out), jnp.float32)


def init_linear(key: Key[Array, ""], num_layers: int, fan_in: int, fan_out: int) -> Params:
    """One for each layer, stacked along the leading axis: LeCun-normal weights, zero biases."""
    weight = jax.vmap(lambda key: init_matrix(key, fan_in, fan_out))(jax.random.split(key, num_layers))
    return {"weight": weight, "bias": jnp.zeros((num_layers, fan_out), jnp.float32)}


def init_norm(*shape: int) -> Params:
    return {"scale": jnp.ones(shape, jnp.float32), "bias": jnp.zeros(shape, jnp.float32)}


def standardise(column: Float[Array, " P"], filled: Bool[Array, " P"]) -> Float[Array, " P"]:
    """Mean 0 and standard deviation 1 (ddof 0) over the filled slots; a constant column, and an empty slot, is 0.

    Standardising is blind to shift and scale, so both are taken out exactly first: a constant column is then 0 to
    the last bit, small differences on a large offset survive, and 1e30 does not overflow.
    """
    return standardise_together(column[:, None], filled)[:, 0]


def from_lowest(columns: Float[Array, "P D"], filled: Bool[Array, " P"]) -> Float[Array, "P D"]:
    """Each column from its lowest value on, over one power of two that brings all below 1; an empty slot is 0.

    No sum is involved, so an individual's row has the same bits wherever the individual is stored.
    """
    columns, _ = unit_scale(jnp.where(filled[:, None], columns, 0.0))
    lowest = jnp.min(jnp.where(filled[:, None], columns, jnp.inf), axis=0)
    columns = jnp.where(filled[:, None], columns - jnp.where(lowest < jnp.inf, lowest, 0.0), 0.0)
    return unit_scale(columns)[0]


def standardise_together(columns: Float[Array, "P D"], filled: Bool[Array, " P"]) -> Float[Array, "P D"]:
    """Mean 0 each, and one common scale: squared distances from the mean are 1 on average."""
    columns = from_lowest(columns, filled)
    num = jnp.maximum(jnp.sum(filled.astype(columns.dtype)), 1.0)
    centred = jnp.where(filled[:, None], columns - jnp.sum(columns, axis=0) / num, 0.0)
    deviation = jnp.sqrt(jnp.sum(centred**2) / num)
    return jnp.where(jnp.max(columns) > 0, centred / jnp.where(deviation > 0, deviation, 1.0), 0.0)
