"""Manifests: one epoch of a stream each. ``log/<stream>/<epoch, 20 digits>.json`` in the channel.

The line ``WANM <version> <CRC-32C of what follows, 8 hexadecimal digits>``, then a JSON object:

=================  ===============  ===============================================================
``stream``         string           the stream
``log_id``         string           the log: 32 hexadecimal digits, random
``epoch``          int              from 1
``previous``       string           fingerprint of the manifest before this one; empty: none
``kind``           string           ``capture``, ``snapshot``, ``events`` or ``copy``
``origin``         string           the site that wrote the events
``sent_to``        list of strings  sites that get these events: by any sender of ``origin`` (of a
                                    user stream: by its own sender), and of each site that forwarded
                                    them, this one included
``addressees``     list of strings  sites that must apply and ack this stream
``table``          string           the table's name in the topology
``table_id``       string           Delta's ID of the source table; ``events``: a user stream
``selection``      string           ``all``
``keys``           list of strings  key columns; empty: a keyless table
``schema``         object           the table's columns, as Spark's schema JSON
``first_version``  int              first source version of the epoch
``last_version``   int              last source version of the epoch
``start``          bool             nothing before this epoch belongs to the stream: a receiver that
                                    has nothing of the table may begin here. A forwarded log that
                                    begins in the middle has a first epoch with false and no events,
                                    whose ``first_version`` is ``last_version`` + 1; so has an epoch
                                    that only names new addressees
``commits``        list of objects  source commits whose rows the frames carry: ``version``,
                                    ``time`` and ``clock``, the commit's stamp (both in milliseconds
                                    since 1970 UTC); see :mod:`spark_wan.delta.clock`
``identity``       string           of the source's commit ``last_version``: hash of what its
                                    history entry says, ``@``, its time; empty: a user stream
``frames``         list of objects  the frames: ``path``, ``rows``, ``bytes``, ``checksum`` (int);
                                    in a signed manifest also ``digest``, the frame's BLAKE2b-256
``disjoint``       bool             no key is in two of the frames
``created``        int              by the sender's clock, in milliseconds since 1970 UTC
``writes``         list of objects  newest writes of a user stream that the log has: ``query``,
                                    ``batch``, ``digest``; a replay that is equal is done already;
                                    absent: none
``clock``          object           the source table's clock after ``last_version``: ``stamp``, the
                                    highest so far, and ``time``, that commit's (both int, in
                                    milliseconds since 1970 UTC); absent: unknown, or a user stream
``via``            object           the inbound epoch that was forwarded: ``stream``, ``log_id``,
                                    ``epoch``, ``fingerprint``; absent: the sender's site wrote it
``root``           object           of a user stream: the epoch as its origin wrote it, like
                                    ``via``; absent: it is ``via``, or without that, this one
``copy``           object           of a ``copy`` (see below); absent: it is none
``control``        int              of a captured stream: the number of the newest entry in the
                                    site's control log (:mod:`spark_wan.wire.control`) that the
                                    sender knew; of an end, of the one that asked for it; absent: 0
``end``            bool             an operator has ended the stream here: nothing follows until
                                    somebody resumes it; absent: false
``dropped``        object           of each site that was left behind, because the queue was full or
                                    somebody has asked for it (``spark-wan clean``): the epoch
                                    through which no trim waits for its acks. It stays until the
                                    site has acked that epoch; absent: none
``signature``      object           by the sender's site (:mod:`spark_wan.wire.signature`); absent:
                                    the site has no keys
=================  ===============  ===============================================================

A ``capture`` holds the commits ``first_version`` to ``last_version`` of the source, whole. A
``snapshot`` holds the rows that were there at ``last_version``, and stands for everything through
it; its ``first_version`` is 0. ``events`` are of a user stream; both versions are -1, and so they
are in a copy of its table.

A ``copy`` is in a log of its own, for the one site that has asked for it. It holds the rows of the
table at ``last_version``, and takes the place of all rows that the site has. The site that serves
it writes the table, or has a copy itself:

==============  =============  ====================================================================
``request``     string         the request that it answers, as in the site's ack; empty: none, it
                               has no rows, and the copy before it was taken
``vector``      list of lists  what the rows are, as in a mark: (origin site, table ID, selection,
                               version through which everything is in them); empty: there are none
``refused``     string         why the site serves no copy; absent: it does
``difference``  bool           the site writes only the rows that differ from its own; absent: as
                               it likes
``part``        int            which part of the copy this is, from 1; absent: 1
``parts``       int            number of its parts, in epochs that follow one another; absent: 1.
                               Only all of them together are a copy. All say the same of the table
``read``        object         what was read of the table at the site that serves it: ``table_id``,
                               ``version``, ``identity``; absent: it has one part
``logs``        list of lists  of a user stream: how far each log is in the rows, as in a mark
                               (stream, log ID, epoch, fingerprint); absent: none
``content``     string         of a user stream: the first part has ``event_ids``, those of all
                               events that are in the rows; absent: ``rows``
``floor``       int            with ``event_ids``: the time, in microseconds since 1970 UTC, through
                               which IDs may have expired; absent: none has
==============  =============  ====================================================================

A manifest's fingerprint is the BLAKE2b of all its bytes, 32 hexadecimal digits. Version 2 is
written. Version 1 has ``incarnation``, ``number``, ``first`` and ``last`` for ``log_id``,
``epoch``, ``first_version`` and ``last_version``, and one more field, ``generation``. Unknown
fields are ignored, unless ``requires`` lists them (:mod:`spark_wan.wire.records`).
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

from crc32c import crc32c

from spark_wan.errors import ManifestError, NewerRecordError, UntrustedError
from spark_wan.wire.frame import FrameRef
from spark_wan.wire.mark import LogEntry, VectorEntry
from spark_wan.wire.names import is_safe, printable, shown
from spark_wan.wire.records import (
    OR_RESTORE,
    RESTORE,
    UNREADABLE,
    UPDATE,
    VERSION,
    EpochRef,
    TableClock,
    VersionRef,
    check_requires,
    check_version,
    from_fields,
    known_names,
    read_json,
    written_fields,
)
from spark_wan.wire.signature import KeyReference, Signature, Signer, is_signed_with

CAPTURE, SNAPSHOT, EVENTS, COPY = "capture", "snapshot", "events", "copy"
KINDS = (CAPTURE, SNAPSHOT, EVENTS, COPY)
ROWS, EVENT_IDS = "rows", "event_ids"
"""What a part of a copy has."""
USER_TABLE_ID = "events"
"""The table ID of a user stream: its rows come from no table."""
MAX_MANIFEST_BYTES = 64 * 2**20
"""Size of a manifest, at most: of some 300,000 frames."""
_Data = bytes  # where a class has a member called bytes


@dataclass(frozen=True)
class WriteRef:
    """A write of a user stream that the log has."""

    query: str
    batch: str
    digest: str


@dataclass(frozen=True)
class CopyOf:
    """What a copy answers, and what it has."""

    request: str
    vector: tuple[VectorEntry, ...] = ()
    refused: str | None = None
    difference: bool = False
    part: int = 1
    parts: int = 1
    read: VersionRef | None = None
    logs: tuple[LogEntry, ...] = ()
    content: str = ROWS
    floor: int | None = None

    @property
    def has_rows(self) -> bool:
        """Whether it says of what version or epochs the rows are."""
        return bool(self.vector or self.logs)

    def answers(self, request: str) -> bool:
        """Whether a log that ends with this answers a request: by all parts of a copy, or by a
        refusal."""
        return self.request == request and self.part == self.parts


def fingerprint(manifest: bytes) -> str:
    """Return the fingerprint of an encoded manifest, which the next one names as ``previous``."""
    return hashlib.blake2b(manifest, digest_size=16).hexdigest()


@dataclass(frozen=True)
class Manifest:
    """One epoch of a stream, all or nothing, with the fields of the format."""

    stream: str
    log_id: str
    epoch: int
    previous: str
    kind: str
    origin: str
    sent_to: tuple[str, ...]
    addressees: tuple[str, ...]
    table: str
    table_id: str
    selection: str
    keys: tuple[str, ...]
    schema: Mapping[str, Any]
    first_version: int
    last_version: int
    start: bool
    commits: tuple[Mapping[str, int], ...]
    identity: str
    frames: tuple[FrameRef, ...]
    disjoint: bool
    created: int
    writes: tuple[WriteRef, ...] = ()
    clock: TableClock | None = None
    via: EpochRef | None = None
    root: EpochRef | None = None
    copy: CopyOf | None = None
    control: int = 0
    end: bool = False
    dropped: Mapping[str, int] = field(default_factory=dict)
    signature: Signature | None = None
    refusal: ClassVar[str | None] = None
    """Why a manifest that was read must not be acted on; None: it may."""
    _record: ClassVar[Mapping[str, Any] | None] = None
    """The JSON of a manifest that was read, if it is signed."""

    @classmethod
    def following(cls, last: Manifest | None, **fields: Any) -> Manifest:
        """Return the manifest of the epoch after ``last``; None: of the first epoch of a new log.

        ``fields`` are all that the end of the log does not decide.
        """
        if last is None:
            return cls(log_id=uuid.uuid4().hex, epoch=1, previous="", **fields)
        return cls(log_id=last.log_id, epoch=last.epoch + 1, previous=last.fingerprint, **fields)

    @property
    def rows(self) -> int:
        return sum(frame.rows for frame in self.frames)

    @property
    def bytes(self) -> int:
        return sum(frame.bytes for frame in self.frames)

    @property
    def through(self) -> int | None:
        """The source's version through which everything is published; None: a user stream."""
        return self.last_version if self.kind != EVENTS else None

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the manifest as it was read, or else as it is encoded."""
        return fingerprint(self.encode())

    @property
    def written_at_origin(self) -> EpochRef | None:
        """The epoch of a user stream as its origin wrote it; None: this one, or no user stream."""
        return (self.root or self.via) if self.kind == EVENTS else None

    @property
    def highest_stamp(self) -> int | None:
        """The highest stamp of what the epoch carries; None: unknown, or a user stream."""
        stamps = [commit["clock"] for commit in self.commits if "clock" in commit]
        return max(stamps, default=None if self.clock is None else self.clock.stamp)

    def encode(self) -> _Data:
        body = json.dumps(self._content(), separators=(",", ":")).encode()
        return f"WANM {VERSION} {crc32c(body):08x}\n".encode() + body

    def _content(self) -> dict[str, Any]:
        absent = dict.fromkeys(("clock", "via", "root", "copy", "signature"))
        content = written_fields(self, **absent, control=0, end=False, dropped={})
        for frame in content["frames"]:
            if not frame["digest"]:
                del frame["digest"]
        if self.copy is not None:
            content["copy"] = written_fields(
                self.copy,
                refused=None,
                difference=False,
                part=1,
                parts=1,
                read=None,
                logs=(),
                content=ROWS,
                floor=None,
            )
            if self.copy.parts > 1:  # who does not know of parts would take one for the copy
                content["copy"].setdefault("part", 1)
                content["requires"] = ["copy.part"]
            if self.copy.logs:  # or the event IDs for rows
                content["requires"] = ["copy.part", "copy.content"]
        return content

    def signed_by(self, signer: Signer) -> Manifest:
        """Return the manifest with a signature. Raises SigningKeyError."""
        unsigned = replace(self, signature=None)
        return replace(self, signature=signer.sign(_KIND, unsigned._content()))

    def not_signed_with(self, keys: Sequence[KeyReference]) -> str | None:
        """Return why a manifest that was read is not signed with one of ``keys``; None: it is.

        Raises SigningKeyError.
        """
        if self.signature is None or self._record is None:
            return "it is not signed"
        wrong = is_signed_with(_KIND, self._record, self.signature, keys)
        if wrong is None and not all(frame.digest for frame in self.frames):
            return "its signature does not cover the content of its frames: a digest is missing"
        return wrong

    @classmethod
    def decode(cls, data: _Data, where: str) -> Manifest:
        """Read a manifest. Raises ManifestError, which names ``where`` and what is invalid."""
        line, _, body = data.partition(b"\n")
        words = line.split(b" ")
        if len(words) != 3 or words[0] != b"WANM":
            raise ManifestError(
                f"{where}: not a spark_wan manifest (foreign or empty object). {RESTORE}"
            )
        _, version, checksum = words
        try:
            check_version(int(version))
        except (NewerRecordError, ValueError) as error:
            raise ManifestError(f"{where}: manifest {error}. {UPDATE} {OR_RESTORE}") from error
        if checksum != f"{crc32c(body):08x}".encode():
            raise ManifestError(f"{where}: truncated or altered (checksum). {RESTORE}")
        try:
            record = read_json(body)
            check_requires(record, _KNOWN)
            manifest = from_fields(cls, record)
            if any(frame.rows < 0 or frame.bytes < 0 for frame in manifest.frames):
                raise ValueError("a frame has a negative size")
            if manifest.kind not in KINDS:
                raise NewerRecordError(
                    f"written by a newer spark_wan: its kind is {manifest.kind!r}, unknown to this "
                    "spark_wan"
                )
            if (manifest.kind == COPY) != (manifest.copy is not None):
                raise ValueError(f"its kind is {manifest.kind}, and copy is {manifest.copy}")
            if manifest.copy is not None and not 1 <= manifest.copy.part <= manifest.copy.parts:
                raise ValueError(f"it is part {manifest.copy.part} of {manifest.copy.parts}")
            if manifest.copy is not None and manifest.copy.content not in (ROWS, EVENT_IDS):
                raise ValueError(f"its content is {manifest.copy.content}")
        except NewerRecordError as error:
            raise ManifestError(f"{where}: {error}. {UPDATE}") from error
        except UNREADABLE as error:
            raise ManifestError(
                f"{where}: cannot be read ({error}); no version of spark_wan that this one knows "
                f"wrote it. {RESTORE}"
            ) from error
        manifest._check_names(where)
        if manifest.copy is not None and manifest.copy.refused is not None:
            refused = printable(manifest.copy.refused)
            manifest = replace(manifest, copy=replace(manifest.copy, refused=refused))
        # Of the bytes that were read: encoded again, one of version 1 would have another.
        manifest.__dict__["fingerprint"] = fingerprint(data)
        if manifest.signature is not None:
            manifest.__dict__["_record"] = record
        return manifest

    def _check_names(self, where: str) -> None:
        """Raise UntrustedError for a name that could lead out of a folder."""
        names = {"stream": [self.stream], "origin": [self.origin], "table": [self.table]}
        names |= {"sent_to": [*self.sent_to], "addressees": [*self.addressees]}
        names["dropped"] = [*self.dropped]
        if self.via is not None:
            names["via.stream"] = [self.via.stream]
        if self.root is not None:
            names["root.stream"] = [self.root.stream]
        for where_in, each in names.items():
            for name in each:
                if not is_safe(name):
                    raise UntrustedError(
                        f"{where}: {where_in} is {shown(name)}, which is not a name: it could lead "
                        f"out of its folder. spark_wan did not write this manifest. {RESTORE}"
                    )


_KIND = f"WANM {VERSION}"
_KNOWN = known_names(Manifest) | {f"commits.{name}" for name in ("version", "time", "clock")}
