"""Which terms of variation would help a rule that leads it? `python benchmarks/leading_by_hand.py`.

The advice is set by hand instead of learned: each child has one of the few best as its parent, and steps that adapt by
survival. Each setting is compared with the first one on the same tasks: noiseless instances of BBOB's 22 functions, of
the validation key. What `evolution/led.py` does not have:

    drift     a step along the mean of the best minus the mean of all
    mean      children begin at the mean of the best (1), or between that and their parent
    unit      what trails are measured in. One number for all dimensions, the mean deviation of the population, is what
              led.py has. "each" is the deviation in each dimension, "own" the individual's own step times the mean
    silent    the share of children without this term
    fixed     terms whose steps do not change from parent to child
"""

import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np

from lqd.bench import runner
from lqd.bench.settings import Setting, field

TERMS = ("iso", "line", "difference", "shape", "drift", "trail")
FIRST = {
    "iso": 0.2, "line": 0.15, "shape": 0.55, "parents": 8, "shaping": 70, "change": 0.3, "unit": "one", "latest": 0.5,
    "mean": 0.0, "silent": {}, "fixed": (),
}  # fmt: skip
SETTINGS = {
    "first": {},
    "with drift 0.5": {"drift": 0.5},
    "with difference 0.3": {"difference": 0.3},
    "with trail 0.5": {"trail": 0.5},
    "with trail 0.5, shape 0.4": {"trail": 0.5, "shape": 0.4},
    "with trail 1, shape 0.2": {"trail": 1.0, "shape": 0.2},
    "with trail 0.5, shape 0.4, of the latest step": {"trail": 0.5, "shape": 0.4, "latest": 1.0},
    "with trail 0.5, shape 0.4, unit each": {"trail": 0.5, "shape": 0.4, "unit": "each"},
    "with trail 0.5, shape 0.4, unit own": {"trail": 0.5, "shape": 0.4, "unit": "own"},
    "with trail 0.3, shape 0.2, unit own": {"trail": 0.3, "shape": 0.2, "unit": "own"},
    "from the mean of the best": {"mean": 1.0},
    "half way to the mean of the best": {"mean": 0.5},
    "half of the children without iso": {"silent": {"iso": 0.5}},
    "half without iso, half without line": {"silent": {"iso": 0.5, "line": 0.5}},
    "shape 0.8": {"shape": 0.8},
    "shape 0.55 as in the first, fixed": {"fixed": ("shape",)},
    "shape 0.7, fixed": {"shape": 0.7, "fixed": ("shape",)},
    "shape 0.8, fixed, 4 parents": {"shape": 0.8, "parents": 4, "fixed": ("shape",)},
    "with trail 1, fixed, shape 0.2": {"trail": 1.0, "shape": 0.2, "fixed": ("trail",)},
    "with trail 0.8, shape 0.4, both fixed": {"trail": 0.8, "shape": 0.4, "fixed": ("trail", "shape")},
    "4 parents": {"parents": 4},
    "16 parents": {"parents": 16},
    "30 shape": {"shaping": 30},
    "all shape": {"shaping": 128},
    "change 0.1": {"change": 0.1},
    "change 0.6": {"change": 0.6},
}
NUM, BATCH = 128, 32


def regrets(given: dict, tasks, keys, num_generations: int):
    """Of the best individual on every task."""
    steps = jnp.log(jnp.asarray([given.get(term, 1e-9) for term in TERMS]))
    num_parents, num_shaping = given["parents"], given["shaping"]
    low, high = tasks.bounds

    def evaluated(z):
        return tasks.evaluate(keys, low + z * (high - low)).fitness

    def children(key, z, trail, log_steps):
        key_parent, key_other, key_pair, key_steps, key_silent, *further = jax.random.split(key, 5 + len(TERMS))
        parent = jax.random.randint(key_parent, (BATCH,), 0, num_parents)
        other = jax.random.randint(key_other, (BATCH,), 0, NUM)
        here, there = jax.random.randint(key_pair, (2, BATCH), 0, NUM)
        change = jnp.asarray([0.0 if term in given["fixed"] else given["change"] for term in TERMS])
        handed_on = log_steps[parent] + change * jax.random.normal(key_steps, (BATCH, len(TERMS)))
        weight = (jnp.arange(NUM) < num_shaping) / num_shaping
        spread, best, dim = jnp.std(z, axis=0) + 1e-9, jnp.mean(z[:num_parents], axis=0), z.shape[1]
        step = jnp.exp(jnp.clip(handed_on, np.log(1e-9), 1.0))
        step *= jax.random.uniform(key_silent, step.shape) >= jnp.asarray([given["silent"].get(t, 0.0) for t in TERMS])
        unit = spread if given["unit"] == "each" else jnp.exp(jnp.mean(jnp.log(spread)))

        def drawn(i, num):
            return jax.random.normal(further[i], (BATCH, num))

        terms = (
            spread * drawn(0, dim),
            drawn(1, 1) * (z[other] - z[parent]),
            drawn(2, 1) * (z[here] - z[there]),
            (drawn(3, NUM) * jnp.sqrt(weight)) @ (z - weight @ z),
            jnp.abs(drawn(4, 1)) * (best - jnp.mean(z, axis=0)),
            unit * ((drawn(5, NUM) * jnp.sqrt(weight)) @ trail),
        )
        begun = z[parent] + given["mean"] * (best - z[parent])
        moved = sum(step[:, i : i + 1] * term for i, term in enumerate(terms))
        child, measured = begun + moved, unit * step[:, 5:] if given["unit"] == "own" else unit
        child = jnp.clip(jnp.where(child < 0, -child, jnp.where(child > 1, 2 - child, child)), 0.0, 1.0)
        kept, new = 1 - given["latest"], np.sqrt(given["latest"] * (2 - given["latest"]))
        return child, kept * trail[parent] + new * moved / measured, handed_on

    def sorted_by_fitness(state, num):
        _, order = jax.lax.top_k(state[0], num)
        return jax.tree.map(lambda leaf: jax.vmap(lambda one, order: one[order])(leaf, order), state)

    def generation(i, state):
        _, z, trail, log_steps = state
        found = jax.vmap(children)(jax.vmap(lambda key: jax.random.fold_in(key, i))(keys), z, trail, log_steps)
        joined = [jnp.concatenate(pair, axis=1) for pair in zip(state, (evaluated(found[0]), *found), strict=True)]
        return sorted_by_fitness(tuple(joined), NUM)

    z = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, 2**31), (NUM, tasks.dim)))(keys)
    begun = evaluated(z), z, jnp.zeros_like(z), jnp.broadcast_to(steps, (len(keys), NUM, len(TERMS)))
    fitness, *_ = jax.lax.fori_loop(0, num_generations, generation, sorted_by_fitness(begun, NUM))
    return tasks.f_opt - fitness[:, 0]


def main() -> None:
    parser = argparse.ArgumentParser(description="Terms of variation, with advice set by hand.")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--generations", type=int, default=256)
    given = parser.parse_args()
    keys = runner.held_out(runner.VALIDATION)
    tasks = field(keys.tasks, Setting(num_seeds=given.seeds)).tasks
    run_keys, first = jax.random.split(keys.runs, tasks.num_tasks), None
    for name, change in SETTINGS.items():
        run = jax.jit(functools.partial(regrets, FIRST | change, num_generations=given.generations))
        found = np.log10(np.maximum(np.asarray(run(tasks, run_keys), np.float64), 1e-8))
        first = found if first is None else first
        error = np.std(found - first, ddof=1) / np.sqrt(len(found))
        print(f"{name:46} log10 regret {found.mean():6.2f}   {np.mean(found - first):+.2f} +- {error:.2f}", flush=True)


if __name__ == "__main__":
    main()
