"""The receiver's record beside its acks: written on change only, and never in the way."""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace

import pytest
from counted_channel import CountedChannel
from fakes import STREAM, Clock
from faulty_channel import Fault, FaultyChannel
from receivers import SPARK, receiver, send

from spark_wan.channels.base import Channel
from spark_wan.channels.parallel import AT_ONCE
from spark_wan.log.notes import ack, receiver_record
from spark_wan.receiver import channel_streams
from spark_wan.receiver.record import COUNTED, ReceiverRecordKeeper
from spark_wan.receiver.stream import TableStatus
from spark_wan.runtime import progress
from spark_wan.runtime.progress import LONG, long_work, under_way
from spark_wan.runtime.scheduler import Next
from spark_wan.sender.record import NEXT_WITHIN, RECORD_INTERVAL, REFUSED_INTERVAL
from spark_wan.wire.receiver_record import NotApplied, ReceiverRecord
from spark_wan.wire.records import LongWork

SOON = RECORD_INTERVAL / 1000


@pytest.fixture
def channel() -> CountedChannel:
    return CountedChannel(f"dict://{uuid.uuid4().hex}")


class Kept:
    """The record of one stream, kept by the test."""

    def __init__(self, channel: Channel, clock: Clock | None = None) -> None:
        self.channel, self.clock = channel, clock or Clock()
        self.keeper = ReceiverRecordKeeper(channel, STREAM, "seattle", self.clock)
        self.status = TableStatus(STREAM, "orders")

    def look(self, seconds: float = 0.0) -> bool:
        """Write the record if it is due."""
        self.clock.pass_seconds(seconds)
        counters = {name: getattr(self.status, name) for name in (*COUNTED, "not_applied")}
        due = self.keeper.is_due(counters)
        if due:
            self.keeper.keep(counters)
        return due

    @property
    def record(self) -> ReceiverRecord | None:
        return receiver_record(self.channel, STREAM, "seattle")


def test_a_receiver_says_that_it_is_there_and_that_it_was_stopped(channel: CountedChannel) -> None:
    """Once an hour, where nothing happens. Fails when nobody can tell a receiver that was killed
    from one without work."""
    kept = Kept(channel)
    began = kept.clock.now
    assert not kept.look()
    assert kept.look(SOON)
    there = ReceiverRecord("seattle", STREAM, began, kept.clock.now, next_within=NEXT_WITHIN)
    assert kept.record == there
    assert not kept.look(NEXT_WITHIN / 1000 - 1)
    assert kept.look(1)
    assert kept.record == replace(there, written=kept.clock.now)
    kept.clock.pass_seconds(5)
    kept.keeper.stop()
    now = kept.clock.now
    assert kept.record == replace(there, written=now, stopped=now, next_within=0)
    again = Kept(channel, kept.clock)
    assert again.look(SOON) and again.record is not None
    assert (again.record.stopped, again.record.began) == (None, now)


def test_counters_are_written_every_few_seconds_while_they_change(channel: CountedChannel) -> None:
    kept = Kept(channel)
    kept.look(SOON)
    kept.status.events, kept.status.epochs, kept.status.duplicates = 9, 2, 1
    assert not kept.look(SOON - 1)
    assert kept.look(1)
    kept.status.local_commits, kept.status.dead_letters = 4, 3
    assert kept.look(SOON) and not kept.look(SOON)
    record = kept.record
    assert record is not None
    assert (record.epochs, record.events, record.duplicates) == (2, 9, 1)
    assert (record.local_commits, record.dead_letters) == (4, 3)
    channel.counted()
    for _ in range(100):
        kept.look()
    assert channel.counted() == {}


def test_what_was_not_applied_goes_with_the_counters(channel: CountedChannel) -> None:
    """Fails when an epoch that is for other sites costs a request of its own."""
    kept = Kept(channel)
    kept.look(SOON)
    kept.status.not_applied = NotApplied(elsewhere=1)
    assert not kept.look(SOON)
    kept.status.events, kept.status.not_applied = 9, NotApplied(superseded=2, elsewhere=1)
    assert kept.look(SOON)
    assert kept.record is not None and kept.record.not_applied == kept.status.not_applied


def test_a_long_apply_is_in_the_record_until_it_ends(
    channel: CountedChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when a first copy of an hour is an hour of silence; or when it stays for good."""
    kept = Kept(channel)
    monkeypatch.setattr(progress, "milliseconds", kept.clock)
    kept.look(SOON)
    began = kept.clock.now
    share = [0.25]
    with (
        under_way("applying", STREAM, "denver", rows=1, size=1),
        under_way("applying", STREAM, "seattle", rows=8_000, size=90, share=lambda: share[0]),
    ):
        assert not kept.look(LONG - 1)
        assert kept.look(1)
        assert kept.record is not None
        assert kept.record.work == LongWork(8_000, began, 90, 25)
        share[0] = 0.509
        assert not kept.look(SOON - 1)
        assert kept.look(1)
        assert kept.record.work == LongWork(8_000, began, 90, 50)
        # Without news, too: who reads the status sees that the receiver is at it.
        assert not kept.look(LONG - 1) and kept.look(1)
        assert kept.record.written == kept.clock.now
    assert kept.look(SOON) and kept.record.work is None
    assert long_work("applying", STREAM, "seattle", kept.clock.now) is None


def test_a_channel_that_refuses_the_record_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It warns once, and is tried again every minute."""
    faults = [Fault("put_receiver", nth, "fail") for nth in (1, 2)]
    kept = Kept(FaultyChannel(CountedChannel(f"dict://{uuid.uuid4().hex}"), faults))
    assert kept.look(SOON) and not kept.look(REFUSED_INTERVAL / 1000 - 1)
    assert kept.look(1) and kept.record is None
    assert kept.look(REFUSED_INTERVAL / 1000) and kept.record is not None
    warned = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert len(warned) == 1 and "record is not written" in warned[0].getMessage()


def test_a_receiver_that_was_overtaken_does_not_say_that_it_was_stopped(
    channel: CountedChannel,
) -> None:
    first, second = Kept(channel), Kept(channel)
    second.clock = second.keeper.clock = first.clock  # type: ignore[assignment]
    first.look(SOON)
    second.clock.pass_seconds(1)
    second.look(SOON)
    newer = second.record
    first.keeper.stop()
    assert first.record == newer
    second.keeper.stop(lambda: True)  # too late
    assert first.record == newer
    Kept(channel).keeper.stop()  # it has written nothing
    assert first.record == newer


# --- in a receiver


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    # Rounds that other tests left halfway are still under way.
    monkeypatch.setattr(progress, "_under_way", [])
    monkeypatch.setattr(channel_streams, "milliseconds", clock)
    return clock


def test_each_stream_with_a_table_has_a_record(channel: CountedChannel, clock: Clock) -> None:
    send(channel, "orders", 1, 2)
    send(channel, "prices", 1)
    here = receiver(channel)
    here.apply()
    clock.pass_seconds(SOON)
    here.apply()
    found = [receiver_record(channel, name, "seattle") for name in ("orders", "prices")]
    assert [each and each.epochs for each in found] == [2, 1]
    assert [each.stream for each in here.streams.records] == ["orders", "prices"]
    assert receiver_record(channel, "readings", "seattle") is None
    assert found[0] is not None and found[0].not_applied == NotApplied(uncounted=2)


def test_a_first_apply_is_in_the_record_while_it_lasts(
    channel: CountedChannel, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a stream that has nothing else to report yet. Fails when a first copy of an hour is an
    hour of silence."""
    monkeypatch.setattr(progress, "milliseconds", clock)
    send(channel, "orders", 1)
    here = receiver(channel)
    here.channel.look(SPARK)
    began = clock.now
    with under_way("applying", "orders", "seattle", rows=9, size=7):
        clock.pass_seconds(LONG)
        here.channel.look(SPARK)
    record = receiver_record(channel, "orders", "seattle")
    assert record is not None and here.statuses() == []
    assert (record.epochs, record.work) == (0, LongWork(9, began, 7))


def test_the_records_of_many_streams_are_written_a_few_at_a_time(
    channel: CountedChannel, clock: Clock
) -> None:
    """Fails when a look at a channel waits for a thousand requests."""
    names = [f"t{n}" for n in range(AT_ONCE + 1)]
    for name in names:
        send(channel, name, 1)
    here = receiver(channel)
    here.channel.pace.shortest = here.channel.pace.longest = 60.0
    here.apply()
    clock.pass_seconds(SOON)
    turn = here.channel.look(SPARK)
    assert turn == Next(channel_streams.MORE_RECORDS)
    assert sum(receiver_record(channel, name, "seattle") is not None for name in names) == AT_ONCE
    assert here.channel.look(SPARK) == Next(60.0)
    assert all(receiver_record(channel, name, "seattle") for name in names)
    with under_way("applying", "t1", "seattle", rows=1, size=1):
        assert here.channel.look(SPARK) == Next(LONG)


def test_a_run_with_available_now_leaves_its_counters(channel: CountedChannel) -> None:
    """And promises no other record: it has ended. Fails when ``status`` finds it killed."""
    send(channel, "orders", 1, 2)
    receiver(channel, available_now=True).apply()
    record = receiver_record(channel, "orders", "seattle")
    assert record is not None and ack(channel, "orders", "seattle") is not None
    assert (record.epochs, record.next_within, record.stopped) == (2, 0, None)


def test_a_held_run_with_available_now_leaves_its_counters(channel: CountedChannel) -> None:
    def refuse(_: str) -> None:
        raise ValueError("not now")

    send(channel, "orders", 1)
    receiver(channel, refuse, available_now=True).apply(SPARK)
    record = receiver_record(channel, "orders", "seattle")
    assert record is not None and record.epochs == 0
