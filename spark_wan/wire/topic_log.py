r"""Operations on a channel on topics: records of the topic ``<prefix>.log``.

A record's value is a line ``WANO <version> <CRC-32C of what follows, 8 hexadecimal digits>``, a
line of JSON, and a payload. The JSON object has the fields of the kind, and in every record:

===========  ======  ==============================================================================
``kind``     string  see below
``id``       string  of the operation: 32 hexadecimal digits, random
``channel``  string  of the channel: the ``id`` of its first record. An operation with another one
                     belongs to topics that were deleted and made again, and does nothing
===========  ======  ==============================================================================

==============  ==================================================  ===============================
kind            fields                                              payload
==============  ==================================================  ===============================
``channel``     none: the first record of the topic
``manifest``    ``stream``, ``epoch``, ``previous``, ``frames``     the manifest
                (paths)
``trim``        ``stream``, ``through``, ``fingerprint`` of that
                epoch's manifest
``discard``     ``frames`` (paths): not needed any more, or
                of a write that was given up
``announce``    ``stream``, ``epoch``, ``attempt``
``withdraw``    ``stream``
``sender``      ``stream``                                          the sender's record
``remove``      ``stream``: nobody writes it any more
``move``        ``path``, ``from`` and ``to`` (lists of
                ``[partition, offset]``)
``floor``       ``floors`` (``[partition, offset]``): frames below
                are about to be deleted
``begin``       none: a checkpoint follows
``checkpoint``  ``begin`` and ``offset``: ``id`` and place of       :mod:`the state before it
                that record                                         <spark_wan.wire.topic_state>`
``clock``       none: asks the broker for its time
==============  ==================================================  ===============================

An operation that is larger than a record may be is several records: each a line
``WANP <version> <id> <part, from 0> <number of parts> <CRC-32C>`` and a piece of the operation.
The operation takes effect at its last part. A ``begin`` in between voids the parts before it: a
reader that starts there has not seen them. So does a limit on what is not whole yet
(:mod:`spark_wan.channels.kafka.parts`). Its writer then writes it again. A ``begin`` is one record.

A manifest above 64 MiB, a sender's record above 1 MiB and an operation that has more than 64 MiB
beside its payload do not count. Unknown fields are ignored, unless ``requires`` lists them
(:mod:`spark_wan.wire.records`). A record of a later version, and one of an unknown kind, is an
error: what it does to the channel is unknown.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from crc32c import crc32c

from spark_wan.errors import ChannelError, NewerRecordError
from spark_wan.wire.manifest import MAX_MANIFEST_BYTES
from spark_wan.wire.records import UNREADABLE, check_requires, check_version, read_json

VERSION = 1
_KNOWN = frozenset(
    (
        *("kind", "id", "channel", "stream", "epoch", "previous", "frames", "through", "path"),
        *("fingerprint", "attempt", "from", "to", "floors", "begin", "offset"),
    )
)
"""Names that an operation may require."""
MAX_HEAD_BYTES = MAX_MANIFEST_BYTES
"""Size of the line of JSON, at most. Of a manifest it has paths that the manifest has, too."""
CHANNEL, MANIFEST, TRIM, DISCARD = "channel", "manifest", "trim", "discard"
ANNOUNCE, WITHDRAW, SENDER, REMOVE = "announce", "withdraw", "sender", "remove"
MOVE, FLOOR, BEGIN, CHECKPOINT, CLOCK = "move", "floor", "begin", "checkpoint", "clock"
KINDS = {
    *(CHANNEL, MANIFEST, TRIM, DISCARD, ANNOUNCE, WITHDRAW, SENDER, REMOVE),
    *(MOVE, FLOOR, BEGIN, CHECKPOINT, CLOCK),
}


@dataclass(frozen=True)
class Operation:
    """One operation, whole."""

    kind: str
    channel: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    payload: bytes = b""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def encode(self) -> bytes:
        """Return the operation as a record's value. Raises ChannelError when it is too large."""
        head = {"kind": self.kind, "id": self.id, "channel": self.channel, **self.fields}
        line = json.dumps(head, separators=(",", ":")).encode()
        if len(line) > MAX_HEAD_BYTES:
            raise ChannelError(
                f"the operation {self.kind!r} would have {len(line):,} bytes without its payload; "
                f"readers take {MAX_HEAD_BYTES:,}"
            )
        content = line + b"\n" + self.payload
        return f"WANO {VERSION} {crc32c(content):08x}\n".encode() + content

    def records(self, most: int) -> list[bytes]:
        """Return the values of the records that hold the operation, ``most`` bytes of it each."""
        data = self.encode()
        if len(data) <= most:
            return [data]
        pieces = [data[start : start + most] for start in range(0, len(data), most)]
        return [
            f"WANP {VERSION} {self.id} {number} {len(pieces)} {crc32c(piece):08x}\n".encode()
            + piece
            for number, piece in enumerate(pieces)
        ]


@dataclass(frozen=True)
class Part:
    """A piece of an operation."""

    id: str
    number: int
    of: int
    data: bytes


_ID = re.compile(r"[0-9a-f]{32}")
_OPERATION = re.compile(rb"WANO ([1-9]\d{0,8}) ([0-9a-f]{8})")
_PART = re.compile(rb"WANP ([1-9]\d{0,8}) ([0-9a-f]{32}) (\d{1,9}) (\d{1,9}) ([0-9a-f]{8})")


def read_operation(value: bytes, where: str) -> Operation | Part | None:
    """Return what a record's value holds; None when it is not spark_wan's, or altered.

    Raises ChannelError for one of a newer spark_wan: what it does to the channel is unknown.
    """
    line, _, content = value.partition(b"\n")
    if match := _OPERATION.fullmatch(line):
        _check_version(int(match[1]), where)
        return _operation(content, where) if _is_whole(content, match[2]) else None
    if match := _PART.fullmatch(line):
        _check_version(int(match[1]), where)
        part = Part(match[2].decode(), int(match[3]), int(match[4]), content)
        return part if _is_whole(content, match[5]) and part.number < part.of else None
    return None


def joined(parts: list[Part], where: str) -> Operation | None:
    """Return the operation whose parts these are, in order."""
    read = read_operation(b"".join(part.data for part in parts), where)
    return read if isinstance(read, Operation) else None


def _operation(content: bytes, where: str) -> Operation | None:
    line, _, payload = content.partition(b"\n")
    if len(line) > MAX_HEAD_BYTES:
        return None
    try:
        fields = dict(read_json(line))
        check_requires(fields, _KNOWN)
        kind, identity, channel = (str(fields.pop(name)) for name in ("kind", "id", "channel"))
    except NewerRecordError as error:
        raise ChannelError(f"{where}: {error}. Update spark_wan here.") from error
    except UNREADABLE:
        return None
    if _ID.fullmatch(identity) is None:  # readers keep it
        return None
    if kind not in KINDS:
        raise ChannelError(
            f"{where}: written by a newer spark_wan (an operation {kind!r}, unknown to this one). "
            "Update spark_wan here."
        )
    return Operation(kind, channel, fields=fields, payload=payload, id=identity)


def _check_version(version: int, where: str) -> None:
    try:
        check_version(version, VERSION)
    except NewerRecordError as error:
        raise ChannelError(f"{where}: {error}. Update spark_wan here.") from error


def _is_whole(content: bytes, checksum: bytes) -> bool:
    return f"{crc32c(content):08x}".encode() == checksum
