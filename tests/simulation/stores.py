"""What is durable at a site, beside its tables: the ledger, and the sender's checkpoints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simulation import invariants
from simulation.delta_log import Reader
from simulation.sources import SourceTable
from simulation.targets import DeltaTable, epochs_of, through
from spark_wan.ledger.event_ids import RecordedIds, counting_tokens
from spark_wan.wire.checkpoint import SenderCheckpoint
from spark_wan.wire.ledger import (
    FoldedIds,
    HistoryPosition,
    LedgerRecord,
    LedgerRow,
    Summary,
)

Effect = Callable[[str, Callable[[], Any]], Any]
"""Runs what changes the outside world: a process may die right before or right after it."""


@dataclass
class TableRows:
    """What a site's ledger has of one table."""

    rows: list[LedgerRow] = field(default_factory=list)
    positions: list[HistoryPosition] = field(default_factory=list)
    summaries: list[Summary] = field(default_factory=list)
    """Claims too."""
    ids: list[tuple[str, str, str, str]] = field(default_factory=list)
    """(event ID, content hash, token, origin)"""

    def newest_epoch(self, stream: str) -> int:
        """The newest epoch of a stream's only log that is ledgered."""
        parts = (part for row in self.rows for part in row.mark.applied)
        applied = (part.epoch for part in parts if part.stream == stream)
        logs = (log for summary in self.summaries for log in summary.logs)
        folded = (epoch for name, _, epoch, _ in logs if name == stream)
        return max([0, *applied, *folded])

    def through(self, root: str | None) -> int:
        """The version of the only origin, or the epoch of its ``root``, through which everything is
        ledgered, since the newest copy."""
        newest = max((each.copied for each in self.summaries), default=0)
        folded = [entry[3] for each in self.summaries for entry in each.through]
        if root is not None:
            folded = [epoch for each in self.summaries for epoch in epochs_of(each.logs, root)]
        marks = [row.mark for row in self.rows]
        copied = max((mark.apply for mark in marks if mark.replaced is not None), default=0)
        if copied > newest:
            folded, newest = [], copied
        return max([-1, *folded, *(through(mark, root) for mark in marks if mark.apply >= newest)])

    def marked_version(self) -> int:
        """The target's version with the newest mark that is ledgered."""
        folded = ((each.apply, each.target_version) for each in self.summaries)
        return max([(0, -1), *folded, *((r.mark.apply, r.target_version) for r in self.rows)])[1]

    def known_ids(self, since: int) -> dict[str, str]:
        """Event IDs that took effect, from an apply on."""
        marked = {row.mark.token for row in self.rows if row.mark.apply >= since}
        counting = counting_tokens((token for _, _, token, _ in self.ids), marked, since)
        return {event: content for event, content, token, _ in self.ids if token in counting}


@dataclass
class SimulatedLedger:
    """A site's ledger (see :class:`spark_wan.ledger.ledger.LedgerStore`)."""

    effect: Effect
    tables: dict[str, TableRows] = field(default_factory=lambda: defaultdict(TableRows))

    def load(self, table: str) -> Sequence[LedgerRecord]:
        of = self.tables[table]
        return [*of.rows, *of.positions, *of.summaries]

    def append(self, table: str, rows: Sequence[LedgerRow | HistoryPosition]) -> None:
        def append() -> None:
            of = self.tables[table]
            of.rows += [row for row in rows if isinstance(row, LedgerRow)]
            of.positions += [row for row in rows if isinstance(row, HistoryPosition)]

        self.effect("the ledger is written", append)

    def names(self, target_id: str) -> set[str]:
        return {
            name
            for name, of in self.tables.items()
            if any(row.target_id == target_id for row in (*of.rows, *of.summaries))
        }

    def recorded_ids(self, table: str) -> RecordedIds:
        ids = self.tables[table].ids
        return RecordedIds.of((origin, token, None) for _, _, token, origin in ids)

    def claim(self, table: str, claim: Summary) -> None:
        def add() -> None:
            if all(other.number < claim.number for other in self.tables[table].summaries):
                self.tables[table].summaries.append(claim)

        self.effect("a fold is claimed", add)

    def rename_ids(self, table: str, tokens: Mapping[FoldedIds, Collection[str]]) -> None:
        def rename() -> None:
            of = self.tables[table]
            for ids, replaced in tokens.items():
                of.ids = [
                    (event, content, ids.token if token in replaced else token, origin)
                    for event, content, token, origin in of.ids
                ]

        self.effect("event IDs are renamed", rename)

    def rename_letters(self, table: str, tokens: Collection[str], token: str) -> None:
        invariants.nothing_is_dropped(table, tokens)

    def replace(self, table: str, summary: Summary, before: int) -> None:
        def replace() -> None:
            of = self.tables[table]
            of.rows = [row for row in of.rows if row.mark.apply > summary.apply]
            of.positions = [each for each in of.positions if each.target_version >= before]
            of.summaries = [each for each in of.summaries if each.apply > summary.apply]
            of.summaries.append(summary)

        self.effect("the marks are folded", replace)


@dataclass
class SimulatedCheckpoints:
    """The checkpoints of a site's senders (see
    :class:`spark_wan.log.writer.CheckpointStore`)."""

    effect: Effect
    newest: dict[str, SenderCheckpoint] = field(default_factory=dict)
    """By stream."""
    older: dict[str, list[SenderCheckpoint]] = field(default_factory=lambda: defaultdict(list))
    """All that were saved."""

    def load(self, stream: str) -> SenderCheckpoint | None:
        return self.newest.get(stream)

    def save(self, stream: str, checkpoint: SenderCheckpoint) -> None:
        def save() -> None:
            self.newest[stream] = checkpoint
            self.older[stream].append(checkpoint)

        self.effect("the sender's checkpoint is written", save)


@dataclass
class Site:
    """A site: its clock, which is wrong by ``skew`` milliseconds, and what is durable there."""

    name: str
    skew: int
    time: Callable[[], int]
    effect: Effect
    sources: dict[str, SourceTable] = field(default_factory=dict)
    """The tables that it writes."""
    targets: dict[str, DeltaTable] = field(default_factory=dict)
    """The tables that it receives."""
    readers: dict[str, Reader] = field(default_factory=dict)
    """What its receivers could see of the latter."""

    def __post_init__(self) -> None:
        self.ledger = SimulatedLedger(self.effect)
        self.checkpoints = SimulatedCheckpoints(self.effect)

    def clock(self) -> int:
        """Return the time by the site's clock, in milliseconds."""
        return self.time() + self.skew

    def add_target(self, name: str, root: str | None) -> None:
        """Make room for a table that a receiver will create. ``root``: see :class:`DeltaTable`."""
        table = self.targets[name] = DeltaTable(name, self.name, self.clock, root)
        self.readers[name] = table.log.read_by(self.ledger.tables[name].marked_version)
