"""Boxes and curves.

Points are complex numbers: x + iy, y downwards, in pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

BORDER = 8.0
"""How far from the corners of a box arrows start."""
SAMPLES = 257
"""Number of points at which a curve is looked at: in large pictures they are about 10 pixels apart,
less than the height of a label."""

Points = npt.NDArray[np.complex128]
Curve = tuple[complex, complex, complex, complex]
"""A cubic Bézier curve: start, two control points, end."""


@dataclass(frozen=True)
class Box:
    """A rectangle: its center, and its width and height as one complex number."""

    center: complex
    size: complex

    @property
    def corner(self) -> complex:
        """The corner at the top left."""
        return self.center - self.size / 2

    def contains(self, point: complex, room: float = 0.0) -> bool:
        """Return whether a point is inside, or less than ``room`` away from it."""
        away, half = point - self.center, self.size / 2
        return abs(away.real) < half.real + room and abs(away.imag) < half.imag + room

    def covers(self, points: Points, room: float = 0.0) -> npt.NDArray[np.bool_]:
        """Return which points are inside, or less than ``room`` away from it."""
        away, half = points - self.center, self.size / 2
        return (abs(away.real) < half.real + room) & (abs(away.imag) < half.imag + room)

    def overlaps(self, other: Box, room: float = 0.0) -> bool:
        """Return whether two boxes overlap, or are less than ``room`` apart."""
        return Box(self.center, self.size + other.size).contains(other.center, room)

    def moved(self, by: complex) -> Box:
        return replace(self, center=self.center + by)

    def within(self, offset: complex) -> complex:
        """Return an offset from the center, cut where it would come near the border."""
        most = self.size / 2 - complex(BORDER, BORDER)
        return complex(
            max(-most.real, min(most.real, offset.real)),
            max(-most.imag, min(most.imag, offset.imag)),
        )


def bounds(boxes: Iterable[Box], curves: Iterable[Curve] = ()) -> Box:
    """Return the smallest box around all others, and around curves."""
    corners = [corner for box in boxes for corner in (box.corner, box.corner + box.size)]
    points = np.concatenate([np.array(corners), *map(sampled, curves)])
    least = complex(points.real.min(), points.imag.min())
    most = complex(points.real.max(), points.imag.max())
    return Box((least + most) / 2, most - least)


def point_at(curve: Curve, t: float) -> complex:
    """Return a point of a curve: its start for 0, its end for 1."""
    a, b, c, d = curve
    s = 1 - t
    return s * s * s * a + 3 * s * s * t * b + 3 * s * t * t * c + t * t * t * d


def sampled(curve: Curve) -> Points:
    """Return points of a curve from its start to its end."""
    a, b, c, d = curve
    t = np.linspace(0, 1, SAMPLES)
    s = 1 - t
    points: Points = s * s * s * a + 3 * s * s * t * b + 3 * s * t * t * c + t * t * t * d
    return points


def between(curve: Curve, start: Box, end: Box) -> Curve:
    """Return the part of a curve that is outside of the boxes at its ends."""
    first = _leaves(lambda t: start.contains(point_at(curve, t)))
    last = 1 - _leaves(lambda t: end.contains(point_at(curve, 1 - t)))
    return part(curve, first, last)


def _leaves(is_inside: Callable[[float], bool]) -> float:
    """Return where a curve that begins in a box leaves it."""
    inside = 0.0
    outside = next((n / SAMPLES for n in range(1, SAMPLES) if not is_inside(n / SAMPLES)), 1.0)
    for _ in range(40):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if is_inside(middle) else (inside, middle)
    return outside


def part(curve: Curve, first: float, last: float) -> Curve:
    """Return the part of a curve between two of its points (de Casteljau)."""

    def blossom(r: float, s: float, t: float) -> complex:
        points = list(curve)
        for u in (r, s, t):
            points = [p + (q - p) * u for p, q in pairwise(points)]
        return points[0]

    return (
        blossom(first, first, first),
        blossom(first, first, last),
        blossom(first, last, last),
        blossom(last, last, last),
    )
