"""Copies in the simulation: who serves them to whom, what is done to tables and ledgers that need
them, and what must hold then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from simulation import invariants
from simulation.channels import StreamRecord
from simulation.processes import Process, Receiving, processes_of
from simulation.serving import PassesOver, Requests, ServesCopies, TakesCopies
from simulation.sources import SourceTable
from simulation.stores import Site, TableRows
from simulation.targets import FROM_NOTHING, DeltaTable, epochs_of
from simulation.world import MINUTE, World, first_of
from spark_wan.apply.applier import ApplyResult
from spark_wan.errors import ChannelError
from spark_wan.log.stream_log import StreamLog
from spark_wan.log.writer import ALL_ROWS
from spark_wan.sync.automatic import Synchronizer
from spark_wan.sync.request import CopyRequests, request_copy
from spark_wan.topology.model import Stream, Topology, copied_stream
from spark_wan.topology.routes import Serving, all_streams, serving
from spark_wan.wire.ack import Ack
from spark_wan.wire.manifest import Manifest
from spark_wan.wire.mark import Mark

HOUR = 60 * MINUTE

DOUBTS = ("are not the receiver's", "not known whether others wrote")
"""Why a site serves no copy though it is not held."""

Place = tuple[str, str]
"""A table and a site that gets it."""


@dataclass
class Harm:
    """What was done to a table at a site, or to what the site knows of it, since the last copy."""

    what: list[str]
    had: int = -1
    """The version of the source through which the site had everything before, in its ledger too; of
    a user's stream the epoch of its root."""
    committed: int = -1
    """The same for its table alone: an apply may be about to be ledgered and acked."""
    forgot: bool = False
    """The site does not know what it has acked."""


class CopyWorld(World):
    """A world in which sites ask for copies."""

    def __init__(self, topology: Topology, *args: Any, later: Topology | None = None) -> None:
        self.requests: dict[str, Requests] = defaultdict(Requests)
        """By the name of the copies' stream."""
        self.bases: dict[tuple[str, int], int | None] = {}
        """Stream of copies and epoch -> what the rows of the copy begin with
        (:class:`DeltaTable`)."""
        self.harms: dict[Place, Harm] = {}
        self.acked_at_copy: dict[Place, int] = {}
        """Through which version a site had acked when it took its newest copy."""
        self.gaps: dict[Place, int] = {}
        """Through which version of its source a site may lack something, without a copy."""
        self.lost_ledgers: dict[Place, TableRows] = {}
        """What lost ledgers had."""
        self.later, self.joins = later, later is not None
        """The topology once another site has joined."""
        self.served = _served(topology)
        super().__init__(topology, *args)

    def _processes(self) -> list[Process]:
        found = processes_of(self)
        for process in found:
            for by in self.served.values():
                self._add_tasks(process, by)
        return found

    def _add_tasks(self, process: Process, by: Serving) -> None:
        """Add what a process does about copies, if it is a sender or a receiver."""
        _, _, kind = process.name.partition("/")
        serves = "sender" if by.by_writer else "receiver"
        if kind.startswith(serves) and process.site.name == by.sender.site:
            stream = self.streams[copied_stream(by.stream)[0]] if by.by_writer else None  # type: ignore[index]
            stream = stream or self._inbound(by.table.name, by.sender.site)
            process.tasks.append(ServesCopies(process, f"serves {by.stream}", by=by, stream=stream))
        if kind.startswith("receiver") and process.site.name == by.site:
            stream = self._inbound(by.table.name, by.site)
            # A copy first: what comes after it may be in it.
            takes = TakesCopies(process, f"takes {by.stream}", by=by, stream=stream)
            process.tasks.insert(0, takes)
            process.tasks.append(PassesOver(process, f"passes over {by.stream}", by=by))

    def _inbound(self, table: str, site: str) -> Stream:
        """Return the stream by which a site gets a table."""
        return next(
            stream
            for stream in self.streams.values()
            if stream.table.name == table and site in stream.addressees
        )

    @property
    def places(self) -> list[Place]:
        """Those for which some site serves copies."""
        return list(dict.fromkeys((by.table.name, by.site) for by in self.served.values()))

    def target(self, place: Place) -> DeltaTable:
        table, site = place
        return self.sites[site].targets[table]

    def names(self, table: DeltaTable) -> Sequence[str]:
        """Return all columns that a target may ever have."""
        return self.sources[self._inbound(table.name, table.site).name][0].columns

    def synchronizer(self, process: Process, table: str) -> Synchronizer | None:
        topology, site = self.topology, process.site
        requests = CopyRequests(
            topology, topology.table(table), topology.site(site.name), clock=site.clock
        )
        return Synchronizer(requests)

    def record(self, stream: str) -> StreamRecord:
        if stream not in self.served:
            return super().record(stream)
        return self.channels[self.served[stream].sender.channel].watched.records[stream]

    # --- what happens

    def ask(self, by: Serving) -> None:
        """Somebody asks a site for a copy: see :func:`request_copy`."""
        with suppress(ChannelError):
            request_copy(self.topology, by.table.name, by.site, by=by.sender.site)

    def may_harm(self, place: Place) -> bool:
        """Whether the site can get what it is about to lose from another one. Of a captured table
        the writer has it; of a user stream's, the sites that do not lose it at the same time."""
        harmed = (other for other in self.harms if other[0] == place[0] and other != place)
        return self.target(place).root is None or not any(harmed)

    def harm(self, place: Place, what: str, *, shaken: bool = False, forgot: bool = False) -> None:
        """Note what is about to be done to a table at a site. ``shaken``: it will not have what its
        marks say. ``forgot``: the site will not know what it has acked."""
        name, site = place
        table = self.target(place)
        harm = self.harms.setdefault(place, Harm([]))
        through = table.through()
        if not harm.what:
            through = min(through, self.sites[site].ledger.tables[name].through(table.root))
        if not table.shaken:
            harm.had = max(harm.had, through)
            harm.committed = max(harm.committed, table.through())
        harm.what.append(what)
        harm.forgot = harm.forgot or forgot
        table.shaken = table.shaken or shaken

    def _end(self, stream: str, site: str, epoch: int) -> int:
        """Return through which version of the source a site has everything that has applied a
        stream through an epoch; of a user's stream, through which epoch of its root."""
        manifests = self.record(stream).manifests
        if self.streams[stream].table.source == "sink":
            through = manifests.get(epoch)
            root = through.written_at_origin if through is not None else None
            return root.epoch if root is not None else epoch
        mine = (each for each in manifests.values() if each.epoch <= epoch)
        return max((each.last_version for each in mine if site in each.addressees), default=-1)

    def lacks(self, table: str, site: str, why: str, through: int) -> None:
        if (table, site) not in self.places:
            super().lacks(table, site, why, through)
            return
        self.gaps[table, site] = max(through, self.gaps.get((table, site), -1))
        self.harm((table, site), why)

    def harm_of(self, table: DeltaTable) -> list[str]:
        harm = self.harms.get((table.name, table.site))
        return harm.what if harm is not None else super().harm_of(table)

    def lose_ledger(self, place: Place) -> None:
        """Lose what the site's ledger has of a table, unless nothing else tells of its applies, or
        that the table was restored."""
        name, site = place
        table, tables = self.target(place), self.sites[site].ledger.tables
        told = any(version >= table.log.begins for version in table.marks) or table.transactions
        if table.shaken or (table.is_there and not told):
            return
        for task in self.of_kind(Receiving):
            if task.site.name == site:
                task.process.die()  # the receivers have to be stopped for this
        self.harm(place, "its ledger is lost", forgot=True)
        rows = tables[name]
        self.lost_ledgers[place] = TableRows(
            [*rows.rows], [*rows.positions], [*rows.summaries], [*rows.ids]
        )
        rows.rows, rows.positions, rows.summaries = [], [], []

    def find_ledger(self, place: Place) -> None:
        """A backup of a lost ledger is found, and is added to what the site has now."""
        lost = self.lost_ledgers.pop(place, None)
        if lost is not None:
            name, site = place
            self.harm(place, "an old ledger is found", forgot=True)
            rows = self.sites[site].ledger.tables[name]
            rows.rows = [*lost.rows, *rows.rows]
            rows.positions = [*lost.positions, *rows.positions]
            rows.summaries = [*lost.summaries, *rows.summaries]

    def join(self) -> None:
        """Another site is added to the topology, and all jobs are started again with it."""
        if self.later is None:
            return
        self.topology, self.later = self.later, None
        self.served = _served(self.topology)
        for process in self.processes.values():
            process.die()
        joined = [name for name in self.topology.sites if name not in self.sites]
        for name in joined:
            self.sites[name] = Site(name, 0, lambda: self.now, self.effect)
        before = {*self.streams}
        self.streams = {stream.name: stream for stream in all_streams(self.topology)}
        self._add_channels()
        self._add_sources()
        for name, stream in self.streams.items():
            if stream.inbound is not None and name not in before:
                acked = self.record(stream.inbound.name).acked
                self.acked_before[name] = acked.get(stream.sender.site, 0)
        for stream in self.streams.values():
            for name in joined:
                if name in stream.addressees:
                    self._add_target(stream, name)
                    self.harm((stream.table.name, name), "it joined late")
        self.processes = {process.name: process for process in self._processes()}
        self.tasks = {task.name: task for each in self.processes.values() for task in each.tasks}

    def sweep(self) -> None:
        super().sweep()
        for task in self.of_kind(ServesCopies):
            self.advance(task)

    # --- what must hold

    def check_order(self, manifest: Manifest) -> None:
        if manifest.copy is None:
            super().check_order(manifest)

    def appended(self, manifest: Manifest) -> None:
        if manifest.copy is None:
            super().appended(manifest)
            return
        record, request = self.record(manifest.stream), manifest.copy.request
        before = record.manifests.get(manifest.epoch - 1)
        task = self.running
        assert isinstance(task, ServesCopies)
        if request:
            invariants.answers_once(manifest, None if before is None else before.copy)
            if manifest.copy.refused is None:
                self.bases[manifest.stream, manifest.epoch] = self._base(task, manifest)
            return
        assert before is not None and before.copy is not None
        seen = self.requests[manifest.stream].states[task.looking :]
        if all(each == before.copy.request for each in seen):  # else it was not wanted any more
            invariants.is_done(before, record.acked, f"copy {before.epoch} is removed")

    def _base(self, task: ServesCopies, manifest: Manifest) -> int | None:
        """Return what the rows of a copy begin with. A table that began with its stream has the
        rows of the stream's snapshot, or of all events from the first one on."""
        base = task.base(manifest)
        if base is not None or task.rows is None:
            return base
        return self.snapshots.get(first_of(task.stream).name, FROM_NOTHING)

    def check_ack(self, stream: str, ack: Ack) -> None:
        if stream not in self.served:
            super().check_ack(stream, ack)
            return
        task = self.running
        if not isinstance(task, TakesCopies) or task.copies != stream or ack.wanted is not None:
            return
        requests = self.requests[stream]
        wanted = requests.states[task.asked]
        newest = self.record(stream).manifests[self.record(stream).last].copy
        assert newest is not None
        moved = newest.refused is not None  # to another site; a store may lose that request
        if wanted and wanted == requests.states[-1] and not moved:
            invariants.is_taken(ack.site, wanted, requests.taken)

    def ack_changed(self, stream: str, site: str) -> None:
        if stream not in self.served:
            return
        requests, by = self.requests[stream], self.served[stream]
        ack = StreamLog(self.channels[by.sender.channel].watched.inner, stream).ack(site)
        request = ack.wanted.request if ack is not None and ack.wanted is not None else ""
        if request == requests.states[-1]:
            return
        requests.states.append(request)
        if request and isinstance(self.running, Receiving):
            table = self.target((by.table.name, site))
            invariants.has_no_rows_of_its_own(table.id, table.foreign)

    def check_trim(self, manifest: Manifest, acked: Mapping[str, int], what: str) -> None:
        if manifest.copy is None:  # copies are trimmed behind the one that follows
            super().check_trim(manifest, acked, what)

    def check_applied(self, site: str, stream: str, epoch: int, what: str) -> None:
        if not epoch:
            return
        name, acked = self.streams[stream].table.name, self.record(stream).acked.get(site, 0)
        table, ledger = self.sites[site].targets[name], self.sites[site].ledger.tables[name]
        harm, through = self.harms.get((name, site)), table.through()
        needed = self._end(stream, site, epoch)
        if harm is not None and needed <= max(
            harm.had, harm.committed, self._end(stream, site, acked)
        ):
            return
        if table.shaken:
            through = -1
        # The newest copy has what was acked before it; its mark may not be in the ledger yet.
        if harm is not None or needed <= self.acked_at_copy.get((name, site), -1):
            ledgered = through
        else:
            ledgered = ledger.through(table.root)
        invariants.is_durable_through(site, needed, through, ledgered, what)

    def check_target(self, table: DeltaTable, mark: Mark) -> None:
        (part,) = mark.applied
        if part.stream in self.served:
            self._check_copy(table, mark)
            return
        assert isinstance(self.running, Receiving)
        for copies, since in self.running.process.waits.items():
            states = self.requests[copies].states
            of_table = self.served[copies].table.name == table.name
            if of_table and since == len(states) - 1 and states[since]:
                invariants.waits_for_its_copy(table.id, part.stream, part.epoch)
        if table.shaken and not self.harm_of(table):
            self.harm(
                (table.name, table.site), "a write landed that was meant for another state of it"
            )
        if not (table.shaken or table.foreign):
            super().check_target(table, mark)

    def _check_copy(self, table: DeltaTable, mark: Mark) -> None:
        """A copy has taken the place of all rows of a table."""
        (part,) = mark.applied
        manifest, by = self.record(part.stream).manifests[part.epoch], self.served[part.stream]
        invariants.is_for(table.site, table.name, mark, manifest)
        task, requests = self.running, self.requests[part.stream]
        assert isinstance(task, TakesCopies) and manifest.copy is not None
        request = manifest.copy.request
        invariants.answers_a_request(table.id, request, requests.states[task.asked :])
        requests.taken.add(request)
        table.foreign = table.states[max(table.states)]["foreign"] = False
        source, _ = self.sources[self._inbound(table.name, table.site).name]
        if table.root is not None:
            through = max([-1, *epochs_of(mark.logs or (), table.root)])
            held = source.expected(max(through, 0))
        else:
            assert isinstance(source, SourceTable)
            origin = (source.site, source.id, ALL_ROWS)
            vector = {tuple(entry[:3]): entry[3] for entry in mark.vector or ()}
            through = vector.get(origin, -1)
            held = source.expected(through, table.base if through >= 0 else FROM_NOTHING)
        self._check_rows(table, by.stream, part.epoch, held)
        self._check_not_behind(table, through)

    def _check_rows(self, table: DeltaTable, stream: str, epoch: int, held: Any) -> None:
        actual: Any = table.bag
        if isinstance(held, dict) and not isinstance(held, type(table.bag)):
            names = self.names(table)
            actual = {
                key: tuple(row.get(name) for name in names) for key, row in table.rows.items()
            }
        invariants.holds_what_the_source_held(table.id, stream, epoch, actual, held)

    def _check_not_behind(self, table: DeltaTable, through: int) -> None:
        """Whatever the site has acked may be trimmed. A site whose ledger is lost does not know
        what it has acked, and is behind a gap then."""
        place = table.name, table.site
        harm, table.shaken = self.harms.pop(place, None), False
        table.states[max(table.states)]["shaken"] = False
        acked = harm.had if harm is not None else -1
        for stream in self.streams.values():
            if stream.table.name == table.name:
                epoch = self.record(stream.name).acked.get(table.site, 0)
                acked = max(acked, self._end(stream.name, table.site, epoch) if epoch else -1)
        self.acked_at_copy[place] = acked
        if harm is None or not harm.forgot:
            invariants.goes_not_behind(table.id, through, acked)
        elif through < acked:
            self.harms[place] = Harm(["it was taken back"], acked)
        inbound = first_of(self._inbound(table.name, table.site)).name
        gap = max(self.over.get(inbound, -1), self.gaps.get(place, -1))
        if through < gap:
            self.lacks(*place, "its copy is older than what it lacks", gap)

    # --- the end

    def _happened(self) -> list[tuple[int, int]]:
        """Two receivers may hold a stream for different causes, and say so in turn."""
        records = [self.record(name) for name in (*self.streams, *self.served)]
        return [(len(record.appended), len(record.said)) for record in records]

    def _come_to_rest(self) -> None:
        """Whoever is held for a copy asks for one, by itself or because somebody does so, and then
        goes on. One that was refused asks again: the other may have needed a copy itself."""
        super()._come_to_rest()
        for turn in range(2 * len(self.sites) + 2):
            held = [each for each in self._takers() if each.result.held is not None]
            for task in held:
                invariants.has_a_way_out(task.name, str(task.result.cause), task.result.needs)
            places = {(task.stream.table.name, task.site.name) for task in held}
            places = {place for place in places if self._is_somewhere(place)}
            if turn < 3:  # else there is nothing of the table yet
                places |= self._refused()
            if not places:
                return
            self._ask_for(places)
            super()._come_to_rest()
        causes = {task.name: task.result.cause for task in held}
        raise AssertionError(f"held after copies: {causes}")

    def _is_somewhere(self, place: Place, passed: Collection[Place] = ()) -> bool:
        """Whether a site that is held, and those that serve it, find somebody who has the table. Of
        a captured table the writer has it; of a user stream's perhaps nobody any more."""
        if self.target(place).root is None:
            return True
        others = [
            (place[0], by.sender.site)
            for by in serving(self.topology, self.topology.table(place[0]), place[1])
        ]
        return any(
            self._serves(other) or self._is_somewhere(other, [*passed, place])
            for other in others
            if other not in passed
        )

    def _serves(self, place: Place) -> bool:
        """Whether nothing keeps a site from serving copies of what it gets by its stream."""
        held = any(
            isinstance(task.result, ApplyResult) and task.result.held is not None
            for task in self.of_kind(Receiving)
            if (task.stream.table.name, task.site.name) == place
        )
        return self.target(place).is_there and not held and place not in self._doubted()

    def _ask_for(self, places: set[Place]) -> None:
        self.now += HOUR
        for task in [*self.of_kind(Receiving), *self.of_kind(TakesCopies)]:
            if (task.stream.table.name, task.site.name) in places:
                task.settled = None
        for place in places | (self._doubted() & {*self.places}):
            self.ask(serving(self.topology, self.topology.table(place[0]), place[1])[0])

    def _refused(self) -> set[Place]:
        return {
            (each.by.table.name, each.by.site)
            for each in self.of_kind(TakesCopies)
            if each.is_refused()
        }

    def _doubted(self) -> set[Place]:
        """Return the places that serve no copies, since they may have rows of their own: somebody
        wrote there, or log cleanup has taken commits that nobody has seen."""
        return {
            (by.table.name, by.sender.site)
            for by in self.served.values()
            if not by.by_writer
            and (newest := self.record(by.stream).manifests.get(self.record(by.stream).last))
            and newest.copy is not None
            and any(doubt in (newest.copy.refused or "") for doubt in DOUBTS)
        }

    def _takers(self) -> list[Receiving]:
        """Return what applies the streams whose sites can get copies."""
        places = self.places
        return [
            task
            for task in self.of_kind(Receiving)
            if (task.stream.table.name, task.site.name) in places
            and isinstance(task.result, ApplyResult)
        ]

    def _check_rest(self, stream: Stream) -> None:
        super()._check_rest(stream)
        source = self.sources[stream.name][0]
        newest = self.record(stream.name).last
        if not newest:
            return
        for site in stream.addressees:
            table = self.sites[site].targets[stream.table.name]
            if (stream.table.name, site) not in self.places or table.foreign:
                continue
            if isinstance(source, SourceTable):
                base = table.base
                if base is None:
                    base = self.snapshots.get(first_of(stream).name)
                held = source.expected(table.through(), base)
            else:
                held = source.expected(max(table.through(), 0))
            self._check_rows(table, stream.name, newest, held)
        for name, by in self.served.items():
            self._check_copies_at_rest(name, by)

    def _check_copies_at_rest(self, copies: str, by: Serving) -> None:
        channel, newest = self.channels[by.sender.channel].watched, self.record(copies).last
        there = {*channel.inner.stream_epochs(copies), *channel.paths(copies)}
        only = {newest} if newest else set()
        invariants.only_what_is_alive_is_left(copies, there, only, only)


def _served(topology: Topology) -> dict[str, Serving]:
    """Return who serves copies to whom, by the streams of the copies."""
    return {
        by.stream: by
        for table in topology.tables.values()
        for site in topology.sites
        for by in serving(topology, table, site)
    }
