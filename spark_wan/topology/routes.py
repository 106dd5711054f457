"""Where events go: the streams of a topology, followed on paper from each writer.

An event travels with its origin, the site where it was committed, and *sent-to*, all sites that
some sender on its way has sent it to or is about to. A site passes it on to those remotes of its
senders that are neither. So no event comes back, and most topologies deliver each event once:
:func:`spark_wan.topology.checks.check_delivery` accepts exactly those.

A forwarder asks the same functions what to do with an epoch (:mod:`spark_wan.forward`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain

from spark_wan.topology.model import Sender, Stream, Table, Topology, copy_name, stream_name
from spark_wan.wire.names import is_safe


def addressees(
    table: Table, sender: Sender, origin: str, sent_to: Collection[str]
) -> tuple[str, ...]:
    """Return the sites to which a sender sends events of ``origin`` that were ``sent_to`` others
    before they reached its own site, sorted."""
    return tuple(
        sorted(
            site
            for site in sender.remotes
            if site in table.at and site != origin and site not in sent_to
        )
    )


def forwarded_sent_to(
    topology: Topology, table: Table, site: str, sent_to: Collection[str]
) -> tuple[str, ...]:
    """Return the sent-to of what ``site`` forwards of an epoch that has ``sent_to``, sorted: the
    same for all of its senders. With each sender's own remotes only, a ring whose sites send in
    both directions would deliver twice."""
    return tuple(sorted({*sent_to, *topology.sent_to(table.name, site)}))


def streams_of(topology: Topology, table: Table) -> Iterator[Stream]:
    """Yield all streams of a table, those with fewer hops first.

    Ends: each hop goes to sites that the hops before were not sent to. The number of streams may
    be exponential in that of sites, in topologies that are refused.
    """
    found = [
        Stream(
            sender,
            table,
            origin=writer,
            sent_to=_first_sent_to(topology, table, sender),
            addressees=sites,
        )
        for writer in table.writers
        for sender in topology.attached(table, writer)
        if (sites := addressees(table, sender, writer, ()))
    ]
    while found:
        yield from found
        found = list(chain.from_iterable(_forwarded(topology, table, each) for each in found))


def reached(topology: Topology, table: Table, sender: Sender) -> list[str]:
    """Return the sites that get what a sender sends of its own site's events, sorted: its remotes,
    and those to which others forward it."""
    streams = (each for each in streams_of(topology, table) if each.senders[0] == sender)
    return sorted({site for stream in streams for site in stream.addressees})


@dataclass(frozen=True)
class Serving:
    """A site that serves copies of a table to another one, through one of its senders."""

    sender: Sender
    table: Table
    site: str
    """The site that gets the copies."""

    @property
    def stream(self) -> str:
        """The name of the stream by which they come."""
        name = stream_name(self.sender.site, self.sender.name, self.table.name)
        return copy_name(name, self.site)

    @property
    def by_writer(self) -> bool:
        """Whether the site that serves them writes the table."""
        return self.sender.site in self.table.writers


def serving(topology: Topology, table: Table, site: str) -> list[Serving]:
    """Return who may serve copies of a table to a site that does not write it, in the order in
    which they are asked: first the sites that have copies themselves, through any sender, then
    those that write the table, through those that it is attached to. A site whose users' queries
    write the events has no table."""
    if site not in table.at or site in table.writers:
        return []
    here = topology.site(site)
    signed = any(topology.site(writer).signing_keys for writer in table.writers)
    found = [
        each
        for sender in topology.senders_to(site)
        if sender.site in table.at
        and is_safe((each := Serving(sender, table, site)).stream)
        # What its writer signs is not taken from a site that signs nothing.
        and (not signed or topology.site(sender.site).signing_keys)
        and (here.accept_from is None or sender.site in here.accept_from)
    ]
    peers = [each for each in found if not each.by_writer]
    if table.source == "sink":
        return peers
    if here.sync_from == "primary":
        peers = []
    writers = [each for each in found if each.by_writer and each.sender.name in table.senders]
    return [*peers, *writers]


def served_by(topology: Topology, table: Table, sender: Sender) -> list[Serving]:
    """Return the copies of a table that may go through a sender, to each of its remotes."""
    return [
        by
        for site in sender.remotes
        for by in serving(topology, table, site)
        if by.sender == sender
    ]


def all_streams(topology: Topology) -> list[Stream]:
    """Return all streams of all tables, sender by sender."""
    streams = chain.from_iterable(streams_of(topology, each) for each in topology.tables.values())
    place = {name: number for number, name in enumerate(topology.senders)}
    return sorted(streams, key=lambda stream: place[stream.sender.name])


def _first_sent_to(topology: Topology, table: Table, sender: Sender) -> tuple[str, ...]:
    """Return the sent-to of what a sender sends of its own site's events: rows of a table go out
    by all senders attached to it, those of a user's query by one."""
    if table.source == "sink":
        return tuple(sorted(sender.remotes))
    return topology.sent_to(table.name, sender.site)


def _forwarded(topology: Topology, table: Table, inbound: Stream) -> Iterator[Stream]:
    """Yield the streams by which the addressees of a stream forward it."""
    for site in inbound.addressees:
        sent_to = forwarded_sent_to(topology, table, site, inbound.sent_to)
        for sender in topology.attached(table, site):
            if sites := addressees(table, sender, inbound.origin, inbound.sent_to):
                yield Stream(
                    sender,
                    table,
                    origin=inbound.origin,
                    sent_to=sent_to,
                    addressees=sites,
                    inbound=inbound,
                )
