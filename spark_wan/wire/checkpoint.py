"""Checkpoints: what a sender keeps of its log, beside the channel. ``<stream>.json`` in its state.

A JSON object:

==============  ===============  ==================================================================
``version``     int              2
``log_id``      string           the log
``epoch``       int              newest manifest that was seen of it
``acked``       object           site -> highest epoch that it acked
``published``   object or null   the state of the source at ``epoch``; absent or null: unknown, or
                                 a user stream
``swept``       int              when orphan frames of the stream were last deleted, in
                                 milliseconds since 1970 UTC; absent: 0, never
==============  ===============  ==================================================================

``published`` holds ``through`` (int: newest published version), ``identity`` (string: of that
version's commit), ``table_id`` (string), ``keys`` (list of strings), ``schema`` (Spark's schema
JSON) and ``clock`` (object, or null: unknown), as in the manifest of that epoch. Version 1 has
``incarnation`` for ``log_id`` and ``number`` for ``epoch``. Unknown fields are ignored, unless
``requires`` lists them (:mod:`spark_wan.wire.records`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spark_wan.wire.manifest import EVENTS, Manifest
from spark_wan.wire.records import TableClock, read_record, write_record


@dataclass(frozen=True)
class PublishedState:
    """State of the source table that the remote sites know.

    What is published next must be of the same table, in this state or a later one.
    """

    through: int
    identity: str
    table_id: str
    keys: tuple[str, ...]
    schema: Mapping[str, Any]
    clock: TableClock | None = None

    @classmethod
    def by(cls, manifest: Manifest) -> PublishedState | None:
        """Return what a manifest published of its source table; None for a user stream, which has
        none."""
        if manifest.kind == EVENTS:
            return None
        return cls(
            manifest.last_version,
            manifest.identity,
            table_id=manifest.table_id,
            keys=manifest.keys,
            schema=manifest.schema,
            clock=manifest.clock,
        )


@dataclass(frozen=True)
class SenderCheckpoint:
    """A sender's record of the log of one stream, with the fields of the format."""

    log_id: str
    epoch: int
    acked: Mapping[str, int] = field(default_factory=dict)
    published: PublishedState | None = None
    swept: int = 0

    @classmethod
    def after(cls, before: SenderCheckpoint | None, manifest: Manifest) -> SenderCheckpoint:
        """Return the checkpoint that follows ``before`` once ``manifest`` is appended."""
        if before is None or before.log_id != manifest.log_id:
            before = cls(manifest.log_id, manifest.epoch)
        return replace(before, epoch=manifest.epoch, published=PublishedState.by(manifest))

    def encode(self) -> bytes:
        return write_record(self, published=None, swept=0)

    @classmethod
    def decode(cls, data: bytes) -> SenderCheckpoint | None:
        """Return the checkpoint in ``data``; None when it cannot be read, as if it were lost.

        Raises NewerRecordError.
        """
        return read_record(cls, data)
