"""Receivers without Spark: queries, channels and targets that are fakes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import LedgerRows, Target, publish

from spark_wan.channels.base import Channel
from spark_wan.channels.log import StreamLog
from spark_wan.ledger.ledger import Ledger
from spark_wan.receiver import channel_streams as streams_module
from spark_wan.receiver import inbound as inbound_module
from spark_wan.receiver import stream as stream_module
from spark_wan.receiver.apply import TableApplier
from spark_wan.receiver.channel_streams import ChannelStreams
from spark_wan.receiver.handle import ReceiverHandle, SupervisedQuery
from spark_wan.receiver.inbound import ChannelReceiver
from spark_wan.receiver.stream import InboundStream, Listing, TableStatus
from spark_wan.topology.parsing import parse_topology

LONG = 60.0
"""Seconds after which a test gives up waiting."""
SPARK: Any = SimpleNamespace(range=lambda _: None)
TABLES = ("orders", "readings", "prices")
TOPOLOGY = parse_topology(
    {
        "version": 1,
        "sites": {"newark": {"state": "/newark"}, "seattle": {"state": "/seattle"}},
        "senders": {"east": {"site": "newark", "remotes": ["seattle"], "channel": "/channel"}},
        "tables": {
            name: {
                "keys": ["id"],
                "writers": ["newark"],
                "senders": ["east"],
                "at": {"newark": f"/newark/{name}", "seattle": f"/seattle/{name}"},
            }
            for name in TABLES
        },
    },
    "wan.yaml",
)


class Streams(ChannelStreams):
    """Streams are called as their tables."""

    def _table_of(self, listing: Listing) -> str:
        stream = self.get(listing.log.stream)
        stream.table = stream.name
        return stream.name


class Inbound(ChannelReceiver):
    """Applies in memory."""

    before: Callable[[str], None]
    """Called with a table before each of its rounds; may raise."""

    def _applier(self, spark: Any, stream: InboundStream, stream_log: StreamLog) -> TableApplier:
        if stream.applier is None:
            ledger = Ledger("seattle", stream.name, LedgerRows())
            target = Target(stream_log.channel, f"target of {stream.name}")
            stream.applier = TableApplier("seattle", stream.name, stream_log, target, ledger)
        return stream.applier

    def _run(self, steps: Any) -> Any:
        self.before(steps.gi_frame.f_locals["self"].table)
        return super()._run(steps)


def inbound(before: Callable[[str], None], parallel: int = 2, **settings: Any) -> Inbound:
    made = Inbound(
        TOPOLOGY, "seattle", "memory:///", {}, parallel=parallel, max_bytes=1 << 20, **settings
    )
    made.streams = Streams(TOPOLOGY, "seattle", "memory:///")
    made.before = before
    return made


def send(channel: Channel, table: str, *numbers: int) -> None:
    publish(StreamLog(channel, table), *numbers, table=table)


def acked(channel: Channel, table: str) -> int:
    ack = StreamLog(channel, table).acks().get("seattle")
    return ack.applied if ack is not None else 0


def held_at(channel: Channel, table: str) -> int | None:
    return StreamLog(channel, table).acks()["seattle"].held


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        time = SimpleNamespace(monotonic=lambda: self.now, sleep=lambda _: None)
        for module in (inbound_module, stream_module, streams_module):
            monkeypatch.setattr(module, "time", time)


class Query:
    """A streaming query that ends with ``error`` when it is stopped, or has ended with it."""

    def __init__(self, error: Exception | None, active: bool = True) -> None:
        self.error, self.isActive = error, active
        self.waited: list[float | None] = []

    def stop(self) -> None:
        self.isActive = False

    def exception(self) -> Exception | None:
        return None if self.isActive else self.error

    def awaitTermination(self, timeout: float | None = None) -> bool:
        self.waited.append(timeout)
        if self.isActive:
            return False
        if self.error is not None:
            raise self.error
        return True


class ChannelOfOneStream:
    """The part of a ChannelReceiver that a handle uses, with one stream."""

    def __init__(self, failure: BaseException | None = None) -> None:
        self.url, self.failure, self.idle, self.forgot = "/channel", failure, threading.Event(), 0
        self.idle.set()

    def statuses(self) -> list[TableStatus]:
        return [TableStatus("newark.east.orders", "orders", applied=3)]

    def forget(self) -> None:
        self.forgot += 1


def supervised(channel: Any, query: Any, *later: Any, **more: Any) -> ReceiverHandle:
    following: Iterator[Any] = iter(later)
    return ReceiverHandle(
        [SupervisedQuery(channel, query)],
        threading.Event(),
        classic=True,
        restart=lambda _: next(following),
        **more,
    )
