"""The ack manager: collects acks, announces overdue epochs again, trims, and sweeps orphans.

A sender's threads run it, and the sink's ``commit()``. Every step is idempotent: two of them at
work on one channel cost requests and nothing else. The numbered path, per stream:

    acks.1  acks-read         the acks of all sites, and the log
    acks.2  checkpointed      what was acked, before anything is trimmed because of it
    acks.3  announced         overdue epochs (``ack_timeout``), to sites that have acked before
    acks.4  frames-trimmed    of the lowest epoch that is done; after a crash before acks.5, the
                              next round trims its manifest
    acks.5  manifest-trimmed  each stream keeps its newest manifest

Only sites that the sender still serves count: the ack manager does not wait for one that was taken
out of the topology, and names it in the log. But where another sender has appended an epoch for
more sites since this ack manager began, the other sender knows more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spark_wan.channels.base import write_of
from spark_wan.channels.log import StreamLog
from spark_wan.errors import LogGapError, ManifestError
from spark_wan.sender.checkpoints import CheckpointStore, published_state
from spark_wan.sender.epochs import ORPHAN_AGE, newest_frames
from spark_wan.steps import Steps
from spark_wan.topology.ack_policy import AckPolicy
from spark_wan.wire.ack import Ack
from spark_wan.wire.checkpoint import SenderCheckpoint
from spark_wan.wire.manifest import Manifest

log = logging.getLogger(__name__)

SWEEP_INTERVAL = 3_600.0
"""Seconds between sweeps of orphans."""
NO_ACKS_POLL_INTERVAL = 5_000
"""Milliseconds between polls while a stream has no acks yet (Geode's gateway reconnect
interval)."""


@dataclass
class StreamState:
    """State of a stream after a round."""

    newest: Manifest | None = None
    oldest: int = 0
    """The lowest epoch whose manifest is left."""
    acks: Mapping[str, Ack] = field(default_factory=dict)
    backlog: int = 0
    """Manifests that some addressee has not acked."""
    overdue: bool = False
    not_served: tuple[str, ...] = ()
    """Addressees of the newest epoch that the sender no longer serves."""


@dataclass
class AckManager:
    """Ack manager of one stream."""

    log: StreamLog
    checkpoints: CheckpointStore
    policy: AckPolicy
    ack_timeout: int
    """In milliseconds."""
    clock: Callable[[], int]
    """Milliseconds since 1970 UTC."""
    served: Collection[str]
    """The sites that the sender serves now."""
    former: Collection[str] | None = None
    """The sites that it no longer serves; None: all others."""
    state: StreamState = field(default_factory=StreamState)
    _next_poll: int = 0
    _waiting: tuple[str, int, int] | None = None
    """(log ID, lowest epoch not acked, since when)"""
    _attempts: int = 0
    _swept: int = 0
    _logged: frozenset[str] = frozenset()
    """The sites no longer served that the log has named."""
    _first_newest: tuple[str, int] | None = None
    """(log ID, epoch) of the newest manifest in the first round."""
    _served_by_others: frozenset[str] = frozenset()
    _without_frames: tuple[str, int] | None = None
    """(log ID, epoch) of the newest manifest, once its frames are trimmed."""

    def due(self) -> bool:
        """Whether to poll now: always while sites ack, every 5 s while there are no acks, and
        whenever the clock was set back."""
        return not 0 < self._next_poll - self.clock() <= NO_ACKS_POLL_INTERVAL

    def acked_by(self, manifest: Manifest) -> set[str]:
        """Return the sites that have applied ``manifest``, by what the last round read."""
        newest = self.state.newest
        return {
            site
            for site, ack in self.state.acks.items()
            if newest is not None
            and _is_about(newest, ack)
            and ack.log_id == manifest.log_id
            and ack.applied >= manifest.epoch
        }

    def done(self, manifest: Manifest) -> bool:
        """Whether the ack policy calls ``manifest`` done."""
        return self.policy.met(self.acked_by(manifest), self._addressees(manifest))

    def round(self) -> Steps[StreamState]:
        """Read the acks and act on them."""
        epochs, strays = self.log.fold()
        if not epochs:
            self.state = StreamState()
            return self.state
        last = self.log.read(epochs[-1])
        acks = self.log.acks()
        state = self.state = StreamState(newest=last, acks=acks)
        yield "acks.1 acks-read"
        self._find_other_senders(last)
        current = {site: ack for site, ack in acks.items() if _is_about(last, ack)}
        applied = self._applied(last, acks)
        acked_by_all = min(applied.values(), default=last.epoch)
        state.backlog = max(0, last.epoch - max(acked_by_all, epochs[0] - 1))
        acked = self._record_acks(last, applied)
        yield "acks.2 checkpointed"
        # A site that has acked another log of this name must hear of this one.
        self._announce(last, acked_by_all, bool(acks) or any(acked.values()))
        yield "acks.3 announced"
        self._log_not_served(last, current)
        self.log.check_gap(epochs, strays, acked)
        self._check_strays(last, strays)
        for epoch in strays:
            # The sweep takes its frames: the writer, once it goes on, may name them in another
            # manifest.
            self.log.channel.trim_manifest(self.log.stream, epoch)
            yield "acks.5 manifest-trimmed"
        yield from self._trim(epochs, last, acked)
        self._next_poll = self.clock() + (
            NO_ACKS_POLL_INTERVAL if state.backlog and not current else 0
        )
        return state

    def _trim(self, epochs: Sequence[int], last: Manifest, acked: Mapping[str, int]) -> Steps[None]:
        """Trim, from the lowest epoch on, what every addressee has and the policy calls done."""
        stream, channel = self.log.stream, self.log.channel
        self.state.oldest = epochs[0]
        manifest = last if epochs[0] == last.epoch else self._read(epochs[0])
        for epoch in epochs:
            following = last if epoch + 1 >= last.epoch else self._read(epoch + 1)
            if manifest is not None:
                stray = epoch < last.epoch and (
                    following is None or following.previous != manifest.fingerprint
                )
                if stray:
                    if epoch > min(acked.values(), default=epoch):
                        return
                elif not (self._all_acked(manifest) and self.done(manifest)):
                    return
                elif (manifest.log_id, epoch) != self._without_frames:
                    channel.trim_frames(stream, [frame.path for frame in manifest.frames])
                    yield "acks.4 frames-trimmed"
                if epoch == last.epoch:
                    self._without_frames = (manifest.log_id, epoch)
                    return
                channel.trim_manifest(stream, epoch)
                yield "acks.5 manifest-trimmed"
                self.state.oldest = epoch + 1
            manifest = following

    def sweep_when_due(self) -> None:
        """Remove orphans, once an hour."""
        checkpoint = self.checkpoints.load(self.log.stream)
        now = self.clock()
        known = (0, self._swept, checkpoint.swept if checkpoint is not None else 0)
        swept = max(time for time in known if time <= now)
        if now - swept < SWEEP_INTERVAL * 1000:
            return
        self.sweep(ORPHAN_AGE)
        self._swept = now
        if checkpoint is not None:
            self.checkpoints.save(self.log.stream, replace(checkpoint, swept=now))

    def sweep(self, older_than: float) -> int:
        """Remove frames that no manifest names and that are older than ``older_than`` seconds: what
        failed, speculative and killed attempts left. Returns how many.

        Removes nothing while manifests are missing that some site may still need: once they are
        restored, they name their frames."""
        channel, stream = self.log.channel, self.log.stream
        written = channel.frames(stream)
        # The log is read after the frames: a frame that is named in between is spared.
        epochs = self.log.since(0)
        manifests = [self._read(epoch) for epoch in epochs]
        last = manifests[-1] if manifests else None
        if not written or last is None or not self._is_whole(epochs, last):
            return 0
        named = {frame.path for manifest in manifests if manifest for frame in manifest.frames}
        unnamed = [path for path, _ in written if path not in named]
        if not unnamed:
            return 0
        # By the store's clock: to a wrong clock here, another writer's frames would look old.
        newest, now = newest_frames(written), channel.now()
        orphans = [path for path in unnamed if newest[write_of(path)] < now - older_than]
        channel.trim_frames(stream, orphans)
        return len(orphans)

    def _check_strays(self, last: Manifest, strays: Sequence[int]) -> None:
        """Raise LogGapError where the strays are a log that began later than that of the newest
        manifest. That manifest is the stray then: its writer was frozen while its log was lost, and
        killed right after it."""
        for epoch in strays:
            stray = self._read(epoch)
            if stray is not None and stray.log_id != last.log_id and stray.created > last.created:
                raise LogGapError(
                    f"{self.log.channel.url}: manifest {last.epoch} of {self.log.stream} belongs "
                    f"to another log than those through {strays[-1]}, which began later: a writer "
                    "of the lost log added it late. Nothing is trimmed. Delete manifest "
                    f"{last.epoch} below log/{self.log.stream}/ in the channel, and restore "
                    "nothing."
                )

    def _is_whole(self, epochs: Sequence[int], last: Manifest) -> bool:
        """Whether the log has all that some site may still need: it has not gone back, and nothing
        is missing that is not acked."""
        checkpoint = self.checkpoints.load(self.log.stream)
        lost = checkpoint is not None and (
            checkpoint.log_id != last.log_id or checkpoint.epoch > last.epoch
        )
        acked = self._ever_acked(last, self._applied(last, self.log.acks()), checkpoint)
        lacking = sorted(site for site, epoch in acked.items() if epoch < epochs[0] - 1)
        if lost:
            cause = "the log does not follow from the sender's checkpoint"
        elif lacking:
            cause = (
                f"{', '.join(lacking)} may need manifests before {epochs[0]}, which are not in the "
                "channel"
            )
        else:
            return True
        log.warning(
            "%s: %s, so no frames are removed that a restored manifest may name",
            self.log.stream,
            cause,
        )
        return False

    def _read(self, epoch: int) -> Manifest | None:
        """Read a manifest that was listed; None when another ack manager has trimmed it since."""
        try:
            return self.log.read(epoch)
        except ManifestError:
            if epoch in self.log.channel.stream_epochs(self.log.stream):
                raise
            return None

    def _addressees(self, manifest: Manifest) -> set[str]:
        """Return the addressees that are still served."""
        return set(manifest.addressees) - self._not_served(manifest)

    def _not_served(self, manifest: Manifest) -> frozenset[str]:
        gone = set(manifest.addressees) - set(self.served) - self._served_by_others
        return frozenset(gone if self.former is None else gone & set(self.former))

    def _find_other_senders(self, last: Manifest) -> None:
        """Find sites that only another sender serves. While a sender is replaced, two run with
        different topologies: the one that began later may serve a site that this one does not
        know."""
        newest = last.log_id, last.epoch
        if self._first_newest is None:
            self._first_newest = newest
        unknown = set(last.addressees) - set(self.served)
        others = frozenset(unknown if newest != self._first_newest and self.former is None else ())
        for site in sorted(others - self._served_by_others):
            log.warning(
                "%s: another sender has appended epoch %d for site %s, which this sender does not "
                "serve. This sender waits for its acks too; give both the same topology, or stop "
                "the older one",
                self.log.stream,
                last.epoch,
                site,
            )
        self._served_by_others = others

    def _all_acked(self, manifest: Manifest) -> bool:
        return self._addressees(manifest) <= self.acked_by(manifest)

    def _log_not_served(self, last: Manifest, acks: Mapping[str, Ack]) -> None:
        """Name the sites that were taken out of the topology: what they have not applied is trimmed
        all the same."""
        gone = self._not_served(last)
        self.state.not_served = tuple(sorted(gone))
        for site in sorted(gone - self._logged):
            log.warning(
                "%s: site %s is no longer served by this sender; it has acked epoch %d of %d, and "
                "the sender no longer waits for its acks. What it has not applied is trimmed: to "
                "be served again, it needs a full copy",
                self.log.stream,
                site,
                acks[site].applied if site in acks else 0,
                last.epoch,
            )
        self._logged = gone

    def _record_acks(self, last: Manifest, applied: Mapping[str, int]) -> Mapping[str, int]:
        """Save what was acked. Returns the highest epoch that each site has ever acked, as far back
        as the checkpoint goes."""
        checkpoint = self.checkpoints.load(self.log.stream)
        acked = self._ever_acked(last, applied, checkpoint)
        published = published_state(last)
        if checkpoint is None:
            checkpoint = SenderCheckpoint(last.log_id, last.epoch, {}, published)
        if checkpoint.log_id == last.log_id:
            following = replace(checkpoint, acked=acked)
            if following.published is None and following.epoch == last.epoch:
                following = replace(following, published=published)  # an older version wrote it
            if following != checkpoint:
                self.checkpoints.save(self.log.stream, following)
        return acked

    def _applied(self, last: Manifest, acks: Mapping[str, Ack]) -> dict[str, int]:
        """Return through which epoch of the log each addressee has applied it, by its last ack."""
        return {
            site: acks[site].applied if site in acks and _is_about(last, acks[site]) else 0
            for site in self._addressees(last)
        }

    def _ever_acked(
        self, last: Manifest, applied: Mapping[str, int], checkpoint: SenderCheckpoint | None
    ) -> dict[str, int]:
        """Return the same for all acks so far: an ack may be lost, or go back."""
        known: Mapping[str, int] = {}
        if checkpoint is not None and checkpoint.log_id == last.log_id:
            known = checkpoint.acked
        return {site: max(epoch, known.get(site, 0)) for site, epoch in applied.items()}

    def _announce(self, last: Manifest, acked_by_all: int, any_acks: bool) -> None:
        """Announce again from the lowest epoch that is not acked, once per ``ack_timeout`` without
        progress."""
        stream, channel = self.log.stream, self.log.channel
        announced = channel.announcements().get(stream, [])
        acked = [entry for entry in announced if entry[0] <= acked_by_all]
        if acked:
            channel.withdraw(stream, acked)
        if acked_by_all >= last.epoch:
            self._waiting = None
            return
        lowest, now = acked_by_all + 1, self.clock()
        attempts = [attempt for epoch, attempt in announced if epoch == lowest]
        if self._waiting is None or self._waiting[:2] != (last.log_id, lowest):
            self._waiting = (last.log_id, lowest, now)
            self._attempts = max(attempts, default=0)
            return
        if 0 <= now - self._waiting[2] < self.ack_timeout:
            return
        self.state.overdue = True
        if any_acks:
            self._attempts += 1
            channel.announce(stream, lowest, self._attempts)
            log.warning(
                "%s: epoch %d not acked for %d ms: announced again (attempt %d)",
                stream,
                lowest,
                self.ack_timeout,
                self._attempts,
            )
            # Only the newest announcement of an epoch counts.
            older = [(lowest, attempt) for attempt in attempts if attempt < self._attempts]
            channel.withdraw(stream, older)
        self._waiting = (last.log_id, lowest, now)


def _is_about(last: Manifest, ack: Ack) -> bool:
    """Whether an ack is about the log that ends with ``last``. One beyond its end is older: the log
    was restored to an earlier state since."""
    return ack.log_id == last.log_id and ack.applied <= last.epoch
