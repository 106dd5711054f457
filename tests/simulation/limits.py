"""The queues of streams have limits, and senders, sinks and forwarders wait at them."""

from __future__ import annotations

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
        waiting = sum(
            each.bytes
            for each in record.manifests.values()
            if each.epoch < manifest.epoch
            and any(record.acked.get(site, 0) < each.epoch for site in each.addressees)
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
