"""From frames to a table's rows, for readers of the source that want rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_wan.delta.schema import portable_schema
from spark_wan.events.arrow_types import as_type
from spark_wan.events.operations import ID, OP, VERSION, Operation
from spark_wan.wire.frame import FrameRef, decode_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


EVENT_COLUMNS = (
    "wan_operation string, wan_origin string, wan_stream string, wan_epoch bigint, "
    "wan_version bigint, wan_event_id string"
)
"""Columns in front of the table's own: what the event did, and where and when it came from.
``wan_version`` is null for a user stream, ``wan_event_id`` for a captured one (it follows from
table ID, version and key: :func:`spark_wan.events.operations.keyed_event_id`)."""


def decode(batches: DataFrame, schema: Mapping[str, Any] | Any) -> DataFrame:
    """Decode the frames of one table.

    ``schema``: the table's columns, a StructType or Spark's schema JSON. A column that a batch does
    not have is null. The query raises FrameError for a frame that is not the one its manifest
    names.

    Example::

        batches = spark.readStream.format("wan").option("channel", "/data/channel").load()
        rows = decode(batches.where("`table` = 'flights'"), flights.schema)
    """
    import json

    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType, _parse_datatype_string

    content = schema if isinstance(schema, Mapping) else json.loads(schema.json())
    table = StructType.fromJson(portable_schema(content))
    event = _parse_datatype_string(EVENT_COLUMNS)
    assert isinstance(event, StructType)
    full = StructType([*event.fields, *table.fields])
    task = _DecodeTask(to_arrow_schema(full, timezone="UTC"))
    return batches.select(
        "stream", "epoch", "origin", "events", "path", "checksum", "payload"
    ).mapInArrow(task, full)


@dataclass(frozen=True)
class _DecodeTask:
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                ref = FrameRef(row["path"], row["events"], len(row["payload"]), row["checksum"])
                _, events = decode_frame(row["payload"], row["path"], ref)
                yield self._rows(events, row)

    def _rows(self, events: pa.RecordBatch, row: Mapping[str, Any]) -> pa.RecordBatch:
        count, names = events.num_rows, events.schema.names
        operations = pa.array([op.name.lower() for op in Operation])
        described = {
            "wan_operation": operations.take(events.column(OP)),
            "wan_origin": pa.array([row["origin"]] * count, pa.string()),
            "wan_stream": pa.array([row["stream"]] * count, pa.string()),
            "wan_epoch": pa.array([row["epoch"]] * count, pa.int64()),
            "wan_version": events.column(VERSION) if VERSION in names else None,
            "wan_event_id": events.column(ID) if ID in names else None,
        }
        # Spark compares the names of columns without case.
        values = {name.lower(): events.column(place) for place, name in enumerate(names)}
        columns = []
        for column in self.schema:
            name = column.name
            value = described[name] if name in described else values.get(name.lower())
            columns.append(
                pa.nulls(count, column.type) if value is None else as_type(value, column.type)
            )
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
