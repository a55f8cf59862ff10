"""`lqd demo`: its flags, and what it does and shows."""

import dataclasses
import pathlib
import time

from lqd import tasks
from lqd.cli import seeds
from lqd.errors import Interrupted, InvalidInput, unknown
from lqd.rules import catalogue
from lqd.search.result import Result
from lqd.search.settings import Settings
from lqd.tasks.task import start_scale


@dataclasses.dataclass(frozen=True)
class Demo:
    """Watch several rules fill everything that a robot arm can reach, and compare them in one picture."""

    out: pathlib.Path = pathlib.Path("runs/demo")
    """Folder for the picture and the results."""
    rules: tuple[str, ...] = ("ga", "me", "dns", "lqd-fn")
    """Rules to compare, by the names that `lqd rules` lists."""
    task: str = "arm"
    """A task that `lqd tasks` lists."""
    num_evaluations: int = 200_000
    """Evaluations per rule."""
    population_size: int = 512
    """Solutions kept. Each generation has a quarter as many offspring."""
    variation: str = "paper"
    """How children are made. paper: fixed steps, so that only the rules differ; spread: as `lqd.optimize` does by
    default, which also screens them."""
    seed: int = 0
    """Seed of the initial population and of everything drawn after it."""

    def main(self) -> None:
        from lqd.report import run_figures, style

        begun = time.perf_counter()
        task = tasks.make(self.task)
        for name in self.rules:
            if name not in catalogue.RULES:
                raise unknown("rule", name, catalogue.RULES)
            if self.rules.count(name) > 1:
                raise InvalidInput(f"--rules: {name!r} is given {self.rules.count(name)} times; once is enough.")
        self.out.mkdir(parents=True, exist_ok=True)  # fails now, not after the first rule has run
        evaluations = f"{self.num_evaluations:,} evaluations"
        print(f"{tasks.summary(self.task)}.\n{evaluations} for each of {len(self.rules)} rules.\n")
        anchors = seeds.anchors_of(task, self.num_evaluations)
        results: dict[str, Result] = {}
        scores: list[seeds.Scores] = []
        speeds: list[str] = []
        for name in self.rules:
            settings = Settings(
                dim=task.dim, bounds=task.bounds, rule=name, population_size=self.population_size,
                batch_size=max(1, self.population_size // 4), descriptor_bounds=task.descriptor_bounds,
                archive_cells=1024, seed=self.seed, init_sigma=start_scale(task), variation=self.variation,
            )  # fmt: skip
            num_generations = settings.num_generations(self.num_evaluations)
            label = f"{catalogue.RULES[name].title:<26}"
            outcome = seeds.run_seeds(task, settings, num_generations, 1, label, anchors)
            if outcome.stopped_by == "interrupt":
                raise Interrupted("interrupted", results)
            (result,) = outcome.results
            results[name] = result
            scores += outcome.scores
            speeds.append(f"{result.num_evaluations / outcome.run_s:,.0f}")
            result.save(self.out / f"{name}.safetensors")
        title, labels = f"{tasks.title(task.name)}, {evaluations}", None
        if self.task == "arm":
            title = f"Robot arm, {evaluations}: where the hand can be, and how evenly the joints share the work"
            labels = "hand x", "hand y"
        style.save(run_figures.comparison(results, title, labels), self.out / "demo.png")
        print()
        seeds.show_scores(results, scores, speeds)
        print(f"\n{time.perf_counter() - begun:.0f} s. The picture: {self.out / 'demo.png'}")
