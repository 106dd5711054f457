"""The rules of the simulation: each is one sentence of a schedule."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any
from unittest import mock

import obstore
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from world import ACK_TIMEOUT, CHANNEL, NAMES, STREAM, Fault, World, seeded_uuid4

from spark_wan.channels import parallel
from spark_wan.channels.object_store import open_store
from spark_wan.sender import publish
from spark_wan.wire.mark import LOCAL_ONLY

RECEIVED = '{"spark_wan":{"site":"newark","table":"orders","version":1,"origin":"seattle"}}'
METADATA = {"plain": None, "local-only": LOCAL_ONLY, "a receiver's": RECEIVED}
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
    ("ack_tags", "fail"),
    ("trim_frames", "lose"),
    ("trim_frames", "fail"),
    ("trim_manifest", "fail"),
    ("trim", "fail"),
    ("trim", "vanish"),
    ("trim", "lose"),
    ("announce", "lose"),
    ("announced", "fail"),
    ("withdraw", "lose"),
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


class Replication(RuleBasedStateMachine):
    """Newark sends a table, or a user stream, to seattle and perhaps to tacoma."""

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
        kind=st.sampled_from(["keyed", "keyless", "keyed events", "keyless events"]),
        ack_policy=st.sampled_from(["all", "none"]),
        snapshot=st.booleans(),
        sites=st.sampled_from([("seattle",), ("seattle", "tacoma")]),
        early=st.booleans(),
        watched=st.booleans(),
    )
    def newark_sends(
        self,
        kind: str,
        ack_policy: str,
        snapshot: bool,
        sites: tuple[str, ...],
        early: bool,
        watched: bool,
    ) -> None:
        """``early``: transactions of receiver 1 begin when epochs are read, not when they are
        written. ``watched``: ack managers have a look at the acks of the channel, and act when
        something is due."""
        self.world = World(kind, ack_policy, snapshot, sites, early, watched, note)

    # --- at the source

    @rule(
        pairs=PAIRS,
        style=st.sampled_from(["merge", "overwrite", "keys change"]),
        commit=st.sampled_from(["plain", "plain", "plain", "local-only", "a receiver's"]),
        sent=st.booleans(),
    )
    def rows_change(
        self, pairs: list[tuple[int, int | None]], style: str, commit: str, sent: bool
    ) -> None:
        """``sent``: sender 1 goes to its round's end at once."""
        world = self.world
        if world.user:
            world.grow(pairs)
        else:
            # What came from seattle would hold a stream that goes to tacoma too.
            metadata = METADATA[
                commit if world.sites == ("seattle",) or commit == "plain" else "local-only"
            ]
            world.source.change(pairs, style, metadata)
        if sent:
            world.advance("sender 1")

    @precondition(lambda self: not self.world.user)
    @rule(what=st.sampled_from(["is optimized", "gets a column", "is emptied"]))
    def the_source(self, what: str) -> None:
        source = self.world.source
        if what == "is optimized":
            source.optimize()
        elif what == "gets a column":
            source.add_column()
        elif source.keyed:
            source.empty()

    # --- processes

    @rule(who=st.sampled_from(NAMES), steps=st.integers(1, 8))
    def goes_on(self, who: str, steps: int) -> None:
        if who in self.world.processes:
            self.world.advance(who, steps)

    @rule(who=st.sampled_from(NAMES))
    def finishes_its_round(self, who: str) -> None:
        if who in self.world.processes:
            self.world.advance(who)

    @rule(
        who=st.sampled_from(["sender 1", "acks 1", "receiver 1", "receiver 2"]),
        steps=st.integers(1, 7),
    )
    def is_overtaken_by_its_twin(self, who: str, steps: int) -> None:
        """``who`` goes some steps, its twin through a whole round, and then ``who`` to its round's
        end."""
        twin = f"{who[:-1]}{3 - int(who[-1])}"
        if not self.world.advance(who, steps):
            self.world.advance(twin)
            if self.world.processes[who].steps is not None:
                self.world.advance(who)

    @rule()
    def all_go_on(self) -> None:
        for name in self.world.processes:
            self.world.advance(name)

    @rule(who=st.sampled_from(NAMES))
    def is_killed(self, who: str) -> None:
        if who in self.world.processes:
            self.world.kill(who)

    @rule(
        who=st.sampled_from(NAMES),
        moment=st.sampled_from(["before", "after"]),
        write=st.integers(1, 6),
    )
    def is_killed_inside_a_step(self, who: str, moment: str, write: int) -> None:
        """The process goes on, and dies right before or right after its n-th write from now."""
        world = self.world
        if who in world.processes:
            world.doom = (write, moment)
            try:
                world.advance(who)
            finally:
                world.doom = None

    @rule(who=st.sampled_from(NAMES), write=st.integers(1, 6), rounds=st.sampled_from([1, 2, 6]))
    def is_frozen_inside_a_step(self, who: str, write: int, rounds: int) -> None:
        """The process goes on, stands still right before its n-th write from now while all others
        go on, and then makes it."""
        world = self.world
        if who in world.processes:
            world.doom, world.freezes = (write, "frozen"), rounds
            try:
                world.advance(who)
            finally:
                world.doom = None

    @rule(
        who=st.sampled_from(["sender 1", "sender 2"]),
        rounds=st.sampled_from([1, 3, 6]),
        then=st.sampled_from(["goes on", "is killed"]),
    )
    def is_frozen_inside_append(self, who: str, rounds: int, then: str) -> None:
        """The sender has read the log and freezes right before it writes, while rows
        change and all others go on."""
        world = self.world
        world.doom, world.freezes = (1, f"frozen inside append, {then}"), rounds
        try:
            world.advance(who)
        finally:
            world.doom = None

    # --- what goes wrong around them

    @rule(fault=st.sampled_from(FAULTS), call=st.integers(1, 2))
    def the_channel_will(self, fault: tuple[str, str], call: int) -> None:
        method, kind = fault
        channel = self.world.channel
        channel.script.append(Fault(method, channel.calls[method] + call, kind))  # type: ignore[arg-type]

    @rule()
    def late_acks_arrive(self) -> None:
        self.world.channel.deliver()

    @rule(site=st.sampled_from(["seattle", "tacoma"]))
    def an_ack_is_lost(self, site: str) -> None:
        with suppress(FileNotFoundError):
            obstore.delete(open_store(CHANNEL), f"acks/{STREAM}/{site}.json")

    @rule(which=st.integers(0, 20))
    def an_old_ack_comes_again(self, which: int) -> None:
        old = self.world.watched.old_acks
        if old:
            site, data = old[which % len(old)]
            self.world.watched.inner.put_ack(STREAM, site, data)

    @rule(back=st.sampled_from([1, 2, 2, 3, 5, 10]), grown=PAIRS)
    def the_senders_checkpoint_is_restored(
        self, back: int, grown: list[tuple[int, int | None]]
    ) -> None:
        """From a backup that so many later states have followed; a user's source has grown
        since."""
        world = self.world
        if world.user:
            world.grow(grown)
            world.restore_checkpoint(
                world.older_query_checkpoints[-1 - back % len(world.older_query_checkpoints)]
            )
        elif world.checkpoints.older:
            older = world.checkpoints.older
            world.checkpoints.newest = older[-1 - back % len(older)]

    @rule()
    def the_senders_checkpoint_is_lost(self) -> None:
        self.world.lose_checkpoint()

    @rule(site=st.sampled_from(["seattle", "tacoma"]))
    def the_target_is_optimized(self, site: str) -> None:
        table = self.world.tables.get(site)
        if table is not None and table.commits:
            table.commit("OPTIMIZE", self.world.now)

    @rule(milliseconds=st.sampled_from([1_000, ACK_TIMEOUT]))
    def time_passes(self, milliseconds: int) -> None:
        self.world.now += milliseconds

    @rule()
    def two_days_later_orphans_are_swept(self) -> None:
        self.world.sweep()

    def teardown(self) -> None:
        try:
            if sys.exc_info()[1] is self._raised_before:
                note("    --- everything runs until nothing is left to do ---")
                self.world.settle()
        finally:
            for patch in self._patches:
                patch.stop()
