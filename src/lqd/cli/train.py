"""`lqd train`."""

import dataclasses
from typing import Any

from lqd.cli.learning import Learning, by_their_flags, end
from lqd.errors import InvalidInput


@dataclasses.dataclass(frozen=True)
class Train(Learning):
    """Discover a competition rule by meta-black-box optimisation, from scratch or from a hand-made one."""

    objective: str | None = None
    """fitness (the default), novelty, qd, archive, or module:name, a function of your own."""
    tasks: tuple[str, ...] = ()
    """What to train on instead of BBOB, with shares: 'bbob-wide=2,arm-small,clipped,module:name'."""
    shapes: tuple[str, ...] = ()
    """Sizes of inner runs to draw from: 'population_size=64 batch_size=16 num_generations=64,256 descriptor_dim=4'."""
    init: str | None = None
    """none, a hand-made rule to imitate first (ns, dns, ga, me), or weights: of a rule in the box, a file, a folder."""
    num_meta_generations: int | None = None
    """Length of the (last) stage."""
    meta_population_size: int | None = None
    """Members of the meta-population (M)."""
    num_tasks: int | None = None
    """Tasks per meta-generation (K), a multiple of the functions."""
    num_generations: int | None = None
    """Generations of an inner run (T)."""
    add_stage: tuple[str, ...] = ()
    """One more stage: 'num_meta_generations=256 meta_population_size=256', the rest as in the stage before."""
    strategy: str | None = None
    """sep-cma-es, sep-cma-es-stock, snes or open-es."""
    sigma: float | None = None
    """First step size of the strategy."""
    learning_rate: float | None = None
    """Of open-es."""
    qd_form: str | None = None
    """What qd maximises: product (the QD score) or sum (of standardised fitness and novelty)."""
    fitness_weight: float | None = None
    """Of the sum."""
    normalisation: str | None = None
    """Of each task's values over the members: rank or z-score."""
    aggregation: str | None = None
    """Of the normalised values over the tasks: mean or median."""
    num_cells: int | None = None
    """Of the passive archive, for objectives that look at it."""
    noise: bool = True
    """Noise on the tasks; the default is the resumed run's, where there is one."""
    rotate: bool = True
    """Rotations of the tasks; likewise."""
    chunk_size: int | None = None
    """Members that run at once on a device; bounds memory, and is part of the result's last bits."""
    iso_sigma: float | None = None
    line_sigma: float | None = None
    validation_every: int | None = None
    """Meta-generations between validations."""
    validation_on: tuple[str, ...] = ()
    """Further tasks to validate on: 'name=long tasks=arm-large num_generations=1000 num_tasks=32'."""
    validation_aggregate: str | None = None
    """What counts of their scores: mean or worst."""
    distributed: bool = False
    """One of several processes, found from the cluster's environment or by the three flags below."""
    coordinator_address: str | None = None
    """host:port of the first process."""
    num_processes: int | None = None
    process_id: int | None = None

    def main(self) -> None:
        given = self.given()
        cluster = {name: given.pop(name, None) for name in ("coordinator_address", "num_processes", "process_id")}
        if given.pop("distributed"):
            _join(cluster)
        elif any(value is not None for value in cluster.values()):
            raise InvalidInput("--coordinator-address, --num-processes and --process-id are for --distributed.")
        from lqd.meta import train

        with by_their_flags(self):
            outcome = train.train(**given)
        end(outcome.stopped_by)


def _join(cluster: dict[str, Any]) -> None:
    """Meets the other processes."""
    import jax

    address, num = cluster["coordinator_address"], cluster["num_processes"]
    if address is not None and not address.rpartition(":")[2].isdigit():
        raise InvalidInput(f"--coordinator-address must be host:port, of the first process, got {address!r}.")
    if cluster["process_id"] is not None and num is not None and not 0 <= cluster["process_id"] < num:
        raise InvalidInput(
            f"--process-id must be 0 to {num - 1}, of --num-processes {num}, got {cluster['process_id']}."
        )
    try:
        jax.distributed.initialize(**cluster)
    except (ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InvalidInput(
            f"--distributed: this process cannot join the others ({reason}). Slurm, Open MPI, Kubernetes and "
            f"cloud TPUs say who is who; elsewhere give --coordinator-address HOST:PORT, --num-processes N and "
            f"--process-id I, from 0 to N - 1, to each process. On one machine leave --distributed out: it uses all "
            f"devices."
        ) from error
