"""Small objects of a channel in a directory or an object store: its marker, heads, announcements.

``wan-channel.json``, the marker, says what the place is. A JSON object:

===========  ======  ==============================================================================
``format``   string  ``spark_wan channel``
``version``  int     1, of the layout of the channel
===========  ======  ==============================================================================

``heads/<stream>.json``, a head, changes with every manifest of the stream. A JSON object:

============  ======  =============================================================================
``version``   int     1
``epoch``     int     the newest epoch when it was written
``manifest``  string  BLAKE2b of that epoch's manifest, 128 bits, hexadecimal
============  ======  =============================================================================

``heads/<stream>.again``, an announcement, says that epochs were announced again. A JSON object:

===========  ======  ==============================================================================
``version``  int     1
``epoch``    int     from this epoch on
``attempt``  int     from 1
===========  ======  ==============================================================================

Heads and announcements are hints: one that cannot be read, or that requires what is unknown, is
none. Unknown fields are ignored (:mod:`spark_wan.wire.records`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from spark_wan.errors import NewerRecordError
from spark_wan.wire.manifest import fingerprint
from spark_wan.wire.records import (
    check_requires,
    check_version,
    read_json,
    read_record,
)

VERSION = 1
_FORMAT = "spark_wan channel"

H = TypeVar("H", "Head", "Announcement")


MARKER = json.dumps({"format": _FORMAT, "version": VERSION}).encode()


def check_marker(data: bytes) -> None:
    """Raise NewerRecordError for the marker of a channel of a later version, and UNREADABLE errors
    for what is no marker."""
    record = read_json(data)
    check_version(record["version"], VERSION)
    check_requires(record, ("format",))
    if record["format"] != _FORMAT:
        raise ValueError("another format")


@dataclass(frozen=True)
class Head:
    """The newest epoch of a log."""

    epoch: int
    manifest: str

    @classmethod
    def by(cls, epoch: int, manifest: bytes) -> Head:
        """Return the head that names an encoded manifest."""
        return cls(epoch, fingerprint(manifest))

    def encode(self) -> bytes:
        return _written(self)

    @classmethod
    def of(cls, data: bytes) -> Head | None:
        """Return the head in ``data``; None when there is none that can be read."""
        return _hint(cls, data)


@dataclass(frozen=True)
class Announcement:
    """An announcement that a stream has epochs."""

    epoch: int
    attempt: int

    def encode(self) -> bytes:
        return _written(self)

    @classmethod
    def of(cls, data: bytes) -> Announcement | None:
        """Return the announcement in ``data``; None when there is none that can be read."""
        return _hint(cls, data)


def _hint(kind: type[H], data: bytes) -> H | None:
    try:
        return read_record(kind, data, VERSION, renamed=False)
    except NewerRecordError:
        return None


def _written(record: Any) -> bytes:
    return json.dumps({"version": VERSION, **asdict(record)}).encode()
