"""The ack keeper: collects acks, announces overdue epochs again, trims what is done.

One component, run by a Sender's thread, by the sink's ``commit()`` and by the command line. All it does is idempotent, so two of it at
work on one channel cost requests and nothing else. Its numbered path, per stream:

    keep.1  acks-read        the answers of all sites, and the log
    keep.2  remembered       what was acked, before anything is removed on the strength of it
    keep.3  announced        epochs that are overdue (``ack_timeout``), to sites that have answered before
    keep.4  frames-trimmed   of the lowest epoch that is done, before its manifest: a crash here is made good by the next round
    keep.5  manifest-trimmed each stream keeps its newest manifest

Only sites count that are still served: one that was taken out of the topology is waited for no more, and named in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from spark_wan.channels import Ack, StreamLog
from spark_wan.channels.base import write_of
from spark_wan.errors import ManifestError
from spark_wan.sender.memory import MemoryStore, Published, StreamMemory
from spark_wan.steps import Steps
from spark_wan.wire import EVENTS, FrameRef, Manifest

log = logging.getLogger(__name__)

ORPHAN_AGE = 86_400.0
"""Seconds after which a frame that no manifest names is an orphan and not an epoch in the making: counted from the newest frame of its write."""
STALE_AGE = ORPHAN_AGE / 2
"""Seconds after its newest frame in which a write may name its frames: later they might be swept before its manifest is there."""
SWEEP_INTERVAL = 3_600.0
"""Seconds between sweeps of orphans."""
NOBODY_THERE_LOOK = 5_000
"""Milliseconds between looks at a stream that no site has answered yet (Geode's gateway reconnect interval: 5 s)."""


class AckPolicy(str, Enum):
    """When an epoch counts as done for a waiting writer (Berkeley DB's ack policies). Trimming asks for every addressee."""

    NONE = "none"
    ALL = "all"

    def met(self, acked: set[str], addressees: set[str]) -> bool:
        """Whether the answers of the sites ``acked`` are enough."""
        return True if self is AckPolicy.NONE else addressees <= acked


def are_safe(log: StreamLog, frames: Iterable[FrameRef], now: int) -> bool:
    """Whether the frames of a write that took long are there, and no sweep takes them soon. ``now``: milliseconds since 1970 UTC."""
    written = log.channel.frames(log.stream)
    newest, there = _newest_frames(written), {path for path, _ in written}
    return all(frame.path in there and newest[write_of(frame.path)] > now / 1000 - STALE_AGE for frame in frames)


def _newest_frames(written: Iterable[tuple[str, float]]) -> dict[str, float]:
    """When the newest frame of each write was written: a snapshot of many hours is one write, and its first frames are none of a dead one."""
    newest: dict[str, float] = {}
    for path, time in written:
        newest[write_of(path)] = max(time, newest.get(write_of(path), time))
    return newest


@dataclass
class StreamState:
    """What is known of a stream after a round: for status, and to decide when to look again."""

    last: Manifest | None = None
    oldest: int = 0
    acks: Mapping[str, Ack] = field(default_factory=dict)
    backlog: int = 0
    """Manifests that some addressee has not acked."""
    overdue: bool = False
    not_served: tuple[str, ...] = ()
    """Addressees of the newest epoch that the sender serves no more: their acks are not waited for."""


@dataclass
class AckKeeper:
    """Keeps one stream. ``clock`` gives milliseconds; ``ack_timeout`` too. ``served``: the sites that the sender serves now."""

    log: StreamLog
    memories: MemoryStore
    policy: AckPolicy
    ack_timeout: int
    clock: Callable[[], int]
    served: Collection[str]
    state: StreamState = field(default_factory=StreamState)
    _next_look: int = 0
    _waiting: tuple[str, int, int] | None = None
    """(incarnation, lowest number not acked, since when)"""
    _attempts: int = 0
    _swept: int = 0
    _named: frozenset[str] = frozenset()
    """The sites that are served no more, as the log has named them."""
    _bare: tuple[str, int] | None = None
    """(incarnation, number) of the newest manifest, once its frames are trimmed."""

    def due(self) -> bool:
        """Whether it is time to look: at once while sites answer, every 5 s when nobody is there."""
        return self.clock() >= self._next_look

    def acked_by(self, manifest: Manifest) -> set[str]:
        """The sites that have applied ``manifest``, by what the last round read."""
        return {
            site
            for site, ack in self.state.acks.items()
            if self._answers(ack) and ack.incarnation == manifest.incarnation and ack.applied >= manifest.number
        }

    def _answers(self, ack: Ack) -> bool:
        """Whether an ack is about this log: one beyond its end was given before the log was put back to an older state."""
        last = self.state.last
        return last is not None and ack.incarnation == last.incarnation and ack.applied <= last.number

    def done(self, manifest: Manifest) -> bool:
        """Whether the ack policy calls ``manifest`` done."""
        return self.policy.met(self.acked_by(manifest), self._addressees(manifest))

    def round(self) -> Steps[StreamState]:
        """One look at the acks and what follows from it."""
        stream, channel = self.log.stream, self.log.channel
        numbers, strays = self.log.fold()
        last = self.log.read(numbers[-1]) if numbers else None
        acks = self.log.acks() if last is not None else {}
        state = StreamState(last=last, acks=acks)
        self.state = state
        if last is None:
            return state
        yield "keep.1 acks-read"
        answered = {site: ack for site, ack in acks.items() if self._answers(ack)}
        applied = {site: answered[site].applied if site in answered else 0 for site in self._addressees(last)}
        everywhere = min(applied.values(), default=last.number)
        state.backlog = max(0, last.number - max(everywhere, numbers[0] - 1))
        acked = self._remember(last, applied)
        yield "keep.2 remembered"
        # Whoever answered another log of this name has to be told of this one.
        self._announce(last, everywhere, bool(acks) or any(acked.values()))
        yield "keep.3 announced"
        self._note_not_served(last, answered)
        self.log.check_gap(numbers, strays, acked)
        for number in strays:
            # Its frames are left to the sweep: the writer, once it goes on, may name them in another manifest.
            channel.trim_manifest(stream, number)
            yield "keep.5 manifest-trimmed"
        state.oldest = numbers[0]
        manifest = last if numbers[0] == last.number else self._read(numbers[0])
        for number in numbers:
            following = last if number + 1 >= last.number else self._read(number + 1)
            if manifest is not None:
                stray = number < last.number and (following is None or following.previous != manifest.fingerprint)
                if stray:
                    if number > min(acked.values(), default=number):
                        break
                elif not (self._everyone_has(manifest) and self.done(manifest)):
                    break
                elif (manifest.incarnation, number) != self._bare:
                    channel.trim_frames(stream, [frame.path for frame in manifest.frames])
                    yield "keep.4 frames-trimmed"
                if number == last.number:
                    self._bare = (manifest.incarnation, number)
                    break
                channel.trim_manifest(stream, number)
                yield "keep.5 manifest-trimmed"
                state.oldest = number + 1
            manifest = following
        self._next_look = self.clock() + (NOBODY_THERE_LOOK if state.backlog and not answered else 0)
        return state

    def sweep_when_due(self) -> None:
        """Remove orphans, once an hour."""
        memory = self.memories.load(self.log.stream)
        swept = max(self._swept, memory.swept if memory is not None else 0)
        now = self.clock()
        if now - swept < SWEEP_INTERVAL * 1000:
            return
        self.sweep(ORPHAN_AGE)
        self._swept = now
        if memory is not None:
            self.memories.save(self.log.stream, replace(memory, swept=now))

    def sweep(self, older_than: float) -> int:
        """Remove frames that no manifest names and that were written more than ``older_than`` seconds ago: what failed,
        speculative and killed attempts left. Returns how many."""
        channel, stream = self.log.channel, self.log.stream
        written = channel.frames(stream)
        # The log is read after the frames: a frame that is named in between is spared.
        manifests = [self._read(number) for number in self.log.since(0)]
        named = {frame.path for manifest in manifests if manifest is not None for frame in manifest.frames}
        newest, limit = _newest_frames(written), self.clock() / 1000 - older_than
        orphans = [path for path, _ in written if path not in named and newest[write_of(path)] < limit]
        channel.trim_frames(stream, orphans)
        return len(orphans)

    def _read(self, number: int) -> Manifest | None:
        """A manifest that was listed; None when another keeper has trimmed it since."""
        try:
            return self.log.read(number)
        except ManifestError:
            if number in self.log.channel.stream_numbers(self.log.stream):
                raise
            return None

    def _addressees(self, manifest: Manifest) -> set[str]:
        return set(manifest.addressees) & set(self.served)

    def _everyone_has(self, manifest: Manifest) -> bool:
        return self._addressees(manifest) <= self.acked_by(manifest)

    def _note_not_served(self, last: Manifest, answered: Mapping[str, Ack]) -> None:
        """Name the sites that were taken out of the topology: what they have not applied is trimmed all the same."""
        gone = frozenset(last.addressees) - frozenset(self.served)
        self.state.not_served = tuple(sorted(gone))
        for site in sorted(gone - self._named):
            applied = answered[site].applied if site in answered else 0
            log.warning(
                "%s: site %s is no longer served by this sender; it has acked epoch %d of %d, and its acks are no longer waited for. What it has "
                "not applied is trimmed: if it is to be served again, it needs a full copy",
                self.log.stream,
                site,
                applied,
                last.number,
            )
        self._named = gone

    def _remember(self, last: Manifest, applied: Mapping[str, int]) -> Mapping[str, int]:
        """Keep what was acked. Returns the highest number that each site has ever acked, as far as the memory reaches."""
        memory = self.memories.load(self.log.stream)
        known = memory.acked if memory is not None and memory.incarnation == last.incarnation else {}
        acked = {site: max(number, known.get(site, 0)) for site, number in applied.items()}
        if memory is None:
            published = Published.by(last) if last.kind != EVENTS else None
            memory = StreamMemory(last.incarnation, last.number, {}, published)
        if acked != dict(memory.acked) and memory.incarnation == last.incarnation:
            self.memories.save(self.log.stream, replace(memory, acked=acked))
        return acked

    def _announce(self, last: Manifest, everywhere: int, somebody: bool) -> None:
        """Announce again from the lowest number that is not acked, once per ``ack_timeout`` without progress."""
        stream, channel = self.log.stream, self.log.channel
        announced = channel.announcements().get(stream, [])
        answered = [entry for entry in announced if entry[0] <= everywhere]
        if answered:
            channel.withdraw(stream, answered)
        if everywhere >= last.number:
            self._waiting = None
            return
        lowest, now = everywhere + 1, self.clock()
        if self._waiting is None or self._waiting[:2] != (last.incarnation, lowest):
            self._waiting = (last.incarnation, lowest, now)
            self._attempts = max((attempt for number, attempt in announced if number == lowest), default=0)
            return
        if now - self._waiting[2] < self.ack_timeout:
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
            channel.withdraw(stream, [e for e in announced if e[0] == lowest and e[1] < self._attempts])
        self._waiting = (last.incarnation, lowest, now)
