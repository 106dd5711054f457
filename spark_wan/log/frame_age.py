"""How old written frames are: which are orphans, and which a manifest may still name.

The sweep deletes frames that no manifest names, once they are old. So a manifest names only frames
that are too young for that.
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_wan.channels.base import write_of
from spark_wan.channels.parallel import in_order
from spark_wan.log.stream_log import StreamLog
from spark_wan.wire.frame import FrameRef

ORPHAN_AGE = 86_400.0
"""Seconds after which a frame that no manifest names is an orphan, counted from the newest frame of
its write: before that, it may belong to an epoch in the making."""
STALE_AGE = ORPHAN_AGE / 2
"""Seconds, from its newest frame on, in which a write may name its frames. Later, a sweep might
take them before the manifest is there."""


def are_safe(log: StreamLog, frames: Iterable[FrameRef]) -> bool:
    """Whether the frames of a write that took long are there, and no sweep takes them soon."""
    times = _frame_times(log, frames)
    newest = newest_frames((path, time) for path, time in times.items() if time is not None)
    young = log.channel.now() - STALE_AGE
    return all(time is not None and newest[write_of(path)] > young for path, time in times.items())


def are_there(log: StreamLog, frames: Iterable[FrameRef]) -> bool:
    """Whether none of the frames was swept or trimmed."""
    return None not in _frame_times(log, frames).values()


def newest_frames(written: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return, by write, the time of its newest frame: the first frames of a snapshot that takes
    many hours are as young as its last."""
    newest: dict[str, float] = {}
    for path, time in written:
        newest[write_of(path)] = max(time, newest.get(write_of(path), time))
    return newest


def _frame_times(log: StreamLog, frames: Iterable[FrameRef]) -> dict[str, float | None]:
    """Return, by path, when each frame was written; None for one that is not there."""
    paths = [frame.path for frame in frames]
    return dict(zip(paths, in_order(log.channel.frame_time, paths), strict=True))
