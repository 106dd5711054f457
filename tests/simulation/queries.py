"""A user's query that writes a stream with the sink, as Spark runs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from fakes import schema

from simulation import invariants
from simulation.sources import Pairs, Row
from spark_wan.datasource.events import (
    EventsWriter,
    SinkColumns,
    SinkWrite,
    append_epoch,
    sink_writer,
)
from spark_wan.datasource.options import SinkOptions
from spark_wan.topology.model import Stream
from spark_wan.wire.manifest import Manifest

if TYPE_CHECKING:
    from simulation.processes import Sending
    from simulation.stores import Effect


@dataclass(frozen=True)
class QueryCheckpoint:
    """Spark's checkpoint of a user's query: its ID, the next batch, where that begins, and, once it
    is planned, where it ends."""

    query: str = "query-0"
    batch: int = 0
    begin: int = 0
    end: int | None = None


@dataclass
class UserQuery:
    """What is durable of a user's query: the events of its source, and its checkpoint."""

    stream: Stream
    effect: Effect
    events: list[Row] = field(default_factory=list)
    """In order: (ID, key, value)."""
    checkpoint: QueryCheckpoint = QueryCheckpoint()
    older: list[QueryCheckpoint] = field(default_factory=lambda: [QueryCheckpoint()])
    """All that were saved."""
    queries: int = 1
    prefix: dict[int, int] = field(default_factory=lambda: {0: 0})
    """Epoch -> number of events that have arrived once it is applied."""
    written: set[QueryCheckpoint] = field(default_factory=set)
    """The micro-batches that are in the log."""
    columns: ClassVar = ("event", "id", "v", "n")
    """Those of its table."""

    @property
    def keyed(self) -> bool:
        return bool(self.stream.table.keys)

    def grow(self, pairs: Pairs) -> None:
        """Add events to the user's source."""
        self.events += [
            (f"event {len(self.events) + n}", key, value) for n, (key, value) in enumerate(pairs)
        ]

    def start_over(self) -> QueryCheckpoint:
        """Return the checkpoint of a query that begins anew: it has another ID."""
        self.queries += 1
        return QueryCheckpoint(f"query-{self.queries - 1}")

    def options(self) -> SinkOptions:
        sender, table = self.stream.sender, self.stream.table
        return SinkOptions(
            channel=sender.channel,
            site=sender.site,
            remotes=sender.remotes,
            table=table.name,
            key=table.keys,
            event_id="event",
            stream=self.stream.name,
            operation="operation" if self.keyed else None,
            sequence="n" if self.keyed else None,
            batch_size=sender.batch_size,
        )

    def micro_batch(self, task: Sending) -> Iterator[str]:
        """Run a micro-batch as Spark does: planned durably, written by tasks, committed, and only
        then checkpointed. A new process reads the checkpoint; a running one has it in memory."""
        here: QueryCheckpoint = task.volatile or self.checkpoint
        task.volatile = here
        if here.end is None:
            if here.begin >= len(self.events):
                return None
            most = 2 + task.rounds % 5  # as Spark's limits, which may change
            here = self._save(task, replace(here, end=min(len(self.events), here.begin + most)))
        yield "query.1 planned"
        assert here.end is not None
        options, operation = self.options(), {"operation": "string"} if self.keyed else {}
        rows_schema = schema(event="string", id="long", v="long", n="long", **operation)
        columns = SinkColumns.of(options, rows_schema)
        table = columns.table_schema(rows_schema)
        parts = 1 + task.rounds % 2  # another attempt may see other partitions
        rows = [(*event, n) for n, event in enumerate(self.events)][here.begin : here.end]
        clock, written = task.site.clock, []
        for part in range(parts):
            writer = EventsWriter(task.channel.faulty, options, columns, table, clock)
            written.append(writer.write([self._rows(rows[part::parts])]))
        sink = sink_writer(task.log, options, task.site.checkpoints, clock)
        write = SinkWrite(written, here.query, str(here.batch))
        yield from append_epoch(sink, options, table, write, task.queue())
        self._save(task, QueryCheckpoint(here.query, here.batch + 1, here.end))
        yield "query.2 checkpointed"
        return here

    def appended(self, manifest: Manifest, write: QueryCheckpoint) -> None:
        """Note that a micro-batch has become an epoch."""
        invariants.is_no_replay(manifest.epoch, write, self.written)
        assert write.end is not None
        self.written.add(write)
        self.prefix[manifest.epoch] = max(write.end, self.prefix[manifest.epoch - 1])

    def expected(self, epoch: int) -> Any:
        """What a target must hold that has applied an epoch."""
        events = list(enumerate(self.events[: self.prefix[epoch]]))
        if not self.keyed:
            return Counter((*event, n) for n, event in events)
        held: dict[int, Row] = {}
        for n, event in events:
            held.pop(event[1], None)
            if event[2] is not None:
                held[event[1]] = (*event, n)
        return held

    def _rows(self, rows: list[Row]) -> pa.RecordBatch:
        columns: dict[str, Any] = {
            "event": pa.array([row[0] for row in rows], pa.string()),
            "id": pa.array([row[1] for row in rows], pa.int64()),
            "v": pa.array([row[2] for row in rows], pa.int64()),
            "n": pa.array([row[3] for row in rows], pa.int64()),
        }
        if self.keyed:
            columns["operation"] = pa.array(
                ["destroy" if row[2] is None else "put" for row in rows], pa.string()
            )
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _save(self, task: Sending, checkpoint: QueryCheckpoint) -> QueryCheckpoint:
        def save() -> None:
            self.checkpoint = checkpoint
            self.older.append(checkpoint)

        self.effect("the checkpoint is written", save)
        task.volatile = checkpoint
        return checkpoint
