"""What a meta-generation costs on this device, and where: `python benchmarks/meta_generation.py`.

M rules on the same K BBOB tasks (22 functions, dimensions 2 to 12, noise) for T generations of 32 offspring, population
128, with the programs that training uses. The parts of a generation are found by leaving them out: a rule that costs
next to nothing instead of the transformer, tasks that cost next to nothing instead of BBOB, offspring without
survival. Medians of several runs on fresh random numbers; compilation apart. `--chunk-sizes` times the whole without
the transformer for several numbers of members at once, `--memory` says what a chunk with the transformer needs, and
`--trace FOLDER` writes JAX's profile of one meta-generation there and lists what took longest on the device. Recipe 3
also leads variation: its parts are with `Led` steps. With `--tasks`, as in `lqd train`, only the whole is timed.
"""

import argparse
import collections
import dataclasses
import functools
import gzip
import json
import pathlib
import re
import time

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lqd.evolution import loop
from lqd.meta import generation, initial_weights, inner_run, presets
from lqd.rules.learned import dispatch, recipe3
from lqd.types import Evaluation, pytree, static


@pytree
class Linear:
    """A rule with parameters that costs nothing: a weighted sum of fitness and descriptor, and no advice."""

    weight: Float[Array, " D+1"]
    guides: bool = static(default=False)

    def __call__(self, key, fitness, descriptor):
        return jnp.where(fitness > -jnp.inf, fitness * self.weight[0] + descriptor @ self.weight[1:], -jnp.inf)

    def guide(self, key, fitness, descriptor, carried):
        advice = jnp.zeros((len(carried), recipe3.NUM_ADVICE)) * self.weight[0]
        return self(key, fitness, descriptor), advice


@pytree
class Plane:
    """Tasks that cost nothing: the fitness is the sum of the coordinates, the descriptor the first two."""

    num_tasks: int = static()
    dim: int = static()
    descriptor_dim: int = static(default=2)

    @property
    def bounds(self):
        return jnp.full(self.dim, -5.0), jnp.full(self.dim, 5.0)

    @property
    def f_opt(self):
        return jnp.zeros(self.num_tasks)

    def evaluate(self, key, x):
        return Evaluation(jnp.sum(x, axis=-1), x[..., :2])

    def noiseless(self, x):
        return jnp.sum(x, axis=-1)


def reproduce(config, tasks, keys, weight, num_generations):
    """Generations of offspring that replace the first individuals, without a competition."""
    operator = config.operator
    state = loop.begin(keys, tasks, Linear(weight), config.population_size, operator=operator)

    def step(i, x):
        now = dataclasses.replace(state, population=dataclasses.replace(state.population, x=x))
        children = loop.offspring(now, i, operator, tasks.bounds, config.batch_size)
        return jax.lax.dynamic_update_slice_in_dim(x, children, 0, axis=1)

    x = jax.lax.fori_loop(0, num_generations, step, state.population.x + 0 * weight[0])
    return jnp.sum(x, axis=(1, 2))


def run(config, tasks, keys, rule, num_generations):
    return inner_run.run_rule(rule, keys, tasks, config, num_generations, None)


def timed(name, function, make_arguments, num_repeats):
    """Median seconds, printed; `make_arguments(i)` gives fresh ones."""
    begun = time.perf_counter()
    jax.block_until_ready(function(*make_arguments(0)))
    first = time.perf_counter() - begun
    times = []
    for i in range(1, num_repeats + 1):
        arguments = jax.block_until_ready(make_arguments(i))
        begun = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - begun)
    median = sorted(times)[len(times) // 2]
    print(f"{name:44} {median * 1e3:10.1f} ms   (first call {first:.1f} s)", flush=True)
    return median


def parts(config, stage, state, program, shared, prepare, fresh, chunk_sizes, timed_):
    """Times the parts; returns the seconds of everything but the competition."""
    num_members, num_generations = stage.meta_population_size, jnp.int32(stage.num_generations)
    seed = jnp.uint32(0)
    timed_("ask and sample tasks", prepare, fresh)
    scores = {
        name: jax.random.normal(jax.random.key(1), (num_members, stage.num_tasks)) for name in ("fitness", "novelty")
    }
    finish = functools.partial(generation.finish, config, stage)
    timed_(
        "normalise, aggregate, tell",
        finish,
        lambda i: (jax.tree.map(jnp.copy, state), shared.members, scores, seed, jnp.int32(i)),
    )

    def inner(function):
        """All members at once with cheap rules, on fresh keys."""
        compiled = jax.jit(jax.vmap(function, in_axes=(None, None, 0, None)))

        def arguments(tasks, rules):
            return lambda i: (tasks, jax.random.split(jax.random.key(i), stage.num_tasks), rules, num_generations)

        return compiled, arguments

    weights = jax.random.normal(jax.random.key(2), (num_members, 3))
    plane = Plane(stage.num_tasks, shared.tasks.dim)
    compiled, arguments = inner(functools.partial(reproduce, config))
    reproduction_s = timed_("  reproduction, with its random numbers", compiled, arguments(plane, weights))
    compiled, arguments = inner(functools.partial(run, config))
    linear = Linear(weights, config.architecture.recipe == 3)
    cheap_s = timed_("  + selection", compiled, arguments(plane, linear))
    rest_s = timed_("  + evaluation, noise: all but the competition", compiled, arguments(shared.tasks, linear))
    print(f"    selection {1e3 * (cheap_s - reproduction_s):.1f} ms, evaluation {1e3 * (rest_s - cheap_s):.1f} ms")
    for size in chunk_sizes:

        def by_chunks(tasks, keys, rules, num_generations, size=size):
            parts = [jax.tree.map(lambda leaf, i=i: leaf[i : i + size], rules) for i in range(0, num_members, size)]
            return [compiled(tasks, keys, part, num_generations) for part in parts]

        timed_(f"  the same in chunks of {size}", by_chunks, arguments(shared.tasks, linear))

    return rest_s


def longest(folder: pathlib.Path, program: str, num: int = 60) -> None:
    """Lists what took longest on the devices: the operation, its result, and what it was compiled from."""
    about = {
        name: f"{shape[:44]:44} {'/'.join(origin.split('/')[-4:])}"
        for name, shape, origin in re.findall(r'%?([\w.-]+) = (\S+) .*?op_name="([^"]*)"', program)
    }
    [path] = sorted(folder.rglob("*.trace.json.gz"))[-1:]
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    seconds, counts = collections.Counter(), collections.Counter()
    for event in events:
        if event.get("ph") == "X" and "hlo_op" in event.get("args", {}):
            name = event["args"]["hlo_op"]
            what = f"{name[:36]:36} {about.get(name, '')}"
            seconds[what] += event["dur"] / 1e6
            counts[what] += 1
    print(f"{sum(seconds.values()):.3f} s in {sum(counts.values()):,} operations of {', '.join(names.values())}")
    for what, spent in seconds.most_common(num):
        print(f"{spent * 1e3:9.1f} ms {counts[what]:7,} times  {what}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of a meta-generation, part by part.")
    parser.add_argument("--preset", default="reference")
    parser.add_argument("--recipe", type=int)
    parser.add_argument("--meta-population-size", type=int)
    parser.add_argument("--num-tasks", type=int)
    parser.add_argument("--num-generations", type=int)
    parser.add_argument("--chunk-sizes", type=int, nargs="*", default=[])
    parser.add_argument("--num-repeats", type=int, default=3)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--only-whole", action="store_true", help="the whole meta-generation, without its parts")
    parser.add_argument("--tasks", help="families of tasks; without it BBOB")
    parser.add_argument("--trace", type=pathlib.Path)
    given = vars(parser.parse_args())
    preset, chunk_sizes, num_repeats = (given.pop(name) for name in ("preset", "chunk_sizes", "num_repeats"))
    trace = given.pop("trace")
    memory, only_whole = given.pop("memory"), given.pop("only_whole")
    config = presets.override(presets.preset(preset), {name: value for name, value in given.items() if value})
    stage = config.stages[-1]
    num_members, num_generations = stage.meta_population_size, jnp.int32(stage.num_generations)
    print(
        f"{jax.devices()[0].device_kind}, jax {jax.__version__}: M={num_members}, K={stage.num_tasks}, "
        f"T={stage.num_generations}, {config.architecture.num_layers} layers, "
        f"recipe {config.architecture.recipe}, "
        f"competition by {dispatch.fastest_forward(config.architecture).func.__module__}",
        flush=True,
    )
    timed_ = functools.partial(timed, num_repeats=num_repeats)

    program = generation.Generation(config, stage)
    state = generation.strategy_of(config, stage).init(initial_weights.weights(config))
    prepare = functools.partial(generation.prepare, config, stage, config.families[0], state)
    seed, chunk = jnp.uint32(0), program._chunk

    def fresh(i):
        return seed, jnp.int32(i), num_generations

    rest_s = None
    if not (only_whole or len(config.families) > 1):
        shared = prepare(*fresh(0))
        rest_s = parts(config, stage, state, program, shared, prepare, fresh, chunk_sizes, timed_)
    if memory:
        shared = prepare(*fresh(0))
        lowered = generation.run_chunk.lower(config, chunk, shared, jnp.int32(0), num_generations)
        analysis = lowered.compile().memory_analysis()
        held = analysis.temp_size_in_bytes + analysis.argument_size_in_bytes + analysis.output_size_in_bytes
        print(f"memory of a chunk of {chunk} members with the transformer: {held / 2**30:.2f} GiB")

    def whole(state, number):
        states, report = program([jax.tree.map(jnp.copy, state)], int(number))
        return states, report

    total_s = timed_(f"whole meta-generation, chunks of {chunk}", whole, lambda i: (state, i))
    if rest_s is not None:
        print(f"    competition {total_s - rest_s:.2f} s, all else {rest_s:.2f} s", flush=True)
    if trace is not None:
        with jax.profiler.trace(trace, create_perfetto_trace=False):
            jax.block_until_ready(whole(state, 1))
        shared = prepare(*fresh(0))
        lowered = generation.run_chunk.lower(config, chunk, shared, np.int32(0), np.int32(stage.num_generations))
        longest(trace, lowered.compile().as_text())


if __name__ == "__main__":
    main()
