"""Other functions with the community's descriptor: sums of coordinates, clipped.

pyribs measures algorithms on sphere and Rastrigin, described by the sums of the first and the second half of the
coordinates, each coordinate x beyond 5.12 counting as 5.12^2 / x: large sums are hard to reach (Fontaine et al., 2020).
Those two functions are what benches measure on, so they are not here, and neither are the package's out-of-distribution
functions (`tasks.bbob.ood`): no rule may be trained on what it is measured by.

The optimum lies anywhere in the part that is not clipped; which coordinates belong to which sum is drawn as well. The
box is twice as wide as what is not clipped. Every function is written in the offset z from its optimum, and is 0 there.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from lqd.checks import whole
from lqd.errors import InvalidInput, unknown
from lqd.tasks.task import Box
from lqd.types import Evaluation, pytree, static

CLIP = 5.12
BOX = 2 * CLIP


def _ellipsoid(z, n):
    """The last axis is 10^4 times as steep as the first."""
    return jnp.sum(jnp.power(1e4, _ranks(z) / (n - 1)) * z**2)


def _double_sum(z, n):
    """Schwefel's 1.2: squares of partial sums."""
    return jnp.sum(jnp.where(_live(z, n), jnp.cumsum(z) ** 2, 0.0))


def _largest(z, n):
    """Schwefel's 2.21: the coordinate that is farthest off."""
    return jnp.max(jnp.abs(z))


def _styblinski_tang(z, n):
    """w^4 / 2 - 8 w^2 + 5/2 w around its least point a: no constant term is left to cancel."""
    a = -2.903534027771177
    return jnp.sum(z**2 * (3 * a**2 - 8 + 2 * a * z + z**2 / 2))


def _griewank(z, n):
    """Ten times as wide as the box, so that there are many waves."""
    z = 10 * z
    waves = jnp.prod(jnp.cos(z / jnp.sqrt(_ranks(z) + 1)))  # padding: cos 0
    return jnp.sum(z**2) / 4000 + 1 - waves


def _zakharov(z, n):
    """With weights i / n, so that it does not grow by ten powers with the dimension."""
    slope = jnp.sum(0.5 * (_ranks(z) + 1) / n * z)
    return jnp.sum(z**2) + slope**2 + slope**4


FUNCTIONS = {
    "ellipsoid": _ellipsoid,
    "double_sum": _double_sum,
    "largest": _largest,
    "styblinski_tang": _styblinski_tang,
    "griewank": _griewank,
    "zakharov": _zakharov,
}


def _ranks(z: Float[Array, " W"]) -> Float[Array, " W"]:
    return jnp.arange(z.shape[0], dtype=z.dtype)


def _live(z: Float[Array, " W"], n: Float[Array, ""]) -> Bool[Array, " W"]:
    return _ranks(z) < n


@dataclasses.dataclass(frozen=True)
class Clipped:
    """Dimension, optimum, and which coordinates are summed, are drawn for each task."""

    functions: tuple[str, ...] = tuple(FUNCTIONS)
    min_dim: int = 2
    max_dim: int = 40
    descriptor_dim: int = 2

    def __post_init__(self):
        for function in self.functions:
            if function not in FUNCTIONS:
                raise unknown("function", function, FUNCTIONS)
        if not self.functions or len(set(self.functions)) < len(self.functions):
            raise InvalidInput(f"functions must name at least one function, each once, got {self.functions}.")
        object.__setattr__(self, "functions", tuple(self.functions))
        whole("min_dim", self.min_dim, 2)
        whole("max_dim", self.max_dim, 2)
        least = max(self.min_dim, whole("descriptor_dim", self.descriptor_dim, 1))
        if self.max_dim < least:
            raise InvalidInput(
                f"max_dim must be at least {least}: min_dim is {self.min_dim}, and each of the {self.descriptor_dim} "
                f"descriptors needs a coordinate; got {self.max_dim}."
            )

    @property
    def name(self) -> str:
        return "clipped"

    @property
    def version(self) -> int:
        return 1

    @property
    def multiple(self) -> int:
        return len(self.functions)

    def sample(self, key: Key[Array, ""], num_tasks: int) -> "ClippedBatch":
        key_dims, key_optimum, key_order = jax.random.split(key, 3)
        least, shape = max(self.min_dim, self.descriptor_dim), (num_tasks, self.max_dim)
        num_dims = jax.random.randint(key_dims, (num_tasks,), least, self.max_dim + 1, jnp.int32)
        live = jnp.arange(self.max_dim, dtype=jnp.int32) < num_dims[:, None]
        x_opt = jax.random.uniform(key_optimum, shape, minval=-0.8 * CLIP, maxval=0.8 * CLIP)
        # The live coordinates in random order, cut into parts of equal size.
        rank = jnp.argsort(jnp.argsort(jnp.where(live, jax.random.uniform(key_order, shape), 2.0), axis=1), axis=1)
        part = rank.astype(jnp.int32) * self.descriptor_dim // num_dims[:, None]
        return ClippedBatch(jnp.where(live, x_opt, 0.0), part, num_dims, self.functions, self.descriptor_dim)


@pytree
class ClippedBatch:
    """Equally many tasks of each function, function after function; padding belongs to no part."""

    x_opt: Float[Array, "K W"]
    part: Int[Array, "K W"]
    num_dims: Int[Array, " K"]
    functions: tuple[str, ...] = static()
    descriptor_dim: int = static()

    @property
    def num_tasks(self) -> int:
        return self.x_opt.shape[0]

    @property
    def dim(self) -> int:
        return self.x_opt.shape[1]

    @property
    def bounds(self) -> Box:
        return jnp.full(self.dim, -BOX), jnp.full(self.dim, BOX)

    @property
    def f_opt(self) -> Float[Array, " K"]:
        return jnp.zeros(self.num_tasks)

    @property
    def descriptor_range(self):
        """All that there can be: as far as the coordinates of a part go together."""
        high = CLIP * jnp.sum(self._parts, axis=2)
        return -high, high

    @property
    def _parts(self) -> Float[Array, "K D W"]:
        numbers = jnp.arange(self.descriptor_dim, dtype=self.part.dtype)
        return (self.part[:, None, :] == numbers[:, None]).astype(self.x_opt.dtype)

    def evaluate(self, key: Key[Array, " K"], x: Float[Array, "K B W"]) -> Evaluation:
        del key
        inside = jnp.abs(x) <= CLIP
        clipped = jnp.where(inside, x, CLIP**2 / jnp.where(inside, 1.0, x))
        descriptor = jnp.einsum("kbw,kdw->kbd", clipped, self._parts, precision=jax.lax.Precision.HIGHEST)
        return Evaluation(self.noiseless(x), descriptor)

    def noiseless(self, x: Float[Array, "K B W"]) -> Float[Array, "K B"]:
        live = jnp.arange(self.dim, dtype=jnp.int32) < self.num_dims[:, None]
        z = jnp.where(live[:, None], x - self.x_opt[:, None], 0.0)
        num_dims = self.num_dims.astype(x.dtype)
        groups = z.reshape(len(self.functions), -1, *z.shape[1:]), num_dims.reshape(len(self.functions), -1)
        values = []
        for i, name in enumerate(self.functions):
            function = jax.vmap(FUNCTIONS[name], in_axes=(0, None))
            values.append(jax.vmap(function)(groups[0][i], groups[1][i]))
        return -jnp.concatenate(values)
