"""`lqd imitate`."""

import dataclasses
import pathlib
from typing import Annotated

import tyro

from lqd.cli.learning import Learning, by_their_flags, end


@dataclasses.dataclass(frozen=True)
class Imitate(Learning):
    """Fit the transformer to the ranks that a hand-made rule gives, by gradient descent."""

    rule: Annotated[str | None, tyro.conf.Positional] = None
    """ns, dns, ga or me; default ns, or the resumed run's."""
    out: pathlib.Path = pathlib.Path("runs/imitate")
    """Folder for the rule, its card, the states, the log and the curve."""

    def main(self) -> None:
        from lqd.meta import train

        given = self.given()
        with by_their_flags(self):
            outcome = train.imitate(given.pop("rule"), **given)
        end(outcome.stopped_by)
