"""Evaluations per second of other quality-diversity libraries on the 8-joint arm, with their fastest settings.

Every peer starts from the same kind of population (uniform in the box), breeds with the same iso-line variation and is
judged on the same CVT cells. Timed: `num_generations` generations of reproduction, evaluation and survival, after a
warm-up on a throwaway copy has compiled whatever compiles. Not timed: imports, compilation, centroids, the initial
population (so `evaluations` leaves it out too). `coverage_cells_filled` counts the cells that the final population
occupies; for DNS, which has no cells of its own, they are read off afterwards.

Deliberately left out: metrics during the run, logging and result archives, so that only the algorithm is timed.

    pip install "jax>=0.10" "ribs>=0.12"
    pip install "flax>=0.12" "chex>=0.1.90" && pip install --no-deps "qdax==0.5.0"

QDax goes in without its dependencies: MAP-Elites needs none of the simulators that they bring.
"""

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypedDict

import numpy as np

NUM_JOINTS = 8
ISO_SIGMA, LINE_SIGMA = 0.005, 0.05
NUM_NEIGHBOURS = 3
WARM_UP_GENERATIONS = 5
CHUNK = 100  # generations per compiled scan; 10 or 1000 change the speed by less than 5 %
INSTALL_RIBS = 'pip install "ribs>=0.12"'
INSTALL_QDAX = 'pip install "jax>=0.10" "flax>=0.12" "chex>=0.1.90" scikit-learn && pip install --no-deps "qdax==0.5.0"'


class Measurement(TypedDict):
    """`evaluations` took `time_s`; the rest describes the final population."""

    evaluations: int
    time_s: float
    coverage_cells_filled: int
    max_fitness: float


Peer = Callable[[int, int, int, int], Measurement | None]


def arm(genotype: Any, xp: ModuleType) -> tuple[Any, Any]:
    """Genotypes (B, joints) in [0, 1] -> fitness (B,), end effector (B, 2) in [0, 1]; `xp` is numpy or jax.numpy."""
    angle = xp.cumsum(2 * xp.pi * genotype - xp.pi, axis=-1)
    reach = xp.stack([xp.cos(angle).mean(-1), xp.sin(angle).mean(-1)], axis=-1)
    return -xp.std(genotype, axis=-1), (reach + 1) / 2


@functools.cache
def cvt_centroids(num_cells: int) -> np.ndarray:
    """Centroids (num_cells, 2) of the unit square, the same for every peer and every seed."""
    from sklearn.cluster import k_means

    sample = np.random.default_rng(0).uniform(size=(50 * num_cells, 2)).astype(np.float32)
    return k_means(sample, num_cells, init="random", n_init=1, random_state=0)[0]


def cells_filled(descriptor: np.ndarray, centroids: np.ndarray) -> int:
    """How many cells hold at least one of the descriptors (B, 2)."""
    from scipy.spatial import KDTree

    return len(np.unique(KDTree(centroids).query(descriptor)[1]))


def report_missing(peer: str, error: ImportError, install: str) -> None:
    print(f"{peer}: left out, {error}. Install it with: {install}")


def run_ribs(
    make_archive: Callable[[], Any], population_size: int, batch_size: int, num_generations: int, seed: int
) -> Measurement:
    """Time a pyribs archive behind an iso-line emitter and a scheduler."""
    from ribs.emitters import IsoLineEmitter
    from ribs.schedulers import Scheduler

    initial = np.random.default_rng(seed).uniform(size=(population_size, NUM_JOINTS)).astype(np.float32)

    def start() -> Scheduler:
        archive = make_archive()
        emitter = IsoLineEmitter(
            archive,
            iso_sigma=ISO_SIGMA,
            line_sigma=LINE_SIGMA,
            initial_solutions=initial,
            bounds=[(0.0, 1.0)] * NUM_JOINTS,
            batch_size=batch_size,
            seed=seed,
        )
        scheduler = Scheduler(archive, [emitter])
        advance(scheduler, 1)  # an empty archive is given the initial population
        return scheduler

    def advance(scheduler: Scheduler, num_steps: int) -> None:
        for _ in range(num_steps):
            scheduler.tell(*arm(scheduler.ask(), np))

    advance(start(), WARM_UP_GENERATIONS)
    scheduler = start()
    start_s = time.perf_counter()
    advance(scheduler, num_generations)
    time_s = time.perf_counter() - start_s

    return Measurement(
        evaluations=num_generations * batch_size,
        time_s=time_s,
        coverage_cells_filled=cells_filled(scheduler.archive.data("measures"), cvt_centroids(population_size)),
        max_fitness=float(scheduler.archive.data("objective").max()),
    )


def pyribs_dns(population_size: int, batch_size: int, num_generations: int, seed: int) -> Measurement | None:
    """Dominated Novelty Search: `DNSArchive`, which counts equal fitness as fitter."""
    try:
        from ribs.archives import DNSArchive
    except ImportError as error:
        report_missing("pyribs DNS", error, INSTALL_RIBS)
        return None

    def make_archive() -> DNSArchive:
        return DNSArchive(
            solution_dim=NUM_JOINTS,
            measure_dim=2,
            capacity=population_size,
            k_neighbors=NUM_NEIGHBOURS,
            seed=seed,
            dtype=np.float32,
        )

    return run_ribs(make_archive, population_size, batch_size, num_generations, seed)


def pyribs_cvt(population_size: int, batch_size: int, num_generations: int, seed: int) -> Measurement | None:
    """MAP-Elites: `CVTArchive` with its k-d tree."""
    try:
        from ribs.archives import CVTArchive
    except ImportError as error:
        report_missing("pyribs CVT", error, INSTALL_RIBS)
        return None

    def make_archive() -> CVTArchive:
        return CVTArchive(
            solution_dim=NUM_JOINTS,
            centroids=cvt_centroids(population_size),
            ranges=[(0.0, 1.0)] * 2,
            nearest_neighbors="scipy_kd_tree",
            seed=seed,
            dtype=np.float32,
        )

    return run_ribs(make_archive, population_size, batch_size, num_generations, seed)


def qdax_map_elites(population_size: int, batch_size: int, num_generations: int, seed: int) -> Measurement | None:
    """MAP-Elites on CVT cells, as jitted scans of `scan_update`; runs on JAX's default device."""
    try:
        import jax
        import jax.numpy as jnp
        from qdax.core.emitters.mutation_operators import isoline_variation
        from qdax.core.emitters.standard_emitters import MixingEmitter
        from qdax.core.map_elites import MAPElites
    except ImportError as error:
        report_missing("QDax MAP-Elites", error, INSTALL_QDAX)
        return None

    variation = functools.partial(isoline_variation, iso_sigma=ISO_SIGMA, line_sigma=LINE_SIGMA, minval=0.0, maxval=1.0)
    algorithm = MAPElites(
        scoring_function=lambda genotype, key: (*arm(genotype, jnp), {}),
        emitter=MixingEmitter(
            mutation_fn=lambda genotype, key: genotype,  # never called: every offspring comes from variation
            variation_fn=variation,
            variation_percentage=1.0,
            batch_size=batch_size,
        ),
        metrics_function=lambda repertoire: {},
    )
    key_initial, key_init, key_run = jax.random.split(jax.random.key(seed), 3)
    initial = jax.random.uniform(key_initial, (population_size, NUM_JOINTS))
    repertoire, emitter_state, _ = algorithm.init(initial, jnp.asarray(cvt_centroids(population_size)), key_init)

    @functools.partial(jax.jit, static_argnums=1)
    def advance(carry: Any, num_steps: int) -> Any:
        return jax.lax.scan(algorithm.scan_update, carry, (), length=num_steps)[0]

    chunks = [CHUNK] * (num_generations // CHUNK) + [num_generations % CHUNK] * (num_generations % CHUNK > 0)
    carry = jax.block_until_ready((repertoire, emitter_state, key_run))
    for num_steps in set(chunks):
        jax.block_until_ready(advance(carry, num_steps))
    start_s = time.perf_counter()
    for num_steps in chunks:
        carry = advance(carry, num_steps)
    jax.block_until_ready(carry)
    time_s = time.perf_counter() - start_s

    fitness = np.asarray(carry[0].fitnesses)
    return Measurement(
        evaluations=num_generations * batch_size,
        time_s=time_s,
        coverage_cells_filled=int(np.isfinite(fitness).sum()),
        max_fitness=float(fitness.max()),
    )


# The default number of generations makes each run last seconds rather than milliseconds or minutes.
PEERS: dict[str, tuple[Peer, int]] = {
    "pyribs DNS": (pyribs_dns, 100),
    "pyribs CVT": (pyribs_cvt, 1000),
    "QDax MAP-Elites": (qdax_map_elites, 5000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Evaluations per second of other libraries on the 8-joint arm.")
    parser.add_argument("--population-size", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--num-generations", type=int, help="for all peers (default: chosen for each)")
    parser.add_argument("--num-repeats", type=int, default=3, help="seeds 0, 1, ...")
    arguments = parser.parse_args()

    print(f"arm, population {arguments.population_size}, batch {arguments.batch_size}; median [range] over the seeds")
    print(f"{'peer':16}{'generations':>12}{'evaluations/s':>15}{'range':>25}{'cells':>7}{'max fitness':>13}")
    for name, (peer, default) in PEERS.items():
        num_generations = arguments.num_generations or default
        runs: list[Measurement] = []
        for seed in range(arguments.num_repeats):
            run = peer(arguments.population_size, arguments.batch_size, num_generations, seed)
            if run is None:
                break
            runs.append(run)
        if not runs:
            continue
        rates = [run["evaluations"] / run["time_s"] for run in runs]
        cells = statistics.median(run["coverage_cells_filled"] for run in runs)
        best = statistics.median(run["max_fitness"] for run in runs)
        spread = f"{min(rates):,.0f} - {max(rates):,.0f}"
        rate = statistics.median(rates)
        print(f"{name:16}{num_generations:>12,}{rate:>15,.0f}{spread:>25}{cells:>7.0f}{best:>13.4f}")


if __name__ == "__main__":
    main()
