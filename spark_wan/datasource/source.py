"""The source of ``format("wan")``: one row per frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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

from spark_wan.channels.registry import open_channel
from spark_wan.datasource.options import SourceOptions
from spark_wan.datasource.orphans import is_orphan
from spark_wan.datasource.schema import ARROW_SCHEMA, frame_row
from spark_wan.errors import ChannelError, FrameError, LogGapError, OptionError, nearest
from spark_wan.log.frame_age import are_there
from spark_wan.log.heads import Heads
from spark_wan.log.progress import acked_through
from spark_wan.log.stream_log import StreamLog
from spark_wan.log.trust import NO_KEYS, StreamTrust
from spark_wan.topology.model import copied_stream
from spark_wan.topology.parsing import load_topology
from spark_wan.topology.signing import receiving_trust
from spark_wan.wire.frame import FrameRef, check_frame

Offset = dict[str, Any]
"""``streams``: stream -> its last epoch. ``again``: stream -> a number that rises whenever it is
announced again: the lowest epoch announced (times 1,000,000) and the attempt."""
_AGAIN_FACTOR = 1_000_000


@dataclass
class FramePartition(InputPartition):
    """One frame: its row without the payload, and the channel that has it."""

    channel: str
    storage: Mapping[str, str]
    row: dict[str, Any]
    frame: FrameRef


class WanStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The streaming source: one row per frame, :data:`spark_wan.datasource.schema.SCHEMA`,
    as Kafka's source has one row per record. :func:`spark_wan.datasource.decode.decode` turns them
    into a table's rows."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.channel = open_channel(options.channel, options.storage)
        self.until: dict[str, int] | None = None
        """With ``Trigger.AvailableNow``: stream -> the epoch that the query ends with."""
        self.newest: dict[str, int] = {}
        self._heads = Heads(self.channel)
        self._trust = _trust_of(options)
        self._logs: dict[str, StreamLog] = {}
        self._tags: dict[str, str] = {}
        """Stream -> the tag with which its log was read last."""
        self._ends: dict[str, int] = {}
        self._again: dict[str, int] = {}
        """Stream -> a number that rises with each announcement."""

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
                f"wan source: startingOffsets: channel {self.channel.url} has no stream "
                f"{unknown[0]!r}; {nearest(unknown[0], ends)}"
            )
        before = {stream: epoch - 1 for stream, epoch in starting.items()}
        return offset({**earliest, **before}, {})

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self.options.max_bytes_per_trigger)
        if self.options.max_epochs_per_trigger is not None:
            return ReadMaxFiles(self.options.max_epochs_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self.until = self.ends()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        try:
            self.newest = self.ends()
            return self._next_offset(start, limit)
        except ChannelError:
            if is_orphan():
                raise SystemExit(1) from None
            raise

    def _next_offset(self, start: Offset, limit: ReadLimit) -> Offset:
        ends = dict(self.newest)
        for stream, epoch in start["streams"].items():
            if not self.wanted(stream) or ends.get(stream, 0) >= epoch:
                continue
            # A listing may miss manifests while the log is extended and trimmed: ask once more.
            ends[stream] = max(ends.get(stream, 0), self._log(stream).newest_epoch())
            if ends[stream] < epoch:
                raise LogGapError(
                    f"wan source: {self.channel.url}: the log of {stream} ends at {ends[stream]}, "
                    f"but this query has read epoch {epoch}: the channel was deleted, or restored "
                    "to an older state. Restore its newer state, or start the query with a new "
                    "checkpoint."
                )
        ends = self.bounded(ends)
        ends = {stream: end for stream, end in ends.items() if stream not in self._heads.paused}
        starts = {**dict.fromkeys(ends, 0), **start["streams"]}
        if isinstance(limit, (ReadMaxBytes, ReadMaxFiles)):
            ends = self._limited(starts, ends, limit)
        # Offsets never go back: a stream that is missing keeps its own.
        ends = {stream: max(epoch, ends.get(stream, 0)) for stream, epoch in starts.items()}
        again = {s: each for s, each in self._again.items() if s not in self._heads.paused}
        return offset(ends, {**start["again"], **again})

    def reportLatestOffset(self) -> Offset | None:
        return offset(self.newest, {})

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        partitions: list[InputPartition] = []
        for stream, last in end["streams"].items():
            before = start["streams"].get(stream, 0)
            repeated = end["again"].get(stream, 0) > start["again"].get(stream, 0)
            first = before + 1
            if repeated:
                first = min(first, end["again"][stream] // _AGAIN_FACTOR)
            stream_log = self._log(stream)
            available = [epoch for epoch in stream_log.since(first - 1) if epoch <= last]
            if len([epoch for epoch in available if epoch > before]) < last - before:
                epochs = f"epochs {before + 1} to {last} of {stream}"
                left = f"it has {available[0]} and later" if available else "it has none of them"
                raise _trimmed(self.channel.url, epochs, left)
            for epoch in available:
                manifest = stream_log.read(epoch)
                rows = [
                    frame_row(manifest, i, epoch <= before) for i in range(len(manifest.frames))
                ]
                storage = dict(self.options.storage)
                partitions += [
                    FramePartition(self.channel.url, storage, row, frame)
                    for row, frame in zip(rows, manifest.frames, strict=True)
                ]
        return partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FramePartition)
        channel = open_channel(partition.channel, partition.storage)
        row = partition.row
        try:
            payload = channel.get_frame(row["path"], partition.frame.bytes)
            if partition.frame.digest:
                check_frame(payload, f"{partition.channel}/{row['path']}", partition.frame)
            row = {**row, "payload": payload}
        except FrameError as error:
            raise _trimmed(
                partition.channel, f"epoch {row['epoch']} of {row['stream']}", str(error)
            ) from error
        yield pa.RecordBatch.from_pylist([row], schema=ARROW_SCHEMA)

    def commit(self, end: Offset) -> None:
        """Do nothing: acks trim the channel, not offsets."""

    def ends(self) -> dict[str, int]:
        """Return, by stream, its newest epoch. Reads only logs that changed since the last call."""
        tags = {stream: tag for stream, tag in self._heads.tags().items() if self.wanted(stream)}
        for stream in self._tags.keys() - tags.keys():
            for known in (self._tags, self._ends, self._again):
                known.pop(stream, None)
        for stream, tag in tags.items():
            if self._tags.get(stream) == tag:
                continue
            stream_log = self._logs.setdefault(stream, self._log(stream))
            self._ends[stream] = stream_log.newest_epoch()
            announced = self._heads.announced(stream)
            if announced is not None:
                self._again[stream] = announced[0] * _AGAIN_FACTOR + announced[1]
            self._tags[stream] = tag
        return {stream: end for stream, end in self._ends.items() if end}

    def bounded(self, ends: dict[str, int]) -> dict[str, int]:
        """Return ``ends``, with ``Trigger.AvailableNow`` no further than the query goes."""
        if self.until is None:
            return ends
        return {s: min(end, self.until[s]) for s, end in ends.items() if s in self.until}

    def _log(self, stream: str) -> StreamLog:
        return StreamLog(self.channel, stream, self._trust(stream))

    def wanted(self, stream: str) -> bool:
        if self.options.streams is None:
            return copied_stream(stream) is None  # rows of a table, and no events
        return stream in self.options.streams

    def _before_earliest(self, stream: str) -> int:
        """Return the epoch before the first one whose frames are all there. (The newest manifest
        stays when its frames are trimmed.)"""
        stream_log = self._log(stream)
        epochs, below = stream_log.whole_and_below()
        if below:
            newest, acks = stream_log.read(epochs[-1]), stream_log.acks()
            acked = acked_through(newest, acks, log_read_first=True)
            stream_log.check_gap(epochs, below, acked)
        for epoch in epochs:
            if are_there(stream_log, stream_log.read(epoch).frames):
                return epoch - 1
        return epochs[-1] if epochs else 0

    def _limited(
        self, starts: Mapping[str, int], ends: Mapping[str, int], limit: ReadMaxBytes | ReadMaxFiles
    ) -> dict[str, int]:
        """Return how far whole epochs go up to the limit, stream by stream in turn; at least one
        where there is any."""
        reached = {stream: starts.get(stream, 0) for stream in ends}
        left = limit.max_bytes if isinstance(limit, ReadMaxBytes) else limit.max_files
        logs = {stream: self._log(stream) for stream in ends}
        waiting = {
            stream: [epoch for epoch in logs[stream].since(reached[stream]) if epoch <= end]
            for stream, end in ends.items()
        }
        # Another stream comes first each time, so that none has to wait forever.
        streams = sorted(waiting)
        turn = sum(reached.values()) % max(1, len(streams))
        streams = streams[turn:] + streams[:turn]
        taken = 0
        while any(waiting.values()):
            for stream in [stream for stream in streams if waiting[stream]]:
                epoch = waiting[stream][0]
                by_size = isinstance(limit, ReadMaxBytes)
                cost = logs[stream].read(epoch).bytes if by_size else 1
                if taken and cost > left:
                    return reached
                waiting[stream].pop(0)
                reached[stream], left, taken = epoch, left - cost, taken + 1
        return reached


def _trust_of(options: SourceOptions) -> Callable[[str], StreamTrust]:
    """Return what the reading site believes, by the topology. Without one there are no keys."""
    if options.config is None or options.site is None:
        return lambda stream: NO_KEYS
    return receiving_trust(load_topology(options.config), options.site, options.channel)


def _trimmed(channel: str, what: str, left: str) -> LogGapError:
    return LogGapError(
        f"wan source: {what} cannot be read any more from {channel}: {left}. What all addressed "
        "sites have acked is trimmed, whoever else reads. Nothing is skipped silently: restore it, "
        "or start the query with a new checkpoint (startingOffsets: earliest)."
    )


def offset(streams: Mapping[str, int], again: Mapping[str, int]) -> Offset:
    """Return an offset: the same content gives the same JSON."""
    return {"streams": dict(sorted(streams.items())), "again": dict(sorted(again.items()))}
