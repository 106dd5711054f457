"""A valid topology of three sites and variants of it; topologies by their senders and tables."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from spark_wan.errors import TopologyError
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import parse_topology

VALID: dict[str, Any] = yaml.safe_load("""
version: 1
sites:
  newark: {state: ./newark/_wan}
  seattle: {state: ./seattle/_wan}
  denver: {state: ./denver/_wan}
senders:
  east: {site: newark, remotes: [seattle], channel: ./channel}
  west: {site: newark, remotes: [denver], channel: ./channel_west}
  back: {site: seattle, remotes: [newark], channel: ./channel_back}
tables:
  flights:
    keys: [flight_id, day]
    writers: [newark]
    senders: [east]
    at: {newark: ./newark/flights, seattle: ./seattle/flights}
  readings:
    writers: [newark]
    senders: [east]
    at: {newark: main.raw.readings, seattle: "s3://bucket/readings"}
""")
REMOVED = object()


def changed(*changes: tuple[str, object]) -> dict[str, Any]:
    """The valid topology with the values at some key paths replaced, added or removed."""
    data = copy.deepcopy(VALID)
    for path, value in changes:
        *parents, last = path.split(".")
        place = data
        for key in parents:
            place = place[key]
        if value is REMOVED:
            del place[last]
        else:
            place[last] = value
    return data


def topology(*changes: tuple[str, object]) -> Topology:
    return parse_topology(changed(*changes), "/etc/wan/topology.yaml")


def refusal(*changes: tuple[str, object]) -> str:
    """The message that refuses the changed topology."""
    with pytest.raises(TopologyError) as error:
        topology(*changes)
    return str(error.value)


def two_sites(folder: Path, channel: str) -> Path:
    """Write the topology of a table that newark sends to seattle, in a folder."""
    sites = "newark", "seattle"
    content = {
        "version": 1,
        "sites": {site: {"state": f"./{site}"} for site in sites},
        "senders": {"east": {"site": "newark", "remotes": ["seattle"], "channel": channel}},
        "tables": {
            "orders": {
                "keys": ["id"],
                "writers": ["newark"],
                "senders": ["east"],
                "at": {site: f"./{site}/orders" for site in sites},
            }
        },
    }
    file = folder / "wan.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def linked(
    senders: Mapping[str, tuple[str, Sequence[str]]],
    tables: Mapping[str, Mapping[str, Any]],
    sites: Sequence[str] = (),
) -> Topology:
    """The topology with senders: name -> their site and remotes. Tables: name -> their settings;
    the writer of one is needed. By default all senders carry it, and all sites have it."""
    sites = sites or list(
        dict.fromkeys(site for first, others in senders.values() for site in (first, *others))
    )
    content = {
        "version": 1,
        "sites": {site: {"state": f"./{site}/_wan"} for site in sites},
        "senders": {
            name: {"site": site, "remotes": list(remotes), "channel": f"./channels/{name}"}
            for name, (site, remotes) in senders.items()
        },
        "tables": {
            name: {
                "keys": ["id"],
                "senders": list(senders),
                "at": {site: f"./{site}/{name}" for site in sites},
                **settings,
            }
            for name, settings in tables.items()
        },
    }
    return parse_topology(content, "wan.yaml")
