"""The three topics of a channel, of a :class:`~spark_wan.channels.kafka.broker.Broker`.

===================  =============================================================================
``<prefix>.frames``  any number of partitions. Key: ``<stream>/<attempt>-<index>/<part>``, value: a
                     part of the frame. Manifests name a frame by partition and offset
``<prefix>.log``     one partition: :mod:`spark_wan.wire.topic_log`
``<prefix>.acks``    one partition, compacted. Key: ``<stream>/<site>``, value: the ack; or
                     ``<stream>/<site>/receiver``: the receiver's record
===================  =============================================================================

Each call that reads the log reads it to its end as of the call, one read for all threads that wait.
What was read before stays in memory, so a call costs a request or two, whatever the log's length.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TypeVar

from spark_wan.channels.base import Channel
from spark_wan.channels.kafka.broker import (
    Broker,
    NotPermittedError,
    OutOfRangeError,
    Record,
    TooLargeError,
    TopicSettings,
    Written,
)
from spark_wan.channels.kafka.readers import AckReader, LogReader
from spark_wan.channels.kafka.seen_log import SeenLog
from spark_wan.errors import EPOCHS, ChannelError, FrameError, NotBegunError
from spark_wan.wire import topic_log
from spark_wan.wire.topic_log import Operation
from spark_wan.wire.topic_state import FramePath, Place, parse_path

T = TypeVar("T")

FRAME_PARTITIONS = 4
"""Number of partitions with which the topic of frames is made."""
RECORD_BYTES = 900_000
"""Size of a record, at most: brokers take 1 MiB unless they were told otherwise."""
LEAST_RECORD_BYTES = 1_024
ATTEMPTS = 5
"""How often an operation is written whose parts a checkpoint voided."""
# A reader unpacks a batch of records whole. So the broker unpacks what others compress, and refuses
# what is larger than max.message.bytes then. spark_wan compresses frames, not records.
_AS_WRITTEN = {"compression.type": "uncompressed", "message.timestamp.type": "LogAppendTime"}
_KEPT = {
    **_AS_WRITTEN,
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
}
_SEGMENTS = {"segment.bytes": str(64 * 1024 * 1024)}  # a broker frees space by whole segments
FRAMES = TopicSettings(None, _KEPT, _SEGMENTS)
LOG = TopicSettings(1, _KEPT, _SEGMENTS)
ACKS = TopicSettings(
    1,
    {**_AS_WRITTEN, "cleanup.policy": "compact"},
    {**_SEGMENTS, "segment.ms": str(24 * 3_600_000)},
)


class Topics(Channel):
    """What is written to the topics of a channel, and read from them: frames, and operations.

    A kind says where they are: :meth:`connect` and :attr:`prefix`."""

    prefix: str
    """Of the names of the topics."""

    def __init__(self, url: str, storage: Mapping[str, str] | None = None) -> None:
        super().__init__(url, storage)
        self._connecting = threading.Lock()
        self._broker: Broker | None = None
        self.log = LogReader(lambda: self.broker, self.topic("log"))
        self._acks = AckReader(lambda: self.broker, self.topic("acks"))
        self._most = RECORD_BYTES
        self._next_partition = itertools.count()

    @abstractmethod
    def connect(self) -> Broker:
        """Return the brokers. Raises ChannelError when they do not answer."""

    @property
    def broker(self) -> Broker:
        with self._connecting:
            if self._broker is None:
                self._broker = self.connect()
            return self._broker

    def close(self) -> None:
        with self._connecting:
            broker, self._broker = self._broker, None
        if broker is not None:
            broker.close()

    def topic(self, part: str) -> str:
        return f"{self.prefix}.{part}"

    def prepare(self) -> None:
        """Make the topics, and write the log's first record, unless they are there.

        Raises NotBegunError when the log is empty and this user, a receiver's, may not write to it.
        """
        topics = {"frames": FRAMES, "log": LOG, "acks": ACKS}
        self.broker.prepare({self.topic(part): each for part, each in topics.items()})
        self.log.check_topic()
        self._acks.check_topic()
        if not self._has_state():
            self._begin()
            self._has_state()

    def is_begun(self) -> bool:
        topics = map(self.topic, ("frames", "log", "acks"))
        return all(self.broker.is_there(each, anew=True) for each in topics) and self._has_state()

    def _has_state(self) -> bool:
        """Whether the log has its first record. Raises ChannelError if that is another
        program's."""
        if self.log.fresh(lambda seen: seen.has_state):
            return True
        if self.broker.end(self.topic("log"), 0) == 0:
            return False
        if not self.log.fresh(lambda seen: seen.has_state):  # another job may have begun it since
            raise ChannelError(
                f"channel {self.url}: the topic {self.topic('log')} has records, and the first is "
                "not spark_wan's. Give the channel a prefix of its own."
            )
        return True

    def _begin(self) -> None:
        """Write the log's first record."""
        identity = uuid.uuid4().hex
        first = Operation(topic_log.CHANNEL, identity, id=identity)
        try:
            self.broker.produce(self.topic("log"), 0, [(b"", first.encode())])
        except NotPermittedError as error:
            raise NotBegunError(
                f"channel {self.url}: no sender has begun it yet: the topic {self.topic('log')} "
                "is empty. Start the sender; a receiver goes on by itself then. (A sender that "
                f"says so lacks the permission (ACL) WRITE on {self.topic('log')}.)"
            ) from error

    # --- frames ---------------------------------------------------------------------------------

    def put_frame(self, stream: str, attempt: str, index: int, data: bytes) -> str:
        topic = self.topic("frames")
        partition = next(self._next_partition) % self.broker.partitions(topic)
        frame = FramePath(stream, f"{attempt}-{index:05d}", ())

        def pieces(most: int) -> list[tuple[bytes, bytes]]:
            starts = range(0, max(len(data), 1), most)
            return [(frame.key(n), data[at : at + most]) for n, at in enumerate(starts)]

        written = self._in_records(topic, partition, pieces)
        return str(frame._replace(places=tuple(Place(partition, each.offset) for each in written)))

    def get_frame(self, path: str, max_bytes: int | None = None) -> bytes:
        parsed = parse_path(path)
        if parsed is None:
            raise FrameError(f"{self.url}/{path!r}: no path of a frame on topics.")
        for read in (self.log.known, self.log.fresh):
            moved = read(lambda seen: seen.state.frames.get(path))
            records = self._records(parsed, moved or parsed.places, max_bytes)
            if records is not None:
                return b"".join(record.value for record in records)
        raise FrameError(
            f"{self.url}/{path}: the frame that a manifest names is not there. Its stream is held. "
            f"The records of {self.topic('frames')} were deleted (by a retention that is too "
            "short?), or the topic was made again, or is a mirror with other offsets. Receivers "
            "read the topics that the sender writes; without the frame the remote site needs a "
            "copy of the table.",
            needs=EPOCHS,
        )

    def _records(
        self,
        frame: FramePath,
        places: tuple[Place, ...],
        max_bytes: int | None = None,
        first_part: int = 0,
    ) -> list[Record] | None:
        """Return the records of a frame from a part on, when they are at these places."""
        topic = self.topic("frames")
        partition, first = places[0]
        in_a_row = tuple(Place(partition, first + part) for part in range(len(places)))
        pieces = [places] if places == in_a_row else [(place,) for place in places]
        records: list[Record] = []
        size = 0
        for (partition, first), *more in pieces:
            if partition >= self.broker.partitions(topic) and partition >= self.broker.partitions(
                topic, anew=True
            ):
                return None
            end = first + 1 + len(more)
            try:
                for record in self.broker.read(topic, partition, first, end, exact=True):
                    records.append(record)
                    size += len(record.value)
                    if max_bytes is not None and size > max_bytes:
                        raise FrameError(
                            f"{self.url}/{frame}: the records are larger than the manifest says "
                            f"(more than {max_bytes:,} bytes): they are not the frame that was "
                            "written. Its stream is held; the remote site needs a copy."
                        )
            except OutOfRangeError:
                return None
        keys = [frame.key(first_part + part) for part in range(len(places))]
        return records if [record.key for record in records] == keys else None

    def move_frame(self, path: str) -> None:
        """Write a frame once more, at the end of its topic, unless it was trimmed meanwhile: then
        frames behind its old place can be deleted."""
        parsed = parse_path(path)
        old = self.log.fresh(lambda seen: seen.state.frames.get(path))
        if parsed is None or old is None:
            return
        attempt, _, index = parsed.name.partition("-")
        copy = parse_path(self.put_frame(parsed.stream, attempt, int(index), self.get_frame(path)))
        assert copy is not None
        # One that does not count is harmless, and so is one of which that cannot be told: another
        # keeper moved the frame, or it was trimmed. Readers find it where the log says. The copy
        # stays for a day, as all frames that no manifest names.
        self.submit(topic_log.MOVE, {"path": path, "from": old, "to": copy.places})

    # --- the log ---------------------------------------------------------------------------------

    def submit(self, kind: str, fields: Mapping[str, object], payload: bytes = b"") -> bool | None:
        """Write an operation, and return whether it counts, which reading it back shows; None when
        that cannot be told."""
        for _ in range(ATTEMPTS):
            operation = Operation(kind, self.channel_id(), fields, payload)
            offset: int | None = None
            try:
                offset = self._write_log(operation)[-1].offset
            except ChannelError:
                if self._verdict(operation) is None:
                    raise
            counts = self._verdict(operation, offset)
            if counts is not None:
                return counts
        return None

    def _verdict(self, operation: Operation, offset: int | None = None) -> bool | None:
        """Return whether an operation counts; None when the log does not have it. The log is read
        up to its last record, if that ``offset`` is known."""

        def look(seen: SeenLog) -> bool | None:
            return seen.counts(operation.id)

        found = None if offset is None else self.log.fresh(look, offset)
        # Where the topic was made again, the offset is below what was read before.
        return self.log.fresh(look) if found is None else found

    def _write_log(self, operation: Operation) -> list[Written]:
        return self._in_records(
            self.topic("log"), 0, lambda most: [(b"", value) for value in operation.records(most)]
        )

    def _in_records(
        self, topic: str, partition: int, records: Callable[[int], list[tuple[bytes, bytes]]]
    ) -> list[Written]:
        """Write in records as large as the broker takes them."""
        while True:
            most = self._most
            try:
                return self.broker.produce(topic, partition, records(most))
            except TooLargeError as error:
                if most <= LEAST_RECORD_BYTES:
                    raise ChannelError(
                        f"channel {self.url}: {topic} does not even take records of {most:,} bytes "
                        f"({error}). Set its max.message.bytes to at least {RECORD_BYTES:,}."
                    ) from error
                self._most = max(LEAST_RECORD_BYTES, most // 2)

    def channel_id(self) -> str:
        """Return the ID of the channel, which its first record made."""
        identity = self.log.known(lambda seen: seen.state.channel)
        if not identity:
            self.ensure_prepared(again=True)
            identity = self.log.known(lambda seen: seen.state.channel)
        return identity
