"""What records have in common: manifests, acks, marks and senders' checkpoints.

A record is one JSON object in UTF-8, without blanks between its parts. Records are written in
version 2, and version 1 is read (decision 18). Version 2 has other names for some fields
(:data:`RENAMED`) and no ``generation``, which nothing read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar

T = TypeVar("T")

VERSION = 2
READABLE = (1, VERSION)

UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""Errors of reading JSON that spark_wan did not write. RecursionError: nested too deeply."""

RESTORE = (
    "Its stream is held. Restore the object from a backup or another version of it; without it the "
    "remote site needs a full copy."
)
UPDATE = "Its stream is held. Update spark_wan at this site."

RENAMED = {
    "incarnation": "log_id",
    "number": "epoch",
    "first": "first_version",
    "last": "last_version",
}
"""Field of version 1 -> its name since version 2."""


def upgraded(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a record of version 1 or 2 under their names in version 2."""
    return {
        RENAMED.get(name, name): value for name, value in record.items() if name != "generation"
    }


def from_fields(kind: type[T], record: Mapping[str, Any], **nested: type[Any]) -> T:
    """Return the ``kind`` that the fields of a record of version 1 or 2 describe.

    Fields that ``kind`` does not have are ignored, because a later version may add some. Fields
    named in ``nested`` hold a record each, or null. Raises TypeError when a field is missing.
    """
    known = upgraded(record)
    for name, inner in nested.items():
        if known.get(name) is not None:
            known[name] = from_fields(inner, known[name])
    return kind(**{each.name: known[each.name] for each in fields(kind) if each.name in known})  # type: ignore[arg-type]


def read_record(kind: type[T], data: bytes, **nested: type[Any]) -> T | None:
    """Return the record in ``data``, as :func:`from_fields` does; None when it cannot be read."""
    try:
        record = json.loads(data)
        if record.get("version") not in READABLE:
            return None
        return from_fields(kind, record, **nested)
    except UNREADABLE:
        return None


def write_record(record: Any, **omitted: object) -> bytes:
    """Return a record as JSON with its version, without the fields that have an omitted value."""
    content = {"version": VERSION, **written_fields(record, **omitted)}
    return json.dumps(content, separators=(",", ":")).encode()


def written_fields(record: Any, **omitted: object) -> dict[str, Any]:
    """Return the fields of a dataclass, without those that have the value in ``omitted``."""
    return {
        name: value
        for name, value in asdict(record).items()
        if (name, value) not in omitted.items()
    }
