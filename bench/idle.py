"""``python -m bench.idle``: what 1, 100 and 1,000 quiet tables cost, and how soon a change in one
of them arrives.

A sender and a receiver, each a process of its own, with all tables on one channel in a directory.
When they start, one table has a change: it measures the time until that has arrived, and until all
tables have been looked at. Once nothing has happened for some minutes, it counts for three minutes:
requests to the channel and to the states, also those for heartbeats, for what operators want and
for standbys, commits and manifests, looks at the files of tables' logs, CPU time, threads and
memory of both processes with their JVMs. Then it commits a row to one table after another, and
measures the time until the target has a commit. The figures go to ``bench/results/idle.json``;
those of the ledger's growth, in the same file, are measured by :mod:`bench.ledger_growth`.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

from bench.figures import record
from bench.jobs import NEWARK, SEATTLE, ManyTables, Process, wait_for

HERE = Path(__file__).parent
SCRATCH = HERE / "scratch" / "idle"
RESULTS = HERE / "results" / "idle.json"
NUMBERS = (1, 100, 1_000)
REQUESTS = ("delete", "get", "head", "list", "put")
QUIET = 150.0
"""Seconds without a change before the minute begins: then the waits between looks are longest."""
MINUTE = 60.0
COUNTED = 180.0
"""Seconds for which it counts: jobs write heartbeats every 90 s."""
CHANGES = 7
PAUSE = 20.0
"""Seconds between changes."""


def measure(number: int, place: Path) -> dict[str, Any]:
    """Return the figures of so many tables."""
    tables = ManyTables(place, number)
    tables.make()
    *_, changed = tables.names
    before = tables.version(changed, SEATTLE)
    tables.append(changed, [99])
    began = time.monotonic()
    sender = Process("send", NEWARK, tables.topology)
    receiver = Process("receive", SEATTLE, tables.topology)
    try:
        wait_for(
            lambda: tables.version(changed, SEATTLE) > before, 3_600, "the first change arrives"
        )
        arrived = time.monotonic() - began
        wait_for(
            lambda: all(
                len(process.streams) == number
                and all(stream[done] >= 1 for stream in process.streams.values())
                for process, done in ((sender, "published"), (receiver, "applied"))
            ),
            3_600,
            "all tables are looked at",
        )
        settled = time.monotonic() - began
        time.sleep(QUIET)
        figures = {
            "change_before_start_s": round(arrived, 1),
            "settled_s": round(settled, 1),
            **_quiet_minutes(sender, receiver, place),
        }
        seconds = [_change(tables, n) for n in range(CHANGES)]
        figures["change_s"] = round(statistics.median(seconds[2:]), 2)  # two to warm up
        return {f"{name}_{number}": value for name, value in figures.items()}
    finally:
        for process in (sender, receiver):
            process.stop()


def _quiet_minutes(sender: Process, receiver: Process, place: Path) -> dict[str, Any]:
    both, written = (sender, receiver), _commits(place)
    counts, cpu = [each.counts for each in both], [each.cpu_seconds() for each in both]
    began = time.monotonic()
    time.sleep(COUNTED)
    passed = time.monotonic() - began
    later = [each.counts for each in both]
    per_minute = MINUTE / passed

    def counted(*names: str, by: tuple[Process, ...] = both) -> float:
        total = sum(
            after.get(name, 0) - before.get(name, 0)
            for process, before, after in zip(both, counts, later, strict=True)
            for name in names
            if process in by
        )
        return round(total * per_minute, 1)

    busy = sum(each.cpu_seconds() - before for each, before in zip(both, cpu, strict=True))
    return {
        "requests_per_minute": counted(*REQUESTS),
        "heartbeat_requests_per_minute": counted(*(f"{name} heartbeats" for name in REQUESTS)),
        # Only receivers list the heads for news.
        "control_requests_per_minute": counted("list heads", by=(sender,)),
        "control_log_requests_per_minute": counted(*(f"{name} control" for name in REQUESTS)),
        "sign_of_life_requests_per_minute": counted(*(f"{name} alive" for name in REQUESTS)),
        "commits_per_minute": round(len(_commits(place) - written) * per_minute, 1),
        "looks_per_minute": counted("looks"),
        "busy_cores": round(busy / passed, 3),
        "threads": sum(each.status("Threads") for each in both),
        "rss_mib": sum(each.status("VmRSS") for each in both) // 1024,
    }


def _commits(place: Path) -> set[Path]:
    """Return the commits of all Delta tables below a folder, and the manifests of its channel."""
    return {*place.rglob("_delta_log/*.json"), *place.glob("channel/log/*/*.json")}


def _change(tables: ManyTables, n: int) -> float:
    """Commit a row to a table; return the seconds until the target has a commit."""
    name = random.Random(n).choice(tables.names)
    before = tables.version(name, SEATTLE)
    tables.append(name, [100 + n])
    began = time.monotonic()
    wait_for(lambda: tables.version(name, SEATTLE) > before, 300, f"a change of {name}")
    took = time.monotonic() - began
    time.sleep(PAUSE)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.idle",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("numbers", nargs="*", type=int, default=NUMBERS)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    shutil.rmtree(SCRATCH, ignore_errors=True)
    for number in options.numbers:
        found = record(options.output, measure(number, SCRATCH / str(number)))
        print(json.dumps(found, indent=2), flush=True)
    shutil.rmtree(SCRATCH, ignore_errors=True)


if __name__ == "__main__":
    main()
