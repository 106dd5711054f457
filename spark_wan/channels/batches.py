"""Gateway batches: events are grouped into frames, bounded by rows and bytes, and published. Runs inside Spark tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from spark_wan.channels.base import Channel
from spark_wan.wire.frame import FrameHeader, FrameRef, encode_frame, frame_checksum


@dataclass(frozen=True)
class BatchLimits:
    """A batch closes at ``rows`` rows or ``bytes`` bytes (uncompressed Arrow), or when the task's rows end."""

    rows: int
    bytes: int


@dataclass
class BatchPublisher:
    """Publishes the events of one task as frames ``<attempt>-<index>``; keeps what a manifest must say of them.

    ``attempt`` is unique per task attempt: a second attempt of the same task overwrites nothing and is never named beside the first.
    """

    channel: Channel
    header: FrameHeader
    limits: BatchLimits
    refs: list[FrameRef] = field(default_factory=list)
    split_runs: bool = False
    """A key's events went to two frames (it alone has more than a batch holds)."""

    def publish(self, batches: Iterable[tuple[pa.RecordBatch, np.ndarray | None]]) -> None:
        """Publish all of ``batches``: events, with the positions where another key begins (None: cut anywhere)."""
        for events in self._cut(batches):
            header = replace(self.header, index=len(self.refs), events=events.num_rows)
            data = encode_frame(header, events)
            path = self.channel.put_frame(header.stream, header.attempt, header.index, data)
            self.refs.append(FrameRef(path, events.num_rows, len(data), frame_checksum(data)))

    def _cut(
        self, batches: Iterable[tuple[pa.RecordBatch, np.ndarray | None]]
    ) -> Iterator[pa.RecordBatch]:
        """Cut at ``limits``, between two keys where possible. One event larger than ``limits.bytes`` travels alone."""
        waiting: list[pa.RecordBatch] = []
        boundaries: list[int] = []
        count = size = 0
        for events, starts in batches:
            if events.num_rows == 0:
                continue
            waiting.append(events)
            boundaries += (
                (starts if starts is not None else np.arange(events.num_rows)) + count
            ).tolist()
            count += events.num_rows
            size += events.nbytes
            while count > self.limits.rows or (size > self.limits.bytes and count > 1):
                rows = pa.concat_batches(waiting)
                target = self._rows_that_fit(rows, count, size)
                at = self._boundary(boundaries, target, count)
                if at is None:
                    break
                yield rows.slice(0, at)
                rest = rows.slice(at)
                waiting, count, size = [rest], rest.num_rows, rest.nbytes
                boundaries = [start - at for start in boundaries if start >= at]
        if count:
            yield pa.concat_batches(waiting)

    def _rows_that_fit(self, rows: pa.RecordBatch, count: int, size: int) -> int:
        fit = min(self.limits.rows, count)
        if size > self.limits.bytes:
            fit = min(fit, max(1, count * self.limits.bytes // size))
            while fit > 1 and rows.slice(0, fit).nbytes > self.limits.bytes:
                fit = max(1, fit // 2)
        return fit

    def _boundary(self, boundaries: Sequence[int], target: int, count: int) -> int | None:
        """The last boundary in 1..target; else inside a run, which is then split."""
        place = int(np.searchsorted(boundaries, target, side="right")) - 1
        if place >= 0 and boundaries[place] > 0:
            return boundaries[place]
        if target >= count:
            return None
        self.split_runs = True
        return target
