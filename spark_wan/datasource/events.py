"""A user stream: the rows of any DataFrame become frames, and each micro-batch an epoch.

The numbered path of a write:

    sink.1  frames-published  by tasks; no receiver reads them yet
    sink.2  log-read          is it the log of the sink's checkpoint? is this write in it already?
                              an equal replay is done, any other is the next epoch, once the
                              stream's queue has room
    sink.3  checked           table, keys and columns are the stream's; no event ID is repeated in
                              the epoch, nor (without a sequence) a key
    sink.4  manifest-added    created if absent; if another writer was faster: back to sink.2
    sink.5  checkpointed      so that the sink detects a lost log
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_wan.channels.base import Channel, new_attempt
from spark_wan.datasource.options import SinkOptions
from spark_wan.errors import (
    EventError,
    OptionError,
    QueueFullError,
    SchemaError,
    SourceError,
    WanError,
    nearest,
)
from spark_wan.events.arrow_types import arrow_ready
from spark_wan.events.columns import differences
from spark_wan.events.operations import ID, OP, SEQUENCE, TIME, Operation
from spark_wan.events.row_hash import combine, digest, row_hashes
from spark_wan.log.frames import BatchLimits, BatchPublisher
from spark_wan.log.lost_logs import NewLog
from spark_wan.log.stream_log import StreamLog
from spark_wan.log.writer import CheckpointStore, LogWriter, StreamSettings, remove_unnamed
from spark_wan.sender.queue import OutboundQueue
from spark_wan.steps import Steps
from spark_wan.wire.frame import FrameRef
from spark_wan.wire.manifest import EVENTS, USER_TABLE_ID, Manifest, WriteRef

KEPT_WRITES = 100
"""Number of (query, batch, digest) triples that a manifest keeps, to recognise an equal replay."""

_OPERATIONS = {"create": Operation.CREATE, "put": Operation.PUT, "destroy": Operation.DESTROY}
_INTEGERS = ("byte", "short", "integer", "long")


def sink_settings(options: SinkOptions) -> StreamSettings:
    """Return what all epochs of a sink's stream have in common."""
    remotes = tuple(sorted(options.remotes))
    return StreamSettings(
        options.stream,
        options.table,
        keys=options.key,
        origin=options.site,
        sent_to=remotes,
        addressees=remotes,
    )


@dataclass(frozen=True)
class SinkColumns:
    """The columns that describe an event; all others are the table's."""

    event_id: str
    operation: str | None
    sequence: str | None
    event_time: str | None

    @classmethod
    def of(cls, options: SinkOptions, schema: Mapping[str, Any]) -> SinkColumns:
        """Check that the rows have the named columns, of valid types. Raises OptionError."""
        types = {entry["name"]: entry["type"] for entry in schema["fields"]}
        wanted: tuple[tuple[str, str | None, tuple[str, ...]], ...] = (
            ("eventId", options.event_id, ("string", *_INTEGERS)),
            ("operation", options.operation, ("string",)),
            ("sequence", options.sequence, (*_INTEGERS, "timestamp")),
            ("eventTime", options.event_time, ("timestamp",)),
        )
        for option, name, valid in wanted:
            if name is None:
                continue
            if name not in types:
                raise OptionError(
                    f"wan sink: {option} names column {name!r}, which the rows do not have; "
                    f"{nearest(name, types)}"
                )
            if types[name] not in valid:
                raise OptionError(
                    f"wan sink: {option} column {name!r} is {types[name]}; it must be one of "
                    f"{', '.join(valid)}"
                )
        return cls(options.event_id, options.operation, options.sequence, options.event_time)

    def table_schema(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the table's own columns: all but the operation column. Event ID, sequence and time
        stay columns of the table."""
        columns = [entry for entry in schema["fields"] if entry["name"] != self.operation]
        return {"type": "struct", "fields": columns}


@dataclass
class WriteResult:
    """What one task has written: frames, the digest of its events, and hashes of their IDs and keys
    to find duplicates."""

    frames: tuple[FrameRef, ...]
    digest: str
    ids: bytes
    keys: bytes
    began: int
    """When the task began, in milliseconds since 1970 UTC."""
    query: str = ""


@dataclass(frozen=True)
class SinkWrite:
    """What all tasks of a write have written: a micro-batch of a query, or a batch write."""

    results: Sequence[WriteResult]
    query: str
    batch: str

    @cached_property
    def frames(self) -> tuple[FrameRef, ...]:
        frames = (frame for result in self.results for frame in result.frames)
        return tuple(sorted(frames, key=lambda frame: frame.path))

    @cached_property
    def ref(self) -> WriteRef:
        """What a manifest says of it. Equal for a replay with the same events, however its tasks
        have shared them."""
        digests = combine(result.digest for result in self.results)
        return WriteRef(self.query, self.batch, digests)

    @property
    def rows(self) -> int:
        return sum(frame.rows for frame in self.frames)

    @property
    def began(self) -> int:
        """When the first task began, in milliseconds since 1970 UTC."""
        return min(result.began for result in self.results)


@dataclass
class EventsWriter:
    """Writes the events of one task."""

    channel: Channel
    options: SinkOptions
    columns: SinkColumns
    schema: Mapping[str, Any]
    clock: Callable[[], int]
    write_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """ID of the write that the task is part of
    (:func:`spark_wan.channels.base.new_attempt`)."""
    _digests: list[str] = field(default_factory=list)
    _ids: list[np.ndarray] = field(default_factory=list)
    _keys: list[np.ndarray] = field(default_factory=list)

    def write(self, batches: Iterable[pa.RecordBatch]) -> WriteResult:
        options, began = self.options, self.clock()
        header = sink_settings(options).header(
            USER_TABLE_ID, self.schema, new_attempt(self.write_id)
        )
        limits = BatchLimits(
            options.batch_size,
            options.batch_bytes,
            options.max_frame_bytes,
            digests=bool(options.signing_keys),
        )

        def refuse(event: pa.RecordBatch, size: int) -> None:
            raise EventError(
                f"wan sink, stream {options.stream}: the event {event.column(ID)[0]} is too large: "
                f"{limits.exceeded(size)}. Nothing was sent. Filter it out before the sink; or "
                "raise max_frame_bytes of the receiving sites, then maxFrameBytes of the sink."
            )

        publisher = BatchPublisher(self.channel, header, limits, refuse)
        publisher.publish((events, None) for events in self._events(batches))
        return WriteResult(
            frames=tuple(publisher.refs),
            digest=combine(self._digests),
            ids=b"".join(hashes.tobytes() for hashes in self._ids),
            keys=b"".join(hashes.tobytes() for hashes in self._keys),
            began=began,
        )

    def _events(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = 0
        for raw in batches:
            if raw.num_rows == 0:
                continue
            rows += raw.num_rows
            _refuse_too_many(rows, self.options)
            events = self._event_columns(arrow_ready(raw))
            hashes = row_hashes(events)
            self._digests.append(digest(hashes))
            self._ids.append(row_hashes(events, [ID]))
            if self.options.key and self.columns.sequence is None:
                self._keys.append(row_hashes(events, list(self.options.key)))
            yield events

    def _event_columns(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        where = f"wan sink, stream {self.options.stream}"
        columns, fields = [self._operations(rows, where)], [pa.field(OP, pa.int8())]
        ids = rows.column(self.columns.event_id)
        if ids.null_count:
            raise EventError(
                f"{where}: {ids.null_count} events have no ID (column {self.columns.event_id!r} is "
                "null). Every event needs one."
            )
        columns.append(ids.cast(pa.string()))
        fields.append(pa.field(ID, pa.string()))
        for name, column in ((SEQUENCE, self.columns.sequence), (TIME, self.columns.event_time)):
            if column is not None:
                columns.append(rows.column(column).cast(pa.int64()))
                fields.append(pa.field(name, pa.int64()))
        for key in self.options.key:
            nulls = rows.column(key).null_count
            if nulls:
                raise EventError(
                    f"{where}: {nulls} events have a null in key column {key!r}: no site could "
                    "find their row. Filter them out before the sink."
                )
        for name in (entry["name"] for entry in self.schema["fields"]):
            columns.append(rows.column(name))
            fields.append(rows.schema.field(name))
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def _operations(self, rows: pa.RecordBatch, where: str) -> pa.Array:
        default = Operation.PUT if self.options.key else Operation.CREATE
        if self.columns.operation is None:
            return pa.array(np.full(rows.num_rows, default, np.int8))
        words = rows.column(self.columns.operation)
        places = pc.index_in(words.cast(pa.string()), pa.array(list(_OPERATIONS), pa.string()))
        if places.null_count:
            unknown = pc.unique(words.filter(places.is_null())).to_pylist()[:5]
            raise EventError(
                f"{where}: unknown operations {unknown} in column {self.columns.operation!r}; "
                f"known are {', '.join(_OPERATIONS)}."
            )
        if not self.options.key and pc.any(pc.not_equal(words, "create")).as_py():
            raise EventError(
                f"{where}: the table has no key, so only `create` events can be carried; set `key` "
                "to carry put and destroy."
            )
        return pa.array([int(op) for op in _OPERATIONS.values()], pa.int8()).take(places)


def sink_writer(
    log: StreamLog,
    options: SinkOptions,
    checkpoints: CheckpointStore | None,
    clock: Callable[[], int],
) -> LogWriter:
    """Return the writer of a sink's log. The frames were written by tasks: it keeps them."""
    new_log = NewLog("set the sink's option newLog to {log}", options.new_log.__contains__)
    return LogWriter(log, checkpoints, clock, new_log, keeps_frames=True)


def append_epoch(
    writer: LogWriter,
    options: SinkOptions,
    schema: Mapping[str, Any],
    write: SinkWrite,
    queue: OutboundQueue | None = None,
) -> Steps[Manifest | None]:
    """Append what tasks have written as the next epoch. Returns its manifest, or None when there
    was nothing to append. ``queue``: what limits how much may wait in the channel.

    Raises QueueFullError while the queue is full: call it again once there is room, with the same
    frames. EventError for a repeated event ID or key; SourceError when the log carries a captured
    table, or this stream has another table, key or origin; SchemaError when a column is missing or
    has another type; LogGapError when the log is lost; StaleWriteError when the frames may be gone.
    """
    yield "sink.1 frames-published"
    if not write.frames:
        return None
    append = partial(_append, writer, options, schema, write, queue)
    return (yield from writer.until_appended(append))


def _append(
    writer: LogWriter,
    options: SinkOptions,
    schema: Mapping[str, Any],
    write: SinkWrite,
    queue: OutboundQueue | None,
) -> Steps[Manifest]:
    try:
        end = writer.end()
        yield "sink.2 log-read"
        last = end.last
        writes = last.writes if last is not None else ()
        if last is not None and write.ref in writes:
            # The same micro-batch again, after a crash between the manifest and Spark's checkpoint:
            # the manifest names the frames of the first attempt.
            epoch = last.epoch - writes[::-1].index(write.ref)
            remove_unnamed(writer.log, write.frames, epoch)
            return last
        writer.check_acks(end)
        if last is not None:
            _check_follows(last, options, schema)
        _refuse_too_many(write.rows, options)
        _refuse_duplicates(write.results, options)
        if queue is not None:
            queue.check(last)
    except QueueFullError:
        raise  # the next attempt names the same frames
    except WanError:
        if not writer.refused:  # else the manifest may be there all the same, and name them
            remove_unnamed(writer.log, write.frames)
        raise
    yield "sink.3 checked"
    manifest = writer.following(
        last,
        sink_settings(options),
        kind=EVENTS,
        table_id=USER_TABLE_ID,
        schema=schema,
        first_version=-1,
        last_version=-1,
        start=last is None,
        commits=(),
        identity="",
        frames=write.frames,
        disjoint=False,
        writes=(*writes[-KEPT_WRITES + 1 :], write.ref),
    )
    manifest = writer.append(manifest, write.began)
    yield "sink.4 manifest-added"
    writer.record(end.checkpoint, manifest)
    yield "sink.5 checkpointed"
    return manifest


def _check_follows(last: Manifest, options: SinkOptions, schema: Mapping[str, Any]) -> None:
    """Refuse what would hold every receiver: an epoch of another table, key, origin or kind, or one
    without a column that the stream has. Also refuse one that is not for all sites of the epoch
    before, since the ack manager would no longer wait for the others; with a topology, the sites
    that it leaves out are meant to be gone."""
    stream = f"wan sink: stream {options.stream}"
    if last.kind != EVENTS:
        raise SourceError(
            f"{stream} carries the captured table {last.table}; give the sink a `stream` of its "
            "own."
        )
    for what, expected, actual in (
        ("table", last.table, options.table),
        ("site", last.origin, options.site),
        ("key", ",".join(last.keys), ",".join(options.key)),
    ):
        if expected != actual:
            raise SourceError(
                f"{stream}: its epochs have {what} {expected!r}, and this write has {actual!r}. "
                "Nothing was sent. Give the sink a `stream` of its own, or the option that the "
                "stream has."
            )
    former = last.addressees if options.former_remotes is None else options.former_remotes
    left = sorted({*last.addressees} - {*options.remotes, *former})
    if left:
        sites = ", ".join(left)
        raise SourceError(
            f"{stream}: its epochs are for {', '.join(last.addressees)}, and this write has "
            f"remotes {','.join(options.remotes)}: what {sites} has not read yet would be trimmed. "
            f"Nothing was sent. Give the sink a `stream` of its own; or, when {sites} is to get "
            "nothing more, name it in `formerRemotes`."
        )
    change = differences(last.schema, schema)
    if change.dropped or change.retyped:
        changes = [f"column {'.'.join(path)} is missing" for path in change.dropped]
        changes += [
            f"column {'.'.join(path)} was {old} and is {new}" for path, old, new in change.retyped
        ]
        raise SchemaError(
            f"{stream}: the rows do not have the stream's columns: {'; '.join(changes)}. Nothing "
            "was sent. Add or cast the columns (new columns may be added at any time), or give the "
            "sink a `stream` and a `table` of its own."
        )


def _refuse_too_many(rows: int, options: SinkOptions) -> None:
    """Limit the rows of an epoch: the driver holds 16-byte hashes of all event IDs and keys."""
    if rows > options.max_rows:
        raise EventError(
            f"wan sink, stream {options.stream}: one epoch has {rows:,} rows or more; maxRows "
            f"allows {options.max_rows:,}. Nothing of it was sent. Write less at a time "
            "(maxFilesPerTrigger, maxBytesPerTrigger, maxOffsetsPerTrigger, or several writes). "
            "If the micro-batch is already planned, raise maxRows, and give the driver 50 bytes of "
            "memory per row (spark.driver.maxResultSize: 32 bytes per row)."
        )


def _refuse_duplicates(written: Sequence[WriteResult], options: SinkOptions) -> None:
    unique_ids = (
        f"An event ID names one event forever: make column {options.event_id!r} unique, for "
        "example with dropDuplicates before the sink."
    )
    sequence = "Name a `sequence` column that orders the events of a key."
    for what, parts, advice in (
        ("event IDs", [part.ids for part in written], unique_ids),
        ("keys", [part.keys for part in written], sequence),
    ):
        duplicates = count_duplicates(parts)
        if duplicates:
            raise EventError(
                f"wan sink, stream {options.stream}: {duplicates} {what} come twice in one epoch. "
                f"{advice} Nothing of it was sent."
            )


def count_duplicates(parts: Sequence[bytes]) -> int:
    """Return how many 16-byte hashes repeat another. Takes 9 bytes a row beside the hashes: it
    compares their first halves, and whole hashes only where these repeat."""
    pairs = [np.frombuffer(part, "u8").reshape(-1, 2) for part in parts if part]
    if not pairs:
        return 0
    firsts = np.concatenate([hashes[:, 0] for hashes in pairs])
    firsts.sort()
    repeated = np.unique(firsts[1:][firsts[1:] == firsts[:-1]])
    if not repeated.size:
        return 0
    suspects = np.concatenate([hashes[np.isin(hashes[:, 0], repeated)] for hashes in pairs])
    return len(suspects) - len(np.unique(suspects, axis=0))
