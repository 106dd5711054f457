"""Which applies replace rows by their keys, where others MERGE them. Without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StructType

from spark_wan.delta.key_list import KeyList
from spark_wan.target.difference import differs
from spark_wan.target.rows import EventRows
from spark_wan.target.write import is_listable, may_replace

A_STRUCT = StructType().add("a", "integer")
COLUMNS: dict[str, Any] = {"id": "long", "s": A_STRUCT, "text": "string"}
TARGETS: dict[str, dict[str, Any]] = {
    "one more": {**COLUMNS, "own": "integer"},
    "one less": {"id": "long", "s": A_STRUCT},
    "wider": {**COLUMNS, "s": StructType().add("a", "long")},
    "one more field": {**COLUMNS, "s": StructType().add("a", "integer").add("b", "integer")},
    "other case": {"ID": "long", "s": A_STRUCT, "text": "string"},
}


def schema(columns: dict[str, Any], nullable: bool = True) -> StructType:
    made = StructType()
    for name, kind in columns.items():
        made.add(name, kind, nullable)
    return made


def rows(columns: dict[str, Any]) -> EventRows:
    frame: Any = SimpleNamespace(schema=schema({"_wan_op": "byte", **columns}))
    return EventRows(frame, list(columns), ("id",))


@pytest.mark.parametrize("kind", ["string", "array<int>", "map<int,int>", "array<array<float>>"])
def test_a_copy_leaves_equal_rows_alone_where_they_can_be_compared(kind: str) -> None:
    condition = differs(("ID",), ("id", "text"), {"id": "string", "text": kind})
    assert "t.`id`" not in condition  # a key equals itself
    comparable = kind in ("string", "array<int>")
    assert condition.endswith(" OR NOT (t.`text` <=> s.`text`)" if comparable else " OR true")


def test_a_copy_tells_zeros_of_either_sign_apart() -> None:
    """For Spark they are equal. Fails when a repair leaves them as they are."""
    condition = differs(("id",), ("id", "x"), {"id": "bigint", "x": "double"})
    assert "t.`x` <=> s.`x` AND (CAST(t.`x` AS STRING) <=> CAST(s.`x` AS STRING))" in condition


def test_a_table_with_the_columns_of_the_events_is_replaced() -> None:
    target = schema(dict(reversed(COLUMNS.items())), nullable=False)
    properties = {"delta.enableChangeDataFeed": "false", "delta.enableDeletionVectors": "true"}
    assert may_replace(rows(COLUMNS), target, properties)


@pytest.mark.parametrize("target", TARGETS)
def test_a_table_with_other_columns_is_not_replaced(target: str) -> None:
    """A replaced row would lose its values in columns that do not travel."""
    assert not may_replace(rows(COLUMNS), schema(TARGETS[target]), {})


def test_a_table_with_a_void_column_is_not_replaced() -> None:
    """Delta writes no void columns, except in a MERGE."""
    columns = {"id": "long", "nothing": "void"}
    assert not may_replace(rows(columns), schema(columns), {})


def test_keys_are_not_listed_for_wider_columns() -> None:
    """Spark refuses to look for a struct among structs of other types: the MERGE would fail."""
    keys = KeyList(("a", "b"), (("1", "'x'"),), unique=True)
    travelling = schema({"a": "integer", "b": "string"})
    assert is_listable(keys, travelling, schema({"B": "string", "A": "integer"}))
    assert not is_listable(keys, travelling, schema({"a": "long", "b": "string"}))


@pytest.mark.parametrize(
    "name",
    ["delta.enableChangeDataFeed", "delta.enableRowTracking", "delta.feature.identityColumns"],
)
def test_a_table_whose_readers_see_updates_is_not_replaced(name: str) -> None:
    """Nor one whose columns Delta may compute."""
    value = "supported" if ".feature." in name else "TRUE"
    assert not may_replace(rows(COLUMNS), schema(COLUMNS), {name: value})
