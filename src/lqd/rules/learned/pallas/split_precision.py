"""Numbers as two halves, and what programs of both feature recipes are made of.

Tensor cores multiply half-precision numbers (11 bits), and a rule with sharp attention ranks by less than that. So a
number is split into what half precision holds and what it leaves, and a product is three products of halves. In the
attention these cost nothing: a head is narrow, a tensor core multiplies 16 deep, and the columns that were padding hold
the halves. Of a query q, a key k and values v of width d:

    column     0..d-1    d..2d-1   2d..3d-1   3d ...
    query      high      low       high       columns of their own
    key        high      high      low        columns of their own
    value      high      low       high       1

One product of such a query with such a key is the logit to 21 bits; one product of the exponentials with such values is
what goes into the next layer and, by the ones, the sum to divide by. Only the exponentials are plain halves; with
`exact` they are two halves as well.

What can be is done to the weights beforehand: scale and bias of a layer norm go into the matrix after it; what is
written to the residual stream is centred, so that no norm has to subtract a mean; and as the features of a centred
row add up to 0, one of them carries the constant 1 instead, by which a matrix adds its bias.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jaxtyping import Array, Bool, Float

from lqd.rules.learned.layers import LAYER_NORM_EPSILON, PRECISION, Params

LIMIT = 2.0**15  # half precision ends at 65,504
WALL = 2.0**15  # squared, what an empty slot's logit falls by
KEEP = np.uint32(0xFFFFE000)  # the bits of a float32 that half precision holds
LOG2_E = np.float32(math.log2(math.e))
GROUP = 2  # tiles of rows side by side: more run out of registers, fewer wait for each other


def padded(num: int) -> int:
    """What a tensor core multiplies: a power of two of at least 16."""
    return max(16, 1 << (num - 1).bit_length())


def bits(x):
    return jax.lax.bitcast_convert_type(x, jnp.uint32)


def floats(x):
    return jax.lax.bitcast_convert_type(x, jnp.float32)


def high(x):
    """Truncated to what half precision holds. On bits, so that no compiler takes two conversions for none."""
    return floats(bits(x) & KEEP)


def columns(num: int):
    return jax.lax.broadcasted_iota(jnp.int32, (1, num), 1)


def low_columns(num: int, width: int, which: int):
    """Which columns hold low halves: all bits that a half holds there, none elsewhere."""
    column = columns(num)
    return jnp.where((column >= which * width) & (column < (which + 1) * width), KEEP, np.uint32(0))


def without(x, low):
    """What remains of a number if its high half is taken away, in the columns of low halves."""
    return x - floats(bits(x) & jnp.broadcast_to(low, x.shape))


# The weights


def halves(weight):
    upper = high(weight)
    return upper.astype(jnp.float16), (weight - upper).astype(jnp.float16)


def centred(weight):
    return weight - jnp.mean(weight, axis=-1, keepdims=True)


def widened(array, axis: int, size: int):
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, size - array.shape[axis])
    return jnp.pad(array, widths)


def with_bias(weight: Float[Array, "... F G"], bias: Float[Array, "... G"]) -> Float[Array, "... Fp G"]:
    """One matrix for features that add up to 0, the last of which (or a padded one) is then set to 1."""
    num = weight.shape[-2]
    if padded(num) == num:
        weight = weight - weight[..., -1:, :]
    weight = widened(weight, -2, padded(num))
    return weight.at[..., -1, :].set(bias)


def tripled(array: Float[Array, "... d"], num_columns: int, *others: float) -> Float[Array, "... W"]:
    """The columns of one head: three copies, then single ones."""
    copies = jnp.concatenate([array] * 3, axis=-1)
    rest = np.zeros(num_columns - copies.shape[-1], np.float32)
    rest[: len(others)] = others
    return jnp.concatenate([copies, jnp.broadcast_to(rest, (*array.shape[:-1], rest.size))], axis=-1)


def after(norm: Params, matrix: Params):
    """Weight and bias of a matrix that has taken over scale and bias of the norm before it."""
    weight, bias = matrix["weight"], matrix["bias"]
    return norm["scale"][..., None] * weight, bias + jnp.einsum("lf,lfg->lg", norm["bias"], weight, precision=PRECISION)


def reach(weight: Float[Array, "... F G"], bias: Float[Array, "... G"]) -> Float[Array, "... G"]:
    """The largest value that normed features can give: their length is sqrt(F)."""
    return jnp.sqrt(weight.shape[-2] * jnp.sum(weight**2, axis=-2)) + jnp.abs(bias)


def by_head(weight: Float[Array, "L F G"], bias: Float[Array, "L G"], num_heads: int):
    num_layers, num_features, _ = weight.shape
    weight = weight.reshape(num_layers, num_features, num_heads, -1).swapaxes(1, 2)
    return weight, bias.reshape(num_layers, num_heads, -1)


def residual(array: Float[Array, "... F"]) -> Float[Array, "... Fp"]:
    """What is added to the residual stream: centred."""
    return widened(centred(array), -1, padded(array.shape[-1]))


def packed_perceptron(params: Params, num_heads: int, num_columns: int):
    """Matrices out of the heads, up and down, all biases, what outputs are read off with; and the magnitudes to be held
    by a half."""
    layers = params["layers"]
    num_layers, num_features, _ = layers["out"]["weight"].shape
    width, size = num_features // num_heads, padded(num_features)
    upper, lower = halves(residual(layers["out"]["weight"]).reshape(num_layers, num_heads, width, size))
    zeros = jnp.zeros_like(upper)
    out = [jnp.concatenate(rows, axis=2) for rows in ([upper, upper, lower], [upper, zeros, zeros])]
    out = widened(jnp.stack(out, axis=2), 3, num_columns)
    up_weight, up_bias = after(layers["norm_mlp"], layers["up"])
    num_hidden = padded(up_weight.shape[-1])
    up = widened(with_bias(up_weight, up_bias), -1, num_hidden)
    down = widened(residual(layers["down"]["weight"]), -2, num_hidden)
    biases = jnp.stack([residual(layers["out"]["bias"]), residual(layers["down"]["bias"])], axis=1)
    matrices = out, jnp.stack(halves(up), axis=1), jnp.stack(halves(down), axis=1), biases, _score(params, size)
    return matrices, [reach(up_weight, up_bias), out, up, down]


def _score(params: Params, size: int) -> Float[Array, "2 Fp"]:
    """What the score is read off with, the norm's scale in it; and a row that begins with the bias."""
    weight, bias = params["score"]["weight"][:, 0], params["score"]["bias"]
    bias = bias + jnp.sum(weight * params["norm"]["bias"])
    return jnp.stack([widened(params["norm"]["scale"] * weight, 0, size), widened(bias, 0, size)])


def hold(magnitudes: Sequence[Array]) -> Bool[Array, ""]:
    """Whether half precision holds all of them; not a number is not held."""
    return jnp.all(jnp.array([jnp.max(jnp.abs(array)) <= LIMIT for array in magnitudes]))


def power(exponent):
    """A power of two near that exponent; 1 where there is none."""
    exponent = jnp.where(jnp.isfinite(exponent), exponent, 0.0)
    return jnp.ldexp(jnp.float32(1), jnp.round(exponent).astype(jnp.int32))


# The steps of a program


class Arithmetic:
    """What a GPU has one instruction for, and the same in plain operations for the interpreter."""

    def __init__(self, exact: bool, interpret: bool):
        self.exact = exact
        self.larger: Callable
        self.highest_type: Any
        if interpret:
            self.exp2, self.log2, self.rsqrt = jnp.exp2, jnp.log2, jax.lax.rsqrt
            self.reciprocal, self.larger = lambda x: 1 / x, jnp.maximum
            self.truncated = lambda x: high(x).astype(jnp.float16)
            self.highest_type = jnp.float32
            return
        self.exp2, self.log2, self.rsqrt, self.reciprocal = (
            functools.partial(_assembly, f"{name}.approx.ftz.f32 $0, $1;", "=f,f", 1, jnp.float32)
            for name in ("ex2", "lg2", "rsqrt", "rcp")
        )
        self.larger = functools.partial(_assembly, "max.f16x2 $0, $1, $2;", "=r,r,r", 2, jnp.float16)
        self.truncated = functools.partial(_assembly, "cvt.rz.f16x2.f32 $0, $2, $1;", "=r,f,f", 2, jnp.float16)
        self.highest_type = jnp.float16  # the highest logit need not be exact: it is only subtracted

    def split(self, x):
        upper = high(x)
        return self.truncated(upper), self.truncated(x - upper)

    def packed(self, x, low):
        """The high half, and in some columns the low one."""
        return self.truncated(without(x, low))

    def linear(self, x, matrix):
        (x_high, x_low), (m_high, m_low) = x, matrix
        return dot(x_high, m_high) + dot(x_low, m_high) + dot(x_high, m_low)

    def weighed(self, logits, value):
        """Values times the exponentials of the logits, summed over these keys."""
        weights = self.exp2(logits)
        if not self.exact:
            return dot(weights.astype(jnp.float16), value)
        upper, lower = self.split(weights)
        return dot(upper, value) + dot(lower, value)

    def scale(self, x, num_features: int):
        square = jnp.sum(x * x, axis=1, keepdims=True) * np.float32(1 / num_features)
        return self.rsqrt(square + np.float32(LAYER_NORM_EPSILON))

    def normed(self, x, num_features: int):
        """In two halves, the last feature being the constant 1."""
        last = columns(x.shape[1]) == x.shape[1] - 1
        return self.split(jnp.where(last, np.float32(1), x * self.scale(x, num_features)))

    def gelu(self, x):
        """The form with tanh, as x times a sigmoid; the constants hold the base of the exponential."""
        slope = -2 * np.sqrt(2 / np.pi) * LOG2_E
        exponent = x * (np.float32(slope) + np.float32(0.044715 * slope) * x * x)
        return x * self.reciprocal(1 + self.exp2(exponent))

    def perceptron(self, xs, num_features: int, up, down, bias):
        hidden = [self.linear(self.normed(x, num_features), up) for x in xs]
        hidden = [self.split(self.gelu(u)) for u in hidden]
        return tuple(x + bias[None, :] + self.linear(u, down) for x, u in zip(xs, hidden, strict=True))

    def scored(self, x, num_features: int, score_ref):
        normed = x * self.scale(x, num_features)
        return jnp.sum(normed * score_ref[0, :][None, :], axis=1) + score_ref[1, 0]


def _assembly(code: str, constraints: str, pack: int, dtype, *arguments):
    from jax.experimental.pallas import triton

    shape = jax.ShapeDtypeStruct(arguments[0].shape, dtype)
    [result] = triton.elementwise_inline_asm(
        code, args=arguments, constraints=constraints, pack=pack, result_shape_dtypes=[shape]
    )
    return result


def dot(a, b):
    return jax.lax.dot(a, b, preferred_element_type=jnp.float32)


def dot_transposed(a, b, dtype: Any = jnp.float32):
    return jax.lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=dtype)


def column_of(total, which: int):
    return jnp.sum(jnp.where(columns(total.shape[1]) == which, total, 0.0), axis=1, keepdims=True)


def embedded(tokens, matrix):
    """Columns of tokens (rows, 1) times a small matrix, given as its rows (1, F)."""
    return functools.reduce(jnp.add, (token * row for token, row in zip(tokens, matrix, strict=True)))


# The launch


def call(body, num_warps: int, interpret: bool, **arguments):
    if not interpret:
        from jax.experimental.pallas import triton

        arguments["compiler_params"] = triton.CompilerParams(num_warps=num_warps, num_stages=1)
    return pl.pallas_call(body, interpret=interpret, **arguments)


def tiling(num: int) -> tuple[int, int, int]:
    """Rows of a tile, warps, and the number of individuals in whole tiles: 16 rows per warp is what one instruction
    multiplies."""
    rows, num_warps = (32, 2) if num <= 192 else (64, 4)
    return rows, num_warps, -(-num // rows) * rows


def launch(body, num_warps: int, interpret: bool, packed, inputs, shape: tuple[int, ...]):
    """What (M, K, *shape) M rules find of K populations each: a program per population, with inputs (M, K, ...) and
    weights (M, ...)."""
    num_rules, num_populations = inputs[0].shape[:2]
    total = num_rules * num_populations

    def of_rule(array):
        return pl.BlockSpec((None, *array.shape[1:]), lambda i: (i // num_populations, *[0] * (array.ndim - 1)))

    def of_population(*shape):
        return pl.BlockSpec((None, *shape), lambda i: (i, *[0] * len(shape)))

    found = call(
        body,
        num_warps,
        interpret,
        grid=(total,),
        in_specs=[*(of_population(*array.shape[2:]) for array in inputs), *map(of_rule, packed)],
        out_specs=of_population(*shape),
        out_shape=jax.ShapeDtypeStruct((total, *shape), jnp.float32),
    )(*(array.reshape(total, *array.shape[2:]) for array in inputs), *packed)
    return found.reshape(num_rules, num_populations, *shape)
