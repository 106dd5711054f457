"""How soon a commit is visible over Kafka: 100 events a second, as one commit each second.

As :mod:`bench.steady` measures it, into a table of 10,000 rows and one of ten million.
"""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path
from typing import Any

from kafka_server import running

from bench.steady import MERGES, Steady
from spark_wan.local import local_session

EVENTS, COMMITS = 100, 200
SIZES = {"10k": 10_000, "10m": 10_000_000}


def freshness(place: Path, rounds: int) -> dict[str, Any]:
    """Return seconds of a bare MERGE, and multiples of it. The number of rounds has no effect."""
    spark = local_session("bench", **{"spark.master": "local[2]", "spark.driver.memory": "4g"})
    figures: dict[str, Any] = {}
    with running(place / "broker") as cluster:
        for name, rows in SIZES.items():
            channel = f"kafka://{cluster.bootstrap}/{name}"
            one = Steady(spark, place / name, rows, EVENTS, range(COMMITS), channel)
            one.make()
            merges = [one.merge() for _ in range(2 + MERGES)][2:]
            seconds = one.measure()["steady"]
            merges += [one.merge() for _ in range(MERGES)]
            shutil.rmtree(place / name)
            merge = statistics.median(merges)
            figures[f"merge_s_{name}"] = round(merge, 2)
            parts = statistics.quantiles(seconds, n=100, method="inclusive")
            for part in (50, 95, 99):
                figures[f"freshness_p{part}_s_{name}"] = round(parts[part - 1], 2)
                figures[f"freshness_p{part}_to_merge_{name}"] = round(parts[part - 1] / merge, 2)
    spark.stop()
    worse = max(figures[f"freshness_p50_to_merge_{name}"] for name in SIZES)
    return {**figures, "freshness_p50_to_merge": worse}
