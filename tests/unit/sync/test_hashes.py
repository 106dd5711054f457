"""Hashes of columns in tasks."""

from __future__ import annotations

import pyarrow as pa

from spark_wan.sync.hashes import HashTask

ROWS = pa.struct([("a", pa.float64()), ("b", pa.list_(pa.int64()))])
MAPS = pa.map_(pa.string(), pa.int64())


def hashes(rows: list[object], maps: list[object]) -> list[list[int]]:
    batch = pa.record_batch(
        [pa.array(range(len(rows))), pa.array(rows, ROWS), pa.array(maps, MAPS)],
        names=["id", "s", "m"],
    )
    (result,) = HashTask(1, ("s", "m"), (ROWS, MAPS))([batch])
    assert result.column(0).to_pylist() == list(range(len(rows)))
    return list(result.column("hashes").to_pylist())


def test_what_sql_takes_for_equal_is_told_apart() -> None:
    """Nulls in another place of an array, -0.0, null against empty."""
    rows = [
        {"a": 0.0, "b": [1, None]},
        {"a": -0.0, "b": [1, None]},
        {"a": 0.0, "b": [None, 1]},
        {"a": 0.0, "b": []},
        {"a": 0.0, "b": None},
        {"a": None, "b": None},
        None,
    ]
    found = [first for first, _ in hashes(rows, [None] * len(rows))]
    assert len({*found}) == len(rows)


def test_the_order_of_a_map_does_not_count_and_each_column_has_its_hash() -> None:
    maps = [[("x", 1), ("y", 2)], [("y", 2), ("x", 1)], [("x", 2), ("y", 1)]]
    one, two, three = hashes([None, None, {"a": 1.0, "b": None}], maps)
    assert one == two
    assert one[0] != three[0] and one[1] != three[1]
