"""What determines a training run, and nothing else: equal configs and seeds give equal bits on equal machines.

A run is a list of stages; a stage may have more members, tasks or generations than the one before. What happens in a
meta-generation depends on its number alone, never on the clock, so a run can be cut anywhere, and lengthened.

Deliberately not here: time limits, logging, how often states are saved. They do not change the result.
"""

import dataclasses
import functools
from typing import Any

from lqd import checks
from lqd.errors import InvalidInput, unknown
from lqd.evolution.led import Led
from lqd.evolution.loop import BATCH_SIZE, POPULATION_SIZE
from lqd.evolution.variation import ISO_SIGMA, LINE_SIGMA, IsoLine
from lqd.io import records
from lqd.meta import mixture, suite
from lqd.meta import strategy as strategies
from lqd.meta.family import Family, check_at
from lqd.meta.imitation.settings import Imitation
from lqd.meta.imitation.teachers import TEACHERS
from lqd.meta.mixture import Part, Shape
from lqd.meta.objective import Objective
from lqd.meta.suite import Entry
from lqd.meta.tasks import Distribution
from lqd.rules.learned.network import OF_DISTANCES, Architecture

# The seed of the held-out tasks, the largest there is. They and an imitation fold the same number into their seeds.
VALIDATION_SEED = 2**32 - 1
NUM_CELLS = 1024  # of the passive archive, for objectives that look at one


STAGE_NUMBERS = ("num_meta_generations", "meta_population_size", "num_tasks", "num_generations")


@dataclasses.dataclass(frozen=True)
class Stage:
    """A number of meta-generations of M members on K tasks, each run for T generations.

    With `shapes`, each meta-generation has one of them, drawn by its number.
    """

    num_meta_generations: int
    meta_population_size: int
    num_tasks: int
    num_generations: int = 256
    shapes: tuple[Shape, ...] = ()

    def __post_init__(self):
        for name in STAGE_NUMBERS:
            least = {"meta_population_size": 4, "num_meta_generations": 0}.get(name, 1)
            checks.whole(name, getattr(self, name), least)
        object.__setattr__(self, "shapes", mixture.shapes(self.shapes))


STAGE_FIELDS = (*STAGE_NUMBERS, "shapes")


@dataclasses.dataclass(frozen=True)
class Validation:
    """Held-out tasks, the same for every run: `num_tasks` of them every `every` meta-generations; 0: never.

    The entries `on` add further tasks, which count as much; the score is the mean, or the worst, over all of them.
    """

    every: int = 16
    num_tasks: int = 528
    num_generations: int = 256
    on: tuple[Entry, ...] = ()
    aggregate: str = "mean"

    def __post_init__(self):
        object.__setattr__(self, "on", suite.entries(self.on))
        checks.one_of("validation_aggregate", self.aggregate, ("mean", "worst"))
        checks.whole("validation_every", self.every, 0)
        checks.whole("validation_generations", self.num_generations, 1)


@dataclasses.dataclass(frozen=True)
class Config:
    """A whole run. `init` is 'none', a hand-made rule to imitate first, or weights: a name or a file.

    It is trained on `tasks` or, without any, on BBOB's `distribution` alone.
    """

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
    tasks: tuple[Part, ...] = ()
    num_cells: int = NUM_CELLS

    def __post_init__(self):
        if self.strategy not in strategies.NAMES:
            raise unknown("strategy", self.strategy, strategies.NAMES)
        for name in ("sigma", "learning_rate"):
            checks.real(name, getattr(self, name), positive=True)
        for name in ("iso_sigma", "line_sigma"):
            checks.real(name, getattr(self, name))
            if self.architecture.recipe == 3 and getattr(self, name) != (default := getattr(type(self), name)):
                raise InvalidInput(
                    f"{name} is for rules that do not lead variation; those of recipe 3 have steps of their own. Leave "
                    f"it at {default}, got {getattr(self, name)}."
                )
        for name in ("population_size", "batch_size", "chunk_size"):
            checks.whole(name, getattr(self, name), 2 if name == "population_size" else 1)
        checks.size("num_cells", self.num_cells)
        checks.seed(self.seed)
        if self.seed == VALIDATION_SEED and self.init in TEACHERS:
            raise InvalidInput(
                f"seed {self.seed} is the seed of the validation tasks: an imitation (of {self.init!r}) would draw its "
                f"populations from their keys. Give another seed."
            )
        if len(self.tasks) == 1 and isinstance(only := self.tasks[0].family, Distribution):
            object.__setattr__(self, "distribution", only)  # the same run, however it was asked for
            object.__setattr__(self, "tasks", ())
        object.__setattr__(self, "architecture", self._fitting_architecture())
        imitation = dataclasses.replace(
            self.imitation,
            population_size=self.population_size,
            batch_size=self.batch_size,
            functions=self.distribution.functions,
            tasks=tuple((part.family, part.share) for part in self.parts),
            iso_sigma=self.iso_sigma,
            line_sigma=self.line_sigma,
        )
        object.__setattr__(self, "imitation", imitation)
        self.divided("validation_tasks", self.validation.num_tasks)
        for stage in self.stages:
            self.divided("num_tasks", stage.num_tasks)
            if self.strategy == "open-es" and stage.meta_population_size % 2:
                raise InvalidInput(
                    f"meta_population_size must be even for open-es (it samples in mirrored pairs), "
                    f"got {stage.meta_population_size}."
                )
            check_division(stage.meta_population_size, self.chunk_size, 1)

    def _fitting_architecture(self) -> Architecture:
        """For the descriptors of the tasks. Recipe 2 takes any number of them, and weights say just one."""
        for stage in self.stages:
            for shape in stage.shapes:
                if shape.descriptor_dim is not None and not any(map(mixture.can_be_reshaped, self.families)):
                    raise InvalidInput(
                        f"shapes: descriptor_dim={shape.descriptor_dim}, but the number of descriptors of "
                        f"{', '.join(family.name for family in self.families)} is fixed."
                    )
        shapes = (Shape(), *(shape for stage in self.stages for shape in stage.shapes))
        dims = {mixture.reshaped(family, shape).descriptor_dim for family in self.families for shape in shapes}
        dims |= {entry.family.descriptor_dim for entry in self.validation.on}
        if self.architecture.recipe == 1 and len(dims) > 1:
            raise InvalidInput(
                f"recipe 1 is tied to one number of descriptors, and these tasks have "
                f"{', '.join(map(str, sorted(dims)))}: give recipe=2 (--recipe 2), or tasks with the same number."
            )
        if self.tasks and self.architecture.recipe in OF_DISTANCES:
            return self.architecture
        return dataclasses.replace(self.architecture, descriptor_dim=self.families[0].descriptor_dim)

    @property
    def parts(self) -> tuple[Part, ...]:
        """All families that the run is trained on, with their shares."""
        return self.tasks or (Part(self.distribution),)

    @property
    def families(self) -> tuple[Family, ...]:
        return tuple(part.family for part in self.parts)

    def divided(self, argument: str, num_tasks: int) -> tuple[int, ...]:
        """How many tasks each family gets."""
        if self.tasks:
            return mixture.divided(argument, num_tasks, self.tasks)
        return (self.distribution.check_num_tasks(argument, num_tasks),)

    def at(self, shape: Shape) -> "Config":
        """The run with the sizes of a shape."""
        return self if shape == Shape() else _at(self, shape.population_size, shape.batch_size)

    @property
    def num_meta_generations(self) -> int:
        return sum(stage.num_meta_generations for stage in self.stages)

    @property
    def num_rounds(self) -> int:
        """Rounds of imitation before the evolution begins."""
        return self.imitation.num_rounds if self.init in TEACHERS else 0

    @property
    def operator(self) -> IsoLine | Led:
        """The paper's, or the one that a rule of recipe 3 leads."""
        return Led() if self.architecture.recipe == 3 else IsoLine.with_steps(self.iso_sigma, self.line_sigma)

    def check(self) -> None:
        """An error, before anything compiles, if a function or a family of the user's cannot be used."""
        for family in (*self.families, *(entry.family for entry in self.validation.on)):
            if isinstance(family, mixture.NotGiven):
                raise family.missing()
            mixture.check_measurable(family, self.objective.needs_f_opt)
        used = self._used()
        for family, num_tasks, *sizes in used:
            for size in sizes:
                check_at(family, num_tasks, size)
        for population_size, descriptor_dim in {(size, family.descriptor_dim) for family, _, size, _ in used}:
            self.objective.check(population_size, descriptor_dim, self.num_cells)

    def _used(self) -> set[tuple[Family, int, int, int]]:
        """Families, each with a number of tasks, a population and a batch in which the run meets it."""
        validation, run = self.validation, Shape(self.population_size, self.batch_size)
        counts = self.divided("validation_tasks", validation.num_tasks)
        mixes: list[tuple[tuple[Family, ...], tuple[int, ...], Shape]] = [(self.families, counts, run)]
        mixes += [((entry.family,), (entry.num_tasks,), entry.shape) for entry in validation.on]
        if self.num_rounds:
            mixes.append((self.families, tuple(map(self.imitation.num_tasks, self.families)), run))
        for stage in self.stages:
            counts = self.divided("num_tasks", stage.num_tasks)
            for shape in stage.shapes or (run,):
                mixes.append((tuple(mixture.reshaped(family, shape) for family in self.families), counts, shape))
        return {
            (family, num_tasks, shape.population_size or self.population_size, shape.batch_size or self.batch_size)
            for families, counts, shape in mixes
            for family, num_tasks in zip(families, counts, strict=True)
        }

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


@functools.lru_cache(maxsize=64)
def _at(config: Config, population_size: int | None, batch_size: int | None) -> Config:
    sizes: dict[str, Any] = {"population_size": population_size, "batch_size": batch_size}
    return dataclasses.replace(config, **{name: size for name, size in sizes.items() if size is not None})


def to_dict(config: Config) -> dict[str, Any]:
    """A config as plain values for JSON; of a user's function or family, what identifies it.

    Newer fields are left out where they are empty, so files of older runs stay as they were.
    """
    own = config.objective.identity(config.population_size, config.families[0].descriptor_dim, config.num_cells)
    changed = {
        "objective": dataclasses.asdict(dataclasses.replace(config.objective, own=own)),
        "stages": tuple(_without_empty(dataclasses.asdict(stage), "shapes") for stage in config.stages),
        "tasks": mixture.parts_to_dicts(config.tasks),
        "imitation": _imitation_to_dict(config.imitation),
        "num_cells": None if config.num_cells == NUM_CELLS else config.num_cells,
        "validation": _validation_to_dict(config.validation, len(config.families) > 1),
    }
    names = [field.name for field in dataclasses.fields(config) if field.name not in changed]
    content = {name: _plain(getattr(config, name)) for name in names}
    return _without_empty(content | changed, "tasks", "num_cells")


def _imitation_to_dict(imitation: Imitation) -> dict[str, Any]:
    """Its fields, without those that come from the run."""
    plain = dataclasses.asdict(dataclasses.replace(imitation, tasks=()))
    return {name: value for name, value in plain.items() if name not in ("tasks", "iso_sigma", "line_sigma")}


def _validation_to_dict(validation: Validation, has_several: bool) -> dict[str, Any]:
    """What counts of the scores, where there are further entries, or it is not the mean over several families."""
    plain = {field.name: getattr(validation, field.name) for field in dataclasses.fields(validation)}
    counts = validation.on or (has_several and validation.aggregate != "mean")
    plain |= {"on": suite.to_dicts(validation.on), "aggregate": validation.aggregate if counts else ""}
    return _without_empty(plain, "on", "aggregate")


def _plain(part: Any) -> Any:
    return dataclasses.asdict(part) if dataclasses.is_dataclass(part) and not isinstance(part, type) else part


def _without_empty(content: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in content.items() if value or name not in names}


def shortened(config: Config, num_meta_generations: int) -> Config:
    """The first `num_meta_generations` of a run."""
    stages, left = [], num_meta_generations
    for stage in config.stages:
        stages.append(dataclasses.replace(stage, num_meta_generations=min(stage.num_meta_generations, left)))
        left -= stages[-1].num_meta_generations
    return dataclasses.replace(config, stages=tuple(stages))


def from_dict(content: dict[str, Any]) -> Config:
    """The config that `to_dict` took apart, after a passage through JSON."""
    imitation = content["imitation"] | {"functions": content["distribution"]["functions"]}
    tasks = mixture.dicts_to_parts(content.get("tasks", ()))
    validation = content["validation"]
    if "on" in validation:
        validation = validation | {"on": suite.from_dicts(validation["on"])}
    return records.read(Config, content | {"imitation": imitation, "tasks": tasks, "validation": validation})


def differences(old: Config, new: Config, num_done: int) -> list[str]:
    """Fields in which `new` is another run than the one that did `num_done` meta-generations under `old`.

    With more meta-generations or further stages it is the same run, as long as what is already done stays the same.
    """
    first, second = mixture.flat(to_dict(old)), mixture.flat(to_dict(new))
    names = [n for n in sorted(first.keys() | second.keys()) if n not in ("stages", "tasks", "validation.on")]
    found = [f"{n}: {first.get(n)!r} there, {second.get(n)!r} here" for n in names if first.get(n) != second.get(n)]
    if old.tasks or new.tasks:
        found = [line for line in found if not line.startswith(("distribution.", "imitation.functions"))]
        found += mixture.differences("tasks", *(mixture.parts_to_dicts(config.parts) for config in (old, new)))
    found += suite.differences(*(suite.to_dicts(config.validation.on) for config in (old, new)))
    if num_done > new.num_meta_generations:
        found.append(f"num_meta_generations: {num_done} already done there, {new.num_meta_generations} here")
    else:
        for done in range(num_done):
            before, now = old.stage_at(done)[1], new.stage_at(done)[1]
            changed = [n for n in STAGE_FIELDS[1:] if getattr(before, n) != getattr(now, n)]
            if changed:
                found += [
                    f"{n} (meta-generation {done}): {_shown(getattr(before, n))} there, {_shown(getattr(now, n))} here"
                    for n in changed
                ]
                break
    return found


def _shown(value: int | tuple[Shape, ...]) -> str:
    return "; ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)
