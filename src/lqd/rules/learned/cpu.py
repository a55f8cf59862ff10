"""Recipe 2 for a CPU: the numbers of `recipe2.hidden` in half the time. It is not mapped and has no derivative.

Individuals are sorted by fitness once, so that the fitter ones are those before. A table has who is seen along its
first axis and who looks along its last, which keeps vectors long. Those who look are taken in groups: a head that
sees only fitter ones stops at the end of the group, and a group's tables stay in the cache. Who is not seen is
`UNSEEN` away and weighs exactly 0. The sum of weights is one more column of the values, and exponentials are a short
polynomial.

Recipe 3 could be computed so, too, but searches on the host and compiled ones then differed in the last bits, and with
them all later children: what says how far they go has to be the same.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lqd.rules.learned import layers, recipe2
from lqd.rules.learned.layers import PRECISION, Params
from lqd.rules.learned.recipe2 import BLUNTEST, FAR, NEAR, NUM_FIRST, NUM_KINDS, SHARPEST

MOST = 2048  # individuals: tables of all pairs are kept from layer to layer
GROUP, MAX_GROUPS = 80, 16  # individuals that look at once, or somewhat more
UNSEEN = 1e30  # a squared distance
LOWEST = -127.0  # from this exponent of 2 down a weight is 0
# 2**f for f from -1/2 to 1/2, from the highest power down: exactly 1 at 0, its relative error is at most 1e-7.
POLYNOMIAL = (0.0013264727, 0.0096715127, 0.0555073374, 0.2402224208, 0.6931469776, 1.0)
SHIFT = np.float32(1.5 * 2**23)  # numbers near it have no digits after the point
GELU = np.float32(np.sqrt(2 / np.pi)), np.float32(np.sqrt(2 / np.pi) * 0.044715)


def supports(params: Params, num: int) -> bool:
    """Whether it computes this network for this many individuals."""
    return "sharpness" in params["layers"] and "breeding" not in params and num <= MOST


def forward(params: Params, num_heads: int, x: Float[Array, "P C"], filled: Bool[Array, " P"]) -> Float[Array, " P"]:
    """`recipe2.forward`."""
    return layers.scored(params, hidden(params, num_heads, x, filled))


def power_of_two(exponent: Float[Array, "..."]) -> Float[Array, "..."]:
    """2**exponent for exponents up to 0, and exactly 0 from `LOWEST` down.

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


def _groups(num: int) -> list[slice]:
    size = -(-num // min(MAX_GROUPS, max(1, num // GROUP)))
    return [slice(start, min(start + size, num)) for start in range(0, num, size)]


def _tables(place: Float[Array, "D P"], filled: Bool[Array, " P"], group: slice):
    """Squared distances of all others, and of fitter ones, from those of a group; sorted by fitness."""
    index = jnp.arange(len(filled))
    squared = sum(((column[:, None] - column[group]) ** 2 for column in place), start=jnp.float32(NEAR))
    others = jnp.where(filled[:, None] & (index[:, None] != index[group]), squared, UNSEEN)
    return others, jnp.where(index[: group.stop, None] < index[group], others[: group.stop], UNSEEN)


def _ordered(params: Params, num_heads: int) -> tuple[Params, np.ndarray]:
    """The layers' weights as they are used here, and which heads of theirs these are.

    First those that see all others. Matrices are transposed; half of the GELU is in the one after it.
    """
    heads = np.argsort(np.arange(num_heads) % NUM_KINDS // 2, kind="stable")
    value, out = params["value"], params["out"]["weight"]
    columns = np.arange(out.shape[1]).reshape(num_heads, -1)[heads].reshape(-1)
    rows_of_density = np.concatenate([heads, num_heads + heads])
    read = jnp.concatenate([out[:, columns], params["density"]["weight"][:, rows_of_density]], axis=1)
    return {
        "norm_attention": params["norm_attention"],
        "norm_mlp": params["norm_mlp"],
        "sharpness": params["sharpness"][:, heads],
        "value": jnp.swapaxes(value["weight"][:, :, columns], 1, 2),
        "value_bias": value["bias"][:, columns],
        "read": jnp.swapaxes(read, 1, 2),
        "read_bias": params["out"]["bias"],
        "up": jnp.swapaxes(params["up"]["weight"], 1, 2),
        "up_bias": params["up"]["bias"],
        "down": jnp.swapaxes(params["down"]["weight"], 1, 2) / 2,
        "down_bias": params["down"]["bias"],
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
        up = _product(params["up"], _layer_norm(params["norm_mlp"], x)) + params["up_bias"][:, None]
        return x + (_product(params["down"], _twice_gelu(up)) + params["down_bias"][:, None]), None

    tokens = [*x[:2], *recipe2._logarithm(nearest)]
    # A sum, as a product of matrices has other last bits where a program knows the weights beforehand.
    x = sum(weight[:, None] * token for weight, token in zip(params["embed"]["weight"], tokens, strict=True))
    x = jax.lax.scan(layer, x, of_layers)[0].T
    return jnp.zeros_like(x).at[order].set(x, unique_indices=True)
