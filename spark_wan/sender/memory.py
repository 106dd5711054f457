"""What a sender remembers beside the channel: how far it published and what its readers acked.

Progress is decided by the channel's log. The memory notices that a log is *not* what it was: deleted, put back to an older state, or replaced. Where the
user lets a new log begin, it says what the old one had published. Losing the memory loses these two and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from spark_wan.channels.log import StreamLog
from spark_wan.control.state import StateObjects
from spark_wan.errors import COPY, LogGapError
from spark_wan.wire.checkpoint import SenderCheckpoint
from spark_wan.wire.manifest import Manifest


class CheckpointStore(Protocol):
    """Where stream memories are kept (below the sender's checkpoint)."""

    def load(self, stream: str) -> SenderCheckpoint | None: ...

    def save(self, stream: str, memory: SenderCheckpoint) -> None: ...


class StoredCheckpoints:
    """Memories as small objects ``<url>/<stream>.json`` in a directory or an object store."""

    def __init__(self, url: str, storage: Mapping[str, str] | None = None) -> None:
        self.objects = StateObjects(url, "the sender's memory", storage)

    def load(self, stream: str) -> SenderCheckpoint | None:
        """The memory of a stream, or None when there is none. Raises ChannelError when its place does not answer."""
        data = self.objects.read(stream)
        return None if data is None else SenderCheckpoint.decode(data)

    def save(self, stream: str, memory: SenderCheckpoint) -> None:
        """Replace the memory of a stream. Raises ChannelError when its place does not answer."""
        self.objects.write(stream, memory.encode())


class NoCheckpoints:
    """For a writer that has no place for a memory: a user's sink without checkpoint and ``state``."""

    def load(self, stream: str) -> SenderCheckpoint | None:
        return None

    def save(self, stream: str, memory: SenderCheckpoint) -> None:
        return None


def check_log(
    log: StreamLog,
    memory: SenderCheckpoint | None,
    last: Manifest | None,
    allowed: Callable[[str], bool],
    how: str | None,
) -> None:
    """Raise LogGapError when the log is behind what the sender remembers of it, or another one, or gone although sites have acked it.

    Args:
        log: The log; its acks are read only when it has no manifest and the sender no memory.
        memory: What the sender remembers; None: nothing.
        last: The newest manifest.
        allowed: Whether the user lets a new log begin in place of the log with an ID.
        how: How the user does that; ``{log}`` stands for the ID. None: a new log would be of no use, since it is not known how far the old one was.
    """
    where, stream = log.channel.url, log.stream

    if memory is not None and last is not None and last.log_id == memory.log_id:
        if last.epoch < memory.epoch:
            raise LogGapError(
                _put_back(log, last, f"it was at {memory.epoch} ({_acked(memory)})", how)
            )
        return
    if memory is not None:
        lost, state = [memory.log_id], f"it was at manifest {memory.epoch} ({_acked(memory)})"
    elif last is None:
        acks = log.acks()
        lost = sorted({ack.log_id for ack in acks.values() if ack.log_id})
        state = f"sites have answered it ({ {site: ack.applied for site, ack in sorted(acks.items())} })"
    else:
        return
    lost = [log_id for log_id in lost if not allowed(log_id)]
    if lost:
        what = "is gone" if last is None else f"is another one than before, {last.log_id}"
        raise LogGapError(
            f"{where}: the log of {stream} {what}; {state}. The channel or its manifests were deleted. The stream is held, and nothing is published, "
            f"since epochs that a site has not applied would be lost without a word. Restore the channel; or, when every remote site "
            f"has what was published or can do without, {_instead(how, lost[0])}."
        )


def check_acks(log: StreamLog, last: Manifest | None, how: str | None) -> None:
    """Raise LogGapError when a site has acked this log beyond its end: it was put back to an older state, and the memory with it, or there is none. To be
    asked before the log is extended: afterwards such an ack looks like one for what is new."""
    if last is None:
        return
    acks = {
        site: ack.applied for site, ack in sorted(log.acks().items()) if ack.log_id == last.log_id
    }
    # Beyond what is there now: another sender may have extended it meanwhile.
    if max(acks.values(), default=0) > last.epoch and max(acks.values()) > log.newest_epoch():
        raise LogGapError(_put_back(log, last, f"sites have acked more ({acks})", how))


def _put_back(log: StreamLog, last: Manifest, known: str, how: str | None) -> str:
    return (
        f"{log.channel.url}: the log of {log.stream} ends at manifest {last.epoch}, but {known}: an older state of it was restored. The stream is held, "
        f"and nothing is published. Restore the newer state; or delete what is left below log/{log.stream}/ in the channel, and "
        f"{_instead(how, last.log_id)}."
    )


def _instead(how: str | None, lost: str) -> str:
    return f"make {COPY}" if how is None else f"{how.format(log=lost)} to begin a new log"


def _acked(memory: SenderCheckpoint) -> str:
    return f"acked: {dict(memory.acked)}" if memory.acked else "nothing acked"
