"""What the processes of the simulation do about copies: they serve them, take them, and look after
requests that nobody answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from simulation.channels import SimulatedChannel
from simulation.peers import AppliedRows, FrameWriter, LedgerEventIds
from simulation.processes import StreamTask, TableTask, Task
from simulation.sources import CapturedSource, CleanedMeanwhileError, SourceTable
from simulation.targets import SimulatedTarget
from spark_wan.apply.applier import ApplyResult
from spark_wan.apply.plan import gap_behind
from spark_wan.apply.take import CopyTaker
from spark_wan.errors import SourceUnreadableError, WanError
from spark_wan.ledger.ledger import Ledger
from spark_wan.log.frames import BatchLimits
from spark_wan.log.stream_log import StreamLog
from spark_wan.receiver.copies import AppliedTable
from spark_wan.sender.copies import copy_settings
from spark_wan.sender.serve import CopyServer, CopySource, PublishedTable
from spark_wan.steps import Steps
from spark_wan.topology.routes import Serving
from spark_wan.wire.manifest import Manifest

if TYPE_CHECKING:
    from simulation.copies import CopyWorld

HOUR = 3_600_000
WHOLE = ("tacoma", "b")
"""Sites whose copies go whole; those to others go in parts."""


@dataclass
class Requests:
    """The requests of a site to another one, as its ack in the channel tells of them."""

    states: list[str] = field(default_factory=lambda: [""])
    """All that the ack ever said; empty: no request."""
    taken: set[str] = field(default_factory=set)
    """Those that were answered by a copy which is, or was, in the table."""

    @property
    def now(self) -> int:
        return len(self.states) - 1


@dataclass(eq=False)
class CopyTask(Task):
    """A task about the copies that a site serves to another one."""

    by: Serving = None  # type: ignore[assignment]

    @property
    def copy_world(self) -> CopyWorld:
        return self.world  # type: ignore[return-value]

    @property
    def copies(self) -> str:
        return self.by.stream

    @property
    def channel(self) -> SimulatedChannel:
        return self.world.channels[self.by.sender.channel]

    @property
    def requests(self) -> Requests:
        return self.copy_world.requests[self.copies]

    def copies_log(self) -> StreamLog:
        return StreamLog(self.channel.faulty, self.copies)


@dataclass(eq=False)
class ServesCopies(CopyTask, StreamTask):
    """Serves copies: in a sender, or in a receiver of a site that has one itself."""

    seen: tuple[int, int] | None = None
    """How often the request had changed when it was served, or there was nothing to serve; and when
    that was."""
    looking: int = 0
    rows: AppliedRows | None = None
    """What a receiver reads."""

    def _round(self) -> Iterator[str]:
        """As :class:`spark_wan.sender.copies.OutboundCopy` makes it."""
        self.looking = self.requests.now
        if self.volatile is None:
            source = self._published() if self.by.by_writer else self._applied()
            rate = None if self.by.site in WHOLE else 1
            log, clock = self.copies_log(), self.site.clock
            self.volatile = CopyServer(copy_settings(self.by), log, source, clock, rate=rate)
        return self.volatile.round()  # type: ignore[no-any-return]

    @property
    def _limits(self) -> BatchLimits:
        return BatchLimits(self.by.sender.batch_size, self.by.sender.batch_bytes)

    def _published(self) -> CopySource:
        written, _ = self.world.sources[self.stream.name]
        assert isinstance(written, SourceTable)
        source = CapturedSource(written, self.channel.faulty, self._limits)
        return PublishedTable(self.settings(), self.log, source)

    def _applied(self) -> CopySource:
        """As :func:`spark_wan.receiver.copies.peer_copy` makes it."""
        site, table, name = self.site, self.site.targets[self.by.table.name], self.by.table.name
        names = self.world.sources[self.stream.name][0].columns
        writer = FrameWriter(self.channel.faulty, self._limits)
        self.rows = AppliedRows(table, names, writer)
        synchronizer = self.process.synchronizer(name)
        assert synchronizer is not None
        recorded = LedgerEventIds(name, site.ledger.tables[name], writer)
        ledger = Ledger(site.name, name, site.ledger, clock=site.clock)
        return AppliedTable(
            copy_settings(self.by),
            site.name,
            ledger,
            SimulatedTarget(
                table=table,
                ledger=site.ledger.tables[name],
                channel=self.channel.faulty,
                effect=self.world.effect,
                begins_early=False,
                hints=False,
                names=names,
                on_write=self.world.check_target,
            ),
            self.rows,  # type: ignore[arg-type]
            synchronizer.waits,
            recorded if table.root is not None else None,  # type: ignore[arg-type]
        )

    def base(self, manifest: Manifest) -> int | None:
        """Return the source's version with which the rows of a copy begin (see
        :class:`DeltaTable`); None: that of this site's stream."""
        return manifest.last_version if self.rows is None else self.rows.base

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
class TakesCopies(CopyTask, TableTask):
    """Takes copies, in a receiver."""

    asked: int = 0
    """How often the request had changed when the round began."""

    def _round(self) -> Steps[ApplyResult | None]:
        """As :meth:`spark_wan.receiver.table.InboundTable._apply_listed` does."""
        self.asked = self.requests.now
        if self.volatile is None:
            self.volatile = self._taker()
        if self.world.is_paused(self.process, self.channel, self.copies):
            return None
        numbers = self.channel.watched.inner.stream_epochs(self.copies)
        if not numbers:
            return None
        return (yield from self.volatile.round(numbers))

    def _taker(self) -> CopyTaker:
        table, asks = self.stream.table, self.process.synchronizer(self.stream.table.name)
        assert asks is not None
        taker = CopyTaker(
            self.site.name,
            table.name,
            self.copies_log(),
            self.target(),
            self.process.ledger(table.name),
            writers=table.writers,
            from_writer=asks.is_by_writer(self.copies),
        )
        taker.refused = partial(asks.refused, self.copies)
        if table.source == "sink":
            taker.gap_behind = partial(
                gap_behind,
                logs=asks.requests.inbound,
                site=self.site.name,
                writers=table.writers,
                new_logs=frozenset,
            )
        return taker

    def base_of(self, copy: Manifest) -> int | None:
        return self.copy_world.bases[copy.stream, copy.epoch]

    def ended(self) -> str:
        result = self.result
        if not isinstance(result, ApplyResult):
            return super().ended()
        self.process.awaited.pop(self.copies, None)
        self.process.waits.pop(self.copies, None)
        if result.awaits_copy:
            self.process.awaited[self.copies] = self.volatile
            self.process.waits[self.copies] = self.requests.now
        if result.held is not None:
            return f"held: {result.cause}"
        return super().ended()

    def has_more(self) -> bool:
        result = self.result
        held = isinstance(result, ApplyResult) and (result.held is not None or result.awaits_copy)
        return held and not self.is_refused()

    def is_refused(self) -> bool:
        """Whether no site serves a copy. Somebody has to ask again."""
        return "no site serves a copy" in str(getattr(self.result, "cause", None))


@dataclass(eq=False)
class PassesOver(CopyTask):
    """Asks another site when one does not answer, in a receiver."""

    def _round(self) -> Iterator[str]:
        """As :class:`spark_wan.receiver.requests.OpenRequests` does."""
        synchronizer = self.process.synchronizer(self.by.table.name)
        assert synchronizer is not None
        synchronizer.pass_over(self.copies)
        return None
        yield
