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

from spark_wan.local.cache import cache_folder
from spark_wan.local.classes import class_archive
from spark_wan.local.jars import cached_jars
from spark_wan.local.session import local_session


def prepare_jars() -> list[Path]:
    """Download the Delta jars into the cache folder, unless it has them."""
    if jars := cached_jars():
        return jars
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    # A home without .m2: other tools may leave one there with poms and no jars, which breaks Ivy.
    options = {"spark.driver.extraJavaOptions": f'-Duser.home="{cache}"'}
    local_session("spark_wan-prepare", quick=False, **options).stop()
    fresh = Path(tempfile.mkdtemp(prefix="jars-", dir=cache))
    fresh.chmod(0o755)
    for jar in _not_in_spark((cache / "ivy" / "jars").glob("*.jar")):
        shutil.copy2(jar, fresh)
    shutil.rmtree(cache / "jars", ignore_errors=True)
    fresh.rename(cache / "jars")
    return cached_jars()


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
    with tempfile.TemporaryDirectory(prefix="classes-", dir=cache_folder()) as folder:
        fresh = Path(folder) / archive.name
        code = f"from {__name__} import exercise; exercise({str(fresh)!r}, {folder!r})"
        # The JVM writes the archive when it exits, after its Python. It inherits this pipe, and
        # `run` returns when the pipe is closed.
        subprocess.run(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
            check=False,
        )
        if not fresh.is_file():
            return None
        os.replace(fresh, archive)
    return archive


def exercise(archive: str, folder: str) -> None:
    """Do once what senders and receivers do, so that the JVM archives the classes they load."""
    option = f'"-XX:ArchiveClassesAtExit={archive}"'
    spark = local_session(
        "spark_wan-classes", quick=True, **{"spark.driver.extraJavaOptions": option}
    )
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
