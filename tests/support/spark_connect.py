"""Sessions over Spark Connect, and scripts that run in a process of their own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from spark_wan.local import cached_jars, ensure_java
from spark_wan.local.classes import java_options

SUPPORT = Path(__file__).parent


def run_script(script: Path, folder: Path, *arguments: object, timeout: float) -> Any:
    """Run a script in ``folder`` and return the JSON on the last line of its output.

    A process of its own, since a remote and a classic session do not mix; without the Spark
    settings of this process.
    """
    spark = ("SPARK_", "PYSPARK_")
    environment = {name: text for name, text in os.environ.items() if not name.startswith(spark)}
    path = os.pathsep.join(filter(None, (str(SUPPORT), environment.get("PYTHONPATH"))))
    process = subprocess.run(
        [sys.executable, str(script), *map(str, arguments)],
        cwd=folder,
        env={**environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert process.returncode == 0, process.stderr[-6000:]
    return json.loads(process.stdout.splitlines()[-1])


def connect(options: str = "") -> Any:
    """Open a session over Connect. Its server gets a JVM of its own, with Delta and these Java
    options.
    """
    ensure_java()
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client import DefaultChannelBuilder

    # Not pyspark's fixed port: another server may listen on it.
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
