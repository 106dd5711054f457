"""Dead letters: what both ends keep of a captured event that cannot be sent or applied.

A dead letter has the ID of its event and its row as an Arrow IPC stream, in the types of the source
table. So a sender and a receiver record the same of the same event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from spark_wan.events.arrow_types import as_type
from spark_wan.events.operations import Operation, keyed_event_id, keyless_event_id
from spark_wan.events.row_hash import hex_ids, row_hashes

ID_USED_AGAIN = "event ID used again with other content"
ID_EXPIRED = "older than the event IDs that are kept: cannot be told from a replay"
"""Causes that lie in the event ID, whatever the row is."""


def beyond_maximum(most: int, accident: str) -> tuple[str, str]:
    """Return why more than ``most`` dead letters hold a stream, and what to do to have them.
    ``accident``: the reason where a table may have some."""
    if most:
        return accident, "raise the table's `max_dead_letters`"
    return "The table's `on_failure` is retry", "set it to dead_letter"


@dataclass
class EventIds:
    """The IDs of a table's captured events, in batches. Sees all equal rows of a commit."""

    table_id: str
    keys: Sequence[str]
    """Key columns; empty: a keyless table, or rows that are not the only ones of their key."""
    _equal: Counter[tuple[int, str]] = field(default_factory=Counter)

    def of(
        self, rows: pa.RecordBatch, versions: Sequence[int], operations: Sequence[int]
    ) -> list[str]:
        """Return the ID of each row, which has the table's columns in the types of the source.

        ``versions`` and ``operations`` are those of the rows' events.
        """
        keys = _key_texts(rows, self.keys)
        contents = hex_ids(row_hashes(rows)).to_pylist()
        ids = []
        for version, operation, key, content in zip(
            versions, operations, keys, contents, strict=True
        ):
            if key is not None:
                ids.append(keyed_event_id(self.table_id, version, key))
                continue
            # A commit may delete a row and insert an equal one: two events.
            content = f"{int(operation != Operation.DESTROY)}{content}"
            ids.append(
                keyless_event_id(self.table_id, version, content, self._equal[version, content])
            )
            self._equal[version, content] += 1
        return ids


def row_payloads(rows: pa.RecordBatch) -> list[bytes]:
    """Return each row as an Arrow IPC stream of one batch."""
    return [ipc_stream([rows.slice(index, 1)]) for index in range(rows.num_rows)]


def ipc_stream(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Return batches, of which there is at least one, as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def row_values(payload: bytes) -> dict[str, Any]:
    """Return the values of a row of :func:`row_payloads` by column. A day or a time that Python has
    no value for is text. Raises ArrowInvalid for anything else."""
    with pa.ipc.open_stream(payload) as reader:
        row = reader.read_next_batch()
    values, texts = {}, readable(row)
    for name, column, text in zip(row.schema.names, row.columns, texts.columns, strict=True):
        try:
            [values[name]] = column.to_pylist()
        except (ValueError, OverflowError):  # before year 1, or after 9999
            [values[name]] = text.to_pylist()
    return values


def readable(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with text in place of dates and timestamps: Python has none before year 1 or
    after 9999."""
    columns = [as_type(column, _readable_type(column.type)) for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def _readable_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with text in place of dates and timestamps, at every depth."""
    types = pa.types
    if types.is_date(kind) or types.is_timestamp(kind):
        return pa.string()
    if types.is_struct(kind):
        return pa.struct([field.with_type(_readable_type(field.type)) for field in kind])
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_readable_type(kind.value_type)))
    if types.is_map(kind):
        fields = (kind.key_field, kind.item_field)
        return pa.map_(*(field.with_type(_readable_type(field.type)) for field in fields))
    return kind


def _key_texts(rows: pa.RecordBatch, keys: Sequence[str]) -> list[tuple[str, ...] | None]:
    """Return each row's key as :func:`keyed_event_id` takes it; None: no key, or a null in it."""
    if not keys:
        return [None] * rows.num_rows
    columns = []
    for key in keys:
        column = rows.column(key)
        types = pa.types
        if not (types.is_integer(column.type) or types.is_string(column.type)):
            column = pa.array(
                hex_ids(row_hashes(rows, [key])), mask=column.is_null().to_numpy(False)
            )
        columns.append(column.cast(pa.string()).to_pylist())
    return [None if None in key else key for key in zip(*columns, strict=True)]
