"""``python -m bench.many_tables``: a round of one small commit in each of 60 tables, until all are
at the target.

A sender and a receiver, each a process of its own, with all tables on one channel. Compared with 60
bare MERGEs of the same rows into copies of the target tables, by two threads in one warm session,
in turns with the rounds. The figures go to ``bench/results/many_tables.json``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.figures import record
from bench.jobs import NEWARK, SEATTLE, ManyTables, Process, wait_for
from spark_wan.delta.sessions import spark_thread
from spark_wan.local import local_session

HERE = Path(__file__).parent
SCRATCH = HERE / "scratch" / "many_tables"
RESULTS = HERE / "results" / "many_tables.json"
TABLES = 60
ROUNDS, WARM_UP = 3, 2
ROWS = 5
"""Rows in each commit: of them, one is new."""
THREADS = 2


class BareMerges:
    """MERGEs into copies of the target tables, by threads of one session."""

    def __init__(self, tables: ManyTables, place: Path) -> None:
        self.names = tables.names
        self.place = place
        for name in self.names:
            shutil.copytree(tables.path(name, SEATTLE), place / name)
        settings = {"spark.master": "local[2]", "spark.driver.memory": "2g"}
        self.spark = local_session("bench", **settings)

    def round(self, n: int) -> float:
        """Merge the rows of a round into each table; return the seconds."""
        waiting = list(self.names)
        lock, errors = threading.Lock(), list[BaseException]()

        def work() -> None:
            while True:
                with lock:
                    if not waiting:
                        return
                    name = waiting.pop()
                self._merge(name, n)

        threads = [
            spark_thread(self.spark, work, f"merge-{number}", errors.append)
            for number in range(THREADS)
        ]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return time.monotonic() - began

    def _merge(self, name: str, n: int) -> None:
        view = f"rows_{name}"
        rows = [(number, f"item {number}", number / 4) for number in row_ids(n)]
        frame = self.spark.createDataFrame(rows, "id bigint, item string, amount double")
        frame.createOrReplaceTempView(view)
        self.spark.sql(
            f"MERGE INTO delta.`{self.place / name}` t USING {view} s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()


def row_ids(n: int) -> Sequence[int]:
    """Return the keys of a round: those of the one before, but for one."""
    return range(10 + n, 10 + n + ROWS)


def round_of_commits(tables: ManyTables, n: int) -> float:
    """Commit rows to each source table; return the seconds until all are at the target."""
    before = {name: tables.version(name, SEATTLE) for name in tables.names}
    began = time.monotonic()
    for name in tables.names:
        tables.append(name, row_ids(n))
    wait_for(
        lambda: all(tables.version(name, SEATTLE) > before[name] for name in tables.names),
        900,
        "all tables have the round",
    )
    return time.monotonic() - began


def measure(place: Path, number: int) -> dict[str, Any]:
    tables = ManyTables(place / "wan", number)
    tables.make()
    bare = BareMerges(tables, place / "bare")
    sender = Process("send", NEWARK, tables.topology)
    receiver = Process("receive", SEATTLE, tables.topology)
    rounds, merges = list[float](), list[float]()
    try:
        wait_for(
            lambda: all(
                len(each.streams) == number and all(s[done] for s in each.streams.values())
                for each, done in ((sender, "published"), (receiver, "applied"))
            ),
            900,
            "all tables are looked at",
        )
        for n in range(ROUNDS + WARM_UP):
            merged, took = bare.round(n), round_of_commits(tables, n)
            time.sleep(5)  # acks and trims of the round
            print(f"round {n}: {took:.1f} s, bare MERGEs {merged:.1f} s", flush=True)
            if n >= WARM_UP:
                rounds.append(took)
                merges.append(merged)
        ratios = [took / merged for took, merged in zip(rounds, merges, strict=True)]
        return {
            f"round_s_{number}": round(statistics.median(rounds), 1),
            f"bare_merges_s_{number}": round(statistics.median(merges), 1),
            f"round_to_bare_merges_{number}": round(statistics.median(ratios), 2),
            "threads_sender": sender.status("Threads"),
            "threads_receiver": receiver.status("Threads"),
        }
    finally:
        for process in (sender, receiver):
            process.stop()
        bare.spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.many_tables",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tables", type=int, default=TABLES)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    shutil.rmtree(SCRATCH, ignore_errors=True)
    found = record(options.output, measure(SCRATCH, options.tables))
    print(json.dumps(found, indent=2))
    shutil.rmtree(SCRATCH, ignore_errors=True)


if __name__ == "__main__":
    main()
