"""Row hashes: a persisted 128-bit content hash of rows, the same wherever and however the rows are laid out.

It recognises duplicates, names the events of keyless tables and makes digests that do not depend on partitioning.
**Version 1; the algorithm is frozen** (event IDs derive from it and must stay the same for ever): another algorithm is
another version, beside this one. ``tests/unit/events/test_rowhash.py`` holds golden values and a plain re-implementation,
value by value, of what is said here. Not cryptographic: it recognises equal rows, it does not stop forgers.

A hash is a function of the *values* alone. All sums and products wrap at 64 bits; the two lanes never meet:

- ``seed(tag, name)``: BLAKE2b-128 of ``spark_wan.rowhash.1 NUL tag NUL name``, two little-endian words, one a lane;
  ``name`` is the column's in lower case (Spark's columns have no case); inside arrays ``element``, in maps ``key``
  and ``value``.
- ``mix``: lane 0 is the finaliser of splitmix64 (Stafford's mix 13), lane 1 that of MurmurHash3 (fmix64).
- a value of one word w (see ``_one_word``): ``mix(w + seed)``. Integers of every width are one kind, and so are floats:
  widening a column changes no hash. There is one NaN; 0.0 and -0.0 differ; timestamps with and without zone differ.
- string and binary, as zero-padded little-endian words w0, w1 …, and their length in bytes:
  ``mix(w0 + sum(mix(wj + j * POSITION) for j >= 1) + length * LENGTH + seed)``.
- decimal: the same of two words, the magnitude of the unscaled value without trailing zeros behind the point, and
  ``scale + 64 * negative`` in place of the length: precision and scale of the column do not matter.
- array: ``mix(sum(mix(element_j + j * POSITION)) + length * LENGTH + seed)``, j from 0.
- map (a set of entries): ``mix(sum(mix(key + value)) + length * LENGTH + seed)``.
- struct, and the row itself (tag ``row``, no name): ``mix(sum(fields) + seed)``, so the order of fields does not
  matter. A variant is the struct that Spark hands over (``value``, ``metadata``).
- null: 0. So a null column and a missing one are the same, in structs too: adding a nullable column changes no row.
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

VERSION = 1

Words = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]


def _lanes(lane_0: int, lane_1: int) -> Words:
    return np.array([[lane_0], [lane_1]], dtype=np.uint64)


# Arrays of hashes have the shape (2, n) inside this module: one numpy call works on both lanes.
_SHIFTS = (_lanes(30, 33), _lanes(27, 33), _lanes(31, 33))
_FACTORS = (
    _lanes(0xBF58476D1CE4E5B9, 0xFF51AFD7ED558CCD),
    _lanes(0x94D049BB133111EB, 0xC4CEB9FE1A85EC53),
)
_POSITION = _lanes(
    0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
)  # odd: the golden ratio; a prime of xxHash64
_LENGTH = _lanes(0xD6E8FEB86659FD93, 0x165667B19E3779F9)
_NAN = np.uint64(0x7FF8000000000000)
_FIRST_BYTES = np.array(
    [(1 << 8 * n) - 1 for n in range(9)], dtype=np.uint64
)  # masks of a word's first n bytes

_BLOCK_ROWS = 16384  # the temporaries of a block stay in the CPU's cache (100,000 rows at once: a quarter of the speed)
_BLOCK_WORDS = 32768  # the same for the words of long strings; bounds the memory too


def row_hashes(batch: pa.RecordBatch | pa.Table, columns: Sequence[str] | None = None) -> Words:
    """The content hashes of all rows, shape ``(n, 2)``: 128 bits a row, as two words.

    ``columns`` chooses the columns that count (default: all); a chosen one that is missing counts as null.
    Sort, compare or join the rows of the result by ``hashes.view("V16")`` or by :func:`hex_ids`.

    Raises UnsupportedTypeError for a type that no Delta column has, by the column's path, and SchemaError when two
    columns have the same name but for case.

        >>> row_hashes(pa.record_batch({"id": [1, 1], "city": ["Ulm", "Ulm"]})).shape
        (2, 2)
    """
    chosen = None if columns is None else {name.lower() for name in columns}
    fields = [
        (i, f) for i, f in enumerate(batch.schema) if chosen is None or f.name.lower() in chosen
    ]
    _check_fields([field for _, field in fields], "")
    hashes: Words = np.empty((batch.num_rows, 2), dtype=np.uint64)
    for start in range(0, batch.num_rows, _BLOCK_ROWS):
        rows = hashes[start : start + _BLOCK_ROWS]
        block: Words = np.zeros((2, len(rows)), dtype=np.uint64)
        for position, field in fields:
            block += _nullable(
                _contiguous(batch.column(position).slice(start, len(rows))), field.name
            )
        block += _seed("row", "")
        rows[:] = _mix(block).T
    return hashes


def hex_ids(hashes: Words) -> pa.StringArray:
    """Row hashes as strings of 32 hexadecimal digits, the word of lane 0 first."""
    digits = _HEX[hashes.astype(">u8").view(np.uint8).reshape(-1)]
    offsets = np.arange(0, 32 * len(hashes) + 1, 32, dtype=np.int32)
    return pa.StringArray.from_buffers(len(hashes), pa.py_buffer(offsets), pa.py_buffer(digits))


_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), dtype="V2")


def digest(hashes: Words) -> str:
    """The digest of a multiset of row hashes, ``version:count:sum``: order and partitioning do not matter, repeats do.

    The sum is that of the hashes, mixed once more, modulo 2**128.
    """
    high, low = _mix(np.ascontiguousarray(hashes.T) + _seed("digest", ""))
    low_sum = (int((low >> np.uint64(32)).sum()) << 32) + int((low & np.uint64(0xFFFFFFFF)).sum())
    return _digest_text(len(hashes), (int(high.sum()) << 64) + low_sum)


def combine(digests: Iterable[str]) -> str:
    """The digest of all rows together, from the digests of the parts. Of no parts: the digest of no rows.

    Raises WanError for a text that is not a digest of this version.
    """
    count = total = 0
    for text in digests:
        parts = _DIGEST.fullmatch(text)
        if parts is None:
            raise WanError(
                f"{text!r} is not a row digest of version {VERSION} (version:count:sum): it was made by another"
                " version of spark_wan, or altered. Make it again from the rows."
            )
        count += int(parts[1])
        total += int(parts[2], 16)
    return _digest_text(count, total)


_DIGEST = re.compile(rf"{VERSION}:([0-9]+):([0-9a-f]{{32}})")


def _digest_text(count: int, total: int) -> str:
    return f"{VERSION}:{count}:{total % (1 << 128):032x}"


# --- which types ------------------------------------------------------------------------------------------------------


def _check_fields(fields: Iterable[pa.Field], parent: str) -> None:
    """Refuse unknown types before the first row, by the path of the column, also where all rows are null."""
    seen: set[str] = set()
    for field in fields:
        path = f"{parent}{field.name}"
        if field.name.lower() in seen:
            raise SchemaError(
                f"column {path!r} is there twice (case does not count): rename or drop one of the two"
            )
        seen.add(field.name.lower())
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
    elif not (_one_word_tag(kind) or _is_bytes(kind) or _is_decimal(kind) or types.is_null(kind)):
        raise UnsupportedTypeError(
            f"column {path!r} has the Arrow type {kind}, which no Delta column has and rows cannot be compared by:"
            " cast the column to a type of Delta, or drop it before the sink"
        )


def _one_word_tag(kind: pa.DataType) -> str | None:
    if pa.types.is_signed_integer(kind):
        return "integer"
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return "float"
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_date32(kind):
        return "date"
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return _is_text(kind) or bool(
        types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    )


def _is_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal128(kind)) and kind.scale >= 0


# --- hashes of columns ------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def _seed(tag: str, name: str) -> Words:
    # A name of the format, not of a module: it stays.
    text = f"spark_wan.rowhash.{VERSION}\0{tag}\0{name.lower()}"
    words = np.frombuffer(hashlib.blake2b(text.encode(), digest_size=16).digest(), dtype="<u8")
    return words.reshape(2, 1)


def _mix(h: Words) -> Words:
    """The finaliser of each lane, in place: a bijection of words in which every bit depends on every bit."""
    t = h >> _SHIFTS[0]
    h ^= t
    h *= _FACTORS[0]
    np.right_shift(h, _SHIFTS[1], out=t)
    h ^= t
    h *= _FACTORS[1]
    np.right_shift(h, _SHIFTS[2], out=t)
    h ^= t
    return h


def _nullable(array: pa.Array, name: str) -> Words:
    """Hashes of a column's values, 0 where they are null, whatever the buffers hold there. A new array, (2, n)."""
    if len(array) == 0 or array.null_count == len(array):  # a null array too
        return np.zeros((2, len(array)), dtype=np.uint64)
    hashes = _values(array, name)
    if array.null_count:
        hashes *= _valid(array)
    return hashes


def _values(array: pa.Array, name: str) -> Words:
    types, kind = pa.types, array.type
    if tag := _one_word_tag(kind):
        return _mix(_one_word(array) + _seed(tag, name))
    if _is_bytes(kind):
        tag = "string" if _is_text(kind) else "binary"
        return _mix(_bytes(array) + _seed(tag, name))
    if _is_decimal(kind):
        return _mix(_decimal(array) + _seed("decimal", name))
    if types.is_struct(kind):
        fields: Words = np.zeros((2, len(array)), dtype=np.uint64)
        for i, field in enumerate(kind):
            fields += _nullable(array.field(i), field.name)
        return _mix(fields + _seed("struct", name))
    if types.is_dictionary(kind):
        return _dictionary(array, name)
    offsets = _offsets(array)
    if types.is_map(kind):
        entries = _nullable(_between(array.keys, offsets), "key") + _nullable(
            _between(array.items, offsets), "value"
        )
        return _mix(_sums(_mix(entries), offsets) + _seed("map", name))
    elements = _nullable(_between(array.values, offsets), "element")
    positions = np.arange(elements.shape[1]) - np.repeat(
        offsets[:-1] - offsets[0], np.diff(offsets)
    )
    elements += _word(positions) * _POSITION
    return _mix(_sums(_mix(elements), offsets) + _seed("array", name))


def _one_word(array: pa.Array) -> Words:
    """Integers sign-extended, floats as doubles (one NaN), booleans 0 and 1, dates in days, timestamps in µs."""
    kind = array.type
    if pa.types.is_boolean(kind):
        return _bits(array.buffers()[1], array.offset, len(array))
    if pa.types.is_floating(kind):
        with np.errstate(invalid="ignore"):  # a signalling NaN
            doubles = _fixed(array, f"f{kind.bit_width // 8}").astype(np.float64)
        doubles[np.isnan(doubles)] = _NAN.view(np.float64)
        return doubles.view(np.uint64)
    return _word(_fixed(array, f"i{kind.bit_width // 8}").astype(np.int64, copy=False))


def _bytes(array: pa.Array) -> Words:
    """The first word, the sum of the mixed other words, and the length, of each string."""
    if pa.types.is_string_view(array.type):
        array = array.cast(pa.large_string())
    elif pa.types.is_binary_view(array.type):
        array = array.cast(pa.large_binary())
    offsets = _offsets(array)
    lengths = np.diff(offsets)
    starts = offsets[:-1] - offsets[0]
    size = int(offsets[-1] - offsets[0])
    padded: npt.NDArray[np.uint8] = np.zeros(size + 8, dtype=np.uint8)
    if size:
        padded[:size] = np.frombuffer(
            array.buffers()[2], dtype=np.uint8, count=size, offset=int(offsets[0])
        )
    words: Words = np.ndarray(
        (size + 1,), dtype="<u8", buffer=padded.data, strides=(1,)
    )  # the word at each byte
    hashes: Words = (words[starts] & _FIRST_BYTES[np.minimum(lengths, 8)]) + _word(
        lengths
    ) * _LENGTH
    long = np.flatnonzero(lengths > 8)
    if len(long):
        hashes[:, long] += _other_words(words, starts[long], lengths[long])
    return hashes


def _other_words(words: Words, starts: Numbers, lengths: Numbers) -> Words:
    """The sum of the mixed words of each string but the first; all strings are longer than one word."""
    sums: Words = np.zeros((2, len(starts)), dtype=np.uint64)
    counts = (lengths - 1) // 8
    ends = np.cumsum(counts)
    begins = ends - counts
    total = int(ends[-1])
    for low in range(
        0, total, _BLOCK_WORDS
    ):  # words low to high - 1 of all, they belong to rows first to last - 1
        high = min(low + _BLOCK_WORDS, total)
        first = int(np.searchsorted(ends, low, side="right"))
        last = int(np.searchsorted(ends, high - 1, side="right")) + 1
        here = np.minimum(ends[first:last], high) - np.maximum(begins[first:last], low)
        row = np.repeat(np.arange(first, last), here)
        j = np.arange(low, high) - begins[row] + 1
        word = words[starts[row] + 8 * j] & _FIRST_BYTES[np.minimum(lengths[row] - 8 * j, 8)]
        mixed = _mix(word + _word(j) * _POSITION)
        sums[:, first:last] += np.add.reduceat(mixed, np.cumsum(here) - here, axis=1)
    return sums


def _decimal(array: pa.Array) -> Words:
    """Like a string of two words: the magnitude without trailing zeros; scale and sign instead of the length."""
    halves: Words = _fixed(array, "u8", 2).reshape(-1, 2).T.astype(np.uint64, order="C")
    low, high = halves
    negative = high >> np.uint64(63) == 1
    high[negative] = ~high[negative] + (low[negative] == 0)
    low[negative] = ~low[negative] + np.uint64(1)
    scale: Numbers = np.full(len(array), array.type.scale, dtype=np.int64)
    open_rows = np.flatnonzero(scale > 0)
    while len(open_rows):
        quotient_high, quotient_low, rest = _divided_by_ten(high[open_rows], low[open_rows])
        even = rest == 0
        open_rows = open_rows[even]
        high[open_rows], low[open_rows] = quotient_high[even], quotient_low[even]
        scale[open_rows] -= 1
        open_rows = open_rows[scale[open_rows] > 0]
    hashes: Words = low + _mix(high + _POSITION) + _word(scale + 64 * negative) * _LENGTH
    return hashes


def _divided_by_ten(high: Words, low: Words) -> tuple[Words, Words, Words]:
    """Long division of 128-bit magnitudes, by limbs of 64, 32 and 32 bits."""
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


def _dictionary(array: pa.DictionaryArray, name: str) -> Words:
    """Each entry is hashed once, unless most of them are not used here."""
    if len(array.dictionary) > len(array):
        return _nullable(array.dictionary_decode(), name)
    entries = _nullable(array.dictionary, name)
    unsigned = pa.types.is_unsigned_integer(array.indices.type)
    positions = _fixed(
        array.indices, f"{'u' if unsigned else 'i'}{array.indices.type.bit_width // 8}"
    )
    if array.null_count:
        positions = np.where(_valid(array) == 1, positions, 0)
    return entries[:, positions]


def _sums(hashes: Words, offsets: Numbers) -> Words:
    """For each list, the sum of its elements' hashes and its length."""
    lengths = np.diff(offsets)
    sums = _word(lengths) * _LENGTH
    filled = np.flatnonzero(lengths)  # reduceat has no notion of an empty slice
    if len(filled):
        sums[:, filled] += np.add.reduceat(hashes, offsets[filled] - offsets[0], axis=1)
    return sums


# --- Arrow buffers ----------------------------------------------------------------------------------------------------


def _contiguous(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _word(numbers: Numbers) -> Words:
    return numbers.view(np.uint64)


def _fixed(array: pa.Array, dtype: str, per_value: int = 1) -> npt.NDArray[np.generic]:
    values = np.frombuffer(
        array.buffers()[1], dtype=f"<{dtype}", count=(array.offset + len(array)) * per_value
    )
    return values[array.offset * per_value :]


def _bits(buffer: pa.Buffer, offset: int, count: int) -> Words:
    first = offset // 8
    packed = np.frombuffer(
        buffer, dtype=np.uint8, count=(offset + count + 7) // 8 - first, offset=first
    )
    bits = np.unpackbits(packed, bitorder="little")[offset - 8 * first :][:count]
    return bits.astype(np.uint64)


def _valid(array: pa.Array) -> Words:
    """1 where the array holds a value, 0 where it is null; only for arrays with nulls."""
    return _bits(array.buffers()[0], array.offset, len(array))


def _offsets(array: pa.Array) -> Numbers:
    """Where the values of each list or string begin and end in the child or buffer, n + 1 of them. Not for no rows."""
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        sizes: Numbers = np.arange(array.offset, array.offset + len(array) + 1) * int(
            kind.list_size
        )
        return sizes
    wide = (
        pa.types.is_large_list(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    )
    offsets = np.frombuffer(
        array.buffers()[1], dtype="<i8" if wide else "<i4", count=array.offset + len(array) + 1
    )
    return offsets[array.offset :].astype(np.int64)


def _between(values: pa.Array, offsets: Numbers) -> pa.Array:
    return values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
