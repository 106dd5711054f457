"""What records have in common: manifests, headers of frames, acks, marks, senders' checkpoints and
senders' records.

A record is one JSON object in UTF-8, without blanks between its parts. Records are written in
version 2, and version 1 is read (decision 18). Version 2 has other names for some fields
(:data:`RENAMED`) and no ``generation``, which nothing read.

A later spark_wan may add fields (decision 21). A reader ignores those that it does not know, unless
the record lists them:

============  ===============  ====================================================================
``requires``  list of strings  fields without which the record means something else, such as
                               ``clock`` or ``frames.rows``, and other names that a reader must
                               know; absent: none
============  ===============  ====================================================================

A record that requires an unknown name, and one of a later version, is a NewerRecordError.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from spark_wan.errors import NewerRecordError

T = TypeVar("T")

VERSION = 2
READABLE = (1, VERSION)

UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""Errors of reading JSON that spark_wan did not write. RecursionError: nested too deeply."""
MAX_DEPTH = 200
"""Levels of JSON, at most. Python reads nearly a thousand, and then can neither write nor copy
them; a column's type has two or three for each level of its own."""

_RESTORE = (
    "estore the object from a backup or another version of it; without it the remote site needs a "
    "full copy."
)
RESTORE = f"Its stream is held. R{_RESTORE}"
UPDATE = "Its stream is held. Update spark_wan at this site."
OR_RESTORE = f"If no newer version wrote it, r{_RESTORE}"

RENAMED = {
    "incarnation": "log_id",
    "number": "epoch",
    "first": "first_version",
    "last": "last_version",
}
"""Field of version 1 -> its name since version 2."""


@dataclass(frozen=True)
class EpochRef:
    """An epoch of a log: its place, and the fingerprint of its manifest."""

    stream: str
    log_id: str
    epoch: int
    fingerprint: str


@dataclass(frozen=True)
class TableClock:
    """A table's clock after a commit (:mod:`spark_wan.delta.clock`). Both in ms since 1970 UTC."""

    stamp: int
    """The highest stamp so far."""
    time: int
    """The time of the commit, behind that of the commit before it."""


def upgraded(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a record of version 1 or 2 under their names in version 2."""
    return {
        RENAMED.get(name, name): value for name, value in record.items() if name != "generation"
    }


def known_names(kind: type[Any], **nested: type[Any]) -> frozenset[str]:
    """Return the names that a record may require: fields of ``kind``, and of ``nested`` ones.

    ``nested``: fields that hold records themselves, such as ``frames`` with ``frames.rows``.
    """
    inner = {f"{name}.{each.name}" for name, inner in nested.items() for each in fields(inner)}
    return frozenset({each.name for each in fields(kind)} | inner)


def check_version(version: object) -> None:
    """Raise NewerRecordError for a later version, ValueError for any other that is not readable."""
    if type(version) is int and version > VERSION:
        raise NewerRecordError(
            f"written by a newer spark_wan, in version {version}; this spark_wan reads versions 1 "
            f"and {VERSION}"
        )
    if type(version) is not int or version not in READABLE:
        raise ValueError(f"version {version!r}")


def check_requires(record: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise NewerRecordError when a record requires names that are not known.

    Raises ValueError when ``requires`` is not a list of names.
    """
    required = record.get("requires", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise ValueError(f"requires is {required!r}")
    unknown = [name for name in required if name not in known]
    if unknown:
        raise NewerRecordError(
            f"written by a newer spark_wan: it requires {', '.join(unknown)}, unknown to this "
            "spark_wan"
        )


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


def read_json(data: str | bytes) -> Any:
    """Return the content of JSON that somebody else may have written. Raises UNREADABLE errors."""
    content = json.loads(data)
    level = [content]
    for _ in range(MAX_DEPTH):
        inner = (
            each.values() if isinstance(each, dict) else each
            for each in level
            if isinstance(each, (dict, list))
        )
        level = [part for parts in inner for part in parts if isinstance(part, (dict, list))]
        if not level:
            return content
    raise ValueError(f"has more than {MAX_DEPTH} levels")


def read_record(kind: type[T], data: bytes, **nested: type[Any]) -> T | None:
    """Return the record in ``data``, as :func:`from_fields` does; None when it cannot be read.

    Raises NewerRecordError.
    """
    try:
        record = read_json(data)
        check_version(record.get("version"))
        check_requires(record, known_names(kind, **nested))
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
