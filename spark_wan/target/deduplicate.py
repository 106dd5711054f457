"""Stage *deduplicate*: drops the events of user streams that were applied before, and takes up the
IDs of those of which a copy has the rows.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_wan.apply.change import Change
from spark_wan.events.dead_letters import ID_EXPIRED, ID_USED_AGAIN
from spark_wan.events.operations import CONTENT, ID, SEQUENCE, TIME, VERSION
from spark_wan.ledger.applied_ids import KNOWN, AppliedEventIds
from spark_wan.target.rows import CAUSE, EventRows

_NTH, _FIRST = "_wan_nth", "_wan_first"


def deduplicate(change: Change, rows: EventRows, applied: AppliedEventIds) -> EventRows:
    """Drop events whose IDs the ledger has, and count dropped and new ones in ``change``.

    An ID that is used again with other content makes a dead letter, as does an event older than
    the IDs that are kept.
    """
    order = Window.partitionBy(ID).orderBy(VERSION, SEQUENCE, CONTENT)
    frame = rows.persist(rows.frame)
    known, floor = applied.look_up(frame, rows.persist)
    judged = rows.persist(
        (frame.withColumn(KNOWN, F.lit(None)) if known is None else frame.join(known, ID, "left"))
        .withColumn(_NTH, F.row_number().over(order))
        .withColumn(_FIRST, F.coalesce(KNOWN, F.first(CONTENT).over(order)))
    )
    fresh = F.col(KNOWN).isNull() & (F.col(_NTH) == 1)
    again = ~fresh & (F.col(CONTENT) == F.col(_FIRST))
    below = (
        F.lit(False) if floor is None else fresh & F.col(TIME).isNotNull() & (F.col(TIME) <= floor)
    )
    for bad, cause in ((~fresh & ~again, ID_USED_AGAIN), (below, ID_EXPIRED)):
        rejected = judged.where(bad).withColumn(CAUSE, F.lit(cause))
        rows = rows.without(rejected.drop(KNOWN, _NTH, _FIRST))
    new = fresh & ~below
    [[change.duplicates, *counted]] = judged.agg(F.count_if(again), *_counts(new)).collect()
    _note_new(change, *counted)
    frame = judged.where(new).drop(KNOWN, _NTH, _FIRST)
    return replace(rows, frame=frame, new_ids=frame.select(ID, CONTENT, TIME))


def with_copied_ids(change: Change, rows: EventRows, copied: DataFrame) -> EventRows:
    """Return the rows of a copy with the event IDs that came with them, counted in ``change``."""
    ids = rows.persist(
        copied.select(
            F.col("event_id").alias(ID), F.col("content").alias(CONTENT), F.col("time").alias(TIME)
        )
    )
    [counted] = ids.agg(*_counts(F.lit(True))).collect()
    _note_new(change, *counted)
    return replace(rows, new_ids=ids)


def _counts(new: Column) -> list[Column]:
    """Return how many events are ``new``, how many of them have no time, and the newest time."""
    return [
        F.count_if(new),
        F.count_if(new & F.col(TIME).isNull()),
        F.max(F.when(new, F.col(TIME))),
    ]


def _note_new(change: Change, number: int, timeless: int, until: int | None) -> None:
    change.new_ids, change.ids_until = number, None if timeless else until
