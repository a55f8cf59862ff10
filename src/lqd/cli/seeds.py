"""All seeds of a task in one program, and what their final populations are worth: for `lqd run` and `lqd demo`."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from lqd.cli import console
from lqd.errors import InvalidInput
from lqd.evolution import archive, driver, metrics
from lqd.io import terminal
from lqd.search.result import Result, make_result
from lqd.search.settings import Settings
from lqd.tasks.anchors import Anchors, random_search
from lqd.tasks.task import Repeated, Task

Scores = dict[str, float]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Every seed of a run, with what it cost."""

    results: list[Result]
    scores: list[Scores]
    compile_s: float
    run_s: float
    stopped_by: str | None


def anchors_of(task: Task, num_evaluations: int) -> Anchors | None:
    """What random search reaches on a task with a known optimum; the same for every rule and seed."""
    if task.f_opt is None or task.bounds is None:
        return None
    return jax.block_until_ready(random_search(jax.random.key(2**31 - 1), Repeated(task, 1), num_evaluations))


def run_seeds(task: Task, settings: Settings, num_generations: int, num_seeds: int, label: str, anchors: Anchors | None,
              *, time_limit_s=None, quiet=False) -> Outcome:  # fmt: skip
    """Runs them with a progress bar under the label, and scores them."""
    batch = Repeated(task, num_seeds)
    seeds = jnp.arange(settings.seed, settings.seed + num_seeds, dtype=jnp.uint32)
    rule = settings.resolved_rule(task.descriptor_dim)
    with console.generations_bar(label, num_generations, quiet) as advance:

        def look(states, history):
            advance(int(states[0].generation))

        run = driver.run(
            jax.vmap(jax.random.key)(seeds), batch, (rule,), settings.resolved_variation(),
            num_generations=num_generations, population_size=settings.population_size,
            batch_size=settings.batch_size, start=settings.start(), centroids=settings.centroids(task.descriptor_dim),
            measured_with=None if anchors is None else anchors.f_worst[0], look=look, time_limit_s=time_limit_s,
        )  # fmt: skip
    if run.failure is not None:
        raise run.failure
    (state,) = run.states
    num_infinite = int(np.sum(state.faults.num_infinite))
    if num_infinite:
        raise InvalidInput(f"task {task.name!r} gave a fitness of +inf {num_infinite} times.")
    results = []
    for i in range(num_seeds):
        info = settings.info() | {"seed": settings.seed + i, "task": task.name}
        results.append(make_result(state, run.rows, task=i, minimize=False, stopped_by=run.stopped_by, info=info))
    return Outcome(results, _scores(state, batch, anchors), run.compile_s, run.run_s, run.stopped_by)


def _scores(state, batch: Repeated, anchors: Anchors | None) -> list[Scores]:
    """Measures of the final populations and archives on noiseless fitness, seed by seed."""
    noiseless = jax.jit(lambda tasks, part: jnp.where(part.filled, tasks.noiseless(part.x), -jnp.inf))
    rows = dict(jax.jit(jax.vmap(metrics.measure))(noiseless(batch, state.population), state.population.descriptor))
    elites = noiseless(batch, state.archive.elites)
    rows["archive_coverage"] = jax.vmap(archive.coverage)(elites)
    if anchors is not None:
        rows["qd_score"] = metrics.qd_score(rows, anchors.f_rand[0], batch.task.f_opt)
        rows["archive_qd_score"] = jax.vmap(archive.offset_qd_score, in_axes=(0, None))(elites, anchors.f_worst[0])
    return [{name: float(value[i]) for name, value in rows.items()} for i in range(batch.num_tasks)]


def middle(scores: list[Scores]) -> tuple[int, str]:
    """Which of several seeds is the median one, the lower of two, and by what: the archive's QD score where there is
    one, else its coverage."""
    measure = "archive_qd_score" if "archive_qd_score" in scores[0] else "archive_coverage"
    order = sorted(range(len(scores)), key=lambda i: scores[i][measure])
    return order[(len(order) - 1) // 2], measure.replace("_qd_", " QD ").replace("_", " ")


def show_scores(results: dict[str, Result], scores: list[Scores], speeds: list[str] | None = None, *,
                seeds: bool = False) -> None:  # fmt: skip
    """Prints a table with one row per result, with its speed if that is given; for several seeds, also the median of
    each column."""
    columns: tuple[str, ...] = ("", "best", "mean", "novelty", "QD score", "filled", "coverage", "archive QD")
    rows = []
    entries = [
        (name, result.info["population_size"], row) for (name, result), row in zip(results.items(), scores, strict=True)
    ]
    if seeds and len(scores) > 1:
        median = {key: float(np.median([row[key] for row in scores])) for key in scores[0]}
        entries.append(("median", entries[0][1], median))
    for name, population_size, row in entries:
        found = ("max_fitness", "mean_fitness", "novelty", "qd_score")
        cells = [terminal.number(row[key]) if key in row else "-" for key in found]
        filled = f"{row['num_filled']:.0f}/{population_size}"
        qd_score = row.get("archive_qd_score")
        archived = (f"{row['archive_coverage']:.1%}", "-" if qd_score is None else terminal.number(qd_score))
        rows.append((name, *cells, filled, *archived))
    if speeds is not None:
        columns, rows = (*columns, "eval/s"), [(*row, speed) for row, speed in zip(rows, speeds, strict=True)]
    console.table(columns, rows)
