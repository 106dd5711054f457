"""An archive of the classes that every session loads: a JVM maps it, which is faster than loading.

Java's own mechanism (application class-data sharing, JEP 350): a JVM writes the archive when it
exits. A later JVM uses it if Java and class path are the same, and ignores it otherwise.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
from pathlib import Path

from spark_wan.local import cache

QUICK = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
"""Less compilation, and garbage collection in one thread: speeds up short runs, slows long ones."""


def class_archive() -> Path:
    """Return the path of the archive for this Spark and this Java, whether it exists or not."""
    home = os.environ.get("JAVA_HOME")
    java = (Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")).resolve()
    built = java.stat().st_mtime_ns if java.is_file() else 0
    versions = f"{importlib.metadata.version('pyspark')} {java} {built}"
    digest = hashlib.blake2b(versions.encode(), digest_size=4).hexdigest()
    return cache.cache_folder() / f"classes-{digest}.jsa"


def java_options(*, quick: bool) -> str:
    """Return options that make a session's JVM start fast; ``quick`` adds those of QUICK."""
    options = [QUICK] if quick else []
    if class_archive().is_file():
        options += [f'"-XX:SharedArchiveFile={class_archive()}"', "-Xshare:auto", "-Xlog:cds*=off"]
    return " ".join(options)
