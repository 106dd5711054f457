"""The writer of a log: what a publisher, a sink and a forwarder do alike.

Each of them has a numbered path of its own, and takes these steps in it, in this order::

    writer = LogWriter(log, checkpoints, clock, new_log)
    end = writer.end()                                        # where the log ends
    writer.check_acks(end)
    began = clock()
    frames = writer.all_or_nothing(attempt, write_frames)     # no receiver reads them yet
    manifest = writer.following(end.last, settings, frames=frames, ...)
    manifest = writer.append(manifest, began)                 # now the epoch exists
    writer.record(end.checkpoint, manifest)

- *End*: the checkpoint is read first. Another writer may extend the log and save its own in
  between, and then the log is not behind the checkpoint. A lost log is held.
- *Acks*: also before the log is extended. Afterwards an ack beyond its end looks like one for what
  is new.
- *Frames*: of an attempt that fails, none is left.
- *Manifest*: the next number, with the fingerprint of the manifest before it. Created if absent,
  and only while no sweep may take its frames. If another writer was faster, its frames are
  removed, and the path starts over at *end* (:meth:`LogWriter.until_appended`).
- *Checkpoint*: last, since it only detects a lost log.

A crash between any two of them changes nothing: the log alone says how far it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from spark_wan.channels.base import write_of
from spark_wan.errors import (
    ChannelError,
    EndMovedError,
    LogGapError,
    ManifestExists,
    StaleWriteError,
    WanError,
    is_disk_full,
)
from spark_wan.events.columns import fingerprint
from spark_wan.log.frame_age import STALE_AGE, are_safe, are_there
from spark_wan.log.lost_logs import LogEnd, NewLog, check_acks, check_log
from spark_wan.log.progress import acked_through
from spark_wan.log.stream_log import StreamLog
from spark_wan.messages import message_log
from spark_wan.steps import Steps
from spark_wan.wire.checkpoint import SenderCheckpoint
from spark_wan.wire.frame import FrameHeader, FrameRef
from spark_wan.wire.manifest import CAPTURE, Manifest

logger = message_log(__name__)

T = TypeVar("T")

MOST_REFUSALS = 5
"""Refusals of a manifest at one length of the log after which the stream is held."""
RECENT_EPOCHS = 10
"""Number of newest epochs that may name the frames of a write that has just been made."""
ALL_ROWS = "all"
"""The selection of a stream that carries all rows of its table; there are no filters yet."""


class CheckpointStore(Protocol):
    """Where a writer keeps the checkpoints of its streams."""

    def load(self, stream: str) -> SenderCheckpoint | None: ...

    def save(self, stream: str, checkpoint: SenderCheckpoint) -> None: ...


@dataclass(frozen=True)
class StreamSettings:
    """What the headers and manifests of all epochs of a stream say."""

    stream: str
    table: str
    keys: tuple[str, ...]
    origin: str
    sent_to: tuple[str, ...]
    addressees: tuple[str, ...]

    def header(self, table_id: str, schema: Mapping[str, Any], attempt: str) -> FrameHeader:
        """Return the header of the frames of one attempt, without index and number of events."""
        return FrameHeader(
            origin=self.origin,
            sent_to=self.sent_to,
            stream=self.stream,
            table=self.table,
            table_id=table_id,
            selection=ALL_ROWS,
            schema=fingerprint(schema),
            attempt=attempt,
            index=0,
            events=0,
        )


@dataclass
class LogWriter:
    """Extends the log of one stream. What it remembers is of the path that runs now."""

    log: StreamLog
    checkpoints: CheckpointStore | None
    """None: there is no place for one. Then only the acks detect a lost log."""
    clock: Callable[[], int]
    """Milliseconds since 1970 UTC."""
    new_log: NewLog
    keeps_frames: bool = False
    """The frames are written once, before the path: a refused manifest is tried again with them.
    Otherwise each try writes its own."""
    check: Callable[[Manifest], None] = lambda manifest: None
    """Called right before a manifest is appended, which an error prevents."""
    refused: int = 0
    """How often the channel has refused the next manifest of the log at its present length."""
    _refused_at: int = -1

    def until_appended(self, path: Callable[[], Steps[T]]) -> Steps[T]:
        """Run a path, and again while other writers are faster. Return its result.

        Usually the log has the other writer's epoch then. If it has not, no try is the last: a
        channel that was made again below the end of its log, or in which somebody has forged an
        end. That raises LogGapError."""
        self.refused, self._refused_at = 0, -1
        while True:
            try:
                return (yield from path())
            except EndMovedError as error:
                logger.info(
                    "%s; planning again", error, event="planned-again", stream=self.log.stream
                )
            except (ManifestExists, StaleWriteError) as error:
                if self.keeps_frames and isinstance(error, StaleWriteError):
                    raise
                self._count(error)

    def _count(self, error: Exception) -> None:
        """Count a refusal. Raises LogGapError when it is one of several at the same length."""
        newest = self.log.newest_epoch()
        self.refused = self.refused + 1 if newest == self._refused_at else 1
        self._refused_at = newest
        if self.refused >= MOST_REFUSALS:
            raise LogGapError(
                f"{self.log.channel.url}: manifest {newest + 1} of {self.log.stream} was refused "
                f"{self.refused} times, as if it was there, and the log ends with {newest}. Topics "
                "or folders of the channel were deleted and made again, or somebody else writes to "
                "them. The stream is held. Restore the channel, or give the sender another "
                f"`channel`, in which a new log begins. ({error})"
            ) from error

    def end(self) -> LogEnd:
        """Read where the log ends. Raises LogGapError when it is not the one that it was."""
        checkpoint = self.checkpoint()
        last = self.log.newest_manifest(checkpoint.epoch if checkpoint is not None else 0)
        end = LogEnd(checkpoint, last)
        return replace(end, replaces_lost=check_log(self.log, end, self.new_log))

    def check_acks(self, end: LogEnd) -> None:
        """Raise LogGapError when a site has acked more than the log has."""
        check_acks(self.log, end, self.new_log)

    def all_or_nothing(self, attempt: str, write: Callable[[], T]) -> T:
        """Write the frames of an attempt, or leave none: a held stream is retried again and
        again."""
        try:
            return write()
        except Exception:
            channel, stream = self.log.channel, self.log.stream
            with suppress(WanError):  # the sweep takes them then
                written = channel.frames(stream, write_of(attempt))
                channel.trim_frames(stream, [path for path, _ in written])
            raise

    def following(self, last: Manifest | None, settings: StreamSettings, **fields: Any) -> Manifest:
        """Return the manifest that follows ``last`` (None: the first of a new log).

        ``fields``: those that are not the same in all epochs, ``selection`` if it is not
        :data:`ALL_ROWS`."""
        return Manifest.following(
            last,
            stream=self.log.stream,
            origin=settings.origin,
            sent_to=settings.sent_to,
            addressees=settings.addressees,
            table=settings.table,
            keys=settings.keys,
            created=self.clock(),
            **{"selection": ALL_ROWS, "dropped": self._still_dropped(last), **fields},
        )

    def _still_dropped(self, last: Manifest | None) -> Mapping[str, int]:
        """Return which of the sites that were dropped still lack what they were dropped for."""
        if last is None or not last.dropped:
            return {}
        has = acked_through(last, self.log.acks(), last.dropped)
        return {site: through for site, through in last.dropped.items() if has[site] < through}

    def without_rows(self, last: Manifest, settings: StreamSettings, **fields: Any) -> Manifest:
        """Return the manifest that follows ``last``, of a table, and carries nothing. ``fields``:
        those in which it does not go on as ``last`` ended.

        One that names addressees, of which some are new, shows a gap to whoever lacks what comes
        before it, though nothing else may be sent for long. The others have that already."""
        end = {
            "kind": CAPTURE,
            "table_id": last.table_id,
            "selection": last.selection,
            "schema": last.schema,
            "first_version": last.last_version + 1,
            "last_version": last.last_version,
            "start": False,
            "commits": (),
            "identity": last.identity,
            "frames": (),
            "disjoint": True,
            "clock": last.clock,
            "via": last.via,
        }
        return self.following(last, settings, **{**end, **fields})

    def append(self, manifest: Manifest, began: int) -> Manifest:
        """Append a manifest whose first frame was written after ``began`` (by ``clock``). Return it
        as it was appended.

        Raises StaleWriteError when a sweep may take the frames before the manifest names them, and
        ManifestExists as :meth:`StreamLog.append` does, or when this process was frozen in it for
        so long that they were swept; and what :attr:`check` raises. The frames of a refused
        manifest are removed, unless this writer keeps them, and so are those of one for which the
        disk has no room."""
        self._checked(manifest)
        try:
            return self._append_in_time(manifest, began)
        except (ManifestExists, StaleWriteError) as error:
            if not self.keeps_frames:
                self._remove_frames(manifest)
            elif isinstance(error, ManifestExists) and not are_there(self.log, manifest.frames):
                # The append may have counted all the same, and the epoch may be acked and trimmed
                # since: then its frames are gone.
                raise self._stale() from None
            raise
        except ChannelError as error:
            # A file for which there was no room never gets its name: no manifest names the frames.
            # Left there, those of each retry would take what room there is.
            if is_disk_full(error):
                with suppress(WanError):
                    self._remove_frames(manifest)
            raise

    def _checked(self, manifest: Manifest) -> None:
        try:
            self.check(manifest)
        except Exception:
            with suppress(WanError):  # the sweep takes them then
                self._remove_frames(manifest)
            raise

    def _remove_frames(self, manifest: Manifest) -> None:
        paths = [frame.path for frame in manifest.frames]
        self.log.channel.trim_frames(self.log.stream, paths)

    def _append_in_time(self, manifest: Manifest, began: int) -> Manifest:
        log, since = self.log, self.clock()
        if since - began > STALE_AGE * 1000 and not are_safe(log, manifest.frames):
            raise self._stale()
        manifest = log.append(manifest)
        if self.clock() - since > STALE_AGE * 1000 and not are_there(log, manifest.frames):
            if log.newest_epoch() == manifest.epoch:
                log.channel.trim_manifest(log.stream, manifest.epoch)
                log.forget()
            raise ManifestExists(
                f"{log.stream}: the frames of manifest {manifest.epoch} were swept before it named "
                "them"
            )
        return manifest

    def _stale(self) -> StaleWriteError:
        """Return the error for a write whose frames are gone, or may be swept at any moment."""
        return StaleWriteError(
            f"wan sink, stream {self.log.stream}: the write was interrupted for so long that its "
            "frames are, or may be, no longer in the channel. Write the rows again: receivers "
            "recognise those that have arrived by their event IDs."
        )

    def record(self, before: SenderCheckpoint | None, manifest: Manifest) -> None:
        """Save the checkpoint that follows ``before`` once ``manifest`` is appended."""
        if self.checkpoints is not None:
            self.checkpoints.save(self.log.stream, SenderCheckpoint.after(before, manifest))

    def checkpoint(self) -> SenderCheckpoint | None:
        """Read the checkpoint of the stream."""
        return None if self.checkpoints is None else self.checkpoints.load(self.log.stream)


def remove_unnamed(log: StreamLog, frames: Sequence[FrameRef], epoch: int | None = None) -> None:
    """Remove those of ``frames`` that no manifest names: those of a write that was refused, or was
    done already, by ``epoch``. The manifests that may name them are that one and the newest. The
    sweep takes what cannot be removed now. Not for a write whose manifest may still arrive."""
    with suppress(WanError):
        newest = log.newest_epoch()
        recent = {*range(max(1, newest - RECENT_EPOCHS + 1), newest + 1), epoch or newest} - {0}
        manifests = log.read_each(sorted(recent))
        named = {frame.path for manifest in manifests if manifest for frame in manifest.frames}
        unnamed = [frame.path for frame in frames if frame.path not in named]
        log.channel.trim_frames(log.stream, unnamed)
