"""An archive of the classes that every session loads, which a JVM maps instead of reading and checking them anew.

Java's own mechanism (application class-data sharing, JEP 350): a JVM writes the archive when it ends, and a later one uses it if Java and class path are
still the same; if not, it starts as without one.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
from pathlib import Path

from spark_wan.local import cache

QUICK = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
"""Compile less, and collect garbage in one thread: shortens short runs, slows long ones."""


def class_archive() -> Path:
    """Where the archive of this Spark and this Java is, or would be. A JVM passes over one that does not fit without a word."""
    home = os.environ.get("JAVA_HOME")
    java = (Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")).resolve()
    built = java.stat().st_mtime_ns if java.is_file() else 0
    what = f"{importlib.metadata.version('pyspark')} {java} {built}"
    return (
        cache.cache_folder()
        / f"classes-{hashlib.blake2b(what.encode(), digest_size=4).hexdigest()}.jsa"
    )


def java_options(*, quick: bool) -> str:
    """Options for a session's JVM, so that it starts fast. ``quick``: compile less as well, for short runs."""
    options = []
    if class_archive().is_file():
        options += [f'"-XX:SharedArchiveFile={class_archive()}"', "-Xshare:auto", "-Xlog:cds*=off"]
    if quick:
        options.append(QUICK)
    return " ".join(options)
