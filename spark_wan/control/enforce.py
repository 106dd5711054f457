"""Making the channels say what the control log of a site wants.

Both the command that asks and the jobs of the site do it, each by comparing what is wanted with
what is there: so it also happens where no job runs, to streams that are new, and after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from spark_wan.channels.base import Channel
from spark_wan.channels.parallel import in_order
from spark_wan.channels.registry import open_channel
from spark_wan.errors import NoTopicsError, WanError
from spark_wan.log.notes import last_pause, pauses, put_pause
from spark_wan.state.control import ControlLog
from spark_wan.topology.model import Sender, Table, Topology, copied_stream
from spark_wan.topology.routes import all_streams, served_by
from spark_wan.units import milliseconds
from spark_wan.wire.control import Control, Rule, Scope
from spark_wan.wire.head import Pause

ALL = Scope()
KEPT = 86_400_000
"""Milliseconds for which a pause that has ended is kept: until then, it says since when acks are
owed."""


@dataclass(frozen=True)
class Controlled:
    """A stream that a site sends, also one that it forwards, and one of copies."""

    stream: str
    sender: Sender
    table: Table
    captured: bool
    """Whether a sender of the site captures it."""
    addressees: tuple[str, ...] = ()
    """Of a stream of copies, none."""
    is_copy: bool = False


def controlled(topology: Topology, site: str, scope: Scope = ALL) -> Iterator[Controlled]:
    """Yield the streams of a scope at a site."""
    for each in all_streams(topology):
        if each.sender.site == site and scope.covers(Scope(each.sender.name, each.table.name)):
            captured = each.inbound is None and each.table.source == "table"
            yield Controlled(each.name, each.sender, each.table, captured, each.addressees)
    for sender in topology.senders_at(site):
        for table in topology.tables.values():
            if scope.covers(Scope(sender.name, table.name)):
                for by in served_by(topology, table, sender):
                    yield Controlled(by.stream, sender, table, captured=False, is_copy=True)


@dataclass
class Enforcer:
    """Makes the channels of a site's senders say which streams are paused."""

    topology: Topology
    site: str
    log: ControlLog
    control: Control | None = None
    """What is wanted, by the entry that was read last; None: none was."""
    generation: int = 0
    """The number of that entry."""
    unasked: dict[Scope, Rule] = field(default_factory=dict)
    """What is paused by the channels, and not by the log, which was lost: it stays so until
    somebody asks anew."""
    _known: dict[tuple[str, str], tuple[str, Pause | None]] = field(default_factory=dict)
    """Channel and stream -> the tag of its pause, and what that said."""
    _wrote: bool = False
    """In this pass."""

    @cached_property
    def _channels(self) -> Mapping[str, tuple[Sender, Mapping[str, Controlled]]]:
        """By channel: a sender that has its options, and the streams in it by name."""
        found: dict[str, tuple[Sender, dict[str, Controlled]]] = {}
        for each in controlled(self.topology, self.site):
            _, streams = found.setdefault(each.sender.channel, (each.sender, {}))
            streams[each.stream] = each
        return found

    @cached_property
    def _names(self) -> frozenset[str]:
        """The streams of all sites, without those of copies."""
        return frozenset(each.name for each in all_streams(self.topology))

    def read(self) -> tuple[int, Control]:
        """Read what is wanted, and its generation. Raises ChannelError, LedgerError."""
        generation, control = self.log.read()
        self.generation, self.control = generation, control
        return generation, control

    def enforce(self) -> int:
        """Do it, by the newest entry of the control log, and return its number. One request for
        that and one for each channel, and one for each pause that was replaced since.

        A channel that does not answer keeps no other from it. Topics that no job has made yet are
        an error only if a stream on them is to be paused. Raises LedgerError; and ChannelError at
        the end."""
        while True:
            generation, control = self.read()
            self._wrote = False
            refused: WanError | None = None
            unasked: dict[Scope, Rule] = {}
            for url, (sender, streams) in self._channels.items():
                try:
                    channel = open_channel(url, sender.storage)
                    unasked |= self._enforce(channel, streams, generation, control)
                except WanError as error:
                    if not isinstance(error, NoTopicsError) or _wants_a_pause(streams, control):
                        refused = error
            if self._wrote and self.read()[0] != generation:
                continue  # this pass may have acted by an older entry than another one
            self.unasked = unasked
            if refused is not None:
                raise refused
            return generation

    def rebuilt(self) -> tuple[int, tuple[Rule, ...]]:
        """Return the highest generation that the channels know of, and what they say is paused, for
        a control log that was lost. A channel that does not answer knows of nothing."""
        newest, rules = 0, list[Rule]()
        for url, (sender, streams) in self._channels.items():
            try:
                channel = open_channel(url, sender.storage)
                there = sorted(pauses(channel).keys() & streams.keys())
                found = [*in_order(partial(last_pause, channel), there)]
            except WanError:
                continue  # to enforce what is asked for will say so
            for name, known in zip(there, found, strict=True):
                if known is not None:
                    newest = max(newest, known.generation)
                    if known.until is None:
                        rules += _rules(streams[name], known)
        return newest, tuple(rules)

    def _enforce(
        self,
        channel: Channel,
        streams: Mapping[str, Controlled],
        generation: int,
        control: Control,
    ) -> dict[Scope, Rule]:
        """Do it for a channel. Returns what is paused there that the log says nothing of."""
        there, unasked = pauses(channel), dict[Scope, Rule]()
        wanted = {
            name: control.pause_of(each.sender.name, each.table.name)
            for name, each in streams.items()
        }
        wanted |= self._gone(there.keys() - wanted.keys(), control)
        for stream, rule in wanted.items():
            if rule is None and stream not in there:
                continue
            now = self._read(channel, stream, there[stream].tag) if stream in there else None
            new = _following(now, rule, generation)
            if new == now:
                if rule is None and now is not None and now.until is None and stream in streams:
                    unasked |= {each.scope: each for each in _rules(streams[stream], now)}
                continue
            self._wrote = True
            if (new is None or new.until is not None) and self.log.read()[0] != generation:
                break  # somebody has asked for something else meanwhile
            put_pause(channel, stream, new)
        return unasked

    def _gone(self, streams: Iterable[str], control: Control) -> dict[str, Rule | None]:
        """Return what pauses those streams of this site that are no longer in the topology. Their
        tables are the last parts of their names."""
        found: dict[str, Rule | None] = {}
        for stream in streams:
            copied = copied_stream(stream)
            name = copied[0] if copied is not None else stream
            for sender in self.topology.senders_at(self.site):
                own = f"{self.site}.{sender.name}"
                if name not in self._names and name.startswith((f"{own}.", f"{own}~")):
                    found[stream] = control.pause_of(sender.name, name.rpartition(".")[2])
        return found

    def _read(self, channel: Channel, stream: str, tag: str) -> Pause | None:
        place = channel.url, stream
        if place not in self._known or self._known[place][0] != tag:
            self._known[place] = tag, last_pause(channel, stream)
        return self._known[place][1]


def _wants_a_pause(streams: Mapping[str, Controlled], control: Control) -> bool:
    return any(control.pause_of(each.sender.name, each.table.name) for each in streams.values())


def _following(now: Pause | None, rule: Rule | None, generation: int) -> Pause | None:
    """Return what a channel is to say of a stream that it says ``now`` of."""
    if rule is not None:
        return Pause(rule.generation, rule.by, rule.at, rule.capture)
    if now is None:
        return None
    if now.until is not None:
        return now if milliseconds() - now.until < KEPT else None
    if not 0 < generation >= now.generation:
        return now  # the control log was lost: what it wanted holds until somebody asks anew
    return replace(now, until=milliseconds())


def _rules(each: Controlled, pause: Pause) -> list[Rule]:
    """Return the rule that a pause of a stream comes from; that of copies comes from the same."""
    if each.is_copy:
        return []
    return [
        Rule(
            each.sender.name,
            each.table.name,
            paused=True,
            capture=pause.capture,
            generation=pause.generation,
            by=pause.by,
            at=pause.since,
        )
    ]
