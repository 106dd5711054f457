"""What the ledger costs an apply, after 100 applies and after 20,000.

    python -m bench.ledger_growth [--rounds 9]

An apply here is one of a user stream, with ten new event IDs. Measured is its ledger part: it
catches up with the target, looks up its IDs, records them, and records its mark. The commit to the
target is made, but not measured. Both ledgers take turns; the figures are medians.

The applies before are simulated. Their ledger is as the hourly maintenance leaves it when 200
applies are made an hour: all but the last hundred are folded, and their IDs are in the ranges that
these folds make. The logs of target and ledger have a file for each apply, and a checkpoint for
each ten, as if Delta's log cleanup had removed none.

A cold load is what a new process does: it loads the ledger, checks the event IDs and catches up.
Delta's own cache is emptied before it. The figures go to ``bench/results/idle.json``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from bench.end_to_end import HERE, SCRATCH
from bench.figures import record
from spark_wan.apply.change import Change
from spark_wan.delta.sessions import CurrentSession, SessionSettings
from spark_wan.events.operations import CONTENT, ID, SEQUENCE, TIME, VERSION
from spark_wan.ledger.applied_ids import AppliedEventIds
from spark_wan.ledger.folding import folded_ids
from spark_wan.ledger.ledger import Ledger
from spark_wan.ledger.store import DeltaLedgerStore
from spark_wan.ledger.tables import LedgerTables
from spark_wan.ledger.total import Total
from spark_wan.local import local_session
from spark_wan.target.deduplicate import deduplicate
from spark_wan.target.delta_table import DeltaTarget
from spark_wan.target.rows import EventRows
from spark_wan.wire.ledger import LEDGER_VERSION, SCHEMAS, LedgerRow, encode_row
from spark_wan.wire.mark import AppliedStream, Mark

RESULTS = HERE / "results" / "idle.json"
SITE, TABLE, ORIGIN, STREAM = "seattle", "clicks", "newark", "newark.events.clicks"
IDS, AN_HOUR, NOT_FOLDED = 10, 200, 100
EVENTS = f"{ID} string, {VERSION} bigint, {SEQUENCE} bigint, {CONTENT} string, {TIME} bigint"
TYPES = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64()}


def arrow_schema(table: str) -> pa.Schema:
    """Return the columns of a table of the ledger."""
    columns = (column.split() for column in SCHEMAS[table].split(", "))
    return pa.schema([(name, TYPES[kind]) for name, kind in columns])


APPLIED, EVENT_IDS = arrow_schema("applied"), arrow_schema("event_ids")


def mark_of(apply: int) -> Mark:
    applied = AppliedStream(
        origin=ORIGIN,
        table_id="source",
        selection="all",
        through=-1,
        stream=STREAM,
        log_id="a" * 32,
        epoch=apply,
        fingerprint="f" * 24,
        ids=True,
        new_ids=IDS,
        ids_until=apply,
    )
    columns = ("event", "at", "page")
    return Mark(SITE, TABLE, apply, f"{apply:032x}", (applied,), columns=columns)


def event_ids_of(apply: int) -> list[tuple[str, str, int]]:
    """Event IDs with content hash and time. They are spread over all that there are."""
    names = (f"{(apply * IDS + n) * 2654435761 % 2**32:08x}-{apply}-{n}" for n in range(IDS))
    return [(name, f"{hash(name) & 0xFFFFFFFF:08x}", apply) for name in names]


class Grown:
    """A site's ledger and target after ``applies`` applies."""

    def __init__(self, spark: Any, folder: Path, applies: int) -> None:
        # As a receiver's threads have it: copies of such a session are cheap.
        self.spark = spark = SessionSettings.of(spark).new_session(spark)
        self.applies = applies
        self.tables = LedgerTables(CurrentSession(spark), str(folder / "_wan"))
        self.store = DeltaLedgerStore(self.tables)
        self.place = str(folder / TABLE)
        self.tables.ensure()
        spark.sql(f"CREATE TABLE delta.`{self.place}` (id bigint) USING delta").collect()
        self._grow()
        channel: Any = None
        self.target = DeltaTarget(
            CurrentSession(spark), SITE, TABLE, self.place, channel=channel, ledger=self.tables
        )
        self.ledger = Ledger(SITE, TABLE, self.store)

    def _grow(self) -> None:
        target_id = str(DeltaTable(self.place).metadata().id)
        last = self.applies - NOT_FOLDED
        hours = [range(first, min(first + AN_HOUR, last + 1)) for first in range(1, last, AN_HOUR)]
        ranges: list[Any] = []
        for hour in hours:
            ranges = folded_ids(ranges, map(mark_of, hour))
        place = self.tables.location("event_ids")
        for ids in ranges:
            rows = [row for apply in range(ids.first, ids.last + 1) for row in event_ids_of(apply)]
            write_deltalake(place, id_rows(sorted(rows), ids.token), mode="append")
        if last:
            total = Total()
            rows = [LedgerRow(target_id, number, mark_of(number)) for number in range(1, last + 1)]
            total.take_up(None, rows)
            summary = encode_row(total.summary(len(hours), ranges, ()))
            self._append([summary])
        for apply in range(last + 1, self.applies + 1):
            write_deltalake(place, id_rows(event_ids_of(apply), f"{apply:032x}"), mode="append")
            self._append([encode_row(LedgerRow(target_id, apply, mark_of(apply)))])
        pad(self.place, self.applies, lambda version: mark_of(version).user_metadata())
        for name in ("applied", "event_ids"):
            pad(self.tables.location(name), self.applies)

    def _append(self, rows: list[dict[str, Any]]) -> None:
        full = [{"version": LEDGER_VERSION, "table": TABLE, **row} for row in rows]
        place = self.tables.location("applied")
        write_deltalake(place, pa.Table.from_pylist(full, schema=APPLIED), mode="append")

    def apply(self) -> float:
        """Make the next apply; return the seconds of its ledger part."""
        new = mark_of(self.applies + 1)
        rows = [(name, 1, 1, content, at) for name, content, at in event_ids_of(new.apply)]
        events = EventRows(self.spark.createDataFrame(rows, EVENTS), [], ())
        change = Change([], events)
        began = time.perf_counter()
        hint = self.ledger.seems_current(self.target)  # as an apply does
        number = self.ledger.last_apply + 1 if hint else self.ledger.catch_up(self.target)
        ids = AppliedEventIds(self.tables, TABLE, ORIGIN)
        events = deduplicate(change, events, ids)
        assert events.new_ids is not None
        ids.record(events.new_ids, new.token)
        seconds = time.perf_counter() - began
        assert (number, change.new_ids) == (new.apply, IDS)
        one = self.spark.createDataFrame([(1,)], "id bigint").write.format("delta").mode("append")
        one.option("userMetadata", new.user_metadata()).save(self.place)
        began = time.perf_counter()
        self.ledger.catch_up(self.target)
        seconds += time.perf_counter() - began
        assert new.token in self.ledger.tokens
        events.release()
        self.applies += 1
        return seconds

    def load(self) -> float:
        """Load the ledger as a new process does; return the seconds."""
        self.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        began = time.perf_counter()
        assert Ledger(SITE, TABLE, self.store).catch_up(self.target) == self.applies + 1
        return time.perf_counter() - began


def id_rows(rows: list[tuple[str, str, int]], token: str) -> pa.Table:
    entries = [
        dict(zip(EVENT_IDS.names, (LEDGER_VERSION, TABLE, ORIGIN, *row, token), strict=True))
        for row in rows
    ]
    return pa.Table.from_pylist(entries, schema=EVENT_IDS)


def pad(place: str, commits: int, metadata: Any = None) -> None:
    """Add commits without files to a table's log until it has so many, with checkpoints."""
    log = Path(place) / "_delta_log"
    there = DeltaTable(place).version()
    for version in range(there + 1, commits + 1):
        info: dict[str, Any] = {
            "timestamp": int(time.time() * 1000),
            "operation": "WRITE",
            "operationParameters": {"mode": "Append"},
            "operationMetrics": {"numOutputRows": "1"},
            "isBlindAppend": True,
        }
        if metadata is not None:
            info["userMetadata"] = metadata(version)
        (log / f"{version:020d}.json").write_text(json.dumps({"commitInfo": info}) + "\n")
    DeltaTable(place).create_checkpoint()
    newest = max(log.glob("*.checkpoint.parquet"))
    for version in range(there + 10, commits, 10):
        shutil.copy(newest, log / f"{version:020d}.checkpoint.parquet")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    folder = SCRATCH / "ledger_growth"
    shutil.rmtree(folder, ignore_errors=True)
    spark = local_session("ledger growth")
    grown = {applies: Grown(spark, folder / str(applies), applies) for applies in (100, 20_000)}
    took: dict[str, dict[int, list[float]]] = {
        what: {applies: [] for applies in grown} for what in ("apply", "cold_load")
    }
    for what, measure in (("apply", Grown.apply), ("cold_load", Grown.load)):
        for turn in range(rounds + 3):  # three to warm up
            for applies in sorted(grown, reverse=turn % 2 == 1):
                seconds = measure(grown[applies])
                if turn >= 3:
                    took[what][applies].append(seconds)
    medians = {
        what: {applies: statistics.median(times) for applies, times in of.items()}
        for what, of in took.items()
    }
    results: dict[str, Any] = {}
    for what, of in medians.items():
        results |= {f"{what}_seconds_{applies}": round(each, 3) for applies, each in of.items()}
        results[f"{what}_cost_ratio_20000_to_100"] = round(of[20_000] / of[100], 3)
    record(RESULTS, results)
    print(json.dumps(results, indent=2))
    spark.stop()
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
