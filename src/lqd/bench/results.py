"""The folder that a bench wrote, read again: what figures, verdicts and the report are made from."""

import functools
import pathlib
from typing import Any

import numpy as np

from lqd.bench.runner import HISTORY, MEASURES, OPTIONAL
from lqd.checks import installed
from lqd.errors import InvalidInput, Unreadable
from lqd.io import manifest
from lqd.io.files import read_arrays, understood


class Folder:
    """Results by part and rule, as arrays (seeds, columns); histories as arrays (rows, seeds, columns)."""

    def __init__(self, path: pathlib.Path):
        self.path = pathlib.Path(path)
        installed("pyarrow", "bench", "a file of results (Parquet)")
        self.manifest = manifest.read(self.path / "manifest.json", "a bench (--out)")
        with understood(self.path / "manifest.json"):
            parts = self.manifest["parts"].values()
            named = [
                self.manifest["preset"],
                *self.manifest["suites"],
                *(rule for part in parts for rule in part["rules"]),
            ]
            settings = [part["setting"] for part in parts]
            if not all(isinstance(name, str) for name in named) or not all(isinstance(one, dict) for one in settings):
                raise ValueError("names must be text, settings must have names")

    @property
    def caveat(self) -> str:
        """What every figure says of results that are not of the paper's size; empty if they are."""
        preset = self.manifest["preset"]
        return "" if preset == "paper" else f"{preset.upper()} PRESET, not the paper's size. "

    @property
    def parts(self) -> dict[str, dict[str, Any]]:
        return self.manifest["parts"]

    def part(self, name: str, figure: str) -> dict[str, Any]:
        """What is known of a part; a figure that needs one that was not run says so."""
        if name not in self.parts:
            raise self.missing(figure)
        return self.parts[name]

    def missing(self, suite: str) -> InvalidInput:
        """What to raise where the results of a suite are needed and not there."""
        return InvalidInput(f"{self.path} has no results for {suite!r}: lqd bench --suite {suite} --out {self.path}")

    @functools.cached_property
    def _frames(self):
        import pandas as pd

        try:
            return {name: pd.read_parquet(self.path / f"{name}.parquet") for name in ("results", "history")}
        except Exception as error:  # pyarrow has a dozen ways to say that a file is damaged
            raise Unreadable(f"{self.path}: its Parquet files cannot be read ({error}).") from error

    def columns(self, part: str) -> list[tuple[str, int | None]]:
        """Function and dimension of each column."""
        frame = self._frames["results"]
        first = frame[(frame["part"] == part) & (frame["seed"] == 0)].drop_duplicates(["function", "dim"])
        return [
            (function, None if missing else int(dim))
            for function, dim, missing in zip(first["function"], first["dim"], first["dim"].isna(), strict=True)
        ]

    @functools.cache  # noqa: B019 - as long as the folder is used
    def table(self, part: str, rule: str) -> dict[str, np.ndarray]:
        frame = self._frames["results"]
        rows = frame[(frame["part"] == part) & (frame["rule"] == rule)]
        num = rows["seed"].nunique()
        there = [*MEASURES, *(m for m in OPTIONAL if m in rows and not rows[m].isna().all())]
        return {m: rows[m].to_numpy(np.float64).reshape(-1, num).T for m in there}

    def num_resets(self, part: str) -> int:
        """On how many fresh resets of a simulator what was found was evaluated again; 0: not at all."""
        return int(self.parts[part]["setting"].get("num_resets", 0))

    def best(self, part: str, rule: str) -> np.ndarray:
        """What the best solution of each run is worth (seeds, columns): on fresh resets, where there are resets."""
        return self.table(part, rule)["best_again"] if self.num_resets(part) else self.history(part, rule)["best"][-1]

    @functools.cache  # noqa: B019
    def history(self, part: str, rule: str) -> dict[str, np.ndarray]:
        """`num_evaluations` (rows,) and each measure (rows, seeds, columns)."""
        frame = self._frames["history"]
        rows = frame[(frame["part"] == part) & (frame["rule"] == rule)]
        times, num = rows["num_evaluations"].unique(), rows["seed"].nunique()
        found = {m: rows[m].to_numpy(np.float64).reshape(len(times), num, -1) for m in HISTORY}
        return found | {"num_evaluations": times}

    def landscape(self, rule: str) -> dict[str, np.ndarray]:
        """The frames of a rule's competition landscape."""
        path = self.path / "landscape" / f"{rule}.safetensors"
        if not path.exists():
            raise self.missing("landscape")
        return read_arrays(path, "piece")[0]
