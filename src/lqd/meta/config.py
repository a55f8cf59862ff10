"""What determines a training run, and nothing else: equal configs and seeds give equal bits on equal machines.

A run is a list of stages; a stage may have more members, tasks or generations than the one before. What happens in a
meta-generation depends on its number alone, never on the clock, so a run can be cut anywhere, and lengthened.

Deliberately not here: time limits, logging, how often states are saved. They do not change the result.
"""

import dataclasses
from typing import Any

from lqd import checks
from lqd.errors import InvalidInput, unknown
from lqd.evolution.loop import BATCH_SIZE, POPULATION_SIZE
from lqd.evolution.variation import ISO_SIGMA, LINE_SIGMA, IsoLine
from lqd.io import records
from lqd.meta import strategy as strategies
from lqd.meta.imitation.settings import Imitation
from lqd.meta.imitation.teachers import TEACHERS
from lqd.meta.objective import Objective
from lqd.meta.tasks import Distribution
from lqd.rules.learned.network import Architecture

# Of the held-out tasks, the largest there is. They and an imitation fold the same number into their seeds.
VALIDATION_SEED = 2**32 - 1


@dataclasses.dataclass(frozen=True)
class Stage:
    """So many meta-generations of M members on K tasks, each run for T generations."""

    num_meta_generations: int
    meta_population_size: int
    num_tasks: int
    num_generations: int = 256

    def __post_init__(self):
        for field in dataclasses.fields(self):
            least = {"meta_population_size": 4, "num_meta_generations": 0}.get(field.name, 1)
            checks.whole(field.name, getattr(self, field.name), least)


STAGE_FIELDS = tuple(field.name for field in dataclasses.fields(Stage))


@dataclasses.dataclass(frozen=True)
class Validation:
    """Held-out tasks, the same for every run: `num_tasks` of them every `every` meta-generations."""

    every: int = 16
    num_tasks: int = 528
    num_generations: int = 256

    def __post_init__(self):
        checks.whole("validation_every", self.every, 1)
        checks.whole("validation_generations", self.num_generations, 1)


@dataclasses.dataclass(frozen=True)
class Config:
    """A whole run. `init` is 'none', a hand-made rule to imitate first, or weights: a name or a file."""

    stages: tuple[Stage, ...]
    objective: Objective = dataclasses.field(default_factory=Objective)
    strategy: str = "sep-cma-es"
    sigma: float = 0.1
    learning_rate: float = 0.01
    seed: int = 0
    init: str = "none"
    init_sha256: str | None = None
    imitation: Imitation = dataclasses.field(default_factory=Imitation)
    population_size: int = POPULATION_SIZE
    batch_size: int = BATCH_SIZE
    iso_sigma: float = ISO_SIGMA
    line_sigma: float = LINE_SIGMA
    chunk_size: int = 32
    architecture: Architecture = dataclasses.field(default_factory=Architecture)
    distribution: Distribution = dataclasses.field(default_factory=Distribution)
    validation: Validation = dataclasses.field(default_factory=Validation)

    def __post_init__(self):
        if self.strategy not in strategies.NAMES:
            raise unknown("strategy", self.strategy, strategies.NAMES)
        for name in ("sigma", "learning_rate"):
            checks.real(name, getattr(self, name), positive=True)
        for name in ("iso_sigma", "line_sigma"):
            checks.real(name, getattr(self, name))
        for name in ("population_size", "batch_size", "chunk_size"):
            checks.whole(name, getattr(self, name), 2 if name == "population_size" else 1)
        checks.seed(self.seed)
        if self.seed == VALIDATION_SEED and self.init in TEACHERS:
            raise InvalidInput(
                f"seed {self.seed} is that of the validation tasks: an imitation (of {self.init!r}) would draw its "
                f"populations from their keys. Give another seed."
            )
        architecture = dataclasses.replace(self.architecture, descriptor_dim=self.distribution.descriptor_dim)
        object.__setattr__(self, "architecture", architecture)
        imitation = dataclasses.replace(
            self.imitation,
            population_size=self.population_size,
            batch_size=self.batch_size,
            functions=self.distribution.functions,
        )
        object.__setattr__(self, "imitation", imitation)
        self.distribution.check_num_tasks("validation_tasks", self.validation.num_tasks)
        for stage in self.stages:
            self.distribution.check_num_tasks("num_tasks", stage.num_tasks)
            if self.strategy == "open-es" and stage.meta_population_size % 2:
                raise InvalidInput(
                    f"meta_population_size must be even for open-es (it samples in mirrored pairs), "
                    f"got {stage.meta_population_size}."
                )
            check_division(stage.meta_population_size, self.chunk_size, 1)

    @property
    def num_meta_generations(self) -> int:
        return sum(stage.num_meta_generations for stage in self.stages)

    @property
    def num_rounds(self) -> int:
        """Rounds of imitation before the evolution begins."""
        return self.imitation.num_rounds if self.init in TEACHERS else 0

    @property
    def operator(self) -> IsoLine:
        return IsoLine.with_steps(self.iso_sigma, self.line_sigma)

    def check_objective(self) -> None:
        """An error, before anything compiles, if the objective is a function that cannot be called."""
        self.objective.check(self.population_size, self.distribution.descriptor_dim)

    def stage_at(self, meta_generation: int) -> tuple[int, Stage]:
        """Number of the stage that a meta-generation belongs to, and the stage."""
        for number, stage in enumerate(self.stages):
            if meta_generation < stage.num_meta_generations:
                return number, stage
            meta_generation -= stage.num_meta_generations
        raise InvalidInput(f"the run has {self.num_meta_generations} meta-generations.")


def check_division(meta_population_size: int, chunk_size: int, num_devices: int) -> int:
    """Chunks that each device runs; an error says which sizes would divide."""
    unit = min(chunk_size, meta_population_size) * num_devices
    if meta_population_size % unit == 0:
        return meta_population_size // unit
    would = -(-meta_population_size // (chunk_size * num_devices)) * (chunk_size * num_devices)
    over = f" over {num_devices} devices" if num_devices > 1 else ""
    fits = [c for c in range(1, meta_population_size + 1) if meta_population_size % (c * num_devices) == 0]
    smaller = max((c for c in fits if c <= chunk_size), default=None)
    other = f" or chunk_size={smaller} (which changes the last bits of results)" if smaller else ""
    raise InvalidInput(
        f"meta_population_size={meta_population_size} in chunks of {min(chunk_size, meta_population_size)} does not "
        f"divide{over}; meta_population_size={would}{other} would."
    )


def to_dict(config: Config) -> dict[str, Any]:
    """As plain values for JSON; of a function of the user's, what identifies it."""
    own = config.objective.identity(config.population_size, config.distribution.descriptor_dim)
    objective = dataclasses.replace(config.objective, own=own)
    return dataclasses.asdict(dataclasses.replace(config, objective=objective))


def shortened(config: Config, num_meta_generations: int) -> Config:
    """The first so many meta-generations of a run."""
    stages, left = [], num_meta_generations
    for stage in config.stages:
        stages.append(dataclasses.replace(stage, num_meta_generations=min(stage.num_meta_generations, left)))
        left -= stages[-1].num_meta_generations
    return dataclasses.replace(config, stages=tuple(stages))


def from_dict(content: dict[str, Any]) -> Config:
    """What `to_dict` made, after a passage through JSON."""
    imitation = content["imitation"] | {"functions": content["distribution"]["functions"]}
    return records.read(Config, content | {"imitation": imitation})


def differences(old: Config, new: Config, num_done: int) -> list[str]:
    """Fields in which `new` is another run than the one that did `num_done` meta-generations under `old`.

    More meta-generations and further stages are the same run, as long as what is already done would be done alike.
    """
    first, second = _flat(to_dict(old)), _flat(to_dict(new))
    names = [n for n in sorted(first.keys() | second.keys()) if not n.startswith("stages")]
    found = [f"{n}: {first.get(n)!r} there, {second.get(n)!r} here" for n in names if first.get(n) != second.get(n)]
    if num_done > new.num_meta_generations:
        found.append(f"num_meta_generations: {num_done} already done there, {new.num_meta_generations} here")
    else:
        for done in range(num_done):
            before, now = old.stage_at(done)[1], new.stage_at(done)[1]
            changed = [n for n in STAGE_FIELDS[1:] if getattr(before, n) != getattr(now, n)]
            if changed:
                found += [
                    f"{n} (meta-generation {done}): {getattr(before, n)} there, {getattr(now, n)} here" for n in changed
                ]
                break
    return found


def _flat(content: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in content.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat
