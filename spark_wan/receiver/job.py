"""The gateway receiver as a job: one streaming query per inbound channel wakes it, the ledger and the log say what to apply.

The query's micro-batches are not read: they only say that something is there. So a lost, restored or shared checkpoint costs a look
at the log and nothing else.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from spark_wan.channels import Ack, StreamLog, open_channel
from spark_wan.commits import record_after
from spark_wan.decisions import Decisions, StoredDecisions
from spark_wan.delta import error_text, is_cancelled
from spark_wan.errors import ChannelError, StoppedError, TopologyError, WanError
from spark_wan.ledger_tables import LedgerTables
from spark_wan.options import IDLE_INTERVAL
from spark_wan.receiver.apply import Outcome, TableApplier
from spark_wan.receiver.ledger import Ledger
from spark_wan.receiver.ledger_store import DeltaLedgerStore
from spark_wan.receiver.target import DeltaTarget
from spark_wan.running import SessionSettings, is_connect, spark_thread
from spark_wan.steps import Steps, reached
from spark_wan.topology import Topology
from spark_wan.wire import EVENTS, Manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

EXPIRY_INTERVAL = 3_600.0
"""Seconds between two times at which event IDs are forgotten."""
RETRY_INTERVAL = 10.0
"""Seconds until a held stream is tried again, when nothing else wakes it."""
CHANNEL_LOOK = 1.0
"""Seconds between looks at a channel that does not answer."""


Announced = tuple[tuple[int, int], ...]
"""(number, attempt) of what was announced again."""


@dataclass
class TableStatus:
    """What a receiver says of one inbound stream since it began."""

    stream: str
    table: str
    applied: int = 0
    """Through this epoch everything is applied."""
    epochs: int = 0
    events: int = 0
    duplicates: int = 0
    """Events that came again and were discarded."""
    dead_letters: int = 0
    local_commits: int = 0
    """Commits to the target that no receiver made; this site does not send them."""
    held: str | None = None


class Receiver:
    """Applies what comes to a site over its inbound channels.

    Args:
        spark: A session, classic or Connect.
        topology: Who sends what to whom.
        site: The site that receives here.
        senders: Names of the remote senders to receive from; default: all that serve the site.
        interval: Seconds between looks at the channel.
        parallel: So many tables are written at once.
        max_bytes: So many bytes of frames at the most in one apply.
        decisions: What to do about what holds a stream, by table; recorded in the site's ``state``, so that once is enough
            (:func:`spark_wan.decisions.parse_decisions`).

    Raises:
        TopologyError: the site is unknown, or no sender serves it.
    """

    def __init__(
        self,
        spark: SparkSession,
        topology: Topology,
        site: str,
        *,
        senders: Sequence[str] | None = None,
        interval: float = 0.5,
        parallel: int = 2,
        max_bytes: int = 256 * 2**20,
        decisions: Mapping[str, Decisions] | None = None,
    ) -> None:
        self.spark = spark
        self.topology = topology
        self.site = topology.site(site)
        self.senders = [
            sender
            for sender in topology.inbound_channels(site)
            if senders is None or topology.sender(sender.name).name in senders
        ]
        if not self.senders:
            raise TopologyError(
                f"{topology.file}: nothing comes to site {site}: no sender{'' if senders is None else ' named'} has it among its remotes."
            )
        self.interval = interval
        self.parallel = parallel
        self.max_bytes = max_bytes
        self.decisions = {topology.table(name).name: each for name, each in (decisions or {}).items()}

    def start(self, available_now: bool = False) -> ReceiverHandle:
        """Begin to apply. ``available_now``: apply what is there, and end."""
        from spark_wan.datasource import register

        register(self.spark)
        LedgerTables(self.spark, self.site.state).ensure()
        stop = threading.Event()
        queries: list[StreamingQuery] = []
        inbound: list[InboundChannel] = []
        try:
            for url in sorted({sender.channel for sender in self.senders}):
                query, channel = self._start(url, stop, available_now)
                queries.append(query)
                inbound.append(channel)
        except BaseException:
            for query in queries:
                query.stop()
            raise
        return ReceiverHandle(queries, inbound, stop, classic=not is_connect(self.spark))

    def _start(self, url: str, stop: threading.Event, available_now: bool) -> tuple[StreamingQuery, InboundChannel]:
        sender = next(sender for sender in self.senders if sender.channel == url)
        channel = InboundChannel(
            self.topology,
            self.site.name,
            url,
            dict(sender.storage),
            self.parallel,
            self.max_bytes,
            waits=not available_now,
            decisions=self.decisions,
            settings=None if is_connect(self.spark) else SessionSettings.of(self.spark),
        )
        channel.stop = stop
        open_channel(url, sender.storage).prepare()
        reader = self.spark.readStream.format("wan").option("channel", url).option("site", self.site.name)
        reader = reader.option("wakeToken", uuid.uuid4().hex).option("retryInterval", str(RETRY_INTERVAL))
        for name, value in sender.storage.items():
            reader = reader.option(f"storage.{name}", value)
        name = hashlib.blake2b(url.encode(), digest_size=6).hexdigest()
        writer = (
            reader.load()
            .writeStream.foreachBatch(channel)
            .queryName(f"wan receiver {self.site.name} {name} {uuid.uuid4().hex[:6]}")
            .option("checkpointLocation", f"{self.site.state.rstrip('/')}/checkpoints/receiver/{name}")
        )
        writer = (
            writer.trigger(availableNow=True)
            if available_now
            else writer.trigger(processingTime=f"{self.interval} seconds")
        )
        try:
            return writer.start(), channel
        except Exception as error:
            # Of two receivers that begin the same new checkpoint at the same moment, Spark lets one fail, though not the next time.
            log.info("the query for %s did not start, tried once more: %s", url, error_text(error))
            return writer.start(), channel


class ReceiverHandle:
    """A running receiver."""

    def __init__(
        self, queries: Sequence[StreamingQuery], inbound: Sequence[InboundChannel], stop: threading.Event, classic: bool
    ) -> None:
        self.queries = list(queries)
        """The streaming queries, one per inbound channel: their progress shows the lag."""
        self._inbound = list(inbound)
        self._stop = stop
        self._stopped: list[StreamingQuery] = []
        self._classic = classic

    @property
    def is_active(self) -> bool:
        """Whether any of the queries is still at work."""
        return any(query.isActive for query in self.queries)

    def status(self) -> list[TableStatus]:
        """What each stream has done since this receiver began, and what holds it. Under Spark Connect the work is done in the server: there the
        channel's acks are read, and counts stay 0."""
        return [
            status for channel in self._inbound for status in (channel.statuses() if self._classic else channel.acked())
        ]

    def exception(self) -> BaseException | None:
        """The error that ended a query, or None."""
        errors = ((query, query.exception()) for query in self.queries)
        return next((error for query, error in errors if error is not None and not self._is_own(query, error)), None)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the receiver has ended; False when ``timeout`` seconds have passed before. Raises the error that ended it."""
        end = None if timeout is None else time.monotonic() + timeout
        for query in self.queries:
            try:
                if end is None:
                    query.awaitTermination()
                elif not query.awaitTermination(max(0.001, end - time.monotonic())):  # type: ignore[arg-type]
                    return False
            except Exception as error:
                if not self._is_own(query, error):
                    raise
        return True

    def stop(self) -> None:
        """Stop. What is being applied is given up between two steps, and decided again at the next start."""
        self._stopped += [query for query in self.queries if query.isActive]
        self._stop.set()
        for query in self.queries:
            query.stop()

    def _is_own(self, query: StreamingQuery, error: BaseException) -> bool:
        """Whether ``stop()`` ended a query this way: its micro-batch gave up before Spark's own stop had come."""
        return query in self._stopped and StoppedError.__name__ in str(error)


@dataclass
class InboundChannel:
    """The work of one inbound channel: the function of its foreachBatch. Pickled to the server under Spark Connect."""

    topology: Topology
    site: str
    url: str
    storage: dict[str, str]
    parallel: int
    max_bytes: int
    waits: bool = True
    """A channel that does not answer is waited for; otherwise the micro-batch fails."""
    decisions: Mapping[str, Decisions] = field(default_factory=dict)
    """Given at the start, by table."""
    settings: SessionSettings | None = None
    """Of the classic session that the receiver was started in."""
    stop: threading.Event | None = None
    on_outcome: Callable[[str, Outcome], None] | None = None
    _appliers: dict[str, TableApplier] = field(default_factory=dict)
    _tables: dict[str, str] = field(default_factory=dict)
    _statuses: dict[str, TableStatus] = field(default_factory=dict)
    _expire_at: dict[str, float] = field(default_factory=dict)
    _done: dict[str, tuple[int, Announced]] = field(default_factory=dict)
    """Per stream: the newest epoch and the announcements when all was applied and acked."""
    _done_at: dict[str, float] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        kept = ("topology", "site", "url", "storage", "parallel", "max_bytes", "waits", "decisions")
        return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Apply whatever the channel's logs have for this site. Called by Spark for every micro-batch.

        While the channel does not answer, the micro-batch neither fails, which would end the receiver, nor counts as done: nobody
        might wake the receiver again."""
        spark = frame.sparkSession
        plan: Any = getattr(frame, "_plan", None)
        if plan is not None:
            # Under Connect, a frame that nobody needs any more asks the server to forget it, which at times never answers. The server forgets
            # it by itself after the micro-batch.
            plan._relation_id = None
        while True:
            try:
                return self.apply_all(spark)
            except ChannelError as error:
                if not self.waits:
                    raise
                log.warning("%s", error)
            if self.stop is not None:
                self.stop.wait(CHANNEL_LOOK)
            else:
                time.sleep(CHANNEL_LOOK)
            self._check_stopped()
            spark.range(1).collect()  # raises when the query was stopped

    def apply_all(self, spark: SparkSession) -> None:
        """Apply, stream by stream, what the logs have now. One apply at a time per table; several tables at once."""
        channel = open_channel(self.url, self.storage)
        numbers = channel.numbers()
        again = channel.announcements()
        by_table: dict[str, list[str]] = {}
        errors: list[ChannelError] = []
        for stream, found in numbers.items():
            if self._done.get(stream) == (found[-1], tuple(again.get(stream, ()))) and not self._is_stale(stream):
                continue
            with self._one_of_many(stream, errors):
                table = self._table_of(StreamLog(channel, stream), found[-1])
                if table is not None:
                    by_table.setdefault(table, []).append(stream)

        def work(table: str) -> None:
            for stream in by_table[table]:
                with self._one_of_many(stream, errors):
                    own, announced = StreamLog(channel, stream), tuple(again.get(stream, ()))
                    self._apply_stream(spark, table, own, numbers[stream], announced)

        self._in_parallel(spark, list(by_table), work)
        if errors:
            raise errors[0]

    @contextmanager
    def _one_of_many(self, stream: str, errors: list[ChannelError]) -> Iterator[None]:
        """What the channel refuses for one stream is kept until the others have had their turn."""
        try:
            yield
        except ChannelError as error:
            errors.append(error)
            self._statuses.setdefault(stream, TableStatus(stream, self._tables.get(stream, ""))).held = str(error)

    def statuses(self) -> list[TableStatus]:
        return [self._statuses[stream] for stream in sorted(self._statuses)]

    def acked(self) -> list[TableStatus]:
        """Statuses as the channel's acks tell them."""
        channel = open_channel(self.url, self.storage)
        found = []
        for name in channel.numbers():
            stream = StreamLog(channel, name)
            ack, last = stream.acks().get(self.site), stream.last()
            if ack is not None and last is not None:
                found.append(TableStatus(name, last.table, ack.applied, dead_letters=ack.dead_letters, held=ack.cause))
        return found

    def _table_of(self, stream: StreamLog, number: int) -> str | None:
        """The table that a stream is for, or None when this site has no part in it. A stream that cannot be read is held."""
        if stream.stream not in self._tables:
            try:
                manifest = stream.read(number)
            except WanError as error:
                self._refuse(stream, None, number, str(error))
                return None
            if self.site not in manifest.addressees:
                self._statuses.pop(stream.stream, None)  # it may be held from when it could not be read
                return None
            if manifest.table not in self.topology.tables or self.site not in self.topology.table(manifest.table).at:
                cause = (
                    f"{stream.stream}: table {manifest.table!r} is not at site {self.site} in {self.topology.file}. Add it below `tables:` with "
                    f"`at: {{{self.site}: …}}`. When it has another name now, remove what is left of this stream from the channel: "
                    f"log/{stream.stream}, frames/{stream.stream} and acks/{stream.stream}."
                )
                self._refuse(stream, manifest, number, cause)
                return None
            self._tables[stream.stream] = manifest.table
        return self._tables[stream.stream]

    def _refuse(self, stream: StreamLog, manifest: Manifest | None, number: int, cause: str) -> None:
        status = self._statuses.setdefault(
            stream.stream, TableStatus(stream.stream, manifest.table if manifest else "")
        )
        if status.held != cause:
            log.error("%s: held: %s", stream.stream, cause)
        status.held = cause
        before = stream.acks().get(self.site)
        ack = Ack(self.site, stream.stream, manifest.incarnation if manifest else "", 0, number, cause)
        if before is not None:
            ack = Ack(
                self.site,
                stream.stream,
                before.incarnation,
                before.applied,
                before.applied + 1,
                cause,
                before.dead_letters,
            )
        if ack != before:
            stream.channel.put_ack(stream.stream, self.site, ack.encode())

    def _apply_stream(
        self, spark: SparkSession, table: str, stream: StreamLog, numbers: Sequence[int], announced: Announced
    ) -> None:
        applier = self._applier(spark, table, stream)
        status = self._statuses.setdefault(stream.stream, TableStatus(stream.stream, table))
        # No further than the listing: what comes meanwhile wakes the receiver again, and other streams have their turn before it.
        while True:
            self._check_stopped()
            outcome = self._round(applier, numbers)
            self._note(status, outcome, applier)
            if self.on_outcome is not None:
                self.on_outcome(table, outcome)
            if outcome.epochs:
                self._expire_event_ids(applier, outcome.plan.new[0].manifest)
            if outcome.again:
                continue
            if outcome.held is None:
                self._done[stream.stream] = (numbers[-1], announced)
                self._done_at[stream.stream] = time.monotonic()
            return

    def _is_stale(self, stream: str) -> bool:
        """Whether the target of a stream that is done must be looked at again, before log cleanup takes commits that the ledger has not seen."""
        passed = time.monotonic() - self._done_at[stream]
        if passed < IDLE_INTERVAL:
            return False
        try:
            return passed * 1000 >= record_after(self._appliers[stream].target.log_retention())
        except WanError:
            return True  # the look says what is wrong with the table

    def _round(self, applier: TableApplier, numbers: Sequence[int]) -> Outcome:
        try:
            return self._steps(applier.round(numbers))
        except Exception as error:
            # A cancellation must end the micro-batch: swallowed, its batch would count as done.
            if self._stopping() or is_cancelled(error):
                raise StoppedError("the receiver was stopped") from error
            log.exception("%s: unexpected error", applier.log.stream)
            return applier.unexpected(f"{applier.table}: {error_text(error)}")

    def _expire_event_ids(self, applier: TableApplier, applied: Manifest) -> None:
        """Now and then: forget the event IDs of a user's stream that are older than the table's ``event_id_ttl``."""
        ttl = self.topology.table(applier.table).event_id_ttl
        if ttl is None or applied.kind != EVENTS or time.monotonic() < self._expire_at.get(applier.table, 0.0):
            return
        self._expire_at[applier.table] = time.monotonic() + EXPIRY_INTERVAL
        assert isinstance(applier.target, DeltaTarget)
        try:
            applier.target.expire_event_ids(applied.origin, int((time.time() - ttl) * 1_000_000))
        except Exception as error:
            # Tried again in an hour; what was applied is not touched by it.
            if self._stopping() or is_cancelled(error):
                raise StoppedError("the receiver was stopped") from error
            log.warning("%s: event IDs could not be expired now: %s", applier.table, error_text(error))

    def _note(self, status: TableStatus, outcome: Outcome, applier: TableApplier) -> None:
        status.applied = outcome.applied
        status.epochs += outcome.epochs
        status.events += outcome.events
        status.duplicates += outcome.duplicates
        status.dead_letters += outcome.dead_letters
        status.local_commits = applier.ledger.local_commits
        if outcome.cause != status.held and outcome.cause is not None:
            log.error("%s: held at epoch %s: %s", status.stream, outcome.held, outcome.cause)
        status.held = outcome.cause
        if outcome.epochs:
            log.info("%s: applied through epoch %d (%d events)", status.stream, outcome.applied, outcome.events)

    def _applier(self, spark: SparkSession, table: str, stream: StreamLog) -> TableApplier:
        applier = self._appliers.get(stream.stream)
        if applier is None:
            location = self.topology.table(table).location(self.site)
            tables = LedgerTables(spark, self.topology.site(self.site).state)
            most = self.topology.table(table).max_dead_letters
            target = DeltaTarget(spark, self.site, table, location, stream.channel, tables, self.settings, most)
            # Streams of one table share its ledger: their applies are numbered together.
            ledger = next((a.ledger for a in self._appliers.values() if a.table == table), None)
            ledger = ledger or Ledger(self.site, table, DeltaLedgerStore(tables))
            site = self.topology.site(self.site)
            decisions = StoredDecisions(site.state, site.storage)
            decisions.record(table, self.decisions.get(table, Decisions()))
            applier = TableApplier(
                self.site,
                table,
                stream,
                target,
                ledger,
                self.max_bytes,
                check_stopped=self._check_stopped,
                decisions=partial(decisions.load, table),
            )
            self._appliers[stream.stream] = applier
        return applier

    def _in_parallel(self, spark: SparkSession, tables: list[str], work: Callable[[str], None]) -> None:
        if len(tables) <= 1 or self.parallel <= 1:
            for table in tables:
                work(table)
            return
        waiting = list(reversed(tables))
        errors: list[BaseException] = []

        def worker() -> None:
            while not errors:
                try:
                    table = waiting.pop()
                except IndexError:
                    return
                try:
                    work(table)
                except BaseException as error:
                    errors.append(error)

        threads = [spark_thread(spark, worker, f"wan-receiver {n}") for n in range(min(self.parallel, len(tables)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def _stopping(self) -> bool:
        return self.stop is not None and self.stop.is_set()

    def _check_stopped(self) -> None:
        if self._stopping():
            raise StoppedError("the receiver was stopped")

    def _steps(self, steps: Steps[Outcome]) -> Outcome:
        while True:
            self._check_stopped()
            try:
                reached(next(steps))
            except StopIteration as end:
                outcome: Outcome = end.value
                return outcome
