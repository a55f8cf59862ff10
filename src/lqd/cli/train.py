"""`lqd train`."""

import dataclasses
from typing import Any

from lqd.cli.learning import Bbob, Imitation, InnerRuns, Learning, Network, Validation, by_their_flags, end
from lqd.errors import InvalidInput


@dataclasses.dataclass(frozen=True)
class Objective:
    """What is maximised."""

    objective: str | None = None
    """fitness, novelty, qd (quality-diversity of the final population), archive (QD score of a passive archive,
    averaged over the run), or module:name, a function of your own."""
    qd_form: str | None = None
    """Form of qd: product (the QD score), sum (of standardised fitness and novelty) or ranks (the sum of their
    ranks)."""
    fitness_weight: float | None = None
    """Weight of fitness in the sum, between 0 and 1."""
    normalisation: str | None = None
    """How each task's values are normalised over the members: rank or z-score."""
    aggregation: str | None = None
    """How normalised values are combined over tasks: mean or median."""
    num_cells: int | None = None
    """Cells of the passive archive, for objectives that use one."""


@dataclasses.dataclass(frozen=True)
class Search:
    """The meta-optimiser: how long it runs, with how many members, and how it moves."""

    init: str | None = None
    """Where to begin: none (random weights), a hand-made rule to imitate first (ns, dns, ga or me), or weights: a rule
    that ships with lqd, a file, or the folder of a training run."""
    num_meta_generations: int | None = None
    """Length of the run, or of its last stage."""
    meta_population_size: int | None = None
    """Members of the meta-population (M)."""
    num_tasks: int | None = None
    """Tasks per meta-generation (K); with BBOB, a multiple of the number of functions."""
    add_stage: tuple[str, ...] = ()
    """Add a stage: 'num_meta_generations=256 meta_population_size=256'. What is not named stays as in the stage before
    it."""
    strategy: str | None = None
    """sep-cma-es, sep-cma-es-stock, snes or open-es."""
    sigma: float | None = None
    """Initial step size of the strategy."""
    learning_rate: float | None = None
    """Learning rate of open-es."""


@dataclasses.dataclass(frozen=True)
class TrainingRuns(InnerRuns):
    """Runs of a member on a task."""

    num_generations: int | None = None
    """Generations (T)."""
    iso_sigma: float | None = None
    """Isotropic step of the variation, in units of the solutions; not for recipe 3."""
    line_sigma: float | None = None
    """Step along the line between two parents, relative to their distance; not for recipe 3."""


@dataclasses.dataclass(frozen=True)
class Tasks:
    """What to train on, where it is not BBOB alone."""

    tasks: tuple[str, ...] = ()
    """Families of tasks, with shares: 'bbob-wide=2,arm-small,clipped,module:name'. Default: BBOB."""
    shapes: tuple[str, ...] = ()
    """Sizes of inner runs to draw from: 'population_size=64 batch_size=16 num_generations=64,256 descriptor_dim=4'."""


@dataclasses.dataclass(frozen=True)
class TrainingBbob(Bbob):
    """The BBOB functions, on which a run trains unless --tasks says otherwise."""

    noise: bool = True
    """Add noise to the tasks. A resumed run keeps its own setting."""
    rotate: bool = True
    """Rotate the tasks. A resumed run keeps its own setting."""


@dataclasses.dataclass(frozen=True)
class TrainingValidation(Validation):
    """Held-out tasks on which the rule is compared with the hand-made rules."""

    validation_every: int | None = None
    """Meta-generations between validations; 0: none, as on a GPU whose minutes are counted. The rule is then that of
    the last meta-generation."""
    validation_on: tuple[str, ...] = ()
    """Further tasks to validate on: 'name=long tasks=arm-large num_generations=1000 num_tasks=32'."""
    validation_aggregate: str | None = None
    """How their scores are combined into one: mean or worst."""


@dataclasses.dataclass(frozen=True)
class Devices:
    """Memory, and clusters. One process uses all devices of its machine without any of these flags."""

    chunk_size: int | None = None
    """Members that run at once on a device. Fewer take less memory; changing it changes the last bits of the result."""
    distributed: bool = False
    """This is one of several processes: they find each other from the cluster's environment, or by the next three
    flags."""
    coordinator_address: str | None = None
    """HOST:PORT of the first process."""
    num_processes: int | None = None
    """How many processes there are."""
    process_id: int | None = None
    """Number of this process, from 0."""


@dataclasses.dataclass(frozen=True)
class Train(Learning):
    """Discover a competition rule by meta-black-box optimisation, from random or given weights, or a hand-made rule.

    A preset sets every value, and a flag replaces one of them. `lqd train --preset small --help` shows the values of
    one preset.
    """

    objective: Objective = dataclasses.field(default_factory=Objective)
    search: Search = dataclasses.field(default_factory=Search)
    inner_runs: TrainingRuns = dataclasses.field(default_factory=TrainingRuns)
    network: Network = dataclasses.field(default_factory=Network)
    tasks: Tasks = dataclasses.field(default_factory=Tasks)
    bbob: TrainingBbob = dataclasses.field(default_factory=TrainingBbob)
    imitation: Imitation = dataclasses.field(default_factory=Imitation)
    validation: TrainingValidation = dataclasses.field(default_factory=TrainingValidation)
    devices: Devices = dataclasses.field(default_factory=Devices)

    def main(self) -> None:
        given = self.given()
        cluster = {name: given.pop(name, None) for name in ("coordinator_address", "num_processes", "process_id")}
        if given.pop("distributed"):
            _join(cluster)
        elif any(value is not None for value in cluster.values()):
            raise InvalidInput("--coordinator-address, --num-processes and --process-id need --distributed.")
        from lqd.meta import train

        with by_their_flags(self):
            outcome = train.train(**given)
        end(outcome.stopped_by)


def _join(cluster: dict[str, Any]) -> None:
    """Meets the other processes."""
    import jax

    address, num = cluster["coordinator_address"], cluster["num_processes"]
    if address is not None and not address.rpartition(":")[2].isdigit():
        raise InvalidInput(f"--coordinator-address must be HOST:PORT of the first process, got {address!r}.")
    if cluster["process_id"] is not None and num is not None and not 0 <= cluster["process_id"] < num:
        raise InvalidInput(
            f"--process-id must be from 0 to {num - 1}, as --num-processes is {num}, got {cluster['process_id']}."
        )
    try:
        jax.distributed.initialize(**cluster)
    except (ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InvalidInput(
            f"--distributed: this process cannot join the others ({reason}). Under Slurm, Open MPI, Kubernetes and on "
            f"cloud TPUs they find each other; elsewhere give --coordinator-address HOST:PORT, --num-processes N and "
            f"--process-id I, from 0 to N - 1, to each process. On one machine leave out --distributed: it uses all "
            f"devices."
        ) from error
