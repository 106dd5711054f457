"""Stage *write*: one commit, marked and numbered, in one of these ways.

*Append* adds the events of a table without keys. *Merge* is a MERGE, which any apply can use.
*Replace* deletes the rows with the keys of the events and adds the new rows (``replaceWhere``). It
reads the table once and only its keys, but takes the keys as a list, gives whole rows, and shows
updates as deletes and inserts to a change feed: it is for small applies to plain tables
(:func:`may_replace`). A *copy* takes the place of all rows: as an overwrite, or, where readers see
which rows change or the table has columns of its own, as a MERGE of what differs
(:mod:`spark_wan.target.difference`). All find rows and write files in one transaction on one
snapshot; only what differs is found before, in an earlier version.

``txnAppId`` is the site, the table's name and the target's ID, ``txnVersion`` the apply number: of
two writers with the same number, Delta lets one through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from spark_wan.apply.change import Change
from spark_wan.delta.dataframes import map_in_arrow, select_columns
from spark_wan.delta.key_list import KeyList
from spark_wan.delta.sessions import copied_session
from spark_wan.delta.sql import IN_LIST, quoted, reference
from spark_wan.events.columns import SchemaJson, char_lengths
from spark_wan.events.operations import OP, Operation
from spark_wan.target.constraints import may_compute_columns
from spark_wan.target.difference import difference
from spark_wan.target.judge import widened
from spark_wan.target.partitions import guarded
from spark_wan.target.rows import EventRows
from spark_wan.topology.values import is_path
from spark_wan.wire.mark import Mark


def write(change: Change, rows: EventRows, commit: MarkedWrite) -> None:
    """Write the rows of a change in the way that fits."""
    rows = replace(rows, frame=guarded(rows.frame, rows.partitioned))
    # Without dropped events, the keys that were listed are those of the rows.
    whole = not change.dead_letters and not change.duplicates
    if change.is_copy:
        if rows.keys and (change.only_differences or not rows.replaceable):
            commit.difference(rows, change.newest.schema)
            change.compared = True
        else:
            commit.overwrite(rows)
    elif not change.newest.keys:
        commit.append(rows)
    elif rows.key_list is not None and rows.replaceable and whole:
        commit.replace(rows, rows.key_list)
    else:
        commit.merge(rows, change.newest.schema)


@dataclass(frozen=True)
class MarkedWrite:
    """A commit to a target, in a session of its own: its settings reach no other write."""

    spark: SparkSession
    location: str
    transaction: str
    """The ``txnAppId``."""
    mark: Mark

    def append(self, rows: EventRows) -> None:
        """Append the events of a table without keys, or none."""
        self._save_all(rows, "append")

    def overwrite(self, rows: EventRows) -> None:
        """Let the rows take the place of all that are there."""
        self._save_all(rows, "overwrite")

    def difference(self, rows: EventRows, schema: SchemaJson) -> None:
        """Let the rows take the place of all that are there, and write only what differs.
        ``schema``: the columns as they travel."""
        chars = char_lengths(schema)
        with (
            self._session_with(rows.frame, "copy") as (session, view),
            difference(session, self.location, rows, view, chars) as (found, number),
        ):
            rows = replace(rows, frame=found, key_list=None)
            self.merge(rows, schema) if number else self.append(rows)

    def replace(self, rows: EventRows, key_list: KeyList) -> None:
        """Replace the rows with the listed keys by those of resolved events, at most one per key.

        ``key_list``: exactly the keys of ``rows``.
        """
        kept = rows.frame.where(F.col(OP) != int(Operation.DESTROY))
        frame = kept.select(*select_columns(rows.columns)).coalesce(1)
        with self._session_with(frame) as (session, view):
            _skip_by_keys(session)
            session.conf.set("spark.databricks.delta.replaceWhere.dataColumns.enabled", "true")
            # Delta checks that each row it writes meets the condition.
            session.conf.set("spark.databricks.delta.replaceWhere.constraintCheck.enabled", "true")
            writer = session.table(view).write.mode("overwrite")
            self._save(writer.option("replaceWhere", key_list.condition()))

    def _save(self, writer: DataFrameWriter) -> None:
        writer = writer.format("delta").option("txnAppId", self.transaction)
        writer = writer.option("txnVersion", self.mark.apply)
        writer = writer.option("userMetadata", self.mark.user_metadata())
        if is_path(self.location):
            writer.save(self.location)
        else:
            writer.saveAsTable(reference(self.location))

    def _save_all(self, rows: EventRows, mode: str) -> None:
        frame = rows.frame.select(*select_columns(rows.columns))
        if rows.constraints is not None:
            frame = _widened(frame, rows.constraints.target.schema)
        with self._session_with(frame) as (session, view):
            self._save(session.table(view).write.mode(mode))

    def merge(self, rows: EventRows, schema: SchemaJson) -> None:
        """Merge resolved events, at most one per key. ``schema``: the columns as they travel."""
        statement = partial(merge_statement, chars=char_lengths(schema), key_list=rows.key_list)
        self._merge(rows, statement)

    def _merge(self, rows: EventRows, statement: Callable[..., str]) -> None:
        """Run a statement of the location, the view with the rows, the keys and the columns."""
        frame = rows.frame
        if rows.constraints is not None:
            frame = _with_not_null(frame, rows.columns, rows.constraints.target.schema)
        with self._session_with(frame) as (session, view):
            session.conf.set("spark.databricks.delta.write.txnAppId", self.transaction)
            session.conf.set("spark.databricks.delta.write.txnVersion", str(self.mark.apply))
            session.conf.set(
                "spark.databricks.delta.commitInfo.userMetadata", self.mark.user_metadata()
            )
            if rows.key_list is not None:
                _skip_by_keys(session)
            session.sql(statement(self.location, view, rows.keys, rows.columns)).collect()

    @contextmanager
    def _session_with(
        self, frame: DataFrame, name: str = "rows"
    ) -> Iterator[tuple[SparkSession, str]]:
        """Yield a session for the write, and the view that has the rows in it."""
        view = f"wan_{name}_{self.mark.token}"
        with copied_session(self.spark) as session:
            # With chars padded while they are read, Delta fails at a condition that has one.
            session.conf.set("spark.sql.readSideCharPadding", "false")
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
    *,
    chars: Mapping[str, int] | None = None,
    key_list: KeyList | None = None,
) -> str:
    """Return the MERGE of resolved events into a table. Only columns that travel are assigned.

    ``chars``: the lengths of char columns. They are compared padded, since the table may store them
    without padding. ``key_list``: the keys of the source, and perhaps more.
    """
    on = _on(keys, chars or {})
    if key_list is not None:
        on += f" AND {key_list.condition('t.')}"
    assigned = _assigned(keys, columns)
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


def _assigned(keys: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return the columns, quoted, that an update assigns."""
    lowered = {key.lower() for key in keys}
    return [quoted(name) for name in columns if name.lower() not in lowered]


def _on(keys: Sequence[str], chars: Mapping[str, int]) -> str:
    """Return the condition that the keys of target ``t`` and source ``s`` are equal."""

    def padded(side: str, key: str) -> str:
        column = f"{side}.{quoted(key)}"
        return f"rpad({column}, {chars[key]}, ' ')" if key in chars else column

    return " AND ".join(f"{padded('t', key)} = {padded('s', key)}" for key in keys)


def is_listable(key_list: KeyList, travelling: StructType, target: StructType) -> bool:
    """Whether the key columns have the same types at the target: literals must have its types."""
    types = {f.name.lower(): f.dataType for f in target}
    return all(travelling[name].dataType == types[name.lower()] for name in key_list.columns)


def may_replace(rows: EventRows, target: StructType, properties: Mapping[str, str]) -> bool:
    """Whether *replace* leaves the table as *merge* would, for its columns and its properties.

    Not if it has columns that do not travel or that Delta computes, or if its readers see which
    rows were updated: in a change feed, or by row IDs.
    """
    tracked = ("delta.enableChangeDataFeed", "delta.enableRowTracking")
    if any(properties.get(name, "").lower() == "true" for name in tracked):
        return False
    if may_compute_columns(properties):
        return False
    types = {f.name: f.dataType.simpleString() for f in rows.frame.schema if f.name in rows.columns}
    return types == {f.name: f.dataType.simpleString() for f in target} and not any(
        "void" in kind for kind in types.values()
    )


def _skip_by_keys(session: SparkSession) -> None:
    """Let Parquet's reader use whole lists of keys: Spark gives it the bounds of longer ones."""
    session.conf.set("spark.sql.parquet.pushdown.inFilterThreshold", str(IN_LIST))


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
