"""Spark sessions: their settings, their threads, and whether they have ended."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from spark_wan.errors import SessionLostError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = logging.getLogger(__name__)


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
        return cls(
            _changed(spark, usual), catalog.currentCatalog(), catalog.currentDatabase(), usual
        )

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
    spark: SparkSession,
    target: Callable[[], None],
    name: str,
    unbegun: Callable[[SessionLostError], None],
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
                    SessionLostError(
                        f"the Spark session has ended before {name} could begin ({_first_line(error)})."
                    )
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
    text = next(
        (line.lstrip(": ") for line in lines[1:2] if "Exception" in line), lines[0] if lines else ""
    )
    return f"{type(error).__name__}: {text}"
