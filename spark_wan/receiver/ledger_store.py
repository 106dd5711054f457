"""The ledger's rows in Delta tables (see :mod:`spark_wan.ledger_tables`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from spark_wan.errors import LedgerError
from spark_wan.ledger_tables import LEDGER_VERSION, LedgerTables
from spark_wan.receiver.ledger import LedgerRow, Mark


@dataclass
class DeltaLedgerStore:
    """See :class:`spark_wan.receiver.ledger.LedgerStore`."""

    tables: LedgerTables

    def load(self, table: str) -> Sequence[LedgerRow]:
        from pyspark.sql import functions as F

        rows = self.tables.read("applied").where(F.col("table") == table).collect()
        newer = [row["version"] for row in rows if row["version"] > LEDGER_VERSION]
        if newer:
            raise LedgerError(
                f"{table}: the ledger has rows of version {newer[0]}; this spark_wan reads version {LEDGER_VERSION}. Update spark_wan at "
                "this site."
            )
        return [LedgerRow(row["target_id"], row["target_version"], Mark(**json.loads(row["mark"]))) for row in rows]

    def append(self, table: str, rows: Sequence[LedgerRow]) -> None:
        self.tables.append(
            "applied",
            [
                {
                    "table": table,
                    "target_id": row.target_id,
                    "target_version": row.target_version,
                    "apply": row.mark.apply,
                    "token": row.mark.token,
                    "mark": json.dumps(row.mark.content()),
                }
                for row in rows
            ],
        )

    def has_ids(self, table: str, token: str) -> bool:
        from pyspark.sql import functions as F

        found = self.tables.read("event_ids").where((F.col("table") == table) & (F.col("token") == token))
        return bool(found.limit(1).count())
