"""Several settings and rules: what to run, running what is missing, and tables of the results."""

import dataclasses
import pathlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lqd.bench.runner import HISTORY, MEASURES, OPTIONAL, Bench, Table, in_order
from lqd.bench.settings import Setting
from lqd.bench.side_by_side import OutOfTime
from lqd.errors import InvalidInput
from lqd.io.files import write_bytes
from lqd.rules.catalogue import FITTED

OnPiece = Callable[[str, int, int], None]  # what runs now, how many pieces are done, of how many


class Part(NamedTuple):
    """A setting and the rules that run under it; `together` if that is faster, as on a simulator."""

    setting: Setting
    rules: tuple[str, ...]
    together: bool = False


Plan = dict[str, Part]


@dataclasses.dataclass(frozen=True)
class Results:
    """The results of a plan: part -> rule -> table; and how the pieces were made: part -> piece -> facts."""

    plan: Plan
    tables: dict[str, dict[str, Table]]
    made: dict[str, dict[str, dict[str, Any]]]

    def facts(self) -> dict[str, Any]:
        """The devices and versions of a part, when its last piece was made, and how long all of them took."""
        pieces = [piece for part in self.made.values() for piece in part.values()]
        last = max(pieces, key=lambda piece: piece["at"])
        devices = sorted({device for piece in pieces for device in piece["devices"]})
        return last | {"devices": devices, "seconds": round(sum(piece["seconds"] for piece in pieces), 1)}

    def rows(self):
        """A data frame with one row per run."""
        import pandas as pd

        rows = [
            {"part": name, "rule": rule, "function": function, "dim": dim, "seed": seed}
            | {m: float(table[m][seed, column]) if m in table else np.nan for m in (*MEASURES, *OPTIONAL)}
            for name, part in self.plan.items()
            for rule, table in self.tables[name].items()
            for column, (function, dim) in enumerate(part.setting.columns)
            for seed in range(part.setting.num_seeds)
        ]
        return pd.DataFrame(rows).astype({"dim": "Int16"})

    def history(self):
        """A data frame with one row per run and time."""
        import pandas as pd

        parts = []
        for name, part in self.plan.items():
            evaluations = part.setting.population_size + part.setting.rows * part.setting.batch_size
            for rule, table in self.tables[name].items():
                shape = table["history.fitness"].shape
                index = np.meshgrid(evaluations, np.arange(shape[1]), np.arange(shape[2]), indexing="ij")
                functions, dims = zip(*part.setting.columns, strict=True)
                values = {measure: table[f"history.{measure}"].ravel() for measure in HISTORY}
                parts.append(
                    pd.DataFrame(
                        {"part": name, "rule": rule, "function": np.asarray(functions)[index[2].ravel()]}
                        | {"dim": pd.array(dims, "Int16")[index[2].ravel()], "seed": index[1].ravel().astype(np.int16)}
                        | {"num_evaluations": index[0].ravel().astype(np.int32)}
                        | values
                    )
                )
        return pd.concat(parts, ignore_index=True)


def folder_of(pieces: pathlib.Path, part: str) -> pathlib.Path:
    """Where the pieces of a part are."""
    return pieces / part.replace(" ", "-")


def measure_all(plan: Plan, folder: pathlib.Path, progress: OnPiece, until: float | None = None) -> Results:
    """Every rule of every part, from what is kept in the folder or anew.

    MAP-Elites is measured first: the slots that it fills are what the others' novelty is compared at. When time is up
    (`until`, as `time.perf_counter` says it), no other piece is begun, and `OutOfTime` is raised.
    """
    for name, part in plan.items():
        if "me" not in part.rules:
            raise InvalidInput(f"part {name!r} needs 'me' among its rules: the others are compared at its slots.")
    total, done = sum(len(part.rules) for part in plan.values()), 0
    results = Results(plan, {}, {})
    for name, part in plan.items():
        bench = Bench(part.setting, folder_of(folder, name), compare_fitted=FITTED in part.rules)
        if part.together:
            num = part.setting.num_generations

            def look(generation: int, name=name, done=done, num=num) -> None:
                progress(f"{name}: all rules, generation {generation:,} of {num:,}", done, total)

            look(0)
            bench.measure_together(part.rules, look, until)
        found = {}
        for rule in in_order(part.rules):
            progress(f"{name}: {rule}", done, total)
            if until is not None and time.perf_counter() >= until and not bench.has(rule):
                raise OutOfTime(f"{done} of {total} pieces are kept")
            found[rule] = bench.measure(rule)
            done += 1
        results.tables[name] = {rule: found[rule] for rule in part.rules}
        results.made[name] = bench.made
    progress("done", done, total)
    return results


def write_csv(path: pathlib.Path, results: Results) -> None:
    """One line per run."""
    write_bytes(path, results.rows().to_csv(index=False, float_format="%.7g").encode())
