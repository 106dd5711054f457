"""What changes on a channel, looked for once for all its streams."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from spark_wan.channels.base import Channel

HEADS_INTERVAL = 300.0
"""Seconds between listings of the heads: other processes may append to the same streams."""


class AckWatch:
    """The acks of a channel, for all streams that a process sends on it. Threads share it.

    :meth:`look` lists the acks, and now and then the heads, once for all streams; :meth:`acks`
    reads those acks of one stream that were replaced since it read them.
    """

    def __init__(self, channel: Channel, clock: Callable[[], float] = time.monotonic) -> None:
        self.channel = channel
        self.clock = clock
        """Seconds."""
        self._lock = threading.Lock()
        self._looked_at: float | None = None
        self._tags: dict[str, dict[str, str]] = {}
        self._heads: dict[str, str] = {}
        self._heads_at: float | None = None
        """When the heads were listed."""
        self._read: dict[str, dict[str, tuple[str, bytes]]] = {}
        """Stream -> site -> the tag with which its ack was read, and the ack."""

    def look(self, max_age: float = 0.0) -> None:
        """List the acks of all streams, unless that was done in the last ``max_age`` seconds.

        Raises ChannelError.
        """
        with self._lock:
            now = self.clock()
            if self._looked_at is None or not 0 <= now - self._looked_at < max_age:
                if self._heads_at is None or not 0 <= now - self._heads_at < HEADS_INTERVAL:
                    self._heads, self._heads_at = self.channel.heads(), now
                self._tags = self.channel.ack_tags()
                self._looked_at = now

    def tag(self, stream: str) -> object:
        """Return what differs from before when an ack of the stream was replaced or deleted, or,
        up to :data:`HEADS_INTERVAL` later, when something was appended or announced."""
        return self._tags.get(stream, {}), self._heads.get(stream)

    def acks(self, stream: str) -> Mapping[str, bytes]:
        """Return the acks of a stream, by site, as of the last look. Raises ChannelError.

        Only those that were replaced since the last call are read.
        """
        if self._looked_at is None:
            self.look()
        tags, known = self._tags.get(stream, {}), self._read.get(stream, {})
        read = {}
        for site, tag in tags.items():
            if site in known and known[site][0] == tag:
                read[site] = known[site]
            elif (ack := self.channel.ack(stream, site)) is not None:
                read[site] = tag, ack
        self._read[stream] = read
        return {site: ack for site, (_, ack) in read.items()}
