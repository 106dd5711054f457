"""Undoing versions of a table at the site that writes it, by one ordinary commit.

Each key that versions A to B have changed gets the row that it had in version A - 1. The commit is
no receiver's: senders publish it as they do those of any user. It is safe beside other writers: the
MERGE fails if a row that it touches is not the one that was looked at, and then all is planned
anew.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_wan.delta.dataframes import schema_json, select_columns
from spark_wan.delta.errors import ErrorKind, error_text
from spark_wan.delta.sessions import copied_session, job_session
from spark_wan.delta.sql import quoted, reference
from spark_wan.delta.tables import history, newest_commits, table_exists
from spark_wan.errors import UndoError
from spark_wan.events.operations import RESERVED_PREFIX
from spark_wan.messages import message_log
from spark_wan.sync.columns import ComparedColumns, compared_columns, differ_in_columns
from spark_wan.sync.compare import KEY_JSON, Side
from spark_wan.sync.hashed import HashedRows
from spark_wan.sync.undone import (
    Action,
    Undone,
    UndoneRow,
    changes_rows,
    check_versions,
    undoable_table,
    versions_text,
)
from spark_wan.topology.model import Table, Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = message_log(__name__)

ATTEMPTS = 10
"""Attempts against other writers of the table."""
NAMED = 10
"""Keys that a refusal names."""
CHANGED = "spark_wan: a row was changed meanwhile"
ACTION, EXPECTED = f"{RESERVED_PREFIX}action", f"{RESERVED_PREFIX}expected"

_BEFORE, _THEN, _NOW = 0, 1, 2


class _Changed(Exception):
    """Another writer has changed the table: plan anew."""


def undo(
    spark: SparkSession,
    topology: Topology,
    table: str,
    first: int,
    last: int | None = None,
    *,
    force: bool = False,
    dry_run: bool = False,
    limit: int = 20,
) -> Undone:
    """Undo versions ``first`` to ``last`` of a table at the site that writes it; return what was
    done.

    Args:
        spark: A session that can read and write the table.
        topology: Says where the table is.
        table: Its name in the topology.
        first: The first version to undo.
        last: The last one; None: ``first`` alone.
        force: Set back keys that were changed again after ``last``, too. They lose that change.
        dry_run: Write nothing.
        limit: Number of rows that are returned as examples.

    Raises:
        TopologyError: the table is unknown.
        UndoError: the versions cannot be undone, or keys were changed again since.
        CompareError: one of the versions cannot be read any more.
    """
    found = undoable_table(topology, table)
    with job_session(spark) as session:
        undoing = _Undoing(session, found, first, first if last is None else last, force, limit)
        return undoing.run(dry_run)


@dataclass(frozen=True)
class _Undoing:
    spark: SparkSession
    table: Table
    first: int
    last: int
    force: bool
    limit: int

    def run(self, dry_run: bool) -> Undone:
        for _ in range(ATTEMPTS):
            try:
                return self._attempt(dry_run)
            except _Changed as reason:
                log.info(
                    "%s: %s; planning the undo again",
                    self.table.name,
                    reason,
                    event="planned-again",
                    table=self.table.name,
                )
        raise UndoError(
            f"{self.table.name}: {ATTEMPTS} attempts in a row lost against other writers of the "
            "table. Nothing was undone. Try again when fewer commits come."
        )

    def _attempt(self, dry_run: bool) -> Undone:
        site, now = self.table.writers[0], self._newest()
        nothing = Undone(self.table.name, site, self.first, self.last)
        if now is None:
            return nothing
        with self._planned(now) as plan:
            done = plan.summary(nothing, self.limit)
            if not done.rows:
                return done
            if done.changed_since and not (self.force or dry_run):
                raise UndoError(self._refusal(done, plan))
            return done if dry_run else replace(done, version=self._write(plan))

    def _newest(self) -> int | None:
        """Return the newest version; None: the versions to undo change no rows."""
        side = self._side(self.first)
        with side.errors(self.spark):
            if not table_exists(self.spark, side.location):
                raise UndoError(
                    f"{self.table.name}: there is no Delta table at {side.location}. Check the "
                    f"place of site {side.site} below `at:` in the topology."
                )
            commits = history(self.spark, side.location, max(self.first, 1) - 1)
        if not commits:  # the first is above the newest
            with side.errors(self.spark):
                commits = newest_commits(self.spark, side.location, 1)
        check_versions(self.table.name, self.first, self.last, commits)
        return commits[-1].version if changes_rows(self.first, self.last, commits) else None

    def _side(self, version: int) -> Side:
        site = self.table.writers[0]
        return Side(self.table.name, site, self.table.location(site), version)

    @contextmanager
    def _planned(self, now: int) -> Iterator[_Plan]:
        """Yield what is to be done, by three versions of the table."""
        sides = [self._side(version) for version in (self.first - 1, self.last, now)]
        frames = []
        for side in sides:
            with side.errors(self.spark):
                frames.append(side.load(self.spark))
        self._check_columns(frames[_BEFORE], frames[_NOW])
        self._check_columns(frames[_THEN], frames[_NOW])
        plan = _Plan(self.table.keys, frames, now)
        plan.rows.persist()
        try:
            with sides[_BEFORE].errors(self.spark):
                plan.check_twins(self.table.name)
            yield plan
        finally:
            plan.rows.unpersist()

    def _check_columns(self, one: DataFrame, now: DataFrame) -> None:
        changes = differ_in_columns(schema_json(one), schema_json(now))
        if changes:
            raise UndoError(
                f"{self.table.name}: the columns have changed since version {self.first - 1}: "
                f"{', '.join(changes[:NAMED])}. {versions_text(self.first, self.last)} cannot be "
                "undone as a whole: correct the rows with a MERGE from VERSION AS OF "
                f"{self.first - 1}."
            )

    def _refusal(self, done: Undone, plan: _Plan) -> str:
        keys = ", ".join(each.key for each in plan.examples(NAMED, changed_since=True))
        more = f" and {done.changed_since - NAMED:,} more" if done.changed_since > NAMED else ""
        return (
            f"{self.table.name}: {done.changed_since:,} of {done.rows:,} keys that "
            f"{done.versions} changed were changed again since: {keys}{more}. Nothing was undone. "
            "With --force they are set back, too, and lose the later change; or undo the later "
            "versions as well."
        )

    def _write(self, plan: _Plan) -> int:
        """Write the commit, and return its version. Raises _Changed."""
        location, token = self._side(plan.now).location, uuid.uuid4().hex
        metadata = json.dumps({"undo": {"versions": [self.first, self.last], "token": token}})
        view = f"wan_{token}"
        with copied_session(self.spark) as session:
            session.conf.set("spark.databricks.delta.commitInfo.userMetadata", metadata)
            # With chars padded while they are read, Delta fails at a condition that has one.
            session.conf.set("spark.sql.readSideCharPadding", "false")
            plan.source().createOrReplaceGlobalTempView(view)
            try:
                session.sql(plan.statement(location, f"global_temp.{view}")).collect()
            except Exception as error:
                raise self._meant(error) from error
            finally:
                self.spark.catalog.dropGlobalTempView(view)
        commits = newest_commits(self.spark, location, 100)
        return next((c.version for c in reversed(commits) if c.user_metadata == metadata), -1)

    def _meant(self, error: Exception) -> Exception:
        if ErrorKind.CANCELLED.matches(error):
            return error
        if CHANGED in str(error) or ErrorKind.CONFLICT.matches(error):
            return _Changed(error_text(error))
        return UndoError(
            f"{self.table.name}: {versions_text(self.first, self.last)} cannot be undone, and "
            f"nothing was written: {error_text(error)}"
        )


class _Plan:
    """The keys whose rows have to be set back, and to what."""

    def __init__(self, keys: tuple[str, ...], frames: Sequence[DataFrame], now: int) -> None:
        self.keys = keys
        self.now = now
        self._frames = frames
        schema = schema_json(frames[_NOW])
        self._columns: ComparedColumns = compared_columns(schema, schema)
        self._names = [field["name"] for field in schema["fields"]]

    @cached_property
    def rows(self) -> DataFrame:
        """Keys (``k0`` …), action, what the row is expected to be, and whether it was changed
        since."""
        parts = [self._hashed(place) for place in (_BEFORE, _THEN, _NOW)]
        every = parts[0].union(parts[1]).union(parts[2])
        names = [f"k{n}" for n in range(len(self.keys))]
        hashes = [
            F.array_sort(F.collect_list(F.when(F.col("place") == place, F.col("hash"))))
            for place in (_BEFORE, _THEN, _NOW)
        ]
        grouped = every.groupBy(*names).agg(
            *(each.alias(name) for each, name in zip(hashes, ("b", "t", "n"), strict=True)),
            F.max(EXPECTED).alias(EXPECTED),
        )
        action = (
            F.when(F.size("b") == 0, Action.DELETE.value)
            .when(F.size("n") == 0, Action.INSERT.value)
            .otherwise(Action.SET_BACK.value)
        )
        return grouped.where("b <> t AND b <> n").select(
            *names,
            action.alias(ACTION),
            EXPECTED,
            F.expr("t <> n").alias("since"),
            F.expr("size(b) > 1 OR size(n) > 1").alias("twins"),
        )

    def _hashed(self, place: int) -> DataFrame:
        frame = self._frames[place]
        rows = HashedRows(frame, self._columns, frame.schema)
        kept = [F.lit(place).alias("place")]
        kept += [F.col(quoted(key)).alias(f"k{n}") for n, key in enumerate(self.keys)]
        seen = F.expr(self._seen("")) if place == _NOW else F.lit(None).cast("bigint")
        return rows.row_hash([*kept, seen.alias(EXPECTED)])

    def _seen(self, prefix: str) -> str:
        """Return a hash of a row in SQL, which the MERGE can compute, too. It need not tell all
        rows apart, only those that a writer made of each other meanwhile."""
        parts = []
        for name in self._columns.flat:
            column = f"{prefix}{quoted(name)}"
            if name in self._columns.chars:
                column = f"rpad({column}, {self._columns.chars[name]}, ' ')"
            if name in self._columns.floats:
                column = f"CAST({column} AS STRING)"
            parts += [column, f"{column} IS NULL"]
        if self._columns.nested:
            fields = ", ".join(f"{prefix}{quoted(name)}" for name in self._columns.nested)
            parts.append(f"to_json(struct({fields}), map('ignoreNullFields', 'false'))")
        return f"xxhash64({', '.join(parts)})"

    def check_twins(self, table: str) -> None:
        """Refuse keys of which there is more than one row."""
        twins = self.rows.where("twins").select(self._key()).limit(NAMED).collect()
        if twins:
            raise UndoError(
                f"{table}: keys are there more than once, before or now: "
                f"{', '.join(row[0] for row in twins)}. Which row to set back is not known: "
                "correct these by hand first."
            )

    def _key(self) -> Column:
        keys = (F.col(f"k{n}").alias(key) for n, key in enumerate(self.keys))
        return F.to_json(F.struct(*keys), KEY_JSON).alias("key")

    def summary(self, done: Undone, limit: int) -> Undone:
        """Return ``done`` with what the plan says."""
        counted = self.rows.groupBy(ACTION, "since").count().collect()
        counts: dict[Action, int] = {}
        for row in counted:
            action = Action(row[ACTION])
            counts[action] = counts.get(action, 0) + row["count"]
        since = sum(row["count"] for row in counted if row["since"])
        examples = tuple(self.examples(limit)) if counts else ()
        return replace(done, counts=counts, changed_since=since, examples=examples)

    def examples(self, limit: int, changed_since: bool = False) -> list[UndoneRow]:
        rows = self.rows.where("since") if changed_since else self.rows
        chosen = rows.orderBy(*(f"k{n}" for n in range(len(self.keys)))).limit(limit)
        return [
            UndoneRow(row["key"], Action(row[ACTION]), row["since"])
            for row in chosen.select(self._key(), ACTION, "since").collect()
        ]

    def source(self) -> DataFrame:
        """Return the rows to write: action, expected row, keys, and the columns as they were."""
        before = self._frames[_BEFORE].alias("b")
        plan = self.rows.select(
            ACTION,
            EXPECTED,
            *(F.col(f"k{n}").alias(f"{RESERVED_PREFIX}k{n}") for n in range(len(self.keys))),
        )
        on = [
            F.col(f"{RESERVED_PREFIX}k{n}").eqNullSafe(F.col(f"b.{quoted(key)}"))
            for n, key in enumerate(self.keys)
        ]
        joined = plan.join(before, on, "left")
        kept = [ACTION, EXPECTED, *(f"{RESERVED_PREFIX}k{n}" for n in range(len(self.keys)))]
        return joined.select(*kept, *select_columns(self._names))

    def statement(self, location: str, source: str) -> str:
        """Return the MERGE. It fails at a row that is not what it was when this was planned."""
        chars = self._columns.chars

        def padded(column: str, key: str) -> str:
            return f"rpad({column}, {chars[key]}, ' ')" if key in chars else column

        on = " AND ".join(
            f"{padded(f't.{quoted(key)}', key)} <=> {padded(f's.{RESERVED_PREFIX}k{n}', key)}"
            for n, key in enumerate(self.keys)
        )
        key = quoted(self.keys[0])
        kind = self._frames[_NOW].schema[self.keys[0]].dataType.simpleString()
        changed = f"CAST(raise_error('{CHANGED}') AS {kind})"
        names = [quoted(name) for name in self._names]
        updates = ", ".join(f"t.{name} = s.{name}" for name in names)
        return " ".join(
            (
                f"MERGE INTO {reference(location)} t USING {source} s ON {on}",
                f"WHEN MATCHED AND NOT (s.{EXPECTED} <=> {self._seen('t.')})",
                f"THEN UPDATE SET t.{key} = {changed}",
                f"WHEN MATCHED AND s.{ACTION} = '{Action.DELETE.value}' THEN DELETE",
                f"WHEN MATCHED THEN UPDATE SET {updates}",
                f"WHEN NOT MATCHED AND s.{EXPECTED} IS NOT NULL THEN INSERT ({key})",
                f"VALUES ({changed})",
                f"WHEN NOT MATCHED THEN INSERT ({', '.join(names)})",
                f"VALUES ({', '.join(f's.{name}' for name in names)})",
            )
        )
