"""A topology as a graph: sites, and what travels between them on paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from spark_wan.topology.model import Sender, Stream, Table, Topology
from spark_wan.topology.routes import streams_of


@dataclass(frozen=True)
class Link:
    """The way of a sender to one of its remotes."""

    sender: Sender
    remote: str
    tables: tuple[str, ...]
    """Whose rows travel on it, in the order of the file. May be empty: no table is attached to the
    sender, or the remote gets its rows from others."""

    def __str__(self) -> str:
        return f"{self.sender.site} -> {self.remote}"


@dataclass(frozen=True)
class Graph:
    """The sites and links of a topology, or those of one table."""

    tables: tuple[Table, ...]
    sites: tuple[str, ...]
    links: tuple[Link, ...]
    streams: tuple[Stream, ...]
    """Those of a table together, with fewer hops first."""
    ways: Mapping[str, Mapping[str, int]]
    """By how many ways a site gets a table: table -> site -> number. Of what it gets by more than
    one, it drops duplicates."""

    def written_at(self, site: str) -> tuple[str, ...]:
        """Return the tables that a site writes."""
        return tuple(table.name for table in self.tables if site in table.writers)

    def repeated_at(self, site: str) -> tuple[str, ...]:
        """Return the tables that a site gets by several ways, and whose duplicates it drops."""
        return tuple(table for table, counts in self.ways.items() if counts.get(site, 0) > 1)


def graph_of(topology: Topology, table: str | None = None) -> Graph:
    """Return the graph of a topology: all sites, senders and tables. With ``table``, the sites that
    have the table, and the links on which it travels. Raises TopologyError if it is unknown."""
    tables = tuple(topology.tables.values()) if table is None else (topology.table(table),)
    streams = tuple(chain.from_iterable(streams_of(topology, each) for each in tables))
    links = (
        Link(sender, remote, _travelling(sender, remote, streams))
        for sender in topology.senders.values()
        for remote in sender.remotes
    )
    having = set(chain.from_iterable((*each.writers, *each.at) for each in tables))
    return Graph(
        tables=tables,
        sites=tuple(site for site in topology.sites if table is None or site in having),
        links=tuple(link for link in links if table is None or link.tables),
        streams=streams,
        ways={each.name: _ways(each, streams) for each in tables},
    )


def _travelling(sender: Sender, remote: str, streams: tuple[Stream, ...]) -> tuple[str, ...]:
    names = (
        stream.table.name
        for stream in streams
        if stream.sender.name == sender.name and remote in stream.addressees
    )
    return tuple(dict.fromkeys(names))


def _ways(table: Table, streams: tuple[Stream, ...]) -> Counter[str]:
    """Return how many streams bring a table to each site."""
    return Counter(
        site for stream in streams if stream.table.name == table.name for site in stream.addressees
    )
