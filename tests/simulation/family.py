"""The topologies of the simulation, each written as a user would write it: a small family, and
random graphs."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import cache
from typing import Any

from spark_wan.errors import TopologyError
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import parse_topology

ACK_TIMEOUT = 60_000
"""Milliseconds."""
KINDS = ("keyed", "keyless", "keyed events", "keyless events")
"""Of a table: captured at its writer, or the events of a user's query; with a key or without."""

Shape = tuple[dict[str, tuple[str, str, list[str]]], dict[str, list[str]]]
"""Senders (site, channel, remotes), and tables with their senders. The site of its first sender
writes a table."""

SHAPES: dict[str, Shape] = {
    "one remote site": ({"east": ("newark", "east", ["seattle"])}, {"orders": ["east"]}),
    "two remote sites": ({"east": ("newark", "east", ["seattle", "tacoma"])}, {"orders": ["east"]}),
    "both ways": (
        {"east": ("newark", "link", ["seattle"]), "west": ("seattle", "link", ["newark"])},
        {"orders": ["east"], "items": ["west"]},
    ),
    "two tables": (
        {"east": ("newark", "east", ["seattle"])},
        {"orders": ["east"], "items": ["east"]},
    ),
    "two senders": (
        {"east": ("newark", "east", ["seattle"]), "north": ("newark", "north", ["tacoma"])},
        {"orders": ["east", "north"]},
    ),
}
"""No site sends on what it has received."""


def _linked(links: dict[str, list[list[str]]], *writers: str) -> Shape:
    """Return a shape in which every sender carries every table. ``links``: site -> the remotes of
    each of its senders."""
    senders = {
        f"{site}{number}": (site, f"of-{site}", remotes)
        for site, all_remotes in links.items()
        for number, remotes in enumerate(all_remotes)
    }
    tables = {}
    for writer in writers:
        own = [name for name, (site, _, _) in senders.items() if site == writer]
        tables[f"of_{writer}"] = own + [name for name in senders if name not in own]
    return senders, tables


FORWARDING: dict[str, Shape] = {
    "chain": _linked({"newark": [["boston"]], "boston": [["seattle"]]}, "newark"),
    "star": _linked({"hub": [["b", "c"]], "a": [["hub"]]}, "a"),
    "two senders forward": _linked({"newark": [["hub"]], "hub": [["b"], ["c"]]}, "newark"),
    "ring": _linked({"a": [["b"]], "b": [["c"]], "c": [["a"]]}, "a", "b"),
    "ring both ways": _linked(
        {"a": [["b"], ["c"]], "b": [["a"], ["c"]], "c": [["a"], ["b"]]}, "a", "c"
    ),
    "mesh": _linked({"a": [["b", "c"]], "b": [["a"], ["c"]], "c": [["a", "b"]]}, "b"),
    "mesh with a ray": _linked(
        {"x": [["a"]], "a": [["b", "c"], ["x"]], "b": [["a", "c"]], "c": [["a", "b"]]}, "x", "b"
    ),
    "tree": _linked({"a": [["b", "c"]], "b": [["d"], ["e"]], "c": [["f"]]}, "a"),
}
"""Sites send on what they receive."""


BEHIND: dict[str, Shape] = {
    "a part of chain": _linked({"newark": [["boston"]]}, "newark"),
    "a part of star": _linked({"hub": [["b"]], "a": [["hub"]]}, "a"),
    "a part of mesh": _linked({"a": [["b"]], "b": [["a"]]}, "b"),
}
"""Those to which a site is added, which then is behind another one."""


def _random_shape(choose: random.Random) -> Shape:
    """Return a random graph: a tree of four to six sites, whose links go both ways or away from the
    first site, and sometimes one link more."""
    sites = [f"s{n}" for n in range(choose.randint(4, 6))]
    to: dict[str, set[str]] = {site: set() for site in sites}
    for n, site in enumerate(sites[1:]):
        other = choose.choice(sites[: n + 1])
        to[other].add(site)
        if choose.random() < 0.5:
            to[site].add(other)
    if choose.random() < 0.5:
        one, other = choose.sample(sites, 2)
        to[one].add(other)
    links = {}
    for site, remotes in to.items():
        ordered = choose.sample(sorted(remotes), len(remotes))
        cut = choose.randint(0, len(ordered))
        links[site] = [part for part in (ordered[:cut], ordered[cut:]) if part]
    return _linked(links, sites[0])


@cache
def _supported_shape(number: int) -> Shape:
    """Return the random shape with a number. It is supported, for tables and user streams."""
    choose = random.Random(number)
    while True:
        shape = _random_shape(choose)
        with suppress(TopologyError):
            for kind in ("keyed", "keyed events"):
                _parsed(shape, (kind,), False)
            return shape


@cache
def topology(
    shape: str | int, kinds: tuple[str, ...], snapshot: bool, sync: str = "manual"
) -> Topology:
    """Return a topology of a shape, by its name or the number of a random one. ``kinds``: of its
    tables, in turn. ``snapshot``: tables with keys begin with one. ``sync``: the setting of all
    sites."""
    known = SHAPES | FORWARDING | BEHIND
    chosen = known[shape] if isinstance(shape, str) else _supported_shape(shape)
    return _parsed(chosen, kinds, snapshot, sync)


def _parsed(shape: Shape, kinds: tuple[str, ...], snapshot: bool, sync: str = "manual") -> Topology:
    carriers, carried = shape
    names = {site: None for at, _, remotes in carriers.values() for site in (at, *remotes)}
    senders = {
        name: {
            "site": site,
            "channel": f"memory://{channel}",
            "remotes": remotes,
            "ack_timeout": f"{ACK_TIMEOUT}ms",
            "batch_size": 2,
            "max_epoch_rows": 4,
        }
        for name, (site, channel, remotes) in carriers.items()
    }
    tables = {
        name: _table(name, kind, [senders[sender] for sender in attached], attached, snapshot)
        for (name, attached), kind in zip(carried.items(), kinds, strict=False)
    }
    sites = {name: {"state": f"/state/{name}", "sync": sync} for name in names}
    content = {"version": 1, "sites": sites, "senders": senders, "tables": tables}
    return parse_topology(content, "simulation.yaml")


def _table(
    name: str, kind: str, senders: list[dict[str, Any]], attached: list[str], snapshot: bool
) -> dict[str, Any]:
    writer = senders[0]["site"]
    own = [sender for sender in senders if sender["site"] == writer]
    if 1 < len(own) < len(senders):
        kind = kind.removesuffix(" events")  # each event leaves by one sender, so some get it twice
    places = {remote: None for sender in senders for remote in sender["remotes"]}
    entry: dict[str, Any] = {
        "keys": ["id"] if kind in ("keyed", "keyed events") else [],
        "writers": [writer],
        "senders": attached,
        "at": {site: f"/tables/{site}/{name}" for site in places},
        "on_table_operation": "distribute",
    }
    if kind.endswith("events"):
        return {**entry, "source": "sink"}
    if kind == "keyed":
        entry["start"] = "snapshot" if snapshot else {"version": 0}
    return {**entry, "at": {**entry["at"], writer: f"/tables/{writer}/{name}"}}
