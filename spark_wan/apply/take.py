"""Taking a copy: the receiver's other numbered path.

A copy takes the place of all rows that a site has of a table, in one marked commit: nobody reads
half of it. :meth:`CopyTaker.round` is idempotent, and a crash between any two steps changes
nothing:

    take.1  asked      this site's request, in its ack, and the copy that answers it
    take.2  caught-up  the ledger, if it can be; this fixes the apply number. A table that is
                       missing is created. If the table has more than the copy by now, another
                       one is asked for
    take.3  read       frames fetched, checked, decoded
    take.4  resolved   rows that the table would refuse become dead letters
    take.5  recorded   dead letters, under the apply's token
    take.6  written    one marked commit: the rows and their vector
    take.7  ledgered   from here on the ledger counts from this mark
    take.8  acked      the request is answered
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from spark_wan.apply.applier import ATTEMPTS, ApplyResult
from spark_wan.apply.change import Change, Replan, TargetTable, WriteConflict
from spark_wan.apply.plan import PlannedEpoch, StreamPlan
from spark_wan.errors import LedgerError, StoppedError, TargetError, UntrustedError, WanError
from spark_wan.events.columns import column_paths
from spark_wan.ledger.applied_columns import AppliedColumns
from spark_wan.ledger.ledger import Ledger
from spark_wan.ledger.progress import origin_of
from spark_wan.log.inbound import InboundLog
from spark_wan.log.stream_log import StreamLog
from spark_wan.runtime.progress import under_way
from spark_wan.steps import Steps
from spark_wan.wire.ack import Ack, Wanted
from spark_wan.wire.manifest import Manifest
from spark_wan.wire.mark import Mark

log = logging.getLogger(__name__)


@dataclass
class CopyTaker:
    """Takes copies of one table at one site."""

    site: str
    table: str
    log: StreamLog
    """Of the copies."""
    target: TargetTable
    ledger: Ledger
    check_stopped: Callable[[], None] = lambda: None
    """Raises StoppedError when the receiver was stopped."""
    writers: Collection[str] | None = None
    """The sites that write the table, by the topology; None: any site."""
    _inbound: InboundLog = field(init=False)

    def __post_init__(self) -> None:
        self._inbound = InboundLog(self.log, self.table, writers=self.writers, copies=True)

    def round(self, listed: Sequence[int] | None = None) -> Steps[ApplyResult]:
        """Take the copy that this site has asked for. Errors hold the copy: result and ack name the
        cause, and the table is as it was."""
        ack = self.log.ack(self.site)
        result, newest = self._nothing(ack), None
        try:
            newest = self._newest(listed)
            if newest is None:
                return result
            # An ack that was lost is written again: the copy stays in the channel without one.
            ack = ack or Ack(self.site, self.log.stream, log_id="", applied=0)
            yield "take.1 asked"
            if ack.wanted is not None and not _answers(newest, ack.wanted):
                result.awaits_copy = True
                return result
            if ack.wanted is not None:
                yield from self._take_again(newest, result, ack)
        except StoppedError:
            raise
        except WanError as error:
            self._hold(result, error)
        if ack is not None and not result.awaits_copy:
            self._ack(ack, result, newest)
        yield "take.8 acked"
        return result

    def is_awaited(self) -> bool:
        """Whether this site has asked for a copy that it does not have yet."""
        ack = self.log.ack(self.site)
        return ack is not None and ack.wanted is not None

    def unexpected(self, cause: str) -> ApplyResult:
        """Hold the copy after an unexpected error, and return the result of that round."""
        ack = self.log.ack(self.site)
        result = self._nothing(ack)
        self._hold(result, TargetError(cause))
        if ack is not None:
            self._ack(ack, result, None)
        return result

    def _nothing(self, ack: Ack | None) -> ApplyResult:
        return ApplyResult(StreamPlan(self.log.stream), applied=ack.applied if ack else 0)

    def _newest(self, listed: Sequence[int] | None) -> Manifest | None:
        """Return the newest copy; None: there is none."""
        epochs = self.log.since(0, listed)
        if not epochs:
            return None
        self.log.reread(epochs[-1])  # another log may have begun under this name
        manifest = self._inbound.read(epochs[-1])
        if not self._is_for_here(manifest):
            raise UntrustedError(
                f"{self.log.stream}: manifest {manifest.epoch} is no copy that the sender of the "
                f"table serves to site {self.site}. Nothing of it is taken. Find out who wrote it, "
                "and remove the stream."
            )
        return manifest

    def _is_for_here(self, manifest: Manifest) -> bool:
        """Whether a manifest is a copy for this site, as the sender of the table serves it."""
        return (
            manifest.copy is not None
            and manifest.via is None
            and manifest.addressees == (self.site,)
            and manifest.copy.vector in ((), ((*origin_of(manifest), manifest.last_version),))
            and bool(manifest.copy.vector) == bool(manifest.copy.request)
        )

    def _take_again(self, manifest: Manifest, result: ApplyResult, ack: Ack) -> Steps[None]:
        """Take a copy, and again while other writers of the table are faster."""
        for _ in range(ATTEMPTS):
            self.check_stopped()
            try:
                yield from self._take(manifest, result, ack)
                return
            except Replan as reason:
                log.info("%s: %s; taking the copy again", self.table, reason)
        raise TargetError(
            f"{self.table}: {ATTEMPTS} writes of a copy in a row lost against other writers of the "
            "table. The receiver will retry."
        )

    def _take(self, manifest: Manifest, result: ApplyResult, ack: Ack) -> Steps[None]:
        change = Change([PlannedEpoch(manifest, -1)])
        apply_number, is_known = self._apply_number(change)
        yield "take.2 caught-up"
        if is_known and self._is_taken(manifest):
            return
        if self._has_more(manifest):
            self._ask_again(manifest, result, ack)
            return
        rows, size = manifest.rows, manifest.bytes
        with under_way("applying", self.log.stream, self.site, rows=rows, size=size):
            self.target.read(change, AppliedColumns())
            try:
                yield "take.3 read"
                self.target.resolve(change)
                yield "take.4 resolved"
                self.check_stopped()
                mark = self._mark(manifest, change, apply_number)
                self.target.record(change, mark)
                yield "take.5 recorded"
                self.target.write(change, mark)
                yield "take.6 written"
            finally:
                self.target.done(change)
        self.ledger.catch_up(self.target)
        if mark.token not in self.ledger.tokens:
            raise WriteConflict(
                f"another receiver has used apply number {apply_number}, and Delta skipped this "
                "write"
            )
        yield "take.7 ledgered"
        result.epochs, result.events = 1, rows
        result.dead_letters = change.dead_letters

    def _is_taken(self, manifest: Manifest) -> bool:
        """Whether the table has this copy, by the ledger."""
        place = (manifest.stream, manifest.log_id)
        return self.ledger.progress.positions.get(place, 0) >= manifest.epoch

    def _has_more(self, manifest: Manifest) -> bool:
        """Whether the table has more than the copy: what came after it may be trimmed already."""
        assert manifest.copy is not None
        through = self.ledger.progress.through
        return any(
            through.get((site, table_id, selection), -1) > version
            for site, table_id, selection, version in manifest.copy.vector
        )

    def _ask_again(self, manifest: Manifest, result: ApplyResult, ack: Ack) -> None:
        """Ask for a copy that has what the table has now."""
        wanted = Wanted(uuid.uuid4().hex, self.ledger.progress.vector)
        self.log.put_ack(replace(ack, wanted=wanted))
        result.awaits_copy, result.held = True, manifest.epoch
        result.cause = (
            f"{self.table}: this site has applied more than the copy of version "
            f"{manifest.last_version} has. Another copy was asked for; until it is here, nothing "
            "else is applied to the table."
        )

    def _apply_number(self, change: Change) -> tuple[int, bool]:
        """Return the number of this apply, whatever state the table and its ledger are in, and
        whether the ledger knows the table. Raises Replan once a missing table is created."""
        try:
            apply_number = self.ledger.catch_up(self.target)
        except WanError as error:
            if error.needs is None:
                raise
            if self.target.table_id() is not None:
                return self.ledger.number_of_copy(self.target), False
            apply_number = None
        if apply_number is None:
            self.target.create(change.epochs[0])
            raise Replan("the table was created")
        return apply_number, True

    def _mark(self, manifest: Manifest, change: Change, apply_number: int) -> Mark:
        assert manifest.copy is not None
        applied = change.applied(self.ledger.dead_letters.get(manifest.stream, 0))
        return self.ledger.mark(
            apply_number,
            applied,
            AppliedColumns().with_columns(column_paths(manifest.schema)),
            vector=manifest.copy.vector,
            logs=((applied.stream, applied.log_id, applied.epoch, applied.fingerprint),),
            local=0,
            replaced=self.ledger.known_version,
        )

    def _hold(self, result: ApplyResult, error: WanError) -> None:
        if isinstance(error, LedgerError):
            self.ledger.forget()
        result.held, result.cause = result.applied + 1, str(error)

    def _ack(self, before: Ack, result: ApplyResult, newest: Manifest | None) -> None:
        """Say that the newest copy is taken, or what holds it; unless the channel has the same
        ack. A request that was made meanwhile stays."""
        ack = replace(before, held=result.held, cause=result.cause)
        if newest is not None and result.held is None:
            result.applied = newest.epoch
            ack = replace(ack, log_id=newest.log_id, applied=newest.epoch, wanted=None)
        now = self.log.ack(self.site)
        if now is not None and now.wanted != before.wanted:
            ack = replace(ack, wanted=now.wanted)
        if ack != now:
            self.log.put_ack(ack)


def _answers(manifest: Manifest, wanted: Wanted) -> bool:
    return manifest.copy is not None and manifest.copy.request == wanted.request
