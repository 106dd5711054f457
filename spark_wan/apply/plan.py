"""What to apply of a stream: planned from its log and the ledger, never from arrival.

Every epoch is one of: *known* (the ledger has it), *new*, *waiting* (a range that begins above
``applied + 1``), or *held* (going on could lose or change rows; nothing is skipped).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from spark_wan.errors import FULL_COPY, NEW_SITE, LedgerError, LogGapError, WanError, resend_advice
from spark_wan.events.columns import fingerprint
from spark_wan.ledger.progress import Progress, origin_of
from spark_wan.state.decisions import NEW_LOG
from spark_wan.wire.manifest import EVENTS, SNAPSHOT, Manifest


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
    held: int | None = None
    cause: str | None = None
    more: bool = False
    """The limits ended the plan before the log's end."""


@dataclass(frozen=True)
class StreamPlanner:
    """Plans what one site applies of one stream."""

    stream: str
    site: str
    read: Callable[[int], Manifest]
    """Reads the manifest of an epoch; an error holds the stream at that epoch."""
    progress: Progress
    acked: Mapping[str, int]
    """log_id -> the epoch in this site's last ack."""
    max_bytes: int
    max_epochs: int
    accepts: Callable[[str], bool] = lambda log_id: False
    """Whether the user has accepted the log with an ID in place of an earlier one."""
    peek: Callable[[int], Manifest] | None = None
    """Reads the manifest of an epoch of which nothing is applied, whoever has signed it."""

    def plan(self, epochs: Sequence[int]) -> StreamPlan:
        """Decide about ``epochs``: ascending, without gaps, all that lead to the log's end."""
        plan = StreamPlan(self.stream)
        newer = self._skip_known(epochs, plan)
        position = self.progress.positions.get((self.stream, plan.log_id), 0)
        if epochs and position > epochs[-1]:
            # Nothing of it is acked: the rest of the log may be lost.
            plan.known, plan.held = 0, epochs[-1] + 1
            plan.cause = (
                f"{self.stream}: the log ends at manifest {epochs[-1]}, but this site has applied "
                f"through {position} of it: the channel was restored to an older state. The stream "
                "is held, so that new epochs under old numbers are not taken for the applied ones; "
                "restore the channel's log."
            )
            return plan
        ahead = self.progress.copy()
        previous = None
        for epoch in newer:
            try:
                manifest = self.read(epoch)
                _check_follows(manifest, plan.log_id, previous)
                if not _is_as_applied(manifest, self.progress):
                    plan.known = 0
                    raise LogGapError(
                        f"{self.stream}: manifest {epoch} {_ANOTHER}: {_rewritten(manifest)}"
                    )
                plan.log_id, previous = manifest.log_id, manifest.fingerprint
                for_site = self.site in manifest.addressees
                above = _above(manifest, ahead, self.accepts) if for_site else None
            except WanError as error:
                plan.held, plan.cause = epoch, str(error)
                break
            if above is not None:
                if self._exceeds_limits(plan, manifest):
                    plan.more = True
                    break
                plan.new.append(PlannedEpoch(manifest, above))
                plan.size += manifest.bytes
                last = -1 if manifest.kind == EVENTS else manifest.last_version
                ahead.advance(origin_of(manifest), last, manifest)
                continue
            position = ahead.positions.get((self.stream, manifest.log_id), 0)
            if not for_site and epoch == position + 1:
                ahead.advance(origin_of(manifest), -1, manifest)  # for other sites: no gap
            if not plan.new:
                plan.known = epoch
                if for_site and epoch > self.acked.get(manifest.log_id, 0):
                    plan.duplicates += manifest.rows
        return plan

    def _skip_known(self, epochs: Sequence[int], plan: StreamPlan) -> Sequence[int]:
        """Return the epochs after the ledger's position. Reads others only to count duplicates."""
        if not epochs:
            return []
        peek = self.peek or self.read
        try:
            newest = peek(epochs[-1])
        except WanError:
            return epochs
        position = self.progress.positions.get((self.stream, newest.log_id), 0)
        if position == newest.epoch and not _is_as_applied(newest, self.progress):
            plan.log_id, plan.held = newest.log_id, position + 1
            plan.cause = f"{self.stream}: manifest {position} {_ANOTHER}: {_rewritten(newest)}"
            return []
        if position:
            plan.log_id, plan.known = newest.log_id, min(position, epochs[-1])
        for epoch in epochs:
            if self.acked.get(newest.log_id, 0) < epoch <= position:
                try:
                    manifest = peek(epoch)
                except WanError:
                    continue
                plan.duplicates += manifest.rows if self.site in manifest.addressees else 0
        return [epoch for epoch in epochs if epoch > position]

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


_RESEND = (
    "write the missing events and all after them again, with their event IDs, to a new stream (the "
    "sink's option `stream`): those that are applied here are dropped. Then remove this stream "
    "from the channel."
)

_ANOTHER = "is not the one that this site has applied, or does not follow it"


def _rewritten(manifest: Manifest) -> str:
    way_out = _RESEND if manifest.kind == EVENTS else f"make {FULL_COPY}."
    return (
        "the log was rewritten under its readers. The stream is held. Restore the channel's log; "
        f"or, without a copy of it, {way_out}"
    )


def _is_as_applied(manifest: Manifest, progress: Progress) -> bool:
    """Whether a manifest at the site's position is the applied one, or the next one follows it."""
    place = (manifest.stream, manifest.log_id)
    position, applied = progress.positions.get(place), progress.fingerprints.get(place)
    return not (
        (manifest.epoch == position and manifest.fingerprint != applied)
        or (
            position is not None and manifest.epoch == position + 1 and manifest.previous != applied
        )
    )


def _check_follows(manifest: Manifest, log_id: str, previous: str | None) -> None:
    """Check that a manifest belongs to the log, and names the one before it.

    ``previous``: that one's fingerprint, None for the first.
    """
    where = f"{manifest.stream}: manifest {manifest.epoch}"
    advice = _rewritten(manifest)
    if log_id and manifest.log_id != log_id:
        raise LogGapError(f"{where} belongs to another log than those before it: {advice}")
    if previous is not None and manifest.previous != previous:
        raise LogGapError(f"{where} does not follow manifest {manifest.epoch - 1}: {advice}")


def _check_new(manifest: Manifest, progress: Progress) -> None:
    """Check that a stream without progress was not applied before."""
    if progress.lost:
        raise LedgerError(
            f"{manifest.stream}: this site's ledger has lost marks of table {manifest.table}, and "
            "knows nothing of this stream: what was applied of it would be applied again. The "
            "stream is held. Stop this site's receivers and restore the ledger; without a backup, "
            f"{resend_advice(manifest.kind == EVENTS)}."
        )


def _above(manifest: Manifest, progress: Progress, accepts: Callable[[str], bool]) -> int | None:
    """Return the version above which an epoch's rows are new, None for a known epoch.

    Raises LogGapError or LedgerError for an epoch that is neither.
    """
    if manifest.kind == EVENTS:
        return _above_in_user_stream(manifest, progress, accepts)
    where = f"{manifest.stream}: epoch {manifest.epoch}"
    through = progress.through.get(origin_of(manifest))
    if through is None:
        others = [key for key in progress.through if key[0] == manifest.origin]
        if others:
            raise LogGapError(
                f"{where} carries table ID {manifest.table_id} (selection {manifest.selection!r}), "
                f"but this site has rows of {others[0][1]} (selection {others[0][2]!r}) from "
                f"{manifest.origin}. The source was replaced. The stream is held; make {FULL_COPY}."
            )
        _check_new(manifest, progress)
        if not manifest.start:
            raise LogGapError(
                f"{where} begins at version {manifest.first_version}, and this site has nothing of "
                "the table yet: it was added to a running stream, or earlier epochs were removed "
                f"from the channel before it read them. The stream is held. {NEW_SITE} Or make "
                f"{FULL_COPY}."
            )
        return -1
    if manifest.last_version <= through:
        return None
    if manifest.kind == SNAPSHOT:
        raise LogGapError(
            f"{where} is a snapshot of version {manifest.last_version}, but this site has applied "
            f"through version {through}. Rows deleted in between would stay here. The stream is "
            f"held; make {FULL_COPY}."
        )
    if manifest.first_version > through + 1:
        raise LogGapError(
            f"{where} begins at version {manifest.first_version}, but this site has applied only "
            f"through {through}. It waits for the versions {through + 1} to "
            f"{manifest.first_version - 1}. If their manifests were deleted, restore them in the "
            f"channel; or make {FULL_COPY}."
        )
    return through if manifest.first_version <= through else -1


def _above_in_user_stream(
    manifest: Manifest, progress: Progress, accepts: Callable[[str], bool]
) -> int | None:
    where = f"{manifest.stream}: epoch {manifest.epoch}"
    position = progress.positions.get((manifest.stream, manifest.log_id), 0)
    if manifest.epoch <= position:
        return None
    applied = sorted(
        (log_id, epoch)
        for (stream, log_id), epoch in progress.positions.items()
        if stream == manifest.stream
    )
    if not applied:
        _check_new(manifest, progress)
    if manifest.epoch == 1 and not manifest.start and not accepts(manifest.log_id):
        raise LogGapError(
            f"{where} is the first of its log, but the stream has earlier events: the site that "
            "forwards it began in the middle, because they were removed from the channel before. "
            f"The stream is held. To get the earlier events, {resend_advice(True)}; or do without "
            "them, or have them already: `spark-wan receive --decide "
            f"{manifest.table}@{manifest.log_id}={NEW_LOG}`."
        )
    if not position and applied and not accepts(manifest.log_id):
        logs = " and ".join(f"the log {log_id} through epoch {epoch}" for log_id, epoch in applied)
        raise LogGapError(
            f"{where} begins another log, {manifest.log_id}; this site has applied {logs}. The "
            "channel was deleted, or the stream was started over: what this site had not applied "
            "of the earlier log may be lost. The stream is held. Restore the earlier log; or "
            "accept the new one with "
            f"`spark-wan receive --decide {manifest.table}@{manifest.log_id}={NEW_LOG}`."
        )
    if manifest.epoch > position + 1:
        raise LogGapError(
            f"{where} is the first in the log, but this site has applied only through {position}: "
            "the epochs between were removed before this site read them. The stream is held. "
            f"Restore the missing manifests in the channel; or {_RESEND}"
        )
    return -1
