"""Manifests: one epoch of a stream each.

One line ``WANM <version> <CRC-32C of the rest, 8 hex digits>`` and a JSON object.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from crc32c import crc32c

from spark_wan.errors import ManifestError
from spark_wan.wire.frame import FrameRef
from spark_wan.wire.records import RESTORE, UNREADABLE, UPDATE, upgraded

MANIFEST_VERSION = 2
"""Written. Version 1 is read: some fields had other names (:data:`spark_wan.wire.records.RENAMED`)."""
_Data = bytes  # where a class has a member called bytes


@dataclass(frozen=True)
class CommitRef:
    """A source commit that an epoch carries: its version and its time (milliseconds since 1970 UTC)."""

    version: int
    time: int


@dataclass(frozen=True)
class WriteRef:
    """A write of a user's stream that the log has: an equal replay of it is already done."""

    query: str
    batch: str
    digest: str


def fingerprint(manifest: bytes) -> str:
    """What the next manifest calls its ``previous``: 32 hex digits for an encoded manifest."""
    return hashlib.blake2b(manifest, digest_size=16).hexdigest()


CAPTURE, SNAPSHOT, EVENTS = "capture", "snapshot", "events"


@dataclass(frozen=True)
class Manifest:
    """One epoch of a stream, all or nothing.

    ``kind`` is ``capture`` (the commits ``first_version`` to ``last_version`` of the source, whole), ``snapshot`` (the rows that
    were there at ``last_version``; stands for everything through it, ``first_version`` is 0) or ``events`` (a user's stream; both
    are -1). ``start`` says that nothing before ``first_version`` belongs to the stream: a receiver that has
    nothing of the table may begin here.
    """

    stream: str
    log_id: str
    epoch: int
    previous: str
    """The fingerprint of the manifest before this one, "" for the first: receivers notice a log that was rewritten."""
    kind: str
    origin: str
    sent_to: tuple[str, ...]
    addressees: tuple[str, ...]
    table: str
    table_id: str
    selection: str
    keys: tuple[str, ...]
    schema: Mapping[str, Any]
    """The table's columns, as Spark's schema JSON."""
    first_version: int
    last_version: int
    start: bool
    commits: tuple[CommitRef, ...]
    identity: str
    """Of the source's commit ``last_version``: operation, parameters, metrics and time, hashed."""
    frames: tuple[FrameRef, ...]
    disjoint: bool
    """No key stands in two of the frames."""
    created: int
    """Milliseconds since 1970 UTC, by the sender's clock."""
    writes: tuple[WriteRef, ...] = ()

    @classmethod
    def following(cls, last: Manifest | None, **fields: Any) -> Manifest:
        """Return the manifest of the epoch after ``last``; None: of the first epoch of a new log. ``fields``: all that the log's
        end does not decide."""
        if last is None:
            return cls(log_id=uuid.uuid4().hex, epoch=1, previous="", **fields)
        return cls(log_id=last.log_id, epoch=last.epoch + 1, previous=last.fingerprint, **fields)

    @property
    def rows(self) -> int:
        return sum(frame.rows for frame in self.frames)

    @property
    def bytes(self) -> int:
        return sum(frame.bytes for frame in self.frames)

    @cached_property
    def fingerprint(self) -> str:
        """Of the manifest as it was read, or else as it is encoded: what the next one calls its ``previous``."""
        return fingerprint(self.encode())

    def encode(self) -> _Data:
        body = json.dumps(asdict(self), separators=(",", ":")).encode()
        return f"WANM {MANIFEST_VERSION} {crc32c(body):08x}\n".encode() + body

    @classmethod
    def decode(cls, data: _Data, where: str) -> Manifest:
        """Read a manifest. Raises ManifestError, which names ``where`` and what is wrong."""
        line, _, body = data.partition(b"\n")
        words = line.split(b" ")
        if len(words) != 3 or words[0] != b"WANM":
            raise ManifestError(
                f"{where}: not a spark_wan manifest (foreign or empty object). {RESTORE}"
            )
        if words[1] not in (b"1", b"2"):
            raise ManifestError(
                f"{where}: manifest version {words[1].decode(errors='replace')}; this spark_wan reads versions "
                f"1 and {MANIFEST_VERSION}. {UPDATE}"
            )
        if words[2] != f"{crc32c(body):08x}".encode():
            raise ManifestError(f"{where}: truncated or altered (checksum). {RESTORE}")
        try:
            fields = upgraded(json.loads(body))
            for name in ("sent_to", "addressees", "keys"):
                fields[name] = tuple(fields[name])
            fields["commits"] = tuple(CommitRef(**entry) for entry in fields["commits"])
            fields["frames"] = tuple(FrameRef(**entry) for entry in fields["frames"])
            fields["writes"] = tuple(WriteRef(**entry) for entry in fields["writes"])
            manifest = cls(**fields)
        except UNREADABLE as error:
            raise ManifestError(
                f"{where}: cannot be read ({error}); it was not written by this version of spark_wan. {RESTORE}"
            ) from error
        # Of the bytes as they are: encoded again, a manifest of version 1 would have another one.
        manifest.__dict__["fingerprint"] = fingerprint(data)
        return manifest
