"""Stage *resolve*: chooses the event of each key that is written. Nothing else chooses.

:func:`resolve` receives the events of a change that are left: one row per event, at least one event
per key, all of one origin. Redelivered events and those that the target refuses are dropped before.
It returns the events to write: the same columns, at most one row per key. The events that it leaves
out change nothing and are no dead letters; they count as applied.

The columns that decide are ``_wan_op`` (see :class:`spark_wan.events.operations.Operation`) and
``_wan_version``: the commit version at the origin, or the epoch in a user stream. User streams have
``_wan_sequence``, ``_wan_id`` and ``_wan_time`` as well. The manifests of ``change`` have the
origin and the stamps of commits.

A resolver answers two more questions, so that nothing is done in vain: :func:`needed`, which events
the decoder must return, and :func:`is_resolved`, whether the events are one per key as they are.
One that compares the events with the table's rows, or with other origins' events, must answer the
second one with no.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_wan.delta.dataframes import first_of, select_columns
from spark_wan.events.operations import ID, SEQUENCE, VERSION

if TYPE_CHECKING:  # tasks load this module, and need none of it
    from spark_wan.apply.change import Change
    from spark_wan.target.rows import EventRows


def needed(change: Change, judged: bool) -> Callable[[pa.RecordBatch], pa.RecordBatch] | None:
    """Return what drops the events of a frame that cannot be chosen; None: all are needed.

    ``judged``: the target may refuse rows. Then an event that it refuses must not stand in for an
    older, valid one of its key. Of a user stream, redelivered events are dropped first.
    """
    if judged or change.has_event_ids or not change.newest.keys:
        return None
    return partial(last_of_runs, keys=change.newest.keys)


def last_of_runs(events: pa.RecordBatch, keys: Sequence[str]) -> pa.RecordBatch:
    """Keep the last of adjacent events of one key. A captured frame is sorted by key and version,
    or has no key twice.

    It is the one that :func:`last_event_wins` would choose.
    """
    if events.num_rows < 2:
        return events
    last = np.zeros(events.num_rows, bool)
    last[-1] = True
    for key in keys:
        column = events.column(key)
        differs = pc.not_equal(column.slice(1), column.slice(0, events.num_rows - 1))
        last[:-1] |= differs.to_numpy(zero_copy_only=False)
    return events if last.all() else events.filter(pa.array(last))


def is_resolved(change: Change, rows: EventRows) -> bool:
    """Whether the events are one per key, or of a table without keys, without looking at them."""
    newest = change.newest
    if not newest.keys or (rows.key_list is not None and rows.key_list.unique):
        return True
    # The parts of a copy are dealt by the hash of the keys.
    alone = len(change.epochs) == 1 or change.is_copy
    return rows.constraints is None and alone and all(e.manifest.disjoint for e in change.epochs)


def resolve(change: Change, rows: EventRows) -> EventRows:
    """Keep one event per key."""
    if is_resolved(change, rows):
        return rows
    frame = last_event_wins(rows.frame, change.newest.keys, change.has_event_ids)
    return replace(rows, frame=frame)


def last_event_wins(events: DataFrame, keys: Sequence[str], user_stream: bool) -> DataFrame:
    """Keep each key's event with the highest version and, in it, the highest sequence.

    The order of arrival decides nothing. The target's row is replaced whatever it is.
    """
    order = [F.col(VERSION).desc()]
    if user_stream:
        order += [F.col(SEQUENCE).desc(), F.col(ID).desc()]
    return first_of(events, Window.partitionBy(*select_columns(keys)).orderBy(*order))
