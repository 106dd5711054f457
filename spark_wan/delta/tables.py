"""Delta tables through Spark: where they are, what they are, and their rows."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from spark_wan.delta.commits import DAY
from spark_wan.delta.errors import is_missing
from spark_wan.delta.sql import reference
from spark_wan.topology.values import is_path

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

LOG_RETENTION = 30 * DAY
"""Delta's default, in milliseconds."""
_UNITS = {"week": 7 * DAY, "day": DAY, "hour": 3_600_000, "minute": 60_000, "second": 1_000}


def commit_file(location: str, version: int) -> str:
    """Where a table that lies in a folder here keeps what a version's commit did."""
    return f"{location.removeprefix('file://')}/_delta_log/{version:020d}.json"


def commit_identity(location: str, version: int) -> tuple[int, ...] | None:
    """What tells the file of a commit from another one's in its place; None when there is none, here."""
    try:
        found = os.stat(commit_file(location, version))
    except OSError:
        return None
    # A copy can keep the time of the last change (cp -p) and be given the same inode; this time nobody sets.
    return found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns


def load(spark: SparkSession, location: str, **options: object) -> DataFrame:
    """A DataFrame of a Delta table, with reader options."""
    reader = spark.read.format("delta").options(
        **{name: str(value) for name, value in options.items()}
    )
    return reader.load(location) if is_path(location) else reader.table(reference(location))


def table_id(spark: SparkSession, location: str) -> str | None:
    """The table's ID, or None when there is no Delta table."""
    try:
        rows = spark.sql(f"DESCRIBE DETAIL {reference(location)}").select("id").collect()
    except Exception as error:
        if is_missing(error):
            return None
        raise
    return str(rows[0][0]) if rows and rows[0][0] is not None else None


def is_there(spark: SparkSession, location: str) -> bool:
    """Whether there is a Delta table. Cheaper than its ID, for which Delta counts its files."""
    try:
        _ = load(spark, location).columns  # a Connect session asks only when it must
        return True
    except Exception as error:
        if is_missing(error):
            return False
        raise


def has_change_feed(spark: SparkSession, location: str) -> bool:
    """Whether the table keeps a change feed for what is written from now on."""
    properties = _detail(spark, location, "properties") or {}
    return str(properties.get("delta.enableChangeDataFeed", "false")).lower() == "true"


def log_retention(spark: SparkSession, location: str) -> int:
    """How long a table's log keeps a commit, in milliseconds (``delta.logRetentionDuration``)."""
    told = (_detail(spark, location, "properties") or {}).get("delta.logRetentionDuration")
    return LOG_RETENTION if told is None else milliseconds_of(told)


def milliseconds_of(interval: str) -> int:
    """The length of an interval as Delta's table properties write it. What is no such text has no length.

    >>> milliseconds_of("interval 1 week 12 hours"), milliseconds_of("30 days"), milliseconds_of("soon")
    (648000000, 2592000000, 0)
    """
    parts = re.findall(
        r"([0-9]+(?:\.[0-9]+)?) +(week|day|hour|minute|second)s?\b", interval.lower()
    )
    return round(sum(float(number) * _UNITS[unit] for number, unit in parts))


def last_transaction(spark: SparkSession, location: str, application: str) -> int | None:
    """The newest transaction number of an application that a table's log tells of, or None. Delta keeps it in every checkpoint, so it outlives the
    commits that log cleanup takes. Delta has no statement that shows it: the log's files are read, where they may be read."""
    from pyspark.sql import functions as F

    numbers = [
        actions.where(F.col("txn.appId") == application).agg(F.max("txn.version")).collect()[0][0]
        for actions in _logged(spark, location, "txn struct<appId: string, version: bigint>")
    ]
    return max((number for number in numbers if number is not None), default=None)


def _detail(spark: SparkSession, location: str, column: str) -> Any:
    """One column of DESCRIBE DETAIL."""
    return spark.sql(f"DESCRIBE DETAIL {reference(location)}").select(column).collect()[0][0]


def _logged(spark: SparkSession, location: str, schema: str) -> Iterator[DataFrame]:
    """The actions of a table's log that have ``schema``: those of its commits, then those of its checkpoints."""
    folder = location if is_path(location) else _detail(spark, location, "location")
    for kind, names in (("json", "*.json"), ("parquet", "*.checkpoint*.parquet")):
        reader = spark.read.format(kind).option("pathGlobFilter", names).schema(schema)
        yield reader.load(f"{folder}/_delta_log")


def logged_schema(spark: SparkSession, location: str) -> dict[str, Any]:
    """The columns as the table's log has them: with the expressions of generated columns and with identity columns, which Delta shows nowhere
    else. Reads the whole log: ask seldom."""
    from pyspark.sql import functions as F

    # Each commit since the newest checkpoint is there as JSON: a schema in one of them is newer than any checkpoint's.
    for actions in _logged(spark, location, "metaData struct<schemaString: string>"):
        found = (
            actions.where("metaData IS NOT NULL")
            .select(
                F.col("_metadata.file_name").substr(1, 20).alias("version"), "metaData.schemaString"
            )
            .orderBy(F.desc("version"))
            .limit(1)
            .collect()
        )
        if found:
            content: dict[str, Any] = json.loads(found[0][1])
            return content
    raise ValueError(f"the log of {location} has no schema")


def map_in_arrow(
    frame: DataFrame,
    task: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    result: str | StructType,
) -> DataFrame:
    """``frame.mapInArrow(task, result)`` for columns with any names: pyspark's own takes dots for struct fields and fails on backticks."""
    names = frame.columns

    def named(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return task(batch.rename_columns(names) for batch in batches)

    return frame.toDF(*(f"c{place}" for place in range(len(names)))).mapInArrow(named, result)
