"""Rules that share a figure are told apart: with deuteranopia, with protanopia, and in grey."""

import itertools

import numpy as np
import pytest

from lqd.report import style
from lqd.rules.catalogue import BLIND

TOGETHER = {
    "benches": tuple(style.LOOKS),
    "the ablation": ("lqd-f", "ga", BLIND),
    "the community's measures": ("me", "dns", "cma-me", "cma-mae", "lqd-f", "lqd-n", "lqd-fn", "lqd-fn-cma"),
}
# Machado, Oliveira and Fernandes (2009), severity 1, for linear RGB.
SEEN = {
    "all colours": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
DISTANCE = 20  # in CIE Lab (1976): some 2 are just noticeable side by side, lines and markers are small and apart
LIGHTNESS = 20


def lab(colour: str, seen: str = "all colours") -> np.ndarray:
    """CIE Lab under D65 of a colour as somebody sees it."""
    values = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(SEEN[seen] @ linear, 0, 1) / (0.95047, 1.0, 1.08883)
    x, y, z = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def pairs(together: str):
    return itertools.combinations(TOGETHER[together], 2)


def test_lab_of_known_colours():
    np.testing.assert_allclose(lab("#FFFFFF"), (100, 0, 0), atol=0.02)
    np.testing.assert_allclose(lab("#FF0000"), (53.24, 80.09, 67.20), atol=0.02)
    red, green = lab("#B00000", "deuteranopia"), lab("#6B6B00", "deuteranopia")
    assert np.linalg.norm(red - green) < 0.35 * np.linalg.norm(lab("#B00000") - lab("#6B6B00"))


@pytest.mark.parametrize("together", TOGETHER)
@pytest.mark.parametrize("seen", SEEN)
def test_colours_differ(together, seen):
    near = {
        (one, other): round(distance, 1)
        for one, other in pairs(together)
        if (distance := np.linalg.norm(lab(style.COLOURS[one], seen) - lab(style.COLOURS[other], seen))) < DISTANCE
    }
    assert near == {}


@pytest.mark.parametrize("together", TOGETHER)
def test_in_grey_lightness_differs_or_both_marker_and_line(together):
    """And in bars, which have neither, lightness or hatch."""
    for one, other in pairs(together):
        first, second = style.EVERY[one], style.EVERY[other]
        assert first.marker != second.marker, (one, other)
        if abs(lab(first.colour)[0] - lab(second.colour)[0]) < LIGHTNESS:
            assert first.line != second.line, (one, other)
            assert first.hatch != second.hatch, (one, other)
