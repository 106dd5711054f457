"""The columns of the source: one row per frame."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from spark_wan.wire.manifest import Manifest

_TEXT, _LONG = ("string", pa.string()), ("bigint", pa.int64())
_COLUMNS = {
    "stream": _TEXT,
    "log_id": _TEXT,
    "epoch": _LONG,
    "batch": ("int", pa.int32()),
    "kind": _TEXT,
    "origin": _TEXT,
    "sent_to": ("array<string>", pa.list_(pa.string())),
    "table": _TEXT,
    "table_id": _TEXT,
    "selection": _TEXT,
    "first_version": _LONG,
    "last_version": _LONG,
    "events": _LONG,
    "possible_duplicate": ("boolean", pa.bool_()),
    "schema": _TEXT,
    "path": _TEXT,
    "checksum": _LONG,
    "payload": ("binary", pa.binary()),
}
"""Name -> type in Spark and in Arrow. ``batch`` counts the frames of an epoch from 0;
``possible_duplicate``: the epoch was announced again; ``schema`` is the table's columns as Spark's
schema JSON; ``payload`` is the frame (see :mod:`spark_wan.wire.frame`)."""

SCHEMA = ", ".join(f"`{name}` {kind}" for name, (kind, _) in _COLUMNS.items())
ARROW_SCHEMA = pa.schema([(name, kind) for name, (_, kind) in _COLUMNS.items()])


def frame_row(manifest: Manifest, batch: int, possible_duplicate: bool) -> dict[str, Any]:
    """Return the row of a frame, without its payload, which a task reads."""
    frame = manifest.frames[batch]
    values: dict[str, Any] = {
        "batch": batch,
        "events": frame.rows,
        "possible_duplicate": possible_duplicate,
        "schema": json.dumps(manifest.schema),
        "path": frame.path,
        "checksum": frame.checksum,
        "payload": None,
    }
    others = {name: getattr(manifest, name) for name in _COLUMNS if name not in values}
    return {**others, **values}
