"""Channel: the durable queue between a sender and its receivers, and what a kind of it promises.

A channel keeps, for each stream, a log of manifests, the frames that they name, the newest ack of
each site, and the sender's record. It moves bytes and numbers only: :mod:`spark_wan.log.stream_log`
decides what they mean. :mod:`spark_wan.channels.objects` keeps a channel as small objects, each
with a path.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from spark_wan.wire.names import is_safe

PAGE = 1_000
"""Number of names in one answer of a listing, at most: what object stores return per request."""

MAX_RECORD_BYTES = 2**20
"""Size of an ack, a sender's record or another small record, at most."""

_WRITE_DIGITS = 16


def new_attempt(write: str) -> str:
    """Return a name for the frames of one attempt of a task that is part of ``write``."""
    return write[:_WRITE_DIGITS] + uuid.uuid4().hex[_WRITE_DIGITS:]


def write_of(path: str) -> str:
    """Return the write that a frame is part of, by the frame's path."""
    return path.rpartition("/")[2][:_WRITE_DIGITS]


class Channel(ABC):
    """One channel, opened by URL.

    ``open_channel`` constructs a kind with the URL and the options of its store (endpoint, region,
    credentials …). The constructor opens nothing, so that an error comes with the first request.
    A process has one object per channel, which all its threads share; pickled, it arrives in
    another process as the object of that process.

    What a kind promises, whoever writes at the same time:

    - A frame, manifest, ack or record is there as a whole or not at all, whatever interrupts its
      writer. Once a write has returned, every later call sees it.
    - Of several manifests appended as one epoch, exactly one is there: the first. A kind that can
      create only if absent tells the others at once, with ManifestExists. One that cannot, such as
      a topic, reads on until it knows which was first. The log is valid as a fold: a manifest
      counts when its epoch follows and its ``previous`` is the fingerprint of the one before; of
      rivals the first. :meth:`manifest` and :meth:`stream_epochs` return only those that count,
      or at least those of which :meth:`trim_manifest` was not called.
    - Manifests and frames never change. They are deleted by :meth:`trim` and its two companions
      only. In which order :meth:`trim` deletes manifests is open: while it works, and after a
      crash in it, any of those that it is to delete may be left.
    - A listing misses nothing that was there before it began and is left alone meanwhile. What is
      written or deleted during the listing may be in it or not. :meth:`stream_epochs` is empty
      only when at some moment of the call there was nothing above ``after``.
    - What :meth:`heads` costs depends neither on the number of manifests nor on that of acks.

    Every method raises ChannelError when the store does not answer or refuses the request. The
    caller retries later, so it must be safe to repeat. A write that raised may have taken effect.

    ``tests/unit/channels/test_channels.py`` is this contract as tests: add a new kind to its
    parameters.
    """

    compares_previous: ClassVar[bool] = False
    """Whether :meth:`append` itself refuses a manifest that does not continue the log."""

    def __init__(self, url: str, storage: Mapping[str, str] | None = None) -> None:
        self.url = url
        self.storage = dict(storage or {})
        self._is_prepared = False

    def __reduce__(self) -> tuple[Any, ...]:
        from spark_wan.channels.registry import open_channel  # it imports this module

        return open_channel, (self.url, self.storage)

    @abstractmethod
    def prepare(self) -> None:
        """Make the channel usable for writing, and, where a kind asks for that, for reading.

        Raises ChannelError when the place is not writable, is another program's, or holds a
        channel of another version.
        """

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

    def is_frame_of(self, stream: str, path: str) -> bool:
        """Whether a path in a manifest can be one that :meth:`put_frame` has returned for a stream.
        The manifest may be forged, so this is asked before the path is used."""
        return all(is_safe(part) for part in path.split("/"))

    @abstractmethod
    def frame_time(self, path: str) -> float | None:
        """Return when a frame was written, by :meth:`now`'s clock; None when it is not there."""

    @abstractmethod
    def frames(self, stream: str, write: str | None = None) -> list[tuple[str, float]]:
        """Return path and time of the frames of a stream that :meth:`trim_frames` can delete.

        With ``write``: only those of that write. Named by a manifest or not. A kind that cannot
        delete single frames returns none: a frame without a manifest then stays until :meth:`trim`
        passes it.
        """

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
        previous: str = "",
        frames: Iterable[str] = (),
    ) -> None:
        """Add the manifest of an epoch durably. Raises ManifestExists when there is one.

        ``previous`` is the fingerprint of the manifest before it that it names, ``frames`` are the
        paths of its frames. A kind that creates only if absent needs neither.

        ManifestExists also when an earlier request of this call wrote it and its answer was lost:
        the caller compares what is there.
        """

    @abstractmethod
    def put_head(self, stream: str, epoch: int, manifest: bytes) -> None:
        """Make :meth:`heads` show that a manifest was appended. Called right after it was.

        A hint: readers find the manifest without it, but up to some minutes later. A kind whose
        :meth:`heads` changes by the manifest itself does nothing.
        """

    @abstractmethod
    def head(self, stream: str) -> int:
        """Return the epoch of the last :meth:`put_head`, 0 without one."""

    @abstractmethod
    def manifest(self, stream: str, epoch: int) -> bytes:
        """Return the manifest of an epoch. Raises ManifestError when it is missing.

        It may be the one that the last listing saw, which was trimmed or replaced since then: who
        wants the newest lists the epochs first.
        """

    @abstractmethod
    def stream_epochs(self, stream: str, after: int = 0, limit: int = PAGE) -> list[int]:
        """Return the lowest epochs above ``after`` that have a manifest, ascending.

        At most ``limit``, which is at most :data:`PAGE`: one request, whatever the log's length.
        """

    @abstractmethod
    def trim_manifest(self, stream: str, epoch: int) -> None:
        """Delete a manifest that does not count. One that is absent is no error.

        Its writer was frozen while others extended the log. A kind that ignores such a manifest by
        itself does nothing.
        """

    @abstractmethod
    def trim(self, stream: str, through: int, frames: Iterable[str]) -> None:
        """Delete the log through an epoch: first ``frames``, then every manifest up to it.

        ``frames`` are those that these manifests name. What is absent is no error. The manifest of
        a later epoch is there, and stays.
        """

    # --- news -----------------------------------------------------------------------------------

    @abstractmethod
    def heads(self, whole: bool = False) -> dict[str, str]:
        """Return a tag for each stream that has a log.

        The tag is another one than before when a manifest was appended or announced since. It may
        also change for no reason. One request for all streams (up to :data:`PAGE` of them), which
        a receiver makes at every tick.

        ``whole``: at whatever cost, do not rely on :meth:`put_head` having been called. For a
        reader's first look.
        """

    @abstractmethod
    def announce(self, stream: str, epoch: int, attempt: int) -> None:
        """Announce again that the stream has epochs from ``epoch`` on. ``attempt`` is from 1.

        Replaces the announcement before it.
        """

    @abstractmethod
    def announced(self, stream: str) -> tuple[int, int] | None:
        """Return epoch and attempt of the stream's announcement, if there is one."""

    @abstractmethod
    def withdraw(self, stream: str) -> None:
        """Delete the stream's announcement, once it is answered."""

    # --- acks -----------------------------------------------------------------------------------

    @abstractmethod
    def put_ack(self, stream: str, site: str, ack: bytes) -> None:
        """Write a site's ack; it replaces the one before."""

    @abstractmethod
    def ack(self, stream: str, site: str) -> bytes | None:
        """Return the newest ack of a site for a stream, if there is one."""

    @abstractmethod
    def ack_tags(self, stream: str | None = None) -> dict[str, dict[str, str]]:
        """Return a tag for each ack, by stream and site: another one when the ack was replaced.

        Of all streams in one request (up to :data:`PAGE` acks), which a sender makes at every
        tick; or of one stream.
        """

    @abstractmethod
    def ack_times(self) -> dict[str, dict[str, float]]:
        """Return when each ack was written, by stream and site, by :meth:`now`'s clock.

        Of all streams in one request (up to :data:`PAGE` acks): for reports.
        """

    # --- senders' records -----------------------------------------------------------------------

    @abstractmethod
    def put_sender_record(self, stream: str, record: bytes) -> None:
        """Write what the sender of a stream says of itself; it replaces the record before.

        For reports: neither senders nor receivers decide anything by it.
        """

    @abstractmethod
    def sender_record(self, stream: str) -> bytes | None:
        """Return the record of the sender of a stream, if there is one."""

    # --- upkeep ---------------------------------------------------------------------------------

    @abstractmethod
    def now(self) -> float:
        """Return the time by the clock that dates frames, in seconds since 1970.

        May cost a write, so call it rarely.
        """

    @abstractmethod
    def epochs(self) -> dict[str, list[int]]:
        """Return all epochs that have a manifest, ascending, by stream.

        Costs requests for all manifests: for reports, not for a tick.
        """

    @abstractmethod
    def remove(self, stream: str) -> None:
        """Remove a stream that nobody writes any more: its log, frames, acks and records.

        The acks last of all: a stream that was removed in part is in :meth:`epochs` or
        :meth:`ack_tags` until all of it is gone.
        """

    @abstractmethod
    def foreign(self) -> list[str]:
        """Return the names of what is in the channel and not spark_wan's."""

    def close(self) -> None:  # noqa: B027
        """Close connections that would stay open, and end their threads.

        Nothing to do for a kind without. The next call opens new ones, so others may use the
        channel meanwhile; what they ask just then may raise ChannelError.
        """

    # --- what every channel does with them ------------------------------------------------------

    def acks(self, stream: str) -> dict[str, bytes]:
        """Return the newest ack of every site for a stream."""
        sites = self.ack_tags(stream).get(stream, {})
        found = ((site, self.ack(stream, site)) for site in sites)
        return {site: ack for site, ack in found if ack is not None}
