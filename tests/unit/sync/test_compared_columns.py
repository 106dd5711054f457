"""Which columns of two sites are compared, and as which types."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from spark_wan.sync.columns import compared_columns, differ_in_columns, fitted_type


def schema(**columns: Any) -> dict[str, Any]:
    fields = []
    for name, kind in columns.items():
        char = isinstance(kind, str) and "char" in kind
        metadata = {"__CHAR_VARCHAR_TYPE_STRING": kind} if char else {}
        kind = "string" if char else kind
        fields.append({"name": name, "type": kind, "nullable": True, "metadata": metadata})
    return {"type": "struct", "fields": fields}


def struct(**fields: Any) -> dict[str, Any]:
    return schema(**fields)


def test_columns_are_matched_by_name_whatever_their_case_and_order() -> None:
    found = compared_columns(
        schema(id="long", A="string"), schema(a="string", ID="long", own="date")
    )
    assert found.names == ("id", "A")
    assert not found.only_at_origin and not found.not_compared and not found.casts


def test_a_column_that_the_target_lacks_is_named() -> None:
    found = compared_columns(
        schema(id="long", gone="string", s=struct(a="long", b="long")),
        schema(id="long", s=struct(a="long")),
    )
    assert (found.names, found.only_at_origin) == (("id", "s"), ("gone", "s.b"))


@pytest.mark.parametrize(
    ("origin", "target", "cast"),
    [
        ("integer", "long", "long"),
        ("long", "integer", "long"),
        ("float", "double", "double"),
        ("decimal(5,2)", "decimal(20,4)", "decimal(20,4)"),
        ("date", "timestamp_ntz", "timestamp_ntz"),
        ("void", "string", "string"),
        ("char(4)", "string", "string"),
        ("varchar(4)", "varchar(9)", "string"),
    ],
)
def test_types_that_fit_are_compared_as_the_wider_one(origin: str, target: str, cast: str) -> None:
    found = compared_columns(schema(c=origin), schema(c=target))
    assert (found.flat, found.casts) == (("c",), {"c": cast})


@pytest.mark.parametrize("target", ["string", struct(a="long")])
def test_types_that_do_not_fit_are_named(target: Any) -> None:
    found = compared_columns(schema(id="long", c="binary"), schema(id="long", c=target))
    assert found.names == ("id",)
    assert found.not_compared[0].startswith("c: binary at the origin, str")


def test_what_sql_does_not_hash_exactly_is_nested() -> None:
    kinds = {"v": "variant", "s": struct(a="long"), "n": "void", "x": "double", "c": "char(3)"}
    found = compared_columns(schema(**kinds), schema(**kinds))
    assert (found.flat, found.nested) == (("x", "c"), ("v", "s"))
    assert (found.floats, dict(found.chars)) == ({"x"}, {"c": 3})


def test_fields_of_the_target_alone_are_left_out_at_any_depth() -> None:
    """Whatever their order; and a date is compared as the moment that it became."""
    ours = pa.struct([("a", pa.int32()), ("l", pa.list_(pa.struct([("d", pa.date32())])))])
    moments = pa.struct([("own", pa.string()), ("D", pa.timestamp("us"))])
    theirs = pa.struct([("own", pa.int8()), ("L", pa.list_(moments)), ("a", pa.int64())])
    assert [field.name for field in fitted_type(theirs, ours, keeps=False)] == ["L", "a"]
    inner = fitted_type(theirs, ours, keeps=False).field("L").type.value_type
    assert [field.name for field in inner] == ["D"]
    mine = fitted_type(ours, theirs, keeps=True)
    assert mine.field("l").type.value_type.field("d").type == pa.timestamp("us")
    by = pa.map_(pa.int64(), theirs)
    assert fitted_type(by, pa.map_(pa.int64(), ours), keeps=False).item_type.num_fields == 2


def test_changes_of_columns_are_told() -> None:
    before, after = schema(a="long", b="integer"), schema(b="long", c="date")
    assert differ_in_columns(before, after) == [
        "c was added",
        "a was dropped or renamed",
        "b was integer and is long",
    ]
    assert differ_in_columns(before, before) == []
