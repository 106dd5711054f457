"""The rules of the simulation: each is one sentence of a schedule."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any
from unittest import mock

from faulty_channel import Fault
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from simulation.channels import WatchedChannel, WatchedTopics
from simulation.delta_log import LOG_RETENTION
from simulation.family import ACK_TIMEOUT, FORWARDING, KINDS, topology
from simulation.processes import Collecting, Folding, Forwarding, Receiving, Sending, Task
from simulation.queries import UserQuery
from simulation.sources import SourceTable
from simulation.targets import DeltaTable
from simulation.world import MINUTE, Conditions, World, seeded_uuid4
from spark_wan.channels import parallel
from spark_wan.delta.commits import DAY
from spark_wan.log.notes import put_ack
from spark_wan.sender import publish
from spark_wan.topology.model import Stream
from spark_wan.wire.mark import LOCAL_ONLY

Choice = Callable[[World], Sequence[Any]]


def chosen(choice: Choice) -> Any:
    """Return a strategy for one of what the machine's world has."""
    return st.runner().flatmap(lambda machine: st.sampled_from(choice(machine.world)))


TASKS = chosen(lambda world: list(world.tasks))
SENDING = chosen(lambda world: [task.name for task in world.of_kind(Sending)])
APPENDING = chosen(
    lambda world: [task.name for kind in (Sending, Forwarding) for task in world.of_kind(kind)]
)
STREAMS = chosen(lambda world: list(world.streams))
OWN_STREAMS = chosen(lambda world: world.own_streams)
"""Streams that begin at their site."""
CHANNELS = chosen(lambda world: list(world.channels))
ADDRESSED = chosen(
    lambda world: [
        (name, site) for name, stream in world.streams.items() for site in stream.addressees
    ]
)
"""Streams and the sites that they are for."""
TARGETS = chosen(
    lambda world: [(site.name, table) for site in world.sites.values() for table in site.targets]
)
TABLES = chosen(lambda world: range(len(world.tables())))
TWINS = chosen(
    lambda world: [
        task.name for task in world.of_kind(Task) if not isinstance(task, Folding) and twin(task)
    ]
)

SMALL = st.sampled_from(
    ["one remote site", "two remote sites"] * 3 + ["both ways", "two tables", "two senders"]
)
"""Mostly the smallest: in those, a schedule of a given length says more of each process."""
LARGE = st.sampled_from(["chain", "two senders forward", "ring"] * 3 + [*FORWARDING]) | st.integers(
    0, 9_999
)
"""Sites send on what they receive. Half are random."""
HOUR = 60 * MINUTE
LASTING = st.sampled_from([0, 0, HOUR])
MAINTAINED = st.sampled_from([object, DeltaTable, SourceTable])
"""Classes of tables that are optimized: all, targets, sources."""
SKEWS = ((7 * MINUTE, -4 * MINUTE, 0), (2 * DAY, 0, -2 * DAY))
PAIRS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 2, None])), min_size=1, max_size=4
)
"""Keys with their new value; None deletes."""
FAULTS = [
    ("append", "fail"),
    ("append", "vanish"),
    ("append", "duplicate"),
    ("put_frame", "fail"),
    ("put_frame", "vanish"),
    ("put_frame", "duplicate"),
    ("get_frame", "fail"),
    ("stream_epochs", "fail"),
    ("manifest", "fail"),
    ("put_ack", "lose"),
    ("put_ack", "fail"),
    ("put_ack", "vanish"),
    ("put_ack", "delay"),
    ("put_ack", "duplicate"),
    ("put_ack", "truncate"),
    ("put_head", "lose"),
    ("put_head", "fail"),
    ("put_head", "vanish"),
    ("put_head", "delay"),
    ("head", "fail"),
    ("ack", "fail"),
    ("notes_acks", "fail"),
    ("trim_frames", "lose"),
    ("trim_frames", "fail"),
    ("trim_manifest", "fail"),
    ("trim", "fail"),
    ("trim", "vanish"),
    ("trim", "lose"),
    ("put_again", "lose"),
    ("again", "fail"),
    ("delete_again", "lose"),
]


class OneThread:
    """Executor that makes each call at once, in the thread of its caller. A process that dies in
    one makes no other."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def submit(self, call: Callable[..., Any], *args: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(call(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def shutdown(self, **_: object) -> None:
        pass


def twin(task: Task) -> Task | None:
    """Return the task of another process that does the same."""
    same = (
        other
        for other in task.world.tasks.values()
        if type(other) is type(task) and (other.site, other.about) == (task.site, task.about)
    )
    return next((other for other in same if other is not task), None)


class Replication(RuleBasedStateMachine):
    """The sites of a topology send tables and user streams to each other."""

    shapes = SMALL
    kinds: Sequence[str] = KINDS
    syncs: Any = st.just("manual")
    """Strategy for when sites ask for copies."""
    channels: type[WatchedChannel] = WatchedChannel
    worlds: type[World] = World
    world: World

    def __init__(self) -> None:
        super().__init__()
        self._raised_before = sys.exc_info()[1]
        self._patches = [
            mock.patch("uuid.uuid4", seeded_uuid4()),
            mock.patch.object(publish, "QUIET_COMMITS", 3),
            mock.patch.object(parallel, "ThreadPoolExecutor", OneThread),
        ]
        for patch in self._patches:
            patch.start()

    @initialize(
        shape=st.runner().flatmap(lambda machine: machine.shapes),
        kinds=st.runner().flatmap(lambda machine: st.tuples(*[st.sampled_from(machine.kinds)] * 2)),
        snapshot=st.booleans(),
        skews=st.sampled_from(SKEWS),
        early=st.booleans(),
        watched=st.booleans(),
        forgetful=st.booleans(),
        rests=st.sampled_from([False, False, True]),
        later=st.sampled_from(
            [None, None, None, "all look now and then", "a receiver dies in its apply"]
        ),
        sync=st.runner().flatmap(lambda machine: machine.syncs),
    )
    def a_world_is_made(
        self,
        shape: str | int,
        kinds: tuple[str, str],
        snapshot: bool,
        skews: tuple[int, ...],
        early: bool,
        watched: bool,
        forgetful: bool,
        rests: bool,
        later: str | None,
        sync: str,
    ) -> None:
        """``rests``: months may pass. A stream may be held after that, and then a schedule finds
        little more. ``later``: once all has come to rest, months pass, in which targets are
        optimized, and then rows change. ``sync``: the setting of all sites."""
        self.rests, self.later = rests, later
        conditions = Conditions(skews, early, watched, forgetful)
        self.world = self.made(shape, kinds, snapshot, conditions, sync)

    def made(
        self,
        shape: str | int,
        kinds: tuple[str, str],
        snapshot: bool,
        conditions: Conditions,
        sync: str,
    ) -> World:
        return self.worlds(topology(shape, kinds, snapshot, sync), conditions, note, self.channels)

    def advance(self, name: str, steps: int | None = None) -> bool:
        return self.world.advance(self.world.tasks[name], steps)

    # --- at the sources

    @rule(
        of=OWN_STREAMS,
        pairs=PAIRS,
        style=st.sampled_from(["merge", "overwrite", "keys change"]),
        commit=st.sampled_from(["plain", "plain", "plain", "local-only", "a receiver's"]),
        sent=st.booleans(),
    )
    def rows_change(
        self,
        of: str,
        pairs: list[tuple[int, int | None]],
        style: str,
        commit: str,
        sent: bool,
    ) -> None:
        """``sent``: the first sender goes to its round's end at once."""
        world, stream = self.world, self.world.streams[of]
        world.change(stream, pairs, style, self._metadata(stream, commit))
        if sent:
            tasks = (task for task in world.of_kind(Sending) if task.stream is stream)
            world.advance(next(tasks))

    def _metadata(self, stream: Stream, commit: str) -> str | None:
        """What a receiver has committed came from the only site that the table is sent to: other
        sites would need it, too."""
        if commit == "plain":
            return None
        table, site = stream.table, stream.sender.site
        sent_to = self.world.topology.sent_to(table.name, site)
        if commit == "local-only" or len(sent_to) > 1 or len(table.at) > 2:
            return LOCAL_ONLY
        return (
            f'{{"spark_wan":{{"site":"{site}","table":"{table.name}","version":1,'
            f'"origin":"{sent_to[0]}"}}}}'
        )

    @rule(of=OWN_STREAMS, what=st.sampled_from(["is optimized", "gets a column", "is emptied"]))
    def the_source(self, of: str, what: str) -> None:
        source, _ = self.world.sources[of]
        if not isinstance(source, SourceTable):
            return
        if what == "is optimized":
            source.optimize()
        elif what == "gets a column":
            source.add_column()
        elif source.keyed:
            source.empty()

    # --- processes

    @rule(who=TASKS, steps=st.integers(1, 8))
    def goes_on(self, who: str, steps: int) -> None:
        self.advance(who, steps)

    @rule(who=TASKS)
    def finishes_its_round(self, who: str) -> None:
        self.advance(who)

    @rule(who=TWINS, steps=st.integers(1, 7))
    def is_overtaken_by_its_twin(self, who: str, steps: int) -> None:
        """``who`` goes some steps, its twin through a whole round, and then ``who`` to its round's
        end."""
        task = self.world.tasks[who]
        other = twin(task)
        assert other is not None
        if not self.world.advance(task, steps):
            self.world.advance(other)
            if task.steps is not None:
                self.world.advance(task)

    @rule(who=SENDING, pairs=PAIRS, steps=st.integers(2, 5))
    def takes_an_hour(self, who: str, pairs: list[tuple[int, int | None]], steps: int) -> None:
        """Rows change, and ``who`` goes some steps; an hour later ack managers have some rounds, so
        that they sweep, and then ``who`` goes to its round's end."""
        task = self.world.tasks[who]
        self.world.change(task.stream, pairs)
        if not self.world.advance(task, steps):
            self.world.now += HOUR
            for other in self.world.of_kind(Collecting) * 3:
                self.world.advance(other)
            if task.steps is not None:
                self.world.advance(task)

    @rule()
    def all_go_on(self) -> None:
        for name in self.world.tasks:
            self.advance(name)

    @rule(who=TASKS)
    def is_killed(self, who: str) -> None:
        self.world.tasks[who].process.die()

    @rule(
        who=TASKS,
        moment=st.sampled_from(["before", "after"]),
        write=st.integers(1, 6),
    )
    def is_killed_inside_a_step(self, who: str, moment: str, write: int) -> None:
        """The process goes on, and dies right before or right after its n-th write from now."""
        self.world.doom = (write, moment)
        try:
            self.advance(who)
        finally:
            self.world.doom = None

    @rule(who=TASKS, write=st.integers(1, 6), rounds=st.sampled_from([1, 2, 6]), lasting=LASTING)
    def is_frozen_inside_a_step(self, who: str, write: int, rounds: int, lasting: int) -> None:
        """The process goes on, stands still right before its n-th write from now while all others
        go on, and then makes it."""
        self.world.doom, self.world.freezes = (write, "frozen"), rounds
        self.world.freeze_time = lasting
        try:
            self.advance(who)
        finally:
            self.world.doom = None

    @rule(
        who=APPENDING,
        rounds=st.sampled_from([1, 3, 6]),
        lasting=LASTING,
        then=st.sampled_from(["goes on", "is killed"]),
    )
    def is_frozen_inside_append(self, who: str, rounds: int, lasting: int, then: str) -> None:
        """The sender, or forwarder, has read the log and freezes right before it writes, while rows
        change and all others go on."""
        self.world.doom, self.world.freezes = (1, f"frozen inside append, {then}"), rounds
        self.world.freeze_time = lasting
        try:
            self.advance(who)
        finally:
            self.world.doom = None

    # --- what goes wrong around them

    @rule(where=CHANNELS, fault=st.sampled_from(FAULTS), call=st.integers(1, 2))
    def the_channel_will(self, where: str, fault: tuple[str, str], call: int) -> None:
        method, kind = fault
        channel = self.world.channels[where].faulty
        channel.script.append(Fault(method, channel.calls[method] + call, kind))  # type: ignore[arg-type]

    @rule(where=CHANNELS)
    def late_acks_arrive(self, where: str) -> None:
        self.world.channels[where].faulty.deliver()

    @rule(ack=ADDRESSED)
    def an_ack_is_lost(self, ack: tuple[str, str]) -> None:
        stream, site = ack
        with suppress(FileNotFoundError):
            self._channel(stream).watched.lose_ack(stream, site)

    @rule(of=STREAMS, which=st.integers(0, 20))
    def an_old_ack_comes_again(self, of: str, which: int) -> None:
        old = self.world.record(of).acks
        if old:
            site, data = old[which % len(old)]
            put_ack(self._channel(of).watched.inner, of, site, data)

    def _channel(self, stream: str) -> Any:
        return self.world.channels[self.world.streams[stream].sender.channel]

    @rule(of=STREAMS, back=st.sampled_from([1, 2, 2, 3, 5, 10]), grown=PAIRS)
    def the_senders_checkpoint_is_restored(
        self, of: str, back: int, grown: list[tuple[int, int | None]]
    ) -> None:
        """From a backup that so many later states have followed; a user's source has grown
        since."""
        world, stream = self.world, self.world.streams[of]
        source, _ = world.sources[of]
        if isinstance(source, UserQuery) and stream.inbound is None:
            source.grow(grown)
            world.restore_query(source, source.older[-1 - back % len(source.older)])
            return
        checkpoints = world.sites[stream.sender.site].checkpoints
        if older := checkpoints.older[of]:
            checkpoints.newest[of] = older[-1 - back % len(older)]

    @rule(of=STREAMS)
    def the_senders_checkpoint_is_lost(self, of: str) -> None:
        self.world.lose_checkpoint(self.world.streams[of])

    @rule(which=TARGETS)
    def the_target_is_optimized(self, which: tuple[str, str]) -> None:
        site, table = which
        self.world.sites[site].targets[table].optimize()

    @rule(milliseconds=st.sampled_from([1_000, ACK_TIMEOUT, HOUR]))
    def time_passes(self, milliseconds: int) -> None:
        self.world.now += milliseconds

    @rule()
    def two_days_later_orphans_are_swept(self) -> None:
        self.world.sweep()

    @precondition(lambda self: self.rests)
    @rule(looked=st.booleans(), maintained=MAINTAINED, restarted=st.booleans())
    def months_of_rest(self, looked: bool, maintained: type[object], restarted: bool) -> None:
        self.world.rest(looked, maintained, restarted)

    @precondition(lambda self: self.rests)
    @rule(which=TABLES)
    def a_log_is_cleaned(self, which: int) -> None:
        """A month later."""
        self.world.now += LOG_RETENTION + DAY
        self.world.clean(self.world.tables()[which])

    def all_comes_to_rest(self) -> None:
        note("    --- everything runs until nothing is left to do ---")
        self.world.settle()
        if self.later is None:
            return
        note(f"    --- and once more, months later: {self.later} ---")
        if self.later == "a receiver dies in its apply":
            self.rows_change_everywhere(2)
            for task in self.world.of_kind(Sending):
                self.world.advance(task)
            self.world.doom = (1, "after the table is written")
            self.world.advance(self.world.of_kind(Receiving)[0])
            self.world.doom = None
        looked = self.later == "all look now and then"
        self.world.rest(looked=looked, maintained=DeltaTable, restarted=True)
        self.rows_change_everywhere(1)
        self.world.settle()

    def rows_change_everywhere(self, value: int) -> None:
        for name in self.world.own_streams:
            self.world.change(self.world.streams[name], [(0, value)])

    def teardown(self) -> None:
        try:
            if sys.exc_info()[1] is self._raised_before:
                self.all_comes_to_rest()
        finally:
            for patch in self._patches:
                patch.stop()


class Forwarded(Replication):
    """Some of the sites send on what they receive."""

    shapes = LARGE


class OnTopics(Replication):
    """The channels are topics; some of the sites send on what they receive."""

    shapes = SMALL | LARGE
    channels = WatchedTopics
