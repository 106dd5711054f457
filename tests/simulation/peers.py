"""What a site has of a table that it serves copies of, though it does not write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from fakes import schema

from simulation.sources import TABLE_BYTES, CleanedMeanwhileError
from simulation.stores import TableRows
from simulation.targets import DeltaTable
from spark_wan.capture.ranges import ALL_PARTS, CaptureResult, Part
from spark_wan.events.operations import EVENT_ID_COLUMNS, OP, VERSION, Operation
from spark_wan.ledger.event_ids import tokens_through
from spark_wan.ledger.ledger import Ledger
from spark_wan.log.frames import BatchLimits, BatchPublisher
from spark_wan.wire.frame import FrameHeader

_TYPES = {"long": pa.int64(), "string": pa.string()}


@dataclass
class FrameWriter:
    """Writes the frames of copies."""

    channel: Any
    limits: BatchLimits

    def write(
        self,
        rows: Sequence[Mapping[str, Any]],
        columns: Mapping[str, Any],
        version: int,
        header: FrameHeader,
    ) -> CaptureResult:
        """Write ``columns`` of rows as created at a version."""
        fields = columns["fields"]
        arrays = {
            OP: pa.array([int(Operation.CREATE)] * len(rows), pa.int8()),
            VERSION: pa.array([version] * len(rows), pa.int64()),
        } | {
            entry["name"]: pa.array([row.get(entry["name"]) for row in rows], _TYPES[entry["type"]])
            for entry in fields
        }
        batch = pa.RecordBatch.from_arrays([*arrays.values()], names=[*arrays])
        publisher = BatchPublisher(self.channel, header, self.limits)
        publisher.publish([(batch, None)])
        return CaptureResult(tuple(publisher.refs), True, (version,) * bool(rows))


@dataclass
class AppliedRows:
    """The versions of a target, in place of :class:`spark_wan.capture.source.DeltaSource`."""

    table: DeltaTable
    names: Sequence[str]
    """All columns that the table may ever have."""
    writer: FrameWriter
    base: int | None = None
    """What the rows that were written last began with (see :class:`DeltaTable`)."""

    def schema_at(self, version: int) -> Mapping[str, Any]:
        return schema(**self._at(version)["columns"])

    def amount(self, version: int) -> tuple[int, int | None]:
        return len(self._rows(version)), TABLE_BYTES

    def rows_at(
        self,
        version: int,
        schema: Mapping[str, Any],
        header: FrameHeader,
        *,
        part: Part = ALL_PARTS,
        source_version: int,
    ) -> CaptureResult:
        rows = [row for row in self._rows(version) if row["id"] % part.of == part.number - 1]
        self.base = self._at(version)["base"]
        return self.writer.write(rows, schema, source_version, header)

    def _rows(self, version: int) -> list[dict[str, Any]]:
        state = self._at(version)
        bag = [dict(zip(self.names, row, strict=True)) for row in state["bag"].elements()]
        return [*state["rows"].values(), *bag]

    def _at(self, version: int) -> dict[str, Any]:
        if version < self.table.vacuumed or version not in self.table.states:
            raise CleanedMeanwhileError(
                f"{self.table.name}: files of version {version} are not there any more"
            )
        return self.table.states[version]


@dataclass(frozen=True)
class ReadIds:
    """Event IDs as one version of the ledger has them: (event ID, content hash)."""

    ids: Sequence[tuple[str, str]]
    floor: int | None = None


@dataclass
class LedgerEventIds:
    """The event IDs in a site's ledger, in place of
    :class:`spark_wan.receiver.copied_ids.RecordedEventIds`."""

    table: str
    ledger: TableRows
    writer: FrameWriter

    def cut(self, ledger: Ledger) -> ReadIds:
        marks, found = ledger.stored_marks(), [*self.ledger.ids]
        tokens = [token for _, _, token, _ in found]
        counting = tokens_through(
            ledger.last_apply, tokens, marks, table=self.table, since=ledger.copied
        )
        return ReadIds([each[:2] for each in found if each[2] in counting])

    def write(self, cut: ReadIds, header: FrameHeader) -> CaptureResult:
        names = [entry["name"] for entry in EVENT_ID_COLUMNS["fields"]]
        rows = [dict(zip(names, (*each, None), strict=True)) for each in cut.ids]
        return self.writer.write(rows, EVENT_ID_COLUMNS, -1, header)
