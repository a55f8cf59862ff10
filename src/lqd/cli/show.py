"""`lqd show`."""

import dataclasses
import pathlib
from typing import Annotated

import tyro


@dataclasses.dataclass(frozen=True)
class Show:
    """Watch the robots that `lqd run --task brax/...` found, in a browser: the best policy, and those that differ most
    from it.
    """

    run: Annotated[pathlib.Path, tyro.conf.Positional]
    """Folder of the run."""
    seed: int | None = None
    """Seed to show; default the first of the run."""
    num: int = 4
    """How many policies to show."""

    def main(self) -> None:
        from lqd.report import robots_page

        print(f"Wrote {robots_page.write(self.run, self.seed, self.num)}")
