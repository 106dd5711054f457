"""The topologies of the simulation: a small family, each written as a user would write it."""

from __future__ import annotations

from functools import cache
from typing import Any

from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import parse_topology

ACK_TIMEOUT = 60_000
"""Milliseconds."""
KINDS = ("keyed", "keyless", "keyed events", "keyless events")
"""Of a table: captured at its writer, or the events of a user's query; with a key or without."""

SHAPES: dict[str, tuple[dict[str, tuple[str, str, list[str]]], dict[str, list[str]]]] = {
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
"""Senders (site, channel, remotes), and tables with their senders. No site would have to send on
what it has received: that is not in this version."""


@cache
def topology(shape: str, kinds: tuple[str, ...], ack_policy: str, snapshot: bool) -> Topology:
    """Return a topology of a shape. ``kinds``: of its tables, in turn. ``snapshot``: tables with
    keys begin with one."""
    carriers, carried = SHAPES[shape]
    names = {site: None for at, _, remotes in carriers.values() for site in (at, *remotes)}
    senders = {
        name: {
            "site": site,
            "channel": f"memory://{channel}",
            "remotes": remotes,
            "ack_policy": ack_policy,
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
    sites = {name: {"state": f"/state/{name}"} for name in names}
    content = {"version": 1, "sites": sites, "senders": senders, "tables": tables}
    return parse_topology(content, "simulation.yaml")


def _table(
    name: str, kind: str, senders: list[dict[str, Any]], attached: list[str], snapshot: bool
) -> dict[str, Any]:
    writer = senders[0]["site"]
    places = [remote for sender in senders for remote in sender["remotes"]]
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
