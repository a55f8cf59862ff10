"""`lqd tasks`."""

import dataclasses

from lqd import tasks
from lqd.cli.console import table


@dataclasses.dataclass(frozen=True)
class Tasks:
    """List the tasks."""

    def main(self) -> None:
        table(("task", "what"), [(name, tasks.summary(name)) for name in tasks.names()])
