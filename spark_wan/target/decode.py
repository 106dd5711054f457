"""Stage *decode*: frames to rows, in tasks, or on the driver if the apply is small."""

from __future__ import annotations

from dataclasses import KW_ONLY, asdict, dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ByteType, LongType, StringType, StructField, StructType

from spark_wan.apply.change import Change
from spark_wan.channels.base import Channel
from spark_wan.delta.key_list import MAX_KEYS, KeyList
from spark_wan.events.columns import char_lengths
from spark_wan.events.operations import CONTENT, ID, OP, SEQUENCE, TIME, VERSION
from spark_wan.target.resolve import needed
from spark_wan.target.superseded import by_keys, by_manifests
from spark_wan.target.tasks import DecodeTask, Seen
from spark_wan.wire.frame import MAX_FRAME_BYTES

RESERVED = (StructField(OP, ByteType()), StructField(VERSION, LongType()))
"""The columns that all events have beside those of their table."""
SMALL_EVENTS = 50_000
SMALL_BYTES = 2 * 2**20
"""Maximum number of events of a small apply, which the driver decodes, and bytes of its frames."""


@dataclass(frozen=True)
class FrameDecoder:
    """Decodes the frames of a change, with the table's columns in ``schema``."""

    channel: Channel
    change: Change
    schema: StructType
    judged: bool
    """The target may refuse rows."""
    _: KW_ONLY
    max_frame_bytes: int = MAX_FRAME_BYTES

    def frame(self, spark: SparkSession) -> tuple[DataFrame, KeyList | None]:
        """Return the events, and their keys if they are few.

        Tasks decode the frames, unless the apply is small: a job with Python takes longer than the
        decoding. With few events, the driver has to know the keys, too.
        """
        self.change.superseded = by_manifests(self.change)
        nested = any(pa.types.is_nested(kind) for kind in self._task.schema.types)
        if not self.is_small or (nested and self._events > MAX_KEYS):
            return self._by_tasks(spark), None
        (refs,) = pa.Table.from_pylist(self._refs()).combine_chunks().to_batches()
        seen = Seen()
        decoded = replace(self._task, seen=seen)([refs])
        events = pa.Table.from_batches(decoded, schema=self._task.schema)
        self._count(events, seen.events)
        chars = char_lengths(self.change.newest.schema)
        key_list = KeyList.of(events, self._keys, chars)
        if nested:
            # createDataFrame takes apart and rebuilds nested values; a task's result stays as is.
            return self._by_tasks(spark), key_list
        # Spark would write a file per core.
        return spark.createDataFrame(events, self._columns).coalesce(1), key_list

    def _count(self, events: pa.Table, decoded: int) -> None:
        """Note how many events are superseded or covered, by those that the driver has."""
        found = by_keys(decoded, events, self._keys)
        if found is not None:
            self.change.superseded, self.change.covered = found, self._events - decoded

    @property
    def is_small(self) -> bool:
        size = sum(epoch.manifest.bytes for epoch in self.change.epochs)
        return 0 < self._events <= SMALL_EVENTS and size <= SMALL_BYTES

    @property
    def _events(self) -> int:
        return sum(epoch.manifest.rows for epoch in self.change.epochs)

    @property
    def _keys(self) -> tuple[str, ...]:
        keys = {key.lower() for key in self.change.newest.keys}
        return tuple(name for name in self.schema.names if name.lower() in keys)

    def _by_tasks(self, spark: SparkSession) -> DataFrame:
        columns = (
            "path string, rows bigint, bytes bigint, checksum bigint, digest string, above bigint, "
            "epoch bigint"
        )
        refs = [tuple(ref.values()) for ref in self._refs()]
        return spark.createDataFrame(refs, columns).mapInArrow(self._task, self._columns)

    def _refs(self) -> list[dict[str, int | str]]:
        return [
            {**asdict(ref), "above": epoch.above, "epoch": epoch.manifest.epoch}
            for epoch in self.change.epochs
            for ref in epoch.manifest.frames
        ]

    @property
    def _task(self) -> DecodeTask:
        return DecodeTask(
            self.channel,
            to_arrow_schema(self._columns, timezone="UTC"),
            self.change.has_event_ids,
            needed=needed(self.change, self.judged),
            max_frame_bytes=self.max_frame_bytes,
        )

    @property
    def _columns(self) -> StructType:
        reserved = list(RESERVED)
        if self.change.has_event_ids:
            reserved += [
                StructField(ID, StringType()),
                StructField(SEQUENCE, LongType()),
                StructField(TIME, LongType()),
                StructField(CONTENT, StringType()),
            ]
        return StructType([*reserved, *self.schema.fields])
