"""`lqd figure`."""

import dataclasses
import pathlib
from typing import Annotated, Literal

import tyro

from lqd.errors import InvalidInput


@dataclasses.dataclass(frozen=True)
class Figure:
    """Draw a figure from results: `lqd figure pareto DIR` of a bench, `lqd figure training DIR` of a training run,
    `lqd figure learning DIR` of where its learning leads."""

    figure: Annotated[str, tyro.conf.Positional]
    """pareto, bars-train, bars-ood, grid, robots, robots-aggregate, diversity, ablation, landscape, aggregate,
    ecdf, profiles, animation (a GIF), all; or training, learning"""
    folder: Annotated[pathlib.Path | None, tyro.conf.Positional] = None
    """Folder of the bench or of the training run."""
    results: pathlib.Path | None = None
    """The same, by name."""
    beside: tuple[pathlib.Path, ...] = ()
    """More training runs to draw in the same figure; for learning."""
    until: int = 16_384
    """Meta-generations up to which a power law goes on from the scores; for learning."""
    width: Literal["full", "column"] = "full"
    """Made for the width of a page (7 inches), or for one of two columns (3.33 inches): files are then NAME-column."""
    out: pathlib.Path | None = None
    """File to write, .png or .pdf; default: both in DIR/figures, or curve.png or learning.png in the folder of a
    training run."""

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
