"""Delta tables through Spark: whether they exist, their properties, their history, their rows."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_wan.delta.commits import DAY, Commit
from spark_wan.delta.errors import ErrorKind
from spark_wan.delta.sessions import is_connect
from spark_wan.delta.sql import reference
from spark_wan.topology.values import is_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RETENTION_INTERVAL = 86_400.0
"""Seconds for which a table's retentions are cached."""

_UNITS = {"week": 7 * DAY, "day": DAY, "hour": 3_600_000, "minute": 60_000, "second": 1_000}


def load(spark: SparkSession, location: str, **options: object) -> DataFrame:
    """Return a DataFrame of a Delta table, with reader options."""
    reader = spark.read.format("delta").options(
        **{name: str(value) for name, value in options.items()}
    )
    return reader.load(location) if is_path(location) else reader.table(reference(location))


def table_exists(spark: SparkSession, location: str) -> bool:
    """Whether there is a Delta table. Cheaper than its ID, for which Delta counts its files."""
    try:
        _ = load(spark, location).columns  # a Connect session sends nothing before it must
    except Exception as error:
        if ErrorKind.MISSING.matches(error):
            return False
        raise
    return True


def table_id(spark: SparkSession, location: str) -> str | None:
    """Return the table's ID, or None when there is no Delta table."""
    try:
        detail = table_detail(spark, location, "id")
    except Exception as error:
        if ErrorKind.MISSING.matches(error):
            return None
        raise
    return None if detail is None else str(detail)


def change_feed_and_size(spark: SparkSession, location: str) -> tuple[bool, int]:
    """Return whether the table keeps a change feed for what is written from now on, and the size of
    its files in bytes."""
    properties, size = table_detail(spark, location, "properties", "sizeInBytes")
    feed = (properties or {}).get("delta.enableChangeDataFeed", "false")
    return str(feed).lower() == "true", size or 0


@dataclass
class Retention:
    """How long a table keeps its history, in milliseconds. Read once a day."""

    location: str
    _read: tuple[float, int, int] | None = None
    """When it was read; the retentions of the log, and of deleted files."""

    def of_log(self, spark: SparkSession) -> int:
        """Return how long the log keeps a commit (``delta.logRetentionDuration``). Raises errors of
        Spark."""
        return self._current(spark)[1]

    def of_history(self, spark: SparkSession, afresh: bool = False) -> int:
        """Return how long what a commit has changed can be read: VACUUM keeps its files for
        ``delta.deletedFileRetentionDuration``, and the log the commit. ``afresh``: read it now.
        Raises errors of Spark."""
        return min(self._current(spark, afresh)[1:])

    def _current(self, spark: SparkSession, afresh: bool = False) -> tuple[float, int, int]:
        now = time.monotonic()
        if afresh or self._read is None or now - self._read[0] > RETENTION_INTERVAL:
            properties = table_detail(spark, self.location, "properties") or {}
            self._read = (
                now,
                milliseconds_of(properties.get("delta.logRetentionDuration", "30 days")),
                milliseconds_of(properties.get("delta.deletedFileRetentionDuration", "7 days")),
            )
        return self._read


def milliseconds_of(interval: str) -> int:
    """Return the length of an interval as table properties write it; 0 if it is none.

    >>> milliseconds_of("interval 1 week 12 hours"), milliseconds_of("soon")
    (648000000, 0)
    """
    parts = re.findall(
        r"([0-9]+(?:\.[0-9]+)?) +(week|day|hour|minute|second)s?\b", interval.lower()
    )
    return round(sum(float(number) * _UNITS[unit] for number, unit in parts))


def table_detail(spark: SparkSession, location: str, *columns: str) -> Any:
    """Return one column of DESCRIBE DETAIL, or a tuple of several."""
    [row] = spark.sql(f"DESCRIBE DETAIL {reference(location)}").select(*columns).collect()
    return row[0] if len(columns) == 1 else tuple(row)


def history(spark: SparkSession, location: str, after: int, limit: int = 20) -> list[Commit]:
    """Return the commits above version ``after`` that the history still has, ascending.

    Spark has no other order than from the end back: asks for the last ``limit`` commits, and if
    these do not reach back to ``after``, once more for as many as there are. So a reader that lags
    far behind should keep what it has read (:class:`spark_wan.capture.backlog.Backlog`).
    """
    spare = limit
    while True:
        commits = _last_commits(spark, location, limit)
        if len(commits) < limit or commits[0].version <= after + 1:
            return [commit for commit in commits if commit.version > after]
        limit = commits[-1].version - after + spare  # some may be committed meanwhile


def newest_commit(spark: SparkSession, location: str) -> Commit:
    """Return the table's newest commit."""
    return _last_commits(spark, location, 1)[0]


def newest_commits(spark: SparkSession, location: str, limit: int) -> list[Commit]:
    """Return the last ``limit`` commits that the history has, ascending."""
    return _last_commits(spark, location, limit)


def _last_commits(spark: SparkSession, location: str, limit: int) -> list[Commit]:
    commits = spark.sql(f"DESCRIBE HISTORY {reference(location)} LIMIT {limit}")
    if is_connect(spark):
        # Its local times are ambiguous in the hour that a change of clocks repeats.
        commits = commits.selectExpr(
            "* EXCEPT (timestamp)", "unix_millis(timestamp) AS milliseconds"
        )
    rows = commits.collect()  # in the classic session as is: a projection would be a Spark job
    found: list[Commit] = []
    for row in reversed(rows):
        if "milliseconds" in row:
            time = row["milliseconds"]
        else:
            time = round(row["timestamp"].timestamp() * 1000)
        found.append(
            Commit(
                version=row["version"],
                time=time,
                operation=row["operation"] or "",
                parameters=row["operationParameters"] or {},
                metrics=row["operationMetrics"] or {},
                user_metadata=row["userMetadata"],
                read_version=row["readVersion"],
                moved=bool(found) and time == found[-1].time + 1,
            )
        )
    return found
