"""Asking for a copy: the request is an ack, in the log of the copy that does not exist yet.

A site may ask each site that has the table and sends to it, whatever else it sends: first those
that have a copy themselves, in the order of the topology, and at last the one that writes the
table. One that refuses, or that shows no sign of life, is passed over.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from spark_wan.channels.registry import open_channel
from spark_wan.errors import ChannelError, JoinFailureError, TopologyError
from spark_wan.log.stream_log import StreamLog
from spark_wan.topology.model import Sender, Site, Table, Topology
from spark_wan.topology.routes import Serving, serving, streams_of
from spark_wan.topology.signing import receiving_trust
from spark_wan.units import milliseconds
from spark_wan.wire.ack import Ack, Wanted
from spark_wan.wire.mark import VectorEntry


@dataclass(frozen=True)
class Request:
    """A request for a copy that has not ended."""

    by: Serving
    wanted: Wanted
    refused: str | None
    """Why the site that was asked last serves no copy; None: it has not refused."""


@dataclass
class CopyRequests:
    """The requests of one site for copies of one table."""

    topology: Topology
    table: Table
    site: Site
    clock: Callable[[], int] = milliseconds
    """Milliseconds since 1970 UTC."""
    _logs: dict[str, StreamLog] = field(default_factory=dict)

    @property
    def sites(self) -> Sequence[Serving]:
        """Who can be asked, in this order. Raises TopologyError: nobody."""
        return serving_sites(self.topology, self.table.name, self.site.name)

    def log(self, by: Serving) -> StreamLog:
        """Return the log of the copies that come from a site."""
        name, sender = by.stream, by.sender
        if name not in self._logs:
            channel = open_channel(sender.channel, sender.storage)
            trust = receiving_trust(self.topology, self.site.name, sender.channel)
            self._logs[name] = StreamLog(channel, name, trust(name))
        return self._logs[name]

    def open(self) -> Request | None:
        """Return the request that has not ended; None: there is none. Raises ChannelError."""
        for by in self.sites:
            ack = self.log(by).ack(self.site.name)
            if ack is not None and ack.wanted is not None:
                return Request(by, ack.wanted, ack.cause if ack.held is not None else None)
        return None

    def ask(
        self,
        least: Sequence[VectorEntry] = (),
        by: Serving | None = None,
        *,
        again: int = 0,
        difference: bool = False,
    ) -> Serving:
        """Ask a site (default: the first one) for a copy that has ``least``. An earlier request
        that has not ended is replaced. Raises TopologyError, ChannelError."""
        by = by or self.sites[0]
        log = self.log(by)
        before = log.ack(self.site.name) or Ack(self.site.name, by.stream, log_id="", applied=0)
        wanted = Wanted(uuid.uuid4().hex, tuple(least), self.clock(), again, difference)
        log.put_ack(replace(before, wanted=wanted, held=None, cause=None))
        for other in self.sites:
            if other.stream != by.stream:
                with suppress(ChannelError):  # then it may serve a copy, which is another one
                    self.withdraw(other)
        return by

    def withdraw(self, by: Serving) -> bool:
        """End the request to a site, and return whether there was one."""
        log = self.log(by)
        ack = log.ack(self.site.name)
        if ack is None or ack.wanted is None:
            return False
        log.put_ack(replace(ack, wanted=None, held=None, cause=None))
        return True

    def ask_next(self, after: str, wanted: Wanted) -> Serving | None:
        """Ask the site after the one whose copies are in the stream ``after``, in place of it;
        None: that was the last one."""
        streams = [by.stream for by in self.sites]
        place = streams.index(after) + 1 if after in streams else len(streams)
        if place == len(streams):
            return None
        return self.ask(
            wanted.least,
            self.sites[place],
            again=wanted.again + 1,
            difference=wanted.difference,
        )


def serving_sites(topology: Topology, table: str, site: str) -> Sequence[Serving]:
    """Return who serves copies of a table to a site, those first that are asked first.

    Raises TopologyError when nobody does, or the site gets no copy."""
    found = topology.table(table)
    name = topology.site(site).name
    if name in found.writers:
        raise TopologyError(
            f"{topology.file}: site {name} writes table {found.name}, and gets no copy of it."
        )
    if name not in found.at:
        raise TopologyError(
            f"{topology.file}: table {found.name} is not at site {name}. Add it below `tables:` "
            f"with `at: {{{name}: …}}`."
        )
    if found.source != "table":
        raise TopologyError(
            f"{topology.file}: table {found.name} is written by a sink. There are no copies of "
            "such tables yet: write the events again, with their IDs, to a new stream."
        )
    if sites := serving(topology, found, name):
        return sites
    raise TopologyError(
        f"{topology.file}: nobody serves a copy of table {found.name} to site {name}: no sender of "
        f"a site that writes the table has {name} among its remotes, and sync_from of site {name} "
        "is primary. Set `sync_from: any`, or add such a sender."
    )


def request_copy(
    topology: Topology,
    table: str,
    site: str,
    *,
    by: str | None = None,
    full: bool = False,
    difference: bool = False,
) -> Serving:
    """Ask for a copy of a table, in the name of a site. A second request replaces the first.
    ``by``: the site to ask; default: the first one. ``full``: also for a site whose ``auto_init``
    is false. ``difference``: of a table with keys, the site is to write only the rows that differ.
    Returns who is asked. Raises TopologyError, JoinFailureError, ChannelError."""
    sites = serving_sites(topology, table, site)
    requests = CopyRequests(topology, topology.table(table), topology.site(site))
    if not (full or requests.site.auto_init):
        raise JoinFailureError(
            f"{topology.file}: a copy of table {table} would be one of the whole table, and "
            f"auto_init of site {site} is false. Nothing was asked for. Add --full."
        )
    asked = sites[0] if by is None else _from_site(topology, sites, by)
    return requests.ask(_least(topology, requests), asked, difference=difference)


def withdraw_request(topology: Topology, table: str, site: str) -> bool:
    """End a site's request for a copy, and return whether there was one. A copy that comes all the
    same is not taken. Raises TopologyError, ChannelError."""
    sites = serving_sites(topology, table, site)
    requests = CopyRequests(topology, topology.table(table), topology.site(site))
    withdrawn = [requests.withdraw(by) for by in sites]
    return any(withdrawn)


def _from_site(topology: Topology, sites: Sequence[Serving], by: str) -> Serving:
    name = topology.site(by).name
    for each in sites:
        if each.sender.site == name:
            return each
    known = ", ".join(dict.fromkeys(each.sender.site for each in sites))
    raise TopologyError(
        f"{topology.file}: site {name} does not serve this copy. These do: {known}."
    )


def _least(topology: Topology, requests: CopyRequests) -> Sequence[VectorEntry]:
    """Return what the site says it needs, in its ack of any stream of the table."""
    for stream, sender in _streams_to(topology, requests.table, requests.site.name):
        channel = open_channel(sender.channel, sender.storage)
        trust = receiving_trust(topology, requests.site.name, sender.channel)
        ack = StreamLog(channel, stream, trust(stream)).ack(requests.site.name)
        if ack is not None and ack.needs is not None:
            return ack.needs.least
    return ()


def _streams_to(topology: Topology, table: Table, site: str) -> Sequence[tuple[str, Sender]]:
    return [
        (stream.name, stream.sender)
        for stream in streams_of(topology, table)
        if site in stream.addressees
    ]
