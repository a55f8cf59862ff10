"""Configs by name, and how flags and keywords change one."""

import dataclasses
from typing import Any

from lqd.errors import InvalidInput, unknown
from lqd.meta import families, mixture
from lqd.meta.config import STAGE_FIELDS, STAGE_NUMBERS, Config, Stage, Validation
from lqd.meta.imitation.settings import CPU
from lqd.meta.objective import OWN, Objective
from lqd.rules.learned.network import Architecture

SMALL = Stage(num_meta_generations=512, meta_population_size=64, num_tasks=66)
REFERENCE = Stage(num_meta_generations=1024, meta_population_size=128, num_tasks=132)
PAPER = Stage(num_meta_generations=16384, meta_population_size=256, num_tasks=264)

PRESETS: dict[str, Config] = {
    "smoke": Config(
        stages=(Stage(num_meta_generations=40, meta_population_size=16, num_tasks=22, num_generations=32),),
        strategy="snes",
        population_size=32,
        batch_size=16,
        chunk_size=8,
        architecture=Architecture(num_layers=2),
        imitation=CPU,
        validation=Validation(every=10, num_tasks=176, num_generations=32),
    ),
    "small": Config(stages=(SMALL,), chunk_size=64),
    "reference": Config(stages=(REFERENCE,), chunk_size=128),
    "paper": Config(
        stages=(PAPER,),
        objective=Objective(normalisation="z-score"),
        validation=Validation(every=64),
    ),
}


def preset(name: str) -> Config:
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return PRESETS[name]


def imitation_preset(name: str) -> Config:
    """The preset without any evolution. The smallest is smaller where evolution is, and otherwise the real thing."""
    if name == "smoke":
        return Config(stages=(), imitation=CPU, validation=Validation(num_tasks=44))
    return dataclasses.replace(preset(name), stages=())


# Where a flag's value goes: the field of `Config`, or of one of its parts.
_PARTS: dict[str, tuple[str, str]] = {
    "qd_form": ("objective", "qd_form"),
    "fitness_weight": ("objective", "fitness_weight"),
    "normalisation": ("objective", "normalisation"),
    "aggregation": ("objective", "aggregation"),
    "num_layers": ("architecture", "num_layers"),
    "num_features": ("architecture", "num_features"),
    "num_heads": ("architecture", "num_heads"),
    "num_hidden": ("architecture", "num_hidden"),
    "recipe": ("architecture", "recipe"),
    "functions": ("distribution", "functions"),
    "min_dim": ("distribution", "min_dim"),
    "max_dim": ("distribution", "max_dim"),
    "descriptor_dim": ("distribution", "descriptor_dim"),
    "noise": ("distribution", "noise"),
    "rotate": ("distribution", "rotate"),
    "validation_every": ("validation", "every"),
    "validation_tasks": ("validation", "num_tasks"),
    "validation_generations": ("validation", "num_generations"),
    "validation_on": ("validation", "on"),
    "validation_aggregate": ("validation", "aggregate"),
    "synthetic_rounds": ("imitation", "num_synthetic_rounds"),
    "own_rounds": ("imitation", "num_own_rounds"),
    "steps_per_round": ("imitation", "steps_per_round"),
    "imitation_batch": ("imitation", "num_populations"),
    "imitation_rate": ("imitation", "learning_rate"),
}
_OWN = (
    "strategy", "sigma", "learning_rate", "seed", "init", "population_size", "batch_size", "iso_sigma", "line_sigma",
    "chunk_size", "num_cells",
)  # fmt: skip
SETTINGS = ("objective", "tasks", *_PARTS, *STAGE_FIELDS, *_OWN)


def override(config: Config, settings: dict[str, Any]) -> Config:
    """A config with some settings replaced; those of a stage replace the last stage's."""
    parts: dict[str, dict[str, Any]] = {}
    changes: dict[str, Any] = {}
    stage: dict[str, Any] = {}
    for name, value in settings.items():
        if name == "objective":
            value = families.imported("objective", value) if isinstance(value, str) and ":" in value else value
            own = value if callable(value) else None
            parts.setdefault("objective", {}).update(name=OWN if own else value, own=own)
        elif name == "tasks":
            changes["tasks"] = mixture.parts(value)
        elif name in _PARTS:
            part, field = _PARTS[name]
            parts.setdefault(part, {})[field] = value
        elif name in STAGE_FIELDS:
            stage[name] = value
        elif name in _OWN:
            changes[name] = value
        else:
            raise unknown("setting", name, SETTINGS)
    if stage:
        if not config.stages:
            raise InvalidInput(f"{next(iter(stage))} belongs to a stage, and this run has none: give add_stage.")
        if "shapes" in stage:
            stage["shapes"] = mixture.shapes(stage["shapes"])
        changes["stages"] = (*config.stages[:-1], dataclasses.replace(config.stages[-1], **stage))
    for part, given in parts.items():
        changes[part] = dataclasses.replace(getattr(config, part), **given)
    if (ours := parts.get("distribution")) and (changes.get("tasks") or config.tasks):
        named = ", ".join(part.family.name for part in changes.get("tasks") or config.tasks)
        raise InvalidInput(
            f"{next(iter(ours))} must be given to the family: it is a setting of the BBOB tasks that a run has where "
            f"none are given, and this one has {named}."
        )
    return dataclasses.replace(config, **changes)


def value_of(name: str, config: Config) -> Any:
    """The value that a config has for a setting; None for one that it does not have."""
    if name == "objective":
        return config.objective.name
    if name in _PARTS:
        part, field = _PARTS[name]
        return getattr(getattr(config, part), field)
    if name in STAGE_FIELDS:
        return getattr(config.stages[-1], name) if config.stages else None
    return getattr(config, name) if name in ("tasks", *_OWN) else None


def begin_with(config: Config, init: str, sha256: str, architecture: Architecture) -> Config:
    """The same run from given weights, with their architecture. Those of recipe 2 may begin a run of recipe 3."""
    if (config.architecture.recipe, architecture.recipe) == (3, 2):
        architecture = dataclasses.replace(architecture, recipe=3)
    distribution = dataclasses.replace(config.distribution, descriptor_dim=architecture.descriptor_dim)
    return dataclasses.replace(
        config, init=init, init_sha256=sha256, architecture=architecture, distribution=distribution
    )


def add_stage(config: Config, text: str) -> Config:
    """One more stage, from `name=value` words; what is not named is as in the stage before."""
    base = config.stages[-1] if config.stages else SMALL
    given: dict[str, Any] = {}
    for word in text.replace(",", " ").split():
        name, _, value = word.partition("=")
        name = name.replace("-", "_")
        if name not in STAGE_NUMBERS:
            raise unknown("field of a stage", name, STAGE_NUMBERS)
        try:
            given[name] = int(value.replace("_", ""))
        except ValueError:
            raise InvalidInput(f"add_stage: {name} must be a whole number, got {value!r}.") from None
    if "num_meta_generations" not in given:
        raise InvalidInput(f"add_stage must say num_meta_generations=..., got {text!r}.")
    return dataclasses.replace(config, stages=(*config.stages, dataclasses.replace(base, **given)))
