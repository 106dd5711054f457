"""Row hashes: equal for equal rows in every layout, different for different rows, and frozen."""

from __future__ import annotations

import decimal
import hashlib
import struct
from datetime import date, datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_wan.errors import SchemaError, UnsupportedTypeError, WanError
from spark_wan.events import row_hash
from spark_wan.events.row_hash import combine, digest, hex_ids, row_hashes

randomly = settings(derandomize=True, deadline=None, max_examples=150, print_blob=True)


def ids(columns: Any, names: list[str] | None = None) -> list[str]:
    """Return the hex IDs of a batch, a table, or a dict of columns."""
    batch = pa.record_batch(columns) if isinstance(columns, dict) else columns
    result: list[str] = hex_ids(row_hashes(batch, names)).to_pylist()
    return result


def id_of(value: Any, kind: pa.DataType) -> str:
    """Return the hex ID of a row whose only column, ``c``, holds this value."""
    return ids({"c": pa.array([value], kind)})[0]


# --- the algorithm, value by value, as the docstring of spark_wan.events.row_hash has it --------

MASK = (1 << 64) - 1
POSITION = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
LENGTH = (0xD6E8FEB86659FD93, 0x165667B19E3779F9)


def seed(tag: str, name: str, lane: int) -> int:
    key = hashlib.blake2b(
        f"spark_wan.rowhash.1\0{tag}\0{name.lower()}".encode(), digest_size=16
    ).digest()
    return struct.unpack("<QQ", key)[lane]


def mix(h: int, lane: int) -> int:
    h &= MASK
    (a, b, c), (p, q) = (
        ((30, 27, 31), (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)),
        ((33, 33, 33), (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)),
    )[lane]
    h = (h ^ h >> a) * p & MASK
    h = (h ^ h >> b) * q & MASK
    return h ^ h >> c


def hash_bytes(raw: bytes, length: int, seed_: int, lane: int) -> int:
    padded = raw + bytes(-len(raw) % 8)
    first, *others = struct.unpack(f"<{len(padded) // 8}Q", padded) or (0,)
    tail = sum(mix(word + j * POSITION[lane], lane) for j, word in enumerate(others, 1))
    return mix(first + tail + length * LENGTH[lane] + seed_, lane)


def hash_value(scalar: pa.Scalar, name: str, lane: int) -> int:
    kind, types = scalar.type, pa.types
    if not scalar.is_valid:
        return 0
    if types.is_signed_integer(kind):
        return mix(scalar.as_py() + seed("integer", name, lane), lane)
    if types.is_floating(kind):
        double = scalar.as_py()
        bits = struct.pack("<d", double) if double == double else b"\0\0\0\0\0\0\xf8\x7f"
        return mix(int.from_bytes(bits, "little") + seed("float", name, lane), lane)
    if types.is_boolean(kind):
        return mix(int(scalar.as_py()) + seed("boolean", name, lane), lane)
    if types.is_date32(kind):
        return mix(scalar.value + seed("date", name, lane), lane)
    if types.is_timestamp(kind):
        return mix(
            scalar.value + seed("timestamp" if kind.tz else "timestamp_ntz", name, lane), lane
        )
    if types.is_string(kind):
        return hash_bytes(
            raw := scalar.as_py().encode(), len(raw), seed("string", name, lane), lane
        )
    if types.is_binary(kind):
        return hash_bytes(raw := scalar.as_py(), len(raw), seed("binary", name, lane), lane)
    if types.is_decimal(kind):
        sign, digits, exponent = scalar.as_py().as_tuple()
        magnitude, scale = int("".join(map(str, digits))), -exponent
        while scale and magnitude % 10 == 0:
            magnitude, scale = magnitude // 10, scale - 1
        negative = sign if magnitude else 0
        return hash_bytes(
            magnitude.to_bytes(16, "little"),
            scale + 64 * negative,
            seed("decimal", name, lane),
            lane,
        )
    if types.is_struct(kind):
        return mix(
            sum(hash_value(v, f, lane) for f, v in scalar.items()) + seed("struct", name, lane),
            lane,
        )
    if types.is_map(kind):
        entries = [
            hash_value(e["key"], "key", lane) + hash_value(e["value"], "value", lane)
            for e in scalar.values
        ]
        total = sum(mix(entry, lane) for entry in entries)
        return mix(total + len(entries) * LENGTH[lane] + seed("map", name, lane), lane)
    elements = [hash_value(element, "element", lane) for element in scalar.values]
    total = sum(mix(e + j * POSITION[lane], lane) for j, e in enumerate(elements))
    return mix(total + len(elements) * LENGTH[lane] + seed("array", name, lane), lane)


def expected_ids(batch: pa.RecordBatch) -> list[str]:
    def lane_of(row: int, lane: int) -> str:
        fields = (hash_value(batch[name][row], name, lane) for name in batch.schema.names)
        return f"{mix(sum(fields) + seed('row', '', lane), lane):016x}"

    return [lane_of(row, 0) + lane_of(row, 1) for row in range(batch.num_rows)]


# --- batches of all types -----------------------------------------------------------------------


def numbers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    with decimal.localcontext(prec=60):
        unscaled = st.integers(1 - 10**precision, 10**precision - 1) | st.integers(-1000, 1000).map(
            lambda n: n * 10**scale
        )
        in_range = unscaled.filter(lambda n: abs(n) < 10**precision)
        return in_range.map(
            lambda n: decimal.Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale))
        )


ATOMS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), numbers(8)),
    (pa.int16(), numbers(16)),
    (pa.int32(), numbers(32)),
    (pa.int64(), numbers(64)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.decimal128(38, 18), decimals(38, 18)),
    (pa.decimal128(9, 2), decimals(9, 2)),
    (pa.decimal128(38, 0), decimals(38, 0)),
    (pa.string(), st.text(max_size=40)),
    (pa.binary(), st.binary(max_size=40)),
    (pa.date32(), numbers(32)),
    (pa.timestamp("us", "UTC"), numbers(64)),
    (pa.timestamp("us"), numbers(64)),
    (pa.null(), st.none()),
]


def with_nulls(
    kind: pa.DataType, values: st.SearchStrategy[Any]
) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    return kind, st.none() | values


Typed = tuple[pa.DataType, st.SearchStrategy[Any]]


def nested(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    def array(e: Typed) -> Typed:
        return with_nulls(pa.list_(e[0]), st.lists(e[1], max_size=4))

    def fixed(e: Typed) -> Typed:
        return with_nulls(pa.list_(e[0], 2), st.lists(e[1], min_size=2, max_size=2))

    def row(a: Typed, b: Typed) -> Typed:
        return with_nulls(
            pa.struct([("a", a[0]), ("b", b[0])]), st.fixed_dictionaries({"a": a[1], "b": b[1]})
        )

    def map_(v: Typed) -> Typed:
        entries = st.dictionaries(st.text(max_size=10), v[1], max_size=3).map(
            lambda d: list(d.items())
        )
        return with_nulls(pa.map_(pa.string(), v[0]), entries)

    return inner.map(array) | inner.map(fixed) | st.builds(row, inner, inner) | inner.map(map_)


typed = st.recursive(
    st.sampled_from(ATOMS).map(lambda atom: with_nulls(*atom)), nested, max_leaves=4
)


@st.composite
def batches(draw: st.DrawFn, max_rows: int = 12) -> pa.RecordBatch:
    rows = draw(st.integers(0, max_rows))
    columns = {}
    for name in draw(st.lists(st.sampled_from("abcdé"), unique=True, max_size=3)):
        kind, values = draw(typed)
        columns[name] = pa.array(draw(st.lists(values, min_size=rows, max_size=rows)), kind)
    if not columns:
        columns["z"] = pa.array(range(rows), pa.int64())
    return pa.record_batch(columns)


# --- equal rows ---------------------------------------------------------------------------------


@randomly
@given(batches())
def test_every_hash_is_what_the_docstring_says(batch: pa.RecordBatch) -> None:
    assert ids(batch) == expected_ids(batch)


@randomly
@given(batches(), st.data())
def test_slices_hash_like_their_rows(batch: pa.RecordBatch, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, batch.num_rows))
    length = data.draw(st.integers(0, batch.num_rows))
    part = batch.slice(start, length)
    assert ids(part) == ids(batch)[start : start + length]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, part.schema) as writer:
        writer.write_batch(part)
    assert ids(pa.ipc.open_stream(sink.getvalue()).read_next_batch()) == ids(part)


@randomly
@given(batches(), st.data())
def test_chunks_and_order_of_rows_and_columns_do_not_matter(
    batch: pa.RecordBatch, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, batch.num_rows))
    assert ids(pa.Table.from_batches([batch.slice(0, cut), batch.slice(cut)])) == ids(batch)
    assert ids(batch.select(data.draw(st.permutations(batch.schema.names)))) == ids(batch)
    rows = data.draw(st.permutations(range(batch.num_rows)))
    shuffled = pa.Table.from_batches([batch]).take(pa.array(rows, pa.int64()))
    assert ids(shuffled) == [ids(batch)[row] for row in rows]


@randomly
@given(
    st.lists(st.none() | st.text(max_size=20)),
    st.integers(0, 5),
    st.sampled_from([pa.int8(), pa.uint16(), pa.int64()]),
)
def test_dictionaries_hash_like_their_values(
    values: list[str | None], start: int, indices: pa.DataType
) -> None:
    plain = pa.array(values, pa.string())
    coded = plain.dictionary_encode().cast(pa.dictionary(indices, pa.string()))
    inside = pa.ListArray.from_arrays([0, len(coded)], coded)
    assert ids({"s": coded.slice(start)}) == ids({"s": plain.slice(start)})
    assert ids({"s": inside}) == ids({"s": pa.array([values], pa.list_(pa.string()))})


def test_dictionaries_may_differ_between_chunks_and_hold_nulls() -> None:
    chunks = [
        pa.array(["a", "b"]).dictionary_encode(),
        pa.array(["b", None, "c"]).dictionary_encode(),
    ]
    assert ids(pa.table({"s": pa.chunked_array(chunks)})) == ids({"s": ["a", "b", "b", None, "c"]})
    null_inside = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1]), pa.array(["a", None]))
    assert ids({"s": null_inside}) == ids({"s": [None, "a", None]})


@pytest.mark.parametrize(
    ("plain", "other"),
    [
        (pa.string(), pa.large_string()),
        (pa.string(), pa.string_view()),
        (pa.binary(), pa.large_binary()),
        (pa.binary(), pa.binary_view()),
        (pa.list_(pa.string()), pa.large_list(pa.large_string())),
        (pa.list_(pa.string()), pa.list_(pa.string(), 2)),
        (pa.int8(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.timestamp("us", "UTC"), pa.timestamp("us", "America/New_York")),
        (pa.decimal128(5, 2), pa.decimal128(38, 18)),
        (pa.decimal128(5, 0), pa.decimal128(7, 2)),
    ],
    ids=str,
)
def test_types_that_differ_only_in_layout_or_width_hash_alike(
    plain: pa.DataType, other: pa.DataType
) -> None:
    samples: dict[str, list[Any]] = {
        "string": ["", "a", None, "more than eight bytes"],
        "binary": [b"", b"a", None, b"more than eight bytes"],
        "list<": [["a", None], None, ["more than eight bytes", ""]],
        "int": [-128, 0, None, 127],
        "float": [-0.0, 1.5, None, float("inf"), float("nan"), 2.0**-149],
        "timestamp": [-1, None, 10**15],
        "decimal128(5, 2)": [
            decimal.Decimal(t) for t in ("0", "1.5", "-1.50", "0.01", "999.99", "100")
        ]
        + [None],
        "decimal128(5, 0)": [decimal.Decimal(t) for t in ("0", "100", "-100", "99999")] + [None],
    }
    values = next(sample for start, sample in samples.items() if str(plain).startswith(start))
    assert ids({"c": pa.array(values, plain)}) == ids({"c": pa.array(values, other)})


def test_buffer_contents_under_nulls_do_not_matter() -> None:
    values: list[pa.Array] = [
        pa.array([1, 2, 3]),
        pa.array(["a", "much longer than eight", "c"]),
        pa.array(
            [decimal.Decimal(1), decimal.Decimal(-2), decimal.Decimal(3)], pa.decimal128(38, 1)
        ),
        pa.array([True, True, False]),
        pa.array([[1, 2], [3], [4]]),
        pa.array([{"x": 1}, {"x": 2}, {"x": 3}]),
        pa.array([[("k", 1)], [("l", 2)], []], pa.map_(pa.string(), pa.int64())),
        pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int64(), 2)),
    ]
    validity = pa.py_buffer(b"\x05")  # the second row is null
    for array in values:
        children = []
        if pa.types.is_struct(array.type):
            children = array.flatten()
        elif pa.types.is_map(array.type):
            fields = [array.type.key_field, array.type.item_field]
            children = [pa.StructArray.from_arrays([array.keys, array.items], fields=fields)]
        elif pa.types.is_nested(array.type):
            children = [array.values]
        own = (
            1 if pa.types.is_struct(array.type) or pa.types.is_fixed_size_list(array.type) else None
        )
        count = own or (2 if children else len(array.buffers()))
        dirty = pa.Array.from_buffers(
            array.type, 3, [validity, *array.buffers()[1:count]], -1, 0, children
        )
        assert dirty.to_pylist()[1] is None
        clean = pa.array(dirty.to_pylist(), array.type)
        assert ids({"c": dirty}) == ids({"c": clean}), array.type
        assert ids({"c": dirty.slice(1)}) == ids({"c": clean})[1:], array.type

    beyond_the_end = pa.Array.from_buffers(
        pa.int32(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(struct.pack("<ii", 0, 99))]
    )
    coded = pa.DictionaryArray.from_arrays(beyond_the_end, pa.array(["a"]), safe=False)
    assert ids({"c": coded}) == ids({"c": ["a", None]})


def test_null_and_missing_columns_hash_alike_in_structs_too() -> None:
    old = pa.record_batch({"id": [1, 2], "s": [{"x": 1}, None]})
    added = pa.nulls(2, pa.string())
    assert ids({"id": [1, 2], "s": [{"x": 1, "y": None}, None], "new": added}) == ids(old)
    assert ids({"id": [1, 2], "s": [{"x": 1}, None], "new": pa.nulls(2)}) == ids(old)
    assert ids(old, ["id", "not there"]) == ids(old, ["id"]) == ids(old.select(["id"]))
    assert ids(old, []) == ids({"any": pa.nulls(2)})


def test_case_of_names_and_order_of_fields_do_not_matter() -> None:
    assert ids({"Id": [1], "S": [{"X": 1, "y": 2}]}) == ids({"id": [1], "s": [{"y": 2, "x": 1}]})
    assert ids({"Id": [1], "b": [2]}, ["ID"]) == ids({"id": [1]})


def test_a_map_is_a_set_of_entries() -> None:
    kind = pa.map_(pa.string(), pa.int64())
    assert id_of([("a", 1), ("b", 2)], kind) == id_of([("b", 2), ("a", 1)], kind)
    assert id_of([("a", 1), ("b", 2)], kind) != id_of([("a", 2), ("b", 1)], kind)


def test_decimals_at_word_boundaries_are_hashed_exactly() -> None:
    unscaled = [0, 10, 2**32, 2**64 - 1, 2**64, 10**20, 2**96, 10**38 - 1, 10**37]
    values = [
        decimal.Decimal((sign, tuple(map(int, str(n))), -18)) for n in unscaled for sign in (0, 1)
    ]
    batch = pa.record_batch({"c": pa.array(values, pa.decimal128(38, 18))})
    assert ids(batch) == expected_ids(batch)
    assert len(set(ids(batch))) == 2 * len(unscaled) - 1  # there is one zero


def test_all_nans_hash_alike() -> None:
    patterns = [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001, 0x7FFFFFFFFFFFFFFF]
    doubles = np.array(patterns, dtype=np.uint64).view(np.float64)
    floats = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0x7FFFFFFF], dtype=np.uint32).view(
        np.float32
    )
    assert len(set(ids({"c": pa.array(doubles)}) + ids({"c": pa.array(floats)}))) == 1


def test_block_sizes_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["x" * n + str(n) for n in range(60)] + [None, "", "y" * 1000, "z" * 8, "z" * 9]
    batch = pa.record_batch(
        {"t": texts, "l": [[t, t] for t in texts], "d": pa.array(texts).dictionary_encode()}
    )
    whole = ids(batch)
    for rows, words in ((1, 1), (7, 3), (64, 50)):
        monkeypatch.setattr(row_hash, "_BLOCK_ROWS", rows)
        monkeypatch.setattr(row_hash, "_BLOCK_WORDS", words)
        assert (
            ids(batch) == ids(pa.Table.from_batches([batch.slice(0, 5), batch.slice(5)])) == whole
        )


# --- different rows -----------------------------------------------------------------------------

INT_LISTS = pa.list_(pa.list_(pa.int64()))
PAIR = pa.struct([("a", pa.int64()), ("b", pa.int64())])
VARIANT = pa.struct(
    [pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)]
)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (
            pa.string(),
            [
                None,
                "",
                "null",
                "\0",
                "\0\0",
                " ",
                "a",
                "a\0",
                "abcdefgh",
                "abcdefgh\0",
                "abcdefghi",
                "bacdefgh",
            ],
        ),
        (pa.string(), ["a" * 8 + "b" * 8, "b" * 8 + "a" * 8, "a" * 8, "a" * 16, "a" * 24]),
        (pa.binary(), [None, b"", b"\0", b"\xff" * 8, b"\xff" * 16]),
        (pa.float64(), [None, 0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.0]),
        (pa.bool_(), [None, False, True]),
        (pa.int64(), [None, 0, 1, -1, 2**32, -(2**63)]),
        (
            pa.decimal128(38, 2),
            [decimal.Decimal(t) for t in ("0", "1", "-1", "10", "0.1", "0.01", "1e20")] + [None],
        ),
        (
            pa.list_(pa.int64()),
            [None, [], [None], [None, None], [0], [1], [1, 2], [2, 1], [1, None], [None, 1]],
        ),
        (INT_LISTS, [[[1], [2]], [[1, 2]], [[1, 2], []], [[], [1, 2]], [], [[]], [None], [[None]]]),
        (
            PAIR,
            [None, {"a": None, "b": None}, {"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": 1, "b": None}],
        ),
        (pa.struct([("s", PAIR)]), [None, {"s": None}, {"s": {"a": None, "b": None}}]),
        (
            pa.map_(pa.string(), pa.int64()),
            [None, [], [("a", None)], [("a", 1)], [("b", 1)], [("a", 1), ("b", 2)]],
        ),
        (VARIANT, [None, {"value": b"", "metadata": b""}, {"value": b"\0", "metadata": b"\1\0\0"}]),
    ],
    ids=lambda kind: str(kind)[:30],
)
def test_different_values_hash_differently(kind: pa.DataType, values: list[Any]) -> None:
    assert len(set(ids({"c": pa.array(values, kind)}))) == len(values)


def test_the_same_value_hashes_differently_by_type_and_column() -> None:
    same = [
        id_of(0, pa.int32()),
        id_of(0, pa.date32()),
        id_of(0, pa.timestamp("us")),
        id_of(0, pa.timestamp("us", "UTC")),
        id_of(0.0, pa.float64()),
        id_of(False, pa.bool_()),
        id_of("", pa.string()),
        id_of(b"", pa.binary()),
        id_of(decimal.Decimal(0), pa.decimal128(5, 2)),
        id_of([], pa.list_(pa.int64())),
        id_of([], pa.map_(pa.string(), pa.int64())),
        ids({"d": pa.array([0], pa.int32())})[0],
        ids({"c": [1], "d": [2]})[0],
        ids({"c": [2], "d": [1]})[0],
        ids({"c": [{"d": 1}]})[0],
        ids({"c": [{"c": 1}]})[0],
        ids({"c": [[1]]})[0],
    ]
    assert len(set(same)) == len(same)


def test_each_lane_alone_distinguishes_a_million_close_values() -> None:
    n = 1_000_000
    close = np.arange(n, dtype=np.int64)
    batch = pa.record_batch(
        {"a": close // 1000, "b": close % 1000, "s": pa.array(close % 1000).cast(pa.string())}
    )
    hashes = row_hashes(batch)
    assert len(np.unique(hashes[:, 0])) == len(np.unique(hashes[:, 1])) == n


def test_one_bit_of_a_value_flips_half_the_bits_of_each_lane() -> None:
    bits = np.arange(64, dtype=np.uint64)
    numbers_ = (np.uint64(1) << bits).view(np.int64)
    texts = pa.array([bytes(np.packbits(np.arange(192) == bit)) for bit in range(192)])
    zero = row_hashes(pa.record_batch({"n": [0]}))
    for hashes, base in (
        (row_hashes(pa.record_batch({"n": numbers_})), zero),
        (
            row_hashes(pa.record_batch({"t": texts})),
            row_hashes(pa.record_batch({"t": [bytes(24)]})),
        ),
    ):
        turned = np.bitwise_count(hashes ^ base).mean(axis=0)
        assert ((turned > 29) & (turned < 35)).all(), turned


# --- refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        pa.uint8(),
        pa.float16(),
        pa.date64(),
        pa.time64("us"),
        pa.timestamp("ns"),
        pa.timestamp("ms", "UTC"),
        pa.duration("us"),
        pa.month_day_nano_interval(),
        pa.decimal256(50, 2),
        pa.decimal128(5, -2),
        pa.binary(4),
        pa.list_view(pa.int64()),
        pa.dictionary(pa.int32(), pa.time32("s")),
    ],
    ids=str,
)
def test_other_types_are_refused_by_path_even_without_rows(kind: pa.DataType) -> None:
    for rows in (0, 2):
        with pytest.raises(UnsupportedTypeError, match=r"column 'c' .* before the sink"):
            row_hashes(pa.record_batch({"c": pa.nulls(rows, kind)}))
    for deep, path in (
        (pa.list_(kind), "c.element"),
        (pa.map_(pa.string(), kind), "c.value"),
        (pa.struct([("x", pa.list_(kind))]), "c.x.element"),
    ):
        with pytest.raises(UnsupportedTypeError, match=f"column '{path}'"):
            row_hashes(pa.record_batch({"c": pa.nulls(0, deep)}))
    assert ids(pa.record_batch({"ok": [1], "c": pa.nulls(1, kind)}), ["ok"]) == ids({"ok": [1]})


def test_two_columns_with_the_same_name_are_refused() -> None:
    for batch in (
        pa.record_batch([pa.array([1]), pa.array([2])], ["a", "A"]),
        pa.record_batch({"s": pa.array([], pa.struct([("a", pa.int8()), ("A", pa.int8())]))}),
    ):
        with pytest.raises(SchemaError, match="is there twice"):
            row_hashes(batch)


# --- shapes, IDs and digests --------------------------------------------------------------------


def test_shape_and_hex_ids() -> None:
    hashes = row_hashes(pa.record_batch({"a": [1, 2, 3]}))
    assert hashes.shape == (3, 2)
    assert hashes.dtype == np.uint64
    assert hashes.view("V16").shape == (3, 1)
    texts = hex_ids(hashes)
    assert texts.type == pa.string()
    texts.validate(full=True)
    assert texts.to_pylist() == [f"{high:016x}{low:016x}" for high, low in hashes.tolist()]
    assert hex_ids(hashes[1:]).to_pylist() == texts.to_pylist()[1:]
    assert hex_ids(hashes[:0]).to_pylist() == []
    assert row_hashes(pa.record_batch({"a": pa.array([], pa.string())})).shape == (0, 2)
    assert row_hashes(pa.schema([("a", pa.string())]).empty_table()).shape == (0, 2)


@randomly
@given(st.lists(st.integers(0, 9)), st.data())
def test_a_digest_depends_on_the_rows_not_on_their_order_or_partitions(
    rows: list[int], data: st.DataObject
) -> None:
    def digest_of(values: list[int]) -> str:
        return digest(row_hashes(pa.record_batch({"a": pa.array(values, pa.int64())})))

    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    shuffled = data.draw(st.permutations(rows))
    parts = [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    whole = digest_of(rows)
    assert combine(digest_of(part) for part in parts) == whole
    assert combine([combine([digest_of(part)]) for part in reversed(parts)]) == whole
    for other in ([*rows, 3], rows[1:] if rows else [1], [*rows, 3, 3], [*rows[1:], 77]):
        assert digest_of(other) != whole


def test_a_digest_is_the_sum_of_mixed_hashes_modulo_two_to_the_128() -> None:
    hashes = row_hashes(pa.record_batch({"a": range(1000)}))
    total = sum(
        (mix(high + seed("digest", "", 0), 0) << 64) + mix(low + seed("digest", "", 1), 1)
        for high, low in hashes.tolist()
    )
    assert digest(hashes) == f"1:1000:{total % 2**128:032x}"
    assert combine([]) == digest(hashes[:0]) == f"1:0:{0:032x}"


@pytest.mark.parametrize(
    "text", ["", "2:1:" + "0" * 32, "1:1:" + "0" * 31, "1:-1:" + "0" * 32, "1:1:" + "G" * 32]
)
def test_invalid_digests_are_refused(text: str) -> None:
    with pytest.raises(WanError, match="not a row digest of version 1"):
        combine([digest(row_hashes(pa.record_batch({"a": [1]}))), text])


# --- frozen -------------------------------------------------------------------------------------

UTC = timezone.utc
GOLDEN: list[tuple[pa.DataType, Any, str]] = [
    (pa.bool_(), True, "7a6139ba932c17f94072843c20df083b"),
    (pa.int8(), -1, "39ef27293da4cb4fc1115071b2c36ec0"),
    (pa.int16(), 2, "3b810259bdcb3a7a030e52480743e056"),
    (pa.int32(), 3, "750617681e958f9f0fc84622e5634f60"),
    (pa.int64(), 2**62 + 1, "1df1133f60a07c57d2db77bbef6179af"),
    (pa.float32(), 1.5, "5883ff53de2417abd4f946493630073d"),
    (pa.float64(), 0.1, "d2c8d4308ad20c68adf4fde3fb5ab83c"),
    (pa.float64(), float("nan"), "8b25288244a2e682d87f5baf2676fed8"),
    (pa.float64(), -0.0, "dfcb49c72257d37d67c5f7e30dc2cf0f"),
    (
        pa.decimal128(38, 18),
        decimal.Decimal("-12345678901234567890.5"),
        "927229ece1564c79642f85888aba0b23",
    ),
    (pa.decimal128(5, 2), decimal.Decimal("1.50"), "69eb81df4a939cb01004a8aa99a1c924"),
    (pa.string(), "", "72b0c101851325432ca11fff9f7e4dec"),
    (pa.string(), "Zürich", "bed35fc17e9bd96b925eea2257202471"),
    (pa.string(), "a string of more than two words", "5252db3fcaca226249c8986688ec9e2d"),
    (pa.large_string(), "large", "0dfeb7a85490f2d0a43bcf91a6b845ed"),
    (pa.binary(), b"\x00\xff", "de4baa556f6665b55d5e61ea8673182f"),
    (pa.large_binary(), b"nine byte", "d3baf8a89784f968ad5c8b3c6e602186"),
    (pa.date32(), date(2024, 2, 29), "2f555fac645718caefa7178b02b084c7"),
    (
        pa.timestamp("us", "UTC"),
        datetime(2024, 1, 1, tzinfo=UTC),
        "7c4f6e86ea0bd3975390e72029f94f3e",
    ),
    (pa.timestamp("us"), datetime(1, 1, 1), "353036f2404db1f6e4b7a2abf39c164c"),
    (pa.list_(pa.int32()), [1, None, 3], "8e569e1a481b0c878229b6d84c7ebf88"),
    (pa.large_list(pa.string()), ["a", ""], "e612fc58d8a21a76932f67db375156d8"),
    (pa.list_(pa.float64(), 2), [0.5, None], "a87ca85b0fc7ad61a286a0c87d454824"),
    (pa.list_(pa.list_(pa.int64())), [[1], [], None, [2, 3]], "42c04d4ad7fdc8b770b012e225bb1f63"),
    (PAIR, {"a": 1, "b": None}, "1440f8254c336f9b871f803b90af90c1"),
    (pa.map_(pa.string(), pa.int32()), [("a", 1), ("b", None)], "5174d048fbd263246059c55c84bde9bf"),
    (
        pa.map_(PAIR, pa.list_(pa.string())),
        [({"a": 1, "b": 2}, ["x"])],
        "cd04f84c6538c9b4a258dfca9553c900",
    ),
    (
        VARIANT,
        {"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"},
        "faf9c77f40936f8d00d8633d7c2e61aa",
    ),
    (pa.dictionary(pa.int32(), pa.string()), "coded", "b3cb48a2bad2c36064457c281528d441"),
    (pa.null(), None, "11829bd2b57b4c9df783384f1cbd5b20"),
]


@pytest.mark.parametrize(("kind", "value", "golden"), GOLDEN, ids=lambda part: str(part)[:40])
def test_version_1_is_frozen(kind: pa.DataType, value: Any, golden: str) -> None:
    """Event IDs derive from these values. Never change one; a new algorithm is a new version."""
    assert row_hash.VERSION == 1
    assert id_of(value, kind) == golden


def test_the_digest_of_version_1_is_frozen() -> None:
    columns = {f"c{i}": pa.array([value, None], kind) for i, (kind, value, _) in enumerate(GOLDEN)}
    batch = pa.record_batch(columns)
    assert ids(batch) == ["0dc4a2ec37884039ec1393a8fd7780bb", "11829bd2b57b4c9df783384f1cbd5b20"]
    assert digest(row_hashes(batch)) == "1:2:91144795a097fab353151c7c5322552f"
