"""``format("wan")``: the sink that turns rows into gateway batches, and the source that yields gateway batches.

Sink, streaming and batch (``df.writeStream.format("wan")``, ``df.write.format("wan").mode("append")``): see
:class:`spark_wan.options.SinkOptions`. Tasks encode and publish frames; ``commit()`` on the driver appends the manifest. A replay of a micro-batch
whose content is equal is already done; one whose content differs is the next epoch, and dedup by event ID sorts it out.

Source (``spark.readStream.format("wan")``): see :class:`spark_wan.options.SourceOptions`. One row per gateway batch, :data:`SCHEMA`, as Kafka's source
has one row per record; :func:`spark_wan.decode.decode` turns them into a table's rows.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from spark_wan.channels import StreamLog, acked_through, open_channel
from spark_wan.columns import check_columns, check_keys
from spark_wan.errors import ChannelError, FrameError, LogGapError, OptionError, WanError
from spark_wan.options import IDLE_INTERVAL, SinkOptions, SourceOptions
from spark_wan.running import is_orphan, milliseconds
from spark_wan.sender.acks import AckKeeper, AckPolicy
from spark_wan.sender.events_sink import EventsWriter, EventsWritten, SinkColumns, append_epoch, remove_unnamed
from spark_wan.sender.memory import ForgottenMemories, MemoryStore, StoredMemories
from spark_wan.steps import run
from spark_wan.topology import nearest, parse_channel
from spark_wan.wire import EVENTS, FrameRef, Manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "stream string, incarnation string, epoch bigint, batch int, kind string, origin string, sent_to array<string>, `table` string, "
    "table_id string, selection string, first_version bigint, last_version bigint, events bigint, possible_duplicate boolean, "
    "schema string, path string, checksum bigint, payload binary"
)
"""Columns of the source. ``batch`` counts the frames of an epoch from 0; ``schema`` is the table's columns as Spark's schema JSON; ``payload`` is the frame
(see :mod:`spark_wan.wire`). ``possible_duplicate``: the epoch was announced again."""

log = logging.getLogger(__name__)

_SLICE = 0.2
"""Seconds between looks for a stop while ``commit()`` waits."""


def register(spark: SparkSession) -> None:
    """Make ``format("wan")`` known to a session."""
    spark.dataSource.register(WanDataSource)


class WanDataSource(DataSource):
    """The ``wan`` sink and source."""

    @classmethod
    def name(cls) -> str:
        return "wan"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> WanStreamReader:
        return WanStreamReader(SourceOptions.parse(dict(self.options)))

    def streamWriter(self, schema: StructType, overwrite: bool) -> WanStreamWriter:
        checkpoint = _place(self.options.get("checkpointLocation"))
        return WanStreamWriter(SinkOptions.parse(dict(self.options)), json.loads(schema.json()), checkpoint)

    def writer(self, schema: StructType, overwrite: bool) -> WanWriter:
        if overwrite:
            raise OptionError('wan sink: events are appended to a channel, nothing is overwritten: use .mode("append")')
        return WanWriter(SinkOptions.parse(dict(self.options)), json.loads(schema.json()), None)


def _place(checkpoint: str | None) -> str | None:
    """A query's checkpoint as a place for the sink's memory; None where it is one that only Spark can write to."""
    if checkpoint is None:
        return None
    try:
        return parse_channel(re.sub("^file:/+", "/", checkpoint), os.getcwd()).rstrip("/") + "/wan"
    except ValueError:
        return None


# --- sink -------------------------------------------------------------------------------------------------------------


@dataclass
class _Written(WriterCommitMessage):
    """What a task wrote. JSON-like content only, so that it travels between processes."""

    written: EventsWritten


def _is_of_events(last: Manifest | None) -> bool:
    return last is not None and last.kind == EVENTS


class _Sink:
    """Both writers: tasks publish, the driver appends the epoch. ``checkpoint``: of the query, which stands in for ``state``."""

    def __init__(self, options: SinkOptions, schema: dict[str, Any], checkpoint: str | None) -> None:
        self.options = options
        self.state = f"{options.state.rstrip('/')}/checkpoints/sink" if options.state else checkpoint
        self.columns = SinkColumns.of(options, schema)
        table = self.columns.table_schema(schema)
        where = f"wan sink, stream {options.stream}"
        check_columns(table, where)
        if options.key:
            check_keys(table, options.key, where)
        self.schema = table
        self.write_id = uuid.uuid4().hex
        open_channel(options.channel, options.storage).prepare()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Written:
        channel = open_channel(self.options.channel, self.options.storage)
        writer = EventsWriter(channel, self.options, self.columns, self.schema, milliseconds, self._write_id())
        return _Written(writer.write(iterator))

    def _write_id(self) -> str:
        """One for all tasks of a write."""
        return self.write_id

    def _commit(self, messages: list[WriterCommitMessage | None], query: str, batch: str) -> None:
        written = [message.written for message in messages if isinstance(message, _Written)]
        channel = open_channel(self.options.channel, self.options.storage)
        stream = StreamLog(channel, self.options.stream)
        manifest = run(
            append_epoch(stream, self.options, self.schema, written, query, batch, milliseconds, self._memories())
        )
        self._keep(stream, manifest)

    def _memories(self) -> MemoryStore:
        """Where the sink remembers its stream; nowhere for a batch write that names no ``state``."""
        if self.state is None:
            return ForgottenMemories()
        return StoredMemories(self.state, self.options.state_storage if self.options.state else None)

    def _keep(self, stream: StreamLog, manifest: Manifest | None) -> None:
        """Look at the acks, and trim. With ``blockOnAck`` again and again until the ack policy is met, so many seconds at the
        most, in slices that watch for a stop. The epoch is in the log: what goes wrong here does not fail its commit."""
        options = self.options
        keeper = AckKeeper(
            stream,
            self._memories(),
            AckPolicy(options.ack_policy),
            int(options.ack_timeout * 1000),
            milliseconds,
            options.remotes,
            options.former_remotes,
        )
        end = time.monotonic() + options.block_on_ack
        while True:
            try:
                if manifest is None and not _is_of_events(stream.last()):
                    return  # nothing was appended: the log may be another sender's
                run(keeper.round())
                keeper.sweep_when_due()
            except WanError as error:
                log.warning("%s: its acks cannot be looked at: %s", options.stream, error)
            if manifest is None or keeper.done(manifest) or time.monotonic() >= end:
                return
            if is_orphan() or (options.stop_marker is not None and os.path.exists(options.stop_marker)):
                raise WanError(
                    f"wan sink, stream {options.stream}: stopped while waiting for acks; epoch {manifest.number} is in the channel."
                )
            time.sleep(_SLICE)

    def _abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the frames of a write of which a task has failed. Spark calls this also when ``commit()`` raised, after all tasks: then the manifest may
        still arrive, and what is not named in the end is swept."""
        if all(isinstance(message, _Written) for message in messages):
            return
        stream = StreamLog(open_channel(self.options.channel, self.options.storage), self.options.stream)
        remove_unnamed(stream, [f for m in messages if isinstance(m, _Written) for f in m.written.frames])


class WanStreamWriter(_Sink, DataSourceStreamArrowWriter):
    """The streaming sink."""

    def _write_id(self) -> str:
        """One for all tasks of a micro-batch."""
        from pyspark import TaskContext

        context = TaskContext.get()
        batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
        return hashlib.blake2b(f"{self.write_id} {batch}".encode(), digest_size=16).hexdigest()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Written:
        from pyspark import TaskContext

        context = TaskContext.get()
        written = super().write(iterator)
        if context is not None:
            written.written.query = context.getLocalProperty("sql.streaming.queryId") or ""
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        query = next((m.written.query for m in messages if isinstance(m, _Written) and m.written.query), "")
        self._commit(messages, query, str(batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._abort(messages)


class WanWriter(_Sink, DataSourceArrowWriter):
    """The batch sink. ``queryId`` and ``batchId`` make a replay inside foreachBatch recognisable; without them every write is an epoch."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        options = self.options
        query = options.query_id if options.query_id is not None else uuid.uuid4().hex
        self._commit(messages, query, str(options.batch_id or 0))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)


# --- source -----------------------------------------------------------------------------------------------------------


@dataclass
class FramesPartition(InputPartition):
    """One gateway batch: where it is, and what its row says."""

    channel: str
    storage: Mapping[str, str]
    row: dict[str, Any]


class WanStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The streaming source. Offsets: ``streams`` (the last epoch of each), ``again`` (announcements that were seen), ``wake``."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.channel = open_channel(options.channel, options.storage)
        self._target: dict[str, int] | None = None
        self._latest: dict[str, int] = {}
        self._retry_at = 0.0
        self._retries = 0
        self._look_at = time.monotonic() + IDLE_INTERVAL

    def initialOffset(self) -> dict[str, Any]:
        starting = self.options.starting_offsets
        if self._wakes:
            return _offset({}, {}, "", 0)
        ends = self._ends()
        if starting == "latest":
            return _offset(ends, {}, "", 0)
        earliest = {stream: self._before_earliest(stream) for stream in ends}
        if isinstance(starting, str):
            return _offset(earliest, {}, "", 0)
        unknown = sorted(set(starting) - set(ends))
        if unknown:
            raise OptionError(
                f"wan source: startingOffsets: channel {self.channel.url} has no stream {unknown[0]!r}; {nearest(unknown[0], ends)}"
            )
        return _offset({**earliest, **{stream: number - 1 for stream, number in starting.items()}}, {}, "", 0)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self.options.max_bytes_per_trigger)
        if self.options.max_epochs_per_trigger is not None:
            return ReadMaxFiles(self.options.max_epochs_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        try:
            return self._latest_offset(start, limit)
        except ChannelError as error:
            if is_orphan():
                raise SystemExit(1) from None
            if not self._wakes or self._target is not None:
                raise
            # A receiver outlives its channel's absence. It is woken, since only its micro-batch can say what it waits for.
            log.warning("%s", error)
            return _offset(
                start["streams"], start["again"], self.options.wake_token or "", int(start.get("retry", 0)) + 1
            )

    def _latest_offset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        ends = self._ends()
        again = {
            stream: max(attempt for _, attempt in entries) + 1_000_000 * max(number for number, _ in entries)
            for stream, entries in self.channel.announcements().items()
            if self._wanted(stream)
        }
        self._latest = dict(ends)
        for stream, number in start["streams"].items():
            if self._wakes or not self._wanted(stream) or ends.get(stream, 0) >= number:
                continue
            # One listing may miss what is there while the log is extended and trimmed.
            ends[stream] = max(ends.get(stream, 0), StreamLog(self.channel, stream).newest())
            if ends[stream] < number:
                raise LogGapError(
                    f"wan source: {self.channel.url}: the log of {stream} ends at {ends.get(stream, 0)}, but this query has read epoch "
                    f"{number}: the channel was deleted, or restored to an older state. Restore it, or begin again with a new checkpoint."
                )
        if self._target is not None:
            ends = {
                stream: min(end, self._target.get(stream, 0)) for stream, end in ends.items() if stream in self._target
            }
        begun = {**dict.fromkeys(ends, 0), **start["streams"]}
        if not isinstance(limit, ReadAllAvailable):
            ends = self._limited(begun, ends, limit)
        # Progress never goes back: a stream that vanished keeps its place. But a log that was begun anew must wake its receiver.
        ends = {stream: max(0 if self._wakes else number, ends.get(stream, 0)) for stream, number in begun.items()}
        wake = self.options.wake_token or ""
        return _offset(ends, {**start["again"], **again}, wake, self._retry(start))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return _offset(self._latest, {}, self.options.wake_token or "", 0)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        found: list[InputPartition] = []
        if self._wakes:
            # The receiver plans from log and ledger: what is wrong with one stream must not end the query of all.
            return found
        for stream, last in end["streams"].items():
            before = start["streams"].get(stream, 0)
            repeated = end["again"].get(stream, 0) > start["again"].get(stream, 0)
            first = min(before + 1, end["again"][stream] // 1_000_000) if repeated else before + 1
            stream_log = StreamLog(self.channel, stream)
            available = [number for number in stream_log.since(first - 1) if number <= last]
            if len([number for number in available if number > before]) < last - before:
                there = f"it has {available[0]} and later" if available else "nothing of them is there"
                raise _trimmed(self.channel.url, f"epochs {before + 1} to {last} of {stream}", there)
            for number in available:
                manifest = stream_log.read(number)
                found += [
                    FramesPartition(self.channel.url, dict(self.options.storage), _row(manifest, i, number <= before))
                    for i in range(len(manifest.frames))
                ]
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FramesPartition)
        channel = open_channel(partition.channel, partition.storage)
        row = partition.row
        try:
            row = {**row, "payload": channel.get_frame(row["path"])}
        except FrameError as error:
            raise _trimmed(partition.channel, f"epoch {row['epoch']} of {row['stream']}", str(error)) from error
        yield pa.RecordBatch.from_pylist([row], schema=_ARROW)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the channel is trimmed on the strength of acks, not of offsets."""

    def _ends(self) -> dict[str, int]:
        return {stream: numbers[-1] for stream, numbers in self.channel.numbers().items() if self._wanted(stream)}

    def _before_earliest(self, stream: str) -> int:
        """The number before the first epoch whose frames are all there. The newest manifest stays when its frames are trimmed."""
        stream_log = StreamLog(self.channel, stream)
        there = {path for path, _ in self.channel.frames(stream)}
        numbers, below = stream_log.fold()
        if below:
            stream_log.check_gap(numbers, below, acked_through(stream_log.read(numbers[-1]), stream_log.acks()))
        for number in numbers:
            if {frame.path for frame in stream_log.read(number).frames} <= there:
                return number - 1
        return numbers[-1] if numbers else 0

    @property
    def _wakes(self) -> bool:
        """Whether a receiver reads: it wants to be woken, and no frames."""
        return self.options.wake_token is not None

    def _wanted(self, stream: str) -> bool:
        return self.options.streams is None or stream in self.options.streams

    def _limited(self, begun: Mapping[str, int], ends: Mapping[str, int], limit: ReadLimit) -> dict[str, int]:
        """Whole epochs up to the limit, stream by stream in turn; at least one where there is any."""
        reached = {stream: begun.get(stream, 0) for stream in ends}
        left = (
            limit.max_bytes
            if isinstance(limit, ReadMaxBytes)
            else limit.max_files
            if isinstance(limit, ReadMaxFiles)
            else 1 << 62
        )
        taken = 0
        waiting = {
            stream: [n for n in StreamLog(self.channel, stream).since(reached[stream]) if n <= end]
            for stream, end in ends.items()
        }
        # Another stream comes first each time, so that none has to wait for ever.
        streams = sorted(waiting)
        turn = sum(reached.values()) % max(1, len(streams))
        streams = streams[turn:] + streams[:turn]
        while any(waiting.values()):
            for stream in [stream for stream in streams if waiting[stream]]:
                number = waiting[stream][0]
                cost = StreamLog(self.channel, stream).read(number).bytes if isinstance(limit, ReadMaxBytes) else 1
                if taken and cost > left:
                    return reached
                waiting[stream].pop(0)
                reached[stream], left, taken = number, left - cost, taken + 1
        return reached

    def _retry(self, start: Mapping[str, Any]) -> int:
        """A number that rises every ``retryInterval`` seconds while this site holds a stream: it wakes the receiver to try again. And once an hour,
        so that a receiver to which nothing is sent can look after its tables."""
        before = int(start.get("retry", 0))
        if self.options.site is None or self._target is not None:
            return before
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + IDLE_INTERVAL
            return before + 1
        if time.monotonic() < self._retry_at:
            return before
        first, self._retry_at = self._retry_at == 0.0, time.monotonic() + self.options.retry_interval
        if first:
            return before
        acks = (StreamLog(self.channel, stream).acks().get(self.options.site) for stream in self._latest)
        return before + 1 if any(ack is not None and ack.held is not None for ack in acks) else before


def _trimmed(channel: str, what: str, found: str) -> LogGapError:
    return LogGapError(
        f"wan source: {what} cannot be read any more from {channel}: {found}. What all addressed sites have acked is trimmed, whoever "
        "else reads. Nothing is skipped silently: restore it, or begin again with a new checkpoint (startingOffsets: earliest)."
    )


def _offset(streams: Mapping[str, int], again: Mapping[str, int], wake: str, retry: int) -> dict[str, Any]:
    return {
        "streams": dict(sorted(streams.items())),
        "again": dict(sorted(again.items())),
        "wake": wake,
        "retry": retry,
    }


def _row(manifest: Manifest, index: int, possible_duplicate: bool) -> dict[str, Any]:
    frame: FrameRef = manifest.frames[index]
    return {
        "stream": manifest.stream,
        "incarnation": manifest.incarnation,
        "epoch": manifest.number,
        "batch": index,
        "kind": manifest.kind,
        "origin": manifest.origin,
        "sent_to": list(manifest.sent_to),
        "table": manifest.table,
        "table_id": manifest.table_id,
        "selection": manifest.selection,
        "first_version": manifest.first,
        "last_version": manifest.last,
        "events": frame.rows,
        "possible_duplicate": possible_duplicate,
        "schema": json.dumps(manifest.schema),
        "path": frame.path,
        "checksum": frame.checksum,
    }


_ARROW = pa.schema(
    [
        ("stream", pa.string()),
        ("incarnation", pa.string()),
        ("epoch", pa.int64()),
        ("batch", pa.int32()),
        ("kind", pa.string()),
        ("origin", pa.string()),
        ("sent_to", pa.list_(pa.string())),
        ("table", pa.string()),
        ("table_id", pa.string()),
        ("selection", pa.string()),
        ("first_version", pa.int64()),
        ("last_version", pa.int64()),
        ("events", pa.int64()),
        ("possible_duplicate", pa.bool_()),
        ("schema", pa.string()),
        ("path", pa.string()),
        ("checksum", pa.int64()),
        ("payload", pa.binary()),
    ]
)
