"""Forwarding in a running receiver: beside the applies, so that neither waits for the other.

Each inbound stream is forwarded by each sender of the site that its table is attached to. This
also runs what a Sender runs for its own streams: it collects the acks of what was forwarded, and
trims.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from spark_wan.apply.site_ack import SiteAck
from spark_wan.channels.registry import open_channel
from spark_wan.delta.sessions import CurrentSession
from spark_wan.errors import (
    UNEXPECTED,
    ChannelError,
    QueueFullError,
    StoppedError,
    WanError,
    may_pass,
)
from spark_wan.forward.forwarder import Forwarder
from spark_wan.forward.forwarding import Forwarding
from spark_wan.log.ack_watch import AckWatch
from spark_wan.log.heart import Heart
from spark_wan.log.stream_log import StreamLog
from spark_wan.messages import message_log
from spark_wan.runtime.hold import Hold
from spark_wan.runtime.pace import Pace
from spark_wan.runtime.scheduler import (
    UNTIL_WOKEN,
    Activity,
    Found,
    Job,
    Lane,
    Next,
    Scheduler,
    Turn,
)
from spark_wan.sender.acks import AckManager
from spark_wan.sender.outbound_channel import OutboundChannel
from spark_wan.sender.outbound_stream import OutboundStream, StreamStatus
from spark_wan.sender.queue import OutboundQueue
from spark_wan.sender.rate import SendRate
from spark_wan.sender.record import SenderRecordKeeper
from spark_wan.state.checkpoints import StoredCheckpoints
from spark_wan.state.decisions import StoredDecisions
from spark_wan.steps import run
from spark_wan.topology.fingerprint import settings_fingerprint
from spark_wan.topology.model import (
    QueueLimits,
    Sender,
    Site,
    Table,
    Topology,
    forwarded_name,
)
from spark_wan.topology.signing import sending_trust
from spark_wan.units import milliseconds
from spark_wan.wire.heartbeat import forwarding
from spark_wan.wire.sender_record import NotSent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = message_log(__name__)

ROOM_INTERVAL = 1.0
"""Seconds between looks whether a full queue has room again."""
FIRST_RETRY = 1.0
"""Seconds until a held forwarding is retried for the first time."""


@dataclass(eq=False)
class ForwardedStream(Activity):
    """An inbound stream that a sender of this site forwards."""

    kind = "stream"

    job: Job
    forwarder: Forwarder
    answer: SiteAck
    outbound: OutboundChannel
    acks: OutboundStream
    """Collects the acks of what is forwarded."""
    scheduler: Scheduler
    available_now: bool
    """Forward what was listed, and end."""

    def __post_init__(self) -> None:
        self.name = self.forwarder.outbound.stream
        self.priority = self.forwarder.table.priority
        self.forwarding = Forwarding(self.forwarder, self._wake)
        self.forwarder.is_paused = lambda: self.forwarding.paused

    def _wake(self) -> None:
        self.scheduler.add(self)
        self.scheduler.wake(self)

    def look(self, spark: SparkSession) -> Turn:
        """Find out whether there is something to forward."""
        self.job.check_stopped()
        if not self.forwarding.is_due or self.forwarding.paused:
            return None if self.available_now else UNTIL_WOKEN
        hold = self.forwarding.hold
        wait = hold.left() if hold is not None else 0.0
        if self.acks.status.queue_full is not None:
            wait = ROOM_INTERVAL if self._is_queue_full() else 0.0
        if self.forwarder.rate is not None:
            wait = max(wait, self.forwarder.rate.wait())
        return Next(wait) if wait else Found(self._forward, Lane.FORWARDS)

    def _is_queue_full(self) -> bool:
        try:
            return self.forwarder.queue is not None and self.forwarder.queue.is_full()
        except WanError as error:
            log.debug("%s: a round will tell whether there is room: %s", self.name, error)
            return False

    def _forward(self, spark: SparkSession) -> Turn:
        """Forward in a worker. An error holds this forwarding alone."""
        self.forwarding.is_due = False
        cause, passes = None, False
        full: QueueFullError | None = None
        try:
            self.outbound.watch.channel.ensure_prepared()
            run(self.forwarder.round(), self.job.check_stopped)
        except StoppedError:
            raise
        except QueueFullError as error:
            full = error
            cause = str(error) if error.is_hold or self.available_now else None
        except WanError as error:
            cause, passes = str(error), may_pass(error)
        except Exception as error:
            passes = may_pass(error)
            cause = f"{self.name}: {type(error).__name__}: {error}"
            if cause != self.forwarding.held:
                log.exception(
                    "%s: unexpected error",
                    self.name,
                    event="unexpected-error",
                    stream=self.name,
                    what_to_do=UNEXPECTED,
                )
        was_full = self.acks.status.queue_full is not None
        self.acks.note_queue(full)
        if was_full != (full is not None):
            self.scheduler.wake(self.acks)  # its record says so
        if self.forwarder.left or full is not None:
            self.forwarding.is_due = True
        self._count()
        try:
            self.answer.report_forwarded(self.name, cause, passes)
        except ChannelError as error:
            if cause is None:
                cause, passes = str(error), may_pass(error)
        return self._noted(cause, passes)

    def _noted(self, cause: str | None, passes: bool) -> Turn:
        """Note whether forwarding is held, and why. Returns what comes next."""
        before = self.forwarding.hold
        hold = Hold(cause, FIRST_RETRY, before) if cause is not None else None
        self.forwarding.hold = hold
        self.acks.forwarding_held = None if cause is None else (cause, passes)
        is_new = cause != (before.cause if before is not None else None)
        if self.available_now:
            self.scheduler.add(self.acks)
        elif is_new:
            self.scheduler.wake(self.acks)
        if hold is None:
            return Next(0.0)
        if is_new:
            log.error(
                "%s: not forwarded: %s",
                self.name,
                cause,
                event="held",
                stream=self.name,
                cause=cause,
            )
        if self.available_now:
            return None
        self.forwarding.is_due = True
        return Next(hold.wait)

    def _count(self) -> None:
        status, counts = self.acks.status, self.forwarder.counts
        status.not_sent = NotSent(elsewhere=counts.elsewhere)
        if counts.epochs == status.epochs:
            return
        status.epochs, status.events = counts.epochs, counts.events
        status.batches, status.bytes = counts.batches, counts.bytes
        log.info(
            "%s: forwarded through epoch %d",
            self.name,
            self.forwarding.through,
            event="forwarded",
            stream=self.name,
            epoch=self.forwarding.through,
        )
        self.scheduler.wake(self.acks)


class Forwards:
    """The forwarding of a running receiver."""

    def __init__(
        self, job: Job, scheduler: Scheduler, *, topology: Topology, site: Site, available_now: bool
    ) -> None:
        self.job = job
        self.scheduler = scheduler
        self.topology = topology
        self.site = site
        self.available_now = available_now
        self._outbound: dict[str, OutboundChannel] = {}
        self._rates: dict[str, SendRate] = {}
        """By sender."""
        self._lock = threading.Lock()

    def of(self, inbound: StreamLog, table: Table, answer: SiteAck) -> list[Forwarding]:
        """Return the forwarding of an inbound stream: one for each sender that the table is
        attached to here. It begins once it is given a listing."""
        return [
            self._forwarded(inbound, table, sender, answer).forwarding
            for sender in self.topology.attached(table, self.site.name)
        ]

    @property
    def channels(self) -> list[OutboundChannel]:
        """The channels to which streams are forwarded."""
        with self._lock:
            return [*self._outbound.values()]

    def _forwarded(
        self, inbound: StreamLog, table: Table, sender: Sender, answer: SiteAck
    ) -> ForwardedStream:
        outbound = self.outbound(sender)
        channel = outbound.watch.channel
        name = forwarded_name(self.site.name, sender.name, inbound.stream)
        stream_log = StreamLog(channel, name, sending_trust(self.topology, sender))
        state, storage = self.site.state.rstrip("/"), self.site.storage
        checkpoints = StoredCheckpoints(f"{state}/checkpoints/sender/{sender.name}", storage)
        decisions = StoredDecisions(state, storage)
        acks = AckManager(
            stream_log,
            checkpoints,
            policy=sender.ack_policy,
            ack_timeout=int(sender.ack_timeout * 1000),
            clock=milliseconds,
            served=sender.remotes,
            watch=outbound.watch,
        )
        collecting = OutboundStream(
            self.job,
            self.available_now,
            session=CurrentSession(),
            status=StreamStatus(name, table.name),
            publisher=None,
            acks=acks,
            pace=Pace(sender.batch_interval, self.site.idle_interval),
            block_on_ack=0.0,
            record=SenderRecordKeeper(
                channel, name, settings_fingerprint(self.topology, sender, table), milliseconds
            ),
        )
        outbound.streams.append(collecting)
        if not self.available_now:
            self.scheduler.add(collecting)
        forwarder = Forwarder(
            self.topology,
            table,
            sender=sender,
            inbound=inbound,
            outbound=stream_log,
            checkpoints=checkpoints,
            clock=milliseconds,
            decisions=partial(decisions.load, table.name),
            queue=OutboundQueue(acks, QueueLimits.of(sender, table)),
            rate=self._rates.setdefault(sender.name, SendRate.of(sender)),
        )
        return ForwardedStream(
            self.job,
            forwarder,
            answer=answer,
            outbound=outbound,
            acks=collecting,
            scheduler=self.scheduler,
            available_now=self.available_now,
        )

    def outbound(self, sender: Sender) -> OutboundChannel:
        """Return the channel of a sender, which is looked at from now on."""
        with self._lock:
            known = self._outbound.get(sender.channel)
            if known is None:
                watch = AckWatch(open_channel(sender.channel, sender.storage))
                pace = Pace(sender.batch_interval, self.site.idle_interval)
                heart = Heart(watch.channel, self.site.name, milliseconds, set())
                known = OutboundChannel(watch, [], self.scheduler, pace, heart)
                self._outbound[sender.channel] = known
                if not self.available_now:
                    self.scheduler.add(known)
            known.heart.add(forwarding(sender.name))
            if self.available_now:
                known.heart.beat(every=0)
            return known
