"""How fast a sender publishes, on average."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest
from counted_channel import CountedChannel
from fakes import STREAM, Checkpoints, Clock, ConnectSession, Source
from hypothesis import given, settings
from hypothesis import strategies as st
from inline import Running
from seeds import seed
from topologies import refusal, topology

from spark_wan.delta.sessions import CurrentSession
from spark_wan.log.ack_watch import AckWatch
from spark_wan.log.stream_log import StreamLog
from spark_wan.runtime.pace import Pace
from spark_wan.runtime.scheduler import Found, Next, Turn
from spark_wan.sender.acks import AckManager
from spark_wan.sender.outbound_stream import OutboundStream, StreamStatus
from spark_wan.sender.publish import CaptureSettings, Publisher
from spark_wan.sender.rate import BURST, SendRate
from spark_wan.topology.ack_policy import AckPolicy

SPARK: Any = ConnectSession()


class Seconds:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_without_a_rate_nothing_waits() -> None:
    rate = SendRate()
    rate.spend(1 << 40, 1 << 40)
    assert rate.wait() == 0


def test_a_large_epoch_is_sent_at_once_and_paid_for_afterwards() -> None:
    """Fails when it waits until there are tokens for all of it: there never are."""
    clock = Seconds()
    rate = SendRate(bytes=1_000, clock=clock)
    assert rate.wait() == 0
    rate.spend(10_000, 1)
    assert rate.wait() == 10 - BURST
    clock.now += 8.5
    assert rate.wait() == pytest.approx(0.5)
    clock.now += 0.5
    assert rate.wait() == 0


def test_the_rate_that_is_exceeded_most_counts() -> None:
    clock = Seconds()
    rate = SendRate(bytes=1_000, rows=10, clock=clock)
    rate.spend(2_000, 50)
    assert rate.wait() == 5 - BURST
    rate.spend(7_000, 0)
    assert rate.wait() == 9 - BURST


def test_time_without_events_is_no_credit_but_for_a_moment() -> None:
    """Fails when a night lets the morning take the whole line."""
    clock = Seconds()
    rate = SendRate(rows=10, clock=clock)
    rate.spend(0, 10)
    clock.now += 3_600
    rate.spend(0, 10)
    assert rate.wait() == 0
    rate.spend(0, 10)
    assert rate.wait() == BURST


@settings(derandomize=True, max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 5_000), st.floats(0, 3)), min_size=1, max_size=50))
def test_the_average_is_kept_however_large_epochs_are(epochs: list[tuple[int, float]]) -> None:
    """From the first epoch to the moment at which the next one may follow."""
    clock = Seconds()
    rate, began, sent = SendRate(bytes=1_000, clock=clock), clock.now, 0
    for size, pause in epochs:
        clock.now += rate.wait()
        rate.spend(size, 1)
        sent += size
        clock.now += pause
    clock.now += rate.wait()
    assert sent <= 1_000 * (clock.now - began + BURST) + 1


class Sender:
    """Some streams of a sender, looked at by the test in any order."""

    def __init__(self, rate: SendRate, tables: int, commits: int, now: bool = False) -> None:
        self.sources, self.streams = list[Source](), list[OutboundStream]()
        for number in range(tables):
            channel, clock = CountedChannel(f"dict://{uuid.uuid4().hex}"), Clock()
            log, checkpoints, source = StreamLog(channel, STREAM), Checkpoints(), Source(channel)
            for _ in range(commits - 1):
                source.add()
            publisher = Publisher(
                CaptureSettings(STREAM, "t", ("id",), "newark", ("x",), ("x",), 0, "hold", 1),
                log,
                source,
                checkpoints,
                clock,
            )
            watch = AckWatch(channel, clock)
            self.sources.append(source)
            self.streams.append(
                OutboundStream(
                    Running(),
                    now,
                    CurrentSession(),
                    StreamStatus(f"{STREAM}{number}", "t"),
                    publisher,
                    AckManager(log, checkpoints, AckPolicy.ALL, 60_000, clock, ["x"], watch=watch),
                    Pace(5.0, 5.0),
                    0.0,
                    rate=rate,
                )
            )

    def look(self, stream: OutboundStream) -> Turn:
        turn = stream.look(SPARK)
        while isinstance(turn, Found):
            turn = turn.work(SPARK)
        return turn

    @property
    def epochs(self) -> int:
        return sum(stream.status.epochs for stream in self.streams)


def test_all_streams_of_a_sender_share_its_rate() -> None:
    """Fails when each stream has a rate of its own, or one waits in its look, where a stop would
    wait for it."""
    clock, choose = Seconds(), random.Random(seed())
    sender = Sender(SendRate(rows=1, clock=clock), tables=3, commits=4)
    for second in range(12):
        for _ in range(9):
            turn = sender.look(choose.choice(sender.streams))
            assert isinstance(turn, Next)
        assert sender.epochs <= second + 1 + BURST
        clock.now += 1
    assert sender.epochs >= 10


def test_a_run_that_ends_keeps_to_the_rate() -> None:
    """Fails when `available_now` sends everything at once, or ends with a part of it."""
    clock = Seconds()
    sender = Sender(SendRate(rows=1, clock=clock), tables=1, commits=4, now=True)
    (stream,) = sender.streams
    waits = 0
    while (turn := sender.look(stream)) is not None:
        assert isinstance(turn, Next)
        clock.now += turn.seconds
        waits += turn.seconds > 0
    assert (sender.epochs, waits) == (4, 2)


def test_a_sender_has_its_rates_from_the_topology() -> None:
    sender = topology(("senders.east.max_bytes_per_second", "10MiB")).sender("east")
    assert SendRate.of(sender).bytes == 10 * 2**20
    sender = topology(("senders.east.max_rows_per_second", 5)).sender("east")
    assert (SendRate.of(sender).bytes, SendRate.of(sender).rows) == (None, 5)
    for setting in ("max_bytes_per_second", "max_rows_per_second"):
        assert f"senders.east.{setting}: must be 1 or more" in refusal(
            (f"senders.east.{setting}", 0)
        )
