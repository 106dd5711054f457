"""Sites with Kafka between them: sender, receivers, forwarding, sink, source and commands."""

from __future__ import annotations

import gc
import json
import logging
import os
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from kafka_server import Cluster
from kafka_server import closing_brokers as closing_brokers
from kafka_server import kafka as kafka
from many_sites import ManySites
from pyspark.sql.types import StructType
from sites import NEWARK, SEATTLE, Sites, at
from waiting import wait_until

import spark_wan
from spark_wan import Receiver, Sender
from spark_wan.channels.kafka.broker import NotPermittedError, Written
from spark_wan.channels.kafka.client import KafkaBroker
from spark_wan.channels.registry import open_channel
from spark_wan.errors import TopologyError
from spark_wan.runtime.handle import JobHandle
from spark_wan.topology.parsing import load_topology

pytestmark = pytest.mark.usefixtures("closing_brokers")
AWAY = 15.0
"""Seconds for which a broker is away."""
ATTEMPTS = 20
"""Requests that fail meanwhile, at least, from one measurement to the next."""
CHAIN = {"newark": [["chicago"]], "chicago": [["denver"]], "denver": []}


def command(*words: str) -> str:
    """Run a command of spark-wan, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "spark_wan.cli", *words], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def clicks(spark: Any, channel: str, first: int, last: int, **options: str) -> None:
    rows = [{"event": f"c{n:03}", "at": at(n), "page": f"/{n}"} for n in range(first, last)]
    frame = spark.createDataFrame(rows, "event string, at timestamp, page string")
    writer = frame.write.format("wan").mode("append")
    own = {"eventId": "event", "key": "", "site": "newark", "remotes": "chicago"}
    writer.options(channel=channel, table="clicks", **own, **options).save()


def test_sites_replicate_over_kafka(spark: Any, kafka: Cluster, tmp_path: Path) -> None:
    """A chain: chicago forwards. Tables with and without a key, two epochs, ``status``."""
    sites = ManySites.make(
        tmp_path,
        CHAIN,
        {"orders": {"keys": ["id"]}, "readings": {"start": {"version": 0}}},
        channels=f"kafka://{kafka.bootstrap}/",
        storage={"kafka.security.protocol": "PLAINTEXT"},
    )
    for start in (10, 30):
        sites.tables.change(start)
        sites.send(spark, "newark")
        for site in ("chicago", "denver"):
            status = sites.receive(spark, site)
            assert {each.held for each in status.values()} == {None}, status
    sites.receive(spark, "chicago")
    for table in ("orders", "readings"):
        sites.assert_equal(table)
    sites.send(spark, "newark")  # trims what all have acked
    channel = open_channel(f"kafka://{kafka.bootstrap}/newark0", {SECURITY: "PLAINTEXT"})
    assert {len(epochs) for epochs in channel.epochs().values()} == {1}
    config = str(sites.folder / "wan.yaml")
    status = command("status", "--config", config, "--output", "json")
    streams = {
        stream["stream"]: stream
        for each in json.loads(status)["channels"]
        for stream in each["streams"]
    }
    [chicago] = streams["newark.newark0.orders"]["sites"]
    assert (chicago["site"], chicago["backlog_epochs"]) == ("chicago", 0)
    assert streams["newark.newark0.orders"]["sender"]["held"] is None


SECURITY = "kafka.security.protocol"


def test_users_streams_travel_over_kafka(spark: Any, kafka: Cluster, tmp_path: Path) -> None:
    """With the option's name as in Spark's own Kafka source."""
    spark_wan.register(spark)
    channel = f"kafka://{kafka.bootstrap}/users"
    clicks(spark, channel, 0, 40, **{SECURITY: "PLAINTEXT"})
    clicks(spark, channel, 40, 60, **{f"storage.{SECURITY}": "PLAINTEXT"})
    options = {"channel": channel, SECURITY: "PLAINTEXT"}
    batches = spark.readStream.format("wan").options(**options).load()
    columns = StructType.fromDDL("event string, at timestamp, page string")
    rows = spark_wan.decode(batches, columns)
    query = rows.writeStream.format("memory").queryName("clicks_over_kafka")
    query = query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    found = spark.table("clicks_over_kafka").select("event").collect()
    assert sorted(row.event for row in found) == [f"c{n:03}" for n in range(60)]


def statuses(*jobs: JobHandle[Any]) -> list[str]:
    """Return what holds each stream of each job; empty where nothing does."""
    return [status.held or "" for job in jobs for status in job.status()]


def is_there(sites: Sites) -> bool:
    """Whether seattle has all rows."""
    tables = (sites.path(table, SEATTLE) for table in ("orders", "readings"))
    return all(DeltaTable.is_deltatable(str(path)) for path in tables) and sites.are_equal()


def held_by_the_process(caplog: pytest.LogCaptureFixture) -> tuple[int, int]:
    """Return the numbers of threads and of open files: the least of some moments, since an attempt
    that is under way has some."""
    seen = []
    for _ in range(20):
        # pytest keeps what was logged, with the frames of errors. kafka-python leaves sockets that
        # could not connect to the garbage collector.
        caplog.clear()
        gc.collect()
        seen.append((threading.active_count(), len(os.listdir("/proc/self/fd"))))
        time.sleep(0.1)
    threads, files = zip(*seen, strict=True)
    return min(threads), min(files)


def test_f12_brokers_that_are_away_for_long_are_waited_for(
    spark: Any,
    kafka: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """SIGKILL to the broker under a running sender and receiver, while the source gets commits.
    Both say so and try again, and no attempt leaves a thread or an open file. Fails also when
    anything is lost."""
    [broker], failed = kafka.brokers, list[str]()
    message = KafkaBroker._message

    def noted(of: KafkaBroker, what: str, error: BaseException) -> str:
        failed.append(what)
        return message(of, what, error)

    monkeypatch.setattr(KafkaBroker, "_message", noted)
    # pytest would keep what kafka-python logs, with its sockets, if a client was opened before.
    logger = logging.getLogger("kafka")
    kept = [each for each in logger.handlers if not type(each).__module__.startswith("_pytest")]
    monkeypatch.setattr(logger, "handlers", kept)
    timeouts = {"kafka.request.timeout.ms": "1000", "kafka.delivery.timeout.ms": "1500"}
    channel = f"kafka://{kafka.bootstrap}/{tmp_path.name}"
    sites = Sites.make(tmp_path / "wan", channel=channel, storage=timeouts)
    sites.change(10)
    with ExitStack() as stack:
        send = Sender(spark, sites.topology, NEWARK, senders=["east"]).start()
        stack.callback(send.stop)
        receive = Receiver(spark, sites.topology, SEATTLE, senders=["east"], interval=0.2).start()
        stack.callback(receive.stop)
        wait_until(lambda: is_there(sites), "the first commits arrive", send, receive)
        broker.kill()
        killed = time.monotonic()
        stack.callback(lambda: broker.process or broker.start())
        sites.change(30)

        def says_so() -> bool:
            held = statuses(send, receive)
            return all("Check that the brokers run and can be reached" in each for each in held)

        wait_until(says_so, "both say that no broker answers", send, receive)
        wait_until(lambda: len(failed) >= 2, "another attempt", send, receive)
        first, before = len(failed), held_by_the_process(caplog)
        sites.change(50)

        def tried_for_long() -> bool:
            return len(failed) >= first + ATTEMPTS and time.monotonic() > killed + AWAY

        wait_until(tried_for_long, "more attempts", send, receive)
        assert says_so(), statuses(send, receive)
        after = held_by_the_process(caplog)
        assert after[0] - before[0] <= ATTEMPTS // 4, (before, after)
        assert after[1] - before[1] <= ATTEMPTS // 2, (before, after)
        broker.start()
        wait_until(broker.is_listening, "the broker listens")
        sites.change(70)
        wait_until(lambda: is_there(sites), "all commits arrive", send, receive)
        wait_until(lambda: not any(statuses(send, receive)), "nothing is held", send, receive)


def test_b14_a_receiver_starts_before_the_sender_on_empty_topics(
    spark: Any, kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator has made the topics, and the receiver's user writes acks only (here the
    request is refused; ``test_kafka_security.py`` has a broker that does). Fails when the receiver
    does not start, or has to be started again."""
    sites = Sites.make(tmp_path / "wan", channel=f"kafka://{kafka.bootstrap}/{tmp_path.name}")
    sites.change(10)
    produce, refuses = KafkaBroker.produce, [True]

    def produced(broker: KafkaBroker, topic: str, *what: Any) -> list[Written]:
        if refuses[0] and topic.endswith(".log"):
            raise NotPermittedError(f"no permission to write to {topic}")
        return produce(broker, topic, *what)

    monkeypatch.setattr(KafkaBroker, "produce", produced)
    receive = Receiver(spark, sites.topology, SEATTLE, senders=["east"], interval=0.2).start()
    try:
        wait_until(
            lambda: any("no sender has begun it yet" in each for each in statuses(receive)),
            "the receiver waits",
            receive,
        )
        refuses[0] = False
        sites.send(spark)
        wait_until(lambda: is_there(sites), "what was sent arrives", receive)
        assert not any(statuses(receive))
    finally:
        receive.stop()


def test_options_that_cannot_be_used_are_refused_early(tmp_path: Path) -> None:
    """By ``validate`` and every load of the topology, without a broker or a secret."""
    for storage in (
        {"kafka.secruity.protocol": "SSL"},
        {"kafka.acks": "1"},
        {"kafka.sasl.jaas.config": "x", "kafka.security.protocol": "SSL"},
    ):
        with pytest.raises(TopologyError, match=r"senders\.newark0\.channel.*kafka\."):
            sites = ManySites.make(tmp_path, CHAIN, channels="kafka://b:9092/", storage=storage)
            load_topology(sites.folder / "wan.yaml")
    sites = ManySites.make(
        tmp_path,
        CHAIN,
        channels="kafka://b:9092/",
        storage={
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": "${file:/run/secrets/of/another/machine}",
            "kafka.ssl.truststore.location": "/etc/of/another/machine.pem",
        },
    )
    load_topology(sites.folder / "wan.yaml")
