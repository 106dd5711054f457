"""The ack manager: collects acks, announces overdue epochs again, and trims.

A sender's threads run it, and the sink's ``commit()``. Every step is idempotent: two of them at
work on one channel cost requests and nothing else. The numbered path, per stream:

    acks.1  acks-read         the acks of all sites, and the log
    acks.2  checkpointed      what was acked, before anything is trimmed because of it
    acks.3  announced         the newest epoch, where its writer died before it told the readers;
                              overdue epochs (``ack_timeout``), to sites that have acked before
    acks.4  trimmed           the epochs that are done, frames before manifests; after a crash in
                              it, the next round goes on. Each stream keeps its newest manifest

With an :class:`~spark_wan.log.ack_watch.AckWatch`, a stream without news needs no round and no
request (:meth:`AckManager.due`).

Only sites that the sender still serves count: the ack manager does not wait for one that was taken
out of the topology, and names it in the log. But where another sender has appended an epoch for
more sites since this ack manager began, the other sender knows more.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import chain, pairwise

from spark_wan.errors import SYNC, LogGapError, ManifestError, WanError
from spark_wan.log.ack_watch import AckWatch
from spark_wan.log.notes import announce, announced, last_pause, withdraw
from spark_wan.log.progress import acked_through, is_about, waited_through
from spark_wan.log.stream_log import StreamLog, read_acks
from spark_wan.log.writer import CheckpointStore
from spark_wan.messages import message_log
from spark_wan.steps import Steps
from spark_wan.topology.ack_policy import AckPolicy
from spark_wan.wire.ack import Ack
from spark_wan.wire.checkpoint import PublishedState, SenderCheckpoint
from spark_wan.wire.manifest import Manifest

log = message_log(__name__)

READ_AT_FIRST = 4
"""Number of manifests that are read to find those that are done; doubles while all are."""
READ_AT_MOST = 256
ROUND_INTERVAL = 86_400_000
"""Milliseconds after which a round is due at the latest. Each takes some requests for its stream,
and an AckWatch sees before what matters, for all streams at once."""
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


class Fate(Enum):
    """What a round does with an epoch of the log."""

    KEPT = "some addressee needs it, and with it all epochs above"
    TRIMMED = "it goes, with its frames"
    TRIMMED_ALONE = "its manifest goes, its frames are gone or are left to the sweep"


@dataclass
class AckManager:
    """Ack manager of one stream."""

    log: StreamLog
    checkpoints: CheckpointStore | None
    """None: there is no place for one."""
    policy: AckPolicy
    ack_timeout: int
    """In milliseconds."""
    clock: Callable[[], int]
    """Milliseconds since 1970 UTC."""
    served: Collection[str]
    """The sites that the sender serves now."""
    former: Collection[str] | None = None
    """The sites that it no longer serves; None: all others."""
    never_primary: Collection[str] = ()
    """The sites with priority 0, for the policy."""
    state: StreamState = field(default_factory=StreamState)
    watch: AckWatch | None = None
    """Of the channel, for all its streams. None: each round lists the acks of the stream."""
    paused_until: int = 0
    """When the stream was last paused, as far as that was asked for: until then no site owed an
    ack."""
    _next_poll: int = 0
    _next_round: int = 0
    """With a watch: when a round is due at the latest, by ``clock``."""
    _acted_on: object = None
    """With a watch: what the last round that succeeded had seen."""
    _announced: tuple[int, int] | None = None
    _knows_announced: bool = False
    """Whether ``_announced`` was read."""
    _waiting: tuple[str, int, int] | None = None
    """(log ID, lowest epoch not acked, since when)"""
    _logged: frozenset[str] = frozenset()
    """The sites no longer served that the log has named."""
    _first_newest: tuple[str, int] | None = None
    """(log ID, epoch) of the newest manifest in the first round."""
    _served_by_others: frozenset[str] = frozenset()
    _refused: Mapping[str, int] | None = None
    """Number of events that each site could not apply, by the last round."""
    _without_frames: tuple[str, int] | None = None
    """(log ID, epoch) of the newest manifest, once its frames are trimmed."""

    def look(self, max_age: float) -> None:
        """With a watch, list the channel's acks, unless that was done for another of its streams
        in the last ``max_age`` seconds. Raises ChannelError."""
        if self.watch is not None:
            self.watch.look(max_age)

    def due(self) -> bool:
        """Whether to poll now: always while sites ack, every 5 s while there are no acks, and
        whenever the clock was set back.

        With a watch: when an ack was replaced since the last round, an epoch was appended here or,
        some minutes ago, elsewhere, or time makes something overdue. Costs no request."""
        if self.watch is None:
            return not 0 < self._next_poll - self.clock() <= NO_ACKS_POLL_INTERVAL
        seen = self.watch.tag(self.log.stream), self.log.newest_seen
        waits = 0 < self._next_round - self.clock() <= ROUND_INTERVAL
        return self._acted_on != seen or not waits

    def _news(self, last: Manifest | None) -> object:
        """Return what :meth:`due` compares, once the log was read and before the acks are."""
        if self.watch is None:
            return None
        return self.watch.tag(self.log.stream), last.epoch if last is not None else 0

    def is_paused(self) -> bool:
        """Whether no site is to take anything of the stream. One request, so ask only where an ack
        is overdue. Raises ChannelError."""
        last = last_pause(self.log.channel, self.log.stream)
        if last is None:
            return False
        self.paused_until = self.clock() if last.until is None else last.until
        return last.until is None

    def is_excused(self) -> bool:
        """Whether the stream is paused, or was until less than ``ack_timeout`` ago: no site could
        ack. Costs the same request."""
        return self.is_paused() or self.clock() - self.paused_until < self.ack_timeout

    def acked_by(self, manifest: Manifest) -> set[str]:
        """Return the sites that have applied ``manifest``, by what the last round read."""
        newest, acks = self.state.newest, self.state.acks
        if newest is None or newest.log_id != manifest.log_id:
            return set()
        through = acked_through(newest, acks, acks)
        return {site for site, epoch in through.items() if epoch >= manifest.epoch}

    def done(self, manifest: Manifest) -> bool:
        """Whether the ack policy calls ``manifest`` permanent, by what the last round read. For a
        stream that begins at this site."""
        return self.policy.met(
            self.acked_by(manifest),
            self.addressees(manifest),
            manifest.origin,
            self.never_primary,
        )

    def round(self) -> Steps[StreamState]:
        """Read the acks and act on them."""
        epochs, strays, last = self.log.oldest()
        news = self._news(last)
        if last is None:
            self.state = StreamState()
            self._rest(news)
            return self.state
        acks = self.read_acks()
        state = self.state = StreamState(newest=last, acks=acks)
        self._log_refused(acks)
        yield "acks.1 acks-read"
        self._find_other_senders(last)
        current = {site: ack for site, ack in acks.items() if is_about(last, ack)}
        applied = acked_through(last, acks, self.addressees(last))
        acked_by_all = min(waited_through(last, applied).values(), default=last.epoch)
        state.backlog = max(0, last.epoch - max(acked_by_all, epochs[0] - 1))
        acked = self._record_acks(last, applied)
        yield "acks.2 checkpointed"
        if self.log.told != (last.log_id, last.epoch):
            self.log.tell(last)
        # A site that has acked another log of this name must hear of this one.
        self._announce(last, acked_by_all, bool(acks) or any(acked.values()))
        yield "acks.3 announced"
        self._log_not_served(last, current)
        waited = waited_through(last, acked)
        self.log.check_gap(epochs, strays, waited)
        if strays:
            self._check_strays(last, strays)
            # The sweep takes their frames: the writer, once it goes on, may name them in another
            # manifest.
            self.log.trim(strays[-1], [])
            yield "acks.4 trimmed"
        page_done = yield from self._trim(epochs, last, waited)
        self._next_poll = self.clock() + (
            NO_ACKS_POLL_INTERVAL if state.backlog and not current else 0
        )
        self._rest(None if page_done and epochs[-1] < last.epoch else news)
        return state

    def _rest(self, news: object) -> None:
        """Note what this round has acted on (None: there is more), and when the next is due."""
        self._acted_on = news
        # Spread: streams that were started together are not due together.
        share = 0.5 + zlib.crc32(self.log.stream.encode()) / 2**33
        self._next_round = self.clock() + int(share * ROUND_INTERVAL)
        if self._waiting is not None:
            self._next_round = min(self._next_round, self._waiting[2] + self.ack_timeout)

    def read_acks(self) -> Mapping[str, Ack]:
        """Return the newest acks, by site; with a watch, those that it has seen."""
        if self.watch is None:
            return self.log.acks()
        return read_acks(self.log.stream, self.watch.acks(self.log.stream), self.log.trust)

    def _trim(self, epochs: Sequence[int], last: Manifest, acked: Mapping[str, int]) -> Steps[bool]:
        """Trim, from the lowest epoch on, what every addressee has.

        Returns whether all of ``epochs`` was."""
        self.state.oldest = epochs[0]
        at_once, left = READ_AT_FIRST, list(epochs)
        while left:
            part, left = left[:at_once], left[at_once:]
            at_once = min(2 * at_once, READ_AT_MOST)
            done, frames = self._done(part, last, acked)
            through = min(done, last.epoch - 1)
            if frames or through >= part[0]:
                self.log.trim(through, frames)
                yield "acks.4 trimmed"
            self.state.oldest = through + 1
            if done == last.epoch:
                self._without_frames = (last.log_id, last.epoch)
            if done < part[-1]:
                return False
        return True

    def _done(
        self, epochs: Sequence[int], last: Manifest, acked: Mapping[str, int]
    ) -> tuple[int, list[str]]:
        """Return through which of ``epochs`` (ascending) all is done, and the frames to trim."""
        through, frames = epochs[0] - 1, list[str]()
        try:
            each = zip(epochs, self._pairs(epochs, last), strict=False)
            for epoch, (manifest, following) in each:
                fate = self._fate(manifest, following, last, acked)
                if fate is Fate.KEPT:
                    break
                if fate is Fate.TRIMMED and manifest is not None:
                    frames += [frame.path for frame in manifest.frames]
                through = epoch
        except ManifestError:
            if not frames:
                raise
            # What is done below it is trimmed first.
        return through, frames

    def _pairs(
        self, epochs: Sequence[int], last: Manifest
    ) -> Iterator[tuple[Manifest | None, Manifest | None]]:
        """Yield the manifest of each of ``epochs``, with the one after it. None for one that
        another ack manager has trimmed since it was listed, and for what is after ``last``."""
        below = [epoch for epoch in (*epochs, epochs[-1] + 1) if epoch < last.epoch]
        return pairwise(chain(self.log.read_each(below), [last, None]))

    def _fate(
        self,
        manifest: Manifest | None,
        following: Manifest | None,
        last: Manifest,
        acked: Mapping[str, int],
    ) -> Fate:
        """Return what a round does with an epoch, by the first rule that holds."""
        if manifest is None:
            return Fate.TRIMMED_ALONE
        is_stray = manifest is not last and (
            following is None or following.previous != manifest.fingerprint
        )
        if is_stray:
            is_behind = manifest.epoch <= min(acked.values(), default=manifest.epoch)
            return Fate.TRIMMED_ALONE if is_behind else Fate.KEPT
        if not self._all_acked(manifest):
            return Fate.KEPT
        if (manifest.log_id, manifest.epoch) == self._without_frames:
            return Fate.TRIMMED_ALONE
        return Fate.TRIMMED

    def _check_strays(self, last: Manifest, strays: Sequence[int]) -> None:
        """Raise LogGapError where the strays are a log that began later than that of the newest
        manifest. That manifest is the stray then: its writer was frozen while its log was lost, and
        killed right after it."""
        for epoch in strays:
            (stray,) = self.log.read_each([epoch])
            if stray is not None and stray.log_id != last.log_id and stray.created > last.created:
                raise LogGapError(
                    f"{self.log.channel.url}: manifest {last.epoch} of {self.log.stream} belongs "
                    f"to another log than those through {strays[-1]}, which began later: a writer "
                    "of the lost log added it late. Nothing is trimmed. Delete manifest "
                    f"{last.epoch} below log/{self.log.stream}/ in the channel, and restore "
                    "nothing."
                )

    def addressees(self, manifest: Manifest) -> set[str]:
        """Return the addressees that the sender still serves."""
        return self.serving(manifest.addressees)

    def serving(self, sites: Collection[str]) -> set[str]:
        """Return those of some addressees that the sender still serves."""
        return set(sites) - self._not_served(sites)

    def _not_served(self, sites: Collection[str]) -> frozenset[str]:
        gone = set(sites) - set(self.served) - self._served_by_others
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
                "serve. This sender waits for its acks too.",
                self.log.stream,
                last.epoch,
                site,
                event="other-sender",
                stream=self.log.stream,
                epoch=last.epoch,
                what_to_do="Give both the same topology, or stop the older one.",
            )
        self._served_by_others = others

    def _all_acked(self, manifest: Manifest) -> bool:
        return self.addressees(manifest) <= self.acked_by(manifest) | self._without(manifest)

    def _without(self, manifest: Manifest) -> set[str]:
        """Return the sites that the log goes on without, as far as an epoch is concerned."""
        newest = self.state.newest
        if newest is None or newest.log_id != manifest.log_id:
            return set()
        return {site for site, through in newest.dropped.items() if manifest.epoch <= through}

    def _log_not_served(self, last: Manifest, acks: Mapping[str, Ack]) -> None:
        """Name the sites that were taken out of the topology: what they have not applied is trimmed
        all the same."""
        gone = self._not_served(last.addressees)
        self.state.not_served = tuple(sorted(gone))
        for site in sorted(gone - self._logged):
            log.warning(
                "%s: site %s is no longer served by this sender; it has acked epoch %d of %d, and "
                "the sender no longer waits for its acks. What it has not applied is trimmed.",
                self.log.stream,
                site,
                acks[site].applied if site in acks else 0,
                last.epoch,
                event="not-served",
                stream=self.log.stream,
                epoch=last.epoch,
                what_to_do="To be served again, it needs a copy of the table: put it back into the "
                f"topology, and run {SYNC}.",
            )
        self._logged = gone

    def _log_refused(self, acks: Mapping[str, Ack]) -> None:
        """Name in the log which events sites could not apply, since the last round."""
        before = self._refused
        # An ack that cannot be read counts none.
        known = {site: ack.dead_letters for site, ack in acks.items() if ack.log_id}
        self._refused = {**(before or {}), **known}
        for site, count in self._refused.items():
            more = count - before.get(site, 0) if before is not None else 0
            if more > 0:
                log.warning(
                    "%s: site %s could not apply %d more of its events, %d in all%s",
                    self.log.stream,
                    site,
                    more,
                    count,
                    self._newest_refused(site),
                    event="refused",
                    stream=self.log.stream,
                    site=site,
                    what_to_do="They are dead letters: `spark-wan dead-letters list --site "
                    f"{site}` shows their rows and causes.",
                )

    def _newest_refused(self, site: str) -> str:
        """Return what the log says of the newest event that a site could not apply, without its
        row."""
        try:
            found = self.log.refused(site)
        except WanError as error:
            return f" ({error})"
        if found is None or not found.events:
            return ""
        newest = found.events[0]
        version = f"version {newest.origin_version}"
        return f"; the newest is event {newest.event_id} of {version}: {newest.cause}"

    def _record_acks(self, last: Manifest, applied: Mapping[str, int]) -> Mapping[str, int]:
        """Save what was acked. Returns the highest epoch that each site has ever acked, as far back
        as the checkpoint goes."""
        checkpoint = self.checkpoint()
        acked = ever_acked(last, applied, checkpoint)
        published = PublishedState.by(last)
        if checkpoint is None:
            checkpoint = SenderCheckpoint(last.log_id, last.epoch, {}, published)
        if checkpoint.log_id == last.log_id:
            following = replace(checkpoint, acked=acked)
            if following.published is None and following.epoch == last.epoch:
                following = replace(following, published=published)  # an older version wrote it
            if following != checkpoint:
                self.save_checkpoint(following)
        return acked

    def checkpoint(self) -> SenderCheckpoint | None:
        """Read the checkpoint of the stream."""
        return None if self.checkpoints is None else self.checkpoints.load(self.log.stream)

    def save_checkpoint(self, checkpoint: SenderCheckpoint) -> None:
        if self.checkpoints is not None:
            self.checkpoints.save(self.log.stream, checkpoint)

    def _announce(self, last: Manifest, acked_by_all: int, any_acks: bool) -> None:
        """Announce again from the lowest epoch that is not acked, once per ``ack_timeout`` without
        progress."""
        stream, channel = self.log.stream, self.log.channel
        if not self._knows_announced:
            self._announced, self._knows_announced = announced(channel, stream), True
        if self._announced is not None and self._announced[0] <= acked_by_all:
            withdraw(channel, stream)
            self._announced, self._knows_announced = None, False  # the next round looks again
        if acked_by_all >= last.epoch:
            self._waiting = None
            return
        lowest, now = acked_by_all + 1, self.clock()
        if self._waiting is None or self._waiting[:2] != (last.log_id, lowest):
            self._waiting = (last.log_id, lowest, now)
            return
        if 0 <= now - self._waiting[2] < self.ack_timeout:
            return
        if self.is_excused():
            self._waiting = (last.log_id, lowest, self.paused_until)
            return
        self.state.overdue = True
        if any_acks:
            before = announced(channel, stream)  # another ack manager may have announced it too
            attempt = before[1] + 1 if before is not None and before[0] == lowest else 1
            self._announced = lowest, attempt
            announce(channel, stream, lowest, attempt)
            log.warning(
                "%s: epoch %d not acked for %d ms: announced again (attempt %d)",
                stream,
                lowest,
                self.ack_timeout,
                attempt,
                event="overdue",
                stream=stream,
                epoch=lowest,
                what_to_do="Run `spark-wan status`, which says which site owes the ack, and check "
                "that its receiver runs.",
            )
        self._waiting = (last.log_id, lowest, now)


def ever_acked(
    last: Manifest, applied: Mapping[str, int], checkpoint: SenderCheckpoint | None
) -> dict[str, int]:
    """Return the highest epoch that each site has ever acked, as far back as the checkpoint goes:
    an ack may be lost, or go back. ``applied``: by the acks that are there."""
    known: Mapping[str, int] = {}
    if checkpoint is not None and checkpoint.log_id == last.log_id:
        known = checkpoint.acked
    return {site: max(epoch, known.get(site, 0)) for site, epoch in applied.items()}
