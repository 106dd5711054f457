"""Channel on topics: what the contract of a channel means on those of
:mod:`spark_wan.channels.kafka.topics`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from spark_wan.channels.base import BY_SITE, MAX_RECORD_BYTES, PAGE, Note, Notes, Version
from spark_wan.channels.kafka.keeper import Keeper
from spark_wan.channels.kafka.readers import ack_key
from spark_wan.channels.kafka.seen_log import SeenLog
from spark_wan.channels.kafka.topics import Topics
from spark_wan.errors import ChannelError, ManifestError, ManifestExists
from spark_wan.wire import topic_log
from spark_wan.wire.head import Announcement, Head
from spark_wan.wire.topic_log import Operation
from spark_wan.wire.topic_state import Epoch, parse_path

DISCARDED_AT_ONCE = 500_000
"""Size of the paths of frames that an operation discards together, at most: one record."""

_AMONG_ACKS = (*BY_SITE, "pause")
"""Kinds of notes that the topic of acks has: those that several processes write."""


class TopicChannel(Topics):
    """Channel on topics, whose keeper deletes what no reader needs any more."""

    orders_appends = True

    def __init__(self, url: str, storage: Mapping[str, str] | None = None) -> None:
        super().__init__(url, storage)
        self.keeper = Keeper(self)

    # --- frames ---------------------------------------------------------------------------------

    def is_frame_of(self, stream: str, path: str) -> bool:
        parsed = parse_path(path)
        return parsed is not None and parsed.stream == stream

    def frame_time(self, path: str) -> float | None:
        parsed = parse_path(path)
        if parsed is None:
            return None
        moved = self.log.fresh(lambda seen: seen.state.frames.get(path))
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

    # --- logs -----------------------------------------------------------------------------------

    def append(
        self,
        stream: str,
        epoch: int,
        manifest: bytes,
        *,
        previous: str = "",
        frames: Iterable[str] = (),
    ) -> None:
        fields = {"stream": stream, "epoch": epoch, "previous": previous, "frames": [*frames]}
        counts = self.submit(topic_log.MANIFEST, fields, manifest)
        if counts:
            return
        there = self.log.known(lambda seen: seen.state.stream(stream).epochs.get(epoch))
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

    def manifest(self, stream: str, epoch: int) -> bytes:
        def there(seen: SeenLog) -> Epoch | None:
            return seen.state.stream(stream).epochs.get(epoch)

        found = self.log.known(there) or self.log.fresh(there)
        if found is None:
            raise ManifestError(
                f"{self.url}: manifest {epoch} of {stream} is not there (any more)."
            )
        return found.manifest

    def stream_epochs(self, stream: str, after: int = 0, limit: int = PAGE) -> list[int]:
        def above(seen: SeenLog) -> list[int]:
            epochs = seen.state.stream(stream).epochs
            first = max(after + 1, next(iter(epochs), 1))
            return [*range(first, seen.state.stream(stream).newest + 1)[:limit]]

        return self.log.fresh(above)

    def entries(self) -> Iterator[tuple[str, int, int]]:
        def epochs(seen: SeenLog) -> list[tuple[str, int, int]]:
            streams = seen.state.streams.items()
            return [(name, epoch, 0) for name, stream in streams for epoch in stream.epochs]

        yield from self.log.fresh(epochs)

    def trim_manifest(self, stream: str, epoch: int) -> None:
        """Do nothing: a manifest that does not count is in no answer."""

    def trim(self, stream: str, through: int, frames: Iterable[str]) -> None:
        listed = [*frames]

        def look(seen: SeenLog) -> tuple[Epoch | None, list[str]]:
            epochs = seen.state.stream(stream).epochs
            later = (each.frames for epoch, each in epochs.items() if epoch > through)
            named = {path for paths in later for path in paths}
            kept = [path for path in listed if path in named and path in seen.state.frames]
            return epochs.get(through), kept

        def is_trimmed(seen: SeenLog) -> bool:
            """Another process trimmed at the same time."""
            return next(iter(seen.state.stream(stream).epochs), through + 1) > through

        # The newest manifest stays, also where its frames are not needed any more.
        found, of_later = self.log.fresh(look)
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
        done: Callable[[SeenLog], bool] = lambda _: False,
    ) -> None:
        """Write an operation that must count. Raises ChannelError when it does not, unless what it
        is for is ``done``, or when that cannot be told. Callers try again."""
        counts = self.submit(kind, fields, payload)
        if not counts and not self.log.known(done):
            raise ChannelError(
                f"channel {self.url}: the operation {kind!r} on {fields.get('stream', 'frames')} "
                + ("does not count" if counts is False else "was voided again and again")
                + f": the topic {self.topic('log')} was made again, or changed meanwhile. It will "
                "be tried again."
            )

    # --- notes ----------------------------------------------------------------------------------

    def put_note(self, note: Note, data: bytes | None) -> None:
        if note.kind == "head":
            return  # read from the log
        if note.kind in _AMONG_ACKS:
            self._put_acks({note: data})
        elif note.kind == "sender":
            self._put_sender_record(note.stream, data or b"")
        elif (again := Announcement.of(data)) is not None:
            fields = {"stream": note.stream, "epoch": again.epoch, "attempt": again.attempt}
            self._do(topic_log.ANNOUNCE, fields)
        elif self.note(note) is not None:
            self._do(topic_log.WITHDRAW, {"stream": note.stream})

    def _put_acks(self, acks: Mapping[Note, bytes | None]) -> None:
        keyed = [(ack_key(note), ack or b"") for note, ack in acks.items()]
        self.broker.produce(self.topic("acks"), 0, keyed)

    def _put_sender_record(self, stream: str, record: bytes) -> None:
        if len(record) > MAX_RECORD_BYTES:
            raise ChannelError(
                f"channel {self.url}: the sender's record of {stream} has {len(record):,} bytes; "
                f"readers take {MAX_RECORD_BYTES:,}. It was not written."
            )
        self._do(topic_log.SENDER, {"stream": stream}, record)
        self.keeper.keep_in_time()

    def note(self, note: Note) -> bytes | None:
        if note.kind in _AMONG_ACKS:
            record = self._acks.fresh().get(note)
            return None if record is None else record.value

        def look(seen: SeenLog) -> bytes | None:
            stream = seen.state.stream(note.stream)
            if note.kind == "sender":
                return stream.record
            if note.kind == "again":
                again = stream.announced
                return None if again is None else Announcement(*again).encode()
            newest = stream.newest
            return Head(newest, stream.epochs[newest].fingerprint).encode() if newest else None

        return self.log.fresh(look)

    def notes(self, folder: Literal["heads", "acks"], stream: str | None = None) -> Notes:
        if folder == "acks":
            return {
                note: Version(f"{record.offset} {record.time}", record.time)
                for note, record in self._acks.fresh().items()
                if note.kind == "ack" and stream in (None, note.stream)
            }

        def heads(seen: SeenLog) -> Notes:
            notes = Notes()
            for name, state in seen.state.streams.items():
                if state.epochs:
                    tag = f"{state.newest} {state.epochs[state.newest].fingerprint}"
                    notes[Note("head", name)] = Version(tag, 0.0)
                    if state.announced is not None:
                        notes[Note("again", name)] = Version(f"{state.announced}", 0.0)
            return notes

        found = self.log.fresh(heads)
        # After the heads: what is appended to a paused stream in between shows with its pause.
        pauses = {
            note: Version(f"{record.offset} {record.time}", record.time)
            for note, record in self._acks.fresh().items()
            if note.kind == "pause"
        }
        return {**found, **pauses}

    def read_acks(self, stream: str) -> dict[str, bytes]:
        return {
            note.site: record.value
            for note, record in self._acks.fresh().items()  # one read for all of them
            if (note.kind, note.stream) == ("ack", stream)
        }

    # --- upkeep ---------------------------------------------------------------------------------

    def now(self) -> float:
        operation = Operation(topic_log.CLOCK, self.channel_id())
        return self._write_log(operation)[-1].time

    def remove(self, stream: str) -> None:
        self._do(topic_log.REMOVE, {"stream": stream})
        notes = [note for note in self._acks.fresh() if note.stream == stream]
        if notes:
            self._put_acks(dict.fromkeys(notes))
        self.keeper.keep_in_time()

    def foreign(self) -> list[str]:
        return self.log.fresh(lambda seen: [*seen.foreign])
