"""What a meta-generation costs on this device, and where: `python benchmarks/generation.py`.

M rules on the same K BBOB tasks (22 functions, dimensions 2 to 12, noise) for T generations of 32 offspring, population
128, one compiled program: once with the transformer rule, once with a rule that costs next to nothing, so that the
difference is the competition. Milliseconds per generation, seconds per meta-generation.
"""

import argparse
import time

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from lqd.evolution import loop
from lqd.evolution.learned import Learned
from lqd.evolution.reproduction import IsoLine
from lqd.tasks import landscape
from lqd.types import pytree


@pytree
class Linear:
    """A rule with parameters that costs nothing: a weighted sum of fitness and descriptor."""

    weight: Float[Array, " D+1"]

    def __call__(self, key, fitness, descriptor):
        return jnp.where(fitness > -jnp.inf, fitness * self.weight[0] + descriptor @ self.weight[1:], -jnp.inf)


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of a meta-generation.")
    parser.add_argument("--num-rules", type=int, default=64)
    parser.add_argument("--num-per-function", type=int, default=3)
    parser.add_argument("--num-generations", type=int, default=256)
    parser.add_argument("--num-repeats", type=int, default=3)
    arguments = parser.parse_args()
    num_rules, num_generations = arguments.num_rules, arguments.num_generations

    key = jax.random.key(0)
    tasks = landscape.sample_batch(key, landscape.TRAINING, arguments.num_per_function, width=12, min_dim=2, max_dim=12)
    operator = IsoLine(jnp.float32(0.005), jnp.float32(0.05))
    keys = jax.random.split(key, tasks.num_tasks)

    @jax.jit
    def meta_generation(rules, tasks, keys, num_generations):
        def run(rule):
            state = loop.begin(keys, tasks, rule, 128)
            state = jax.lax.fori_loop(
                0, num_generations, lambda _, state: loop.step(state, tasks, rule, operator, 32), state
            )
            return jnp.max(tasks.noiseless(state.population.x), axis=1)

        return jax.vmap(run)(rules)

    rules = {
        "cheap": Linear(jax.random.normal(key, (num_rules, 3))),
        "transformer": jax.vmap(Learned.init)(jax.random.split(key, num_rules)),
    }
    print(f"{jax.devices()[0].device_kind}: M={num_rules}, K={tasks.num_tasks}, T={num_generations}", flush=True)
    for name, stack in rules.items():
        begun = time.perf_counter()
        jax.block_until_ready(meta_generation(stack, tasks, keys, jnp.int32(2)))
        compile_s = time.perf_counter() - begun
        times = []
        for i in range(arguments.num_repeats):
            fresh = jax.block_until_ready(jax.random.split(jax.random.key(i), tasks.num_tasks))
            begun = time.perf_counter()
            jax.block_until_ready(meta_generation(stack, tasks, fresh, jnp.int32(num_generations)))
            times.append(time.perf_counter() - begun)
        median = sorted(times)[len(times) // 2]
        print(
            f"{name:12} {median:8.3f} s per meta-generation, {median / num_generations * 1e3:8.3f} ms per generation "
            f"(first call {compile_s:.1f} s)",
            flush=True,
        )


if __name__ == "__main__":
    main()
