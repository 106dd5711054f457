"""The source of ``format("wan")``: one row per gateway batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from spark_wan.channels.base import Channel
from spark_wan.channels.log import StreamLog, acked_through
from spark_wan.channels.registry import open_channel
from spark_wan.datasource.orphans import is_orphan
from spark_wan.datasource.schema import ARROW_SCHEMA, frame_row
from spark_wan.errors import ChannelError, FrameError, LogGapError, OptionError, nearest
from spark_wan.topology.options import SourceOptions

Offset = dict[str, Any]
"""``streams``: stream -> its last epoch. ``again``: stream -> a number that rises when it is announced again."""


class LogReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the logs of a channel: where they end, and what was announced again."""

    def __init__(self, channel: Channel, streams: tuple[str, ...] | None = None) -> None:
        """``streams``: names; default: all of the channel."""
        self.channel = channel
        self.streams = streams
        self.until: dict[str, int] | None = None
        """Of a query with ``Trigger.AvailableNow``: stream -> the epoch it ends with."""
        self.newest: dict[str, int] = {}

    def prepareForTriggerAvailableNow(self) -> None:
        self.until = self.ends()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        try:
            self.newest = self.ends()
            return self.next_offset(start, limit)
        except ChannelError as error:
            if is_orphan():
                raise SystemExit(1) from None
            return self.without_channel(start, error)

    def next_offset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return how far the next micro-batch reads. ``self.newest`` is where the logs end now. May raise ChannelError."""
        raise NotImplementedError

    def without_channel(self, start: Offset, error: ChannelError) -> Offset:
        """Return the next offset while the channel does not answer, or raise ``error``."""
        raise error

    def ends(self) -> dict[str, int]:
        """Stream -> its newest epoch."""
        return {
            stream: epochs[-1]
            for stream, epochs in self.channel.epochs().items()
            if self.wanted(stream)
        }

    def announced(self) -> dict[str, int]:
        """Stream -> a number that rises with each announcement."""
        return {
            stream: max(attempt for _, attempt in entries)
            + 1_000_000 * max(epoch for epoch, _ in entries)
            for stream, entries in self.channel.announcements().items()
            if self.wanted(stream)
        }

    def wanted(self, stream: str) -> bool:
        return self.streams is None or stream in self.streams

    def commit(self, end: Offset) -> None:
        """Nothing to do: the channel is trimmed on the strength of acks, not of offsets."""


@dataclass
class FramesPartition(InputPartition):
    """One gateway batch: where it is, and what its row says."""

    channel: str
    storage: Mapping[str, str]
    row: dict[str, Any]


class WanStreamReader(LogReader):
    """The streaming source of ``format("wan")``."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(open_channel(options.channel, options.storage), options.streams)
        self.options = options

    def initialOffset(self) -> Offset:
        starting = self.options.starting_offsets
        ends = self.ends()
        if starting == "latest":
            return offset(ends, {})
        earliest = {stream: self._before_earliest(stream) for stream in ends}
        if isinstance(starting, str):
            return offset(earliest, {})
        unknown = sorted(set(starting) - set(ends))
        if unknown:
            raise OptionError(
                f"wan source: startingOffsets: channel {self.channel.url} has no stream {unknown[0]!r}; {nearest(unknown[0], ends)}"
            )
        return offset({**earliest, **{stream: epoch - 1 for stream, epoch in starting.items()}}, {})

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self.options.max_bytes_per_trigger)
        if self.options.max_epochs_per_trigger is not None:
            return ReadMaxFiles(self.options.max_epochs_per_trigger)
        return ReadAllAvailable()

    def next_offset(self, start: Offset, limit: ReadLimit) -> Offset:
        ends, again = dict(self.newest), self.announced()
        for stream, epoch in start["streams"].items():
            if not self.wanted(stream) or ends.get(stream, 0) >= epoch:
                continue
            # One listing may miss what is there while the log is extended and trimmed.
            ends[stream] = max(ends.get(stream, 0), StreamLog(self.channel, stream).newest_epoch())
            if ends[stream] < epoch:
                raise LogGapError(
                    f"wan source: {self.channel.url}: the log of {stream} ends at {ends.get(stream, 0)}, but this query has read epoch "
                    f"{epoch}: the channel was deleted, or restored to an older state. Restore it, or begin again with a new checkpoint."
                )
        if self.until is not None:
            ends = {
                stream: min(end, self.until[stream])
                for stream, end in ends.items()
                if stream in self.until
            }
        begun = {**dict.fromkeys(ends, 0), **start["streams"]}
        if not isinstance(limit, ReadAllAvailable):
            ends = self._limited(begun, ends, limit)
        # Progress never goes back: a stream that vanished keeps its place.
        ends = {stream: max(epoch, ends.get(stream, 0)) for stream, epoch in begun.items()}
        return offset(ends, {**start["again"], **again})

    def reportLatestOffset(self) -> Offset | None:
        return offset(self.newest, {})

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        found: list[InputPartition] = []
        for stream, last in end["streams"].items():
            before = start["streams"].get(stream, 0)
            repeated = end["again"].get(stream, 0) > start["again"].get(stream, 0)
            first = min(before + 1, end["again"][stream] // 1_000_000) if repeated else before + 1
            stream_log = StreamLog(self.channel, stream)
            available = [number for number in stream_log.since(first - 1) if number <= last]
            if len([number for number in available if number > before]) < last - before:
                there = (
                    f"it has {available[0]} and later" if available else "nothing of them is there"
                )
                raise _trimmed(
                    self.channel.url, f"epochs {before + 1} to {last} of {stream}", there
                )
            for number in available:
                manifest = stream_log.read(number)
                found += [
                    FramesPartition(
                        self.channel.url,
                        dict(self.options.storage),
                        frame_row(manifest, i, number <= before),
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
            raise _trimmed(
                partition.channel, f"epoch {row['epoch']} of {row['stream']}", str(error)
            ) from error
        yield pa.RecordBatch.from_pylist([row], schema=ARROW_SCHEMA)

    def _before_earliest(self, stream: str) -> int:
        """The number before the first epoch whose frames are all there. The newest manifest stays when its frames are trimmed."""
        stream_log = StreamLog(self.channel, stream)
        there = {path for path, _ in self.channel.frames(stream)}
        numbers, below = stream_log.fold()
        if below:
            stream_log.check_gap(
                numbers, below, acked_through(stream_log.read(numbers[-1]), stream_log.acks())
            )
        for number in numbers:
            if {frame.path for frame in stream_log.read(number).frames} <= there:
                return number - 1
        return numbers[-1] if numbers else 0

    def _limited(
        self, begun: Mapping[str, int], ends: Mapping[str, int], limit: ReadLimit
    ) -> dict[str, int]:
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
                cost = (
                    StreamLog(self.channel, stream).read(number).bytes
                    if isinstance(limit, ReadMaxBytes)
                    else 1
                )
                if taken and cost > left:
                    return reached
                waiting[stream].pop(0)
                reached[stream], left, taken = number, left - cost, taken + 1
        return reached


def _trimmed(channel: str, what: str, found: str) -> LogGapError:
    return LogGapError(
        f"wan source: {what} cannot be read any more from {channel}: {found}. What all addressed sites have acked is trimmed, whoever "
        "else reads. Nothing is skipped silently: restore it, or begin again with a new checkpoint (startingOffsets: earliest)."
    )


def offset(streams: Mapping[str, int], again: Mapping[str, int]) -> Offset:
    """Return an offset: the same content gives the same JSON."""
    return {"streams": dict(sorted(streams.items())), "again": dict(sorted(again.items()))}
