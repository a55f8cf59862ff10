"""QDax's arm with QDax's MAP-Elites, and with other competition rules in its place: `python examples/qdax_arm.py`.

Same task, emitter, number of evaluations and cells for all; only `repertoire_init` differs. Coverage and QD score are
those of a passive archive: the best ever seen in each cell, which MAP-Elites holds anyway. Needs
`pip install 'lqd[qdax]'`; takes less than a minute on two CPU cores.
"""

import argparse
from collections.abc import Callable
from functools import partial

import jax
import numpy as np
from qdax.core.containers.mapelites_repertoire import MapElitesRepertoire, compute_cvt_centroids
from qdax.core.emitters.mutation_operators import isoline_variation
from qdax.core.emitters.standard_emitters import MixingEmitter
from qdax.core.map_elites import MAPElites
from qdax.tasks.arm import arm_scoring_function
from qdax.utils.metrics import default_qd_metrics

from lqd.integrations.qdax import LQDRepertoire

NUM_JOINTS, NUM_CELLS, BATCH_SIZE = 8, 512, 64
CONTAINERS = {
    "QDax's MAP-Elites": MapElitesRepertoire.init,
    "DNS": LQDRepertoire.with_rule("dns", archive=True),
    "LQD (F)": LQDRepertoire.with_rule("lqd-f", archive=True),
    "LQD (F+N)": LQDRepertoire.with_rule("lqd-fn", archive=True),
    "LQD (F+N), 128": LQDRepertoire.with_rule("lqd-fn", population_size=128, archive=True),
}


def metrics(repertoire) -> dict[str, jax.Array]:
    """Of the passive archive."""
    cells = repertoire.archive if isinstance(repertoire, LQDRepertoire) else repertoire
    return default_qd_metrics(cells, qd_offset=1.0)


def search(repertoire_init: Callable, centroids: jax.Array, num_generations: int) -> Callable:
    """A whole run as a compiled function of its key."""
    variation = partial(isoline_variation, iso_sigma=0.005, line_sigma=0.05, minval=0.0, maxval=1.0)
    emitter = MixingEmitter(None, variation, variation_percentage=1.0, batch_size=BATCH_SIZE)
    algorithm = MAPElites(arm_scoring_function, emitter, metrics, repertoire_init=repertoire_init)

    @jax.jit
    def run(key):
        key_start, key_init, key_run = jax.random.split(key, 3)
        start = jax.random.uniform(key_start, (BATCH_SIZE, NUM_JOINTS))
        repertoire, emitter_state, _ = algorithm.init(start, centroids, key_init)
        carry = (repertoire, emitter_state, key_run)
        (repertoire, _, _), history = jax.lax.scan(algorithm.scan_update, carry, (), length=num_generations)
        return repertoire, history

    return run


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Competition rules in QDax, on its arm.")
    parser.add_argument("--num-generations", type=int, default=300)
    parser.add_argument("--num-seeds", type=int, default=3)
    given = parser.parse_args(arguments)

    centroids = compute_cvt_centroids(2, 50 * NUM_CELLS, NUM_CELLS, 0.0, 1.0, jax.random.key(0))
    num_evaluations = BATCH_SIZE * (given.num_generations + 1)
    print(f"arm, {NUM_CELLS} cells, {num_evaluations:,} evaluations; mean [lowest, highest] of {given.num_seeds} seeds")
    print(f"{'':20}{'coverage, %':>22}{'QD score':>26}{'max fitness':>13}")
    for name, container in CONTAINERS.items():
        run = search(container, centroids, given.num_generations)
        last = [{k: float(v[-1]) for k, v in run(jax.random.key(seed))[1].items()} for seed in range(given.num_seeds)]
        coverage, score, best = (np.array([row[k] for row in last]) for k in ("coverage", "qd_score", "max_fitness"))
        spread = [f"{x.mean():.1f} [{x.min():.1f}, {x.max():.1f}]" for x in (coverage, score)]
        print(f"{name:20}{spread[0]:>22}{spread[1]:>26}{best.mean():>13.4f}", flush=True)


if __name__ == "__main__":
    main()
