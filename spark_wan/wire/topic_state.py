"""The state of a channel on topics: the payload of a ``checkpoint``, which
:mod:`spark_wan.wire.topic_log` describes.

A JSON object, compressed with zlib:

=============  =====================  =============================================================
``version``    int                    absent: 1
``channel``    string                 the channel's ID
``streams``    object                 by stream: ``epochs``, a list of (epoch, manifest in Base64,
                                      paths of its frames), ascending and without gaps;
                                      ``announced``, null or [epoch, attempt]; ``record``, null or
                                      the sender's record in Base64
``moved``      object                 path of a frame that is elsewhere than its path says -> places
``discarded``  list of strings        paths of frames that a manifest names and that are not needed
                                      any more
``floors``     list of pairs          (partition, offset): frames below are deleted, or about to be
``dead``       list of pairs          (partition, ranges): frames that no manifest names any more,
                                      as pairs of a first offset and one behind the last
=============  =====================  =============================================================

A place is a pair (partition, offset). Manifests name a frame by a path that has its places:
``frames/<stream>/<attempt>-<index, 5 digits>@<partition>:<offset>+<partition>:<offset>…``, a place
for each record that holds a part of the frame. Unknown fields are ignored, unless ``requires``
lists them (:mod:`spark_wan.wire.records`).
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from spark_wan.wire.manifest import fingerprint
from spark_wan.wire.records import check_requires, check_version, read_json

VERSION = 1
_KNOWN = ("channel", "streams", "moved", "discarded", "floors", "dead")


class Place(NamedTuple):
    """Where a record is."""

    partition: int
    offset: int


class FramePath(NamedTuple):
    """The path of a frame, in parts."""

    stream: str
    name: str
    """``<attempt>-<index>``: what tells the frame from any other."""
    places: tuple[Place, ...]

    def __str__(self) -> str:
        places = "+".join(f"{place.partition}:{place.offset}" for place in self.places)
        return f"frames/{self.stream}/{self.name}@{places}"

    def key(self, part: int) -> bytes:
        """Return the key of the record that holds a part."""
        return f"{self.stream}/{self.name}/{part}".encode()


_PLACE = r"[0-9]{1,9}:[0-9]{1,18}"
# Text from elsewhere comes here: there is one way only to match it.
_PATH = re.compile(rf"frames/([^/]+)/([0-9a-f]{{1,64}}-[0-9]{{5,10}})@({_PLACE}(?:\+{_PLACE})*)")


def parse_path(path: str) -> FramePath | None:
    """Return the parts of a path; None when it names no frame of a topic."""
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    numbers = (place.split(":") for place in match[3].split("+"))
    places = tuple(Place(int(partition), int(offset)) for partition, offset in numbers)
    return FramePath(match[1], match[2], places)


@dataclass(frozen=True)
class Epoch:
    """A manifest that counts."""

    manifest: bytes
    fingerprint: str
    frames: tuple[str, ...]


@dataclass
class StreamState:
    """What the channel has of a stream."""

    epochs: dict[int, Epoch] = field(default_factory=dict)
    """Ascending, without gaps."""
    announced: tuple[int, int] | None = None
    record: bytes | None = None
    """Of its sender."""

    @property
    def newest(self) -> int:
        return next(reversed(self.epochs), 0)


@dataclass(frozen=True)
class TopicState:
    """What the records before a checkpoint's ``begin`` say."""

    channel: str
    streams: Mapping[str, StreamState]
    frames: Mapping[str, tuple[Place, ...]]
    """Path of a frame that a manifest names, and that is needed -> where it is."""
    floors: Mapping[int, int]
    dead: Mapping[int, tuple[tuple[int, int], ...]]

    def encode(self, max_bytes: int) -> bytes:
        """Return the state; nothing when it has more than ``max_bytes`` of JSON."""
        content = {
            "channel": self.channel,
            "streams": {name: _encoded(stream) for name, stream in self.streams.items()},
            "moved": {
                path: places for path, places in self.frames.items() if _parsed(path) != places
            },
            "discarded": [
                path
                for stream in self.streams.values()
                for epoch in stream.epochs.values()
                for path in epoch.frames
                if path not in self.frames
            ],
            "floors": list(self.floors.items()),
            "dead": list(self.dead.items()),
        }
        encoded = json.dumps(content, separators=(",", ":")).encode()
        return zlib.compress(encoded) if len(encoded) <= max_bytes else b""

    @classmethod
    def decode(cls, data: bytes, max_bytes: int) -> TopicState:
        """Return the state in ``data``. Raises NewerRecordError; and UNREADABLE errors, also when
        it would have more than ``max_bytes`` of JSON."""
        unpacking = zlib.decompressobj()
        try:
            content = read_json(unpacking.decompress(data, max_bytes))
        except zlib.error as error:
            raise ValueError(str(error)) from error
        if not unpacking.eof:
            raise ValueError(f"not whole, or more than {max_bytes:,} bytes")
        check_version(content.get("version", VERSION), VERSION)
        check_requires(content, _KNOWN)
        streams = {name: _decoded(stream) for name, stream in content["streams"].items()}
        frames = {
            path: _parsed(path)
            for stream in streams.values()
            for epoch in stream.epochs.values()
            for path in epoch.frames
        }
        frames |= {path: places_of(moved) for path, moved in content["moved"].items()}
        for path in content["discarded"]:
            del frames[path]
        dead = {whole(part): tuple(map(_range, ranges)) for part, ranges in content["dead"]}
        floors = dict(places_of(content["floors"]))
        return cls(str(content["channel"]), streams, frames=frames, floors=floors, dead=dead)


def _parsed(path: str) -> tuple[Place, ...]:
    """Return the places in a path that a manifest that counts has. Raises ValueError."""
    parsed = parse_path(path)
    if parsed is None:
        raise ValueError(f"path {path!r}")
    return parsed.places


def places_of(pairs: Iterable[Iterable[Any]]) -> tuple[Place, ...]:
    """Return places from JSON. Raises UNREADABLE."""
    places = tuple(Place(*map(whole, pair)) for pair in pairs)
    if any(partition >= 2**31 for partition, _ in places):
        raise ValueError("a partition is out of range")
    return places


def _range(pair: Iterable[Any]) -> tuple[int, int]:
    start, end = pair
    if whole(start) > whole(end - 1):
        raise ValueError("a range is empty")
    return start, end


def whole(number: object) -> int:
    """Return an offset, a partition or an epoch from JSON. Raises ValueError."""
    if type(number) is not int or not 0 <= number < 2**63:
        raise ValueError(f"{number!r:.50} is no offset")
    return number


def _encoded(stream: StreamState) -> dict[str, Any]:
    return {
        "epochs": [
            (number, _text(epoch.manifest), epoch.frames) for number, epoch in stream.epochs.items()
        ],
        "announced": stream.announced,
        "record": None if stream.record is None else _text(stream.record),
    }


def _decoded(stream: Mapping[str, Any]) -> StreamState:
    epochs = {}
    for number, text, frames in stream["epochs"]:
        manifest = base64.b64decode(text)
        epochs[whole(number)] = Epoch(manifest, fingerprint(manifest), tuple(frames))
    announced, record = stream["announced"], stream["record"]
    return StreamState(
        epochs,
        None if announced is None else (whole(announced[0]), whole(announced[1])),
        None if record is None else base64.b64decode(record),
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
