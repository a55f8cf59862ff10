"""`lqd report`."""

import dataclasses
import pathlib
from typing import Annotated

import tyro


@dataclasses.dataclass(frozen=True)
class Report:
    """Write a report of a bench as one HTML page: verdicts on the paper's claims, all figures and numbers, and a
    competition landscape to explore.
    """

    results: Annotated[pathlib.Path, tyro.conf.Positional]
    """Folder of the bench."""
    out: pathlib.Path | None = None
    """File to write; default report.html in the folder of the bench."""

    def main(self) -> None:
        from lqd.report import page

        print(f"Wrote {page.write(self.results, self.out)}")
