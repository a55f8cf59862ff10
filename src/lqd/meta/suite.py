"""What a rule is validated on besides held-out tasks of its training: other families, dimensions, horizons, sizes."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from lqd import checks
from lqd.errors import InvalidInput, shown, unknown
from lqd.meta import families, mixture
from lqd.meta.mixture import Shape

TRAINING = "train"  # the entry that every run has
NUM_TASKS = 64
NUMBERS = ("num_tasks", "num_generations", "population_size", "batch_size")


@dataclasses.dataclass(frozen=True)
class Entry:
    """So many held-out tasks of a family, under a name; sizes that are not given are the run's."""

    name: str
    family: Any
    num_tasks: Any = None  # the least multiple that is no less than NUM_TASKS
    num_generations: int = 256
    population_size: int | None = None
    batch_size: int | None = None

    def __post_init__(self):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", self.name) or self.name == TRAINING:
            raise InvalidInput(
                f"validation_on: a name must be letters, digits, '-', '_' and '.', and not {TRAINING!r}, got "
                f"{shown(self.name)}."
            )
        multiple = self.family.multiple
        if self.num_tasks is None:
            object.__setattr__(self, "num_tasks", -(-NUM_TASKS // multiple) * multiple)
        if checks.whole(f"validation_on {self.name}: num_tasks", self.num_tasks, 1) % multiple:
            raise InvalidInput(
                f"validation_on {self.name}: num_tasks must be a multiple of {multiple} for family "
                f"{self.family.name!r}, got {self.num_tasks}."
            )
        checks.whole(f"validation_on {self.name}: num_generations", self.num_generations, 1)
        Shape(self.population_size, self.batch_size)

    @property
    def shape(self) -> Shape:
        return Shape(self.population_size, self.batch_size)


def parts_of_training(names: Sequence[str]) -> tuple[str, ...]:
    """What the families of a run are called beside the entries, where there are several; no entry has a colon."""
    return tuple(f"{TRAINING}:{' '.join(name.split())}" for name in names) if len(names) > 1 else ()


def entries(given: Any) -> tuple[Entry, ...]:
    """From entries, dictionaries, or words: `"name=long tasks=arm-large num_generations=1000 num_tasks=32"`."""
    given = [given] if isinstance(given, str | Entry | Mapping) else given
    if not isinstance(given, Sequence):
        raise InvalidInput(f"validation_on must be a list of entries, got {shown(given)}.")
    found = tuple(_entry(one) for one in given)
    names = [entry.name for entry in found]
    if len(set(names)) < len(names):
        raise InvalidInput(f"validation_on must have each name once, got {', '.join(names)}; give name=... as well.")
    return found


def _entry(given: Any) -> Entry:
    if isinstance(given, Entry):
        return given
    known = ("name", "tasks", *NUMBERS)
    named = mixture.words("validation_on", given, known) if isinstance(given, str) else given
    if not isinstance(named, Mapping) or "tasks" not in named:
        raise InvalidInput(f"validation_on must say tasks=..., a family; got {shown(given)}.")
    for name in named:
        if name not in known:
            raise unknown("word of validation_on", name, known)
    mix = families.load(named["tasks"])
    if len(mix) > 1:
        raise InvalidInput(f"validation_on: an entry has one family, got {', '.join(f.name for f, _ in mix)}.")
    numbers: dict[str, Any] = {
        name: mixture.number(f"validation_on: {name}", value) if isinstance(value, str) else value
        for name, value in named.items()
        if name in NUMBERS
    }
    return Entry(str(named.get("name", mix[0][0].name)), mix[0][0], **numbers)


# --- to a file and back ---


def to_dicts(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    numbers = [{name: getattr(entry, name) for name in ("name", *NUMBERS)} for entry in entries]
    found = zip(entries, numbers, strict=True)
    return [about | {"family": mixture.family_to_dict(entry.family)} for entry, about in found]


def from_dicts(content: Any) -> tuple[dict[str, Any], ...]:
    """With the families themselves; the rest is for `records` to read."""
    if not isinstance(content, list | tuple) or not all(isinstance(entry, dict) for entry in content):
        raise ValueError("the entries of a validation must be a list")
    return tuple(entry | {"family": mixture.family_from_dict(entry.get("family"))} for entry in content)


def differences(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> list[str]:
    def shown(entries):
        return ", ".join(entry["name"] for entry in entries) or "none"

    if shown(old) != shown(new):
        return [f"validation_on: {shown(old)} there, {shown(new)} here"]
    found = []
    for before, now in zip(old, new, strict=True):
        first, second = mixture.flat(before), mixture.flat(now)
        found += [
            f"validation_on {before['name']}: {name} {first.get(name)!r} there, {second.get(name)!r} here"
            for name in sorted(first.keys() | second.keys())
            if first.get(name) != second.get(name)
        ]
    return found
