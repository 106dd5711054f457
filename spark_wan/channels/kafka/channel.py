"""Channel on three topics of a :class:`~spark_wan.channels.kafka.broker.Broker`.

===================  =============================================================================
``<prefix>.frames``  any number of partitions. Key: ``<stream>/<attempt>-<index>/<part>``, value: a
                     part of the frame. Manifests name a frame by partition and offset
``<prefix>.log``     one partition: :mod:`spark_wan.wire.topic_log`
``<prefix>.acks``    one partition, compacted. Key: ``<stream>/<site>``, value: the ack
===================  =============================================================================

Each call that reads the log reads it to its end as of the call, one read for all threads that wait.
What was read before stays in memory, so a call costs a request or two, whatever the log's length.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from spark_wan.channels.base import MAX_RECORD_BYTES, PAGE, Channel
from spark_wan.channels.kafka.broker import (
    Broker,
    NotPermittedError,
    OutOfRangeError,
    Record,
    TooLargeError,
    TopicSettings,
    Written,
)
from spark_wan.channels.kafka.fold import Fold
from spark_wan.channels.kafka.keeper import Keeper
from spark_wan.channels.kafka.readers import AckReader, LogReader
from spark_wan.errors import (
    ChannelError,
    FrameError,
    ManifestError,
    ManifestExists,
    NotBegunError,
)
from spark_wan.wire import topic_log
from spark_wan.wire.manifest import MAX_MANIFEST_BYTES
from spark_wan.wire.topic_log import Operation
from spark_wan.wire.topic_state import Epoch, FramePath, Place, parse_path

T = TypeVar("T")

FRAME_PARTITIONS = 4
"""Number of partitions with which the topic of frames is made."""
RECORD_BYTES = 900_000
"""Size of a record, at most: brokers take 1 MiB unless they were told otherwise."""
LEAST_RECORD_BYTES = 1_024
ATTEMPTS = 5
"""How often an operation is written whose parts a checkpoint voided."""
DISCARDED_AT_ONCE = 500_000
"""Size of the paths of frames that an operation discards together, at most: one record."""

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


class TopicChannel(Channel):
    """Channel on topics. A kind says where they are: :meth:`connect` and :attr:`prefix`."""

    compares_previous = True
    prefix: str
    """Of the names of the topics."""

    def __init__(self, url: str, storage: Mapping[str, str] | None = None) -> None:
        super().__init__(url, storage)
        self._connecting = threading.Lock()
        self._broker: Broker | None = None
        self._log = LogReader(lambda: self.broker, self._topic("log"))
        self._acks = AckReader(lambda: self.broker, self._topic("acks"))
        self._most = RECORD_BYTES
        self._next_partition = itertools.count()
        self.keeper = Keeper(self)

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

    def _topic(self, part: str) -> str:
        return f"{self.prefix}.{part}"

    def prepare(self) -> None:
        """Make the topics, and write the log's first record, unless they are there.

        Raises NotBegunError when the log is empty and this user, a receiver's, may not write to it.
        """
        topics = {"frames": FRAMES, "log": LOG, "acks": ACKS}
        self.broker.prepare({self._topic(part): each for part, each in topics.items()})
        self._log.check_topic()
        self._acks.check_topic()
        if self._log.fresh(lambda fold: fold.has_state):
            return
        if self.broker.end(self._topic("log"), 0) == 0:
            self._begin()
        if not self._log.fresh(lambda fold: fold.has_state):
            raise ChannelError(
                f"channel {self.url}: the topic {self._topic('log')} has records, and the first is "
                "not spark_wan's. Give the channel a prefix of its own."
            )

    def _begin(self) -> None:
        """Write the log's first record."""
        identity = uuid.uuid4().hex
        first = Operation(topic_log.CHANNEL, identity, id=identity)
        try:
            self.broker.produce(self._topic("log"), 0, [(b"", first.encode())])
        except NotPermittedError as error:
            raise NotBegunError(
                f"channel {self.url}: no sender has begun it yet: the topic {self._topic('log')} "
                "is empty. Start the sender; a receiver goes on by itself then. (A sender that "
                f"says so lacks the permission (ACL) WRITE on {self._topic('log')}.)"
            ) from error

    # --- frames ---------------------------------------------------------------------------------

    def put_frame(self, stream: str, attempt: str, index: int, data: bytes) -> str:
        topic = self._topic("frames")
        partition = next(self._next_partition) % self.broker.partitions(topic)
        frame = FramePath(stream, f"{attempt}-{index:05d}", ())

        def write(most: int) -> list[Written]:
            starts = range(0, max(len(data), 1), most)
            pieces = [data[start : start + most] for start in starts]
            keyed = [(frame.key(part), piece) for part, piece in enumerate(pieces)]
            return self.broker.produce(topic, partition, keyed)

        written = self._in_records(topic, write)
        return str(frame._replace(places=tuple(Place(partition, each.offset) for each in written)))

    def is_frame_of(self, stream: str, path: str) -> bool:
        parsed = parse_path(path)
        return parsed is not None and parsed.stream == stream

    def get_frame(self, path: str, max_bytes: int | None = None) -> bytes:
        parsed = parse_path(path)
        if parsed is None:
            raise FrameError(f"{self.url}/{path!r}: no path of a frame on topics.")
        moved = self._log.known(lambda fold: fold.state.frames.get(path))
        data = self._frame_at(parsed, moved or parsed.places, max_bytes)
        if data is None:
            moved = self._log.fresh(lambda fold: fold.state.frames.get(path))
            data = self._frame_at(parsed, moved or parsed.places, max_bytes)
        if data is None:
            raise FrameError(
                f"{self.url}/{path}: the frame that a manifest names is not there. Its stream is "
                f"held. The records of {self._topic('frames')} were deleted (by a retention that "
                "is too short?), or the topic was made again, or is a mirror with other offsets. "
                "Receivers read the topics that the sender writes; without the frame the remote "
                "site needs a full copy."
            )
        return data

    def _frame_at(
        self, frame: FramePath, places: tuple[Place, ...], max_bytes: int | None
    ) -> bytes | None:
        """Return a frame that is at these places; None when it is not."""
        records = self._records(frame, places, max_bytes)
        return None if records is None else b"".join(record.value for record in records)

    def _records(
        self,
        frame: FramePath,
        places: tuple[Place, ...],
        max_bytes: int | None = None,
        first_part: int = 0,
    ) -> list[Record] | None:
        """Return the records of a frame from a part on, when they are at these places."""
        topic = self._topic("frames")
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
                            "written. Its stream is held; the remote site needs a full copy."
                        )
            except OutOfRangeError:
                return None
        keys = [frame.key(first_part + part) for part in range(len(places))]
        return records if [record.key for record in records] == keys else None

    def frame_time(self, path: str) -> float | None:
        parsed = parse_path(path)
        if parsed is None:
            return None
        moved = self._log.fresh(lambda fold: fold.state.frames.get(path))
        # A topic is deleted from its beginning: where the lowest record is there, all are, and none
        # is older.
        places = [*enumerate(moved or parsed.places)]
        part, lowest = min(places, key=lambda each: each[1].offset)
        records = self._records(parsed, (lowest,), first_part=part)
        return None if records is None else records[0].time

    def frames(self, stream: str, write: str | None = None) -> list[tuple[str, float]]:
        return []

    def trim_frames(self, stream: str, paths: Iterable[str]) -> None:
        """Say that frames are not needed. A topic is deleted from its beginning, by the keeper."""
        listed = [*paths]
        if listed:
            self._discard(listed)
            self.keeper.keep_in_time()

    def _discard(self, paths: Sequence[str]) -> None:
        frames: list[str] = []
        size = 0
        for path in paths:
            size += len(path)
            if frames and size > DISCARDED_AT_ONCE:
                self._do(topic_log.DISCARD, {"frames": frames})
                frames, size = [], len(path)
            frames.append(path)
        self._do(topic_log.DISCARD, {"frames": frames})

    def move_frame(self, path: str) -> None:
        """Write a frame once more, at the end of its topic, unless it was trimmed meanwhile.

        The frames behind its old place can then be deleted.
        """
        parsed = parse_path(path)
        old = self._log.fresh(lambda fold: fold.state.frames.get(path))
        if parsed is None or old is None:
            return
        attempt, _, index = parsed.name.partition("-")
        copy = parse_path(self.put_frame(parsed.stream, attempt, int(index), self.get_frame(path)))
        assert copy is not None
        # One that does not count is harmless, and so is one of which that cannot be told: another
        # keeper moved the frame, or it was trimmed. Readers find it where the log says. The copy
        # stays for a day, as all frames that no manifest names.
        self.submit(topic_log.MOVE, {"path": path, "from": old, "to": copy.places})

    # --- logs -----------------------------------------------------------------------------------

    def append(
        self,
        stream: str,
        epoch: int,
        manifest: bytes,
        previous: str = "",
        frames: Iterable[str] = (),
    ) -> None:
        if len(manifest) > MAX_MANIFEST_BYTES:
            raise ManifestError(
                f"channel {self.url}: manifest {epoch} of {stream} has {len(manifest):,} bytes; "
                f"readers take {MAX_MANIFEST_BYTES:,}. It was not written."
            )
        fields = {"stream": stream, "epoch": epoch, "previous": previous, "frames": [*frames]}
        counts = self.submit(topic_log.MANIFEST, fields, manifest)
        if counts:
            return
        there = self._log.known(lambda fold: fold.state.stream(stream).epochs.get(epoch))
        if there is not None and there.manifest == manifest:
            return
        if counts is None:
            raise ChannelError(
                f"channel {self.url}: manifest {epoch} of {stream} was written, but the log was "
                "trimmed before it could be read back; reload the log."
            )
        raise ManifestExists(
            f"channel {self.url}: manifest {epoch} of {stream} exists already, does not follow the "
            "log, or names frames that were trimmed; reload the log."
        )

    def put_head(self, stream: str, epoch: int, manifest: bytes) -> None:
        """Do nothing: heads are read from the log."""

    def head(self, stream: str) -> int:
        return self._log.fresh(lambda fold: fold.state.stream(stream).newest)

    def manifest(self, stream: str, epoch: int) -> bytes:
        def there(fold: Fold) -> Epoch | None:
            return fold.state.stream(stream).epochs.get(epoch)

        found = self._log.known(there) or self._log.fresh(there)
        if found is None:
            raise ManifestError(
                f"{self.url}: manifest {epoch} of {stream} is not there (any more)."
            )
        return found.manifest

    def stream_epochs(self, stream: str, after: int = 0, limit: int = PAGE) -> list[int]:
        def above(fold: Fold) -> list[int]:
            epochs = fold.state.stream(stream).epochs
            first = max(after + 1, next(iter(epochs), 1))
            return [*range(first, fold.state.stream(stream).newest + 1)[:limit]]

        return self._log.fresh(above)

    def trim_manifest(self, stream: str, epoch: int) -> None:
        """Do nothing: a manifest that does not count is in no answer."""

    def trim(self, stream: str, through: int, frames: Iterable[str]) -> None:
        listed = [*frames]

        def look(fold: Fold) -> tuple[Epoch | None, list[str]]:
            epochs = fold.state.stream(stream).epochs
            later = (each.frames for epoch, each in epochs.items() if epoch > through)
            named = {path for paths in later for path in paths}
            kept = [path for path in listed if path in named and path in fold.state.frames]
            return epochs.get(through), kept

        def is_trimmed(fold: Fold) -> bool:
            """Another process trimmed at the same time."""
            return next(iter(fold.state.stream(stream).epochs), through + 1) > through

        # The newest manifest stays, also where its frames are not needed any more.
        found, of_later = self._log.fresh(look)
        if of_later:
            self._discard(of_later)
        if found is not None:
            fields = {"stream": stream, "through": through, "fingerprint": found.fingerprint}
            self._do(topic_log.TRIM, fields, done=is_trimmed)
        self.keeper.keep_in_time()

    def _do(
        self,
        kind: str,
        fields: Mapping[str, object],
        payload: bytes = b"",
        done: Callable[[Fold], bool] = lambda _: False,
    ) -> None:
        """Write an operation that must count. Raises ChannelError when it does not, unless what it
        is for is ``done``, or when that cannot be told. Callers try again."""
        counts = self.submit(kind, fields, payload)
        if not counts and not self._log.known(done):
            raise ChannelError(
                f"channel {self.url}: the operation {kind!r} on {fields.get('stream', 'frames')} "
                + ("does not count" if counts is False else "was voided again and again")
                + f": the topic {self._topic('log')} was made again, or changed meanwhile. It will "
                "be tried again."
            )

    def submit(self, kind: str, fields: Mapping[str, object], payload: bytes = b"") -> bool | None:
        """Write an operation, and return whether it counts; None when that cannot be told.

        When it cannot be told whether it was written, it is read back.
        """
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
        """Return whether an operation counts; None when the log does not have it.

        ``offset``: its last record's, if it is known. The log is read no further.
        """

        def look(fold: Fold) -> bool | None:
            return fold.counts(operation.id)

        found = None if offset is None else self._log.fresh(look, offset)
        # Where the topic was made again, the offset is below what was read before.
        return self._log.fresh(look) if found is None else found

    def _write_log(self, operation: Operation) -> list[Written]:
        topic = self._topic("log")

        def write(most: int) -> list[Written]:
            records = [(b"", value) for value in operation.records(most)]
            return self.broker.produce(topic, 0, records)

        return self._in_records(topic, write)

    def _in_records(self, topic: str, write: Callable[[int], list[Written]]) -> list[Written]:
        """Write in records as large as the broker takes them."""
        while True:
            most = self._most
            try:
                return write(most)
            except TooLargeError as error:
                if most <= LEAST_RECORD_BYTES:
                    raise ChannelError(
                        f"channel {self.url}: {topic} does not even take records of {most:,} bytes "
                        f"({error}). Set its max.message.bytes to at least {RECORD_BYTES:,}."
                    ) from error
                self._most = max(LEAST_RECORD_BYTES, most // 2)

    def channel_id(self) -> str:
        """Return the ID of the channel, which its first record made."""
        identity = self._log.known(lambda fold: fold.state.channel)
        if not identity:
            self.ensure_prepared(again=True)
            identity = self._log.known(lambda fold: fold.state.channel)
        return identity

    # --- news -----------------------------------------------------------------------------------

    def heads(self, whole: bool = False) -> dict[str, str]:
        def tags(fold: Fold) -> dict[str, str]:
            return {
                name: f"{stream.newest} {stream.epochs[stream.newest].fingerprint}"
                + ("" if stream.announced is None else f"; again {stream.announced}")
                for name, stream in fold.state.streams.items()
                if stream.epochs
            }

        return self._log.fresh(tags)

    def announce(self, stream: str, epoch: int, attempt: int) -> None:
        self._do(topic_log.ANNOUNCE, {"stream": stream, "epoch": epoch, "attempt": attempt})

    def announced(self, stream: str) -> tuple[int, int] | None:
        return self._log.fresh(lambda fold: fold.state.stream(stream).announced)

    def withdraw(self, stream: str) -> None:
        if self.announced(stream) is not None:
            self._do(topic_log.WITHDRAW, {"stream": stream})

    # --- acks -----------------------------------------------------------------------------------

    def put_ack(self, stream: str, site: str, ack: bytes) -> None:
        self.broker.produce(self._topic("acks"), 0, [(f"{stream}/{site}".encode(), ack)])

    def ack(self, stream: str, site: str) -> bytes | None:
        record = self._acks.fresh().get((stream, site))
        return None if record is None else record.value

    def acks(self, stream: str) -> dict[str, bytes]:
        newest = self._acks.fresh().items()
        return {site: record.value for (name, site), record in newest if name == stream}

    def ack_tags(self, stream: str | None = None) -> dict[str, dict[str, str]]:
        tags: dict[str, dict[str, str]] = {}
        for (name, site), record in self._acks.fresh().items():
            if stream in (None, name):
                tags.setdefault(name, {})[site] = f"{record.offset} {record.time}"
        return tags

    def ack_times(self) -> dict[str, dict[str, float]]:
        times: dict[str, dict[str, float]] = {}
        for (name, site), record in self._acks.fresh().items():
            times.setdefault(name, {})[site] = record.time
        return times

    # --- senders' records -----------------------------------------------------------------------

    def put_sender_record(self, stream: str, record: bytes) -> None:
        if len(record) > MAX_RECORD_BYTES:
            raise ChannelError(
                f"channel {self.url}: the sender's record of {stream} has {len(record):,} bytes; "
                f"readers take {MAX_RECORD_BYTES:,}. It was not written."
            )
        self._do(topic_log.SENDER, {"stream": stream}, record)
        self.keeper.keep_in_time()

    def sender_record(self, stream: str) -> bytes | None:
        return self._log.fresh(lambda fold: fold.state.stream(stream).record)

    # --- upkeep ---------------------------------------------------------------------------------

    def now(self) -> float:
        operation = Operation(topic_log.CLOCK, self.channel_id())
        return self._write_log(operation)[-1].time

    def epochs(self) -> dict[str, list[int]]:
        def all_epochs(fold: Fold) -> dict[str, list[int]]:
            streams = sorted(fold.state.streams.items())
            return {name: [*stream.epochs] for name, stream in streams if stream.epochs}

        return self._log.fresh(all_epochs)

    def remove(self, stream: str) -> None:
        self._do(topic_log.REMOVE, {"stream": stream})
        acks = [
            (f"{stream}/{site}".encode(), b"") for site in self.ack_tags(stream).get(stream, {})
        ]
        if acks:
            self.broker.produce(self._topic("acks"), 0, acks)
        self.keeper.keep_in_time()

    def foreign(self) -> list[str]:
        return self._log.fresh(lambda fold: [*fold.foreign])

    def with_fold(self, look: Callable[[Fold], T]) -> T:
        """Return what ``look`` finds, at the end of the log as of this call. For the keeper."""
        return self._log.fresh(look)

    def with_known_fold(self, look: Callable[[Fold], T]) -> T:
        """Return what ``look`` finds in what was read before, without a request. For the keeper."""
        return self._log.known(look)

    def names(self) -> tuple[str, str]:
        """Return the names of the topics of frames and of the log."""
        return self._topic("frames"), self._topic("log")
