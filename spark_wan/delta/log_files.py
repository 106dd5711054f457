"""A Delta table's log, read from its files: what Delta has no statement for."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import obstore
from obstore.exceptions import BaseError

from spark_wan.channels.object_store import open_store
from spark_wan.delta.tables import table_detail
from spark_wan.messages import message_log
from spark_wan.topology.values import is_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = message_log(__name__)

IDENTITY_INTERVAL = 60.0
"""Seconds between checks that the newest commit in an object store is still the same one."""
BLIND_INTERVAL = 3_600.0
"""Seconds for which a log whose files cannot be seen is not tried again."""


class LogFiles:
    """The newest commits of a table, as the files of its log show them: a hint, without Spark.

    Works for a table in a directory or an object store. A catalog may know of more commits, and
    decides.

    Args:
        location: The table's path or URL; a catalog name shows nothing.
        storage: Options of the object store.
    """

    def __init__(self, location: str, storage: Mapping[str, str] | None = None) -> None:
        self._location = location
        self._storage = dict(storage or {})
        self._identity: tuple[int, float, object] | None = None
        """Version, when its file was looked at, and what it was."""
        self._blind_until = 0.0

    def look(self, version: int, *, afresh: bool = False) -> object | None:
        """Return something that stays equal while ``version`` is the newest one, and its file the
        same. None: the files cannot be seen, or there is none of that version.

        ``afresh``: look at the file in an object store now, though it was looked at within
        :data:`IDENTITY_INTERVAL`."""
        if not is_path(self._location) or time.monotonic() < self._blind_until:
            return None
        if is_local(self._location):
            identity = _local_identity(self._location, version)
            newer = os.path.exists(_local_file(self._location, version + 1))
        else:
            try:
                identity = self._remote_identity(version, afresh)
                newer = self._head(version + 1) is not None
            except (BaseError, OSError, ValueError, TypeError) as error:
                log.info(
                    "%s: its log is not visible without Spark: %s",
                    self._location,
                    error,
                    event="files-unreadable",
                )
                self._blind_until = time.monotonic() + BLIND_INTERVAL
                return None
        if identity is None:
            return None
        return object() if newer else (version, identity)  # an object equals no other

    def _remote_identity(self, version: int, afresh: bool) -> object | None:
        now = time.monotonic()
        if not afresh and self._identity is not None and self._identity[0] == version:
            _, at, identity = self._identity
            if now - at < IDENTITY_INTERVAL:
                return identity
        identity = self._head(version)
        self._identity = None if identity is None else (version, now, identity)
        return identity

    def _head(self, version: int) -> object | None:
        try:
            meta = obstore.head(self._store, f"_delta_log/{version:020d}.json")
        except FileNotFoundError:
            return None
        return meta["e_tag"], meta["last_modified"], meta["size"]

    @cached_property
    def _store(self) -> Any:
        return open_store(self._location, self._storage)


def is_local(location: str) -> bool:
    """Whether a path or URL names a local directory."""
    return location.startswith("file:/") or ("://" not in location and ":/" not in location)


def _local_file(location: str, version: int) -> str:
    return f"{location.removeprefix('file://')}/_delta_log/{version:020d}.json"


def _local_identity(location: str, version: int) -> object | None:
    try:
        status = os.stat(_local_file(location, version))
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


def adds_rows(spark: SparkSession, location: str, version: int) -> bool:
    """Whether a commit's own log entry shows that the table has rows after it: a file that it adds
    is not empty. Cheaper than to read the table at that version."""
    schema = "add struct<stats: string, deletionVector: struct<storageType: string>>"
    actions = spark.read.schema(schema).json(f"{_log(spark, location)}/{version:020d}.json")
    rows = "CAST(get_json_object(add.stats, '$.numRecords') AS BIGINT) > 0"
    return bool(actions.where(f"{rows} AND add.deletionVector IS NULL").limit(1).collect())


def _log(spark: SparkSession, location: str) -> str:
    """Return the folder of a table's log."""
    folder = location if is_path(location) else table_detail(spark, location, "location")
    return f"{folder}/_delta_log"


def _actions(spark: SparkSession, location: str, schema: str) -> Iterator[DataFrame]:
    """The actions of a table's log that have ``schema``: of its commits, then its checkpoints."""
    folder = _log(spark, location)
    for kind, names in (("json", "*.json"), ("parquet", "*.checkpoint*.parquet")):
        reader = spark.read.format(kind).option("pathGlobFilter", names).schema(schema)
        yield reader.load(folder)
