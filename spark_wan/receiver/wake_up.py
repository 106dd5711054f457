"""What wakes a receiver: a streaming source without rows, whose offset changes when there is something to do.

A receiver plans from log and ledger. Its streaming query says only *when*: its micro-batches are empty.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from spark_wan.channels.base import Channel
from spark_wan.channels.log import StreamLog
from spark_wan.channels.registry import open_channel
from spark_wan.datasource.source import LogReader, Offset, offset
from spark_wan.errors import ChannelError
from spark_wan.receiver.stream import IDLE_INTERVAL

log = logging.getLogger(__name__)

FORMAT = "wan-receiver"
"""The source's name in Spark. Options: ``channel``, ``site``, ``token``, ``retryInterval``, ``storage.*``."""


class WakeUpSource(DataSource):
    """The ``wan-receiver`` source. It is the receiver's own, and checks no options."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "stream string"

    def streamReader(self, schema: StructType) -> WakeUpReader:
        given = {name.lower(): value for name, value in self.options.items()}
        storage = {
            name.removeprefix("storage."): value
            for name, value in given.items()
            if name.startswith("storage.")
        }
        channel = open_channel(given["channel"], storage)
        return WakeUpReader(channel, given["site"], given["token"], float(given["retryinterval"]))


class WakeUpReader(LogReader):
    """Wakes the receiver of a site when a log has changed, when it was started anew, and to look again.

    Args:
        token: Another one for each start of the receiver's query.
        retry_interval: Seconds between wake-ups while the site holds a stream.
    """

    def __init__(self, channel: Channel, site: str, token: str, retry_interval: float) -> None:
        super().__init__(channel)
        self.site = site
        self.token = token
        self.retry_interval = retry_interval
        self._retry_at = 0.0
        self._look_at = time.monotonic() + IDLE_INTERVAL

    def initialOffset(self) -> Offset:
        return self._offset({}, {}, 0, token="")

    def next_offset(self, start: Offset, limit: ReadLimit) -> Offset:
        ends = self.newest
        if self.until is not None:
            ends = {
                stream: min(end, self.until[stream])
                for stream, end in ends.items()
                if stream in self.until
            }
        # A log that was begun anew ends at a lower epoch, and must wake its receiver too.
        ends = {**dict.fromkeys(start["streams"], 0), **ends}
        return self._offset(ends, {**start["again"], **self.announced()}, self._retries(start))

    def without_channel(self, start: Offset, error: ChannelError) -> Offset:
        if self.until is not None:
            raise error
        # A receiver outlives its channel's absence. It is woken, since only its micro-batch can say what it waits for.
        log.warning("%s", error)
        return self._offset(start["streams"], start["again"], int(start["retry"]) + 1)

    def reportLatestOffset(self) -> Offset | None:
        return self._offset(self.newest, {}, 0)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """None: what is wrong with one stream must not end the query of all."""
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return iter(())

    def _offset(
        self,
        streams: Mapping[str, int],
        again: Mapping[str, int],
        retries: int,
        token: str | None = None,
    ) -> Offset:
        wake = self.token if token is None else token
        return {**offset(streams, again), "wake": wake, "retry": retries}

    def _retries(self, start: Offset) -> int:
        """A number that rises every ``retry_interval`` seconds while this site holds a stream, and after ``IDLE_INTERVAL``."""
        before = int(start["retry"])
        now = time.monotonic()
        if self.until is not None:
            return before
        if now >= self._look_at:
            self._look_at = now + IDLE_INTERVAL
            return before + 1
        if now < self._retry_at:
            return before
        first, self._retry_at = self._retry_at == 0.0, now + self.retry_interval
        if first:
            return before
        acks = (StreamLog(self.channel, stream).acks().get(self.site) for stream in self.newest)
        return (
            before + 1 if any(ack is not None and ack.held is not None for ack in acks) else before
        )
