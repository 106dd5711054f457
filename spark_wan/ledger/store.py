"""The ledger's rows in Delta tables (see :mod:`spark_wan.ledger.tables`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields

from spark_wan.delta.sql import is_in, literal
from spark_wan.errors import LedgerError, NewerRecordError
from spark_wan.ledger.event_ids import RecordedIds
from spark_wan.ledger.tables import LedgerTables
from spark_wan.wire.ledger import (
    FLOOR,
    SUMMARY_VERSION,
    DeadLetter,
    FoldedIds,
    HistoryPosition,
    LedgerRecord,
    LedgerRow,
    Summary,
    decode_row,
    encode_row,
)
from spark_wan.wire.records import UNREADABLE
from spark_wan.wire.refused import MOST_CHARACTERS

ROWS_PER_FILE = 1_000_000
"""Number of event IDs in a file that a fold writes, about 60 MB."""


@dataclass
class DeltaLedgerStore:
    """Ledger store in a site's Delta tables (:class:`spark_wan.ledger.interfaces.LedgerStore`)."""

    tables: LedgerTables

    def load(self, table: str) -> Sequence[LedgerRecord]:
        from pyspark.sql import functions as F

        with self.tables.errors():
            rows = self.tables.read("applied").where(F.col("table") == table).collect()
        newer = [row["version"] for row in rows if row["version"] > SUMMARY_VERSION]
        if newer:
            raise LedgerError(
                f"{table}: the ledger has rows of version {newer[0]}; this spark_wan reads "
                f"versions up to {SUMMARY_VERSION}. Update spark_wan at this site."
            )
        try:
            return [
                decode_row(row["target_id"], row["target_version"], row["mark"], row["apply"])
                for row in rows
            ]
        except (NewerRecordError, *UNREADABLE) as error:
            raise LedgerError(
                f"{table}: the ledger at {self.tables.location('applied')} has a mark that cannot "
                f"be read ({error}): it was altered, or written by a newer spark_wan. Update "
                "spark_wan at this site; or stop its receivers and restore the ledger."
            ) from error

    def append(self, table: str, rows: Sequence[LedgerRow | HistoryPosition]) -> None:
        self.append_all([(table, row) for row in rows])

    def append_all(self, rows: Sequence[tuple[str, LedgerRow | HistoryPosition]]) -> None:
        """Add rows of several tables in one commit: (table, row)."""
        with self.tables.errors():
            self.tables.append("applied", [{"table": t, **encode_row(row)} for t, row in rows])

    def letters(self, table: str, most: int) -> list[DeadLetter]:
        """Return a receiver's newest dead letters of a table, the newest first, without their
        payloads. Some may be of an apply that was not finished."""
        from pyspark.sql import functions as F

        names = [each.name for each in fields(DeadLetter)]
        with self.tables.errors():
            found = self.tables.read("dead_letters").where(
                (F.col("table") == table) & (F.col("side") == "receiver")
            )
            newest = found.orderBy(F.col("at").desc_nulls_last(), F.desc("origin_version"))
            rows = newest.limit(most).withColumn("payload", F.lit(None).cast("binary"))
            # Of a long row only that it is one.
            row = F.substring("row", 1, MOST_CHARACTERS + 1).alias("row")
            chosen = rows.select(*(row if name == "row" else F.col(name) for name in names))
            return [DeadLetter(**each.asDict()) for each in chosen.collect()]

    def names(self, target_id: str) -> set[str]:
        from pyspark.sql import functions as F

        with self.tables.errors():
            rows = self.tables.read("applied").where(F.col("target_id") == target_id)
            return {row[0] for row in rows.select("table").distinct().collect()}

    def recorded_ids(self, table: str) -> RecordedIds:
        from pyspark.sql import functions as F

        with self.tables.errors():
            ids = self.tables.read("event_ids").where(F.col("table") == table)
            is_floor = F.col("token") == FLOOR
            # Apart, because the times of all IDs are much to read.
            tokens = ids.where(~is_floor).select("origin", "token").distinct()
            floors = ids.where(is_floor).groupBy("origin").agg(F.max("time").alias("time"))
            tokens = tokens.withColumn("time", F.lit(None).cast("bigint"))
            rows = tokens.unionByName(
                floors.select("origin", F.lit(None).cast("string").alias("token"), "time")
            ).collect()
        return RecordedIds.of((row["origin"], row["token"], row["time"]) for row in rows)

    def claim(self, table: str, claim: Summary) -> None:
        # Delta skips a transaction number that it has: of rival claims one is there.
        with self.tables.errors():
            self.tables.append(
                "applied",
                [{"table": table, **encode_row(claim)}],
                txnAppId=f"spark_wan/fold/{table}",
                txnVersion=claim.number,
            )

    def rename_ids(self, table: str, tokens: Mapping[FoldedIds, Collection[str]]) -> None:
        from pyspark.sql import functions as F

        conditions = {
            ids: f"(origin = {literal(ids.origin)} AND {_one_of(replaced, ids.token)})"
            for ids, replaced in tokens.items()
        }
        renamed = F.lit(None).cast("string")
        for ids in tokens:
            renamed = F.when(F.col("origin") == ids.origin, F.lit(ids.token)).otherwise(renamed)
        files = -(-sum(ids.count or 0 for ids in tokens) // ROWS_PER_FILE)
        # Sorted by ID, so that a look-up reads few pages of a file.
        self.tables.replace(
            "event_ids",
            f"`table` = {literal(table)} AND ({' OR '.join(conditions.values())})",
            lambda rows: (
                rows.withColumn("token", renamed)
                .repartitionByRange(max(1, files), "origin", "event_id")
                .sortWithinPartitions("origin", "event_id")
            ),
        )

    def rename_letters(self, table: str, tokens: Collection[str], token: str) -> None:
        from pyspark.sql import functions as F

        self.tables.replace(
            "dead_letters",
            f"`table` = {literal(table)} AND side = 'receiver' AND {_one_of(tokens, token)}",
            lambda rows: rows.withColumn("token", F.lit(token)).coalesce(1),
        )

    def replace(self, table: str, summary: Summary, before: int) -> None:
        row = [{"table": table, **encode_row(summary)}]
        self.tables.replace(
            "applied",
            f"`table` = {literal(table)} AND (apply <= {summary.apply} OR (apply IS NULL AND "
            f"target_version < {before}))",
            lambda _: self.tables.frame("applied", row).coalesce(1),
        )


def _one_of(tokens: Collection[str], token: str) -> str:
    """Return the condition that a row has one of the tokens, or already ``token``."""
    return is_in("token", [literal(each) for each in sorted({*tokens, token})])
