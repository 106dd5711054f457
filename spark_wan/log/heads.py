"""What is new on a channel: a tag for each stream that has a log, whatever waits in the logs.

The tag is that of the stream's head, which every append overwrites after its manifest, and of its
announcement. Heads are hints. Where the channel itself does not order appends, a writer may have
died between a manifest and its head, or be of version 0.1.0, which wrote none, and announced in the
log's folder. So now and then all logs are listed, and at every look while a log is *behind*: it has
no head, or has moved on without it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from spark_wan.channels.base import Channel, Notes
from spark_wan.channels.parallel import in_order
from spark_wan.errors import ChannelError
from spark_wan.log.notes import announced, pause

WHOLE_LISTING_INTERVAL = 300.0
"""Seconds after which the logs are listed."""


class End(NamedTuple):
    """The end of a log as a listing shows it."""

    epoch: int = 0
    again: tuple[int, int] | None = None
    """The last announcement of version 0.1.0: epoch and attempt."""


class Seen(NamedTuple):
    """A stream in a listing of all logs."""

    head: str
    """The tag of its head; nothing where it has none."""
    end: End
    is_behind: bool


def compared(
    before: Mapping[str, Seen], heads: Mapping[str, str], ends: Mapping[str, End]
) -> dict[str, Seen]:
    """Compare a listing of all logs with the heads, and with the listing before.

    A log is behind if it has no head; or if it moved on while its head stayed, until that changes.
    """
    seen = {}
    for stream, end in ends.items():
        head, known = heads.get(stream, ""), before.get(stream)
        is_same = known is not None and known.head == head
        moved_on = known is not None and is_same and (known.end != end or known.is_behind)
        seen[stream] = Seen(head, end, not head or moved_on)
    return seen


class Heads:
    """The heads of a channel, for one reader. Threads share it."""

    def __init__(self, channel: Channel, clock: Callable[[], float] = time.monotonic) -> None:
        self.channel = channel
        self.clock = clock
        """Seconds."""
        self._lock = threading.Lock()
        self._listed_at: float | None = None
        """When the logs were listed."""
        self._seen: dict[str, Seen] = {}
        """What that listing showed."""
        self._ended: dict[str, str] = {}
        """Streams without manifests -> tag of the head that is left."""
        self._pauses: dict[str, tuple[str, bool]] = {}
        """Stream -> the tag of its last pause, and whether that goes on."""
        self.paused: frozenset[str] = frozenset()
        """Streams of which nothing is to be taken, by the last :meth:`tags`."""

    def __reduce__(self) -> tuple[Any, ...]:  # Spark pickles the readers of its streaming queries
        return Heads, (self.channel,)

    def tags(self) -> dict[str, str]:
        """Return a tag for each stream that has a log.

        It is another one than before when a manifest was appended or announced since, and may also
        change for no reason. One request for all streams (up to 1,000), which a receiver makes at
        every tick; at first, and now and then, one for all logs.
        """
        with self._lock:
            listed = self.channel.notes("heads")
            notes = listed.items()
            self._look_at_pauses(listed)
            heads = {note.stream: version.tag for note, version in notes if note.kind == "head"}
            again = {note.stream: version.tag for note, version in notes if note.kind == "again"}
            if not self.channel.orders_appends and self._is_listing_due():
                # After the heads: an append in between makes a log look ahead of its head, once.
                # The other way round, it would do so until the next append.
                ends = self._ends()
                self._seen = compared(self._seen, heads, ends)
                self._ended = {stream: tag for stream, tag in heads.items() if stream not in ends}
                self._listed_at = self.clock()
            for stream, tag in self._ended.items():
                if heads.get(stream) == tag:
                    del heads[stream]
            for stream, (head, end, is_behind) in self._seen.items():
                if is_behind:
                    heads[stream] = f"{head}; log {end}"
            return {
                stream: f"{tag}; again {again[stream]}" if stream in again else tag
                for stream, tag in heads.items()
            }

    def _look_at_pauses(self, listed: Notes) -> None:
        """Read the pauses that were replaced since the last look."""
        tags = {note.stream: each.tag for note, each in listed.items() if note.kind == "pause"}
        known = self._pauses
        new = [stream for stream, tag in tags.items() if known.get(stream, ("", True))[0] != tag]
        read = dict(zip(new, in_order(self._read_pause, new), strict=True))
        self._pauses = {
            stream: known[stream]
            if stream not in read
            # One that cannot be read is a pause, and is read again.
            else ("" if read[stream] is None else tag, read[stream] is not False)
            for stream, tag in tags.items()
        }
        self.paused = frozenset(
            stream for stream, (_, is_paused) in self._pauses.items() if is_paused
        )

    def _read_pause(self, stream: str) -> bool | None:
        """Return whether a stream is paused; None: that cannot be read."""
        try:
            return pause(self.channel, stream) is not None
        except ChannelError:
            return None

    def announced(self, stream: str) -> tuple[int, int] | None:
        """Return epoch and attempt of the stream's announcement, also of one of version 0.1.0."""
        found, seen = announced(self.channel, stream), self._seen.get(stream)
        return seen.end.again if found is None and seen is not None and seen.is_behind else found

    def _is_listing_due(self) -> bool:
        if self._listed_at is None or any(each.is_behind for each in self._seen.values()):
            return True
        return not 0 <= self.clock() - self._listed_at < WHOLE_LISTING_INTERVAL

    def _ends(self) -> dict[str, End]:
        """List all logs that have a manifest."""
        newest: dict[str, int] = {}
        again: dict[str, tuple[int, int]] = {}
        for stream, epoch, attempt in self.channel.entries():
            if attempt:
                again[stream] = max((epoch, attempt), again.get(stream, (0, 0)))
            else:
                newest[stream] = epoch
        return {stream: End(epoch, again.get(stream)) for stream, epoch in newest.items()}
