"""The state of a channel as its log topic says: what its records come to, for all readers alike.

Kafka takes every record. So a record counts or not by what came before it in the topic, and by that
alone: a manifest counts when its epoch follows and ``previous`` is the fingerprint of the one
before; of rivals the first. Whoever appends reads on to its own record to learn whether it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_wan.channels.base import MAX_RECORD_BYTES
from spark_wan.channels.kafka.offsets import OffsetRanges
from spark_wan.channels.kafka.parts import MAX_STATE_BYTES, UnfinishedOperations
from spark_wan.errors import ChannelError, NewerRecordError
from spark_wan.wire import topic_log
from spark_wan.wire.manifest import MAX_MANIFEST_BYTES, fingerprint
from spark_wan.wire.records import UNREADABLE
from spark_wan.wire.topic_log import Operation, Part, read_operation
from spark_wan.wire.topic_state import (
    Epoch,
    Place,
    StreamState,
    TopicState,
    parse_path,
    places_of,
    whole,
)

FOREIGN_SHOWN = 100
"""Number of foreign records that are named, at most."""
REMEMBERED_IDS = 10_000
"""Number of operations whose verdict is kept for who waits for it."""


@dataclass
class State:
    """What the records up to some offset say."""

    channel: str = ""
    """The channel's ID."""
    streams: dict[str, StreamState] = field(default_factory=dict)
    frames: dict[str, tuple[Place, ...]] = field(default_factory=dict)
    """Path of a frame that a manifest names -> where it is, which may be elsewhere than the path
    says: it was moved."""
    floors: dict[int, int] = field(default_factory=dict)
    """Partition -> frames below this offset are deleted, or about to be."""
    dead: dict[int, OffsetRanges] = field(default_factory=dict)
    """Partition -> offsets from the floor on of frames that no manifest names any more."""

    def stream(self, name: str) -> StreamState:
        """Return a stream's state, an empty one when the channel has none."""
        return self.streams.get(name) or StreamState()

    def size(self) -> int:
        """Return how many operations it would take to write the state."""
        return 1 + sum(len(each.epochs) + 2 for each in self.streams.values())

    def apply(self, operation: Operation) -> bool:
        """Let an operation take effect. Return whether it counts."""
        if operation.channel != self.channel:
            return False
        handler = _HANDLERS.get(operation.kind)
        try:
            return handler is not None and handler(self, operation.fields, operation.payload)
        except UNREADABLE:  # of nobody's making: it counts for no reader
            return False

    def _manifest(self, fields: Mapping[str, Any], payload: bytes) -> bool:
        name, epoch, previous = str(fields["stream"]), whole(fields["epoch"]), fields["previous"]
        if len(payload) > MAX_MANIFEST_BYTES:
            return False
        paths = tuple(map(str, fields["frames"]))
        stream = self.stream(name)
        last = stream.epochs.get(stream.newest)
        if epoch != stream.newest + 1 or previous != (last.fingerprint if last else ""):
            return False
        places = {}
        for path in paths:
            parsed = parse_path(path)
            if parsed is None or path in self.frames or self._are_gone(parsed.places):
                return False
            places[path] = parsed.places
        self.frames.update(places)
        stream.epochs[epoch] = Epoch(payload, fingerprint(payload), paths)
        self.streams[name] = stream
        return True

    def _trim(self, fields: Mapping[str, Any], _: bytes) -> bool:
        stream, through = self.stream(str(fields["stream"])), whole(fields["through"])
        last = stream.epochs.get(through)
        if last is None or last.fingerprint != fields["fingerprint"] or through >= stream.newest:
            return False
        for epoch in [epoch for epoch in stream.epochs if epoch <= through]:
            for path in stream.epochs.pop(epoch).frames:
                self._bury(self.frames.pop(path, ()))
        return True

    def _discard(self, fields: Mapping[str, Any], _: bytes) -> bool:
        for path in map(str, fields["frames"]):
            parsed = parse_path(path)
            if parsed is not None:
                self._bury(self.frames.pop(path, parsed.places))
        return True

    def _announce(self, fields: Mapping[str, Any], _: bytes) -> bool:
        announced = whole(fields["epoch"]), whole(fields["attempt"])
        self._known_stream(fields).announced = announced
        return True

    def _withdraw(self, fields: Mapping[str, Any], _: bytes) -> bool:
        self._known_stream(fields).announced = None
        return True

    def _sender(self, fields: Mapping[str, Any], payload: bytes) -> bool:
        if len(payload) > MAX_RECORD_BYTES:
            return False
        self._known_stream(fields).record = payload
        return True

    def _remove(self, fields: Mapping[str, Any], _: bytes) -> bool:
        stream = self.streams.pop(str(fields["stream"]), StreamState())
        for epoch in stream.epochs.values():
            for path in epoch.frames:
                self._bury(self.frames.pop(path, ()))
        return True

    def _move(self, fields: Mapping[str, Any], _: bytes) -> bool:
        path = str(fields["path"])
        old, new = (places_of(fields[name]) for name in ("from", "to"))
        if self.frames.get(path) != old or not new or self._are_gone(new):
            return False
        self.frames[path] = new
        self._bury(old)
        return True

    def _floor(self, fields: Mapping[str, Any], _: bytes) -> bool:
        floors = dict(places_of(fields["floors"]))
        lowest = self.lowest_alive()
        for partition, offset in floors.items():
            if offset > lowest.get(partition, offset) or offset < self.floors.get(partition, 0):
                return False
        self.floors.update(floors)
        for partition, offset in floors.items():
            if partition in self.dead:
                self.dead[partition].drop_below(offset)
        return True

    def lowest_alive(self) -> dict[int, int]:
        """Return, by partition, the lowest offset of a frame that a manifest names."""
        lowest: dict[int, int] = {}
        for places in self.frames.values():
            for partition, offset in places:
                lowest[partition] = min(offset, lowest.get(partition, offset))
        return lowest

    def encode(self) -> bytes:
        """Return the state as the payload of a checkpoint; nothing when it has more than
        MAX_STATE_BYTES, so that no reader would take it."""
        dead = {partition: tuple(ranges) for partition, ranges in self.dead.items()}
        return TopicState(
            self.channel, self.streams, frames=self.frames, floors=self.floors, dead=dead
        ).encode(MAX_STATE_BYTES)

    @classmethod
    def decode(cls, data: bytes) -> State:
        """Return the state of a checkpoint. Raises NewerRecordError, and UNREADABLE errors."""
        found = TopicState.decode(data, MAX_STATE_BYTES)
        dead = {partition: OffsetRanges(ranges) for partition, ranges in found.dead.items()}
        return cls(
            found.channel,
            dict(found.streams),
            frames=dict(found.frames),
            floors=dict(found.floors),
            dead=dead,
        )

    def _known_stream(self, fields: Mapping[str, Any]) -> StreamState:
        return self.streams.setdefault(str(fields["stream"]), StreamState())

    def _are_gone(self, places: Iterable[Place]) -> bool:
        """Whether frames were deleted or discarded, or may be deleted at any moment."""
        return any(
            offset < self.floors.get(partition, 0) or offset in self.dead.get(partition, ())
            for partition, offset in places
        )

    def _bury(self, places: Iterable[Place]) -> None:
        for partition, offset in places:
            if offset >= self.floors.get(partition, 0):
                self.dead.setdefault(partition, OffsetRanges()).add(offset)


_HANDLERS: dict[str, Callable[[State, Mapping[str, Any], bytes], bool]] = {
    topic_log.MANIFEST: State._manifest,
    topic_log.TRIM: State._trim,
    topic_log.DISCARD: State._discard,
    topic_log.ANNOUNCE: State._announce,
    topic_log.WITHDRAW: State._withdraw,
    topic_log.SENDER: State._sender,
    topic_log.REMOVE: State._remove,
    topic_log.MOVE: State._move,
    topic_log.FLOOR: State._floor,
}


class SeenLog:
    """What was read of the log topic: the state of the channel, and what it takes to go on from a
    record to the next.

    A reader of a topic whose first records were deleted begins at a checkpoint: it keeps the
    operations from its ``begin`` on until the checkpoint itself has come.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.state = State()
        self.foreign: list[str] = []
        """The first records that are not spark_wan's, as ``<topic>@<offset>``."""
        self.since_checkpoint = 0
        """Number of operations since the newest checkpoint began."""
        self.checkpointed: int | None = None
        """Offset of the ``begin`` of the newest whole checkpoint."""
        self._unfinished = UnfinishedOperations()
        self._begins: dict[str, int] = {}
        self._seeking: list[tuple[int, Operation]] = []
        self._verdicts: dict[str, bool] = {}
        self.states_before: dict[str, bytes | None] = {}
        """The state before a ``begin``, by its ID, where it is asked for: None until it has come,
        nothing when it is too large."""

    @property
    def has_state(self) -> bool:
        """Whether the channel's first record, or a checkpoint, has come."""
        return bool(self.state.channel)

    def counts(self, identity: str) -> bool | None:
        """Return whether an operation counted; None: it has not come, or long ago."""
        return self._verdicts.get(identity)

    def add(self, offset: int, value: bytes) -> None:
        """Take the next record. Raises ChannelError for one of a newer spark_wan."""
        read = read_operation(value, f"{self.where}@{offset}")
        if isinstance(read, Part):
            read = self._unfinished.add(read, f"{self.where}@{offset}")
            # A ``begin`` is where others begin to read: one of several records is none.
            if read is None or read.kind == topic_log.BEGIN:
                return
        if read is None:
            if len(self.foreign) < FOREIGN_SHOWN:
                self.foreign.append(f"{self.where}@{offset}")
            return
        if read.kind == topic_log.BEGIN:
            # Here, by the records' own order: :meth:`_seek` takes operations once more, later.
            self._unfinished.void()
            if read.id not in self._begins:
                self._begins[read.id] = offset
                self.since_checkpoint = 0
        self._add_operation(offset, read)

    def _add_operation(self, offset: int, operation: Operation) -> None:
        self.since_checkpoint += 1
        if operation.kind == topic_log.CHANNEL:
            if offset == 0:
                self.state.channel = operation.id
            return
        if not self.has_state:
            self._seek(offset, operation)
            return
        if operation.kind == topic_log.BEGIN and operation.id in self.states_before:
            if self.states_before[operation.id] is None:
                self.states_before[operation.id] = self.state.encode()
        elif operation.kind == topic_log.CHECKPOINT:
            self._note_checkpoint(operation)
        counts = self.state.apply(operation)
        # A request that was repeated writes a record twice: the first one counts, the second not.
        self._verdicts[operation.id] = self._verdicts.get(operation.id, False) or counts
        while len(self._verdicts) > REMEMBERED_IDS:
            del self._verdicts[next(iter(self._verdicts))]

    def _seek(self, offset: int, operation: Operation) -> None:
        self._seeking.append((offset, operation))
        if operation.kind != topic_log.CHECKPOINT:
            return
        begin = self._begin_of(operation)
        if begin is None:
            return
        try:
            self.state = State.decode(operation.payload)
        except NewerRecordError as error:
            raise ChannelError(
                f"{self.where}@{offset}: a checkpoint {error}. Update spark_wan here."
            ) from error
        except UNREADABLE as error:
            raise ChannelError(
                f"{self.where}@{offset}: a checkpoint that cannot be read ({error}); no version of "
                "spark_wan that this one knows wrote it."
            ) from error
        behind = [each for each in self._seeking if each[0] > begin]
        self._seeking, self.since_checkpoint = [], 0
        for at, each in behind:
            self._add_operation(at, each)

    def _note_checkpoint(self, operation: Operation) -> None:
        begin = self._begin_of(operation)
        if begin is not None and operation.channel == self.state.channel:
            self.checkpointed = max(begin, self.checkpointed or 0)
            self._begins = {name: at for name, at in self._begins.items() if at >= begin}

    def _begin_of(self, checkpoint: Operation) -> int | None:
        """Return the offset of a checkpoint's ``begin``; None when that is not in the topic, or
        only once more, behind operations that the checkpoint has not."""
        begin = self._begins.get(str(checkpoint.fields.get("begin")))
        return begin if begin == checkpoint.fields.get("offset") else None
