"""The picture of a topology as SVG."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from topologies import linked

from spark_wan.drawing.graph import graph_of
from spark_wan.drawing.svg import draw_svg
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import load_topology

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted(ROOT.glob("conf/**/*.yaml"))
DRAWN = sorted((ROOT / "docs/images/topologies").glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"

Rectangle = tuple[float, float, float, float]


def drawn(topology: Topology, table: str | None = None) -> ElementTree.Element:
    return ElementTree.fromstring(draw_svg(graph_of(topology, table), "a title"))


def of_class(svg: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [element for element in svg.iter() if element.get("class") == kind]


def texts(group: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in group.iter(f"{SVG}text")]


def rectangle(group: ElementTree.Element) -> Rectangle:
    (box,) = group.iter(f"{SVG}rect")
    x, y, width, height = (float(box.get(name, "")) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def ends(path: ElementTree.Element) -> tuple[tuple[float, float], tuple[float, float]]:
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", path.get("d", ""))]
    return (numbers[0], numbers[1]), (numbers[-2], numbers[-1])


def distance(box: Rectangle, point: tuple[float, float]) -> float:
    """How far a point is from the border of a box."""
    (left, top, right, bottom), (x, y) = box, point
    if left <= x <= right and top <= y <= bottom:
        return min(x - left, right - x, y - top, bottom - y)
    return max(left - x, x - right, y - top if y < top else 0, y - bottom)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_every_site_and_sender_is_there_and_arrows_end_at_boxes(file: Path) -> None:
    topology = load_topology(file)
    svg = drawn(topology)
    sites = {texts(group)[0]: rectangle(group) for group in of_class(svg, "site")}
    assert list(sites) == list(topology.sites)
    expected = [(sender, to) for sender in topology.senders.values() for to in sender.remotes]
    paths, labels = of_class(svg, "sender"), of_class(svg, "label")
    assert [texts(label)[0] for label in labels] == [sender.name for sender, _ in expected]
    for (sender, remote), path in zip(expected, paths, strict=True):
        start, end = ends(path)
        assert distance(sites[sender.site], start) < 0.2
        assert distance(sites[remote], end) < 0.2
        assert path.get("marker-end") in ("url(#arrow)", "url(#pale-arrow)")


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_the_text_of_a_box_fits_in_it(file: Path) -> None:
    """In the fonts of the picture a character is 0.6 wide."""
    svg = drawn(load_topology(file))
    for group in of_class(svg, "site") + of_class(svg, "label"):
        left, top, right, bottom = rectangle(group)
        lines = list(group.iter(f"{SVG}text"))
        heights = [float(line.get("y", "")) for line in lines]
        assert heights == sorted(heights) and top + 10 < heights[0] and heights[-1] < bottom - 2
        for line in lines:
            width = len(line.text or "") * float(line.get("font-size", "")) * 0.602
            middle = float(line.get("x", ""))
            assert left + 2 < middle - width / 2 and middle + width / 2 < right - 2


def test_labels_say_what_travels_and_writers_are_marked() -> None:
    svg = drawn(load_topology(ROOT / "conf/four_sites.yaml"))
    labels = [texts(label) for label in of_class(svg, "label")]
    assert ["west", "orders", "readings"] in labels and ["back", "stock"] in labels
    sites = {texts(group)[0]: group for group in of_class(svg, "site")}
    assert texts(sites["newark"]) == ["newark", "writes orders,", "readings"]
    fills = {site: group.find(f"{SVG}rect").get("fill") for site, group in sites.items()}  # type: ignore[union-attr]
    assert fills["newark"] == fills["seattle"] != fills["chicago"] == fills["denver"]


def test_a_link_without_tables_is_dashed_and_says_so() -> None:
    topology = linked(
        {"ab": ("a", "b"), "ba": ("b", "a")}, {"orders": {"writers": ["a"], "senders": ["ab"]}}
    )
    svg = drawn(topology)
    assert [texts(label) for label in of_class(svg, "label")] == [
        ["ab", "orders"],
        ["ba", "no table"],
    ]
    dashes = [path.get("stroke-dasharray") for path in of_class(svg, "sender")]
    assert dashes[0] is None and dashes[1]


def test_a_site_that_drops_duplicates_says_so() -> None:
    svg = drawn(load_topology(ROOT / "conf/topologies/two_ways.yaml"))
    sites = [texts(group) for group in of_class(svg, "site")]
    assert ["seattle", "drops duplicates of orders"] in sites


def test_a_table_alone_has_its_own_sites_and_links() -> None:
    topology = load_topology(ROOT / "conf/topologies/ring.yaml")
    svg = drawn(topology, "orders")
    labels = [texts(label) for label in of_class(svg, "label")]
    assert labels == [
        [f"from_{site}", "orders"] for site in ("newark", "chicago", "denver", "seattle")
    ]
    pair = linked(
        {"ab": ("a", "b"), "bc": ("b", "c")},
        {
            "t": {"writers": ["a"], "senders": ["ab"], "at": {"a": "./a/t", "b": "./b/t"}},
            "u": {"writers": ["b"], "senders": ["bc"], "at": {"b": "./b/u", "c": "./c/u"}},
        },
    )
    assert [texts(group)[0] for group in of_class(drawn(pair, "t"), "site")] == ["a", "b"]


def test_long_lists_of_tables_are_cut_and_complete_in_the_tooltip() -> None:
    names = [f"t{number}" for number in range(20)]
    svg = drawn(linked({"ab": ("a", "b")}, {name: {"writers": ["a"]} for name in names}))
    (label,) = of_class(svg, "label")
    assert texts(label) == ["ab", "t0", "t1", "t2", "and 17 more"]
    assert label.findtext(f"{SVG}title") == f"ab: a -> b: {', '.join(names)}"


def test_a_picture_is_for_screen_readers_too() -> None:
    svg = drawn(load_topology(ROOT / "conf/topologies/pair.yaml"))
    assert svg.get("role") == "img"
    named = {element.get("id"): element.text for element in svg if element.get("id")}
    assert [named[name] for name in svg.get("aria-labelledby", "").split()] == [
        "a title",
        "Sites: newark, seattle. newark writes orders. seattle writes stock. "
        "newark sends orders to seattle by east. seattle sends stock to newark by west.",
    ]


def test_names_are_escaped() -> None:
    """Fails when text goes into the document as it is. Names have no such characters today; titles
    are names of files."""
    topology = linked({"ab": ("a", "b")}, {"t": {"writers": ["a"]}})
    odd = "<script>&\"'"
    sender = replace(topology.sender("ab"), name=odd)
    odd_one = replace(
        topology,
        senders={odd: sender},
        tables={odd: replace(topology.table("t"), name=odd, senders=(odd,))},
    )
    svg = ElementTree.fromstring(draw_svg(graph_of(odd_one), odd))
    assert svg.findtext(f"{SVG}title") == odd
    assert texts(of_class(svg, "label")[0]) == [odd, odd]


@pytest.mark.parametrize("title", ["Grüße.yaml", "a\x01b.yaml", "caf\udce9.yaml"])
def test_a_title_of_any_characters_is_valid_xml_in_ascii(title: str) -> None:
    picture = draw_svg(graph_of(linked({}, {}, sites="a")), title)
    assert picture.isascii()
    shown = ElementTree.fromstring(picture).findtext(f"{SVG}title") or ""
    assert (len(shown), shown[-5:]) == (len(title), ".yaml")


def test_a_picture_has_its_own_background_and_needs_nothing_from_elsewhere() -> None:
    svg = drawn(load_topology(ROOT / "conf/four_sites.yaml"))
    background = next(iter(svg.findall(f"{SVG}rect")))
    assert [background.get(name) for name in ("width", "height")] == [
        svg.get("width"),
        svg.get("height"),
    ]
    assert background.get("fill") == "#ffffff"
    tags = {element.tag.removeprefix(SVG) for element in svg.iter()}
    assert tags <= {"svg", "title", "desc", "defs", "marker", "path", "rect", "g", "text"}
    values = [value for element in svg.iter() for value in element.attrib.values()]
    assert not [value for value in values if "://" in value or "@import" in value]
    assert {value for value in values if "url(" in value} <= {"url(#arrow)", "url(#pale-arrow)"}


@pytest.mark.parametrize(
    ("sites", "senders", "tables"),
    [
        ("", {}, {}),
        ("a", {}, {"t": {"writers": ["a"], "senders": [], "at": {"a": "./a/t"}}}),
        ("ab", {}, {}),
        ("ab", {"ab": ("a", "b"), "too": ("a", "b"), "ba": ("b", "a")}, {}),
    ],
    ids=["nothing", "a site alone", "two sites", "senders without tables"],
)
def test_whatever_validate_accepts_is_drawn(
    sites: str, senders: dict[str, tuple[str, str]], tables: dict[str, Any]
) -> None:
    topology = linked(senders, tables, sites=sites)
    svg = drawn(topology)
    assert [texts(group)[0] for group in of_class(svg, "site")] == list(sites)
    assert [texts(group)[0] for group in of_class(svg, "label")] == list(senders)


def test_a_table_that_a_sink_writes_is_written_where_its_query_runs() -> None:
    topology = linked(
        {"ab": ("a", "b")}, {"t": {"writers": ["a"], "source": "sink", "at": {"b": "./b/t"}}}
    )
    for table in (None, "t"):
        sites = [texts(group) for group in of_class(drawn(topology, table), "site")]
        assert sites == [["a", "writes t"], ["b"]]


@pytest.mark.parametrize("picture", DRAWN, ids=lambda file: file.name)
def test_the_pictures_on_the_pages_are_those_of_the_examples(picture: Path) -> None:
    """After a change draw them again: ``spark-wan topology -c conf/… --svg docs/images/…``."""
    (file,) = ROOT.glob(f"conf/**/{picture.stem}.yaml")
    assert picture.read_text() == draw_svg(graph_of(load_topology(file)), file.name)


def test_all_usual_topologies_are_drawn() -> None:
    examples = [file.stem for file in EXAMPLES if file.parent.name == "topologies"]
    assert {picture.stem for picture in DRAWN} == {*examples, "four_sites"}
