"""A topology as a graph: sites, and what travels between them on paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    streams: Mapping[str, Sequence[Stream]]
    """The streams of each table by its name, those with fewer hops first."""

    def written_at(self, site: str) -> tuple[str, ...]:
        """Return the tables that a site writes."""
        return tuple(table.name for table in self.tables if site in table.writers)

    def repeated_at(self, site: str) -> tuple[str, ...]:
        """Return the tables that a site gets by several ways, and whose duplicates it drops."""
        return tuple(name for name in self.streams if self.ways_to(name, site) > 1)

    def ways_to(self, table: str, site: str) -> int:
        """Return by how many ways a site gets a table."""
        return sum(site in stream.addressees for stream in self.streams[table])

    def equal_tables(self) -> list[list[Table]]:
        """Return the tables, those together that go from the same writer the same ways."""
        groups: dict[object, list[Table]] = {}
        for table in self.tables:
            same = (table.writers, table.source, frozenset(table.senders), frozenset(table.at))
            groups.setdefault(same, []).append(table)
        return list(groups.values())


def graph_of(topology: Topology, table: str | None = None) -> Graph:
    """Return the graph of a topology: all sites, senders and tables. With ``table``, the sites that
    have the table, and the links on which it travels. Raises TopologyError if it is unknown."""
    tables = tuple(topology.tables.values()) if table is None else (topology.table(table),)
    streams = {each.name: list(streams_of(topology, each)) for each in tables}
    travelling = _travelling(chain.from_iterable(streams.values()))
    links = (
        Link(sender, remote, travelling.get((sender.name, remote), ()))
        for sender in topology.senders.values()
        for remote in sender.remotes
    )
    having = set(chain.from_iterable((*each.writers, *each.at) for each in tables))
    return Graph(
        tables=tables,
        sites=tuple(site for site in topology.sites if table is None or site in having),
        links=tuple(link for link in links if table is None or link.tables),
        streams=streams,
    )


def _travelling(streams: Iterable[Stream]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the tables that each sender brings to each of its remotes."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for stream in streams:
        for remote in stream.addressees:
            found.setdefault((stream.sender.name, remote), {})[stream.table.name] = None
    return {link: tuple(names) for link, names in found.items()}
