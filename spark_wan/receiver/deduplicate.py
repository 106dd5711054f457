"""Exactly once, even when redelivered: the event IDs of user streams in the ledger."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_wan.delta.sql import literal, quoted, reference
from spark_wan.events.operations import ID, SEQUENCE, TIME, VERSION
from spark_wan.ledger.tables import LEDGER_VERSION, LedgerTables
from spark_wan.receiver.apply import ApplyBatch
from spark_wan.receiver.decode import CONTENT
from spark_wan.receiver.judge import CAUSE
from spark_wan.receiver.rows import EventRows

_KNOWN, _NTH, _FIRST = "_wan_known", "_wan_nth", "_wan_first"


@dataclass(frozen=True)
class AppliedEventIds:
    """The event IDs of one origin that were applied to a table, in the ledger."""

    ledger: LedgerTables
    table: str
    origin: str

    def drop_redelivered(self, batch: ApplyBatch) -> None:
        """Drop events that were applied before, and count dropped and new ones in ``batch``.

        An ID that is used again with other content makes a dead letter, as does an event older than
        the IDs that are kept.
        """
        rows: EventRows = batch.content
        order = Window.partitionBy(ID).orderBy(VERSION, SEQUENCE, CONTENT)
        judged = rows.persist(
            rows.persist(rows.frame)
            .join(self._known(), ID, "left")
            .withColumn(_NTH, F.row_number().over(order))
            .withColumn(_FIRST, F.coalesce(_KNOWN, F.first(CONTENT).over(order)))
        )
        fresh = F.col(_KNOWN).isNull() & (F.col(_NTH) == 1)
        again = ~fresh & (F.col(CONTENT) == F.col(_FIRST))
        floor = self._floor()
        below = (
            F.lit(False)
            if floor is None
            else fresh & F.col(TIME).isNotNull() & (F.col(TIME) <= floor)
        )
        reused = "event ID used again with other content"
        late = "older than the event IDs that are kept: cannot be told from a replay"
        for bad, cause in ((~fresh & ~again, reused), (below, late)):
            rejected = judged.where(bad).withColumn(CAUSE, F.lit(cause))
            rows.reject(rejected.drop(_KNOWN, _NTH, _FIRST))
        new = fresh & ~below
        (counted,) = judged.agg(
            F.count_if(again).alias("duplicates"),
            F.count_if(new).alias("new"),
            F.count_if(new & F.col(TIME).isNull()).alias("timeless"),
            F.max(F.when(new, F.col(TIME))).alias("until"),
        ).collect()
        batch.duplicates, batch.new_ids = counted["duplicates"], counted["new"]
        batch.ids_until = None if counted["timeless"] else counted["until"]
        rows.frame = judged.where(new).drop(_KNOWN, _NTH, _FIRST)
        rows.new_ids = rows.frame.select(ID, CONTENT, TIME)

    def record(self, new_ids: DataFrame, token: str) -> None:
        self.ledger.append_frame(
            "event_ids",
            new_ids.select(
                F.lit(LEDGER_VERSION).alias("version"),
                F.lit(self.table).alias("table"),
                F.lit(self.origin).alias("origin"),
                F.col(ID).alias("event_id"),
                F.col(CONTENT).alias("content"),
                F.col(TIME).alias("time"),
                F.lit(token).alias("token"),
            ),
        )

    def expire(self, before: int) -> None:
        """Delete IDs of events with a time at or before ``before`` (microseconds).

        The same commit adds the floor: the ledger can only lose both.
        """
        columns = {
            "version": LEDGER_VERSION,
            "table": literal(self.table),
            "origin": literal(self.origin),
            "time": int(before),
            "token": "'floor'",
        }
        self.ledger.spark.sql(
            f"MERGE INTO {reference(self.ledger.location('event_ids'))} t "
            "USING (SELECT explode(array(true, false)) AS expires) s ON s.expires "
            f"AND t.`table` = {columns['table']} AND t.origin = {columns['origin']} "
            f"AND t.event_id IS NOT NULL AND t.time <= {columns['time']} "
            "WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND NOT s.expires THEN INSERT "
            f"({', '.join(map(quoted, columns))}) VALUES ({', '.join(map(str, columns.values()))})"
        ).collect()

    def _known(self) -> DataFrame:
        """Return each applied ID with its content hash. An ID counts once its token is marked."""
        marks = self.ledger.read("applied").where(F.col("table") == self.table)
        return (
            self._recorded()
            .join(marks.select("token").distinct(), "token", "left_semi")
            .groupBy(F.col("event_id").alias(ID))
            .agg(F.min("content").alias(_KNOWN))
        )

    def _floor(self) -> int | None:
        """Return the time (microseconds) through which IDs may have expired; None: none have."""
        with self.ledger.errors():
            floors = self._recorded().where(F.col("event_id").isNull())
            floor = floors.agg(F.max("time")).collect()[0][0]
        return int(floor) if floor is not None else None

    def _recorded(self) -> DataFrame:
        return self.ledger.read("event_ids").where(
            (F.col("table") == self.table) & (F.col("origin") == self.origin)
        )
