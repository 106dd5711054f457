"""The events of an apply as a DataFrame, from the decoded frames to the write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ByteType, LongType, StringType, StructField, StructType

from spark_wan.apply.plan import PlannedEpoch
from spark_wan.channels.base import Channel
from spark_wan.delta.dataframes import select_columns
from spark_wan.delta.key_list import MAX_KEYS, KeyList
from spark_wan.events.columns import char_lengths
from spark_wan.events.operations import CONTENT, ID, OP, SEQUENCE, TIME, VERSION
from spark_wan.target.decode import DecodeTask
from spark_wan.target.judge import Constraints
from spark_wan.wire.frame import MAX_FRAME_BYTES
from spark_wan.wire.manifest import EVENTS

SMALL_BYTES = 2 * 2**20
"""Maximum bytes of the frames of a small apply, which the driver decodes."""

EXACT_JSON = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of ``to_json``: with nulls, in UTC, and to the microsecond."""


@dataclass
class EventRows:
    """Events of an apply: the rows of a :class:`~spark_wan.apply.change.Change`."""

    frame: DataFrame
    """One row per event: the ``_wan_`` columns and the table's ``columns``."""
    columns: list[str]
    keys: tuple[str, ...]
    constraints: Constraints | None = None
    key_list: KeyList | None = None
    """The keys of the decoded events, if they are few."""
    partitioned: Sequence[str] = ()
    """The target's partition columns."""
    replaceable: bool = False
    """Whether :meth:`spark_wan.target.write.MarkedWrite.replace` may write them."""
    dead: DataFrame | None = None
    """Events that cannot be applied, each with its :data:`~spark_wan.target.judge.CAUSE`."""
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


@dataclass(frozen=True)
class FrameDecoder:
    """Decodes the frames of epochs, with the table's columns in ``schema``."""

    channel: Channel
    epochs: Sequence[PlannedEpoch]
    schema: StructType
    all_of_a_key: bool
    """Also return captured events that a later one of their key replaces."""
    max_frame_bytes: int = MAX_FRAME_BYTES

    def frame(self, spark: SparkSession) -> tuple[DataFrame, KeyList | None]:
        """Return the events, and their keys if the apply is small.

        Tasks decode the frames, unless the apply is small: the driver then has to know the keys,
        and a job that decodes them again takes longer than the decoding.
        """
        if not self.is_small:
            return self._by_tasks(spark), None
        (refs,) = pa.Table.from_pylist(self._refs()).combine_chunks().to_batches()
        events = pa.Table.from_batches(self._task([refs]), schema=self._task.schema)
        chars = char_lengths(self.epochs[-1].manifest.schema)
        key_list = KeyList.of(events, self._keys, chars)
        if any(pa.types.is_nested(kind) for kind in events.schema.types):
            # createDataFrame takes apart and rebuilds nested values; a task's result stays as is.
            return self._by_tasks(spark), key_list
        # Spark would write a file per core.
        return spark.createDataFrame(events, self._columns).coalesce(1), key_list

    @property
    def is_small(self) -> bool:
        manifests = [epoch.manifest for epoch in self.epochs]
        return (
            0 < sum(manifest.rows for manifest in manifests) <= MAX_KEYS
            and sum(manifest.bytes for manifest in manifests) <= SMALL_BYTES
        )

    @property
    def _keys(self) -> tuple[str, ...]:
        keys = {key.lower() for key in self.epochs[-1].manifest.keys}
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
            for epoch in self.epochs
            for ref in epoch.manifest.frames
        ]

    @property
    def _user_stream(self) -> bool:
        return self.epochs[-1].manifest.kind == EVENTS

    @property
    def _task(self) -> DecodeTask:
        keys = () if self.all_of_a_key or self._user_stream else self.epochs[-1].manifest.keys
        schema = to_arrow_schema(self._columns, timezone="UTC")
        return DecodeTask(self.channel, keys, schema, self._user_stream, self.max_frame_bytes)

    @property
    def _columns(self) -> StructType:
        reserved = [StructField(OP, ByteType()), StructField(VERSION, LongType())]
        if self._user_stream:
            reserved += [
                StructField(ID, StringType()),
                StructField(SEQUENCE, LongType()),
                StructField(TIME, LongType()),
                StructField(CONTENT, StringType()),
            ]
        return StructType([*reserved, *self.schema.fields])
