"""The ack keeper: collects acks, announces overdue epochs again, trims what is done.

One component, run by a Sender's thread, by the sink's ``commit()`` and by the command line. All it does is idempotent, so two of it at
work on one channel cost requests and nothing else. Its numbered path, per stream:

    keep.1  acks-read        the answers of all sites, and the log
    keep.2  remembered       what was acked, before anything is removed on the strength of it
    keep.3  announced        epochs that are overdue (``ack_timeout``), to sites that have answered before
    keep.4  frames-trimmed   of the lowest epoch that is done, before its manifest: a crash here is made good by the next round
    keep.5  manifest-trimmed each stream keeps its newest manifest

Only sites count that are still served: one that was taken out of the topology is waited for no more, and named in the log. But where another sender
has appended an epoch for more sites since this keeper began, that one knows more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spark_wan.channels.base import write_of
from spark_wan.channels.log import StreamLog
from spark_wan.errors import LogGapError, ManifestError, ManifestExists
from spark_wan.sender.memory import CheckpointStore
from spark_wan.steps import Steps
from spark_wan.topology.ack_policy import AckPolicy
from spark_wan.wire.ack import Ack
from spark_wan.wire.checkpoint import PublishedState, SenderCheckpoint
from spark_wan.wire.frame import FrameRef
from spark_wan.wire.manifest import EVENTS, Manifest

log = logging.getLogger(__name__)

ORPHAN_AGE = 86_400.0
"""Seconds after which a frame that no manifest names is an orphan and not an epoch in the making: counted from the newest frame of its write."""
STALE_AGE = ORPHAN_AGE / 2
"""Seconds after its newest frame in which a write may name its frames: later they might be swept before its manifest is there."""
SWEEP_INTERVAL = 3_600.0
"""Seconds between sweeps of orphans."""
NOBODY_THERE_LOOK = 5_000
"""Milliseconds between looks at a stream that no site has answered yet (Geode's gateway reconnect interval: 5 s)."""


def are_safe(log: StreamLog, frames: Iterable[FrameRef]) -> bool:
    """Whether the frames of a write that took long are there, and no sweep takes them soon."""
    written, now = log.channel.frames(log.stream), log.channel.now()
    newest, there = _newest_frames(written), {path for path, _ in written}
    return all(
        frame.path in there and newest[write_of(frame.path)] > now - STALE_AGE for frame in frames
    )


def are_there(log: StreamLog, frames: Iterable[FrameRef]) -> bool:
    """Whether none of the frames was swept or trimmed."""
    return {frame.path for frame in frames} <= {path for path, _ in log.channel.frames(log.stream)}


def append_in_time(log: StreamLog, manifest: Manifest, clock: Callable[[], int]) -> None:
    """Append a manifest whose frames are safe now. Raises ManifestExists as :meth:`StreamLog.append` does, and when this process was frozen in it for so
    long that they were swept."""
    began = clock()
    log.append(manifest)
    if clock() - began > STALE_AGE * 1000 and not are_there(log, manifest.frames):
        if log.newest_epoch() == manifest.epoch:
            log.channel.trim_manifest(log.stream, manifest.epoch)
        raise ManifestExists(
            f"{log.stream}: the frames of manifest {manifest.epoch} were swept before it named them"
        )


def _newest_frames(written: Iterable[tuple[str, float]]) -> dict[str, float]:
    """When the newest frame of each write was written: a snapshot of many hours is one write, and its first frames are none of a dead one."""
    newest: dict[str, float] = {}
    for path, time in written:
        newest[write_of(path)] = max(time, newest.get(write_of(path), time))
    return newest


def _answers(last: Manifest, ack: Ack) -> bool:
    """Whether an ack is about the log that ends with ``last``: one beyond its end was given before the log was put back to an older state."""
    return ack.log_id == last.log_id and ack.applied <= last.epoch


@dataclass
class StreamState:
    """What is known of a stream after a round: for status, and to decide when to look again."""

    newest: Manifest | None = None
    oldest: int = 0
    acks: Mapping[str, Ack] = field(default_factory=dict)
    backlog: int = 0
    """Manifests that some addressee has not acked."""
    overdue: bool = False
    not_served: tuple[str, ...] = ()
    """Addressees of the newest epoch that the sender serves no more: their acks are not waited for."""


@dataclass
class AckManager:
    """Keeps one stream. ``clock`` gives milliseconds; ``ack_timeout`` too. ``served``: the sites that the sender serves now. ``former``: those that it
    serves no more, where not all others are meant."""

    log: StreamLog
    memories: CheckpointStore
    policy: AckPolicy
    ack_timeout: int
    clock: Callable[[], int]
    served: Collection[str]
    former: Collection[str] | None = None
    state: StreamState = field(default_factory=StreamState)
    _next_look: int = 0
    _waiting: tuple[str, int, int] | None = None
    """(log_id, lowest number not acked, since when)"""
    _attempts: int = 0
    _swept: int = 0
    _named: frozenset[str] = frozenset()
    """The sites that are served no more, as the log has named them."""
    _began: tuple[str, int] | None = None
    """(log_id, number) of the newest manifest at the first look."""
    _others: frozenset[str] = frozenset()
    """Sites that another sender serves."""
    _bare: tuple[str, int] | None = None
    """(log_id, number) of the newest manifest, once its frames are trimmed."""

    def due(self) -> bool:
        """Whether it is time to look: at once while sites answer, every 5 s when nobody is there. Also after a clock was put back."""
        return not 0 < self._next_look - self.clock() <= NOBODY_THERE_LOOK

    def acked_by(self, manifest: Manifest) -> set[str]:
        """The sites that have applied ``manifest``, by what the last round read."""
        return {
            site
            for site, ack in self.state.acks.items()
            if self.state.newest is not None
            and _answers(self.state.newest, ack)
            and ack.log_id == manifest.log_id
            and ack.applied >= manifest.epoch
        }

    def done(self, manifest: Manifest) -> bool:
        """Whether the ack policy calls ``manifest`` done."""
        return self.policy.met(self.acked_by(manifest), self._addressees(manifest))

    def round(self) -> Steps[StreamState]:
        """One look at the acks and what follows from it."""
        stream, channel = self.log.stream, self.log.channel
        numbers, strays = self.log.fold()
        last = self.log.read(numbers[-1]) if numbers else None
        acks = self.log.acks() if last is not None else {}
        state = StreamState(newest=last, acks=acks)
        self.state = state
        if last is None:
            return state
        yield "keep.1 acks-read"
        self._find_others(last)
        answered = {site: ack for site, ack in acks.items() if _answers(last, ack)}
        applied = self._applied(last, acks)
        everywhere = min(applied.values(), default=last.epoch)
        state.backlog = max(0, last.epoch - max(everywhere, numbers[0] - 1))
        acked = self._remember(last, applied)
        yield "keep.2 remembered"
        # Whoever answered another log of this name has to be told of this one.
        self._announce(last, everywhere, bool(acks) or any(acked.values()))
        yield "keep.3 announced"
        self._note_not_served(last, answered)
        self.log.check_gap(numbers, strays, acked)
        self._check_strays(last, strays)
        for number in strays:
            # Its frames are left to the sweep: the writer, once it goes on, may name them in another manifest.
            channel.trim_manifest(stream, number)
            yield "keep.5 manifest-trimmed"
        state.oldest = numbers[0]
        manifest = last if numbers[0] == last.epoch else self._read(numbers[0])
        for number in numbers:
            following = last if number + 1 >= last.epoch else self._read(number + 1)
            if manifest is not None:
                stray = number < last.epoch and (
                    following is None or following.previous != manifest.fingerprint
                )
                if stray:
                    if number > min(acked.values(), default=number):
                        break
                elif not (self._everyone_has(manifest) and self.done(manifest)):
                    break
                elif (manifest.log_id, number) != self._bare:
                    channel.trim_frames(stream, [frame.path for frame in manifest.frames])
                    yield "keep.4 frames-trimmed"
                if number == last.epoch:
                    self._bare = (manifest.log_id, number)
                    break
                channel.trim_manifest(stream, number)
                yield "keep.5 manifest-trimmed"
                state.oldest = number + 1
            manifest = following
        self._next_look = self.clock() + (
            NOBODY_THERE_LOOK if state.backlog and not answered else 0
        )
        return state

    def sweep_when_due(self) -> None:
        """Remove orphans, once an hour."""
        memory = self.memories.load(self.log.stream)
        now = self.clock()
        swept = max(
            time
            for time in (0, self._swept, memory.swept if memory is not None else 0)
            if time <= now
        )
        if now - swept < SWEEP_INTERVAL * 1000:
            return
        self.sweep(ORPHAN_AGE)
        self._swept = now
        if memory is not None:
            self.memories.save(self.log.stream, replace(memory, swept=now))

    def sweep(self, older_than: float) -> int:
        """Remove frames that no manifest names and that were written more than ``older_than`` seconds ago: what failed, speculative and
        killed attempts left. Returns how many. None, while manifests are missing that some site may still need: once
        they are restored, they name their frames."""
        channel, stream = self.log.channel, self.log.stream
        written = channel.frames(stream)
        # The log is read after the frames: a frame that is named in between is spared.
        numbers = self.log.since(0)
        manifests = [self._read(number) for number in numbers]
        if (
            not written
            or not manifests
            or manifests[-1] is None
            or not self._is_whole(numbers, manifests[-1])
        ):
            return 0
        named = {
            frame.path
            for manifest in manifests
            if manifest is not None
            for frame in manifest.frames
        }
        unnamed = [path for path, _ in written if path not in named]
        if not unnamed:
            return 0
        # By the store's clock: where that of this machine is wrong, another writer's frames would look old.
        newest, now = _newest_frames(written), channel.now()
        orphans = [path for path in unnamed if newest[write_of(path)] < now - older_than]
        channel.trim_frames(stream, orphans)
        return len(orphans)

    def _check_strays(self, last: Manifest, strays: Sequence[int]) -> None:
        """Raise LogGapError where what looks like strays is a log that began later than the one of the newest manifest: that manifest is the stray, of a
        writer that was frozen while its log was lost, and killed right after it."""
        for number in strays:
            stray = self._read(number)
            if stray is not None and stray.log_id != last.log_id and stray.created > last.created:
                raise LogGapError(
                    f"{self.log.channel.url}: manifest {last.epoch} of {self.log.stream} belongs to another log than those through {strays[-1]}, which "
                    f"began later: a writer of the lost log added it late. Nothing is trimmed. Delete manifest {last.epoch} below "
                    f"log/{self.log.stream}/ in the channel, and restore nothing."
                )

    def _is_whole(self, numbers: Sequence[int], last: Manifest) -> bool:
        """Whether the log has all that some site may still need: it is as far as it was, and nothing is gone that is not acked."""
        memory = self.memories.load(self.log.stream)
        lost = memory is not None and (memory.log_id != last.log_id or memory.epoch > last.epoch)
        acked = self._ever_acked(last, self._applied(last, self.log.acks()), memory)
        lacking = sorted(site for site, number in acked.items() if number < numbers[0] - 1)
        if lost or lacking:
            log.warning(
                "%s: %s, so no frames are removed that a restored manifest may name",
                self.log.stream,
                "the log is not what it was"
                if lost
                else f"{', '.join(lacking)} may need manifests before {numbers[0]}, which are not in the channel",
            )
        return not lost and not lacking

    def _read(self, number: int) -> Manifest | None:
        """A manifest that was listed; None when another keeper has trimmed it since."""
        try:
            return self.log.read(number)
        except ManifestError:
            if number in self.log.channel.stream_epochs(self.log.stream):
                raise
            return None

    def _addressees(self, manifest: Manifest) -> set[str]:
        return set(manifest.addressees) - self._gone(manifest)

    def _gone(self, manifest: Manifest) -> frozenset[str]:
        """The addressees of a manifest that are served no more."""
        gone = set(manifest.addressees) - set(self.served) - self._others
        return frozenset(gone if self.former is None else gone & set(self.former))

    def _find_others(self, last: Manifest) -> None:
        """Two senders with different topologies, while one of them is replaced: the one that began later may serve a site that the other does not know."""
        newest = last.log_id, last.epoch
        if self._began is None:
            self._began = newest
        unknown = set(last.addressees) - set(self.served)
        others = frozenset(unknown if newest != self._began and self.former is None else ())
        for site in sorted(others - self._others):
            log.warning(
                "%s: another sender has appended epoch %d for site %s, which this sender does not serve. Its acks are waited for; give both the same "
                "topology, or stop the older one",
                self.log.stream,
                last.epoch,
                site,
            )
        self._others = others

    def _everyone_has(self, manifest: Manifest) -> bool:
        return self._addressees(manifest) <= self.acked_by(manifest)

    def _note_not_served(self, last: Manifest, answered: Mapping[str, Ack]) -> None:
        """Name the sites that were taken out of the topology: what they have not applied is trimmed all the same."""
        gone = self._gone(last)
        self.state.not_served = tuple(sorted(gone))
        for site in sorted(gone - self._named):
            applied = answered[site].applied if site in answered else 0
            log.warning(
                "%s: site %s is no longer served by this sender; it has acked epoch %d of %d, and its acks are no longer waited for. What it has "
                "not applied is trimmed: if it is to be served again, it needs a full copy",
                self.log.stream,
                site,
                applied,
                last.epoch,
            )
        self._named = gone

    def _remember(self, last: Manifest, applied: Mapping[str, int]) -> Mapping[str, int]:
        """Keep what was acked. Returns the highest number that each site has ever acked, as far as the memory reaches."""
        memory = self.memories.load(self.log.stream)
        acked = self._ever_acked(last, applied, memory)
        published = PublishedState.by(last) if last.kind != EVENTS else None
        if memory is None:
            memory = SenderCheckpoint(last.log_id, last.epoch, {}, published)
        if memory.log_id == last.log_id:
            known = replace(memory, acked=acked)
            if known.published is None and known.epoch == last.epoch:
                known = replace(known, published=published)  # it was written by an older version
            if known != memory:
                self.memories.save(self.log.stream, known)
        return acked

    def _applied(self, last: Manifest, acks: Mapping[str, Ack]) -> dict[str, int]:
        """Through which epoch of the log each addressee has applied it."""
        answers = {site: acks.get(site) for site in self._addressees(last)}
        return {
            site: ack.applied if ack is not None and _answers(last, ack) else 0
            for site, ack in answers.items()
        }

    def _ever_acked(
        self, last: Manifest, applied: Mapping[str, int], memory: SenderCheckpoint | None
    ) -> dict[str, int]:
        """The same, at any time: an ack may be lost, or go back."""
        known = memory.acked if memory is not None and memory.log_id == last.log_id else {}
        return {site: max(number, known.get(site, 0)) for site, number in applied.items()}

    def _announce(self, last: Manifest, everywhere: int, somebody: bool) -> None:
        """Announce again from the lowest number that is not acked, once per ``ack_timeout`` without progress."""
        stream, channel = self.log.stream, self.log.channel
        announced = channel.announcements().get(stream, [])
        answered = [entry for entry in announced if entry[0] <= everywhere]
        if answered:
            channel.withdraw(stream, answered)
        if everywhere >= last.epoch:
            self._waiting = None
            return
        lowest, now = everywhere + 1, self.clock()
        if self._waiting is None or self._waiting[:2] != (last.log_id, lowest):
            self._waiting = (last.log_id, lowest, now)
            self._attempts = max(
                (attempt for number, attempt in announced if number == lowest), default=0
            )
            return
        if 0 <= now - self._waiting[2] < self.ack_timeout:
            return
        self.state.overdue = True
        if somebody:
            self._attempts += 1
            channel.announce(stream, lowest, self._attempts)
            log.warning(
                "%s: epoch %d not acked for %d ms: announced again (attempt %d)",
                stream,
                lowest,
                self.ack_timeout,
                self._attempts,
            )
            # Only the newest announcement counts; older attempts for the same number are withdrawn.
            channel.withdraw(
                stream, [e for e in announced if e[0] == lowest and e[1] < self._attempts]
            )
        self._waiting = (last.log_id, lowest, now)
