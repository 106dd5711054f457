"""Gateway batches: when they close, and how large they are."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest
from pair import Pair
from sites import SEATTLE, Sites
from waiting import wait_until

from spark_wan import Receiver
from spark_wan.capture.arrow_batches import MAX_ROW_BYTES
from spark_wan.capture.source import DeltaSource
from spark_wan.log.stream_log import StreamLog
from spark_wan.sender.job import Sender
from spark_wan.wire.frame import decode_frame

LIMIT = 10_000
"""``batch_bytes`` of these tests."""


def test_b44_an_interval_only_batch_waits_for_its_interval(spark: Any, sites: Any) -> None:
    """Commits below every limit wait until the interval has passed, then travel together.

    Fails when a sender with nothing to publish is looked at before its interval has passed.
    """
    here: Sites = sites(batch_interval="1h")
    here.append("orders", [{"id": 1, "item": "before", "amount": 0.0}])
    began = time.monotonic()
    handle = Sender(spark, here.topology, "newark", senders=["east"], tables=["orders"]).start()
    entry = next(
        each
        for activity, each in handle.scheduler._entries.items()
        if activity.name.endswith("orders")
    )

    def waits() -> bool:
        return not entry.busy and entry.due > began + 3_500

    try:
        wait_until(lambda: waits() and here.numbers("orders") == [1], "the interval", handle)
        here.append("orders", [{"id": 2, "item": "waits", "amount": 0.0}])
        here.append("orders", [{"id": 3, "item": "too", "amount": 0.0}])
        assert waits()
        handle.scheduler.wake(entry.activity)  # as if the interval had passed
        wait_until(lambda: waits() and here.numbers("orders") == [1, 2], "the next epoch", handle)
        assert here.log("orders").read(2).rows == 2
    finally:
        handle.stop()


def test_b45_an_oversized_batch_is_split(spark: Any, sites: Any) -> None:
    """Frames stay below ``batch_bytes``; a larger event travels alone; everything arrives.

    Fails without the check of bytes in `BatchPublisher._cut`: one frame has all events.
    """
    here: Sites = sites(batch_bytes=LIMIT)
    chance = random.Random(45)
    sizes = [chance.randrange(100, 2_000) for _ in range(60)]
    sizes[17] = 5 * LIMIT
    sizes[41] = LIMIT + 1
    here.append(
        "orders",
        [
            {"id": i, "item": chance.randbytes(size // 2).hex(), "amount": 0.0}
            for i, size in enumerate(sizes)
        ],
    )
    here.append(
        "readings", [{"sensor": chance.randbytes(size // 2).hex(), "value": 0.0} for size in sizes]
    )
    here.replicate(spark)
    here.assert_equal()
    for table in ("orders", "readings"):
        frames = decoded(here.log(table))
        assert sum(frame.num_rows for frame in frames) == len(sizes)
        assert [frame.num_rows for frame in frames if frame.nbytes > LIMIT] == [1, 1]
        assert len(frames) < len(sizes)


def decoded(log: StreamLog) -> list[Any]:
    """Return the events of all frames that the log names, in order."""
    paths = [frame.path for number in log.since(0) for frame in log.read(number).frames]
    return [decode_frame(log.channel.get_frame(path), path)[1] for path in paths]


ARROW = (
    "spark.sql.execution.arrow.maxRecordsPerBatch",
    "spark.sql.execution.arrow.maxBytesPerBatch",
)


def test_large_rows_travel_in_batches_bounded_by_bytes(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow batches are bounded by rows alone until a row, even an old image of one, is too large.
    Then they are bounded by bytes, as Spark does by default.

    Fails without the guard: a large row goes into a batch of any size.
    """
    pair = Pair.of(
        tmp_path / "pair", {"documents": {"start": {"version": 0}}, "readings": {"keys": []}}
    )
    limits: list[tuple[str | None, ...]] = []
    publish = DeltaSource._publish

    def recorded(source: DeltaSource, *args: Any, **options: Any) -> Any:
        limits.append(tuple(source.spark.conf.get(name, None) for name in ARROW))
        return publish(source, *args, **options)

    monkeypatch.setattr(DeltaSource, "_publish", recorded)

    def send(table: str) -> list[tuple[str | None, ...]]:
        limits.clear()
        pair.send(spark, senders=None, tables=[table])
        return list(limits)

    default, by_rows = tuple(spark.conf.get(name, None) for name in ARROW), ("4000", str(2**31 - 1))
    pair.make(spark, "documents", "id bigint, title string, body binary")
    pair.sql(spark, "documents", "INSERT INTO {t} VALUES (1, 'small', NULL), (2, NULL, X'00')")
    assert send("documents") == [by_rows]
    half = MAX_ROW_BYTES // 2 + 1
    pair.sql(
        spark,
        "documents",
        f"UPDATE {{t}} SET title = repeat('a', {half}), body = repeat('b', {half}) WHERE id = 1",
    )
    assert send("documents") == [by_rows, default]
    pair.sql(spark, "documents", "UPDATE {t} SET title = NULL, body = NULL WHERE id = 1")
    assert send("documents") == [by_rows, default]
    pair.make(spark, "readings", "sensor string, at array<string>")
    pair.sql(spark, "readings", "INSERT INTO {t} VALUES ('attic', array('a'))")
    assert send("readings") == [default]
    assert tuple(spark.conf.get(name, None) for name in ARROW) == default
    Receiver(spark, pair.topology, SEATTLE).start(available_now=True).await_termination()
    pair.assert_same(spark, "documents", "readings")
