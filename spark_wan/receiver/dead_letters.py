"""Dead letters of a receiver: how many are too many, and their rows in the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from spark_wan.delta.dataframes import map_in_arrow, select_columns
from spark_wan.errors import DeadLettersError
from spark_wan.events.arrow_types import arrow_ready
from spark_wan.events.operations import ID, OP, VERSION, Operation
from spark_wan.events.row_hash import hex_ids, row_hashes
from spark_wan.ledger.records import TargetName
from spark_wan.ledger.tables import LEDGER_VERSION
from spark_wan.receiver.judge import CAUSE
from spark_wan.receiver.rows import EXACT_JSON, EventRows
from spark_wan.wire.manifest import Manifest
from spark_wan.wire.mark import Mark

_PAYLOAD, _HASH = "_wan_payload", "_wan_hash"


def too_many(name: TargetName, rows: EventRows, dead: DataFrame, count: int) -> DeadLettersError:
    """Return the error for ``count`` dead letters of one apply, with the most frequent cause."""
    causes = dead.groupBy(CAUSE).count().orderBy(F.desc("count"), CAUSE).limit(1)
    [(cause, of_cause)] = causes.collect()
    [(key,)] = dead.where(F.col(CAUSE) == cause).select(rows.key_json()).limit(1).collect()
    example = f", for example of key {key}" if rows.keys else ""
    return DeadLettersError(
        f"{name.table}: {count} rows of one epoch cannot be applied at site {name.site}, "
        f"{of_cause} of them for this cause: {cause}{example}. So many are no accident: nothing of "
        "the epoch is applied or recorded, and the stream is held. If the cause is a constraint of "
        "the table here, drop it or change it; otherwise raise the table's `max_dead_letters` in "
        "the topology: such rows then become dead letters."
    )


def ledger_rows(rows: EventRows, dead: DataFrame, manifest: Manifest, mark: Mark) -> DataFrame:
    """Return dead letters as rows of the ledger's table ``dead_letters``."""
    # JSON is for people: it does not show all map keys and kinds of null. The payload is exact.
    added = [StructField(_PAYLOAD, BinaryType()), StructField(_HASH, StringType())]
    full = StructType([*dead.schema.fields, *added])
    dead = map_in_arrow(dead, LetterTask(tuple(rows.columns)), full)
    if ID in dead.columns:
        event_id = F.col(ID)
    else:
        # Equal rows of a keyless table are different events.
        nth = F.row_number().over(Window.partitionBy(VERSION, _HASH).orderBy(_HASH)) - 1
        event_id = F.md5(F.concat_ws("/", F.lit(manifest.table_id), VERSION, _HASH, nth))
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
    )


@dataclass(frozen=True)
class LetterTask:
    """Adds to rows their hash and themselves as an Arrow IPC stream, so that they can be replayed.

    ``names``: the table's columns.
    """

    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            content = arrow_ready(batch.select(list(self.names)))
            payloads = []
            for index in range(content.num_rows):
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, content.schema) as writer:
                    writer.write_batch(content.slice(index, 1))
                payloads.append(sink.getvalue().to_pybytes())
            batch = batch.append_column(_PAYLOAD, pa.array(payloads, pa.binary()))
            yield batch.append_column(_HASH, hex_ids(row_hashes(content)))
