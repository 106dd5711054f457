"""Operators pause and resume streams, and have what waits dropped, at any moment: with the verbs of
the product, which die between any two of their writes as jobs do, and whose requests jobs keep up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar
from unittest import mock

from faulty_channel import Fault
from hypothesis import strategies as st
from hypothesis.stateful import rule

from simulation import invariants
from simulation.channels import SimulatedChannel
from simulation.copying import AsksForCopies
from simulation.dropped import DroppedWorld
from simulation.ending import EndWorld
from simulation.limits import Limited
from simulation.machine import chosen
from simulation.processes import Forwarding, Process, Sending, Task
from simulation.targets import DeltaTable
from simulation.world import MINUTE
from spark_wan.channels.base import Channel
from spark_wan.control import verbs
from spark_wan.control.enforce import controlled
from spark_wan.control.keeper import CHANNELS_INTERVAL, CONTROL_INTERVAL, ControlKeeper
from spark_wan.errors import ChannelError, OptionError, QueueFullError, WanError
from spark_wan.log.notes import pause
from spark_wan.topology.model import QueueLimits
from spark_wan.wire.control import CLEAN, PAUSE, Control, Scope, WantedEnd
from spark_wan.wire.manifest import Manifest
from spark_wan.wire.mark import Mark

NO_LIMIT = 1 << 30
"""Bytes."""
Verb = Callable[[], object]
ROUNDS = 60


class SimulatedState:
    """The control log of a site (see :class:`spark_wan.state.objects.StateObjects`)."""

    def __init__(self, world: OperatedWorld, site: str) -> None:
        self.world, self.site = world, site
        self.entries: dict[int, bytes] = {}

    def numbers(self, name: str) -> list[int]:
        return sorted(self.entries)

    def entry(self, name: str, number: int) -> tuple[str, bytes] | None:
        data = self.entries.get(number)
        return None if data is None else (f"{self.site}/{name}/{number}", data)

    def create(self, name: str, number: int, data: bytes) -> bool:
        def create() -> bool:
            if number in self.entries:
                return False
            self.entries[number] = data
            self.world.asked_for(self.site, number, Control.decode(data, self.site))
            return True

        return bool(self.world.effect("a request is recorded", create))

    def delete_entries(self, name: str, numbers: Sequence[int]) -> None:
        for number in numbers:
            self.entries.pop(number, None)


@dataclass(eq=False)
class Asking(Task):
    """Somebody who asks for something, with a command."""

    verb: Verb | None = None
    """What is asked for next."""
    shown: tuple[verbs.Waiting, ...] = ()
    """What was said to wait, when that was asked last."""

    def _round(self) -> Iterator[str]:
        verb, self.verb = self.verb, None
        if verb is not None:
            yield "asked"
            verb()
            yield "answered"

    def _may_fail(self, error: WanError) -> bool:
        return isinstance(error, OptionError) or super()._may_fail(error)


@dataclass(eq=False)
class Keeping(Task):
    """Has the channels say what the control log wants, in a job of the site that sends."""

    def _round(self) -> Iterator[str]:
        keeper = operated(self).keeper(self.process)
        yield "known"
        keeper.look(None)  # type: ignore[arg-type]
        yield "compared"


def operated(task: Task) -> OperatedWorld:
    assert isinstance(task.world, OperatedWorld)
    return task.world


class OperatedWorld(DroppedWorld, EndWorld):
    """A world with control logs, and people who use them."""

    limits = QueueLimits(NO_LIMIT)
    counts: ClassVar[dict[str, int]] = {}
    """How often something happened, in all worlds."""

    def __init__(self, *args: Any, **others: Any) -> None:
        self.states: dict[str, SimulatedState] = {}
        self.wanted: dict[str, bool | None] = {}
        """Stream -> whether it is to be paused, by the last request that covers it; None: nobody
        can tell."""
        self.paused: dict[str, int] = {}
        """Stream -> since when its channel says that it is, as :attr:`pauses_changed` counts."""
        self.shown: dict[tuple[str, str], set[int]] = {}
        """Stream and site -> the epochs through which somebody was asked whether to drop it."""
        self.cleans: dict[tuple[str, str], int] = {}
        """Those of them that a sender will find in the control log, the newest of each."""
        self.captures: dict[str, int] = {}
        """Stream -> since when its capture is to be paused, in true time."""
        self.kept: dict[str, int] = {}
        """Job -> when it has looked at the control log last."""
        self.began: dict[str, int] = {}
        """Task -> when its round did, in true time."""
        self.thaws = False
        """A process makes a write before which it was frozen."""
        super().__init__(*args, **others)

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def state(self, url: str) -> SimulatedState:
        return self.states.setdefault(url, SimulatedState(self, url.rpartition("/")[2]))

    @property
    def senders(self) -> list[str]:
        """The sites that send."""
        return list(dict.fromkeys(each.site for each in self.topology.senders.values()))

    def _processes(self) -> list[Process]:
        found = super()._processes()
        for process in found:
            if any(isinstance(task, (Sending, Forwarding)) for task in process.tasks):
                process.tasks.insert(0, Keeping(process, "control"))
        for site in self.senders:
            for number in (1, 2):
                people = Process(self, self.sites[site], f"{site}/people {number}")
                people.tasks = [Asking(people, "control")]
                found.append(people)
        return found

    def _freeze(self, what: str, changes: bool = False) -> None:
        super()._freeze(what, changes)
        self.thaws = True

    def effect(self, what: str, do: Callable[[], Any]) -> Any:
        try:
            return super().effect(what, do)
        finally:
            self.thaws = False

    # --- what jobs know of the control log

    def keeper(self, process: Process) -> ControlKeeper:
        """Return what keeps it in a job, made as :meth:`spark_wan.sender.job.Sender.start` does."""
        if process.keeper is None:
            site, clock = self.topology.site(process.site.name), process.site.clock
            keeper = ControlKeeper(self.topology, site, clock=lambda: clock() / 1000)
            keeper.enforce()
            process.keeper, self.kept[process.name] = keeper, self.now
        return process.keeper

    def read_control(self, task: Sending) -> WantedEnd:
        stream = task.stream
        return self.keeper(task.process).wanted(stream.sender.name, stream.table.name)

    def known_control(self, task: Sending) -> WantedEnd:
        stream = task.stream
        return self.keeper(task.process).wanted_before(stream.sender.name, stream.table.name)

    def is_capture_paused(self, task: Sending) -> bool:
        """A job looks at the control log every few seconds, if it has time for it."""
        keeper, stream = self.keeper(task.process), task.stream
        if self.now - self.kept.get(task.process.name, 0) >= CONTROL_INTERVAL * 1000:
            self.kept[task.process.name] = self.now
            keeper.look(None)  # type: ignore[arg-type]
        keeper.check_known()
        rule = keeper.pause_of(stream.sender.name, stream.table.name)
        return rule is not None and rule.capture

    def is_paused(self, process: Process, channel: SimulatedChannel, stream: str) -> bool:
        process.heads(channel)
        paused = process.is_paused(channel, stream)
        if paused:
            self.count("taken nothing of a paused stream")
        return paused

    def advance(self, task: Task, most: int | None = None) -> bool:
        if task.at_work().steps is None:
            self.began[task.at_work().name] = self.now
        return super().advance(task, most)

    # --- what is asked for, and what becomes of it

    def asked_for(self, site: str, number: int, control: Control) -> None:
        """A request was recorded."""
        self.count(control.verb)
        scope = Scope(control.sender, control.table)
        if control.verb == CLEAN:
            (clean,) = (each for each in control.cleans if each.generation == number)
            for stream, _, remote, epoch in clean.sites:
                place = stream, remote
                self.shown.setdefault(place, set()).add(epoch)
                self.cleans[place] = max(epoch, self.cleans.get(place, 0))
            return
        for each in controlled(self.topology, site, scope):
            self.wanted[each.stream] = control.verb == PAUSE
            rule = control.pause_of(each.sender.name, each.table.name)
            self.captures.pop(each.stream, None)
            if each.captured and control.verb != PAUSE:
                self.highest[each.stream] = number
                ending = control.end_of(each.sender.name, each.table.name)
                self.asked[each.stream] = WantedEnd(number, ending)
            if control.verb == PAUSE and rule is not None and rule.capture:
                self.captures[each.stream] = self.now

    def lose_control(self, site: str) -> None:
        """The control log of a site is lost. What the channels say stays so until somebody asks
        anew; what they do not say yet is lost, too."""
        self.state(f"/state/{site}").entries.clear()
        streams = [*controlled(self.topology, site)]
        noted = {
            (each.sender.name, each.table.name)
            for each in streams
            if each.stream in self.paused and not each.is_copy
        }
        for each in streams:
            self.wanted[each.stream] = each.stream in self.paused
            if each.is_copy and (each.sender.name, each.table.name) not in noted:
                # What pauses copies is known by the streams of events alone: a store that has lost
                # the note of those leaves it open.
                self.wanted[each.stream] = None
            self.captures.pop(each.stream, None)
            self.asked.pop(each.stream, None)
            for remote in each.addressees:
                self.cleans.pop((each.stream, remote), None)
        for process in self.processes.values():
            if process.site.name == site:
                process.die()

    def pause_changed(self, channel: Channel, stream: str) -> None:
        self.pauses_changed += 1
        if pause(channel, stream) is not None:
            self.paused.setdefault(stream, self.pauses_changed)
        elif self.paused.pop(stream, None) is not None and not self.thaws:
            invariants.is_resumed_by_somebody(stream, self.wanted.get(stream) is True)

    def check_target(self, table: DeltaTable, mark: Mark) -> None:
        task = self.running
        assert task is not None
        for part in mark.applied:
            invariants.takes_nothing(
                table.id, part.stream, self.paused.get(part.stream), task.looked
            )
        super().check_target(table, mark)

    def appended(self, manifest: Manifest) -> None:
        task = self.running
        if isinstance(task, Forwarding) and manifest.frames:
            since = self.paused.get(task.inbound.name)
            invariants.takes_nothing(task.name, task.inbound.name, since, task.looked)
        if isinstance(task, Sending) and manifest.copy is None:
            since = self.captures.get(manifest.stream)
            invariants.adds_nothing(manifest, since, self.began[task.name])
        late = self.asked.pop(manifest.stream, None) if self.thaws else None
        super().appended(manifest)
        if late is not None:  # it was asked for when the sender had looked
            self.asked[manifest.stream] = late

    def _check_ended(self, name: str, asked: WantedEnd) -> None:
        """A stream whose capture is paused, or whose queue is full, has not ended."""
        last, end = self.newest(name), asked.end
        passed = last is not None and end is not None and end.is_passed_by(last)
        senders = [task for task in self.of_kind(Sending) if task.stream.name == name]
        is_full = any(isinstance(task.error, QueueFullError) for task in senders)
        if not (passed or is_full or name in self.captures):
            super()._check_ended(name, asked)

    def drop(self, manifest: Manifest, site: str, through: int) -> None:
        if through in self.shown.get((manifest.stream, site), ()):
            self.count("dropped as somebody asked")
            self.note_drop(manifest, site, through)
            return
        assert self.running is not None
        invariants.drops_nobody_while_paused(
            manifest, site, self.paused.get(manifest.stream), self.running.looked
        )
        limits = self.limits_of(self.streams[manifest.stream])
        has_limits = limits.age is not None or (limits.bytes or 0) < NO_LIMIT
        invariants.drops_what_somebody_saw(manifest, site, through, has_limits)
        super().drop(manifest, site, through)

    # --- the end

    def settle(self) -> None:
        self.doom = None
        for channel in self.channels.values():
            channel.faulty.script = []
            channel.faulty.deliver()
        for task in self.of_kind(Asking):
            task.verb = None
            self.advance(task)
        self.now += int(CHANNELS_INTERVAL * 2000)
        for task in self.tasks.values():
            if isinstance(task, (Keeping, Sending)):
                self.finish(task)
        for site in self.senders:
            for each in controlled(self.topology, site):
                wanted = self.wanted.get(each.stream, False)
                if wanted is not None:
                    invariants.is_as_wanted(each.stream, wanted, each.stream in self.paused)
        self._check_cleans()
        for name, asked in self.asked.items():
            self._check_ended(name, asked)
        for task in self.of_kind(Asking):
            task.verb = lambda site=task.site.name: verbs.resume(self.topology, site)
            self.advance(task)
            assert task.error is None, str(task.error)
        self.now += MINUTE
        for task in self.of_kind(Keeping):
            self.finish(task)
        super().settle()

    def finish(self, task: Task) -> None:
        """Let a task go on until it has nothing more to do."""
        for _ in range(ROUNDS):
            self.advance(task)
            if task.steps is None and (task.error is not None or task.result is None):
                return
        raise AssertionError(f"{task.name} does not come to rest")

    def _check_cleans(self) -> None:
        """What somebody was asked about was acked, or dropped; if its sender could do that."""
        for (name, site), through in self.cleans.items():
            stream = self.streams[name]
            record, dropped = self.record(name), self.dropped.get((name, site), 0)
            acked = max(record.acked.get(site, 0), dropped)
            left = [n for n, each in record.manifests.items() if acked < n <= through]
            left = [n for n in left if record.manifests[n].frames]
            senders = [task for task in self.of_kind(Sending) if task.stream is stream]
            idle = all(task.is_held() or self.is_capture_paused(task) for task in senders)
            if not idle:
                invariants.is_dropped_as_said(name, site, left)


SITES = chosen(lambda world: world.senders)
PEOPLE = chosen(lambda world: [task.name for task in world.of_kind(Asking)])
SCOPES = st.tuples(st.booleans(), st.booleans())
"""Whether only one sender is meant, and whether only one table."""
PAUSE_FAULTS = [("put_pause", "fail"), ("put_pause", "vanish"), ("put_pause", "lose")]


class Operated(Limited, AsksForCopies):
    """Somebody pauses, resumes and cleans streams."""

    shapes = st.sampled_from(
        ["one remote site", "two remote sites", "two senders", "two tables"] * 2
        + ["both ways", "chain", "star"]
    )
    kinds = ("keyed", "keyless")
    syncs = st.sampled_from(["manual", "auto"])
    worlds = OperatedWorld
    world: OperatedWorld

    def __init__(self) -> None:
        super().__init__()
        opened = lambda url, _=None: self.world.channels[url].faulty  # noqa: E731
        now = lambda: self.world.now  # noqa: E731
        for place, by in {
            "spark_wan.state.control.StateObjects": lambda url, *_: self.world.state(url),
            "spark_wan.control.enforce.open_channel": opened,
            "spark_wan.control.ends.open_channel": opened,
            "spark_wan.status.reports.open_channel": opened,
            "spark_wan.control.enforce.milliseconds": now,
            "spark_wan.control.verbs.milliseconds": now,
            "spark_wan.control.verbs.who": lambda: "ann",
        }.items():
            patch = mock.patch(place, by)
            patch.start()
            self._patches.append(patch)

    def _ask(self, who: str, verb: Callable[..., object], now: bool, *args: Any, **of: Any) -> None:
        """``now``: else something else happens before."""
        task = self.world.tasks[who]
        if task.steps is not None:
            return  # busy
        task.verb = lambda: verb(self.world.topology, task.site.name, *args, **of)
        if now:
            self.world.advance(task)

    def _scope(self, who: str, scope: tuple[bool, bool], turn: int) -> dict[str, str | None]:
        """Return which streams somebody means."""
        site = self.world.tasks[who].site.name
        each = [each for each in controlled(self.world.topology, site) if not each.is_copy]
        one, (sender, table) = each[turn % len(each)], scope
        return {
            "sender": one.sender.name if sender else None,
            "table": one.table.name if table else None,
        }

    @rule(
        who=PEOPLE, scope=SCOPES, turn=st.integers(0, 3), capture=st.booleans(), now=st.booleans()
    )
    def somebody_pauses(
        self, who: str, scope: tuple[bool, bool], turn: int, capture: bool, now: bool
    ) -> None:
        self._ask(who, verbs.pause, now, **self._scope(who, scope, turn), capture=capture)

    @rule(who=PEOPLE, scope=SCOPES, turn=st.integers(0, 3), now=st.booleans())
    def somebody_resumes(self, who: str, scope: tuple[bool, bool], turn: int, now: bool) -> None:
        self._ask(who, verbs.resume, now, **self._scope(who, scope, turn))

    @rule(who=PEOPLE, scope=SCOPES, turn=st.integers(0, 3), remote=st.booleans(), now=st.booleans())
    def somebody_cleans(
        self, who: str, scope: tuple[bool, bool], turn: int, remote: bool, now: bool
    ) -> None:
        of = self._scope(who, scope, turn)
        self._ask(who, verbs.clean, now, **of, remote=self._remote(who, turn) if remote else None)

    def _remote(self, who: str, turn: int) -> str:
        site = self.world.tasks[who].site.name
        remotes = [to for each in self.world.topology.senders_at(site) for to in each.remotes]
        return remotes[turn % len(remotes)]

    @rule(who=PEOPLE, answers=st.booleans())
    def somebody_is_asked_whether_to_clean(self, who: str, answers: bool) -> None:
        """And ``answers`` with yes, some time later."""
        task = self.world.tasks[who]
        if not answers:
            with suppress(ChannelError, OptionError):
                task.shown = verbs.waiting(self.world.topology, task.site.name)
        elif task.shown:
            self._ask(who, verbs.clean, True, shown=task.shown)

    @rule(who=PEOPLE, scope=SCOPES, turn=st.integers(0, 3), now=st.booleans())
    def somebody_drains(self, who: str, scope: tuple[bool, bool], turn: int, now: bool) -> None:
        self._ask(who, verbs.drain, now, **self._scope(who, scope, turn), timeout=0)

    @rule(who=PEOPLE, turn=st.integers(0, 3), more=st.integers(0, 2), now=st.booleans())
    def somebody_stops(self, who: str, turn: int, more: int, now: bool) -> None:
        """With a version that is, or comes."""
        of, world = self._scope(who, (True, True), turn), self.world
        named = f"{world.tasks[who].site.name}.{of['sender']}.{of['table']}"
        last = world.newest(named) if named in world.captured else None
        at = more + (last.last_version if last is not None else 0)
        self._ask(who, verbs.stop_at, now, at, **of)

    @rule(site=SITES)
    def a_control_log_is_lost(self, site: str) -> None:
        self.world.lose_control(site)

    @rule(where=chosen(lambda world: list(world.channels)), fault=st.sampled_from(PAUSE_FAULTS))
    def the_channel_refuses_a_pause(self, where: str, fault: tuple[str, str]) -> None:
        channel = self.world.channels[where].faulty
        method, kind = fault
        channel.script.append(Fault(method, channel.calls[method] + 1, kind))  # type: ignore[arg-type]
