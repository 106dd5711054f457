"""What is wrong with the streams of a topology, one line each: for cron, and for probes such as
those of Nagios. No Spark.

>>> for problem in check(load_topology("conf/two_sites.yaml")):
...     print(problem.level.value, problem.text)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from spark_wan.delta.commits import HISTORY_LEFT, warn_below
from spark_wan.errors import NEW_SITE, WanError
from spark_wan.status.reports import (
    FAILED,
    FINISHED,
    HELD,
    NO_ANSWER,
    NOT_SERVED,
    RETRYING,
    ChannelReport,
    SiteReport,
    StatusReader,
    StreamReport,
    describe_dropped,
    describe_hold,
    exists,
)
from spark_wan.topology.model import Topology
from spark_wan.units import format_bytes, format_duration, milliseconds


class Level(Enum):
    """How bad it is, as probes name it."""

    WARNING = "warning"
    CRITICAL = "critical"
    UNKNOWN = "unknown"
    """It cannot be told."""


@dataclass(frozen=True)
class Limits:
    """What is still right. Times in seconds."""

    behind: float = 600.0
    """The age of the oldest change that a site lacks, without the ``delay`` of its stream."""
    queue_bytes: int | None = None
    """The size of what a site has not acked; None: any."""
    history: float = HISTORY_LEFT / 1000
    """For how long the source keeps what is not sent yet, at least; of a table that keeps less than
    twice that, half of what it keeps. Where a sender of an earlier version does not say what the
    table keeps: for how long nothing was captured, at most."""
    paused: float = 86_400.0
    """How long a stream is paused."""
    dead_letters: float = 0.0
    """Dead letters per minute since the last check, of a sender or a site. Only with a memory, or
    in a watch."""


@dataclass(frozen=True)
class Problem:
    """Something that is wrong, and what to do."""

    level: Level
    kind: str
    """``channel``, ``held``, ``failed``, ``retrying``, ``no answer``, ``stopped``, ``unknown``,
    ``behind``, ``queue``, ``history``, ``paused``, ``dead letters``, ``acks``, ``dropped`` or
    ``site``."""
    text: str
    channel: str
    stream: str = ""
    site: str = ""
    """The site that has to act; empty: none in particular."""


def check(
    topology: Topology,
    site: str | None = None,
    limits: Limits | None = None,
    memory: Path | None = None,
) -> list[Problem]:
    """Return what is wrong, the worst first; empty: nothing is. Changes nothing but ``memory``.

    Args:
        topology: Who sends what to whom.
        site: Only the streams of this site.
        limits: What is still right; default: :class:`Limits`.
        memory: A file that keeps the counters of the last check, for what is counted per minute.

    Raises:
        TopologyError: the site is unknown.
        WanError: the memory cannot be read or written.
    """
    checker = Checker(topology, site, limits)
    checker.counters = None if memory is None else Counters.read(memory)
    found = checker.check()
    if memory is not None and checker.counters is not None:
        checker.counters.write(memory)
    return found


class Checker:
    """Checks the streams of a topology, again and again. Changes nothing. Raises TopologyError for
    an unknown site."""

    def __init__(
        self, topology: Topology, site: str | None = None, limits: Limits | None = None
    ) -> None:
        self.reader = StatusReader(topology, site)
        self.limits = limits or Limits()
        self.counters: Counters | None = None
        """As the last check has seen them; None: there was none."""

    def check(self) -> list[Problem]:
        """Return what is wrong, the worst first."""
        now, channels, before = milliseconds(), self.reader.read(), self.counters
        counters = Counters.of(channels, now)
        found = [*_not_there(channels), *problems(channels, self.limits, now)]
        if before is not None:
            found += _dead_letters(before, counters, self.limits)
            # What could not be read this time is compared with the next.
            counters = Counters(now, {**before.without(counters).letters, **counters.letters})
        self.counters = counters
        return sorted(found, key=lambda each: [*_ORDER].index(each.level))


def _not_there(channels: Sequence[ChannelReport]) -> Iterator[Problem]:
    """Yield the channels that do not exist, as far as can be told here: that looks as if nothing
    was sent yet."""
    for each in channels:
        if each.streams and not exists(each.url):
            text = (
                f"{each.url} is not there: its file system is not mounted here, the topology has "
                "another path, or nothing was sent through it yet."
            )
            yield Problem(Level.UNKNOWN, "channel", text, each.url)


def problems(channels: Sequence[ChannelReport], limits: Limits, now: int) -> Iterator[Problem]:
    """Yield what a status shows to be wrong. ``now``: milliseconds since 1970 UTC."""
    for channel in channels:
        if channel.problem is not None:
            yield Problem(Level.UNKNOWN, "channel", channel.problem, channel.url)
        for stream in channel.streams:
            of_stream = _Check(channel.url, stream, limits, now)
            yield from of_stream.at_sender()
            for site in stream.sites:
                if site.served:
                    yield from of_stream.at_site(site)


_ORDER = {Level.CRITICAL: 2, Level.UNKNOWN: 3, Level.WARNING: 1}
"""The worst first, with the exit codes of probes."""


def exit_code(found: Sequence[Problem]) -> int:
    """Return the exit code of a probe: 2 critical, 3 unknown, 1 warning, 0 nothing is wrong."""
    levels = {each.level for each in found}
    return next((code for level, code in _ORDER.items() if level in levels), 0)


@dataclass(frozen=True)
class _Check:
    """One stream."""

    channel: str
    stream: StreamReport
    limits: Limits
    now: int

    def _problem(self, level: Level, kind: str, text: str, site: str) -> Problem:
        return Problem(level, kind, text, self.channel, self.stream.stream, site)

    def at_sender(self) -> Iterator[Problem]:
        """Yield what is wrong with the stream itself, or at the site that sends it."""
        stream, sender = self.stream, self.stream.sender
        at = stream.from_site or "its sender"
        if stream.problem is not None:
            yield self._problem(Level.UNKNOWN, "channel", stream.problem, "")
            return
        if stream.sender_problem is not None:
            yield self._problem(Level.WARNING, "channel", stream.sender_problem, at)
        if sender is None and not stream.epoch and stream.from_site == stream.origin != "":
            text = (
                f"nothing was sent, and no job of {at} has said anything of it. Start its sender, "
                "or the query that writes it."
            )
            yield self._problem(Level.WARNING, "stopped", text, at)
        has_ended = stream.ending is not None and stream.ending.version is not None
        job = "sender" if stream.from_site in ("", stream.origin) else "receiver"
        if sender is not None and sender.held is not None and sender.held_as is not None:
            since = self._for(sender.held_since_ms)
            yield self._held(sender.held_as, since, sender.held, at)
        if sender is not None and sender.stopped_ms is not None and not has_ended:
            since = self._for(sender.stopped_ms)
            text = f"the {job} of {at} has been stopped{since}. Start it again."
            yield self._problem(Level.CRITICAL, "stopped", text, at)
        elif sender is not None and sender.silent_since_ms is not None and not has_ended:
            since = self._for(sender.silent_since_ms)
            text = f"the {job} of {at} has said nothing{since}. Check that it runs."
            yield self._problem(Level.CRITICAL, "unknown", text, at)
        if sender is not None and sender.queue_full is not None and sender.held is None:
            since = self._for(sender.queue_full_since_ms)
            text = f"{at} adds nothing to it{since}: {sender.queue_full}"
            yield self._problem(Level.WARNING, "queue", text, at)
        if sender is not None and sender.alert is not None:
            yield self._problem(Level.WARNING, "acks", sender.alert, at)
        yield from self._paused(at)
        yield from self._history(at)

    def _held(self, held_as: str, since: str, cause: str, site: str) -> Problem:
        """Return that a site does not go on with the stream. What may pass is a warning, until it
        has lasted for ``retry_timeout``."""
        level = Level.WARNING if held_as == RETRYING else Level.CRITICAL
        text = f"{site} {describe_hold(held_as)}{since}: {cause}"
        return self._problem(level, held_as, text, site)

    def _paused(self, at: str) -> Iterator[Problem]:
        paused = self.stream.paused
        if paused is None or not self._is_over(paused.since_ms or None, self.limits.paused):
            return
        text = f"paused by {paused.by}{self._for(paused.since_ms)}. Run `spark-wan resume` at {at}."
        yield self._problem(Level.WARNING, "paused", text, at)

    def _history(self, at: str) -> Iterator[Problem]:
        """Yield that the source may lose the history of what is not sent."""
        stream, sender = self.stream, self.stream.sender
        if stream.from_site != stream.origin:
            return
        if sender is None or sender.retention_ms is None:
            yield from self._captured_nothing(at)
        elif sender.history_until_ms is not None:
            yield from self._history_ends(at, sender.history_until_ms, sender.retention_ms)

    def _history_ends(self, at: str, until: int, retention: int) -> Iterator[Problem]:
        """Yield that the history of what is not sent lasts until then, if that is soon."""
        left = until - self.now
        if left > 0 and left >= warn_below(retention, round(self.limits.history * 1000)):
            return
        stream, kept = self.stream, format_duration(retention)
        has_ended = stream.ending is not None and stream.ending.version is not None
        if left > 0:
            level = Level.WARNING
            text = (
                f"{at} keeps what is not sent of {stream.table} for {format_duration(left)} more, "
                f"of {kept}: then VACUUM and log cleanup may take it. {self._go_on}, or raise the "
                "table's retention."
            )
        else:
            # Of a stream that was ended, perhaps nothing more is wanted.
            level = Level.WARNING if has_ended else Level.CRITICAL
            text = (
                f"VACUUM and log cleanup at {at} may have taken what is not sent of "
                f"{stream.table}, which the table keeps for {kept}. {self._go_on}: what is still "
                "there is sent; if something is gone, sites get copies."
            )
        yield self._problem(level, "history", text, at)

    @property
    def _go_on(self) -> str:
        is_asked = self.stream.paused is not None or self.stream.ending is not None
        return "Run `spark-wan resume`" if is_asked else "Have its sender go on"

    def _captured_nothing(self, at: str) -> Iterator[Problem]:
        """Yield that nothing was captured for long, where what the table keeps is not known."""
        stream, sender = self.stream, self.stream.sender
        if stream.version is None:
            return
        moments: list[int | None] = []
        if stream.paused is not None and stream.paused.capture:
            moments.append(stream.paused.since_ms)
        if stream.ending is not None and stream.ending.version is not None:
            moments.append(stream.published_at_ms)
        if sender is not None:
            moments += [sender.stopped_ms, sender.held_since_ms, sender.silent_since_ms]
            moments.append(sender.queue_full_since_ms)
        since = min((each for each in moments if each), default=None)
        if not self._is_over(since, self.limits.history):
            return
        text = (
            f"nothing of {stream.table} has been captured{self._for(since)}: log cleanup and "
            f"VACUUM at {at} may take what is not sent yet (VACUUM keeps 7 days by default). "
            f"{self._go_on}, or raise the table's retention."
        )
        yield self._problem(Level.WARNING, "history", text, at)

    def at_site(self, site: SiteReport) -> Iterator[Problem]:
        """Yield what is wrong at a site that the stream is sent to."""
        name, limits, receiver = site.site, self.limits, site.receiver
        if site.cause is not None and site.held_as is not None:
            at = f" at epoch {site.held_at}" if site.held_at else ""
            since = self._for(site.held_since_ms or site.answered_at_ms)
            yield self._held(site.held_as, f"{at}{since}", site.cause, name)
        elif site.state == NO_ANSWER:
            text = (
                f"{name} owes an ack{self._for(site.overdue_since_ms)}. Check that its receiver "
                "runs, and reads and writes this channel."
            )
            yield self._problem(Level.CRITICAL, "no answer", text, name)
        elif site.state == FINISHED:
            pass  # its jobs may rest
        elif receiver is not None and receiver.stopped_ms is not None:
            text = f"the receiver of {name} has been stopped{self._for(receiver.stopped_ms)}."
            yield self._problem(Level.CRITICAL, "stopped", f"{text} Start it again.", name)
        elif receiver is not None and receiver.silent_since_ms is not None:
            since = self._for(receiver.silent_since_ms)
            text = f"the receiver of {name} has said nothing{since}. Check that it runs."
            yield self._problem(Level.CRITICAL, "unknown", text, name)
        elif receiver is None and site.connected is False:
            since = self._for(site.seen_ms)
            text = f"no receiver of {name} has said anything{since}. Check that it runs."
            yield self._problem(Level.CRITICAL, "unknown", text, name)
        if site.dropped is not None:
            yield self._problem(Level.CRITICAL, "dropped", describe_dropped(site), name)
        if site.lacks_before is not None and site.cause is None and site.state != NOT_SERVED:
            text = f"{name} was added to a running stream, and lacks what came before."
            yield self._problem(Level.WARNING, "site", f"{text} {NEW_SITE}", name)
        if self.stream.paused is None and self._is_behind(site):
            delay = self.stream.delay_ms
            beyond = f" beyond the delay of {format_duration(delay)}" if delay else ""
            text = (
                f"{name} is behind by {format_duration((site.behind_ms or 0) - delay)}{beyond}, "
                f"{site.backlog_events:,} events and {format_bytes(site.backlog_bytes)}. Compare "
                "that with the line, and the apply with the load of the cluster."
            )
            yield self._problem(Level.WARNING, "behind", text, name)
        if limits.queue_bytes is not None and site.backlog_bytes > limits.queue_bytes:
            text = (
                f"{format_bytes(site.backlog_bytes)} wait for {name}, more than "
                f"{format_bytes(limits.queue_bytes)}. Bring the site back, or take it out of the "
                "topology."
            )
            yield self._problem(Level.WARNING, "queue", text, name)

    def _is_behind(self, site: SiteReport) -> bool:
        if site.state in (HELD, FAILED, NO_ANSWER) or site.behind_ms is None:
            return False  # that is said already
        return site.behind_ms - self.stream.delay_ms > self.limits.behind * 1000

    def _is_over(self, since: int | None, seconds: float) -> bool:
        return since is not None and self.now - since > seconds * 1000

    def _for(self, since: int | None) -> str:
        return "" if not since else f" for {format_duration(self.now - since)}"


Place = tuple[str, str, str, int]
"""Channel, stream, and the site that has the dead letters, of a sender with the time of its start:
it counts from there. 0: of a receiver."""


@dataclass(frozen=True)
class Counters:
    """The dead letters that a check has seen, and when."""

    at: int
    letters: Mapping[Place, int]

    @classmethod
    def of(cls, channels: Sequence[ChannelReport], now: int) -> Counters:
        found: dict[Place, int] = {}
        for channel in channels:
            for stream in channel.streams:
                if stream.sender is not None:
                    place = channel.url, stream.stream, stream.from_site, stream.sender.began_ms
                    found[place] = stream.sender.dead_letters
                for site in stream.sites:
                    found[channel.url, stream.stream, site.site, 0] = site.dead_letters
        return cls(now, found)

    def without(self, newer: Counters) -> Counters:
        """Return these counters without those of senders that have begun anew since."""
        again = {place[:3] for place in newer.letters if place[3]}
        kept = {
            place: count
            for place, count in self.letters.items()
            if not (place[3] and place[:3] in again)
        }
        return Counters(self.at, kept)

    @classmethod
    def read(cls, file: Path) -> Counters | None:
        """Return what the last check has written; None: there was none."""
        try:
            content = json.loads(file.read_bytes())
            letters = {
                (str(channel), str(stream), str(site), int(began)): int(count)
                for channel, stream, site, began, count in content["letters"]
            }
            return cls(int(content["at"]), letters)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise WanError(
                f"check: the memory {file} cannot be read ({error}). Delete it, or name another "
                "one."
            ) from error

    def write(self, file: Path) -> None:
        letters = [[*place, count] for place, count in self.letters.items()]
        try:
            beside = file.with_name(f".{file.name}.new")
            beside.write_text(json.dumps({"at": self.at, "letters": letters}))
            beside.replace(file)
        except OSError as error:
            raise WanError(f"check: the memory {file} cannot be written ({error}).") from error


def _dead_letters(before: Counters, now: Counters, limits: Limits) -> Iterator[Problem]:
    """Yield where more rows became dead letters than may."""
    minutes = max((now.at - before.at) / 60_000, 1 / 60)
    begun = {place[:3] for place in before.letters if place[3]}
    for place, count in now.letters.items():
        # What is seen for the first time may be old; a sender that begins anew counts from 0.
        if place not in before.letters and not (place[3] and place[:3] in begun):
            continue
        new = count - before.letters.get(place, 0)
        if new <= 0 or new / minutes <= limits.dead_letters:
            continue
        channel, stream, site, began = place
        what = "rows could not be sent" if began else "events could not be applied"
        text = (
            f"{new:,} {what} at {site} in the last {format_duration(now.at - before.at)}. Rows and "
            f"causes: `spark-wan dead-letters list --site {site}`."
        )
        yield Problem(Level.WARNING, "dead letters", text, channel, stream, site)
