"""Frames: groups of events, bounded by rows and bytes, encoded inside Spark tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from spark_wan.channels.base import Channel
from spark_wan.channels.parallel import in_order
from spark_wan.errors import FrameError
from spark_wan.wire.frame import (
    MAX_FRAME_BYTES,
    FrameHeader,
    FrameRef,
    encode_frame,
    frame_checksum,
    frame_digest,
    unpacked_bytes,
)


@dataclass(frozen=True)
class BatchLimits:
    """A batch closes at ``rows`` rows or ``bytes`` bytes (uncompressed Arrow), or when the task's
    rows end. A single event may be larger than ``bytes``, not than ``max_frame_bytes``."""

    rows: int
    bytes: int
    max_frame_bytes: int = MAX_FRAME_BYTES
    digests: bool = False
    """Whether manifests are signed, and so have the digests of frames."""
    received: str = ""
    """What the receiving sites allow, for messages: ``<bytes> at site <name>``."""

    def exceeded(self, size: int) -> str:
        """Return, for people, that an event is larger than a frame may be."""
        ours = f"{size:,} bytes; max_frame_bytes is {self.max_frame_bytes:,} at the sender"
        return f"{ours}, {self.received}" if self.received else ours


@dataclass
class BatchPublisher:
    """Writes the events of one task as frames ``<attempt>-<index>``; ``refs`` are for the manifest.

    ``attempt`` is unique per task attempt: a second attempt of a task overwrites nothing, and no
    manifest names frames of both.
    """

    channel: Channel
    header: FrameHeader
    limits: BatchLimits
    set_aside: Callable[[pa.RecordBatch, int], pa.RecordBatch | None] | None = None
    """Takes an event that alone is larger than ``max_frame_bytes``, and its size. Returns a smaller
    event to send in its place, or None. Without this function, such an event is an error."""
    refs: list[FrameRef] = field(default_factory=list)
    split_runs: bool = False
    """A key's events went to two frames (it alone has more than a batch holds)."""
    _next: int = 0

    def publish(self, batches: Iterable[tuple[pa.RecordBatch, np.ndarray | None]]) -> None:
        """Write events as frames, several at once. Each batch comes with the rows at which another
        key begins (None: cut anywhere)."""
        frames = (frame for events in self._cut(batches) for frame in self._frames(events))
        self.refs += in_order(self._put, frames, size=lambda frame: len(frame[2]))

    def _frames(self, events: pa.RecordBatch) -> Iterator[tuple[int, int, bytes]]:
        """Yield number, rows and content of a frame with these events; of several, where what a
        frame adds to them makes it larger than a receiver unpacks."""
        most, size, data = self.limits.max_frame_bytes, events.nbytes, b""
        if size <= most:
            header = replace(self.header, index=self._next, events=events.num_rows)
            data = encode_frame(header, events)
            size = unpacked_bytes(data, events)
        if size <= most:
            self._next += 1
            yield self._next - 1, events.num_rows, data
        elif events.num_rows > 1:
            self.split_runs = True  # perhaps
            half = events.num_rows // 2
            yield from self._frames(events.slice(0, half))
            yield from self._frames(events.slice(half))
        elif self.set_aside is not None:
            smaller = self.set_aside(events, size)
            if smaller is not None:
                yield from self._frames(smaller)
        else:
            raise FrameError(
                f"{self.header.stream}: an event is too large to be sent: "
                f"{self.limits.exceeded(size)}."
            )

    def _put(self, frame: tuple[int, int, bytes]) -> FrameRef:
        index, rows, data = frame
        path = self.channel.put_frame(self.header.stream, self.header.attempt, index, data)
        digest = frame_digest(data) if self.limits.digests else ""
        return FrameRef(path, rows, bytes=len(data), checksum=frame_checksum(data), digest=digest)

    def _cut(
        self, batches: Iterable[tuple[pa.RecordBatch, np.ndarray | None]]
    ) -> Iterator[pa.RecordBatch]:
        """Cut at ``limits``, between two keys where possible.

        One event larger than ``limits.bytes`` travels alone.
        """
        waiting: list[pa.RecordBatch] = []
        boundaries = np.zeros(0, np.int64)
        count = size = 0
        for events, starts in batches:
            if events.num_rows == 0:
                continue
            waiting.append(events)
            starts = np.arange(events.num_rows) if starts is None else starts
            boundaries = np.concatenate([boundaries, starts + count])
            count += events.num_rows
            size += events.nbytes
            while count > self.limits.rows or (size > self.limits.bytes and count > 1):
                rows = pa.concat_batches(waiting)
                at = self._boundary(boundaries, self._rows_that_fit(rows, size), count)
                if at is None:
                    break
                yield rows.slice(0, at)
                rest = rows.slice(at)
                waiting, count, size = [rest], rest.num_rows, rest.nbytes
                boundaries = boundaries[boundaries >= at] - at
        if count:
            yield pa.concat_batches(waiting)

    def _rows_that_fit(self, rows: pa.RecordBatch, size: int) -> int:
        fit: int = min(self.limits.rows, rows.num_rows)
        if size > self.limits.bytes:
            fit = min(fit, max(1, rows.num_rows * self.limits.bytes // size))
            while fit > 1 and rows.slice(0, fit).nbytes > self.limits.bytes:
                fit = max(1, fit // 2)
        return fit

    def _boundary(self, boundaries: np.ndarray, target: int, count: int) -> int | None:
        """Return the last boundary in 1..target; without one, ``target``, which splits a key's run.

        None: ``target`` is all the rows that there are; wait for more.
        """
        place = int(np.searchsorted(boundaries, target, side="right")) - 1
        if place >= 0 and boundaries[place] > 0:
            return int(boundaries[place])
        if target >= count:
            return None
        self.split_runs = True
        return target
