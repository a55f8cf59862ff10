"""What rules keep where fitness ties: `python benchmarks/ties.py`.

The mean novelty of final populations where all fitness is equal, where it is 0 or 1, and where it is rounded to
steps of half a power of ten. Fresh instances of two BBOB functions with their projections, dimensions 2 to 12, 32
seeds each.
"""

import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np

from lqd.bench import runner, settings
from lqd.evolution import metrics
from lqd.rules import catalogue
from lqd.types import Evaluation

SETTING = settings.Setting(functions=("sphere", "rastrigin"), num_seeds=32)


def all_equal(_, found: Evaluation) -> Evaluation:
    return Evaluation(jnp.zeros_like(found.fitness), found.descriptor, found.extras)


def zero_or_one(_, found: Evaluation) -> Evaluation:
    return Evaluation((found.descriptor[..., 0] > 0).astype(jnp.float32), found.descriptor, found.extras)


def in_steps(_, found: Evaluation) -> Evaluation:
    return Evaluation(jnp.round(jnp.log10(1e-6 - found.fitness) * -2) / 2, found.descriptor, found.extras)


KINDS = (all_equal, zero_or_one, in_steps)


@functools.partial(jax.jit, static_argnums=0)
def novelty(alter, rule, keys, field):
    def look(state):
        return jax.vmap(metrics.measure)(state.population.fitness, state.population.descriptor)["novelty"]

    return runner.evolve(SETTING.sizes, alter, rule, keys, field, SETTING.steps, look)[1][-1]


def main() -> None:
    parser = argparse.ArgumentParser(description="Novelty of final populations where fitness ties.")
    parser.add_argument("--rules", nargs="*", default=["ns", "lqd-n", "lqd-fn", "lqd-f"])
    rules = parser.parse_args().rules
    field = settings.field(jax.random.key(77), SETTING)
    keys = jax.random.split(jax.random.key(5), field.tasks.num_tasks)
    for name in rules:
        for alter in KINDS:
            found = np.asarray(novelty(alter, catalogue.rule(name), keys, field))
            error = found.std() / np.sqrt(len(found))
            print(f"{name:8} {alter.__name__:12} {found.mean():.4f} +- {error:.4f}", flush=True)


if __name__ == "__main__":
    main()
