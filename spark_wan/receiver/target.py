"""A Delta table as a target: frames are read and decoded by tasks; one commit writes them, marked and numbered.

- ``txnAppId`` is the site, the table's name and the target table's ID, ``txnVersion`` the apply number: of two writers with one number Delta lets one through.
- every write runs in a session of its own, so that these settings reach no other write.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_wan.channels.base import Channel
from spark_wan.delta.commits import Commit
from spark_wan.delta.dataframes import map_in_arrow, schema_json
from spark_wan.delta.errors import ErrorKind, error_text
from spark_wan.delta.log_files import commit_file, commit_identity, last_transaction, logged_schema
from spark_wan.delta.schema import needs_column_mapping, portable_schema
from spark_wan.delta.sessions import SessionSettings, cloned_session, is_connect, lost_session
from spark_wan.delta.sql import literal, quoted, reference, sql_type
from spark_wan.delta.tables import history, load, log_retention, table_id
from spark_wan.errors import DeadLettersError, FrameError, SchemaError, TargetError, WanError, anew
from spark_wan.events.columns import CHAR_VARCHAR, Path, arrow_ready, as_type
from spark_wan.events.operations import ID, OP, RESERVED_PREFIX, SEQUENCE, TIME, VERSION, Operation
from spark_wan.events.row_hash import hex_ids, row_hashes
from spark_wan.ledger.applied_columns import AppliedColumns
from spark_wan.ledger.ledger import transaction_name
from spark_wan.ledger.tables import LEDGER_VERSION, LedgerTables
from spark_wan.receiver.apply import ApplyWork, WriteConflict
from spark_wan.receiver.constraints import CAUSE, Constraints, constraints_of
from spark_wan.receiver.plan import PlannedEpoch
from spark_wan.receiver.reconcile import Changes, fitted, reconcile
from spark_wan.topology.model import MAX_DEAD_LETTERS
from spark_wan.topology.values import is_path
from spark_wan.wire.frame import FrameRef, decode_frame
from spark_wan.wire.manifest import EVENTS
from spark_wan.wire.mark import LOCAL_ONLY, Mark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

log = logging.getLogger(__name__)

RETENTION_INTERVAL = 86_400.0
"""Seconds between two times at which Spark is asked how long a table's log keeps its commits."""

CONTENT = "_wan_content"
_EXACT = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""How rows become JSON: with nulls, in UTC, and to the microsecond."""
_PAYLOAD, _HASH = "_wan_payload", "_wan_hash"
_ALTERS = 5
"""So often a target's columns may change under an apply before it begins again."""


@dataclass
class _Content:
    """The rows of a work: decoded, then resolved; what was persisted for it; what goes to the ledger."""

    rows: DataFrame
    columns: list[str]
    keys: tuple[str, ...]
    persisted: list[DataFrame] = field(default_factory=list)
    dead: DataFrame | None = None
    new_ids: DataFrame | None = None
    constraints: Constraints | None = None


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
    max_dead_letters: int = MAX_DEAD_LETTERS
    _id: str | None = None
    _end: tuple[int, tuple[int, ...]] | None = None
    """The newest version that the history told of, and what its commit's file looked like then."""
    _retention: tuple[float, int] | None = None
    """When the log's retention was asked for, and what it was."""
    _logged: tuple[object, dict[str, Any]] | None = None
    """The columns as the table's log has them, and those as Spark showed them then."""
    _refused: bool = False
    """The table has refused a row of the last write: nothing is taken for granted in the next."""

    def table_id(self) -> str | None:
        with self._errors():
            self._id = table_id(self.spark, self.location)
        return self._id

    def history(self, after: int) -> list[Commit]:
        with self._errors():
            commits = history(self.spark, self.location, after, limit=8)
        if commits:
            newest = commits[-1].version
            file = commit_identity(self.location, newest)
            self._end = None if file is None else (newest, file)
        return commits

    def is_unchanged(self, version: int) -> bool:
        return (
            self._end is not None
            and self._end == (version, commit_identity(self.location, version))
            and not os.path.exists(commit_file(self.location, version + 1))
        )

    def log_retention(self) -> int:
        if self._retention is None or time.monotonic() - self._retention[0] > RETENTION_INTERVAL:
            with self._errors():
                self._retention = time.monotonic(), log_retention(self.spark, self.location)
        return self._retention[1]

    def last_transaction(self, name: str) -> int | None:
        try:
            return last_transaction(self.spark, self.location, name)
        except Exception as error:
            if ErrorKind.CANCELLED.matches(error):
                raise
            # Not everybody may read the files of a catalog's table.
            log.warning(
                "%s: the log's files at %s cannot be read: %s",
                self.table,
                self.location,
                error_text(error),
            )
            return None

    def is_empty(self) -> bool:
        with self._errors():
            return load(self.spark, self.location).isEmpty()

    @property
    def sql_name(self) -> str:
        return reference(self.location)

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
                writer.saveAsTable(reference(self.location))

    def read(self, epochs: Sequence[PlannedEpoch], applied: AppliedColumns) -> ApplyWork:
        from pyspark.sql.types import StructType

        newest = epochs[-1].manifest
        work = ApplyWork(epochs, ids=newest.kind == EVENTS)
        with self._errors():
            existing = self._with_columns(newest.schema, applied, users=work.ids)
            schema = StructType.fromJson(
                portable_schema(fitted(newest.schema, schema_json(existing)))
            )
            constraints = constraints_of(
                self.spark,
                self.table,
                self.site,
                self.location,
                existing,
                schema,
                newest.keys,
                lambda: self._logged_schema(existing),
                lengths=self._refused,
            )
            rows = self._decode(epochs, schema, all_of_a_key=constraints is not None)
            work.content = _Content(rows, schema.names, newest.keys, constraints=constraints)
        return work

    def _logged_schema(self, existing: DataFrame) -> dict[str, Any]:
        shown = (self._id, schema_json(existing))
        if self._logged is None or self._logged[0] != shown or self._refused:
            self._logged = (shown, logged_schema(self.spark, self.location))
        return self._logged[1]

    def resolve(self, work: ApplyWork) -> None:
        from pyspark.sql import functions as F

        content: _Content = work.content
        newest = work.epochs[-1].manifest
        with self._errors():
            if work.ids:
                self._drop_known_events(work)
            constrained = content.constraints is not None
            if content.constraints is not None:
                # Before one row per key is chosen: a bad row must not take a good, older one with it.
                checked, bad = content.constraints.judge(
                    content.rows, lambda frame: self._persist(content, frame)
                )
                if bad:
                    self._add_dead(content, checked.where(F.col(CAUSE).isNotNull()))
                content.rows = checked.where(F.col(CAUSE).isNull()).drop(CAUSE)
            if newest.keys and (constrained or len(work.epochs) > 1 or not newest.disjoint):
                content.rows = _newest_per_key(content.rows, newest.keys, work.ids)
            if content.dead is not None:
                content.dead = self._persist(content, content.dead)
                work.dead_letters = content.dead.count()
                if work.dead_letters > self.max_dead_letters:
                    raise self._too_many(content, work.dead_letters)

    def _too_many(self, content: _Content, count: int) -> DeadLettersError:
        from pyspark.sql import functions as F

        assert content.dead is not None
        causes = (
            content.dead.groupBy(CAUSE).count().orderBy(F.desc("count"), CAUSE).limit(1).collect()
        )
        example = (
            content.dead.where(F.col(CAUSE) == causes[0][0])
            .select(self._key_text(content))
            .limit(1)
            .collect()
        )
        of = f", for example of key {example[0][0]}" if content.keys else ""
        return DeadLettersError(
            f"{self.table}: {count} rows of one epoch cannot be applied at site {self.site}, {causes[0][1]} of them for this cause: "
            f"{causes[0][0]}{of}. So many are no accident: nothing of the epoch is applied or recorded, and the stream is held. If the cause is "
            "a constraint of the table here, drop it or change it; otherwise raise the table's `max_dead_letters` in the topology: such rows "
            "then become dead letters."
        )

    @staticmethod
    def _key_text(content: _Content) -> Column:
        from pyspark.sql import functions as F

        if not content.keys:
            return F.lit(None).cast("string")
        return F.to_json(F.struct(*(F.col(quoted(name)) for name in content.keys)), _EXACT)

    def record(self, work: ApplyWork, apply: int, token: str) -> None:
        from pyspark.sql import functions as F

        content: _Content = work.content
        manifest = work.epochs[-1].manifest
        with self._errors(of_ledger=True):
            if content.new_ids is not None and work.new_ids:
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
                    "dead_letters",
                    self._letters(content, manifest.stream, manifest.table_id, token),
                )

    def write(self, work: ApplyWork, mark: Mark) -> None:
        content: _Content = work.content
        keys = work.epochs[-1].manifest.keys
        if self._id is None:
            self.table_id()  # another stream's receiver made the ledger known
        transaction = transaction_name(self.site, self.table, str(self._id))
        with self._errors():
            if keys:
                self._merge(
                    content, keys, char_lengths(work.epochs[-1].manifest.schema), mark, transaction
                )
            else:
                self._append(content, mark, transaction)
        self._refused = False

    def _append(self, content: _Content, mark: Mark, transaction: str) -> None:
        view = f"wan_{mark.token}"
        rows = content.rows.select(*(quoted(name) for name in content.columns))
        if content.constraints is not None:
            rows = content.constraints.widened(rows, content.columns)
        with own_session(self.spark, self.settings) as session:
            rows.createOrReplaceGlobalTempView(view)
            try:
                writer = session.table(f"global_temp.{view}").write.format("delta").mode("append")
                writer = writer.option("txnAppId", transaction).option("txnVersion", mark.apply)
                writer = writer.option("userMetadata", mark.user_metadata())
                if is_path(self.location):
                    writer.save(self.location)
                else:
                    writer.saveAsTable(reference(self.location))
            finally:
                self.spark.catalog.dropGlobalTempView(view)

    def _merge(
        self,
        content: _Content,
        keys: Sequence[str],
        chars: Mapping[str, int],
        mark: Mark,
        transaction: str,
    ) -> None:
        view = f"wan_{mark.token}"
        rows = content.rows
        if content.constraints is not None:
            rows = content.constraints.declared(rows, content.columns)
        with own_session(self.spark, self.settings) as session:
            rows.createOrReplaceGlobalTempView(view)
            try:
                session.conf.set("spark.databricks.delta.write.txnAppId", transaction)
                session.conf.set("spark.databricks.delta.write.txnVersion", str(mark.apply))
                session.conf.set(
                    "spark.databricks.delta.commitInfo.userMetadata", mark.user_metadata()
                )
                source = f"global_temp.{view}"
                session.sql(
                    merge_statement(self.location, source, keys, content.columns, chars)
                ).collect()
            finally:
                self.spark.catalog.dropGlobalTempView(view)

    def done(self, work: ApplyWork) -> None:
        for frame in work.content.persisted:
            frame.unpersist()

    def check_frames(self, epoch: PlannedEpoch) -> None:
        for ref in epoch.manifest.frames:
            decode_frame(self.channel.get_frame(ref.path), f"{self.channel.url}/{ref.path}", ref)

    def _with_columns(
        self, travelling: Mapping[str, Any], applied: AppliedColumns, users: bool
    ) -> DataFrame:
        """The target, with all columns that travel, as wide as they travel. Raises SchemaError for those that cannot be reconciled by name, and for
        those that were applied and are not there any more."""
        name = reference(self.location)
        for _ in range(_ALTERS):
            existing = load(self.spark, self.location)
            here = schema_json(existing)
            applied.check(here, travelling, self.table, self.site, name, users)
            changes = reconcile(here, travelling, self.table, self.site, name, users)
            if not changes:
                return existing
            self._alter(changes, users)
        raise WriteConflict("its columns change all the time")

    def _alter(self, changes: Changes, users: bool) -> None:
        name = reference(self.location)
        if changes.widened:
            self._check_may_widen(changes.widened, users)
        statements = [
            f"ALTER TABLE {name} ALTER COLUMN {_sql_path(path)} TYPE {sql_type(wide)}"
            for path, _, wide in changes.widened
        ]
        if changes.added:
            columns = ", ".join(
                f"{_sql_path(path)} {sql_type(entry['type'])}" for path, entry in changes.added
            )
            statements.append(f"ALTER TABLE {name} ADD COLUMNS ({columns})")
        for statement in statements:
            try:
                self.spark.sql(statement).collect()
            except Exception as error:
                if "FIELD_ALREADY_EXISTS" in str(error) or "already exists" in str(error):
                    continue  # another receiver was faster: what is left is found by the next look
                for sign, settings in _NEEDED.items():
                    if sign in str(error):
                        raise SchemaError(
                            f"{self.table}: the table at site {self.site} cannot take new columns as they are at the origin "
                            f"({statement}: {error_text(error)}). The stream is held. Run ALTER TABLE {name} SET TBLPROPERTIES ({settings}), "
                            f"which readers and writers of the table must support, and the stream goes on; or {anew(users)}."
                        ) from error
                raise

    def _check_may_widen(self, widened: Sequence[tuple[Path, str, str]], users: bool) -> None:
        """A wider type is a feature of the target table that all of its readers must support: its owner enables it."""
        name = reference(self.location)
        properties = {
            row[0]: row[1] for row in self.spark.sql(f"SHOW TBLPROPERTIES {name}").collect()
        }
        needed = []
        if properties.get("delta.enableTypeWidening", "").lower() != "true":
            needed.append("'delta.enableTypeWidening' = 'true'")
        if (
            any(wide == "timestamp_ntz" for *_, wide in widened)
            and "delta.feature.timestampNtz" not in properties
        ):
            needed.append(_NTZ)
        if needed:
            what = "; ".join(
                f"{'.'.join(path)} is {here} here and {wide} at the origin"
                for path, here, wide in widened
            )
            raise SchemaError(
                f"{self.table}: columns at site {self.site} are narrower than at the origin: {what}. The stream is held. Run ALTER TABLE {name} SET "
                f"TBLPROPERTIES ({', '.join(needed)}), which readers and writers of the table must support: the stream then widens them itself and "
                f"goes on. Or {anew(users)}."
            )

    def _decode(self, epochs: Sequence[PlannedEpoch], schema: Any, all_of_a_key: bool) -> DataFrame:
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import ByteType, LongType, StringType, StructField, StructType

        newest = epochs[-1].manifest
        extra = [StructField(OP, ByteType()), StructField(VERSION, LongType())]
        if newest.kind == EVENTS:
            extra += [
                StructField(ID, StringType()),
                StructField(SEQUENCE, LongType()),
                StructField(TIME, LongType()),
            ]
            extra.append(StructField(CONTENT, StringType()))
        full = StructType([*extra, *schema.fields])
        keys = () if all_of_a_key or newest.kind == EVENTS else newest.keys
        task = _DecodeTask(
            self.channel, keys, to_arrow_schema(full, timezone="UTC"), newest.kind == EVENTS
        )
        refs = [
            (ref.path, ref.rows, ref.bytes, ref.checksum, epoch.above, epoch.manifest.epoch)
            for epoch in epochs
            for ref in epoch.manifest.frames
        ]
        listed = self.spark.createDataFrame(
            refs,
            "path string, rows bigint, bytes bigint, checksum bigint, above bigint, number bigint",
        )
        return listed.mapInArrow(task, full)

    def _drop_known_events(self, work: ApplyWork) -> None:
        """Events of a user's stream that took effect before are dropped; the same ID with other content is a dead letter."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        content: _Content = work.content
        rows = self._persist(content, content.rows)
        origin = work.epochs[-1].manifest.origin
        marked = (
            self.ledger.read("applied")
            .where(F.col("table") == self.table)
            .select("token")
            .distinct()
        )
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
        below = (
            F.lit(False)
            if floor is None
            else fresh & F.col(TIME).isNotNull() & (F.col(TIME) <= floor)
        )
        helpers = ("_wan_known", "_wan_nth", "_wan_first")
        other = judged.where(~fresh & ~again).withColumn(
            CAUSE, F.lit("event ID used again with other content")
        )
        late = judged.where(below).withColumn(
            CAUSE, F.lit("older than the event IDs that are kept: cannot be told from a replay")
        )
        for bad in (other, late):
            self._add_dead(content, bad.drop(*helpers))
        new = fresh & ~below
        (counted,) = judged.agg(
            F.count_if(again).alias("duplicates"),
            F.count_if(new).alias("new"),
            F.count_if(new & F.col(TIME).isNull()).alias("timeless"),
            F.max(F.when(new, F.col(TIME))).alias("until"),
        ).collect()
        work.duplicates, work.new_ids = counted["duplicates"], counted["new"]
        work.ids_until = None if counted["timeless"] else counted["until"]
        content.rows = judged.where(new).drop(*helpers)
        content.new_ids = content.rows.select(ID, CONTENT, TIME)

    def _floor(self, origin: str) -> int | None:
        """Event IDs of events at or before this time (microseconds) may have been removed; None: none were."""
        from pyspark.sql import functions as F

        with self._errors(of_ledger=True):
            floors = self.ledger.read("event_ids").where(
                (F.col("table") == self.table)
                & (F.col("origin") == origin)
                & F.col("event_id").isNull()
            )
            found = floors.agg(F.max("time")).collect()[0][0]
        return int(found) if found is not None else None

    def expire_event_ids(self, origin: str, before: int) -> None:
        """Forget event IDs with an event time at or before ``before`` (microseconds since 1970 UTC). What comes later with such a time is
        a dead letter: it cannot be told from a replay. The floor comes in the commit that takes the IDs: whoever loses one has lost both."""
        columns = {
            "version": LEDGER_VERSION,
            "table": literal(self.table),
            "origin": literal(origin),
            "time": int(before),
            "token": "'floor'",
        }
        with self._errors(of_ledger=True):
            self.spark.sql(
                f"MERGE INTO {reference(self.ledger.location('event_ids'))} t USING (SELECT explode(array(true, false)) AS expires) s "
                f"ON s.expires AND t.`table` = {columns['table']} AND t.origin = {columns['origin']} AND t.event_id IS NOT NULL "
                f"AND t.time <= {columns['time']} WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND NOT s.expires THEN INSERT "
                f"({', '.join(map(quoted, columns))}) VALUES ({', '.join(map(str, columns.values()))})"
            ).collect()

    def _persist(self, content: _Content, frame: DataFrame) -> DataFrame:
        kept = frame.persist()
        content.persisted.append(kept)
        return kept

    def _add_dead(self, content: _Content, bad: DataFrame) -> None:
        content.dead = (
            bad if content.dead is None else content.dead.unionByName(bad, allowMissingColumns=True)
        )

    def _letters(self, content: _Content, stream: str, origin_table: str, token: str) -> DataFrame:
        from pyspark.sql import Window
        from pyspark.sql import functions as F
        from pyspark.sql.types import BinaryType, StringType, StructField, StructType

        assert content.dead is not None
        # JSON is for people: it loses what a map's key is made of, and which kind of null a variant is. The payload loses nothing.
        full = StructType(
            [
                *content.dead.schema.fields,
                StructField(_PAYLOAD, BinaryType()),
                StructField(_HASH, StringType()),
            ]
        )
        dead = map_in_arrow(content.dead, _LetterTask(tuple(content.columns)), full)
        values = F.to_json(F.struct(*(F.col(quoted(name)) for name in content.columns)), _EXACT)
        if ID in dead.columns:
            event_id = F.col(ID)
        else:
            # Equal rows of a keyless table are two events.
            nth = F.row_number().over(Window.partitionBy(VERSION, _HASH).orderBy(_HASH)) - 1
            event_id = F.md5(F.concat_ws("/", F.lit(origin_table), VERSION, _HASH, nth))
        names = F.element_at(
            F.array(*(F.lit(op.name.lower()) for op in Operation)), F.col(OP).cast("int") + 1
        )
        return dead.select(
            F.lit(LEDGER_VERSION).alias("version"),
            F.lit("receiver").alias("side"),
            F.lit(self.table).alias("table"),
            F.lit(stream).alias("stream"),
            event_id.alias("event_id"),
            F.col(VERSION).alias("origin_version"),
            names.alias("operation"),
            self._key_text(content).alias("key"),
            F.col(CAUSE).alias("cause"),
            values.alias("row"),
            F.col(_PAYLOAD).alias("payload"),
            F.lit(token).alias("token"),
        )

    @contextmanager
    def _errors(self, of_ledger: bool = False) -> Iterator[None]:
        try:
            yield
        except (WanError, WriteConflict):
            raise
        except Exception as error:
            if ErrorKind.CANCELLED.matches(error) or lost_session(self.spark) is not None:
                raise
            if ErrorKind.CONFLICT.matches(error):
                raise WriteConflict(error_text(error)) from error
            if ErrorKind.ROW_REFUSED.matches(error) and not self._refused:
                self._refused = True
                raise WriteConflict(f"the table refuses a row: {error_text(error)}") from error
            if "FrameError" in str(error):
                # Raised inside a task: the caller checks the frames one by one and names the bad one.
                raise FrameError(error_text(error)) from error
            if of_ledger or self.ledger.is_told_of(error):
                raise self.ledger.error(error) from error
            what = (
                "is missing"
                if ErrorKind.MISSING.matches(error)
                else "cannot be read or written now"
            )
            raise TargetError(
                f"{self.table}: the table at site {self.site} ({self.location}) {what}: {error_text(error)}. It is tried again."
            ) from error


def merge_statement(
    location: str,
    source: str,
    keys: Sequence[str],
    columns: Sequence[str],
    chars: Mapping[str, int] | None = None,
) -> str:
    """The MERGE of resolved events (one row per key) into a table. Only the columns that travelled are assigned. ``chars``: the lengths of
    char columns. They are compared padded, which tables do not always store; see :func:`own_session`."""
    lengths = chars or {}

    def padded(side: str, key: str) -> str:
        column = f"{side}.{quoted(key)}"
        return f"rpad({column}, {lengths[key]}, ' ')" if key in lengths else column

    on = " AND ".join(f"{padded('t', key)} = {padded('s', key)}" for key in keys)
    lowered = {key.lower() for key in keys}
    values = [name for name in columns if name.lower() not in lowered]
    destroy = int(Operation.DESTROY)
    statement = f"MERGE INTO {reference(location)} t USING {source} s ON {on} WHEN MATCHED AND s.{OP} = {destroy} THEN DELETE "
    if values:
        statement += (
            "WHEN MATCHED THEN UPDATE SET "
            + ", ".join(f"t.{quoted(c)} = s.{quoted(c)}" for c in values)
            + " "
        )
    names = ", ".join(quoted(name) for name in columns)
    inserted = ", ".join(f"s.{quoted(name)}" for name in columns)
    return (
        statement
        + f"WHEN NOT MATCHED AND s.{OP} <> {destroy} THEN INSERT ({names}) VALUES ({inserted})"
    )


@contextmanager
def own_session(spark: SparkSession, settings: SessionSettings | None) -> Iterator[SparkSession]:
    """A session for writes, classic or Connect, whose settings reach no other write. Values are written as they are."""
    if is_connect(spark):
        with cloned_session(spark) as session:
            _write_as_it_is(session)
            yield session
    else:
        session = (settings or SessionSettings.of(spark)).new_session(spark)
        _write_as_it_is(session)
        yield session


def _write_as_it_is(session: SparkSession) -> None:
    """Settings with which a write changes no value: not those for files of old Spark versions, which have other dates and milliseconds; and
    without padding chars while reading, with which Delta fails at a MERGE whose condition has a char."""
    session.conf.set("spark.sql.readSideCharPadding", "false")
    for name in (
        "spark.sql.parquet.datetimeRebaseModeInWrite",
        "spark.sql.parquet.int96RebaseModeInWrite",
    ):
        session.conf.set(name, "CORRECTED")
    if session.conf.get("spark.sql.parquet.outputTimestampType") == "TIMESTAMP_MILLIS":
        session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")


def char_lengths(schema: Mapping[str, Any]) -> dict[str, int]:
    """The lengths of char columns, by name.

    >>> char_lengths({"fields": [{"name": "code", "type": "string", "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}}]})
    {'code': 5}
    """
    declared = (
        (entry["name"], (entry.get("metadata") or {}).get(CHAR_VARCHAR, ""))
        for entry in schema["fields"]
    )
    found = ((name, re.fullmatch(r"char\((\d+)\)", text)) for name, text in declared)
    return {name: int(match[1]) for name, match in found if match is not None}


def _newest_per_key(rows: DataFrame, keys: Sequence[str], user: bool) -> DataFrame:
    """One row per key: the highest version, and the highest sequence within it. Never by arrival."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order = [F.col(VERSION).desc()]
    if user:
        order += [F.col(SEQUENCE).desc(), F.col(ID).desc()]
    window = Window.partitionBy(*(F.col(quoted(key)) for key in keys)).orderBy(*order)
    return (
        rows.withColumn("_wan_place", F.row_number().over(window))
        .where("_wan_place = 1")
        .drop("_wan_place")
    )


def _sql_path(path: Path) -> str:
    return ".".join(quoted(name) for name in path)


_NTZ = "'delta.feature.timestampNtz' = 'supported'"
_NEEDED = {
    "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES": "'delta.columnMapping.mode' = 'name'",
    "feature(s): timestampNtz": _NTZ,
}
"""What Delta says when a table does not take a column -> the properties with which it does."""


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


@dataclass(frozen=True)
class _LetterTask:
    """What a Spark task does with rows that become dead letters: each gets its hash, and itself as an Arrow IPC stream, so that it can be
    replayed."""

    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            content = arrow_ready(batch.select(list(self.names)))
            payloads = []
            for index in range(content.num_rows):
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, content.schema) as writer:
                    writer.write_batch(content.slice(index, 1))
                payloads.append(sink.getvalue().to_pybytes())
            batch = batch.append_column(_PAYLOAD, pa.array(payloads, pa.binary()))
            yield batch.append_column(_HASH, hex_ids(row_hashes(content)))


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
