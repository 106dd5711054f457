"""Delta's jars, resolved once, so that later sessions start offline and quickly."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

from spark_wan.errors import WanError
from spark_wan.local import cache

SCALA = "2.13"


def delta_artifact() -> str:
    """The Delta artifact for the installed pyspark and delta-spark, as ``delta-spark_4.2_2.13-4.4.0``."""
    spark = ".".join(importlib.metadata.version("pyspark").split(".")[:2])
    return f"delta-spark_{spark}_{SCALA}-{importlib.metadata.version('delta-spark')}"


def cached_jars() -> list[Path]:
    """The jars to give to a session, or an empty list: then Spark has to resolve them at every start.

    They are those in the folder ``$SPARK_WAN_JARS``, or else in ``jars`` in the cache folder if they fit the installed
    delta-spark.

    Raises:
        WanError: ``SPARK_WAN_JARS`` is set and its folder does not hold the Delta jar for the installed versions.
    """
    chosen = os.environ.get("SPARK_WAN_JARS")
    folder = Path(chosen) if chosen else cache.cache_folder() / "jars"
    jars = sorted(folder.glob("*.jar"))
    if any(jar.stem.endswith(delta_artifact()) for jar in jars):
        return jars
    if chosen:
        raise WanError(
            f"SPARK_WAN_JARS={chosen} holds no {delta_artifact()}.jar, which the installed pyspark and delta-spark "
            "need. Point it at a folder with that jar and what it depends on, or unset it."
        )
    return []
