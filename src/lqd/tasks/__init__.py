"""Benchmark tasks by name: `lqd.tasks.make("arm")`, `lqd.tasks.make("bbob/rastrigin", dim=16)`."""

import inspect

from lqd.errors import InvalidInput, unknown
from lqd.tasks import bbob
from lqd.tasks.arm import Arm
from lqd.tasks.bbob import instances, ood
from lqd.tasks.bbob.instances import Landscape, LandscapeBatch, sample_batch
from lqd.tasks.brax import ROBOTS, RobotTask
from lqd.tasks.task import Repeated, Task, TaskBatch

__all__ = [
    "Arm",
    "ROBOTS",
    "Landscape",
    "LandscapeBatch",
    "Repeated",
    "RobotTask",
    "Task",
    "TaskBatch",
    "bbob",
    "make",
    "names",
    "sample_batch",
    "summary",
    "title",
]

_LANDSCAPES = {f"bbob/{name}": name for name in bbob.NAMES} | {f"ood/{name}": name for name in ood.NAMES}


def names() -> list[str]:
    """The names of all tasks."""
    return ["arm", *(f"brax/{robot}" for robot in ROBOTS), *_LANDSCAPES]


def summary(name: str) -> str:
    """A task in one line."""
    if name == "arm":
        return "8-joint planar arm: reach everywhere with joints as equal as possible"
    if name.startswith("brax/"):
        return ROBOTS[name.removeprefix("brax/")].summary
    function = _LANDSCAPES[name]
    number = f"f{bbob.index(function)}, " if function in bbob.NAMES else ""
    group = "out of distribution" if function in instances.OOD else "training set"
    return f"{number}{group}; descriptor: random projection"


_TITLES = {
    "arm": "Arm",
    "bueche_rastrigin": "Büche-Rastrigin",
    "schaffers_f7": "Schaffers F7",
    "schaffers_f7_ill_conditioned": "Schaffers F7, ill-conditioned",
    "griewank_rosenbrock": "Griewank-Rosenbrock",
    "dixon_price": "Dixon-Price",
    "levy": "Lévy",
}


def title(name: str) -> str:
    """A task's name in figures and tables, with or without what stands before its slash; others stay as they are."""
    short = name.rpartition("/")[2]
    if short in ROBOTS:
        return ROBOTS[short].title
    known = short in _TITLES or short in _LANDSCAPES.values()
    return _TITLES.get(short, short.replace("_", " ").capitalize()) if known else name


def make(name: str, **settings) -> Task:
    """A task by name; `bbob/f3` and `bbob/3` stand for `bbob/rastrigin`.

    `arm` takes `num_joints`; robots (`brax/...`) take `episode_length`, `backend` and `chunk_size`; functions take
    `dim` (16), `seed`, `descriptor_dim`, `noise` and `rotate`. The seed says which instance; it shares no random
    numbers with a search of the same seed.
    """
    if name == "arm":
        return _call(Arm, name, settings)
    if isinstance(name, str) and name.removeprefix("brax/") in ROBOTS and name.startswith("brax/"):
        return _call(RobotTask, name, settings, name.removeprefix("brax/"))
    if isinstance(name, str) and name.startswith("bbob/") and name not in _LANDSCAPES:
        try:
            name = f"bbob/{bbob.NAMES[bbob.index(name.removeprefix('bbob/')) - 1]}"
        except InvalidInput:
            raise unknown("task", name, names()) from None
    if name not in _LANDSCAPES:
        raise unknown("task", name, names())
    return _call(instances.make, name, {"dim": 16} | settings, _LANDSCAPES[name])


def _call(function, name: str, settings: dict, *args):
    accepted = [p for p in inspect.signature(function).parameters if p not in ("function", "robot")]
    for setting in settings:
        if setting not in accepted:
            raise InvalidInput(f"task {name!r} has no setting {setting!r}; it takes {', '.join(accepted)}.")
    return function(*args, **settings)
