"""Columns of a table: which Spark types can be carried, their fingerprint, and how schemas differ.

Schemas are Spark's own JSON, which ``StructType.jsonValue()`` returns and Delta's log stores:
``{"type": "struct", "fields": [{"name": …, "type": …, "nullable": …, "metadata": {…}}]}``.
Columns are matched by name, and case does not count.

A char or varchar is a plain string (char padded); its type is in the metadata of the top-level
column. So are collations, in the metadata of the nearest struct field (``__COLLATIONS``): the type
itself says only ``string``. Delta stores void at the top and in structs, but at no depth inside an
array or a map.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_wan.errors import SchemaError, UnsupportedTypeError
from spark_wan.events.operations import RESERVED_PREFIX

SchemaJson = Mapping[str, Any]
FieldJson = Mapping[str, Any]
TypeJson = str | Mapping[str, Any]

Path = tuple[str, ...]
"""A column, or a field inside it, as Delta names it: ``("s", "x")``, ``("a", "element", "x")``,
``("m", "value", "x")``."""

CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"
"""The key of a field's metadata under which Spark keeps its char or varchar type."""
_COLLATIONS = "__COLLATIONS"

_FINGERPRINT_VERSION = 1
"""Manifests and ledgers keep fingerprints: another rendering of types is another version."""

_CHAR = r"(?:var)?char\(\d+\)"
_KEY_TYPE = re.compile(
    r"byte|short|integer|long|string|boolean|binary|date|timestamp|timestamp_ntz"
    rf"|decimal\(\d+, *\d+\)|{_CHAR}"
)
_OTHER_TYPE = re.compile(r"float|double|variant|void")
_INTEGERS = ("byte", "short", "integer", "long")
_DECIMAL = re.compile(r"decimal\((\d+), *(\d+)\)")
_WIDENED = {
    ("float", "double"), ("byte", "double"), ("short", "double"), ("integer", "double"),
    ("date", "timestamp_ntz"),
}  # fmt: skip
_INEXACT = "floating-point numbers do not compare exactly (NaN, -0.0, rounding)"
_NO_KEY = {
    "float": _INEXACT,
    "double": _INEXACT,
    "variant": "equal variants can have different bytes",
    "void": "it is always null",
}
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


@dataclass(frozen=True)
class Differences:
    """How two schemas differ, at every depth: by name, whatever the case and the order.

    ``added`` are fields of the new schema, ``dropped`` paths of the old one, and ``retyped`` paths
    with the types before and after.
    """

    added: list[tuple[Path, FieldJson]] = field(default_factory=list)
    dropped: list[Path] = field(default_factory=list)
    retyped: list[tuple[Path, str, str]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.added) + len(self.dropped) + len(self.retyped)


# --- what can be carried ------------------------------------------------------------------------


def check_columns(schema_json: SchemaJson, where: str) -> None:
    """Refuse columns that cannot be carried; ``where`` names the table or stream.

    Raises UnsupportedTypeError with the column's path and type, and SchemaError for reserved or
    repeated names.
    """
    for column in schema_json["fields"]:
        if column["name"].lower().startswith(RESERVED_PREFIX):
            raise SchemaError(
                f"{where}: column {column['name']!r}: names that begin with {RESERVED_PREFIX!r} "
                "belong to spark_wan. Rename the column before the sink."
            )
    _check_fields(schema_json["fields"], "", where, inside_collection=False)


def check_keys(schema_json: SchemaJson, keys: Sequence[str], where: str = "the table") -> None:
    """Refuse key columns that are missing (SchemaError) or that cannot be compared exactly
    (UnsupportedTypeError); ``where`` names the table or stream."""
    columns: dict[str, FieldJson] = {column["name"]: column for column in schema_json["fields"]}
    for place, key in enumerate(keys):
        if key not in columns:
            raise SchemaError(
                f"{where}: key column {key!r} is not there. {_nearest(key, list(columns))} "
                "Correct the `keys` of the table in the topology."
            )
        if key in keys[:place]:
            raise SchemaError(
                f"{where}: key column {key!r} is named twice: name each key column once"
            )
        kind, metadata = columns[key]["type"], columns[key].get("metadata") or {}
        if reason := _why_not_a_key(kind, metadata):
            raise UnsupportedTypeError(
                f"{where}: key column {key!r} is {type_name(kind, metadata)}: {reason}. Use a "
                "column of integers, strings, booleans, bytes, dates, timestamps or decimals, or "
                "add one that is computed from it (a cast, a hash)."
            )


def _check_fields(
    fields: Sequence[FieldJson], parent: str, where: str, *, inside_collection: bool
) -> None:
    names: dict[str, str] = {}
    for entry in fields:
        name: str = entry["name"]
        if name.lower() in names:
            raise SchemaError(
                f"{where}: columns {parent + names[name.lower()]!r} and {parent + name!r} have the "
                "same name (case does not count): rename or drop one of the two before the sink."
            )
        names[name.lower()] = name
        for path, collation in _collated(entry.get("metadata") or {}):
            raise _unsupported(where, parent + path, f"string collate {collation}")
        _check_type(entry["type"], parent + name, where, inside_collection=inside_collection)


def _check_type(kind: TypeJson, path: str, where: str, *, inside_collection: bool) -> None:
    if isinstance(kind, str):
        if kind == "void" and inside_collection:
            raise _unsupported(where, path, "void (inside an array or a map)")
        if not (_KEY_TYPE.fullmatch(kind) or _OTHER_TYPE.fullmatch(kind)):
            raise _unsupported(where, path, kind)
    elif kind["type"] == "struct" and kind["fields"]:
        _check_fields(kind["fields"], f"{path}.", where, inside_collection=inside_collection)
    elif parts := _parts(kind):
        for name, part in parts.items():
            _check_type(part, f"{path}.{name}", where, inside_collection=True)
    else:
        raise _unsupported(where, path, type_name(kind))


def _unsupported(where: str, path: str, kind: str) -> UnsupportedTypeError:
    advice = next(advice for pattern, advice in _ADVICE.items() if re.match(pattern, kind))
    return UnsupportedTypeError(
        f"{where}: column {path!r} is {kind}, which cannot be carried. {advice}, or drop it, before"
        " the sink."
    )


def _why_not_a_key(kind: TypeJson, metadata: Mapping[str, Any]) -> str | None:
    if not isinstance(kind, str):
        return "nested values are no keys"
    if any(_collated(metadata)):
        return "collated strings can be equal when their bytes are not"
    if _KEY_TYPE.fullmatch(kind):
        return None
    return _NO_KEY.get(kind, "this type cannot be carried")


def _nearest(key: str, names: list[str]) -> str:
    folded = {name.lower(): name for name in reversed(names)}
    parent, _, rest = key.partition(".")
    if rest and parent.lower() in folded:
        return (
            f"A key is a column of its own, not a field of {folded[parent.lower()]!r}: copy the "
            "field into a column."
        )
    near = difflib.get_close_matches(key.lower(), folded, n=1)
    meant = f"Did you mean {folded[near[0]]!r}? " if near else ""
    return f"{meant}The columns are: {', '.join(names) or 'none'}."


def _collated(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for path, collation in sorted((metadata.get(_COLLATIONS) or {}).items()):
        if collation != "spark.UTF8_BINARY":
            yield path, collation.rpartition(".")[2]


# --- how types are written ----------------------------------------------------------------------


def fingerprint(schema_json: SchemaJson) -> str:
    """Return 16 hexadecimal digits for the names and types of all columns.

    Order, case, nullability, comments and other metadata do not count; the length of a char or
    varchar does.
    """
    # "spark_wan.columns" is a name of the format, whatever this module is called.
    text = f"spark_wan.columns.{_FINGERPRINT_VERSION}\0{type_name(schema_json)}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def type_name(kind: TypeJson, metadata: Mapping[str, Any] | None = None) -> str:
    """Return a type as people write it, the same for equal types: names in lower case, struct
    fields sorted by name.

    >>> type_name({"type": "array", "elementType": "integer", "containsNull": True})
    'array<integer>'
    """
    declared = (metadata or {}).get(CHAR_VARCHAR)
    if isinstance(kind, str):
        return declared if declared and kind == "string" else kind
    if kind["type"] == "struct":
        inner = sorted(
            _quoted(entry["name"]) + ":" + _field_type(entry) for entry in kind["fields"]
        )
    else:
        inner = [type_name(part) for part in _parts(kind).values()]
        inner = inner or [str(kind.get("class") or kind.get("pyClass"))]
    name = f"{kind['type']}<{','.join(inner)}>"
    # Spark declares the whole nested type again; only its chars and varchars add to the type.
    lengths = sorted(re.findall(rf"[^<>,:]*:?{_CHAR}", declared.lower())) if declared else []
    return f"{name} with {', '.join(lengths)}" if lengths else name


def column_path(names: Sequence[str]) -> str:
    """Return a path as Delta's history writes it, in lower case: names with dots in backticks.

    >>> column_path(("S", "a.b"))
    's.`a.b`'
    """
    return ".".join(f"`{name.lower()}`" if "." in name else name.lower() for name in names)


def column_paths(schema_json: SchemaJson) -> list[str]:
    """Return all columns and, after each, the fields inside it: ``s``, ``s.x``, ``a.element.x``."""
    paths: list[str] = []

    def walk(kind: TypeJson, path: Path) -> None:
        if isinstance(kind, str):
            return
        for entry in kind.get("fields", ()):
            paths.append(column_path((*path, entry["name"])))
            walk(entry["type"], (*path, entry["name"]))
        for name, part in _parts(kind).items():
            walk(part, (*path, name))

    walk(schema_json, ())
    return paths


def _parts(kind: Mapping[str, Any]) -> dict[str, TypeJson]:
    """Return the types inside an array or a map, by their names in paths."""
    names = {"array": ("element",), "map": ("key", "value")}.get(kind["type"], ())
    return {name: kind[f"{name}Type"] for name in names}


def _field_type(entry: FieldJson) -> str:
    return type_name(entry["type"], entry.get("metadata"))


def _quoted(name: str) -> str:
    lower = name.lower()
    return lower if re.fullmatch("[a-z0-9_]+", lower) else "`" + lower.replace("`", "``") + "`"


# --- how schemas differ -------------------------------------------------------------------------


def differences(old_schema_json: SchemaJson, new_schema_json: SchemaJson) -> Differences:
    """Return what was added, dropped and retyped, at every depth.

    A renamed column or field shows as one dropped and one added.
    """
    changes = Differences()
    _compare_fields(old_schema_json["fields"], new_schema_json["fields"], (), changes)
    return changes


def widens(narrow: str, wide: str) -> bool:
    """Return whether a wider type has every value of a type exactly, by the list of Delta's type
    widening.

    >>> widens("integer", "long"), widens("long", "double")
    (True, False)
    """
    if narrow in _INTEGERS and wide in _INTEGERS:
        return _INTEGERS.index(narrow) < _INTEGERS.index(wide)
    if after := _DECIMAL.fullmatch(wide):
        precision, scale = int(after[1]), int(after[2])
        if narrow in _INTEGERS:
            return precision - scale >= (20 if narrow == "long" else 10)
        if before := _DECIMAL.fullmatch(narrow):
            more_digits, more_scale = precision - int(before[1]), scale - int(before[2])
            return more_digits >= more_scale >= 0 and (more_digits, more_scale) != (0, 0)
    return (narrow, wide) in _WIDENED


def _compare_fields(
    old: Sequence[FieldJson], new: Sequence[FieldJson], parent: Path, changes: Differences
) -> None:
    before, after = ({entry["name"].lower(): entry for entry in fields} for fields in (old, new))
    changes.dropped.extend(
        (*parent, entry["name"]) for name, entry in before.items() if name not in after
    )
    for name, entry in after.items():
        path = (*parent, entry["name"])
        if name not in before:
            changes.added.append((path, entry))
            continue
        count = len(changes)
        _compare_types(before[name]["type"], entry["type"], path, changes)
        was, now = _field_type(before[name]), _field_type(entry)
        if was != now and len(changes) == count:
            changes.retyped.append((path, was, now))  # a char or varchar has another length


def _compare_types(old: TypeJson, new: TypeJson, path: Path, changes: Differences) -> None:
    if old == new:
        return
    if isinstance(old, str) or isinstance(new, str) or old["type"] != new["type"]:
        changes.retyped.append((path, type_name(old), type_name(new)))
    elif old["type"] == "struct":
        _compare_fields(old["fields"], new["fields"], path, changes)
    elif parts := _parts(old):
        for name, part in parts.items():
            _compare_types(part, _parts(new)[name], (*path, name), changes)
    else:
        changes.retyped.append((path, type_name(old), type_name(new)))


def char_lengths(schema: SchemaJson) -> dict[str, int]:
    """Return the lengths of char columns, by name.

    >>> metadata = {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}
    >>> char_lengths({"fields": [{"name": "code", "type": "string", "metadata": metadata}]})
    {'code': 5}
    """
    declared = (
        (entry["name"], (entry.get("metadata") or {}).get(CHAR_VARCHAR, ""))
        for entry in schema["fields"]
    )
    matches = ((name, re.fullmatch(r"char\((\d+)\)", text)) for name, text in declared)
    return {name: int(match[1]) for name, match in matches if match is not None}
