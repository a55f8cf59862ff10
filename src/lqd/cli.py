"""The command `lqd`. Every subcommand is a dataclass: its fields are the flags, its docstring the help."""

import dataclasses
import os
import pathlib
import sys
from typing import Annotated

import tyro

from lqd.errors import InvalidInput


@dataclasses.dataclass(frozen=True)
class Demo:
    """Watch four rules fill the reachable square of a robot arm, and compare them in one picture."""

    out: pathlib.Path = pathlib.Path("runs/demo")
    """Folder for the picture and the results."""
    num_evaluations: int = 200_000
    """Evaluations per rule."""
    seed: int = 0

    def main(self) -> None:
        from lqd import runs

        runs.demo(self.out, self.num_evaluations, self.seed)


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


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
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
    | Annotated[Tasks, tyro.conf.subcommand("tasks")]
    | Annotated[Rules, tyro.conf.subcommand("rules")]
)


def parse(args: list[str] | None = None) -> Demo | Run | Tasks | Rules:
    """The command that the words on the command line name."""
    description = "Learned Quality-Diversity: diverse sets of good solutions."
    return tyro.cli(Command, args=args, prog="lqd", description=description, config=(tyro.conf.OmitArgPrefixes,))


def main(args: list[str] | None = None) -> None:
    """Entry point; bad input ends with one line on stderr and status 2."""
    command = parse(args)
    _keep_compiled_programs()
    try:
        command.main()
    except InvalidInput as error:
        print(f"lqd: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt as error:
        print(f"lqd: {error or 'interrupted'}", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
