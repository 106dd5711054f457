"""Spark sessions: their settings, their threads, and whether they have ended."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from spark_wan.delta.settings import FIXED, is_taken_over
from spark_wan.errors import SessionLostError
from spark_wan.messages import message_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = message_log(__name__)


def is_connect(spark: SparkSession) -> bool:
    """Whether this is a Spark Connect session."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@dataclass
class CurrentSession:
    """The session in which a table is worked on. One worker at a time works on it, each with a
    session of its own, which it puts here; whatever belongs to the table asks here for it."""

    spark: Any = None
    """None until a worker has begun."""


@dataclass(frozen=True)
class SessionSettings:
    """The settings that a job takes over from the user's session (:mod:`spark_wan.delta.settings`).
    Spark's ``newSession`` inherits none that were set at run time; Connect's ``cloneSession`` all,
    with the current catalog and database.
    """

    values: Mapping[str, str]
    catalog: str
    database: str
    usual: Mapping[str, str]
    """The settings of every new session; none under Connect."""

    @classmethod
    def of(cls, spark: SparkSession) -> SessionSettings:
        """Return the current settings of ``spark``."""
        if is_connect(spark):
            return cls(_changed(spark, {}), "", "", {})
        usual, catalog = spark.newSession().conf.getAll, spark.catalog
        return cls(
            _changed(spark, usual), catalog.currentCatalog(), catalog.currentDatabase(), usual
        )

    def new_session(self, spark: SparkSession) -> SparkSession:
        """Return a new session with these settings. What is set in it stays in it, and reaches none
        of its own copies (:func:`copied_session`). End it with :func:`close_session`."""
        if is_connect(spark):
            session: Any = spark.cloneSession()  # type: ignore[attr-defined]
            inherited = session.conf.getAll
        else:
            session, inherited = spark.newSession(), self.usual
            _settings_of[session] = self
            for name, value in self.values.items():
                set_setting(session, name, value)
            session.catalog.setCurrentCatalog(self.catalog)
            session.catalog.setCurrentDatabase(self.database)
        for name in [name for name in inherited if not is_taken_over(name)]:
            set_setting(session, name, None)
        for name, value in FIXED.items():
            session.conf.set(name, value)
        return session

    def current(self, spark: SparkSession) -> Mapping[str, str]:
        """Return what ``spark`` has by now. Takes a hundred calls into the JVM."""
        return _changed(spark, self.usual)

    def renewed(self, values: Mapping[str, str], session: SparkSession) -> SessionSettings:
        """Copy to ``session``, one of :meth:`new_session`, what differs in ``values``, the newer
        settings; return those."""
        if values == self.values:
            return self
        for name in self.values.keys() - values.keys():
            set_setting(session, name, None)
        for name, value in values.items():
            if self.values.get(name) != value:
                set_setting(session, name, value)
        settings = _settings_of[session] = replace(self, values=values)
        return settings


_settings_of: weakref.WeakKeyDictionary[SparkSession, SessionSettings] = weakref.WeakKeyDictionary()
"""Session of a thread -> the user's settings in it, for its copies. To find them out takes a new
session and dozens of calls into the JVM."""


def _changed(spark: SparkSession, usual: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in spark.conf.getAll.items()
        if usual.get(name) != value and is_taken_over(name)
    }


_refused: set[tuple[str, str | None]] = set()
"""Settings that no session takes, with their values. Each attempt would cost an exception in the
JVM, a tenth of a second."""


def set_setting(session: SparkSession, name: str, value: str | None) -> None:
    """Set a setting, or unset it, unless it is none of a session."""
    if (name, value) in _refused:
        return
    try:
        if value is None:
            session.conf.unset(name)
        else:
            session.conf.set(name, value)
    except Exception as error:
        # A builder puts the application's settings into an existing session, which ignores them.
        log.debug("%s is not a setting of a session: %s", name, error)
        _refused.add((name, value))


@contextmanager
def temporary_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set ``settings`` in a session, and restore its own at the end."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, own in before.items():
            if own is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, own)


_copies: dict[int, list[SparkSession]] = {}
"""id() of a session -> its copies that are open."""
_copies_lock = threading.Lock()


@contextmanager
def copied_session(spark: SparkSession) -> Iterator[SparkSession]:
    """Open a copy of a session of a thread, with its tags. What is set in it stays in it.

    A classic session is copied as the user's settings made it.
    """
    if is_connect(spark):
        copy: Any = spark.cloneSession()  # type: ignore[attr-defined]
    else:
        copy = (_settings_of.get(spark) or SessionSettings.of(spark)).new_session(spark)
    for tag in spark.getTags():
        copy.addTag(tag)
    with _copies_lock:
        _copies.setdefault(id(spark), []).append(copy)
    try:
        yield copy
    finally:
        with _copies_lock:
            _copies[id(spark)].remove(copy)
            if not _copies[id(spark)]:
                del _copies[id(spark)]
        close_session(copy)


@contextmanager
def job_session(spark: SparkSession) -> Iterator[SparkSession]:
    """Open a session for a job, with what it takes over from the user's session."""
    session = SessionSettings.of(spark).new_session(spark)
    try:
        yield session
    finally:
        close_session(session)


def close_session(session: SparkSession, *, is_lost: bool = False) -> None:
    """End a session of :meth:`SessionSettings.new_session`. One of Connect would keep the process
    from ending. ``is_lost``: its server has ended, and would be asked for minutes."""
    if is_connect(session):
        if not is_lost:
            session.client.release_session()
        session.client.close()


def interrupt(spark: SparkSession, tag: str) -> None:
    """Cancel the Spark jobs with a tag, in a session and in its open copies."""
    spark.interruptTag(tag)
    with _copies_lock:  # a copy must not be released meanwhile
        for copy in _copies.get(id(spark), ()):
            copy.interruptTag(tag)


def spark_thread(
    spark: SparkSession,
    target: Callable[[], None],
    name: str,
    on_lost_session: Callable[[SessionLostError], None],
) -> threading.Thread:
    """Return a daemon thread for Spark jobs, which are cancelled with those of the calling thread.

    Such a thread first copies properties from the session. If the session has ended meanwhile, the
    thread calls ``on_lost_session`` instead of ``target``, so that whoever waits for its work
    learns of it.
    """
    from pyspark import InheritableThread

    started = False

    def begin() -> None:
        nonlocal started
        started = True
        target()

    class SparkThread(InheritableThread):
        def run(self) -> None:
            try:
                super().run()
            except Exception as error:
                if started:
                    raise
                cause = f"before {name} could begin ({_first_line(error)})"
                on_lost_session(SessionLostError(f"the Spark session has ended {cause}."))

    session: dict[str, Any] = {"session": spark} if is_connect(spark) else {}
    thread = SparkThread(target=begin, **session)
    thread.name = name
    thread.daemon = True
    return thread


def lost_session(spark: SparkSession) -> SessionLostError | None:
    """Return the error to end with when the session has ended, or None while it answers.

    What Spark raises after its end depends on what was called (a NullPointerException, an
    AttributeError, …), so this asks the session itself. Runs no Spark job.
    """
    try:
        if is_connect(spark):
            spark.conf.get("spark.sql.session.timeZone")
        else:
            spark.range(0)  # asks the SparkContext for its default parallelism
    except Exception as error:
        return SessionLostError(
            "the Spark session has ended: its SparkContext was stopped, or its JVM or Spark "
            f"Connect server does not answer ({_first_line(error)}). Start again with a new "
            "session."
        )
    return None


def _first_line(error: Exception) -> str:
    """The error's name and first line. Py4J's own first line only says that a call failed."""
    lines = str(error).splitlines()
    text = next(
        (line.lstrip(": ") for line in lines[1:2] if "Exception" in line), lines[0] if lines else ""
    )
    return f"{type(error).__name__}: {text}"
