"""A receiver in the thread of the test: no scheduler, no other threads."""

from __future__ import annotations

from typing import Any

from spark_wan.channels.base import Channel
from spark_wan.channels.registry import open_channel
from spark_wan.errors import StoppedError
from spark_wan.log.heart import Heart
from spark_wan.receiver.channel_streams import ChannelStreams
from spark_wan.receiver.inbound import InboundChannel, InboundTables
from spark_wan.receiver.job import Receiver
from spark_wan.receiver.stream import TableStatus
from spark_wan.runtime.pace import Pace
from spark_wan.runtime.scheduler import Activity, Found
from spark_wan.units import milliseconds


class Running:
    """A job that runs until ``stopped`` is set."""

    stopped = False

    @property
    def is_stopping(self) -> bool:
        return self.stopped

    def check_stopped(self) -> None:
        if self.stopped:
            raise StoppedError("stopped")

    def pause(self, seconds: float) -> None:
        self.check_stopped()


class Woken:
    """A scheduler that only notes what was woken."""

    is_busy = False

    def __init__(self) -> None:
        self.woken: list[Activity] = []

    def add(self, activity: Activity) -> None: ...

    def wake(self, activity: Activity) -> None:
        if activity not in self.woken:
            self.woken.append(activity)


def turns(activity: Activity, spark: Any) -> None:
    """Look, and do what is found, until nothing is."""
    turn = activity.look(spark)
    while isinstance(turn, Found):
        turn = turn.work(spark)


class Inbound:
    """An inbound channel of a receiver, and its tables."""

    def __init__(
        self,
        streams: ChannelStreams,
        channel: Channel,
        tables: InboundTables,
        available_now: bool = False,
        woken: Woken | None = None,
    ) -> None:
        self.streams, self.tables, self.woken = streams, tables, woken or Woken()
        self.channel = InboundChannel(
            channel,
            streams,
            tables=tables,
            scheduler=self.woken,
            pace=Pace(0.0, 0.0),
            available_now=available_now,
            heart=Heart(channel, streams.site, milliseconds, set()),
        )

    def apply(self, spark: Any = None) -> None:
        """List the channel once, and apply what is due."""
        self.channel.look(spark)
        while self.woken.woken:
            turns(self.woken.woken.pop(0), spark)

    def retry(self, spark: Any = None) -> None:
        """Do the same, as if the time of all held streams had come."""
        for stream in self.streams.all():
            stream.retry_now()
        self.apply(spark)

    def statuses(self) -> list[TableStatus]:
        return self.streams.statuses()

    def held(self) -> dict[str, str | None]:
        return {status.stream: status.held for status in self.statuses()}


def inbound_of(receiver: Receiver) -> Inbound:
    """Return the first inbound channel of a receiver, to work on in this thread."""
    sender = receiver.senders[0]
    channel = open_channel(sender.channel, sender.storage)
    streams = ChannelStreams(receiver.topology, receiver.site.name, channel.url)
    return Inbound(streams, channel, receiver._tables(Running(), False))
