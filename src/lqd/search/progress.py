"""What a run shows on its way, and how it ends early."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from lqd.errors import EvaluationFailed, Interrupted
from lqd.evolution.driver import Rows
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


def failed(error: Exception, result: Result | None) -> EvaluationFailed:
    """`evaluate` raised."""
    num = 0 if result is None else result.num_evaluations
    reason = str(error).strip().split("\n")[0]
    return EvaluationFailed(
        f"evaluate raised {type(error).__name__} after {num} evaluations: {reason}. "
        f"What was found before is in this exception's `result`.",
        result,
    )


def interrupted(result: Result | None) -> Interrupted:
    """Ctrl-C."""
    num = 0 if result is None else result.num_evaluations
    return Interrupted(f"interrupted after {num} evaluations; what was found is in this exception's `result`.", result)
