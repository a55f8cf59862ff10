"""What a search continues from: one file with settings, rule, state and history, and the folder that contains it."""

import contextlib
import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lqd import checks
from lqd.errors import InvalidInput, Unreadable, shown
from lqd.evolution import memory
from lqd.evolution.driver import Rows
from lqd.evolution.loop import State, measure
from lqd.evolution.variation import first_traits
from lqd.io import files
from lqd.io.files import PathLike, understood
from lqd.io.lock import locked
from lqd.io.throttle import Throttle
from lqd.rules import catalogue
from lqd.search import same_task
from lqd.search.settings import Settings
from lqd.tasks.bbob.instances import Landscape

KIND = "state"
EVERY_S, SHARE = 1.0, 0.05  # in the folder of a run: from one state to the next, and of the time for writing
TRAITS = "population.traits"
STEPS = ("variation", "iso_sigma", "line_sigma")  # may change when a search continues
COLUMNS = ("generation", "num_evaluations", "time_s")


class Saved:
    """The content of a file; `under(prefix)` gives arrays without their prefix."""

    def __init__(self, path: PathLike):
        self.path = path
        self.arrays, self.description = files.read_arrays(path, KIND)

    @property
    def settings(self) -> dict[str, Any]:
        """Those of the search. Before there was another variation, and rules saw units, all was as in the paper."""
        settings = {"variation": "paper", "outside": "edge"} | self.description["settings"]
        if settings["reproduction"] is not None:  # a custom operator does not use our steps, which older files have
            settings |= {"iso_sigma": None, "line_sigma": None}
        return settings

    def under(self, prefix: str) -> dict[str, np.ndarray]:
        return under(prefix, self.arrays)

    def rows(self, state: State, qd_offset) -> Rows | None:
        """The history, with the measures that such a state has; None before the first row."""
        if "rows.generation" not in self.arrays:
            return None
        rows = rows_from(self.arrays)
        expected = jax.eval_shape(lambda state: measure(state, qd_offset), state)
        shapes = {value.shape[:1] for value in (*rows.measures.values(), *rows[:3])}
        is_plain = all(value.ndim == 2 and value.dtype.kind == "f" for value in rows.measures.values())
        if expected.keys() != rows.measures.keys() or len(shapes) > 1 or not is_plain or not len(rows.generation):
            raise Unreadable(f"{self.path}: its history does not fit its settings.")
        return rows

    def state(self, like: State, first: Any = None) -> State:
        """The state, in the shape of another one (of which only the key is used, which follows from the seed).

        Traits and a memory that the search no longer has are left out. If it had none, all individuals get the traits
        `first` (T,), and the memory begins empty.
        """
        arrays = self.under("state.")
        if like.population.traits is None:
            arrays.pop(TRAITS, None)
        elif TRAITS not in arrays and first is not None:
            arrays[TRAITS] = np.broadcast_to(np.asarray(first), like.population.traits.shape)
        if like.memory is None:
            arrays = {name: value for name, value in arrays.items() if not name.startswith("memory.")}
        elif not under("memory.", arrays):
            nothing = dataclasses.replace(like, memory=memory.empty(like.population))
            arrays |= {name: np.asarray(leaf) for name, leaf in leaves(nothing).items() if name.startswith("memory.")}
        return restored(like, arrays, self.path)

    def rule(self) -> Any:
        """The rule; None if it is a user's code."""
        return catalogue.decode(self.description["settings"]["rule"], self.under("rule."))

    def check(self, settings: Settings, backend: str) -> None:
        """An error unless these settings are those of the saved search, apart from its steps."""
        if (before := self.description["backend"]) != backend:
            raise InvalidInput(
                f"checkpoint {self.path} holds a run with backend {before!r}, this one has {backend!r}; give another "
                f"folder."
            )
        arrays, wanted = _of_settings(settings)
        wanted, found = json.loads(json.dumps(wanted)), self.settings
        different = [
            f"{name} ({found.get(name)!r}, now {wanted[name]!r})"
            for name in wanted
            if name not in STEPS and found.get(name) != wanted[name]
        ]
        different = different or _different_rules(self.under("rule."), arrays)
        if different:
            raise InvalidInput(
                f"checkpoint {self.path} holds another run; it differs in {'; '.join(different)}. Give another folder."
            )

    def check_traits(self, settings: Settings) -> None:
        """An error if this variation needs other traits than were kept. One without traits can continue from any, and
        ours from its own fixed steps, which have none."""
        first = first_traits(settings.resolved_variation(), 1, settings.dim)
        arrays = [self.arrays[name] for name in ("state.population.x", "outstanding.x") if name in self.arrays]
        if first is None or not arrays:
            return
        traits = [self.arrays.get(name) for name in ("state.population.traits", "outstanding.traits")]
        if any(one is not None and one.shape[-1:] == first.shape[-1:] for one in traits):
            return
        before, now = self.settings["variation"], settings.info()["variation"]
        if before == now and all(one is None for one in traits):
            return
        raise InvalidInput(
            f"{self.path} was made with variation={before!r}, whose solutions have none of the traits that {now!r} "
            f"continues from: give variation={before!r}, or iso_sigma= and line_sigma=, or start over."
        )

    def check_sizes(self) -> None:
        """An error if the settings claim other sizes than the arrays have, before anything of that size is made."""
        settings = self.description["settings"]
        for part, size in (("population", "population_size"), ("archive.elites", "archive_cells")):
            x = self.arrays.get(f"state.{part}.x")
            if x is not None and x.shape != (1, settings[size], settings["dim"]):
                raise Unreadable(
                    f"{self.path}: its arrays do not fit its settings: {size} is {settings[size]!r:.80} and dim "
                    f"{settings['dim']!r:.80}, but {part} has shape {x.shape[1:]}."
                )

    def check_random(self) -> None:
        """An error if JAX draws other random numbers now: the run would not continue as it would have."""
        before, now = self.description.get("random", generator()), generator()
        if before != now:
            raise InvalidInput(
                f"{self.path} was made with another random number generator of JAX ({before!r}, now {now!r}): set "
                f"jax_default_prng_impl and jax_threefry_partitionable as they were."
            )

    def check_task(self, evaluate: Any) -> None:
        """An error if the task has another name or other settings, as far as the file knows."""
        different = None
        if "task" in self.description:
            different = same_task.difference(self.description["task"], same_task.described(evaluate))
        if different is not None:
            raise InvalidInput(
                f"checkpoint {self.path} holds another run; it differs in {different}. Give another folder."
            )
        if isinstance(evaluate, Landscape):
            self.check_instance(evaluate)

    @property
    def first(self) -> same_task.Answers | None:
        """What the function returned first; None in an older file, which does not have it."""
        with understood(self.path):
            return same_task.from_arrays(self.under("first."), self.description["settings"]["dim"])

    def check_instance(self, task: Landscape) -> None:
        """An error if the saved solutions have other descriptors on this landscape: then they are from another one."""
        if "state.population.x" not in self.arrays:
            return
        x, fitness, kept = (self.arrays[f"state.population.{name}"][0] for name in ("x", "fitness", "descriptor"))
        filled = np.isfinite(fitness)
        found = np.asarray(task.evaluate(jax.random.key(0), jnp.asarray(x)).descriptor)
        if not np.allclose(found[filled], kept[filled], rtol=1e-3, atol=1e-3):
            raise InvalidInput(
                f"checkpoint {self.path} holds a run on another instance of {task.name!r}: another seed of "
                f"lqd.tasks.make, or an earlier lqd, which drew others. Give another folder."
            )


def write(path: PathLike, settings: Settings, state: State | None, rows: Rows | None, arrays, description):
    """A search as one file, with further arrays and values."""
    rule_arrays, described = _of_settings(settings)
    arrays = dict(arrays) | {f"rule.{name}": value for name, value in rule_arrays.items()}
    if state is not None:
        arrays |= {f"state.{name}": np.asarray(leaf) for name, leaf in leaves(state).items()}
    if rows is not None:
        arrays |= arrays_of(rows)
    return files.write_arrays(path, KIND, arrays, dict(description) | {"settings": described, "random": generator()})


def generator() -> str:
    """The generator of JAX's random numbers, in this process."""
    config: Any = jax.config
    name = str(config.jax_default_prng_impl)
    return name if config.jax_threefry_partitionable else f"{name}, not partitionable"


def _different_rules(saved: dict[str, np.ndarray], now: dict[str, np.ndarray]) -> list[str]:
    """The difference in words; fingerprints of custom rules were not always saved."""
    is_own = any(name.startswith(catalogue.OWN) for name in now)
    if is_own and not saved:
        return []
    names = sorted(
        name for name in saved.keys() | now.keys() if not np.array_equal(saved.get(name, ()), now.get(name, ()))
    )
    if not names:
        return []
    values = ", ".join(name.removeprefix(catalogue.OWN) for name in names)
    return [f"rule (other values: {values})" if is_own else "rule (other weights)"]


def under(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays whose names begin with the prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}


def arrays_of(rows: Rows) -> dict[str, np.ndarray]:
    """A history as arrays by name."""
    columns = {f"rows.{name}": getattr(rows, name) for name in COLUMNS}
    return columns | {f"rows.measures.{name}": value for name, value in rows.measures.items()}


def rows_from(arrays: Mapping[str, np.ndarray]) -> Rows:
    """Puts together what `arrays_of` took apart."""
    generation, num_evaluations, time_s = (arrays[f"rows.{name}"] for name in COLUMNS)
    return Rows(generation, num_evaluations, time_s, under("rows.measures.", arrays))


def _of_settings(settings: Settings) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    arrays, rule = catalogue.encode(settings.rule)
    return arrays, settings.info() | {"rule": rule}


def _name(where) -> str:
    return jax.tree_util.keystr(where, simple=True, separator=".")


def leaves(state: State) -> dict[str, Any]:
    """The arrays of a state by dotted name, but for the key, which follows from the seed."""
    named = {_name(where): leaf for where, leaf in jax.tree_util.tree_leaves_with_path(state)}
    return {name: leaf for name, leaf in named.items() if name != "key"}


def restored(like: State, saved: Mapping[str, np.ndarray], path: PathLike) -> State:
    """A state from its `leaves`, in the shape of another one, whose key it takes."""
    expected = leaves(like)
    if expected.keys() != saved.keys() or any(
        (saved[name].shape, saved[name].dtype) != (leaf.shape, leaf.dtype) for name, leaf in expected.items()
    ):
        raise Unreadable(f"{path}: its arrays do not fit its settings.")
    found, structure = jax.tree_util.tree_flatten_with_path(like)
    filled = [like.key if _name(where) == "key" else jnp.asarray(saved[_name(where)]) for where, _ in found]
    return jax.tree.unflatten(structure, filled)


class CheckpointFolder:
    """Writes `FOLDER/state.safetensors` from time to time, and reads it when the run continues."""

    def __init__(self, folder, resume: bool):
        if not isinstance(folder, str | os.PathLike):
            raise InvalidInput(f"checkpoint must be a folder, got {shown(folder)}.")
        self.folder, self.resume = pathlib.Path(folder), checks.flag("resume", resume)
        self.path = self.folder / "state.safetensors"
        self._throttle = Throttle(EVERY_S, SHARE, at_once=True)

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Locks the folder for this process."""
        return locked(self.folder, "checkpoint")

    def sizes(self) -> dict[str, int]:
        """Sizes of the population and of a batch in the run to continue; none for a new run."""
        if not self.resume or not self.path.exists():
            return {}
        with understood(self.path):
            settings = Saved(self.path).settings
            return {name: checks.size(name, settings[name]) for name in ("population_size", "batch_size")}

    def saved(self, settings: Settings, backend: str, num_evaluations: int, evaluate: Any) -> Saved | None:
        """What to continue from, or None for a new run; an error if that cannot be what was meant."""
        if not self.path.exists():
            return None
        if not self.resume:
            raise InvalidInput(
                f"checkpoint {self.folder} already holds a run: give resume=True to continue it, or another folder."
            )
        saved = Saved(self.path)
        with understood(self.path):
            saved.check(settings, backend)
            saved.check_traits(settings)
            saved.check_random()
            saved.check_task(evaluate)
            num = checks.whole("num_told", saved.description["num_told"], 0)
        if num > num_evaluations:
            raise InvalidInput(
                f"checkpoint {self.folder} holds {num} evaluations, num_evaluations is {num_evaluations}: give at "
                f"least as many, or another folder."
            )
        return saved

    def keep(self, save: Callable[[pathlib.Path], object], now: bool = False) -> None:
        """Saves, unless it did so a moment ago."""
        self._throttle(lambda: save(self.path), now)
