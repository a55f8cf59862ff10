"""`lqd report`."""

import dataclasses
import pathlib
from typing import Annotated

import tyro


@dataclasses.dataclass(frozen=True)
class Report:
    """Make a page of a bench: the paper's claims with verdicts, all figures and numbers, and a landscape to touch."""

    results: Annotated[pathlib.Path, tyro.conf.Positional]
    """Folder of the bench."""
    out: pathlib.Path | None = None
    """File to write; default report.html in the folder."""

    def main(self) -> None:
        from lqd.report import page

        print(f"Wrote {page.write(self.results, self.out)}")
