"""What makes a table equal to the rows of a copy: the events of the rows that differ.

Readers of the table's change feed see these alone. A MERGE of all rows, which leaves equal ones as
they are, would do the same, but Delta writes again each file that has the key of one of its rows:
of equal tables, all files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_wan.delta.dataframes import select_columns
from spark_wan.delta.sql import quoted
from spark_wan.delta.tables import load, newest_commit
from spark_wan.errors import TargetError
from spark_wan.events.operations import OP, Operation
from spark_wan.target.rows import EventRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOT_COMPARED = re.compile("map<|variant|struct<|array<.*(float|double)")
"""Types of values that Spark does not compare, nor tells 0.0 and -0.0 apart in, or that may have
other fields at the target."""
_ROWS = "_wan_rows"
"""The number of rows of the target that have the key."""


@contextmanager
def difference(
    spark: SparkSession, location: str, rows: EventRows, view: str, chars: Mapping[str, int]
) -> Iterator[tuple[DataFrame, int]]:
    """Yield the events that make the newest version of a table equal to the rows of a copy, cached
    until then, and their number.

    ``view``: has the rows, in the session. ``chars``: the lengths of char columns. Rows with values
    that Spark does not compare all differ. Raises TargetError for a table with rows that have one
    key, or none.
    """
    types = {f.name: f.dataType.simpleString() for f in rows.frame.schema if f.name in rows.columns}
    version = newest_commit(spark, location).version
    there = _with_keys(load(spark, location, versionAsOf=version), rows, chars)
    lowered = {key.lower() for key in rows.keys}
    places = [f"_wan_key{place}" for place in range(len(rows.keys))]
    there = there.withColumn(_ROWS, F.count(F.lit(1)).over(Window.partitionBy(*places)))
    copy = _with_keys(spark.table(view), rows, chars).withColumn("_wan_copied", F.lit(True))
    on = " AND ".join(f"t.{place} = s.{place}" for place in places)
    joined = copy.alias("s").join(there.alias("t"), F.expr(on), "full_outer")
    found = joined.where(differs(rows.keys, rows.columns, types)).select(
        F.when(F.col("s._wan_copied"), int(Operation.PUT))
        .otherwise(int(Operation.DESTROY))
        .cast("tinyint")
        .alias(OP),
        *(_chosen(name, is_key=name.lower() in lowered) for name in rows.columns),
        F.col(f"t.{_ROWS}"),
    )
    found = found.persist()
    try:
        counts = F.count(F.lit(1)), F.count_if(_without_own_key(rows.keys))
        [[number, broken]] = found.agg(*counts).collect()
        if broken > 0:
            several = TargetError(_several_rows(found, rows, location))
            several.passes = False
            raise several
        yield found.drop(_ROWS), number
    finally:
        found.unpersist()


def differs(keys: Sequence[str], columns: Sequence[str], types: Mapping[str, str]) -> str:
    """Return the condition that a row of the copy, ``s``, and the table's, ``t``, are not equal, or
    that one of them is not there, or that the key is not the row's alone. ``types``: of the columns
    of the copy."""
    lowered = {key.lower() for key in keys}
    values = [name for name in columns if name.lower() not in lowered]
    comparable = not any(map(_NOT_COMPARED.search, types.values()))
    equal = " AND ".join(_equal(quoted(name), types[name]) for name in values) or "true"
    apart = f"NOT ({equal})" if comparable else "true"
    return f"s._wan_copied IS NULL OR t.{_ROWS} IS NULL OR t.{_ROWS} > 1 OR {apart}"


def _equal(name: str, kind: str) -> str:
    """Return the condition that a column has equal values. For Spark, 0.0 equals -0.0."""
    equal = f"t.{name} <=> s.{name}"
    if kind not in ("float", "double"):
        return equal
    return f"{equal} AND (CAST(t.{name} AS STRING) <=> CAST(s.{name} AS STRING))"


def _with_keys(frame: DataFrame, rows: EventRows, chars: Mapping[str, int]) -> DataFrame:
    """Return the columns that travel, and the keys once more, as they are compared: chars padded,
    since the table may store them without padding."""
    keys = []
    for place, name in enumerate(rows.keys):
        column = F.col(quoted(name))
        padded = F.rpad(column, chars[name], " ") if name in chars else column
        keys.append(padded.alias(f"_wan_key{place}"))
    return frame.select(*(F.col(quoted(name)).alias(name) for name in rows.columns), *keys)


def _chosen(name: str, is_key: bool) -> Column:
    """Return a column of an event: the copy's; of a destroy, the key that the table has."""
    copied = F.col(f"s.{quoted(name)}")
    there = F.coalesce(copied, F.col(f"t.{quoted(name)}")) if is_key else copied
    return there.alias(name)


def _without_own_key(keys: Sequence[str]) -> Column:
    """Return the condition that a row of the table has no key of its own."""
    return reduce(or_, (column.isNull() for column in select_columns(keys)), F.col(_ROWS) > 1)


def _several_rows(found: DataFrame, rows: EventRows, location: str) -> str:
    [example] = (
        found.where(_without_own_key(rows.keys))
        .select(rows.key_json().alias("key"))
        .limit(1)
        .collect()
    )
    return (
        f"the table at {location} has several rows with the key {example['key']}, or rows with a "
        "null in their key, so that a copy cannot write the rows that differ. Nothing is written. "
        "Delete such rows there: the copy brings what belongs to the key."
    )
