"""The sender's record beside the acks: written on change only, and never in the way."""

from __future__ import annotations

import logging
import threading
import uuid
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from counted_channel import CountedChannel
from event_sink import SCHEMA, Sink, row
from event_sink import STREAM as SINK_STREAM
from fakes import (
    DAY,
    MANIFEST,
    STREAM,
    Checkpoints,
    Clock,
    ConnectSession,
    Source,
    ack,
    commit,
    publish,
)
from faulty_channel import Fault, FaultyChannel
from inline import Running, Woken
from waiting import LONG, until

from spark_wan.channels.base import Channel, Note
from spark_wan.channels.parallel import AT_ONCE
from spark_wan.datasource import sink as sink_module
from spark_wan.datasource.sink import EventsSink, WanCommitMessage
from spark_wan.delta.sessions import CurrentSession
from spark_wan.errors import SourceError
from spark_wan.log.ack_watch import AckWatch
from spark_wan.log.heart import Heart
from spark_wan.log.notes import sender_record
from spark_wan.log.stream_log import StreamLog
from spark_wan.runtime import progress
from spark_wan.runtime.first_looks import FirstLooks
from spark_wan.runtime.pace import Pace
from spark_wan.runtime.progress import LONG as LONG_WORK
from spark_wan.runtime.progress import under_way
from spark_wan.runtime.scheduler import Found, Next, Turn
from spark_wan.sender import outbound_channel as channel_module
from spark_wan.sender import outbound_stream
from spark_wan.sender.acks import AckManager
from spark_wan.sender.outbound_channel import OutboundChannel, note_stop
from spark_wan.sender.outbound_stream import OutboundStream, StreamStatus
from spark_wan.sender.publish import CaptureSettings, Publisher
from spark_wan.sender.record import (
    NEXT_WITHIN,
    RECORD_INTERVAL,
    REFUSED_INTERVAL,
    SenderRecordKeeper,
    record_write,
)
from spark_wan.topology.ack_policy import AckPolicy
from spark_wan.wire.manifest import EVENTS
from spark_wan.wire.mark import LOCAL_ONLY
from spark_wan.wire.records import LongWork
from spark_wan.wire.sender_record import NotSent, SenderRecord

SPARK: Any = ConnectSession()
SOON = RECORD_INTERVAL / 1000
NEVER = 1e9
"""Seconds after which a stream that waits for nothing is looked at."""


@pytest.fixture
def channel() -> CountedChannel:
    return CountedChannel(f"dict://{uuid.uuid4().hex}")


class Stream:
    """One stream of a sender, looked at by the test."""

    def __init__(
        self,
        channel: Channel,
        settings: str = "a",
        by_sink: bool = False,
        available_now: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.inner, self.clock = channel, clock or Clock()
        self.source = Source(channel)
        log, checkpoints = StreamLog(channel, STREAM), Checkpoints()
        publisher = Publisher(
            CaptureSettings(
                STREAM, "orders", ("id",), "newark", ("seattle",), ("seattle",), 0, "hold", 1_000
            ),
            log,
            self.source,
            checkpoints,
            self.clock,
        )
        watch = AckWatch(channel, lambda: self.clock.now / 1000)
        self.keeper = SenderRecordKeeper(channel, STREAM, settings, self.clock, by_sink)
        self.stream = OutboundStream(
            Running(),
            available_now,
            CurrentSession(),
            StreamStatus(STREAM, "orders"),
            None if by_sink else publisher,
            AckManager(
                log, checkpoints, AckPolicy.ALL, 60_000, self.clock, ["seattle"], watch=watch
            ),
            Pace(NEVER, NEVER),
            0.0,
            record=self.keeper,
        )

    def commit(self) -> None:
        self.source.commits.append(commit(len(self.source.commits)))

    def look(self, seconds: float = 0.0) -> float | None:
        """Do what one look finds; return when the next is due, in seconds."""
        self.clock.pass_seconds(seconds)
        turn: Turn = self.stream.look(SPARK)
        while isinstance(turn, Found):
            turn = turn.work(SPARK)
        return turn.seconds if isinstance(turn, Next) else None

    @property
    def record(self) -> SenderRecord:
        record = sender_record(self.inner, STREAM)
        assert record is not None
        return record


def test_a_sender_says_that_it_is_there_and_that_it_was_stopped(channel: CountedChannel) -> None:
    """Once an hour, where nothing happens. Fails when nobody can tell a sender that was killed."""
    sender = Stream(channel)
    sender.look(1.0)
    first = sender.record
    assert (first.stopped, first.next_within) == (None, NEXT_WITHIN)
    sender.look(NEXT_WITHIN / 1000 - 1)
    sender.keeper.keep_alive()
    assert sender.record == first
    looked = sender.clock.now
    sender.clock.pass_seconds(1.0)
    sender.keeper.keep_alive()
    assert sender.record == replace(first, written=sender.clock.now, history_from=looked)
    sender.clock.pass_seconds(5.0)
    sender.keeper.stop()
    now, there = sender.clock.now, replace(first, history_from=looked)
    assert sender.record == replace(there, written=now, stopped=now, next_within=0)
    again = Stream(channel, clock=sender.clock)
    again.look(1.0)
    assert (again.record.stopped, again.record.next_within) == (None, NEXT_WITHIN)


def test_commits_that_wait_at_a_held_sender_are_counted(channel: CountedChannel) -> None:
    sender = Stream(channel)
    sender.look(1.0)
    assert sender.record.waiting == 0
    sender.source.add("TRUNCATE")
    sender.source.add()
    sender.look(10.0)
    assert sender.record.held is not None
    assert sender.record.waiting == 2


def test_a_captured_stream_records_what_it_has_published(channel: CountedChannel) -> None:
    sender = Stream(channel)
    began = sender.clock.now
    sender.look(1.0)
    (epoch,) = [StreamLog(channel, STREAM).newest_manifest()]
    assert epoch is not None
    assert sender.record == SenderRecord(
        STREAM,
        began=began,
        written=sender.clock.now,
        log_id=epoch.log_id,
        epoch=1,
        through=0,
        epochs=1,
        events=1,
        batches=1,
        bytes=epoch.bytes,
        next_within=NEXT_WITHIN,
        settings="a",
        settings_generation=1,
        retention=7 * DAY,
        history_from=commit(0).time,
    )


def test_counters_are_written_every_few_seconds_and_then_all_of_them(
    channel: CountedChannel,
) -> None:
    """Fails when each epoch writes a record, and when the last ones of a burst never get into
    it."""
    sender = Stream(channel)
    sender.look()
    for _ in range(4):
        sender.commit()
        assert sender.look(0.5) == 0.0  # an epoch was published: look again at once
    assert sender.record.epoch == 1
    wait = sender.look(0.5)
    assert wait is not None and 0 < wait <= RECORD_INTERVAL / 1000 - 2.5
    sender.look(wait)
    assert (sender.record.epoch, sender.record.epochs, sender.record.through) == (5, 5, 4)


def test_an_idle_stream_costs_no_request_and_no_look(channel: CountedChannel) -> None:
    """Fails when an unchanged record is read or written again."""
    sender = Stream(channel)
    for _ in range(3):
        sender.look(RECORD_INTERVAL / 1000)
    channel.counted()
    for _ in range(5):
        assert sender.look(RECORD_INTERVAL / 1000) == NEVER
    assert channel.counted() == {}


def test_a_start_costs_one_read_and_one_write(channel: CountedChannel) -> None:
    keeper = SenderRecordKeeper(channel, STREAM, "a", Clock())
    assert keeper.keep(held=None, not_served=()) is None
    assert channel.counted() == {"get": 1, "put": 1}
    assert keeper.keep(held=None, not_served=()) is None
    assert channel.counted() == {}


def test_a_hold_and_its_release_are_written_at_once(channel: CountedChannel) -> None:
    """Fails when they wait as counters do."""
    sender = Stream(channel)
    sender.look()
    held_at = sender.clock.now + 100

    def gone(after: int) -> Any:
        raise SourceError("orders: its history is lost. Send it anew.")

    history, sender.source.history = sender.source.history, gone  # type: ignore[method-assign]
    sender.commit()
    sender.look(0.1)
    assert (sender.record.held, sender.record.held_since) == (
        "orders: its history is lost. Send it anew.",
        held_at,
    )
    sender.source.history = history  # type: ignore[method-assign]
    sender.stream._holds["publishing"].retry_now()
    sender.look(0.1)
    assert (sender.record.held, sender.record.held_since, sender.record.epoch) == (None, None, 2)


def test_a_hold_lasts_over_a_restart_and_another_cause(channel: CountedChannel) -> None:
    """Fails when `held since` is when this process or this cause began."""
    clock = Clock()
    first = SenderRecordKeeper(channel, STREAM, "a", clock)
    first.keep(held="the table is missing", not_served=())
    since = clock.now
    clock.pass_seconds(60)
    second = SenderRecordKeeper(channel, STREAM, "a", clock)
    second.keep(held="the table cannot be read", not_served=())
    record = sender_record(channel, STREAM)
    assert record is not None
    assert (record.held, record.held_since) == ("the table cannot be read", since)


def test_the_generation_rises_when_a_sender_begins_with_other_settings(
    channel: CountedChannel,
) -> None:
    found = []
    for settings in ("a", "a", "b", "b", "a"):
        sender = Stream(channel, settings)
        sender.look()
        found.append((sender.record.settings, sender.record.settings_generation))
    assert found == [("a", 1), ("a", 1), ("b", 2), ("b", 2), ("a", 3)]


def test_counters_begin_anew_with_the_sender(channel: CountedChannel) -> None:
    clock = Clock()
    Stream(channel, clock=clock).look()
    clock.pass_seconds(100)
    again = Stream(channel, clock=clock)
    again.stream.publisher = None  # it finds nothing to publish
    again.look()
    assert (again.record.began, again.record.epoch, again.record.epochs) == (clock.now, 1, 0)


@pytest.mark.parametrize("damage", [b"", b"{", b'{"version":3}', b'{"version":2,"stream":"x"}'])
def test_f51_a_record_that_cannot_be_read_is_written_anew(
    channel: CountedChannel, damage: bytes
) -> None:
    channel.put_note(Note("sender", STREAM), damage)
    sender = Stream(channel)
    sender.look()
    assert (sender.record.epoch, sender.record.settings_generation) == (1, 1)


@pytest.mark.parametrize("method", ["put_sender", "sender"])
def test_a_channel_that_refuses_the_record_stops_nothing(
    channel: CountedChannel, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried once a minute, and complained of once. Fails when the stream is held, ends, or
    asks at every look."""
    fails = [Fault(method, nth, "fail") for nth in (1, 2)]
    faulty = cast(Channel, FaultyChannel(channel, fails))
    sender = Stream(faulty)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            sender.look(1.0)
            sender.commit()
        assert StreamLog(channel, STREAM).newest_epoch() == 5
        assert sender.stream.status.held is None
        assert sender_record(channel, STREAM) is None
        calls = cast(FaultyChannel, faulty).calls
        assert calls[method] == 1
        sender.look(REFUSED_INTERVAL / 1000)
        assert calls[method] == 2
        sender.look(REFUSED_INTERVAL / 1000)
    assert sender.record.epoch == 6
    assert caplog.text.count("the sender's record is not written: scripted") == 1


def test_a_run_with_available_now_leaves_its_last_counters(channel: CountedChannel) -> None:
    """Fails when it ends while they wait for their time."""
    sender = Stream(channel, available_now=True)
    for _ in range(3):
        sender.commit()
    sender.source.most = 1  # one commit per epoch
    looks = [sender.look()]
    assert sender.record.epoch == 1
    while looks[-1] is not None:
        looks.append(sender.look(0.1))
    assert (sender.record.epoch, sender.record.epochs, sender.record.through) == (4, 4, 3)


def test_a_capture_that_takes_long_is_no_stream_that_is_up_to_date(channel: CountedChannel) -> None:
    """The commits are counted five seconds after it has begun: shorter ones cost no request. Fails
    when they are counted only between captures, when there are none."""
    sender = Stream(channel)
    sender.look(1.0)
    sender.clock.pass_seconds(10.0)
    sender.commit()
    sender.commit()
    turn = sender.stream.look(SPARK)
    assert isinstance(turn, Found) and not sender.keeper.is_due()
    before = sender.record
    sender.clock.pass_seconds(RECORD_INTERVAL / 1000)
    assert sender.keeper.is_due()
    sender.keeper.keep_alive()
    oldest = commit(1).time
    assert sender.record == replace(
        before, waiting=2, written=sender.clock.now, history_from=oldest
    )
    sender.clock.pass_seconds(RECORD_INTERVAL / 1000)
    turn.work(SPARK)
    assert (sender.record.waiting, sender.record.through) == (0, 2)


def test_a_long_capture_is_in_the_record_until_it_ends(
    channel: CountedChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when a first copy of an hour is an hour of silence; or when it stays for good."""
    sender = Stream(channel)
    monkeypatch.setattr(progress, "milliseconds", sender.clock)
    monkeypatch.setattr(outbound_stream, "milliseconds", sender.clock)
    sender.look(1.0)
    sender.clock.pass_seconds(10.0)
    sender.commit()
    turn = sender.stream.look(SPARK)
    assert isinstance(turn, Found)
    outbound = OutboundChannel(
        sender.stream.acks.watch,
        [sender.stream],
        Woken(),
        Pace(NEVER, NEVER),
        Heart(channel, "newark", sender.clock, set()),
    )
    began, share = sender.clock.now, [0.0]
    with under_way("capturing", STREAM, "newark", rows=90, size=7, share=lambda: share[0]):
        for seconds, done, told in ((5, 0.0, None), (5, 0.3, 30), (4, 0.4, 30), (1, 0.4, 40)):
            sender.clock.pass_seconds(seconds)
            share[0] = done
            assert outbound.look(SPARK) == Next(LONG_WORK)
            work = sender.record.work
            assert work == (None if told is None else LongWork(90, began, 7, told))
    assert sender.record.waiting == 1
    sender.clock.pass_seconds(RECORD_INTERVAL / 1000)
    turn.work(SPARK)
    assert (sender.record.waiting, sender.record.work) == (0, None)
    assert outbound.look(SPARK) == Next(NEVER)


def test_a_long_capture_without_news_is_renewed_and_a_refusal_waited_for() -> None:
    """Who reads the status sees that the sender is at it. Fails when the first record is the last;
    or when a channel that refuses it is asked at each look."""
    channel = FaultyChannel(
        CountedChannel(f"dict://{uuid.uuid4().hex}"), [Fault("put_sender", 4, "fail")]
    )
    sender = Stream(cast(Any, channel))
    sender.look(1.0)
    work = LongWork(90, sender.clock.now, None, None)
    writes = []
    for seconds in (10, 9, 1, 10, 10, 40, 10):
        sender.clock.pass_seconds(seconds)
        sender.keeper.report(work)
        if sender.keeper.is_due():
            sender.keeper.keep_alive()
        writes.append(channel.calls["put_sender"])
    # The fourth was refused; it is tried again a minute later.
    assert writes == [2, 2, 3, 4, 4, 4, 5]
    assert sender.record.work == work


def test_a_look_at_a_channel_without_long_work_waits_for_no_record(
    channel: CountedChannel,
) -> None:
    """Fails when a record that is being written delays the acks of all streams."""
    sender = Stream(channel)
    sender.keeper._lock = cast(Any, None)  # who takes it fails
    sender.keeper.report(None)


def test_a_sender_that_starts_is_not_stopped_any_more(channel: CountedChannel) -> None:
    """Also before its first capture is done. Fails when the record of the one before stays."""
    before = Stream(channel)
    before.look(1.0)
    before.keeper.stop()
    stopped = before.record
    sender = Stream(channel, clock=before.clock)
    sender.clock.pass_seconds(RECORD_INTERVAL / 1000)
    sender.keeper.keep_alive()
    now = sender.clock.now
    assert sender.record == replace(stopped, stopped=None, next_within=NEXT_WITHIN, written=now)
    sender.keeper.stop()
    assert sender.record.stopped == now


def test_a_stop_that_has_given_up_sends_no_more_requests(
    channel: CountedChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that comes late would open connections that the stop has closed, or write over the record
    of a sender that was started since. Fails when a channel that answers late is asked for more, or
    written to."""
    answers, asked, written = threading.Event(), list[str](), list[str]()

    class AsLongAsMayBe(threading.Thread):
        def join(self, timeout: float | None = None) -> None:
            assert timeout == channel_module.LONGEST_STOP
            until(lambda: len(asked) == AT_ONCE)

    stands_in = SimpleNamespace(Event=threading.Event, Thread=AsLongAsMayBe)
    monkeypatch.setattr(channel_module, "threading", stands_in)
    senders = [Stream(channel) for _ in range(AT_ONCE + 2)]
    for sender in senders:
        sender.look()
    read, put = channel.note, channel.put_note

    def late(note: Note) -> bytes | None:
        asked.append(note.stream)
        assert answers.wait(LONG)
        return read(note)

    def noted(note: Note, data: bytes | None) -> None:
        written.append(note.stream)
        put(note, data)

    channel.note, channel.put_note = late, noted  # type: ignore[method-assign]
    heart = Heart(channel, "newark", senders[0].clock, {"east"})
    heart.beat()
    written.clear()
    streams = [sender.stream for sender in senders]
    out = OutboundChannel(AckWatch(channel), streams, Woken(), Pace(NEVER, NEVER), heart)
    note_stop(SimpleNamespace(gives_way=True), [out])
    assert asked == []  # a reload, which must not look like a stop
    note_stop(SimpleNamespace(gives_way=False), [out])
    answers.set()
    until(lambda: all(each.name != "stopped" for each in threading.enumerate()))
    assert (len(asked), written) == (AT_ONCE, [])


def test_a_sender_that_was_overtaken_does_not_say_that_it_was_stopped(
    channel: CountedChannel,
) -> None:
    """Of the one that runs. Fails when a restart with both at the same time looks like a stop."""
    before = Stream(channel)
    before.look(1.0)
    after = Stream(channel, clock=before.clock)
    after.look(1.0)
    there = after.record
    before.keeper.stop()
    assert after.record == there


def test_a_sign_of_life_that_is_refused_comes_a_minute_later() -> None:
    """Fails when it comes an hour later, after which the sender is unknown."""
    channel = FaultyChannel(CountedChannel(f"dict://{uuid.uuid4().hex}"), [])
    sender = Stream(channel)
    sender.look(1.0)
    nth = channel.calls["put_sender"] + 1
    channel.script.append(Fault("put_sender", nth, "fail"))
    sender.clock.pass_seconds(NEXT_WITHIN / 1000)
    sender.keeper.keep_alive()
    assert sender.record.written < sender.clock.now
    sender.clock.pass_seconds(REFUSED_INTERVAL / 1000)
    sender.keeper.keep_alive()
    assert sender.record.written == sender.clock.now


def test_the_record_of_a_sender_that_ends_promises_no_other(channel: CountedChannel) -> None:
    """Also when nothing else has changed. Fails when a sender that took what was there and ended
    seems to have been killed, two hours later."""
    clock = Clock()
    keeper = SenderRecordKeeper(channel, STREAM, "a", clock)
    fields: dict[str, Any] = {"held": None, "not_served": (), "alert": None, "epoch": 3}
    assert keeper.keep(**fields) is None
    record = sender_record(channel, STREAM)
    assert record is not None and record.next_within == NEXT_WITHIN
    assert keeper.keep(last=True, **fields) is None
    record = sender_record(channel, STREAM)
    assert record is not None and (record.next_within, record.stopped) == (0, None)


# --- user streams


def test_the_sender_of_a_user_stream_adds_what_holds_it(channel: CountedChannel) -> None:
    """The sink keeps the rest. Fails when the sender writes its own counters, which are none, or a
    record of a stream that the sink has not begun."""
    sender = Stream(channel, settings="mine", by_sink=True)
    sender.look()
    assert channel.note(Note("sender", STREAM)) is None
    by_sink = SenderRecord(
        STREAM, 1, 2, "a" * 32, 7, events=9, settings="the sink's", settings_generation=4
    )
    channel.put_note(Note("sender", STREAM), by_sink.encode())
    keeper = sender.stream.record
    assert keeper is not None
    fields = {"epoch": 0, "events": 0, "not_served": (), "alert": None}
    keeper.keep(held="the log is lost", **fields)
    record = sender.record
    assert (record.held, record.held_since) == ("the log is lost", sender.clock.now)
    assert (record.epoch, record.events) == (7, 9)
    assert (record.settings, record.settings_generation) == ("the sink's", 4)
    keeper.keep(held=None, **fields)
    assert (sender.record.held, sender.record.held_since) == (None, None)


@pytest.mark.parametrize("seen", [True, False])
def test_f43_a_sinks_alert_stays_until_the_policy_is_met(
    channel: CountedChannel, seen: bool
) -> None:
    """The sender that collects the acks does not know how long the sink's commit has waited. Fails
    when it takes that for no alert; and, where it has not ``seen`` the epoch before its acks, when
    it has nothing new to say."""
    sender = Stream(channel, by_sink=True)
    sender.look()
    log = StreamLog(channel, STREAM)
    publish(log, 1)
    left = SenderRecord(STREAM, 1, 2, alert="epoch 1 does not meet the ack policy all")
    channel.put_note(Note("sender", STREAM), left.encode())
    for _ in range(2 if seen else 0):
        sender.stream.acks.look(0.0)
        sender.look(60.0)
        assert sender.record.alert == left.alert
    ack(log, "seattle", 1)
    sender.stream.acks.look(0.0)
    sender.look(60.0)
    assert sender.record.alert is None


def test_a_hold_that_the_sender_before_left_is_released_once_it_is_known_to_be_gone(
    channel: CountedChannel,
) -> None:
    """Not before the table had its first look, for which others may have to go first. The sender of
    a user stream has no such look. Fails when the status says that nothing holds a table that
    nothing was tried with."""
    left = SenderRecord(STREAM, 1, 2, held="the table is missing", held_since=1)
    captured, users = Stream(channel), Stream(channel, by_sink=True)
    other = users.stream
    first_looks = FirstLooks(lambda activity: None)
    assert first_looks.may_begin(other) and captured.stream.publisher is not None
    captured.stream.publisher.seems_published = lambda: True  # type: ignore[method-assign]
    for sender in (captured, users):
        sender.stream.first_looks = first_looks
    channel.put_note(Note("sender", STREAM), left.encode())
    captured.look()
    assert captured.record == left
    users.look()
    assert users.record == replace(left, held=None, held_since=None, written=users.clock.now)
    channel.put_note(Note("sender", STREAM), left.encode())
    first_looks.done(other)
    captured.look()
    assert (captured.record.held, captured.record.epoch) == (None, 1)


class WrittenHere(EventsSink):
    """A sink without tasks."""

    def write_rows(self, *rows: dict[str, Any], batch: int = 0) -> None:
        written = Sink(self._channel()).task(*rows)
        self._commit([WanCommitMessage(written)], "q", str(batch))


@pytest.fixture
def sink(channel: CountedChannel, monkeypatch: pytest.MonkeyPatch) -> WrittenHere:
    monkeypatch.setattr(sink_module, "open_channel", lambda *_: channel)
    options = Sink(settings="s").options
    return WrittenHere(options, SCHEMA, None)


def test_a_sink_records_each_write_once(channel: CountedChannel, sink: WrittenHere) -> None:
    """Fails when a replay, which adds no epoch, counts again."""
    sink.write_rows(row("e1"), row("e2", 2), batch=1)
    sink.write_rows(row("e3"), batch=2)
    sink.write_rows(row("e3"), batch=2)
    record = sender_record(channel, SINK_STREAM)
    newest = StreamLog(channel, SINK_STREAM).newest_manifest()
    assert record is not None and newest is not None and newest.kind == EVENTS
    assert (record.log_id, record.epoch, record.through) == (newest.log_id, 2, None)
    assert (record.epochs, record.events, record.batches) == (2, 3, 2)
    assert (record.settings, record.settings_generation, record.held) == ("s", 1, None)
    assert record.not_sent == NotSent(replays=1)
    sink.write_rows(row("e1"), row("e2", 2), batch=1)
    sink.write_rows(row("e4"), batch=3)
    record = sender_record(channel, SINK_STREAM)
    assert record is not None and (record.epochs, record.not_sent) == (3, NotSent(replays=2))


def test_a_write_of_a_sink_costs_one_read_and_one_write_more(
    channel: CountedChannel, sink: WrittenHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = []

    def counted(*words: Any, **more: Any) -> None:
        channel.counted()
        record_write(*words, **more)
        costs.append(channel.counted())

    monkeypatch.setattr(sink_module, "record_write", counted)
    for batch in range(3):
        sink.write_rows(row(f"e{batch}"), batch=batch)
    assert costs == 3 * [{"get": 1, "put": 1}]


def test_a_write_whose_record_is_refused_succeeds(
    channel: CountedChannel,
    sink: WrittenHere,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    faulty = FaultyChannel(channel, [Fault("put_sender", 1, "fail")])
    monkeypatch.setattr(sink_module, "open_channel", lambda *_: faulty)
    sink.write_rows(row("e1"))
    assert StreamLog(channel, SINK_STREAM).newest_epoch() == 1
    assert "the sender's record is not written: scripted" in caplog.text
    sink.write_rows(row("e2"), batch=1)
    record = sender_record(channel, SINK_STREAM)
    assert record is not None and (record.epoch, record.epochs) == (2, 1)


def test_a_sink_says_why_it_cannot_collect_acks(
    channel: CountedChannel, sink: WrittenHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty = FaultyChannel(channel, [Fault("read_acks", 2, "fail")])
    monkeypatch.setattr(sink_module, "open_channel", lambda *_: faulty)
    sink.write_rows(row("e1"))
    record = sender_record(channel, SINK_STREAM)
    assert record is not None and record.held is not None and "scripted" in record.held
    sink.write_rows(row("e2"), batch=1)
    record = sender_record(channel, SINK_STREAM)
    assert record is not None and (record.held, record.held_since) == (None, None)


def test_sites_that_are_no_longer_served_are_in_the_record(channel: CountedChannel) -> None:
    log = StreamLog(channel, STREAM)
    publish(log, 1, addressees=("seattle", "tacoma"), log_id=MANIFEST.log_id)
    ack(log, "seattle", 1)
    sender = Stream(channel)
    sender.stream.publisher = None  # a forwarded stream: it collects acks only
    sender.look()
    assert (sender.record.epoch, sender.record.not_served) == (1, ("tacoma",))


# --- what was not sent


def add_local(sender: Stream) -> None:
    local = commit(len(sender.source.commits), user_metadata=LOCAL_ONLY)
    sender.source.commits.append(local)


def test_a_commit_that_is_not_sent_costs_no_request(channel: CountedChannel) -> None:
    """The count goes with the next record. Fails when a table that only receives writes one of its
    own for each apply, or when the next one does not have the count."""
    sender = Stream(channel)
    sender.look(SOON)
    sender.look(SOON)
    channel.counted()
    for number in (1, 2, 3):
        add_local(sender)
        sender.look(SOON)
        assert sender.stream.status.not_sent == NotSent(local_only=number)
    assert "put" not in channel.counted()
    assert sender.record.not_sent == NotSent()
    sender.commit()
    sender.look(SOON)
    sender.look(SOON)
    assert (sender.record.epoch, sender.record.not_sent) == (2, NotSent(local_only=3))


def test_the_record_that_says_that_a_sender_is_there_has_what_was_not_sent(
    channel: CountedChannel,
) -> None:
    """So it is known within the hour. Fails when that record repeats the one before."""
    sender = Stream(channel)
    sender.look(SOON)
    add_local(sender)
    sender.look(SOON)
    sender.clock.pass_seconds(NEXT_WITHIN / 1000)
    sender.keeper.keep_alive()
    assert sender.record.not_sent == NotSent(local_only=1)


def test_the_last_record_of_a_sender_has_what_was_not_sent(channel: CountedChannel) -> None:
    sender = Stream(channel)
    sender.look(SOON)
    add_local(sender)
    sender.look(SOON)
    sender.keeper.stop()
    assert (sender.record.stopped, sender.record.not_sent) == (
        sender.clock.now,
        NotSent(local_only=1),
    )


def test_what_a_forwarder_does_not_send_is_in_the_record(channel: CountedChannel) -> None:
    """The stream that collects its acks keeps it."""
    sender = Stream(channel)
    sender.stream.publisher = None
    sender.stream.status.not_sent = NotSent(elsewhere=2)
    sender.look(SOON)
    assert sender.record.not_sent == NotSent(elsewhere=2)
