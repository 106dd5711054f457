"""What a channel tells of its streams, without Spark: read from the channel's logs and acks, nothing is changed.

>>> for channel in read_status(load_topology("conf/two_sites.yaml")):
...     print(channel.url, [stream.stream for stream in channel.streams])
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from spark_wan.channels.base import Channel
from spark_wan.channels.log import StreamLog, acked_through
from spark_wan.channels.registry import open_channel
from spark_wan.errors import WanError
from spark_wan.topology.model import Sender, Topology, stream_name
from spark_wan.wire.ack import Ack
from spark_wan.wire.manifest import EVENTS, Manifest


@dataclass(frozen=True)
class SiteReport:
    """How far a site has come with a stream."""

    site: str
    acked: int
    """Through this epoch the site has applied everything; 0: it has not answered for this log."""
    backlog_epochs: int
    backlog_events: int
    backlog_bytes: int
    """What the site has not acked."""
    held_at: int | None = None
    cause: str | None = None
    """The epoch that the site holds the stream at, and why."""
    dead_letters: int = 0
    served: bool = True
    """False for a site that the topology no longer has among the sender's remotes: epochs are trimmed without its ack."""


@dataclass(frozen=True)
class StreamReport:
    """One stream: how far it is published, and each addressee."""

    stream: str
    table: str
    origin: str
    epoch: int = 0
    """The newest one; 0: nothing is published yet."""
    version: int | None = None
    """Through this version of the source table everything is in the channel; None for a user's stream."""
    published_at: int | None = None
    """When the newest epoch was published, in milliseconds since 1970 UTC, by the sender's clock."""
    sites: tuple[SiteReport, ...] = ()
    problem: str | None = None
    """Why the stream's log cannot be read."""


@dataclass(frozen=True)
class ChannelReport:
    """A channel, its streams, and what in it is not spark_wan's."""

    url: str
    streams: tuple[StreamReport, ...] = ()
    foreign: tuple[str, ...] = ()
    problem: str | None = None
    """Why the channel cannot be read."""


@dataclass
class _Expected:
    """The streams that a topology puts on one channel."""

    sender: Sender
    streams: dict[str, tuple[str, str, tuple[str, ...]]] = field(default_factory=dict)
    """stream -> (table, origin, addressees)"""


def read_status(topology: Topology, site: str | None = None) -> list[ChannelReport]:
    """The status of every channel, or of those that ``site`` sends or receives on, with that site's streams only.

    What is wrong with one channel or stream stands in its ``problem`` and keeps no other from being read.

    Raises TopologyError when the site is unknown.
    """
    if site is not None:
        topology.site(site)
    return [
        _channel(expected, site)
        for expected in _expected(topology)
        if _concerns(expected.sender, site)
    ]


def _concerns(sender: Sender, site: str | None) -> bool:
    return site is None or site == sender.site or site in sender.remotes


def _expected(topology: Topology) -> list[_Expected]:
    channels: dict[str, _Expected] = {}
    for sender in topology.senders.values():
        here = channels.setdefault(sender.channel, _Expected(sender))
        for table in topology.tables_of(sender.name):
            if sender.site in table.writers:
                addressees = tuple(
                    sorted(remote for remote in sender.remotes if remote in table.at)
                )
                name = stream_name(sender.site, sender.name, table.name)
                here.streams[name] = (table.name, sender.site, addressees)
    return list(channels.values())


def _channel(expected: _Expected, site: str | None) -> ChannelReport:
    url = expected.sender.channel
    streams = {
        name: StreamReport(
            name, table, origin, sites=tuple(SiteReport(remote, 0, 0, 0, 0) for remote in remotes)
        )
        for name, (table, origin, remotes) in expected.streams.items()
    }
    foreign: Sequence[str] = ()
    problem = None
    try:
        if _is_there(url):
            channel = open_channel(url, expected.sender.storage)
            for name, numbers in channel.epochs().items():
                table, origin, served = expected.streams.get(
                    name, ("", "", expected.sender.remotes)
                )
                streams[name] = _stream(channel, name, table, origin, served, numbers)
            foreign = channel.foreign()
    except WanError as error:
        problem = str(error)
    chosen = [
        stream
        for _, stream in sorted(streams.items())
        if site is None
        or site == stream.origin
        or any(site == each.site for each in stream.sites)
        or stream.problem
    ]
    return ChannelReport(url, tuple(chosen), tuple(foreign), problem)


def _is_there(url: str) -> bool:
    """A directory that is not there holds nothing; opening it as a channel would make it."""
    local = url.startswith("file://") or "://" not in url
    return not local or os.path.isdir(url.removeprefix("file://"))


def _stream(
    channel: Channel,
    name: str,
    table: str,
    origin: str,
    served: Collection[str],
    numbers: Sequence[int],
) -> StreamReport:
    log = StreamLog(channel, name)
    if not numbers:
        return StreamReport(
            name,
            table,
            origin,
            sites=tuple(SiteReport(site, 0, 0, 0, 0) for site in sorted(served)),
        )
    try:
        whole, below = log.fold(numbers)
        newest = log.read(numbers[-1])
        acks = log.acks()
        acked = acked_through(newest, acks)
        log.check_gap(whole, below, {site: acked[site] for site in acked if site in served})
        waiting = [
            log.read(number)
            for number in whole
            if number > min(acked.values(), default=newest.epoch)
        ]
    except WanError as error:
        now = channel.stream_epochs(name)
        if now != list(numbers):
            # Somebody published or trimmed while we read.
            return _stream(channel, name, table, origin, served, now)
        return StreamReport(name, table, origin, numbers[-1], problem=str(error))
    return StreamReport(
        stream=name,
        table=newest.table,
        origin=newest.origin,
        epoch=newest.epoch,
        version=newest.last_version if newest.kind != EVENTS else None,
        published_at=newest.created,
        sites=tuple(
            _site(site, acked[site], acks.get(site), waiting, site in served)
            for site in newest.addressees
        ),
    )


def _site(
    site: str, acked: int, ack: Ack | None, waiting: Sequence[Manifest], served: bool
) -> SiteReport:
    backlog = [manifest for manifest in waiting if manifest.epoch > acked]
    return SiteReport(
        site=site,
        acked=acked,
        backlog_epochs=len(backlog),
        backlog_events=sum(manifest.rows for manifest in backlog),
        backlog_bytes=sum(manifest.bytes for manifest in backlog),
        held_at=ack.held if ack is not None else None,
        cause=ack.cause if ack is not None else None,
        dead_letters=ack.dead_letters if ack is not None else 0,
        served=served,
    )
