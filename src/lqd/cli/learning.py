"""The flags that `lqd train` and `lqd imitate` have in common, and how both end."""

import contextlib
import dataclasses
import pathlib
import re
import signal
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import tyro

from lqd.cli import flags
from lqd.errors import InvalidInput


@dataclasses.dataclass(frozen=True)
class InnerRuns:
    """Runs of a rule on a task."""

    population_size: int | None = None
    """Individuals kept (N)."""
    batch_size: int | None = None
    """Offspring per generation (B)."""


@dataclasses.dataclass(frozen=True)
class Network:
    """The transformer that is the rule."""

    num_layers: int | None = None
    """Layers of attention."""
    num_features: int | None = None
    """Width: numbers that describe an individual between layers; a multiple of the heads."""
    num_heads: int | None = None
    """Attention heads per layer."""
    num_hidden: int | None = None
    """Hidden units of the final perceptron."""
    recipe: int | None = None
    """Feature recipe. 1: the paper's features and attention; 2: attention by distance, for descriptors of any
    dimension; 3: like 2, and the network also leads variation."""


@dataclasses.dataclass(frozen=True)
class Bbob:
    """The BBOB functions, whose populations are imitated on."""

    functions: tuple[str, ...] | None = None
    """Functions to train on, by name or BBOB number; default the paper's 22."""
    min_dim: int | None = None
    """Lowest dimension of a task."""
    max_dim: int | None = None
    """Highest dimension of a task."""
    descriptor_dim: int | None = None
    """Descriptors of a task."""


@dataclasses.dataclass(frozen=True)
class Imitation:
    """Fitting the network to a hand-made rule by gradient descent."""

    synthetic_rounds: int | None = None
    """Rounds on synthetic populations."""
    own_rounds: int | None = None
    """Rounds on populations of the network's own runs."""
    steps_per_round: int | None = None
    """Gradient steps per round."""
    imitation_batch: int | None = None
    """Populations per gradient step."""
    imitation_rate: float | None = None
    """Learning rate."""


@dataclasses.dataclass(frozen=True)
class Validation:
    """Held-out tasks on which the rule is compared with the hand-made rules."""

    validation_tasks: int | None = None
    """Number of held-out tasks."""
    validation_generations: int | None = None
    """Generations of a validation run."""


@dataclasses.dataclass(frozen=True)
class Learning(flags.Typed):
    """The flags of both commands. A number that is not given is the preset's."""

    out: pathlib.Path = pathlib.Path("runs/train")
    """Folder for the rule, its card, the saved states, the log and the learning curve."""
    preset: str | None = None
    """smoke (2 CPU cores, under 2 minutes), small, reference or paper; default small, or the settings of the run that
    is resumed."""
    resume: bool = False
    """Continue the run in the folder from where it stopped, or begin if there is none."""
    time_limit_s: Annotated[float | None, tyro.conf.arg(aliases=["--time-limit"])] = None
    """Stop after this many seconds and save; --resume continues from there."""
    save_every_s: float = 30.0
    """Seconds between saved states."""
    seed: int | None = None
    """Seed of everything that is drawn."""
    tensorboard: bool = False
    """Also log for TensorBoard, to tensorboard/ in the folder."""
    wandb: str | None = None
    """Also log to the Weights & Biases project of this name."""
    quiet: bool = False
    """Show no progress bar and no summary."""

    def _is_given(self, field: dataclasses.Field, value: Any) -> bool:
        return value is not None and (self.is_typed(field.name) or value != field.default)

    def given(self) -> dict:
        """The flags that were given, by name: also one with the value that is its default."""
        always = ("out", "resume", "save_every_s", "tensorboard", "quiet", "add_stage", "rule", "distributed")
        values = [(field, getattr(group, field.name)) for group, field in flags.flat(self)]
        return {field.name: value for field, value in values if field.name in always or self._is_given(field, value)}


def defaults(words: Sequence[str]) -> flags.Defaults:
    """What the help of a training command shows as defaults: the preset's values, or those of every preset."""
    from lqd.meta import presets

    if words[:1] not in (["train"], ["imitate"]):
        return lambda name: None
    make = presets.preset if words[0] == "train" else presets.imitation_preset
    configs = {name: make(name) for name in _asked(words) or presets.PRESETS}
    return lambda name: _by_preset({preset: presets.value_of(name, config) for preset, config in configs.items()})


def _asked(words: Sequence[str]) -> list[str]:
    """The preset on the command line, if there is one of this name."""
    from lqd.meta import presets

    pairs = zip([*words, ""], [*words[1:], "", ""], strict=True)
    named = [after if word == "--preset" else word.removeprefix("--preset=") for word, after in pairs]
    return [name for name in named if name in presets.PRESETS][-1:]


def _by_preset(values: dict[str, Any]) -> str | None:
    """Such as "smoke: 2; small, paper: 4"; where all have the same, that; None where it is no number and no word."""
    if not all(isinstance(value, int | float | str) and not isinstance(value, bool) for value in values.values()):
        return None
    presets: dict[Any, list[str]] = {}
    for preset, value in values.items():
        presets.setdefault(value, []).append(preset)
    if len(values) > 1 and len(presets) == 1:
        return f"default: {next(iter(presets))}"
    return "; ".join(f"{', '.join(names)}: {value}" for value, names in presets.items())


@contextlib.contextmanager
def by_their_flags(command: Learning) -> Iterator[None]:
    """Errors about an argument of `lqd.train` name the flag that stands for it."""
    try:
        yield
    except InvalidInput as error:
        error.args = (_with_flags(str(error), command),)
        raise


def _with_flags(message: str, command: Learning) -> str:
    names = "|".join(field.name for _, field in flags.flat(command))
    if worded := re.match(r"(?:add_stage|shapes|validation_on)\b", message):  # within them, names are words, not flags
        return f"--{worded[0].replace('_', '-')}{message[worded.end() :]}"
    several = "|".join(name for name in names.split("|") if "_" in name)
    found = re.compile(rf"^(?:{names})(?= must|:)|(?<![\w.'\"-])(?:{several})(?==| must| \(|:)")
    return found.sub(lambda match: "--" + match[0].replace("_", "-"), message)


def end(stopped_by: str | None) -> None:
    """A run that a signal stopped ends like one that a signal ended, so that schedulers and shells can tell."""
    if stopped_by in ("SIGINT", "SIGTERM"):
        raise SystemExit(128 + signal.Signals[stopped_by].value)
