"""The queue of a stream: the epochs that some site has not acked. It may have limits.

The log says what is in the queue, and the acks who lacks it: a sender that starts, here or
elsewhere, finds the queue as full as the one before it left it. Since when it is full, which
``drop_reader`` asks for, is in the sender's record.

At a limit, a full queue waits (``block``, and ``hold``, which is reported as a hold), and goes on
by itself once acks make room. With ``drop_reader``, the log goes on without the sites that lag: an
epoch without events says so (``dropped`` in the manifest), and from then on no trim waits for their
acks of what came before it. Such a site finds a gap, and asks for a copy of the table. What comes
behind that epoch is kept for it like for all others, so it goes on from its copy.

A queue that is empty takes any epoch. So a queue has at most its limit, and one epoch more. An
epoch without events is always taken: it is what drops a site, names a new one, or ends a stream,
and what records commits before log cleanup removes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spark_wan.errors import NEW_SITE, ChannelError, QueueFullError
from spark_wan.log.notes import sender_record
from spark_wan.log.progress import acked_through, waited_through
from spark_wan.messages import message_log
from spark_wan.sender.acks import AckManager
from spark_wan.topology.model import QueueLimits
from spark_wan.units import format_bytes, format_duration
from spark_wan.wire.manifest import EVENTS, Manifest

log = message_log(__name__)

READ_AT_ONCE = 256
"""Number of manifests that are read at once, of a queue that is not known yet."""
KNOWN_AT_MOST = 1_000
"""Number of epochs above which acks are read to forget those that wait no more."""


@dataclass(frozen=True)
class _Epoch:
    """What counts of an epoch in the queue."""

    epoch: int
    bytes: int
    created: int
    addressees: frozenset[str]

    @classmethod
    def of(cls, manifest: Manifest) -> _Epoch:
        sites = frozenset(manifest.addressees)
        return cls(manifest.epoch, manifest.bytes, manifest.created, sites)


@dataclass
class OutboundQueue:
    """The queue of one stream. What it remembers are hints: manifests never change."""

    acks: AckManager
    """The stream's ack manager: reads the acks, and knows which sites are served."""
    limits: QueueLimits
    _log_id: str = ""
    _epochs: dict[int, _Epoch] = field(default_factory=dict)
    """The epochs that may wait, through the newest one of the last look, ascending."""
    _last: Manifest | None = None
    """That newest one."""
    _full_since: int | None = None
    """Since when it was found full, by this job or the one before; None: it was not."""

    def check(self, last: Manifest | None) -> Mapping[str, int]:
        """Check that an epoch with events may follow ``last``, the newest manifest.

        Returns the sites that must be dropped first, with the epoch through which no trim is to
        wait for them; empty: the epoch may be added. Raises QueueFullError where it has to wait,
        and ChannelError."""
        self._last = last
        if last is None or not self.limits.exist:
            return {}
        through = self._through_if_full(last)
        if through is None:
            return {}
        excused = ""
        if self.limits.policy == "drop_reader":
            excuse = self._excuse()
            if excuse is None:
                return {**last.dropped, **dict.fromkeys(self._too_far(through), last.epoch)}
            excused = excuse
        kept = "the events" if last.kind == EVENTS else "the changes"
        raise QueueFullError(
            f"{last.stream}: its queue is full: {self._describe(through, last)}. Nothing is added "
            f"until they ack; then it goes on by itself. {excused}Until then, the source must keep "
            f"{kept} that follow. Bring the sites back, raise the limit, or take them out of the "
            "topology.",
            is_hold=self.limits.policy == "hold",
        )

    def still_lacking(self, last: Manifest, sites: Mapping[str, int]) -> Mapping[str, int]:
        """Return those of ``sites`` that lack events through the epoch that is given for them, and
        for which the queue still waits. Raises ChannelError."""
        self._take_up(last)
        through = self._through(last, frozenset(last.addressees))
        return {
            site: epoch
            for site, epoch in sites.items()
            if site in through
            and any(
                each.bytes and each.epoch <= epoch for each in self._waiting({site: through[site]})
            )
        }

    def is_full(self) -> bool:
        """Whether the queue is still full as it was last checked, by the acks that have come since,
        and nobody is to be dropped. With a watch, costs no request, but one where sites may be
        dropped. Raises ChannelError."""
        last = self._last
        if last is None or not self.limits.exist or self._through_if_full(last) is None:
            return False
        return self.limits.policy != "drop_reader" or self._excuse() is not None

    def _excuse(self) -> str | None:
        """Return why no site is dropped though the queue is full; None: nothing speaks for it."""
        if self.acks.is_excused():
            return "The stream is paused, or was until just now, so no site is dropped. "
        assert self._full_since is not None
        if self.acks.clock() - self._full_since < self.acks.ack_timeout:
            # This job may have been away, or the channel: so nobody could ack.
            return "That was found out just now, so no site is dropped yet. "
        return None

    def _through_if_full(self, last: Manifest) -> Mapping[str, int] | None:
        """Return through which epoch no trim waits for each site; None: there is room."""
        self._take_up(last)
        every = [*self._epochs.values()]
        if len(every) <= KNOWN_AT_MOST and not self._exceed(every):
            self._full_since = None
            return None  # not even if nobody had acked any of them
        through = self._through(last, frozenset().union(*(each.addressees for each in every)))
        lowest = min(through.values(), default=last.epoch)
        self._epochs = {n: each for n, each in self._epochs.items() if n > lowest}
        is_full = self._exceed(self._waiting(through))
        if not is_full:
            self._full_since = None
        elif self._full_since is None:
            is_asked_for = self.limits.policy == "drop_reader"
            said = self._said_before() if is_asked_for else None
            self._full_since = said or self.acks.clock()
        return through if is_full else None

    def _through(self, last: Manifest, addressees: frozenset[str]) -> Mapping[str, int]:
        """Return through which epoch no trim waits for each of these sites that is served."""
        sites = self.acks.serving(addressees)
        return waited_through(last, acked_through(last, self.acks.read_acks(), sites))

    def _said_before(self) -> int | None:
        """Return since when the queue is full by the sender's record: of a run with
        ``--available-now``, the one before it has found that out."""
        try:
            record = sender_record(self.acks.log.channel, self.acks.log.stream)
        except ChannelError:
            return None
        return record.queue_full_since if record is not None else None

    def _waiting(self, through: Mapping[str, int]) -> list[_Epoch]:
        """Return the epochs that some site lacks."""
        return [
            each
            for each in self._epochs.values()
            if any(each.epoch > through.get(site, each.epoch) for site in each.addressees)
        ]

    def _exceed(self, waiting: Sequence[_Epoch]) -> bool:
        """Whether these epochs are so many, or so old, that none may follow."""
        if not any(each.bytes for each in waiting):
            return False  # an empty queue takes any epoch
        size, age = self.limits.bytes, self.limits.age
        if size is not None and sum(each.bytes for each in waiting) >= size:
            return True
        return age is not None and self._age(waiting) >= age * 1000

    def _age(self, waiting: Sequence[_Epoch]) -> int:
        """Return since how many milliseconds the oldest of these epochs waits. While the stream was
        paused, none did."""
        since = max(min(each.created for each in waiting), self.acks.paused_until)
        return self.acks.clock() - since

    def _too_far(self, through: Mapping[str, int]) -> list[str]:
        """Return the sites that are so far behind that what the others lack would be within the
        limits."""
        left = dict(through)
        while self._exceed(self._waiting(left)):
            # By the oldest epoch that waits for each: a new site is addressed by later ones only.
            waiting = {site: self._waiting({site: epoch}) for site, epoch in left.items()}
            oldest = {site: each[0].epoch for site, each in waiting.items() if each}
            first = min(oldest.values())
            left = {site: epoch for site, epoch in left.items() if oldest.get(site) != first}
        return sorted(through.keys() - left.keys())

    def _take_up(self, last: Manifest) -> None:
        """Take up the epochs through ``last`` that were added since the last look."""
        if self._log_id != last.log_id or any(n > last.epoch for n in self._epochs):
            self._log_id, self._epochs = last.log_id, {}
        known = max(self._epochs, default=0)
        few = known and last.epoch - known <= READ_AT_ONCE
        there = range(known + 1, last.epoch) if few else self.acks.log.epochs(known)
        missing = [epoch for epoch in there if epoch < last.epoch]
        for first in range(0, len(missing), READ_AT_ONCE):
            for manifest in self.acks.log.read_each(missing[first : first + READ_AT_ONCE]):
                if manifest is not None and manifest.log_id == last.log_id:
                    self._epochs[manifest.epoch] = _Epoch.of(manifest)
        self._epochs[last.epoch] = _Epoch.of(last)

    def _describe(self, through: Mapping[str, int], last: Manifest) -> str:
        """Return what waits for whom, and what the limits are."""
        parts = []
        for site, epoch in sorted(through.items()):
            if waiting := self._waiting({site: epoch}):
                size = format_bytes(sum(each.bytes for each in waiting))
                age = format_duration(self._age(waiting))
                acked = f"which has acked epoch {epoch} of {last.epoch}"
                parts.append(f"{size} wait for {site}, {acked}, the oldest for {age}")
        if self.limits.bytes is not None:
            parts.append(f"max_queue_bytes is {format_bytes(self.limits.bytes)}")
        if self.limits.age is not None:
            parts.append(f"max_queue_age is {format_duration(int(self.limits.age * 1000))}")
        return "; ".join(parts)


def log_dropped(last: Manifest, dropped: Mapping[str, int], why: str) -> None:
    """Say which sites are dropped by the epoch after ``last``, and why."""
    for site, through in sorted(dropped.items()):
        if through > last.dropped.get(site, 0):
            log.error(
                "%s: %s, so the stream goes on without site %s: what it has not acked through "
                "epoch %d is deleted",
                last.stream,
                why,
                site,
                through,
                event="sites-dropped",
                stream=last.stream,
                site=site,
                epoch=through,
                what_to_do=f"The site finds a gap, and needs a copy of the table. {NEW_SITE}",
            )
