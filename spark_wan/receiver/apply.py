"""Applying a stream to a table: the receiver's numbered path.

:meth:`TableApplier.round` takes the next epochs of one stream. Each step is idempotent; a crash between any two changes nothing:

    apply.1  caught-up   the ledger, from marked commits; this fixes the apply number
    apply.2  planned     from log and ledger: new, known, waiting, held
    apply.3  read        frames fetched, checked, decoded; rows that cannot be applied are found
    apply.4  resolved    event IDs seen before are dropped; one row per key, the highest version
    apply.5  recorded    dead letters and event IDs, under the apply number's token: they count once that apply is marked
    apply.6  written     one commit to the table, marked; a conflict or a skipped write goes back to step 1, never to the write
    apply.7  ledgered    the mark is in the ledger
    apply.8  acked       and not before

Forwarding (later) runs beside it as streams of its own; an ack then says the lower of applied and forwarded.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from spark_wan.channels.log import StreamLog
from spark_wan.control.decisions import Decisions
from spark_wan.errors import (
    DeadLettersError,
    FrameError,
    LedgerError,
    ManifestError,
    StoppedError,
    TargetError,
    WanError,
)
from spark_wan.events.columns import column_paths
from spark_wan.ledger.applied_columns import AppliedColumns
from spark_wan.ledger.ledger import Ledger, TargetHistory
from spark_wan.ledger.progress import origin_of
from spark_wan.receiver.plan import PlannedEpoch, StreamPlan, plan_stream
from spark_wan.steps import Steps
from spark_wan.wire.ack import Ack
from spark_wan.wire.manifest import EVENTS
from spark_wan.wire.mark import Mark

log = logging.getLogger(__name__)

ATTEMPTS = 20
"""So often a round begins again after conflicts with other writers before the stream is held (and tried again later)."""


class Replan(Exception):
    """The plan no longer holds: begin again with step 1."""


class WriteConflict(Replan):
    """Another writer was faster."""


@dataclass
class ApplyWork:
    """Epochs that were read, on their way into the table. ``content`` belongs to the target's adapter."""

    epochs: Sequence[PlannedEpoch]
    content: Any = None
    ids: bool = False
    dead_letters: int = 0
    duplicates: int = 0
    new_ids: int = 0
    ids_until: int | None = None
    """See :class:`~spark_wan.wire.mark.Mark`."""


class TargetTable(TargetHistory, Protocol):
    """A table as the applier sees it. The Spark adapter and the simulation each have one."""

    def create(self, epoch: PlannedEpoch) -> None:
        """Make the table, with the epoch's columns. Only on first contact."""

    def read(self, epochs: Sequence[PlannedEpoch], applied: AppliedColumns) -> ApplyWork:
        """Fetch, check and decode epochs; reconcile columns, after those that were ``applied`` are known to be there still; find rows that cannot
        be applied."""

    def resolve(self, work: ApplyWork) -> None:
        """Drop events that were applied before; one row per key. Raises DeadLettersError."""

    def record(self, work: ApplyWork, apply: int, token: str) -> None:
        """Record dead letters and event IDs under the token."""

    def write(self, work: ApplyWork, mark: Mark) -> None:
        """One commit with the mark, under transaction number ``mark.apply``. Raises WriteConflict, TargetError."""

    def done(self, work: ApplyWork) -> None:
        """Let go of what ``work`` holds."""

    def check_frames(self, epoch: PlannedEpoch) -> None:
        """Fetch and check every frame of an epoch. Raises FrameError."""


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
    held: int | None = None
    cause: str | None = None

    @property
    def again(self) -> bool:
        """More is waiting that this round left for the next."""
        return self.held is None and (
            self.plan.more
            or bool(self.plan.new and self.applied < self.plan.new[-1].manifest.epoch)
        )


@dataclass
class TableApplier:
    """Applies one stream to one table at one site. One at work per table at a time."""

    site: str
    table: str
    log: StreamLog
    target: TargetTable
    ledger: Ledger
    max_bytes: int = 256 * 1024 * 1024
    max_epochs: int = 200
    check_stopped: Callable[[], None] = lambda: None
    """Raises StoppedError when the work was cancelled."""
    decisions: Callable[[], Decisions] = Decisions
    """What the user has decided about the table, as it is recorded now. Asked only where a decision is needed."""
    _recorded: tuple[tuple[object, ...], str] | None = None
    """Of the apply that was recorded last: what it is, and its token."""
    _passed: FrameError | None = None
    """A bad frame that was found to be sound, in this round."""

    def round(self, numbers: Sequence[int] | None = None) -> Steps[ApplyResult]:
        """Plan and apply what the log has. Errors of the stream, the table or its frames hold the stream: the result says where
        and why, the ack too. ``numbers``: the epochs in the stream's log, if the caller has listed them already."""
        acked = self.log.acks().get(self.site)
        result = ApplyResult(
            StreamPlan(self.log.stream), applied=acked.applied if acked is not None else 0
        )
        # Only an apply may rest on a hint: the write finds out when it was wrong, and nothing else does.
        hint = self.ledger.seems_current(self.target)
        confirmed = False
        self._passed = None
        for _ in range(ATTEMPTS):
            self.check_stopped()
            try:
                number, result = yield from self._planned(numbers, acked, hint)
                yield from self._apply_planned(number, result)
            except StoppedError:
                raise
            except Replan as reason:
                log.info("%s: %s; planning again", self.table, reason)
                hint = False
                continue
            except WanError as error:
                self._hold(result, result.applied + 1, error)
            doubtful = hint and not result.epochs
            if result.plan.held is not None and not result.epochs and not confirmed:
                # Another receiver may have applied, and what it acked been trimmed, between the look at the ledger and that at the log.
                doubtful = confirmed = True
                if self.ledger.progress.lost:
                    self.ledger.forget()  # it may have been restored
            if not doubtful:
                break
            hint = False
        else:
            lost = f"{self.table}: {ATTEMPTS} writes in a row lost against other writers of the table. Tried again later."
            self._hold(result, result.applied + 1, TargetError(lost))
        self._ack(result, acked)
        yield "apply.8 acked"
        return result

    def unexpected(self, cause: str) -> ApplyResult:
        """The result of a round that an error of no known kind ended: the stream is held, and tried again later."""
        acked = self.log.acks().get(self.site)
        result = ApplyResult(
            StreamPlan(self.log.stream), applied=acked.applied if acked is not None else 0
        )
        self._hold(result, result.applied + 1, TargetError(cause))
        self._ack(result, acked)
        return result

    def _planned(
        self, numbers: Sequence[int] | None, acked: Ack | None, hint: bool
    ) -> Steps[tuple[int | None, ApplyResult]]:
        """Return the number of the next apply (None: there is no table yet), and what there is to apply."""
        number = self.ledger.last_apply + 1 if hint else self.ledger.catch_up(self.target)
        yield "apply.1 caught-up"
        plan = self._plan(numbers, acked)
        result = ApplyResult(
            plan, applied=plan.known, duplicates=plan.duplicates, held=plan.held, cause=plan.cause
        )
        yield "apply.2 planned"
        return number, result

    def _apply_planned(self, number: int | None, result: ApplyResult) -> Steps[None]:
        """Apply what was planned, or as much of it as goes; what does not is held. Raises Replan."""
        epochs = result.plan.new
        if not epochs:
            return
        try:
            if number is None:
                self.target.create(epochs[0])
                raise Replan(
                    "the table was made, perhaps by another receiver that has applied since"
                )
            yield from self._apply_sound(epochs, number, result)
        except StoppedError:
            raise
        except WanError as error:
            self._hold(result, epochs[0].manifest.epoch, error)

    def _apply_sound(
        self, epochs: Sequence[PlannedEpoch], number: int, result: ApplyResult
    ) -> Steps[None]:
        """Apply the epochs, or those before a bad frame or before too many dead letters."""
        try:
            yield from self._apply(epochs, number, result)
        except FrameError as error:
            yield from self._before_bad_frame(epochs, number, error, result)
        except DeadLettersError as error:
            # How many epochs were waiting decides nothing: those that can go on alone do, and the next round takes the rest.
            if len(epochs) > 1:
                yield from self._apply_sound(epochs[: len(epochs) // 2], number, result)
            else:
                self._hold(result, epochs[0].manifest.epoch, error)

    def _apply(
        self, epochs: Sequence[PlannedEpoch], number: int, result: ApplyResult
    ) -> Steps[None]:
        work = self.target.read(epochs, self.ledger.columns)
        try:
            yield "apply.3 read"
            self.target.resolve(work)
            yield "apply.4 resolved"
            self.check_stopped()
            mark = self._record(self._mark(epochs, number, work), work)
            yield "apply.5 recorded"
            self.target.write(work, mark)
            yield "apply.6 written"
        finally:
            self.target.done(work)
        self.ledger.catch_up(self.target)
        if not self.ledger.applied_now(mark.token):
            if self.ledger.last_apply < number:
                raise LedgerError(
                    f"{self.table}: Delta skipped apply {number} at site {self.site}: the table has taken an apply of that number before, but neither its "
                    f"history nor the ledger knows it. Stop this site's receivers and restore the ledger; or {self.ledger.anew}."
                )
            raise WriteConflict(
                f"another receiver has used apply number {number}, and Delta skipped this write"
            )
        yield "apply.7 ledgered"
        result.applied = epochs[-1].manifest.epoch
        result.epochs += len(epochs)
        result.events += sum(epoch.manifest.rows for epoch in epochs)
        result.duplicates += work.duplicates
        result.dead_letters += work.dead_letters

    def _record(self, mark: Mark, work: ApplyWork) -> Mark:
        """Record what belongs to the mark; once, where the same apply is tried again since its write has failed. Returns the mark to write."""
        same = mark.apply, mark.new_ids, tuple(epoch.manifest.fingerprint for epoch in work.epochs)
        if self._recorded is not None and self._recorded[0] == same and not work.dead_letters:
            return replace(mark, token=self._recorded[1])
        self._recorded = None
        self.target.record(work, mark.apply, mark.token)
        if not work.dead_letters:  # which of the rows those are may change meanwhile
            self._recorded = same, mark.token
        return mark

    def _before_bad_frame(
        self, epochs: Sequence[PlannedEpoch], number: int, error: FrameError, result: ApplyResult
    ) -> Steps[None]:
        """A frame is bad: apply the epochs before its own, and hold the stream there."""
        for index, epoch in enumerate(epochs):
            try:
                self.target.check_frames(epoch)
            except FrameError as found:
                if self.ledger.catch_up(self.target) != number:
                    raise Replan(
                        "another receiver has applied, and what it acked may be trimmed"
                    ) from found
                if index:
                    yield from self._apply_sound(epochs[:index], number, result)
                if not index or result.applied == epochs[index - 1].manifest.epoch:
                    self._hold(result, epoch.manifest.epoch, found)
                return
        # All frames are sound from here. Whatever it was may have passed.
        if self._passed is None:
            self._passed = error
            raise Replan(str(error)) from error
        beyond = FrameError(
            f"{error} Here the frame can be read: check that the executors reach the channel under the same path, too."
        )
        self._hold(result, epochs[0].manifest.epoch, beyond)

    def _plan(self, numbers: Sequence[int] | None, acked: Ack | None) -> StreamPlan:
        plan = self._plan_listed(numbers, acked)
        if plan.held is not None and numbers is not None:
            # An older listing is no reason to hold: the log may have been extended and trimmed since.
            plan = self._plan_listed(None, acked)
        return plan

    def _plan_listed(self, numbers: Sequence[int] | None, acked: Ack | None) -> StreamPlan:
        try:
            listed = self.log.since(0, numbers)
        except WanError as error:
            # Nothing is known of the log now; what was acked stays acked.
            log_id, known = (acked.log_id, acked.applied) if acked is not None else ("", 0)
            return StreamPlan(self.log.stream, log_id, known, held=known + 1, cause=str(error))
        return plan_stream(
            self.log.stream,
            listed,
            self._read_manifest,
            self.ledger.progress,
            self.site,
            {acked.log_id: acked.applied} if acked is not None else {},
            max_bytes=self.max_bytes,
            max_epochs=self.max_epochs,
            accepts=lambda log_id: log_id in self.decisions().new_logs,
        )

    def _read_manifest(self, number: int) -> Any:
        manifest = self.log.read(number)
        if manifest.table != self.table:
            raise ManifestError(
                f"{self.log.stream}: manifest {number} is for table {manifest.table}, not {self.table}."
            )
        return manifest

    def _mark(self, epochs: Sequence[PlannedEpoch], number: int, work: ApplyWork) -> Mark:
        last = epochs[-1].manifest
        origin, table_id, selection = origin_of(last)
        columns = self.ledger.columns.with_columns(column_paths(last.schema))
        return Mark(
            site=self.site,
            table=self.table,
            apply=number,
            token=uuid.uuid4().hex,
            origin=origin,
            table_id=table_id,
            selection=selection,
            through=last.last_version if last.kind != EVENTS else -1,
            stream=last.stream,
            log_id=last.log_id,
            epoch=last.epoch,
            fingerprint=last.fingerprint,
            ids=work.ids,
            dead_letters=self.ledger.dead_letters.get(last.stream, 0) + work.dead_letters,
            columns=columns.columns,
            moved=columns.moved,
            new_ids=work.new_ids if work.ids else None,
            ids_until=work.ids_until,
        )

    def _hold(self, result: ApplyResult, number: int, error: Exception) -> None:
        if isinstance(error, LedgerError):
            self.ledger.forget()
        result.held, result.cause = number, str(error)

    def _ack(self, result: ApplyResult, before: Ack | None) -> None:
        """Answer, if the answer is another one than the channel has."""
        log_id = result.plan.log_id or (before.log_id if before is not None else "")
        answer = Ack(
            site=self.site,
            stream=self.log.stream,
            log_id=log_id,
            applied=result.applied,
            held=result.held,
            cause=result.cause,
            dead_letters=self.ledger.dead_letters.get(
                self.log.stream, before.dead_letters if before is not None else 0
            ),
        )
        if answer != before:
            self.log.channel.put_ack(self.log.stream, self.site, answer.encode())
