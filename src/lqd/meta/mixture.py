"""Several families of tasks with their shares, and the shapes that inner runs take.

A meta-generation has tasks of every family: their number is divided by the shares. Its shape (population, batch,
number of descriptors) and horizon are drawn from a list. All of this depends on the settings, the run's seed and the
meta-generation's number alone, and is known before anything is traced: each family and shape is one program.
"""

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from lqd import checks
from lqd.errors import InvalidInput, shown, unknown
from lqd.meta import families
from lqd.meta import family as family_module
from lqd.meta.family import Family
from lqd.meta.own_family import TaskFamily

DRAWING = 3  # the stream of numbers that decide on shapes
LARGEST_SHARE = 1e6
SIZES = ("descriptor_dim", "multiple")  # of a family, kept beside its identity


@dataclasses.dataclass(frozen=True)
class Part:
    """A family, and its share of the tasks."""

    family: Any
    share: float = 1.0

    def __post_init__(self):
        if checks.real("a family's share", self.share, positive=True) > LARGEST_SHARE:
            raise InvalidInput(f"a family's share must be at most {LARGEST_SHARE:,.0f}, got {self.share}.")


@dataclasses.dataclass(frozen=True)
class NotGiven:
    """A family of which only the identity was saved, as JSON: the user's own, or one of another version."""

    text: str

    @property
    def identity(self) -> dict[str, Any]:
        return json.loads(self.text)

    @property
    def name(self) -> str:
        return str(self.identity["name"])

    @property
    def version(self) -> int:
        return int(self.identity["version"])

    @property
    def descriptor_dim(self) -> int:
        return int(self.identity["descriptor_dim"])

    @property
    def multiple(self) -> int:
        return int(self.identity["multiple"])

    def sample(self, key, num_tasks: int):
        raise self.missing()

    def missing(self) -> InvalidInput:
        """Why it is not there."""
        try:
            families.restored(_alone(self.identity))
        except InvalidInput as error:
            return error
        return InvalidInput(f"tasks: family {self.name!r} was not read.")


@dataclasses.dataclass(frozen=True)
class Shape:
    """What is not given is the run's, or the stage's; a horizon is drawn from `num_generations`."""

    population_size: int | None = None
    batch_size: int | None = None
    num_generations: tuple[int, ...] = ()
    descriptor_dim: int | None = None

    def __post_init__(self):
        for name, least in (("population_size", 2), ("batch_size", 1), ("descriptor_dim", 1)):
            if (value := getattr(self, name)) is not None:
                checks.whole(f"shapes: {name}", value, least)
        horizons = self.num_generations
        horizons = tuple(horizons) if isinstance(horizons, list | tuple) else (horizons,)
        for horizon in horizons:
            checks.whole("shapes: num_generations", horizon, 1)
        object.__setattr__(self, "num_generations", horizons)
        if self.descriptor_dim is not None and self.descriptor_dim > 8:
            raise InvalidInput(f"shapes: descriptor_dim must be at most 8, got {self.descriptor_dim}.")

    def __str__(self) -> str:
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        given["num_generations"] = ",".join(map(str, self.num_generations)) or None
        return " ".join(f"{name}={value}" for name, value in given.items() if value is not None)


SHAPE_FIELDS = tuple(field.name for field in dataclasses.fields(Shape))


# --- What the user gives ---


def parts(given: Any) -> tuple[Part, ...]:
    """From a family, its name, or a list of them, each alone or with its share: `[("bbob", 2), mine]`."""
    return tuple(Part(family, float(share)) for family, share in families.load(given))


def shapes(given: Any) -> tuple[Shape, ...]:
    """From shapes, dictionaries, or words: `"population_size=64 batch_size=16 num_generations=64,256"`."""
    given = [given] if isinstance(given, str | Shape | Mapping) else given
    if not isinstance(given, Sequence):
        raise InvalidInput(f"shapes must be a list of shapes, got {shown(given)}.")
    found = tuple(_shape(one) for one in given)
    if len(set(found)) < len(found):
        raise InvalidInput(f"shapes must be different from each other, got {'; '.join(map(str, found))}.")
    return found


def _shape(given: Any) -> Shape:
    if isinstance(given, Shape):
        return given
    named = words("shapes", given, SHAPE_FIELDS) if isinstance(given, str) else given
    if not isinstance(named, Mapping) or not named:
        raise InvalidInput(f"a shape says at least one of {', '.join(SHAPE_FIELDS)}, got {shown(given)}.")
    for name in named:
        if name not in SHAPE_FIELDS:
            raise unknown("field of a shape", name, SHAPE_FIELDS)
    if not isinstance(given, str):
        return Shape(**named)
    values = {name: tuple(number(f"shapes: {name}", one) for one in value.split(",")) for name, value in named.items()}
    for name, several in values.items():
        if name != "num_generations" and len(several) > 1:
            raise InvalidInput(f"shapes: {name} must be one number, got {named[name]!r}; give several shapes.")
    settled: dict[str, Any] = {name: v if name == "num_generations" else v[0] for name, v in values.items()}
    return Shape(**settled)


def words(argument: str, text: str, names: Sequence[str]) -> dict[str, str]:
    """`name=value` words."""
    found = {}
    for word in text.split():
        name, _, value = word.partition("=")
        name = name.replace("-", "_")
        if name not in names:
            raise unknown(f"word of {argument}", name, names)
        if name in found:
            raise InvalidInput(f"{argument}: {name} is given twice in {text!r}.")
        found[name] = value
    return found


def number(name: str, value: str) -> int:
    try:
        return int(value.replace("_", ""))
    except ValueError:
        raise InvalidInput(f"{name} must be a whole number, got {value!r}.") from None


def check_measurable(family: Family, needs_f_opt: bool) -> None:
    """An error if its tasks do not say what they are measured by."""
    found: dict[str, Any] = {}

    def look(key):
        tasks = family.sample(key, family.multiple)
        found.update(bounds=tasks.bounds, f_opt=tasks.f_opt)

    jax.eval_shape(look, jax.random.key(0))
    if found["bounds"] is None:
        raise InvalidInput(
            f"family {family.name!r}: its tasks have no bounds, and a rule is compared to random search."
        )
    if needs_f_opt and found["f_opt"] is None:
        raise InvalidInput(
            f"family {family.name!r}: its tasks do not say their best fitness (f_opt), and the objective needs it."
        )


# --- What happens in a meta-generation ---


def divided(argument: str, num_tasks: int, parts: Sequence[Part]) -> tuple[int, ...]:
    """How many of the tasks are of each family."""
    return _divided(argument, num_tasks, tuple((part.family, part.share) for part in parts))


@functools.lru_cache(maxsize=64)
def _divided(argument: str, num_tasks: int, mix: tuple[tuple[Family, float], ...]) -> tuple[int, ...]:
    return family_module.divided(mix, num_tasks, argument)


def drawn(shapes: Sequence[Shape], horizon: int, seed: int, meta_generation: int) -> tuple[Shape, int]:
    """The shape and the horizon of a meta-generation.

    By numbers that NumPy promises never to change for a seed; uniform, but for a bias of 2**-32.
    """
    if not shapes:
        return Shape(), horizon
    first, second = np.random.SeedSequence([seed, DRAWING, meta_generation]).generate_state(2)
    shape = shapes[int(first) % len(shapes)]
    horizons = shape.num_generations or (horizon,)
    return shape, horizons[int(second) % len(horizons)]


def reshaped(family: Family, shape: Shape) -> Family:
    """The family with as many descriptors as the shape says, if it is one that can have any number of them."""
    return family if shape.descriptor_dim is None else _with_descriptors(family, shape.descriptor_dim)


def _with_descriptors(family: Any, descriptor_dim: int) -> Family:
    if not can_be_reshaped(family):
        return family
    if not _has_setting(family, "descriptor_dim"):
        return dataclasses.replace(family, family=_with_descriptors(family.family, descriptor_dim))
    return dataclasses.replace(family, descriptor_dim=descriptor_dim)


def can_be_reshaped(family: Any) -> bool:
    """Whether the number of descriptors is one of its settings, or of those of the family that it is made of."""
    if not type(family).__module__.startswith("lqd.meta.") or isinstance(family, NotGiven):
        return False
    if _has_setting(family, "descriptor_dim"):
        return not isinstance(family, TaskFamily)
    return _has_setting(family, "family") and can_be_reshaped(family.family)


def _has_setting(family: Any, name: str) -> bool:
    return dataclasses.is_dataclass(family) and any(f.name == name and f.init for f in dataclasses.fields(family))


# --- To a file and back ---


def family_to_dict(family: Family) -> dict[str, Any]:
    """What identifies a family, as plain values."""
    if isinstance(family, NotGiven):
        return family.identity
    sizes = {name: getattr(family, name) for name in SIZES}
    return json.loads(json.dumps(family_module.identity(family))) | sizes


def family_from_dict(content: Any) -> Family:
    """The family in the box with this identity; of any other, what is known of it."""
    try:
        return families.restored(_alone(content))
    except InvalidInput:
        pass
    try:
        for name in ("version", "descriptor_dim", "multiple"):
            checks.whole(name, content[name], 1)
        if not isinstance(content["name"], str):
            raise ValueError("a family's name must be text")
    except (KeyError, TypeError) as error:
        raise ValueError(f"a family cannot be read ({error!r})") from error
    return NotGiven(json.dumps(content, sort_keys=True))


def _alone(content: Any) -> Any:
    """An identity as `lqd.meta.family` makes it."""
    if not isinstance(content, dict):
        return content
    return {name: value for name, value in content.items() if name not in SIZES}


def parts_to_dicts(parts: Sequence[Part]) -> list[dict[str, Any]]:
    return [{"family": family_to_dict(part.family), "share": part.share} for part in parts]


def dicts_to_parts(content: Any) -> tuple[dict[str, Any], ...]:
    """With the families themselves; the rest is for `records` to read."""
    if not isinstance(content, list | tuple) or not all(isinstance(part, dict) for part in content):
        raise ValueError("tasks must be a list of families and shares")
    return tuple(part | {"family": family_from_dict(part.get("family"))} for part in content)


def differences(argument: str, old: Sequence[Mapping], new: Sequence[Mapping]) -> list[str]:
    """How the families of another run differ, each given as `{"family": ..., "share": ...}`."""

    def shown(parts):
        return ", ".join(f"{part['family']['name']} (share {part.get('share', 1):g})" for part in parts)

    if shown(old) != shown(new):
        return [f"{argument}: {shown(old)} there, {shown(new)} here"]
    found = []
    for before, now in zip(old, new, strict=True):
        first, second = (flat(part["family"]) for part in (before, now))
        found += [
            f"{argument}: {before['family']['name']}'s {name} {first.get(name)!r} there, {second.get(name)!r} here"
            for name in sorted(first.keys() | second.keys())
            if first.get(name) != second.get(name)
        ]
    return found


def flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Names with dots for what is nested."""
    found: dict[str, Any] = {}
    for name, value in content.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found
