"""The ledger's rows in Delta tables (see :mod:`spark_wan.ledger.tables`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spark_wan.errors import LedgerError
from spark_wan.ledger.event_ids import RecordedIds
from spark_wan.ledger.records import HistoryPosition, LedgerRow
from spark_wan.ledger.tables import LEDGER_VERSION, LedgerTables
from spark_wan.wire.mark import Mark


@dataclass
class DeltaLedgerStore:
    """Ledger store in a site's Delta tables (:class:`spark_wan.ledger.records.LedgerStore`)."""

    tables: LedgerTables

    def load(self, table: str) -> Sequence[LedgerRow | HistoryPosition]:
        from pyspark.sql import functions as F

        with self.tables.errors():
            rows = self.tables.read("applied").where(F.col("table") == table).collect()
        newer = [row["version"] for row in rows if row["version"] > LEDGER_VERSION]
        if newer:
            raise LedgerError(
                f"{table}: the ledger has rows of version {newer[0]}; this spark_wan reads version "
                f"{LEDGER_VERSION}. Update spark_wan at this site."
            )
        try:
            return [
                decode_row(row["target_id"], row["target_version"], json.loads(row["mark"]))
                for row in rows
            ]
        except (TypeError, ValueError) as error:
            raise LedgerError(
                f"{table}: the ledger at {self.tables.location('applied')} has a mark that cannot "
                f"be read ({error}): it was altered, or written by a newer spark_wan. Update "
                "spark_wan at this site; or stop its receivers and restore the ledger."
            ) from error

    def append(self, table: str, rows: Sequence[LedgerRow | HistoryPosition]) -> None:
        with self.tables.errors():
            self.tables.append("applied", [{"table": table, **encode_row(row)} for row in rows])

    def names(self, target_id: str) -> set[str]:
        from pyspark.sql import functions as F

        with self.tables.errors():
            rows = self.tables.read("applied").where(F.col("target_id") == target_id)
            return {row[0] for row in rows.select("table").distinct().collect()}

    def recorded_ids(self, table: str) -> RecordedIds:
        from pyspark.sql import functions as F

        tokens = F.when(F.col("event_id").isNotNull(), F.col("token"))  # null: a floor
        with self.tables.errors():
            ids = self.tables.read("event_ids").where(F.col("table") == table)
            rows = (
                ids.groupBy("origin", tokens.alias("token"))
                .agg(F.max("time").alias("time"))
                .collect()
            )
        return RecordedIds(
            frozenset(row["token"] for row in rows if row["token"] is not None),
            {row["origin"]: row["time"] for row in rows if row["token"] is None},
        )


def decode_row(
    target_id: str, target_version: int, mark: dict[str, Any]
) -> LedgerRow | HistoryPosition:
    """Return the row with the decoded JSON of its column ``mark``."""
    if "seen" in mark:
        return HistoryPosition(target_id, target_version, mark["seen"], mark.get("moved", {}))
    return LedgerRow(target_id, target_version, Mark.of(mark))


def encode_row(row: LedgerRow | HistoryPosition) -> dict[str, Any]:
    """Return the values of the columns of ``applied``, without ``version`` and ``table``."""
    place = {"target_id": row.target_id, "target_version": row.target_version}
    if isinstance(row, HistoryPosition):
        moved = {"moved": dict(row.moved)} if row.moved else {}
        return {**place, "mark": json.dumps({"seen": row.identity, **moved})}
    mark = row.mark
    return {
        **place,
        "apply": mark.apply,
        "token": mark.token,
        "mark": json.dumps(mark.content()),
    }
