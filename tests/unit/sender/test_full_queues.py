"""What a running sender and a sink do while a queue is full, and what they say of it."""

from __future__ import annotations

import logging
import time
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from counted_channel import CountedChannel
from event_sink import SCHEMA, Sink, row
from event_sink import STREAM as SINK_STREAM
from fakes import STREAM, Checkpoints, Clock, ConnectSession, Source, ack, commit
from inline import Running

from spark_wan.datasource import sink as sink_module
from spark_wan.datasource.sink import EventsSink, WanCommitMessage
from spark_wan.delta.sessions import CurrentSession
from spark_wan.errors import SourceError, WanError
from spark_wan.log.ack_watch import AckWatch
from spark_wan.log.notes import sender_record
from spark_wan.log.stream_log import StreamLog
from spark_wan.runtime.pace import Pace
from spark_wan.runtime.scheduler import Found, Next, Turn
from spark_wan.sender.acks import AckManager
from spark_wan.sender.outbound_stream import OutboundStream, StreamStatus
from spark_wan.sender.publish import CaptureSettings, Publisher
from spark_wan.sender.queue import OutboundQueue
from spark_wan.sender.record import RECORD_INTERVAL, SenderRecordKeeper
from spark_wan.topology.ack_policy import AckPolicy
from spark_wan.topology.model import QueueLimits
from spark_wan.wire.sender_record import SenderRecord

SPARK: Any = ConnectSession()
ONE = QueueLimits(bytes=1)
"""One epoch may wait."""


@pytest.fixture
def channel() -> CountedChannel:
    return CountedChannel(f"dict://{uuid.uuid4().hex}")


class Sending:
    """A stream of a running sender, looked at by the test; two commits wait."""

    def __init__(
        self, channel: CountedChannel, limits: QueueLimits, available_now: bool = False
    ) -> None:
        self.channel, self.clock, self.source = channel, Clock(), Source(channel)
        self.log, checkpoints = StreamLog(channel, STREAM), Checkpoints()
        self.source.add()
        watch = AckWatch(channel, lambda: self.clock.now / 1000)
        sites = ("seattle",)
        acks = AckManager(
            self.log, checkpoints, AckPolicy.ALL, 60_000, self.clock, sites, watch=watch
        )
        settings = CaptureSettings(STREAM, "orders", ("id",), "newark", sites, sites, 0, "hold", 1)
        publisher = Publisher(
            settings,
            self.log,
            self.source,
            checkpoints,
            self.clock,
            queue=OutboundQueue(acks, limits),
        )
        self.stream = OutboundStream(
            Running(),
            available_now,
            CurrentSession(),
            StreamStatus(STREAM, "orders"),
            publisher,
            acks,
            Pace(5.0, 5.0),
            0.0,
            record=SenderRecordKeeper(channel, STREAM, "a", self.clock),
        )

    def looks(self) -> float | None:
        """Look until nothing is to be done at once. Return when the next look is due."""
        while True:
            self.stream.acks.look(0.0)
            turn: Turn = self.stream.look(SPARK)
            while isinstance(turn, Found):
                turn = turn.work(SPARK)
            if turn is None or turn.seconds:
                return turn.seconds if isinstance(turn, Next) else None

    @property
    def record(self) -> SenderRecord:
        record = sender_record(self.channel, STREAM)
        assert record is not None
        return record

    def ack(self, epoch: int) -> None:
        newest = self.log.newest_manifest()
        assert newest is not None
        ack(self.log, "seattle", epoch, newest.log_id)


def test_a_sender_whose_queue_is_full_waits_and_is_not_held(channel: CountedChannel) -> None:
    """It says so, and goes on once acks come. Fails when it stops for good, or nobody can see
    why nothing is sent."""
    sender = Sending(channel, ONE)
    sender.looks()
    status = sender.stream.status
    assert (status.epochs, status.held) == (1, None)
    assert status.queue_full is not None and "wait for seattle" in status.queue_full
    sender.clock.pass_seconds(RECORD_INTERVAL / 1000)
    sender.looks()
    assert (sender.record.held, sender.record.queue_full) == (None, status.queue_full)
    assert sender.record.queue_full_since == status.queue_full_since_ms
    assert sender.record.waiting == 1
    sender.ack(1)
    sender.looks()
    assert (status.epochs, status.queue_full, status.queue_full_since_ms) == (2, None, None)
    assert sender.record.queue_full is None


def test_a_stream_that_waits_for_acks_looks_at_nothing_else(channel: CountedChannel) -> None:
    """Fails when each look reads the log and the history of the table again."""
    sender = Sending(channel, ONE)
    sender.looks()
    sender.source.calls.clear()
    assert sender.looks() == 5.0
    assert sender.source.calls == []


def test_with_hold_a_full_queue_is_a_hold_and_ends_as_soon_as_there_is_room(
    channel: CountedChannel,
) -> None:
    """Fails when it waits for its next retry, which is half a minute away."""
    sender = Sending(channel, QueueLimits(bytes=1, policy="hold"))
    sender.looks()
    status = sender.stream.status
    assert status.held == status.queue_full is not None
    assert sender.record.held == status.held
    sender.ack(1)
    sender.looks()
    assert (status.epochs, status.held, status.queue_full) == (2, None, None)


def test_another_hold_takes_the_place_of_a_full_queue(channel: CountedChannel) -> None:
    """Fails when the status goes on to say that acks are waited for."""
    sender = Sending(channel, ONE)
    sender.looks()
    sender.ack(1)
    sender.source.id = "another"
    sender.source.commits = [commit(7)]
    sender.looks()
    assert sender.stream.status.queue_full is None
    assert "was dropped and created again" in str(sender.stream.status.held)


def test_a_run_that_ends_says_that_its_queue_is_full(channel: CountedChannel) -> None:
    """With ``available_now``: what is left is not sent. Fails when the run ends as if all was."""
    sender = Sending(channel, ONE, available_now=True)
    assert sender.looks() is None
    assert "its queue is full" in str(sender.stream.status.held)


# --- a sink


class WaitingSink(EventsSink):
    """A sink without tasks, whose channel the test can see."""

    def write_row(self, event: str, batch: int) -> None:
        written = Sink(self._channel()).task(row(event))
        self._commit([WanCommitMessage(written)], "q", str(batch))


def sink_on(
    channel: CountedChannel, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> WaitingSink:
    monkeypatch.setattr(sink_module, "open_channel", lambda *_: channel)
    return WaitingSink(Sink(**{"max_queue_bytes": 1, **options}).options, SCHEMA, None)


def acked_while_it_waits(
    channel: CountedChannel, monkeypatch: pytest.MonkeyPatch, waits: int = 2
) -> list[SenderRecord | None]:
    """Have all sites ack when the sink has waited so many times. Returns what the record said
    each time."""
    log, records = StreamLog(channel, SINK_STREAM), list[SenderRecord | None]()

    def sleep(_: float) -> None:
        records.append(sender_record(channel, SINK_STREAM))
        newest = log.newest_manifest()
        assert newest is not None
        if len(records) == waits:
            for site in newest.addressees:
                ack(log, site, newest.epoch, newest.log_id)

    clock = SimpleNamespace(sleep=sleep, monotonic=time.monotonic)
    monkeypatch.setattr(sink_module, "time", clock)  # not that of other threads
    return records


def test_a_commit_of_a_sink_waits_for_room(
    channel: CountedChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says so. Fails when it adds its epoch all the same, or loses the frames that its tasks
    have written."""
    sink = sink_on(channel, monkeypatch)
    records = acked_while_it_waits(channel, monkeypatch)
    sink.write_row("e1", 0)
    assert records == []
    sink.write_row("e2", 1)
    assert [record is not None and record.epoch for record in records] == [1, 1]
    assert "wait for seattle" in str(records[0] and records[0].queue_full)
    after = sender_record(channel, SINK_STREAM)
    assert after is not None and (after.epoch, after.queue_full, after.held) == (2, None, None)
    newest = StreamLog(channel, SINK_STREAM).newest_manifest()
    assert newest is not None and newest.epoch == 2
    assert channel.get_frame(newest.frames[0].path)


def test_a_replay_does_not_wait(channel: CountedChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    """It adds nothing. Fails with a query that cannot be restarted while sites are away."""
    sink = sink_on(channel, monkeypatch)
    records = acked_while_it_waits(channel, monkeypatch)
    sink.write_row("e1", 0)
    sink.write_row("e1", 0)
    assert records == [] and StreamLog(channel, SINK_STREAM).newest_epoch() == 1


def test_a_commit_that_waits_for_room_ends_with_its_query(
    channel: CountedChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails with a test that does not end."""
    sink = sink_on(channel, monkeypatch)
    sink.write_row("e1", 0)
    monkeypatch.setattr(sink_module, "is_orphan", lambda: True)
    with pytest.raises(WanError, match="stopped while its queue was full"):
        sink.write_row("e2", 1)


def test_a_commit_waits_on_while_the_channel_fails(
    channel: CountedChannel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Fails when a fault that passes ends the query."""
    sink = sink_on(channel, monkeypatch)
    sink.write_row("e1", 0)
    acked_while_it_waits(channel, monkeypatch, waits=2)
    rounds, real = iter([True]), AckManager.round

    def fails_once(acks: AckManager) -> Any:
        if next(rounds, False):
            raise SourceError("scripted")
        return (yield from real(acks))

    monkeypatch.setattr(AckManager, "round", fails_once)
    with caplog.at_level(logging.WARNING):
        sink.write_row("e2", 1)
    assert "cannot collect its acks: scripted" in caplog.text
    assert StreamLog(channel, SINK_STREAM).newest_epoch() == 2
