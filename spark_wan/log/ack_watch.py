"""What changes on a channel, looked for once for all its streams."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping

from spark_wan.channels.base import Channel, Version
from spark_wan.log.heads import Heads
from spark_wan.log.notes import ack, ack_versions

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
        self._versions: dict[str, dict[str, Version]] = {}
        self.changes = 0
        """How many looks have found an ack that was replaced, or is new or gone."""
        self._heads = Heads(channel, clock)
        self._tags: dict[str, str] = {}
        self._heads_at: float | None = None
        """When the heads were listed."""
        self._read: dict[str, dict[str, tuple[Version, bytes]]] = {}
        """Stream -> site -> the version with which its ack was read, and the ack."""

    def look(self, max_age: float = 0.0) -> None:
        """List the acks of all streams, unless that was done in the last ``max_age`` seconds.

        Raises ChannelError.
        """
        with self._lock:
            now = self.clock()
            if self._looked_at is None or not 0 <= now - self._looked_at < max_age:
                if self._heads_at is None or not 0 <= now - self._heads_at < HEADS_INTERVAL:
                    self._tags, self._heads_at = self._heads.tags(), now
                versions = ack_versions(self.channel)
                self.changes += versions != self._versions
                self._versions, self._looked_at = versions, now

    def tag(self, stream: str) -> object:
        """Return what differs from before when an ack of the stream was replaced or deleted, or,
        up to :data:`HEADS_INTERVAL` later, when something was appended or announced."""
        return self._versions.get(stream, {}), self._tags.get(stream)

    def streams(self) -> Collection[str]:
        """Return the streams that have acks, as of the last look."""
        return self._versions.keys()

    def acks(self, stream: str) -> Mapping[str, bytes]:
        """Return the acks of a stream, by site, as of the last look. Raises ChannelError.

        Only those that were replaced since the last call are read.
        """
        if self._looked_at is None:
            self.look()
        versions, known = self._versions.get(stream, {}), self._read.get(stream, {})
        read = {}
        for site, version in versions.items():
            if site in known and known[site][0] == version:
                read[site] = known[site]
            elif (data := ack(self.channel, stream, site)) is not None:
                read[site] = version, data
        self._read[stream] = read
        return {site: data for site, (_, data) in read.items()}
