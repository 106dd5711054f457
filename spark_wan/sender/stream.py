"""One stream of a running sender: its loop, its status, and what holds it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_wan.delta.errors import ErrorKind, error_text
from spark_wan.delta.sessions import SessionSettings, lost_session
from spark_wan.errors import StoppedError, WanError
from spark_wan.sender.acks import AckManager
from spark_wan.sender.publish import LARGE_PLANNED, PLANNED, Publisher
from spark_wan.sender.slots import Slots
from spark_wan.steps import Steps, T, reached, run
from spark_wan.wire.manifest import EVENTS, Manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

POLL_INTERVAL = 0.2
"""Seconds between polls of whatever is waited for: acks, or the end of a thread."""
RENEW_INTERVAL = 5.0
"""Seconds between polls of the settings of the user's session."""
_MAX_WAIT = 30.0
"""Seconds until a held stream is retried, at most."""


@dataclass
class StreamStatus:
    """Status of one stream of a sender. Times in milliseconds since 1970 UTC; epochs, events,
    batches, bytes and dead letters since this sender began."""

    stream: str
    table: str
    published: int = 0
    """The newest epoch."""
    version: int = -1
    """The channel has everything through this version of the source."""
    acked: dict[str, int] = field(default_factory=dict)
    backlog: int = 0
    """Epochs that some site has not acked."""
    epochs: int = 0
    events: int = 0
    batches: int = 0
    bytes: int = 0
    dead_letters: int = 0
    held: str | None = None
    """Why nothing is published at the moment."""
    remote_holds: dict[str, str] = field(default_factory=dict)
    """Sites that hold the stream, and why."""
    not_served: list[str] = field(default_factory=list)
    """Addressees of the newest epoch that the sender no longer serves."""


class SenderRun:
    """What the streams of a running sender share: the user's session, the stop event, the slots."""

    def __init__(self, spark: SparkSession, available_now: bool, parallel: int) -> None:
        self.spark = spark
        self.available_now = available_now
        self.stop = threading.Event()
        self.slots = {PLANNED: Slots(parallel), LARGE_PLANNED: Slots(parallel)}


@dataclass
class SenderStream:
    """A stream of a running sender. :meth:`loop` runs in a thread of its own."""

    run: SenderRun
    spark: SparkSession
    """In a classic session, one of its own: settings made there affect no other stream."""
    inherited: SessionSettings | None
    """Settings of the user's session, as last copied. None: under Connect it is that session."""
    interrupt: Callable[[str], object]
    """Cancels the stream's Spark jobs that have a tag."""
    status: StreamStatus
    publisher: Publisher | None
    """None: a sink publishes the stream, and the sender only collects its acks."""
    acks: AckManager
    interval: float
    block_on_ack: float
    _wait: float = 0.0
    """Seconds until the next round. Doubles while the stream is held."""
    _causes: dict[str, str] = field(default_factory=dict)
    """What holds the stream, by the part of its work that failed: publishing, acks."""
    _renew_at: float = 0.0

    def loop(self) -> None:
        """Publish and collect acks until the sender stops; with ``available_now``, until the
        versions that were there at the start are published."""
        stop, available_now = self.run.stop, self.run.available_now
        self._wait = self.interval
        through: int | None = None
        while not stop.is_set():
            began = time.monotonic()
            if available_now and through is None:
                through = self._newest_version()
            published = self._publish()
            self._collect_acks(force=available_now)
            if available_now:
                if published is None:
                    return
                if through is not None and published.last_version >= through:
                    return
                continue
            if published is not None:
                self._block_on_ack(published)
            self._wait = self._longer_wait() if self.status.held else self.interval
            if published is None:
                stop.wait(max(0.05, self._wait - (time.monotonic() - began)))

    def _longer_wait(self) -> float:
        return min(_MAX_WAIT, self._wait * 2)

    def _newest_version(self) -> int | None:
        """Return the source's newest version. A run with ``available_now`` ends there, however fast
        other writers are."""
        if self.publisher is None:
            return None
        try:
            return self.publisher.source.newest().version
        except Exception as error:
            self._hold("publishing", error)
            return None

    def _publish(self) -> Manifest | None:
        if self.publisher is None:
            return None
        try:
            self._renew_settings()
            published = self._run_stoppable(self.publisher.round())
        except Exception as error:
            self._hold("publishing", error)
            return None
        self._release("publishing")
        if published is not None:
            status = self.status
            status.epochs += 1
            status.events += published.rows
            status.batches += len(published.frames)
            status.bytes += published.bytes
            log.info(
                "%s: epoch %d, versions %d to %d, %d events",
                status.stream,
                published.epoch,
                published.first_version,
                published.last_version,
                published.rows,
            )
        return published

    def _renew_settings(self) -> None:
        """Copy, now and then, what the user has set since: a token that was renewed."""
        if self.inherited is not None and time.monotonic() >= self._renew_at:
            self.inherited = self.inherited.renewed(self.run.spark, self.spark)
            self._renew_at = time.monotonic() + RENEW_INTERVAL

    def _collect_acks(self, force: bool = False) -> None:
        if not (force or self.acks.due()):
            return
        try:
            state = run(self.acks.round())
            self.acks.sweep_when_due()
        except Exception as error:
            self._hold("acks", error)
            return
        self._release("acks")
        status = self.status
        if state.newest is not None:
            status.published = state.newest.epoch
            if state.newest.kind != EVENTS:
                status.version = state.newest.last_version
        status.backlog = state.backlog
        status.acked = {site: ack.applied for site, ack in state.acks.items()}
        status.not_served = list(state.not_served)
        status.remote_holds = {
            site: ack.cause or "" for site, ack in state.acks.items() if ack.held is not None
        }

    def _block_on_ack(self, published: Manifest) -> None:
        """Wait until the ack policy is met, at most ``block_on_ack`` seconds."""
        stop, end = self.run.stop, time.monotonic() + self.block_on_ack
        while not stop.is_set() and time.monotonic() < end and not self.acks.done(published):
            self._collect_acks(force=True)
            stop.wait(POLL_INTERVAL)

    def _release(self, part: str) -> None:
        """Note that a part of the work succeeded; another part may still hold the stream."""
        self._causes.pop(part, None)
        self.status.held = next(iter(self._causes.values()), None)

    def _hold(self, part: str, error: Exception) -> None:
        """Hold the stream. Raises StoppedError once the sender is stopped, SessionLostError once
        the session has ended."""
        table = self.status.table
        if self.run.stop.is_set():
            raise StoppedError("stopped") from error
        lost = lost_session(self.spark)
        if lost is not None:
            raise lost from error
        if ErrorKind.CANCELLED.matches(error):
            # Nothing was published, and the next round plans it again.
            retry = f"Will retry in {self._longer_wait():g} s."
            if self.run.available_now:
                retry = "Start again."
            error = WanError(f"{table}: its Spark job was cancelled from outside. {retry}")
        expected = isinstance(error, WanError)
        cause = str(error) if expected else f"{table}: {error_text(error)}"
        if cause != self._causes.get(part):
            traceback = None if expected else error
            log.error("%s: held: %s", self.status.stream, cause, exc_info=traceback)
        self._causes[part] = self.status.held = cause

    def _run_stoppable(self, steps: Steps[T]) -> T:
        """Run numbered steps, unless the sender is stopped in between. Only writing frames takes a
        slot: any table may poll at any time."""
        with ExitStack() as slot:
            while True:
                if self.run.stop.is_set():
                    raise StoppedError("the sender was stopped")
                try:
                    step = next(steps)
                except StopIteration as end:
                    result: T = end.value
                    return result
                reached(step)
                slot.close()
                if step in self.run.slots:
                    slot.enter_context(self.run.slots[step].taken())
