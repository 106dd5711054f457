"""The columns of the source: one row per gateway batch."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from spark_wan.wire.manifest import Manifest

_Value = Callable[[Manifest, int, bool], object]
"""From a manifest, the place of a frame in it, and whether the epoch was announced again."""

_COLUMNS: tuple[tuple[str, str, pa.DataType, _Value], ...] = (
    ("stream", "string", pa.string(), lambda manifest, batch, again: manifest.stream),
    ("log_id", "string", pa.string(), lambda manifest, batch, again: manifest.log_id),
    ("epoch", "bigint", pa.int64(), lambda manifest, batch, again: manifest.epoch),
    ("batch", "int", pa.int32(), lambda manifest, batch, again: batch),
    ("kind", "string", pa.string(), lambda manifest, batch, again: manifest.kind),
    ("origin", "string", pa.string(), lambda manifest, batch, again: manifest.origin),
    (
        "sent_to",
        "array<string>",
        pa.list_(pa.string()),
        lambda manifest, batch, again: list(manifest.sent_to),
    ),
    ("table", "string", pa.string(), lambda manifest, batch, again: manifest.table),
    ("table_id", "string", pa.string(), lambda manifest, batch, again: manifest.table_id),
    ("selection", "string", pa.string(), lambda manifest, batch, again: manifest.selection),
    ("first_version", "bigint", pa.int64(), lambda manifest, batch, again: manifest.first_version),
    ("last_version", "bigint", pa.int64(), lambda manifest, batch, again: manifest.last_version),
    ("events", "bigint", pa.int64(), lambda manifest, batch, again: manifest.frames[batch].rows),
    ("possible_duplicate", "boolean", pa.bool_(), lambda manifest, batch, again: again),
    ("schema", "string", pa.string(), lambda manifest, batch, again: json.dumps(manifest.schema)),
    ("path", "string", pa.string(), lambda manifest, batch, again: manifest.frames[batch].path),
    (
        "checksum",
        "bigint",
        pa.int64(),
        lambda manifest, batch, again: manifest.frames[batch].checksum,
    ),
    (
        "payload",
        "binary",
        pa.binary(),
        lambda manifest, batch, again: None,
    ),  # the frame, read by a task
)
"""Name, type in Spark, type in Arrow, value. ``batch`` counts the frames of an epoch from 0; ``schema`` is the
table's columns as Spark's schema JSON; ``payload`` is the frame (see :mod:`spark_wan.wire.frame`)."""

SCHEMA = ", ".join(f"`{name}` {kind}" for name, kind, _, _ in _COLUMNS)
ARROW_SCHEMA = pa.schema([(name, kind) for name, _, kind, _ in _COLUMNS])


def frame_row(manifest: Manifest, batch: int, possible_duplicate: bool) -> dict[str, Any]:
    """Return the row of a frame, without its payload."""
    return {name: value(manifest, batch, possible_duplicate) for name, _, _, value in _COLUMNS}
