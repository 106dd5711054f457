"""A target, judged as its receiver judges it; nothing is written to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_wan.apply.change import Change
from spark_wan.apply.plan import PlannedEpoch
from spark_wan.delta.dataframes import schema_json
from spark_wan.delta.log_files import is_local
from spark_wan.delta.schema import portable_schema
from spark_wan.delta.sql import quoted
from spark_wan.delta.tables import load
from spark_wan.events.operations import OP, Operation
from spark_wan.ledger.applied_columns import AppliedColumns
from spark_wan.rehearsal.applying import Rehearsed
from spark_wan.rehearsal.findings import Finding, failed, ok, warning
from spark_wan.rehearsal.places import obstacle
from spark_wan.target.column_changes import Changes, fitted
from spark_wan.target.constraints import ConstraintReader, Constraints
from spark_wan.target.delta_table import DeltaTarget
from spark_wan.target.evolve import SchemaEvolution, table_properties
from spark_wan.target.judge import judge
from spark_wan.target.partitions import partition_columns
from spark_wan.target.record import count_dead_letters
from spark_wan.target.rows import EventRows
from spark_wan.topology.values import catalog_parts, is_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOST_CAUSES = 10
_TO_BE_MADE = ok("table", "it is not there yet; the receiver makes it")


@dataclass
class RehearsedTarget(DeltaTarget):
    """A target that a receiver may ask everything, and that takes nothing."""

    rows: bool = True
    """Judge rows, too, which reads them."""
    found: list[Finding] = field(default_factory=list)
    """What was seen of columns, constraints and rows."""

    def create(self, epoch: PlannedEpoch) -> None:
        raise Rehearsed("the table would be created")

    def read(self, change: Change, applied: AppliedColumns) -> None:
        newest = change.newest
        with self._errors():
            judged = self._judged(newest.schema, newest.keys, applied, change.is_of_users)
            if self.rows:
                frame, _ = self._rows(change, judged.travelling, judged.constraints is not None)
                self._count_refused(judged, frame, newest.keys)
        raise Rehearsed("the epochs would be applied")

    def take(
        self,
        schema: Mapping[str, Any],
        keys: tuple[str, ...],
        applied: AppliedColumns,
        rows: DataFrame | None,
    ) -> None:
        """Judge what is to come of a captured table: rows with the columns ``schema``, those of
        ``rows`` if they are known. Raises the errors that hold the stream."""
        with self._errors():
            judged = self._judged(schema, keys, applied, users=False)
            if rows is not None and self.rows:
                event = F.lit(int(Operation.CREATE)).cast("tinyint").alias(OP)
                self._count_refused(judged, rows.select("*", event), keys)

    def _judged(
        self,
        schema: Mapping[str, Any],
        keys: tuple[str, ...],
        applied: AppliedColumns,
        users: bool,
    ) -> _Judged:
        """Return by what rows are judged. Raises SchemaError as an apply does."""
        target = load(self.spark, self.location)
        evolution = SchemaEvolution(self.spark, self.location, self.name, users=users)
        changes = evolution.planned(target, schema, applied)
        evolution.check_may_add(changes)
        self.found.append(ok("columns", _described(changes)))
        there = {name.lower() for name in target.columns}
        if (lacking := [key for key in keys if key.lower() not in there]) and not self.is_empty():
            self.found.append(
                warning(
                    "keys",
                    f"{self.name.where}: key column {lacking[0]!r} is not there. The receiver adds "
                    "it, and no event finds the rows that are there, which have no key then: they "
                    f"stay. Empty the table (DELETE FROM {self.name.sql_name}), or remove it.",
                )
            )
        travelling = StructType.fromJson(portable_schema(fitted(schema, schema_json(target))))
        constraints = ConstraintReader(
            self.name,
            self.location,
            target,
            travelling,
            keys=keys,
            properties=table_properties(self.spark, self.name),
            partitioned=partition_columns(self.spark, self.name),
            logged=lambda: self._logged_schema(target),
            refused=True,
        ).read()
        if constraints is not None:
            causes = [each.cause for each in constraints.all]
            more = f" and {len(causes) - _MOST_CAUSES} more" if len(causes) > _MOST_CAUSES else ""
            told = "; ".join(causes[:_MOST_CAUSES])
            text = f"rows that break one of these become dead letters: {told}{more}"
            self.found.append(ok("constraints", text))
        return _Judged(travelling, constraints)

    def _count_refused(self, judged: _Judged, frame: DataFrame, keys: tuple[str, ...]) -> None:
        """Note how many rows the table would refuse. Raises DeadLettersError for too many."""
        change = Change([])
        rows = EventRows(frame, judged.travelling.names, keys, constraints=judged.constraints)
        try:
            count_dead_letters(change, judge(rows), self.name, self.max_dead_letters)
        finally:
            rows.release()
        if change.dead_letters:
            self.found.append(
                warning(
                    "rows",
                    f"{self.name.where}: {change.dead_letters:,} rows that are to come break a "
                    "constraint of the table here, and would become dead letters. Drop it or "
                    "change it; or repair the rows at the source.",
                )
            )
        else:
            self.found.append(ok("rows", "the table would take all rows that are to come"))

    def place(self) -> Finding:
        """Return what is at the place of a table that is not there."""
        if is_path(self.location):
            return self._directory() if is_local(self.location) else _TO_BE_MADE
        with self._errors():
            *schema, _ = catalog_parts(self.location)
            if not self.spark.catalog.databaseExists(".".join(map(quoted, schema))):
                return failed(
                    "table",
                    f"{self.name.where}: there is no schema for {self.location}, and receivers "
                    "make none. Run CREATE SCHEMA, or correct the place below `at:` in the "
                    "topology.",
                )
            if self.spark.catalog.tableExists(self.name.sql_name):
                return failed(
                    "table",
                    f"{self.name.where}: {self.location} is no Delta table. Remove it, or give the "
                    "table another place at this site in the topology.",
                )
        return _TO_BE_MADE

    def _directory(self) -> Finding:
        directory = Path(self.location.removeprefix("file://"))
        problem = obstacle(directory)
        if problem is not None:
            return failed(
                "table",
                f"{self.name.where}: there is no table, and none can be made: {problem}. Check the "
                "place below `at:` in the topology, and its permissions.",
            )
        if directory.is_dir() and any(directory.iterdir()):
            return warning(
                "table",
                f"{self.name.where}: {directory} has files that are not a Delta table's. The "
                "receiver makes the table beside them, and VACUUM deletes them later. Give the "
                "table a place of its own.",
            )
        return _TO_BE_MADE


@dataclass(frozen=True)
class _Judged:
    """By what rows are judged."""

    travelling: StructType
    constraints: Constraints | None


def _described(changes: Changes) -> str:
    """Return what the receiver would do to the columns of a target."""
    added = ", ".join(".".join(path) for path, _ in changes.added)
    widened = ", ".join(f"{'.'.join(path)} to {wide}" for path, _, wide in changes.widened)
    told = [f"would be added: {added}"] * bool(added) + [f"would be widened: {widened}"] * bool(
        widened
    )
    return "; ".join(told) or "they take those that travel as they are"
