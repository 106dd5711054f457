"""``format("wan")``: the sink that turns rows into gateway batches, and the source that yields gateway batches.

Sink, streaming and batch (``df.writeStream.format("wan")``, ``df.write.format("wan").mode("append")``): see
:class:`spark_wan.topology.options.SinkOptions`. Tasks encode and publish frames; ``commit()`` on the driver appends the manifest. A replay of a micro-batch
whose content is equal is already done; one whose content differs is the next epoch, and dedup by event ID sorts it out.

Source (``spark.readStream.format("wan")``): see :class:`spark_wan.topology.options.SourceOptions`. One row per gateway batch, :data:`SCHEMA`, as Kafka's source
has one row per record; :func:`spark_wan.datasource.decode.decode` turns them into a table's rows.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from spark_wan.datasource.schema import SCHEMA
from spark_wan.datasource.sink import WanStreamWriter, WanWriter
from spark_wan.datasource.source import WanStreamReader
from spark_wan.errors import OptionError
from spark_wan.topology.options import SinkOptions, SourceOptions
from spark_wan.topology.values import parse_channel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make ``format("wan")`` known to a session."""
    spark.dataSource.register(WanDataSource)


class WanDataSource(DataSource):
    """The ``wan`` sink and source."""

    @classmethod
    def name(cls) -> str:
        return "wan"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> WanStreamReader:
        return WanStreamReader(SourceOptions.parse(dict(self.options)))

    def streamWriter(self, schema: StructType, overwrite: bool) -> WanStreamWriter:
        checkpoint = _place(self.options.get("checkpointLocation"))
        return WanStreamWriter(
            SinkOptions.parse(dict(self.options)), json.loads(schema.json()), checkpoint
        )

    def writer(self, schema: StructType, overwrite: bool) -> WanWriter:
        if overwrite:
            raise OptionError(
                'wan sink: events are appended to a channel, nothing is overwritten: use .mode("append")'
            )
        return WanWriter(SinkOptions.parse(dict(self.options)), json.loads(schema.json()), None)


def _place(checkpoint: str | None) -> str | None:
    """A query's checkpoint as a place for the sink's memory; None where it is one that only Spark can write to."""
    if checkpoint is None:
        return None
    try:
        return parse_channel(re.sub("^file:/+", "/", checkpoint), os.getcwd()).rstrip("/") + "/wan"
    except ValueError:
        return None
