"""Solutions that were asked for and not told yet, with their traits.

A told solution is recognised by its float32 bytes, whenever and in whatever order it comes back. A search that is saved
and continued asks again for what is outstanding.
"""

from collections import OrderedDict, deque
from typing import NamedTuple

import numpy as np

LIMIT = 65_536  # rows; beyond this the oldest are forgotten


class Row(NamedTuple):
    """One outstanding solution; those of a piece were asked for together."""

    piece: int
    x: np.ndarray
    traits: np.ndarray


class Piece(NamedTuple):
    """Rows that were asked for together."""

    number: int
    x: np.ndarray
    traits: np.ndarray


class Outstanding:
    """Rows in the order in which they were asked for; a solution that was not asked for gets the traits `first` (T,).

    A piece that comes back as it went out, the usual case, is never examined row by row.
    """

    def __init__(self, first: np.ndarray | None = None, limit: int = LIMIT) -> None:
        self._first = np.zeros(0, np.float32) if first is None else first
        self._limit = limit
        self._whole: dict[bytes, Piece] = {}  # the newest pieces, none of it told; those before are in rows
        self._rows: OrderedDict[int, Row] = OrderedDict()  # by number
        self._numbers: dict[bytes, list[int]] = {}  # of all rows that are equal
        self._to_ask: deque[int] = deque()  # known from a file: asked for again before anything new
        self._num = self._num_pieces = 0

    def add(self, x: np.ndarray, traits: np.ndarray | None = None) -> None:
        """Adds a piece (num, dim), outstanding from now on; by default with the first traits."""
        x = np.array(x, np.float32)
        traits = self._of_nobody(len(x)) if traits is None else np.array(traits, np.float32)
        by_row = bool(self._rows) or x.tobytes() in self._whole
        if by_row:  # so that of equals the oldest counts
            self._take_apart()
        self._whole[x.tobytes()] = Piece(self._num_pieces, x, traits)
        self._num_pieces += 1
        if by_row:
            self._take_apart()
        if len(self._rows) + sum(len(piece.x) for piece in self._whole.values()) > self._limit:
            self._take_apart()
            while len(self._rows) > self._limit:
                self._drop(next(iter(self._rows)))

    def _take_apart(self) -> None:
        """All pieces as rows."""
        for number, x, traits in self._whole.values():
            for row, its in zip(x, traits, strict=True):
                self._rows[self._num] = Row(number, row, its)
                self._numbers.setdefault(row.tobytes(), []).append(self._num)
                self._num += 1
        self._whole.clear()

    def settle(self, x: np.ndarray) -> np.ndarray:
        """Takes solutions that were told; returns their traits (num, T).

        A solution that equals none was changed meanwhile, or never asked for. It counts as the oldest, and gets the
        first traits.
        """
        if piece := self._whole.pop(x.tobytes(), None):
            return piece.traits
        self._take_apart()
        traits, num_changed = self._of_nobody(len(x)), 0
        for i, row in enumerate(x):
            if numbers := self._numbers.get(row.tobytes()):
                traits[i] = self._drop(numbers[0]).traits
            else:
                num_changed += 1
        for _ in range(min(num_changed, len(self._rows))):
            self._drop(next(iter(self._rows)))
        return traits

    def _of_nobody(self, num: int) -> np.ndarray:
        return np.repeat(self._first[None], num, axis=0)

    def _drop(self, number: int) -> Row:
        row = self._rows.pop(number)
        name = row.x.tobytes()
        self._numbers[name].remove(number)
        if not self._numbers[name]:
            del self._numbers[name]
        return row

    def can_ask_again(self) -> bool:
        while self._to_ask and self._to_ask[0] not in self._rows:  # told meanwhile
            self._to_ask.popleft()
        return bool(self._to_ask)

    def ask_again(self, num: int) -> np.ndarray:
        """What is left of the next piece, at most `num` rows."""
        found: list[Row] = []
        while len(found) < num and self.can_ask_again():
            row = self._rows[self._to_ask[0]]
            if found and row.piece != found[0].piece:
                break
            found.append(row)
            self._to_ask.popleft()
        return np.stack([row.x for row in found])

    def arrays(self) -> dict[str, np.ndarray]:
        """For a file; traits only where there are any."""
        self._take_apart()
        if not self._rows:
            return {}
        pieces, x, traits = zip(*self._rows.values(), strict=True)
        found = {"outstanding.x": np.stack(x), "outstanding.piece": np.unique(pieces, return_inverse=True)[1]}
        return found | ({"outstanding.traits": np.stack(traits)} if len(self._first) else {})

    def restore(self, arrays: dict[str, np.ndarray], dim: int) -> None:
        """Restores what `arrays` gave, without prefix; older files have none.

        Traits are left out where this search has none.
        """
        if not arrays:
            return
        x, piece, traits = arrays["x"], arrays["piece"], self._of_nobody(len(arrays["x"]))
        if len(self._first) and "traits" in arrays:
            traits = arrays["traits"]
        if x.dtype != np.float32 or x.shape != (len(x), dim) or not np.isfinite(x).all():
            raise ValueError(f"outstanding solutions {x.dtype} {x.shape}")
        if traits.dtype != np.float32 or traits.shape != (len(x), len(self._first)) or not np.isfinite(traits).all():
            raise ValueError(f"traits {traits.dtype} {traits.shape}")
        if piece.dtype != np.int64 or piece.shape != (len(x),) or (np.diff(piece) < 0).any():
            raise ValueError(f"pieces {piece.dtype} {piece.shape}")
        cuts = np.flatnonzero(np.diff(piece)) + 1
        for rows, its in zip(np.split(x, cuts), np.split(traits, cuts), strict=True):
            self.add(rows, its)
        self._take_apart()
        self._to_ask.extend(self._rows)
