"""The sender as a job: captures the tables attached to a site's senders.

Each stream (one table of one sender) is an activity of the scheduler; one that is held stops no
other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from spark_wan.capture.source import DeltaSource
from spark_wan.capture.tasks import CapturedTable
from spark_wan.channels.registry import open_channel, prepare_all
from spark_wan.control.keeper import ControlKeeper
from spark_wan.delta.sessions import CurrentSession
from spark_wan.errors import TopologyError
from spark_wan.ledger.tables import LedgerTables
from spark_wan.log.ack_watch import AckWatch
from spark_wan.log.frames import BatchLimits
from spark_wan.log.heart import Heart
from spark_wan.log.stream_log import StreamLog
from spark_wan.messages import message_log
from spark_wan.runtime.first_looks import FirstLooks
from spark_wan.runtime.handle import JobHandle
from spark_wan.runtime.life import Life, kind_of_job
from spark_wan.runtime.pace import Pace
from spark_wan.runtime.scheduler import Job
from spark_wan.runtime.standby import StandbyHandle
from spark_wan.runtime.start import say_started
from spark_wan.sender.ack_timeouts import Decide, check_decide
from spark_wan.sender.acks import AckManager
from spark_wan.sender.copies import CopiesNow, OutboundCopies, OutboundCopy, outbound_copy
from spark_wan.sender.outbound_channel import OutboundChannel, note_stop
from spark_wan.sender.outbound_stream import OutboundStream, StreamStatus
from spark_wan.sender.pipeline import Pipeline
from spark_wan.sender.publish import CaptureSettings, Publisher
from spark_wan.sender.queue import OutboundQueue
from spark_wan.sender.rate import SendRate
from spark_wan.sender.record import SenderRecordKeeper
from spark_wan.sender.serve import PublishedTable
from spark_wan.state.checkpoints import StoredCheckpoints
from spark_wan.state.decisions import StoredDecisions
from spark_wan.topology import model
from spark_wan.topology.fingerprint import settings_fingerprint
from spark_wan.topology.model import QueueLimits, Table, Topology, delay_of, stream_name
from spark_wan.topology.routes import Serving, reached, served_by
from spark_wan.topology.signing import sending_trust
from spark_wan.units import milliseconds
from spark_wan.wire.decisions import Decisions
from spark_wan.wire.ledger import DeadLetter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = message_log(__name__)


class Sender:
    """All senders of a site, or those named.

    Args:
        spark: A session, classic or Connect.
        topology: Who sends what to whom.
        site: The site whose senders run here.
        senders: Names of senders; default: all of the site's.
        tables: Names of tables; default: all that are attached.
        decisions: What to do about what holds a stream, by table
            (:func:`spark_wan.state.decisions.parse_decisions`). The site's ``state`` records it,
            so once is enough.
        parallel: Maximum number of tables captured concurrently; default: the site's
            ``send_parallel``. First snapshots and commits with more than ``max_epoch_rows`` rows
            count apart, so that they stop no other table; looking does not count.
        idle_interval: Longest interval in seconds between looks at a table or channel where nothing
            happens; default: the site's ``idle_interval``.
        on_ack_timeout: ``wait``, ``continue``, or a function that takes an
            :class:`~spark_wan.sender.ack_timeouts.AckTimeout` and returns one of them; default: the
            sender's ``on_ack_timeout``. The function is called once for an epoch, and again every
            ``ack_timeout`` while it returns ``wait``. An error in it holds the stream's acks.

    Raises:
        OptionError: ``on_ack_timeout`` is something else.
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
        parallel: int | None = None,
        idle_interval: float | None = None,
        on_ack_timeout: Decide | None = None,
    ) -> None:
        self.spark = spark
        self.topology = topology
        self.site = topology.site(site)
        self.kind = kind_of_job("sender", senders, tables)
        chosen = (
            [topology.sender_at(site, name) for name in senders]
            if senders is not None
            else topology.senders_at(site)
        )
        wanted = {topology.table(name).name for name in tables} if tables is not None else None
        self.streams = [
            (sender, table)
            for sender in chosen
            for table in topology.tables_of(sender.name)
            if site in table.writers and (wanted is None or table.name in wanted)
        ]
        if not self.streams:
            names = ", ".join(sender.name for sender in chosen) or "it has none"
            raise TopologyError(
                f"{topology.file}: site {site} has nothing to send: no table that it writes is "
                f"attached to its senders ({names}). What it receives is forwarded by its receiver."
            )
        self.decisions = {
            topology.table(name).name: decided for name, decided in (decisions or {}).items()
        }
        self.parallel = self.site.send_parallel if parallel is None else parallel
        self.idle_interval = self.site.idle_interval if idle_interval is None else idle_interval
        self.on_ack_timeout = None if on_ack_timeout is None else check_decide(on_ack_timeout)

    def start(self, available_now: bool = False) -> JobHandle[StreamStatus]:
        """Start capturing. ``available_now``: publish the versions that are there now, collect the
        acks, and end.

        Raises ChannelError when no channel can be written to, before anything is captured. One of
        several holds its streams until it can."""
        return self._start(None if available_now else Life.of(self.site, self.kind))

    def stand_by(
        self, instead_of: StandbyHandle[StreamStatus] | None = None
    ) -> StandbyHandle[StreamStatus]:
        """Start capturing once no other job does: wait while one with the same ``senders`` and
        ``tables`` gives signs of life, and take over within the site's ``standby_after``. Each
        further job only waits. ``instead_of``: a handle that was stopped with ``gives_way``.

        What :meth:`start` raises ends the wait: see ``exception()`` of the handle."""
        life = Life.of(self.site, self.kind)
        return StandbyHandle(self.spark, "sender", self._start, life, instead_of)

    def _start(self, life: Life | None) -> JobHandle[StreamStatus]:
        """Start the job with its sign of life; None: it publishes what is there now, and ends."""
        available_now = life is None
        watches: dict[str, AckWatch] = {}
        for sender, _ in self.streams:
            if sender.channel not in watches:
                watches[sender.channel] = AckWatch(open_channel(sender.channel, sender.storage))
        prepare_all([watch.channel for watch in watches.values()])
        channels: list[OutboundChannel] = []
        handle = JobHandle(
            self.spark,
            "sender",
            self.parallel,
            lambda: [status for channel in channels for status in channel.statuses()],
            available_now=available_now,
            copies=self.site.max_copies,
            site=self.site.name,
            life=life,
        )
        first_looks = None if available_now else FirstLooks(handle.scheduler.wake)
        # Before anything is added to a stream that is to be paused from its beginning.
        control = ControlKeeper(self.topology, self.site)
        control.enforce()
        rates = {sender.name: SendRate.of(sender) for sender, _ in self.streams}
        streams = [
            self._stream(
                handle,
                sender,
                table,
                watch=watches[sender.channel],
                available_now=available_now,
                first_looks=first_looks,
                control=control,
                rate=rates[sender.name],
            )
            for sender, table in self.streams
        ]

        def wake_all() -> None:
            for stream in streams:
                handle.scheduler.wake(stream)

        control.changed = wake_all
        for url, watch in watches.items():
            sent = [
                stream
                for (sender, _), stream in zip(self.streams, streams, strict=True)
                if sender.channel == url
            ]
            shortest = min(sender.batch_interval for sender, _ in self.streams)
            pace = Pace(shortest, self.idle_interval)
            names = {sender.name for sender, _ in self.streams if sender.channel == url}
            heart = Heart(watch.channel, self.site.name, milliseconds, names)
            channels.append(OutboundChannel(watch, sent, handle.scheduler, pace, heart))
            if available_now:
                heart.beat(every=0)
        for channel in channels:
            channel.copies = self._copies(handle, channel.watch, available_now, control)
        say_started(
            "sender",
            self.site,
            [stream.name for stream in streams],
            list({sender.name: sender for sender, _ in self.streams}.values()),
            list({table.name: table for _, table in self.streams}.values()),
            spark=self.spark.version,
            options={"send_parallel": self.parallel, "idle_interval": self.idle_interval},
        )
        if available_now:
            handle.begin([*streams, *(CopiesNow(each.copies) for each in channels if each.copies)])
        else:
            handle.begin([*streams, *channels, control], last=lambda _: note_stop(handle, channels))
        return handle

    def _stream(
        self,
        job: Job,
        sender: model.Sender,
        table: Table,
        *,
        watch: AckWatch,
        available_now: bool,
        first_looks: FirstLooks | None = None,
        control: ControlKeeper,
        rate: SendRate | None = None,
    ) -> OutboundStream:
        settings = self._settings(sender, table)
        status, session = StreamStatus(settings.stream, table.name), CurrentSession()
        stream_log = StreamLog(watch.channel, settings.stream, sending_trust(self.topology, sender))
        state, storage = self.site.state.rstrip("/"), self.site.storage
        checkpoints = StoredCheckpoints(f"{state}/checkpoints/sender/{sender.name}", storage)
        decisions = StoredDecisions(state, storage)
        decisions.record(table.name, self.decisions.get(table.name, Decisions()))
        acks = AckManager(
            stream_log,
            checkpoints,
            policy=sender.ack_policy,
            ack_timeout=int(sender.ack_timeout * 1000),
            clock=milliseconds,
            served=settings.addressees,
            never_primary=self.topology.never_primary,
            watch=watch,
        )
        publisher = None
        if table.source == "table":
            publisher = Publisher(
                settings,
                stream_log,
                source=self._source(sender, table, stream_log, status=status, session=session),
                checkpoints=checkpoints,
                clock=milliseconds,
                decisions=partial(decisions.load, table.name),
                wanted=partial(control.wanted, sender.name, table.name),
                wanted_before=partial(control.wanted_before, sender.name, table.name),
                queue=OutboundQueue(acks, QueueLimits.of(sender, table)),
            )
        fingerprint = settings_fingerprint(self.topology, sender, table)
        by_sink = publisher is None
        return OutboundStream(
            job,
            available_now,
            session=session,
            status=status,
            publisher=publisher,
            acks=acks,
            pace=Pace(sender.batch_interval, self.idle_interval),
            block_on_ack=sender.block_on_ack,
            first_looks=first_looks,
            pipeline=Pipeline(sender.optimize),
            record=SenderRecordKeeper(
                watch.channel, settings.stream, fingerprint, milliseconds, by_sink=by_sink
            ),
            on_ack_timeout=self.on_ack_timeout or sender.on_ack_timeout,
            pause=partial(control.pause_of, sender.name, table.name),
            check_control=control.check_known,
            priority=table.priority,
            rate=rate,
        )

    def _copies(
        self,
        handle: JobHandle[StreamStatus],
        watch: AckWatch,
        available_now: bool,
        control: ControlKeeper,
    ) -> OutboundCopies:
        """Return what serves copies of this job's tables through a channel."""
        served = [
            by
            for sender, table in self.streams
            if sender.channel == watch.channel.url
            for by in served_by(self.topology, table, sender)
        ]
        copies = [self._copy(handle, watch, by, available_now, control) for by in served]
        return OutboundCopies(watch, copies, handle.scheduler)

    def _copy(
        self,
        job: Job,
        watch: AckWatch,
        by: Serving,
        available_now: bool,
        control: ControlKeeper,
    ) -> OutboundCopy:
        settings, session = self._settings(by.sender, by.table), CurrentSession()
        trust = sending_trust(self.topology, by.sender)
        published = StreamLog(watch.channel, settings.stream, trust)
        status = StreamStatus(by.stream, by.table.name)
        source = self._source(by.sender, by.table, published, status=status, session=session)
        return outbound_copy(
            job,
            self.topology,
            watch,
            by,
            source=PublishedTable(
                settings,
                published,
                source,
                partial(control.wanted, by.sender.name, by.table.name),
                is_delayed=settings.delay > 0,
            ),
            session=session,
            available_now=available_now,
        )

    def _settings(self, sender: model.Sender, table: Table) -> CaptureSettings:
        """Return what a capture of a table is for, and where it begins."""
        return CaptureSettings(
            stream=stream_name(sender.site, sender.name, table.name),
            table=table.name,
            keys=table.keys,
            origin=sender.site,
            sent_to=self.topology.sent_to(table.name, sender.site),
            addressees=tuple(sorted(site for site in sender.remotes if site in table.at)),
            start=table.start.version,
            on_table_operation=table.on_table_operation,
            max_epoch_rows=sender.max_epoch_rows,
            delay=int(delay_of(sender, table) * 1000),
        )

    def _source(
        self,
        sender: model.Sender,
        table: Table,
        stream_log: StreamLog,
        *,
        status: StreamStatus,
        session: CurrentSession,
    ) -> DeltaSource:
        """Return the table as it is captured."""
        place = table.location(sender.site)
        ledger = LedgerTables(session, self.site.state)
        return DeltaSource(
            session,
            CapturedTable(table.name, place, table.keys, table.letters_allowed),
            channel=stream_log.channel,
            limits=BatchLimits(
                sender.batch_size,
                sender.batch_bytes,
                sender.max_frame_bytes,
                digests=stream_log.trust.signer is not None,
                received=_least_received(self.topology, table, sender),
            ),
            record_dead_letters=partial(_record_dead_letters, ledger, status),
            note_duplicates=partial(_note_duplicates, status),
            storage=self.site.storage,
        )


def _record_dead_letters(
    ledger: LedgerTables, status: StreamStatus, letters: Sequence[DeadLetter]
) -> None:
    ledger.ensure()
    ledger.merge_dead_letters([asdict(letter) for letter in letters])
    status.dead_letters += len(letters)
    log.warning(
        "%s: %d rows became dead letters, the first because of %s.",
        status.stream,
        len(letters),
        letters[0].cause,
        event="dead-letters",
        stream=status.stream,
        rows=len(letters),
        what_to_do="List them with `spark-wan dead-letters list`.",
    )


def _note_duplicates(status: StreamStatus, rows: int) -> None:
    status.duplicates += rows
    log.warning(
        "%s: the keys are not unique: %d rows have the key of another",
        status.stream,
        rows,
        event="duplicates",
        stream=status.stream,
        rows=rows,
        what_to_do="Of each such key one row is sent. `spark-wan status --output json` has a query "
        "that finds them.",
    )


def _least_received(topology: Topology, table: Table, sender: model.Sender) -> str:
    """Return the lowest ``max_frame_bytes`` of the sites that get what a sender captures."""
    sites = map(topology.site, reached(topology, table, sender))
    least = min(sites, key=lambda site: site.max_frame_bytes, default=None)
    return f"{least.max_frame_bytes:,} at site {least.name}" if least is not None else ""
