"""A Delta table's commits, as its history (``DESCRIBE HISTORY``) tells them. No Spark: plain records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from spark_wan.events.columns import column_path
from spark_wan.wire.mark import read_mark

NO_ROWS = frozenset(
    (
        "OPTIMIZE",
        "VACUUM START",
        "VACUUM END",
        "REORG",
        "SET TBLPROPERTIES",
        "UNSET TBLPROPERTIES",
        "ADD COLUMNS",
        "CHANGE COLUMN",
        "CHANGE COLUMNS",
        "REPLACE COLUMNS",
        "RENAME COLUMN",
        "DROP COLUMNS",
        "ADD CONSTRAINT",
        "DROP CONSTRAINT",
        "COMPUTE STATS",
        "UPGRADE PROTOCOL",
        "CLUSTER BY",
        "CREATE TABLE",
        "UPDATE COLUMN METADATA",
        "UPDATE SCHEMA",
        "DROP FEATURE",
        "ADD FEATURE",
        "FSCK",
        "DOMAIN METADATA CLEANUP",
    )
)
"""Operations that change no row. Only a hint (such commits are not worth an epoch): the change feed has the last word."""

_TABLE_OPERATIONS = {
    "TRUNCATE",
    "RESTORE",
    "CREATE OR REPLACE TABLE",
    "CREATE OR REPLACE TABLE AS SELECT",
    "REPLACE TABLE",
    "REPLACE TABLE AS SELECT",
}
_ROW_METRICS = (
    "numOutputRows",
    "numTargetRowsInserted",
    "numTargetRowsUpdated",
    "numTargetRowsDeleted",
    "numUpdatedRows",
    "numDeletedRows",
    "num_added_rows",
    "num_target_rows_inserted",
    "num_target_rows_updated",
    "num_target_rows_deleted",
    "num_updated_rows",
    "num_deleted_rows",
)

SAME_TIME = 10_000
"""Milliseconds by which the time of one commit may differ between two looks. Nobody puts a table back and writes the like of a commit so soon after it."""

DAY = 86_400_000
"""In milliseconds, as all times of commits."""


def record_after(log_retention: int) -> int:
    """The age at which what is known of a table's commits is recorded durably, for a table whose log keeps them ``log_retention`` milliseconds:
    a day, and never more than a quarter of the retention."""
    return min(DAY, log_retention // 4)


@dataclass(frozen=True)
class Commit:
    """One commit of a table's history. ``time`` is in milliseconds since 1970 UTC."""

    version: int
    time: int
    operation: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, str]
    user_metadata: str | None = None
    read_version: int | None = None

    @property
    def identity(self) -> str:
        """What the history tells of this commit: a hash, and the time. Compared by :func:`is_same_commit`."""
        told = [
            self.version,
            self.operation,
            sorted(self.parameters.items()),
            sorted(self.metrics.items()),
            self.user_metadata,
            self.read_version,
        ]
        return f"{hashlib.blake2b(json.dumps(told, default=str).encode(), digest_size=12).hexdigest()}@{self.time}"

    @property
    def stays_here(self) -> bool:
        """Written by a receiver, or marked local-only by its writer: not distributed."""
        mark = read_mark(self.user_metadata)
        return mark is not None and ("site" in mark or mark.get("local_only") is True)

    @property
    def received_from(self) -> str | None:
        """The origin of the rows that a receiver wrote in this commit ('' when its mark does not say); None: no receiver made it."""
        mark = read_mark(self.user_metadata)
        return str(mark.get("origin", "")) if mark is not None and "site" in mark else None

    @property
    def changes_rows(self) -> bool:
        return self.operation not in NO_ROWS

    @property
    def moves_columns(self) -> bool:
        """Whether it may give a column or a field another name, or take it away."""
        return self.operation in ("RENAME COLUMN", "DROP COLUMNS", "REPLACE COLUMNS")

    @property
    def replaces_columns(self) -> bool:
        """Whether it may put other columns in the place of those with their names."""
        return (
            (self.moves_columns and self.operation != "RENAME COLUMN")
            or self.operation == "REMOVE COLUMN MAPPING"
            or self.parameters.get("canOverwriteSchema", "").lower() == "true"
            or self.table_operation is not None
        )

    @property
    def renamed(self) -> tuple[str, str]:
        """Of a ``RENAME COLUMN``: the path before and after, as :func:`spark_wan.events.columns.column_path` writes it. Raises KeyError where the history does
        not say."""
        return self.parameters["oldColumnPath"].lower(), self.parameters["newColumnPath"].lower()

    def place_of(self, path: str) -> str | None:
        """Where the column or field is after this commit that was at ``path`` before it; None: nowhere."""
        if self.operation == "RENAME COLUMN":
            old, new = self.renamed
            return new + path[len(old) :] if _is_within(path, old) else path
        if self.operation in ("DROP COLUMNS", "REPLACE COLUMNS"):
            listed = json.loads(self.parameters["columns"])
            if self.operation == "DROP COLUMNS":
                return None if any(_is_within(path, name.lower()) for name in listed) else path
            return (
                path
                if any(_is_within(path, column_path((entry["name"],))) for entry in listed)
                else None
            )
        return path

    @property
    def rows(self) -> int:
        """An estimate, from the commit's metrics; at least 1."""
        return max(
            1,
            sum(
                int(self.metrics[name])
                for name in _ROW_METRICS
                if self.metrics.get(name, "").isdigit()
            ),
        )

    @property
    def table_operation(self) -> str | None:
        """What somebody has done to the whole table at once, or None. The commit that made the table empties nothing."""
        if self.version == 0:
            return None
        if self.operation in _TABLE_OPERATIONS:
            return self.operation
        if self.operation == "DELETE":
            predicate = self.parameters.get("predicate", "[]").strip()
            if predicate in ("", "[]", '["true"]', "true", "null"):
                return "DELETE without a condition"
        return None


def _is_within(path: str, outer: str) -> bool:
    return path == outer or path.startswith(f"{outer}.")


def is_same_commit(one: str, other: str) -> bool:
    """Whether two identities are of the same commit. Times may differ a little: Delta takes the log file's, which some stores keep in whole
    seconds, and moves one that is not after its predecessor's, if the predecessor is among the commits that were asked for."""
    (told, _, time), (others, _, its_time) = one.partition("@"), other.partition("@")
    return told == others and abs(int(time or 0) - int(its_time or 0)) <= SAME_TIME
