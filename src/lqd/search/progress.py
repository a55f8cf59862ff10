"""What a run shows while it runs, and how it ends early."""

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from lqd.errors import EvaluationFailed, Interrupted
from lqd.evolution.driver import Rows
from lqd.io import terminal
from lqd.search.result import Result, history


class Progress(NamedTuple):
    """What a callback is given after each history row; `row` has the same names as a row of `history`."""

    generation: int
    num_evaluations: int
    row: dict[str, float]


Callback = Callable[[Progress], bool | None]


def told_to_stop(callback: Callback | None, rows: list[Rows], sign: float) -> bool:
    """Shows every new row to the callback, then says whether it asked to stop."""
    if callback is None or not rows:
        return False
    records = history(Rows.join(rows), 0, sign).to_dict("records")
    answers = [callback(Progress(int(row["generation"]), int(row["num_evaluations"]), row)) for row in records]
    return any(isinstance(answer, bool | np.bool_) and bool(answer) for answer in answers)


class Bar:
    """A progress bar: evaluations, the best fitness, how many are kept or the archive's scores, the time left."""

    def __init__(self, bars, total: int, sign: float):
        self._bars, self._sign = bars, sign
        self._row = bars.add_task("evaluations", total=total, facts=terminal.COMPILING)

    def show(self, num_evaluations: int, rows: list[Rows]) -> None:
        if rows:
            last = {name: float(values[-1, 0]) for name, values in rows[-1].measures.items()}
            self._bars.update(self._row, facts=_facts(last, self._sign))
        self._bars.update(self._row, completed=num_evaluations)


def _facts(row: dict[str, float], sign: float) -> list[str]:
    best = sign * row["best_fitness"]
    said = [f"best {terminal.number(best, 4)}" if np.isfinite(best) else "none feasible"]
    if "archive_coverage" in row:
        said.append(f"{row['archive_coverage']:.0%} of cells")
    else:
        said.append(f"{row['num_filled']:,.0f} kept")
    if "archive_qd_score" in row:
        said.append(f"QD {terminal.number(row['archive_qd_score'], 4)}")
    return said


@contextlib.contextmanager
def bar(wanted: bool | None, total: int, sign: float) -> Iterator[Bar | None]:
    """A bar if it is wanted; by default, wherever somebody can see it."""
    if not (terminal.is_watched() if wanted is None else wanted):
        yield None
        return
    from rich.errors import LiveError

    bars = terminal.progress()
    try:
        bars.start()
    except LiveError:  # another display is there already: the user's own, or that of another search
        yield None
        return
    try:
        yield Bar(bars, total, sign)
    finally:
        bars.stop()


def failed(error: Exception, result: Result | None) -> EvaluationFailed:
    """The error for an `evaluate` that raised."""
    num = 0 if result is None else result.num_evaluations
    reason = str(error).strip().split("\n")[0].removesuffix(".")
    return EvaluationFailed(
        f"evaluate raised {type(error).__name__} after {num} evaluations: {reason}. "
        f"The results so far are in this exception's `result`.",
        result,
    )


def interrupted(result: Result | None) -> Interrupted:
    """The error for Ctrl-C."""
    num = 0 if result is None else result.num_evaluations
    return Interrupted(f"interrupted after {num} evaluations; the results are in this exception's `result`.", result)
