"""What to apply of a stream: planned from its log and the ledger, never from arrival.

Every epoch is one of: *known* (answered from the ledger), *new*, *waiting* (a range that begins above ``applied + 1``), or *held* (something
is wrong, and nothing is skipped to keep going).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from spark_wan.control.decisions import NEW_LOG
from spark_wan.errors import COPY, LedgerError, LogGapError, WanError, anew
from spark_wan.events.columns import fingerprint
from spark_wan.ledger.progress import Progress, origin_of
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
    """Through this number everything in the log is applied here or is not for this site."""
    new: list[PlannedEpoch] = field(default_factory=list)
    duplicates: int = 0
    """Events of known epochs that had not been acked: they came again, and are discarded."""
    held: int | None = None
    cause: str | None = None
    more: bool = False
    """The limits ended the plan before the log's end."""


def plan_stream(
    stream: str,
    numbers: Iterable[int],
    read: Callable[[int], Manifest],
    progress: Progress,
    site: str,
    acked: Mapping[str, int],
    *,
    max_bytes: int,
    max_epochs: int,
    accepts: Callable[[str], bool] = lambda log_id: False,
) -> StreamPlan:
    """Decide about the epochs ``numbers`` (ascending, without gaps, all that lead to the log's end).

    ``acked``: log_id -> the number that this site's last ack said. ``accepts``: whether the user has accepted the log with an ID in
    place of an earlier one. A manifest that cannot be read holds the stream there; what is before it is planned.
    """
    plan = StreamPlan(stream)
    ahead = progress.copy()
    size = 0
    listed = list(numbers)
    newer = _from_position(listed, read, progress, stream, plan, site, acked)
    position = progress.positions.get((stream, plan.log_id), 0)
    if listed and position > listed[-1]:
        # Nothing of it is acked: what is there now may be all there is of it.
        plan.known, plan.held = 0, listed[-1] + 1
        plan.cause = (
            f"{stream}: the log ends at manifest {listed[-1]}, but this site has applied through {position} of it: the channel was "
            "restored to an older state. The stream is held, so that other epochs with old numbers are not mistaken for those; "
            "restore the channel's log."
        )
        return plan
    before = None
    for number in newer:
        try:
            manifest = read(number)
            _check_follows(manifest, plan.log_id, before)
            if not _is_as_applied(manifest, progress):
                plan.known = 0
                raise LogGapError(f"{stream}: manifest {number} {_ANOTHER}: {_rewritten(manifest)}")
            plan.log_id, before = manifest.log_id, manifest.fingerprint
            above = None if site not in manifest.addressees else _above(manifest, ahead, accepts)
        except WanError as error:
            plan.held, plan.cause = number, str(error)
            break
        if above is None:
            if (
                site not in manifest.addressees
                and number == ahead.positions.get((stream, manifest.log_id), 0) + 1
            ):
                # Passed over, not missed.
                ahead.advance(
                    origin_of(manifest), -1, stream, manifest.log_id, number, manifest.fingerprint
                )
            if not plan.new:
                plan.known = number
                if number > acked.get(manifest.log_id, 0) and site in manifest.addressees:
                    plan.duplicates += manifest.rows
            continue
        if plan.new and (
            len(plan.new) >= max_epochs
            or size + manifest.bytes > max_bytes
            or manifest.keys != plan.new[-1].manifest.keys
            or fingerprint(manifest.schema) != fingerprint(plan.new[-1].manifest.schema)
        ):
            plan.more = True
            break
        plan.new.append(PlannedEpoch(manifest, above))
        size += manifest.bytes
        last = manifest.last_version if manifest.kind != EVENTS else -1
        ahead.advance(
            origin_of(manifest), last, stream, manifest.log_id, number, manifest.fingerprint
        )
    return plan


_AGAIN = (
    "write the missing events and all after them again, with their event IDs, to a new stream (the sink's option `stream`): those that are applied here "
    "are dropped. Then remove this stream from the channel."
)

_ANOTHER = "is not the one that this site has applied, or does not follow it"


def _rewritten(manifest: Manifest) -> str:
    way_out = _AGAIN if manifest.kind == EVENTS else f"make {COPY}."
    return f"the log was rewritten under its readers. The stream is held. Restore the channel's log; or, without a copy of it, {way_out}"


def _is_as_applied(manifest: Manifest, progress: Progress) -> bool:
    """False for a manifest at the site's position that is another one than was applied, and for one behind it that follows another."""
    place = (manifest.stream, manifest.log_id)
    position, applied = progress.positions.get(place), progress.fingerprints.get(place)
    return not (
        (manifest.epoch == position and manifest.fingerprint != applied)
        or (
            position is not None and manifest.epoch == position + 1 and manifest.previous != applied
        )
    )


def _check_follows(manifest: Manifest, log_id: str, before: str | None) -> None:
    """A manifest belongs to the log of those before it, and names the one before it (``before``: its fingerprint, None for the first)."""
    where = f"{manifest.stream}: manifest {manifest.epoch}"
    advice = _rewritten(manifest)
    if log_id and manifest.log_id != log_id:
        raise LogGapError(f"{where} belongs to another log than the ones beside it: {advice}")
    if before is not None and manifest.previous != before:
        raise LogGapError(
            f"{where} does not follow manifest {manifest.epoch - 1} as it is there: {advice}"
        )


def _from_position(
    listed: list[int],
    read: Callable[[int], Manifest],
    progress: Progress,
    stream: str,
    plan: StreamPlan,
    site: str,
    acked: Mapping[str, int],
) -> list[int]:
    """Leave out what the ledger's position proves known. Only what was not acked is read, to count it."""
    if not listed:
        return []
    try:
        newest = read(listed[-1])
    except WanError:
        return listed
    log_id = newest.log_id
    position = progress.positions.get((stream, log_id), 0)
    if position == newest.epoch and not _is_as_applied(newest, progress):
        plan.log_id, plan.held = log_id, position + 1
        plan.cause = f"{stream}: manifest {position} {_ANOTHER}: {_rewritten(newest)}"
        return []
    if position:
        plan.log_id, plan.known = log_id, min(position, listed[-1])
    for number in listed:
        if acked.get(log_id, 0) < number <= position:
            try:
                manifest = read(number)
            except WanError:
                continue
            plan.duplicates += manifest.rows if site in manifest.addressees else 0
    return [number for number in listed if number > position]


def _applied(positions: Mapping[str, int]) -> str:
    return " and ".join(
        f"the log {log_id} through epoch {number}" for log_id, number in sorted(positions.items())
    )


def _check_new(manifest: Manifest, progress: Progress) -> None:
    """A stream of which nothing was applied, as far as is known."""
    if progress.lost:
        raise LedgerError(
            f"{manifest.stream}: this site's ledger has lost marks of table {manifest.table}, and knows nothing of this stream: what was applied of it would be "
            f"applied again. The stream is held. Stop this site's receivers and restore the ledger; without a backup, {anew(manifest.kind == EVENTS)}."
        )


def _above(manifest: Manifest, progress: Progress, accepts: Callable[[str], bool]) -> int | None:
    """None for a known epoch, else the version above which its rows are new. Raises when it can be neither."""
    where = f"{manifest.stream}: epoch {manifest.epoch}"
    if manifest.kind == EVENTS:
        position = progress.positions.get((manifest.stream, manifest.log_id), 0)
        if manifest.epoch <= position:
            return None
        earlier = {
            log_id: n
            for (stream, log_id), n in progress.positions.items()
            if stream == manifest.stream
        }
        if not earlier:
            _check_new(manifest, progress)
        if not position and earlier and not accepts(manifest.log_id):
            raise LogGapError(
                f"{where} begins another log, {manifest.log_id}; this site has applied {_applied(earlier)}. The channel was deleted, or the "
                "stream was begun anew: what this site had not applied of the earlier log may be lost. The stream is held. Restore the earlier log; "
                f"or accept the new one with `spark-wan receive --decide {manifest.table}@{manifest.log_id}={NEW_LOG}`."
            )
        if manifest.epoch > position + 1:
            raise LogGapError(
                f"{where} is the first in the log, but this site has applied only through {position}: what is between was removed "
                f"before it was read here. The stream is held. Restore the missing manifests in the channel; or {_AGAIN}"
            )
        return -1
    origin = origin_of(manifest)
    through = progress.through.get(origin)
    if through is None:
        others = [key for key in progress.through if key[0] == manifest.origin]
        if others:
            raise LogGapError(
                f"{where} carries table ID {manifest.table_id} (selection {manifest.selection!r}), but this site has rows of "
                f"{others[0][1]} (selection {others[0][2]!r}) from {manifest.origin}. The source was replaced. The stream is held; "
                f"make {COPY}."
            )
        _check_new(manifest, progress)
        if not manifest.start:
            raise LogGapError(
                f"{where} begins at version {manifest.first_version}, and this site has nothing of the table yet: what is before was removed "
                f"from the channel before it was read here. The stream is held; make {COPY}."
            )
        return -1
    if manifest.last_version <= through:
        return None
    if manifest.kind == SNAPSHOT:
        raise LogGapError(
            f"{where} is a snapshot of version {manifest.last_version}, but this site has applied through version {through}. Rows deleted "
            f"in between would stay here. The stream is held; make {COPY}."
        )
    if manifest.first_version > through + 1:
        raise LogGapError(
            f"{where} begins at version {manifest.first_version}, but this site has applied only through {through}. It waits for the versions "
            f"{through + 1} to {manifest.first_version - 1}. If their manifests were deleted, restore them in the channel; or make {COPY}."
        )
    return through if manifest.first_version <= through else -1
