"""Stage *record*: what the ledger gets before the write: event IDs and dead letters.

They count once a commit of the target has the mark's token.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from spark_wan.apply.change import Change
from spark_wan.delta.dataframes import map_in_arrow, select_columns
from spark_wan.delta.schema import portable_schema
from spark_wan.errors import DeadLettersError
from spark_wan.events.arrow_types import arrow_ready, as_type
from spark_wan.events.dead_letters import EventIds, beyond_maximum, row_payloads
from spark_wan.events.operations import ID, OP, VERSION, Operation
from spark_wan.ledger.applied_ids import AppliedEventIds
from spark_wan.ledger.interfaces import TargetName
from spark_wan.ledger.tables import LedgerTables
from spark_wan.target.rows import CAUSE, EXACT_JSON, EventRows
from spark_wan.units import milliseconds
from spark_wan.wire.ledger import LEDGER_VERSION
from spark_wan.wire.manifest import Manifest
from spark_wan.wire.mark import Mark

_PAYLOAD, _EVENT_ID = "_wan_payload", "_wan_event_id"


def count_dead_letters(change: Change, rows: EventRows, name: TargetName, most: int) -> EventRows:
    """Count the dead letters of a change. Raises DeadLettersError for more than ``most``."""
    if rows.dead is None:
        return rows
    dead = rows.persist(rows.dead)
    change.dead_letters = dead.count()
    if change.dead_letters > most:
        raise _too_many(name, rows, dead, change.dead_letters, most)
    return replace(rows, dead=dead)


def record(change: Change, rows: EventRows, mark: Mark, ledger: LedgerTables) -> None:
    """Record the new event IDs and the dead letters of a change."""
    ids, copy = AppliedEventIds(ledger, mark.table, change.newest.origin), change.newest.copy
    if copy is not None and copy.floor is not None:
        # The site that serves the copy knows none before it either. Before the mark: an event that
        # is refused can be replayed, one that is there twice cannot be told.
        ids.expire(copy.floor)
    if rows.new_ids is not None and change.new_ids:
        ids.record(rows.new_ids, mark.token)
    if rows.dead is not None and change.dead_letters:
        letters = _ledger_rows(rows, rows.dead, change.newest, mark)
        ledger.append_frame("dead_letters", letters)


def _too_many(
    name: TargetName, rows: EventRows, dead: DataFrame, count: int, most: int
) -> DeadLettersError:
    """Return the error for ``count`` dead letters of one apply, with the most frequent cause."""
    causes = dead.groupBy(CAUSE).count().orderBy(F.desc("count"), CAUSE).limit(1)
    [(cause, of_cause)] = causes.collect()
    [(key,)] = dead.where(F.col(CAUSE) == cause).select(rows.key_json()).limit(1).collect()
    example = f", for example of key {key}" if rows.keys else ""
    why, way_out = beyond_maximum(most, "So many are no accident")
    return DeadLettersError(
        f"{name.table}: {count} rows of one epoch cannot be applied at site {name.site}, "
        f"{of_cause} of them for this cause: {cause}{example}. {why}: nothing of the epoch is "
        "applied or recorded, and the stream is held. If the cause is a constraint of the table "
        f"here, drop it or change it; otherwise {way_out} in the topology: such rows then become "
        "dead letters."
    )


def _ledger_rows(rows: EventRows, dead: DataFrame, manifest: Manifest, mark: Mark) -> DataFrame:
    """Return dead letters as rows of the ledger's table ``dead_letters``."""
    # JSON is for people: it does not show all map keys and kinds of null. The payload is exact.
    event_id, dead = F.col(ID), dead.coalesce(1)  # one task sees all equal rows
    added = [StructField(_PAYLOAD, BinaryType())]
    if ID not in dead.columns:
        event_id = F.col(_EVENT_ID)
        added.append(StructField(_EVENT_ID, StringType()))
    types = to_arrow_schema(StructType.fromJson(portable_schema(manifest.schema)), timezone="UTC")
    task = LetterTask(manifest.table_id, manifest.keys, types)
    dead = map_in_arrow(dead, task, StructType([*dead.schema.fields, *added]))
    operations = F.array(*(F.lit(operation.name.lower()) for operation in Operation))
    return dead.select(
        F.lit(LEDGER_VERSION).alias("version"),
        F.lit("receiver").alias("side"),
        F.lit(mark.table).alias("table"),
        F.lit(manifest.stream).alias("stream"),
        event_id.alias("event_id"),
        F.col(VERSION).alias("origin_version"),
        F.element_at(operations, F.col(OP).cast("int") + 1).alias("operation"),
        rows.key_json().alias("key"),
        F.col(CAUSE).alias("cause"),
        F.to_json(F.struct(*select_columns(rows.columns)), EXACT_JSON).alias("row"),
        F.col(_PAYLOAD).alias("payload"),
        F.lit(mark.token).alias("token"),
        F.lit(milliseconds()).cast("bigint").alias("at"),
    )


@dataclass(frozen=True)
class LetterTask:
    """Adds to rows themselves as Arrow IPC streams, and the event IDs of captured ones."""

    table_id: str
    keys: tuple[str, ...]
    schema: pa.Schema
    """The table's columns, with their types at the source: here they may be wider."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ids = EventIds(self.table_id, self.keys)
        for batch in batches:
            own = arrow_ready(batch.select(self.schema.names))
            content = pa.RecordBatch.from_arrays(
                [
                    as_type(column, field.type)
                    for column, field in zip(own, self.schema, strict=True)
                ],
                schema=self.schema,
            )
            letters = batch.append_column(_PAYLOAD, pa.array(row_payloads(content), pa.binary()))
            if ID not in batch.schema.names:
                versions = batch.column(VERSION).to_pylist()
                found = ids.of(content, versions, batch.column(OP).to_pylist())
                letters = letters.append_column(_EVENT_ID, pa.array(found, pa.string()))
            yield letters
