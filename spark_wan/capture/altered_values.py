"""What Delta's batch change feed changes in the values that it returns, and how to prevent it.

The feed converts each row to Java objects and back; reading the table does not. This conversion

- converts dates and timestamps to ``java.sql`` values. These follow the Julian calendar and the
  JVM's time zone: 1582-10-05 to 1582-10-14 become 1582-10-15. With :data:`JAVA_TIME` it converts
  them to ``java.time`` values, which represent all of them exactly;
- converts strings to Java strings, with U+FFFD in place of bytes that are not valid UTF-8. No
  setting prevents this: such strings are refused;
- converts maps to Scala maps, which keep one entry per key. Spark never writes a map with a
  repeated key, other writers may: such maps are refused.

Spark evaluates a filter on the feed before this conversion (and again after it), a projection only
after it. So a filter can find the values that the feed would change: see :func:`refuse`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_wan.delta.dataframes import select_columns
from spark_wan.delta.sessions import temporary_settings
from spark_wan.errors import SOURCE, UnreadableChangeError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

JAVA_TIME = "spark.sql.datetime.java8API.enabled"
ACROSS_SCHEMAS = (
    "spark.databricks.delta.changeDataFeed.unsafeBatchReadOnIncompatibleSchemaChanges.enabled"
)
"""Makes Delta read the feed of a range in which columns changed, by the newest columns."""

_REPLACEMENT = "\ufffd".encode()
_TEXT = re.compile(r"string|(?:var)?char\(\d+\)")
_REFUSED = "spark_wan: refused"
_REFUSAL = re.compile(rf"{_REFUSED} (text|map) (\S*) (\d+)\b")


def feed_settings(spark: SparkSession, *settings: str) -> AbstractContextManager[None]:
    """Enable :data:`JAVA_TIME` and ``settings`` in a thread's session, for one capture."""
    return temporary_settings(spark, dict.fromkeys((JAVA_TIME, *settings), "true"))


def refuse(
    frame: DataFrame, schema: Mapping[str, Any], version: Column, *, text: bool
) -> DataFrame:
    """Return ``frame``, whose job fails at a value that the change feed does not return as it is.

    Args:
        frame: The feed, or the table.
        schema: Its columns that travel, as Spark's schema JSON.
        version: The version that a row belongs to.
        text: Check strings too, not only maps. This reads every string twice: see
            :func:`has_replacements`.
    """
    from pyspark.sql import functions as F

    for place, (field, column) in enumerate(
        zip(schema["fields"], select_columns(_names(schema)), strict=True)
    ):
        for what, holds in _checks(column, field["type"], text):
            message = F.concat(F.lit(f"{_REFUSED} {what} {place} "), version.cast("string"))
            frame = frame.where(F.when(holds, F.lit(True)).otherwise(F.raise_error(message)))
    return frame


def refused(
    error: Exception, table: str, schema: Mapping[str, Any]
) -> UnreadableChangeError | None:
    """Return what the error of a job of :func:`refuse` means; None for any other error."""
    refusal = _REFUSAL.search(str(error))
    if refusal is None:
        return None
    what, place, version = refusal[1], int(refusal[2]), int(refusal[3])
    column = _names(schema)[place]
    if what == "text":
        problem, repair = "text that is not valid UTF-8", "UPDATE … SET c = make_valid_utf8(c)"
    else:
        problem = "a map with a repeated key"
        repair = "rewrite such maps with Spark, which keeps one entry per key"
    return UnreadableChangeError(
        f"{table}: column {column!r} has {problem} in version {version}. Delta's change feed does "
        "not return such values as they are, so the remote sites would differ. Nothing of version "
        f"{version} is sent. Repair the rows ({repair}); the feed keeps the old ones.",
        version,
        needs=SOURCE,
    )


def has_replacements(batch: pa.RecordBatch) -> bool:
    """Whether strings of a batch may have U+FFFD, at any depth. Never false when they have."""
    return any(
        _REPLACEMENT in buffer.to_pybytes()
        for column in batch.columns
        if _has_text(column.type)
        for buffer in column.buffers()
        if buffer is not None
    )


def _names(schema: Mapping[str, Any]) -> list[str]:
    return [field["name"] for field in schema["fields"]]


def _checks(column: Column, kind: Any, text: bool) -> Iterator[tuple[str, Column]]:
    """What to check in a column, and the condition that the feed returns its value as it is.

    The condition is true or false, never null.
    """
    for what in ("text", "map") if text else ("map",):
        if _concerns(kind, what):
            yield what, _holds(column, kind, what)


def _concerns(kind: Any, what: str) -> bool:
    """Whether a type of Spark's schema JSON has text or maps, at any depth."""
    if isinstance(kind, str):
        return what == "text" and _TEXT.fullmatch(kind) is not None
    if kind["type"] == "struct":
        return any(_concerns(field["type"], what) for field in kind["fields"])
    if kind["type"] == "map" and what == "map":
        return True
    return any(
        _concerns(kind[part], what)
        for part in ("elementType", "keyType", "valueType")
        if part in kind
    )


def _holds(column: Column, kind: Any, what: str) -> Column:
    from pyspark.sql import functions as F

    if isinstance(kind, str):
        return F.coalesce(F.is_valid_utf8(column), F.lit(True))
    if kind["type"] == "struct":
        parts = [
            _holds(column.getField(field["name"]), field["type"], what)
            for field in kind["fields"]
            if _concerns(field["type"], what)
        ]
    elif kind["type"] == "array":
        parts = [_all_hold(column, kind["elementType"], what)]
    else:
        keys, values = F.map_keys(column), F.map_values(column)
        sides = ((keys, kind["keyType"]), (values, kind["valueType"]))
        parts = [_all_hold(side, inner, what) for side, inner in sides if _concerns(inner, what)]
        if what == "map":
            parts.append(F.coalesce(F.size(F.array_distinct(keys)) == F.size(keys), F.lit(True)))
    return reduce(and_, parts)


def _all_hold(array: Column, kind: Any, what: str) -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(F.forall(array, lambda element: _holds(element, kind, what)), F.lit(True))


def _has_text(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_text(kind.field(place).type) for place in range(kind.num_fields))
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )
