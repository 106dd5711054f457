"""Publishing a captured table: from its history to the next manifest of its stream.

:meth:`Publisher.round` is the sender's numbered path. Each step is idempotent; a crash between any two changes nothing:

    publish.1  log-read         the newest manifest says how far the stream was published
    publish.2  source-checked   the source is the table, and in the state, that the log knows
    publish.3  range-planned    whole commits, chosen from the history
    publish.4  frames-written   seen by nobody yet
    publish.5  manifest-added   created if absent: now the epoch exists. If somebody else was first: begin again
    publish.6  remembered       the sender's memory, which only notices a lost channel
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from spark_wan.capture.ranges import CaptureRange, CaptureResult, RangePlanner, check_columns_follow
from spark_wan.channels.base import write_of
from spark_wan.channels.log import StreamLog
from spark_wan.control.decisions import NEW_LOG, Decisions
from spark_wan.delta.commits import Commit, is_same_commit, record_after
from spark_wan.errors import (
    COPY,
    ChangeError,
    ManifestExists,
    SourceError,
    TableReplacedError,
    WanError,
)
from spark_wan.events.columns import check_columns, check_keys, fingerprint
from spark_wan.sender.acks import STALE_AGE, append_in_time, are_safe
from spark_wan.sender.memory import CheckpointStore, check_acks, check_log
from spark_wan.steps import Steps
from spark_wan.wire.checkpoint import PublishedState, SenderCheckpoint
from spark_wan.wire.frame import FrameHeader
from spark_wan.wire.manifest import CAPTURE, EVENTS, SNAPSHOT, CommitRef, Manifest

T = TypeVar("T")

QUIET_COMMITS = 100
"""So many commits without events are recorded by a manifest without frames, before the history can lose them. Fewer are recorded once they are
old (:func:`spark_wan.delta.commits.record_after`)."""

QUIET_PLANNED = "publish.3 quiet-range-planned"
"""The range needs no frames."""
PLANNED = "publish.3 range-planned"
LARGE_PLANNED = "publish.3 large-range-planned"
"""The range is a snapshot, or a commit with more rows than an epoch should have: to write its frames may take long."""


class SourceTable(Protocol):
    """A table as the publisher sees it. The Spark adapter and the simulation each have one."""

    def table_id(self) -> str:
        """The table's ID. Raises SourceError when there is no table."""

    def latest(self, known: int) -> int:
        """The newest version; ``known + 1`` will do when it is higher. Cheap when it is ``known``: it is asked all the time."""

    def stamp(self, version: int) -> object:
        """What changes when the commit of a version may be another one than before: the table was replaced, or put back and written to again. Cheap."""

    def newest(self) -> Commit:
        """The newest commit."""

    def history(self, after: int) -> list[Commit]:
        """Commits above ``after`` that the history still has, ascending; ``after`` = -1: all."""

    def commit(self, version: int) -> Commit | None:
        """One commit of the history, or None when it is no longer there."""

    def log_retention(self) -> int:
        """How long the table's log keeps a commit, in milliseconds. Cheap: may be a day old."""

    def schema_at(self, version: int) -> Mapping[str, Any]:
        """The columns at a version, as Spark's schema JSON."""

    def capture(self, planned: CaptureRange, header: FrameHeader) -> CaptureResult:
        """Net the changes of a range and publish their frames. Records rows that cannot be events as dead letters."""

    def snapshot(
        self, version: int, schema: Mapping[str, Any], header: FrameHeader
    ) -> CaptureResult:
        """Publish the rows that are there at a version, as ``create`` events of that version."""


@dataclass(frozen=True)
class StreamSettings:
    """What the topology says of a captured stream. ``start`` is a version, or None for the rows that are there."""

    stream: str
    table: str
    keys: tuple[str, ...]
    origin: str
    sent_to: tuple[str, ...]
    addressees: tuple[str, ...]
    start: int | None
    on_table_operation: str
    max_epoch_rows: int
    selection: str = "all"


@dataclass
class Publisher:
    """Extends the log of one captured stream. Holds hints only; what it decides by is read anew in every round."""

    settings: StreamSettings
    log: StreamLog
    source: SourceTable
    memories: CheckpointStore
    clock: Callable[[], int]
    """Milliseconds since 1970 UTC."""
    decisions: Callable[[], Decisions] = Decisions
    """What the user has decided about the table, as it is recorded now. Asked only where a decision is needed."""
    _published: PublishedState | None = None
    """By the log; or, where a new one begins in place of a lost one, by the memory."""
    _quiet_through: int = -1
    _record_at: int | None = None
    """When the commits through ``_quiet_through`` get a manifest, by ``clock``; None: there are none."""
    _latest: int = -1
    _checked: object = None
    """The source's stamp when it was last compared with the log and found the same; None: not since this publisher began, or since an error
    while it looked."""

    def round(self) -> Steps[Manifest | None]:
        """Publish the next epoch; None when there is nothing to publish. Raises SourceError, SchemaError, LogGapError,
        each of which holds this stream and no other."""
        stream = self.settings.stream
        # The memory first: another publisher may extend the log and remember that in between.
        memory = self.memories.load(stream)
        last = self.log.newest_manifest()
        remembered = memory.published if memory is not None else None
        how: str | None = f"run `spark-wan send --decide {self.settings.table}@{{log}}={NEW_LOG}`"
        replaced = memory is not None and last is not None and last.log_id != memory.log_id
        if not replaced and remembered is None and self.settings.start is None:
            how = None  # it would begin with a snapshot, which no site takes whose table has rows
        check_log(self.log, memory, last, lambda log_id: log_id in self.decisions().new_logs, how)
        if last is not None and last.kind == EVENTS:
            raise SourceError(
                f"{self.settings.table}: the stream carries events that a sink writes, so nothing is captured from a table. Set `source: sink` for it in the "
                "topology; or, to capture the table from now on, give it another name there."
            )
        self._published = PublishedState.by(last) if last is not None else remembered
        yield "publish.1 log-read"
        checked, self._checked = self._checked, None
        newer, stamp = self._newer(), self.source.stamp(self._through)
        if not newer and (self._published is None or stamp == checked):
            self._checked = checked
            return None
        table_id = (
            self.source.table_id()
            if self._published is None
            else self._check_source(self._published)
        )
        self._checked = stamp
        yield "publish.2 source-checked"
        if not newer:
            return None
        planned = self._plan()
        if planned is None:
            return None
        yield self._planned(planned)
        check_acks(self.log, last, how)
        began = self.clock()
        manifest = self._write(last, table_id, planned)
        if manifest is None:
            return None
        yield "publish.4 frames-written"
        try:
            now = self.clock()
            if now - began > STALE_AGE * 1000 and not are_safe(self.log, manifest.frames):
                raise ManifestExists(
                    f"{stream}: its frames may be swept as orphans before a manifest names them"
                )
            append_in_time(self.log, manifest, self.clock)
        except ManifestExists:
            self.log.channel.trim_frames(stream, [frame.path for frame in manifest.frames])
            return (yield from self.round())
        self._record_at = None
        yield "publish.5 manifest-added"
        if memory is None or memory.log_id != manifest.log_id:
            memory = SenderCheckpoint(manifest.log_id, manifest.epoch)
        self.memories.save(
            stream, replace(memory, epoch=manifest.epoch, published=PublishedState.by(manifest))
        )
        yield "publish.6 remembered"
        return manifest

    def _check_source(self, known: PublishedState) -> str:
        """The identity of the last published commit is compared: a source that was put back is held. Returns the table's ID."""
        table = self.settings.table
        if known.keys != self.settings.keys:
            raise SourceError(
                f"{table}: its keys are {list(self.settings.keys)} in the topology, but the stream was published with "
                f"{list(known.keys)}. Event IDs would change; put the keys back, or make {COPY}."
            )
        commit = self.source.commit(known.through)
        if commit is not None and is_same_commit(commit.identity, known.identity):
            return known.table_id
        table_id = self.source.table_id()
        if known.table_id != table_id:
            raise TableReplacedError(
                f"{table}: the table at its place has the ID {table_id}; the stream carries {known.table_id}. It was dropped and made "
                f"again, or replaced. The stream is held; make {COPY}."
            )
        if commit is not None:
            raise TableReplacedError(
                f"{table}: version {known.through} is not the commit that was published: the table was put back to an older state "
                f"and written to again (or its log was copied without its files' times). The stream is held; make {COPY}."
            )
        return table_id

    @property
    def _through(self) -> int:
        return (
            self._published.through
            if self._published is not None
            else (self.settings.start or 0) - 1
        )

    @property
    def _begins_with_snapshot(self) -> bool:
        return self._published is None and self.settings.start is None

    def _newer(self) -> bool:
        """Whether the source may have something to publish. Cheap when it has not: runs at every look."""
        published, table = self._through, self.settings.table
        if self._begins_with_snapshot:
            return True
        known = max(published, self._quiet_through)
        latest = self.source.latest(known)
        if latest > known:
            return True
        if self._published is None:
            if latest < published:
                raise SourceError(
                    f"{table}: it is to start at version {self.settings.start}, but its newest is {latest}."
                )
        elif latest < published:
            raise TableReplacedError(
                f"{table}: its newest version is {latest}, but version {published} was published: the table was put back to an older "
                "state (a restored backup?). The stream is held, so that new commits with old numbers are not mistaken for what "
                f"the remote sites have. Make {COPY}."
            )
        if latest < known:
            # It was put back too, but not behind what was published: what was seen to be quiet may be other commits now.
            self._quiet_through = -1
            return latest > published
        return self._record_at is not None and self.clock() >= self._record_at

    def _plan(self) -> CaptureRange | None:
        settings, before = self.settings, self._published
        if self._begins_with_snapshot:
            return self._first_snapshot()
        published = self._through
        history = self.source.history(published)
        self._latest = history[-1].version if history else published
        planner = RangePlanner(
            settings.table,
            self.source.schema_at,
            max_rows=settings.max_epoch_rows,
            on_table_operation=settings.on_table_operation,
            decision=lambda version: self.decisions().operations.get(version),
            addressees=settings.addressees,
        )
        planned = planner.plan(history, published, before.schema if before is not None else None)
        if planned is None:
            self._record_at = None
            return None
        self._check_columns(planned.schema)
        if before is not None:
            check_columns_follow(
                before.schema, planned.schema, settings.table, planned.first_version
            )
        if planned.quiet and not self._worth_recording(planned):
            self._quiet_through = planned.last_version
            return None
        return planned

    def _planned(self, planned: CaptureRange) -> str:
        """The name of the step, which says how much there is to write."""
        if self._begins_with_snapshot or planned.rows > self.settings.max_epoch_rows:
            return LARGE_PLANNED
        return QUIET_PLANNED if planned.quiet else PLANNED

    def _first_snapshot(self) -> CaptureRange:
        commit = self.source.newest()
        version = commit.version
        schema = self.source.schema_at(version)
        self._check_columns(schema)
        return CaptureRange(0, version, schema, (), (commit,), 0)

    def _check_columns(self, schema: Mapping[str, Any]) -> None:
        check_columns(dict(schema), self.settings.table)
        if self.settings.keys:
            check_keys(dict(schema), list(self.settings.keys), self.settings.table)

    def _worth_recording(self, planned: CaptureRange) -> bool:
        """Whether a range without events gets a manifest: new columns, a long or an old range, or more commits waiting behind it."""
        before = self._published
        new_columns = before is not None and fingerprint(before.schema) != fingerprint(
            planned.schema
        )
        if (
            new_columns
            or planned.last_version < self._latest
            or planned.last_version - planned.first_version + 1 >= QUIET_COMMITS
        ):
            return True
        self._record_at = planned.commits[0].time + record_after(self.source.log_retention())
        return self.clock() >= self._record_at

    def _write(
        self, last: Manifest | None, table_id: str, planned: CaptureRange
    ) -> Manifest | None:
        settings = self.settings
        snapshot = self._begins_with_snapshot
        header = FrameHeader(
            origin=settings.origin,
            sent_to=settings.sent_to,
            stream=settings.stream,
            table=settings.table,
            table_id=table_id,
            selection=settings.selection,
            schema=fingerprint(planned.schema),
            attempt=uuid.uuid4().hex,
            index=0,
            events=0,
        )
        if snapshot:
            captured = self._whole(
                header, lambda: self.source.snapshot(planned.last_version, planned.schema, header)
            )
        elif planned.quiet:
            captured = CaptureResult()
        else:
            planned, captured = self._whole(header, lambda: self._capture(planned, header))
            if not captured.frames and not self._worth_recording(planned):
                self._quiet_through = planned.last_version
                return None
        return Manifest.following(
            last,
            stream=settings.stream,
            kind=SNAPSHOT if snapshot else CAPTURE,
            origin=settings.origin,
            sent_to=settings.sent_to,
            addressees=settings.addressees,
            table=settings.table,
            table_id=table_id,
            selection=settings.selection,
            keys=settings.keys,
            schema=planned.schema,
            first_version=planned.first_version,
            last_version=planned.last_version,
            start=self._published is None,
            commits=_commit_refs(planned.commits, captured.versions),
            identity=planned.identity,
            frames=captured.frames,
            disjoint=captured.disjoint,
            created=self.clock(),
        )

    def _whole(self, header: FrameHeader, write: Callable[[], T]) -> T:
        """Write frames, or leave none: a held stream is tried again and again."""
        try:
            return write()
        except Exception:
            channel, stream = self.log.channel, self.settings.stream
            with suppress(WanError):  # they are swept, then
                own = [
                    path
                    for path, _ in channel.frames(stream)
                    if write_of(path) == write_of(header.attempt)
                ]
                channel.trim_frames(stream, own)
            raise

    def _capture(
        self, planned: CaptureRange, header: FrameHeader
    ) -> tuple[CaptureRange, CaptureResult]:
        """What is before a commit that cannot be carried is not held with it."""
        while True:
            try:
                return planned, self.source.capture(planned, header)
            except ChangeError as error:
                # A range with renames is one: in between, its columns have other names.
                if error.version <= planned.first_version or any(
                    commit.operation == "RENAME COLUMN"
                    for commit in planned.commits
                    if commit.version < error.version
                ):
                    raise
                planned = planned.before(error.version)


def _commit_refs(commits: Sequence[Commit], versions: Sequence[int]) -> tuple[CommitRef, ...]:
    carried = set(versions)
    return tuple(
        CommitRef(commit.version, commit.time) for commit in commits if commit.version in carried
    )
