"""Extras of solutions evaluated on the host: any dtype, unchanged. The device carries only their row number."""

import numpy as np

from lqd.errors import InvalidInput
from lqd.search.result import numeric


class ExtrasTable:
    """Extras of all living solutions by row number."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.next_row = 0
        self._kind: dict[str, tuple] = {}  # of each extra: shape of one entry, kind of number
        self._rows: dict[int, tuple] = {}

    def check(self, extras: dict[str, np.ndarray], first: bool) -> None:
        """An error unless every batch has the same extras, of the same shapes."""
        if first:
            self.names = sorted(extras)
            self._kind = {name: _kind(value) for name, value in extras.items()}
        if sorted(extras) != self.names:
            raise InvalidInput(f"extras must be the same for every batch: expected {self.names}, got {sorted(extras)}.")
        for name, value in extras.items():
            if _kind(value) != self._kind.setdefault(name, _kind(value)):
                shape, kind = self._kind[name]
                raise InvalidInput(
                    f"extras[{name!r}] must have entries of shape {shape} and kind {kind!r} as before, got shape "
                    f"{value.shape[1:]} and dtype {value.dtype}; for entries of any length use an array of objects."
                )

    def add(self, extras: dict[str, np.ndarray], num: int) -> np.ndarray:
        """Keeps copies of extras that were checked; returns their row numbers."""
        numbers = np.arange(self.next_row, self.next_row + num, dtype=np.int32)
        self.next_row += num
        if self.names:
            columns = [np.array(extras[name]) for name in self.names]
            self._rows.update(zip(numbers.tolist(), zip(*columns, strict=True), strict=True))
        return numbers

    def keep(self, living: dict[str, np.ndarray]) -> None:
        """Forgets the rows that are no longer in use."""
        if self.names:
            numbers = np.unique(np.concatenate(list(living.values()))).tolist()
            self._rows = {number: self._rows[number] for number in numbers if number in self._rows}

    def of(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Each extra for these rows. An empty slot gets an arbitrary one, which the caller drops."""
        if not self._rows:
            return {}
        someone = next(iter(self._rows.values()))
        rows = [self._rows.get(number, someone) for number in numbers.tolist()]
        return {name: self._column(name, [row[i] for row in rows]) for i, name in enumerate(self.names)}

    def _column(self, name: str, entries: list) -> np.ndarray:
        if self._kind[name][1] != "O":
            return np.stack(entries)
        column = np.empty(len(entries), object)  # stacking would look inside the objects
        column[:] = entries
        return column

    def arrays(self) -> dict[str, np.ndarray]:
        numbers = np.array(sorted(self._rows), np.int32)
        values = {f"extras.value.{name}": numeric(name, value) for name, value in self.of(numbers).items()}
        return {"extras.number": numbers} | values

    def restore(self, arrays: dict[str, np.ndarray], next_row: int) -> None:
        self.next_row = next_row
        columns = [arrays[f"value.{name}"] for name in self.names if f"value.{name}" in arrays]
        if columns:
            self._kind = {name: _kind(column) for name, column in zip(self.names, columns, strict=True)}
            self._rows = dict(zip(arrays["number"].tolist(), zip(*columns, strict=True), strict=True))


def _kind(value: np.ndarray) -> tuple[tuple[int, ...], str]:
    return value.shape[1:], value.dtype.kind
