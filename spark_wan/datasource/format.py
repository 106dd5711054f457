"""``format("wan")``: a sink that turns rows into frames, and a source that reads them."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from spark_wan.datasource.options import SinkOptions, SourceOptions
from spark_wan.datasource.schema import SCHEMA
from spark_wan.datasource.sink import WanStreamWriter, WanWriter
from spark_wan.datasource.source import WanStreamReader
from spark_wan.errors import OptionError
from spark_wan.topology.values import parse_channel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make ``format("wan")`` known to a session."""
    spark.dataSource.register(WanDataSource)


class WanDataSource(DataSource):
    """The ``wan`` sink (streaming, and batch with mode ``append``) and source (streaming).

    Required options of the sink: ``eventId``; and ``config``, ``sender`` and ``table``, or
    ``channel``, ``site``, ``remotes``, ``table`` and ``key``.

    Required options of the source: ``channel``; or ``config``, ``site`` and ``sender``.

    The optional ones stand with their defaults in :mod:`spark_wan.datasource.options`.

    Example::

        rate = spark.readStream.format("rate").load()
        ticks = rate.selectExpr("string(value) AS id", "timestamp AS at")
        sink = ticks.writeStream.format("wan").option("channel", "/tmp/channel")
        sink = sink.option("site", "newark").option("remotes", "seattle")
        sink = sink.option("table", "ticks").option("key", "id").option("eventId", "id")
        sink.option("checkpointLocation", "/tmp/checkpoint").start()

        batches = spark.readStream.format("wan").option("channel", "/tmp/channel").load()
        batches.select("stream", "epoch", "events").writeStream.format("console").start()
    """

    @classmethod
    def name(cls) -> str:
        return "wan"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> WanStreamReader:
        return WanStreamReader(SourceOptions.parse(dict(self.options)))

    def streamWriter(self, schema: StructType, overwrite: bool) -> WanStreamWriter:
        checkpoint = _state_in(self.options.get("checkpointLocation"))
        options = SinkOptions.parse(dict(self.options))
        return WanStreamWriter(options, json.loads(schema.json()), checkpoint)

    def writer(self, schema: StructType, overwrite: bool) -> WanWriter:
        if overwrite:
            raise OptionError(
                "wan sink: events are appended to a channel, nothing is overwritten: use "
                '.mode("append")'
            )
        return WanWriter(SinkOptions.parse(dict(self.options)), json.loads(schema.json()), None)


def _state_in(checkpoint: str | None) -> str | None:
    """Return where in a query's checkpoint the sink keeps its own; None where only Spark can
    write."""
    if checkpoint is None:
        return None
    try:
        return parse_channel(re.sub("^file:/+", "/", checkpoint), os.getcwd()).rstrip("/") + "/wan"
    except ValueError:
        return None
