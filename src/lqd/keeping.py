"""A folder that a run is kept in, so that it survives whatever stops it."""

import contextlib
import os
import pathlib
import time
from collections.abc import Callable

from lqd import checks
from lqd.checkpoint import understood
from lqd.errors import InvalidInput
from lqd.locking import locked
from lqd.settings import Settings
from lqd.statefile import Saved

SHARE = 0.05  # of the time may go into writing
LEAST_S = 1.0


class Keeper:
    """Writes `FOLDER/state.safetensors` from time to time, and reads it when the run is to go on."""

    def __init__(self, folder, resume: bool):
        if not isinstance(folder, str | os.PathLike):
            raise InvalidInput(f"checkpoint must be a folder, got {folder!r}.")
        self.folder, self.resume = pathlib.Path(folder), checks.flag("resume", resume)
        self.path = self.folder / "state.safetensors"
        self._next = 0.0

    @contextlib.contextmanager
    def lock(self):
        """The folder is this process's alone."""
        with locked(self.folder, "checkpoint"):
            yield self

    def saved(self, settings: Settings, backend: str, num_evaluations: int) -> Saved | None:
        """What to go on from: None at the beginning; an error where that cannot be meant."""
        if not self.path.exists():
            return None
        if not self.resume:
            raise InvalidInput(
                f"checkpoint {self.folder} holds a run already: give resume=True to go on with it, or another folder."
            )
        saved = Saved(self.path)
        with understood(self.path):
            saved.check(settings, backend)
            num = checks.whole("num_told", saved.description["num_told"], 0)
        if num > num_evaluations:
            raise InvalidInput(
                f"checkpoint {self.folder} holds {num} evaluations, num_evaluations is {num_evaluations}: give at "
                f"least as many, or another folder."
            )
        return saved

    def keep(self, save: Callable[[pathlib.Path], object], now: bool = False) -> None:
        """Saves, unless it did so a short while ago."""
        begun = time.perf_counter()
        if begun < self._next and not now:
            return
        save(self.path)
        took = time.perf_counter() - begun
        self._next = begun + max(LEAST_S, took / SHARE)
