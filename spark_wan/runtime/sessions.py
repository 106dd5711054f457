"""The Spark sessions of a job's threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from spark_wan.delta.errors import error_text
from spark_wan.delta.sessions import (
    SessionSettings,
    close_session,
    interrupt,
    lost_session,
    spark_thread,
)
from spark_wan.errors import SessionLostError
from spark_wan.messages import message_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = message_log(__name__)

Session = Callable[[], "SparkSession"]
"""Returns the session of the calling thread."""

RENEW_INTERVAL = 5.0
"""Seconds between looks at the settings of the user's session."""


class ThreadSessions:
    """A session for each thread of a job, with what it takes over from the user's session.

    What is set in one changes no other.

    Args:
        spark: The user's session.
        tag: Marks the Spark jobs of all threads.
        on_lost: Called when the session has ended before a thread could begin.
    """

    def __init__(
        self, spark: SparkSession, tag: str, on_lost: Callable[[SessionLostError], None]
    ) -> None:
        self.spark = spark
        self.tag = tag
        self._on_lost = on_lost
        self._settings = _UserSettings(spark)
        self._sessions: list[SparkSession] = [spark]
        self._lock = threading.Lock()

    def thread(self, name: str, run: Callable[[Session], None]) -> threading.Thread:
        """Return a thread, not started yet, that calls ``run`` with a session of its own."""
        return spark_thread(self.spark, partial(self._run, run), name, self._on_lost)

    def lost(self) -> SessionLostError | None:
        """Return the error to end with when the user's session has ended."""
        return lost_session(self.spark)

    def interrupt(self) -> None:
        """Cancel the Spark jobs of all threads."""
        with self._lock:  # a session must not be closed meanwhile
            for session in self._sessions:
                try:
                    interrupt(session, self.tag)
                except Exception as error:
                    if self.lost() is None:
                        raise
                    log.debug("no job to cancel: %s", error)

    def _run(self, run: Callable[[Session], None]) -> None:
        try:
            own = self._open()
        except Exception as error:
            cause = f"the Spark session cannot be used ({error_text(error)})."
            self._on_lost(self.lost() or SessionLostError(cause))
            return
        with self._lock:
            self._sessions.append(own)
        try:
            run(_Renewed(own, self._settings))
        finally:
            with self._lock:
                self._sessions.remove(own)
            self._close(own)

    def _open(self) -> SparkSession:
        own = self._settings.at_start.new_session(self.spark)
        for session in (self.spark, own):
            session.addTag(self.tag)
        return own

    def _close(self, own: SparkSession) -> None:
        try:
            close_session(own, is_lost=self.lost() is not None)
        except Exception as error:
            if self.lost() is None:
                raise
            log.debug("a session has ended with its server: %s", error)


class _UserSettings:
    """The settings of the user's session, which all threads of a job ask for."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.at_start = SessionSettings.of(spark)
        self._values = self.at_start.values
        self._read_at = time.monotonic()
        self._lock = threading.Lock()

    @property
    def values(self) -> Mapping[str, str]:
        """As they were some seconds ago, or are now."""
        with self._lock:
            if time.monotonic() - self._read_at >= RENEW_INTERVAL:
                self._values = self.at_start.current(self._spark)
                self._read_at = time.monotonic()
            return self._values


class _Renewed:
    """Returns a thread's session, with what the user has set since: a token that was renewed."""

    def __init__(self, own: SparkSession, user: _UserSettings) -> None:
        self._own, self._user = own, user
        self._settings = user.at_start

    def __call__(self) -> SparkSession:
        self._settings = self._settings.renewed(self._user.values, self._own)
        return self._own
