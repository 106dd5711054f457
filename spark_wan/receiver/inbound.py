"""The work on one inbound channel: list its logs, and apply what is due, table by table.

The logs and the ledger say what to apply. A micro-batch of the streaming query only says that there
may be something. So a lost, restored or shared Spark checkpoint costs one poll of the channel.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from spark_wan.channels.log import StreamLog
from spark_wan.channels.registry import open_channel
from spark_wan.control.decisions import Decisions, StoredDecisions
from spark_wan.delta.errors import ErrorKind, error_text
from spark_wan.delta.sessions import SessionSettings, lost_session
from spark_wan.errors import ChannelError, LedgerError, StoppedError
from spark_wan.ledger.ledger import Ledger
from spark_wan.ledger.store import DeltaLedgerStore
from spark_wan.ledger.tables import LedgerTables
from spark_wan.receiver.apply import ApplyResult, TableApplier
from spark_wan.receiver.channel_streams import ChannelStreams
from spark_wan.receiver.stream import InboundStream, Listing, TableStatus
from spark_wan.receiver.target import DeltaTarget
from spark_wan.receiver.workers import TableWorkers
from spark_wan.steps import Steps, reached
from spark_wan.topology.model import Topology
from spark_wan.wire.manifest import EVENTS, Manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

POLL_INTERVAL = 1.0
"""Seconds between polls of a channel that does not answer, or whose tables are being written."""
EXPIRY_INTERVAL = 3_600.0
"""Seconds between two expiries of event IDs."""
SPARK_STOP_WAIT = 20.0
"""Seconds for which a micro-batch that gave up waits for Spark's own stop of its query."""


@dataclass
class ChannelReceiver:
    """Receiver of one inbound channel: the function of its ``foreachBatch``.

    Spark Connect pickles it to the server; what the driver alone knows stays behind.
    """

    topology: Topology
    site: str
    url: str
    storage: dict[str, str]
    parallel: int
    max_bytes: int
    waits: bool = True
    """Whether to wait for a channel that does not answer; otherwise the micro-batch fails."""
    decisions: Mapping[str, Decisions] = field(default_factory=dict)
    """Decisions made at the start, by table."""
    settings: SessionSettings | None = None
    """Settings of the classic session in which the receiver was started."""
    stop: threading.Event | None = None
    query: StreamingQuery | None = None
    """The query of the micro-batches. None in a Spark Connect server, and before it is known."""
    failure: BaseException | None = None
    """What the last micro-batch raised."""
    idle: threading.Event = field(default_factory=threading.Event)
    """Set while no micro-batch runs."""

    def __post_init__(self) -> None:
        self.idle.set()
        self.streams = ChannelStreams(self.topology, self.site, self.url)

    def __getstate__(self) -> dict[str, Any]:
        kept = ("topology", "site", "url", "storage", "parallel", "max_bytes", "waits", "decisions")
        return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Apply what the channel has for this site. Spark calls this for every micro-batch.

        While the channel does not answer, the micro-batch neither fails, which would end the
        receiver, nor ends, because then nothing might wake the receiver again.
        """
        spark = frame.sparkSession
        plan: Any = getattr(frame, "_plan", None)
        if plan is not None:
            # An unused Connect frame asks the server to forget it, and at times waits forever.
            # The server forgets it anyway after the micro-batch.
            plan._relation_id = None
        self.failure = None
        self.idle.clear()
        try:
            self._until_applied(spark)
        except BaseException as error:
            self.failure = error
            self.idle.set()
            if not self._query_has_ended():
                raise
            # Spark does not count the batch of a stopped query as done. An error would only make
            # Spark log its stack.
            log.debug("the micro-batch gave up: %s", error)
        finally:
            self.idle.set()

    def forget(self) -> None:
        """Start over as a new receiver does. What was reported of the streams stays."""
        for stream in self.streams.all():
            stream.forget()

    def statuses(self) -> list[TableStatus]:
        """Return what each stream has done. All are held while the channel cannot be listed."""
        return self.streams.statuses()

    def acked(self) -> list[TableStatus]:
        """Return statuses as the channel's acks report them, for a receiver in another process."""
        return self.streams.acked(partial(open_channel, self.url, self.storage))

    def apply_all(self, spark: SparkSession) -> None:
        """Apply what the logs have now: one apply at a time per table, several tables at once.

        While tables are being written, the channel is polled, and other tables get what arrives: a
        slow table delays no other. Not with ``available_now``, which ends once it has applied what
        was there. A stream whose Spark job was cancelled from outside is retried here, because the
        micro-batch must not count as done without it.
        """
        channel = open_channel(self.url, self.storage)
        # Kept apart: a poll must not forget what a running apply has met.
        unread: dict[str, ChannelError] = {}
        unapplied: dict[str, ChannelError] = {}
        workers = TableWorkers(spark, self.parallel)
        due = self.streams.due(channel, unread)
        try:
            while True:
                for table, listings in due.items():
                    workers.give(table, partial(self._apply_table, spark, listings, unapplied))
                idle = workers.wait(POLL_INTERVAL)
                if idle and not any(s.retry and s.retry.cancelled for s in self.streams.all()):
                    break
                if idle:
                    self._pause()
                self._check_stopped()
                due = self.streams.poll(channel, unread) if self.waits else {}
        finally:
            workers.join()
        for error in (*unread.values(), *unapplied.values()):
            raise error

    def _apply_table(
        self, spark: SparkSession, listings: Sequence[Listing], errors: dict[str, ChannelError]
    ) -> None:
        for listing in listings:
            with self.streams.isolated(listing.log.stream, errors):
                self._apply_stream(spark, listing)

    def _apply_stream(self, spark: SparkSession, listing: Listing) -> None:
        stream = self.streams.get(listing.log.stream)
        try:
            applier = self._applier(spark, stream, listing.log)
        except LedgerError as error:
            self.streams.refuse(listing, None, str(error))
            return
        # No further than the listing: what arrives later wakes the receiver again, and other
        # streams have their turn before it.
        while True:
            self._check_stopped()
            result, cancelled = self._round(spark, stream, applier, listing.epochs)
            stream.record(result, applier.ledger.local_commits)
            if result.epochs:
                # Held streams of the same table may have waited for what was applied.
                for other in self.streams.all():
                    if other.table == stream.table:
                        other.retry_now()
                self._expire_event_ids(stream, applier, result.plan.new[0].manifest)
            if not result.again:
                stream.schedule(listing, result.held, cancelled)
                return

    def _round(
        self,
        spark: SparkSession,
        stream: InboundStream,
        applier: TableApplier,
        epochs: Sequence[int],
    ) -> tuple[ApplyResult, bool]:
        """Run one round. Return its result, and whether its job was cancelled from outside."""
        try:
            return self._run(applier.round(epochs)), False
        except Exception as error:
            if self._is_stopping():
                raise StoppedError("the receiver was stopped") from error
            lost = lost_session(spark)
            if lost is not None:
                raise lost from error
            if not ErrorKind.CANCELLED.matches(error):
                log.exception("%s: unexpected error", stream.name)
                return applier.unexpected(f"{applier.table}: {error_text(error)}"), False
            if self.query is None or not self.waits:
                # Who stopped what is unknown here. If the cancellation were swallowed, the batch
                # would count as done.
                raise StoppedError(f"{applier.table}: its Spark job was cancelled") from error
            cause = (
                f"{applier.table}: its Spark job was cancelled from outside. "
                f"Will retry in {stream.next_wait():g} s."
            )
            return applier.unexpected(cause), True

    def _run(self, steps: Steps[ApplyResult]) -> ApplyResult:
        """Run numbered steps, and check for a stop between them."""
        while True:
            self._check_stopped()
            try:
                reached(next(steps))
            except StopIteration as end:
                result: ApplyResult = end.value
                return result

    def _expire_event_ids(
        self, stream: InboundStream, applier: TableApplier, applied: Manifest
    ) -> None:
        """Now and then, forget event IDs older than the table's ``event_id_ttl``."""
        ttl = self.topology.table(applier.table).event_id_ttl
        if ttl is None or applied.kind != EVENTS or time.monotonic() < stream.expire_at:
            return
        stream.expire_at = time.monotonic() + EXPIRY_INTERVAL
        assert isinstance(applier.target, DeltaTarget)
        try:
            applier.target.expire_event_ids(applied.origin, int((time.time() - ttl) * 1_000_000))
        except Exception as error:
            # The next try is in an hour. It concerns nothing that was applied.
            if self._is_stopping():
                raise StoppedError("the receiver was stopped") from error
            text = error_text(error)
            log.warning("%s: event IDs could not be expired now: %s", applier.table, text)

    def _applier(
        self, spark: SparkSession, stream: InboundStream, stream_log: StreamLog
    ) -> TableApplier:
        with self.streams.lock:
            if stream.applier is None:
                assert stream.table is not None
                table, site = self.topology.table(stream.table), self.topology.site(self.site)
                tables = LedgerTables(spark, site.state)
                target = DeltaTarget(
                    spark,
                    self.site,
                    table.name,
                    table.location(self.site),
                    stream_log.channel,
                    tables,
                    self.settings,
                    table.max_dead_letters,
                )
                # Streams of one table share its ledger: their applies are numbered together.
                appliers = (other.applier for other in self.streams.all())
                shared = (a.ledger for a in appliers if a is not None and a.table == table.name)
                ledger = next(shared, None)
                decisions = StoredDecisions(site.state, site.storage)
                decisions.record(table.name, self.decisions.get(table.name, Decisions()))
                stream.applier = TableApplier(
                    self.site,
                    table.name,
                    stream_log,
                    target,
                    ledger or Ledger(self.site, table.name, DeltaLedgerStore(tables)),
                    self.max_bytes,
                    check_stopped=self._check_stopped,
                    decisions=partial(decisions.load, table.name),
                )
            return stream.applier

    def _until_applied(self, spark: SparkSession) -> None:
        while True:
            try:
                return self.apply_all(spark)
            except ChannelError as error:
                if not self.waits:
                    raise
                log.warning("%s", error)
            self._pause()
            self._check_stopped()
            if self.query is None:
                spark.range(1).collect()  # raises when the query was stopped

    def _pause(self) -> None:
        if self.stop is not None:
            self.stop.wait(POLL_INTERVAL)
        else:
            time.sleep(POLL_INTERVAL)

    def _query_has_ended(self) -> bool:
        """Whether the query was stopped. After the handle's stop, wait for Spark's own."""
        end = time.monotonic() + SPARK_STOP_WAIT
        while self.query is not None:
            if not _is_active(self.query):
                return True
            if self.stop is None or not self.stop.is_set() or time.monotonic() > end:
                break
            time.sleep(0.02)
        return False

    def _is_stopping(self) -> bool:
        stopped = self.stop is not None and self.stop.is_set()
        return stopped or (self.query is not None and not _is_active(self.query))

    def _check_stopped(self) -> None:
        if self._is_stopping():
            raise StoppedError("the receiver was stopped")


def _is_active(query: StreamingQuery) -> bool:
    try:
        return query.isActive
    except Exception as error:
        log.debug("the query does not answer, its session has ended: %s", error)
        return False
