"""Channel as a set of small objects, each with a path. Layout below the channel's root::

    wan-channel.json                            says what this is, and its version
    log/<stream>/<epoch, 20 digits>.json        manifests, created only if absent
    heads/<stream>.json                         changes with every manifest of the stream
    heads/<stream>.again                        epochs were announced again
    heads/<stream>.pause                        nothing of it is to be delivered
    frames/<stream>/<attempt>-<index>.frame     frames; only a manifest makes them count
    acks/<stream>/<site>.json                   the newest ack of each site
    senders/<stream>.json                       the sender's record
    receivers/<stream>/<site>.json              the receiver's record
    refused/<stream>/<site>.json                events that a site could not apply
    heartbeats/<sender>/<site>.json             that a job is there
    wan-writable, wan-clock-<32 hex digits>     probes: there for a moment, or left by a crash

``<attempt>`` is 32 hexadecimal digits: the first 16 name the write, the others one attempt of one
of its tasks. The manifests alone are the log. Version 0.1.0 wrote no heads, and announced with
files ``log/<stream>/<epoch>.again.<n>`` (:mod:`spark_wan.log.heads`).
"""

from __future__ import annotations

import re
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Literal, NamedTuple

from spark_wan.channels.base import (
    BY_SITE,
    MAX_RECORD_BYTES,
    PAGE,
    Channel,
    Kind,
    Note,
    Notes,
    Version,
)
from spark_wan.errors import (
    EPOCHS,
    ChannelError,
    FrameError,
    ManifestError,
    ManifestExists,
    NewerRecordError,
    is_disk_full,
)
from spark_wan.wire.head import MARKER, check_marker
from spark_wan.wire.manifest import MAX_MANIFEST_BYTES
from spark_wan.wire.names import is_safe
from spark_wan.wire.records import UNREADABLE

MARKER_PATH = "wan-channel.json"

_MANIFEST = re.compile(r"log/([^/]+)/(\d{20})\.json")
_AGAIN_0_1_0 = re.compile(r"log/([^/]+)/(\d{20})\.again\.(\d+)")
_IN_LOG = re.compile(r"log/[^/]+/(\d{20})\.(?:json|again\.\d+)")
_NOTES: dict[Kind, str] = {
    "head": "heads/{}.json",
    "again": "heads/{}.again",
    "pause": "heads/{}.pause",
    "ack": "acks/{}/{}.json",
    "sender": "senders/{}.json",
    "receiver": "receivers/{}/{}.json",
    "refused": "refused/{}/{}.json",
    "heartbeat": "heartbeats/{}/{}.json",
}
_NOTE = {
    kind: re.compile(re.escape(path).replace(r"\{\}", "([^/]+)")) for kind, path in _NOTES.items()
}
_FRAME = re.compile(r"frames/[^/]+/[0-9a-f]+-\d+\.frame")
_FRAME_NAME = re.compile(r"[0-9a-f]{1,64}-[0-9]{1,20}\.frame")
_PROBE = re.compile("wan-(?:writable|clock-[0-9a-f]{32})")
_KNOWN = (_MANIFEST, _AGAIN_0_1_0, *_NOTE.values(), _FRAME, _PROBE)


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

    Paths are relative, with ``/`` between their parts. :meth:`create` is atomic: of several
    writers, in any process, exactly one gets True.
    """

    # --- what a store implements ----------------------------------------------------------------

    @abstractmethod
    def create(self, path: str, data: bytes) -> bool:
        """Write an object only if it is absent. Return whether this call wrote it: False also when
        an earlier request of this call did, and its answer was lost."""

    @abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """Write an object; replace one that is there."""

    @abstractmethod
    def read(self, path: str, max_bytes: int | None = None) -> bytes:
        """Return an object. Raises FileNotFoundError when there is none, and TooLargeError for one
        of more bytes: a store that tells the size first does not read it then."""

    @abstractmethod
    def stat(self, path: str) -> StoredObject:
        """Return what a listing says of an object. Raises FileNotFoundError."""

    @abstractmethod
    def list_objects(self, prefix: str) -> list[StoredObject]:
        """Return the objects below ``prefix``, which ends with ``/`` or is empty, by path."""

    @abstractmethod
    def list_paths(self, prefix: str, after: str = "", limit: int | None = None) -> list[str]:
        """Return the paths below ``prefix`` and above ``after``, sorted: the first ``limit`` in one
        request (up to :data:`PAGE`), or all."""

    @abstractmethod
    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects, in any order. One that is absent is no error."""

    # --- the channel ----------------------------------------------------------------------------

    def prepare(self) -> None:
        if not self._create_marker():
            self._check_marker(self._marker)
        # A directory that is readable but not writable fails here, not in the middle of an epoch.
        self.probe()

    def is_begun(self) -> bool:
        def marker() -> bytes | None:
            with suppress(FileNotFoundError):
                return self._marker()
            return None

        return self._check_marker(marker)

    def probe(self) -> None:
        """Write and delete ``wan-writable``. Raises ChannelError when that is refused, unless the
        disk is full."""
        try:
            self.put("wan-writable", b"")
        except ChannelError as error:
            if not is_disk_full(error):
                raise
        self.delete(["wan-writable"])

    def _create_marker(self) -> bool:
        """Write the marker if there is none, and return whether this call did. Where a disk is full
        that has one, this succeeds: a job that starts collects acks and trims, which makes room and
        needs none."""
        try:
            return self.create(MARKER_PATH, MARKER)
        except ChannelError as error:
            if not is_disk_full(error):
                raise
            with suppress(FileNotFoundError):
                self._marker()
                return False
            raise

    def _marker(self) -> bytes:
        return self.read(MARKER_PATH, MAX_RECORD_BYTES)

    def _check_marker(self, read: Callable[[], bytes | None]) -> bool:
        """Return whether there is a marker. Raises ChannelError for one that is not this
        program's, or of another version."""
        try:
            marker = read()
            if marker is not None:
                check_marker(marker)
            return marker is not None
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

    def put_frame(self, stream: str, attempt: str, index: int, data: bytes) -> str:
        path = f"frames/{stream}/{attempt}-{index:05d}.frame"
        self.put(path, data)
        return path

    def is_frame_of(self, stream: str, path: str) -> bool:
        folder = f"frames/{stream}/"
        return path.startswith(folder) and _FRAME_NAME.fullmatch(path, len(folder)) is not None

    def get_frame(self, path: str, max_bytes: int | None = None) -> bytes:
        try:
            return self.read(path, max_bytes)
        except TooLargeError as error:
            raise FrameError(
                f"{self.url}/{path}: the object is larger than its manifest says ({error}). It was "
                "not read: it is not the frame that was written. Its stream is held. Restore the "
                "object from a backup or another version of it; without it the remote site needs a "
                "copy of the table."
            ) from None
        except FileNotFoundError as error:
            raise FrameError(
                f"{self.url}/{path}: the frame that a manifest names is not there. Its stream is "
                "held. Restore the object from a backup or another version of it; without it the "
                "remote site needs a copy of the table.",
                needs=EPOCHS,
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
        *,
        previous: str = "",
        frames: Iterable[str] = (),
    ) -> None:
        if not self.create(_manifest_path(stream, epoch), manifest):
            raise ManifestExists(
                f"channel {self.url}: manifest {epoch} of {stream} exists already; reload the log."
            )

    def manifest(self, stream: str, epoch: int) -> bytes:
        path = _manifest_path(stream, epoch)
        try:
            return self.read(path, MAX_MANIFEST_BYTES)
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

    def entries(self) -> Iterator[tuple[str, int, int]]:
        for path in self.list_paths("log/"):
            if match := _MANIFEST.fullmatch(path):
                yield match[1], int(match[2]), 0
            elif match := _AGAIN_0_1_0.fullmatch(path):
                yield match[1], int(match[2]), int(match[3])

    def put_note(self, note: Note, data: bytes | None) -> None:
        if data is None:
            self.delete([_path(note)])
        else:
            self.put(_path(note), data)

    def note(self, note: Note) -> bytes | None:
        try:
            return self.read(_path(note), MAX_RECORD_BYTES)
        except FileNotFoundError:
            return None
        except TooLargeError:
            return b""

    def notes(self, folder: Literal["heads", "acks"], stream: str | None = None) -> Notes:
        listed = self.list_objects(f"{folder}/" if stream is None else f"{folder}/{stream}/")
        return {
            note: Version(f"{tag} {written:.3f}", written)
            for path, written, tag in listed
            if (note := _note_at(path)) is not None
        }

    def now(self) -> float:
        path = f"wan-clock-{uuid.uuid4().hex}"
        self.put(path, b"")
        try:
            return self.stat(path).time
        finally:
            self.delete([path])

    def remove(self, stream: str) -> None:
        self.delete(_path(Note(kind, stream)) for kind in _NOTES if kind not in BY_SITE)
        for folder in ("log", "frames", "receivers", "refused", "acks"):
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


def _manifest_path(stream: str, epoch: int) -> str:
    return f"log/{stream}/{epoch:020d}.json"


def _path(note: Note) -> str:
    return _NOTES[note.kind].format(note.stream, note.site)


def _note_at(path: str) -> Note | None:
    for kind, form in _NOTE.items():
        match = form.fullmatch(path)
        if match is not None and (kind not in BY_SITE or is_safe(match[2])):
            return Note(kind, *match.groups())
    return None
