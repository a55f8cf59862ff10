"""How to imitate: rounds, steps, populations."""

import dataclasses
from typing import Any

from lqd import checks
from lqd.errors import InvalidInput
from lqd.evolution.loop import BATCH_SIZE, POPULATION_SIZE
from lqd.evolution.variation import ISO_SIGMA, LINE_SIGMA
from lqd.meta.family import Family
from lqd.meta.tasks import Distribution
from lqd.tasks.bbob import instances


@dataclasses.dataclass(frozen=True)
class Imitation:
    """How to imitate. The defaults take four minutes on one H200; `CPU` two minutes on two cores."""

    num_synthetic_rounds: int = 16
    num_own_rounds: int = 80
    steps_per_round: int = 800
    num_populations: int = 64  # per step
    num_at_once: int = 64  # populations whose gradient is computed at once: a CPU is fastest within its cache
    learning_rate: float = 0.03
    num_warmup_steps: int = 100
    max_gradient: float = 1.0  # norm above which a gradient is scaled down
    synthetic_size: int = 64  # individuals in synthetic rounds: few, because cost grows with their square
    synthetic_share: float = 0.5  # of the populations of a step in own rounds
    population_size: int = POPULATION_SIZE
    batch_size: int = BATCH_SIZE
    num_generations: int = 256
    num_snapshots: int = 16  # generations of a run whose populations are kept
    num_per_function: int = 8  # tasks of the runs in an own round, and of those held out
    functions: tuple[str, ...] = instances.TRAINING_SET  # of those tasks, where no families are given
    num_held_out: int = 512  # synthetic populations
    tasks: tuple[tuple[Any, float], ...] = ()  # families of the tasks, each with its share of the own rounds
    iso_sigma: float = ISO_SIGMA
    line_sigma: float = LINE_SIGMA

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if field.type is int:
                may_be_zero = field.name in ("num_synthetic_rounds", "num_own_rounds", "num_warmup_steps")
                checks.whole(field.name, getattr(self, field.name), 0 if may_be_zero else 1)
        for name in ("learning_rate", "max_gradient"):
            checks.real(name, getattr(self, name), positive=True)
        if checks.real("synthetic_share", self.synthetic_share) > 1:
            raise InvalidInput(f"synthetic_share must be between 0 and 1, got {self.synthetic_share!r}.")
        if self.num_populations % min(self.num_at_once, self.num_populations):
            raise InvalidInput(
                f"num_populations must be a multiple of num_at_once, got {self.num_populations} and {self.num_at_once}."
            )
        if self.num_rounds == 0:
            raise InvalidInput("num_synthetic_rounds and num_own_rounds must not both be 0.")
        object.__setattr__(self, "functions", tuple(map(instances.resolve, self.functions)))

    @property
    def num_rounds(self) -> int:
        return self.num_synthetic_rounds + self.num_own_rounds

    def num_tasks(self, family: Family) -> int:
        """Of a round: so many of each function, or as many as on BBOB where a family is not one of functions."""
        has_functions = isinstance(family, Distribution) or family.multiple > 1
        return self.num_per_function * (family.multiple if has_functions else len(instances.TRAINING_SET))

    def turn(self, round_number: int) -> int:
        """The number of the family of a round: they take turns, in proportion to their shares."""
        if len(self.tasks) < 2:
            return 0
        counts = [0.0] * len(self.tasks)
        whole = sum(share for _, share in self.tasks)
        turn = 0
        for number in range(round_number + 1):
            lacking = [share / whole * (number + 1) - counts[i] for i, (_, share) in enumerate(self.tasks)]
            turn = lacking.index(max(lacking))
            counts[turn] += 1
        return turn

    def alone(self, number: int) -> "Imitation":
        """The same settings on one of the families."""
        return self if len(self.tasks) == 1 else dataclasses.replace(self, tasks=(self.tasks[number],))

    @property
    def num_individuals(self) -> int:
        """The number of individuals that compete in one generation."""
        return self.population_size + self.batch_size

    @property
    def num_synthetic_individuals(self) -> int:
        return min(self.synthetic_size, self.num_individuals)


CPU = Imitation(
    num_synthetic_rounds=5,
    num_own_rounds=8,
    steps_per_round=240,
    num_populations=16,
    num_at_once=4,
    learning_rate=0.02,
    num_per_function=1,
    num_held_out=128,
)
