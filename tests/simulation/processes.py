"""The processes of the simulation, each on a host of a site, and what they do in turn.

A process that dies loses only what it has in memory: the next one makes its publishers, ack
managers, appliers and ledgers from what is durable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from simulation import invariants
from simulation.channels import SimulatedChannel
from simulation.queries import QueryCheckpoint, UserQuery
from simulation.sources import CapturedSource, CleanedMeanwhileError, SourceTable
from simulation.stores import Site
from simulation.targets import DeltaTable, SimulatedTarget
from spark_wan.apply.applier import ApplyResult, TableApplier
from spark_wan.apply.site_ack import SiteAck
from spark_wan.apply.take import CopyTaker
from spark_wan.errors import (
    ChannelError,
    HistoryLostError,
    LedgerError,
    LogGapError,
    QueueFullError,
    StaleWriteError,
    WanError,
)
from spark_wan.forward.forwarder import Forwarder
from spark_wan.ledger.folding import fold
from spark_wan.ledger.ledger import Ledger
from spark_wan.log.ack_watch import AckWatch
from spark_wan.log.frames import BatchLimits
from spark_wan.log.heads import Heads
from spark_wan.log.stream_log import StreamLog
from spark_wan.sender.acks import AckManager, StreamState
from spark_wan.sender.publish import CaptureSettings, Publisher
from spark_wan.sender.queue import OutboundQueue
from spark_wan.sender.sweep import Sweep
from spark_wan.steps import Steps
from spark_wan.sync.automatic import Synchronizer
from spark_wan.topology.model import Stream, delay_of
from spark_wan.wire.control import WantedEnd
from spark_wan.wire.manifest import Manifest

if TYPE_CHECKING:
    from simulation.delta_log import Reader
    from simulation.world import World
    from spark_wan.control.keeper import ControlKeeper


class Killed(BaseException):
    """The process dies here."""


@dataclass(eq=False)
class Process:
    """A process on a host of a site. All its tasks die with it, and freeze with it."""

    world: World
    site: Site
    name: str
    """``newark/sender 1``"""
    tasks: list[Task] = field(default_factory=list)
    eyes: dict[str, Heads] = field(default_factory=dict)
    """The channels as a receiver lists them, which no fault strikes."""
    watches: dict[str, AckWatch] = field(default_factory=dict)
    """The acks of channels, looked at for all streams at once."""
    answers: dict[str, SiteAck] = field(default_factory=dict)
    """Of a receiver: inbound stream -> what writes its acks."""
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    """Of a receiver: table -> its ledger, which all streams of the table share."""
    awaited: dict[str, CopyTaker] = field(default_factory=dict)
    """Of a receiver: the stream of copies -> what takes one that was asked for and is not there
    yet."""
    waits: dict[str, int] = field(default_factory=dict)
    """The same streams -> how often the request had changed then."""
    synchronizers: dict[str, Synchronizer | None] = field(default_factory=dict)
    """Of a receiver: table -> what asks for copies of it."""
    control: dict[str, WantedEnd] = field(default_factory=dict)
    """Of a sender: stream -> what it knows of the control log of its site."""
    keeper: ControlKeeper | None = None
    """Of a sender, or a receiver that forwards: what has the channels say what that wants."""

    def die(self) -> None:
        for task in self.tasks:
            task.die()
        self.keeper = None
        self.eyes, self.watches, self.answers, self.control = {}, {}, {}, {}
        self.ledgers, self.awaited, self.waits, self.synchronizers = {}, {}, {}, {}

    def ledger(self, table: str) -> Ledger:
        if table not in self.ledgers:
            site = self.site
            self.ledgers[table] = Ledger(site.name, table, site.ledger, clock=site.clock)
        return self.ledgers[table]

    def waits_for_copy(self, table: str) -> bool:
        """As :meth:`spark_wan.receiver.table.InboundTable._waits_for_copy` says."""
        mine = {name: taker for name, taker in self.awaited.items() if taker.table == table}
        for name in [name for name, taker in mine.items() if not taker.is_awaited()]:
            del self.awaited[name], mine[name]
        return bool(mine)

    def synchronizer(self, table: str) -> Synchronizer | None:
        if table not in self.synchronizers:
            self.synchronizers[table] = self.world.synchronizer(self, table)
        return self.synchronizers[table]

    def answer(self, log: StreamLog) -> SiteAck:
        """Return what writes the acks of an inbound stream, by its apply and its forwarders."""
        if log.stream not in self.answers:
            forwarding = [
                task.through
                for task in self.tasks
                if isinstance(task, Forwarding) and task.inbound.name == log.stream
            ]
            self.answers[log.stream] = SiteAck(self.site.name, log, forwarding)
        return self.answers[log.stream]

    def heads(self, channel: SimulatedChannel) -> dict[str, str]:
        if channel.url not in self.eyes:
            world = self.world
            self.eyes[channel.url] = Heads(channel.watched.opened(), lambda: world.now / 1000)
        return self.eyes[channel.url].tags()

    def is_paused(self, channel: SimulatedChannel, stream: str) -> bool:
        """Whether nothing of a stream is to be taken, by the last listing of its channel."""
        return channel.url in self.eyes and stream in self.eyes[channel.url].paused

    def watch(self, channel: SimulatedChannel) -> AckWatch:
        if channel.url not in self.watches:
            clock = self.site.clock
            self.watches[channel.url] = AckWatch(channel.faulty, lambda: clock() / 1000)
        return self.watches[channel.url]


@dataclass(eq=False)
class Task:
    """One of the things that a process does, round by round: what it has in memory, and where it is
    in its round."""

    process: Process
    about: str
    """The stream, without its site, or the table."""
    volatile: Any = None
    """What is lost when the process dies."""
    steps: Iterator[str] | None = None
    rounds: int = 0
    began: int = 0
    """When its last round did, by the site's clock."""
    error: WanError | None = None
    """Of the last round."""
    result: Any = None
    cleaned: bool = False
    """Log cleanup has acted since the last round began."""
    looked: int = 0
    """How often pauses had changed when the last round began."""

    @property
    def world(self) -> World:
        return self.process.world

    @property
    def site(self) -> Site:
        return self.process.site

    @property
    def name(self) -> str:
        return f"{self.process.name}: {self.about}"

    def begin(self) -> None:
        """Begin a round."""
        self.rounds += 1
        self.began, self.cleaned = self.site.clock(), False
        self.looked = self.world.pauses_changed
        self.error = self.result = None
        self.steps = self._round()

    def _round(self) -> Iterator[str]:
        raise NotImplementedError

    def failed(self, error: WanError) -> None:
        """Note how a round has failed. It may for a while, where something else did."""
        self.error = error
        assert self._may_fail(error), f"{self.name} is held: {error}"

    def _may_fail(self, error: WanError) -> bool:
        return isinstance(error, (ChannelError, StaleWriteError))

    def at_work(self) -> Task:
        """Return which task of the process goes on when this one is to: one that is in the middle
        of a round, if both do not go on at the same time."""
        return self

    def ended(self) -> str:
        """Note that a round has ended with a result. Returns what to say of it."""
        return "round ends"

    def die(self) -> None:
        if self.steps is not None:
            self.steps.close()  # type: ignore[attr-defined]
        self.steps = self.volatile = None

    def is_woken(self) -> bool:
        """Whether something wakes it for another round."""
        return True

    def is_held(self) -> bool:
        """Whether its last round says that it goes on only once the user has acted; rightly so."""
        return False

    def has_more(self) -> bool:
        """Whether its last round has left something to do."""
        return self.result not in (None, 0)


@dataclass(eq=False)
class StreamTask(Task):
    """A task about a stream."""

    stream: Stream = None  # type: ignore[assignment]

    @property
    def channel(self) -> SimulatedChannel:
        return self.world.channels[self.stream.sender.channel]

    @property
    def log(self) -> StreamLog:
        """The log as one sees it who knows nothing of it."""
        return self.log_of(self.stream)

    def log_of(self, stream: Stream) -> StreamLog:
        channel = self.world.channels[stream.sender.channel]
        return StreamLog(channel.faulty, stream.name)

    def manager(self) -> AckManager:
        """An ack manager of the stream."""
        sender, forwards = self.stream.sender, self.stream.inbound is not None
        return AckManager(
            self.log,
            self.site.checkpoints,
            sender.ack_policy,
            int(sender.ack_timeout * 1000),
            self.site.clock,
            sender.remotes if forwards else self.stream.addressees,
        )

    def queue(self) -> OutboundQueue:
        """What limits the stream, as a job makes it that adds to it."""
        return OutboundQueue(self.manager(), self.world.limits_of(self.stream))

    def _may_fail(self, error: WanError) -> bool:
        return isinstance(error, QueueFullError) or super()._may_fail(error)

    def settings(self) -> CaptureSettings:
        """As :meth:`spark_wan.sender.job.Sender._settings` makes them."""
        sender, topology = self.stream.sender, self.world.topology
        return CaptureSettings(
            stream=self.stream.name,
            table=self.stream.table.name,
            keys=self.stream.table.keys,
            origin=sender.site,
            sent_to=topology.sent_to(self.stream.table.name, sender.site),
            addressees=self.stream.addressees,
            start=self.stream.table.start.version,
            on_table_operation=self.stream.table.on_table_operation,
            max_epoch_rows=sender.max_epoch_rows,
            delay=int(delay_of(sender, self.stream.table) * 1000),
        )


@dataclass(eq=False)
class Sending(StreamTask):
    """Publishes a stream: captures its table, or runs the user's query."""

    source: SourceTable | UserQuery = None  # type: ignore[assignment]
    reader: Reader | None = None
    """What it could see of the table."""

    def _round(self) -> Iterator[str]:
        if isinstance(self.source, UserQuery):
            return self.source.micro_batch(self)
        if self.volatile is None:
            self.volatile = self._publisher(self.source)
        return self._capturing(self.volatile)

    def _capturing(self, publisher: Publisher) -> Any:
        """As :meth:`spark_wan.sender.outbound_stream.OutboundStream._round` does."""
        if not self.world.is_capture_paused(self):
            return (yield from publisher.round())

    def _publisher(self, table: SourceTable) -> Publisher:
        """As :meth:`spark_wan.sender.job.Sender._stream` makes it."""
        sender = self.stream.sender
        limits = BatchLimits(sender.batch_size, sender.batch_bytes)
        source = CapturedSource(table, self.channel.faulty, limits)
        return Publisher(
            self.settings(),
            self.log,
            source,
            self.site.checkpoints,
            self.site.clock,
            wanted=lambda: self.world.read_control(self),
            wanted_before=lambda: self.world.known_control(self),
            queue=self.queue(),
        )

    @property
    def writes(self) -> QueryCheckpoint:
        """The micro-batch of a user's query that is being appended."""
        assert isinstance(self.volatile, QueryCheckpoint)
        return self.volatile

    def _may_fail(self, error: WanError) -> bool:
        if isinstance(error, (HistoryLostError, CleanedMeanwhileError)) and self.cleaned:
            return True  # the next round will tell
        if isinstance(error, HistoryLostError) and self.reader is not None:
            invariants.is_rightly_held(self.name, str(error), self.reader.lost(), error.needs)
            return True
        return super()._may_fail(error)

    def ended(self) -> str:
        has_ended = isinstance(self.volatile, Publisher) and self.volatile.has_ended
        if self.result is None and self.reader is not None and not has_ended:
            self.reader.looked(self.began)
        return super().ended()

    def is_held(self) -> bool:
        return isinstance(self.error, HistoryLostError) and not self.cleaned


@dataclass(eq=False)
class Forwarding(StreamTask):
    """Forwards an inbound stream, in a receiver."""

    @property
    def inbound(self) -> Stream:
        assert self.stream.inbound is not None
        return self.stream.inbound

    @property
    def inbound_channel(self) -> SimulatedChannel:
        return self.world.channels[self.inbound.sender.channel]

    def _is_paused(self) -> bool:
        return self.process.is_paused(self.inbound_channel, self.inbound.name)

    def through(self, log_id: str) -> int | None:
        return self.volatile.through(log_id) if self.volatile is not None else None

    def _round(self) -> Iterator[str]:
        """As :meth:`spark_wan.forward.job.ForwardedStream._forward` does."""
        if self.volatile is None:
            self.volatile = self._forwarder()
        if self.world.is_paused(self.process, self.inbound_channel, self.inbound.name):
            return
        answer = self.process.answer(self.log_of(self.inbound))
        try:
            yield from self.volatile.round()
        except WanError as error:
            answer.report_forwarded(self.stream.name, str(error))
            raise
        answer.report_forwarded(self.stream.name, None)
        yield "reported"

    def _forwarder(self) -> Forwarder:
        return Forwarder(
            self.world.topology,
            self.stream.table,
            self.stream.sender,
            self.log_of(self.inbound),
            self.log,
            self.site.checkpoints,
            self.site.clock,
            queue=self.queue(),
            is_paused=self._is_paused,
        )


@dataclass(eq=False)
class Collecting(StreamTask):
    """Collects the acks of a stream."""

    def _round(self) -> Iterator[str]:
        if self.volatile is None:
            manager = self.manager()
            if self.world.conditions.watched:
                manager.watch = self.process.watch(self.channel)
            self.volatile = Sweep(manager)
        return self._watched_round(self.volatile)

    def _watched_round(self, sweep: Sweep) -> Any:
        """With a watch: look at the acks, and do what is due. Sweep once an hour."""
        manager = sweep.acks
        manager.look(0.0)
        if manager.watch is None or manager.due():
            state = yield from manager.round()
            sweep.run_when_due()
            return state

    def _may_fail(self, error: WanError) -> bool:
        # While acks are lost, an ack manager takes a stray for the end of a gap.
        return isinstance(error, LogGapError) or super()._may_fail(error)

    def is_held(self) -> bool:
        """It waits for the ack of a site that is held, and so does not say again what it has."""
        return isinstance(self.error, LogGapError) and bool(self.world.held_sites(self.stream))

    def has_more(self) -> bool:
        """It waits for the acks of sites that are not held."""
        if not isinstance(self.result, StreamState) or not self.result.backlog:
            return False
        state, held = self.result, self.world.held_sites(self.stream)
        assert state.newest is not None
        return any(
            site not in state.acks or state.acks[site].applied < state.newest.epoch
            for site in set(self.stream.addressees) - held
        )


@dataclass(eq=False)
class TableTask(StreamTask):
    """A task about the table of a stream, of which one goes on at a time in a process."""

    @property
    def table(self) -> DeltaTable:
        return self.site.targets[self.stream.table.name]

    def at_work(self) -> Task:
        others = (each for each in self.process.tasks if isinstance(each, TableTask))
        return next((each for each in others if each.steps and each.table is self.table), self)

    def base_of(self, copy: Manifest) -> int | None:
        return copy.last_version

    def target(self) -> SimulatedTarget:
        site, table, conditions = self.site, self.stream.table.name, self.world.conditions
        ledger = self.process.ledger(table)
        return SimulatedTarget(
            table=self.table,
            ledger=site.ledger.tables[table],
            channel=self.channel.faulty,
            effect=self.world.effect,
            begins_early=conditions.early and self.process.name.endswith("1"),
            hints=not conditions.forgetful,
            names=self.world.sources[self.stream.name][0].columns,
            on_write=self.world.check_target,
            known_id=lambda: ledger.target_id,
            base_of=self.base_of,
        )


@dataclass(eq=False)
class Receiving(TableTask):
    """Applies a stream to its table."""

    listed: str | None = None
    """What the channel's listing said of the stream when the last round began."""
    settled: str | None = None
    """The same when everything was applied and acked. Nothing wakes it until that changes."""

    def _round(self) -> Steps[ApplyResult | None]:
        if self.process.waits_for_copy(self.stream.table.name):
            return None
        if self.volatile is None:
            self.volatile = self._applier()
        self.listed = self._head()
        if self.world.is_paused(self.process, self.channel, self.stream.name):
            return None
        numbers = self.channel.watched.inner.stream_epochs(self.stream.name)
        if not numbers:
            return None
        return (yield from self.volatile.round(numbers))

    def _head(self) -> str | None:
        return self.process.heads(self.channel).get(self.stream.name)

    def _applier(self) -> TableApplier:
        site, table, log = self.site.name, self.stream.table.name, self.log
        ledger, answer = self.process.ledger(table), self.process.answer(log)
        return TableApplier(
            site,
            table,
            log,
            self.target(),
            ledger,
            max_epochs=3,
            answer=answer,
            writers=self.stream.table.writers,
            synchronizer=self.process.synchronizer(table),
        )

    def ended(self) -> str:
        if not isinstance(self.result, ApplyResult):
            return super().ended()
        if self.result.held is not None:
            self.settled = None
            return f"held at {self.result.held}: {self.result.cause}"
        if not self.result.again:
            self.settled = self.listed
        self.site.readers[self.stream.table.name].looked(self.began)
        return super().ended()

    def die(self) -> None:
        super().die()
        self.settled = None

    def is_woken(self) -> bool:
        return self.settled is None or self.settled != self._head()

    def lost(self) -> list[str]:
        """Return what log cleanup has taken that no receiver could see. Any commit may have been an
        apply or a RESTORE."""
        lost = self.site.readers[self.stream.table.name].lost()
        return [f"version {commit.version}" for commit in lost]

    def check_hold(self) -> None:
        """If the last round says that it is held, there must be a reason."""
        if isinstance(self.result, ApplyResult) and self.result.held is not None:
            lost = [*self.lost(), *self.world.harm_of(self.table)]
            cause, needs = str(self.result.cause), self.result.needs
            invariants.is_rightly_held(self.name, cause, lost, needs)

    def is_held(self) -> bool:
        held = isinstance(self.result, ApplyResult) and self.result.held is not None
        return held and bool(self.lost() or self.world.harm_of(self.table))

    def has_more(self) -> bool:
        if not isinstance(self.result, ApplyResult):
            return False
        return self.result.held is not None or self.result.again


@dataclass(eq=False)
class Folding(Task):
    """Folds the ledger of a table."""

    def _may_fail(self, error: WanError) -> bool:
        return self._is_harmed(error) or super()._may_fail(error)

    def is_held(self) -> bool:
        """Marks or event IDs are lost with a table, or its ledger; so nothing is folded."""
        return self._is_harmed(self.error)

    def _is_harmed(self, error: WanError | None) -> bool:
        table = self.site.targets[self.about]
        return isinstance(error, LedgerError) and bool(self.world.harm_of(table))

    def _round(self) -> Iterator[str]:
        return fold(self.site.ledger, self.site.name, self.about, least=2, most=3)


def processes_of(world: World) -> list[Process]:
    """Return the processes of a topology. The first site that sends, and the first that receives
    and perhaps forwards, have two of a kind: both may run at once, by mistake or while one replaces
    the other."""
    streams, found = list(world.streams.values()), list[Process]()
    by_kind: dict[tuple[str, str], list[Any]] = {}
    for stream in streams:
        about, sender = _about(stream), stream.sender.site
        source, reader = world.sources[stream.name]
        make: Any = partial(Sending, about=about, stream=stream, source=source, reader=reader)
        if stream.inbound is not None:
            make = partial(Forwarding, about=about, stream=stream)
        kind = "sender" if stream.inbound is None else "receiver"
        by_kind.setdefault((kind, sender), []).append(make)
        by_kind.setdefault(("acks", sender), []).append(
            partial(Collecting, about=about, stream=stream)
        )
    for stream in streams:
        about = _about(stream)
        for site in stream.addressees:
            by_kind.setdefault(("receiver", site), []).append(
                partial(Receiving, about=about, stream=stream)
            )
            by_kind.setdefault(("folding", site), []).append(
                partial(Folding, about=stream.table.name)
            )
    seen: set[str] = set()
    for (kind, site), tasks in by_kind.items():
        for number in (1,) if kind in seen else (1, 2):
            process = Process(world, world.sites[site], f"{site}/{kind} {number}")
            process.tasks = [make(process) for make in tasks]
            found.append(process)
        seen.add(kind)
    return found


def _about(stream: Stream) -> str:
    """Return the name of a stream without that of its site."""
    return stream.name.partition(".")[2]
