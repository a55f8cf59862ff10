"""The flags that `lqd train` and `lqd imitate` have in common, and how both end."""

import contextlib
import dataclasses
import pathlib
import re
import signal
from collections.abc import Iterator, Sequence
from typing import Annotated

import tyro

from lqd.errors import InvalidInput


@dataclasses.dataclass(frozen=True)
class Learning:
    """A number that is not given is the preset's."""

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
    """1: the paper's features and attention; 2: attention by distance, for descriptors of any dimension; 3: the same,
    and the network leads variation, too."""
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

    typed: frozenset[str] = dataclasses.field(init=False, default=frozenset())  # the flags on the command line

    def remember(self, words: Sequence[str]) -> None:
        """Which flags were typed: tyro does not say of `--noise` whether it is there or the default."""
        names = {word.partition("=")[0].replace("_", "-") for word in words}
        object.__setattr__(self, "typed", frozenset(name for name in names if name.startswith("--")))

    def _is_given(self, field: dataclasses.Field) -> bool:
        value, flag = getattr(self, field.name), field.name.replace("_", "-")
        is_typed = not self.typed.isdisjoint({f"--{flag}", f"--no-{flag}"})
        return value is not None and (is_typed or value != field.default)

    def given(self) -> dict:
        """The flags that were given, by name: also one with the value that is its default."""
        always = ("out", "resume", "save_every_s", "tensorboard", "quiet", "add_stage", "rule", "distributed")
        fields = [field for field in dataclasses.fields(self) if field.init]
        return {
            field.name: getattr(self, field.name) for field in fields if field.name in always or self._is_given(field)
        }


@contextlib.contextmanager
def by_their_flags(command: Learning) -> Iterator[None]:
    """Errors about an argument of `lqd.train` name the flag that stands for it."""
    try:
        yield
    except InvalidInput as error:
        error.args = (_with_flags(str(error), command),)
        raise


def _with_flags(message: str, command: Learning) -> str:
    names = "|".join(field.name for field in dataclasses.fields(command) if field.init)
    if worded := re.match(r"(?:add_stage|shapes|validation_on)\b", message):  # within them, names are words, not flags
        return f"--{worded[0].replace('_', '-')}{message[worded.end() :]}"
    several = "|".join(name for name in names.split("|") if "_" in name)
    found = re.compile(rf"^(?:{names})(?= must|:)|(?<![\w.'\"-])(?:{several})(?==| must| \(|:)")
    return found.sub(lambda match: "--" + match[0].replace("_", "-"), message)


def end(stopped_by: str | None) -> None:
    """A run that a signal stopped ends like one that a signal ended, so that schedulers and shells can tell."""
    if stopped_by in ("SIGINT", "SIGTERM"):
        raise SystemExit(128 + signal.Signals[stopped_by].value)
