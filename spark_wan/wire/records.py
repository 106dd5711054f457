"""What all persisted records have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
RESTORE = "Its stream is held. Restore the object from a backup or another version of it; without it the remote site needs a full copy."
UPDATE = "Its stream is held. Update spark_wan at this site."


RENAMED = {
    "incarnation": "log_id",
    "number": "epoch",
    "first": "first_version",
    "last": "last_version",
}
"""Field of version 1 -> its name since version 2, in manifests, acks, marks and checkpoints."""


def upgraded(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a record of version 1 or 2 under the names of version 2. ``generation``, which nothing read, is left out."""
    return {
        RENAMED.get(name, name): value for name, value in record.items() if name != "generation"
    }


def known_fields(kind: type, record: Mapping[str, Any]) -> dict[str, Any]:
    """What ``kind`` knows of a record's fields: another version may have written more."""
    return {each.name: record[each.name] for each in fields(kind) if each.name in record}


Origin = tuple[str, str, str]
"""(origin site, table ID, selection): what one *applied through version* counts for."""
