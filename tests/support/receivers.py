"""Receivers without Spark, whose targets are fakes."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import LedgerRows, Target, publish
from inline import Inbound, Running, Woken

from spark_wan.apply.applier import TableApplier
from spark_wan.channels.base import Channel
from spark_wan.ledger.ledger import Ledger
from spark_wan.log.listing import Listing
from spark_wan.log.stream_log import StreamLog
from spark_wan.receiver import channel_streams as streams_module
from spark_wan.receiver import stream as stream_module
from spark_wan.receiver import table as table_module
from spark_wan.receiver.channel_streams import ChannelStreams
from spark_wan.receiver.inbound import InboundTables
from spark_wan.receiver.stream import InboundStream
from spark_wan.receiver.table import InboundTable
from spark_wan.runtime import hold as hold_module
from spark_wan.runtime.first_looks import FirstLooks
from spark_wan.topology.model import Table
from spark_wan.topology.parsing import parse_topology

SPARK: Any = SimpleNamespace(range=lambda _: None)
TABLES = ("orders", "readings", "prices")
CONTENT: dict[str, Any] = {
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
}
TOPOLOGY = parse_topology(CONTENT, "wan.yaml")


class Streams(ChannelStreams):
    """Streams are called as their tables."""

    def _table_of(self, stream: InboundStream, listing: Listing) -> str:
        stream.table = stream.name
        return stream.name


class Applier(TableApplier):
    before: Callable[[str], None]
    """Called with the table before each round; may raise."""

    def round(self, *epochs: Any) -> Any:
        self.before(self.table)
        return super().round(*epochs)


class InMemory(InboundTable):
    """Applies in memory."""

    before: Callable[[str], None]
    target: Target

    def _applier(self, stream: InboundStream, stream_log: StreamLog) -> TableApplier:
        if stream.applier is None:
            if self._ledger is None:
                self._ledger = Ledger(self.site.name, self.name, LedgerRows())
            target = copy.copy(self.target)  # of one table: its commits are shared
            target.channel = stream_log.channel
            stream.applier = applier = Applier(
                self.site.name,
                self.name,
                stream_log,
                target,
                self._ledger,
                max_epochs=1,
                answer=stream.answer,
            )
            applier.before = self.before
        return stream.applier


def receiver(
    channel: Channel,
    before: Callable[[str], None] = lambda _: None,
    available_now: bool = False,
    job: Running | None = None,
    first_looks: bool = False,
) -> Inbound:
    """Return a receiver of site seattle, whose streams are called as their tables.

    ``first_looks``: those that can wait do."""
    running = job or Running()
    woken = Woken()
    looks = FirstLooks(woken.wake) if first_looks else None

    def make(name: str) -> InboundTable:
        table: Table = replace(TOPOLOGY.table("orders"), name=name)
        made = InMemory(running, TOPOLOGY.site("seattle"), table, 1 << 20, available_now)
        made.first_looks = looks
        made.before, made.target = before, Target(channel, f"target of {name}")
        return made

    streams = Streams(TOPOLOGY, "seattle", "memory:///")
    return Inbound(streams, channel, InboundTables(make), available_now, woken)


def send(channel: Channel, table: str, *numbers: int) -> None:
    publish(StreamLog(channel, table), *numbers, table=table)


def acked(channel: Channel, table: str) -> int:
    ack = StreamLog(channel, table).acks().get("seattle")
    return ack.applied if ack is not None else 0


def held_at(channel: Channel, table: str) -> int | None:
    return StreamLog(channel, table).acks()["seattle"].held


class Clock:
    """The clock of a receiver's streams."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        clock = SimpleNamespace(monotonic=lambda: self.now, time=time.time)
        for module in (hold_module, stream_module, streams_module, table_module):
            monkeypatch.setattr(module, "time", clock)
