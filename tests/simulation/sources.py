"""Simulated source tables: what their site's users do to them, and how a publisher sees them.

Netting, batching and encoding are the product's own.
"""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pyarrow as pa
from fakes import schema

from simulation.delta_log import LOG_RETENTION, Clock, DeltaLog
from spark_wan.capture.netting import COMMIT_VERSION, RANK, net
from spark_wan.capture.ranges import ALL_PARTS, CaptureRange, CaptureResult, Part
from spark_wan.delta.commits import Commit
from spark_wan.errors import SourceError
from spark_wan.events.operations import OP, VERSION, Operation
from spark_wan.log.frames import BatchLimits, BatchPublisher
from spark_wan.sender.serve import PACED_SECONDS
from spark_wan.wire.frame import FrameHeader, FrameRef

Row = tuple[Any, ...]
Pairs = Sequence[tuple[int, "int | None"]]
"""Keys with their new value; None deletes."""


class CleanedMeanwhileError(SourceError):
    """Log cleanup has removed what a sender was about to read. Its next round plans again."""


TABLE_BYTES = 2 * PACED_SECONDS
"""Size of the files of any table: a copy at one byte a second goes in two parts."""


@dataclass
class SourceVersion:
    """A version of a source: its commit, its change feed, and the rows after it."""

    commit: Commit
    columns: dict[str, str]
    changes: list[tuple[str, Row]]
    rows: dict[int, Row] | list[Row]


@dataclass
class SourceTable:
    """A Delta table at the site that writes it. Columns ``id`` and ``v``, and ``w`` once it was
    added; the key is ``id``, or there is none."""

    name: str
    site: str
    keyed: bool
    clock: Clock
    versions: list[SourceVersion] = field(default_factory=list)
    """All there ever were."""
    vacuumed: int = 0
    """Files of versions before this one are gone."""
    columns: ClassVar = ("id", "v", "w")
    """All that it may ever have."""

    def __post_init__(self) -> None:
        self.log = DeltaLog(self.clock)
        self._add("CREATE TABLE", [], {} if self.keyed else [], {"id": "long", "v": "long"})

    @property
    def id(self) -> str:
        return f"{self.name} at {self.site}"

    def change(self, pairs: Pairs, style: str, user_metadata: str | None) -> None:
        """Commit ``pairs``. ``style`` says with which change rows the feed shows them."""
        newest = self.versions[-1]
        width = len(newest.columns)
        if isinstance(newest.rows, list):
            added: list[Row] = [(key, value or 0, value)[:width] for key, value in pairs]
            self._add(
                "WRITE",
                [("insert", row) for row in added],
                newest.rows + added,
                metadata=user_metadata,
            )
            return
        rows = dict(newest.rows)
        for key, value in pairs:
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = (key, value, value)[:width]
        both = (
            ("delete", "insert")
            if style == "overwrite"
            else ("update_preimage", "update_postimage")
        )
        gone, came = (
            ("update_preimage", "update_postimage")
            if style == "keys change"
            else ("delete", "insert")
        )
        changes: list[tuple[str, Row]] = []
        for key in sorted({key for key, _ in pairs}):
            old, new = newest.rows.get(key), rows.get(key)
            if old is not None:
                changes.append((both[0] if new is not None else gone, old))
            if new is not None:
                changes.append((both[1] if old is not None else came, new))
        self._add("MERGE", changes, rows, metadata=user_metadata)

    def empty(self) -> None:
        """DELETE without a condition."""
        rows = self.versions[-1].rows
        assert isinstance(rows, dict)
        self._add(
            "DELETE", [("delete", row) for row in rows.values()], {}, parameters={"predicate": "[]"}
        )

    def optimize(self) -> None:
        self._add("OPTIMIZE", [], self.versions[-1].rows)

    def vacuum(self) -> None:
        self.vacuumed = len(self.versions) - 1

    def rows_at(self, version: int) -> list[Row]:
        rows = self.versions[version].rows
        return rows if isinstance(rows, list) else [*rows.values()]

    def add_column(self) -> None:
        """Add column ``w``, once; old rows have null there."""
        newest = self.versions[-1]
        if "w" in newest.columns:
            return
        if isinstance(newest.rows, list):
            rows: Any = [(*row, None) for row in newest.rows]
        else:
            rows = {key: (*row, None) for key, row in newest.rows.items()}
        self._add("ADD COLUMNS", [], rows, {**newest.columns, "w": "long"})

    def _add(
        self,
        operation: str,
        changes: list[tuple[str, Row]],
        rows: Any,
        columns: dict[str, str] | None = None,
        metadata: str | None = None,
        parameters: Mapping[str, str] | None = None,
    ) -> None:
        commit = self.log.add(operation, metadata, parameters, {"numOutputRows": str(len(changes))})
        self.versions.append(
            SourceVersion(commit, columns or self.versions[-1].columns, changes, rows)
        )

    def expected(self, through: int, snapshot: int | None) -> Any:
        """What a target must hold that has everything through a version: netted here once more,
        from the rows themselves. ``snapshot``: the version whose rows it began with; None, or below
        0: there is none."""
        if snapshot is not None and snapshot < 0:
            snapshot = None
        if not self.keyed:
            first = 0 if snapshot is None else snapshot + 1
            began = [] if snapshot is None else self.versions[snapshot].rows
            rows = Counter(_padded(row) for row in began)
            for version in self.versions[first : through + 1]:
                if not version.commit.stays_here:
                    rows.update(_padded(row) for _, row in version.changes)
            return rows
        first = 0 if snapshot is None else snapshot + 1
        held = {} if snapshot is None else dict(self.versions[snapshot].rows)  # type: ignore[arg-type]
        for before, version in itertools.pairwise(self.versions[max(first - 1, 0) : through + 1]):
            old, new = before.rows, version.rows
            assert isinstance(old, dict) and isinstance(new, dict)
            if version.commit.stays_here or version.commit.operation == "ADD COLUMNS":
                continue
            for key in old.keys() | new.keys():
                if key not in new:
                    held.pop(key, None)
                elif old.get(key) != new[key]:
                    held[key] = new[key]
        return {key: _padded(row) for key, row in held.items()}


@dataclass
class CapturedSource:
    """One publisher's view of a source (see :class:`spark_wan.sender.publish.SourceTable`)."""

    table: SourceTable
    channel: Any
    limits: BatchLimits

    def table_id(self) -> str:
        return self.table.id

    def look(self, version: int) -> object:
        return version if version == len(self.table.versions) - 1 else object()

    def newest(self) -> Commit:
        return self.table.log.commits[-1]

    def history(self, after: int) -> list[Commit]:
        return self.table.log.history(after)

    def commit(self, version: int) -> Commit | None:
        log = self.table.log
        return log.commits[version] if log.begins <= version < len(log.commits) else None

    def log_retention(self) -> int:
        return LOG_RETENTION

    def history_retention(self, afresh: bool = False) -> int:
        return LOG_RETENTION

    def schema_at(self, version: int) -> Mapping[str, Any]:
        self._read(version)
        return schema(**self.table.versions[version].columns)

    def is_empty_at(self, version: int) -> bool:
        self._read(version)
        return not self.table.versions[version].rows

    def capture(self, planned: CaptureRange, header: FrameHeader) -> CaptureResult:
        self._read(planned.first_version)
        rows = [
            (row, version, change)
            for version in range(planned.first_version, planned.last_version + 1)
            if version not in planned.left_out
            for change, row in self.table.versions[version].changes
        ]
        return self._publish(rows, planned.schema, header)

    def check_feed(self) -> None:
        pass

    def amount(self, version: int) -> tuple[int, int | None]:
        self._read(version)
        return len(self.table.rows_at(version)), TABLE_BYTES

    def snapshot(
        self,
        version: int,
        schema: Mapping[str, Any],
        header: FrameHeader,
        part: Part = ALL_PARTS,
    ) -> CaptureResult:
        self._read(version)
        rows = [row for row in self.table.rows_at(version) if row[0] % part.of == part.number - 1]
        return self._publish(
            [(row, version, "insert") for row in rows], schema, header, snapshot=version
        )

    def _read(self, version: int) -> None:
        if version < self.table.log.begins:
            raise CleanedMeanwhileError(f"{self.table.name}: version {version} cannot be read")

    def _publish(
        self,
        rows: list[tuple[Row, int, str]],
        schema: Mapping[str, Any],
        header: FrameHeader,
        snapshot: int | None = None,
    ) -> CaptureResult:
        """Two tasks, by key; each nets, encodes and publishes its part in tiny batches.
        The files of a ``snapshot`` are read task by task."""
        names = [entry["name"] for entry in schema["fields"]]
        keyed = self.table.keyed
        if keyed:
            rows = sorted(rows, key=lambda entry: (entry[0][0], entry[1], RANK[entry[2]]))
        frames: list[FrameRef] = []
        versions: set[int] = set()
        split = False
        for part in (0, 1):
            if snapshot is not None and snapshot < self.table.vacuumed:
                raise CleanedMeanwhileError(
                    f"{self.table.name}: files of version {snapshot} are not there any more"
                )
            mine = [entry for entry in rows if entry[0][0] % 2 == part]
            batches = (
                _change_rows(mine[at : at + 3], names, keyed) for at in range(0, len(mine), 3)
            )
            publisher = BatchPublisher(
                self.channel, replace(header, attempt=uuid.uuid4().hex), self.limits
            )
            if keyed:
                events = ((netted.events, netted.run_starts) for netted in net(batches, ("id",)))
            else:
                events = ((batch, None) for batch in batches)
            publisher.publish(_noted(events, versions))
            frames += publisher.refs
            split = split or publisher.split_runs
        return CaptureResult(
            tuple(sorted(frames, key=lambda ref: ref.path)), not split, tuple(sorted(versions))
        )


def _noted(
    events: Iterable[tuple[pa.RecordBatch, Any]], versions: set[int]
) -> Iterator[tuple[pa.RecordBatch, Any]]:
    for batch, starts in events:
        versions.update(batch.column(VERSION).to_pylist())
        yield batch, starts


def _change_rows(
    entries: list[tuple[Row, int, str]], names: list[str], keyed: bool
) -> pa.RecordBatch:
    """Change rows as :func:`net` takes them; of a keyless table the events themselves, all of them
    inserts."""
    versions = pa.array([version for _, version, _ in entries], pa.int64())
    columns = [
        pa.array([row[place] for row, _, _ in entries], pa.int64()) for place in range(len(names))
    ]
    if keyed:
        ranks = pa.array([RANK[change] for _, _, change in entries], pa.int8())
        return pa.RecordBatch.from_arrays(
            [*columns, versions, ranks], names=[*names, COMMIT_VERSION, "_wan_rank"]
        )
    creates = pa.array([int(Operation.CREATE)] * len(entries), pa.int8())
    return pa.RecordBatch.from_arrays([creates, versions, *columns], names=[OP, VERSION, *names])


def _padded(row: Row) -> Row:
    return (*row, None)[:3]
