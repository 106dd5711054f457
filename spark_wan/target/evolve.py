"""Schema evolution of a target: columns that travel are added and widened before rows come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from spark_wan.apply.change import WriteConflict
from spark_wan.delta.dataframes import schema_json
from spark_wan.delta.errors import error_text
from spark_wan.delta.schema import needs_column_mapping
from spark_wan.delta.sql import quoted, sql_type
from spark_wan.delta.tables import load
from spark_wan.errors import SchemaError, remake_advice
from spark_wan.events.columns import Path, SchemaJson
from spark_wan.ledger.applied_columns import AppliedColumns
from spark_wan.ledger.interfaces import TargetName
from spark_wan.target.column_changes import Changes, reconcile

_ATTEMPTS = 5
"""Attempts while other writers change the columns, before the apply starts over."""
_NTZ = "'delta.feature.timestampNtz' = 'supported'"
_NEEDED = {
    "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES": "'delta.columnMapping.mode' = 'name'",
    "feature(s): timestampNtz": _NTZ,
}
"""What Delta's error about a new column contains -> the table properties that allow the column."""


@dataclass(frozen=True)
class SchemaEvolution:
    """Brings a target to the columns of a stream."""

    spark: SparkSession
    location: str
    name: TargetName
    users: bool
    """The stream is a user stream."""

    def evolve(self, travelling: SchemaJson, applied: AppliedColumns) -> DataFrame:
        """Return the target with all columns that travel, as wide as they travel.

        Raises SchemaError for columns that cannot be reconciled by name, and for applied ones that
        are no longer there.
        """
        for _ in range(_ATTEMPTS):
            target = load(self.spark, self.location)
            changes = self.planned(target, travelling, applied)
            if not changes:
                return target
            self._alter(changes)
        raise WriteConflict("other writers keep changing its columns")

    def planned(
        self, target: DataFrame, travelling: SchemaJson, applied: AppliedColumns
    ) -> Changes:
        """Return what :meth:`evolve` would add and widen. Changes nothing, and raises as it does,
        but for what Delta says of the columns that are added (:meth:`check_may_add`)."""
        existing = schema_json(target)
        applied.check(existing, travelling, self.name, self.users)
        changes = reconcile(existing, travelling, self.name, self.users)
        if changes.widened:
            self._check_may_widen(changes.widened)
        return changes

    def check_may_add(self, changes: Changes) -> None:
        """Raise SchemaError where Delta would refuse the columns that :meth:`evolve` adds."""
        if not changes.added:
            return
        properties = table_properties(self.spark, self.name)
        fields = {
            "fields": [{"name": path[-1], "type": entry["type"]} for path, entry in changes.added]
        }
        missing = []
        if needs_column_mapping(fields) and not properties.get("delta.columnMapping.mode"):
            missing.append("DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES")
        if "timestamp_ntz" in sql_type({"type": "struct", **fields}) and (
            "delta.feature.timestampNtz" not in properties
        ):
            missing.append("feature(s): timestampNtz")
        for sign in missing:
            raise self._cannot_add(self._addition(changes), sign, _NEEDED[sign])

    def _alter(self, changes: Changes) -> None:
        table = self.name.sql_name
        statements = [
            f"ALTER TABLE {table} ALTER COLUMN {_sql_path(path)} TYPE {sql_type(wide)}"
            for path, _, wide in changes.widened
        ]
        if changes.added:
            statements.append(self._addition(changes))
        for statement in statements:
            try:
                self.spark.sql(statement).collect()
            except Exception as error:
                if "FIELD_ALREADY_EXISTS" in str(error) or "already exists" in str(error):
                    continue  # another receiver was faster: the next attempt finds what is left
                for sign, properties in _NEEDED.items():
                    if sign in str(error):
                        cause = error_text(error)
                        raise self._cannot_add(statement, cause, properties) from error
                raise

    def _addition(self, changes: Changes) -> str:
        columns = ", ".join(
            f"{_sql_path(path)} {sql_type(entry['type'])}" for path, entry in changes.added
        )
        return f"ALTER TABLE {self.name.sql_name} ADD COLUMNS ({columns})"

    def _cannot_add(self, statement: str, cause: str, properties: str) -> SchemaError:
        return SchemaError(
            f"{self.name.table}: the table at site {self.name.site} cannot take new columns as "
            f"they are at the origin ({statement}: {cause}). The stream is held. Run ALTER TABLE "
            f"{self.name.sql_name} SET TBLPROPERTIES ({properties}), which readers and writers of "
            "the table must support, and the stream goes on; or "
            f"{remake_advice(self.users)}."
        )

    def _check_may_widen(self, widened: Sequence[tuple[Path, str, str]]) -> None:
        """Check that the target's owner has enabled wider types, which all readers must support."""
        properties = table_properties(self.spark, self.name)
        needed = []
        if properties.get("delta.enableTypeWidening", "").lower() != "true":
            needed.append("'delta.enableTypeWidening' = 'true'")
        if (
            any(wide == "timestamp_ntz" for *_, wide in widened)
            and "delta.feature.timestampNtz" not in properties
        ):
            needed.append(_NTZ)
        if needed:
            columns = "; ".join(
                f"{'.'.join(path)} is {here} here and {wide} at the origin"
                for path, here, wide in widened
            )
            raise SchemaError(
                f"{self.name.table}: columns at site {self.name.site} are narrower than at the "
                f"origin: {columns}. The stream is held. Run ALTER TABLE {self.name.sql_name} SET "
                f"TBLPROPERTIES ({', '.join(needed)}), which readers and writers of the table must "
                "support: the stream then widens them itself and goes on. Or "
                f"{remake_advice(self.users)}."
            )


def table_properties(spark: SparkSession, name: TargetName) -> dict[str, str]:
    return {row[0]: row[1] for row in spark.sql(f"SHOW TBLPROPERTIES {name.sql_name}").collect()}


def _sql_path(path: Path) -> str:
    return ".".join(quoted(part) for part in path)
