"""The simulated world: a clock, a channel that checks what is done to it, and processes that may
die at any moment.

A process that dies loses only what it has in memory: the next one makes its publisher, ack manager,
applier and ledger from what is durable. The core's routines yield their numbered steps. Between any
two of them other processes run; inside a step a process may die right before or right after any of
its writes.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import obstore
import pyarrow as pa
from fakes import schema
from faulty_channel import Fault, FaultyChannel
from tables import (
    DeltaTable,
    Effect,
    Row,
    SimulatedLedger,
    SimulatedSource,
    SimulatedTarget,
)

from spark_wan.channels.log import StreamLog
from spark_wan.channels.object_store import ObjectStoreChannel, open_store
from spark_wan.channels.objects import WHOLE_LISTING_INTERVAL
from spark_wan.channels.watch import AckWatch
from spark_wan.errors import ChannelError, LogGapError, StaleWriteError, WanError
from spark_wan.ledger.folding import fold
from spark_wan.ledger.ledger import Ledger
from spark_wan.receiver.apply import ApplyResult, TableApplier
from spark_wan.sender.acks import AckManager, StreamState
from spark_wan.sender.epochs import ORPHAN_AGE
from spark_wan.sender.events import EventsWriter, SinkColumns, append_epoch
from spark_wan.sender.publish import CaptureSettings, Publisher
from spark_wan.topology.ack_policy import AckPolicy
from spark_wan.topology.options import SinkOptions
from spark_wan.wire.ack import Ack
from spark_wan.wire.checkpoint import SenderCheckpoint
from spark_wan.wire.manifest import SNAPSHOT, Manifest
from spark_wan.wire.mark import AppliedStream, Mark

CHANNEL, TABLE, ORIGIN = "memory://simulation", "orders", "newark"
STREAM = f"{ORIGIN}.east.{TABLE}"
ACK_TIMEOUT = 60_000

SITE_OF = {"receiver 1": "seattle", "receiver 2": "seattle", "receiver 3": "tacoma"}
LEDGER_OF = {"folding 1": "seattle", "folding 2": "seattle", "folding 3": "tacoma"}
NAMES = ("sender 1", "sender 2", "acks 1", "acks 2", *SITE_OF, *LEDGER_OF)


def applied(marks: Iterable[Mark]) -> Iterator[AppliedStream]:
    """Return what marks say was applied."""
    return (part for mark in marks for part in mark.applied)


class Killed(BaseException):
    """The process dies here."""


class WatchedChannel:
    """The real channel, in memory. Checks that each call is allowed at its moment."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.inner = world.open_channel()
        self.url = CHANNEL
        self.appended: dict[int, bytes] = {}
        self.manifests: dict[int, Manifest] = {}
        self.strays: dict[int, bytes] = {}
        """What frozen writers left where the log was trimmed; not part of it."""
        self.written: dict[str, int] = {}
        """Frame -> when it was written, by the world's clock."""
        self.acked: dict[str, int] = {}
        """Site -> the highest epoch that it ever acked."""
        self.old_acks: list[tuple[str, bytes]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def put_frame(self, stream: str, attempt: str, index: int, data: bytes) -> str:
        def put() -> str:
            path = self.inner.put_frame(stream, attempt, index, data)
            self.written[path] = self.world.now
            return path

        return str(self.world.effect("a frame is put", put))

    def append(self, stream: str, epoch: int, manifest: bytes) -> None:
        def append() -> None:
            self.inner.append(stream, epoch, manifest)
            self._check_append(epoch, manifest)

        self.world.effect("a manifest is added", append)

    def put_head(self, stream: str, epoch: int, manifest: bytes) -> None:
        self.world.effect("a head is put", lambda: self.inner.put_head(stream, epoch, manifest))

    def _check_append(self, epoch: int, data: bytes) -> None:
        last = max(self.appended, default=0)
        if epoch <= last:
            self.strays[epoch] = data
            return
        assert epoch == last + 1, f"manifest {epoch} was added, the newest was {last}"
        manifest = Manifest.decode(data, "the simulation")
        there = {path for path, _ in self.inner.frames(STREAM)}
        missing = [ref.path for ref in manifest.frames if ref.path not in there]
        assert not missing, f"manifest {epoch} names frames that are not in the channel: {missing}"
        self.appended[epoch], self.manifests[epoch] = data, manifest
        if epoch > 1:
            before = self.manifests[epoch - 1]
            assert manifest.log_id == before.log_id, f"manifest {epoch} begins another log"
            assert manifest.first_version in (-1, before.last_version + 1), (
                f"manifest {epoch} begins at {manifest.first_version}"
            )
        self.world.appended(manifest)

    def manifest(self, stream: str, epoch: int) -> bytes:
        data = self.inner.manifest(stream, epoch)
        assert data in (self.appended[epoch], self.strays.get(epoch)), (
            f"manifest {epoch} was overwritten"
        )
        return data

    def put_ack(self, stream: str, site: str, data: bytes) -> None:
        ack = Ack.decode(data)
        if ack is not None:
            self.world.check_durable(site, ack.applied, f"{site} acks {ack.applied}")

        def put() -> None:
            self.inner.put_ack(stream, site, data)
            self.old_acks.append((site, data))
            if ack is not None:
                self.acked[site] = max(ack.applied, self.acked.get(site, 0))

        self.world.effect("an ack is put", put)

    def trim(self, stream: str, through: int, frames: Iterable[str]) -> None:
        """Delete one by one, manifests in any order: a store may die in the middle."""
        self.trim_frames(stream, frames)
        epochs = [epoch for epoch in self.inner.stream_epochs(stream) if epoch <= through]
        assert through < max(self.appended), f"manifest {through}, the newest, is trimmed"
        for epoch in epochs:
            if epoch not in self.strays:
                self._check_trim(self.manifests[epoch], f"manifest {epoch} is trimmed")
        self.world.order.shuffle(epochs)
        for epoch in epochs:
            self.trim_manifest(stream, epoch)

    def trim_frames(self, stream: str, paths: Iterable[str]) -> None:
        named = {
            ref.path: manifest for manifest in self.manifests.values() for ref in manifest.frames
        }
        for path in paths:
            if path in named:
                self._check_trim(named[path], f"a frame of manifest {named[path].epoch} is trimmed")
            self.world.effect(
                "a frame is trimmed", lambda path=path: self.inner.trim_frames(stream, [path])
            )

    def trim_manifest(self, stream: str, epoch: int) -> None:
        if epoch not in self.strays:
            assert epoch < max(self.appended), f"manifest {epoch}, the newest, is trimmed"
            self._check_trim(self.manifests[epoch], f"manifest {epoch} is trimmed")

        def trim() -> None:
            self.inner.trim_manifest(stream, epoch)
            self.strays.pop(epoch, None)

        self.world.effect("a manifest is trimmed", trim)

    def _check_trim(self, manifest: Manifest, what: str) -> None:
        for site in manifest.addressees:
            assert self.acked.get(site, 0) >= manifest.epoch, f"{what}, but {site} never acked it"
            self.world.check_durable(site, manifest.epoch, what)

    def announce(self, stream: str, epoch: int, attempt: int) -> None:
        self.world.effect(
            "an epoch is announced", lambda: self.inner.announce(stream, epoch, attempt)
        )

    def withdraw(self, stream: str) -> None:
        self.world.effect("an announcement is withdrawn", lambda: self.inner.withdraw(stream))

    def frames(self, stream: str, write: str | None = None) -> list[tuple[str, float]]:
        found = self.inner.frames(stream, write)
        return [(path, self.written[path] / 1000) for path, _ in found]

    def frame_time(self, path: str) -> float | None:
        return None if self.inner.frame_time(path) is None else self.written[path] / 1000

    def now(self) -> float:
        return self.world.now / 1000


@dataclass
class SimulatedCheckpoints:
    """The sender's checkpoint, durable (see
    :class:`spark_wan.sender.checkpoints.CheckpointStore`)."""

    effect: Effect
    newest: SenderCheckpoint | None = None
    older: list[SenderCheckpoint] = field(default_factory=list)

    def load(self, stream: str) -> SenderCheckpoint | None:
        return self.newest

    def save(self, stream: str, checkpoint: SenderCheckpoint) -> None:
        def save() -> None:
            self.newest = checkpoint
            self.older.append(checkpoint)

        self.effect("the sender's checkpoint is written", save)


@dataclass(frozen=True)
class QueryCheckpoint:
    """Spark's checkpoint of a user's query: its ID, the next batch, where that begins, and, once it
    is planned, where it ends."""

    query: str
    batch: int = 0
    begin: int = 0
    end: int | None = None


@dataclass
class Process:
    """A process: what it has in memory, and where it is in its round."""

    name: str
    volatile: Any = None
    """What it loses when it dies."""
    steps: Iterator[str] | None = None
    rounds: int = 0
    error: str | None = None
    result: Any = None
    listed: Any = None
    settled: Any = None
    """What the receiver had seen when it last applied and acked everything: nothing wakes it until
    the heads of the channel change."""
    eyes: ObjectStoreChannel | None = None
    """The channel as the receiver sees it."""


class World:
    """Source, channel, sites and processes. ``kind``: keyed, keyless, or a user stream of keyed or
    keyless events."""

    def __init__(
        self,
        kind: str,
        policy: str,
        snapshot: bool,
        sites: tuple[str, ...],
        early: bool,
        watched: bool,
        note: Callable[[str], None],
    ) -> None:
        self.note = note
        self.keyed = kind in ("keyed", "keyed events")
        self.user = kind.endswith("events")
        self.names = ("event", "id", "v", "n") if self.user else ("id", "v", "w")
        self.policy = AckPolicy(policy)
        self.sites = sites
        self.early = early
        self.watches = watched
        self.order = random.Random(0)
        self.now = 1_700_000_000_000
        self.doom: tuple[int, str] | None = None
        """(n, moment): at its n-th write from now, the running process dies right before or after
        the write, or freezes right before it."""
        self.running = ""
        self.freezes = 0
        """Number of rounds of all other processes that a freeze lasts."""
        store = open_store(CHANNEL)
        obstore.delete(store, [meta["path"] for page in obstore.list(store) for meta in page])
        self.watched = WatchedChannel(self)
        self.channel = FaultyChannel(self.watched)  # type: ignore[arg-type]
        self.checkpoints = SimulatedCheckpoints(self.effect)
        self.source = SimulatedSource(self.keyed, lambda: self.now, channel=self.channel)
        self.start = None if snapshot and self.keyed else 0
        self.events: list[Row] = []
        """Events of the user's source, in order: (ID, key, value)."""
        self.query_checkpoint = QueryCheckpoint("query-0")
        self.older_query_checkpoints = [self.query_checkpoint]
        self.queries = 1
        self.snapshot: int | None = None
        self.prefix: dict[int, int] = {0: 0}
        """Epoch of a user stream -> number of its events that have arrived once it is applied."""
        self.writing = self.query_checkpoint
        """The micro-batch that is being appended."""
        self.written: set[QueryCheckpoint] = set()
        self.tables = {site: DeltaTable() for site in sites}
        self.ledgers = {site: SimulatedLedger(self.effect) for site in sites}
        self.processes = {
            name: Process(name)
            for name in NAMES
            if {**SITE_OF, **LEDGER_OF}.get(name, sites[0]) in sites
        }

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
        frozen, writing, self.doom = self.running, self.writing, None
        self.note(f"    {frozen} is frozen before {what}")
        for turn in range(self.freezes):
            if changes and self.user:
                self.grow([(turn % 4, turn)])
            elif changes:
                self.source.change([(turn % 4, turn)], "merge", None)
            for name in self.processes:
                if name != frozen:
                    self.advance(name)
        self.note(f"    {frozen} goes on")
        self.running, self.writing = frozen, writing

    @property
    def log(self) -> StreamLog:
        """The log as one sees it who knows nothing of it."""
        return StreamLog(self.channel, STREAM)  # type: ignore[arg-type]

    def open_channel(self) -> ObjectStoreChannel:
        """Open the channel in a process of its own, which has the world's time."""
        channel = ObjectStoreChannel(CHANNEL)
        channel.clock = lambda: self.now / 1000  # type: ignore[method-assign]
        return channel

    # --- processes

    def advance(self, name: str, most: int | None = None) -> bool:
        """Let a process take at most ``most`` steps (None: to its round's end). Returns whether its
        round has ended."""
        process, self.running = self.processes[name], name
        if process.steps is None:
            process.steps = self._round(process)
            process.error = process.result = None
        reached: list[str] = []
        ended = ""
        try:
            while most is None or len(reached) < most:
                reached.append(next(process.steps))
        except StopIteration as end:
            process.result, process.steps, ended = end.value, None, "round ends"
        except WanError as error:
            process.error, process.steps, ended = (
                str(error),
                None,
                f"{type(error).__name__}: {error}",
            )
            # While acks are lost, an ack manager takes a stray for the end of a gap.
            expected = (
                (ChannelError, StaleWriteError, LogGapError)
                if name.startswith("acks")
                else (ChannelError, StaleWriteError)
            )
            assert isinstance(error, expected), f"{name} is held: {error}"
        except Killed as death:
            self._die(process)
            ended = f"killed {death}"
        if (
            isinstance(process.result, ApplyResult)
            and process.result.held is None
            and not process.result.again
        ):
            process.settled = process.listed
        if isinstance(process.result, ApplyResult) and process.result.held is not None:
            ended = f"held at {process.result.held}: {process.result.cause}"
            process.error = process.result.cause
        self.note(f"    {name}: {', '.join(step.split(' ')[0] for step in reached)} {ended}")
        return process.steps is None

    def kill(self, name: str) -> None:
        self._die(self.processes[name])

    def _die(self, process: Process) -> None:
        if process.steps is not None:
            process.steps.close()  # type: ignore[attr-defined]
        process.steps = process.volatile = process.settled = process.eyes = None

    def _round(self, process: Process) -> Any:
        kind = process.name.split()[0]
        process.rounds += 1
        if kind == "acks":
            process.volatile = process.volatile or self._ack_manager()
            return self._ack_round(process.volatile)
        if kind == "receiver":
            process.volatile = process.volatile or self._applier(process.name)
            process.listed = self._signals(process)
            numbers = self.watched.inner.stream_epochs(STREAM)
            return process.volatile.round(numbers) if numbers else iter(())
        if kind == "folding":
            site = LEDGER_OF[process.name]
            return fold(self.ledgers[site], site, TABLE, least=2, most=3)
        if self.user:
            return self._micro_batch(process)
        process.volatile = process.volatile or self._publisher()
        return process.volatile.round()

    def _ack_manager(self) -> AckManager:
        manager = AckManager(
            self.log, self.checkpoints, self.policy, ACK_TIMEOUT, lambda: self.now, self.sites
        )
        if self.watches:
            manager.watch = AckWatch(self.channel, lambda: self.now / 1000)  # type: ignore[arg-type]
        return manager

    def _ack_round(self, manager: AckManager) -> Any:
        """With a watch: look at the acks, and do what is due."""
        manager.look(0.0)
        if manager.watch is None or manager.due():
            return (yield from manager.round())

    def _publisher(self) -> Publisher:
        settings = CaptureSettings(
            stream=STREAM,
            table=TABLE,
            keys=("id",) if self.keyed else (),
            origin=ORIGIN,
            sent_to=self.sites,
            addressees=self.sites,
            start=self.start,
            on_table_operation="distribute",
            max_epoch_rows=4,
        )
        return Publisher(settings, self.log, self.source, self.checkpoints, lambda: self.now)

    def _applier(self, name: str) -> TableApplier:
        site = SITE_OF[name]
        target = SimulatedTarget(
            site=site,
            table=self.tables[site],
            ledger=self.ledgers[site],
            channel=self.channel,
            clock=lambda: self.now,
            effect=self.effect,
            begins_early=self.early and name == "receiver 1",
            on_write=self.check_target,
            names=self.names,
        )
        ledger = Ledger(site, TABLE, self.ledgers[site], clock=lambda: self.now)
        return TableApplier(site, TABLE, self.log, target, ledger, max_epochs=3)

    # --- a user stream

    def grow(self, pairs: list[tuple[int, int | None]]) -> None:
        """Add events to the user's source."""
        self.events += [
            (f"event {len(self.events) + n}", key, value) for n, (key, value) in enumerate(pairs)
        ]

    def _options(self) -> SinkOptions:
        return SinkOptions(
            channel=CHANNEL,
            site=ORIGIN,
            remotes=self.sites,
            table=TABLE,
            key=("id",) if self.keyed else (),
            event_id="event",
            stream=STREAM,
            operation="operation" if self.keyed else None,
            sequence="n" if self.keyed else None,
            batch_size=2,
        )

    def _micro_batch(self, process: Process) -> Any:
        """Run a micro-batch as Spark does: planned durably, written by tasks, committed, and only
        then checkpointed. A new process reads the checkpoint; a running one has it in memory."""
        here: QueryCheckpoint = process.volatile or self.query_checkpoint
        process.volatile = here
        if here.end is None:
            if here.begin >= len(self.events):
                return None
            most = 2 + process.rounds % 5  # as Spark's limits, which may change
            here = self._save(process, replace(here, end=min(len(self.events), here.begin + most)))
        yield "query.1 planned"
        assert here.end is not None
        options, operation = self._options(), {"operation": "string"} if self.keyed else {}
        rows_schema = schema(event="string", id="long", v="long", n="long", **operation)
        columns = SinkColumns.of(options, rows_schema)
        table = columns.table_schema(rows_schema)
        parts = 1 + process.rounds % 2  # another attempt may see other partitions
        rows = [(*event, n) for n, event in enumerate(self.events)][here.begin : here.end]
        written = []
        for part in range(parts):
            writer = EventsWriter(self.channel, options, columns, table, lambda: self.now)  # type: ignore[arg-type]
            written.append(writer.write([self._event_rows(rows[part::parts])]))
        steps = append_epoch(
            self.log,
            options,
            table,
            written,
            here.query,
            str(here.batch),
            lambda: self.now,
            self.checkpoints,
        )
        while True:
            self.writing = here
            try:
                step = next(steps)
            except StopIteration:
                break
            yield step
        self._save(process, QueryCheckpoint(here.query, here.batch + 1, here.end))
        yield "query.2 checkpointed"
        return here

    def _event_rows(self, rows: list[Row]) -> pa.RecordBatch:
        columns: dict[str, Any] = {
            "event": pa.array([row[0] for row in rows], pa.string()),
            "id": pa.array([row[1] for row in rows], pa.int64()),
            "v": pa.array([row[2] for row in rows], pa.int64()),
            "n": pa.array([row[3] for row in rows], pa.int64()),
        }
        if self.keyed:
            columns["operation"] = pa.array(
                ["destroy" if row[2] is None else "put" for row in rows], pa.string()
            )
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _save(self, process: Process, checkpoint: QueryCheckpoint) -> QueryCheckpoint:
        def save() -> None:
            self.query_checkpoint = checkpoint
            self.older_query_checkpoints.append(checkpoint)

        self.effect("the checkpoint is written", save)
        process.volatile = checkpoint
        return checkpoint

    def restore_checkpoint(self, checkpoint: QueryCheckpoint) -> None:
        """Restore the query's checkpoint. Only a new process reads it."""
        self.query_checkpoint = checkpoint
        for name in ("sender 1", "sender 2"):
            self.kill(name)

    def sweep(self) -> None:
        """Let two days pass, then sweep frames that no manifest names."""
        self.now += int(2 * ORPHAN_AGE * 1000)
        manager = AckManager(
            self.log, self.checkpoints, self.policy, ACK_TIMEOUT, lambda: self.now, self.sites
        )
        with suppress(ChannelError):
            manager.sweep(ORPHAN_AGE)

    def lose_checkpoint(self) -> None:
        """Lose all that the sending site keeps beside the channel. A query starts over under
        another ID."""
        self.checkpoints.newest = None
        if self.user:
            self.restore_checkpoint(QueryCheckpoint(f"query-{self.queries}"))
            self.queries += 1

    # --- what must hold

    def appended(self, manifest: Manifest) -> None:
        if manifest.kind == SNAPSHOT:
            self.snapshot = manifest.last_version
        if self.user:
            assert self.writing not in self.written, (
                f"epoch {manifest.epoch} is an equal replay of {self.writing}"
            )
            assert self.writing.end is not None
            self.written.add(self.writing)
            self.prefix[manifest.epoch] = max(self.writing.end, self.prefix[manifest.epoch - 1])

    def check_durable(self, site: str, epoch: int, what: str) -> None:
        """Check that everything through an epoch is in the site's table, marked, and in its
        ledger."""
        marked = max((part.epoch for part in applied(self.tables[site].marks())), default=0)
        assert marked >= epoch, f"{what}, but the marks of its table end at {marked}"
        ledgered = self.ledgers[site].newest_epoch()
        assert ledgered >= epoch, f"{what}, but its ledger ends at {ledgered}"

    def check_target(self, site: str, mark: Mark) -> None:
        """Check, after every write, that the target holds exactly what the source held at the
        version that the mark names."""
        table = self.tables[site]
        (part,) = mark.applied
        if self.user:
            expected = self._expected_events(self.prefix[part.epoch])
        else:
            expected = self.source.expected(part.through, self.snapshot)
        actual: Any = table.bag
        if self.keyed:
            actual = {
                key: tuple(row.get(name) for name in self.names) for key, row in table.rows.items()
            }
        assert actual == expected, (
            f"{site} after epoch {part.epoch}: holds {actual}, should hold {expected}"
        )

    def _expected_events(self, count: int) -> Any:
        if not self.keyed:
            return Counter((*event, n) for n, event in enumerate(self.events[:count]))
        held: dict[int, Row] = {}
        for n, event in enumerate(self.events[:count]):
            held.pop(event[1], None)
            if event[2] is not None:
                held[event[1]] = (*event, n)
        return held

    # --- the end

    def settle(self) -> None:
        """End all faults, run everything until nothing is left to do, and check that all sites
        agree."""
        self.doom, self.channel.script = None, []
        self.channel.deliver()
        for name, process in self.processes.items():
            if process.steps is not None:
                self.advance(name)
        if not self.log.acks():
            # An overdue epoch is announced only to sites that have acked before. All acks are lost
            # here, so receivers start over.
            for name in SITE_OF.keys() & self.processes.keys():
                self.kill(name)
        quiet = 0
        for _ in range(120):
            busy = [self._works(name) for name in self.processes]
            self.now += ACK_TIMEOUT
            quiet = 0 if any(busy) else quiet + 1
            if quiet * ACK_TIMEOUT > WHOLE_LISTING_INTERVAL * 1000:
                break
        else:
            raise AssertionError("the world does not come to rest")
        self._check_rest()

    def _works(self, name: str) -> bool:
        """Run one round, if something wakes the process. Returns whether something is left to
        do."""
        process = self.processes[name]
        if name in SITE_OF and process.settled == self._signals(process):
            return False
        before = len(self.watched.appended), len(self.watched.old_acks)
        self.advance(name)
        if process.error is not None or before != (
            len(self.watched.appended),
            len(self.watched.old_acks),
        ):
            return True
        if isinstance(process.result, ApplyResult):
            return process.result.again
        if isinstance(process.result, StreamState):
            return process.result.backlog > 0
        return process.result not in (None, 0)

    def _signals(self, process: Process) -> Any:
        """Return what wakes a receiver when it changes."""
        process.eyes = process.eyes or self.open_channel()
        return process.eyes.heads()

    def _check_rest(self) -> None:
        last = max(self.watched.appended, default=0)
        if self.user:
            assert self.prefix[last] == len(self.events), (
                f"{len(self.events)} events, sent {self.prefix[last]}"
            )
        else:
            newest = len(self.source.versions) - 1
            through = self.watched.manifests[last].last_version if last else -1
            final = self.source.expected(newest, self.snapshot)
            assert self.source.expected(through, self.snapshot) == final, (
                f"published through {through} of {newest}"
            )
        if not last:
            return
        acks = self.log.acks()
        for site in self.sites:
            self.check_durable(site, last, "at rest")
            assert acks[site].applied == last and acks[site].held is None, (
                f"{site} says {acks[site]} at rest"
            )
        for name in ("acks 1", "acks 2"):
            self.advance(name)
        assert self.watched.inner.stream_epochs(STREAM) == [last], "acked manifests are still there"
        self.sweep()
        assert not self.watched.inner.frames(STREAM), "acked or orphaned frames are still there"
        assert self.channel.announced(STREAM) is None, (
            "an announcement that is acked is still there"
        )


def seeded_uuid4() -> Callable[[], uuid.UUID]:
    """Return a ``uuid.uuid4`` with the same sequence in every schedule."""
    numbers = random.Random(0)
    return lambda: uuid.UUID(int=numbers.getrandbits(128), version=4)


__all__ = ["CHANNEL", "STREAM", "Fault", "NAMES", "SITE_OF", "World", "seeded_uuid4"]
