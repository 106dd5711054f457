"""How soon a commit is visible at the target: alone, and with one commit a second.

A sender and a receiver in one session, on one machine. Unless said otherwise, each commit has 1,000
random keys, and the target a million rows. The commits are made before and become visible in the
source one after the other, so that making them costs nothing meanwhile. A commit is visible when
the write that brings it has returned. Each figure is a multiple of a bare MERGE of one such commit
into a copy of the target, measured in the same run, before and after.
"""

from __future__ import annotations

import random
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

import spark_wan
from bench.end_to_end import POLL_INTERVAL, wait_for
from spark_wan.apply.change import Change
from spark_wan.delta.sql import reference
from spark_wan.target.delta_table import DeltaTarget
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import parse_topology
from spark_wan.wire.mark import Mark

WARM_UP, ALONE = 3, 7
"""Commits."""
PAUSE = 3.0
"""Seconds without anything before each commit that is alone."""
MERGES = 5


class Steady:
    """Two sites with one table, and its commits: some that come when all is quiet, and some that
    come behind them, each at its time."""

    def __init__(
        self,
        spark: Any,
        place: Path,
        rows: int = 1_000_000,
        keys: int = 1_000,
        steady: Sequence[float] = tuple(range(60)),
        channel: str = "",
        alone: int = ALONE,
        optimize: str = "latency",
    ) -> None:
        """``keys``: of each commit. ``steady``: when each commit comes, in seconds; ``alone``: how
        many come before that when all is quiet, besides those to warm up."""
        self.spark, self.place = spark, place
        self.rows, self.keys, self.steady, self.alone = rows, keys, steady, alone
        self.channel, self.optimize = channel or str(place / "channel"), optimize
        self.chosen = random.Random(7)
        self.visible: dict[int, float] = {}
        """Version of the source -> when the target had it."""
        self.applies = 0
        """Commits to the target that brought commits that were not alone."""

    def make(self) -> None:
        """Make the target with a copy for the bare MERGEs, and the source with its commits."""
        rows = self.spark.range(self.rows).selectExpr("id", *self._columns("0"))
        rows = rows.repartitionByRange(max(4, self.rows // 625_000), "id")
        for name in ("target", "bare"):
            writer = rows.write.format("delta")
            writer.option("delta.enableDeletionVectors", "true").save(str(self.place / name))
        for _ in range(1 + WARM_UP + self.alone + len(self.steady)):
            write_deltalake(
                self.place / "source",
                self._commit(),
                mode="append",
                configuration={
                    "delta.enableChangeDataFeed": "true",
                    "delta.checkpointInterval": "10000",  # it would show hidden commits
                },
            )

    def _columns(self, change: str) -> list[str]:
        return [
            "concat('item ', id % 1000) AS item",
            f"cast(id % 100 + {change} AS double) AS amount",
            f"concat('note ', id * 7919 + {change}) AS note",
        ]

    def _commit(self) -> pa.Table:
        keys = self.chosen.sample(range(self.rows), self.keys)
        change = self.chosen.randrange(1_000)
        return pa.table(
            {
                "id": pa.array(keys, pa.int64()),
                "item": [f"item {key % 1000}" for key in keys],
                "amount": [float(key % 100 + change) for key in keys],
                "note": [f"note {key * 7919 + change}" for key in keys],
            }
        )

    def topology(self) -> Topology:
        site = {"idle_interval": "1s", "receive_interval": POLL_INTERVAL}
        sites = {name: {"state": str(self.place / name), **site} for name in ("newark", "seattle")}
        sender = {
            "site": "newark",
            "remotes": ["seattle"],
            "channel": self.channel,
            "batch_interval": POLL_INTERVAL,
            "optimize": self.optimize,
        }
        table = {
            "keys": ["id"],
            "writers": ["newark"],
            "senders": ["east"],
            "start": {"version": 0},
            "at": {"newark": str(self.place / "source"), "seattle": str(self.place / "target")},
        }
        content = {"version": 1, "sites": sites, "senders": {"east": sender}}
        return parse_topology({**content, "tables": {"orders": table}}, str(self.place / "wan"))

    def merge(self) -> float:
        """Return the seconds of a bare MERGE of one commit."""
        rows = self.spark.createDataFrame(self._commit().to_pylist()).cache()
        rows.count()
        rows.createOrReplaceTempView("rows")
        began = time.monotonic()
        self.spark.sql(
            f"MERGE INTO {reference(str(self.place / 'bare'))} t USING rows s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()
        took = time.monotonic() - began
        rows.unpersist()
        return took

    @contextmanager
    def hidden(self) -> Iterator[list[Path]]:
        """Hide all commits of the source but the first; yield their files."""
        aside = self.place / "later"
        aside.mkdir()
        files = sorted((self.place / "source" / "_delta_log").glob("*.json"))[1:]
        yield [shutil.move(file, aside / file.name) for file in files]

    @contextmanager
    def watched(self) -> Iterator[None]:
        write = DeltaTarget.write

        def watched(target: DeltaTarget, change: Change, mark: Mark) -> None:
            write(target, change, mark)
            now = time.monotonic()
            self.applies += 1
            for version in range(change.newest.last_version + 1):
                self.visible.setdefault(version, now)

        DeltaTarget.write = watched  # type: ignore[method-assign]
        try:
            yield
        finally:
            DeltaTarget.write = write  # type: ignore[method-assign]

    def reveal(self, file: Path) -> float:
        began = time.monotonic()
        Path(file).rename(self.place / "source" / "_delta_log" / Path(file).name)
        return began

    def measure(self) -> dict[str, list[float]]:
        """Return seconds: ``alone`` and ``steady``."""
        with self.hidden() as files, self.watched():
            sender = spark_wan.Sender(self.spark, self.topology(), "newark").start()
            receiver = spark_wan.Receiver(self.spark, self.topology(), "seattle").start()
            try:
                wait_for(lambda: 0 in self.visible)
                alone = []
                quiet = WARM_UP + self.alone
                for version, file in enumerate(files[:quiet], 1):
                    time.sleep(PAUSE)
                    began = self.reveal(file)
                    wait_for(lambda version=version: version in self.visible)
                    alone.append(self.visible[version] - began)
                began_at, self.applies = {}, 0
                start = time.monotonic()
                for n, file in enumerate(files[quiet:]):
                    time.sleep(max(0.0, start + self.steady[n] - time.monotonic()))
                    began_at[1 + quiet + n] = self.reveal(file)
                wait_for(lambda: max(began_at) in self.visible)
                steady = [self.visible[version] - began for version, began in began_at.items()]
            finally:
                sender.stop()
                receiver.stop()
        return {"alone": alone[WARM_UP:], "steady": steady}


def steady(spark: Any, place: Path) -> dict[str, Any]:
    """Return the figures: seconds of a bare MERGE, and multiples of it."""
    one = Steady(spark, place)
    one.make()
    merges = [one.merge() for _ in range(2 + MERGES)][2:]
    seconds = one.measure()
    merges += [one.merge() for _ in range(MERGES)]
    merge = statistics.median(merges)
    alone = statistics.median(seconds["alone"])
    p50 = statistics.median(seconds["steady"])
    p95 = statistics.quantiles(seconds["steady"], n=20)[18]
    return {
        "steady_merge_s": round(merge, 2),
        "alone_p50_s": round(alone, 2),
        "alone_p50_to_merge": round(alone / merge, 2),
        "steady_p50_s": round(p50, 2),
        "steady_p50_to_merge": round(p50 / merge, 2),
        "steady_p95_s": round(p95, 2),
        "steady_p95_to_merge": round(p95 / merge, 2),
    }
