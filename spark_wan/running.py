"""Long-running jobs: threads that may run Spark jobs, a handle to stop them, and what they say of themselves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_connect(spark: SparkSession) -> bool:
    """Whether this is a Spark Connect session."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@dataclass(frozen=True)
class SessionSettings:
    """What somebody has set in a classic session since it was made: Spark's ``newSession`` inherits none of it."""

    values: Mapping[str, str]
    catalog: str

    @classmethod
    def of(cls, spark: SparkSession) -> SessionSettings:
        """The settings of ``spark`` as they are now."""
        fresh = spark.newSession().conf.getAll
        changed = {name: value for name, value in spark.conf.getAll.items() if fresh.get(name) != value}
        return cls(changed, spark.catalog.currentCatalog())

    def new_session(self, spark: SparkSession) -> SparkSession:
        """A session beside ``spark`` with these settings: what is set in it reaches nobody else's queries."""
        session = spark.newSession()
        for name, value in self.values.items():
            session.conf.set(name, value)
        session.catalog.setCurrentCatalog(self.catalog)
        return session


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
