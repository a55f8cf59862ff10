"""`lqd run`."""

import dataclasses
import pathlib

from lqd.evolution.loop import BATCH_SIZE, POPULATION_SIZE
from lqd.evolution.variation import ISO_SIGMA, LINE_SIGMA


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
    population_size: int = POPULATION_SIZE
    """Solutions kept; MAP-Elites gets as many cells."""
    batch_size: int = BATCH_SIZE
    """Offspring per generation."""
    iso_sigma: float = ISO_SIGMA
    """Scale of the isotropic variation, in units of the search space."""
    line_sigma: float = LINE_SIGMA
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
        from lqd.cli import execute

        execute.run(self)
