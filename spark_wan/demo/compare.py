"""Are two tables equal? deltalake reads both, sorted by their keys; rows and columns are compared one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spark_wan.demo.flights import query

SHOWN = 3


@dataclass(frozen=True)
class Comparison:
    """What comparing one table of two sites has shown."""

    table: str
    rows: int
    columns: int
    difference: str | None = None


def compare(table: str, keys: Sequence[str], one: str, other: str) -> Comparison:
    """Compare the tables at two paths."""
    sql = f"SELECT * FROM t ORDER BY {', '.join(keys)}"
    return compare_rows(table, keys, query(one, sql), query(other, sql))


def compare_rows(table: str, keys: Sequence[str], one: pa.Table, other: pa.Table) -> Comparison:
    """Compare two tables that are sorted by their keys. Types count as Delta knows them: it has one string type."""
    told = Comparison(table, one.num_rows, one.num_columns)
    if one.column_names != other.column_names:
        return _with(told, f"columns {one.column_names} and {other.column_names}")
    if one.num_rows != other.num_rows:
        return _with(told, f"{one.num_rows} rows and {other.num_rows} rows")
    differing: set[int] = set()
    for name in one.column_names:
        left, right = _plain(one[name]), _plain(other[name])
        if left.type != right.type:
            return _with(told, f"column {name} is {left.type} and {right.type}")
        same = pc.or_(
            pc.fill_null(pc.equal(left, right), False), pc.and_(pc.is_null(left), pc.is_null(right))
        )
        differing.update(pc.indices_nonzero(pc.invert(same)).to_pylist())
    if not differing:
        return told
    lines = [f"{len(differing)} rows differ"]
    for index in sorted(differing)[:SHOWN]:
        here, there = one.slice(index, 1).to_pylist()[0], other.slice(index, 1).to_pylist()[0]
        key = ", ".join(f"{name}={here[name]}" for name in keys)
        values = ", ".join(
            f"{name}: {here[name]!r} and {there[name]!r}"
            for name in here
            if here[name] != there[name]
        )
        lines.append(f"  {key}: {values}")
    return _with(told, "\n".join(lines))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return (
        column.cast(pa.string()) if column.type in (pa.string_view(), pa.large_string()) else column
    )


def _with(told: Comparison, difference: str) -> Comparison:
    return Comparison(told.table, told.rows, told.columns, difference)
