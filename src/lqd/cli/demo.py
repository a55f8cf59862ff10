"""`lqd demo`."""

import dataclasses
import pathlib


@dataclasses.dataclass(frozen=True)
class Demo:
    """Watch several rules fill the reachable square of a robot arm, and compare them in one picture."""

    out: pathlib.Path = pathlib.Path("runs/demo")
    """Folder for the picture and the results."""
    rules: tuple[str, ...] = ("ga", "me", "dns", "lqd-f")
    """Names that `lqd rules` lists."""
    task: str = "arm"
    """A name that `lqd tasks` lists."""
    num_evaluations: int = 200_000
    """Evaluations per rule."""
    population_size: int = 512
    """Solutions kept; four generations make as many offspring."""
    seed: int = 0

    def main(self) -> None:
        from lqd.cli import execute

        execute.demo(self)
