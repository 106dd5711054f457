"""A table's columns as Spark's schema JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spark_wan.events.columns import CHAR_VARCHAR

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def schema_json(frame: DataFrame) -> dict[str, Any]:
    """A DataFrame's columns as Spark's schema JSON."""
    content: dict[str, Any] = json.loads(frame.schema.json())
    return content


def portable_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The columns for a new table elsewhere: all nullable, without metadata that belongs to the source alone."""

    def kind(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        changed = dict(value)
        if changed["type"] == "struct":
            changed["fields"] = [field(entry) for entry in changed["fields"]]
        for name, flag in (
            ("elementType", "containsNull"),
            ("valueType", "valueContainsNull"),
            ("keyType", None),
        ):
            if name in changed:
                changed[name] = kind(changed[name])
                if flag:
                    changed[flag] = True
        return changed

    def field(entry: Mapping[str, Any]) -> dict[str, Any]:
        kept = {
            name: text
            for name, text in (entry.get("metadata") or {}).items()
            if name == CHAR_VARCHAR
        }
        return {
            "name": entry["name"],
            "type": kind(entry["type"]),
            "nullable": True,
            "metadata": kept,
        }

    return {"type": "struct", "fields": [field(entry) for entry in schema["fields"]]}


def needs_column_mapping(kind: Any) -> bool:
    """Whether a name in a type of Spark's schema JSON has characters that Delta takes with a column mapping only."""
    if not isinstance(kind, Mapping):
        return False
    fields = kind.get("fields", ())
    return any(
        set(entry["name"]) & set(" ,;{}()\n\t=") or needs_column_mapping(entry["type"])
        for entry in fields
    ) or any(
        needs_column_mapping(kind.get(part)) for part in ("elementType", "keyType", "valueType")
    )
