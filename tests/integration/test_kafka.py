"""Sites with Kafka between them: sender, receivers, forwarding, sink, source and commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kafka_server import Cluster
from kafka_server import closing_brokers as closing_brokers
from kafka_server import kafka as kafka
from many_sites import ManySites
from pyspark.sql.types import StructType
from sites import at

import spark_wan
from spark_wan.channels.registry import open_channel
from spark_wan.errors import TopologyError
from spark_wan.topology.parsing import load_topology

pytestmark = pytest.mark.usefixtures("closing_brokers")
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
    """A chain: chicago forwards. Tables with and without a key, several epochs, commands."""
    sites = ManySites.make(
        tmp_path,
        CHAIN,
        {"orders": {"keys": ["id"]}, "readings": {"start": {"version": 0}}},
        channels=f"kafka://{kafka.bootstrap}/",
        storage={"kafka.security.protocol": "PLAINTEXT"},
    )
    for start in (10, 30, 50):
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
    assert "orders" in command("status", "--config", config)
    command("validate", "--config", config)


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
