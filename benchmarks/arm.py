"""Speed on the 8-joint arm, side by side with pyribs and QDax, in one run: `python benchmarks/arm.py`.

Same work for all: uniform start, iso-line variation, evaluation, survival; `num_generations` timed after a warm-up, no
measures taken meanwhile (see `peers.py`). Ours and theirs take turns, seed by seed, so that whatever else the machine
does hits both. Prints medians over the seeds and the ratios to the peer that does the same.
"""

import argparse
import functools
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
import peers

import lqd
from lqd.evolution import loop
from lqd.evolution.variation import IsoLine
from lqd.rules.protocol import Rule, ready
from lqd.tasks.task import Repeated

_begin = jax.jit(loop.begin, static_argnames="population_size")


@functools.partial(jax.jit, static_argnames="batch_size")
def _advance(state: loop.State, tasks: Repeated, rule: Rule, steps, batch_size: int) -> loop.State:
    rule, operator = ready(rule), IsoLine.with_steps(peers.ISO_SIGMA, peers.LINE_SIGMA)
    return loop.evolve(lambda state: loop.step(state, tasks, rule, operator, batch_size), state, steps)[0]


def lqd_run(rule: Rule, population_size: int, batch_size: int, num_generations: int, seed: int) -> peers.Measurement:
    """Our loop on the same terms as the peers'."""
    tasks = Repeated(lqd.tasks.make("arm"), 1)
    start = _begin(jax.random.key(seed)[None], tasks, rule, population_size)

    def advance(num: int) -> loop.State:
        return jax.block_until_ready(_advance(start, tasks, rule, jnp.int32([num]), batch_size))

    advance(peers.WARM_UP_GENERATIONS)
    begun = time.perf_counter()
    state = advance(num_generations)
    time_s = time.perf_counter() - begun
    filled = np.asarray(state.population.filled[0])
    descriptor = np.asarray(state.population.descriptor[0])[filled]
    return peers.Measurement(
        evaluations=num_generations * batch_size,
        time_s=time_s,
        coverage_cells_filled=peers.cells_filled(descriptor, peers.cvt_centroids(population_size)),
        max_fitness=float(jnp.max(state.population.fitness)),
    )


def lqd_dns(population_size: int, batch_size: int, num_generations: int, seed: int) -> peers.Measurement:
    return lqd_run(lqd.rule("dns"), population_size, batch_size, num_generations, seed)


def lqd_map_elites(population_size: int, batch_size: int, num_generations: int, seed: int) -> peers.Measurement:
    rule = lqd.rule("me", centroids=peers.cvt_centroids(population_size))
    return lqd_run(rule, population_size, batch_size, num_generations, seed)


# Name, function, generations timed, and the one whose peers it is compared with.
ENTRIES = [
    ("lqd DNS", lqd_dns, 1000),
    ("pyribs DNS", peers.pyribs_dns, 100),
    ("lqd MAP-Elites", lqd_map_elites, 5000),
    ("pyribs CVT", peers.pyribs_cvt, 1000),
    ("QDax MAP-Elites", peers.qdax_map_elites, 3000),
]
RATIOS = [
    ("lqd DNS", "pyribs DNS"),
    ("lqd MAP-Elites", "pyribs CVT"),
    ("lqd MAP-Elites", "QDax MAP-Elites"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description="Evaluations per second on the 8-joint arm, ours and others'.")
    parser.add_argument("--population-size", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--num-repeats", type=int, default=5, help="seeds 0, 1, ...")
    arguments = parser.parse_args()
    runs: dict[str, list[peers.Measurement]] = {}
    for seed in range(arguments.num_repeats):
        for name, function, num_generations in ENTRIES:
            if seed and name not in runs:
                continue  # not installed: said once
            run = function(arguments.population_size, arguments.batch_size, num_generations, seed)
            if run is not None:
                runs.setdefault(name, []).append(run)

    print(f"arm, population {arguments.population_size}, batch {arguments.batch_size}, {jax.devices()[0].device_kind}")
    print(f"{'':17}{'evaluations/s':>14}{'range over the seeds':>25}{'cells':>7}")
    rate = {}
    for name, measured in runs.items():
        rates = [run["evaluations"] / run["time_s"] for run in measured]
        rate[name] = statistics.median(rates)
        cells = statistics.median(run["coverage_cells_filled"] for run in measured)
        print(f"{name:17}{rate[name]:>14,.0f}{f'{min(rates):,.0f} - {max(rates):,.0f}':>25}{cells:>7.0f}")
    for ours, theirs in RATIOS:
        if theirs in rate:
            print(f"{ours} / {theirs}: {rate[ours] / rate[theirs]:.1f}")


if __name__ == "__main__":
    main()
