"""A user's own query as a job of spark-submit: sends clicks until it is killed.

Arguments: topology file, table, checkpoint. Prints JSON lines.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

import spark_wan

FORMAT = "wan"


def tell(event: str, **content: object) -> None:
    print(json.dumps({"event": event, **content}), flush=True)


def modules(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Tell where a task's Python finds the package."""
    import pyspark_wan
    import spark_wan

    for _ in batches:
        files = [spark_wan.__file__, pyspark_wan.__file__]
        yield pa.record_batch([pa.array(files)], names=["file"])


def is_known(spark: SparkSession, options: dict[str, str]) -> bool:
    try:
        spark.readStream.format(FORMAT).options(**options).load()
    except Exception as error:
        if "DATA_SOURCE_NOT_FOUND" not in str(error):
            raise
        return False
    return True


def main(config: str, table: str, checkpoint: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    tasks = spark.range(2, numPartitions=2).mapInArrow(modules, "file string").collect()
    options = {"config": config, "sender": "events"}
    known = is_known(spark, {**options, "site": "seattle"})
    spark_wan.register(spark)
    tell(
        "started",
        driver=spark_wan.__file__,
        tasks=sorted({row["file"] for row in tasks}),
        found_by_spark=known,
        registered=is_known(spark, {**options, "site": "seattle"}),
    )
    clicks = spark.readStream.format("delta").load(table)
    writer = clicks.writeStream.format(FORMAT).options(**options, table="clicks", eventId="event")
    writer.option("checkpointLocation", checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
