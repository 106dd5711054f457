"""The rules about copies: sites ask for them, need them, and join late."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from simulation.copies import CopyWorld, Serving, Taking
from simulation.family import topology
from simulation.machine import OWN_STREAMS, PAIRS, Replication, chosen
from simulation.processes import Receiving, Sending
from simulation.sources import SourceTable
from simulation.world import Conditions
from spark_wan.log.notes import put_ack
from spark_wan.topology.model import Stream, copy_name

SERVED = chosen(lambda world: world.served)
"""Streams and the sites that get copies of their tables."""
JOINS = "a site joins"
COPYING = st.sampled_from(
    ["one remote site", JOINS] * 3
    + ["two remote sites", "both ways", "two tables", "two senders", "chain", "ring"]
)


class Copied(Replication):
    """Sites ask for copies of the tables that they get from their writer."""

    shapes = COPYING
    kinds = ("keyed", "keyless")
    world: CopyWorld

    def made(
        self, shape: str | int, kinds: tuple[str, str], snapshot: bool, conditions: Conditions
    ) -> CopyWorld:
        late = shape == JOINS
        first = topology("one remote site" if late else shape, kinds, snapshot)
        later = topology("two remote sites", kinds, snapshot) if late else None
        return CopyWorld(first, conditions, note, self.channels, later=later)

    def _metadata(self, stream: Stream, commit: str) -> str | None:
        """A site that joins needs what came from another one, too."""
        joins = self.world.joins and commit == "a receiver's"
        return super()._metadata(stream, "local-only" if joins else commit)

    @rule(of=SERVED)
    def a_site_asks_for_a_copy(self, of: tuple[str, str]) -> None:
        self.world.ask(*of)

    @rule(of=SERVED, steps=st.integers(0, 8))
    def a_copy_is_served_and_taken(self, of: tuple[str, str], steps: int) -> None:
        """Asked for, served whole, and taken up to a step."""
        stream, site = of
        self.world.ask(*of)
        self._advance(Serving, stream, site, None)
        if steps:
            self._advance(Taking, stream, site, steps)

    @rule(of=SERVED, pairs=PAIRS, parts=st.integers(1, 2))
    def a_server_dies_between_parts(
        self, of: tuple[str, str], pairs: list[tuple[int, int | None]], parts: int
    ) -> None:
        """The receiver looks, others write, and another process goes on with the copy."""
        stream, site = of
        self.world.ask(*of)
        self._advance(Serving, stream, site, 2 + 2 * parts)
        self._task(Serving, stream, site).process.die()
        self._advance(Taking, stream, site, None)
        self.world.change(self.world.streams[stream], pairs)
        self._advance(Serving, stream, site, None)
        self._advance(Taking, stream, site, None)

    @rule(of=SERVED, pairs=PAIRS, first=st.integers(1, 8))
    def a_copy_comes_too_late(
        self, of: tuple[str, str], pairs: list[tuple[int, int | None]], first: int
    ) -> None:
        """It is served, and then more is applied than it has, before and after it is looked at.
        After ``first`` steps of that, more comes."""
        stream, site = of
        self.world.ask(*of)
        self._advance(Serving, stream, site, None)
        for steps in (first, None):
            self.world.change(self.world.streams[stream], pairs)
            tasks = [*self.world.of_kind(Sending), *self.world.of_kind(Receiving)]
            for task in tasks:
                if task.stream.name == stream and task.process.name.endswith("1"):
                    self.world.advance(task)
            self._advance(Taking, stream, site, steps)

    def _advance(self, kind: type[Any], stream: str, site: str, steps: int | None) -> None:
        self.world.advance(self._task(kind, stream, site), steps)

    def _task(self, kind: type[Any], stream: str, site: str) -> Any:
        name = copy_name(stream, site)
        return next(task for task in self.world.of_kind(kind) if task.copies == name)

    @rule(of=SERVED, remade=st.booleans())
    def a_target_is_dropped(self, of: tuple[str, str], remade: bool) -> None:
        """``remade``: and somebody makes another one, with no rows, at its place."""
        table = self._target(of)
        if table.is_there:
            self.world.harm(*of, "it was dropped")
            columns = table.columns
            table.drop()
            if remade:
                table.columns = columns
                table.add("CREATE TABLE")

    @rule(of=SERVED, back=st.integers(1, 6), whole=st.booleans())
    def a_target_is_restored(self, of: tuple[str, str], back: int, whole: bool) -> None:
        """To an older version: by RESTORE, or the ``whole`` directory from a backup."""
        table = self._target(of)
        version = len(table.log.commits) - 1 - back
        if version < table.log.begins:
            return
        lost = any(marked > version for marked in table.marks)
        self.world.harm(*of, "it was restored", shaken=lost and not whole)
        if whole:
            table.rewind(version)
        else:
            table.restore(version)

    def _target(self, of: tuple[str, str]) -> Any:
        stream, site = of
        return self.world.sites[site].targets[self.world.streams[stream].table.name]

    @rule(of=SERVED)
    def a_ledger_is_lost(self, of: tuple[str, str]) -> None:
        self.world.lose_ledger(*of)

    @rule(of=SERVED)
    def a_lost_ledger_is_found(self, of: tuple[str, str]) -> None:
        self.world.find_ledger(*of)

    @rule(of=OWN_STREAMS)
    def a_source_is_vacuumed(self, of: str) -> None:
        source, _ = self.world.sources[of]
        assert isinstance(source, SourceTable)
        source.vacuum()

    @precondition(lambda self: self.world.later is not None)
    @rule()
    def a_site_joins(self) -> None:
        self.world.join()

    @rule(of=SERVED)
    def an_ack_of_copies_is_lost(self, of: tuple[str, str]) -> None:
        with suppress(FileNotFoundError):
            self._channel(of[0]).watched.lose_ack(copy_name(*of), of[1])

    @rule(of=SERVED, which=st.integers(0, 20))
    def an_old_ack_of_copies_comes_again(self, of: tuple[str, str], which: int) -> None:
        name = copy_name(*of)
        old = self.world.record(name).acks
        if old:
            site, data = old[which % len(old)]
            put_ack(self._channel(of[0]).watched.inner, name, site, data)
            self.world.ack_changed(name, site)
