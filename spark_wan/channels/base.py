"""Channel: the durable queue between a sender and its receivers.

A channel is a set of small objects, each with a path. This module decides what they are called and
when they are written; a kind of channel only stores them. Layout below the channel's root::

    wan-channel.json                            says what this is, and its version
    log/<stream>/<epoch, 20 digits>.json        manifests, created only if absent
    log/<stream>/<epoch, 20 digits>.again.<n>   the epoch was announced again, attempt n from 1
    frames/<stream>/<attempt>-<index>.frame     frames; only a manifest makes them count
    acks/<stream>/<site>.json                   the newest ack of each site
    wan-writable, wan-clock-<32 hex digits>     probes: there for a moment, or left by a crash

``<attempt>`` is 32 hexadecimal digits: the first 16 name the write, the others one attempt of one
of its tasks. A channel moves bytes and numbers only: :mod:`spark_wan.channels.log` decides what
they mean.
"""

from __future__ import annotations

import json
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress

from spark_wan.errors import ChannelError, FrameError, ManifestError, ManifestExists

MARKER = "wan-channel.json"
CHANNEL_VERSION = 1

_MANIFEST = re.compile(r"log/([^/]+)/(\d{20})\.json")
_AGAIN = re.compile(r"log/([^/]+)/(\d{20})\.again\.(\d+)")
_FRAME = re.compile(r"frames/[^/]+/[0-9a-f]+-\d+\.frame")
_ACK = re.compile(r"acks/([^/]+)/([^/]+)\.json")
_PROBE = re.compile("wan-(?:writable|clock-[0-9a-f]{32})")

_WRITE_DIGITS = 16


def new_attempt(write: str) -> str:
    """Return a name for the frames of one attempt of a task that is part of ``write``."""
    return write[:_WRITE_DIGITS] + uuid.uuid4().hex[_WRITE_DIGITS:]


def write_of(path: str) -> str:
    """Return the write that a frame is part of, by the frame's path."""
    return path.rpartition("/")[2][:_WRITE_DIGITS]


class Channel(ABC):
    """One channel, opened by URL. A kind of channel implements the six abstract methods.

    ``open_channel`` constructs a kind with the URL and the options of its store (endpoint, region,
    credentials …). The constructor opens nothing, so that an error comes with the first request.
    A channel is picklable, because Spark tasks get a copy, and several threads share it.

    Paths are relative, with ``/`` between their parts. A kind guarantees:

    - :meth:`create` is atomic: of several writers, in any process, exactly one gets True.
    - An object is there as a whole or not at all, whatever interrupts its writer.
    - Once a write has returned, every :meth:`read` and every new listing sees it.
    - A listing misses no object that was there before it began and is left alone meanwhile. What
      is written or deleted during the listing may be in it or not.

    Every method raises ChannelError when the store does not answer or refuses the request. The
    caller retries later, so it must be safe to repeat. A write that raised may have taken effect.
    """

    def __init__(self, url: str, storage: Mapping[str, str] | None = None) -> None:
        self.url = url
        self.storage = dict(storage or {})

    # --- what a kind of channel implements ------------------------------------------------------

    @abstractmethod
    def create(self, path: str, data: bytes) -> bool:
        """Write an object only if it is absent. Return whether this call wrote it.

        Called for manifests, announcements and the marker. False also when an earlier request of
        this call wrote it and its answer was lost: the caller compares what is there.
        """

    @abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """Write an object; replace one that is there. Called for frames, acks and probes."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Return an object. Raises FileNotFoundError when there is none."""

    @abstractmethod
    def list_objects(self, prefix: str) -> list[tuple[str, float]]:
        """Return path and time of all objects below ``prefix``, sorted by path.

        The time is when the object was written, by the store's clock, in seconds since 1970.
        ``prefix`` ends with ``/``, or is empty for the whole channel.
        """

    @abstractmethod
    def written_at(self, path: str) -> float:
        """Return when an object was written, as :meth:`list_objects` does."""

    @abstractmethod
    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects. One that is absent is no error."""

    # --- what every channel does with them ------------------------------------------------------

    def prepare(self) -> None:
        """Make the channel usable for writing.

        Raises ChannelError when the place is not writable, is another program's, or holds a
        channel of another version.
        """
        marker = {"format": "spark_wan channel", "version": CHANNEL_VERSION}
        try:
            if not self.create(MARKER, json.dumps(marker).encode()):
                version = json.loads(self.read(MARKER)).get("version")
                if version != CHANNEL_VERSION:
                    raise ChannelError(
                        f"channel {self.url}: its version is {version}; this spark_wan knows "
                        f"version {CHANNEL_VERSION}. Update spark_wan here."
                    )
        except FileNotFoundError as error:
            raise ChannelError(
                f"channel {self.url}: {MARKER} exists but cannot be read ({error}): it is a broken "
                "link, or was deleted at this moment. Try again."
            ) from error
        except (ValueError, AttributeError, RecursionError) as error:
            raise ChannelError(
                f"channel {self.url}: {MARKER} was not written by spark_wan, or is damaged. If "
                "spark_wan uses this channel, delete that file: it is written again. Otherwise "
                "give the channel a place of its own."
            ) from error
        # A directory that is readable but not writable fails here, not in the middle of an epoch.
        self.put("wan-writable", b"")
        self.delete(["wan-writable"])

    def put_frame(self, stream: str, attempt: str, index: int, data: bytes) -> str:
        """Write a frame durably. Return its path, for the manifest."""
        path = f"frames/{stream}/{attempt}-{index:05d}.frame"
        self.put(path, data)
        return path

    def get_frame(self, path: str) -> bytes:
        """Return a frame. Raises FrameError when it is missing."""
        try:
            return self.read(path)
        except FileNotFoundError as error:
            raise FrameError(
                f"{self.url}/{path}: the frame that a manifest names is not there. Its stream is "
                "held. Restore the object from a backup or another version of it; without it the "
                "remote site needs a full copy."
            ) from error

    def frames(self, stream: str) -> list[tuple[str, float]]:
        """Return path and time of all frames of a stream, named by a manifest or not."""
        return self.list_objects(f"frames/{stream}/")

    def trim_frames(self, stream: str, paths: Iterable[str]) -> None:
        """Delete frames. One that is absent is no error."""
        self.delete(paths)

    def append(self, stream: str, epoch: int, manifest: bytes) -> None:
        """Create the manifest of an epoch durably. Raises ManifestExists when there is one."""
        if not self.create(_manifest_path(stream, epoch), manifest):
            raise ManifestExists(
                f"channel {self.url}: manifest {epoch} of {stream} exists already; reload the log."
            )

    def manifest(self, stream: str, epoch: int) -> bytes:
        """Return the manifest of an epoch. Raises ManifestError when it is missing."""
        path = _manifest_path(stream, epoch)
        try:
            return self.read(path)
        except FileNotFoundError as error:
            raise ManifestError(
                f"{self.url}/{path}: the manifest is not there (any more)."
            ) from error

    def epochs(self) -> dict[str, list[int]]:
        """Return the epochs that have a manifest, ascending, by stream. Costs one listing."""
        epochs: dict[str, list[int]] = {}
        for stream, epoch in self._listed("log/", _MANIFEST):
            epochs.setdefault(stream, []).append(int(epoch))
        return dict(sorted(epochs.items()))

    def stream_epochs(self, stream: str) -> list[int]:
        """Return the epochs of one stream that have a manifest, ascending."""
        return [int(epoch) for _, epoch in self._listed(f"log/{stream}/", _MANIFEST)]

    def trim_manifest(self, stream: str, epoch: int) -> None:
        """Delete a manifest. One that is absent is no error."""
        self.delete([_manifest_path(stream, epoch)])

    def announce(self, stream: str, epoch: int, attempt: int) -> None:
        """Announce again that the stream has epochs from ``epoch`` on. ``attempt`` is from 1."""
        self.create(_again_path(stream, epoch, attempt), b"{}")

    def announcements(self) -> dict[str, list[tuple[int, int]]]:
        """Return all (epoch, attempt) that were announced again, ascending, by stream."""
        announced: dict[str, list[tuple[int, int]]] = {}
        for stream, epoch, attempt in self._listed("log/", _AGAIN):
            announced.setdefault(stream, []).append((int(epoch), int(attempt)))
        return {stream: sorted(entries) for stream, entries in announced.items()}

    def withdraw(self, stream: str, announced: Iterable[tuple[int, int]]) -> None:
        """Delete announcements that were answered."""
        self.delete([_again_path(stream, epoch, attempt) for epoch, attempt in announced])

    def put_ack(self, stream: str, site: str, ack: bytes) -> None:
        """Write a site's ack; it replaces the one before."""
        self.put(f"acks/{stream}/{site}.json", ack)

    def acks(self, stream: str) -> dict[str, bytes]:
        """Return the newest ack of every site for a stream."""
        acks = {}
        for _, site in self._listed(f"acks/{stream}/", _ACK):
            with suppress(FileNotFoundError):  # deleted since it was listed
                acks[site] = self.read(f"acks/{stream}/{site}.json")
        return acks

    def now(self) -> float:
        """Return the time by the clock that dates objects. Costs a write, so call it rarely."""
        path = f"wan-clock-{uuid.uuid4().hex}"
        self.put(path, b"")
        try:
            return self.written_at(path)
        finally:
            self.delete([path])

    def foreign(self) -> list[str]:
        """Return the paths of objects that spark_wan did not write."""
        known = (_MANIFEST, _AGAIN, _FRAME, _ACK, _PROBE)
        return [
            path
            for path, _ in self.list_objects("")
            if path != MARKER and not any(form.fullmatch(path) for form in known)
        ]

    def _listed(self, prefix: str, form: re.Pattern[str]) -> list[tuple[str, ...]]:
        """Return the parts of the listed paths that have a form."""
        matches = (form.fullmatch(path) for path, _ in self.list_objects(prefix))
        return [match.groups() for match in matches if match]


def _manifest_path(stream: str, epoch: int) -> str:
    return f"log/{stream}/{epoch:020d}.json"


def _again_path(stream: str, epoch: int, attempt: int) -> str:
    return f"log/{stream}/{epoch:020d}.again.{attempt}"
