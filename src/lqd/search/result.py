"""What a run returns: the population, the best solution ever seen and the history, as arrays, table, picture or
file."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from lqd.errors import InvalidInput
from lqd.evolution.driver import Rows
from lqd.evolution.loop import State
from lqd.io import files
from lqd.types import Population

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

COLUMNS = ("max_fitness", "mean_fitness", "best_fitness", "novelty", "dominated_novelty", "num_filled", "num_nan")

OTHERS = (  # no files of ours
    ".json", ".parquet", ".feather", ".xlsx", ".xls", ".npz", ".npy", ".mat", ".pkl", ".pickle", ".txt", ".tsv", ".h5",
    ".hdf5", ".gz", ".zip",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, repr=False)
class Elites:
    """Solutions with everything known about them, in the user's sign; row i of each array is solution i."""

    x: np.ndarray
    fitness: np.ndarray
    descriptor: np.ndarray
    extras: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.fitness)

    def best_first(self, sign: float) -> "Elites":
        """The same solutions, the fittest first."""
        order = np.argsort(-sign * self.fitness, kind="stable")
        extras = {name: value[order] for name, value in self.extras.items()}
        return Elites(self.x[order], self.fitness[order], self.descriptor[order], extras)

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per solution: fitness, descriptor_0.., x_0.., then the extras that are single numbers."""
        import pandas as pd

        columns: dict[str, np.ndarray] = {"fitness": self.fitness}
        columns |= {f"descriptor_{i}": self.descriptor[:, i] for i in range(self.descriptor.shape[1])}
        columns |= {f"x_{i}": self.x[:, i] for i in range(self.x.shape[1])}
        for name, value in self.extras.items():
            if value.ndim == 1:
                columns[f"extras_{name}" if name in columns else name] = value
        return pd.DataFrame(columns)


def elites_of(population: Population, sign: float, extras=None) -> Elites:
    """The filled slots of one population; `extras` replaces those kept with it."""
    keep = np.asarray(population.fitness) > -np.inf
    kept = population.extras if extras is None else extras
    return Elites(
        np.asarray(population.x)[keep],
        sign * np.asarray(population.fitness)[keep],
        np.asarray(population.descriptor)[keep],
        {name: np.asarray(value)[keep] for name, value in kept.items()},
    )


@dataclasses.dataclass(frozen=True, repr=False)
class Result:
    """The outcome of `optimize`. Fitness is in the sign the user gave, also in `history`.

    `x`, `fitness`, `descriptor`, `extras` are the final population (filled slots only, best first).
    `best_x`, `best_fitness` are the best ever evaluated, whether or not the rule kept it; None if nothing was feasible.
    `archive` holds the best solution ever seen in each cell, if `archive_cells` was given. `num_nan` evaluations gave
    no number, and `num_failed` kept killing the workers of an `executor`.
    """

    population: Elites
    best: Elites
    history: "pd.DataFrame"
    archive: Elites | None
    num_evaluations: int
    num_nan: int
    stopped_by: str | None
    info: dict[str, Any]
    num_failed: int = 0

    @property
    def x(self) -> np.ndarray:
        return self.population.x

    @property
    def fitness(self) -> np.ndarray:
        return self.population.fitness

    @property
    def descriptor(self) -> np.ndarray:
        return self.population.descriptor

    @property
    def extras(self) -> dict[str, np.ndarray]:
        return self.population.extras

    @property
    def best_x(self) -> np.ndarray | None:
        return self.best.x[0] if len(self.best) else None

    @property
    def best_fitness(self) -> float | None:
        return float(self.best.fitness[0]) if len(self.best) else None

    def __repr__(self) -> str:
        best = "none feasible" if self.best_fitness is None else f"best {self.best_fitness + 0.0:.6g}"
        early = f", stopped by {self.stopped_by}" if self.stopped_by else ""
        return (
            f"Result({len(self.population)} solutions, {best}, {self.num_evaluations:,} evaluations, "
            f"rule {self.info.get('rule')!r}{early})"
        )

    def to_dataframe(self) -> "pd.DataFrame":
        """The final population, one row per solution."""
        return self.population.to_dataframe()

    def plot(self, descriptors: int | Sequence[int] | None = None) -> "Figure":
        """Where the solutions are in descriptor space, and how the run got there.

        A histogram of one descriptor, a map of two, maps of all pairs of up to five; with more descriptors than that,
        of the first five. `descriptors=(i, j)` says which to draw, counted from 0: the first of two along the x-axis.
        """
        from lqd.report import run_figures

        return run_figures.result(self, descriptors)

    def save(self, path: files.PathLike) -> pathlib.Path:
        """Save everything in one file (safetensors) that `Result.load` reads, or the population as a table, to
        `x.csv`."""
        ending = pathlib.Path(path).suffix.lower()
        if ending == ".csv":
            return files.write_bytes(path, self.to_dataframe().to_csv(index=False).encode())
        if ending in OTHERS:
            raise InvalidInput(
                f"save({str(path)!r}): a result is saved as .safetensors (everything) or .csv (the population); for "
                f"other tables use result.to_dataframe()."
            )
        arrays: dict[str, np.ndarray] = {}
        for part in ("population", "best", "archive"):
            elites = getattr(self, part)
            if elites is None:
                continue
            arrays |= {f"{part}.{name}": getattr(elites, name) for name in ("x", "fitness", "descriptor")}
            for name, value in elites.extras.items():
                arrays[f"{part}.extras.{name}"] = numeric(name, value)
        arrays |= {f"history.{name}": self.history[name].to_numpy() for name in self.history}
        names = ("num_evaluations", "num_nan", "num_failed", "stopped_by", "info")
        description = {name: getattr(self, name) for name in names} | {"history": list(self.history)}
        return files.write_arrays(path, "result", arrays, description)

    @classmethod
    def load(cls, path: files.PathLike) -> "Result":
        """Load what `save` wrote."""
        arrays, description = files.read_arrays(path, "result")
        with files.understood(path):
            return cls._from(arrays, description)

    @classmethod
    def _from(cls, arrays: dict[str, np.ndarray], description: dict[str, Any]) -> "Result":
        import pandas as pd

        def elites(part: str) -> Elites:
            prefix = f"{part}.extras."
            extras = {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
            found = Elites(arrays[f"{part}.x"], arrays[f"{part}.fitness"], arrays[f"{part}.descriptor"], extras)
            num_dims = {"x": 2, "fitness": 1, "descriptor": 2}
            own = {name: getattr(found, name) for name in num_dims}
            for name, value in (own | {f"extras.{name}": value for name, value in extras.items()}).items():
                if value.ndim != num_dims.get(name, max(value.ndim, 1)) or len(value) != len(found):
                    raise ValueError(f"{part}.{name} has shape {value.shape}")
            return found

        history = pd.DataFrame({name: arrays[f"history.{name}"] for name in description.pop("history")})
        archive = elites("archive") if "archive.x" in arrays else None
        return cls(elites("population"), elites("best"), history, archive, **description)


def numeric(name: str, value: np.ndarray) -> np.ndarray:
    """Extras that a file can hold."""
    if value.dtype.kind not in "biuf":
        raise InvalidInput(f"extras[{name!r}] has dtype {value.dtype}; only numbers can be saved.")
    return value


def make_result(
    state: State,
    rows: Rows,
    *,
    task: int = 0,
    minimize: bool,
    stopped_by: str | None,
    info: dict[str, Any],
    extras: dict[str, dict[str, np.ndarray]] | None = None,
    num_failed: int = 0,
) -> Result:
    """The result of one of the tasks of a state, from the loop's own (maximised, batched) data."""
    sign = -1.0 if minimize else 1.0
    kept = extras or {}

    def elites(name: str, part: Population) -> Elites:
        return elites_of(jax.tree.map(lambda leaf: leaf[task], part), sign, kept.get(name))

    return Result(
        elites("population", state.population).best_first(sign),
        elites("best", state.best),
        history(rows, task, sign),
        None if state.archive is None else elites("archive", state.archive.elites),
        num_evaluations=int(rows.num_evaluations[-1]),
        num_nan=int(np.asarray(state.faults.num_nan)[task]),
        num_failed=num_failed,
        stopped_by=stopped_by,
        info=info,
    )


def history(rows: Rows, task: int, sign: float) -> "pd.DataFrame":
    """History rows of one task as a table, in the user's sign."""
    import pandas as pd

    columns: dict[str, np.ndarray] = {"generation": rows.generation, "num_evaluations": rows.num_evaluations}
    for name in sorted(rows.measures, key=lambda name: COLUMNS.index(name) if name in COLUMNS else len(COLUMNS)):
        column = rows.measures[name][:, task]
        if name.endswith("_fitness"):
            column = sign * column
        if name.startswith("num_"):
            column = column.astype(np.int64)
        if name == "max_fitness" and sign < 0:
            name = "min_fitness"
        columns[name] = column
    return pd.DataFrame(columns | {"time_s": rows.time_s})
