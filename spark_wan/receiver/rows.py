"""The events of an apply as a DataFrame, from the decoded frames to the write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ByteType, LongType, StringType, StructField, StructType

from spark_wan.channels.base import Channel
from spark_wan.delta.dataframes import select_columns
from spark_wan.events.operations import ID, OP, SEQUENCE, TIME, VERSION
from spark_wan.receiver.decode import CONTENT, DecodeTask
from spark_wan.receiver.judge import Constraints
from spark_wan.receiver.plan import PlannedEpoch
from spark_wan.wire.manifest import EVENTS

EXACT_JSON = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of ``to_json``: with nulls, in UTC, and to the microsecond."""


@dataclass
class EventRows:
    """Events of an apply: the content of :class:`spark_wan.receiver.apply.ApplyBatch`."""

    frame: DataFrame
    """One row per event: the ``_wan_`` columns and the table's ``columns``."""
    columns: list[str]
    keys: tuple[str, ...]
    constraints: Constraints | None = None
    dead: DataFrame | None = None
    """Events that cannot be applied, each with its :data:`~spark_wan.receiver.judge.CAUSE`."""
    new_ids: DataFrame | None = None
    """Event ID, content hash and time of the events of a user stream that are applied."""
    _persisted: list[DataFrame] = field(default_factory=list)

    def persist(self, frame: DataFrame) -> DataFrame:
        persisted = frame.persist()
        self._persisted.append(persisted)
        return persisted

    def release(self) -> None:
        for frame in self._persisted:
            frame.unpersist()

    def reject(self, frame: DataFrame) -> None:
        """Make events dead letters."""
        self.dead = (
            frame if self.dead is None else self.dead.unionByName(frame, allowMissingColumns=True)
        )

    def key_json(self) -> Column:
        if not self.keys:
            return F.lit(None).cast("string")
        return F.to_json(F.struct(*select_columns(self.keys)), EXACT_JSON)


def decode_epochs(
    spark: SparkSession,
    channel: Channel,
    epochs: Sequence[PlannedEpoch],
    schema: StructType,
    all_of_a_key: bool,
) -> DataFrame:
    """Return the events of epochs, decoded by tasks, with the table's columns in ``schema``.

    ``all_of_a_key``: return also captured events that a later one of their key replaces.
    """
    newest = epochs[-1].manifest
    user_stream = newest.kind == EVENTS
    reserved = [StructField(OP, ByteType()), StructField(VERSION, LongType())]
    if user_stream:
        reserved += [
            StructField(ID, StringType()),
            StructField(SEQUENCE, LongType()),
            StructField(TIME, LongType()),
            StructField(CONTENT, StringType()),
        ]
    full = StructType([*reserved, *schema.fields])
    keys = () if all_of_a_key or user_stream else newest.keys
    task = DecodeTask(channel, keys, to_arrow_schema(full, timezone="UTC"), user_stream)
    refs = [
        (ref.path, ref.rows, ref.bytes, ref.checksum, epoch.above, epoch.manifest.epoch)
        for epoch in epochs
        for ref in epoch.manifest.frames
    ]
    columns = "path string, rows bigint, bytes bigint, checksum bigint, above bigint, epoch bigint"
    return spark.createDataFrame(refs, columns).mapInArrow(task, full)
