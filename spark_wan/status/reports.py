"""Status of the streams of a topology, read from the logs and acks of its channels. No Spark.

>>> for channel in read_status(load_topology("conf/two_sites.yaml")):
...     print(channel.url, [stream.stream for stream in channel.streams])
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from spark_wan.channels.base import Channel
from spark_wan.channels.log import StreamLog, acked_through
from spark_wan.channels.parallel import in_order
from spark_wan.channels.registry import open_channel
from spark_wan.errors import WanError
from spark_wan.topology.model import Sender, Stream, Topology
from spark_wan.topology.routes import all_streams
from spark_wan.wire.ack import Ack
from spark_wan.wire.manifest import EVENTS, Manifest


@dataclass(frozen=True)
class SiteReport:
    """How far a site is with a stream."""

    site: str
    acked: int = 0
    """Through this epoch the site has applied everything; 0: no ack for this log."""
    backlog_epochs: int = 0
    backlog_events: int = 0
    backlog_bytes: int = 0
    """What the site has not acked."""
    held_at: int | None = None
    cause: str | None = None
    """The epoch that the site holds the stream at, and why."""
    dead_letters: int = 0
    served: bool = True
    """False for a site that is no longer among the sender's remotes: no trim waits for its acks."""


@dataclass(frozen=True)
class StreamReport:
    """How far one stream is published, and how far each addressee is."""

    stream: str
    table: str
    origin: str
    epoch: int = 0
    """The newest epoch; 0: nothing is published yet."""
    version: int | None = None
    """Through this version of the source table all is in the channel; None for a user stream."""
    published_at: int | None = None
    """When the newest epoch was published: milliseconds since 1970 UTC, by the sender's clock."""
    sites: tuple[SiteReport, ...] = ()
    problem: str | None = None
    """Why the stream's log cannot be read."""


@dataclass(frozen=True)
class ChannelReport:
    """A channel, its streams, and the files in it that are not spark_wan's."""

    url: str
    streams: tuple[StreamReport, ...] = ()
    foreign: tuple[str, ...] = ()
    problem: str | None = None
    """Why the channel cannot be read."""


def read_status(topology: Topology, site: str | None = None) -> list[ChannelReport]:
    """Return the status of every channel. Changes nothing.

    With ``site``: only of the channels that it sends or receives on, with its streams. A channel
    or stream that cannot be read has a ``problem``; the others are still read.

    Raises TopologyError when the site is unknown.
    """
    if site is not None:
        topology.site(site)
    first: dict[str, Sender] = {}
    for sender in topology.senders.values():
        first.setdefault(sender.channel, sender)
    return [
        _channel(
            sender, [each for each in all_streams(topology) if each.sender.channel == url], site
        )
        for url, sender in first.items()
        if site is None or site == sender.site or site in sender.remotes
    ]


def _channel(sender: Sender, expected: Sequence[Stream], site: str | None) -> ChannelReport:
    """Return the report of one channel: the streams of the topology, and others in its log."""
    streams = {
        stream.name: _unpublished(
            stream.name, stream.table.name, stream.sender.site, stream.addressees
        )
        for stream in expected
    }
    foreign: Sequence[str] = ()
    problem = None
    try:
        if _exists(sender.channel):
            channel = open_channel(sender.channel, sender.storage)
            for name, epochs in channel.epochs().items():
                unpublished = streams.get(name) or _unpublished(name, "", "", sender.remotes)
                streams[name] = _stream(channel, unpublished, epochs)
            foreign = channel.foreign()
    except WanError as error:
        problem = str(error)
    chosen = [
        stream
        for _, stream in sorted(streams.items())
        if site in (None, stream.origin, *(each.site for each in stream.sites)) or stream.problem
    ]
    return ChannelReport(sender.channel, tuple(chosen), tuple(foreign), problem)


def _unpublished(name: str, table: str, origin: str, served: Iterable[str]) -> StreamReport:
    return StreamReport(name, table, origin, sites=tuple(map(SiteReport, sorted(served))))


def _exists(url: str) -> bool:
    """Return whether there may be a channel: opening a directory as a channel would create it."""
    local = url.startswith("file://") or "://" not in url
    return not local or os.path.isdir(url.removeprefix("file://"))


def _stream(channel: Channel, unpublished: StreamReport, epochs: Sequence[int]) -> StreamReport:
    """Return the report of a stream with these epochs. Its sites in ``unpublished`` are served."""
    if not epochs:
        return unpublished
    name = unpublished.stream
    served = {site.site for site in unpublished.sites}
    log = StreamLog(channel, name)
    try:
        whole, below = log.fold(epochs)
        newest = log.read(epochs[-1])
        acks = log.acks()
        acked = acked_through(newest, acks)
        log.check_gap(whole, below, {site: acked[site] for site in acked if site in served})
        lowest = min(acked.values(), default=newest.epoch)
        waiting = list(in_order(log.read, [epoch for epoch in whole if epoch > lowest]))
    except WanError as error:
        now = log.epochs()
        if now != list(epochs):  # the log was published to or trimmed while it was read
            return _stream(channel, unpublished, now)
        return replace(unpublished, epoch=epochs[-1], sites=(), problem=str(error))
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
