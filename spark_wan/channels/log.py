"""The channel log of a stream: manifests 1, 2, 3 …, and the acks that answer them.

Anyone may extend a log, but only from its last manifest (invariant 2): :meth:`StreamLog.append` takes the number after the one that was
read, and a writer that lost the race reloads and decides again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_wan.channels.base import Channel
from spark_wan.errors import LogGapError, ManifestError, ManifestExists
from spark_wan.wire.ack import Ack
from spark_wan.wire.manifest import Manifest, fingerprint


def acked_through(newest: Manifest, acks: Mapping[str, Ack]) -> dict[str, int]:
    """Through which number each addressee of the newest manifest has acked its log; 0 without an ack for this log."""
    answers = {site: acks.get(site) for site in newest.addressees}
    return {
        site: ack.applied if ack is not None and ack.log_id == newest.log_id else 0
        for site, ack in answers.items()
    }


class StreamLog:
    """The log of one stream on one channel. Stateless: every call reads the channel.

    The log is what its newest manifest follows from: a manifest counts when the next one names its fingerprint. A manifest below a
    missing number continues nothing. Either the missing ones were trimmed, and a writer that had been frozen wrote a trimmed number
    once more (a *stray*, which the ack keeper removes); or they were deleted, and then a reader that still needs them finds that
    the log begins above the place where it is.
    """

    def __init__(self, channel: Channel, stream: str) -> None:
        self.channel = channel
        self.stream = stream

    def newest_manifest(self) -> Manifest | None:
        """The newest manifest, or None for a stream without any. Raises LogGapError, ManifestError."""
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

    def read(self, number: int) -> Manifest:
        """Manifest ``number``. Raises ManifestError, and LogGapError when it calls itself something else."""
        where = f"{self.channel.url}: manifest {number} of {self.stream}"
        manifest = Manifest.decode(self.channel.manifest(self.stream, number), where)
        if (manifest.stream, manifest.epoch) != (self.stream, number):
            raise LogGapError(
                f"{where} says that it is number {manifest.epoch} of {manifest.stream}: the log was rewritten. "
                "The stream is held; restore the channel's log."
            )
        return manifest

    def since(self, after: int, numbers: Sequence[int] | None = None) -> list[int]:
        """The numbers above ``after`` that lead to the newest manifest without a gap, ascending."""
        return [number for number in self.fold(numbers)[0] if number > after]

    def fold(self, listed: Sequence[int] | None = None) -> tuple[list[int], list[int]]:
        """The numbers that lead to the newest manifest without a gap, and the numbers below the gap; both ascending.

        A listing is not made at one moment: while a log is extended and trimmed, it may leave out what is there. So each missing
        manifest is asked for by itself.
        """
        below = sorted(self.channel.stream_numbers(self.stream) if listed is None else listed)
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
        """Raise LogGapError when manifests between those of :meth:`fold` are missing that some site has not acked."""
        if below and min(acked.values(), default=whole[0]) < whole[0] - 1:
            raise LogGapError(
                f"{self.channel.url}: the log of {self.stream} goes from {below[-1]} to {whole[0]}: manifests are missing, and not every site has "
                f"acked them (acked: {dict(acked)}). Restore them in the channel; without them, those sites need a full copy."
            )

    def append(self, manifest: Manifest) -> None:
        """Add the next manifest.

        A writer may freeze at any moment, while others extend the log and trim it, so that its number is free again. So the
        place of the manifest is checked before it is written, and once more afterwards.

        Raises ManifestExists when another writer has added that number, or the log has moved on: reload the log and decide again.
        """
        data = manifest.encode()
        try:
            if not self._is_next(manifest):
                raise self._moved_on(manifest)
            self.channel.append(self.stream, manifest.epoch, data)
        except ManifestExists as exists:
            # A store's client repeats a write that got no answer: the manifest that is there may be this one.
            try:
                found = self.channel.manifest(self.stream, manifest.epoch)
            except ManifestError:
                raise exists from None
            if found != data:
                raise
        if not self._counts(manifest):
            self.channel.trim_manifest(self.stream, manifest.epoch)
            raise self._moved_on(manifest)

    def acks(self) -> Mapping[str, Ack]:
        """The last answer of each site that gave a readable one."""
        found = {}
        for site, data in self.channel.acks(self.stream).items():
            ack = Ack.decode(data)
            if ack is not None and ack.site == site and ack.stream == self.stream:
                found[site] = ack
        return found

    def _is_next(self, manifest: Manifest) -> bool:
        """Whether the log ends right before ``manifest``, as far as can be seen before it is written."""
        return self.newest_epoch() == 0 if manifest.epoch == 1 else self._follows(manifest)

    def _counts(self, manifest: Manifest) -> bool:
        """Whether a manifest that was just written is part of the log. Manifests are trimmed from the lowest one on."""
        try:
            return self.read(manifest.epoch + 1).previous == manifest.fingerprint
        except ManifestError:
            if self._is_there(manifest.epoch + 1):
                raise
        if self._follows(manifest):
            return True
        listed = self._numbers()
        if any(number > manifest.epoch for number in listed):
            # The next one is trimmed already, so this one, if it counted, would be trimmed too.
            return False
        # The one before it was trimmed since (its number may have been written once more, by a writer that had been frozen), and this one was there
        # to be the newest; or its log was lost, and another one has begun since.
        below = max((number for number in listed if number < manifest.epoch), default=0)
        return not below or not self._began_since(below, manifest)

    def _follows(self, manifest: Manifest) -> bool:
        """Whether the manifest before it is there, and the one that ``manifest`` names."""
        if manifest.epoch == 1:
            return False
        try:
            return (
                fingerprint(self.channel.manifest(self.stream, manifest.epoch - 1))
                == manifest.previous
            )
        except ManifestError:
            return False

    def _began_since(self, number: int, manifest: Manifest) -> bool:
        """Whether manifest ``number`` is of another log, and was made after ``manifest``."""
        try:
            found = self.read(number)
        except ManifestError:
            return False
        return found.log_id != manifest.log_id and found.created > manifest.created

    def newest_epoch(self) -> int:
        """The highest number, 0 for a stream without manifests. Listed again when it is low: a listing of a directory that is extended and
        trimmed meanwhile may miss the newest manifest, and the one before it."""
        return max(self._numbers(), default=0)

    def _numbers(self) -> list[int]:
        listed = self.channel.stream_numbers(self.stream)
        return listed if len(listed) > 1 else self.channel.stream_numbers(self.stream)

    def _moved_on(self, manifest: Manifest) -> ManifestExists:
        return ManifestExists(
            f"{self.channel.url}: manifest {manifest.epoch} does not follow the log of {self.stream}, which has moved on or was "
            "deleted; reload the log."
        )

    def _is_there(self, number: int) -> bool:
        try:
            self.channel.manifest(self.stream, number)
        except ManifestError:
            return False
        return True
