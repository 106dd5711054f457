"""User events at newark, and a sink without Spark."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from sites import COLUMNS, Row, Sites, at

from spark_wan.datasource.events import (
    EventsWriter,
    SinkColumns,
    SinkWrite,
    append_epoch,
    sink_writer,
)
from spark_wan.datasource.options import SinkOptions
from spark_wan.log.stream_log import StreamLog
from spark_wan.steps import run
from spark_wan.units import milliseconds
from spark_wan.wire.manifest import Manifest

CLICKS = "newark.events.clicks"
PRICES = "newark.events.prices"


def clicks(numbers: Iterable[int]) -> list[dict[str, Any]]:
    return [{"event": f"click {n}", "at": at(n), "page": f"/{n}"} for n in numbers]


def price(event: str, key: int, value: float, turn: int = 0) -> dict[str, Any]:
    return {"event": event, "turn": turn, "id": key, "price": value}


def frame(spark: Any, table: str, rows: Iterable[Row]) -> Any:
    """Return a DataFrame with the columns of :data:`sites.COLUMNS`."""
    names = COLUMNS[table].names
    return spark.createDataFrame(
        [tuple(row[name] for name in names) for row in rows], from_arrow_schema(COLUMNS[table])
    )


def write_epoch(sites: Sites, table: str, rows: Iterable[Row], /, **options: object) -> Manifest:
    """Do what a batch write of ``rows`` does, in this process."""
    strings = {name: str(value) for name, value in options.items()}
    sink = SinkOptions.parse({**sites.sink_options(table), **strings})
    schema = json.loads(from_arrow_schema(COLUMNS[table]).json())
    columns = SinkColumns.of(sink, schema)
    content = columns.table_schema(schema)
    log = StreamLog(sites.channel("events"), sink.stream)
    log.channel.prepare()
    batch = pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=COLUMNS[table])
    written = EventsWriter(log.channel, sink, columns, content, milliseconds).write([batch])
    write = SinkWrite([written], uuid.uuid4().hex, "0")
    manifest = run(append_epoch(sink_writer(log, sink, None, milliseconds), sink, content, write))
    assert manifest is not None
    return manifest
