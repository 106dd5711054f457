"""The picture of a topology, as SVG for a browser or a README.

It has a background of its own, and needs no fonts, scripts or files from elsewhere. The same graph
gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from spark_wan.drawing.geometry import Box, Curve
from spark_wan.drawing.graph import Graph, Link
from spark_wan.drawing.layout import Arrow, arrange
from spark_wan.drawing.placement import Edge

FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
NAME_SIZE = 15
TEXT_SIZE = 12
CHARACTER = 0.61
"""Width of a character, as a part of the font's size: the same for all in these fonts."""
LINE = 1.35
"""Height of a line, as a part of the font's size."""
MOST_NAMES = 4
"""Number of names that a label lists, at most; its tooltip has all."""

INK, LINES, PAPER, PALE = "#0f172a", "#334155", "#ffffff", "#64748b"
SITE, WRITER, SENDER = "#f1f5f9", "#dbeafe", "#1d4ed8"

Text = tuple[str, str, int, str]
"""A line of text: its text, color, size and weight."""


def draw_svg(graph: Graph, title: str) -> str:
    """Return an SVG document, in ASCII: sites as boxes, those that write a table colored; senders
    as arrows to their remotes with the tables that travel on them, dashed where none does."""
    # XML has no control characters, and names of files may have them.
    title = "".join(character if character.isprintable() else "?" for character in title)
    boxes = {site: _site_lines(graph, site) for site in graph.sites}
    labels = [_link_lines(link) for link in graph.links]
    layout = arrange(
        {site: _size(lines, complex(28, 20)) for site, lines in boxes.items()},
        [
            Edge(link.sender.site, link.remote, _size(lines, complex(14, 8)), len(link.tables))
            for link, lines in zip(graph.links, labels, strict=True)
        ],
    )
    width, height = _number(layout.size.real), _number(layout.size.imag)
    svg = ElementTree.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "width": width,
            "height": height,
            "viewBox": f"0 0 {width} {height}",
            "role": "img",
            "aria-labelledby": "title description",
            "font-family": FONT,
        },
    )
    _add(svg, "title", title, id="title")
    _add(svg, "desc", _description(graph), id="description")
    _add_arrowheads(svg)
    _add(svg, "rect", width=width, height=height, fill=PAPER)
    for link, arrow in zip(graph.links, layout.arrows, strict=True):
        _add_arrow(svg, link, arrow)
    for link, lines, arrow in zip(graph.links, labels, layout.arrows, strict=True):
        group = _add(svg, "g", **{"class": "label"})
        _add(group, "title", _tooltip(link))
        _add_box(group, arrow.label, lines, fill=PAPER, stroke="#cbd5e1", rx="4")
    for site, lines in boxes.items():
        fill = WRITER if graph.written_at(site) else SITE
        group = _add(svg, "g", **{"class": "site"})
        _add(group, "title", "; ".join([site, *_site_facts(graph, site)]))
        _add_box(group, layout.boxes[site], lines, fill=fill, stroke=LINES, rx="8")
    ElementTree.indent(svg)
    return ElementTree.tostring(svg).decode("ascii") + "\n"


def _site_facts(graph: Graph, site: str) -> list[str]:
    facts = []
    if written := graph.written_at(site):
        facts.append(f"writes {', '.join(written)}")
    if repeated := graph.repeated_at(site):
        facts.append(f"drops duplicates of {', '.join(repeated)}")
    return facts


def _site_lines(graph: Graph, site: str) -> list[Text]:
    lines: list[Text] = [(site, INK, NAME_SIZE, "bold")]
    for verb, tables in (
        ("writes", graph.written_at(site)),
        ("drops duplicates of", graph.repeated_at(site)),
    ):
        if tables:
            listed = f"{verb} {', '.join(_shortened(tables))}".replace(", ", ",\n")
            lines += [(text, LINES, TEXT_SIZE, "normal") for text in listed.splitlines()]
    return lines


def _link_lines(link: Link) -> list[Text]:
    names = _shortened(link.tables) or ["no table"]
    color = INK if link.tables else PALE
    head: Text = (link.sender.name, SENDER if link.tables else PALE, TEXT_SIZE, "bold")
    return [head, *((name, color, TEXT_SIZE, "normal") for name in names)]


def _shortened(names: Sequence[str]) -> list[str]:
    if len(names) <= MOST_NAMES:
        return list(names)
    shown = MOST_NAMES - 1
    return [*names[:shown], f"and {len(names) - shown} more"]


def _tooltip(link: Link) -> str:
    return f"{link.sender.name}: {link}: {', '.join(link.tables) or 'no table'}"


def _description(graph: Graph) -> str:
    """Return the picture in words, for those who cannot see it."""
    facts = [f"{site} {fact}." for site in graph.sites for fact in _site_facts(graph, site)]
    sent = (
        f"{link.sender.site} sends {', '.join(link.tables) or 'no table'} to {link.remote} "
        f"by {link.sender.name}."
        for link in graph.links
    )
    return " ".join((f"Sites: {', '.join(graph.sites)}.", *facts, *sent))


def _size(lines: Sequence[Text], padding: complex) -> complex:
    width = max(len(text) * size * CHARACTER for text, _, size, _ in lines)
    height = sum(size * LINE for _, _, size, _ in lines)
    return complex(round(width), round(height)) + padding


def _add_arrowheads(svg: ElementTree.Element) -> None:
    """Define the heads; their tips are at the ends of the lines."""
    defs = _add(svg, "defs")
    for name, color in (("arrow", LINES), ("pale-arrow", PALE)):
        head = _add(
            defs,
            "marker",
            id=name,
            viewBox="0 0 10 10",
            refX="10",
            refY="5",
            markerWidth="9",
            markerHeight="9",
            markerUnits="userSpaceOnUse",
            orient="auto",
        )
        _add(head, "path", d="M0 0 L10 5 L0 10 z", fill=color)


def _add_arrow(svg: ElementTree.Element, link: Link, arrow: Arrow) -> None:
    style = {"stroke": LINES, "marker-end": "url(#arrow)"}
    if not link.tables:
        style = {"stroke": PALE, "marker-end": "url(#pale-arrow)", "stroke-dasharray": "5 4"}
    path = _path(arrow.curve)
    _add(
        svg, "path", **{"class": "sender", "d": path, "fill": "none", "stroke-width": "1.6"} | style
    )


def _path(curve: Curve) -> str:
    start, *others = (f"{_number(point.real)} {_number(point.imag)}" for point in curve)
    return f"M{start} C{' '.join(others)}"


def _add_box(group: ElementTree.Element, box: Box, lines: Sequence[Text], **style: str) -> None:
    corner = box.corner
    _add(
        group,
        "rect",
        x=_number(corner.real),
        y=_number(corner.imag),
        width=_number(box.size.real),
        height=_number(box.size.imag),
        **style,
    )
    bottom = box.center.imag - sum(size * LINE for _, _, size, _ in lines) / 2
    for text, color, size, weight in lines:
        bottom += size * LINE
        _add(
            group,
            "text",
            text,
            **{
                "x": _number(box.center.real),
                "y": _number(bottom - size * (LINE - 1) / 2 - size * 0.2),
                "text-anchor": "middle",
                "font-size": str(size),
                "font-weight": weight,
                "fill": color,
            },
        )


def _add(
    parent: ElementTree.Element, tag: str, text: str | None = None, **attributes: str
) -> ElementTree.Element:
    element = ElementTree.SubElement(parent, tag, attributes)
    element.text = text
    return element


def _number(value: float) -> str:
    """Return a number with one decimal at most."""
    return f"{value:.1f}".removesuffix(".0")
