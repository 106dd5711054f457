"""The gateway sender as a job: captures the tables attached to a site's senders.

Each stream (one table of one sender) has a thread of its own; one that is held stops no other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from spark_wan.capture.source import DeltaSource
from spark_wan.capture.tasks import CapturedTable, SenderDeadLetter
from spark_wan.channels.base import Channel
from spark_wan.channels.batches import BatchLimits
from spark_wan.channels.log import StreamLog
from spark_wan.channels.registry import open_channel
from spark_wan.control.decisions import Decisions, StoredDecisions
from spark_wan.delta.sessions import SessionSettings, is_connect
from spark_wan.errors import TopologyError
from spark_wan.ledger.tables import LedgerTables
from spark_wan.sender.acks import AckManager
from spark_wan.sender.checkpoints import StoredCheckpoints
from spark_wan.sender.handle import SenderHandle
from spark_wan.sender.publish import CaptureSettings, Publisher
from spark_wan.sender.stream import SenderRun, SenderStream, StreamStatus
from spark_wan.topology import model
from spark_wan.topology.model import Table, Topology, stream_name
from spark_wan.units import milliseconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


class Sender:
    """All senders of a site, or those named.

    Args:
        spark: A session, classic or Connect.
        topology: Who sends what to whom.
        site: The site whose senders run here.
        senders: Names of senders; default: all of the site's.
        tables: Names of tables; default: all that are attached.
        decisions: What to do about what holds a stream, by table
            (:func:`spark_wan.control.decisions.parse_decisions`). The site's ``state`` records it,
            so once is enough.
        parallel: Maximum number of tables captured concurrently; default: the site's
            ``send_parallel``. First snapshots and commits with more than ``max_epoch_rows`` rows
            count apart, so that they stop no other table; polling does not count.

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
        parallel: int | None = None,
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
                    f"{topology.file}: senders.{sender.name} runs at site {sender.site}, not at "
                    f"{site}."
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
                f"attached to its senders ({names})."
            )
        self.decisions = {
            topology.table(name).name: decided for name, decided in (decisions or {}).items()
        }
        self.parallel = self.site.send_parallel if parallel is None else parallel

    def start(self, available_now: bool = False) -> SenderHandle:
        """Start capturing. ``available_now``: publish the versions that are there now, collect the
        acks, and end.

        Raises ChannelError when a channel cannot be written to, before anything is captured."""
        run = SenderRun(self.spark, available_now, self.parallel)
        channels: dict[str, Channel] = {}
        for sender, _ in self.streams:
            if sender.channel not in channels:
                channels[sender.channel] = open_channel(sender.channel, sender.storage)
                channels[sender.channel].prepare()
        settings = None if is_connect(self.spark) else SessionSettings.of(self.spark)
        streams = [
            self._stream(run, sender, table, channels[sender.channel], settings)
            for sender, table in self.streams
        ]
        handle = SenderHandle(run, streams)
        handle._begin()
        return handle

    def _stream(
        self,
        run: SenderRun,
        sender: model.Sender,
        table: Table,
        channel: Channel,
        inherited: SessionSettings | None,
    ) -> SenderStream:
        name = stream_name(sender.site, sender.name, table.name)
        spark = self.spark if inherited is None else inherited.new_session(self.spark)
        status = StreamStatus(name, table.name)
        checkpoints = StoredCheckpoints(
            f"{self.site.state.rstrip('/')}/checkpoints/sender/{sender.name}", self.site.storage
        )
        settings = CaptureSettings(
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
        stream_log = StreamLog(channel, name)
        decisions = StoredDecisions(self.site.state, self.site.storage)
        decisions.record(table.name, self.decisions.get(table.name, Decisions()))
        interrupt: Callable[[str], object]
        publisher: Publisher | None
        if table.source == "table":
            source = DeltaSource(
                spark,
                CapturedTable(
                    table.name, table.location(sender.site), table.keys, table.max_dead_letters
                ),
                channel,
                BatchLimits(sender.batch_size, sender.batch_bytes),
                partial(self._record_dead_letters, status),
            )
            decided = partial(decisions.load, table.name)
            publisher = Publisher(settings, stream_log, source, checkpoints, milliseconds, decided)
            interrupt = source.interrupt
        else:
            publisher, interrupt = None, spark.interruptTag
        policy, timeout = sender.ack_policy, int(sender.ack_timeout * 1000)
        acks = AckManager(
            stream_log, checkpoints, policy, timeout, milliseconds, settings.addressees
        )
        interval, block = sender.batch_interval, sender.block_on_ack
        return SenderStream(
            run, spark, inherited, interrupt, status, publisher, acks, interval, block
        )

    def _record_dead_letters(
        self, status: StreamStatus, letters: Sequence[SenderDeadLetter]
    ) -> None:
        ledger = LedgerTables(self.spark, self.site.state)
        ledger.ensure()
        rows = [{"side": "sender", **asdict(letter)} for letter in letters]
        for row in rows:
            row["origin_version"] = row.pop("version")  # the ledger's own column is its format's
        ledger.merge_dead_letters(rows)
        status.dead_letters += len(letters)
        log.warning(
            "%s: %d rows became dead letters (%s)", status.stream, len(letters), letters[0].cause
        )
