"""`lqd train` and `lqd imitate`."""

import dataclasses
import pathlib
import signal
from typing import Annotated

import tyro

from lqd.errors import InvalidInput


@dataclasses.dataclass(frozen=True)
class _Learning:
    """What training and imitation have in common; a number that is not given is the preset's."""

    out: pathlib.Path = pathlib.Path("runs/train")
    """Folder for the rule, its card, the states, the log and the curve."""
    preset: str | None = None
    """smoke (2 CPU cores, under 2 minutes), small, reference or paper; default small, or the resumed run's."""
    resume: bool = False
    """Go on where the run in the folder stopped, or begin if there is none."""
    time_limit_s: Annotated[float | None, tyro.conf.arg(aliases=["--time-limit"])] = None
    """Stop in time and save; --resume goes on from there."""
    save_every_s: float = 30.0
    """Seconds between saved states."""
    seed: int | None = None
    population_size: int | None = None
    """Individuals kept in an inner run (N)."""
    batch_size: int | None = None
    """Offspring per generation of an inner run (B)."""
    num_layers: int | None = None
    num_features: int | None = None
    num_heads: int | None = None
    num_hidden: int | None = None
    recipe: int | None = None
    """1: the paper's features and attention; 2: attention by distance, for descriptors of any dimension."""
    min_dim: int | None = None
    """Lowest dimension of a task."""
    max_dim: int | None = None
    """Highest dimension of a task."""
    descriptor_dim: int | None = None
    functions: tuple[str, ...] | None = None
    """Functions to train on, by name or BBOB number; default the paper's 22."""
    synthetic_rounds: int | None = None
    """Rounds of imitation on synthetic populations."""
    own_rounds: int | None = None
    """Rounds of imitation on populations of runs."""
    steps_per_round: int | None = None
    """Gradient steps per round."""
    imitation_batch: int | None = None
    """Populations per gradient step."""
    imitation_rate: float | None = None
    """Learning rate of the imitation."""
    validation_tasks: int | None = None
    """Held-out tasks."""
    validation_generations: int | None = None
    """Generations of a validation run."""
    tensorboard: bool = False
    """Also log for TensorBoard, to the folder's tensorboard/."""
    wandb: str | None = None
    """Also log to Weights & Biases, to the project of this name."""
    quiet: bool = False
    """No progress bar."""

    def given(self) -> dict:
        """The flags that were given, by name."""
        always = ("resume", "save_every_s", "tensorboard", "quiet", "add_stage", "rule", "distributed")
        given = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name in always or getattr(self, field.name) != field.default
        }
        return given | {"out": self.out}


@dataclasses.dataclass(frozen=True)
class Train(_Learning):
    """Discover a competition rule by meta-black-box optimisation, from scratch or from a hand-made one."""

    objective: str | None = None
    """fitness (the default), novelty or qd."""
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
    noise: bool = True
    """Noise on the tasks."""
    rotate: bool = True
    """Rotations of the tasks."""
    chunk_size: int | None = None
    """Members that run at once on a device; bounds memory, and is part of the result's last bits."""
    iso_sigma: float | None = None
    line_sigma: float | None = None
    validation_every: int | None = None
    """Meta-generations between validations."""
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
            import jax

            jax.distributed.initialize(**cluster)
        elif any(value is not None for value in cluster.values()):
            raise InvalidInput("coordinator_address, num_processes and process_id are for --distributed.")
        from lqd.meta import train

        _end(train.train(**given).stopped_by)


@dataclasses.dataclass(frozen=True)
class Imitate(_Learning):
    """Fit the transformer to the ranks that a hand-made rule gives, by gradient descent."""

    rule: Annotated[str, tyro.conf.Positional] = "ns"
    """ns, dns, ga or me."""
    out: pathlib.Path = pathlib.Path("runs/imitate")
    """Folder for the rule, its card, the states, the log and the curve."""

    def main(self) -> None:
        from lqd.meta import train

        given = self.given()
        _end(train.imitate(given.pop("rule"), **given).stopped_by)


def _end(stopped_by: str | None) -> None:
    """A run that a signal stopped ends like one that a signal ended, so that schedulers and shells can tell."""
    if stopped_by in ("SIGINT", "SIGTERM"):
        raise SystemExit(128 + signal.Signals[stopped_by].value)
