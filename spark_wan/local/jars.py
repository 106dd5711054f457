"""Delta's jars, downloaded once, so that later sessions start offline and fast."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

from spark_wan.errors import WanError
from spark_wan.local import cache

SCALA = "2.13"


def delta_artifact() -> str:
    """Return the Delta artifact for the installed pyspark: ``delta-spark_4.2_2.13-4.4.0``."""
    spark = ".".join(importlib.metadata.version("pyspark").split(".")[:2])
    return f"delta-spark_{spark}_{SCALA}-{importlib.metadata.version('delta-spark')}"


def cached_jars() -> list[Path]:
    """Return the jars for a session; if the list is empty, Spark resolves them at every start.

    They come from the folder ``$SPARK_WAN_JARS`` or, if it is not set, from ``jars`` in the cache
    folder if those fit the installed delta-spark.

    Raises:
        WanError: the folder ``$SPARK_WAN_JARS`` lacks the Delta jar for the installed versions.
    """
    chosen = os.environ.get("SPARK_WAN_JARS")
    folder = Path(chosen) if chosen else cache.cache_folder() / "jars"
    jars = sorted(folder.glob("*.jar"))
    if any(jar.stem.endswith(delta_artifact()) for jar in jars):
        return jars
    if chosen:
        raise WanError(
            f"SPARK_WAN_JARS={chosen} holds no {delta_artifact()}.jar, which the installed pyspark "
            "and delta-spark need. Set it to a folder with that jar and its dependencies, or "
            "unset it."
        )
    return []
