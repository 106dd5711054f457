"""Lost logs: a log that is not what its writer, or its readers, have seen of it.

The channel's log alone decides progress. The writer's checkpoint and the sites' acks show that the
log was deleted, restored to an older state, or replaced. Without them, a new log would begin
silently, and what a site has not applied would be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spark_wan.errors import LogGapError
from spark_wan.log.stream_log import StreamLog
from spark_wan.wire.checkpoint import SenderCheckpoint
from spark_wan.wire.manifest import Manifest


@dataclass(frozen=True)
class LogEnd:
    """The end of a log as its writer has read it."""

    checkpoint: SenderCheckpoint | None
    """The writer's checkpoint of the stream, read before the log; None: there is none."""
    last: Manifest | None
    """The newest manifest."""
    replaces_lost: bool = False
    """Whether a new log begins in place of a lost one."""

    @property
    def is_another_log(self) -> bool:
        """Whether the log is not that of the checkpoint."""
        return (
            self.checkpoint is not None
            and self.last is not None
            and self.checkpoint.log_id != self.last.log_id
        )


@dataclass(frozen=True)
class NewLog:
    """How the user lets a new log begin in place of a lost one."""

    advice: str
    """What the user does; ``{log}`` stands for the ID of the lost log."""
    allowed: Callable[[str], bool]
    """Whether the user has done so for the log with an ID."""

    def instead_of(self, lost: str) -> str:
        """Return what the user can do without the lost log."""
        return f"{self.advice.format(log=lost)} to begin a new log"


def check_log(log: StreamLog, end: LogEnd, new_log: NewLog) -> bool:
    """Return whether a new log is to begin in place of a lost one.

    Raise LogGapError when the log is behind the writer's checkpoint, is another one, or is gone
    although sites have acked it. The acks are read only when there is neither a manifest nor a
    checkpoint."""
    checkpoint, last = end.checkpoint, end.last
    if checkpoint is not None and last is not None and not end.is_another_log:
        if last.epoch < checkpoint.epoch:
            known = f"it was at {checkpoint.epoch} ({_acked(checkpoint)})"
            raise LogGapError(_restored(log, last=last, known=known, new_log=new_log))
        return False
    if checkpoint is not None:
        lost = [checkpoint.log_id]
        state = f"it was at manifest {checkpoint.epoch} ({_acked(checkpoint)})"
    elif last is None:
        acks = log.acks()
        lost = sorted({ack.log_id for ack in acks.values() if ack.log_id})
        applied = {site: ack.applied for site, ack in sorted(acks.items())}
        state = f"sites have acked it ({applied})"
    else:
        return False
    refused = [log_id for log_id in lost if not new_log.allowed(log_id)]
    if refused:
        what = "is gone" if last is None else f"is another one than before, {last.log_id}"
        raise LogGapError(
            f"{log.channel.url}: the log of {log.stream} {what}; {state}. The channel or its "
            "manifests were deleted. The stream is held and nothing is published, because epochs "
            "that a site has not applied would be lost silently. Restore the channel; or, when "
            "every remote site has what was published or can do without, "
            f"{new_log.instead_of(refused[0])}."
        )
    return last is None and bool(lost)


def check_acks(log: StreamLog, end: LogEnd, new_log: NewLog) -> None:
    """Raise LogGapError when a site has acked this log beyond its end: the log was restored to an
    older state, and the checkpoint too, or there is none. Call it before the log is extended:
    afterwards such an ack looks like one for what is new."""
    last = end.last
    if last is None:
        return
    acks = {
        site: ack.applied for site, ack in sorted(log.acks().items()) if ack.log_id == last.log_id
    }
    # Beyond what is there now: another writer may have extended it meanwhile.
    if max(acks.values(), default=0) > last.epoch and max(acks.values()) > log.newest_epoch():
        known = f"sites have acked more ({acks})"
        raise LogGapError(_restored(log, last=last, known=known, new_log=new_log))


def _restored(log: StreamLog, *, last: Manifest, known: str, new_log: NewLog) -> str:
    return (
        f"{log.channel.url}: the log of {log.stream} ends at manifest {last.epoch}, but {known}: "
        "an older state of it was restored. The stream is held and nothing is published. Restore "
        f"the newer state; or stop the sender, run `spark-wan remove {log.stream} --begin-anew` "
        "with its --config, and "
        f"{new_log.instead_of(last.log_id)}."
    )


def _acked(checkpoint: SenderCheckpoint) -> str:
    return f"acked: {dict(checkpoint.acked)}" if checkpoint.acked else "nothing acked"
