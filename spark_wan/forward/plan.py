"""Which epochs of an inbound log a forwarder takes next: by the outbound log's newest ``via``.

Every error is a LogGapError, which holds the forwarding of that stream.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_wan.errors import RESEND, LogGapError
from spark_wan.log.inbound import InboundLog, Standing, follows, standing
from spark_wan.wire.decisions import NEW_LOG
from spark_wan.wire.manifest import EVENTS, Manifest
from spark_wan.wire.records import EpochRef


def epochs_after(log: InboundLog, via: EpochRef, epochs: Sequence[int]) -> Sequence[int]:
    """Return those of ``epochs`` that follow ``via``, the last one that was forwarded.

    ``epochs``: ascending, without gaps, all that lead to the log's end; at least one.
    """
    newest = log.peek(epochs[-1])
    stands = standing(via, newest)
    # Rows of a table are numbered by its versions: whoever gets them sees what is missing, and asks
    # for a copy. Of a user's events a site sees it that has some of the log of their origin, and an
    # earlier spark_wan does not.
    if stands is Standing.ANOTHER_LOG:
        if newest.kind == EVENTS and not log.accepts(newest.log_id):
            raise LogGapError(
                f"{log.stream}: its log is {newest.log_id}; the log {via.log_id} was forwarded "
                f"through epoch {via.epoch}. The channel was deleted, or the stream was started "
                "over: what was not forwarded of the earlier log may be lost. Restore the earlier "
                "log; or accept the new one with `spark-wan decide "
                f"{newest.table}@{newest.log_id}={NEW_LOG}`."
            )
        return epochs
    if stands is Standing.ENDS_BEFORE:
        raise LogGapError(
            f"{log.stream}: the log ends at manifest {newest.epoch}, but it was forwarded through "
            f"{via.epoch}: the channel was restored to an older state. Restore the channel's log."
        )
    if stands is Standing.REWRITTEN:
        raise _rewritten(newest)
    gap = epochs[0] > via.epoch + 1 and newest.kind == EVENTS
    if gap and not log.accepts(newest.log_id):
        raise LogGapError(
            f"{log.stream}: the log begins at manifest {epochs[0]}, but it was forwarded only "
            f"through {via.epoch}: those between were deleted. Restore them in the channel; or "
            f"send {RESEND}; or, if the sites behind this one can get copies, go on with "
            f"`spark-wan decide {newest.table}@{newest.log_id}={NEW_LOG}`."
        )
    return [epoch for epoch in epochs if epoch > via.epoch]


def next_manifest(log: InboundLog, epoch: int, before: EpochRef | None) -> Manifest:
    """Return the manifest of an epoch, which follows the one ``before`` (None: the first)."""
    manifest = log.read(epoch)
    if not follows(before, manifest):
        raise _rewritten(manifest)
    return manifest


_BEGIN_ANEW = (
    "stop this site's receivers, remove what it forwards of the stream from the channel of its own "
    "sender (`spark-wan remove STREAM --begin-anew`), and decide as the next message says: sites "
    "behind it that lack something ask for a copy then"
)


def _rewritten(manifest: Manifest) -> LogGapError:
    return LogGapError(
        f"{manifest.stream}: manifest {manifest.epoch} is not the one that was forwarded, or does "
        "not follow it: the log was rewritten. Restore the channel's log; or, without a copy of "
        f"it, {_BEGIN_ANEW if manifest.kind != EVENTS else f'send {RESEND}'}."
    )
