"""Asking for a copy: the request is an ack, in the log of the copy that does not exist yet.

A site may ask each site that has the table and sends to it, whatever else it sends: first those
that have a copy themselves, in the order of the topology, and at last the one that writes the
table. One that refuses, or that shows no sign of life, is passed over.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from spark_wan.channels.registry import open_channel
from spark_wan.errors import ChannelError, JoinFailureError, TopologyError
from spark_wan.log.stream_log import StreamLog
from spark_wan.log.trust import StreamTrust
from spark_wan.topology.model import Sender, Site, Table, Topology
from spark_wan.topology.routes import Serving, serving, streams_of
from spark_wan.topology.signing import receiving_trust
from spark_wan.units import milliseconds
from spark_wan.wire.ack import Ack, Need, Wanted
from spark_wan.wire.mark import VectorEntry


@dataclass(frozen=True)
class Request:
    """A request for a copy that has not ended."""

    by: Serving
    wanted: Wanted
    is_answered: bool
    """The site that was asked has served a copy, or has refused."""
    refused: str | None
    """Why it serves none."""
    held: str | None
    """Why the copy that is there cannot be taken."""


@dataclass
class CopyRequests:
    """The requests of one site for copies of one table. Threads may share it: of two requests the
    newest counts."""

    topology: Topology
    table: Table
    site: Site
    clock: Callable[[], int] = milliseconds
    """Milliseconds since 1970 UTC."""
    channels: Collection[str] | None = None
    """Those that the site's receiver reads; None: all."""
    trusts: dict[str, Callable[[str], StreamTrust]] = field(default_factory=dict)
    """By channel: the requests of several tables may share it."""
    _logs: dict[str, StreamLog] = field(default_factory=dict)

    @cached_property
    def sites(self) -> Sequence[Serving]:
        """Who can be asked, in this order. Raises TopologyError: nobody."""
        sites = serving_sites(self.topology, self.table.name, self.site.name)
        if self.channels is not None:
            sites = [by for by in sites if by.sender.channel in self.channels]
        if not sites:
            raise TopologyError(
                f"{self.topology.file}: nobody who serves copies of table {self.table.name} sends "
                "through a channel that this receiver reads."
            )
        return sites

    @property
    def is_possible(self) -> bool:
        """Whether anybody can be asked."""
        try:
            return bool(self.sites)
        except TopologyError:
            return False

    def log(self, by: Serving) -> StreamLog:
        """Return the log of the copies that come from a site."""
        if by.stream not in self._logs:
            self._logs[by.stream] = self._log(by.sender, by.stream)
        return self._logs[by.stream]

    def _log(self, sender: Sender, stream: str) -> StreamLog:
        channel = open_channel(sender.channel, sender.storage)
        if sender.channel not in self.trusts:
            trust = receiving_trust(self.topology, self.site.name, sender.channel)
            self.trusts[sender.channel] = trust
        return StreamLog(channel, stream, self.trusts[sender.channel](stream))

    @cached_property
    def inbound(self) -> Sequence[StreamLog]:
        """The logs of the streams by which the site gets the table, those with fewer hops first."""
        return [
            self._log(stream.sender, stream.name)
            for stream in streams_of(self.topology, self.table)
            if self.site.name in stream.addressees
        ]

    def need(self) -> Need | None:
        """Return what the site says it needs, in its ack of any stream of the table; None: nothing.
        Raises ChannelError."""
        for log in self.inbound:
            ack = log.ack(self.site.name)
            if ack is not None and ack.needs is not None:
                return ack.needs
        return None

    def open(self) -> Request | None:
        """Return the newest request that has not ended; None: there is none. Earlier ones end.

        What a channel that fails has does not count. Raises ChannelError when all fail."""
        found: list[tuple[Serving, Ack]] = []
        failed: list[ChannelError] = []
        for by in self.sites:
            try:
                ack = self.log(by).ack(self.site.name)
            except ChannelError as error:
                failed.append(error)
                continue
            if ack is not None and ack.wanted is not None:
                found.append((by, ack))
        if not found:
            if len(failed) == len(self.sites):
                raise failed[0]
            return None
        by, ack = max(found, key=lambda each: each[1].wanted.since if each[1].wanted else 0)
        for other, _ in found:
            if other != by:
                with suppress(ChannelError):
                    self.withdraw(other)
        assert ack.wanted is not None
        return self._request(by, ack, ack.wanted)

    def _request(self, by: Serving, ack: Ack, wanted: Wanted) -> Request:
        newest = self.log(by).newest_manifest()
        copy = newest.copy if newest is not None else None
        is_answered = copy is not None and copy.answers(wanted.request)
        refused = copy.refused if copy is not None and is_answered else None
        held = ack.cause if ack.held is not None and is_answered and refused is None else None
        return Request(by, wanted, is_answered, refused, held)

    def ask(
        self,
        least: Sequence[VectorEntry] = (),
        by: Serving | None = None,
        *,
        again: int = 0,
        difference: bool = False,
    ) -> Serving:
        """Ask a site (default: the first one whose channel takes the request) for a copy that has
        ``least``. An earlier request that has not ended is replaced. Raises TopologyError,
        ChannelError."""
        wanted = Wanted(uuid.uuid4().hex, tuple(least), self.clock(), again, difference)
        return self._ask_one_of(self.sites if by is None else [by], wanted)

    def _ask_one_of(self, sites: Sequence[Serving], wanted: Wanted) -> Serving:
        failed: ChannelError | None = None
        for by in sites:
            try:
                log = self.log(by)
                before = log.ack(self.site.name)
                known = before or Ack(self.site.name, by.stream, log_id="", applied=0)
                log.put_ack(replace(known, wanted=wanted, held=None, cause=None))
            except ChannelError as error:
                failed = failed or error
                continue
            for other in self.sites:
                if other != by:
                    with suppress(ChannelError):  # then the newest request counts
                        self.withdraw(other)
            return by
        assert failed is not None
        raise failed

    def withdraw(self, by: Serving) -> bool:
        """End the request to a site, and return whether there was one."""
        log = self.log(by)
        ack = log.ack(self.site.name)
        if ack is None or ack.wanted is None:
            return False
        log.put_ack(replace(ack, wanted=None, held=None, cause=None))
        return True

    def withdraw_all(self) -> bool:
        """End all requests, and return whether there was one."""
        withdrawn = [self.withdraw(by) for by in self.sites] if self.is_possible else []
        return any(withdrawn)

    def ask_next(self, after: str, wanted: Wanted) -> Serving | None:
        """Ask a site after the one whose copies are in the stream ``after``, in place of it; None:
        that was the last one. Raises ChannelError."""
        streams = [by.stream for by in self.sites]
        following = self.sites[streams.index(after) + 1 :] if after in streams else ()
        if not following:
            return None
        request = uuid.uuid4().hex
        again = replace(wanted, request=request, since=self.clock(), again=wanted.again + 1)
        return self._ask_one_of(following, again)


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
    if sites := serving(topology, found, name):
        return sites
    if found.source == "sink":
        raise TopologyError(
            f"{topology.file}: nobody serves a copy of table {found.name} to site {name}: users' "
            "queries write its events, and no sender of another site that has the table has "
            f"{name} among its remotes. Sites that are not in accept_from, or sign nothing though "
            "the writer does, are not asked. Add such a sender; or write the events again, with "
            "their IDs, to a new stream."
        )
    primary = topology.site(name).sync_from == "primary"
    why = f", and sync_from of site {name} is primary" if primary else ""
    raise TopologyError(
        f"{topology.file}: nobody serves a copy of table {found.name} to site {name}: no sender of "
        f"a site that writes the table has {name} among its remotes{why}. Sites that are not in "
        "accept_from, or sign nothing though the writer does, are not asked. "
        f"{'Set `sync_from: any`, or add' if primary else 'Add'} such a sender."
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
    need = requests.need()
    return requests.ask(need.least if need is not None else (), asked, difference=difference)


def most_trusted(sites: Sequence[Serving]) -> Serving:
    """Return the site that writes the table, if it serves copies: the rows of another one may be
    wrong, too, or it may have refused the same ones."""
    return next((by for by in sites if by.by_writer), sites[0])


def withdraw_request(topology: Topology, table: str, site: str) -> bool:
    """End a site's request for a copy, and return whether there was one. A copy that comes all the
    same is not taken. Raises TopologyError, ChannelError."""
    serving_sites(topology, table, site)  # refuses what makes no sense
    return CopyRequests(topology, topology.table(table), topology.site(site)).withdraw_all()


def _from_site(topology: Topology, sites: Sequence[Serving], by: str) -> Serving:
    name = topology.site(by).name
    for each in sites:
        if each.sender.site == name:
            return each
    known = ", ".join(dict.fromkeys(each.sender.site for each in sites))
    raise TopologyError(
        f"{topology.file}: site {name} does not serve this copy. These do: {known}."
    )
