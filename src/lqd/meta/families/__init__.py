"""Families of tasks by name, and what users give in their place: `lqd train --tasks bbob=2,arm-small,module:name`."""

import functools
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from lqd import checks
from lqd.errors import InvalidInput, shown, unknown
from lqd.io import records
from lqd.meta import own_family
from lqd.meta.families.altered import Noisy, Sparse
from lqd.meta.families.arms import Arms
from lqd.meta.families.clipped import Clipped
from lqd.meta.families.robots import Robots
from lqd.meta.families.wide import Wide
from lqd.meta.family import Family, check
from lqd.meta.tasks import Distribution

__all__ = ["Arms", "Clipped", "Distribution", "Noisy", "Robots", "Sparse", "Wide", "load", "make", "names", "restored"]

Mix = tuple[tuple[Family, float], ...]

FAMILIES: dict[str, Callable[..., Any]] = {
    "bbob": Distribution,
    "bbob-wide": Wide,
    "arm-small": Arms,
    "arm-large": functools.partial(Arms, 16, 64),
    "clipped": Clipped,
    "noisy": Noisy,
    "sparse": Sparse,
    "robots": Robots,
}
ALTERED: dict[str, Callable[..., Any]] = {"noisy-": Noisy, "sparse-": Sparse}  # before the name of another family


def names() -> list[str]:
    """Every family there is; `noisy-` and `sparse-` may stand before any of them."""
    return list(FAMILIES)


def make(name: str, **settings: Any) -> Family:
    """A family by name. `noisy-arm-small`: that family with noise."""
    for prefix, alter in ALTERED.items():
        if name.startswith(prefix) and name not in FAMILIES:
            return alter(make(name.removeprefix(prefix)), **settings)
    if name not in FAMILIES:
        raise unknown("family of tasks", name, (*FAMILIES, *(f"{prefix}NAME" for prefix in ALTERED)))
    try:
        return FAMILIES[name](**settings)
    except TypeError as error:
        raise InvalidInput(f"family {name!r} has no such settings: {error}.") from error


def load(tasks: Any) -> Mix:
    """What to train on, as `lqd train --tasks` and `lqd.train(tasks=...)` take it: families and their shares.

    A text `bbob=2,arm-small,module:name`; a family; or a list of these, each alone or in a pair with its share.
    """
    mix = tuple(_each(tasks))
    if not mix:
        raise InvalidInput("tasks must have at least one family.")
    for family, share in mix:
        checks.real(f"tasks: the share of {family.name!r}", share, positive=True)
    if len({family.name for family, _ in mix}) < len(mix):
        listed = ", ".join(family.name for family, _ in mix)
        raise InvalidInput(f"tasks must have every name once, for the log tells families by it; got {listed}.")
    for family, _ in mix:
        check(family)
    return mix


def _each(tasks: Any):
    if isinstance(tasks, str):
        for word in filter(None, (word.strip() for word in tasks.split(","))):
            name, _, share = word.partition("=")
            yield _by_text(name.strip()), _share(word, share) if "=" in word else 1.0
    elif isinstance(tasks, list | tuple):
        for item in tasks:
            if isinstance(item, list | tuple) and len(item) == 2 and not isinstance(item[0], list | tuple):
                found = list(_each(item[0]))
                if len(found) != 1 or isinstance(item[1], str):
                    raise InvalidInput(f"tasks: a pair is one family and its share, got {shown(item)}.")
                yield found[0][0], item[1]
            else:
                yield from _each(item)
    else:
        yield own_family.of(tasks), 1.0


def _share(word: str, share: str) -> float:
    try:
        return float(share)
    except ValueError:
        raise InvalidInput(f"tasks: the share in {word!r} must be a number, got {share!r}.") from None


def _by_text(text: str) -> Family:
    return own_family.of(imported("tasks", text)) if ":" in text else make(text)


def imported(argument: str, text: str) -> Any:
    """`module:name`, an attribute of a module, which may lie in the folder that the command is given in."""
    module, _, name = text.partition(":")
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        found = importlib.import_module(module)
    except Exception as error:  # whatever the module does
        reason = f"{type(error).__name__}: {error}"
        raise InvalidInput(f"{argument}: cannot import {module!r} ({reason}); give module:name.") from error
    if not hasattr(found, name):
        raise InvalidInput(f"{argument}: module {module!r} has no {name!r}; give module:name.")
    return getattr(found, name)


def restored(identity: Any) -> Family:
    """The family of an `identity`, read from a file that may be anybody's. A user's own is not in it."""
    kinds: dict[str, type] = {
        "bbob": Distribution,
        "bbob-wide": Wide,
        "clipped": Clipped,
        "arm": Arms,
        "robots": Robots,
    }
    kinds |= {"noisy": Noisy, "sparse": Sparse}
    if not isinstance(identity, dict) or not isinstance(name := identity.get("name"), str):
        raise InvalidInput(f"a family of tasks must have a name, got {shown(identity)}.")
    if "says" in identity:
        raise InvalidInput(
            f"tasks: family {name!r} of this run is your own, and is not saved with it; give it again: "
            f"lqd.train(tasks=..., ...) or --tasks module:name."
        )
    kind = kinds.get(name) or kinds.get(name.partition("-")[0])
    settings = identity.get("settings")
    if kind is None or not isinstance(settings, dict):
        raise InvalidInput(f"a family of tasks by the name {name!r} is not known.")
    given = {key: value if key != "family" else restored(value) for key, value in settings.items()}
    try:
        family: Family = records.read(kind, given)
    except ValueError as error:
        raise InvalidInput(f"family {name!r}: {error}.") from error
    if identity.get("version") != family.version:
        raise InvalidInput(
            f"family {name!r} has version {family.version} here and {shown(identity.get('version'))} there: the same "
            f"keys give other tasks."
        )
    return family
