"""Forwarding one inbound stream by one sender: the numbered path.

A forwarder appends the epochs of an inbound log, in their order, to a log of its own, the outbound
stream ``<site>.<sender>~<inbound stream>``. Frames are copied byte for byte. The manifests alone
say where they came from and where they go. A crash between any two steps changes nothing:

    forward.1  log-read        the newest manifest of the outbound log: its ``via`` is the inbound
                               epoch that was forwarded last, and nothing else says so
    forward.2  planned         the inbound epochs after it
    forward.3  frames-copied   of the next one, once the queue has room; no receiver reads them yet
    forward.4  manifest-added  created if absent: now it is forwarded. If another receiver of this
                               site was faster: start over
    forward.5  checkpointed    the sender's checkpoint, which only detects a lost outbound log

Steps 3 to 5 are repeated for each epoch. Forwarding runs beside the apply: it needs no table.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from spark_wan.channels.base import new_attempt
from spark_wan.channels.parallel import in_order
from spark_wan.errors import FrameError, LogGapError, ManifestError
from spark_wan.forward.plan import epochs_after, next_manifest
from spark_wan.log.frame_age import are_there
from spark_wan.log.inbound import InboundLog, reference
from spark_wan.log.lost_logs import LogEnd, NewLog
from spark_wan.log.stream_log import StreamLog
from spark_wan.log.writer import CheckpointStore, LogWriter, StreamSettings
from spark_wan.sender.queue import OutboundQueue, log_dropped
from spark_wan.sender.rate import SendRate
from spark_wan.steps import Steps
from spark_wan.topology.model import Sender, Stream, Table, Topology
from spark_wan.topology.routes import addressees, forwarded_sent_to, streams_of
from spark_wan.wire.decisions import NEW_LOG, Decisions
from spark_wan.wire.frame import FrameRef, check_frame, frame_digest, most_bytes
from spark_wan.wire.manifest import CAPTURE, EVENTS, SNAPSHOT, Manifest


@dataclass
class Counts:
    """What a forwarder has sent since it began."""

    epochs: int = 0
    events: int = 0
    batches: int = 0
    bytes: int = 0
    elsewhere: int = 0
    """Inbound epochs that go to no site from here: all get them by another way."""
    _passed: tuple[str, int] = "", 0
    """The log and the epoch that were passed over last."""

    def add(self, manifest: Manifest) -> None:
        self.epochs += 1
        self.events += sum(frame.rows for frame in manifest.frames)
        self.batches += len(manifest.frames)
        self.bytes += manifest.bytes

    def pass_over(self, manifest: Manifest) -> None:
        """Count an inbound epoch that goes to no site from here, once: a round may see it again."""
        log_id, epoch = self._passed
        if manifest.log_id != log_id or manifest.epoch > epoch:
            self.elsewhere += 1
            self._passed = manifest.log_id, manifest.epoch


@dataclass
class Forwarder:
    """Forwards one inbound stream by one sender. What it remembers are hints: each round reads
    again what it decides by."""

    topology: Topology
    table: Table
    sender: Sender
    inbound: StreamLog
    outbound: StreamLog
    checkpoints: CheckpointStore
    clock: Callable[[], int]
    """Milliseconds since 1970 UTC."""
    decisions: Callable[[], Decisions] = Decisions
    """Returns the user's recorded decisions about the table. Called only where one is needed."""
    queue: OutboundQueue | None = None
    """What limits how much may wait in the outbound channel; None: nothing does."""
    rate: SendRate | None = None
    """How fast the sender adds to its channel; None: as fast as it can."""
    is_paused: Callable[[], bool] = lambda: False
    """Whether nothing of the inbound stream is to be taken."""
    left: bool = False
    """The last round has left something for that reason, or because of the rate."""
    position: tuple[str, int] | None = None
    """(log ID, epoch) through which everything of the inbound log is forwarded, or need not be;
    None: not known yet."""
    counts: Counts = field(default_factory=Counts)
    _has_log: bool = True
    """Whether the outbound log may have a manifest."""
    _writer: LogWriter = field(init=False)
    _log: InboundLog = field(init=False)

    def __post_init__(self) -> None:
        new_log = NewLog(
            f"run `spark-wan decide {self.table.name}@{{log}}={NEW_LOG}`",
            lambda lost: lost in self.decisions().new_logs,
        )
        self._writer = LogWriter(self.outbound, self.checkpoints, self.clock, new_log)
        self._log = InboundLog(self.inbound, self.table.name, lambda: self.decisions().new_logs)

    @property
    def site(self) -> str:
        return self.sender.site

    def through(self, log_id: str) -> int | None:
        """Return through which epoch an inbound log is forwarded; None: not known yet."""
        position = self.position
        if position is None:
            return None
        return position[1] if position[0] == log_id else 0

    def addressees(self, manifest: Manifest) -> tuple[str, ...]:
        """Return the sites to which an inbound epoch goes from here, by its manifest alone."""
        if self.site not in manifest.addressees:
            return ()  # this site gets these events by another stream
        return addressees(self.table, self.sender, manifest.origin, manifest.sent_to)

    def round(self) -> Steps[None]:
        """Forward what the inbound log has.

        Raises LogGapError, ManifestError, FrameError or ChannelError, each of which holds this
        forwarding only, and QueueFullError. What was forwarded before the error stays so
        (:attr:`position`).
        """
        yield from self._writer.until_appended(self._forward_again)

    def _forward_again(self) -> Steps[None]:
        """Forward. If that fails, once more with nothing remembered: another receiver of this site
        may have forwarded meanwhile, and the sender have trimmed."""
        with suppress(FrameError, LogGapError, ManifestError):
            yield from self._forward()
            return
        self.inbound.forget()
        yield from self._forward()

    def _forward(self) -> Steps[None]:
        if self._must_leave() or self._is_for_others():
            return
        end = self._outbound_end()
        last = end.last
        self._has_log = last is not None
        yield "forward.1 log-read"
        before = last.via if last is not None else None
        epochs = self._log.after(before.epoch if before is not None else 0)
        if not epochs:
            return
        beginning: Manifest | None = None
        if before is not None:
            due = epochs_after(self._log, before, epochs)
            if before.log_id == self._log.peek(epochs[-1]).log_id:
                self.position = before.log_id, before.epoch
        else:
            beginning = self._missed(epochs)
            due = [each for each in epochs if beginning is None or each >= beginning.epoch]
        yield "forward.2 planned"
        if due:
            self._writer.check_acks(end)
        for epoch in due:
            if self._must_leave():
                return
            manifest = next_manifest(self._log, epoch, before)
            if last is not None and manifest.frames and self.addressees(manifest):
                last = yield from self._make_room(last)
            if last is not None or self.addressees(manifest):
                began = self.clock()
                frames = self._copy(manifest) if manifest is not beginning else ()
                yield "forward.3 frames-copied"
                following = self._following(last, manifest, frames, manifest is beginning)
                last = yield from self._add(following, began)
            if not self.addressees(manifest):
                self.counts.pass_over(manifest)
            before = reference(manifest)
            self.position = manifest.log_id, manifest.epoch
        if last is not None and last.kind != EVENTS and not due:
            yield from self._name_new_sites(last)

    def _must_leave(self) -> bool:
        """Whether to leave the rest, because the inbound stream is paused, or enough was sent."""
        self.left = self.is_paused() or (self.rate is not None and self.rate.wait() > 0)
        return self.left

    def _add(self, manifest: Manifest, began: int) -> Steps[Manifest]:
        """Append a manifest to the outbound log."""
        added = self._writer.append(manifest, began)
        self._has_log = True
        self.counts.add(added)
        if self.rate is not None:
            self.rate.spend(added.bytes, added.rows)
        yield "forward.4 manifest-added"
        # Read again: the acks of what is forwarded are collected meanwhile.
        self._writer.record(self._writer.checkpoint(), added)
        yield "forward.5 checkpointed"
        return added

    def _make_room(self, last: Manifest) -> Steps[Manifest]:
        """Return the newest manifest, once an epoch may follow it. Raises QueueFullError."""
        dropped = self.queue.check(last) if self.queue is not None else {}
        if not dropped:
            return last
        settings = self._settings_of(last, last.sent_to, last.addressees)
        following = self._writer.without_rows(last, settings, dropped=dropped)
        added = yield from self._add(following, self.clock())
        log_dropped(last, dropped, "its queue is full")
        return added

    def _name_new_sites(self, last: Manifest) -> Steps[None]:
        """Name sites that were added to the sender's remotes since ``last`` was forwarded."""
        planned = self._planned
        if planned is not None and not {*planned.addressees} <= {*last.addressees}:
            settings = self._settings_of(last, planned.sent_to, planned.addressees)
            yield from self._add(self._writer.without_rows(last, settings), self.clock())

    def _settings_of(
        self, last: Manifest, sent_to: tuple[str, ...], addressees: tuple[str, ...]
    ) -> StreamSettings:
        """Return what an epoch without rows after ``last`` says."""
        return StreamSettings(
            stream=self.outbound.stream,
            table=last.table,
            keys=last.keys,
            origin=last.origin,
            sent_to=sent_to,
            addressees=addressees,
        )

    @cached_property
    def _planned(self) -> Stream | None:
        """The outbound stream by the topology; None: it has none."""
        streams = streams_of(self.topology, self.table)
        return next((each for each in streams if each.name == self.outbound.stream), None)

    def _is_for_others(self) -> bool:
        """Whether nothing was ever forwarded, and the new epochs go to no site from here."""
        if self._has_log or self.position is None:
            return False
        epochs = self._log.after(self.position[1])
        if not epochs:
            return False
        newest = self._log.peek(epochs[-1])
        if newest.log_id != self.position[0]:
            return False
        inbound: list[Manifest] = []
        for epoch in epochs:
            inbound.append(self._log.read(epoch))
            if self.addressees(inbound[-1]):
                return False  # the others are read when they are forwarded
        for manifest in inbound:
            self.counts.pass_over(manifest)
        self.position = newest.log_id, newest.epoch
        return True

    def _outbound_end(self) -> LogEnd:
        end = self._writer.end()
        last = end.last
        if last is not None and last.via is None:
            raise LogGapError(
                f"{self.outbound.channel.url}: manifest {last.epoch} of {self.outbound.stream} was "
                "not forwarded: another program writes this stream. Give it another name."
            )
        return end

    def _missed(self, epochs: Sequence[int]) -> Manifest | None:
        """Return the epoch through which the inbound log went by before this sender was attached to
        the table; None: its beginning is there.

        What all sites had acked then is trimmed, or may be at any moment. The outbound log begins
        after it: with an epoch that has no events, and says that there are some before it. A site
        that lacks those is held, and asks for a copy.

        An ack that was lost, and written again since, counts nothing that is not forwarded. Then
        frames that are not there have been trimmed if this site's table has their rows.
        """
        ack = self.inbound.ack(self.site)
        newest = self._log.peek(epochs[-1])
        if ack is None or ack.log_id != newest.log_id or ack.in_table < epochs[0]:
            return None
        # Frames are trimmed before manifests, those of many epochs at once.
        first = [epoch for epoch in epochs if epoch <= ack.in_table + 1]
        there = in_order(lambda epoch: are_there(self.inbound, self._log.read(epoch).frames), first)
        gone = [epoch for epoch, whole in zip(first, there, strict=True) if not whole]
        trimmed = max(gone, default=0)
        if not trimmed and self._log.read(epochs[0]).start:
            return None
        through = min(max(ack.applied, trimmed), newest.epoch)
        return self._log.read(through) if epochs[0] <= through and trimmed <= ack.in_table else None

    def _copy(self, manifest: Manifest) -> tuple[FrameRef, ...]:
        """Copy the frames of an epoch, several at once. After an error none is left."""
        if not self.addressees(manifest):
            return ()
        attempt = new_attempt(uuid.uuid4().hex)
        channel, stream = self.outbound.channel, self.outbound.stream
        most = self.topology.site(self.site).max_frame_bytes

        def copy(frame: tuple[int, FrameRef]) -> FrameRef:
            index, ref = frame
            where = f"{self.inbound.channel.url}/{ref.path}"
            data = self.inbound.channel.get_frame(ref.path, most_bytes(ref, where, most))
            check_frame(data, where, ref)
            digest = frame_digest(data) if self.outbound.trust.signer is not None else ""
            path = channel.put_frame(stream, attempt, index, data)
            return replace(ref, path=path, digest=digest)

        return self._writer.all_or_nothing(
            attempt,
            lambda: tuple(in_order(copy, enumerate(manifest.frames), size=lambda f: f[1].bytes)),
        )

    def _following(
        self,
        last: Manifest | None,
        manifest: Manifest,
        frames: tuple[FrameRef, ...],
        is_beginning: bool,
    ) -> Manifest:
        """Return the manifest after ``last`` that forwards an inbound one."""
        settings = StreamSettings(
            stream=self.outbound.stream,
            table=manifest.table,
            keys=manifest.keys,
            origin=manifest.origin,
            sent_to=forwarded_sent_to(self.topology, self.table, self.site, manifest.sent_to),
            addressees=self.addressees(manifest),
        )
        versions = {"first_version": manifest.first_version, "start": manifest.start}
        if is_beginning:
            after = manifest.last_version + (manifest.kind != EVENTS)
            versions = {"first_version": after, "start": False}
        return self._writer.following(
            last,
            settings,
            kind=CAPTURE if is_beginning and manifest.kind == SNAPSHOT else manifest.kind,
            table_id=manifest.table_id,
            selection=manifest.selection,
            schema=manifest.schema,
            last_version=manifest.last_version,
            commits=() if is_beginning else manifest.commits,
            identity=manifest.identity,
            frames=frames,
            disjoint=manifest.disjoint,
            clock=manifest.clock,
            via=reference(manifest),
            root=manifest.written_at_origin,
            **versions,
        )
