"""The rules about copies: sites ask for them, need them, and join late."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from unittest import mock

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from simulation.channels import WatchedTopics
from simulation.copies import CopyWorld, Place
from simulation.family import topology
from simulation.machine import OWN_STREAMS, PAIRS, Replication, chosen
from simulation.processes import Receiving, Sending
from simulation.serving import ServesCopies, TakesCopies
from simulation.sources import SourceTable
from simulation.targets import DeltaTable
from simulation.world import Conditions
from spark_wan.log.notes import put_ack
from spark_wan.topology.model import Stream

SERVED = chosen(lambda world: list(world.served))
"""Streams of copies."""
PLACES = chosen(lambda world: world.places)
"""Tables and the sites that get copies of them."""
something_served = precondition(lambda self: self.world.served)
JOINS = {
    "a site joins": ("one remote site", "two remote sites"),
    "a site joins a chain": ("a part of chain", "chain"),
    "a site joins a star": ("a part of star", "star"),
    "a site joins a mesh": ("a part of mesh", "mesh"),
}
"""What the topology is before and after that."""


class AsksForCopies(Replication):
    """Sites ask for copies of the tables that they get."""

    worlds: type[CopyWorld] = CopyWorld
    world: CopyWorld

    def __init__(self) -> None:
        super().__init__()
        channel = mock.patch(
            "spark_wan.sync.request.open_channel", lambda url, _: self.world.channels[url].faulty
        )
        channel.start()
        self._patches.append(channel)

    @something_served
    @rule(of=SERVED)
    def a_site_asks_for_a_copy(self, of: str) -> None:
        self.world.ask(self.world.served[of])

    @something_served
    @rule(of=SERVED, steps=st.integers(0, 8))
    def a_copy_is_served_and_taken(self, of: str, steps: int) -> None:
        """Asked for, served whole, and taken up to a step."""
        self.world.ask(self.world.served[of])
        self._advance(ServesCopies, of, None)
        if steps:
            self._advance(TakesCopies, of, steps)

    def _advance(self, kind: type[Any], copies: str, steps: int | None) -> None:
        self.world.advance(self._task(kind, copies), steps)

    def _task(self, kind: type[Any], copies: str) -> Any:
        return next(task for task in self.world.of_kind(kind) if task.copies == copies)


class Copied(AsksForCopies):
    """Sites ask for copies of the tables that they get, mostly from their writer, and need them."""

    shapes = st.sampled_from(
        ["one remote site", "a site joins"] * 3
        + ["two remote sites", "both ways", "two tables", "two senders", "chain", "ring"]
    )
    kinds = ("keyed", "keyless")
    syncs: Any = st.just("manual")

    def made(
        self,
        shape: str | int,
        kinds: tuple[str, ...],
        snapshot: bool,
        conditions: Conditions,
        sync: str,
    ) -> CopyWorld:
        first, then = JOINS.get(str(shape), (shape, None))
        if then == "mesh":  # there, events of a user's query leave by one of two senders
            kinds = tuple(kind.removesuffix(" events") for kind in kinds)
        later = topology(then, kinds, snapshot, sync) if then is not None else None
        now = topology(first, kinds, snapshot, sync)
        return self.worlds(now, conditions, note, self.channels, later=later)

    def _metadata(self, stream: Stream, commit: str) -> str | None:
        """A site that joins needs what came from another one, too."""
        joins = self.world.joins and commit == "a receiver's"
        return super()._metadata(stream, "local-only" if joins else commit)

    @something_served
    @rule(of=SERVED, pairs=PAIRS, parts=st.integers(1, 2))
    def a_server_dies_between_parts(
        self, of: str, pairs: list[tuple[int, int | None]], parts: int
    ) -> None:
        """The receiver looks, others write, and another process goes on with the copy."""
        self.world.ask(self.world.served[of])
        self._advance(ServesCopies, of, 2 + 2 * parts)
        self._task(ServesCopies, of).process.die()
        self._advance(TakesCopies, of, None)
        self.world.change(self._source(of), pairs)
        self._advance(ServesCopies, of, None)
        self._advance(TakesCopies, of, None)

    @something_served
    @rule(of=SERVED, pairs=PAIRS, first=st.integers(1, 8))
    def a_copy_comes_too_late(
        self, of: str, pairs: list[tuple[int, int | None]], first: int
    ) -> None:
        """It is served, and then more is applied than it has, before and after it is looked at.
        After ``first`` steps of that, more comes."""
        self.world.ask(self.world.served[of])
        self._advance(ServesCopies, of, None)
        name = self.world.served[of].table.name
        for steps in (first, None):
            self.world.change(self._source(of), pairs)
            for task in [*self.world.of_kind(Sending), *self.world.of_kind(Receiving)]:
                if task.stream.table.name == name and task.process.name.endswith("1"):
                    self.world.advance(task)
            self._advance(TakesCopies, of, steps)

    def _source(self, copies: str) -> Stream:
        """Return a stream that begins where the table of copies is written."""
        world, name = self.world, self.world.served[copies].table.name
        return next(
            world.streams[each]
            for each in world.own_streams
            if world.streams[each].table.name == name
        )

    @something_served
    @rule(of=PLACES, remade=st.booleans())
    def a_target_is_dropped(self, of: Place, remade: bool) -> None:
        """``remade``: and somebody makes another one, with no rows, at its place."""
        table = self.world.target(of)
        if table.is_there and self.world.may_harm(of):
            self.world.harm(of, "it was dropped")
            columns = table.columns
            table.drop()
            if remade:
                table.columns = columns
                table.add("CREATE TABLE")

    @something_served
    @rule(of=PLACES, back=st.integers(1, 6), whole=st.booleans())
    def a_target_is_restored(self, of: Place, back: int, whole: bool) -> None:
        """To an older version: by RESTORE, or the ``whole`` directory from a backup."""
        table = self.world.target(of)
        version = len(table.log.commits) - 1 - back
        if version < table.log.begins or not self.world.may_harm(of):
            return
        lost = any(marked > version for marked in table.marks)
        self.world.harm(of, "it was restored", shaken=lost and not whole)
        if whole:
            table.rewind(version)
        else:
            table.restore(version)

    @something_served
    @rule(of=PLACES)
    def a_ledger_is_lost(self, of: Place) -> None:
        if self.world.may_harm(of):
            self.world.lose_ledger(of)

    @something_served
    @rule(of=PLACES)
    def a_lost_ledger_is_found(self, of: Place) -> None:
        if self.world.may_harm(of):
            self.world.find_ledger(of)

    @rule(of=OWN_STREAMS)
    def a_source_is_vacuumed(self, of: str) -> None:
        source, _ = self.world.sources[of]
        if isinstance(source, SourceTable):
            source.vacuum()

    @precondition(lambda self: self.world.later is not None)
    @rule()
    def a_site_joins(self) -> None:
        self.world.join()

    @something_served
    @rule(of=SERVED)
    def an_ack_of_copies_is_lost(self, of: str) -> None:
        by = self.world.served[of]
        with suppress(FileNotFoundError):
            self.world.channels[by.sender.channel].watched.lose_ack(of, by.site)

    @something_served
    @rule(of=SERVED, which=st.integers(0, 20))
    def an_old_ack_of_copies_comes_again(self, of: str, which: int) -> None:
        old = self.world.record(of).acks
        if old:
            site, data = old[which % len(old)]
            channel = self.world.channels[self.world.served[of].sender.channel]
            put_ack(channel.watched.inner, of, site, data)
            self.world.ack_changed(of, site)


class CopiedFromPeers(Copied):
    """Sites ask for copies of the tables that they get, by themselves or because somebody does so,
    and mostly from others that have one. Some write to them, too."""

    shapes = st.sampled_from(["chain", "star", "ring", "mesh"] * 2 + [*JOINS][1:])
    kinds = ("keyed", "keyless", "keyed events", "keyless events")
    syncs = st.sampled_from(["manual", "auto"])

    @something_served
    @rule(of=PLACES)
    def a_target_is_vacuumed(self, of: Place) -> None:
        self.world.target(of).vacuum()

    @something_served
    @rule(of=PLACES, key=st.integers(0, 3))
    def somebody_writes_to_a_target(self, of: Place, key: int) -> None:
        table: DeltaTable = self.world.target(of)
        if table.is_there and not self.world.harm_of(table):
            table.change(key, self.world.names(table))


class CopiedOnTopics(CopiedFromPeers):
    """The same, with topics for channels."""

    channels = WatchedTopics
