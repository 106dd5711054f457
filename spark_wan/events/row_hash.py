"""Row hashes: a persisted 128-bit hash of a row's values, the same for every layout of the rows.

They recognise duplicates, are part of the event IDs of keyless tables, and add up to digests that
do not depend on partitioning. **The algorithm is frozen as version 1**, because event IDs derive
from it: another algorithm is another version, beside this one. ``tests/unit/events`` holds golden
values and a plain implementation, value by value, of what is written here. The hash is not
cryptographic: it recognises equal rows and does not stop forgers.

A *word* is an unsigned number of 64 bits; sums and products wrap. A row's hash is two words, from
two *lanes*: the same formulas with different constants, which never meet. In each lane:

- ``mix`` makes every bit of a word depend on every other: in lane 0 the finaliser of splitmix64
  (Stafford's mix 13), in lane 1 that of MurmurHash3 (fmix64).
- ``seed(tag, name)`` tells types and columns apart: a lane's half, little-endian, of the
  BLAKE2b-128 of ``spark_wan.rowhash.1 NUL tag NUL name``. The tag is the type, the name the
  column's or field's in lower case (Spark's columns have no case); inside an array ``element``,
  inside a map ``key`` and ``value``.
- ``POSITION`` and ``LENGTH`` are constants: they tell the order and the number of parts apart.

The hash of a value, by type:

- null: 0. So a null column and a missing one are equal, in structs too, and adding a nullable
  column changes no row.
- integer, float, boolean, date, timestamp, timestamp_ntz: ``mix(w + seed)`` of one word w. Integers
  of every width have one tag and are sign-extended; floats of both widths are doubles. So widening
  a column changes no hash. All NaNs are one; 0.0 and -0.0 differ. Dates are in days and timestamps
  in microseconds since 1970.
- string, binary: the bytes as zero-padded little-endian words w0, w1 …:
  ``mix(w0 + sum(mix(wj + j * POSITION) for j >= 1) + length * LENGTH + seed)``, length in bytes.
- decimal: the same for two words, the magnitude of the unscaled value without trailing zeros
  behind the point, with ``scale + 64 * negative`` as the length. Precision and scale of the column
  do not matter.
- array: ``mix(sum(mix(element_j + j * POSITION)) + length * LENGTH + seed)``, j from 0.
- map, a set of entries: ``mix(sum(mix(key + value)) + length * LENGTH + seed)``.
- struct, and the row itself (tag ``row``, no name): ``mix(sum(fields) + seed)``, so the order of
  fields does not matter. A variant is the struct that Spark hands over (``value``, ``metadata``).
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_wan.errors import SchemaError, UnsupportedTypeError, WanError
from spark_wan.events.arrow_buffers import Numbers, Words, booleans, fixed_width, offsets, validity

VERSION = 1


def _lanes(lane_0: int, lane_1: int) -> Words:
    return np.array([[lane_0], [lane_1]], dtype=np.uint64)


# Inside this module arrays of hashes have the shape (2, n): one numpy call works on both lanes.
_SHIFTS = (_lanes(30, 33), _lanes(27, 33), _lanes(31, 33))
_FACTORS = (
    _lanes(0xBF58476D1CE4E5B9, 0xFF51AFD7ED558CCD),
    _lanes(0x94D049BB133111EB, 0xC4CEB9FE1A85EC53),
)
# Odd: the golden ratio; a prime of xxHash64.
_POSITION = _lanes(0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
_LENGTH = _lanes(0xD6E8FEB86659FD93, 0x165667B19E3779F9)
_NAN = np.uint64(0x7FF8000000000000)
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(9)], dtype=np.uint64)
"""Masks of a word's first n bytes."""

_BLOCK_ROWS = 16384
"""Rows hashed at once: what a block needs stays in the CPU's cache. With 100,000, each row takes
four times as long."""
_BLOCK_WORDS = 32768
"""The same for the words of long strings; it bounds the memory too."""

_TEXTS = (pa.string(), pa.large_string(), pa.string_view())
_BYTES = (*_TEXTS, pa.binary(), pa.large_binary(), pa.binary_view())
_ONE_WORD = {
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.int64()), "integer"),
    **dict.fromkeys((pa.float32(), pa.float64()), "float"),
    pa.bool_(): "boolean",
    pa.date32(): "date",
}
_DIGEST = re.compile(rf"{VERSION}:([0-9]+):([0-9a-f]{{32}})")


def row_hashes(batch: pa.RecordBatch | pa.Table, columns: Sequence[str] | None = None) -> Words:
    """Return the hashes of all rows, shape ``(n, 2)``: 128 bits a row, as two words.

    ``columns`` are those that count (default: all); one that is missing counts as null. Sort,
    compare or join the result's rows by ``hashes.view("V16")`` or by :func:`hex_ids`.

    Raises UnsupportedTypeError for a type that no Delta column has, with the column's path, and
    SchemaError when the names of two columns differ by case alone.

        >>> row_hashes(pa.record_batch({"id": [1, 1], "city": ["Ulm", "Ulm"]})).shape
        (2, 2)
    """
    chosen = None if columns is None else {name.lower() for name in columns}
    fields = [
        (i, field)
        for i, field in enumerate(batch.schema)
        if chosen is None or field.name.lower() in chosen
    ]
    _check_fields([field for _, field in fields], "")
    hashes: Words = np.empty((batch.num_rows, 2), dtype=np.uint64)
    for start in range(0, batch.num_rows, _BLOCK_ROWS):
        rows = hashes[start : start + _BLOCK_ROWS]
        sums: Words = np.zeros((2, len(rows)), dtype=np.uint64)
        for i, field in fields:
            sums += _hash_column(_as_array(batch.column(i).slice(start, len(rows))), field.name)
        rows[:] = _mix(sums + _seed("row", "")).T
    return hashes


def hex_ids(hashes: Words) -> pa.StringArray:
    """Return row hashes as strings of 32 hexadecimal digits, the word of lane 0 first."""
    digits = hashes.astype(">u8").tobytes().hex().encode()
    ends = np.arange(0, 32 * len(hashes) + 1, 32, dtype=np.int32)
    return pa.StringArray.from_buffers(len(hashes), pa.py_buffer(ends), pa.py_buffer(digits))


def digest(hashes: Words) -> str:
    """Return the digest of rows by their hashes, ``version:count:sum``.

    Order and partitioning do not matter, repeated rows do. The sum is that of the hashes, mixed
    once more, modulo 2**128.
    """
    high, low = _mix(np.ascontiguousarray(hashes.T) + _seed("digest", ""))
    low_sum = (int((low >> np.uint64(32)).sum()) << 32) + int((low & np.uint64(0xFFFFFFFF)).sum())
    return _digest_text(len(hashes), (int(high.sum()) << 64) + low_sum)


def combine(digests: Iterable[str]) -> str:
    """Return the digest of all rows together, from the digests of the parts.

    Without parts it is the digest of no rows. Raises WanError for a text that is not a digest of
    this version.
    """
    count = total = 0
    for text in digests:
        parts = _DIGEST.fullmatch(text)
        if parts is None:
            raise WanError(
                f"{text!r} is not a row digest of version {VERSION} (version:count:sum): another "
                "version of spark_wan made it, or it was altered. Compute it again from the rows."
            )
        count += int(parts[1])
        total += int(parts[2], 16)
    return _digest_text(count, total)


def _digest_text(count: int, total: int) -> str:
    return f"{VERSION}:{count}:{total % (1 << 128):032x}"


# --- which types --------------------------------------------------------------------------------


def _check_fields(fields: Iterable[pa.Field], parent: str) -> None:
    """Refuse unknown types before the first row, even where all rows are null."""
    names: set[str] = set()
    for field in fields:
        path = f"{parent}{field.name}"
        if field.name.lower() in names:
            raise SchemaError(
                f"column {path!r} is there twice (case does not count): rename or drop one of the "
                "two"
            )
        names.add(field.name.lower())
        _check_type(field.type, path)


def _check_type(kind: pa.DataType, path: str) -> None:
    types = pa.types
    if types.is_struct(kind):
        _check_fields(kind, f"{path}.")
    elif types.is_map(kind):
        _check_type(kind.key_type, f"{path}.key")
        _check_type(kind.item_type, f"{path}.value")
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        _check_type(kind.value_type, f"{path}.element")
    elif types.is_dictionary(kind):
        _check_type(kind.value_type, path)
    elif not (_one_word_tag(kind) or kind in _BYTES or _is_decimal(kind) or types.is_null(kind)):
        raise UnsupportedTypeError(
            f"column {path!r} has the Arrow type {kind}, which no Delta column has and rows cannot "
            "be compared by: cast the column to a type of Delta, or drop it before the sink"
        )


def _one_word_tag(kind: pa.DataType) -> str | None:
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    return _ONE_WORD.get(kind)


def _is_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal128(kind)) and kind.scale >= 0


# --- hashes -------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def _seed(tag: str, name: str) -> Words:
    # "spark_wan.rowhash" is a name of the format, whatever this module is called.
    text = f"spark_wan.rowhash.{VERSION}\0{tag}\0{name.lower()}"
    words = np.frombuffer(hashlib.blake2b(text.encode(), digest_size=16).digest(), dtype="<u8")
    return words.reshape(2, 1)


def _mix(h: Words) -> Words:
    """Mix both lanes in place: a bijection of words, whose bits each depend on all bits."""
    t = h >> _SHIFTS[0]
    h ^= t
    h *= _FACTORS[0]
    np.right_shift(h, _SHIFTS[1], out=t)
    h ^= t
    h *= _FACTORS[1]
    np.right_shift(h, _SHIFTS[2], out=t)
    h ^= t
    return h


def _hash_column(array: pa.Array, name: str) -> Words:
    """Return the hashes of a column's values, 0 where they are null. A new array, (2, n)."""
    if len(array) == 0 or array.null_count == len(array):  # a null array too
        return np.zeros((2, len(array)), dtype=np.uint64)
    hashes = _hash_values(array, name)
    if array.null_count:
        hashes *= validity(array)
    return hashes


def _hash_values(array: pa.Array, name: str) -> Words:
    """Return the hashes of a column's values, and any words where they are null."""
    types, kind = pa.types, array.type
    if types.is_dictionary(kind):
        return _hash_dictionary(array, name)
    if tag := _one_word_tag(kind):
        content: Words = _one_word(array) + _seed(tag, name)
    elif kind in _BYTES:
        content = _bytes(array) + _seed("string" if kind in _TEXTS else "binary", name)
    elif _is_decimal(kind):
        content = _decimals(array) + _seed("decimal", name)
    elif types.is_struct(kind):
        content = np.zeros((2, len(array)), dtype=np.uint64) + _seed("struct", name)
        for i, field in enumerate(kind):
            content += _hash_column(array.field(i), field.name)
    elif types.is_map(kind):
        at = offsets(array)
        entries = _hash_column(_between(array.keys, at), "key")
        entries += _hash_column(_between(array.items, at), "value")
        content = _sum_parts(_mix(entries), at) + _seed("map", name)
    else:
        at = offsets(array)
        elements = _hash_column(_between(array.values, at), "element")
        positions = np.arange(elements.shape[1]) - np.repeat(at[:-1] - at[0], np.diff(at))
        elements += _word(positions) * _POSITION
        content = _sum_parts(_mix(elements), at) + _seed("array", name)
    return _mix(content)


def _hash_dictionary(array: pa.DictionaryArray, name: str) -> Words:
    """Hash each entry of the dictionary once, unless most of them are unused here."""
    if len(array.dictionary) > len(array):
        return _hash_column(array.dictionary_decode(), name)
    entries = _hash_column(array.dictionary, name)
    indices = array.indices
    sign = "u" if pa.types.is_unsigned_integer(indices.type) else "i"
    positions = fixed_width(indices, f"{sign}{indices.type.bit_width // 8}")
    if array.null_count:
        positions = np.where(validity(array) == 1, positions, 0)
    return entries[:, positions]


def _one_word(array: pa.Array) -> Words:
    """Return each value as one word."""
    kind = array.type
    if pa.types.is_boolean(kind):
        return booleans(array)
    if pa.types.is_floating(kind):
        with np.errstate(invalid="ignore"):  # a signalling NaN
            doubles = fixed_width(array, f"f{kind.bit_width // 8}").astype(np.float64)
        doubles[np.isnan(doubles)] = _NAN.view(np.float64)
        return doubles.view(np.uint64)
    return _word(fixed_width(array, f"i{kind.bit_width // 8}").astype(np.int64, copy=False))


def _bytes(array: pa.Array) -> Words:
    """Return of each string the first word, the mixed other words and the length, summed."""
    if array.type == pa.string_view():
        array = array.cast(pa.large_string())
    elif array.type == pa.binary_view():
        array = array.cast(pa.large_binary())
    at = offsets(array)
    lengths, starts, size = np.diff(at), at[:-1] - at[0], int(at[-1] - at[0])
    padded: npt.NDArray[np.uint8] = np.zeros(size + 8, dtype=np.uint8)
    if size:
        text = np.frombuffer(array.buffers()[2], dtype=np.uint8, count=size, offset=int(at[0]))
        padded[:size] = text
    # The word that begins at each byte.
    words: Words = np.ndarray((size + 1,), dtype="<u8", buffer=padded.data, strides=(1,))
    first_words: Words = words[starts] & _MASKS[np.minimum(lengths, 8)]
    sums: Words = first_words + _word(lengths) * _LENGTH
    long = np.flatnonzero(lengths > 8)
    if len(long):
        sums[:, long] += _other_words(words, starts[long], lengths[long])
    return sums


def _other_words(words: Words, starts: Numbers, lengths: Numbers) -> Words:
    """Return the sum of the mixed words of each string but its first word.

    All strings are longer than one word. The other words of all strings are numbered through, and
    taken in blocks ``low`` to ``high - 1``, which belong to the strings ``first`` to ``last - 1``.
    """
    sums: Words = np.zeros((2, len(starts)), dtype=np.uint64)
    counts = (lengths - 1) // 8
    ends = np.cumsum(counts)
    begins = ends - counts
    total = int(ends[-1])
    for low in range(0, total, _BLOCK_WORDS):
        high = min(low + _BLOCK_WORDS, total)
        first = int(np.searchsorted(ends, low, side="right"))
        last = int(np.searchsorted(ends, high - 1, side="right")) + 1
        here = np.minimum(ends[first:last], high) - np.maximum(begins[first:last], low)
        string = np.repeat(np.arange(first, last), here)
        j = np.arange(low, high) - begins[string] + 1
        mask = _MASKS[np.minimum(lengths[string] - 8 * j, 8)]
        mixed = _mix((words[starts[string] + 8 * j] & mask) + _word(j) * _POSITION)
        sums[:, first:last] += np.add.reduceat(mixed, np.cumsum(here) - here, axis=1)
    return sums


def _decimals(array: pa.Array) -> Words:
    """Return of each decimal the words of its magnitude, its scale and its sign, as one sum."""
    halves: Words = fixed_width(array, "u8", 2).reshape(-1, 2).T.astype(np.uint64, order="C")
    low, high = halves
    negative = high >> np.uint64(63) == 1
    high[negative] = ~high[negative] + (low[negative] == 0)
    low[negative] = ~low[negative] + np.uint64(1)
    scale: Numbers = np.full(len(array), array.type.scale, dtype=np.int64)
    rows = np.flatnonzero(scale > 0)  # those that may have trailing zeros behind the point
    while len(rows):
        quotient_high, quotient_low, rest = _divide_by_ten(high[rows], low[rows])
        even = rest == 0
        rows = rows[even]
        high[rows], low[rows] = quotient_high[even], quotient_low[even]
        scale[rows] -= 1
        rows = rows[scale[rows] > 0]
    sums: Words = low + _mix(high + _POSITION) + _word(scale + 64 * negative) * _LENGTH
    return sums


def _divide_by_ten(high: Words, low: Words) -> tuple[Words, Words, Words]:
    """Return both words of the quotients of 128-bit numbers, and the remainders.

    Long division, by digits of 64, 32 and 32 bits.
    """
    ten, half, half_mask = np.uint64(10), np.uint64(32), np.uint64(0xFFFFFFFF)
    if not high.any():
        quotient = low // ten
        return high, quotient, low - quotient * ten
    quotient_high = high // ten
    middle = ((high - quotient_high * ten) << half) | (low >> half)
    quotient_middle = middle // ten
    last = ((middle - quotient_middle * ten) << half) | (low & half_mask)
    quotient_last = last // ten
    return quotient_high, (quotient_middle << half) | quotient_last, last - quotient_last * ten


def _sum_parts(hashes: Words, at: Numbers) -> Words:
    """Return for each list the sum of its parts' hashes and its length."""
    lengths = np.diff(at)
    sums = _word(lengths) * _LENGTH
    filled = np.flatnonzero(lengths)  # reduceat has no notion of an empty slice
    if len(filled):
        sums[:, filled] += np.add.reduceat(hashes, at[filled] - at[0], axis=1)
    return sums


def _word(numbers: Numbers) -> Words:
    return numbers.view(np.uint64)


def _between(parts: pa.Array, at: Numbers) -> pa.Array:
    return parts.slice(int(at[0]), int(at[-1] - at[0]))


def _as_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
