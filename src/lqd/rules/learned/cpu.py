"""Recipes 1 and 2 for a CPU: the same numbers in half to two thirds of the time. Not mapped, and without derivative.

Individuals are along the last axis, a table of pairs has who is seen along its first axis and who looks along its last,
which keeps vectors long. Those who look are taken in groups, whose tables stay in the cache. The sum of weights is one
more column of the values, and exponentials are a short polynomial.

Recipe 1: no table is searched for its highest entry. Products of queries and keys are no larger than their lengths are
together, so they are shifted only where this bound is too high for an exponential. Keys count from their mean, which
changes no weight and makes them shorter. Where even that is not enough, the layer is computed plain.

Recipe 2: individuals are sorted by fitness once, so that the fitter ones are those before, and a head that sees only
those stops at the end of the group. Who is not seen is `UNSEEN` away and weighs exactly 0.

Recipe 3 could be computed so, too, but searches on the host and compiled ones then differed in the last bits, and with
them all later children: what says how far they go has to be the same.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lqd.rules.learned import layers, recipe1, recipe2
from lqd.rules.learned.layers import PRECISION, Params
from lqd.rules.learned.recipe2 import BLUNTEST, FAR, NEAR, NUM_FIRST, NUM_KINDS, SHARPEST

MOST = 2048  # individuals: tables of all pairs take memory
GROUP, MAX_GROUPS = 80, 16  # individuals that look at once, or somewhat more
LEAST = 110  # individuals with recipe 1: of fewer the plain version is as fast
TABLE = 102_400  # entries of a group's tables in recipe 1, about as many
HIGHEST, BEYOND = 60.0, 160.0  # of an exponent of 2, and of the bound: from there on the highest could be too low
UNSEEN = 1e30  # a squared distance
LOWEST = -127.0  # from this exponent of 2 down a weight is 0
# 2**f for f from -1/2 to 1/2, from the highest power down: exactly 1 at 0, its relative error is at most 1e-7.
POLYNOMIAL = (0.0013264727, 0.0096715127, 0.0555073374, 0.2402224208, 0.6931469776, 1.0)
SHIFT = np.float32(1.5 * 2**23)  # numbers near it have no digits after the point
GELU = np.float32(np.sqrt(2 / np.pi)), np.float32(np.sqrt(2 / np.pi) * 0.044715)


def supports(params: Params, num: int) -> bool:
    """Whether it computes this network for this many individuals."""
    return "breeding" not in params and (0 if "sharpness" in params["layers"] else LEAST) <= num <= MOST


def forward(params: Params, num_heads: int, x: Float[Array, "P C"], filled: Bool[Array, " P"]) -> Float[Array, " P"]:
    """`network.forward`, for recipes 1 and 2."""
    of_recipe = hidden if "sharpness" in params["layers"] else hidden_of_paper
    return layers.scored(params, of_recipe(params, num_heads, x, filled))


def power_of_two(exponent: Float[Array, "..."]) -> Float[Array, "..."]:
    """2**exponent for exponents up to 127, and exactly 0 from `LOWEST` down.

    A sum with `SHIFT` has the nearest whole number in its last bits. They become the exponent of the result. The
    difference is taken of whole numbers, as XLA would see that adding and subtracting one number changes nothing.
    """
    exponent = jnp.where(exponent > LOWEST, exponent, LOWEST)
    bits = jax.lax.bitcast_convert_type(exponent + SHIFT, jnp.int32)
    rest = exponent - (bits - SHIFT.view(np.int32)).astype(jnp.float32)
    power = jnp.full_like(rest, POLYNOMIAL[0])
    for coefficient in POLYNOMIAL[1:]:
        power = power * rest + np.float32(coefficient)
    return power * jax.lax.bitcast_convert_type((bits << 23) + np.int32(127 << 23), jnp.float32)


def _product(weight, x):
    return jnp.matmul(weight, x, precision=PRECISION)


def _layer_norm(norm: Params, x: Float[Array, "F P"]) -> Float[Array, "F P"]:
    """`layers.layer_norm`, with individuals along the last axis."""
    centred = x - jnp.mean(x, axis=0)
    variance = jnp.mean(centred**2, axis=0)
    scaled = centred * jax.lax.rsqrt(variance + layers.LAYER_NORM_EPSILON)
    return scaled * norm["scale"][:, None] + norm["bias"][:, None]


def _twice_gelu(x):
    """With so few operations that XLA does not wake other cores for it."""
    return x * (1 + jnp.tanh(x * (GELU[0] + GELU[1] * (x * x))))


def _perceptron(params: Params, x: Float[Array, "F P"]) -> Float[Array, "F P"]:
    """`layers.perceptron`; the matrix after the GELU has half of it."""
    up = _product(params["up"], _layer_norm(params["norm_mlp"], x)) + params["up_bias"][:, None]
    return x + (_product(params["down"], _twice_gelu(up)) + params["down_bias"][:, None])


def _of_perceptron(params: Params) -> Params:
    return {
        "norm_mlp": params["norm_mlp"],
        "up": _transposed(params["up"]),
        "up_bias": params["up"]["bias"],
        "down": _transposed(params["down"]) / 2,
        "down_bias": params["down"]["bias"],
    }


def _transposed(linear: Params) -> Float[Array, "L G F"]:
    return jnp.swapaxes(linear["weight"], 1, 2)


def _embedded(weights: Float[Array, "C F"], tokens) -> Float[Array, "F P"]:
    """A sum: as a product of matrices it has other last bits where a program knows the weights beforehand."""
    return sum((weight[:, None] * token for weight, token in zip(weights, tokens, strict=True)), start=jnp.float32(0))


def _groups(num: int, at_least: int = GROUP) -> list[slice]:
    size = -(-num // min(MAX_GROUPS, max(1, num // at_least)))
    return [slice(start, min(start + size, num)) for start in range(0, num, size)]


def _tables(place: Float[Array, "D P"], filled: Bool[Array, " P"], group: slice):
    """Squared distances of all others, and of fitter ones, from those of a group; sorted by fitness."""
    index = jnp.arange(len(filled))
    squared = sum(((column[:, None] - column[group]) ** 2 for column in place), start=jnp.float32(NEAR))
    others = jnp.where(filled[:, None] & (index[:, None] != index[group]), squared, UNSEEN)
    return others, jnp.where(index[: group.stop, None] < index[group], others[: group.stop], UNSEEN)


def _ordered(params: Params, num_heads: int) -> tuple[Params, np.ndarray]:
    """The layers' weights as they are used here, and which heads of theirs these are.

    First those that see all others. Matrices are transposed.
    """
    heads = np.argsort(np.arange(num_heads) % NUM_KINDS // 2, kind="stable")
    value, out = params["value"], params["out"]["weight"]
    columns = np.arange(out.shape[1]).reshape(num_heads, -1)[heads].reshape(-1)
    rows_of_density = np.concatenate([heads, num_heads + heads])
    read = jnp.concatenate([out[:, columns], params["density"]["weight"][:, rows_of_density]], axis=1)
    return {
        "norm_attention": params["norm_attention"],
        "sharpness": params["sharpness"][:, heads],
        "value": jnp.swapaxes(value["weight"][:, :, columns], 1, 2),
        "value_bias": value["bias"][:, columns],
        "read": jnp.swapaxes(read, 1, 2),
        "read_bias": params["out"]["bias"],
        **_of_perceptron(params),
    }, heads


def hidden(params: Params, num_heads: int, x: Float[Array, "P C"], filled: Bool[Array, " P"]) -> Float[Array, "P F"]:
    """`recipe2.hidden`."""
    num = x.shape[0]
    # The last key is the place, as the sort is stable: of equals in everything the first one counts as fitter.
    *_, order = jax.lax.sort((-x[:, 0], -x[:, 2], -x[:, 3], jnp.arange(num)), num_keys=3, is_stable=True)
    x, filled = x[order].T, filled[order]
    groups = _groups(num)
    tables = [_tables(x[NUM_FIRST:], filled, group) for group in groups]
    least = jnp.concatenate([jnp.stack([jnp.min(table, axis=0) for table in pair]) for pair in tables], axis=1)
    nobody = least >= UNSEEN
    nearest = jnp.where(nobody, FAR, least)

    of_layers, heads = _ordered(params["layers"], num_heads)
    half = num_heads // 2
    alone, nearest_of_head = (jnp.repeat(two, half, axis=0) for two in (nobody, nearest))
    unit = jnp.where(heads[:, None] % 2 == 1, nearest_of_head, 1.0)

    def attend(value, slope, group, of_group):
        """Sums of values, and of weights, over whom those of a group see."""

        def of_kind(table, distance, mine):
            weights = power_of_two(slope[mine, None, group] * (table - distance[group]))
            return _product(value[mine, :, : len(table)], weights)

        others, fitter = slice(half), slice(half, None)
        return jnp.concatenate([of_kind(of_group[0], nearest[0], others), of_kind(of_group[1], nearest[1], fitter)])

    def layer(x, params):
        value = _product(params["value"], _layer_norm(params["norm_attention"], x)) + params["value_bias"][:, None]
        value = value.reshape(num_heads, -1, num)
        value = jnp.concatenate([value, jnp.ones_like(value[:, :1])], axis=1)
        sharp = jnp.clip(jnp.exp(params["sharpness"])[:, None] / unit, BLUNTEST, SHARPEST)
        slope = np.float32(-1 / np.log(2)) * sharp
        of_groups = [attend(value, slope, group, of_group) for group, of_group in zip(groups, tables, strict=True)]
        sums = jnp.concatenate(of_groups, axis=-1)
        total = jnp.where(alone, 1.0, sums[:, -1])
        number = jnp.log(total)
        distance = jnp.where(alone, FAR, nearest_of_head - number / sharp)
        mixed = (sums[:, :-1] / total[:, None]).reshape(x.shape)
        read = jnp.concatenate([mixed, number, recipe2._logarithm(distance)])
        x = x + (_product(params["read"], read) + params["read_bias"][:, None])
        return _perceptron(params, x), None

    x = _embedded(params["embed"]["weight"], [*x[:2], *recipe2._logarithm(nearest)])
    x = jax.lax.scan(layer, x, of_layers)[0].T
    return jnp.zeros_like(x).at[order].set(x, unique_indices=True)


# Recipe 1


def hidden_of_paper(
    params: Params, num_heads: int, x: Float[Array, "P C"], filled: Bool[Array, " P"]
) -> Float[Array, "P F"]:
    """The last layer of `recipe1.forward`."""
    num, plain = x.shape[0], params["layers"]
    groups = _groups(num, at_least=max(1, TABLE // (num_heads * num)))
    counts = filled.astype(x.dtype)
    share = counts / jnp.maximum(jnp.sum(counts), 1.0)  # of each in the mean
    of_layers = {
        "three": {
            "weight": jnp.concatenate([_transposed(plain[name]) for name in ("query", "key", "value")], axis=1),
            "bias": jnp.concatenate([plain[name]["bias"] for name in ("query", "key", "value")], axis=1),
        },
        "out": _transposed(plain["out"]),
        "out_bias": plain["out"]["bias"],
        "norm_attention": plain["norm_attention"],
        **_of_perceptron(plain),
        "plain": {name: plain[name] for name in ("query", "key", "value", "out")},
    }

    def attention(params, x):
        three = _product(params["three"]["weight"], x) + params["three"]["bias"][:, None]
        query, key, value = (part.reshape(num_heads, -1, num) for part in jnp.split(three, 3))
        query = query * np.float32(1 / (np.log(2) * np.sqrt(query.shape[1])))
        key = jnp.where(filled, key - jnp.sum(key * share, axis=-1, keepdims=True), 0.0)
        value = jnp.concatenate([value, jnp.ones((num_heads, 1, num), x.dtype)], axis=1)
        value = jnp.where(filled, value, 0.0)
        longest = jnp.max(jnp.sum(key**2, axis=1), axis=-1, keepdims=True)
        bound = jnp.sqrt(jnp.sum(query**2, axis=1) * longest)
        shift = jnp.maximum(bound - HIGHEST, 0.0)

        def attend(group):
            exponent = _product(jnp.swapaxes(key, 1, 2), query[:, :, group]) - shift[:, None, group]
            return _product(value, power_of_two(exponent))

        def quickly():
            sums = jnp.concatenate([attend(group) for group in groups], axis=-1)
            mixed = (sums[:, :-1] / sums[:, -1:]).reshape(x.shape)
            return _product(params["out"], mixed) + params["out_bias"][:, None]

        return jax.lax.cond(
            jnp.max(bound) < BEYOND, quickly, lambda: recipe1.attention(params["plain"], x.T, filled, num_heads).T
        )

    def layer(x, params):
        return _perceptron(params, x + attention(params, _layer_norm(params["norm_attention"], x))), None

    return jax.lax.scan(layer, _embedded(params["embed"]["weight"], x.T), of_layers)[0].T
