"""What a receiver applies, in which order, and what it reports. Targets are lists of commits."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from fakes import STREAM, ConnectSession, manifest, memory_channel, publish
from inline import Inbound, Running, Woken, turns
from receivers import CONTENT, SPARK, TOPOLOGY, Clock, acked, held_at, receiver, send

from spark_wan.apply.plan import PlannedEpoch
from spark_wan.channels.base import Channel
from spark_wan.delta.sessions import CurrentSession
from spark_wan.errors import ChannelError, FrameError, LedgerError, SessionLostError, StoppedError
from spark_wan.ledger import maintenance
from spark_wan.ledger.folding import LEAST_MARKS
from spark_wan.ledger.maintenance import LedgerMaintenance
from spark_wan.log.listing import Listing
from spark_wan.log.notes import announce, put_ack
from spark_wan.log.stream_log import StreamLog
from spark_wan.receiver import job as job_module
from spark_wan.receiver.channel_streams import ACKS_INTERVAL, ChannelStreams
from spark_wan.receiver.inbound import InboundTables
from spark_wan.receiver.job import Receiver
from spark_wan.receiver.stream import InboundStream
from spark_wan.receiver.table import InboundTable
from spark_wan.runtime.first_looks import RETRY
from spark_wan.runtime.scheduler import Found, Lane, Next
from spark_wan.target.delta_table import DeltaTarget
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import parse_topology
from spark_wan.topology.routes import streams_of
from spark_wan.wire.decisions import Decisions
from spark_wan.wire.frame import FrameHeader, FrameRef, encode_frame, frame_checksum
from spark_wan.wire.manifest import CAPTURE, COPY, EVENTS, CopyOf

DENIED = "channel s3://lake: cannot list 'log/' (403 AccessDenied)"


class Cut:
    """A channel that fails while it is ``down``."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.down = inner, False

    def __getattr__(self, name: str) -> Any:
        if self.down:
            raise ChannelError(DENIED)
        return getattr(self.inner, name)


class Cancelled(Exception):
    def getCondition(self) -> str:
        return "SPARK_JOB_CANCELLED"


@pytest.fixture
def channel() -> Cut:
    return Cut(memory_channel())


def delta_receiver(topology: Topology, channel: Channel, **decisions: Decisions) -> Inbound:
    """A receiver with the product's own tables."""

    def make(name: str) -> InboundTable:
        site, table = topology.site("seattle"), topology.table(name)
        decided = decisions.get(name, Decisions())
        return InboundTable(Running(), site, table, 1 << 20, False, decided)

    return Inbound(ChannelStreams(topology, "seattle", "memory:///"), channel, InboundTables(make))


def test_b14_a_channel_in_which_nothing_is_yet_is_said_once(
    channel: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A receiver whose topology names another channel than the sender's would wait without a word,
    and on Kafka even make its topics."""
    here = receiver(channel)
    for _ in range(3):
        here.apply()
    said = "nothing has been sent through it yet"
    assert [said in record.getMessage() for record in caplog.records] == [True]
    send(channel, "orders", 1)
    here.apply()
    assert len(caplog.records) == 1 and acked(channel, "orders") == 1


def test_a_channel_that_does_not_answer_is_in_the_log_once(
    channel: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """And again after it has answered. Fails when a log grows by a line each second."""
    here = receiver(channel)
    send(channel, "orders", 1)
    for down in (False, True, True, True, False, True):
        channel.down = down
        here.channel.look(SPARK)
    told = [record for record in caplog.records if vars(record).get("event") == "channel-held"]
    assert len(told) == 2 and DENIED in told[0].getMessage()
    assert vars(told[0])["channel"] == here.channel.name


def test_a_forged_copy_does_not_turn_a_stream_of_events_off(channel: Any) -> None:
    """A stream of copies is known by its name. Fails when its newest manifest says what it is:
    nothing is applied then, and nothing is held."""
    log = StreamLog(channel, "newark.east.orders")
    copy = CopyOf("r1", (("newark", "an id", "all", 9),))
    publish(log, 1, table="orders", kind=COPY, copy=copy)
    here = delta_receiver(TOPOLOGY, channel)
    here.channel.look(None)
    (stream,) = here.streams.all()
    assert (stream.table, stream.is_copy) == ("orders", False)


# --- the order of work


def test_a_turn_ends_although_the_sender_keeps_publishing(channel: Any) -> None:
    """Otherwise other tables would wait forever, and ``--available-now`` would not end."""
    seen: list[int] = []

    def publish_more(table: str) -> None:
        seen.append(acked(channel, "orders"))
        send(channel, "orders", 4 + len(seen) - 1)

    send(channel, "orders", 1, 2, 3)
    here = receiver(channel, publish_more)
    here.apply()
    assert (seen, acked(channel, "orders")) == ([0, 1, 2], 3)
    here.apply()
    assert acked(channel, "orders") == 6


def test_available_now_applies_only_what_was_listed_at_its_start(channel: Any) -> None:
    """Otherwise it would not end while the sender keeps publishing."""
    send(channel, "orders", 1)
    here = receiver(channel, lambda _: send(channel, "readings", 1), available_now=True)
    here.apply()
    assert (acked(channel, "orders"), acked(channel, "readings")) == (1, 0)
    assert here.tables.get("orders").look(SPARK) is None


def test_a_listing_that_a_table_works_on_is_not_given_again(channel: Any) -> None:
    """While the table is slow, the channel is listed again and again.

    Fails when each listing makes work for the table.
    """
    send(channel, "orders", 1)
    here = receiver(channel)
    here.channel.look(SPARK)
    assert len(here.woken.woken) == 1
    here.woken.woken.clear()
    here.channel.look(SPARK)
    assert here.woken.woken == []
    send(channel, "orders", 2)
    here.apply()
    assert acked(channel, "orders") == 2


def test_after_a_start_tables_with_epochs_go_before_those_without(channel: Any) -> None:
    """While one table without new epochs has its first look, others wait until it is done, or until
    they get an epoch. Fails when all begin at once, or when one with an epoch waits."""
    for name in ("a", "b", "c"):
        send(channel, name, 1)
    receiver(channel).apply()
    send(channel, "c", 2)
    here = receiver(channel, first_looks=True)
    a, b, c = map(here.tables.get, ("a", "b", "c"))
    here.channel.look(SPARK)
    found = a.look(SPARK)
    assert isinstance(found, Found)
    assert b.look(SPARK) == Next(RETRY)
    turns(c, SPARK)
    assert acked(channel, "c") == 2
    here.woken.woken.clear()
    found.work(SPARK)
    assert here.woken.woken == [b]
    assert isinstance(b.look(SPARK), Found)


def test_a_table_that_waits_for_its_first_look_begins_when_it_gets_an_epoch(channel: Any) -> None:
    for name in ("a", "b"):
        send(channel, name, 1)
    receiver(channel).apply()
    here = receiver(channel, first_looks=True)
    here.channel.look(SPARK)
    assert isinstance(here.tables.get("a").look(SPARK), Found)
    assert here.tables.get("b").look(SPARK) == Next(RETRY)
    send(channel, "b", 2)
    here.channel.look(SPARK)
    turns(here.tables.get("b"), SPARK)
    assert acked(channel, "b") == 2


@pytest.mark.parametrize("why", ["held", "announced again", "no ack", "not readable"])
def test_a_table_that_may_have_work_does_not_wait(channel: Any, why: str) -> None:
    send(channel, "a", 1)
    receiver(channel).apply()
    send(channel, "b", 1)
    if why != "no ack":
        receiver(channel).apply()
    if why == "held":
        held = replace(StreamLog(channel, "b").acks()["seattle"], held=2, cause="no column 'n'")
        put_ack(channel, "b", "seattle", held.encode())
    elif why == "announced again":
        announce(channel, "b", 1, 1)
    elif why == "not readable":
        put_ack(channel, "b", "seattle", b"{")
    here = receiver(channel, first_looks=True)
    here.channel.look(SPARK)
    assert isinstance(here.tables.get("a").look(SPARK), Found)
    assert isinstance(here.tables.get("b").look(SPARK), Found)


def test_streams_of_several_channels_share_a_tables_ledger() -> None:
    """Their applies are numbered together, one at a time. Fails with a table for each channel."""
    first, second = memory_channel(), memory_channel()
    here = receiver(first)
    there = Inbound(here.streams, second, here.tables)
    send(first, "orders", 1)
    publish(StreamLog(second, "orders-again"), 1, table="orders", log_id="b" * 32, origin="denver")
    there.streams = ChannelStreams(TOPOLOGY, "seattle", "memory:///")
    there.channel.streams = there.streams
    here.apply()
    there.apply()
    (table,) = here.tables._tables.values()
    assert len(table._streams) == 2
    assert table._ledger is not None and table._ledger.last_apply == 2


def test_an_apply_to_the_table_retries_its_held_streams(channel: Any) -> None:
    """It may have brought the versions that they wait for."""
    here = receiver(channel)
    waiting = here.streams.get("a")
    listing = Listing(StreamLog(channel, "a"), [1], ())
    waiting.hold("waits for version 10", listing, 1)
    assert not waiting.is_due(listing)
    here.tables.get("orders")._streams["a"] = waiting
    send(channel, "orders", 1)
    here.apply()
    assert acked(channel, "orders") == 1 and waiting.is_due(listing)


# --- what holds a stream


def test_a_held_stream_is_retried_less_and_less_often(
    channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although other streams go on, and its own sender publishes more.

    Fails when each listing retries it.
    """
    clock, tried = Clock(monkeypatch), list[float]()

    def before(table: str) -> None:
        if table == "orders":
            tried.append(clock.now - 1_000)
            raise ValueError("the disk is full")

    send(channel, "orders", 1)
    here = receiver(channel, before)
    for second in range(121):
        clock.now = 1_000.0 + second
        send(channel, "readings", second + 1)
        if second % 10 == 5:
            send(channel, "orders", second // 10 + 2)
        here.apply(SPARK)
    assert acked(channel, "readings") == 121
    assert held_at(channel, "orders") == 1
    gaps = [after - before for before, after in pairwise(tried)]
    assert gaps[0] < 12 and gaps[0] < gaps[1] < gaps[2] == gaps[-1] < 31


def test_a_change_of_its_log_retries_a_held_stream(
    channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch was announced again. Fails when only time makes the stream due."""
    clock, tried = Clock(monkeypatch), list[int]()
    bad = [True]

    def before(table: str) -> None:
        tried.append(acked(channel, table))
        if bad[0]:
            raise ValueError("no")

    send(channel, "orders", 1)
    here = receiver(channel, before)
    here.apply(SPARK)
    here.apply(SPARK)
    assert len(tried) == 1
    announce(channel, "orders", 1, 1)
    here.apply(SPARK)
    assert len(tried) == 2
    bad[0] = False
    here.apply(SPARK)
    assert len(tried) == 2
    clock.now += 100
    here.apply(SPARK)
    assert acked(channel, "orders") == 1
    assert here.held() == {"orders": None}


def test_f50_a_job_cancelled_from_outside_is_retried(
    channel: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Fails when its epoch counts as done, or when the error ends the receiver."""
    clock, cancelled = Clock(monkeypatch), list[int]()

    def before(table: str) -> None:
        if not cancelled:
            cancelled.append(1)
            raise Cancelled("[SPARK_JOB_CANCELLED] Job 7 cancelled")

    send(channel, "orders", 1)
    here = receiver(channel, before)
    here.apply(SPARK)
    held = "orders: its Spark job was cancelled from outside. Will retry in 10 s."
    assert here.held() == {"orders": held}
    assert held in caplog.text
    clock.now += 10
    here.apply(SPARK)
    assert (acked(channel, "orders"), here.held()) == (1, {"orders": None})


@pytest.mark.parametrize("ended", ["stopped", "available now"])
def test_f50_a_cancellation_that_may_be_a_stop_holds_nothing(channel: Any, ended: str) -> None:
    """Without an ack that says held. Fails when it counts as a cancellation from outside."""
    job = Running()

    def before(_: str) -> None:
        job.stopped = ended == "stopped"
        raise Cancelled

    send(channel, "orders", 1)
    here = receiver(channel, before, ended == "available now", job)
    with pytest.raises(StoppedError):
        here.apply(SPARK)
    assert StreamLog(channel, "orders").acks() == {}


def test_f50_a_session_that_has_ended_holds_nothing(channel: Any) -> None:
    """Fails when it counts as an error of the table: the stream was held, and retried forever."""

    def before(_: str) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    def refuse(_: int) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    send(channel, "orders", 1)
    gone: Any = SimpleNamespace(range=refuse)
    with pytest.raises(SessionLostError):
        receiver(channel, before).apply(gone)
    assert StreamLog(channel, "orders").acks() == {}


@pytest.mark.parametrize("available_now", [False, True])
def test_a_stream_that_the_channel_refuses_delays_no_other(
    channel: Any, available_now: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run with ``available_now`` ends with the error, once the others have had their turn."""
    clock = Clock(monkeypatch)

    def before(table: str) -> None:
        if table == "a" and clock.now < 1_001:
            raise ChannelError("a: access denied")

    for stream in ("a", "b"):
        send(channel, stream, 1)
    here = receiver(channel, before, available_now)
    errors = []
    here.channel.look(SPARK)
    for table in here.woken.woken:
        try:
            table._begin(SPARK)  # type: ignore[attr-defined]
        except ChannelError as error:
            errors.append(str(error))
    assert errors == (["a: access denied"] if available_now else [])
    assert acked(channel, "b") == 1
    assert here.held() == {"a": "a: access denied", "b": None}
    if not available_now:
        clock.now += 100
        here.apply(SPARK)
        assert here.held() == {"a": None, "b": None}


def test_unreadable_decisions_hold_their_table_alone(channel: Any, tmp_path: Path) -> None:
    """Fails when the error ends the receiver of all tables."""
    sites = {site: {"state": str(tmp_path / site)} for site in ("newark", "seattle")}
    topology = parse_topology({**CONTENT, "sites": sites}, "wan.yaml")
    damaged = tmp_path / "seattle" / "decisions" / "orders.json"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{")
    publish(StreamLog(channel, STREAM), 1)
    here = delta_receiver(topology, channel, orders=Decisions(new_logs=frozenset({"a" * 32})))
    here.apply(SPARK)
    (status,) = here.statuses()
    assert "the recorded decisions cannot be read" in str(status.held)
    assert "Restore the file, or delete it" in str(status.held)
    assert held_at(channel, STREAM) == 1


# --- what a receiver reports


def test_f50_an_unreachable_channel_holds_its_streams(channel: Cut) -> None:
    """Until it answers. Fails when only a log line reports it, which the command does not print."""
    here = receiver(channel)  # type: ignore[arg-type]
    url = here.streams.url
    channel.down = True
    here.apply(SPARK)
    assert here.held() == {url: DENIED}  # no stream is known yet
    channel.down = False
    send(channel, "orders", 1)  # type: ignore[arg-type]
    here.apply(SPARK)
    assert here.held() == {url: None, "orders": None}
    channel.down = True
    here.apply(SPARK)
    assert here.held() == {url: DENIED, "orders": DENIED}


def test_an_unreachable_channel_fails_a_run_with_available_now(channel: Cut) -> None:
    channel.down = True
    with pytest.raises(ChannelError, match="AccessDenied"):
        receiver(channel, available_now=True).apply(SPARK)  # type: ignore[arg-type]


def leave_hold(channel: Any) -> None:
    """Another receiver of the site held the stream, and was killed."""
    ack = replace(
        StreamLog(channel, "orders").acks()["seattle"], held=2, cause="orders: cannot be read"
    )
    put_ack(channel, "orders", "seattle", ack.encode())


def test_a_hold_that_another_receiver_left_is_released(
    channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when the acks of idle streams are not read: the sender sees the hold until the next
    epoch."""
    clock, here = Clock(monkeypatch), receiver(channel)
    send(channel, "orders", 1)
    here.apply(SPARK)
    leave_hold(channel)
    here.apply(SPARK)
    assert held_at(channel, "orders") == 2  # acks are listed now and then
    clock.now += ACKS_INTERVAL
    here.apply(SPARK)
    assert held_at(channel, "orders") is None


def test_a_hold_that_another_receiver_left_is_retried_in_its_time(
    channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, and this receiver cannot apply the stream either.

    Fails when the stream still counts as idle: it would wait for its turn among those.
    """
    clock, bad = Clock(monkeypatch), [False]

    def before(_: str) -> None:
        if bad[0]:
            raise ValueError("the disk is full")

    here = receiver(channel, before)
    send(channel, "orders", 1)
    here.apply(SPARK)
    leave_hold(channel)
    bad[0] = True
    clock.now += ACKS_INTERVAL
    here.apply(SPARK)
    assert "the disk is full" in str(here.held()["orders"])
    bad[0] = False
    clock.now += 10
    here.apply(SPARK)
    assert held_at(channel, "orders") is None


def test_a_stream_for_other_sites_is_read_once(channel: Any) -> None:
    """Fails when each listing reads its newest manifest."""
    publish(StreamLog(channel, STREAM), 1, addressees=("denver",))
    here = delta_receiver(TOPOLOGY, channel)
    read: list[int] = []
    manifest_of = channel.inner.manifest

    def counted(stream: str, epoch: int) -> bytes:
        read.append(epoch)
        found: bytes = manifest_of(stream, epoch)
        return found

    channel.inner.manifest = counted
    for _ in range(3):
        here.apply(SPARK)
    assert (read, here.statuses()) == ([1], [])


@pytest.mark.parametrize(("kind", "due"), [(EVENTS, ["orders"]), (CAPTURE, [])])
def test_a_site_that_was_added_to_a_user_stream_has_a_part_in_it(
    channel: Any, kind: str, due: list[str]
) -> None:
    """Nobody writes an epoch that names it. Fails when it says that it lacks something only at the
    next write. Of a captured table the sender names new sites."""
    [stream] = streams_of(TOPOLOGY, TOPOLOGY.table("orders"))
    publish(StreamLog(channel, stream.name), 1, addressees=("denver",), kind=kind)
    streams = ChannelStreams(TOPOLOGY, "seattle", "memory:///")
    assert list(streams.due(channel)) == due


def test_a_removed_stream_is_not_reported_as_held(channel: Any) -> None:
    """The cause asks for it: 'remove what is left of this stream from the channel'."""
    publish(StreamLog(channel, "newark.east.old"), 1, table="old")
    here = delta_receiver(TOPOLOGY, channel)
    here.apply(SPARK)
    cause = str(here.held()["newark.east.old"])
    assert "remove what is left of this stream" in cause
    assert "spark-wan remove newark.east.old --config wan.yaml" in cause
    paths = [entry[0] for entry in channel.list_objects("")]
    channel.delete(path for path in paths if "newark.east.old" in path)
    here.apply(SPARK)
    assert here.held() == {"newark.east.old": None}


# --- the rest


def test_of_several_senders_on_one_channel_the_first_has_the_storage_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At both ends. Fails when the receiver opens the channel with those of the last."""
    sender = {**CONTENT["senders"]["east"], "channel": "s3://lake/wan"}
    topology = parse_topology(
        {
            **CONTENT,
            "senders": {
                "east": {**sender, "storage": {"region": "first"}},
                "west": {**sender, "storage": {"region": "last"}},
            },
        },
        "wan.yaml",
    )
    opened: list[tuple[str, dict[str, str]]] = []

    def open_channel(url: str, storage: Any) -> None:
        opened.append((url, dict(storage)))
        raise ChannelError("enough")

    monkeypatch.setattr("spark_wan.receiver.job.open_channel", open_channel)
    monkeypatch.setattr(
        "spark_wan.receiver.job.LedgerTables", lambda *_: SimpleNamespace(ensure=lambda: None)
    )
    monkeypatch.setattr(
        "spark_wan.receiver.job.JobHandle", lambda *_, **__: SimpleNamespace(scheduler=Woken())
    )
    monkeypatch.setattr(Receiver, "_tables", lambda *_: None)
    session: Any = ConnectSession()
    with pytest.raises(ChannelError, match="enough"):
        Receiver(session, topology, "seattle").start()
    assert opened == [("s3://lake/wan", {"region": "first"})]


def test_a_receiver_says_that_it_was_stopped_although_its_last_marks_are_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next start writes them. Fails when ``status`` shows a receiver that was killed."""
    begun, stopped = list[Any](), list[int]()

    class Handle:
        scheduler = Woken()

        def __init__(self, *_: Any, **__: Any) -> None: ...

        def check_stopped(self) -> None: ...

        def begin(self, activities: Any, last: Any) -> None:
            begun.append(last)

    def refuse(*_: Any) -> None:
        raise LedgerError("the ledger cannot be written")

    ledger = SimpleNamespace(ensure=lambda: None)
    monkeypatch.setattr(job_module, "LedgerTables", lambda *_: ledger)
    monkeypatch.setattr(job_module, "JobHandle", Handle)
    monkeypatch.setattr(job_module.LedgerWriter, "write", refuse)
    monkeypatch.setattr(job_module, "note_stop", lambda _, channels: stopped.append(len(channels)))
    monkeypatch.setattr(job_module, "open_channel", lambda *_: memory_channel())
    session: Any = ConnectSession()
    Receiver(session, TOPOLOGY, "seattle").start()
    with pytest.raises(LedgerError):
        begun[0](SPARK)
    assert stopped == [1]


class Maintained(LedgerMaintenance):
    """Maintenance that only counts its runs."""

    runs = 0

    def run(self, spark: Any) -> None:
        self.runs += 1


def test_the_ledger_is_maintained_hourly(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a worker of its own. Fails when it delays tables, or when looks do the work."""
    now = [1_000.0]
    monkeypatch.setattr(maintenance.time, "monotonic", lambda: now[0])
    upkeep = Maintained("seattle", "/seattle", {})
    assert upkeep.look(SPARK) == Next(maintenance.FIRST_INTERVAL)
    now[0] += maintenance.FIRST_INTERVAL
    found = upkeep.look(SPARK)
    assert isinstance(found, Found) and found.lane is Lane.LARGE and upkeep.runs == 0
    assert found.work(SPARK) == Next(maintenance.INTERVAL) == upkeep.look(SPARK)
    assert upkeep.runs == 1


@pytest.mark.parametrize(("marks", "runs"), [(LEAST_MARKS - 1, 0), (LEAST_MARKS, 1)])
def test_runs_with_available_now_maintain_a_ledger_that_has_grown(
    channel: Any, marks: int, runs: int
) -> None:
    """They never last an hour. Fails when the ledger of a job that runs now and then grows without
    end; also when each table of a run maintains it, or when each run does."""
    upkeep = Maintained("seattle", "/seattle", {})
    here = receiver(channel, available_now=True)
    for name in ("orders", "readings"):
        send(channel, name, 1)
        here.tables.get(name).maintenance = upkeep
    here.channel.look(SPARK)
    for table in here.woken.woken:
        table._begin(SPARK)  # type: ignore[attr-defined]
        ledger = table._ledger  # type: ignore[attr-defined]
        ledger.tokens = dict.fromkeys(map(str, range(marks)), 1)
        turns(table, SPARK)
        turns(table, SPARK)
    assert upkeep.runs == runs


def test_the_check_of_frames_finds_a_payload_that_cannot_be_decoded(channel: Any) -> None:
    """Its checksum is right: the sender wrote it so.

    Otherwise it would count, again and again, as a fault that has passed.
    """
    header = FrameHeader(
        "newark", ("seattle",), STREAM, "orders", "id", "all", "schema", "a" * 32, 0, 5
    )
    data = encode_frame(header, pa.record_batch({"id": pa.array([1], pa.int64())}))
    path = channel.put_frame(STREAM, header.attempt, 0, data)
    ref = FrameRef(path, 5, len(data), frame_checksum(data))
    tables: Any = None
    target = DeltaTarget(
        CurrentSession(), "seattle", "orders", "/seattle/orders", channel=channel, ledger=tables
    )
    with pytest.raises(FrameError, match="1 rows where its header says 5"):
        target.check_frames(PlannedEpoch(manifest(frames=(ref,)), -1))


def test_channels_may_ask_for_a_table_at_the_same_time() -> None:
    """Fails when two channels each make a table: two applies of it could run at once."""
    made, both = list[str](), threading.Barrier(2)

    def make(name: str) -> Any:
        made.append(name)
        return SimpleNamespace(name=name)

    tables = InboundTables(make)
    found: list[Any] = []

    def get() -> None:
        both.wait()
        found.append(tables.get("orders"))

    threads = [threading.Thread(target=get) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == ["orders"] and found[0] is found[1]


def test_a_status_begins_when_there_is_something_to_report() -> None:
    assert InboundStream("orders").status is None
