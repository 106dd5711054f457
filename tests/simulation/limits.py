"""The queues of streams have limits, and senders, sinks and forwarders wait at them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from simulation import invariants
from simulation.machine import LARGE, SMALL, Replication
from simulation.processes import Task
from simulation.world import World
from spark_wan.errors import QueueFullError
from spark_wan.topology.model import QueueLimits, Stream
from spark_wan.wire.manifest import Manifest

LIMITS = st.builds(
    QueueLimits,
    st.sampled_from([1, 1_500, 4_000, 1 << 30]),
    st.sampled_from([None, None, 90.0]),
)
"""Bytes: of one epoch, of few, of all. Seconds: more than a round of all takes."""


class LimitedWorld(World):
    """A world in which only so much of each stream may wait."""

    limits = QueueLimits(1_500)
    waits = 0
    """How often a queue was full, in all worlds."""

    def limits_of(self, stream: Stream) -> QueueLimits:
        return self.limits

    def advance(self, task: Task, most: int | None = None) -> bool:
        ended = super().advance(task, most)
        LimitedWorld.waits += isinstance(task.error, QueueFullError)
        return ended

    def appended(self, manifest: Manifest) -> None:
        record, size = self.record(manifest.stream), self.limits.bytes
        before = record.manifests.get(manifest.epoch - 1)
        dropped = before.dropped if before is not None else {}
        waiting = sum(
            each.bytes
            for each in record.manifests.values()
            if each.epoch < manifest.epoch
            and any(
                max(record.acked.get(site, 0), dropped.get(site, 0)) < each.epoch
                for site in each.addressees
            )
        )
        if manifest.frames and size is not None:
            invariants.has_room(manifest, waiting, size)
        super().appended(manifest)


class Limited(Replication):
    """Operators change the limits at any moment. No months pass: where a site is held for good, a
    queue is full for good."""

    shapes = SMALL | LARGE
    worlds = LimitedWorld
    world: LimitedWorld

    def made(self, *of: Any) -> World:
        self.rests, self.later = False, None
        return super().made(*of)

    @rule(limits=LIMITS)
    def the_limits_change(self, limits: QueueLimits) -> None:
        """All jobs are started anew."""
        self.world.limits = limits
        for process in self.world.processes.values():
            process.die()


class DroppingWorld(LimitedWorld):
    """A world in which streams go on without the sites that lag. Those are held from then on: here
    nobody has a copy for them."""

    drops = 0
    """How often a site was dropped, in all worlds."""
    behind = 0
    """How often a site was left out because one before it was, in all worlds."""

    def __init__(self, *args: Any, **others: Any) -> None:
        self.dropped: dict[tuple[str, str], int] = {}
        """Stream and site -> the epoch through which it was ever dropped."""
        super().__init__(*args, **others)

    def limits_of(self, stream: Stream) -> QueueLimits:
        is_table = stream.table.source == "table"
        return replace(self.limits, policy="drop_reader" if is_table else "block")

    def appended(self, manifest: Manifest) -> None:
        if self.skips(manifest):
            DroppingWorld.behind += 1
            self._lack(self.streams[manifest.stream], manifest.first_version - 1)
        before = self.record(manifest.stream).manifests.get(manifest.epoch - 1)
        for site, through in manifest.dropped.items():
            known = before.dropped.get(site, 0) if before is not None else 0
            if through > known:
                self.drop(manifest, site, through)
        super().appended(manifest)

    def drop(self, manifest: Manifest, site: str, through: int) -> None:
        """A stream goes on without a site, whose queue was full."""
        invariants.drops_what_is_there(manifest, site, through)
        self.note_drop(manifest, site, through)

    def note_drop(self, manifest: Manifest, site: str, through: int) -> None:
        """Note that a stream goes on without a site."""
        DroppingWorld.drops += 1
        stream, last = manifest.stream, self.record(manifest.stream).manifests[through].last_version
        self.dropped[stream, site] = max(through, self.dropped.get((stream, site), 0))
        self.lacks(manifest.table, site, "its stream goes on without it", last)

    def _lack(self, stream: Stream, through: int) -> None:
        """The sites of a stream, and all behind them, lack versions that did not come to the site
        that sends it on."""
        for site in stream.addressees:
            self.lacks(stream.table.name, site, "a site before it was dropped", through)
        for onward in self.streams.values():
            if onward.inbound is stream:
                self._lack(onward, through)

    def dropped_through(self, inbound: str, onward: Stream) -> int:
        return self.dropped.get((inbound, onward.sender.site), 0)

    def check_applied(self, site: str, stream: str, epoch: int, what: str) -> None:
        """An epoch that drops a site has nothing to apply, and so no mark."""
        super().check_applied(site, stream, self.marked(stream, epoch), what)

    def check_trim(self, manifest: Manifest, acked: Mapping[str, int], what: str) -> None:
        record = self.record(manifest.stream)
        dropped = record.manifests[record.last].dropped
        waited = [site for site in manifest.addressees if manifest.epoch > dropped.get(site, 0)]
        super().check_trim(replace(manifest, addressees=tuple(waited)), acked, what)


class Dropping(Limited):
    """Sites are dropped at any moment."""

    shapes = SMALL
    worlds = DroppingWorld
    kinds = ("keyed", "keyless")


class DroppingForwarded(Dropping):
    """Some of the sites send on what they receive, until they are dropped, or drop others."""

    shapes = LARGE
