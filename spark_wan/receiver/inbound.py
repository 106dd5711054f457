"""One inbound channel of a running receiver: which of its streams are due, and their tables."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_wan.channels.base import Channel
from spark_wan.errors import ChannelError
from spark_wan.log.heart import Heart
from spark_wan.messages import message_log
from spark_wan.receiver.channel_streams import ChannelStreams
from spark_wan.receiver.record import ReceiverRecordKeeper
from spark_wan.receiver.table import InboundTable
from spark_wan.runtime.pace import Pace
from spark_wan.runtime.scheduler import Activity, Next, Scheduler, Turn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = message_log(__name__)

UNREACHABLE_INTERVAL = 1.0
"""Shortest wait, in seconds, before a channel that does not answer is listed again."""


@dataclass
class InboundTables:
    """The tables of a running receiver. Streams of several channels may be for the same table."""

    make: Callable[[str], InboundTable]
    _tables: dict[str, InboundTable] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, name: str) -> InboundTable:
        """Return a table by name, new or known."""
        with self._lock:
            if name not in self._tables:
                self._tables[name] = self.make(name)
            return self._tables[name]

    def cut_off(self) -> list[InboundTable]:
        """Note that a channel is out of reach, or paused. Return the tables whose targets were not
        read for long."""
        with self._lock:
            found = [table for table in self._tables.values() if table.must_read()]
        for table in found:
            table.cut_off = True
        return found


@dataclass(eq=False)
class InboundChannel(Activity):
    """An inbound channel of a running receiver."""

    kind = "channel"

    channel: Channel
    streams: ChannelStreams
    tables: InboundTables
    scheduler: Scheduler
    pace: Pace
    available_now: bool
    heart: Heart
    """Says that the receiver is there."""
    _waits: bool = False
    """Whether it was said that nothing is in the channel."""

    def __post_init__(self) -> None:
        self.name = self.channel.url

    @property
    def answers(self) -> bool:
        """Whether the channel could be listed last time."""
        return self.streams.answers

    @property
    def records(self) -> list[ReceiverRecordKeeper | Heart]:
        """What the receiver says of itself."""
        return [*self.streams.records, self.heart]

    def look(self, spark: SparkSession) -> Turn:
        """List the channel, and give each table its streams that are due."""
        answered = self.streams.answers
        try:
            due = self.streams.due(self.channel)
        except ChannelError as error:
            if self.available_now:
                raise
            log.log(
                logging.WARNING if answered else logging.DEBUG,  # once, not at each look
                "channel %s: nothing is received through it now: %s",
                self.name,
                error,
                event="channel-held",
                channel=self.name,
                cause=str(error),
            )
            self._cut_off()
            return Next(max(UNREACHABLE_INTERVAL, self.pace.wait()))
        if self.streams.is_empty and not self._waits:
            log.warning(
                "channel %s: nothing has been sent through it yet; waiting.",
                self.name,
                event="channel-empty",
                channel=self.name,
                what_to_do="If a sender says that it has sent something, its topology has another "
                "channel: compare the URLs.",
            )
        self._waits = self.streams.is_empty
        if due:
            self.pace.happened()
        for name, streams in due.items():
            table = self.tables.get(name)
            table.give(streams)
            self.scheduler.add(table)
            self.scheduler.wake(table)
        if self.streams.paused:
            self._cut_off()
        if not self.available_now:
            wait = min(self.pace.wait(), self.streams.keep_records())
            self.heart.beat()
            return Next(min(wait, self.heart.left()))
        if self.streams.refused is not None:
            raise self.streams.refused
        return None

    def _cut_off(self) -> None:
        """Have targets read for which nothing may come for long."""
        for table in self.tables.cut_off():
            self.scheduler.wake(table)
