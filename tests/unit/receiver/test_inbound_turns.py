"""In which order a receiver works on its tables, and when it retries them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import memory_channel
from receivers import LONG, SPARK, TOPOLOGY, Clock, acked, held_at, inbound, send

from spark_wan.channels.base import Channel
from spark_wan.channels.log import StreamLog
from spark_wan.errors import ChannelError, SessionLostError, StoppedError
from spark_wan.receiver import inbound as inbound_module
from spark_wan.receiver import stream as stream_module
from spark_wan.receiver.channel_streams import ChannelStreams
from spark_wan.receiver.inbound import ChannelReceiver
from spark_wan.receiver.stream import InboundStream, Listing


class Cancelled(Exception):
    def getCondition(self) -> str:
        return "SPARK_JOB_CANCELLED"


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> Channel:
    found = memory_channel()
    monkeypatch.setattr(inbound_module, "open_channel", lambda *_: found)
    monkeypatch.setattr(inbound_module, "POLL_INTERVAL", 0.01)
    return found


def test_a_slow_table_delays_no_epoch_of_another_table(channel: Channel) -> None:
    """Neither of a table that was applied before nor of a new one.

    Fails (never ends) when a micro-batch waits for all its tables before it polls the channel.
    """

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


def test_available_now_applies_only_what_was_listed_at_its_start(channel: Channel) -> None:
    """Otherwise it would not end while the sender keeps publishing."""
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


def test_a_held_stream_is_retried_less_and_less_often(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although other streams keep waking the receiver, and its own sender publishes more.

    Fails when each micro-batch retries it.
    """
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


def test_a_change_of_its_log_retries_a_held_stream(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch was announced again. Fails when only time makes the stream due."""
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


def test_an_apply_to_the_table_retries_its_held_streams(channel: Channel) -> None:
    """It may have brought the versions that they wait for."""
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


def test_f50_a_job_cancelled_from_outside_is_retried_within_the_micro_batch(
    channel: Channel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Other tables go on meanwhile.

    Fails when the micro-batch ends without the table, because its batch would count as done; also
    when the query ends.
    """
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
    """Without an ack that says held. Fails when it counts as a cancellation from outside."""
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
    """Fails when it counts as an error of the table: the stream was held, and retried forever."""

    def before(_: str) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    def refuse(_: int) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    send(channel, "orders", 1)
    gone: Any = SimpleNamespace(range=refuse)
    with pytest.raises(SessionLostError):
        inbound(before).apply_all(gone)
    assert StreamLog(channel, "orders").acks() == {}


def test_threads_may_create_appliers_at_the_same_time(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when one thread looks for its table's ledger while another adds an applier.

    The error (dictionary changed size during iteration) ended the query.
    """
    receiver = ChannelReceiver(TOPOLOGY, "seattle", "memory:///", {}, parallel=2, max_bytes=1 << 20)

    def applier(name: str, table: str) -> None:
        stream = receiver.streams.get(name)
        stream.table = table
        receiver._applier(SPARK, stream, StreamLog(channel, name))

    other = threading.Thread(target=applier, args=("other", "readings"))

    class Inserting(dict[str, InboundStream]):
        """A dictionary into which another thread inserts during an iteration."""

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
    """Spark would log the error with its stack.

    Fails when the micro-batch raises; also when it does not raise while the query goes on.
    """
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


def test_a_poll_does_not_forget_an_error_of_a_running_apply(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll may come between the error of an apply and its end.

    Fails when both keep their errors in one place: the micro-batch counted as done.
    """
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
