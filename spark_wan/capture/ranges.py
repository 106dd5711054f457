"""Which commits of a source table become an epoch. No Spark: decides by the records of its history.

Ranges are whole commits. They are cut where the columns change, bounded by an estimate of their
rows, and leave out what receivers and local-only writers have committed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile
from typing import Any, Literal

from spark_wan.delta.commits import Commit
from spark_wan.errors import (
    SOURCE,
    ForwardingError,
    HistoryLostError,
    NewerMarkError,
    SchemaError,
    TableOperationError,
)
from spark_wan.events.columns import column_paths, differences, fingerprint, widens
from spark_wan.wire.frame import FrameRef


@dataclass(frozen=True)
class Part:
    """One of the parts in which the rows of a version go: part ``number`` of ``of``, from 1."""

    number: int
    of: int


ALL_PARTS = Part(1, 1)
"""All rows."""


Reason = Literal["local_only", "received", "by_setting", "by_decision"]
"""Why a commit is not distributed; called as in :class:`~spark_wan.wire.sender_record.NotSent`."""


@dataclass(frozen=True)
class CaptureRange:
    """Commits that are read as one, all with the columns ``schema``. Versions are inclusive."""

    first_version: int
    last_version: int
    schema: Mapping[str, Any]
    why_left_out: Mapping[int, Reason]
    """Versions inside the range that are not distributed, and why."""
    commits: tuple[Commit, ...]
    rows: int
    """An estimate."""

    @property
    def left_out(self) -> tuple[int, ...]:
        """Versions inside the range that are not distributed."""
        return tuple(self.why_left_out)

    @property
    def quiet(self) -> bool:
        """Whether no commit changes a row that is distributed."""
        return not any(c.changes_rows and c.version not in self.left_out for c in self.commits)

    @property
    def identity(self) -> str:
        return self.commits[-1].identity

    @property
    def column_names(self) -> list[str]:
        return [field["name"] for field in self.schema["fields"]]

    @property
    def keeps_columns(self) -> bool:
        """Whether each column is the same one throughout, even if renamed in between."""
        return not any(c.replaces_columns for c in self.commits)

    def before(self, version: int) -> CaptureRange:
        """Return the part of this range before ``version``, which must not be its first."""
        commits = tuple(commit for commit in self.commits if commit.version < version)
        why = {each: reason for each, reason in self.why_left_out.items() if each < version}
        return replace(self, last_version=version - 1, why_left_out=why, commits=commits)


@dataclass(frozen=True)
class CaptureResult:
    """What a capture has written of a range."""

    frames: tuple[FrameRef, ...] = ()
    disjoint: bool = True
    """No key has events in two frames."""
    versions: tuple[int, ...] = ()
    """The commits that have events, ascending."""
    unchanged: int = 0
    """Rows that a commit replaced by equal ones: they are no events."""


SchemaAt = Callable[[int], Mapping[str, Any]]


@dataclass(frozen=True)
class RangePlanner:
    """Chooses the next range of a table by the rules of its stream."""

    table: str
    schema_at: SchemaAt
    """The table's columns at a version, as Spark's schema JSON."""
    max_rows: int
    on_table_operation: str = "hold"
    decision: Callable[[int], str | None] = lambda version: None
    """The user's decision about a version: ``distribute``, ``skip``, or None."""
    addressees: Sequence[str] = ()
    is_empty_at: Callable[[int], bool] = lambda version: False
    """Whether the table has no rows at a version. Called for commits that do not say what they are,
    and so may be an operation on the whole table."""
    may_follow: Callable[[Commit], bool] = lambda commit: True
    """Whether a commit is before the end of the stream."""

    def plan(
        self,
        commits: Sequence[Commit],
        published: int,
        published_schema: Mapping[str, Any] | None = None,
    ) -> CaptureRange | None:
        """Return the next range of ``commits`` (ascending) above version ``published``, or None.

        1. The history must go on at ``published + 1``, else HistoryLostError. Commits behind the
           end of the stream are left.
        2. A whole-table operation waits for a decision (TableOperationError).
        3. So does what a receiver wrote from another site (ForwardingError), unless that site is
           the only addressee.
        4. Commits are taken until their estimated rows reach ``max_rows``; always at least one.
        5. The range is cut where the columns change. A dropped column is a SchemaError, and so is
           a renamed one until it has its name again.
        """
        newer = [commit for commit in commits if commit.version > published]
        if not newer:
            return None
        self._check_history(newer, published)
        newer = [*takewhile(self.may_follow, newer)]
        if not newer:
            return None
        renames = RenamedColumns(
            None if published_schema is None else set(column_paths(dict(published_schema)))
        )
        taken: list[Commit] = []
        left_out: dict[int, Reason] = {}
        rows = 0
        for commit in newer:
            may_end = bool(taken) and not renames.open
            # Before everything that is sent, a renamed or dropped column does not matter.
            moves = commit.moves_columns and (bool(taken) or published_schema is not None)
            if may_end and moves:
                break
            try:
                reason = self._why_left_out(commit)
                if moves and commit.operation == "RENAME COLUMN":
                    renames.rename(*commit.renamed)
                elif moves:
                    self._check_nothing_dropped(commit, published_schema)
            except (ForwardingError, NewerMarkError, TableOperationError):
                if may_end:
                    break
                raise
            if may_end and reason is None and rows + commit.rows > self.max_rows:
                break
            taken.append(commit)
            if reason is not None:
                left_out[commit.version] = reason
            elif commit.changes_rows:
                rows += commit.rows
            if renames.undone:
                break
        if renames.open:
            raise SchemaError(
                f"{self.table}: version {newer[0].version} renames columns: {renames}. A rename "
                "cannot be carried by name. The stream is held before that version. Rename back "
                f"(ALTER TABLE … RENAME COLUMN), and the stream goes on.",
                needs=SOURCE,
            )
        if renames.undone:
            # One range from the first rename to the last, read under the names of its end.
            last = taken[-1].version
            schema = self.schema_at(last)
        else:
            last, schema = self._cut(taken[0].version, taken[-1].version, published_schema)
        return CaptureRange(
            first_version=published + 1,
            last_version=last,
            schema=schema,
            why_left_out={each: why for each, why in left_out.items() if each <= last},
            commits=tuple(commit for commit in taken if commit.version <= last),
            rows=rows,
        )

    def _check_history(self, newer: Sequence[Commit], published: int) -> None:
        if newer[0].version != published + 1:
            raise HistoryLostError(
                f"{self.table}: versions {published + 1} to {newer[0].version - 1} are no longer "
                "in the table's history; log cleanup has overtaken the sender. Raise "
                "delta.logRetentionDuration and delta.deletedFileRetentionDuration above the "
                "longest pause.",
                needs=SOURCE,
            )
        for before, after in pairwise(newer):
            if after.version != before.version + 1:
                raise HistoryLostError(
                    f"{self.table}: version {before.version + 1} is missing in the table's "
                    "history.",
                    needs=SOURCE,
                )

    def _why_left_out(self, commit: Commit) -> Reason | None:
        """Return why a commit is not distributed; None: it is. Raises SourceError while that is
        undecided."""
        version = f"{self.table}@{commit.version}"
        if (unreadable := commit.unreadable_mark) is not None:
            raise NewerMarkError(
                f"{self.table}: version {commit.version} carries a mark {unreadable}. The stream "
                "is held before that version. Update spark_wan at this site."
            )
        if commit.changes_rows and (lacking := self._lacking(commit)):
            action = self.decision(commit.version) or "hold"
            if action == "hold":
                origin = ", ".join(sorted(commit.received_from or ()))
                sites = ", ".join(lacking)
                raise ForwardingError(
                    f"{self.table}: version {commit.version} was written by a receiver of this "
                    f"site, with rows from site {origin or 'unknown'}; this sender does not send "
                    f"them on to {sites} (receivers forward what they get, senders capture "
                    "what their own site writes). The stream is held before that version, so that "
                    "no site misses them silently. Decide for this version: `spark-wan decide "
                    f"{version}=distribute` sends its rows as this site's own, `=skip` "
                    f"leaves them out, if {sites} got them another way."
                )
            if action == "skip":
                return "by_decision"
        elif commit.stays_here:
            return "local_only" if commit.received_from is None else "received"
        operation = commit.table_operation
        if operation is None and (commit.operation or commit.version == 0):
            return None
        decided = self.decision(commit.version)
        action = decided or self.on_table_operation
        if operation is None and action != "distribute":
            # Its log has no commitInfo, as some writers leave it.
            if not self._empties(commit):
                return None
            operation = "commit that does not say what it is, and empties the table"
        if action == "hold":
            raise TableOperationError(
                f"{self.table}: version {commit.version} is a {operation}. It is not sent by "
                "itself, so that no accident empties every site. Decide once with "
                f"`spark-wan decide {version}=distribute` (or `=skip`), or for good with "
                "`on_table_operation: distribute` in the topology."
            )
        if action != "skip":
            return None
        return "by_setting" if decided is None else "by_decision"

    def _empties(self, commit: Commit) -> bool:
        return self.is_empty_at(commit.version) and not self.is_empty_at(commit.version - 1)

    def _lacking(self, commit: Commit) -> list[str]:
        """The addressees without the rows of a receiver's commit: all but their only origin."""
        origins = commit.received_from
        return [] if origins is None else [site for site in self.addressees if origins != {site}]

    def _check_nothing_dropped(self, commit: Commit, before: Mapping[str, Any] | None) -> None:
        """Raise SchemaError when a commit drops columns. Replacing columns may only add some."""
        columns = commit.parameters.get("columns", "?")
        if commit.operation == "REPLACE COLUMNS":
            before = before or self.schema_at(commit.version - 1)
            dropped = differences(before, self.schema_at(commit.version)).dropped
            if not dropped:
                return
            columns = ", ".join(".".join(path) for path in dropped)
        raise SchemaError(
            f"{self.table}: version {commit.version} drops columns ({columns}). The remote sites "
            "have values in them, and a column that is added again under the same name is empty "
            "here and not there. The stream is held before that version.",
            needs=SOURCE,
        )

    def _cut(
        self, first: int, last: int, before: Mapping[str, Any] | None
    ) -> tuple[int, Mapping[str, Any]]:
        """The longest range from ``first`` within ``last`` with one schema, and that schema.

        Found by bisection. ``before``: the schema before ``first``, if known; often it is still
        that of ``last``.
        """
        newest = self.schema_at(last)
        if first == last or (before is not None and fingerprint(newest) == fingerprint(before)):
            return last, newest
        schema = self.schema_at(first)
        wanted = fingerprint(schema)
        if fingerprint(newest) == wanted:
            return last, schema
        same, other = first, last
        while other - same > 1:
            middle = (same + other) // 2
            if fingerprint(self.schema_at(middle)) == wanted:
                same = middle
            else:
                other = middle
        return same, schema


def check_columns_follow(
    before: Mapping[str, Any], after: Mapping[str, Any], table: str, version: int
) -> None:
    """Raise SchemaError unless ``after`` has all fields of ``before``, or wider ones.

    Nested fields count too. New columns and fields are fine.
    """
    change = differences(before, after)
    retyped = [(path, old, new) for path, old, new in change.retyped if not widens(old, new)]
    if change.dropped or retyped:
        problems = [f"{'.'.join(path)} is gone (dropped or renamed)" for path in change.dropped]
        problems += [f"{'.'.join(path)} was {old} and is {new}" for path, old, new in retyped]
        raise SchemaError(
            f"{table}: at version {version} its columns changed in a way that cannot be carried by "
            f"name: {'; '.join(problems)}. The stream is held before that version.",
            needs=SOURCE,
        )


@dataclass
class RenamedColumns:
    """Columns and fields that were renamed, and whether all have their names again."""

    published: Collection[str] | None = None
    """The columns before the renames; None: unknown."""
    pairs: list[tuple[str | None, str]] = field(default_factory=list)
    """(name before, name now). The name before is None for a column that was added since."""

    def rename(self, old: str, new: str) -> None:
        if not any(now == old for _, now in self.pairs):
            self.pairs.append((self._original_name(old), old))
        self.pairs = [
            (before, new + now[len(old) :] if now == old or now.startswith(f"{old}.") else now)
            for before, now in self.pairs
        ]

    def _original_name(self, name: str) -> str | None:
        """Return the name that a column had; not it but its parents may have been renamed."""
        parents = [pair for pair in self.pairs if name.startswith(f"{pair[1]}.")]
        before, now = max(parents, key=lambda pair: len(pair[1]), default=("", ""))
        was = None if before is None else before + name[len(now) :]
        # The column that had this name, or its parent, was renamed: this one was added since.
        taken = was is not None and any(
            f"{was}.".startswith(f"{each}.") for each, _ in self.pairs if each != before
        )
        added = self.published is not None and was not in self.published
        return None if taken or added else was

    @property
    def open(self) -> bool:
        """Whether a column has another name than before."""
        return any(before not in (None, now) for before, now in self.pairs)

    @property
    def undone(self) -> bool:
        return bool(self.pairs) and not self.open

    def __str__(self) -> str:
        return "; ".join(
            f"{before} is named {now} now"
            for before, now in self.pairs
            if before not in (None, now)
        )
