"""The network of `network.py` as one kernel for NVIDIA GPUs: one program per population, nothing but scores written.

Exact where it is cheap. Tensor cores multiply half-precision numbers (11 bits), and a rule with sharp attention ranks
by less than that. So a number is split into two halves, what half precision holds and what it leaves, and a product
is three products of halves. In the attention these cost nothing: a head is 4 wide, a tensor core multiplies 16 deep,
and the 12 columns that were padding hold the halves:

    column     0..d-1    d..2d-1   2d..3d-1   3d       3d+1, 3d+2
    query      high      low       high       wall     minus the highest logit of the row, in two halves
    key        high      high      low        mask     constant
    value      high      low       high       1

One product of such a query with such a key is the logit to 21 bits, minus the highest of its row, and minus infinity
for an empty slot; one product of the exponentials with such values is what goes into the next layer and, by the ones,
the sum to divide by. Only the exponentials are plain halves; with `exact` they are two halves as well.

What can be is done to the weights beforehand: scale and bias of a layer norm go into the matrix after it; what is
written to the residual stream is centred, so that no norm has to subtract a mean; and as the features of a centred
row add up to 0, one of them carries the constant 1 instead, by which a matrix adds its bias.

Up to `MAX_FUSED` individuals everything stays in registers. Above, the attention alone is a kernel, by tiles of keys,
with memory linear in the number of individuals. Weights beyond what half precision holds run the plain version.
"""

import functools
import os
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.experimental import pallas as pl
from jaxtyping import Array, Bool, Float

from lqd.errors import InvalidInput
from lqd.evolution import network
from lqd.evolution.layers import LAYER_NORM_EPSILON, PRECISION, Params, linear
from lqd.evolution.network import Architecture

Packed = tuple[tuple[Array, ...], Bool[Array, ""]]

SETTING = "LQD_KERNEL"
CHOICES = {
    "auto": "the kernel on NVIDIA GPUs that can compile it, plain XLA elsewhere",
    "off": "always plain XLA, in float32",
    "fast": "the kernel, or an error",
    "exact": "the kernel with exponentials in two halves, which is float32 to about 1e-5, or an error",
    "interpret": "the steps of the exact kernel one by one on any device, for tests",
}
MAX_FUSED = 256  # individuals whose whole forward pass is one program
MAX_WIDTH = 64  # features, hidden units and columns of a packed head; wider networks run plain
LIMIT = 2.0**15  # half precision ends at 65,504
LIFT = 2.0**12  # the highest logit divided by this is what a query's column holds
WALL = 2.0**15  # squared, what an empty slot's logit falls by
KEEP = np.uint32(0xFFFFE000)  # the bits of a float32 that half precision holds


def choice() -> str:
    """What the environment variable `LQD_KERNEL` asks for; read when a rule is first used with new shapes."""
    value = os.environ.get(SETTING, "auto")
    if value not in CHOICES:
        meanings = "; ".join(f"{name!r}: {meaning}" for name, meaning in CHOICES.items())
        raise InvalidInput(f"the environment variable {SETTING} must be one of {meanings}. Got {value!r}.")
    return value


def fastest_forward(architecture: Architecture) -> functools.partial:
    """`network.forward`, or what computes the same faster on the device that work goes to by default."""
    asked = choice()
    if asked == "off" or (asked == "auto" and not (network.on_gpu() and supports(architecture) and _compiles())):
        return functools.partial(network.forward, attention=network.fastest_attention())
    if not supports(architecture):
        raise InvalidInput(
            f"{SETTING}={asked} needs feature recipe 1 and at most {MAX_WIDTH} features, hidden units and columns of a "
            f"packed head, got {architecture}. Use {SETTING}=auto."
        )
    return functools.partial(forward, exact=asked in ("exact", "interpret"), interpret=asked == "interpret")


def supports(architecture: Architecture) -> bool:
    if architecture.recipe != 1:
        return False
    head_columns = _head_columns(architecture.num_features // architecture.num_heads)
    return max(architecture.num_features, architecture.num_hidden, head_columns) <= MAX_WIDTH


@functools.cache
def _compiles() -> bool:
    """Whether this GPU's compiler accepts the kernel: tried once on a small one, with a warning if not."""
    architecture = Architecture(num_layers=1)
    shapes = jax.eval_shape(lambda: network.init_params(jax.random.key(0), architecture))
    x, filled = jax.ShapeDtypeStruct((32, 3), jnp.float32), jax.ShapeDtypeStruct((32,), bool)
    try:
        jax.jit(forward, static_argnums=1).lower(shapes, architecture.num_heads, x, filled).compile()
    except Exception as error:  # whatever a compiler may raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        warnings.warn(
            f"The fused kernel of the learned rule does not compile on this GPU ({reason}). Plain XLA is used instead, "
            f"which computes the same about ten times slower. {SETTING}=off asks for that without a warning.",
            stacklevel=2,
        )
        return False
    return True


def forward(
    params: Params,
    num_heads: int,
    x: Float[Array, "P D+1"],
    filled: Bool[Array, " P"],
    packed: Packed | None = None,
    exact: bool = False,
    interpret: bool = False,
) -> Float[Array, " P"]:
    """`network.forward`. Mapped over populations and over weights in any nesting, it stays one launch.

    `packed` is what `pack` makes of the weights, for those who call this often with the same ones.
    """
    weights = params, packed if packed is not None else pack(params, num_heads)
    one = jax.tree.map(lambda leaf: leaf[None], weights)
    return _forward_of(num_heads, exact, interpret)(one, x[None, None], filled[None, None])[0, 0]


@functools.cache
def _forward_of(num_heads: int, exact: bool, interpret: bool) -> Callable:
    """The function of M rules with K populations each, which maps to more rules or more populations of each."""

    def each_population(attention):
        def one(params, x, filled):
            return network.forward(params, num_heads, x, filled, attention)

        return jax.vmap(one, in_axes=(None, 0, 0))

    @custom_vmap
    def many(weights, x, filled):
        params, (packed, fits) = weights
        if x.shape[2] > MAX_FUSED:
            tiled = functools.partial(tiled_attention, exact=exact, interpret=interpret)
            return jax.vmap(each_population(tiled))(params, x, filled)
        fused = functools.partial(
            _fused,
            num_features=params["embed"]["weight"].shape[-1],
            num_heads=num_heads,
            exact=exact,
            interpret=interpret,
        )
        plain = each_population(network.fastest_attention())
        return jax.lax.cond(
            jnp.all(fits),
            lambda: fused(packed, x, filled),
            lambda: jax.lax.map(lambda one: plain(*one), (params, x, filled)),  # one by one: this must not need memory
        )

    @many.def_vmap
    def more(axis_size, in_batched, weights, x, filled):
        def batched(leaf, is_batched):
            return leaf if is_batched else jnp.broadcast_to(leaf, (axis_size, *leaf.shape))

        x, filled = batched(x, in_batched[1]), batched(filled, in_batched[2])
        if not any(jax.tree.leaves(in_batched[0])):  # more populations of the same rules

            def together(leaf):
                return jnp.moveaxis(leaf, 0, 1).reshape(leaf.shape[1], -1, *leaf.shape[3:])

            scores = many(weights, together(x), together(filled))
            return jnp.moveaxis(scores.reshape(x.shape[1], axis_size, *x.shape[2:4]), 1, 0), True
        weights = jax.tree.map(batched, weights, in_batched[0])
        merged = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (weights, x, filled))
        return many(*merged).reshape(x.shape[:-1]), True

    return many


# The weights


def _padded(num: int) -> int:
    """What a tensor core multiplies: a power of two of at least 16."""
    return max(16, 1 << (num - 1).bit_length())


def _head_columns(width: int) -> int:
    return _padded(3 * width + 3)


def _bits(x):
    return jax.lax.bitcast_convert_type(x, jnp.uint32)


def _floats(bits):
    return jax.lax.bitcast_convert_type(bits, jnp.float32)


def _high(x):
    """Truncated to what half precision holds. On bits, so that no compiler takes two conversions for none."""
    return _floats(_bits(x) & KEEP)


def _halves(weight):
    high = _high(weight)
    return high.astype(jnp.float16), (weight - high).astype(jnp.float16)


def _centred(weight):
    return weight - jnp.mean(weight, axis=-1, keepdims=True)


def _widened(array, axis: int, size: int):
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, size - array.shape[axis])
    return jnp.pad(array, widths)


def _with_bias(weight: Float[Array, "... F G"], bias: Float[Array, "... G"]) -> Float[Array, "... Fp G"]:
    """One matrix for features that add up to 0, the last of which (or a padded one) is then set to 1."""
    num = weight.shape[-2]
    if _padded(num) == num:
        weight = weight - weight[..., -1:, :]
    weight = _widened(weight, -2, _padded(num))
    return weight.at[..., -1, :].set(bias)


def _triple(array: Float[Array, "... d"], *others: float) -> Float[Array, "... W"]:
    """The columns of one head: three copies, then single ones."""
    copies = jnp.concatenate([array] * 3, axis=-1)
    rest = np.zeros(_head_columns(array.shape[-1]) - copies.shape[-1], np.float32)
    rest[: len(others)] = others
    return jnp.concatenate([copies, jnp.broadcast_to(rest, (*array.shape[:-1], rest.size))], axis=-1)


def pack(params: Params, num_heads: int) -> Packed:
    """The weights as the kernel reads them, and whether half precision holds all that it will make of them."""
    layers = params["layers"]
    num_layers, num_features, _ = layers["query"]["weight"].shape
    width, size = num_features // num_heads, _padded(num_features)
    product = functools.partial(jnp.einsum, precision=PRECISION)

    def after(norm, matrix):
        """Scale and bias of the norm before, taken over by the matrix."""
        weight, bias = matrix["weight"], matrix["bias"]
        return norm["scale"][..., None] * weight, bias + product("lf,lfg->lg", norm["bias"], weight)

    def reach(weight, bias):
        """The largest value that features of length sqrt(F) can give."""
        return jnp.sqrt(num_features * jnp.sum(weight**2, axis=-2)) + jnp.abs(bias)

    def heads(name):
        weight, bias = after(layers["norm_attention"], layers[name])
        weight = weight.reshape(num_layers, num_features, num_heads, width).swapaxes(1, 2)
        return weight, bias.reshape(num_layers, num_heads, width)

    query, key, value = heads("query"), heads("key"), heads("value")
    query = tuple(array * np.float32(np.log2(np.e) / np.sqrt(width)) for array in query)
    reach_query, reach_key = jnp.max(reach(*query), axis=-1), jnp.max(reach(*key), axis=-1)
    tilt = _power(0.5 * jnp.log2(reach_key / reach_query))  # of equal size, both are far from the ends of the range
    query = query[0] * tilt[..., None, None], query[1] * tilt[..., None]
    key = key[0] / tilt[..., None, None], key[1] / tilt[..., None]
    mixing = jnp.stack(
        [
            half
            for (weight, bias), others in ((query, (WALL,)), (key, (0.0, LIFT, LIFT)), (value, (1.0,)))
            for half in _halves(_with_bias(_triple(weight), _triple(bias, *others)))
        ],
        axis=2,
    )

    def residual(array):
        return _widened(_centred(array), -1, size)

    high, low = _halves(residual(layers["out"]["weight"]).reshape(num_layers, num_heads, width, size))
    zeros = jnp.zeros_like(high)
    out = [jnp.concatenate(rows, axis=2) for rows in ([high, high, low], [high, zeros, zeros])]
    out = _widened(jnp.stack(out, axis=2), 3, _head_columns(width))
    up_weight, up_bias = after(layers["norm_mlp"], layers["up"])
    num_hidden = _padded(up_weight.shape[-1])
    up = _widened(_with_bias(up_weight, up_bias), -1, num_hidden)
    down = _widened(residual(layers["down"]["weight"]), -2, num_hidden)
    biases = jnp.stack([residual(layers["out"]["bias"]), residual(layers["down"]["bias"])], axis=1)
    score = params["norm"]["scale"] * params["score"]["weight"][:, 0]
    score_bias = params["score"]["bias"][0] + product("f,f->", params["norm"]["bias"], params["score"]["weight"][:, 0])
    score = jnp.stack([_widened(score, 0, size), jnp.broadcast_to(score_bias, (size,))])
    packed = (
        residual(params["embed"]["weight"]),
        mixing,
        out,
        jnp.stack(_halves(up), axis=1),
        jnp.stack(_halves(down), axis=1),
        biases,
        score,
    )
    largest = [width * reach_query * reach_key, reach(*value), reach(up_weight, up_bias), mixing, out, up, down]
    fits = jnp.array([jnp.max(jnp.abs(array)) <= LIMIT for array in largest])  # not a number is not within
    return packed, jnp.all(fits)


def _power(exponent):
    """A power of two near that exponent; 1 where there is none."""
    exponent = jnp.where(jnp.isfinite(exponent), exponent, 0.0)
    return jnp.ldexp(jnp.float32(1), jnp.round(exponent).astype(jnp.int32))


# Arithmetic of a program


class _Arithmetic:
    """What a GPU has one instruction for, and the same in plain operations for the interpreter."""

    def __init__(self, interpret: bool):
        self.larger: Callable
        self.highest_type: Any
        if interpret:
            self.exp2, self.reciprocal, self.rsqrt, self.larger = jnp.exp2, lambda x: 1 / x, jax.lax.rsqrt, jnp.maximum
            self.truncated = lambda x: _high(x).astype(jnp.float16)
            self.highest_type = jnp.float32
            return
        self.exp2, self.reciprocal, self.rsqrt = (
            functools.partial(_assembly, f"{name}.approx.ftz.f32 $0, $1;", "=f,f", 1, jnp.float32)
            for name in ("ex2", "rcp", "rsqrt")
        )
        self.larger = functools.partial(_assembly, "max.f16x2 $0, $1, $2;", "=r,r,r", 2, jnp.float16)
        self.truncated = functools.partial(_assembly, "cvt.rz.f16x2.f32 $0, $2, $1;", "=r,f,f", 2, jnp.float16)
        self.highest_type = jnp.float16  # the highest logit need not be exact: it is only subtracted

    def split(self, x):
        high = _high(x)
        return self.truncated(high), self.truncated(x - high)

    def packed(self, x, low_columns):
        """The high half, and in some columns the low one: there the high bits are subtracted first."""
        return self.truncated(x - _floats(_bits(x) & jnp.broadcast_to(low_columns, x.shape)))

    def linear(self, halves, high, low):
        return _dot(halves[0], high) + _dot(halves[1], high) + _dot(halves[0], low)

    def lowered(self, query, highest, width):
        """The query with minus the highest logit of its row in the two columns for it."""
        column = _columns(query.shape[1])
        lift = highest * np.float32(-1 / LIFT)
        high = _high(lift)
        filling = jnp.where(column == 3 * width + 1, high, jnp.where(column == 3 * width + 2, lift - high, 0.0))
        return query + self.truncated(filling)

    def weighed(self, query, key, value, exact):
        """Values times the exponentials of the logits, summed over these keys."""
        weights = self.exp2(_dot_transposed(query, key))
        if not exact:
            return _dot(weights.astype(jnp.float16), value)
        high, low = self.split(weights)
        return _dot(high, value) + _dot(low, value)

    def normalised(self, total, width):
        norm = jnp.sum(jnp.where(_columns(total.shape[1]) == 3 * width, total, 0.0), axis=1, keepdims=True)
        return total * self.reciprocal(norm)


def _assembly(code: str, constraints: str, pack: int, dtype, *arguments):
    from jax.experimental.pallas import triton

    shape = jax.ShapeDtypeStruct(arguments[0].shape, dtype)
    [result] = triton.elementwise_inline_asm(
        code, args=arguments, constraints=constraints, pack=pack, result_shape_dtypes=[shape]
    )
    return result


def _columns(num: int):
    return jax.lax.broadcasted_iota(jnp.int32, (1, num), 1)


def _low_columns(num: int, width: int, which: int):
    column = _columns(num)
    return jnp.where((column >= which * width) & (column < (which + 1) * width), KEEP, np.uint32(0))


def _dot(a, b):
    return jax.lax.dot(a, b, preferred_element_type=jnp.float32)


def _dot_transposed(a, b, dtype: Any = jnp.float32):
    return jax.lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=dtype)


def _call(body, num_warps: int, interpret: bool, **arguments):
    if not interpret:
        from jax.experimental.pallas import triton

        arguments["compiler_params"] = triton.CompilerParams(num_warps=num_warps, num_stages=1)
    return pl.pallas_call(body, interpret=interpret, **arguments)


# The whole rule


def _fused(packed, x, filled, *, num_features: int, num_heads: int, exact: bool, interpret: bool):
    """Scores (M, K, P) of M rules on K populations each: a program per population."""
    num_rules, num_populations, num, num_inputs = x.shape
    rows, num_warps = (32, 2) if num <= 192 else (64, 4)  # 16 rows per warp: what one instruction multiplies
    size = -(-num // rows) * rows
    x = _widened(x, 2, size).swapaxes(2, 3)
    mask = jnp.where(_widened(filled, 2, size), 0.0, -WALL).astype(jnp.float32)

    def of_rule(array):
        return pl.BlockSpec((None, *array.shape[1:]), lambda i: (i // num_populations, *[0] * (array.ndim - 1)))

    def of_population(*shape):
        return pl.BlockSpec((None, *shape), lambda i: (i, *[0] * len(shape)))

    body = functools.partial(
        _rule_body, rows=rows, num_features=num_features, width=num_features // num_heads,
        exact=exact, do=_Arithmetic(interpret),
    )  # fmt: skip
    total = num_rules * num_populations
    scores = _call(
        body,
        num_warps,
        interpret,
        grid=(total,),
        in_specs=[of_population(num_inputs, size), of_population(size), *map(of_rule, packed)],
        out_specs=of_population(size),
        out_shape=jax.ShapeDtypeStruct((total, size), jnp.float32),
    )(x.reshape(total, num_inputs, size), mask.reshape(total, size), *packed)
    return scores.reshape(num_rules, num_populations, size)[..., :num]


def _rule_body(
    x_ref, mask_ref, embed_ref, mixing_ref, out_ref, up_ref, down_ref, bias_ref, score_ref, scores_ref,
    *, rows: int, num_features: int, width: int, exact: bool, do: _Arithmetic,
):  # fmt: skip
    """One population. Tiles of rows are unrolled, so that they overlap; layers and heads are loops, to compile fast."""
    num_layers, num_heads = mixing_ref.shape[:2]
    tiles = [pl.ds(start, rows) for start in range(0, mask_ref.shape[0], rows)]
    column, feature = _columns(mixing_ref.shape[-1]), _columns(embed_ref.shape[1])
    low_second, low_third = (_low_columns(mixing_ref.shape[-1], width, which) for which in (1, 2))

    def scale(x):
        square = jnp.sum(x * x, axis=1, keepdims=True) * np.float32(1 / num_features)
        return do.rsqrt(square + np.float32(LAYER_NORM_EPSILON))

    def normed(x):
        return do.split(jnp.where(feature == feature.shape[1] - 1, np.float32(1), x * scale(x)))

    def embedded(rows):
        columns = (x_ref[c, rows][:, None] * embed_ref[c, :][None, :] for c in range(embed_ref.shape[0]))
        return functools.reduce(jnp.add, columns)

    def layer(index, xs):
        inputs = [normed(x) for x in xs]

        def head(which, xs):
            query, query_low, key, key_low, value, value_low = (mixing_ref[index, which, i] for i in range(6))
            out, out_low = out_ref[index, which, 0], out_ref[index, which, 1]
            keys = [
                jnp.where(column == 3 * width, mask_ref[rows][:, None], do.linear(x, key, key_low))
                for rows, x in zip(tiles, inputs, strict=True)
            ]
            keys = [do.packed(key, low_third) for key in keys]
            values = [do.packed(do.linear(x, value, value_low), low_second) for x in inputs]
            queries = [do.packed(do.linear(x, query, query_low), low_second) for x in inputs]
            logits = [[_dot_transposed(query, key, do.highest_type) for key in keys] for query in queries]
            highest = [functools.reduce(do.larger, row).astype(jnp.float32) for row in logits]
            highest = [jnp.max(row, axis=1, keepdims=True) for row in highest]
            queries = [do.lowered(query, top, width) for query, top in zip(queries, highest, strict=True)]
            # Key by key over all rows: neighbours in this order do not wait for each other.
            parts = [[do.weighed(query, *pair, exact) for query in queries] for pair in zip(keys, values, strict=True)]
            totals = [functools.reduce(jnp.add, row) for row in zip(*parts, strict=True)]
            mixed = [do.split(do.normalised(total, width)) for total in totals]
            return tuple(x + _dot(high, out) + _dot(low, out_low) for x, (high, low) in zip(xs, mixed, strict=True))

        xs = tuple(x + bias_ref[index, 0][None, :] for x in xs)
        xs = jax.lax.fori_loop(0, num_heads, head, xs)
        hidden = [do.linear(normed(x), up_ref[index, 0], up_ref[index, 1]) for x in xs]
        hidden = [do.split(_gelu(do, u)) for u in hidden]
        biased = [x + bias_ref[index, 1][None, :] for x in xs]
        return tuple(
            x + do.linear(u, down_ref[index, 0], down_ref[index, 1]) for x, u in zip(biased, hidden, strict=True)
        )

    xs = jax.lax.fori_loop(0, num_layers, layer, tuple(map(embedded, tiles)))
    for tile, x in zip(tiles, xs, strict=True):
        scores = jnp.sum(x * scale(x) * score_ref[0, :][None, :], axis=1)
        scores_ref[tile] = scores + score_ref[1, 0]


def _gelu(do: _Arithmetic, x):
    """The form with tanh, as x times a sigmoid; the constants hold the base of the exponential."""
    slope = -2 * np.sqrt(2 / np.pi) * np.log2(np.e)
    return x * do.reciprocal(1 + do.exp2(x * (np.float32(slope) + np.float32(0.044715 * slope) * x * x)))


# The attention alone


def tiled_attention(
    layer: Params, x: Float[Array, "P F"], filled: Bool[Array, " P"], num_heads: int, exact: bool, interpret: bool
) -> Float[Array, "P F"]:
    """`network._attention` for any number of individuals: a program per head and tile of queries, a loop over keys."""
    num, num_features = x.shape
    width, rows = num_features // num_heads, 64
    size = -(-num // rows) * rows
    do = _Arithmetic(interpret)

    def heads(name, factor=1.0):
        array = linear(layer[name], x) * np.float32(factor)
        return _widened(array.reshape(num, num_heads, width).swapaxes(0, 1), 1, size)

    query, key, value = heads("query", np.log2(np.e) / np.sqrt(width)), heads("key"), heads("value")
    reach = [jnp.max(jnp.abs(array)) for array in (query, key)]
    # Of equal size, and no larger than is exact: logits beyond 2^26 differ by more than float32 resolves anyway.
    tilt = _power(0.5 * jnp.log2(reach[1] / reach[0]))
    cap = _power(jnp.minimum(0.0, jnp.floor(12 - 0.5 * jnp.log2(reach[0] * reach[1]))))
    shrink = _power(jnp.minimum(0.0, jnp.floor(15 - jnp.log2(jnp.max(jnp.abs(value))))))
    mask = jnp.where(_widened(filled, 0, size), 0.0, -WALL)
    num_columns = _head_columns(width)
    key = _triple(key * (cap / tilt), 0.0, LIFT, LIFT)
    key = jnp.where(_columns(num_columns) == 3 * width, mask[:, None], key)
    packed = [
        _packed_plain(array, num_columns, width, which)
        for array, which in ((_triple(query * (cap * tilt), WALL), 1), (key, 2), (_triple(value * shrink, 1.0), 1))
    ]
    num_tiles = size // rows

    def of_tile(*shape):
        return pl.BlockSpec((None, rows, *shape), lambda i: (i // num_tiles, i % num_tiles, *[0] * len(shape)))

    def of_head(*shape):
        return pl.BlockSpec((None, size, *shape), lambda i: (i // num_tiles, 0, *[0] * len(shape)))

    total = _call(
        functools.partial(_attention_body, rows=rows, width=width, exact=exact, do=do),
        4,
        interpret,
        grid=(num_heads * num_tiles,),
        in_specs=[of_tile(num_columns), of_head(num_columns), of_head(num_columns)],
        out_specs=of_tile(num_columns),
        out_shape=jax.ShapeDtypeStruct((num_heads, size, num_columns), jnp.float32),
    )(*packed)
    mixed = (total[:, :num, :width] + total[:, :num, width : 2 * width]) / shrink
    return linear(layer["out"], mixed.swapaxes(0, 1).reshape(num, num_features))


def _packed_plain(x, num_columns: int, width: int, which: int):
    low = _low_columns(num_columns, width, which)
    return _high(x - _floats(_bits(x) & jnp.broadcast_to(low, x.shape))).astype(jnp.float16)


def _attention_body(query_ref, key_ref, value_ref, out_ref, *, rows: int, width: int, exact: bool, do: _Arithmetic):
    query = query_ref[...]
    num_tiles = key_ref.shape[0] // rows

    def tile(ref, i):
        return ref[pl.ds(pl.multiple_of(i * rows, rows), rows), :]

    def higher(i, highest):
        return jnp.maximum(highest, jnp.max(_dot_transposed(query, tile(key_ref, i)), axis=1, keepdims=True))

    highest = jax.lax.fori_loop(0, num_tiles, higher, jnp.full((rows, 1), -(WALL**2) * 2, jnp.float32))
    query = do.lowered(query, highest, width)

    def add(i, total):
        return total + do.weighed(query, tile(key_ref, i), tile(value_ref, i), exact)

    total = jax.lax.fori_loop(0, num_tiles, add, jnp.zeros((rows, query.shape[1]), jnp.float32))
    out_ref[...] = do.normalised(total, width)
