"""Columns: which Spark types can be carried, what changed between two schemas, and Arrow batches made wire-ready.

Schemas are Spark's own JSON, what ``StructType.jsonValue()`` gives and Delta's log stores:
``{"type": "struct", "fields": [{"name": …, "type": …, "nullable": …, "metadata": {…}}]}``.
Columns unify by name, and case does not count.

What pyspark 4.2 hands to ``mapInArrow`` and takes back, tried out:

- A variant is ``struct<value: binary not null, metadata: binary not null>``, and goes back as such, by the *declared*
  Spark schema, with or without field metadata. Under a null variant both children hold empty values, not nulls.
- Struct children bind by position, as columns do: ``metadata`` before ``value`` is a malformed variant, and
  ``{b, a}`` given for ``struct<a, b>`` swaps them silently.
- Arrow field metadata (``SPARK::metadata::json``) comes from the plan, not from the table: a scanned variant has some
  that the schema does not have. A fingerprint must not look at it.
- Timestamps carry the session's time zone (inside arrays, maps and structs too); on the way back any zone, or none, is
  taken for the instant.
- char and varchar are plain strings (char padded); their type is in the metadata of the top-level column. So are
  collations, in the metadata of the nearest struct field (``__COLLATIONS``): the type itself says only ``string``.
- Taken back: exact types, large_string and large_binary. Refused: dictionaries, string_view, large_list,
  fixed_size_list, int64 for an int.
- Delta stores void at the top and in structs, but at no depth inside an array or a map.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_wan.errors import SchemaError, UnsupportedTypeError

SchemaJson = Mapping[str, Any]
FieldJson = Mapping[str, Any]

RESERVED_PREFIX = "_wan_"

_FINGERPRINT_VERSION = (
    1  # manifests and ledgers keep fingerprints: another rendering of types is another version
)
CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"
"""The key in a field's metadata under which Spark keeps what a char or varchar declares; the type itself says ``string``."""
_COLLATIONS = "__COLLATIONS"
_CHAR = r"(?:var)?char\(\d+\)"
_KEY_TYPE = re.compile(
    rf"byte|short|integer|long|string|boolean|binary|date|timestamp|timestamp_ntz|decimal\(\d+, *\d+\)|{_CHAR}"
)
_OTHER_TYPE = re.compile(r"float|double|variant|void")
_INTEGERS = ("byte", "short", "integer", "long")
_DECIMAL = re.compile(r"decimal\((\d+), *(\d+)\)")


Path = tuple[str, ...]
"""A column, or a field inside it, as Delta names it: ``("s", "x")``, ``("a", "element", "x")``, ``("m", "value", "x")``."""


@dataclass(frozen=True)
class Differences:
    """How two schemas differ, nested fields by themselves: by name, whatever the case and the order.

    ``added`` are fields of the new schema, ``dropped`` paths of the old one, ``retyped`` paths with the types before and after.
    """

    added: list[tuple[Path, FieldJson]]
    dropped: list[Path]
    retyped: list[tuple[Path, str, str]]


def check_columns(schema_json: SchemaJson, where: str) -> None:
    """Refuse columns that cannot be carried, before anything is sent; ``where`` names the table or stream.

    Raises UnsupportedTypeError with the column's path and type, and SchemaError for reserved or repeated names.
    """
    for field in schema_json["fields"]:
        if field["name"].lower().startswith(RESERVED_PREFIX):
            raise SchemaError(
                f"{where}: column {field['name']!r}: names that begin with {RESERVED_PREFIX!r} belong to spark_wan."
                " Rename the column before the sink."
            )
    _check_fields(schema_json["fields"], "", where, inside_collection=False)


def fingerprint(schema_json: SchemaJson) -> str:
    """16 hexadecimal digits for the names and types of all columns.

    Order, case, nullability, comments and other metadata do not count; the length of a char or varchar does.
    """
    # A name of the format, not of a module: it stays.
    text = f"spark_wan.columns.{_FINGERPRINT_VERSION}\0{type_name(schema_json)}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def check_keys(schema_json: SchemaJson, keys: Sequence[str], where: str = "the table") -> None:
    """Refuse key columns that are missing (SchemaError) or that cannot be compared exactly (UnsupportedTypeError); ``where``
    names the table or stream."""
    fields: dict[str, FieldJson] = {field["name"]: field for field in schema_json["fields"]}
    seen: set[str] = set()
    for key in keys:
        if key not in fields:
            raise SchemaError(
                f"{where}: key column {key!r} is not there. {_nearest(key, list(fields))}"
            )
        if key in seen:
            raise SchemaError(
                f"{where}: key column {key!r} is named twice: name each key column once"
            )
        seen.add(key)
        kind, metadata = fields[key]["type"], fields[key].get("metadata") or {}
        reason = _why_not_a_key(kind, metadata)
        if reason:
            raise UnsupportedTypeError(
                f"{where}: key column {key!r} is {type_name(kind, metadata)}: {reason}. Use a column of integers, strings,"
                " booleans, bytes, dates, timestamps or decimals, or add one that is computed from it (a cast, a hash)."
            )


def differences(old_schema_json: SchemaJson, new_schema_json: SchemaJson) -> Differences:
    """What was added, dropped and retyped, at every depth. A renamed column or field shows as one dropped and one added."""
    found = Differences([], [], [])
    _differ_fields(old_schema_json["fields"], new_schema_json["fields"], (), found)
    return found


def widens(narrow: str, wide: str) -> bool:
    """Whether every value of a type is exactly one of another, wider type, by the list of Delta's type widening.

    >>> widens("integer", "long"), widens("long", "double"), widens("decimal(10,1)", "decimal(12,3)")
    (True, False, True)
    """
    if narrow in _INTEGERS and wide in _INTEGERS:
        return _INTEGERS.index(narrow) < _INTEGERS.index(wide)
    if found := _DECIMAL.fullmatch(wide):
        precision, scale = int(found[1]), int(found[2])
        if narrow in _INTEGERS:
            return precision - scale >= (20 if narrow == "long" else 10)
        if of := _DECIMAL.fullmatch(narrow):
            more, finer = precision - int(of[1]), scale - int(of[2])
            return more >= finer >= 0 and (more, finer) != (0, 0)
    return (narrow, wide) in {
        ("float", "double"), ("byte", "double"), ("short", "double"), ("integer", "double"), ("date", "timestamp_ntz"),
    }  # fmt: skip


def column_path(names: Sequence[str]) -> str:
    """A path as Delta's history writes it, in lower case: names with dots stand in backticks.

    >>> column_path(("S", "a.b"))
    's.`a.b`'
    """
    return ".".join(f"`{name.lower()}`" if "." in name else name.lower() for name in names)


def column_paths(schema_json: SchemaJson) -> list[str]:
    """All columns and, after each, the fields inside it: ``s``, ``s.x``, ``a``, ``a.element.x`` …"""
    found: list[str] = []

    def walk(kind: Any, path: Path) -> None:
        if isinstance(kind, str):
            return
        for entry in kind.get("fields", ()):
            found.append(column_path((*path, entry["name"])))
            walk(entry["type"], (*path, entry["name"]))
        for name in ("element", "key", "value"):
            if f"{name}Type" in kind:
                walk(kind[f"{name}Type"], (*path, name))

    walk(schema_json, ())
    return found


def type_name(kind: str | Mapping[str, Any], metadata: Mapping[str, Any] | None = None) -> str:
    """A type as people write it, the same for equal types: names in lower case, struct fields sorted by name.

    >>> type_name({"type": "array", "elementType": "integer", "containsNull": True})
    'array<integer>'
    """
    declared = (metadata or {}).get(CHAR_VARCHAR)
    if isinstance(kind, str):
        return declared if declared and kind == "string" else kind
    match kind["type"]:
        case "struct":
            name = f"struct<{','.join(sorted(_quoted(f['name']) + ':' + _field_type(f) for f in kind['fields']))}>"
        case "array":
            name = f"array<{type_name(kind['elementType'])}>"
        case "map":
            name = f"map<{type_name(kind['keyType'])},{type_name(kind['valueType'])}>"
        case other:
            name = f"{other}<{kind.get('class') or kind.get('pyClass')}>"
    # Spark writes the whole nested type again; only its chars and varchars say more than the type itself.
    lengths = sorted(re.findall(rf"[^<>,:]*:?{_CHAR}", declared.lower())) if declared else []
    return f"{name} with {', '.join(lengths)}" if lengths else name


def arrow_ready(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch that Spark or a Delta reader handed over, as every sender puts it on the wire.

    Timestamps with a time zone get ``UTC`` (the instants stay), views become plain strings and binaries, dictionaries
    are decoded, at every depth. Nothing else is touched, field metadata included; a ready batch comes back as it is.
    """
    fields = [_ready_field(field) for field in batch.schema]
    if all(field.type == column.type for field, column in zip(fields, batch.columns, strict=True)):
        return batch
    columns = [
        as_type(column, field.type) for column, field in zip(batch.columns, fields, strict=True)
    ]
    return pa.RecordBatch.from_arrays(
        columns, schema=pa.schema(fields, metadata=batch.schema.metadata)
    )


def as_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """An array as a type that has the same values. Struct fields are matched by name, since Spark binds them by position.

    Nested arrays are rebuilt around their children: Arrow's cast refuses a null struct with non-nullable fields.
    """
    types, old = pa.types, array.type
    if old == kind:
        return array
    if types.is_dictionary(old):
        return as_type(array.dictionary_decode(), kind)
    if types.is_struct(old):
        places = {field.name.lower(): place for place, field in enumerate(old)}
        children = [as_type(array.field(places[field.name.lower()]), field.type) for field in kind]
        nulls = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=nulls)
    if types.is_map(old):
        pairs = [as_type(array.keys, kind.key_type), as_type(array.items, kind.item_type)]
        child = pa.StructArray.from_arrays(pairs, fields=[kind.key_field, kind.item_field])
    elif types.is_nested(old):
        child = as_type(array.values, kind.value_type)
    else:
        return array.cast(kind)
    own_buffers = array.buffers()[: 1 if types.is_fixed_size_list(old) else 2]
    return pa.Array.from_buffers(
        kind, len(array), own_buffers, array.null_count, array.offset, [child]
    )


# --- Spark types ------------------------------------------------------------------------------------------------------


def _check_fields(
    fields: Sequence[FieldJson], parent: str, where: str, *, inside_collection: bool
) -> None:
    seen: dict[str, str] = {}
    for field in fields:
        name: str = field["name"]
        if name.lower() in seen:
            raise SchemaError(
                f"{where}: columns {parent + seen[name.lower()]!r} and {parent + name!r} have the same name (case does"
                " not count): rename or drop one of the two before the sink."
            )
        seen[name.lower()] = name
        for path, collation in _collated(field.get("metadata") or {}):
            raise _unsupported(where, parent + path, f"string collate {collation}")
        _check_type(field["type"], parent + name, where, inside_collection=inside_collection)


def _check_type(
    kind: str | Mapping[str, Any], path: str, where: str, *, inside_collection: bool
) -> None:
    if isinstance(kind, str):
        if kind == "void" and inside_collection:
            raise _unsupported(where, path, "void (inside an array or a map)")
        if not (_KEY_TYPE.fullmatch(kind) or _OTHER_TYPE.fullmatch(kind)):
            raise _unsupported(where, path, kind)
    elif kind["type"] == "struct" and kind["fields"]:
        _check_fields(kind["fields"], f"{path}.", where, inside_collection=inside_collection)
    elif kind["type"] == "array":
        _check_type(kind["elementType"], f"{path}.element", where, inside_collection=True)
    elif kind["type"] == "map":
        _check_type(kind["keyType"], f"{path}.key", where, inside_collection=True)
        _check_type(kind["valueType"], f"{path}.value", where, inside_collection=True)
    else:
        raise _unsupported(where, path, type_name(kind))


def _differ_fields(
    old: Sequence[FieldJson], new: Sequence[FieldJson], parent: Path, found: Differences
) -> None:
    before, after = ({field["name"].lower(): field for field in fields} for fields in (old, new))
    found.dropped.extend(
        (*parent, field["name"]) for name, field in before.items() if name not in after
    )
    for name, field in after.items():
        path = (*parent, field["name"])
        if name not in before:
            found.added.append((path, field))
            continue
        seen = len(found.added) + len(found.dropped) + len(found.retyped)
        _differ_types(before[name]["type"], field["type"], path, found)
        was, now = _field_type(before[name]), _field_type(field)
        if was != now and seen == len(found.added) + len(found.dropped) + len(found.retyped):
            found.retyped.append((path, was, now))  # what a char or varchar declares


def _differ_types(old: Any, new: Any, path: Path, found: Differences) -> None:
    if isinstance(old, str) or isinstance(new, str) or old["type"] != new["type"]:
        if old != new:
            found.retyped.append((path, type_name(old), type_name(new)))
    elif old["type"] == "struct":
        _differ_fields(old["fields"], new["fields"], path, found)
    elif old["type"] == "array":
        _differ_types(old["elementType"], new["elementType"], (*path, "element"), found)
    elif old["type"] == "map":
        _differ_types(old["keyType"], new["keyType"], (*path, "key"), found)
        _differ_types(old["valueType"], new["valueType"], (*path, "value"), found)
    elif old != new:
        found.retyped.append((path, type_name(old), type_name(new)))


_ADVICE = {  # the first pattern that matches the type
    r"string collate": "Cast it to STRING COLLATE UTF8_BINARY",
    r"interval|calendar": "Cast it to a number of seconds, days or months, or to a string",
    r"time\b": "Cast it to a string or to a number of microseconds",
    r"geometry|geography": "Cast it to binary with ST_AsBinary",
    r"udt": "Take its fields out into plain columns",
    r"void": "Cast its elements to a type",
    r"struct<>": "Give it a field",
    r"": "Cast it to a type that Delta stores",
}


def _unsupported(where: str, path: str, kind: str) -> UnsupportedTypeError:
    advice = next(advice for pattern, advice in _ADVICE.items() if re.match(pattern, kind))
    return UnsupportedTypeError(
        f"{where}: column {path!r} is {kind}, which cannot be carried. {advice}, or drop it, before the sink."
    )


def _why_not_a_key(kind: str | Mapping[str, Any], metadata: Mapping[str, Any]) -> str | None:
    if not isinstance(kind, str):
        return "nested values are no keys"
    if any(_collated(metadata)):
        return "collated strings can be equal when their bytes are not"
    if _KEY_TYPE.fullmatch(kind):
        return None
    return {
        "float": "floating-point numbers do not compare exactly (NaN, -0.0, rounding)",
        "double": "floating-point numbers do not compare exactly (NaN, -0.0, rounding)",
        "variant": "equal variants can have different bytes",
        "void": "it is always null",
    }.get(kind, "this type cannot be carried")


def _nearest(key: str, names: list[str]) -> str:
    folded = {name.lower(): name for name in reversed(names)}
    parent, _, rest = key.partition(".")
    if rest and parent.lower() in folded:
        return f"A key is a column of its own, not a field of {folded[parent.lower()]!r}: copy the field into a column."
    near = difflib.get_close_matches(key.lower(), folded, n=1)
    known = ", ".join(names) or "none"
    return (
        f"Did you mean {folded[near[0]]!r}? The columns are: {known}."
        if near
        else f"The columns are: {known}."
    )


def _collated(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for path, collation in sorted((metadata.get(_COLLATIONS) or {}).items()):
        if collation != "spark.UTF8_BINARY":
            yield path, collation.rpartition(".")[2]


def _field_type(field: FieldJson) -> str:
    return type_name(field["type"], field.get("metadata"))


def _quoted(name: str) -> str:
    lower = name.lower()
    return lower if re.fullmatch("[a-z0-9_]+", lower) else "`" + lower.replace("`", "``") + "`"


# --- Arrow types ------------------------------------------------------------------------------------------------------


def _ready_field(field: pa.Field) -> pa.Field:
    return field.with_type(_ready_type(field.type))


def _ready_type(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_dictionary(kind):
        return _ready_type(kind.value_type)
    if types.is_struct(kind):
        return pa.struct([_ready_field(field) for field in kind])
    if types.is_list(kind):
        return pa.list_(_ready_field(kind.value_field))
    if types.is_large_list(kind):
        return pa.large_list(_ready_field(kind.value_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(_ready_field(kind.value_field), kind.list_size)
    if types.is_map(kind):
        return pa.map_(
            _ready_field(kind.key_field), _ready_field(kind.item_field), kind.keys_sorted
        )
    return kind
