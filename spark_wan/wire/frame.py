"""Frames: gateway batches as bytes. No Spark, no pickle, no eval.

``frames/<stream>/<attempt>-<index>.frame`` in the channel. Integers are little-endian:

===============  ========  ========================================================================
magic            4 bytes   ``WANF``
version          u16       2; version 1 differs in nothing but its number
flags            u16       0, reserved
header length    u32       in bytes
payload length   u64       in bytes
header           bytes     a JSON object in UTF-8, without blanks between its parts
checksum         u32       CRC-32C of all before it, then of the payload
payload          bytes     Arrow IPC stream of one record batch, zstd; any Arrow implementation
                           reads it
===============  ========  ========================================================================

The fields of the header, all of which must be there. Others are ignored, unless ``requires`` lists
them (:mod:`spark_wan.wire.records`):

==============  ===============  ==================================================================
``origin``      string           the sender's site
``sent_to``     list of strings  sites that get these events, by any sender of ``origin``
``stream``      string           the stream
``table``       string           the table's name in the topology
``table_id``    string           Delta's ID of the source table; ``events``: a user stream
``selection``   string           ``all``
``schema``      string           fingerprint of the table's columns; the manifest has the columns
``attempt``     string           32 hexadecimal digits; see :mod:`spark_wan.channels.base`
``index``       int              number of the frame in its attempt, from 0
``events``      int              rows of the payload
==============  ===============  ==================================================================

The payload's columns are the table's and those of :mod:`spark_wan.events.operations`. Strings are
dictionary-encoded where a sample shows that this is smaller. A frame does not know its epoch: the
manifest that names it decides that, so a frame of a failed, speculative or zombie attempt belongs
to none (docs/decisions/0002).
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass

import pyarrow as pa
from crc32c import crc32c

from spark_wan.errors import FrameError, NewerRecordError
from spark_wan.wire.records import (
    OR_RESTORE,
    RESTORE,
    UNREADABLE,
    UPDATE,
    VERSION,
    check_requires,
    check_version,
    from_fields,
    known_names,
)

_MAGIC = b"WANF"
_FIXED = struct.Struct("<4sHHIQ")
_CHECKSUM = struct.Struct("<I")
_IPC = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1))
_SAMPLE = 1024


@dataclass(frozen=True)
class FrameHeader:
    """Where a gateway batch comes from, which sites get it, and what its rows are."""

    origin: str
    sent_to: tuple[str, ...]
    stream: str
    table: str
    table_id: str
    selection: str
    schema: str
    attempt: str
    index: int
    events: int

    @classmethod
    def from_json(cls, text: bytes) -> FrameHeader:
        """Read a header. Raises NewerRecordError, and UNREADABLE errors for any other text."""
        fields = json.loads(text)
        check_requires(fields, known_names(cls))
        return from_fields(cls, {**fields, "sent_to": tuple(fields["sent_to"])})


@dataclass(frozen=True)
class FrameRef:
    """How a manifest names a frame: its path, size, and the checksum that it must have."""

    path: str
    rows: int
    bytes: int
    checksum: int


def encode_frame(header: FrameHeader, batch: pa.RecordBatch) -> bytes:
    """Return a gateway batch as a frame."""
    sink = pa.BufferOutputStream()
    columns = [c.dictionary_encode() if _repeats(c) else c for c in batch.columns]
    packed = _with_columns(batch, columns)
    with pa.ipc.new_stream(sink, packed.schema, options=_IPC) as writer:
        writer.write_batch(packed)
    payload = sink.getvalue()
    head = json.dumps(asdict(header), separators=(",", ":")).encode()
    start = _FIXED.pack(_MAGIC, VERSION, 0, len(head), payload.size) + head
    checksum = crc32c(payload, crc32c(start))
    return b"".join((start, _CHECKSUM.pack(checksum), payload))


def frame_checksum(data: bytes) -> int:
    """Return the checksum that a frame carries, without computing it."""
    head, _ = _fixed(data, "frame")
    return int(_CHECKSUM.unpack_from(data, _FIXED.size + head)[0])


def check_frame(data: bytes, where: str, ref: FrameRef | None = None) -> FrameHeader:
    """Check a frame without decoding its payload; return its header.

    Checks magic, version, lengths and checksum, and that the frame is the one that ``ref`` names.
    Raises FrameError, which names ``where`` and what is invalid.
    """
    head, payload = _fixed(data, where)
    end = _FIXED.size + head
    if len(data) != end + _CHECKSUM.size + payload:
        raise FrameError(
            f"{where}: truncated or overlong: {len(data)} bytes, but its own header says "
            f"{end + _CHECKSUM.size + payload}. {RESTORE}"
        )
    carried = int(_CHECKSUM.unpack_from(data, end)[0])
    view = memoryview(data)
    actual = crc32c(view[end + _CHECKSUM.size :], crc32c(view[:end]))
    expected = carried if ref is None else ref.checksum
    if actual != carried or actual != expected:
        raise FrameError(
            f"{where}: altered: checksum {actual:08x}, but {carried:08x} in the frame and "
            f"{expected:08x} in its manifest. {RESTORE}"
        )
    try:
        return FrameHeader.from_json(bytes(view[_FIXED.size : end]))
    except NewerRecordError as error:
        raise FrameError(f"{where}: its header was {error}. {UPDATE}") from error
    except UNREADABLE as error:
        raise FrameError(
            f"{where}: its header cannot be read ({error}); spark_wan did not write it. {RESTORE}"
        ) from error


def decode_frame(
    data: bytes, where: str, ref: FrameRef | None = None
) -> tuple[FrameHeader, pa.RecordBatch]:
    """Check a frame and return its header and events, dictionaries decoded. Raises FrameError."""
    header = check_frame(data, where, ref)
    payload_at = _FIXED.size + _fixed(data, where)[0] + _CHECKSUM.size
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)[payload_at:]) as reader:
            batch = reader.read_next_batch()
    except (pa.ArrowException, StopIteration, OSError) as error:
        raise FrameError(
            f"{where}: its payload is not an Arrow IPC stream ({error}). {RESTORE}"
        ) from error
    if batch.num_rows != header.events:
        raise FrameError(
            f"{where}: {batch.num_rows} rows where its header says {header.events} events. "
            f"{RESTORE}"
        )
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return header, _with_columns(batch, columns)


def _fixed(data: bytes, where: str) -> tuple[int, int]:
    """Return the lengths of header and payload, after checking magic, version and flags."""
    if len(data) < _FIXED.size or data[:4] != _MAGIC:
        raise FrameError(f"{where}: not a spark_wan frame (foreign or empty object). {RESTORE}")
    _, version, flags, head, payload = _FIXED.unpack_from(data)
    try:
        check_version(version)
    except (NewerRecordError, ValueError) as error:
        raise FrameError(f"{where}: frame {error}. {UPDATE} {OR_RESTORE}") from error
    if flags:
        raise FrameError(
            f"{where}: flags {flags:#x}, which this spark_wan does not know. {UPDATE} {OR_RESTORE}"
        )
    if len(data) < _FIXED.size + head + _CHECKSUM.size:
        raise FrameError(f"{where}: truncated inside its header. {RESTORE}")
    return head, payload


def _with_columns(batch: pa.RecordBatch, columns: list[pa.Array]) -> pa.RecordBatch:
    """Return a batch with its columns replaced by ones of the same names, and no metadata."""
    pairs = zip(batch.schema, columns, strict=True)
    fields = [field.with_type(column.type) for field, column in pairs]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _repeats(column: pa.Array) -> bool:
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return False
    # Rows come sorted by key, so the first ones say little: sample rows all over the batch.
    step = max(1, len(column) // _SAMPLE)
    sample = column.take(pa.array(range(0, len(column), step), pa.int64()))
    return len(sample) >= 8 and len(sample.unique()) * 2 <= len(sample)
