"""Extras of solutions evaluated on the host: any dtype, unchanged. The device carries only their row number."""

import numpy as np

from lqd.errors import InvalidInput
from lqd.result import numeric


class ExtrasStore:
    """Extras of all living solutions by row number."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.next_row = 0
        self._rows: dict[int, tuple] = {}

    def add(self, extras: dict[str, np.ndarray], num: int) -> np.ndarray:
        if sorted(extras) != self.names:
            raise InvalidInput(f"extras must be the same for every batch: expected {self.names}, got {sorted(extras)}.")
        numbers = np.arange(self.next_row, self.next_row + num, dtype=np.int32)
        self.next_row += num
        if self.names:
            columns = [np.asarray(extras[name]) for name in self.names]
            self._rows.update(zip(numbers.tolist(), zip(*columns, strict=True), strict=True))
        return numbers

    def keep(self, living: dict[str, np.ndarray]) -> None:
        """Forgets the rows that nobody holds any more."""
        if self.names:
            numbers = np.unique(np.concatenate(list(living.values()))).tolist()
            self._rows = {number: self._rows[number] for number in numbers if number in self._rows}

    def of(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Each extra for these rows; a slot that holds nobody gets somebody's, and is dropped by the caller."""
        if not self._rows:
            return {}
        someone = next(iter(self._rows.values()))
        rows = [self._rows.get(number, someone) for number in numbers.tolist()]
        return {name: np.stack([row[i] for row in rows]) for i, name in enumerate(self.names)}

    def arrays(self) -> dict[str, np.ndarray]:
        numbers = np.array(sorted(self._rows), np.int32)
        values = {f"extras.value.{name}": numeric(name, value) for name, value in self.of(numbers).items()}
        return {"extras.number": numbers} | values

    def restore(self, arrays: dict[str, np.ndarray], next_row: int) -> None:
        self.next_row = next_row
        columns = [arrays[f"value.{name}"] for name in self.names if f"value.{name}" in arrays]
        if columns:
            self._rows = dict(zip(arrays["number"].tolist(), zip(*columns, strict=True), strict=True))
