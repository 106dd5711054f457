"""Whether a constraint refuses rows only because of the session's time zone."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_wan.delta.errors import ErrorKind
from spark_wan.delta.sessions import copied_session

SAMPLE = 20
"""Number of refused rows that are looked at."""
_HALF_HOURS = ("-09:30", "-03:30", "+03:30", "+04:30", "+05:30", "+05:45", "+06:30", "+09:30")
ZONES = (*(f"{hours:+03d}:00" for hours in range(-12, 15)), *_HALF_HOURS)
"""The offsets in which anybody's clocks are."""


def may_depend_on_zone(schema: StructType, expression: str) -> bool:
    """Whether an expression over columns of ``schema`` may depend on the time zone. Costs nothing,
    where :func:`valid_elsewhere` takes a second."""
    words = ("timestamp", "unix", "hour", "minute", "second", "now", "current", "today")
    text = expression.lower()
    return "timestamp" in schema.simpleString() or any(word in text for word in words)


def valid_elsewhere(spark: SparkSession, rows: pa.Table, schema: StructType, broken: Column) -> int:
    """Return how many of ``rows``, which a constraint refuses, it takes in a session of some other
    time zone. ``broken``: the constraint, over columns of ``schema``."""
    valid: set[int] = set()
    numbers = range(rows.num_rows)
    with copied_session(spark) as session:
        numbered = session.createDataFrame(
            rows.append_column("_wan_row", pa.array(numbers, pa.int64())),
            StructType(list(schema.fields)).add("_wan_row", "long"),
        )
        for zone in ZONES:
            session.conf.set("spark.sql.session.timeZone", zone)
            taken = numbered.where(~F.coalesce(broken, F.lit(False)))
            try:
                valid.update(row[0] for row in taken.select("_wan_row").collect())
            except Exception as error:
                if ErrorKind.CANCELLED.matches(error):
                    raise  # else it raises for one of the rows
    return len(valid)
