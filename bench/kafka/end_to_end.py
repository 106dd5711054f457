"""500,000 upserts over Kafka, side by side: the data and the clock of :mod:`bench.end_to_end`.

(a) floor        a stream of the same events, MERGEd into a Delta table; no Kafka.
(b) handwritten  change feed -> to_json -> Spark's Kafka sink -> a topic of two partitions ->
                 Spark's Kafka source -> from_json -> foreachBatch MERGE.
(c) mirrormaker  the same with a second broker: the sink writes to the first, MirrorMaker 2 copies
                 to the second, the source reads there.
(d) spark_wan    source table -> capture -> channel on Kafka -> apply -> target table.

Spark, each broker and MirrorMaker are JVMs of their own on one machine. MirrorMaker runs all the
time. Bytes are those of the topics' log files, which brokers store as clients send them.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import NewTopic
from kafka_server import BrokerProcess, java, kafka_jars, running

import spark_wan
from bench.end_to_end import (
    MICROSECONDS,
    SCRATCH,
    TYPES,
    WARM_UP,
    Bench,
    changes,
    hidden_commits,
    merge,
)

CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
MIRROR = "connect-mirror:4.3.1"
VERSION = "_commit_version"
"""The target has it, too: tasks write to the topic side by side, so that a key's older row may
come after a newer one, in another MERGE."""
EVENTS, KEYS, COMMITS, PARTITIONS = 500_000, 200_000, 10, 2
PIPELINES = ("floor", "handwritten", "mirrormaker", "spark_wan")


class KafkaBench(Bench):
    """A method per pipeline that runs one round and returns seconds."""

    def __init__(self, brokers: dict[str, BrokerProcess]) -> None:
        jars = [str(jar) for each in CONNECTOR for jar in kafka_jars(each, False).glob("*.jar")]
        conf = {"spark.driver.extraClassPath": ":".join(jars)}
        super().__init__(EVENTS, KEYS, COMMITS, **conf)
        self.brokers = brokers

    def servers(self, broker: str) -> str:
        return f"127.0.0.1:{self.brokers[broker].ports['PLAINTEXT']}"

    def channel(self, place: Path) -> str:
        return f"kafka://{self.servers('near')}/{place.name}"

    def handwritten(self, place: Path) -> float:
        return self.over_kafka(place, "near")

    def mirrormaker(self, place: Path) -> float:
        return self.over_kafka(place, "far")

    def over_kafka(self, place: Path, last: str) -> float:
        """Write by hand to the near broker and read from the ``last`` one."""
        from pyspark.sql import functions as F

        topic, target = f"lines-{place.name}", str(place / "target")
        self.create(target, columns=f"{TYPES}, {VERSION} bigint")
        self.make_topic("near", topic)
        change = f"{TYPES}, _change_type string, {VERSION} bigint"

        def write(batch: Any, _: int) -> None:
            with self.timed_merge():
                line = F.col("value").cast("string")
                parsed = batch.select(F.from_json(line, change, MICROSECONDS).alias("r"))
                parsed.select("r.*").createOrReplaceTempView("batch")
                statement = merge(target, "batch", VERSION, deletes=True, keeps=VERSION)
                batch.sparkSession.sql(statement).collect()

        with ExitStack() as stack:
            reveal = stack.enter_context(hidden_commits(SCRATCH / "source", place / "source"))
            rows = changes(self.spark.readStream, place / "source")
            lines = rows.select(
                F.col("order_id").cast("string").alias("key"),
                F.to_json(F.struct("*"), MICROSECONDS).alias("value"),
            )
            sink = lines.writeStream.format("kafka").option("topic", topic)
            sink = sink.option("kafka.bootstrap.servers", self.servers("near"))
            out = sink.start(checkpointLocation=str(place / "out"))
            stack.callback(out.stop)
            out.processAllAvailable()
            self.wait_until_mirrored(topic, last)
            source = self.spark.readStream.format("kafka").option("subscribe", topic)
            source = source.option("kafka.bootstrap.servers", self.servers(last))
            back = source.option("startingOffsets", "earliest").load()
            writer = back.writeStream.foreachBatch(write)
            into = writer.start(checkpointLocation=str(place / "in"))
            stack.callback(into.stop)

            def arrive() -> None:
                out.processAllAvailable()
                self.wait_until_mirrored(topic, last)
                into.processAllAvailable()

            into.processAllAvailable()
            return self.clocked(reveal, arrive)

    def make_topic(self, broker: str, topic: str) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self.servers(broker))
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
        admin.close()

    def wait_until_mirrored(self, topic: str, last: str) -> None:
        """Wait until the last broker has all records of the near one's topic."""
        if last == "near":
            return
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumers = [
            KafkaConsumer(bootstrap_servers=self.servers(each), allow_auto_create_topics=False)
            for each in ("near", last)
        ]
        near, far = consumers
        while topic not in far.topics():
            time.sleep(0.1)
        while near.end_offsets(partitions) != far.end_offsets(partitions):
            time.sleep(0.02)
        for each in consumers:
            each.close()

    def topics_bytes(self, *topics: str) -> int:
        return sum(self.brokers["near"].log_bytes(topic) for topic in topics)

    def channel_bytes(self, place: Path) -> int:
        """Return the bytes of frames, operations and acks for all change rows."""
        shutil.copytree(SCRATCH / "source", place / "source")
        topology = self.topology(place)
        for job, site in ((spark_wan.Sender, "newark"), (spark_wan.Receiver, "seattle")):
            job(self.spark, topology, site).start(available_now=True).await_termination()
        return self.topics_bytes(*(f"{place.name}.{each}" for each in ("frames", "log", "acks")))

    def lines_bytes(self, topic: str, compression: str) -> int:
        """Return the bytes of all change rows as JSON lines in a topic."""
        from pyspark.sql import functions as F

        self.make_topic("near", topic)
        lines = changes(self.spark.read, SCRATCH / "source").select(
            F.col("order_id").cast("string").alias("key"),
            F.to_json(F.struct("*"), MICROSECONDS).alias("value"),
        )
        writer = lines.write.format("kafka").option("topic", topic)
        writer = writer.option("kafka.bootstrap.servers", self.servers("near"))
        writer.option("kafka.compression.type", compression).save()
        return self.topics_bytes(topic)


@contextmanager
def mirroring(place: Path, near: str, far: str) -> Iterator[None]:
    """Run MirrorMaker 2 for all topics of lines."""
    settings = {
        "clusters": "near, far",
        "near.bootstrap.servers": near,
        "far.bootstrap.servers": far,
        "near->far.enabled": "true",
        "near->far.topics": "lines-.*",
        "far->near.enabled": "false",
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "refresh.topics.interval.seconds": "1",
        "refresh.groups.enabled": "false",
        "sync.topic.acls.enabled": "false",
        "emit.heartbeats.enabled": "false",
        "emit.checkpoints.enabled": "false",
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "config.storage.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
        "tasks.max": str(PARTITIONS),
    }
    file = place / "mm2.properties"
    file.write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
    command = [*java(place, "512m", kafka_jars(MIRROR))]
    command += ["org.apache.kafka.connect.mirror.MirrorMaker", str(file)]
    with open(place / "mirror.log", "wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def end_to_end(place: Path, rounds: int) -> dict[str, Any]:
    """Return events per second of each pipeline, and bytes per event."""
    with ExitStack() as stack:
        brokers = {
            name: stack.enter_context(running(place / name)).brokers[0] for name in ("near", "far")
        }
        bench = KafkaBench(brokers)
        stack.enter_context(mirroring(place, bench.servers("near"), bench.servers("far")))
        bench.prepare()
        seconds: dict[str, list[float]] = {name: [] for name in PIPELINES}
        for n in range(1 - WARM_UP, rounds + 1):
            for name in PIPELINES:
                folder = SCRATCH / f"{name}-{n + WARM_UP}"
                folder.mkdir()
                took = getattr(bench, name)(folder)
                bench.check(folder)
                shutil.rmtree(folder)
                if n > 0:
                    seconds[name].append(took)
                parts = f"{took:6.2f} s, of that {bench.merging:5.2f} s in MERGE"
                print(f"round {n}: {name:12} {parts}", flush=True)
        folder = SCRATCH / "sizes"
        folder.mkdir()
        sizes = {
            "channel": bench.channel_bytes(folder),
            "json": bench.lines_bytes("plain", "none"),
            "json_zstd": bench.lines_bytes("packed", "zstd"),
        }
        bench.spark.stop()
        shutil.rmtree(SCRATCH)
    pairs = zip(seconds["handwritten"], seconds["spark_wan"], strict=True)
    return {
        "rounds": rounds,
        **{
            f"{name}_events_per_s": round(EVENTS / statistics.median(seconds[name]))
            for name in PIPELINES
        },
        "spark_wan_to_handwritten": round(statistics.median(b / c for b, c in pairs), 2),
        **{f"{name}_bytes_per_event": round(size / EVENTS, 1) for name, size in sizes.items()},
    }
