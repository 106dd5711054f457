"""A sink of a user stream, as Spark's driver and tasks use it, for unit tests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
from fakes import Checkpoints, Clock, memory_channel, schema
from hypothesis import settings

from spark_wan.channels.base import Channel
from spark_wan.datasource.events import (
    EventsWriter,
    SinkColumns,
    SinkWrite,
    WriteResult,
    append_epoch,
    sink_writer,
)
from spark_wan.datasource.options import SinkOptions
from spark_wan.log.stream_log import StreamLog
from spark_wan.steps import Steps, run
from spark_wan.wire.frame import decode_frame
from spark_wan.wire.manifest import Manifest

randomly = settings(derandomize=True, deadline=None, max_examples=100, print_blob=True)

SCHEMA = schema(event="string", id="long", city="string", seq="long", op="string", at="timestamp")
STREAM = "newark.sink.orders"


def row(
    event: str | None, id: int | None = 1, city: str = "Ulm", seq: int | None = 0, op: Any = "put"
) -> dict[str, Any]:
    return {
        "event": event,
        "id": id,
        "city": city,
        "seq": seq,
        "op": op,
        "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
    }


ARROW = pa.schema(
    [
        ("event", pa.string()),
        ("id", pa.int64()),
        ("city", pa.string()),
        ("seq", pa.int64()),
        ("op", pa.string()),
    ]
    + [("at", pa.timestamp("us", "UTC"))]
)


class Sink:
    """A sink with its options, as Spark's driver and tasks use it."""

    def __init__(self, channel: Channel | None = None, **options: Any) -> None:
        self.channel = channel or memory_channel()
        self.options = SinkOptions(
            **{
                "channel": self.channel.url,
                "site": "newark",
                "remotes": ("tacoma", "seattle"),
                "table": "orders",
                "key": ("id",),
                "event_id": "event",
                "stream": STREAM,
                **options,
            }
        )
        self.columns = SinkColumns.of(self.options, SCHEMA)
        self.schema = self.columns.table_schema(SCHEMA)
        self.log = StreamLog(self.channel, STREAM)
        self.clock = Clock()
        self.channel.now = lambda: self.clock() / 1000  # type: ignore[method-assign]
        self.checkpoints = Checkpoints()

    def task(self, *rows: dict[str, Any], batches: int = 1) -> WriteResult:
        table = pa.Table.from_pylist(list(rows), schema=ARROW)
        size = max(1, -(-len(rows) // batches))
        return EventsWriter(
            self.channel, self.options, self.columns, self.schema, self.clock
        ).write(table.to_batches(max_chunksize=size))

    def commit(
        self, written: Sequence[WriteResult], query: str = "q", batch: int = 0
    ) -> Manifest | None:
        return run(self.steps(written, query, batch))

    def steps(
        self, written: Sequence[WriteResult], query: str = "q", batch: int = 0
    ) -> Steps[Manifest | None]:
        writer = sink_writer(self.log, self.options, self.checkpoints, self.clock)
        write = SinkWrite(written, query, str(batch))
        return append_epoch(writer, self.options, self.schema, write)

    def write(self, *rows: dict[str, Any], batch: int = 0) -> Manifest | None:
        return self.commit([self.task(*rows)], batch=batch)

    def events(self, manifest: Manifest) -> list[dict[str, Any]]:
        found = []
        for ref in manifest.frames:
            header, events = decode_frame(self.channel.get_frame(ref.path), ref.path, ref)
            assert (header.origin, header.stream, header.sent_to) == (
                "newark",
                STREAM,
                ("seattle", "tacoma"),
            )
            found += events.to_pylist()
        return found

    def frames(self) -> set[str]:
        return {path for path, _ in self.channel.frames(STREAM)}


def named(*manifests: Manifest | None) -> set[str]:
    return {
        frame.path for manifest in manifests if manifest is not None for frame in manifest.frames
    }
