"""The state of one inbound stream: how far it is, what holds it, and when it is due again."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from spark_wan.apply.applier import ApplyResult, TableApplier
from spark_wan.apply.site_ack import SiteAck
from spark_wan.apply.take import CopyTaker
from spark_wan.forward.forwarding import Forwarding
from spark_wan.log.listing import Announced, Listing
from spark_wan.messages import message_log
from spark_wan.receiver.record import COUNTED, ReceiverRecordKeeper
from spark_wan.runtime.hold import Hold, next_wait
from spark_wan.units import milliseconds
from spark_wan.wire.ack import Ack
from spark_wan.wire.manifest import Manifest
from spark_wan.wire.receiver_record import NotApplied

log = message_log(__name__)

FIRST_RETRY = 10.0
"""Seconds until a held stream is retried for the first time."""
IDLE_INTERVAL = 3_600.0
"""Seconds, or up to half as much again, between looks at an idle stream's target table."""


@dataclass
class TableStatus:
    """What a receiver reports about one inbound stream since it started."""

    stream: str
    table: str
    applied: int = 0
    """All epochs through this one are applied."""
    forwarded: int | None = None
    """All epochs through this one are forwarded; None: this site does not forward the stream."""
    epochs: int = 0
    events: int = 0
    duplicates: int = 0
    """Redelivered events that were discarded."""
    dead_letters: int = 0
    local_commits: int = 0
    """Commits to the target that no receiver made. This site does not send them."""
    held: str | None = None
    """Why the stream, or its forwarding, is held."""
    needs: str | None = None
    """Why the site needs a copy of the table (:mod:`spark_wan.errors`); None: it does not."""
    not_applied: NotApplied = field(default_factory=NotApplied)
    """What was not applied, by reason, beside duplicates and dead letters."""


@dataclass
class InboundHold(Hold):
    """A hold at an epoch. A change of the log up to there makes the retry due."""

    epoch: int = field(kw_only=True)
    listed: tuple[tuple[int, ...], Announced] = field(kw_only=True)
    """What the log looked like up to that epoch."""

    def is_due(self, listing: Listing) -> bool:
        return not self.left() or self.listed != listing.through(self.epoch)


@dataclass(frozen=True)
class Done:
    """Everything in a log was applied and acked: what the log looked like then."""

    newest: int
    announced: Announced
    at: float
    """When the target was last caught up with."""
    check_at: float
    """When its table looks at the target though nothing happens."""


@dataclass
class InboundStream:
    """One inbound stream. Its table and its channel share it, each in threads of their own."""

    name: str
    table: str | None = None
    """None until the stream's manifest was read, and while this site has no part in it."""
    is_copy: bool = False
    """It has copies of the table, and no events."""
    applier: TableApplier | CopyTaker | None = None
    status: TableStatus | None = None
    """None until there is something to report."""
    answer: SiteAck | None = None
    """The site's ack. None until the stream's table is known."""
    record: ReceiverRecordKeeper | None = None
    """What the receiver says of itself, from then on."""
    forwards: Sequence[Forwarding] = ()
    """Its forwarding, one for each sender of this site that the table is attached to."""
    paused: bool = False
    """Whether nothing of it is to be taken, by the last listing of the channel."""
    ended: bool = False
    """Whether it was said that everything through its end is applied."""
    given: Listing | None = None
    """The listing that its table has, or works on."""
    done: Done | None = None
    held: InboundHold | None = None
    """None unless the stream is held, and its table is to retry it."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def report(self) -> TableStatus:
        """Return the status. The first call creates it: from then on the stream is reported."""
        with self._lock:
            status = self.status or TableStatus(self.name, "")
            if self.table is not None:
                status.table = self.table
            self.status = status
        return status

    def hold(self, cause: str, listing: Listing | None = None, epoch: int | None = None) -> None:
        """Report why the stream is held, in the log only when it changed.

        ``listing``: what was worked on in vain; it is retried. ``epoch``: where the stream is held;
        default: the newest. Without a listing, no table can work on the stream.
        """
        status = self.report()
        if status.held != cause:
            where = f" at epoch {epoch}" if epoch is not None else ""
            log.error(
                "%s: held%s: %s",
                self.name,
                where,
                cause,
                event="held",
                stream=self.name,
                table=self.table,
                epoch=epoch,
                cause=cause,
            )
        status.held = cause
        if listing is not None:
            at = listing.newest if epoch is None else epoch
            self.held = InboundHold(
                cause, FIRST_RETRY, self.held, epoch=at, listed=listing.through(at)
            )
            self._end(listing)

    def reported(self) -> TableStatus | None:
        """Return the status with what the forwarding of the stream adds to it."""
        status = self.status
        if status is None or not self.forwards:
            return status
        through = [each.through for each in self.forwards]
        causes = [status.held, *(each.held for each in self.forwards)]
        held = "; ".join(cause for cause in causes if cause is not None)
        return replace(status, forwarded=min(through), held=held or None)

    def is_record_due(self) -> bool:
        """Whether it is time to write the receiver's record."""
        return self.record is not None and self.record.is_due(self._counters())

    def keep_record(self, last: bool = False) -> None:
        """Write the receiver's record. ``last``: the receiver ends by itself."""
        if self.record is not None:
            self.record.keep(self._counters(), last)

    def _counters(self) -> dict[str, Any]:
        # The first apply may take hours, and there is no status before it is done.
        status = self.status or TableStatus(self.name, "")
        return {name: getattr(status, name) for name in (*COUNTED, "not_applied")}

    def release(self) -> None:
        """Note that nothing holds the stream any more."""
        self.held = None
        if self.status is not None:
            self._say_released(self.status)
            self.status.held = None

    def _say_released(self, status: TableStatus) -> None:
        if status.held is not None:
            log.info(
                "%s: no longer held",
                self.name,
                event="released",
                stream=self.name,
                table=self.table,
            )

    def is_done(self, listing: Listing) -> bool:
        """Whether nothing is left to do for what was listed, and its table has nothing to do."""
        done = self.done
        return done is not None and (done.newest, done.announced) == listing.state

    def must_be_checked(self) -> bool:
        """Whether it is time to look at the target of an idle stream."""
        done = self.done
        return done is not None and time.monotonic() >= done.check_at

    def is_due(self, listing: Listing) -> bool:
        """Whether to try the stream: it is not held, its time has come, or its log changed."""
        given, held = self.given, self.held
        if given is not None and given.state == listing.state:
            return False
        return held is None or held.is_due(listing)

    def next_wait(self) -> float:
        """Return the seconds until the stream is retried, if it is held now."""
        return next_wait(FIRST_RETRY, self.held)

    def retry_now(self) -> None:
        """Make a held stream due: what it waits for may have been applied."""
        held = self.held
        if held is not None:
            held.retry_now()

    def count(self, result: ApplyResult, local_commits: int) -> None:
        """Add the result of a round to the status."""
        status = self.report()
        status.applied = result.applied
        status.epochs += result.epochs
        status.events += result.events
        status.duplicates += result.duplicates
        status.dead_letters += result.dead_letters
        status.not_applied += result.not_applied
        status.local_commits = local_commits
        status.needs = result.needs
        if result.cause is None:
            self._say_released(status)
            status.held = None
        if result.epochs:
            refused = f", {result.dead_letters} dead letters" if result.dead_letters else ""
            log.info(
                "%s: applied through epoch %d (%d events%s)",
                self.name,
                result.applied,
                result.events,
                refused,
                event="applied",
                stream=self.name,
                table=self.table,
                epoch=result.applied,
                rows=result.events,
            )
        if result.cause is None and not result.again:
            self._note_end(result)

    def _note_end(self, result: ApplyResult) -> None:
        """Say that everything through the end of the stream is applied, or that it goes on."""
        if result.plan.ends and not self.ended:
            log.info(
                "%s: everything through its end, epoch %d, is applied. Nothing follows until it is "
                "resumed",
                self.name,
                result.applied,
                event="ended",
                stream=self.name,
                table=self.table,
                epoch=result.applied,
            )
            self.ended = True
        elif self.ended and result.epochs and not result.plan.ends:
            log.info(
                "%s: goes on behind its end",
                self.name,
                event="resumed",
                stream=self.name,
                table=self.table,
            )
            self.ended = False

    @property
    def _applied(self) -> int:
        return self.status.applied if self.status is not None else 0

    def pause(self, paused: bool) -> None:
        """Note whether nothing of the stream is to be taken."""
        if paused and not self.paused:
            log.info(
                "%s: paused. Nothing behind epoch %d is taken until it is resumed",
                self.name,
                self._applied,
                event="paused",
                stream=self.name,
                table=self.table,
                epoch=self._applied,
            )
        elif self.paused and not paused:
            log.info(
                "%s: resumed behind epoch %d",
                self.name,
                self._applied,
                event="resumed",
                stream=self.name,
                table=self.table,
                epoch=self._applied,
            )
        self.paused = paused
        for each in self.forwards:
            each.pause(paused)

    def leave(self, listing: Listing) -> None:
        """Note that the table has left the rest of a listing: the stream was paused meanwhile. It
        gets it again once the stream is resumed."""
        self.done = None
        self._end(listing)

    def finish(self, listing: Listing) -> None:
        """Note that everything in the listing is done."""
        now = time.monotonic()
        self.done = Done(*listing.state, now, now + _check_interval(self.name))
        self.release()
        self._end(listing)

    def postpone_check(self, idle: Done, listing: Listing) -> None:
        """Note that the target of an idle stream need not be caught up with yet."""
        self.done = replace(idle, check_at=time.monotonic() + _check_interval(self.name))
        self._end(listing)

    def _end(self, listing: Listing) -> None:
        """Note that no table works on a listing any more, unless it got a newer one."""
        if self.given is listing:
            self.given = None

    def refuse(
        self,
        listing: Listing,
        manifest: Manifest | None,
        cause: str,
        site: str,
        passes: bool = False,
    ) -> None:
        """Hold a stream that no round can work on, and tell its sender. ``passes``: the cause may
        pass though nobody does anything."""
        self.hold(cause)
        if manifest is not None:
            self.report().table = manifest.table
        acked = listing.log.ack(site)
        if acked is not None:
            ack = replace(acked, held=acked.in_table + 1, cause=cause, needs=None)
        else:
            log_id = manifest.log_id if manifest else ""
            ack = Ack(site, self.name, log_id=log_id, applied=0, held=listing.newest, cause=cause)
        if self.answer is not None:
            self.answer.forget()
        ack = replace(ack, passes=passes).held_since(acked, milliseconds())
        if ack != acked:
            listing.log.put_ack(ack)
        self.hold(cause, listing)


@dataclass(frozen=True)
class Due:
    """A stream that may have something to apply, and its log as it was listed."""

    site: str
    """The receiving site."""
    stream: InboundStream
    listing: Listing
    idle: Done | None = None
    """The stream is idle, and has been since then. Its target is caught up with now and then,
    before log cleanup takes commits of it that the ledger has not seen."""

    @cached_property
    def is_acked(self) -> bool:
        """Whether the site has acked everything in the listing, and nothing was announced again
        since. The first use reads the ack."""
        try:
            ack = self.listing.log.ack(self.site)
        except Exception:
            return False  # a round reports what is wrong
        return (
            ack is not None
            and ack.held is None
            and ack.applied == self.listing.newest
            and not self.listing.announced
        )


def _check_interval(name: str) -> float:
    """Return after how many seconds an idle stream's target is checked: not all at one time."""
    return IDLE_INTERVAL * (1 + zlib.crc32(name.encode()) / 2**33)
