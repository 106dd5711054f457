"""Operators end streams, and resume them, at any moment: drains, versions and times; and they lose
the control log."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from simulation.machine import SENDING, SMALL, Replication, chosen
from simulation.processes import Sending
from simulation.sources import SourceTable
from simulation.world import MINUTE, World
from spark_wan.sender.ending import LATE_COMMITS
from spark_wan.topology.model import Stream
from spark_wan.wire.control import AT_TIME, AT_VERSION, NEWEST, End, Ending, WantedEnd
from spark_wan.wire.manifest import Manifest

CAPTURED = chosen(lambda world: world.captured)
ROUNDS = 60


class EndWorld(World):
    """A world with a control log at each site."""

    def __init__(self, *of: Any) -> None:
        super().__init__(*of)
        self.asked: dict[str, WantedEnd] = {}
        """Stream -> what the control log says of it."""
        self.generation = 0
        """Of the log: the number of its newest entry."""
        self.highest: dict[str, int] = {}
        """Stream -> the highest number of a request about it that there ever was."""

    @property
    def captured(self) -> list[str]:
        """The streams that are captured, of which there is one in every world."""
        return [n for n in self.own_streams if isinstance(self.sources[n][0], SourceTable)]

    def newest(self, stream: str) -> Manifest | None:
        record = self.record(stream)
        return record.manifests[record.last] if record.last else None

    def ask_for_end(self, stream: str, end: End | None) -> None:
        """As :func:`spark_wan.control.verbs._ask` does."""
        last = self.newest(stream)
        above = max(self.generation, last.control if last is not None else 0)
        self.generation = self.highest[stream] = above + 1
        ending = Ending(None, None, end, self.generation, by="ann", at=self.now)
        self.asked[stream] = WantedEnd(self.generation, ending)

    def read_control(self, task: Sending) -> WantedEnd:
        name = task.stream.name
        known = self.asked.get(name, WantedEnd())
        known = task.process.control[name] = WantedEnd(self.generation, known.ending)
        return known

    def known_control(self, task: Sending) -> WantedEnd:
        if task.stream.name not in task.process.control:
            self.read_control(task)  # a job reads it before anything else
        return task.process.control[task.stream.name]

    def forget_control(self) -> None:
        """All jobs read the control log again."""
        for process in self.processes.values():
            process.control.clear()

    def appended(self, manifest: Manifest) -> None:
        super().appended(manifest)
        name = manifest.stream
        source = self.sources[name][0]
        if self.streams[name].inbound is not None or not isinstance(source, SourceTable):
            return
        before = self.record(name).manifests.get(manifest.epoch - 1)
        if before is not None and before.end:
            assert self.highest.get(name, 0) > before.control, f"{name} goes on behind its end"
        ending = self.asked.get(name, WantedEnd()).ending
        sent = before.last_version if before is not None else -1
        if ending is None or ending.end is None or manifest.last_version <= sent:
            return
        at = manifest.last_version
        if ending.end.kind == AT_TIME:
            at = source.versions[manifest.last_version].commit.time
        if ending.end.kind != NEWEST:
            assert at <= ending.end.point, f"{name}: version {manifest.last_version} passes its end"

    def check_applied(self, site: str, stream: str, epoch: int, what: str) -> None:
        """An end has nothing to apply, and so no mark."""
        super().check_applied(site, stream, self.marked(stream, epoch), what)

    def settle(self) -> None:
        """Before all faults end: streams end where they are asked to. Then they are resumed."""
        self.doom = None
        for channel in self.channels.values():
            channel.faulty.script = []
            channel.faulty.deliver()
        self.now += 2 * LATE_COMMITS + 10 * MINUTE
        self.forget_control()
        for task in self.of_kind(Sending):
            if task.stream.name in self.captured:
                self._publish_all(task)
        for name, asked in self.asked.items():
            self._check_ended(name, asked)
        for name in self.captured:
            self.ask_for_end(name, None)
        self.forget_control()
        super().settle()

    def _publish_all(self, task: Sending) -> None:
        for _ in range(ROUNDS):
            self.advance(task)
            if task.steps is None and task.error is None and task.result is None:
                return
        assert task.error is not None, f"{task.name} has no end"

    def _check_ended(self, name: str, asked: WantedEnd) -> None:
        ending, last = asked.ending, self.newest(name)
        if ending is None or ending.end is None or last is None:
            return
        if self._is_held_at_sender(self.streams[name]):
            return
        source = self.sources[name][0]
        assert isinstance(source, SourceTable)
        there, end = len(source.versions) - 1, ending.end
        if end.kind == AT_VERSION and there < end.point:
            assert not asked.has_ended(last), f"{name} has ended before version {end.point} came"
            return
        assert asked.has_ended(last), f"{name} has not ended, with version {last.last_version}"
        if end.kind == AT_VERSION:
            assert last.last_version == end.point, f"{name} has ended with {last.last_version}"
        elif end.kind == AT_TIME:
            following = source.versions[last.last_version + 1 :]
            assert all(each.commit.time > end.point for each in following), f"{name} ends early"


class Ended(Replication):
    """Somebody ends streams, and resumes them."""

    shapes = SMALL
    kinds = ("keyed", "keyless")
    worlds = EndWorld
    world: EndWorld

    @rule(of=CAPTURED, point=st.integers(0, 3), kind=st.sampled_from([NEWEST, AT_VERSION, AT_TIME]))
    def a_stream_is_to_end(self, of: str, point: int, kind: str) -> None:
        world, last = self.world, self.world.newest(of)
        if kind == AT_VERSION:
            point += last.last_version if last is not None else 0
        elif kind == AT_TIME:
            clock = world.sites[self._stream(of).sender.site].clock()
            point = clock + point * MINUTE // 2
        else:
            point = 0
        world.ask_for_end(of, End(kind, point))

    @rule(of=CAPTURED)
    def a_stream_is_resumed(self, of: str) -> None:
        self.world.ask_for_end(of, None)

    @rule()
    def the_control_log_is_lost(self) -> None:
        self.world.asked.clear()
        self.world.generation = 0

    @rule(who=SENDING)
    def a_job_reads_the_control_log(self, who: str) -> None:
        self.world.tasks[who].process.control.clear()

    def _stream(self, name: str) -> Stream:
        return self.world.streams[name]
