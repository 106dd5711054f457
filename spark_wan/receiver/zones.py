"""Whether a SQL expression over a table's columns depends on the time zone of the session."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from spark_wan.delta.errors import ErrorKind
from spark_wan.delta.sessions import copied_session
from spark_wan.delta.sql import quoted

_ZONES = ("UTC", "Etc/GMT+12", "Asia/Kolkata")
_VALUES = {
    "timestamp": "TIMESTAMP'2024-01-01 00:30:00Z'",
    "timestamp_ntz": "TIMESTAMP_NTZ'2024-01-01 00:30:00'",
    "date": "DATE'2024-01-01'",
    "string": "'2024-01-01 00:30:00'",
}
"""In the zones, these are in different hours, days, months and years."""
_NUMBERS = ("byte", "short", "integer", "long", "float", "double", "decimal")


def depends_on_zone(spark: SparkSession, expression: str, schema: StructType) -> bool:
    """Whether an expression has different values for one row in sessions of different time zones.
    False also if that cannot be told with a row of our own."""
    columns = []
    for field in schema.fields:
        kind = field.dataType.typeName()
        value = _VALUES.get(kind, "1" if kind.startswith(_NUMBERS) else "NULL")
        columns.append(f"CAST({value} AS {field.dataType.simpleString()}) AS {quoted(field.name)}")
    query = f"SELECT xxhash64({expression}) FROM (SELECT {', '.join(columns)})"
    found = set()
    with copied_session(spark) as session:
        for zone in _ZONES:
            session.conf.set("spark.sql.session.timeZone", zone)
            try:
                found.add(session.sql(query).collect()[0][0])
            except Exception as error:
                if ErrorKind.CANCELLED.matches(error):
                    raise
                return False  # it raises for this row
    return len(found) > 1
