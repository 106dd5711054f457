"""Values that a partition column cannot store.

Delta keeps the value of a partition as text in its log, and names a folder after it. So in a
partition column, text and bytes that are empty or equal to Hive's name for NULL become NULL, bytes
that are not valid UTF-8 and timestamps before the year 1 become others, all silently; and a write
fails at what cannot be the name of a folder: text with NUL, or too long a text.

A write raises at the first of them (:func:`guarded`), which costs nothing. The apply is then done
again, and such rows become dead letters, as those that a constraint refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import takewhile
from operator import or_

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, TimestampType

from spark_wan.delta.errors import UNSTORABLE
from spark_wan.delta.sql import quoted
from spark_wan.delta.tables import table_detail
from spark_wan.events.operations import OP, Operation
from spark_wan.ledger.interfaces import TargetName

LONGEST_NAME = 255
"""Bytes of a folder's name, at most, in nearly all file systems."""
LONGEST_KEY = 768
"""The same in an object store: a key has at most 1,024 bytes, and names the path, too."""
_STORES = ("s3", "gs", "abfs", "wasb", "az")
"""How the URLs of object stores begin."""
_NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = r"""[\x00-\x1f"#%'*/:=?\\\x7f{\[\]^]"""
"""The characters of a value that Spark writes as three in the name of a folder."""


def partition_columns(spark: SparkSession, name: TargetName) -> list[str]:
    """Return the columns by which a table is partitioned."""
    rows = [row[0] for row in spark.sql(f"DESCRIBE TABLE {name.sql_name}").collect()]
    heading = ["# Partition Information", "# col_name"]
    places = [at for at in range(len(rows)) if rows[at : at + 2] == heading]
    if not places:
        return []
    # Names above the heading are written as they are, those below it as SQL needs them.
    return [_unquoted(row) for row in takewhile(lambda row: row != "", rows[places[-1] + 2 :])]


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def longest_folder(spark: SparkSession, location: str, properties: Mapping[str, str]) -> int | None:
    """Return how many bytes the names of a table's folders may have. None: the values of partitions
    are no names of folders, since Delta chooses others with column mapping."""
    if properties.get("delta.columnMapping.mode", "none").lower() != "none":
        return None
    url = str(table_detail(spark, location, "location"))
    return LONGEST_KEY if url.startswith(_STORES) else LONGEST_NAME


def guarded(rows: DataFrame, partitioned: Sequence[str]) -> DataFrame:
    """Return events whose query fails at a value that a partition column cannot store."""
    if not partitioned:
        return rows
    names = {name.lower() for name in partitioned}
    return rows.select(
        *(
            _guarded(field).alias(field.name)
            if field.name.lower() in names
            else F.col(quoted(field.name))
            for field in rows.schema.fields
        )
    )


def _guarded(field: StructField) -> Column:
    value = F.col(quoted(field.name))
    lost = [broken for _, broken in _lost(field.dataType, value)]
    if not lost:
        return value
    stored = F.col(OP) != int(Operation.DESTROY)
    unstored = stored & F.coalesce(reduce(or_, lost), F.lit(False))
    message = F.lit(f"{UNSTORABLE} {field.name}")
    return F.when(unstored, F.raise_error(message)).otherwise(value)


def unstorable(name: str, kind: DataType, longest: int | None) -> Iterator[tuple[str, Column]]:
    """Yield why a partition column cannot store a value, and whether a row has such a value.

    ``longest``: of the names of folders (:func:`longest_folder`).
    """
    value = F.col(quoted(name))
    for what, broken in _lost(kind, value):
        yield f"partition column {name} cannot store {what}", broken
    if longest is not None and isinstance(kind, (StringType, BinaryType)):
        text = value.cast("string")
        folder = F.regexp_replace(text, _ESCAPED, "%00")
        room = longest - len(re.sub(_ESCAPED, "%00", name).encode()) - len("=")
        yield f"partition column {name} cannot store NUL", F.contains(text, F.lit("\0"))
        yield (
            f"partition column {name} cannot store more than {room} bytes",
            F.octet_length(folder) > room,
        )


def _lost(kind: DataType, value: Column) -> Iterator[tuple[str, Column]]:
    """Yield the values that would silently become others."""
    if isinstance(kind, (StringType, BinaryType)):
        text = value.cast("string")
        yield "an empty value", F.octet_length(value) == 0
        yield f"the value {_NULL}", text == _NULL
        yield "what is not valid UTF-8", ~F.is_valid_utf8(text)
    elif isinstance(kind, TimestampType):
        yield "a timestamp before the year 1", value < F.lit("0001-01-01 00:00:00Z").cast(kind)
