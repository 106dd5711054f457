"""Frames as bytes. No Spark, no pickle, no eval.

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

import hashlib
import json
import struct
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from spark_wan.errors import FrameError, NewerRecordError
from spark_wan.wire.arrow_ipc import MALFORMED, declared_bytes
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
    read_json,
)

_MAGIC = b"WANF"
_FIXED = struct.Struct("<4sHHIQ")
_CHECKSUM = struct.Struct("<I")
_IPC = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1))
_SAMPLE = 1024
_MOST_HEADER = 2**20
ROW_BYTES = 16
"""What each row of a frame counts, at least: receivers add columns that a frame does not have."""
MAX_FRAME_BYTES = 2**30
"""Size of a frame's rows in memory, at most, unless a setting says otherwise."""


@dataclass(frozen=True)
class FrameHeader:
    """Where a frame comes from, which sites get it, and what its rows are."""

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
        fields = read_json(text)
        check_requires(fields, _KNOWN)
        header = from_fields(cls, fields)
        if header.events < 0:
            raise ValueError("events is negative")
        return header


@dataclass(frozen=True)
class FrameRef:
    """How a manifest names a frame: its path, size, and the checksum that it must have."""

    path: str
    rows: int
    bytes: int
    checksum: int
    digest: str = ""
    """Of all bytes of the frame (:func:`frame_digest`); empty: the manifest is not signed."""


def encode_frame(header: FrameHeader, batch: pa.RecordBatch) -> bytes:
    """Return header and events as a frame."""
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


def frame_digest(data: bytes) -> str:
    """Return the digest of a frame, BLAKE2b-256 in hexadecimal. A checksum shows what was damaged;
    this shows also what was altered on purpose, where the manifest that has it is signed."""
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def check_frame(data: bytes, where: str, ref: FrameRef | None = None) -> FrameHeader:
    """Check a frame without decoding its payload; return its header.

    Checks magic, version, lengths and checksum, and that the frame is the one that ``ref`` names:
    by its size, its checksum, and its digest if the manifest has one. Raises FrameError, which
    names ``where`` and what is invalid.
    """
    if ref is not None and ref.digest and ref.digest != frame_digest(data):
        raise FrameError(
            f"{where}: it is not the frame that its signed manifest names: another digest. Someone "
            f"has replaced it. {RESTORE}"
        )
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
    data: bytes, where: str, ref: FrameRef | None = None, max_bytes: int = MAX_FRAME_BYTES
) -> tuple[FrameHeader, pa.RecordBatch]:
    """Check a frame and return its header and events, dictionaries decoded. Raises FrameError: also
    for a frame that would unpack to more than ``max_bytes``, before it is unpacked."""
    header = check_frame(data, where, ref)
    start = _FIXED.size + _fixed(data, where)[0] + _CHECKSUM.size
    try:
        _check_size(declared_bytes(memoryview(data)[start:], max_bytes), max_bytes, where)
        _check_size(ROW_BYTES * header.events, max_bytes, where)
        with pa.ipc.open_stream(pa.py_buffer(data)[start:]) as reader:
            _check_columns(reader.schema)
            batch = reader.read_next_batch()
        batch.validate(full=True)  # wrong offsets would make Arrow read anywhere
    except (pa.ArrowException, StopIteration, OSError, MemoryError, *MALFORMED) as error:
        raise FrameError(
            f"{where}: its payload is not an Arrow IPC stream that spark_wan writes ({error}). "
            f"{RESTORE}"
        ) from error
    if batch.num_rows != header.events:
        raise FrameError(
            f"{where}: {batch.num_rows} rows where its header says {header.events} events. "
            f"{RESTORE}"
        )
    # The other columns are as large as what was declared.
    columns = batch.columns
    coded = [column for column in columns if pa.types.is_dictionary(column.type)]
    _check_size(sum(_decoded_bytes(column, max_bytes) for column in coded), max_bytes, where)
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in columns
    ]
    return header, _with_columns(batch, columns)


def unpacked_bytes(data: bytes, batch: pa.RecordBatch) -> int:
    """Return the size for which a reader needs room to decode a frame, ``data``, of ``batch``."""
    start = _FIXED.size + _fixed(data, "frame")[0] + _CHECKSUM.size
    declared = declared_bytes(memoryview(data)[start:], 2**63)
    sizes: list[int] = [declared, batch.nbytes, ROW_BYTES * batch.num_rows]
    return max(sizes)


def most_bytes(ref: FrameRef, where: str, max_bytes: int = MAX_FRAME_BYTES) -> int:
    """Return how many bytes to read of the object that should be a frame. Raises FrameError when
    its manifest says more than a frame can have that unpacks to ``max_bytes``."""
    if ref.bytes > max_bytes + max_bytes // 64 + _MOST_HEADER:
        _check_size(ref.bytes, max_bytes, where)
    return ref.bytes


def _check_size(size: int, max_bytes: int, where: str) -> None:
    if size > max_bytes:
        raise FrameError(
            f"{where}: it would unpack to {size:,} bytes or more; max_frame_bytes of this site "
            f"allows {max_bytes:,}. It was not unpacked. Its stream is held. If its sender meant "
            "it, raise max_frame_bytes; else find out who wrote it."
        )


def _check_columns(schema: pa.Schema) -> None:
    """Raise ValueError for what the encoder never writes: what may grow when it is decoded, and
    names that are not UTF-8."""
    for field in schema:
        kind, _ = field.type, field.name
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                raise ValueError(f"a dictionary of {kind}")
        _check_type(kind)


def _check_type(kind: pa.DataType) -> None:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType) or any(
        is_it(kind)
        for is_it in (
            types.is_dictionary,
            types.is_run_end_encoded,
            types.is_list_view,
            types.is_large_list_view,
            types.is_string_view,
            types.is_binary_view,
            types.is_union,
            types.is_fixed_size_list,
        )
    ):
        raise ValueError(f"a column of type {kind}")
    if types.is_nested(kind):
        for number in range(kind.num_fields):
            inner, _ = kind.field(number), kind.field(number).name
            _check_type(inner.type)


def _decoded_bytes(column: pa.DictionaryArray, max_bytes: int) -> int:
    """Return the size of a dictionary-encoded column of text once it is decoded; or a larger one,
    if that is far below ``max_bytes``."""
    width = 4 if pa.types.is_string(column.type.value_type) else 8
    most: int = (column.dictionary.nbytes + width) * (len(column) + 1)
    if most <= max_bytes // 8:
        return most
    lengths = pc.fill_null(pc.binary_length(column.dictionary), 0).cast(pa.int64())
    used = pc.sum(lengths.take(column.indices)).as_py() or 0
    return int(used) + width * (len(column) + 1)


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
    # Rows mostly come sorted by key, so the first ones say little: sample rows all over the batch.
    step = max(1, len(column) // _SAMPLE)
    sample = column.take(pa.array(np.arange(0, len(column), step)))
    return len(sample) >= 8 and len(sample.unique()) * 2 <= len(sample)


_KNOWN = known_names(FrameHeader)
