"""BBOB in up to 40 dimensions, with descriptors of many kinds.

A rule that has only met random projections in 2 to 12 dimensions may do worse on other tasks than before it was
trained. Which kind of descriptor a task has is drawn for it:

- `projection`: P x with P normal, as in `meta.tasks`;
- `coordinates`: some of the coordinates; where there are more descriptors than coordinates, projections behind them;
- `tanh`, `sin`: of a projection that is a few units wide;
- `norm`: root mean squares of parts of the coordinates.

Sphere and Rastrigin, also Rastrigin's relatives, never have coordinates: in two dimensions that would be the
community's benchmark, on which rules are measured.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from lqd.checks import whole
from lqd.errors import InvalidInput, unknown
from lqd.meta.tasks import Distribution
from lqd.tasks.bbob import instances
from lqd.tasks.bbob.functions import matmul
from lqd.tasks.bbob.instances import LandscapeBatch
from lqd.tasks.task import Box
from lqd.types import Evaluation, pytree

KINDS = ("projection", "coordinates", "tanh", "sin", "norm")
NEVER_COORDINATES = ("sphere", "rastrigin", "bueche_rastrigin", "rastrigin_rotated")
BOX = 5.0


@dataclasses.dataclass(frozen=True)
class Wide:
    """As `meta.tasks.Distribution`; the kind of the descriptor is drawn as well, from `descriptors`."""

    functions: tuple[str, ...] = instances.TRAINING_SET
    min_dim: int = 2
    max_dim: int = 40
    descriptor_dim: int = 2
    noise: bool = True
    rotate: bool = True
    descriptors: tuple[str, ...] = KINDS

    def __post_init__(self):
        whole("descriptor_dim", self.descriptor_dim, 1)
        object.__setattr__(self, "functions", self.landscapes.functions)
        for kind in self.descriptors:
            if kind not in KINDS:
                raise unknown("kind of descriptor", kind, KINDS)
        if not self.descriptors or len(set(self.descriptors)) < len(self.descriptors):
            raise InvalidInput(f"descriptors must name at least one kind, each once, got {self.descriptors}.")
        object.__setattr__(self, "descriptors", tuple(self.descriptors))

    @property
    def landscapes(self) -> Distribution:
        """Where they come from; checks the settings as well. Of its descriptors, as few as can be are drawn."""
        return Distribution(self.functions, self.min_dim, self.max_dim, 1, self.noise, self.rotate)

    @property
    def name(self) -> str:
        return "bbob-wide"

    @property
    def version(self) -> int:
        return 1

    @property
    def multiple(self) -> int:
        return len(self.functions)

    def sample(self, key: Key[Array, ""], num_tasks: int) -> "WideBatch":
        key_landscapes, key_kind, key_weights = jax.random.split(key, 3)
        landscapes = self.landscapes.sample(key_landscapes, num_tasks)
        allowed = jnp.asarray([KINDS.index(kind) for kind in self.descriptors], jnp.int32)
        kind = allowed[jax.random.randint(key_kind, (num_tasks,), 0, len(self.descriptors))]
        is_reserved = jnp.asarray(np.isin(landscapes.functions_of_tasks, NEVER_COORDINATES))
        kind = jnp.where(is_reserved & (kind == KINDS.index("coordinates")), KINDS.index("projection"), kind)
        num_dims = jnp.concatenate([instance.num_dims for instance in landscapes.instances])
        weights = _draw_weights(key_weights, kind, num_dims, self.descriptor_dim, self.max_dim)
        return WideBatch(landscapes, kind, weights)


def _draw_weights(
    key: Key[Array, ""], kind: Int[Array, " K"], num_dims: Int[Array, " K"], descriptor_dim: int, width: int
) -> Float[Array, "K D W"]:
    """What coordinates (of a norm: their squares) are summed with; 0 for padding."""
    key_normal, key_order, key_part = jax.random.split(key, 3)
    shape = (kind.shape[0], descriptor_dim, width)
    live = jnp.arange(width, dtype=jnp.int32) < num_dims[:, None]
    normal = jax.random.normal(key_normal, shape)
    size = num_dims.astype(normal.dtype)[:, None, None]
    order = jnp.argsort(jnp.where(live, jax.random.uniform(key_order, (shape[0], width)), 2.0), axis=1)  # padding last
    order = jnp.pad(order, ((0, 0), (0, max(0, descriptor_dim - width))))[:, :descriptor_dim]
    chosen = jax.nn.one_hot(order, width, dtype=normal.dtype)
    place = jnp.arange(descriptor_dim, dtype=jnp.int32)[:, None]
    coordinates = jnp.where(place < num_dims[:, None, None], chosen, normal)
    # About half of the coordinates, and at least the one with the least number.
    part = jnp.where(live[:, None], jax.random.uniform(key_part, shape), 2.0)
    part = (part <= jnp.maximum(0.5, jnp.min(part, axis=-1, keepdims=True))).astype(normal.dtype)
    part = part / jnp.sum(part, axis=-1, keepdims=True)
    # A random point's coordinates have a standard deviation of 5 / sqrt 3: of these projections, one of 1 or 1.5.
    unit = normal / (BOX / 3**0.5 * jnp.sqrt(size))
    weights = _choose(kind, (normal, coordinates, unit, 1.5 * unit, part))
    return jnp.where(live[:, None], weights, 0.0)


def _choose(kind: Int[Array, " K"], found: tuple[Float[Array, "*shape"], ...]) -> Float[Array, "*shape"]:
    """What belongs to each task's kind."""
    chosen = found[0]
    for number, one in enumerate(found[1:], start=1):
        chosen = jnp.where((kind == number).reshape(-1, *([1] * (one.ndim - 1))), one, chosen)
    return chosen


@pytree
class WideBatch:
    """Landscapes of BBOB with other descriptors."""

    landscapes: LandscapeBatch
    kind: Int[Array, " K"]
    weights: Float[Array, "K D W"]

    @property
    def num_tasks(self) -> int:
        return self.landscapes.num_tasks

    @property
    def dim(self) -> int:
        return self.landscapes.dim

    @property
    def descriptor_dim(self) -> int:
        return self.weights.shape[1]

    @property
    def bounds(self) -> Box:
        return self.landscapes.bounds

    @property
    def f_opt(self) -> Float[Array, " K"]:
        return self.landscapes.f_opt

    @property
    def descriptor_range(self):
        """Nearly all descriptors of points of the box: of projections 3.5 standard deviations, or all there can be."""
        size = jnp.abs(self.weights)
        reach = jnp.minimum(2 * BOX * jnp.sqrt(jnp.sum(size**2, axis=-1)), BOX * jnp.sum(size, axis=-1))
        ones = jnp.ones_like(reach)
        high = _choose(self.kind, (reach, reach, ones, ones, BOX * ones))
        return _choose(self.kind, (-reach, -reach, -ones, -ones, 0 * ones)), high

    def evaluate(self, key: Key[Array, " K"], x: Float[Array, "K B W"]) -> Evaluation:
        return Evaluation(self.landscapes.evaluate(key, x).fitness, self._descriptor(x))

    def noiseless(self, x: Float[Array, "K B W"]) -> Float[Array, "K B"]:
        return self.landscapes.noiseless(x)

    def _descriptor(self, x: Float[Array, "K B W"]) -> Float[Array, "K B D"]:
        is_norm: Bool[Array, "K 1 1"] = (self.kind == KINDS.index("norm"))[:, None, None]
        seen = jnp.where(is_norm, x**2, x)
        linear = jax.vmap(lambda x, weights: matmul(x, weights.T))(seen, self.weights.astype(x.dtype))
        root = jnp.sqrt(jnp.maximum(linear, 0.0))
        return _choose(self.kind, (linear, linear, jnp.tanh(linear), jnp.sin(linear), root))
