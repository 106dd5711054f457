"""From frames to rows of a target's types: what a Spark task of an apply does. Imports no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_wan.channels.base import Channel
from spark_wan.channels.parallel import in_order
from spark_wan.events.arrow_types import arrow_ready, as_type
from spark_wan.events.operations import CONTENT, OP, RESERVED_PREFIX, VERSION, Operation
from spark_wan.events.row_hash import hex_ids, row_hashes
from spark_wan.wire.frame import MAX_FRAME_BYTES, FrameRef, decode_frame, most_bytes

_REF = tuple(field.name for field in fields(FrameRef))


@dataclass
class Seen:
    """How many events a task has decoded, before it drops those that are not needed."""

    events: int = 0


@dataclass(frozen=True)
class DecodeTask:
    """Fetches, checks and decodes frames, and gives the rows Spark's exact types.

    Takes batches of frame references with ``above`` (only later versions are returned; -1: all)
    and ``epoch``.
    """

    channel: Channel
    schema: pa.Schema
    user_stream: bool
    _: KW_ONLY
    needed: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    """Drops events of a frame that :mod:`spark_wan.target.resolve` does not need; None: none."""
    max_frame_bytes: int = MAX_FRAME_BYTES
    seen: Seen | None = None
    """Counts the events; None: nobody asks, as on executors."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        entries = (entry for batch in batches for entry in batch.to_pylist())
        for entry, data in in_order(self._fetched, entries, size=lambda entry: entry["bytes"]):
            above, epoch = entry.pop("above"), entry.pop("epoch")
            ref = FrameRef(**entry)
            where = f"{self.channel.url}/{ref.path}"
            _, events = decode_frame(data, where, ref, self.max_frame_bytes)
            if self.user_stream:
                events = _identified(events, epoch)
            elif above >= 0:
                events = events.filter(pc.greater(events.column(VERSION), above))
            if self.seen is not None:
                self.seen.events += events.num_rows
            if self.needed is not None:
                events = self.needed(events)
            if events.num_rows:
                yield typed(events, self.schema)

    def _fetched(self, entry: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        ref = FrameRef(**{name: entry[name] for name in _REF})
        most = most_bytes(ref, f"{self.channel.url}/{ref.path}", self.max_frame_bytes)
        return entry, self.channel.get_frame(ref.path, most)


@dataclass(frozen=True)
class BackupTask:
    """Gives the rows of a backup the columns of events and Spark's exact types: each is a put of
    the version that was backed up."""

    schema: pa.Schema
    version: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in map(arrow_ready, batches):
            rows = batch.num_rows
            puts = pa.array(np.full(rows, int(Operation.PUT), np.int8))
            versions = pa.array(np.full(rows, self.version, np.int64))
            columns = [puts, versions, *batch.columns]
            names = [OP, VERSION, *batch.schema.names]
            yield typed(pa.RecordBatch.from_arrays(columns, names=names), self.schema)


def typed(events: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return events with the columns of ``schema``, in its order and types; nulls where they have
    none."""
    places = {name.lower(): place for place, name in enumerate(events.schema.names)}
    columns = []
    for column in schema:
        place = places.get(column.name.lower())
        if place is None:
            columns.append(pa.nulls(events.num_rows, column.type))
        else:
            columns.append(as_type(events.column(place), column.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _identified(events: pa.RecordBatch, epoch: int) -> pa.RecordBatch:
    """Add version and content hash to a user's events.

    The epoch is the version; the hash tells when an event ID is used again for another event.
    """
    names = [name for name in events.schema.names if not name.startswith(RESERVED_PREFIX)]
    hashes = hex_ids(row_hashes(events, [OP, *names]))
    events = events.append_column(VERSION, pa.array(np.full(events.num_rows, epoch, np.int64)))
    return events.append_column(CONTENT, hashes)
