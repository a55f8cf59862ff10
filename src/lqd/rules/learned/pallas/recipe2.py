"""Feature recipes 2 and 3, attention by distance: the whole network as one program per population.

Individuals are sorted, the fittest first, so that the fitter ones are those before: half of the tiles are left out, and
only tiles on the diagonal are masked. A logit is minus the sharpness times how much further than the nearest one the
other is, and that is one product of a query with a key:

    columns    three copies of      then, once
    query      2 place, -1          nearest - |place|^2 - NEAR in two halves, 1
    key        place, |place|^2     1, 1, mask

all times the sharpness. So keys are the same for all heads, a query differs from head to head by a factor,
and the highest logit of every row is 0: no pass to find it, no matrix for queries and keys. A squared distance is so
known to 21 bits of the squared distance from the centre. With `exact` it is the sum of squared differences in float32.

Recipe 3 has further tokens, and reads more than a score off the last layer. Both are done outside, with what all
tokens but the distances are embedded as going in, and the last layer coming out: sums over few columns, many times in a
row, took this kernel five times as long to compile (13 s against 58 s for an H200, jax 0.10.2).
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from lqd.rules.learned import recipe2, recipe3
from lqd.rules.learned.layers import Params
from lqd.rules.learned.pallas import split_precision
from lqd.rules.learned.pallas.split_precision import LOG2_E, Arithmetic, dot, dot_transposed
from lqd.rules.learned.recipe2 import NUM_FIRST

UNIT = np.float32(2.0**6)  # keys are multiplied and queries divided by it: then both are within half precision
WALL = np.float32(2.0**8)  # times the sharpness: at most what a query may hold, and even for the bluntest enough
MASK = np.float32(-(2.0**15))
HIDDEN = np.float32(-(2.0**29))  # a logit that stands for not seen
NONE = np.float32(-(2.0**15))  # a logit for sharpness 1 that is lower than that of any individual, and above the wall


def head_columns(width: int) -> int:
    """Of the values: three copies and the ones."""
    return split_precision.padded(3 * width + 1)


def pair_columns(num_dimensions: int) -> int:
    return split_precision.padded(3 * (num_dimensions + 1) + 3)


def pack(params: Params, num_heads: int):
    """The weights as the kernel reads them, and whether half precision holds all that it will make of them."""
    layers = params["layers"]
    num_layers, num_features, _ = layers["value"]["weight"].shape
    num_columns = head_columns(num_features // num_heads)
    weight, bias = split_precision.after(layers["norm_attention"], layers["value"])
    weight, bias = split_precision.by_head(weight, bias, num_heads)
    magnitudes = [split_precision.reach(weight, bias)]
    weight, bias = split_precision.tripled(weight, num_columns), split_precision.tripled(bias, num_columns, 1.0)
    value = jnp.stack(split_precision.halves(split_precision.with_bias(weight, bias)), axis=2)
    matrices, others = split_precision.packed_perceptron(params, num_heads, num_columns)
    density = split_precision.residual(layers["density"]["weight"]).reshape(num_layers, 2, num_heads, -1).swapaxes(1, 2)
    sharpness = jnp.exp(layers["sharpness"])
    is_relative = np.arange(num_heads) % 2 == 1
    sharpness = jnp.stack([jnp.where(is_relative, 0, sharpness), jnp.where(is_relative, sharpness, 0)], axis=-1)
    # Heads that see all others first, then those that see fitter ones.
    order = np.argsort(np.arange(num_heads) % recipe2.NUM_KINDS >= recipe2.NUM_KINDS // 2, kind="stable")
    out, *rest = matrices
    ordered = [array[:, order] for array in (sharpness, value, density, out)]
    packed = (split_precision.residual(params["embed"]["weight"]), *ordered, *rest)
    return packed, split_precision.hold([*magnitudes, value, *others])


def fused(packed, x, filled, *, num_features: int, num_heads: int, exact: bool, interpret: bool):
    """Scores (M, K, P) of M rules on K populations each; of recipe 3 the last layer, (M, K, P, F)."""
    num, embed = x.shape[2], packed[0]
    first = NUM_FIRST + embed.shape[-2] - recipe2.NUM_TOKENS
    rows, num_warps, size = split_precision.tiling(num)
    x, begun = jnp.where(filled[..., None], x, 0.0), None
    if first > NUM_FIRST:
        tokens = jnp.concatenate([x[..., :2], x[..., NUM_FIRST:first]], axis=3)
        weights = jnp.concatenate([embed[:, :2], embed[:, recipe2.NUM_TOKENS :]], axis=1)
        begun = split_precision.widened(recipe3.sum_of_products(tokens, weights[:, None]), 2, size)
        x = jnp.concatenate([x[..., :NUM_FIRST], x[..., first:]], axis=3)
    mask = jnp.where(filled, np.float32(0), MASK)
    x = split_precision.widened(x, 2, size).swapaxes(2, 3)
    mask = jnp.pad(mask, [(0, 0), (0, 0), (0, size - num)], constant_values=MASK)
    x = jnp.concatenate([x, mask[:, :, None]], axis=2)
    body = functools.partial(
        _body,
        rows=rows,
        num_features=num_features,
        width=num_features // num_heads,
        num_dimensions=x.shape[2] - NUM_FIRST - 1,
        do=Arithmetic(exact, interpret),
    )
    inputs = _sorted(x, rows, num_warps, interpret)
    if begun is None:
        return split_precision.launch(body, num_warps, interpret, packed, inputs, (size,))[..., :num]
    body, inputs = functools.partial(_body_of_leading, body), [*inputs, begun]
    found = split_precision.launch(body, num_warps, interpret, packed, inputs, begun.shape[2:])
    return found[:, :, :num, :num_features]


# Sorting


def _sorted(x, rows: int, num_warps: int, interpret: bool):
    """Columns of queries for sharpness 1 and nearest 0, in float32, and of keys, in halves; who stands where; and x.

    All with the fittest first, of equals by the tie-break, then by
    the index; empty slots last. A kernel of its own, because XLA sorts slowly, and compiles for minutes if it is to
    count who is ahead of whom (jax 0.11.2, H200).
    """
    num_rules, num_populations, num_inputs, size = x.shape
    total, num_columns = num_rules * num_populations, pair_columns(num_inputs - NUM_FIRST - 1)
    shapes = [(size, num_columns), (size, num_columns), (size,), (num_inputs, size)]
    dtypes = [jnp.float32, jnp.float16, jnp.int32, jnp.float32]

    def of_population(shape):
        return pl.BlockSpec((None, *shape), lambda i: (i, *[0] * len(shape)))

    found = split_precision.call(
        functools.partial(_sort_body, rows=rows),
        num_warps,
        interpret,
        grid=(total,),
        in_specs=[of_population((num_inputs, size))],
        out_specs=[of_population(shape) for shape in shapes],
        out_shape=[jax.ShapeDtypeStruct((total, *shape), dtype) for shape, dtype in zip(shapes, dtypes, strict=True)],
    )(x.reshape(total, num_inputs, size))
    return [array.reshape(num_rules, num_populations, *array.shape[1:]) for array in found]


def _sort_body(x_ref, query_ref, key_ref, order_ref, sorted_ref, *, rows: int):
    num_inputs, size = x_ref.shape
    tiles = [pl.ds(start, rows) for start in range(0, size, rows)]
    num_dimensions = num_inputs - NUM_FIRST - 1

    def keys(tile):
        """Both parts of the tie-break, the second one first, and the fitness, which counts most."""
        is_empty = x_ref[num_inputs - 1, tile] < 0
        return x_ref[3, tile], x_ref[2, tile], jnp.where(is_empty, -jnp.inf, x_ref[0, tile])

    for i, tile in enumerate(tiles):
        mine, index = keys(tile), i * rows + _iota(rows, 0)

        def count(j, ahead, mine=mine, index=index):
            is_ahead = j * rows + _iota(rows, 1) < index
            for my, their in zip(mine, keys(pl.ds(j * rows, rows)), strict=True):
                is_ahead = (their[None, :] > my[:, None]) | ((their[None, :] == my[:, None]) & is_ahead)
            return ahead + is_ahead.astype(jnp.int32)

        # A loop, to compile fast.
        ahead = jax.lax.fori_loop(0, len(tiles), count, jnp.zeros((rows, rows), jnp.int32))
        position = jnp.sum(ahead, axis=1)
        order_ref[position] = i * rows + jax.lax.broadcasted_iota(jnp.int32, (rows,), 0)
        for c in range(num_inputs):
            sorted_ref[c, position] = x_ref[c, tile]
        place = [x_ref[NUM_FIRST + c, tile][:, None] for c in range(num_dimensions)]
        query, key = _pairs(place, x_ref[num_inputs - 1, tile][:, None], query_ref.shape[1])
        query_ref[position, :] = query
        key_ref[position, :] = key


def _pairs(place, mask, num_columns: int):
    """Columns of queries and keys of these individuals; `place` and `mask` are columns (rows, 1)."""
    column, width = split_precision.columns(num_columns), len(place) + 1
    square = functools.reduce(jnp.add, (coordinate * coordinate for coordinate in place))
    one = jnp.ones_like(square)

    def filled(tripled, *others):
        result = jnp.zeros((square.shape[0], num_columns), jnp.float32)
        for c, value in enumerate(others):
            result = jnp.where(column == 3 * width + c, value, result)
        for c, value in enumerate(tripled):
            is_copy = (column == c) | (column == width + c) | (column == 2 * width + c)
            result = jnp.where(is_copy, value, result)
        return result

    constant = -(square + np.float32(recipe2.NEAR))
    query = filled([*(2 * coordinate for coordinate in place), -one], constant, constant, WALL * one)
    key = filled([*(UNIT * coordinate for coordinate in place), UNIT * square], UNIT * one, UNIT * one, mask)
    key = split_precision.high(split_precision.without(key, split_precision.low_columns(num_columns, width, 2))).astype(
        jnp.float16
    )
    return query * (LOG2_E / UNIT), key


def _body(
    query_ref, key_ref, order_ref, x_ref, embed_ref, sharpness_ref, value_ref, density_ref, out_ref, up_ref, down_ref,
    bias_ref, score_ref, found_ref, *, rows: int, num_features: int, width: int, num_dimensions: int, do: Arithmetic,
    begun_ref=None,
):  # fmt: skip
    """One population. Tiles of rows are unrolled, so that they overlap; layers and heads are loops, to compile fast."""
    num_layers, num_heads = value_ref.shape[:2]
    tiles = [pl.ds(start, rows) for start in range(0, x_ref.shape[1], rows)]
    keys = [key_ref[tile, :] for tile in tiles]
    groups = [
        range(start, min(start + split_precision.GROUP, len(tiles)))
        for start in range(0, len(tiles), split_precision.GROUP)
    ]
    once = 3 * (num_dimensions + 1)
    column = split_precision.columns(query_ref.shape[1])
    low_query = split_precision.low_columns(query_ref.shape[1], num_dimensions + 1, 1)
    low_query = jnp.where(column == once + 1, split_precision.KEEP, low_query)
    low_value = split_precision.low_columns(value_ref.shape[-1], width, 1)
    is_constant = jnp.where((column == once) | (column == once + 1), LOG2_E / UNIT, np.float32(0))
    before = _iota(rows, 1) < _iota(rows, 0)
    other = _iota(rows, 1) != _iota(rows, 0)

    def seen_by(i, only_fitter):
        """The tiles of keys that a tile of queries looks at."""
        return range(i + 1 if only_fitter else len(tiles))

    def ready(i, sharpness, least):
        """What a tile of queries brings into a product with keys."""
        if do.exact:
            return sharpness * LOG2_E, least - np.float32(recipe2.NEAR)
        return do.packed((query_ref[tiles[i], :] + least * is_constant) * sharpness, low_query)

    def logits(i, j, query):
        """Of a tile of queries with a tile of keys, whose number may be that of a loop."""
        if not do.exact:
            return dot_transposed(query, keys[j] if isinstance(j, int) else key_ref[pl.ds(j * rows, rows), :])
        other = tiles[j] if isinstance(j, int) else pl.ds(j * rows, rows)
        places = range(NUM_FIRST, NUM_FIRST + num_dimensions)
        differences = (x_ref[c, tiles[i]][:, None] - x_ref[c, other][None, :] for c in places)
        squared = functools.reduce(jnp.add, (difference * difference for difference in differences))
        is_empty = x_ref[NUM_FIRST + num_dimensions, other] < 0
        return jnp.where(is_empty[None, :], HIDDEN, query[0] * (query[1] - squared))

    def masked(logits, on_diagonal, only_fitter):
        if not on_diagonal:
            return logits
        return jnp.where(before if only_fitter else other, logits, HIDDEN)

    def nearest(i):
        """Squared distances of the nearest other and the nearest fitter one; one product serves both.

        A loop over the keys: this is done once, and would take as long to compile as all layers.
        """
        query = ready(i, jnp.ones((rows, 1), jnp.float32), jnp.zeros((rows, 1), jnp.float32))
        mine = i * rows + _iota(rows, 0)

        def look(j, tops):
            found, theirs = logits(i, j, query), j * rows + _iota(rows, 1)
            seen = theirs != mine, theirs < mine
            logits_seen = (jnp.where(is_seen, found, HIDDEN) for is_seen in seen)
            return tuple(jnp.maximum(top, one) for top, one in zip(tops, logits_seen, strict=True))

        tops = jax.lax.fori_loop(0, len(tiles), look, (jnp.full((rows, rows), HIDDEN),) * 2)
        least = []
        for top in tops:
            top = jnp.max(top, axis=1, keepdims=True)
            squared = jnp.maximum(top * np.float32(-1 / LOG2_E), np.float32(recipe2.NEAR))
            least.append(jnp.where(top < NONE, np.float32(recipe2.FAR), squared))
        return least

    def logarithm(squared):
        squared = jnp.clip(squared, np.float32(recipe2.NEAR), np.float32(recipe2.FAR))
        return 1 + do.log2(squared) * np.float32(0.25 / LOG2_E)

    def layer(index, xs, least):
        inputs = [do.normed(x, num_features) for x in xs]

        def head(which, xs, only_fitter):
            value, out = ((ref[index, which, 0], ref[index, which, 1]) for ref in (value_ref, out_ref))
            values = [do.packed(do.linear(x, value), low_value) for x in inputs]
            everywhere, relative = sharpness_ref[index, which, 0], sharpness_ref[index, which, 1]

            def sharpness(i):
                return jnp.clip(
                    everywhere + relative * do.reciprocal(least[i][only_fitter]),
                    np.float32(recipe2.BLUNTEST),
                    np.float32(recipe2.SHARPEST),
                )

            def attend(group):
                queries = {i: ready(i, sharpness(i), least[i][only_fitter]) for i in group}
                # Key by key over all rows: neighbours in this order do not wait for each other.
                totals: dict[int, jax.Array] = {}
                for j, i in [(j, i) for j in range(len(tiles)) for i in group if j in seen_by(i, only_fitter)]:
                    part = do.weighed(masked(logits(i, j, queries[i]), i == j, only_fitter), values[j])
                    totals[i] = totals[i] + part if i in totals else part
                return [finish(i, totals[i]) for i in group]

            def finish(i, total):
                norm = split_precision.column_of(total, 3 * width)
                alone = norm < np.float32(0.25)  # the nearest one counts 1
                norm = jnp.where(alone, np.float32(1), norm)
                upper, lower = do.split(total * do.reciprocal(norm))
                number = do.log2(norm) * np.float32(1 / LOG2_E)
                soft = least[i][only_fitter] - number * do.reciprocal(sharpness(i))
                distance = logarithm(jnp.where(alone, np.float32(recipe2.FAR), soft))
                x = xs[i] + number * density_ref[index, which, 0][None, :]
                x = x + distance * density_ref[index, which, 1][None, :]
                return x + dot(upper, out[0]) + dot(lower, out[1])

            return tuple(x for group in groups for x in attend(group))

        xs = tuple(x + bias_ref[index, 0][None, :] for x in xs)
        xs = jax.lax.fori_loop(0, num_heads // 2, lambda which, xs: head(which, xs, False), xs)
        xs = jax.lax.fori_loop(num_heads // 2, num_heads, lambda which, xs: head(which, xs, True), xs)
        up, down = ((ref[index, 0], ref[index, 1]) for ref in (up_ref, down_ref))
        return do.perceptron(xs, num_features, up, down, bias_ref[index, 1])

    # Each load takes time to compile: the compiler looks at all that depends on it, which is nearly everything.
    rows_of_embed = [embed_ref[c, :][None, :] for c in range(2 if begun_ref is not None else 0, 4)]
    orders = [order_ref[tile] for tile in tiles]

    def embedded(tile, order, least):
        distances = [*map(logarithm, least)]
        if begun_ref is not None:
            return begun_ref[order, :] + split_precision.embedded(distances, rows_of_embed)
        tokens = [*(x_ref[c, tile][:, None] for c in range(2)), *distances]
        return split_precision.embedded(tokens, rows_of_embed)

    least = [nearest(i) for i in range(len(tiles))]
    xs = tuple(embedded(*of_tile) for of_tile in zip(tiles, orders, least, strict=True))
    xs = jax.lax.fori_loop(0, num_layers, lambda index, xs: layer(index, xs, least), xs)
    for order, x in zip(orders, xs, strict=True):
        if begun_ref is not None:
            found_ref[order, :] = x
        else:
            found_ref[order] = do.scored(x, num_features, score_ref)


def _body_of_leading(body, query_ref, key_ref, order_ref, x_ref, begun_ref, *others):
    body(query_ref, key_ref, order_ref, x_ref, *others, begun_ref=begun_ref)


def _iota(num: int, axis: int):
    return jax.lax.broadcasted_iota(jnp.int32, (num, num), axis)
