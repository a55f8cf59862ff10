"""Solutions that were asked for and not told yet: a search that is saved and gone on with asks for them again."""

from collections import deque

import numpy as np


class Outstanding:
    """Rows in the order in which they were asked for; those of a `piece` were asked for together."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[int, np.ndarray]] = {}  # by number: its piece, and x
        self._numbers: dict[bytes, list[int]] = {}  # of all rows that are equal
        self._to_ask: deque[int] = deque()  # known from a file: asked for again before anything new
        self._num = self._num_pieces = 0

    def add(self, x: np.ndarray) -> None:
        """One more piece (num, dim), on its way from now on."""
        for row in np.array(x, np.float32):
            self._rows[self._num] = self._num_pieces, row
            self._numbers.setdefault(row.tobytes(), []).append(self._num)
            self._num += 1
        self._num_pieces += 1

    def settle(self, x: np.ndarray) -> None:
        """These were told. One that equals none was changed on its way, and counts for the oldest."""
        num_changed = 0
        for row in x:
            if numbers := self._numbers.get(row.tobytes()):
                self._drop(numbers[0])
            else:
                num_changed += 1
        for _ in range(min(num_changed, len(self._rows))):
            self._drop(next(iter(self._rows)))

    def _drop(self, number: int) -> None:
        name = self._rows.pop(number)[1].tobytes()
        self._numbers[name].remove(number)
        if not self._numbers[name]:
            del self._numbers[name]

    def can_ask_again(self) -> bool:
        while self._to_ask and self._to_ask[0] not in self._rows:  # told meanwhile
            self._to_ask.popleft()
        return bool(self._to_ask)

    def ask_again(self, num: int) -> np.ndarray:
        """What is left of the next piece, at most `num` rows."""
        found: list[tuple[int, np.ndarray]] = []
        while len(found) < num and self.can_ask_again():
            row = self._rows[self._to_ask[0]]
            if found and row[0] != found[0][0]:
                break
            found.append(row)
            self._to_ask.popleft()
        return np.stack([x for _, x in found])

    def arrays(self) -> dict[str, np.ndarray]:
        """For a file."""
        if not self._rows:
            return {}
        pieces, x = zip(*self._rows.values(), strict=True)
        return {"outstanding.x": np.stack(x), "outstanding.piece": np.unique(pieces, return_inverse=True)[1]}

    def restore(self, arrays: dict[str, np.ndarray], dim: int) -> None:
        """What `arrays` gave, without prefix; nothing in files from before there was any of this."""
        if not arrays:
            return
        x, piece = arrays["x"], arrays["piece"]
        if x.dtype != np.float32 or x.shape != (len(x), dim) or not np.isfinite(x).all():
            raise ValueError(f"outstanding solutions {x.dtype} {x.shape}")
        if piece.dtype != np.int64 or piece.shape != (len(x),) or (np.diff(piece) < 0).any():
            raise ValueError(f"pieces {piece.dtype} {piece.shape}")
        for rows in np.split(x, np.flatnonzero(np.diff(piece)) + 1):
            self.add(rows)
        self._to_ask.extend(self._rows)
