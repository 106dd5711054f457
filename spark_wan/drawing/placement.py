"""Where the boxes of a graph may go, and how arrows lead from one to another.

Sites that form a tree (also a chain) are laid out as one, from left to right or from top to bottom.
The rays of a star are around the site in its center. All others are on a circle, in the order that
makes their arrows shortest: a ring is a ring.
"""

from __future__ import annotations

import cmath
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from spark_wan.drawing.geometry import Box, Curve

MARGIN = 24.0
"""Around boxes and labels, at least."""
STUB = 32.0
"""What is seen of an arrow before its label, and behind it."""
LEAN = 0.15
"""How far an arrow to a site aside starts from the middle of its box, as a part of the way."""

SPREAD = 11 / 9
"""How far aside a curve bends, for it to be as far aside as asked in its middle. At a fork most of
that is behind it, so that arrows to different sites part first."""

RIGHT, DOWN = complex(1, 0), complex(0, 1)


@dataclass(frozen=True)
class Edge:
    """An arrow to be drawn, the size of its label, and how much travels on it."""

    start: str
    end: str
    label: complex
    weight: int = 1


@dataclass(frozen=True)
class Placement:
    """A way to draw sites that are connected."""

    boxes: Callable[[float], Mapping[str, Box]]
    """Returns the boxes for an amount of room; 1 is the least."""
    curve: Callable[[Box, Box, complex], Curve]
    """Returns an arrow from within a box to within another one. In its middle it is about as far
    aside as the last argument says."""


def parts_of(sites: Sequence[str], edges: Sequence[Edge]) -> list[list[str]]:
    """Return the sites that are connected with each other, part by part."""
    neighbours = _neighbours(edges)
    parts: list[list[str]] = []
    for site in sites:
        if not any(site in part for part in parts):
            reached = _breadth_first(site, neighbours)
            parts.append([each for each in sites if each in reached])
    return parts


def placements(sizes: Mapping[str, complex], edges: Sequence[Edge]) -> list[Placement]:
    """Return the ways to draw sites that are connected; of equally good ones the first is best.
    ``sizes`` has the sizes of their boxes."""
    sites, neighbours = list(sizes), _neighbours(edges)
    if sum(map(len, neighbours.values())) > 2 * (len(sites) - 1):
        return [Placement(_circle(sizes, _order(sites, edges)), _bow)]
    root = _root(sites, edges)
    rays = neighbours[root]
    if 2 < len(rays) == len(sites) - 1:
        return [Placement(_circle(sizes, rays, root), _bow)]
    return [
        Placement(_tree(sizes, edges, root, RIGHT), _curve_along(RIGHT)),
        Placement(_tree(sizes, edges, root, DOWN), _curve_along(DOWN)),
    ]


def _neighbours(edges: Sequence[Edge]) -> dict[str, list[str]]:
    """Return to whom, or from whom, arrows of each site lead."""
    found: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        for site, other in ((edge.start, edge.end), (edge.end, edge.start)):
            if other not in found[site]:
                found[site].append(other)
    return found


def _breadth_first(root: str, neighbours: Mapping[str, list[str]]) -> dict[str, str | None]:
    """Return the sites that can be reached, nearest first, each with the site before it."""
    before: dict[str, str | None] = {root: None}
    queue = [root]
    for site in queue:
        for other in neighbours[site]:
            if other not in before:
                before[other] = site
                queue.append(other)
    return before


# Trees


def _root(sites: Sequence[str], edges: Sequence[Edge]) -> str:
    """Return the site from which a tree is best drawn: most of what travels leads away from it; a
    chain begins at an end of it; all others are near it. Of equals, the first one."""
    neighbours = _neighbours(edges)
    is_chain = all(len(neighbours[site]) <= 2 for site in sites)

    def rank(site: str) -> tuple[bool, int, int]:
        before = _breadth_first(site, neighbours)
        back = sum(edge.weight for edge in edges if before[edge.start] == edge.end)
        return is_chain and len(neighbours[site]) > 1, back, max(_depths(before).values())

    return min(sites, key=rank)


def _depths(before: Mapping[str, str | None]) -> dict[str, int]:
    depths: dict[str, int] = {}
    for site, parent in before.items():
        depths[site] = 0 if parent is None else depths[parent] + 1
    return depths


def _tree(
    sizes: Mapping[str, complex], edges: Sequence[Edge], root: str, unit: complex
) -> Callable[[float], Mapping[str, Box]]:
    """Return the boxes of a tree that grows to the right or downwards."""
    before = _breadth_first(root, _neighbours(edges))
    depths = _depths(before)
    children: dict[str, list[str]] = defaultdict(list)
    for site, parent in before.items():
        if parent is not None:
            children[parent].append(site)
    levels = [0.0] * (max(depths.values()) + 1)
    gaps = [0.0] * len(levels)
    labels: dict[str, float] = defaultdict(float)
    for site, depth in depths.items():
        levels[depth] = max(levels[depth], _along(sizes[site], unit))
    for edge in edges:
        child = max(edge.start, edge.end, key=depths.__getitem__)
        labels[child] += _across(edge.label, unit) + MARGIN / 2
        gap = _along(edge.label, unit) + 2 * STUB
        gaps[depths[child]] = max(gaps[depths[child]], gap)
    slot = max(max(_across(size, unit), labels[site]) for site, size in sizes.items()) + MARGIN

    def boxes(room: float) -> Mapping[str, Box]:
        depth_at = [levels[0] / 2]
        for depth in range(1, len(levels)):
            half = (levels[depth - 1] + levels[depth]) / 2
            depth_at.append(depth_at[-1] + half + gaps[depth] * room)
        aside: dict[str, float] = {}
        leaves = 0
        for site in _leaves_first(root, children):
            if children[site]:
                aside[site] = (aside[children[site][0]] + aside[children[site][-1]]) / 2
            else:
                aside[site] = leaves * slot * room
                leaves += 1
        across = complex(unit.imag, unit.real)
        return {
            site: Box(unit * depth_at[depths[site]] + across * aside[site], size)
            for site, size in sizes.items()
        }

    return boxes


def _leaves_first(site: str, children: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield a site after all that is behind it."""
    for child in children[site]:
        yield from _leaves_first(child, children)
    yield site


def _along(size: complex, unit: complex) -> float:
    return size.real if unit == RIGHT else size.imag


def _across(size: complex, unit: complex) -> float:
    return size.imag if unit == RIGHT else size.real


def _curve_along(unit: complex) -> Callable[[Box, Box, complex], Curve]:
    """Return curves that leave and reach boxes in the direction of a tree."""

    def curve(start: Box, end: Box, aside: complex) -> Curve:
        away = end.center - start.center
        half = unit * _along(away, unit) / 2
        port = (aside - unit * _along(aside, unit)) / 3
        lean = (away - 2 * half) * LEAN
        bends = (SPREAD, SPREAD) if abs(lean) < 1 else (SPREAD / 3, SPREAD * 5 / 3)
        first, last = bends if _along(away, unit) > 0 else reversed(bends)
        return (
            start.center + start.within(port + lean),
            start.center + half + aside * first,
            end.center - half + aside * last,
            end.center + end.within(port - lean),
        )

    return curve


# Circles


def _order(sites: Sequence[str], edges: Sequence[Edge]) -> list[str]:
    """Return the order on a circle in which sites that are linked are near each other: sites change
    places, and stretches are turned, while that makes the sum of the distances smaller."""
    pairs = {(edge.start, edge.end) for edge in edges}

    def length(order: Sequence[str]) -> int:
        places = {site: number for number, site in enumerate(order)}
        steps = (abs(places[start] - places[end]) for start, end in pairs)
        return sum(min(step, len(order) - step) for step in steps)

    order, least = list(sites), length(sites)
    improved = True
    while improved:
        improved = False
        for first in range(1, len(order)):
            for last in range(first + 1, len(order)):
                between = order[first + 1 : last]
                swapped = [order[last], *between, order[first]]
                turned = [order[last], *reversed(between), order[first]]
                for stretch in (swapped, turned):
                    changed = order[:first] + stretch + order[last + 1 :]
                    if (now := length(changed)) < least:
                        order, least, improved = changed, now, True
    return order


def _circle(
    sizes: Mapping[str, complex], order: Sequence[str], center: str | None = None
) -> Callable[[float], Mapping[str, Box]]:
    """Return boxes on a circle, a little wider than high, around ``center`` if there is one. The
    first site is at the top; of an even number, it is the left one of two."""
    count = len(order)
    first = -math.pi / 2 - (0 if count % 2 else math.pi / count)
    radius = 50.0 / math.sin(math.pi / count)

    def boxes(room: float) -> Mapping[str, Box]:
        placed = {} if center is None else {center: Box(0, sizes[center])}
        for number, site in enumerate(order):
            point = cmath.rect(radius * room, first + 2 * math.pi * number / count)
            placed[site] = Box(complex(point.real * 1.3, point.imag), sizes[site])
        return placed

    return boxes


def _bow(start: Box, end: Box, aside: complex) -> Curve:
    """Return a straight line from center to center, or a curve that is ``aside`` in its middle."""
    away = end.center - start.center
    return (
        start.center,
        start.center + away / 3 + aside * 4 / 3,
        end.center - away / 3 + aside * 4 / 3,
        end.center,
    )
