"""What later sessions need or gain from, fetched or made once."""

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
from spark_wan.local.java import ensure_java
from spark_wan.local.session import local_session


def prepare_jars() -> list[Path]:
    """Resolve the Delta jars once and keep them in the cache folder. Does nothing when they are there."""
    if jars := cached_jars():
        return jars
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    ensure_java()
    # A home without .m2: one that holds poms but no jars, as left behind by other tools, breaks Ivy.
    session = local_session(
        "spark_wan-prepare",
        quick=False,
        **{"spark.driver.extraJavaOptions": f'-Duser.home="{cache}"'},
    )
    session.stop()
    fresh = Path(tempfile.mkdtemp(prefix="jars-", dir=cache))
    fresh.chmod(0o755)
    for jar in _without_those_of_spark((cache / "ivy" / "jars").glob("*.jar")):
        shutil.copy2(jar, fresh)
    shutil.rmtree(cache / "jars", ignore_errors=True)
    fresh.rename(cache / "jars")
    return cached_jars()


def _without_those_of_spark(jars: Iterable[Path]) -> list[Path]:
    """Leave out what Spark ships itself, in whatever version: its own come first, and a session copies each jar."""
    import pyspark

    shipped = {
        _artifact(jar.name) for jar in Path(pyspark.__file__).with_name("jars").glob("*.jar")
    }
    # Ivy names a file <organisation>_<artifact>-<version>.jar.
    return sorted(jar for jar in jars if _artifact(jar.name.partition("_")[2]) not in shipped)


def _artifact(name: str) -> str:
    return re.split(r"-\d", name, maxsplit=1)[0]


def prepare_classes() -> Path | None:
    """Make the class archive unless it is there; None where this Java cannot make one. It saves each session a third of its start."""
    archive = class_archive()
    if archive.is_file():
        return archive
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="classes-", dir=cache_folder()) as folder:
        fresh = Path(folder) / archive.name
        # The JVM writes the archive when it ends, after its Python: its end is known by the end of the output that it inherits.
        subprocess.run(
            [
                sys.executable,
                "-c",
                f"from {__name__} import exercise; exercise({str(fresh)!r}, {folder!r})",
            ],
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
    """Do once what senders and receivers do, in a session whose JVM writes the classes that it has loaded to ``archive``."""
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
        changes = (
            spark.read.format("delta")
            .option("readChangeFeed", "true")
            .option("startingVersion", 1)
            .load(table)
        )
        changes = (
            changes.repartition(2, "id")
            .sortWithinPartitions("id", "_commit_version")
            .select("id", "text")
        )
        session = spark.newSession()
        changes.mapInArrow(lambda parts: parts, changes.schema).createOrReplaceGlobalTempView(
            "wan_classes"
        )
        merged = f"MERGE INTO delta.`{copy}` t USING global_temp.wan_classes s ON t.id = s.id"
        session.sql(
            f"{merged} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()
        session.sql(f"DESCRIBE HISTORY delta.`{copy}`").collect()
        session.sql(f"DESCRIBE DETAIL delta.`{copy}`").collect()

    stream = spark.readStream.format("delta").load(table).writeStream.foreachBatch(merge)
    stream.option("checkpointLocation", f"{folder}/checkpoint").trigger(
        availableNow=True
    ).start().awaitTermination()
    spark.stop()
