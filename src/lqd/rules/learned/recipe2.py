"""Feature recipe 2: attention by distance, to all others or to the fitter ones, for descriptors of any dimension.

The paper's network sees the descriptor's coordinates and has to learn from them what a distance is. Here attention is
given distances and never sees a coordinate, so that one rule serves any number of descriptor dimensions and any
rotation of them. An individual is known by its fitness (standardised), its rank, and how far the nearest other and the
nearest fitter one are. A head weighs individuals by `exp(-a * squared distance)`, and comes in four kinds in turn:

    kind       whom it sees    the sharpness `a`
    0, 4, ..   all others      of the head
    1, 5, ..   all others      of the head, over the squared distance of the nearest of them
    2, 6, ..   fitter ones     of the head
    3, 7, ..   fitter ones     of the head, over the squared distance of the nearest of them

Of equals in fitness, one still counts as fitter: of two alike, one has a neighbour that is better. It is the one whose
nearest neighbour is farther away; and of two that are each other's nearest, a fixed pseudo-random function of the
descriptor decides (`tie_break`). So scores follow the individuals wherever they are stored. Only where descriptors are
equal too does the one that comes first count.

Besides its values a head gives how many individuals it saw (the logarithm of the sum of weights, the nearest counting
one) and how far away they are (that of a soft minimum of squared distances): local density, at a learned scale.

Distances are relative to the spread of the population. `NEAR` is added to squared ones, so that nothing depends on
smaller differences, and what a token or a head says of a distance goes up to `FAR`, which also stands for none.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from lqd.rules import neighbours
from lqd.rules.blocks import by_blocks
from lqd.rules.learned import layers
from lqd.rules.learned.layers import PRECISION, Params

NUM_KINDS = 4
NUM_TOKENS = 4  # fitness, rank, distance to the nearest other, to the nearest fitter one
NUM_FIRST = 4  # columns of the features before the descriptor's: fitness, rank, both parts of the tie-break
TIE_BREAK = 2  # its version, by which kept results know theirs; 1 was the position alone
NUM_CELLS, NUM_STEPS = 2**10, 2**15  # along the longest side of the population, and within a cell
NEAR, FAR = 1e-4, 16.0
BLUNTEST, SHARPEST = 1e-3, 1e4
COUNTED = 512  # individuals up to which counting is faster than sorting


def init_params(key: Key[Array, ""], num_layers: int, width: int, num_heads: int, hidden: int) -> Params:
    """LeCun-normal weights, zero biases, heads of every kind from wide to sharp over the layers."""
    key_embed, key_value, key_out, key_density, key_up, key_down, key_score = jax.random.split(key, 7)
    of_kind = np.log(np.array([10.0, 1.0, 10.0, 1.0], np.float32))
    sharpness = np.linspace(-2, 2, num_layers, dtype=np.float32)[:, None] + np.resize(of_kind, num_heads)
    return {
        "embed": {"weight": layers.init_matrix(key_embed, NUM_TOKENS, width)},
        "layers": {
            "norm_attention": layers.init_norm(num_layers, width),
            "sharpness": jnp.asarray(sharpness),
            "value": layers.init_linear(key_value, num_layers, width, width),
            "out": layers.init_linear(key_out, num_layers, width, width),
            "density": {"weight": layers.init_linear(key_density, num_layers, 2 * num_heads, width)["weight"]},
            "norm_mlp": layers.init_norm(num_layers, width),
            "up": layers.init_linear(key_up, num_layers, width, hidden),
            "down": layers.init_linear(key_down, num_layers, hidden, width),
        },
        "norm": layers.init_norm(width),
        "score": {"weight": layers.init_matrix(key_score, width, 1), "bias": jnp.zeros(1, jnp.float32)},
    }


def features(fitness: Float[Array, " P"], descriptor: Float[Array, "P D"]) -> Float[Array, "P D+4"]:
    """Fitness, its rank in [-1, 1], the tie-break, and the descriptor relative to the population's mean and spread."""
    filled = fitness > -jnp.inf
    relative = layers.standardise(fitness, filled)
    num = jnp.maximum(jnp.sum(filled.astype(jnp.float32)), 1.0)
    below, not_above = _num_below(jnp.where(filled, fitness, jnp.inf))
    rank = jnp.where(filled, (below + not_above).astype(jnp.float32) / num - 1, 0.0)
    place = layers.standardise_together(descriptor, filled)
    return jnp.column_stack([relative, rank, tie_break(descriptor, filled), place])


def tie_break(descriptor: Float[Array, "P D"], filled: Bool[Array, " P"]) -> Float[Array, "P 2"]:
    """Of equals in fitness the one with the higher first number counts as fitter, then that with the higher second.

    The first is the distance of the nearest other. The two of a pair share it; the second is a pseudo-random
    number for where an individual lies. No sum over individuals is involved: stored in another order, everybody has
    the same bits.
    """
    # Stored tables of pairs, as novelty has them: fused into the minimum, they take XLA minutes to compile for a GPU.
    nearest, _ = neighbours.novelty(jnp.where(filled, 0.0, -jnp.inf), descriptor, k=1)
    columns = layers.from_lowest(descriptor, filled)
    longest = jnp.max(columns)
    scaled = columns / jnp.where(longest > 0, longest, 1.0) * NUM_CELLS
    return jnp.column_stack([nearest, _pseudo_random(scaled)])


def _pseudo_random(scaled: Float[Array, "P D"]) -> Float[Array, " P"]:
    """A positive number for each point.

    Space is divided into cells of size 1, whose order is random; within a cell the order is along a line. So rounding
    does not matter, but for the few at the edge of a cell. The numbers are whole, and stored as the floats that have
    the same order.
    """
    cell = jnp.floor(scaled)
    mixed, along, weight, weights = jnp.uint32(0), jnp.float32(0), 1.0, 0.0
    for c in range(scaled.shape[1]):
        mixed = _mixed(mixed ^ cell[:, c].astype(jnp.uint32))
        along, weights = along + weight * (scaled[:, c] - cell[:, c]), weights + weight
        weight *= 0.6180339887  # so that different points of a cell are at different places along the line
    step = jnp.clip(along / weights * NUM_STEPS, 0, NUM_STEPS - 1).astype(jnp.uint32)
    number = (mixed >> 17) * jnp.uint32(NUM_STEPS) + step
    return jax.lax.bitcast_convert_type(number + jnp.uint32(2**23), jnp.float32)  # from the least normal number on


def _mixed(bits):
    """A whole number made pseudo-random: each bit given changes about half of all bits (a common integer hash)."""
    bits = bits + jnp.uint32(0x9E3779B9)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        bits = (bits ^ (bits >> shift)) * jnp.uint32(factor)
    return bits ^ (bits >> 16)


def _num_below(values: Float[Array, " P"]):
    """How many are below each, and how many are not above it: by comparing all pairs where these are few."""
    if values.shape[0] > COUNTED:
        in_order = jnp.sort(values)
        return tuple(jnp.searchsorted(in_order, values, side=side) for side in ("left", "right"))
    pairs = (compare(values[None, :], values[:, None]) for compare in (jnp.less, jnp.less_equal))
    return tuple(jnp.sum(pair, axis=1, dtype=jnp.int32) for pair in pairs)


def _logarithm(squared):
    """Of the order of 1 for all that occurs."""
    return 1 + jnp.log(jnp.clip(squared, NEAR, FAR)) / 4


def forward(params: Params, num_heads: int, x: Float[Array, "P D+4"], filled: Bool[Array, " P"]) -> Float[Array, " P"]:
    """Features in, one score per individual out."""
    return layers.scored(params, hidden(params, num_heads, x, filled))


def num_further(params: Params) -> int:
    """How many more tokens these weights read than recipe 2 has: columns of the features before the descriptor's."""
    return params["embed"]["weight"].shape[-2] - NUM_TOKENS


def hidden(params: Params, num_heads: int, x: Float[Array, "P C"], filled: Bool[Array, " P"]) -> Float[Array, "P F"]:
    """What the last layer says of each individual, before anything is read off it."""
    num, end = x.shape[0], NUM_FIRST + num_further(params)
    ascending, place = (x[:, 3], x[:, 2], x[:, 0]), x[:, end:]  # for finding the fitter ones: the last key counts most
    index = jnp.arange(num)

    def pairs(rows):
        """Squared distances (R, P), and who sees whom: all others, fitter ones (2, R, P)."""
        differences = (place[rows, c][:, None] - place[:, c] for c in range(place.shape[1]))
        squared = sum((difference**2 for difference in differences), start=jnp.float32(NEAR))
        others = index[rows][:, None] != index
        fitter = index < index[rows][:, None]
        for column in ascending:
            mine = column[rows][:, None]
            fitter = (column > mine) | ((column == mine) & fitter)
        return squared, jnp.stack([others, fitter]) & filled

    def nearest(rows):
        squared, seen = pairs(rows)
        nearest = jnp.min(jnp.where(seen, squared, jnp.inf), axis=-1)
        return jnp.where(nearest < jnp.inf, nearest, FAR).T

    def by_head(two):
        """What is known for all others and for fitter ones, for every head."""
        return jnp.tile(jnp.repeat(two, NUM_KINDS // 2, axis=0), (num_heads // NUM_KINDS, *[1] * (two.ndim - 1)))

    least = by_blocks(nearest, num, 2 * num)
    relative = (jnp.arange(num_heads) % 2 == 1)[:, None]
    unit = jnp.where(relative, by_head(least.T), 1.0)

    def layer(x, params):
        value = layers.linear(params["value"], layers.layer_norm(params["norm_attention"], x))
        value = value.reshape(num, num_heads, -1)
        sharpness = jnp.clip(jnp.exp(params["sharpness"])[:, None] / unit, BLUNTEST, SHARPEST)

        def attend(rows):
            squared, seen = pairs(rows)
            alone, nearest, seen = by_head(~jnp.any(seen, axis=-1)), by_head(least[rows].T), by_head(seen)
            sharp = sharpness[:, rows]
            beyond = jnp.where(seen, squared - nearest[..., None], 0.0)  # where not seen, its gradient might overflow
            weights = jnp.where(seen, jnp.exp(-sharp[..., None] * beyond), 0.0)
            total = jnp.where(alone, 1.0, jnp.sum(weights, axis=-1))
            mixed = jnp.einsum("hij,jhd->ihd", weights, value, precision=PRECISION) / total.T[..., None]
            number = jnp.log(total)
            distance = jnp.where(alone, FAR, nearest - number / sharp)
            return mixed.reshape(-1, x.shape[1]), jnp.concatenate([number, _logarithm(distance)]).T

        mixed, density = by_blocks(attend, num, num_heads * num)
        x = x + jnp.matmul(density, params["density"]["weight"], precision=PRECISION)
        return layers.perceptron(params, x + layers.linear(params["out"], mixed)), None

    tokens = jnp.column_stack([x[:, :2], _logarithm(least), x[:, NUM_FIRST:end]])
    x = jnp.matmul(tokens, params["embed"]["weight"], precision=PRECISION)
    return jax.lax.scan(layer, x, params["layers"])[0]
