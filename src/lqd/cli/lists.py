"""`lqd tasks` and `lqd rules`."""

import dataclasses

from lqd.cli.console import table


@dataclasses.dataclass(frozen=True)
class Tasks:
    """List the tasks."""

    def main(self) -> None:
        from lqd import tasks

        table(("task", "what"), [(name, tasks.summary(name)) for name in tasks.names()])


@dataclasses.dataclass(frozen=True)
class Rules:
    """List the competition rules."""

    def main(self) -> None:
        from lqd.rules import catalogue

        entries = catalogue.RULES.items()
        table(("rule", "name", "who survives"), [(name, entry.title, entry.summary) for name, entry in entries])
