"""Names beside points: each at the nearest place where it covers no point, no line and no other name."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

DISTANCES = np.array([7.0, 11.0, 16.0, 22.0, 30.0, 40.0])  # points, from the middle of a marker to the name
DIRECTIONS = np.exp(1j * np.radians(np.arange(0, 360, 15)))
HALF_MARKER, FAR, GAP = 4.5, 9.0, 3.0
NUM_ORDERS = 30

Box = tuple[float, float, float, float]  # left, bottom, right, top


def place(ax, points: Float[np.ndarray, "N 2"], names: Sequence[str], lines: Sequence[Float[np.ndarray, "M 2"]] = ()):
    """Puts the names into a plot whose limits are final; `lines` go straight through data, where no name should be."""
    figure = ax.figure
    figure.draw_without_rendering()
    scale = figure.dpi / 72
    spots, frame = ax.transData.transform(np.asarray(points)) / scale, ax.get_window_extent().extents / scale
    taken = [(x - HALF_MARKER, y - HALF_MARKER, x + HALF_MARKER, y + HALF_MARKER) for x, y in spots]
    for line in lines:
        taken += _along(ax.transData.transform(np.asarray(line)) / scale)
    sizes = []
    for name in names:
        measured = ax.text(0, 0, name)
        extent = measured.get_window_extent()
        measured.remove()
        sizes.append((extent.width / scale + GAP, extent.height / scale))
    texts = []
    for i, (x, y) in enumerate(_least_overlap(spots, sizes, taken, frame)):
        box = spots[i][0] + x, spots[i][1] + y, spots[i][0] + x + sizes[i][0], spots[i][1] + y + sizes[i][1]
        is_far = np.hypot(*(_nearest_of(box, spots[i]) - spots[i])) > FAR
        leader = {"arrowstyle": "-", "color": "#999999", "lw": 0.5, "shrinkA": 0, "shrinkB": 4} if is_far else None
        how: dict[str, Any] = {"textcoords": "offset points", "ha": "left", "va": "bottom", "arrowprops": leader}
        texts.append(ax.annotate(names[i], points[i], (x, y), **how))
    return texts


def _least_overlap(spots, sizes, taken: list[Box], frame) -> list[tuple[float, float]]:
    """Offsets of the lower left corners. Names choose one after the other: the best of several orders."""
    generator, best = np.random.default_rng(0), (np.inf, [(0.0, 0.0)] * len(spots))
    for _ in range(NUM_ORDERS):
        boxes, offsets, total = list(taken), [(0.0, 0.0)] * len(spots), 0.0
        for i in generator.permutation(len(spots)):
            cost, offsets[i], box = _best(spots[i], sizes[i], np.array(boxes), frame)
            total += cost
            boxes.append(box)
            nearest = _nearest_of(box, spots[i])
            if np.hypot(*(nearest - spots[i])) > FAR:
                boxes += _along(np.array([spots[i], nearest]))
        if total < best[0]:
            best = total, offsets
    return best[1]


def _along(line: np.ndarray) -> list[Box]:
    """Small boxes along a line."""
    found: list[Box] = []
    for start, end in itertools.pairwise(line):
        for share in np.linspace(0, 1, max(2, int(np.hypot(*(end - start)) / 3))):
            x, y = start + share * (end - start)
            found.append((x - 1, y - 1, x + 1, y + 1))
    return found


def _best(spot, size, taken: Float[np.ndarray, "M 4"], frame) -> tuple[float, tuple[float, float], Box]:
    """Cost, offset and box of the place with the least overlap, and near."""
    width, height = size
    shift = DISTANCES[:, None] * DIRECTIONS  # (places, angles), complex
    turned = np.broadcast_to(DIRECTIONS, shift.shape)
    left = (shift.real - width * (1 - turned.real) / 2).ravel()
    bottom = (shift.imag - height * (1 - turned.imag) / 2).ravel()
    x, y = spot[0] + left, spot[1] + bottom
    boxes = np.stack([x, y, x + width, y + height], axis=1)
    leaders = np.abs(shift).ravel() * 0.3
    cost = _overlaps(boxes, taken).sum(axis=1) + leaders
    cost += 10 * (width * height - _overlaps(boxes, np.asarray(frame)[None])[:, 0])
    i = int(np.argmin(cost))
    return float(cost[i]), (float(left[i]), float(bottom[i])), tuple(boxes[i])


def _overlaps(boxes: Float[np.ndarray, "N 4"], others: Float[np.ndarray, "M 4"]) -> Float[np.ndarray, "N M"]:
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    return np.prod(np.maximum(high - low, 0), axis=-1)


def _nearest_of(box: Box, spot) -> np.ndarray:
    """The point of a box that is nearest to a spot."""
    return np.clip(spot, box[:2], box[2:])
