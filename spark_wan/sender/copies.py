"""The copies that sites ask for through one channel of a site."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_wan.delta.errors import error_text
from spark_wan.delta.sessions import CurrentSession, lost_session
from spark_wan.errors import ChannelError, StoppedError, WanError
from spark_wan.log.ack_watch import AckWatch
from spark_wan.log.stream_log import StreamLog
from spark_wan.log.writer import StreamSettings
from spark_wan.messages import message_log
from spark_wan.runtime.progress import long_work
from spark_wan.runtime.scheduler import (
    Activity,
    Found,
    Job,
    Lane,
    Next,
    Scheduler,
    Turn,
)
from spark_wan.sender.record import SenderRecordKeeper
from spark_wan.sender.serve import CopyServer, CopySource
from spark_wan.steps import reached
from spark_wan.topology.fingerprint import settings_fingerprint
from spark_wan.topology.model import Topology
from spark_wan.topology.routes import Serving
from spark_wan.topology.signing import sending_trust
from spark_wan.units import milliseconds
from spark_wan.wire.ack import Ack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = message_log(__name__)

RETRY = 10.0
"""Seconds until a copy that could not be served is tried again."""
TIDY_INTERVAL = 3600.0
"""Seconds until what earlier copies have left in the channel is looked for again."""


@dataclass(eq=False)
class OutboundCopy(Activity):
    """Serves the copies of one table to one site, while there is a request."""

    kind = "stream"

    job: Job
    watch: AckWatch
    server: CopyServer
    session: CurrentSession
    """Of the table."""
    record: SenderRecordKeeper
    """Says how far it is, which is a sign of life for the site that waits."""
    available_now: bool
    """Serve what is asked for now, and end."""
    is_serving: bool = False
    _seen: tuple[object, float] | None = None
    """How the acks of the copies looked when they were served, or there was nothing to serve; and
    when that was."""
    _held: tuple[str, float] | None = None
    """Why the copy could not be served, and when it is tried again."""

    def __post_init__(self) -> None:
        self.name = self.server.log.stream

    def is_due(self) -> bool:
        """Whether the acks have changed since they were looked at, or that was long ago, or it is
        tried again."""
        now = time.monotonic()
        return (self._held is None or now >= self._held[1]) and not self._is_done(now)

    def _is_done(self, now: float) -> bool:
        if self._seen is None:
            return False
        tag, at = self._seen
        return self.watch.tag(self.name) == tag and now < at + TIDY_INTERVAL

    def look(self, spark: SparkSession) -> Turn:
        self.job.check_stopped()
        if self.is_due():
            return Found(self._serve, Lane.COPIES, first=self._is_asked())
        return None if self._held is None or self.available_now else Next(RETRY)

    def _is_asked(self) -> bool:
        """Whether a site waits; else there may be something to tidy up."""
        try:
            acks = [Ack.decode(data) for data in self.watch.acks(self.name).values()]
        except WanError:
            return True
        return any(ack is not None and ack.wanted is not None for ack in acks)

    def _serve(self, spark: SparkSession) -> Turn:
        """Serve in a worker. An error holds this copy alone."""
        self.session.spark = spark
        tag = self.watch.tag(self.name)
        self.is_serving = True
        self._keep_record(self._held[0] if self._held is not None else None)
        try:
            for step in self.server.round():
                self.job.check_stopped()
                reached(step)
            self._held, self._seen = None, (tag, time.monotonic())
        except StoppedError:
            raise
        except Exception as error:
            lost = lost_session(spark)
            if lost is not None:
                raise lost from error
            cause = error_text(error)
            if self._held is None or self._held[0] != cause:
                log.error(
                    "%s: the copy is not served: %s",
                    self.name,
                    cause,
                    event="copy-not-served",
                    stream=self.name,
                    cause=cause,
                )
            self._held = cause, time.monotonic() + RETRY
        finally:
            self.is_serving = False
        self._keep_record(self._held[0] if self._held is not None else None)
        return None if self._held is None or self.available_now else Next(RETRY)

    def _keep_record(self, held: str | None) -> None:
        self.record.keep(held=held, work=None)

    def report_work(self) -> None:
        """Have the record say how far the copy is, if it takes long."""
        site, now = self.server.settings.origin, milliseconds()
        whole = long_work("copying", self.name, site, now)
        self.record.report(whole or long_work("capturing", self.name, site, now))


def copy_settings(by: Serving) -> StreamSettings:
    """Return what the copies that a site serves to another one say of themselves."""
    return StreamSettings(
        stream=by.stream,
        table=by.table.name,
        keys=by.table.keys,
        origin=by.sender.site if by.by_writer else by.table.writers[0],
        sent_to=(by.site,),
        addressees=(by.site,),
    )


def outbound_copy(
    job: Job,
    topology: Topology,
    watch: AckWatch,
    by: Serving,
    *,
    source: CopySource,
    session: CurrentSession,
    available_now: bool,
) -> OutboundCopy:
    """Return what serves copies of a ``source`` to a site. ``session``: of the source."""
    stream_log = StreamLog(watch.channel, by.stream, sending_trust(topology, by.sender))
    server = CopyServer(
        copy_settings(by),
        stream_log,
        source,
        milliseconds,
        rate=by.sender.copy_rate,
        pause=job.pause,
    )
    fingerprint = settings_fingerprint(topology, by.sender, by.table)
    record = SenderRecordKeeper(watch.channel, by.stream, fingerprint, milliseconds)
    return OutboundCopy(job, watch, server, session, record, available_now)


@dataclass
class OutboundCopies:
    """Serves what the acks of a channel ask for. The channel's listing wakes it."""

    watch: AckWatch
    copies: Sequence[OutboundCopy]
    scheduler: Scheduler
    _by_name: dict[str, OutboundCopy] = field(init=False)

    def __post_init__(self) -> None:
        self._by_name = {each.name: each for each in self.copies}

    def begin_due(self) -> None:
        """Begin to serve the requests that are new since the last call."""
        for name in sorted(self._by_name.keys() & set(self.watch.streams())):
            if self._by_name[name].is_due():
                self.scheduler.add(self._by_name[name])
                self.scheduler.wake(self._by_name[name])

    @property
    def records(self) -> list[SenderRecordKeeper]:
        """The records of the copies that are being served, as far as they are now."""
        serving = [each for each in self.copies if each.is_serving]
        for each in serving:
            each.report_work()
        return [each.record for each in serving]


@dataclass(eq=False)
class CopiesNow(Activity):
    """Begins to serve the copies that are asked for now, once, in a run that ends."""

    copies: OutboundCopies

    def __post_init__(self) -> None:
        self.name = f"copies through {self.copies.watch.channel.url}"

    def look(self, spark: SparkSession) -> Turn:
        try:
            self.copies.watch.look()
        except ChannelError as error:
            log.debug("%s: %s", self.name, error)  # it holds the streams, which say so
            return None
        self.copies.begin_due()
        return None
