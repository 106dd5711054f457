"""A small apply beside the MERGE that everybody writes: 1,000 random keys into a large table.

Both get the same rows, a tenth of them new, in identical copies of one table, in turns. The table
has the columns of :mod:`bench.end_to_end` and files that each hold a range of the keys, so that
every file has some of the keys.

*MERGE* is ``MERGE INTO t USING s ON t.order_id = s.order_id WHEN MATCHED THEN UPDATE SET *
WHEN NOT MATCHED THEN INSERT *`` with ``s`` in memory. *Apply* is what spark_wan does from the
planned epoch to the marked commit, steps apply.3 to apply.6: it reads the target's columns and
properties, fetches, checks and decodes the frame, and writes. Both run in the same session.
"""

from __future__ import annotations

import random
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import spark_wan
from bench.end_to_end import COLUMNS, TYPES
from spark_wan.apply.applier import TableApplier
from spark_wan.channels.registry import open_channel
from spark_wan.delta.sessions import CurrentSession, SessionSettings
from spark_wan.delta.sql import reference
from spark_wan.ledger.ledger import Ledger
from spark_wan.ledger.store import DeltaLedgerStore
from spark_wan.ledger.tables import LedgerTables
from spark_wan.log.stream_log import StreamLog
from spark_wan.target.delta_table import DeltaTarget
from spark_wan.topology.parsing import parse_topology
from spark_wan.topology.routes import all_streams

KEYS = 1_000
NEW = 100
"""Of these keys, how many are new."""
ROUNDS, WARM_UP = 5, 2
SIZES = {"1m": (1_000_000, 4), "10m": (10_000_000, 16)}
"""Rows and files of the table."""
_VALUES = (
    "concat('customer-', (id * 7919) % 50000) AS customer",
    "element_at(array('open', 'paid', 'packed', 'shipped', 'returned'),"
    " cast(id % 5 + 1 AS int)) AS status",
    "concat('product-', (id * 31) % 2000) AS product",
    "cast((id + {change}) % 9 + 1 AS int) AS quantity",
    "cast((id * 37) % 100000 AS double) / 100 AS price",
    "cast((id * 13) % 30 AS double) / 100 AS discount",
    "date_add(date'2026-01-01', cast(id % 300 AS int)) AS ordered_on",
    "timestamp_micros(1767225600000000 + id * 1000003 + {change}) AS updated_at",
)


def small_apply(spark: Any, place: Path) -> dict[str, Any]:
    """Return the figures of tables as receivers create them, by size: seconds and their ratio."""
    return {
        f"{name}_{size}": value
        for size, (rows, files) in SIZES.items()
        for name, value in _measured(spark, place / size, rows, files, vectors=True).items()
    }


def small_apply_without_vectors(spark: Any, place: Path) -> dict[str, Any]:
    """Return the same figures of tables without deletion vectors."""
    return {
        f"{name}_{size}_without_vectors": value
        for size, (rows, files) in SIZES.items()
        for name, value in _measured(spark, place / size, rows, files, vectors=False).items()
    }


def _measured(spark: Any, place: Path, rows: int, files: int, vectors: bool) -> dict[str, Any]:
    one = SmallApply(spark, place, vectors)
    one.make_tables(rows, files)
    seconds: dict[str, list[float]] = {"merge": [], "small_apply": []}
    chosen = random.Random(rows)
    for n in range(WARM_UP + ROUNDS):
        keys = chosen.sample(range(rows), KEYS - NEW)
        keys += range(rows + n * NEW, rows + (n + 1) * NEW)
        changed = one.rows(keys, change=n + 1)
        # Each goes first in every other round.
        for name in sorted(seconds, reverse=bool(n % 2)):
            took = getattr(one, name)(changed)
            if n >= WARM_UP:
                seconds[name].append(took)
            print(f"{place.name}: round {n}: {name} {took:.2f} s", flush=True)
    one.check()
    shutil.rmtree(place)
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    pairs = zip(seconds["small_apply"], seconds["merge"], strict=True)
    return {
        "merge_s": round(middle["merge"], 2),
        "small_apply_s": round(middle["small_apply"], 2),
        "small_apply_to_merge": round(statistics.median(a / b for a, b in pairs), 3),
    }


class SmallApply:
    """Two copies of a table, and a method per way to write rows to one of them."""

    target_types = TYPES

    def __init__(self, spark: Any, place: Path, vectors: bool) -> None:
        self.spark, self.place, self.vectors = spark, place, vectors
        self.source, self.target = str(place / "source"), str(place / "small_apply")
        self.topology = parse_topology(
            {
                "version": 1,
                "sites": {site: {"state": str(place / site)} for site in ("newark", "seattle")},
                "senders": {
                    "east": {
                        "site": "newark",
                        "remotes": ["seattle"],
                        "channel": str(place / "channel"),
                    }
                },
                "tables": {
                    "orders": {
                        "keys": ["order_id"],
                        "writers": ["newark"],
                        "senders": ["east"],
                        "start": {"version": 1},
                        "at": {"newark": self.source, "seattle": self.target},
                    }
                },
            },
            str(place / "topology"),
        )
        # As a receiver's threads have it: copies of such a session are cheap.
        own = SessionSettings.of(spark).new_session(spark)
        log = StreamLog(open_channel(str(place / "channel")), all_streams(self.topology)[0].name)
        tables = LedgerTables(CurrentSession(own), str(place / "seattle"))
        tables.ensure()
        self.applier = TableApplier(
            "seattle",
            "orders",
            log,
            DeltaTarget(
                CurrentSession(own),
                "seattle",
                "orders",
                self.target,
                channel=log.channel,
                ledger=tables,
            ),
            Ledger("seattle", "orders", DeltaLedgerStore(tables)),
        )

    def make_tables(self, rows: int, files: int) -> None:
        """Create an empty source, and two equal targets."""
        vectors = f"delta.enableDeletionVectors = {str(self.vectors).lower()}"
        for path, types, feature in (
            (self.source, TYPES, "delta.enableChangeDataFeed = true"),
            (self.target, self.target_types, vectors),
        ):
            self.spark.sql(
                f"CREATE TABLE {reference(path)} ({types}) USING DELTA TBLPROPERTIES ({feature})"
            )
        content = self.spark.range(0, rows, 1, files)
        content = content.selectExpr("id AS order_id", *(v.format(change=0) for v in _VALUES))
        content.write.format("delta").mode("append").save(self.target)
        shutil.copytree(self.target, self.place / "merge")

    def rows(self, keys: list[int], change: int) -> pa.Table:
        """Return rows with these keys. ``change`` makes them differ from earlier ones."""
        ids = self.spark.createDataFrame(pa.table({"id": keys}))
        values = (value.format(change=change) for value in _VALUES)
        found: pa.Table = ids.selectExpr("id AS order_id", *values).toArrow()
        return found

    def merge(self, rows: pa.Table) -> float:
        """Return the seconds of a plain MERGE."""
        self.spark.createDataFrame(rows).createOrReplaceTempView("s")
        began = time.monotonic()
        self.spark.sql(
            f"MERGE INTO {reference(str(self.place / 'merge'))} t USING s "
            "ON t.order_id = s.order_id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()
        return time.monotonic() - began

    def small_apply(self, rows: pa.Table) -> float:
        """Return the seconds of an apply of the same rows, which are sent before the clock starts.

        Raises RuntimeError when they were not applied.
        """
        self.send(rows)
        times = self.apply()
        return times["apply.6 written"] - times["apply.2 planned"]

    def send(self, rows: pa.Table) -> None:
        """Commit rows to the source, and publish them as an epoch."""
        self.spark.createDataFrame(rows).write.format("delta").mode("append").save(self.source)
        sender = spark_wan.Sender(self.spark, self.topology, "newark")
        sender.start(available_now=True).await_termination()

    def apply(self) -> dict[str, float]:
        """Apply what was sent; return when each step was done. Raises RuntimeError when nothing was
        applied."""
        times: dict[str, float] = {}
        for step in self.applier.round():
            times[step] = time.monotonic()
        if "apply.6 written" not in times:
            raise RuntimeError(f"not applied: {self.applier.log.acks()}")
        return times

    def check(self) -> None:
        """Raise RuntimeError unless both tables have the same rows."""
        sums = f"sum(cast(xxhash64({', '.join(COLUMNS)}) AS decimal(38, 0)))"
        expected, actual = (
            tuple(row)
            for name in ("merge", "small_apply")
            for row in self.spark.read.load(str(self.place / name), "delta")
            .selectExpr("count(1)", sums)
            .collect()
        )
        if expected != actual:
            raise RuntimeError(f"rows differ: {expected} by MERGE, {actual} by the apply")
