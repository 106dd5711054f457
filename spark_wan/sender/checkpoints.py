"""The sender's checkpoints: how far it published each stream, and what its readers acked.

The channel's log alone decides progress. A checkpoint shows that the log is *not* what it was:
deleted, restored to an older state, or replaced. Where the user lets a new log begin, it tells what
the old one had published. Losing a checkpoint loses these two and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from spark_wan.errors import FULL_COPY, LogGapError, NewerRecordError
from spark_wan.log.stream_log import StreamLog
from spark_wan.state.objects import StateObjects
from spark_wan.wire.checkpoint import PublishedState, SenderCheckpoint
from spark_wan.wire.manifest import EVENTS, Manifest
from spark_wan.wire.records import UPDATE


class CheckpointStore(Protocol):
    """Where a sender keeps the checkpoints of its streams."""

    def load(self, stream: str) -> SenderCheckpoint | None: ...

    def save(self, stream: str, checkpoint: SenderCheckpoint) -> None: ...


class StoredCheckpoints:
    """Checkpoints as small objects ``<url>/<stream>.json`` in a directory or an object store.

    Both methods raise ChannelError when the store does not answer."""

    def __init__(self, url: str, storage: Mapping[str, str] | None = None) -> None:
        self.objects = StateObjects(url, "the sender's checkpoint", storage)

    def load(self, stream: str) -> SenderCheckpoint | None:
        data = self.objects.read(stream)
        try:
            return None if data is None else SenderCheckpoint.decode(data)
        except NewerRecordError as error:
            raise NewerRecordError(
                f"{stream}: the sender's checkpoint {self.objects.url}/{stream}.json was {error}. "
                f"{UPDATE}"
            ) from error

    def save(self, stream: str, checkpoint: SenderCheckpoint) -> None:
        self.objects.write(stream, checkpoint.encode())


class NoCheckpoints:
    """The store of a writer that has no place for one: a sink without checkpoint and ``state``."""

    def load(self, stream: str) -> SenderCheckpoint | None:
        return None

    def save(self, stream: str, checkpoint: SenderCheckpoint) -> None:
        return None


def published_state(manifest: Manifest) -> PublishedState | None:
    """Return what a manifest published of its source table; None for a user stream, which has
    none."""
    return PublishedState.by(manifest) if manifest.kind != EVENTS else None


def record_appended(
    checkpoints: CheckpointStore, before: SenderCheckpoint | None, manifest: Manifest
) -> None:
    """Save the checkpoint that follows ``before`` once ``manifest`` is appended."""
    if before is None or before.log_id != manifest.log_id:
        before = SenderCheckpoint(manifest.log_id, manifest.epoch)
    following = replace(before, epoch=manifest.epoch, published=published_state(manifest))
    checkpoints.save(manifest.stream, following)


def check_log(
    log: StreamLog,
    checkpoint: SenderCheckpoint | None,
    last: Manifest | None,
    allowed: Callable[[str], bool],
    new_log: str | None,
) -> None:
    """Raise LogGapError when the log is behind the sender's checkpoint, is another one, or is gone
    although sites have acked it.

    Args:
        log: The log. Its acks are read only when there is neither a manifest nor a checkpoint.
        checkpoint: The sender's checkpoint of the stream, if there is one.
        last: The newest manifest.
        allowed: Whether the user lets a new log begin in place of the log with an ID.
        new_log: How the user does that; ``{log}`` stands for the ID. None: a new log would be of no
            use, since it is unknown how far the old one was.
    """
    if checkpoint is not None and last is not None and last.log_id == checkpoint.log_id:
        if last.epoch < checkpoint.epoch:
            known = f"it was at {checkpoint.epoch} ({_acked(checkpoint)})"
            raise LogGapError(_restored(log, last, known, new_log))
        return
    if checkpoint is not None:
        lost = [checkpoint.log_id]
        state = f"it was at manifest {checkpoint.epoch} ({_acked(checkpoint)})"
    elif last is None:
        acks = log.acks()
        lost = sorted({ack.log_id for ack in acks.values() if ack.log_id})
        applied = {site: ack.applied for site, ack in sorted(acks.items())}
        state = f"sites have acked it ({applied})"
    else:
        return
    lost = [log_id for log_id in lost if not allowed(log_id)]
    if lost:
        what = "is gone" if last is None else f"is another one than before, {last.log_id}"
        raise LogGapError(
            f"{log.channel.url}: the log of {log.stream} {what}; {state}. The channel or its "
            "manifests were deleted. The stream is held and nothing is published, because epochs "
            "that a site has not applied would be lost silently. Restore the channel; or, when "
            "every remote site has what was published or can do without, "
            f"{_begin_anew(new_log, lost[0])}."
        )


def check_acks(log: StreamLog, last: Manifest | None, new_log: str | None) -> None:
    """Raise LogGapError when a site has acked this log beyond its end: the log was restored to an
    older state, and the checkpoint too, or there is none. Call it before the log is extended:
    afterwards such an ack looks like one for what is new."""
    if last is None:
        return
    acks = {
        site: ack.applied for site, ack in sorted(log.acks().items()) if ack.log_id == last.log_id
    }
    # Beyond what is there now: another sender may have extended it meanwhile.
    if max(acks.values(), default=0) > last.epoch and max(acks.values()) > log.newest_epoch():
        raise LogGapError(_restored(log, last, f"sites have acked more ({acks})", new_log))


def _restored(log: StreamLog, last: Manifest, known: str, new_log: str | None) -> str:
    return (
        f"{log.channel.url}: the log of {log.stream} ends at manifest {last.epoch}, but {known}: "
        "an older state of it was restored. The stream is held and nothing is published. Restore "
        f"the newer state; or stop the sender, run `spark-wan remove {log.stream} --begin-anew` "
        "with its --config, and "
        f"{_begin_anew(new_log, last.log_id)}."
    )


def _begin_anew(new_log: str | None, lost: str) -> str:
    return (
        f"make {FULL_COPY}" if new_log is None else f"{new_log.format(log=lost)} to begin a new log"
    )


def _acked(checkpoint: SenderCheckpoint) -> str:
    return f"acked: {dict(checkpoint.acked)}" if checkpoint.acked else "nothing acked"
