"""In a picture nothing is on anything else, and arrows end at boxes, whatever the graph is."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from spark_wan.drawing.geometry import Box, Curve, sampled
from spark_wan.drawing.layout import Layout, arrange
from spark_wan.drawing.placement import Edge

GRAPHS = 150
BOX, LABEL = complex(110, 50), complex(70, 42)

CHAIN = [("a", "b"), ("b", "c"), ("c", "d")]
STAR = [("hub", ray) for ray in "abcde"]
RING = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "a")]
MESH = [(start, end) for start in "abcd" for end in "abcd" if start != end]
TREE = [("r", "a"), ("r", "b"), ("a", "c"), ("a", "d"), ("b", "e"), ("b", "f")]
SHAPES = {"chain": CHAIN, "star": STAR, "ring": RING, "mesh": MESH, "tree": TREE}


def drawn(
    pairs: list[tuple[str, str]], weights: dict[tuple[str, str], int] | None = None
) -> Layout:
    sites = dict.fromkeys(site for pair in pairs for site in pair)
    edges = [Edge(*pair, LABEL, (weights or {}).get(pair, 1)) for pair in pairs]
    return arrange(dict.fromkeys(sites, BOX), edges)


def is_on_border(box: Box, point: complex) -> bool:
    return box.contains(point, 0.01) and not box.contains(point, -0.01)


def check(layout: Layout, edges: list[Edge]) -> None:
    """Check what holds for all pictures."""
    boxes = list(layout.boxes.values())
    labels = [arrow.label for arrow in layout.arrows]
    for one, other in combinations([*boxes, *labels], 2):
        assert not one.overlaps(other)
    for edge, arrow in zip(edges, layout.arrows, strict=True):
        assert is_on_border(layout.boxes[edge.start], arrow.curve[0])
        assert is_on_border(layout.boxes[edge.end], arrow.curve[-1])
        assert arrow.label.size == edge.label
        on_arrow = min(abs(point - arrow.label.center) for point in sampled(arrow.curve))
        assert on_arrow < abs(arrow.curve[-1] - arrow.curve[0]) / 10
        for site, box in layout.boxes.items():
            if site not in (edge.start, edge.end):
                assert not any(box.contains(point) for point in sampled(arrow.curve))
    whole = Box(layout.size / 2, layout.size)
    for box in (*boxes, *labels):
        assert whole.contains(box.corner) and whole.contains(box.corner + box.size)


def random_graph(choose: random.Random) -> tuple[dict[str, complex], list[Edge]]:
    """Sites with boxes and labels of all sizes. Some are not connected, others several times."""
    sites = "abcdefghijkl"[: choose.randint(1, 12)]
    wide = choose.choice([60, 400])
    sizes = {site: complex(choose.randint(40, wide), choose.randint(30, 90)) for site in sites}
    pairs: list[tuple[str, str]] = []
    if choose.random() < 0.5:
        pairs += [(choose.choice(sites[:place]), sites[place]) for place in range(1, len(sites))]
    if len(sites) > 1:
        pairs += [
            (start, end)
            for start, end in (choose.sample(sites, 2) for _ in range(choose.randint(0, 8)))
        ]
    edges = [
        Edge(*pair, complex(choose.randint(20, wide), choose.randint(20, 90))) for pair in pairs
    ]
    return sizes, edges


def test_nothing_overlaps_in_pictures_of_random_graphs() -> None:
    """Fails without the checks of arrows and labels that ask for more room."""
    for seed in range(GRAPHS):
        sizes, edges = random_graph(random.Random(seed))
        check(arrange(sizes, edges), edges)


def test_wide_boxes_that_no_arrow_parts_do_not_overlap() -> None:
    """Rays of a star, whose labels have room enough."""
    edges = [Edge("hub", ray, complex(20, 20)) for ray in "abcdefgh"]
    check(
        arrange({"hub": complex(40, 30), **dict.fromkeys("abcdefgh", complex(400, 30))}, edges),
        edges,
    )


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_label_is_on_a_foreign_arrow_in_usual_shapes(shape: str, both_ways: bool) -> None:
    pairs = SHAPES[shape]
    if both_ways:
        pairs = list(dict.fromkeys([*pairs, *((end, start) for start, end in pairs)]))
    layout = drawn(pairs)
    check(layout, [Edge(*pair, LABEL) for pair in pairs])
    for one, other in combinations(layout.arrows, 2):
        assert not any(one.label.contains(point) for point in sampled(other.curve))
        assert not any(other.label.contains(point) for point in sampled(one.curve))


def test_the_same_graph_has_the_same_picture() -> None:
    assert drawn(MESH) == drawn(MESH)


def test_a_short_chain_is_a_line_to_the_right_and_a_long_one_a_line_down() -> None:
    centers = [box.center for box in drawn(CHAIN).boxes.values()]
    assert [point.real for point in centers] == sorted(point.real for point in centers)
    assert len({point.imag for point in centers}) == 1
    long = [(f"s{number}", f"s{number + 1}") for number in range(11)]
    centers = [box.center for box in drawn(long).boxes.values()]
    assert [point.imag for point in centers] == sorted(point.imag for point in centers)
    assert len({point.real for point in centers}) == 1


def test_a_chain_begins_at_an_end_of_it() -> None:
    boxes = drawn([("b", "c"), ("b", "a")]).boxes
    assert boxes["b"].center.real == sorted(box.center.real for box in boxes.values())[1]


def test_a_ring_is_a_ring_whatever_the_order_of_its_sites() -> None:
    """Fails when sites are on the circle in the order of the file: arrows would cross."""
    edges = [Edge(start, end, LABEL) for start, end in ("ad", "db", "be", "ec", "ca")]
    layout = arrange(dict.fromkeys("abcde", BOX), edges)
    for one, other in combinations((arrow.curve for arrow in layout.arrows), 2):
        assert not crosses(one, other)


def test_a_star_has_its_rays_around_its_center() -> None:
    boxes = dict(drawn(STAR).boxes)
    hub = boxes.pop("hub").center
    away = [box.center - hub for box in boxes.values()]
    assert min(p.real for p in away) < -50 < 50 < max(p.real for p in away)
    assert min(p.imag for p in away) < -50 < 50 < max(p.imag for p in away)


def test_a_tree_grows_from_where_most_comes_from() -> None:
    """newark -> chicago -> {denver, seattle} is no star, also if a little goes back."""
    pairs = [("n", "c"), ("c", "n"), ("c", "d"), ("c", "s"), ("s", "c")]
    boxes = drawn(pairs, {("n", "c"): 2, ("c", "d"): 2, ("c", "s"): 2}).boxes
    columns = [boxes[site].center.real for site in "ncds"]
    assert columns[0] < columns[1] < columns[2] == columns[3]


def test_parts_that_are_not_connected_are_one_below_the_other() -> None:
    edges = [Edge("a", "b", LABEL), Edge("c", "d", LABEL)]
    boxes = arrange(dict.fromkeys("acebd", BOX), edges).boxes
    heights = [boxes[site].center.imag for site in "abcde"]
    assert heights[0] == heights[1] < heights[2] == heights[3] < heights[4]


def crosses(one: Curve, other: Curve) -> bool:
    """Whether two arrows without bows cross."""

    def turn(a: complex, b: complex, c: complex) -> bool:
        return ((b - a).conjugate() * (c - a)).imag > 0

    a, b, c, d = one[0], one[-1], other[0], other[-1]
    return turn(a, b, c) != turn(a, b, d) and turn(c, d, a) != turn(c, d, b)
