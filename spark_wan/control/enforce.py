"""Making the channels say what the control log of a site wants.

Both the command that asks and the jobs of the site do it, each by comparing what is wanted with
what is there: so it also happens where no job runs, to streams that are new, and after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from spark_wan.channels.base import Channel
from spark_wan.channels.parallel import in_order
from spark_wan.channels.registry import open_channel
from spark_wan.errors import WanError
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
    is_copy: bool = False


def controlled(topology: Topology, site: str, scope: Scope = ALL) -> Iterator[Controlled]:
    """Yield the streams of a scope at a site."""
    for each in all_streams(topology):
        if each.sender.site == site and scope.covers(Scope(each.sender.name, each.table.name)):
            captured = each.inbound is None and each.table.source == "table"
            yield Controlled(each.name, each.sender, each.table, captured)
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
    unasked: dict[Scope, Rule] = field(default_factory=dict)
    """What is paused by the channels, and not by the log, which was lost: it stays so until
    somebody asks anew."""
    _known: dict[tuple[str, str], tuple[str, Pause | None]] = field(default_factory=dict)
    """Channel and stream -> the tag of its pause, and what that said."""

    def enforce(self) -> None:
        """Do it, by the newest entry of the control log. One request for each channel, and one for
        each pause that was replaced since.

        A channel that does not answer keeps no other from it. Raises LedgerError; and ChannelError
        at the end."""
        while True:
            generation, control = self.log.read()
            refused: WanError | None = None
            unasked: dict[Scope, Rule] = {}
            for url, (sender, wanted) in self._wanted(control).items():
                try:
                    channel = open_channel(url, sender.storage)
                    unasked |= self._enforce(channel, wanted, generation, control)
                except WanError as error:
                    refused = error
            if self.log.read()[0] != generation:
                continue  # another one may have acted by an older entry
            self.unasked = unasked
            if refused is not None:
                raise refused
            return

    def _wanted(self, control: Control) -> dict[str, tuple[Sender, dict[str, Rule | None]]]:
        """Return what is wanted of each stream of the topology, by channel."""
        found: dict[str, tuple[Sender, dict[str, Rule | None]]] = {}
        for each in controlled(self.topology, self.site):
            _, rules = found.setdefault(each.sender.channel, (each.sender, {}))
            rules[each.stream] = control.pause_of(each.sender.name, each.table.name)
        return found

    def _enforce(
        self,
        channel: Channel,
        wanted: dict[str, Rule | None],
        generation: int,
        control: Control,
    ) -> dict[Scope, Rule]:
        """Do it for a channel. Returns what is paused there that the log says nothing of."""
        there, unasked = pauses(channel), dict[Scope, Rule]()
        gone = self._gone(there.keys() - wanted.keys(), control)
        for stream, rule in {**wanted, **gone}.items():
            if rule is None and stream not in there:
                continue
            now = self._read(channel, stream, there[stream].tag) if stream in there else None
            new = _following(now, rule, generation)
            if new == now:
                if rule is None and now is not None and now.until is None:
                    unasked |= self._scope_of(stream, now)
                continue
            if (new is None or new.until is not None) and self.log.read()[0] != generation:
                break  # somebody has asked for something else meanwhile
            put_pause(channel, stream, new)
        return unasked

    def _scope_of(self, stream: str, now: Pause) -> dict[Scope, Rule]:
        scopes = (
            Scope(each.sender.name, each.table.name)
            for each in controlled(self.topology, self.site)
            if each.stream == stream and not each.is_copy
        )
        return {scope: _rule(scope, now) for scope in scopes}

    def _gone(self, streams: Iterable[str], control: Control) -> dict[str, Rule | None]:
        """Return what pauses those streams of this site that are no longer in the topology. Their
        tables are the last parts of their names."""
        others = {each.name for each in all_streams(self.topology)}
        found: dict[str, Rule | None] = {}
        for stream in streams:
            copied = copied_stream(stream)
            name = copied[0] if copied is not None else stream
            for sender in self.topology.senders_at(self.site):
                own = f"{self.site}.{sender.name}"
                if name not in others and name.startswith((f"{own}.", f"{own}~")):
                    found[stream] = control.pause_of(sender.name, name.rpartition(".")[2])
        return found

    def _read(self, channel: Channel, stream: str, tag: str) -> Pause | None:
        place = channel.url, stream
        if place not in self._known or self._known[place][0] != tag:
            self._known[place] = tag, last_pause(channel, stream)
        return self._known[place][1]


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


def _rule(scope: Scope, pause: Pause) -> Rule:
    return Rule(
        scope.sender,
        scope.table,
        paused=True,
        capture=pause.capture,
        generation=pause.generation,
        by=pause.by,
        at=pause.since,
    )


def rebuilt(topology: Topology, site: str) -> tuple[int, tuple[Rule, ...]]:
    """Return the highest generation that the channels of a site know of, and what they say is
    paused, for a control log that was lost. A channel that does not answer knows of nothing."""
    newest, rules = 0, list[Rule]()
    streams = [*controlled(topology, site)]
    by_channel: dict[str, tuple[Sender, dict[str, Controlled]]] = {}
    for each in streams:
        _, of_channel = by_channel.setdefault(each.sender.channel, (each.sender, {}))
        of_channel[each.stream] = each
    for url, (sender, names) in by_channel.items():
        try:
            channel = open_channel(url, sender.storage)
            there = sorted(pauses(channel).keys() & names.keys())
            found = zip(there, in_order(partial(last_pause, channel), there), strict=True)
        except WanError:
            continue  # to enforce what is asked for will say so
        for name, known in found:
            newest = max(newest, known.generation if known is not None else 0)
            if known is not None and known.until is None and not names[name].is_copy:
                each = names[name]
                rules.append(_rule(Scope(each.sender.name, each.table.name), known))
    return newest, tuple(rules)
