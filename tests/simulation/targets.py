"""Simulated target tables, with Delta's transactions, and how a receiver sees them.

Decoding is the product's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from fakes import schema

from simulation import invariants
from simulation.delta_log import LOG_RETENTION, Clock, DeltaLog
from spark_wan.apply.change import Change, WriteConflict
from spark_wan.apply.plan import PlannedEpoch
from spark_wan.delta.commits import Commit
from spark_wan.errors import TargetError
from spark_wan.events.columns import differences
from spark_wan.events.operations import ID, OP, RESERVED_PREFIX, SEQUENCE, VERSION, Operation
from spark_wan.events.row_hash import hex_ids, row_hashes
from spark_wan.ledger.applied_columns import AppliedColumns
from spark_wan.ledger.interfaces import TargetName, transaction_name
from spark_wan.wire.frame import FrameRef, check_frame, decode_frame
from spark_wan.wire.manifest import EVENTS, Manifest
from spark_wan.wire.mark import LOCAL_ONLY, LogEntry, Mark

if TYPE_CHECKING:
    from simulation.stores import Effect, TableRows

CONTENT = "content hash"

Row = tuple[Any, ...]
_ROWS = ("columns", "rows", "bag", "applied_versions", "base", "copied")
_STATE = (*_ROWS, "transactions", "app_commits", "shaken", "foreign")
"""What a version of a table is: its rows, its transactions, and whether the marks tell of it."""
FROM_NOTHING = -1
"""Base of a table whose rows are those of all events from the first one on."""


@dataclass
class DeltaTable:
    """What is durable of a target table: commits, rows, and Delta's transaction numbers."""

    name: str
    site: str
    clock: Clock
    root: str | None = None
    """The stream of a user's query with its events, as it begins; None: the table is captured."""
    columns: dict[str, str] = field(default_factory=dict)
    rows: dict[Any, dict[str, Any]] = field(default_factory=dict)
    """Of a keyed table."""
    bag: Counter[Row] = field(default_factory=Counter)
    """Of a keyless one."""
    transactions: dict[str, int] = field(default_factory=dict)
    app_commits: dict[str, int] = field(default_factory=dict)
    """App ID -> the version of its last commit."""
    applied_versions: dict[Any, tuple[int, int]] = field(default_factory=dict)
    """Key -> (version, sequence) of the event that was applied last."""
    marks: dict[int, Mark] = field(default_factory=dict)
    """Version -> the mark of that commit."""
    base: int | None = None
    """The source's version that its rows began with, in a copy; None: there was no copy."""
    copied: int = -1
    """The source's version that the newest copy had; -1: there was no copy."""
    lives: int = 1
    """How many tables there have been at its place: it may be dropped."""
    shaken: bool = False
    """It does not have what its marks say: it was restored, or is another one."""
    foreign: bool = False
    """It has rows that somebody wrote to it here."""
    vacuumed: int = 0
    """Files of versions before this one are gone."""
    states: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Version -> what the table was then."""

    def __post_init__(self) -> None:
        self.log = DeltaLog(self.clock)

    @property
    def id(self) -> str:
        return f"{self.name} at {self.site}" + f", table {self.lives}" * (self.lives > 1)

    @property
    def is_there(self) -> bool:
        return bool(self.log.commits)

    def add(self, operation: str, metadata: str | None = None) -> Commit:
        """Add a commit after what it changes, and keep what the table is then."""
        commit = self.log.add(operation, metadata)
        self.states[commit.version] = {name: copy(getattr(self, name)) for name in _STATE}
        return commit

    def through(self) -> int:
        """The version of the only origin, or the epoch of its root, through which everything is
        there, since the newest copy, by the marks."""
        marks = sorted(self.marks.items())
        copied = max((at for at, mark in marks if mark.replaced is not None), default=0)
        return max([-1, *(through(mark, self.root) for at, mark in marks if at >= copied)])

    def optimize(self) -> None:
        if self.is_there:
            self.add("OPTIMIZE")

    def drop(self) -> None:
        """There is no table any more, nor its log."""
        self.lives += 1
        self.log.cut(0)
        self.columns, self.rows, self.bag = {}, {}, Counter()
        self.transactions, self.app_commits, self.applied_versions = {}, {}, {}
        self.marks, self.states, self.base, self.copied = {}, {}, None, -1
        self.shaken, self.foreign, self.vacuumed = False, False, 0

    def restore(self, version: int) -> None:
        """RESTORE: a commit with the rows of a version. It leaves the transaction numbers."""
        kept = {name: copy(self.states[version][name]) for name in _ROWS}
        self.__dict__.update(kept)
        self.add("RESTORE")

    def rewind(self, version: int) -> None:
        """The table's directory is restored from a backup that ended with a version."""
        self.__dict__.update({name: copy(value) for name, value in self.states[version].items()})
        self.log.cut(version + 1)
        for gone in [each for each in self.states if each > version]:
            del self.states[gone]
            self.marks.pop(gone, None)

    def change(self, key: int, names: Sequence[str]) -> None:
        """Somebody here writes a row. ``names``: all columns that the table may ever have."""
        row = dict.fromkeys(names) | {"id": key, "v": -1}
        if self.bag:
            self.bag[tuple(row[name] for name in names)] += 1
        else:
            self.rows[key] = row
        self.foreign = True
        self.add("WRITE")

    def vacuum(self) -> None:
        self.vacuumed = len(self.log.commits) - 1


@dataclass
class SimulatedTarget:
    """One process's view of a target table (see :class:`spark_wan.apply.change.TargetTable`),
    with Delta's rules:

    - of one app ID a transaction number that is not above the last one is skipped, silently
    - a transaction that began before another one of its app ID ended is a conflict
    - a MERGE conflicts with any other commit
    """

    table: DeltaTable
    ledger: TableRows
    channel: Any
    effect: Effect
    begins_early: bool
    """Whether a write's transaction begins when the epochs are read, or only when it is carried
    out."""
    hints: bool
    """Whether a hint says "unchanged" while commits are added, the worst of hints. It does not when
    the newest file of the log is another one."""
    names: Sequence[str]
    """All columns that the table may ever have."""
    on_write: Callable[[DeltaTable, Mark], None]
    known_id: Callable[[], str | None] = lambda: None
    """Returns the table's ID by the ledger."""
    base_of: Callable[[Manifest], int | None] = lambda manifest: manifest.last_version
    """Returns the source's version with which the rows of a copy began."""
    _began: tuple[int, int] = (0, 0)
    _cuts: int = -1

    def table_id(self) -> str | None:
        return self.table.id if self.table.is_there else None

    def history(self, after: int) -> list[Commit]:
        self._cuts = self.table.log.cuts
        return self.table.log.history(after)

    def is_unchanged(self, version: int) -> bool:
        same = self._cuts == self.table.log.cuts
        return same and (self.hints or version == len(self.table.log.commits) - 1)

    def log_retention(self) -> int:
        return LOG_RETENTION

    def last_transaction(self, name: str) -> int | None:
        return self.table.transactions.get(name)

    def is_empty(self) -> bool:
        return not (self.table.rows or self.table.bag)

    @property
    def sql_name(self) -> str:
        return f"`{self.table.name}`"

    def create(self, epoch: PlannedEpoch) -> None:
        def create() -> None:
            if not self.table.is_there:
                self.table.columns = _columns(epoch)
                self.table.add("CREATE TABLE", LOCAL_ONLY)

        self.effect("the table is created", create)

    def read(self, change: Change, applied: AppliedColumns) -> None:
        target = TargetName(self.table.name, self.table.site, self.sql_name)
        if not self.table.is_there:
            raise TargetError(f"{target.where}, the table is missing. The receiver will retry.")
        columns = schema(**self.table.columns)
        applied.check(columns, change.newest.schema, target)
        added = differences(columns, change.newest.schema).added
        if added:
            self.effect("columns are added", lambda: self._add_columns(_columns(change.epochs[-1])))
        self._began = self._now

    @property
    def _now(self) -> tuple[int, int]:
        """Which table is there, by how often its log was cut, and how many versions it has."""
        log = self.table.log
        return log.cuts, len(log.commits)

    def _add_columns(self, columns: dict[str, str]) -> None:
        if self.table.is_there:
            self.table.columns = self.table.columns | columns
            self.table.add("ADD COLUMNS")

    def resolve(self, change: Change) -> None:
        """A user's events are decoded and judged here; captured ones only when they are written, as
        Spark does."""
        if change.copied_ids is not None:
            change.new_ids = change.copied_ids.rows
        if not change.has_event_ids:
            return
        known, first = self.ledger.known_ids(change.ids_since), {}
        rows = []
        for row in sorted(
            self._decode(change.epochs),
            key=lambda row: (row[VERSION], row.get(SEQUENCE, 0), row[CONTENT]),
        ):
            seen = known.get(row[ID], first.get(row[ID]))
            if seen is None:
                first[row[ID]] = row[CONTENT]
                rows.append(row)
            else:
                invariants.same_id_is_same_event(row[ID], seen, row[CONTENT])
                change.duplicates += 1
        change.rows, change.new_ids = rows, len(rows)

    def record(self, change: Change, mark: Mark) -> None:
        if change.is_of_users:
            origin, ids = change.newest.origin, change.copied_ids
            if ids is None:
                found = [(row[ID], row[CONTENT]) for row in change.rows]
            else:
                copied = self._decode([PlannedEpoch(ids, -1)])
                found = [(row["event_id"], row["content"]) for row in copied]
            fresh = [(*each, mark.token, origin) for each in found]
            self.effect("event IDs are recorded", lambda: self.ledger.ids.extend(fresh))

    def write(self, change: Change, mark: Mark) -> None:
        rows = change.rows if change.has_event_ids else self._decode(change.epochs)
        keyed = bool(change.epochs[-1].manifest.keys)
        # A copy may be the first commit to a new table, which the ledger does not know yet.
        target_id = (None if change.is_copy else self.known_id()) or self.table_id()
        app = transaction_name(mark.site, mark.table, str(target_id))
        began = self._began if self.begins_early else self._now
        self.effect(
            "the table is written", lambda: self._transaction(began, rows, change, mark, app, keyed)
        )

    def _transaction(
        self,
        began: tuple[int, int],
        rows: list[dict[str, Any]],
        change: Change,
        mark: Mark,
        app: str,
        keyed: bool,
    ) -> None:
        """What Delta decides at the moment of the commit. An append and an overwrite create a table
        that is missing."""
        cuts, version = began
        if keyed and not change.is_copy and not self.table.is_there:
            raise TargetError(f"{self.table.name}: the table is missing. The receiver will retry.")
        others = self.table.app_commits.get(app, -1) >= version
        exclusive = keyed or change.is_copy
        if others or cuts != self.table.log.cuts or (exclusive and self._now != began):
            raise WriteConflict(
                f"version {len(self.table.log.commits) - 1} was committed meanwhile"
            )
        if (
            self.table.transactions.get(app, 0) < mark.apply
        ):  # otherwise it is skipped: no error, no commit
            self._commit(rows, change, mark, app, keyed)

    def _commit(
        self, rows: list[dict[str, Any]], change: Change, mark: Mark, app: str, keyed: bool
    ) -> None:
        names = list(_columns(change.epochs[-1]))
        table = self.table
        # What was meant for a newer state of the table, or for another one, Delta cannot refuse.
        before = max((each.apply for each in table.marks.values()), default=0)
        table.shaken = table.shaken or (mark.apply != before + 1 and not change.is_copy)
        if not table.is_there:
            table.columns = _columns(change.epochs[-1])
        if change.is_copy:
            self._replace_all(rows, change)
        elif keyed:
            newest: dict[Any, dict[str, Any]] = {}
            for row in sorted(rows, key=_place):
                newest[row["id"]] = row
            for key, row in newest.items():
                nothing = (table.copied, -1)
                before = table.applied_versions.get(key, nothing)
                if not table.shaken:
                    invariants.goes_on(table.id, key, before, _place(row))
                table.applied_versions[key] = _place(row)
                if row[OP] == Operation.DESTROY:
                    table.rows.pop(key, None)
                else:
                    table.rows[key] = {
                        **table.rows.get(key, {}),
                        **{name: row[name] for name in names},
                    }
        else:
            table.bag.update(tuple(row.get(name) for name in self.names) for row in rows)
        table.transactions[app] = mark.apply
        table.app_commits[app] = len(table.log.commits)
        commit = table.add("MERGE" if keyed else "WRITE", mark.user_metadata())
        table.marks[commit.version] = mark
        self.on_write(table, mark)

    def _replace_all(self, rows: list[dict[str, Any]], change: Change) -> None:
        """The rows of a copy take the place of all that are there."""
        table, names = self.table, list(_columns(change.epochs[-1]))
        if change.newest.keys:
            table.rows = {row["id"]: {name: row[name] for name in names} for row in rows}
        else:
            table.bag = Counter(tuple(row.get(name) for name in self.names) for row in rows)
        table.base, table.copied = self.base_of(change.newest), change.newest.last_version
        table.applied_versions = {}

    def done(self, change: Change) -> None:
        change.rows = None

    def check_frames(self, epoch: PlannedEpoch) -> None:
        for ref in epoch.manifest.frames:
            check_frame(self.channel.get_frame(ref.path), ref.path, ref)

    def dead_letters(self, stream: str) -> int:
        return 0

    def _decode(self, epochs: Sequence[PlannedEpoch]) -> list[dict[str, Any]]:
        """The events of epochs; those of a user stream have their epoch for a version, and a
        content hash."""
        rows = []
        for epoch in epochs:
            for ref in epoch.manifest.frames:
                events = _events(self.channel.get_frame(ref.path), ref)
                found = events.to_pylist()
                if epoch.manifest.kind == EVENTS:
                    content = [
                        name for name in events.schema.names if not name.startswith(RESERVED_PREFIX)
                    ]
                    hashes = hex_ids(row_hashes(events, [OP, *content])).to_pylist()
                    for row, content_hash in zip(found, hashes, strict=True):
                        row |= {VERSION: epoch.manifest.epoch, CONTENT: content_hash}
                rows += [row for row in found if epoch.above < 0 or row[VERSION] > epoch.above]
        return rows


@lru_cache(64)
def _events(data: bytes, ref: FrameRef) -> pa.RecordBatch:
    """Each site decodes the same frames."""
    return decode_frame(data, ref.path, ref)[1]


def _columns(epoch: PlannedEpoch) -> dict[str, str]:
    return {entry["name"]: entry["type"] for entry in epoch.manifest.schema["fields"]}


def through(mark: Mark, root: str | None) -> int:
    """Return the version of its only origin, or the epoch of its ``root``, through which a mark
    says that everything is there."""
    if root is not None:
        own = (part.epoch for part in mark.applied if part.stream == root)
        return max([-1, *own, *epochs_of(mark.logs or (), root)])
    applied = (part.through for part in mark.applied)
    return max([*applied, *(version for *_, version in mark.vector or ())])


def epochs_of(logs: Iterable[LogEntry], stream: str) -> list[int]:
    """Return the epochs through which logs of a stream are applied."""
    return [epoch for name, _, epoch, _ in logs if name == stream]


def _place(row: dict[str, Any]) -> tuple[int, int]:
    return (row[VERSION], row.get(SEQUENCE, 0))
