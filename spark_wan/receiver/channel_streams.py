"""The inbound streams of one channel: which there are, which are due, and what they report."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from spark_wan.channels.base import Channel
from spark_wan.channels.log import StreamLog
from spark_wan.errors import ChannelError, WanError
from spark_wan.receiver.stream import RETRY_INTERVAL, InboundStream, Listing, TableStatus
from spark_wan.topology.model import Topology
from spark_wan.wire.ack import Ack
from spark_wan.wire.manifest import Manifest

ACKS_PER_POLL = 10
"""Maximum number of idle streams whose acks one poll reads. More would delay new epochs."""


class ChannelStreams:
    """The streams of one inbound channel, as one site sees them. Tables' threads share it."""

    def __init__(self, topology: Topology, site: str, url: str) -> None:
        self.topology = topology
        self.site = site
        self.url = url
        self.lock = threading.RLock()
        """Guards the streams and their appliers."""
        self._streams: dict[str, InboundStream] = {}
        self._unreachable: str | None = None
        """Why the last listing of the channel failed."""
        self._acks_at = 0.0
        """When acks of idle streams are read again."""
        self._ack_queue: list[str] = []
        """Idle streams whose acks come next."""

    def get(self, name: str) -> InboundStream:
        """Return a stream by name, new or known."""
        with self.lock:
            return self._streams.setdefault(name, InboundStream(name))

    def all(self) -> list[InboundStream]:
        with self.lock:
            return list(self._streams.values())

    def statuses(self) -> list[TableStatus]:
        """Return what each stream has done. All are held while the channel cannot be listed."""
        unreachable = self._unreachable
        if unreachable is not None and not any(stream.status for stream in self.all()):
            self.get(self.url).report()
        streams = sorted(self.all(), key=lambda stream: stream.name)
        statuses = [status for stream in streams if (status := stream.status) is not None]
        if unreachable is None:
            return statuses
        return [replace(status, held=unreachable) for status in statuses]

    def acked(self, open_channel: Callable[[], Channel]) -> list[TableStatus]:
        """Return statuses as the channel's acks report them. An unreadable stream is held."""
        try:
            channel = open_channel()
            listed = channel.epochs()
        except WanError as error:
            self._unreachable = str(error)
            return self.statuses()
        self._unreachable = None
        self._release_removed(listed)
        for name in listed:
            stream = self.get(name)
            try:
                self._read_ack(stream, StreamLog(channel, name))
            except WanError as error:
                stream.report().held = str(error)
        return self.statuses()

    def due(self, channel: Channel, errors: dict[str, ChannelError]) -> dict[str, list[Listing]]:
        """List the channel and return what may have to be applied, by table."""
        try:
            epochs, announced = channel.epochs(), channel.announcements()
        except ChannelError as error:
            self._unreachable = str(error)
            raise
        self._unreachable = None
        self._release_removed(epochs)
        due: dict[str, list[Listing]] = {}
        idle = {}
        for name, listed in epochs.items():
            listing = Listing(StreamLog(channel, name), listed, tuple(announced.get(name, ())))
            if self.get(name).is_done(listing):
                idle[name] = listing
            elif self.get(name).is_due(listing):
                self._add(listing, due, errors)
        for name in self._next_for_acks(list(idle)):
            if self._is_acked_as_held(idle[name].log):
                self._add(idle[name], due, errors)
        return due

    def poll(self, channel: Channel, errors: dict[str, ChannelError]) -> dict[str, list[Listing]]:
        """Do the same while tables are being written; a channel that fails must not end those."""
        errors.clear()
        try:
            return self.due(channel, errors)
        except ChannelError as error:
            errors[self.url] = error
            return {}

    def _add(
        self, listing: Listing, due: dict[str, list[Listing]], errors: dict[str, ChannelError]
    ) -> None:
        with self.isolated(listing.log.stream, errors):
            self.get(listing.log.stream).done = None
            table = self._table_of(listing)
            if table is not None:
                due.setdefault(table, []).append(listing)

    def _release_removed(self, listed: Mapping[str, Sequence[int]]) -> None:
        """Forget holds of streams that were removed from the channel."""
        for stream in self.all():
            if stream.name not in listed:
                stream.retry = None
                stream.release()

    def _next_for_acks(self, idle: Sequence[str]) -> list[str]:
        """Return the idle streams whose acks are read now: some of them, now and then, in turn."""
        now = time.monotonic()
        if now < self._acks_at:
            return []
        self._acks_at = now + RETRY_INTERVAL / 2
        still_idle = set(idle)
        queue = [stream for stream in self._ack_queue if stream in still_idle] or list(idle)
        self._ack_queue = queue[ACKS_PER_POLL:]
        return queue[:ACKS_PER_POLL]

    def _is_acked_as_held(self, stream_log: StreamLog) -> bool:
        """Whether this site's ack says held: another receiver of the site has left it so."""
        try:
            ack = stream_log.acks().get(self.site)
        except WanError:
            return True  # the round reports what is wrong
        return ack is not None and ack.held is not None

    def _table_of(self, listing: Listing) -> str | None:
        """Return the stream's table, or None when this site has no part in it or cannot read it."""
        stream = self.get(listing.log.stream)
        if stream.table is None:
            try:
                manifest = listing.log.read(listing.newest)
            except WanError as error:
                self.refuse(listing, None, str(error))
                return None
            if self.site not in manifest.addressees:
                stream.status = None  # it may be held from when it could not be read
                return None
            tables = self.topology.tables
            if manifest.table not in tables or self.site not in tables[manifest.table].at:
                cause = (
                    f"{stream.name}: table {manifest.table!r} is not at site {self.site} in "
                    f"{self.topology.file}. Add it below `tables:` with `at: {{{self.site}: …}}`. "
                    "If the table has another name now, remove what is left of this stream from "
                    f"the channel: log/{stream.name}, frames/{stream.name} and acks/{stream.name}."
                )
                self.refuse(listing, manifest, cause)
                return None
            stream.table = manifest.table
        return stream.table

    def refuse(self, listing: Listing, manifest: Manifest | None, cause: str) -> None:
        """Hold a stream that no round can work on, and tell its sender."""
        stream, stream_log = self.get(listing.log.stream), listing.log
        stream.hold(cause)
        if manifest is not None:
            stream.report().table = manifest.table
        acked = stream_log.acks().get(self.site)
        if acked is not None:
            ack = replace(acked, held=acked.applied + 1, cause=cause)
        else:
            log_id = manifest.log_id if manifest else ""
            ack = Ack(self.site, stream.name, log_id, 0, listing.newest, cause)
        if ack != acked:
            stream_log.channel.put_ack(stream.name, self.site, ack.encode())

    def _read_ack(self, stream: InboundStream, stream_log: StreamLog) -> None:
        ack = stream_log.acks().get(self.site)
        if ack is None:
            stream.release()
            return
        if stream.table is None:
            newest = stream_log.newest_manifest()
            if newest is None:
                return
            stream.table = newest.table
        status = stream.report()
        status.applied, status.dead_letters, status.held = ack.applied, ack.dead_letters, ack.cause

    @contextmanager
    def isolated(self, stream: str, errors: dict[str, ChannelError]) -> Iterator[None]:
        """Keep what the channel refuses for one stream until the others have had their turn."""
        try:
            yield
        except ChannelError as error:
            errors[stream] = error
            self.get(stream).report().held = str(error)
        else:
            errors.pop(stream, None)
