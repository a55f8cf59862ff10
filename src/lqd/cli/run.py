"""`lqd run`: its flags, and what it does and writes."""

import dataclasses
import pathlib
import time
from typing import Any

from lqd import tasks
from lqd.checks import budget, time_limit, whole
from lqd.cli import flags, seeds
from lqd.errors import Interrupted, InvalidInput, Unreadable
from lqd.io import manifest
from lqd.io.files import read_arrays, write_bytes
from lqd.io.lock import locked
from lqd.search import defaults
from lqd.search.result import Result
from lqd.search.settings import Settings
from lqd.tasks.anchors import Anchors
from lqd.tasks.bbob import instances
from lqd.tasks.task import Task, start_scale


@dataclasses.dataclass(frozen=True)
class Run(flags.Typed):
    """Run one rule on one task, all seeds in one program, and save everything worth keeping.

    Writes manifest.json (settings, versions, timing, scores), metrics.csv (one row per seed and recorded generation),
    population.csv, result_SEED.safetensors (for lqd.Result.load) and picture.png (of the median seed).
    """

    task: str = "arm"
    """A task that `lqd tasks` lists."""
    rule: str = defaults.RULE
    """A rule that `lqd rules` lists, a file of weights (.safetensors), or the folder of a training run."""
    num_evaluations: int = 100_000
    """Budget of each seed, including the initial population; rounded down to whole generations."""
    out: pathlib.Path | None = None
    """Folder to write to; default runs/TASK-RULE."""
    num_seeds: int = 1
    """Independent repetitions: seed, seed + 1, ..."""
    seed: int = 0
    """The first seed."""
    population_size: int | None = None
    """Solutions kept; by default, a number that suits the budget. MAP-Elites gets as many cells."""
    batch_size: int | None = None
    """Offspring per generation; by default, a quarter of the solutions kept."""
    variation: str | None = defaults.VARIATION
    """How children are made. spread: steps follow the population, with nothing to tune; led: the rule decides who
    breeds and how far; paper: fixed steps in units of the search space. Default: led if the rule can, else spread."""
    iso_sigma: float | None = None
    """Use a fixed isotropic step, relative to the bounds (with paper: in units of the search space)."""
    line_sigma: float | None = None
    """Use a fixed step along the line between two parents, relative to their distance."""
    archive_cells: int = 1024
    """Cells of the passive archive, which measures coverage and QD score in the same way for every rule."""
    dim: int | None = None
    """Search dimension of a function task; default 16."""
    instance: int = 0
    """Instance of a function task."""
    noise: bool = False
    """Add a random noise model to a function task. metrics.csv has what the rule saw; scores are noiseless."""
    rotate: bool = True
    """Rotate a function task at random."""
    episode_length: int | None = None
    """Steps of a robot's episode; default 1000."""
    time_limit_s: float | None = None
    """Stop after this many seconds and keep the current result."""
    overwrite: bool = False
    """Remove what an earlier run (and `lqd show`) wrote to the folder, then run. Other files stay."""
    quiet: bool = False
    """Show no progress bar and no table."""

    def _check_folder(self, out: pathlib.Path) -> None:
        """Refuses a folder with files that are not ours, or with an earlier run unless it may be overwritten."""
        if (out / "manifest.json").exists() and not _is_manifest(out / "manifest.json"):
            raise InvalidInput(f"--out {out}: its manifest.json was not written by lqd run; give another folder.")
        for path in _results_in(out):
            if int(path.stem[len("result_") :]) in range(self.seed, self.seed + self.num_seeds) and not _is_result(
                path
            ):
                raise InvalidInput(f"--out {out}: its {path.name} is not a result of lqd run; give another folder.")
        left = _left_in(out)
        if left and not self.overwrite:
            raise InvalidInput(
                f"--out {out} holds {left[0].relative_to(out)} of an earlier run; give another folder, or --overwrite."
            )

    def main(self) -> None:
        name = f"{self.task.replace('/', '-')}-{pathlib.Path(self.rule).stem}"
        out = self.out or pathlib.Path("runs") / name
        task = make_task(self)
        population_size, batch_size = defaults.completed(
            self.population_size, self.batch_size, defaults.sizes(budget(self.num_evaluations)),
            self.variation == "paper",
        )  # fmt: skip
        settings = Settings(
            dim=task.dim, bounds=task.bounds, rule=self.rule, population_size=population_size, batch_size=batch_size,
            variation=self.variation, iso_sigma=self.iso_sigma, line_sigma=self.line_sigma,
            descriptor_bounds=task.descriptor_bounds, archive_cells=self.archive_cells, seed=self.seed,
            init_sigma=start_scale(task),
        )  # fmt: skip
        if self.seed + whole("num_seeds", self.num_seeds, 1) > 2**32:
            raise InvalidInput(f"seed + num_seeds must be at most 2**32, got {self.seed} + {self.num_seeds}.")
        num_generations = settings.num_generations(self.num_evaluations)
        time_limit_s = time_limit(self.time_limit_s)
        with locked(out, "--out"):
            self._check_folder(out)
            for path in _left_in(out):
                path.unlink(missing_ok=True)
            _run(self, out, task, settings, num_generations, time_limit_s)


def _left_in(out: pathlib.Path) -> list[pathlib.Path]:
    """What an earlier run and `lqd show` wrote to a folder, the manifest first: without it, nothing looks complete."""
    names = ("manifest.json", "metrics.csv", "population.csv", "picture.png", "show/index.html")
    pages = [path for path in (out / "show").glob("policy_*.html") if path.stem.removeprefix("policy_").isdecimal()]
    found = [*(out / name for name in names), *sorted(pages), *sorted(filter(_is_result, _results_in(out)))]
    return [path for path in found if path.is_file()]


def _results_in(out: pathlib.Path) -> list[pathlib.Path]:
    """Files with the names of results."""
    return [path for path in out.glob("result_*.safetensors") if path.stem.removeprefix("result_").isdecimal()]


def _is_result(path: pathlib.Path) -> bool:
    try:
        read_arrays(path, "result")
    except Unreadable:
        return False
    return True


def _is_manifest(path: pathlib.Path) -> bool:
    try:
        return manifest.read(path, "a run").get("command") == "run"
    except Unreadable:
        return False


def is_function(task: str) -> bool:
    """Whether a task has instances, by its name."""
    return task != "arm" and not task.startswith("brax/")


def make_task(run: Run) -> Task:
    """The task of a run; settings that it does not take are refused."""
    is_robot = run.task.startswith("brax/")
    if not is_function(run.task):
        for name, default in (("dim", None), ("instance", 0), ("noise", False), ("rotate", True)):
            if getattr(run, name) != default or run.is_typed(name):
                raise InvalidInput(f"--{name} is for function tasks; {run.task!r} does not take it.")
    if not is_robot and run.episode_length is not None:
        raise InvalidInput(f"--episode-length is for robots (brax/...); {run.task!r} does not take it.")
    if run.task == "arm":
        return tasks.make("arm")
    if is_robot:
        return tasks.make(run.task, **{} if run.episode_length is None else {"episode_length": run.episode_length})
    given = {} if run.dim is None else {"dim": run.dim}
    return tasks.make(run.task, seed=run.instance, noise=run.noise, rotate=run.rotate, **given)


def _run(run: Run, out: pathlib.Path, task: Task, settings: Settings, num_generations: int, time_limit_s) -> None:
    begun, clock = manifest.now(), time.perf_counter()
    anchors = seeds.anchors_of(task, settings.population_size + num_generations * settings.batch_size)
    anchors_s = time.perf_counter() - clock
    outcome = seeds.run_seeds(task, settings, num_generations, run.num_seeds, f"{run.task} {run.rule}", anchors,
                              time_limit_s=time_limit_s, quiet=run.quiet)  # fmt: skip
    results = dict(zip(range(run.seed, run.seed + run.num_seeds), outcome.results, strict=True))
    _write(out, results, outcome.scores)
    timing = {
        "anchors_s": round(anchors_s, 3),
        "compile_s": round(outcome.compile_s, 3),
        "run_s": round(outcome.run_s, 3),
        "evaluations_per_s": round(sum(result.num_evaluations for result in outcome.results) / outcome.run_s),
    }
    content: dict[str, Any] = {
        "command": "run",
        "config": dataclasses.asdict(run) | {"out": str(out)},
        "instances": instances.VERSION,
        "settings": settings.info() | {"num_generations": num_generations, "dim": task.dim},
        **manifest.environment(),
        "begun": begun,
        "ended": manifest.now(),
        "stopped_by": outcome.stopped_by,
        "timing": timing,
        "anchors": _described(anchors, task),
        "num_evaluations": [result.num_evaluations for result in outcome.results],
        "num_nan": [result.num_nan for result in outcome.results],
        "scores": dict(zip(results, outcome.scores, strict=True)),
    }
    manifest.write(out / "manifest.json", content)  # last: a folder with a manifest is complete
    if not run.quiet:
        seeds.show_scores({f"seed {seed}": one for seed, one in results.items()}, outcome.scores, seeds=True)
        made, asked = max(content["num_evaluations"]), run.num_evaluations
        if made < asked and outcome.stopped_by is None:
            print(f"{made:,} of {asked:,} evaluations: {num_generations:,} whole generations of {settings.batch_size}.")
        print(f"{timing['evaluations_per_s']:,} evaluations/s ({timing['compile_s']:.1f} s compiling). Wrote {out}/")
    if outcome.stopped_by == "interrupt":
        raise Interrupted(f"interrupted; the results so far are in {out}", outcome.results)


def _write(out: pathlib.Path, results: dict[int, Result], scores: list[seeds.Scores]) -> None:
    """Everything but the manifest, from the results by seed; the picture is of the median one."""
    import pandas as pd

    from lqd.report import run_figures, style

    for seed, result in results.items():
        result.save(out / f"result_{seed}.safetensors")
    for name, parts in (
        ("metrics", [result.history for result in results.values()]),
        ("population", [result.to_dataframe() for result in results.values()]),
    ):
        table = pd.concat(parts, keys=list(results), names=["seed"]).reset_index(level="seed")
        write_bytes(out / f"{name}.csv", table.to_csv(index=False).encode())
    which, measure = seeds.middle(scores)
    seed, result = list(results.items())[which]
    about = f"seed {seed}" + (f", the median of {len(results)} by {measure}" if len(results) > 1 else "")
    style.save(run_figures.result(result, about=about), out / "picture.png")


def _described(anchors: Anchors | None, task: Task) -> dict[str, Any] | None:
    """What the scores are measured against, for the manifest."""
    if anchors is None:
        return None
    return {"f_rand": anchors.f_rand[0], "f_worst": anchors.f_worst[0], "f_opt": task.f_opt}
