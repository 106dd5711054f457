"""Change rows, and what captures them: shared by the unit tests."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from fakes import HEADER, memory_channel

from spark_wan.capture.source import DeltaSource
from spark_wan.capture.tasks import CapturedTable, CaptureTask
from spark_wan.channels.base import Channel
from spark_wan.delta.sessions import CurrentSession
from spark_wan.log.frames import BatchLimits

LIMITS = BatchLimits(100, 1 << 20)


def changes(*keys: int | None) -> pa.RecordBatch:
    """Inserts of one commit, sorted as a task of the sender gets them."""
    rows = sorted(keys, key=lambda key: (key is not None, key or 0))
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array(rows, pa.int64()),
            "city": pa.array([f"city {n}" for n in range(len(rows))]),
            "_commit_version": pa.array([7] * len(rows), pa.int64()),
            "_wan_rank": pa.array([1] * len(rows), pa.int8()),
        }
    )


def orders(location: str = "/lake/orders", max_dead_letters: int = 10) -> CapturedTable:
    return CapturedTable("orders", location, ("id",), max_dead_letters)


def capture_task(
    channel: Channel | None = None,
    max_dead_letters: int = 10,
    limits: BatchLimits = LIMITS,
    keys: tuple[str, ...] = ("id",),
) -> CaptureTask:
    """A task of a capture of ``orders``."""
    table = CapturedTable("orders", "/lake/orders", keys, max_dead_letters)
    return CaptureTask(channel or memory_channel(), limits, table, HEADER)


def delta_source(
    spark: Any = None,
    table: CapturedTable | None = None,
    channel: Channel | None = None,
    record_dead_letters: Any = None,
) -> DeltaSource:
    """A source of ``orders``; without Spark it can do only what asks nothing of Spark."""
    return DeltaSource(
        CurrentSession(spark),
        table or orders(),
        channel or memory_channel(),
        LIMITS,
        record_dead_letters,
        print,
    )
