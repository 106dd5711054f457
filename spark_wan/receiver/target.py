"""A Delta table as a target: frames are read and decoded by tasks; one commit writes them, marked and numbered.

- ``txnAppId`` is the site and the target table's ID, ``txnVersion`` the apply number: of two writers with one number Delta lets one through.
- every write runs in a session of its own, so that these settings reach no other write.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_wan.channels.base import Channel
from spark_wan.columns import as_type, compare
from spark_wan.commits import Commit
from spark_wan.delta import (
    commit_file,
    error_text,
    history,
    is_cancelled,
    is_conflict,
    is_missing,
    literal,
    load,
    needs_column_mapping,
    portable_schema,
    quoted,
    reference,
    schema_json,
    sql_type,
    table_id,
)
from spark_wan.errors import FrameError, SchemaError, TargetError, WanError
from spark_wan.events import ID, LOCAL_ONLY, OP, RESERVED_PREFIX, SEQUENCE, TIME, VERSION, Operation
from spark_wan.ledger_tables import LEDGER_VERSION, LedgerTables
from spark_wan.receiver.apply import Work, WriteConflict
from spark_wan.receiver.ledger import Mark
from spark_wan.receiver.plan import PlannedEpoch
from spark_wan.rowhash import hex_ids, row_hashes
from spark_wan.running import SessionSettings, is_connect, lost_session
from spark_wan.topology import is_path
from spark_wan.wire import EVENTS, FrameRef, decode_frame

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

CONTENT, CAUSE = "_wan_content", "_wan_cause"
_UPCASTS = {
    ("byte", "short"), ("byte", "integer"), ("byte", "long"), ("short", "integer"), ("short", "long"), ("integer", "long"),
    ("float", "double"), ("byte", "double"), ("short", "double"), ("integer", "double"), ("date", "timestamp_ntz"),
}  # fmt: skip
"""Types that a wider target column holds without loss."""


@dataclass
class _Content:
    """The rows of a work: decoded, then resolved; what was persisted for it; what goes to the ledger."""

    rows: DataFrame
    columns: list[str]
    keys: tuple[str, ...]
    persisted: list[DataFrame] = field(default_factory=list)
    dead: DataFrame | None = None
    new_ids: DataFrame | None = None


@dataclass
class DeltaTarget:
    """The applier's view of a Delta table (see :class:`spark_wan.receiver.apply.TargetTable`)."""

    spark: SparkSession
    site: str
    table: str
    location: str
    channel: Channel
    ledger: LedgerTables
    settings: SessionSettings | None = None
    """For the sessions of the writes; None: those of ``spark``."""
    _id: str | None = None
    _end: tuple[int, tuple[int, ...]] | None = None
    """The newest version that the history told of, and what its commit's file looked like then."""

    def table_id(self) -> str | None:
        with self._errors():
            self._id = table_id(self.spark, self.location)
        return self._id

    def history(self, after: int) -> list[Commit]:
        with self._errors():
            commits = history(self.spark, self.location, after, limit=8)
        if commits:
            newest = commits[-1].version
            file = self._commit_file(newest)
            self._end = None if file is None else (newest, file)
        return commits

    def is_unchanged(self, version: int) -> bool:
        return (
            self._end is not None
            and self._end == (version, self._commit_file(version))
            and not os.path.exists(commit_file(self.location, version + 1))
        )

    def _commit_file(self, version: int) -> tuple[int, ...] | None:
        """What tells the file of a commit from another one's in its place; None when there is none, here."""
        try:
            found = os.stat(commit_file(self.location, version))
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def create(self, epoch: PlannedEpoch) -> None:
        from pyspark.sql.types import StructType

        schema = StructType.fromJson(portable_schema(epoch.manifest.schema))
        with self._errors():
            writer = self.spark.createDataFrame([], schema).write.format("delta").mode("ignore")
            # Marked, so that it does not look like somebody's own write to the table.
            writer = writer.option("userMetadata", LOCAL_ONLY)
            if needs_column_mapping(epoch.manifest.schema):
                writer = writer.option("delta.columnMapping.mode", "name")
            if is_path(self.location):
                writer.save(self.location)
            else:
                writer.saveAsTable(self.location)

    def read(self, epochs: Sequence[PlannedEpoch]) -> Work:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructType

        newest = epochs[-1].manifest
        work = Work(epochs, ids=newest.kind == EVENTS)
        with self._errors():
            existing = load(self.spark, self.location)
            added = self._reconcile(schema_json(existing), newest.schema)
            if added:
                self._add_columns(added)
                existing = load(self.spark, self.location)
            schema = StructType.fromJson(portable_schema(newest.schema))
            checks = self._checks(existing, [name.lower() for name in schema.names])
            rows = self._decode(epochs, schema, all_of_a_key=checks is not None)
            if checks is not None:
                rows = rows.withColumn(CAUSE, F.when(F.col(OP) != int(Operation.DESTROY), checks))
            work.content = _Content(rows, schema.names, newest.keys)
        return work

    def resolve(self, work: Work) -> None:
        from pyspark.sql import functions as F

        content: _Content = work.content
        newest = work.epochs[-1].manifest
        with self._errors():
            if work.ids:
                self._drop_known_events(work)
            constrained = CAUSE in content.rows.columns
            if constrained:
                # Before one row per key is chosen: a bad row must not take a good, older one with it.
                checked = self._persist(content, content.rows)
                bad = checked.where(F.col(CAUSE).isNotNull())
                self._add_dead(content, bad)
                content.rows = checked.where(F.col(CAUSE).isNull()).drop(CAUSE)
            if newest.keys and (constrained or len(work.epochs) > 1 or not newest.disjoint):
                content.rows = _newest_per_key(content.rows, newest.keys, work.ids)
            if content.dead is not None:
                content.dead = self._persist(content, content.dead)
                work.dead_letters = content.dead.count()

    def record(self, work: Work, apply: int, token: str) -> None:
        from pyspark.sql import functions as F

        content: _Content = work.content
        manifest = work.epochs[-1].manifest
        with self._errors():
            if content.new_ids is not None:
                self.ledger.append_frame(
                    "event_ids",
                    content.new_ids.select(
                        F.lit(LEDGER_VERSION).alias("version"),
                        F.lit(self.table).alias("table"),
                        F.lit(manifest.origin).alias("origin"),
                        F.col(ID).alias("event_id"),
                        F.col(CONTENT).alias("content"),
                        F.col(TIME).alias("time"),
                        F.lit(token).alias("token"),
                    ),
                )
            if content.dead is not None and work.dead_letters:
                self.ledger.append_frame(
                    "dead_letters", self._letters(content, manifest.stream, manifest.table_id, token)
                )

    def write(self, work: Work, mark: Mark) -> None:
        content: _Content = work.content
        keys = work.epochs[-1].manifest.keys
        if self._id is None:
            self.table_id()  # another stream's receiver made the ledger known
        transaction = f"spark_wan/{self.site}/{self._id}"
        with self._errors():
            if keys:
                self._merge(content, keys, mark, transaction)
            else:
                writer = (
                    content.rows.select(*(quoted(name) for name in content.columns))
                    .write.format("delta")
                    .mode("append")
                )
                writer = writer.option("txnAppId", transaction).option("txnVersion", mark.apply)
                writer = writer.option("userMetadata", mark.user_metadata())
                if is_path(self.location):
                    writer.save(self.location)
                else:
                    writer.saveAsTable(self.location)

    def _merge(self, content: _Content, keys: Sequence[str], mark: Mark, transaction: str) -> None:
        view = f"wan_{mark.token}"
        with own_session(self.spark, self.settings) as session:
            content.rows.createOrReplaceGlobalTempView(view)
            try:
                session.conf.set("spark.databricks.delta.write.txnAppId", transaction)
                session.conf.set("spark.databricks.delta.write.txnVersion", str(mark.apply))
                session.conf.set("spark.databricks.delta.commitInfo.userMetadata", mark.user_metadata())
                session.sql(merge_statement(self.location, f"global_temp.{view}", keys, content.columns)).collect()
            finally:
                self.spark.catalog.dropGlobalTempView(view)

    def done(self, work: Work) -> None:
        for frame in work.content.persisted:
            frame.unpersist()

    def check_frames(self, epoch: PlannedEpoch) -> None:
        for ref in epoch.manifest.frames:
            decode_frame(self.channel.get_frame(ref.path), f"{self.channel.url}/{ref.path}", ref)

    def _reconcile(self, existing: Mapping[str, Any], travelling: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The columns that the target lacks. Raises SchemaError for those that cannot be reconciled by name."""
        change = compare(existing, travelling)
        types = {entry["name"].lower(): entry["type"] for entry in existing["fields"]}
        new = {entry["name"].lower(): entry["type"] for entry in travelling["fields"]}
        clashes = [
            (name, old, now)
            for name, old, now in change.retyped
            if not (
                _same_base(types[name.lower()], new[name.lower()])
                or (new[name.lower()], types[name.lower()]) in _UPCASTS
            )
        ]
        if clashes:
            what = "; ".join(f"{name} is {old} here and {now} at the origin" for name, old, now in clashes)
            raise SchemaError(
                f"{self.table}: columns at site {self.site} cannot be reconciled: {what}. The stream is held. Change the column's type "
                "here (ALTER TABLE … ALTER COLUMN … TYPE), or give this site a full copy."
            )
        return list(change.added)

    def _add_columns(self, added: Sequence[Mapping[str, Any]]) -> None:
        columns = ", ".join(f"{quoted(entry['name'])} {sql_type(entry['type'])}" for entry in added)
        try:
            self.spark.sql(f"ALTER TABLE {reference(self.location)} ADD COLUMNS ({columns})").collect()
        except Exception as error:
            if "FIELD_ALREADY_EXISTS" not in str(error) and "already exists" not in str(error):
                raise

    def _checks(self, existing: DataFrame, travelling: Sequence[str]) -> Column | None:
        """The first constraint of the target that a row breaks, as text, or null; None when the target has no constraint."""
        from pyspark.sql import functions as F

        conditions: list[tuple[str, Column]] = []
        for entry in existing.schema.fields:
            if not entry.nullable:
                broken = F.col(quoted(entry.name)).isNull() if entry.name.lower() in travelling else F.lit(True)
                conditions.append((f"null in NOT NULL column {entry.name}", broken))
        rows = self.spark.sql(f"SHOW TBLPROPERTIES {reference(self.location)}").collect()
        for row in rows:
            if row[0].startswith("delta.constraints."):
                holds = F.coalesce(F.expr(row[1]), F.lit(False))
                conditions.append((f"CHECK {row[0].removeprefix('delta.constraints.')}: {row[1]}", ~holds))
        if not conditions:
            return None
        return F.coalesce(*(F.when(broken, F.lit(cause)) for cause, broken in conditions))

    def _decode(self, epochs: Sequence[PlannedEpoch], schema: Any, all_of_a_key: bool) -> DataFrame:
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import ByteType, LongType, StringType, StructField, StructType

        newest = epochs[-1].manifest
        extra = [StructField(OP, ByteType()), StructField(VERSION, LongType())]
        if newest.kind == EVENTS:
            extra += [StructField(ID, StringType()), StructField(SEQUENCE, LongType()), StructField(TIME, LongType())]
            extra.append(StructField(CONTENT, StringType()))
        full = StructType([*extra, *schema.fields])
        keys = () if all_of_a_key or newest.kind == EVENTS else newest.keys
        task = _DecodeTask(self.channel, keys, to_arrow_schema(full, timezone="UTC"), newest.kind == EVENTS)
        refs = [
            (ref.path, ref.rows, ref.bytes, ref.checksum, epoch.above, epoch.manifest.number)
            for epoch in epochs
            for ref in epoch.manifest.frames
        ]
        listed = self.spark.createDataFrame(
            refs, "path string, rows bigint, bytes bigint, checksum bigint, above bigint, number bigint"
        )
        return listed.mapInArrow(task, full)

    def _drop_known_events(self, work: Work) -> None:
        """Events of a user's stream that took effect before are dropped; the same ID with other content is a dead letter."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        content: _Content = work.content
        rows = self._persist(content, content.rows)
        origin = work.epochs[-1].manifest.origin
        marked = self.ledger.read("applied").where(F.col("table") == self.table).select("token").distinct()
        known = (
            self.ledger.read("event_ids")
            .where((F.col("table") == self.table) & (F.col("origin") == origin))
            .join(marked, "token", "left_semi")
            .groupBy(F.col("event_id").alias(ID))
            .agg(F.min("content").alias("_wan_known"))
        )
        first = Window.partitionBy(ID).orderBy(VERSION, SEQUENCE, CONTENT)
        judged = (
            rows.join(known, ID, "left")
            .withColumn("_wan_nth", F.row_number().over(first))
            .withColumn("_wan_first", F.coalesce("_wan_known", F.first(CONTENT).over(first)))
        )
        judged = self._persist(content, judged)
        fresh = F.col("_wan_known").isNull() & (F.col("_wan_nth") == 1)
        again = ~fresh & (F.col(CONTENT) == F.col("_wan_first"))
        floor = self._floor(origin)
        below = F.lit(False) if floor is None else fresh & F.col(TIME).isNotNull() & (F.col(TIME) <= floor)
        helpers = ("_wan_known", "_wan_nth", "_wan_first")
        work.duplicates = judged.where(again).count()
        other = judged.where(~fresh & ~again).withColumn(CAUSE, F.lit("event ID used again with other content"))
        late = judged.where(below).withColumn(
            CAUSE, F.lit("older than the event IDs that are kept: cannot be told from a replay")
        )
        for bad in (other, late):
            self._add_dead(content, bad.drop(*helpers))
        content.rows = judged.where(fresh & ~below).drop(*helpers)
        content.new_ids = content.rows.select(ID, CONTENT, TIME)

    def _floor(self, origin: str) -> int | None:
        """Event IDs of events at or before this time (microseconds) may have been removed; None: none were."""
        from pyspark.sql import functions as F

        floors = self.ledger.read("event_ids").where(
            (F.col("table") == self.table) & (F.col("origin") == origin) & F.col("event_id").isNull()
        )
        found = floors.agg(F.max("time")).collect()[0][0]
        return int(found) if found is not None else None

    def expire_event_ids(self, origin: str, before: int) -> None:
        """Forget event IDs with an event time at or before ``before`` (microseconds since 1970 UTC). What comes later with such a time is
        a dead letter: it cannot be told from a replay. The floor is durable before the first ID goes."""
        floor = {"table": self.table, "origin": origin, "event_id": None, "time": before, "token": "floor"}
        location = reference(self.ledger.location("event_ids"))
        with self._errors():
            self.ledger.append("event_ids", [floor])
            self.spark.sql(
                f"DELETE FROM {location} WHERE `table` = {literal(self.table)} AND origin = {literal(origin)} "
                f"AND event_id IS NOT NULL AND time <= {int(before)}"
            ).collect()

    def _persist(self, content: _Content, frame: DataFrame) -> DataFrame:
        kept = frame.persist()
        content.persisted.append(kept)
        return kept

    def _add_dead(self, content: _Content, bad: DataFrame) -> None:
        content.dead = bad if content.dead is None else content.dead.unionByName(bad, allowMissingColumns=True)

    def _letters(self, content: _Content, stream: str, origin_table: str, token: str) -> DataFrame:
        from pyspark.sql import functions as F

        assert content.dead is not None
        dead = content.dead
        values = F.to_json(F.struct(*(F.col(quoted(name)) for name in content.columns)), {"ignoreNullFields": "false"})
        if ID in dead.columns:
            event_id = F.col(ID)
        else:
            event_id = F.md5(F.concat_ws("/", F.lit(origin_table), F.col(VERSION).cast("string"), values))
        names = F.element_at(F.array(*(F.lit(op.name.lower()) for op in Operation)), F.col(OP).cast("int") + 1)
        key = (
            F.to_json(F.struct(*(F.col(quoted(name)) for name in content.keys)))
            if content.keys
            else F.lit(None).cast("string")
        )
        return dead.select(
            F.lit(LEDGER_VERSION).alias("version"),
            F.lit("receiver").alias("side"),
            F.lit(self.table).alias("table"),
            F.lit(stream).alias("stream"),
            event_id.alias("event_id"),
            F.col(VERSION).alias("origin_version"),
            names.alias("operation"),
            key.alias("key"),
            F.col(CAUSE).alias("cause"),
            values.alias("row"),
            F.lit(None).cast("binary").alias("payload"),
            F.lit(token).alias("token"),
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (WanError, WriteConflict):
            raise
        except Exception as error:
            if is_cancelled(error) or lost_session(self.spark) is not None:
                raise
            if is_conflict(error):
                raise WriteConflict(error_text(error)) from error
            if "FrameError" in str(error):
                # Raised inside a task: the caller checks the frames one by one and names the bad one.
                raise FrameError(error_text(error)) from error
            what = "is missing" if is_missing(error) else "cannot be read or written now"
            raise TargetError(
                f"{self.table}: the table at site {self.site} ({self.location}) {what}: {error_text(error)}. It is tried again."
            ) from error


def merge_statement(location: str, source: str, keys: Sequence[str], columns: Sequence[str]) -> str:
    """The MERGE of resolved events (one row per key) into a table. Only the columns that travelled are assigned."""
    on = " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in keys)
    lowered = {key.lower() for key in keys}
    values = [name for name in columns if name.lower() not in lowered]
    destroy = int(Operation.DESTROY)
    statement = (
        f"MERGE INTO {reference(location)} t USING {source} s ON {on} WHEN MATCHED AND s.{OP} = {destroy} THEN DELETE "
    )
    if values:
        statement += "WHEN MATCHED THEN UPDATE SET " + ", ".join(f"t.{quoted(c)} = s.{quoted(c)}" for c in values) + " "
    names = ", ".join(quoted(name) for name in columns)
    inserted = ", ".join(f"s.{quoted(name)}" for name in columns)
    return statement + f"WHEN NOT MATCHED AND s.{OP} <> {destroy} THEN INSERT ({names}) VALUES ({inserted})"


@contextmanager
def own_session(spark: SparkSession, settings: SessionSettings | None) -> Iterator[SparkSession]:
    """A session whose settings reach no other write, classic or Connect."""
    if is_connect(spark):
        session: Any = spark.cloneSession()  # type: ignore[attr-defined]
        try:
            yield session
        finally:
            session.client.release_session()
            session.client.close()
    else:
        yield (settings or SessionSettings.of(spark)).new_session(spark)


def _newest_per_key(rows: DataFrame, keys: Sequence[str], user: bool) -> DataFrame:
    """One row per key: the highest version, and the highest sequence within it. Never by arrival."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order = [F.col(VERSION).desc()]
    if user:
        order += [F.col(SEQUENCE).desc(), F.col(ID).desc()]
    window = Window.partitionBy(*(F.col(quoted(key)) for key in keys)).orderBy(*order)
    return rows.withColumn("_wan_place", F.row_number().over(window)).where("_wan_place = 1").drop("_wan_place")


def _same_base(one: Any, other: Any) -> bool:
    """Equal but for what a char or varchar declares."""
    return bool(one == other) and isinstance(one, str)


@dataclass(frozen=True)
class _DecodeTask:
    """What a Spark task does with frame references: fetch, check, decode, and give the rows Spark's exact types."""

    channel: Channel
    keys: tuple[str, ...]
    """Of captured rows of one key in a frame only the last is given; none: all are."""
    schema: pa.Schema
    user: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for entry in batch.to_pylist():
                above, number = entry.pop("above"), entry.pop("number")
                ref = FrameRef(**entry)
                where = f"{self.channel.url}/{ref.path}"
                _, events = decode_frame(self.channel.get_frame(ref.path), where, ref)
                if self.user:
                    events = self._identified(events, number)
                elif above >= 0:
                    events = events.filter(pc.greater(events.column(VERSION), above))
                if self.keys:
                    events = _last_of_runs(events, self.keys)
                if events.num_rows:
                    yield self._typed(events)

    def _identified(self, events: pa.RecordBatch, number: int) -> pa.RecordBatch:
        """A user's events: their epoch stands for the version; their content hash recognises an ID that is used again."""
        content = [name for name in events.schema.names if not name.startswith(RESERVED_PREFIX)]
        hashes = hex_ids(row_hashes(events, [OP, *content]))
        events = events.append_column(VERSION, pa.array(np.full(events.num_rows, number, np.int64)))
        return events.append_column(CONTENT, hashes)

    def _typed(self, events: pa.RecordBatch) -> pa.RecordBatch:
        places = {name.lower(): place for place, name in enumerate(events.schema.names)}
        columns = []
        for wanted in self.schema:
            place = places.get(wanted.name.lower())
            if place is None:
                columns.append(pa.nulls(events.num_rows, wanted.type))
            else:
                columns.append(as_type(events.column(place), wanted.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _last_of_runs(events: pa.RecordBatch, keys: Sequence[str]) -> pa.RecordBatch:
    """Of rows of one key that stand together (a captured frame is sorted by key and version) the last one."""
    if events.num_rows < 2:
        return events
    changed = np.zeros(events.num_rows, bool)
    changed[-1] = True
    for key in keys:
        column = events.column(key)
        differs = pc.not_equal(column.slice(1), column.slice(0, events.num_rows - 1))
        changed[:-1] |= differs.to_numpy(zero_copy_only=False)
    return events if changed.all() else events.filter(pa.array(changed))
