"""Which children are worth an evaluation: more are bred than evaluated, and the most promising are chosen.

A model of what was evaluated lately, kernel ridge regression on the last few hundred solutions, predicts fitness and
descriptor of each candidate. One after the other they are chosen, in turns by two measures: how far the predicted
descriptor is from all remembered ones and from those chosen before, and how much the candidate would add where it lies,
that is, its merit minus that of its neighbours. Predictions decide nothing else: survival
depends on evaluations alone.

All is in units of the data: genotypes of their spread, descriptors of their bounds or spread, fitness of the distance
from a poor one to the best. So no scale has to be known, and multiplying by a power of two changes not one bit.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from lqd.evolution.memory import Memory
from lqd.evolution.sums import deviation, mean_of, product, rounded, total
from lqd.rules import scaled

TIMES = 8  # candidates for each child
NOISE = 1e-2  # of what was evaluated, beside the model's variance
NUM_STEPS, LEAST = 96, 1e-30  # of conjugate gradients; what is not divided by
WIDE = 0.3  # weight of the kernel that is four times as wide
POOR = 0.1  # the share of solutions that a poor one is better than
NEW = 0.5  # what a place is worth that holds a poor solution; the best is worth 1
RADIUS = 0.7  # of a place, in mean distances of as many points that fill the space evenly


def choose(
    key: Key[Array, ""],
    memory: Memory,
    z_known: Float[Array, "K n"],
    z: Float[Array, "C n"],
    bounds: tuple[Array, Array] | None,
    at_edge: bool,
    num: int,
) -> Int[Array, " num"]:
    """`num` of the candidates `z`. Descriptors count in units of `bounds`, those beyond as at the edge if `at_edge`."""
    there, filled = memory.known(), memory.filled
    low, high = scaled.robust_range(memory.descriptor, filled) if bounds is None else bounds
    place = scaled.share(memory.descriptor, low, high)
    place = jnp.where(filled[:, None], jnp.clip(place, 0.0, 1.0) if bounds is not None and at_edge else place, 0.0)
    merit = _merit(memory.fitness, filled)
    is_known, at = there
    guessed_merit, guessed_place = guess(z_known, z, (merit[at][:, None], is_known), (place[at], is_known & filled[at]))
    if bounds is not None and at_edge:
        guessed_place = jnp.clip(guessed_place, 0.0, 1.0)
    return _in_turns(key, place, _worth(merit), filled, guessed_place, _worth(guessed_merit[:, 0]), num)


def _merit(fitness: Float[Array, " M"], filled: Bool[Array, " M"]) -> Float[Array, " M"]:
    """0 for a poor solution, 1 for the best, down to -1 for worse ones and failures."""
    last = jnp.maximum(jnp.sum(filled, dtype=jnp.int32) - 1, 0)
    ordered = jnp.sort(jnp.where(filled, fitness, jnp.inf))
    poor, best = ordered[(POOR * last.astype(jnp.float32)).astype(jnp.int32)], ordered[last]
    width = 0.5 * best - 0.5 * poor  # in halves: the difference of two large numbers stays finite
    share = (0.5 * fitness - 0.5 * poor) / jnp.where(width > 0, width, 1.0)
    return jnp.where(filled, jnp.clip(jnp.where(width > 0, share, 0.0), -1.0, 1.0), -1.0)


def _worth(merit):
    return jnp.where(merit >= 0, NEW + (1 - NEW) * jnp.minimum(merit, 1.0), NEW * (1.0 + jnp.maximum(merit, -1.0)))


Known = tuple[Float[Array, "K T"], Bool[Array, " K"]]


def guess(z: Float[Array, "K n"], new: Float[Array, "C n"], *targets: Known) -> list[Float[Array, "C T"]]:
    """Each target at new points: its values at those `z` where it is known. Kernel ridge regression."""
    is_known = targets[0][1]
    middle, spread = mean_of(z, is_known), deviation(z, is_known)
    moves = spread > 0
    scale = rounded(jnp.where(moves, 1.0 / jnp.where(moves, spread, 1.0), 0.0))
    num_moving = jnp.maximum(jnp.sum(moves), 1).astype(z.dtype)
    a = rounded(jnp.where(is_known[:, None], (z - middle) * scale, 0.0))
    b = rounded((new - middle) * scale)

    def kernel(a, b):
        square = total(rounded(a * a).T)[:, None] + total(rounded(b * b).T)[None]
        distance = jnp.maximum(square - 2.0 * product(a, b.T), 0.0) / num_moving
        return rounded(jnp.exp(-distance)) + rounded(WIDE * jnp.exp(-distance / 16.0))

    among, between = kernel(a, a), kernel(b, a)
    found = []
    for values, is_known in targets:
        mean = mean_of(values, is_known)
        centred = jnp.where(is_known[:, None], values - mean, 0.0)
        both = is_known[:, None] & is_known[None]
        matrix = jnp.where(both, among, 0.0) + jnp.diag(jnp.where(is_known, NOISE, 1.0).astype(z.dtype))
        weights = jnp.where(is_known[:, None], _solved(rounded(matrix), rounded(centred)), 0.0)
        guessed = product(between, weights) + mean
        found.append(jnp.where(jnp.isfinite(guessed), guessed, 0.0))
    return found


def _solved(matrix: Float[Array, "K K"], values: Float[Array, "K T"]) -> Float[Array, "K T"]:
    """Nearly, by conjugate gradients: LAPACK's threads take a hundred times as long where cores are busy."""

    def dot(a, b):
        return total(rounded(a * b))

    def step(_, carry):
        found, rest, direction, size = carry
        image = product(matrix, direction)
        length = size / jnp.maximum(dot(direction, image), LEAST)
        found, rest = found + rounded(length * direction), rest - rounded(length * image)
        new = dot(rest, rest)
        return found, rest, rest + rounded(new / jnp.maximum(size, LEAST) * direction), new

    begin = (jnp.zeros_like(values), values, values, dot(values, values))
    return jax.lax.fori_loop(0, NUM_STEPS, step, begin)[0]


def _in_turns(key, place, worth, filled, new_place, new_worth, num: int) -> Int[Array, " num"]:
    """One after the other, by distance and by what is added; who begins is drawn."""
    count = jnp.maximum(jnp.sum(filled), 1).astype(place.dtype)
    radius = RADIUS * count ** (-1.0 / place.shape[1])

    def nearby(square):
        return jnp.exp(-0.5 * square / radius**2)

    square = jnp.where(filled[None], _squares(new_place, place), jnp.inf)
    among = _squares(new_place, new_place)
    distance = jnp.min(square, axis=1)
    held = jnp.max(worth[None] * nearby(square), axis=1)
    first = jax.random.bernoulli(key).astype(jnp.int32)

    def pick(i, carry):
        distance, held, chosen = carry
        best = jnp.argmax(jnp.where((i + first) % 2 == 0, distance, new_worth - held)).astype(jnp.int32)
        distance = jnp.minimum(distance, among[best]).at[best].set(-1.0)
        held = jnp.maximum(held, new_worth[best] * nearby(among[best])).at[best].set(jnp.inf)
        return distance, held, chosen.at[i].set(best)

    return jax.lax.fori_loop(0, num, pick, (distance, held, jnp.zeros(num, jnp.int32)))[2]


def _squares(a: Float[Array, "A D"], b: Float[Array, "B D"]) -> Float[Array, "A B"]:
    """Squares of distances, one column at a time: nothing of shape (A, B, D) is made."""
    columns = (rounded((a[:, None, i] - b[None, :, i]) ** 2) for i in range(a.shape[1]))
    return functools.reduce(jnp.add, columns)
