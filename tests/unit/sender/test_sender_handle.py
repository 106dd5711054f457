"""What a sender does with errors, and how its tables share its workers. Sources and sessions are
fakes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
from fakes import (
    MANIFEST,
    Checkpoints,
    Clock,
    ConnectSession,
    Source,
    ThreadOfAnEndedSession,
    ack,
    commit,
    memory_channel,
    put_frame,
)
from inline import turns
from waiting import LONG, until

import spark_wan.sender.outbound_stream as stream_module
from spark_wan.capture.ranges import CaptureRange, CaptureResult
from spark_wan.cli.launcher import watch
from spark_wan.delta.commits import Commit
from spark_wan.delta.sessions import CurrentSession
from spark_wan.errors import (
    ChannelError,
    SessionLostError,
    SourceError,
    TableReplacedError,
    WanError,
)
from spark_wan.log.stream_log import StreamLog
from spark_wan.runtime.first_looks import FirstLooks
from spark_wan.runtime.handle import JobHandle
from spark_wan.runtime.pace import Pace
from spark_wan.runtime.progress import WorkWatch
from spark_wan.runtime.scheduler import Found, Next
from spark_wan.sender.acks import AckManager
from spark_wan.sender.outbound_stream import OutboundStream, StreamStatus
from spark_wan.sender.pipeline import Pipeline
from spark_wan.sender.publish import CaptureSettings, Publisher
from spark_wan.steps import run
from spark_wan.topology.ack_policy import AckPolicy
from spark_wan.wire.control import AT_VERSION, NEWEST, End, Ending, Rule, WantedEnd
from spark_wan.wire.frame import FrameHeader
from spark_wan.wire.manifest import EVENTS
from spark_wan.wire.sender_record import EndRequest


class Cancelled(Exception):
    def getCondition(self) -> str:
        return "SPARK_JOB_CANCELLED"


class Table(Source):
    """A source; what is called before frames are written, or looked for, or its history is read."""

    before_frames: Callable[[], None] = lambda _: None
    before_look: Callable[[], None] = lambda _: None
    before_history: Callable[[], None] = lambda _: None

    def look(self, version: int) -> object:
        self.before_look()
        return super().look(version)

    def history(self, after: int) -> list[Commit]:
        self.before_history()
        return super().history(after)

    def capture(self, planned: CaptureRange, header: FrameHeader) -> CaptureResult:
        self.before_frames()
        return super().capture(planned, header)

    def snapshot(self, version: int, schema: Any, header: FrameHeader, *part: Any) -> CaptureResult:
        self.before_frames()
        return super().snapshot(version, schema, header, *part)


class Here:
    """A site with tables, and a handle for all of them."""

    def __init__(
        self,
        parallel: int = 2,
        available_now: bool = False,
        block_on_ack: float = 0.0,
        **tables: int | None,
    ) -> None:
        """``tables``: name -> the version that it starts with, None for a snapshot."""
        self.channel, self.spark = memory_channel(), ConnectSession()
        self.tables = {name: Table(self.channel) for name in tables}
        self.available_now, self.block_on_ack = available_now, block_on_ack
        self.start(parallel, tables)

    def start(self, parallel: int, tables: Mapping[str, int | None]) -> None:
        """Make a handle, and streams that know nothing of earlier ones."""
        available_now, spark = self.available_now, cast(Any, self.spark)
        self.handle: JobHandle[StreamStatus] = JobHandle(
            spark,
            "sender",
            parallel,
            lambda: [stream.status for stream in self.streams],
            available_now=available_now,
        )
        self.first_looks = FirstLooks(self.handle.scheduler.wake)
        self.streams = [self._stream(name, start) for name, start in tables.items()]

    def begin(self) -> None:
        self.handle.begin(self.streams)

    def _stream(self, name: str, start: int | None) -> OutboundStream:
        settings = CaptureSettings(
            name, name, ("id",), "newark", ("seattle",), ("seattle",), start, "hold", 1_000
        )
        log, checkpoints = StreamLog(self.channel, name), Checkpoints()
        publisher = Publisher(settings, log, self.tables[name], checkpoints, Clock())
        policy = AckPolicy.ALL if self.block_on_ack else AckPolicy.NONE
        acks = AckManager(log, checkpoints, policy, 60_000, Clock(), ["seattle"])
        status, pace = StreamStatus(name, name), Pace(0.01, 0.01)
        return OutboundStream(
            self.handle,
            self.available_now,
            CurrentSession(),
            status,
            publisher,
            acks,
            pace,
            self.block_on_ack,
            self.first_looks,
        )

    def published(self, table: str) -> int:
        return len(self.channel.stream_epochs(table))

    def status(self, table: str) -> StreamStatus:
        return next(status for status in self.handle.status() if status.table == table)


def test_f50_a_job_cancelled_from_outside_holds_the_stream_and_is_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Fails when the stream's thread ends: no log line, no status, and no more of the table for
    ever."""
    here, go, cancelled = Here(orders=0), threading.Event(), threading.Event()

    def cancel() -> None:
        if cancelled.is_set():
            assert go.wait(LONG)
        else:
            cancelled.set()
            raise Cancelled("[SPARK_JOB_CANCELLED] Job 7 cancelled")

    here.tables["orders"].before_frames = cancel
    here.begin()
    until(lambda: here.status("orders").held is not None)
    held = str(here.status("orders").held)
    assert held.startswith("orders: its Spark job was cancelled from outside. Will retry in ")
    assert held in caplog.text
    go.set()
    until(lambda: here.published("orders") == 1)
    until(lambda: here.status("orders").held is None)
    assert here.handle.is_active and here.handle.exception() is None
    here.handle.stop()
    assert here.handle.exception() is None


def test_f50_an_error_that_mentions_cancelled_is_not_a_cancelled_job() -> None:
    here = Here(orders=0)

    def fail() -> None:
        raise ValueError("[CAST_INVALID_INPUT] The value 'was cancelled' cannot be cast")

    here.tables["orders"].before_frames = fail
    here.begin()
    until(lambda: "CAST_INVALID_INPUT" in str(here.status("orders").held))
    assert here.handle.is_active
    here.handle.stop()
    assert here.handle.exception() is None


@pytest.mark.parametrize("error", [TableReplacedError, SourceError])
def test_a_table_that_was_made_again_is_told_from_other_holds(error: type[WanError]) -> None:
    """:func:`spark_wan.wait_for_ack` must know: versions of this table are not those of the log."""
    here, mended = Here(orders=0), threading.Event()

    def fail() -> None:
        if not mended.is_set():
            raise error("orders: held")

    here.tables["orders"].before_frames = fail
    here.begin()
    until(lambda: here.status("orders").held is not None)
    assert here.status("orders").replaced == (error is TableReplacedError)
    mended.set()
    until(lambda: here.status("orders").held is None)
    assert not here.status("orders").replaced
    here.handle.stop()


def test_f50_a_session_that_has_ended_ends_all_streams(caplog: pytest.LogCaptureFixture) -> None:
    """Though only one of them has noticed. Fails when that one is held: with a cause in its record
    in the channel that stays there."""
    here = Here(orders=0, readings=0)
    here.begin()
    until(lambda: here.published("orders") == 1 and here.published("readings") == 1)
    here.tables["orders"].before_look = here.spark.ask
    here.spark.ended = True
    until(lambda: not here.handle.is_active)
    assert isinstance(here.handle.exception(), SessionLostError)
    assert "the Spark session has ended" in caplog.text
    assert ": held: " not in caplog.text
    with pytest.raises(SessionLostError):
        here.handle.await_termination()
    here.handle.stop()


def test_f50_a_session_that_ends_before_the_streams_begin_is_reported(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Fails when the threads end without a word: the sender would be done, with exit code 0."""
    monkeypatch.setattr("pyspark.InheritableThread", ThreadOfAnEndedSession)
    here = Here(orders=0, readings=0)
    here.begin()
    with pytest.raises(SessionLostError, match="could begin"):
        while not here.handle.await_termination(0.01):
            pass
    until(lambda: not here.handle.is_active)
    assert "Traceback" not in capfd.readouterr().err


def test_a_session_that_ends_while_it_is_stopped_is_no_error() -> None:
    """SIGTERM to the process group ends the JVM too."""
    here, looked, go = Here(orders=0), threading.Event(), threading.Event()

    def look() -> None:
        looked.set()
        assert go.wait(LONG)
        here.spark.ask()

    here.tables["orders"].before_look = look
    here.begin()
    assert looked.wait(LONG)
    stopping = threading.Thread(target=here.handle.stop)
    stopping.start()
    until(lambda: here.handle.is_stopping)
    here.spark.ended = True
    go.set()
    stopping.join(LONG)
    assert (here.handle.is_active, here.handle.exception()) == (False, None)


def test_a_stream_that_ended_is_reported_while_others_run() -> None:
    """Fails (hangs) when the threads are waited for one after the other."""
    here = Here(orders=0, readings=0)
    here.tables["readings"].before_look = lambda: (_ for _ in ()).throw(SystemExit("killed"))
    here.begin()
    with pytest.raises(SystemExit):
        here.handle.await_termination()
    assert here.handle.is_active
    here.handle.stop()


def test_await_termination_returns_after_its_timeout() -> None:
    here = Here(orders=0)
    here.begin()
    assert not here.handle.await_termination(0.05)
    here.handle.stop()


def test_a_cancelled_job_fails_a_run_with_available_now() -> None:
    here = Here(available_now=True, orders=0)

    def cancel() -> None:
        raise Cancelled

    here.tables["orders"].before_frames = cancel
    here.begin()
    with pytest.raises(WanError, match=r"its Spark job was cancelled from outside\. Start again\."):
        here.handle.await_termination()


@pytest.mark.parametrize("kind", ["snapshots", "commits"])
def test_long_captures_of_two_tables_stop_no_other(kind: str) -> None:
    """First snapshots, or commits with more rows than an epoch should have, in as many tables as
    there are slots. Fails when they take the slots of others."""
    start = None if kind == "snapshots" else 0
    here, go, at_work = (
        Here(2, orders=start, readings=start, prices=0),
        threading.Event(),
        threading.Semaphore(0),
    )

    def write() -> None:
        at_work.release()
        assert go.wait(LONG)

    for name in ("orders", "readings"):
        here.tables[name].before_frames = write
        here.tables[name].commits = [commit(0, rows=5_000)]
    here.begin()
    for _ in range(2):
        assert at_work.acquire(timeout=LONG)
    until(lambda: here.published("prices") == 1)
    here.tables["prices"].add()
    until(lambda: here.published("prices") == 2)
    assert here.published("orders") == here.published("readings") == 0
    go.set()
    until(lambda: here.published("orders") == here.published("readings") == 1)
    here.handle.stop()


def test_a_poll_takes_no_slot_and_slots_limit_concurrent_captures() -> None:
    """Fails when a whole round takes a slot: while captures fill them, no table polls."""
    here, go = Here(2, a=0, b=0, c=0, d=0), threading.Event()
    busy, most, looks, lock = [0], [0], [0], threading.Lock()

    def write() -> None:
        with lock:
            busy[0] += 1
            most[0] = max(most[0], busy[0])
        assert go.wait(LONG)
        with lock:
            busy[0] -= 1

    def look() -> None:
        looks[0] += 1

    for name in ("a", "b", "c"):
        here.tables[name].before_frames = write
    here.tables["d"].before_look = look
    here.tables["d"].commits = [commit(0, "OPTIMIZE")]
    here.begin()
    until(lambda: busy[0] == 2)
    seen = looks[0]
    until(lambda: looks[0] > seen + 3)
    go.set()
    until(lambda: all(here.published(name) == 1 for name in ("a", "b", "c")))
    assert most[0] == 2
    here.handle.stop()


def test_after_a_start_tables_with_changes_go_before_those_without() -> None:
    """While one table without changes has its first look, another waits; a change in a table is
    published. Fails when a table waits although it has changes, or when none waits."""
    here, go, seen = Here(a=0, b=0, c=0), threading.Event(), list[str]()
    for stream in here.streams:
        assert stream.publisher is not None
        run(stream.publisher.round())
        stream.publisher = replace(stream.publisher, _published=None)
    here.tables["c"].add()
    seem = [each.publisher.seems_published() for each in here.streams if each.publisher]
    assert seem == [True, True, False]

    def compare(name: str) -> None:
        seen.append(name)
        assert go.wait(LONG)

    for name in ("a", "b"):
        here.tables[name].before_history = lambda name=name: compare(name)
    here.begin()
    until(lambda: here.published("c") == 2)
    until(lambda: seen)
    here.tables["c"].add()
    until(lambda: here.published("c") == 3)
    assert len(seen) == 1
    go.set()
    until(lambda: {"a", "b"} <= set(seen))
    here.handle.stop()


def test_a_fault_of_the_ack_manager_holds_its_stream(caplog: pytest.LogCaptureFixture) -> None:
    """Of any kind, and as long as it lasts, though publishing goes well: it is logged once. Fails
    when only errors of our own hold (the stream's thread ended), or when a look that finds nothing
    new takes the hold back."""
    here = Here(orders=0)
    here.streams[0].acks = SimpleNamespace(
        look=lambda _: None,
        due=lambda: True,
        round=lambda: (_ for _ in ()).throw(KeyError("token")),
    )  # type: ignore[assignment]
    here.begin()
    until(lambda: here.status("orders").held is not None)
    looks = len(here.tables["orders"].calls)
    until(lambda: len(here.tables["orders"].calls) >= looks + 3)
    assert here.handle.is_active and here.handle.exception() is None
    here.handle.stop()
    assert "token" in str(here.status("orders").held)
    assert len([record for record in caplog.records if "held" in record.getMessage()]) == 1


def test_a_hold_of_the_acks_ends_when_the_channel_answers() -> None:
    """A round of the acks fails once, and finds nothing new later.

    Fails when the hold stays until there is something to do."""
    here, rounds = Here(orders=0), list[int]()
    manager = here.streams[0].acks
    collect = manager.round

    def refuse_once() -> Any:
        rounds.append(1)
        if len(rounds) == 1:
            raise ChannelError("403 AccessDenied")
        return collect()

    manager.round = refuse_once  # type: ignore[method-assign]
    manager.due = lambda: not rounds  # type: ignore[method-assign]
    here.begin()
    until(lambda: len(rounds) > 1)
    until(lambda: here.status("orders").held is None)
    here.handle.stop()


def test_a_held_stream_stops_no_other_with_available_now() -> None:
    """Fails when the command ends as soon as one stream is held: a slower one would never be sent
    by a job that runs now and then."""
    here, said = Here(available_now=True, orders=0, readings=0), threading.Event()

    def fail() -> None:
        raise SourceError("orders: there is no Delta table")

    def say(status: StreamStatus) -> None:
        if status.held:
            said.set()

    here.tables["orders"].before_look = fail
    here.tables["readings"].before_frames = lambda: until(
        lambda: said.is_set() or here.handle.is_stopping
    )
    here.begin()
    with pytest.raises(WanError, match="orders: there is no Delta table"):
        watch(here.handle, threading.Event(), say, WorkWatch(print))
    assert here.published("readings") == 1
    with pytest.raises(WanError, match="orders: there is no Delta table"):
        here.handle.await_termination()


def test_b27_block_on_ack_delays_the_next_epoch_until_the_policy_is_met(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stop ends the wait, and a sender that starts again does not wait for earlier epochs.

    Fails when an epoch is published although the last one is not acked."""
    monkeypatch.setattr(stream_module, "ACK_POLL_INTERVAL", 0.01)
    here = Here(block_on_ack=3_600, orders=0)
    log = StreamLog(here.channel, "orders")
    here.begin()
    until(lambda: log.newest_epoch() == 1)
    here.tables["orders"].add()
    polls = counted_rounds(here)
    until(lambda: len(polls) >= 5)
    assert log.newest_epoch() == 1
    ack(log, "seattle", 1, log.read(1).log_id)
    until(lambda: log.newest_epoch() == 2)
    here.handle.stop()
    assert (here.handle.is_active, here.handle.exception()) == (False, None)

    here.tables["orders"].add()
    here.start(2, {"orders": 0})
    here.begin()
    until(lambda: log.newest_epoch() == 3)
    here.handle.stop()
    assert here.handle.exception() is None


def test_commits_wait_for_later_ones_but_not_once_somebody_waits_for_the_end() -> None:
    """A drain would take as long as an apply. Fails when the wait does not ask for that."""

    class Patient(Pipeline):
        gathers, asked = False, 0

        def wait(self) -> float:
            self.asked += self.gathers
            return 3_600.0 if self.gathers else 0.0

    here = Here(orders=0)
    stream, log = here.streams[0], StreamLog(here.channel, "orders")
    stream.pipeline = pipeline = Patient("throughput")
    here.begin()
    until(lambda: log.newest_epoch() == 1)
    pipeline.gathers = True
    here.tables["orders"].add()
    until(lambda: pipeline.asked >= 5)
    assert log.newest_epoch() == 1
    publisher = stream.publisher
    assert publisher is not None
    end = Ending(None, None, End(NEWEST, 0), 1, by="ann at here", at=5)
    publisher.wanted = publisher.wanted_before = lambda: WantedEnd(1, end)
    until(lambda: publisher.has_ended)
    here.handle.stop()
    assert [log.read(epoch).last_version for epoch in (2, 3)] == [1, 1]


def counted_rounds(here: Here) -> list[int]:
    """Return a list that grows with each round of the acks."""
    rounds, manager = list[int](), here.streams[0].acks
    collect = manager.round

    def counted() -> Any:
        rounds.append(1)
        return collect()

    manager.round = counted  # type: ignore[method-assign]
    return rounds


def test_the_acks_of_a_user_stream_are_collected_and_nothing_is_captured() -> None:
    here = Here(available_now=True, clicks=0)
    here.streams[0].publisher = None
    log = StreamLog(here.channel, "clicks")
    frames = (put_frame(here.channel, stream="clicks"),)
    sent = replace(
        MANIFEST,
        stream="clicks",
        kind=EVENTS,
        first_version=-1,
        last_version=-1,
        frames=frames,
        addressees=("seattle",),
    )
    log.append(sent)
    ack(log, "seattle", 1)
    here.begin()
    assert here.handle.await_termination()
    assert (here.status("clicks").published, here.status("clicks").held) == (1, None)
    assert here.channel.frames("clicks") == []
    assert here.tables["clicks"].calls == []


def test_a_paused_capture_adds_nothing_until_it_is_resumed() -> None:
    """A pause of the delivery alone does not stop it: what comes meanwhile queues in the
    channel."""
    here = Here(orders=0)
    [stream] = here.streams
    paused: list[Rule | None] = [Rule("east", None, True, True, generation=1, by="", at=0)]
    stream.pause, stream.first_looks = lambda: paused[0], None
    assert isinstance(stream.look(cast(Any, here.spark)), Next)
    assert here.published("orders") == 0
    for rule in (Rule("east", None, True, False, generation=2, by="", at=0), None):
        paused[0] = rule
        turns(stream, here.spark)
        assert here.published("orders") == 1


@pytest.mark.parametrize("available_now", [False, True])
def test_b21_an_ended_stream_is_left_alone_until_it_is_resumed(available_now: bool) -> None:
    """A run with --available-now ends with the end. Fails when it leaves that to the next run, or
    when each look at an ended stream costs a round."""
    here = Here(orders=0, available_now=available_now)
    [stream] = here.streams
    source, publisher = here.tables["orders"], stream.publisher
    assert publisher is not None
    source.add()
    end = End(AT_VERSION, int(available_now))  # of two versions
    ending = Ending(None, None, end, generation=1, by="ann at here", at=5)
    wanted = [WantedEnd(1, ending)]
    publisher.wanted = publisher.wanted_before = lambda: wanted[0]
    stream.first_looks = None
    turn = stream.look(cast(Any, here.spark))
    while isinstance(turn, Found) or (turn is not None and here.published("orders") < 2):
        again = partial(stream.look, cast(Any, here.spark))
        turn = turn.work(cast(Any, here.spark)) if isinstance(turn, Found) else again()
    assert here.published("orders") == 2
    told = EndRequest("ann at here", AT_VERSION, int(available_now))
    assert publisher.has_ended and publisher.asked_to_end == told
    if available_now:
        return
    source.calls.clear()
    with patch.object(publisher, "round", side_effect=AssertionError("a round")):
        assert isinstance(stream.look(cast(Any, here.spark)), Next)
    assert (source.calls, stream.status.held) == ([], None)
    wanted[0] = WantedEnd(2, replace(ending, end=None, generation=2))
    turns(stream, here.spark)
    assert (here.published("orders"), publisher.asked_to_end) == (3, None)


def test_a_run_ends_before_an_end_that_is_far_away() -> None:
    """However fast other writers are. Fails when it goes on until the end has come."""
    here = Here(orders=0, available_now=True)
    [stream] = here.streams
    source, publisher = here.tables["orders"], stream.publisher
    assert publisher is not None
    ending = Ending(None, None, End(AT_VERSION, 1_000), generation=1, by="ann at here", at=5)
    publisher.wanted = publisher.wanted_before = lambda: WantedEnd(1, ending)
    turn = stream.look(cast(Any, here.spark))
    while turn is not None and here.published("orders") < 5:
        source.add()
        again = partial(stream.look, cast(Any, here.spark))
        turn = turn.work(cast(Any, here.spark)) if isinstance(turn, Found) else again()
    assert here.published("orders") == 1


def test_what_an_operator_asked_for_is_told_when_it_comes_into_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """For each stream, once. Fails when the log says only that it was asked for."""
    caplog.set_level("INFO", "spark_wan.sender.outbound_stream")
    here = Here(orders=0)
    [stream] = here.streams
    publisher = stream.publisher
    assert publisher is not None
    paused: list[Rule | None] = [None]
    wanted = [WantedEnd()]
    stream.pause, stream.first_looks = lambda: paused[0], None
    publisher.wanted = publisher.wanted_before = lambda: wanted[0]

    def told() -> list[tuple[str, str]]:
        turns(stream, here.spark)
        records = [*caplog.records]
        caplog.clear()
        assert all(vars(each)["stream"] == "orders" for each in records)
        return [(vars(each)["event"], each.getMessage()) for each in records]

    assert [event for event, _ in told()] == ["published"]
    for capture, does in ((False, "goes on to add"), (True, "adds nothing")):
        paused[0] = Rule("east", None, True, capture, generation=1, by="ann at here", at=0)
        [(event, text)] = told()
        assert event == "paused" and "paused by ann at here" in text and does in text
        assert told() == []
    paused[0] = None
    assert [event for event, _ in told()] == ["resumed"]
    ending = Ending(None, None, End(AT_VERSION, 0), generation=1, by="ann at here", at=5)
    wanted[0] = WantedEnd(1, ending)
    assert [event for event, _ in told()] == ["ended"]
    assert told() == []
    wanted[0] = WantedEnd(2, replace(ending, end=None, generation=2))
    assert [event for event, _ in told()] == ["resumed"]
    assert told() == []


def test_a_release_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Once nothing holds the stream. Fails when a hold is in the log, and its end is not."""
    caplog.set_level("INFO", "spark_wan.sender.outbound_stream")
    here = Here(orders=0)
    [stream], spark = here.streams, cast(Any, here.spark)
    for part in ("publishing", "acks"):
        stream._hold(part, WanError(f"{part}: no"), spark)
    for part in ("publishing", "acks", "acks"):
        stream._release(part)
    assert [vars(each)["event"] for each in caplog.records] == ["held", "held", "released"]
