"""`lqd imitate`."""

import dataclasses
import pathlib
from typing import Annotated

import tyro

from lqd.cli.learning import Bbob, Imitation, InnerRuns, Learning, Network, Validation, by_their_flags, end


@dataclasses.dataclass(frozen=True)
class Imitate(Learning):
    """Fit the transformer to the ranks that a hand-made rule gives, by gradient descent.

    A preset sets every value, and a flag replaces one of them.
    """

    rule: Annotated[str | None, tyro.conf.Positional] = None
    """The rule to imitate: ns, dns, ga or me; default ns, or that of the run that is resumed."""
    out: pathlib.Path = pathlib.Path("runs/imitate")
    """Folder for the rule, its card, the saved states, the log and the learning curve."""
    inner_runs: InnerRuns = dataclasses.field(default_factory=InnerRuns)
    network: Network = dataclasses.field(default_factory=Network)
    bbob: Bbob = dataclasses.field(default_factory=Bbob)
    imitation: Imitation = dataclasses.field(default_factory=Imitation)
    validation: Validation = dataclasses.field(default_factory=Validation)

    def main(self) -> None:
        from lqd.meta import train

        given = self.given()
        with by_their_flags(self):
            outcome = train.imitate(given.pop("rule"), **given)
        end(outcome.stopped_by)
