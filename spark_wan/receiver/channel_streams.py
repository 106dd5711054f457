"""The inbound streams of one channel: which there are, which are due, and what they report."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from spark_wan.apply.site_ack import SiteAck
from spark_wan.channels.base import Channel, Version
from spark_wan.channels.parallel import AT_ONCE, in_order
from spark_wan.errors import ChannelError, UntrustedError, WanError
from spark_wan.forward.forwarding import Forwarding
from spark_wan.log.heads import Heads
from spark_wan.log.listing import Listing
from spark_wan.log.notes import ack_versions
from spark_wan.log.stream_log import StreamLog
from spark_wan.receiver.record import ReceiverRecordKeeper
from spark_wan.receiver.stream import Due, InboundStream, TableStatus
from spark_wan.runtime.progress import LONG, works
from spark_wan.topology.model import Table, Topology, copied_stream
from spark_wan.topology.routes import streams_of
from spark_wan.topology.signing import receiving_trust
from spark_wan.units import milliseconds
from spark_wan.wire.manifest import EVENTS, Manifest
from spark_wan.wire.names import shown

ACKS_INTERVAL = 30.0
"""Seconds between listings of the acks."""
MORE_RECORDS = 1.0
"""Seconds until records are written that were due, and not written with the others."""


Forward = Callable[[StreamLog, Table, SiteAck], Sequence[Forwarding]]
"""Returns how this site forwards a stream of a table: by each sender to which it is attached."""


class ChannelStreams:
    """The streams of one inbound channel, as one site sees them. All workers share it."""

    def __init__(
        self, topology: Topology, site: str, url: str, forward: Forward | None = None
    ) -> None:
        self.topology = topology
        self.site = site
        self.url = url
        self.forward = forward
        self.trust = receiving_trust(topology, site, url)
        self.lock = threading.RLock()
        """Guards the streams."""
        self._streams: dict[str, InboundStream] = {}
        self.refused: ChannelError | None = None
        """What the channel refused for a stream in the last listing."""
        self._unreachable: str | None = None
        """Why the last listing of the channel failed."""
        self.is_empty = False
        """Whether the last listing of the channel found no stream, of any site."""
        self._acks_at = 0.0
        """When the acks are listed again; 0: they never were."""
        self._acks: dict[str, Version | None] = {}
        """The version of this site's ack, by stream, in the last listing."""
        self._heads: Heads | None = None
        self._unsafe: set[str] = set()
        """Streams of the last listing whose names could lead out of their folder."""
        self._listings: dict[str, tuple[str, Listing]] = {}
        """Stream -> its tag in the channel, and what was listed then."""

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
        statuses = [status for stream in streams if (status := stream.reported()) is not None]
        if unreachable is None:
            return statuses
        return [replace(status, held=unreachable) for status in statuses]

    @property
    def answers(self) -> bool:
        """Whether the channel could be listed last time."""
        return self._unreachable is None

    @property
    def records(self) -> list[ReceiverRecordKeeper]:
        """What the receiver says of each stream."""
        return [stream.record for stream in self.all() if stream.record is not None]

    @property
    def acks(self) -> Mapping[str, Version | None]:
        """The version of this site's ack of each stream, as of the last listing of the acks."""
        return self._acks

    def keep_records(self) -> float:
        """Write the receiver's records that are due, a few: those of a thousand streams may be due
        at once. Return after how many seconds to call this again, at the latest."""
        due = [stream for stream in self.all() if stream.is_record_due()]
        for _ in in_order(InboundStream.keep_record, due[:AT_ONCE]):
            pass
        if len(due) > AT_ONCE:
            return MORE_RECORDS
        return LONG if works() else math.inf

    def due(self, channel: Channel) -> dict[str, list[Due]]:
        """List the channel, and return what may have to be applied, by table.

        Raises ChannelError when the channel cannot be listed. What it refuses for one stream holds
        that stream, and is in ``refused`` until the next listing.
        """
        self.refused = None
        try:
            channel.ensure_prepared()
            listings, acks = self._listed(channel), self._changed_acks(channel)
        except ChannelError as error:
            self._unreachable = str(error)
            raise
        self._unreachable = None
        self.is_empty = not listings
        self._release_removed(listings)
        due: dict[str, list[Due]] = {}
        idle: dict[str, Due] = {}
        for name, listing in listings.items():
            each = Due(self.site, self.get(name), listing)
            each.stream.pause(name in self.paused)
            if each.stream.paused:
                if not each.stream.is_done(listing) and each.stream.is_due(listing):
                    self._know(each.stream, listing)
            elif not each.stream.is_done(listing):
                if each.stream.is_due(listing):
                    self._add(each, due)
            elif each.stream.must_be_checked():
                self._add(replace(each, idle=each.stream.done), due)
            else:
                idle[name] = each
        for name in acks & idle.keys():
            # Another receiver of this site may have left the stream held, and ended.
            if self._is_acked_as_held(idle[name].listing.log):
                self._add(idle[name], due)
        for name in listings.keys() - self.paused:
            for forward in self.get(name).forwards:
                forward.give(listings[name])
        return due

    @property
    def paused(self) -> frozenset[str]:
        """The streams of which nothing is to be taken, by the last listing."""
        return self._heads.paused if self._heads is not None else frozenset()

    def _listed(self, channel: Channel) -> dict[str, Listing]:
        """Return what each stream has. Only what changed since the last call is listed."""
        listings: dict[str, tuple[str, Listing]] = {}
        if self._heads is None:
            self._heads = Heads(channel)
        self._unsafe = set()
        for name, tag in self._heads.tags().items():
            before = self._listings.get(name)
            if before is not None and before[0] == tag:
                listings[name] = before
                continue
            try:
                stream_log = (
                    before[1].log
                    if before is not None
                    else StreamLog(channel, name, self.trust(name))
                )
            except UntrustedError as error:
                self.get(shown(name)).hold(str(error))
                self._unsafe.add(shown(name))
                continue
            epochs = self._epochs(stream_log, before[1] if before is not None else None)
            announced = self._heads.announced(name)
            if epochs:
                again = () if announced is None else (announced,)
                listings[name] = tag, Listing(stream_log, epochs, again)
        self._listings = listings
        return {name: listing for name, (_, listing) in sorted(listings.items())}

    def _know(self, stream: InboundStream, listing: Listing) -> None:
        """Find out who forwards a paused stream: acks of what was forwarded before are collected
        meanwhile."""
        if stream.answer is None:
            try:
                table = self._table_of(stream, listing)
            except ChannelError:
                return
            if table is not None:
                self._prepare_ack(stream, table, listing)
                stream.pause(True)

    def _add(self, each: Due, due: dict[str, list[Due]]) -> None:
        stream, listing = each.stream, each.listing
        try:
            table = self._table_of(stream, listing)
        except ChannelError as error:
            self.refused = error
            stream.hold(str(error), listing)
            return
        if table is not None:
            self._prepare_ack(stream, table, listing)
            stream.done, stream.given = None, listing
            due.setdefault(table, []).append(each)

    def _prepare_ack(self, stream: InboundStream, table: str, listing: Listing) -> None:
        """Before the first ack is written, it must be known who forwards the stream."""
        if stream.answer is not None:
            return
        answer = SiteAck(self.site, listing.log)
        stream.record = ReceiverRecordKeeper(
            listing.log.channel, stream.name, self.site, milliseconds
        )
        if self.forward is not None and not stream.is_copy:
            stream.forwards = self.forward(listing.log, self.topology.table(table), answer)
            answer.forwarded = [each.forwarder.through for each in stream.forwards]
        stream.answer = answer

    def _release_removed(self, listed: Mapping[str, object]) -> None:
        """Forget holds of streams that were removed from the channel."""
        for stream in self.all():
            if stream.name not in listed and stream.name not in self._unsafe:
                stream.given = None
                stream.release()
                if stream.is_copy:
                    stream.done = None  # another log may begin under its name

    def _epochs(self, stream_log: StreamLog, before: Listing | None) -> Sequence[int]:
        """Return the epochs of a log, from the applied one on if the log has only grown since
        ``before``: other sites may be far behind."""
        if before is not None:
            newer = stream_log.epochs(before.newest - 1)
            if newer and newer[0] == before.newest:
                status = self.get(stream_log.stream).status
                applied = status.applied if status is not None else 0
                return [e for e in before.epochs if applied <= e < before.newest] + newer
        return stream_log.epochs()

    def _changed_acks(self, channel: Channel) -> set[str]:
        """Return the streams whose ack of this site changed since the last listing of all acks,
        which is made now and then."""
        now = time.monotonic()
        if now < self._acks_at:
            return set()
        first, self._acks_at = self._acks_at == 0.0, now + ACKS_INTERVAL
        acks = {name: sites.get(self.site) for name, sites in ack_versions(channel).items()}
        before, self._acks = self._acks, acks
        if first:
            return set()  # each stream has its round first, which reads its ack
        return {name for name, version in acks.items() if version != before.get(name)}

    def _is_acked_as_held(self, stream_log: StreamLog) -> bool:
        """Whether this site's ack says held."""
        try:
            ack = stream_log.ack(self.site)
        except WanError:
            return True  # the round reports what is wrong
        return ack is not None and ack.held is not None

    def _table_of(self, stream: InboundStream, listing: Listing) -> str | None:
        """Return the stream's table, or None when this site has no part in it or cannot read it."""
        if stream.table is None:
            try:
                # To find the table. What is applied is read once more, and trusted then.
                manifest = listing.log.peek(listing.newest)
            except ChannelError:
                raise
            except WanError as error:
                stream.refuse(listing, None, str(error), self.site)
                return None
            if self.site not in manifest.addressees and not self._lacks(manifest):
                stream.status = None  # it may be held from when it could not be read
                stream.finish(listing)
                return None
            tables = self.topology.tables
            if manifest.table not in tables or self.site not in tables[manifest.table].at:
                cause = (
                    f"{stream.name}: table {manifest.table!r} is not at site {self.site} in "
                    f"{self.topology.file}. Add it below `tables:` with `at: {{{self.site}: …}}`. "
                    "If the table has another name now, remove what is left of this stream: "
                    f"spark-wan remove {stream.name} --config {self.topology.file}"
                )
                stream.refuse(listing, manifest, cause, self.site)
                return None
            # By its name: whoever wrote the manifest, it must not turn a stream of events off.
            stream.is_copy = copied_stream(stream.name) is not None
            stream.table = manifest.table
        return stream.table

    def _lacks(self, manifest: Manifest) -> bool:
        """Whether this site gets a user stream by the topology, though its newest epoch was not
        sent here: it was added since, and nobody writes an epoch that says so."""
        table = self.topology.tables.get(manifest.table)
        return (
            manifest.kind == EVENTS
            and table is not None
            and any(
                stream.name == manifest.stream and self.site in stream.addressees
                for stream in streams_of(self.topology, table)
            )
        )
