"""``python -m bench.sync``: what copies of a table cost, and comparing two.

A table of 3 million rows and 9 columns at newark. Sender and receiver run in one session, on one
machine, unless said otherwise.

*Copy*: seattle has lost the table, and asks for a copy. The clock runs from the request until the
commit that brings the copy has returned. *Equal*: seattle has the table, asks for a copy all the
same, and writes only what differs: nothing; *swap* is that write alone, step take.6. All as
multiples of a CREATE TABLE AS SELECT of the same table, of the same round.

*Verify*: compares both tables, as a multiple of counting the distinct keys of both.

*Memory*: sender and receiver as processes of their own, one after the other, for a copy of one and
of three million rows; the peak of the larger one.

*Peer*: denver gets a copy from seattle, which are processes of their own, while newark's sender
runs in this session: its Spark jobs, and the data files of its table that anybody has read.

The figures go to ``bench/results/sync.json``.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

import spark_wan
from bench.end_to_end import POLL_INTERVAL, VALUES, wait_for
from bench.figures import measure
from bench.jobs import Process
from bench.memory import PeakMemory
from spark_wan.apply.change import Change
from spark_wan.delta.sql import reference
from spark_wan.sync.request import CopyRequests, request_copy, serving_sites
from spark_wan.target.delta_table import DeltaTarget
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import load_topology
from spark_wan.wire.mark import Mark

HERE = Path(__file__).parent
SCRATCH = HERE / "scratch" / "sync"
RESULTS = HERE / "results" / "sync.json"
ROWS = 3_000_000
ROUNDS, WARM_UP = 5, 1
TABLE, NEWARK, SEATTLE, DENVER = "orders", "newark", "seattle", "denver"
MEMORY = "2g"
"""Of the heap of each process in *Memory*."""


class Copies:
    """Three sites with one table, in a folder."""

    def __init__(self, place: Path, rows: int = ROWS) -> None:
        self.place, self.rows = place, rows
        self.writes: list[float] = []
        """Seconds of each write to a target in this process."""
        place.mkdir(parents=True, exist_ok=True)
        (place / "wan.yaml").write_text(yaml.safe_dump(self._content()))

    def _content(self) -> dict[str, Any]:
        site = {
            "idle_interval": POLL_INTERVAL,
            "receive_interval": POLL_INTERVAL,
            "sync": "manual",
        }
        remotes = {NEWARK: [SEATTLE, DENVER], SEATTLE: [DENVER]}
        sites = (NEWARK, SEATTLE, DENVER)
        return {
            "version": 1,
            "sites": {name: {"state": f"./{name}/_wan", **site} for name in sites},
            "senders": {
                f"from_{name}": {
                    "site": name,
                    "remotes": others,
                    "channel": f"./channel-{name}",
                    "batch_interval": POLL_INTERVAL,
                }
                for name, others in remotes.items()
            },
            "tables": {
                TABLE: {
                    "keys": ["order_id"],
                    "writers": [NEWARK],
                    "senders": [f"from_{NEWARK}"],
                    "at": {name: f"./{name}/{TABLE}" for name in sites},
                }
            },
        }

    @property
    def file(self) -> Path:
        return self.place / "wan.yaml"

    @property
    def topology(self) -> Topology:
        return load_topology(self.file)

    def path(self, site: str = NEWARK) -> Path:
        return self.place / site / TABLE

    def make(self, spark: Any) -> None:
        spark.range(self.rows, numPartitions=4).selectExpr(
            "id AS order_id",
            *VALUES,
        ).write.format("delta").option("delta.enableChangeDataFeed", "true").save(str(self.path()))

    def as_select(self, spark: Any) -> float:
        """Return the seconds of CREATE TABLE AS SELECT of newark's table."""
        other = self.place / "selected"
        statement = f"CREATE TABLE {reference(str(other))} USING delta AS SELECT * FROM "
        took = _timed(lambda: spark.sql(statement + reference(str(self.path()))).collect())
        shutil.rmtree(other)
        return took

    def copy(self, *, difference: bool = False) -> float:
        """Return the seconds from a request until the copy is in seattle's table. Without
        ``difference``, the table is lost before."""
        if not difference:
            shutil.rmtree(self.path(SEATTLE), ignore_errors=True)
        before = len(self.writes)

        def copied() -> None:
            request_copy(self.topology, TABLE, SEATTLE, by=NEWARK, difference=difference)
            wait_for(lambda: len(self.writes) > before)

        took = _timed(copied)
        self._settle()
        return took

    def _settle(self) -> None:
        """Wait until the copy is acked, and removed from the channel."""
        topology = self.topology
        by = serving_sites(topology, TABLE, SEATTLE)[-1]
        log = CopyRequests(topology, topology.table(TABLE), topology.site(SEATTLE)).log(by)
        wait_for(lambda: not log.channel.frames(by.stream))

    def distinct(self, spark: Any) -> float:
        """Return the seconds in which both tables' distinct keys are counted."""
        names = [reference(str(self.path(site))) for site in (NEWARK, SEATTLE)]
        statements = [f"SELECT count(DISTINCT order_id) FROM {name}" for name in names]
        return _timed(lambda: [spark.sql(statement).collect() for statement in statements])

    def verified(self, spark: Any) -> float:
        """Return the seconds in which both tables are compared."""
        found: list[Any] = []
        took = _timed(
            lambda: found.extend(spark_wan.verify(spark, self.topology, TABLE, sites=[SEATTLE]))
        )
        if not (found[0].is_equal and found[0].target_rows == self.rows):
            raise RuntimeError(f"the tables are not equal: {found[0]}")
        return took

    @contextmanager
    def running(self, spark: Any) -> Iterator[None]:
        """Sender and receiver of the two sites, in this session."""
        write = DeltaTarget.write

        def counted(target: DeltaTarget, change: Change, mark: Mark) -> None:
            self.writes.append(_timed(lambda: write(target, change, mark)))

        DeltaTarget.write = counted  # type: ignore[method-assign]
        sender = spark_wan.Sender(spark, self.topology, NEWARK).start()
        receiver = spark_wan.Receiver(spark, self.topology, SEATTLE).start()
        try:
            log = CopyRequests(
                self.topology, self.topology.table(TABLE), self.topology.site(SEATTLE)
            ).inbound[0]
            wait_for(lambda: log.ack(SEATTLE) is not None)  # the first epoch has all rows
            yield
        finally:
            sender.stop()
            receiver.stop()
            DeltaTarget.write = write  # type: ignore[method-assign]


def copies(spark: Any, place: Path) -> dict[str, Any]:
    """Return the seconds of copies, of CREATE TABLE AS SELECT and of comparing, and ratios."""
    one = Copies(place)
    one.make(spark)
    seconds: dict[str, list[float]] = {}
    with one.running(spark):
        for n in range(WARM_UP + ROUNDS):
            took = {name: step() for name, step in _round(one, spark).items()}
            took["swap"] = one.writes[-1]
            print(f"copies: round {n}: {took}", flush=True)
            for name in took if n >= WARM_UP else ():
                seconds.setdefault(name, []).append(took[name])
        changed = _changed_rows(spark, one)
    ctas = seconds["ctas"]
    return {
        "rows": one.rows,
        "rounds": ROUNDS,
        **{f"{name}_s": round(statistics.median(each), 2) for name, each in seconds.items()},
        "copy_to_ctas": _ratio(ctas, seconds["copy"]),
        "equal_copy_to_ctas": _ratio(seconds["equal"], ctas),
        "swap_to_ctas": _ratio(seconds["swap"], ctas),
        "swap_changed_rows": changed,
        "verify_to_distinct": _ratio(seconds["verify"], seconds["distinct"]),
    }


def _round(one: Copies, spark: Any) -> Mapping[str, Callable[[], float]]:
    """Return what a round measures, in this order."""
    return {
        "ctas": lambda: one.as_select(spark),
        "copy": one.copy,
        "equal": lambda: one.copy(difference=True),
        "distinct": lambda: one.distinct(spark),
        "verify": lambda: one.verified(spark),
    }


def _changed_rows(spark: Any, one: Copies) -> int:
    """Return the rows that the change feed of seattle's table shows for a copy of equal rows."""
    name = reference(str(one.path(SEATTLE)))
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    version = spark.sql(f"DESCRIBE HISTORY {name} LIMIT 1").first()["version"]
    one.copy(difference=True)
    feed = spark.read.option("readChangeFeed", "true").option("startingVersion", version + 1)
    return int(feed.format("delta").load(str(one.path(SEATTLE))).count())


def memory(spark: Any, place: Path) -> dict[str, Any]:
    """Return the peak memory of a copy of one and of three million rows, in MiB, and the ratio."""
    peaks = {}
    for rows in (1_000_000, 3_000_000):
        one = Copies(place / str(rows), rows)
        one.make(spark)
        peaks[rows] = max(_peak(one))
        print(f"memory: {rows} rows: {peaks[rows]} MiB", flush=True)
        shutil.rmtree(one.place)
    return {
        **{f"copy_peak_memory_mib_{rows // 1_000_000}m": peak for rows, peak in peaks.items()},
        "copy_peak_memory_ratio": round(peaks[3_000_000] / peaks[1_000_000], 3),
    }


def _peak(one: Copies) -> Iterator[int]:
    """Yield the peaks of the sender and of the receiver that copy the table of denver."""
    _run(one, "send", NEWARK)  # no copy is served before the table is published
    request_copy(one.topology, TABLE, DENVER, by=NEWARK)
    for job, site in (("send", NEWARK), ("receive", DENVER)):
        yield _run(one, job, site) >> 20
    if not _has_mark(one.path(DENVER)):
        raise RuntimeError("denver has no copy")


def _run(one: Copies, job: str, site: str) -> int:
    """Run a job until nothing is left to do; return its peak memory in bytes."""
    options = ("--available-now", "--conf", f"spark.driver.memory={MEMORY}")
    command = Process.command(job, site, one.file, *options)
    with (
        subprocess.Popen(command, stdout=subprocess.DEVNULL) as process,
        PeakMemory(process.pid) as measured,
    ):
        process.wait()
    if process.returncode:
        raise RuntimeError(f"{job} of {site} ended with {process.returncode}")
    return measured.peak


def peer(spark: Any, place: Path) -> dict[str, Any]:
    """Return what the writer does while a peer serves a copy."""
    one = Copies(place, 1_000_000)
    one.make(spark)
    with one.running(spark):
        pass
    sender = spark_wan.Sender(spark, one.topology, NEWARK).start()
    server = Process("receive", SEATTLE, one.file)
    try:
        wait_for(lambda: sender.status() and server.streams)
        wait_for(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds())
        _forget_reads(one.path())
        before = _jobs_so_far(spark)
        request_copy(one.topology, TABLE, DENVER, by=SEATTLE)
        taker = Process.command("receive", DENVER, one.file)
        with subprocess.Popen(taker, stdout=subprocess.DEVNULL) as process:
            wait_for(lambda: _has_mark(one.path(DENVER)))
            process.terminate()
        return {
            "writer_jobs_while_peer_serves": _jobs_so_far(spark) - before,
            "writer_files_read_while_peer_serves": len(_read_files(one.path())),
        }
    finally:
        sender.stop()
        server.stop()


def _jobs_so_far(spark: Any) -> int:
    return int(spark.sparkContext._jsc.sc().dagScheduler().nextJobId())


def _forget_reads(table: Path) -> None:
    """Have the system note when a data file is read next. Raises RuntimeError if it does not."""
    files = list(table.glob("*.parquet"))
    for _ in range(2):
        for file in files:
            os.utime(file, (0, file.stat().st_mtime))
        if _read_files(table):
            raise RuntimeError("somebody reads the files")
        files[0].read_bytes()
        if _read_files(table) != files[:1]:
            raise RuntimeError(f"{table} is on a file system that does not note reads")
    os.utime(files[0], (0, files[0].stat().st_mtime))


def _read_files(table: Path) -> list[Path]:
    return [file for file in table.glob("*.parquet") if file.stat().st_atime > 0]


def _has_mark(table: Path) -> bool:
    newest = max(table.glob("_delta_log/*.json"), default=None)
    return newest is not None and "replaced" in newest.read_text()


def _timed(run: Callable[[], object]) -> float:
    began = time.monotonic()
    run()
    return time.monotonic() - began


def _ratio(some: list[float], others: list[float]) -> float:
    """Return the median of the ratios of the rounds."""
    return round(statistics.median(a / b for a, b in zip(some, others, strict=True)), 3)


PARTS: Mapping[str, Callable[[Any, Path], dict[str, Any]]] = {
    "copies": copies,
    "memory": memory,
    "peer": peer,
}


def main() -> None:
    measure("python -m bench.sync", __doc__, PARTS, SCRATCH, RESULTS)


if __name__ == "__main__":
    main()
