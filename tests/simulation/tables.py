"""Simulated Delta tables, as the core sees them: a source with a change feed, a target with Delta's
transactions, a ledger.

Netting, batching, encoding and decoding are the product's own.
"""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from fakes import schema

from spark_wan.capture.netting import COMMIT_VERSION, RANK, net
from spark_wan.capture.ranges import CaptureRange, CaptureResult
from spark_wan.channels.batches import BatchLimits, BatchPublisher
from spark_wan.delta.commits import DAY, Commit
from spark_wan.events.columns import differences
from spark_wan.events.operations import ID, OP, RESERVED_PREFIX, SEQUENCE, VERSION, Operation
from spark_wan.events.row_hash import hex_ids, row_hashes
from spark_wan.ledger.applied_columns import AppliedColumns
from spark_wan.ledger.event_ids import FoldedIds, RecordedIds, is_range_token
from spark_wan.ledger.records import (
    HistoryPosition,
    LedgerRecord,
    LedgerRow,
    TargetName,
    transaction_name,
)
from spark_wan.ledger.summary import Summary
from spark_wan.receiver.apply import ApplyBatch, WriteConflict
from spark_wan.receiver.plan import PlannedEpoch
from spark_wan.wire.frame import FrameHeader, FrameRef, check_frame, decode_frame
from spark_wan.wire.manifest import EVENTS
from spark_wan.wire.mark import LOCAL_ONLY, Mark, read_mark

CONTENT = "content hash"

Row = tuple[Any, ...]
Clock = Callable[[], int]
Effect = Callable[[str, Callable[[], Any]], Any]
"""Runs what changes the outside world: a process may die right before or right after it."""


@dataclass
class SourceVersion:
    """A version of the source: its commit, its change feed, and the rows after it."""

    commit: Commit
    columns: dict[str, str]
    changes: list[tuple[str, Row]]
    rows: dict[int, Row] | list[Row]


@dataclass
class SimulatedSource:
    """A Delta table at the sending site. Columns ``id`` and ``v``, and ``w`` once it was added; the
    key is ``id``, or there is none."""

    keyed: bool
    clock: Clock
    versions: list[SourceVersion] = field(default_factory=list)
    channel: Any = None

    def __post_init__(self) -> None:
        self._add("CREATE TABLE", [], {} if self.keyed else [], {"id": "long", "v": "long"})

    # --- what the site's users do

    def change(
        self, pairs: Sequence[tuple[int, int | None]], style: str, user_metadata: str | None
    ) -> None:
        """Commit ``(key, value)`` pairs, None for a delete. ``style`` says with which change rows
        the feed shows them."""
        newest = self.versions[-1]
        width = len(newest.columns)
        if isinstance(newest.rows, list):
            added: list[Row] = [(key, value or 0, value)[:width] for key, value in pairs]
            self._add(
                "WRITE",
                [("insert", row) for row in added],
                newest.rows + added,
                metadata=user_metadata,
            )
            return
        rows = dict(newest.rows)
        for key, value in pairs:
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = (key, value, value)[:width]
        both = (
            ("delete", "insert")
            if style == "overwrite"
            else ("update_preimage", "update_postimage")
        )
        gone, came = (
            ("update_preimage", "update_postimage")
            if style == "keys change"
            else ("delete", "insert")
        )
        changes: list[tuple[str, Row]] = []
        for key in sorted({key for key, _ in pairs}):
            old, new = newest.rows.get(key), rows.get(key)
            if old is not None:
                changes.append((both[0] if new is not None else gone, old))
            if new is not None:
                changes.append((both[1] if old is not None else came, new))
        self._add("MERGE", changes, rows, metadata=user_metadata)

    def empty(self) -> None:
        """DELETE without a condition."""
        rows = self.versions[-1].rows
        assert isinstance(rows, dict)
        self._add(
            "DELETE", [("delete", row) for row in rows.values()], {}, parameters={"predicate": "[]"}
        )

    def optimize(self) -> None:
        self._add("OPTIMIZE", [], self.versions[-1].rows)

    def add_column(self) -> None:
        """Add column ``w``, once; old rows have null there."""
        newest = self.versions[-1]
        if "w" in newest.columns:
            return
        if isinstance(newest.rows, list):
            rows: Any = [(*row, None) for row in newest.rows]
        else:
            rows = {key: (*row, None) for key, row in newest.rows.items()}
        self._add("ADD COLUMNS", [], rows, {**newest.columns, "w": "long"})

    def _add(
        self,
        operation: str,
        changes: list[tuple[str, Row]],
        rows: Any,
        columns: dict[str, str] | None = None,
        metadata: str | None = None,
        parameters: Mapping[str, str] | None = None,
    ) -> None:
        version = len(self.versions)
        metrics = {"numOutputRows": str(len(changes))}
        commit = Commit(
            version, self.clock(), operation, parameters or {}, metrics, metadata, version - 1
        )
        self.versions.append(
            SourceVersion(commit, columns or self.versions[-1].columns, changes, rows)
        )

    def expected(self, through: int, snapshot: int | None) -> Any:
        """What a target must hold that has everything through a version: netted here once more,
        from the rows themselves."""
        if not self.keyed:
            rows: Counter[Row] = Counter()
            for version in self.versions[: through + 1]:
                if not version.commit.stays_here:
                    rows.update(_padded(row) for _, row in version.changes)
            return rows
        first = 0 if snapshot is None else snapshot + 1
        held = {} if snapshot is None else dict(self.versions[snapshot].rows)  # type: ignore[arg-type]
        for before, version in itertools.pairwise(self.versions[max(first - 1, 0) : through + 1]):
            old, new = before.rows, version.rows
            assert isinstance(old, dict) and isinstance(new, dict)
            if version.commit.stays_here or version.commit.operation == "ADD COLUMNS":
                continue
            for key in old.keys() | new.keys():
                if key not in new:
                    held.pop(key, None)
                elif old.get(key) != new[key]:
                    held[key] = new[key]
        return {key: _padded(row) for key, row in held.items()}

    # --- what the publisher asks (SourceTable)

    def table_id(self) -> str:
        return "source-table"

    def look(self, version: int) -> object:
        return version if version == len(self.versions) - 1 else object()

    def newest(self) -> Commit:
        return self.versions[-1].commit

    def history(self, after: int) -> list[Commit]:
        return [version.commit for version in self.versions[after + 1 :]]

    def commit(self, version: int) -> Commit | None:
        return self.versions[version].commit if version < len(self.versions) else None

    def log_retention(self) -> int:
        return 30 * DAY

    def schema_at(self, version: int) -> Mapping[str, Any]:
        return schema(**self.versions[version].columns)

    def capture(self, planned: CaptureRange, header: FrameHeader) -> CaptureResult:
        rows = [
            (row, version, change)
            for version in range(planned.first_version, planned.last_version + 1)
            if version not in planned.left_out
            for change, row in self.versions[version].changes
        ]
        return self._publish(rows, planned.schema, header)

    def snapshot(
        self, version: int, schema: Mapping[str, Any], header: FrameHeader
    ) -> CaptureResult:
        rows = self.versions[version].rows
        assert isinstance(rows, dict)
        return self._publish([(row, version, "insert") for row in rows.values()], schema, header)

    def _publish(
        self, rows: list[tuple[Row, int, str]], schema: Mapping[str, Any], header: FrameHeader
    ) -> CaptureResult:
        """Two tasks, by key; each nets, encodes and publishes its part in tiny batches."""
        names = [entry["name"] for entry in schema["fields"]]
        if self.keyed:
            rows = sorted(rows, key=lambda entry: (entry[0][0], entry[1], RANK[entry[2]]))
        frames: list[FrameRef] = []
        versions: set[int] = set()
        split = False
        for part in (0, 1):
            mine = [entry for entry in rows if entry[0][0] % 2 == part]
            batches = (
                _change_rows(mine[at : at + 3], names, self.keyed) for at in range(0, len(mine), 3)
            )
            publisher = BatchPublisher(
                self.channel, replace(header, attempt=uuid.uuid4().hex), BatchLimits(2, 1 << 20)
            )
            if self.keyed:
                events = ((netted.events, netted.run_starts) for netted in net(batches, ("id",)))
            else:
                events = ((batch, None) for batch in batches)
            publisher.publish(_noted(events, versions))
            frames += publisher.refs
            split = split or publisher.split_runs
        return CaptureResult(
            tuple(sorted(frames, key=lambda ref: ref.path)), not split, tuple(sorted(versions))
        )


def _noted(
    events: Iterable[tuple[pa.RecordBatch, Any]], versions: set[int]
) -> Iterator[tuple[pa.RecordBatch, Any]]:
    for batch, starts in events:
        versions.update(batch.column(VERSION).to_pylist())
        yield batch, starts


def _change_rows(
    entries: list[tuple[Row, int, str]], names: list[str], keyed: bool
) -> pa.RecordBatch:
    """Change rows as :func:`net` takes them; of a keyless table the events themselves, all of them
    inserts."""
    versions = pa.array([version for _, version, _ in entries], pa.int64())
    columns = [
        pa.array([row[place] for row, _, _ in entries], pa.int64()) for place in range(len(names))
    ]
    if keyed:
        ranks = pa.array([RANK[change] for _, _, change in entries], pa.int8())
        return pa.RecordBatch.from_arrays(
            [*columns, versions, ranks], names=[*names, COMMIT_VERSION, "_wan_rank"]
        )
    creates = pa.array([int(Operation.CREATE)] * len(entries), pa.int8())
    return pa.RecordBatch.from_arrays([creates, versions, *columns], names=[OP, VERSION, *names])


def _padded(row: Row) -> Row:
    return (*row, None)[:3]


# --- the receiving site


@dataclass
class DeltaTable:
    """What is durable of a target table: commits, rows, and Delta's transaction numbers."""

    commits: list[Commit] = field(default_factory=list)
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

    def commit(self, operation: str, time: int, metadata: str | None = None) -> None:
        version = len(self.commits)
        self.commits.append(Commit(version, time, operation, {}, {}, metadata, version - 1))

    def marks(self) -> list[Mark]:
        contents = ((commit, read_mark(commit.user_metadata) or {}) for commit in self.commits)
        marks = (
            Mark.read(commit.user_metadata, mark["site"], mark["table"])
            for commit, mark in contents
            if "site" in mark
        )
        return [mark for mark in marks if mark is not None]


@dataclass
class SimulatedLedger:
    """What is durable of a site's ledger (see :class:`spark_wan.ledger.ledger.LedgerStore`)."""

    effect: Effect
    rows: list[LedgerRow] = field(default_factory=list)
    positions: list[HistoryPosition] = field(default_factory=list)
    summaries: list[Summary] = field(default_factory=list)
    ids: list[tuple[str, str, str]] = field(default_factory=list)
    """(event ID, content hash, token)"""

    def load(self, table: str) -> Sequence[LedgerRecord]:
        return [*self.rows, *self.positions, *self.summaries]

    def append(self, table: str, rows: Sequence[LedgerRow | HistoryPosition]) -> None:
        def append() -> None:
            self.rows += [row for row in rows if isinstance(row, LedgerRow)]
            self.positions += [row for row in rows if isinstance(row, HistoryPosition)]

        self.effect("the ledger is written", append)

    def names(self, target_id: str) -> set[str]:
        return set()

    def recorded_ids(self, table: str) -> RecordedIds:
        return RecordedIds.of(("newark", token, None) for _, _, token in self.ids)

    def claim(self, table: str, claim: Summary) -> None:
        def add() -> None:
            if all(other.number < claim.number for other in self.summaries):
                self.summaries.append(claim)

        self.effect("a fold is claimed", add)

    def rename_ids(self, table: str, tokens: Mapping[FoldedIds, Collection[str]]) -> None:
        def rename() -> None:
            for ids, replaced in tokens.items():
                self.ids = [
                    (event, content, ids.token if token in replaced else token)
                    for event, content, token in self.ids
                ]

        self.effect("event IDs are renamed", rename)

    def rename_letters(self, table: str, tokens: Collection[str], token: str) -> None:
        raise AssertionError("no event of the simulation becomes a dead letter")

    def replace(self, table: str, summary: Summary, before: int) -> None:
        def replace() -> None:
            self.rows = [row for row in self.rows if row.mark.apply > summary.apply]
            self.positions = [each for each in self.positions if each.target_version >= before]
            self.summaries = [each for each in self.summaries if each.apply > summary.apply]
            self.summaries.append(summary)

        self.effect("the marks are folded", replace)

    def newest_epoch(self) -> int:
        """The newest epoch that is ledgered, of the only log."""
        folded = (epoch for summary in self.summaries for _, _, epoch, _ in summary.logs)
        return max([0, *folded, *(part.epoch for row in self.rows for part in row.mark.applied)])

    def known_ids(self) -> dict[str, str]:
        """Event IDs that took effect: those whose token is marked."""
        marked = {row.mark.token for row in self.rows}
        return {
            event_id: content
            for event_id, content, token in self.ids
            if token in marked or is_range_token(token)
        }


@dataclass
class SimulatedTarget:
    """One process's view of a target table (see :class:`spark_wan.receiver.apply.TargetTable`),
    with Delta's rules:

    - of one app ID a transaction number that is not above the last one is skipped, silently
    - a transaction that began before another one of its app ID ended is a conflict
    - a MERGE conflicts with any other commit
    """

    site: str
    table: DeltaTable
    ledger: SimulatedLedger
    channel: Any
    clock: Clock
    effect: Effect
    begins_early: bool
    """Whether a write's transaction begins when the epochs are read, or only when it is carried
    out."""
    on_write: Callable[[str, Mark], None]
    names: Sequence[str]
    """All columns that the table may ever have."""
    _began: int = 0

    def table_id(self) -> str | None:
        return f"target-{self.site}" if self.table.commits else None

    def history(self, after: int) -> list[Commit]:
        return [commit for commit in self.table.commits if commit.version > after]

    def is_unchanged(self, version: int) -> bool:
        return True  # the worst of hints

    def log_retention(self) -> int:
        return 30 * DAY

    def last_transaction(self, name: str) -> int | None:
        return self.table.transactions.get(name)

    def is_empty(self) -> bool:
        return not (self.table.rows or self.table.bag)

    @property
    def sql_name(self) -> str:
        return "the target"

    def create(self, epoch: PlannedEpoch) -> None:
        def create() -> None:
            if not self.table.commits:
                self.table.columns = _columns(epoch)
                self.table.commit("CREATE TABLE", self.clock(), LOCAL_ONLY)

        self.effect("the table is created", create)

    def read(self, epochs: Sequence[PlannedEpoch], applied: AppliedColumns) -> ApplyBatch:
        newest = epochs[-1].manifest
        target = TargetName("orders", self.site, "`orders`")
        columns = schema(**self.table.columns)
        applied.check(columns, newest.schema, target)
        added = differences(columns, newest.schema).added
        if added:
            self.effect("columns are added", lambda: self._add_columns(_columns(epochs[-1])))
        self._began = len(self.table.commits)
        return ApplyBatch(epochs)

    def _add_columns(self, columns: dict[str, str]) -> None:
        self.table.columns |= columns
        self.table.commit("ADD COLUMNS", self.clock())

    def resolve(self, batch: ApplyBatch) -> None:
        """A user's events are decoded and judged here; captured ones only when they are written, as
        Spark does."""
        if not batch.has_event_ids:
            return
        known, first = self.ledger.known_ids(), {}
        rows = []
        for row in sorted(
            self._decode(batch.epochs),
            key=lambda row: (row[VERSION], row.get(SEQUENCE, 0), row[CONTENT]),
        ):
            seen = known.get(row[ID], first.get(row[ID]))
            if seen is None:
                first[row[ID]] = row[CONTENT]
                rows.append(row)
            else:
                assert seen == row[CONTENT], (
                    f"event ID {row[ID]} came with two contents; no source wrote that"
                )
                batch.duplicates += 1
        batch.content, batch.new_ids = rows, len(rows)

    def record(self, batch: ApplyBatch, mark: Mark) -> None:
        if batch.has_event_ids:
            fresh = [(row[ID], row[CONTENT], mark.token) for row in batch.content]
            self.effect("event IDs are recorded", lambda: self.ledger.ids.extend(fresh))

    def write(self, batch: ApplyBatch, mark: Mark) -> None:
        rows = batch.content if batch.has_event_ids else self._decode(batch.epochs)
        keyed = bool(batch.epochs[-1].manifest.keys)
        app = transaction_name(mark.site, mark.table, str(self.table_id()))
        began = self._began if self.begins_early else len(self.table.commits)
        self.effect(
            "the table is written", lambda: self._transaction(began, rows, batch, mark, app, keyed)
        )

    def _transaction(
        self,
        began: int,
        rows: list[dict[str, Any]],
        batch: ApplyBatch,
        mark: Mark,
        app: str,
        keyed: bool,
    ) -> None:
        """What Delta decides at the moment of the commit."""
        others = self.table.app_commits.get(app, -1) >= began
        if others or (keyed and len(self.table.commits) > began):
            raise WriteConflict(f"version {len(self.table.commits) - 1} was committed meanwhile")
        if (
            self.table.transactions.get(app, 0) < mark.apply
        ):  # otherwise it is skipped: no error, no commit
            self._commit(rows, batch, mark, app, keyed)

    def _commit(
        self, rows: list[dict[str, Any]], batch: ApplyBatch, mark: Mark, app: str, keyed: bool
    ) -> None:
        names = list(_columns(batch.epochs[-1]))
        table = self.table
        if keyed:
            newest: dict[Any, dict[str, Any]] = {}
            for row in sorted(rows, key=_place):
                newest[row["id"]] = row
            for key, row in newest.items():
                before = table.applied_versions.get(key, (-1, -1))
                assert _place(row) > before, (
                    f"{self.site}: key {key} goes back: the event of (version, sequence) "
                    f"{_place(row)} is applied after {before}"
                )
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
        table.app_commits[app] = len(table.commits)
        table.commit("MERGE" if keyed else "WRITE", self.clock(), mark.user_metadata())
        self.on_write(self.site, mark)

    def done(self, batch: ApplyBatch) -> None:
        batch.content = None

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
                _, events = decode_frame(self.channel.get_frame(ref.path), ref.path, ref)
                found = events.to_pylist()
                if epoch.manifest.kind == EVENTS:
                    content = [
                        name for name in events.schema.names if not name.startswith(RESERVED_PREFIX)
                    ]
                    hashes = hex_ids(row_hashes(events, [OP, *content])).to_pylist()
                    for row, content_hash in zip(found, hashes, strict=True):
                        row |= {VERSION: epoch.manifest.epoch, CONTENT: content_hash}
                rows += [row for row in found if row[VERSION] > epoch.above]
        return rows


def _columns(epoch: PlannedEpoch) -> dict[str, str]:
    return {entry["name"]: entry["type"] for entry in epoch.manifest.schema["fields"]}


def _place(row: dict[str, Any]) -> tuple[int, int]:
    return (row[VERSION], row.get(SEQUENCE, 0))
