"""The commits of a Delta table, as its history (``DESCRIBE HISTORY``) describes them. No Spark."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from spark_wan.events.columns import column_path
from spark_wan.wire.mark import applied_parts, newer_mark, read_mark

_NO_ROWS = frozenset(
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
"""Operations that change no row. A hint that a commit is not worth an epoch; what counts is the
change feed."""

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
"""Milliseconds by which two readings of one commit's time may differ. Nobody restores a table and
writes an identical commit that soon after the first one."""

_TIME = re.compile("-?[0-9]{1,18}")

DAY = 86_400_000
"""In milliseconds, as all times of commits."""


HISTORY_LEFT = 3 * DAY
"""How much is left of the history that a source has to keep when that is warned of, in
milliseconds."""


def warn_below(retention: int, left: int = HISTORY_LEFT) -> int:
    """Return how much is left, in milliseconds, when it is warned of a history that ends.

    ``left``, and never more than half of the ``retention`` of the table.
    """
    return min(left, retention // 2)


def record_after(log_retention: int) -> int:
    """Return the age at which what is known of commits is recorded durably. In milliseconds.

    A day, and never more than a quarter of the table's ``log_retention``.
    """
    return min(DAY, log_retention // 4)


@dataclass(frozen=True)
class Commit:
    """One commit of a table's history. ``time`` is in milliseconds since 1970 UTC.

    ``moved``: Delta may have moved the time behind that of the commit before it, as it does where
    a clock was ahead or times are rounded; if that commit is among those that were asked for."""

    version: int
    time: int
    operation: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, str]
    user_metadata: str | None = None
    read_version: int | None = None
    moved: bool = False

    @property
    def identity(self) -> str:
        """A hash of the commit's record in the history, and its time; with a minus, if it may have
        been moved. See is_same_commit."""
        record = [
            self.version,
            self.operation,
            sorted(self.parameters.items()),
            sorted(self.metrics.items()),
            self.user_metadata,
            self.read_version,
        ]
        digest = hashlib.blake2b(json.dumps(record, default=str).encode(), digest_size=12)
        return f"{digest.hexdigest()}@{'-' * self.moved}{self.time}"

    @property
    def metadata(self) -> str | None:
        """What its writer said of it. An automatic compaction says what the session that made it
        said of the write before."""
        return None if self.operation == "OPTIMIZE" else self.user_metadata

    @property
    def stays_here(self) -> bool:
        """Not distributed: written by a receiver, or marked local-only by its writer."""
        mark = read_mark(self.metadata)
        return mark is not None and ("site" in mark or mark.get("local_only") is True)

    @property
    def changes_rows_here(self) -> bool:
        """Whether it may have changed rows of a target though no receiver wrote it. Rows marked as
        local-only count, too: they are this site's own. The first version of a target that a
        receiver has created is marked so, and has none."""
        mark = read_mark(self.metadata)
        if mark is not None and ("site" in mark or (self.version == 0 and self.stays_here)):
            return False
        return self.changes_rows or self.operation == "FSCK"

    @property
    def received_from(self) -> frozenset[str] | None:
        """The origins of a receiver's commit (none: its mark does not say); None: no receiver's."""
        mark = read_mark(self.metadata)
        if mark is None or "site" not in mark:
            return None
        return frozenset(str(part["origin"]) for part in applied_parts(mark) if "origin" in part)

    @property
    def applied_clock(self) -> int | None:
        """The highest stamp of what a receiver's commit applied; None: none, or unknown."""
        mark = read_mark(self.metadata)
        if mark is None or "site" not in mark:
            return None
        clocks = (part.get("clock") for part in applied_parts(mark))
        return max((clock for clock in clocks if type(clock) is int), default=None)

    @property
    def unreadable_mark(self) -> str | None:
        """Why this spark_wan must not judge by the commit's mark, which a newer one wrote."""
        mark = read_mark(self.metadata)
        return None if mark is None else newer_mark(mark)

    @property
    def changes_rows(self) -> bool:
        return self.operation not in _NO_ROWS

    @property
    def moves_columns(self) -> bool:
        """Whether it may rename or drop a column or a field."""
        return self.operation in ("RENAME COLUMN", "DROP COLUMNS", "REPLACE COLUMNS")

    @property
    def replaces_columns(self) -> bool:
        """Whether it may replace columns by others with the same names."""
        return (
            (self.moves_columns and self.operation != "RENAME COLUMN")
            or self.operation == "REMOVE COLUMN MAPPING"
            or self.parameters.get("canOverwriteSchema", "").lower() == "true"
            or self.table_operation is not None
        )

    @property
    def renamed(self) -> tuple[str, str]:
        """The old and the new path of a ``RENAME COLUMN``, as column_path() writes them.

        Raises KeyError where the history does not say.
        """
        return self.parameters["oldColumnPath"].lower(), self.parameters["newColumnPath"].lower()

    def place_of(self, path: str) -> str | None:
        """Return the path after this commit of what was at ``path`` before it; None: dropped."""
        if self.operation == "RENAME COLUMN":
            old, new = self.renamed
            return new + path[len(old) :] if _is_within(path, old) else path
        if self.operation == "DROP COLUMNS":
            dropped = json.loads(self.parameters["columns"])
            return None if any(_is_within(path, name.lower()) for name in dropped) else path
        if self.operation == "REPLACE COLUMNS":
            kept = (column_path((e["name"],)) for e in json.loads(self.parameters["columns"]))
            return path if any(_is_within(path, name) for name in kept) else None
        return path

    @property
    def rows(self) -> int:
        """An estimate, from the commit's metrics; at least 1."""
        metrics = (self.metrics.get(name, "") for name in _ROW_METRICS)
        return max(1, sum(int(value) for value in metrics if value.isdigit()))

    @property
    def table_operation(self) -> str | None:
        """The operation on the whole table at once, or None: also if the commit does not say what
        it is. Creating the table, at version 0, is none."""
        if self.version == 0:
            return None
        if self.operation in _TABLE_OPERATIONS:
            return self.operation
        if self.operation == "DELETE":
            predicate = self.parameters.get("predicate", "[]").strip()
            if predicate in ("", "[]", '["true"]', "true", "null"):
                return "DELETE without a condition"
        return None

    @property
    def operation_to_send(self) -> str | None:
        """The same, if other sites are to have it, too; None: also if the commit stays here."""
        operation = self.table_operation
        return None if operation is None or self.stays_here else operation


def _is_within(path: str, outer: str) -> bool:
    return path == outer or path.startswith(f"{outer}.")


def is_same_commit(one: str, other: str) -> bool:
    """Whether two identities are of the same commit.

    Their times may differ a little: Delta takes the log file's time, which some stores round to
    seconds. A time that may have been moved is no earlier than the commit's own.
    """
    (one_hash, one_time), (other_hash, other_time) = sorted(map(_parts, (one, other)), key=_time_of)
    if one_time < 0:  # at most so late
        is_time = other_time <= SAME_TIME - one_time
    else:
        is_time = other_time - one_time <= SAME_TIME
    return one_hash == other_hash and is_time


def _parts(identity: str) -> tuple[str, int]:
    """Return hash and time of an identity, as a manifest has it."""
    digest, _, time = identity.partition("@")
    return digest, int(time) if _TIME.fullmatch(time) else 0


def _time_of(parts: tuple[str, int]) -> int:
    return parts[1]
