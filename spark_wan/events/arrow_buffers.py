"""Arrow arrays as numpy arrays, without copies where possible, whatever their buffers hold under
nulls. Each function honours the array's offset: a slice shows its own rows only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Words = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]


def fixed_width(array: pa.Array, dtype: str, per_value: int = 1) -> npt.NDArray[np.generic]:
    """Return the values of an array whose values each are ``per_value`` numbers of a numpy type."""
    start, end = array.offset * per_value, (array.offset + len(array)) * per_value
    return np.frombuffer(array.buffers()[1], dtype=f"<{dtype}", count=end)[start:]


def booleans(array: pa.Array) -> Words:
    """Return 1 where a boolean array is true, else 0."""
    return _bits(array.buffers()[1], array.offset, len(array))


def validity(array: pa.Array) -> Words:
    """Return 0 where an array is null, else 1. The array has nulls."""
    return _bits(array.buffers()[0], array.offset, len(array))


def offsets(array: pa.Array) -> Numbers:
    """Return where the values of each list or string begin in the child or buffer, and the end of
    the last: n + 1 offsets. The array has rows."""
    kind, end = array.type, array.offset + len(array) + 1
    if pa.types.is_fixed_size_list(kind):
        sizes: Numbers = np.arange(array.offset, end) * int(kind.list_size)
        return sizes
    wide = pa.types.is_large_list(kind) or kind in (pa.large_string(), pa.large_binary())
    found = np.frombuffer(array.buffers()[1], dtype="<i8" if wide else "<i4", count=end)
    return found[array.offset :].astype(np.int64)


def _bits(buffer: pa.Buffer, offset: int, count: int) -> Words:
    first, end = offset // 8, (offset + count + 7) // 8
    packed = np.frombuffer(buffer, dtype=np.uint8, count=end - first, offset=first)
    unpacked = np.unpackbits(packed, bitorder="little")
    return unpacked[offset - 8 * first :][:count].astype(np.uint64)
