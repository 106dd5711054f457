"""The sink of ``format("wan")``: rows become gateway batches."""

from __future__ import annotations

import hashlib
import logging
import os
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

from spark_wan.channels.log import StreamLog
from spark_wan.channels.registry import open_channel
from spark_wan.datasource.orphans import is_orphan
from spark_wan.errors import WanError
from spark_wan.events.columns import check_columns, check_keys
from spark_wan.sender.acks import AckManager
from spark_wan.sender.events import (
    EventsWriter,
    SinkColumns,
    WriteResult,
    append_epoch,
    remove_unnamed,
)
from spark_wan.sender.memory import CheckpointStore, NoCheckpoints, StoredCheckpoints
from spark_wan.steps import run
from spark_wan.topology.options import SinkOptions
from spark_wan.units import milliseconds
from spark_wan.wire.manifest import EVENTS, Manifest

log = logging.getLogger(__name__)


_SLICE = 0.2
"""Seconds between looks for a stop while ``commit()`` waits."""


@dataclass
class _Written(WriterCommitMessage):
    """What a task wrote. JSON-like content only, so that it travels between processes."""

    written: WriteResult


def _is_of_events(last: Manifest | None) -> bool:
    return last is not None and last.kind == EVENTS


class _Sink:
    """Both writers: tasks publish, the driver appends the epoch. ``checkpoint``: of the query, which stands in for ``state``."""

    def __init__(
        self, options: SinkOptions, schema: dict[str, Any], checkpoint: str | None
    ) -> None:
        self.options = options
        self.state = (
            f"{options.state.rstrip('/')}/checkpoints/sink" if options.state else checkpoint
        )
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
        writer = EventsWriter(
            channel, self.options, self.columns, self.schema, milliseconds, self._write_id()
        )
        return _Written(writer.write(iterator))

    def _write_id(self) -> str:
        """One for all tasks of a write."""
        return self.write_id

    def _commit(self, messages: list[WriterCommitMessage | None], query: str, batch: str) -> None:
        written = [message.written for message in messages if isinstance(message, _Written)]
        channel = open_channel(self.options.channel, self.options.storage)
        stream = StreamLog(channel, self.options.stream)
        manifest = run(
            append_epoch(
                stream,
                self.options,
                self.schema,
                written,
                query,
                batch,
                milliseconds,
                self._memories(),
            )
        )
        self._keep(stream, manifest)

    def _memories(self) -> CheckpointStore:
        """Where the sink remembers its stream; nowhere for a batch write that names no ``state``."""
        if self.state is None:
            return NoCheckpoints()
        return StoredCheckpoints(
            self.state, self.options.state_storage if self.options.state else None
        )

    def _keep(self, stream: StreamLog, manifest: Manifest | None) -> None:
        """Look at the acks, and trim. With ``blockOnAck`` again and again until the ack policy is met, so many seconds at the
        most, in slices that watch for a stop. The epoch is in the log: what goes wrong here does not fail its commit."""
        options = self.options
        keeper = AckManager(
            stream,
            self._memories(),
            options.ack_policy,
            int(options.ack_timeout * 1000),
            milliseconds,
            options.remotes,
            options.former_remotes,
        )
        end = time.monotonic() + options.block_on_ack
        while True:
            try:
                if manifest is None and not _is_of_events(stream.newest_manifest()):
                    return  # nothing was appended: the log may be another sender's
                run(keeper.round())
                keeper.sweep_when_due()
            except WanError as error:
                log.warning("%s: its acks cannot be looked at: %s", options.stream, error)
            if manifest is None or keeper.done(manifest) or time.monotonic() >= end:
                return
            if is_orphan() or (
                options.stop_marker is not None and os.path.exists(options.stop_marker)
            ):
                raise WanError(
                    f"wan sink, stream {options.stream}: stopped while waiting for acks; epoch {manifest.epoch} is in the channel."
                )
            time.sleep(_SLICE)

    def _abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the frames of a write of which a task has failed. Spark calls this also when ``commit()`` raised, after all tasks: then the manifest may
        still arrive, and what is not named in the end is swept."""
        if all(isinstance(message, _Written) for message in messages):
            return
        stream = StreamLog(
            open_channel(self.options.channel, self.options.storage), self.options.stream
        )
        remove_unnamed(
            stream, [f for m in messages if isinstance(m, _Written) for f in m.written.frames]
        )


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
        query = next(
            (m.written.query for m in messages if isinstance(m, _Written) and m.written.query), ""
        )
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
