"""Searches on the community's tasks with the passive grid beside them: rules in our loop, and pyribs's emitters.

Either gives, after some numbers of evaluations, the QD score and coverage of all that was evaluated so far.
"""

import functools
import importlib.util
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lqd.bench.domains import GRID, START_SIGMA, Domain, Passive, cell, scores
from lqd.errors import InvalidInput
from lqd.evolution import loop, variation
from lqd.evolution.sums import rounded
from lqd.evolution.variation import Operator, Variation
from lqd.rules import protocol
from lqd.tasks.task import Repeated
from lqd.types import Population

NUM_ROWS = 24
NUM_EMITTERS, EMITTER_BATCH = 15, 36  # of pyribs's examples
EMITTERS = {
    "cma-me": {"ranker": "2imp", "selection_rule": "filter", "restart_rule": "no_improvement"},
    "cma-mae": {"ranker": "imp", "selection_rule": "mu", "restart_rule": "basic"},
}


class Seen(NamedTuple):
    """Evaluations (rows,), QD score (rows, seeds), coverage (rows, seeds)."""

    num_evaluations: np.ndarray
    qd_score: np.ndarray
    coverage: np.ndarray


def has_ribs() -> bool:
    return importlib.util.find_spec("ribs") is not None


def rows_of(num_steps: int) -> np.ndarray:
    """After how many generations (at least one) a row is written; the last is the end."""
    return np.linspace(0, num_steps, min(NUM_ROWS, num_steps) + 1).round().astype(int)[1:]


def search(
    domain: Domain, rule: protocol.Rule, operator: Operator | Variation, keys, num_evaluations: int,
    population_size: int, batch_size: int, num_start: int | None = None,
) -> Seen:  # fmt: skip
    """Our loop, all seeds in one program. A population that begins with fewer points (`num_start`) has empty slots."""
    num_start = population_size if num_start is None else num_start
    num_generations, rest = divmod(num_evaluations - num_start, batch_size)
    if rest or num_generations < 1:
        raise InvalidInput(f"{num_evaluations} evaluations are not {num_start} and batches of {batch_size}.")
    rows = rows_of(num_generations)
    qd_score, coverage = _search(
        rule,
        operator,
        keys,
        jnp.asarray(np.diff(rows, prepend=0), jnp.int32),
        domain=domain,
        num_start=num_start,
        population_size=population_size,
        batch_size=batch_size,
    )
    return Seen(num_start + batch_size * rows, np.asarray(qd_score), np.asarray(coverage))


@functools.partial(jax.jit, static_argnames=("domain", "num_start", "population_size", "batch_size"))
def _search(rule, operator, keys, steps, *, domain: Domain, num_start: int, population_size: int, batch_size: int):
    rule, tasks = protocol.ready(rule), Repeated(domain.task(), keys.shape[0])
    start = loop.Start(None, jnp.float32(START_SIGMA))

    def see(best, evaluation):
        where = cell(evaluation.descriptor, domain.half_width, jnp)
        return jax.vmap(lambda best, where, objective: best.at[where].max(objective))(best, where, evaluation.fitness)

    def step(carry):
        state, best = carry
        bred, evaluation = loop.propose(state, tasks, operator, batch_size, start)
        state = loop.absorb(state, state.generation, rule, bred.x, evaluation, traits=bred.traits)
        return state, see(best, evaluation)

    x = loop.start_points(keys, num_start, domain.dim, tasks.bounds, start)
    x = rounded(x) if isinstance(operator, Variation) else x  # as the loop has it
    evaluation = tasks.evaluate(keys, x)
    traits = variation.first_traits(operator, num_start, domain.dim)
    if traits is not None:
        traits = jnp.broadcast_to(traits, (keys.shape[0], *traits.shape))
    first = Population(x, evaluation.fitness, evaluation.descriptor, {}, traits)
    state = loop.empty_state(keys, rule, first, population_size, uses_memory=variation.uses_memory(operator))
    state = loop.absorb(state, jnp.int32(-1), rule, x, evaluation, competing=False, traits=traits)
    best = see(jnp.full((keys.shape[0], GRID * GRID), -jnp.inf), evaluation)
    return loop.evolve(step, (state, best), steps, lambda carry: scores(carry[1], jnp))[1]


def emitters(
    domain: Domain, name: str, sigma0: float, seed: int, num_iterations: int, archive: Any = None,
    num_emitters: int = NUM_EMITTERS, batch_size: int = EMITTER_BATCH,
) -> Seen:  # fmt: skip
    """pyribs's CMA-ME or CMA-MAE as in its sphere example, one seed; the archive may be another than its own."""
    from ribs.archives import GridArchive
    from ribs.emitters import EvolutionStrategyEmitter
    from ribs.schedulers import Scheduler

    if archive is None:
        ranges = [(-domain.half_width, domain.half_width)] * 2
        slow: dict[str, Any] = {"learning_rate": 0.01, "threshold_min": 0.0} if name == "cma-mae" else {}
        archive = GridArchive(solution_dim=domain.dim, dims=(GRID, GRID), ranges=ranges, seed=seed, **slow)
    bounds = None if domain.bound is None else [(-domain.bound, domain.bound)] * domain.dim
    how: dict[str, Any] = dict(EMITTERS[name])
    made = [
        EvolutionStrategyEmitter(
            archive, x0=np.zeros(domain.dim), sigma0=sigma0, batch_size=batch_size, bounds=bounds,
            seed=num_emitters * seed + i, **how,
        )
        for i in range(num_emitters)
    ]  # fmt: skip
    scheduler, passive, found = Scheduler(archive, made), Passive(domain.half_width), []
    rows = rows_of(num_iterations)
    for iteration in range(1, num_iterations + 1):
        objective, measures = domain.function(scheduler.ask())
        scheduler.tell(objective, measures)
        passive.add(objective, measures)
        if iteration in rows:
            found.append(scores(passive.best))
    qd_score, coverage = np.array(found).T
    return Seen(num_emitters * batch_size * rows, qd_score, coverage)


def together(runs: Sequence[Seen]) -> Seen:
    """Runs of one seed each, side by side."""
    return Seen(runs[0].num_evaluations, *(np.stack([one[i] for one in runs], axis=1) for i in (1, 2)))
