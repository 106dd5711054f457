"""Taking a copy: the receiver's other numbered path.

A copy takes the place of all rows that a site has of a table, in one marked commit: nobody reads
half of it. :meth:`CopyTaker.round` is idempotent, and a crash between any two steps changes
nothing:

    take.1  asked      this site's request, in its ack, and the copy that answers it
    take.2 to take.7   the copy is put in place (:mod:`spark_wan.apply.replace`). If the table has
                       more than the copy by now, another one is asked for
    take.8  acked      the request is answered
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from spark_wan.apply.applier import ApplyResult
from spark_wan.apply.change import Change, TargetTable
from spark_wan.apply.plan import PlannedEpoch, StreamPlan
from spark_wan.apply.replace import CopyWriter, Outcome
from spark_wan.errors import (
    LedgerError,
    SourceError,
    StoppedError,
    TargetError,
    UntrustedError,
    WanError,
    may_pass,
)
from spark_wan.events.operations import EVENT_ID_COLUMNS
from spark_wan.ledger.ledger import Ledger
from spark_wan.ledger.progress import origin_of
from spark_wan.log.inbound import InboundLog
from spark_wan.log.stream_log import StreamLog
from spark_wan.steps import Steps
from spark_wan.wire.ack import Ack, Wanted
from spark_wan.wire.manifest import EVENT_IDS, ROWS, USER_TABLE_ID, Manifest


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
    from_writer: bool = True
    """The site that serves the copies writes the table; else it has a copy itself."""
    gap_behind: Callable[[Manifest], str | None] = lambda manifest: None
    """Returns why a stream would be held behind a copy; None: it would go on."""
    refused: Callable[[Wanted, str], bool] = lambda wanted, cause: False
    """Asks another site, when this one serves no copy, and returns whether there is one."""
    _inbound: InboundLog = field(init=False)
    _writer: CopyWriter = field(init=False)

    def __post_init__(self) -> None:
        self._inbound = InboundLog(self.log, self.table, writers=self.writers, copies=True)
        self._writer = CopyWriter(
            self.site,
            self.table,
            self.target,
            self.ledger,
            check_stopped=self.check_stopped,
            from_writer=self.from_writer,
        )

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
                result.awaits_copy = True  # perhaps some parts are there
                return result
            if ack.wanted is not None:
                yield from self._answered(newest, ack.wanted, result, ack)
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
            and (_has_rows(manifest) or not (manifest.copy.has_rows or manifest.frames))
        )

    def _answered(
        self, manifest: Manifest, wanted: Wanted, result: ApplyResult, ack: Ack
    ) -> Steps[None]:
        """Take the copy; of one that is refused, ask another site."""
        assert manifest.copy is not None
        cause = manifest.copy.refused or self.gap_behind(manifest)
        if cause is None:
            yield from self._take(manifest, result, ack)
        elif not self.refused(wanted, cause):
            raise SourceError(
                f"{self.log.stream}: no site serves a copy of the table now. The last one says: "
                f"{cause}"
            )

    def _take(self, manifest: Manifest, result: ApplyResult, ack: Ack) -> Steps[None]:
        parts = self._parts(manifest)
        ids = parts[0] if _content(parts[0]) == EVENT_IDS else None
        rows = [PlannedEpoch(each, -1) for each in parts if each is not ids]
        if not rows:
            raise UntrustedError(
                f"{self.log.stream}: manifest {manifest.epoch} ends a copy without rows. Nothing "
                "of it is taken. Ask for the copy again; if that happens again, find out who else "
                "writes to the stream."
            )
        outcome, change = yield from self._writer.put(lambda: Change(rows, copied_ids=ids))
        if outcome is Outcome.BEHIND:
            self._ask_again(manifest, result, ack)
        elif outcome is Outcome.WRITTEN:
            result.epochs, (result.events, _) = len(parts), change.rows_and_bytes
            result.dead_letters = change.dead_letters

    def _parts(self, last: Manifest) -> Sequence[Manifest]:
        """Return the manifests of all parts of a copy. Raises UntrustedError when they are none of
        one copy."""
        assert last.copy is not None
        first = last.epoch - last.copy.parts + 1
        earlier = range(max(1, first), last.epoch)
        for epoch in earlier:
            self.log.reread(epoch)  # what was read before may be of a part that did not count
        parts = [*map(self._inbound.read, earlier), last]
        for number, part in enumerate(parts, 1):
            expected = replace(
                last,
                epoch=first + number - 1,
                previous=parts[number - 2].fingerprint if number > 1 else part.previous,
                frames=part.frames,
                disjoint=part.disjoint,
                created=part.created,
                signature=part.signature,
                copy=replace(last.copy, part=number, content=ROWS),
            )
            if number == 1 and last.copy.logs:
                ids = replace(last.copy, part=1, content=EVENT_IDS)
                expected = replace(expected, schema=EVENT_ID_COLUMNS, copy=ids)
            if part != expected:
                raise UntrustedError(
                    f"{self.log.stream}: manifest {part.epoch} is not part {number} of the copy "
                    f"that ends with manifest {last.epoch}. Nothing of it is taken. Ask for the "
                    "copy again; if that happens again, find out who else writes to the stream."
                )
        return parts

    def _ask_again(self, manifest: Manifest, result: ApplyResult, ack: Ack) -> None:
        """Ask for a copy that has what the table has now."""
        assert ack.wanted is not None
        has = self.ledger.progress
        logs = has.logs if _is_of_users(manifest) else ()
        wanted = replace(ack.wanted, request=uuid.uuid4().hex, least=has.vector, logs=logs)
        self.log.put_ack(replace(ack, wanted=wanted))
        result.awaits_copy, result.held = True, manifest.epoch
        result.cause = (
            f"{self.table}: this site has applied more than the copy in manifest {manifest.epoch} "
            "has. Another copy was asked for; until it is here, nothing else is applied to the "
            "table."
        )

    def _hold(self, result: ApplyResult, error: WanError) -> None:
        if isinstance(error, LedgerError):
            self.ledger.forget()
        result.held, result.cause = result.applied + 1, str(error)
        result.passes = may_pass(error)

    def _ack(self, before: Ack, result: ApplyResult, newest: Manifest | None) -> None:
        """Say that the newest copy is taken, or what holds it; unless the channel has the same
        ack. A request that was made meanwhile stays."""
        ack = replace(before, held=result.held, cause=result.cause, passes=result.passes)
        if newest is not None and result.held is None:
            result.applied = newest.epoch
            ack = replace(ack, log_id=newest.log_id, applied=newest.epoch, wanted=None)
        now = self.log.ack(self.site)
        if now is not None and now.wanted != before.wanted:
            ack = replace(ack, wanted=now.wanted, held=None, cause=None)
        ack = ack.held_since(before, self.ledger.clock())
        if ack != now:
            self.log.put_ack(ack)


def _answers(manifest: Manifest, wanted: Wanted) -> bool:
    return manifest.copy is not None and manifest.copy.answers(wanted.request)


def _has_rows(manifest: Manifest) -> bool:
    """Whether a copy has the rows of a version, and says so."""
    assert manifest.copy is not None
    if _is_of_users(manifest):
        return bool(manifest.copy.logs) and not manifest.copy.vector
    return (*origin_of(manifest), manifest.last_version) in manifest.copy.vector


def _is_of_users(manifest: Manifest) -> bool:
    return manifest.table_id == USER_TABLE_ID


def _content(manifest: Manifest) -> str | None:
    return manifest.copy.content if manifest.copy is not None else None
