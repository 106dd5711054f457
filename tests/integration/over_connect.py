"""A process that replicates over Spark Connect, and says what it saw (the last line that it prints, in JSON)."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from sites import NEWARK, SEATTLE, Sites
from waiting import DEADLINE

import spark_wan.capture.source as source
from spark_wan import Receiver, Sender
from spark_wan.delta.errors import ErrorKind
from spark_wan.delta.sessions import is_connect
from spark_wan.local import cached_jars, ensure_java
from spark_wan.local.classes import java_options


def connect(options: str = "") -> Any:
    """A session over Connect; its server is started in a JVM of its own, with Delta and these options of Java."""
    ensure_java()
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client import DefaultChannelBuilder

    # Not pyspark's fixed port, on which another server may listen.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    DefaultChannelBuilder.default_port = staticmethod(lambda: port)
    settings = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{java_options(quick=True)} {options}".strip(),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    builder = SparkSession.builder.remote("local[2]")
    if jars := cached_jars():
        settings["spark.jars"] = ",".join(map(str, jars))
    else:
        builder = configure_spark_with_delta_pip(builder)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def wait_until(true: Callable[[], bool], what: str, told: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE
    while not true():
        if time.monotonic() > end:
            raise AssertionError(f"never happened: {what}; {told()}")
        time.sleep(0.2)


def start_receiver(spark: Any, sites: Sites) -> Any:
    """The server gives the worker of a foreachBatch ten seconds to come up; on a busy machine it may need another try."""
    for _ in range(10):
        try:
            return Receiver(spark, sites.topology, SEATTLE, senders=["east"], interval=0.2).start()
        except Exception as error:
            if not ErrorKind.PYTHON_MISSING.matches(error):
                raise
    raise AssertionError("the worker of foreachBatch never came up")


def histories_while_idle(told: Callable[[], object]) -> int:
    """How often a sender with nothing to send reads a history (a Spark job) in ten looks at its tables."""
    looks, histories = [], []
    load, history = source.load, source.history

    def counted_load(*args: Any, **options: Any) -> Any:
        looks.append(args)
        return load(*args, **options)

    def counted_history(*args: Any) -> Any:
        histories.append(args)
        return history(*args)

    source.load, source.history = counted_load, counted_history
    try:
        wait_until(lambda: len(looks) >= 10, "the sender looks at its tables", told)
    finally:
        source.load, source.history = load, history
    return len(histories)


def replicate(spark: Any, sites: Sites) -> dict[str, Any]:
    sites.change(10)
    handles: list[Any] = [
        start_receiver(spark, sites),
        Sender(spark, sites.topology, NEWARK, senders=["east"]).start(),
    ]

    def told() -> object:
        return [str(part) for handle in handles for part in (*handle.status(), handle.exception())]

    def applied(epochs: int) -> Callable[[], bool]:
        return lambda: all(
            len(sites.numbers(t)) > 0
            and sites.numbers(t)[-1] >= epochs
            and sites.acked(t) == sites.numbers(t)[-1]
            for t in ("orders", "readings")
        )

    wait_until(applied(1), "the first epochs are applied", told)
    sites.change(30)
    wait_until(lambda: applied(2)() and sites.are_equal(), "all changes are applied", told)
    receiver, sender = handles
    wait_until(
        lambda: all(s.backlog == 0 for s in sender.status()), "the sender has seen the acks", told
    )
    told_at_last = {
        "sender": [(s.table, s.held, s.events) for s in sender.status()],
        "receiver": [(s.table, s.held, s.applied) for s in receiver.status()],
        "errors": [str(handle.exception()) for handle in handles if handle.exception()],
    }
    told_at_last["histories_while_idle"] = histories_while_idle(told)
    sites.change(50)  # stopped while there is something to do
    for handle in handles:
        handle.stop()
    told_at_last["active"] = [handle.is_active for handle in handles]
    told_at_last["queries"] = len(spark.streams.active)

    sites.send(spark)
    sites.apply(spark)
    sites.assert_equal()
    told_at_last["rows"] = sites.rows("orders").total()
    return told_at_last


def main() -> None:
    spark = connect()
    found = {"connect": is_connect(spark), **replicate(spark, Sites.make(Path(sys.argv[1])))}
    spark.stop()
    found["threads"] = [t.name for t in threading.enumerate() if t.name.startswith("wan-")]
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
