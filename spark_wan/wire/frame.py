"""Frames: gateway batches as bytes. No Spark, no pickle, no eval.

A frame, all integers little-endian::

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
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass

import pyarrow as pa
from crc32c import crc32c

from spark_wan.errors import FrameError
from spark_wan.wire.records import RESTORE, UNREADABLE, UPDATE

WIRE_VERSION = 1
_MAGIC = b"WANF"
_FIXED = struct.Struct("<4sHHIQ")
_CHECKSUM = struct.Struct("<I")
_IPC = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1))
_SAMPLE = 1024


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
            f"{end + _CHECKSUM.size + payload}. {RESTORE}"
        )
    found = int(_CHECKSUM.unpack_from(data, end)[0])
    view = memoryview(data)
    actual = crc32c(view[end + _CHECKSUM.size :], crc32c(view[:end]))
    expected = found if ref is None else ref.checksum
    if actual != found or actual != expected:
        raise FrameError(
            f"{where}: altered: checksum {actual:08x}, but {found:08x} in the frame and {expected:08x} in its manifest. {RESTORE}"
        )
    try:
        return FrameHeader.from_json(bytes(view[_FIXED.size : end]))
    except UNREADABLE as error:
        raise FrameError(
            f"{where}: its header cannot be read ({error}); it was not written by spark_wan. {RESTORE}"
        ) from error


def decode_frame(
    data: bytes, where: str, ref: FrameRef | None = None
) -> tuple[FrameHeader, pa.RecordBatch]:
    """Check a frame and decode its payload; dictionaries are unpacked. Raises FrameError."""
    header = check_frame(data, where, ref)
    head, _ = _fixed(data, where)
    try:
        with pa.ipc.open_stream(
            pa.py_buffer(data)[_FIXED.size + head + _CHECKSUM.size :]
        ) as reader:
            batch = reader.read_next_batch()
    except (pa.ArrowException, StopIteration, OSError) as error:
        raise FrameError(
            f"{where}: its payload is not an Arrow IPC stream ({error}). {RESTORE}"
        ) from error
    if batch.num_rows != header.events:
        raise FrameError(
            f"{where}: {batch.num_rows} rows where its header says {header.events} events. {RESTORE}"
        )
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    fields = [
        field.with_type(column.type) for field, column in zip(batch.schema, columns, strict=True)
    ]
    return header, pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _fixed(data: bytes, where: str) -> tuple[int, int]:
    """The lengths of header and payload, once magic, version and flags are known to be good."""
    if len(data) < _FIXED.size or data[:4] != _MAGIC:
        raise FrameError(f"{where}: not a spark_wan frame (foreign or empty object). {RESTORE}")
    _, version, flags, head, payload = _FIXED.unpack_from(data)
    if version != WIRE_VERSION:
        raise FrameError(
            f"{where}: wire version {version}; this spark_wan reads version {WIRE_VERSION}. {UPDATE}"
        )
    if flags:
        raise FrameError(
            f"{where}: flags {flags:#x}, which this spark_wan does not know. {UPDATE} If no newer one wrote it: {RESTORE}"
        )
    if len(data) < _FIXED.size + head + _CHECKSUM.size:
        raise FrameError(f"{where}: truncated inside its header. {RESTORE}")
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
