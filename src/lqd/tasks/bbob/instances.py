"""Instances of the 24 BBOB and 4 further functions as tasks, one by one or in batches grouped by function.

An instance (optimum, rotations, dimension, projection, noise, peaks) is data: another one runs in the same program.
A batch holds equally many instances of each of its functions and evaluates every group with its own function only;
a `switch` under `vmap` would evaluate all functions on all tasks.

Coordinates beyond an instance's `num_dims` are padding: they change neither fitness nor descriptor, and everything
about them is zero (rotations: the identity).

Optima are drawn as COCO draws them. An instance depends on the key, its function and its place among that function's
instances, not on the other functions asked for.

Deliberately not here: f_opt. Every landscape's best fitness is 0.
"""

import dataclasses
import functools
import operator
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from lqd import checks
from lqd.errors import InvalidInput, unknown
from lqd.tasks.bbob import functions as bbob
from lqd.tasks.bbob import noise, ood
from lqd.tasks.bbob.noise import Noise
from lqd.tasks.task import Box
from lqd.types import Evaluation, pytree, static

FUNCTIONS = (*bbob.NAMES, *ood.NAMES)
TRAINING_SET = tuple(name for name in bbob.NAMES if not name.startswith("gallagher"))  # the paper's
OOD = ("gallagher_101", "gallagher_21", *ood.NAMES)

# Folded into the seed of `make`. A search folds small numbers into its own seed, and so does `sample_batch`: without
# this, instance 0 of the sphere and the start of a search with seed 0 were drawn from one key.
STREAM = 0xB0B00002
VERSION = 2  # of the instances that `make` draws: 1 was without `STREAM`, and other instances under the same seeds


@pytree
class Instance:
    """What distinguishes two landscapes of one function; a stack of instances has a leading axis."""

    x_opt: Float[Array, "*batch W"]
    R: Float[Array, "*batch W W"]
    Q: Float[Array, "*batch W W"]
    num_dims: Int[Array, "*batch"]
    projection: Float[Array, "*batch D W"]
    noise: Noise | None
    peaks: bbob.Peaks | None


def resolve(function: str | int) -> str:
    """The name of a function given as a name of `FUNCTIONS`, a BBOB number `3`, or `"f3"`."""
    if function in FUNCTIONS:
        return str(function)
    try:
        return bbob.NAMES[bbob.index(function) - 1]
    except InvalidInput:
        raise unknown("function (a name, or a BBOB number 1..24)", function, FUNCTIONS) from None


def noiseless_value(function: str, instance: Instance, x: Float[Array, "B W"]) -> Float[Array, " B"]:
    """Minimised values of one instance."""
    i = instance
    if function in ood.NAMES:
        return ood.value(function, x, i.x_opt, i.R, i.num_dims)
    return bbob.value(function, x, i.x_opt, i.R, i.Q, i.peaks, i.num_dims)


def _noisy(key: Key[Array, ""], instance: Instance, value: Float[Array, " B"]) -> Float[Array, " B"]:
    if instance.noise is None:
        return value
    return noise.apply(key, instance.noise, value, instance.num_dims)


def _descriptor(instance: Instance, x: Float[Array, "B W"]) -> Float[Array, "B D"]:
    return bbob.matmul(x, instance.projection.T.astype(x.dtype))


def descriptor_half_width(num_dims: Int[Array, "*batch"]) -> Float[Array, "*batch"]:
    """Half the side of the square that MAP-Elites divides; nearly all descriptors of points of the box lie in it."""
    return 10 * jnp.sqrt(num_dims.astype(jnp.float32))


def _box(half_width: Float[Array, ""], dim: int) -> Box:
    high = jnp.broadcast_to(half_width, (dim,))
    return -high, high


@pytree
class Landscape:
    """One instance of one function."""

    instance: Instance
    function: str = static()

    @property
    def name(self) -> str:
        return f"{'bbob' if self.function in bbob.NAMES else 'ood'}/{self.function}"

    @property
    def dim(self) -> int:
        return self.instance.x_opt.shape[-1]

    @property
    def descriptor_dim(self) -> int:
        return self.instance.projection.shape[-2]

    @property
    def bounds(self) -> Box:
        return _box(jnp.asarray(5.0), self.dim)

    @property
    def descriptor_bounds(self) -> Box:
        return _box(descriptor_half_width(self.instance.num_dims), self.descriptor_dim)

    @property
    def f_opt(self) -> Float[Array, ""]:
        return jnp.zeros(())

    def evaluate(self, key: Key[Array, ""], x: Float[Array, "B W"]) -> Evaluation:
        value = noiseless_value(self.function, self.instance, x)
        return Evaluation(-_noisy(key, self.instance, value), _descriptor(self.instance, x))

    def noiseless(self, x: Float[Array, "B W"]) -> Float[Array, " B"]:
        return -noiseless_value(self.function, self.instance, x)


@pytree
class LandscapeBatch:
    """Equally many instances of each function, function after function."""

    instances: tuple[Instance, ...]
    functions: tuple[str, ...] = static()

    @property
    def num_per_function(self) -> int:
        return self.instances[0].x_opt.shape[0]

    @property
    def num_tasks(self) -> int:
        return len(self.functions) * self.num_per_function

    @property
    def functions_of_tasks(self) -> tuple[str, ...]:
        return tuple(function for function in self.functions for _ in range(self.num_per_function))

    @property
    def dim(self) -> int:
        return self.instances[0].x_opt.shape[-1]

    @property
    def descriptor_dim(self) -> int:
        return self.instances[0].projection.shape[-2]

    @property
    def bounds(self) -> Box:
        return _box(jnp.asarray(5.0), self.dim)

    @property
    def f_opt(self) -> Float[Array, " K"]:
        return jnp.zeros(self.num_tasks)

    @property
    def descriptor_half_width(self) -> Float[Array, " K"]:
        return descriptor_half_width(jnp.concatenate([instance.num_dims for instance in self.instances]))

    @property
    def descriptor_range(self) -> tuple[Float[Array, "K D"], Float[Array, "K D"]]:
        """What MAP-Elites divides, of each task."""
        high = jnp.broadcast_to(self.descriptor_half_width[:, None], (self.num_tasks, self.descriptor_dim))
        return -high, high

    def with_unit_descriptors(self) -> "LandscapeBatch":
        """The same tasks with every descriptor box [-1, 1]^D, so that one tessellation serves all of them."""
        return self.with_divided_descriptors(self.descriptor_half_width)

    def with_divided_descriptors(self, by: Float[Array, " K"]) -> "LandscapeBatch":
        """The same tasks, the descriptors of each divided by a number of its own."""

        def scaled(instance, by):
            return dataclasses.replace(
                instance, projection=instance.projection / by.astype(instance.projection.dtype)[:, None, None]
            )

        groups = by.reshape(len(self.functions), self.num_per_function)
        return LandscapeBatch(tuple(map(scaled, self.instances, groups)), self.functions)

    def task(self, k: int) -> Landscape:
        """The task in place `k`, alone."""
        group, place = divmod(operator.index(k), self.num_per_function)
        instance = jax.tree.map(lambda leaf: leaf[place], self.instances[group])
        return Landscape(instance, self.functions[group])

    def evaluate(self, key: Key[Array, " K"], x: Float[Array, "K B W"]) -> Evaluation:
        instances = self._ungrouped()
        noisy = jax.vmap(_noisy)(key, instances, self._values(x))
        return Evaluation(-noisy, jax.vmap(_descriptor)(instances, x))

    def noiseless(self, x: Float[Array, "K B W"]) -> Float[Array, "K B"]:
        return -self._values(x)

    def _values(self, x: Float[Array, "K B W"]) -> Float[Array, "K B"]:
        groups = x.reshape(len(self.functions), self.num_per_function, *x.shape[1:])
        values = [
            jax.vmap(functools.partial(noiseless_value, function))(instances, groups[i])
            for i, (function, instances) in enumerate(zip(self.functions, self.instances, strict=True))
        ]
        return jnp.concatenate(values)

    def _ungrouped(self) -> Instance:
        """All tasks in one stack: noise and descriptor do not depend on the function, and so are computed at once."""
        shared = [Instance(i.x_opt, i.R, i.Q, i.num_dims, i.projection, i.noise, None) for i in self.instances]
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *shared)


def make(
    function: str | int,
    *,
    dim: int,
    seed: int = 0,
    descriptor_dim: int = 2,
    noise: bool = False,
    rotate: bool = True,
) -> Landscape:
    """One landscape without padding; the seed is its own, and may be that of a search on it."""
    key = jax.random.fold_in(jax.random.key(checks.seed(seed)), STREAM)
    dim = checks.whole("dim", dim, 2)
    return sample_batch(
        key, (function,), 1, width=dim, min_dim=dim, max_dim=dim, descriptor_dim=descriptor_dim, noise=noise,
        rotate=rotate,
    ).task(0)  # fmt: skip


def sample_batch(
    key: Key[Array, ""],
    functions: Sequence[str | int],
    num_per_function: int,
    *,
    width: int,
    min_dim: int,
    max_dim: int,
    dims: Sequence[int] | None = None,
    descriptor_dim: int = 2,
    noise: bool = True,
    rotate: bool = True,
) -> LandscapeBatch:
    """Fresh instances of every function as one batch of tasks.

    Dimensions are uniform over `min_dim..max_dim`, or given in `dims`, one for each instance of a function.
    """
    names = tuple(resolve(function) for function in functions)
    if not names or len(set(names)) < len(names):
        raise InvalidInput(f"functions must name at least one function, each once, got {tuple(functions)}")
    for argument, number, least in (
        ("num_per_function", num_per_function, 1),
        ("min_dim", min_dim, 2),
        ("descriptor_dim", descriptor_dim, 1),
    ):
        checks.whole(argument, number, least)
    noise, rotate = checks.flag("noise", noise), checks.flag("rotate", rotate)
    if not min_dim <= max_dim <= width:
        raise InvalidInput(f"min_dim <= max_dim <= width must hold, got {min_dim}, {max_dim}, {width}")
    if dims is not None and (len(dims) != num_per_function or not all(2 <= dim <= width for dim in dims)):
        raise InvalidInput(f"dims must give {num_per_function} dimensions from 2 to {width}, got {tuple(dims)}.")
    given = None if dims is None else jnp.asarray(dims, jnp.int32)
    shared = _draw(key, names, num_per_function, width, min_dim, max_dim, descriptor_dim, noise, rotate, given)
    instances = []
    for i, name in enumerate(names):
        # An index that is data, not a constant: outside of jit, all functions share one compiled slice per leaf.
        instance = jax.tree.map(lambda leaf, i=i: jax.lax.dynamic_index_in_dim(leaf, i, keepdims=False), shared)
        instances.append(_add_peaks(key, name, instance))
    return LandscapeBatch(tuple(instances), names)


@functools.partial(jax.jit, static_argnums=tuple(range(1, 9)))
def _draw(
    key, names, num_per_function, width, min_dim, max_dim, descriptor_dim, noisy, rotate, dims: Int[Array, " N"] | None
) -> Instance:
    """Everything but peaks, with leading axes (function, instance)."""

    def draw(key, dim):
        key_uniform, key_normal, key_noise = jax.random.split(key, 3)
        # Few large draws: each call of the generator takes as long to compile as a function.
        uniform = jax.random.uniform(key_uniform, (1 + width,))
        normal = jax.random.normal(key_normal, (2 * width + descriptor_dim, width))
        drawn = min_dim + jnp.floor(uniform[0] * (max_dim + 1 - min_dim)).astype(jnp.int32)
        num_dims = drawn if dim is None else dim
        live = _live(width, num_dims)
        return (
            num_dims,
            jnp.where(live, 2 * uniform[1:] - 1, 0),
            normal[: 2 * width].reshape(2, width, width),
            jnp.where(live, normal[2 * width :], 0),
            noise.sample(key_noise) if noisy else None,
        )

    ids = jnp.asarray([FUNCTIONS.index(name) for name in names])
    keys = jax.vmap(lambda i: jax.random.split(jax.random.fold_in(key, i), num_per_function))(ids)
    each = jax.vmap(jax.vmap(draw), in_axes=(0, None))
    num_dims, position, gaussian, projection, noises = each(keys, dims)
    live = _live(width, num_dims[..., None])
    # One flat batch over all functions: XLA on CPU can hang on a program with several batched QR decompositions.
    R, Q = jnp.moveaxis(_rotations(gaussian, live, rotate), 2, 0)
    x_opt = jnp.stack(
        [jax.vmap(functools.partial(_optimum, name))(position[i], R[i], num_dims[i]) for i, name in enumerate(names)]
    )
    return Instance(jnp.where(live, x_opt, 0), R, Q, num_dims, projection, noises, None)


def _live(width: int, num_dims: Int[Array, "..."]) -> Bool[Array, "... W"]:
    return jnp.arange(width, dtype=jnp.int32) < num_dims


def _rotations(
    gaussian: Float[Array, "F N 2 W W"], live: Bool[Array, "F N W"], rotate: bool
) -> Float[Array, "F N 2 W W"]:
    """Haar-distributed rotations of the live block, the identity elsewhere."""
    identity = jnp.eye(gaussian.shape[-1], dtype=gaussian.dtype)
    if not rotate:
        return jnp.broadcast_to(identity, gaussian.shape)
    block = (live[..., :, None] & live[..., None, :])[:, :, None]
    orthogonal, triangular = jnp.linalg.qr(jnp.where(block, gaussian, identity))
    # A QR decomposition is unique, and Q Haar-distributed, once the diagonal of the triangle is positive.
    sign = jnp.where(jnp.diagonal(triangular, axis1=-2, axis2=-1) < 0, -1, 1).astype(gaussian.dtype)
    return jnp.where(block, orthogonal * sign[..., None, :], identity)


def _optimum(function: str, position: Float[Array, " W"], R: Float[Array, "W W"], num_dims: Int[Array, ""]):
    """Where COCO puts the optimum, from a position uniform in [-1, 1]; the padding is masked by the caller."""
    sign = jnp.where(position < 0, -1, 1).astype(position.dtype)
    match function:
        case "bueche_rastrigin":  # every other coordinate is positive, on the side of the deeper asymmetry
            return jnp.where(jnp.arange(position.size) % 2 == 0, 4 * jnp.abs(position), 4 * position)
        case "linear_slope":
            return 5 * sign
        case "rosenbrock":
            return 3 * position
        case "rosenbrock_rotated" | "griewank_rosenbrock":
            # The point where z = s R x + 1/2 is 1 in every live coordinate.
            n = num_dims.astype(position.dtype)
            half = jnp.where(_live(position.size, num_dims), 0.5, 0).astype(position.dtype)
            return bbob.matmul(R.T, half) / bbob.rosenbrock_scale(n)
        case "schwefel":
            return bbob.SCHWEFEL_OPTIMUM / 2 * sign
        case "lunacek":
            return 1.25 * sign
        case _:
            return 4 * position


def _add_peaks(key: Key[Array, ""], function: str, instances: Instance) -> Instance:
    if function not in ("gallagher_101", "gallagher_21"):
        return instances
    num_instances, width = instances.x_opt.shape
    key = jax.random.fold_in(key, len(FUNCTIONS) + FUNCTIONS.index(function))  # a number that no function folds in
    keys = jax.random.split(key, num_instances)
    peaks = _draw_peaks(keys, bbob.GALLAGHER[bbob.index(function)], width, instances.num_dims)
    return dataclasses.replace(instances, x_opt=peaks[0][:, 0], peaks=peaks)


@functools.partial(jax.jit, static_argnums=(1, 2))
@functools.partial(jax.vmap, in_axes=(0, None, None, 0))
def _draw_peaks(key: Key[Array, ""], num_peaks: int, width: int, num_dims: Int[Array, ""]) -> bbob.Peaks:
    """Centres, diagonals and heights of f21 and f22; the first peak is the optimum."""
    key_uniform, key_condition = jax.random.split(key)
    live = _live(width, num_dims)
    uniform, order = jax.random.uniform(key_uniform, (2, num_peaks, width))
    reach = 5.0 if num_peaks == 101 else 4.9
    centre = reach * (2 * uniform - 1)
    centre = jnp.where(live, centre.at[0].multiply(0.8), 0)
    dtype = centre.dtype

    steps = jnp.arange(num_peaks - 1, dtype=dtype) / (num_peaks - 2)
    first = jnp.asarray([1e3 if num_peaks == 101 else 1e6], dtype)
    condition = jnp.concatenate([first, jax.random.permutation(key_condition, jnp.power(1e6, steps))])
    height = jnp.concatenate([jnp.asarray([10.0], dtype), 1.1 + 8 * steps])

    # Each peak has its own order of the axes: the rank of random numbers, padding last.
    rank = jnp.argsort(jnp.argsort(jnp.where(live, order, 2), axis=1), axis=1).astype(dtype)
    exponent = 0.5 * rank / (num_dims - 1).astype(dtype) - 0.25
    diagonal = jnp.where(live, jnp.power(condition[:, None], exponent), 0)
    return centre, diagonal, height
