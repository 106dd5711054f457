"""A Delta table's log, read from its files: what Delta has no statement for."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spark_wan.delta.tables import table_detail
from spark_wan.topology.values import is_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def commit_file(location: str, version: int) -> str:
    """Return the path of a version's commit file, for a table in a local folder."""
    return f"{location.removeprefix('file://')}/_delta_log/{version:020d}.json"


def commit_identity(location: str, version: int) -> tuple[int, ...] | None:
    """Return a fingerprint of a commit's file, which changes when another file takes its place.

    None if it is no local file.
    """
    try:
        status = os.stat(commit_file(location, version))
    except OSError:
        return None
    # A copy can keep the modification time (cp -p) and get the same inode; ctime cannot be set.
    return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns


def last_transaction(spark: SparkSession, location: str, application: str) -> int | None:
    """Return the newest transaction number of an application in the table's log, or None.

    Every checkpoint keeps it, so it outlives the commits that log cleanup deletes.
    """
    from pyspark.sql import functions as F

    numbers = [
        actions.where(F.col("txn.appId") == application).agg(F.max("txn.version")).collect()[0][0]
        for actions in _actions(spark, location, "txn struct<appId: string, version: bigint>")
    ]
    return max((number for number in numbers if number is not None), default=None)


def logged_schema(spark: SparkSession, location: str) -> dict[str, Any]:
    """Return the columns with the expressions of generated columns and with identity columns.

    Reads the whole log: call it rarely.
    """
    from pyspark.sql import functions as F

    # Commits since the newest checkpoint are JSON: their schema is newer than any checkpoint's.
    for actions in _actions(spark, location, "metaData struct<schemaString: string>"):
        version = F.col("_metadata.file_name").substr(1, 20).alias("version")
        schemas = actions.where("metaData IS NOT NULL").select(version, "metaData.schemaString")
        if newest := schemas.orderBy(F.desc("version")).limit(1).collect():
            content: dict[str, Any] = json.loads(newest[0][1])
            return content
    raise ValueError(f"the log of {location} has no schema")


def _actions(spark: SparkSession, location: str, schema: str) -> Iterator[DataFrame]:
    """The actions of a table's log that have ``schema``: of its commits, then its checkpoints."""
    folder = location if is_path(location) else table_detail(spark, location, "location")
    for kind, names in (("json", "*.json"), ("parquet", "*.checkpoint*.parquet")):
        reader = spark.read.format(kind).option("pathGlobFilter", names).schema(schema)
        yield reader.load(f"{folder}/_delta_log")
