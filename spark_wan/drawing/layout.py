"""Where the boxes, arrows and labels of a graph go in a picture.

A placement is tried closely packed first, then with more and more room until no label is on another
one, none on a box, and no arrow passes a box. Arrows of two sites are beside each other. Parts that
are not connected are one below the other.

All is computed from the order of sites and edges alone, so the same graph always gets the same
picture.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spark_wan.drawing.geometry import Box, Curve, between, bounds, point_at, sampled
from spark_wan.drawing.placement import MARGIN, Edge, Placement, parts_of, placements

PAGE = complex(880, 800)
"""What a picture should fit in, if it can: the width of a README."""
GROWTH = 1.12
"""How much more room the next try has."""
ROOM_FOR_CLARITY = 1.3
"""How much more room a picture may have if then fewer labels are on arrows of others."""
CLEARANCE = 8.0
"""Between labels, and between an arrow and a box that it passes."""
ARROW_END = 20.0
"""What is free of labels before a box, so that the head of an arrow is seen."""
PLACES = (0.5, 0.44, 0.56, 0.38, 0.62, 0.32, 0.68, 0.26, 0.74)
"""Where a label may be on its arrow, best first."""


@dataclass(frozen=True)
class Arrow:
    """An arrow from the border of a box to that of another one, and its label."""

    curve: Curve
    label: Box

    def moved(self, by: complex) -> Arrow:
        a, b, c, d = self.curve
        return Arrow((a + by, b + by, c + by, d + by), self.label.moved(by))


@dataclass(frozen=True)
class Layout:
    """The boxes of the sites, and the arrows in the order of the edges."""

    boxes: Mapping[str, Box]
    arrows: Sequence[Arrow]
    size: complex


def arrange(sizes: Mapping[str, complex], edges: Sequence[Edge]) -> Layout:
    """Return the layout of a graph. ``sizes`` has the size of each site's box; an edge leads from
    one site to another one, and there may be several of them."""
    boxes: dict[str, Box] = {}
    arrows: dict[int, Arrow] = {}
    top, width = MARGIN, 0.0
    for part in parts_of(list(sizes), edges):
        inside = [number for number, edge in enumerate(edges) if edge.start in part]
        layout = _arrange_part(
            {site: sizes[site] for site in part}, [edges[number] for number in inside]
        )
        by = complex(MARGIN, top)
        boxes |= {site: box.moved(by) for site, box in layout.boxes.items()}
        arrows |= {
            number: arrow.moved(by) for number, arrow in zip(inside, layout.arrows, strict=True)
        }
        top += layout.size.imag + MARGIN
        width = max(width, layout.size.real)
    ordered = [arrows[number] for number in range(len(edges))]
    return Layout(boxes, ordered, complex(width + 2 * MARGIN, top))


def _arrange_part(sizes: Mapping[str, complex], edges: Sequence[Edge]) -> Layout:
    """Return the layout of sites that are connected, from (0, 0) on."""
    tries = [_with_room(placement, edges) for placement in placements(sizes, edges)]
    return min(tries, key=_page)


def _page(layout: Layout) -> float:
    """Return how often a page has to be enlarged for a picture; 1: the picture fits."""
    return max(1.0, layout.size.real / PAGE.real, layout.size.imag / PAGE.imag)


def _with_room(placement: Placement, edges: Sequence[Edge]) -> Layout:
    """Return the first layout in which nothing is on anything else. One with a little more room is
    better if fewer labels are on foreign arrows there."""
    best: tuple[int, Layout] | None = None
    room, limit = 1.0, math.inf
    while room <= limit:
        boxes = placement.boxes(room)
        found = _draw(boxes, edges, placement)
        if found is not None:
            arrows, crossings = found
            limit = min(limit, room * ROOM_FOR_CLARITY)
            if best is None or crossings < best[0]:
                best = crossings, _from_zero(boxes, arrows)
            if not crossings:
                break
        room *= GROWTH
    assert best is not None
    return best[1]


def _from_zero(boxes: Mapping[str, Box], arrows: Sequence[Arrow]) -> Layout:
    whole = bounds(
        [*boxes.values(), *(arrow.label for arrow in arrows)], (arrow.curve for arrow in arrows)
    )
    by = -whole.corner
    return Layout(
        {site: box.moved(by) for site, box in boxes.items()},
        [arrow.moved(by) for arrow in arrows],
        whole.size,
    )


def _draw(
    boxes: Mapping[str, Box], edges: Sequence[Edge], placement: Placement
) -> tuple[list[Arrow], int] | None:
    """Return the arrows, and how often labels are on arrows that are not theirs. None: there is not
    enough room."""
    placed = list(boxes.values())
    if any(
        box.overlaps(other, CLEARANCE)
        for number, box in enumerate(placed)
        for other in placed[:number]
    ):
        return None
    curves = []
    for edge, aside in zip(edges, _asides(boxes, edges), strict=True):
        start, end = boxes[edge.start], boxes[edge.end]
        curve = between(placement.curve(start, end, aside), start, end)
        foreign = [box for box in placed if box is not start and box is not end]
        if any(box.covers(sampled(curve), CLEARANCE).any() for box in foreign):
            return None
        curves.append(curve)
    labels = _labels(placed, edges, curves)
    if labels is None:
        return None
    found, crossings = labels
    return [Arrow(*each) for each in zip(curves, found, strict=True)], crossings


def _asides(boxes: Mapping[str, Box], edges: Sequence[Edge]) -> Iterator[complex]:
    """Yield how far aside each arrow is in its middle: those of two sites are beside each other,
    with room for their labels."""
    bundles: dict[frozenset[str], list[Edge]] = defaultdict(list)
    for edge in edges:
        bundles[frozenset((edge.start, edge.end))].append(edge)
    for edge in edges:
        bundle = bundles[frozenset((edge.start, edge.end))]
        # Seen from the same end for all arrows of the bundle.
        away = boxes[bundle[0].end].center - boxes[bundle[0].start].center
        normal = away / abs(away) * 1j
        label = bounds(Box(0, each.label) for each in bundle).size
        apart = min(
            (label.real + CLEARANCE) / max(abs(normal.real), 1e-9),
            (label.imag + CLEARANCE) / max(abs(normal.imag), 1e-9),
        )
        place = next(number for number, each in enumerate(bundle) if each is edge)
        yield normal * apart * (place - (len(bundle) - 1) / 2)


def _labels(
    boxes: Sequence[Box], edges: Sequence[Edge], curves: Sequence[Curve]
) -> tuple[list[Box], int] | None:
    """Return a label for each curve, and how often they are on other curves. None: there is no
    place for one of them."""
    points = np.array([sampled(curve) for curve in curves])
    labels: list[Box] = []
    total = 0
    for number, (edge, curve) in enumerate(zip(edges, curves, strict=True)):
        best: tuple[int, Box] | None = None
        for t in PLACES:
            label = Box(point_at(curve, t), edge.label)
            if any(label.overlaps(box, ARROW_END) for box in boxes) or any(
                label.overlaps(other, CLEARANCE / 2) for other in labels
            ):
                continue
            crossed = np.flatnonzero(label.covers(points, 2).any(axis=1))
            crossings = int((crossed != number).sum())
            if best is None or crossings < best[0]:
                best = (crossings, label)
            if not crossings:
                break
        if best is None:
            return None
        total += best[0]
        labels.append(best[1])
    return labels, total
