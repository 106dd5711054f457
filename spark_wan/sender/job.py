"""The gateway sender as a job: captures the tables attached to a site's senders and keeps their channels.

Each stream (one table of one sender) has a thread of its own; one that is held keeps no other from going on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from spark_wan.capture.source import DeltaSource
from spark_wan.capture.tasks import CapturedTable, SenderDeadLetter
from spark_wan.channels.base import Channel
from spark_wan.channels.batches import BatchLimits
from spark_wan.channels.log import StreamLog
from spark_wan.channels.registry import open_channel
from spark_wan.control.decisions import Decisions, StoredDecisions
from spark_wan.delta.errors import ErrorKind, error_text
from spark_wan.delta.sessions import SessionSettings, is_connect, lost_session, spark_thread
from spark_wan.errors import SessionLostError, StoppedError, TopologyError, WanError
from spark_wan.ledger.tables import LedgerTables
from spark_wan.sender.acks import AckManager
from spark_wan.sender.memory import StoredCheckpoints
from spark_wan.sender.publish import LARGE_PLANNED, PLANNED, Publisher, StreamSettings
from spark_wan.sender.slots import Slots
from spark_wan.steps import Steps, reached, run
from spark_wan.topology.model import Sender as SenderConfig
from spark_wan.topology.model import Table, Topology, stream_name
from spark_wan.units import milliseconds
from spark_wan.wire.manifest import EVENTS, Manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

RENEW_INTERVAL = 5.0
"""Seconds between looks at the settings of the user's session."""
_LONGEST_WAIT = 30.0
_LOOK = 0.2
"""Seconds between looks at the threads while something waits for their end."""


@dataclass
class StreamStatus:
    """What a sender says of one of its streams. Times in milliseconds since 1970 UTC."""

    stream: str
    table: str
    published: int = 0
    """The newest epoch."""
    version: int = -1
    """Through this version of the source everything is in the channel."""
    acked: dict[str, int] = field(default_factory=dict)
    backlog: int = 0
    """Epochs that some site has not acked."""
    epochs: int = 0
    events: int = 0
    batches: int = 0
    bytes: int = 0
    """Since this sender began, like epochs, events and batches."""
    dead_letters: int = 0
    held: str | None = None
    """Why nothing is published at the moment."""
    remote_holds: dict[str, str] = field(default_factory=dict)
    """Sites that hold the stream, and why."""
    not_served: list[str] = field(default_factory=list)
    """Sites that were taken out of the topology and have not acked everything: nothing waits for them."""


@dataclass
class _Stream:
    spark: SparkSession
    """In a classic session, one of its own: settings made there reach nobody else."""
    inherited: SessionSettings | None
    """Of the user's session, as they were handed on last. None: under Connect it is the user's session."""
    interrupt: Callable[[str], object]
    """Cancels the stream's Spark jobs that have a tag."""
    status: StreamStatus
    publisher: Publisher | None
    """None: a sink publishes the stream, and the sender only keeps it."""
    keeper: AckManager
    interval: float
    block_on_ack: float
    wait: float = 0.0
    """Seconds until a held stream is tried again."""
    causes: dict[str, str] = field(default_factory=dict)
    """What holds the stream, by the part of the work that met it: publishing, acks."""
    renew_at: float = 0.0


class Sender:
    """All senders of a site, or those named.

    Args:
        spark: A session, classic or Connect.
        topology: Who sends what to whom.
        site: The site whose senders run here.
        senders: Names of senders; default: all of the site's.
        tables: Names of tables; default: all that are attached.
        decisions: What to do about what holds a stream, by table; recorded in the site's ``state``, so that once is enough
            (:func:`spark_wan.control.decisions.parse_decisions`).
        parallel: Maximum number of tables captured concurrently. First snapshots and commits with more than ``max_epoch_rows`` rows are
            counted apart, so that they stop no other table; polling is not counted.

    Raises:
        TopologyError: the site, a sender or a table is not in the topology, or has nothing to send.

    Example::

        handle = spark_wan.Sender(spark, topology, "newark").start()
        ...
        handle.stop()
    """

    def __init__(
        self,
        spark: SparkSession,
        topology: Topology,
        site: str,
        *,
        senders: Sequence[str] | None = None,
        tables: Sequence[str] | None = None,
        decisions: Mapping[str, Decisions] | None = None,
        parallel: int = 2,
    ) -> None:
        self.spark = spark
        self.topology = topology
        self.site = topology.site(site)
        chosen = (
            [topology.sender(name) for name in senders]
            if senders is not None
            else topology.senders_at(site)
        )
        for sender in chosen:
            if sender.site != site:
                raise TopologyError(
                    f"{topology.file}: senders.{sender.name} runs at site {sender.site}, not at {site}."
                )
        wanted = {topology.table(name).name for name in tables} if tables is not None else None
        self.streams = [
            (sender, table)
            for sender in chosen
            for table in topology.tables_of(sender.name)
            if site in table.writers and (wanted is None or table.name in wanted)
        ]
        if not self.streams:
            raise TopologyError(
                f"{topology.file}: site {site} has nothing to send: no table that it writes is attached to its senders"
                f" ({', '.join(sender.name for sender in chosen) or 'it has none'})."
            )
        self.decisions = {
            topology.table(name).name: each for name, each in (decisions or {}).items()
        }
        self.parallel = parallel

    def start(self, available_now: bool = False) -> SenderHandle:
        """Begin to capture. ``available_now``: publish the versions that are there now, look at the acks, and end.

        Raises ChannelError when a channel cannot be written to, before anything is captured."""
        channels: dict[str, Channel] = {}
        for sender, _ in self.streams:
            if sender.channel not in channels:
                channels[sender.channel] = open_channel(sender.channel, sender.storage)
                channels[sender.channel].prepare()
        settings = None if is_connect(self.spark) else SessionSettings.of(self.spark)
        ledger = LedgerTables(self.spark, self.site.state)
        streams = [
            self._stream(sender, table, channels[sender.channel], ledger, settings)
            for sender, table in self.streams
        ]
        handle = SenderHandle(self.spark, streams, available_now, self.parallel)
        handle._begin()
        return handle

    def _stream(
        self,
        sender: SenderConfig,
        table: Table,
        channel: Channel,
        ledger: LedgerTables,
        inherited: SessionSettings | None,
    ) -> _Stream:
        name = stream_name(sender.site, sender.name, table.name)
        spark = self.spark if inherited is None else inherited.new_session(self.spark)
        status = StreamStatus(name, table.name)
        memories = StoredCheckpoints(
            f"{self.site.state.rstrip('/')}/checkpoints/sender/{sender.name}", self.site.storage
        )
        stream_log = StreamLog(channel, name)
        settings = StreamSettings(
            stream=name,
            table=table.name,
            keys=table.keys,
            origin=sender.site,
            sent_to=self.topology.sent_to(table.name, sender.site),
            addressees=tuple(sorted(site for site in sender.remotes if site in table.at)),
            start=table.start.version,
            on_table_operation=table.on_table_operation,
            max_epoch_rows=sender.max_epoch_rows,
        )
        decisions = StoredDecisions(self.site.state, self.site.storage)
        decisions.record(table.name, self.decisions.get(table.name, Decisions()))
        interrupt: Callable[[str], object]
        publisher: Publisher | None
        if table.source == "table":
            source = self._source(spark, sender, table, channel, ledger, status)
            known = partial(decisions.load, table.name)
            publisher = Publisher(settings, stream_log, source, memories, milliseconds, known)
            interrupt = source.interrupt
        else:
            publisher, interrupt = None, spark.interruptTag
        policy, timeout = sender.ack_policy, int(sender.ack_timeout * 1000)
        keeper = AckManager(
            stream_log, memories, policy, timeout, milliseconds, settings.addressees
        )
        interval, block = sender.batch_interval, sender.block_on_ack
        return _Stream(spark, inherited, interrupt, status, publisher, keeper, interval, block)

    def _source(
        self,
        spark: SparkSession,
        sender: SenderConfig,
        table: Table,
        channel: Channel,
        ledger: LedgerTables,
        status: StreamStatus,
    ) -> DeltaSource:
        def record(letters: Sequence[SenderDeadLetter]) -> None:
            ledger.ensure()
            ledger.merge_dead_letters(
                [
                    {
                        **{k: v for k, v in asdict(letter).items() if k != "version"},
                        "side": "sender",
                        "origin_version": letter.version,
                    }
                    for letter in letters
                ]
            )
            status.dead_letters += len(letters)
            log.warning(
                "%s: %d rows became dead letters (%s)",
                status.stream,
                len(letters),
                letters[0].cause,
            )

        return DeltaSource(
            spark,
            CapturedTable(
                table.name, table.location(sender.site), table.keys, table.max_dead_letters
            ),
            channel,
            BatchLimits(sender.batch_size, sender.batch_bytes),
            record,
        )


class SenderHandle:
    """A running sender. ``stop()`` never hangs: running Spark jobs are cancelled."""

    def __init__(
        self, spark: SparkSession, streams: Sequence[_Stream], available_now: bool, parallel: int
    ) -> None:
        self._spark = spark
        self._streams = streams
        self._available_now = available_now
        self._stop = threading.Event()
        self._slots = {PLANNED: Slots(parallel), LARGE_PLANNED: Slots(parallel)}
        self._tag = f"spark-wan-sender-{id(self):x}"
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    @property
    def is_active(self) -> bool:
        """Whether any stream is still at work."""
        return any(thread.is_alive() for thread in self._threads)

    def status(self) -> list[StreamStatus]:
        """What each stream has done, and what holds it."""
        return [stream.status for stream in self._streams]

    def exception(self) -> BaseException | None:
        """The first error that ended a stream's thread; None while all is well. A held stream is in ``status()``."""
        return self._errors[0] if self._errors else None

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the sender has ended; False when ``timeout`` seconds have passed before. Raises the error that ended it, or one of its
        streams; with ``available_now`` also what holds streams, once the others are done."""
        end = None if timeout is None else time.monotonic() + timeout
        for thread in self._threads:
            while thread.is_alive() and (self._available_now or not self._errors):
                left = _LOOK if end is None else min(_LOOK, end - time.monotonic())
                if left <= 0:
                    return False
                thread.join(left)
        if self._errors:
            raise self._errors[0]
        held = [stream.status.held for stream in self._streams if stream.status.held]
        if self._available_now and held:
            raise WanError("\n".join(held))
        return True

    def stop(self) -> None:
        """Stop. What is in the making is given up; nothing that is in the channel is lost."""
        self._stop.set()
        while self.is_active:
            interrupts = [self._spark.interruptTag, *(stream.interrupt for stream in self._streams)]
            for interrupt in interrupts:
                try:
                    interrupt(self._tag)
                except Exception as error:
                    if lost_session(self._spark) is None:
                        raise
                    log.debug("no job to cancel: %s", error)
            for thread in self._threads:
                thread.join(_LOOK)

    def _begin(self) -> None:
        for stream in self._streams:
            name = f"wan-sender {stream.status.stream}"
            run, unbegun = partial(self._run, stream), partial(self._end_with, stream)
            self._threads.append(spark_thread(stream.spark, run, name, unbegun))
        for thread in self._threads:
            thread.start()

    def _run(self, stream: _Stream) -> None:
        try:
            for session in (self._spark, stream.spark):
                session.addTag(self._tag)
            self._loop(stream)
        except BaseException as error:
            if self._stop.is_set() and isinstance(error, StoppedError):
                return
            lost = error if isinstance(error, SessionLostError) else lost_session(self._spark)
            if lost is None:
                log.exception("%s: ended by an unexpected error", stream.status.stream)
                self._errors.append(error)
            else:
                self._end_with(stream, lost)

    def _end_with(self, stream: _Stream, lost: SessionLostError) -> None:
        if not self._stop.is_set():
            log.error("%s: %s", stream.status.stream, lost)
            self._errors.append(lost)
            self._stop.set()  # no other stream can go on either

    def _loop(self, stream: _Stream) -> None:
        stream.wait = stream.interval
        through: int | None = None
        while not self._stop.is_set():
            began = time.monotonic()
            if self._available_now and through is None:
                through = self._newest(stream)
            published = self._publish(stream)
            self._keep(stream, force=self._available_now)
            if self._available_now:
                if published is None:
                    return
                if through is not None and published.last_version >= through:
                    return
                continue
            if published is not None:
                self._block_on_ack(stream, published)
            # A held stream is looked at less and less often; the others at the batch interval.
            stream.wait = self._longer(stream) if stream.status.held else stream.interval
            if published is None:
                self._stop.wait(max(0.05, stream.wait - (time.monotonic() - began)))

    def _longer(self, stream: _Stream) -> float:
        return min(_LONGEST_WAIT, stream.wait * 2)

    def _newest(self, stream: _Stream) -> int | None:
        """The source's newest version: where a run that is to end does end, however fast its writers are."""
        if stream.publisher is None:
            return None
        try:
            return stream.publisher.source.newest().version
        except Exception as error:
            self._hold(stream, "publishing", error)
            return None

    def _publish(self, stream: _Stream) -> Manifest | None:
        status = stream.status
        if stream.publisher is None:
            return None
        try:
            self._renew_settings(stream)
            published = self._steps(stream.publisher.round())
        except Exception as error:
            self._hold(stream, "publishing", error)
            return None
        self._release(stream, "publishing")
        if published is not None:
            status.epochs += 1
            status.events += published.rows
            status.batches += len(published.frames)
            status.bytes += published.bytes
            log.info(
                "%s: epoch %d, versions %d to %d, %d events",
                status.stream,
                published.epoch,
                published.first_version,
                published.last_version,
                published.rows,
            )
        return published

    def _renew_settings(self, stream: _Stream) -> None:
        """Now and then, hand on what the user has set since: a token that was renewed."""
        if stream.inherited is not None and time.monotonic() >= stream.renew_at:
            stream.inherited = stream.inherited.renewed(self._spark, stream.spark)
            stream.renew_at = time.monotonic() + RENEW_INTERVAL

    def _keep(self, stream: _Stream, force: bool = False) -> None:
        if not (force or stream.keeper.due()):
            return
        try:
            state = run(stream.keeper.round())
            stream.keeper.sweep_when_due()
        except Exception as error:
            self._hold(stream, "acks", error)
            return
        self._release(stream, "acks")
        status = stream.status
        if state.newest is not None:
            status.published = state.newest.epoch
            if state.newest.kind != EVENTS:
                status.version = state.newest.last_version
        status.backlog = state.backlog
        status.acked = {site: ack.applied for site, ack in state.acks.items()}
        status.not_served = list(state.not_served)
        status.remote_holds = {
            site: ack.cause or "" for site, ack in state.acks.items() if ack.held is not None
        }

    def _block_on_ack(self, stream: _Stream, published: Manifest) -> None:
        """Wait until the ack policy is met, in slices that watch for a stop; at most ``block_on_ack`` seconds."""
        end = time.monotonic() + stream.block_on_ack
        while (
            not self._stop.is_set() and time.monotonic() < end and not stream.keeper.done(published)
        ):
            self._keep(stream, force=True)
            self._stop.wait(0.2)

    def _release(self, stream: _Stream, part: str) -> None:
        """A part of the work on a stream has gone well; another part may hold it still."""
        stream.causes.pop(part, None)
        stream.status.held = next(iter(stream.causes.values()), None)

    def _hold(self, stream: _Stream, part: str, error: Exception) -> None:
        if self._stop.is_set():
            raise StoppedError("stopped") from error
        lost = lost_session(stream.spark)
        if lost is not None:
            raise lost from error
        if ErrorKind.CANCELLED.matches(error):
            # Nothing of it is published, and the next round plans it again.
            error = WanError(
                f"{stream.status.table}: its Spark job was cancelled from outside. {self._retry(stream)}"
            )
        cause = (
            str(error)
            if isinstance(error, WanError)
            else f"{stream.status.table}: {error_text(error)}"
        )
        if cause != stream.causes.get(part):
            log.error(
                "%s: held: %s",
                stream.status.stream,
                cause,
                exc_info=None if isinstance(error, WanError) else error,
            )
        stream.causes[part] = stream.status.held = cause

    def _retry(self, stream: _Stream) -> str:
        return (
            "Start again." if self._available_now else f"Will retry in {self._longer(stream):g} s."
        )

    def _steps(self, steps: Steps[Any]) -> Any:
        """Run numbered steps, and look for a stop between them. Only what writes frames takes a slot; any table may look at any time."""
        with ExitStack() as slot:
            while True:
                if self._stop.is_set():
                    raise StoppedError("the sender was stopped")
                try:
                    step = next(steps)
                except StopIteration as end:
                    return end.value
                reached(step)
                slot.close()
                if step in self._slots:
                    slot.enter_context(self._slots[step].taken())
