"""The columns of a new Delta table, from those of a source elsewhere. Both are schema JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_wan.events.columns import CHAR_VARCHAR

_PARTS = ("elementType", "keyType", "valueType")


def portable_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns, all nullable, without metadata that belongs to the source alone."""
    return {"type": "struct", "fields": [_portable_field(entry) for entry in schema["fields"]]}


def _portable_field(entry: Mapping[str, Any]) -> dict[str, Any]:
    metadata = entry.get("metadata") or {}
    return {
        "name": entry["name"],
        "type": _portable_type(entry["type"]),
        "nullable": True,
        "metadata": {name: text for name, text in metadata.items() if name == CHAR_VARCHAR},
    }


def _portable_type(kind: Any) -> Any:
    if not isinstance(kind, Mapping):
        return kind
    if kind["type"] == "struct":
        return {**kind, **portable_schema(kind)}
    if kind["type"] == "udt":
        return kind
    parts = {part: _portable_type(kind[part]) for part in _PARTS if part in kind}
    flags = {"array": "containsNull", "map": "valueContainsNull"}
    return {**kind, **parts, flags[kind["type"]]: True}


def needs_column_mapping(kind: Any) -> bool:
    """Whether a name in ``kind`` has characters that Delta takes with a column mapping only."""
    if not isinstance(kind, Mapping):
        return False
    return any(
        set(entry["name"]) & set(" ,;{}()\n\t=") or needs_column_mapping(entry["type"])
        for entry in kind.get("fields", ())
    ) or any(needs_column_mapping(kind.get(part)) for part in _PARTS)
