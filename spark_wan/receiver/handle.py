"""The handle of a running receiver. It watches the queries and restarts those that may go on."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from spark_wan.delta.errors import ErrorKind, error_text
from spark_wan.errors import SessionLostError, StoppedError
from spark_wan.receiver.inbound import ChannelReceiver
from spark_wan.receiver.stream import TableStatus

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

RESTART_WAIT = 5.0
"""Seconds until a query restarts for the first time; each further wait is twice as long."""
LONGEST_RESTART = 300.0
"""Longest wait before a restart, in seconds."""
PYTHON_WAIT = 40.0
"""The same for a query whose Python worker did not start. Beyond it the receiver ends, because that
interpreter may never run."""
STOP_WAIT = 10.0
"""Seconds that a stop leaves to the running step before it cancels its Spark job."""
SESSION_INTERVAL = 5.0
"""Seconds between checks that the session still answers."""
_POLL_INTERVAL = 0.25
"""Seconds between checks of the queries."""
_SHORTEST_WAIT = 0.001
"""Seconds: Spark refuses to wait for 0."""
_GAVE_UP = f"{StoppedError.__module__}.{StoppedError.__qualname__}: "
"""How Spark reports that a micro-batch in another process raised StoppedError."""


@dataclass
class SupervisedQuery:
    """The streaming query of one inbound channel, and what became of it."""

    channel: ChannelReceiver
    query: StreamingQuery
    started_at: float = field(default_factory=time.monotonic)
    wait: float = 0.0
    """Seconds of the last wait before a restart; 0 before the first."""
    restart_at: float | None = None
    """When the ended query restarts; None while it runs, and once it has ended for good."""
    cause: str = ""
    """Why it will restart."""
    ended: bool = False
    """For good, with ``error`` or without."""
    error: BaseException | None = None
    stopped: bool = False
    """It was active when the handle was stopped."""

    def end(self, error: BaseException | None = None) -> None:
        self.ended, self.error, self.restart_at = True, error, None


class ReceiverHandle:
    """A running receiver.

    A query restarts when what ended it was no fault of its own: its Spark job was cancelled from
    outside, another receiver used its checkpoint, or its Python worker did not start within the ten
    seconds that Spark allows. With ``available_now`` it restarts for the last of these only.
    """

    def __init__(
        self,
        supervised: Sequence[SupervisedQuery],
        stop: threading.Event,
        *,
        classic: bool,
        restart: Callable[[ChannelReceiver], StreamingQuery],
        available_now: bool = False,
        lost: Callable[[], SessionLostError | None] = lambda: None,
    ) -> None:
        self._supervised = supervised
        self._stop = stop
        self._classic = classic
        self._restart = restart
        self._available_now = available_now
        self._lost = lost
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None

    @property
    def queries(self) -> list[StreamingQuery]:
        """The streaming queries, one per inbound channel. Their progress shows the lag."""
        return [each.query for each in self._supervised]

    @property
    def is_active(self) -> bool:
        """Whether any query is running or will restart."""
        self._poll()
        return not all(each.ended for each in self._supervised)

    def status(self) -> list[TableStatus]:
        """Return what each stream has done since this receiver started, and what holds it.

        Under Spark Connect the work is done in the server. There the status comes from the
        channel's acks, and counts stay 0.
        """
        statuses = []
        for each in self._supervised:
            reported = each.channel.statuses() if self._classic else each.channel.acked()
            if each.restart_at is not None:
                reported = [replace(status, held=each.cause) for status in reported]
            statuses += reported
        return statuses

    def exception(self) -> BaseException | None:
        """Return the first error that ended a query for good, or None."""
        self._poll()
        return next((each.error for each in self._supervised if each.error is not None), None)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the receiver has ended. Return False after ``timeout`` seconds.

        Raises the error that ended a query; with ``available_now`` only once all have ended.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while self.is_active and (self._available_now or self.exception() is None):
            left = _POLL_INTERVAL if end is None else min(_POLL_INTERVAL, end - time.monotonic())
            if left <= 0:
                return False
            time.sleep(left)
        error = self.exception()
        if error is not None:
            raise error
        return True

    def stop(self) -> None:
        """Stop. Running steps get ``STOP_WAIT`` seconds, then their Spark jobs are cancelled.

        The next start redoes what is unfinished.
        """
        with self._lock:
            self._poll()
            for each in self._running():
                each.stopped = True
            self._stop.set()
        end = time.monotonic() + STOP_WAIT
        for each in self._supervised:
            each.channel.idle.wait(max(0.0, end - time.monotonic()))
        with self._lock:
            for each in self._supervised:
                each.restart_at = None
            for each in self._supervised:
                try:
                    each.query.stop()
                except Exception as error:
                    if self._lost() is None:
                        raise
                    log.debug("the query ended with its session: %s", error)
            self._poll()
        if self._thread is not None:
            self._thread.join()

    def watch_in(self, thread: threading.Thread) -> None:
        """Start the thread that runs :meth:`watch`. :meth:`stop` joins it."""
        self._thread = thread
        thread.start()

    def watch(self) -> None:
        """Restart queries that ended, until the receiver is stopped or has ended."""
        check_at = 0.0
        while self.is_active and not self._stop.wait(_POLL_INTERVAL):
            if time.monotonic() >= check_at:
                # An idle query outlives its context: it needs none to see that nothing is new.
                lost = self._lost()
                if lost is not None:
                    self.end_with(lost)
                check_at = time.monotonic() + SESSION_INTERVAL
            for each in self._supervised:
                restart_at = each.restart_at
                if restart_at is not None and time.monotonic() >= restart_at:
                    self._restart_now(each)

    def end_with(self, lost: SessionLostError) -> None:
        """End all queries, because their session is lost."""
        with self._lock:
            if self._stop.is_set():
                return
            for each in self._supervised:
                if not each.ended:
                    each.end(lost)
        log.error("the receiver has ended: %s", lost)

    def _restart_now(self, supervised: SupervisedQuery) -> None:
        with self._lock:
            if self._stop.is_set():
                return
            supervised.channel.forget()
            try:
                supervised.query = self._restart(supervised.channel)
            except Exception as error:
                supervised.started_at, supervised.restart_at = time.monotonic(), None
                cause = f"its query did not restart: {error_text(error)}"
                longest = PYTHON_WAIT if self._available_now else LONGEST_RESTART
                self._schedule_restart(supervised, error, cause, longest)
            else:
                supervised.started_at, supervised.restart_at = time.monotonic(), None
                log.warning("%s: its query restarted", supervised.channel.url)

    def _running(self) -> Iterator[SupervisedQuery]:
        return (each for each in self._supervised if not each.ended and each.restart_at is None)

    def _poll(self) -> None:
        """Find out which queries have ended, and why."""
        with self._lock:
            for each in self._running():
                try:
                    if each.query.isActive:
                        continue
                    # Raises what ended the query, with its causes.
                    each.query.awaitTermination(_SHORTEST_WAIT)  # type: ignore[arg-type]
                except Exception as error:
                    self._ended_by(each, error)
                else:
                    self._ended_quietly(each)

    def _ended_quietly(self, supervised: SupervisedQuery) -> None:
        """Decide whether a query without an error was done, or was stopped from outside."""
        failure = supervised.channel.failure
        if self._stop.is_set() or (self._available_now and failure is None):
            supervised.end()
            return
        stopped = (
            f"the receiver's query for {supervised.channel.url} was stopped from outside: nothing "
            "more of this channel is applied. Start the receiver again."
        )
        self._end(supervised, StoppedError(stopped))

    def _ended_by(self, supervised: SupervisedQuery, error: Exception) -> None:
        """Decide what an error means: a stop, a restart, or the end of the query."""
        failure = supervised.channel.failure
        gave_up = isinstance(failure, StoppedError) or (failure is None and _GAVE_UP in str(error))
        gave_up = gave_up or ErrorKind.CANCELLED.matches(failure or error)
        if gave_up and supervised.stopped:
            supervised.end()  # its micro-batch gave up before Spark's own stop had come
        elif ErrorKind.PYTHON_MISSING.matches(error):
            cause = "its Python worker did not start within the ten seconds that Spark allows"
            self._schedule_restart(supervised, error, cause, PYTHON_WAIT)
        elif self._available_now:
            self._end(supervised, error)
        elif ErrorKind.CHECKPOINT_CONFLICT.matches(error):
            cause = "another receiver used its checkpoint (CONCURRENT_STREAM_LOG_UPDATE)"
            self._schedule_restart(supervised, error, cause)
        elif gave_up:
            self._schedule_restart(supervised, error, "its Spark job was cancelled from outside")
        else:
            self._end(supervised, error)

    def _schedule_restart(
        self,
        supervised: SupervisedQuery,
        error: Exception,
        cause: str,
        longest: float = LONGEST_RESTART,
    ) -> None:
        """Restart a query later, or end it when the wait grows beyond ``longest`` seconds."""
        if not supervised.wait or time.monotonic() - supervised.started_at > LONGEST_RESTART:
            wait = RESTART_WAIT
        else:
            wait = min(LONGEST_RESTART, supervised.wait * 2)
        if wait > longest or self._stop.is_set() or self._lost() is not None:
            self._end(supervised, error)
            return
        supervised.cause = (
            f"the receiver's query for {supervised.channel.url} ended: {cause}. "
            f"Will restart in {wait:g} s."
        )
        log.warning("%s", supervised.cause)
        # Counted from here: on a busy machine it takes seconds to find out whether the session is
        # lost, and whoever asks for the status must see the cause.
        supervised.wait, supervised.restart_at = wait, time.monotonic() + wait

    def _end(self, supervised: SupervisedQuery, error: Exception) -> None:
        lost = self._lost()
        if lost is not None and self._stop.is_set():
            supervised.end()  # SIGTERM to a process group ends the JVM too
            return
        supervised.end(lost or error)
        text = str(lost or error_text(error))
        log.error("the receiver's query for %s has ended: %s", supervised.channel.url, text)
