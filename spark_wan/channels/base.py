"""The channel: a durable gateway queue that a sender writes and receivers read.

One small protocol; nothing above it knows which channel it is. A channel moves bytes and numbers only: what frames and
manifests mean is decided in :mod:`spark_wan.channels.log`, above it.

A channel is picklable: tasks get a copy and publish or read frames with it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Protocol

_OF_WRITE = 16
"""So many hexadecimal digits of an attempt's name are those of its write."""


def new_attempt(write: str) -> str:
    """A name for the frames of one attempt of a task: 32 hexadecimal digits, of which the first 16 are those of the ``write`` that it is part of."""
    return write[:_OF_WRITE] + uuid.uuid4().hex[_OF_WRITE:]


def write_of(path: str) -> str:
    """The write that a frame is part of, by its path ``…/<attempt>-<index>.frame``."""
    return path.rpartition("/")[2][:_OF_WRITE]


class Channel(Protocol):
    """What every channel can do. All methods raise ChannelError when the store does not answer."""

    url: str

    def prepare(self) -> None:
        """Make the channel usable for writing. Raises ChannelError when the place is foreign or not writable."""

    def put_frame(self, stream: str, attempt: str, index: int, data: bytes) -> str:
        """Publish a frame durably; returns the path that a manifest may name. Seen by nobody before that."""

    def get_frame(self, path: str) -> bytes:
        """The bytes of a frame. Raises FrameError when it is not there."""

    def append(self, stream: str, number: int, manifest: bytes) -> None:
        """Create manifest ``number``, durably, if it is absent. Raises ManifestExists: reload and decide again."""

    def numbers(self) -> dict[str, list[int]]:
        """The manifest numbers of every stream, ascending. One listing for the whole channel."""

    def stream_numbers(self, stream: str) -> list[int]:
        """The manifest numbers of one stream, ascending."""

    def manifest(self, stream: str, number: int) -> bytes:
        """The bytes of a manifest. Raises ManifestError when it is not there."""

    def announce(self, stream: str, number: int, attempt: int) -> None:
        """Say again that the stream has epochs from ``number`` on; ``attempt`` counts from 1."""

    def announcements(self) -> dict[str, list[tuple[int, int]]]:
        """All (number, attempt) announced again, per stream, ascending."""

    def withdraw(self, stream: str, announced: Iterable[tuple[int, int]]) -> None:
        """Remove announcements that were answered."""

    def put_ack(self, stream: str, site: str, ack: bytes) -> None:
        """Publish a site's answer; replaces its last one."""

    def acks(self, stream: str) -> dict[str, bytes]:
        """Every site's last answer for a stream."""

    def trim_frames(self, stream: str, paths: Iterable[str]) -> None:
        """Remove frames. What is gone already is no error."""

    def trim_manifest(self, stream: str, number: int) -> None:
        """Remove a manifest. What is gone already is no error."""

    def frames(self, stream: str) -> list[tuple[str, float]]:
        """All frames of a stream, named or not, with the seconds since 1970 at which they were written."""

    def now(self) -> float:
        """The time by the clock that dates frames, in seconds since 1970. Costs a write: not to be asked all the time."""

    def foreign(self) -> list[str]:
        """Paths in the channel that spark_wan has not written."""
