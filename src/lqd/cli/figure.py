"""`lqd figure`."""

import dataclasses
import pathlib
from typing import Annotated, Literal

import tyro

from lqd.errors import InvalidInput


@dataclasses.dataclass(frozen=True)
class Figure:
    """Draw a figure from the results of a bench or of a training run.

    For example `lqd figure pareto runs/all`; `lqd figure training runs/train` for the course of a training run, and
    `lqd figure learning runs/train` for where it leads.
    """

    figure: Annotated[str, tyro.conf.Positional]
    """Of a bench: pareto, bars-train, bars-ood, grid, robots, robots-aggregate, diversity, ablation, landscape,
    aggregate, ecdf, profiles, animation (a GIF), or all. Of a training run: training or learning."""
    folder: Annotated[pathlib.Path | None, tyro.conf.Positional] = None
    """Folder of the bench or of the training run."""
    results: pathlib.Path | None = None
    """The same folder, given by name."""
    beside: tuple[pathlib.Path, ...] = ()
    """For learning: further training runs to draw in the same figure."""
    until: int = 16_384
    """For learning: extrapolate the scores by a power law up to this many meta-generations."""
    width: Literal["full", "column"] = "full"
    """full: for the width of a page (7 inches); column: for one of two columns (3.33 inches), in files NAME-column."""
    out: pathlib.Path | None = None
    """File to write, .png or .pdf. Default: both, in DIR/figures; for a training run curve.png or learning.png in its
    folder."""

    def main(self) -> None:
        folder = self.folder or self.results
        if folder is None or None not in (self.folder, self.results):
            raise InvalidInput("figure needs one folder of results: lqd figure ID DIR, or lqd figure ID --results DIR.")
        if self.figure == "training":
            from lqd.meta import train

            print(f"Wrote {train.draw(folder, self.out, self.width)}")
            return
        if self.figure == "learning":
            from lqd.meta import train

            path, lines = train.draw_learning([folder, *self.beside], self.until, self.out, self.width)
            print(*lines, f"Wrote {path}", sep="\n")
            return
        from lqd.report import draw, style

        for path in draw.draw(self.figure, folder, self.out, style.WIDTHS[self.width]):
            print(f"Wrote {path}")
