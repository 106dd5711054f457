"""Fakes that the unit tests of the core share: a manifest to vary, a clock, stores, and tables to
capture from and to apply to."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from spark_wan.apply.change import Change, WriteConflict
from spark_wan.apply.plan import PlannedEpoch
from spark_wan.capture.ranges import ALL_PARTS, CaptureRange, CaptureResult, Part
from spark_wan.channels.base import Channel, new_attempt
from spark_wan.channels.registry import open_channel
from spark_wan.delta.commits import DAY, Commit
from spark_wan.errors import FrameError, WanError
from spark_wan.events.columns import differences, fingerprint
from spark_wan.ledger.applied_columns import AppliedColumns
from spark_wan.ledger.event_ids import RecordedIds
from spark_wan.ledger.interfaces import TargetName, transaction_name
from spark_wan.log.notes import put_ack
from spark_wan.log.stream_log import StreamLog
from spark_wan.wire.ack import Ack
from spark_wan.wire.checkpoint import SenderCheckpoint
from spark_wan.wire.frame import FrameHeader, FrameRef, check_frame, encode_frame, frame_checksum
from spark_wan.wire.ledger import FoldedIds, HistoryPosition, LedgerRecord, LedgerRow, Summary
from spark_wan.wire.manifest import CAPTURE, Manifest
from spark_wan.wire.mark import Mark, read_mark

STREAM = "newark.east.orders"


def schema(**columns: str) -> dict[str, Any]:
    """Return Spark's schema JSON: ``schema(id="long", city="string")``, as in the orders table."""
    columns = columns or {"id": "long", "city": "string"}
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in columns.items()
    ]
    return {"type": "struct", "fields": fields}


MANIFEST = Manifest(
    stream=STREAM,
    log_id="a" * 32,
    epoch=1,
    previous="",
    kind=CAPTURE,
    origin="newark",
    sent_to=("seattle",),
    addressees=("seattle",),
    table="orders",
    table_id="11111111-2222-3333-4444-555555555555",
    selection="all",
    keys=("id",),
    schema=schema(),
    first_version=0,
    last_version=3,
    start=True,
    commits=(),
    identity="0123456789abcdef01234567",
    frames=(),
    disjoint=True,
    created=1_700_000_000_000,
)

HEADER = FrameHeader(
    origin="newark",
    sent_to=("seattle",),
    stream=STREAM,
    table="orders",
    table_id=MANIFEST.table_id,
    selection="all",
    schema=fingerprint(schema()),
    attempt="b" * 32,
    index=0,
    events=0,
)


def manifest(epoch: int = 1, **changes: Any) -> Manifest:
    """Return MANIFEST with changes. By default epoch n covers versions 10 n - 10 to 10 n - 1."""
    versions = {
        "first_version": 10 * epoch - 10,
        "last_version": 10 * epoch - 1,
        "start": epoch == 1,
    }
    return replace(MANIFEST, **{"epoch": epoch, **versions, **changes})


def chained(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Return the manifests, each naming the one before it."""
    chain: list[Manifest] = []
    for link in manifests:
        chain.append(replace(link, previous=chain[-1].fingerprint) if chain else link)
    return chain


def memory_channel() -> Channel:
    """Return a new channel in memory."""
    return open_channel(f"memory://{uuid.uuid4().hex}")


def put_frame(
    channel: Channel, rows: int = 1, stream: str = STREAM, index: int = 0, write: str | None = None
) -> FrameRef:
    """Write a frame with ids 0, 1, 2 …; return what a manifest says of it.

    ``write`` is the write that the frame is part of; by default, one of its own.
    """
    batch = pa.record_batch(
        {"_wan_op": pa.array([1] * rows, pa.int8()), "id": pa.array(range(rows), pa.int64())}
    )
    attempt = new_attempt(write or uuid.uuid4().hex)
    header = replace(HEADER, attempt=attempt, index=index, events=rows, stream=stream)
    data = encode_frame(header, batch)
    path = channel.put_frame(stream, header.attempt, index, data)
    return FrameRef(path, rows, len(data), frame_checksum(data))


def publish(log: StreamLog, *epochs: int, frames: int = 1, **changes: Any) -> list[Manifest]:
    """Append epochs with frames of one row each; return their manifests."""
    appended = []
    for epoch in epochs:
        refs = tuple(put_frame(log.channel, stream=log.stream) for _ in range(frames))
        follows = log.channel.stream_epochs(log.stream, epoch - 2, 1) == [epoch - 1]
        previous = log.read(epoch - 1).fingerprint if follows else ""
        parts = {"previous": previous, "stream": log.stream, "frames": refs, **changes}
        appended.append(manifest(epoch, **parts))
        log.append(appended[-1])
    return appended


def ack(
    log: StreamLog, site: str, applied: int, log_id: str = MANIFEST.log_id, **more: Any
) -> None:
    """Write a site's ack."""
    put_ack(log.channel, log.stream, site, Ack(site, log.stream, log_id, applied, **more).encode())


@dataclass
class Clock:
    """A clock in milliseconds that only the test moves."""

    now: int = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now

    def pass_seconds(self, seconds: float) -> None:
        self.now += int(seconds * 1000)


@dataclass
class Checkpoints:
    """A store of senders' checkpoints that is a dict."""

    kept: dict[str, SenderCheckpoint] = field(default_factory=dict)

    def load(self, stream: str) -> SenderCheckpoint | None:
        return self.kept.get(stream)

    def save(self, stream: str, checkpoint: SenderCheckpoint) -> None:
        self.kept[stream] = checkpoint


def commit(version: int, operation: str = "WRITE", rows: int = 1, **more: Any) -> Commit:
    """Return a commit of a table's history, one second after the version before."""
    more = {"time": 1_700_000_000_000 + 1_000 * version, **more}
    return Commit(
        version=version,
        operation=operation,
        parameters={},
        metrics={"numOutputRows": str(rows)},
        **more,
    )


@dataclass
class Source:
    """A source table: its history, its columns by version, and the versions without row changes."""

    channel: Channel
    commits: list[Commit] = field(default_factory=lambda: [commit(0)])
    id: str = MANIFEST.table_id
    columns: dict[int, Mapping[str, Any]] = field(default_factory=lambda: {0: schema()})
    without_events: set[int] = field(default_factory=set)
    retention: int = 30 * DAY
    keeps: int = 7 * DAY
    """For how long what a commit has changed can be read, in milliseconds."""
    retention_error: Exception | None = None
    asked_afresh: int = 0
    """How often that was read anew."""
    most: int | None = None
    """The most commits that a history returns at once."""
    size: int | None = 1_000
    """Bytes of the table's files."""
    empty: bool = False
    feed_error: WanError | None = None
    calls: list[str] = field(default_factory=list)

    def table_id(self) -> str:
        return self.id

    def look(self, version: int) -> object:
        self.calls.append("look")
        newest = self.commits[-1]
        return (self.id, newest.identity) if newest.version == version else object()

    def newest(self) -> Commit:
        return self.commits[-1]

    def history(self, after: int) -> list[Commit]:
        self.calls.append("history")
        return [commit for commit in self.commits if commit.version > after][: self.most]

    def commit(self, version: int) -> Commit | None:
        return next((each for each in self.commits if each.version == version), None)

    def log_retention(self) -> int:
        return self.retention

    def history_retention(self, afresh: bool = False) -> int:
        self.asked_afresh += afresh
        if self.retention_error is not None:
            raise self.retention_error
        return self.keeps

    def schema_at(self, version: int) -> Mapping[str, Any]:
        return self.columns[max(since for since in self.columns if since <= version)]

    def is_empty_at(self, version: int) -> bool:
        return self.empty

    def check_feed(self) -> None:
        if self.feed_error is not None:
            raise self.feed_error

    def capture(self, planned: CaptureRange, header: FrameHeader) -> CaptureResult:
        self.calls.append(f"capture {planned.first_version}-{planned.last_version}")
        versions = [
            each.version
            for each in planned.commits
            if each.changes_rows and each.version not in {*planned.left_out, *self.without_events}
        ]
        frames = (
            (put_frame(self.channel, len(versions), header.stream, write=header.attempt),)
            if versions
            else ()
        )
        return CaptureResult(frames, True, tuple(versions))

    def amount(self, version: int) -> tuple[int, int | None]:
        return 1, self.size

    def snapshot(
        self,
        version: int,
        schema: Mapping[str, Any],
        header: FrameHeader,
        part: Part = ALL_PARTS,
    ) -> CaptureResult:
        of = "" if part.of == 1 else f", part {part.number} of {part.of}"
        self.calls.append(f"snapshot {version}{of}")
        return CaptureResult(
            (put_frame(self.channel, stream=header.stream, write=header.attempt),), True, (version,)
        )

    def add(self, operation: str = "WRITE", rows: int = 1, **more: Any) -> Commit:
        """Add a commit."""
        self.commits.append(commit(self.commits[-1].version + 1, operation, rows, **more))
        return self.commits[-1]


@dataclass
class LedgerRows:
    """A ledger store that is lists. The event IDs of an apply are only their token and origin."""

    rows: list[LedgerRow] = field(default_factory=list)
    positions: list[HistoryPosition] = field(default_factory=list)
    tokens_with_ids: set[str] = field(default_factory=set)
    floors: dict[str, int] = field(default_factory=dict)
    summaries: list[Summary] = field(default_factory=list)
    """Claims too."""
    ranges: set[tuple[str, str]] = field(default_factory=set)
    """(origin, token) of IDs of folded applies."""
    letters: list[str] = field(default_factory=list)
    """Tokens of dead letters."""

    def load(self, table: str) -> Sequence[LedgerRecord]:
        rows = [row for row in self.rows if row.mark.table == table]
        return [*self.positions, *rows, *self.summaries]

    def append(self, table: str, rows: Sequence[LedgerRow | HistoryPosition]) -> None:
        self.rows += [row for row in rows if isinstance(row, LedgerRow)]
        self.positions += [row for row in rows if isinstance(row, HistoryPosition)]

    def names(self, target_id: str) -> set[str]:
        return {row.mark.table for row in self.rows if row.target_id == target_id}

    def recorded_ids(self, table: str) -> RecordedIds:
        tokens = {("", token, None) for token in self.tokens_with_ids}
        ranges = {(origin, token, None) for origin, token in self.ranges}
        floors = [(origin, None, floor) for origin, floor in self.floors.items()]
        return RecordedIds.of([*tokens, *ranges, *floors])

    def claim(self, table: str, claim: Summary) -> None:
        if all(other.number < claim.number for other in self.summaries):
            self.summaries.append(claim)

    def rename_ids(self, table: str, tokens: Mapping[FoldedIds, Collection[str]]) -> None:
        for ids, replaced in tokens.items():
            self.tokens_with_ids -= set(replaced)
            self.ranges -= {(ids.origin, token) for token in replaced}
            self.ranges.add((ids.origin, ids.token))

    def rename_letters(self, table: str, tokens: Collection[str], token: str) -> None:
        self.letters = [token if each in tokens else each for each in self.letters]

    def replace(self, table: str, summary: Summary, before: int) -> None:
        self.rows = [row for row in self.rows if row.mark.apply > summary.apply]
        self.positions = [each for each in self.positions if each.target_version >= before]
        self.summaries = [each for each in self.summaries if each.apply > summary.apply]
        self.summaries.append(summary)


@dataclass
class Target:
    """A target table that keeps the epochs written by each commit instead of rows."""

    channel: Channel
    id: str | None = "target-1"
    commits: list[Commit] = field(default_factory=lambda: [commit(0, "CREATE TABLE")])
    written: list[list[int]] = field(default_factory=list)
    recorded: list[tuple[int, str]] = field(default_factory=list)
    letters_per_apply: int = 0
    before_write: list[Callable[[], None]] = field(default_factory=list)
    """Called in turn, one before each write."""
    open_work: int = 0
    reported: Commit | None = None
    """The newest commit that the history returned."""
    transactions: dict[str, int] = field(default_factory=dict)
    """Delta keeps them beside the commits, and longer."""
    log_is_readable: bool = True
    empty: bool = False
    retention: int = 30 * DAY
    sql_name: str = "`orders`"
    columns: Mapping[str, Any] = field(default_factory=lambda: schema())

    def table_id(self) -> str | None:
        return self.id

    def history(self, after: int) -> list[Commit]:
        self.reported = self.commits[-1] if self.commits else None
        return [commit for commit in self.commits if commit.version > after]

    def is_unchanged(self, version: int) -> bool:
        newest = self.reported
        return newest is not None and newest.version == version and newest is self.commits[-1]

    def log_retention(self) -> int:
        return self.retention

    def last_transaction(self, name: str) -> int | None:
        return self.transactions.get(name) if self.log_is_readable else None

    def is_empty(self) -> bool:
        return self.empty

    def create(self, epoch: PlannedEpoch) -> None:
        self.id, self.commits = "target-1", [commit(0, "CREATE TABLE")]

    def read(self, change: Change, applied: AppliedColumns) -> None:
        travelling = change.newest.schema
        applied.check(self.columns, travelling, TargetName("orders", "seattle", "`orders`"))
        added = [entry for _, entry in differences(self.columns, travelling).added]
        if added:
            self.columns = {**self.columns, "fields": [*self.columns["fields"], *added]}
            self.put(None, "ADD COLUMNS")
        for epoch in change.epochs:
            self.check_frames(epoch)
        self.open_work += 1
        change.dead_letters = self.letters_per_apply

    def resolve(self, change: Change) -> None:
        pass

    def record(self, change: Change, mark: Mark) -> None:
        self.recorded.append((mark.apply, mark.token))

    def write(self, change: Change, mark: Mark) -> None:
        if self.before_write:
            self.before_write.pop(0)()
        # As Delta does: a transaction number that is there already skips the write.
        name = transaction_name(mark.site, mark.table, str(self.id))
        if self.transactions.get(name, 0) >= mark.apply:
            return
        self.put(mark.user_metadata(), "MERGE")
        self.written.append([epoch.manifest.epoch for epoch in change.epochs])

    def put(self, user_metadata: str | None, operation: str = "WRITE", **more: Any) -> None:
        """Add a commit, of a receiver or another writer."""
        version = self.commits[-1].version + 1
        self.commits.append(commit(version, operation, user_metadata=user_metadata, **more))
        mark = read_mark(user_metadata) or {}
        if "site" in mark:
            name = transaction_name(mark["site"], mark["table"], str(self.id))
            self.transactions[name] = mark["apply"]

    def done(self, change: Change) -> None:
        self.open_work -= 1

    def check_frames(self, epoch: PlannedEpoch) -> None:
        for ref in epoch.manifest.frames:
            check_frame(self.channel.get_frame(ref.path), ref.path, ref)


def conflict() -> None:
    raise WriteConflict("another writer was faster")


def raising(error: WanError | FrameError) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


class ConnectSession:
    """A Connect session that has ended once ``ended`` says so, and its clones."""

    __module__ = "pyspark.sql.connect.session"

    def __init__(self) -> None:
        self.ended = False
        self.interrupted = threading.Event()
        self.conf = SimpleNamespace(get=self.ask, set=self.ask, unset=self.ask, getAll={})
        self.client = SimpleNamespace(release_session=self.ask, close=self.ask)
        self.version = "4.2.0"

    def cloneSession(self) -> ConnectSession:
        self.ask()
        return self

    def getTags(self) -> set[str]:
        return set()

    def ask(self, *_: object) -> None:
        """Raise the error of a call once the session has ended."""
        if self.ended:
            raise ConnectionRefusedError(111, "Connection refused")

    def interruptTag(self, tag: str) -> None:
        self.ask()
        self.interrupted.set()

    addTag = ask


class ThreadOfAnEndedSession(threading.Thread):
    """``pyspark.InheritableThread`` after the JVM has ended: it fails before calling its target."""

    def __init__(self, *args: Any, session: Any = None, **more: Any) -> None:
        super().__init__(*args, **more)

    def run(self) -> None:
        raise ConnectionRefusedError(111, "Connection refused")
