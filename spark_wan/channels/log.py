"""The log of a stream on a channel: manifests 1, 2, 3 …, and the acks that answer them.

Any writer may extend a log, but only from its newest manifest (invariant 2):
:meth:`StreamLog.append` takes the epoch after the one that was read. A writer that loses the race
reloads the log and replans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_wan.channels.base import Channel
from spark_wan.errors import LogGapError, ManifestError, ManifestExists
from spark_wan.wire.ack import Ack
from spark_wan.wire.manifest import Manifest, fingerprint


def acked_through(newest: Manifest, acks: Mapping[str, Ack]) -> dict[str, int]:
    """Return the epoch through which each addressee of the newest manifest has acked its log.

    It is 0 for a site without an ack for this log.
    """
    return {
        site: ack.applied if (ack := acks.get(site)) and ack.log_id == newest.log_id else 0
        for site in newest.addressees
    }


class StreamLog:
    """Log of one stream on one channel. Stateless: every call reads the channel.

    The log is what its newest manifest follows from: a manifest counts when the next one names its
    fingerprint. A manifest below a missing epoch continues nothing. Either the missing ones were
    trimmed, and a writer that had been frozen wrote a trimmed epoch once more (a *stray*, which
    the ack manager deletes). Or they were deleted, and a reader that still needs them notices that
    the log begins above the epoch that it has applied.
    """

    def __init__(self, channel: Channel, stream: str) -> None:
        self.channel = channel
        self.stream = stream

    def newest_manifest(self) -> Manifest | None:
        """Return the newest manifest, if any. Raises LogGapError and ManifestError."""
        newest = 0
        while True:
            before, newest = newest, self.newest_epoch()
            if newest == 0:
                return None
            try:
                return self.read(newest)
            except ManifestError:
                if newest == before or self._is_there(newest):
                    raise
                # Trimmed since it was listed: the log has moved on.

    def read(self, epoch: int) -> Manifest:
        """Return the manifest of an epoch.

        Raises ManifestError, and LogGapError when the manifest is of another epoch or stream.
        """
        where = f"{self.channel.url}: manifest {epoch} of {self.stream}"
        manifest = Manifest.decode(self.channel.manifest(self.stream, epoch), where)
        if (manifest.stream, manifest.epoch) != (self.stream, epoch):
            raise LogGapError(
                f"{where} holds epoch {manifest.epoch} of {manifest.stream}: the log was "
                "rewritten. The stream is held; restore the channel's log."
            )
        return manifest

    def since(self, after: int, epochs: Sequence[int] | None = None) -> list[int]:
        """Return the epochs above ``after`` that lead to the newest without a gap, ascending."""
        return [epoch for epoch in self.fold(epochs)[0] if epoch > after]

    def fold(self, listed: Sequence[int] | None = None) -> tuple[list[int], list[int]]:
        """Return the epochs that lead to the newest without a gap, and the epochs below the gap.

        Both are ascending. A listing is not made at one moment: while the log is extended and
        trimmed, it may leave out manifests that are there. So each missing one is requested itself.
        """
        below = sorted(self.channel.stream_epochs(self.stream) if listed is None else listed)
        whole: list[int] = []
        while below:
            if whole and below[-1] < whole[-1] - 1:
                if not self._is_there(whole[-1] - 1):
                    break
                whole.append(whole[-1] - 1)
            else:
                whole.append(below.pop())
        return whole[::-1], below

    def check_gap(
        self, whole: Sequence[int], below: Sequence[int], acked: Mapping[str, int]
    ) -> None:
        """Raise LogGapError when epochs that :meth:`fold` misses are not acked by every site."""
        if below and min(acked.values(), default=whole[0]) < whole[0] - 1:
            raise LogGapError(
                f"{self.channel.url}: the log of {self.stream} goes from {below[-1]} to "
                f"{whole[0]}: manifests are missing, and not every site has acked them (acked: "
                f"{dict(acked)}). Restore them in the channel; without them, those sites need a "
                "full copy."
            )

    def append(self, manifest: Manifest) -> None:
        """Add the next manifest.

        A writer may freeze at any moment, while others extend the log and trim it, so that its
        epoch is absent again. So the manifest's place in the log is checked before the write, and
        once more after it.

        Raises ManifestExists when another writer has added that epoch, or the log has moved on:
        reload the log and replan.
        """
        data = manifest.encode()
        try:
            if not self._is_next(manifest):
                raise self._moved_on(manifest)
            self.channel.append(self.stream, manifest.epoch, data)
        except ManifestExists as exists:
            # A store's client repeats a write that got no answer: this manifest may be there.
            try:
                there = self.channel.manifest(self.stream, manifest.epoch)
            except ManifestError:
                raise exists from None
            if there != data:
                raise
        if not self._counts(manifest):
            self.channel.trim_manifest(self.stream, manifest.epoch)
            raise self._moved_on(manifest)

    def acks(self) -> Mapping[str, Ack]:
        """Return the newest ack of each site that wrote a readable one."""
        acks = ((site, Ack.decode(data)) for site, data in self.channel.acks(self.stream).items())
        return {
            site: ack
            for site, ack in acks
            if ack is not None and (ack.site, ack.stream) == (site, self.stream)
        }

    def newest_epoch(self) -> int:
        """Return the highest epoch, 0 for a stream without manifests."""
        return max(self._listed(), default=0)

    def _is_next(self, manifest: Manifest) -> bool:
        """Return whether the log ends right before ``manifest``, as far as it shows beforehand."""
        return self.newest_epoch() == 0 if manifest.epoch == 1 else self._follows(manifest)

    def _counts(self, manifest: Manifest) -> bool:
        """Return whether a manifest that was just written is part of the log.

        Manifests are trimmed from the lowest one on.
        """
        try:
            return self.read(manifest.epoch + 1).previous == manifest.fingerprint
        except ManifestError:
            if self._is_there(manifest.epoch + 1):
                raise
        if self._follows(manifest):
            return True
        listed = self._listed()
        if any(epoch > manifest.epoch for epoch in listed):
            # The next manifest is trimmed, so this one, if it counted, would be trimmed too.
            return False
        # Either the manifest before it was trimmed since (a writer that had been frozen may have
        # written that epoch once more) while this one was the newest, or its log was lost and
        # another log has begun since.
        below = max((epoch for epoch in listed if epoch < manifest.epoch), default=0)
        return not below or not self._began_since(below, manifest)

    def _follows(self, manifest: Manifest) -> bool:
        """Return whether the manifest that ``manifest`` names as the one before it is there."""
        if manifest.epoch == 1:
            return False
        try:
            before = self.channel.manifest(self.stream, manifest.epoch - 1)
        except ManifestError:
            return False
        return fingerprint(before) == manifest.previous

    def _began_since(self, epoch: int, manifest: Manifest) -> bool:
        """Return whether ``epoch`` is of another log, and was written after ``manifest``."""
        try:
            other = self.read(epoch)
        except ManifestError:
            return False
        return other.log_id != manifest.log_id and other.created > manifest.created

    def _listed(self) -> list[int]:
        """List the epochs, once more when there are few.

        A listing of a directory that is extended and trimmed meanwhile may miss the newest
        manifest and the one before it.
        """
        listed = self.channel.stream_epochs(self.stream)
        return listed if len(listed) > 1 else self.channel.stream_epochs(self.stream)

    def _moved_on(self, manifest: Manifest) -> ManifestExists:
        return ManifestExists(
            f"{self.channel.url}: manifest {manifest.epoch} does not follow the log of "
            f"{self.stream}, which has moved on or was deleted; reload the log."
        )

    def _is_there(self, epoch: int) -> bool:
        try:
            self.channel.manifest(self.stream, epoch)
        except ManifestError:
            return False
        return True
