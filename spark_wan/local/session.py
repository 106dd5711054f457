"""Spark sessions with Delta on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from spark_wan.local.cache import cache_folder
from spark_wan.local.classes import java_options
from spark_wan.local.jars import cached_jars
from spark_wan.local.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Setting = bool | float | int | str | None


def local_session(
    app: str, *, quick: bool = False, log_file: Path | None = None, **conf: Setting
) -> SparkSession:
    """Start a ``local[*]`` session with Delta, quiet, in UTC, bound to the loopback interface.

    Args:
        app: Name of the application.
        log_file: Takes what the JVM and its Python workers print, as long as they live. Default:
            standard output and error.
        quick: Compile less, in the JVM and in Spark: speeds up short runs, slows long ones. For
            tests.
        conf: More settings; they override those made here:
            ``local_session("a", **{"spark.master": "local[4]"})``.

    Raises:
        WanError: no Java was found, or ``SPARK_WAN_JARS`` names the wrong folder.
    """
    ensure_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Spark waits 15 s for its Python processes, which is too short on a busy machine.
    os.environ.setdefault("SPARK_AUTH_SOCKET_TIMEOUT", "300")
    # Workers need the interpreter that has our packages, not the `python3` on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    settings: dict[str, Setting] = {
        "spark.master": "local[*]",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.authenticate.socketTimeout": "300s",
        "spark.sql.shuffle.partitions": 2,
        "spark.databricks.delta.snapshotPartitions": 2,
        # Each table of a sender or receiver needs 40 compiled classes or more. Spark keeps 100
        # by default: with several tables, every apply would compile its classes again.
        "spark.sql.codegen.cache.maxEntries": 2_000,
    }
    builder = SparkSession.Builder().appName(app)
    if jars := cached_jars():
        settings["spark.jars"] = ",".join(map(str, jars))
    else:
        builder = configure_spark_with_delta_pip(builder)
        settings["spark.jars.ivy"] = str(cache_folder() / "ivy")
    if quick:
        settings |= {
            "spark.sql.codegen.wholeStage": False,
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.adaptive.enabled": False,
        }
    settings |= conf
    options = (java_options(quick=quick), settings.get("spark.driver.extraJavaOptions"))
    settings["spark.driver.extraJavaOptions"] = " ".join(map(str, filter(None, options)))
    builder = builder.config(map=settings)
    if log_file is None:
        return builder.getOrCreate()
    with children_print_to(log_file):
        return builder.getOrCreate()


@contextmanager
def children_print_to(file: Path) -> Iterator[None]:
    """Have processes that are started meanwhile append what they print to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    own = [(number, os.dup(number)) for number in (1, 2)]
    try:
        with file.open("ab") as log:
            for number, _ in own:
                os.dup2(log.fileno(), number)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, copy in own:
            os.dup2(copy, number)
            os.close(copy)
