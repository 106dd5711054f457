"""Whether a target's columns can take those that travel, by name, and what must change first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spark_wan.errors import SchemaError, remake_advice
from spark_wan.events.columns import FieldJson, Path, SchemaJson, differences, widens
from spark_wan.ledger.interfaces import TargetName


@dataclass(frozen=True)
class Changes:
    """What the target needs: missing columns and nested fields, and narrower ones.

    ``widened`` has (path, type here, type at the origin).
    """

    added: list[tuple[Path, FieldJson]]
    widened: list[tuple[Path, str, str]]

    def __bool__(self) -> bool:
        return bool(self.added or self.widened)


def reconcile(
    existing: SchemaJson, travelling: SchemaJson, target: TargetName, users: bool = False
) -> Changes:
    """Return what must change before ``existing`` takes ``travelling``.

    ``users``: the columns are those of a user stream. Raises SchemaError for columns that cannot be
    reconciled by name.
    """
    found = differences(existing, travelling)
    widened, clashes = [], []
    for path, here, there in found.retyped:
        if _differs_by_length(existing, travelling, path) or widens(there, here):
            continue
        if widens(here, there):
            widened.append((path, here, there))
        else:
            clashes.append(f"{'.'.join(path)} is {here} here and {there} at the origin")
    # A struct is written as a whole: a field that only the target has would be lost.
    own = [".".join(path) for path in found.dropped if len(path) > 1]
    if clashes:
        first = (
            "Change the column's type here (ALTER TABLE … ALTER COLUMN … TYPE, or overwrite the "
            "table with overwriteSchema)"
        )
    else:
        statements = "; ".join(f"ALTER TABLE {target.sql_name} DROP COLUMN {path}" for path in own)
        first = (
            f"Move such fields to columns of their own ({statements}; it needs "
            "'delta.columnMapping.mode' = 'name')"
        )
    if clashes or own:
        clashes += [
            f"{path} is a field of this site's own inside a column that travels" for path in own
        ]
        raise SchemaError(
            f"{target.table}: columns at site {target.site} cannot be reconciled: "
            f"{'; '.join(clashes)}. The stream is held. {first}, or {remake_advice(users)}."
        )
    return Changes(found.added, widened)


def fitted(travelling: SchemaJson, existing: SchemaJson) -> dict[str, Any]:
    """Return ``travelling`` with the types of ``existing``, which hold all of its values.

    Nested fields get the order of the target, numbers its width.
    """
    here = _types(existing)
    fields = [
        {**entry, "type": here.get(entry["name"].lower(), entry["type"])}
        for entry in travelling["fields"]
    ]
    return {**travelling, "fields": fields}


def _types(schema: SchemaJson) -> dict[str, Any]:
    return {entry["name"].lower(): entry["type"] for entry in schema["fields"]}


def _differs_by_length(existing: SchemaJson, travelling: SchemaJson, path: Path) -> bool:
    """Whether a column's types differ only by the declared length of a char or varchar."""
    name = path[0].lower()
    here = _types(existing)[name]
    return len(path) == 1 and isinstance(here, str) and bool(here == _types(travelling)[name])
