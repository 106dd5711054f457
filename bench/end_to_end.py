"""A plain MERGE stream, a handwritten pipeline and spark_wan, side by side in one run.

The data are 500,000 order events of 9 columns over 200,000 keys, upserted in commits of equal
size. Each pipeline is running and idle when all commits become visible in its source at once. The
clock stops when the MERGE that brings the last event to the target has returned.

(a) floor        a stream of the same events, MERGEd into a Delta table; no replication.
(b) handwritten  change feed -> JSON files -> from_json -> foreachBatch MERGE; two streams.
(c) spark_wan    source table -> capture -> channel (a directory) -> apply -> target table.

Also measured: the sink alone, bytes on the channel and as JSON, peak memory, and the cost of
idling. Each figure is the median of the rounds after the warm-up; each round runs all three.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

import spark_wan
from bench.figures import record
from bench.memory import PeakMemory
from spark_wan.delta.sql import reference
from spark_wan.local import local_session
from spark_wan.target.write import MarkedWrite
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import parse_topology

HERE = Path(__file__).parent
SCRATCH = HERE / "scratch" / "end_to_end"
RESULTS = HERE / "results" / "end_to_end.json"
TYPES = (
    "order_id bigint, customer string, status string, product string, quantity int, "
    "price double, discount double, ordered_on date, updated_at timestamp"
)
COLUMNS = [column.split()[0] for column in TYPES.split(", ")]
VALUES = (
    "concat('customer-', (id * 7919) % 50000) AS customer",
    "element_at(array('open', 'paid', 'packed', 'shipped', 'returned'),"
    " cast(id % 5 + 1 AS int)) AS status",
    "concat('product-', (id * 31) % 2000) AS product",
    "cast(id % 9 + 1 AS int) AS quantity",
    "cast((id * 37) % 100000 AS double) / 100 AS price",
    "cast((id * 13) % 30 AS double) / 100 AS discount",
    "date_add(date'2026-01-01', cast(id % 300 AS int)) AS ordered_on",
    "timestamp_micros(1767225600000000 + id * 1000003) AS updated_at",
)
"""The columns but the key, of an ``id``."""
MICROSECONDS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"}
"""Spark's JSON has milliseconds by default: the rows would not be equal."""
WARM_UP = 3
"""Rounds that do not count: the JVM's compiler makes all three faster up to the third."""
POLL_INTERVAL = 0.05
"""Seconds between polls of sender and receiver. Spark's own streams poll every 0.01 s."""
PIPELINES = ("floor", "handwritten", "spark_wan")


class Bench:
    """The prepared tables, and a method per pipeline that runs one round and returns seconds."""

    def __init__(self, events: int, keys: int, commits: int, **conf: Any) -> None:
        self.events, self.keys, self.commits = events, keys, commits
        shutil.rmtree(SCRATCH, ignore_errors=True)
        SCRATCH.mkdir(parents=True)
        conf = {"spark.master": "local[2]", "spark.driver.memory": "4g", **conf}
        self.spark = local_session("bench", **conf)
        spark_wan.register(self.spark)
        self.merging = self.merged = 0.0
        self._time_the_merges_of_spark_wan()

    def prepare(self, events_too: bool = True) -> None:
        """Make two tables with equal histories: version 0 empty, 1 one event, then the commits.

        ``events`` is appended to, as by a stream of events, unless only the other one is wanted;
        ``source`` is MERGEd into.
        """
        per_commit = self.events // self.commits
        events, source = str(SCRATCH / "events"), str(SCRATCH / "source")
        if events_too:
            columns = f"event_id bigint, {TYPES}"
            self.spark.sql(f"CREATE TABLE {reference(events)} ({columns}) USING DELTA")
        self.create(source, feed=True)
        for n in range(-1, self.commits):
            first, count = (n * per_commit, per_commit) if n >= 0 else (self.events, 1)
            rows = self.spark.range(first, first + count, numPartitions=2).selectExpr(
                "id AS event_id",
                f"(id * 48271) % {self.keys} AS order_id",
                *VALUES,
            )
            if events_too:
                rows.write.format("delta").mode("append").save(events)
            rows.createOrReplaceTempView("changes")
            self.spark.sql(merge(source, "changes", "event_id")).collect()

    def create(self, path: str, feed: bool = False, columns: str = TYPES) -> None:
        self.spark.sql(
            f"CREATE TABLE {reference(path)} ({columns}) USING DELTA "
            f"TBLPROPERTIES (delta.enableChangeDataFeed = {str(feed).lower()})"
        )

    def floor(self, place: Path) -> float:
        target = str(place / "target")
        self.create(target)

        def write(batch: Any, _: int) -> None:
            with self.timed_merge():
                batch.createOrReplaceTempView("batch")
                batch.sparkSession.sql(merge(target, "batch", "event_id")).collect()

        with hidden_commits(SCRATCH / "events", place / "events") as reveal:
            stream = self.spark.readStream.load(str(place / "events"), "delta")
            writer = stream.writeStream.foreachBatch(write)
            query = writer.start(checkpointLocation=str(place / "checkpoint"))
            try:
                query.processAllAvailable()
                return self.clocked(reveal, query.processAllAvailable)
            finally:
                query.stop()

    def handwritten(self, place: Path) -> float:
        from pyspark.sql import functions as F

        target, files = str(place / "target"), str(place / "json")
        self.create(target)
        change = f"{TYPES}, _change_type string, _commit_version bigint"

        def write(batch: Any, _: int) -> None:
            with self.timed_merge():
                parsed = batch.select(F.from_json("value", change, MICROSECONDS).alias("r"))
                parsed.select("r.*").createOrReplaceTempView("batch")
                statement = merge(target, "batch", "_commit_version", deletes=True)
                batch.sparkSession.sql(statement).collect()

        with hidden_commits(SCRATCH / "source", place / "source") as reveal:
            rows = changes(self.spark.readStream, place / "source")
            lines = rows.select(F.to_json(F.struct("*"), MICROSECONDS).alias("value"))
            out = lines.writeStream.start(files, "text", checkpointLocation=str(place / "out"))
            out.processAllAvailable()
            back = self.spark.readStream.load(files, "text", "value string")
            writer = back.writeStream.foreachBatch(write)
            into = writer.start(checkpointLocation=str(place / "in"))

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
            last = self.commits + 1
            return self.clocked(reveal, lambda: wait_for(lambda: arrived(sender, receiver, last)))

    @contextmanager
    def running(self, place: Path) -> Iterator[tuple[Any, Any]]:
        topology = self.topology(place)
        sender = spark_wan.Sender(self.spark, topology, "newark").start()
        receiver = spark_wan.Receiver(self.spark, topology, "seattle").start()
        try:
            yield sender, receiver
        finally:
            sender.stop()
            receiver.stop()

    def channel(self, place: Path) -> str:
        """Return the URL of the channel of a round."""
        return str(place / "channel")

    def topology(self, place: Path) -> Topology:
        content = {
            "version": 1,
            "sites": {
                site: {
                    "state": str(place / site),
                    "idle_interval": POLL_INTERVAL,
                    "receive_interval": POLL_INTERVAL,
                }
                for site in ("newark", "seattle")
            },
            "senders": {
                "east": {
                    "site": "newark",
                    "remotes": ["seattle"],
                    "channel": self.channel(place),
                    "batch_interval": POLL_INTERVAL,
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

    def clocked(self, reveal: Callable[[], None], arrive: Callable[[], None]) -> float:
        """Return the seconds until the last MERGE has returned.

        What follows (a stream's checkpoint; spark_wan's ledger and ack) delays no reader.
        """
        self.merging = 0.0
        began = time.monotonic()
        reveal()
        arrive()
        return self.merged - began

    def sink(self, place: Path) -> float:
        """Write cached events as frames to a channel."""
        events = self.spark.read.format("delta").load(str(SCRATCH / "events")).persist()
        events.count()
        began = time.monotonic()
        events.write.format("wan").mode("append").options(
            channel=str(place / "channel"),
            site="newark",
            remotes="seattle",
            table="orders",
            key="order_id",
            eventId="event_id",
            sequence="event_id",
        ).save()
        took = time.monotonic() - began
        events.unpersist()
        return took

    def channel_bytes(self, place: Path) -> int:
        """Return the bytes of all frames and manifests of the change rows, before any trim."""
        shutil.copytree(SCRATCH / "source", place / "source")
        sender = spark_wan.Sender(self.spark, self.topology(place), "newark")
        sender.start(available_now=True).await_termination()
        return size_of(place / "channel", ".frame") + size_of(place / "channel", ".json")

    def json_bytes(self, place: Path) -> tuple[int, int]:
        """Return the bytes of the same change rows as JSON lines, plain and under zstd."""
        rows = changes(self.spark.read, SCRATCH / "source").coalesce(2)
        rows.write.json(str(place / "plain"))
        zstd = pa.Codec("zstd")  # at its own default level, each file as a whole
        files = (place / "plain").glob("*.json")
        packed = sum(len(zstd.compress(file.read_bytes())) for file in files)
        return size_of(place / "plain", ".json"), packed

    def idle(self, place: Path, polls: int = 10) -> dict[str, int]:
        """Count Spark jobs, Delta commits and channel writes of an idle sender and receiver."""
        tracker = self.spark.sparkContext.statusTracker()
        with (
            hidden_commits(SCRATCH / "source", place / "source"),
            self.running(place) as (sender, receiver),
        ):
            wait_for(lambda: arrived(sender, receiver, 1) and sender.status()[0].backlog == 0)
            time.sleep(2)  # until the work after the arrival is done
            before = (files_below(place), len(tracker.getJobIdsForGroup(None)))
            time.sleep(polls * POLL_INTERVAL)
            after = (files_below(place), len(tracker.getJobIdsForGroup(None)))
        changed = {name for name, _ in before[0].items() ^ after[0].items()}
        commits = [name for name in changed if "/_delta_log/" in name]
        channel = [name for name in changed if name.startswith("channel/")]
        return {
            "delta_commits": len(commits),
            "channel_writes": len(channel),
            "spark_jobs": after[1] - before[1],
        }

    def check(self, place: Path) -> None:
        """Raise RuntimeError unless the target holds the source's rows."""
        expected, actual = (self.contents(path) for path in (SCRATCH / "source", place / "target"))
        if expected != actual:
            raise RuntimeError(
                f"{place}: rows differ: {expected} in the source, {actual} in the target"
            )

    def contents(self, path: Path) -> tuple[int, int]:
        sums = f"sum(cast(xxhash64({', '.join(COLUMNS)}) AS decimal(38, 0)))"
        row = self.spark.read.load(str(path), "delta").selectExpr("count(1)", sums).first()
        return int(row[0]), int(row[1])

    @contextmanager
    def timed_merge(self) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.merged = time.monotonic()
        self.merging += self.merged - began

    def _time_the_merges_of_spark_wan(self) -> None:
        """Time its writes to a target, in whichever way it makes them."""

        def timed(inner: Callable[..., None]) -> Callable[..., None]:
            def write(*args: Any) -> None:
                with self.timed_merge():
                    inner(*args)

            return write

        for way in ("append", "merge", "replace"):
            setattr(MarkedWrite, way, timed(getattr(MarkedWrite, way)))


def changes(reader: Any, table: Path) -> Any:
    """Read a table's change rows after version 0, without pre-images."""
    rows = reader.load(str(table), "delta", readChangeFeed=True, startingVersion=1)
    return rows.where("_change_type <> 'update_preimage'").drop("_commit_timestamp")


def merge(target: str, view: str, order: str, deletes: bool = False, keeps: str = "") -> str:
    """Return the MERGE that all three need: the newest event of each key.

    ``keeps``: a column that the target has too; a row with a higher value is kept.
    """
    columns = [*COLUMNS, keeps] if keeps else COLUMNS
    names, kind = ", ".join(columns), ", _change_type" if deletes else ""
    window = f"PARTITION BY order_id ORDER BY {order} DESC"
    newest = f"SELECT *, row_number() OVER ({window}) AS place FROM {view}"
    newer = f"AND s.{keeps} >= t.{keeps} " if keeps else ""
    delete = f"WHEN MATCHED {newer}AND s._change_type = 'delete' THEN DELETE " if deletes else ""
    insert = "AND s._change_type <> 'delete' " if deletes else ""
    assigned = ", ".join(f"t.{name} = s.{name}" for name in columns)
    return (
        f"MERGE INTO {reference(target)} t "
        f"USING (SELECT {names}{kind} FROM ({newest}) WHERE place = 1) s "
        f"ON t.order_id = s.order_id {delete}WHEN MATCHED {newer}THEN UPDATE SET {assigned} "
        f"WHEN NOT MATCHED {insert}THEN INSERT ({names}) "
        f"VALUES ({', '.join('s.' + name for name in columns)})"
    )


@contextmanager
def hidden_commits(table: Path, copy: Path) -> Iterator[Callable[..., None]]:
    """Copy a table at version 1; yield a function that makes the later commits visible at once,
    or the next so many, with what Delta writes after each: checksums, a checkpoint."""
    shutil.copytree(table, copy)
    log, aside = copy / "_delta_log", copy / "later"
    aside.mkdir()
    for file in sorted(log.iterdir()):
        if not file.name.startswith(("00000000000000000000.", "00000000000000000001.")):
            file.rename(aside / file.name)

    versions = sorted(int(file.stem) for file in aside.glob("*.json"))

    def reveal(number: int = len(versions)) -> None:
        shown = {f"{version:020}" for version in versions[:number]}
        del versions[:number]
        files = (file for file in aside.iterdir() if file.name[:20] in shown)
        for file in sorted(files, key=lambda file: (file.suffix != ".json", file.name)):
            file.rename(log / file.name)

    yield reveal


def arrived(sender: Any, receiver: Any, version: int) -> bool:
    """Return whether all through ``version`` is applied. Raises RuntimeError for a held stream."""
    sent, applied = sender.status()[0], receiver.status()
    trouble = [status.held for status in (sent, *applied) if status.held] or sender.exception()
    if trouble or not receiver.is_active:
        raise RuntimeError(trouble or receiver.exception())
    return sent.version == version and bool(applied) and applied[0].applied == sent.published


def wait_for(condition: Callable[[], bool], seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("nothing arrived")
        time.sleep(0.05)  # not part of the time measured (see `clocked`)


def size_of(folder: Path, ending: str) -> int:
    return sum(file.stat().st_size for file in folder.rglob(f"*{ending}"))


def files_below(folder: Path) -> dict[str, int]:
    return {
        str(file.relative_to(folder)): file.stat().st_mtime_ns
        for file in folder.rglob("*")
        if file.is_file()
    }


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
        "--rounds", type=int, default=5, help=f"measured rounds, after {WARM_UP} warm-up rounds"
    )
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    bench = Bench(options.events, options.keys, options.commits)
    bench.prepare()
    seconds: dict[str, list[float]] = {name: [] for name in (*PIPELINES, "sink")}
    outside: dict[str, list[float]] = {name: [] for name in PIPELINES}
    memory: dict[str, int] = dict.fromkeys(PIPELINES, 0)
    for n in range(1 - WARM_UP, options.rounds + 1):
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
    report(options, seconds, outside, memory, (channel, plain, packed), idle)
    bench.spark.stop()
    shutil.rmtree(SCRATCH, ignore_errors=True)


def report(
    options: argparse.Namespace,
    seconds: dict[str, list[float]],
    outside: dict[str, list[float]],
    memory: dict[str, int],
    sizes: tuple[int, int, int],
    idle: dict[str, int],
) -> None:
    """Print the medians, and write them to the output file."""
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    apart = {name: statistics.median(values) for name, values in outside.items()}
    ratios = [a / c for a, c in zip(seconds["floor"], seconds["spark_wan"], strict=True)]
    events = options.events
    figures: dict[str, Any] = {
        "events": events,
        "keys": options.keys,
        "commits": options.commits,
        "rounds": options.rounds,
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
    }
    figures = record(options.output, figures)
    print("\n" + "\n".join(f"{name:34} {value}" for name, value in figures.items()))
