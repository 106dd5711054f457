"""Status of the streams of a topology, read from the logs, acks and senders' records of its
channels. No Spark.

>>> for channel in read_status(load_topology("conf/two_sites.yaml")):
...     print(channel.url, [stream.stream for stream in channel.streams])
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from spark_wan.channels.base import Channel, Note, Version
from spark_wan.channels.parallel import in_order
from spark_wan.channels.registry import open_channel
from spark_wan.delta.sql import quoted, reference
from spark_wan.errors import (
    NEW_SITE,
    ChannelError,
    NewerRecordError,
    UntrustedError,
    WanError,
)
from spark_wan.log.notes import (
    UNREADABLE_PAUSE,
    ack,
    ack_versions,
    heartbeat,
    last_pause,
    pauses,
    receiver_record,
    refused,
)
from spark_wan.log.progress import acked_through, waited_through
from spark_wan.log.stream_log import StreamLog, read_acks
from spark_wan.runtime.progress import ms_left, rows_per_s
from spark_wan.state.control import ControlLog
from spark_wan.topology.fingerprint import settings_fingerprint
from spark_wan.topology.model import QueueLimits, Sender, Stream, Topology
from spark_wan.topology.routes import all_streams
from spark_wan.units import milliseconds
from spark_wan.wire.ack import Ack
from spark_wan.wire.control import NEWEST, Control, WantedEnd
from spark_wan.wire.head import Pause
from spark_wan.wire.heartbeat import Heartbeat, forwarding
from spark_wan.wire.manifest import Manifest
from spark_wan.wire.names import printable
from spark_wan.wire.receiver_record import NotApplied, ReceiverRecord
from spark_wan.wire.records import LongWork
from spark_wan.wire.refused import RefusedEvents
from spark_wan.wire.sender_record import EndRequest, NotSent, SenderRecord

HELD, FAILED, RETRYING = "held", "failed", "retrying"
PAUSED, STARTING = "paused", "starting"
DRAINING, FINISHED = "draining", "finished"
NO_ANSWER, NOT_SERVED = "no answer", "no longer served"
LATE, STOPPED, UNKNOWN = "late", "stopped", "unknown"
UP_TO_DATE, NOTHING_SENT = "up to date", "nothing sent yet"
STATES = (
    HELD,
    FAILED,
    NO_ANSWER,
    UNKNOWN,
    STOPPED,
    RETRYING,
    PAUSED,
    NOT_SERVED,
    DRAINING,
    STARTING,
    LATE,
    FINISHED,
    UP_TO_DATE,
    NOTHING_SENT,
)
"""What a link can be, the worst first:

================  ================================================================================
held              the sender or the site holds the stream, and says why, and what to do
failed            the sender or the site has retried for longer than its ``retry_timeout``, and goes
                  on to do so
no answer         the site has owed an ack for longer than the sender's ``ack_timeout``
unknown           the sender was to say something and has not: it was killed, or has no network
stopped           the sender was stopped; what the source has had since is not known
retrying          the sender or the site cannot go on, for a cause that may pass by itself
paused            somebody has paused the stream: the site takes nothing until it is resumed
no longer served  the site is no remote of the sender any more
draining          somebody drains the stream, and the site does not have all yet
starting          the sender runs, and has sent nothing of the stream yet
late              something waits: for the site, or for the sender
finished          somebody has ended the stream, and the site has all of it
up to date        the site has all that the sender knows of
nothing sent yet  the stream has no epoch
================  ================================================================================
"""


@dataclass(frozen=True)
class WorkReport:
    """A capture or an apply that takes long, as its job has said last."""

    rows: int
    """Number of rows; of a capture an estimate."""
    bytes: int | None
    """The size of what is read; None: not known."""
    began_ms: int
    share: float | None
    """The share that was done at ``written_ms``, from 0 to 1; None: not known."""
    written_ms: int
    rows_per_s: int | None
    """Rows per second until then; None: not known."""
    left_ms: int | None
    """How long the rest took from then on, at that rate; None: not known."""


@dataclass(frozen=True)
class ReceiverReport:
    """What the receiver of a site says of itself for a stream. Times in milliseconds since 1970
    UTC, by its clock."""

    began_ms: int
    """Since when the next six count."""
    epochs: int
    events: int
    duplicates: int
    """Events that came again, and were dropped."""
    dead_letters: int
    local_commits: int
    """Commits to the target that no receiver made."""
    not_applied: NotApplied
    """What else was not applied, by reason."""
    work: WorkReport | None
    """None: no apply takes long."""
    written_ms: int
    stopped_ms: int | None
    """When it was stopped; None: it was not, or could not say so."""
    silent_since_ms: int | None
    """Since when it has said nothing, if it was to; None: it is as usual."""

    @property
    def is_there(self) -> bool:
        """Whether it seems to run."""
        return self.stopped_ms is None and self.silent_since_ms is None


LONGEST_APPLY = 7_200_000
"""Milliseconds for which a site that applies a large epoch owes no ack."""
FRESH_WORK = 120_000
"""Milliseconds for which a receiver that says how far its work is owes no ack. It says so every few
seconds, or a minute later if the channel refuses that."""


@dataclass(frozen=True)
class SiteReport:
    """How far a site is with a stream: one link, from the stream's sender to an addressee."""

    site: str
    acked: int = 0
    """Through this epoch the site has applied everything; 0: no ack for this log."""
    backlog_epochs: int = 0
    backlog_events: int = 0
    backlog_bytes: int = 0
    """What the site has not acked."""
    behind_ms: int | None = None
    """Age of the oldest source commit in the backlog, or of its manifest if that has no commits;
    None: there is no backlog. Commits that the sender has not published do not count."""
    held_at: int | None = None
    cause: str | None = None
    """The epoch that the site holds the stream at, and why."""
    held_since_ms: int | None = None
    """Since when, by the site's clock; None: it does not, or does not say."""
    held_as: str | None = None
    """:data:`HELD`, :data:`RETRYING` or :data:`FAILED`; None: it does not."""
    needs: str | None = None
    """Why the site needs a copy of the table: ``epochs``, ``source``, ``table``, ``columns`` or
    ``ledger`` (:mod:`spark_wan.errors`); None: a copy is not what it needs."""
    needs_since_ms: int | None = None
    """Since when, by the site's clock."""
    answered_at_ms: int | None = None
    """When the site's last ack was written, since 1970 UTC, by the channel's clock; None: no ack. A
    held site's last ack is the one that says so."""
    overdue_since_ms: int | None = None
    """Since when the site owes an ack that has not come for the sender's ``ack_timeout``; None: it
    does not, or holds the stream."""
    applying: int | None = None
    """The epoch that the site has begun to apply, if that may take long."""
    dead_letters: int = 0
    open_dead_letters: int | None = None
    """How many of them nothing was done about yet, by what the site says; None: it does not say."""
    lacks_before: int | None = None
    """The first version that it is sent, where it has acked none of those before: it was added to a
    running stream, or its ack was lost. Of a user stream -1; None: it has them."""
    dropped: int | None = None
    """The stream goes on without what the site had not acked through this epoch, because its queue
    was full; None: it does not, or the site has got over it."""
    served: bool = True
    """False for a site that is no longer among the sender's remotes: no trim waits for its acks."""
    path: str | None = None
    """The way from the origin, for a forwarded stream."""
    seen_ms: int | None = None
    """The last sign of life of the site's receiver, by its clock; None: it has given none."""
    connected: bool | None = None
    """Whether the receiver runs, by its heartbeats; None: it writes none."""
    receiver: ReceiverReport | None = None
    """None: the site's receiver has left no record that can be read here, or is a query with
    ``format("wan")``."""
    state: str = NOTHING_SENT
    """One of :data:`STATES`."""


@dataclass(frozen=True)
class SenderReport:
    """What the sender of a stream says of itself. Times in milliseconds since 1970 UTC, by its
    clock."""

    held: str | None
    """Why it holds the stream, and what to do."""
    held_as: str | None
    """:data:`HELD`, :data:`RETRYING` or :data:`FAILED`; None: it does not."""
    held_since_ms: int | None
    began_ms: int
    """Since when the next seven count."""
    epochs: int
    events: int
    batches: int
    bytes: int
    dead_letters: int
    duplicates: int
    """Rows that it saw with the key of another."""
    not_sent: NotSent
    """What was not sent, by reason."""
    queue_full: str | None
    """Why it adds nothing to the stream for now: too much waits for acks."""
    queue_full_since_ms: int | None
    alert: str | None
    """Which epoch did not meet the ack policy in time, and whose acks it lacks."""
    written_ms: int
    settings_generation: int
    waiting: int
    """Commits of the source that are not in the channel yet, as far as the sender knows."""
    delayed: int
    """Commits that are not old enough to be published, besides."""
    work: WorkReport | None
    """None: no capture takes long."""
    stopped_ms: int | None
    """When it was stopped; None: it was not, or could not say so."""
    silent_since_ms: int | None
    """Since when it has said nothing, if it was to; None: it is as usual."""
    other_settings: bool
    """Whether it runs with other settings of the stream than the topology has."""
    ending: EndRequest | None
    """An end of the stream that was asked for, and has come or will; None: none was."""
    history_until_ms: int | None
    """Until when the source keeps the history of what is not sent; None: it is not known, or the
    sender goes on and nothing waits."""
    retention_ms: int | None
    """How long the source keeps what a commit has changed; None: not known."""
    duplicates_query: str
    """The SQL statement that finds the keys of several rows; empty: the topology does not have the
    stream."""


@dataclass(frozen=True)
class PauseReport:
    """A pause of a stream."""

    by: str
    """Who asked for it."""
    since_ms: int
    """Since when, in milliseconds since 1970 UTC, by the clock where it was asked for; 0: the pause
    cannot be read."""
    capture: bool
    """Whether the sender adds nothing to the stream, either."""
    generation: int
    """The number of the request in the control log of the sending site; 0: the pause cannot be
    read."""


@dataclass(frozen=True)
class EndReport:
    """An end of a stream that somebody has asked for."""

    by: str
    """Who asked for it; empty: not known here."""
    kind: str
    """``newest``: a drain; ``version`` or ``time``; empty: not known here."""
    point: int
    """The version, or the time in milliseconds since 1970 UTC; of a drain, and if it is not known
    here, 0."""
    version: int | None
    """The last version that is sent; None: it has not come yet."""
    control: int
    """The number in the control log of the sending site of the request by which it has ended; 0: it
    has not."""


@dataclass(frozen=True)
class StreamReport:
    """How far one stream is published, what holds it at the sender, and how far each addressee
    is."""

    stream: str
    table: str
    origin: str
    from_site: str = ""
    """The site that sends; another one than the origin if the stream is forwarded. Empty: the
    stream is not in the topology."""
    log_id: str = ""
    """The ID of its log; empty: nothing is published yet."""
    epoch: int = 0
    """The newest epoch; 0: nothing is published yet."""
    version: int | None = None
    """Through this version of the source table all is in the channel; None for a user stream."""
    published_at_ms: int | None = None
    """When the newest epoch was published: milliseconds since 1970 UTC, by the sender's clock."""
    sender: SenderReport | None = None
    """None: the sender has left no record; it has not run yet, or an older version did."""
    sender_problem: str | None = None
    """Why the sender's record cannot be read."""
    sites: tuple[SiteReport, ...] = ()
    problem: str | None = None
    """Why the stream's log cannot be read."""
    paused: PauseReport | None = None
    """None: the stream is not paused."""
    ending: EndReport | None = None
    """None: nobody has asked for an end of the stream."""
    delay_ms: int = 0
    """How old commits are when they are published, at least."""


@dataclass(frozen=True)
class ChannelReport:
    """A channel, its streams, and the files in it that are not spark_wan's."""

    url: str
    streams: tuple[StreamReport, ...] = ()
    foreign: tuple[str, ...] = ()
    problem: str | None = None
    """Why the channel cannot be read."""


def read_status(topology: Topology, site: str | None = None) -> list[ChannelReport]:
    """Return the status of every channel. Changes nothing. See :class:`StatusReader`."""
    return StatusReader(topology, site).read()


@dataclass(frozen=True)
class _Epoch:
    """What is reported of an epoch that waits."""

    log_id: str
    events: int
    bytes: int
    oldest_change: int
    """When its oldest commit was made, or the epoch was published."""
    published: int
    addressees: tuple[str, ...]
    start: bool
    first_version: int
    is_acked_alone: bool
    """False: a part of a copy, which is acked with the last one."""

    @classmethod
    def of(cls, manifest: Manifest) -> _Epoch:
        oldest = min((commit["time"] for commit in manifest.commits), default=manifest.created)
        return cls(
            manifest.log_id,
            manifest.rows,
            bytes=manifest.bytes,
            oldest_change=oldest,
            published=manifest.created,
            addressees=manifest.addressees,
            start=manifest.start,
            first_version=manifest.first_version,
            is_acked_alone=manifest.copy is None or manifest.copy.part == manifest.copy.parts,
        )


@dataclass
class _Reading:
    """One stream, while it is read."""

    name: str
    channel: Channel
    sender: Sender
    """Of the stream; of the channel, for a stream that is not in the topology."""
    planned: Stream | None
    """The stream in the topology."""
    answered: Mapping[str, Version]
    """The version of each site's ack."""
    last_pause: Pause | None = None
    heartbeats: Mapping[tuple[str, str], Heartbeat] = field(default_factory=dict)
    """By sender and site."""

    def heartbeat(self, site: str) -> Heartbeat | None:
        """Return the heartbeat of a site's job: of the one that sends, or of a receiver."""
        forwards = self.planned is not None and self.planned.inbound is not None
        name = self.sender.name
        if forwards and site == self.sender.site:
            name = forwarding(name)
        return self.heartbeats.get((name, site))

    @property
    def served(self) -> Sequence[str]:
        return self.planned.addressees if self.planned is not None else self.sender.remotes

    @property
    def holds_when_full(self) -> bool:
        """Whether a full queue is to be reported as a hold."""
        of = self.planned
        return of is not None and QueueLimits.of(of.sender, of.table).policy == "hold"

    def path(self, site: str) -> str | None:
        """Return the way of a forwarded event to a site."""
        forwarded = self.planned is not None and self.planned.inbound is not None
        return self.planned.way(site) if self.planned is not None and forwarded else None


class StatusReader:
    """Reads the status of a topology's channels, again and again. Changes nothing.

    A channel or stream that cannot be read has a ``problem``; the others are still read, and the
    next call tries again. Channels are read at the same time, and what never changes once.

    Args:
        topology: What to expect in the channels.
        site: Only the channels that this site sends or receives on, with its streams.
        clock: Milliseconds since 1970 UTC.

    Raises:
        TopologyError: the site is unknown.
    """

    def __init__(
        self,
        topology: Topology,
        site: str | None = None,
        clock: Callable[[], int] = milliseconds,
    ) -> None:
        if site is not None:
            topology.site(site)
        self.topology = topology
        self.site = site
        self.clock = clock
        self._streams = all_streams(topology)
        self._settings = {
            stream.name: settings_fingerprint(topology, stream.sender, stream.table)
            for stream in self._streams
        }
        self._foreign: dict[str, tuple[str, ...]] = {}
        """By channel, once it was looked for."""
        self._control_logs: dict[str, ControlLog] = {}
        """By site."""
        self._controls: dict[str, Control | None] = {}
        """By site, as of this reading."""
        self._waiting: dict[tuple[str, str], dict[int, _Epoch]] = {}
        """Channel and stream -> epochs that waited when it was read last."""

    def read(self) -> list[ChannelReport]:
        """Return the report of each channel."""
        self._controls.clear()
        first: dict[str, Sender] = {}
        for sender in self.topology.senders.values():
            first.setdefault(sender.channel, sender)
        chosen = [
            sender
            for sender in first.values()
            if self.site is None or self.site == sender.site or self.site in sender.remotes
        ]
        return list(in_order(self._channel, chosen))

    def _channel(self, sender: Sender) -> ChannelReport:
        """Return the report of one channel: the streams of the topology, and others in its log."""
        url = sender.channel
        planned = {each.name: each for each in self._streams if each.sender.channel == url}
        streams = {name: _unpublished(name, each) for name, each in planned.items()}
        foreign: tuple[str, ...] = ()
        problem = None
        try:
            if exists(url):
                channel = open_channel(url, sender.storage)
                epochs, acks = channel.epochs(), ack_versions(channel)
                have_pauses = pauses(channel)
                beats = self._heartbeats(channel)
                names = sorted({*planned, *epochs})

                def read(name: str) -> StreamReport | None:
                    plan = planned.get(name)
                    of = plan.sender if plan is not None else sender
                    try:
                        last = last_pause(channel, name) if name in have_pauses else None
                    except ChannelError:  # who may not read it knows that it is there
                        last = UNREADABLE_PAUSE
                    reading = _Reading(
                        name,
                        channel,
                        sender=of,
                        planned=plan,
                        answered=acks.get(name, {}),
                        last_pause=last,
                        heartbeats=beats,
                    )
                    try:
                        return self._stream(reading, epochs.get(name, []))
                    except UntrustedError as error:  # its name could lead out of a folder
                        return StreamReport(printable(name), "", "", problem=str(error))

                found = zip(names, in_order(read, names), strict=True)
                streams = {name: report for name, report in found if report is not None}
                if url not in self._foreign:
                    self._foreign[url] = tuple(map(printable, channel.foreign()))
                foreign = self._foreign[url]
        except WanError as error:
            problem = str(error)
        chosen = [
            stream
            for _, stream in sorted(streams.items())
            if self.site in (None, stream.origin, stream.from_site)
            or self.site in (site.site for site in stream.sites)
            or stream.problem
        ]
        return ChannelReport(url, tuple(chosen), foreign, problem)

    def _heartbeats(self, channel: Channel) -> Mapping[tuple[str, str], Heartbeat]:
        """Return the heartbeats of the jobs at both ends of a channel, by sender and site."""
        senders = [each for each in self.topology.senders.values() if each.channel == channel.url]
        links = [(each.name, site) for each in senders for site in (each.site, *each.remotes)]
        links += [(forwarding(each.name), each.site) for each in senders]

        def read(link: tuple[str, str]) -> Heartbeat | None:
            try:
                return heartbeat(channel, *link)
            except ChannelError:
                return None  # who may read acks alone sees none

        found = zip(links, in_order(read, links), strict=True)
        return {link: beat for link, beat in found if beat is not None}

    def _stream(self, reading: _Reading, epochs: Sequence[int]) -> StreamReport | None:
        """Return the report of a stream with these epochs; None: of copies that were all taken."""
        report, found = _unpublished(reading.name, reading.planned), reading.last_pause
        if found is not None and found.until is None:
            paused = PauseReport(found.by, found.since, found.capture, found.generation)
            report = replace(report, paused=paused)
        report = self._with_sender(report, reading)
        if not epochs:
            return with_states(report)
        log = StreamLog(reading.channel, reading.name)
        try:
            whole, below = log.whole_and_below(epochs)
            newest = log.read(epochs[-1])
            acks, receivers = self._acks(reading), self._receivers(reading, newest.addressees)
            asks = any(each.wanted is not None for each in acks.values())
            if newest.copy is not None and not newest.copy.request and not asks:
                return None
            acked = acked_through(newest, acks, log_read_first=True)
            served = {site: acked[site] for site in acked if site in reading.served}
            log.check_gap(whole, below, waited_through(newest, served))
            lowest = min(acked.values(), default=newest.epoch)
            waiting = self._read_waiting(log, newest, [epoch for epoch in whole if epoch > lowest])
        except WanError as error:
            try:
                now = log.epochs()
            except WanError:
                now = list(epochs)
            if now != list(epochs):  # the log was published to or trimmed while it was read
                return self._stream(reading, now)
            return replace(report, epoch=epochs[-1], sites=(), problem=str(error))
        report = replace(
            report,
            table=newest.table,
            origin=newest.origin,
            log_id=newest.log_id,
            epoch=newest.epoch,
            version=newest.through,
            published_at_ms=newest.created,
            ending=self._ending(reading, newest, report.sender),
            sites=(
                *(
                    self._site(
                        site,
                        acked[site],
                        ack=acks.get(site),
                        receiver=receivers.get(site),
                        dropped=newest.dropped.get(site, 0),
                        waiting=waiting,
                        reading=reading,
                    )
                    for site in newest.addressees
                ),
                *self._to_come(reading, newest, acks),
            ),
        )
        return with_states(_without_full_queue(report))

    def _ending(
        self, reading: _Reading, newest: Manifest, sender: SenderReport | None
    ) -> EndReport | None:
        """Return the end of a stream that somebody has asked for. One that was resumed since is
        none, though nothing has followed: so says the control log, or else the sender."""
        planned = reading.planned
        if planned is not None and (planned.inbound is not None or planned.table.source != "table"):
            return None  # what a query writes, or a site forwards, goes on
        control = self._control_of(reading.sender.site) if planned is not None else None
        if control is not None:
            wanted = WantedEnd(ending=control.end_of(reading.sender.name, newest.table))
            has_ended, ending, end = wanted.has_ended(newest), wanted.ending, wanted.end
            if end is None and not has_ended:
                return None
            asked = EndRequest("", "")
            if ending is not None and end is not None:
                asked = EndRequest(ending.by, end.kind, end.point)
        else:
            said = sender.ending if sender is not None else None
            has_ended = newest.end and (sender is None or said is not None)
            if said is None and not has_ended:
                return None
            asked = said if said is not None else EndRequest("", "")
        version, control_number = (newest.last_version, newest.control) if has_ended else (None, 0)
        return EndReport(asked.by, asked.kind, asked.point, version, control_number)

    def _control_of(self, site: str) -> Control | None:
        """Return what is wanted of the streams of a site; None: that cannot be told here."""
        if site not in self._controls:
            place = self.topology.site(site)
            generation, control = 0, Control()
            if exists(place.state):  # to open a directory would create it
                log = self._control_logs.setdefault(site, ControlLog(place.state, place.storage))
                with suppress(WanError):
                    generation, control = log.read()
            self._controls[site] = control if generation else None
        return self._controls[site]

    def _to_come(
        self, reading: _Reading, newest: Manifest, acks: Mapping[str, Ack]
    ) -> Iterator[SiteReport]:
        """Yield the sites that the topology has and no epoch yet."""
        if reading.planned is None:
            return
        for site in reading.planned.addressees:
            if site not in newest.addressees:
                before: int | None = -1 if newest.through is None else newest.through + 1
                if site in acks and acks[site].has(newest.log_id, newest.epoch):
                    before = None
                yield SiteReport(site, lacks_before=before, path=reading.path(site))

    def _acks(self, reading: _Reading) -> Mapping[str, Ack]:
        found = {site: ack(reading.channel, reading.name, site) for site in reading.answered}
        return read_acks(
            reading.name, {site: ack for site, ack in found.items() if ack is not None}
        )

    def _read_waiting(
        self, log: StreamLog, newest: Manifest, epochs: Sequence[int]
    ) -> dict[int, _Epoch]:
        """Return what is reported of these epochs, which some addressee has not acked. Reads those
        that were not read before."""
        place = log.channel.url, log.stream
        known = {
            epoch: each
            for epoch, each in self._waiting.get(place, {}).items()
            if each.log_id == newest.log_id
        }
        missing = [epoch for epoch in epochs if epoch not in known]
        read = zip(missing, in_order(log.read, missing), strict=True)
        known |= {epoch: _Epoch.of(manifest) for epoch, manifest in read}
        self._waiting[place] = {epoch: known[epoch] for epoch in epochs}
        return self._waiting[place]

    def _site(
        self,
        site: str,
        acked: int,
        *,
        ack: Ack | None,
        receiver: ReceiverRecord | None,
        dropped: int,
        waiting: Mapping[int, _Epoch],
        reading: _Reading,
    ) -> SiteReport:
        epochs = [
            epoch
            for epoch, each in waiting.items()
            if epoch > max(acked, dropped) and site in each.addressees
        ]
        backlog = [waiting[epoch] for epoch in epochs]
        answered = reading.answered[site].time if site in reading.answered else None
        need = ack.needs if ack is not None else None
        beat = reading.heartbeat(site)
        signs = [each.written for each in (beat, receiver) if each is not None]
        said = self._receiver(receiver, beat) if receiver is not None else None
        report = SiteReport(
            site=site,
            acked=acked,
            backlog_epochs=len(backlog),
            backlog_events=sum(each.events for each in backlog),
            backlog_bytes=sum(each.bytes for each in backlog),
            held_at=ack.held if ack is not None else None,
            cause=ack.cause if ack is not None else None,
            held_since_ms=ack.since if ack is not None else None,
            needs=need.why if need is not None else None,
            needs_since_ms=need.since if need is not None else None,
            answered_at_ms=int(answered * 1000) if ack is not None and answered else None,
            applying=ack.working if ack is not None else None,
            dead_letters=ack.dead_letters if ack is not None else 0,
            open_dead_letters=self._open_letters(reading, ack),
            dropped=dropped if dropped > acked else None,
            served=site in reading.served,
            path=reading.path(site),
            receiver=said,
            seen_ms=max(signs, default=None),
            connected=self._is_connected(beat),
        )
        if _holds(ack):
            away = report.connected is False or (said is not None and not said.is_there)
            report = replace(report, held_as=self._held_as(site, ack.passes, ack.since, away))
        if not backlog:
            return report
        now = self.clock()
        first = waiting[min(epochs)]
        has_nothing = acked == 0 and (ack is None or ack.in_table == 0)
        if has_nothing and not first.start and report.dropped is None:
            report = replace(report, lacks_before=first.first_version)
        published = [each.published for each in backlog if each.is_acked_alone]
        resumed = reading.last_pause.until if reading.last_pause is not None else None
        owed = max(min(published, default=now), report.answered_at_ms or 0, resumed or 0)
        applies = report.applying is not None and now - (answered or 0) * 1000 < LONGEST_APPLY
        answers = report.held_as is not None or applies or _works(report.receiver, now)
        is_overdue = now - owed > reading.sender.ack_timeout * 1000
        return replace(
            report,
            behind_ms=max(0, now - min(each.oldest_change for each in backlog)),
            overdue_since_ms=owed if is_overdue and not answers else None,
        )

    def _open_letters(self, reading: _Reading, ack: Ack | None) -> int | None:
        """Return how many dead letters of a site are open, as it says; None: it has none, or does
        not say."""
        if ack is None or not ack.dead_letters:
            return None
        sites = self.topology.sites
        keys = sites[ack.site].signing_keys if ack.site in sites else ()
        try:
            data = refused(reading.channel, reading.name, ack.site)
            told = None if data is None else RefusedEvents.of(data, reading.name, ack.site, keys)
        except WanError:
            return None  # a newer version, or somebody else, has written it
        return None if told is None else told.open

    def _held_as(self, site: str, passes: bool, since: int | None, away: bool) -> str | None:
        """Return the state of a link that a site holds; None: it did, and its job is not there.
        ``passes``: the cause may pass by itself; ``since``: since when it holds it."""
        if not passes or site not in self.topology.sites:
            return HELD
        if away:
            return None  # who is not there retries nothing
        lasts = self.clock() - since if since is not None else 0
        return FAILED if lasts > self.topology.sites[site].retry_timeout * 1000 else RETRYING

    def _receivers(
        self, reading: _Reading, addressees: Sequence[str]
    ) -> Mapping[str, ReceiverRecord]:
        """Return what the receivers of the sites say of themselves, before their first acks, too:
        the first epoch may be the largest."""
        channel, name = reading.channel, reading.name
        sites = sorted({*reading.answered, *addressees})

        def read(site: str) -> ReceiverRecord | None:
            try:
                return receiver_record(channel, name, site)
            except ChannelError:
                return None  # acks say what counts: who may read those alone sees no records

        records = zip(sites, in_order(read, sites), strict=True)
        return {site: record for site, record in records if record is not None}

    def _receiver(self, record: ReceiverRecord, beat: Heartbeat | None) -> ReceiverReport:
        return ReceiverReport(
            began_ms=record.began,
            epochs=record.epochs,
            events=record.events,
            duplicates=record.duplicates,
            dead_letters=record.dead_letters,
            local_commits=record.local_commits,
            not_applied=record.not_applied,
            work=_work(record.work, record.written),
            written_ms=record.written,
            stopped_ms=record.stopped,
            silent_since_ms=self._silent_since(record, beat),
        )

    def _is_connected(self, beat: Heartbeat | None) -> bool | None:
        if beat is None or not beat.every:
            return None
        return beat.stopped is None and not beat.is_silent(self.clock())

    def _silent_since(
        self, record: SenderRecord | ReceiverRecord, beat: Heartbeat | None
    ) -> int | None:
        """Return since when a job has said nothing that should have; None: it is there, or may be
        silent. Without heartbeats, as of an earlier version, the record of the stream tells."""
        if record.stopped is not None:
            return None
        # Another job may write the same heartbeats, of other tables: the record has to be there,
        # too.
        late = self.clock() - record.written > 2 * record.next_within
        if record.next_within > 0 and late:
            return record.written
        if beat is None or not beat.every:
            return None
        if beat.stopped is not None and beat.stopped >= record.written:
            return beat.stopped
        last = max(beat.written, record.written)
        return last if replace(beat, written=last).is_silent(self.clock()) else None

    def _with_sender(self, report: StreamReport, reading: _Reading) -> StreamReport:
        """Add what the stream's sender says of itself."""
        try:
            data = reading.channel.note(Note("sender", reading.name))
            record = None if data is None else SenderRecord.of(data, reading.name)
        except NewerRecordError as error:
            return replace(
                report,
                sender_problem=f"the sender's record was {error}. Update spark_wan here.",
            )
        except WanError as error:
            return replace(report, sender_problem=str(error))
        if record is None:
            problem = (
                "the sender's record is damaged; the sender writes it again with its next epoch"
            )
            return replace(report, sender_problem=problem if data is not None else None)
        expected = self._settings.get(reading.name, record.settings)
        held, since = record.held, record.held_since
        if held is None and reading.holds_when_full:
            # A sink that waits in its commit says that its queue is full, and no more.
            held, since = record.queue_full, record.queue_full_since
        silent = self._silent_since(record, reading.heartbeat(reading.sender.site))
        held_as = None
        if held is not None:
            away = record.stopped is not None or silent is not None
            held_as = self._held_as(reading.sender.site, record.passes, since, away)
        return replace(
            report,
            sender=SenderReport(
                held=held,
                held_as=held_as,
                held_since_ms=since,
                began_ms=record.began,
                epochs=record.epochs,
                events=record.events,
                batches=record.batches,
                bytes=record.bytes,
                dead_letters=record.dead_letters,
                duplicates=record.duplicates,
                not_sent=record.not_sent,
                queue_full=record.queue_full,
                queue_full_since_ms=record.queue_full_since,
                alert=record.alert,
                written_ms=record.written,
                settings_generation=record.settings_generation,
                waiting=record.waiting,
                delayed=record.delayed,
                work=_work(record.work, record.written),
                stopped_ms=record.stopped,
                silent_since_ms=silent,
                other_settings=record.settings not in ("", expected),
                ending=record.ending,
                history_until_ms=_history_until(record, report.paused, silent is not None),
                retention_ms=record.retention,
                duplicates_query=_duplicates_query(reading.planned),
            ),
        )


def _without_full_queue(report: StreamReport) -> StreamReport:
    """Return a report without a full queue in which nothing waits: a sink that was killed while it
    waited for room can no longer say that there is some."""
    sender = report.sender
    waits = any(site.served and site.backlog_bytes for site in report.sites)
    if sender is None or sender.queue_full is None or waits:
        return report
    rest = replace(sender, queue_full=None, queue_full_since_ms=None)
    if sender.held == sender.queue_full:
        rest = replace(rest, held=None, held_as=None, held_since_ms=None)
    return replace(report, sender=rest)


def _history_until(record: SenderRecord, paused: PauseReport | None, is_silent: bool) -> int | None:
    """Return until when the source keeps the history of what is not sent; None: it is not known, or
    each look of the sender shows that nothing waits."""
    stands_still = (
        record.stopped is not None
        or is_silent
        or not record.next_within
        or record.held is not None
        or record.queue_full is not None
        or record.ending is not None
        or (paused is not None and paused.capture)
    )
    return record.history_until if stands_still or record.waiting else None


def _holds(ack: Ack | None) -> TypeGuard[Ack]:
    return ack is not None and ack.cause is not None


def _works(receiver: ReceiverReport | None, now: int) -> bool:
    """Whether a receiver has just said how far an apply is that takes long."""
    if receiver is None or receiver.work is None or receiver.stopped_ms is not None:
        return False
    is_fresh = abs(now - receiver.written_ms) < FRESH_WORK
    return is_fresh and now - receiver.work.began_ms < LONGEST_APPLY


def _work(work: LongWork | None, written: int) -> WorkReport | None:
    """Return what a record of that time says of work that takes long."""
    if work is None:
        return None
    share = None if work.percent is None else work.percent / 100
    rate = rows_per_s(work.rows, share, written - work.began)
    return WorkReport(
        work.rows,
        work.bytes,
        began_ms=work.began,
        share=share,
        written_ms=written,
        rows_per_s=None if rate is None else round(rate),
        left_ms=ms_left(share, written - work.began),
    )


def describe_hold(held_as: str) -> str:
    """Return what a site does with a stream that does not go on there."""
    return {RETRYING: "retries it", FAILED: "has failed, and retries it"}.get(held_as, "holds it")


def describe_dropped(site: SiteReport) -> str:
    """Return what it means for a site that it was dropped, and what to do."""
    return (
        f"the stream goes on without what {site.site} had not acked through epoch {site.dropped}. "
        f"{NEW_SITE}"
    )


def with_states(stream: StreamReport) -> StreamReport:
    """Return a report whose sites have their state."""
    held = stream.sender is not None and stream.sender.held_as == HELD
    if held or stream.paused is not None:
        # What the sites wait for may be what the sender does not send, or they may not take it.
        sites = [replace(site, overdue_since_ms=None) for site in stream.sites]
    else:
        sites = [*stream.sites]
    return replace(stream, sites=tuple(replace(site, state=_state(stream, site)) for site in sites))


def _state(stream: StreamReport, site: SiteReport) -> str:
    """Return the state of a link, one of :data:`STATES`."""
    sender = stream.sender
    if not site.served:
        return NOT_SERVED
    holds = {site.held_as, sender.held_as if sender is not None else None}
    if held := next((each for each in (HELD, FAILED) if each in holds), None):
        return held
    if site.overdue_since_ms is not None:
        return NO_ANSWER
    if RETRYING in holds:
        return RETRYING
    is_drain = stream.ending is not None and stream.ending.kind in ("", NEWEST)
    if site.backlog_epochs and stream.paused is None:
        return DRAINING if is_drain else LATE
    if stream.ending is not None and stream.ending.version is not None and stream.paused is None:
        return FINISHED  # whether its sender runs or not
    # Also where it is paused: a sender goes on to add to a paused stream.
    if sender is not None and sender.stopped_ms is not None:
        return STOPPED
    if sender is not None and sender.silent_since_ms is not None:
        return UNKNOWN
    if stream.paused is not None:
        return PAUSED
    if is_drain:
        return DRAINING
    if site.lacks_before is not None or (sender is not None and sender.waiting):
        return LATE if stream.epoch else STARTING
    if not stream.epoch and sender is not None and sender.work is not None:
        return STARTING
    return UP_TO_DATE if stream.epoch else NOTHING_SENT


def _unpublished(name: str, planned: Stream | None) -> StreamReport:
    """Return the report of a stream that has no log."""
    if planned is None:
        return StreamReport(name, "", "")
    sites = tuple(
        SiteReport(site, path=planned.way(site) if planned.inbound is not None else None)
        for site in sorted(planned.addressees)
    )
    return StreamReport(
        name,
        planned.table.name,
        planned.origin,
        planned.sender.site,
        sites=sites,
        delay_ms=int(planned.delay * 1000),
    )


def exists(url: str) -> bool:
    """Return whether there may be a channel, or a state: to open a directory would create it."""
    local = url.startswith("file://") or "://" not in url
    return not local or os.path.isdir(url.removeprefix("file://"))


def _duplicates_query(stream: Stream | None) -> str:
    """Return the statement that finds the keys that a stream's source has more than once."""
    if stream is None or not stream.table.keys or stream.table.source != "table":
        return ""
    keys = ", ".join(quoted(key) for key in stream.table.keys)
    place = reference(stream.table.location(stream.sender.site))
    return f"SELECT {keys}, count(*) FROM {place} GROUP BY {keys} HAVING count(*) > 1"
