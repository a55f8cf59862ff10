"""The folder of a training run: its states, the lock that keeps a second process out, and finding the last good state.

A state is one verified file (`lqd.io.files`), written whole or not at all, named by how far the run had come. The
last three are kept; a damaged one is reported by name and the one before is taken.
"""

import contextlib
import pathlib
import warnings
from typing import Any, NamedTuple

import numpy as np

from lqd.errors import Unreadable
from lqd.io.files import read_arrays, write_arrays
from lqd.io.lock import locked
from lqd.meta.config import Config, from_dict, to_dict

NUM_KEPT = 3
KIND = "training"


class Saved(NamedTuple):
    """How far a run has come: rounds of imitation, meta-generations, arrays by name, and plain values beside them."""

    config: Config
    num_rounds: int
    num_meta_generations: int
    arrays: dict[str, np.ndarray]
    notes: dict[str, Any]

    @property
    def counter(self) -> int:
        return self.num_rounds + self.num_meta_generations


class Store:
    """The states in one folder."""

    def __init__(self, folder: pathlib.Path):
        self.folder = pathlib.Path(folder)

    def paths(self) -> list[pathlib.Path]:
        """State files, the newest first."""
        return sorted(self.folder.glob("state-*.safetensors"), reverse=True)

    def save(self, saved: Saved) -> pathlib.Path:
        """Writes a state, then drops those that are no longer needed."""
        description = {
            "config": to_dict(saved.config),
            "num_rounds": saved.num_rounds,
            "num_meta_generations": saved.num_meta_generations,
            "notes": saved.notes,
        }
        path = self.folder / f"state-{saved.counter:08d}.safetensors"
        write_arrays(path, KIND, saved.arrays, description)
        for old in self.paths()[NUM_KEPT:]:
            old.unlink(missing_ok=True)
        return path

    def load(self) -> Saved | None:
        """The newest whole state, with a warning for each damaged one passed over; None in a folder without states."""
        damaged: list[str] = []
        for path in self.paths():
            try:
                saved = read(path)
            except Unreadable as error:
                damaged.append(str(error))
                continue
            if damaged:
                warnings.warn(f"{' '.join(damaged)} Continuing from the last good state, {path}.", stacklevel=2)
            return saved
        if damaged:
            raise Unreadable(f"no state in {self.folder} can be read: {' '.join(damaged)}")
        return None

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Keeps a second process out."""
        return locked(self.folder, "--out")


def read(path: pathlib.Path) -> Saved:
    """One state file."""
    arrays, description = read_arrays(path, KIND)
    try:
        config = from_dict(description["config"])
        numbers = (int(description["num_rounds"]), int(description["num_meta_generations"]))
        return Saved(config, *numbers, arrays, description["notes"])
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"{path}: its description cannot be read ({error!r}).") from error
