"""Channel as a set of small objects, each with a path. Layout below the channel's root::

    wan-channel.json                            says what this is, and its version
    log/<stream>/<epoch, 20 digits>.json        manifests, created only if absent
    heads/<stream>.json                         changes with every manifest of the stream
    heads/<stream>.again                        epochs were announced again
    frames/<stream>/<attempt>-<index>.frame     frames; only a manifest makes them count
    acks/<stream>/<site>.json                   the newest ack of each site
    senders/<stream>.json                       the sender's record
    wan-writable, wan-clock-<32 hex digits>     probes: there for a moment, or left by a crash

``<attempt>`` is 32 hexadecimal digits: the first 16 name the write, the others one attempt of one
of its tasks. Heads and announcements (:mod:`spark_wan.wire.head`) are hints. The manifests alone
are the log.

Version 0.1.0 wrote no heads, and announced with files ``log/<stream>/<epoch>.again.<n>``. Their
readers list ``log/``, and so does :meth:`ObjectChannel.heads` while a stream has no head, or one
that its log has left behind.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from spark_wan.channels.base import MAX_RECORD_BYTES, PAGE, Channel
from spark_wan.errors import (
    ChannelError,
    FrameError,
    ManifestError,
    ManifestExists,
    NewerRecordError,
)
from spark_wan.wire.head import MARKER, Announcement, Head, check_marker
from spark_wan.wire.manifest import MAX_MANIFEST_BYTES
from spark_wan.wire.names import is_safe
from spark_wan.wire.records import UNREADABLE

MARKER_PATH = "wan-channel.json"
WHOLE_LISTING_INTERVAL = 300.0
"""Seconds after which :meth:`ObjectChannel.heads` lists the logs too: a writer may have died
between a manifest and its head, or be of a version that writes none."""

_MANIFEST = re.compile(r"log/([^/]+)/(\d{20})\.json")
_AGAIN_0_1_0 = re.compile(r"log/([^/]+)/(\d{20})\.again\.(\d+)")
_IN_LOG = re.compile(r"log/[^/]+/(\d{20})\.(?:json|again\.\d+)")
_HEAD = re.compile(r"heads/([^/]+)\.json")
_AGAIN = re.compile(r"heads/([^/]+)\.again")
_FRAME = re.compile(r"frames/[^/]+/[0-9a-f]+-\d+\.frame")
_FRAME_NAME = re.compile(r"[0-9a-f]{1,64}-[0-9]{1,20}\.frame")
_ACK = re.compile(r"acks/([^/]+)/([^/]+)\.json")
_SENDER = re.compile(r"senders/[^/]+\.json")
_PROBE = re.compile("wan-(?:writable|clock-[0-9a-f]{32})")
_KNOWN = (_MANIFEST, _AGAIN_0_1_0, _HEAD, _AGAIN, _FRAME, _ACK, _SENDER, _PROBE)


class TooLargeError(Exception):
    """An object is larger than what it is read for. Never leaves this package."""

    def __init__(self, size: int, max_bytes: int) -> None:
        super().__init__(f"{size:,} bytes, not {max_bytes:,}")


class StoredObject(NamedTuple):
    """An object as a listing shows it."""

    path: str
    time: float
    """When it was written, by the store's clock, in seconds since 1970."""
    tag: str
    """Another one when the object was replaced by one with other content."""


class ObjectChannel(Channel):
    """Channel of objects. A store implements the abstract methods below.

    Paths are relative, with ``/`` between their parts. A store guarantees what :class:`Channel`
    says of whole writes and listings, and that :meth:`create` is atomic: of several writers, in any
    process, exactly one gets True.
    """

    clock = staticmethod(time.monotonic)
    """Seconds; decides when the logs are listed as a whole."""

    def __init__(self, url: str, storage: Mapping[str, str] | None = None) -> None:
        super().__init__(url, storage)
        self._lock = threading.Lock()
        self._listed_at: float | None = None
        """When the logs were last listed as a whole."""
        self._seen: dict[str, tuple[str, str]] = {}
        """Stream -> tag of its head and end of its log, in that listing."""
        self._behind: set[str] = set()
        """Streams without a head, or whose log has moved on without it."""
        self._ended: dict[str, str] = {}
        """Streams without manifests -> tag of the head that is left."""

    # --- what a store implements ----------------------------------------------------------------

    @abstractmethod
    def create(self, path: str, data: bytes) -> bool:
        """Write an object only if it is absent. Return whether this call wrote it.

        Called for manifests and the marker. False also when an earlier request of this call wrote
        it and its answer was lost.
        """

    @abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """Write an object; replace one that is there."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Return an object. Raises FileNotFoundError when there is none."""

    @abstractmethod
    def stat(self, path: str) -> StoredObject:
        """Return what a listing says of an object. Raises FileNotFoundError."""

    @abstractmethod
    def list_objects(self, prefix: str) -> list[StoredObject]:
        """Return all objects below ``prefix``, sorted by path.

        ``prefix`` ends with ``/``, or is empty for the whole channel.
        """

    @abstractmethod
    def list_paths(self, prefix: str, after: str = "", limit: int | None = None) -> list[str]:
        """Return the paths below ``prefix``, sorted: those above ``after``, the first ``limit``.

        None: all of them. With a limit up to :data:`PAGE`, it is one request.
        """

    @abstractmethod
    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects, in any order, with as few requests as the store allows. One that is
        absent is no error."""

    def read_up_to(self, path: str, max_bytes: int | None) -> bytes:
        """Return an object like :meth:`read`. Raises TooLargeError for one of more bytes; a store
        that tells the size first does not read it then."""
        data = self.read(path)
        if max_bytes is not None and len(data) > max_bytes:
            raise TooLargeError(len(data), max_bytes)
        return data

    # --- the channel ----------------------------------------------------------------------------

    def prepare(self) -> None:
        try:
            if not self.create(MARKER_PATH, MARKER):
                check_marker(self.read_up_to(MARKER_PATH, MAX_RECORD_BYTES))
        except NewerRecordError as error:
            raise ChannelError(
                f"channel {self.url}: it was {error}. Update spark_wan here."
            ) from error
        except FileNotFoundError as error:
            raise ChannelError(
                f"channel {self.url}: {MARKER_PATH} exists but cannot be read ({error}): it is a "
                "broken link, or was deleted at this moment. Try again."
            ) from error
        except (TooLargeError, *UNREADABLE) as error:
            raise ChannelError(
                f"channel {self.url}: {MARKER_PATH} was not written by spark_wan, or is damaged. "
                "If spark_wan uses this channel, delete that file: it is written again. Otherwise "
                "give the channel a place of its own."
            ) from error
        # A directory that is readable but not writable fails here, not in the middle of an epoch.
        self.put("wan-writable", b"")
        self.delete(["wan-writable"])

    def put_frame(self, stream: str, attempt: str, index: int, data: bytes) -> str:
        path = f"frames/{stream}/{attempt}-{index:05d}.frame"
        self.put(path, data)
        return path

    def is_frame_of(self, stream: str, path: str) -> bool:
        folder = f"frames/{stream}/"
        return path.startswith(folder) and _FRAME_NAME.fullmatch(path, len(folder)) is not None

    def get_frame(self, path: str, max_bytes: int | None = None) -> bytes:
        try:
            return self.read_up_to(path, max_bytes)
        except TooLargeError as error:
            raise FrameError(
                f"{self.url}/{path}: the object is larger than its manifest says ({error}). It was "
                "not read: it is not the frame that was written. Its stream is held. Restore the "
                "object from a backup or another version of it; without it the remote site needs a "
                "full copy."
            ) from None
        except FileNotFoundError as error:
            raise FrameError(
                f"{self.url}/{path}: the frame that a manifest names is not there. Its stream is "
                "held. Restore the object from a backup or another version of it; without it the "
                "remote site needs a full copy."
            ) from error

    def frame_time(self, path: str) -> float | None:
        try:
            return self.stat(path).time
        except FileNotFoundError:
            return None

    def frames(self, stream: str, write: str | None = None) -> list[tuple[str, float]]:
        folder = f"frames/{stream}/"
        if write is None:
            return [(path, written) for path, written, _ in self.list_objects(folder)]
        paths = self._pages(folder, folder + write, folder + write + "~")
        times = ((path, self.frame_time(path)) for path in paths)
        return [(path, written) for path, written in times if written is not None]

    def trim_frames(self, stream: str, paths: Iterable[str]) -> None:
        self.delete(paths)

    def append(
        self,
        stream: str,
        epoch: int,
        manifest: bytes,
        previous: str = "",
        frames: Iterable[str] = (),
    ) -> None:
        if not self.create(_manifest_path(stream, epoch), manifest):
            raise ManifestExists(
                f"channel {self.url}: manifest {epoch} of {stream} exists already; reload the log."
            )

    def put_head(self, stream: str, epoch: int, manifest: bytes) -> None:
        self.put(f"heads/{stream}.json", Head.by(epoch, manifest).encode())

    def head(self, stream: str) -> int:
        head = Head.of(self._hint(f"heads/{stream}.json"))
        return 0 if head is None else head.epoch

    def manifest(self, stream: str, epoch: int) -> bytes:
        path = _manifest_path(stream, epoch)
        try:
            return self.read_up_to(path, MAX_MANIFEST_BYTES)
        except TooLargeError as error:
            raise ManifestError(
                f"{self.url}/{path}: too large for a manifest ({error}), so it was not read: "
                "spark_wan did not write it. Its stream is held. Restore the object from a backup "
                "or another version of it."
            ) from None
        except FileNotFoundError as error:
            raise ManifestError(
                f"{self.url}/{path}: the manifest is not there (any more)."
            ) from error

    def stream_epochs(self, stream: str, after: int = 0, limit: int = PAGE) -> list[int]:
        epochs: list[int] = []
        last = _manifest_path(stream, after)
        while True:
            # Files that are no manifests may take a part of the page.
            page = self.list_paths(f"log/{stream}/", last, limit)
            epochs += [int(match[2]) for path in page if (match := _MANIFEST.fullmatch(path))]
            if len(epochs) >= limit or len(page) < limit:
                return epochs[:limit]
            last = page[-1]

    def trim_manifest(self, stream: str, epoch: int) -> None:
        self.delete([_manifest_path(stream, epoch)])

    def trim(self, stream: str, through: int, frames: Iterable[str]) -> None:
        self.delete(frames)
        # By a listing: with strays, and with announcements of version 0.1.0.
        below = self._pages(f"log/{stream}/", "", _manifest_path(stream, through) + "~")
        self.delete([path for path in below if _IN_LOG.fullmatch(path)])

    def heads(self, whole: bool = False) -> dict[str, str]:
        with self._lock:
            now, heads, again = self.clock(), dict[str, str](), dict[str, str]()
            for path, written, tag in self.list_objects("heads/"):
                if match := _HEAD.fullmatch(path):
                    heads[match[1]] = f"{tag} {written:.3f}"
                elif match := _AGAIN.fullmatch(path):
                    again[match[1]] = f"{tag} {written:.3f}"
            age = None if self._listed_at is None else now - self._listed_at
            recent = age is not None and 0 <= age < WHOLE_LISTING_INTERVAL
            logs: dict[str, str] = {}
            if whole or self._behind or not recent:
                # After the heads: an append in between makes a log look ahead of its head, once.
                # The other way round, it would do so until the next append.
                logs = self._ends_of_logs()
                self._compare(heads, logs)
                self._listed_at = now
            ended = {stream: tag for stream, tag in self._ended.items() if heads.get(stream) == tag}
            self._ended = ended
            tags = {stream: tag for stream, tag in heads.items() if stream not in ended}
            for stream in self._behind:
                tags[stream] = f"{heads.get(stream, '')}; log {logs[stream]}"
            return {
                stream: f"{tag}; again {again[stream]}" if stream in again else tag
                for stream, tag in tags.items()
            }

    def _compare(self, heads: Mapping[str, str], logs: Mapping[str, str]) -> None:
        """Find the streams that have no head, whose log has moved on without it, or is deleted."""
        seen, self._seen = self._seen, {s: (heads.get(s, ""), end) for s, end in logs.items()}
        self._behind = {
            stream
            for stream, (head, end) in self._seen.items()
            if not head
            or (
                stream in seen
                and seen[stream][0] == head
                and (seen[stream][1] != end or stream in self._behind)
            )
        }
        self._ended = {stream: tag for stream, tag in heads.items() if stream not in logs}

    def _ends_of_logs(self) -> dict[str, str]:
        """Return, for each stream with a manifest, its newest epoch and newest announcement of
        version 0.1.0, by a listing of all logs."""
        newest: dict[str, int] = {}
        again: dict[str, tuple[int, int]] = {}
        for path in self.list_paths("log/"):
            if match := _MANIFEST.fullmatch(path):
                newest[match[1]] = int(match[2])
            elif match := _AGAIN_0_1_0.fullmatch(path):
                announced = int(match[2]), int(match[3])
                again[match[1]] = max(announced, again.get(match[1], announced))
        return {stream: f"{epoch} {again.get(stream)}" for stream, epoch in newest.items()}

    def announce(self, stream: str, epoch: int, attempt: int) -> None:
        self.put(f"heads/{stream}.again", Announcement(epoch, attempt).encode())

    def announced(self, stream: str) -> tuple[int, int] | None:
        again = Announcement.of(self._hint(f"heads/{stream}.again"))
        if again is not None:
            return again.epoch, again.attempt
        if stream not in self._behind:
            return None
        matches = (_AGAIN_0_1_0.fullmatch(path) for path in self.list_paths(f"log/{stream}/"))
        return max(((int(match[2]), int(match[3])) for match in matches if match), default=None)

    def withdraw(self, stream: str) -> None:
        self.delete([f"heads/{stream}.again"])

    def put_ack(self, stream: str, site: str, ack: bytes) -> None:
        self.put(f"acks/{stream}/{site}.json", ack)

    def ack(self, stream: str, site: str) -> bytes | None:
        try:
            return self.read_up_to(f"acks/{stream}/{site}.json", MAX_RECORD_BYTES)
        except FileNotFoundError:
            return None
        except TooLargeError:
            return b""  # no site wrote it: an ack that cannot be read is none

    def ack_tags(self, stream: str | None = None) -> dict[str, dict[str, str]]:
        tags: dict[str, dict[str, str]] = {}
        for path, written, tag in self.list_objects(
            "acks/" if stream is None else f"acks/{stream}/"
        ):
            if (match := _ACK.fullmatch(path)) and is_safe(match[2]):
                tags.setdefault(match[1], {})[match[2]] = f"{tag} {written:.3f}"
        return tags

    def ack_times(self) -> dict[str, dict[str, float]]:
        times: dict[str, dict[str, float]] = {}
        for path, written, _ in self.list_objects("acks/"):
            if (match := _ACK.fullmatch(path)) and is_safe(match[2]):
                times.setdefault(match[1], {})[match[2]] = written
        return times

    def put_sender_record(self, stream: str, record: bytes) -> None:
        self.put(f"senders/{stream}.json", record)

    def sender_record(self, stream: str) -> bytes | None:
        try:
            return self.read_up_to(f"senders/{stream}.json", MAX_RECORD_BYTES)
        except FileNotFoundError:
            return None
        except TooLargeError:
            return b""

    def now(self) -> float:
        path = f"wan-clock-{uuid.uuid4().hex}"
        self.put(path, b"")
        try:
            return self.stat(path).time
        finally:
            self.delete([path])

    def epochs(self) -> dict[str, list[int]]:
        epochs: dict[str, list[int]] = {}
        for path in self.list_paths("log/"):
            if match := _MANIFEST.fullmatch(path):
                epochs.setdefault(match[1], []).append(int(match[2]))
        return dict(sorted(epochs.items()))

    def remove(self, stream: str) -> None:
        records = (f"heads/{stream}.json", f"heads/{stream}.again", f"senders/{stream}.json")
        self.delete(records)
        for folder in ("log", "frames", "acks"):
            paths = self.list_paths(f"{folder}/{stream}/")
            # Of a log, the oldest first: what is left always ends where it did.
            self.delete(sorted(paths))

    def foreign(self) -> list[str]:
        return [
            path
            for path, _, _ in self.list_objects("")
            if path != MARKER_PATH and not any(form.fullmatch(path) for form in _KNOWN)
        ]

    def _pages(self, folder: str, after: str, before: str) -> Iterator[str]:
        """Yield the paths of a folder between two others, page by page."""
        while True:
            page = self.list_paths(folder, after, PAGE)
            yield from (path for path in page if path < before)
            if len(page) < PAGE or page[-1] >= before:
                return
            after = page[-1]

    def _hint(self, path: str) -> bytes:
        """Return a head or an announcement; nothing when there is none of a possible size."""
        with suppress(FileNotFoundError, TooLargeError):
            return self.read_up_to(path, MAX_RECORD_BYTES)
        return b""


def _manifest_path(stream: str, epoch: int) -> str:
    return f"log/{stream}/{epoch:020d}.json"
