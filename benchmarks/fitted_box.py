"""Which box suits MAP-Elites? `python benchmarks/fitted_box.py [--num-seeds 8] [--min-dim 2 --max-dim 12]`.

The paper's box against boxes that hold a share of what random points have as descriptors, and wider ones, on tasks of
the validation key: never those that the benches quote. After 8,320 evaluations: the slots that MAP-Elites fills, then
in units of what it has with the paper's box its regret (the paper's box / this one), its novelty, that of as many
individuals as it keeps with the paper's box, this package's QD score (highest fitness times dominated novelty), and
what its final population has in a passive archive of 1,024 cells over the paper's box: coverage and QD score, the sum
of fitness above the worst of random search.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

from lqd import statistics
from lqd.bench import runner, settings
from lqd.evolution import archive
from lqd.rules import catalogue, cvt
from lqd.tasks.anchors import random_search
from lqd.types import Population

BOXES = {  # name: share of the coordinates that it holds, and times how wide
    "holds 80 %": (0.8, 1.0),
    "holds 90 %": (0.9, 1.0),
    "holds 95 %": (0.95, 1.0),
    "holds 99 %": (0.99, 1.0),
    "holds all": (1.0, 1.0),
    "1.5 times that": (1.0, 1.5),
    "twice that": (1.0, 2.0),
}
COLUMNS = {
    "regret": "fitness",
    "novelty": "novelty",
    "at equal slots": "rarefied",
    "QD score": "qd",
    "archive: coverage": "coverage",
    "archive: QD score": "archive_qd",
}


def measured(setting: settings.Setting, field: settings.Field, paper: settings.Field, num, keys: runner.Keys):
    """Of MAP-Elites on these tasks, one value per task; `num` are the slots that it fills with the paper's box."""
    anchors = random_search(keys.anchors, paper.tasks, setting.num_evaluations)
    runs = jax.random.split(keys.runs, paper.tasks.num_tasks)
    rule = catalogue.rule("me", centroids=cvt.centroids(setting.population_size, *paper.box))
    rows, state = runner._run(setting.sizes, None, rule, runs, field, anchors.f_rand, setting.steps)
    fitness, descriptor = state.population.fitness, state.population.descriptor
    found = {measure: value[-1] for measure, value in rows.items()}
    num = found["num_filled"] if num is None else num
    found["rarefied"] = runner._rarefied(fitness, descriptor, num) * field.scale
    cells = cvt.centroids(1024, *paper.box, seed=1)

    def passive(fitness, descriptor, offset):
        everybody = Population(jnp.zeros((len(fitness), 1)), fitness, descriptor, {})
        elites = archive.Archive.empty(cells, everybody).insert(everybody).elites.fitness
        return archive.coverage(elites), archive.offset_qd_score(elites, offset)

    in_papers_units = descriptor * (field.scale / paper.scale)[:, None, None]
    found["coverage"], found["archive_qd"] = jax.jit(jax.vmap(passive))(fitness, in_papers_units, anchors.f_worst)
    return {measure: np.asarray(value) for measure, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-seeds", type=int, default=8)
    parser.add_argument("--min-dim", type=int, default=2)
    parser.add_argument("--max-dim", type=int, default=12)
    setting = settings.Setting(**vars(parser.parse_args()))
    keys = runner.held_out(runner.VALIDATION)
    paper = settings.field(keys.tasks, setting)
    fields = {"the paper's": paper}
    fields |= {name: settings.fitted(keys.box, paper, share, times) for name, (share, times) in BOXES.items()}
    print(f"| box | half width | filled slots | {' | '.join(COLUMNS)} |\n| --- | --- | --- |{' --- |' * len(COLUMNS)}")
    unit: dict[str, np.ndarray] = {}
    for name, field in fields.items():
        found = measured(setting, field, paper, unit.get("num_filled"), keys)
        unit = unit or found
        shape = len(setting.columns), setting.num_seeds
        compared = (
            statistics.compare(found[m].reshape(shape).T, unit[m].reshape(shape).T, m) for m in COLUMNS.values()
        )
        width, filled = np.median(field.scale / paper.scale), found["num_filled"].mean()
        print(f"| {name} | {width:.2f} | {filled:.0f} | {' | '.join(f'{c.ratio:.2f}' for c in compared)} |", flush=True)


if __name__ == "__main__":
    main()
