"""What a target's columns need before they take those that travel."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import schema

from spark_wan.errors import SchemaError
from spark_wan.ledger.interfaces import TargetName
from spark_wan.target.column_changes import Changes, fitted, reconcile


def struct(**fields: Any) -> dict[str, Any]:
    return schema(**fields)


def array(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


def changes(existing: dict[str, Any], travelling: dict[str, Any]) -> Changes:
    return reconcile(existing, travelling, TargetName("orders", "seattle", "delta.`/orders`"))


def test_columns_of_the_target_alone_and_wider_ones_need_no_change() -> None:
    here = schema(
        id="decimal(20,0)", own="string", S=struct(b="double", a="long"), list=array("long")
    )
    assert not changes(here, schema(id="long", s=struct(a="short", b="float"), list=array("byte")))


def test_missing_columns_and_nested_fields_are_added_and_narrower_ones_widened() -> None:
    here = schema(id="long", n="integer", s=struct(a="long"), list=array(struct(x="byte")))
    there = schema(
        id="long",
        n="long",
        s=struct(a="long", b="date"),
        list=array(struct(x="double", y="long")),
        more="date",
    )
    needed = changes(here, there)
    assert [(path, entry["type"]) for path, entry in needed.added] == [
        (("s", "b"), "date"),
        (("list", "element", "y"), "long"),
        (("more",), "date"),
    ]
    assert needed.widened == [
        (("n",), "integer", "long"),
        (("list", "element", "x"), "byte", "double"),
    ]


@pytest.mark.parametrize(
    ("here", "there", "message"),
    [
        ("string", "long", "c is string here and long at the origin"),
        (struct(x="string"), struct(x="long"), "c.x is string here and long at the origin"),
        (array("date"), "date", "c is array<date> here and date at the origin"),
        (
            struct(x="long", own="long"),
            struct(x="long"),
            "c.own is a field of this site's own.*DROP COLUMN c.own",
        ),
        ("float", "integer", "c is float here and integer at the origin"),
        ("double", "long", "c is double here and long at the origin"),
    ],
)
def test_b81_columns_that_cannot_be_reconciled_are_named_with_a_way_out(
    here: Any, there: Any, message: str
) -> None:
    with pytest.raises(
        SchemaError,
        match=f"orders: columns at site seattle cannot be reconciled: {message}.*"
        "drop the table here, and for a copy run",
    ):
        changes(schema(id="long", c=here), schema(id="long", c=there))


def test_declared_lengths_are_left_to_the_rows() -> None:
    declared = schema(id="long", c="string")
    declared["fields"][1] = {
        **declared["fields"][1],
        "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"},
    }
    assert not changes(declared, schema(id="long", c="string"))
    assert not changes(schema(id="long", c="string"), declared)


def test_rows_get_the_types_of_the_target() -> None:
    here = schema(id="decimal(20,0)", own="string", S=struct(b="double", a="long"))
    there = schema(id="long", s=struct(a="short", b="float"), new="date")
    assert fitted(there, here)["fields"] == [
        {"name": "id", "type": "decimal(20,0)", "nullable": True, "metadata": {}},
        {"name": "s", "type": struct(b="double", a="long"), "nullable": True, "metadata": {}},
        {"name": "new", "type": "date", "nullable": True, "metadata": {}},
    ]
