"""The state of one inbound stream: how far it is, what holds it, and when it is due again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from spark_wan.channels.log import StreamLog
from spark_wan.delta.commits import record_after
from spark_wan.errors import WanError
from spark_wan.receiver.apply import ApplyResult, TableApplier

log = logging.getLogger(__name__)

RETRY_INTERVAL = 10.0
"""Seconds until a held stream is retried for the first time; each further wait is twice as long."""
LONGEST_RETRY = 30.0
"""Longest wait before a retry, in seconds."""
IDLE_INTERVAL = 3_600.0
"""Seconds between wake-ups of an idle receiver, which then checks its target tables."""

Announced = tuple[tuple[int, int], ...]
"""(epoch, attempt) of each epoch that was announced again."""


@dataclass
class TableStatus:
    """What a receiver reports about one inbound stream since it started."""

    stream: str
    table: str
    applied: int = 0
    """All epochs through this one are applied."""
    epochs: int = 0
    events: int = 0
    duplicates: int = 0
    """Redelivered events that were discarded."""
    dead_letters: int = 0
    local_commits: int = 0
    """Commits to the target that no receiver made. This site does not send them."""
    held: str | None = None
    """Why the stream is held."""


@dataclass(frozen=True)
class Listing:
    """One stream as the channel was listed. ``epochs`` rise and are not empty."""

    log: StreamLog
    epochs: Sequence[int]
    announced: Announced

    @property
    def newest(self) -> int:
        return self.epochs[-1]

    def through(self, epoch: int | None) -> tuple[tuple[int, ...], Announced]:
        """Return the listing up to ``epoch`` (None: all). Later epochs release no hold."""
        return tuple(each for each in self.epochs if epoch is None or each <= epoch), self.announced


@dataclass
class Retry:
    """When a held stream is retried."""

    at: float
    wait: float
    """Seconds from the hold to ``at``."""
    held: int
    """The epoch at which the stream is held."""
    listed: tuple[tuple[int, ...], Announced]
    """What the log looked like up to that epoch."""
    cancelled: bool
    """Its Spark job was cancelled from outside: the micro-batch must not end without it."""


@dataclass(frozen=True)
class Done:
    """When everything in a log was applied and acked, and what the log looked like."""

    newest: int
    announced: Announced
    at: float


@dataclass
class InboundStream:
    """One inbound stream. The table's thread and the thread that lists the channel share it."""

    name: str
    table: str | None = None
    """None until the stream's manifest was read, and while this site has no part in it."""
    applier: TableApplier | None = None
    status: TableStatus | None = None
    """None until there is something to report."""
    done: Done | None = None
    retry: Retry | None = None
    """None unless the stream is held."""
    expire_at: float = 0.0
    """When event IDs expire the next time."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def report(self) -> TableStatus:
        """Return the status. The first call creates it: from then on the stream is reported."""
        with self._lock:
            status = self.status or TableStatus(self.name, "")
            if self.table is not None:
                status.table = self.table
            self.status = status
        return status

    def hold(self, cause: str) -> None:
        """Report why the stream is held, in the log only when it changed."""
        status = self.report()
        if status.held != cause:
            log.error("%s: held: %s", self.name, cause)
        status.held = cause

    def release(self) -> None:
        """Report that nothing holds the stream any more."""
        status = self.status
        if status is not None:
            status.held = None

    def forget(self) -> None:
        """Start over as a new receiver does. What was reported stays."""
        self.applier = self.done = self.retry = None

    def is_done(self, listing: Listing) -> bool:
        """Whether nothing is left to do for what was listed."""
        done = self.done
        return (
            done is not None
            and (done.newest, done.announced) == (listing.newest, listing.announced)
            and not self._must_check_target(done)
        )

    def is_due(self, listing: Listing) -> bool:
        """Whether to try the stream: it is not held, its time has come, or its log changed."""
        retry = self.retry
        return (
            retry is None
            or time.monotonic() >= retry.at
            or retry.listed != listing.through(retry.held)
        )

    def next_wait(self) -> float:
        """Return the seconds until a stream that is held now is retried."""
        retry = self.retry
        return min(LONGEST_RETRY, retry.wait * 2) if retry else RETRY_INTERVAL

    def retry_now(self) -> None:
        """Make a held stream due: what it waits for may have been applied."""
        retry = self.retry
        if retry is not None:
            retry.at = 0.0

    def record(self, result: ApplyResult, local_commits: int) -> None:
        """Add the result of a round to the status."""
        status = self.report()
        status.applied = result.applied
        status.epochs += result.epochs
        status.events += result.events
        status.duplicates += result.duplicates
        status.dead_letters += result.dead_letters
        status.local_commits = local_commits
        if result.cause != status.held and result.cause is not None:
            log.error("%s: held at epoch %s: %s", self.name, result.held, result.cause)
        status.held = result.cause
        if result.epochs:
            log.info(
                "%s: applied through epoch %d (%d events)",
                self.name,
                result.applied,
                result.events,
            )

    def schedule(self, listing: Listing, held: int | None, cancelled: bool) -> None:
        """Note that the listing is done, or when to retry the stream ``held`` at an epoch."""
        if held is None:
            self.done = Done(listing.newest, listing.announced, time.monotonic())
            self.retry = None
            return
        wait = self.next_wait()
        # The source wakes the receiver every RETRY_INTERVAL, a little early or late.
        at = time.monotonic() + wait - RETRY_INTERVAL / 4
        self.retry = Retry(at, wait, held, listing.through(held), cancelled)

    def _must_check_target(self, done: Done) -> bool:
        """Whether log cleanup may soon take commits of the target that the ledger has not seen."""
        passed, applier = time.monotonic() - done.at, self.applier
        if passed < IDLE_INTERVAL or applier is None:
            return False
        try:
            return passed * 1000 >= record_after(applier.target.log_retention())
        except WanError:
            return True  # the round reports what is wrong with the table
