"""The write of an apply: one commit, marked and numbered.

``txnAppId`` is the site, the table's name and the target's ID, ``txnVersion`` the apply number: of
two writers with the same number, Delta lets one through.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from spark_wan.delta.dataframes import map_in_arrow, select_columns
from spark_wan.delta.sessions import SessionSettings, cloned_session, is_connect
from spark_wan.delta.sql import quoted, reference
from spark_wan.events.columns import CHAR_VARCHAR, SchemaJson
from spark_wan.events.operations import OP, Operation
from spark_wan.receiver.judge import widened
from spark_wan.receiver.rows import EventRows
from spark_wan.topology.values import is_path
from spark_wan.wire.mark import Mark


@dataclass(frozen=True)
class MarkedWrite:
    """A commit to a target, in a session of its own: its settings reach no other write."""

    spark: SparkSession
    settings: SessionSettings | None
    """For that session; None: those of ``spark``."""
    location: str
    transaction: str
    """The ``txnAppId``."""
    mark: Mark

    def append(self, rows: EventRows) -> None:
        """Append the events of a table without keys."""
        frame = rows.frame.select(*select_columns(rows.columns))
        if rows.constraints is not None:
            frame = _widened(frame, rows.constraints.target.schema)
        with self._session_with(frame) as (session, view):
            writer = session.table(view).write.format("delta").mode("append")
            writer = writer.option("txnAppId", self.transaction).option(
                "txnVersion", self.mark.apply
            )
            writer = writer.option("userMetadata", self.mark.user_metadata())
            if is_path(self.location):
                writer.save(self.location)
            else:
                writer.saveAsTable(reference(self.location))

    def merge(self, rows: EventRows, schema: SchemaJson) -> None:
        """Merge resolved events, at most one per key. ``schema``: the columns as they travel."""
        frame = rows.frame
        if rows.constraints is not None:
            frame = _with_not_null(frame, rows.columns, rows.constraints.target.schema)
        with self._session_with(frame) as (session, view):
            session.conf.set("spark.databricks.delta.write.txnAppId", self.transaction)
            session.conf.set("spark.databricks.delta.write.txnVersion", str(self.mark.apply))
            session.conf.set(
                "spark.databricks.delta.commitInfo.userMetadata", self.mark.user_metadata()
            )
            session.sql(
                merge_statement(self.location, view, rows.keys, rows.columns, char_lengths(schema))
            ).collect()

    @contextmanager
    def _session_with(self, frame: DataFrame) -> Iterator[tuple[SparkSession, str]]:
        """Yield a session for the write, and the view that has the rows in it."""
        view = f"wan_{self.mark.token}"
        if is_connect(self.spark):
            opened: AbstractContextManager[SparkSession] = cloned_session(self.spark)
        else:
            settings = self.settings or SessionSettings.of(self.spark)
            opened = nullcontext(settings.new_session(self.spark))
        with opened as session:
            _keep_values_exact(session)
            frame.createOrReplaceGlobalTempView(view)
            try:
                yield session, f"global_temp.{view}"
            finally:
                self.spark.catalog.dropGlobalTempView(view)


def merge_statement(
    location: str,
    source: str,
    keys: Sequence[str],
    columns: Sequence[str],
    chars: Mapping[str, int] | None = None,
) -> str:
    """Return the MERGE of resolved events into a table. Only columns that travel are assigned.

    ``chars``: the lengths of char columns. They are compared padded, since the table may store them
    without padding.
    """
    lengths = chars or {}

    def padded(side: str, key: str) -> str:
        column = f"{side}.{quoted(key)}"
        return f"rpad({column}, {lengths[key]}, ' ')" if key in lengths else column

    on = " AND ".join(f"{padded('t', key)} = {padded('s', key)}" for key in keys)
    lowered = {key.lower() for key in keys}
    assigned = [quoted(name) for name in columns if name.lower() not in lowered]
    updates = ", ".join(f"t.{name} = s.{name}" for name in assigned)
    names = [quoted(name) for name in columns]
    destroy = int(Operation.DESTROY)
    clauses = [
        f"MERGE INTO {reference(location)} t USING {source} s ON {on}",
        f"WHEN MATCHED AND s.{OP} = {destroy} THEN DELETE",
        f"WHEN MATCHED THEN UPDATE SET {updates}" if updates else "",
        f"WHEN NOT MATCHED AND s.{OP} <> {destroy} THEN INSERT ({', '.join(names)})",
        f"VALUES ({', '.join(f's.{name}' for name in names)})",
    ]
    return " ".join(filter(None, clauses))


def char_lengths(schema: SchemaJson) -> dict[str, int]:
    """Return the lengths of char columns, by name.

    >>> metadata = {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}
    >>> char_lengths({"fields": [{"name": "code", "type": "string", "metadata": metadata}]})
    {'code': 5}
    """
    declared = (
        (entry["name"], (entry.get("metadata") or {}).get(CHAR_VARCHAR, ""))
        for entry in schema["fields"]
    )
    matches = ((name, re.fullmatch(r"char\((\d+)\)", text)) for name, text in declared)
    return {name: int(match[1]) for name, match in matches if match is not None}


def _keep_values_exact(session: SparkSession) -> None:
    """Change the settings of a session so that a write keeps every value.

    Files in the format of old Spark versions have other dates and milliseconds. With chars padded
    while they are read, Delta fails at a MERGE whose condition has a char.
    """
    session.conf.set("spark.sql.readSideCharPadding", "false")
    for name in (
        "spark.sql.parquet.datetimeRebaseModeInWrite",
        "spark.sql.parquet.int96RebaseModeInWrite",
    ):
        session.conf.set(name, "CORRECTED")
    if session.conf.get("spark.sql.parquet.outputTimestampType") == "TIMESTAMP_MILLIS":
        session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")


def _widened(rows: DataFrame, target: StructType) -> DataFrame:
    """Cast rows to the target's types: an append does not cast columns that a constraint uses."""
    types = {f.name.lower(): f.dataType for f in target.fields}
    return rows.select(
        *(
            widened(F.col(quoted(f.name)), f.dataType, types[f.name.lower()]).alias(f.name)
            for f in rows.schema.fields
        )
    )


def _with_not_null(rows: DataFrame, columns: Sequence[str], target: StructType) -> DataFrame:
    """Declare fields and elements NOT NULL where the target's are, as MERGE demands.

    All travel as nullable. Rows were judged, so none is null except in a destroy, whose values are
    not written.
    """
    types = {f.name.lower(): f.dataType for f in target.fields}
    strict = {name for name in columns if _has_not_null(types[name.lower()])}
    if not strict:
        return rows
    schema = StructType(
        [
            StructField(f.name, _strict(f.dataType, types[f.name.lower()]))
            if f.name in strict
            else StructField(f.name, f.dataType)
            for f in rows.schema
        ]
    )
    written = F.col(OP) != int(Operation.DESTROY)
    values = (
        F.when(written, column).alias(name) if name in strict else column
        for name, column in zip(rows.columns, select_columns(rows.columns), strict=True)
    )
    return map_in_arrow(rows.select(*values), _unchanged, schema)


def _has_not_null(kind: DataType) -> bool:
    """Whether something inside a type must not be null."""
    text = kind.json()
    flags = ("nullable", "containsNull", "valueContainsNull")
    return any(f'"{flag}":false' in text for flag in flags)


def _strict(kind: DataType, target: DataType) -> DataType:
    """Return a type, with its fields in their order, with NOT NULL where ``target`` has it."""
    if isinstance(kind, StructType) and isinstance(target, StructType):
        theirs = {f.name.lower(): f for f in target.fields}
        return StructType(
            [
                StructField(f.name, _strict(f.dataType, own.dataType), own.nullable)
                if (own := theirs.get(f.name.lower())) is not None
                else f
                for f in kind.fields
            ]
        )
    if isinstance(kind, ArrayType) and isinstance(target, ArrayType):
        return ArrayType(_strict(kind.elementType, target.elementType), target.containsNull)
    if isinstance(kind, MapType) and isinstance(target, MapType):
        return MapType(
            _strict(kind.keyType, target.keyType),
            _strict(kind.valueType, target.valueType),
            target.valueContainsNull,
        )
    return kind


def _unchanged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
