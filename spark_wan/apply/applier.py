"""Applying a stream to a table: the receiver's numbered path.

:meth:`TableApplier.round` takes the next epochs of one stream. Each step is idempotent; a crash
between any two changes nothing:

    apply.1  caught-up   the ledger, from marked commits; this fixes the apply number
    apply.2  planned     from log and ledger: new, known, waiting, held
    apply.3  read        frames fetched, checked, decoded; rows that cannot be applied are found
    apply.4  resolved    redelivered events are dropped; one event per key
    apply.5  recorded    dead letters and event IDs, under the apply's token: they count once that
                         apply is marked
    apply.6  written     one marked commit to the table; a conflict or a skipped write goes back to
                         step 1, never to the write
    apply.6b read-back   the mark was found in the table's history
    apply.7  ledgered    the mark is in the ledger; those of several tables get there together
    apply.8  acked       and not before

Forwarding runs beside it (:mod:`spark_wan.forward`). An ack has the lower of applied and forwarded
(:mod:`spark_wan.apply.site_ack`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from spark_wan.apply.change import Change, Recorder, Replan, TargetTable, WriteConflict
from spark_wan.apply.plan import PlannedEpoch, StreamPlan, StreamPlanner
from spark_wan.apply.site_ack import SiteAck
from spark_wan.errors import (
    COLUMNS,
    EPOCHS,
    LEDGER,
    TABLE,
    ChannelError,
    DeadLettersError,
    FrameError,
    LedgerError,
    StoppedError,
    TargetError,
    WanError,
    may_pass,
)
from spark_wan.events.columns import column_paths
from spark_wan.ledger.ledger import Ledger
from spark_wan.ledger.progress import origin_of
from spark_wan.log.inbound import InboundLog
from spark_wan.log.stream_log import StreamLog
from spark_wan.messages import message_log
from spark_wan.runtime.progress import under_way
from spark_wan.steps import Steps
from spark_wan.sync.automatic import Synchronizer
from spark_wan.topology.model import copied_stream
from spark_wan.wire.ack import Ack, Need
from spark_wan.wire.decisions import Decisions
from spark_wan.wire.manifest import EVENTS
from spark_wan.wire.mark import Mark
from spark_wan.wire.receiver_record import NotApplied

log = message_log(__name__)

READ_BACK = "apply.6b read-back"
"""At this step an apply may wait until someone else has written the ledger's rows."""
LARGE_APPLY_ROWS = 1_000_000
LARGE_APPLY_BYTES = 64 * 1024 * 1024
"""An apply that has so much may take longer than a sender waits for an ack: it is announced."""
ATTEMPTS = 20
"""Attempts of a round against conflicting writers, before the stream is held and retried later."""


class Basis(Enum):
    """What a plan of a round rests on."""

    HINT = "the ledger, which seems current. Only an apply may rest on it: its write finds out"
    CAUGHT_UP = "the ledger, caught up with the target"
    CONFIRMING = (
        "the same, before the stream is held: after the first plan, another receiver may have "
        "applied, and the sender may have trimmed what that receiver acked"
    )

    def following(self, result: ApplyResult) -> Basis | None:
        """Return on what to plan next, when an attempt had this result; None: the round ends."""
        if result.epochs:
            return None
        if result.plan.held is not None and self is not Basis.CONFIRMING:
            return Basis.CONFIRMING
        return Basis.CAUGHT_UP if self is Basis.HINT else None


@dataclass
class ApplyResult:
    """What a round did."""

    plan: StreamPlan
    applied: int = 0
    """Through this epoch of the log everything is applied."""
    epochs: int = 0
    events: int = 0
    duplicates: int = 0
    dead_letters: int = 0
    not_applied: NotApplied = field(default_factory=NotApplied)
    """What else was not applied, by reason."""
    held: int | None = None
    cause: str | None = None
    passes: bool = False
    """Whether the cause may pass though nobody does anything."""
    needs: str | None = None
    """Why the site needs a copy of the table (:class:`~spark_wan.errors.WanError`)."""
    awaits_copy: bool = False
    """A copy was asked for, and the one that is there is not it: until it is taken, nothing else
    should be applied to the table."""

    @property
    def again(self) -> bool:
        """Whether the round left epochs for the next."""
        return self.held is None and (
            self.plan.more
            or bool(self.plan.new and self.applied < self.plan.new[-1].manifest.epoch)
        )


@dataclass
class TableApplier:
    """Applies one stream to one table at one site. One per table runs at a time."""

    site: str
    table: str
    log: StreamLog
    target: TargetTable
    ledger: Ledger
    max_bytes: int = 256 * 1024 * 1024
    max_epochs: int = 200
    check_stopped: Callable[[], None] = lambda: None
    """Raises StoppedError when the receiver was stopped."""
    decisions: Callable[[], Decisions] = Decisions
    """Loads what the user has decided about the table. Called only when a decision is needed."""
    answer: SiteAck | None = None
    """The site's ack of the stream; None: the stream is not forwarded."""
    writers: Collection[str] | None = None
    """The sites that write the table, by the topology; None: any site."""
    synchronizer: Synchronizer | None = None
    """Asks for a copy when the site needs one; None: people do."""
    tell_refused: Callable[[bool], bool] = lambda at_once: True
    """Tells the sender which events could not be applied, and returns whether it did: not if it has
    just done so, unless it is to do so at once. Called when there are more of them, before the ack
    that counts them, when a copy was taken, and with the next ack if it did not."""
    _answer: SiteAck = field(init=False)
    _inbound: InboundLog = field(init=False)
    _recorder: Recorder = field(init=False)
    _passed: FrameError | None = None
    """In this round: the error of a frame that turned out to be valid."""
    _told_copy: int = 0
    """The apply of the newest copy of the table when the sender was told last; 0: there was none,
    or it was not told here."""
    _untold: bool = False
    """The sender is to be told which events could not be applied."""
    _is_read: bool = False
    """In this round: the ledger has caught up with the table."""

    def __post_init__(self) -> None:
        self._answer = self.answer or SiteAck(self.site, self.log)
        self._recorder = Recorder(self.target)
        self._inbound = InboundLog(
            self.log, self.table, lambda: self.decisions().new_logs, self.writers
        )

    def round(self, listed: Sequence[int] | None = None) -> Steps[ApplyResult]:
        """Plan and apply what the log has.

        Errors of the stream, the table or its frames hold the stream: result and ack name epoch
        and cause. ``listed``: the epochs in the stream's log, if the caller has listed them.
        """
        acked = self._answer.read()
        result = self._nothing_planned(acked)
        basis = Basis.HINT if self.ledger.seems_current(self.target) else Basis.CAUGHT_UP
        self._passed = None
        self._is_read = False
        for _ in range(ATTEMPTS):
            self.check_stopped()
            try:
                apply_number, result = yield from self._planned(listed, acked, basis)
                acked = self._announce(result, acked)
                yield from self._apply_planned(apply_number, result)
            except StoppedError:
                raise
            except Replan as reason:
                log.info(
                    "%s: %s; planning again",
                    self.table,
                    reason,
                    event="planned-again",
                    table=self.table,
                )
                basis = Basis.CAUGHT_UP if basis is Basis.HINT else basis
                continue
            except WanError as error:
                self._hold(result, result.applied + 1, error)
            following = basis.following(result)
            if following is None:
                break
            basis = following
            if basis is Basis.CONFIRMING and self.ledger.progress.lost:
                self.ledger.forget()  # it may have been restored
        else:
            lost = (
                f"{self.table}: {ATTEMPTS} writes in a row lost against other writers of the "
                "table. The receiver will retry."
            )
            self._hold(result, result.applied + 1, TargetError(lost))
        self._ack(result, acked)
        yield "apply.8 acked"
        return result

    def unexpected(self, cause: str) -> ApplyResult:
        """Hold the stream after an unexpected error, and return the result of that round."""
        acked = self._answer.read()
        result = self._nothing_planned(acked)
        self._hold(result, result.applied + 1, TargetError(cause))
        self._ack(result, acked)
        return result

    def _announce(self, result: ApplyResult, acked: Ack | None) -> Ack | None:
        """Say which epoch is applied next, if that may take long: until then the site owes its ack.
        Returns the ack that is in the channel. A channel that refuses it is no reason to wait."""
        new = result.plan.new
        if sum(epoch.manifest.rows for epoch in new) < LARGE_APPLY_ROWS and (
            sum(epoch.manifest.bytes for epoch in new) < LARGE_APPLY_BYTES
        ):
            return acked
        of_log = acked is not None and acked.log_id == result.plan.log_id
        if acked is not None and of_log and acked.in_table > result.applied:
            return acked  # another receiver has applied more, which the write will find
        try:
            self._ack(result, acked, working=new[0].manifest.epoch)
        except ChannelError as error:
            log.debug("%s: not announced: %s", self.table, error)
        return self._answer.known

    def _nothing_planned(self, acked: Ack | None) -> ApplyResult:
        return ApplyResult(StreamPlan(self.log.stream), applied=acked.in_table if acked else 0)

    def _planned(
        self, listed: Sequence[int] | None, acked: Ack | None, basis: Basis
    ) -> Steps[tuple[int | None, ApplyResult]]:
        """Return the next apply number (None: there is no table yet), and what to apply."""
        if basis is Basis.HINT:
            apply_number: int | None = self.ledger.last_apply + 1
        else:
            apply_number = self.ledger.catch_up(self.target)
        self._is_read = True
        yield "apply.1 caught-up"
        plan = self._plan(listed, acked)
        result = ApplyResult(
            plan,
            applied=plan.known,
            duplicates=plan.duplicates,
            not_applied=NotApplied(covered=plan.covered, elsewhere=plan.elsewhere),
            held=plan.held,
            cause=plan.cause,
            passes=plan.passes,
            needs=plan.needs,
        )
        yield "apply.2 planned"
        return apply_number, result

    def _apply_planned(self, apply_number: int | None, result: ApplyResult) -> Steps[None]:
        """Apply as many of the planned epochs as possible; hold the rest. Raises Replan."""
        epochs = result.plan.new
        if not epochs:
            return
        try:
            if apply_number is None:
                self.target.create(epochs[0])
                raise Replan("the table was created; another receiver may have applied since")
            yield from self._apply_valid(epochs, apply_number, result)
        except StoppedError:
            raise
        except WanError as error:
            self._hold(result, epochs[0].manifest.epoch, error)

    def _apply_valid(
        self, epochs: Sequence[PlannedEpoch], apply_number: int, result: ApplyResult
    ) -> Steps[None]:
        """Apply the epochs, or those before a bad frame or before too many dead letters."""
        try:
            yield from self._apply(epochs, apply_number, result)
        except FrameError as error:
            yield from self._before_bad_frame(epochs, apply_number, error, result)
        except DeadLettersError as error:
            # Several epochs may exceed the maximum together: try fewer. The next round takes the
            # rest, so how many epochs wait decides nothing.
            if len(epochs) > 1:
                yield from self._apply_valid(epochs[: len(epochs) // 2], apply_number, result)
            else:
                self._hold(result, epochs[0].manifest.epoch, error)

    def _apply(
        self, epochs: Sequence[PlannedEpoch], apply_number: int, result: ApplyResult
    ) -> Steps[None]:
        change = Change(epochs, ids_since=self.ledger.copied)
        rows = sum(epoch.manifest.rows for epoch in epochs)
        size = sum(epoch.manifest.bytes for epoch in epochs)
        with under_way("applying", self.log.stream, self.site, rows=rows, size=size):
            self.target.read(change, self.ledger.columns)
            try:
                yield "apply.3 read"
                self.target.resolve(change)
                yield "apply.4 resolved"
                self.check_stopped()
                mark = self._recorder.record(change, self._mark(change, apply_number))
                yield "apply.5 recorded"
                self.target.write(change, mark)
                yield "apply.6 written"
            finally:
                self.target.done(change)
        self.ledger.catch_up(self.target, write=False)
        if mark.token not in self.ledger.tokens:
            if self.ledger.last_apply < apply_number:
                raise LedgerError(
                    f"{self.table}: Delta skipped apply {apply_number} at site {self.site}: the "
                    "table has taken an apply of that number before, but neither its history nor "
                    "the ledger knows it. Stop this site's receivers and restore the ledger; or "
                    f"{self.ledger.copy_advice}.",
                    needs=LEDGER,
                )
            raise WriteConflict(
                f"another receiver has used apply number {apply_number}, and Delta skipped this "
                "write"
            )
        yield READ_BACK
        self.ledger.write()
        yield "apply.7 ledgered"
        result.applied = epochs[-1].manifest.epoch
        result.epochs += len(epochs)
        result.events += rows
        result.duplicates += change.duplicates
        result.dead_letters += change.dead_letters
        result.not_applied += _not_applied(change, rows)

    def _before_bad_frame(
        self,
        epochs: Sequence[PlannedEpoch],
        apply_number: int,
        error: FrameError,
        result: ApplyResult,
    ) -> Steps[None]:
        """Apply the epochs before the one with the bad frame, and hold the stream there."""
        for index, epoch in enumerate(epochs):
            try:
                self.target.check_frames(epoch)
            except FrameError as bad:
                if self.ledger.catch_up(self.target) != apply_number:
                    raise Replan(
                        "another receiver has applied, and the sender may have trimmed since"
                    ) from bad
                if index:
                    yield from self._apply_valid(epochs[:index], apply_number, result)
                if not index or result.applied == epochs[index - 1].manifest.epoch:
                    self._hold(result, epoch.manifest.epoch, bad)
                return
        # The driver can read all frames: the error may have passed.
        if self._passed is None:
            self._passed = error
            raise Replan(str(error)) from error
        tasks_only = FrameError(
            f"{error} The driver can read the frame: check that the executors reach the channel "
            "under the same path, too."
        )
        self._hold(result, epochs[0].manifest.epoch, tasks_only)

    def _plan(self, listed: Sequence[int] | None, acked: Ack | None) -> StreamPlan:
        plan = self._plan_listed(listed, acked)
        if plan.held is not None and (self.log.forget() or listed is not None):
            # Listing and manifests may be outdated: the log may have been extended and trimmed, or
            # replaced, since.
            plan = self._plan_listed(None, acked)
        return plan

    def _plan_listed(self, listed: Sequence[int] | None, acked: Ack | None) -> StreamPlan:
        try:
            epochs = self.log.since(0, listed)
        except WanError as error:
            # The log cannot be read now; what was acked stays acked.
            log_id, known = (acked.log_id, acked.in_table) if acked is not None else ("", 0)
            return StreamPlan(self.log.stream, log_id, known).hold(known + 1, error)
        acks = {acked.log_id: acked.in_table} if acked is not None else {}
        progress = self.ledger.progress
        planner = StreamPlanner(
            self._inbound,
            self.site,
            progress=progress,
            acked=acks,
            max_bytes=self.max_bytes,
            max_epochs=self.max_epochs,
        )
        return planner.plan(epochs)

    def _mark(self, change: Change, apply_number: int) -> Mark:
        newest, ledger = change.newest, self.ledger
        applied = change.applied(ledger.dead_letters.get(newest.stream, 0))
        columns = ledger.columns.with_columns(column_paths(newest.schema))
        mark = ledger.mark(apply_number, applied, columns, local=ledger.known_local)
        if ledger.progress.lost:
            return mark  # what the lost marks applied, it cannot say
        progress = ledger.progress.copy()
        for epoch in change.epochs:  # they may be of several logs of their origin
            root = epoch.manifest.written_at_origin
            progress.advance(applied.key, applied.through, applied, root)
        return replace(mark, vector=progress.vector, logs=progress.logs)

    def _hold(self, result: ApplyResult, epoch: int, error: Exception) -> None:
        if isinstance(error, LedgerError):
            self.ledger.forget()
        result.held, result.cause, result.passes = epoch, str(error), may_pass(error)
        result.needs = error.needs if isinstance(error, WanError) else None

    def _ack(self, result: ApplyResult, before: Ack | None, working: int | None = None) -> None:
        """Report what is applied, which writes the ack unless the channel has the same one."""
        log_id = result.plan.log_id or (before.log_id if before is not None else "")
        need = self._need(result, before)
        if need is not None and self.synchronizer is not None:
            result.cause = self.synchronizer.needed(
                self.log.stream, need, str(result.cause), self._has_own_rows
            )
        ack = Ack(
            site=self.site,
            stream=self.log.stream,
            log_id=log_id,
            applied=result.applied,
            held=result.held,
            cause=result.cause,
            passes=result.passes,
            dead_letters=self._dead_letters(before),
            working=working,
            needs=need,
        )
        self._tell(ack.dead_letters, before.dead_letters if before is not None else 0)
        self._answer.report_applied(ack, before)

    def copy_taken(self) -> None:
        """Tell the sender of the stream, which may be idle, that a copy of the table was taken: it
        supersedes dead letters, and may have rows that were refused. Raises ChannelError."""
        before = self._answer.known
        if before is not None:
            count = self._dead_letters(before)
            self._tell(count, before.dead_letters)
            self._answer.report_dead_letters(count)

    def _tell(self, count: int, before: int) -> None:
        """Tell the sender what could not be applied, if that is not what it knows. ``count``: how
        many events that are now, and were ``before``."""
        if not self.ledger.dead_letters:
            return  # there are none, or the ledger has not been read
        is_copied = self.ledger.copied != self._told_copy
        if self._untold or is_copied or count > before:
            self._untold = not self.tell_refused(is_copied)
        self._told_copy = self.ledger.copied

    def _dead_letters(self, before: Ack | None) -> int:
        """Return how many events of the stream became dead letters here. So did rows of copies of
        the table, whose streams end once they are taken: each stream of events counts them, too."""
        letters = self.ledger.dead_letters
        if not letters and before is not None:
            return before.dead_letters  # the ledger has not been read
        own = letters.get(self.log.stream, 0)
        if copied_stream(self.log.stream) is not None:
            return own
        return own + sum(n for stream, n in letters.items() if copied_stream(stream) is not None)

    def _has_own_rows(self) -> bool:
        """Whether a copy might take rows away that no receiver wrote; also if that is unknown."""
        try:
            return self.ledger.has_own_rows(self.target)
        except WanError as error:
            log.warning(
                "%s: its history cannot be read, so the site asks for no copy by itself: %s",
                self.table,
                error,
                event="history-unreadable",
                table=self.table,
                cause=str(error),
            )
            return True

    def _need(self, result: ApplyResult, before: Ack | None) -> Need | None:
        """Return what the site needs a copy for; the time is that of the first report of it."""
        if result.needs is None:
            # Where the table could not be read, what was needed is needed still.
            unread = result.held is not None and not self._is_read
            return before.needs if unread and before is not None else None
        least = result.plan.least if result.needs == result.plan.needs else ()
        if result.needs == EPOCHS and not least:  # frames of an epoch are gone
            least = tuple(
                (*origin_of(each.manifest), each.manifest.last_version)
                for each in result.plan.new
                if each.manifest.epoch == result.held and each.manifest.kind != EVENTS
            )
        if result.needs in (TABLE, LEDGER, COLUMNS):
            least = self.ledger.progress.vector  # what the site had, as far as it knows
        need = Need(result.needs, least, since=self.ledger.clock())
        return need.since_before(before.needs if before is not None else None)


def _not_applied(change: Change, rows: int) -> NotApplied:
    """Return what of a change, which has so many events, was not applied, by reason."""
    if change.superseded is None:
        return NotApplied(uncounted=rows)
    return NotApplied(superseded=change.superseded, covered=change.covered)
