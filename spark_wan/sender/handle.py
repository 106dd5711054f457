"""The handle of a running sender: a thread for each of its streams."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from functools import partial

from spark_wan.delta.sessions import lost_session, spark_thread
from spark_wan.errors import SessionLostError, StoppedError, WanError
from spark_wan.sender.stream import POLL_INTERVAL, SenderRun, SenderStream, StreamStatus

log = logging.getLogger(__name__)


class SenderHandle:
    """A running sender. ``stop()`` never hangs: it cancels running Spark jobs."""

    def __init__(self, run: SenderRun, streams: Sequence[SenderStream]) -> None:
        self._run = run
        self._streams = streams
        self._tag = f"spark-wan-sender-{id(self):x}"
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    @property
    def is_active(self) -> bool:
        """Whether any stream is still running."""
        return any(thread.is_alive() for thread in self._threads)

    def status(self) -> list[StreamStatus]:
        """Return what each stream has done, and what holds it."""
        return [stream.status for stream in self._streams]

    def exception(self) -> BaseException | None:
        """Return the first error that ended a stream's thread, if any. ``status()`` has the
        holds."""
        return self._errors[0] if self._errors else None

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the sender has ended; return False when ``timeout`` seconds pass before.

        Raises the error that ended it, or one of its streams; with ``available_now`` also what
        holds streams, once the others are done."""
        available_now = self._run.available_now
        end = None if timeout is None else time.monotonic() + timeout
        for thread in self._threads:
            while thread.is_alive() and (available_now or not self._errors):
                left = POLL_INTERVAL if end is None else min(POLL_INTERVAL, end - time.monotonic())
                if left <= 0:
                    return False
                thread.join(left)
        if self._errors:
            raise self._errors[0]
        held = [status.held for status in self.status() if status.held]
        if available_now and held:
            raise WanError("\n".join(held))
        return True

    def stop(self) -> None:
        """Stop. Gives up unfinished epochs; nothing that is in the channel is lost."""
        self._run.stop.set()
        spark = self._run.spark
        while self.is_active:
            for interrupt in [spark.interruptTag, *(stream.interrupt for stream in self._streams)]:
                try:
                    interrupt(self._tag)
                except Exception as error:
                    if lost_session(spark) is None:
                        raise
                    log.debug("no job to cancel: %s", error)
            for thread in self._threads:
                thread.join(POLL_INTERVAL)

    def _begin(self) -> None:
        for stream in self._streams:
            name = f"wan-sender {stream.status.stream}"
            target, on_lost_session = partial(self._loop, stream), partial(self._end_with, stream)
            self._threads.append(spark_thread(stream.spark, target, name, on_lost_session))
        for thread in self._threads:
            thread.start()

    def _loop(self, stream: SenderStream) -> None:
        try:
            for session in (self._run.spark, stream.spark):
                session.addTag(self._tag)
            stream.loop()
        except BaseException as error:
            if self._run.stop.is_set() and isinstance(error, StoppedError):
                return
            lost = error if isinstance(error, SessionLostError) else lost_session(self._run.spark)
            if lost is None:
                log.exception("%s: ended by an unexpected error", stream.status.stream)
                self._errors.append(error)
            else:
                self._end_with(stream, lost)

    def _end_with(self, stream: SenderStream, lost: SessionLostError) -> None:
        if not self._run.stop.is_set():
            log.error("%s: %s", stream.status.stream, lost)
            self._errors.append(lost)
            self._run.stop.set()  # no other stream can go on either
