"""The tasks of a capture: each nets and encodes change rows, writes frames, and reports."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_wan.capture.altered_values import has_replacements
from spark_wan.capture.netting import (
    CHANGE_TYPE,
    COMMIT_VERSION,
    KEY_HASH,
    RANK_COLUMN,
    LastDestroys,
    net,
    own_columns,
    with_event_columns,
    without_key,
)
from spark_wan.capture.ranges import CaptureResult
from spark_wan.channels.base import Channel, new_attempt
from spark_wan.events.arrow_types import arrow_ready
from spark_wan.events.dead_letters import EventIds, ipc_stream, readable, row_payloads
from spark_wan.events.operations import OP, VERSION, Operation
from spark_wan.log.frames import BatchLimits, BatchPublisher
from spark_wan.topology.model import MAX_DEAD_LETTERS
from spark_wan.units import milliseconds
from spark_wan.wire.frame import FrameHeader, FrameRef
from spark_wan.wire.ledger import DeadLetter

SHOWN = 1_000
"""Characters, bytes or items of a value that a dead letter shows, at most."""
PAYLOAD_BYTES = 32 * 1024 * 1024
"""Bytes of rows in the dead letters of a task, at most: the driver has them as text. A row beyond
is in the source only."""
LISTED_KEYS = 200_000
LISTED_BYTES = 4 * 2**20
"""Number and bytes of the keys in a report whose last event is a destroy, at most."""
REPORT_SCHEMA = "kind string, content string, hashes binary"
"""The rows in which a task sends its report, for Spark. ``content`` is JSON; null: the row has
hashes."""

Events = Iterator[tuple[pa.RecordBatch, np.ndarray | None]]
"""Batches of events, with the positions where another key begins; None: without keys."""


@dataclass(frozen=True)
class CapturedTable:
    """A source table, as the topology describes it."""

    name: str
    location: str
    keys: tuple[str, ...]
    max_dead_letters: int = MAX_DEAD_LETTERS
    """Maximum number of rows of an epoch without a usable key; beyond, the stream is held."""


@dataclass
class CaptureReport:
    """What the driver must know: filled by a task, sent as rows, added up by the driver."""

    frames: list[FrameRef] = field(default_factory=list)
    versions: set[int] = field(default_factory=set)
    split_runs: bool = False
    dead_letters: list[DeadLetter] = field(default_factory=list)
    too_many: str = ""
    """One dead letter, in place of all those of a task that has too many and ends early."""
    changes: list[tuple[int, str]] = field(default_factory=list)
    """(version, change type) of rows that only a table with keys can have."""
    duplicates: int = 0
    """Rows whose key has another row: all but one of each key, and those that are still there."""
    unchanged: int = 0
    """Rows that a commit replaced by equal ones."""
    destroyed: int = 0
    """Number of keys whose last event is a destroy."""
    destroyed_keys: list[pa.RecordBatch] | None = field(default_factory=list)
    """They, with the version; None: they are too many."""
    key_hashes: list[np.ndarray] = field(default_factory=list)
    """Of rows that are captured as they are stored: a hash of each row's key."""
    replaced: bool = False
    """Strings have U+FFFD, perhaps because the change feed has put it there."""
    tasks: int = 1
    """Number of tasks that report. Each lists four times its share of the keys at most: what all of
    them send must be little for the driver."""
    _payload_bytes: int = 0

    def payload_of(self, row: pa.RecordBatch) -> bytes | None:
        """Return the payload of the next dead letter, unless there is no more room."""
        if self._payload_bytes + row.nbytes > PAYLOAD_BYTES:
            return None
        [payload] = row_payloads(row)
        self._payload_bytes += len(payload)
        return payload

    def encode(self) -> pa.RecordBatch:
        """Return the rows to send, with the columns of :data:`REPORT_SCHEMA`."""
        rows = self._rows()
        kinds, contents = [kind for kind, _ in rows], [json.dumps(row) for _, row in rows]
        hashes = [np.concatenate(self.key_hashes).tobytes()] if self.key_hashes else []
        return pa.record_batch(
            {
                "kind": pa.array([*kinds, *("hashes" for _ in hashes)], pa.string()),
                "content": pa.array([*contents, *(None for _ in hashes)], pa.string()),
                "hashes": pa.array([*(None for _ in rows), *hashes], pa.binary()),
            }
        )

    def _rows(self) -> list[tuple[str, Any]]:
        """Return kind and content of the rows to send, but for the hashes."""
        rows: list[tuple[str, Any]] = [("change", change) for change in self.changes]
        if self.too_many:
            rows.append(("too many", self.too_many))
        else:
            if self.duplicates:
                rows.append(("duplicates", self.duplicates))
            for letter in self.dead_letters:
                payload = letter.payload and base64.b64encode(letter.payload).decode()
                rows.append(("dead", {**asdict(letter), "payload": payload}))
        if self.unchanged:
            rows.append(("unchanged", self.unchanged))
        if self.replaced:
            rows.append(("replaced", True))
        if self.destroyed:
            keys = self.destroyed_keys and base64.b64encode(ipc_stream(self.destroyed_keys))
            rows.append(("destroyed", [self.destroyed, keys and keys.decode()]))
        if self.frames:
            frames = [asdict(ref) for ref in self.frames]
            content = {"frames": frames, "versions": sorted(self.versions)}
            rows.append(("frames", {**content, "split": self.split_runs}))
        return rows

    def add(self, kind: str, content: str | None, hashes: bytes | None) -> None:
        """Add a row that a task has sent."""
        if content is not None:
            self._add(kind, json.loads(content))
        elif hashes is not None:
            self.key_hashes.append(np.frombuffer(hashes, np.int64))

    def _add(self, kind: str, content: Any) -> None:
        if kind == "change":
            self.changes.append((content[0], content[1]))
        elif kind == "too many":
            self.too_many = content
        elif kind == "dead":
            payload = content["payload"] and base64.b64decode(content["payload"])
            self.dead_letters.append(DeadLetter(**{**content, "payload": payload}))
        elif kind == "replaced":
            self.replaced = True
        elif kind == "duplicates":
            self.duplicates += content
        elif kind == "unchanged":
            self.unchanged += content
        elif kind == "destroyed":
            keys = content[1] and pa.ipc.open_stream(base64.b64decode(content[1])).read_all()
            self.note_destroyed(content[0], keys.to_batches() if keys else None)
        else:
            self.frames += [FrameRef(**entry) for entry in content["frames"]]
            self.versions.update(content["versions"])
            self.split_runs = self.split_runs or content["split"]

    def keys_differ(self) -> bool:
        """Whether no two rows have a key of the same hash, and so none have the same key."""
        hashes = np.concatenate([np.empty(0, np.int64), *self.key_hashes])
        hashes.sort()
        return not bool((hashes[1:] == hashes[:-1]).any())

    def note_destroyed(self, count: int, keys: list[pa.RecordBatch] | None) -> None:
        """Note keys whose last event is a destroy."""
        self.destroyed += count
        known = self.destroyed_keys
        if known is None or keys is None:
            self.destroyed_keys = None
            return
        known += keys
        most, size = LISTED_KEYS, LISTED_BYTES
        if self.tasks > 4:
            most, size = 4 * most // self.tasks, 4 * size // self.tasks
        if self.destroyed > most or sum(batch.nbytes for batch in known) > size:
            self.destroyed_keys = None

    def result(self) -> CaptureResult:
        """Return what a manifest says of the capture."""
        frames = sorted(self.frames, key=lambda frame: frame.path)
        versions = tuple(sorted(self.versions))
        return CaptureResult(tuple(frames), not self.split_runs, versions, self.unchanged)


@dataclass(frozen=True)
class CaptureTask:
    """Turns the change rows of one Spark task into frames. Yields the rows of a CaptureReport."""

    channel: Channel
    limits: BatchLimits
    table: CapturedTable
    header: FrameHeader
    watch_text: bool = False
    """Report strings with U+FFFD."""
    hashed: bool = False
    """The rows are those of a version, in any order, each with the hash of its key. All become
    events: whether they have different keys, the hashes tell."""
    tasks: int = 1
    """Number of tasks that capture the range."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # A new name for each attempt of the task: two attempts never write the same frame.
        header = replace(self.header, attempt=new_attempt(self.header.attempt))
        report = CaptureReport(tasks=self.tasks)
        set_aside = partial(self._too_large, EventIds(header.table_id, self.table.keys), report)
        publisher = BatchPublisher(self.channel, header, self.limits, set_aside)
        ready = self._ready(batches, report)
        if self.hashed:
            events = self._hashed(ready, report)
        else:
            events = self._keyed(ready, report) if self.table.keys else self._keyless(ready, report)
        publisher.publish(_noting_versions(events, report))
        report.frames, report.split_runs = publisher.refs, publisher.split_runs
        if self._too_many(report):
            report.too_many = str(report.dead_letters[0])
        yield report.encode()

    def _ready(
        self, batches: Iterable[pa.RecordBatch], report: CaptureReport
    ) -> Iterator[pa.RecordBatch]:
        for batch in map(arrow_ready, batches):
            if self.watch_text and not report.replaced:
                report.replaced = has_replacements(batch)
            yield batch

    def _keyed(self, batches: Iterable[pa.RecordBatch], report: CaptureReport) -> Events:
        ids = EventIds(self.header.table_id, ())  # of rows without a key of their own
        destroys = LastDestroys(self.table.keys)
        for netted in net(self._with_keys(batches, ids, report), self.table.keys):
            self._set_aside(netted.duplicates, "duplicate_key", ids, report)
            report.duplicates += netted.duplicates.num_rows + netted.still_there
            report.unchanged += netted.unchanged
            if self._too_many(report):
                return
            _note_destroyed(destroys.of(netted), report)
            yield netted.events, netted.run_starts
        _note_destroyed(destroys.end(), report)

    def _hashed(self, batches: Iterable[pa.RecordBatch], report: CaptureReport) -> Events:
        ids = EventIds(self.header.table_id, ())  # of rows without a key of their own
        for batch in self._with_keys(batches, ids, report):
            # A copy: a view would keep the whole batch.
            report.key_hashes.append(batch.column(KEY_HASH).to_numpy().copy())
            yield self._creates(batch), None

    def _creates(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        creates = np.full(rows.num_rows, Operation.CREATE)
        return with_event_columns(creates, rows.column(COMMIT_VERSION), own_columns(rows))

    def _with_keys(
        self, batches: Iterable[pa.RecordBatch], ids: EventIds, report: CaptureReport
    ) -> Iterator[pa.RecordBatch]:
        """Set aside rows with a null in their key: no site could find them again."""
        for batch in batches:
            missing = without_key(batch, self.table.keys)
            if pc.any(missing).as_py():
                self._set_aside(batch.filter(missing), "null_in_key", ids, report)
                if self._too_many(report):
                    return
                batch = batch.filter(pc.invert(missing))
            yield batch

    def _keyless(self, batches: Iterable[pa.RecordBatch], report: CaptureReport) -> Events:
        for batch in batches:
            others = batch.filter(pc.not_equal(batch.column(CHANGE_TYPE), "insert"))
            if others.num_rows:
                change = (others.column(COMMIT_VERSION)[0], others.column(CHANGE_TYPE)[0])
                report.changes.append((change[0].as_py(), change[1].as_py()))
                return
            if self._too_many(report):
                return
            yield self._creates(batch), None

    def _too_many(self, report: CaptureReport) -> bool:
        """Whether the stream will be held, so that this task can end."""
        return len(report.dead_letters) > self.table.max_dead_letters

    def _set_aside(
        self, rows: pa.RecordBatch, cause: str, ids: EventIds, report: CaptureReport
    ) -> None:
        """Turn change rows into dead letters, at most one more than the limit."""
        rows = rows.slice(0, self.table.max_dead_letters + 1 - len(report.dead_letters))
        if rows.num_rows == 0:
            return
        operations = [
            Operation.PUT if rank else Operation.DESTROY
            for rank in rows.column(RANK_COLUMN).to_pylist()
        ]
        versions = rows.column(COMMIT_VERSION).to_pylist()
        self._add_letters(
            own_columns(rows), versions, operations=operations, cause=cause, ids=ids, report=report
        )

    def _too_large(
        self, ids: EventIds, report: CaptureReport, event: pa.RecordBatch, size: int
    ) -> pa.RecordBatch | None:
        """Turn an event that alone is larger than a frame may be into a dead letter. Of a destroy,
        return one with its key alone."""
        if self._too_many(report):
            return None
        [version], [operation] = (event.column(name).to_pylist() for name in (VERSION, OP))
        if operation == Operation.DESTROY:
            smaller = _without_values(event, (VERSION, OP, *self.table.keys))
            if smaller.nbytes < event.nbytes:
                return smaller
        content = event.select([name for name in event.schema.names if name not in (VERSION, OP)])
        cause = f"too_large: {self.limits.exceeded(size)}"
        self._add_letters(
            content,
            [version],
            operations=[Operation(operation)],
            cause=cause,
            ids=ids,
            report=report,
        )
        return None

    def _add_letters(
        self,
        content: pa.RecordBatch,
        versions: list[int],
        *,
        operations: list[Operation],
        cause: str,
        ids: EventIds,
        report: CaptureReport,
    ) -> None:
        shown = readable(content)
        event_ids = ids.of(content, versions, operations)
        for index, operation in enumerate(operations):
            values = _shortened(shown.slice(index, 1).to_pylist()[0])
            key = {name: values[name] for name in self.table.keys}
            letter = DeadLetter(
                side="sender",
                table=self.header.table,
                stream=self.header.stream,
                event_id=event_ids[index],
                origin_version=versions[index],
                operation=operation.name.lower(),
                key=_key_json(key) if key else None,
                cause=cause,
                row=json.dumps(values, default=str),
                payload=report.payload_of(content.slice(index, 1)),
                at=milliseconds(),
            )
            report.dead_letters.append(letter)


def _key_json(key: Mapping[str, Any]) -> str:
    return json.dumps(key, separators=(",", ":"), ensure_ascii=False, default=str)


def _note_destroyed(keys: pa.RecordBatch | None, report: CaptureReport) -> None:
    if keys is not None:
        report.note_destroyed(keys.num_rows, [keys])


def _without_values(event: pa.RecordBatch, kept: tuple[str, ...]) -> pa.RecordBatch:
    """Return an event with nulls in all columns but some."""
    columns = [
        column if field.name in kept else pa.nulls(len(column), field.type)
        for field, column in zip(event.schema, event.columns, strict=True)
    ]
    fields = [field.with_nullable(True) for field in event.schema]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _noting_versions(events: Events, report: CaptureReport) -> Events:
    for batch, starts in events:
        report.versions.update(pc.unique(batch.column(VERSION)).to_pylist())
        yield batch, starts


def _shortened(value: Any) -> Any:
    """Return a value for people to read: what is long is cut."""
    if isinstance(value, dict):
        return {name: _shortened(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        shown = [_shortened(each) for each in value[:SHOWN]]
        return shown + [f"… ({len(value):,} items)"] if len(value) > SHOWN else shown
    if isinstance(value, str) and len(value) > SHOWN:
        return f"{value[:SHOWN]} … ({len(value):,} characters)"
    if isinstance(value, bytes) and len(value) > SHOWN:
        return f"{value[:SHOWN]!r} … ({len(value):,} bytes)"
    return value
