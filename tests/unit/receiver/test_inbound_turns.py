"""Turns of a receiver's tables: a slow one delays no other, a held one is tried less and less often, a cancelled one is not given up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import LedgerRows, Target, memory_channel, publish

from spark_wan.channels.base import Channel
from spark_wan.channels.log import StreamLog
from spark_wan.errors import ChannelError, SessionLostError, StoppedError
from spark_wan.ledger.ledger import Ledger
from spark_wan.receiver import channel_streams as streams_module
from spark_wan.receiver import inbound as inbound_module
from spark_wan.receiver import stream as stream_module
from spark_wan.receiver.apply import TableApplier
from spark_wan.receiver.channel_streams import ChannelStreams
from spark_wan.receiver.inbound import ChannelReceiver
from spark_wan.receiver.stream import InboundStream, Listing
from spark_wan.topology.parsing import parse_topology

LONG = 60.0
"""Seconds after which something is believed never to come. Not a measure."""
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


class Cancelled(Exception):
    def getCondition(self) -> str:
        return "SPARK_JOB_CANCELLED"


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


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> Channel:
    found = memory_channel()
    monkeypatch.setattr(inbound_module, "open_channel", lambda *_: found)
    monkeypatch.setattr(inbound_module, "POLL_INTERVAL", 0.01)
    return found


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


def test_a_slow_table_delays_no_epoch_that_comes_meanwhile(channel: Channel) -> None:
    """Neither of a table that was done before, nor of one that is new. Fails (never ends) when a micro-batch waits for all that it began
    before it lists the channel again."""

    def before(table: str) -> None:
        if table == "orders":
            assert came.wait(LONG)

    came = threading.Event()
    send(channel, "orders", 1)
    send(channel, "readings", 1)
    receiver = inbound(before)
    micro_batch = threading.Thread(target=receiver.apply_all, args=(SPARK,))
    micro_batch.start()
    pause = threading.Event()
    while acked(channel, "readings") < 1:
        pause.wait(0.01)
    send(channel, "readings", 2)
    send(channel, "prices", 1)
    while acked(channel, "readings") < 2 or acked(channel, "prices") < 1:
        pause.wait(0.01)
    assert acked(channel, "orders") == 0
    came.set()
    micro_batch.join(LONG)
    assert acked(channel, "orders") == 1


def test_a_run_that_is_to_end_takes_only_what_was_there(channel: Channel) -> None:
    """Otherwise it would not end while somebody publishes."""
    for table in ("orders", "readings"):
        send(channel, table, 1)
    ready = threading.Event()

    def before(table: str) -> None:
        if table == "orders":
            assert ready.wait(LONG)

    receiver = inbound(before, waits=False)
    micro_batch = threading.Thread(target=receiver.apply_all, args=(SPARK,))
    micro_batch.start()
    while acked(channel, "readings") < 1:
        micro_batch.join(0.01)
    send(channel, "readings", 2)
    micro_batch.join(0.2)
    ready.set()
    micro_batch.join(LONG)
    assert (acked(channel, "orders"), acked(channel, "readings")) == (1, 1)


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        time = SimpleNamespace(monotonic=lambda: self.now, sleep=lambda _: None)
        for module in (inbound_module, stream_module, streams_module):
            monkeypatch.setattr(module, "time", time)


def test_a_held_stream_is_tried_less_and_less_often(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though other streams wake the receiver all the time, and though its own sender publishes more. Fails when each micro-batch tries it."""
    clock, tried = Clock(monkeypatch), list[float]()

    def before(table: str) -> None:
        if table == "orders":
            tried.append(clock.now - 1_000)
            raise ValueError("the disk is full")

    send(channel, "orders", 1)
    receiver = inbound(before)
    for second in range(121):
        clock.now = 1_000.0 + second
        send(channel, "readings", second + 1)
        if second % 10 == 5:
            send(channel, "orders", second // 10 + 2)
        receiver.apply_all(SPARK)
    assert acked(channel, "readings") == 121
    assert held_at(channel, "orders") == 1
    gaps = [after - before for before, after in pairwise(tried)]
    assert gaps[0] < 11 and gaps[0] < gaps[1] < gaps[2] == gaps[-1] < 31


def test_what_a_held_stream_waits_for_wakes_it_at_once(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log shows something else, or is announced again. Fails when only time does."""
    clock, tried = Clock(monkeypatch), list[int]()
    bad = [True]

    def before(table: str) -> None:
        tried.append(acked(channel, table))
        if bad[0]:
            raise ValueError("no")

    send(channel, "orders", 1)
    receiver = inbound(before)
    receiver.apply_all(SPARK)
    receiver.apply_all(SPARK)
    assert len(tried) == 1
    channel.announce("orders", 1, 1)
    receiver.apply_all(SPARK)
    assert len(tried) == 2
    bad[0] = False
    receiver.apply_all(SPARK)
    assert len(tried) == 2
    clock.now += 100
    receiver.apply_all(SPARK)
    assert acked(channel, "orders") == 1
    assert receiver.statuses()[0].held is None


def test_another_stream_of_the_table_wakes_a_held_one(channel: Channel) -> None:
    """It may bring the versions that the other waits for."""
    receiver = inbound(lambda _: None)
    waiting = receiver.streams.get("a")
    waiting.table = receiver.streams.get("orders").table = "orders"
    listing = Listing(StreamLog(channel, "a"), [1], ())
    waiting.schedule(listing, held=1, cancelled=False)
    assert not waiting.is_due(listing)
    send(channel, "orders", 1)
    receiver._apply_stream(SPARK, Listing(StreamLog(channel, "orders"), [1], ()))
    assert acked(channel, "orders") == 1 and waiting.is_due(listing)


class Query:
    def __init__(self) -> None:
        self.isActive = True


def test_f50_a_job_cancelled_from_outside_is_said_and_done_again_within_the_micro_batch(
    channel: Channel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Other tables go on meanwhile. Fails when the micro-batch ends without the table: its batch would count as done; or when its query ends."""
    monkeypatch.setattr(stream_module, "RETRY_INTERVAL", 0.05)
    cancelled, told = threading.Event(), list[str | None]()

    def before(table: str) -> None:
        if table == "orders" and not cancelled.is_set():
            cancelled.set()
            send(channel, "readings", 1)
            raise Cancelled("[SPARK_JOB_CANCELLED] Job 7 cancelled")
        told.extend(status.held for status in receiver.statuses() if status.table == "orders")

    send(channel, "orders", 1)
    query: Any = Query()
    receiver = inbound(before, query=query, parallel=1)
    receiver.apply_all(SPARK)
    assert (acked(channel, "orders"), acked(channel, "readings")) == (1, 1)
    assert "orders: its Spark job was cancelled from outside. Will retry in 0.05 s." in told
    assert "its Spark job was cancelled from outside" in caplog.text
    assert [status.held for status in receiver.statuses()] == [None, None]


@pytest.mark.parametrize(
    "ended", ["query stopped", "handle stopped", "query not known", "available now"]
)
def test_f50_a_cancellation_that_may_be_a_stop_ends_the_micro_batch(
    channel: Channel, ended: str
) -> None:
    """Without an ack that says held. Fails when it is taken for one from outside."""
    query: Any = None if ended == "query not known" else Query()
    stop = threading.Event()

    def before(_: str) -> None:
        if ended == "query stopped":
            query.isActive = False
        if ended == "handle stopped":
            stop.set()
        raise Cancelled

    send(channel, "orders", 1)
    receiver = inbound(before, query=query, stop=stop, waits=ended != "available now")
    with pytest.raises(StoppedError):
        receiver.apply_all(SPARK)
    assert StreamLog(channel, "orders").acks() == {}


def test_f50_a_session_that_has_ended_ends_the_micro_batch_and_holds_nothing(
    channel: Channel,
) -> None:
    """Fails when it counts as an error of the table: the stream was held, with an ack, and tried again for ever."""

    def before(_: str) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    def refuse(_: int) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    send(channel, "orders", 1)
    gone: Any = SimpleNamespace(range=refuse)
    with pytest.raises(SessionLostError):
        inbound(before).apply_all(gone)
    assert StreamLog(channel, "orders").acks() == {}


def test_threads_that_make_appliers_do_not_disturb_each_other(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails (dictionary changed size during iteration, which ended the query) when one looks for its table's ledger while another adds."""
    receiver = ChannelReceiver(TOPOLOGY, "seattle", "memory:///", {}, parallel=2, max_bytes=1 << 20)

    def applier(name: str, table: str) -> None:
        stream = receiver.streams.get(name)
        stream.table = table
        receiver._applier(SPARK, stream, StreamLog(channel, name))

    other = threading.Thread(target=applier, args=("other", "readings"))

    class Inserting(dict[str, InboundStream]):
        """A dictionary into which another thread inserts while its values are looked through."""

        def values(self) -> Any:
            for value in super().values():
                if other.ident is None:
                    other.start()
                    other.join(0.2)
                yield value

    receiver.streams._streams = Inserting()
    applier("newark.east.prices", "prices")
    applier("newark.east.orders", "orders")
    other.join(LONG)
    assert sorted(name for name, stream in receiver.streams._streams.items() if stream.applier) == [
        "newark.east.orders",
        "newark.east.prices",
        "other",
    ]


def test_a_stopped_querys_micro_batch_gives_up_without_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark would log it with its stack. Fails when it raises; also when it does not while the query goes on."""
    query: Any = Query()
    stop = threading.Event()
    receiver = inbound(lambda _: None, query=query, stop=stop)

    def give_up(_: Any) -> None:
        raise StoppedError("the receiver was stopped")

    monkeypatch.setattr(receiver, "apply_all", give_up)
    frame: Any = SimpleNamespace(sparkSession=SPARK)
    with pytest.raises(StoppedError):
        receiver(frame, 1)
    assert isinstance(receiver.failure, StoppedError) and receiver.idle.is_set()
    stop.set()
    batch = threading.Thread(target=receiver, args=(frame, 1))
    batch.start()
    assert receiver.idle.wait(LONG)
    batch.join(0.1)
    assert batch.is_alive()  # until Spark's own stop has come, for its batch would count as done
    query.isActive = False
    batch.join(LONG)
    assert not batch.is_alive()


def test_what_the_channel_refuses_is_not_forgotten_by_a_listing(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That comes between an apply's error and its end. Fails when both are kept in one place: the micro-batch counted as done."""
    receiver = inbound(lambda _: None)
    listed, again = threading.Event(), threading.Event()
    list_due = receiver.streams.due

    def due(*args: Any) -> Any:
        result = list_due(*args)
        if again.is_set():
            listed.set()
        return result

    def refuse(*_: Any) -> None:
        raise ChannelError("access denied")

    @contextmanager
    def isolated(stream: str, errors: Any) -> Iterator[None]:
        with ChannelStreams.isolated(receiver.streams, stream, errors):
            yield
        if threading.current_thread() is not main:
            again.set()
            assert listed.wait(LONG)

    main = threading.current_thread()
    monkeypatch.setattr(receiver.streams, "due", due)
    monkeypatch.setattr(receiver, "_apply_stream", refuse)
    monkeypatch.setattr(receiver.streams, "isolated", isolated)
    send(channel, "orders", 1)
    with pytest.raises(ChannelError, match="access denied"):
        receiver.apply_all(SPARK)
