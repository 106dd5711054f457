"""Copies in the simulation: what serves and takes them, what is done to tables and ledgers that
need them, and what must hold then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

from simulation import invariants
from simulation.channels import StreamRecord
from simulation.processes import Process, Receiving, Sending, StreamTask, TableTask, processes_of
from simulation.sources import CapturedSource, CleanedMeanwhileError, SourceTable
from simulation.stores import Site, TableRows
from simulation.targets import DeltaTable
from simulation.world import World
from spark_wan.apply.applier import ApplyResult
from spark_wan.apply.take import CopyTaker
from spark_wan.errors import ChannelError, SourceUnreadableError, WanError
from spark_wan.log.frames import BatchLimits
from spark_wan.log.stream_log import StreamLog
from spark_wan.log.writer import ALL_ROWS
from spark_wan.sender.serve import CopyServer, PublishedTable
from spark_wan.steps import Steps
from spark_wan.sync.request import request_copy
from spark_wan.topology.model import Stream, Topology, copied_stream, copy_name
from spark_wan.topology.routes import all_streams
from spark_wan.wire.ack import Ack
from spark_wan.wire.manifest import Manifest
from spark_wan.wire.mark import Mark

HOUR = 3_600_000


@dataclass
class Requests:
    """The requests of a site, as its ack in the channel tells of them."""

    states: list[str] = field(default_factory=lambda: [""])
    """All that the ack ever said; empty: no request."""
    taken: set[str] = field(default_factory=set)
    """Those that were answered by a copy which is, or was, in the table."""

    @property
    def now(self) -> int:
        return len(self.states) - 1


@dataclass
class Harm:
    """What was done to a table at a site, or to what the site knows of it, since the last copy."""

    what: list[str]
    had: int = -1
    """The version of the source through which the site had everything before, in its ledger too."""
    committed: int = -1
    """The same for its table alone: an apply may be about to be ledgered and acked."""
    forgot: bool = False
    """The site does not know what it has acked."""


@dataclass(eq=False)
class Serving(StreamTask):
    """Serves copies of a table to a site, in a sender."""

    taker: str = ""
    seen: tuple[int, int] | None = None
    """How often the request had changed when it was served, or there was nothing to serve; and when
    that was."""
    looking: int = 0

    @property
    def copies(self) -> str:
        return copy_name(self.stream.name, self.taker)

    @property
    def requests(self) -> Requests:
        return self.world.requests[self.copies]  # type: ignore[attr-defined, no-any-return]

    def _round(self) -> Iterator[str]:
        """As :meth:`spark_wan.sender.job.Sender._copies` makes it."""
        self.looking = self.requests.now
        if self.volatile is None:
            stream, sender, site = self.stream, self.stream.sender, self.taker
            written, _ = self.world.sources[stream.name]
            assert isinstance(written, SourceTable)
            limits = BatchLimits(sender.batch_size, sender.batch_bytes)
            source = CapturedSource(written, self.channel.faulty, limits)
            settings = replace(
                self.settings(), stream=self.copies, sent_to=(site,), addressees=(site,)
            )
            log = StreamLog(self.channel.faulty, self.copies)
            table = PublishedTable(self.settings(), self.log, source)
            in_parts = site == "seattle"  # copies to other sites go whole
            self.volatile = CopyServer(
                settings, log, table, self.site.clock, rate=1 if in_parts else None
            )
        return self.volatile.round()  # type: ignore[no-any-return]

    def _may_fail(self, error: WanError) -> bool:
        # Files of the version are gone. The newest one will be copied.
        gone = isinstance(error, CleanedMeanwhileError)
        return gone or self.is_held() or super()._may_fail(error)

    def is_held(self) -> bool:
        """Whether it waits for the first epoch of the stream, or for a commit that changes the
        whole table, to be published."""
        return isinstance(self.error, SourceUnreadableError)

    def ended(self) -> str:
        self.seen = (self.looking, self.site.clock())
        return super().ended()

    def is_woken(self) -> bool:
        """As :meth:`spark_wan.sender.copies.OutboundCopies.is_due` says."""
        if self.seen is None:
            return True
        looked, at = self.seen
        return looked != self.requests.now or self.site.clock() - at >= HOUR

    def die(self) -> None:
        super().die()
        self.seen = None


@dataclass(eq=False)
class Taking(TableTask):
    """Takes copies of a table, in a receiver."""

    asked: int = 0
    """How often the request had changed when the round began."""

    @property
    def copies(self) -> str:
        return copy_name(self.stream.name, self.site.name)

    @property
    def requests(self) -> Requests:
        return self.world.requests[self.copies]  # type: ignore[attr-defined, no-any-return]

    def _round(self) -> Steps[ApplyResult | None]:
        """As :meth:`spark_wan.receiver.table.InboundTable._apply_listed` does."""
        self.asked = self.requests.now
        if self.volatile is None:
            table = self.stream.table
            log = StreamLog(self.channel.faulty, self.copies)
            self.volatile = CopyTaker(
                self.site.name,
                table.name,
                log,
                self.target(),
                self.process.ledger(table.name),
                writers=table.writers,
            )
        numbers = self.channel.watched.inner.stream_epochs(self.copies)
        if not numbers:
            return None
        return (yield from self.volatile.round(numbers))

    def ended(self) -> str:
        result, table = self.result, self.stream.table.name
        if not isinstance(result, ApplyResult):
            return super().ended()
        if result.awaits_copy:
            self.process.awaited[table] = self.volatile
            self.process.waits[table] = self.copies, self.requests.now
        else:
            self.process.awaited.pop(table, None)
            self.process.waits.pop(table, None)
        if result.held is not None:
            return f"held: {result.cause}"
        return super().ended()

    def has_more(self) -> bool:
        result = self.result
        held = isinstance(result, ApplyResult) and (result.held is not None or result.awaits_copy)
        return held and not self.is_refused()

    def is_refused(self) -> bool:
        """Whether the site that was asked serves no copy. Somebody has to ask again."""
        return "no site serves a copy" in str(getattr(self.result, "cause", None))


class CopyWorld(World):
    """A world in which sites ask for copies."""

    def __init__(self, topology: Topology, *args: Any, later: Topology | None = None) -> None:
        self.requests: dict[str, Requests] = defaultdict(Requests)
        """By the name of the copies' stream."""
        self.harms: dict[tuple[str, str], Harm] = {}
        """By site and table."""
        self.lost_ledgers: dict[tuple[str, str], TableRows] = {}
        """What lost ledgers had."""
        self.later, self.joins = later, later is not None
        """The topology once another site has joined."""
        super().__init__(topology, *args)

    @property
    def served(self) -> list[tuple[str, str]]:
        """The names of the streams and the sites that get copies of their tables."""
        return [
            (stream.name, site)
            for stream in self.streams.values()
            if stream.inbound is None and stream.table.source == "table"
            for site in stream.addressees
        ]

    def _processes(self) -> list[Process]:
        found = processes_of(self)
        for process in found:
            for task in [*process.tasks]:
                if not isinstance(task, (Sending, Receiving)):
                    continue
                stream = task.stream
                for name, site in self.served:
                    if name != stream.name:
                        continue
                    about = f"{task.about}~copy~{site}"
                    if isinstance(task, Sending):
                        process.tasks.append(Serving(process, about, stream=stream, taker=site))
                    elif site == process.site.name:
                        process.tasks.insert(0, Taking(process, about, stream=stream))
        return found

    def record(self, stream: str) -> StreamRecord:
        copied = copied_stream(stream)
        channel = self.streams[copied[0] if copied else stream].sender.channel
        return self.channels[channel].watched.records[stream]

    # --- what happens

    def ask(self, stream: str, site: str) -> None:
        """Somebody asks for a copy: see :func:`request_copy`."""
        open_channel = mock.patch(
            "spark_wan.sync.request.open_channel", lambda url, _: self.channels[url].faulty
        )
        with open_channel, suppress(ChannelError):
            of = self.streams[stream]
            request_copy(self.topology, of.table.name, site, by=of.sender.site)

    def harm(
        self, stream: str, site: str, what: str, *, shaken: bool = False, forgot: bool = False
    ) -> None:
        """Note what is about to be done to a table at a site. ``shaken``: it will not have what its
        marks say. ``forgot``: the site will not know what it has acked."""
        table = self.sites[site].targets[self.streams[stream].table.name]
        harm = self.harms.setdefault((site, table.name), Harm([]))
        ledger = self.sites[site].ledger.tables[table.name]
        through = table.through() if harm.what else min(table.through(), ledger.through())
        if not table.shaken:
            harm.had = max(harm.had, through)
            harm.committed = max(harm.committed, table.through())
        harm.what.append(what)
        harm.forgot = harm.forgot or forgot
        table.shaken = table.shaken or shaken

    def _end(self, stream: str, site: str, epoch: int) -> int:
        """Return through which version of the source a site has everything that has applied a
        stream through an epoch."""
        manifests = self.record(stream).manifests.values()
        mine = (each for each in manifests if each.epoch <= epoch and site in each.addressees)
        return max((each.last_version for each in mine), default=-1)

    def harm_of(self, table: DeltaTable) -> list[str]:
        harm = self.harms.get((table.site, table.name))
        return harm.what if harm is not None else []

    def lose_ledger(self, stream: str, site: str) -> None:
        """Lose what the site's ledger has of a table, unless nothing else tells of its applies, or
        that the table was restored."""
        name = self.streams[stream].table.name
        table, tables = self.sites[site].targets[name], self.sites[site].ledger.tables
        told = any(version >= table.log.begins for version in table.marks) or table.transactions
        if table.shaken or (table.is_there and not told):
            return
        for task in self.of_kind(Receiving):
            if task.site.name == site:
                task.process.die()  # the receivers have to be stopped for this
        self.harm(stream, site, "its ledger is lost", forgot=True)
        rows = tables[name]
        self.lost_ledgers[site, name] = TableRows(
            [*rows.rows], [*rows.positions], [*rows.summaries], [*rows.ids]
        )
        rows.rows, rows.positions, rows.summaries = [], [], []

    def find_ledger(self, stream: str, site: str) -> None:
        """A backup of a lost ledger is found, and is added to what the site has now."""
        name = self.streams[stream].table.name
        lost = self.lost_ledgers.pop((site, name), None)
        if lost is not None:
            self.harm(stream, site, "an old ledger is found", forgot=True)
            rows = self.sites[site].ledger.tables[name]
            rows.rows = [*lost.rows, *rows.rows]
            rows.positions = [*lost.positions, *rows.positions]
            rows.summaries = [*lost.summaries, *rows.summaries]

    def join(self) -> None:
        """Another site is added to the topology, and all jobs are started again with it."""
        if self.later is None:
            return
        self.topology, self.later = self.later, None
        for process in self.processes.values():
            process.die()
        joined = [name for name in self.topology.sites if name not in self.sites]
        for name in joined:
            self.sites[name] = Site(name, 0, lambda: self.now, self.effect)
        self.streams = {stream.name: stream for stream in all_streams(self.topology)}
        for stream in self.streams.values():
            for name in joined:
                self.sites[name].add_target(stream.table.name)
                self.harm(stream.name, name, "it joined late")
        self.processes = {process.name: process for process in self._processes()}
        self.tasks = {task.name: task for each in self.processes.values() for task in each.tasks}

    def sweep(self) -> None:
        super().sweep()
        for task in self.of_kind(Serving):
            self.advance(task)

    # --- what must hold

    def check_order(self, manifest: Manifest) -> None:
        if copied_stream(manifest.stream) is None:
            super().check_order(manifest)

    def appended(self, manifest: Manifest) -> None:
        if manifest.copy is None:
            super().appended(manifest)
            return
        record, request = self.record(manifest.stream), manifest.copy.request
        before = record.manifests.get(manifest.epoch - 1)
        if request:
            invariants.answers_once(manifest, None if before is None else before.copy)
            return
        assert before is not None and before.copy is not None and isinstance(self.running, Serving)
        seen = self.requests[manifest.stream].states[self.running.looking :]
        if all(each == before.copy.request for each in seen):  # else it was not wanted any more
            invariants.is_done(before, record.acked, f"copy {before.epoch} is removed")

    def check_ack(self, stream: str, ack: Ack) -> None:
        if copied_stream(stream) is None:
            super().check_ack(stream, ack)
            return
        task = self.running
        if isinstance(task, Taking) and ack.wanted is None:
            requests = self.requests[stream]
            wanted = requests.states[task.asked]
            if wanted and wanted == requests.states[-1]:
                invariants.is_taken(ack.site, wanted, requests.taken)

    def ack_changed(self, stream: str, site: str) -> None:
        if copied_stream(stream) is None:
            return
        requests = self.requests[stream]
        channel = self.channels[self._copied(stream)[0].sender.channel].watched.inner
        ack = StreamLog(channel, stream).ack(site)
        request = ack.wanted.request if ack is not None and ack.wanted is not None else ""
        if request != requests.states[-1]:
            requests.states.append(request)

    def _copied(self, copies: str) -> tuple[Stream, str]:
        """Return of which stream the copies are, and for whom."""
        copied = copied_stream(copies)
        assert copied is not None
        return self.streams[copied[0]], copied[1]

    def check_trim(self, manifest: Manifest, acked: Mapping[str, int], what: str) -> None:
        if manifest.copy is None:  # copies are trimmed behind the one that follows
            super().check_trim(manifest, acked, what)

    def check_applied(self, site: str, stream: str, epoch: int, what: str) -> None:
        if not epoch or self.streams[stream].table.source != "table":
            super().check_applied(site, stream, epoch, what)
            return
        name, acked = self.streams[stream].table.name, self.record(stream).acked.get(site, 0)
        table, ledger = self.sites[site].targets[name], self.sites[site].ledger.tables[name]
        harm, through = self.harms.get((site, name)), table.through()
        needed = self._end(stream, site, epoch)
        if harm is not None and needed <= max(
            harm.had, harm.committed, self._end(stream, site, acked)
        ):
            return
        if table.shaken:
            through = -1
        ledgered = through if harm is not None else ledger.through()
        invariants.is_durable_through(site, needed, through, ledgered, what)

    def check_target(self, table: DeltaTable, mark: Mark) -> None:
        (part,) = mark.applied
        if copied_stream(part.stream) is not None:
            self._check_copy(table, mark)
            return
        assert isinstance(self.running, Receiving)
        waits = self.running.process.waits.get(table.name)
        if waits is not None:
            copies, since = waits
            states = self.requests[copies].states
            if since == len(states) - 1 and states[since]:
                invariants.waits_for_its_copy(table.id, part.stream, part.epoch)
        if table.shaken and not self.harm_of(table):
            self.harm(
                part.stream, table.site, "a write landed that was meant for another state of it"
            )
        if not table.shaken:
            super().check_target(table, mark)

    def _check_copy(self, table: DeltaTable, mark: Mark) -> None:
        """A copy has taken the place of all rows of a table."""
        (part,) = mark.applied
        manifest = self.record(part.stream).manifests[part.epoch]
        stream, _ = self._copied(part.stream)
        invariants.is_for(table.site, table.name, mark, manifest)
        task, requests = self.running, self.requests[part.stream]
        assert isinstance(task, Taking) and manifest.copy is not None
        request = manifest.copy.request
        invariants.answers_a_request(table.id, request, requests.states[task.asked :])
        requests.taken.add(request)
        source, _ = self.sources[stream.name]
        assert isinstance(source, SourceTable)
        origin = (stream.sender.site, source.id, ALL_ROWS)
        vector = {tuple(entry[:3]): entry[3] for entry in mark.vector or ()}
        version = vector.get(origin, -1)
        held = source.expected(version, version if version >= 0 else None)
        self._check_rows(table, part.stream, part.epoch, held)
        self._check_not_behind(table, version)

    def _check_rows(self, table: DeltaTable, stream: str, epoch: int, held: Any) -> None:
        actual: Any = table.bag
        if isinstance(held, dict) and not isinstance(held, type(table.bag)):
            names = SourceTable.columns
            actual = {
                key: tuple(row.get(name) for name in names) for key, row in table.rows.items()
            }
        invariants.holds_what_the_source_held(table.id, stream, epoch, actual, held)

    def _check_not_behind(self, table: DeltaTable, version: int) -> None:
        """Whatever the site has acked may be trimmed. A site whose ledger is lost does not know
        what it has acked, and is behind a gap then."""
        harm, table.shaken = self.harms.pop((table.site, table.name), None), False
        table.states[max(table.states)]["shaken"] = False
        acked = harm.had if harm is not None else -1
        for stream in self.streams.values():
            if stream.table.name == table.name:
                epoch = self.record(stream.name).acked.get(table.site, 0)
                acked = max(acked, self._end(stream.name, table.site, epoch))
        if harm is None or not harm.forgot:
            invariants.goes_not_behind(table.id, version, acked)
        elif version < acked:
            self.harms[table.site, table.name] = Harm(["it was taken back"], acked)

    # --- the end

    def _happened(self) -> list[tuple[int, int]]:
        """Two receivers may hold a stream for different causes, and say so in turn."""
        copies = [copy_name(stream, site) for stream, site in self.served]
        records = [self.record(name) for name in (*self.streams, *copies)]
        return [(len(record.appended), len(record.said)) for record in records]

    def _come_to_rest(self) -> None:
        """Whoever is held for a copy asks for one, and then goes on."""
        super()._come_to_rest()
        for _ in range(3):
            refused = [each for each in self.of_kind(Taking) if each.is_refused()]
            for task in refused:
                task.settled = None
                self.ask(task.stream.name, task.site.name)
            if refused:
                super()._come_to_rest()
            held = [each for each in self._takers() if each.result.held is not None]
            if not held:
                return
            for task in held:
                task.settled = None
                invariants.has_a_way_out(task.name, str(task.result.cause), task.result.needs)
                self.ask(task.stream.name, task.site.name)
            super()._come_to_rest()
        raise AssertionError(f"{held[0].name} is held after copies: {held[0].result.cause}")

    def _takers(self) -> list[Receiving]:
        """Return what applies the streams whose sites can get copies."""
        served = self.served
        return [
            task
            for task in self.of_kind(Receiving)
            if (task.stream.name, task.site.name) in served and isinstance(task.result, ApplyResult)
        ]

    def _check_rest(self, stream: Stream) -> None:
        super()._check_rest(stream)
        source = self.sources[stream.name][0]
        newest = self.record(stream.name).last
        if not isinstance(source, SourceTable) or not newest:
            return
        for site in stream.addressees:
            if (stream.name, site) not in self.served:
                continue
            table = self.sites[site].targets[stream.table.name]
            base = self.snapshots.get(stream.name) if table.base is None else table.base
            held = source.expected(table.through(), base)
            self._check_rows(table, stream.name, newest, held)
            self._check_copies_at_rest(copy_name(stream.name, site), stream)

    def _check_copies_at_rest(self, copies: str, stream: Stream) -> None:
        channel, newest = self.channels[stream.sender.channel].watched, self.record(copies).last
        there = {*channel.inner.stream_epochs(copies), *channel.paths(copies)}
        only = {newest} if newest else set()
        invariants.only_what_is_alive_is_left(copies, there, only, only)
