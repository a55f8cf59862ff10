"""Feature recipe 1, the paper's: attention by queries and keys.

A head's own columns, after the three copies: the wall that an empty slot falls by, and minus the highest logit of the
row, in two halves. Up to `MAX_FUSED` individuals the whole network is one program per population and everything stays
in registers. Above, the attention alone is a kernel, by tiles of keys, with memory linear in the number of individuals.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jaxtyping import Array, Bool, Float

from lqd.rules.learned.layers import Params, linear
from lqd.rules.learned.pallas import split_precision
from lqd.rules.learned.pallas.split_precision import LOG2_E, WALL, Arithmetic, dot, dot_transposed

LIFT = 2.0**12  # the highest logit divided by this is what a query's column holds


def head_columns(width: int) -> int:
    return split_precision.padded(3 * width + 3)


def pack(params: Params, num_heads: int):
    """The weights as the kernel reads them, and whether half precision holds all that it will make of them."""
    layers = params["layers"]
    width = layers["query"]["weight"].shape[-1] // num_heads
    num_columns = head_columns(width)

    def heads(name):
        weight, bias = split_precision.after(layers["norm_attention"], layers[name])
        return split_precision.by_head(weight, bias, num_heads)

    query, key, value = heads("query"), heads("key"), heads("value")
    query = tuple(array * np.float32(LOG2_E / np.sqrt(width)) for array in query)
    reach_query, reach_key = (jnp.max(split_precision.reach(*pair), axis=-1) for pair in (query, key))
    tilt = split_precision.power(0.5 * jnp.log2(reach_key / reach_query))  # equal in size, both are far from the ends
    query = query[0] * tilt[..., None, None], query[1] * tilt[..., None]
    key = key[0] / tilt[..., None, None], key[1] / tilt[..., None]
    mixing = jnp.stack(
        [
            half
            for (weight, bias), others in ((query, (WALL,)), (key, (0.0, LIFT, LIFT)), (value, (1.0,)))
            for half in split_precision.halves(
                split_precision.with_bias(
                    split_precision.tripled(weight, num_columns), split_precision.tripled(bias, num_columns, *others)
                )
            )
        ],
        axis=2,
    )
    matrices, magnitudes = split_precision.packed_perceptron(params, num_heads, num_columns)
    magnitudes = [width * reach_query * reach_key, split_precision.reach(*value), mixing, *magnitudes]
    return (split_precision.residual(params["embed"]["weight"]), mixing, *matrices), split_precision.hold(magnitudes)


def fused(packed, x, filled, *, num_features: int, num_heads: int, exact: bool, interpret: bool):
    """Scores (M, K, P) of M rules on K populations each."""
    num = x.shape[2]
    rows, num_warps, size = split_precision.tiling(num)
    x = split_precision.widened(x, 2, size).swapaxes(2, 3)
    mask = jnp.where(split_precision.widened(filled, 2, size), 0.0, -WALL).astype(jnp.float32)
    body = functools.partial(
        _body, rows=rows, num_features=num_features, width=num_features // num_heads, do=Arithmetic(exact, interpret)
    )
    return split_precision.launch(body, num_warps, interpret, packed, (x, mask), (size,))[..., :num]


def _lowered(do: Arithmetic, query, highest, width: int):
    """The query with minus the highest logit of its row in the two columns for it."""
    column = split_precision.columns(query.shape[1])
    lift = highest * np.float32(-1 / LIFT)
    upper = split_precision.high(lift)
    filling = jnp.where(column == 3 * width + 1, upper, jnp.where(column == 3 * width + 2, lift - upper, 0.0))
    return query + do.truncated(filling)


def _body(
    x_ref, mask_ref, embed_ref, mixing_ref, out_ref, up_ref, down_ref, bias_ref, score_ref, scores_ref,
    *, rows: int, num_features: int, width: int, do: Arithmetic,
):  # fmt: skip
    """One population. Tiles of rows are unrolled, so that they overlap; layers and heads are loops, to compile fast."""
    num_layers, num_heads = mixing_ref.shape[:2]
    tiles = [pl.ds(start, rows) for start in range(0, mask_ref.shape[0], rows)]
    num_columns = mixing_ref.shape[-1]
    low_second, low_third = (split_precision.low_columns(num_columns, width, which) for which in (1, 2))

    def layer(index, xs):
        inputs = [do.normed(x, num_features) for x in xs]

        def head(which, xs):
            query, key, value = ((mixing_ref[index, which, i], mixing_ref[index, which, i + 1]) for i in (0, 2, 4))
            out, out_low = out_ref[index, which, 0], out_ref[index, which, 1]
            is_wall = split_precision.columns(num_columns) == 3 * width
            keys = [
                do.packed(jnp.where(is_wall, mask_ref[tile][:, None], do.linear(x, key)), low_third)
                for tile, x in zip(tiles, inputs, strict=True)
            ]
            values = [do.packed(do.linear(x, value), low_second) for x in inputs]

            def attend(xs, inputs):
                queries = [do.packed(do.linear(x, query), low_second) for x in inputs]
                logits = [[dot_transposed(query, key, do.highest_type) for key in keys] for query in queries]
                highest = [functools.reduce(do.larger, row).astype(jnp.float32) for row in logits]
                highest = [jnp.max(row, axis=1, keepdims=True) for row in highest]
                queries = [_lowered(do, query, top, width) for query, top in zip(queries, highest, strict=True)]
                # Key by key over all rows: neighbours in this order do not wait for each other.
                parts = [
                    [do.weighed(dot_transposed(query, key), value) for query in queries]
                    for key, value in zip(keys, values, strict=True)
                ]
                totals = [functools.reduce(jnp.add, row) for row in zip(*parts, strict=True)]
                mixed = [
                    do.split(total * do.reciprocal(split_precision.column_of(total, 3 * width))) for total in totals
                ]
                return [x + dot(upper, out) + dot(lower, out_low) for x, (upper, lower) in zip(xs, mixed, strict=True)]

            groups = [
                slice(start, start + split_precision.GROUP) for start in range(0, len(tiles), split_precision.GROUP)
            ]
            return tuple(x for group in groups for x in attend(xs[group], inputs[group]))

        xs = tuple(x + bias_ref[index, 0][None, :] for x in xs)
        xs = jax.lax.fori_loop(0, num_heads, head, xs)
        up, down = ((ref[index, 0], ref[index, 1]) for ref in (up_ref, down_ref))
        return do.perceptron(xs, num_features, up, down, bias_ref[index, 1])

    def tokens(tile):
        return [x_ref[c, tile][:, None] for c in range(embed_ref.shape[0])]

    rows_of_embed = [embed_ref[c, :][None, :] for c in range(embed_ref.shape[0])]
    xs = tuple(split_precision.embedded(tokens(tile), rows_of_embed) for tile in tiles)
    xs = jax.lax.fori_loop(0, num_layers, layer, xs)
    for tile, x in zip(tiles, xs, strict=True):
        scores_ref[tile] = do.scored(x, num_features, score_ref)


# The attention alone


def tiled_attention(
    layer: Params, x: Float[Array, "P F"], filled: Bool[Array, " P"], num_heads: int, exact: bool, interpret: bool
) -> Float[Array, "P F"]:
    """`recipe1.attention` for any number of individuals: a program per head and tile of queries, a loop over keys."""
    num, num_features = x.shape
    width, rows = num_features // num_heads, 64
    size, num_columns = -(-num // rows) * rows, head_columns(width)

    def heads(name, factor=1.0):
        array = linear(layer[name], x) * np.float32(factor)
        return split_precision.widened(array.reshape(num, num_heads, width).swapaxes(0, 1), 1, size)

    query, key, value = heads("query", LOG2_E / np.sqrt(width)), heads("key"), heads("value")
    reach = [jnp.max(jnp.abs(array)) for array in (query, key)]
    # Of equal size, and no larger than is exact: logits beyond 2^26 differ by more than float32 resolves anyway.
    tilt = split_precision.power(0.5 * jnp.log2(reach[1] / reach[0]))
    cap = split_precision.power(jnp.minimum(0.0, jnp.floor(12 - 0.5 * jnp.log2(reach[0] * reach[1]))))
    shrink = split_precision.power(jnp.minimum(0.0, jnp.floor(15 - jnp.log2(jnp.max(jnp.abs(value))))))
    mask = jnp.where(split_precision.widened(filled, 0, size), 0.0, -WALL)
    key = split_precision.tripled(key * (cap / tilt), num_columns, 0.0, LIFT, LIFT)
    key = jnp.where(split_precision.columns(num_columns) == 3 * width, mask[:, None], key)
    query = split_precision.tripled(query * (cap * tilt), num_columns, WALL)
    value = split_precision.tripled(value * shrink, num_columns, 1.0)
    packed = [
        split_precision.high(
            split_precision.without(array, split_precision.low_columns(num_columns, width, which))
        ).astype(jnp.float16)
        for array, which in ((query, 1), (key, 2), (value, 1))
    ]
    num_tiles = size // rows

    def of_tile(*shape):
        return pl.BlockSpec((None, rows, *shape), lambda i: (i // num_tiles, i % num_tiles, *[0] * len(shape)))

    def of_head(*shape):
        return pl.BlockSpec((None, size, *shape), lambda i: (i // num_tiles, 0, *[0] * len(shape)))

    total = split_precision.call(
        functools.partial(_attention_body, rows=rows, width=width, do=Arithmetic(exact, interpret)),
        4,
        interpret,
        grid=(num_heads * num_tiles,),
        in_specs=[of_tile(num_columns), of_head(num_columns), of_head(num_columns)],
        out_specs=of_tile(num_columns),
        out_shape=jax.ShapeDtypeStruct((num_heads, size, num_columns), jnp.float32),
    )(*packed)
    mixed = (total[:, :num, :width] + total[:, :num, width : 2 * width]) / shrink
    return linear(layer["out"], mixed.swapaxes(0, 1).reshape(num, num_features))


def _attention_body(query_ref, key_ref, value_ref, out_ref, *, rows: int, width: int, do: Arithmetic):
    query = query_ref[...]
    num_tiles = key_ref.shape[0] // rows

    def tile(ref, i):
        return ref[pl.ds(pl.multiple_of(i * rows, rows), rows), :]

    def higher(i, highest):
        return jnp.maximum(highest, jnp.max(dot_transposed(query, tile(key_ref, i)), axis=1, keepdims=True))

    highest = jax.lax.fori_loop(0, num_tiles, higher, jnp.full((rows, 1), -(WALL**2) * 2, jnp.float32))
    query = _lowered(do, query, highest, width)

    def add(i, total):
        return total + do.weighed(dot_transposed(query, tile(key_ref, i)), tile(value_ref, i))

    total = jax.lax.fori_loop(0, num_tiles, add, jnp.zeros((rows, query.shape[1]), jnp.float32))
    out_ref[...] = total * do.reciprocal(split_precision.column_of(total, 3 * width))
