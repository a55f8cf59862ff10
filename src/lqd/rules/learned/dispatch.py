"""Which program computes a learned rule's network on this device, and when.

Up to `MAX_FUSED` individuals on an NVIDIA GPU the whole network is one kernel, a program per population, and nothing
but scores is written (`pallas/`). Above, the attention of recipe 1 is a kernel by tiles; recipe 2 runs plain there. So
do networks that are too wide, descriptors of too many dimensions, and weights beyond what half precision holds.

On a CPU recipes 1 and 2 have a form of their own (`cpu.py`), in plain XLA and float32 as well.
"""

import functools
import os
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float

from lqd.errors import InvalidInput
from lqd.rules.learned import cpu, network, recipe2, recipe3
from lqd.rules.learned.layers import Params
from lqd.rules.learned.network import Architecture
from lqd.rules.learned.pallas import recipe1 as fused1
from lqd.rules.learned.pallas import recipe2 as fused2
from lqd.rules.learned.recipe2 import NUM_FIRST

Packed = tuple[tuple[Array, ...], Bool[Array, ""]]

SETTING = "LQD_KERNEL"
CHOICES = {
    "auto": "the kernel on NVIDIA GPUs that can compile it, plain XLA elsewhere",
    "off": "always plain XLA, in float32 (on a CPU in the form that is fast there)",
    "fast": "the kernel, or an error",
    "exact": "the kernel with exponentials in two halves, which is float32 to about 1e-5, or an error",
    "interpret": "the steps of the exact kernel one by one on any device, for tests",
}
MAX_FUSED = 256  # individuals whose whole forward pass is one program
MAX_WIDTH = 64  # features, hidden units and columns of a packed head; wider networks run plain
AT_ONCE = 4  # populations on a CPU: their tables of pairs stay in its cache
MAX_PLAIN_TABLE = 2**28  # entries of tables of pairs at once, where recipe 2 has no kernel
STAND_IN_AT_ONCE = 256  # where the plain version stands in for a kernel: it must not need much memory


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
    if asked == "off" or (
        asked == "auto" and not (network.on_gpu() and supports(architecture) and _compiles(architecture.recipe))
    ):
        if network.on_gpu():
            return functools.partial(network.forward, attention=network.fastest_attention())
        return functools.partial(few_at_once)
    if not supports(architecture):
        raise InvalidInput(
            f"{SETTING}={asked} needs at most {MAX_WIDTH} features, hidden units and columns of a packed head, "
            f"got {architecture}. Use {SETTING}=auto."
        )
    return functools.partial(forward, exact=asked in ("exact", "interpret"), interpret=asked == "interpret")


def supports(architecture: Architecture) -> bool:
    recipe = fused1 if architecture.recipe == 1 else fused2
    head_columns = recipe.head_columns(architecture.num_features // architecture.num_heads)
    return max(architecture.num_features, architecture.num_hidden, head_columns) <= MAX_WIDTH


def _recipe(params: Params):
    """The kernels for these weights, which say themselves of which recipe they are."""
    return fused2 if "sharpness" in params["layers"] else fused1


def pack(params: Params, num_heads: int) -> Packed:
    """The weights as the kernel reads them, and whether half precision holds all that it will make of them."""
    return _recipe(params).pack(params, num_heads)


def _pair_columns(params: Params, num_columns: int) -> int:
    """Columns of queries and keys for features of this many columns."""
    return fused2.pair_columns(num_columns - NUM_FIRST - recipe2.num_further(params))


@functools.cache
def _compiles(recipe: int) -> bool:
    """Whether this GPU's compiler accepts the kernel: tried once on a small one, with a warning if not."""
    architecture = Architecture(num_layers=1, recipe=recipe)
    shapes = jax.eval_shape(lambda: network.init_params(jax.random.key(0), architecture))
    one = jax.ShapeDtypeStruct((32,), jnp.float32), jax.ShapeDtypeStruct((32, 2), jnp.float32)
    x = jax.eval_shape(functools.partial(network.features, recipe=recipe), *one)
    filled = jax.ShapeDtypeStruct((32,), bool)
    try:
        jax.jit(forward, static_argnums=1).lower(shapes, architecture.num_heads, x, filled).compile()
    except Exception as error:  # whatever a compiler may raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        warnings.warn(
            f"The fused kernel of the learned rule does not compile on this GPU ({reason}). Plain XLA is used instead, "
            f"which gives the same results about ten times more slowly. {SETTING}=off asks for that without a warning.",
            stacklevel=2,
        )
        return False
    return True


def forward(
    params: Params,
    num_heads: int,
    x: Float[Array, "P C"],
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


def few_at_once(
    params: Params, num_heads: int, x: Float[Array, "P C"], filled: Bool[Array, " P"]
) -> Float[Array, " P"]:
    """`network.forward`, for a CPU. Mapped over populations and weights it still takes a few populations at a time.

    What `cpu` computes goes one by one, the plain version `AT_ONCE`: hundreds of tables of pairs do not fit the cache.
    """
    one = jax.tree.map(lambda leaf: leaf[None], params)
    return _few_at_once_of(num_heads)(one, x[None, None], filled[None, None])[0, 0]


def _plain(params: Params, num_heads: int, x, filled):
    return network.forward(params, num_heads, x, filled, network.fastest_attention())


def _map_of_maps(num_heads: int, params, x, filled, at_once: int | None, forward: Callable = _plain):
    """The plain version for M rules with K populations each, a given number of populations at once or one by one."""

    def of_rule(each):
        params, *populations = each

        def one(population):
            return forward(params, num_heads, *population)

        return jax.lax.map(one, tuple(populations), batch_size=at_once and min(at_once, x.shape[1]))

    return jax.lax.map(of_rule, (params, x, filled))


@functools.cache
def _few_at_once_of(num_heads: int) -> Callable:
    def many(params, x, filled):
        forward, at_once = (cpu.forward, None) if cpu.supports(params, x.shape[2]) else (_plain, AT_ONCE)
        if x.shape[0] * x.shape[1] > 1:
            return _map_of_maps(num_heads, params, x, filled, at_once, forward)
        params, x, filled = jax.tree.map(lambda leaf: leaf[0], (params, x, filled))
        return forward(params, num_heads, x[0], filled[0])[None, None]

    return _mapped(many)


@functools.cache
def _forward_of(num_heads: int, exact: bool, interpret: bool) -> Callable:
    def tiled(params, x, filled):
        attention = functools.partial(fused1.tiled_attention, exact=exact, interpret=interpret)
        return network.forward(params, num_heads, x, filled, attention)

    def many(weights, x, filled):
        params, (packed, fits) = weights
        recipe = _recipe(params)
        num, num_columns = x.shape[2:]
        if num > MAX_FUSED or (recipe is fused2 and _pair_columns(params, num_columns) > MAX_WIDTH):
            if recipe is fused1:
                return jax.vmap(jax.vmap(tiled, in_axes=(None, 0, 0)))(params, x, filled)
            return _map_of_maps(num_heads, params, x, filled, max(1, MAX_PLAIN_TABLE // (num_heads * num**2)))
        num_features = params["embed"]["weight"].shape[-1]
        fused = functools.partial(
            recipe.fused, num_features=num_features, num_heads=num_heads, exact=exact, interpret=interpret
        )

        def by_kernel():
            found = fused(packed, x, filled)
            if not network.leads(params):
                return found
            return jax.vmap(jax.vmap(recipe3.read_off, in_axes=(None, 0, 0)))(params, found, x)

        return jax.lax.cond(
            jnp.all(fits),
            by_kernel,
            lambda: _map_of_maps(num_heads, params, x, filled, STAND_IN_AT_ONCE),
        )

    return _mapped(many)


def _mapped(many: Callable) -> Callable:
    """A function of M rules with K populations each, which maps to more rules or more populations of each."""
    many = custom_vmap(many)

    @many.def_vmap
    def more(axis_size, in_batched, weights, x, filled):
        def batched(leaf, is_batched):
            return leaf if is_batched else jnp.broadcast_to(leaf, (axis_size, *leaf.shape))

        x, filled = batched(x, in_batched[1]), batched(filled, in_batched[2])
        if not any(jax.tree.leaves(in_batched[0])):  # more populations of the same rules

            def together(leaf):
                return jnp.moveaxis(leaf, 0, 1).reshape(leaf.shape[1], -1, *leaf.shape[3:])

            outputs = many(weights, together(x), together(filled))
            outputs = outputs.reshape(x.shape[1], axis_size, *x.shape[2:4], *outputs.shape[3:])
            return jnp.moveaxis(outputs, 1, 0), True
        weights = jax.tree.map(batched, weights, in_batched[0])
        merged = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (weights, x, filled))
        outputs = many(*merged)
        return outputs.reshape(*x.shape[:-1], *outputs.shape[3:]), True

    return many
