"""Appending an epoch: what the publisher of a table and the sink of a user stream have in common.

Frames that no manifest names are orphans once they are old, and are swept. So a manifest may name
only frames that are young enough that no sweep takes them first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spark_wan.channels.base import write_of
from spark_wan.channels.parallel import in_order
from spark_wan.errors import LogGapError, ManifestExists, StaleWriteError
from spark_wan.events.columns import fingerprint
from spark_wan.log.stream_log import StreamLog
from spark_wan.wire.frame import FrameHeader, FrameRef
from spark_wan.wire.manifest import Manifest

ORPHAN_AGE = 86_400.0
"""Seconds after which a frame that no manifest names is an orphan, counted from the newest frame of
its write: before that, it may belong to an epoch in the making."""
STALE_AGE = ORPHAN_AGE / 2
"""Seconds, from its newest frame on, in which a write may name its frames. Later, a sweep might
take them before the manifest is there."""
MOST_REFUSALS = 5
"""Refusals of a manifest at one length of the log after which the stream is held."""
ALL_ROWS = "all"
"""The selection of a stream that carries all rows of its table; there are no filters yet."""


@dataclass(frozen=True)
class StreamSettings:
    """What the headers and manifests of all epochs of a stream say."""

    stream: str
    table: str
    keys: tuple[str, ...]
    origin: str
    sent_to: tuple[str, ...]
    addressees: tuple[str, ...]

    def header(self, table_id: str, schema: Mapping[str, Any], attempt: str) -> FrameHeader:
        """Return the header of the frames of one attempt, without index and number of events."""
        return FrameHeader(
            origin=self.origin,
            sent_to=self.sent_to,
            stream=self.stream,
            table=self.table,
            table_id=table_id,
            selection=ALL_ROWS,
            schema=fingerprint(schema),
            attempt=attempt,
            index=0,
            events=0,
        )

    def manifest(self, last: Manifest | None, **fields: Any) -> Manifest:
        """Return the manifest that follows ``last``. ``fields``: those that differ by epoch."""
        return Manifest.following(
            last,
            stream=self.stream,
            origin=self.origin,
            sent_to=self.sent_to,
            addressees=self.addressees,
            table=self.table,
            selection=ALL_ROWS,
            keys=self.keys,
            **fields,
        )


def append_in_time(
    log: StreamLog, manifest: Manifest, began: int, clock: Callable[[], int]
) -> Manifest:
    """Append a manifest whose first frame was written after ``began`` (by ``clock``, milliseconds).
    Return it as it was appended.

    Raises StaleWriteError when a sweep may take the frames before the manifest names them, and
    ManifestExists as :meth:`StreamLog.append` does, or when this process was frozen in it for so
    long that they were swept.
    """
    appending_since = clock()
    if appending_since - began > STALE_AGE * 1000 and not are_safe(log, manifest.frames):
        raise stale_write(log)
    manifest = log.append(manifest)
    if clock() - appending_since > STALE_AGE * 1000 and not are_there(log, manifest.frames):
        if log.newest_epoch() == manifest.epoch:
            log.channel.trim_manifest(log.stream, manifest.epoch)
            log.forget()
        raise ManifestExists(
            f"{log.stream}: the frames of manifest {manifest.epoch} were swept before it named them"
        )
    return manifest


class Refusals:
    """Counts how often a channel has refused the next manifest of a log that has not grown.

    Usually another writer was faster, and the log has its epoch. If it has not, no try is the last:
    a channel that was made again below the end of its log, or in which somebody has forged an end.
    """

    def __init__(self, log: StreamLog) -> None:
        self._log = log
        self._newest = -1
        self._count = 0

    def add(self, error: Exception) -> None:
        """Count one. Raises LogGapError when it is one of several at the same length."""
        newest = self._log.newest_epoch() or 0
        self._count = self._count + 1 if newest == self._newest else 1
        self._newest = newest
        if self._count >= MOST_REFUSALS:
            raise LogGapError(
                f"{self._log.channel.url}: manifest {newest + 1} of {self._log.stream} was refused "
                f"{self._count} times, as if it was there, and the log ends with {newest}. Topics "
                "or folders of the channel were deleted and made again, or somebody else writes to "
                "them. The stream is held. Restore the channel, or give the sender another "
                f"`channel`, in which a new log begins. ({error})"
            ) from error


def stale_write(log: StreamLog) -> StaleWriteError:
    """Return the error for a write whose frames are gone, or may be swept at any moment."""
    return StaleWriteError(
        f"wan sink, stream {log.stream}: the write was interrupted for so long that its frames "
        "are, or may be, no longer in the channel. Write the rows again: receivers recognise those "
        "that have arrived by their event IDs."
    )


def are_safe(log: StreamLog, frames: Iterable[FrameRef]) -> bool:
    """Whether the frames of a write that took long are there, and no sweep takes them soon."""
    times = frame_times(log, frames)
    newest = newest_frames((path, time) for path, time in times.items() if time is not None)
    young = log.channel.now() - STALE_AGE
    return all(time is not None and newest[write_of(path)] > young for path, time in times.items())


def are_there(log: StreamLog, frames: Iterable[FrameRef]) -> bool:
    """Whether none of the frames was swept or trimmed."""
    return None not in frame_times(log, frames).values()


def frame_times(log: StreamLog, frames: Iterable[FrameRef]) -> dict[str, float | None]:
    """Return, by path, when each frame was written; None for one that is not there."""
    paths = [frame.path for frame in frames]
    return dict(zip(paths, in_order(log.channel.frame_time, paths), strict=True))


def newest_frames(written: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return, by write, the time of its newest frame: the first frames of a snapshot that takes
    many hours are as young as its last."""
    newest: dict[str, float] = {}
    for path, time in written:
        newest[write_of(path)] = max(time, newest.get(write_of(path), time))
    return newest
