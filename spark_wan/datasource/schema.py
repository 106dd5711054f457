"""The columns of the source."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from spark_wan.wire.frame import FrameRef
from spark_wan.wire.manifest import Manifest

SCHEMA = (
    "stream string, log_id string, epoch bigint, batch int, kind string, origin string, sent_to array<string>, `table` string, "
    "table_id string, selection string, first_version bigint, last_version bigint, events bigint, possible_duplicate boolean, "
    "schema string, path string, checksum bigint, payload binary"
)
"""Columns of the source. ``batch`` counts the frames of an epoch from 0; ``schema`` is the table's columns as Spark's schema JSON; ``payload`` is the frame
(see :mod:`spark_wan.wire.frame`). ``possible_duplicate``: the epoch was announced again."""


def frame_row(manifest: Manifest, index: int, possible_duplicate: bool) -> dict[str, Any]:
    frame: FrameRef = manifest.frames[index]
    return {
        "stream": manifest.stream,
        "log_id": manifest.log_id,
        "epoch": manifest.epoch,
        "batch": index,
        "kind": manifest.kind,
        "origin": manifest.origin,
        "sent_to": list(manifest.sent_to),
        "table": manifest.table,
        "table_id": manifest.table_id,
        "selection": manifest.selection,
        "first_version": manifest.first_version,
        "last_version": manifest.last_version,
        "events": frame.rows,
        "possible_duplicate": possible_duplicate,
        "schema": json.dumps(manifest.schema),
        "path": frame.path,
        "checksum": frame.checksum,
    }


ARROW_SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("log_id", pa.string()),
        ("epoch", pa.int64()),
        ("batch", pa.int32()),
        ("kind", pa.string()),
        ("origin", pa.string()),
        ("sent_to", pa.list_(pa.string())),
        ("table", pa.string()),
        ("table_id", pa.string()),
        ("selection", pa.string()),
        ("first_version", pa.int64()),
        ("last_version", pa.int64()),
        ("events", pa.int64()),
        ("possible_duplicate", pa.bool_()),
        ("schema", pa.string()),
        ("path", pa.string()),
        ("checksum", pa.int64()),
        ("payload", pa.binary()),
    ]
)
