"""A plain MERGE stream, the pipeline that people write by hand, and spark_wan, side by side in one run.

500,000 order events of 9 columns over 200,000 keys, upserted in commits of equal size. All three pipelines are running and idle; then all commits become
visible in their sources at once, and the clock runs until the commit that puts the last of them into the target has returned:

(a) floor        a stream over a Delta table of the same events, MERGEd into a Delta table. No replication at all.
(b) handwritten  change feed -> JSON files -> from_json -> foreachBatch MERGE: two streams.
(c) spark_wan    source table -> capture -> channel (a directory) -> apply -> target table: a Sender and a Receiver.

Beside them: the sink alone, bytes on the channel and as JSON, peak memory, and what idling costs. Each figure is the median of the rounds after some to
warm up; in each round all three take their turn.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

import spark_wan
from spark_wan.delta.sql import reference
from spark_wan.local import local_session
from spark_wan.receiver.write import MarkedWrite
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import parse_topology

HERE = Path(__file__).parent
SCRATCH = HERE / "scratch"
RESULTS = HERE / "results" / "end_to_end.json"
COLUMNS = [
    "order_id",
    "customer",
    "status",
    "product",
    "quantity",
    "price",
    "discount",
    "ordered_on",
    "updated_at",
]
TYPES = "order_id bigint, customer string, status string, product string, quantity int, price double, discount double, ordered_on date, updated_at timestamp"
MICROSECONDS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"}
"""Spark's JSON writes milliseconds unless told: the rows would not be equal."""
WARM_UP = 3
"""Rounds that do not count. The JVM's compiler still makes all three faster through the third."""
LOOK = 0.05
"""Seconds between looks of spark_wan at a source and at a channel; Spark's own streams look for news every 0.01 s."""
PIPELINES = ("floor", "handwritten", "spark_wan")


class Bench:
    """The prepared tables, and one method for each pipeline: it measures one round and returns seconds."""

    def __init__(self, events: int, keys: int, commits: int) -> None:
        self.events, self.keys, self.commits = events, keys, commits
        shutil.rmtree(SCRATCH, ignore_errors=True)
        SCRATCH.mkdir(parents=True)
        self.spark = local_session(
            "bench", **{"spark.master": "local[2]", "spark.driver.memory": "4g"}
        )
        spark_wan.register(self.spark)
        self.merging = self.merged = 0.0
        self._time_the_merges_of_spark_wan()

    def prepare(self) -> None:
        """Two tables with the same history: version 0 empty, version 1 one event (to warm up), then the commits.

        ``events`` is what a stream of events would append; ``source`` is a table that was MERGEd into."""
        per_commit = self.events // self.commits
        events, source = str(SCRATCH / "events"), str(SCRATCH / "source")
        self.spark.sql(f"CREATE TABLE {reference(events)} (event_id bigint, {TYPES}) USING DELTA")
        self.create(source, feed=True)
        for n in range(-1, self.commits):
            first, count = (n * per_commit, per_commit) if n >= 0 else (self.events, 1)
            rows = self.spark.range(first, first + count, numPartitions=2).selectExpr(
                "id AS event_id",
                f"(id * 48271) % {self.keys} AS order_id",
                "concat('customer-', (id * 7919) % 50000) AS customer",
                "element_at(array('open', 'paid', 'packed', 'shipped', 'returned'), cast(id % 5 + 1 AS int)) AS status",
                "concat('product-', (id * 31) % 2000) AS product",
                "cast(id % 9 + 1 AS int) AS quantity",
                "cast((id * 37) % 100000 AS double) / 100 AS price",
                "cast((id * 13) % 30 AS double) / 100 AS discount",
                "date_add(date'2026-01-01', cast(id % 300 AS int)) AS ordered_on",
                "timestamp_micros(1767225600000000 + id * 1000003) AS updated_at",
            )
            rows.write.format("delta").mode("append").save(events)
            rows.createOrReplaceTempView("changes")
            self.spark.sql(merge(source, "changes", "event_id")).collect()

    def create(self, path: str, feed: bool = False) -> None:
        self.spark.sql(
            f"CREATE TABLE {reference(path)} ({TYPES}) USING DELTA TBLPROPERTIES (delta.enableChangeDataFeed = {str(feed).lower()})"
        )

    def floor(self, place: Path) -> float:
        target = str(place / "target")
        self.create(target)

        def write(batch: Any, _: int) -> None:
            with self.timed_merge():
                batch.createOrReplaceTempView("batch")
                batch.sparkSession.sql(merge(target, "batch", "event_id")).collect()

        with hidden_commits(SCRATCH / "events", place / "events") as reveal:
            stream = (
                self.spark.readStream.format("delta")
                .load(str(place / "events"))
                .writeStream.foreachBatch(write)
            )
            query = stream.option("checkpointLocation", str(place / "checkpoint")).start()
            try:
                query.processAllAvailable()
                return self.clocked(reveal, query.processAllAvailable)
            finally:
                query.stop()

    def handwritten(self, place: Path) -> float:
        from pyspark.sql import functions as F
        from pyspark.sql.types import LongType, StringType, StructType

        target, files = str(place / "target"), str(place / "json")
        self.create(target)
        columns = self.spark.read.format("delta").load(str(SCRATCH / "source")).schema
        change = (
            StructType([*columns.fields])
            .add("_change_type", StringType())
            .add("_commit_version", LongType())
        )

        def write(batch: Any, _: int) -> None:
            with self.timed_merge():
                batch.select(F.from_json("value", change, MICROSECONDS).alias("r")).select(
                    "r.*"
                ).createOrReplaceTempView("batch")
                batch.sparkSession.sql(
                    merge(target, "batch", "_commit_version", changes=True)
                ).collect()

        with hidden_commits(SCRATCH / "source", place / "source") as reveal:
            feed = (
                self.spark.readStream.format("delta")
                .option("readChangeFeed", "true")
                .option("startingVersion", 1)
            )
            rows = (
                feed.load(str(place / "source"))
                .where("_change_type <> 'update_preimage'")
                .drop("_commit_timestamp")
            )
            lines = rows.select(F.to_json(F.struct("*"), MICROSECONDS).alias("value"))
            out = (
                lines.writeStream.format("text")
                .option("path", files)
                .option("checkpointLocation", str(place / "out"))
                .start()
            )
            out.processAllAvailable()
            back = (
                self.spark.readStream.format("text")
                .schema("value string")
                .load(files)
                .writeStream.foreachBatch(write)
            )
            into = back.option("checkpointLocation", str(place / "in")).start()

            def arrive() -> None:
                out.processAllAvailable()
                into.processAllAvailable()

            try:
                arrive()
                return self.clocked(reveal, arrive)
            finally:
                out.stop()
                into.stop()

    def spark_wan(self, place: Path) -> float:
        with (
            hidden_commits(SCRATCH / "source", place / "source") as reveal,
            self.running(place) as (sender, receiver),
        ):
            wait_for(lambda: arrived(sender, receiver, 1))
            return self.clocked(
                reveal, lambda: wait_for(lambda: arrived(sender, receiver, self.commits + 1))
            )

    @contextmanager
    def running(self, place: Path) -> Iterator[tuple[Any, Any]]:
        topology = topology_of(place)
        sender = spark_wan.Sender(self.spark, topology, "newark").start()
        receiver = spark_wan.Receiver(self.spark, topology, "seattle", interval=LOOK).start()
        try:
            yield sender, receiver
        finally:
            sender.stop()
            receiver.stop()

    def clocked(self, reveal: Callable[[], None], arrive: Callable[[], None]) -> float:
        """Seconds until the last MERGE has returned. What follows it (the checkpoint of a stream; ledger and ack of spark_wan) holds up no reader."""
        self.merging = 0.0
        began = time.monotonic()
        reveal()
        arrive()
        return self.merged - began

    def sink(self, place: Path) -> float:
        """500,000 cached events -> gateway batches on a channel."""
        events = self.spark.read.format("delta").load(str(SCRATCH / "events")).persist()
        events.count()
        began = time.monotonic()
        writer = (
            events.write.format("wan")
            .mode("append")
            .option("channel", str(place / "channel"))
            .option("site", "newark")
        )
        writer = (
            writer.option("remotes", "seattle").option("table", "orders").option("key", "order_id")
        )
        writer.option("eventId", "event_id").option("sequence", "event_id").save()
        took = time.monotonic() - began
        events.unpersist()
        return took

    def channel_bytes(self, place: Path) -> int:
        """Bytes of all frames and manifests of the same change rows, published and not trimmed."""
        shutil.copytree(SCRATCH / "source", place / "source")
        spark_wan.Sender(self.spark, topology_of(place), "newark").start(
            available_now=True
        ).await_termination()
        return size_of(place / "channel", ".frame") + size_of(place / "channel", ".json")

    def json_bytes(self, place: Path) -> tuple[int, int]:
        """The same change rows as JSON lines: plain, and under zstd."""
        feed = (
            self.spark.read.format("delta")
            .option("readChangeFeed", "true")
            .option("startingVersion", 1)
        )
        rows = (
            feed.load(str(SCRATCH / "source"))
            .where("_change_type <> 'update_preimage'")
            .drop("_commit_timestamp")
            .coalesce(2)
        )
        rows.write.json(str(place / "plain"))
        zstd = pa.Codec("zstd")  # at its own default level, each file as a whole
        packed = sum(
            len(zstd.compress(file.read_bytes())) for file in (place / "plain").glob("*.json")
        )
        return size_of(place / "plain", ".json"), packed

    def idle(self, place: Path, looks: int = 10) -> dict[str, int]:
        """Spark jobs, Delta commits and channel writes while nothing happens, over so many looks of sender and receiver."""
        tracker = self.spark.sparkContext.statusTracker()
        with (
            hidden_commits(SCRATCH / "source", place / "source"),
            self.running(place) as (sender, receiver),
        ):
            wait_for(lambda: arrived(sender, receiver, 1) and sender.status()[0].backlog == 0)
            time.sleep(2)  # what arriving has set off comes to rest
            before = (files_below(place), len(tracker.getJobIdsForGroup(None)))
            time.sleep(looks * LOOK)
            after = (files_below(place), len(tracker.getJobIdsForGroup(None)))
        changed = {
            name
            for name in before[0].keys() | after[0].keys()
            if before[0].get(name) != after[0].get(name)
        }
        commits = [name for name in changed if "/_delta_log/" in name]
        channel = [name for name in changed if name.startswith("channel/")]
        return {
            "delta_commits": len(commits),
            "channel_writes": len(channel),
            "spark_jobs": after[1] - before[1],
        }

    def check(self, place: Path) -> None:
        """The target holds the source's rows."""
        wanted, found = (self.contents(path) for path in (SCRATCH / "source", place / "target"))
        if wanted != found:
            raise RuntimeError(
                f"{place}: rows differ: {wanted} in the source, {found} in the target"
            )

    def contents(self, path: Path) -> tuple[int, int]:
        sums = f"sum(cast(xxhash64({', '.join(COLUMNS)}) AS decimal(38, 0)))"
        row = (
            self.spark.read.format("delta")
            .load(str(path))
            .selectExpr("count(1)", sums)
            .collect()[0]
        )
        return int(row[0]), int(row[1])

    @contextmanager
    def timed_merge(self) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.merged = time.monotonic()
        self.merging += self.merged - began

    def _time_the_merges_of_spark_wan(self) -> None:
        inner = MarkedWrite.merge

        def timed(write: MarkedWrite, *args: Any) -> None:
            with self.timed_merge():
                inner(write, *args)

        MarkedWrite.merge = timed  # type: ignore[method-assign]


def topology_of(place: Path) -> Topology:
    content = {
        "version": 1,
        "sites": {
            "newark": {"state": str(place / "newark")},
            "seattle": {"state": str(place / "seattle")},
        },
        "senders": {
            "east": {
                "site": "newark",
                "remotes": ["seattle"],
                "channel": str(place / "channel"),
                "batch_interval": LOOK,
            }
        },
        "tables": {
            "orders": {
                "keys": ["order_id"],
                "writers": ["newark"],
                "senders": ["east"],
                "start": {"version": 1},
                "at": {"newark": str(place / "source"), "seattle": str(place / "target")},
            }
        },
    }
    return parse_topology(content, str(place / "topology"))


def merge(target: str, view: str, order: str, changes: bool = False) -> str:
    """The MERGE that all three need: the newest event of each key."""
    names, kind = ", ".join(COLUMNS), ", _change_type" if changes else ""
    newest = f"SELECT *, row_number() OVER (PARTITION BY order_id ORDER BY {order} DESC) AS place FROM {view}"
    delete = "WHEN MATCHED AND s._change_type = 'delete' THEN DELETE " if changes else ""
    insert = "AND s._change_type <> 'delete' " if changes else ""
    assigned = ", ".join(f"t.{name} = s.{name}" for name in COLUMNS)
    return (
        f"MERGE INTO {reference(target)} t USING (SELECT {names}{kind} FROM ({newest}) WHERE place = 1) s ON t.order_id = s.order_id "
        f"{delete}WHEN MATCHED THEN UPDATE SET {assigned} WHEN NOT MATCHED {insert}THEN INSERT ({names}) "
        f"VALUES ({', '.join('s.' + name for name in COLUMNS)})"
    )


@contextmanager
def hidden_commits(table: Path, copy: Path) -> Iterator[Callable[[], None]]:
    """A copy of a table at version 1; the function that is given makes the later commits visible, in their order, in one go."""
    shutil.copytree(table, copy)
    log, aside = copy / "_delta_log", copy / "later"
    aside.mkdir()
    for file in sorted(log.iterdir()):
        if not file.name.startswith(("00000000000000000000.", "00000000000000000001.")):
            file.rename(aside / file.name)

    def reveal() -> None:
        for file in sorted(aside.glob("*.json")):
            file.rename(log / file.name)

    yield reveal


def arrived(sender: Any, receiver: Any, version: int) -> bool:
    """Whether all through ``version`` was sent and applied. Raises what holds it up."""
    sent, got = sender.status()[0], receiver.status()
    trouble = [status.held for status in (sent, *got) if status.held] or sender.exception()
    if trouble or not receiver.is_active:
        raise RuntimeError(trouble or receiver.exception())
    return sent.version == version and bool(got) and got[0].applied == sent.published


def wait_for(condition: Callable[[], bool], seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("nothing arrived")
        time.sleep(0.05)  # the clock does not wait for this (see `clocked`)


def size_of(folder: Path, ending: str) -> int:
    return sum(file.stat().st_size for file in folder.rglob(f"*{ending}"))


def files_below(folder: Path) -> dict[str, int]:
    return {
        str(file.relative_to(folder)): file.stat().st_mtime_ns
        for file in folder.rglob("*")
        if file.is_file()
    }


class PeakMemory:
    """The highest sum of resident memory of this process and all below it, sampled every 50 ms. Linux; elsewhere 0."""

    def __init__(self) -> None:
        self.peak = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _sample(self) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        while not self._end.wait(0.05):
            parents: dict[int, int] = {}
            pages: dict[int, int] = {}
            names: dict[int, str] = {}
            for stat in Path("/proc").glob("[0-9]*/stat"):
                try:
                    name, _, rest = stat.read_text().rpartition(")")
                except OSError:
                    continue
                pid, fields = int(stat.parent.name), rest.split()
                parents[pid], pages[pid], names[pid] = (
                    int(fields[1]),
                    int(fields[21]),
                    name.partition("(")[2],
                )
            mine = {os.getpid()}
            while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
                mine |= more
            # A process that a JVM has just forked still shows the JVM's memory as its own.
            counted = (
                pid for pid in mine if names.get(pid) != "java" or names.get(parents[pid]) != "java"
            )
            self.peak = max(self.peak, sum(pages.get(pid, 0) for pid in counted) * page)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--commits", type=int, default=10)
    parser.add_argument(
        "--rounds", type=int, default=5, help=f"measured rounds, after {WARM_UP} to warm up"
    )
    parser.add_argument("--output", type=Path, default=RESULTS)
    told = parser.parse_args()
    bench = Bench(told.events, told.keys, told.commits)
    bench.prepare()
    seconds: dict[str, list[float]] = {name: [] for name in (*PIPELINES, "sink")}
    outside: dict[str, list[float]] = {name: [] for name in PIPELINES}
    memory: dict[str, int] = dict.fromkeys(PIPELINES, 0)
    for n in range(1 - WARM_UP, told.rounds + 1):
        for name in PIPELINES:
            place = SCRATCH / f"{n}-{name}"
            place.mkdir()
            with PeakMemory() as measured:
                took = getattr(bench, name)(place)
            bench.check(place)
            if n > 0:
                seconds[name].append(took)
                outside[name].append(took - bench.merging)
                memory[name] = max(memory[name], measured.peak)
            print(
                f"round {n}: {name:12} {took:6.2f} s, of that {bench.merging:5.2f} s in MERGE",
                flush=True,
            )
            shutil.rmtree(place)
        took = bench.sink(place := SCRATCH / f"{n}-sink")
        shutil.rmtree(place)
        if n > 0:
            seconds["sink"].append(took)
        print(f"round {n}: {'sink alone':12} {took:6.2f} s", flush=True)
    sizes = SCRATCH / "sizes"
    sizes.mkdir()
    channel, (plain, packed) = bench.channel_bytes(sizes), bench.json_bytes(sizes)
    idle = bench.idle(SCRATCH / "idle")
    report(told, seconds, outside, memory, (channel, plain, packed), idle)
    bench.spark.stop()
    shutil.rmtree(SCRATCH, ignore_errors=True)


def report(
    told: argparse.Namespace,
    seconds: dict[str, list[float]],
    outside: dict[str, list[float]],
    memory: dict[str, int],
    sizes: tuple[int, int, int],
    idle: dict[str, int],
) -> None:
    """Print the medians, and write them where the next person looks for them."""
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    apart = {name: statistics.median(values) for name, values in outside.items()}
    ratios = [a / c for a, c in zip(seconds["floor"], seconds["spark_wan"], strict=True)]
    events = told.events
    figures: dict[str, Any] = {
        "events": events,
        "keys": told.keys,
        "commits": told.commits,
        "rounds": told.rounds,
        **{f"{name}_events_per_s": round(events / middle[name]) for name in PIPELINES},
        "spark_wan_to_floor": round(statistics.median(ratios), 3),
        "spark_wan_to_floor_each_round": [round(ratio, 3) for ratio in ratios],
        "handwritten_outside_merge_s": round(apart["handwritten"], 2),
        "spark_wan_outside_merge_s": round(apart["spark_wan"], 2),
        "sink_events_per_s": round(events / middle["sink"]),
        "channel_bytes_per_event": round(sizes[0] / events, 1),
        "json_bytes_per_event": round(sizes[1] / events, 1),
        "json_zstd_bytes_per_event": round(sizes[2] / events, 1),
        **{f"{name}_peak_memory_mib": round(memory[name] / 2**20) for name in PIPELINES},
        **{f"idle_{name}": count for name, count in idle.items()},
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
    }
    told.output.parent.mkdir(parents=True, exist_ok=True)
    told.output.write_text(json.dumps(figures, indent=2) + "\n")
    print("\n" + "\n".join(f"{name:34} {value}" for name, value in figures.items()))
