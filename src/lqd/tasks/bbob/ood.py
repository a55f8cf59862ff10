"""Ackley, Dixon-Price, Salomon and Levy: the functions no rule was trained on.

Definitions: Jamil and Yang (2013) and Surjanovic and Bingham's collection, minimised; the least value is 0.
Each has an optimum z* of its own (Ackley and Salomon 0, Levy 1, Dixon-Price 2^-(1 - 2^(1-i))), and is shifted and
rotated like BBOB: `value = g(R (x - x_opt) + z*)`. They are written in the offset u = z - z*, so that float32 keeps
its digits near the optimum. Padding is masked as in `functions.py`.

Deliberately not here: the usual search boxes of these functions. The box is BBOB's, [-5, 5]^n.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int

from lqd.errors import unknown
from lqd.tasks.bbob.functions import Point, check_shapes, matmul, point, sin2_pi, square_sum

NAMES = ("ackley", "dixon_price", "salomon", "levy")


def value(
    name: str,
    x: Float[ArrayLike, "*B W"],
    x_opt: Float[ArrayLike, " W"],
    R: Float[ArrayLike, "W W"],
    num_dims: Int[ArrayLike, ""] | None = None,
) -> Float[Array, "*B"]:
    """The function shifted and rotated, at one point or a batch; the first `num_dims` coordinates are live."""
    if name not in NAMES:
        raise unknown("function", name, NAMES)
    x, arrays = check_shapes(x, num_dims, x_opt=x_opt, R=R)

    def value_of_one(x: Float[Array, " W"]) -> Float[Array, ""]:
        p = point(x, arrays["x_opt"], arrays["R"], arrays["R"], num_dims=num_dims)
        return _FUNCTIONS[NAMES.index(name)](p, matmul(p.R, p.offset))

    return value_of_one(x) if x.ndim == 1 else jax.vmap(value_of_one)(x)


def optimum(name: str, num_dims: int) -> list[float]:
    """The argmin z* of the function as it is usually written, before shift and rotation."""
    return {
        "ackley": [0.0] * num_dims,
        "dixon_price": [2 ** (2.0**-i - 1) for i in range(num_dims)],
        "salomon": [0.0] * num_dims,
        "levy": [1.0] * num_dims,
    }[name]


def _ackley(p: Point, u: Array) -> Array:
    distance = jnp.sqrt(square_sum(u) / p.n)
    waves = 2 * jnp.sum(sin2_pi(u)) / p.n  # 1 - mean cos(2 pi u)
    return -20 * jnp.expm1(-0.2 * distance) - math.e * jnp.expm1(-waves)


def _dixon_price(p: Point, u: Array) -> Array:
    # 2 z*_i^2 = z*_{i-1}, so 2 z_i^2 - z_{i-1} has no constant term in u.
    z_opt = jnp.exp2(jnp.exp2(1 - p.rank[1:]) - 1)
    terms = u[1:] * (4 * z_opt + 2 * u[1:]) - u[:-1]
    return jnp.square(u[0]) + jnp.sum(jnp.where(p.mask[1:], p.rank[1:] * jnp.square(terms), 0))


def _salomon(p: Point, u: Array) -> Array:
    distance = jnp.sqrt(square_sum(u))
    return 2 * sin2_pi(distance) + 0.1 * distance


def _levy(p: Point, u: Array) -> Array:
    v = u / 4  # w - 1 of the definition; sin(pi w)^2 = sin(pi v)^2
    middle = 10 * jnp.square(jnp.sin(math.pi * (v - jnp.round(v)) + 1))
    last = sin2_pi(2 * v)
    return sin2_pi(v[0]) + jnp.sum(v * v * (1 + jnp.where(p.rank == p.n, last, middle)))


_FUNCTIONS = (_ackley, _dixon_price, _salomon, _levy)
