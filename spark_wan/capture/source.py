"""A Delta table as a source: Spark reads its history, its change feed and its rows; tasks net, encode and publish them."""

from __future__ import annotations

import base64
import json
import logging
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_wan.capture.arrow_batches import ArrowBatches
from spark_wan.capture.change_feed import JAVA_TIME, has_replacements, refuse, refused
from spark_wan.capture.netting import CHANGE_TYPE, COMMIT_VERSION, net
from spark_wan.capture.ranges import CaptureRange, CaptureResult, check_columns_follow
from spark_wan.channels.base import Channel, new_attempt
from spark_wan.channels.batches import BatchLimits, BatchPublisher
from spark_wan.delta.commits import Commit
from spark_wan.delta.errors import condition, feed_advice, no_table, source_error
from spark_wan.delta.history import history, newest
from spark_wan.delta.schema import schema_json
from spark_wan.delta.sessions import cloned_session, is_connect
from spark_wan.delta.sql import select_columns, sql_type
from spark_wan.delta.tables import (
    commit_file,
    commit_identity,
    has_change_feed,
    load,
    log_retention,
    map_in_arrow,
    table_id,
)
from spark_wan.errors import COPY, ChangeFeedError, KeylessChangeError, SchemaError, SourceError
from spark_wan.events.arrow_types import arrow_ready, as_type
from spark_wan.events.operations import OP, VERSION, Operation, keyless_event_id
from spark_wan.events.row_hash import hex_ids, row_hashes
from spark_wan.topology.model import MAX_DEAD_LETTERS
from spark_wan.wire.frame import FrameHeader, FrameRef

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


log = logging.getLogger(__name__)


ROWS_PER_TASK = 500_000
"""A task of the sender nets and encodes about so many events."""

CHECK_INTERVAL = 3_600.0
"""Seconds after which an idle source whose log is not a folder here is compared anew with what was published."""
ASK_INTERVAL = 5.0
"""Seconds between two times at which Spark is asked for news of a table whose log lies on a local disk and shows none."""

RETENTION_INTERVAL = 86_400.0
"""Seconds between two times at which Spark is asked how long a table's log keeps its commits."""

_RANK_COLUMN = "_wan_rank"
_INCOMPATIBLE = "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE"
_ACROSS = "spark.databricks.delta.changeDataFeed.unsafeBatchReadOnIncompatibleSchemaChanges.enabled"
_RESULT = "kind string, content string"


@dataclass(frozen=True)
class SenderDeadLetter:
    """A source row that cannot become an event. ``payload`` is the row as an Arrow IPC stream, so that it can be replayed."""

    event_id: str
    table: str
    stream: str
    version: int
    operation: str
    cause: str
    row: str
    payload: bytes


@dataclass
class DeltaSource:
    """The publisher's view of a Delta table (see :class:`spark_wan.sender.publish.SourceTable`)."""

    spark: SparkSession
    """In a classic session, this stream's own: the size of its Arrow batches is set there."""
    table: str
    location: str
    keys: tuple[str, ...]
    channel: Channel
    limits: BatchLimits
    record_dead_letters: Callable[[Sequence[SenderDeadLetter]], None]
    max_dead_letters: int = MAX_DEAD_LETTERS
    """So many rows of one epoch without a usable key are no accident: beyond, the stream is held instead."""
    _asked: tuple[int, list[Commit]] | None = None
    _ask_at: float = 0.0
    _batches: ArrowBatches = field(init=False)
    _retention: tuple[float, int] | None = None
    """When the log's retention was asked for, and what it was."""
    _clone: SparkSession | None = None
    """Under Connect, the session in which a capture runs now."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Of ``_clone``: it is not released while another thread interrupts it."""

    def __post_init__(self) -> None:
        self._batches = ArrowBatches(self.spark, self.table)

    def table_id(self) -> str:
        with self._errors():
            found = table_id(self.spark, self.location)
        if found is None:
            raise SourceError(no_table(self.table, self.location, "nothing is there"))
        return found

    def latest(self, known: int) -> int:
        on_disk = self._latest_on_disk(known)
        if on_disk is not None:
            return on_disk
        # Asking the change feed for the version after the known one runs no Spark job and reads no more than the log's end.
        try:
            feed = load(self.spark, self.location, readChangeFeed="true", startingVersion=known + 1)
            # A Connect session asks only when it must.
            _ = feed.columns
        except Exception as error:
            if condition(error) == "DELTA_CDC_START_VERSION_AFTER_LATEST":
                found = re.search(r"latest table version (-?\d+)", str(error))
                if found:
                    return int(found[1])
            return self.newest().version
        return known + 1

    def _latest_on_disk(self, known: int) -> int | None:
        """What the names of the log's files say, where the log is a folder here and has the version ``known``; None: ask Spark.

        The answer "nothing new" costs Spark 0.1 s of a core, most of it for the exception in which it comes; so it is asked for only now
        and then, since it may know more (commits that are not in the folder yet)."""
        if not os.path.exists(commit_file(self.location, known)):
            return None
        if os.path.exists(commit_file(self.location, known + 1)):
            return known + 1
        if time.monotonic() < self._ask_at:
            return known
        self._ask_at = time.monotonic() + ASK_INTERVAL
        return None

    def stamp(self, version: int) -> object:
        return commit_identity(self.location, version) or time.monotonic() // CHECK_INTERVAL

    def newest(self) -> Commit:
        with self._errors():
            return newest(self.spark, self.location)

    def history(self, after: int) -> list[Commit]:
        if self._asked is not None and self._asked[0] == after:
            commits, self._asked = self._asked[1], None
            return commits
        with self._errors():
            commits = history(self.spark, self.location, after)
        self._ask_at = time.monotonic() + ASK_INTERVAL  # whoever knows the history knows the news
        return commits

    def commit(self, version: int) -> Commit | None:
        found = self.history(version - 1)
        if not found or found[0].version != version:
            return None
        # The publisher asks next for what came after it: the answer is here already.
        self._asked = (version, found[1:])
        return found[0]

    def log_retention(self) -> int:
        if self._retention is None or time.monotonic() - self._retention[0] > RETENTION_INTERVAL:
            with self._errors():
                self._retention = time.monotonic(), log_retention(self.spark, self.location)
        return self._retention[1]

    def schema_at(self, version: int) -> Mapping[str, Any]:
        with self._errors():
            return schema_json(load(self.spark, self.location, versionAsOf=version))

    def capture(self, planned: CaptureRange, header: FrameHeader) -> CaptureResult:
        with self._errors():
            try:
                return self._capture(planned, header)
            except Exception as error:
                if _INCOMPATIBLE not in condition(error) and _INCOMPATIBLE not in str(error):
                    raise
                # Columns got wider since, or were renamed and renamed back. Delta refuses what it cannot judge by the schemas alone.
                if not planned.keeps_columns or self._lost_names_since(planned.last_version):
                    raise SchemaError(
                        f"{self.table}: the change feed of versions {planned.first_version} to {planned.last_version} cannot be read: the "
                        f"columns were replaced in between or since ({_INCOMPATIBLE}). The stream is held. Make {COPY}."
                    ) from error
            return self._capture(planned, header, across=True)

    def _capture(
        self, planned: CaptureRange, header: FrameHeader, across: bool = False
    ) -> CaptureResult:
        from pyspark.sql import functions as F

        with self._feed_session(across) as session, self._refusals(planned.schema):
            feed = load(
                session,
                self.location,
                readChangeFeed="true",
                startingVersion=planned.first_version,
                endingVersion=planned.last_version,
            )
            if planned.left_out:
                feed = feed.where(~F.col(COMMIT_VERSION).isin(list(planned.left_out)))
            selected = self._as_planned(feed, planned) if across else select_columns(planned.names)
            columns = [*selected, F.col(COMMIT_VERSION)]
            feed = refuse(feed, planned.schema, F.col(COMMIT_VERSION), text=False)

            def check_text() -> None:
                refuse(feed, planned.schema, F.col(COMMIT_VERSION), text=True).count()

            name, kind = CHANGE_TYPE, F.col(CHANGE_TYPE)
            if self.keys:
                old = F.col(CHANGE_TYPE).isin("update_preimage", "delete")
                name, kind = _RANK_COLUMN, F.when(old, 0).otherwise(1).cast("tinyint")
            return self._batches.publish(
                planned.schema,
                lambda guard: feed.select(*columns, guard(kind).alias(name)),
                lambda rows: self._publish(rows, header, planned.rows, check_text),
            )

    def _lost_names_since(self, version: int) -> bool:
        """Whether the names under which a version's files hold their columns are known no more."""
        return any(
            commit.operation == "REMOVE COLUMN MAPPING"
            for commit in history(self.spark, self.location, version)
        )

    def _as_planned(self, feed: DataFrame, planned: CaptureRange) -> list[Column]:
        """The columns of a feed that Spark reads by a later schema, which may be wider, with the types that they had. Raises SchemaError when that
        schema cannot hold them."""
        found = {field["name"].lower(): field for field in schema_json(feed)["fields"]}
        read = {
            **planned.schema,
            "fields": [found[name.lower()] for name in planned.names if name.lower() in found],
        }
        check_columns_follow(planned.schema, read, self.table, planned.last_version)
        columns = []
        for entry, column in zip(
            planned.schema["fields"], select_columns(planned.names), strict=True
        ):
            wider = (
                isinstance(entry["type"], str)
                and found[entry["name"].lower()]["type"] != entry["type"]
            )
            columns.append(
                column.cast(sql_type(entry["type"])).alias(entry["name"]) if wider else column
            )
        return columns

    def snapshot(
        self, version: int, schema: Mapping[str, Any], header: FrameHeader
    ) -> CaptureResult:
        from pyspark.sql import functions as F

        with self._errors(), self._refusals(schema):
            if not has_change_feed(self.spark, self.location):
                # Nothing could ever follow the snapshot.
                raise ChangeFeedError(
                    feed_advice(self.table, self.location, "its change feed is off")
                )
            frame = load(self.spark, self.location, versionAsOf=version)
            estimate = frame.count()
            # Carried, such rows could never change: the feed would not return them as they are.
            frame = refuse(frame, schema, F.lit(version), text=True)
            names = [field["name"] for field in schema["fields"]]
            return self._publish(
                frame.select(
                    *select_columns(names),
                    F.lit(version).cast("bigint").alias(COMMIT_VERSION),
                    F.lit(1).cast("tinyint").alias(_RANK_COLUMN),
                ),
                header,
                estimate,
            )

    @contextmanager
    def _feed_session(self, across: bool = False) -> Iterator[SparkSession]:
        """A session in which the change feed returns every date and timestamp as it is; with ``across``, also one in which Delta reads it across
        schemas, of a range of which capture has checked that its columns are the same ones throughout. The user's session is not changed."""
        settings = [JAVA_TIME, _ACROSS] if across else [JAVA_TIME]
        if not is_connect(self.spark):
            conf = self.spark.conf
            chosen = {name: conf.get(name, None) for name in settings}
            for name in settings:
                conf.set(name, "true")
            try:
                yield self.spark
            finally:
                for name, value in chosen.items():
                    if value is None:
                        conf.unset(name)
                    else:
                        conf.set(name, value)
            return
        with cloned_session(self.spark) as session:
            for name in settings:
                session.conf.set(name, "true")
            for tag in self.spark.getTags():
                session.addTag(tag)
            with self._lock:
                self._clone = session
            try:
                yield session
            finally:
                with self._lock:
                    self._clone = None

    def interrupt(self, tag: str) -> None:
        """Cancel the jobs of this source that have ``tag``, also those of the session in which a capture runs."""
        self.spark.interruptTag(tag)
        with self._lock:
            if self._clone is not None:
                self._clone.interruptTag(tag)

    @contextmanager
    def _refusals(self, schema: Mapping[str, Any]) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            found = refused(error, self.table, schema)
            if found is None:
                raise
            raise found from error

    def _publish(
        self,
        rows: DataFrame,
        header: FrameHeader,
        estimate: int,
        check_text: Callable[[], None] | None = None,
    ) -> CaptureResult:
        """``check_text`` is called when strings have U+FFFD, and raises when the feed has put it there."""
        task = _CaptureTask(
            self.channel,
            header,
            self.limits,
            self.keys,
            check_text is not None,
            self.max_dead_letters,
        )
        if self.keys:
            keys = select_columns(self.keys)
            # A number of its own, since adaptive execution would make one task of what it takes for little.
            rows = rows.repartition(
                max(1, math.ceil(estimate / ROWS_PER_TASK)), *keys
            ).sortWithinPartitions(*keys, COMMIT_VERSION, _RANK_COLUMN)
        frames: list[FrameRef] = []
        versions: set[int] = set()
        letters: list[SenderDeadLetter] = []
        changes: list[dict[str, Any]] = []
        too_many: str | None = None
        disjoint, replaced = True, False
        for kind, content in map_in_arrow(rows, task, _RESULT).collect():
            told = json.loads(content)
            if kind == "change":
                changes.append(told)
                continue
            if kind == "replaced":
                replaced = True
                continue
            if kind == "too many":
                too_many = told["first"]
                continue
            if kind == "dead":
                letters.append(_letter(told))
                continue
            frames += [FrameRef(**entry) for entry in told["frames"]]
            versions.update(told["versions"])
            disjoint = disjoint and not told["split"]
        if replaced and check_text is not None:
            try:
                check_text()
            except Exception:
                self.channel.trim_frames(header.stream, [frame.path for frame in frames])
                raise
        if len(letters) > self.max_dead_letters:
            too_many = _described(letters[0])
        if changes or too_many:
            # The stream is held and tried again: what was written in vain must not pile up.
            self.channel.trim_frames(header.stream, [frame.path for frame in frames])
        if changes:
            first = min(changes, key=lambda change: int(change["version"]))
            raise KeylessChangeError(
                f"{self.table}: version {first['version']} changes rows other than by inserting ({first['change']}), and the table has "
                "no key by which a remote site could find them. The stream stops before that commit. Give the table `keys:`, and make "
                f"{COPY}. Commits that need not travel can be marked local-only when they are made (spark_wan.LOCAL_ONLY as userMetadata).",
                int(first["version"]),
            )
        if too_many:
            raise SourceError(
                f"{self.table}: more than {self.max_dead_letters} rows of one epoch have no usable key {list(self.keys)} (for example: "
                f"{too_many}). That is no accident; the stream is held. Mend the rows at the source and give the remote sites a full copy "
                "under a new table name, with other `keys:` if these are wrong, or raise the table's `max_dead_letters` in the topology: "
                "such rows are then set aside."
            )
        if letters:
            self.record_dead_letters(letters)
        return CaptureResult(
            tuple(sorted(frames, key=lambda frame: frame.path)), disjoint, tuple(sorted(versions))
        )

    def _errors(self) -> _SourceErrors:
        return _SourceErrors(self.table, self.location)


def _readable(kind: pa.DataType) -> pa.DataType:
    """A type with text in place of dates and timestamps, at every depth: Python has none before year 1 or after 9999."""
    types = pa.types
    if types.is_date(kind) or types.is_timestamp(kind):
        return pa.string()
    if types.is_struct(kind):
        return pa.struct([field.with_type(_readable(field.type)) for field in kind])
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_readable(kind.value_type)))
    if types.is_map(kind):
        key, item = (
            field.with_type(_readable(field.type)) for field in (kind.key_field, kind.item_field)
        )
        return pa.map_(key, item)
    return kind


def _letter(told: Mapping[str, Any]) -> SenderDeadLetter:
    return SenderDeadLetter(**{**told, "payload": base64.b64decode(told["payload"])})


def _described(letter: SenderDeadLetter) -> str:
    row = letter.row if len(letter.row) <= 200 else letter.row[:200] + " …"
    return f"{letter.cause} in version {letter.version}: {row}"


class _SourceErrors:
    """Turns what Spark raises while a source is read into what it means for the stream."""

    def __init__(self, table: str, location: str) -> None:
        self.table, self.location = table, location

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            meant = source_error(error, self.table, self.location)
            if meant is not error:
                raise meant from error


@dataclass(frozen=True)
class _CaptureTask:
    """What a Spark task does with its change rows. Yields what the driver must know: frames, dead letters, what stops the stream."""

    channel: Channel
    header: FrameHeader
    limits: BatchLimits
    keys: tuple[str, ...]
    watch_text: bool
    """Tell the driver when strings have U+FFFD."""
    max_dead_letters: int = MAX_DEAD_LETTERS
    """The driver collects no more from a task, which then ends early: its stream is held."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # A fresh name for each attempt of the task: two attempts never write the same frame.
        header = replace(self.header, attempt=new_attempt(self.header.attempt))
        publisher = BatchPublisher(self.channel, header, self.limits)
        versions: set[int] = set()
        told: list[tuple[str, Any]] = []
        replaced: list[tuple[str, Any]] = []
        ready = self._watched((arrow_ready(batch) for batch in batches), replaced)
        events = self._keyed(ready, told) if self.keys else self._keyless(ready, told)

        def seen() -> Iterator[tuple[pa.RecordBatch, Any]]:
            for batch, starts in events:
                versions.update(pc.unique(batch.column(VERSION)).to_pylist())
                yield batch, starts

        publisher.publish(seen())
        if self._too_many(told):
            told = [("too many", {"first": _described(_letter(told[0][1]))})]
        told += replaced
        if publisher.refs:
            content = {
                "frames": [asdict(ref) for ref in publisher.refs],
                "versions": sorted(versions),
                "split": publisher.split_runs,
            }
            told.append(("frames", content))
        if told:
            yield pa.record_batch(
                [
                    pa.array([kind for kind, _ in told]),
                    pa.array([json.dumps(content) for _, content in told]),
                ],
                names=["kind", "content"],
            )

    def _watched(
        self, batches: Iterable[pa.RecordBatch], replaced: list[tuple[str, Any]]
    ) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if self.watch_text and not replaced and has_replacements(batch):
                replaced.append(("replaced", None))
            yield batch

    def _keyed(
        self, batches: Iterable[pa.RecordBatch], told: list[tuple[str, Any]]
    ) -> Iterator[tuple[pa.RecordBatch, Any]]:
        for netted in net(self._with_keys(batches, told), self.keys, rank=_RANK_COLUMN):
            self._set_aside(netted.duplicates, "duplicate_key", told)
            if self._too_many(told):
                return
            yield netted.events, netted.run_starts

    def _with_keys(
        self, batches: Iterable[pa.RecordBatch], told: list[tuple[str, Any]]
    ) -> Iterator[pa.RecordBatch]:
        """Set aside rows with a null in their key: no site could find them again."""
        for batch in batches:
            missing = None
            for key in self.keys:
                nulls = batch.column(key).is_null()
                missing = nulls if missing is None else pc.or_(missing, nulls)
            if pc.any(missing).as_py():
                self._set_aside(batch.filter(missing), "null_in_key", told)
                if self._too_many(told):
                    return
                batch = batch.filter(pc.invert(missing))
            yield batch

    def _keyless(
        self, batches: Iterable[pa.RecordBatch], told: list[tuple[str, Any]]
    ) -> Iterator[tuple[pa.RecordBatch, Any]]:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            others = batch.filter(pc.not_equal(batch.column(CHANGE_TYPE), "insert"))
            if others.num_rows:
                told.append(
                    (
                        "change",
                        {
                            "version": others.column(COMMIT_VERSION)[0].as_py(),
                            "change": others.column(CHANGE_TYPE)[0].as_py(),
                        },
                    )
                )
                return
            names = [
                name for name in batch.schema.names if name not in (CHANGE_TYPE, COMMIT_VERSION)
            ]
            fields = [
                pa.field(OP, pa.int8()),
                pa.field(VERSION, pa.int64()),
                *(batch.schema.field(name) for name in names),
            ]
            ops = pa.array([int(Operation.CREATE)], pa.int8()).take(pa.array([0] * batch.num_rows))
            columns = [ops, batch.column(COMMIT_VERSION), *(batch.column(name) for name in names)]
            yield pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)), None

    def _too_many(self, told: Sequence[tuple[str, Any]]) -> bool:
        """Whether the stream will be held. While a task of a keyed table is at work, it tells of dead letters only."""
        return bool(self.keys) and len(told) > self.max_dead_letters

    def _set_aside(self, rows: pa.RecordBatch, cause: str, told: list[tuple[str, Any]]) -> None:
        rows = rows.slice(0, self.max_dead_letters + 1 - len(told))
        if rows.num_rows == 0:
            return
        names = [name for name in rows.schema.names if name not in (COMMIT_VERSION, _RANK_COLUMN)]
        content = rows.select(names)
        readable = pa.RecordBatch.from_arrays(
            [as_type(column, _readable(column.type)) for column in content.columns], names=names
        )
        equal: dict[tuple[int, int, str], int] = {}
        for index, content_hash in enumerate(hex_ids(row_hashes(content)).to_pylist()):
            version, rank = (
                rows.column(COMMIT_VERSION)[index].as_py(),
                rows.column(_RANK_COLUMN)[index].as_py(),
            )
            nth = equal[version, rank, content_hash] = (
                equal.get((version, rank, content_hash), -1) + 1
            )
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, content.schema) as writer:
                writer.write_batch(content.slice(index, 1))
            letter = {
                "event_id": keyless_event_id(
                    self.header.table_id, version, f"{rank}{content_hash}", nth
                ),
                "table": self.header.table,
                "stream": self.header.stream,
                "version": version,
                "operation": Operation.PUT.name.lower() if rank else Operation.DESTROY.name.lower(),
                "cause": cause,
                "row": json.dumps(readable.slice(index, 1).to_pylist()[0], default=str),
                "payload": base64.b64encode(sink.getvalue().to_pybytes()).decode(),
            }
            told.append(("dead", letter))
