"""Long-running jobs: threads that may run Spark jobs, a handle to stop them, and what they say of themselves."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from spark_wan.errors import SessionLostError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


_parent = os.getppid()


def _remember_parent() -> None:
    global _parent
    _parent = os.getppid()


os.register_at_fork(after_in_child=_remember_parent)


def is_orphan() -> bool:
    """Whether the process that started this one has ended, so that the kernel gave it another parent: process 1 or a subreaper.

    That the parent is process 1 means nothing by itself: in a container that may be the JVM."""
    return os.getppid() != _parent


def is_connect(spark: SparkSession) -> bool:
    """Whether this is a Spark Connect session."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@dataclass(frozen=True)
class SessionSettings:
    """What somebody has set in a classic session since it was made: Spark's ``newSession`` inherits none of it."""

    values: Mapping[str, str]
    catalog: str
    database: str
    usual: Mapping[str, str]
    """What is set in every new session."""

    @classmethod
    def of(cls, spark: SparkSession) -> SessionSettings:
        """The settings of ``spark`` as they are now."""
        usual = spark.newSession().conf.getAll
        catalog = spark.catalog
        return cls(_changed(spark, usual), catalog.currentCatalog(), catalog.currentDatabase(), usual)

    def new_session(self, spark: SparkSession) -> SparkSession:
        """A session beside ``spark`` with these settings: what is set in it reaches nobody else's queries."""
        session = spark.newSession()
        for name, value in self.values.items():
            _set(session, name, value)
        session.catalog.setCurrentCatalog(self.catalog)
        session.catalog.setCurrentDatabase(self.database)
        return session

    def renewed(self, spark: SparkSession, session: SparkSession) -> SessionSettings:
        """The settings of ``spark`` as they are now; what has changed since is set in ``session``, which was made of these."""
        values = _changed(spark, self.usual)
        for name in self.values.keys() - values.keys():
            _set(session, name, None)
        for name, value in values.items():
            if self.values.get(name) != value:
                _set(session, name, value)
        return replace(self, values=values)


def _changed(spark: SparkSession, usual: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in spark.conf.getAll.items() if usual.get(name) != value}


def _set(session: SparkSession, name: str, value: str | None) -> None:
    try:
        if value is None:
            session.conf.unset(name)
        else:
            session.conf.set(name, value)
    except Exception as error:
        # Settings of the application: a builder puts them into a session that is there already, where they mean nothing.
        log.debug("%s is not a setting of a session: %s", name, error)


@contextmanager
def cloned_session(spark: SparkSession) -> Iterator[SparkSession]:
    """A copy of a Spark Connect session: settings made there do not reach ``spark``. It is released at the end."""
    session: Any = spark.cloneSession()  # type: ignore[attr-defined]
    try:
        yield session
    finally:
        session.client.release_session()
        session.client.close()


def spark_thread(
    spark: SparkSession, target: Callable[[], None], name: str, unbegun: Callable[[SessionLostError], None]
) -> threading.Thread:
    """A daemon thread that may run Spark jobs and whose jobs are cancelled with those of the thread that made it.

    Such a thread first copies properties from the session. When it can't, since the session has ended meanwhile, ``unbegun`` is called in it
    instead of ``target``: an error that nobody takes would end the thread without a word to whoever waits for its work.
    """
    from pyspark import InheritableThread

    begun = False

    def begin() -> None:
        nonlocal begun
        begun = True
        target()

    class SparkThread(InheritableThread):
        def run(self) -> None:
            try:
                super().run()
            except Exception as error:
                if begun:
                    raise
                unbegun(
                    SessionLostError(f"the Spark session has ended before {name} could begin ({_first_line(error)}).")
                )

    session: dict[str, Any] = {"session": spark} if is_connect(spark) else {}
    thread = SparkThread(target=begin, **session)
    thread.name = name
    thread.daemon = True
    return thread


def lost_session(spark: SparkSession) -> SessionLostError | None:
    """Return the error to end with when the session has ended, or None while it answers. Runs no Spark job.

    What Spark raises afterwards depends on what was called (a NullPointerException, an AttributeError, …), so the session is asked itself.
    """
    try:
        if is_connect(spark):
            spark.conf.get("spark.sql.session.timeZone")
        else:
            spark.range(0)  # asks the SparkContext how many tasks may run at once
    except Exception as error:
        return SessionLostError(
            f"the Spark session has ended: its SparkContext was stopped, or its JVM or Spark Connect server does not answer "
            f"({_first_line(error)}). Start again with a new session."
        )
    return None


def _first_line(error: Exception) -> str:
    """Name and first line of what Spark or Py4J raised; Py4J's own first line only says that a call failed."""
    lines = str(error).splitlines()
    text = next((line.lstrip(": ") for line in lines[1:2] if "Exception" in line), lines[0] if lines else "")
    return f"{type(error).__name__}: {text}"


class Slots:
    """At most ``number`` holders at a time, first come, first served: a holder that returns stands behind those that wait."""

    def __init__(self, number: int) -> None:
        self._free = number
        self._line: deque[object] = deque()
        self._changed = threading.Condition()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for a slot, and hold it."""
        own = object()
        with self._changed:
            self._line.append(own)
            try:
                self._changed.wait_for(lambda: self._free > 0 and self._line[0] is own)
                self._free -= 1
            finally:
                self._line.remove(own)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._free += 1
                self._changed.notify_all()


def milliseconds() -> int:
    """Milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000
