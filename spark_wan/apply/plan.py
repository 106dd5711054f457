"""What to apply of a stream: planned from its log and the ledger, never from arrival.

Every epoch is one of: *known* (the ledger has it), *new*, *waiting* (a range that begins above
``applied + 1``), or *held* (going on could lose or change rows; nothing is skipped).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from spark_wan.errors import (
    EPOCHS,
    LEDGER,
    NEW_SITE,
    RESEND_TO_NEW_SITE,
    SOURCE,
    SYNC,
    LedgerError,
    LogGapError,
    WanError,
    copy_advice,
    may_pass,
)
from spark_wan.events.columns import fingerprint
from spark_wan.ledger.progress import Progress, origin_of
from spark_wan.log.inbound import InboundLog, Standing, follows, standing
from spark_wan.log.stream_log import StreamLog
from spark_wan.wire.decisions import NEW_LOG
from spark_wan.wire.manifest import EVENTS, SNAPSHOT, Manifest
from spark_wan.wire.mark import VectorEntry
from spark_wan.wire.records import EpochRef


@dataclass(frozen=True)
class PlannedEpoch:
    """An epoch to apply: only its rows with a version above ``above`` (-1: all of them)."""

    manifest: Manifest
    above: int


@dataclass
class StreamPlan:
    """The decision for one stream."""

    stream: str
    log_id: str = ""
    known: int = 0
    """Through this epoch, all in the log is applied here or is not for this site."""
    new: list[PlannedEpoch] = field(default_factory=list)
    size: int = 0
    """Bytes of their frames."""
    duplicates: int = 0
    """Events of known epochs that were not acked: redelivered, and discarded."""
    covered: int = 0
    """Those of epochs that were not applied from this log: a copy had them, or another log."""
    elsewhere: int = 0
    """Epochs that were not acked, and are not for this site."""
    held: int | None = None
    cause: str | None = None
    passes: bool = False
    """Whether the cause may pass though nobody does anything."""
    needs: str | None = None
    """Why the site needs a copy of the table (:class:`~spark_wan.errors.WanError`)."""
    least: tuple[VectorEntry, ...] = ()
    """What that copy has to have; empty: anything will do."""
    more: bool = False
    """Something is behind what is new: the limits have ended the plan, or epochs that need no apply
    and count once it is done."""
    ends: bool = False
    """The last of these epochs is where the stream was asked to end."""

    def hold(self, epoch: int, error: WanError, manifest: Manifest | None = None) -> StreamPlan:
        """End the plan before an epoch, whose ``manifest`` is given if it can be read."""
        if isinstance(error, _LogLostError):
            self.known = 0
        self.held, self.cause, self.needs = epoch, str(error), error.needs
        self.passes = may_pass(error)
        if error.needs is not None and manifest is not None and manifest.kind != EVENTS:
            snapshot = manifest.kind == SNAPSHOT
            through = manifest.last_version if snapshot else manifest.first_version - 1
            self.least = ((*origin_of(manifest), through),)
        return self


class _LogLostError(LogGapError):
    """The log is not the one of which epochs were applied, so none of it counts as applied."""


@dataclass(frozen=True)
class StreamPlanner:
    """Plans what one site applies of one stream."""

    log: InboundLog
    site: str
    progress: Progress
    acked: Mapping[str, int]
    """log_id -> the epoch in this site's last ack."""
    max_bytes: int
    max_epochs: int

    def plan(self, epochs: Sequence[int]) -> StreamPlan:
        """Decide about ``epochs``: ascending, without gaps, all that lead to the log's end."""
        plan = StreamPlan(self.log.stream)
        self._note_applied(epochs, plan)
        if plan.held is not None:
            return plan
        ahead, before = self.progress.copy(), None
        for epoch in [each for each in epochs if each > plan.known]:
            manifest: Manifest | None = None
            try:
                manifest = self.log.read(epoch)
                self._check_order(manifest, plan.log_id, before)
                plan.log_id, plan.ends, before = manifest.log_id, manifest.end, manifest
                above = _above(_Epoch(manifest, ahead, self.log.accepts, self.site))
            except WanError as error:
                return plan.hold(epoch, error, manifest)
            if above is None:
                self._pass_over(manifest, plan, ahead)
            elif self._exceeds_limits(plan, manifest):
                plan.more = True
                return plan
            else:
                plan.new.append(PlannedEpoch(manifest, above))
                plan.more = False
                plan.size += manifest.bytes
                last = -1 if manifest.kind == EVENTS else manifest.last_version
                ahead.advance(origin_of(manifest), last, manifest, manifest.written_at_origin)
        return plan

    def _note_applied(self, epochs: Sequence[int], plan: StreamPlan) -> None:
        """Note through which epoch the ledger has the log, or that it is not that log.

        Reads the newest manifest, and those that were not acked, to count duplicates."""
        try:
            newest = self.log.peek(epochs[-1]) if epochs else None
        except WanError:
            return  # then the manifests up to there say whether they follow
        taken = self._taken(newest.log_id) if newest is not None else None
        if newest is None or taken is None:
            return
        plan.log_id = newest.log_id
        stands = standing(taken, newest)
        if stands is Standing.ENDS_BEFORE:
            cause = _LogLostError(
                f"{self.log.stream}: the log ends at manifest {newest.epoch}, but this site has "
                f"applied through {taken.epoch} of it: the channel was restored to an older state. "
                "The stream is held, so that new epochs under old numbers are not taken for the "
                "applied ones; restore the channel's log."
            )
            plan.hold(newest.epoch + 1, cause)
            return
        if stands is Standing.REWRITTEN:
            plan.hold(taken.epoch + 1, _another(newest))
            return
        plan.known = taken.epoch
        plan.ends = newest.end and newest.epoch == taken.epoch
        for epoch in epochs:
            if self.acked.get(newest.log_id, 0) < epoch <= taken.epoch:
                try:
                    manifest = self.log.peek(epoch)
                except WanError:
                    continue
                plan.duplicates += manifest.rows if self.site in manifest.addressees else 0

    def _taken(self, log_id: str) -> EpochRef | None:
        """Return the epoch of a log that this site has applied last."""
        place = (self.log.stream, log_id)
        position = self.progress.positions.get(place)
        return EpochRef(*place, position, self.progress.fingerprints[place]) if position else None

    def _check_order(self, manifest: Manifest, log_id: str, before: Manifest | None) -> None:
        """Check that a manifest belongs to the log, and names the one ``before`` it (None: it is
        the first) and the applied one."""
        where = f"{manifest.stream}: manifest {manifest.epoch}"
        advice = _rewritten(manifest)
        if log_id and manifest.log_id != log_id:
            raise LogGapError(
                f"{where} belongs to another log than those before it: {advice}", needs=EPOCHS
            )
        if before is not None and manifest.previous != before.fingerprint:
            raise LogGapError(
                f"{where} does not follow manifest {manifest.epoch - 1}: {advice}", needs=EPOCHS
            )
        taken = self._taken(manifest.log_id)
        if taken is not None and (
            not follows(taken, manifest) or standing(taken, manifest) is Standing.REWRITTEN
        ):
            raise _another(manifest)

    def _pass_over(self, manifest: Manifest, plan: StreamPlan, ahead: Progress) -> None:
        """Count an epoch that is applied already, or is not for this site."""
        for_site = self.site in manifest.addressees
        position = ahead.position(self.log.stream, manifest.log_id)
        # For other sites: no gap. Of a user stream, the user does without what is before, or all
        # before it is known by the log of its origin.
        passed = manifest.epoch == position + 1 and not for_site
        if passed or manifest.kind == EVENTS:
            ahead.advance(origin_of(manifest), -1, manifest)
        if plan.new:
            plan.more = True
        else:
            plan.known = manifest.epoch
            if manifest.epoch <= self.acked.get(manifest.log_id, 0):
                return
            if for_site:
                plan.duplicates += manifest.rows
                plan.covered += manifest.rows
            else:
                plan.elsewhere += 1

    def _exceeds_limits(self, plan: StreamPlan, manifest: Manifest) -> bool:
        """Whether an epoch does not fit into one apply with those planned before it."""
        if not plan.new:
            return False
        last = plan.new[-1].manifest
        return (
            len(plan.new) >= self.max_epochs
            or plan.size + manifest.bytes > self.max_bytes
            or origin_of(manifest) != origin_of(last)
            or manifest.keys != last.keys
            or fingerprint(manifest.schema) != fingerprint(last.schema)
        )


def plan_behind(log: InboundLog, epochs: Sequence[int], site: str, behind: Progress) -> StreamPlan:
    """Plan what comes behind a copy or a backup, through the first epoch that would be applied."""
    return StreamPlanner(log, site, behind, {}, max_bytes=0, max_epochs=1).plan(epochs)


def gap_behind(
    copy: Manifest,
    logs: Iterable[StreamLog],
    site: str,
    writers: Collection[str],
    new_logs: Callable[[], Collection[str]],
) -> str | None:
    """Return why one of a table's streams would be held behind a copy, because something is missing
    between them; None: they would go on. ``new_logs``: those that the user has accepted."""
    assert copy.copy is not None
    progress = Progress.of(copy.copy.vector, copy.copy.logs)
    for log in logs:
        inbound = InboundLog(log, copy.table, new_logs=new_logs, writers=writers)
        plan = plan_behind(inbound, inbound.after(0), site, progress)
        if plan.needs == EPOCHS:
            return f"behind the copy the stream would be held: {plan.cause}"
    return None


_RESEND = (
    "write the missing events and all after them again, with their event IDs, to a new stream (the "
    "sink's option `stream`): those that are applied here are dropped. Then remove this stream "
    "from the channel."
)


def _rewritten(manifest: Manifest) -> str:
    way_out = _RESEND if manifest.kind == EVENTS else f"for a copy run {SYNC}."
    return (
        "the log was rewritten under its readers. The stream is held. Restore the channel's log; "
        f"or, without a copy of it, {way_out}"
    )


def _another(manifest: Manifest) -> _LogLostError:
    return _LogLostError(
        f"{manifest.stream}: manifest {manifest.epoch} is not the one that this site has applied, "
        f"or does not follow it: {_rewritten(manifest)}",
        needs=EPOCHS,
    )


# --- the rules: which rows of an epoch are new, and what holds it


@dataclass(frozen=True)
class _Epoch:
    """An epoch for this site, with what the rules compare it with."""

    manifest: Manifest
    progress: Progress
    accepts: Callable[[str], bool]
    site: str

    @property
    def where(self) -> str:
        return f"{self.manifest.stream}: epoch {self.manifest.epoch}"

    @property
    def dropped(self) -> str:
        """What to say of a gap if the sender has made it."""
        through = self.manifest.dropped.get(self.site)
        if through is None:
            return ""
        return (
            f"The sender of the stream has dropped what this site had not acked through epoch "
            f"{through}: its queue was full (`on_queue_limit: drop_reader`), or somebody has run "
            "`spark-wan clean`. "
        )

    @property
    def through(self) -> int:
        """Through this version the origin's table is applied; -1: nothing is."""
        return self.progress.through.get(origin_of(self.manifest), -1)

    @property
    def position(self) -> int:
        """Through this epoch its log is applied."""
        return self.progress.position(self.manifest.stream, self.manifest.log_id)

    @property
    def at_origin(self) -> int:
        """Through this epoch the log of its origin is applied; 0: nothing is, or it is this log."""
        root = self.manifest.written_at_origin
        return 0 if root is None else self.progress.position(root.stream, root.log_id)

    @property
    def is_known_at_origin(self) -> bool:
        """Whether it was applied, by the log of its origin: it may have come by another stream."""
        root = self.manifest.written_at_origin
        return root is not None and root.epoch <= self.at_origin

    @property
    def goes_on_at_origin(self) -> bool:
        """Whether all before it was applied, by the log of its origin."""
        root = self.manifest.written_at_origin
        return root is not None and root.epoch - 1 == self.at_origin > 0

    @property
    def applied_logs(self) -> list[tuple[str, int]]:
        """All logs of the stream of which something is applied, and through which epoch."""
        return sorted(
            (log_id, epoch)
            for (stream, log_id), epoch in self.progress.positions.items()
            if stream == self.manifest.stream
        )


def _above(epoch: _Epoch) -> int | None:
    """Return the version above which an epoch's rows are new, None for a known epoch, or one that
    is not for this site. Raises LogGapError or LedgerError for one that is neither."""
    manifest, through = epoch.manifest, epoch.through
    for_site = epoch.site in manifest.addressees
    if manifest.kind == EVENTS:
        known = manifest.epoch <= epoch.position or epoch.is_known_at_origin
        rules = _USER_STREAM_GOES_ON if epoch.goes_on_at_origin else _USER_STREAM
        if not (known or for_site):
            _check_sent_here(epoch)
            return None
    elif not for_site:
        return None  # its versions are missed when the next ones come
    else:
        known = through >= 0 and manifest.last_version <= through
        rules = _FIRST_CONTACT if through < 0 else _NEXT_VERSIONS
    if known:
        return None
    for rule in rules:
        rule(epoch)
    overlaps = manifest.kind != EVENTS and manifest.first_version <= through
    return through if overlaps else -1


def _check_source(epoch: _Epoch) -> None:
    """Rows of one table at an origin, or of one selection, do not continue those of another."""
    manifest = epoch.manifest
    others = [key for key in epoch.progress.through if key[0] == manifest.origin]
    if others:
        raise LogGapError(
            f"{epoch.where} carries table ID {manifest.table_id} (selection "
            f"{manifest.selection!r}), but this site has rows of {others[0][1]} (selection "
            f"{others[0][2]!r}) from {manifest.origin}. The source was replaced. The stream is "
            f"held; for a copy run {SYNC}.",
            needs=SOURCE,
        )


def _check_ledger(epoch: _Epoch) -> None:
    """A stream without progress must not have been applied before."""
    manifest = epoch.manifest
    if epoch.progress.lost and not (manifest.kind == EVENTS and epoch.applied_logs):
        raise LedgerError(
            f"{manifest.stream}: this site's ledger has lost marks of table {manifest.table}, and "
            "knows nothing of this stream: what was applied of it would be applied again. The "
            "stream is held. Stop this site's receivers and restore the ledger; without a backup, "
            f"{copy_advice(manifest.kind == EVENTS)}.",
            needs=LEDGER,
        )


def _check_start(epoch: _Epoch) -> None:
    """The first contact with a table begins at its start."""
    if not epoch.manifest.start:
        raise LogGapError(
            f"{epoch.where} begins at version {epoch.manifest.first_version}, and this site has "
            "nothing of the table yet: it was added to a running stream, or has lost its table and "
            "its state, or earlier epochs were removed from the channel before it read them. "
            f"{epoch.dropped}The stream is held. {NEW_SITE}",
            needs=EPOCHS,
        )


def _check_no_snapshot(epoch: _Epoch) -> None:
    """A snapshot says nothing of rows that were deleted before it."""
    if epoch.manifest.kind == SNAPSHOT:
        raise LogGapError(
            f"{epoch.where} is a snapshot of version {epoch.manifest.last_version}, but this site "
            f"has applied through version {epoch.through}. Rows deleted in between would stay "
            f"here. The stream is held; for a copy run {SYNC}.",
            needs=EPOCHS,
        )


def _check_versions(epoch: _Epoch) -> None:
    """An epoch waits for the versions before it."""
    first, through = epoch.manifest.first_version, epoch.through
    if first > through + 1:
        raise LogGapError(
            f"{epoch.where} begins at version {first}, but this site has applied only through "
            f"{through}. It waits for the versions {through + 1} to {first - 1}. {epoch.dropped}"
            "Perhaps the sender has gone over them, as its log says; or their manifests were "
            f"deleted: then restore them in the channel. Else for a copy run {SYNC}.",
            needs=EPOCHS,
        )


def _check_sent_here(epoch: _Epoch) -> None:
    """Every epoch of a user stream has events that no later one tells of."""
    manifest = epoch.manifest
    if not epoch.accepts(manifest.log_id):
        raise LogGapError(
            f"{epoch.where} was not sent to site {epoch.site}, which gets the stream by the "
            "topology: it was added since. The stream is held, so that the site does not go "
            f"without these events. {_earlier_events(manifest)}",
            needs=EPOCHS,
        )


def _earlier_events(manifest: Manifest) -> str:
    return (
        f"{RESEND_TO_NEW_SITE} Or do without them, or have them already: `spark-wan decide "
        f"{manifest.table}@{manifest.log_id}={NEW_LOG}`."
    )


def _check_earlier_events(epoch: _Epoch) -> None:
    """The first epoch of a log has the first events of its stream, or the user does without."""
    manifest = epoch.manifest
    if manifest.epoch == 1 and not manifest.start and not epoch.accepts(manifest.log_id):
        raise LogGapError(
            f"{epoch.where} is the first of its log, but the stream has earlier events: the site "
            "that forwards it began in the middle, because they were removed from the channel "
            f"before. The stream is held. {_earlier_events(manifest)}",
            needs=EPOCHS,
        )


def _check_no_beginning(epoch: _Epoch) -> None:
    """A forwarded log that begins in the middle stands for events that it does not have."""
    manifest = epoch.manifest
    if manifest.epoch == 1 and not manifest.start and not manifest.frames:
        _check_earlier_events(epoch)


def _check_epochs_at_origin(epoch: _Epoch) -> None:
    """The site that forwards a stream may have gone on behind a gap."""
    manifest, root, has = epoch.manifest, epoch.manifest.written_at_origin, epoch.at_origin
    if root is None or not has or root.epoch <= has + 1 or epoch.accepts(manifest.log_id):
        return
    raise LogGapError(
        f"{epoch.where} is epoch {root.epoch} of {root.stream}, of which this site has applied "
        f"only through {has}: the site that forwards it lacks what is between. The stream is held. "
        f"{_earlier_events(manifest)}",
        needs=EPOCHS,
    )


def _check_log(epoch: _Epoch) -> None:
    """A log replaces an earlier one once the user has accepted it."""
    manifest, applied = epoch.manifest, epoch.applied_logs
    if not epoch.position and applied and not epoch.accepts(manifest.log_id):
        logs = " and ".join(f"the log {log_id} through epoch {last}" for log_id, last in applied)
        raise LogGapError(
            f"{epoch.where} begins another log, {manifest.log_id}; this site has applied {logs}. "
            "The channel was deleted, or the stream was started over: what this site had not "
            "applied of the earlier log may be lost. The stream is held. Restore the earlier log; "
            "or accept the new one with "
            f"`spark-wan decide {manifest.table}@{manifest.log_id}={NEW_LOG}`.",
            needs=EPOCHS,
        )


def _check_epochs(epoch: _Epoch) -> None:
    """An epoch waits for those before it."""
    manifest, begins = epoch.manifest, epoch.position == 0
    if manifest.epoch <= epoch.position + 1 or (begins and epoch.accepts(manifest.log_id)):
        return
    copy = f"Or for a copy from another site that has the table run {SYNC}; without one, {_RESEND}"
    raise LogGapError(
        f"{epoch.where} is the first in the log, but this site has applied only through "
        f"{epoch.position}: the epochs between were removed before this site read them. The "
        "stream is held. Restore the missing manifests in the channel. "
        f"{_earlier_events(manifest) if begins else copy}",
        needs=EPOCHS,
    )


_Rules = tuple[Callable[[_Epoch], None], ...]
_FIRST_CONTACT: _Rules = (_check_source, _check_ledger, _check_start)
_NEXT_VERSIONS: _Rules = (_check_no_snapshot, _check_versions)
_USER_STREAM: _Rules = (
    _check_ledger,
    _check_earlier_events,
    _check_log,
    _check_epochs,
    _check_epochs_at_origin,
)
_USER_STREAM_GOES_ON: _Rules = (_check_ledger, _check_no_beginning)
"""What an epoch must satisfy to be applied, in this order; the first rule that it breaks holds the
stream."""
