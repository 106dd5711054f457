"""The source of ``format("wan")``: one row per gateway batch."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from spark_wan.channels.log import StreamLog, acked_through
from spark_wan.channels.registry import open_channel
from spark_wan.datasource.orphans import is_orphan
from spark_wan.datasource.schema import ARROW_SCHEMA, frame_row
from spark_wan.errors import ChannelError, FrameError, LogGapError, OptionError, nearest
from spark_wan.topology.options import IDLE_INTERVAL, SourceOptions

log = logging.getLogger(__name__)


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
            ends[stream] = max(ends.get(stream, 0), StreamLog(self.channel, stream).newest_epoch())
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
                    FramesPartition(
                        self.channel.url, dict(self.options.storage), frame_row(manifest, i, number <= before)
                    )
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
        yield pa.RecordBatch.from_pylist([row], schema=ARROW_SCHEMA)

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
