"""The sweep: removes orphans, the frames that failed, speculative and killed attempts have left."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_wan.channels.base import PAGE, write_of
from spark_wan.log.frame_age import ORPHAN_AGE, newest_frames
from spark_wan.log.progress import acked_through, waited_through
from spark_wan.messages import message_log
from spark_wan.sender.acks import AckManager, ever_acked
from spark_wan.wire.manifest import Manifest

log = message_log(__name__)

SWEPT_AT_ONCE = 200
"""Number of manifests that one call of :meth:`Sweep.run_when_due` reads."""
SWEEP_INTERVAL = 3_600_000
"""Milliseconds between sweeps of orphans."""


@dataclass
class OrphanSearch:
    """The search for the manifests that name old frames, from the lowest manifest on."""

    candidates: set[str]
    """Old frames that no manifest read so far names."""
    through: int = 0
    """The manifests through this epoch were read."""
    missing: int = 0
    """The highest epoch below it that has no manifest."""
    ended: bool = False
    removed: int = 0

    def note(self, epoch: int, manifest: Manifest | None) -> None:
        """Note the next manifest of the log; None: it was trimmed since it was listed."""
        if epoch > self.through + 1:
            self.missing = epoch - 1
        self.through = epoch
        if manifest is not None:
            self.candidates -= {frame.path for frame in manifest.frames}


@dataclass
class Sweep:
    """The sweep of one stream. Two at once cost requests and nothing else."""

    acks: AckManager
    """The stream's ack manager: knows which sites may still need a manifest."""
    _search: OrphanSearch | None = None
    """One that has manifests left to read."""
    _swept: int = 0

    def run_when_due(self) -> None:
        """Remove orphans, if the last time is an hour ago. A part of the work, if there are many
        manifests: the next call goes on."""
        if self._search is None:
            self._search = self._begin_when_due()
        if self._search is not None:
            self.go_on(self._search, SWEPT_AT_ONCE)
            if self._search.ended:
                self._search = None

    def run(self, older_than: float) -> int:
        """Remove frames that no manifest names and that are older than ``older_than`` seconds.
        Returns how many.

        Removes nothing while manifests are missing that some site may still need: once they are
        restored, they name their frames."""
        search = self.old_frames(older_than)
        while not search.ended:
            self.go_on(search, PAGE)
        return search.removed

    def _begin_when_due(self) -> OrphanSearch | None:
        """Begin, and note so for later processes, too; return None when it is not yet time."""
        now = self.acks.clock()
        if 0 <= now - self._swept < SWEEP_INTERVAL:
            return None
        checkpoint = self.acks.checkpoint()
        if checkpoint is not None and 0 <= now - checkpoint.swept < SWEEP_INTERVAL:
            self._swept = checkpoint.swept
            return None
        search = self.old_frames(ORPHAN_AGE)
        self._swept = now
        if checkpoint is not None:
            self.acks.save_checkpoint(replace(checkpoint, swept=now))
        return search

    def old_frames(self, older_than: float) -> OrphanSearch:
        """Return the frames that are old enough to be orphans, if no manifest names them."""
        channel, stream = self.acks.log.channel, self.acks.log.stream
        written = channel.frames(stream)
        if not written:
            return OrphanSearch(set())
        # By the store's clock: to a wrong clock here, another writer's frames would look old.
        newest, now = newest_frames(written), channel.now()
        return OrphanSearch(
            {path for path, _ in written if newest[write_of(path)] < now - older_than}
        )

    def go_on(self, search: OrphanSearch, most: int) -> None:
        """Read the next manifests, at most ``most``. At the end of the log, remove what none names.

        They are read after the frames were listed: a frame that is named in between is spared."""
        stream_log = self.acks.log
        channel, stream = stream_log.channel, stream_log.stream
        page = channel.stream_epochs(stream, search.through, most) if search.candidates else []
        for epoch, manifest in zip(page, stream_log.read_each(page), strict=True):
            search.note(epoch, manifest)
        if page:
            return
        if search.candidates and self._names_no_candidate(search):
            channel.trim_frames(stream, sorted(search.candidates))
            search.removed = len(search.candidates)
        search.ended = True

    def _names_no_candidate(self, search: OrphanSearch) -> bool:
        """Whether no manifest names the candidates that are left, not even one that may be
        restored: all were read, and nothing is missing that some site may still need."""
        epochs, _, last = self.acks.log.oldest()
        if last is None or last.epoch != search.through:
            return False
        # What is missing below the log is trimmed. In it, it may be restored.
        return search.missing < epochs[0] and self._is_whole(epochs[0], last)

    def _is_whole(self, lowest: int, last: Manifest) -> bool:
        """Whether the log has all that some site may still need: it has not gone back, and nothing
        is missing below its ``lowest`` epoch that is not acked."""
        checkpoint = self.acks.checkpoint()
        lost = checkpoint is not None and (
            checkpoint.log_id != last.log_id or checkpoint.epoch > last.epoch
        )
        applied = acked_through(last, self.acks.read_acks(), self.acks.addressees(last))
        acked = waited_through(last, ever_acked(last, applied, checkpoint))
        lacking = sorted(site for site, epoch in acked.items() if epoch < lowest - 1)
        if lost:
            cause = "the log does not follow from the sender's checkpoint"
        elif lacking:
            cause = (
                f"{', '.join(lacking)} may need manifests before {lowest}, which are not in the "
                "channel"
            )
        else:
            return True
        log.warning(
            "%s: %s, so no frames are removed that a restored manifest may name",
            self.acks.log.stream,
            cause,
            event="not-swept",
            stream=self.acks.log.stream,
            what_to_do="Restore the manifests, or give the sites copies of the table.",
        )
        return False
