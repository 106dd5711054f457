"""The wire format: frames (gateway batches) and manifests. No Spark, no pickle, no eval.

Frame, all integers little-endian::

    magic  b"WANF"   4 bytes
    wire version     u16      (1)
    flags            u16      (0, reserved)
    header length    u32
    payload length   u64
    header           compact JSON, UTF-8
    checksum         u32      CRC-32C of everything before it, then of the payload
    payload          Arrow IPC stream, one record batch, zstd

Any Arrow implementation can read the payload. A frame does not know its epoch: the manifest that names it decides that, so a
frame of a failed, speculative or zombie attempt stays nameless (docs/decisions/0002).

Manifest: one line ``WANM <version> <CRC-32C of the rest, 8 hex digits>`` and a JSON object.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

import pyarrow as pa
from crc32c import crc32c

from spark_wan.errors import FrameError, ManifestError

WIRE_VERSION = 1
MANIFEST_VERSION = 1
_MAGIC = b"WANF"
_FIXED = struct.Struct("<4sHHIQ")
_CHECKSUM = struct.Struct("<I")
_IPC = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1))
_SAMPLE = 1024
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
_RESTORE = "Its stream is held. Restore the object from a backup or another version of it; without it the remote site needs a full copy."
_UPDATE = "Its stream is held. Update spark_wan at this site."
_Data = bytes  # where a class has a member called bytes


@dataclass(frozen=True)
class FrameHeader:
    """Provenance of a gateway batch: where it began, whom it was sent to, and what its rows are."""

    origin: str
    sent_to: tuple[str, ...]
    stream: str
    table: str
    table_id: str
    selection: str
    schema: str
    """Fingerprint of the table's columns; the columns themselves stand in the manifest."""
    attempt: str
    index: int
    events: int

    @classmethod
    def from_json(cls, text: bytes) -> FrameHeader:
        fields = json.loads(text)
        return cls(**{**fields, "sent_to": tuple(fields["sent_to"])})


def known_fields(kind: type, record: Mapping[str, Any]) -> dict[str, Any]:
    """What ``kind`` knows of a record's fields: another version may have written more."""
    return {each.name: record[each.name] for each in fields(kind) if each.name in record}


@dataclass(frozen=True)
class FrameRef:
    """How a manifest names a frame: where it is, its size, and the checksum that it must have."""

    path: str
    rows: int
    bytes: int
    checksum: int


def encode_frame(header: FrameHeader, batch: pa.RecordBatch) -> bytes:
    """Encode one gateway batch. Strings are dictionary-encoded where that pays."""
    sink = pa.BufferOutputStream()
    packed = _dictionaries(batch)
    with pa.ipc.new_stream(sink, packed.schema, options=_IPC) as writer:
        writer.write_batch(packed)
    payload = sink.getvalue()
    head = json.dumps(asdict(header), separators=(",", ":")).encode()
    start = _FIXED.pack(_MAGIC, WIRE_VERSION, 0, len(head), payload.size) + head
    checksum = crc32c(payload, crc32c(start))
    return b"".join((start, _CHECKSUM.pack(checksum), payload))


def frame_checksum(data: bytes) -> int:
    """The checksum that a frame carries (not computed anew)."""
    head, _ = _fixed(data, "frame")
    return int(_CHECKSUM.unpack_from(data, _FIXED.size + head)[0])


def check_frame(data: bytes, where: str, ref: FrameRef | None = None) -> FrameHeader:
    """Check magic, version, length and checksum, and that the frame is the one that ``ref`` names. Decodes no payload.

    Raises FrameError, which names ``where`` and what is wrong.
    """
    head, payload = _fixed(data, where)
    end = _FIXED.size + head
    if len(data) != end + _CHECKSUM.size + payload:
        raise FrameError(
            f"{where}: truncated or overlong: {len(data)} bytes where the frame's own header says "
            f"{end + _CHECKSUM.size + payload}. {_RESTORE}"
        )
    found = int(_CHECKSUM.unpack_from(data, end)[0])
    view = memoryview(data)
    actual = crc32c(view[end + _CHECKSUM.size :], crc32c(view[:end]))
    expected = found if ref is None else ref.checksum
    if actual != found or actual != expected:
        raise FrameError(
            f"{where}: altered: checksum {actual:08x}, but {found:08x} in the frame and {expected:08x} in its manifest. {_RESTORE}"
        )
    try:
        return FrameHeader.from_json(bytes(view[_FIXED.size : end]))
    except _UNREADABLE as error:
        raise FrameError(
            f"{where}: its header cannot be read ({error}); it was not written by spark_wan. {_RESTORE}"
        ) from error


def decode_frame(data: bytes, where: str, ref: FrameRef | None = None) -> tuple[FrameHeader, pa.RecordBatch]:
    """Check a frame and decode its payload; dictionaries are unpacked. Raises FrameError."""
    header = check_frame(data, where, ref)
    head, _ = _fixed(data, where)
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)[_FIXED.size + head + _CHECKSUM.size :]) as reader:
            batch = reader.read_next_batch()
    except (pa.ArrowException, StopIteration, OSError) as error:
        raise FrameError(f"{where}: its payload is not an Arrow IPC stream ({error}). {_RESTORE}") from error
    if batch.num_rows != header.events:
        raise FrameError(f"{where}: {batch.num_rows} rows where its header says {header.events} events. {_RESTORE}")
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in batch.columns
    ]
    fields = [field.with_type(column.type) for field, column in zip(batch.schema, columns, strict=True)]
    return header, pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _fixed(data: bytes, where: str) -> tuple[int, int]:
    """The lengths of header and payload, once magic, version and flags are known to be good."""
    if len(data) < _FIXED.size or data[:4] != _MAGIC:
        raise FrameError(f"{where}: not a spark_wan frame (foreign or empty object). {_RESTORE}")
    _, version, flags, head, payload = _FIXED.unpack_from(data)
    if version != WIRE_VERSION:
        raise FrameError(f"{where}: wire version {version}; this spark_wan reads version {WIRE_VERSION}. {_UPDATE}")
    if flags:
        raise FrameError(
            f"{where}: flags {flags:#x}, which this spark_wan does not know. {_UPDATE} If no newer one wrote it: {_RESTORE}"
        )
    if len(data) < _FIXED.size + head + _CHECKSUM.size:
        raise FrameError(f"{where}: truncated inside its header. {_RESTORE}")
    return head, payload


def _dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns, fields = [], []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if _repeats(column):
            column = column.dictionary_encode()
            field = field.with_type(column.type)
        columns.append(column)
        fields.append(field)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _repeats(column: pa.Array) -> bool:
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return False
    # Rows come sorted by key, so a run at the start says little: look at rows spread over the batch.
    step = max(1, len(column) // _SAMPLE)
    sample = column.take(pa.array(range(0, len(column), step), pa.int64()))
    return len(sample) >= 8 and len(sample.unique()) * 2 <= len(sample)


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

    ``kind`` is ``capture`` (the commits ``first`` to ``last`` of the source, whole), ``snapshot`` (the rows that were
    there at version ``last``; stands for everything through it, ``first`` is 0) or ``events`` (a user's stream; ``first`` and
    ``last`` are -1). ``start`` says that nothing before ``first`` belongs to the stream: a receiver that has
    nothing of the table may begin here.
    """

    stream: str
    incarnation: str
    number: int
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
    first: int
    last: int
    start: bool
    commits: tuple[CommitRef, ...]
    identity: str
    """Of the source's commit ``last``: operation, parameters, metrics and time, hashed."""
    frames: tuple[FrameRef, ...]
    disjoint: bool
    """No key stands in two of the frames."""
    generation: int
    created: int
    """Milliseconds since 1970 UTC, by the sender's clock."""
    writes: tuple[WriteRef, ...] = ()

    @property
    def rows(self) -> int:
        return sum(frame.rows for frame in self.frames)

    @property
    def bytes(self) -> int:
        return sum(frame.bytes for frame in self.frames)

    @cached_property
    def fingerprint(self) -> str:
        """Of the manifest as it is encoded: what the next one calls its ``previous``."""
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
            raise ManifestError(f"{where}: not a spark_wan manifest (foreign or empty object). {_RESTORE}")
        if words[1] != str(MANIFEST_VERSION).encode():
            raise ManifestError(
                f"{where}: manifest version {words[1].decode(errors='replace')}; this spark_wan reads version "
                f"{MANIFEST_VERSION}. {_UPDATE}"
            )
        if words[2] != f"{crc32c(body):08x}".encode():
            raise ManifestError(f"{where}: truncated or altered (checksum). {_RESTORE}")
        try:
            fields = json.loads(body)
            for name in ("sent_to", "addressees", "keys"):
                fields[name] = tuple(fields[name])
            fields["commits"] = tuple(CommitRef(**entry) for entry in fields["commits"])
            fields["frames"] = tuple(FrameRef(**entry) for entry in fields["frames"])
            fields["writes"] = tuple(WriteRef(**entry) for entry in fields["writes"])
            return cls(**fields)
        except _UNREADABLE as error:
            raise ManifestError(
                f"{where}: cannot be read ({error}); it was not written by this version of spark_wan. {_RESTORE}"
            ) from error
