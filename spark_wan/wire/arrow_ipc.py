"""How much an Arrow IPC stream says that it unpacks to, read before anything is unpacked.

Arrow allocates what the stream declares: a few kilobytes may declare terabytes. So the lengths are
read first, from the stream's metadata (Flatbuffers, Message.fbs of Arrow) and the first 8 bytes of
each compressed buffer. A length that lies cannot do harm: Arrow unpacks into a buffer of that
length, and refuses what does not fit exactly.
"""

from __future__ import annotations

import struct

_CONTINUATION = 0xFFFFFFFF
_DICTIONARY, _RECORD_BATCH = 2, 3
_HEADER_TYPE, _HEADER, _BODY_LENGTH = 1, 2, 3  # fields of Message
_DATA = 1  # of DictionaryBatch
_LENGTH, _BUFFERS, _COMPRESSION = 0, 2, 3  # of RecordBatch

MALFORMED = (struct.error, IndexError, ValueError)
"""What :func:`declared_bytes` raises for a stream that is none."""


def declared_bytes(stream: memoryview, limit: int) -> int:
    """Return the size of all buffers of a stream once they are unpacked, or some size above
    ``limit``. Of the rows, each counts as a byte at least."""
    total, at = 0, 0
    while at < len(stream):
        mark, size = struct.unpack_from("<II", stream, at)
        if mark != _CONTINUATION:
            raise ValueError("no message where one should begin")
        if size == 0:
            break
        at += 8
        metadata = stream[at : at + size]
        if len(metadata) != size:
            raise ValueError("a message is cut off")
        at += size
        message = _table(metadata, 0)
        body = _scalar(metadata, message, _BODY_LENGTH, "<q")
        if not 0 <= body <= len(stream) - at:
            raise ValueError("the body of a message is cut off")
        kind = _scalar(metadata, message, _HEADER_TYPE, "<B")
        header = _inner(metadata, message, _HEADER)
        if kind == _DICTIONARY and header is not None:
            header = _inner(metadata, header, _DATA)
        if kind in (_DICTIONARY, _RECORD_BATCH) and header is not None:
            total += _batch_bytes(metadata, header, stream[at : at + body], limit - total)
            if total > limit:
                return total
        at += body
    return int(total)


def _batch_bytes(metadata: memoryview, batch: int, body: memoryview, limit: int) -> int:
    rows = _scalar(metadata, batch, _LENGTH, "<q")
    if rows < 0:
        raise ValueError("a negative number of rows")
    is_compressed = _inner(metadata, batch, _COMPRESSION) is not None
    vector = _inner(metadata, batch, _BUFFERS)
    total: int = 0
    if vector is not None:
        (count,) = struct.unpack_from("<I", metadata, vector)
        if count * 16 > len(metadata) - vector - 4:
            raise ValueError("more buffers than there is room for")
        for offset, length in struct.iter_unpack(
            "<qq", metadata[vector + 4 : vector + 4 + 16 * count]
        ):
            if offset < 0 or length < 0 or offset + length > len(body):
                raise ValueError("a buffer is outside the body of its message")
            if is_compressed and length:
                (unpacked,) = struct.unpack_from("<q", body[offset : offset + length])
                length = length - 8 if unpacked == -1 else unpacked
                if length < 0:
                    raise ValueError("a buffer has a negative length")
            total += length
            if total > limit:
                return total
    return total if total > rows else rows


def _table(data: memoryview, at: int) -> int:
    """Return the place to which an offset leads."""
    (offset,) = struct.unpack_from("<I", data, at)
    place: int = at + offset
    if place >= len(data):
        raise ValueError("an offset leads out of the metadata")
    return place


def _field(data: memoryview, table: int, number: int) -> int | None:
    """Return the place of a table's field, None when it is absent."""
    (back,) = struct.unpack_from("<i", data, table)
    vtable = table - back
    if not 0 <= vtable <= len(data) - 4:
        raise ValueError("a table is outside the metadata")
    (size,) = struct.unpack_from("<H", data, vtable)
    if 4 + 2 * number + 2 > size:
        return None
    (offset,) = struct.unpack_from("<H", data, vtable + 4 + 2 * number)
    return table + offset if offset else None


def _scalar(data: memoryview, table: int, number: int, form: str) -> int:
    place = _field(data, table, number)
    if place is None:
        return 0
    value: int = struct.unpack_from(form, data, place)[0]
    return value


def _inner(data: memoryview, table: int, number: int) -> int | None:
    place = _field(data, table, number)
    return None if place is None else _table(data, place)
