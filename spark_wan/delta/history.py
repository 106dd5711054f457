"""A table's commits, read through Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_wan.delta.commits import Commit
from spark_wan.delta.sessions import is_connect
from spark_wan.delta.sql import reference

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FIRST_LOOK = 20


def history(
    spark: SparkSession, location: str, after: int, limit: int = _FIRST_LOOK
) -> list[Commit]:
    """The commits above version ``after`` that the history still has, ascending. Looks back no further than it must."""
    while True:
        commits = _last_commits(spark, location, limit)
        if len(commits) < limit or commits[0].version <= after + 1:
            return [commit for commit in commits if commit.version > after]
        limit *= 8


def newest(spark: SparkSession, location: str) -> Commit:
    """The table's newest commit."""
    return _last_commits(spark, location, 1)[0]


def _last_commits(spark: SparkSession, location: str, limit: int) -> list[Commit]:
    told = spark.sql(f"DESCRIBE HISTORY {reference(location)} LIMIT {limit}")
    if is_connect(spark):
        # Its local times do not know which side of a change of clocks they are on.
        told = told.selectExpr("* EXCEPT (timestamp)", "unix_millis(timestamp) AS milliseconds")
    rows = told.collect()  # as they come: any projection would be a Spark job of its own
    return [
        Commit(
            version=row["version"],
            time=row["milliseconds"]
            if "milliseconds" in row
            else round(row["timestamp"].timestamp() * 1000),
            operation=row["operation"] or "",
            parameters=row["operationParameters"] or {},
            metrics=row["operationMetrics"] or {},
            user_metadata=row["userMetadata"],
            read_version=row["readVersion"],
        )
        for row in reversed(rows)
    ]
