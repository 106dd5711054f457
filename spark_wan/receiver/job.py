"""The receiver as a job: its inbound channels and their tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from spark_wan.channels.base import Version
from spark_wan.channels.registry import open_channel, prepare_all
from spark_wan.control.keeper import ControlKeeper
from spark_wan.delta.sessions import CurrentSession, job_session
from spark_wan.errors import TopologyError
from spark_wan.forward.job import Forwards
from spark_wan.ledger.maintenance import LedgerMaintenance
from spark_wan.ledger.tables import LedgerTables
from spark_wan.ledger.writer import LedgerWriter
from spark_wan.log.heart import Heart
from spark_wan.log.trust import StreamTrust
from spark_wan.receiver.channel_streams import ChannelStreams
from spark_wan.receiver.copies import peer_copy, served_to
from spark_wan.receiver.inbound import InboundChannel, InboundTables
from spark_wan.receiver.requests import OpenRequests
from spark_wan.receiver.stream import TableStatus
from spark_wan.receiver.table import InboundTable
from spark_wan.runtime.first_looks import FirstLooks
from spark_wan.runtime.handle import JobHandle
from spark_wan.runtime.life import Life, kind_of_job
from spark_wan.runtime.pace import Pace
from spark_wan.runtime.scheduler import Job
from spark_wan.runtime.standby import StandbyHandle
from spark_wan.runtime.start import say_started
from spark_wan.sender.copies import CopiesNow, OutboundCopies
from spark_wan.sender.outbound_channel import note_stop
from spark_wan.sync.automatic import SiteNeed, Synchronizer
from spark_wan.sync.request import CopyRequests
from spark_wan.topology.model import Topology
from spark_wan.topology.routes import all_streams
from spark_wan.units import milliseconds
from spark_wan.wire.decisions import Decisions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP_WAIT = 10.0
"""Seconds that a stop leaves to a running apply before it cancels its Spark job."""


class Receiver:
    """Applies what other sites send to a site.

    Args:
        spark: A session, classic or Connect.
        topology: Who sends what to whom.
        site: The site that receives here.
        senders: Names of remote senders to receive from; default: all that serve the site.
        interval: Seconds between polls of a channel; default: the site's ``receive_interval``.
        parallel: Maximum number of tables written concurrently; default: the site's
            ``receive_parallel``. A table that takes longer than 20 seconds no longer counts, so
            that it delays no other.
        max_bytes: Maximum number of bytes of frames in one apply; default: the site's
            ``receive_max_bytes``.
        idle_interval: Longest interval in seconds between looks at a channel where nothing
            happens; default: the site's ``idle_interval``.
        on_need: Called when the site needs a copy of a table, and again when what it does about it
            changes.
        decisions: What to do about what holds a stream, by table. They are recorded in the site's
            ``state``, so once is enough (:func:`spark_wan.state.decisions.parse_decisions`).

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
        interval: float | None = None,
        parallel: int | None = None,
        max_bytes: int | None = None,
        idle_interval: float | None = None,
        decisions: Mapping[str, Decisions] | None = None,
        on_need: Callable[[SiteNeed], None] | None = None,
    ) -> None:
        self.spark = spark
        self.topology = topology
        self.site = topology.site(site)
        self.kind = kind_of_job("receiver", senders)
        self.senders = [
            sender
            for sender in topology.senders_to(site)
            if senders is None or topology.sender(sender.name).name in senders
        ]
        if not self.senders:
            which = "no sender" if senders is None else "no sender named"
            raise TopologyError(
                f"{topology.file}: nothing comes to site {site}: {which} has it among its remotes."
            )
        self.interval = self.site.receive_interval if interval is None else interval
        self.parallel = self.site.receive_parallel if parallel is None else parallel
        self.max_bytes = self.site.receive_max_bytes if max_bytes is None else max_bytes
        self.idle_interval = self.site.idle_interval if idle_interval is None else idle_interval
        self.decisions = {
            topology.table(name).name: each for name, each in (decisions or {}).items()
        }
        channels = {sender.channel for sender in self.senders}
        trusts: dict[str, Callable[[str], StreamTrust]] = {}
        self.synchronizers = {
            name: Synchronizer(
                CopyRequests(topology, table, self.site, channels=channels, trusts=trusts), on_need
            )
            for name, table in topology.tables.items()
            if site in table.at
        }

    def start(self, available_now: bool = False) -> JobHandle[TableStatus]:
        """Start to receive. ``available_now``: apply the available epochs, then end.

        Raises LedgerError when the ledger cannot be written to, ChannelError when no channel can.
        One of several is tried again until it can.
        """
        return self._start(None if available_now else Life.of(self.site, self.kind))

    def stand_by(
        self, instead_of: StandbyHandle[TableStatus] | None = None
    ) -> StandbyHandle[TableStatus]:
        """Start to receive once no other job does: wait while one with the same ``senders`` gives
        signs of life, and take over within the site's ``standby_after``. Each further job only
        waits. ``instead_of``: a handle that was stopped with ``gives_way``.

        What :meth:`start` raises ends the wait: see ``exception()`` of the handle."""
        life = Life.of(self.site, self.kind)
        return StandbyHandle(self.spark, "receiver", self._start, life, instead_of)

    def _start(self, life: Life | None) -> JobHandle[TableStatus]:
        """Start the job with its sign of life; None: it applies what is there now, and ends."""
        available_now = life is None
        with job_session(self.spark) as session:
            LedgerTables(CurrentSession(session), self.site.state).ensure()
        channels: list[InboundChannel] = []
        handle = JobHandle(
            self.spark,
            "receiver",
            self.parallel,
            lambda: [status for channel in channels for status in channel.streams.statuses()],
            grace=STOP_WAIT,
            available_now=available_now,
            copies=self.site.max_copies,
            site=self.site.name,
            life=life,
        )
        # A run with available_now has to end: there each table writes its marks alone.
        writer = None if available_now else LedgerWriter(self.site.state, handle.scheduler)
        first_looks = None if available_now else FirstLooks(handle.scheduler.wake)
        tables = self._tables(handle, available_now, writer, first_looks)
        forwards = Forwards(
            handle,
            handle.scheduler,
            topology=self.topology,
            site=self.site,
            available_now=available_now,
        )
        for url in sorted({sender.channel for sender in self.senders}):
            # Of several senders on one channel the first has its options, at both ends.
            storage = next(each.storage for each in self.senders if each.channel == url)
            channel = open_channel(url, storage)
            pace = Pace(self.interval, self.idle_interval)
            streams = ChannelStreams(self.topology, self.site.name, url, forwards.of)
            names = {each.name for each in self.senders if each.channel == url}
            channels.append(
                InboundChannel(
                    channel,
                    streams,
                    tables=tables,
                    scheduler=handle.scheduler,
                    pace=pace,
                    available_now=available_now,
                    heart=Heart(channel, self.site.name, milliseconds, names),
                )
            )
        prepare_all([inbound.channel for inbound in channels], begins=False)
        if available_now:
            for inbound in channels:
                inbound.heart.beat(every=0)
        copies = self._copies(handle, forwards, available_now)
        requests = OpenRequests(
            self._requests(), lambda: _acks(channels), timeout=self.site.sync_timeout
        )
        control = [ControlKeeper(self.topology, self.site)] if self._forwards() else []
        for keeper in control:
            keeper.enforce()  # what is forwarded may be paused
        say_started(
            "receiver",
            self.site,
            self._inbound(),
            self.senders,
            [table for table in self.topology.tables.values() if self.site.name in table.at],
            spark=self.spark.version,
            options={
                "receive_interval": self.interval,
                "receive_parallel": self.parallel,
                "receive_max_bytes": self.max_bytes,
                "idle_interval": self.idle_interval,
            },
        )
        if writer is None:
            handle.begin([*channels, *map(CopiesNow, copies)])
        else:

            def last(spark: SparkSession) -> None:
                try:
                    writer.write(spark)
                finally:
                    note_stop(handle, [*forwards.channels, *channels])

            maintenance = self._maintenance(handle)
            handle.begin([*channels, writer, maintenance, requests, *control], last=last)
        return handle

    def _inbound(self) -> list[str]:
        """Return the streams that come to the site, by the topology."""
        senders = {each.name for each in self.senders}
        return [
            each.name
            for each in all_streams(self.topology)
            if self.site.name in each.addressees and each.sender.name in senders
        ]

    def _forwards(self) -> bool:
        """Whether the site forwards anything."""
        streams = all_streams(self.topology)
        return any(
            each.inbound is not None and each.sender.site == self.site.name for each in streams
        )

    def _requests(self) -> Mapping[str, Synchronizer]:
        """Return what asks for the copies that may come, by their stream."""
        return {
            by.stream: each
            for each in self.synchronizers.values()
            if each.requests.is_possible
            for by in each.requests.sites
        }

    def _copies(
        self, handle: JobHandle[TableStatus], forwards: Forwards, available_now: bool
    ) -> list[OutboundCopies]:
        """Return what serves copies of the site's own copies, by channel."""
        found = []
        for url in sorted({each.channel for each in self.topology.senders_at(self.site.name)}):
            served = served_to(self.topology, self.site.name, url)
            if not served:
                continue
            channel = forwards.outbound(served[0].sender)
            copies = [
                peer_copy(
                    handle,
                    self.topology,
                    channel.watch,
                    by,
                    waits=self.synchronizers[by.table.name].waits,
                    available_now=available_now,
                )
                for by in served
            ]
            channel.copies = OutboundCopies(channel.watch, copies, handle.scheduler)
            found.append(channel.copies)
        return found

    def _maintenance(self, job: Job) -> LedgerMaintenance:
        kept = {name: table.event_id_ttl for name, table in self.topology.tables.items()}
        expiring = {name: ttl for name, ttl in kept.items() if ttl is not None}
        return LedgerMaintenance(self.site.name, self.site.state, expiring, job.check_stopped)

    def _tables(
        self,
        job: Job,
        available_now: bool,
        writer: LedgerWriter | None = None,
        first_looks: FirstLooks | None = None,
    ) -> InboundTables:
        maintenance = self._maintenance(job) if available_now else None

        def table(name: str) -> InboundTable:
            return InboundTable(
                job,
                self.site,
                table=self.topology.table(name),
                synchronizer=self.synchronizers[name],
                max_bytes=self.max_bytes,
                available_now=available_now,
                decisions=self.decisions.get(name, Decisions()),
                maintenance=maintenance,
                writer=writer,
                first_looks=first_looks,
            )

        return InboundTables(table)


def _acks(channels: Sequence[InboundChannel]) -> Mapping[str, Version | None]:
    return {name: ack for each in channels for name, ack in each.streams.acks.items()}
