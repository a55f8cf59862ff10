"""What the competition of the learned rule costs: `python benchmarks/competition.py [--recipe 2]`.

Microseconds per forward pass of a population of 160 individuals (4 layers, 16 features, 4 heads), for many populations
at once: plain XLA in float32, plain XLA with everything in bfloat16, and the fused kernel, on the same random data in
one run. First of all each is compared with float32 at full precision. Medians of many runs over two sets of data, of a
whole call: features in, scores out. Then larger populations, with the memory that XLA states for them. Without a GPU
the kernel is left out, and the plain version is timed against a naive one.
"""

import argparse
import functools
import statistics
import time

import jax
import jax.numpy as jnp

from lqd.rules.learned import dispatch, network
from lqd.rules.learned.layers import linear
from lqd.rules.learned.network import Architecture


def naive_attention(layer, x, filled, num_heads):
    """As one would write it first: all weights of all heads as one array."""
    num = x.shape[0]
    query, key, value = (linear(layer[n], x).reshape(num, num_heads, -1) for n in ("query", "key", "value"))
    logits = jnp.einsum("ihd,jhd->hij", query, key) / jnp.sqrt(jnp.asarray(query.shape[-1], x.dtype))
    weights = jax.nn.softmax(jnp.where(filled, logits, -jnp.inf), axis=-1)
    return linear(layer["out"], jnp.einsum("hij,jhd->ihd", weights, value).reshape(num, -1))


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def data(recipe: int, num_rules: int, num_populations: int, num: int, seed: int):
    key_params, key_x = jax.random.split(jax.random.key(seed))
    architecture = Architecture(recipe=recipe)
    params = jax.vmap(lambda key: network.init_params(key, architecture))(jax.random.split(key_params, num_rules))
    x = jax.random.normal(key_x, (num_rules, num_populations, num, 3))
    if recipe == 2:
        x = jax.vmap(jax.vmap(lambda x: network.features(x[:, 0], x[:, 1:], recipe)))(x)
    return params, x, jnp.ones((num_rules, num_populations, num), bool)


def mapped(forward):
    def one(params, x, filled):
        return forward(params, Architecture().num_heads, x, filled)

    return jax.vmap(jax.vmap(one, in_axes=(None, 0, 0)))


def in_bfloat16(forward):
    def cast(params, num_heads, x, filled):
        params, x = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), (params, x))
        return forward(params, num_heads, x, filled).astype(jnp.float32)

    return cast


def versions(recipe: int, with_kernel: bool) -> dict:
    naive = functools.partial(network.forward, attention=naive_attention)
    found = {"XLA float32": functools.partial(network.forward, attention=network.fastest_attention())}
    if not with_kernel and recipe == 1:
        found["XLA, naive"] = naive
    if with_kernel:
        if recipe == 1:
            found["XLA bfloat16"] = in_bfloat16(naive)
        found["kernel"] = dispatch.forward
        found["kernel, exact"] = functools.partial(dispatch.forward, exact=True)
    return {name: mapped(function) for name, function in found.items()}


def compiled(function, sets):
    begun = time.perf_counter()
    program = jax.jit(function).lower(*sets[0]).compile()
    return program, time.perf_counter() - begun


def timed(program, sets, num_repeats: int) -> float:
    times = []
    for i in range(num_repeats + 2):
        begun = time.perf_counter()
        jax.block_until_ready(program(*sets[i % len(sets)]))
        times.append(time.perf_counter() - begun)
    return statistics.median(times[2:])


def memory(program) -> float:
    analysis = program.memory_analysis()
    return (analysis.temp_size_in_bytes + analysis.output_size_in_bytes) / 2**20


def row(name, function, sets, expected, num_repeats, baseline_s):
    num_passes = sets[0][1].shape[0] * sets[0][1].shape[1]
    try:
        program, compile_s = compiled(function, sets)
        found = jax.block_until_ready(program(*sets[0])[:2, :4])
    except Exception as error:  # out of memory, mostly
        print(f"  {name:14} {type(error).__name__}: {str(error).splitlines()[0][:90]}", flush=True)
        return None
    error = float(jnp.linalg.norm(found - expected) / jnp.linalg.norm(expected))
    seconds = timed(program, sets, num_repeats)
    ratio = f"{baseline_s / seconds:6.1f} x" if baseline_s else " " * 8
    print(
        f"  {name:14} {seconds / num_passes * 1e6:10.3f} us per pass {ratio}   error {error:.1e}   "
        f"memory {memory(program):8.1f} MiB   compiled in {compile_s:.1f} s",
        flush=True,
    )
    return seconds


def table(title, recipe, chosen, num_rules, num_populations, num, num_repeats):
    print(title, flush=True)
    sets = [jax.block_until_ready(data(recipe, num_rules, num_populations, num, seed)) for seed in range(2)]
    small = jax.tree.map(lambda leaf: leaf[:2], sets[0])
    expected = jax.jit(mapped(network.forward))(small[0], small[1][:, :4], small[2][:, :4])
    baseline_s = None
    for name, function in chosen.items():
        seconds = row(name, function, sets, expected, num_repeats, baseline_s)
        if name == "XLA float32":
            baseline_s = seconds


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of the learned rule's forward pass.")
    parser.add_argument("--recipe", type=int, default=1, help="the network of feature recipe 1 (the paper's) or 2")
    parser.add_argument("--num-populations", type=int, nargs="*", help="of 160 individuals, at once")
    parser.add_argument("--sizes", type=int, nargs="*", help="individuals of larger populations")
    parser.add_argument("--num-repeats", type=int, default=20)
    given = parser.parse_args()
    on_gpu = jax.default_backend() == "gpu"
    num_populations = given.num_populations if given.num_populations is not None else ([4096, 65536] if on_gpu else [8])
    sizes = given.sizes if given.sizes is not None else ([128, 256, 1024, 4096] if on_gpu else [160, 1280])
    chosen = versions(given.recipe, on_gpu)
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}; ratios to XLA float32")
    for num in num_populations:
        num_rules = min(64, num)
        title = f"{num} populations of 160, {num_rules} rules"
        table(title, given.recipe, chosen, num_rules, num // num_rules, 160, given.num_repeats)
    for size in sizes:
        num = max(1, 2**22 // size**2 * 64) if on_gpu else 1
        table(f"{num} populations of {size}, 1 rule", given.recipe, chosen, 1, num, size, given.num_repeats)


if __name__ == "__main__":
    main()
