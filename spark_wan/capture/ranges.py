"""Which commits of a source table become an epoch. No Spark: the history comes in as plain records.

Ranges are whole commits, chosen from the table's history (Delta's ``DESCRIBE HISTORY``). They are cut at schema changes, bounded by an
estimate of their rows, and leave out what receivers and local-only writers have committed. A commit is never split.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from spark_wan.delta.commits import Commit
from spark_wan.errors import (
    COPY,
    ForwardingError,
    HistoryLostError,
    SchemaError,
    TableOperationError,
)
from spark_wan.events.columns import column_paths, differences, fingerprint, widens
from spark_wan.wire.frame import FrameRef


@dataclass(frozen=True)
class CaptureRange:
    """The commits ``first`` to ``last`` (inclusive), read as one, with the columns ``schema``.

    ``left_out`` are versions inside it that are not distributed. ``quiet``: no commit in it changes a row that travels.
    """

    first_version: int
    last_version: int
    schema: Mapping[str, Any]
    left_out: tuple[int, ...]
    commits: tuple[Commit, ...]
    rows: int

    @property
    def quiet(self) -> bool:
        return not any(c.changes_rows and c.version not in self.left_out for c in self.commits)

    @property
    def identity(self) -> str:
        return self.commits[-1].identity

    @property
    def names(self) -> list[str]:
        """Of its columns."""
        return [field["name"] for field in self.schema["fields"]]

    @property
    def keeps_columns(self) -> bool:
        """Whether each column is the same one from its first commit to its last, whatever its name was in between."""
        return not any(c.replaces_columns for c in self.commits)

    def before(self, version: int) -> CaptureRange:
        """What of it is before ``version``, which must not be its first."""
        commits = tuple(commit for commit in self.commits if commit.version < version)
        left_out = tuple(each for each in self.left_out if each < version)
        return replace(self, last_version=version - 1, left_out=left_out, commits=commits)


SchemaAt = Callable[[int], Mapping[str, Any]]


def plan_range(
    commits: Sequence[Commit],
    published: int,
    schema_at: SchemaAt,
    *,
    max_rows: int,
    table: str,
    on_table_operation: str = "hold",
    decision: Callable[[int], str | None] = lambda version: None,
    published_schema: Mapping[str, Any] | None = None,
    addressees: Sequence[str] = (),
) -> CaptureRange | None:
    """Choose the next range above version ``published`` from ``commits`` (ascending); None when there is nothing newer.

    1. the history must go on at ``published + 1``, else HistoryLostError
    2. whole-table operations wait for a decision (TableOperationError), unless that is already made
    3. so does what a receiver wrote from another site (ForwardingError), unless every site of ``addressees`` is where it came from
    4. commits are taken until their estimated rows reach ``max_rows``; the first is always taken
    5. the range is cut where the columns change; a dropped column is a SchemaError, and so is a renamed one until it has its name again
    """
    newer = [commit for commit in commits if commit.version > published]
    if not newer:
        return None
    if newer[0].version != published + 1:
        raise HistoryLostError(
            f"{table}: versions {published + 1} to {newer[0].version - 1} are no longer in the table's history; log cleanup "
            f"has overtaken the sender. Nothing after them is sent, so that no site misses them silently. Make {COPY}. Raise "
            "delta.logRetentionDuration and delta.deletedFileRetentionDuration above the longest pause."
        )
    for before, after in pairwise(newer):
        if after.version != before.version + 1:
            raise HistoryLostError(
                f"{table}: version {before.version + 1} is missing in the table's history. The stream is held; make {COPY}."
            )
    taken: list[Commit] = []
    left_out: list[int] = []
    rows = 0
    names = _Names(None if published_schema is None else set(column_paths(dict(published_schema))))
    for commit in newer:
        leave = commit.stays_here
        may_end = bool(taken) and not names.moved
        if commit.changes_rows and (lacking := _lacking(commit, addressees)):
            action = decision(commit.version) or "hold"
            if action == "hold":
                if may_end:
                    break
                raise ForwardingError(_chain(table, commit, lacking))
            leave = action == "skip"
        if commit.moves_columns and (
            taken or published_schema is not None
        ):  # before all that is sent it moves nothing
            if may_end:
                break
            if commit.operation == "RENAME COLUMN":
                names.rename(*commit.renamed)
            else:
                _check_nothing_dropped(commit, schema_at, published_schema, table)
        operation = None if leave else commit.table_operation
        if operation is not None:
            action = decision(commit.version) or on_table_operation
            if action == "hold":
                if may_end:
                    break
                raise TableOperationError(
                    f"{table}: version {commit.version} is a {operation}. It is not sent by itself, so that nobody empties every "
                    f"site by accident. Decide once with `spark-wan send --decide {table}@{commit.version}=distribute` (or "
                    "`=skip`), or for good with `on_table_operation: distribute` in the topology."
                )
            leave = action == "skip"
        if may_end and not leave and rows + commit.rows > max_rows:
            break
        taken.append(commit)
        if leave:
            left_out.append(commit.version)
        elif commit.changes_rows:
            rows += commit.rows
        if names.are_back:
            # All columns have their names again: one range from the first rename to the last, read under those names.
            break
    if names.moved:
        raise SchemaError(
            f"{table}: version {newer[0].version} renames columns: {names}. A rename cannot be carried by name. The stream is held before that version. "
            f"Rename back (ALTER TABLE … RENAME COLUMN), and the stream goes on; or make {COPY}."
        )
    if names.are_back:
        last, schema = taken[-1].version, schema_at(taken[-1].version)
    else:
        last, schema = _cut(taken[0].version, taken[-1].version, schema_at, published_schema)
    taken = [commit for commit in taken if commit.version <= last]
    return CaptureRange(
        first_version=published + 1,
        last_version=last,
        schema=schema,
        left_out=tuple(version for version in left_out if version <= last),
        commits=tuple(taken),
        rows=rows,
    )


def _lacking(commit: Commit, addressees: Sequence[str]) -> list[str]:
    """The addressees that do not have what a receiver wrote here: all but the site that it came from."""
    origin = commit.received_from
    return [] if origin is None else [site for site in addressees if site != origin]


def _chain(table: str, commit: Commit, lacking: Sequence[str]) -> str:
    origin = commit.received_from
    return (
        f"{table}: version {commit.version} was written by a receiver of this site, with rows from site {origin or 'unknown'}; this sender does not "
        f"send them on to {', '.join(lacking)} (forwarding is not in this version). The stream is held before that version, so that no site "
        f"misses them silently. Have a sender at {origin or 'their origin'} send the table to {', '.join(lacking)} and detach this one; or decide for "
        f"this version: `spark-wan send --decide {table}@{commit.version}=distribute` sends its rows as this site's own, `=skip` leaves them out."
    )


def check_columns_follow(
    before: Mapping[str, Any], after: Mapping[str, Any], table: str, version: int
) -> None:
    """Raise SchemaError unless ``after`` has all columns and nested fields of ``before``, with their types or wider ones; added ones are fine."""
    change = differences(before, after)
    retyped = [(path, old, new) for path, old, new in change.retyped if not widens(old, new)]
    if change.dropped or retyped:
        what = [f"{'.'.join(path)} is gone (dropped or renamed)" for path in change.dropped]
        what += [f"{'.'.join(path)} was {old} and is {new}" for path, old, new in retyped]
        raise SchemaError(
            f"{table}: at version {version} its columns changed in a way that cannot be carried by name: {'; '.join(what)}. "
            f"The stream is held before that version. Make {COPY}."
        )


@dataclass
class _Names:
    """Columns that were renamed: (name before, name now). The name before is None for a column that was added since. ``published``: those that
    there were before, where that is known."""

    published: Collection[str] | None = None
    pairs: list[tuple[str | None, str]] = field(default_factory=list)

    def rename(self, old: str, new: str) -> None:
        if not any(now == old for _, now in self.pairs):
            self.pairs.append((self._before(old), old))
        self.pairs = [
            (before, new + now[len(old) :] if now == old or now.startswith(f"{old}.") else now)
            for before, now in self.pairs
        ]

    def _before(self, name: str) -> str | None:
        """What a column that has not been renamed itself was called before; its parents may have been renamed."""
        parents = [pair for pair in self.pairs if name.startswith(f"{pair[1]}.")]
        before, now = max(parents, key=lambda pair: len(pair[1]), default=("", ""))
        was = None if before is None else before + name[len(now) :]
        # Who had that name has another one now, or its parent has.
        taken = was is not None and any(
            f"{was}.".startswith(f"{each}.") for each, _ in self.pairs if each != before
        )
        added = self.published is not None and was not in self.published
        return None if taken or added else was

    @property
    def moved(self) -> bool:
        return any(before not in (None, now) for before, now in self.pairs)

    @property
    def are_back(self) -> bool:
        return bool(self.pairs) and not self.moved

    def __str__(self) -> str:
        return "; ".join(
            f"{before} is named {now} now"
            for before, now in self.pairs
            if before not in (None, now)
        )


def _check_nothing_dropped(
    commit: Commit, schema_at: SchemaAt, before: Mapping[str, Any] | None, table: str
) -> None:
    """Raise SchemaError when a commit takes columns away. What replaces columns may have added some only."""
    told = commit.parameters.get("columns", "?")
    if commit.operation == "REPLACE COLUMNS":
        dropped = differences(
            before or schema_at(commit.version - 1), schema_at(commit.version)
        ).dropped
        if not dropped:
            return
        told = ", ".join(".".join(path) for path in dropped)
    raise SchemaError(
        f"{table}: version {commit.version} drops columns ({told}). The remote sites have values in "
        "them, and a column that is added again under the same name is empty here and not there. The stream is held before that "
        f"version. Make {COPY}."
    )


def _cut(
    first: int, last: int, schema_at: SchemaAt, before: Mapping[str, Any] | None
) -> tuple[int, Mapping[str, Any]]:
    """The longest range from ``first`` within ``last`` with one schema, found by bisection, and that schema.

    ``before`` is the schema of the version before ``first``, where it is known: mostly it is that of ``last`` still."""
    newest = schema_at(last)
    if first == last or (before is not None and fingerprint(newest) == fingerprint(before)):
        return last, newest
    schema = schema_at(first)
    wanted = fingerprint(schema)
    if fingerprint(newest) == wanted:
        return last, schema
    same, other = first, last
    while other - same > 1:
        middle = (same + other) // 2
        if fingerprint(schema_at(middle)) == wanted:
            same = middle
        else:
            other = middle
    return same, schema


@dataclass(frozen=True)
class CaptureResult:
    """What capture has written of a range: frames, and in which commits their events were."""

    frames: tuple[FrameRef, ...]
    disjoint: bool
    versions: tuple[int, ...]
