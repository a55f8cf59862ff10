"""The command `lqd`. Every subcommand is a dataclass: its fields are the flags, its docstring the help."""

import contextlib
import dataclasses
import os
import pathlib
import signal
import sys
from collections.abc import Sequence
from typing import Annotated

import tyro

from lqd.errors import InvalidInput, unknown


@dataclasses.dataclass(frozen=True)
class Demo:
    """Watch several rules fill the reachable square of a robot arm, and compare them in one picture."""

    out: pathlib.Path = pathlib.Path("runs/demo")
    """Folder for the picture and the results."""
    rules: tuple[str, ...] = ("ga", "me", "dns", "lqd-f")
    """Names that `lqd rules` lists."""
    task: str = "arm"
    """A name that `lqd tasks` lists."""
    num_evaluations: int = 200_000
    """Evaluations per rule."""
    population_size: int = 512
    """Solutions kept; four generations make as many offspring."""
    seed: int = 0

    def main(self) -> None:
        from lqd import runs

        runs.demo(self)


@dataclasses.dataclass(frozen=True)
class Run:
    """Run one rule on one task, all seeds in one program, and write everything worth keeping.

    Writes manifest.json (settings, versions, timing, scores), metrics.csv (one row a seed and recorded generation),
    population.csv, result_SEED.safetensors (for lqd.Result.load) and picture.png.
    """

    task: str = "arm"
    """A name that `lqd tasks` lists."""
    rule: str = "dns"
    """A name that `lqd rules` lists, or a file of weights (.safetensors)."""
    num_evaluations: int = 100_000
    """Budget of each seed, the start population included."""
    out: pathlib.Path | None = None
    """Folder to write to; default runs/TASK-RULE."""
    num_seeds: int = 1
    """Independent repetitions: seed, seed + 1, ..."""
    seed: int = 0
    """The first seed."""
    population_size: int = 128
    """Solutions kept; MAP-Elites gets as many cells."""
    batch_size: int = 32
    """Offspring per generation."""
    iso_sigma: float = 0.005
    """Scale of the isotropic variation, in units of the search space."""
    line_sigma: float = 0.05
    """Scale of the variation along the line between two parents, relative to their distance."""
    archive_cells: int = 1024
    """Cells of the passive archive, the same for every rule, for coverage and the archive's QD score."""
    dim: int | None = None
    """Search dimension of a function task (16)."""
    instance: int = 0
    """Which instance of a function task."""
    noise: bool = False
    """A random noise model on a function task. metrics.csv is what the rule saw, scores are noiseless."""
    rotate: bool = True
    """Random rotations of a function task."""
    episode_length: int | None = None
    """Steps of a robot's episode (1000)."""
    time_limit_s: float | None = None
    """Stop after so many seconds, with what there is."""
    overwrite: bool = False
    """Replace the results of an earlier run in the same folder."""
    quiet: bool = False
    """No progress bar."""

    def main(self) -> None:
        from lqd import runs

        runs.run(self)


@dataclasses.dataclass(frozen=True)
class _Learning:
    """What training and imitation have in common; a number that is not given is the preset's."""

    out: pathlib.Path = pathlib.Path("runs/train")
    """Folder for the rule, its card, the states, the log and the curve."""
    preset: str | None = None
    """smoke (2 CPU cores, under 2 minutes), small, reference or paper; default small, or the resumed run's."""
    resume: bool = False
    """Go on where the run in the folder stopped, or begin if there is none."""
    time_limit_s: Annotated[float | None, tyro.conf.arg(aliases=["--time-limit"])] = None
    """Stop in time and save; --resume goes on from there."""
    save_every_s: float = 30.0
    """Seconds between saved states."""
    seed: int | None = None
    population_size: int | None = None
    """Individuals kept in an inner run (N)."""
    batch_size: int | None = None
    """Offspring per generation of an inner run (B)."""
    num_layers: int | None = None
    num_features: int | None = None
    num_heads: int | None = None
    num_hidden: int | None = None
    recipe: int | None = None
    """1: the paper's features and attention; 2: attention by distance, for descriptors of any dimension."""
    min_dim: int | None = None
    """Lowest dimension of a task."""
    max_dim: int | None = None
    """Highest dimension of a task."""
    descriptor_dim: int | None = None
    functions: tuple[str, ...] | None = None
    """Functions to train on, by name or BBOB number; default the paper's 22."""
    synthetic_rounds: int | None = None
    """Rounds of imitation on synthetic populations."""
    own_rounds: int | None = None
    """Rounds of imitation on populations of runs."""
    steps_per_round: int | None = None
    """Gradient steps per round."""
    imitation_batch: int | None = None
    """Populations per gradient step."""
    imitation_rate: float | None = None
    """Learning rate of the imitation."""
    validation_tasks: int | None = None
    """Held-out tasks."""
    validation_generations: int | None = None
    """Generations of a validation run."""
    tensorboard: bool = False
    """Also log for TensorBoard, to the folder's tensorboard/."""
    wandb: str | None = None
    """Also log to Weights & Biases, to the project of this name."""
    quiet: bool = False
    """No progress bar."""

    def given(self) -> dict:
        """The flags that were given, by name."""
        always = ("resume", "save_every_s", "tensorboard", "quiet", "add_stage", "rule", "distributed")
        given = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name in always or getattr(self, field.name) != field.default
        }
        return given | {"out": self.out}


@dataclasses.dataclass(frozen=True)
class Train(_Learning):
    """Discover a competition rule by meta-black-box optimisation, from scratch or from a hand-made one."""

    objective: str | None = None
    """fitness (the default), novelty or qd."""
    init: str | None = None
    """none, a hand-made rule to imitate first (ns, dns, ga, me), or weights: of a rule in the box, a file, a folder."""
    num_meta_generations: int | None = None
    """Length of the (last) stage."""
    meta_population_size: int | None = None
    """Members of the meta-population (M)."""
    num_tasks: int | None = None
    """Tasks per meta-generation (K), a multiple of the functions."""
    num_generations: int | None = None
    """Generations of an inner run (T)."""
    add_stage: tuple[str, ...] = ()
    """One more stage: 'num_meta_generations=256 meta_population_size=256', the rest as in the stage before."""
    strategy: str | None = None
    """sep-cma-es, sep-cma-es-stock, snes or open-es."""
    sigma: float | None = None
    """First step size of the strategy."""
    learning_rate: float | None = None
    """Of open-es."""
    qd_form: str | None = None
    """What qd maximises: product (the QD score) or sum (of standardised fitness and novelty)."""
    fitness_weight: float | None = None
    """Of the sum."""
    normalisation: str | None = None
    """Of each task's values over the members: rank or z-score."""
    aggregation: str | None = None
    """Of the normalised values over the tasks: mean or median."""
    noise: bool = True
    """Noise on the tasks."""
    rotate: bool = True
    """Rotations of the tasks."""
    chunk_size: int | None = None
    """Members that run at once on a device; bounds memory, and is part of the result's last bits."""
    iso_sigma: float | None = None
    line_sigma: float | None = None
    validation_every: int | None = None
    """Meta-generations between validations."""
    distributed: bool = False
    """One of several processes, found from the cluster's environment or by the three flags below."""
    coordinator_address: str | None = None
    """host:port of the first process."""
    num_processes: int | None = None
    process_id: int | None = None

    def main(self) -> None:
        given = self.given()
        cluster = {name: given.pop(name, None) for name in ("coordinator_address", "num_processes", "process_id")}
        if given.pop("distributed"):
            import jax

            jax.distributed.initialize(**cluster)
        elif any(value is not None for value in cluster.values()):
            raise InvalidInput("coordinator_address, num_processes and process_id are for --distributed.")
        from lqd import training

        _end(training.train(**given).stopped_by)


@dataclasses.dataclass(frozen=True)
class Imitate(_Learning):
    """Fit the transformer to the ranks that a hand-made rule gives, by gradient descent."""

    rule: Annotated[str, tyro.conf.Positional] = "ns"
    """ns, dns, ga or me."""
    out: pathlib.Path = pathlib.Path("runs/imitate")
    """Folder for the rule, its card, the states, the log and the curve."""

    def main(self) -> None:
        from lqd import training

        given = self.given()
        _end(training.imitate(given.pop("rule"), **given).stopped_by)


def _end(stopped_by: str | None) -> None:
    """A run that a signal stopped ends like one that a signal ended, so that schedulers and shells can tell."""
    if stopped_by in ("SIGINT", "SIGTERM"):
        raise SystemExit(128 + signal.Signals[stopped_by].value)


@dataclasses.dataclass(frozen=True)
class Figure:
    """Draw a figure from results: `lqd figure pareto DIR` of a bench, `lqd figure training DIR` of a training run."""

    figure: Annotated[str, tyro.conf.Positional]
    """pareto, bars-train, bars-ood, grid, robots, robots-aggregate, diversity, ablation, landscape, aggregate,
    ecdf, profiles, animation (a GIF), all; or training"""
    folder: Annotated[pathlib.Path | None, tyro.conf.Positional] = None
    """Folder of the bench or of the training run."""
    results: pathlib.Path | None = None
    """The same, by name."""
    out: pathlib.Path | None = None
    """File to write, .png or .pdf; default: both in DIR/figures, or curve.png in the folder of a training run."""

    def main(self) -> None:
        folder = self.folder or self.results
        if folder is None or None not in (self.folder, self.results):
            raise InvalidInput("figure needs one folder of results: lqd figure ID DIR, or lqd figure ID --results DIR.")
        if self.figure == "training":
            from lqd import training

            print(f"Wrote {training.draw(folder, self.out)}")
            return
        from lqd import report

        for path in report.draw(self.figure, folder, self.out):
            print(f"Wrote {path}")


@dataclasses.dataclass(frozen=True)
class Report:
    """Make a page of a bench: the paper's claims with verdicts, all figures and numbers, and a landscape to touch."""

    results: Annotated[pathlib.Path, tyro.conf.Positional]
    """Folder of the bench."""
    out: pathlib.Path | None = None
    """File to write; default report.html in the folder."""

    def main(self) -> None:
        from lqd import report

        print(f"Wrote {report.write(self.results, self.out)}")


@dataclasses.dataclass(frozen=True)
class Show:
    """Watch what `lqd run --task brax/...` found: the best policy and some that differ most from it, in a browser."""

    run: Annotated[pathlib.Path, tyro.conf.Positional]
    """Folder of the run."""
    seed: int | None = None
    """Which of its seeds; default the first."""
    num: int = 4
    """How many policies."""

    def main(self) -> None:
        from lqd import show

        print(f"Wrote {show.write(self.run, self.seed, self.num)}")


@dataclasses.dataclass(frozen=True)
class Bench:
    """Run the experiments behind a figure of the paper, or check what is claimed of the trained rules.

    Every finished piece is kept in the folder, so that a bench that was interrupted goes on where it stopped, and one
    piece can be redone by deleting its file. `all` ends with every figure and the report.
    """

    suite: str = "claims"
    """pareto, bars-train, bars-ood, grid, landscape, ablation, diversity, robots,
    robots-aggregate, all; or claims, generalisation"""
    preset: str = "quick"
    """quick (2 CPU cores; `all` in under 20 minutes), scaled, longer (two robots, six times the evaluations), paper
    (the paper's size, on a GPU); claims and generalisation: quick or full (a GPU; claims also at a million
    evaluations)."""
    seeds: int | None = None
    """Instances of each function, instead of the preset's number. More than the folder has: they are added."""
    out: pathlib.Path | None = None
    """Folder for the results; default runs/SUITE."""
    quiet: bool = False
    """No progress bar."""

    def main(self) -> None:
        from lqd.bench import claims, generalisation, suites
        from lqd.locking import locked

        own = {"claims": claims, "generalisation": generalisation}
        if self.suite not in (*suites.NAMES, *own):
            raise unknown("suite", self.suite, [*suites.NAMES, *own])
        presets = own[self.suite].PRESETS if self.suite in own else suites.PRESETS
        if self.preset not in presets:
            raise unknown("preset", self.preset, presets)
        if self.seeds is not None and self.suite in own:
            raise InvalidInput(f"seeds is for the figures' suites; {self.suite!r} has a fixed number.")
        out = self.out or pathlib.Path("runs") / self.suite
        with locked(out, "--out", below=True):
            if self.suite in own:
                self._own(own[self.suite].run, out)
            else:
                self._suite(out)

    def _own(self, run, out: pathlib.Path) -> None:
        from lqd.bench import generalisation

        with pieces_bar(self.quiet) as progress:
            content = run(self.preset, out, progress)
        if self.suite == "claims":
            self._show_claims(content)
        else:
            columns = generalisation.COLUMNS
            rows = [
                (row["setting"], row["rule"], *(generalisation.cell(name, row[name]) for name in columns.values()))
                for row in content["rows"]
            ]
            _table(("setting", "rule", *columns), rows)
        print(f"Wrote {out / self.suite}.md")

    def _suite(self, out: pathlib.Path) -> None:
        from lqd import report
        from lqd.bench import suites

        if suites.leaves_robots_out(self.suite, suites.PRESETS[self.preset]):
            print(f"Without robots: {suites.NEED_BRAX}", file=sys.stderr)
        with pieces_bar(self.quiet) as progress:
            suites.run(self.suite, self.preset, out, progress, self.seeds)
        rows = [
            (row["claim"], row["paper"], row["ours"], report.number(row["p"]), row["verdict"])
            for row in report.verdicts(out)
        ]
        _table(("claim", "paper", "ours", "p", "verdict"), rows)
        report.draw("all", out)
        print(f"Wrote {report.write(out)}")

    def _show_claims(self, content: dict) -> None:
        from lqd.bench import claims

        for part in content["settings"].values():
            rows = [
                (row["claim"], row["verdict"], "\n".join(map(claims.sentence, row["findings"])))
                for row in part["claims"]
            ]
            print(f"{part['setting']['num_evaluations']:,} evaluations, {part['setting']['num_seeds']} seeds")
            _table(("claim", "verdict", "found"), rows)


@dataclasses.dataclass(frozen=True)
class Rerun:
    """Run again from a manifest, and compare: with equal versions on an equal machine every number is the same.

    Ends with status 1 if something differs.
    """

    manifest: Annotated[pathlib.Path, tyro.conf.Positional]
    """manifest.json of a run or a bench, card.json of a training run, or the folder that it is in."""
    out: pathlib.Path | None = None
    """Folder for the second run; default FOLDER-again."""
    quiet: bool = False
    """No progress bar."""

    def main(self) -> None:
        from lqd import rerun

        comparison = rerun.rerun(self.manifest, self.out, self.quiet)
        print(rerun.sentence(comparison))
        if comparison.differences:
            raise SystemExit(1)


@contextlib.contextmanager
def pieces_bar(quiet: bool):
    """A function to be called with what runs now, and how many pieces are done of how many."""
    if quiet:
        yield lambda label, done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns) as progress:
        bar = progress.add_task("", total=None)
        yield lambda label, done, total: progress.update(bar, description=label, completed=done, total=total)


@dataclasses.dataclass(frozen=True)
class Tasks:
    """List the tasks."""

    def main(self) -> None:
        from lqd import tasks

        _table(("task", "what"), [(name, tasks.summary(name)) for name in tasks.names()])


@dataclasses.dataclass(frozen=True)
class Rules:
    """List the competition rules."""

    def main(self) -> None:
        from lqd import catalogue

        entries = catalogue.RULES.items()
        _table(("rule", "name", "who survives"), [(name, entry.title, entry.summary) for name, entry in entries])


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*header, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def _keep_compiled_programs() -> None:
    """A second `lqd run` starts at once. JAX_COMPILATION_CACHE_DIR chooses another folder."""
    import jax

    if jax.config.values["jax_compilation_cache_dir"] is None:
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(cache / "lqd" / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Run, tyro.conf.subcommand("run")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Imitate, tyro.conf.subcommand("imitate")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
    | Annotated[Figure, tyro.conf.subcommand("figure")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Show, tyro.conf.subcommand("show")]
    | Annotated[Rerun, tyro.conf.subcommand("rerun")]
    | Annotated[Tasks, tyro.conf.subcommand("tasks")]
    | Annotated[Rules, tyro.conf.subcommand("rules")]
)


def parse(
    args: list[str] | None = None,
) -> Demo | Run | Train | Imitate | Bench | Figure | Report | Show | Rerun | Tasks | Rules:
    """The command that the words on the command line name."""
    description = "Learned Quality-Diversity: diverse sets of good solutions."
    return tyro.cli(Command, args=args, prog="lqd", description=description, config=(tyro.conf.OmitArgPrefixes,))


def main(args: list[str] | None = None) -> None:
    """Entry point; bad input ends with one line on stderr and status 2."""
    command = parse(args)
    _keep_compiled_programs()
    try:
        command.main()
        sys.stdout.flush()
    except InvalidInput as error:
        print(f"lqd: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt as error:
        print(f"lqd: {error or 'interrupted'}", file=sys.stderr)
        raise SystemExit(130) from None
    except BrokenPipeError:  # `lqd rules | head`: whoever reads has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None


if __name__ == "__main__":
    main()
