"""How far does variation get if its advice is a few numbers, the same in every generation?

    python benchmarks/leading_by_search.py --minutes 35

CMA-ES (pycma, in the extra `bench`) looks for where the steps of `evolution/led.py` begin, how much each changes from
parent to child, how strongly it is pulled back to where it began, how many of the best are parents, and how much the
better ones count in covariances. Survival is by fitness alone. Each candidate is judged by its mean log10 regret on
noiseless instances of BBOB's 22 functions, drawn anew for every generation of the search. What is found is compared
with where the search began on instances of the validation key.

Where individuals without parents begin (`recipe3.NEUTRAL`), how much steps change (`led.CHANGE`) and the weights of
`training/start.py` come from here.
"""

import argparse
import time

import cma
import jax
import jax.numpy as jnp
import numpy as np

from lqd.bench import runner
from lqd.bench.settings import Setting, field

TERMS = ("iso", "line", "difference", "shape", "trail")
NUM, BATCH, CANDIDATES = 128, 32, 12
NUM_PARAMS = 3 * len(TERMS) + 3
KEY = 77_000  # of the first generation's instances


def params(x) -> dict:
    """The settings that a point of the search stands for; zeros are where it begins."""
    x = np.asarray(x, np.float64)
    step, change, pull, (parents, sharp, latest) = x[:5], x[5:10], x[13:18], x[10:13]
    return {
        "step": jnp.asarray(np.log([0.2, 0.15, 0.1, 0.7, 0.3]) + step, jnp.float32),
        "change": jnp.asarray(np.log1p(np.expm1([0.3, 0.3, 0.3, 0.1, 0.1]) * np.exp(change)), jnp.float32),
        "pull": jnp.asarray(1 / (1 + np.exp(3 - 1.5 * pull)), jnp.float32),
        "parents": jnp.float32(np.clip(6 * np.exp(0.7 * parents), 1, NUM)),
        "sharp": jnp.float32(2 * np.exp(0.7 * sharp)),
        "latest": jnp.float32(1 / (1 + np.exp(-latest))),
    }


@jax.jit
def regrets(given: dict, tasks, keys, num_generations):
    """Of the best individual on every task."""
    low, high = tasks.bounds
    weight = jax.nn.softmax(-given["sharp"] * jnp.arange(NUM) / NUM)

    def evaluated(z):
        return tasks.evaluate(keys, low + z * (high - low)).fitness

    def children(key, z, trail, log_steps):
        key_parent, key_other, key_pair, key_steps, *further = jax.random.split(key, 4 + len(TERMS))
        parent = jnp.floor(jax.random.uniform(key_parent, (BATCH,)) * given["parents"]).astype(jnp.int32)
        other = jax.random.randint(key_other, (BATCH,), 0, NUM)
        here, there = jax.random.randint(key_pair, (2, BATCH), 0, NUM)
        pulled = log_steps[parent] + given["pull"] * (given["step"] - log_steps[parent])
        steps = pulled + given["change"] * jax.random.normal(key_steps, (BATCH, len(TERMS)))
        steps = jnp.clip(steps, -18.0, 1.5)
        spread = jnp.std(z, axis=0) + 1e-9
        unit = jnp.exp(jnp.mean(jnp.log(spread)))

        def drawn(i, num):
            return jax.random.normal(further[i], (BATCH, num))

        terms = (
            spread * drawn(0, z.shape[1]),
            drawn(1, 1) * (z[other] - z[parent]),
            drawn(2, 1) * (z[here] - z[there]),
            (drawn(3, NUM) * jnp.sqrt(weight)) @ (z - weight @ z),
            unit * ((drawn(4, NUM) * jnp.sqrt(weight)) @ trail),
        )
        moved = sum(jnp.exp(steps[:, i : i + 1]) * term for i, term in enumerate(terms))
        child = z[parent] + moved
        child = jnp.clip(jnp.where(child < 0, -child, jnp.where(child > 1, 2 - child, child)), 0.0, 1.0)
        latest = given["latest"]
        way = (1 - latest) * trail[parent] + jnp.sqrt(latest * (2 - latest)) * moved / unit
        return child, jnp.clip(way, -1e6, 1e6), steps

    def the_best(state):
        _, order = jax.lax.top_k(state[0], NUM)
        return jax.tree.map(lambda leaf: jax.vmap(lambda one, order: one[order])(leaf, order), state)

    def generation(i, state):
        _, *parents = state
        found = jax.vmap(children)(jax.vmap(lambda key: jax.random.fold_in(key, i))(keys), *parents)
        joined = [jnp.concatenate(pair, axis=1) for pair in zip(state, (evaluated(found[0]), *found), strict=True)]
        return the_best(tuple(joined))

    z = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, 2**31), (NUM, tasks.dim)))(keys)
    begun = evaluated(z), z, jnp.zeros_like(z), jnp.broadcast_to(given["step"], (len(keys), NUM, len(TERMS)))
    fitness, *_ = jax.lax.fori_loop(0, num_generations, generation, the_best(begun))
    return tasks.f_opt - fitness[:, 0]


def main() -> None:
    parser = argparse.ArgumentParser(description="A search for advice that is the same in every generation.")
    parser.add_argument("--minutes", type=float, default=35.0)
    parser.add_argument("--generations", type=int, default=256, help="of the runs that are judged")
    parser.add_argument("--seeds", type=int, default=3, help="instances of each function for one candidate")
    parser.add_argument("--held-out", type=int, default=8, help="instances of each function at the end")
    given = parser.parse_args()

    def score(x, key, num_seeds: int) -> np.ndarray:
        tasks = field(key, Setting(num_seeds=num_seeds)).tasks
        keys = jax.random.split(jax.random.fold_in(key, 5), tasks.num_tasks)
        found = np.asarray(regrets(params(x), tasks, keys, given.generations), np.float64)
        return np.log10(np.maximum(found, 1e-8))

    options = {"popsize": CANDIDATES, "verbose": -9, "seed": 3}
    search, begun = cma.CMAEvolutionStrategy(np.zeros(NUM_PARAMS), 0.6, options), time.monotonic()
    while not search.countiter or time.monotonic() - begun < 60 * given.minutes:
        key, points = jax.random.key(KEY + search.countiter), search.ask()
        found = [float(score(x, key, given.seeds).mean()) for x in points]
        first = score(np.zeros(NUM_PARAMS), key, given.seeds).mean()
        search.tell(points, found)
        print(
            f"{search.countiter}: mean {np.mean(found):.2f}, best {min(found):.2f}, the start {first:.2f}", flush=True
        )

    key = runner.held_out(runner.VALIDATION).tasks
    before, after = (score(x, key, given.held_out) for x in (np.zeros(NUM_PARAMS), search.result.xfavorite))
    error = np.std(after - before, ddof=1) / np.sqrt(len(before))
    print(f"held out: {before.mean():.2f} -> {after.mean():.2f} ({np.mean(after - before):+.2f} +- {error:.2f})")
    for name, value in params(search.result.xfavorite).items():
        print(f"{name:8} {np.round(np.exp(value) if name == 'step' else value, 3)}")


if __name__ == "__main__":
    main()
