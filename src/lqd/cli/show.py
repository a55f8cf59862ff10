"""`lqd show`."""

import dataclasses
import pathlib
from typing import Annotated

import tyro


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
        from lqd.report import robots_page

        print(f"Wrote {robots_page.write(self.run, self.seed, self.num)}")
