"""The log of a stream on a channel: manifests 1, 2, 3 …, and the acks that answer them.

Any writer may extend a log, but only from its newest manifest: :meth:`StreamLog.append` takes the
epoch after the one that was read. A writer that loses the race reloads the log and replans.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from spark_wan.channels.base import PAGE, Channel
from spark_wan.channels.parallel import in_order
from spark_wan.errors import (
    ChannelError,
    LogGapError,
    ManifestError,
    ManifestExists,
    SigningKeyError,
    UntrustedError,
)
from spark_wan.log import notes
from spark_wan.log.trust import NO_KEYS, StreamTrust
from spark_wan.messages import message_log
from spark_wan.wire.ack import Ack
from spark_wan.wire.manifest import MAX_MANIFEST_BYTES, Manifest, fingerprint
from spark_wan.wire.names import is_safe, shown
from spark_wan.wire.refused import RefusedEvents

log = message_log(__name__)

CACHED_MANIFESTS = 16
"""Number of manifests that a log keeps in memory."""


class StreamLog:
    """Log of one stream on one channel. Several threads may share it.

    The log is what its newest manifest follows from: a manifest counts when the next one names its
    fingerprint. A manifest below a missing epoch continues nothing. Either the missing ones were
    trimmed, and a writer that had been frozen wrote a trimmed epoch once more (a *stray*, which
    the ack manager deletes). Or they were deleted, and a reader that still needs them notices that
    the log begins above the epoch that it has applied.

    Where the log ends is always read from the channel. What this object remembers makes that
    cheap, and decides nothing: the newest epoch that it has seen, from which it lists on, and some
    manifests, which never change.
    """

    def __init__(self, channel: Channel, stream: str, trust: StreamTrust = NO_KEYS) -> None:
        if not is_safe(stream):
            raise UntrustedError(
                f"{channel.url}: {shown(stream)} is not the name of a stream: it could lead out of "
                "its folder. Nothing of it is read. Find out who wrote it, and remove it from the "
                "channel: its objects in log/, heads/, frames/ and acks/."
            )
        self.channel = channel
        self.stream = stream
        self.trust = trust
        self.newest_seen = 0
        """The newest epoch that was read or appended here; 0: none."""
        self.told: tuple[str, int] | None = None
        """(log ID, epoch) of the newest manifest that readers are known to have been told of."""
        self._lock = threading.Lock()
        self._cached: OrderedDict[int, Manifest] = OrderedDict()

    def newest_manifest(self, hint: int = 0) -> Manifest | None:
        """Return the newest manifest, if any. Raises LogGapError and ManifestError.

        It is one of this site's own log: a manifest that came from elsewhere is trusted by
        :meth:`read` alone.

        ``hint``: an epoch that the log has probably reached. It saves listing the epochs below.
        """
        newest = 0
        while True:
            before, newest = newest, self.newest_epoch(hint)
            if newest == 0:
                return None
            try:
                return self.reread(newest)
            except ManifestError:
                if newest == before or self._is_there(newest):
                    raise
                # Trimmed since it was listed: the log has moved on.

    def read(self, epoch: int) -> Manifest:
        """Return the manifest of an epoch, from memory if it was read before.

        Raises ManifestError, and LogGapError when the manifest is of another epoch or stream.
        UntrustedError when it must not be acted on (:class:`StreamTrust`).
        """
        manifest = self.peek(epoch)
        if manifest.refusal is not None:
            with self._lock:
                self._cached.pop(epoch, None)  # keys may be added
            raise UntrustedError(manifest.refusal)
        return manifest

    def peek(self, epoch: int) -> Manifest:
        """Return the manifest of an epoch like :meth:`read`, even if it must not be acted on: for
        a look at where the log ends, and at epochs that are applied already."""
        with self._lock:
            known = self._cached.get(epoch)
            if known is not None:
                self._cached.move_to_end(epoch)
                return known
        return self._keep(self._fetch(epoch))

    def reread(self, epoch: int) -> Manifest:
        """Return the manifest of an epoch as the channel has it now.

        Forgets other manifests when it does not fit them: the log was restored or begun anew.
        """
        manifest = self._fetch(epoch)
        with self._lock:
            known, before = self._cached.get(epoch), self._cached.get(epoch - 1)
            if (
                any(each.log_id != manifest.log_id for each in self._cached.values())
                or (known is not None and known.fingerprint != manifest.fingerprint)
                or (before is not None and before.fingerprint != manifest.previous)
            ):
                self._cached.clear()
        return self._keep(manifest)

    def forget(self) -> bool:
        """Forget the manifests in memory. Return whether there were any."""
        with self._lock:
            known = bool(self._cached)
            self._cached.clear()
        return known

    def read_each(self, epochs: Sequence[int]) -> Iterator[Manifest | None]:
        """Yield the manifests of epochs, several read at once; None for one that is trimmed.

        Raises as :meth:`read` does for one that is there and cannot be read, when it is its turn.
        """
        return in_order(self._read_if_there, epochs)

    def epochs(self, after: int = 0) -> list[int]:
        """Return all epochs above ``after`` that have a manifest, ascending, page by page."""
        epochs: list[int] = []
        while True:
            page = self.channel.stream_epochs(self.stream, epochs[-1] if epochs else after)
            epochs += page
            if len(page) < PAGE:
                return epochs

    def since(self, after: int, epochs: Sequence[int] | None = None) -> list[int]:
        """Return the epochs above ``after`` that lead to the newest without a gap, ascending."""
        listed = self._listed(after) if epochs is None else epochs
        return [epoch for epoch in self.whole_and_below(listed)[0] if epoch > after]

    def whole_and_below(self, listed: Sequence[int] | None = None) -> tuple[list[int], list[int]]:
        """Return the epochs that lead to the newest without a gap, and the epochs below the gap.

        Both are ascending. A listing is not made at one moment: while the log is extended and
        trimmed, it may leave out manifests that are there. So each missing one is requested itself.
        """
        below = sorted(self._listed() if listed is None else listed)
        whole: list[int] = []
        while below:
            if whole and below[-1] < whole[-1] - 1:
                if not self._is_there(whole[-1] - 1):
                    break
                whole.append(whole[-1] - 1)
            else:
                whole.append(below.pop())
        return whole[::-1], below

    def oldest(self) -> tuple[list[int], list[int], Manifest | None]:
        """Return what :meth:`whole_and_below` does for the lowest epochs, and the newest manifest.

        One page of epochs, however many there are: the newest is among them only when there are
        few. Those of a page that is full are taken to lead to the newest.
        """
        seen = self.newest_seen
        page = self.channel.stream_epochs(self.stream)
        newest = self._read_if_there(page[-1], again=True) if 0 < len(page) < PAGE else None
        if newest is None:
            newest = self.newest_manifest()
            page = self.channel.stream_epochs(self.stream)
        if newest is None:
            return [], [], None
        self._saw(newest.epoch, seen)
        lowest = [epoch for epoch in page if epoch <= newest.epoch]
        return *self.whole_and_below(lowest or [newest.epoch]), newest

    def check_gap(
        self, whole: Sequence[int], below: Sequence[int], acked: Mapping[str, int]
    ) -> None:
        """Raise LogGapError when epochs that are missing are not acked by every site."""
        if below and min(acked.values(), default=whole[0]) < whole[0] - 1:
            raise LogGapError(
                f"{self.channel.url}: the log of {self.stream} goes from {below[-1]} to "
                f"{whole[0]}: manifests are missing, and not every site has acked them (acked: "
                f"{dict(acked)}). Restore them in the channel; without them, those sites need a "
                "copy of the table."
            )

    def append(self, manifest: Manifest) -> Manifest:
        """Add the next manifest, signed if this site has keys, and tell the readers. Return it as
        it was added.

        A writer may freeze at any moment, while others extend the log and trim it, so that its
        epoch is absent again. So the manifest's place in the log is checked before the write, and
        once more after it, unless the channel itself compares it
        (:attr:`Channel.orders_appends`). The log's length does not matter: the manifest before
        it is read, and what comes after it is listed.

        Raises ManifestExists when another writer has added that epoch, or the log has moved on:
        reload the log and replan. SigningKeyError when it cannot be signed.
        """
        if self.trust.signer is not None:
            manifest = manifest.signed_by(self.trust.signer)
        data = manifest.encode()
        if len(data) > MAX_MANIFEST_BYTES:
            raise ManifestError(
                f"{self.stream}: the manifest of epoch {manifest.epoch} would have {len(data):,} "
                f"bytes, for {len(manifest.frames):,} frames; receivers read "
                f"{MAX_MANIFEST_BYTES:,}. Raise batch_size and batch_bytes of the sender."
            )
        try:
            if not self.channel.orders_appends and not self._is_next(manifest):
                raise self._moved_on(manifest)
            paths = [frame.path for frame in manifest.frames]
            self.channel.append(
                self.stream, manifest.epoch, data, previous=manifest.previous, frames=paths
            )
        except ManifestExists as exists:
            # A store's client repeats a write that got no answer: this manifest may be there.
            try:
                there = self.channel.manifest(self.stream, manifest.epoch)
            except ManifestError:
                raise exists from None
            if there != data:
                raise
        self._put_head(manifest, data)
        if not self.channel.orders_appends and not self._counts(manifest):
            self.channel.trim_manifest(self.stream, manifest.epoch)
            raise self._moved_on(manifest)
        self._keep(manifest)
        with self._lock:
            self.newest_seen = manifest.epoch
        return manifest

    def tell(self, newest: Manifest) -> None:
        """Make sure that readers hear of the newest manifest: its writer may have died before."""
        if notes.head(self.channel, self.stream) < newest.epoch:
            notes.put_head(self.channel, self.stream, newest.epoch, newest.encode())
        self.told = newest.log_id, newest.epoch

    def trim(self, through: int, frames: Iterable[str]) -> None:
        """Delete the log through an epoch, with ``frames``. See :meth:`Channel.trim`."""
        self.channel.trim(self.stream, through, frames)
        with self._lock:
            for epoch in [epoch for epoch in self._cached if epoch <= through]:
                del self._cached[epoch]

    def acks(self) -> Mapping[str, Ack]:
        """Return the newest ack of each site that wrote one.

        See :meth:`Ack.of` for those of a newer spark_wan.
        """
        return read_acks(self.stream, notes.acks(self.channel, self.stream), self.trust)

    def ack(self, site: str) -> Ack | None:
        """Return the newest ack of a site, None when it wrote no readable one."""
        data = notes.ack(self.channel, self.stream, site)
        return None if data is None else read_acks(self.stream, {site: data}, self.trust).get(site)

    def put_ack(self, ack: Ack) -> None:
        """Write an ack of this site, signed if it has keys."""
        if self.trust.ack_signer is not None:
            ack = ack.signed_by(self.trust.ack_signer)
        notes.put_ack(self.channel, self.stream, ack.site, ack.encode())

    def refused(self, site: str) -> RefusedEvents | None:
        """Return what a site says that it could not apply; None: nothing that can be read. Raises
        ChannelError, UntrustedError, NewerRecordError."""
        data = notes.refused(self.channel, self.stream, site)
        keys = self.trust.ack_keys.get(site, ())
        return None if data is None else RefusedEvents.of(data, self.stream, site, keys)

    def put_refused(self, record: RefusedEvents) -> None:
        """Write what this site could not apply, signed if it has keys."""
        if self.trust.ack_signer is not None:
            record = record.signed_by(self.trust.ack_signer)
        notes.put_refused(self.channel, self.stream, record.site, record.encode())

    def newest_epoch(self, hint: int = 0) -> int:
        """Return the highest epoch, 0 for a stream without manifests.

        Lists on from the newest epoch seen, or from ``hint``. When that one is gone, or few are
        listed, the log is listed once more: a listing of a directory that is extended and trimmed
        meanwhile may miss the newest manifest and the one before it.
        """
        seen = self.newest_seen
        start = max(seen, hint)
        epochs = self.epochs(start - 1) if start else []
        if not epochs:
            epochs = self._listed()
        newest = max(epochs, default=0)
        self._saw(newest, seen)
        return newest

    def _saw(self, newest: int, before: int) -> None:
        """Note the newest epoch, unless another thread has since ``before`` was noted."""
        with self._lock:
            if self.newest_seen == before:
                self.newest_seen = newest

    def _fetch(self, epoch: int) -> Manifest:
        where = f"{self.channel.url}: manifest {epoch} of {self.stream}"
        manifest = Manifest.decode(self.channel.manifest(self.stream, epoch), where)
        if (manifest.stream, manifest.epoch) != (self.stream, epoch):
            raise LogGapError(
                f"{where} holds epoch {manifest.epoch} of {manifest.stream}: the log was "
                "rewritten. The stream is held; restore the channel's log."
            )
        for frame in manifest.frames:
            if not self.channel.is_frame_of(self.stream, frame.path):
                raise UntrustedError(
                    f"{where} names the frame {shown(frame.path)}, which is not in the folder of "
                    "the stream's frames. spark_wan did not write this manifest. The stream is "
                    "held; restore the channel's log."
                )
        if self.trust.manifests is not None:
            try:
                refusal = self.trust.manifests.refusal(manifest)
            except SigningKeyError as error:
                refusal = f"its signature cannot be checked: {error}"
            if refusal is not None:
                manifest.__dict__["refusal"] = f"{where}: {refusal}"
        return manifest

    def _keep(self, manifest: Manifest) -> Manifest:
        with self._lock:
            self._cached[manifest.epoch] = manifest
            self._cached.move_to_end(manifest.epoch)
            while len(self._cached) > CACHED_MANIFESTS:
                self._cached.popitem(last=False)
        return manifest

    def _read_if_there(self, epoch: int, again: bool = False) -> Manifest | None:
        try:
            return self.reread(epoch) if again else self.read(epoch)
        except ManifestError:
            if self._is_there(epoch):
                raise
            return None

    def _put_head(self, manifest: Manifest, data: bytes) -> None:
        try:
            notes.put_head(self.channel, self.stream, manifest.epoch, data)
        except ChannelError as error:
            # The manifest is there. The ack manager writes the head, or readers list the log.
            log.warning(
                "%s: epoch %d is appended, but %s",
                self.stream,
                manifest.epoch,
                error,
                event="head-not-written",
                stream=self.stream,
                epoch=manifest.epoch,
                cause=str(error),
            )
        else:
            self.told = manifest.log_id, manifest.epoch

    def _is_next(self, manifest: Manifest) -> bool:
        """Return whether the log ends right before ``manifest``, as far as it shows beforehand."""
        if manifest.epoch == 1:
            return not self.channel.stream_epochs(self.stream, 0, 1)
        return self._follows(manifest)

    def _counts(self, manifest: Manifest) -> bool:
        """Return whether a manifest that was just written is part of the log.

        A log keeps its newest manifest. So where there is a later one, that one decides, or else
        the next one was trimmed, and this one, if it counted, was to be trimmed with it.
        """
        for later in self.channel.stream_epochs(self.stream, manifest.epoch, 1):
            try:
                return (
                    later == manifest.epoch + 1
                    and self._fetch(later).previous == manifest.fingerprint
                )
            except ManifestError:
                if self._is_there(later):
                    raise
                return False
        if self._follows(manifest):
            return True
        # Either the manifest before it was trimmed since (a writer that had been frozen may have
        # written that epoch once more) while this one was the newest, or its log was lost and
        # another log has begun since.
        below = max((epoch for epoch in self._listed() if epoch < manifest.epoch), default=0)
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
            other = self._fetch(epoch)
        except ManifestError:
            return False
        return other.log_id != manifest.log_id and other.created > manifest.created

    def _listed(self, after: int = 0) -> list[int]:
        """List the epochs, once more when there are few (see :meth:`newest_epoch`)."""
        listed = self.epochs(after)
        return listed if len(listed) > 1 else self.epochs(after)

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


def read_acks(
    stream: str, acks: Mapping[str, bytes], trust: StreamTrust = NO_KEYS
) -> dict[str, Ack]:
    """Return those of a stream's acks, by site, that can be read and are of that site.

    See :meth:`Ack.of` for those of a newer spark_wan, and those that should be signed and are not.
    """
    found = (
        (site, Ack.of(data, site, stream, trust.ack_keys.get(site, ())))
        for site, data in acks.items()
    )
    return {site: ack for site, ack in found if ack is not None}
