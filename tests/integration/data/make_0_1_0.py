"""How ``sites_0_1_0.tar.gz`` was made, with version 0.1.0 of spark_wan on the path:

    python make_0_1_0.py FOLDER
    tar --format=pax --exclude=wan.yaml -C FOLDER -czf sites_0_1_0.tar.gz .

FOLDER has the topology of ``tests/support/sites.py``, without ``source``: 0.1.0 does not know it.
Commits have the times of their files, so the archive keeps these. The logs keep their commits for
as long as the archive is to be used.
"""

from __future__ import annotations

import datetime
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

import spark_wan
from spark_wan.local import local_session

FOLDER = Path(sys.argv[1]).resolve()
FOREVER = {"delta.logRetentionDuration": "interval 36500 days"}
ORDERS = pa.schema([("id", pa.int64()), ("item", pa.string()), ("amount", pa.float64())])
READINGS = pa.schema([("sensor", pa.string()), ("value", pa.float64())])
CLICKS = pa.schema(
    [("event", pa.string()), ("at", pa.timestamp("us", "UTC")), ("page", pa.string())]
)
DAY = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)


def append(table: str, schema: pa.Schema, rows: list[dict[str, Any]]) -> None:
    write_deltalake(
        FOLDER / "newark" / table,
        pa.Table.from_pylist(rows, schema=schema),
        mode="append",
        configuration={"delta.enableChangeDataFeed": "true", **FOREVER},
    )


def clicks(first: int, last: int, page: str = "") -> list[dict[str, Any]]:
    return [
        {"event": f"c{n:03}", "at": DAY + datetime.timedelta(seconds=n), "page": page or f"/{n}"}
        for n in range(first, last)
    ]


def change(start: int) -> None:
    append("orders", ORDERS, [{"id": start + n, "item": "new", "amount": n / 4} for n in range(8)])
    table = DeltaTable(FOLDER / "newark" / "orders")
    merge = table.merge(
        pa.Table.from_pylist(
            [{"id": start + n, "item": "changed", "amount": -1.0} for n in range(-2, 3)],
            schema=ORDERS,
        ),
        "t.id = s.id",
        source_alias="s",
        target_alias="t",
    )
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    table.delete(f"id = {start + 7}")
    append("orders", ORDERS, [{"id": None, "item": "without a key", "amount": 0.0}])
    append("readings", READINGS, [{"sensor": "attic", "value": 20.5}] * 2)


def write(spark: Any, rows: list[dict[str, Any]]) -> None:
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, schema=CLICKS).to_pandas())
    options = {
        "config": str(FOLDER / "wan.yaml"),
        "sender": "events",
        "table": "clicks",
        "eventId": "event",
    }
    frame.write.format("wan").mode("append").options(**options).save()


def receive(spark: Any) -> None:
    topology = spark_wan.load_topology(FOLDER / "wan.yaml")
    spark_wan.Receiver(spark, topology, "seattle").start(available_now=True).await_termination()


def main() -> None:
    assert spark_wan.__version__ == "0.1.0"
    spark = local_session("version 0.1.0")
    spark_wan.register(spark)
    topology = spark_wan.load_topology(FOLDER / "wan.yaml")
    # Of the third epochs, no site has anything.
    for epoch, start in enumerate((10, 30, 50)):
        change(start)
        append("clicks", CLICKS, clicks(10 * epoch, 10 * epoch + 10))
        sender = spark_wan.Sender(spark, topology, "newark", senders=["east"])
        sender.start(available_now=True).await_termination()
        write(spark, clicks(max(0, 10 * epoch - 5), 10 * epoch + 10))
        if epoch < 2:
            receive(spark)
        if epoch == 0:
            write(spark, clicks(3, 4, page="/another"))  # a dead letter at the receiver
            for table in ("orders", "readings", "clicks"):
                spark.sql(
                    f"ALTER TABLE delta.`{FOLDER}/seattle/{table}` SET TBLPROPERTIES "
                    f"('delta.logRetentionDuration' = '{FOREVER['delta.logRetentionDuration']}')"
                )
    spark.stop()


if __name__ == "__main__":
    main()
