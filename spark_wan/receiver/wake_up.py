"""What wakes a receiver: a streaming source without rows.

Its offset changes when there may be work. The receiver plans from log and ledger; its streaming
query only triggers it, and micro-batches are empty.
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
"""The source's name in Spark.

Options: ``channel``, ``site``, ``token``, ``retryInterval``, ``storage.*``.
"""


class WakeUpSource(DataSource):
    """The ``wan-receiver`` source. Only the receiver uses it, so it checks no options."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "stream string"

    def streamReader(self, schema: StructType) -> WakeUpReader:
        options = {name.lower(): value for name, value in self.options.items()}
        storage = {
            name.removeprefix("storage."): value
            for name, value in options.items()
            if name.startswith("storage.")
        }
        retry_interval = float(options["retryinterval"])
        channel = open_channel(options["channel"], storage)
        return WakeUpReader(channel, options["site"], options["token"], retry_interval)


class WakeUpReader(LogReader):
    """Wakes a site's receiver when a log has changed, at each start, and for retries.

    Args:
        token: A new one for each start of the receiver's query.
        retry_interval: Seconds between wake-ups while the site holds a stream.
    """

    def __init__(self, channel: Channel, site: str, token: str, retry_interval: float) -> None:
        super().__init__(channel)
        self.site = site
        self.token = token
        self.retry_interval = retry_interval
        self._retry_at = 0.0
        self._idle_until = time.monotonic() + IDLE_INTERVAL

    def initialOffset(self) -> Offset:
        return self._offset({}, {}, 0, wake="")

    def next_offset(self, start: Offset, limit: ReadLimit) -> Offset:
        ends = self.newest
        if self.until is not None:
            ends = {
                stream: min(end, self.until[stream])
                for stream, end in ends.items()
                if stream in self.until
            }
        # A restarted log ends at a lower epoch, and must wake its receiver too.
        ends = {**dict.fromkeys(start["streams"], 0), **ends}
        return self._offset(ends, {**start["again"], **self.announced()}, self._retries(start))

    def without_channel(self, start: Offset, error: ChannelError) -> Offset:
        if self.until is not None:
            raise error
        # The receiver outlives a missing channel. Only its micro-batch can report that it waits.
        log.warning("%s", error)
        return self._offset(start["streams"], start["again"], int(start["retry"]) + 1)

    def reportLatestOffset(self) -> Offset | None:
        return self._offset(self.newest, {}, 0)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return none: an error of one stream must not end the query of all."""
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return iter(())

    def _offset(
        self,
        streams: Mapping[str, int],
        again: Mapping[str, int],
        retries: int,
        wake: str | None = None,
    ) -> Offset:
        wake = self.token if wake is None else wake
        return {**offset(streams, again), "wake": wake, "retry": retries}

    def _retries(self, start: Offset) -> int:
        """Return a number that rises when the receiver must be woken though no log has changed.

        Every ``retry_interval`` seconds while the site holds a stream, and after
        ``IDLE_INTERVAL``.
        """
        before = int(start["retry"])
        now = time.monotonic()
        if self.until is not None:
            return before
        if now >= self._idle_until:
            self._idle_until = now + IDLE_INTERVAL
            return before + 1
        if now < self._retry_at:
            return before
        first, self._retry_at = self._retry_at == 0.0, now + self.retry_interval
        if first:
            return before
        acks = (StreamLog(self.channel, stream).acks().get(self.site) for stream in self.newest)
        return before + any(ack is not None and ack.held is not None for ack in acks)
