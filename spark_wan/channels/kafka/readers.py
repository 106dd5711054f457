"""Readers of the topics of the log and of acks: they read to the end, and keep what they read."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from spark_wan.channels.base import BY_SITE, MAX_RECORD_BYTES, Note
from spark_wan.channels.kafka.broker import Broker, OutOfRangeError, Record
from spark_wan.channels.kafka.seen_log import SeenLog
from spark_wan.errors import ChannelError

T = TypeVar("T")

MAX_KEY_BYTES = 1_024
"""Size of a key of the topic of acks, at most: two names, of up to 255 characters each."""
NO_SITE = "-"
"""In the key of a note that has no site. No site has that name."""
NO_ACK = b"?"
"""Value of a record that was too large for an ack."""


class TopicReader(ABC):
    """Reads a topic of one partition to its end, once for all threads that ask at the same time."""

    def __init__(self, broker: Callable[[], Broker], topic: str) -> None:
        self._broker = broker
        self._topic = topic
        self._lock = threading.Lock()
        self._begun = 0
        """Number of reads to the end that have begun."""
        self._whole = 0
        """The newest of them that succeeded; 0 when what it read is forgotten."""
        self._next = 0
        """The next offset to read."""
        self._last: Record | None = None
        """The last record that was read."""

    @contextmanager
    def _at_end(self) -> Iterator[None]:
        """Hold the lock, with the topic read to its end as of this call."""
        asked = self._begun
        with self._lock:
            if self._whole <= asked:  # none that began since has succeeded
                self._begun += 1
                self._read(self._broker().end(self._topic, 0))
                self._whole = self._begun
            yield

    def check_topic(self) -> None:
        """Forget what was read, if the topic does not have it any more: it was made again."""
        with self._lock:
            if self._last is not None and not self._continued(self._broker(), self._next):
                self._forget()

    @abstractmethod
    def _read(self, end: int) -> None:
        """Read on to an offset. Called with the lock. Raises ChannelError."""

    @abstractmethod
    def _take(self, record: Record) -> None:
        """Add a record, and note it as the last one. What was taken stays when the read fails
        behind it: over a bad line, a long topic would never be read to its end."""

    def _forget(self) -> None:
        """Forget what was read: it is no answer for those who wait."""
        self._next, self._last = 0, None
        self._whole = 0

    def _kept(self, record: Record) -> Record:
        """Return a record as it is kept."""
        return record

    def _continued(self, broker: Broker, end: int) -> bool:
        """Read on, and return whether the topic still has the record that was read last.

        One that was deleted and made again has another record there, or none.
        """
        start = broker.beginning(self._topic, 0) if self._last is None else self._last.offset
        check = self._last is not None
        try:
            for each in broker.read(self._topic, 0, start, end) if start < end else ():
                record = self._kept(each)
                if check and record != self._last:
                    return False
                if not check:
                    self._take(record)
                check = False
        except OutOfRangeError:
            return False
        self._next = end
        return not check

    def _begun_anew(self, broker: Broker) -> bool:
        """Read from the beginning. Return whether that was there until it was read."""
        self._forget()
        return self._continued(broker, broker.end(self._topic, 0))

    def _read_anew(self, broker: Broker) -> None:
        # Twice: the beginning may be deleted while it is read.
        if not (self._begun_anew(broker) or self._begun_anew(broker)):
            raise ChannelError(f"the topic {self._topic} is deleted while it is read")


class LogReader(TopicReader):
    """Reads the topic of the log, and keeps what was read."""

    def __init__(self, broker: Callable[[], Broker], topic: str) -> None:
        super().__init__(broker, topic)
        self._seen = SeenLog(topic)

    def known(self, look: Callable[[SeenLog], T]) -> T:
        """Return what ``look`` finds in what was read before."""
        with self._lock:
            return look(self._seen)

    def fresh(self, look: Callable[[SeenLog], T], through: int | None = None) -> T:
        """Return what ``look`` finds at the end of the log, as of this call.

        ``through``: the offset of a record that is there; what is behind it does not matter.
        Raises ChannelError, also when the first records were deleted before a checkpoint.
        """
        if through is None:
            with self._at_end():
                return look(self._seen)
        with self._lock:
            if self._next <= through:
                self._read(through + 1)
            return look(self._seen)

    def _forget(self) -> None:
        super()._forget()
        self._seen = SeenLog(self._topic)

    def _read(self, end: int) -> None:
        broker = self._broker()
        if end == self._next and (self._seen.has_state or end == 0):
            return
        # A log that was trimmed beyond what was read has a checkpoint, from which it is read anew.
        if end < self._next or not self._continued(broker, end):
            self._read_anew(broker)
        if end and not self._seen.has_state and not self._is_foreign(broker):
            raise ChannelError(
                f"the topic {self._topic} does not begin with the channel's first record, nor with "
                "a checkpoint: records were deleted by a retention, or by hand. Its streams are "
                "held. Set retention.ms and retention.bytes of the topic to -1. Restore the topic "
                "from a backup; or delete the channel's topics and make new logs, as "
                "docs/kafka.md says."
            )

    def _is_foreign(self, broker: Broker) -> bool:
        """Whether the topic holds nothing of spark_wan's."""
        return len(self._seen.foreign) > 0 and broker.beginning(self._topic, 0) == 0

    def _take(self, record: Record) -> None:
        try:
            self._seen.add(record.offset, record.value)
        except BaseException:
            self._forget()  # it may have been taken in part
            raise
        self._last, self._next = record, record.offset + 1


def ack_key(note: Note) -> bytes:
    """Return the key of an ack, a pause, a receiver's record, a record of refused events, or a
    heartbeat. Earlier versions take no notice of the latter four."""
    suffix = "" if note.kind == "ack" else f"/{note.kind}"
    return f"{note.stream}/{note.site or NO_SITE}{suffix}".encode()


def _note_of(key: bytes) -> Note | None:
    """Return the note that has a key, if it is one of spark_wan's."""
    parts = key.decode(errors="replace").split("/") if len(key) <= MAX_KEY_BYTES else []
    if not all(parts) or len(parts) not in (2, 3):
        return None
    if parts[2:] == ["pause"]:
        return Note("pause", parts[0]) if parts[1] == NO_SITE else None
    kind = parts[2] if len(parts) == 3 else "ack"
    return next((Note(each, parts[0], parts[1]) for each in BY_SITE if each == kind), None)


class AckReader(TopicReader):
    """Reads the topic of acks, and keeps the newest ack of each stream and site, the newest record
    of each receiver and of refused events, the pauses, and the heartbeats.

    Compaction deletes the record that was read last where the same site has acked once more, and
    so may a topic that was made again and compacted have none there. Which it is does not show, so
    all of it is read again: a record for each ack, and those that are not compacted yet.
    """

    def __init__(self, broker: Callable[[], Broker], topic: str) -> None:
        super().__init__(broker, topic)
        self._notes: dict[Note, Record] = {}

    def fresh(self) -> dict[Note, Record]:
        """Return the notes, as of this call."""
        with self._at_end():
            return dict(self._notes)

    def _forget(self) -> None:
        super()._forget()
        self._notes = {}

    def _read(self, end: int) -> None:
        # Of as many records as before, nothing shows without another request at every tick. Acks
        # that are known stay true until the next record, which brings those of the new topic.
        if end == self._next:
            return
        broker = self._broker()
        if end < self._next or not self._continued(broker, end):
            self._read_anew(broker)

    def _kept(self, record: Record) -> Record:
        """Return a record without a value that is too large for an ack.

        No site wrote it. Like an object of that size, it replaces the ack before, and is none.
        """
        return record if len(record.value) <= MAX_RECORD_BYTES else record._replace(value=NO_ACK)

    def _take(self, record: Record) -> None:
        note = _note_of(record.key)
        if note is not None:
            self._notes.pop(note, None)
            if record.value:  # a record without one removes the note
                self._notes[note] = record
        self._last, self._next = record, record.offset + 1
