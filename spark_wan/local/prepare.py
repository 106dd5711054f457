"""Downloads and builds, once, what later sessions use."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from spark_wan.errors import WanError
from spark_wan.local.cache import cache_folder
from spark_wan.local.classes import class_archive
from spark_wan.local.jars import cached_jars, delta_artifact
from spark_wan.local.session import local_session


def prepare_jars() -> list[Path]:
    """Download the Delta jars into the cache folder, unless it has them.

    Raises:
        WanError: they could not be downloaded; the message has the cause and names the log.
    """
    if jars := cached_jars():
        return jars
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    _remove_unfinished("jars-*")
    _run("resolve()", log := cache / "ivy.log")
    fresh = Path(tempfile.mkdtemp(prefix="jars-", dir=cache))
    fresh.chmod(0o755)
    for jar in _not_in_spark((cache / "ivy" / "jars").glob("*.jar")):
        shutil.copy2(jar, fresh)
    if not any(jar.stem.endswith(delta_artifact()) for jar in fresh.glob("*.jar")):
        shutil.rmtree(fresh)
        raise WanError(
            f"Delta's jars could not be downloaded: {_cause(log)}. What Ivy printed is in {log}"
        )
    shutil.rmtree(cache / "jars", ignore_errors=True)
    fresh.rename(cache / "jars")
    return cached_jars()


def resolve() -> None:
    """Start a session that downloads the jars with Ivy."""
    # A home without .m2: other tools may leave one there with poms and no jars, which breaks Ivy.
    options: dict[str, Any] = {"spark.driver.extraJavaOptions": f'-Duser.home="{cache_folder()}"'}
    local_session("spark_wan-prepare", quick=False, **options).stop()


def _remove_unfinished(pattern: str) -> None:
    """Remove folders of earlier runs that were interrupted."""
    for path in cache_folder().glob(pattern):
        if path.is_dir():
            shutil.rmtree(path)


def _cause(log: Path) -> str:
    text = log.read_text(errors="replace")
    if "No space left on device" in text:
        return "no space is left on the disk"
    # Ivy's words for a repository that it cannot reach.
    if re.search(r"Host \S+ not found|Server access error|Connection (refused|timed out)", text):
        return "no network, or Maven Central is not reachable"
    return "see the log"


def _run(code: str, log: Path) -> None:
    """Run a function of this module in a process of its own; what it and its JVM print goes to a
    log."""
    with log.open("wb") as output:
        # The JVM ends after its Python. It inherits the pipe, and `run` returns once both are gone.
        process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import *; {code}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )
        assert process.stdout is not None
        with process.stdout as printed:
            shutil.copyfileobj(printed, output)
        process.wait()


def _not_in_spark(jars: Iterable[Path]) -> list[Path]:
    """Drop the jars that Spark ships in any version: Spark prefers its own, and copies each jar."""
    import pyspark

    spark_jars = Path(pyspark.__file__).with_name("jars")
    shipped = {_artifact(jar.name) for jar in spark_jars.glob("*.jar")}
    # Ivy names a file <organisation>_<artifact>-<version>.jar.
    return sorted(jar for jar in jars if _artifact(jar.name.partition("_")[2]) not in shipped)


def _artifact(name: str) -> str:
    return re.split(r"-\d", name, maxsplit=1)[0]


def prepare_classes() -> Path | None:
    """Make the class archive unless it exists. Returns None if this Java cannot make one."""
    archive = class_archive()
    if archive.is_file():
        return archive
    cache_folder().mkdir(parents=True, exist_ok=True)
    _remove_unfinished("classes-*")
    with tempfile.TemporaryDirectory(prefix="classes-", dir=cache_folder()) as folder:
        fresh = Path(folder) / archive.name
        _run(f"exercise({str(fresh)!r}, {folder!r})", cache_folder() / "classes.log")
        if not fresh.is_file():
            return None
        os.replace(fresh, archive)
    return archive


def exercise(archive: str, folder: str) -> None:
    """Do once what senders and receivers do, so that the JVM archives the classes they load."""
    option = f'"-XX:ArchiveClassesAtExit={archive}"'
    conf: dict[str, Any] = {"spark.driver.extraJavaOptions": option}
    spark = local_session("spark_wan-classes", quick=True, **conf)
    table, copy = f"{folder}/table", f"{folder}/copy"
    rows = spark.range(100).selectExpr("id", "cast(id AS string) AS text")
    properties = spark.createDataFrame([], rows.schema).write.format("delta")
    properties.option("delta.enableChangeDataFeed", "true").save(table)
    rows.write.format("delta").mode("append").save(table)
    rows.limit(0).write.format("delta").save(copy)

    def merge(batch: object, number: int) -> None:
        feed = spark.read.format("delta").option("readChangeFeed", "true")
        changes = (
            feed.option("startingVersion", 1)
            .load(table)
            .repartition(2, "id")
            .sortWithinPartitions("id", "_commit_version")
            .select("id", "text")
        )
        mapped = changes.mapInArrow(lambda parts: parts, changes.schema)
        mapped.createOrReplaceGlobalTempView("wan_classes")
        session = spark.newSession()
        for statement in (
            f"MERGE INTO delta.`{copy}` t USING global_temp.wan_classes s ON t.id = s.id"
            " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
            f"DESCRIBE HISTORY delta.`{copy}`",
            f"DESCRIBE DETAIL delta.`{copy}`",
        ):
            session.sql(statement).collect()

    stream = spark.readStream.format("delta").load(table).writeStream.foreachBatch(merge)
    stream = stream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    stream.start().awaitTermination()
    spark.stop()
