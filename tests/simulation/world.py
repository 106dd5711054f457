"""The simulated world of a topology: its sites, channels, tables and processes, and its time.

Each site has a clock, a ledger, checkpoints and tables of its own, each channel a store of its own.
Between any two steps of a process others run; inside a step it may die, or freeze, right before or
right after any of its writes.
"""

from __future__ import annotations

import random
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from simulation import invariants
from simulation.channels import SimulatedChannel, StreamRecord, WatchedChannel
from simulation.delta_log import LOG_RETENTION, Reader
from simulation.processes import (
    Collecting,
    Killed,
    Process,
    Receiving,
    Sending,
    TableTask,
    Task,
    processes_of,
)
from simulation.queries import QueryCheckpoint, UserQuery
from simulation.sources import Pairs, SourceTable
from simulation.stores import Site
from simulation.targets import DeltaTable
from spark_wan.channels.base import Channel
from spark_wan.delta.commits import DAY
from spark_wan.errors import SOURCE, ChannelError, WanError
from spark_wan.log.frame_age import ORPHAN_AGE
from spark_wan.log.heads import WHOLE_LISTING_INTERVAL
from spark_wan.log.notes import announced
from spark_wan.sender.sweep import Sweep
from spark_wan.sync.automatic import Synchronizer
from spark_wan.topology.model import QueueLimits, Stream, Topology
from spark_wan.topology.routes import all_streams
from spark_wan.wire.ack import Ack
from spark_wan.wire.control import WantedEnd
from spark_wan.wire.manifest import SNAPSHOT, Manifest
from spark_wan.wire.mark import Mark

MINUTE = 60_000


@dataclass(frozen=True)
class Conditions:
    """What the topology does not say of a world."""

    skews: tuple[int, ...] = (0, 0, 0)
    """By how many milliseconds the clock of each site is wrong."""
    early: bool = False
    """Transactions of the first receivers begin when epochs are read, not when they are written."""
    watched: bool = False
    """Ack managers look at the acks of the channel, and act when something is due."""
    forgetful: bool = False
    """Delta forgets transaction numbers that are older than the log's retention
    (``delta.setTransactionRetentionDuration``)."""


class World:
    """All that a topology names, and what may happen to it."""

    def __init__(
        self,
        topology: Topology,
        conditions: Conditions,
        note: Callable[[str], None],
        channels: type[WatchedChannel] = WatchedChannel,
    ) -> None:
        self.topology = topology
        self.conditions = conditions
        self.note = note
        self.order = random.Random(0)
        self.now = 1_700_000_000_000
        """The true time, which only stores of channels have."""
        self.doom: tuple[int, str] | None = None
        """(n, moment): at its n-th write from now, the running process dies right before or after
        the write, or freezes right before it; or it dies after a write that the moment names."""
        self.running: Task | None = None
        self.pauses_changed = 0
        """How often it was said in a channel that a stream is paused, or no more."""
        self.freezes = 0
        """Number of rounds of all other processes that a freeze lasts."""
        self.freeze_time = 0
        """How long such a round takes, in milliseconds."""
        self.sites = {
            name: Site(name, skew, lambda: self.now, self.effect)
            for name, skew in zip(topology.sites, cycle(conditions.skews), strict=False)
        }
        self.streams = {stream.name: stream for stream in all_streams(topology)}
        self._kind = channels
        self.channels: dict[str, SimulatedChannel] = {}
        self._add_channels()
        self.snapshots: dict[str, int] = {}
        """Stream -> the version of the snapshot that it begins with."""
        self.left_out: dict[tuple[str, str], list[str]] = defaultdict(list)
        """Table and site -> why it lacks something that its stream does not have."""
        self.over: dict[str, int] = {}
        """Stream -> the version through which it last went over what was lost."""
        self.acked_before: dict[str, int] = {}
        """Forwarded stream that was added later -> the epoch of its inbound log that its site had
        acked then: it may begin behind that."""
        self.sources: dict[str, tuple[SourceTable | UserQuery, Reader | None]] = {}
        """Stream -> what it carries, and what its publishers can see of that."""
        self._add_sources()
        for stream in self.streams.values():
            for name in stream.addressees:
                self._add_target(stream, name)
        self.processes = {process.name: process for process in self._processes()}
        self.tasks = {task.name: task for each in self.processes.values() for task in each.tasks}

    def _processes(self) -> list[Process]:
        return processes_of(self)

    @property
    def own_streams(self) -> list[str]:
        """The streams that begin at their site."""
        return [name for name, stream in self.streams.items() if stream.inbound is None]

    def _add_channels(self) -> None:
        """Make the channels of all senders that have none yet."""
        for sender in self.topology.senders.values():
            if sender.channel not in self.channels:
                self.channels[sender.channel] = SimulatedChannel(self, sender.channel, self._kind)

    def _add_sources(self) -> None:
        """Make the sources of all streams that have none yet."""
        for name in self.own_streams:
            if name not in self.sources:
                self.sources[name] = self._source(self.streams[name])
        for name, stream in self.streams.items():
            if stream.inbound is not None:
                self.sources[name] = self.sources[first_of(stream).name][0], None

    def _add_target(self, stream: Stream, site: str) -> None:
        root = first_of(stream).name if stream.table.source == "sink" else None
        self.sites[site].add_target(stream.table.name, root)

    def _source(self, stream: Stream) -> tuple[SourceTable | UserQuery, Reader | None]:
        table, site = stream.table, self.sites[stream.sender.site]
        if table.source == "sink":
            return UserQuery(stream, self.effect), None
        if table.name not in site.sources:
            site.sources[table.name] = SourceTable(
                table.name, site.name, bool(table.keys), site.clock
            )
        source = site.sources[table.name]
        return source, source.log.read_by(lambda: self._published(stream))

    def _published(self, stream: Stream) -> int:
        """Return the version of its table through which a stream is published."""
        record = self.record(stream.name)
        return record.manifests[record.last].last_version if record.last else -1

    def record(self, stream: str) -> StreamRecord:
        """Return what was ever done to a stream."""
        channel = self.channels[self.streams[stream].sender.channel]
        return channel.watched.records[stream]

    # --- processes

    def effect(self, what: str, do: Callable[[], Any]) -> Any:
        """Change the outside world: what is durable."""
        if self.doom is None:
            return do()
        left, moment = self.doom
        if moment.startswith("frozen inside append"):
            if what != "a manifest is added":
                return do()
            self._freeze(what, changes=True)
            result = do()
            if moment.endswith("is killed"):
                raise Killed(f"after {what}")
            return result
        if moment.startswith("after "):
            result = do()
            if moment == f"after {what}":
                raise Killed(moment)
            return result
        self.doom = (left - 1, moment)
        if left == 1 and moment == "before":
            raise Killed(f"before {what}")
        if left == 1 and moment == "frozen":
            self._freeze(what)
            return do()
        result = do()
        if left == 1:
            raise Killed(f"after {what}")
        return result

    def _freeze(self, what: str, changes: bool = False) -> None:
        """Freeze the running process while all others go on. ``changes``: rows change meanwhile."""
        frozen, self.doom = self.running, None
        assert frozen is not None
        self.note(f"    {frozen.process.name} is frozen before {what}")
        for turn in range(self.freezes):
            self.now += self.freeze_time
            if changes and isinstance(frozen, Sending):
                self.change(frozen.stream, [(turn % 4, turn)])
            for task in self.tasks.values():
                if task.process is not frozen.process:
                    self.advance(task)
        self.note(f"    {frozen.process.name} goes on")
        self.running = frozen

    def advance(self, task: Task, most: int | None = None) -> bool:
        """Let a task take at most ``most`` steps (None: to its round's end). Returns whether its
        round has ended."""
        task = self.running = task.at_work()
        if task.steps is None:
            task.begin()
        assert task.steps is not None
        reached: list[str] = []
        ended = ""
        try:
            while most is None or len(reached) < most:
                reached.append(next(task.steps))
        except StopIteration as end:
            task.result, task.steps = end.value, None
            ended = task.ended()
        except WanError as error:
            task.steps, ended = None, f"{type(error).__name__}: {error}"
            task.failed(error)
        except Killed as death:
            task.process.die()
            ended = f"killed {death}"
        self.running = None
        self.note(f"    {task.name}: {', '.join(step.split(' ')[0] for step in reached)} {ended}")
        return task.steps is None

    def of_kind(self, kind: type[Task]) -> list[Any]:
        return [task for task in self.tasks.values() if isinstance(task, kind)]

    # --- what happens around them

    def change(
        self, stream: Stream, pairs: Pairs, style: str = "merge", metadata: str | None = None
    ) -> None:
        """Rows of a stream's source change."""
        source, _ = self.sources[stream.name]
        if isinstance(source, UserQuery):
            source.grow(pairs)
        else:
            source.change(pairs, style, metadata)

    def restore_query(self, query: UserQuery, checkpoint: QueryCheckpoint) -> None:
        """Restore the checkpoint of a query. Only a new process reads it."""
        query.checkpoint = checkpoint
        for task in self.of_kind(Sending):
            if task.source is query:
                task.process.die()

    def lose_checkpoint(self, stream: Stream) -> None:
        """Lose all that the sending site keeps of a stream beside the channel."""
        self.sites[stream.sender.site].checkpoints.newest.pop(stream.name, None)
        source, _ = self.sources[stream.name]
        if isinstance(source, UserQuery) and stream.inbound is None:
            self.restore_query(source, source.start_over())

    def tables(self) -> list[SourceTable | DeltaTable]:
        """Return all tables, at all sites."""
        sites = self.sites.values()
        return [
            table for site in sites for table in (*site.sources.values(), *site.targets.values())
        ]

    def rest(self, looked: bool, maintained: type[object], restarted: bool = False) -> None:
        """Let months pass, at the end of which log cleanup acts on all tables. ``looked``: all
        processes look at everything in the first days, and once more a day later. ``maintained``:
        which kind of tables are optimized before and after that. ``restarted``: all processes are
        then started anew."""
        tables = [table for table in self.tables() if isinstance(table, maintained)]
        for table in tables * 2:
            table.optimize()
        for _ in range(2 if looked else 0):
            self.now += 2 * DAY
            for task in self.tasks.values():
                self.advance(task)
        for table in tables:
            table.optimize()
        self.now += 2 * LOG_RETENTION
        for process in self.processes.values() if restarted else ():
            process.die()
        for table in self.tables():
            self.clean(table)
            if self.conditions.forgetful and isinstance(table, DeltaTable):
                self._forget_transactions(table)

    def clean(self, table: SourceTable | DeltaTable) -> None:
        """Remove commits from a table's log that it has kept for long enough."""
        if table.log.clean():
            self.note(f"    {table.id} has no commits below {table.log.begins} any more")
            for task in self.of_kind(Sending):
                task.cleaned = task.cleaned or task.source is table

    def _forget_transactions(self, table: DeltaTable) -> None:
        """Let old transaction numbers expire, but not under an apply: one that is frozen for so
        long, and nothing else, may then be written twice. Nor where they are all that tells of the
        first apply."""
        applying = any(
            task.steps is not None and task.table is table for task in self.of_kind(TableTask)
        )
        ledgered = self.sites[table.site].ledger.tables[table.name].marked_version()
        if not applying and ledgered >= 0:
            table.transactions.clear()

    def sweep(self) -> None:
        """Let two days pass, then sweep frames that no manifest names."""
        self.now += 2 * DAY
        swept = set()
        for task in self.of_kind(Collecting):
            if task.stream.name not in swept:
                swept.add(task.stream.name)
                with suppress(ChannelError):
                    Sweep(task.manager()).run(ORPHAN_AGE)

    # --- what must hold

    def check_order(self, manifest: Manifest) -> None:
        """What is forwarded must follow what was forwarded before. Called before the versions are
        looked at: they have a gap wherever an epoch is skipped."""
        inbound = self.streams[manifest.stream].inbound
        if inbound is not None:
            via = manifest.via.epoch if manifest.via is not None else 0
            last = self.record(manifest.stream).manifests.get(manifest.epoch - 1)
            invariants.follows_what_was_forwarded(
                manifest,
                self.forwarded(manifest.stream, manifest.epoch - 1),
                self.record(inbound.name).manifests.get(via),
                self.acked_before.get(manifest.stream, 0),
                named=last.addressees if last is not None else (),
                dropped=self.dropped_through(inbound.name, self.streams[manifest.stream]),
            )

    def dropped_through(self, inbound: str, onward: Stream) -> int:
        """Return through which epoch an inbound stream may have been trimmed without the site that
        sends it on as ``onward``."""
        return 0

    def skips(self, manifest: Manifest) -> bool:
        """Whether an epoch was forwarded after one that came to its site no more. Then the versions
        of the stream have a gap."""
        stream = self.streams.get(manifest.stream)
        if stream is None or stream.inbound is None or manifest.via is None:
            return False
        before = self.forwarded(stream.name, manifest.epoch - 1)
        return before < manifest.via.epoch - 1 <= self.dropped_through(stream.inbound.name, stream)

    def appended(self, manifest: Manifest) -> None:
        """An epoch was added to its log."""
        stream = self.streams[manifest.stream]
        if stream.inbound is not None:
            self._forwarded(manifest, stream, stream.inbound)
            return
        invariants.goes_where_the_topology_says(manifest, stream, self.topology)
        before = self.record(stream.name).manifests.get(manifest.epoch - 1)
        if before is not None and invariants.goes_over(manifest, before):
            assert isinstance(self.running, Sending) and self.running.reader is not None
            missed = self.running.reader.missed
            lost = [commit for commit in missed if commit.version > before.last_version]
            invariants.is_rightly_held(self.running.name, "versions are left out", lost, SOURCE)
            self.gone_over(stream, manifest.last_version)
        if manifest.kind == SNAPSHOT:
            self.snapshots[stream.name] = manifest.last_version
        source, _ = self.sources[stream.name]
        if isinstance(source, UserQuery):
            assert isinstance(self.running, Sending)
            source.appended(manifest, self.running.writes)

    def _forwarded(self, manifest: Manifest, stream: Stream, inbound: Stream) -> None:
        """An epoch was forwarded."""
        there = self.record(inbound.name).manifests
        assert manifest.via is not None  # see check_order
        via = manifest.via.epoch
        invariants.goes_on_to_the_others(manifest, there[via], stream.sender, self.topology)
        if via == self.forwarded(stream.name, manifest.epoch - 1) and not manifest.frames:
            return  # it names other sites
        if manifest.epoch > 1 or via > self.acked_before.get(stream.name, 0) or manifest.frames:
            invariants.has_the_same_frames(
                manifest,
                self.channels[stream.sender.channel].watched.content_of(manifest),
                self.channels[inbound.sender.channel].watched.content_of(there[via]),
            )

    def forwarded(self, stream: str, epoch: int | None = None) -> int:
        """Return the inbound epoch through which a stream has forwarded, with its newest epoch or
        with one that is given."""
        record = self.record(stream)
        newest = record.manifests.get(record.last if epoch is None else epoch)
        return newest.via.epoch if newest is not None and newest.via is not None else 0

    def check_ack(self, stream: str, ack: Ack) -> None:
        """A site is about to ack a stream."""
        self.check_durable(ack.site, stream, ack.applied, f"{ack.site} acks {ack.applied}")

    def ack_changed(self, stream: str, site: str) -> None:
        """The channel has another ack of a site now, or none."""

    def check_trim(self, manifest: Manifest, acked: Mapping[str, int], what: str) -> None:
        """A manifest, or a frame of it, is about to be trimmed."""
        invariants.is_done(manifest, acked, what)
        for site in manifest.addressees:
            self.check_durable(site, manifest.stream, manifest.epoch, what)

    def check_durable(self, site: str, stream: str, epoch: int, what: str) -> None:
        """Everything through an epoch must be in the site's table, marked, and in its ledger; and
        forwarded by all its senders."""
        self.check_applied(site, stream, epoch, what)
        for onward in self.streams.values():
            if onward.inbound is self.streams[stream] and onward.sender.site == site:
                through = self.forwarded(onward.name) or self.acked_before.get(onward.name, 0)
                invariants.is_forwarded(onward.name, through, epoch, what)

    def check_applied(self, site: str, stream: str, epoch: int, what: str) -> None:
        """Everything through an epoch must be in the site's table, marked, and in its ledger."""
        name = self.streams[stream].table.name
        marks = self.sites[site].targets[name].marks.values()
        ledgered = self.sites[site].ledger.tables[name].newest_epoch(stream)
        invariants.is_durable(site, stream, epoch, marks, ledgered, what)

    def marked(self, stream: str, epoch: int) -> int:
        """Return the epoch whose mark says that a site has everything through an epoch: those that
        carry nothing have none."""
        manifests = self.record(stream).manifests
        while epoch and manifests[epoch].first_version > manifests[epoch].last_version:
            epoch -= 1
        return epoch

    def check_target(self, table: DeltaTable, mark: Mark) -> None:
        """A receiver has written to a table."""
        (part,) = mark.applied
        manifest = self.record(part.stream).manifests[part.epoch]
        invariants.is_for(table.site, table.name, mark, manifest)
        expected = self.expected(self.streams[part.stream], part.epoch, table.base)
        actual: Any = table.bag
        if manifest.keys:
            source, _ = self.sources[part.stream]
            actual = {
                key: tuple(row.get(name) for name in source.columns)
                for key, row in table.rows.items()
            }
        invariants.holds_what_the_source_held(table.id, part.stream, part.epoch, actual, expected)

    def expected(self, stream: Stream, epoch: int, base: int | None = None) -> Any:
        """What a target must hold that has applied an epoch. ``base``: the version of the copy that
        its rows began with; None: there was none."""
        while stream.inbound is not None:
            stream, epoch = stream.inbound, self.forwarded(stream.name, epoch)
        source, _ = self.sources[stream.name]
        if isinstance(source, UserQuery):
            return source.expected(epoch)
        through = self.record(stream.name).manifests[epoch].last_version if epoch else -1
        return source.expected(through, self.snapshots.get(stream.name) if base is None else base)

    def limits_of(self, stream: Stream) -> QueueLimits:
        """Return how much of a stream may wait."""
        return QueueLimits.of(stream.sender, stream.table)

    def read_control(self, task: Sending) -> WantedEnd:
        """Read what operators want of a stream, in a sender of its site."""
        return WantedEnd()

    def known_control(self, task: Sending) -> WantedEnd:
        """Return what its process has read of that last."""
        return WantedEnd()

    def is_capture_paused(self, task: Sending) -> bool:
        """Whether a sender is to add nothing to a stream, as far as its process knows."""
        return False

    def is_paused(self, process: Process, channel: SimulatedChannel, stream: str) -> bool:
        """Have a receiver list a channel. Returns whether it is to take nothing of a stream."""
        return False

    def pause_changed(self, channel: Channel, stream: str) -> None:
        """A channel says something else of whether a stream is paused."""

    def synchronizer(self, process: Process, table: str) -> Synchronizer | None:
        """Return what asks for copies of a table in a receiver; None: people do."""
        return None

    def harm_of(self, table: DeltaTable) -> list[str]:
        """Return what was done to a table at a site, for which the site may hold its streams."""
        return self.left_out[table.name, table.site]

    def gone_over(self, stream: Stream, through: int) -> None:
        """A stream leaves versions out: the sites that lack them need a copy."""
        self.over[stream.name] = through
        for each in self.streams.values():
            if first_of(each) is stream:
                for site in each.addressees:
                    self.lacks(stream.table.name, site, "its source went over versions", through)

    def lacks(self, table: str, site: str, why: str, through: int) -> None:
        """Note that a site will not get versions through one, and may say that it needs a copy."""
        self.left_out[table, site].append(why)

    def held_sites(self, stream: Stream) -> set[str]:
        """Return the sites that hold a stream, and rightly so."""
        return {
            task.site.name
            for task in self.of_kind(Receiving)
            if task.stream is stream and task.is_held()
        }

    # --- the end

    def settle(self) -> None:
        """End all faults, run everything until nothing is left to do, and check that all sites
        agree."""
        self.doom = None
        for channel in self.channels.values():
            channel.faulty.script = []
            channel.faulty.deliver()
        for task in self.tasks.values():
            if task.steps is not None:
                self.advance(task)
        for task in self.of_kind(Receiving):
            task.settled = None  # now and then, a receiver looks at an idle table
            if not task.log.acks():
                # An overdue epoch is announced only to sites that have acked before. All acks are
                # lost here, so receivers start over.
                task.process.die()
        self._come_to_rest()
        for stream in self.streams.values():
            self._check_rest(stream)

    def _come_to_rest(self) -> None:
        """Run everything until nothing is left to do."""
        quiet = 0
        for _ in range(120):
            busy = [self._works(task) for task in self.tasks.values()]
            self.now += MINUTE
            quiet = 0 if any(busy) else quiet + 1
            if quiet * MINUTE > WHOLE_LISTING_INTERVAL * 1000:
                break
        else:
            for task in self.of_kind(Receiving):
                task.check_hold()
            raise AssertionError("the world does not come to rest")

    def _works(self, task: Task) -> bool:
        """Run one round, if something wakes the task. Returns whether something is left to do."""
        if not task.is_woken():
            return False
        before = self._happened()
        self.advance(task)
        if before != self._happened():
            return True
        return not task.is_held() and (task.error is not None or task.has_more())

    def _happened(self) -> list[tuple[int, int]]:
        """Return what shows whether an epoch or an ack was written."""
        records = [self.record(name) for name in self.streams]
        return [(len(record.appended), len(record.acks)) for record in records]

    def _is_held_at_sender(self, stream: Stream) -> bool:
        return any(task.is_held() for task in self.of_kind(Sending) if task.stream is stream)

    def _check_rest(self, stream: Stream) -> None:
        record = self.record(stream.name)
        newest, source = record.last, self.sources[stream.name][0]
        if stream.inbound is not None:
            inbound = self.record(stream.inbound.name).last
            invariants.all_is_forwarded(stream.name, self.forwarded(stream.name), inbound)
        elif isinstance(source, UserQuery):
            invariants.all_is_sent(stream.name, source.prefix[newest], len(source.events))
        elif not self._is_held_at_sender(stream):
            through = len(source.versions) - 1
            final = source.expected(through, self.snapshots.get(stream.name))
            invariants.all_is_sent(stream.name, self.expected(stream, newest), final)
        if not newest:
            return
        if not isinstance(source, UserQuery) and not self._is_held_at_sender(stream):
            addressees = record.manifests[newest].addressees
            invariants.all_are_addressed(stream.name, stream.addressees, addressees)
        channel = self.channels[stream.sender.channel].watched.inner
        collecting = [task for task in self.of_kind(Collecting) if task.stream is stream]
        acks, ever, now = collecting[0].log.acks(), [newest], [newest]
        for task in self.of_kind(Receiving):
            if task.stream is not stream:
                continue
            ack = acks.get(task.site.name)
            if task.is_held():
                task.check_hold()
                dropped = record.manifests[newest].dropped.get(task.site.name, 0)
                ever.append(max(record.acked.get(task.site.name, 0), dropped))
                now.append(max(ack.applied if ack is not None else 0, dropped))
            else:
                invariants.all_is_applied(stream.name, task.site.name, ack, newest)
                self.check_durable(task.site.name, stream.name, newest, "at rest")
        for task in collecting:
            # The store may have lost the trim of the newest frames, which only the next process
            # makes again. What is below them is swept.
            task.process.die()
            self.advance(task)
        self.sweep()
        there = {
            *channel.stream_epochs(stream.name),
            *self.channels[stream.sender.channel].watched.paths(stream.name),
            *(["an announcement"] if announced(channel, stream.name) is not None else []),
        }
        allowed = {newest, *_left_of(record, min(now))}
        if min(now) < newest:
            allowed.add("an announcement")
        if min(now) < min(ever):  # for all one can tell, manifests are gone that it needs
            allowed |= there  # so nothing is swept, which they might name
        needed = {newest, *_left_of(record, min(ever))}
        invariants.only_what_is_alive_is_left(stream.name, there, needed, allowed)


def first_of(stream: Stream) -> Stream:
    """Return the stream that carries the events of a stream from their origin."""
    while stream.inbound is not None:
        stream = stream.inbound
    return stream


def _left_of(record: StreamRecord, acked: int) -> Iterator[object]:
    """Yield the epochs that are not acked, and their frames."""
    for epoch, manifest in record.manifests.items():
        if epoch > acked:
            yield epoch
            yield from (ref.path for ref in manifest.frames)


def seeded_uuid4() -> Callable[[], uuid.UUID]:
    """Return a ``uuid.uuid4`` with the same sequence in every schedule."""
    numbers = random.Random(0)
    return lambda: uuid.UUID(int=numbers.getrandbits(128), version=4)
