"""The network of the learned competition rule: a small transformer over the population, and its features.

Feature recipe 1 is the paper's: fitness and descriptor as columns, each standardised over the filled slots. The recipe
number and the architecture travel with the weights; a better recipe gets a new number here, and old weights keep
working. No positional encoding, so the scores move with the individuals when these are permuted; empty slots are
masked out of every sum and get `-inf`.

This file is the definition. `kernel` computes the same function faster on GPUs and is tested against it.
"""

import dataclasses
import functools
import numbers
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from lqd.errors import InvalidInput
from lqd.evolution.numerics import by_blocks, unit_scale

Params = dict[str, Any]

LAYER_NORM_EPSILON = 1e-6
# Full float32 also where a GPU would take TF32: this is what faster versions are measured against.
PRECISION = jax.lax.Precision.HIGHEST


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
        if self.recipe != 1:
            raise InvalidInput(f"recipe must be 1, the only feature recipe this version knows, got {self.recipe}.")


def init_params(key: Key[Array, ""], architecture: Architecture) -> Params:
    """LeCun-normal weights, zero biases; the layers are stacked along the leading axis."""
    num_layers, width, hidden = architecture.num_layers, architecture.num_features, architecture.num_hidden
    key_embed, key_query, key_key, key_value, key_out, key_up, key_down, key_score = jax.random.split(key, 8)
    lecun = jax.nn.initializers.lecun_normal()

    def stacked(key, fan_in, fan_out):
        weight = jax.vmap(lambda k: lecun(k, (fan_in, fan_out), jnp.float32))(jax.random.split(key, num_layers))
        return {"weight": weight, "bias": jnp.zeros((num_layers, fan_out), jnp.float32)}

    def norm(*lead):
        return {"scale": jnp.ones((*lead, width), jnp.float32), "bias": jnp.zeros((*lead, width), jnp.float32)}

    return {
        "embed": {"weight": lecun(key_embed, (1 + architecture.descriptor_dim, width), jnp.float32)},
        "layers": {
            "norm_attention": norm(num_layers),
            "query": stacked(key_query, width, width),
            "key": stacked(key_key, width, width),
            "value": stacked(key_value, width, width),
            "out": stacked(key_out, width, width),
            "norm_mlp": norm(num_layers),
            "up": stacked(key_up, width, hidden),
            "down": stacked(key_down, hidden, width),
        },
        "norm": norm(),
        "score": {"weight": lecun(key_score, (width, 1), jnp.float32), "bias": jnp.zeros(1, jnp.float32)},
    }


def standardise(column: Float[Array, " P"], filled: Bool[Array, " P"]) -> Float[Array, " P"]:
    """Mean 0 and standard deviation 1 (ddof 0) over the filled slots; a constant column, and an empty slot, is 0.

    Standardising is blind to shift and scale, so both are taken out exactly first: a constant column is then 0 to
    the last bit, small differences on a large offset survive, and 1e30 does not overflow.
    """
    column, _ = unit_scale(jnp.where(filled, column, 0.0))
    lowest = jnp.min(jnp.where(filled, column, jnp.inf))
    column = jnp.where(filled, column - jnp.where(lowest < jnp.inf, lowest, 0.0), 0.0)
    column, _ = unit_scale(column)
    num = jnp.maximum(jnp.sum(filled.astype(column.dtype)), 1.0)
    centred = jnp.where(filled, column - jnp.sum(column) / num, 0.0)
    deviation = jnp.sqrt(jnp.sum(centred**2) / num)
    return jnp.where(jnp.max(column) > 0, centred / jnp.where(deviation > 0, deviation, 1.0), 0.0)


def features(fitness: Float[Array, " P"], descriptor: Float[Array, "P D"]) -> Float[Array, "P D+1"]:
    """Feature recipe 1."""
    filled = fitness > -jnp.inf
    columns = jnp.concatenate([fitness[None, :], descriptor.T])
    return jax.vmap(standardise, in_axes=(0, None))(columns, filled).T


def _layer_norm(norm: Params, x: Float[Array, "P F"]) -> Float[Array, "P F"]:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(centred**2, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + LAYER_NORM_EPSILON) * norm["scale"] + norm["bias"]


def linear(layer: Params, x: Float[Array, "P F"]) -> Float[Array, "P G"]:
    return jnp.matmul(x, layer["weight"], precision=PRECISION) + layer["bias"]


def _attention(layer: Params, x: Float[Array, "P F"], filled: Bool[Array, " P"], num_heads: int):
    """Multi-head attention with the queries along the last axis and the normaliser as one more value column.

    That layout keeps the exponentials in long vectors and saves two passes over them: 0.47 against 0.61 ms for the
    whole network at 160 individuals on two CPU cores.
    """
    num = x.shape[0]

    def heads(name):
        return linear(layer[name], x).T.reshape(num_heads, -1, num)

    query, key, value = heads("query"), heads("key"), heads("value")
    query = query / jnp.sqrt(jnp.float32(query.shape[1]))
    value = jnp.concatenate([value, jnp.ones((num_heads, 1, num), value.dtype)], axis=1)

    def attend(rows):
        logits = jnp.einsum("hdj,hdi->hji", key, query[:, :, rows], precision=PRECISION)
        logits = jnp.where(filled[:, None], logits, -jnp.inf)
        highest = jnp.max(jax.lax.stop_gradient(logits), axis=1, keepdims=True)  # a shift: it has no gradient
        weights = jnp.exp(logits - highest)
        total = jnp.einsum("hdj,hji->hdi", value, weights, precision=PRECISION)
        mixed = total[:, :-1] / total[:, -1:]
        return mixed.reshape(x.shape[1], -1).T

    return linear(layer["out"], by_blocks(attend, num, num_heads * num))


def _attention_by_reduction(layer: Params, x: Float[Array, "P F"], filled: Bool[Array, " P"], num_heads: int):
    """The same on a GPU: one reduction over the keys sums all columns of the result, and no table of pairs is written.

    A pass takes 2.5 us on an H200 where the matrix products take 3.6 us. The barriers keep XLA from storing the logits
    between the two reductions. On a CPU it is slower, and it has no derivative.
    """
    num = x.shape[0]

    def heads(name):
        return linear(layer[name], x).T.reshape(num_heads, -1, num)

    query, key, value = jax.lax.optimization_barrier((heads("query"), heads("key"), heads("value")))
    query = query / jnp.sqrt(jnp.float32(query.shape[1]))

    def logits():
        products = [query[:, c, :, None] * key[:, c, None, :] for c in range(query.shape[1])]
        return jnp.where(filled, functools.reduce(jnp.add, products), -jnp.inf)

    highest = jax.lax.optimization_barrier(jnp.max(logits(), axis=-1))
    weights = jnp.exp(logits() - highest[..., None])
    columns = (*(weights * value[:, c, None, :] for c in range(value.shape[1])), weights)
    zeros = (jnp.zeros((), x.dtype),) * len(columns)
    *total, norm = jax.lax.reduce(columns, zeros, lambda a, b: tuple(map(jnp.add, a, b)), (2,))
    mixed = jnp.stack(total, axis=1) / norm[:, None]
    return linear(layer["out"], mixed.reshape(x.shape[1], -1).T)


def on_gpu() -> bool:
    """Whether work goes to a GPU by default."""
    device = jax.config.values["jax_default_device"]
    platform = device if isinstance(device, str) else getattr(device, "platform", jax.default_backend())
    return platform in ("gpu", "cuda", "rocm")


def fastest_attention():
    """The form for the device that work goes to by default; both compute the same."""
    return _attention_by_reduction if on_gpu() else _attention


def forward(
    params: Params, num_heads: int, x: Float[Array, "P D+1"], filled: Bool[Array, " P"], attention=_attention
) -> Float[Array, " P"]:
    """Pre-norm transformer: features in, one score per individual out."""

    def layer(x, params):
        x = x + attention(params, _layer_norm(params["norm_attention"], x), filled, num_heads)
        hidden = jax.nn.gelu(linear(params["up"], _layer_norm(params["norm_mlp"], x)), approximate=True)
        return x + linear(params["down"], hidden), None

    embedded = jnp.matmul(x, params["embed"]["weight"], precision=PRECISION)
    x, _ = jax.lax.scan(layer, embedded, params["layers"])
    return linear(params["score"], _layer_norm(params["norm"], x))[:, 0]
