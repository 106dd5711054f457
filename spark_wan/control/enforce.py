"""Making the channels say what the control log of a site wants.

Both the command that asks and the jobs of the site do it, each by comparing what is wanted with
what is there: so it also happens where no job runs, to streams that are new, and after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from spark_wan.channels.base import Channel
from spark_wan.channels.registry import open_channel
from spark_wan.log.notes import last_pause, pauses, put_pause
from spark_wan.state.control import ControlLog
from spark_wan.topology.model import Sender, Table, Topology
from spark_wan.topology.routes import all_streams, served_by
from spark_wan.units import milliseconds
from spark_wan.wire.control import Control, Scope
from spark_wan.wire.head import Pause


@dataclass(frozen=True)
class Controlled:
    """A stream that a site sends, also one that it forwards, and one of copies."""

    stream: str
    sender: Sender
    table: Table
    captured: bool
    """Whether a sender of the site captures it."""
    is_copy: bool = False


ALL = Scope()
KEPT = 86_400_000
"""Milliseconds for which a pause that has ended is kept: until then, it says since when acks are
owed."""


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


def enforce(topology: Topology, site: str, log: ControlLog) -> Control:
    """Make the channels of a site's senders say which streams are paused, by the newest entry of
    its control log, and return that. One request for each channel, if all is as it should be.

    Raises ChannelError and LedgerError."""
    streams: dict[str, list[Controlled]] = {}
    for each in controlled(topology, site):
        streams.setdefault(each.sender.channel, []).append(each)
    while True:
        generation, control = log.read()
        for of_channel in streams.values():
            sender = of_channel[0].sender
            channel = open_channel(sender.channel, sender.storage)
            _enforce(channel, of_channel, generation, control)
        if log.read()[0] == generation:  # else another one may have acted by an older entry
            return control


def _enforce(
    channel: Channel, streams: Iterable[Controlled], generation: int, control: Control
) -> None:
    there = pauses(channel)
    for each in streams:
        rule = control.pause_of(each.sender.name, each.table.name)
        if rule is None and each.stream not in there:
            continue
        now = last_pause(channel, each.stream) if each.stream in there else None
        wanted = now if rule is None else Pause(rule.generation, rule.by, rule.at, rule.capture)
        if rule is None and now is not None:
            if now.until is not None:
                wanted = now if milliseconds() - now.until < KEPT else None
            elif now.generation <= generation:
                wanted = replace(now, until=milliseconds())
            # Else the control log was lost: what it wanted holds until somebody asks anew.
        if now != wanted:
            put_pause(channel, each.stream, wanted)
