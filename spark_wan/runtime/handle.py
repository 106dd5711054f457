"""The handle of a running job, a sender or a receiver."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from spark_wan.channels.base import close_channels
from spark_wan.errors import SessionLostError, StoppedError, StreamsHeldError, WanError
from spark_wan.messages import at_site, message_log
from spark_wan.runtime.life import Life
from spark_wan.runtime.progress import in_log
from spark_wan.runtime.scheduler import Activity, Next, Scheduler
from spark_wan.runtime.sessions import Session, ThreadSessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = message_log(__name__)

POLL_INTERVAL = 0.2
"""Seconds between checks whether the job has ended."""
SESSION_INTERVAL = 5.0
"""Seconds between checks that the session still answers: an idle job needs none."""


class Status(Protocol):
    """What the status of any stream has."""

    stream: str
    table: str
    held: str | None
    epochs: int
    events: int

    def __init__(self, stream: str, table: str) -> None: ...


S = TypeVar("S", bound=Status)
_begun: weakref.WeakSet[JobHandle[Any]] = weakref.WeakSet()
"""The jobs of this process that have begun and were not stopped."""


class JobHandle(Generic[S]):
    """A running sender or receiver.

    Args:
        spark: The user's session.
        name: Of the job, for its threads.
        site: Where it runs.
        parallel: Maximum number of tables that are worked on at once.
        status: Returns the status of each stream.
        grace: Seconds that a stop leaves to running work before it cancels its Spark jobs.
        available_now: The job ends by itself; then what still holds a stream is an error.
        copies: Maximum number of copies that the job serves at once.
        life: Its sign of life, for standby jobs; None: it gives none.
    """

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        parallel: int,
        status: Callable[[], list[S]],
        *,
        grace: float = 0.0,
        available_now: bool = False,
        copies: int = 1,
        site: str = "",
        life: Life | None = None,
    ) -> None:
        self._name = name
        self._life = life
        self._site = site
        self._status = status
        self._grace = grace
        self._available_now = available_now
        self._stop = threading.Event()
        self._told_stop = False
        self._errors: list[BaseException] = []
        self._last: Callable[[SparkSession], None] | None = None
        self.gives_way = False
        """Whether it was stopped for another job, which goes on in its place."""
        self.sessions = ThreadSessions(spark, f"{name}-{id(self):x}", self._end_with)
        self.scheduler = Scheduler(self._thread, parallel, self._ended, copies)

    def _thread(self, name: str, run: Callable[[Session], None]) -> threading.Thread:
        """Return a thread with a session of its own, whose messages name the site."""

        def run_at_site(session: Session) -> None:
            with at_site(self._site):
                run(session)

        return self.sessions.thread(name, run_at_site)

    @property
    def is_active(self) -> bool:
        """Whether anything is still running."""
        return self.scheduler.is_active

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_set()

    def check_stopped(self) -> None:
        """Raise StoppedError once the job is stopped."""
        if self._stop.is_set():
            raise StoppedError(f"the {self._name} was stopped")

    def pause(self, seconds: float) -> None:
        """Wait. Raises StoppedError once the job is stopped."""
        self._stop.wait(seconds)
        self.check_stopped()

    def status(self) -> list[S]:
        """Return what each stream has done since the start, and what holds it."""
        return self._status()

    def exception(self) -> BaseException | None:
        """Return the first error that ended a stream or the job. ``status()`` has the holds."""
        return self._errors[0] if self._errors else None

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the job has ended; return False when ``timeout`` seconds pass before.

        Raises the error that ended it, or one of its streams; with ``available_now``, once all
        others are done. Then also raises StreamsHeldError if streams are held.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while self.is_active and (self._available_now or not self._errors):
            left = POLL_INTERVAL if end is None else min(POLL_INTERVAL, end - time.monotonic())
            if left <= 0:
                return False
            self.scheduler.join(left)
        if self._errors:
            raise self._errors[0]
        held = [status.held for status in self.status() if status.held]
        if self._available_now and held:
            raise StreamsHeldError("\n".join(held))
        return True

    def stop(self, *, gives_way: bool = False) -> None:
        """Stop. Gives up what is unfinished; the next start does it again. Never hangs: running
        Spark jobs are cancelled. With the last job of a process, connections of channels end.

        ``gives_way``: another job goes on in its place at once, so the status is not to say that
        this one was stopped."""
        self.gives_way = gives_way
        began, is_first = time.monotonic(), not self._told_stop
        at_work = self.scheduler.at_work
        if is_first:
            self._say_stopping(at_work)
        self._told_stop = True
        self._stop.set()
        self.scheduler.stop()
        cancelled = self._wait_for(self.scheduler.join, lambda: self.is_active)
        last, self._last = self._last, None
        if gives_way:
            self._last = last  # to be done again, should nothing take its place
        if last is not None and self.sessions.lost() is None:
            self._do_last(last)
        if is_first:
            # A look that was cancelled is no work.
            self._say_stopped(time.monotonic() - began, cancelled and bool(at_work))
        if self._life is not None:  # last: a standby begins when this one has ended
            self._life.end(says_stopped=not gives_way)
        _begun.discard(self)
        if not any(job.is_active for job in [*_begun]):
            close_channels()

    def _say_stopping(self, at_work: Sequence[str]) -> None:
        log.info(
            "%s of site %s stops. At work: %s%s",
            self._name,
            self._site,
            ", ".join(at_work) or "nothing",
            f". It has {self._grace:g} s to end, then its Spark jobs are cancelled"
            if at_work
            else "",
            event="stopping",
            site=self._site,
            streams=at_work,
        )

    def _say_stopped(self, seconds: float, cancelled: bool) -> None:
        statuses = self.status()
        log.info(
            "%s of site %s has stopped after %.1f s%s. Since its start: %d epochs, %d events; %d "
            "streams are held",
            self._name,
            self._site,
            seconds,
            "; unfinished work was cancelled, and is done again after the next start"
            if cancelled
            else "",
            sum(status.epochs for status in statuses),
            sum(status.events for status in statuses),
            sum(status.held is not None for status in statuses),
            event="stopped",
            site=self._site,
            rows=sum(status.events for status in statuses),
            seconds=round(seconds, 3),
        )

    def _do_last(self, last: Callable[[SparkSession], None]) -> None:
        thread = self._thread("wan-last", lambda session: last(session()))
        try:
            thread.start()
        except Exception:
            if self.sessions.lost() is None:
                raise
            return  # the session has ended right now
        self._wait_for(thread.join, thread.is_alive)

    def _wait_for(self, join: Callable[[float], object], goes_on: Callable[[], bool]) -> bool:
        """Wait until something ends; once the grace is over, cancel its Spark jobs. Return whether
        that was needed."""
        join(self._grace)
        cancelled = goes_on()
        while goes_on():
            self.sessions.interrupt()
            join(POLL_INTERVAL)
        return cancelled

    def begin(
        self,
        activities: Iterable[Activity],
        last: Callable[[SparkSession], None] | None = None,
    ) -> None:
        """Start the activities. ``last`` is called at the end of a stop, when nothing else is
        running; it is cancelled if it takes longer than the grace."""
        self._last = last
        for activity in activities:
            self.scheduler.add(activity)
        if not self._available_now:
            self.scheduler.add(_SessionWatch(self.sessions))
            self.scheduler.add(_WorkLog())
        _begun.add(self)
        self.scheduler.begin()
        if self._life is not None:
            self._life.begin(lambda: self.is_active or self._told_stop)

    def _ended(self, activity: Activity, error: BaseException) -> None:
        """Take note of an error that has ended an activity."""
        if self._stop.is_set() and isinstance(error, StoppedError):
            return
        lost = error if isinstance(error, SessionLostError) else self.sessions.lost()
        if lost is not None:
            self._end_with(lost)
            return
        if not isinstance(error, WanError):
            log.error(
                "%s: ended by an unexpected error",
                activity.name,
                exc_info=error,
                event="crashed",
                site=self._site,
                **activity.subject(),
                what_to_do="The job goes on without it. Start it again; if that does not help, "
                "report the error with its stack.",
            )
        self._errors.append(error)

    def _end_with(self, lost: SessionLostError) -> None:
        """End the job: no stream can go on without the session."""
        if not self._stop.is_set():
            log.error(
                "%s of site %s: %s",
                self._name,
                self._site,
                lost,
                event="session-lost",
                site=self._site,
                cause=str(lost),
            )
            self._errors.append(lost)
            self._stop.set()
            self.scheduler.stop()


class _WorkLog(Activity):
    """Has work that takes long in the log."""

    name = "long work"

    def look(self, spark: SparkSession) -> Next:
        in_log.poll()
        return Next(SESSION_INTERVAL)


class _SessionWatch(Activity):
    """Ends the job when the session has ended."""

    def __init__(self, sessions: ThreadSessions) -> None:
        self.name = "session"
        self._sessions = sessions

    def look(self, spark: SparkSession) -> Next:
        lost = self._sessions.lost()
        if lost is not None:
            raise lost
        return Next(SESSION_INTERVAL)
