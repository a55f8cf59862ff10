"""`lqd rules`."""

import dataclasses

from lqd.cli.console import table
from lqd.rules import catalogue


@dataclasses.dataclass(frozen=True)
class Rules:
    """List the competition rules."""

    def main(self) -> None:
        entries = catalogue.RULES.items()
        table(("rule", "name", "who survives"), [(name, entry.title, entry.summary) for name, entry in entries])
