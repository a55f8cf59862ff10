"""Feature recipe 1, the paper's: fitness and descriptor as columns, each standardised over the filled slots.

No positional encoding, so the scores move with the individuals when these are permuted; empty slots are masked out of
every sum.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from lqd.rules.blocks import by_blocks
from lqd.rules.learned.layers import (
    PRECISION,
    Params,
    init_linear,
    init_matrix,
    init_norm,
    layer_norm,
    linear,
    perceptron,
    scored,
    standardise,
)


def init_params(key: Key[Array, ""], descriptor_dim: int, num_layers: int, width: int, hidden: int) -> Params:
    """LeCun-normal weights, zero biases; the layers are stacked along the leading axis."""
    key_embed, key_query, key_key, key_value, key_out, key_up, key_down, key_score = jax.random.split(key, 8)
    return {
        "embed": {"weight": init_matrix(key_embed, 1 + descriptor_dim, width)},
        "layers": {
            "norm_attention": init_norm(num_layers, width),
            "query": init_linear(key_query, num_layers, width, width),
            "key": init_linear(key_key, num_layers, width, width),
            "value": init_linear(key_value, num_layers, width, width),
            "out": init_linear(key_out, num_layers, width, width),
            "norm_mlp": init_norm(num_layers, width),
            "up": init_linear(key_up, num_layers, width, hidden),
            "down": init_linear(key_down, num_layers, hidden, width),
        },
        "norm": init_norm(width),
        "score": {"weight": init_matrix(key_score, width, 1), "bias": jnp.zeros(1, jnp.float32)},
    }


def features(fitness: Float[Array, " P"], descriptor: Float[Array, "P D"]) -> Float[Array, "P D+1"]:
    """The standardised columns."""
    filled = fitness > -jnp.inf
    columns = jnp.concatenate([fitness[None, :], descriptor.T])
    return jax.vmap(standardise, in_axes=(0, None))(columns, filled).T


def attention(layer: Params, x: Float[Array, "P F"], filled: Bool[Array, " P"], num_heads: int):
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


def attention_by_reduction(layer: Params, x: Float[Array, "P F"], filled: Bool[Array, " P"], num_heads: int):
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


def forward(
    params: Params, num_heads: int, x: Float[Array, "P C"], filled: Bool[Array, " P"], attention=attention
) -> Float[Array, " P"]:
    """Pre-norm transformer: features in, one score per individual out."""

    def layer(x, params):
        x = x + attention(params, layer_norm(params["norm_attention"], x), filled, num_heads)
        return perceptron(params, x), None

    embedded = jnp.matmul(x, params["embed"]["weight"], precision=PRECISION)
    x, _ = jax.lax.scan(layer, embedded, params["layers"])
    return scored(params, x)
