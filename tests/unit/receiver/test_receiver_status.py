"""What a receiver reports when its channel, a stream or a query fails, and afterwards."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import obstore
import pytest
from fakes import MANIFEST, STREAM, memory_channel, publish
from receivers import (
    LONG,
    SPARK,
    TOPOLOGY,
    ChannelOfOneStream,
    Clock,
    Query,
    held_at,
    inbound,
    send,
    supervised,
)

from spark_wan.channels.log import StreamLog
from spark_wan.cli.launcher import watch
from spark_wan.control.decisions import Decisions
from spark_wan.datasource import source as datasource
from spark_wan.datasource.source import WanStreamReader
from spark_wan.errors import ChannelError, StoppedError
from spark_wan.receiver import inbound as inbound_module
from spark_wan.receiver.handle import ReceiverHandle, SupervisedQuery
from spark_wan.receiver.inbound import ChannelReceiver
from spark_wan.receiver.wake_up import WakeUpReader
from spark_wan.topology.options import SourceOptions
from spark_wan.topology.parsing import parse_topology
from spark_wan.wire.ack import Ack

DENIED = "channel s3://lake: cannot list 'log/' (403 AccessDenied)"


class Cut:
    """A channel that fails while it is ``down``."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.down = inner, False

    def __getattr__(self, name: str) -> Any:
        if self.down:
            raise ChannelError(DENIED)
        return getattr(self.inner, name)


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> Cut:
    found = Cut(memory_channel())
    monkeypatch.setattr(inbound_module, "open_channel", lambda *_: found)
    monkeypatch.setattr(inbound_module, "POLL_INTERVAL", 0.01)
    return found


def held(receiver: ChannelReceiver) -> dict[str, str | None]:
    return {status.stream: status.held for status in receiver.statuses()}


def test_f50_an_unreachable_channel_holds_its_streams(channel: Cut) -> None:
    """Until it answers. Fails when only a log line reports it, which the command does not print."""
    receiver = inbound(lambda _: None)
    receiver.stop, receiver.query = threading.Event(), SimpleNamespace(isActive=True)
    pause = threading.Event()

    def micro_batch(cause: str | None, *streams: str) -> None:
        channel.down = cause is not None
        thread = threading.Thread(target=receiver, args=(SimpleNamespace(sparkSession=SPARK), 0))
        thread.start()
        while cause is not None and held(receiver) != dict.fromkeys(streams, cause):
            pause.wait(0.01)
        channel.down = False
        thread.join(LONG)
        assert held(receiver) == dict.fromkeys(streams)

    micro_batch(DENIED, receiver.url)  # no stream is known yet
    send(channel.inner, "orders", 1)
    micro_batch(None, receiver.url, "orders")
    micro_batch(DENIED, receiver.url, "orders")


def test_f50_an_unreachable_channel_wakes_its_receiver(
    channel: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a micro-batch can report what it waits for. No other query is woken."""
    monkeypatch.setattr(datasource, "open_channel", lambda *_: channel)
    send(channel.inner, "orders", 1)
    reader = WakeUpReader(channel, "seattle", "token", 10.0)  # type: ignore[arg-type]
    before = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    channel.down = True
    woken = reader.latestOffset(before, reader.getDefaultReadLimit())
    assert woken == {**before, "retry": before["retry"] + 1}
    channel.down = False
    assert reader.latestOffset(woken, reader.getDefaultReadLimit()) == woken
    users = WanStreamReader(SourceOptions.parse({"channel": "/channel"}))
    reader.prepareForTriggerAvailableNow()
    channel.down = True
    for other in (users, reader):  # a user's query, and a run that is to end
        with pytest.raises(ChannelError, match="AccessDenied"):
            other.latestOffset(before, other.getDefaultReadLimit())


def test_f50_a_query_stopped_from_outside_ends_with_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """``query.stop()`` by another part of the application, or in Spark's UI.

    Fails when the query counts as done: the command would end with exit code 0, or go on without
    that channel.
    """
    alone = supervised(ChannelOfOneStream(), Query(None, active=False))
    with pytest.raises(
        StoppedError, match=r"query for /channel was stopped from outside.*Start the receiver again"
    ):
        watch(alone, threading.Event(), lambda _: None)
    two = ReceiverHandle(
        [
            SupervisedQuery(ChannelOfOneStream(), query)  # type: ignore[arg-type]
            for query in (Query(None, active=False), Query(None))
        ],
        threading.Event(),
        classic=True,
        restart=lambda _: Query(None),  # type: ignore[arg-type, return-value]
    )
    assert two.is_active and isinstance(two.exception(), StoppedError)
    stopped = supervised(ChannelOfOneStream(), Query(None))
    stopped.stop()
    assert stopped.exception() is None


def test_under_connect_what_cannot_be_read_is_held(channel: Cut) -> None:
    """Fails when the status raises: that would end the receiver of all streams."""
    receiver = ChannelReceiver(TOPOLOGY, "seattle", "memory:///", {}, parallel=1, max_bytes=1 << 20)
    answering = inbound(lambda _: None)
    for stream in ("orders", "readings"):
        send(channel.inner, stream, 1)
    answering.apply_all(SPARK)
    obstore.put(channel.inner._store, f"log/readings/{1:020d}.json", b"{}")
    first, second = receiver.acked()
    assert (first.stream, first.table, first.applied, first.held) == ("orders", "orders", 1, None)
    assert second.stream == "readings" and "manifest" in str(second.held)
    channel.down = True
    assert [status.held for status in receiver.acked()] == [DENIED, DENIED]
    channel.down = False
    assert receiver.acked()[0].held is None


def test_under_connect_a_removed_stream_is_not_reported_as_held(channel: Cut) -> None:
    receiver = ChannelReceiver(TOPOLOGY, "seattle", "memory:///", {}, parallel=1, max_bytes=1 << 20)
    send(channel.inner, "orders", 1)
    ack = Ack("seattle", "orders", MANIFEST.log_id, 0, 1, "orders: cannot be read")
    channel.inner.put_ack("orders", "seattle", ack.encode())
    assert receiver.acked()[0].held == ack.cause
    obstore.delete(channel.inner._store, "acks/orders/seattle.json")
    assert receiver.acked()[0].held is None
    channel.inner.put_ack("orders", "seattle", ack.encode())
    assert receiver.acked()[0].held == ack.cause
    channel.inner.trim_manifest("orders", 1)
    assert receiver.acked()[0].held is None


def test_acks_of_idle_streams_are_read_in_turn() -> None:
    """Fails when all are read at once: with hundreds of them, new epochs would wait for seconds."""
    receiver = inbound(lambda _: None)
    streams = [f"orders{n:03}" for n in range(25)]
    asked: list[str] = []
    for looks in (10, 20, 25, 35):
        receiver.streams._acks_at = 0.0
        asked += receiver.streams._next_for_acks(streams) + receiver.streams._next_for_acks(streams)
        assert len(asked) == looks
    assert set(asked[:25]) == set(streams)


def test_a_hold_that_another_receiver_left_is_released(channel: Cut) -> None:
    """It had held the stream and was killed.

    Fails when the acks of idle streams are not read: the sender sees the hold until the next epoch.
    """
    receiver = inbound(lambda _: None)
    send(channel.inner, "orders", 1)
    receiver.apply_all(SPARK)
    log = StreamLog(channel.inner, "orders")
    ack = replace(log.acks()["seattle"], held=2, cause="orders: cannot be read")
    channel.put_ack("orders", "seattle", ack.encode())
    receiver.streams._acks_at = 0.0
    receiver.apply_all(SPARK)
    assert held_at(channel.inner, "orders") is None


def test_a_hold_that_another_receiver_left_is_retried_in_its_time(
    channel: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, and this receiver cannot apply the stream either.

    Fails when the stream still counts as idle: it would wait for its turn among those.
    """
    clock, bad = Clock(monkeypatch), [False]

    def before(_: str) -> None:
        if bad[0]:
            raise ValueError("the disk is full")

    receiver = inbound(before)
    send(channel.inner, "orders", 1)
    receiver.apply_all(SPARK)
    ack = replace(
        StreamLog(channel.inner, "orders").acks()["seattle"], held=2, cause="orders: cannot be read"
    )
    channel.put_ack("orders", "seattle", ack.encode())
    bad[0], receiver.streams._acks_at = True, 0.0
    receiver.apply_all(SPARK)
    assert "the disk is full" in str(held(receiver)["orders"])
    bad[0] = False
    clock.now += 100
    receiver.streams._acks_at = clock.now + 1
    receiver.apply_all(SPARK)
    assert held_at(channel.inner, "orders") is None


def test_an_unreadable_ack_is_reported(channel: Cut, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an idle stream. Fails when it counts as an ack without a hold, and stays unseen."""
    receiver = inbound(lambda _: None)
    send(channel.inner, "orders", 1)
    receiver.apply_all(SPARK)

    def refuse(stream: str) -> dict[str, bytes]:
        raise ChannelError(DENIED)

    monkeypatch.setattr(channel.inner, "acks", refuse)
    receiver.streams._acks_at = 0.0
    with pytest.raises(ChannelError, match="AccessDenied"):
        receiver.apply_all(SPARK)
    assert held(receiver) == {"orders": DENIED}


def test_a_removed_stream_is_not_reported_as_held(channel: Cut) -> None:
    """The cause asks for it: 'remove what is left of this stream from the channel'."""
    publish(StreamLog(channel.inner, "newark.east.old"), 1, table="old")
    receiver = ChannelReceiver(TOPOLOGY, "seattle", "memory:///", {}, parallel=1, max_bytes=1 << 20)
    receiver.apply_all(SPARK)
    assert "remove what is left of this stream" in str(held(receiver)["newark.east.old"])
    paths = [path for path, _ in channel.inner.list_objects("")]
    channel.inner.delete(path for path in paths if "newark.east.old" in path)
    receiver.apply_all(SPARK)
    assert held(receiver) == {"newark.east.old": None}


def test_unreadable_decisions_hold_their_table_alone(channel: Cut, tmp_path: Path) -> None:
    """Fails when the error ends the micro-batch, and the receiver of all tables."""
    content = {
        "version": 1,
        "sites": {site: {"state": str(tmp_path / site)} for site in ("newark", "seattle")},
        "senders": {"east": {"site": "newark", "remotes": ["seattle"], "channel": "/channel"}},
        "tables": {
            table: {
                "keys": ["id"],
                "writers": ["newark"],
                "senders": ["east"],
                "at": {site: f"/{site}/{table}" for site in ("newark", "seattle")},
            }
            for table in ("orders", "readings")
        },
    }
    damaged = tmp_path / "seattle" / "decisions" / "orders.json"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{")
    publish(StreamLog(channel.inner, STREAM), 1)
    receiver = ChannelReceiver(
        parse_topology(content, "wan.yaml"), "seattle", "memory:///", {}, 2, 1 << 20,
        decisions={"orders": Decisions(new_logs=frozenset({"a" * 32}))},
    )  # fmt: skip
    receiver.apply_all(SPARK)
    (status,) = receiver.statuses()
    assert "the recorded decisions cannot be read" in str(
        status.held
    ) and "Restore the file, or delete it" in str(status.held)
    assert held_at(channel.inner, STREAM) == 1
