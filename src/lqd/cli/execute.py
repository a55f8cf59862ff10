"""What `lqd run` and `lqd demo` do: run, show progress, score without noise, write everything atomically."""

import dataclasses
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lqd import tasks
from lqd.checks import real, whole
from lqd.cli.console import progress_bar
from lqd.cli.demo import Demo
from lqd.cli.run import Run
from lqd.errors import Interrupted, InvalidInput, unknown
from lqd.evolution import archive, driver, metrics
from lqd.io import manifest
from lqd.io.files import write_bytes
from lqd.io.lock import locked
from lqd.report import run_figures, style
from lqd.rules import catalogue
from lqd.search.result import Result, make_result
from lqd.search.settings import Settings
from lqd.tasks.anchors import Anchors, random_search
from lqd.tasks.task import Repeated, Task, start_scale


def make_task(config: "Run") -> Task:
    """The task of a run; settings that a task does not take are refused if they were given."""
    is_robot = config.task.startswith("brax/")
    if config.task == "arm" or is_robot:
        for name, default in (("dim", None), ("instance", 0), ("noise", False), ("rotate", True)):
            if getattr(config, name) != default:
                raise InvalidInput(f"--{name} is for function tasks; {config.task!r} does not take it.")
    if not is_robot and config.episode_length is not None:
        raise InvalidInput(f"--episode-length is for robots (brax/...); {config.task!r} does not take it.")
    if config.task == "arm":
        return tasks.make("arm")
    if is_robot:
        return tasks.make(
            config.task, **{} if config.episode_length is None else {"episode_length": config.episode_length}
        )
    given = {} if config.dim is None else {"dim": config.dim}
    return tasks.make(config.task, seed=config.instance, noise=config.noise, rotate=config.rotate, **given)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Every seed of a run, with what it cost."""

    results: list[Result]
    scores: list[dict[str, float]]
    compile_s: float
    run_s: float
    stopped_by: str | None


def anchors_of(task: Task, num_evaluations: int) -> Anchors | None:
    """What random search reaches on a task with a known optimum; the same for every rule and seed."""
    if task.f_opt is None or task.bounds is None:
        return None
    return jax.block_until_ready(random_search(jax.random.key(2**31 - 1), Repeated(task, 1), num_evaluations))


def execute(task: Task, settings: Settings, num_generations: int, num_seeds: int, label: str, anchors: Anchors | None,
            *, time_limit_s=None, quiet=False) -> Outcome:  # fmt: skip
    """All seeds of a task in one program."""
    batch = Repeated(task, num_seeds)
    seeds = jnp.arange(settings.seed, settings.seed + num_seeds, dtype=jnp.uint32)
    with progress_bar(label, num_generations, quiet) as advance:

        def look(states, history):
            advance(int(states[0].generation))

        run = driver.run(
            jax.vmap(jax.random.key)(seeds), batch, (settings.resolved_rule(task.descriptor_dim),), settings.operator(),
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


def _scores(state, batch: Repeated, anchors: Anchors | None) -> list[dict[str, float]]:
    """Measures of the final populations and archives on noiseless fitness, seed by seed."""
    noiseless = jax.jit(lambda tasks, part: jnp.where(part.filled, tasks.noiseless(part.x), -jnp.inf))
    rows = dict(jax.jit(jax.vmap(metrics.measure))(noiseless(batch, state.population), state.population.descriptor))
    elites = noiseless(batch, state.archive.elites)
    rows["archive_coverage"] = jax.vmap(archive.coverage)(elites)
    if anchors is not None:
        rows["qd_score"] = metrics.qd_score(rows, anchors.f_rand[0], batch.task.f_opt)
        rows["archive_qd_score"] = jax.vmap(archive.offset_qd_score, in_axes=(0, None))(elites, anchors.f_worst[0])
    return [{name: float(value[i]) for name, value in rows.items()} for i in range(batch.num_tasks)]


def run(config: "Run") -> pathlib.Path:
    """`lqd run`."""
    out = config.out or pathlib.Path("runs") / f"{config.task.replace('/', '-')}-{pathlib.Path(config.rule).stem}"
    if (out / "manifest.json").exists() and not config.overwrite:
        raise InvalidInput(f"--out {out} holds the results of an earlier run; give another folder, or --overwrite.")
    task = make_task(config)
    settings = Settings(
        dim=task.dim, bounds=task.bounds, rule=config.rule, population_size=config.population_size,
        batch_size=config.batch_size, iso_sigma=config.iso_sigma, line_sigma=config.line_sigma,
        descriptor_bounds=task.descriptor_bounds, archive_cells=config.archive_cells, seed=config.seed,
        init_sigma=start_scale(task),
    )  # fmt: skip
    num_seeds = whole("num_seeds", config.num_seeds, 1)
    num_generations = settings.num_generations(config.num_evaluations)
    time_limit_s = config.time_limit_s and real("time_limit_s", config.time_limit_s, positive=True)
    with locked(out, "--out"):
        _run(config, out, task, settings, num_generations, num_seeds, time_limit_s)
    return out


def _run(config: "Run", out: pathlib.Path, task: Task, settings: Settings, num_generations, num_seeds, time_limit_s):
    import pandas as pd

    begun, clock = manifest.now(), time.perf_counter()
    anchors = anchors_of(task, settings.population_size + num_generations * settings.batch_size)
    anchors_s = time.perf_counter() - clock
    outcome = execute(task, settings, num_generations, num_seeds, f"{config.task} {config.rule}", anchors,
                      time_limit_s=time_limit_s, quiet=config.quiet)  # fmt: skip

    for i, result in enumerate(outcome.results):
        result.save(out / f"result_{config.seed + i}.safetensors")
    seeds = range(config.seed, config.seed + num_seeds)
    for name, parts in (
        ("metrics", [result.history for result in outcome.results]),
        ("population", [result.to_dataframe() for result in outcome.results]),
    ):
        table = pd.concat(parts, keys=seeds, names=["seed"]).reset_index(level="seed")
        write_bytes(out / f"{name}.csv", table.to_csv(index=False).encode())
    style.save(outcome.results[0].plot(), out / "picture.png")
    num_evaluations = sum(result.num_evaluations for result in outcome.results)
    content: dict[str, Any] = {
        "command": "run",
        "config": dataclasses.asdict(config) | {"out": str(out)},
        "settings": settings.info() | {"num_generations": num_generations, "dim": task.dim},
        **manifest.environment(),
        "begun": begun,
        "ended": manifest.now(),
        "stopped_by": outcome.stopped_by,
        "timing": {
            "anchors_s": round(anchors_s, 3),
            "compile_s": round(outcome.compile_s, 3),
            "run_s": round(outcome.run_s, 3),
            "evaluations_per_s": round(num_evaluations / outcome.run_s),
        },
        "anchors": anchors and {"f_rand": anchors.f_rand[0], "f_worst": anchors.f_worst[0], "f_opt": task.f_opt},
        "num_evaluations": [result.num_evaluations for result in outcome.results],
        "num_nan": [result.num_nan for result in outcome.results],
        "scores": dict(zip(seeds, outcome.scores, strict=True)),
    }
    manifest.write(out / "manifest.json", content)  # last: a folder with a manifest is complete
    if not config.quiet:
        _report({f"seed {seed}": result for seed, result in zip(seeds, outcome.results, strict=True)}, outcome.scores)
        timing = content["timing"]
        print(f"{timing['evaluations_per_s']:,} evaluations/s ({timing['compile_s']:.1f} s compiling). Wrote {out}/")
    if outcome.stopped_by == "interrupt":
        raise Interrupted(f"interrupted; what was found is in {out}", outcome.results)


def _report(results: dict[str, Result], scores: list[dict[str, float]], speeds: list[str] | None = None) -> None:
    from rich.console import Console
    from rich.table import Table

    columns = ["", "best", "mean", "novelty", "QD score", "filled", "coverage", "archive QD"]
    columns += ["eval/s"] if speeds else []
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for i, ((name, result), row) in enumerate(zip(results.items(), scores, strict=True)):
        cells = [
            f"{row[key]:.2g}" if key in row else "-" for key in ("max_fitness", "mean_fitness", "novelty", "qd_score")
        ]
        filled = f"{row['num_filled']:.0f}/{result.info['population_size']}"
        archived = [f"{row['archive_coverage']:.1%}", f"{row.get('archive_qd_score', np.nan):.3g}"]
        table.add_row(name, *cells, filled, *archived, *([speeds[i]] if speeds else []))
    Console().print(table)


def demo(config: "Demo") -> None:
    """`lqd demo`: one task under several rules, side by side."""
    begun = time.perf_counter()
    task = tasks.make(config.task)
    for name in config.rules:
        if name not in catalogue.RULES:
            raise unknown("rule", name, catalogue.RULES)
    num_evaluations, out = config.num_evaluations, config.out
    print(f"{tasks.summary(config.task)}.\n{num_evaluations:,} evaluations for each of {len(config.rules)} rules.\n")
    anchors = anchors_of(task, num_evaluations)
    results: dict[str, Result] = {}
    scores: list[dict[str, float]] = []
    speeds: list[str] = []
    for name in config.rules:
        settings = Settings(
            dim=task.dim, bounds=task.bounds, rule=name, population_size=config.population_size,
            batch_size=max(1, config.population_size // 4), descriptor_bounds=task.descriptor_bounds,
            archive_cells=1024, seed=config.seed, init_sigma=start_scale(task),
        )  # fmt: skip
        title = catalogue.RULES[name].title
        outcome = execute(task, settings, settings.num_generations(num_evaluations), 1, f"{title:<26}", anchors)
        if outcome.stopped_by == "interrupt":
            raise Interrupted("interrupted", results)
        results[name] = outcome.results[0]
        scores += outcome.scores
        speeds.append(f"{outcome.results[0].num_evaluations / outcome.run_s:,.0f}")
        outcome.results[0].save(out / f"{name}.safetensors")
    title = f"{task.name}, {num_evaluations:,} evaluations"
    if config.task == "arm":
        title = f"Arm, {num_evaluations:,} evaluations: where the hand can be, how evenly the joints share the work"
    picture = run_figures.comparison(results, title)
    style.save(picture, out / "demo.png")
    print()
    _report(results, scores, speeds)
    print(f"\n{time.perf_counter() - begun:.0f} s. The picture: {out / 'demo.png'}")
