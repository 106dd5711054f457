"""The gateway receiver as a job: one streaming query per inbound channel."""

from __future__ import annotations

import hashlib
import logging
import threading
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from spark_wan.channels.registry import open_channel
from spark_wan.control.decisions import Decisions
from spark_wan.delta.errors import error_text
from spark_wan.delta.sessions import (
    SessionSettings,
    is_connect,
    lost_session,
    make_active,
    spark_thread,
)
from spark_wan.errors import TopologyError
from spark_wan.ledger.tables import LedgerTables
from spark_wan.receiver.handle import ReceiverHandle, SupervisedQuery
from spark_wan.receiver.inbound import ChannelReceiver
from spark_wan.receiver.stream import RETRY_INTERVAL
from spark_wan.receiver.wake_up import FORMAT, WakeUpSource
from spark_wan.topology.model import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)


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
        decisions: What to do about what holds a stream, by table. They are recorded in the site's
            ``state``, so once is enough (:func:`spark_wan.control.decisions.parse_decisions`).

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
        decisions: Mapping[str, Decisions] | None = None,
    ) -> None:
        self.spark = spark
        self.topology = topology
        self.site = topology.site(site)
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
        self.decisions = {
            topology.table(name).name: each for name, each in (decisions or {}).items()
        }

    def start(self, available_now: bool = False) -> ReceiverHandle:
        """Start to receive. ``available_now``: apply the available epochs, then end."""
        make_active(self.spark)
        self.spark.dataSource.register(WakeUpSource)
        LedgerTables(self.spark, self.site.state).ensure()
        stop = threading.Event()
        supervised: list[SupervisedQuery] = []
        try:
            for url in sorted({sender.channel for sender in self.senders}):
                # Of several senders on one channel the first has its options, at both ends.
                storage = next(each.storage for each in self.senders if each.channel == url)
                channel = self._channel(url, storage, stop, waits=not available_now)
                supervised.append(SupervisedQuery(channel, self._query(channel)))
        except BaseException:
            for each in supervised:
                each.query.stop()
            raise
        handle = ReceiverHandle(
            supervised,
            stop,
            classic=not is_connect(self.spark),
            restart=self._query,
            available_now=available_now,
            lost=partial(lost_session, self.spark),
        )
        name = f"wan-receiver {self.site.name}"
        handle.watch_in(spark_thread(self.spark, handle.watch, name, handle.end_with))
        return handle

    def _channel(
        self, url: str, storage: Mapping[str, str], stop: threading.Event, waits: bool
    ) -> ChannelReceiver:
        open_channel(url, storage).prepare()
        return ChannelReceiver(
            self.topology,
            self.site.name,
            url,
            dict(storage),
            self.parallel,
            self.max_bytes,
            waits=waits,
            decisions=self.decisions,
            settings=None if is_connect(self.spark) else SessionSettings.of(self.spark),
            stop=stop,
        )

    def _query(self, channel: ChannelReceiver) -> StreamingQuery:
        """Start the streaming query of a channel."""
        options = {
            "channel": channel.url,
            "site": self.site.name,
            "token": uuid.uuid4().hex,
            "retryInterval": str(RETRY_INTERVAL),
            **{f"storage.{name}": value for name, value in channel.storage.items()},
        }
        name = hashlib.blake2b(channel.url.encode(), digest_size=6).hexdigest()
        checkpoint = f"{self.site.state.rstrip('/')}/checkpoints/receiver/{name}"
        make_active(self.spark)
        writer = (
            self.spark.readStream.format(FORMAT)
            .options(**options)
            .load()
            .writeStream.foreachBatch(channel)
            .queryName(f"wan receiver {self.site.name} {name} {uuid.uuid4().hex[:6]}")
            .option("checkpointLocation", checkpoint)
        )
        if channel.waits:
            writer = writer.trigger(
                processingTime=f"{max(1, round(self.interval * 1000))} milliseconds"
            )
        else:
            writer = writer.trigger(availableNow=True)
        try:
            channel.query = writer.start()
        except Exception as error:
            # When two receivers create a checkpoint at the same moment, Spark fails one of them.
            # Its second try succeeds.
            log.info("%s: its query did not start; retrying: %s", channel.url, error_text(error))
            channel.query = writer.start()
        return channel.query
