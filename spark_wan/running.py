"""Long-running jobs: threads that may run Spark jobs, a handle to stop them, and what they say of themselves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_connect(spark: SparkSession) -> bool:
    """Whether this is a Spark Connect session."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def spark_thread(spark: SparkSession, target: Callable[[], None], name: str) -> threading.Thread:
    """A daemon thread that may run Spark jobs and whose jobs are cancelled with those of the thread that made it."""
    from pyspark import InheritableThread

    session: dict[str, Any] = {"session": spark} if is_connect(spark) else {}
    thread: threading.Thread = InheritableThread(target=target, **session)
    thread.name = name
    thread.daemon = True
    return thread


def milliseconds() -> int:
    """Milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000
