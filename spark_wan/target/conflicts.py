"""Conflict resolution: which event of a key is written. Called by ``DeltaTarget.resolve`` alone.

A resolver receives the events of one apply: a DataFrame with one row per event, at least one event
per key, all of one origin. Redelivered events and those that the target refuses are dropped before.
It returns the events to write: the same columns, at most one row per key. The events that it leaves
out change nothing and are no dead letters; they count as applied.

The columns that decide are ``_wan_op`` (see :class:`spark_wan.events.operations.Operation`) and
``_wan_version``: the commit version at the origin, or the epoch in a user stream. User streams have
``_wan_sequence``, ``_wan_id`` and ``_wan_time`` as well.

Another resolver, where several origins write the same keys, may join the target's rows by key. It
must then be called for every apply: today ``DeltaTarget.resolve`` calls it only if an apply may
have several events of a key. If it needs more than the last captured event of each key,
``DeltaTarget.read`` must decode all.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_wan.delta.dataframes import select_columns
from spark_wan.events.operations import ID, SEQUENCE, VERSION


def last_event_wins(events: DataFrame, keys: Sequence[str], user_stream: bool) -> DataFrame:
    """Keep each key's event with the highest version and, in it, the highest sequence.

    The order of arrival decides nothing. The target's row is replaced whatever it is.
    """
    order = [F.col(VERSION).desc()]
    if user_stream:
        order += [F.col(SEQUENCE).desc(), F.col(ID).desc()]
    window = Window.partitionBy(*select_columns(keys)).orderBy(*order)
    return (
        events.withColumn("_wan_place", F.row_number().over(window))
        .where("_wan_place = 1")
        .drop("_wan_place")
    )
