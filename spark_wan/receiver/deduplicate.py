"""Exactly once, even when redelivered: the event IDs of user streams in the ledger.

The IDs of an apply are looked up; those that the ledger has are never read all. A few are literals
of the query, so that Delta skips files, and Parquet pages, that cannot have them: folded IDs are
sorted (:mod:`spark_wan.ledger.folding`). Many are joined.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from spark_wan.delta.sessions import copied_session
from spark_wan.delta.sql import IN_LIST, is_in, literal, quoted, reference
from spark_wan.delta.tables import load, newest_commit
from spark_wan.events.operations import ID, SEQUENCE, TIME, VERSION
from spark_wan.ledger.event_ids import is_range_token
from spark_wan.ledger.tables import FLOOR, LEDGER_VERSION, LedgerTables
from spark_wan.receiver.apply import ApplyBatch
from spark_wan.receiver.decode import CONTENT
from spark_wan.receiver.judge import CAUSE
from spark_wan.receiver.rows import EventRows

FEW_IDS = 5_000
"""Maximum number of event IDs that are literals of a query."""

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
        frame = rows.persist(rows.frame)
        known, floor = self._look_up(rows, frame)
        judged = rows.persist(
            (
                frame.withColumn(_KNOWN, F.lit(None))
                if known is None
                else frame.join(known, ID, "left")
            )
            .withColumn(_NTH, F.row_number().over(order))
            .withColumn(_FIRST, F.coalesce(_KNOWN, F.first(CONTENT).over(order)))
        )
        fresh = F.col(_KNOWN).isNull() & (F.col(_NTH) == 1)
        again = ~fresh & (F.col(CONTENT) == F.col(_FIRST))
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

        The same commit replaces the floor: the ledger can only lose both.
        """
        columns = {
            "version": LEDGER_VERSION,
            "table": literal(self.table),
            "origin": literal(self.origin),
            "time": int(before),
            "token": literal(FLOOR),
        }
        self.ledger.spark.sql(
            f"MERGE INTO {reference(self.ledger.location('event_ids'))} t "
            "USING (SELECT explode(array(true, false)) AS expires) s ON s.expires "
            f"AND t.`table` = {columns['table']} AND t.origin = {columns['origin']} "
            f"AND t.time <= {columns['time']} "
            "WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND NOT s.expires THEN INSERT "
            f"({', '.join(map(quoted, columns))}) VALUES ({', '.join(map(str, columns.values()))})"
        ).collect()

    def _look_up(self, rows: EventRows, frame: DataFrame) -> tuple[DataFrame | None, int | None]:
        """Return the applied IDs among those of ``frame``, with their content hashes, and the
        floor: the time (microseconds) through which IDs may have expired. Either may be None.

        An ID counts once its token is marked. A fold renames tokens and then deletes the marks: a
        token that is not marked is looked up once more.
        """
        few = [row[0] for row in frame.select(ID).distinct().limit(FEW_IDS + 1).collect()]
        before: set[str] | None = None
        while True:
            if len(few) <= FEW_IDS:
                found, tokens, floor = self._few(few)
            else:
                found, tokens, floor = self._many(rows, frame)
            unmarked = self._unmarked(tokens)
            if not unmarked or unmarked == before:
                break
            before = unmarked
        if found is None:
            return None, floor
        if unmarked:
            found = found.where(~F.col("token").isin(list(unmarked)))
        known = found.groupBy(F.col("event_id").alias(ID)).agg(F.min("content").alias(_KNOWN))
        return known, floor

    def _few(self, ids: Sequence[str]) -> tuple[DataFrame | None, set[str], int | None]:
        """Return the rows of ``ids``, None if there are none, their tokens, and the floor."""
        # As bytes, because a parser may replace parts of a text, by settings of the session.
        texts = [f"cast(X'{text.encode().hex()}' AS string)" for text in sorted(ids)]
        wanted = f"token = {literal(FLOOR)}" + (f" OR {is_in('event_id', texts)}" if ids else "")
        with self._session() as session, self.ledger.errors():
            rows = (
                load(session, self.ledger.location("event_ids"))
                .where((F.col("table") == self.table) & (F.col("origin") == self.origin))
                .where(wanted)
                .select("event_id", "content", "token", "time")
                .collect()
            )
        floors = [row["time"] for row in rows if row["token"] == FLOOR]
        found = [row[:3] for row in rows if row["token"] != FLOOR]
        schema = "event_id string, content string, token string"
        return (
            self.ledger.spark.createDataFrame(found, schema) if found else None,
            {token for _, _, token in found},
            max(floors, default=None),
        )

    def _many(self, rows: EventRows, frame: DataFrame) -> tuple[DataFrame, set[str], int | None]:
        """As :meth:`_few`, by a join with the IDs of ``frame``.

        Of one version of the ledger: Spark evaluates what it has cached once more when the table is
        written to or an executor is lost. By then the ledger has the IDs of this apply too, and all
        its events would be known.
        """
        with self.ledger.errors():
            location = self.ledger.location("event_ids")
            version = newest_commit(self.ledger.spark, location).version
            recorded = load(self.ledger.spark, location, versionAsOf=version).where(
                (F.col("table") == self.table) & (F.col("origin") == self.origin)
            )
            floor = recorded.where(F.col("token") == FLOOR).agg(F.max("time")).collect()[0][0]
            ids = frame.select(F.col(ID).alias("event_id")).distinct()
            found = rows.persist(
                recorded.where(F.col("token") != FLOOR)
                .join(ids, "event_id", "left_semi")
                .select("event_id", "content", "token")
            )
            tokens = {row[0] for row in found.select("token").distinct().collect()}
        return found, tokens, None if floor is None else int(floor)

    def _unmarked(self, tokens: Collection[str]) -> set[str]:
        """Return those of ``tokens`` that no mark has: IDs with them do not count."""
        random = {token for token in tokens if not is_range_token(token)}
        if not random:
            return set()
        with self.ledger.errors():
            marks = self.ledger.read("applied").where(F.col("table") == self.table)
            marked = marks.where(F.col("token").isin(list(random))).select("token").collect()
        return random - {row[0] for row in marked}

    @contextmanager
    def _session(self) -> Iterator[SparkSession]:
        """Yield a session in which Parquet's filters have all literals of IN lists."""
        with copied_session(self.ledger.spark) as session:
            session.conf.set("spark.sql.parquet.pushdown.inFilterThreshold", str(IN_LIST))
            yield session
