"""Channel: the durable queue between a sender and its receivers, and what a kind of it promises.

A channel keeps, for each stream, a log of manifests, the frames that they name, and *notes*: small
objects that are replaced. It moves bytes and numbers only. What a log means stands in
:mod:`spark_wan.log.stream_log`, what notes mean in :mod:`spark_wan.log.notes`.
"""

from __future__ import annotations

import os
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal, NamedTuple

PAGE = 1_000
"""Number of names in one answer of a listing, at most: what object stores return per request."""

MAX_RECORD_BYTES = 2**20
"""Size of a note, or of another small record, at most."""

_WRITE_DIGITS = 16


def new_attempt(write: str) -> str:
    """Return a name for the frames of one attempt of a task that is part of ``write``."""
    return write[:_WRITE_DIGITS] + uuid.uuid4().hex[_WRITE_DIGITS:]


def write_of(path: str) -> str:
    """Return the write that a frame is part of, by the frame's path."""
    return path.rpartition("/")[2][:_WRITE_DIGITS]


Kind = Literal["head", "again", "pause", "ack", "sender", "receiver", "refused", "heartbeat"]
BY_SITE: tuple[Kind, ...] = ("ack", "receiver", "refused", "heartbeat")
"""Kinds of which a stream, or a sender, has one note for each site."""


class Note(NamedTuple):
    """The name of a small object of a stream that is replaced as a whole."""

    kind: Kind
    """The newest epoch, an announcement, a pause, a site's ack, what the sender or a receiver says
    of itself, which events a site could not apply, or that a job is there."""
    stream: str
    """Of a heartbeat: the name of a sender."""
    site: str = ""
    """Of the kinds in :data:`BY_SITE`."""


class Version(NamedTuple):
    """What a listing tells of a note."""

    tag: str
    """Another one when the note was replaced."""
    time: float
    """When it was written, by :meth:`Channel.now`'s clock. On topics, heads and announcements have
    none."""


Notes = dict[Note, Version]


class Channel(ABC):
    """One channel, opened by URL. The constructor sends no request: errors come with the first one.

    A process has one object per channel, which all its threads share; pickled, it arrives in
    another process as the object of that process. What a kind promises, whoever else writes:

    - A frame, manifest or note is there as a whole or not at all, whatever interrupts its writer.
      Once a write has returned, every later call sees it.
    - Of several manifests appended as one epoch, exactly one is there: the first. A kind creates
      them only if absent, or reads on until it knows which was first.
    - Manifests and frames never change. :meth:`trim` deletes manifests in any order: after a crash
      in it, any of those that it is to delete may be left.
    - A listing misses nothing that was there before it began and is left alone meanwhile. What is
      written or deleted during the listing may be in it or not. :meth:`stream_epochs` is empty
      only when at some moment of the call there was nothing above ``after``.

    Every method raises ChannelError when the store does not answer or refuses the request. The
    caller retries later, so it must be safe to repeat. A write that raised may have taken effect.
    ``tests/unit/channels/test_channels.py`` is this contract as tests.
    """

    orders_appends: ClassVar[bool] = False
    """Whether :meth:`append` itself refuses a manifest that does not continue the log. Heads then
    follow from the log, and putting one does nothing."""

    def __init__(self, url: str, storage: Mapping[str, str] | None = None) -> None:
        self.url = url
        self.storage = dict(storage or {})
        self._is_prepared = False

    def __reduce__(self) -> tuple[Any, ...]:
        return opened, (type(self), self.url, self.storage)

    @abstractmethod
    def prepare(self) -> None:
        """Make the channel usable. Raises ChannelError when the place is not writable, is another
        program's, or holds a channel of another version."""

    @abstractmethod
    def is_begun(self) -> bool:
        """Whether a job has prepared the channel before. Writes nothing. Raises ChannelError as
        :meth:`prepare` does for a place that is another program's, or of another version."""

    def ensure_prepared(self, again: bool = False) -> None:
        """Call :meth:`prepare`, unless it has succeeded before. ``again``: in any case."""
        if again or not self._is_prepared:
            self._is_prepared = False
            self.prepare()
            self._is_prepared = True

    # --- frames ---------------------------------------------------------------------------------

    @abstractmethod
    def put_frame(self, stream: str, attempt: str, index: int, data: bytes) -> str:
        """Write a frame durably. Return its path, for the manifest."""

    @abstractmethod
    def get_frame(self, path: str, max_bytes: int | None = None) -> bytes:
        """Return a frame. Raises FrameError when it is missing, or larger than ``max_bytes``, which
        is found out before it is read as far as the store can tell."""

    @abstractmethod
    def is_frame_of(self, stream: str, path: str) -> bool:
        """Whether a path in a manifest can be one that :meth:`put_frame` has returned for a stream.
        The manifest may be forged, so this is asked before the path is used."""

    @abstractmethod
    def frame_time(self, path: str) -> float | None:
        """Return when a frame was written, by :meth:`now`'s clock; None when it is not there."""

    @abstractmethod
    def frames(self, stream: str, write: str | None = None) -> list[tuple[str, float]]:
        """Return path and time of the frames of a stream, or of one write of it, that
        :meth:`trim_frames` can delete; none where a kind deletes no single frames."""

    @abstractmethod
    def trim_frames(self, stream: str, paths: Iterable[str]) -> None:
        """Delete frames. One that is absent is no error. A kind may leave them to :meth:`trim`."""

    # --- logs -----------------------------------------------------------------------------------

    @abstractmethod
    def append(
        self,
        stream: str,
        epoch: int,
        manifest: bytes,
        *,
        previous: str = "",
        frames: Iterable[str] = (),
    ) -> None:
        """Add the manifest of an epoch durably. Raises ManifestExists when there is one, also when
        an earlier request of this call wrote it and its answer was lost: the caller compares.
        ``previous`` (the fingerprint of the manifest before it) and ``frames`` (their paths) are
        what it says; not all kinds need them."""

    @abstractmethod
    def manifest(self, stream: str, epoch: int) -> bytes:
        """Return the manifest of an epoch, as it was in the last listing or later. Raises
        ManifestError when it is missing."""

    @abstractmethod
    def stream_epochs(self, stream: str, after: int = 0, limit: int = PAGE) -> list[int]:
        """Return the lowest epochs above ``after`` that have a manifest, ascending: ``limit`` at
        most, up to :data:`PAGE`. One request, whatever the log's length."""

    @abstractmethod
    def entries(self) -> Iterator[tuple[str, int, int]]:
        """Yield stream, epoch and 0 for each manifest of the channel, ascending in each stream; for
        announcements by version 0.1.0, which are in the logs, the attempt in place of 0. Costs
        requests for all manifests: for reports, not for a tick."""

    def epochs(self) -> dict[str, list[int]]:
        """Return all epochs that have a manifest, ascending, by stream (:meth:`entries`)."""
        epochs: dict[str, list[int]] = {}
        for stream, epoch, attempt in self.entries():
            if not attempt:
                epochs.setdefault(stream, []).append(epoch)
        return dict(sorted(epochs.items()))

    @abstractmethod
    def trim_manifest(self, stream: str, epoch: int) -> None:
        """Delete a manifest that does not count: its writer was frozen while others extended the
        log. One that is absent is no error. A kind that ignores such manifests does nothing."""

    @abstractmethod
    def trim(self, stream: str, through: int, frames: Iterable[str]) -> None:
        """Delete the log through an epoch: first ``frames``, which its manifests name, then them.
        What is absent is no error. A later manifest is there, and stays."""

    # --- notes ----------------------------------------------------------------------------------

    @abstractmethod
    def put_note(self, note: Note, data: bytes | None) -> None:
        """Write a note, in place of the one that is there. None: delete it, if there is one; only
        acks, announcements and pauses are deleted."""

    @abstractmethod
    def note(self, note: Note) -> bytes | None:
        """Return a note, if there is one: nothing (``b""``) where it has more than
        :data:`MAX_RECORD_BYTES`, which spark_wan did not write."""

    @abstractmethod
    def notes(self, folder: Literal["heads", "acks"], stream: str | None = None) -> Notes:
        """Return the version of each head, announcement and pause, or of each ack: of all streams
        in one request (per :data:`PAGE` notes), which jobs make at every tick. ``stream``: of
        acks, those of one stream."""

    def read_acks(self, stream: str) -> dict[str, bytes]:
        """Return the acks of a stream, by site."""
        found = ((note.site, self.note(note)) for note in self.notes("acks", stream))
        return {site: data for site, data in found if data is not None}

    # --- upkeep ---------------------------------------------------------------------------------

    @abstractmethod
    def now(self) -> float:
        """Return the time by the clock that dates frames, in seconds since 1970. May cost a write,
        so call it rarely."""

    @abstractmethod
    def remove(self, stream: str) -> None:
        """Remove a stream that nobody writes any more: its log, frames and notes, the acks last. So
        it is in :meth:`epochs`, or has acks, until all of it is gone."""

    @abstractmethod
    def foreign(self) -> list[str]:
        """Return the names of what is in the channel and not spark_wan's."""

    def close(self) -> None:  # noqa: B027
        """Close connections and end their threads. The next call opens new ones; what other threads
        ask just then may raise ChannelError."""


_opened: dict[tuple[str, frozenset[tuple[str, str]]], Channel] = {}
_opening = threading.Lock()


def opened(kind: type[Channel], url: str, storage: Mapping[str, str] | None) -> Channel:
    """Return the object that this process has for a channel, and so one pool of connections."""
    with _opening:
        key = url, frozenset((storage or {}).items())
        if key not in _opened:
            _opened[key] = kind(url, storage)
        return _opened[key]


def close_channels() -> None:
    """Close the connections of all channels of this process."""
    with _opening:
        channels = [*_opened.values()]
    for channel in channels:
        channel.close()


def _forget() -> None:
    """Open channels anew in a forked process: its parent's connections and threads are not its."""
    global _opening
    _opened.clear()
    _opening = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_forget)
