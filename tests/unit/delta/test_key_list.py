"""The keys of a small apply as a condition: exact, or not listed at all."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from spark_wan.delta import key_list
from spark_wan.delta.key_list import KeyList
from spark_wan.delta.sql import IN_LIST, is_in


def listed(values: list[Any], kind: pa.DataType) -> str | None:
    keys = KeyList.of(pa.table({"k": pa.array(values, kind)}), ["k"])
    return None if keys is None else keys.condition()


LISTED: dict[str, tuple[pa.DataType, list[Any], str]] = {
    "tinyint": (pa.int8(), [-128, 127], "-128Y, 127Y"),
    "smallint": (pa.int16(), [-32768], "-32768S"),
    "int": (pa.int32(), [2**31 - 1], "2147483647"),
    "bigint": (pa.int64(), [-(2**63)], "-9223372036854775808L"),
    "boolean": (pa.bool_(), [True, False], "false, true"),
    "quotes": (pa.string(), ["it's", "\\"], r"'\u005c', 'it\u0027s'"),
    "variable": (pa.string(), ["${env:HOME}"], r"'\u0024\u007benv:HOME\u007d'"),
    "odd": (pa.string(), ["\0", "\U0001f6b2"], r"'\U0001f6b2', '\u0000'"),
    "binary": (pa.binary(), [b"\0\xff"], "X'00ff'"),
    "date": (pa.date32(), [datetime.date(1999, 12, 31)], "DATE'1999-12-31'"),
    "decimal": (pa.decimal128(7, 2), [Decimal("-0.10")], "CAST(-0.10BD AS DECIMAL(7,2))"),
    "number": (pa.decimal128(15, 0), [Decimal(10**14)], "CAST(100000000000000BD AS DECIMAL(15,0))"),
}
NOT_LISTED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "null": (pa.int64(), [1, None]),
    "double": (pa.float64(), [0.0]),
    "timestamp": (pa.timestamp("us", "UTC"), [0]),
    "timestamp_ntz": (pa.timestamp("us"), [0]),
    "long decimal": (pa.decimal128(16, 0), [Decimal(1)]),
    "old date": (pa.date32(), [datetime.date(1899, 12, 31)]),
    "late date": (pa.date32(), [2_932_897]),
    "struct": (pa.struct([("a", pa.int64())]), [{"a": 1}]),
    "nothing": (pa.int64(), []),
}


@pytest.mark.parametrize("name", LISTED)
def test_keys_are_literals_of_their_type(name: str) -> None:
    """Fails when text is not escaped: Spark would end it, or replace a variable in it."""
    kind, values, literals = LISTED[name]
    assert listed(values, kind) == f"`k` IN ({literals})"


@pytest.mark.parametrize("name", NOT_LISTED)
def test_keys_whose_files_cannot_be_skipped_exactly_are_not_listed(name: str) -> None:
    """Nulls, floats, timestamps, long decimals, dates of other calendars or after 9999.

    Fails when any of these has a literal.
    """
    kind, values = NOT_LISTED[name]
    assert listed(values, kind) is None


def test_text_that_is_not_utf8_is_not_listed() -> None:
    buffers = pa.array([b"\xff"]).buffers()
    assert (
        KeyList.of(pa.table({"k": pa.Array.from_buffers(pa.string(), 1, buffers)}), ["k"]) is None
    )


def test_whole_keys_are_listed_beside_the_values_of_each_column() -> None:
    """Fails without the whole keys: the row (1, 'b') would be replaced too."""
    table = pa.table({"a": pa.array([1, 2], pa.int64()), "B.c": ["a", "b"]})
    keys = KeyList.of(table, ["a", "B.c"])
    assert keys is not None
    assert keys.condition("t.") == (
        "t.`a` IN (1L, 2L) AND t.`B.c` IN ('a', 'b') AND (t.`a`, t.`B.c`) IN ((1L, 'a'), (2L, 'b'))"
    )


def ranges_of(condition: str) -> list[tuple[str, str]]:
    return re.findall(r"`k` BETWEEN (.+?) AND (.+?)(?: OR|\))", condition)


def test_a_long_list_has_ranges_between_the_widest_gaps() -> None:
    """A reader skips a file that is in no range. Fails when one range has all: then nearly every
    file is read; and when numbers are in the order of text."""
    near = [base + n for base in (-5_000_000, -9, 100, 1_000_000) for n in range(50)]
    condition = listed(near, pa.int64())
    assert condition is not None and condition.count(" IN (") == 1
    found = [(int(low[:-1]), int(high[:-1])) for low, high in ranges_of(condition)]
    assert len(found) == key_list.MAX_RANGES == len(set(found))
    bounds = [bound for pair in found for bound in pair]
    assert bounds == sorted(bounds)
    for first, last in ((-5_000_000, -4_999_951), (-9, 40), (100, 149), (1_000_000, 1_000_049)):
        inside = [pair for pair in found if first <= pair[0] and pair[1] <= last]
        assert (min(inside)[0], max(inside)[1]) == (first, last)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int8(), range(-128, 127)),
        (
            pa.string(),
            [chr(n) + text for n in (39, 65, 97, 233, 0x1F6B2) for text in "azAZ'\\" * 5],
        ),
        (pa.string(), [f"customer-{n}" for n in range(150)]),
        (pa.binary(), [bytes([n, 255 - n]) for n in range(256)]),
        (pa.date32(), [datetime.date(1900, 1, 1 + n % 28) for n in range(28)] * 5),
        (pa.date32(), [datetime.date(1900 + n, 1, 1) for n in range(150)]),
        (pa.decimal128(7, 2), [Decimal(n) / 10 for n in range(-75, 75)]),
    ],
)
def test_the_ranges_have_all_keys(kind: pa.DataType, values: Any) -> None:
    """Each key is in one, by the order of values, not of literals. Fails when a key is in none: its
    row would stay as it was."""
    distinct = sorted(set(values))
    keys = KeyList.of(pa.table({"k": pa.array(list(values), kind)}), ["k"])
    assert keys is not None
    (ranges,) = keys.ranges
    if len(distinct) <= IN_LIST:
        assert ranges == () and keys.condition().count(" IN (") == 1
        return
    literals = {listed([value], kind)[8:-1]: value for value in distinct}  # type: ignore[index]
    covered = [
        value
        for low, high in ranges
        for value in distinct
        if literals[low] <= value <= literals[high]
    ]
    assert covered == distinct


def test_lists_of_ids_are_short() -> None:
    """Where they are not keys. A reader skips a file by the lowest and highest value of each. Fails
    when one list has all."""
    condition = is_in("`k`", [str(n) for n in range(250)])
    lists = re.findall(r"`k` IN \(([^)]*)\)", condition)
    assert condition == f"({' OR '.join(f'`k` IN ({each})' for each in lists)})"
    assert [len(each.split(", ")) for each in lists] == [IN_LIST, IN_LIST, 50]


def test_long_lists_of_whole_keys_are_one_list() -> None:
    count = range(IN_LIST + 1)
    keys = KeyList.of(pa.table({"a": count, "b": [str(n) for n in count]}), ["a", "b"])
    assert keys is not None
    condition = keys.condition()
    assert condition.count(" IN (") == 3 and "(`a`, `b`) IN ((0L, '0'), " in condition
    assert condition.count("`b` BETWEEN") > 1


def test_events_of_one_key_are_not_unique() -> None:
    table = pa.table({"k": [1, 2, 1]})
    keys = KeyList.of(table, ["k"])
    assert keys is not None
    assert (keys.unique, len(keys.keys)) == (False, 2)
    keys = KeyList.of(table.slice(0, 2), ["k"])
    assert keys is not None
    assert keys.unique


def test_many_or_long_keys_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delta records the condition in the commit. Fails without the limits."""
    assert KeyList.of(pa.table({"k": range(key_list.MAX_KEYS)}), ["k"]) is not None
    assert KeyList.of(pa.table({"k": range(key_list.MAX_KEYS + 1)}), ["k"]) is None
    assert KeyList.of(pa.table({"k": ["x" * key_list.MAX_CHARACTERS]}), ["k"]) is None


def test_a_table_without_keys_has_no_list() -> None:
    assert KeyList.of(pa.table({"k": [1]}), []) is None
