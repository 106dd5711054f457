"""Columns: what can be carried, what may be a key, and how schemas differ."""

from __future__ import annotations

from typing import Any

import pytest

from spark_wan.errors import SchemaError, UnsupportedTypeError
from spark_wan.events.columns import (
    Differences,
    check_columns,
    check_keys,
    column_paths,
    differences,
    fingerprint,
    type_name,
    widens,
)

CHAR = "__CHAR_VARCHAR_TYPE_STRING"


def field(name: str, kind: Any, nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def schema(*fields: dict[str, Any], **types: Any) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [*fields, *(field(name, kind) for name, kind in types.items())],
    }


def array(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


def map_(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


# As pyspark 4.2 gives it for a Delta table of every type.
EVERY_TYPE = schema(
    field("ch", "string", **{CHAR: "char(5)"}),
    field("vc", "string", **{CHAR: "varchar(7)"}),
    field("st", schema(x="integer", ch="string"), **{CHAR: "struct<x:int,ch:char(3)>"}),
    i8="byte",
    i16="short",
    i="integer",
    l="long",
    f="float",
    d="double",
    b="boolean",
    dec="decimal(38,18)",
    s="string",
    bin="binary",
    dt="date",
    ts="timestamp",
    tn="timestamp_ntz",
    v="variant",
    n="void",
    sn=schema(n="void", v="variant"),
    va=array("variant"),
    m=map_("string", schema(k="integer")),
    mm=map_(schema(k="integer"), array(map_("string", "integer"))),
    declared="varchar(3)",
)
UDT = {
    "type": "udt",
    "class": "org.example.PointUDT",
    "pyClass": "example.PointUDT",
    "sqlType": array("double"),
}


# --- check_columns ------------------------------------------------------------------------------


def test_all_types_that_delta_stores_can_be_carried() -> None:
    check_columns(EVERY_TYPE, "table orders")


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("interval", "number of seconds"),
        ("interval day", "number of seconds"),
        ("interval day to hour", "number of seconds"),
        ("interval month", "number of seconds"),
        ("interval year to month", "number of seconds"),
        ("calendar interval", "number of seconds"),
        ("time(6)", "microseconds"),
        ("geometry(SRID:0)", "ST_AsBinary"),
        ("geography(OGC:CRS84, SPHERICAL)", "ST_AsBinary"),
        ("string collate UNICODE", "UTF8_BINARY"),
        (UDT, "plain columns"),
        (array("void"), "Cast its elements"),
        (map_("string", schema(n="void")), "Cast its elements"),
        (schema(), "Give it a field"),
        ("decimal(5,-2)", "type that Delta stores"),
        ("something new", "type that Delta stores"),
    ],
    ids=str,
)
def test_other_types_are_refused_with_path_and_advice(kind: Any, advice: str) -> None:
    for wrapped, path in (
        (kind, "c"),
        (array(kind), "c.element"),
        (map_("string", kind), "c.value"),
        (map_(kind, "string"), "c.key"),
        (schema(x=array(kind)), "c.x.element"),
    ):
        with pytest.raises(
            UnsupportedTypeError,
            match=rf"^table orders: column '{path}\b.*{advice}.* before the sink\.$",
        ):
            check_columns(schema(id="long", c=wrapped), "table orders")


def test_the_refusal_reads_well() -> None:
    with pytest.raises(UnsupportedTypeError) as refusal:
        check_columns(schema(s=schema(due="interval day to second")), "table orders")
    assert str(refusal.value) == (
        "table orders: column 's.due' is interval day to second, which cannot be carried."
        " Cast it to a number of seconds, days or months, or to a string, or drop it, before"
        " the sink."
    )


@pytest.mark.parametrize(
    ("bad", "path"),
    [
        (field("c", "string", __COLLATIONS={"c": "icu.UNICODE_CI"}), "c"),
        (field("c", array("string"), __COLLATIONS={"c.element": "spark.UTF8_LCASE"}), "c.element"),
        (
            field("c", array(schema(field("q", "string", __COLLATIONS={"q": "icu.DE"})))),
            "c.element.q",
        ),
    ],
    ids=["plain", "element", "nested"],
)
def test_collated_strings_are_refused_though_their_type_says_string(
    bad: dict[str, Any], path: str
) -> None:
    with pytest.raises(
        UnsupportedTypeError, match=rf"'{path}' is string collate (UNICODE_CI|UTF8_LCASE|DE),"
    ):
        check_columns(schema(bad), "table orders")
    check_columns(
        schema(field("c", "string", __COLLATIONS={"c": "spark.UTF8_BINARY"})), "table orders"
    )


@pytest.mark.parametrize("name", ["_wan_op", "_WAN_seq", "_wan_"])
def test_reserved_names_are_refused_at_the_top_level(name: str) -> None:
    with pytest.raises(SchemaError, match=rf"stream s: column '{name}'.*Rename"):
        check_columns(schema(**{name: "long"}), "stream s")
    check_columns(schema(c=schema(**{name: "long"}), wan_op="long"), "stream s")


def test_names_that_differ_only_by_case_are_refused_at_every_depth() -> None:
    twins = schema(a="long", A="string")
    for columns, path in (
        (twins, "A"),
        (schema(c=twins), "c.A"),
        (schema(c=array(twins)), "c.element.A"),
    ):
        with pytest.raises(
            SchemaError, match=rf"^table orders: .* and '{path}' have the same name"
        ):
            check_columns(columns, "table orders")


# --- fingerprint --------------------------------------------------------------------------------


def test_a_fingerprint_is_short_and_frozen() -> None:
    assert fingerprint(schema(id="long", name="string")) == "7ef8ffbe3b8f70f9"
    assert fingerprint(EVERY_TYPE) == "123fda854c94de87"


def test_a_fingerprint_ignores_order_case_nullability_and_comments() -> None:
    one = schema(
        field("id", "long", nullable=False, comment="the key"),
        field("s", schema(x="long", Y="date")),
    )
    other = schema(field("S", schema(y="date", x="long")), field("ID", "long"))
    assert fingerprint(one) == fingerprint(other)
    not_null = {"type": "array", "elementType": "long", "containsNull": False}
    assert fingerprint(schema(a=array("long"))) == fingerprint(schema(a=not_null))


def test_a_fingerprint_changes_with_names_and_types() -> None:
    variants = [
        schema(),
        schema(a="string"),
        schema(b="string"),
        schema(a="string", b="string"),
        schema(a="long"),
        schema(a="timestamp"),
        schema(a="timestamp_ntz"),
        schema(a="decimal(10,2)"),
        schema(a="decimal(10,3)"),
        schema(field("a", "string", **{CHAR: "char(5)"})),
        schema(field("a", "string", **{CHAR: "char(6)"})),
        schema(field("a", "string", **{CHAR: "varchar(5)"})),
        schema(a=array("string")),
        schema(field("a", array("string"), **{CHAR: "array<char(5)>"})),
        schema(a=schema(b="string")),
        schema(a=schema(b="string", c="long")),
        schema(field("a", schema(b="string", c="string"), **{CHAR: "struct<b:char(2),c:char(3)>"})),
        schema(field("a", schema(b="string", c="string"), **{CHAR: "struct<b:char(3),c:char(2)>"})),
        schema(a=map_("string", "long")),
        schema(a=map_("long", "string")),
        schema(**{"a:string,b": "string"}),
        schema(**{"a`": "string"}),
    ]
    assert len({fingerprint(variant) for variant in variants}) == len(variants)


def test_char_and_varchar_are_the_same_declared_or_in_metadata() -> None:
    assert fingerprint(schema(a="char(5)")) == fingerprint(
        schema(field("a", "string", **{CHAR: "char(5)"}))
    )
    swapped = field("a", schema(c="string", b="string"), **{CHAR: "struct<c:char(3),b:char(2)>"})
    straight = field("a", schema(b="string", c="string"), **{CHAR: "struct<b:char(2),c:char(3)>"})
    assert fingerprint(schema(swapped)) == fingerprint(schema(straight))


def test_types_are_written_as_people_write_them() -> None:
    assert type_name(map_("string", schema(**{"b": array("long"), "a b": "date"}))) == (
        "map<string,struct<`a b`:date,b:array<long>>>"
    )
    assert type_name(UDT) == "udt<org.example.PointUDT>"


# --- check_keys ---------------------------------------------------------------------------------


def test_columns_that_compare_exactly_may_be_keys() -> None:
    keys = ["i8", "i16", "i", "l", "b", "s", "bin", "dt", "ts", "tn", "dec", "ch", "vc", "declared"]
    check_keys(EVERY_TYPE, keys)
    check_keys(EVERY_TYPE, [])


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("f", "compare exactly"),
        ("d", "compare exactly"),
        ("v", "different bytes"),
        ("n", "always null"),
        ("st", "nested"),
        ("va", "nested"),
        ("m", "nested"),
    ],
)
def test_other_columns_are_refused_as_keys_with_the_reason(key: str, reason: str) -> None:
    with pytest.raises(
        UnsupportedTypeError, match=rf"key column '{key}' is .*{reason}.*Use a column of integers"
    ):
        check_keys(EVERY_TYPE, ["i", key])


def test_collated_strings_and_types_that_are_not_carried_are_no_keys() -> None:
    with pytest.raises(UnsupportedTypeError, match="collated strings"):
        check_keys(schema(field("c", "string", __COLLATIONS={"c": "icu.UNICODE_CI"})), ["c"])
    with pytest.raises(UnsupportedTypeError, match="cannot be carried"):
        check_keys(schema(c="time(6)"), ["c"])


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("order_ids", r"Did you mean 'order_id'\? The columns are: order_id, Place"),
        ("ORDER_ID", r"Did you mean 'order_id'\?"),
        ("place", r"Did you mean 'Place'\?"),
        ("Place.city", "a column of its own, not a field of 'Place'"),
        ("zzz", r"The columns are: order_id, Place\."),
    ],
)
def test_a_missing_key_names_the_nearest_column(key: str, hint: str) -> None:
    with pytest.raises(
        SchemaError, match=rf"^the table: key column '{key}' is not there\. .*{hint}"
    ):
        check_keys(schema(order_id="long", Place=schema(city="string")), [key])


def test_a_key_that_is_named_twice_is_refused() -> None:
    with pytest.raises(SchemaError, match="named twice"):
        check_keys(schema(id="long"), ["id", "id"])


# --- differences --------------------------------------------------------------------------------


def test_order_and_case_of_columns_are_no_difference() -> None:
    old, new = (
        schema(id="long", s=schema(a="long", b="date")),
        schema(S=schema(B="date", a="long"), ID="long"),
    )
    assert differences(old, new) == Differences([], [], [])


def test_added_dropped_and_retyped_columns_are_distinguished() -> None:
    old = schema(field("ch", "string", **{CHAR: "char(5)"}), Id="long", gone="string", st="date")
    new = schema(
        field("ch", "string", **{CHAR: "char(6)"}),
        ID="decimal(20,0)",
        came="date",
        st=array("long"),
    )
    found = differences(old, new)
    assert found.added == [(("came",), field("came", "date"))]
    assert found.dropped == [("gone",)]
    assert found.retyped == [
        (("ch",), "char(5)", "char(6)"),
        (("ID",), "long", "decimal(20,0)"),
        (("st",), "date", "array<long>"),
    ]


@pytest.mark.parametrize(
    ("within", "path"),
    [
        (lambda kind: kind, ()),
        (array, ("element",)),
        (lambda kind: array(array(kind)), ("element", "element")),
        (lambda kind: map_("string", kind), ("value",)),
        (lambda kind: map_(kind, "string"), ("key",)),
        (lambda kind: schema(t=map_("long", array(kind))), ("t", "value", "element")),
    ],
)
def test_nested_fields_are_compared_one_by_one(within: Any, path: tuple[str, ...]) -> None:
    """At every depth, with the path that Delta's ALTER TABLE uses."""
    old, new = schema(x="integer", gone="date"), schema(X="long", came="date")
    found = differences(schema(c=within(old)), schema(c=within(new)))
    assert found.added == [(("c", *path, "came"), field("came", "date"))]
    assert found.dropped == [("c", *path, "gone")]
    assert found.retyped == [(("c", *path, "X"), "integer", "long")]


def test_the_length_of_a_nested_char_is_a_difference() -> None:
    old, new = (
        field("st", schema(ch="string"), **{CHAR: f"struct<ch:char({length})>"})
        for length in (3, 4)
    )
    assert differences(schema(old), schema(new)).retyped == [
        (("st",), "struct<ch:string> with ch:char(3)", "struct<ch:string> with ch:char(4)")
    ]


DECIMALS = ("5,0", "10,0", "10,1", "11,3", "12,1", "12,3", "20,0")
TYPES = (
    *("byte", "short", "integer", "long", "float", "double", "string", "varchar(3)"),
    *("date", "timestamp", "timestamp_ntz"),
    *(f"decimal({decimal})" for decimal in DECIMALS),
)
FOR_INTEGERS = {"decimal(10,0)", "decimal(20,0)", "decimal(12,1)"}
WIDER = {
    "byte": {"short", "integer", "long", "double", *FOR_INTEGERS},
    "short": {"integer", "long", "double", *FOR_INTEGERS},
    "integer": {"long", "double", *FOR_INTEGERS},
    "long": {"decimal(20,0)"},
    "float": {"double"},
    "date": {"timestamp_ntz"},
    "decimal(5,0)": {f"decimal({decimal})" for decimal in DECIMALS[1:]},
    "decimal(10,0)": {"decimal(12,1)", "decimal(20,0)"},
    "decimal(10,1)": {"decimal(12,1)", "decimal(12,3)"},
    "decimal(11,3)": {"decimal(12,3)"},
    "decimal(12,1)": set(),
}


@pytest.mark.parametrize("narrow", TYPES)
def test_b81_widens_accepts_what_delta_widens(narrow: str) -> None:
    """As observed with delta-spark 4.4: it accepts what is in the table, and nothing else."""
    assert {wide for wide in TYPES if widens(narrow, wide)} == WIDER.get(narrow, set())


def test_paths_of_columns_are_written_as_the_history_writes_them() -> None:
    found = column_paths(
        schema(
            **{
                "Id": "long",
                "a.b": schema(c=array(schema(D="date"))),
                "m": map_(schema(k="long"), "string"),
            }
        )
    )
    assert found == ["id", "`a.b`", "`a.b`.c", "`a.b`.c.element.d", "m", "m.key.k"]
