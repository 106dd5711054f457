"""One pass of a receiver over its logs, with a list of commits as the target table."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest
from fakes import STREAM, LedgerRows, Target, manifest, memory_channel, publish

from spark_wan.channels.log import StreamLog
from spark_wan.errors import ChannelError, FrameError
from spark_wan.ledger.ledger import Ledger
from spark_wan.receiver import inbound as inbound_module
from spark_wan.receiver.apply import TableApplier, WriteConflict
from spark_wan.receiver.inbound import ChannelReceiver
from spark_wan.receiver.job import Receiver
from spark_wan.receiver.plan import PlannedEpoch
from spark_wan.receiver.stream import InboundStream, Listing
from spark_wan.receiver.target import DeltaTarget
from spark_wan.topology.parsing import parse_topology
from spark_wan.wire.frame import FrameHeader, FrameRef, encode_frame, frame_checksum
from spark_wan.wire.manifest import EVENTS

CONTENT: dict[str, Any] = {
    "version": 1,
    "sites": {"newark": {"state": "/newark"}, "seattle": {"state": "/seattle"}},
    "senders": {"east": {"site": "newark", "remotes": ["seattle"], "channel": "/channel"}},
    "tables": {
        "orders": {
            "keys": ["id"],
            "writers": ["newark"],
            "senders": ["east"],
            "at": {"newark": "/newark/orders", "seattle": "/seattle/orders"},
        }
    },
}
TOPOLOGY = parse_topology(CONTENT, "wan.yaml")


def test_a_pass_ends_although_the_sender_keeps_publishing() -> None:
    """Otherwise other tables would wait forever, and ``--available-now`` would not end."""
    channel = memory_channel()
    log = StreamLog(channel, STREAM)
    publish(log, 1, 2, 3)
    applier = TableApplier(
        "seattle",
        "orders",
        log,
        Target(channel, "target-1"),
        Ledger("seattle", "orders", LedgerRows()),
        max_epochs=1,
    )
    seen: list[int] = []

    class Busy(ChannelReceiver):
        """Another epoch is published after each round."""

        def _run(self, steps: Any) -> Any:
            result = super()._run(steps)
            seen.append(result.applied)
            publish(log, 3 + len(seen))
            return result

    spark: Any = None
    inbound = Busy(TOPOLOGY, "seattle", "/channel", {}, parallel=1, max_bytes=1 << 20)
    inbound.streams.get(STREAM).applier = applier
    inbound._apply_stream(spark, Listing(log, log.since(0), ()))
    assert seen == [1, 2, 3]
    inbound._apply_stream(spark, Listing(log, log.since(0), ()))
    assert seen == [1, 2, 3, 4, 5, 6]


def test_a_stream_that_the_channel_refuses_delays_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inbound = ChannelReceiver(TOPOLOGY, "seattle", "memory:///", {}, parallel=1, max_bytes=1 << 20)
    turns: list[str] = []

    def apply(spark: Any, listing: Listing) -> None:
        turns.append(listing.log.stream)
        if listing.log.stream == "a":
            raise ChannelError("a: access denied")

    channel = memory_channel()
    for stream in ("a", "b"):
        publish(StreamLog(channel, stream), 1)
    monkeypatch.setattr(inbound_module, "open_channel", lambda *_: channel)
    monkeypatch.setattr(inbound.streams, "_table_of", lambda listing: listing.log.stream)
    monkeypatch.setattr(inbound, "_apply_stream", apply)
    spark: Any = None
    with pytest.raises(ChannelError, match="access denied"):
        inbound.apply_all(spark)
    assert turns == ["a", "b"]
    assert [(status.stream, status.held) for status in inbound.statuses()] == [
        ("a", "a: access denied")
    ]


def test_a_failed_expiry_of_event_ids_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    topology = parse_topology(
        {**CONTENT, "tables": {"orders": {**CONTENT["tables"]["orders"], "event_id_ttl": "1h"}}},
        "wan.yaml",
    )
    inbound = ChannelReceiver(topology, "seattle", "/channel", {}, parallel=1, max_bytes=1 << 20)
    spark: Any = None
    tables: Any = None
    channel = memory_channel()
    target = DeltaTarget(spark, "seattle", "orders", "/seattle/orders", channel, tables)
    target.expire_event_ids = lambda *_: (_ for _ in ()).throw(WriteConflict("another DELETE"))  # type: ignore[method-assign,assignment]
    applier = TableApplier(
        "seattle",
        "orders",
        StreamLog(channel, STREAM),
        target,
        Ledger("seattle", "orders", LedgerRows()),
    )
    inbound._expire_event_ids(InboundStream(STREAM), applier, manifest(kind=EVENTS))
    assert "event IDs could not be expired now: another DELETE" in caplog.text


def test_the_check_of_frames_finds_a_payload_that_cannot_be_decoded() -> None:
    """Its checksum is right: the sender wrote it so.

    Otherwise it would count, again and again, as a fault that has passed.
    """
    channel = memory_channel()
    header = FrameHeader(
        "newark", ("seattle",), STREAM, "orders", "id", "all", "schema", "a" * 32, 0, 5
    )
    data = encode_frame(header, pa.record_batch({"id": pa.array([1], pa.int64())}))
    path = channel.put_frame(STREAM, header.attempt, 0, data)
    ref = FrameRef(path, 5, len(data), frame_checksum(data))
    spark: Any = None
    tables: Any = None
    target = DeltaTarget(spark, "seattle", "orders", "/seattle/orders", channel, tables)
    with pytest.raises(FrameError, match="1 rows where its header says 5"):
        target.check_frames(PlannedEpoch(manifest(frames=(ref,)), -1))


@pytest.mark.parametrize(("failures", "started"), [(0, True), (1, True), (2, False)])
def test_a_query_that_fails_to_start_is_started_once_more(
    failures: int, started: bool, tmp_path: Path
) -> None:
    """When two receivers create a checkpoint together, Spark fails one of them.

    Fails when the first failure is final, or none ever is.
    """
    spark = MagicMock()
    writer = (
        spark.readStream.format()
        .options()
        .load()
        .writeStream.foreachBatch()
        .queryName()
        .option()
        .trigger()
    )
    query = object()
    writer.start.side_effect = [ValueError("the metadata file is there"), ValueError("again")][
        :failures
    ] + [query]
    at = str(tmp_path / "channel")
    topology = parse_topology(
        {**CONTENT, "senders": {"east": {**CONTENT["senders"]["east"], "channel": at}}}, "wan.yaml"
    )
    receiver = Receiver(spark, topology, "seattle")
    channel = receiver._channel(at, {}, threading.Event(), waits=False)
    if started:
        assert receiver._query(channel) is channel.query is query
    else:
        with pytest.raises(ValueError, match="again"):
            receiver._query(channel)
