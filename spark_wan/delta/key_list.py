"""A few keys as a SQL condition, so that Spark reads only where they may be.

Spark and Delta skip files, row groups and pages by literals in a condition; a join with a thousand
keys reads the key columns of the whole table. Imports no Spark.

Only types are listed for which skipping is exact whoever wrote the table's files: integers,
booleans, text, bytes, dates from 1900 to 9999, and decimals of at most 15 digits. Delta keeps the
bounds of timestamps in milliseconds and in a time zone, some writers keep those of long decimals as
floats, and NaN and -0.0 equal more than themselves. A CHAR may be stored with or without padding.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_wan.delta.sql import IN_LIST, quoted

MAX_KEYS = 5_000
"""Above that, a MERGE without a list takes less time."""
MAX_RANGES = 32
"""Number of ranges of a column's values, at most."""
MAX_CHARACTERS = 128 * 1024
"""Maximum length of a condition. Delta records it in the commit."""

_FIRST_DATE, _LAST_DATE = datetime.date(1900, 1, 1), datetime.date(9999, 12, 31)
_INTEGERS = {pa.int8(): "Y", pa.int16(): "S", pa.int32(): "", pa.int64(): "L"}
_DIGITS = 15


@dataclass(frozen=True)
class KeyList:
    """The distinct keys of events, as SQL literals."""

    columns: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]
    """Sorted, so that equal events give equal conditions."""
    unique: bool
    """No two events have the same key."""
    ranges: tuple[tuple[tuple[str, str], ...], ...] = ()
    """Of each column whose values make a long list, ranges that have all of them, as pairs of
    literals; of others none."""

    @classmethod
    def of(
        cls, events: pa.Table, columns: Sequence[str], chars: Iterable[str] = ()
    ) -> KeyList | None:
        """Return the keys of events; None if they cannot be listed exactly, or are too many.
        ``chars``: the columns of the table that are CHAR, without regard to case."""
        if not columns or not 0 < events.num_rows <= MAX_KEYS:
            return None
        if {name.lower() for name in chars} & {name.lower() for name in columns}:
            return None
        literals = [_literals(events.column(name)) for name in columns]
        if any(column is None for column in literals):
            return None
        rows = list(zip(*(column for column in literals if column is not None), strict=True))
        keys = tuple(sorted(set(rows)))
        ranges = tuple(
            _ranges(events.column(name), column)
            for name, column in zip(columns, literals, strict=True)
            if column is not None
        )
        listed = cls(tuple(columns), keys, unique=len(keys) == len(rows), ranges=ranges)
        return listed if len(listed.condition()) <= MAX_CHARACTERS else None

    def condition(self, table: str = "") -> str:
        """Return the condition that a row has one of the keys.

        ``table``: an alias, and a dot. Files are skipped by the values of single columns, so these
        are listed as well as the whole keys.

        A list of any length is a set, in which Spark looks up a row's value at once. By a long one,
        Delta skips files only between its lowest and highest value, so ranges come on top.

        >>> KeyList(("a`b", "c"), (("1L", "'x'"), ("2L", "'x'")), True).condition("t.")
        "t.`a``b` IN (1L, 2L) AND t.`c` IN ('x') AND (t.`a``b`, t.`c`) IN ((1L, 'x'), (2L, 'x'))"
        """
        names = [f"{table}{quoted(name)}" for name in self.columns]
        parts = []
        for place, name in enumerate(names):
            values = sorted({key[place] for key in self.keys})
            parts.append(f"{name} IN ({', '.join(values)})")
            ranges = self.ranges[place] if self.ranges else ()
            if ranges:
                within = (f"{name} BETWEEN {low} AND {high}" for low, high in ranges)
                parts.append(f"({' OR '.join(within)})")
        if len(names) > 1:
            whole = ", ".join(f"({', '.join(key)})" for key in self.keys)
            parts.append(f"({', '.join(names)}) IN ({whole})")
        return " AND ".join(parts)


def _ranges(column: pa.ChunkedArray, literals: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return ranges that have all values of a column, if they make a long list: of numbers between
    the widest gaps, of others equally many in each. Python orders the values as SQL does."""
    by_value = dict(zip(column.to_pylist(), literals, strict=True))
    if len(by_value) <= IN_LIST:
        return ()
    values = sorted(by_value)
    if pa.types.is_integer(column.type):
        widest = sorted(range(1, len(values)), key=lambda n: values[n - 1] - values[n])
        starts = [0, *sorted(widest[: MAX_RANGES - 1])]
    else:
        starts = [*range(0, len(values), -(-len(values) // MAX_RANGES))]
    ends = [*(start - 1 for start in starts[1:]), len(values) - 1]
    pairs = zip(starts, ends, strict=True)
    return tuple((by_value[values[first]], by_value[values[last]]) for first, last in pairs)


def _literals(column: pa.ChunkedArray) -> list[str] | None:
    """Return the values of a key column as SQL literals of its type; None if some have none."""
    written = _writer(column.type)
    if written is None or column.null_count:
        return None
    try:
        values: Collection[Any] = column.to_pylist()
    except (ValueError, OverflowError):  # text may be no UTF-8, Python's dates end in 9999
        return None
    literals = [written(value) for value in values]
    known = [literal for literal in literals if literal is not None]
    return known if len(known) == len(literals) else None


def _writer(kind: pa.DataType) -> Callable[[Any], str | None] | None:
    """Return the function that writes a value of a type as a literal; None for other types."""
    types = pa.types
    if kind in _INTEGERS:
        return lambda value: f"{value}{_INTEGERS[kind]}"
    if types.is_boolean(kind):
        return lambda value: str(value).lower()
    if types.is_string(kind) or types.is_large_string(kind):
        return _text
    if types.is_binary(kind) or types.is_large_binary(kind):
        return lambda value: f"X'{value.hex()}'"
    if types.is_date32(kind):
        return _date
    if types.is_decimal(kind) and kind.precision <= _DIGITS:
        return lambda value: f"CAST({value:f}BD AS DECIMAL({kind.precision},{kind.scale}))"
    return None


def _text(value: str) -> str:
    # All but plain characters are escaped: quotes, and ${...}, which Spark would replace.
    return f"'{re.sub('[^A-Za-z0-9 _.:/@+-]', _escaped, value)}'"


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _date(value: datetime.date) -> str | None:
    return f"DATE'{value:%Y-%m-%d}'" if _FIRST_DATE <= value <= _LAST_DATE else None
