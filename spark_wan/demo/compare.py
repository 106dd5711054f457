"""Compare a table at two sites, row by row and column by column, as ``deltalake`` reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spark_wan.demo.flights import query

SHOWN_ROWS = 3


@dataclass(frozen=True)
class Comparison:
    """Result for one table. ``difference`` is None when both sites hold the same rows."""

    table: str
    rows: int
    columns: int
    difference: str | None


def compare(table: str, keys: Sequence[str], left_path: str, right_path: str) -> Comparison:
    """Compare the tables at two paths."""
    sql = f"SELECT * FROM t ORDER BY {', '.join(keys)}"
    left, right = query(left_path, sql), query(right_path, sql)
    return Comparison(table, left.num_rows, left.num_columns, find_difference(keys, left, right))


def find_difference(keys: Sequence[str], left: pa.Table, right: pa.Table) -> str | None:
    """Describe how two tables differ, both sorted by ``keys``. All string types count as one."""
    if left.column_names != right.column_names:
        return f"columns {left.column_names} and {right.column_names}"
    if left.num_rows != right.num_rows:
        return f"{left.num_rows} rows and {right.num_rows} rows"
    differing: set[int] = set()
    for name in left.column_names:
        one, other = _plain(left[name]), _plain(right[name])
        if one.type != other.type:
            return f"column {name} is {one.type} and {other.type}"
        both_null = pc.and_(pc.is_null(one), pc.is_null(other))
        same = pc.or_(pc.fill_null(pc.equal(one, other), False), both_null)
        differing.update(pc.indices_nonzero(pc.invert(same)).to_pylist())
    if not differing:
        return None
    lines = [f"{len(differing)} rows differ"]
    for index in sorted(differing)[:SHOWN_ROWS]:
        row, other_row = (side.slice(index, 1).to_pylist()[0] for side in (left, right))
        key = ", ".join(f"{name}={row[name]}" for name in keys)
        values = (f"{n}: {row[n]!r} and {other_row[n]!r}" for n in row if row[n] != other_row[n])
        lines.append(f"  {key}: {', '.join(values)}")
    return "\n".join(lines)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Delta has one string type, Arrow several."""
    strings = (pa.string_view(), pa.large_string())
    return column.cast(pa.string()) if column.type in strings else column
