"""The event IDs of user streams that were applied, in the ledger.

The IDs of an apply are looked up; those that the ledger has are never read all. A few are literals
of the query, so that Delta skips files, and Parquet pages, that cannot have them: folded IDs are
sorted (:mod:`spark_wan.ledger.folding`). Many are joined.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_wan.delta.sessions import copied_session
from spark_wan.delta.sql import IN_LIST, is_in, literal, quoted, reference
from spark_wan.delta.tables import load, newest_commit
from spark_wan.events.operations import CONTENT, ID, TIME
from spark_wan.ledger.event_ids import counting_tokens
from spark_wan.ledger.tables import LedgerTables
from spark_wan.wire.ledger import FLOOR, LEDGER_VERSION, token_range

FEW_IDS = 5_000
"""Maximum number of event IDs that are literals of a query."""
KNOWN = "_wan_known"
"""The content hash with which an event ID was applied."""


@dataclass(frozen=True)
class AppliedEventIds:
    """The event IDs of one origin that were applied to a table, in the ledger."""

    ledger: LedgerTables
    table: str
    origin: str
    since: int = 0
    """The apply from which on they count: that of the newest copy. The rows of earlier ones are
    gone, and may come again."""

    def record(self, new_ids: DataFrame, token: str) -> None:
        """Append the IDs of an apply, which count once a mark has its ``token``."""
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

    def look_up(
        self, frame: DataFrame, persist: Callable[[DataFrame], DataFrame]
    ) -> tuple[DataFrame | None, int | None]:
        """Return the applied IDs among those of ``frame`` with their content hashes (``KNOWN``),
        and the floor: the time (microseconds) through which IDs may have expired. Either may be
        None. ``persist`` caches a DataFrame until the apply ends.

        An ID counts once its token is marked. A fold renames tokens and then deletes the marks: a
        token that is not marked is looked up once more.
        """
        few = [row[0] for row in frame.select(ID).distinct().limit(FEW_IDS + 1).collect()]
        before: set[str] | None = None
        while True:
            if len(few) <= FEW_IDS:
                found, tokens, floor = self._few(few)
            else:
                found, tokens, floor = self._many(frame, persist)
            unmarked = self._unmarked(tokens)
            if not unmarked or unmarked == before:
                break
            before = unmarked
        if found is None:
            return None, floor
        if unmarked:
            found = found.where(~F.col("token").isin(list(unmarked)))
        known = found.groupBy(F.col("event_id").alias(ID)).agg(F.min("content").alias(KNOWN))
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

    def _many(
        self, frame: DataFrame, persist: Callable[[DataFrame], DataFrame]
    ) -> tuple[DataFrame, set[str], int | None]:
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
            found = persist(
                recorded.where(F.col("token") != FLOOR)
                .join(ids, "event_id", "left_semi")
                .select("event_id", "content", "token")
            )
            tokens = {row[0] for row in found.select("token").distinct().collect()}
        return found, tokens, None if floor is None else int(floor)

    def _unmarked(self, tokens: Collection[str]) -> set[str]:
        """Return those of ``tokens`` that no mark has that counts: nor do IDs with them."""
        random = [token for token in tokens if token_range(token) is None]
        marked: set[str] = set()
        if random:
            with self.ledger.errors():
                marks = self.ledger.read("applied").where(F.col("table") == self.table)
                marks = marks.where(F.col("token").isin(random) & (F.col("apply") >= self.since))
                marked = {row[0] for row in marks.select("token").collect()}
        return set(tokens) - counting_tokens(tokens, marked, self.since)

    @contextmanager
    def _session(self) -> Iterator[SparkSession]:
        """Yield a session in which Parquet's filters have all literals of IN lists."""
        with copied_session(self.ledger.spark) as session:
            session.conf.set("spark.sql.parquet.pushdown.inFilterThreshold", str(IN_LIST))
            yield session
