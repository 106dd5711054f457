"""Taking a copy: the receiver's other numbered path.

A copy takes the place of all rows that a site has of a table, in one marked commit: nobody reads
half of it. :meth:`CopyTaker.round` is idempotent, and a crash between any two steps changes
nothing:

    take.1  asked      this site's request, in its ack, and the copy that answers it
    take.2  caught-up  the ledger, if it can be; this fixes the apply number. A table that is
                       missing is created
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
from spark_wan.errors import LedgerError, StoppedError, TargetError, WanError
from spark_wan.events.columns import column_paths
from spark_wan.ledger.applied_columns import AppliedColumns
from spark_wan.ledger.ledger import Ledger
from spark_wan.log.inbound import InboundLog
from spark_wan.log.stream_log import StreamLog
from spark_wan.runtime.progress import under_way
from spark_wan.steps import Steps
from spark_wan.wire.ack import Ack
from spark_wan.wire.manifest import Manifest
from spark_wan.wire.mark import AppliedStream, Mark

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
        result, manifest = self._nothing(ack), None
        try:
            manifest = self._answer_to(ack, listed)
            if manifest is None:
                return result
            yield "take.1 asked"
            for _ in range(ATTEMPTS):
                self.check_stopped()
                try:
                    yield from self._take(manifest, result)
                    break
                except Replan as reason:
                    log.info("%s: %s; taking the copy again", self.table, reason)
            else:
                raise TargetError(
                    f"{self.table}: {ATTEMPTS} writes of a copy in a row lost against other "
                    "writers of the table. The receiver will retry."
                )
        except StoppedError:
            raise
        except WanError as error:
            self._hold(result, error)
        if ack is not None:
            self._ack(ack, result, manifest)
        yield "take.8 acked"
        return result

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

    def _answer_to(self, ack: Ack | None, listed: Sequence[int] | None) -> Manifest | None:
        """Return the copy that answers this site's request; None: there is none yet, or nothing was
        asked."""
        epochs = self.log.since(0, listed)
        if not epochs or ack is None or ack.wanted is None:
            return None
        manifest = self._inbound.read(epochs[-1])
        asked = manifest.copy is not None and manifest.copy.request == ack.wanted.request
        return manifest if asked else None

    def _take(self, manifest: Manifest, result: ApplyResult) -> Steps[None]:
        change = Change([PlannedEpoch(manifest, -1)])
        apply_number = self._apply_number(change)
        yield "take.2 caught-up"
        if self._is_taken(manifest):
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

    def _apply_number(self, change: Change) -> int:
        """Return the number of this apply, whatever state the table and its ledger are in. Raises
        Replan once a missing table is created."""
        try:
            apply_number = self.ledger.catch_up(self.target)
        except WanError as error:
            if error.needs is None:
                raise
            if self.target.table_id() is not None:
                return self.ledger.number_of_copy(self.target)
            apply_number = None
        if apply_number is None:
            self.target.create(change.epochs[0])
            raise Replan("the table was created")
        return apply_number

    def _mark(self, manifest: Manifest, change: Change, apply_number: int) -> Mark:
        assert manifest.copy is not None
        applied = AppliedStream(
            origin=manifest.origin,
            table_id=manifest.table_id,
            selection=manifest.selection,
            through=manifest.last_version,
            stream=manifest.stream,
            log_id=manifest.log_id,
            epoch=manifest.epoch,
            fingerprint=manifest.fingerprint,
            ids=False,
            dead_letters=change.dead_letters,
        )
        columns = AppliedColumns().with_columns(column_paths(manifest.schema))
        return Mark(
            site=self.site,
            table=self.table,
            apply=apply_number,
            token=uuid.uuid4().hex,
            applied=(applied,),
            columns=columns.columns,
            moved=columns.moved,
            vector=manifest.copy.vector,
            logs=((applied.stream, applied.log_id, applied.epoch, applied.fingerprint),),
            local=0,
            replaced=self.ledger.newest_read,
        )

    def _hold(self, result: ApplyResult, error: WanError) -> None:
        if isinstance(error, LedgerError):
            self.ledger.forget()
        result.held, result.cause = result.applied + 1, str(error)

    def _ack(self, before: Ack, result: ApplyResult, manifest: Manifest | None) -> None:
        """Say that the copy is taken, or what holds it; unless the channel has the same ack."""
        ack = replace(before, held=result.held, cause=result.cause)
        if manifest is not None and result.held is None:
            result.applied = manifest.epoch
            ack = replace(ack, log_id=manifest.log_id, applied=manifest.epoch, wanted=None)
        if ack != before:
            self.log.put_ack(ack)
