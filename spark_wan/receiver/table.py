"""One table of a running receiver: what its streams have for it, and the work on it.

A table is worked on by one worker at a time, whatever channels its streams come through. The logs
and the ledger say what to apply; a listing only says that there may be something.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from spark_wan.apply.applier import READ_BACK, ApplyResult, TableApplier
from spark_wan.apply.plan import gap_behind
from spark_wan.apply.take import CopyTaker
from spark_wan.delta.commits import record_after
from spark_wan.delta.errors import ErrorKind, error_text
from spark_wan.delta.sessions import CurrentSession, lost_session
from spark_wan.errors import (
    UNEXPECTED,
    ChannelError,
    LedgerError,
    StoppedError,
    WanError,
    may_pass,
)
from spark_wan.ledger.folding import LEAST_MARKS
from spark_wan.ledger.ledger import Ledger
from spark_wan.ledger.maintenance import LedgerMaintenance
from spark_wan.ledger.store import DeltaLedgerStore
from spark_wan.ledger.tables import LedgerTables
from spark_wan.ledger.writer import LedgerWriter
from spark_wan.log.listing import Listing
from spark_wan.log.stream_log import StreamLog
from spark_wan.messages import message_log
from spark_wan.receiver.refused import RefusedReporter
from spark_wan.receiver.stream import Done, Due, InboundStream
from spark_wan.runtime.first_looks import RETRY, FirstLooks
from spark_wan.runtime.scheduler import UNTIL_WOKEN, Activity, Found, Job, Next, Turn
from spark_wan.state.decisions import StoredDecisions
from spark_wan.state.handled import HandledLetters
from spark_wan.steps import reached
from spark_wan.sync.automatic import Synchronizer
from spark_wan.target.delta_table import DeltaTarget
from spark_wan.topology.model import Site, Table
from spark_wan.units import milliseconds
from spark_wan.wire.decisions import Decisions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = message_log(__name__)

READ_INTERVAL = 3_600.0
"""Seconds between looks at a target while a channel is out of reach, or paused."""

_Work = Generator[None, None, None]
"""The work on a table. It stops where a mark waits for the ledger, perhaps for another worker."""


@dataclass(eq=False)
class InboundTable(Activity):
    """A table of a running receiver."""

    kind = "table"

    job: Job
    site: Site
    table: Table
    max_bytes: int
    available_now: bool
    """Apply what was listed, and end."""
    decisions: Decisions = field(default_factory=Decisions)
    """Decisions made at the start."""
    maintenance: LedgerMaintenance | None = None
    """Of the site's ledger, with ``available_now``."""
    writer: LedgerWriter | None = None
    """Writes marks to the ledger, those of several tables at once. None: each table does."""
    first_looks: FirstLooks | None = None
    """None: the first look at the target is done, or cannot wait."""
    synchronizer: Synchronizer | None = None
    """Asks for copies of the table; None: people do."""
    cut_off: bool = False
    """A channel is out of reach, or paused."""
    _maintained: bool = False
    _due: dict[str, Due] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Guards ``_due``: channels add to it."""
    _session: CurrentSession = field(default_factory=CurrentSession)
    _work: _Work | None = None
    """Work that waits for the ledger."""
    _streams: dict[str, InboundStream] = field(default_factory=dict)
    _ledger: Ledger | None = None
    _ledger_tables: LedgerTables | None = None
    _awaited: dict[str, CopyTaker] = field(default_factory=dict)
    """Stream -> of a copy that was asked for and is not there yet."""
    _read_at: float = field(default_factory=time.monotonic)
    """When the target's history was read last."""

    def __post_init__(self) -> None:
        self.name, self.priority = self.table.name, self.table.priority

    def give(self, due: Sequence[Due]) -> None:
        """Take note of streams that are due. A newer listing replaces an older one."""
        with self._lock:
            self._due |= {each.stream.name: each for each in due}

    def look(self, spark: SparkSession) -> Turn:
        """Find out whether any stream is due."""
        self.job.check_stopped()
        if self._work is not None and self.writer is not None:
            return UNTIL_WOKEN if self.writer.has(self) else Found(self._go_on)
        if self._due:
            return Found(self._begin) if self._may_begin() else Next(RETRY)
        if self.cut_off and self.must_read():
            return Found(self._read_target)
        if not self.available_now:
            return UNTIL_WOKEN
        return Found(self._maintain) if self._is_ledger_grown() else None

    def must_read(self) -> bool:
        """Whether to read the target, while a channel is cut off: log cleanup may soon take
        commits of it that the ledger has not seen."""
        is_old = time.monotonic() - self._read_at >= READ_INTERVAL
        return is_old and self._ledger is not None

    def _read_target(self, spark: SparkSession) -> Turn:
        """Have the ledger catch up with the target. Needs no channel, which may be out of reach for
        longer than the table keeps its history."""
        self._session.spark, self._read_at, self.cut_off = spark, time.monotonic(), False
        for stream in self._streams.values():
            if self._ledger is not None and isinstance(stream.applier, TableApplier):
                try:
                    self._ledger.catch_up(stream.applier.target)
                except WanError as error:
                    log.debug("%s: the next round will tell: %s", self.name, error)
                break
        return Next(0.0)

    def _may_begin(self) -> bool:
        """Whether work may begin: there is something to apply, by this site's acks, or it is this
        table's turn to have its first look."""
        if self.first_looks is None:
            return True
        with self._lock:
            due = list(self._due.values())
        if all(each.is_acked for each in due):
            return self.first_looks.may_begin(self)
        self._leave_first_looks()
        return True

    def _leave_first_looks(self) -> None:
        """Let other tables have their first look: this one has had it, or need not wait for it."""
        if self.first_looks is not None:
            self.first_looks.done(self)
            self.first_looks = None

    def _is_ledger_grown(self) -> bool:
        """Whether this run should do the work on the ledger that others do each hour."""
        if self.maintenance is None or self._ledger is None or self._maintained:
            return False
        return self.table.event_id_ttl is not None or len(self._ledger.tokens) >= LEAST_MARKS

    def _maintain(self, spark: SparkSession) -> Turn:
        assert self.maintenance is not None
        self._maintained = True
        self.maintenance.run_once(spark)
        return Next(0.0)

    def _begin(self, spark: SparkSession) -> Turn:
        """Apply what the logs of the due streams have, in a worker."""
        self._work = self._apply_due()
        return self._go_on(spark)

    def _go_on(self, spark: SparkSession) -> Turn:
        """Work until there is nothing more to do, or until a mark has to wait for the ledger."""
        assert self._work is not None
        self._session.spark = spark
        work, self._work = self._work, None
        for _ in work:
            assert self.writer is not None and self._ledger is not None
            self._work = work
            self.writer.give(self, self._ledger)
            return UNTIL_WOKEN
        self._leave_first_looks()
        return Next(0.0) if self._due or self.available_now else UNTIL_WOKEN

    def _apply_due(self) -> _Work:
        with self._lock:
            due, self._due = self._due, {}
        refused: ChannelError | None = None
        # A copy first: what comes after it may be in it.
        for each in sorted(due.values(), key=lambda each: not each.stream.is_copy):
            try:
                if each.stream.paused:
                    each.stream.leave(each.listing)
                elif not each.stream.is_copy and self._waits_for_copy():
                    each.stream.hold(f"{self.name}: waits for a copy", each.listing)
                elif each.idle is not None and not self._must_catch_up(each.stream, each.idle):
                    each.stream.postpone_check(each.idle, each.listing)
                else:
                    yield from self._apply_stream(each.stream, each.listing)
            except ChannelError as error:
                # The other streams have their turn before this one is tried again.
                refused = error
                each.stream.hold(str(error), each.listing)
        if refused is not None and self.available_now:
            raise refused

    def _waits_for_copy(self) -> bool:
        """Whether nothing is to be applied before a copy is taken: it would be too old again."""
        awaited = {name: each for name, each in self._awaited.items() if each.is_awaited()}
        self._awaited = awaited
        return bool(awaited)

    def _must_catch_up(self, stream: InboundStream, idle: Done) -> bool:
        """Whether log cleanup may soon take commits of the target that the ledger has not seen."""
        applier = stream.applier
        if applier is None:
            return False
        try:
            retention = applier.target.log_retention()
        except WanError:
            return True  # the round reports what is wrong with the table
        return (time.monotonic() - idle.at) * 1000 >= record_after(retention)

    def _apply_stream(self, stream: InboundStream, listing: Listing) -> _Work:
        self._streams[stream.name] = stream
        try:
            yield from self._apply_listed(stream, listing)
            self._read_at = time.monotonic()
        finally:
            if self.available_now:  # nobody else writes it
                stream.keep_record(last=True)

    def _apply_listed(self, stream: InboundStream, listing: Listing) -> _Work:
        try:
            applier = self._applier(stream, listing.log)
        except LedgerError as error:
            stream.refuse(listing, None, str(error), self.site.name, may_pass(error))
            return
        # No further than the listing: what arrives later is listed again, and other streams have
        # their turn before it.
        while True:
            self.job.check_stopped()
            result = yield from self._round(stream, applier, listing.epochs)
            stream.count(result, applier.ledger.local_commits)
            if isinstance(applier, CopyTaker):
                self._awaited.pop(stream.name, None)
                asks = self.synchronizer
                if result.awaits_copy and (asks is None or asks.serves(stream.name)):
                    self._awaited[stream.name] = applier
            if result.epochs:
                if isinstance(applier, CopyTaker):
                    self._tell_of_copy()
                # Held streams of this table may have waited for what was applied.
                for other in self._streams.values():
                    other.retry_now()
            if result.cause is not None:
                stream.hold(result.cause, listing, result.held)
                return
            if not result.again:
                stream.finish(listing)
                return
            if stream.paused:
                stream.leave(listing)
                return

    def _tell_of_copy(self) -> None:
        """Have the senders of the table's streams know that a copy was taken. The next round of a
        stream tries again."""
        for stream in self._streams.values():
            if isinstance(stream.applier, TableApplier):
                try:
                    stream.applier.copy_taken()
                except WanError as error:
                    log.debug("%s: not told of the copy: %s", stream.name, error)

    def _round(
        self, stream: InboundStream, applier: TableApplier | CopyTaker, epochs: Sequence[int]
    ) -> Generator[None, None, ApplyResult]:
        """Run one round. An error holds the stream."""
        try:
            steps = applier.round(epochs)
            while True:
                self.job.check_stopped()
                step = next(steps)
                reached(step)
                if step == READ_BACK and self.writer is not None:
                    yield
        except StopIteration as end:
            result: ApplyResult = end.value
            return result
        except ChannelError:
            raise  # the ack that would say held could not be written either
        except Exception as error:
            if self.job.is_stopping:
                raise StoppedError("the receiver was stopped") from error
            lost = lost_session(self._session.spark)
            if lost is not None:
                raise lost from error
            if not ErrorKind.CANCELLED.matches(error):
                cause = f"{applier.table}: {error_text(error)}"
                if stream.status is None or stream.status.held != cause:
                    log.exception(
                        "%s: unexpected error",
                        stream.name,
                        event="unexpected-error",
                        stream=stream.name,
                        table=applier.table,
                        what_to_do=UNEXPECTED,
                    )
                return applier.unexpected(cause)
            if self.available_now:
                raise StoppedError(
                    f"{applier.table}: its Spark job was cancelled. Start again."
                ) from error
            return applier.unexpected(
                f"{applier.table}: its Spark job was cancelled from outside. "
                f"Will retry in {stream.next_wait():g} s."
            )

    def _applier(self, stream: InboundStream, stream_log: StreamLog) -> TableApplier | CopyTaker:
        """Return the applier of a stream."""
        tables, ledger = self._ledger_tables, self._ledger
        if tables is None or ledger is None:
            # Streams of one table share its ledger: their applies are numbered together.
            tables = self._ledger_tables = LedgerTables(self._session, self.site.state)
            ledger = Ledger(
                self.site.name,
                self.name,
                DeltaLedgerStore(tables),
                accepts_gap=lambda through: through in self._decided().load(self.name).read,
            )
            self._ledger = ledger
        if stream.applier is None:
            target = DeltaTarget.at(
                self._session,
                self.site,
                self.table,
                channel=stream_log.channel,
                ledger=tables,
                known_id=lambda: ledger.target_id,
            )
            if stream.is_copy:
                stream.applier = self._taker(stream.name, stream_log, target, ledger)
                return stream.applier
            decisions = self._decided()
            decisions.record(self.name, self.decisions)
            stream.applier = TableApplier(
                self.site.name,
                self.name,
                log=stream_log,
                target=target,
                ledger=ledger,
                max_bytes=self.max_bytes,
                check_stopped=self.job.check_stopped,
                decisions=partial(decisions.load, self.name),
                answer=stream.answer,
                writers=self.table.writers,
                synchronizer=self.synchronizer,
                tell_refused=RefusedReporter(
                    self.site.name,
                    self.name,
                    log=stream_log,
                    ledger=ledger,
                    store=DeltaLedgerStore(tables),
                    handled=HandledLetters(self.site.state, self.site.storage),
                    clock=milliseconds,
                ),
            )
        return stream.applier

    def _decided(self) -> StoredDecisions:
        return StoredDecisions(self.site.state, self.site.storage)

    def _taker(
        self, stream: str, stream_log: StreamLog, target: DeltaTarget, ledger: Ledger
    ) -> CopyTaker:
        asks = self.synchronizer
        taker = CopyTaker(
            self.site.name,
            self.name,
            stream_log,
            target,
            ledger=ledger,
            check_stopped=self.job.check_stopped,
            writers=self.table.writers,
            from_writer=asks is None or asks.is_by_writer(stream),
        )
        if asks is not None:
            taker.refused = partial(asks.refused, stream)
            if self.table.source == "sink":
                decisions = self._decided()
                taker.gap_behind = partial(
                    gap_behind,
                    logs=asks.requests.inbound,
                    site=self.site.name,
                    writers=self.table.writers,
                    new_logs=lambda: decisions.load(self.name).new_logs,
                )
        return taker
