"""Small objects of a channel in a directory or an object store: its marker, heads, announcements,
pauses.

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

``heads/<stream>.pause``, a pause, says that no site is to take anything of the stream, or until
when it was so, in every kind of channel. One that cannot be read is a pause. A JSON object:

==============  ===========  ======================================================================
``version``     int          1
``generation``  int          the entry of the control log that asked for it
                             (:mod:`spark_wan.wire.control`)
``by``          string       who asked
``since``       int          when, in milliseconds since 1970 UTC
``capture``     bool         true: the sender adds nothing to the stream, either
``until``       int or null  when it was resumed; null: it is paused
==============  ===========  ======================================================================

Heads and announcements are hints: one that cannot be read, or that requires what is unknown, is
none. Unknown fields are ignored (:mod:`spark_wan.wire.records`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TypeVar

from spark_wan.errors import NewerRecordError
from spark_wan.wire.manifest import fingerprint
from spark_wan.wire.names import printable
from spark_wan.wire.records import (
    check_requires,
    check_version,
    is_time,
    read_json,
    read_record,
)

VERSION = 1
_FORMAT = "spark_wan channel"

H = TypeVar("H", bound="Hint")

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
class Hint:
    """A head, an announcement or a pause."""

    def encode(self) -> bytes:
        return json.dumps({"version": VERSION, **asdict(self)}).encode()

    @classmethod
    def of(cls: type[H], data: bytes | None) -> H | None:
        """Return the hint in ``data``; None when there is none that can be read."""
        try:
            return read_record(cls, data or b"", VERSION, renamed=False)
        except NewerRecordError:
            return None


@dataclass(frozen=True)
class Head(Hint):
    """The newest epoch of a log."""

    epoch: int
    manifest: str

    @classmethod
    def by(cls, epoch: int, manifest: bytes) -> Head:
        """Return the head that names an encoded manifest."""
        return cls(epoch, fingerprint(manifest))


@dataclass(frozen=True)
class Announcement(Hint):
    """An announcement that a stream has epochs."""

    epoch: int
    attempt: int


@dataclass(frozen=True)
class Pause(Hint):
    """Says that no site is to take anything of a stream, or until when it was so."""

    generation: int
    by: str
    since: int
    capture: bool = False
    until: int | None = None

    @classmethod
    def of(cls, data: bytes | None) -> Pause | None:
        """As that of other hints, with a text and times that a terminal may show."""
        found = super().of(data)
        if found is None or not (is_time(found.since) and is_time(found.until)):
            return None
        return replace(found, by=printable(found.by))
