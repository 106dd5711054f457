"""The sink of ``format("wan")``: rows become frames."""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from spark_wan.channels.base import Channel
from spark_wan.channels.registry import open_channel
from spark_wan.datasource.events import (
    EventsWriter,
    SinkColumns,
    SinkWrite,
    WriteResult,
    append_epoch,
    sink_writer,
)
from spark_wan.datasource.options import SinkOptions
from spark_wan.datasource.orphans import is_orphan
from spark_wan.errors import QueueFullError, WanError
from spark_wan.events.columns import check_columns, check_keys
from spark_wan.log.frame_age import STALE_AGE
from spark_wan.log.stream_log import StreamLog
from spark_wan.log.writer import LogWriter, remove_unnamed
from spark_wan.messages import message_log
from spark_wan.sender.ack_timeouts import AckTimeouts
from spark_wan.sender.acks import AckManager
from spark_wan.sender.queue import OutboundQueue
from spark_wan.sender.record import record_wait, record_write
from spark_wan.sender.sweep import Sweep
from spark_wan.state.checkpoints import StoredCheckpoints
from spark_wan.steps import run
from spark_wan.units import format_duration, milliseconds
from spark_wan.wire.manifest import EVENTS, Manifest

log = message_log(__name__)

POLL_INTERVAL = 0.2
"""Seconds between polls of the acks while ``commit()`` waits."""
SLOWEST_POLL = 5.0
"""The same while it has waited long for room in the queue."""
LONGEST_WAIT = 0.9 * STALE_AGE
"""Seconds for which ``commit()`` waits for room: the frames of a write that is too old may be
deleted."""
PAUSE_INTERVAL = 5.0
"""Seconds between looks whether the stream is paused, while a commit waits for acks."""

Messages = list[WriterCommitMessage | None]


@dataclass
class WanCommitMessage(WriterCommitMessage):
    """What a task wrote. JSON-like content only, so that it travels between processes."""

    written: WriteResult


class EventsSink:
    """What both writers do: tasks publish frames, the driver appends the epoch.

    ``checkpoint``: a place in the query's checkpoint, used where there is no option ``state``.

    Spark calls ``write`` in each task, then ``commit`` on the driver with the messages of all
    tasks. When a task or ``commit`` fails it calls ``abort``; a streaming query then ends, and runs
    the micro-batch again once it is restarted. An equal replay of it adds no epoch. One with other
    content is the next epoch, and receivers drop the events that they know by their IDs.
    """

    def __init__(
        self, options: SinkOptions, schema: dict[str, Any], checkpoint: str | None
    ) -> None:
        self.options = options
        self.state = checkpoint
        if options.state:
            self.state = f"{options.state.rstrip('/')}/checkpoints/sink"
        self.columns = SinkColumns.of(options, schema)
        self.schema = self.columns.table_schema(schema)
        where = f"wan sink, stream {options.stream}"
        check_columns(self.schema, where)
        if options.key:
            check_keys(self.schema, options.key, where)
        self.write_id = uuid.uuid4().hex
        self._channel().prepare()

    def _channel(self) -> Channel:
        return open_channel(self.options.channel, self.options.storage)

    def _log(self) -> StreamLog:
        return StreamLog(self._channel(), self.options.stream, self.options.trust)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WanCommitMessage:
        writer = EventsWriter(
            self._channel(),
            self.options,
            columns=self.columns,
            schema=self.schema,
            clock=milliseconds,
            write_id=self._write_id(),
        )
        return WanCommitMessage(writer.write(iterator))

    def _write_id(self) -> str:
        """Return the ID that all tasks of a write share."""
        return self.write_id

    def _commit(self, messages: Messages, query: str, batch: str) -> None:
        stream, options = self._log(), self.options
        writer = sink_writer(stream, options, self._checkpoints(), milliseconds)
        write = SinkWrite(_results(messages), query, batch)
        acks = self._acks(stream)
        manifest = self._append(writer, write, OutboundQueue(acks, options.queue_limits))
        timeouts, failed = self._collect_acks(acks, manifest)
        if manifest is not None:
            record_write(
                stream.channel,
                manifest,
                options.settings,
                milliseconds(),
                held=failed,
                not_served=timeouts.acks.state.not_served,
                alert=str(timeouts.alert) if timeouts.alert is not None else None,
            )

    def _checkpoints(self) -> StoredCheckpoints | None:
        """Return where the sink keeps its checkpoint; a batch write without ``state`` has none."""
        if self.state is None:
            return None
        return StoredCheckpoints(
            self.state, self.options.state_storage if self.options.state else None
        )

    def _acks(self, stream: StreamLog) -> AckManager:
        options = self.options
        return AckManager(
            stream,
            self._checkpoints(),
            policy=options.ack_policy,
            ack_timeout=int(options.ack_timeout * 1000),
            clock=milliseconds,
            served=options.remotes,
            former=options.former_remotes,
            never_primary=options.never_primary,
        )

    def _append(self, writer: LogWriter, write: SinkWrite, queue: OutboundQueue) -> Manifest | None:
        """Append the epoch. Wait while the queue is full: the query goes on to its next rows once
        these are in the channel."""
        told: str | None = None
        while True:
            try:
                return run(append_epoch(writer, self.options, self.schema, write, queue))
            except QueueFullError as full:
                told = self._wait_for_room(queue, full, told)

    def _wait_for_room(self, queue: OutboundQueue, full: QueueFullError, told: str | None) -> str:
        """Collect acks until the queue has room. Returns what the record says of the wait, which is
        written where ``told``, what it says already, is something else."""
        acks, options, failed = queue.acks, self.options, ""
        if str(full) != told:
            log.warning("%s", full, event="queue-full", stream=options.stream, cause=str(full))
            record_wait(acks.log.channel, options.stream, options.settings, milliseconds(), full)
        began = asked = time.monotonic()
        while True:
            if is_orphan():
                raise WanError(
                    f"wan sink, stream {options.stream}: stopped while its queue was full. Nothing "
                    "of this write was sent."
                )
            now = time.monotonic()
            if now - began > LONGEST_WAIT:
                raise WanError(
                    f"{full} This write has waited for {format_duration(int(LONGEST_WAIT * 1000))}"
                    ", and its frames would soon be taken for leftovers. Nothing of it was sent: "
                    "write again."
                )
            time.sleep(POLL_INTERVAL)
            if now - asked < min(SLOWEST_POLL, 0.05 * (now - began)):
                continue
            asked = now
            try:
                run(acks.round())
                if not queue.is_full():
                    return str(full)
            except WanError as error:
                failed = self._tell_failed(error, failed)

    def _tell_failed(self, error: WanError, told: str) -> str:
        """Log why acks cannot be collected, if that is not what was ``told`` last. Returns it."""
        if str(error) != told:
            log.warning(
                "%s: cannot collect its acks: %s",
                self.options.stream,
                error,
                event="acks-not-collected",
                stream=self.options.stream,
                cause=str(error),
            )
        return str(error)

    def _collect_acks(
        self, acks: AckManager, manifest: Manifest | None
    ) -> tuple[AckTimeouts, WanError | None]:
        """Collect acks, and trim. With ``blockOnAck``, poll until the ack policy is met, at most
        that many seconds. The epoch is in the log: an error here does not fail its commit.

        Returns the stream's ack timeouts, and why the last round failed."""
        options, stream = self.options, acks.log
        timeouts, sweep = AckTimeouts(acks, options.on_ack_timeout), Sweep(acks)
        waits_for = manifest if options.block_on_ack else None
        end = time.monotonic() + options.block_on_ack
        ask_at, is_paused, told = 0.0, False, ""
        while True:
            failed: WanError | None = None
            try:
                if manifest is None:
                    last = stream.newest_manifest()
                    if last is None or last.kind != EVENTS:
                        break  # nothing was appended, and the log may be another sender's
                run(acks.round())
                if waits_for is not None and time.monotonic() >= ask_at:
                    ask_at = time.monotonic() + PAUSE_INTERVAL
                    is_paused = acks.is_paused()
                timeouts.act(waits_for)
                sweep.run_when_due()
            except WanError as error:
                failed, told = error, self._tell_failed(error, told)
            if waits_for is None or timeouts.ends_wait(waits_for):
                break
            if is_paused:
                break  # no ack can come: the pause may last for days
            if time.monotonic() >= end:
                timeouts.wait_failed(waits_for)
                break
            if is_orphan():
                raise WanError(
                    f"wan sink, stream {options.stream}: stopped while waiting for acks; epoch "
                    f"{waits_for.epoch} is in the channel."
                )
            time.sleep(POLL_INTERVAL)
        return timeouts, failed

    def _abort(self, messages: Messages) -> None:
        """Remove the frames of a write of which a task has failed. Spark calls this also when
        ``commit()`` raised, after all tasks: then the manifest may still arrive, and the sweep
        takes what no manifest names in the end."""
        results = _results(messages)
        if len(results) == len(messages):
            return
        remove_unnamed(self._log(), [frame for result in results for frame in result.frames])


class WanStreamWriter(EventsSink, DataSourceStreamArrowWriter):
    """The streaming sink: a micro-batch is an epoch."""

    def _write_id(self) -> str:
        """Return the ID that all tasks of a micro-batch share."""
        batch = _local_property("streaming.sql.batchId")
        return hashlib.blake2b(f"{self.write_id} {batch}".encode(), digest_size=16).hexdigest()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WanCommitMessage:
        message = super().write(iterator)
        message.written.query = _local_property("sql.streaming.queryId") or ""
        return message

    def commit(self, messages: Messages, batchId: int) -> None:
        queries = (result.query for result in _results(messages) if result.query)
        self._commit(messages, next(queries, ""), str(batchId))

    def abort(self, messages: Messages, batchId: int) -> None:
        self._abort(messages)


class WanWriter(EventsSink, DataSourceArrowWriter):
    """The batch sink: a write is an epoch. Inside foreachBatch, the options ``queryId`` and
    ``batchId`` let it recognise a replay.

    Example::

        def send(rows, batch):
            events = rows.write.format("wan").mode("append").options(**options)
            events.option("queryId", "clicks").option("batchId", batch).save()

        writer = clicks.writeStream.foreachBatch(send)
        writer.option("checkpointLocation", "/tmp/checkpoint").start()
    """

    def commit(self, messages: Messages) -> None:
        options = self.options
        query = options.query_id if options.query_id is not None else uuid.uuid4().hex
        self._commit(messages, query, str(options.batch_id or 0))

    def abort(self, messages: Messages) -> None:
        self._abort(messages)


def _results(messages: Messages) -> list[WriteResult]:
    """Return what those tasks wrote that succeeded."""
    return [message.written for message in messages if isinstance(message, WanCommitMessage)]


def _local_property(name: str) -> str | None:
    """Return a local property of the running task; None outside a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)
