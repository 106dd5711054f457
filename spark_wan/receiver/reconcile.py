"""Whether a target's columns can take what travels, by name, and what must be added or widened first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_wan.errors import SchemaError, anew
from spark_wan.events.columns import FieldJson, Path, SchemaJson, differences, widens


@dataclass(frozen=True)
class Changes:
    """What the target needs: columns and nested fields that it lacks, and those that are narrower (path, type here, type at the origin)."""

    added: list[tuple[Path, FieldJson]]
    widened: list[tuple[Path, str, str]]

    def __bool__(self) -> bool:
        return bool(self.added or self.widened)


def reconcile(
    existing: SchemaJson,
    travelling: SchemaJson,
    table: str,
    site: str,
    sql_name: str,
    users: bool = False,
) -> Changes:
    """What must change before ``existing`` takes ``travelling``, of a ``users``' stream or a captured one. Raises SchemaError for what cannot be
    reconciled by name."""
    found = differences(existing, travelling)
    declared_only = {path for path, *_ in found.retyped if _same_base(existing, travelling, path)}
    widened, clashes = [], []
    for path, here, there in found.retyped:
        if path in declared_only or widens(there, here):
            continue
        if widens(here, there):
            widened.append((path, here, there))
        else:
            clashes.append(f"{'.'.join(path)} is {here} here and {there} at the origin")
    # A struct is written as a whole: a field of the target's own in it would be lost.
    alone = [".".join(path) for path in found.dropped if len(path) > 1]
    if clashes or alone:
        what = "; ".join(
            [
                *clashes,
                *(
                    f"{path} is a field of this site's own inside a column that travels"
                    for path in alone
                ),
            ]
        )
        first = "Change the column's type here (ALTER TABLE … ALTER COLUMN … TYPE, or overwrite the table with overwriteSchema)"
        if not clashes:
            statements = "; ".join(f"ALTER TABLE {sql_name} DROP COLUMN {path}" for path in alone)
            first = f"Move such fields to columns of their own ({statements}; it needs 'delta.columnMapping.mode' = 'name')"
        raise SchemaError(
            f"{table}: columns at site {site} cannot be reconciled: {what}. The stream is held. {first}, or {anew(users)}."
        )
    return Changes(found.added, widened)


def fitted(travelling: SchemaJson, existing: SchemaJson) -> dict[str, Any]:
    """``travelling`` with the types of ``existing``, which holds all of its values: nested fields in the order of the target, numbers as wide as there."""
    here = {entry["name"].lower(): entry["type"] for entry in existing["fields"]}
    fields = [
        {**entry, "type": here.get(entry["name"].lower(), entry["type"])}
        for entry in travelling["fields"]
    ]
    return {**travelling, "fields": fields}


def _same_base(existing: SchemaJson, travelling: SchemaJson, path: Path) -> bool:
    """Whether a column's types are equal but for what a char or varchar declares."""

    def kind(schema: SchemaJson) -> Any:
        found: Mapping[str, Any] = {
            entry["name"].lower(): entry["type"] for entry in schema["fields"]
        }
        return found[path[0].lower()]

    return (
        len(path) == 1
        and isinstance(kind(existing), str)
        and bool(kind(existing) == kind(travelling))
    )
